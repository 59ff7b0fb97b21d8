//! One connection: what it writes, what it reads, and what of a message is lacking.

use super::codec::{Header, Need, Stream, Wire};
use super::sockets::{self, Failure, Unanswered};
use crate::addresses::AddrKey;
use crate::ops::OpKey;
use crate::settings::Settings;
use socket2::Socket;
use std::collections::VecDeque;
use std::os::fd::{AsRawFd, RawFd};
use std::time::Instant;
use weir_engine::Iov;

/// Pieces of one system call.
const IOV_MAX: usize = 64;
/// Bytes that one system call is given to send. While it copies it has the socket to itself, and
/// what the peer acknowledges meanwhile waits, and with it what might leave next.
const SEND_STEP: usize = 512 << 10;
/// What is made room for at a time, bytes: memory is taken for what has come.
const STEP: u64 = 64 << 10;
/// What is read beyond what is needed next, bytes (T11).
pub const AHEAD: usize = 2 << 10;

/// A message that leaves: its header, then its payload.
#[derive(Debug)]
pub struct Out {
    /// Its operation.
    pub key: OpKey,
    /// Its payload, bytes.
    pub size: u64,
    header: [u8; super::codec::HEADER_MAX],
    header_len: usize,
    pieces: Pieces,
    /// Bytes of all that have left.
    sent: u64,
}

#[derive(Debug)]
enum Pieces {
    /// During the post: the program's own list.
    Lent(*const Iov, usize),
    /// Afterwards.
    Kept(Vec<Iov>),
}

// SAFETY: `Lent` is turned into `Kept` before an `Out` outlives the post (`Out::keep`).
unsafe impl Send for Pieces {}

impl Out {
    /// Of a post that is under way.
    pub fn new(key: OpKey, header: &[u8], pieces: &[Iov], size: u64) -> Out {
        let mut bytes = [0; super::codec::HEADER_MAX];
        bytes[..header.len()].copy_from_slice(header);
        let pieces = Pieces::Lent(pieces.as_ptr(), pieces.len());
        Out { key, size, header: bytes, header_len: header.len(), pieces, sent: 0 }
    }

    /// The same for longer.
    #[must_use]
    pub fn keep(self, pieces: &[Iov]) -> Out {
        Out { pieces: Pieces::Kept(pieces.to_vec()), ..self }
    }

    /// A byte of it has left.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.sent > 0
    }

    fn total(&self) -> u64 {
        self.header_len as u64 + self.size
    }

    /// Adds what is to leave next, as far as one system call takes it, of bytes so many more.
    fn rest(&self, all: &mut Vec<libc::iovec>, room: &mut usize) {
        let mut skip = self.sent as usize;
        let pieces = match &self.pieces {
            // SAFETY: the post is under way, whose list it is.
            Pieces::Lent(base, len) => unsafe { std::slice::from_raw_parts(*base, *len) },
            Pieces::Kept(pieces) => pieces,
        };
        let header = Iov { base: self.header.as_ptr().cast_mut(), len: self.header_len };
        for piece in std::iter::once(&header).chain(pieces) {
            let passed = skip.min(piece.len);
            skip -= passed;
            let iov_len = (piece.len - passed).min(*room);
            if iov_len > 0 && all.len() < IOV_MAX {
                all.push(libc::iovec { iov_base: piece.base.wrapping_add(passed).cast(), iov_len });
                *room -= iov_len;
            }
        }
    }
}

/// Where a message goes.
#[derive(Debug)]
pub enum Dest {
    /// To a receive.
    User {
        /// Its operation.
        key: OpKey,
        /// Its memory, at least as long as the message.
        pieces: Vec<Iov>,
    },
    /// Nobody has posted for it yet.
    Buffer(Vec<u8>),
    /// It is an unexpected message.
    Inbox(Vec<u8>),
    /// Nobody wants it.
    Discard,
}

/// A message that is coming.
#[derive(Debug)]
pub struct Incoming {
    /// Its header.
    pub header: Header,
    /// Where it goes.
    pub dest: Dest,
    /// Bytes that are here.
    pub at: u64,
}

impl Incoming {
    /// Bytes that are held for it; none if that is no memory of ours.
    #[must_use]
    pub fn buffered(&self) -> Option<u64> {
        match &self.dest {
            Dest::Buffer(bytes) | Dest::Inbox(bytes) => Some(bytes.len() as u64),
            Dest::User { .. } | Dest::Discard => None,
        }
    }
}

