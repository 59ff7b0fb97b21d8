//! XDP between two hosts in network namespaces: needs root, iproute2 and a kernel with AF_XDP.
//! Where one is missing the tests are reported as ignored.

mod common;

use common::{
    Both, Host, LIMIT, arrived, by_xdp, collect, exchange, expect, hosts, hosts_with, now_ns, send, until_by_xdp,
};
use socket2::{Domain, Protocol, Socket, Type};
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};
use weir_net::Datagrams;
use weir_xdp::frame::Template;
use weir_xdp::{Broker, Mode, Program};

/// What the program answers.
const PASS: u32 = 2;
const REDIRECT: u32 = 4;

fn main() -> std::process::ExitCode {
    common::main(&[
        (
            "the_program_takes_what_is_steered_and_passes_all_else",
            the_program_takes_what_is_steered_and_passes_all_else,
        ),
        ("short_datagrams_go_by_xdp_both_ways", short_datagrams_go_by_xdp_both_ways),
        ("the_program_for_rings_takes_the_same_and_never_what_has_no_room", the_program_for_rings_takes_the_same),
        ("datagrams_come_by_the_ring_both_ways", datagrams_come_by_the_ring_both_ways),
        ("what_is_lost_is_lost_for_the_ring_too", what_is_lost_is_lost_for_the_ring_too),
        ("any_number_of_ranks_have_rings_and_a_full_one_loses_nothing", any_number_of_ranks_have_rings),
        ("what_was_sent_together_arrives_as_it_was_sent", what_was_sent_together_arrives_as_it_was_sent),
        ("what_waits_for_who_was_away_comes_in_order", what_waits_for_who_was_away_comes_in_order),
        ("who_sleeps_is_woken_by_the_ring", who_sleeps_is_woken_by_the_ring),
        ("garbage_in_one_ranks_ring_harms_no_other", garbage_in_one_ranks_ring_harms_no_other),
        ("ipv6_too", ipv6_too),
        ("vlans_too", vlans_too),
        ("another_programs_traffic_passes", another_programs_traffic_passes),
        ("a_peer_without_xdp_notices_nothing", a_peer_without_xdp_notices_nothing),
        ("a_batch_goes_one_way_in_order", a_batch_goes_one_way_in_order),
        ("a_detached_program_costs_nothing_but_speed", a_detached_program_costs_nothing_but_speed),
        ("a_detached_program_is_attached_anew_for_all_when_one_asks", a_detached_program_is_attached_anew),
        ("an_interface_may_go_down_and_up", an_interface_may_go_down_and_up),
        ("an_interface_that_is_gone_leaves_the_rest_alone", an_interface_that_is_gone_leaves_the_rest_alone),
        ("a_route_that_leads_elsewhere_is_followed", a_route_that_leads_elsewhere_is_followed),
        ("a_neighbour_that_changes_its_address_is_found_again", a_neighbour_that_changes_its_address_is_found_again),
        ("a_second_program_is_refused_and_udp_serves", a_second_program_is_refused_and_udp_serves),
        ("a_slow_receiver_loses_no_more_than_the_ring_lacks", a_slow_receiver_loses_no_more_than_the_ring_lacks),
        ("garbage_on_the_wire_is_counted_and_dropped", garbage_on_the_wire_is_counted_and_dropped),
        ("garbage_in_one_ranks_rings_harms_no_other", garbage_in_one_ranks_rings_harms_no_other),
    ])
}

fn frame(own: SocketAddr, remote: SocketAddr, len: usize) -> Vec<u8> {
    let mut frame = vec![0; 2048];
    let t = Template::new([2; 6], [4; 6], own, remote).expect("one family");
    let len = t.write::<&[u8]>(&mut frame, &vec![7; len], &[]).expect("it fits");
    frame.truncate(len);
    frame
}

