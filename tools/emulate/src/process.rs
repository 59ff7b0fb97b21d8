//! What the project's commands owe to who started them: to end when the reader of their output is
//! gone, and to leave nothing running when they are killed.

use crate::sys;
use nix::sys::signal::Signal;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind, set_hook, take_hook};
use std::process::{Command, ExitCode};
use weir_put::ReaderIsGone;

/// Exit code of a command whose reader went away: what a shell says of a program that SIGPIPE
/// ended, 128 + 13.
pub const EXIT_READER_GONE: u8 = 141;

/// Runs a command's main function. When the reader of standard output or error goes away, as in
/// `weir stat 1 --every 1 | head`, the command ends at the next line it prints: without a word, and
/// what it holds is given back. (Left to SIGPIPE it would be ended in the middle, also by the other
/// end of any socket; `println!` by itself panics.)
pub fn quietly(main: impl FnOnce() -> ExitCode) -> ExitCode {
    let usual = take_hook();
    set_hook(Box::new(move |info| {
        if !is_broken_pipe(info.payload()) {
            usual(info);
        }
    }));
    match catch_unwind(AssertUnwindSafe(main)) {
        Ok(code) => code,
        Err(payload) if is_broken_pipe(&*payload) => ExitCode::from(EXIT_READER_GONE),
        Err(payload) => resume_unwind(payload),
    }
}

/// For who prints otherwise than by `println!` and its kin and finds that nobody reads: ends the
/// command.
pub fn reader_is_gone() -> ! {
    resume_unwind(Box::new(ReaderIsGone))
}

/// Whether a panic says that nobody reads. Those of `println!` and its kin tell it by their text
/// only (as rustc's own driver takes it).
fn is_broken_pipe(payload: &(dyn Any + Send)) -> bool {
    payload.is::<ReaderIsGone>()
        || payload
            .downcast_ref::<String>()
            .is_some_and(|text| text.starts_with("failed printing to std") && text.ends_with("(os error 32)"))
}

/// Arranges for the process of `command` to get `signal` when the thread that starts it ends,
/// however that comes about: SIGKILL of this process too. To be called by the thread that then
/// starts the command, and that waits for it.
pub fn end_with_us(command: &mut Command, signal: Signal) {
    let us = nix::unistd::getpid();
    sys::before_exec(command, move || {
        nix::sys::prctl::set_pdeathsig(signal)?;
        // If we were killed before that call, no signal will come.
        if nix::unistd::getppid() == us { Ok(()) } else { Err(nix::Error::ESRCH.into()) }
    });
}

/// A process that lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pub pid: i32,
    /// Its process group.
    pub group: i32,
}

/// All processes that this one sees and that have not ended. One that has, and that nobody has
/// waited for, is left out: where nobody ever does it would be seen for ever.
pub(crate) fn all() -> impl Iterator<Item = Process> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid: i32| {
        let group = living_group(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?;
        Some(Process { pid, group })
    })
}

/// The process group in what the kernel says of a process that lives. Its name, in parentheses, may
/// hold anything.
fn living_group(stat: &str) -> Option<i32> {
    let mut words = stat.rsplit_once(')')?.1.split_whitespace();
    let state = words.next()?;
    (!matches!(state, "Z" | "X")).then(|| words.nth(1)?.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_found_behind_any_name() {
        assert_eq!(living_group("12 (a) Z 1 (b)) S 3 45 6 0 -1\n"), Some(45));
        assert_eq!(living_group("12 (sh) Z 3 45 6 0 -1\n"), None);
        let own = Process { pid: std::process::id() as i32, group: nix::unistd::getpgrp().as_raw() };
        assert!(all().any(|one| one == own));
    }

    #[test]
    fn only_a_reader_that_is_gone_ends_a_command_quietly() {
        assert_eq!(quietly(|| ExitCode::from(7)), ExitCode::from(7));
        assert_eq!(quietly(|| reader_is_gone()), ExitCode::from(EXIT_READER_GONE));
        assert!(catch_unwind(|| quietly(|| panic!("something else"))).is_err());
    }
}
