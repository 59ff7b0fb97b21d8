//! What is told to people. Nothing here prints: lines and notices go to a [`Sink`], and whoever made it decides where they go.

use core::fmt;
use weir_proto::DownReason;

/// Takes the lines of the trace, and news for people.
pub trait Sink {
    /// Whether lines of this level are wanted. Asked at each place that could write one, so it is to cost one comparison. Level 1: what goes wrong, and peers that come and go.
    /// Level 2: each request with every stage of its life. Level 3: each packet too.
    fn on(&self, level: u8) -> bool;

    /// One line of the trace, without its end. Only called where [`Sink::on`] said so.
    fn line(&mut self, text: fmt::Arguments<'_>);

    /// Something that people are to know, whatever the level.
    fn notice(&mut self, notice: &Notice<'_>);
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
    /// Sends have waited long for room and get more. Told once: to wait inside a send looks like a hang.
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
    /// Messages that nobody has asked for have filled their budget, so that senders wait, and no posted receive takes one. Told once.
    UnexpectedFull {
        /// The budget, bytes.
        budget: u64,
    },
}
