//! Members of the job that do not behave, and peers that come and go.

mod common;

use common::{
    KEY, LIMIT, Pair, config, counter, iov, open, pair_with, post, register_with, rma_op, send, send_op,
    send_when_accepted, wait,
};
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};
use weir_engine::{
    Access, Class, Completion, DownReason, Endpoint, EngineConfig, EngineError, OpError, OpKind, Queue, RmaOp,
    SendMode, SendOp,
};
use weir_link::{EndpointName, Event, Message, PacketBuf, Payloads, RxMeta, SendError, Time};
use weir_match::envelope::{Envelope, MAX_BYTES};

/// Writes with immediate data that may wait for the target's program (spec/envelopes.md).
const NOTICES: u64 = 4096;

fn write(ep: &Endpoint, peer: u32, key: u64, data: &mut [u8], immediate: u64) -> Result<(), EngineError> {
    let iov = iov(data);
    let op = RmaOp { data: Some(immediate), report: false, ..rma_op(peer, key, &iov) };
    // SAFETY: every test keeps its buffers to its end.
    unsafe { ep.write(&op) }
}

#[test]
fn writes_with_data_wait_for_a_target_that_takes_no_notice() {
    const N: u64 = 20_000;
    let (a, b) = (open(config()), open(config()));
    let to_b = a.insert_peer(&b.name()).expect("name");
    b.insert_peer(&a.name()).expect("name");
    let mut memory = [0u8; 64 << 10];
    let key = register_with(&b, &mut memory, Access { remote_read: true, remote_write: true });
    let (mut small, mut large) = ([1u8; 8], vec![2u8; 64 << 10]);
    let mut begun = 0;
    let mut out = Vec::new();
    // The target's watchdog answers; its program does not look into its queue.
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(1500) || (begun < NOTICES && start.elapsed() < LIMIT) {
        let data = if begun % 100 == 99 { &mut large[..] } else { &mut small[..] };
        match write(&a, to_b, key, data, begun) {
            Ok(()) => begun += 1,
            Err(EngineError::Again) => {}
            Err(e) => panic!("{e}"),
        }
        a.poll(Queue::Send, &mut out, 16);
    }
    assert_eq!(begun, NOTICES, "as many as the target has room for");
    // It looks, and all come, once each.
    let mut seen = vec![false; N as usize];
    let mut taken = 0;
    let start = Instant::now();
    while taken < N {
        while begun < N {
            let data = if begun % 100 == 99 { &mut large[..] } else { &mut small[..] };
            match write(&a, to_b, key, data, begun) {
                Ok(()) => begun += 1,
                Err(EngineError::Again) => break,
                Err(e) => panic!("{e}"),
            }
        }
        a.progress();
        out.clear();
        b.poll(Queue::Recv, &mut out, 64);
        for c in &out {
            assert_eq!((c.kind, c.user, c.result), (OpKind::RemoteWrite, 0, Ok(())));
            let i = c.data.expect("data") as usize;
            assert!(!std::mem::replace(&mut seen[i], true), "twice");
            taken += 1;
        }
        assert!(start.elapsed() < LIMIT, "{taken} of {begun}: {}", b.counters_json());
    }
    assert!(counter(&b, "notices_peak") <= NOTICES);
    assert_eq!(counter(&b, "access_errors"), 0);
}

/// A member of the job with a protocol of its own above `weir-link`.
struct Member {
    ep: weir_link::Endpoint,
    socket: UdpSocket,
    start: Instant,
    events: Vec<Event>,
}

struct Zeros;

impl Payloads for Zeros {
    fn read(&self, _: u64, _: u64, dst: &mut [u8]) {
        dst.fill(0);
    }
}

impl Member {
    fn new(id: u64) -> Member {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("socket");
        socket.set_nonblocking(true).expect("socket");
        let addr = socket.local_addr().expect("address");
        let cfg = weir_link::Config {
            features: weir_match::StreamBits::default().features(),
            ..weir_link::Config::default()
        };
        Member::with(cfg, id, socket, addr)
    }