fn the_program_takes_what_is_steered_and_passes_all_else() {
    let program = Program::load(true).expect("the kernel's verifier takes it");
    let xsk = Socket::new(Domain::from(libc::AF_XDP), Type::RAW, None).expect("a socket");
    let xsk: std::os::fd::OwnedFd = xsk.into();
    program.set_socket(0, &xsk).expect("a place in the table");
    let from: SocketAddr = ([10, 0, 0, 9], 5).into();
    let to: SocketAddr = ([10, 0, 0, 1], 4000).into();
    let (from6, to6): (SocketAddr, SocketAddr) =
        ("[fd00::9]:5".parse().expect("an address"), "[fd00::1]:4000".parse().expect("an address"));
    program.steer(to, 0, 100).expect("room");
    program.steer(to6, 0, 100).expect("room");
    let run = |bytes: &[u8]| program.try_on(bytes, 1).expect("it runs").0;
    // Mapped, as a key is: an IPv6 packet to a mapped address is another's all the same, and such
    // packets are not on any wire.
    for (from, to) in [(from, to), (from6, to6)] {
        assert_eq!(run(&frame(from, to, 100)), REDIRECT, "{to}");
        assert_eq!(run(&frame(from, to, 0)), REDIRECT, "{to}: an empty one");
        assert_eq!(run(&frame(from, to, 101)), PASS, "{to}: longer than wanted");
        assert_eq!(run(&frame(from, SocketAddr::new(to.ip(), 4001), 10)), PASS, "{to}: another port");
        assert_eq!(run(&frame(to, from, 10)), PASS, "{to}: another host");
        let good = frame(from, to, 10);
        // The type of the frame; version and header length; the protocol; the flags of IPv4, or the
        // next header of IPv6 by its neighbour.
        let at_protocol = if to.is_ipv4() { 23 } else { 20 };
        for (at, value) in [(12, 0x81), (13, 0x06), (14, 0x46), (14, 0x55), (at_protocol, 6), (at_protocol, 44)] {
            let mut other = good.clone();
            other[at] = value;
            if other != good && !(to.is_ipv6() && at == 14 && value >> 4 == 6) {
                assert_eq!(run(&other), PASS, "{to}: byte {at} is {value:#x}");
            }
        }
        for len in 14..if to.is_ipv4() { 42 } else { 62 } {
            assert_eq!(run(&good[..len]), PASS, "{to}: cut at {len}");
        }
    }
    for fragment in [[0x20, 0], [0, 1], [0x1f, 0xff], [0x60, 0]] {
        let mut f = frame(from, to, 10);
        f[20..22].copy_from_slice(&fragment);
        assert_eq!(run(&f), PASS, "a fragment {fragment:?}");
    }
    // A VLAN tag before all that.
    let mut tagged = frame(from, to, 10);
    tagged.splice(12..12, [0x81, 0x00, 0x00, 0x05]);
    assert_eq!(run(&tagged), PASS, "another network's");
    program.steer(to, 1, 100).expect("room");
    assert_eq!(run(&frame(from, to, 10)), PASS, "another queue's");
    program.steer_no_more(to6);
    assert_eq!(run(&frame(from6, to6, 10)), PASS, "not steered any more");
}

fn the_program_for_rings_takes_the_same() {
    /// What it answers.
    const NEXT: u32 = u32::MAX;
    const TAKEN: u32 = 2;
    let program = Program::load_for_rings().expect("the kernel's verifier takes it");
    let ring = weir_xdp::Ring::new().expect("a ring");
    program.set_rings(&[(3, &ring.ring, &ring.bell)]).expect("a place");
    let from: SocketAddr = ([10, 0, 0, 9], 5).into();
    let to: SocketAddr = ([10, 0, 0, 1], 4000).into();
    program.steer(to, 3, 1400).expect("room");
    // (To the Ethernet address of loopback, which such a run is on.)
    let frame = |to, len: usize| {
        let mut frame = vec![0; 2048];
        let t = Template::new([2; 6], [0; 6], from, to).expect("one family");
        let len = t.write::<&[u8]>(&mut frame, &vec![7; len], &[]).expect("it fits");
        frame.truncate(len);
        frame
    };
    let run = |bytes: &[u8]| program.try_on(bytes, 1).expect("it runs").0;
    for len in [0, 1, 100, 206, 207, 1000, 1400] {
        assert_eq!(run(&frame(to, len)), TAKEN, "{len} bytes");
    }
    assert_eq!(run(&frame(to, 1401)), NEXT, "longer than wanted");
    assert_eq!(run(&frame(SocketAddr::new(to.ip(), 1), 10)), NEXT, "another port");
    let mut other = frame(to, 10);
    other[0] = 4;
    assert_eq!(run(&other), NEXT, "another host's Ethernet address");
    let mut fragment = frame(to, 10);
    fragment[20] = 0x20;
    assert_eq!(run(&fragment), NEXT);
    // Until the ring is full; nobody reads.
    let long = frame(to, 1400);
    let taken = (0..2000).take_while(|_| run(&long) == TAKEN).count();
    assert!((1300..1400).contains(&taken), "{taken} records of 1552 bytes in two mebibytes");
    program.remove_ring(3);
    assert_eq!(run(&frame(to, 10)), NEXT, "no ring is there");
}

/// The same as [`until_by_xdp`] for rings, by which nothing is sent.
fn until_by_ring(a: &mut Both, b: &mut Both) {
    let end = Instant::now() + LIMIT;
    let before = [by_xdp(a).1, by_xdp(b).1];
    while by_xdp(a).1 == before[0] || by_xdp(b).1 == before[1] {
        exchange(a, b, 0);
        assert!(Instant::now() < end, "the ring brings nothing: {:?} {:?}", a.counters(), b.counters());
    }
}

