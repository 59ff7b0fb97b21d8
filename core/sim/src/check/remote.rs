//! Remote memory checker: what is written is in the target's region when its writer is told so, and
//! not elsewhere; a notice comes once and not before its bytes.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use super::{Program, payload};

/// A write that was begun.
#[derive(Clone, Debug)]
pub struct Write {
    /// Whose region.
    pub to: Program,
    /// Where in it; no other write goes there.
    pub at: u64,
    /// Bytes.
    pub len: u64,
    /// Key of its payload.
    pub key: u64,
    /// The target is told.
    pub notice: bool,
    /// And has been.
    pub noticed: bool,
}

/// All writes and regions of a run.
#[derive(Debug, Default)]
pub struct Remote {
    /// What is in the region of each program that others may write.
    pub regions: BTreeMap<Program, Rc<RefCell<Vec<u8>>>>,
    /// By writer and number.
    pub writes: BTreeMap<(Program, u64), Write>,
    /// Operations that name a region that nobody has: they are refused.
    pub wrong: u64,
}

impl Remote {
    /// The target is told of a write.
    ///
    /// # Errors
    /// It was not to be, has been before, or the bytes are not there.
    pub fn noticed(&mut self, from: Program, number: u64, at: Program, len: u64) -> Result<(), String> {
        let w = self.writes.get_mut(&(from, number)).filter(|w| w.notice && w.to == at && w.len == len);
        let w =
            w.ok_or_else(|| format!("{at} was told of write {number} of {from}, {len} B, which was not made so"))?;
        if std::mem::replace(&mut w.noticed, true) {
            return Err(format!("{at} was told twice of write {number} of {from}"));
        }
        self.landed(from, number)
    }

    /// The writer is told that its write is done.
    ///
    /// # Errors
    /// It is not, or the target does not know.
    pub fn done(&self, from: Program, number: u64) -> Result<(), String> {
        if let Some(w) = self.writes.get(&(from, number)).filter(|w| w.notice && !w.noticed) {
            return Err(format!("write {number} of {from} is done, and {} was not told", w.to));
        }
        self.landed(from, number)
    }

    fn landed(&self, from: Program, number: u64) -> Result<(), String> {
        let w = self.writes.get(&(from, number)).ok_or_else(|| format!("write {number} of {from} was never begun"))?;
        let region = self.regions.get(&w.to).map(|r| r.borrow());
        let there = region.as_ref().and_then(|r| r.get(w.at as usize..(w.at + w.len) as usize));
        match there {
            _ if w.len == 0 => Ok(()),
            Some(bytes) if payload::first_wrong(w.key, 0, bytes).is_none() => Ok(()),
            _ => Err(format!("write {number} of {from}, {} B, is not in the region of {}", w.len, w.to)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_is_done_when_it_is_there_and_its_target_knows() {
        let (p, q) = (Program { host: 0, incarnation: 0 }, Program { host: 1, incarnation: 0 });
        let mut r = Remote::default();
        let mut bytes = vec![0; 30];
        r.regions.insert(q, Rc::new(RefCell::new(bytes.clone())));
        r.writes.insert((p, 1), Write { to: q, at: 10, len: 20, key: 7, notice: true, noticed: false });
        assert!(r.noticed(p, 1, q, 20).is_err(), "nothing is there");
        payload::fill(7, 0, &mut bytes[10..]);
        r.regions.insert(q, Rc::new(RefCell::new(bytes)));
        assert!(r.noticed(p, 1, q, 20).is_err(), "told before");
        r.writes.get_mut(&(p, 1)).expect("there").noticed = false;
        assert!(r.done(p, 1).is_err());
        assert!(r.noticed(p, 1, q, 20).is_ok() && r.done(p, 1).is_ok() && r.done(p, 2).is_err());
    }
}
