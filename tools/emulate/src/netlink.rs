//! A small netlink client: builds messages, sends them, waits for the kernel's verdict.

use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, send, setsockopt, socket,
    sockopt,
};
use nix::sys::time::TimeVal;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// Flag of every request.
pub const REQUEST: u16 = 0x1;
/// Asks for an acknowledgement.
pub const ACK: u16 = 0x4;
/// Asks for a list.
pub const DUMP: u16 = 0x300;
/// Makes the object, which must not exist.
pub const CREATE: u16 = 0x400 | 0x200;
/// Makes the object or replaces it.
pub const REPLACE: u16 = 0x400 | 0x100;

const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NESTED: u16 = 0x8000;

/// A request under construction.
#[derive(Debug)]
pub struct Message {
    bytes: Vec<u8>,
}

impl Message {
    /// A message of this type whose fixed part is `head`.
    pub fn new(kind: u16, flags: u16, head: &[u8]) -> Self {
        let mut bytes = vec![0; 16];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&(flags | REQUEST).to_ne_bytes());
        bytes.extend_from_slice(head);
        pad(&mut bytes);
        Message { bytes }
    }

    /// Adds an attribute.
    pub fn attr(&mut self, kind: u16, value: &[u8]) -> &mut Self {
        let length = (value.len() + 4) as u16; // callers' values are far below 64 KiB
        self.bytes.extend_from_slice(&length.to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(value);
        pad(&mut self.bytes);
        self
    }

    /// Adds a number in host order.
    pub fn u32(&mut self, kind: u16, value: u32) -> &mut Self {
        self.attr(kind, &value.to_ne_bytes())
    }

    /// Adds a number in network order.
    pub fn be32(&mut self, kind: u16, value: u32) -> &mut Self {
        self.attr(kind, &value.to_be_bytes())
    }

    /// Adds a string with its final zero.
    pub fn string(&mut self, kind: u16, value: &str) -> &mut Self {
        let mut bytes = value.as_bytes().to_vec();
        bytes.push(0);
        self.attr(kind, &bytes)
    }

    /// Adds bytes that belong to no attribute, such as the fixed part of a nested message.
    pub fn raw(&mut self, value: &[u8]) -> &mut Self {
        self.bytes.extend_from_slice(value);
        pad(&mut self.bytes);
        self
    }

    /// Adds an attribute that holds attributes.
    pub fn nest(&mut self, kind: u16, fill: impl FnOnce(&mut Self)) -> &mut Self {
        let start = self.bytes.len();
        self.attr(kind | NESTED, &[]);
        fill(self);
        let length = (self.bytes.len() - start) as u16;
        self.bytes[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        self
    }

    fn finish(&mut self, sequence: u32, flags: u16) {
        let length = self.bytes.len() as u32;
        self.bytes[0..4].copy_from_slice(&length.to_ne_bytes());
        self.bytes[6] |= flags as u8;
        self.bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
    }
}

fn pad(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}

/// A netlink socket in the namespace of the thread that opened it.
#[derive(Debug)]
pub struct Netlink {
    socket: OwnedFd,
    sequence: u32,
}

impl Netlink {
    /// Opens a socket for links, addresses, neighbours and queueing disciplines.
    pub fn route() -> io::Result<Self> {
        Self::open(SockProtocol::NetlinkRoute)
    }

    /// Opens a socket for nftables.
    pub fn netfilter() -> io::Result<Self> {
        Self::open(SockProtocol::NetlinkNetFilter)
    }

    fn open(protocol: SockProtocol) -> io::Result<Self> {
        let socket = socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, protocol)?;
        bind(socket.as_raw_fd(), &NetlinkAddr::new(0, 0))?;
        // The kernel answers at once; the limit only keeps a surprise from becoming a hang.
        setsockopt(&socket, sockopt::ReceiveTimeout, &TimeVal::new(10, 0))?;
        Ok(Netlink { socket, sequence: 0 })
    }

    /// Sends one request and waits for its acknowledgement.
    pub fn request(&mut self, message: Message) -> io::Result<()> {
        self.requests(vec![message])
    }

    /// Sends requests in order, all in as few calls as possible; the first refusal is the error.
    pub fn requests(&mut self, messages: Vec<Message>) -> io::Result<()> {
        for chunk in chunks(messages) {
            let mut buffer = Vec::new();
            let last = chunk.len() - 1;
            for (index, mut message) in chunk.into_iter().enumerate() {
                self.sequence += 1;
                message.finish(self.sequence, if index == last { ACK as u8 as u16 } else { 0 });
                buffer.extend_from_slice(&message.bytes);
            }
            send(self.socket.as_raw_fd(), &buffer, MsgFlags::empty())?;
            self.wait(self.sequence)?;
        }
        Ok(())
    }

    /// Sends messages as one transaction, each of which must be acknowledged if it carries [`ACK`].
    pub fn transaction(&mut self, messages: Vec<Message>, acknowledged: usize) -> io::Result<()> {
        let mut buffer = Vec::new();
        for mut message in messages {
            self.sequence += 1;
            message.finish(self.sequence, 0);
            buffer.extend_from_slice(&message.bytes);
        }
        send(self.socket.as_raw_fd(), &buffer, MsgFlags::empty())?;
        let mut left = acknowledged;
        while left > 0 {
            self.receive(|kind, _, body| {
                if kind == NLMSG_ERROR {
                    verdict(body)?;
                    left = left.saturating_sub(1);
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Asks for a list and shows the body of each of its messages, fixed part included.
    pub fn dump(&mut self, mut message: Message, mut see: impl FnMut(&[u8])) -> io::Result<()> {
        self.sequence += 1;
        message.finish(self.sequence, 0);
        send(self.socket.as_raw_fd(), &message.bytes, MsgFlags::empty())?;
        let mut done = false;
        while !done {
            self.receive(|kind, _, body| {
                match kind {
                    NLMSG_DONE => done = true,
                    NLMSG_ERROR => verdict(body)?,
                    _ => see(body),
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Sends a request whose answer is one message, and shows its body.
    pub fn get<R>(&mut self, mut message: Message, see: impl FnOnce(&[u8]) -> R) -> io::Result<R> {
        self.sequence += 1;
        message.finish(self.sequence, 0);
        send(self.socket.as_raw_fd(), &message.bytes, MsgFlags::empty())?;
        let mut answer = None;
        self.receive(|kind, _, body| {
            if kind == NLMSG_ERROR {
                verdict(body)?;
            }
            answer = Some(body.to_vec());
            Ok(())
        })?;
        answer.map(|body| see(&body)).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    fn wait(&mut self, sequence: u32) -> io::Result<()> {
        let mut done = false;
        while !done {
            self.receive(|kind, seq, body| {
                if kind == NLMSG_ERROR {
                    verdict(body)?;
                    done |= seq == sequence;
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Receives one datagram and shows each message in it: type, sequence number, body.
    fn receive(&mut self, mut see: impl FnMut(u16, u32, &[u8]) -> io::Result<()>) -> io::Result<()> {
        let mut buffer = vec![0; 64 * 1024];
        let length = recv(self.socket.as_raw_fd(), &mut buffer, MsgFlags::empty())?;
        let mut rest = &buffer[..length];
        while let Some(head) = rest.first_chunk::<16>() {
            let size = word(head, 0) as usize;
            let kind = u16::from_ne_bytes([head[4], head[5]]);
            let Some(body) = rest.get(16..size) else {
                break;
            };
            see(kind, word(head, 8), body)?;
            rest = rest.get(size.next_multiple_of(4)..).unwrap_or_default();
        }
        Ok(())
    }
}

/// The numbers of a message's fixed part.
fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_ne_bytes)
}

fn verdict(body: &[u8]) -> io::Result<()> {
    match word(body, 0) as i32 {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error.saturating_neg())),
    }
}

/// Splits messages so that each group fits into one send.
fn chunks(messages: Vec<Message>) -> Vec<Vec<Message>> {
    let mut result: Vec<Vec<Message>> = Vec::new();
    let mut size = usize::MAX;
    for message in messages {
        if size.saturating_add(message.bytes.len()) > 16 * 1024 {
            result.push(Vec::new());
            size = 0;
        }
        size += message.bytes.len();
        if let Some(chunk) = result.last_mut() {
            chunk.push(message);
        }
    }
    result
}

/// The attributes in `bytes`: their types without flags, and their values.
pub fn attributes(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let head = rest.first_chunk::<4>()?;
        let length = usize::from(u16::from_ne_bytes([head[0], head[1]]));
        let kind = u16::from_ne_bytes([head[2], head[3]]) & 0x3fff;
        let value = rest.get(4..length)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

/// The value of the first attribute of this type.
pub fn attribute(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    attributes(bytes).find(|(k, _)| *k == kind).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn nests_read_back() {
        let mut message = Message::new(1, 0, &[0; 4]);
        message.nest(5, |m| {
            m.string(1, "ab").u32(2, 7);
        });
        message.u32(6, 9);
        let body = &message.bytes[20..];
        let inner = attribute(body, 5).unwrap();
        assert_eq!(attribute(inner, 1), Some(&b"ab\0"[..]));
        assert_eq!(attribute(inner, 2), Some(&7u32.to_ne_bytes()[..]));
        assert_eq!(attribute(body, 6), Some(&9u32.to_ne_bytes()[..]));
        assert_eq!(attribute(body, 7), None);
    }

    proptest! {
        #[test]
        fn no_bytes_panic_or_hang(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(attributes(&bytes).count() <= bytes.len() / 4);
        }
    }
}
