//! Two endpoints over a lossy loopback: mixed sizes in flight both ways, every byte checked, guards
//! around every buffer.

mod common;

use common::{LIMIT, counter, iov, open, packets, pair_with, recv_op, send_op, send_when_accepted, wait};
use std::net::UdpSocket;
use std::sync::Arc;
use std::time::Instant;
use weir_engine::{Class, Endpoint, EngineConfig, MultiOrder, Queue, RecvOp, SendMode, SendOp};

const SIZES: [usize; 12] = [0, 1, 100, 1300, 3000, 20_000, 65_536, 70_000, 200_000, 300_000, 8, 1_000_000];
const GUARD: usize = 64;

fn byte(stream: u64, i: usize) -> u8 {
    (stream.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(i as u64).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 56) as u8
}

struct Side {
    ep: Arc<Endpoint>,
    peer: u32,
    sends: Vec<Option<Vec<u8>>>,
    recvs: Vec<Option<Vec<u8>>>,
    sent: usize,
    received: usize,
}

fn exchange(faults: &str, count: usize, seed: u64) {
    let faults = Some(faults.replace("SEED", &seed.to_string()));
    let p = pair_with(EngineConfig { faults, ..packets() });
    let side = |ep, peer| Side { ep, peer, sends: vec![], recvs: vec![], sent: 0, received: 0 };
    let mut sides = [side(p.a, p.to_b), side(p.b, p.to_a)];
    let start = Instant::now();
    for i in 0..count {
        for (s, side) in sides.iter_mut().enumerate() {
            let len = SIZES[(i * 7 + seed as usize) % SIZES.len()];
            let mut data: Vec<u8> = (0..len).map(|j| byte((i * 2 + s) as u64, j)).collect();
            let iov_sent = iov(&mut data);
            side.sends.push(Some(data));
            let mode = if i % 2 == 0 { SendMode::Delivery } else { SendMode::Transmit };
            let tag = (i % 5) as u64;
            // The buffers are kept in `sends` and `recvs` until their completions.
            send_when_accepted(&side.ep, &SendOp { context: i, ..send_op(side.peer, tag, &iov_sent, mode) });
            let mut buf = vec![0xEE; 1_000_000 + GUARD];
            let iov_received = iov(&mut buf[..1_000_000]);
            side.recvs.push(Some(buf));
            // SAFETY: see above.
            unsafe { side.ep.recv(&RecvOp { context: i, ..recv_op(None, tag, &iov_received) }) }.expect("receive");
        }
        poll(&mut sides, seed);
    }
    while sides.iter().any(|s| s.sent < count || s.received < count) {
        poll(&mut sides, seed);
        assert!(start.elapsed() < LIMIT, "stuck: {} {}", sides[0].ep.counters_json(), sides[1].ep.counters_json());
    }
}

fn poll(sides: &mut [Side; 2], seed: u64) {
    for (s, side) in sides.iter_mut().enumerate() {
        let mut out = Vec::new();
        side.ep.poll(Queue::Send, &mut out, 16);
        for c in out.drain(..) {
            assert_eq!(c.result, Ok(()));
            // The memory is ours again: whatever still reads it sends garbage, which the receiver
            // sees.
            let mut data = side.sends[c.context].take().expect("sent once");
            data.fill(0xDD);
            side.sent += 1;
        }
        side.ep.poll(Queue::Recv, &mut out, 16);
        for c in out.drain(..) {
            assert_eq!(c.result, Ok(()));
            let i = c.context;
            let buf = side.recvs[i].take().expect("received once");
            let len = SIZES[(i * 7 + seed as usize) % SIZES.len()];
            assert_eq!(c.len, len, "receive {i}");
            let other = (i * 2 + (1 - s)) as u64;
            if let Some(j) = (0..len).find(|&j| buf[j] != byte(other, j)) {
                panic!("message {i} of {len} bytes differs at byte {j}: {:#x}", buf[j]);
            }
            assert!(buf[len..].iter().all(|&b| b == 0xEE), "bytes beyond message {i} were written");
            side.received += 1;
        }
    }
}

#[test]
fn mixed_messages_arrive_intact_on_a_clean_network() {
    exchange("loss=0%,seed=SEED", 200, 1);
}

#[test]
fn mixed_messages_arrive_intact_through_loss() {
    for seed in 0..4 {
        exchange("loss=2%,seed=SEED", 100, seed);
    }
}

#[test]
fn mixed_messages_arrive_intact_through_loss_delay_and_duplicates() {
    for seed in 0..3 {
        exchange("loss=3%,dup=1%,delay=1ms,seed=SEED", 100, seed);
    }
}

#[test]
fn what_parity_restores_is_right_where_fragments_were_cut_anew() {
    // A long lossy path: parity is sent, and what is sent again shares its packets with other
    // frames, so that holes begin anywhere.
    for seed in 0..4 {
        exchange("loss=12%,delay=2ms,seed=SEED", 60, seed);
        exchange("loss=6%,delay=1ms,jitter=1ms,seed=SEED", 60, seed);
    }
}

