//! Short cuts against the general path: the same endpoints twice, one with templates, messages that
//! leave alone and acknowledgements in order, and one without, see the same of the world. They must
//! send the same bytes at every poll and wait for the same time, whatever happens between two
//! polls, and remember the same of what was sent and of their paths.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use alloc::{format, vec};
use core::net::SocketAddr;
use core::time::Duration;

use rand_chacha::ChaCha12Rng;
use rand_core::{RngCore, SeedableRng};

use crate::{
    Config, CongestionKind, Endpoint, Event, Level, Message, PacketBuf, Payloads, PeerId, RxMeta, SessionConfig, Time,
    Transmit,
};

const HOSTS: usize = 3;
const NETS: usize = 2;

struct Pattern;

impl Payloads for Pattern {
    fn read(&self, token: u64, offset: u64, dst: &mut [u8]) {
        for (i, d) in (offset..).zip(dst) {
            *d = (token.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40).wrapping_add(i.wrapping_mul(i / 256 + 3)) as u8;
        }
    }
}

fn addr(host: usize, net: usize) -> SocketAddr {
    SocketAddr::from(([10, net as u8, 0, host as u8], 7000))
}

fn place(a: SocketAddr) -> (usize, usize) {
    match a.ip() {
        core::net::IpAddr::V4(v) => (usize::from(v.octets()[3]), usize::from(v.octets()[1])),
        core::net::IpAddr::V6(_) => unreachable!(),
    }
}

/// Bit of the tokens of messages that might leave alone.
const MAY_BE_ALONE: u64 = 1 << 40;

/// Of what leaves alone the fate is not told.
fn is_untold(e: &Event) -> bool {
    matches!(e, Event::Sent { token, .. } | Event::Failed { token, .. } if token & MAY_BE_ALONE != 0)
}

struct Flying {
    from: SocketAddr,
    to: SocketAddr,
    bytes: Vec<u8>,
}

/// Each host twice: `.0` with runs and short cuts, `.1` without.
struct Differential {
    hosts: Vec<[Endpoint; 2]>,
    bufs: [PacketBuf; 2],
    now: Time,
    rng: ChaCha12Rng,
    flying: BTreeMap<(u64, u64), Flying>,
    serial: u64,
    /// Messages that left alone.
    alone: u64,
    cut: BTreeSet<usize>,
    loss: u32,
    mtu: usize,
    delay_ns: u64,
    token: u64,
    /// (receiver, its peer, sender, its peer, handle).
    rndvs: Vec<(usize, PeerId, usize, PeerId, u64)>,
    /// What was received and not consumed: (host, peer, bytes).
    held: Vec<(usize, PeerId, u64)>,
}

impl Differential {
    fn new(seed: u64) -> Differential {
        let mut rng = ChaCha12Rng::seed_from_u64(seed);
        let mut pick = |of: &[u64]| of[rng.next_u32() as usize % of.len()];
        let cfg = Config {
            level: [Level::Integrity, Level::Integrity, Level::Integrity, Level::Auth, Level::Encrypt]
                [pick(&[0, 1, 2, 3, 4]) as usize],
            congestion: [CongestionKind::Target, CongestionKind::Reno][pick(&[0, 1]) as usize],
            max_datagram: pick(&[1200, 1472, 1472, 8972]) as u16,
            gather_min: pick(&[1, 256, 256, 1300]) as u16,
            session: SessionConfig {
                initial_credit_msgs: pick(&[8, 64, 1024]) as u32,
                initial_credit_bytes: pick(&[200_000, 1 << 20, 1 << 23]),
                grant_share: pick(&[16 << 10, 64 << 10]),
                ..SessionConfig::default()
            },
            rx_buffer_bytes: pick(&[30_000, 200_000, 4 << 20]),
            peer_batch_packets: pick(&[1, 3, 44, 44]) as u32,
            flow_batch_packets: pick(&[1, 2, 5, 48, 48]) as u32,
            initial_window_packets: pick(&[4, 32, 256]) as u32,
            parity_min_rtt: Duration::from_micros(pick(&[1, 500])),
            sent_packets_max: pick(&[1 << 19, 1 << 19, 600]) as usize,
            mtu_retry: Duration::from_millis(pick(&[1, 10_000])),
            ..Config::default()
        };
        let nets = pick(&[1, 2, 2]) as usize;
        let hosts = (0..HOSTS)
            .map(|h| {
                let addrs: Vec<_> = (0..nets).map(|n| addr(h, n)).collect();
                [false, true].map(|plain| {
                    let mut e = Endpoint::new(cfg.clone(), [7; 32], 100 + h as u64, &addrs, [h as u8; 32]);
                    e.plain = plain;
                    e
                })
            })
            .collect();
        let delay_ns = pick(&[0, 5_000, 100_000, 3_000_000]);
        Differential {
            hosts,
            bufs: [PacketBuf::new(), PacketBuf::new()],
            now: Time(1_000_000),
            rng,
            flying: BTreeMap::new(),
            serial: 0,
            alone: 0,
            cut: BTreeSet::new(),
            loss: 0,
            mtu: 65535,
            delay_ns,
            token: 0,
            rndvs: Vec::new(),
            held: Vec::new(),
        }
    }