    fn with(cfg: weir_link::Config, id: u64, socket: UdpSocket, addr: SocketAddr) -> Member {
        let ep = weir_link::Endpoint::new(cfg, KEY, id, &[addr], [id as u8; 32]);
        Member { ep, socket, start: Instant::now(), events: Vec::new() }
    }

    fn now(&self) -> Time {
        Time(self.start.elapsed().as_nanos() as u64)
    }

    fn step(&mut self) {
        let mut datagram = vec![0; 65536];
        while let Ok((n, remote)) = self.socket.recv_from(&mut datagram) {
            let meta = RxMeta { remote, local: None, receiver_delay_ns: 0, ecn: 0 };
            let now = self.now();
            self.ep.handle(now, meta, &mut datagram[..n], &mut self.events);
        }
        let now = self.now();
        if self.ep.next_timeout().is_some_and(|t| t <= now) {
            self.ep.handle_timeout(now, &mut self.events);
        }
        let mut out = PacketBuf::new();
        while let Some(t) = self.ep.poll_transmit(now, &Zeros, &mut out) {
            let mut packet = out.head.clone();
            packet.resize(packet.len() + t.payload.map_or(0, |p| usize::from(p.len)), 0);
            let _ = self.socket.send_to(&packet, t.remote);
        }
    }
}

#[test]
fn a_member_that_floods_with_writes_fills_its_own_share_of_the_queue_only() {
    let (a, b) = (open(config()), open(config()));
    let to_b = a.insert_peer(&b.name()).expect("name");
    let to_a = b.insert_peer(&a.name()).expect("name");
    let mut memory = [0u8; 64];
    let key = register_with(&b, &mut memory, Access { remote_read: false, remote_write: true });
    let mut member = Member::new(99);
    let peer = member.ep.peer(&EndpointName::decode(&b.name()).expect("name")).expect("usable");
    let start = Instant::now();
    let (mut begun, mut buf) = (0u64, [0; MAX_BYTES]);
    while begun < 5 * NOTICES {
        let n = Envelope::Write { key, addr: 0, op: 1, data: Some(begun), sync: false }.encode(&mut buf);
        let now = member.now();
        let m = Message { control: true, stream: 0, envelope: &buf[..n], len: 8, patient: false, token: 1 };
        match member.ep.send(now, peer, m) {
            Ok(()) => begun += 1,
            Err(SendError::QueueFull) => {}
            Err(e) => panic!("{e}"),
        }
        if begun % 64 == 0 {
            member.step();
        }
        assert!(start.elapsed() < LIMIT);
    }
    let all = |m: &Member| m.events.iter().filter(|e| matches!(e, Event::Sent { .. })).count() as u64;
    while all(&member) < begun {
        member.step();
        assert!(start.elapsed() < LIMIT, "{} of {begun}: {}", all(&member), b.counters_json());
    }
    assert_eq!(counter(&b, "notices_peak"), NOTICES);
    assert_eq!(counter(&b, "access_errors"), 4 * NOTICES, "the rest is refused");
    // Nobody else is disturbed.
    let mut data = [9u8; 8];
    while write(&a, to_b, key, &mut data, 1 << 40).is_err() {
        a.progress();
    }
    let mut out = Vec::new();
    while !out.iter().any(|c: &Completion| c.data == Some(1 << 40)) {
        a.progress();
        b.poll(Queue::Recv, &mut out, 64);
        assert!(start.elapsed() < LIMIT);
    }
    let own = out.iter().find(|c| c.data == Some(1 << 40)).expect("found");
    assert_eq!(own.source, Some(to_a));
}

fn bound(port: u16) -> EngineConfig {
    EngineConfig { bind: Some(SocketAddr::from(([127, 0, 0, 1], port))), ..config() }
}

/// A name as a face makes it from host and port.
fn by_address(ep: &Endpoint) -> [u8; 48] {
    let mut name = EndpointName::decode(&ep.name()).expect("own name");
    name.endpoint_id = 0;
    name.encode()
}