/// What a read has brought.
#[derive(Debug)]
pub enum Read {
    /// Nothing is there.
    Nothing,
    /// A part of a header.
    Part,
    /// A message begins.
    Header(Header),
    /// Some of it.
    Payload {
        /// How much.
        bytes: u64,
        /// It takes memory of ours.
        held: bool,
    },
}

/// A connection.
#[derive(Debug)]
pub struct Conn {
    socket: Socket,
    /// Whose it is.
    pub addr: AddrKey,
    /// Which of its addresses was dialled.
    pub which: usize,
    /// What comes.
    pub stream: Stream,
    /// The message under way.
    pub incoming: Option<Incoming>,
    /// What leaves, in order.
    pub out: VecDeque<Out>,
    /// What leaves waits for more (T12).
    pub batched: bool,
    /// What is waited for: readable, writable.
    pub interest: (bool, bool),
    /// When it is looked at next, if it is among the timers.
    pub armed: Option<Instant>,
    /// Since when it is looked at whether what has left is acknowledged (T10).
    pub watched: Option<Instant>,
    connecting_until: Option<Instant>,
    /// When the header or payload under way last made a step, or began.
    since: Instant,
    /// What was read and is needed next: from `at` on.
    ahead: Vec<u8>,
    at: usize,
    /// The last read took all there was.
    dry: bool,
}

impl Conn {
    /// A new one, perhaps not up yet.
    pub fn new(
        socket: Socket,
        addr: AddrKey,
        wire: Option<Wire>,
        connecting_until: Option<Instant>,
        which: usize,
    ) -> Conn {
        Conn {
            socket,
            addr,
            which,
            stream: Stream::new(wire),
            incoming: None,
            out: VecDeque::new(),
            batched: false,
            interest: (false, false),
            armed: None,
            watched: None,
            connecting_until,
            since: Instant::now(),
            ahead: Vec::new(),
            at: 0,
            dry: false,
        }
    }

    /// Memory for what is read ahead: a connection has some for as long as something is in it.
    pub fn lend(&mut self, spare: &mut Vec<u8>) {
        if self.ahead.capacity() == 0 {
            self.ahead = std::mem::take(spare);
        }
        self.dry = false;
    }

    /// Gives it back, if nothing is left in it.
    pub fn give_back(&mut self, spare: &mut Vec<u8>) {
        if !self.has_ahead() {
            self.ahead.clear();
            self.at = 0;
            *spare = std::mem::take(&mut self.ahead);
        }
    }

    /// Something was read that is not taken yet.
    #[must_use]
    pub fn has_ahead(&self) -> bool {
        self.at < self.ahead.len()
    }

    /// What has left and was not acknowledged. `waits`: for something of the peer.
    #[must_use]
    pub fn unanswered(&self, waits: bool) -> Unanswered {
        sockets::unanswered(&self.socket, waits)
    }

    /// Asks the peer's host whether it is there.
    pub fn ask(&self) {
        sockets::ask(&self.socket);
    }

    /// Its descriptor.
    #[must_use]
    pub fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// It is not up yet.
    #[must_use]
    pub fn is_connecting(&self) -> bool {
        self.connecting_until.is_some()
    }

    /// Whether it is now.
    ///
    /// # Errors
    /// It never will be.
    pub fn connected(&mut self) -> Result<bool, Failure> {
        let up = sockets::connected(&self.socket)?;
        if up {
            self.connecting_until = None;
        }
        Ok(up)
    }

    /// When it is to be given up if nothing happens (T4).
    #[must_use]
    pub fn deadline(&self, resting: bool, settings: &Settings) -> Option<Instant> {
        if self.connecting_until.is_some() {
            return self.connecting_until;
        }
        if self.stream.in_header() {
            return Some(self.since + settings.header);
        }
        (self.incoming.is_some() && !resting).then(|| self.since + settings.stall)
    }

    /// Why, then.
    #[must_use]
    pub fn too_late(&self) -> Failure {
        if self.is_connecting() {
            Failure::NoAnswer
        } else if self.stream.in_header() {
            Failure::Refused("a header that does not end".to_owned())
        } else {
            Failure::Refused("a message that does not go on".to_owned())
        }
    }

