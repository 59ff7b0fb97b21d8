//! Remote writes and reads in the simulator.

use weir_sim::rank::RemoteOp;
use weir_sim::run::{Report, Watch, run};
use weir_sim::scenario::{EndpointSpec, Profile, Scenario};
use weir_sim::spec::*;
use weir_sim::work::Workload;
use weir_sim::work::traffic::{PlannedRemote, Traffic};

const LINK_LOSS: u32 = 50_000;

/// Host 1 of two does this to the memory of host 0, a millisecond apart, where one packet in twenty
/// is lost.
fn scenario(ops: &[RemoteOp], faults: &[(Ns, Fault)]) -> Scenario {
    let link = LinkSpec { rate_bits_per_s: 1_000_000_000, delay_ns: 50 * US, loss: LINK_LOSS, ..LinkSpec::default() };
    let mut net = NetSpec::single(2, NetworkSpec { up: link.clone(), down: link, ..NetworkSpec::default() });
    net.faults = faults.iter().map(|(at_ns, fault)| TimedFault { at_ns: *at_ns, fault: *fault }).collect();
    let planned = |(i, op): (usize, &RemoteOp)| PlannedRemote { from: 1, at_ns: i as Ns * MS, phase: 0, op: *op };
    let remote = ops.iter().enumerate().map(planned).collect();
    let work = Workload::Traffic(Traffic { remote, ..Traffic::default() });
    Scenario { seed: 1, net, endpoint: EndpointSpec::default(), work }
}

fn kept(s: &Scenario) -> Report {
    let r = run(s, Watch::default());
    assert_eq!(r.violation, None, "seed {}", s.seed);
    r
}

const WRITE: RemoteOp = RemoteOp { to: 0, read: false, at: 0, len: 100, notice: false, wrong: false, add: false };

#[test]
fn writes_and_reads_of_all_lengths_are_whole_and_the_target_is_told() {
    let lens = [0, 1, 1000, 5000, 32 << 10, 33 << 10, 300_000];
    let begins = lens.iter().scan(0, |end, len| Some(std::mem::replace(end, *end + len)));
    let write = |(len, at): (&u64, u64)| RemoteOp { at, len: *len, notice: true, ..WRITE };
    let writes: Vec<_> = lens.iter().zip(begins).map(write).collect();
    let reads = lens.iter().map(|len| RemoteOp { read: true, at: 7, len: *len, ..WRITE });
    let ops: Vec<_> = writes.iter().copied().chain(reads).collect();
    assert_eq!(kept(&scenario(&ops, &[])).remote, [7, 7, 7]);
}

#[test]
fn what_names_no_region_is_refused() {
    let ops: Vec<_> = (0..16).map(|i| RemoteOp { read: i >= 8, len: 40_000, wrong: true, ..WRITE }).collect();
    assert_eq!(kept(&scenario(&ops, &[])).remote, [8, 8, 0]);
}

#[test]
fn a_write_that_is_nowhere_breaks_a_promise() {
    // Past the end of the region, and not said to be wrong.
    let past = RemoteOp { at: weir_sim::rank::WRITABLE_BYTES - 50, ..WRITE };
    let r = run(&scenario(&[WRITE, past], &[]), Watch::default());
    assert_eq!(r.violation.map(|v| v.kind), Some("remote"));
}

#[test]
fn what_a_host_was_asked_for_when_it_died_fails() {
    let ops: Vec<_> = (0..10).map(|i| RemoteOp { read: i % 2 == 0, at: i * 100_000, len: 100_000, ..WRITE }).collect();
    let mut s = scenario(&ops, &[(4 * MS, Fault::Crash { host: 0 }), (SEC, Fault::Restart { host: 0 })]);
    let Workload::Traffic(t) = &mut s.work else { unreachable!() };
    (t.phase_ns, t.forget_ns, t.crashing) = (9 * SEC, 9 * SEC, vec![0]);
    assert!(kept(&s).remote[0] >= 2);
}

#[test]
fn the_swarm_writes_and_reads_beside_its_messages() {
    let mut sum = [0; 3];
    let mut with = 0;
    for seed in 0..60 {
        let s = Scenario::draw(seed, Profile::All);
        let planned =
            if let Workload::Traffic(t) = &s.work { t.remote.iter().filter(|r| !r.op.add).count() } else { 0 };
        with += u64::from(planned > 0);
        sum.iter_mut().zip(kept(&s).remote).for_each(|(a, b)| *a += b);
    }
    assert!((15..=40).contains(&with), "{with} of 60 seeds have remote operations");
    assert!(sum[0] > 200 && sum[1] > 150 && sum[2] > 50, "{sum:?}");
}
