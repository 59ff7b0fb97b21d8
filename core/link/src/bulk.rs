//! Bulk TCP connections as the link has them: its BULK frames say what their two ends have to say
//! in packets, and it proves who greets. What goes by a connection, and what becomes of it, is the
//! affair of `weir_bulk`; an association holds the state of its peer's, for it begins and ends with
//! the association.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::IpAddr;

use weir_bulk::{BulkConnection, BulkRecord, GREETING_LEN, RecordIn, Wrong};
use weir_wire::bulk::Greeting;
use weir_wire::frame;

use crate::association::{Association, Cx, State};
use crate::endpoint::{Endpoint, INDEX_BITS, with_association};
use crate::paths::PathState;
use crate::{BulkNews, DataKey, Event, PeerId, Time};

/// Where messages that go by turns have shown a rate, the path has this many times it: most of the
/// time nothing is under way.
const TURNS_WORTH: u64 = 2;

/// What a step of a bulk connection works with, from that of an association and the association's
/// own.
macro_rules! of_bulk {
    ($a:expr, $cx:expr) => {
        weir_bulk::Cx {
            now: $cx.now,
            cfg: &$cx.cfg.bulk,
            counters: &mut $cx.counters.bulk,
            s: $cx.s,
            common: $cx.common,
            connects: $a.peer.connects,
        }
    };
}

impl Association {
    /// Something that would go by a bulk connection stands in line: one is made, if it would pay.
    pub(crate) fn consider_bulk(&mut self, cx: &mut Cx<'_>) {
        if cx.s.take_bulk_wanted()
            && let Some(p) = self.path()
            && p.rtt.sampled
            && cx.cfg.bulk.pays(p.rtt.base(), p.loss_ppm, p.seen_rate().max(TURNS_WORTH * p.turns_rate()))
        {
            let connect = self.bulk.get_or_insert_with(Box::default).want(&mut of_bulk!(self, cx));
            self.have_connected(cx, connect);
        }
    }

    fn have_connected(&self, cx: &mut Cx<'_>, connect: bool) {
        if let Some(path) = self.path().filter(|_| connect) {
            cx.bulk_news.push_back(BulkNews { peer: self.id, remote: path.remote, local: path.local });
        }
    }

    /// A BULK frame.
    pub(crate) fn on_bulk_frame(
        &mut self,
        cx: &mut Cx<'_>,
        f: frame::Bulk,
        events: &mut Vec<Event>,
    ) -> Result<(), &'static str> {
        if self.peer.bulk_connections && self.path().is_some() {
            let connect = self.bulk.get_or_insert_with(Box::default).heard(&mut of_bulk!(self, cx), f, events)?;
            self.have_connected(cx, connect);
        }
        Ok(())
    }

    /// When the bulk connection has something to say in a packet.
    pub(crate) fn bulk_due(&self) -> Option<Time> {
        self.bulk.as_ref()?.due()
    }

    /// What a CLOSE says of the bulk connection.
    pub(crate) fn last_bulk_frame(&self) -> Option<frame::Bulk> {
        self.bulk.as_ref().map_or(self.closed_bulk, |bulk| bulk.last_frame())
    }
}

impl Endpoint {
    /// A bulk connection to be connected: make a TCP connection, send [`Endpoint::bulk_greeting`]
    /// and hand the answer to [`Endpoint::bulk_answered`]; if that cannot be done, call
    /// [`Endpoint::bulk_over`].
    pub fn take_bulk_news(&mut self) -> Option<BulkNews> {
        self.bulk_news.pop_front()
    }

    /// Whether [`Endpoint::take_bulk_news`] has any.
    #[must_use]
    pub fn has_bulk_news(&self) -> bool {
        !self.bulk_news.is_empty()
    }

    fn bulk(&self, peer: PeerId) -> Option<&BulkConnection> {
        self.assocs.get(peer.0 as usize)?.bulk.as_deref()
    }

    /// The greeting of a new bulk connection to this peer, and its number. `None`: it is not wanted
    /// any more.
    pub fn bulk_greeting(&mut self, peer: PeerId) -> Option<(u32, [u8; GREETING_LEN])> {
        let a = self.assocs.get_mut(peer.0 as usize).filter(|a| a.state == State::Up && a.peer.connects)?;
        let key = &a.crypt.as_ref()?.keys.bulk;
        let bulk = a.bulk.as_mut()?.greets()?;
        Some((bulk, Greeting { bulk, association: a.remote_id }.write(key)))
    }

    /// A greeting came on a connection of a stranger. If it is good: whose it is, the bulk
    /// connection's number and the answer; the bulk connection is up, and one that was up before is
    /// over: its connection is dropped, read or not (spec/bulk.md 5).
    pub fn bulk_greeted(&mut self, now: Time, bytes: &[u8; GREETING_LEN]) -> Option<(PeerId, u32, [u8; GREETING_LEN])> {
        let answered = self.greeted(now, bytes);
        match &answered {
            Some((peer, ..)) => self.touch(*peer),
            None => self.counters.bulk.greetings_refused += 1,
        }
        answered
    }

