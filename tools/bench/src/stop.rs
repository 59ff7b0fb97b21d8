//! Being asked to stop: by Ctrl-C, by a launcher, by a batch system.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::error::{BenchError, Result};

/// A launcher passes Ctrl-C on to every rank, and the terminal may too: signals that come so soon after the first are the same wish.
const SAME_WISH: Duration = Duration::from_secs(1);
/// Who was asked to stop and still runs after this time hangs: far longer than the longest batch and what is written after it.
const PATIENCE: Duration = Duration::from_secs(10);

/// What comes after the first signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// A rank: who hangs in a call to MPI looks at no flag, so that the process ends by itself after a while.
    EndAfterAWhile,
    /// Who waits for a launcher: it ends when that has, or by a second signal.
    Wait,
    /// Who has processes of its own to end: it looks whether the wish is urgent.
    Look,
}

/// What this process was asked.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// To stop.
    pub stop: Arc<AtomicBool>,
    /// To stop at once.
    pub urgent: Arc<AtomicBool>,
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

/// Listens for SIGINT and SIGTERM from now on: the first asks to stop, a later one is urgent, and ends the process with `code` unless it looks itself. The thread that listens sleeps until one comes: it
/// disturbs no measurement.
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
        for _ in signals.forever() {
            let now = Instant::now();
            match wish(first, now) {
                Wish::First => {
                    first = Some(now);
                    told.stop.store(true, Ordering::Relaxed);
                    if then == Then::EndAfterAWhile {
                        let _ = std::thread::Builder::new().spawn(move || end_after(PATIENCE, code));
                    }
                }
                Wish::Same => {}
                Wish::Urgent => {
                    told.urgent.store(true, Ordering::Relaxed);
                    if then != Then::Look {
                        std::process::exit(code.into());
                    }
                }
            }
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(listen).map_err(failed)?;
    Ok(asked)
}

fn end_after(time: Duration, code: u8) {
    std::thread::sleep(time);
    eprintln!("weir bench: still busy {} s after it was asked to stop: ended; finished cells are kept", time.as_secs());
    std::process::exit(code.into());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_passed_on_by_several_are_one_wish_and_a_later_one_is_urgent() {
        let begin = Instant::now();
        assert_eq!(wish(None, begin), Wish::First);
        assert_eq!(wish(Some(begin), begin + Duration::from_millis(20)), Wish::Same);
        assert_eq!(wish(Some(begin), begin + Duration::from_millis(1500)), Wish::Urgent);
    }
}
