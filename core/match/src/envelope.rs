//! The envelope codec: what travels in front of each message so that the receiving engine can match
//! or place it.
//!
//! `spec/envelopes.md` is the normative text. In short: kind, flags, a 16-bit code, then the kind's
//! 64-bit fields in the order of the variants below, then the optional ones. Each envelope has
//! exactly one encoding; anything else is refused.

use crate::atomic::Atomic;
use crate::types::Class;
use core::fmt;

/// No envelope is longer (bytes).
pub const MAX_BYTES: usize = 48;

/// The kind of [`Envelope::Eager`].
const EAGER: u8 = 1;

const TAGGED: u8 = 1 << 0;
const DATA: u8 = 1 << 1;
const DATA_WIDE: u8 = 1 << 2;
const SYNC: u8 = 1 << 3;
const READ_RNDV: u8 = 1 << 4;
const FETCH: u8 = 1 << 5;

/// What a message means to the engine. Handles (`op`, `rndv`, `sync`) are opaque numbers of the
/// side that made them.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Envelope {
    /// A message whose payload comes along (matched).
    Eager {
        /// Tagged or untagged.
        class: Class,
        /// Tag; not sent, and read as 0, for untagged messages.
        tag: u64,
        /// Immediate data for the receiver's completion queue.
        data: Option<u64>,
        /// The sender waits for [`Envelope::SyncAck`] with this handle once the message is matched.
        sync: Option<u64>,
    },
    /// A request to send (matched): the payload stays with the sender until asked for.
    Rts {
        /// Tagged or untagged.
        class: Class,
        /// Tag; not sent, and read as 0, for untagged messages.
        tag: u64,
        /// Immediate data for the receiver's completion queue.
        data: Option<u64>,
        /// Bytes waiting at the sender.
        len: u64,
        /// The sender's operation.
        op: u64,
    },
    /// Clear to send: the request `op` is matched.
    Cts {
        /// The sender's operation.
        op: u64,
        /// Rendezvous transfer handle the receiver opened.
        rndv: u64,
        /// Bytes the receiver takes; fewer than announced when it truncates.
        len: u64,
        /// Bytes the sender may send at once.
        granted: u64,
    },
    /// An eager message is matched.
    SyncAck {
        /// The sender's operation (`sync` of the message).
        op: u64,
    },
    /// Remote write whose payload comes along.
    Write {
        /// Key of the target's memory region.
        key: u64,
        /// Offset or virtual address in it.
        addr: u64,
        /// The writer's operation, named by [`Envelope::Done`].
        op: u64,
        /// Immediate data for the target's completion queue.
        data: Option<u64>,
        /// The writer waits for [`Envelope::Done`] even if the write is not refused.
        sync: bool,
    },
    /// Remote write whose payload waits to be asked for.
    WriteRts {
        /// Key of the target's memory region.
        key: u64,
        /// Offset or virtual address in it.
        addr: u64,
        /// Bytes to be written.
        len: u64,
        /// The writer's operation.
        op: u64,
        /// Immediate data for the target's completion queue.
        data: Option<u64>,
    },
    /// Remote read into a rendezvous transfer the reader has opened.
    Read {
        /// Key of the target's memory region.
        key: u64,
        /// Offset or virtual address in it.
        addr: u64,
        /// Bytes to be read.
        len: u64,
        /// The reader's rendezvous transfer handle, which also names the operation.
        rndv: u64,
        /// Bytes the target may send at once.
        granted: u64,
    },
    /// A remote operation has ended at the target. Reads end with their rendezvous transfer, so
    /// only failed ones are told this way.
    Done {
        /// The requester's operation, or its rendezvous transfer handle for a read.
        op: u64,
        /// `op` is the rendezvous transfer handle of a read.
        read: bool,
        /// How it ended.
        status: Status,
    },
    /// The target's program has taken notice of writes with immediate data: the writer may begin as
    /// many more.
    Noticed {
        /// Taken or refused since the association began.
        count: u64,
    },
    /// An element of the target's memory is changed or read as one step; answered by
    /// [`Envelope::AtomicDone`].
    Atomic {
        /// What is done, to an element of which type.
        atomic: Atomic,
        /// Key of the target's memory region.
        key: u64,
        /// Offset or virtual address of the element.
        addr: u64,
        /// The initiator's operation.
        op: u64,
        /// Not sent, and read as 0, where the operation has none.
        operand: u64,
        /// Not sent, and read as 0, where the operation has none.
        compare: u64,
        /// What the element held is wanted.
        fetch: bool,
    },
    /// An atomic operation was executed, or refused.
    AtomicDone {
        /// The initiator's operation.
        op: u64,
        /// How it ended.
        status: Status,
        /// What the element held, if it was wanted.
        value: Option<u64>,
    },
}