    fn greeted(&mut self, now: Time, bytes: &[u8; GREETING_LEN]) -> Option<(PeerId, u32, [u8; GREETING_LEN])> {
        let greeting = Greeting::read(bytes)?;
        let peer = PeerId(greeting.association as u32 & ((1 << INDEX_BITS) - 1));
        let (a, cx) = with_association!(self, peer, now)?;
        let is_ours = a.state == State::Up && a.local_id == greeting.association;
        if !is_ours || !a.peer.bulk_connections || a.peer.connects {
            return None;
        }
        let key = &a.crypt.as_ref()?.keys.bulk;
        let may_be_good = a.bulk.as_ref().is_none_or(|l| l.takes(now, greeting.bulk));
        if !may_be_good || !Greeting::is_genuine(bytes, key) {
            return None;
        }
        let answer = Greeting { bulk: greeting.bulk, association: a.remote_id }.write(key);
        a.bulk.get_or_insert_with(Box::default).is_greeted(&mut of_bulk!(a, cx), greeting.bulk);
        Some((peer, greeting.bulk, answer))
    }

    /// The answer to our greeting came. False if it is not good: close the connection.
    pub fn bulk_answered(&mut self, now: Time, peer: PeerId, bulk: u32, bytes: &[u8; GREETING_LEN]) -> bool {
        let good = with_association!(self, peer, now).is_some_and(|(a, cx)| {
            let want = Greeting { bulk, association: a.local_id };
            let genuine = a.crypt.as_ref().is_some_and(|c| Greeting::is_genuine(bytes, &c.keys.bulk));
            a.state == State::Up
                && Greeting::read(bytes) == Some(want)
                && genuine
                && a.bulk.as_mut().is_some_and(|l| l.is_answered(&mut of_bulk!(a, cx), bulk))
        });
        if !good {
            self.counters.bulk.greetings_refused += 1;
        }
        good
    }

    /// Whether the peer has a bulk connection that carries records.
    #[must_use]
    pub fn has_bulk(&self, peer: PeerId) -> bool {
        self.bulk(peer).is_some_and(BulkConnection::is_up)
    }

    /// Whether this bulk connection carries records.
    #[must_use]
    pub fn bulk_is_up(&self, peer: PeerId, bulk: u32) -> bool {
        self.bulk(peer).is_some_and(|l| l.is_up_as(bulk))
    }

    /// The next record for the peer's bulk connection: its head is appended to `head`, its payload
    /// is to follow. Records are written in the order in which they were pulled.
    pub fn bulk_next(&mut self, now: Time, peer: PeerId, bulk: u32, head: &mut Vec<u8>) -> Option<BulkRecord> {
        let (a, cx) = with_association!(self, peer, now)?;
        let keys = &a.crypt.as_ref()?.keys;
        let l = a.bulk.as_mut().filter(|l| l.is_up_as(bulk))?;
        l.next_record(&mut of_bulk!(a, cx), |head, envelope| keys.send.record_crc(head, envelope), head)
    }

    /// Whether something was handed to this bulk connection that the peer has not acknowledged:
    /// then how far it has.
    #[must_use]
    pub fn bulk_waits(&self, peer: PeerId, bulk: u32) -> Option<u64> {
        self.bulk(peer).filter(|l| l.is_up_as(bulk))?.waits()
    }

    /// Nothing more goes by this bulk connection, which is up or was greeted with: what the peer
    /// has not acknowledged is sent in packets, in which it hears of the end as well. It counts as
    /// a failure, after which the next one is a while off.
    pub fn bulk_over(&mut self, now: Time, peer: PeerId, bulk: u32) {
        let failed = with_association!(self, peer, now)
            .is_some_and(|(a, cx)| a.bulk.as_mut().is_some_and(|l| l.fails(&mut of_bulk!(a, cx), bulk)));
        if failed {
            self.touch(peer);
        }
    }

    /// A record's head with its envelope came on this bulk connection of the peer: acts on what it
    /// says of records that went the other way (the first of two steps, so that the driver can see
    /// first to what has ended, before [`Endpoint::record_begins`]). False: the head is not what
    /// was sent, or the bulk connection is over, and it is to be dropped; or the peer broke a rule
    /// and is down.
    pub fn record_tells(&mut self, now: Time, peer: PeerId, bulk: u32, bytes: &[u8], events: &mut Vec<Event>) -> bool {
        self.bulk_is_up(peer, bulk)
            && self
                .of_record(now, peer, events, |a, cx, events| {
                    let (c, l) = a.crypt.as_ref().zip(a.bulk.as_mut()).ok_or(NO_BULK)?;
                    let crc = |head: &[u8], envelope: &[u8]| c.keys.recv.record_crc(head, envelope);
                    l.record_tells(&mut of_bulk!(a, cx), bulk, bytes, crc, events)
                })
                .is_some()
    }

