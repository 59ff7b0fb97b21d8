//! The system calls, thin: abstract sockets, sealed memory, descriptors in messages, another
//! process's memory.

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;

/// The seals that memory must have: its size is fixed, and so are the seals. No other but
/// [`SEAL_EXEC`].
pub const SEALS: i32 = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
/// Nobody can make it executable (Linux 6.3). A system may give it to all such memory
/// (`vm.memfd_noexec`).
const SEAL_EXEC: i32 = 0x20;
/// Asks for that, as one must where the system makes no memory that could be executed
/// (`vm.memfd_noexec` 2).
const NOEXEC_SEAL: u32 = 0x8;

fn check(result: i64) -> io::Result<i64> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn owned(result: i32) -> io::Result<OwnedFd> {
    check(result.into())?;
    // SAFETY: the system has just made this descriptor for us; nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(result) })
}

/// An abstract address: its bytes follow a zero byte, and no file is made.
fn abstract_address(name: &[u8]) -> io::Result<(libc::sockaddr_un, libc::socklen_t)> {
    // SAFETY: a sockaddr_un is numbers only, for which zero bytes are values.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    if name.len() + 1 > address.sun_path.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in address.sun_path[1..].iter_mut().zip(name) {
        *to = *from as libc::c_char;
    }
    let len = std::mem::offset_of!(libc::sockaddr_un, sun_path) + 1 + name.len();
    Ok((address, len as libc::socklen_t))
}

fn socket() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: no pointers.
    owned(unsafe { libc::socket(libc::AF_UNIX, kind, 0) })
}

/// Listens at an abstract name.
pub fn listen(name: &[u8], backlog: i32) -> io::Result<OwnedFd> {
    let (address, len) = abstract_address(name)?;
    let fd = socket()?;
    // SAFETY: the pointer and length describe `address`, which lives through the call.
    check(unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), len) }.into())?;
    // SAFETY: no pointers.
    check(unsafe { libc::listen(fd.as_raw_fd(), backlog) }.into())?;
    Ok(fd)
}

/// Connects to an abstract name; at once or not at all, as Unix sockets do. `WouldBlock`: its queue
/// is full.
pub fn connect(name: &[u8]) -> io::Result<OwnedFd> {
    let (address, len) = abstract_address(name)?;
    let fd = socket()?;
    // SAFETY: the pointer and length describe `address`, which lives through the call.
    check(unsafe { libc::connect(fd.as_raw_fd(), (&raw const address).cast(), len) }.into())?;
    Ok(fd)
}

/// The next connection, if one waits.
pub fn accept(listener: &OwnedFd) -> io::Result<OwnedFd> {
    let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: null pointers ask for no address.
    owned(unsafe { libc::accept4(listener.as_raw_fd(), std::ptr::null_mut(), std::ptr::null_mut(), flags) })
}

/// Who is at the other end, as the system knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// Process id in our namespace; 0 if it has none there.
    pub pid: i32,
    /// User id.
    pub uid: u32,
}

/// Whoever made the other end's socket (the connector, or who began to listen).
pub fn credentials(fd: &OwnedFd) -> io::Result<Credentials> {
    let mut cred = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the pointers describe `cred` and `len`, which live through the call.
    let result = unsafe {
        libc::getsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, (&raw mut cred).cast(), &raw mut len)
    };
    check(result.into())?;
    Ok(Credentials { pid: cred.pid, uid: cred.uid })
}

/// A descriptor that is readable when the process at the other end has ended. The system's own
/// answer (Linux 6.5) names the process itself, the older way a number that may have passed to
/// another, which the probe of its memory would find out.
pub fn peer_pidfd(fd: &OwnedFd, pid: i32) -> io::Result<OwnedFd> {
    const SO_PEERPIDFD: i32 = 77;
    let mut pidfd: RawFd = -1;
    let mut len = size_of::<RawFd>() as libc::socklen_t;
    // SAFETY: the pointers describe `pidfd` and `len`, which live through the call.
    let result = unsafe {
        libc::getsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, SO_PEERPIDFD, (&raw mut pidfd).cast(), &raw mut len)
    };
    if result == 0 {
        return owned(pidfd);
    }
    if pid <= 0 {
        return Err(io::ErrorKind::NotFound.into());
    }
    // SAFETY: no pointers.
    owned(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) } as i32)
}

/// The user this process acts as.
pub fn own_uid() -> u32 {
    // SAFETY: no arguments, cannot fail.
    unsafe { libc::geteuid() }
}

/// Why memory could not be made: by itself, or its seals.
#[derive(Debug)]
pub enum MemoryError {
    /// There is none, or no descriptor.
    Make(io::Error),
    /// It is longer than this process's files may be.
    FileSize,
    /// The system does not seal.
    Seal,
}

