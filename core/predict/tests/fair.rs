//! Links that are shared anew whenever a message begins or ends, against closed forms, and through
//! the whole machine.

mod common;

use common::*;
use proptest::prelude::*;
use weir_annotations::program::CollectiveOp;
use weir_predict::machine::{Algorithm, Fabric, GraphLink, Path, Sharing, of_graph};
use weir_predict::{Cause, Machine, Options, Outcome, Time, Verdict, evaluate, hypothetical};

/// 1 us, and 1 byte in 1 ns; nodes likewise.
fn star() -> Machine {
    let mut machine = simple();
    machine.sharing = Sharing::Fair;
    machine.interface.egress_bytes_per_s = Some(1e9);
    machine.interface.ingress_bytes_per_s = Some(1e9);
    machine
}

#[test]
fn alone_a_message_takes_latency_and_its_bytes() {
    for bytes in [0, 1, 1000, 1 << 20] {
        let programs = [vec![send(1, bytes)], vec![recv(0)]];
        let outcome = run(&programs, &star());
        assert_eq!(outcome.time, us(1.0) + Time::from_ns(bytes as f64));
        let plain = run(&programs, &simple());
        assert_eq!(outcome, Outcome { steps: outcome.steps, looked: outcome.looked, ..plain });
    }
}

#[test]
fn what_comes_into_a_node_at_once_comes_in_at_one_time() {
    let gather =
        [vec![recv_any(), recv_any(), recv_any()], vec![send(0, 1000)], vec![send(0, 1000)], vec![send(0, 1000)]];
    let outcome = run(&gather, &star());
    // The first ends when the third does: 3 us for 3000 bytes.
    assert_eq!(outcome.ends[0], us(4.0));
    let own = &outcome.losses.by_process[0];
    assert_eq!(
        (own.of(Cause::Latency), own.of(Cause::Bandwidth), own.of(Cause::Contention)),
        (us(1.0), us(1.0), us(2.0))
    );
    // The last of all when all three are of different size: 1000 x 3, then 1000 x 2, then 1000.
    let sizes = [vec![recv(1), recv(2), recv(3)], vec![send(0, 1000)], vec![send(0, 2000)], vec![send(0, 3000)]];
    assert_eq!(ends(&sizes, &star())[0], 7.0);
    let first = [vec![recv(1)], vec![send(0, 1000)], vec![send(0, 2000)], vec![send(0, 3000)]];
    assert_eq!(ends(&first, &star())[0], 4.0);
    let free = evaluate(&model(&gather), &star(), &Options { node_limits: false, ..Options::default() }, 1);
    assert_eq!(free.time, us(2.0));
}

#[test]
fn a_backplane_and_uplinks_are_shared_anew() {
    let mut machine = star();
    machine.fabric = Fabric::flat(Some(1e9));
    // The second begins when half of the first is through, which then takes as long again for what
    // is left.
    let programs = [vec![send(2, 1000)], vec![serial_us(0.5), send(3, 1000)], vec![recv(0)], vec![recv(1)]];
    assert_eq!(ends(&programs, &machine), [0.0, 0.5, 2.5, 3.0]);
    let apart = evaluate(&model(&programs), &machine, &Options { contention: false, ..Options::default() }, 1);
    assert_eq!(apart.ends[2..], [us(2.0), us(2.5)]);
    machine.fabric = Fabric::switches(&[2, 2], None, Some(0.5e9));
    // Two cross by a link of half the rate, and take a quarter each.
    let cross = [vec![send(2, 1000)], vec![send(3, 1000)], vec![recv(0)], vec![recv(1)]];
    assert_eq!(ends(&cross, &machine)[2..], [5.0, 5.0]);
    let within = [vec![send(1, 1000)], vec![recv(0)], vec![send(3, 1000)], vec![recv(2)]];
    assert_eq!(ends(&within, &machine), [0.0, 2.0, 0.0, 2.0]);
}

