//! The processes of a job on this machine: started, answered, their output handed on, and ended
//! together.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Stderr, Stdout, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getppid};

use super::below;
use super::deaths::{Deaths, Ended, reaped};
use super::hub::{Fault, Hub, To};
use super::output::Lines;
use super::signals::{Sent, Signals};
use crate::JobKey;
use crate::launch::local::SOCKET_VARIABLE;
use crate::launch::local::frame::{RANKS_MAX, REQUEST_MAX_BYTES, Request, split};

/// Between SIGTERM and SIGKILL when a rank has failed: the others' results are worth nothing.
const FAILED_GRACE: Duration = Duration::from_millis(250);
/// The same when somebody ends the job by a signal: programs may save what they have.
const ASKED_GRACE: Duration = Duration::from_secs(10);
/// What [`guard`] gives [`run`] beyond that.
const GUARD_GRACE: Duration = Duration::from_secs(15);
/// For the last output of a job whose reader is slow.
const OUTPUT_LIMIT: Duration = Duration::from_secs(10);
/// Output that is held before ranks have to wait for the reader.
const HELD_MAX_BYTES: usize = 1 << 20;
/// A pipe that is ready takes that much at once (POSIX's PIPE_BUF on Linux).
const WRITE_BYTES: usize = 4096;
/// Exit code when nobody reads any more: 128 + SIGPIPE.
const EXIT_READER_GONE: u8 = 141;
/// What each rank needs: a socket, two pipes, and what tells when it ended.
const DESCRIPTORS_EACH: u64 = 4;
/// Beside that.
const SPARE_DESCRIPTORS: u64 = 64;

/// Variables of other launchers: a rank that inherited them might speak to the wrong one.
const OTHERS: [&str; 5] = ["PMI_", "PMIX_", "OMPI_COMM_WORLD_", "HYDI_", "WEIR_LAUNCHER"];

/// What to start.
#[derive(Clone, Debug)]
pub struct Start {
    /// The program's file.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// How many times, 1 to 4096.
    pub ranks: u32,
    /// The job's key, which the ranks get by their socket.
    pub key: JobKey,
    /// The job's name, in `WEIR_JOB_ID`.
    pub id: String,
    /// Each line of output begins with its rank.
    pub tag_output: bool,
    /// How long ranks wait for others in an exchange or fence.
    pub limit: Duration,
}

/// Starts the process that calls [`run`], and waits for it. Signals to this process go on to it;
/// when it is killed, or this process is, all ranks and what they started end. Returns its exit
/// code, or 128 plus the signal that ended it.
///
/// To be called by a process of one thread, once.
///
/// # Errors
/// If the process cannot be started or waited for.
pub fn guard(command: &mut Command) -> io::Result<u8> {
    below::adopt_orphans()?;
    let signals = Signals::new()?;
    weir_job_sys::bind(command, None, Signal::SIGTERM);
    let child = Pid::from_raw(command.spawn()?.id().cast_signed());
    let mut end_by: Option<Instant> = None;
    let code = loop {
        wait_for(&[(signals.as_fd(), PollFlags::POLLIN)], end_by.map(until))?;
        while let Some(sent) = signals.next() {
            if sent.signal == Signal::SIGCHLD {
                continue;
            }
            if !matches!(sent.signal, Signal::SIGUSR1 | Signal::SIGUSR2) {
                end_by.get_or_insert_with(|| Instant::now() + GUARD_GRACE);
            }
            if !sent.by_terminal {
                let _ = kill(child, sent.signal);
            }
        }
        if let Some(code) = reaped().into_iter().find_map(|(pid, ended)| (pid == child).then_some(ended.code())) {
            break code;
        }
        if end_by.is_some_and(|end| Instant::now() >= end) {
            let _ = kill(child, Signal::SIGKILL);
        }
    };
    below::end_all();
    Ok(code)
}

