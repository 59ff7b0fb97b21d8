//! A network of endpoints in memory: virtual time, faults on every datagram, and a checker that
//! knows every byte.

#![allow(dead_code, reason = "each test uses a part")]

mod bulk_connections;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use weir_link::*;
use weir_session::galois::times;

/// Byte `i` of the payload of operation `token`.
pub fn byte_of(token: u64, i: u64) -> u8 {
    let x = (token ^ (i / 8).wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (x >> (8 * (i % 7))) as u8
}

pub struct Pattern;

impl Payloads for Pattern {
    fn read(&self, token: u64, offset: u64, dst: &mut [u8]) {
        for (i, d) in dst.iter_mut().enumerate() {
            *d = byte_of(token, offset + i as u64);
        }
    }
}

/// Faults of one link direction, in parts per million.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    pub loss: u32,
    pub dup: u32,
    pub corrupt: u32,
    pub truncate: u32,
    /// Extra delay, up to this, for every datagram: reorders.
    pub jitter_ns: u64,
    pub delay_ns: u64,
    /// Bytes per second; 0: unlimited.
    pub rate: u64,
    /// Bytes that may queue at the rate.
    pub queue: u64,
    /// Datagrams longer than this vanish.
    pub mtu: usize,
}

impl Default for Faults {
    fn default() -> Self {
        Faults {
            loss: 0,
            dup: 0,
            corrupt: 0,
            truncate: 0,
            jitter_ns: 0,
            delay_ns: 10_000,
            rate: 0,
            queue: 1 << 20,
            mtu: 65535,
        }
    }
}

pub fn addr(host: usize, net: u8) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, net, (host >> 8) as u8, host as u8), 7000))
}

#[derive(Default)]
pub struct Received {
    pub bytes: u64,
    pub total: u64,
    pub have: Vec<bool>,
    pub complete: bool,
    pub token: u64,
}

/// A fragment of a matched message, as the layer above is told of it.
#[derive(Clone, Copy, Debug)]
pub struct Fragment {
    pub at: Time,
    pub stream: u16,
    pub mseq: u64,
    pub sseq: u32,
    /// What the sender wrote into the envelope (`Net::send`).
    pub extra: u64,
    pub total_len: u64,
    pub first: bool,
    pub complete: bool,
}

pub struct Node {
    pub ep: Endpoint,
    pub host: usize,
    /// Messages received, by (peer, token in the envelope).
    pub messages: BTreeMap<(u32, u64), Received>,
    /// Fragments of matched messages, in the order of their arrival.
    pub fragments: Vec<Fragment>,
    pub mseqs: BTreeSet<(u32, bool, u64)>,
    pub rndvs: BTreeMap<(u32, u64), Received>,
    pub open_tokens: BTreeSet<u64>,
    pub sent: Vec<u64>,
    pub failed: Vec<(u64, DownReason)>,
    pub downs: Vec<(PeerId, DownReason)>,
    pub ups: Vec<PeerId>,
    pub restored: u64,
    /// Of these, from more rows than that of the XOR alone.
    pub restored_of_several: u64,
    /// Rendezvous transfers to send when the peer has opened a handle: token -> length.
    pub offers: BTreeMap<u64, u64>,
    /// Do not consume: withhold credit.
    pub hold: bool,
    pub stopped: bool,
    next_token: u64,
}

struct Flying {
    bytes: Vec<u8>,
    from: SocketAddr,
    to: SocketAddr,
}

/// Whether the datagram (from, to, bytes) gets lost.
pub type Lose = Box<dyn FnMut(SocketAddr, SocketAddr, &[u8]) -> bool>;

pub struct Net {
    pub now: Time,
    pub nodes: Vec<Node>,
    pub faults: Faults,
    /// Networks with a delay of their own besides that of `faults`, nanoseconds.
    pub slower: BTreeMap<u8, u64>,
    /// Networks that are cut.
    pub cut: BTreeSet<u8>,
    /// Datagrams that get lost, besides what `faults` does.
    pub lose: Lose,
    pub rng: ChaCha8Rng,
    flying: BTreeMap<u64, Flying>,
    order: BinaryHeap<Reverse<(u64, u64)>>,
    serial: u64,
    /// When each (from, to) wire is free.
    busy: BTreeMap<SocketAddr, u64>,
    pub captured: Vec<(SocketAddr, SocketAddr, Vec<u8>)>,
    pub capture: bool,
    pub delivered: u64,
    pub sizes: Vec<(usize, PeerId)>,
    /// Of these that carried payload, how much.
    pub payloads: Vec<u16>,
    pub keep_sizes: bool,
    pub bulk_connections: bulk_connections::BulkConnections,
}