/// How a remote operation ended.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Status {
    /// All bytes are in place.
    Ok,
    /// No region has this key.
    BadKey,
    /// The region does not allow this kind of access.
    Access,
    /// The bytes do not lie within the region.
    Range,
    /// The target gave the operation up.
    Cancelled,
    /// The target has no memory for it.
    NoMemory,
    /// The element is not at a multiple of its size.
    Alignment,
}

/// Why bytes are not an envelope.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum DecodeError {
    /// Shorter than its kind and flags demand.
    Short,
    /// Longer than its kind and flags demand.
    Long,
    /// No such kind.
    Kind(u8),
    /// A flag that is unknown or means nothing for this kind.
    Flags(u8),
    /// A code that is unknown, or not 0 where there is none.
    Code(u16),
    /// Immediate data that fits 32 bits, sent in 64; a value with bits that its type does not have.
    NotCanonical,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecodeError::Short => write!(f, "envelope too short"),
            DecodeError::Long => write!(f, "envelope too long"),
            DecodeError::Kind(k) => write!(f, "unknown envelope kind {k}"),
            DecodeError::Flags(b) => write!(f, "envelope flags {b:#04x} not allowed here"),
            DecodeError::Code(c) => write!(f, "envelope code {c} not allowed here"),
            DecodeError::NotCanonical => write!(f, "envelope not in its shortest form"),
        }
    }
}

impl core::error::Error for DecodeError {}

impl Status {
    fn code(self) -> u16 {
        match self {
            Status::Ok => 0,
            Status::BadKey => 1,
            Status::Access => 2,
            Status::Range => 3,
            Status::Cancelled => 4,
            Status::NoMemory => 5,
            Status::Alignment => 6,
        }
    }

    fn from_code(code: u16) -> Result<Self, DecodeError> {
        Ok(match code {
            0 => Status::Ok,
            1 => Status::BadKey,
            2 => Status::Access,
            3 => Status::Range,
            4 => Status::Cancelled,
            5 => Status::NoMemory,
            6 => Status::Alignment,
            c => return Err(DecodeError::Code(c)),
        })
    }
}

/// Appends fields to a buffer that is large enough for every envelope.
struct Writer<'a> {
    out: &'a mut [u8; MAX_BYTES],
    at: usize,
}

impl Writer<'_> {
    fn put(&mut self, bytes: &[u8]) {
        self.out[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }

    fn head(&mut self, kind: u8, flags: u8, code: u16) {
        let [lo, hi] = code.to_le_bytes();
        self.put(&[kind, flags, lo, hi]);
    }

    fn words(&mut self, words: &[u64]) {
        for w in words {
            self.put(&w.to_le_bytes());
        }
    }

    fn tag(&mut self, class: Class, tag: u64) {
        if class == Class::Tagged {
            self.words(&[tag]);
        }
    }

    fn data(&mut self, data: Option<u64>) {
        match data.map(|d| (d, u32::try_from(d))) {
            None => {}
            Some((_, Ok(short))) => self.put(&short.to_le_bytes()),
            Some((wide, Err(_))) => self.words(&[wide]),
        }
    }
}

/// Takes fields off the front.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (head, rest) = self.0.split_first_chunk::<N>().ok_or(DecodeError::Short)?;
        self.0 = rest;
        Ok(*head)
    }

    fn word(&mut self) -> Result<u64, DecodeError> {
        Ok(u64::from_le_bytes(self.take()?))
    }

    fn tag(&mut self, flags: u8) -> Result<(Class, u64), DecodeError> {
        if flags & TAGGED != 0 { Ok((Class::Tagged, self.word()?)) } else { Ok((Class::Untagged, 0)) }
    }

    fn data(&mut self, flags: u8) -> Result<Option<u64>, DecodeError> {
        match (flags & DATA != 0, flags & DATA_WIDE != 0) {
            (false, false) => Ok(None),
            (true, false) => Ok(Some(u64::from(u32::from_le_bytes(self.take()?)))),
            (true, true) => match self.word()? {
                d if u32::try_from(d).is_ok() => Err(DecodeError::NotCanonical),
                d => Ok(Some(d)),
            },
            (false, true) => Err(DecodeError::Flags(flags)),
        }
    }
}

