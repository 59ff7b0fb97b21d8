//! An open loop: messages leave at a steady pace, whatever became of those before, and each is
//! timed from the instant at which it was due.
//!
//! Its messages have several tags, in turn. A message that is lost holds up those behind it which
//! MPI's order binds to it: where receives name their tags, those of its own; where they take any,
//! all.

use crate::error::{BenchError, Result};
use crate::machine::{Machine, Mail, Room};
use crate::operation::Kind;
use crate::tagged::{FIRST_TAG, Receive, Tagged};

/// The first message is due so long after its sender is ready, so that its receiver is, too, ns.
const LEAD_NS: f64 = 10e6;

/// One rank's part in the open loops of a pair.
pub struct Pair<'a, M: Machine> {
    /// The machine.
    pub m: &'a M,
    /// The ranks of the cell.
    pub group: &'a M::Group,
    /// The partner's place among them.
    pub peer: usize,
    /// How messages are sent and received.
    pub of: Tagged,
    /// Messages by their tags.
    pub payloads: &'a [Vec<u8>],
    /// Ticks in a microsecond.
    pub ticks_per_us: f64,
}

impl<M: Machine> Pair<'_, M> {
    /// A loop each way: the one that is `first` sends, then the other. `between` brings the pairs
    /// together.
    ///
    /// # Errors
    /// The machine's, or a message that is not what was sent.
    pub fn loops(
        &self,
        first: bool,
        due: &mut [u64],
        came: &mut [u64],
        between: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        if first {
            self.send(due)?;
            between()?;
            return self.receive(came);
        }
        self.receive(came)?;
        between()?;
        self.send(due)
    }

    /// Sends messages; where each was due goes to `due`.
    fn send(&self, due: &mut [u64]) -> Result<()> {
        let ticks = |ns: f64| ns / 1e3 * self.ticks_per_us;
        let interval = ticks(self.of.interval_ns as f64);
        self.m.mail(self.group, Room::default(), |mail| {
            let begin = self.m.ticks() as f64 + ticks(LEAD_NS);
            for (number, due) in (0..).zip(due) {
                *due = (begin + number as f64 * interval) as u64;
                mail.spin_until(*due)?;
                let tag = self.of.tag(number);
                mail.send(&self.payloads[usize::from(tag - FIRST_TAG)], self.peer, tag)?;
            }
            Ok(())
        })
    }

    /// Receives as many messages as `came` has places; when each had come goes there.
    fn receive(&self, came: &mut [u64]) -> Result<()> {
        let (count, tags) = (came.len(), self.of.tags as usize);
        let places = self.of.places(Kind::OpenLoop);
        let bytes = self.payloads.first().map_or(0, Vec::len);
        // Of each place, the message that its receive takes; which is next of each tag, or of all.
        let mut numbers = vec![0; places];
        let mut next: Vec<usize> = (0..tags).collect();
        self.m.mail(self.group, Room { places, bytes }, |mail| {
            let mut post = |mail: &mut dyn Mail<'_>, numbers: &mut [usize], place: usize| {
                let (tag, stride) = match self.of.receive {
                    Receive::Named => (place % tags, tags),
                    Receive::Any => (0, 1),
                };
                let number = next[tag];
                if number >= count {
                    return Ok(());
                }
                (numbers[place], next[tag]) = (number, number + stride);
                let named = (self.of.receive == Receive::Named).then(|| self.of.tag(number as u64));
                mail.post(place, Some(self.peer), named)
            };
            (0..places).try_for_each(|place| post(mail, &mut numbers, place))?;
            for _ in 0..count {
                let landed = mail.next()?;
                let now = self.m.ticks();
                let number = numbers[landed.place];
                let tag = self.of.tag(number as u64);
                let sent = &self.payloads[usize::from(tag - FIRST_TAG)];
                if landed.tag != tag || mail.memory(landed.place).get(..landed.bytes) != Some(sent) {
                    let cause = format!("message {number} came with tag {} and is wrong", landed.tag);
                    return Err(BenchError::machine("open-loop", cause));
                }
                came[number] = now;
                post(mail, &mut numbers, landed.place)?;
            }
            Ok(())
        })
    }
}
