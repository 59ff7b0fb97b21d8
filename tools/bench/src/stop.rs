//! Being asked to stop: by Ctrl-C, by a launcher, by a batch system.

use std::io::Write as _;
use std::process::{Child, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::error::{BenchError, Result};
use crate::sys::process;

/// A launcher passes Ctrl-C on to every rank, and the terminal may too: signals that come so soon
/// after the first are the same wish.
const SAME_WISH: Duration = Duration::from_secs(1);
/// Longer than a batch and what is written after it, as long as the machine keeps its pace. Who has
/// not stopped by then is in a call that others keep from coming back, and says its last words
/// without waiting for it.
pub const SOON: Duration = Duration::from_millis(1500);
/// Who still runs after this time has no words, or cannot say them: ranks that wait for another
/// one, mostly.
pub const PATIENCE: Duration = Duration::from_secs(6);

/// Who waits for a launcher tells it after this time: a terminal, and most who stop a job, have
/// told all of its processes by themselves, and a rank that was told has ended by [`PATIENCE`]. A
/// launcher that is told twice kills, also ranks that are busy with their last words.
const HAND_ON: Duration = PATIENCE.saturating_add(Duration::from_secs(1));

/// Says what there is to say, and returns whether that was all: then the process ends.
type LastWords = Box<dyn FnOnce() -> bool + Send>;

/// What comes after the first signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// A rank: who hangs in a call to MPI looks at no flag, so that the process ends by itself
    /// after a while.
    EndAfterAWhile,
    /// Who waits for a launcher: the signal is handed on to it, and this process ends when that
    /// has; a second one is handed on at once, and ends this process.
    Wait,
    /// Who has processes of its own to end: it looks whether the wish is urgent.
    Look,
}

/// What this process was asked.
#[derive(Clone, Default)]
pub struct Asked {
    /// To stop.
    pub stop: Arc<AtomicBool>,
    /// To stop at once.
    pub urgent: Arc<AtomicBool>,
    last: Arc<Mutex<Option<LastWords>>>,
    /// The process that is waited for.
    child: Arc<Mutex<Option<u32>>>,
}

impl Asked {
    /// What is done when the process has not stopped [`SOON`] after it was asked to, on a thread of
    /// its own.
    pub fn at_last(&self, words: impl FnOnce() -> bool + Send + 'static) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(words));
    }

    /// Waits for a child, which is asked to stop when this process is.
    ///
    /// # Errors
    /// If the system does not say how it ended.
    pub fn wait_for(&self, child: &mut Child) -> std::io::Result<ExitStatus> {
        let known = |id| *self.child.lock().unwrap_or_else(PoisonError::into_inner) = id;
        known(Some(child.id()));
        process::until_ended(child);
        known(None);
        child.wait()
    }

    /// Sends the child that is waited for what this process was sent.
    fn hand_on(&self, signal: i32) {
        let child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(child) = *child {
            process::send(child, signal);
        }
    }

    /// What a signal that is urgent brings about; returns whether this process is to end by it.
    fn be_urgent(&self, then: Then, signal: i32) -> bool {
        self.urgent.store(true, Ordering::Relaxed);
        if then == Then::Wait {
            // It may know of nothing yet, and would run to its end.
            self.hand_on(signal);
        }
        then != Then::Look
    }

    /// Says the last words, if there are any; returns whether they were all.
    fn say_last(&self) -> bool {
        let words = self.last.lock().unwrap_or_else(PoisonError::into_inner).take();
        words.is_some_and(|words| words())
    }
}

/// What a signal comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    First,
    Same,
    Urgent,
}

fn wish(first: Option<Instant>, now: Instant) -> Wish {
    match first {
        None => Wish::First,
        Some(first) if now.duration_since(first) < SAME_WISH => Wish::Same,
        Some(_) => Wish::Urgent,
    }
}

