//! Rendezvous transfers longer than 4 GiB, in packets and by a bulk connection: every offset beyond
//! 32 bits is right. The payload is nowhere; what byte lies where follows from its place.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use weir_link::*;

const LEN: u64 = (4 << 30) + (9 << 20) + 7;
const TOKEN: u64 = 77;
/// Of the messages before it.
const MESSAGE: u64 = 1;
/// A word that tells its place lies at every multiple of this; all else is zero.
const EVERY: u64 = 1024;

struct Sparse;

impl Payloads for Sparse {
    fn read(&self, token: u64, offset: u64, dst: &mut [u8]) {
        assert!(token == TOKEN || token == MESSAGE, "payload of {token}");
        dst.fill(0);
        let end = offset + dst.len() as u64;
        let mut mark = offset - offset % EVERY;
        while mark < end {
            for (place, byte) in (mark..).zip((mark ^ 0x5ac3_5ac3_5ac3_5ac3).to_le_bytes()) {
                if (offset..end).contains(&place) {
                    dst[(place - offset) as usize] = byte;
                }
            }
            mark += EVERY;
        }
    }
}

/// Which bytes have come: ranges that do not touch, by their beginning.
#[derive(Default)]
struct Came(BTreeMap<u64, u64>);

impl Came {
    fn add(&mut self, from: u64, len: u64) {
        let (mut from, mut to) = (from, from + len);
        assert!(to <= LEN, "{to} is behind the end");
        if let Some((&start, &end)) = self.0.range(..=from).next_back() {
            assert!(end <= from, "byte {from} came twice");
            if end == from {
                self.0.remove(&start);
                from = start;
            }
        }
        if let Some((&start, &end)) = self.0.range(from..).next() {
            assert!(start >= to, "byte {start} came twice");
            if start == to {
                self.0.remove(&start);
                to = end;
            }
        }
        self.0.insert(from, to);
    }

    fn is_whole(&self) -> bool {
        self.0.get(&0) == Some(&LEN)
    }

    /// Bytes from the beginning without a hole.
    fn without_hole(&self) -> u64 {
        self.0.get(&0).copied().unwrap_or(0)
    }
}

/// Two endpoints and what is between them: nothing, but that every so many packets one is lost.
struct Two {
    ends: [Endpoint; 2],
    peers: [PeerId; 2],
    now: Time,
    packets: u64,
    lose_every: u64,
    came: Came,
    handle: Option<u64>,
    complete: bool,
    sent: bool,
    messages: usize,
    wire: Vec<u8>,
    buf: PacketBuf,
}

fn address(end: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, end as u8 + 1], 7000))
}

impl Two {
    fn new(cfg: &Config, lose_every: u64) -> Two {
        let mut ends =
            [1u8, 2].map(|i| Endpoint::new(cfg.clone(), [9; 32], i.into(), &[address(usize::from(i) - 1)], [i; 32]));
        let names = [ends[0].name(), ends[1].name()];
        let peers = [ends[0].peer(&names[1]).expect("name"), ends[1].peer(&names[0]).expect("name")];
        let mut two = Two {
            ends,
            peers,
            now: Time(1_000_000),
            packets: 0,
            lose_every: u64::MAX,
            came: Came::default(),
            handle: None,
            complete: false,
            sent: false,
            messages: 0,
            wire: Vec::new(),
            buf: PacketBuf::new(),
        };
        for end in 0..2 {
            two.message(end, 0);
        }
        while two.messages < 2 {
            two.step();
        }
        // What packets the path takes is found out.
        for _ in 0..200 {
            two.now += Duration::from_millis(10);
            two.step();
        }
        two.lose_every = lose_every;
        two
    }

    fn message(&mut self, end: usize, len: u32) {
        let message = Message { control: false, stream: 0, envelope: &[1; 8], len, patient: false, token: MESSAGE };
        self.ends[end].send(self.now, self.peers[end], message).expect("send");
    }

    /// The receiver opens the rendezvous transfer, the sender begins it.
    fn begin(&mut self) {
        let opened = self.ends[1].open_rndv(self.now, self.peers[1], LEN).expect("opened");
        self.handle = Some(opened.handle);
        self.ends[0].send_rndv(self.now, self.peers[0], opened.handle, opened.granted, LEN, TOKEN).expect("begun");
    }

    fn event(&mut self, end: usize, event: &Event, data: &[u8]) {
        match event {
            Event::Message { complete: true, total_len, .. } => {
                self.messages += 1;
                self.ends[end].consume(self.peers[end], 1, u64::from(*total_len));
            }
            Event::Rndv { handle, offset, payload, complete, .. } => {
                assert_eq!((end, Some(*handle)), (1, self.handle));
                let bytes = &data[payload.clone()];
                let mut want = vec![0; bytes.len()];
                Sparse.read(TOKEN, *offset, &mut want);
                assert!(bytes == want, "payload at {offset}");
                self.came.add(*offset, bytes.len() as u64);
                self.is_complete(*complete);
            }
            Event::Sent { token: TOKEN, .. } => {
                assert!(self.complete && !self.sent, "told too early, or twice");
                self.sent = true;
            }
            Event::Message { .. } | Event::Sent { .. } | Event::Up { .. } => {}
            other => panic!("{other:?}"),
        }
    }

    fn is_complete(&mut self, complete: bool) {
        assert!(!self.complete, "complete before");
        assert_eq!(complete, self.came.is_whole(), "complete at {}", self.came.without_hole());
        self.complete = complete;
    }

    fn events(&mut self, end: usize, events: &[Event], data: &[u8]) {
        events.iter().for_each(|event| self.event(end, event, data));
    }