fn datagrams_come_by_the_ring_both_ways() {
    for six in [false, true] {
        let [ha, hb] = hosts();
        let [mut a, mut b] = [&ha, &hb].map(|h| h.open_at(if six { h.six } else { h.ip }, Broker::new(Mode::Ring)));
        until_by_ring(&mut a, &mut b);
        for n in 0..1000 {
            exchange(&mut a, &mut b, n);
        }
        for end in [&a, &b] {
            assert!(by_xdp(end).1 > 900 && by_xdp(end).0 == 0, "{:?}", end.counters());
            assert!(end.device().counters().connects > 0, "the second socket serves who writes most");
        }
        let to = b.local_addrs()[0];
        for len in [1400, if six { 1452 } else { 1472 }] {
            let (long, before) = (vec![9; len], by_xdp(&b).1);
            send(&mut a, to, &long);
            expect(&mut b, &long);
            assert_eq!(by_xdp(&b).1, before + 1, "{len} bytes, up to all that a packet holds");
        }
        // Detached by another tool: all by the socket.
        let interface = a.place().expect("a ring").1.index;
        a.broker().expect("our own").detach_unasked(interface).expect("detached");
        let before = by_xdp(&a).1;
        (0..100).for_each(|n| exchange(&mut a, &mut b, n));
        assert_eq!(by_xdp(&a).1, before);
    }
}

/// Ranks of one broker on one host; the first holds it.
fn ranks(host: &Host, count: usize) -> Vec<(Both, std::os::fd::OwnedFd)> {
    let ip = host.ip;
    host.run(move || {
        let mut broker = Broker::new(Mode::Ring);
        let interface = weir_xdp::interface_of(ip).expect("asked").expect("there");
        let ask = weir_xdp::Ask { interface, most: weir_xdp::MOST };
        let mut all = Vec::new();
        for _ in 0..count {
            let udp = common::udp(ip);
            let (_, bound) = broker.grant(common::owned(&udp), ask).expect("a ring");
            all.push((udp, bound));
        }
        let mut broker = Some(broker);
        let open = |(udp, bound): (weir_udp::UdpTransport, weir_xdp::Bound)| {
            let port = weir_xdp::Port { port: udp.local_addrs()[0].port(), tells_local: udp.tells_local() };
            let ring = bound.socket.try_clone().expect("a descriptor");
            let holder = broker.take().unwrap_or_else(|| Broker::new(Mode::Ring));
            let mut pair = weir_xdp::Pair::alone(udp);
            pair.add(bound, weir_xdp::Holder::Own(Box::new(holder)), port).expect("used");
            (pair, ring)
        };
        all.into_iter().map(open).collect()
    })
}

fn what_is_lost_is_lost_for_the_ring_too() {
    const SENT: u64 = 20_000;
    let [ha, hb] = hosts();
    let (mut a, mut b) = (ha.open(Mode::Ring), hb.open(Mode::Ring));
    until_by_ring(&mut a, &mut b);
    // It stands in front, though it came later.
    let ip = ha.ip;
    let start = move |part| weir_xdp::Loss::new(weir_xdp::interface_of(ip).expect("asked").expect("there"), part);
    let loss = ha.run(move || start(0.05).expect("a program"));
    let (to, before) = (a.local_addrs()[0], by_xdp(&a).1);
    let mut got = 0;
    for n in 0..SENT {
        send(&mut b, to, &n.to_le_bytes());
        got += arrived(&mut a).len() as u64;
    }
    let by_ring = by_xdp(&a).1 - before;
    let lost = loss.dropped();
    assert_eq!(got, by_ring, "by the ring alone");
    // (Hosts ask for each other now and then, and such a packet may be lost, too.)
    let others = lost.checked_sub(SENT - got).expect("all that was not lost came");
    assert!(others < 10, "{others} that were lost were not ours");
    assert!((SENT / 25..SENT / 16).contains(&lost), "{lost} of {SENT} were lost, a twentieth was asked for");
    drop(loss);
    for part in [0.0, 1.0] {
        let loss = ha.run(move || start(part).expect("a program"));
        send(&mut b, to, b"there or not");
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!((arrived(&mut a).len(), loss.dropped()), if part == 0.0 { (1, 0) } else { (0, 1) });
    }
}

fn any_number_of_ranks_have_rings() {
    let [ha, hb] = hosts();
    let mut all = ranks(&ha, 20);
    let mut b = hb.open(Mode::Ring);
    for (rank, _) in &mut all {
        until_by_ring(rank, &mut b);
    }
    // More than a ring holds, to one that does not look: what finds no room goes to its socket.
    let to = all[7].0.local_addrs()[0];
    const SENT: u32 = 9000;
    for n in 0..SENT {
        send(&mut b, to, &n.to_le_bytes());
    }
    let before = by_xdp(&all[7].0).1;
    let got = collect(&mut all[7].0, |got| got.len() >= SENT as usize);
    let mut numbers: Vec<&[u8]> = got.iter().map(|(_, bytes)| &bytes[..]).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let by_ring = by_xdp(&all[7].0).1 - before;
    assert!(numbers.len() == SENT as usize && (4000..8500).contains(&by_ring), "{by_ring} by the ring");
    for (rank, _) in &mut all {
        exchange(rank, &mut b, 3);
    }
}

