//! Order checker: MPI's rule, seen from above with all messages and all receives known.
//!
//! A receive that takes a message must be the first posted of those open that accept it, and the
//! message must be the first sent by its sender of those not yet taken that the receive accepts.
//! This covers order per (peer, tag) and order under wildcards alike.

use std::collections::BTreeMap;

use weir_match::Class;

use super::Program;

/// What a receive accepts.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Pattern {
    /// From this program only.
    pub from: Option<Program>,
    /// Tagged or untagged.
    pub class: Class,
    /// The tag wanted.
    pub tag: u64,
    /// Bits of the tag that do not matter.
    pub ignore: u64,
}

impl Pattern {
    fn accepts(&self, from: Program, class: Class, tag: u64) -> bool {
        self.class == class
            && self.from.is_none_or(|f| f == from)
            && (class == Class::Untagged || (self.tag ^ tag) & !self.ignore == 0)
    }
}

/// Messages not taken and receives not served.
#[derive(Debug, Default)]
pub struct Order {
    /// By (from, to), then by order of sending.
    sent: BTreeMap<(Program, Program), BTreeMap<u64, (Class, u64)>>,
    /// Of senders that are gone: what had not come in full. It may still be taken, to fail, and
    /// nothing waits for it.
    lost: BTreeMap<(Program, Program), BTreeMap<u64, (Class, u64)>>,
    /// By receiver, then by order of posting.
    posted: BTreeMap<Program, BTreeMap<u64, Pattern>>,
}

impl Order {
    /// A message is sent; `number` grows from message to message of one sender.
    pub fn sent(&mut self, from: Program, to: Program, number: u64, class: Class, tag: u64) {
        self.sent.entry((from, to)).or_default().insert(number, (class, tag));
    }

    /// A receive is posted; `number` grows from receive to receive of one program.
    pub fn posted(&mut self, at: Program, number: u64, pattern: Pattern) {
        self.posted.entry(at).or_default().insert(number, pattern);
    }

    /// A receive is withdrawn or has failed.
    pub fn withdrawn(&mut self, at: Program, number: u64) {
        if let Some(p) = self.posted.get_mut(&at) {
            p.remove(&number);
        }
    }

    /// A receive takes a message.
    ///
    /// # Errors
    /// Says which rule this breaks.
    pub fn taken(&mut self, from: Program, to: Program, message: u64, receive: u64) -> Result<(), String> {
        let queue = self.sent.entry((from, to)).or_default();
        let lost = self.lost.get_mut(&(from, to)).and_then(|lost| lost.remove(&message));
        let is_lost = lost.is_some();
        let Some((class, tag)) = lost.or_else(|| queue.remove(&message)) else {
            return Err(format!("receive {receive} at {to} took message {message} from {from}, which is not waiting"));
        };
        let posted = self.posted.entry(to).or_default();
        let Some(pattern) = posted.remove(&receive) else {
            return Err(format!("message {message} from {from} went to receive {receive} at {to}, which is not open"));
        };
        if !pattern.accepts(from, class, tag) {
            return Err(format!(
                "receive {receive} at {to} ({pattern:?}) took message {message} from {from} with tag {tag:#x}"
            ));
        }
        let mut before = queue.range(..message).filter(|_| !is_lost);
        if let Some((earlier, (_, t))) = before.find(|(_, (c, t))| pattern.accepts(from, *c, *t)) {
            return Err(format!(
                "receive {receive} at {to} ({pattern:?}) took message {message} (tag {tag:#x}) from {from} before message {earlier} (tag {t:#x})"
            ));
        }
        if let Some((earlier, p)) = posted.range(..receive).find(|(_, p)| p.accepts(from, class, tag)) {
            return Err(format!(
                "message {message} (tag {tag:#x}) from {from} went to receive {receive} at {to}, not to receive {earlier} ({p:?}) posted before"
            ));
        }
        Ok(())
    }

    /// The same of a receive that takes several: unless this is its last, it stays posted.
    ///
    /// # Errors
    /// As [`Order::taken`].
    pub fn taken_by_many(
        &mut self,
        from: Program,
        to: Program,
        message: u64,
        receive: u64,
        last: bool,
    ) -> Result<(), String> {
        let stays = self.posted.get(&to).and_then(|p| p.get(&receive)).copied().filter(|_| !last);
        self.taken(from, to, message, receive)?;
        if let Some(pattern) = stays {
            self.posted(to, receive, pattern);
        }
        Ok(())
    }