    /// The record begins whose head [`Endpoint::record_tells`] has taken. `None`: the peer broke a
    /// rule and is down. Otherwise the driver reads the payload into its place, as the events told
    /// it or tell it now, or nowhere if it knows of none, then calls [`Endpoint::record_ends`].
    /// Ranges of events index `bytes`.
    pub fn record_begins(
        &mut self,
        now: Time,
        peer: PeerId,
        bytes: &[u8],
        events: &mut Vec<Event>,
    ) -> Option<RecordIn> {
        self.of_record(now, peer, events, |a, cx, events| weir_bulk::record_begins(&mut of_bulk!(a, cx), bytes, events))
    }

    /// In place of [`Endpoint::record_begins`] and [`Endpoint::record_ends`], for a message that
    /// came in one record, all of which is in `bytes`, head first
    /// ([`weir_wire::bulk::RecordHead::whole_message`]). False: the peer broke a rule and is down.
    /// Ranges of events index `bytes`.
    pub fn record_whole(
        &mut self,
        now: Time,
        peer: PeerId,
        (bytes, head_len): (&[u8], usize),
        events: &mut Vec<Event>,
    ) -> bool {
        let came = self.of_record(now, peer, events, |a, cx, events| {
            let bulk = a.bulk.as_mut().ok_or(NO_BULK)?;
            bulk.record_whole(&mut of_bulk!(a, cx), bytes, head_len, events)
        });
        came.is_some()
    }

    /// All of the record's payload was read. An event whose operation is complete by it has an
    /// empty payload (and envelope). What was read of a bulk connection that is over counts for
    /// nothing.
    pub fn record_ends(&mut self, now: Time, peer: PeerId, bulk: u32, record: &RecordIn, events: &mut Vec<Event>) {
        if !self.bulk_is_up(peer, bulk) {
            return;
        }
        self.of_record(now, peer, events, |a, cx, events| {
            let fresh = a.bulk.as_mut().ok_or(NO_BULK)?.record_ends(&mut of_bulk!(a, cx), record, events)?;
            if matches!(record.key, DataKey::Rndv(_)) {
                let base = a.path().map_or(0, |p| p.trip_ns());
                cx.common.grants.measure(cx.now, a.id, (fresh, false), 0, base);
            }
            Ok(())
        });
    }

    fn of_record<T>(
        &mut self,
        now: Time,
        peer: PeerId,
        events: &mut Vec<Event>,
        act: impl FnOnce(&mut Association, &mut Cx<'_>, &mut Vec<Event>) -> Result<T, Wrong>,
    ) -> Option<T> {
        self.sessions.common_mut().advance(now);
        let (a, mut cx) = with_association!(self, peer, now).filter(|(a, _)| a.state == State::Up)?;
        let result = act(a, &mut cx, events).map_err(|wrong| match wrong {
            Wrong::Damaged => cx.counters.bulk.heads_damaged += 1,
            Wrong::Rule(why) => a.violated(&mut cx, why, events),
        });
        self.touch(peer);
        result.ok()
    }

    /// Asks whether the path to this address of the peer still carries packets;
    /// [`Endpoint::path_has_failed`] tells later that it does not. For a driver whose bulk
    /// connection takes that way and hears nothing by it. Where there is no other path there is
    /// nothing to be gained by it, and nothing happens.
    pub fn ask_path(&mut self, now: Time, peer: PeerId, remote: IpAddr) {
        let Some(a) = self.assocs.get_mut(peer.0 as usize).filter(|a| a.state == State::Up && a.paths.len() > 1) else {
            return;
        };
        let primary = usize::from(a.primary);
        for (i, p) in a.paths.iter_mut().enumerate().filter(|(_, p)| p.is_to(remote)) {
            if i == primary {
                // What elicits an acknowledgement and gets none leads to a failover: it goes by
                // this very path.
                p.asks = p.asks.max(1);
            } else if p.state == PathState::Valid {
                p.next_probe = p.next_probe.min(now);
            }
        }
        self.touch(peer);
    }

    /// Whether the path to this address of the peer fell silent while another one bore packets:
    /// what goes there by other means than packets is not to be waited for.
    #[must_use]
    pub fn path_has_failed(&self, peer: PeerId, remote: IpAddr) -> bool {
        let Some(a) = self.assocs.get(peer.0 as usize) else { return false };
        let mut there = a.paths.iter().filter(|p| p.is_to(remote)).peekable();
        there.peek().is_some() && there.all(|p| p.state == PathState::Suspect)
    }
}

/// Keys and the bulk connection are there whenever an association is up that has one.
const NO_BULK: Wrong = Wrong::Rule("record without a bulk connection");
