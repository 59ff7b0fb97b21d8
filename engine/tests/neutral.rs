//! What the engine offers to faces that are not MPI's: peers that come by themselves, endpoints
//! that give each other turns, collectives.

mod common;

use common::{KEY, LIMIT, config, counter, iov, open, pattern, recv_op, send_op, told, wait};
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_engine::collective::{allreduce, barrier, bcast};
use weir_engine::{
    CarrierUse, Completion, DownReason, Endpoint, EngineConfig, EngineError, Group, OpError, PeerEvent, Queue,
    SendMode, SleepHere, StreamBits, Team, TeamError,
};

/// By packets and by shared memory.
fn carriers() -> [EngineConfig; 2] {
    [CarrierUse::Network, CarrierUse::Shm].map(|carrier| EngineConfig { carrier, ..config() })
}

fn events(ep: &Endpoint) -> Vec<PeerEvent> {
    let mut out = Vec::new();
    ep.peer_events(&mut out);
    out
}

fn until<T>(eps: &[&Endpoint], mut found: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(start.elapsed() < LIMIT, "{}", eps[0].counters_json());
        eps.iter().for_each(|ep| ep.progress());
    }
}

fn completion(ep: &Endpoint, other: &Endpoint) -> Completion {
    wait(ep, other, Queue::Both)
}

/// A client asks a server that does not know it, and is answered; the request's sender as the
/// server knows it.
fn asks(client: &Endpoint, to: u32, server: &Endpoint, n: u8) -> u32 {
    let (mut question, mut answer, mut heard, mut said) = ([n; 8], [0; 8], [0; 8], [n + 1; 8]);
    let (q, a, h, s) = (iov(&mut question), iov(&mut answer), iov(&mut heard), iov(&mut said));
    // SAFETY: all memory here outlives the completions that are waited for.
    unsafe { client.recv(&recv_op(Some(to), 2, &a)).expect("posted") };
    // SAFETY: as above.
    unsafe { client.send(&send_op(to, 1, &q, SendMode::Delivery)).expect("accepted") };
    // SAFETY: as above.
    unsafe { server.recv(&recv_op(None, 1, &h)).expect("posted") };
    let c = until(&[client, server], || {
        let mut out = Vec::new();
        server.poll(Queue::Recv, &mut out, 1);
        out.pop()
    });
    let from = c.source.expect("it was told of before");
    // SAFETY: as above.
    unsafe { server.send(&send_op(from, 2, &s, SendMode::Delivery)).expect("it can be answered") };
    for _ in 0..2 {
        assert_eq!(completion(client, server).result, Ok(()));
    }
    assert_eq!(completion(server, client).result, Ok(()));
    assert_eq!((heard, answer), ([n; 8], [n + 1; 8]));
    from
}

#[test]
fn a_stranger_is_told_of_answered_forgotten_and_may_come_again() {
    for cfg in carriers() {
        let server = open(EngineConfig { strangers_max: Some(4), ..cfg.clone() });
        let client = open(EngineConfig { strangers_max: Some(0), ..cfg });
        for n in [1, 11, 21] {
            let to = client.insert_peer(&server.name()).expect("name");
            let from = asks(&client, to, &server, n);
            assert_eq!(events(&server), [PeerEvent::Arrived { peer: from }]);
            assert_eq!(server.peer_name(from), None, "it was not inserted");
            until(&[&server, &client], || match server.forget_peer(from) {
                Ok(()) => Some(()),
                Err(EngineError::Again) => None,
                Err(e) => panic!("{e}"),
            });
            // Who forgets is not told; who is forgotten is.
            let gone = until(&[&client, &server], || events(&client).pop());
            assert_eq!(gone, PeerEvent::Down { peer: to, reason: DownReason::Closed });
            assert_eq!(events(&server), []);
            client.remove_peer(to);
        }
        assert_eq!(counter(&server, "strangers_refused"), 0);
    }
}

