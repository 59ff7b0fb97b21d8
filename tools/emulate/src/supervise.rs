//! The command that runs in a network: it has a process group of its own, gets each signal once,
//! and has the terminal where this process has it; and how it ends, with all that it started.
//!
//! In the group of this process the command would get a signal that was sent to the group, and once
//! more from here: nothing tells such a signal from one that was sent to this process only. So no
//! signal for this process reaches the command by itself, and all are passed on.

use crate::network::Network;
use crate::process::{self, Process};
use anyhow::{Context, bail};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal, kill, killpg, raise};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::{Pid, getpgrp, getpid, tcgetpgrp, tcsetpgrp};
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// After what asks the command to end, and before it is made to.
const GRACE: Duration = Duration::from_secs(5);
/// Between two looks at what does not come as a signal.
const LOOK: Duration = Duration::from_millis(200);
/// The same while something is to end.
const LOOK_AT_THE_END: Duration = Duration::from_millis(20);
/// The same signal that comes again so soon was sent once, to this process and to its group
/// (timeout(1) does).
const ONE_SIGNAL: Duration = Duration::from_millis(100);
/// So long it takes at most until what got SIGKILL is gone.
const GONE: Duration = Duration::from_secs(2);

/// They ask the command to end; without a command, the network.
const ENDING: [Signal; 3] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];
/// They are the command's, too, where there is one.
const PASSED: [Signal; 6] =
    [Signal::SIGQUIT, Signal::SIGUSR1, Signal::SIGUSR2, Signal::SIGWINCH, Signal::SIGTSTP, Signal::SIGCONT];

/// The signals for this process, in their order.
pub(crate) struct Signals {
    descriptor: SignalFd,
    queue: VecDeque<Signal>,
}

impl Signals {
    /// To be called before any thread starts, so that all threads leave the signals to the
    /// descriptor.
    pub(crate) fn block(with_command: bool) -> anyhow::Result<Self> {
        let mut mask = SigSet::from_iter(ENDING);
        mask.add(Signal::SIGCHLD);
        if with_command {
            mask.extend(PASSED);
            // Who writes to the terminal, or gives it away, gets it while another group has it.
            let mut blocked = mask;
            blocked.add(Signal::SIGTTOU);
            blocked.thread_block().context("block signals")?;
        } else {
            mask.thread_block().context("block signals")?;
        }
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        Ok(Signals {
            descriptor: SignalFd::with_flags(&mask, flags).context("make a signalfd")?,
            queue: VecDeque::new(),
        })
    }

    /// Waits for a signal; SIGCHLD only ends the wait.
    fn next(&mut self, wait: Duration) -> anyhow::Result<Option<Signal>> {
        self.take()?;
        if self.queue.is_empty() {
            let mut fds = [PollFd::new(self.descriptor.as_fd(), PollFlags::POLLIN)];
            match poll(&mut fds, PollTimeout::try_from(wait).unwrap_or(PollTimeout::ZERO)) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(e) => return Err(e).context("wait for signals"),
            }
            self.take()?;
        }
        Ok(self.queue.pop_front())
    }

    /// Those that have come.
    fn take(&mut self) -> anyhow::Result<()> {
        while let Some(info) = self.descriptor.read_signal().context("read a signal")? {
            match Signal::try_from(info.ssi_signo as i32) {
                Ok(Signal::SIGCHLD) | Err(_) => {}
                Ok(signal) => self.queue.push_back(signal),
            }
        }
        Ok(())
    }
}

/// The terminal of this process, and which group it was given to.
struct Terminal {
    device: Arc<File>,
    own: Pid,
    /// The command's group has it.
    lent: bool,
    /// The command's group had it when it was stopped, and is to have it again.
    owed: bool,
}

impl Terminal {
    /// None where this process has no terminal.
    fn of_this_process() -> Option<Self> {
        let device = File::options().read(true).write(true).open("/dev/tty").ok()?;
        Some(Terminal { device: Arc::new(device), own: getpgrp(), lent: false, owed: false })
    }

    /// Whether this process is in the foreground.
    fn is_ours(&self) -> bool {
        tcgetpgrp(&*self.device) == Ok(self.own)
    }

