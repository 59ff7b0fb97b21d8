//! The system calls, thin: bpf(2), AF_XDP sockets, mapped memory.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;

/// The last error as a result.
pub fn last<T>() -> io::Result<T> {
    Err(io::Error::last_os_error())
}

fn checked(result: i64) -> io::Result<i64> {
    if result < 0 { last() } else { Ok(result) }
}

fn owned(result: i64) -> io::Result<OwnedFd> {
    let fd = checked(result)?;
    // SAFETY: the kernel just made this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

// ---- bpf(2), linux/bpf.h ----

/// Commands of bpf(2).
const MAP_CREATE: i32 = 0;
const MAP_UPDATE_ELEM: i32 = 2;
const MAP_DELETE_ELEM: i32 = 3;
const PROG_LOAD: i32 = 5;
const PROG_TEST_RUN: i32 = 10;
const LINK_CREATE: i32 = 28;
const LINK_DETACH: i32 = 34;
const OBJ_GET_INFO_BY_FD: i32 = 15;
const MAP_UPDATE_BATCH: i32 = 26;

/// Types of maps.
pub const MAP_TYPE_HASH: u32 = 1;
pub const MAP_TYPE_ARRAY: u32 = 2;
pub const MAP_TYPE_ARRAY_OF_MAPS: u32 = 12;
pub const MAP_TYPE_XSKMAP: u32 = 17;
pub const MAP_TYPE_RINGBUF: u32 = 27;
/// `BPF_F_MMAPABLE`: an array that processes can map.
pub const MAP_MAPPABLE: u32 = 1 << 10;

/// What a program is: `BPF_PROG_TYPE_XDP` attached as `BPF_XDP`, or `BPF_PROG_TYPE_SCHED_CLS` as
/// `BPF_TCX_INGRESS` (Linux 6.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    Xdp,
    Ingress,
}

impl Hook {
    fn kind(self) -> u32 {
        if self == Hook::Xdp { 6 } else { 3 }
    }

    fn attached_as(self) -> u32 {
        if self == Hook::Xdp { 37 } else { 46 }
    }
}
/// `BPF_F_XDP_HAS_FRAGS`: the program is told of frames in several pieces (Linux 5.18).
pub const PROG_HAS_FRAGS: u32 = 1 << 5;
/// `BPF_F_BEFORE`: before all programs that are there.
pub const FIRST: u32 = 1 << 3;
/// `XDP_FLAGS_SKB_MODE` and `XDP_FLAGS_DRV_MODE` of linux/if_link.h.
pub const GENERIC: u32 = 1 << 1;
pub const NATIVE: u32 = 1 << 2;

/// `union bpf_attr`: as many bytes as any command here reads, zero where nothing is said.
#[repr(C, align(8))]
struct Attr([u8; 128]);

impl Attr {
    fn new() -> Attr {
        Attr([0; 128])
    }

