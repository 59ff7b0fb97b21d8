//! The two programs and their tables (spec/xdp.md 2): one hands frames to AF_XDP sockets, the other
//! copies them into ring buffers.

use crate::code::{Alu, Code, If, R0, R1, R2, R3, R4, R6, R7, R8, R9, STACK, Width};
use crate::sys::{self, Hook};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};

/// Entries of the steering table: each of `RANKS` at the most addresses of an interface.
const STEERED_MAX: u32 = 4096;
/// Queues whose sockets can be steered to: more than any rank-to-queue layout needs, 8 bytes each.
pub const QUEUES_MAX: u32 = 256;

/// Functions of the kernel for programs (bpf-helpers(7)): `map_lookup_elem`, `skb_load_bytes`,
/// `redirect_map`, `ringbuf_reserve`, `_submit`, `_discard`.
pub const LOOKUP: i32 = 1;
const LOAD_BYTES: i32 = 26;
const REDIRECT_MAP: i32 = 51;
const RING_RESERVE: i32 = 131;
const RING_SUBMIT: i32 = 132;
const RING_DISCARD: i32 = 133;
/// Flags of the last two.
const NO_WAKEUP: i32 = 1;
const FORCE_WAKEUP: i32 = 2;
/// What a program returns to let a frame go on, and where it has been taken (linux/bpf.h).
const XDP_PASS: i32 = 2;
pub const TCX_NEXT: i32 = -1;
pub const TCX_DROP: i32 = 2;

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

/// Where the key is built on the stack, and below it the number of a place.
const KEY: i16 = -24;
const PLACE: i16 = -32;
const ZERO: i16 = -40;

/// What both programs begin with: frames that are not steered go to `pass`; of others R0 is the
/// entry and R6 the context. `data` is where that tells the frame's begin and end.
fn steering(c: &mut Code, data: [i16; 2], steering: i32) {
    use Width::{U8, U16, U32, U64};
    let ends_before = |c: &mut Code, bytes: i16| {
        c.register(Alu::Move, R2, R7).number(Alu::Add, R2, i32::from(bytes));
        c.jump_if_registers(If::Greater, R2, R8, "pass");
    };
    c.register(Alu::Move, R6, R1).load(U32, R7, R6, data[0]).load(U32, R8, R6, data[1]);
    ends_before(c, V4 + 8);
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
    ends_before(c, V6 + 8);
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
    // Not too long.
    c.load(U32, R3, R0, 4).jump_if_registers(If::Greater, R7, R3, "pass");
}

/// The XDP program: what is steered goes to the socket of its queue.
fn to_sockets(table: i32, sockets: i32) -> Option<Vec<u64>> {
    let mut c = Code::default();
    // struct xdp_md: data, data_end, data_meta, ingress_ifindex, rx_queue_index.
    steering(&mut c, [0, 4], table);
    c.load(Width::U32, R2, R0, 0).load(Width::U32, R3, R6, 16).jump_if_registers(If::NotEqual, R2, R3, "pass");
    c.map(R1, sockets).number(Alu::Move, R3, XDP_PASS).call(REDIRECT_MAP).exit();
    c.label("pass").number(Alu::Move, R0, XDP_PASS).exit();
    c.finish()
}

/// Bytes of a frame that a record has room for: the usual one of a short message, and the longest
/// that is steered (1472 bytes and all headers).
pub const RECORDS: [i32; 2] = [248, 1544];
/// Bytes before the frame in a record: its length.
pub const RECORD_HEAD: i32 = 8;

