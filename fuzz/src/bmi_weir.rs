//! A server of `bmi_weir` and a member of its job that is no BMI: over real packets it sends
//! messages of any class, tag, immediate data and length, and receives what it likes.
//!
//! The books: what is handed out as an unexpected message was sent as one (V2), of a class that was
//! asked for, whole and in order; a receive gets what was sent under its tag and no other; every
//! operation ends once; what no face would send is thrown away and disturbs nobody; when the peer
//! is dropped nothing of it is left.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arbitrary::Arbitrary;
use weir_bmi::addresses::AddrKey;
use weir_bmi::bare::{self, Iov, Library, Posted, Use, Wanted};
use weir_bmi::codes::Code;
use weir_bmi::ops::OpKey;
use weir_engine::{
    Class, Completion, Diagnostic, Endpoint, EngineConfig, EngineError, PeerEvent, Queue, SendMode, SendOp, StreamBits,
};

use crate::input::{Few, Rest};

/// Nothing takes this long but what hangs.
const LIMIT: Duration = Duration::from_secs(30);
/// The class of the message that says "that was all", which nothing else is sent in.
const LAST: u8 = 200;
const UNEXPECTED_MAX: usize = 16 << 10;
const VARS: [(&str, &str); 3] = [("WEIR_BMI_OPEN", "1"), ("WEIR_CARRIER", "udp"), ("WEIR_LINGER_MS", "10")];

/// One run.
#[derive(Arbitrary, Debug)]
pub struct Input {
    steps: Rest<Step, 40>,
}

/// One event.
#[derive(Arbitrary, Clone, Debug)]
#[expect(missing_docs, reason = "plain")]
pub enum Step {
    /// As a face sends it.
    Unexpected {
        class: u8,
        tag: i32,
        size: u16,
        words: Few<u8, 1>,
    },
    Message {
        tag: u8,
        size: u16,
    },
    /// As none does.
    Any {
        untagged: bool,
        tag: u64,
        data: Option<u64>,
        size: u16,
    },
    Nearly {
        bit: u8,
        class: u8,
        data: Option<u64>,
        size: u16,
    },
    Receive {
        tag: u8,
        size: u16,
    },
    Cancel {
        op: u8,
    },
    Send {
        tag: u8,
        size: u16,
    },
    LookAt {
        class: u8,
    },
    Collect {
        class: u8,
    },
}

struct Pair {
    server: Library,
    context: i64,
    peer: Arc<Endpoint>,
    to: SocketAddr,
}

fn bytes(tag: u64, nth: usize, size: usize) -> Vec<u8> {
    (0..size).map(|i| (i as u8).wrapping_mul(17) ^ (tag as u8) ^ (nth as u8).wrapping_mul(101)).collect()
}

/// A member of the job.
fn member() -> Arc<Endpoint> {
    let settings = bare::settings(&VARS).expect("valid");
    let config = EngineConfig { stream_bits: StreamBits(u64::MAX), ..settings.engine.clone() };
    let sink = |_: &Diagnostic<'_>| {};
    Endpoint::open_told(config, settings.key().expect("everybody's"), Arc::new(sink)).expect("open")
}

impl Pair {
    fn new() -> Pair {
        let (mut server, port) = bare::server("weir", &VARS).expect("it listens");
        let context = server.t.ops.open_context().expect("room") as i64;
        Pair { server, context, peer: member(), to: SocketAddr::from((Ipv4Addr::LOCALHOST, port)) }
    }

    /// Asks for the server, and knows it.
    fn meet(&mut self) -> u32 {
        let ticket = self.peer.ask(&[self.to]).expect("room");
        let begun = Instant::now();
        let mut events = Vec::new();
        loop {
            self.progress(&mut Vec::new());
            self.peer.peer_events(&mut events);
            for event in events.drain(..) {
                if let PeerEvent::Answer { ticket: t, found } = event
                    && t == ticket
                {
                    return self.peer.insert_peer(&found.expect("it lives")).expect("a name");
                }
            }
            assert!(begun.elapsed() < LIMIT, "nobody answers");
        }
    }

    fn progress(&mut self, out: &mut Vec<Completion>) {
        self.server.progress();
        self.peer.poll(Queue::Both, out, 64);
    }
}

thread_local! {
    /// The server lives through all runs; each has a member of its own.
    static PAIR: RefCell<Option<Pair>> = const { RefCell::new(None) };
}