/// What was sent together (UDP GSO) is one frame for the program, with one UDP length.
fn what_was_sent_together_arrives_as_it_was_sent() {
    let [ha, hb] = hosts();
    let (mut a, mut b) = (ha.open(Mode::Ring), hb.open(Mode::Ring));
    until_by_ring(&mut a, &mut b);
    together(&mut a, &mut b);
    // An XDP program cannot tell such a frame from one long datagram: what would be short enough
    // for it is not sent together.
    let (mut a, mut b) = (ha.plain(), hb.open(Mode::Generic));
    together(&mut a, &mut b);
}

fn together(a: &mut Both, b: &mut Both) {
    let to = b.local_addrs()[0];
    for (len, last, count) in [(300, 300, 2), (300, 100, 4), (700, 600, 2), (1400, 1400, 30), (1400, 20, 2)] {
        let mut sent = Vec::new();
        for n in 0..count {
            let bytes = vec![n as u8; if n + 1 == count { last } else { len }];
            a.push::<&[u8]>(now_ns(), (to, None), &bytes, &[]);
            sent.push(bytes);
        }
        a.flush(now_ns());
        let got = collect(b, |got| got.len() >= count);
        assert!(got.into_iter().map(|(_, bytes)| bytes).eq(sent), "{count} of {len} bytes");
    }
    assert!(a.device().counters().tx_super_packets > 0, "{:?}", a.device().counters());
}

/// What found no room in the ring came later than what did.
fn what_waits_for_who_was_away_comes_in_order() {
    let [ha, hb] = hosts();
    let (mut a, mut b) = (ha.open(Mode::Ring), hb.open(Mode::Ring));
    until_by_ring(&mut a, &mut b);
    let to = b.local_addrs()[0];
    for _ in 0..2 {
        let (before, sent) = (by_xdp(&b).1, 2000u32);
        let mut datagram = vec![0; 1400];
        for n in 0..sent {
            datagram[..4].copy_from_slice(&n.to_le_bytes());
            send(&mut a, to, &datagram);
        }
        let got = collect(&mut b, |got| got.len() >= sent as usize);
        let numbers = got.iter().map(|(_, bytes)| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]));
        assert!(numbers.eq(0..sent), "in order");
        let by_ring = by_xdp(&b).1 - before;
        assert!((1300..1400).contains(&by_ring), "{by_ring} by the ring, the rest by the socket");
    }
}

fn who_sleeps_is_woken_by_the_ring() {
    let [ha, hb] = hosts();
    let (mut a, mut b) = (ha.open(Mode::Ring), hb.open(Mode::Ring));
    until_by_ring(&mut a, &mut b);
    let (to, fds) = (b.local_addrs()[0], b.wake_sources());
    for n in 0..50u32 {
        while !b.prepare_sleep() {
            arrived(&mut b);
        }
        let sleeper = std::thread::spawn(move || {
            let mut set = fds.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
            // SAFETY: three live entries.
            unsafe { libc::poll(set.as_mut_ptr(), 3, 60_000) }
        });
        // Asleep, or nearly.
        std::thread::sleep(Duration::from_millis(u64::from(n % 3)));
        send(&mut a, to, &n.to_le_bytes());
        assert_eq!(sleeper.join().expect("a thread"), 1, "nobody woke it");
        expect(&mut b, &n.to_le_bytes());
    }
}

fn garbage_in_one_ranks_ring_harms_no_other() {
    use std::os::fd::AsRawFd;
    let [ha, hb] = hosts();
    let mut all = ranks(&ha, 2);
    let (mut b, ring) = (hb.open(Mode::Ring), all[1].1.as_raw_fd());
    until_by_ring(&mut all[0].0, &mut b);
    until_by_ring(&mut all[1].0, &mut b);
    let map = |offset, protection| {
        // SAFETY: a new mapping of one page.
        unsafe { libc::mmap(std::ptr::null_mut(), 4096, protection, libc::MAP_SHARED, ring, offset) }
    };
    for offset in [4096, 8192] {
        assert_eq!(map(offset, libc::PROT_READ | libc::PROT_WRITE), libc::MAP_FAILED, "the kernel's part");
    }
    let own = map(0, libc::PROT_READ | libc::PROT_WRITE);
    assert_ne!(own, libc::MAP_FAILED);
    for position in [u64::MAX, 0, 12345, 1 << 40] {
        // SAFETY: the first word of the page just mapped.
        unsafe { own.cast::<u64>().write_volatile(position) };
        for n in 0..100 {
            exchange(&mut all[0].0, &mut b, n);
            // That one's datagrams are lost, or come by its socket.
            let to = all[1].0.local_addrs()[0];
            send(&mut b, to, b"to the bad one");
            arrived(&mut all[1].0);
        }
    }
    until_by_ring(&mut all[0].0, &mut b);
}