    fn below(&mut self, n: u64) -> u64 {
        self.rng.next_u64() % n
    }

    /// The same to both of a host, with the same answer.
    fn both<R: core::fmt::Debug>(&mut self, host: usize, mut f: impl FnMut(&mut Endpoint) -> R) -> R {
        let [a, b] = self.hosts[host].each_mut().map(&mut f);
        assert_eq!(format!("{a:?}"), format!("{b:?}"));
        a
    }

    fn peer(&mut self, of: usize, to: usize) -> PeerId {
        let name = self.hosts[to][0].name();
        self.both(of, |e| e.peer(&name).expect("peer"))
    }

    fn pair(&mut self) -> (usize, usize) {
        let from = self.below(HOSTS as u64) as usize;
        (from, (from + 1 + self.below(HOSTS as u64 - 1) as usize) % HOSTS)
    }

    fn events(&mut self, host: usize, events: &[Event]) {
        for e in events {
            match e {
                Event::Message { peer, control: false, total_len, complete: true, .. } => {
                    self.held.push((host, *peer, u64::from(*total_len)));
                }
                Event::Parity { peer, key, hole, .. } => {
                    let (now, mut all) = (self.now, Vec::new());
                    self.both(host, |e| {
                        all.clear();
                        e.restored(now, *peer, *key, hole.offset, u32::from(hole.len), &mut all);
                        format!("{all:?}")
                    });
                    let all = core::mem::take(&mut all);
                    self.events(host, &all);
                }
                _ => {}
            }
        }
    }

    /// Delivers one datagram that is due; whether there was one.
    fn deliver(&mut self) -> bool {
        let Some(first) = self.flying.first_entry() else { return false };
        if first.key().0 > self.now.0 {
            return false;
        }
        let f = first.remove();
        let (now, (host, _)) = (self.now, place(f.to));
        let meta = RxMeta { remote: f.from, local: Some(f.to.ip()), receiver_delay_ns: 1000, ecn: 0 };
        let mut events = Vec::new();
        self.both(host, |e| {
            events.clear();
            e.handle(now, meta, &mut f.bytes.clone(), &mut events);
            events.retain(|e| !is_untold(e));
            format!("{events:?}")
        });
        self.events(host, &events);
        true
    }

    fn timers(&mut self, host: usize) {
        let now = self.now;
        if self.both(host, |e| e.next_timeout()).is_some_and(|t| t <= now) {
            let mut events = Vec::new();
            self.both(host, |e| {
                events.clear();
                e.handle_timeout(now, &mut events);
                events.retain(|e| !is_untold(e));
                format!("{events:?}")
            });
            self.events(host, &events);
        }
    }

    /// One packet of both; they are the same.
    fn poll(&mut self, host: usize) -> bool {
        if self.below(8) == 0 {
            self.bufs[0] = PacketBuf { head: vec![0xaa; 300] };
        }
        let now = self.now;
        let [a, b] = &mut self.hosts[host];
        let [x, y] = &mut self.bufs;
        let (s, t) = (a.poll_transmit(now, &Pattern, x), b.poll_transmit(now, &Pattern, y));
        assert_eq!(s, t, "host {host} at {now:?}");
        assert_eq!(a.next_timeout(), b.next_timeout());
        let Some(t) = t else { return false };
        assert_eq!(x.head, y.head, "host {host} at {now:?}");
        self.fly(host, &t);
        true
    }