/// Whether this process may make a file of so many bytes. One that tries all the same is sent
/// SIGXFSZ, by which most end: memory without a name is a file in this.
fn may_have_file_of(bytes: usize) -> bool {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to `limit`, which lives through the call.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) } == 0;
    !known || limit.rlim_cur >= bytes as u64
}

/// Memory without a name, of `bytes` zero bytes that take no room yet, sealed.
pub fn sealed_memory(bytes: usize) -> Result<OwnedFd, MemoryError> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: the name is a string that ends in zero.
    let make = |flags| owned(unsafe { libc::memfd_create(c"weir-shm".as_ptr(), flags) });
    let fd = make(flags).or_else(|e| match e.raw_os_error() {
        Some(libc::EACCES) => make(flags | NOEXEC_SEAL),
        _ => Err(e),
    });
    let fd = fd.map_err(MemoryError::Make)?;
    if !may_have_file_of(bytes) {
        return Err(MemoryError::FileSize);
    }
    // SAFETY: no pointers.
    check(unsafe { libc::ftruncate(fd.as_raw_fd(), bytes as i64) }.into()).map_err(MemoryError::Make)?;
    // SAFETY: no pointers.
    check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, SEALS) }.into()).map_err(|_| MemoryError::Seal)?;
    Ok(fd)
}

/// Opens memory without a name that another process of this host has open under this number.
/// Nothing else: what has a name may have other effects when it is opened.
pub fn open_memory_of(pid: u32, fd: RawFd) -> io::Result<OwnedFd> {
    let path = format!("/proc/{pid}/fd/{fd}");
    let target = std::fs::read_link(&path)?;
    if !target.to_string_lossy().starts_with("/memfd:weir-shm") {
        return Err(io::ErrorKind::NotFound.into());
    }
    let mut options = std::fs::OpenOptions::new();
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    Ok(std::os::unix::fs::OpenOptionsExt::custom_flags(options.read(true).write(true), flags).open(&path)?.into())
}

/// Whether a descriptor is memory of exactly this size and sealed so, so that no access to a
/// mapping of it can fail.
pub fn is_sealed_memory(fd: &OwnedFd, bytes: usize) -> bool {
    // SAFETY: no pointers.
    let seals = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GET_SEALS) };
    // SAFETY: a stat is numbers only, for which zero bytes are values.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to `stat`, which lives through the call.
    let result = unsafe { libc::fstat(fd.as_raw_fd(), &raw mut stat) };
    seals & !SEAL_EXEC == SEALS && result == 0 && stat.st_size == bytes as i64
}

/// A mapping of shared memory, or memory of our own; gone when dropped.
#[derive(Debug)]
pub struct Mapping {
    at: NonNull<u8>,
    len: usize,
}

// SAFETY: it is memory, not bound to a thread; whoever reads and writes it does so by atomics.
unsafe impl Send for Mapping {}
// SAFETY: as above; the type itself gives out nothing but an address.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(fd: RawFd, len: usize, flags: i32) -> io::Result<Mapping> {
        let rw = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at a place of the system's choice harms no memory that is in use.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), len, rw, flags, fd, 0) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let at = NonNull::new(at.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Mapping { at, len })
    }

    /// Maps `len` bytes of sealed memory.
    pub fn shared(fd: &OwnedFd, len: usize) -> io::Result<Mapping> {
        Mapping::new(fd.as_raw_fd(), len, libc::MAP_SHARED)
    }

    /// A page of our own that reads as zero in a child process made by fork.
    pub fn wiped_on_fork(len: usize) -> io::Result<Mapping> {
        let mapping = Mapping::new(-1, len, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS)?;
        // SAFETY: the range is ours; the advice changes only what a child gets.
        check(unsafe { libc::madvise(mapping.at.as_ptr().cast(), len, libc::MADV_WIPEONFORK) }.into())?;
        Ok(mapping)
    }

    /// Its first byte.
    pub fn at(&self) -> NonNull<u8> {
        self.at
    }

    /// Gives the pages of a range back to the system; they read as zero then.
    pub fn punch(&self, range: std::ops::Range<usize>) -> io::Result<()> {
        if range.start >= range.end || range.end > self.len {
            return Ok(());
        }
        // SAFETY: the range lies in the mapping; its bytes become zero, which every reader of
        // shared memory must bear.
        let result = unsafe { libc::madvise(self.at.as_ptr().add(range.start).cast(), range.len(), libc::MADV_REMOVE) };
        check(result.into()).map(drop)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and who borrows from it has gone.
        unsafe { libc::munmap(self.at.as_ptr().cast(), self.len) };
    }
}