    /// A sender is gone, as its receiver knows: of its messages those that have come stay in their
    /// order.
    pub fn parted(&mut self, from: Program, to: Program, has_come: impl Fn(u64) -> bool) {
        if let Some(queue) = self.sent.get_mut(&(from, to)) {
            let (here, lost): (BTreeMap<_, _>, BTreeMap<_, _>) =
                std::mem::take(queue).into_iter().partition(|(message, _)| has_come(*message));
            *queue = here;
            self.lost.entry((from, to)).or_default().extend(lost);
        }
    }

    /// Forgets a program that has died: nobody takes its receives any more, nor what was sent to
    /// it.
    pub fn died(&mut self, program: Program) {
        self.posted.remove(&program);
        self.sent.retain(|(_, to), _| *to != program);
        self.lost.retain(|(_, to), _| *to != program);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Program = Program { host: 0, incarnation: 0 };
    const B: Program = Program { host: 1, incarnation: 0 };

    fn order(tags: &[u64], receives: &[(u64, u64)]) -> Order {
        let mut o = Order::default();
        for (i, tag) in tags.iter().enumerate() {
            o.sent(A, B, i as u64, Class::Tagged, *tag);
        }
        for (i, (tag, ignore)) in receives.iter().enumerate() {
            o.posted(B, i as u64, Pattern { from: None, class: Class::Tagged, tag: *tag, ignore: *ignore });
        }
        o
    }

    #[test]
    fn messages_of_one_tag_keep_their_order() {
        assert!(order(&[5, 5], &[(5, 0), (5, 0)]).taken(A, B, 0, 0).is_ok());
        assert!(order(&[5, 5], &[(5, 0), (5, 0)]).taken(A, B, 1, 0).is_err());
        assert!(order(&[5, 6], &[(6, 0)]).taken(A, B, 1, 0).is_ok());
    }

    #[test]
    fn what_a_sender_that_is_gone_left_half_done_holds_nothing_up() {
        let mut o = order(&[5, 5, 5, 5], &[(5, 0), (5, 0), (5, 0)]);
        o.parted(A, B, |message| message > 1);
        assert!(order(&[5, 5], &[(5, 0)]).taken(A, B, 1, 0).is_err());
        assert!(o.taken(A, B, 2, 0).is_ok() && o.taken(A, B, 1, 1).is_ok() && o.taken(A, B, 1, 2).is_err());
    }

    #[test]
    fn a_wildcard_takes_the_first_of_all() {
        assert!(order(&[5, 6], &[(0, 7)]).taken(A, B, 1, 0).is_err());
        assert!(order(&[5, 6], &[(0, 7)]).taken(A, B, 0, 0).is_ok());
        assert!(order(&[0x15, 6], &[(0, 7)]).taken(A, B, 1, 0).is_ok());
    }

    #[test]
    fn a_receive_of_several_stays_before_those_posted_after_it() {
        let mut o = order(&[5, 5, 5], &[(5, 0), (5, 0)]);
        assert!(o.taken_by_many(A, B, 0, 0, false).is_ok());
        assert!(order(&[5, 5], &[(5, 0), (5, 0)]).taken_by_many(A, B, 0, 1, false).is_err());
        assert!(o.taken_by_many(A, B, 1, 0, true).is_ok() && o.taken_by_many(A, B, 2, 0, false).is_err());
    }

    #[test]
    fn receives_keep_their_order_and_take_only_what_they_accept() {
        assert!(order(&[5], &[(5, 0), (5, 0)]).taken(A, B, 0, 1).is_err());
        assert!(order(&[5], &[(6, 0), (5, 0)]).taken(A, B, 0, 1).is_ok());
        assert!(order(&[5], &[(6, 0)]).taken(A, B, 0, 0).is_err());
        let mut o = order(&[5], &[(5, 0)]);
        assert!(o.taken(A, B, 0, 0).is_ok());
        assert!(o.taken(A, B, 0, 0).is_err(), "taken twice");
    }
}
