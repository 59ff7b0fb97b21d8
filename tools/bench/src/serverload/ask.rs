//! A client's loops: one request at an agreed instant, or requests when they are due.

use std::time::Duration;

use weir_stats::{open_unit, seeded};

use crate::error::{BenchError, Result};

use super::carry::Asking;
use super::words::{Due, Timed};

/// How long a test sleeps: as long as the originals' own programs let theirs.
pub const IDLE: Duration = Duration::from_millis(10);
/// Requests under way of one client; those that fall due beyond are sent later, and timed from when
/// they were due all the same.
const MOST_OPEN: usize = 256;
/// A test sleeps for whole milliseconds. For less it looks, and sleeps so long at most until it
/// looks again.
const LOOK: Duration = Duration::from_micros(100);
/// Before a request falls due the client does not let a test sleep to the last moment.
const EARLY: Duration = Duration::from_micros(500);

/// A clock and what sleeps by it.
pub trait Time {
    /// Now, ns.
    fn now_ns(&self) -> i64;
    /// Sleeps.
    fn sleep(&self, time: Duration);
}

/// The system's clock that nobody sets: the same for all processes of a host.
pub struct Monotonic;

impl Time for Monotonic {
    fn now_ns(&self) -> i64 {
        let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC);
        now.map_or(0, |now| now.tv_sec() * 1_000_000_000 + now.tv_nsec())
    }

    fn sleep(&self, time: Duration) {
        std::thread::sleep(time);
    }
}

fn ns(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}

fn duration(ns: i64) -> Duration {
    Duration::from_nanos(ns.max(0).unsigned_abs())
}

fn unanswered(count: usize, timeout: Duration) -> BenchError {
    let requests = if count == 1 { "request was" } else { "requests were" };
    let text = format!("{count} {requests} not answered within {} s (--timeout)", timeout.as_secs_f64());
    BenchError::machine("waiting for answers", text)
}

/// Asks once, at this instant or at once if it has passed; returns what was timed, from the post
/// on, and whether it was late.
///
/// # Errors
/// The server is gone or answers wrongly, or not in time.
pub fn round(
    asking: &mut dyn Asking,
    time: &impl Time,
    begin_ns: i64,
    bytes: u64,
    timeout: Duration,
) -> Result<(Timed, bool)> {
    let left = begin_ns - time.now_ns();
    if left > 0 {
        time.sleep(duration(left));
    }
    let begin = time.now_ns();
    asking.ask(bytes, 1)?;
    loop {
        let mut done = false;
        asking.answers(IDLE, &mut |_| done = true)?;
        let length_ns = time.now_ns() - begin;
        if done {
            return Ok((Timed { begin_ns: begin, length_ns }, left < 0));
        }
        if length_ns > ns(timeout) {
            return Err(unanswered(1, timeout));
        }
    }
}

/// When requests are due, ns after the beginning, ascending: the distances are exponential, as
/// those of many users who know nothing of each other.
#[must_use]
pub fn due(plan: Due) -> Vec<i64> {
    let mut random = seeded(plan.seed);
    let mut at = 0.0;
    let next = |_| {
        at -= open_unit(&mut random).ln() * plan.gap_ns;
        at as i64
    };
    (0..plan.count).map(next).collect()
}