fn short_datagrams_go_by_xdp_both_ways() {
    for mode in [Mode::Generic, Mode::Native] {
        let [ha, hb] = hosts();
        let (mut a, mut b) = (ha.open(mode), hb.open(mode));
        until_by_xdp(&mut a, &mut b);
        for n in 0..1000 {
            exchange(&mut a, &mut b, n);
        }
        let ((tx_a, rx_a), (tx_b, rx_b)) = (by_xdp(&a), by_xdp(&b));
        // (One in a second goes by the socket, and more where this machine does much else and
        // things are repeated.)
        assert!(tx_a > 900 && tx_b > 900 && rx_a > 900 && rx_b > 900, "{mode:?}: {tx_a} {rx_a} {tx_b} {rx_b}");
        // A long one by the socket.
        let long: Vec<u8> = (0..1400u32).map(|n| n as u8).collect();
        let to = b.local_addrs()[0];
        let before = by_xdp(&b).1;
        send(&mut a, to, &long);
        assert_eq!(expect(&mut b, &long), a.local_addrs()[0]);
        assert_eq!(by_xdp(&b).1, before, "{mode:?}");
    }
}

fn ipv6_too() {
    let [ha, hb] = hosts();
    let [mut a, mut b] = [&ha, &hb].map(|h| h.open_at(h.six, Broker::new(Mode::Generic)));
    until_by_xdp(&mut a, &mut b);
}

fn vlans_too() {
    let [ha, hb] = hosts();
    let mut pairs = Vec::new();
    for (host, last) in [(&ha, 1), (&hb, 2)] {
        let name = host.name;
        host.ip(&format!("link add link {name} name {name}.5 type vlan id 5"));
        host.ip(&format!("link set {name}.5 up"));
        host.ip(&format!("addr add 10.78.0.{last}/24 dev {name}.5"));
        pairs.push(host.open_at([10, 78, 0, last].into(), Broker::new(Mode::Generic)));
    }
    let [a, b] = &mut pairs[..] else { panic!("two") };
    until_by_xdp(a, b);
}

/// Sends one megabyte to a program that sends it back.
fn tcp_echo(from: &Host, at: &Host) {
    const BYTES: usize = 1 << 20;
    let ip = at.ip;
    let listener = at.run(move || TcpListener::bind((ip, 0)).expect("a port"));
    let to = listener.local_addr().expect("bound");
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let mut all = vec![0; BYTES];
        stream.read_exact(&mut all).expect("all of it");
        stream.write_all(&all).expect("all of it");
    });
    from.run(move || {
        let mut stream = TcpStream::connect(to).expect("a connection");
        let sent: Vec<u8> = (0..BYTES).map(|n| (n / 7) as u8).collect();
        stream.write_all(&sent).expect("all of it");
        let mut back = vec![0; BYTES];
        stream.read_exact(&mut back).expect("all of it");
        assert!(sent == back, "what came back is not what was sent");
    });
    server.join().expect("the server");
}

/// One ICMP echo and its answer.
fn ping(from: &Host, to: IpAddr) {
    from.run(move || {
        let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::ICMPV4)).expect("root");
        socket.set_read_timeout(Some(LIMIT)).expect("an option");
        // Echo request, number 1 of 0x7777, with its checksum.
        let request = [8, 0, 0x80, 0x87, 0x77, 0x77, 0, 1];
        socket.send_to(&request, &SocketAddr::new(to, 0).into()).expect("sent");
        let mut answer = [std::mem::MaybeUninit::new(0); 128];
        let n = socket.recv(&mut answer).expect("an answer");
        // SAFETY: made of zeros.
        let answer: Vec<u8> = answer[..n].iter().map(|b| unsafe { b.assume_init() }).collect();
        assert_eq!((n, answer[20], &answer[24..28]), (28, 0, &[0x77, 0x77, 0, 1][..]), "an echo reply");
    });
}

fn another_programs_traffic_passes() {
    for mode in [Mode::Ring, Mode::Generic, Mode::Native] {
        let [ha, hb] = hosts();
        let (mut a, mut b) = (ha.open(mode), hb.open(mode));
        if mode == Mode::Ring {
            until_by_ring(&mut a, &mut b)
        } else {
            until_by_xdp(&mut a, &mut b)
        }
        let before = [by_xdp(&a), by_xdp(&b)];
        ping(&ha, hb.ip);
        tcp_echo(&ha, &hb);
        // Another port's datagrams, in both families.
        for (from, to) in [(ha.ip, hb.ip), (ha.six, hb.six)] {
            let one = ha.run(move || std::net::UdpSocket::bind((from, 0)).expect("a port"));
            let other = hb.run(move || std::net::UdpSocket::bind((to, 0)).expect("a port"));
            other.set_read_timeout(Some(LIMIT)).expect("an option");
            one.send_to(b"other", other.local_addr().expect("bound")).expect("sent");
            let mut got = [0; 9];
            assert_eq!(other.recv(&mut got).expect("it comes"), 5);
        }
        assert_eq!([by_xdp(&a), by_xdp(&b)], before, "{mode:?}: none of that is ours");
        exchange(&mut a, &mut b, 1);
    }
}

