//! In which order a process serves the others.
//!
//! Naive order (0, 1, 2 ...) has all processes send to the same one at a time: a total exchange
//! then costs up to `p` times what it has to, and where that one's queue is short everything is
//! sent again (seed 2.8: twice to 178 times). The rows of a Latin square have each step's
//! destinations all different.

use alloc::vec::Vec;

/// An order of service. All processes of a superstep use the same.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum Order {
    /// At step `s` process `i` serves `i + s`, and is served by `i - s` (both modulo p). A Latin
    /// square.
    #[default]
    Cyclic,
    /// At step `s` processes `i` and `s - i` serve each other: a symmetric Latin square, so that
    /// what acknowledges data goes the way of data. In each step at most two processes are their
    /// own partner and go on to the next at once.
    Mirrored,
    /// 0, 1, 2 ...: for comparison.
    Ascending,
}

impl Order {
    /// Whom process `me` of `p` serves at `step`, 0 to p - 1; `None`: itself, or nobody.
    ///
    /// ```
    /// use weir_superstep::Order;
    /// let of = |me| (0..4).filter_map(|s| Order::Cyclic.partner(me, 4, s)).collect::<Vec<_>>();
    /// assert_eq!((of(0), of(3)), (vec![1, 2, 3], vec![0, 1, 2]));
    /// ```
    #[must_use]
    pub fn partner(self, me: u32, p: u32, step: u32) -> Option<u32> {
        if me >= p || step >= p {
            return None;
        }
        let (me, p, step) = (u64::from(me), u64::from(p), u64::from(step));
        let to = match self {
            Order::Cyclic => (me + step) % p,
            Order::Mirrored => (p + step - me) % p,
            Order::Ascending => step,
        };
        (to != me).then_some(to as u32)
    }

    /// By which process `me` is served at `step`. For [`Order::Ascending`] all serve one at a time,
    /// and the served one takes them as they come: in their order.
    #[must_use]
    pub fn source(self, me: u32, p: u32, step: u32) -> Option<u32> {
        match self {
            Order::Cyclic => {
                let back = if step == 0 { 0 } else { p.checked_sub(step)? };
                Order::Cyclic.partner(me, p, back)
            }
            Order::Mirrored | Order::Ascending => self.partner(me, p, step),
        }
    }

    /// At which step `from` serves `to`.
    #[must_use]
    pub fn step_of(self, from: u32, to: u32, p: u32) -> u32 {
        let (from, to, p) = (u64::from(from), u64::from(to), u64::from(p.max(1)));
        let step = match self {
            Order::Cyclic => (p + to % p - from % p) % p,
            Order::Mirrored => (from + to) % p,
            Order::Ascending => to % p,
        };
        step as u32
    }

    /// All others in the order in which `me` serves them.
    #[must_use]
    pub fn destinations(self, me: u32, p: u32) -> Vec<u32> {
        (0..p).filter_map(|s| self.partner(me, p, s)).collect()
    }

    /// All others in the order in which they serve `me`.
    #[must_use]
    pub fn sources(self, me: u32, p: u32) -> Vec<u32> {
        (0..p).filter_map(|s| self.source(me, p, s)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn in_each_step_of_a_latin_square_all_destinations_differ(p in 1u32..70, step in 0u32..70) {
            for order in [Order::Cyclic, Order::Mirrored] {
                let to: std::vec::Vec<u32> = (0..p).filter_map(|me| order.partner(me, p, step)).collect();
                let all: BTreeSet<u32> = to.iter().copied().collect();
                prop_assert_eq!(all.len(), to.len());
                let idle = p as usize - to.len();
                prop_assert!(step >= p || idle <= 2 || (order == Order::Cyclic && step == 0), "{} idle", idle);
            }
        }

        #[test]
        fn each_serves_each_other_once_and_both_sides_agree_when(p in 1u32..70, me in 0u32..70) {
            prop_assume!(me < p);
            for order in [Order::Cyclic, Order::Mirrored, Order::Ascending] {
                let (to, from) = (order.destinations(me, p), order.sources(me, p));
                let others: BTreeSet<u32> = (0..p).filter(|j| *j != me).collect();
                prop_assert_eq!(to.iter().copied().collect::<BTreeSet<_>>(), others.clone());
                prop_assert_eq!((to.len(), from.len()), (p as usize - 1, p as usize - 1));
                for step in 0..p {
                    if let Some(j) = order.partner(me, p, step) {
                        prop_assert_eq!(order.step_of(me, j, p), step);
                        if order != Order::Ascending {
                            prop_assert_eq!(order.source(j, p, step), Some(me));
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn the_mirrored_square_is_symmetric() {
        for p in 2..20 {
            for step in 0..p {
                for me in 0..p {
                    let there = Order::Mirrored.partner(me, p, step);
                    assert!(there.is_none_or(|j| Order::Mirrored.partner(j, p, step) == Some(me)));
                }
            }
        }
    }
}