#[test]
fn what_was_sent_first_on_a_channel_is_there_first() {
    // The short one is through at 3 us (1 + 2 x 1000 ns), the long one before it at 1 + 2 + 4 us.
    let programs = [vec![send(1, 5000), send(1, 1000)], vec![recv(0), recv(0)]];
    assert_eq!(ends(&programs, &star())[1], 7.0);
    let tagged = |to: i64, bytes: i64, tag: i64| {
        use weir_annotations::program::{Message, SendMode};
        message(Message::Send(send_of(SendMode::Standard, to, bytes, tag, None)))
    };
    let of_tag = |tag: i64| message(weir_annotations::program::Message::Recv(recv_of(Some(0), Some(tag), None)));
    // Who asks for the second by its tag waits for the first, too: as everywhere in this text.
    let programs = [vec![tagged(1, 5000, 1), tagged(1, 1000, 2)], vec![of_tag(2)]];
    assert_eq!(ends(&programs, &star())[1], 7.0);
}

#[test]
fn a_rendezvous_shares_its_data_only() {
    let mut machine = star();
    machine.inter.eager_bytes = Some(100);
    // Announced at 0, there at 1; asked for at 2; the data take 1000 ns, the rest of the latency is
    // behind it.
    let programs = [vec![send(1, 1000)], vec![serial_us(2.0), recv(0)]];
    assert_eq!(ends(&programs, &machine), [3.0, 3.0]);
    // Two into one node, asked for at once: both as one.
    let programs = [vec![irecv(1, 0), irecv(2, 1), wait_all(&[0, 1])], vec![send(0, 1000)], vec![send(0, 1000)]];
    assert_eq!(ends(&programs, &machine), [3.0, 3.0, 3.0]);
}

#[test]
fn an_all_to_all_takes_what_the_links_of_its_nodes_do() {
    let mut machine = star();
    machine.collectives.chosen.insert(CollectiveOp::Alltoall, vec![(u64::MAX, Algorithm::Linear)]);
    for n in [2u64, 5, 16] {
        let programs: Vec<_> = (0..n).map(|_| vec![collective(CollectiveOp::Alltoall, 1000, None, None)]).collect();
        let outcome = run(&programs, &machine);
        assert_eq!(outcome.time, us(1.0) + us(1.0).times(n - 1), "{n}");
    }
}

#[test]
fn a_lost_message_sets_out_as_a_new_flow_and_holds_its_channel() {
    let mut machine = star();
    machine.tail =
        Some(weir_predict::machine::Tail { timeout: us(200_000.0), chance: 0.5, overflow_chance: 0.0, doublings: 6 });
    let model = model(&[vec![recv(1), recv(1)], vec![send(0, 1000), send(0, 1000)]]);
    let mut seen = [0; 2];
    for seed in 0..200 {
        let outcome = evaluate(&model, &machine, &Options::default(), seed);
        assert_eq!(outcome.verdict, Verdict::Finished);
        check_sums(&outcome);
        let lost = outcome.lost > 0;
        seen[usize::from(lost)] += 1;
        assert_eq!(outcome.losses.by_process[0].of(Cause::Retransmission) > us(100_000.0), lost, "{seed}");
        assert!(lost || outcome.time == us(3.0));
    }
    assert!(seen[0] > 20 && seen[1] > 100, "{seen:?}");
}

