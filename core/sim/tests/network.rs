//! The network model alone, with nodes that know no protocol: numbered datagrams and their echoes.

use weir_sim::spec::*;
use weir_sim::{Host, Log, NetCounters, Node, Received, World};

/// Sends `count` datagrams of `bytes` to the next host, `gap_ns` apart, and writes down what comes.
struct Pinger {
    left: u32,
    next_at: Ns,
    gap_ns: Ns,
    bytes: usize,
    to: Option<(NetId, HostId)>,
    echo: bool,
    unechoed: Vec<(NetId, HostId, Vec<u8>)>,
}

/// What the nodes saw: (time, at, from, net, number, length, slack).
#[derive(Default)]
struct Seen {
    orders: Vec<(HostId, NetId, HostId, u32, Ns, usize)>,
    echo: bool,
    got: Vec<(Ns, HostId, HostId, NetId, u32, usize, Ns)>,
    incarnations: Vec<(HostId, u32)>,
}

impl Node for Pinger {
    type Shared = Seen;
    fn receive(&mut self, host: &mut Host<'_, Seen>, meta: Received, data: &mut [u8]) {
        let number = data.get(1..5).map_or(u32::MAX, |b| u32::from_le_bytes(b.try_into().unwrap()));
        let (now, id) = (host.now, host.id);
        host.shared.got.push((now, id, meta.from, meta.net, number, data.len(), meta.receiver_delay_ns));
        if self.echo && data.first() == Some(&0) {
            let mut back = data.to_vec();
            back[0] = 1;
            self.unechoed.push((meta.net, meta.from, back));
        }
    }
    fn run(&mut self, host: &mut Host<'_, Seen>) {
        for (net, to, data) in self.unechoed.drain(..) {
            host.send(net, to, |b| b.extend_from_slice(&data));
        }
        let Some((net, to)) = self.to else { return };
        while self.left > 0 && self.next_at <= host.now && host.can_send() {
            self.left -= 1;
            self.next_at += self.gap_ns;
            let (left, bytes) = (self.left, self.bytes);
            host.send(net, to, |b| {
                b.push(0);
                b.extend_from_slice(&left.to_le_bytes());
                b.resize(bytes, 7);
            });
        }
    }
    fn next_wake(&self) -> Option<Ns> {
        // A full interface wakes the host by itself.
        (self.left > 0).then_some(self.next_at)
    }
}

fn make(seen: &mut Seen, host: HostId, incarnation: u32) -> Pinger {
    seen.incarnations.push((host, incarnation));
    let order = seen.orders.iter().find(|o| o.0 == host).copied();
    let (_, net, to, left, gap_ns, bytes) = order.unwrap_or((host, 0, 0, 0, 0, 0));
    Pinger { left, next_at: 0, gap_ns, bytes, to: order.map(|_| (net, to)), echo: seen.echo, unechoed: vec![] }
}

fn quiet_hosts(mut spec: NetSpec) -> NetSpec {
    spec.host = HostSpec { rx_cost_ns: 0, tx_cost_ns: 0, wake_ns: 0, ..HostSpec::default() };
    spec
}

fn run(
    spec: &NetSpec,
    seed: u64,
    orders: &[(HostId, NetId, HostId, u32, Ns, usize)],
    echo: bool,
) -> (Seen, NetCounters, u64) {
    let shared = Seen { orders: orders.to_vec(), echo, ..Seen::default() };
    let mut w = World::new(spec.clone(), seed, shared, Log::new(0, false), make);
    w.run_until(60 * SEC, |_| false);
    assert_eq!(w.violation(), None);
    assert_eq!(w.packets_live(), 0, "packets leak");
    (std::mem::take(&mut w.shared), w.counters(), w.log.hash())
}

fn gigabit(change: impl FnOnce(&mut NetworkSpec)) -> NetSpec {
    let mut n = NetworkSpec::default();
    change(&mut n);
    quiet_hosts(NetSpec::single(3, n))
}

#[test]
fn one_packet_takes_its_time() {
    // 1434 B + 66 B at 1 Gbit/s: 12 us on each of two cables, 2 us of propagation each.
    let (seen, c, _) = run(&gigabit(|_| {}), 1, &[(0, 0, 1, 1, 0, 1434)], false);
    assert_eq!(seen.got.len(), 1);
    assert_eq!(seen.got[0].0, 2 * (12 * US + 2 * US));
    assert_eq!((c.sent, c.delivered, c.sent_bytes), (1, 1, 1434));
}