/// Asks whenever a request is due, whatever has become of those before. Each is timed from the
/// instant at which it was due: one that had to wait behind a server that stood still took as long
/// as somebody would have waited for it.
///
/// # Errors
/// The server is gone or answers wrongly; the first answer that is missing so long after it was
/// due.
pub fn stream(
    asking: &mut dyn Asking,
    time: &impl Time,
    begin_ns: i64,
    bytes: u64,
    due: &[i64],
    timeout: Duration,
) -> Result<Vec<Timed>> {
    let mut all: Vec<Timed> = due.iter().map(|at| Timed { begin_ns: begin_ns + at, length_ns: -1 }).collect();
    let (mut next, mut open, mut oldest) = (0, 0, 0);
    while oldest < all.len() {
        let now = time.now_ns();
        while next < all.len() && open < MOST_OPEN && all[next].begin_ns <= now {
            asking.ask(bytes, next as u32)?;
            (next, open) = (next + 1, open + 1);
        }
        let next_ns = all.get(next).filter(|_| open < MOST_OPEN).map(|one| one.begin_ns);
        let left = || next_ns.map(|at| duration(at - time.now_ns()));
        let idle = match left() {
            _ if open == 0 => Duration::ZERO,
            Some(left) => left.saturating_sub(EARLY).min(IDLE),
            None => IDLE,
        };
        let idle = if idle < Duration::from_millis(1) { Duration::ZERO } else { idle };
        let mut came = false;
        asking.answers(idle, &mut |mark| {
            let now = time.now_ns();
            if let Some(one) = all.get_mut(mark as usize).filter(|one| one.length_ns < 0) {
                one.length_ns = now - one.begin_ns;
                (open, came) = (open - 1, true);
            }
        })?;
        while all.get(oldest).is_some_and(|one| one.length_ns >= 0) {
            oldest += 1;
        }
        let late = all.get(oldest).map_or(0, |one| time.now_ns() - one.begin_ns);
        if late > ns(timeout) {
            return Err(unanswered(open, timeout));
        }
        // Who has nothing under way sleeps until a request is due; who has looks again soon, unless
        // the test has slept.
        if let Some(left) = left().filter(|_| !came && idle.is_zero()) {
            time.sleep(if open == 0 { left } else { left.min(LOOK) });
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cell::Cell;
    use std::rc::Rc;

    const MS: i64 = 1_000_000;

    /// Time that passes when somebody sleeps.
    #[derive(Clone, Default)]
    struct Virtual(Rc<Cell<i64>>);

    impl Time for Virtual {
        fn now_ns(&self) -> i64 {
            self.0.get()
        }
        fn sleep(&self, time: Duration) {
            self.0.set(self.0.get() + ns(time));
        }
    }

    /// A server that takes so long for each request, one after the other, and stands still for a
    /// while.
    struct Server {
        time: Virtual,
        each_ns: i64,
        still: std::ops::Range<i64>,
        /// When each will be answered, and its mark.
        queue: Vec<(i64, u32)>,
        asked: Vec<i64>,
    }

    impl Server {
        fn new(time: &Virtual, each_ns: i64, still: std::ops::Range<i64>) -> Server {
            Server { time: time.clone(), each_ns, still, queue: Vec::new(), asked: Vec::new() }
        }
    }

    impl Asking for Server {
        fn ask(&mut self, _: u64, mark: u32) -> Result<()> {
            let now = self.time.now_ns();
            self.asked.push(now);
            let mut end = self.queue.last().map_or(now, |last| last.0.max(now)) + self.each_ns;
            if self.still.contains(&end) {
                end = self.still.end + self.each_ns;
            }
            self.queue.push((end, mark));
            Ok(())
        }

        fn answers(&mut self, idle: Duration, each: &mut dyn FnMut(u32)) -> Result<()> {
            let now = self.time.now_ns();
            let first = self.queue.iter().map(|one| one.0).min();
            let until = first.map_or(now + ns(idle), |first| first.clamp(now, now + ns(idle)));
            self.time.0.set(until);
            let ready: Vec<u32> = self.queue.iter().filter(|one| one.0 <= until).map(|one| one.1).collect();
            self.queue.retain(|one| one.0 > until);
            ready.into_iter().for_each(each);
            Ok(())
        }
    }

    const TIMEOUT: Duration = Duration::from_secs(10);

    #[test]
    fn a_stall_shows_in_all_requests_that_fell_due_in_it() {
        let time = Virtual::default();
        // A request each 10 ms, each served in 1 ms; nothing is served from 100 ms to 600 ms.
        let mut server = Server::new(&time, MS, 100 * MS..600 * MS);
        let plan: Vec<i64> = (1..=100).map(|k| k * 10 * MS).collect();
        let all = stream(&mut server, &time, 0, 8, &plan, TIMEOUT).unwrap();
        assert!(all.iter().zip(&plan).all(|(one, at)| one.begin_ns == *at));
        // Who waits for each answer before the next request would have seen one that was slow. Here
        // half of the time was a stall.
        let slow = all.iter().filter(|one| one.length_ns > 100 * MS).count();
        assert!((43..=47).contains(&slow), "{slow}");
        let longest = all.iter().map(|one| one.length_ns).max().unwrap();
        assert!((495 * MS..=502 * MS).contains(&longest), "{longest}");
        // And requests went out when they were due, not after the answers before.
        assert!(
            server.asked.iter().zip(&plan).all(|(at, due)| (0..2 * MS).contains(&(at - due))),
            "{:?}",
            server.asked
        );
    }

    #[test]
    fn a_server_that_answers_no_more_is_an_error_after_the_time_given() {
        let time = Virtual::default();
        let mut server = Server::new(&time, MS, 50 * MS..i64::MAX / 4);
        let plan: Vec<i64> = (1..=10).map(|k| k * 10 * MS).collect();
        let error = stream(&mut server, &time, 0, 8, &plan, Duration::from_secs(2)).unwrap_err().to_string();
        assert!(error.contains("not answered within 2 s"), "{error}");
        assert!(time.now_ns() < 2300 * MS, "{}", time.now_ns());
        let mut server = Server::new(&time, i64::MAX / 4, 0..0);
        let error = round(&mut server, &time, 0, 8, Duration::from_secs(1)).unwrap_err().to_string();
        assert!(error.contains("1 request was not answered within 1 s"), "{error}");
    }

    #[test]
    fn a_round_begins_at_its_instant_and_says_if_that_had_passed() {
        let time = Virtual::default();
        let mut server = Server::new(&time, 3 * MS, 0..0);
        let (timed, late) = round(&mut server, &time, 7 * MS, 8, TIMEOUT).unwrap();
        assert_eq!((timed.begin_ns, timed.length_ns, late), (7 * MS, 3 * MS, false));
        let (timed, late) = round(&mut server, &time, 8 * MS, 8, TIMEOUT).unwrap();
        assert_eq!((timed.begin_ns, late), (10 * MS, true));
    }

    #[test]
    fn requests_are_due_as_often_as_asked_for() {
        let plan = |seed| due(Due { count: 10_000, gap_ns: 1e6, seed });
        let all = plan(1);
        assert!(all.is_sorted() && all != plan(2) && all == plan(1));
        let mean = *all.last().unwrap() as f64 / all.len() as f64;
        assert!((0.96e6..1.04e6).contains(&mean), "{mean}");
        // Exponential: a share of 1/e of the gaps is longer than the mean.
        let long = all.windows(2).filter(|pair| pair[1] - pair[0] > 1_000_000).count() as f64 / all.len() as f64;
        assert!((0.34..0.40).contains(&long), "{long}");
    }

    proptest! {
        #[test]
        fn every_request_is_timed_once_from_when_it_was_due(
            gap_us in 20f64..20_000.0, each_us in 1i64..3_000, seed: u64, from in 0i64..200, long in 0i64..500
        ) {
            let time = Virtual::default();
            let mut server = Server::new(&time, each_us * 1000, from * MS..(from + long) * MS);
            let plan = due(Due { count: 200, gap_ns: gap_us * 1e3, seed });
            let all = stream(&mut server, &time, 0, 8, &plan, Duration::from_secs(60)).unwrap();
            prop_assert_eq!(server.asked.len(), plan.len());
            for ((one, at), asked) in all.iter().zip(&plan).zip(&server.asked) {
                prop_assert_eq!(one.begin_ns, *at);
                // Never less than the service, nor than what the request waited before it was sent.
                prop_assert!(one.length_ns >= each_us * 1000 + (asked - at), "{:?}", one);
            }
        }
    }
}
