//! An AF_XDP socket with its frames: made and bound by whoever may, used by whoever has it.
//!
//! The first frames are for receiving, the others for sending. A frame is always in one place: in
//! the kernel's hands (fill, send ring), on its way back (receive, completion ring), or here.

use crate::ring::{Broken, Reader, Writer};
use crate::sys::{self, Mapping};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// Bytes of a frame: the least that the kernel takes, and enough for an Ethernet frame of 1514
/// bytes behind the kernel's headroom of 256.
pub const FRAME_BYTES: u32 = 2048;
/// Frames for receiving and for sending (spec/xdp.md 8).
pub const RX_FRAMES: u32 = 1024;
pub const TX_FRAMES: u32 = 256;
/// Most frames of either kind that are believed.
const FRAMES_MAX: u32 = 1 << 16;

/// How a socket's memory is divided, and where it is bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Index of the interface.
    pub interface: u32,
    /// Queue of the interface.
    pub queue: u32,
    /// Frames for receiving, a power of two.
    pub rx_frames: u32,
    /// Frames for sending, a power of two.
    pub tx_frames: u32,
    /// Bytes of a frame.
    pub frame_bytes: u32,
    /// The program is in the driver.
    pub native: bool,
    /// Frames are the network card's, without a copy.
    pub zero_copy: bool,
    /// It is no AF_XDP socket but a ring buffer, at the place `queue`, that the program fills;
    /// nothing is sent by it, and it has no frames.
    pub ring: bool,
    /// Longest datagram that is steered here, bytes.
    pub most: u16,
}

impl Layout {
    fn bytes(&self) -> Option<usize> {
        let is_good = |n: u32| n.is_power_of_two() && n <= FRAMES_MAX;
        let good = is_good(self.rx_frames) && is_good(self.tx_frames) && self.frame_bytes == FRAME_BYTES;
        good.then(|| (self.rx_frames + self.tx_frames) as usize * self.frame_bytes as usize)
    }
}

/// What is handed over: a socket, bound, and its memory; or a ring buffer and its bell.
#[derive(Debug)]
pub struct Bound {
    /// The AF_XDP socket, or the ring buffer.
    pub socket: OwnedFd,
    /// The socket's frames, a memfd; or the ring buffer's bell.
    pub memory: OwnedFd,
    /// How that is divided.
    pub layout: Layout,
}

impl Bound {
    /// Makes a socket with memory and rings, and binds it. Needs CAP_NET_RAW, and room for locked
    /// memory.
    ///
    /// # Errors
    /// The kernel's: EBUSY where the queue has a socket, EINVAL where there is no such queue.
    pub fn new(interface: u32, queue: u32, native: bool, most: u16) -> io::Result<Bound> {
        let mut layout = Layout {
            interface,
            queue,
            rx_frames: RX_FRAMES,
            tx_frames: TX_FRAMES,
            frame_bytes: FRAME_BYTES,
            native,
            zero_copy: false,
            ring: false,
            most,
        };
        let bytes = layout.bytes().ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
        let socket = sys::xsk()?;
        let memory = sys::memory(bytes)?;
        sys::register(&socket, &Mapping::new(&memory, 0, bytes)?, FRAME_BYTES)?;
        for (ring, entries) in [
            (libc::XDP_UMEM_FILL_RING, RX_FRAMES),
            (libc::XDP_UMEM_COMPLETION_RING, TX_FRAMES),
            (libc::XDP_RX_RING, RX_FRAMES),
            (libc::XDP_TX_RING, TX_FRAMES),
        ] {
            sys::make_ring(&socket, ring, entries)?;
        }
        // In generic mode frames are copied, whatever is asked for; in native mode the kernel
        // chooses.
        let mode = if native { 0 } else { libc::XDP_COPY };
        sys::bind(&socket, interface, queue, mode | libc::XDP_USE_NEED_WAKEUP)?;
        layout.zero_copy = sys::is_zero_copy(&socket);
        Ok(Bound { socket, memory, layout })
    }
}

/// A frame for sending that is free: where it begins in the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame(u64);

/// A bound socket in use.
pub struct Xsk {
    memory: Mapping,
    fill: Writer<u64>,
    completion: Reader<u64>,
    rx: Reader<libc::xdp_desc>,
    tx: Writer<libc::xdp_desc>,
    /// Frames for sending that are here.
    free: Vec<Frame>,
    layout: Layout,
    /// Last: its number lives longest.
    socket: OwnedFd,
}

impl Xsk {
    /// Takes a socket into use, all its frames for receiving handed to the kernel.
    ///
    /// # Errors
    /// It is not what its layout says, or the system has no memory.
    pub fn open(bound: Bound) -> io::Result<Xsk> {
        let Bound { socket, memory, layout } = bound;
        let wrong = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
        let bytes = layout.bytes().ok_or_else(|| wrong("impossible numbers of frames"))?;
        if sys::file_bytes(&memory)? < bytes as u64 {
            return Err(wrong("the memory is smaller than its frames"));
        }
        let at = sys::offsets(&socket)?;
        let (rx_frames, tx_frames) = (layout.rx_frames, layout.tx_frames);
        let fill_page = libc::XDP_UMEM_PGOFF_FILL_RING as libc::off_t;
        let completion_page = libc::XDP_UMEM_PGOFF_COMPLETION_RING as libc::off_t;
        let mut xsk = Xsk {
            memory: Mapping::new(&memory, 0, bytes)?,
            fill: Writer::new(&socket, fill_page, &at.fr, rx_frames)?,
            completion: Reader::new(&socket, completion_page, &at.cr, tx_frames)?,
            rx: Reader::new(&socket, libc::XDP_PGOFF_RX_RING, &at.rx, rx_frames)?,
            tx: Writer::new(&socket, libc::XDP_PGOFF_TX_RING, &at.tx, tx_frames)?,
            free: (0..tx_frames).map(|n| Frame(u64::from(rx_frames + n) * u64::from(FRAME_BYTES))).collect(),
            layout,
            socket,
        };
        for n in 0..rx_frames {
            if !xsk.fill.has_room() {
                return Err(wrong("its rings are in use"));
            }
            xsk.fill.write(u64::from(n) * u64::from(FRAME_BYTES));
        }
        xsk.fill.publish();
        Ok(xsk)
    }