#[test]
fn strangers_beyond_the_bound_are_turned_away_and_a_place_that_comes_free_is_anothers() {
    for cfg in carriers() {
        let server = open(EngineConfig { strangers_max: Some(1), ..cfg.clone() });
        let clients = [0, 1, 2].map(|_| open(cfg.clone()));
        let to = clients.each_ref().map(|c| c.insert_peer(&server.name()).expect("name"));
        let first = asks(&clients[0], to[0], &server, 1);
        let mut data = pattern(8, 1);
        let piece = iov(&mut data);
        // SAFETY: the memory outlives the completion.
        unsafe { clients[1].send(&send_op(to[1], 1, &piece, SendMode::Match)).expect("accepted") };
        let refused = completion(&clients[1], &server);
        assert!(matches!(refused.result, Err(OpError::PeerDown(_))), "{refused:?}");
        assert_eq!(counter(&server, "strangers_refused"), 1);
        assert_eq!(events(&server), [PeerEvent::Arrived { peer: first }]);
        // The first one is there as ever; then it is gone, and another may come.
        asks(&clients[0], to[0], &server, 3);
        server.drop_peer(first);
        asks(&clients[2], to[2], &server, 5);
        assert_eq!(counter(&server, "strangers_refused"), 1);
    }
}

/// Whoever went while a completion names it keeps its place until that is taken, and no longer.
#[test]
fn who_is_gone_and_named_by_a_completion_may_come_again_once_that_is_taken() {
    for cfg in carriers() {
        let server = open(EngineConfig { strangers_max: Some(4), ..cfg.clone() });
        let client = open(EngineConfig { strangers_max: Some(0), ..cfg });
        let to = client.insert_peer(&server.name()).expect("name");
        let from = asks(&client, to, &server, 1);
        let mut buf = [0; 8];
        let piece = iov(&mut buf);
        // SAFETY: the memory outlives the completion.
        unsafe { server.recv(&recv_op(Some(from), 7, &piece)).expect("posted") };
        let mut data = pattern(8, 1);
        let message = iov(&mut data);
        // SAFETY: as above.
        unsafe { client.send(&send_op(to, 7, &message, SendMode::Match)).expect("accepted") };
        assert_eq!(completion(&client, &server).result, Ok(()));
        events(&server);
        client.drop_peer(to);
        let gone = until(&[&client, &server], || events(&server).pop());
        assert_eq!(gone, PeerEvent::Down { peer: from, reason: DownReason::Closed });
        server.remove_peer(from);
        let mut out = Vec::new();
        assert_eq!(server.poll(Queue::Recv, &mut out, 2), 1);
        assert_eq!((out[0].source, out[0].result), (Some(from), Ok(())));
        let to = client.insert_peer(&server.name()).expect("name");
        asks(&client, to, &server, 11);
    }
}

/// spec: P-9.16, and `spec/shm.md` 10, 11.
#[test]
fn who_drops_a_peer_and_comes_again_at_once_waits_until_it_is_forgotten() {
    for cfg in carriers() {
        let cfg = EngineConfig { dead_may_return: true, ..cfg };
        let server = open(EngineConfig { strangers_max: Some(4), ..cfg.clone() });
        let client = open(EngineConfig { strangers_max: Some(0), ..cfg });
        let to = client.insert_peer(&server.name()).expect("name");
        let from = asks(&client, to, &server, 1);
        assert_eq!(events(&server), [PeerEvent::Arrived { peer: from }]);
        client.drop_peer(to);
        let to = client.insert_peer(&server.name()).expect("name");
        let mut data = pattern(8, 1);
        let message = iov(&mut data);
        // SAFETY: the memory outlives the completion.
        unsafe { client.send(&send_op(to, 7, &message, SendMode::Match)).expect("accepted") };
        // The server's program hears of the end, and is slow to let go of who it was.
        let (start, mut heard) = (Instant::now(), Vec::new());
        let (mut looks, mut sleeps) = (0, 0);
        while start.elapsed() < Duration::from_millis(300) {
            let mut out = Vec::new();
            assert_eq!(client.poll(Queue::Both, &mut out, 1), 0, "{out:?}");
            server.progress();
            heard.extend(events(&server));
            looks += 1;
            sleeps += u32::from(matches!(server.sleep_here(LIMIT), SleepHere::For(_)));
        }
        assert_eq!(heard, [PeerEvent::Down { peer: from, reason: DownReason::Closed }]);
        assert!(sleeps > looks / 2, "whoever waits for the server could sleep {sleeps} times of {looks}");
        server.remove_peer(from);
        let mut buf = [0; 8];
        let piece = iov(&mut buf);
        // SAFETY: as above.
        unsafe { server.recv(&recv_op(None, 7, &piece)).expect("posted") };
        assert_eq!(completion(&client, &server).result, Ok(()));
        assert_eq!(buf[..], data[..]);
    }
}