#[test]
fn a_stream_gets_the_rate_of_the_link() {
    let (seen, c, _) = run(&gigabit(|_| {}), 1, &[(0, 0, 1, 10_000, 0, 1434)], false);
    assert_eq!(c.delivered, 10_000, "the interface pushes back, it does not drop");
    assert_eq!(seen.got.last().unwrap().0, 10_001 * 12 * US + 4 * US);
}

#[test]
fn two_into_one_fill_the_queue_and_drop_the_tail() {
    let spec = gigabit(|n| n.switch.port_packets = 64);
    let orders = [(0, 0, 2, 1000, 12 * US, 1434), (1, 0, 2, 1000, 12 * US, 1434)];
    let (seen, c, _) = run(&spec, 1, &orders, false);
    assert_eq!(c.deepest_queue, 64);
    assert_eq!(c.switch_full + c.delivered, 2000);
    // What two gigabits offer in 12 ms less what one takes away, less the queue.
    assert!((930..=940).contains(&c.switch_full), "{c:?}");
    assert!(seen.got.iter().any(|g| g.2 == 0) && seen.got.iter().any(|g| g.2 == 1));
}

/// 1434 B + 66 B take 1.2 ms on it.
fn bus(hosts: u32, queue_packets: u32) -> NetSpec {
    let up = LinkSpec { rate_bits_per_s: 10_000_000, delay_ns: 0, ..LinkSpec::default() };
    let down = LinkSpec { rate_bits_per_s: 0, delay_ns: 5 * US, ..LinkSpec::default() };
    let switch = SwitchSpec { port_packets: queue_packets, ..SwitchSpec::default() };
    let mut spec = quiet_hosts(NetSpec::single(
        hosts,
        NetworkSpec { topology: Topology::Bus, up, down, switch, ..NetworkSpec::default() },
    ));
    spec.networks[0].nic_queue_bytes = 1 << 20;
    spec
}

#[test]
fn hosts_on_a_bus_have_turns_and_its_rate_together() {
    let (seen, c, _) = run(&bus(3, 1000), 1, &[(0, 0, 2, 100, 0, 1434), (1, 0, 0, 100, 0, 1434)], false);
    assert_eq!((c.delivered, c.switch_full), (200, 0));
    let times: Vec<_> = seen.got.iter().map(|g| g.0).collect();
    assert!(times.iter().enumerate().all(|(i, at)| *at == (i as u64 + 1) * 1200 * US + 5 * US), "one at a time");
    assert!(seen.got.chunks(2).all(|two| two[0].2 != two[1].2), "each once in two");
}

#[test]
fn who_has_one_packet_for_a_bus_does_not_wait_for_all_of_who_has_many() {
    let (seen, c, _) = run(&bus(3, 1000), 1, &[(0, 0, 2, 50, 0, 1434), (1, 0, 2, 1, 20 * MS, 1434)], false);
    assert_eq!(c.delivered, 51);
    let place = seen.got.iter().position(|g| g.2 == 1).expect("it comes");
    assert!(place <= 1, "behind {place}");
}

#[test]
fn a_host_alone_on_a_bus_waits_in_its_interface_and_several_fill_their_queues() {
    let (_, c, _) = run(&bus(3, 4), 1, &[(0, 0, 2, 100, 0, 1434)], false);
    assert_eq!((c.delivered, c.switch_full), (100, 0), "its interface knows the rate");
    // It does not know that another sends: of what comes in 120 ms each sends half.
    let (_, c, _) = run(&bus(3, 4), 1, &[(0, 0, 2, 100, 0, 1434), (1, 0, 2, 100, 0, 1434)], false);
    assert_eq!(c.deepest_queue, 4);
    assert!((90..=100).contains(&c.switch_full) && c.switch_full + c.delivered == 200, "{c:?}");
}

#[test]
fn a_cut_loses_what_waits_for_a_bus_and_holds_nobody_up() {
    let mut spec = bus(3, 1000);
    spec.faults = vec![TimedFault { at_ns: 6 * MS, fault: Fault::Cut { host: 0, net: 0, direction: Direction::Both } }];
    let (seen, c, _) = run(&spec, 1, &[(0, 0, 2, 100, 0, 1434), (1, 0, 2, 20, 0, 1434)], false);
    assert_eq!(c.delivered + c.cut, 120);
    let of = |host| seen.got.iter().filter(move |g| g.2 == host);
    assert!((2..=3).contains(&of(0).count()), "{}", of(0).count());
    assert_eq!(of(1).count(), 20);
    assert!(of(1).next_back().is_some_and(|g| g.0 < 24 * 1200 * US), "the other has all of it");
}

