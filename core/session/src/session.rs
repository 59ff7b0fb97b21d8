//! One session: what the layer above asks of it, and what is due when.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use serde::Serialize;
use smallvec::SmallVec;

use crate::messages::{ENVELOPE_MAX, MessagesIn, MessagesOut, OutMessage};
use crate::offer::{Bulk, Flow, Fragment};
use crate::rndvs::{RndvsIn, RndvsOut};
use crate::sessions::Common;
use crate::{Carrier, Config, Credit, DownReason, Event, Message, PeerId, RndvOpened, SendError, Time};

/// Aborts that may wait to be sent: more than a receiver that behaves has open.
const ABORTS_MAX: usize = 1 << 16;

/// New limits of credit wait so long for a record of the bulk connection that takes them along.
const CREDIT_WAIT_NS: u64 = 50_000;
/// The same while the peer has half of its credit left: longer than a record of a megabyte takes
/// where TCP is at its best, and its answer tells; and not so long that a sender who has used the
/// other half meanwhile would wait for it.
const CREDIT_PATIENCE_NS: u64 = 250_000;

/// What the peer said when it was met (spec 2.5).
#[derive(Copy, Clone, Debug)]
pub struct Terms {
    /// Matched messages it lets us send before it has consumed any.
    pub credit_msgs: u64,
    /// Their bytes.
    pub credit_bytes: u64,
}

/// What was counted of one session since it began: its part of [`crate::Counters`].
#[derive(Copy, Clone, Default, Debug, PartialEq, Eq, Serialize)]
pub struct PeerCounters {
    /// Grants sent: those that raise what was granted with the answer to the request.
    pub grants_sent: u64,
    /// Grants received.
    pub grants_received: u64,
    /// Times that messages began to wait for credit.
    pub stalls_credit: u64,
}

/// One session. Fields are open to the modules of this crate only.
#[derive(Debug)]
pub struct Session {
    pub(crate) peer: PeerId,
    /// Its terms are known, and it is not over.
    pub(crate) up: bool,
    pub(crate) down: Option<DownReason>,
    /// Nothing new is accepted.
    pub(crate) closing: bool,
    /// The peer's initial credit of bytes; before it is known, ours.
    credit_bytes: u64,

    pub(crate) out: MessagesOut,
    pub(crate) inn: MessagesIn,
    pub(crate) rndvs_out: RndvsOut,
    pub(crate) rndvs_in: RndvsIn,

    /// Longest message with its envelope that goes in one piece ([`Session::set_piece_max`]).
    pub(crate) piece_max: usize,
    /// Payload from this length on is read where it lies ([`Session::set_lent_from`]).
    lent_from: u64,
    /// Admitted messages that fit one piece.
    pub(crate) small: VecDeque<u64>,
    /// Longer ones, and rendezvous data, in line for the carrier of everything.
    pub(crate) flows: VecDeque<Flow>,
    /// The same for the bulk connection.
    pub(crate) bulk: Bulk,
    /// To be sent again.
    pub(crate) lost: VecDeque<Fragment>,
    pub(crate) lost_control: VecDeque<u64>,

    pub(crate) credit_dirty: bool,
    /// New limits of credit are to be told then, if no record of the bulk connection has done so.
    pub(crate) credit_at: Option<Time>,
    pub(crate) grants_dirty: VecDeque<u64>,
    pub(crate) aborts: VecDeque<(u64, u16)>,
    /// Smoothed round trip of whatever carries data, nanoseconds; 0 before one was measured.
    round_trip_ns: u64,
    regrant_at: Option<Time>,
    pub(crate) counts: PeerCounters,
    carrier: Carrier,
    /// In whose lists of those that changed it stands ([`Carrier::flag`]).
    pub(crate) touched: u8,
    /// How many rings and connections of carriers name its place.
    pub(crate) holds: u16,
}

impl Session {
    /// The same place names another peer from now on.
    pub(crate) fn renew(&mut self, cfg: &Config) {
        *self = Session { touched: self.touched, holds: self.holds, ..Session::new(cfg, self.peer) };
    }