#[test]
fn the_death_of_a_peer_is_told_of_before_its_operations_fail() {
    for cfg in carriers() {
        let a = open(EngineConfig { strangers_max: Some(1), ..cfg.clone() });
        let b = open(cfg);
        let to = b.insert_peer(&a.name()).expect("name");
        let from = asks(&b, to, &a, 1);
        assert_eq!(events(&a), [PeerEvent::Arrived { peer: from }]);
        let mut buf = [0; 8];
        let piece = iov(&mut buf);
        // SAFETY: the memory outlives the completion.
        unsafe { a.recv(&recv_op(Some(from), 7, &piece)).expect("posted") };
        drop(b);
        let mut out = Vec::new();
        until(&[&a], || (a.poll(Queue::Recv, &mut out, 1) > 0).then_some(()));
        assert_eq!(out[0].result, Err(OpError::PeerDown(DownReason::Closed)));
        assert_eq!(events(&a), [PeerEvent::Down { peer: from, reason: DownReason::Closed }]);
    }
}

/// Asks who lives at the first address of `of`, at this port.
fn ask(asker: &Endpoint, port: u16, other: &Endpoint) -> Result<[u8; 48], DownReason> {
    let ticket = asker.ask(&[std::net::SocketAddr::from(([127, 0, 0, 1], port))]).expect("room");
    until(&[asker, other], || {
        events(asker).into_iter().find_map(|event| match event {
            PeerEvent::Answer { ticket: of, found } if of == ticket => Some(found),
            _ => None,
        })
    })
}

fn port_of(ep: &Endpoint) -> u16 {
    u16::from_be_bytes([ep.name()[2], ep.name()[3]])
}

#[test]
fn who_lives_at_an_address_can_be_asked_and_is_then_reached_by_name() {
    for cfg in carriers() {
        let server = open(EngineConfig { strangers_max: Some(4), ..cfg.clone() });
        let client = open(EngineConfig { strangers_max: Some(0), ..cfg });
        let name = ask(&client, port_of(&server), &server).expect("it is there");
        assert_eq!(name[8..16], server.name()[8..16]);
        assert_eq!(events(&server), [], "nobody has come");
        let to = client.insert_peer(&name).expect("name");
        assert_eq!(client.insert_peer(&server.name()).expect("name"), to, "by either name it is one peer");
        let from = asks(&client, to, &server, 1);
        assert_eq!(events(&server), [PeerEvent::Arrived { peer: from }]);
        assert_eq!(client.peer_address(to).map(|a| a.port()), Some(port_of(&server)));
        // Where nobody is the network says so.
        let port = port_of(&server);
        server.close();
        drop(server);
        assert_eq!(ask(&client, port, &client), Err(DownReason::Unreachable));
    }
}

#[test]
fn a_send_that_nobody_has_asked_for_can_be_given_up_and_who_takes_it_later_is_told() {
    for cfg in carriers() {
        let [a, b] = [0, 1].map(|_| open(cfg.clone()));
        let to = a.insert_peer(&b.name()).expect("name");
        let back = b.insert_peer(&a.name()).expect("name");
        let (mut long, mut room, mut short, mut heard) = (pattern(4 << 20, 1), vec![0; 4 << 20], [7; 8], [0; 8]);
        let (l, r, s, h) = (iov(&mut long), iov(&mut room), iov(&mut short), iov(&mut heard));
        // SAFETY: all memory here outlives the completions that are waited for.
        unsafe { a.send(&send_op(to, 1, &l, SendMode::Transmit)).expect("accepted") };
        assert!(!a.cancel_send(usize::MAX), "there is none of this context");
        assert!(a.cancel_send(send_op(to, 1, &l, SendMode::Transmit).context));
        assert_eq!(completion(&a, &b).result, Err(OpError::Cancelled));
        long.fill(0);
        // SAFETY: as above.
        unsafe { b.recv(&recv_op(Some(back), 1, &r)).expect("posted") };
        assert_eq!(completion(&b, &a).result, Err(OpError::Cancelled));
        // Those behind it are as ever.
        // SAFETY: as above.
        unsafe { b.recv(&recv_op(Some(back), 2, &h)).expect("posted") };
        // SAFETY: as above.
        unsafe { a.send(&send_op(to, 2, &s, SendMode::Delivery)).expect("accepted") };
        assert_eq!(completion(&b, &a).result, Ok(()));
        assert_eq!(completion(&a, &b).result, Ok(()));
        assert_eq!(heard, short);
    }
}