    /// The message under way is all there.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.incoming.as_ref().is_some_and(|i| i.at == i.header.size)
    }

    /// Writes of a message what there is room for. True: all of it has left.
    ///
    /// # Errors
    /// The connection is over.
    pub fn write(&self, out: &mut Out) -> Result<bool, Failure> {
        let mut iov = Vec::with_capacity(4);
        while out.sent < out.total() {
            iov.clear();
            let mut room = SEND_STEP;
            out.rest(&mut iov, &mut room);
            let Some(n) = sockets::send(&self.socket, &iov)? else { return Ok(false) };
            out.sent += n as u64;
            if n < SEND_STEP - room {
                // There is no more room.
                return Ok(out.sent == out.total());
            }
        }
        Ok(true)
    }

    /// Writes of all that leaves what there is room for, several messages with one system call;
    /// tells which have left.
    ///
    /// # Errors
    /// The connection is over.
    pub fn write_queue(&mut self, mut left: impl FnMut(OpKey, u64)) -> Result<(), Failure> {
        let mut iov = Vec::new();
        while !self.out.is_empty() {
            iov.clear();
            let mut room = SEND_STEP;
            for out in &self.out {
                out.rest(&mut iov, &mut room);
                if iov.len() >= IOV_MAX || room == 0 {
                    break;
                }
            }
            let Some(sent) = sockets::send(&self.socket, &iov)? else { return Ok(()) };
            let mut n = sent as u64;
            while let Some(out) = self.out.front_mut() {
                let step = n.min(out.total() - out.sent);
                out.sent += step;
                n -= step;
                if out.sent < out.total() {
                    break;
                }
                left(out.key, out.size);
                self.out.pop_front();
            }
            if sent < SEND_STEP - room {
                // There is no more room: the system tells when there is.
                break;
            }
        }
        Ok(())
    }

    /// Reads what comes next, of a payload that goes into memory of ours no more than `allowed`.
    ///
    /// # Errors
    /// The connection is over, or is not listened to any more.
    pub fn read(&mut self, allowed: u64) -> Result<Read, Failure> {
        match self.stream.need() {
            Need::Header(lack) => self.read_header(lack),
            Need::Payload(left) => self.read_payload(left, allowed),
        }
    }

    fn read_header(&mut self, lack: usize) -> Result<Read, Failure> {
        if !self.has_ahead() && !self.read_ahead()? {
            return Ok(Read::Nothing);
        }
        if !self.stream.in_header() {
            self.since = Instant::now();
        }
        let end = self.ahead.len().min(self.at + lack);
        let taken = self.stream.take_header(&self.ahead[self.at..end]);
        self.at = end;
        match taken {
            Ok(Some(header)) => {
                self.since = Instant::now();
                Ok(Read::Header(header))
            }
            Ok(None) => Ok(Read::Part),
            Err(refused) => Err(Failure::Refused(refused.to_string())),
        }
    }

    /// Reads whatever comes. False: nothing has.
    fn read_ahead(&mut self) -> Result<bool, Failure> {
        if self.dry {
            return Ok(false);
        }
        self.ahead.clear();
        self.at = 0;
        self.ahead.reserve(AHEAD);
        let iov = [libc::iovec { iov_base: self.ahead.as_mut_ptr().cast(), iov_len: AHEAD }];
        let Some(n) = sockets::receive(&self.socket, &iov)? else { return Ok(false) };
        // SAFETY: the system has written `n` bytes from the beginning of what is reserved.
        unsafe { self.ahead.set_len(n) };
        self.dry = n < AHEAD;
        Ok(true)
    }

    /// Takes of a payload what was read ahead.
    fn take_ahead(&mut self, left: u64, allowed: u64) -> Result<Read, Failure> {
        let Some(incoming) = self.incoming.as_mut() else { return Ok(Read::Nothing) };
        let most = if incoming.buffered().is_some() { left.min(allowed) } else { left };
        let end = self.ahead.len().min(self.at.saturating_add(usize::try_from(most).unwrap_or(usize::MAX)));
        let bytes = &self.ahead[self.at..end];
        let held = match &mut incoming.dest {
            Dest::User { pieces, .. } => {
                write_to(pieces, incoming.at, bytes);
                false
            }
            Dest::Discard => false,
            Dest::Buffer(to) | Dest::Inbox(to) => {
                if to.try_reserve(bytes.len()).is_err() {
                    return Err(Failure::no_memory());
                }
                to.extend_from_slice(bytes);
                true
            }
        };
        let n = bytes.len() as u64;
        self.at = end;
        incoming.at += n;
        self.stream.took(n);
        self.since = Instant::now();
        Ok(Read::Payload { bytes: n, held })
    }

    fn read_payload(&mut self, left: u64, allowed: u64) -> Result<Read, Failure> {
        if self.has_ahead() {
            return self.take_ahead(left, allowed);
        }
        let Some(incoming) = self.incoming.as_mut().filter(|_| !self.dry) else { return Ok(Read::Nothing) };
        let mut nowhere = [0u8; 4096];
        let step = left.min(STEP);
        let (mut iov, held) = match &mut incoming.dest {
            Dest::User { pieces, .. } => (from(pieces, incoming.at, left), false),
            Dest::Discard => {
                let iov_len = (left as usize).min(nowhere.len());
                (vec![libc::iovec { iov_base: nowhere.as_mut_ptr().cast(), iov_len }], false)
            }
            Dest::Buffer(bytes) | Dest::Inbox(bytes) => {
                let have = bytes.len();
                let room = step.min(allowed) as usize;
                if bytes.try_reserve(room).is_err() {
                    return Err(Failure::no_memory());
                }
                // SAFETY: `room` bytes behind the first `have` are reserved.
                let base = unsafe { bytes.as_mut_ptr().add(have) };
                (vec![libc::iovec { iov_base: base.cast(), iov_len: room }], true)
            }
        };
        let wanted: usize = iov.iter().map(|i| i.iov_len).sum();
        // What follows the payload comes with its end.
        let beyond = if wanted as u64 == left { AHEAD } else { 0 };
        self.ahead.clear();
        self.at = 0;
        self.ahead.reserve(beyond);
        if beyond > 0 {
            iov.push(libc::iovec { iov_base: self.ahead.as_mut_ptr().cast(), iov_len: beyond });
        }
        let Some(all) = sockets::receive(&self.socket, &iov)? else { return Ok(Read::Nothing) };
        self.dry = all < wanted + beyond;
        let n = all.min(wanted);
        // SAFETY: the system has written so many bytes behind the payload, to what is reserved.
        unsafe { self.ahead.set_len(all - n) };
        if let Dest::Buffer(bytes) | Dest::Inbox(bytes) = &mut incoming.dest {
            // SAFETY: the system has written `n` bytes behind these.
            unsafe { bytes.set_len(bytes.len() + n) };
        }
        incoming.at += n as u64;
        self.stream.took(n as u64);
        self.since = Instant::now();
        Ok(Read::Payload { bytes: n as u64, held })
    }
}

