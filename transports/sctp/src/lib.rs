//! SCTP associations in this process, by the library usrsctp (spec/sctp.md): several streams of
//! messages between two ends, with SCTP's own congestion control and repair.
//!
//! No socket, thread or clock: the caller brings the packets that came ([`Association::packet`]),
//! takes those that are to go ([`Association::next_packet`]) and says how time passes ([`tick`]).
//! The library is looked for at run time; nothing of it is needed to build.

mod association;
mod library;

pub use association::{Association, Config, Ended, Received, SendError};
pub use library::{NoSctp, available, tick};

/// Longest user message, bytes.
pub const MESSAGE_MAX: usize = (16 << 10) + 160;
/// What SCTP keeps to be sent, and lets the other end send ahead, bytes.
pub const BUFFER_BYTES: usize = 1 << 20;
/// Packets that may wait to be moved; more are lost.
pub const PACKETS_MAX: usize = 4096;

/// The ports of SCTP's common header begin here: the first byte of a packet is above that of any
/// packet of Weir's (spec/sctp.md 2.4).
const PORT_BASE: u16 = 0xc000;
/// Places that a port can name.
pub const PLACES: u32 = 1 << 14;

/// The SCTP port of a place; `None` where it is too high.
#[must_use]
pub fn port_of(place: u32) -> Option<u16> {
    (place < PLACES).then_some(PORT_BASE | place as u16)
}

/// Of a datagram that is an SCTP packet by its first byte: the sender's port, and the place that
/// the receiver's port names.
#[must_use]
#[inline]
pub fn packet_ports(datagram: &[u8]) -> Option<(u16, Option<u32>)> {
    let [from_high, from_low, to_high, to_low, ..] = *datagram else { return None };
    let [from, to] = [[from_high, from_low], [to_high, to_low]].map(u16::from_be_bytes);
    (from >= PORT_BASE).then(|| (from, (to >= PORT_BASE).then(|| u32::from(to & !PORT_BASE))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_names_its_place_and_marks_a_packet() {
        for place in [0, 1, 300, PLACES - 1] {
            let port = port_of(place).expect("it has one");
            let mut packet = [0; 12];
            packet[..2].copy_from_slice(&PORT_BASE.to_be_bytes());
            packet[2..4].copy_from_slice(&port.to_be_bytes());
            assert_eq!(packet_ports(&packet), Some((PORT_BASE, Some(place))));
        }
        assert_eq!(port_of(PLACES), None);
        assert_eq!(packet_ports(&[0x15, 0, 0xc0, 0, 0]), None, "a packet of Weir's");
        assert_eq!(packet_ports(&[0xc0, 0, 0x10, 0]), Some((0xc000, None)));
        assert_eq!(packet_ports(&[0xc0, 0, 0xc0]), None);
    }
}
