//! Asking who is at an address, before anything is opened to it (spec 7.1).

use alloc::vec::Vec;
use core::net::SocketAddr;

use rand_core::RngCore;
use smallvec::SmallVec;
use weir_wire::handshake as wire;
use weir_wire::{EndpointName, Handshake, RefuseCode};

use crate::asked::{Answer, Asking, NOBODY};
use crate::endpoint::{Datagram, Endpoint, INDEX_BITS, OUTBOX_MAX};
use crate::{DownReason, RxMeta, Time};

/// Askings under way at a time: each costs a packet in a while, and a program names its servers by
/// the dozen.
pub const ASKINGS_MAX: usize = 1024;
/// INITs in a row for which the network says that no program has the port.
const REFUSED_VERDICT: u32 = 3;
/// The index in the association ids of askings: of no association.
const NO_INDEX: u64 = (1 << INDEX_BITS) - 1;

impl Endpoint {
    /// Asks who lives at these addresses of one host. Returns the ticket of the answer; none when
    /// too many are asked already, or there is no address.
    pub fn ask(&mut self, now: Time, addrs: &[SocketAddr]) -> Option<u64> {
        if addrs.is_empty() || self.askings.len() >= ASKINGS_MAX {
            return None;
        }
        let association = (self.rng.next_u64() | 1 << 63) >> INDEX_BITS << INDEX_BITS | NO_INDEX;
        let mut nonce = [0; wire::NONCE_LEN];
        self.rng.fill_bytes(&mut nonce);
        self.askings.push(Asking {
            opening: wire::Opening {
                level: self.cfg.level,
                features: self.cfg.features,
                opener_id: self.endpoint_id,
                responder_id: NOBODY,
                opener_association: association,
                nonce,
            },
            addrs: addrs.iter().copied().take(crate::config::PATHS_MAX).collect(),
            send_at: now,
            give_up: now + self.cfg.connect_timeout,
            interval_ns: self.cfg.handshake_retry.as_nanos() as u64,
            tries: 0,
            refused: 0,
        });
        self.send_askings(now);
        Some(association)
    }

    /// Asks no further; there will be no answer.
    pub fn ask_no_more(&mut self, ticket: u64) {
        self.askings.retain(|a| a.opening.opener_association != ticket);
        self.answers.retain(|a| a.ticket != ticket);
    }

    /// What was found, oldest first.
    pub fn take_answers(&mut self) -> Vec<Answer> {
        core::mem::take(&mut self.answers)
    }

    /// Something was.
    #[must_use]
    #[inline]
    pub fn has_answers(&self) -> bool {
        !self.answers.is_empty()
    }

    /// When the next INIT of an asking, or its end, is due.
    pub(crate) fn asking_due(&self) -> Option<Time> {
        self.askings.iter().map(|a| a.send_at.min(a.give_up)).min()
    }

    /// Sends what is due, and gives up what has waited for too long.
    pub(crate) fn send_askings(&mut self, now: Time) {
        let over: SmallVec<[u64; 4]> =
            self.askings.iter().filter(|a| a.give_up <= now).map(|a| a.opening.opener_association).collect();
        over.iter().for_each(|&ticket| self.answer_asking(ticket, Err(DownReason::ConnectTimeout)));
        let askings = self.askings.len();
        for i in 0..self.askings.len() {
            let random = self.rng.next_u64();
            let a = &mut self.askings[i];
            if a.send_at > now {
                continue;
            }
            let remote = a.addrs[a.tries as usize % a.addrs.len()];
            a.tries += 1;
            let interval_ns = self.openings.interval_ns(&self.cfg, a.interval_ns, askings, false);
            let spread = ((u128::from(random) * u128::from(interval_ns)) >> 64) as u64;
            a.send_at = now.plus_ns(interval_ns / 2 + spread);
            a.interval_ns = interval_ns * 2;
            let bytes = self.handshake.write(&Handshake::Init(a.opening));
            if self.outbox.len() < OUTBOX_MAX {
                self.outbox.push_back(Datagram { remote, local: None, bytes });
            }
        }
    }

    /// Whether an answer that names this association may be one to an asking.
    pub(crate) fn is_asking(&self, association: u64) -> bool {
        association & NO_INDEX == NO_INDEX && self.asking(association).is_some()
    }

    fn asking(&self, ticket: u64) -> Option<&Asking> {
        self.askings.iter().find(|a| a.opening.opener_association == ticket)
    }

    /// A REFUSE that answers an asking; false when it is about something else.
    pub(crate) fn on_asking_refused(&mut self, meta: &RxMeta, r: &wire::Refuse) -> bool {
        let Some(a) = self.asking(r.opener_association) else { return false };
        if !a.addrs.contains(&meta.remote) {
            self.counters.dropped_state += 1;
            return true;
        }
        let found = match r.code {
            RefuseCode::StaleIncarnation => {
                let mut name = EndpointName::new(meta.remote.port(), self.handshake.fingerprint, r.endpoint_id);
                name.push(meta.remote.ip());
                Ok(name.encode())
            }
            code => Err(crate::handshake::reason_of(code)),
        };
        self.answer_asking(r.opener_association, found);
        true
    }

    /// The network says that no program has the port at this address.
    pub(crate) fn asking_unreachable(&mut self, remote: SocketAddr) {
        let mut over: SmallVec<[u64; 4]> = SmallVec::new();
        for a in self.askings.iter_mut().filter(|a| a.addrs.contains(&remote)) {
            a.refused = (a.refused + 1).min(a.tries);
            if a.refused as usize >= REFUSED_VERDICT as usize * a.addrs.len() {
                over.push(a.opening.opener_association);
            }
        }
        over.iter().for_each(|&ticket| self.answer_asking(ticket, Err(DownReason::Unreachable)));
    }