    /// How it is laid out, and where it is bound.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Its descriptor, readable when something has arrived.
    pub fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// Frames that the kernel dropped here.
    pub fn dropped(&self) -> u64 {
        sys::dropped(&self.socket)
    }

    /// Frames that wait to be read.
    ///
    /// # Errors
    /// The ring is broken.
    #[inline]
    pub fn waiting(&self) -> Result<u32, Broken> {
        self.rx.available()
    }

    /// Reads the next `count` frames, of which [`Xsk::waiting`] told, and gives them back to the
    /// kernel.
    #[inline]
    pub fn receive(&mut self, count: u32, mut frame: impl FnMut(&mut [u8])) {
        let mut filled = false;
        for _ in 0..count {
            let got = self.rx.read();
            let begin = got.addr as usize;
            let end = begin.saturating_add(got.len as usize);
            // A frame lies in one of those for receiving; anything else would be the kernel's
            // error.
            let own = got.addr / u64::from(FRAME_BYTES);
            if own < u64::from(self.layout.rx_frames) && end <= (own as usize + 1) * FRAME_BYTES as usize {
                // SAFETY: within the mapping, in a frame that the kernel has given away until it is
                // filled in again below.
                let bytes =
                    unsafe { std::slice::from_raw_parts_mut(self.memory.start().as_ptr().add(begin), end - begin) };
                frame(bytes);
                if self.fill.has_room() {
                    self.fill.write(own * u64::from(FRAME_BYTES));
                    filled = true;
                }
            }
        }
        self.rx.release();
        if filled {
            self.fill.publish();
            if self.layout.zero_copy && self.fill.needs_wakeup() {
                sys::kick_fill(self.socket.as_raw_fd());
            }
        }
    }

    /// A free frame for sending, if there is one and the ring has room for it.
    ///
    /// # Errors
    /// The ring is broken.
    #[inline]
    pub fn take_free(&mut self) -> Result<Option<Frame>, Broken> {
        if self.free.is_empty() {
            self.reclaim()?;
        }
        Ok(if self.tx.has_room() { self.free.pop() } else { None })
    }

    /// Takes back the frames that were sent.
    fn reclaim(&mut self) -> Result<(), Broken> {
        let n = self.completion.available()?;
        let first = u64::from(self.layout.rx_frames);
        for _ in 0..n {
            let frame = self.completion.read() / u64::from(FRAME_BYTES);
            let is_for_sending = frame >= first && frame < first + u64::from(self.layout.tx_frames);
            if !is_for_sending || self.free.len() as u32 >= self.layout.tx_frames {
                return Err(Broken);
            }
            self.free.push(Frame(frame * u64::from(FRAME_BYTES)));
        }
        self.completion.release();
        Ok(())
    }

    /// The bytes of a frame for sending.
    #[inline]
    pub fn bytes(&mut self, frame: Frame) -> &mut [u8] {
        // SAFETY: a frame of the mapping, for sending, that is here (taken, and neither sent nor
        // put back).
        unsafe {
            std::slice::from_raw_parts_mut(self.memory.start().as_ptr().add(frame.0 as usize), FRAME_BYTES as usize)
        }
    }

    /// Puts back a frame that is not sent after all.
    pub fn put_back(&mut self, frame: Frame) {
        self.free.push(frame);
    }

    /// Puts a frame that [`Xsk::take_free`] gave into the send ring, `len` bytes of it;
    /// [`Xsk::kick`] sends it. (The ring has as many places as there are such frames: there is
    /// room.)
    #[inline]
    pub fn send(&mut self, frame: Frame, len: usize) {
        if self.tx.has_room() {
            self.tx.write(libc::xdp_desc { addr: frame.0, len: len as u32, options: 0 });
        } else {
            self.free.push(frame);
        }
    }

    /// Whether something that was to be sent is still in the ring.
    pub fn is_sending(&mut self) -> bool {
        self.tx.waiting() > 0
    }

    /// Has the kernel send what is in the ring.
    ///
    /// # Errors
    /// Its error: ENETDOWN, ENXIO (no longer bound) and the like. What it has no room for (EBUSY,
    /// ENOBUFS) stays in the ring until the next call.
    #[inline]
    pub fn kick(&mut self) -> Result<(), i32> {
        self.tx.publish();
        if !self.tx.needs_wakeup() {
            return Ok(());
        }
        // A call takes 32 frames at the most (TX_BATCH_SIZE in net/xdp/xsk.c).
        for _ in 0..=self.layout.tx_frames / 32 {
            match sys::kick(self.socket.as_raw_fd()) {
                Ok(()) if self.tx.waiting() == 0 => break,
                Ok(()) | Err(libc::EINTR | libc::EAGAIN) => {}
                Err(libc::EBUSY | libc::ENOBUFS) => break,
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Ends its use. The number of its descriptor stays open, as one that is never readable, for
    /// whoever waits for it.
    ///
    /// # Errors
    /// Out of descriptors: then the socket lives on, unread.
    pub fn end(self) -> io::Result<OwnedFd> {
        let Xsk { socket, .. } = self;
        sys::rename(&sys::silent()?, &socket)?;
        Ok(socket)
    }
}
