//! Where the trace of messages and news for people go: the trace's file, and the sink that the
//! endpoint was opened with.

use crate::EngineConfig;
use crate::diagnostics::{Diagnostic, Diagnostics};
use crate::trace::Trace;
use std::fmt;
use weir_link::DownReason;
use weir_message::{Notice, Sink};

/// Takes what [`weir_message::Messages`] has to tell.
pub struct Telling {
    pub(crate) trace: Trace,
    cfg: EngineConfig,
    diagnostics: Diagnostics,
}

impl Telling {
    pub(crate) fn new(trace: Trace, cfg: EngineConfig, diagnostics: Diagnostics) -> Telling {
        Telling { trace, cfg, diagnostics }
    }
}

impl Sink for Telling {
    #[inline]
    fn on(&self, level: u8) -> bool {
        self.trace.on(level)
    }

    fn line(&mut self, text: fmt::Arguments<'_>) {
        self.trace.line(text);
    }

    fn notice(&mut self, notice: &Notice<'_>) {
        match notice {
            Notice::PeerDown { who, reason } => {
                if let Some(line) = line(who, *reason, &self.cfg) {
                    (self.diagnostics)(&Diagnostic::PeerDown { reason: *reason, line: &line });
                }
            }
            other => {
                if let Some(text) = text(other) {
                    (self.diagnostics)(&Diagnostic::Notice(&text));
                }
            }
        }
    }
}

/// One line for people, of what is told at once.
fn text(notice: &Notice<'_>) -> Option<String> {
    Some(match notice {
        Notice::PeerDown { .. } => return None,
        Notice::MoreRoom { budget, most } => format!(
            "sends that their receivers do not take have filled their {budget} bytes and waited for half a second: they get more, up to {most} bytes; to spare a program the waiting give them more with WEIR_COPIED_BYTES"
        ),
        Notice::NoRoom { most, waited_ns, unexpected } => format!(
            "sends have found no room in {most} bytes for {} s, while {unexpected} messages wait here that nobody receives: the program sends more before it receives than memory is set aside for; give it more with WEIR_COPIED_BYTES",
            waited_ns / 1_000_000_000
        ),
        Notice::UnexpectedFull { budget } => format!(
            "messages nobody has asked for have filled their {budget} bytes, and no receive that is posted takes one: senders have to wait; if the program hangs, give it more with WEIR_UNEXPECTED_BYTES"
        ),
    })
}

/// What to do where the endpoint chose its interfaces itself.
const INTERFACES: &str =
    "; on hosts with many interfaces name the one that leads to the others by WEIR_IFACE (weir doctor lists them)";

/// One line of a peer that went down. One that closed in good order, or that was closed here, is no
/// news.
fn line(who: &str, reason: DownReason, cfg: &EngineConfig) -> Option<String> {
    Some(match reason {
        DownReason::Closed | DownReason::LocalClose | DownReason::Aborted => return None,
        DownReason::Unreachable => format!(
            "peer {who} unreachable: silent for {:.1} s (WEIR_PEER_TIMEOUT_MS: set more where programs are stopped for long), or its host says that its program is gone; taken for dead",
            cfg.peer_timeout.as_secs_f64()
        ),
        DownReason::Gone => format!("peer {who}: its program has ended; taken for dead"),
        DownReason::ConnectTimeout => format!(
            "no answer from {who} within {:.1} s (WEIR_CONNECT_TIMEOUT_MS): peer absent, address unreachable, a firewall that drops UDP (weir ping HOST tries both), or another job key{}",
            cfg.connect_timeout.as_secs_f64(),
            if cfg.ifaces.is_empty() && cfg.addrs.is_empty() { INTERFACES } else { "" }
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
        assert!(silent.contains("10.77.1.2:40123") && silent.contains("0.7 s (WEIR_PEER_TIMEOUT_MS:"), "{silent}");
        let absent = say(DownReason::ConnectTimeout).expect("news");
        assert!(absent.starts_with("no answer from 10.77.1.2:40123 within 10.0 s (WEIR_CONNECT_"), "{absent}");
        assert!(absent.contains("by WEIR_IFACE"), "{absent}");
        let named = EngineConfig { ifaces: vec!["eth0".into()], ..EngineConfig::default() };
        let absent = line("10.77.1.2:40123", DownReason::ConnectTimeout, &named).expect("news");
        assert!(absent.ends_with("another job key"), "{absent}");
        assert!(say(DownReason::Restarted).expect("news").contains("10.77.1.2:40123 down: the peer restarted"));
        let gone = say(DownReason::Gone).expect("news");
        assert!(gone.contains("10.77.1.2:40123: its program has ended") && !gone.contains(" s "), "{gone}");
        assert_eq!(say(DownReason::Closed), None);
    }
}