/// Starts the ranks and serves them until all have ended; `say` is given lines for people. Returns
/// the job's exit code: that of the rank that failed first, of an abort, or 128 plus the signal.
///
/// To be called by a process of one thread that has no other children, once.
///
/// # Errors
/// If a rank cannot be started, or the system refuses what a launcher needs; no rank is left then.
pub fn run(start: &Start, say: &mut dyn FnMut(&str)) -> io::Result<u8> {
    if start.ranks == 0 || start.ranks as usize > RANKS_MAX {
        let problem = format!("{} ranks: weir run starts 1 to {RANKS_MAX} on one machine", start.ranks);
        return Err(io::Error::new(ErrorKind::InvalidInput, problem));
    }
    below::adopt_orphans()?;
    raise_descriptors(start.ranks);
    let mut job = Running {
        signals: Signals::new()?,
        hub: Hub::new(start.id.clone(), start.key.bytes, start.ranks),
        ranks: Vec::new(),
        deaths: Deaths::new(),
        printed: [VecDeque::new(), VecDeque::new()],
        streams: (io::stdout(), io::stderr()),
        limit: start.limit,
        waiting: None,
        ending: None,
        code: None,
        parent: getppid(),
        say,
    };
    let done = job.start(start).and_then(|()| job.serve());
    below::end_all();
    done?;
    job.last_output()?;
    Ok(job.code.unwrap_or(0))
}

/// A rank's process as the launcher sees it.
struct Rank {
    /// None when it has ended.
    pid: Option<Pid>,
    /// None when the rank has closed it.
    socket: Option<UnixStream>,
    /// Why it wants the job to end.
    fault: Option<Fault>,
    inbox: Vec<u8>,
    outbox: VecDeque<Rc<[u8]>>,
    /// Of the outbox's first frame.
    written: usize,
    /// Standard output and error, if lines are to be tagged.
    pipes: [Option<(File, Lines)>; 2],
}

struct Running<'a> {
    signals: Signals,
    hub: Hub,
    ranks: Vec<Rank>,
    deaths: Deaths,
    /// What is to be printed on standard output and error.
    printed: [VecDeque<u8>; 2],
    streams: (Stdout, Stderr),
    limit: Duration,
    /// Since when ranks wait in which round.
    waiting: Option<(u32, Instant)>,
    /// When the ranks get SIGKILL, and whether they got it.
    ending: Option<(Instant, bool)>,
    code: Option<u8>,
    parent: Pid,
    say: &'a mut dyn FnMut(&str),
}

/// A descriptor that is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Signals,
    Socket(usize),
    Pipe(usize, usize),
    Print(usize),
}