    fn u32(mut self, at: usize, value: u32) -> Attr {
        self.0[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        self
    }

    fn fd(self, at: usize, fd: &OwnedFd) -> Attr {
        self.u32(at, fd.as_raw_fd() as u32)
    }

    fn address<T: ?Sized>(mut self, at: usize, of: *const T) -> Attr {
        let address = of.cast::<u8>() as usize as u64;
        self.0[at..at + 8].copy_from_slice(&address.to_ne_bytes());
        self
    }

    fn name(mut self, at: usize, name: &str) -> Attr {
        let bytes = &name.as_bytes()[..name.len().min(15)];
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
        self
    }

    /// # Safety
    /// What the attribute points to must be valid for what the command does with it.
    unsafe fn call(&mut self, command: i32) -> io::Result<i64> {
        // SAFETY: the attribute is live and as long as is said; what it points to is the caller's
        // promise.
        checked(unsafe { libc::syscall(libc::SYS_bpf, command, self.0.as_mut_ptr(), self.0.len()) })
    }
}

/// Makes a map.
pub fn map(kind: u32, key_bytes: usize, value_bytes: usize, entries: u32, name: &str) -> io::Result<OwnedFd> {
    map_with(kind, key_bytes, value_bytes, entries, 0, None, name)
}

/// Makes a map with flags, and of maps such as `inner`.
pub fn map_with(
    kind: u32,
    key_bytes: usize,
    value_bytes: usize,
    entries: u32,
    flags: u32,
    inner: Option<&OwnedFd>,
    name: &str,
) -> io::Result<OwnedFd> {
    let attr = Attr::new().u32(0, kind).u32(4, key_bytes as u32).u32(8, value_bytes as u32).u32(12, entries);
    let attr = attr.u32(16, flags).name(28, name);
    let mut attr = match inner {
        Some(inner) => attr.fd(20, inner),
        None => attr,
    };
    // SAFETY: this command follows no pointer here.
    owned(unsafe { attr.call(MAP_CREATE) }?)
}

/// Sets a map's entry. Key and value must have the lengths that it was made with.
pub fn map_set<const K: usize, const V: usize>(map: &OwnedFd, key: &[u8; K], value: &[u8; V]) -> io::Result<()> {
    let mut attr = Attr::new().fd(0, map).address(8, key).address(16, value);
    // SAFETY: both live through the call; the maps of this crate have keys and values of these
    // types alone.
    unsafe { attr.call(MAP_UPDATE_ELEM) }.map(|_| ())
}

/// Takes an entry out of a map.
pub fn map_remove<const K: usize>(map: &OwnedFd, key: &[u8; K]) -> io::Result<()> {
    let mut attr = Attr::new().fd(0, map).address(8, key);
    // SAFETY: as in `map_set`.
    unsafe { attr.call(MAP_DELETE_ELEM) }.map(|_| ())
}

/// Sets entries of a map in one call (Linux 5.14 for maps of maps): all, or some and an error.
pub fn map_set_all<const K: usize, const V: usize>(
    map: &OwnedFd,
    entries: impl Iterator<Item = ([u8; K], [u8; V])>,
) -> io::Result<()> {
    let (keys, values): (Vec<[u8; K]>, Vec<[u8; V]>) = entries.unzip();
    if keys.is_empty() {
        return Ok(());
    }
    let attr = Attr::new().address(16, keys.as_ptr()).address(24, values.as_ptr());
    let mut attr = attr.u32(32, keys.len() as u32).fd(36, map);
    // SAFETY: both live through the call, with as many entries as is said; as in `map_set`.
    unsafe { attr.call(MAP_UPDATE_BATCH) }.map(|_| ())
}

/// Bytes kept of what the kernel's verifier says of a program that it refuses.
const LOG_BYTES: usize = 64 << 10;

/// Loads a program of these instructions. The error of a refused one bears the last lines of what
/// the verifier says.
pub fn load(hook: Hook, code: &[u64], flags: u32, name: &str) -> io::Result<OwnedFd> {
    const LICENCE: &std::ffi::CStr = c"Apache-2.0";
    let attr = |log: Option<&mut Vec<u8>>| {
        let a = Attr::new().u32(0, hook.kind()).u32(4, code.len() as u32).address(8, code.as_ptr());
        let a = a.address(16, LICENCE.as_ptr()).u32(44, flags).name(48, name).u32(68, hook.attached_as());
        match log {
            Some(log) => a.u32(24, 1).u32(28, log.len() as u32).address(32, log.as_mut_ptr().cast_const()),
            None => a,
        }
    };
    // SAFETY: code and licence live through the call, and the count is the code's.
    let first = unsafe { attr(None).call(PROG_LOAD) };
    match first {
        Ok(fd) => owned(fd),
        Err(e) if e.raw_os_error() == Some(libc::EPERM) => Err(e),
        Err(_) => {
            let mut log = vec![0; LOG_BYTES];
            let mut attr = attr(Some(&mut log));
            // SAFETY: as above, and the log has the room that is said.
            match unsafe { attr.call(PROG_LOAD) } {
                Ok(fd) => owned(fd),
                Err(e) => {
                    let text = String::from_utf8_lossy(&log);
                    let text = text.trim_end_matches('\0').trim_end();
                    let tail: Vec<&str> = text.lines().rev().take(4).collect();
                    let tail: Vec<&str> = tail.into_iter().rev().collect();
                    Err(io::Error::new(e.kind(), format!("{e}; the kernel's verifier: {}", tail.join(" / "))))
                }
            }
        }
    }
}

/// Runs a program on a frame without any interface: what it returns (`XDP_PASS` is 2,
/// `XDP_REDIRECT` 4), and nanoseconds of one of `repeat` runs.
pub fn test_run(program: &OwnedFd, frame: &[u8], repeat: u32) -> io::Result<(u32, u32)> {
    let attr = Attr::new().fd(0, program).u32(8, frame.len() as u32).address(16, frame.as_ptr());
    let mut attr = attr.u32(32, repeat);
    // SAFETY: the frame lives through the call; nothing is written, for no room is given.
    unsafe { attr.call(PROG_TEST_RUN) }?;
    let word = |at: usize| u32::from_ne_bytes([attr.0[at], attr.0[at + 1], attr.0[at + 2], attr.0[at + 3]]);
    Ok((word(4), word(36)))
}

/// Attaches a program to an interface for as long as the returned descriptor (of a bpf link) lives,
/// `mode` being [`GENERIC`] or [`NATIVE`] for XDP, else [`FIRST`] or 0, behind those that are
/// there.
pub fn attach(hook: Hook, program: &OwnedFd, interface: u32, mode: u32) -> io::Result<OwnedFd> {
    let mut attr = Attr::new().fd(0, program).u32(4, interface).u32(8, hook.attached_as()).u32(12, mode);
    // SAFETY: this command follows no pointer here.
    owned(unsafe { attr.call(LINK_CREATE) }?)
}

/// Detaches the program of a link although its descriptor lives.
pub fn detach(link: &OwnedFd) -> io::Result<()> {
    // SAFETY: this command follows no pointer.
    unsafe { Attr::new().fd(0, link).call(LINK_DETACH) }.map(|_| ())
}

/// The interface that a link is attached to; 0: none any more.
pub fn link_interface(link: &OwnedFd) -> io::Result<u32> {
    // struct bpf_link_info: type, id, program's id, and from 16 on, of XDP and tcx, the interface.
    let mut info = [0u32; 16];
    let mut attr = Attr::new().fd(0, link).u32(4, size_of_val(&info) as u32).address(8, info.as_mut_ptr());
    // SAFETY: the kernel writes to `info`, which has the length that is said, and nowhere else.
    unsafe { attr.call(OBJ_GET_INFO_BY_FD) }?;
    Ok(info[4])
}

// ---- AF_XDP, linux/if_xdp.h ----

/// An AF_XDP socket.
pub fn xsk() -> io::Result<OwnedFd> {
    // SAFETY: no pointer.
    owned(i64::from(unsafe {
        libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0)
    }))
}