fn a_peer_without_xdp_notices_nothing() {
    let [ha, hb] = hosts();
    let (mut a, mut b) = (ha.open(Mode::Generic), hb.plain());
    for n in 0..200 {
        exchange(&mut a, &mut b, n);
        std::thread::sleep(Duration::from_micros(100));
    }
    let (tx, rx) = by_xdp(&a);
    assert!(tx > 0 && rx > 0, "what a short one is steered by is its port, however it was sent: {tx} {rx}");
}

fn a_batch_goes_one_way_in_order() {
    let [ha, hb] = hosts();
    let (mut a, mut b) = (ha.open(Mode::Generic), hb.plain());
    until_sending_by_xdp(&mut a, &mut b);
    let to = b.local_addrs()[0];
    for longs in [0, 1, 40] {
        std::thread::sleep(Duration::from_millis(2));
        let before = a.counters().expect("XDP").tx_datagrams;
        let now = now_ns();
        let mut sent = Vec::new();
        let lengths = [10, 20, 30].into_iter().chain(std::iter::repeat_n(1300, longs)).chain([40]);
        for (n, len) in lengths.enumerate() {
            let bytes = vec![n as u8; len];
            a.push::<&[u8]>(now, (to, None), &bytes[..5], &[&bytes[5..]]);
            sent.push(bytes);
        }
        a.flush(now_ns());
        let got = collect(&mut b, |got| got.len() >= sent.len());
        assert!(got.into_iter().map(|(_, bytes)| bytes).eq(sent), "in order");
        let by_xdp = a.counters().expect("XDP").tx_datagrams - before;
        assert!(by_xdp == if longs == 0 { 4 } else { 0 } || by_xdp == 0, "{longs} long ones: {by_xdp} by XDP");
    }
}

/// The same as [`until_by_xdp`] for one way.
fn until_sending_by_xdp(a: &mut Both, b: &mut Both) {
    let end = Instant::now() + LIMIT;
    while by_xdp(a).0 == 0 {
        exchange(a, b, 0);
        assert!(Instant::now() < end, "{:?}", a.counters());
    }
}

fn a_detached_program_costs_nothing_but_speed() {
    let [ha, hb] = hosts();
    let (mut a, mut b) = (ha.open(Mode::Generic), hb.open(Mode::Generic));
    until_by_xdp(&mut a, &mut b);
    let interface = a.place().expect("XDP").1.index;
    a.broker().expect("our own").detach_unasked(interface).expect("detached");
    let before = by_xdp(&a);
    for n in 0..200 {
        exchange(&mut a, &mut b, n);
    }
    let after = by_xdp(&a);
    assert_eq!(after.1, before.1, "all comes by the socket");
    assert!(after.0 > before.0, "and leaves by XDP");
}

fn a_detached_program_is_attached_anew() {
    let [ha, hb] = hosts();
    let ip = ha.ip;
    for mode in [Mode::Ring, Mode::Generic] {
        let (mut first, second) = ha.run(move || {
            let interface = weir_xdp::interface_of(ip).expect("asked").expect("there");
            let ask = weir_xdp::Ask { interface, most: weir_xdp::MOST };
            let (udp, other) = (common::udp(ip), common::udp(ip));
            let mut broker = Broker::new(mode);
            let (_, bound) = broker.grant(common::owned(&udp), ask).expect("a ring");
            broker.detach_unasked(interface).expect("detached");
            let second = broker.grant(common::owned(&other), ask).map(|(_, bound)| bound.layout.queue);
            let port = weir_xdp::Port { port: udp.local_addrs()[0].port(), tells_local: udp.tells_local() };
            let mut pair = weir_xdp::Pair::alone(udp);
            pair.add(bound, weir_xdp::Holder::Own(Box::new(broker)), port).expect("used");
            (pair, second)
        });
        // (The interface has one queue.)
        assert_eq!(second.ok(), (mode == Mode::Ring).then_some(1));
        let mut b = hb.open(mode);
        until_by_ring(&mut first, &mut b);
    }
}

fn an_interface_may_go_down_and_up() {
    let [ha, hb] = hosts();
    let (mut a, mut b) = (ha.open(Mode::Generic), hb.open(Mode::Generic));
    until_by_xdp(&mut a, &mut b);
    for down in [&ha, &hb] {
        down.ip(&format!("link set {} down", down.name));
        let (to_a, to_b) = (a.local_addrs()[0], b.local_addrs()[0]);
        for _ in 0..50 {
            send(&mut a, to_b, b"lost");
            send(&mut b, to_a, b"lost");
            arrived(&mut a);
            arrived(&mut b);
        }
        down.ip(&format!("link set {} up", down.name));
        until_by_xdp(&mut a, &mut b);
    }
}

fn an_interface_that_is_gone_leaves_the_rest_alone() {
    let [ha, hb] = hosts();
    let (mut a, b) = (ha.open(Mode::Generic), hb.open(Mode::Generic));
    ha.ip("link del ve0");
    let to = b.local_addrs()[0];
    let end = Instant::now() + LIMIT;
    for _ in 0..100 {
        send(&mut a, to, b"nowhere");
        assert!(arrived(&mut a).is_empty() && Instant::now() < end);
    }
}

