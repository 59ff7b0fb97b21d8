//! Where the trace of messages and news for people go: the trace's file, the deaths kept for the face, and standard error.

use crate::EngineConfig;
use crate::obituary;
use crate::trace::Trace;
use std::fmt;
use std::io::Write;
use weir_message::{Notice, Sink};

/// Takes what [`weir_message::Messages`] has to tell.
pub struct Telling {
    pub(crate) trace: Trace,
    cfg: EngineConfig,
}

impl Telling {
    pub(crate) fn new(trace: Trace, cfg: EngineConfig) -> Telling {
        Telling { trace, cfg }
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
            Notice::PeerDown { who, reason } => obituary::note(who, *reason, &self.cfg),
            other => {
                if let Some(text) = text(other) {
                    // Not `eprintln`, which panics when nobody reads standard error any more; and in one write, lest lines of ranks mix.
                    let _ = std::io::stderr().write_all(format!("weir: {text}\n").as_bytes());
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