struct Op {
    memory: Vec<u8>,
    tag: u64,
    is_recv: bool,
}

struct World<'a> {
    pair: &'a mut Pair,
    peer: u32,
    /// Who the server says that is, once it has said so.
    addr: Option<AddrKey>,
    /// What was sent as an unexpected message of each class, and as others of each tag.
    unexpected: HashMap<u8, VecDeque<(i32, Vec<u8>)>>,
    sent: HashMap<u64, VecDeque<Vec<u8>>>,
    lost: usize,
    ops: HashMap<OpKey, Op>,
    order: Vec<OpKey>,
    nth: usize,
    last: bool,
    received: u64,
}

impl World<'_> {
    #[expect(unsafe_code, reason = "the interface is the engine's")]
    fn send(&mut self, class: Class, tag: u64, data: Option<u64>, size: usize) -> Result<(), EngineError> {
        self.nth += 1;
        let memory = bytes(tag, self.nth, size);
        let pieces = [Iov { base: memory.as_ptr().cast_mut(), len: size }];
        let op = SendOp {
            peer: self.peer,
            class,
            tag,
            data,
            memory: &pieces[..usize::from(size > 0)],
            mode: SendMode::Transmit,
            // Its memory is free at once.
            copy: true,
            report: false,
            context: 0,
            user: 0,
        };
        // SAFETY: the memory is copied during the call.
        unsafe { self.pair.peer.send(&op) }?;
        let of_class = (tag >> 32) as u8;
        if class == Class::Tagged
            && tag >> 40 == 1
            && tag as u32 == 0
            && let Some(data) = data
        {
            if size <= UNEXPECTED_MAX {
                self.unexpected.entry(of_class).or_default().push_back(((data as u32).cast_signed(), memory));
            }
        } else if class == Class::Tagged && tag >> 32 == 0 {
            self.sent.entry(tag).or_default().push_back(memory);
        }
        Ok(())
    }

    /// The same, if there is room for it.
    fn try_send(&mut self, class: Class, tag: u64, data: Option<u64>, size: usize) {
        let _ = self.send(class, tag, data, size);
    }

    fn post(&mut self, addr: AddrKey, tag: u8, size: usize, is_recv: bool) {
        if self.ops.len() > 40 {
            return;
        }
        let mut memory = vec![0; size];
        let pieces = [Iov { base: memory.as_mut_ptr(), len: size }];
        let wanted = Wanted {
            addr,
            tag: i32::from(tag),
            unexpected: None,
            pieces: &pieces[..usize::from(size > 0)],
            size: size as u64,
            is_recv,
            user_ptr: 0,
            context: self.pair.context,
        };
        let op = Op { memory, tag: tag.into(), is_recv };
        match self.pair.server.post(&wanted) {
            Ok((Posted::Done(n), _)) => self.ended(&op, 0, n),
            Ok((Posted::Begun, key)) => {
                assert!(self.ops.insert(key, op).is_none(), "an id twice");
                self.order.push(key);
            }
            Err(_) => {}
        }
    }

    fn ended(&mut self, op: &Op, error: i32, n: u64) {
        if !op.is_recv {
            return;
        }
        if error != 0 {
            self.lost += usize::from(error == -Code::EMSGSIZE.0 || error == -Code::ECANCEL.0);
            return;
        }
        self.received += 1;
        let queue = self.sent.entry(op.tag).or_default();
        while let Some(next) = queue.pop_front() {
            if next == op.memory[..n as usize] {
                return;
            }
            assert!(self.lost > 0, "a message was passed over");
            self.lost -= 1;
        }
        panic!("a message that nobody sent");
    }

    fn collect(&mut self) {
        let context = self.pair.context as usize;
        while let Some(end) = self.pair.server.t.ops.collect_any(context) {
            let op = self.ops.remove(&end.key).expect("it was under way, and ends once");
            self.ended(&op, end.error, end.size);
        }
    }

    #[expect(unsafe_code, reason = "the interface is C's")]
    fn collect_unexpected(&mut self, class: u8) {
        let mut next = None;
        while self.pair.server.take_unexpected(class, 1, |_, message| next = Some(*message)) > 0
            && let Some(message) = next.take()
        {
            // SAFETY: the library lent so many bytes there, until they are given back.
            let got = unsafe { std::slice::from_raw_parts(message.buffer, message.size) }.to_vec();
            assert!(self.pair.server.give_back(message.buffer, Use::Message));
            self.addr = Some(message.addr);
            let sent = self.unexpected.get_mut(&class).and_then(VecDeque::pop_front);
            assert_eq!(sent, Some((message.tag, got)), "of class {class}");
            self.last |= class == LAST;
            self.received += 1;
        }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Unexpected { class, tag, size, .. } => {
                let class = class % 4;
                self.try_send(
                    Class::Tagged,
                    1 << 40 | u64::from(class) << 32,
                    Some(tag.cast_unsigned().into()),
                    usize::from(size) % 17_000,
                );
            }
            Step::Message { tag, size } => self.try_send(Class::Tagged, u64::from(tag % 4), None, usize::from(size)),
            Step::Any { untagged, tag, data, size } => {
                // (Of the class of the last message nothing else comes.)
                let class = if untagged { Class::Untagged } else { Class::Tagged };
                if tag >> 32 & 0xff != u64::from(LAST) {
                    self.try_send(class, tag, data, usize::from(size) % 20_000);
                }
            }
            Step::Nearly { bit, class, data, size } => {
                let tag = (1 << 40 | u64::from(class % 4) << 32) ^ 1 << (bit % 64);
                if tag >> 32 & 0xff != u64::from(LAST) {
                    self.try_send(Class::Tagged, tag, data, usize::from(size) % 20_000);
                }
            }
            Step::Receive { tag, size } => {
                if let Some(addr) = self.addr {
                    self.post(addr, tag % 4, usize::from(size), true);
                }
            }
            Step::Send { tag, size } => {
                if let Some(addr) = self.addr {
                    self.post(addr, tag % 4, usize::from(size), false);
                }
            }
            Step::Cancel { op } => {
                if let Some(&key) = self.order.get(usize::from(op) % self.order.len().max(1)) {
                    let _ = self.pair.server.cancel(key, self.pair.context, Code::ECANCEL);
                }
            }
            Step::LookAt { class } => self.pair.server.t.inbox.look_at(class % 4),
            Step::Collect { class } => self.collect_unexpected(class % 4),
        }
    }

    fn pump(&mut self) {
        self.pair.progress(&mut Vec::new());
        self.collect();
    }

    /// Until something is so.
    fn until(&mut self, mut is_so: impl FnMut(&mut Self) -> bool) {
        let begun = Instant::now();
        while !is_so(self) {
            self.pump();
            assert!(
                begun.elapsed() < LIMIT,
                "{} operations are left; the last message came: {}",
                self.ops.len(),
                self.last
            );
        }
    }
}