impl Net {
    pub fn new(hosts: usize, nets: u8, cfg: &Config, seed: u64) -> Net {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let nodes = (0..hosts)
            .map(|h| {
                let addrs: Vec<_> = (0..nets).map(|n| addr(h, n)).collect();
                let mut s = [0; 32];
                rng.fill_bytes(&mut s);
                Node {
                    ep: Endpoint::new(cfg.clone(), [7; 32], rng.next_u64(), &addrs, s),
                    host: h,
                    messages: BTreeMap::new(),
                    fragments: Vec::new(),
                    mseqs: BTreeSet::new(),
                    rndvs: BTreeMap::new(),
                    open_tokens: BTreeSet::new(),
                    sent: Vec::new(),
                    failed: Vec::new(),
                    downs: Vec::new(),
                    ups: Vec::new(),
                    restored: 0,
                    restored_of_several: 0,
                    offers: BTreeMap::new(),
                    hold: false,
                    stopped: false,
                    next_token: (h as u64 + 1) << 32,
                }
            })
            .collect();
        Net {
            now: Time(1_000_000),
            nodes,
            faults: Faults::default(),
            slower: BTreeMap::new(),
            cut: BTreeSet::new(),
            lose: Box::new(|_, _, _| false),
            rng,
            flying: BTreeMap::new(),
            order: BinaryHeap::new(),
            serial: 0,
            busy: BTreeMap::new(),
            captured: Vec::new(),
            capture: false,
            delivered: 0,
            sizes: Vec::new(),
            payloads: Vec::new(),
            keep_sizes: false,
            bulk_connections: bulk_connections::BulkConnections::default(),
        }
    }

    pub fn peer(&mut self, from: usize, to: usize) -> PeerId {
        let name = self.nodes[to].ep.name();
        self.nodes[from].ep.peer(&name).expect("peer")
    }

    /// Sends a message whose envelope carries kind, token and one more number.
    #[expect(clippy::too_many_arguments, reason = "one line for each send in the tests")]
    pub fn send(
        &mut self,
        from: usize,
        to: usize,
        control: bool,
        stream: u16,
        kind: u8,
        extra: u64,
        len: u32,
    ) -> Result<u64, SendError> {
        let peer = self.peer(from, to);
        let n = &mut self.nodes[from];
        let token = n.next_token;
        let mut env = [0u8; 17];
        env[0] = kind;
        env[1..9].copy_from_slice(&token.to_le_bytes());
        env[9..].copy_from_slice(&extra.to_le_bytes());
        n.ep.send(self.now, peer, Message { control, stream, envelope: &env, len, patient: false, token })?;
        n.next_token += 1;
        n.open_tokens.insert(token);
        Ok(token)
    }

    /// Offers a rendezvous transfer; the peer opens a handle and it flows.
    pub fn offer(&mut self, from: usize, to: usize, len: u64) -> u64 {
        let token = self.nodes[from].next_token;
        self.nodes[from].next_token += 1;
        self.nodes[from].open_tokens.insert(token);
        self.nodes[from].offers.insert(token, len);
        let peer = self.peer(from, to);
        let mut env = [0u8; 25];
        env[0] = 1;
        env[1..9].copy_from_slice(&token.to_le_bytes());
        env[9..17].copy_from_slice(&len.to_le_bytes());
        let n = &mut self.nodes[from];
        let t2 = n.next_token;
        n.next_token += 1;
        n.open_tokens.insert(t2);
        n.ep.send(
            self.now,
            peer,
            Message { control: false, stream: 1, envelope: &env, len: 0, patient: false, token: t2 },
        )
        .expect("offer");
        token
    }

    fn chance(&mut self, ppm: u32) -> bool {
        ppm > 0 && self.rng.next_u32() % 1_000_000 < ppm
    }

