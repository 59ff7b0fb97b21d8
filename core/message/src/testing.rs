//! For tests of this crate: memory that is shared bytes, and two endpoints with a network between
//! them.

use crate::api::{Class, Completion, RecvOp, SendMode, SendOp};
use crate::config::Config;
use crate::memory::Memory;
use crate::messages::Messages;
use crate::notice::Sink;
use alloc::collections::VecDeque;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::net::SocketAddr;
use weir_link::{Endpoint, EndpointName, PacketBuf, RxMeta, Time};

/// Part of some bytes that others share.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bytes {
    all: Rc<RefCell<Vec<u8>>>,
    from: usize,
    len: usize,
}

impl Bytes {
    pub(crate) fn new(bytes: &[u8]) -> Bytes {
        Bytes { all: Rc::new(RefCell::new(bytes.to_vec())), from: 0, len: bytes.len() }
    }

    pub(crate) fn to_vec(&self) -> Vec<u8> {
        self.all.borrow()[self.from..self.from + self.len].to_vec()
    }

    /// `[offset, offset + len)` of it, as far as there is, in the whole.
    fn range(&self, offset: u64, len: usize) -> core::ops::Range<usize> {
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
        let bytes = src.part(0, len).to_vec();
        self.write(offset, &bytes);
    }

    /// It begins at a multiple of everything.
    fn update(&self, offset: u64, bytes: usize, mut change: impl FnMut(u64) -> Option<u64>) -> Option<u64> {
        let r = self.range(offset, bytes);
        let mut all = self.all.borrow_mut();
        let place = all.get_mut(r.clone()).filter(|p| p.len() == bytes && r.start.is_multiple_of(bytes))?;
        let mut word = [0; 8];
        word[..bytes].copy_from_slice(place);
        let old = u64::from_le_bytes(word);
        if let Some(new) = change(old) {
            place.copy_from_slice(&new.to_le_bytes()[..bytes]);
        }
        Some(old)
    }

    fn crc32c(&self, offset: u64, len: usize, crc: u32) -> u32 {
        weir_wire::crc32c_append(crc, &self.all.borrow()[self.range(offset, len)])
    }

    fn address(&self) -> usize {
        self.from
    }
}

/// Two endpoints and what is under way between them.
pub(crate) struct Pair<S = ()> {
    pub(crate) now: Time,
    pub(crate) sides: [Messages<Bytes, S>; 2],
    /// To each side, in order.
    pub(crate) flying: [VecDeque<Vec<u8>>; 2],
}

/// The only peer of each side.
pub(crate) const PEER: u32 = 0;

impl<S: Sink + Default> Pair<S> {
    /// Both with these settings, knowing each other.
    fn of(cfg: &Config, protos: [&weir_link::Config; 2]) -> Pair<S> {
        let side = |i: u8| {
            let proto = Endpoint::new(protos[usize::from(i)].clone(), [1; 32], u64::from(i) + 1, &[addr(i)], [i; 32]);
            Messages::new(cfg.clone(), proto, S::default())
        };
        let mut sides = [side(0), side(1)];
        let names = sides.each_ref().map(|s| EndpointName::decode(&s.own_name()).expect("a name"));
        assert_eq!(sides[0].insert_peer(&names[1]), Ok(PEER));
        assert_eq!(sides[1].insert_peer(&names[0]), Ok(PEER));
        Pair { now: Time(1_000_000), sides, flying: Default::default() }
    }

    /// Both with these settings, after a message of each.
    pub(crate) fn connected(cfg: &Config, proto: &weir_link::Config) -> Pair<S> {
        Pair::connected_of(cfg, [proto, proto])
    }

    /// The same, each with settings of its own for the protocol.
    pub(crate) fn connected_of(cfg: &Config, protos: [&weir_link::Config; 2]) -> Pair<S> {
        let mut pair = Pair::of(cfg, protos);
        for side in 0..2 {
            pair.sides[side].send(pair.now, send_op(0, Bytes::default(), SendMode::Inject)).expect("accepted");
            pair.sides[1 - side].recv(pair.now, recv_op(0, Bytes::default())).expect("posted");
            pair.settle();
        }
        assert_eq!((pair.ended(0).len(), pair.ended(1).len()), (2, 2));
        pair
    }

    /// What each side has to send is under way.
    pub(crate) fn transmit(&mut self) {
        for i in 0..2 {
            let mut out = PacketBuf::new();
            while let Some(t) = self.sides[i].poll_transmit(self.now, &mut out) {
                let mut bytes = out.head.clone();
                if let Some(p) = &t.payload {
                    let from = bytes.len();
                    bytes.resize(from + usize::from(p.len), 0);
                    self.sides[i].payload(p.token).expect("it lives").read(p.offset, &mut bytes[from..]);
                }
                self.flying[1 - i].push_back(bytes);
            }
        }
    }

    /// All that is under way to `to` arrives.
    pub(crate) fn deliver(&mut self, to: usize) {
        for mut bytes in core::mem::take(&mut self.flying[to]) {
            let meta = RxMeta { remote: addr(1 - to as u8), local: None, receiver_delay_ns: 0, ecn: 0 };
            self.sides[to].datagram(self.now, meta, &mut bytes);
        }
        self.transmit();
    }

    /// Some time passes.
    pub(crate) fn advance(&mut self, ns: u64) {
        self.now = self.now.plus_ns(ns);
        for s in &mut self.sides {
            if s.next_timeout().is_some_and(|t| t <= self.now) {
                s.timeouts(self.now);
            }
        }
        self.transmit();
    }

    /// The network works until nothing more happens.
    pub(crate) fn settle(&mut self) {
        self.transmit();
        for _ in 0..500 {
            self.deliver(0);
            self.deliver(1);
            self.advance(1_000_000);
        }
    }

    /// What has ended on a side.
    pub(crate) fn ended(&mut self, side: usize) -> Vec<Completion> {
        let now = self.now;
        core::iter::from_fn(|| self.sides[side].poll(now)).collect()
    }
}

fn addr(i: u8) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1 + i], 1))
}

/// A tagged message, its context its tag.
pub(crate) fn send_op(tag: u64, memory: Bytes, mode: SendMode) -> SendOp<Bytes> {
    SendOp {
        peer: PEER,
        class: Class::Tagged,
        tag,
        data: None,
        memory,
        mode,
        copy: false,
        report: true,
        context: tag as usize,
        user: 0,
    }
}

/// A receive for any tag.
pub(crate) fn recv_op(context: usize, memory: Bytes) -> RecvOp<Bytes> {
    RecvOp {
        source: None,
        class: Class::Tagged,
        tag: 0,
        ignore: u64::MAX,
        memory,
        multi_min: None,
        report: true,
        context,
        user: 0,
    }
}