#[test]
fn clients_come_and_go_at_one_address_and_each_is_itself() {
    let server = open(config());
    let port = {
        let free = open(config());
        u16::from_be_bytes([free.name()[2], free.name()[3]])
    };
    for (round, by_name) in [true, false, true, true, false, false, true, false].into_iter().enumerate() {
        let client = open(bound(port));
        // The client knows the server by host and port only.
        let to_server = client.insert_peer(&by_address(&server)).expect("address");
        let mut hello = [round as u8; 8];
        send(&client, to_server, 1, &mut hello, SendMode::Inject).expect("send");
        let mut got = [0xff; 8];
        post(&server, None, 1, &mut got);
        let from = wait(&server, &client, Queue::Recv);
        assert_eq!((from.result, got), (Ok(()), hello), "round {round}");
        // The server learns who it is by its name, or by host and port.
        let name = if by_name { client.name() } else { by_address(&client) };
        let to_client = server.insert_peer(&name).expect("name");
        let (mut answer, mut back) = ([round as u8 + 100; 3000], [0; 3000]);
        post(&client, Some(to_server), 2, &mut back);
        send(&server, to_client, 2, &mut answer, SendMode::Delivery).expect("send");
        assert_eq!(wait(&client, &server, Queue::Recv).result, Ok(()), "round {round}");
        assert_eq!(wait(&server, &client, Queue::Send).result, Ok(()), "round {round}");
        assert_eq!(back, answer);
        // The client is gone before the server has looked.
        client.close();
        drop(client);
        if round % 2 == 0 {
            server.remove_peer(to_client);
        }
    }
}

#[test]
fn peers_that_are_gone_and_that_nobody_knows_are_forgotten() {
    let server = open(config());
    let mut keep = Vec::new();
    for round in 0..40u8 {
        let client = open(config());
        let to = client.insert_peer(&server.name()).expect("name");
        let mut data = [round; 100];
        send(&client, to, 1, &mut data, SendMode::Delivery).expect("send");
        assert_eq!(wait(&client, &server, Queue::Send).result, Ok(()));
        // Some are never known, some known and forgotten, some leave a message that nobody has
        // received yet.
        let known = (round % 2 == 0).then(|| server.insert_peer(&client.name()).expect("name"));
        if round % 10 != 0 {
            let mut buf = [0; 100];
            post(&server, None, 1, &mut buf);
            assert_eq!(wait(&server, &client, Queue::Recv).result, Ok(()));
        }
        client.close();
        known.inspect(|&peer| server.remove_peer(peer));
        keep.push(known);
    }
    let start = Instant::now();
    while counter(&server, "peers_down") < 40 {
        server.progress();
        assert!(start.elapsed() < LIMIT);
    }
    let held = server.counters_json().matches("\"peer\":").count();
    assert!(held <= 5, "{held} of 40 are still held");
    // What they left is still there, from nobody the caller knows.
    let mut buf = [0; 100];
    for _ in 0..4 {
        post(&server, None, 1, &mut buf);
        let got = wait(&server, &server, Queue::Recv);
        assert_eq!((got.result, got.source, got.len), (Ok(()), None, 100));
    }
}

