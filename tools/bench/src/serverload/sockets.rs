//! The yardstick: the same requests and answers over plain TCP sockets with TCP_NODELAY, a server
//! with epoll. What BMI costs shows beside it.

use std::collections::{BTreeMap, VecDeque};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};

use crate::error::{BenchError, Result};

use super::carry::{Answers, Asking, Serving, is_answer, wanted};

/// Bytes of a request.
const REQUEST: usize = 8;
/// What of an answer is written in one go, before others have their turn.
const PIECE: usize = 64 << 10;
/// Events taken at once.
const AT_ONCE: usize = 64;
/// The event of who listens; connections count from 0.
const LISTENER: u64 = u64::MAX;

fn failed(doing: &'static str) -> impl Fn(std::io::Error) -> BenchError {
    move |error| BenchError::machine(doing, error)
}

fn system(doing: &'static str) -> impl Fn(nix::Error) -> BenchError {
    move |error| BenchError::machine(doing, error)
}

/// A time to sleep; of less than a millisecond none.
fn timeout(idle: Duration) -> PollTimeout {
    PollTimeout::try_from(idle.as_millis()).unwrap_or(PollTimeout::MAX)
}

/// A client, as the server has it.
struct Connection {
    stream: TcpStream,
    /// The beginning of a request.
    got: Vec<u8>,
    /// Lengths of answers that wait, and how much of the first is written.
    waiting: VecDeque<usize>,
    written: usize,
    /// Whether its socket takes no more for now.
    full: bool,
}

/// A server.
pub struct SocketServer {
    listener: TcpListener,
    epoll: Epoll,
    connections: BTreeMap<u64, Connection>,
    next: u64,
    answers: Answers,
}

impl SocketServer {
    /// Listens at `host:port`.
    ///
    /// # Errors
    /// The system's.
    pub fn new(at: &str) -> Result<SocketServer> {
        let doing = |error| BenchError::machine(format!("listening at {at}"), error);
        let listener = TcpListener::bind(at).map_err(doing)?;
        listener.set_nonblocking(true).map_err(doing)?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(system("epoll"))?;
        epoll.add(&listener, EpollEvent::new(EpollFlags::EPOLLIN, LISTENER)).map_err(system("epoll"))?;
        Ok(SocketServer { listener, epoll, connections: BTreeMap::new(), next: 0, answers: Answers::default() })
    }

    fn accept(&mut self) -> Result<()> {
        loop {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => continue,
                Err(error) => return Err(failed("accepting a client")(error)),
            };
            stream
                .set_nonblocking(true)
                .and_then(|()| stream.set_nodelay(true))
                .map_err(failed("a client's socket"))?;
            let event = EpollEvent::new(EpollFlags::EPOLLIN, self.next);
            self.epoll.add(&stream, event).map_err(system("epoll"))?;
            let new = Connection { stream, got: Vec::new(), waiting: VecDeque::new(), written: 0, full: false };
            self.connections.insert(self.next, new);
            self.next += 1;
        }
    }

    /// Reads and writes what a connection has; returns how many requests came. Nothing remains of
    /// one that is gone.
    fn look_after(&mut self, number: u64) -> Result<u64> {
        let Some(connection) = self.connections.get_mut(&number) else { return Ok(0) };
        let was_full = connection.full;
        let before = connection.waiting.len();
        let lives = connection.read();
        let taken = connection.waiting.len().saturating_sub(before) as u64;
        let lives = lives && connection.write(&mut self.answers);
        if !lives {
            // Closing it takes it out of the set.
            self.connections.remove(&number);
            return Ok(taken);
        }
        if connection.full != was_full {
            let wants = if connection.full { EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT } else { EpollFlags::EPOLLIN };
            let mut event = EpollEvent::new(wants, number);
            self.epoll.modify(&connection.stream, &mut event).map_err(system("epoll"))?;
        }
        Ok(taken)
    }
}

impl Connection {
    /// Takes requests; false if the client is gone, or sends something else.
    fn read(&mut self) -> bool {
        let mut room = [0; 64 * REQUEST];
        match self.stream.read(&mut room) {
            Ok(0) => return false,
            Ok(count) => self.got.extend_from_slice(&room[..count]),
            Err(error) => return matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
        }
        let whole = self.got.len() - self.got.len() % REQUEST;
        for request in self.got.drain(..whole).collect::<Vec<u8>>().chunks_exact(REQUEST) {
            match wanted(request) {
                Some(bytes) => self.waiting.push_back(bytes),
                None => return false,
            }
        }
        true
    }

