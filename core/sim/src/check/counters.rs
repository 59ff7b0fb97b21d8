//! Atomic operations: each rank has counters, to which others add one. What a counter holds is what
//! was added, each once, and each who adds has seen another value.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use super::Program;

/// One counter, as those who add to it know it.
#[derive(Debug, Default)]
struct Counter {
    /// Additions begun.
    begun: u64,
    /// Those that have ended well.
    added: u64,
    /// What it held before those that wanted to know.
    held: BTreeSet<u64>,
}

/// All counters of a run.
#[derive(Debug, Default)]
pub struct Counters {
    /// The counters of each program, eight bytes each.
    pub regions: BTreeMap<Program, Rc<RefCell<Vec<u8>>>>,
    /// By program and place.
    known: BTreeMap<(Program, u64), Counter>,
}

impl Counters {
    /// One is added to `elements` counters from `at` on.
    pub fn begun(&mut self, to: Program, at: u64, elements: u64) {
        for i in 0..elements {
            self.known.entry((to, at + 8 * i)).or_default().begun += 1;
        }
    }

    /// That is done; `held` is what they held before, if that was asked for.
    ///
    /// # Errors
    /// It cannot have been done once, or somebody has seen the same value.
    pub fn ended(&mut self, to: Program, at: u64, elements: u64, held: Option<&[u8]>) -> Result<(), String> {
        if held.is_some_and(|held| held.len() as u64 != 8 * elements) {
            return Err(format!("{elements} counters of {to} held {} bytes", held.map_or(0, <[u8]>::len)));
        }
        for i in 0..elements {
            let place = at + 8 * i;
            let holds = self.holds(to, place);
            let c = self.known.entry((to, place)).or_default();
            c.added += 1;
            if let Some(held) = held {
                let held = word(held, 8 * i);
                if held >= holds {
                    return Err(format!("a counter of {to} held {held} before one was added, and holds {holds}"));
                }
                if !c.held.insert(held) {
                    return Err(format!("two who added to a counter of {to} have seen {held}"));
                }
            }
        }
        self.check(to, at)
    }

    /// Looks at all of them.
    ///
    /// # Errors
    /// One holds more than was added, or less.
    pub fn check_all(&self) -> Result<(), String> {
        self.known.keys().try_for_each(|(to, place)| self.check(*to, *place))
    }

    /// Additions that have ended well.
    #[must_use]
    pub fn added(&self) -> u64 {
        self.known.values().map(|c| c.added).sum()
    }

    fn check(&self, to: Program, place: u64) -> Result<(), String> {
        let (holds, Some(c)) = (self.holds(to, place), self.known.get(&(to, place))) else { return Ok(()) };
        // Of those that failed, for their peer went, it is not known whether they were executed; of
        // those under way neither.
        if (c.added..=c.begun).contains(&holds) {
            return Ok(());
        }
        Err(format!("a counter of {to} holds {holds}; {} additions were begun and {} are done", c.begun, c.added))
    }

    fn holds(&self, to: Program, place: u64) -> u64 {
        self.regions.get(&to).map_or(0, |r| word(&r.borrow(), place))
    }
}

/// The word at `at`; what is not there is 0.
fn word(bytes: &[u8], at: u64) -> u64 {
    let mut word = [0; 8];
    for (to, from) in word.iter_mut().zip(bytes.get(at as usize..).unwrap_or(&[])) {
        *to = *from;
    }
    u64::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_added_twice_or_never_is_noticed() {
        let p = Program { host: 0, incarnation: 0 };
        let with = |holds: u64| {
            let mut c = Counters::default();
            let bytes = [0u64, holds].map(u64::to_le_bytes).concat();
            c.regions.insert(p, Rc::new(RefCell::new(bytes)));
            c.begun(p, 8, 1);
            c.begun(p, 8, 1);
            c
        };
        let held = |n: u64| n.to_le_bytes();
        let mut c = with(2);
        assert!(c.ended(p, 8, 1, Some(&held(1))).is_ok() && c.ended(p, 8, 1, Some(&held(0))).is_ok());
        assert_eq!((c.check_all(), c.added()), (Ok(()), 2));
        assert!(with(3).ended(p, 8, 1, None).is_err(), "one of them twice");
        assert!(with(0).ended(p, 8, 1, None).is_err(), "never");
        assert!(with(1).ended(p, 8, 1, Some(&held(1))).is_err(), "not yet");
        let mut c = with(2);
        assert!(c.ended(p, 8, 1, Some(&held(1))).is_ok() && c.ended(p, 8, 1, Some(&held(1))).is_err(), "seen twice");
        // One of which it is not known.
        assert!(with(1).check_all().is_ok() && with(2).check_all().is_ok() && with(3).check_all().is_err());
    }
}
