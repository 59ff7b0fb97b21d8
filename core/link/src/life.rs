//! Timers of an established association: keep-alive and verdict, closing, path probes and return
//! (spec 8, 9).

use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use rand_core::RngCore;
use weir_session::{Carrier, Session};

use crate::association::{Association, Cx, State, carries};
use crate::config::PATHS_MAX;
use crate::judging::Doubt;
use crate::paths::{Path, PathState};
use crate::{DownReason, Event, Time};

/// Unanswered questions, each with its hint, that end an association whose peer is said to be gone.
const VERDICT_HINTS: u8 = 3;
/// Questions after which a doubt is dropped when the hints stayed away.
const DOUBT_PINGS: u8 = 6;
/// Least time between them for a closing endpoint, whose peer is likely to be gone (else
/// [`crate::Config::doubt_interval`]). Above what schedulers do.
const DOUBT_CLOSING_NS: u64 = 10_000_000;
/// A silence of fewer round trips, the shortest of late, is none: where a host has so little
/// processor that answers take a second, those to several questions may be on their way.
const VERDICT_TRIPS: u64 = 8;
/// In a start of many, so many times `peer_timeout`: a rank to which hundreds open has seconds of
/// packets to read before it comes to a question.
const START_TIMES: u64 = 4;
/// But not for more than so many times `peer_timeout`.
const SLOW_MOST: u64 = 12;

/// What hosts add to a round trip, at most, as far as a doubt waits for it: longer round trips that
/// were seen are of a time when both were busy.
const DOUBT_NOISE_NS: u64 = 30_000_000;

impl Association {
    /// Ends at once: what is left fails, and the peer is told.
    pub(crate) fn end_here(&mut self, cx: &mut Cx<'_>, events: &mut Vec<Event>) {
        if !matches!(self.state, State::Down(_)) {
            let up = self.state == State::Up;
            self.go_down(cx, DownReason::LocalClose, events);
            self.close_pending = up.then_some(0);
        }
    }

    /// Everything that is due at `now`.
    pub(crate) fn on_timeout(&mut self, cx: &mut Cx<'_>, events: &mut Vec<Event>) {
        if self.closing.is_some_and(|t| t <= cx.now) && !matches!(self.state, State::Down(_)) {
            // The linger time is over: what is left fails, and the peer is told.
            return self.end_here(cx, events);
        }
        match self.state {
            State::Opening => self.opening_timeout(cx, events),
            State::Up => {
                if let Some(reason) = self.ending.take() {
                    self.go_down(cx, reason, events);
                    self.close_pending = Some(if reason == DownReason::Exhausted { 3 } else { 4 });
                    return;
                }
                for p in &mut self.paths {
                    p.held_until = p.held_until.filter(|t| *t > cx.now);
                }
                self.on_loss_timers(cx);
                if carries(cx.s) {
                    cx.s.on_timeout(cx.common, cx.now);
                }
                self.settle_doubt(cx, events);
                self.keep_alive(cx, events);
                self.check_drained(cx.s);
            }
            State::Idle | State::Down(_) => {}
        }
    }

    /// PING after each quarter of the peer timeout and many in the last; the verdict after all of
    /// it, if our questions had time to be answered.
    fn keep_alive(&mut self, cx: &mut Cx<'_>, events: &mut Vec<Event>) {
        if self.next_ping(cx.cfg) > cx.now {
            return;
        }
        // A process that was stopped itself wakes up with an old clock reading: it must ask before
        // it judges.
        let is_over = cx.now.since_ns(self.heard) >= self.patience_ns(cx) && self.pings >= 2;
        if is_over && cx.unread.may_judge(self.last_ping) {
            self.go_down(cx, DownReason::Unreachable, events);
            return;
        }
        if self.pings == 0 {
            // Of the endpoint's lateness what has kept this very PING back counts.
            let overdue = cx.now.since_ns(self.next_ping(cx.cfg));
            self.late_ns = cx.late_ns.saturating_sub(overdue);
        }
        if !cx.s.has_open()
            && let Some(bulk) = self.bulk.as_mut()
        {
            bulk.forget_records();
        }
        if self.pings >= 2 {
            // By the time of the verdict all is to be read that has arrived until now.
            cx.unread.may_judge(cx.now);
        }
        self.ping = true;
        self.pings += 1;
        self.last_ping = cx.now;
    }

