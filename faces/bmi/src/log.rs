//! Lines for people: to standard error, one each, and not without end.

use std::io::Write;
use std::sync::atomic::{AtomicU32, Ordering};

/// Lines that are told; a peer that is refused again and again must not fill a disk.
const LINES_MAX: u32 = 10_000;

static TOLD: AtomicU32 = AtomicU32::new(0);

/// Characters of a program's text that are repeated.
const SHOWN_MAX: usize = 80;

/// A text of a program's, for a line.
#[must_use]
pub fn shown(text: &str) -> String {
    let short: String = text.chars().take(SHOWN_MAX).collect();
    let more = if short.len() < text.len() { "..." } else { "" };
    format!("{}{more}", short.escape_debug())
}

/// Tells a line. The process goes on whatever becomes of it.
pub fn tell(line: &str) {
    let n = TOLD.fetch_add(1, Ordering::Relaxed);
    if n < LINES_MAX {
        let _ = writeln!(std::io::stderr(), "weir-bmi: {}", line.trim_end());
    } else if n == LINES_MAX {
        let _ = writeln!(std::io::stderr(), "weir-bmi: {LINES_MAX} lines told; no more follow");
    } else {
        // It must not come round to 0.
        TOLD.store(LINES_MAX + 1, Ordering::Relaxed);
    }
}
