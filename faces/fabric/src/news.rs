//! Where the engine's lines for people go: to standard error, as those of this face; of peers that
//! died only when the program is told that an operation failed by it.

use crate::kept::Kept;
use crate::{lines, params};
use weir_engine::{Diagnostic, Diagnostics, DownReason, OpError};

/// Most deaths kept until somebody takes them; a job that loses more has said enough.
const DEATHS_MAX: usize = 64;

/// In a child made by fork(2) nothing is told of them if another thread had them at that moment.
static DEATHS: Kept<Vec<String>> = Kept::unused(Vec::new());

/// The sink of every endpoint of this face.
pub fn sink() -> Diagnostics {
    std::sync::Arc::new(tell)
}

fn tell(what: &Diagnostic<'_>) {
    match what {
        Diagnostic::Notice(line) => lines::complain(&params::as_set(line)),
        Diagnostic::PeerDown { line, .. } => {
            let line = params::as_set(line);
            if let Ok(mut deaths) = DEATHS.lock()
                && deaths.len() < DEATHS_MAX
            {
                deaths.push(line);
            }
        }
        Diagnostic::Trace(text) | Diagnostic::Counters(text) => lines::write_out(text),
    }
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
        let told = DEATHS.lock().map(|mut deaths| std::mem::take(&mut *deaths)).unwrap_or_default();
        told.iter().for_each(|line| lines::complain(line));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::forks::fork_beside;

    #[test]
    fn a_child_forked_while_another_thread_tells_of_a_death_goes_on_without() {
        fork_beside(
            || DEATHS.lock().expect("in order"),
            || {
                explain(&OpError::PeerDown(DownReason::Restarted));
                tell(&Diagnostic::PeerDown { reason: DownReason::Restarted, line: "gone" });
                true
            },
        );
        assert!(DEATHS.lock().is_ok(), "the parent goes on");
    }
}
