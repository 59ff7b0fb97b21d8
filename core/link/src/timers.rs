//! When the endpoint's associations want to be looked at: their timers, and those that something
//! has changed.

use alloc::boxed::Box;
use alloc::collections::binary_heap::PeekMut;
use alloc::vec::Vec;
use core::cmp::Reverse;

use weir_session::Carrier;

use crate::association::{Association, Cx};
use crate::endpoint::with_association;
use crate::{Endpoint, Event, PeerId, Time};

/// Entries of the timer heap that mean nothing any more, kept beside two for each association: each
/// acknowledgement in time leaves one, for when a PING would have been due.
const STALE_TIMERS_MAX: usize = 64;

/// Whether an entry of the timer heap is the one that its association waits for.
fn is_armed(assocs: &[Box<Association>], &Reverse((t, peer)): &Reverse<(Time, PeerId)>) -> bool {
    assocs.get(peer.0 as usize).is_some_and(|a| a.armed == t)
}

impl Endpoint {
    /// When to call [`Self::handle_timeout`] next, if nothing else happens. A time in the past:
    /// now.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Time> {
        let has_work = self.sessions.has_touched(Carrier::Link) || self.openings.can_admit(&self.cfg);
        if has_work || !self.ready.is_empty() || !self.outbox.is_empty() {
            return Some(Time::ZERO);
        }
        let t = self.timers.peek().map(|r| r.0.0);
        [t, self.sessions.common().grants.deadline(), self.asking_due()].into_iter().flatten().min()
    }

    /// Whether [`Self::handle_timeout`] has anything to do now: `next_timeout` also passes when
    /// there is something to send.
    #[inline]
    pub fn look(&mut self, now: Time) -> bool {
        self.sessions.common_mut().advance(now);
        let timer = self.timers.peek().map(|r| r.0.0);
        self.lateness.look(now, timer);
        let grants = &self.sessions.common().grants;
        timer.is_some_and(|t| t <= now)
            || !self.askings.is_empty()
            || grants.has_changed()
            || grants.deadline().is_some_and(|t| t <= now)
    }

    /// `next_timeout` has passed.
    pub fn handle_timeout(&mut self, now: Time, events: &mut Vec<Event>) {
        if self.look(now) || self.is_plain() {
            self.run_timers(now, events);
        }
    }

    /// [`Endpoint::look`] has just found something to do.
    pub fn run_timers(&mut self, now: Time, events: &mut Vec<Event>) {
        if !self.askings.is_empty() {
            self.send_askings(now);
        }
        while let Some(mut top) = self.timers.peek_mut() {
            let Reverse((t, peer)) = *top;
            if t > now {
                break;
            }
            let Some((a, mut cx)) = with_association!(self, peer, now).filter(|(a, _)| a.armed == t) else {
                // An older, later entry; the earlier one has done its work.
                PeekMut::pop(top);
                continue;
            };
            let calm = if a.ready || cx.is_plain() { None } else { a.due_if_calm(cx.s, cx.cfg, now) };
            let due = calm.unwrap_or_else(|| a.deadline(cx.s, cx.cfg));
            debug_assert!(calm.is_none() || (!a.wants_to_send(cx.s, now) && due == a.deadline(cx.s, cx.cfg)));
            if due > now && due < Time::MAX {
                // In its place: it was set for something that has happened meanwhile, as after each
                // acknowledgement in time.
                a.armed = due;
                *top = Reverse((due, peer));
                if calm.is_some() && self.sessions.has_looked(Carrier::Link, peer) {
                    // What `settle` would find out.
                    self.template = None;
                }
                continue;
            }
            PeekMut::pop(top);
            a.armed = Time::MAX;
            if due <= now {
                a.on_timeout(&mut cx, events);
                self.sessions.touch_for(Carrier::Link, peer);
            }
        }
        while self.timers.peek().is_some_and(|r| !is_armed(&self.assocs, r)) {
            self.timers.pop();
        }
        let grants = &self.sessions.common().grants;
        if grants.has_changed() || grants.deadline().is_some_and(|t| t <= now) {
            self.sessions.run_grants(now);
        }
    }

    /// Makes sure the timer heap wakes us for the association at `due` at the latest.
    pub(crate) fn arm(&mut self, peer: PeerId, due: Time) {
        let a = &mut self.assocs[peer.0 as usize];
        if due < a.armed {
            a.armed = due;
            self.timers.push(Reverse((due, peer)));
            if self.timers.len() > 2 * self.assocs.len() + STALE_TIMERS_MAX {
                self.timers.retain(|r| is_armed(&self.assocs, r));
            }
        }
    }

    /// See [`Cx::is_plain`].
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        #[cfg(test)]
        return self.plain;
        #[cfg(not(test))]
        false
    }

    /// Takes up associations that changed.
    pub(crate) fn settle(&mut self, now: Time) {
        self.admit_openings(now);
        if self.sessions.common().grants.has_changed() {
            self.sessions.run_grants(now);
        }
        while let Some(peer) = self.sessions.next_touched(Carrier::Link) {
            let Some((a, mut cx)) = with_association!(self, peer, now) else { continue };
            if !a.ready
                && !cx.is_plain()
                && let Some(due) = a.due_if_calm(cx.s, cx.cfg, now)
            {
                debug_assert!(!a.wants_to_send(cx.s, now) && due == a.deadline(cx.s, cx.cfg));
                self.arm(peer, due);
                continue;
            }
            a.consider_bulk(&mut cx);
            a.check_drained(cx.s);
            if !a.ready && a.wants_to_send(cx.s, now) {
                self.enter_line(now, peer);
            } else {
                let due = a.deadline(cx.s, cx.cfg);
                self.arm(peer, due);
            }
        }
        if self.sessions.common().slot().is_some() {
            // One packet goes in a slot, and all that wait for it wake at once: who had one longest
            // ago is first. Else a message of a barrier waits until all data to another peer is
            // gone.
            let assocs = &self.assocs;
            self.ready.make_contiguous().sort_by_key(|peer| assocs[peer.0 as usize].slotted_at);
        }
    }
}

impl Endpoint {
    /// The driver reads what arrives in parts. From now on nobody is judged by silence before it
    /// has told that all was read ([`Endpoint::has_read_all`]), which it does when that is wanted.
    pub fn comes_in_parts(&mut self) {
        self.unread.comes_in_parts();
    }

    /// All that has arrived is to be read before [`Endpoint::handle_timeout`].
    pub fn wants_all_read(&self) -> bool {
        self.unread.is_wanted()
    }

    /// All that had arrived by then was read.
    pub fn has_read_all(&mut self, until: Time) {
        self.unread.read(until);
    }
}
