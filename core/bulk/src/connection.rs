//! The life of a bulk connection: asked for, greeted, up, over, and what its two ends say of that
//! in BULK frames (spec/bulk.md 2 and 5).

use alloc::vec::Vec;

use weir_session::{Common, Event, Handed, Session, Time};
use weir_wire::frame;

use crate::app_acks::AppAcks;
use crate::{Config, Counters};

/// A bulk connection asked for that has not come after this time never will.
const ASKED_FOR_NS: u64 = 3_000_000_000;

/// What every step of a bulk connection works with.
pub struct Cx<'a> {
    /// The time.
    pub now: Time,
    /// The constants.
    pub cfg: &'a Config,
    /// What is counted.
    pub counters: &'a mut Counters,
    /// The session with the peer.
    pub s: &'a mut Session,
    /// What it shares with others.
    pub common: &'a mut Common,
    /// It is for this side to connect.
    pub connects: bool,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
enum Phase {
    /// There is none.
    #[default]
    None,
    /// One was asked for then, of the driver or of the peer.
    Asked(Time),
    /// The driver has greeted with its number; asked for then.
    Greeted(Time),
    /// It carries records.
    Up(Time),
}

/// The bulk connection to one peer: the one that is up, or the last that was, and when the next may
/// be.
#[derive(Debug, Default)]
pub struct BulkConnection {
    phase: Phase,
    /// Highest number greeted with, or told by the peer to be over.
    number: u32,
    /// Highest number of one that is over here, as the peer is to know (0: none was).
    over: u32,
    /// The bulk connection that is up, or the last that was: what stands below of bytes, records
    /// and telling is of it.
    pub(crate) last: u32,
    /// Records handed to the connection that the peer has not acknowledged. When it is over they go
    /// in packets, unless the peer still tells to have read them: so it does when it closes.
    pub(crate) records: Handed,
    /// Bytes handed to it, heads included.
    pub(crate) handed: u64,
    /// Of these the peer has acknowledged.
    pub(crate) app_acked: u64,
    /// What was read of it here.
    pub(crate) app_acks: AppAcks,
    /// Somebody waits to hear of a record that was handed out, and no head has said so.
    pub(crate) wants_tell: bool,
    /// A BULK frame that asks for a bulk connection is to be sent.
    asks: bool,
    failures: u32,
    pause_until: Time,
}

impl BulkConnection {
    /// It carries records.
    #[must_use]
    pub fn is_up(&self) -> bool {
        matches!(self.phase, Phase::Up(_))
    }

    /// The bulk connection of this number carries records.
    #[must_use]
    pub fn is_up_as(&self, number: u32) -> bool {
        self.number == number && self.is_up()
    }

    /// Whether something was handed to it that the peer has not acknowledged: then how far it has.
    #[must_use]
    pub fn waits(&self) -> Option<u64> {
        (self.is_up() && !self.records.is_empty()).then_some(self.app_acked)
    }

    /// One would pay. True: the driver is to connect.
    pub fn want(&mut self, cx: &mut Cx<'_>) -> bool {
        match self.phase {
            Phase::Asked(at) | Phase::Greeted(at) if cx.now.since_ns(at) > ASKED_FOR_NS => {
                // The peer makes pauses of its own, of which it says nothing.
                self.end(cx, cx.connects);
            }
            Phase::None if self.pause_until <= cx.now => {
                self.phase = Phase::Asked(cx.now);
                self.asks = !cx.connects;
                return cx.connects;
            }
            Phase::None | Phase::Asked(_) | Phase::Greeted(_) | Phase::Up(_) => {}
        }
        false
    }

    // What is said in BULK frames.