/// Of one peer the messages in multi-receives are reported as they were sent, however the network
/// delays parts of them: MPICH's active messages need it.
#[test]
fn messages_in_multi_receives_are_reported_in_order() {
    const LENS: [usize; 6] = [30_000, 8, 200_000, 8, 1000, 64_000];
    const ROOM: usize = 4 << 20;
    let p = pair_with(EngineConfig {
        faults: Some("loss=5%,jitter=200us,seed=3".into()),
        multi_order: MultiOrder::AsSent,
        ..packets()
    });
    let count = 300;
    let mut bufs: Vec<Vec<u8>> = (0..6).map(|_| vec![0; ROOM]).collect();
    for (i, buf) in bufs.iter_mut().enumerate() {
        let iov = iov(buf);
        let op = RecvOp { class: Class::Untagged, context: i, multi_min: Some(200_000), ..recv_op(None, 0, &iov) };
        // SAFETY: the buffers outlive the completions.
        unsafe { p.b.recv(&op) }.expect("receive");
    }
    let bases: Vec<usize> = bufs.iter().map(|b| b.as_ptr() as usize).collect();
    let mut data: Vec<Vec<u8>> = (0..count).map(|i| vec![i as u8; LENS[i % LENS.len()]]).collect();
    let (mut seen, mut released, mut out, start) = (0, 0, Vec::new(), Instant::now());
    let mut arrived = |seen: &mut usize| {
        p.b.poll(Queue::Recv, &mut out, 16);
        for c in out.drain(..) {
            assert_eq!((c.result, c.len), (Ok(()), LENS[*seen % LENS.len()]), "message {seen}");
            let at = c.address - bases[c.context];
            assert!(bufs[c.context][at..at + c.len].iter().all(|&b| b == *seen as u8), "message {seen} is another");
            released += usize::from(c.multi_done);
            *seen += 1;
        }
    };
    for d in &mut data {
        let iov = iov(d);
        let op = SendOp { class: Class::Untagged, report: false, ..send_op(p.to_b, 0, &iov, SendMode::Delivery) };
        // SAFETY: the data outlives the test's end, when all is delivered.
        while unsafe { p.a.send(&op) }.is_err() {
            arrived(&mut seen);
            assert!(start.elapsed() < LIMIT, "stuck: {} {}", p.a.counters_json(), p.b.counters_json());
        }
        arrived(&mut seen);
    }
    while seen < count {
        p.a.progress();
        arrived(&mut seen);
        assert!(start.elapsed() < LIMIT, "stuck: {} {}", p.a.counters_json(), p.b.counters_json());
    }
    assert!(released > 0);
}

/// A send that is complete at once may leave from the program's own memory, which is the program's
/// again all the same when the call returns: what has to be sent again is what was there then.
#[test]
fn memory_of_a_send_that_is_complete_at_once_may_change_at_once() {
    const LENS: [usize; 4] = [4 << 10, 20_000, 50_000, 64 << 10];
    let p = pair_with(EngineConfig { faults: Some("loss=20%,seed=11".into()), ..packets() });
    for round in 0..40u64 {
        let len = LENS[round as usize % LENS.len()];
        let want: Vec<u8> = (0..len).map(|j| byte(round, j)).collect();
        let (mut data, mut buf) = (want.clone(), vec![0xEE; len]);
        let (sent, room) = (iov(&mut data), iov(&mut buf));
        // SAFETY: the memory outlives the completion.
        unsafe { p.b.recv(&recv_op(None, 7, &room)) }.expect("receive");
        send_when_accepted(&p.a, &send_op(p.to_b, 7, &sent, SendMode::Transmit));
        data.fill(0);
        assert_eq!(wait(&p.b, &p.a, Queue::Recv).result, Ok(()));
        assert!(buf == want, "round {round}, {len} bytes");
        assert_eq!(wait(&p.a, &p.b, Queue::Send).result, Ok(()));
    }
}

#[test]
fn who_closes_waits_until_the_last_packets_have_left_a_device_that_delays_them() {
    let p = pair_with(EngineConfig { faults: Some("delay=30ms".into()), ..packets() });
    let (mut data, mut buf) = ([1u8; 64], [0u8; 64]);
    let (sent, room) = (iov(&mut data), iov(&mut buf));
    // SAFETY: the memory outlives the completions.
    unsafe { p.b.recv(&recv_op(None, 7, &room)) }.expect("receive");
    send_when_accepted(&p.a, &send_op(p.to_b, 7, &sent, SendMode::Acknowledged));
    assert_eq!(wait(&p.b, &p.a, Queue::Recv).result, Ok(()));
    // It says by its farewell that this came.
    p.b.close();
    assert_eq!(wait(&p.a, &p.a, Queue::Send).result, Ok(()));
}

#[test]
fn who_closes_waits_for_nothing_that_a_bad_network_has_yet_to_bring() {
    let faults = Some("rx_delay=60s".to_owned());
    let ep = open(EngineConfig { faults, linger: 2 * LIMIT, ..packets() });
    let port = u16::from_be_bytes([ep.name()[2], ep.name()[3]]);
    let stranger = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    stranger.send_to(&[0; 64], ("127.0.0.1", port)).expect("sent");
    let start = Instant::now();
    while counter(&ep, "faults_injected") == 0 {
        ep.progress();
        assert!(start.elapsed() < LIMIT, "it is not on its way");
    }
    let start = Instant::now();
    ep.close();
    assert!(start.elapsed() < LIMIT / 4, "{:?}", start.elapsed());
}
