//! What rank and helper say to each other (spec/xdp.md 3): one packet of 64 bytes each.

use crate::xsk::Layout;

/// Bytes of every message.
pub const BYTES: usize = 64;
const MAGIC: [u8; 4] = *b"WXDP";
const VERSION: u16 = 2;
const ASK: u16 = 1;
const GRANT: u16 = 2;
const REFUSE: u16 = 3;

/// `MOST`: the usual value, all that a packet of 1500 bytes holds, and what a rank may ask for.
pub const MOST: u16 = 1472;
const MOST_RANGE: std::ops::RangeInclusive<u16> = 64..=MOST;

/// Why there is no socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The other side is of another version.
    #[error("the helper is of another version (systemctl restart weir-xdpd.service when its ranks have ended)")]
    Version = 1,
    /// Not a message that was to come.
    #[error(
        "the helper and this program do not understand each other (perhaps it is older: systemctl restart weir-xdpd.service when its ranks have ended)"
    )]
    Malformed = 2,
    /// Not on the list.
    #[error("this user is not on the helper's list (weir xdpd --allow)")]
    User = 3,
    /// Not served.
    #[error("the helper does not serve the interface of this address (weir xdpd --interface)")]
    Interface = 4,
    /// No socket whose packets could come by the helper's interfaces.
    #[error(
        "the helper runs in another network namespace; one in this one takes a socket of its own (weir xdpd --socket, WEIR_XDP_SOCKET)"
    )]
    Socket = 5,
    /// Held.
    #[error("another rank holds this address and port")]
    Taken = 6,
    /// None left.
    #[error("each queue of the interface has a rank; further ones go by UDP")]
    Queues = 7,
    /// The program is not there.
    #[error(
        "the program cannot be attached: no right to (without weir xdpd it takes CAP_NET_ADMIN and CAP_BPF), another XDP program is there, or this kernel or driver cannot (rings need Linux 6.6; weir xdpd --mode generic does not)"
    )]
    Attach = 8,
    /// Bounded.
    #[error("the helper serves 256 ranks, its most; further ones go by UDP")]
    Full = 9,
    /// The rest.
    #[error("the kernel refuses the helper a socket (journalctl -u weir-xdpd.service says why)")]
    System = 10,
    /// It gives a right to no port.
    #[error("the socket is bound to no port: it is to be bound before it is shown to the helper")]
    Unbound = 11,
}

impl Refused {
    const ALL: [Refused; 11] = [
        Refused::Version,
        Refused::Malformed,
        Refused::User,
        Refused::Interface,
        Refused::Socket,
        Refused::Taken,
        Refused::Queues,
        Refused::Attach,
        Refused::Full,
        Refused::System,
        Refused::Unbound,
    ];
}

/// A rank asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Index of the interface.
    pub interface: u32,
    /// Longest datagram that is to be steered, bytes.
    pub most: u16,
}

/// The helper answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// With socket and memory.
    Grant(Layout),
    /// Without.
    Refuse(Refused),
}

struct Writer([u8; BYTES]);

impl Writer {
    fn new(kind: u16) -> Writer {
        Writer([0; BYTES]).bytes(0, &MAGIC).bytes(4, &VERSION.to_le_bytes()).bytes(6, &kind.to_le_bytes())
    }

    fn bytes(mut self, at: usize, value: &[u8]) -> Writer {
        self.0[at..at + value.len()].copy_from_slice(value);
        self
    }

    fn u32(self, at: usize, value: u32) -> Writer {
        self.bytes(at, &value.to_le_bytes())
    }
}

/// Kind and bytes of a message of this version.
fn opened(message: &[u8]) -> Result<(u16, &[u8; BYTES]), Refused> {
    let bytes: &[u8; BYTES] = message.try_into().map_err(|_| Refused::Malformed)?;
    if bytes[..4] != MAGIC {
        return Err(Refused::Malformed);
    }
    if u16_at(bytes, 4) != VERSION {
        return Err(Refused::Version);
    }
    Ok((u16_at(bytes, 6), bytes))
}

fn u16_at(bytes: &[u8; BYTES], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8; BYTES], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

