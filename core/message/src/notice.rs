//! What is told to people. Nothing here prints: lines and notices go to a [`Sink`], and whoever
//! made it decides where they go.

use core::fmt;
use weir_link::{DataKey, DownReason};
use weir_match::Class;

/// Takes the lines of the trace, and news for people.
pub trait Sink {
    /// Whether lines of this level are wanted. Asked at each place that could write one, so it is
    /// to cost one comparison. Level 1: what goes wrong, and peers that come and go. Level 2: each
    /// request with every stage of its life. Level 3: each packet too.
    fn on(&self, level: u8) -> bool;

    /// One line of the trace, without its end. Only called where [`Sink::on`] said so.
    fn line(&mut self, text: fmt::Arguments<'_>);

    /// Something that people are to know, whatever the level.
    fn notice(&mut self, notice: &Notice<'_>);

    /// A step in the life of a peer or of a message that arrives, for who checks what no completion
    /// tells. Nobody but a checker wants it, and then it costs nothing.
    #[inline]
    fn step(&mut self, _step: Step) {}
}

/// A step in the life of a peer or of a message that arrives. Completions tell how operations end;
/// these tell what happens before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The association with a peer is established.
    Up {
        /// The peer.
        peer: u32,
    },
    /// A peer went down. All that waited for it fails now.
    Down {
        /// The peer.
        peer: u32,
        /// Why.
        reason: DownReason,
    },
    /// A message is seen for the first time, and about to be shown to the matcher.
    Seen {
        /// Sender.
        peer: u32,
        /// Its number among the sender's messages to this endpoint.
        mseq: u64,
        /// Tagged or untagged.
        class: Class,
        /// Tag.
        tag: u64,
        /// Immediate data.
        data: Option<u64>,
        /// Length, bytes.
        len: u64,
        /// Of these, bytes that take credit: all, or none where the payload waits to be asked for.
        credit_bytes: u64,
    },
    /// The protocol tells of bytes of a message, or of a payload that was asked for. What comes by
    /// a TCP connection is not told, but for its end: who reads it there knows of it.
    Piece {
        /// Sender.
        peer: u32,
        /// Of what.
        key: DataKey,
        /// Where they begin.
        offset: u64,
        /// How many.
        len: u64,
        /// Bytes that are to come in all; 0 where nothing is awaited under this key.
        total: u64,
        /// None is missing any more.
        complete: bool,
    },
    /// Missing bytes were restored from parity. That they were the last ones is told by a piece of
    /// nothing.
    Restored {
        /// Sender.
        peer: u32,
        /// Of what.
        key: DataKey,
        /// Where they begin.
        offset: u64,
        /// How many.
        len: u64,
    },
    /// A receive takes a message, whose bytes may be still to come.
    Taken {
        /// Sender.
        peer: u32,
        /// Immediate data of the message.
        data: Option<u64>,
        /// Context of the receive.
        context: usize,
    },
    /// All bytes of a message that are wanted are here.
    Whole {
        /// Sender.
        peer: u32,
        /// Immediate data of the message.
        data: Option<u64>,
    },
    /// A peer may send as many messages and bytes more.
    Credit {
        /// The peer.
        peer: u32,
        /// Messages.
        msgs: u32,
        /// Bytes.
        bytes: u64,
    },
}

/// Nobody listens.
impl Sink for () {
    fn on(&self, _level: u8) -> bool {
        false
    }

    fn line(&mut self, _text: fmt::Arguments<'_>) {}

    fn notice(&mut self, _notice: &Notice<'_>) {}
}

/// Something that people are to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice<'a> {
    /// A peer went down: a completion can only say that there is no way to it.
    PeerDown {
        /// Where it was.
        who: &'a str,
        /// By which rule.
        reason: DownReason,
    },
    /// Sends have waited long for room and get more. Told once: to wait inside a send looks like a
    /// hang.
    MoreRoom {
        /// What they were to have, bytes.
        budget: u64,
        /// The most that they get, bytes.
        most: u64,
    },
    /// Sends have found no room for very long, and fail from now on. Told once.
    NoRoom {
        /// What they have used up, bytes.
        most: u64,
        /// For so long, ns.
        waited_ns: u64,
        /// Messages that wait here meanwhile and that the program does not receive.
        unexpected: usize,
    },
    /// Messages that nobody has asked for have filled their budget, so that senders wait, and no
    /// posted receive takes one. Told once.
    UnexpectedFull {
        /// The budget, bytes.
        budget: u64,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::SendMode;
    use crate::config::Config;
    use crate::testing::{Bytes, PEER, Pair, recv_op, send_op};
    use alloc::vec;
    use alloc::vec::Vec;

    /// Keeps the steps, in a word each, and adds up the bytes they tell of.
    #[derive(Default)]
    struct Steps(Vec<&'static str>, u64);

    impl Sink for Steps {
        fn on(&self, _level: u8) -> bool {
            false
        }

        fn line(&mut self, _text: fmt::Arguments<'_>) {}

        fn notice(&mut self, _notice: &Notice<'_>) {}

        fn step(&mut self, step: Step) {
            if let Step::Piece { peer: PEER, len, total, complete, .. } = step {
                self.1 += len;
                assert_eq!(complete, self.1.is_multiple_of(total.max(1)), "{step:?} after {} bytes", self.1 - len);
                return;
            }
            self.0.push(match step {
                Step::Up { peer: PEER } => "up",
                Step::Seen { peer: PEER, credit_bytes: 0, .. } => "announced",
                Step::Seen { peer: PEER, .. } => "seen",
                Step::Taken { peer: PEER, context: 0, .. } => "taken",
                Step::Whole { peer: PEER, .. } => "whole",
                Step::Credit { peer: PEER, msgs: 1, .. } => "credit",
                Step::Credit { peer: PEER, msgs: 0, .. } => "bytes",
                _ => "something else",
            });
        }
    }

    #[test]
    fn a_checker_is_told_what_no_completion_tells() {
        let cfg = Config::default();
        let mut pair: Pair<Steps> = Pair::connected(&cfg, &weir_link::Config::default());
        for (len, posted_first, want) in [
            (3000, true, vec!["seen", "taken", "whole", "credit"]),
            // Another may come in its place before it is received; its bytes count until then.
            (3000, false, vec!["seen", "whole", "credit", "taken", "bytes"]),
            // Longer than half of the credit.
            (600_000, true, vec!["announced", "taken", "whole", "credit"]),
        ] {
            *pair.sides[1].sink_mut() = Steps::default();
            let send = send_op(1, Bytes::new(&vec![5; len]), SendMode::Delivery);
            let receive = recv_op(0, Bytes::new(&vec![0; len]));
            if posted_first {
                pair.sides[1].recv(pair.now, receive).expect("posted");
                pair.sides[0].send(pair.now, send).expect("accepted");
                pair.settle();
            } else {
                pair.sides[0].send(pair.now, send).expect("accepted");
                pair.settle();
                pair.sides[1].recv(pair.now, receive).expect("posted");
            }
            pair.settle();
            let Steps(words, bytes) = pair.sides[1].sink();
            assert_eq!((words, *bytes), (&want, len as u64));
        }
    }
}