    /// Whether nobody else of this process's group would miss the terminal: the rest of a pipeline
    /// or the script that this process is a part of is to get a Ctrl-C too, and may read.
    fn is_ours_alone(&self) -> bool {
        let others = |one: &Process| one.group == self.own.as_raw() && one.pid != getpid().as_raw();
        self.is_ours() && !process::all().any(|one| others(&one))
    }

    fn lend(&mut self, group: Pid) {
        if tcsetpgrp(&*self.device, group).is_ok() {
            (self.lent, self.owed) = (true, false);
        }
    }

    fn take_back(&mut self) {
        if std::mem::take(&mut self.lent) {
            let _ = tcsetpgrp(&*self.device, self.own); // it may have been hung up
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.take_back();
    }
}

/// A running command.
pub(crate) struct Running {
    child: Child,
    group: Pid,
    terminal: Option<Terminal>,
}

impl Running {
    /// Starts a command in a group of its own. To be called by the thread that blocked the signals
    /// and will supervise the command.
    pub(crate) fn start(mut command: Command) -> io::Result<Self> {
        let mut terminal = Terminal::of_this_process();
        if let Some(terminal) = terminal.as_mut().filter(|terminal| terminal.is_ours_alone()) {
            let device = Arc::clone(&terminal.device);
            // In the command's process: it is never seen without the terminal.
            crate::sys::before_exec(&mut command, move || {
                SigSet::from(Signal::SIGTTOU).thread_block()?;
                let _ = tcsetpgrp(&*device, getpid());
                Ok(())
            });
            terminal.lent = true;
        }
        crate::sys::before_exec(&mut command, || Ok(SigSet::empty().thread_set_mask()?));
        process::end_with_us(&mut command, Signal::SIGKILL);
        let child = command.process_group(0).spawn()?;
        Ok(Running { group: Pid::from_raw(child.id() as i32), child, terminal })
    }

    fn pass(&self, signal: Signal) {
        let _ = killpg(self.group, signal); // it may have ended just now
    }

    /// A SIGCONT that came for this process. The shell that sent it has most likely given it the
    /// terminal.
    fn go_on(&mut self) {
        if let Some(terminal) = self.terminal.as_mut().filter(|terminal| terminal.owed && terminal.is_ours()) {
            terminal.lend(self.group);
        }
        self.pass(Signal::SIGCONT);
    }