#[test]
fn links_of_different_rates_are_shared_by_who_passes_them() {
    let path = |rate: f64| Path::linear(us(1.0), rate);
    let link = |from: &str, to: &str, rate: f64| GraphLink {
        name: format!("{from}-{to}"),
        from: from.to_owned(),
        to: to.to_owned(),
        path: path(rate),
    };
    let both = |a: &str, b: &str, rate: f64| [link(a, b, rate), link(b, a, rate)];
    let links =
        [both("n0", "s", 1e9), both("n1", "s", 1e9), both("s", "t", 1e9), both("t", "n2", 2e9), both("t", "n3", 1e9)];
    let mut base = simple();
    base.sharing = Sharing::Fair;
    let machine = of_graph(base.clone(), links.concat()).unwrap();
    // Both cross s-t: a half each.
    let programs = [vec![send(2, 1000)], vec![send(3, 1000)], vec![recv(0)], vec![recv(1)]];
    assert_eq!(ends(&programs, &machine)[2..], [3.0, 3.0]);
    // 3 -> 2 has its own link out, and of n2's what 0 -> 2 leaves it: all of 1e9.
    let programs = [vec![send(2, 1000)], vec![], vec![recv(0), recv(3)], vec![send(2, 1000)]];
    assert_eq!(ends(&programs, &machine)[2], 2.0);
}

#[test]
fn a_description_says_how_links_are_shared() {
    let text = "[network]\nlatency_us = 1\nbandwidth_MB_per_s = 1000\n[nodes]\ningress_MB_per_s = 1000\n\
                egress_MB_per_s = 1000\n[fabric]\nsharing = \"fair\"\n";
    let machine = hypothetical(text).unwrap();
    assert_eq!((machine.sharing, machine.interface), (Sharing::Fair, star().interface));
    assert_eq!(hypothetical(&text.replace("fair", "once")).unwrap().sharing, Sharing::Once);
}

/// Farms, exchanges and collectives from bytes, with everything the machine has.
fn programs(n: usize, genes: &[(u8, u8, u8)]) -> Vec<Vec<Step>> {
    let mut all: Vec<Vec<Step>> = vec![Vec::new(); n];
    for (kind, who, size) in genes {
        let a = usize::from(*who) % n;
        let b = (a + 1 + usize::from(*size) % (n - 1)) % n;
        let bytes = i64::from(*size) * 37;
        match kind % 5 {
            0 => {
                all[a].push(send(b as i64, bytes));
                all[b].push(recv(a as i64));
            }
            1 => all[a].push(serial_us(f64::from(*size) / 64.0)),
            2 => all.iter_mut().for_each(|p| p.push(collective(CollectiveOp::Allgather, bytes, None, None))),
            3 => {
                all[a].push(issend(b as i64, bytes, 0));
                all[b].push(recv(a as i64));
                all[a].push(wait(0));
            }
            _ => {
                for (r, program) in all.iter_mut().enumerate() {
                    program.push(isend(((r + 1) % n) as i64, bytes, 1));
                }
                for (r, program) in all.iter_mut().enumerate() {
                    program.extend([recv(((r + n - 1) % n) as i64), wait(1)]);
                }
            }
        }
    }
    all
}

fn outcomes(n: usize, genes: &[(u8, u8, u8)], machine: &Machine) -> [Outcome; 2] {
    let model = model(&programs(n, genes));
    [Options::default(), Options::without_contention()].map(|options| {
        let outcome = evaluate(&model, machine, &options, 1);
        assert_eq!(outcome.verdict, Verdict::Finished);
        check_sums(&outcome);
        outcome
    })
}

proptest! {
    #[test]
    fn sharing_only_delays_and_causes_sum(
        n in 2usize..7,
        genes in prop::collection::vec(any::<(u8, u8, u8)>(), 0..24),
        switches in any::<bool>(),
        eager in any::<bool>(),
    ) {
        let mut machine = star();
        if switches {
            machine.fabric = Fabric::switches(&[4, 4], Some(1.5e9), Some(0.7e9));
        }
        machine.inter.eager_bytes = eager.then_some(1000);
        let [shared, free] = outcomes(n, &genes, &machine);
        // Without wildcards nothing is matched otherwise: who meets somebody is never earlier.
        for (shared, free) in shared.ends.iter().zip(&free.ends) {
            prop_assert!(shared >= free);
        }
    }
}