#[test]
fn a_message_that_nobody_posted_for_wakes_who_wants_to_know() {
    for cfg in carriers() {
        for wants in [true, false] {
            let server = open(EngineConfig { tell_unasked: wants, ..cfg.clone() });
            let client = open(cfg.clone());
            let to = client.insert_peer(&server.name()).expect("name");
            let mut data = pattern(8, 1);
            let piece = iov(&mut data);
            // SAFETY: the memory outlives the completion.
            unsafe { client.send(&send_op(to, 1, &piece, SendMode::Delivery)).expect("accepted") };
            assert_eq!(completion(&client, &server).result, Ok(()));
            assert_eq!(server.arm(), !wants);
            let look = weir_engine::PeekOp {
                source: None,
                class: weir_engine::Class::Tagged,
                tag: 1,
                ignore: 0,
                claim: false,
                discard: false,
                context: 0,
            };
            assert!(server.peek(&look).expect("it can be looked for").is_some());
            assert!(server.arm(), "it was looked for");
        }
    }
}

#[test]
fn endpoints_whose_tags_mean_other_things_refuse_each_other() {
    for cfg in carriers() {
        let a = open(EngineConfig { stream_bits: StreamBits(0xff), ..cfg.clone() });
        let b = open(EngineConfig { connect_timeout: Duration::from_secs(2), ..cfg });
        let to = b.insert_peer(&a.name()).expect("name");
        let mut data = pattern(8, 1);
        let piece = iov(&mut data);
        // SAFETY: the memory outlives the completion.
        unsafe { b.send(&send_op(to, 1, &piece, SendMode::Delivery)).expect("accepted") };
        let c = completion(&b, &a);
        assert!(matches!(c.result, Err(OpError::PeerDown(_))), "{c:?}");
    }
}

/// `peer` sends to `idle`, whose program polls `polled` only. Whether it has arrived after so many
/// polls.
fn arrives(polled: &Endpoint, idle: &Endpoint, peer: &Endpoint, polls: usize) -> bool {
    let to = peer.insert_peer(&idle.name()).expect("name");
    // Long enough to need answers of the other side, and to be under way when it is given up.
    let mut data = pattern(300_000, 3);
    let piece = iov(&mut data);
    let mut room = vec![0; data.len()];
    let into = iov(&mut room);
    // SAFETY: the memory outlives the endpoints' use of it: the completion, or their closing below.
    unsafe { idle.recv(&recv_op(None, 1, &into)).expect("posted") };
    // SAFETY: as above.
    unsafe { peer.send(&send_op(to, 1, &piece, SendMode::Delivery)).expect("accepted") };
    let mut out = Vec::new();
    let arrived = (0..polls).any(|_| {
        polled.poll(Queue::Both, &mut out, 8);
        peer.poll(Queue::Both, &mut out, 8);
        std::thread::yield_now();
        !out.is_empty()
    });
    if !arrived {
        // Nothing of the memory may be used behind this.
        [peer, idle].iter().for_each(|ep| ep.close());
    }
    arrived && out[0].result.is_ok()
}

#[test]
fn who_polls_one_endpoint_of_a_group_makes_progress_on_the_others() {
    for cfg in carriers() {
        // No watchdog: what nobody polls stands still.
        let cfg = EngineConfig { watchdog_us: 0, linger: Duration::from_millis(10), ..cfg };
        let [polled, idle, peer] = [0, 1, 2].map(|_| open(cfg.clone()));
        let group = Group::new();
        [&polled, &idle].iter().for_each(|ep| ep.join(&group));
        assert!(arrives(&polled, &idle, &peer, usize::MAX));
        assert!(counter(&idle, "turns") > 0 && counter(&idle, "watchdog_steps") == 0);
        assert_eq!(counter(&polled, "turns"), 0, "it is polled");
        // One that is closed is in nobody's way.
        idle.close();
        polled.progress();

        let [polled, idle, peer] = [0, 1, 2].map(|_| open(cfg.clone()));
        assert!(!arrives(&polled, &idle, &peer, 3000), "without a group it stands still");
    }
}

