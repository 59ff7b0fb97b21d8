//! The end of all processes when one of them fails: told once, in bounded time.
//!
//! Who fails tells its own line and the news to all others, who end without a word. Who finds
//! another one gone is mostly one of several that do: the first by pid of those who wait for it in
//! every superstep tells it, the others wait a moment for its news.

use crate::bootstrap::{self, Bootstrap};
use crate::counts;
use crate::process::Process;
use crate::wire::WireError;
use std::io::Write;
use std::time::{Duration, Instant};
use weir_job::launch::LAST_WORDS;

/// What processes end with that did not come to their end.
pub const EXIT_CODE: i32 = 1;
/// Time for the news to arrive.
const LEAVING: Duration = Duration::from_millis(250);
/// Time for the output of a program that has failed.
const FLUSHING: Duration = Duration::from_secs(1);
/// Who is not the first to tell waits so long for the news of who is.
const OTHERS_TELL: Duration = Duration::from_secs(2);

/// Prints a line of a process.
pub fn say(pid: Option<usize>, text: &str) {
    print(&line(pid, text));
}

fn line(pid: Option<usize>, text: &str) -> String {
    let who = pid.map_or_else(String::new, |pid| format!("process {pid}: "));
    format!("weir bsp: {who}{}", text.trim_end())
}

fn print(line: &str) {
    // Nothing can be done where nobody listens.
    let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
}

/// Ends the process, with what its program has printed so far.
pub fn leave(code: i32) -> ! {
    // What has come to its end waits as long as it takes for its output to be read, like any
    // program.
    flush((code != 0).then_some(FLUSHING));
    // SAFETY: ends the process. Handlers of the program are not for an end like this one, and could
    // wait for ever.
    unsafe { libc::_exit(code) }
}

/// Writes out what the C library holds of the program's output, within a time if one is given:
/// nobody may read it, or a thread of the program may have a stream locked.
fn flush(within: Option<Duration>) {
    let (done, told) = std::sync::mpsc::channel();
    let flushing = std::thread::Builder::new().spawn(move || {
        // SAFETY: all streams; it locks each.
        unsafe { libc::fflush(std::ptr::null_mut()) };
        done.send(())
    });
    let _ = match (flushing, within) {
        (Ok(_), Some(within)) => told.recv_timeout(within).ok(),
        (Ok(_), None) => told.recv().ok(),
        (Err(_), _) => None,
    };
}

/// This process has failed: all end.
pub fn fail(process: Option<&mut Process>, text: &str) -> ! {
    let Some(process) = process else {
        if bootstrap::is_first_to_fail() {
            say(None, text);
            std::thread::sleep(LAST_WORDS);
        }
        leave(EXIT_CODE);
    };
    if !process.bootstrap.is_first_to_fail() {
        follow(process);
    }
    // The launcher before the others: it tells of the first that fails, and who hears of it from
    // here fails too.
    tell_launcher(&mut *process.bootstrap, &line(Some(process.pid), text));
    spread(process, text);
    leave(EXIT_CODE)
}

/// The same before this process takes part.
pub fn fail_before(mut bootstrap: Box<dyn Bootstrap>, text: &str) -> ! {
    if bootstrap.is_first_to_fail() {
        let line = line(Some(bootstrap.rank()), text);
        tell_launcher(&mut *bootstrap, &line);
        std::thread::sleep(LAST_WORDS);
    }
    leave(EXIT_CODE)
}

/// A process that is none of the program's has failed: it ends alone. What its parent has not
/// written yet is its parent's to write.
pub fn fail_alone(text: &str) -> ! {
    say(None, text);
    // SAFETY: ends the process, without what it inherited of streams and handlers.
    unsafe { libc::_exit(EXIT_CODE) }
}

fn tell_launcher(bootstrap: &mut dyn Bootstrap, line: &str) {
    // A launcher that does not show it may end this process before the call returns.
    let shown = bootstrap.shows_abort();
    if !shown {
        print(line);
    }
    if !bootstrap.abort(EXIT_CODE, line) && shown {
        print(line);
    }
}

fn spread(process: &mut Process, text: &str) {
    let all = 0..process.nprocs();
    if let Some(wire) = &mut process.wire {
        wire.tell(all, text, LEAVING);
    }
}

/// Another process has failed, and told people.
fn follow(process: &mut Process) -> ! {
    // Who failed may have no time to tell all: a few others each are told by everybody.
    let (pid, bits) = (process.pid(), usize::BITS - process.nprocs().leading_zeros());
    if let Some(wire) = &mut process.wire {
        wire.tell((0..bits).map(|bit| pid ^ 1 << bit), "", LEAVING);
    }
    leave(EXIT_CODE)
}

/// Messages do not go on: all end, and one of them says why.
pub fn wire_failed(process: &mut Process, doing: &str, error: WireError) -> ! {
    match error {
        WireError::Ended => follow(process),
        WireError::Other(text) => fail(Some(process), &format!("{doing}{text}")),
        WireError::Gone { pid, reason } => {
            let first = counts::watchers(pid, process.nprocs()).min() == Some(process.pid());
            let patience = match (first, process.bootstrap.is_launched()) {
                (true, false) => Duration::ZERO,
                // A launcher knows best how a process ended, tells it, and ends all others.
                (true, true) | (false, false) => OTHERS_TELL,
                (false, true) => 2 * OTHERS_TELL,
            };
            if news_come(process, patience) {
                follow(process);
            }
            let who = if pid < process.nprocs() { format!("process {pid}") } else { "another process".to_owned() };
            fail(Some(process), &format!("{doing}{who} is gone, without bsp_end ({reason})"));
        }
    }
}

/// All processes find this wrong, and one of them says it.
pub fn all_failed(process: &mut Process, text: &str) -> ! {
    let patience = if process.pid() == 0 { Duration::ZERO } else { 2 * OTHERS_TELL };
    if news_come(process, patience) {
        follow(process);
    }
    fail(Some(process), text)
}

/// Whether somebody else tells it in this time.
fn news_come(process: &mut Process, patience: Duration) -> bool {
    let Some(wire) = process.wire.as_mut() else { return false };
    let since = Instant::now();
    while since.elapsed() < patience {
        if matches!(wire.turn(), Err(WireError::Ended)) {
            return true;
        }
    }
    false
}