#[test]
fn a_copied_send_leaves_the_memory_at_once_and_completes_as_asked() {
    // Nobody answers for the other side while this one polls: on a busy machine that may last.
    let cfg = EngineConfig { watchdog_us: 0, peer_timeout: LIMIT, connect_timeout: LIMIT, ..config() };
    let Pair { a, b, to_b, .. } = pair_with(cfg);
    let to_self = a.insert_peer(&a.name()).expect("name");
    for (mode, to) in [(SendMode::Delivery, to_b), (SendMode::Match, to_b), (SendMode::Match, to_self)] {
        for len in [8usize, 60, 10_000, 16 << 10] {
            let want: Vec<u8> = (0..len).map(|i| i as u8 ^ 0x5a).collect();
            let mut data = want.clone();
            let iov = iov(&mut data);
            send_when_accepted(&a, &SendOp { copy: true, ..send_op(to, 5, &iov, mode) });
            data.fill(0);
            drop(data);
            let mut out = Vec::new();
            for _ in 0..1000 {
                assert_eq!(a.poll(Queue::Send, &mut out, 1), 0, "{mode:?}: complete, and nobody has it");
            }
            let (mut buf, at) = (vec![0; len], if to == to_self { &a } else { &b });
            post(at, None, 5, &mut buf);
            assert_eq!(wait(at, &a, Queue::Recv).result, Ok(()));
            assert_eq!(wait(&a, &b, Queue::Send).result, Ok(()));
            assert!(buf == want, "{mode:?}, {len} bytes to {to}");
        }
    }
    // What is copied is memory nobody sees: bounded.
    let mut data = vec![0; (16 << 10) + 1];
    let iov = iov(&mut data);
    let op = SendOp { copy: true, ..send_op(to_b, 5, &iov, SendMode::Delivery) };
    // SAFETY: `data` lives to the end of the test.
    assert!(matches!(unsafe { a.send(&op) }, Err(EngineError::TooBig { .. })));
}

#[test]
fn two_versions_in_one_job_are_told_so_on_both_sides_at_once() {
    // A build from before the rule of streams changed; it once opens and once is opened to.
    for it_opens in [true, false] {
        let a = open(config());
        let socket = UdpSocket::bind("127.0.0.1:0").expect("socket");
        socket.set_nonblocking(true).expect("socket");
        let addr = socket.local_addr().expect("address");
        let mut old = Member::with(weir_link::Config::default(), 77, socket, addr);
        let to_old = a.insert_peer(&old.ep.name().encode()).expect("name");
        let to_a = old.ep.peer(&EndpointName::decode(&a.name()).expect("name")).expect("usable");
        let start = Instant::now();
        // This side waits for a message of the other, and sends one or only waits.
        let (mut buf, mut data) = ([0; 8], [1; 8]);
        post(&a, Some(to_old), 1, &mut buf);
        if it_opens {
            let m = Message { control: false, stream: 1, envelope: &[0; 4], len: 8, patient: false, token: 1 };
            old.ep.send(old.now(), to_a, m).expect("send");
        } else {
            send(&a, to_old, 1, &mut data, SendMode::Delivery).expect("send");
        }
        let mut out = Vec::new();
        let told = |m: &Member| m.events.iter().any(|e| matches!(e, Event::Down { reason: DownReason::Version, .. }));
        while out.is_empty() || !told(&old) {
            a.poll(Queue::Recv, &mut out, 1);
            old.step();
            // Who only gives up waiting has another reason to tell.
            assert!(start.elapsed() < LIMIT, "no end: {}", a.counters_json());
        }
        let error = out[0].result.expect_err("no message can come");
        assert_eq!(error, OpError::PeerDown(DownReason::Version));
        assert!(error.to_string().contains("another version of weir"), "{error}");
        if !it_opens {
            assert_eq!(wait(&a, &a, Queue::Send).result, Err(error));
        }
    }
}

/// Sends a control message without payload, when there is room.
fn tell(member: &mut Member, peer: weir_link::PeerId, envelope: &Envelope) -> bool {
    let mut buf = [0; MAX_BYTES];
    let n = envelope.encode(&mut buf);
    let now = member.now();
    let m = Message { control: true, stream: 0, envelope: &buf[..n], len: 0, patient: false, token: 1 };
    match member.ep.send(now, peer, m) {
        Ok(()) => true,
        Err(SendError::QueueFull) => false,
        Err(e) => panic!("{e}"),
    }
}

