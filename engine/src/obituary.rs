//! What to tell people of peers that died: who, and by which rule. A completion can only say that there is no way to its peer.

use crate::EngineConfig;
use std::sync::Mutex;
use weir_link::DownReason;

/// Most lines kept until somebody takes them; a job that loses more has said enough.
const MAX: usize = 64;

static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Notes that a peer went down. A peer that closed in good order, or that was closed here, is no news.
pub fn note(who: &str, reason: DownReason, cfg: &EngineConfig) {
    let Some(line) = line(who, reason, cfg) else { return };
    let mut lines = LINES.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if lines.len() < MAX {
        lines.push(line);
    }
}

/// One line for each peer of this process that went down since the last call.
#[must_use]
pub fn take_deaths() -> Vec<String> {
    std::mem::take(&mut *LINES.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
}

fn line(who: &str, reason: DownReason, cfg: &EngineConfig) -> Option<String> {
    Some(match reason {
        DownReason::Closed | DownReason::LocalClose | DownReason::Aborted => return None,
        DownReason::Unreachable => format!(
            "peer {who} unreachable: silent for {:.1} s (WEIR_PEER_TIMEOUT_MS), or its program is gone; taken for dead",
            cfg.peer_timeout.as_secs_f64()
        ),
        DownReason::ConnectTimeout => format!(
            "no answer from {who} within {:.1} s (WEIR_CONNECT_TIMEOUT_MS): peer absent, address unreachable, or another job key",
            cfg.connect_timeout.as_secs_f64()
        ),
        other => format!("peer {who} down: {other}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dead_are_named_with_the_rule_that_was_applied() {
        let cfg = EngineConfig { peer_timeout: std::time::Duration::from_millis(700), ..EngineConfig::default() };
        let say = |reason| line("10.77.1.2:40123", reason, &cfg);
        let silent = say(DownReason::Unreachable).expect("news");
        assert!(silent.contains("10.77.1.2:40123") && silent.contains("0.7 s (WEIR_PEER_TIMEOUT_MS)"), "{silent}");
        let absent = say(DownReason::ConnectTimeout).expect("news");
        assert!(absent.starts_with("no answer from 10.77.1.2:40123 within 10.0 s (WEIR_CONNECT_"), "{absent}");
        assert!(say(DownReason::Restarted).expect("news").contains("10.77.1.2:40123 down: the peer restarted"));
        assert_eq!(say(DownReason::Closed), None);
    }
}