fn set<T>(fd: &OwnedFd, level: i32, name: i32, value: &T) -> io::Result<()> {
    let len = size_of::<T>() as libc::socklen_t;
    // SAFETY: the pointer and length describe `value`, which lives through the call.
    checked(unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, std::ptr::from_ref(value).cast(), len) }.into())
        .map(|_| ())
}

/// Reads an option of a fixed size. `T` must be valid whatever its bytes.
///
/// # Safety
/// `T` is made of numbers.
unsafe fn get<T>(fd: &OwnedFd, level: i32, name: i32) -> io::Result<T> {
    let mut value = std::mem::MaybeUninit::<T>::zeroed();
    let mut len = size_of::<T>() as libc::socklen_t;
    // SAFETY: the pointers describe `value` and `len`, which live through the call.
    let r = unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, value.as_mut_ptr().cast(), &raw mut len) };
    checked(r.into())?;
    if len as usize != size_of::<T>() {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "an option has another size in this kernel"));
    }
    // SAFETY: zeroed before, and of numbers, as the caller promises.
    Ok(unsafe { value.assume_init() })
}

/// Registers memory, in frames of `frame_bytes`, for the frames of a socket. The kernel pins the
/// pages; the mapping may end afterwards.
pub fn register(xsk: &OwnedFd, memory: &Mapping, frame_bytes: u32) -> io::Result<()> {
    let reg = libc::xdp_umem_reg {
        addr: memory.start().as_ptr() as usize as u64,
        len: memory.len() as u64,
        chunk_size: frame_bytes,
        headroom: 0,
        flags: 0,
        tx_metadata_len: 0,
    };
    set(xsk, libc::SOL_XDP, libc::XDP_UMEM_REG, &reg)
}