/// Listens for SIGINT and SIGTERM from now on: the first asks to stop, a later one is urgent, and
/// ends the process with `code` unless it looks itself. The thread that listens sleeps until one
/// comes: it disturbs no measurement.
///
/// # Errors
/// If the system gives no thread or no handler.
pub fn listen(then: Then, code: u8) -> Result<Asked> {
    let failed = |error: std::io::Error| BenchError::machine("signals", error);
    let asked = Asked::default();
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(failed)?;
    let told = asked.clone();
    let listen = move || {
        let mut first = None;
        for signal in signals.forever() {
            let now = Instant::now();
            match wish(first, now) {
                Wish::First => {
                    first = Some(now);
                    told.stop.store(true, Ordering::Relaxed);
                    let told = told.clone();
                    let _ = match then {
                        Then::EndAfterAWhile => {
                            std::thread::Builder::new().spawn(move || end_after_a_while(&told, code)).map(|_| ())
                        }
                        Then::Wait => {
                            std::thread::Builder::new().spawn(move || hand_on_later(&told, signal)).map(|_| ())
                        }
                        Then::Look => Ok(()),
                    };
                }
                Wish::Same => {}
                Wish::Urgent if told.be_urgent(then, signal) => process::end(code),
                Wish::Urgent => {}
            }
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(listen).map_err(failed)?;
    Ok(asked)
}

fn hand_on_later(asked: &Asked, signal: i32) {
    std::thread::sleep(HAND_ON);
    asked.hand_on(signal);
}

fn end_after_a_while(asked: &Asked, code: u8) {
    std::thread::sleep(SOON);
    if !asked.say_last() {
        std::thread::sleep(PATIENCE.saturating_sub(SOON));
        let waited_s = PATIENCE.as_secs();
        // (Not by `tell!`: where nobody reads that, the process is to end all the same.)
        let _ = writeln!(
            std::io::stderr(),
            "weir bench: still busy {waited_s} s after it was asked to stop: ended; finished cells are kept"
        );
    }
    process::end(code)
}

/// Waits for the end of this process, which who says its last words brings about.
pub fn wait_for_the_end() {
    std::thread::sleep(PATIENCE);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_words_are_said_once() {
        let asked = Asked::default();
        assert!(!asked.say_last(), "there are none");
        asked.clone().at_last(|| true);
        assert_eq!((asked.say_last(), asked.say_last()), (true, false));
        asked.at_last(|| false);
        assert!(!asked.say_last());
    }

    /// A child is waited for, and `tell` called when that is known.
    fn ends_a_child(tell: impl FnOnce(&Asked) + Send + 'static) {
        use std::os::unix::process::ExitStatusExt;
        let asked = Asked::default();
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let told = asked.clone();
        let teller = std::thread::spawn(move || {
            while told.child.lock().unwrap().is_none() {
                std::thread::yield_now();
            }
            tell(&told);
        });
        assert_eq!(asked.wait_for(&mut child).unwrap().signal(), Some(SIGTERM));
        teller.join().unwrap();
        assert_eq!(*asked.child.lock().unwrap(), None, "its number may be another's from now on");
    }

    #[test]
    fn who_is_waited_for_is_told_too() {
        ends_a_child(|asked| asked.hand_on(SIGTERM));
    }

    #[test]
    fn a_signal_that_is_urgent_ends_who_is_waited_for_as_well() {
        ends_a_child(|asked| assert!(asked.be_urgent(Then::Wait, SIGTERM)));
        let alone = Asked::default();
        assert!(alone.be_urgent(Then::EndAfterAWhile, SIGTERM) && !alone.be_urgent(Then::Look, SIGTERM));
        assert!(alone.urgent.load(Ordering::Relaxed));
    }

    #[test]
    fn a_launcher_is_told_when_ranks_that_were_told_have_ended() {
        let (told, ended) = (HAND_ON, PATIENCE);
        assert!(told > ended);
    }

    #[test]
    fn signals_passed_on_by_several_are_one_wish_and_a_later_one_is_urgent() {
        let begin = Instant::now();
        assert_eq!(wish(None, begin), Wish::First);
        assert_eq!(wish(Some(begin), begin + Duration::from_millis(20)), Wish::Same);
        assert_eq!(wish(Some(begin), begin + Duration::from_millis(1500)), Wish::Urgent);
    }
}
