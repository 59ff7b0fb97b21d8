//! A connection to a launcher that speaks PMI: asked, and answered in time or not at all.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::wire::{Command, Version};
use crate::Env;
use crate::launch::{LaunchError, Launcher};

/// The connection.
pub struct Channel {
    launcher: Launcher,
    /// Of whatever family: reading, writing and time limits are the same for all sockets.
    socket: UnixStream,
    unread: Vec<u8>,
}

impl Channel {
    /// The inherited socket of `PMI_FD`, or a connection to `PMI_PORT`, where the launcher must be
    /// told who comes (`true`).
    pub fn open(env: &Env, launcher: Launcher, limit: Duration) -> Result<(Self, bool), LaunchError> {
        let text = |name: &str| env.get(name).map(|value| value.to_string_lossy().into_owned());
        let (socket, by_port) = match (text("PMI_FD"), text("PMI_PORT")) {
            (Some(number), _) => (inherited(&number)?, false),
            (None, Some(address)) => (connected(&address, launcher, limit)?, true),
            (None, None) => {
                let problem = "neither PMI_FD nor PMI_PORT is set".into();
                return Err(LaunchError::Unreachable { launcher, problem });
            }
        };
        Ok((Self { launcher, socket: UnixStream::from(socket), unread: Vec::new() }, by_port))
    }

    /// Which launcher this is, in errors.
    pub fn launcher(&self) -> Launcher {
        self.launcher
    }

    /// Sends without waiting for an answer.
    pub fn tell(
        &mut self,
        command: &Command,
        version: Version,
        limit: Duration,
        during: &'static str,
    ) -> Result<(), LaunchError> {
        // In one piece: Slurm takes what one read gives for a whole command of version 1.
        let set = self.socket.set_write_timeout(Some(limit));
        let written = set.and_then(|()| self.socket.write_all(&command.to_bytes(version)));
        written.map_err(|cause| self.failed(&cause, during, limit))
    }

    /// Sends, and returns the answer, which must have the name `expected` and no code of failure.
    pub fn ask(
        &mut self,
        command: &Command,
        expected: &str,
        version: Version,
        limit: Duration,
        during: &'static str,
    ) -> Result<Command, LaunchError> {
        self.tell(command, version, limit, during)?;
        self.answer(expected, version, limit, during)
    }

    /// The next answer, which must have the name `expected` and no code of failure.
    pub fn answer(
        &mut self,
        expected: &str,
        version: Version,
        limit: Duration,
        during: &'static str,
    ) -> Result<Command, LaunchError> {
        let answer = self.next(version, limit, during)?;
        if answer.name != expected {
            return Err(self.strange(during, &answer));
        }
        match answer.number("rc") {
            None | Some(0) => Ok(answer),
            Some(code) => {
                let said = answer.get("errmsg").or(answer.get("msg")).unwrap_or("no reason given");
                Err(LaunchError::Refused {
                    launcher: self.launcher,
                    during,
                    reason: format!("{} (code {code})", said.escape_debug()),
                })
            }
        }
    }

    fn next(&mut self, version: Version, limit: Duration, during: &'static str) -> Result<Command, LaunchError> {
        let until = Instant::now() + limit;
        loop {
            match Command::take(&self.unread, version) {
                Ok(Some((command, used))) => {
                    self.unread.drain(..used);
                    return Ok(command);
                }
                Ok(None) => {}
                Err(wrong) => {
                    return Err(LaunchError::Protocol { launcher: self.launcher, during, problem: wrong.to_string() });
                }
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(self.failed(&ErrorKind::TimedOut.into(), during, limit));
            }
            let mut room = [0; 4096];
            match self.socket.set_read_timeout(Some(left)).and_then(|()| self.socket.read(&mut room)) {
                Ok(0) => return Err(LaunchError::Gone { launcher: self.launcher, during }),
                Ok(bytes) => self.unread.extend(&room[..bytes]),
                Err(cause) if cause.kind() == ErrorKind::Interrupted => {}
                Err(cause) => return Err(self.failed(&cause, during, limit)),
            }
        }
    }

    /// An answer that makes no sense here.
    pub fn strange(&self, during: &'static str, answer: &Command) -> LaunchError {
        let shown: String = format!("{answer:?}").chars().take(200).collect();
        LaunchError::Protocol { launcher: self.launcher, during, problem: format!("the answer {shown}") }
    }

    fn failed(&self, cause: &std::io::Error, during: &'static str, limit: Duration) -> LaunchError {
        match cause.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                let why = "a rank has not come this far, or the launcher gives no answer".into();
                LaunchError::Timeout { during, limit, why }
            }
            ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => LaunchError::Gone { launcher: self.launcher, during },
            _ => LaunchError::Unreachable { launcher: self.launcher, problem: cause.to_string() },
        }
    }
}

fn inherited(number: &str) -> Result<OwnedFd, LaunchError> {
    let wrong = |problem: String| LaunchError::Variable { variable: "PMI_FD", value: number.to_owned(), problem };
    let fd = number.trim().parse().map_err(|_| wrong("not the number of a descriptor".into()))?;
    weir_job_sys::adopt(fd).map_err(|cause| {
        wrong(format!("no socket of the launcher's is open under this number ({cause}): a program in between closed it, or the variable is left over"))
    })
}

fn connected(address: &str, launcher: Launcher, limit: Duration) -> Result<OwnedFd, LaunchError> {
    let failed =
        |cause: &std::io::Error| LaunchError::Unreachable { launcher, problem: format!("PMI_PORT={address}: {cause}") };
    let mut last = std::io::Error::from(ErrorKind::AddrNotAvailable);
    for one in address.to_socket_addrs().map_err(|cause| failed(&cause))? {
        match TcpStream::connect_timeout(&one, limit) {
            Ok(stream) => {
                // Questions and answers are short.
                let _ = stream.set_nodelay(true);
                return Ok(stream.into());
            }
            Err(cause) => last = cause,
        }
    }
    Err(failed(&last))
}