impl Running<'_> {
    fn start(&mut self, start: &Start) -> io::Result<()> {
        for number in 0..start.ranks {
            let rank = spawn(start, number).map_err(|cause| {
                let problem = format!("cannot start rank {number} of {}: {cause}", start.ranks);
                io::Error::new(cause.kind(), problem)
            })?;
            rank.pid.into_iter().for_each(|pid| self.deaths.watch(pid));
            self.ranks.push(rank);
        }
        Ok(())
    }

    fn serve(&mut self) -> io::Result<()> {
        while self.ranks.iter().any(|rank| rank.pid.is_some()) {
            let sources = self.sources();
            let ready = {
                let fds: Vec<_> =
                    sources.iter().filter_map(|(source, flags)| Some((self.fd(*source)?, *flags))).collect();
                wait_for(&fds, self.next_time())?
            };
            for ((source, _), ready) in sources.into_iter().zip(ready) {
                if ready {
                    self.handle(source);
                }
            }
            self.look_at_children();
            self.look_at_clock();
        }
        Ok(())
    }

    fn sources(&self) -> Vec<(Source, PollFlags)> {
        let mut all = vec![(Source::Signals, PollFlags::POLLIN)];
        for (at, rank) in self.ranks.iter().enumerate() {
            if rank.socket.is_some() {
                let out = if rank.outbox.is_empty() { PollFlags::empty() } else { PollFlags::POLLOUT };
                all.push((Source::Socket(at), PollFlags::POLLIN | out));
            }
            for (stream, held) in self.printed.iter().enumerate() {
                if rank.pipes[stream].is_some() && held.len() < HELD_MAX_BYTES {
                    all.push((Source::Pipe(at, stream), PollFlags::POLLIN));
                }
            }
        }
        let prints = self.printed.iter().enumerate().filter(|(_, held)| !held.is_empty());
        all.extend(prints.map(|(stream, _)| (Source::Print(stream), PollFlags::POLLOUT)));
        all
    }

    fn fd(&self, source: Source) -> Option<BorrowedFd<'_>> {
        match source {
            Source::Signals => Some(self.signals.as_fd()),
            Source::Socket(at) => self.ranks[at].socket.as_ref().map(AsFd::as_fd),
            Source::Pipe(at, stream) => self.ranks[at].pipes[stream].as_ref().map(|(file, _)| file.as_fd()),
            Source::Print(0) => Some(self.streams.0.as_fd()),
            Source::Print(_) => Some(self.streams.1.as_fd()),
        }
    }

    fn handle(&mut self, source: Source) {
        match source {
            Source::Signals => {
                while let Some(sent) = self.signals.next() {
                    self.signal(sent);
                }
            }
            Source::Socket(at) => {
                self.write(at);
                self.read(at);
            }
            Source::Pipe(at, stream) => self.ranks[at].print(stream, &mut self.printed[stream]),
            Source::Print(stream) => {
                let to = if stream == 0 { self.streams.0.as_fd() } else { self.streams.1.as_fd() };
                match print(to, &mut self.printed[stream]) {
                    Ok(()) => {}
                    Err(Errno::EPIPE) => self.end(None, EXIT_READER_GONE, FAILED_GRACE),
                    Err(why) => {
                        let name = ["standard output", "standard error"][stream];
                        self.end(Some(&format!("{name}: {}", io::Error::from(why))), 1, FAILED_GRACE);
                    }
                }
            }
        }
    }

    fn signal(&mut self, sent: Sent) {
        match sent.signal {
            Signal::SIGCHLD => {}
            Signal::SIGUSR1 | Signal::SIGUSR2 => {
                for pid in self.ranks.iter().filter_map(|rank| rank.pid) {
                    let _ = kill(pid, sent.signal);
                }
            }
            signal => {
                // Of the guard's death nobody waits for results any more; a second signal is
                // impatience.
                let at_once = getppid() != self.parent || self.ending.is_some();
                if !sent.by_terminal {
                    below::signal_all(signal);
                }
                let grace = if at_once { Duration::ZERO } else { ASKED_GRACE };
                self.code = self.code.or(Some(128u8.saturating_add(signal as u8)));
                self.end_in(grace);
            }
        }
    }

    /// Reads what a rank asks, and answers. What it asks may be the end of the job: but that may be
    /// what came of another rank's end.
    fn read(&mut self, at: usize) {
        if let Some(fault) = self.asked(at) {
            self.ranks[at].fault = Some(fault);
            self.look_at_children();
            if let Some(fault) = self.ranks[at].fault.take() {
                self.end(Some(&fault.reason), fault.code, FAILED_GRACE);
            }
        }
    }

    /// The same, up to where it wants the job to end: why.
    fn asked(&mut self, at: usize) -> Option<Fault> {
        let mut room = [0; 8192];
        let rank = &mut self.ranks[at];
        match rank.socket.as_mut()?.read(&mut room) {
            Ok(0) => rank.socket = None,
            Ok(bytes) => rank.inbox.extend(&room[..bytes]),
            Err(cause) if matches!(cause.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => return None,
            Err(_) => rank.socket = None,
        }
        // After a failure nothing is answered: whoever waits is about to be ended, and would
        // complain as well.
        while self.code.is_none() {
            let (request, used) = match split(&self.ranks[at].inbox, REQUEST_MAX_BYTES) {
                Ok(None) => break,
                Ok(Some((body, used))) => (Request::parse(body), used),
                Err(wrong) => (Err(wrong), 0),
            };
            self.ranks[at].inbox.drain(..used);
            let answer = match request {
                Ok(request) => self.hub.request(at as u32, request),
                Err(wrong) => Err(Fault { reason: format!("rank {at} sent {wrong}, which is no request"), code: 1 }),
            };
            match answer {
                Ok(Some(answer)) => self.answer(answer.to, answer.reply.to_bytes().into()),
                Ok(None) => {}
                Err(fault) => return Some(fault),
            }
        }
        None
    }

    fn answer(&mut self, to: To, frame: Rc<[u8]>) {
        let all = match to {
            To::One(rank) => rank as usize..rank as usize + 1,
            To::All => 0..self.ranks.len(),
        };
        for at in all {
            self.ranks[at].outbox.push_back(Rc::clone(&frame));
            self.write(at);
        }
    }

    fn write(&mut self, at: usize) {
        let rank = &mut self.ranks[at];
        while let (Some(socket), Some(frame)) = (&mut rank.socket, rank.outbox.front()) {
            match socket.write(&frame[rank.written..]) {
                Ok(bytes) => rank.written += bytes,
                Err(cause) if cause.kind() == ErrorKind::WouldBlock => return,
                Err(cause) if cause.kind() == ErrorKind::Interrupted => continue,
                Err(_) => rank.socket = None,
            }
            if rank.outbox.front().is_some_and(|frame| rank.written == frame.len()) {
                rank.outbox.pop_front();
                rank.written = 0;
            }
        }
    }

    fn look_at_children(&mut self) {
        for (pid, ended) in self.deaths.reaped() {
            let Some(at) = self.ranks.iter().position(|rank| rank.pid == Some(pid)) else { continue };
            // What it asked last, above all an abort, may still be in its socket. (Its place among
            // the others is known: of nobody who ended since is it asked here.)
            let asked = self.asked(at);
            self.ranks[at].pid = None;
            let fault = self.ranks[at].fault.take().or(asked).or_else(|| match ended.code() {
                0 => self.hub.ended(at as u32).err(),
                code => Some(Fault { reason: format!("rank {at} {}", how(ended)), code }),
            });
            if let Some(fault) = fault.filter(|_| self.code.is_none()) {
                self.end(Some(&fault.reason), fault.code, FAILED_GRACE);
            }
        }
    }

    fn look_at_clock(&mut self) {
        let now = Instant::now();
        if !self.hub.waits() {
            self.waiting = None;
        } else if self.waiting.is_none_or(|(round, _)| round != self.hub.round()) {
            self.waiting = Some((self.hub.round(), now));
        } else if self.waiting.is_some_and(|(_, since)| now >= since + self.limit) && self.code.is_none() {
            let fault = self.hub.too_late(self.limit.as_secs());
            self.end(Some(&fault.reason), fault.code, FAILED_GRACE);
        }
        if let Some((at, killed)) = &mut self.ending
            && now >= *at
            && !*killed
        {
            *killed = true;
            below::signal_all(Signal::SIGKILL);
        }
    }

    /// When something is due without anybody asking.
    fn next_time(&self) -> Option<Duration> {
        let kill = self.ending.filter(|(_, killed)| !killed).map(|(at, _)| at);
        let late = self.waiting.map(|(_, since)| since + self.limit).filter(|_| self.code.is_none());
        kill.into_iter().chain(late).min().map(until)
    }

    /// The job ends: the first reason is told, and its code is the job's.
    fn end(&mut self, reason: Option<&str>, code: u8, grace: Duration) {
        if self.code.is_some() {
            return;
        }
        self.code = Some(code);
        if let Some(reason) = reason {
            (self.say)(reason);
        }
        below::signal_all(Signal::SIGTERM);
        self.end_in(grace);
    }

    fn end_in(&mut self, grace: Duration) {
        let at = Instant::now() + grace;
        self.ending = Some(match self.ending {
            Some((earlier, killed)) => (earlier.min(at), killed),
            None => (at, false),
        });
    }

    /// What ranks printed last.
    fn last_output(&mut self) -> io::Result<()> {
        let end = Instant::now() + OUTPUT_LIMIT;
        loop {
            let sources: Vec<_> =
                self.sources().into_iter().filter(|(s, _)| matches!(s, Source::Pipe(..) | Source::Print(_))).collect();
            if sources.is_empty() || Instant::now() >= end {
                return Ok(());
            }
            let ready = {
                let fds: Vec<_> =
                    sources.iter().filter_map(|(source, flags)| Some((self.fd(*source)?, *flags))).collect();
                wait_for(&fds, Some(until(end)))?
            };
            for ((source, _), _) in sources.into_iter().zip(ready).filter(|(_, ready)| *ready) {
                self.handle(source);
            }
        }
    }
}

