//! Lists for inputs. The ones of `arbitrary` toss a coin for every further element, which makes
//! nearly all of them short.

use arbitrary::{Arbitrary, Result, Unstructured};

/// As many elements as the rest of the input gives, at most `N`.
#[derive(Clone, Debug)]
pub struct Rest<T, const N: usize>(pub Vec<T>);

impl<'a, T: Arbitrary<'a>, const N: usize> Arbitrary<'a> for Rest<T, N> {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        let mut all = Vec::new();
        while !u.is_empty() && all.len() < N {
            all.push(T::arbitrary(u)?);
        }
        Ok(Rest(all))
    }
}

/// Up to `N` elements, their number first.
#[derive(Clone, Debug)]
pub struct Few<T, const N: usize>(pub Vec<T>);

impl<'a, T: Arbitrary<'a>, const N: usize> Arbitrary<'a> for Few<T, N> {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        let count = u.int_in_range(0..=N)?;
        (0..count).map(|_| T::arbitrary(u)).collect::<Result<_>>().map(Few)
    }
}