/// Bytes of a page.
pub fn page_bytes() -> usize {
    // SAFETY: no pointers.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// Room for the control messages of one descriptor; two fit, for such room is counted in words.
#[repr(align(8))]
struct ControlRoom([u8; 24]);

/// Sends one message, with a descriptor or without. All of it or nothing.
pub fn send(fd: &OwnedFd, bytes: &[u8], with: Option<&OwnedFd>) -> io::Result<()> {
    let mut piece = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut room = ControlRoom([0; 24]);
    // SAFETY: a msghdr is numbers and pointers that may be null.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut piece;
    message.msg_iovlen = 1;
    if let Some(with) = with {
        let head = libc::cmsghdr {
            // SAFETY: no pointers.
            cmsg_len: unsafe { libc::CMSG_LEN(4) } as _,
            cmsg_level: libc::SOL_SOCKET,
            cmsg_type: libc::SCM_RIGHTS,
        };
        message.msg_control = (&raw mut room).cast();
        message.msg_controllen = room.0.len() as _;
        // SAFETY: the room is aligned and holds a head of 16 bytes and the descriptor's number
        // behind it.
        unsafe {
            message.msg_control.cast::<libc::cmsghdr>().write(head);
            libc::CMSG_DATA(message.msg_control.cast()).cast::<RawFd>().write_unaligned(with.as_raw_fd());
        }
    }
    // SAFETY: the message's pointers are to `piece`, `bytes` and `room`, which live through the
    // call.
    check(unsafe { libc::sendmsg(fd.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT) } as i64)
        .map(drop)
}

/// Receives one message and the first descriptor in it; further ones are closed. 0 bytes: the other
/// end has closed.
pub fn recv(fd: &OwnedFd, bytes: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut piece = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let mut room = ControlRoom([0; 24]);
    // SAFETY: a msghdr is numbers and pointers that may be null.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut piece;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut room).cast();
    message.msg_controllen = room.0.len() as _;
    let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
    // SAFETY: the message's pointers are to `piece`, `bytes` and `room`, which live through the
    // call.
    let n = check(unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut message, flags) } as i64)?;
    Ok((n as usize, first_descriptor(&message)))
}

fn first_descriptor(message: &libc::msghdr) -> Option<OwnedFd> {
    let mut first = None;
    // SAFETY: the system has written well-formed control messages into the room the header
    // describes.
    let mut at = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !at.is_null() {
        // SAFETY: not null, so a whole head lies there.
        let head = unsafe { &*at };
        if head.cmsg_level == libc::SOL_SOCKET && head.cmsg_type == libc::SCM_RIGHTS {
            // SAFETY: no pointers are followed.
            let count =
                (head.cmsg_len as usize).saturating_sub(unsafe { libc::CMSG_LEN(0) } as usize) / size_of::<RawFd>();
            for i in 0..count {
                // SAFETY: so many numbers lie behind the head; each is a descriptor made for us,
                // and dropped is closed.
                let fd = unsafe { OwnedFd::from_raw_fd(libc::CMSG_DATA(at).cast::<RawFd>().add(i).read_unaligned()) };
                first.get_or_insert(fd);
            }
        }
        // SAFETY: as for the first.
        at = unsafe { libc::CMSG_NXTHDR(message, at) };
    }
    first
}

/// Receives one message of at most `bytes.len()` bytes; descriptors in it are never made.
pub fn recv_plain(fd: &OwnedFd, bytes: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the pointer and length describe `bytes`.
    let n = unsafe { libc::recv(fd.as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len(), libc::MSG_DONTWAIT) };
    check(n as i64).map(|n| n as usize)
}

/// Ends a connection for both sides, whoever else has a copy of its descriptor.
pub fn shutdown(fd: &OwnedFd) {
    // SAFETY: no pointers. One whose other end has gone needs none.
    let _ = unsafe { libc::shutdown(fd.as_raw_fd(), libc::SHUT_RDWR) };
}

/// A wait set.
pub fn epoll() -> io::Result<OwnedFd> {
    // SAFETY: no pointers.
    owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })
}

/// Adds a descriptor to a wait set, by its readability.
pub fn epoll_add(set: &OwnedFd, fd: &OwnedFd, tag: u64) -> io::Result<()> {
    let mut event = libc::epoll_event { events: (libc::EPOLLIN | libc::EPOLLRDHUP) as u32, u64: tag };
    // SAFETY: the pointer is to `event`, which lives through the call.
    check(unsafe { libc::epoll_ctl(set.as_raw_fd(), libc::EPOLL_CTL_ADD, fd.as_raw_fd(), &raw mut event) }.into())
        .map(drop)
}

