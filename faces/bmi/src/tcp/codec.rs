//! The headers of the originals' TCP wire, and the machine that finds them in a stream (spec/bmi.md
//! 9). Pure.

/// Which original.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    /// 24 bytes.
    OrangeFs,
    /// 25 bytes, with a class.
    Radix,
}

/// Longest message that is not asked for, bytes.
pub const EAGER_MAX: u64 = 16 << 10;
/// Longest message, bytes.
pub const SIZE_MAX: u64 = 16 << 20;
/// The longest header, bytes.
pub const HEADER_MAX: usize = 25;
/// By so many bytes the wires are told apart.
const MAGIC_LEN: usize = 4;

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Nobody posts for it.
    Unexpected,
    /// Up to [`EAGER_MAX`].
    Eager,
    /// Longer.
    Rendezvous,
}

/// A header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What the message is.
    pub mode: Mode,
    /// Its tag.
    pub tag: i32,
    /// Bytes behind the header.
    pub size: u64,
    /// Its class; 0 on OrangeFS's wire.
    pub class: u8,
}

/// Why a header is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Another magic.
    Magic(u32),
    /// Another mode.
    Mode(u32),
    /// A tag beyond 32 bits.
    Tag(i64),
    /// A size below 0, or above what the mode allows.
    Size(i64),
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Refused::Magic(magic) => match Wire::of_magic(*magic) {
                Some(other) => write!(f, "it speaks the wire of {other}: WEIR_BMI_TCP_WIRE={other}"),
                None => write!(f, "a header with magic {magic}, of neither wire"),
            },
            Refused::Mode(mode) => write!(f, "a header with mode {mode}, not 2, 4 or 8"),
            Refused::Tag(tag) => write!(f, "a header with tag {tag}, beyond 32 bits"),
            Refused::Size(size) => write!(f, "a header that announces {size} bytes"),
        }
    }
}

impl std::fmt::Display for Wire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Wire::OrangeFs => "orangefs",
            Wire::Radix => "radix",
        })
    }
}

impl Wire {
    /// First of every header.
    #[must_use]
    pub fn magic(self) -> u32 {
        match self {
            Wire::OrangeFs => 51903,
            Wire::Radix => 51912,
        }
    }

    /// The wire of a header that begins so (T1).
    #[must_use]
    pub fn of_magic(magic: u32) -> Option<Wire> {
        [Wire::OrangeFs, Wire::Radix].into_iter().find(|wire| wire.magic() == magic)
    }

    /// Bytes of a header.
    #[must_use]
    pub fn header_len(self) -> usize {
        match self {
            Wire::OrangeFs => 24,
            Wire::Radix => 25,
        }
    }
}

impl Header {
    /// That of a message of this size.
    #[must_use]
    pub fn of(tag: i32, size: u64, unexpected: Option<u8>) -> Header {
        let mode = match unexpected {
            Some(_) => Mode::Unexpected,
            None if size <= EAGER_MAX => Mode::Eager,
            None => Mode::Rendezvous,
        };
        Header { mode, tag, size, class: unexpected.unwrap_or(0) }
    }

    /// The bytes, of which `wire.header_len()` count.
    #[must_use]
    pub fn encode(&self, wire: Wire) -> [u8; HEADER_MAX] {
        let mut out = [0; HEADER_MAX];
        let mode: u32 = match self.mode {
            Mode::Unexpected => 2,
            Mode::Eager => 4,
            Mode::Rendezvous => 8,
        };
        out[..4].copy_from_slice(&wire.magic().to_le_bytes());
        out[4..8].copy_from_slice(&mode.to_le_bytes());
        match wire {
            Wire::OrangeFs => out[8..16].copy_from_slice(&i64::from(self.tag).to_le_bytes()),
            // Behind it the hash of a server's address, of which 0 says that there is none.
            Wire::Radix => out[8..12].copy_from_slice(&self.tag.to_le_bytes()),
        }
        out[16..24].copy_from_slice(&self.size.to_le_bytes());
        out[24] = if wire == Wire::Radix { self.class } else { 0 };
        out
    }