/// Makes one of the four rings (`XDP_RX_RING` and so on), a power of two of entries.
pub fn make_ring(xsk: &OwnedFd, which: i32, entries: u32) -> io::Result<()> {
    set(xsk, libc::SOL_XDP, which, &entries)
}

/// Where producer, consumer, flags and entries of the rings lie in their mappings.
pub fn offsets(xsk: &OwnedFd) -> io::Result<libc::xdp_mmap_offsets> {
    // SAFETY: a structure of numbers.
    unsafe { get(xsk, libc::SOL_XDP, libc::XDP_MMAP_OFFSETS) }
}

/// Whether the socket is bound in zero-copy mode.
pub fn is_zero_copy(xsk: &OwnedFd) -> bool {
    // SAFETY: a structure of one number.
    let options = unsafe { get::<libc::xdp_options>(xsk, libc::SOL_XDP, libc::XDP_OPTIONS) };
    options.is_ok_and(|o| o.flags & libc::XDP_OPTIONS_ZEROCOPY != 0)
}

/// Frames that the kernel dropped at this socket: no room in the ring, no frame to fill, or too
/// long.
pub fn dropped(xsk: &OwnedFd) -> u64 {
    // SAFETY: a structure of numbers.
    let s = unsafe { get::<libc::xdp_statistics>(xsk, libc::SOL_XDP, libc::XDP_STATISTICS) };
    s.map_or(0, |s| s.rx_dropped + s.rx_ring_full + s.rx_fill_ring_empty_descs)
}

/// Binds an AF_XDP socket to a queue of an interface, `flags` being `XDP_COPY` and the like.
pub fn bind(xsk: &OwnedFd, interface: u32, queue: u32, flags: u16) -> io::Result<()> {
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: flags,
        sxdp_ifindex: interface,
        sxdp_queue_id: queue,
        sxdp_shared_umem_fd: 0,
    };
    let len = size_of_val(&address) as libc::socklen_t;
    // SAFETY: the pointer and length describe `address`, which lives through the call.
    checked(unsafe { libc::bind(xsk.as_raw_fd(), (&raw const address).cast(), len) }.into()).map(|_| ())
}

/// Has the kernel send what is in the send ring.
#[inline]
pub fn kick(xsk: RawFd) -> Result<(), i32> {
    // SAFETY: nothing is pointed to.
    let r = unsafe { libc::sendto(xsk, std::ptr::null(), 0, libc::MSG_DONTWAIT, std::ptr::null(), 0) };
    if r < 0 { Err(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)) } else { Ok(()) }
}

/// Has the driver look at the fill ring.
pub fn kick_fill(xsk: RawFd) {
    let mut entry = libc::pollfd { fd: xsk, events: libc::POLLIN, revents: 0 };
    // SAFETY: one live entry, and no waiting.
    unsafe { libc::poll(&raw mut entry, 1, 0) };
}

// ---- other sockets ----

/// asm-generic/socket.h.
const SO_PEERGROUPS: i32 = 59;
const SO_BINDTOIFINDEX: i32 = 62;

/// The number of the network namespace of a socket, unique while the system runs.
pub fn namespace_of(fd: &OwnedFd) -> io::Result<u64> {
    // SAFETY: a number.
    unsafe { get(fd, libc::SOL_SOCKET, libc::SO_NETNS_COOKIE) }
}