/// The program behind the network stack's entry: what is steered is copied into the ring buffer of
/// its place. Without room it passes.
fn to_rings(table: i32, rings: i32, bells: i32) -> Option<Vec<u64>> {
    use Width::U32;
    const LABELS: [[&str; 4]; 2] = [
        ["ring small", "undo small", "quiet small", "done small"],
        ["ring large", "undo large", "quiet large", "done large"],
    ];
    let mut c = Code::default();
    // struct __sk_buff: len, ..., data, data_end. First of all: what is for this host's Ethernet
    // address (pkt_type is PACKET_HOST, 0), on no VLAN (vlan_present).
    c.load(U32, R3, R1, 4).jump_if(If::NotEqual, R3, 0, "pass");
    c.load(U32, R3, R1, 20).jump_if(If::NotEqual, R3, 0, "pass");
    // Several that the stack has as one (gso_size) are read in one piece from the socket.
    c.load(U32, R3, R1, 176).jump_if(If::NotEqual, R3, 0, "pass");
    steering(&mut c, [76, 80], table);
    c.load(U32, R2, R0, 0).store(U32, STACK, PLACE, R2).store_number(U32, STACK, ZERO, 0);
    c.map(R1, rings).register(Alu::Move, R2, STACK).number(Alu::Add, R2, i32::from(PLACE)).call(LOOKUP);
    c.jump_if(If::Equal, R0, 0, "pass");
    c.load(U32, R7, R6, 0).jump_if(If::Equal, R7, 0, "pass").jump_if(If::Greater, R7, RECORDS[1], "pass");
    c.jump_if(If::Greater, R7, RECORDS[0], LABELS[1][0]);
    for (bytes, [begin, undo, quiet, done]) in RECORDS.into_iter().zip(LABELS) {
        c.label(begin).register(Alu::Move, R1, R0).number(Alu::Move, R2, bytes + RECORD_HEAD);
        c.number(Alu::Move, R3, 0).call(RING_RESERVE).jump_if(If::Equal, R0, 0, "pass");
        c.register(Alu::Move, R9, R0).store(U32, R9, 0, R7);
        c.register(Alu::Move, R1, R6).number(Alu::Move, R2, 0);
        c.register(Alu::Move, R3, R9).number(Alu::Add, R3, RECORD_HEAD).register(Alu::Move, R4, R7).call(LOAD_BYTES);
        c.jump_if(If::NotEqual, R0, 0, undo);
        // Whoever is asleep has rung for: the bell is taken down and the sleeper woken. (Reserved
        // before the bell is looked at, hung before the ring is: one of the two sees the other.)
        c.number(Alu::Move, R7, NO_WAKEUP);
        c.map(R1, bells).register(Alu::Move, R2, STACK).number(Alu::Add, R2, i32::from(PLACE)).call(LOOKUP);
        c.jump_if(If::Equal, R0, 0, quiet).register(Alu::Move, R1, R0);
        c.register(Alu::Move, R2, STACK).number(Alu::Add, R2, i32::from(ZERO)).call(LOOKUP);
        c.jump_if(If::Equal, R0, 0, quiet).number(Alu::Move, R1, 0).exchange_32(R0, R1);
        c.jump_if(If::Equal, R1, 0, quiet).number(Alu::Move, R7, FORCE_WAKEUP);
        c.label(quiet).register(Alu::Move, R1, R9).register(Alu::Move, R2, R7).call(RING_SUBMIT);
        c.label(done).number(Alu::Move, R0, TCX_DROP).exit();
        c.label(undo).register(Alu::Move, R1, R9).number(Alu::Move, R2, NO_WAKEUP).call(RING_DISCARD).jump("pass");
    }
    c.label("pass").number(Alu::Move, R0, TCX_NEXT).exit();
    c.finish()
}

/// Where what is steered goes.
#[derive(Debug)]
enum Targets {
    /// AF_XDP sockets, by queue.
    Sockets(OwnedFd),
    /// Ring buffers, and the bells of those who sleep, by place.
    Rings { rings: OwnedFd, bells: OwnedFd },
}

/// A loaded program with its tables, attached to nothing yet. Dropped, the kernel frees all that no
/// link holds.
#[derive(Debug)]
pub struct Program {
    hook: Hook,
    steering: OwnedFd,
    targets: Targets,
    program: OwnedFd,
}

/// A ring buffer and its bell, of one rank.
#[derive(Debug)]
pub struct Ring {
    /// The ring buffer, a BPF map.
    pub ring: OwnedFd,
    /// The bell, a BPF map of one number.
    pub bell: OwnedFd,
}

/// Bytes of each ring buffer: `RING` of spec/xdp.md 8.
pub const RING_BYTES: u32 = 1 << 21;

/// Records in one at the most: the kernel has a head of 8 bytes before each.
pub const RECORDS_MAX: usize = RING_BYTES as usize / (RECORDS[0] + RECORD_HEAD + 8) as usize;

impl Ring {
    /// Makes one.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new() -> io::Result<Ring> {
        Ok(Ring {
            ring: sys::map(sys::MAP_TYPE_RINGBUF, 0, 0, RING_BYTES, "weir_ring")?,
            bell: sys::map_with(sys::MAP_TYPE_ARRAY, 4, 8, 1, sys::MAP_MAPPABLE, None, "weir_bell")?,
        })
    }
}

impl Program {
    fn steering_table() -> io::Result<OwnedFd> {
        sys::map(sys::MAP_TYPE_HASH, size_of::<Key>(), size_of::<Entry>(), STEERED_MAX, "weir_steering")
    }

