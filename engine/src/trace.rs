//! A levelled trace of requests' lives, one line an event: what was posted, what arrived, what was matched, how it ended.
//!
//! Level 1: failures, lanes that are not to be had and peers going down. Level 2: every step of every request. Off, it costs one comparison. A full disk ends the trace with one warning; traffic goes on.

use crate::api::OpError;
use std::fs::File;
use std::io::{BufWriter, ErrorKind, Write};
use std::net::SocketAddr;
use std::path::Path;
use weir_proto::DownReason;

/// The trace of one endpoint.
pub struct Trace {
    level: u8,
    to: Option<Box<dyn Write + Send>>,
    /// Where that is, for people.
    place: String,
    start: std::time::Instant,
}

impl Trace {
    /// A trace to `path` (where `%p` becomes the process id), or to standard error.
    ///
    /// # Errors
    /// When the file cannot be made.
    pub fn open(level: u8, path: Option<&Path>) -> std::io::Result<Trace> {
        let place = path.map_or_else(|| "standard error".to_owned(), |path| with_pid(&path.to_string_lossy()));
        let to: Option<Box<dyn Write + Send>> = match (level, path) {
            (0, _) => None,
            (_, Some(_)) => {
                let file = File::create(&place).map_err(|e| std::io::Error::new(e.kind(), format!("{place}: {e}")));
                Some(Box::new(BufWriter::new(file?)))
            }
            // In one write a line, lest lines of ranks mix.
            (_, None) => Some(Box::new(std::io::LineWriter::new(std::io::stderr()))),
        };
        Ok(Trace { level, to, place, start: std::time::Instant::now() })
    }

    #[inline]
    fn on(&self, level: u8) -> bool {
        self.level >= level
    }

    #[cold]
    fn line(&mut self, text: std::fmt::Arguments<'_>) {
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
    }

    /// A send was accepted.
    #[inline]
    pub fn send(&mut self, peer: u32, tag: u64, len: u64, eager: bool) {
        if self.on(2) {
            let how = if eager { "eager" } else { "rendezvous" };
            self.line(format_args!("send start      peer={peer} tag={tag:#x} len={len} {how}"));
        }
    }

    /// A send ended.
    #[inline]
    pub fn sent(&mut self, peer: u32, tag: u64, len: u64, result: Result<(), OpError>) {
        if self.on(2) || (self.on(1) && result.is_err()) {
            let text = result.map_or_else(|e| e.to_string(), |()| "ok".to_owned());
            self.line(format_args!("send done       peer={peer} tag={tag:#x} len={len} {text}"));
        }
    }

    /// A receive was posted.
    #[inline]
    pub fn posted(&mut self, source: Option<u32>, tag: u64, ignore: u64) {
        if self.on(2) {
            self.line(format_args!("receive posted  source={source:?} tag={tag:#x} ignore={ignore:#x}"));
        }
    }

    /// A message was seen for the first time.
    #[inline]
    pub fn arrived(&mut self, peer: u32, tag: u64, len: u64) {
        if self.on(2) {
            self.line(format_args!("message arrived peer={peer} tag={tag:#x} len={len}"));
        }
    }

    /// A receive ended.
    #[inline]
    pub fn received(&mut self, source: Option<u32>, tag: u64, len: u64, result: Result<(), OpError>) {
        if self.on(2) || (self.on(1) && result.is_err()) {
            let text = result.map_or_else(|e| e.to_string(), |()| "ok".to_owned());
            self.line(format_args!("receive done    source={source:?} tag={tag:#x} len={len} {text}"));
        }
    }

    /// The socket is unusable.
    pub fn socket_failed(&mut self, errno: i32) {
        if self.on(1) {
            self.line(format_args!("socket unusable {}", std::io::Error::from_raw_os_error(errno)));
        }
    }

    /// No TCP connection to a peer could be made for a lane; `why`: none, nobody answered.
    pub fn no_tcp(&mut self, peer: u32, to: SocketAddr, why: Option<ErrorKind>) {
        if self.on(1) {
            let what = why.map_or_else(|| "was not answered".to_owned(), |e| format!("failed ({e})"));
            self.line(format_args!(
                "lane not made   peer={peer} TCP to {to} {what}: large messages go in packets; a firewall may drop TCP (not tried with WEIR_LANES=off)"
            ));
        }
    }

    /// A peer went down.
    pub fn peer_down(&mut self, peer: u32, who: &str, reason: DownReason) {
        if self.on(1) {
            self.line(format_args!("peer down       peer={peer} at {who} {reason}"));
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
        let Err(error) = Trace::open(1, Some(Path::new("/no/such/folder/t-%p"))) else { panic!("opened") };
        assert!(error.to_string().starts_with("/no/such/folder/t-"), "{error}");
    }
}