    /// The silence after which the peer is given up. What this endpoint was itself late by
    /// meanwhile does not count; an opener from which nothing PROTECTED ever came may be opening
    /// for as long as openings may take; and where answers take seconds, or many start, more are
    /// waited for.
    fn patience_ns(&self, cx: &Cx<'_>) -> u64 {
        let half_open = self.accepted.is_some() && self.rx.expected() == 0;
        let least = if half_open { cx.cfg.connect_timeout } else { cx.cfg.peer_timeout };
        let late = if self.pings > 0 { cx.late_ns - self.late_ns } else { 0 };
        let usual = cx.cfg.peer_timeout.as_nanos() as u64;
        let path = self.paths.get(usize::from(self.primary));
        let trip = path.map_or(0, |p| p.rtt.base());
        let slow = (VERDICT_TRIPS * trip).min(SLOW_MOST * usual);
        let start = if cx.openings.were_hundreds(cx.now) { START_TIMES * usual } else { 0 };
        usual.max(least.as_nanos() as u64).max(slow).max(start) + late.min(SLOW_MOST * usual)
    }

    /// Somebody who may lie says that the peer is gone.
    pub(crate) fn doubt(&mut self, now: Time, reason: DownReason) {
        if self.state != State::Up {
            return;
        }
        match &mut self.doubt {
            Some(d) => {
                d.hints += u8::from(d.hints < d.pings);
                d.reason = reason;
            }
            None => self.doubt = Some(Doubt { reason, hints: 0, pings: 0, at: now }),
        }
    }

    /// Asks, or judges: whoever lives answers one of three questions, and a lie has to be repeated
    /// for each.
    fn settle_doubt(&mut self, cx: &mut Cx<'_>, events: &mut Vec<Event>) {
        let ack_delay = self.ack_delay_max();
        let Some(d) = self.doubt.as_mut().filter(|d| d.at <= cx.now) else { return };
        if d.hints >= VERDICT_HINTS {
            let reason = d.reason;
            self.go_down(cx, reason, events);
            return;
        }
        if d.pings >= DOUBT_PINGS {
            self.doubt = None;
            return;
        }
        let path = self.paths.get(usize::from(self.primary));
        let pto = path.map_or(0, |p| p.rtt.pto(cx.cfg.pto_var_min.as_nanos() as u64, ack_delay));
        let base = path.filter(|p| p.rtt.sampled).map_or(pto, |p| p.rtt.base());
        let answer = (2 * pto).min(2 * base + DOUBT_NOISE_NS);
        let least = if self.closing.is_some() { DOUBT_CLOSING_NS } else { cx.cfg.doubt_interval.as_nanos() as u64 };
        d.pings += 1;
        d.at = cx.now.plus_ns(answer.max(least));
        self.ping = true;
    }

    /// A packet of the peer was accepted.
    pub(crate) fn note_heard(&mut self, now: Time, path: u8) {
        self.heard = now;
        self.pings = 0;
        self.doubt = None;
        if let Some(p) = self.paths.get_mut(usize::from(path)) {
            p.heard = now;
        }
    }

    /// A closing endpoint with nothing unacknowledged and nothing to tell of its bulk connection
    /// says goodbye.
    pub(crate) fn check_drained(&mut self, s: &Session) {
        // (SCTP has a farewell of its own, which comes first: spec/sctp.md 6.1.)
        let is_open = carries(s) && s.has_open() || s.carrier() == Carrier::Sctp;
        let is_done = |a: &Association| a.state == State::Up && !is_open && a.bulk_due().is_none();
        if self.closing.is_some() && self.close_pending.is_none() && is_done(self) {
            self.close_pending = Some(0);
        }
    }