    /// Makes the tables and loads the XDP program; `frags`: it may be given frames in several
    /// pieces.
    ///
    /// # Errors
    /// The kernel's: no permission, no such maps, what its verifier says.
    pub fn load(frags: bool) -> io::Result<Program> {
        let steering = Self::steering_table()?;
        let sockets = sys::map(sys::MAP_TYPE_XSKMAP, 4, 4, QUEUES_MAX, "weir_sockets")?;
        let code = to_sockets(steering.as_raw_fd(), sockets.as_raw_fd()).ok_or_else(nowhere)?;
        let program = sys::load(Hook::Xdp, &code, if frags { sys::PROG_HAS_FRAGS } else { 0 }, "weir_xdp")?;
        Ok(Program { hook: Hook::Xdp, steering, targets: Targets::Sockets(sockets), program })
    }

    /// The same of the program that fills ring buffers.
    ///
    /// # Errors
    /// As [`Program::load`]; Linux before 6.6.
    pub fn load_for_rings() -> io::Result<Program> {
        let steering = Self::steering_table()?;
        let such = Ring::new()?;
        let of = |inner, name| sys::map_with(sys::MAP_TYPE_ARRAY_OF_MAPS, 4, 4, QUEUES_MAX, 0, Some(inner), name);
        let (rings, bells) = (of(&such.ring, "weir_rings")?, of(&such.bell, "weir_bells")?);
        let code = to_rings(steering.as_raw_fd(), rings.as_raw_fd(), bells.as_raw_fd()).ok_or_else(nowhere)?;
        let program = sys::load(Hook::Ingress, &code, 0, "weir_ring")?;
        Ok(Program { hook: Hook::Ingress, steering, targets: Targets::Rings { rings, bells }, program })
    }

    /// Frames for this address and port go to the socket of `queue` if they come there, or to the
    /// ring of that place, if their UDP payload has at most `most` bytes.
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
    /// Not an AF_XDP socket, more queues than are thought of, or a program for rings.
    pub fn set_socket(&self, queue: u32, xsk: &OwnedFd) -> io::Result<()> {
        let Targets::Sockets(sockets) = &self.targets else { return Err(io::ErrorKind::InvalidInput.into()) };
        sys::map_set(sockets, &queue.to_ne_bytes(), &xsk.as_raw_fd().to_ne_bytes())
    }

    /// The ring buffers and bells of these places. The kernel waits for a grace period of RCU for
    /// each table, however many they are.
    ///
    /// # Errors
    /// More places than are thought of, or a program for sockets.
    pub fn set_rings(&self, all: &[(u32, &OwnedFd, &OwnedFd)]) -> io::Result<()> {
        let Targets::Rings { rings, bells } = &self.targets else { return Err(io::ErrorKind::InvalidInput.into()) };
        let entry = |place: u32, map: &OwnedFd| (place.to_ne_bytes(), map.as_raw_fd().to_ne_bytes());
        sys::map_set_all(bells, all.iter().map(|(place, _, bell)| entry(*place, bell)))?;
        sys::map_set_all(rings, all.iter().map(|(place, ring, _)| entry(*place, ring)))
    }

    /// No ring is at that place any more: the kernel frees it with the last who has it, and waits
    /// here as in [`Program::set_rings`].
    pub fn remove_ring(&self, place: u32) {
        if let Targets::Rings { rings, bells } = &self.targets {
            let _ = sys::map_remove(rings, &place.to_ne_bytes());
            let _ = sys::map_remove(bells, &place.to_ne_bytes());
        }
    }

    /// Runs the program on a frame: what it returns, and how long one of `repeat` runs took,
    /// nanoseconds.
    ///
    /// # Errors
    /// The kernel's.
    pub fn try_on(&self, frame: &[u8], repeat: u32) -> io::Result<(u32, u32)> {
        sys::test_run(&self.program, frame, repeat)
    }

    /// Attaches it for as long as what is returned lives, `native`: in the driver (XDP alone).
    ///
    /// # Errors
    /// The kernel's: another program is there (EBUSY, EEXIST), the driver cannot (EOPNOTSUPP).
    pub fn attach(&self, interface: u32, native: bool) -> io::Result<OwnedFd> {
        let mode = match (self.hook, native) {
            (Hook::Ingress, _) => 0,
            (Hook::Xdp, true) => sys::NATIVE,
            (Hook::Xdp, false) => sys::GENERIC,
        };
        sys::attach(self.hook, &self.program, interface, mode)
    }
}

pub fn nowhere() -> io::Error {
    io::Error::other("the program has a jump to nowhere")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_programs_are_complete_and_small() {
        let lengths = [to_sockets(3, 4), to_rings(3, 4, 5)].map(|code| code.expect("each label is there").len());
        eprintln!("instructions: {lengths:?}");
        assert!(lengths[0] < 100 && lengths[1] < 200, "{lengths:?}");
    }
}