    /// Reads one (T3).
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(bytes: &[u8; HEADER_MAX], wire: Wire) -> Result<Header, Refused> {
        let u32_at = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let i64_at = |at: usize| (u64::from(u32_at(at + 4)) << 32 | u64::from(u32_at(at))).cast_signed();
        if u32_at(0) != wire.magic() {
            return Err(Refused::Magic(u32_at(0)));
        }
        let mode = match u32_at(4) {
            2 => Mode::Unexpected,
            4 => Mode::Eager,
            8 => Mode::Rendezvous,
            other => return Err(Refused::Mode(other)),
        };
        let tag = match wire {
            Wire::Radix => u32_at(8).cast_signed(),
            // Either extension of a negative tag: a sender may have taken it for a number without a
            // sign.
            Wire::OrangeFs => match i64_at(8) {
                tag if i32::try_from(tag).is_ok() || u32::try_from(tag).is_ok() => u32_at(8).cast_signed(),
                tag => return Err(Refused::Tag(tag)),
            },
        };
        let most = if mode == Mode::Rendezvous { SIZE_MAX } else { EAGER_MAX };
        let size = u64::try_from(i64_at(16)).ok().filter(|size| *size <= most).ok_or(Refused::Size(i64_at(16)))?;
        let class = if wire == Wire::Radix { bytes[24] } else { 0 };
        Ok(Header { mode, tag, size, class })
    }
}

/// What comes next in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// So many bytes of a header.
    Header(usize),
    /// So many bytes of a payload.
    Payload(u64),
}

/// Finds headers and payloads in a stream that comes in pieces of any length.
#[derive(Clone, Debug)]
pub struct Stream {
    /// None until the first header says it.
    wire: Option<Wire>,
    header: [u8; HEADER_MAX],
    have: usize,
    /// Of the payload under way, bytes that lack.
    left: u64,
}

impl Stream {
    /// At the beginning of a connection; of one that was accepted the first header says which wire
    /// it is.
    #[must_use]
    pub fn new(wire: Option<Wire>) -> Stream {
        Stream { wire, header: [0; HEADER_MAX], have: 0, left: 0 }
    }

    /// What comes next.
    #[must_use]
    pub fn need(&self) -> Need {
        if self.left > 0 { Need::Payload(self.left) } else { Need::Header(self.wanted() - self.have) }
    }

    /// The wire, once it is known.
    #[must_use]
    pub fn wire(&self) -> Option<Wire> {
        self.wire
    }

    /// Bytes of the header, as far as is known.
    fn wanted(&self) -> usize {
        self.wire.map_or(MAGIC_LEN, Wire::header_len)
    }

    /// A header has begun and is not whole.
    #[must_use]
    pub fn in_header(&self) -> bool {
        self.have > 0
    }

    /// Takes bytes of a header, no more than lack. The header, when it is whole.
    ///
    /// # Errors
    /// It is none: nothing of the stream can be understood any more.
    pub fn take_header(&mut self, bytes: &[u8]) -> Result<Option<Header>, Refused> {
        let n = bytes.len().min(self.wanted() - self.have);
        self.header[self.have..self.have + n].copy_from_slice(&bytes[..n]);
        self.have += n;
        if self.have < self.wanted() {
            return Ok(None);
        }
        let Some(wire) = self.wire else {
            let [a, b, c, d, ..] = self.header;
            let magic = u32::from_le_bytes([a, b, c, d]);
            self.wire = Some(Wire::of_magic(magic).ok_or(Refused::Magic(magic))?);
            return Ok(None);
        };
        self.have = 0;
        let header = Header::decode(&self.header, wire)?;
        self.left = header.size;
        Ok(Some(header))
    }

