//! Delivery checker: each message and each operation ends exactly once, and no byte is told twice.

use std::collections::BTreeMap;

use super::Program;
use crate::spec::Ns;

/// Which bytes of a message have been told.
#[derive(Clone, Debug, Default)]
pub struct Coverage {
    /// Disjoint, sorted, not touching: (start, end).
    ranges: Vec<(u64, u64)>,
}

impl Coverage {
    /// Adds `start..end`.
    ///
    /// # Errors
    /// A byte of it was there already.
    pub fn add(&mut self, start: u64, end: u64) -> Result<(), String> {
        if start >= end {
            return Ok(());
        }
        let i = self.ranges.partition_point(|r| r.1 < start);
        let touching = self.ranges[i..].iter().take_while(|r| r.0 <= end).count();
        let (mut s, mut e) = (start, end);
        for r in &self.ranges[i..i + touching] {
            if r.0 < end && r.1 > start {
                return Err(format!("bytes {start}..{end} told again; {}..{} were there", r.0, r.1));
            }
            s = s.min(r.0);
            e = e.max(r.1);
        }
        self.ranges.splice(i..i + touching, [(s, e)]);
        Ok(())
    }

    /// Adds `start..end`, of which some may be there already.
    pub fn merge(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        let i = self.ranges.partition_point(|r| r.1 < start);
        let touching = self.ranges[i..].iter().take_while(|r| r.0 <= end).count();
        let merged = self.ranges[i..i + touching].iter().fold((start, end), |(s, e), r| (s.min(r.0), e.max(r.1)));
        self.ranges.splice(i..i + touching, [merged]);
    }

    /// All of `start..end` is there.
    #[must_use]
    pub fn has(&self, start: u64, end: u64) -> bool {
        start >= end || self.ranges.iter().any(|r| r.0 <= start && end <= r.1)
    }

    /// All of `0..len` is there.
    #[must_use]
    pub fn is_all(&self, len: u64) -> bool {
        len == 0 || self.ranges == [(0, len)]
    }

    /// Number of bytes there.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.ranges.iter().map(|r| r.1 - r.0).sum()
    }
}

/// How far a message is.
#[derive(Clone, Debug)]
pub struct Message {
    /// To whom.
    pub to: Program,
    /// Tag.
    pub tag: u64,
    /// Bytes.
    pub len: u64,
    /// When it was sent.
    pub sent_ns: Ns,
    /// When the receive was complete.
    pub received_ns: Option<Ns>,
    /// The sender's operation has ended (well or not).
    pub send_ended: bool,
    /// It has been told as complete.
    pub told: bool,
    /// The receiver's operation has ended (well or not).
    pub receive_ended: bool,
    /// The receiver's endpoint said that all bytes are there.
    pub arrived: bool,
    /// A receive has taken it.
    pub matched: bool,
}

impl Message {
    /// A message that was just sent.
    #[must_use]
    pub fn new(to: Program, tag: u64, len: u64, sent_ns: Ns) -> Message {
        Message {
            to,
            tag,
            len,
            sent_ns,
            received_ns: None,
            send_ended: false,
            told: false,
            receive_ended: false,
            arrived: false,
            matched: false,
        }
    }
}

/// All messages of a run.
#[derive(Debug, Default)]
pub struct Delivery {
    /// By sender, then by number.
    pub messages: BTreeMap<Program, BTreeMap<u64, Message>>,
}

impl Delivery {
    /// A message is sent.
    pub fn sent(&mut self, from: Program, number: u64, message: Message) {
        self.messages.entry(from).or_default().insert(number, message);
    }

    /// The message, if there is one.
    #[must_use]
    pub fn get(&self, from: Program, number: u64) -> Option<&Message> {
        self.messages.get(&from)?.get(&number)
    }

    /// The receiver's endpoint has all bytes of a message.
    pub fn arrived(&mut self, from: Program, number: u64) {
        if let Some(m) = self.messages.get_mut(&from).and_then(|m| m.get_mut(&number)) {
            m.arrived = true;
        }
    }

