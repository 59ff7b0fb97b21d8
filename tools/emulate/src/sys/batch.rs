//! Sending: many packets to many interfaces with one sendmmsg.

use super::{link_address, packet_socket, set_option};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// Most packets that one call sends.
pub const MAX_BATCH: usize = 64;

/// A socket that sends finished Ethernet frames.
#[derive(Debug)]
pub struct TxBatch {
    socket: OwnedFd,
}

impl TxBatch {
    /// Opens a socket in the calling thread's network namespace.
    pub fn open() -> io::Result<Self> {
        let socket = packet_socket()?;
        set_option(socket.as_fd(), libc::PACKET_QDISC_BYPASS, 1)?;
        Ok(TxBatch { socket })
    }

    /// Sends each packet to its interface, in order. Returns how many the kernel refused.
    pub fn send<'a>(&mut self, packets: impl Iterator<Item = (i32, &'a [u8])>) -> u64 {
        let mut refused = 0;
        let mut packets = packets.peekable();
        while packets.peek().is_some() {
            let mut addresses = [link_address(0, 0); MAX_BATCH];
            // SAFETY: iovec and mmsghdr are plain old data for which all-zero is a valid value.
            let (mut vectors, mut messages): ([libc::iovec; MAX_BATCH], [libc::mmsghdr; MAX_BATCH]) =
                unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
            let mut count = 0;
            for (interface, data) in packets.by_ref().take(MAX_BATCH) {
                addresses[count].sll_ifindex = interface;
                vectors[count] = libc::iovec { iov_base: data.as_ptr().cast_mut().cast(), iov_len: data.len() };
                count += 1;
            }
            for i in 0..count {
                let head = &mut messages[i].msg_hdr;
                head.msg_name = (&raw mut addresses[i]).cast();
                head.msg_namelen = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
                head.msg_iov = &raw mut vectors[i];
                head.msg_iovlen = 1;
            }
            refused += self.send_all(&mut messages[..count]);
        }
        refused
    }

    fn send_all(&self, mut messages: &mut [libc::mmsghdr]) -> u64 {
        let mut refused = 0;
        while !messages.is_empty() {
            // SAFETY: every header points to an address and to one vector of the caller's frame,
            // and every vector to a packet borrowed for 'a; all outlive the call, which only reads
            // the packets.
            let sent = unsafe {
                libc::sendmmsg(
                    self.socket.as_raw_fd(),
                    messages.as_mut_ptr(),
                    messages.len() as libc::c_uint,
                    libc::MSG_DONTWAIT,
                )
            };
            let done = match usize::try_from(sent) {
                Ok(sent) if sent > 0 => sent,
                _ if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => 0,
                _ => {
                    refused += 1; // the first one: its interface is down, or its queue full
                    1
                }
            };
            messages = &mut messages[done..];
        }
        refused
    }
}