    /// The packet in the second buffer is on its way, or lost.
    fn fly(&mut self, host: usize, t: &Transmit) {
        let mut bytes = self.bufs[1].head.clone();
        if let Some(p) = t.payload {
            let at = bytes.len();
            bytes.resize(at + usize::from(p.len), 0);
            Pattern.read(p.token, p.offset, &mut bytes[at..]);
        }
        let (_, net) = place(t.remote);
        let lost = self.below(1_000_000) < u64::from(self.loss);
        if !lost && !self.cut.contains(&net) && bytes.len() <= self.mtu {
            let late = if self.below(50) == 0 { self.below(200_000) } else { 0 };
            self.serial += 1;
            let key = (self.now.0 + self.delay_ns + late, self.serial);
            self.flying.insert(key, Flying { from: addr(host, net), to: t.remote, bytes });
        }
    }

    /// The one sends a message alone, if it does; the other sends it as any other, and is asked for
    /// its packet.
    fn send_alone(&mut self, host: usize, peer: PeerId, m: &Message<'_>) -> bool {
        let now = self.now;
        let [a, b] = &mut self.hosts[host];
        let [x, y] = &mut self.bufs;
        let mut payload = vec![0; m.len as usize];
        Pattern.read(m.token, 0, &mut payload);
        let Some(s) = a.send_alone(now, peer, m, &payload, x) else { return false };
        b.send(now, peer, *m).expect("what leaves alone would have been accepted");
        let t = b.poll_transmit(now, &Pattern, y).expect("it would have left");
        assert_eq!((s, &x.head), (t, &y.head), "host {host} at {now:?}");
        assert_eq!(a.next_timeout(), b.next_timeout());
        self.alone += 1;
        self.fly(host, &t);
        true
    }

    /// Something happens between two polls.
    fn act(&mut self) {
        let (now, (from, to)) = (self.now, self.pair());
        match self.below(24) {
            0..=6 => {
                let (peer, token) = (self.peer(from, to), self.token);
                self.token += 1;
                let len = match self.below(7) {
                    0 => 0,
                    1 => self.below(90),
                    2 => self.below(300),
                    3 => 1100 + self.below(500),
                    _ => self.below(120_000),
                } as u32;
                let (stream, patient, env) = (self.below(4) as u16, self.below(2) == 0, self.below(49) as usize);
                let envelope = [token as u8; 48];
                let token = if len <= 64 { token | MAY_BE_ALONE } else { token };
                let m = Message { control: false, stream, envelope: &envelope[..env], len, patient, token };
                if self.below(3) == 0 || !self.send_alone(from, peer, &m) {
                    let _ = self.both(from, |e| e.send(now, peer, m));
                }
            }
            7 => {
                let (peer, token, len) = (self.peer(from, to), self.token, self.below(900) as u32);
                self.token += 1;
                let m = Message { control: true, stream: 0, envelope: b"c", len, patient: false, token };
                let _ = self.both(from, |e| e.send(now, peer, m));
            }
            8..=11 => {
                // Opened by the one and begun by the other, told by nobody.
                let (sp, rp, token) = (self.peer(from, to), self.peer(to, from), self.token);
                self.token += 1;
                let len = 1 + self.below(600_000);
                if let Ok(o) = self.both(to, |e| e.open_rndv(now, rp, len)) {
                    let _ = self.both(from, |e| e.send_rndv(now, sp, o.handle, o.granted, len, token));
                    self.rndvs.push((to, rp, from, sp, o.handle));
                }
            }
            12 if !self.rndvs.is_empty() => {
                let i = self.below(self.rndvs.len() as u64) as usize;
                let (_, _, from, peer, handle) = self.rndvs.swap_remove(i);
                self.both(from, |e| e.abort_rndv(now, peer, handle, 1));
            }
            13 if !self.rndvs.is_empty() => {
                let i = self.below(self.rndvs.len() as u64) as usize;
                let (to, peer, _, _, handle) = self.rndvs.swap_remove(i);
                self.both(to, |e| e.close_rndv(peer, handle));
            }
            14..=16 => while self.deliver() && self.below(4) > 0 {},
            17 | 18 if !self.held.is_empty() => {
                for (host, peer, bytes) in core::mem::take(&mut self.held) {
                    self.both(host, |e| e.consume(peer, 1, bytes));
                }
            }
            19 => self.timers(from),
            20 => {
                self.loss = [0, 0, 0, 10_000, 100_000, 400_000][self.below(6) as usize];
                self.mtu = [65535, 65535, 1250, 1472][self.below(4) as usize];
            }
            21 => {
                if self.below(3) > 0 || !self.cut.remove(&0) {
                    let net = self.below(NETS as u64) as usize;
                    if !self.cut.remove(&net) && self.below(3) == 0 {
                        self.cut.insert(net);
                    }
                }
            }
            22 => {
                let net = self.below(NETS as u64) as usize;
                let remote = addr(to, net);
                self.both(from, |e| e.refused(now, remote));
            }
            _ => {
                self.poll(from);
            }
        }
    }

