//! Whose long messages leave while the host's own interface holds sending back (spec 6.7).
//!
//! Who answers many at once over a slow link of its own can give each of them a packet in turn: all have their answers at the end, and the mean is as long as the longest. Or one after
//! the other: the mean is half of that, and the last waits longest by far. Between them: a part of those that wait is served in turns, the others one after the other when these have all.
//! With three in four the longest takes 1.5 times as long as the shortest, and the mean is four fifths of the longest.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::association::{State, carries};
use crate::{Endpoint, PeerId, Time};

/// Packets to one peer before another of those that are served has its turn: little more than the least window, so that nobody gets much more because its window is larger.
const TURN_PACKETS: u32 = 4;

/// A peer's place.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// Nobody asks: nothing is held back, or it has no long message.
    Free,
    /// Its long messages leave.
    Served,
    /// They wait in line.
    Held,
}

/// All places.
#[derive(Debug, Default)]
pub(crate) struct Serving {
    /// The driver could not send all there was, and it is not all sent yet.
    pub(crate) held_back: bool,
    served: Vec<PeerId>,
    line: VecDeque<PeerId>,
}

impl Serving {
    /// Somebody waits in line: whoever has room is to ask for packets.
    pub(crate) fn has_line(&self) -> bool {
        !self.line.is_empty()
    }
}

impl Endpoint {
    /// The driver could not send all there was to send: its interface takes no more for now.
    pub fn hold_back(&mut self) {
        if self.serving.held_back || self.cfg.served_percent >= 100 {
            return;
        }
        self.serving.held_back = true;
        // Who was served in the last such time and has nothing any more is so no longer.
        let served = core::mem::take(&mut self.serving.served);
        for peer in served {
            if self.has_flows(peer) {
                self.serving.served.push(peer);
            } else if let Some(a) = self.assocs.get_mut(peer.0 as usize) {
                a.place = Place::Free;
            }
        }
    }

    /// Packets of a turn.
    pub(crate) fn turn_packets(&self) -> u32 {
        let usual = self.cfg.peer_batch_packets;
        if self.serving.held_back { usual.min(TURN_PACKETS) } else { usual }
    }

    fn has_flows(&self, peer: PeerId) -> bool {
        let up = self.assocs.get(peer.0 as usize).is_some_and(|a| a.state == State::Up);
        up && self.sessions.get(peer).is_some_and(|s| carries(s) && s.flows_waiting() > 0)
    }

    /// So many of `all` that have long messages are served at once.
    fn served_most(&self, all: usize) -> usize {
        (all * usize::from(self.cfg.served_percent)).div_ceil(100).max(1)
    }

    /// The peer has its turn: gives it a place if it needs one.
    pub(crate) fn give_place(&mut self, peer: PeerId, now: Time) {
        let has_flows = self.has_flows(peer);
        let Some(a) = self.assocs.get_mut(peer.0 as usize).filter(|a| a.place == Place::Free && has_flows) else {
            return;
        };
        a.place = Place::Held;
        self.serving.line.push_back(peer);
        let (served, all) = (self.serving.served.len(), self.serving.served.len() + self.serving.line.len());
        for _ in served..self.served_most(all) {
            self.serve_first(now);
        }
    }

    /// The peer has nothing more to send now. If it was served and has all it had to get, another is.
    pub(crate) fn leave_place(&mut self, peer: PeerId, now: Time) {
        let is_served = self.assocs.get(peer.0 as usize).is_some_and(|a| a.place == Place::Served);
        if is_served && !self.has_flows(peer) {
            self.assocs[peer.0 as usize].place = Place::Free;
            self.serving.served.retain(|p| *p != peer);
            // (Those that stood in line are served one after the other: each of them waits no longer for that, and most of them not so long.)
            if self.serving.served.is_empty() {
                self.serve_first(now);
            }
        }
    }

    /// Nobody else has anything that could be sent now: the first in line is served, whatever the number. False: nobody stands there, and nothing is held back any more.
    pub(crate) fn serve_rather_than_rest(&mut self, now: Time) -> bool {
        while !self.serving.line.is_empty() {
            if self.serve_first(now) {
                return true;
            }
        }
        self.serving.held_back = false;
        false
    }