    /// Index of the path to `remote`; a new one if there is room and `add`.
    pub(crate) fn path_to(&mut self, cx: &Cx<'_>, remote: SocketAddr, local: Option<IpAddr>, add: bool) -> Option<u8> {
        let primary = usize::from(self.primary);
        if self.paths.get(primary).is_some_and(|p| p.remote == remote) {
            return Some(self.primary);
        }
        if let Some(i) = self.paths.iter().position(|p| p.remote == remote) {
            return Some(i as u8);
        }
        if !add || self.paths.len() >= PATHS_MAX {
            return None;
        }
        let max = cx.cfg.max_datagram.min(self.peer.max_datagram);
        self.paths.reserve_exact(1);
        self.paths.push(Path::new(cx.cfg, cx.now, remote, local, max));
        Some(self.paths.len() as u8 - 1)
    }

    /// A PATH_CHALLENGE is due on path `i`: its data, and the next one is scheduled.
    pub(crate) fn take_challenge(&mut self, cx: &mut Cx<'_>, i: usize) -> Option<u64> {
        let primary = usize::from(self.primary);
        let many = self.paths.len() > 1;
        let p = &mut self.paths[i];
        if p.next_probe > cx.now {
            return None;
        }
        if !many || (i == primary && p.state == PathState::Valid) {
            // Data and keep-alive watch over the primary; a lone path has nothing to be compared
            // with.
            if p.state == PathState::Valid || !many {
                p.next_probe = if many { cx.now + cx.cfg.path_probe_max } else { Time::MAX };
            }
            return None;
        }
        if core::mem::take(&mut p.asks_again)
            && let Some((data, _)) = p.challenge
        {
            // The same: else two that ask at once would each forget what the other is about to
            // answer.
            p.next_probe = cx.now.plus_ns(p.probe_interval);
            return Some(data);
        }
        if p.challenge.take().is_some() {
            // The last one was not answered.
            p.answers = 0;
            p.misses += 1;
            match p.state {
                // One lost probe is no failure.
                PathState::Valid if p.misses >= 2 => {
                    if !self.fail_over(cx, i) && self.paths[i].in_flight_packets == 0 {
                        self.paths[i].make_suspect(cx.cfg, cx.now);
                    }
                }
                PathState::Valid => p.next_probe = cx.now,
                PathState::Suspect | PathState::Unvalidated => {
                    p.probe_interval = (p.probe_interval * 2).min(cx.cfg.path_probe_max.as_nanos() as u64)
                }
            }
        }
        let data = cx.rng.next_u64();
        let p = &mut self.paths[i];
        p.challenge = Some((data, cx.now));
        p.next_probe = cx.now.plus_ns(p.probe_interval);
        Some(data)
    }

    /// A PATH_RESPONSE: the path it answers is alive.
    pub(crate) fn on_path_response(&mut self, cx: &mut Cx<'_>, data: u64) {
        let Some(i) = self.paths.iter().position(|p| p.challenge.is_some_and(|c| c.0 == data)) else { return };
        let needed = cx.cfg.path_return_probes;
        let p = &mut self.paths[i];
        if let Some((_, sent)) = p.challenge.take() {
            p.rtt.sample(cx.now, cx.now.since_ns(sent), 0);
            p.set_pace(cx.cfg);
        }
        p.answers += 1;
        p.misses = 0;
        p.heard = cx.now;
        let back = match p.state {
            PathState::Valid => false,
            PathState::Unvalidated => true,
            PathState::Suspect => p.answers >= needed,
        };
        if p.state == PathState::Suspect && !back {
            p.probe_interval = cx.cfg.path_probe_min.as_nanos() as u64;
            p.next_probe = cx.now.plus_ns(p.probe_interval);
        }
        if back {
            p.make_valid(cx.cfg, cx.now);
            self.choose_primary(cx.s);
        }
    }

    /// The primary is the first valid path in the peer's order.
    pub(crate) fn choose_primary(&mut self, s: &mut Session) {
        if let Some(i) = self.paths.iter().position(|p| p.state == PathState::Valid)
            && i as u8 != self.primary
        {
            if let Some(old) = self.paths.get_mut(usize::from(self.primary)) {
                // From now on it is a standby path, to be probed.
                old.next_probe = Time::ZERO;
            }
            self.primary = i as u8;
            self.set_piece_max(s);
            self.set_round_trip(s);
            self.stripe = Default::default();
        }
    }
}