#[test]
fn a_member_that_floods_with_reads_it_never_lets_through_is_refused() {
    const HELD: u64 = 2048;
    let (a, b) = (open(config()), open(config()));
    let to_b = a.insert_peer(&b.name()).expect("name");
    let mut memory = [5u8; 64];
    let key = register_with(&b, &mut memory, Access { remote_read: true, remote_write: false });
    let mut member = Member::new(99);
    let peer = member.ep.peer(&EndpointName::decode(&b.name()).expect("name")).expect("usable");
    let start = Instant::now();
    let mut begun = 0u64;
    while begun < 5 * HELD || counter(&b, "access_errors") < 4 * HELD {
        if begun < 5 * HELD {
            begun += u64::from(tell(
                &mut member,
                peer,
                &Envelope::Read { key, addr: 0, len: 8, rndv: begun + 1, granted: 0 },
            ));
        }
        if begun.is_multiple_of(64) || begun == 5 * HELD {
            member.step();
            member.events.clear();
        }
        assert!(start.elapsed() < LIMIT, "{}", b.counters_json());
    }
    assert_eq!((counter(&b, "rndvs_open"), counter(&b, "access_errors")), (HELD, 4 * HELD));
    // Others read, and the region can be withdrawn.
    let mut got = [0u8; 64];
    // SAFETY: `got` lives to the end of the test.
    unsafe { a.read(&rma_op(to_b, key, &iov(&mut got))) }.expect("read");
    assert_eq!(wait(&a, &b, Queue::Send).result, Ok(()));
    assert_eq!(got, memory);
    assert!(b.unregister(key));
    assert_eq!(counter(&b, "rndvs_open"), 0);
}

#[test]
fn a_member_that_begins_writes_and_ends_none_is_refused() {
    const HELD: u64 = 2048;
    let b = open(config());
    let mut memory = vec![5u8; 64 << 10];
    let key = register_with(&b, &mut memory, Access { remote_read: false, remote_write: true });
    let mut member = Member::new(99);
    let peer = member.ep.peer(&EndpointName::decode(&b.name()).expect("name")).expect("usable");
    let (start, mut begun) = (Instant::now(), 0u64);
    while begun < 5 * HELD || counter(&b, "access_errors") < 4 * HELD {
        if begun < 5 * HELD {
            let request = Envelope::WriteRts { key, addr: 0, len: 64 << 10, data: None, op: begun + 1 };
            begun += u64::from(tell(&mut member, peer, &request));
        }
        if begun % 64 == 0 || begun == 5 * HELD {
            member.step();
            member.events.clear();
        }
        assert!(start.elapsed() < LIMIT, "{}", b.counters_json());
    }
    assert_eq!((counter(&b, "rndvs_in"), counter(&b, "access_errors")), (HELD, 4 * HELD));
    assert!(b.unregister(key));
    assert_eq!(counter(&b, "rndvs_in"), 0);
}

#[test]
fn who_asks_for_the_rendezvous_of_a_send_that_is_over_is_told() {
    let b = open(config());
    let mut member = Member::new(99);
    let peer = member.ep.peer(&EndpointName::decode(&b.name()).expect("name")).expect("usable");
    let opened = member.ep.open_rndv(member.now(), peer, 1000).expect("opened");
    let envelope = Envelope::Cts { op: 77 << 32, rndv: opened.handle, len: 1000, granted: opened.granted };
    assert!(tell(&mut member, peer, &envelope));
    let start = Instant::now();
    while !member.events.iter().any(|e| matches!(e, Event::RndvAborted { handle, .. } if *handle == opened.handle)) {
        member.step();
        b.progress();
        assert!(start.elapsed() < LIMIT, "{}", b.counters_json());
    }
}

#[test]
fn a_request_with_payload_is_refused_and_takes_no_memory() {
    let b = open(config());
    let mut member = Member::new(99);
    let peer = member.ep.peer(&EndpointName::decode(&b.name()).expect("name")).expect("usable");
    let mut buf = [0; MAX_BYTES];
    let n = Envelope::Rts { class: Class::Tagged, tag: 1, data: None, len: 1 << 60, op: 1 }.encode(&mut buf);
    let now = member.now();
    let m = Message { control: false, stream: 1, envelope: &buf[..n], len: 8, patient: false, token: 1 };
    member.ep.send(now, peer, m).expect("send");
    let start = Instant::now();
    while counter(&b, "malformed") == 0 {
        member.step();
        b.progress();
        assert!(start.elapsed() < LIMIT, "{}", b.counters_json());
    }
}
