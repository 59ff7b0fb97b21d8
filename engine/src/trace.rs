//! A levelled trace of requests' lives, one line an event.
//!
//! Level 1: what goes wrong, and peers and bulk connections that come and go. Level 2: each request
//! under a number of its own, with every stage of its life. Level 3: each packet too. Lines of
//! requests and packets are written by `weir_message`. Off, each place costs one comparison. A full
//! disk ends the trace with one warning, and its file behind the last whole line; traffic goes on.

use crate::diagnostics::{Diagnostic, Diagnostics};
use crate::files::{own_file, with_pid};
use std::io::{ErrorKind, Write};
use std::net::SocketAddr;
use std::path::Path;
use weir_capture::{RecordFile, create_unshared};

/// Where the lines go.
enum To {
    /// Each line at once to the endpoint's sink.
    Sink,
    /// With `buffered` not line by line: packets are too many for that. Requests are not, and a
    /// program which hangs or is killed has its last line there.
    File { file: RecordFile, buffered: bool },
}

/// Of a buffered trace, bytes.
const BUFFER_BYTES: usize = 8 << 10;

impl To {
    fn line(&mut self, line: &[u8], to: &Diagnostics) -> std::io::Result<()> {
        match self {
            To::Sink => {
                to(&Diagnostic::Trace(&String::from_utf8_lossy(line)));
                Ok(())
            }
            To::File { file, buffered: true } => file.append(line),
            To::File { file, buffered: false } => file.append(line).and_then(|()| file.flush()),
        }
    }
}

/// The trace of one endpoint.
pub struct Trace {
    level: u8,
    to: Option<To>,
    /// The line being written.
    line: Vec<u8>,
    /// Where that is, for people.
    place: String,
    diagnostics: Diagnostics,
    start: std::time::Instant,
}

impl Trace {
    /// A trace to `path` (where `%p` becomes the process id), or to `diagnostics` (also by the name
    /// of `-`). One whose file another endpoint writes is off, with a warning.
    ///
    /// # Errors
    /// When the file cannot be made.
    pub fn open(mut level: u8, path: Option<&Path>, diagnostics: Diagnostics) -> std::io::Result<Trace> {
        let path = path.filter(|path| *path != Path::new("-"));
        let place = path.map_or_else(
            || "standard error".to_owned(),
            |path| {
                let pattern = path.to_string_lossy();
                if level == 0 { with_pid(&pattern) } else { own_file("WEIR_TRACE_FILE", &pattern) }
            },
        );
        let to = match (level, path) {
            (0, _) => None,
            (_, Some(path)) => match create_unshared(Path::new(&place))? {
                Some(file) => Some(To::File { file: RecordFile::new(file, BUFFER_BYTES), buffered: level > 2 }),
                None => {
                    tell_taken(&diagnostics, "WEIR_TRACE_FILE", &path.to_string_lossy(), &place);
                    level = 0;
                    None
                }
            },
            (_, None) => Some(To::Sink),
        };
        Ok(Trace { level, to, line: Vec::new(), place, diagnostics, start: std::time::Instant::now() })
    }

    /// Whether events of this level are wanted.
    #[inline]
    pub fn on(&self, level: u8) -> bool {
        self.level >= level
    }

    /// Writes one line, whatever the level.
    #[cold]
    pub fn line(&mut self, text: std::fmt::Arguments<'_>) {
        let us = self.start.elapsed().as_nanos() as f64 / 1000.0;
        let Some(to) = &mut self.to else { return };
        self.line.clear();
        if let Err(e) = writeln!(self.line, "{us:14.3} {text}").and_then(|()| to.line(&self.line, &self.diagnostics)) {
            self.stop(&e);
        }
    }

    fn stop(&mut self, why: &std::io::Error) {
        (self.diagnostics)(&Diagnostic::Notice(&stopped(&self.place, why)));
        self.to = None;
        self.level = 0;
    }

    /// The first line: whose trace this is, and when its time began, so that those of several ranks
    /// can be laid side by side.
    pub fn opened(&mut self, endpoint: u64, addrs: &[SocketAddr]) {
        if self.on(1) {
            let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
            let begun = since.saturating_sub(self.start.elapsed());
            let level = self.level;
            self.line(format_args!(
                "endpoint {endpoint:016x} at {addrs:?}, level {level}, time 0 is {}.{:06} s of the Unix clock",
                begun.as_secs(),
                begun.subsec_micros()
            ));
        }
    }

    /// A bulk connection came or went.
    pub fn bulk(&mut self, peer: u32, what: &str) {
        if self.on(1) {
            self.line(format_args!("bulk connection {what} peer={peer}"));
        }
    }

    /// The socket is unusable.
    pub fn socket_failed(&mut self, errno: i32) {
        if self.on(1) {
            self.line(format_args!("socket unusable: {}", std::io::Error::from_raw_os_error(errno)));
        }
    }

    /// No TCP connection to a peer could be made for a bulk connection; `why`: none, nobody
    /// answered.
    pub fn no_tcp(&mut self, peer: u32, to: SocketAddr, why: Option<ErrorKind>) {
        if self.on(1) {
            let what = why.map_or_else(|| "was not answered".to_owned(), |e| format!("failed ({e})"));
            self.line(format_args!(
                "bulk connection not made peer={peer} TCP to {to} {what}: large messages go in packets; a firewall may drop TCP (not tried with WEIR_BULK=off)"
            ));
        }
    }
}

impl Drop for Trace {
    /// The last lines are in a buffer; that they are lost is told like any other loss.
    fn drop(&mut self) {
        if let Some(To::File { file, .. }) = &mut self.to
            && let Err(e) = file.flush()
        {
            self.stop(&e);
        }
    }
}

/// The one warning of a trace that ends early.
fn stopped(place: &str, why: &std::io::Error) -> String {
    format!("trace stopped: {place}: {why}")
}

/// The warning where another endpoint writes the file `place`, which `variable` names by `pattern`.
pub fn tell_taken(diagnostics: &Diagnostics, variable: &str, pattern: &str, place: &str) {
    diagnostics(&Diagnostic::Notice(&taken(variable, pattern, place)));
}

fn taken(variable: &str, pattern: &str, place: &str) -> String {
    // Endpoints of one process have the same number.
    let remedy =
        if pattern.contains("%p") { "" } else { "; with %p in the name each process writes a file of its own" };
    format!("{variable}: {} is written by another endpoint, this one writes none{remedy}", place.escape_debug())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnostics::silent;

    #[test]
    fn troubles_of_the_trace_name_its_file() {
        let why = std::io::Error::from_raw_os_error(libc::ENOSPC);
        let trace = Trace::open(0, Some(Path::new("/x/t-%p")), silent()).expect("off");
        let line = stopped(&trace.place, &why);
        assert!(line.contains(&format!("/x/t-{}: No space left", std::process::id())), "{line}");
        let told = taken("WEIR_TRACE_FILE", "/x/t", "/x/t");
        assert!(told.starts_with("WEIR_TRACE_FILE: /x/t is written by") && told.contains("with %p in"), "{told}");
        assert!(!taken("WEIR_TRACE_FILE", "/x/t-%p", "/x/t-7").contains("%p"));
        let Err(error) = Trace::open(1, Some(Path::new("/no/such/folder/t-%p")), silent()) else { panic!("opened") };
        assert!(error.to_string().starts_with("/no/such/folder/t-"), "{error}");
    }
}
