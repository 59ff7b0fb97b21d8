//! What a message costs below the engine, to be counted in instructions: two endpoints in one
//! process hand packets to each other, without a socket and with a time of their own.
//!
//! `exchange ping 8 1000` sends 8 bytes there and back, 1000 times; `exchange stream 30000 100`
//! sends 100 messages one way. Each part is a function of its own, so that callgrind can be told
//! which to count; what the start costs goes out by the difference between two counts.
//! `docs/lab/2026-11-26-instructions-2.md` has the commands.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::hint::black_box;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::rc::Rc;

use weir_link::{Endpoint, EndpointName, PacketBuf, RxMeta, Time};
use weir_message::{Class, Config, Memory, Messages, RecvOp, SendMode, SendOp, Source};

/// The time that a packet takes.
const TRIP_NS: u64 = 10_000;
/// The only peer of each side.
const PEER: u32 = 0;

/// Part of some bytes that others share.
#[derive(Clone, Debug, Default)]
struct Bytes {
    all: Rc<RefCell<Vec<u8>>>,
    from: usize,
    len: usize,
}

impl Bytes {
    fn new(len: usize) -> Bytes {
        Bytes { all: Rc::new(RefCell::new(vec![7; len])), from: 0, len }
    }

    fn range(&self, offset: u64, len: usize) -> std::ops::Range<usize> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(self.len);
        let end = start.saturating_add(len).min(self.len);
        self.from + start..self.from + end
    }
}

impl Memory for Bytes {
    fn len(&self) -> u64 {
        self.len as u64
    }

    fn read(&self, offset: u64, dst: &mut [u8]) {
        let r = self.range(offset, dst.len());
        dst[..r.len()].copy_from_slice(&self.all.borrow()[r]);
    }

    fn write(&self, offset: u64, src: &[u8]) -> usize {
        let r = self.range(offset, src.len());
        let n = r.len();
        self.all.borrow_mut()[r].copy_from_slice(&src[..n]);
        n
    }

    fn part(&self, offset: u64, len: u64) -> Self {
        let r = self.range(offset, usize::try_from(len).unwrap_or(usize::MAX));
        Bytes { all: self.all.clone(), from: r.start, len: r.len() }
    }

    fn copy_from(&self, offset: u64, src: &Self, len: u64) {
        let bytes = src.all.borrow()[src.range(0, usize::try_from(len).unwrap_or(usize::MAX))].to_vec();
        self.write(offset, &bytes);
    }

    fn update(&self, _: u64, _: usize, _: impl FnMut(u64) -> Option<u64>) -> Option<u64> {
        None // nothing atomic is exchanged here
    }

    fn crc32c(&self, offset: u64, len: usize, crc: u32) -> u32 {
        weir_wire::crc32c_append(crc, &self.all.borrow()[self.range(offset, len)])
    }

    fn address(&self) -> usize {
        self.from
    }
}

/// Packets under way to one side, and buffers of earlier ones.
#[derive(Default)]
struct Wire {
    flying: VecDeque<Vec<u8>>,
    spare: Vec<Vec<u8>>,
}

impl Wire {
    /// What a socket would be given: head and payload, gathered.
    fn push(&mut self, head: &[u8], payload: Option<(&Source<Bytes>, u64, usize)>) {
        let mut packet = self.spare.pop().unwrap_or_default();
        packet.clear();
        packet.extend_from_slice(head);
        match payload {
            Some((Source::User(memory), offset, len)) => {
                packet.extend_from_slice(&memory.all.borrow()[memory.range(offset, len)]);
            }
            Some((copied, offset, len)) => {
                packet.resize(head.len() + len, 0);
                copied.read(offset, &mut packet[head.len()..]);
            }
            None => {}
        }
        self.flying.push_back(packet);
    }
}

struct Side {
    messages: Messages<Bytes, ()>,
    out: PacketBuf,
    /// To this side.
    wire: Wire,
}

impl Side {
    fn new(i: u8) -> Side {
        let link = Endpoint::new(weir_link::Config::default(), [1; 32], u64::from(i) + 1, &[addr(i)], [i; 32]);
        let messages = Messages::new(Config::default(), link, ());
        Side { messages, out: PacketBuf::new(), wire: Wire::default() }
    }

    /// Posts a receive.
    #[inline(never)]
    fn post(&mut self, now: Time, memory: &Bytes) {
        let op = RecvOp {
            source: Some(PEER),
            class: Class::Tagged,
            tag: 1,
            ignore: 0,
            memory: memory.clone(),
            multi_min: None,
            report: true,
            context: 1,
            user: 0,
        };
        self.messages.recv(now, op).expect("posted");
    }

    /// Sends a message as the engine does: alone where it may, else as any other, and writes its
    /// packets.
    #[inline(never)]
    fn send(&mut self, now: Time, memory: &Bytes, to: &mut Wire) {
        let op = SendOp {
            peer: PEER,
            class: Class::Tagged,
            tag: 1,
            data: None,
            memory: memory.clone(),
            mode: SendMode::Transmit,
            copy: false,
            report: true,
            context: 1,
            user: 0,
        };
        if self.messages.send_alone(now, &op, &mut self.out).is_some() {
            return to.push(&self.out.head, None);
        }
        self.messages.send(now, op).expect("accepted");
        self.transmit(now, to);
    }