/// The memory from `at` on, as much as is wanted.
fn from(pieces: &[Iov], at: u64, mut wanted: u64) -> Vec<libc::iovec> {
    let (mut skip, mut all) = (at as usize, Vec::with_capacity(2));
    for piece in pieces {
        let passed = skip.min(piece.len);
        skip -= passed;
        let len = ((piece.len - passed) as u64).min(wanted) as usize;
        if len > 0 && all.len() < IOV_MAX {
            all.push(libc::iovec { iov_base: piece.base.wrapping_add(passed).cast(), iov_len: len });
            wanted -= len as u64;
        }
    }
    all
}

/// Copies bytes to pieces, from `at` on.
pub fn write_to(pieces: &[Iov], at: u64, bytes: &[u8]) {
    let mut rest = bytes;
    for to in from(pieces, at, bytes.len() as u64) {
        let (now, later) = rest.split_at(to.iov_len.min(rest.len()));
        // SAFETY: the program keeps the memory of a receive writable until its end is told, which
        // is later.
        unsafe { std::ptr::copy_nonoverlapping(now.as_ptr(), to.iov_base.cast(), now.len()) };
        rest = later;
    }
    if !rest.is_empty() && rest.len() < bytes.len() {
        // More pieces than one look takes.
        write_to(pieces, at + (bytes.len() - rest.len()) as u64, rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use slotmap::SlotMap;

    /// T12.
    #[test]
    fn one_system_call_is_given_no_more_than_a_step() {
        let mut memory = vec![0u8; 3 * SEND_STEP / 2];
        let mut keys: SlotMap<OpKey, ()> = SlotMap::with_key();
        let pieces = [Iov { base: memory.as_mut_ptr(), len: memory.len() }];
        let size = memory.len() as u64;
        let mut out = Out::new(keys.insert(()), &[0; 24], &pieces, size).keep(&pieces);
        let mut steps = Vec::new();
        while out.sent < out.total() {
            let (mut iov, mut room) = (Vec::new(), SEND_STEP);
            out.rest(&mut iov, &mut room);
            let given: usize = iov.iter().map(|i| i.iov_len).sum();
            assert_eq!(given, SEND_STEP - room);
            steps.push(given);
            out.sent += given as u64;
        }
        assert_eq!(steps, [SEND_STEP, SEND_STEP / 2 + 24]);
    }
}
