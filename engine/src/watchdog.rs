//! The thread that makes progress when the program does not, and the sleeping it needs.
//!
//! While the program polls, it puts off the thread's waking. Once nobody has
//! polled for the watchdog time it takes over: sleeps on the socket, answers what comes, runs
//! timers; and goes back as soon as the program polls again. When the program itself wants to sleep
//! (`armed`), the thread does all the progress; unless one of the program's threads sleeps on the
//! sockets itself ([`crate::Endpoint::sleep_here`]), which is woken with two changes of threads
//! fewer.

use crate::clock::now;
use crate::watch::UNSEEN_MAX;
use crate::{EngineError, Shared, broken, waiting};
use std::os::fd::RawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use weir_link::Time;

/// How often the thread looks whether the program polls, in watchdog times: often enough for a
/// rendezvous, seldom enough to cost little.
const LOOK_EVERY: u32 = 2;
/// Each look preempts the polling thread for some 10 us. While it finds the program polling it
/// looks less and less often, down to a part of this, and who polls all the time puts the next look
/// off ([`crate::watch::Watch::put_off`]); unless sends are held back, which a program that went
/// computing must not leave unsent.
const LOOK_LESS: u32 = 5;
/// Where others want the program's core, its gaps between polls are turns of theirs: the thread
/// steps in only after so many watchdog times, for it would take a turn of its own.
const CONTENDED_PATIENCE: u64 = 4;
/// Longest sleep, so that stopping never waits long even if a wake-up is lost.
const SLEEP_MAX_NS: u64 = 500_000_000;

/// Starts the thread.
pub fn start(shared: &Arc<Shared>) -> Result<std::thread::JoinHandle<()>, EngineError> {
    let shared = shared.clone();
    std::thread::Builder::new()
        .name("weir-watchdog".into())
        .spawn(move || run(&shared))
        .map_err(|source| EngineError::Io { doing: "starting the watchdog thread".into(), source })
}

impl Shared {
    /// After how long the thread looks whether a program that polled still does.
    pub(crate) fn look_time(&self) -> Duration {
        let ns = if self.watchdog_ns == 0 { SLEEP_MAX_NS } else { self.watchdog_ns * u64::from(LOOK_EVERY) };
        Duration::from_nanos(ns)
    }

    /// The same where it looks so many times less often.
    fn look_time_of(&self, less: u32) -> Duration {
        (self.look_time() * less).min(Duration::from_nanos(SLEEP_MAX_NS))
    }

    /// The program polls, and holds nothing back: the thread's next look is put off, if it is time
    /// for that.
    #[inline]
    pub(crate) fn put_look_off(&self, at: Time) {
        if self.watch.may_be_put_off(at) {
            self.watch.put_off(at, self.look_time_of(LOOK_LESS), self.hold_time());
        }
    }

    /// How long a send that is held back may wait for the thread, if the program goes computing.
    pub(crate) fn hold_time(&self) -> Duration {
        if self.watchdog_ns == 0 { self.look_time() } else { self.look_time().min(UNSEEN_MAX) }
    }

    /// A thread of the program sleeps on the sockets, or in a poll.
    fn is_asleep(&self, at: Time) -> bool {
        // (Who has polled since `at` does not sleep.)
        self.last_poll.load(Ordering::Relaxed) > at.0 + waiting::ELSEWHERE_NS
    }

    /// For how long the program may not poll before the thread steps in.
    fn patience_ns(&self) -> u64 {
        self.watchdog_ns * if self.waiting.is_contended() { CONTENDED_PATIENCE } else { 1 }
    }
}

/// Until the endpoint closes, or a panic has left it half changed: there is nothing to make
/// progress with any more.
fn run(shared: &Shared) {
    block_signals();
    waiting::take_short_turns();
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| passes(shared))) {
        broken::tell_panic(&*payload);
    }
}