    /// All that has come, what is due, what is to be said, as in a pass of the engine. Messages
    /// that ended.
    #[inline(never)]
    fn take(&mut self, now: Time, from: u8, to: &mut Wire) -> usize {
        while let Some(mut packet) = self.wire.flying.pop_front() {
            let meta = RxMeta { remote: addr(from), local: None, receiver_delay_ns: 100, ecn: 0 };
            self.messages.datagram(now, meta, &mut packet);
            self.wire.spare.push(packet);
        }
        self.pass(now, to)
    }

    /// The same where nothing has come.
    #[inline(never)]
    fn wait(&mut self, now: Time, to: &mut Wire) -> usize {
        self.pass(now, to)
    }

    fn pass(&mut self, now: Time, to: &mut Wire) -> usize {
        if self.messages.next_timeout().is_some_and(|t| t <= now) {
            self.messages.timeouts(now);
        }
        self.transmit(now, to);
        let mut ended = 0;
        while let Some(completion) = self.messages.poll(now) {
            black_box(completion).result.expect("no failure");
            ended += 1;
        }
        ended
    }

    fn transmit(&mut self, now: Time, to: &mut Wire) {
        while let Some(t) = self.messages.poll_transmit(now, &mut self.out) {
            let memory = t.payload.and_then(|p| self.messages.payload(p.token).map(|memory| (memory, p)));
            match memory {
                Some((memory, p)) => to.push(&self.out.head, Some((memory, p.offset, usize::from(p.len)))),
                None => to.push(&self.out.head, None),
            }
            if !self.messages.may_transmit() {
                break;
            }
        }
    }
}

fn addr(i: u8) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1 + i], 1))
}

/// Both sides, and what time it is.
struct Pair {
    now: Time,
    sides: [Side; 2],
}

impl Pair {
    fn connected() -> Pair {
        let mut sides = [0, 1].map(Side::new);
        let names = sides.each_ref().map(|s| EndpointName::decode(&s.messages.own_name()).expect("a name"));
        for i in 0..2 {
            assert_eq!(sides[i].messages.insert_peer(&names[1 - i]), Ok(PEER));
        }
        let mut pair = Pair { now: Time(1_000_000_000), sides };
        let memory = Bytes::new(8);
        for i in 0..2 {
            pair.message(i, [&memory; 2]);
        }
        // Searches for the largest datagram end.
        (0..2000).for_each(|_| {
            pair.now = pair.now.plus_ns(10 * TRIP_NS);
            pair.quiet();
        });
        pair
    }

    /// A message from one side to the other; how many packets flew.
    fn message(&mut self, from: usize, [source, dest]: [&Bytes; 2]) -> usize {
        let to = 1 - from;
        let (mut sent, mut received, mut packets) = (0, 0, 0);
        self.sides[to].post(self.now, dest);
        let [a, b] = &mut self.sides;
        let (a, b) = if from == 0 { (a, b) } else { (b, a) };
        a.send(self.now, source, &mut b.wire);
        while sent + received < 2 {
            packets += b.wire.flying.len();
            self.now = self.now.plus_ns(TRIP_NS);
            received += if b.wire.flying.is_empty() {
                b.wait(self.now, &mut a.wire)
            } else {
                b.take(self.now, from as u8, &mut a.wire)
            };
            packets += a.wire.flying.len();
            sent += if a.wire.flying.is_empty() {
                a.wait(self.now, &mut b.wire)
            } else {
                a.take(self.now, to as u8, &mut b.wire)
            };
        }
        packets
    }

    /// What is left of earlier messages.
    fn quiet(&mut self) {
        let [a, b] = &mut self.sides;
        for _ in 0..2 {
            a.take(self.now, 1, &mut b.wire);
            b.take(self.now, 0, &mut a.wire);
        }
    }
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let numbers: Vec<usize> = words.iter().skip(1).filter_map(|w| w.parse().ok()).collect();
    let (is_ping, [size, count]) = match (words.first().map(String::as_str), numbers.as_slice()) {
        (Some("ping"), &[size, count]) => (true, [size, count]),
        (Some("stream"), &[size, count]) => (false, [size, count]),
        _ => {
            eprintln!("usage: exchange ping|stream BYTES COUNT");
            return ExitCode::from(2);
        }
    };
    let mut pair = Pair::connected();
    let memory = [Bytes::new(size), Bytes::new(size)];
    let mut packets = 0;
    for _ in 0..count {
        packets += pair.message(0, [&memory[0], &memory[1]]);
        if is_ping {
            packets += pair.message(1, [&memory[1], &memory[0]]);
        }
    }
    println!("{packets} packets");
    ExitCode::SUCCESS
}