    fn fly(&mut self, from: SocketAddr, to: SocketAddr, mut bytes: Vec<u8>) {
        let f = self.faults;
        let net = match to.ip() {
            std::net::IpAddr::V4(v) => v.octets()[1],
            std::net::IpAddr::V6(_) => 0,
        };
        if self.capture {
            self.captured.push((from, to, bytes.clone()));
        }
        if self.cut.contains(&net) || bytes.len() > f.mtu || (self.lose)(from, to, &bytes) || self.chance(f.loss) {
            return;
        }
        if f.corrupt > 0 && self.chance(f.corrupt) {
            let i = self.rng.next_u32() as usize % bytes.len();
            bytes[i] ^= 1 << (self.rng.next_u32() % 8);
        }
        if f.truncate > 0 && self.chance(f.truncate) {
            let n = self.rng.next_u32() as usize % bytes.len();
            bytes.truncate(n);
        }
        let mut at = self.now.0;
        if f.rate > 0 {
            let free = self.busy.entry(to).or_insert(0);
            let start = at.max(*free);
            if (start - at) as u128 * f.rate as u128 / 1_000_000_000 > f.queue as u128 {
                return;
            }
            at = start + (bytes.len() as u64 + 42) * 1_000_000_000 / f.rate;
            *free = at;
        }
        at += self.slower.get(&net).unwrap_or(&0);
        let copies = 1 + u32::from(self.chance(f.dup));
        for _ in 0..copies {
            let jitter = if f.jitter_ns > 0 { self.rng.next_u64() % f.jitter_ns } else { 0 };
            self.serial += 1;
            self.order.push(Reverse((at + f.delay_ns + jitter, self.serial)));
            self.flying.insert(self.serial, Flying { bytes: bytes.clone(), from, to });
        }
    }

    /// Lets every node transmit until none has anything left.
    pub fn drain(&mut self) {
        let mut buf = PacketBuf::new();
        for i in 0..self.nodes.len() {
            if self.nodes[i].stopped {
                continue;
            }
            let mut n = 0;
            while let Some(t) = self.nodes[i].ep.poll_transmit(self.now, &Pattern, &mut buf) {
                let mut bytes = buf.head.clone();
                if let Some(p) = t.payload {
                    let at = bytes.len();
                    bytes.resize(at + usize::from(p.len), 0);
                    Pattern.read(p.token, p.offset, &mut bytes[at..]);
                }
                assert!(bytes.len() <= 65535);
                if self.keep_sizes {
                    self.sizes.push((bytes.len(), t.peer));
                    self.payloads.extend(t.payload.map(|p| p.len));
                }
                let net = match t.remote.ip() {
                    std::net::IpAddr::V4(v) => v.octets()[1],
                    std::net::IpAddr::V6(_) => 0,
                };
                let from = addr(self.nodes[i].host, net);
                self.fly(from, t.remote, bytes);
                n += 1;
                assert!(n < 100_000, "transmits for ever");
            }
        }
    }

    /// Next thing that happens; false if nothing will before `until`.
    pub fn step(&mut self, until: Time) -> bool {
        self.drain();
        let fly = self.order.peek().map_or(u64::MAX, |r| r.0.0);
        let timer = self
            .nodes
            .iter()
            .filter(|n| !n.stopped)
            .filter_map(|n| n.ep.next_timeout())
            .map(|t| t.0)
            .min()
            .unwrap_or(u64::MAX);
        let at = fly.min(timer.max(self.now.0));
        if at > until.0 {
            self.now = until.max(self.now);
            return false;
        }
        self.now = Time(at.max(self.now.0));
        while let Some(&Reverse((t, id))) = self.order.peek() {
            if t > self.now.0 {
                break;
            }
            self.order.pop();
            let f = self.flying.remove(&id).expect("flying");
            self.arrive(f.from, f.to, f.bytes);
        }
        for i in 0..self.nodes.len() {
            if !self.nodes[i].stopped && self.nodes[i].ep.next_timeout().is_some_and(|t| t <= self.now) {
                let mut ev = Vec::new();
                self.nodes[i].ep.handle_timeout(self.now, &mut ev);
                self.events(i, &ev, &[]);
            }
        }
        true
    }

    pub fn arrive(&mut self, from: SocketAddr, to: SocketAddr, mut bytes: Vec<u8>) {
        let host = match to.ip() {
            std::net::IpAddr::V4(v) => usize::from(v.octets()[2]) << 8 | usize::from(v.octets()[3]),
            std::net::IpAddr::V6(_) => return,
        };
        if host >= self.nodes.len() || self.nodes[host].stopped {
            return;
        }
        self.delivered += 1;
        let mut ev = Vec::new();
        let meta = RxMeta { remote: from, local: Some(to.ip()), receiver_delay_ns: 1000, ecn: 0 };
        self.nodes[host].ep.handle(self.now, meta, &mut bytes, &mut ev);
        self.events(host, &ev, &bytes);
    }