fn passes(shared: &Shared) {
    let mut less = 1;
    // A send was held back while the thread slept.
    let mut was_held = false;
    while !shared.stop.load(Ordering::Acquire) && !shared.core.is_poisoned() {
        let armed = shared.armed.any() && !shared.sleeps_here.load(Ordering::Acquire);
        let at = now();
        let away_ns = at.0.saturating_sub(shared.last_poll.load(Ordering::Relaxed));
        let take_over = armed || (shared.watchdog_ns > 0 && away_ns >= shared.patience_ns());
        if !take_over {
            if was_held {
                less = 1;
            } else if shared.is_asleep(at) {
                // Who sleeps until something comes does so again, more often than not.
                less = LOOK_LESS;
            }
            let look = shared.look_time_of(less);
            less = (less + 1).min(LOOK_LESS);
            was_held = shared.watch.sleep_while_polled(at, look, shared.hold_time());
            continue;
        }
        let Some(Step { sleep, broken, blocked }) = step(shared, armed, away_ns, was_held) else {
            // The program is inside the engine, in a long pass. To wait for the socket beside it
            // would only take its core away.
            let sleep = if armed { Duration::from_micros(50) } else { shared.look_time() };
            was_held = shared.watch.sleep(sleep, shared.hold_time());
            continue;
        };
        less = 1;
        if !sleep.is_zero() {
            // An unusable socket is ready for ever.
            let held = shared.hold_time();
            was_held = if broken {
                shared.watch.sleep(sleep, held)
            } else {
                shared.watch.sleep_on_sockets(blocked, sleep, held)
            };
        }
    }
}

/// What a program that does not poll has sent since the last pass.
#[derive(Copy, Clone)]
enum Sent {
    Nothing,
    Something,
    /// Some of it was held back.
    SomethingHeld,
}

/// For how long the thread can sleep after a pass; `timeout` is when the endpoint has something to
/// do although nothing arrives.
fn sleep_time(shared: &Shared, armed: bool, away_ns: u64, timeout: Option<weir_link::Time>, sent: Sent) -> Duration {
    // A program that comes back need not say so: the longer it has been away, the later it is
    // looked for.
    let patience_ns = away_ns.max(shared.watchdog_ns * u64::from(LOOK_EVERY * LOOK_LESS)).min(SLEEP_MAX_NS);
    let patience_ns = if armed { SLEEP_MAX_NS } else { patience_ns };
    // One that has sent will send again: cheaper to look for it than to have each of its sends set
    // the timer.
    let patience_ns = match sent {
        Sent::Nothing => patience_ns,
        Sent::Something => patience_ns.min(UNSEEN_MAX.as_nanos() as u64),
        Sent::SomethingHeld => patience_ns.min(shared.hold_time().min(UNSEEN_MAX).as_nanos() as u64),
    };
    Duration::from_nanos(timeout.map_or(patience_ns, |t| t.0.saturating_sub(now().0)).min(patience_ns))
}

/// What the thread has to wait for after a pass of progress.
struct Step {
    /// Until the next pass, if nothing comes.
    sleep: Duration,
    /// The socket is unusable.
    broken: bool,
    /// The socket that has no room.
    blocked: Option<RawFd>,
}

/// One pass of progress. `None`: somebody else holds the lock, and so is making progress.
fn step(shared: &Shared, armed: bool, away_ns: u64, was_held: bool) -> Option<Step> {
    let mut core = shared.try_enter()?;
    #[cfg(test)]
    assert!(!shared.watchdog_panics.load(Ordering::Relaxed), "a defect, by order of a test");
    core.st.counters.watchdog_steps += 1;
    core.progress(now());
    let broken = core.st.messages.broken().is_some();
    let timeout = if broken { None } else { core.next_timeout() };
    let blocked = core.blocked_at().filter(|_| !broken);
    let sent = match (std::mem::take(&mut core.sent), was_held) {
        (false, _) => Sent::Nothing,
        (true, false) => Sent::Something,
        (true, true) => Sent::SomethingHeld,
    };
    let sleep = sleep_time(shared, armed, away_ns, timeout, sent);
    let sleep = if core.prepare_sleep() { sleep } else { Duration::ZERO };
    shared.watch.has_looked(sleep, shared.hold_time());
    // (One that sleeps by itself is told too, if the thread was the first to find something.)
    let due = if shared.armed.any() { shared.take_due(&core) } else { 0 };
    drop(core);
    shared.signal(due);
    Some(Step { sleep, broken, blocked })
}

/// Signals belong to the program's own threads.
pub fn block_signals() {
    // SAFETY: fills and installs a local signal set for this thread only.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, std::ptr::null_mut());
    }
}
