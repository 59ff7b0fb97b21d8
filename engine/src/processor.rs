//! What the kernel says of this process's threads: how long they ran, and how long they waited for
//! a processor although they could run.
//!
//! The first question about a run that was slow beside others. Ranks that wait for a processor look
//! from outside as if they waited for messages (docs/lab/2026-11-26-sp-outliers.md).

/// Of all threads that live, since each began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Processor {
    /// They ran for so long.
    pub ran_ms: u64,
    /// Others ran in their place for so long.
    pub waited_ms: u64,
}

const NS_PER_MS: u64 = 1_000_000;

/// Of this process. None where the kernel does not count (without `CONFIG_SCHED_INFO`), or `/proc`
/// is not there.
pub fn of_this_process() -> Option<Processor> {
    let threads = std::fs::read_dir("/proc/self/task").ok()?.flatten();
    // (A thread may end between the two looks.)
    sum(threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("schedstat")).ok()))
}

/// Of threads that tell this.
fn sum(told: impl Iterator<Item = String>) -> Option<Processor> {
    let (mut ran_ns, mut waited_ns) = (0u64, 0u64);
    for (ran, waited) in told.filter_map(|text| times_ns(&text)) {
        (ran_ns, waited_ns) = (ran_ns.saturating_add(ran), waited_ns.saturating_add(waited));
    }
    // Who asks has run.
    (ran_ns > 0).then_some(Processor { ran_ms: ran_ns / NS_PER_MS, waited_ms: waited_ns / NS_PER_MS })
}

/// Of the three numbers of `schedstat` the first two.
fn times_ns(text: &str) -> Option<(u64, u64)> {
    let mut numbers = text.split_ascii_whitespace().map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    fn spin(time: Duration) {
        let begin = Instant::now();
        while begin.elapsed() < time {
            std::hint::spin_loop();
        }
    }

    #[test]
    fn who_shares_a_processor_with_another_waits_for_it_and_who_sleeps_does_not() {
        let Some(before) = of_this_process() else { return eprintln!("the kernel does not count") };
        std::thread::sleep(Duration::from_millis(50));
        // Two threads on the processor where this one is: what the one runs, the other waits for.
        // (Other tests only add.)
        let here = nix::sched::sched_getaffinity(nix::unistd::Pid::from_raw(0)).expect("asked");
        let first = (0..nix::sched::CpuSet::count()).find(|&cpu| here.is_set(cpu).unwrap_or(false)).expect("one");
        let both = || {
            let mut one = nix::sched::CpuSet::new();
            one.set(first).expect("it is there");
            nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &one).expect("set");
            spin(Duration::from_millis(300));
            // Before they end: of those that live is told.
            of_this_process()
        };
        let (a, b) = std::thread::scope(|s| {
            let (a, b) = (s.spawn(both), s.spawn(both));
            (a.join().expect("thread"), b.join().expect("thread"))
        });
        let after = a.into_iter().chain(b).max_by_key(|told| told.waited_ms).expect("asked");
        assert!(after.waited_ms - before.waited_ms >= 100, "{before:?} {after:?}");
        assert!(after.ran_ms > before.ran_ms, "{before:?} {after:?}");
    }

    #[test]
    fn threads_are_added_and_what_is_no_count_is_left_out() {
        let of = |told: &[&str]| sum(told.iter().map(|text| (*text).to_owned()));
        let both = Some(Processor { ran_ms: 12, waited_ms: 13 });
        assert_eq!(of(&["7000000 9000000 3\n", "5000000 4000000 1\n", "", "x 1 2", "9000000"]), both);
        assert_eq!(of(&["0 0 0\n", "0 0 0\n"]), None, "a kernel that does not count");
        assert_eq!(of(&[]), None);
        let most = u64::MAX.to_string();
        assert_eq!(of(&[&format!("{most} 1 1"), &format!("{most} 1 1")]).map(|p| p.ran_ms), Some(u64::MAX / NS_PER_MS));
    }
}