    /// Writes a piece of the answers that wait; false if the client is gone.
    fn write(&mut self, answers: &mut Answers) -> bool {
        self.full = false;
        let Some(&bytes) = self.waiting.front() else { return true };
        let data = answers.of(bytes);
        let end = bytes.min(self.written + PIECE);
        match self.stream.write(&data[self.written..end]) {
            Ok(count) => self.written += count,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(_) => return false,
        }
        if self.written == bytes {
            self.waiting.pop_front();
            self.written = 0;
        }
        // Others have their turn before the rest of it: the set tells at once where there is room.
        self.full = !self.waiting.is_empty();
        true
    }
}

impl Serving for SocketServer {
    fn turn(&mut self, idle: Duration) -> Result<u64> {
        let mut events = [EpollEvent::empty(); AT_ONCE];
        let count = match self.epoll.wait(&mut events, timeout(idle)) {
            Err(nix::Error::EINTR) => 0,
            waited => waited.map_err(system("epoll"))?,
        };
        let mut taken = 0;
        for event in &events[..count] {
            match event.data() {
                LISTENER => self.accept()?,
                number => taken += self.look_after(number)?,
            }
        }
        Ok(taken)
    }
}

/// A client. Its answers come in the order of its requests.
pub struct SocketClient {
    stream: TcpStream,
    /// Requests that the socket has not taken yet.
    unsent: VecDeque<u8>,
    /// Answers to come: their marks and lengths.
    waiting: VecDeque<(u32, usize)>,
    /// Memory of the one that comes, and how much of it is there.
    into: Vec<u8>,
    got: usize,
}

impl SocketClient {
    /// Of the server at `host:port`.
    ///
    /// # Errors
    /// The system's.
    pub fn new(at: &str) -> Result<SocketClient> {
        let doing = |error| BenchError::machine(format!("connecting to {at}"), error);
        let stream = TcpStream::connect(at).map_err(doing)?;
        stream.set_nodelay(true).and_then(|()| stream.set_nonblocking(true)).map_err(doing)?;
        Ok(SocketClient { stream, unsent: VecDeque::new(), waiting: VecDeque::new(), into: Vec::new(), got: 0 })
    }

    fn write(&mut self) -> Result<()> {
        while !self.unsent.is_empty() {
            let (front, _) = self.unsent.as_slices();
            match self.stream.write(front) {
                Ok(count) => drop(self.unsent.drain(..count)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(failed("sending a request")(error)),
            }
        }
        Ok(())
    }

    /// Reads what has come; returns whether that was all of the first answer that is waited for.
    fn read(&mut self, bytes: usize) -> Result<bool> {
        self.into.resize(bytes, 0);
        while self.got < bytes {
            match self.stream.read(&mut self.into[self.got..]) {
                Ok(0) => return Err(BenchError::machine("waiting for an answer", "the server closed the connection")),
                Ok(count) => self.got += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(failed("waiting for an answer")(error)),
            }
        }
        self.got = 0;
        if is_answer(&self.into) {
            Ok(true)
        } else {
            Err(BenchError::machine("an answer", "its bytes are not those that were sent"))
        }
    }
}

impl Asking for SocketClient {
    fn ask(&mut self, bytes: u64, mark: u32) -> Result<()> {
        self.waiting.push_back((mark, bytes as usize));
        self.unsent.extend(bytes.to_le_bytes());
        self.write()
    }

    fn answers(&mut self, idle: Duration, each: &mut dyn FnMut(u32)) -> Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let mut wants = PollFlags::POLLIN;
        wants.set(PollFlags::POLLOUT, !self.unsent.is_empty());
        match poll(&mut [PollFd::new(self.stream.as_fd(), wants)], timeout(idle)) {
            Ok(_) | Err(nix::Error::EINTR) => {}
            Err(error) => return Err(system("waiting for an answer")(error)),
        }
        self.write()?;
        while let Some(&(mark, bytes)) = self.waiting.front() {
            if !self.read(bytes)? {
                break;
            }
            self.waiting.pop_front();
            each(mark);
        }
        Ok(())
    }
}