    /// Serves the first in line; whether it has something to send.
    fn serve_first(&mut self, now: Time) -> bool {
        let Some(peer) = self.serving.line.pop_front() else { return false };
        // (The place may be another's by now.)
        let Some(a) = self.assocs.get_mut(peer.0 as usize).filter(|a| a.place == Place::Held) else { return false };
        a.place = Place::Served;
        self.serving.served.push(peer);
        let wants = self.sessions.get(peer).is_some_and(|s| a.wants_to_send(s, now));
        if wants && !a.ready {
            a.ready = true;
            self.ready.push_back(peer);
        }
        wants
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::NoPayloads;
    use crate::hostile::{addr, meta};
    use crate::{Config, Event, Message, PacketBuf};
    use core::time::Duration;

    const CLIENTS: usize = 10;
    /// Bytes of a long message: within the first window.
    const LEN: u32 = 40_000;

    /// A server and clients that it knows, over a perfect wire.
    struct Star {
        server: Endpoint,
        clients: Vec<Endpoint>,
        now: Time,
        /// Of each client: bytes that came of long messages, and whether a short one did.
        got: [(u32, bool); CLIENTS],
    }

    impl Star {
        fn new(served_percent: u8) -> Star {
            let cfg = Config { served_percent, mtu_probing: false, ..Config::default() };
            let end = |i: usize| Endpoint::new(cfg.clone(), [7; 32], 100 + i as u64, &[addr(i)], [i as u8; 32]);
            let mut star = Star {
                server: end(0),
                clients: (1..=CLIENTS).map(end).collect(),
                now: Time(1_000_000),
                got: [(0, false); CLIENTS],
            };
            // In this order the server knows them: client i is peer i.
            for i in 0..CLIENTS {
                let server = star.server.name();
                let peer = star.clients[i].peer(&server).expect("a name");
                star.clients[i].send(star.now, peer, message(8)).expect("room");
                (0..20).for_each(|_| star.step(usize::MAX));
            }
            assert_eq!(star.server.peers().count(), CLIENTS);
            star
        }

        fn send(&mut self, client: usize, len: u32) {
            self.server.send(self.now, PeerId(client as u32), message(len)).expect("room");
        }

        /// A long message to each, one after the other.
        fn send_to_all(&mut self) {
            for client in 0..CLIENTS {
                self.send(client, LEN);
                self.step(1);
            }
        }

        /// Some time passes: the server's interface takes so many packets, clients answer.
        fn step(&mut self, packets: usize) {
            self.now += Duration::from_micros(100);
            let (mut out, mut events) = (PacketBuf::new(), Vec::new());
            if self.server.next_timeout().is_some_and(|t| t <= self.now) {
                self.server.handle_timeout(self.now, &mut events);
            }
            for sent in 0.. {
                if sent == packets {
                    self.server.hold_back();
                    break;
                }
                let Some(t) = self.server.poll_transmit(self.now, &NoPayloads, &mut out) else { break };
                let mut p = out.head.clone();
                p.resize(p.len() + t.payload.map_or(0, |r| usize::from(r.len)), 0);
                let client = usize::from(t.remote.port() - addr(1).port());
                self.clients[client].handle(self.now, meta(0), &mut p, &mut events);
                for event in events.drain(..) {
                    if let Event::Message { total_len, payload, .. } = event {
                        let got = &mut self.got[client];
                        if total_len == LEN { got.0 += payload.len() as u32 } else { got.1 = true }
                    }
                }
            }
            for i in 0..CLIENTS {
                let client = &mut self.clients[i];
                if client.next_timeout().is_some_and(|t| t <= self.now) {
                    client.handle_timeout(self.now, &mut events);
                }
                while client.poll_transmit(self.now, &NoPayloads, &mut out).is_some() {
                    self.server.handle(self.now, meta(i + 1), &mut out.head.clone(), &mut events);
                }
            }
        }

        /// Steps until a client has all of its long message; returns how many have some.
        fn until_one_has_all(&mut self, packets: usize) -> usize {
            for _ in 0..10_000 {
                if self.got.iter().any(|got| got.0 == LEN) {
                    return self.got.iter().filter(|got| got.0 > 0).count();
                }
                self.step(packets);
            }
            panic!("nobody gets anything: {:?}", self.got);
        }
    }

    fn message(len: u32) -> Message<'static> {
        Message { control: false, stream: 0, envelope: b"e", len, patient: false, token: 1 }
    }

    // spec: P-6.25
    #[test]
    fn while_the_interface_is_full_a_part_is_served_and_the_others_in_the_order_in_which_they_came() {
        for (percent, begun) in [(70, 7), (90, 9), (10, 1)] {
            let mut star = Star::new(percent);
            star.send_to_all();
            let some = star.until_one_has_all(2);
            // (The next may have got a packet in the same moment.)
            assert!((begun..=begun + 1).contains(&some), "{percent} %: {:?}", star.got);
            assert!(star.got[..begun].iter().all(|got| got.0 > 0), "{:?}", star.got);
            (0..2000).for_each(|_| star.step(2));
            assert!(star.got.iter().all(|got| got.0 == LEN), "{percent} %: {:?}", star.got);
            assert!(!star.server.serving.held_back && star.server.assocs.iter().all(|a| a.place != Place::Held));
        }
    }

    // spec: P-6.25
    #[test]
    fn an_interface_that_takes_all_is_never_left_idle() {
        let mut star = Star::new(10);
        star.send_to_all();
        assert!(star.server.serving.held_back && star.got[1].0 == 0, "{:?}", star.got);
        assert!(star.server.may_transmit() && star.server.next_timeout() == Some(Time::ZERO));
        // From now on it takes whatever there is.
        star.step(usize::MAX);
        assert!(star.got.iter().all(|got| got.0 > 0), "{:?}", star.got);
        assert!(!star.server.serving.held_back);
        (0..200).for_each(|_| star.step(usize::MAX));
        assert!(star.got.iter().all(|got| got.0 == LEN), "{:?}", star.got);
    }

    // spec: P-6.26
    #[test]
    fn a_short_message_does_not_wait_in_line() {
        let mut star = Star::new(10);
        star.send_to_all();
        (0..3).for_each(|_| star.step(2));
        star.got[9].1 = false;
        star.send(9, 8);
        (0..20).for_each(|_| star.step(2));
        assert!(star.got[9] == (0, true), "{:?}", star.got);
    }

    #[test]
    fn who_is_gone_makes_room() {
        let mut star = Star::new(10);
        star.send_to_all();
        (0..3).for_each(|_| star.step(2));
        // The one that is served, the next in line and the last.
        for i in [0, 1, 9] {
            star.server.close_peer(star.now, PeerId(i), &mut Vec::new());
        }
        (0..2000).for_each(|_| star.step(2));
        let has_all = |i: usize| star.got[i].0 == LEN;
        assert!((2..9).all(has_all) && !has_all(1) && !has_all(9), "{:?}", star.got);
    }
}