    /// Runs until `done` or `limit` has passed; says whether `done`.
    pub fn run(&mut self, limit: Duration, mut done: impl FnMut(&Net) -> bool) -> bool {
        let until = self.now + limit;
        let (mut steps, mut last) = (0u64, self.now);
        while !done(self) {
            if !self.step(until) {
                return done(self);
            }
            steps = if self.now == last { steps + 1 } else { 0 };
            last = self.now;
            assert!(
                steps < 100_000,
                "time stands still: {:#?}",
                self.nodes
                    .iter()
                    .map(|x| (x.ep.next_timeout(), x.ep.peers().map(|p| x.ep.peer_stats(p)).collect::<Vec<_>>()))
                    .collect::<Vec<_>>()
            );
        }
        true
    }

    /// Nothing sent is open any more anywhere.
    pub fn quiet(&self) -> bool {
        self.nodes.iter().all(|n| n.open_tokens.is_empty())
    }

    fn events(&mut self, i: usize, ev: &[Event], data: &[u8]) {
        for e in ev {
            self.event(i, e, data);
        }
    }

    fn event(&mut self, i: usize, e: &Event, data: &[u8]) {
        let now = self.now;
        let n = &mut self.nodes[i];
        match e {
            Event::Up { peer } => n.ups.push(*peer),
            Event::Down { peer, reason } => n.downs.push((*peer, *reason)),
            Event::Sent { token, .. } => {
                assert!(n.open_tokens.remove(token), "token {token} reported twice or unknown");
                n.sent.push(*token);
            }
            Event::Failed { token, reason, .. } => {
                assert!(n.open_tokens.remove(token), "token {token} reported twice or unknown");
                n.failed.push((*token, *reason));
            }
            Event::Message {
                peer,
                control,
                stream,
                mseq,
                sseq,
                total_len,
                offset,
                envelope,
                payload,
                first,
                complete,
            } => {
                if envelope.is_empty() {
                    return self.restored_message(i, *peer, *mseq, *complete);
                }
                let env = &data[envelope.clone()];
                let token = u64::from_le_bytes(env[1..9].try_into().expect("8"));
                let extra = u64::from_le_bytes(env[9..17].try_into().expect("8"));
                assert_eq!(n.mseqs.insert((peer.0, *control, *mseq)), *first, "first is told once");
                if !control {
                    let (total_len, first, complete) = (u64::from(*total_len), *first, *complete);
                    let (stream, mseq, sseq) = (*stream, *mseq, *sseq);
                    n.fragments.push(Fragment { at: now, stream, mseq, sseq, extra, total_len, first, complete });
                }
                let r = n.messages.entry((peer.0, token)).or_default();
                take(r, token, u64::from(*total_len), u64::from(*offset), &data[payload.clone()], *complete);
                // Only matched messages can be restored; control messages have numbers of their
                // own.
                r.token = if *control { u64::MAX } else { *mseq };
                if *complete && !*control && !n.hold {
                    n.ep.consume(*peer, 1, u64::from(*total_len));
                }
                if *first {
                    self.react(i, *peer, env[0], token, extra, env);
                }
            }
            Event::Rndv { peer, handle, offset, payload, complete } => {
                let r = n.rndvs.get_mut(&(peer.0, *handle)).expect("handle");
                let (token, total) = (r.token, r.total);
                take(r, token, total, *offset, &data[payload.clone()], *complete);
            }
            Event::RndvAborted { peer, handle, .. } => {
                n.rndvs.remove(&(peer.0, *handle));
            }
            Event::Parity { peer, key, hole, parity } => {
                // The parity of the pattern must be what was told; then the hole is what the sum
                // gives.
                let (token, total) = match key {
                    DataKey::Rndv(h) => n.rndvs.get(&(peer.0, *h)).map(|r| (r.token, r.total)).expect("handle"),
                    DataKey::Message(m) => n
                        .messages
                        .iter()
                        .find(|(k, r)| k.0 == peer.0 && r.token == *m)
                        .map(|(k, r)| (k.1, r.total))
                        .expect("message"),
                };
                for (j, b) in parity.iter().enumerate() {
                    let x = (0..u64::from(hole.count))
                        .map(|k| (hole.factor_of(k), hole.base + k * u64::from(hole.frag) + j as u64))
                        .filter(|(_, o)| *o < total)
                        .fold(0, |x, (factor, o)| x ^ times(factor, byte_of(token, o)));
                    assert_eq!(x, *b, "parity byte");
                }
                let mut sum = parity.clone();
                let fill = |at: u64, dst: &mut [u8]| {
                    (at..).zip(dst).for_each(|(o, b)| *b = byte_of(token, o));
                    true
                };
                let bytes = hole.restore(total, &mut sum, fill).expect("all else is there");
                assert!((hole.offset..).zip(bytes).all(|(o, b)| *b == byte_of(token, o)), "restored byte");
                let r = match key {
                    DataKey::Rndv(h) => n.rndvs.get_mut(&(peer.0, *h)).expect("handle"),
                    DataKey::Message(_) => n.messages.get_mut(&(peer.0, token)).expect("message"),
                };
                for o in hole.offset..hole.offset + u64::from(hole.len) {
                    assert!(!std::mem::replace(&mut r.have[o as usize], true));
                    r.bytes += 1;
                }
                n.restored += 1;
                n.restored_of_several += u64::from(hole.factors[1] != 0 || hole.factors[2] != 0);
                let mut ev = Vec::new();
                n.ep.restored(now, *peer, *key, hole.offset, u32::from(hole.len), &mut ev);
                self.events(i, &ev, &[]);
            }
        }
    }