    /// So much of the payload was taken.
    pub fn took(&mut self, bytes: u64) {
        self.left = self.left.saturating_sub(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// H5: as the originals write it.
    #[test]
    fn headers_have_the_bytes_of_the_originals() {
        let header = Header { mode: Mode::Eager, tag: -2, size: 0x0123, class: 0 };
        let orange = header.encode(Wire::OrangeFs);
        assert_eq!(orange[..24], *b"\xbf\xca\0\0\x04\0\0\0\xfe\xff\xff\xff\xff\xff\xff\xff\x23\x01\0\0\0\0\0\0");
        let header = Header { mode: Mode::Unexpected, class: 9, ..header };
        assert_eq!(
            header.encode(Wire::Radix),
            *b"\xc8\xca\0\0\x02\0\0\0\xfe\xff\xff\xff\0\0\0\0\x23\x01\0\0\0\0\0\0\x09"
        );
    }

    /// What clients of the originals sent to a listener that only wrote it down (25 November 2026:
    /// `waltligon/orangefs` 4a684c81c, `radix-io/bmi` dff759c): tag, size, class if unexpected,
    /// header.
    const CAPTURED: [(Wire, i32, u64, Option<u8>, &str); 17] = [
        (Wire::OrangeFs, 5, 0, Some(0), "bfca00000200000005000000000000000000000000000000"),
        (Wire::OrangeFs, -1, 1, Some(0), "bfca000002000000ffffffffffffffff0100000000000000"),
        (Wire::OrangeFs, i32::MAX, 8192, Some(0), "bfca000002000000ffffff7f000000000020000000000000"),
        (Wire::OrangeFs, -2, 0, None, "bfca000004000000feffffffffffffff0000000000000000"),
        (Wire::OrangeFs, 1, 291, None, "bfca00000400000001000000000000002301000000000000"),
        (Wire::OrangeFs, i32::MIN, 16384, None, "bfca00000400000000000080ffffffff0040000000000000"),
        (Wire::OrangeFs, 3, 16385, None, "bfca00000800000003000000000000000140000000000000"),
        (Wire::OrangeFs, 4, 40000, None, "bfca0000080000000400000000000000409c000000000000"),
        (Wire::Radix, 5, 0, Some(0), "c8ca0000020000000500000000000000000000000000000000"),
        (Wire::Radix, -1, 1, Some(0), "c8ca000002000000ffffffff00000000010000000000000000"),
        (Wire::Radix, i32::MAX, 8192, Some(0), "c8ca000002000000ffffff7f00000000002000000000000000"),
        (Wire::Radix, 7, 3, Some(9), "c8ca0000020000000700000000000000030000000000000009"),
        (Wire::Radix, -2, 0, None, "c8ca000004000000feffffff00000000000000000000000000"),
        (Wire::Radix, 1, 291, None, "c8ca0000040000000100000000000000230100000000000000"),
        (Wire::Radix, i32::MIN, 16384, None, "c8ca0000040000000000008000000000004000000000000000"),
        (Wire::Radix, 3, 16385, None, "c8ca0000080000000300000000000000014000000000000000"),
        (Wire::Radix, 4, 40000, None, "c8ca0000080000000400000000000000409c00000000000000"),
    ];

    /// H5: differential, against both originals.
    #[test]
    fn headers_captured_of_the_originals_are_read_and_written_byte_for_byte() {
        for (wire, tag, size, unexpected, hex) in CAPTURED {
            let bytes: Vec<u8> = (0..hex.len() / 2)
                .map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).expect("hexadecimal"))
                .collect();
            assert_eq!(bytes.len(), wire.header_len());
            let header = Header::of(tag, size, unexpected);
            assert_eq!(header.encode(wire)[..bytes.len()], bytes, "{hex}");
            let mut stream = Stream::new(None);
            assert_eq!(stream.take_header(&bytes[..4]), Ok(None));
            assert_eq!((stream.wire(), stream.take_header(&bytes[4..])), (Some(wire), Ok(Some(header))), "{hex}");
        }
    }

