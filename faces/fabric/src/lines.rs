//! Lines for people, on standard error.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{Error, Write};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Most lines said; who has not understood by then does not read them.
const LINES_MAX: usize = 64;

/// What was said, by a number that a line has and hardly another. Without a lock: a child made by
/// fork(2) could find it held for ever.
struct Said([AtomicU64; LINES_MAX]);

impl Said {
    const fn new() -> Said {
        Said([const { AtomicU64::new(0) }; LINES_MAX])
    }

    /// Whether this line is to be said now: not yet said, and there is room.
    fn is_new(&self, line: &str) -> bool {
        let mut hasher = DefaultHasher::new();
        line.hash(&mut hasher);
        // 0 is a free place.
        let own = hasher.finish() | 1;
        for place in &self.0 {
            match place.compare_exchange(0, own, Relaxed, Relaxed) {
                Ok(_) => return true,
                Err(there) if there == own => return false,
                Err(_) => {}
            }
        }
        false
    }
}

/// One line for the user, whatever the log level: something he has to put right. The same line is
/// not repeated.
pub fn complain(line: &str) {
    static SAID: Said = Said::new();
    if SAID.is_new(line) {
        say(&mut StandardError, line);
    }
}

/// Lines of the trace or the counters, to standard error.
pub fn write_out(text: &str) {
    let _ = StandardError.write_all(text.as_bytes());
}

/// In one write, lest lines of ranks mix. Not `eprintln`, which panics when nobody reads standard
/// error any more.
fn say(to: &mut impl Write, line: &str) {
    let _ = to.write_all(format!("weir: {line}\n").as_bytes());
}

/// The descriptor itself: the library's own handle has a lock, which a child made by fork(2) could
/// find held for ever.
struct StandardError;

impl Write for StandardError {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        // SAFETY: these bytes are read, and no more.
        let n = unsafe { libc::write(libc::STDERR_FILENO, bytes.as_ptr().cast(), bytes.len()) };
        usize::try_from(n).map_err(|_| Error::last_os_error())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_one_write() {
        struct Writes(Vec<String>);
        impl std::io::Write for Writes {
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                self.0.push(String::from_utf8_lossy(bytes).into_owned());
                Ok(bytes.len())
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let mut to = Writes(Vec::new());
        say(&mut to, "what happened");
        assert_eq!(to.0, ["weir: what happened\n"]);
    }

    #[test]
    fn each_line_is_said_once_and_not_too_many() {
        let said = Said::new();
        assert_eq!(["a", "b", "a", "b"].map(|line| said.is_new(line)), [true, true, false, false]);
        let more = (0..2 * LINES_MAX).filter(|n| said.is_new(&n.to_string())).count();
        assert_eq!(more, LINES_MAX - 2);
    }

    #[test]
    fn a_child_forked_while_another_thread_writes_to_standard_error_says_its_lines() {
        crate::tests::forks::fork_beside(
            || std::io::stderr().lock(),
            || {
                complain("a line of a test");
                write_out("a line of a test\n");
                true
            },
        );
    }
}