/// Type and protocol of a socket (`SOCK_DGRAM`, `IPPROTO_UDP`).
pub fn kind_of(fd: &OwnedFd) -> io::Result<(i32, i32)> {
    // SAFETY: numbers.
    unsafe { Ok((get(fd, libc::SOL_SOCKET, libc::SO_TYPE)?, get(fd, libc::SOL_SOCKET, libc::SO_PROTOCOL)?)) }
}

/// The interface that a socket is bound to, of whatever address; 0: none.
pub fn bound_device(fd: &OwnedFd) -> io::Result<u32> {
    // SAFETY: a number.
    let index: i32 = unsafe { get(fd, libc::SOL_SOCKET, SO_BINDTOIFINDEX) }?;
    Ok(index.cast_unsigned())
}

/// Descriptors that a message carries at the most (`SCM_MAX_FD`).
const DESCRIPTORS_MAX: usize = 253;
// SAFETY: no pointer.
const CONTROL_BYTES: usize = unsafe { libc::CMSG_SPACE((DESCRIPTORS_MAX * size_of::<RawFd>()) as u32) } as usize;

/// Receives a message, and all descriptors that came with it: none stays open that nobody knows.
pub fn recv_with(fd: &OwnedFd, bytes: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut control = [0u64; CONTROL_BYTES.div_ceil(8)];
    let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: a structure of numbers and pointers, null here.
    let mut head: libc::msghdr = unsafe { std::mem::zeroed() };
    head.msg_iov = &raw mut part;
    head.msg_iovlen = 1;
    head.msg_control = control.as_mut_ptr().cast();
    head.msg_controllen = size_of_val(&control) as _;
    // SAFETY: the pointers lead to live memory of the lengths that are said.
    let n = checked(unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut head, libc::MSG_CMSG_CLOEXEC) } as i64)?;
    let mut with = Vec::new();
    // SAFETY: the kernel has filled `control` and said how far.
    let mut at = unsafe { libc::CMSG_FIRSTHDR(&raw const head) };
    while !at.is_null() {
        // SAFETY: a header within `control`, which is aligned for it.
        let c = unsafe { &*at };
        if (c.cmsg_level, c.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
            // SAFETY: arithmetic on numbers, and an address within `control`.
            let (own, data) = unsafe { (libc::CMSG_LEN(0) as usize, libc::CMSG_DATA(at).cast::<RawFd>()) };
            for i in 0..(c.cmsg_len as usize - own) / size_of::<RawFd>() {
                // SAFETY: so many descriptors are there, which the kernel just made for us and
                // nobody else knows.
                with.push(unsafe { OwnedFd::from_raw_fd(data.add(i).read_unaligned()) });
            }
        }
        // SAFETY: as above.
        at = unsafe { libc::CMSG_NXTHDR(&raw const head, at) };
    }
    Ok((n as usize, with))
}

/// The groups of the process at the other end of a Unix connection, as it was when it connected,
/// beside its main one.
pub fn peer_groups(fd: &OwnedFd) -> io::Result<Vec<u32>> {
    let mut groups = vec![0u32; 64];
    loop {
        let mut len = (groups.len() * 4) as libc::socklen_t;
        let to = groups.as_mut_ptr().cast();
        // SAFETY: the pointers describe `groups` and `len`, which live through the call.
        let r = unsafe { libc::getsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, SO_PEERGROUPS, to, &raw mut len) };
        let has = len as usize / 4;
        match checked(r.into()) {
            Ok(_) => {
                groups.truncate(has);
                return Ok(groups);
            }
            // There are more: as many as it says now.
            Err(e) if e.raw_os_error() == Some(libc::ERANGE) && has > groups.len() => groups.resize(has, 0),
            Err(e) => return Err(e),
        }
    }
}

