//! The only unsafe code of the crate: calls for which the crates we use have no safe form.
//!
//! * [`RxRing`] and [`TxBatch`]: packets from and to interfaces without a system call, or with one,
//!   for many.
//! * [`set_offload`]: the ethtool ioctl.
//! * [`before_exec`]: work between fork and exec.
//! * [`real_time`]: scheduling priority of the calling thread.

#![allow(unsafe_code)]

mod batch;
mod ring;

pub use batch::TxBatch;
pub use ring::RxRing;

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// `ETHTOOL_S*` commands of `linux/ethtool.h` for what an interface may do on behalf of the stack.
#[derive(Clone, Copy, Debug)]
#[repr(u32)]
pub enum Offload {
    /// Transmit checksum.
    TxChecksum = 0x17,
    /// TCP segmentation.
    Tso = 0x1f,
    /// Generic receive offload.
    Gro = 0x2c,
}

/// Switches an offload of an interface on or off, through any socket in the interface's namespace.
pub fn set_offload(socket: BorrowedFd<'_>, interface: &str, offload: Offload, on: bool) -> io::Result<()> {
    #[repr(C)]
    struct EthtoolValue {
        cmd: u32,
        data: u32,
    }
    let mut value = EthtoolValue { cmd: offload as u32, data: u32::from(on) };
    // SAFETY: ifreq is plain old data for which all-zero is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if interface.len() >= request.ifr_name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in request.ifr_name.iter_mut().zip(interface.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = (&raw mut value).cast();
    // SAFETY: SIOCETHTOOL takes a pointer to an ifreq whose ifru_data points to the command's
    // structure, which for these commands is an ethtool_value; both outlive the call.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL, &raw mut request) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Arranges for `work` to run in the child after fork and before exec. `work` must only make system
/// calls: no allocation, no lock. The working directory is kept although `work` may enter another
/// mount namespace.
pub fn before_exec(command: &mut Command, work: impl Fn() -> io::Result<()> + Send + Sync + 'static) {
    let in_child = move || {
        let mut cwd = [0 as libc::c_char; libc::PATH_MAX as usize];
        // SAFETY: getcwd writes at most the given length into the buffer.
        let known = unsafe { !libc::getcwd(cwd.as_mut_ptr(), cwd.len()).is_null() };
        work()?;
        // SAFETY: getcwd succeeded, so the buffer holds a string that ends with a zero byte.
        if known && unsafe { libc::chdir(cwd.as_ptr()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    };
    // SAFETY: the closure makes system calls only, as the contract of this function demands of
    // `work`.
    unsafe { command.pre_exec(in_child) };
}

/// Gives the calling thread the lowest real-time priority.
pub fn real_time() -> io::Result<()> {
    // SAFETY: sched_param is plain old data for which all-zero is a valid value.
    let mut param: libc::sched_param = unsafe { std::mem::zeroed() };
    param.sched_priority = 1;
    // SAFETY: the parameter outlives the call; 0 names the calling thread.
    let result = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, &raw const param) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Sets an integer socket option.
fn set_option(fd: BorrowedFd<'_>, option: libc::c_int, value: libc::c_int) -> io::Result<()> {
    // SAFETY: the pointer and the length describe a live integer.
    let result = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_PACKET,
            option,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Opens a packet socket that receives nothing until it is bound.
fn packet_socket() -> io::Result<std::os::fd::OwnedFd> {
    use std::os::fd::FromRawFd;
    // SAFETY: no pointers are passed.
    let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call returned a new descriptor that nobody else owns.
    Ok(unsafe { std::os::fd::OwnedFd::from_raw_fd(fd) })
}

/// A link-layer address that names an interface (0 for all) and a protocol.
fn link_address(interface: i32, protocol: u16) -> libc::sockaddr_ll {
    // SAFETY: sockaddr_ll is plain old data for which all-zero is a valid value.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = protocol.to_be();
    address.sll_ifindex = interface;
    address
}