fn a_route_that_leads_elsewhere_is_followed() {
    let [ha, hb] = hosts();
    // A second link between the two.
    let tid = hb.tid();
    ha.ip(&format!("link add ve2 type veth peer name ve3 netns {tid}"));
    for (host, name) in [(&ha, "ve2"), (&hb, "ve3")] {
        host.ip(&format!("link set {name} up"));
        // What comes by another interface than answers leave by is welcome.
        host.run(|| {
            for which in ["all", "default", "ve0", "ve1", "ve2", "ve3"] {
                let _ = std::fs::write(format!("/proc/sys/net/ipv4/conf/{which}/rp_filter"), "0");
            }
        });
    }
    ha.ip("addr add 10.79.0.1/24 dev ve2");
    let (mut a, mut b) = (ha.open(Mode::Generic), hb.open(Mode::Generic));
    until_by_xdp(&mut a, &mut b);
    let to = hb.ip;
    ha.ip(&format!("route add {to}/32 dev ve2 src {}", ha.ip));
    let end = Instant::now() + LIMIT;
    // Until it is noticed, and then for a while.
    let mut steady = 0;
    while steady < 50 {
        let before = by_xdp(&a).0;
        exchange(&mut a, &mut b, 5);
        steady = if by_xdp(&a).0 == before { steady + 1 } else { 0 };
        assert!(Instant::now() < end, "the new route is not noticed: {:?}", a.counters());
    }
    ha.ip(&format!("route del {to}/32 dev ve2"));
    until_by_xdp(&mut a, &mut b);
}

fn a_neighbour_that_changes_its_address_is_found_again() {
    let [ha, hb] = hosts();
    // (The other one has no program, which would take frames for whatever Ethernet address.)
    let (mut a, mut b) = (ha.open(Mode::Generic), hb.plain());
    until_sending_by_xdp(&mut a, &mut b);
    hb.ip("link set ve1 address 02:00:00:00:77:77");
    // (The kernel itself believes the old one for as long as it likes; who changes it says so, as
    // here.)
    ha.ip(&format!("neigh replace {} lladdr 02:00:00:00:77:77 dev ve0 nud reachable", hb.ip));
    let before = by_xdp(&a).0;
    exchange(&mut a, &mut b, 1);
    let end = Instant::now() + LIMIT;
    while a.counters().expect("XDP").route_changes == 0 || by_xdp(&a).0 <= before + 10 {
        exchange(&mut a, &mut b, 2);
        assert!(Instant::now() < end, "{:?}", a.counters());
    }
}

fn a_second_program_is_refused_and_udp_serves() {
    let [ha, hb] = hosts();
    let (mut first, mut b) = (ha.open(Mode::Generic), hb.open(Mode::Generic));
    let why = ha.try_open_at(ha.ip, Broker::new(Mode::Generic)).err().expect("there is a program");
    assert!(why.contains("another"), "{why}");
    let mut second = ha.plain();
    exchange(&mut second, &mut b, 1);
    until_by_xdp(&mut first, &mut b);
}

fn a_slow_receiver_loses_no_more_than_the_ring_lacks() {
    let [ha, hb] = hosts();
    let (mut a, mut b) = (ha.open(Mode::Generic), hb.open(Mode::Generic));
    until_by_xdp(&mut a, &mut b);
    let to = b.local_addrs()[0];
    for round in 0..3u32 {
        for n in 0..3000u32 {
            send(&mut a, to, &[round.to_le_bytes(), n.to_le_bytes()].concat());
        }
        let mut got = Vec::new();
        let end = Instant::now() + LIMIT;
        let mut empty = 0;
        while empty < 100 {
            let more = arrived(&mut b);
            empty = if more.is_empty() { empty + 1 } else { 0 };
            got.extend(more);
            assert!(Instant::now() < end);
        }
        let of_round = got.iter().filter(|(_, d)| d[..4] == round.to_le_bytes()).count();
        assert!((900..=3000).contains(&of_round), "{of_round} of a ring of 1024");
    }
    for n in 0..100 {
        exchange(&mut a, &mut b, n);
    }
    until_by_xdp(&mut a, &mut b);
}

/// What sends a whole frame by a socket.
type Wire = Box<dyn Fn(&Socket, &[u8]) + Send>;

/// A socket that sends whole frames on a host's interface.
fn wire(host: &Host) -> (Socket, Wire) {
    let name = host.name;
    host.run(move || {
        let socket = Socket::new(Domain::PACKET, Type::RAW, None).expect("root");
        let index = nix::net::if_::if_nametoindex(name).expect("there");
        let send = move |socket: &Socket, bytes: &[u8]| {
            // SAFETY: a structure of numbers.
            let mut to: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
            (to.sll_family, to.sll_ifindex) = (libc::AF_PACKET as u16, index as i32);
            let fd = std::os::fd::AsRawFd::as_raw_fd(socket);
            let len = size_of_val(&to) as u32;
            // SAFETY: a live slice, and an address of the length given.
            let n = unsafe { libc::sendto(fd, bytes.as_ptr().cast(), bytes.len(), 0, (&raw const to).cast(), len) };
            assert_eq!(n, bytes.len() as isize);
        };
        (socket, Box::new(send) as Wire)
    })
}