#[test]
fn an_endpoint_that_is_polled_by_its_program_is_given_no_turns() {
    let cfg = EngineConfig { watchdog_us: 0, ..config() };
    let [a, b] = [0, 1].map(|_| open(cfg.clone()));
    let group = Group::new();
    [&a, &b].iter().for_each(|ep| ep.join(&group));
    let mut out = Vec::new();
    let mut most = 0;
    for _ in 0..1000 {
        let start = Instant::now();
        for ep in [&a, &b] {
            ep.poll(Queue::Both, &mut out, 1);
        }
        // Only what the scheduler did to this thread makes an endpoint look left alone.
        most += usize::from(start.elapsed() > Duration::from_micros(25));
    }
    let turns = counter(&a, "turns") + counter(&b, "turns");
    assert!(turns <= 2 * most as u64 + 2, "{turns} turns, {most} interruptions");
}

const TAG: u64 = 1 << 63;

/// Runs `part` as each member of a team of `n`, each in a thread of its own.
fn teams<T: Send>(n: usize, cfg: &EngineConfig, part: impl Fn(Team) -> T + Sync) -> Vec<T> {
    let eps: Vec<Arc<Endpoint>> =
        (0..n).map(|_| Endpoint::open_told(cfg.clone(), KEY, told()).expect("open")).collect();
    let names: Vec<_> = eps.iter().map(|ep| ep.name()).collect();
    std::thread::scope(|s| {
        let (names, part) = (&names, &part);
        let all: Vec<_> = eps
            .iter()
            .enumerate()
            .map(|(own, ep)| s.spawn(move || part(Team::new(ep.clone(), names, own, TAG, 9).expect("names"))))
            .collect();
        all.into_iter().map(|t| t.join().expect("a member")).collect()
    })
}

#[test]
fn a_team_has_barriers_broadcasts_and_sums() {
    for cfg in carriers() {
        for n in [1, 2, 3, 5] {
            let sums = teams(n, &cfg, |team| {
                let own = weir_engine::collective::Group::own(&team) as u64;
                let (mut sums, mut wire) = ([0; 3], [0; 24]);
                let mut long = pattern(if own == 1 { 100_000 } else { 0 }, 9);
                long.resize(100_000, 0);
                for _ in 0..10 {
                    barrier(&team).expect("all are there");
                    allreduce(&team, &[own, 1, own * own], &mut sums, &mut wire, |a, b| a + b).expect("all are there");
                }
                if n > 1 {
                    bcast(&team, 1, &mut long).expect("all are there");
                    assert_eq!(long, pattern(100_000, 9));
                }
                barrier(&team).expect("all are there");
                sums
            });
            let want = (0..n as u64).fold([0; 3], |[a, b, c], i| [a + i, b + 1, c + i * i]);
            assert_eq!(sums, vec![want; n]);
        }
    }
}

#[test]
fn when_a_member_leaves_all_others_hear_of_it_also_those_that_wait_for_somebody_else() {
    for cfg in carriers() {
        let got = teams(5, &cfg, |team| {
            barrier(&team).expect("all are there");
            if weir_engine::collective::Group::own(&team) == 3 {
                team.endpoint().close();
                return Ok(());
            }
            // Each round of it waits for another one.
            (0..10).try_for_each(|_| barrier(&team))
        });
        for (rank, result) in got.iter().enumerate().filter(|(rank, _)| *rank != 3) {
            let is_heard = matches!(result, Err(TeamError::Gone { rank: 3, .. } | TeamError::Failed { .. }));
            assert!(is_heard, "rank {rank}: {result:?}");
        }
    }
}

#[test]
fn members_that_do_not_call_the_same_are_told() {
    let got = teams(2, &config(), |team| {
        let mut data = vec![0; if weir_engine::collective::Group::own(&team) == 0 { 8 } else { 9 }];
        bcast(&team, 0, &mut data).and_then(|()| barrier(&team))
    });
    assert_eq!(got[1], Err(TeamError::Length { rank: 0, sent: 8, wanted: 9 }));
    assert_eq!(got[0], Err(TeamError::Failed { rank: 1 }));
}
