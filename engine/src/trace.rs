//! A levelled trace of requests' lives, one line an event.
//!
//! Level 1: what goes wrong, and peers and lanes that come and go. Level 2: each request under a number of its own, with every stage of its life (`requests`). Level 3: each packet too (`packets`).
//! Off, each place costs one comparison. A full disk ends the trace with one warning; traffic goes on.

mod packets;
mod requests;

use requests::Lives;
use std::io::{BufWriter, ErrorKind, LineWriter, Write};
use std::net::SocketAddr;
use std::path::Path;
use weir_udp::create_unshared;

/// The trace of one endpoint.
pub struct Trace {
    level: u8,
    to: Option<Box<dyn Write + Send>>,
    /// Where that is, for people.
    place: String,
    start: std::time::Instant,
    /// What comes now comes by a lane, not in packets.
    pub by_lane: bool,
    lives: Lives,
}

impl Trace {
    /// A trace to `path` (where `%p` becomes the process id), or to standard error (also by the name of `-`). One whose file another endpoint writes is off, with a warning.
    ///
    /// # Errors
    /// When the file cannot be made.
    pub fn open(mut level: u8, path: Option<&Path>) -> std::io::Result<Trace> {
        let path = path.filter(|path| *path != Path::new("-"));
        let place = path.map_or_else(|| "standard error".to_owned(), |path| with_pid(&path.to_string_lossy()));
        let to: Option<Box<dyn Write + Send>> = match (level, path) {
            (0, _) => None,
            (_, Some(path)) => match create_unshared(Path::new(&place))? {
                // Line by line, so that a program which hangs or is killed has its last line there; packets are too many for that.
                Some(file) if level > 2 => Some(Box::new(BufWriter::new(file))),
                Some(file) => Some(Box::new(LineWriter::new(file))),
                None => {
                    tell_taken("WEIR_TRACE_FILE", &path.to_string_lossy(), &place);
                    level = 0;
                    None
                }
            },
            // In one write a line, lest lines of ranks mix.
            (_, None) => Some(Box::new(LineWriter::new(std::io::stderr()))),
        };
        Ok(Trace { level, to, place, start: std::time::Instant::now(), by_lane: false, lives: Lives::default() })
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
        if let Err(e) = writeln!(to, "{us:14.3} {text}") {
            self.stop(&e);
        }
    }

    fn stop(&mut self, why: &std::io::Error) {
        // In one write, lest lines of ranks mix.
        let _ = std::io::stderr().write_all(stopped(&self.place, why).as_bytes());
        self.to = None;
        self.level = 0;
        self.lives = Lives::default();
    }

    /// The first line: whose trace this is, and when its time began, so that those of several ranks can be laid side by side.
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

    /// A lane came or went.
    pub fn lane(&mut self, peer: u32, what: &str) {
        if self.on(1) {
            self.line(format_args!("lane {what} peer={peer}"));
        }
    }

    /// The socket is unusable.
    pub fn socket_failed(&mut self, errno: i32) {
        if self.on(1) {
            self.line(format_args!("socket unusable: {}", std::io::Error::from_raw_os_error(errno)));
        }
    }

    /// No TCP connection to a peer could be made for a lane; `why`: none, nobody answered.
    pub fn no_tcp(&mut self, peer: u32, to: SocketAddr, why: Option<ErrorKind>) {
        if self.on(1) {
            let what = why.map_or_else(|| "was not answered".to_owned(), |e| format!("failed ({e})"));
            self.line(format_args!(
                "lane not made peer={peer} TCP to {to} {what}: large messages go in packets; a firewall may drop TCP (not tried with WEIR_LANES=off)"
            ));
        }
    }
}

impl Drop for Trace {
    /// The last lines are in a buffer; that they are lost is told like any other loss.
    fn drop(&mut self) {
        if let Some(Err(e)) = self.to.as_mut().map(Write::flush) {
            self.stop(&e);
        }
    }
}

/// The one warning of a trace that ends early.
fn stopped(place: &str, why: &std::io::Error) -> String {
    format!("weir: trace stopped: {place}: {why}\n")
}

/// The warning where another endpoint writes the file `place`, which `variable` names by `pattern`.
pub fn tell_taken(variable: &str, pattern: &str, place: &str) {
    let full = format!("FI_{variable}");
    let variable = if std::env::var_os(&full).is_some() { &full } else { variable };
    let _ = std::io::stderr().write_all(taken(variable, pattern, place).as_bytes());
}

fn taken(variable: &str, pattern: &str, place: &str) -> String {
    // Endpoints of one process have the same number.
    let remedy =
        if pattern.contains("%p") { "" } else { "; with %p in the name each process writes a file of its own" };
    format!("weir: {variable}: {} is written by another endpoint, this one writes none{remedy}\n", place.escape_debug())
}

/// Replaces `%p` by the process id.
#[must_use]
pub fn with_pid(pattern: &str) -> String {
    pattern.replace("%p", &std::process::id().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn troubles_of_the_trace_name_its_file() {
        let why = std::io::Error::from_raw_os_error(libc::ENOSPC);
        let trace = Trace::open(0, Some(Path::new("/x/t-%p"))).expect("off");
        let line = stopped(&trace.place, &why);
        assert!(line.contains(&format!("/x/t-{}: No space left", std::process::id())), "{line}");
        let told = taken("WEIR_TRACE_FILE", "/x/t", "/x/t");
        assert!(told.starts_with("weir: WEIR_TRACE_FILE: /x/t is written by") && told.contains("with %p in"), "{told}");
        assert!(!taken("WEIR_TRACE_FILE", "/x/t-%p", "/x/t-7").contains("%p"));
        let Err(error) = Trace::open(1, Some(Path::new("/no/such/folder/t-%p"))) else { panic!("opened") };
        assert!(error.to_string().starts_with("/no/such/folder/t-"), "{error}");
    }
}