    pub(crate) fn new(cfg: &Config, peer: PeerId) -> Session {
        Session {
            peer,
            up: false,
            down: None,
            closing: false,
            credit_bytes: cfg.initial_credit_bytes,
            out: MessagesOut::new(cfg.control_window),
            inn: MessagesIn::new(cfg.initial_credit_msgs, cfg.initial_credit_bytes),
            rndvs_out: RndvsOut::default(),
            rndvs_in: RndvsIn::default(),
            piece_max: 0,
            lent_from: u64::MAX,
            small: VecDeque::new(),
            flows: VecDeque::new(),
            bulk: Bulk::default(),
            lost: VecDeque::new(),
            lost_control: VecDeque::new(),
            credit_dirty: false,
            credit_at: None,
            grants_dirty: VecDeque::new(),
            aborts: VecDeque::new(),
            round_trip_ns: 0,
            regrant_at: None,
            counts: PeerCounters::default(),
            carrier: Carrier::Link,
            touched: 0,
            holds: 0,
        }
    }

    // Life.

    /// With whom.
    #[must_use]
    pub fn peer(&self) -> PeerId {
        self.peer
    }

    /// The carrier of what it sends.
    #[must_use]
    #[inline]
    pub fn carrier(&self) -> Carrier {
        self.carrier
    }

    pub(crate) fn set_carrier(&mut self, carrier: Carrier) {
        self.carrier = carrier;
        self.lent_from = u64::MAX;
    }

    /// The carrier has the peer read payload of this length and more where it lies: a copy made to
    /// have it out of the way early would be one more than that.
    pub fn set_lent_from(&mut self, len: u64) {
        self.lent_from = len;
    }

    /// Payload shorter than this is copied on its way in any case.
    #[must_use]
    #[inline]
    pub fn lent_from(&self) -> u64 {
        self.lent_from
    }

    /// Something that holds the sender back by itself carries what is long: its grants take nothing
    /// from the others.
    #[must_use]
    pub fn is_ample(&self) -> bool {
        matches!(self.carrier, Carrier::Shm | Carrier::Sctp) || self.bulk.is_up()
    }

    /// The peer's terms are known, and it is not over.
    #[must_use]
    #[inline]
    pub fn is_up(&self) -> bool {
        self.up
    }

