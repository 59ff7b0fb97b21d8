//! Lists of process counts: `2,4,8..64`.

use std::str::FromStr;

/// How many counts a list may have.
const MOST: usize = 1000;

/// Process counts, in the order given, each once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counts(pub Vec<u32>);

impl FromStr for Counts {
    type Err = String;

    /// Reads a list; the rules are in the command's help.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut all: Vec<u32> = Vec::new();
        for item in text.split(',').map(str::trim) {
            if item.is_empty() {
                return Err(format!("`{text}`: a number of processes is missing; {LIKE}"));
            }
            for count in series(item)? {
                if !all.contains(&count) {
                    all.push(count);
                }
                if all.len() > MOST {
                    return Err(format!("more than {MOST} process counts"));
                }
            }
        }
        Ok(Self(all))
    }
}

/// The count behind another.
type Step = Box<dyn Fn(u32) -> Option<u32>>;

/// What lists are like.
const LIKE: &str = "lists are like 2,4,8..64 (doubled), 1..1000x10 (ten times), 4..16+4 (four more)";

/// The counts of one item.
fn series(item: &str) -> Result<Vec<u32>, String> {
    let count = |text| count(text, item);
    let Some((from, rest)) = item.split_once("..") else { return Ok(vec![count(item)?]) };
    let from = count(from)?;
    let (to, step): (&str, Step) = if let Some((to, by)) = rest.split_once('+') {
        let by = count(by)?;
        (to, Box::new(move |n| n.checked_add(by)))
    } else {
        let (to, factor) = rest.split_once('x').unwrap_or((rest, "2"));
        let factor = count(factor)?;
        if factor < 2 {
            return Err(format!("`{item}`: a factor of at least 2 is meant"));
        }
        (to, Box::new(move |n| n.checked_mul(factor)))
    };
    let to = count(to)?;
    if to < from {
        return Err(format!("`{item}`: {to} is less than {from}"));
    }
    Ok(std::iter::successors(Some(from), |n| step(*n)).take_while(|n| *n <= to).take(MOST + 1).collect())
}

/// A number of an item.
fn count(text: &str, item: &str) -> Result<u32, String> {
    match text.trim() {
        "" => Err(format!("`{item}`: a number is missing; {LIKE}")),
        text => match text.parse() {
            Ok(0) => Err("a program has at least one process".to_owned()),
            Ok(n) => Ok(n),
            Err(_) => Err(format!("`{text}` is no number of processes; {LIKE}")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(text: &str) -> Vec<u32> {
        text.parse::<Counts>().unwrap().0
    }

    #[test]
    fn a_range_doubles() {
        assert_eq!(counts("2,4,8..64"), [2, 4, 8, 16, 32, 64]);
        assert_eq!(counts("3..20"), [3, 6, 12]);
        assert_eq!(counts("5..5"), [5]);
    }

    #[test]
    fn a_range_takes_another_factor_or_step() {
        assert_eq!(counts("1..1000x10"), [1, 10, 100, 1000]);
        assert_eq!(counts("1..8+3"), [1, 4, 7]);
        assert_eq!(counts("4, 1..4+1"), [4, 1, 2, 3]);
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for bad in ["", "0", "a", "2,,4", "8..4", "1..8x1", "1..8+0", "-1", "1..99999999999", "1..4000000000+1"] {
            assert!(bad.parse::<Counts>().is_err(), "{bad}");
        }
    }

    #[test]
    fn where_a_number_is_missing_the_whole_item_is_named() {
        for (bad, named) in
            [("2..x", "`2..x`"), ("..8", "`..8`"), ("4,2..", "`2..`"), ("1..8+", "`1..8+`"), ("2,,4", "`2,,4`")]
        {
            let told = bad.parse::<Counts>().unwrap_err();
            assert!(told.starts_with(named) && told.contains(" is missing; lists are like"), "{told}");
        }
    }
}