    fn step(&mut self) {
        // Often no time passes at all.
        let ns = match self.below(12) {
            0..=3 => 0,
            4..=6 => self.below(3_000),
            7 => self.below(4_000_000),
            _ => {
                let next = self.flying.first_key_value().map_or(0, |(k, _)| k.0.saturating_sub(self.now.0));
                next + self.below(10_000)
            }
        };
        self.now = self.now.plus_ns(ns);
        for _ in 0..self.below(3) {
            self.act();
        }
        if self.below(4) > 0 {
            while self.deliver() {}
        }
        for host in 0..HOSTS {
            self.timers(host);
            // All there is, or a part of it, with something else between.
            let most = if self.below(3) == 0 { self.below(60) } else { u64::MAX };
            let mut n = 0;
            while n < most && self.poll(host) {
                n += 1;
                assert!(n < 100_000, "transmits for ever");
                if self.below(40) == 0 {
                    self.act();
                }
            }
        }
    }

    fn compare(&self) {
        for [a, b] in &self.hosts {
            assert_eq!(format!("{:?}", a.counters()), format!("{:?}", b.counters()));
            let stats = |e: &Endpoint| e.peers().map(|p| format!("{:?}", e.peer_stats(p))).collect::<Vec<_>>();
            assert_eq!(stats(a), stats(b));
            let state = |e: &Endpoint| {
                e.assocs.iter().map(|a| format!("{:?} {:?} {:?}", a.rec, a.rx, a.paths)).collect::<Vec<_>>()
            };
            assert_eq!(state(a), state(b));
        }
    }
}

// spec: P-12.3
#[test]
fn short_cuts_do_what_the_general_path_would_have_done() {
    let (mut of_templates, mut alone, mut all, mut worlds, mut in_order, mut acks) = (0, 0, 0, 0, 0, 0);
    for seed in 0..150 {
        let mut t = Differential::new(seed);
        for i in 0..400 {
            t.step();
            if i % 10 == 0 {
                t.compare();
            }
        }
        let now = t.now;
        (0..HOSTS).for_each(|h| t.both(h, |e| e.close(now)));
        (0..50).for_each(|_| t.step());
        t.compare();
        let runs: u64 = t.hosts.iter().map(|h| h[0].template_packets).sum();
        assert!(t.hosts.iter().all(|h| h[1].template_packets == 0));
        of_templates += runs;
        alone += t.alone;
        in_order += t.hosts.iter().flat_map(|h| &h[0].assocs).map(|a| a.acks_in_order).sum::<u64>();
        assert!(t.hosts.iter().flat_map(|h| &h[1].assocs).all(|a| a.acks_in_order == 0));
        acks += t.hosts.iter().map(|h| h[0].counters().acks_received).sum::<u64>();
        worlds += u64::from(runs > 100);
        all += t.hosts.iter().map(|h| h[0].counters().packets_sent).sum::<u64>();
    }
    // The test tests something.
    assert!(of_templates > all / 20 && worlds > 30, "{of_templates} of {all} packets are by templates");
    assert!(alone > 100, "{alone} messages left alone");
    assert!(in_order > 1000, "{in_order} of {acks} acknowledgements took the short way");
}