    /// What is to be done when the command was stopped: who reads from the terminal gets it, and
    /// who was stopped at the terminal is stopped as a job of the user's shell.
    fn look_after_stop(&mut self, signals: &mut Signals) -> anyhow::Result<()> {
        let flags = WaitPidFlag::WSTOPPED | WaitPidFlag::WNOHANG;
        let Ok(WaitStatus::Stopped(_, by)) = waitid(Id::Pid(self.group), flags) else { return Ok(()) };
        let Some(terminal) = &mut self.terminal else { return Ok(()) };
        let wants = matches!(by, Signal::SIGTTIN | Signal::SIGTTOU);
        if wants && terminal.is_ours() {
            terminal.lend(self.group);
            self.pass(Signal::SIGCONT);
            return Ok(());
        }
        if !wants && by != Signal::SIGTSTP && !terminal.lent {
            return Ok(()); // somebody stopped it, who will let it go on
        }
        terminal.owed |= terminal.lent || wants;
        terminal.take_back();
        // Not SIGSTOP: where no shell could let this process go on the kernel ignores these.
        stop_ourselves(if wants { by } else { Signal::SIGTSTP })?;
        signals.take()?;
        if signals.queue.contains(&Signal::SIGCONT) {
            return Ok(());
        }
        if wants {
            // No shell is left that could give it the terminal: as the kernel does with what is
            // stopped then.
            self.pass(Signal::SIGHUP);
        }
        self.go_on();
        Ok(())
    }
}

/// Stops this process, as the terminal does, until somebody lets it go on.
fn stop_ourselves(signal: Signal) -> anyhow::Result<()> {
    let mut mask = SigSet::empty();
    mask.add(signal);
    let before = SigSet::thread_get_mask().context("look at the signal mask")?;
    mask.thread_unblock().context("unblock a signal")?;
    raise(signal).context("stop")?;
    before.thread_set_mask().context("block signals")
}

/// What is asked to end, and until when it may.
struct End {
    by: Instant,
    /// Everything is to end that the network's hosts run; else the command.
    all: bool,
}

/// Waits for the command, or without one for a signal or a request to stop, and returns the exit
/// code.
pub(crate) fn supervise(network: &Network, mut running: Option<Running>, signals: &mut Signals) -> anyhow::Result<u8> {
    let mut end: Option<End> = None;
    let mut code = None;
    let mut last: Option<(Signal, Instant)> = None;
    let group = running.as_ref().map(|running| running.group);
    loop {
        if let Some(running) = &mut running
            && code.is_none()
        {
            running.look_after_stop(signals)?;
            code = running.child.try_wait().context("wait for the command")?.map(exit_code);
        }
        let done = running.is_none() || code.is_some();
        match &end {
            None | Some(End { all: false, .. }) if code.is_some() => break,
            Some(End { all: true, .. }) if done && rest(network, group).is_empty() => break,
            _ => {}
        }
        if network.failed() {
            bail!("the data plane failed");
        }
        let told = signals.next(if end.is_some() { LOOK_AT_THE_END } else { LOOK })?;
        let again = last.is_some_and(|(signal, at)| told == Some(signal) && at.elapsed() < ONE_SIGNAL);
        let told = told.filter(|signal| !again || !ENDING.contains(signal));
        last = told.map(|signal| (signal, Instant::now())).or(last);
        let ending = told.is_some_and(|signal| ENDING.contains(&signal) || signal == Signal::SIGQUIT);
        if end.as_ref().is_some_and(|end| ending || Instant::now() >= end.by) {
            // Asked twice, or for long enough.
            let all = end.is_some_and(|end| end.all);
            return kill_all(network, running, code, all);
        }
        match (&mut running, told) {
            (None, Some(_)) if ending => break,
            (Some(running), Some(Signal::SIGCONT)) => running.go_on(),
            (Some(running), Some(signal)) => running.pass(signal),
            _ => {}
        }
        if ending {
            end = Some(End { by: Instant::now() + GRACE, all: false });
        } else if network.stop_requested() && !end.as_ref().is_some_and(|end| end.all) {
            tell_all(network, group, Signal::SIGTERM);
            tell_all(network, group, Signal::SIGCONT); // what is stopped hears nothing else
            end = Some(End { by: end.map_or_else(|| Instant::now() + GRACE, |end| end.by), all: true });
        }
    }
    Ok(code.unwrap_or_default())
}

/// What lives of the command and inside the hosts.
fn rest(network: &Network, group: Option<Pid>) -> Vec<Process> {
    let is_of_it = |one: &Process| group.is_some_and(|group| one.group == group.as_raw()) || network.holds(one.pid);
    process::all().filter(is_of_it).collect()
}

/// Signals the command's group, and each process inside the hosts that is not in it.
fn tell_all(network: &Network, group: Option<Pid>, signal: Signal) {
    let rest = rest(network, group);
    if let Some(group) = group
        && rest.iter().any(|one| one.group == group.as_raw())
    {
        let _ = killpg(group, signal);
    }
    for one in rest.iter().filter(|one| group.is_none_or(|group| one.group != group.as_raw())) {
        let _ = kill(Pid::from_raw(one.pid), signal);
    }
}

/// Makes the command's group end, or everything.
fn kill_all(network: &Network, mut running: Option<Running>, code: Option<u8>, all: bool) -> anyhow::Result<u8> {
    let group = running.as_ref().map(|running| running.group);
    if let Some(running) = running.as_mut().filter(|_| code.is_none()) {
        let _ = running.child.kill(); // it may have a group of its own by now
        running.pass(Signal::SIGKILL);
    }
    let until = Instant::now() + GONE;
    while all && !rest(network, group).is_empty() && Instant::now() < until {
        tell_all(network, group, Signal::SIGKILL);
        std::thread::sleep(LOOK_AT_THE_END);
    }
    match (code, &mut running) {
        (Some(code), _) => Ok(code),
        (None, Some(running)) => Ok(exit_code(running.child.wait().context("wait for the command")?)),
        (None, None) => Ok(0),
    }
}

fn exit_code(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => code as u8, // the kernel keeps eight bits
        (None, signal) => 128u8.saturating_add(signal.unwrap_or_default() as u8),
    }
}