impl Ask {
    /// As it is sent.
    #[must_use]
    pub fn encode(&self) -> [u8; BYTES] {
        Writer::new(ASK).u32(8, self.interface).bytes(12, &self.most.to_le_bytes()).0
    }

    /// Reads one.
    ///
    /// # Errors
    /// What the helper answers to something else.
    pub fn decode(message: &[u8]) -> Result<Ask, Refused> {
        let (kind, bytes) = opened(message)?;
        let ask = Ask { interface: u32_at(bytes, 8), most: u16_at(bytes, 12) };
        if kind == ASK && MOST_RANGE.contains(&ask.most) { Ok(ask) } else { Err(Refused::Malformed) }
    }
}

impl Answer {
    /// As it is sent.
    #[must_use]
    pub fn encode(&self) -> [u8; BYTES] {
        match self {
            Answer::Refuse(why) => Writer::new(REFUSE).bytes(8, &(*why as u16).to_le_bytes()).0,
            Answer::Grant(l) => {
                let flags = u32::from(l.native) | u32::from(l.zero_copy) << 1 | u32::from(l.ring) << 2;
                let w = Writer::new(GRANT).u32(8, l.interface).u32(12, l.queue).u32(16, l.rx_frames);
                w.u32(20, l.tx_frames).u32(24, l.frame_bytes).u32(28, flags).bytes(32, &l.most.to_le_bytes()).0
            }
        }
    }

    /// Reads one. Whether the layout can be is asked when the socket is opened.
    ///
    /// # Errors
    /// It is none.
    pub fn decode(message: &[u8]) -> Result<Answer, Refused> {
        let (kind, bytes) = opened(message)?;
        match kind {
            GRANT => {
                let flags = u32_at(bytes, 28);
                Ok(Answer::Grant(Layout {
                    interface: u32_at(bytes, 8),
                    queue: u32_at(bytes, 12),
                    rx_frames: u32_at(bytes, 16),
                    tx_frames: u32_at(bytes, 20),
                    frame_bytes: u32_at(bytes, 24),
                    native: flags & 1 != 0,
                    zero_copy: flags & 2 != 0,
                    ring: flags & 4 != 0,
                    most: u16_at(bytes, 32),
                }))
            }
            REFUSE => {
                let reason = u16_at(bytes, 8);
                let known = Refused::ALL.into_iter().find(|r| *r as u16 == reason);
                Ok(Answer::Refuse(known.unwrap_or(Refused::System)))
            }
            _ => Err(Refused::Malformed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn messages_come_back_as_they_were_said(interface: u32, queue: u32, most in MOST_RANGE, rx_frames: u32, tx_frames: u32, frame_bytes: u32, native: bool, zero_copy: bool, ring: bool) {
            let ask = Ask { interface, most };
            prop_assert_eq!(Ask::decode(&ask.encode()), Ok(ask));
            let grant = Answer::Grant(Layout { interface, queue, rx_frames, tx_frames, frame_bytes, native, zero_copy, ring, most });
            prop_assert_eq!(Answer::decode(&grant.encode()), Ok(grant));
            prop_assert_eq!(Ask::decode(&grant.encode()), Err(Refused::Malformed));
        }

        #[test]
        fn any_bytes_are_a_message_or_refused(mut bytes in proptest::collection::vec(any::<u8>(), 0..80), right: bool) {
            if right && bytes.len() >= 8 {
                bytes[..6].copy_from_slice(&Ask { interface: 1, most: 64 }.encode()[..6]);
            }
            let _ = Ask::decode(&bytes);
            let _ = Answer::decode(&bytes);
        }
    }

    #[test]
    fn every_reason_has_its_number_and_other_versions_are_told_apart() {
        for (n, why) in Refused::ALL.into_iter().enumerate() {
            assert_eq!(why as usize, n + 1);
            assert_eq!(Answer::decode(&Answer::Refuse(why).encode()), Ok(Answer::Refuse(why)));
        }
        let mut other = Ask { interface: 1, most: 64 }.encode();
        other[4] = 1;
        assert_eq!(Ask::decode(&other), Err(Refused::Version));
        let most = Ask { interface: 1, most: 1473 }.encode();
        assert_eq!(Ask::decode(&most), Err(Refused::Malformed));
    }
}