#[test]
fn ports_share_the_memory_of_their_switch() {
    // The queue to host 2 may take all memory; then a packet to host 1 finds none, unless a dynamic
    // threshold keeps some.
    let drops_of_bystander = |percent| {
        let mut spec = gigabit(|n| {
            n.switch = SwitchSpec { shared_bytes: 30_000, dynamic_percent: percent, ..SwitchSpec::default() };
            n.up.rate_bits_per_s = 10_000_000_000;
        });
        spec.hosts = 4;
        let orders = [(0, 0, 2, 500, 0, 1434), (3, 0, 1, 20, 100 * US, 1434)];
        let (seen, _, _) = run(&spec, 1, &orders, false);
        20 - seen.got.iter().filter(|g| g.1 == 1).count()
    };
    assert!(drops_of_bystander(0) > 0);
    assert_eq!(drops_of_bystander(50), 0);
}

#[test]
fn chance_keeps_its_promises() {
    let n = 20_000;
    let orders = [(0, 0, 1, n, 20 * US, 100)];
    let count = |change: fn(&mut LinkSpec)| {
        let (seen, c, _) = run(&gigabit(|n| change(&mut n.up)), 5, &orders, false);
        (seen, c)
    };
    let near = |got: u64, want: u64| assert!(got.abs_diff(want) < want / 8, "{got} instead of {want}");
    near(count(|l| l.loss = 10_000).1.lost, 200);
    near(count(|l| l.duplicate = 20_000).1.duplicated, 400);
    near(count(|l| l.corrupt = 20_000).1.corrupted, 400);
    // In the bad state a tenth of the time, half of the packets lost there: 5 %.
    near(count(|l| l.burst = Some(Burst { enter: 10_000, leave: 90_000, loss: 500_000 })).1.lost, 1000);
    let overtaken = |seen: &Seen| seen.got.windows(2).filter(|w| w[0].4 < w[1].4).count() as u64;
    let (seen, c) = count(|l| {
        l.reorder = 10_000;
        l.reorder_ns = 200 * US
    });
    assert_eq!(c.delivered, u64::from(n));
    assert!((150..=220).contains(&overtaken(&seen)), "{}", overtaken(&seen));
    let (seen, _) = count(|l| l.jitter_ns = 500 * US);
    assert_eq!(overtaken(&seen), 0, "jitter alone keeps order");
    let (_, c) = count(|l| l.mtu = 99);
    assert_eq!(c.too_big, u64::from(n));
}

#[test]
fn bursts_come_in_bursts() {
    let spec = gigabit(|n| n.up.burst = Some(Burst { enter: 1000, leave: 100_000, loss: 1_000_000 }));
    let (seen, c, _) = run(&spec, 3, &[(0, 0, 1, 50_000, 2 * US, 50)], false);
    let runs = seen.got.windows(2).filter(|w| w[0].4 != w[1].4 + 1).count() as u64;
    assert!(c.lost / runs >= 7, "mean burst is 10 packets: {} lost in {runs} runs", c.lost);
}

#[test]
fn cuts_are_one_way_if_asked() {
    let mut spec = gigabit(|_| {});
    let cut = |at_ns, fault| TimedFault { at_ns, fault };
    spec.faults = vec![
        cut(10 * MS, Fault::Cut { host: 1, net: 0, direction: Direction::Up }),
        cut(20 * MS, Fault::Heal { host: 1, net: 0, direction: Direction::Up }),
        cut(30 * MS, Fault::Cut { host: 1, net: 0, direction: Direction::Both }),
        cut(40 * MS, Fault::Heal { host: 1, net: 0, direction: Direction::Both }),
    ];
    let (seen, c, _) = run(&spec, 1, &[(0, 0, 1, 50, MS, 100)], true);
    assert_eq!(seen.got.iter().filter(|g| g.1 == 1).count(), 40, "only the cut both ways stops the way there");
    assert_eq!(seen.got.iter().filter(|g| g.1 == 0).count(), 30, "both cuts stop the way back");
    assert_eq!(c.cut, 20);
}