    /// A receive has taken a message.
    pub fn matched(&mut self, from: Program, number: u64) {
        if let Some(m) = self.messages.get_mut(&from).and_then(|m| m.get_mut(&number)) {
            m.matched = true;
        }
    }

    /// Messages of a program that were told as complete and are not at their receiver, and who that
    /// is.
    pub fn told_and_not_there(&self, from: Program) -> impl Iterator<Item = (u64, Program)> {
        let all = self.messages.get(&from).into_iter().flatten();
        all.filter(|(_, m)| m.told && !m.arrived).map(|(number, m)| (*number, m.to))
    }

    /// The sender's operation ends, well or not.
    ///
    /// # Errors
    /// It had ended before.
    pub fn send_ended(&mut self, from: Program, number: u64, well: bool) -> Result<(), String> {
        match self.messages.get_mut(&from).and_then(|m| m.get_mut(&number)) {
            Some(m) if !m.send_ended => {
                (m.send_ended, m.told) = (true, well);
                Ok(())
            }
            Some(_) => Err(format!("send {number} of {from} completed twice")),
            None => Err(format!("send {number} of {from} completed, but was never made")),
        }
    }

    /// The receive of a message ends: with all of it at `received_ns`, or `None` for a failure.
    ///
    /// # Errors
    /// It had ended before, or the message was for another.
    pub fn receive_ended(
        &mut self,
        from: Program,
        number: u64,
        at: Program,
        received_ns: Option<Ns>,
    ) -> Result<(), String> {
        let Some(m) = self.messages.get_mut(&from).and_then(|m| m.get_mut(&number)) else {
            return Err(format!("{at} received message {number} of {from}, which was never sent"));
        };
        if m.to != at {
            return Err(format!("{at} received message {number} of {from}, which was for {}", m.to));
        }
        if m.receive_ended {
            return Err(format!("{at} received message {number} of {from} twice"));
        }
        m.receive_ended = true;
        m.received_ns = received_ns;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coverage_merges_and_refuses_overlaps() {
        let mut c = Coverage::default();
        for (s, e) in [(10, 20), (30, 40), (0, 5), (20, 30)] {
            c.add(s, e).unwrap();
        }
        assert_eq!(c.bytes(), 35);
        assert!(!c.is_all(40));
        assert!(c.has(10, 40) && c.has(7, 7) && !c.has(5, 6) && !c.has(4, 12) && !c.has(39, 41));
        for (s, e) in [(19, 20), (4, 6), (0, 50), (39, 41), (12, 14)] {
            assert!(c.clone().add(s, e).is_err(), "{s}..{e}");
        }
        c.add(5, 10).unwrap();
        assert!(c.is_all(40));
        assert!(!c.is_all(41));
        c.add(3, 3).unwrap();
    }

    #[test]
    fn what_may_be_there_already_merges() {
        let mut c = Coverage::default();
        for (s, e) in [(10, 20), (15, 25), (40, 50), (30, 30), (5, 10), (24, 45)] {
            c.merge(s, e);
        }
        assert_eq!(c.ranges, [(5, 50)]);
        assert!(c.add(49, 51).is_err());
    }

    #[test]
    fn everything_ends_once() {
        let p = Program { host: 0, incarnation: 0 };
        let q = Program { host: 1, incarnation: 0 };
        let mut d = Delivery::default();
        let m = Message::new(q, 0, 9, 0);
        d.sent(p, 0, m);
        assert!(d.send_ended(p, 0, true).is_ok() && d.send_ended(p, 0, true).is_err());
        assert_eq!(d.told_and_not_there(p).collect::<Vec<_>>(), [(0, q)]);
        assert!(d.receive_ended(p, 0, p, Some(1)).is_err());
        assert!(d.receive_ended(p, 0, q, Some(1)).is_ok() && d.receive_ended(p, 0, q, Some(1)).is_err());
    }
}