impl Rank {
    fn print(&mut self, stream: usize, out: &mut VecDeque<u8>) {
        let Some((file, lines)) = &mut self.pipes[stream] else { return };
        let mut room = [0; 16384];
        match file.read(&mut room) {
            Ok(bytes @ 1..) => lines.take(&room[..bytes], out),
            Err(cause) if cause.kind() == ErrorKind::Interrupted => {}
            Ok(0) | Err(_) => {
                lines.flush(out);
                self.pipes[stream] = None;
            }
        }
    }
}

fn spawn(start: &Start, number: u32) -> io::Result<Rank> {
    let (near, far) = UnixStream::pair()?;
    near.set_nonblocking(true)?;
    let mut command = Command::new(&start.program);
    command.args(&start.arguments);
    for (name, _) in std::env::vars_os() {
        if OTHERS.iter().any(|other| name.to_string_lossy().starts_with(other)) {
            command.env_remove(name);
        }
    }
    let socket = weir_job_sys::bind(&mut command, Some(OwnedFd::from(far)), Signal::SIGKILL);
    command.env(SOCKET_VARIABLE, socket.unwrap_or(-1).to_string());
    command.env("WEIR_RANK", number.to_string()).env("WEIR_SIZE", start.ranks.to_string());
    command.env("WEIR_JOB_ID", &start.id);
    if number > 0 {
        command.stdin(Stdio::null());
    }
    if start.tag_output {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
    }
    let mut child = command.spawn()?;
    let pipe = |fd: Option<OwnedFd>| fd.map(|fd| (File::from(fd), Lines::of(number)));
    Ok(Rank {
        pid: Some(Pid::from_raw(child.id().cast_signed())),
        socket: Some(near),
        fault: None,
        inbox: Vec::new(),
        outbox: VecDeque::new(),
        written: 0,
        pipes: [pipe(child.stdout.take().map(Into::into)), pipe(child.stderr.take().map(Into::into))],
    })
}