#[test]
fn a_stalled_host_reads_late_and_its_socket_overflows() {
    let mut spec = gigabit(|_| {});
    spec.host.rx_buffer_bytes = 10 * 164;
    spec.faults = vec![TimedFault { at_ns: 10 * MS, fault: Fault::Stall { host: 1, until_ns: 30 * MS } }];
    let (seen, c, _) = run(&spec, 1, &[(0, 0, 1, 50, MS, 100)], false);
    assert_eq!(c.socket_full, 10, "20 packets came, 10 of them fit");
    let late: Vec<_> = seen.got.iter().filter(|g| g.0 == 30 * MS).collect();
    assert_eq!(late.len(), 10);
    assert!(late.iter().all(|g| g.6 > 19 * MS), "the wait shows as receiver delay");
}

#[test]
fn a_crash_empties_the_host_and_a_restart_is_a_new_incarnation() {
    let mut spec = gigabit(|_| {});
    spec.faults = vec![
        TimedFault { at_ns: 10 * MS + 1, fault: Fault::Crash { host: 1 } },
        TimedFault { at_ns: 20 * MS + 1, fault: Fault::Restart { host: 1 } },
    ];
    let (seen, c, _) = run(&spec, 1, &[(0, 0, 1, 50, MS, 100)], false);
    assert_eq!(c.nobody, 10);
    assert_eq!(seen.got.len(), 40);
    assert_eq!(seen.incarnations, [(0, 0), (1, 0), (2, 0), (1, 1)]);
}

#[test]
fn networks_are_separate_and_trees_reach_everyone() {
    let trunk = LinkSpec { delay_ns: 50 * US, ..LinkSpec::default() };
    let tree = NetworkSpec { topology: Topology::Tree { hosts_per_leaf: 3, trunk }, ..NetworkSpec::default() };
    let spec = quiet_hosts(NetSpec {
        hosts: 8,
        networks: vec![NetworkSpec::default(), tree],
        host: HostSpec::default(),
        faults: vec![],
    });
    for from in 0..8 {
        for to in (0..8).filter(|t| *t != from) {
            let (seen, _, _) = run(&spec, 1, &[(from, 1, to, 1, 0, 100)], true);
            let there = seen.got[0];
            assert_eq!((there.1, there.2, there.3), (to, from, 1));
            let far = from / 3 != to / 3;
            assert_eq!(there.0 > 100 * US, far, "{from} to {to} in {} ns", there.0);
            assert_eq!(seen.got.len(), 2);
        }
    }
}

fn everything_at_once(hosts: u32) -> NetSpec {
    let link = LinkSpec {
        jitter_ns: 5 * US,
        loss: 10_000,
        burst: Some(Burst { enter: 1000, leave: 200_000, loss: 500_000 }),
        duplicate: 10_000,
        reorder: 10_000,
        reorder_ns: 50 * US,
        corrupt: 10_000,
        ..LinkSpec::default()
    };
    let n = NetworkSpec { up: link.clone(), down: link, ..NetworkSpec::default() };
    let mut spec = NetSpec { hosts, networks: vec![n.clone(), n], host: HostSpec::default(), faults: vec![] };
    spec.faults.push(TimedFault { at_ns: MS, fault: Fault::Crash { host: 1 } });
    spec.faults.push(TimedFault { at_ns: 2 * MS, fault: Fault::Restart { host: 1 } });
    spec
}

#[test]
fn equal_seeds_give_equal_runs() {
    let spec = everything_at_once(3);
    let orders = [(0, 0, 1, 500, 10 * US, 300), (1, 1, 2, 500, 10 * US, 1000), (2, 0, 0, 500, 7 * US, 60)];
    let (seen, counters, hash) = run(&spec, 9, &orders, true);
    for _ in 0..2 {
        let (again, c, h) = run(&spec, 9, &orders, true);
        assert_eq!((&again.got, c, h), (&seen.got, counters, hash));
    }
    assert_ne!(run(&spec, 10, &orders, true).2, hash);
}

#[test]
fn thousands_of_hosts_fit() {
    let spec = everything_at_once(3000);
    let orders: Vec<_> = (0..3000).map(|h| (h, 0, (h * 7 + 1) % 3000, 20, 50 * US, 200)).collect();
    let (seen, c, _) = run(&spec, 1, &orders, true);
    assert!(c.sent > 100_000 && seen.got.len() > 90_000);
}