    fn restored_message(&mut self, i: usize, peer: PeerId, mseq: u64, complete: bool) {
        let n = &mut self.nodes[i];
        let r = n.messages.iter_mut().find(|(k, r)| k.0 == peer.0 && r.token == mseq).expect("message").1;
        assert!(complete && !r.complete);
        r.complete = true;
        assert_eq!(r.bytes, r.total);
        let total = r.total;
        n.ep.consume(peer, 1, total);
    }

    /// The small rendezvous of the tests: 1 = offer, 2 = handle opened.
    fn react(&mut self, i: usize, peer: PeerId, kind: u8, token: u64, extra: u64, env: &[u8]) {
        let now = self.now;
        let n = &mut self.nodes[i];
        match kind {
            1 => {
                let Ok(o) = n.ep.open_rndv(now, peer, extra) else { return };
                n.rndvs.insert(
                    (peer.0, o.handle),
                    Received { total: extra, token, have: vec![false; extra as usize], ..Default::default() },
                );
                let mut e = [0u8; 33];
                e[0] = 2;
                e[9..17].copy_from_slice(&token.to_le_bytes());
                e[17..25].copy_from_slice(&o.handle.to_le_bytes());
                e[25..33].copy_from_slice(&o.granted.to_le_bytes());
                let t = n.next_token;
                n.next_token += 1;
                e[1..9].copy_from_slice(&t.to_le_bytes());
                n.open_tokens.insert(t);
                n.ep.send(
                    now,
                    peer,
                    Message { control: true, stream: 0, envelope: &e, len: 0, patient: false, token: t },
                )
                .expect("answer");
            }
            2 => {
                let handle = u64::from_le_bytes(env[17..25].try_into().expect("8"));
                let granted = u64::from_le_bytes(env[25..33].try_into().expect("8"));
                let len = n.offers.remove(&extra).expect("offer");
                n.ep.send_rndv(now, peer, handle, granted, len, extra).expect("send_rndv");
            }
            _ => {}
        }
    }
}

fn take(r: &mut Received, token: u64, total: u64, offset: u64, data: &[u8], complete: bool) {
    if r.have.is_empty() {
        r.have = vec![false; total as usize];
        r.total = total;
    }
    assert_eq!(r.total, total);
    for (k, b) in data.iter().enumerate() {
        let o = offset + k as u64;
        assert!(!std::mem::replace(&mut r.have[o as usize], true), "byte {o} reported twice");
        assert_eq!(*b, byte_of(token, o), "payload of {token} at {o}");
    }
    r.bytes += data.len() as u64;
    assert!(!r.complete, "completed before");
    r.complete = complete;
    assert_eq!(complete, r.bytes == r.total);
}
