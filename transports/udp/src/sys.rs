//! The system calls, thin. Errors are `errno` numbers on the hot path: an `io::Error` says no more
//! and costs a match.

use crate::addr::RawAddr;
use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

/// The last error of this thread.
pub fn errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

fn check(n: isize) -> Result<usize, i32> {
    usize::try_from(n).map_err(|_| errno())
}

/// Sets an integer option.
pub fn set_option(fd: RawFd, level: i32, name: i32, value: i32) -> io::Result<()> {
    // SAFETY: the pointer and length describe `value`, which lives through the call.
    let r = unsafe { libc::setsockopt(fd, level, name, (&raw const value).cast(), size_of::<i32>() as u32) };
    if r == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Reads an integer option.
pub fn get_option(fd: RawFd, level: i32, name: i32) -> io::Result<i32> {
    let mut value: i32 = 0;
    let mut len = size_of::<i32>() as u32;
    // SAFETY: the pointers describe `value` and `len`, which live through the call.
    let r = unsafe { libc::getsockopt(fd, level, name, (&raw mut value).cast(), &raw mut len) };
    if r == 0 { Ok(value) } else { Err(io::Error::last_os_error()) }
}

/// Datagrams the kernel dropped at this socket's receive buffer (`SO_MEMINFO`, item
/// `SK_MEMINFO_DROPS` of linux/sock_diag.h).
pub fn receive_drops(fd: RawFd) -> Option<u32> {
    const SK_MEMINFO_DROPS: usize = 8;
    let mut info = [0u32; 9];
    let mut len = size_of_val(&info) as u32;
    // SAFETY: the pointers describe `info` and `len`, which live through the call.
    let r = unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_MEMINFO, info.as_mut_ptr().cast(), &raw mut len) };
    (r == 0 && len as usize == size_of_val(&info)).then(|| info[SK_MEMINFO_DROPS])
}

/// Sends one contiguous datagram to the peer the socket is connected to.
#[inline]
pub fn send(fd: RawFd, data: &[u8]) -> Result<usize, i32> {
    // SAFETY: `data` is a live slice of the length given.
    check(unsafe { libc::send(fd, data.as_ptr().cast(), data.len(), libc::MSG_DONTWAIT) })
}

/// Sends one contiguous datagram.
#[inline]
pub fn send_to(fd: RawFd, data: &[u8], to: &RawAddr) -> Result<usize, i32> {
    // SAFETY: `data` and `to` are live slices of the lengths given.
    check(unsafe { libc::sendto(fd, data.as_ptr().cast(), data.len(), libc::MSG_DONTWAIT, to.as_ptr().cast(), to.len) })
}

/// Sends one message, which may lie in several pieces and have control data.
///
/// # Safety
/// All that `message` points to must be valid for the lengths it gives.
#[inline]
pub unsafe fn send_message(fd: RawFd, message: &libc::msghdr) -> Result<usize, i32> {
    // SAFETY: promised by the caller.
    check(unsafe { libc::sendmsg(fd, message, libc::MSG_DONTWAIT) })
}

/// Sends several messages; returns how many were sent. An error is that of the first.
///
/// # Safety
/// All that `messages` point to must be valid for the lengths they give.
pub unsafe fn send_messages(fd: RawFd, messages: &mut [libc::mmsghdr]) -> Result<usize, i32> {
    let n = messages.len() as u32;
    // SAFETY: the slice is live and `n` long; the rest is promised by the caller.
    check(unsafe { libc::sendmmsg(fd, messages.as_mut_ptr(), n, libc::MSG_DONTWAIT) } as isize)
}

/// Receives one message.
///
/// # Safety
/// All that `message` points to must be writable for the lengths it gives.
#[inline]
pub unsafe fn receive_message(fd: RawFd, message: &mut libc::msghdr, flags: i32) -> Result<usize, i32> {
    // SAFETY: promised by the caller.
    check(unsafe { libc::recvmsg(fd, message, libc::MSG_DONTWAIT | flags) })
}

/// Receives as many messages as are there, at most one for each of `messages`.
///
/// # Safety
/// All that `messages` point to must be writable for the lengths they give.
pub unsafe fn receive_messages(fd: RawFd, messages: &mut [libc::mmsghdr]) -> Result<usize, i32> {
    let n = messages.len() as u32;
    // SAFETY: the slice is live and `n` long; no time-out is given; the rest is promised by the
    // caller.
    check(unsafe { libc::recvmmsg(fd, messages.as_mut_ptr(), n, libc::MSG_DONTWAIT, std::ptr::null_mut()) } as isize)
}

/// Sleeps until one of the sockets is readable (-1 is none), or `writable` is, or the time is over;
/// `None` waits for ever. An interrupting signal counts as "ready".
pub fn wait(fds: [RawFd; 2], writable: Option<RawFd>, timeout: Option<Duration>) -> io::Result<bool> {
    let mut entries = fds.map(|fd| {
        let events = if writable == Some(fd) { libc::POLLIN | libc::POLLOUT } else { libc::POLLIN };
        libc::pollfd { fd, events, revents: 0 }
    });
    let spec = timeout.map(|t| libc::timespec {
        tv_sec: libc::time_t::try_from(t.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: t.subsec_nanos() as _,
    });
    let spec_ptr = spec.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: two entries are given and live through the call; the time-out is null or points to
    // `spec`.
    let r = unsafe { libc::ppoll(entries.as_mut_ptr(), 2, spec_ptr, std::ptr::null()) };
    match r {
        0 => Ok(false),
        1.. => Ok(true),
        _ => match io::Error::last_os_error() {
            e if e.kind() == io::ErrorKind::Interrupted => Ok(true),
            e => Err(e),
        },
    }
}

/// An empty message header.
pub fn empty_message() -> libc::msghdr {
    // SAFETY: msghdr is made of integers and pointers, for which zero is valid.
    unsafe { std::mem::zeroed() }
}