/// Prints as much as a ready stream takes.
fn print(to: BorrowedFd<'_>, held: &mut VecDeque<u8>) -> nix::Result<()> {
    let (first, _) = held.as_slices();
    let piece = &first[..first.len().min(WRITE_BYTES)];
    match nix::unistd::write(to, piece) {
        Ok(bytes) => drop(held.drain(..bytes)),
        Err(Errno::EINTR | Errno::EAGAIN) => {}
        Err(why) => {
            held.clear();
            return Err(why);
        }
    }
    Ok(())
}

/// How a process ended, in words.
fn how(ended: Ended) -> String {
    let known = |number: u8| Signal::try_from(i32::from(number)).ok();
    let name = |number: u8| known(number).map_or_else(String::new, |signal| format!(" ({signal})"));
    match ended {
        Ended::Signal(number) => format!("was killed by signal {number}{}", name(number)),
        Ended::Exit(code) => match code.checked_sub(128).filter(|number| known(*number).is_some()) {
            Some(number) => {
                format!("ended with exit code {code}, as a shell does after signal {number}{}", name(number))
            }
            None => format!("ended with exit code {code}"),
        },
    }
}

fn until(at: Instant) -> Duration {
    at.saturating_duration_since(Instant::now())
}

/// Which of the descriptors are ready, after at most that time.
fn wait_for(fds: &[(BorrowedFd<'_>, PollFlags)], limit: Option<Duration>) -> io::Result<Vec<bool>> {
    let mut all: Vec<PollFd<'_>> = fds.iter().map(|(fd, flags)| PollFd::new(*fd, *flags)).collect();
    // Rounded up: a wait that ends a moment too early would be repeated until it is not.
    let timeout = limit.map_or(PollTimeout::NONE, |limit| {
        PollTimeout::try_from(limit + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX)
    });
    match poll(&mut all, timeout) {
        Ok(_) => Ok(all.iter().map(|fd| fd.revents().is_some_and(|flags| !flags.is_empty())).collect()),
        Err(Errno::EINTR) => Ok(vec![false; all.len()]),
        Err(cause) => Err(cause.into()),
    }
}

/// As many descriptors as the system permits, if the usual number is too small.
fn raise_descriptors(ranks: u32) {
    let wanted = u64::from(ranks) * DESCRIPTORS_EACH + SPARE_DESCRIPTORS;
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < wanted
    {
        // What is missing is told when a rank cannot be started.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, wanted.min(hard), hard);
    }
}