    /// Everything there is to send arrives, and timers run.
    fn step(&mut self) {
        for end in 0..2 {
            let mut events = Vec::new();
            for _ in 0..64 {
                let mut buf = std::mem::take(&mut self.buf);
                let mut wire = std::mem::take(&mut self.wire);
                let transmit = self.ends[end].poll_transmit(self.now, &Sparse, &mut buf);
                if let Some(t) = transmit {
                    self.packets += 1;
                    wire.clear();
                    wire.extend_from_slice(&buf.head);
                    if let Some(p) = t.payload {
                        let at = wire.len();
                        wire.resize(at + usize::from(p.len), 0);
                        Sparse.read(p.token, p.offset, &mut wire[at..]);
                    }
                    if !self.packets.is_multiple_of(self.lose_every) {
                        let meta = RxMeta { remote: address(end), local: None, receiver_delay_ns: 0, ecn: 0 };
                        self.ends[1 - end].handle(self.now, meta, &mut wire, &mut events);
                        self.events(1 - end, &events, &wire);
                        events.clear();
                    }
                }
                (self.buf, self.wire) = (buf, wire);
                if transmit.is_none() {
                    break;
                }
            }
            if self.ends[end].next_timeout().is_some_and(|t| t <= self.now) {
                self.ends[end].handle_timeout(self.now, &mut events);
                self.events(end, &events, &[]);
            }
        }
        self.now = self.now.plus_ns(10_000);
    }

    /// Without a bulk connection, to the end of the rendezvous transfer.
    fn finish(&mut self) {
        let mut steps = 0;
        while !self.sent {
            self.step();
            steps += 1;
            assert!(steps < 2_000_000, "stuck at {}: {:?}", self.came.without_hole(), self.ends[0].counters());
        }
        assert!(self.complete && self.came.is_whole());
        assert!(self.ends.iter().all(|e| e.counters().violations == 0 && e.counters().session.duplicate_bytes == 0));
    }

    /// The two ends of a connection, once one is wanted.
    fn connect(&mut self) -> u32 {
        for _ in 0..100_000 {
            for end in 0..2 {
                let Some(news) = self.ends[end].take_bulk_news() else { continue };
                let (bulk, greeting) = self.ends[end].bulk_greeting(news.peer).expect("greeting");
                let (_, number, answer) = self.ends[1 - end].bulk_greeted(self.now, &greeting).expect("answer");
                assert!(number == bulk && self.ends[end].bulk_answered(self.now, news.peer, bulk, &answer));
                return bulk;
            }
            self.step();
        }
        panic!("no bulk connection is wanted: {:?}", self.ends[0].counters());
    }

    /// One record, if there is one: told to the receiver without its payload.
    fn record(&mut self, bulk: u32) -> bool {
        let mut head = Vec::new();
        let Some(u) = self.ends[0].bulk_next(self.now, self.peers[0], bulk, &mut head) else { return false };
        assert_eq!(RecordHead::len_with_envelope(&head), Some(head.len()));
        let mut events = Vec::new();
        assert!(self.ends[1].record_tells(self.now, self.peers[1], bulk, &head, &mut events), "refused");
        let record = self.ends[1].record_begins(self.now, self.peers[1], &head, &mut events).expect("a record of ours");
        assert_eq!(
            (record.key, record.offset, record.len),
            (DataKey::Rndv(self.handle.expect("open")), u.offset, u.len)
        );
        assert_eq!(u.token, TOKEN);
        self.came.add(u.offset, u.len.into());
        self.ends[1].record_ends(self.now, self.peers[1], bulk, &record, &mut events);
        for event in &events {
            match event {
                // That of the record's end names no bytes.
                Event::Rndv { complete, .. } => self.is_complete(*complete),
                other => panic!("{other:?}"),
            }
        }
        true
    }
}

#[test]
fn a_rendezvous_of_more_than_4_gib_is_whole_in_packets_some_of_which_are_lost() {
    let cfg = Config { max_datagram: 65_000, ..Config::default() };
    let mut two = Two::new(&cfg, 1999);
    two.begin();
    two.finish();
    let c = two.ends[0].counters();
    assert!(c.packets_lost > 20 && c.bytes_sent > LEN, "{c:?}");
    assert!(c.packets_sent < 500_000, "small packets: {}", c.packets_sent);
}

#[test]
fn a_rendezvous_of_more_than_4_gib_is_whole_by_a_bulk_connection_that_breaks_behind_4_gib() {
    let bulk = BulkConfig { on: true, min_rate: 0, pause: Duration::from_secs(3600), ..BulkConfig::default() };
    let cfg = Config { bulk, ..Config::default() };
    let mut two = Two::new(&cfg, u64::MAX);
    // What comes first only has the bulk connection made.
    two.message(0, 100_000);
    let bulk = two.connect();
    two.begin();
    let mut idle = 0;
    // Something is left for packets.
    while two.came.0.values().next_back().is_none_or(|end| *end < (4 << 30) + (3 << 20)) {
        idle = if two.record(bulk) { 0 } else { idle + 1 };
        two.step();
        assert!(idle < 100_000, "stuck at {}: {:?}", two.came.without_hole(), two.ends[0].counters());
    }
    let by_bulk = two.ends[1].counters().bulk.bytes_received;
    assert!(by_bulk > 4 << 30, "{by_bulk} bytes by the bulk connection");
    for end in 0..2 {
        two.ends[end].bulk_over(two.now, two.peers[end], bulk);
    }
    two.finish();
    assert_eq!(two.ends[1].counters().bulk.bytes_received, by_bulk);
}