/// Takes a descriptor out of a wait set. Closing alone does not, where a forked child has a copy.
pub fn epoll_remove(set: &OwnedFd, fd: &OwnedFd) {
    // SAFETY: no pointers but a null one, which is allowed. It fails only for what is not in the
    // set.
    let _ = unsafe { libc::epoll_ctl(set.as_raw_fd(), libc::EPOLL_CTL_DEL, fd.as_raw_fd(), std::ptr::null_mut()) };
}

/// The tags of what is ready now; at most as many as `tags` holds.
pub fn epoll_ready(set: &OwnedFd, tags: &mut [(u64, bool); 16]) -> io::Result<usize> {
    let mut events = [libc::epoll_event { events: 0, u64: 0 }; 16];
    // SAFETY: the pointer and length describe `events`.
    let n = check(unsafe { libc::epoll_wait(set.as_raw_fd(), events.as_mut_ptr(), events.len() as i32, 0) }.into())?;
    let over = (libc::EPOLLHUP | libc::EPOLLRDHUP | libc::EPOLLERR) as u32;
    for (to, from) in tags.iter_mut().zip(&events[..n as usize]) {
        *to = (from.u64, from.events & over != 0);
    }
    Ok(n as usize)
}

/// Whether a process has ended (its pidfd), or a connection (its socket).
pub fn is_over(socket: &OwnedFd, pidfd: Option<&OwnedFd>) -> bool {
    let mut all = [
        libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLRDHUP, revents: 0 },
        libc::pollfd { fd: pidfd.map_or(-1, AsRawFd::as_raw_fd), events: libc::POLLIN, revents: 0 },
    ];
    // SAFETY: the pointer and length describe `all`.
    unsafe { libc::poll(all.as_mut_ptr(), 2, 0) != 0 }
}

/// A piece of another process's memory.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemotePiece {
    /// Its address there.
    pub address: u64,
    /// Its length in bytes.
    pub len: u64,
}

/// The most pieces of one system call (`IOV_MAX`).
pub const PIECES_MAX: usize = 1024;

/// Reads another process's memory into ours; returns how many bytes.
pub fn read_process(pid: i32, remote: &[RemotePiece], local: &mut [io::IoSliceMut<'_>]) -> io::Result<usize> {
    // SAFETY: an IoSliceMut is an iovec (its documentation says so) of memory we may write.
    unsafe { read_process_into(pid, remote, &*(std::ptr::from_mut(local) as *const [libc::iovec])) }
}

/// The same into memory of which there may be no reference.
///
/// # Safety
/// Every local piece may be written.
pub unsafe fn read_process_into(pid: i32, remote: &[RemotePiece], local: &[libc::iovec]) -> io::Result<usize> {
    #[cfg(target_pointer_width = "64")]
    // SAFETY: the local pieces are the caller's word; a RemotePiece has an iovec's layout, and its
    // address is the system's to check.
    let n = unsafe {
        libc::process_vm_readv(
            pid,
            local.as_ptr(),
            local.len().min(PIECES_MAX) as u64,
            remote.as_ptr().cast(),
            remote.len().min(PIECES_MAX) as u64,
            0,
        )
    };
    #[cfg(not(target_pointer_width = "64"))]
    let n = {
        let _ = (pid, remote, local);
        return Err(io::Error::from_raw_os_error(libc::ENOSYS));
    };
    check(n as i64).map(|n| n as usize)
}

/// An address as a number, for a peer to read from.
pub fn address_of(memory: &Mapping) -> u64 {
    memory.at().as_ptr().cast::<c_void>() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a system does to all memory, or asks for, that is set so (`vm.memfd_noexec`).
    #[test]
    fn memory_that_cannot_be_made_executable_is_good_and_with_any_other_seal_it_is_not() {
        let is_good = |flags: u32, seals: i32| {
            let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING | flags;
            // SAFETY: the name is a string that ends in zero.
            let fd = owned(unsafe { libc::memfd_create(c"weir-test".as_ptr(), flags) }).ok()?;
            // SAFETY: no pointers.
            unsafe { libc::ftruncate(fd.as_raw_fd(), 4096) };
            // SAFETY: no pointers.
            assert_eq!(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, seals) }, 0);
            Some(is_sealed_memory(&fd, 4096))
        };
        // An older system does not know the flag, and gives none.
        assert_ne!(is_good(NOEXEC_SEAL, SEALS), Some(false));
        assert_ne!(is_good(0, SEALS), Some(false));
        assert_ne!(is_good(NOEXEC_SEAL, SEALS | libc::F_SEAL_WRITE), Some(true));
        assert_ne!(is_good(NOEXEC_SEAL, SEALS & !libc::F_SEAL_GROW), Some(true));
        let made = sealed_memory(4096).expect("memory");
        assert!(is_sealed_memory(&made, 4096));
    }
}