/// A netlink socket for routes, links and neighbours that does not block, member of `groups` (a bit
/// each, linux/rtnetlink.h).
pub fn netlink(groups: u32) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: no pointer.
    let fd = owned(i64::from(unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_ROUTE) }))?;
    // SAFETY: a structure of numbers.
    let mut address: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
    address.nl_family = libc::AF_NETLINK as u16;
    address.nl_groups = groups;
    let len = size_of_val(&address) as libc::socklen_t;
    // SAFETY: the pointer and length describe `address`, which lives through the call.
    checked(unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), len) }.into())?;
    Ok(fd)
}

/// Sends bytes on a connected (or netlink) socket.
pub fn send(fd: &OwnedFd, bytes: &[u8]) -> io::Result<()> {
    // SAFETY: a live slice of the length given.
    checked(unsafe { libc::send(fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL) } as i64)
        .map(|_| ())
}

/// Reads what is there, without waiting.
pub fn recv(fd: &OwnedFd, bytes: &mut [u8]) -> io::Result<usize> {
    // SAFETY: a live slice of the length given.
    let n = unsafe { libc::recv(fd.as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len(), libc::MSG_DONTWAIT) };
    checked(n as i64).map(|n| n as usize)
}

/// Makes `number`, an open descriptor, another name of `fd`: what it named before is let go of.
pub fn rename(fd: &OwnedFd, number: &OwnedFd) -> io::Result<()> {
    // SAFETY: both are open descriptors; the number stays its owner's.
    checked(unsafe { libc::dup3(fd.as_raw_fd(), number.as_raw_fd(), libc::O_CLOEXEC) }.into()).map(|_| ())
}

/// A descriptor that is never readable.
pub fn silent() -> io::Result<OwnedFd> {
    // SAFETY: no pointer.
    owned(i64::from(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) }))
}

// ---- memory ----

/// Memory without a name, of so many bytes, whose size nobody can change any more.
pub fn memory(bytes: usize) -> io::Result<OwnedFd> {
    // SAFETY: a valid name.
    let fd = unsafe { libc::memfd_create(c"weir-xdp".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
    let fd = owned(i64::from(fd))?;
    // SAFETY: no pointers.
    checked(unsafe { libc::ftruncate(fd.as_raw_fd(), bytes as libc::off_t) }.into())?;
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: no pointers.
    checked(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, seals) }.into())?;
    Ok(fd)
}

/// Bytes of a file.
pub fn file_bytes(fd: &OwnedFd) -> io::Result<u64> {
    // SAFETY: a structure of numbers, to be filled.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer leads to it.
    checked(unsafe { libc::fstat(fd.as_raw_fd(), &raw mut stat) }.into())?;
    Ok(stat.st_size as u64)
}

/// Mapped memory, shared with whoever else has it mapped.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: memory that belongs to no thread; who reads and writes it is the owner's affair.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps `len` bytes of a descriptor from `offset` on, for reading and writing.
    pub fn new(fd: &OwnedFd, offset: libc::off_t, len: usize) -> io::Result<Mapping> {
        Mapping::with(fd, offset, len, libc::PROT_READ | libc::PROT_WRITE)
    }

    /// The same for reading: nothing may be written there.
    pub fn to_read(fd: &OwnedFd, offset: libc::off_t, len: usize) -> io::Result<Mapping> {
        Mapping::with(fd, offset, len, libc::PROT_READ)
    }

    fn with(fd: &OwnedFd, offset: libc::off_t, len: usize, protection: i32) -> io::Result<Mapping> {
        let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
        // SAFETY: a new mapping, wherever the kernel has room.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, fd.as_raw_fd(), offset) };
        if at == libc::MAP_FAILED {
            return last();
        }
        // A child made by fork would share rings that have one owner.
        // SAFETY: the mapping just made.
        unsafe { libc::madvise(at, len, libc::MADV_DONTFORK) };
        let start = NonNull::new(at.cast()).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        Ok(Mapping { start, len })
    }

    /// Where it begins.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Its bytes.
    pub fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: our mapping, to which nothing leads any more: whoever points into it owns it.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}