fn class_flag(class: Class) -> u8 {
    if class == Class::Tagged { TAGGED } else { 0 }
}

fn data_flags(data: Option<u64>) -> u8 {
    match data {
        None => 0,
        Some(d) if u32::try_from(d).is_ok() => DATA,
        Some(_) => DATA | DATA_WIDE,
    }
}

impl Envelope {
    /// Writes the envelope to the front of `out` and returns its length in bytes.
    pub fn encode(&self, out: &mut [u8; MAX_BYTES]) -> usize {
        let mut w = Writer { out, at: 0 };
        match *self {
            Envelope::Eager { class, tag, data, sync } => {
                let sync_flag = if sync.is_some() { SYNC } else { 0 };
                w.head(EAGER, class_flag(class) | data_flags(data) | sync_flag, 0);
                w.tag(class, tag);
                if let Some(op) = sync {
                    w.words(&[op]);
                }
                w.data(data);
            }
            Envelope::Rts { class, tag, data, len, op } => {
                w.head(2, class_flag(class) | data_flags(data), 0);
                w.tag(class, tag);
                w.words(&[len, op]);
                w.data(data);
            }
            Envelope::Cts { op, rndv, len, granted } => {
                w.head(3, 0, 0);
                w.words(&[op, rndv, len, granted]);
            }
            Envelope::SyncAck { op } => {
                w.head(4, 0, 0);
                w.words(&[op]);
            }
            Envelope::Write { key, addr, op, data, sync } => {
                w.head(7, data_flags(data) | if sync { SYNC } else { 0 }, 0);
                w.words(&[key, addr, op]);
                w.data(data);
            }
            Envelope::WriteRts { key, addr, len, op, data } => {
                w.head(8, data_flags(data), 0);
                w.words(&[key, addr, len, op]);
                w.data(data);
            }
            Envelope::Read { key, addr, len, rndv, granted } => {
                w.head(9, 0, 0);
                w.words(&[key, addr, len, rndv, granted]);
            }
            Envelope::Done { op, read, status } => {
                w.head(10, if read { READ_RNDV } else { 0 }, status.code());
                w.words(&[op]);
            }
            Envelope::Noticed { count } => {
                w.head(11, 0, 0);
                w.words(&[count]);
            }
            Envelope::Atomic { atomic, key, addr, op, operand, compare, fetch } => {
                w.head(12, if fetch { FETCH } else { 0 }, atomic.code());
                w.words(&[key, addr, op]);
                if atomic.op().has_operand() {
                    w.words(&[operand]);
                }
                if atomic.op().has_compare() {
                    w.words(&[compare]);
                }
            }
            Envelope::AtomicDone { op, status, value } => {
                w.head(13, if value.is_some() { FETCH } else { 0 }, status.code());
                w.words(&[op]);
                if let Some(value) = value {
                    w.words(&[value]);
                }
            }
        }
        w.at
    }

    /// Writes the envelope of a message whose payload comes along and whose match nobody wants to
    /// hear of, as [`Envelope::encode`] does: the usual one.
    #[inline]
    pub fn encode_eager(class: Class, tag: u64, data: Option<u64>, out: &mut [u8; MAX_BYTES]) -> usize {
        let short = data.map(u32::try_from).transpose();
        let (Class::Tagged, Ok(short)) = (class, short) else {
            return Envelope::Eager { class, tag, data, sync: None }.encode(out);
        };
        out[..4].copy_from_slice(&[EAGER, TAGGED | if short.is_some() { DATA } else { 0 }, 0, 0]);
        out[4..12].copy_from_slice(&tag.to_le_bytes());
        match short {
            Some(short) => {
                out[12..16].copy_from_slice(&short.to_le_bytes());
                16
            }
            None => 12,
        }
    }

    /// The tag and data of such an envelope, if this is the usual one, with no more in it than
    /// both. Else it is to be read by [`Envelope::decode`].
    #[inline]
    pub fn decode_eager(bytes: &[u8]) -> Option<(u64, Option<u64>)> {
        const PLAIN: [u8; 4] = [EAGER, TAGGED, 0, 0];
        const WITH_DATA: [u8; 4] = [EAGER, TAGGED | DATA, 0, 0];
        let (head, rest) = bytes.split_first_chunk::<4>()?;
        let (tag, data) = rest.split_first_chunk::<8>()?;
        let tag = u64::from_le_bytes(*tag);
        match (*head, data) {
            (PLAIN, []) => Some((tag, None)),
            (WITH_DATA, &[a, b, c, d]) => Some((tag, Some(u64::from(u32::from_le_bytes([a, b, c, d]))))),
            _ => None,
        }
    }

