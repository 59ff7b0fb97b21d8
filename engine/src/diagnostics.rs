//! What the engine has to say to people, and to whom it says it. The engine prints nothing: whoever
//! opens an endpoint gives a sink, and decides what becomes of each line.

use std::fmt;
use std::sync::Arc;
use weir_link::DownReason;

/// Something for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Diagnostic<'a> {
    /// One line, without its end: something to be put right, or that ended early. Settings in it
    /// have the engine's names (`WEIR_X`).
    Notice(&'a str),
    /// One line of a peer that went down, and not in good order: who it was, and by which rule it
    /// was given up. A completion can only say that there is no way to it.
    PeerDown {
        /// Why.
        reason: DownReason,
        /// The line, without its end.
        line: &'a str,
    },
    /// A line of the trace, with its end, where the trace goes to no file.
    Trace(&'a str),
    /// All counters of an endpoint that was closed, as JSON with an end of line, where they go to
    /// no file.
    Counters(&'a str),
}

impl fmt::Display for Diagnostic<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Notice(text) | Self::PeerDown { line: text, .. } | Self::Trace(text) | Self::Counters(text)) = self;
        f.write_str(text)
    }
}

/// Takes what there is to say, from whatever thread it comes. The endpoint may be locked meanwhile:
/// a sink calls nothing of it, and takes little time.
pub type Diagnostics = Arc<dyn Fn(&Diagnostic<'_>) + Send + Sync>;

/// Nobody listens.
#[must_use]
pub fn silent() -> Diagnostics {
    Arc::new(|_| {})
}
