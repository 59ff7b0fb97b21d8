//! What a stranger can send costs its receiver no memory, and is counted.

mod counting;

use std::net::SocketAddr;
use std::time::Duration;

use counting::{calls, held};
use weir_link::*;

struct Zeros;

impl Payloads for Zeros {
    fn read(&self, _: u64, _: u64, dst: &mut [u8]) {
        dst.fill(0);
    }
}

fn address(end: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, end as u8 + 1], 7000))
}

/// Handshakes answered a second; a tenth of it at once.
const RATE: u32 = 1000;

/// One endpoint, and all that another of the job has sent it.
struct Target {
    ep: Endpoint,
    now: Time,
    genuine: Vec<Vec<u8>>,
    events: Vec<Event>,
    buf: PacketBuf,
}

impl Target {
    fn new() -> Target {
        let cfg = Config { init_rate_per_s: RATE, ..Config::default() };
        let mut ends =
            [1u8, 2].map(|i| Endpoint::new(cfg.clone(), [9; 32], i.into(), &[address(usize::from(i) - 1)], [i; 32]));
        let names = [ends[0].name(), ends[1].name()];
        let peers = [ends[0].peer(&names[1]).expect("name"), ends[1].peer(&names[0]).expect("name")];
        let (mut genuine, mut events, mut buf, mut now) = (Vec::new(), Vec::new(), PacketBuf::new(), Time(1_000_000));
        for round in 0..2000 {
            for end in 0..2 {
                if round % 20 == 0 {
                    let control = round % 40 == 0;
                    let len = if control { 100 } else { 3000 };
                    let m = Message { control, stream: 0, envelope: &[7; 16], len, patient: false, token: 1 };
                    ends[end].send(now, peers[end], m).expect("send");
                }
                while let Some(t) = ends[end].poll_transmit(now, &Zeros, &mut buf) {
                    let mut wire = buf.head.clone();
                    wire.resize(wire.len() + t.payload.map_or(0, |p| usize::from(p.len)), 0);
                    if end == 0 {
                        genuine.push(wire.clone());
                    }
                    let meta = RxMeta { remote: address(end), local: None, receiver_delay_ns: 0, ecn: 0 };
                    ends[1 - end].handle(now, meta, &mut wire, &mut events);
                    for e in events.drain(..) {
                        if let Event::Message { control: false, complete: true, total_len, .. } = e {
                            ends[1 - end].consume(peers[1 - end], 1, total_len.into());
                        }
                    }
                }
                if ends[end].next_timeout().is_some_and(|t| t <= now) {
                    ends[end].handle_timeout(now, &mut events);
                    events.clear();
                }
            }
            now = now.plus_ns(100_000);
        }
        let [_, ep] = ends;
        events.reserve(64);
        Target { ep, now, genuine, events, buf }
    }

    fn dropped(&self) -> u64 {
        let c = self.ep.counters();
        c.dropped_malformed
            + c.dropped_check
            + c.dropped_replay
            + c.dropped_unknown
            + c.dropped_state
            + c.dropped_rate_limit
    }

    fn arrive(&mut self, from: SocketAddr, datagram: &mut [u8]) {
        let meta = RxMeta { remote: from, local: None, receiver_delay_ns: 0, ecn: 0 };
        self.ep.handle(self.now, meta, datagram, &mut self.events);
        assert!(self.events.is_empty(), "told to the program: {:?}", self.events);
    }

    /// Sends all it has to send; returns how many datagrams.
    fn answers(&mut self) -> u64 {
        let mut n = 0;
        while self.ep.poll_transmit(self.now, &Zeros, &mut self.buf).is_some() {
            n += 1;
        }
        n
    }
}

// One test only: the allocator counts for the whole process.
// spec: P-2.3, P-3.4, P-10.1, P-10.4
#[test]
fn what_strangers_send_is_dropped_and_counted_and_costs_no_memory() {
    let mut t = Target::new();
    let genuine = std::mem::take(&mut t.genuine);
    let protected = |d: &&Vec<u8>| d[0] == 0x15;
    assert!(genuine.iter().filter(protected).count() > 100 && genuine.iter().any(|d| d[0] != 0x15));
    t.answers();
    let mut copy = Vec::with_capacity(65536);

    // Recorded packets again, cut ones, and each with a bit turned: all are dropped for one reason
    // or another. Only of packets to associations that are not there the sender is told, so often a
    // second.
    let (memory, made, dropped) = (held(), calls(), t.dropped());
    let mut sent = 0;
    for d in genuine.iter().filter(protected) {
        let cuts = (0..d.len()).step_by(11).map(|n| (n, None));
        let bits = (0..(d.len() * 8).min(400)).map(|bit| (d.len(), Some(bit)));
        for (len, bit) in cuts.chain(bits).chain([(d.len(), None)]) {
            copy.clear();
            copy.extend_from_slice(&d[..len]);
            if let Some(bit) = bit {
                copy[bit / 8] ^= 1 << (bit % 8);
            }
            t.arrive(address(0), &mut copy);
            sent += 1;
        }
    }
    assert_eq!(t.dropped() - dropped, sent, "each is counted once: {:?}", t.ep.counters());
    let c = t.ep.counters().clone();
    assert!(c.dropped_check > 1000 && c.dropped_replay > 100 && c.dropped_malformed > 100 && c.dropped_unknown > 100);
    let (calls_made, answers) = (calls() - made, t.answers());
    println!("{sent} damaged or repeated packets: {calls_made} allocations, {answers} answers");
    assert!(answers <= c.resets_sent && answers <= u64::from(Config::default().reset_rate_per_s), "{answers} answers");
    assert!(calls_made <= 4 * answers + 8, "{calls_made} allocations, {answers} answers");

    // Handshakes of the job, recorded, from everywhere; and what is none at all. After a second of
    // nothing, for some of the damaged ones were none of their kind.
    t.now += Duration::from_secs(1);
    t.ep.handle_timeout(t.now, &mut t.events);
    t.answers();
    let made = calls();
    let mut all_answers = 0;
    for i in 0..20_000u32 {
        let from = SocketAddr::from(([172, 16, (i >> 8) as u8, i as u8], 1000 + (i % 50_000) as u16));
        for d in genuine.iter().filter(|d| !protected(d)) {
            copy.clear();
            copy.extend_from_slice(d);
            t.arrive(from, &mut copy);
        }
        copy.clear();
        copy.resize((i % 300) as usize, (i >> 3) as u8);
        if let Some(first) = copy.first_mut() {
            *first = 0x10 + (i % 24) as u8;
        }
        t.arrive(from, &mut copy);
        all_answers += t.answers();
    }
    let calls_made = calls() - made;
    println!("20000 strangers: {calls_made} allocations, {all_answers} answers");
    // Of each kind of handshake what one moment's share allows.
    assert!((1..=u64::from(RATE / 10) * 3).contains(&all_answers), "{all_answers} answers at one moment");
    assert!(calls_made <= 4 * all_answers + 8, "{calls_made} allocations, {all_answers} answers");
    assert!(t.ep.counters().dropped_rate_limit > 1000);
    assert_eq!(t.ep.peers().count(), 1);
    assert_eq!(t.ep.counters().violations, 0);
    // A list that has grown once for answers may stay as long as it was.
    let more = held() - memory;
    println!("{more} bytes more than before");
    assert!(more <= 64 << 10, "{more} bytes are held for strangers");
}