    fn answer_asking(&mut self, ticket: u64, found: Result<[u8; weir_wire::NAME_LEN], DownReason>) {
        self.askings.retain(|a| a.opening.opener_association != ticket);
        self.answers.push(Answer { ticket, found });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, PacketBuf};

    struct NoPayloads;

    impl crate::Payloads for NoPayloads {
        fn read(&self, _: u64, _: u64, _: &mut [u8]) {}

        fn crc(&self, _: u64, _: u64, _: usize, crc: u32) -> u32 {
            crc
        }
    }

    fn addr(port: u16) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 1], port))
    }

    fn endpoint(port: u16, id: u64) -> Endpoint {
        Endpoint::new(Config::default(), [7; 32], id, &[addr(port)], [port as u8; 32])
    }

    /// Hands what one says to the other, which hears it as from `from`.
    fn pass(now: Time, one: &mut Endpoint, other: &mut Endpoint, from: SocketAddr) -> usize {
        let (mut n, mut buf) = (0, PacketBuf::new());
        while one.poll_transmit(now, &NoPayloads, &mut buf).is_some() {
            let meta = RxMeta { remote: from, local: None, receiver_delay_ns: 0, ecn: 0 };
            other.handle(now, meta, &mut buf.head.clone(), &mut Vec::new());
            n += 1;
        }
        n
    }

    // spec: P-7.6, P-7.8
    #[test]
    fn who_lives_at_an_address_is_told_and_nothing_is_kept_there() {
        let (mut asker, mut asked) = (endpoint(1, 11), endpoint(2, 22));
        let ticket = asker.ask(Time(1), &[addr(2)]).expect("room");
        assert_eq!(pass(Time(1), &mut asker, &mut asked, addr(1)), 1);
        assert_eq!(pass(Time(1), &mut asked, &mut asker, addr(2)), 1);
        let answers = asker.take_answers();
        assert_eq!(answers.len(), 1);
        let name = EndpointName::decode(&answers[0].found.expect("found")).expect("a name");
        assert_eq!((answers[0].ticket, name.endpoint_id, name.port), (ticket, 22, 2));
        assert_eq!(asked.peers().count() + asker.peers().count(), 0);
        assert_eq!(asker.next_timeout(), None);
    }

    // spec: P-7.9
    #[test]
    fn an_answer_from_elsewhere_is_no_answer() {
        let (mut asker, mut asked) = (endpoint(1, 11), endpoint(2, 22));
        asker.ask(Time(1), &[addr(2)]).expect("room");
        pass(Time(1), &mut asker, &mut asked, addr(1));
        pass(Time(1), &mut asked, &mut asker, addr(3));
        assert!(!asker.has_answers() && asker.counters().dropped_state == 1);
    }

    // spec: P-7.9
    #[test]
    fn an_answer_to_an_earlier_question_is_none_to_the_next() {
        let (mut asker, mut asked) = (endpoint(1, 11), endpoint(2, 22));
        let first = asker.ask(Time(1), &[addr(2)]).expect("room");
        pass(Time(1), &mut asker, &mut asked, addr(1));
        asker.ask_no_more(first);
        let second = asker.ask(Time(2), &[addr(2)]).expect("room");
        assert_eq!(pass(Time(2), &mut asked, &mut asker, addr(2)), 1);
        assert!(!asker.has_answers());
        pass(Time(3), &mut asker, &mut asked, addr(1));
        pass(Time(3), &mut asked, &mut asker, addr(2));
        assert_eq!(asker.take_answers().iter().map(|a| a.ticket).collect::<Vec<_>>(), [second]);
    }

    // spec: P-7.7
    #[test]
    fn an_asking_that_nobody_answers_ends_and_repeats_until_then() {
        let mut asker = endpoint(1, 11);
        let ticket = asker.ask(Time(1), &[addr(2)]).expect("room");
        let (mut sent, mut now, mut buf) = (0, Time(1), PacketBuf::new());
        while !asker.has_answers() {
            while asker.poll_transmit(now, &NoPayloads, &mut buf).is_some() {
                sent += 1;
            }
            now = asker.next_timeout().expect("it is still asked").max(now);
            asker.handle_timeout(now, &mut Vec::new());
        }
        assert!(sent > 10, "{sent}");
        assert_eq!(asker.take_answers(), [Answer { ticket, found: Err(DownReason::ConnectTimeout) }]);
    }

    // spec: P-7.10
    #[test]
    fn three_refusals_of_the_network_end_it_and_one_init_counts_once() {
        let mut asker = endpoint(1, 11);
        asker.ask(Time(1), &[addr(2)]).expect("room");
        for _ in 0..5 {
            asker.refused(Time(2), addr(2));
        }
        assert!(!asker.has_answers());
        let mut now = Time(1);
        for _ in 0..2 {
            now = asker.asking_due().expect("repeated").max(now);
            asker.handle_timeout(now, &mut Vec::new());
            asker.refused(now, addr(2));
        }
        assert_eq!(asker.take_answers()[0].found, Err(DownReason::Unreachable));
    }

    // spec: P-7.11
    #[test]
    fn askings_are_bounded_and_can_be_given_up() {
        let mut asker = endpoint(1, 11);
        let first = asker.ask(Time(1), &[addr(2)]).expect("room");
        for _ in 1..ASKINGS_MAX {
            asker.ask(Time(1), &[addr(2)]).expect("room");
        }
        assert_eq!(asker.ask(Time(1), &[addr(2)]), None);
        asker.ask_no_more(first);
        assert!(asker.ask(Time(1), &[addr(2)]).is_some());
        assert_eq!(asker.ask(Time(1), &[]), None);
    }
}