    /// Reads an envelope that fills `bytes` exactly.
    pub fn decode(bytes: &[u8]) -> Result<Envelope, DecodeError> {
        let mut r = Reader(bytes);
        let [kind, flags, lo, hi] = r.take()?;
        let code = u16::from_le_bytes([lo, hi]);
        let (allowed, has_code) = match kind {
            EAGER => (TAGGED | DATA | DATA_WIDE | SYNC, false),
            2 => (TAGGED | DATA | DATA_WIDE, false),
            3 | 4 | 9 | 11 => (0, false),
            7 => (DATA | DATA_WIDE | SYNC, false),
            8 => (DATA | DATA_WIDE, false),
            10 => (READ_RNDV, true),
            12 | 13 => (FETCH, true),
            k => return Err(DecodeError::Kind(k)),
        };
        if flags & !allowed != 0 {
            return Err(DecodeError::Flags(flags));
        }
        if code != 0 && !has_code {
            return Err(DecodeError::Code(code));
        }
        let envelope = Self::rndv(kind, flags, code, &mut r)?;
        if r.0.is_empty() { Ok(envelope) } else { Err(DecodeError::Long) }
    }

    /// The fields behind the head. Struct fields are evaluated in the order written, which is the
    /// order on the wire.
    fn rndv(kind: u8, flags: u8, code: u16, r: &mut Reader<'_>) -> Result<Envelope, DecodeError> {
        Ok(match kind {
            EAGER => {
                let (class, tag) = r.tag(flags)?;
                let sync = if flags & SYNC != 0 { Some(r.word()?) } else { None };
                Envelope::Eager { class, tag, sync, data: r.data(flags)? }
            }
            2 => {
                let (class, tag) = r.tag(flags)?;
                Envelope::Rts { class, tag, len: r.word()?, op: r.word()?, data: r.data(flags)? }
            }
            3 => Envelope::Cts { op: r.word()?, rndv: r.word()?, len: r.word()?, granted: r.word()? },
            4 => Envelope::SyncAck { op: r.word()? },
            7 => Envelope::Write {
                key: r.word()?,
                addr: r.word()?,
                op: r.word()?,
                data: r.data(flags)?,
                sync: flags & SYNC != 0,
            },
            8 => Envelope::WriteRts {
                key: r.word()?,
                addr: r.word()?,
                len: r.word()?,
                op: r.word()?,
                data: r.data(flags)?,
            },
            9 => {
                Envelope::Read { key: r.word()?, addr: r.word()?, len: r.word()?, rndv: r.word()?, granted: r.word()? }
            }
            10 => Envelope::Done { op: r.word()?, read: flags & READ_RNDV != 0, status: Status::from_code(code)? },
            11 => Envelope::Noticed { count: r.word()? },
            12 => Self::atomic(flags, code, r)?,
            13 => {
                let (op, status) = (r.word()?, Status::from_code(code)?);
                if flags & FETCH != 0 && status != Status::Ok {
                    return Err(DecodeError::Flags(flags));
                }
                Envelope::AtomicDone { op, status, value: if flags & FETCH != 0 { Some(r.word()?) } else { None } }
            }
            k => return Err(DecodeError::Kind(k)),
        })
    }

    fn atomic(flags: u8, code: u16, r: &mut Reader<'_>) -> Result<Envelope, DecodeError> {
        let atomic = Atomic::from_code(code).ok_or(DecodeError::Code(code))?;
        let (kind, fetch) = (atomic.op(), flags & FETCH != 0);
        // One that changes nothing and asks for nothing.
        if !kind.has_operand() && !fetch {
            return Err(DecodeError::Flags(flags));
        }
        let (key, addr, op) = (r.word()?, r.word()?, r.word()?);
        let operand = if kind.has_operand() { r.word()? } else { 0 };
        let compare = if kind.has_compare() { r.word()? } else { 0 };
        if (operand | compare) & !atomic.of().mask() != 0 {
            return Err(DecodeError::NotCanonical);
        }
        Ok(Envelope::Atomic { atomic, key, addr, op, operand, compare, fetch })
    }
}
