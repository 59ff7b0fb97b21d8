//! The XDP program and its two tables (spec/xdp.md 2).

use crate::code::{Alu, Code, If, R0, R1, R2, R3, R4, R6, R7, R8, STACK, Width};
use crate::sys;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};

/// Entries of the steering table: each of `RANKS` at the most addresses of an interface.
const STEERED_MAX: u32 = 4096;
/// Queues whose sockets can be steered to: more than any rank-to-queue layout needs, 8 bytes each.
pub const QUEUES_MAX: u32 = 256;

/// `bpf_map_lookup_elem` and `bpf_redirect_map` (bpf-helpers(7)).
const LOOKUP: i32 = 1;
const REDIRECT_MAP: i32 = 51;
/// What a program returns to let a frame go on (linux/bpf.h).
const PASS: i32 = 2;

/// A key of the steering table: address (IPv4 mapped), port as on the wire, zeros.
pub type Key = [u8; 20];
/// An entry: queue, most bytes of a UDP length.
pub type Entry = [u8; 8];

/// The key of an address and port.
#[must_use]
pub fn key(of: SocketAddr) -> Key {
    let ip = match of.ip() {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    let mut key = [0; 20];
    key[..16].copy_from_slice(&ip.octets());
    key[16..18].copy_from_slice(&of.port().to_be_bytes());
    key
}

/// A 16-bit number as a register holds it that was loaded from the wire.
fn wire(number: u16) -> i32 {
    i32::from(u16::from_ne_bytes(number.to_be_bytes()))
}

/// Offsets in a frame behind the Ethernet header of 14 bytes.
const ETHER: i16 = 14;
const V4: i16 = ETHER + 20;
const V6: i16 = ETHER + 40;

/// The program's instructions, for tables of these descriptors.
fn instructions(steering: i32, sockets: i32) -> Option<Vec<u64>> {
    use Width::{U8, U16, U32, U64};
    // Where the key is built.
    const KEY: i16 = -24;
    let mut c = Code::default();
    let ends_before = |c: &mut Code, bytes: i16| {
        c.register(Alu::Move, R2, R7).number(Alu::Add, R2, i32::from(bytes));
        c.jump_if_registers(If::Greater, R2, R8, "pass");
    };
    // struct xdp_md: data, data_end, data_meta, ingress_ifindex, rx_queue_index.
    c.register(Alu::Move, R6, R1).load(U32, R7, R6, 0).load(U32, R8, R6, 4);
    ends_before(&mut c, V4 + 8);
    c.load(U16, R3, R7, 12);
    c.jump_if(If::Equal, R3, wire(0x86dd), "six").jump_if(If::NotEqual, R3, wire(0x0800), "pass");

    // IPv4: version and header length, UDP, neither "more fragments" nor an offset.
    c.load(U8, R3, R7, ETHER).jump_if(If::NotEqual, R3, 0x45, "pass");
    c.load(U8, R3, R7, ETHER + 9).jump_if(If::NotEqual, R3, libc::IPPROTO_UDP, "pass");
    c.load(U16, R3, R7, ETHER + 6).number(Alu::And, R3, wire(0x3fff)).jump_if(If::NotEqual, R3, 0, "pass");
    c.store_number(U64, STACK, KEY, 0);
    c.store_number(U32, STACK, KEY + 8, i32::from_ne_bytes([0, 0, 0xff, 0xff]));
    c.load(U32, R3, R7, ETHER + 16).store(U32, STACK, KEY + 12, R3);
    c.load(U16, R3, R7, V4 + 2).load(U16, R4, R7, V4 + 4).jump("look");

    // IPv6: version, UDP at once.
    c.label("six");
    ends_before(&mut c, V6 + 8);
    c.load(U8, R3, R7, ETHER).number(Alu::Right, R3, 4).jump_if(If::NotEqual, R3, 6, "pass");
    c.load(U8, R3, R7, ETHER + 6).jump_if(If::NotEqual, R3, libc::IPPROTO_UDP, "pass");
    for word in 0..4 {
        c.load(U32, R3, R7, ETHER + 24 + 4 * word).store(U32, STACK, KEY + 4 * word, R3);
    }
    c.load(U16, R3, R7, V6 + 2).load(U16, R4, R7, V6 + 4);

    // The port stands in the low half of the register as it lies on the wire, and so on the stack.
    c.label("look").store_number(U32, STACK, KEY + 16, 0).store(U16, STACK, KEY + 16, R3);
    c.swap_from_wire_16(R4).register(Alu::Move, R7, R4);
    c.map(R1, steering).register(Alu::Move, R2, STACK).number(Alu::Add, R2, i32::from(KEY)).call(LOOKUP);
    c.jump_if(If::Equal, R0, 0, "pass");
    // Not too long, and of the queue of the socket.
    c.load(U32, R3, R0, 4).jump_if_registers(If::Greater, R7, R3, "pass");
    c.load(U32, R2, R0, 0).load(U32, R3, R6, 16).jump_if_registers(If::NotEqual, R2, R3, "pass");
    c.map(R1, sockets).number(Alu::Move, R3, PASS).call(REDIRECT_MAP).exit();
    c.label("pass").number(Alu::Move, R0, PASS).exit();
    c.finish()
}

/// The loaded program with its tables, attached to nothing yet. Dropped, the kernel frees all that no link holds.
#[derive(Debug)]
pub struct Program {
    steering: OwnedFd,
    sockets: OwnedFd,
    program: OwnedFd,
}

impl Program {
    /// Makes the tables and loads the program; `frags`: it may be given frames in several pieces.
    ///
    /// # Errors
    /// The kernel's: no permission, no such maps, what its verifier says.
    pub fn load(frags: bool) -> io::Result<Program> {
        let steering =
            sys::map(sys::MAP_TYPE_HASH, size_of::<Key>(), size_of::<Entry>(), STEERED_MAX, "weir_steering")?;
        let sockets = sys::map(sys::MAP_TYPE_XSKMAP, 4, 4, QUEUES_MAX, "weir_sockets")?;
        let code = instructions(steering.as_raw_fd(), sockets.as_raw_fd())
            .ok_or_else(|| io::Error::other("the program has a jump to nowhere"))?;
        let program = sys::load(&code, if frags { sys::PROG_HAS_FRAGS } else { 0 }, "weir_xdp")?;
        Ok(Program { steering, sockets, program })
    }

    /// Frames for this address and port go to the socket of `queue` if they come there and their UDP payload has at most `most` bytes.
    ///
    /// # Errors
    /// The table is full.
    pub fn steer(&self, to: SocketAddr, queue: u32, most: u16) -> io::Result<()> {
        let mut entry: Entry = [0; 8];
        entry[..4].copy_from_slice(&queue.to_ne_bytes());
        entry[4..].copy_from_slice(&(u32::from(most) + 8).to_ne_bytes());
        sys::map_set(&self.steering, &key(to), &entry)
    }

    /// Frames for this address and port pass from now on.
    pub fn steer_no_more(&self, to: SocketAddr) {
        let _ = sys::map_remove(&self.steering, &key(to));
    }

    /// The socket of a queue.
    ///
    /// # Errors
    /// Not an AF_XDP socket, or more queues than are thought of.
    pub fn set_socket(&self, queue: u32, xsk: &OwnedFd) -> io::Result<()> {
        sys::map_set(&self.sockets, &queue.to_ne_bytes(), &xsk.as_raw_fd().to_ne_bytes())
    }

    /// Runs the program on a frame: what it returns, and how long one of `repeat` runs took, nanoseconds.
    ///
    /// # Errors
    /// The kernel's.
    pub fn try_on(&self, frame: &[u8], repeat: u32) -> io::Result<(u32, u32)> {
        sys::test_run(&self.program, frame, repeat)
    }

    /// Attaches it for as long as what is returned lives, `native`: in the driver.
    ///
    /// # Errors
    /// The kernel's: another program is there (EBUSY, EEXIST), the driver cannot (EOPNOTSUPP).
    pub fn attach(&self, interface: u32, native: bool) -> io::Result<OwnedFd> {
        sys::attach(&self.program, interface, if native { sys::NATIVE } else { sys::GENERIC })
    }
}