    /// A BULK frame came: the peer, for which it is not to connect, wants a bulk connection, or
    /// says how far it has read, or that this was all. True: the driver is to connect.
    ///
    /// # Errors
    /// The rule that the peer broke.
    pub fn heard(&mut self, cx: &mut Cx<'_>, f: frame::Bulk, events: &mut Vec<Event>) -> Result<bool, &'static str> {
        if f.bulk == 0 {
            return Ok(cx.connects && self.want(cx));
        }
        self.was_read(cx, f.bulk, f.read, events)?;
        if f.over {
            self.is_over_there(cx, f)?;
        }
        Ok(false)
    }

    /// The peer has given up this bulk connection and all before it (spec/bulk.md 5).
    fn is_over_there(&mut self, cx: &mut Cx<'_>, f: frame::Bulk) -> Result<(), &'static str> {
        if f.bulk > self.last && f.read > 0 {
            return Err("more read of a bulk connection than was sent");
        }
        if f.bulk > self.number {
            if cx.connects {
                return Err("over is a bulk connection that never was");
            }
            // Its greeting, which this has overtaken, is not to be taken any more.
            self.number = f.bulk;
        } else if f.bulk < self.number || !matches!(self.phase, Phase::Greeted(_) | Phase::Up(_)) {
            return Ok(());
        }
        if self.phase != Phase::None {
            self.end(cx, true);
        }
        Ok(())
    }

    /// When it has something to say in a packet.
    #[must_use]
    pub fn due(&self) -> Option<Time> {
        if self.asks { Some(Time::ZERO) } else { self.app_acks.at }
    }

    /// What it has to say in the packet that is being written.
    pub fn frame(&mut self) -> Option<frame::Bulk> {
        if core::mem::take(&mut self.asks) {
            return Some(frame::Bulk::default());
        }
        self.app_acks.at.take()?;
        self.app_acks.told = self.app_acks.read;
        if self.is_up() {
            return Some(frame::Bulk { bulk: self.last, read: self.app_acks.read, over: false });
        }
        let read = if self.over == self.last { self.app_acks.read } else { 0 };
        Some(frame::Bulk { bulk: self.over, read, over: true })
    }

    /// What a CLOSE says of it, or of the last one: for the peer it is the last word, and what it
    /// does not know to have been read fails there.
    #[must_use]
    pub fn last_frame(&self) -> Option<frame::Bulk> {
        (self.app_acks.read > 0).then_some(frame::Bulk { bulk: self.last, read: self.app_acks.read, over: false })
    }

    /// A BULK frame was lost: what is true now is said again.
    pub fn say_again(&mut self, now: Time, connects: bool) {
        self.asks = matches!(self.phase, Phase::Asked(_)) && !connects;
        self.app_acks.told = 0;
        if self.is_up() || self.over > 0 {
            self.app_acks.at = Some(now);
        }
    }

    /// A packet with messages or rendezvous data is written: that answers what was read of the bulk
    /// connection.
    #[inline]
    pub fn answers(&mut self, now: Time) {
        self.app_acks.answers(now);
    }

    // The connection.

    /// The driver greets: the new bulk connection's number. `None`: it is not wanted any more.
    pub fn greets(&mut self) -> Option<u32> {
        let Phase::Asked(at) = self.phase else { return None };
        self.phase = Phase::Greeted(at);
        self.number += 1;
        Some(self.number)
    }

    /// Whether a greeting with this number may be good.
    #[must_use]
    pub fn takes(&self, now: Time, number: u32) -> bool {
        number > self.number && self.pause_until <= now
    }

    /// A good greeting came: the bulk connection is up, and one that was up before is over.
    pub fn is_greeted(&mut self, cx: &mut Cx<'_>, number: u32) {
        self.end(cx, false);
        self.number = number;
        self.begin(cx);
    }

    /// A good answer came to the greeting with this number. False: it came too late.
    pub fn is_answered(&mut self, cx: &mut Cx<'_>, number: u32) -> bool {
        let awaited = self.number == number && matches!(self.phase, Phase::Greeted(_));
        if awaited {
            self.begin(cx);
        }
        awaited
    }

    /// The TCP connection with this number, which is up or was greeted with, is gone or given up.
    /// False: it was over already.
    pub fn fails(&mut self, cx: &mut Cx<'_>, number: u32) -> bool {
        let was = self.number == number && matches!(self.phase, Phase::Greeted(_) | Phase::Up(_));
        if was {
            self.end(cx, true);
        }
        was
    }

    fn begin(&mut self, cx: &mut Cx<'_>) {
        self.phase = Phase::Up(cx.now);
        self.last = self.number;
        self.records = Handed::default();
        (self.handed, self.app_acked, self.wants_tell) = (0, 0, false);
        self.app_acks = AppAcks::default();
        self.asks = false;
        cx.counters.opened += 1;
        cx.s.bulk_begins(cx.common);
    }

    /// It is over: what it had and what it was to have goes in packets.
    fn end(&mut self, cx: &mut Cx<'_>, failed: bool) {
        if failed {
            cx.counters.failed += 1;
            self.pause(cx);
        }
        self.asks = false;
        match core::mem::take(&mut self.phase) {
            Phase::None | Phase::Asked(_) => return,
            // The peer may have it up.
            Phase::Greeted(_) => {
                (self.over, self.app_acks.at) = (self.number, Some(cx.now));
                return;
            }
            // That of the connection may not get there: perhaps it is the network that ended it.
            Phase::Up(_) => (self.over, self.app_acks.at) = (self.last, Some(cx.now)),
        }
        self.records.give_back(cx.s);
        cx.s.bulk_ends(cx.common);
    }

    /// It failed, or was not to be had.
    fn pause(&mut self, cx: &Cx<'_>) {
        let (least, most) = (cx.cfg.pause.as_nanos() as u64, cx.cfg.pause_max_ns());
        if matches!(self.phase, Phase::Up(since) if cx.now.since_ns(since) >= most) {
            self.failures = 0;
        }
        self.pause_until = cx.now.plus_ns((least << self.failures.min(16)).min(most));
        self.failures += 1;
    }

    /// Nothing is open, so nothing that a former bulk connection had is either.
    pub fn forget_records(&mut self) {
        if !self.is_up() {
            self.records = Handed::default();
        }
    }
}
