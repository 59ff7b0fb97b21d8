//! Receiving: one TPACKET_V2 ring in shared memory for all interfaces of a namespace.
//!
//! Version 2 rather than 3 because its frames become readable one by one; version 3 hands over
//! whole blocks, and a block that is not full only after a timeout of at least a millisecond.

use super::{link_address, packet_socket, set_option};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

const BLOCK_BYTES: usize = 128 * 1024;
const PACKET_IGNORE_OUTGOING: libc::c_int = 23;

/// A received packet, borrowed from the ring.
#[derive(Debug)]
pub struct Frame<'a> {
    /// The packet from its Ethernet header on; shorter than `len` if it did not fit into the ring's
    /// frames.
    pub data: &'a [u8],
    /// The packet's own length.
    pub len: u32,
    /// The interface it came from.
    pub interface: i32,
    /// When the kernel received it, in nanoseconds of CLOCK_REALTIME.
    pub realtime_ns: u64,
}

/// A ring of received packets.
#[derive(Debug)]
pub struct RxRing {
    socket: OwnedFd,
    memory: NonNull<u8>,
    memory_bytes: usize,
    frame_bytes: usize,
    frames_per_block: usize,
    frames: usize,
    next: usize,
    lost: u64,
}

// SAFETY: the mapping belongs to this value alone and may be used from whichever thread owns it.
unsafe impl Send for RxRing {}

impl RxRing {
    /// Opens a ring on all interfaces of the calling thread's network namespace for packets of up
    /// to `packet_bytes`, with about `memory_bytes` of room. Packets that the namespace itself
    /// sends are not seen.
    pub fn open(packet_bytes: usize, memory_bytes: usize) -> io::Result<Self> {
        let socket = packet_socket()?;
        set_option(socket.as_fd(), libc::PACKET_VERSION, libc::tpacket_versions::TPACKET_V2 as libc::c_int)?;
        set_option(socket.as_fd(), PACKET_IGNORE_OUTGOING, 1)?;
        // Header, address and alignment take less than 128 bytes before the packet.
        let frame_bytes = (packet_bytes + 128).next_multiple_of(256);
        let frames_per_block = BLOCK_BYTES / frame_bytes;
        if frames_per_block == 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let blocks = (memory_bytes / BLOCK_BYTES).max(1);
        let request = libc::tpacket_req {
            tp_block_size: BLOCK_BYTES as u32,
            tp_block_nr: blocks as u32,
            tp_frame_size: frame_bytes as u32,
            tp_frame_nr: (blocks * frames_per_block) as u32,
        };
        // SAFETY: the pointer and the length describe a live tpacket_req.
        let result = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_RX_RING,
                (&raw const request).cast(),
                size_of::<libc::tpacket_req>() as libc::socklen_t,
            )
        };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        let memory = map(&socket, blocks * BLOCK_BYTES)?;
        let ring = RxRing {
            socket,
            memory,
            memory_bytes: blocks * BLOCK_BYTES,
            frame_bytes,
            frames_per_block,
            frames: blocks * frames_per_block,
            next: 0,
            lost: 0,
        };
        ring.bind()?;
        Ok(ring)
    }

    fn bind(&self) -> io::Result<()> {
        let address = link_address(0, libc::ETH_P_ALL as u16);
        // SAFETY: the pointer and the length describe a live sockaddr_ll.
        let result = unsafe {
            libc::bind(
                self.socket.as_raw_fd(),
                (&raw const address).cast(),
                size_of::<libc::sockaddr_ll>() as libc::socklen_t,
            )
        };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    fn header(&self, index: usize) -> NonNull<libc::tpacket2_hdr> {
        let offset = (index / self.frames_per_block) * BLOCK_BYTES + (index % self.frames_per_block) * self.frame_bytes;
        // SAFETY: index < frames, so the whole frame lies inside the mapping; frames are aligned to
        // 256 bytes.
        unsafe { self.memory.add(offset).cast() }
    }

    fn status(&self, index: usize) -> &AtomicU32 {
        let header = self.header(index);
        // SAFETY: the status word is 4-byte aligned, inside the mapping, and shared with the
        // kernel, which like us reads and writes it as one word; the mapping lives as long as self.
        unsafe { AtomicU32::from_ptr(&raw mut (*header.as_ptr()).tp_status) }
    }

    /// True if a packet waits.
    pub fn ready(&self) -> bool {
        self.status(self.next).load(Ordering::Acquire) & libc::TP_STATUS_USER != 0
    }

    /// Shows the next packet, if one waits, and gives its frame back to the kernel.
    pub fn take<R>(&mut self, look: impl FnOnce(Frame<'_>) -> R) -> Option<R> {
        if !self.ready() {
            return None;
        }
        let header = self.header(self.next);
        // SAFETY: the status says that the kernel has finished the frame and leaves it alone until
        // we change the status.
        let head = unsafe { header.as_ref() };
        let at = usize::from(head.tp_mac);
        let shown = (head.tp_snaplen as usize).min(self.frame_bytes.saturating_sub(at));
        let at = at.min(self.frame_bytes);
        let address_at = size_of::<libc::tpacket2_hdr>().next_multiple_of(16);
        // SAFETY: at + shown <= frame_bytes, and the kernel puts a sockaddr_ll behind the aligned
        // header of each frame; both lie inside the frame, which nobody writes while the status is
        // ours.
        let (data, interface) = unsafe {
            let start = header.cast::<u8>();
            let address = start.add(address_at).cast::<libc::sockaddr_ll>();
            (std::slice::from_raw_parts(start.add(at).as_ptr(), shown), address.as_ref().sll_ifindex)
        };
        let frame = Frame {
            data,
            len: head.tp_len,
            interface,
            realtime_ns: u64::from(head.tp_sec) * 1_000_000_000 + u64::from(head.tp_nsec),
        };
        let result = look(frame);
        self.status(self.next).store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.next = (self.next + 1) % self.frames;
        Some(result)
    }

    /// Packets that the kernel had to throw away so far because the ring was full.
    pub fn lost(&mut self) -> u64 {
        // SAFETY: tpacket_stats is plain old data for which all-zero is a valid value.
        let mut stats: libc::tpacket_stats = unsafe { std::mem::zeroed() };
        let mut length = size_of::<libc::tpacket_stats>() as libc::socklen_t;
        // SAFETY: the pointers describe a live tpacket_stats and its length.
        let result = unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut stats).cast(),
                &raw mut length,
            )
        };
        if result == 0 {
            self.lost += u64::from(stats.tp_drops); // reading resets the kernel's count
        }
        self.lost
    }
}

impl AsFd for RxRing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for RxRing {
    fn drop(&mut self) {
        // SAFETY: this is the mapping made in open, unmapped once.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), self.memory_bytes) };
    }
}

fn map(socket: &OwnedFd, bytes: usize) -> io::Result<NonNull<u8>> {
    // SAFETY: a new mapping at an address that the kernel chooses; nothing existing is touched.
    let address = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_POPULATE,
            socket.as_raw_fd(),
            0,
        )
    };
    if address == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(address.cast()).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}
