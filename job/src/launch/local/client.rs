//! A rank that `weir run` started.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::SOCKET_VARIABLE;
use super::frame::{HEAD_BYTES, REPLY_MAX_BYTES, Reply, Request, VERSION};
use crate::launch::{Backend, Joined, LaunchError, Launcher, Limits};
use crate::{Env, JobKey, KeySource};

/// Beyond the launcher's own limit, so that its explanation comes first.
const BEYOND: Duration = Duration::from_secs(10);

/// Greets the launcher that left its socket in this process.
pub fn join(env: &Env, limits: Limits) -> Result<Joined, LaunchError> {
    let value = env.get(SOCKET_VARIABLE).map(|v| v.to_string_lossy().into_owned()).unwrap_or_default();
    let wrong = |problem: String| LaunchError::Variable { variable: SOCKET_VARIABLE, value: value.clone(), problem };
    let number = value.trim().parse().map_err(|_| wrong("not the number of a descriptor".into()))?;
    let socket = weir_job_sys::adopt(number).map_err(|cause| {
        wrong(format!("no socket of the launcher's is open under this number ({cause}): a program in between closed it, or the variable is left over"))
    })?;
    greet(socket, limits)
}

fn greet(socket: OwnedFd, limits: Limits) -> Result<Joined, LaunchError> {
    let mut rank = Rank { socket: UnixStream::from(socket), limits, round: 0 };
    match rank.ask(&Request::Join { version: VERSION }, limits.answer, "the greeting")? {
        Reply::Welcome { rank: number, size, key, id } if number < size => Ok(Joined {
            backend: Box::new(rank),
            rank: number,
            size,
            ranks_here: Some(size),
            id,
            key: Some(JobKey { bytes: key, source: KeySource::Launcher }),
        }),
        other => Err(strange("the greeting", &other)),
    }
}

struct Rank {
    socket: UnixStream,
    limits: Limits,
    round: u32,
}

impl Backend for Rank {
    fn exchange(&mut self, own: &[u8]) -> Result<Vec<Vec<u8>>, LaunchError> {
        let round = self.next_round();
        let request = Request::Exchange { round, data: own.to_vec() };
        match self.ask(&request, self.limits.others + BEYOND, "an exchange")? {
            Reply::All { round: of, data } if of == round => Ok(data),
            other => Err(strange("an exchange", &other)),
        }
    }

    fn zeros(&mut self, own: &[u8]) -> Result<Vec<u8>, LaunchError> {
        Ok(self.exchange(own)?.into_iter().next().unwrap_or_default())
    }

    fn fence(&mut self) -> Result<(), LaunchError> {
        let round = self.next_round();
        match self.ask(&Request::Fence { round }, self.limits.others + BEYOND, "a fence")? {
            Reply::Passed { round: of } if of == round => Ok(()),
            other => Err(strange("a fence", &other)),
        }
    }

    fn abort(&mut self, code: i32, message: &str) -> Result<(), LaunchError> {
        self.tell(&Request::Abort { code, message: message.into() }, "an abort")
    }

    fn finalize(&mut self) -> Result<(), LaunchError> {
        match self.ask(&Request::Finalize, self.limits.answer, "the end")? {
            Reply::Bye => Ok(()),
            other => Err(strange("the end", &other)),
        }
    }
}

impl Rank {
    fn next_round(&mut self) -> u32 {
        let round = self.round;
        self.round = round.wrapping_add(1);
        round
    }

    fn tell(&mut self, request: &Request, during: &'static str) -> Result<(), LaunchError> {
        let limit = self.limits.answer;
        let set = self.socket.set_write_timeout(Some(limit));
        set.and_then(|()| self.socket.write_all(&request.to_bytes())).map_err(|cause| failed(&cause, during, limit))
    }

    fn ask(&mut self, request: &Request, limit: Duration, during: &'static str) -> Result<Reply, LaunchError> {
        self.tell(request, during)?;
        let until = Instant::now() + limit;
        let mut head = [0; HEAD_BYTES];
        self.fill(&mut head, until, limit, during)?;
        let length = u32::from_le_bytes(head) as usize;
        if length == 0 || length > REPLY_MAX_BYTES {
            return Err(protocol(during, format!("a frame of {length} bytes")));
        }
        let mut body = vec![0; length];
        self.fill(&mut body, until, limit, during)?;
        match Reply::parse(&body) {
            Ok(reply) => Ok(reply),
            Err(problem) => Err(protocol(during, problem.to_string())),
        }
    }

    /// Reads until the buffer is full, or the time is over.
    fn fill(
        &mut self,
        mut room: &mut [u8],
        until: Instant,
        limit: Duration,
        during: &'static str,
    ) -> Result<(), LaunchError> {
        while !room.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(failed(&ErrorKind::TimedOut.into(), during, limit));
            }
            let read = self.socket.set_read_timeout(Some(left)).and_then(|()| self.socket.read(room));
            match read {
                Ok(0) => return Err(LaunchError::Gone { launcher: Launcher::Local, during }),
                Ok(bytes) => room = &mut room[bytes..],
                Err(cause) if cause.kind() == ErrorKind::Interrupted => {}
                Err(cause) => return Err(failed(&cause, during, limit)),
            }
        }
        Ok(())
    }
}

fn failed(cause: &std::io::Error, during: &'static str, limit: Duration) -> LaunchError {
    match cause.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            LaunchError::Timeout { during, limit, why: "the launcher gives no answer".into() }
        }
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => LaunchError::Gone { launcher: Launcher::Local, during },
        _ => LaunchError::Unreachable { launcher: Launcher::Local, problem: cause.to_string() },
    }
}

fn protocol(during: &'static str, problem: String) -> LaunchError {
    LaunchError::Protocol { launcher: Launcher::Local, during, problem }
}

fn strange(during: &'static str, reply: &Reply) -> LaunchError {
    protocol(during, format!("{reply:?}"))
}