fn garbage_on_the_wire_is_counted_and_dropped() {
    let [ha, hb] = hosts();
    let (mut a, mut b) = (ha.open(Mode::Generic), hb.open(Mode::Generic));
    until_by_xdp(&mut a, &mut b);
    let (socket, send_frame) = wire(&ha);
    let good = frame(a.local_addrs()[0], b.local_addrs()[0], 30);
    let mut state = 12345u32;
    let mut random = move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as usize
    };
    for _ in 0..500 {
        let mut bytes = good.clone();
        for _ in 0..1 + random() % 4 {
            let at = 14 + random() % (bytes.len() - 14);
            bytes[at] = random() as u8;
        }
        bytes.truncate(14 + random() % (bytes.len() - 13));
        send_frame(&socket, &bytes);
        arrived(&mut b);
    }
    // One that the program steers and that is none: its IPv4 header's checksum is wrong.
    let mut wrong = good;
    wrong[24] ^= 0xff;
    send_frame(&socket, &wrong);
    let end = Instant::now() + LIMIT;
    while b.counters().expect("XDP").rx_malformed == 0 {
        arrived(&mut b);
        assert!(Instant::now() < end, "{:?}", b.counters());
    }
    until_by_xdp(&mut a, &mut b);
}

/// Fills all rings of a socket, indices and all, with garbage, and has the kernel look at them.
fn scribble(xsk: &std::os::fd::OwnedFd) {
    use std::os::fd::AsRawFd;
    const PAGES: [i64; 4] = [
        libc::XDP_PGOFF_RX_RING,
        libc::XDP_PGOFF_TX_RING,
        libc::XDP_UMEM_PGOFF_FILL_RING as i64,
        libc::XDP_UMEM_PGOFF_COMPLETION_RING as i64,
    ];
    for (n, page) in PAGES.into_iter().enumerate() {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping of one page, which each ring has at least.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), 4096, protection, libc::MAP_SHARED, xsk.as_raw_fd(), page) };
        assert_ne!(at, libc::MAP_FAILED);
        for i in 0..4096 {
            // SAFETY: within the page just mapped. Whoever else uses the rings takes indices as
            // they come.
            unsafe { at.cast::<u8>().add(i).write_volatile((i * 31 + n * 7) as u8) };
        }
    }
    for _ in 0..10 {
        // SAFETY: nothing is pointed to.
        unsafe { libc::sendto(xsk.as_raw_fd(), std::ptr::null(), 0, libc::MSG_DONTWAIT, std::ptr::null(), 0) };
    }
}

fn garbage_in_one_ranks_rings_harms_no_other() {
    let [ha, hb] = hosts_with("numrxqueues 2 numtxqueues 2");
    // Two ranks of one broker, each at its queue.
    let (good, bad, bad_socket) = ha.run({
        let ip = ha.ip;
        move || {
            let mut broker = Broker::new(Mode::Generic);
            let interface = weir_xdp::interface_of(ip).expect("asked").expect("there");
            let ask = weir_xdp::Ask { interface, most: weir_xdp::MOST };
            let [good, bad] = [common::udp(ip), common::udp(ip)];
            let (_, good_bound) = broker.grant(common::owned(&good), ask).expect("the first queue");
            let (_, bad_bound) = broker.grant(common::owned(&bad), ask).expect("the second queue");
            let bad_socket = bad_bound.socket.try_clone().expect("a descriptor");
            let port = |udp: &weir_udp::UdpTransport| weir_xdp::Port {
                port: udp.local_addrs()[0].port(),
                tells_local: udp.tells_local(),
            };
            let (good_port, bad_port) = (port(&good), port(&bad));
            let (mut good, mut bad) = (weir_xdp::Pair::alone(good), weir_xdp::Pair::alone(bad));
            let own = || weir_xdp::Holder::Own(Box::new(Broker::new(Mode::Generic)));
            good.add(good_bound, weir_xdp::Holder::Own(Box::new(broker)), good_port).expect("used");
            bad.add(bad_bound, own(), bad_port).expect("used");
            (good, bad, bad_socket)
        }
    });
    let (mut good, mut bad) = (good, bad);
    let mut b = hb.open(Mode::Generic);
    until_by_xdp(&mut good, &mut b);
    exchange(&mut bad, &mut b, 1);
    scribble(&bad_socket);
    for n in 0..300 {
        exchange(&mut good, &mut b, n);
        // The bad one itself finds out, and goes on by UDP.
        exchange(&mut bad, &mut b, n);
    }
    assert!(!bad.has_xdp(), "its rings are broken: {:?}", bad.counters());
    until_by_xdp(&mut good, &mut b);
}