    /// Whether something of a carrier still names its place ([`crate::Sessions::hold`]): it must
    /// not be another's yet.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.holds > 0
    }

    /// Why it is over, if it is.
    #[must_use]
    pub fn down(&self) -> Option<DownReason> {
        self.down
    }

    /// The peer's terms are known: what waited for credit may go. False if something was queued
    /// that these terms never let out.
    #[must_use]
    pub fn begin(&mut self, common: &mut Common, terms: Terms) -> bool {
        self.credit_bytes = terms.credit_bytes;
        self.out.set_limits(terms.credit_msgs, terms.credit_bytes);
        if u64::from(self.out.longest_waiting()) > terms.credit_bytes / 4 * 3 {
            return false;
        }
        self.up = true;
        self.credit_dirty |= self.inn.expected() > 0;
        self.admit(common);
        true
    }

    /// Nothing new is accepted from now on.
    pub fn close(&mut self) {
        self.closing = true;
    }

    /// The verdict that the peer is dead: everything fails, and memory is given back.
    pub fn end(&mut self, common: &mut Common, reason: DownReason, events: &mut Vec<Event>) {
        if self.down.is_some() {
            return;
        }
        let peer = self.peer;
        events.push(Event::Down { peer, reason });
        let mut fail = |token| events.push(Event::Failed { peer, token, reason });
        self.out.matched.drain_tokens(&mut fail);
        self.out.control.drain_tokens(&mut fail);
        self.out.control_next = self.out.control.next();
        self.rndvs_out.drain_tokens(&mut fail);
        let handles: Vec<u64> = self.rndvs_in.handles().map(|(h, _)| h).collect();
        for h in handles {
            self.rndvs_in.remove(h);
        }
        common.grants.forget_peer(peer);
        common.give_back_bulk_credit(self.inn.bulk_bytes());
        self.inn.let_in(0);
        common.ended += 1;
        self.up = false;
        self.down = Some(reason);
        self.small = VecDeque::new();
        self.flows = VecDeque::new();
        self.bulk = Bulk::default();
        self.lost = VecDeque::new();
        self.lost_control = VecDeque::new();
        self.grants_dirty = VecDeque::new();
        self.aborts = VecDeque::new();
        self.credit_dirty = false;
        self.credit_at = None;
        self.regrant_at = None;
    }

    fn check_open(&self) -> Result<(), SendError> {
        if self.down.is_some() || self.closing { Err(SendError::Closed) } else { Ok(()) }
    }

    // What the layer above asks.

    /// Queues a message.
    ///
    /// # Errors
    /// See [`SendError`]; nothing was queued then.
    pub fn send(&mut self, common: &mut Common, m: &Message<'_>) -> Result<(), SendError> {
        self.check_open()?;
        if m.envelope.len() > ENVELOPE_MAX {
            return Err(SendError::TooLong);
        }
        if m.control {
            if m.len as usize > common.cfg.control_len_max {
                return Err(SendError::TooLong);
            }
            if self.out.control.span() >= common.cfg.control_queue as usize {
                return Err(SendError::QueueFull);
            }
        } else {
            // Longer ones only where the peer said that it expects them, and lets all of it in now.
            let is_expected = self.credit_ahead() > 0 && u64::from(m.len) <= self.out.credit().bytes;
            let is_long = u64::from(m.len) > self.max_matched_len() && !is_expected;
            if is_long || m.stream >= common.cfg.streams {
                return Err(SendError::TooLong);
            }
            if self.out.matched.unsent >= common.cfg.send_queue_msgs {
                return Err(SendError::QueueFull);
            }
        }
        self.out.push(m);
        common.counters.messages_sent += 1;
        if !m.control && self.up {
            self.admit(common);
        }
        Ok(())
    }

    /// Moves messages that credit lets out into the queues they are sent from.
    pub(crate) fn admit(&mut self, common: &mut Common) {
        let was_stalled = self.out.stalled;
        while let Some((mseq, len)) = self.out.admit() {
            let envelope = self.out.matched.get(mseq).map_or(0, |m| m.envelope().len());
            if len as usize + envelope <= self.piece_max {
                self.small.push_back(mseq);
                self.ends_run();
            } else {
                let lone = self.is_of_a_kind(common);
                self.enqueue(Flow::Message(mseq), u64::from(len), lone);
            }
        }
        if self.out.stalled && !was_stalled {
            common.counters.stalls_credit += 1;
            self.counts.stalls_credit += 1;
        }
    }

    /// Opens a handle for rendezvous data of the peer.
    ///
    /// # Errors
    /// See [`crate::Sessions::open_rndv`].
    pub fn open_rndv(&mut self, common: &mut Common, now: Time, len: u64) -> Result<RndvOpened, SendError> {
        self.check_open()?;
        if len == 0 {
            return Err(SendError::TooLong);
        }
        if self.rndvs_in.open() >= common.cfg.rndvs_max {
            return Err(SendError::QueueFull);
        }
        if self.carrier == Carrier::Loopback {
            // Nothing lies between that could be filled or lose anything: it takes nothing from the
            // others, and needs no watch.
            return Ok(RndvOpened { handle: self.rndvs_in.add(now, len, len), granted: len });
        }
        let granted = common.grants.open(now, self.peer, len, self.is_ample());
        let handle = self.rndvs_in.add(now, len, granted);
        common.grants.wait(now, self.peer, handle, len, granted, self.is_ample());
        self.arm_regrant(&common.cfg, now);
        Ok(RndvOpened { handle, granted })
    }

    /// The receiver gives up on rendezvous data.
    pub fn close_rndv(&mut self, common: &mut Common, handle: u64) {
        if let Some(outstanding) = self.rndvs_in.remove(handle) {
            common.grants.returned(common.clock(), self.peer, outstanding);
            common.grants.forget(self.peer, handle);
        }
    }

    /// Sends rendezvous data.
    ///
    /// # Errors
    /// See [`crate::Sessions::send_rndv`].
    pub fn send_rndv(&mut self, handle: u64, granted: u64, len: u64, token: u64) -> Result<(), SendError> {
        if len == 0 {
            return Err(SendError::TooLong);
        }
        self.check_open()?;
        let slot = self.rndvs_out.add(handle, granted, len, token).ok_or(SendError::QueueFull)?;
        self.queue_rndv(slot);
        Ok(())
    }

    /// The sender gives up on rendezvous data, or does not begin it; then the receiver that opened
    /// it learns that nothing will come.
    pub fn abort_rndv(&mut self, handle: u64, code: u16) -> Option<u64> {
        if self.down.is_some() {
            return None;
        }
        if self.aborts.len() >= ABORTS_MAX {
            self.aborts.pop_front();
        }
        self.aborts.push_back((handle, code));
        self.rndvs_out.slot_of(handle).map(|slot| self.rndvs_out.remove(slot))
    }

    /// So many bytes of matched messages are expected of the peer: they are let in beside its
    /// initial credit (`spec/superstep.md` 5). True when the peer is to be told, which is seen to.
    pub(crate) fn expect(&mut self, bytes: u64) -> bool {
        let tell = self.inn.expect(bytes) && self.up;
        self.credit_dirty |= tell;
        tell
    }

    /// Bytes of credit that the peer gave beside the initial, and that are left: what it expects,
    /// and what it lets in because of a bulk connection. While there is none any more that is no
    /// reason to send more at once: it would go in packets.
    #[must_use]
    pub fn credit_ahead(&self) -> u64 {
        let usual = if self.bulk.is_over() { self.credit_bytes.saturating_mul(2) } else { self.credit_bytes };
        if self.up { self.out.credit().bytes.saturating_sub(usual) } else { 0 }
    }

    /// The layer above freed messages. True when the peer is to be told, which is seen to.
    ///
    /// That is so before the session is up, too: messages come by any carrier, and the one that is
    /// to carry what is sent here may not have been tried yet.
    #[inline]
    pub fn consume(&mut self, common: &Common, msgs: u32, bytes: u64) -> bool {
        let tell = self.inn.consume(msgs, bytes) && self.down.is_none();
        if tell {
            if self.bulk.is_up() {
                // The next record takes it along.
                let wait_ns = if self.inn.has_half() { CREDIT_PATIENCE_NS } else { CREDIT_WAIT_NS };
                let at = common.clock().plus_ns(wait_ns);
                self.credit_at = Some(self.credit_at.map_or(at, |t| t.min(at)));
            } else {
                self.credit_dirty = true;
            }
        }
        tell
    }

    /// Credit left, after what is queued.
    #[must_use]
    pub fn credit(&self) -> Credit {
        self.out.credit()
    }

    /// Longest matched message the peer takes (spec 5): half of its initial byte credit; before it
    /// is known, of ours.
    #[must_use]
    pub fn max_matched_len(&self) -> u64 {
        self.credit_bytes / 2
    }

    /// Control messages the peer's window has room for.
    #[must_use]
    pub fn control_room(&self, common: &Common) -> usize {
        (common.cfg.control_window as usize).saturating_sub(self.out.control.span())
    }

    /// Messages accepted that no carrier has taken yet.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.out.matched.unsent + self.out.control.unsent
    }

    /// Of these, matched messages: what `Config::send_queue_msgs` bounds.
    #[must_use]
    pub fn unsent(&self) -> usize {
        self.out.matched.unsent
    }

    /// Messages not completely known to have arrived.
    #[must_use]
    pub fn messages_open(&self) -> usize {
        self.out.matched.open + self.out.control.open
    }

    /// Matched messages that wait for credit.
    #[must_use]
    pub fn messages_waiting(&self) -> usize {
        self.out.waiting()
    }

    /// Rendezvous data being sent, and being received.
    #[must_use]
    pub fn rndvs_open(&self) -> (usize, usize) {
        (self.rndvs_out.open(), self.rndvs_in.open())
    }

    /// Something is not completely known to have arrived.
    #[must_use]
    pub fn has_open(&self) -> bool {
        self.messages_open() > 0 || self.rndvs_out.open() > 0
    }

    /// The number of the message accepted last, matched or control: the `mseq` that its fragments
    /// bear.
    #[must_use]
    pub fn last_message(&self, control: bool) -> Option<u64> {
        if control { &self.out.control } else { &self.out.matched }.next().checked_sub(1)
    }

    /// What was counted.
    #[must_use]
    pub fn counts(&self) -> &PeerCounters {
        &self.counts
    }

    /// A matched message that has not arrived completely.
    #[must_use]
    #[inline]
    pub fn message(&self, mseq: u64) -> Option<&OutMessage> {
        self.out.matched.get(mseq)
    }

    // Grants and time.

    /// A carrier measured its smoothed round trip.
    #[inline]
    pub fn set_round_trip(&mut self, ns: u64) {
        self.round_trip_ns = ns;
    }

    /// The scheduler raised a grant.
    pub(crate) fn raise_grant(&mut self, common: &Common, now: Time, handle: u64, limit: u64) {
        if let Some(b) = self.rndvs_in.get_mut(handle) {
            b.granted = b.granted.max(limit);
            b.touched = now;
            if !b.grant_dirty {
                b.grant_dirty = true;
                self.grants_dirty.push_back(handle);
            }
            self.arm_regrant(&common.cfg, now);
        }
    }

    fn regrant_ns(&self, cfg: &Config) -> u64 {
        // What goes by a bulk connection waits its turn there, and is not lost.
        let least = if self.is_ample() { cfg.bulk_regrant } else { cfg.regrant_min };
        (4 * self.round_trip_ns).max(least.as_nanos() as u64)
    }

    /// Starts the watch over granted bytes, or has it look earlier than at what is long silent.
    fn arm_regrant(&mut self, cfg: &Config, now: Time) {
        let at = now.plus_ns(self.regrant_ns(cfg));
        self.regrant_at = Some(self.regrant_at.map_or(at, |t| t.min(at)));
    }

    /// Repeats the grants of data whose granted bytes stay away (spec 4).
    fn regrant(&mut self, common: &mut Common, now: Time) {
        self.regrant_at = None;
        let base = self.regrant_ns(&common.cfg);
        let mut next = Time::MAX;
        let mut again: SmallVec<[u64; 8]> = SmallVec::new();
        for (h, b) in self.rndvs_in.handles() {
            if b.granted <= b.received {
                continue;
            }
            let at = b.touched.plus_ns(regrant_after_ns(base, b.repeats));
            if at <= now {
                again.push(h);
                next = next.min(now.plus_ns(regrant_after_ns(base, b.repeats.saturating_add(1))));
            } else {
                next = next.min(at);
            }
        }
        for h in again {
            if let Some(b) = self.rndvs_in.get_mut(h) {
                b.repeats = b.repeats.saturating_add(1);
                b.touched = now;
                if !b.grant_dirty {
                    b.grant_dirty = true;
                    self.grants_dirty.push_back(h);
                    common.counters.regrants_sent += 1;
                }
            }
        }
        // A peer that sends nothing must not hold what others could use.
        if let Some(at) = common.grants.watch(now, self.peer, base * u64::from(common.cfg.grant_silence)) {
            next = next.min(at);
        }
        if next != Time::MAX {
            self.regrant_at = Some(next);
        }
    }

    /// When something is due without any call.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        match (self.regrant_at, self.credit_at) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// [`Session::deadline`] may have passed.
    pub fn on_timeout(&mut self, common: &mut Common, now: Time) {
        if self.credit_at.is_some_and(|t| t <= now) {
            self.credit_at = None;
            self.credit_dirty = true;
        }
        if self.regrant_at.is_some_and(|t| t <= now) {
            self.regrant(common, now);
        }
    }
}

/// After how long the grant of data that stays away is repeated, if it was repeated so often
/// already.
fn regrant_after_ns(base_ns: u64, repeats: u8) -> u64 {
    base_ns << repeats.min(8)
}