    /// H4, T3.
    #[test]
    fn what_lies_of_its_size_or_is_no_header_is_refused() {
        let bytes = |at: usize, value: u64, len: usize| {
            let mut b = Header::of(1, 10, None).encode(Wire::OrangeFs);
            b[at..at + len].copy_from_slice(&value.to_le_bytes()[..len]);
            Header::decode(&b, Wire::OrangeFs)
        };
        assert_eq!(bytes(0, 51904, 4), Err(Refused::Magic(51904)));
        assert_eq!(bytes(0, 51912, 4), Err(Refused::Magic(51912)));
        assert_eq!(bytes(4, 1, 4), Err(Refused::Mode(1)));
        assert_eq!(bytes(8, 1 << 40, 8), Err(Refused::Tag(1 << 40)));
        assert_eq!(bytes(8, 0xffff_ffff, 8).map(|h| h.tag), Ok(-1));
        for size in [EAGER_MAX + 1, u64::MAX, 1 << 63] {
            assert_eq!(bytes(16, size, 8), Err(Refused::Size(size.cast_signed())));
        }
        let long = Header::of(1, SIZE_MAX, None);
        assert_eq!(Header::decode(&long.encode(Wire::Radix), Wire::Radix), Ok(long));
        let longer = Header { size: SIZE_MAX + 1, ..long };
        assert!(Header::decode(&longer.encode(Wire::Radix), Wire::Radix).is_err());
    }

    fn header() -> impl Strategy<Value = Header> {
        (any::<i32>(), 0..=SIZE_MAX, proptest::option::of(any::<u8>())).prop_map(|(tag, size, class)| {
            Header::of(tag, if class.is_some() { size.min(EAGER_MAX) } else { size }, class)
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(header in header()) {
            prop_assert_eq!(Header::decode(&header.encode(Wire::Radix), Wire::Radix), Ok(header));
            let orange = Header { class: 0, ..header };
            prop_assert_eq!(Header::decode(&header.encode(Wire::OrangeFs), Wire::OrangeFs), Ok(orange));
        }

        /// F22: whatever pieces it comes in.
        #[test]
        fn a_stream_is_taken_apart_wherever_it_is_cut(
            messages in proptest::collection::vec((any::<i32>(), 0..3000u64), 0..8),
            cuts in proptest::collection::vec(1..100usize, 1..50),
        ) {
            for wire in [Wire::OrangeFs, Wire::Radix] {
                let mut bytes = Vec::new();
                for (tag, size) in &messages {
                    bytes.extend_from_slice(&Header::of(*tag, *size, None).encode(wire)[..wire.header_len()]);
                    bytes.resize(bytes.len() + *size as usize, 7);
                }
              for known in [Some(wire), None] {
                let (mut stream, mut seen, mut rest, mut cut) = (Stream::new(known), Vec::new(), &bytes[..], 0);
                while !rest.is_empty() {
                    let n = cuts[cut % cuts.len()].min(rest.len());
                    cut += 1;
                    let n = match stream.need() {
                        Need::Header(lack) => {
                            let n = n.min(lack);
                            seen.extend(stream.take_header(&rest[..n]).expect("good").map(|h| (h.tag, h.size)));
                            n
                        }
                        Need::Payload(left) => {
                            let n = n.min(left as usize);
                            prop_assert!(rest[..n].iter().all(|b| *b == 7));
                            stream.took(n as u64);
                            n
                        }
                    };
                    rest = &rest[n..];
                }
                prop_assert_eq!(&seen, &messages);
                prop_assert!(!stream.in_header() && matches!(stream.need(), Need::Header(_)));
                prop_assert!(messages.is_empty() || stream.wire() == Some(wire));
              }
            }
        }
    }
}
