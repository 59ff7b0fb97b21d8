//! Multi-receive checker: a buffer takes message after message, each behind the one before; it is
//! handed back once, when too little of it is free, or when it was withdrawn, and not before all
//! that it has taken is over.

use super::Program;

/// A message that a buffer has taken.
#[derive(Clone, Debug)]
pub struct Part {
    /// Its sender.
    pub from: Program,
    /// Its number.
    pub message: u64,
    /// Where it belongs.
    pub at: u64,
    /// How much of it fits.
    pub len: u64,
    /// Bytes that do not.
    pub excess: u64,
    /// How it ended, if it has: all that fits is there, or it failed.
    pub ended: Option<bool>,
}

/// A buffer that was posted.
#[derive(Clone, Debug)]
pub struct Buffer {
    room: u64,
    min: u64,
    used: u64,
    /// No more messages may go into it.
    closed: bool,
    back: bool,
    parts: Vec<Part>,
}

impl Buffer {
    /// A buffer of `room` bytes, of which `min` are to be free for another message.
    #[must_use]
    pub fn new(room: u64, min: u64) -> Buffer {
        Buffer { room, min, used: 0, closed: false, back: false, parts: Vec::new() }
    }

    /// It takes a message of `len` bytes. Says whether that is the last.
    ///
    /// # Errors
    /// It may not.
    pub fn taken(&mut self, from: Program, message: u64, len: u64) -> Result<bool, String> {
        if self.closed || self.back {
            return Err(format!("message {message} of {from} went into a buffer with {} free", self.room - self.used));
        }
        let fits = len.min(self.room - self.used);
        self.parts.push(Part { from, message, at: self.used, len: fits, excess: len - fits, ended: None });
        self.used += fits;
        let free = self.room - self.used;
        self.closed = free == 0 || free < self.min;
        Ok(self.closed)
    }

    /// It was withdrawn, or fails with the only one it takes from.
    pub fn close(&mut self) {
        self.closed = true;
    }

    /// One of its messages is over, well or not.
    ///
    /// # Errors
    /// It is not in it, or was over before.
    pub fn ended(&mut self, from: Program, message: u64, well: bool) -> Result<Part, String> {
        let part = self.parts.iter_mut().find(|p| p.from == from && p.message == message);
        let part = part.ok_or_else(|| format!("message {message} of {from} is not in this buffer"))?;
        if part.ended.replace(well).is_some() {
            return Err(format!("message {message} of {from} is over twice"));
        }
        Ok(part.clone())
    }

    /// Whether it is to be handed back now: it takes no more, and all that it took is over.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.closed && self.parts.iter().all(|p| p.ended.is_some())
    }

    /// It is handed back.
    ///
    /// # Errors
    /// It has been before, or a message may still be written into it.
    pub fn hand_back(&mut self) -> Result<(), String> {
        if std::mem::replace(&mut self.back, true) {
            return Err("is handed back twice".into());
        }
        match self.parts.iter().find(|p| p.ended.is_none()) {
            None if self.closed => Ok(()),
            None => Err(format!("is handed back with {} of {} free", self.room - self.used, self.room)),
            Some(p) => Err(format!("is handed back while message {} of {} goes into it", p.message, p.from)),
        }
    }

    /// What lies in it, by place: the messages that ended well.
    pub fn whole(&self) -> impl Iterator<Item = &Part> {
        self.parts.iter().filter(|p| p.ended == Some(true))
    }

    /// Bytes taken up.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.used
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Program = Program { host: 0, incarnation: 0 };

    #[test]
    fn messages_lie_behind_each_other_until_too_little_is_free() {
        let mut b = Buffer::new(100, 30);
        assert_eq!([b.taken(A, 0, 20), b.taken(A, 1, 50), b.taken(A, 2, 1)], [Ok(false), Ok(false), Ok(true)]);
        assert!(b.taken(A, 3, 0).is_err(), "29 are free");
        let part = b.ended(A, 1, true).unwrap();
        assert_eq!((part.at, part.len, part.excess, b.used()), (20, 50, 0, 71));
        assert!(b.ended(A, 1, true).is_err() && b.ended(A, 9, true).is_err());
        assert!(b.ended(A, 0, false).is_ok() && !b.is_over());
        assert!(b.clone().hand_back().is_err(), "one is under way");
        assert!(b.ended(A, 2, true).is_ok() && b.is_over());
        assert_eq!(b.whole().map(|p| p.message).collect::<Vec<_>>(), [1, 2]);
        assert!(b.hand_back().is_ok() && b.hand_back().is_err());
    }

    #[test]
    fn what_is_too_long_is_cut_and_is_the_last() {
        let mut b = Buffer::new(100, 0);
        assert_eq!((b.taken(A, 0, 60), b.taken(A, 1, 70)), (Ok(false), Ok(true)));
        let part = b.ended(A, 1, true).unwrap();
        assert_eq!((part.at, part.len, part.excess), (60, 40, 30));
    }

    #[test]
    fn one_that_takes_more_is_not_handed_back_unless_it_was_withdrawn() {
        let mut b = Buffer::new(100, 10);
        assert!(b.clone().hand_back().is_err());
        b.close();
        assert!(b.is_over() && b.hand_back().is_ok());
    }
}