/// Runs an input. How many messages were received.
pub fn run(input: &Input) -> u64 {
    PAIR.with_borrow_mut(|kept| {
        let mut pair = kept.take().unwrap_or_else(Pair::new);
        let peer = pair.meet();
        let mut world = World {
            pair: &mut pair,
            peer,
            addr: None,
            unexpected: HashMap::new(),
            sent: HashMap::new(),
            lost: 0,
            ops: HashMap::new(),
            order: Vec::new(),
            nth: 0,
            last: false,
            received: 0,
        };
        // Who is there is known first.
        let mut sent = false;
        world.until(|w| {
            if !sent {
                match w.send(Class::Tagged, 1 << 40 | u64::from(LAST) << 32, Some(0), 1) {
                    Ok(()) => sent = true,
                    Err(EngineError::Again) => {}
                    Err(error) => panic!("the first message is refused: {error}"),
                }
            }
            w.collect_unexpected(LAST);
            std::mem::take(&mut w.last)
        });
        for step in &input.steps.0 {
            world.step(step);
            world.pump();
        }
        // Nobody harms the next who asks, whatever he sent: but credit may be used up by what
        // nobody takes, which only he suffers from.
        (0..4).for_each(|class| world.collect_unexpected(class));
        let addr = world.addr.expect("it was told");
        let _ = bare::drop_addr(&mut world.pair.server, addr);
        world.until(|w| w.ops.is_empty());
        assert!(world.pair.server.t.inbox.is_empty() || world.pair.server.t.addrs.get(addr).is_none());
        assert!(world.pair.server.t.addrs.get(addr).is_none(), "a dropped address is there");
        let received = world.received;
        pair.peer.close();
        pair.peer = member();
        assert!(pair.server.t.inbox.is_empty(), "messages of a peer that is gone are left");
        *kept = Some(pair);
        received
    })
}
