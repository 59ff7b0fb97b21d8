//! Where the engine's lines for people go: to standard error, as those of this face; of peers that
//! died only when the program is told that an operation failed by it.

use crate::{lines, params};
use std::sync::Mutex;
use weir_engine::{Diagnostic, Diagnostics, DownReason, OpError};

/// Most deaths kept until somebody takes them; a job that loses more has said enough.
const DEATHS_MAX: usize = 64;

static DEATHS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// The sink of every endpoint of this face.
pub fn sink() -> Diagnostics {
    std::sync::Arc::new(tell)
}

fn tell(what: &Diagnostic<'_>) {
    match what {
        Diagnostic::Notice(line) => lines::complain(&params::as_set(line)),
        Diagnostic::PeerDown { line, .. } => {
            let mut deaths = deaths();
            if deaths.len() < DEATHS_MAX {
                deaths.push(params::as_set(line));
            }
        }
        Diagnostic::Trace(text) | Diagnostic::Counters(text) => lines::write_out(text),
    }
}

fn deaths() -> std::sync::MutexGuard<'static, Vec<String>> {
    DEATHS.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Tells the user once why operations fail, where the code alone does not.
pub fn explain(error: &OpError) {
    match error {
        OpError::PeerDown(reason) => explain_death(*reason),
        OpError::Socket(_) => lines::complain(&error.to_string()),
        OpError::Truncated { .. } | OpError::Cancelled | OpError::NoMessage | OpError::Access | OpError::Alignment => {}
    }
}

/// Tells the user once why operations fail that only say "no route to host" to the application. A
/// peer that closed in good order, or that we closed, is no news.
fn explain_death(reason: DownReason) {
    if !matches!(reason, DownReason::Closed | DownReason::LocalClose | DownReason::Aborted) {
        let told = std::mem::take(&mut *deaths());
        told.iter().for_each(|line| lines::complain(line));
    }
}
