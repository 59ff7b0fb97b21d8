//! The head of a superstep message (`spec/bsp.md` 6): what follows it, in how many bytes.
#![forbid(unsafe_code)]

use crate::packing::{Malformed, SEND_ALIGN};
use crate::registry::EVENT_BYTES;

/// Bytes of a head.
pub const HEAD_BYTES: usize = 80;
/// Of superstep messages. Processes of different versions refuse each other when they meet.
pub const WIRE_VERSION: u16 = 3;
/// `WBSP`.
const MAGIC: u32 = u32::from_le_bytes(*b"WBSP");
/// No superstep message is longer.
pub const BODY_MAX: u64 = 1 << 40;

/// What a process ended its superstep with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// `bsp_sync`.
    Sync,
    /// `bsp_end`.
    Program,
}

impl Ends {
    /// As it travels.
    #[inline]
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Ends::Sync => 1,
            Ends::Program => 2,
        }
    }
}

/// Beside the code of what it ended with.
const HAS_BOARD: u64 = 1 << 8;
const DENSE: u64 = 1 << 9;

/// The head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// `bsp_sync` or `bsp_end`.
    pub ends: Ends,
    /// Its sender has the board of this host.
    pub has_board: bool,
    /// It has something middling for most others ([`crate::counts::is_dense`]).
    pub dense: bool,
    /// Counted from 0.
    pub superstep: u64,
    /// Bytes of what follows, in this order: the calls that all make alike, ...
    pub events: u64,
    /// ... messages of `bsp_send`, ...
    pub letters: u64,
    /// ... what is asked for, ...
    pub gets: u64,
    /// ... what is put, ...
    pub puts: u64,
    /// ... and in check mode where both were asked for.
    pub places: u64,
    /// How many messages of `bsp_send`.
    pub letter_count: u64,
    /// Bytes of their payloads.
    pub letter_payload: u64,
    /// Runs that are put, and whose bytes travel in messages of their own.
    pub puts_apart: u32,
    /// Bytes of the tags.
    pub tag: u32,
}

/// Where the parts of a body lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parts {
    /// Calls that all make alike.
    pub events: std::ops::Range<usize>,
    /// Messages.
    pub letters: std::ops::Range<usize>,
    /// Gets.
    pub gets: std::ops::Range<usize>,
    /// Puts.
    pub puts: std::ops::Range<usize>,
    /// Places.
    pub places: std::ops::Range<usize>,
}

impl Head {
    /// Of a superstep in which nothing was asked for.
    #[must_use]
    pub fn empty(ends: Ends, superstep: u64) -> Head {
        Head {
            ends,
            has_board: false,
            dense: false,
            superstep,
            events: 0,
            letters: 0,
            gets: 0,
            puts: 0,
            places: 0,
            letter_count: 0,
            letter_payload: 0,
            puts_apart: 0,
            tag: 0,
        }
    }

    /// As it travels.
    #[must_use]
    pub fn encode(&self) -> [u8; HEAD_BYTES] {
        let flag = |is: bool, bit: u64| if is { bit } else { 0 };
        let kind = u64::from(self.ends.code()) | flag(self.has_board, HAS_BOARD) | flag(self.dense, DENSE);
        let words = [
            u64::from(MAGIC) | u64::from(WIRE_VERSION) << 32 | kind << 48,
            self.superstep,
            self.events,
            self.letters,
            self.gets,
            self.puts,
            self.letter_count,
            self.letter_payload,
            u64::from(self.puts_apart) | u64::from(self.tag) << 32,
            self.places,
        ];
        let mut out = [0; HEAD_BYTES];
        for (bytes, word) in out.chunks_exact_mut(8).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        out
    }

    /// Off the wire.
    ///
    /// # Errors
    /// It is none of this version, or says what cannot be.
    pub fn decode(wire: &[u8]) -> Result<Head, Malformed> {
        let wire: &[u8; HEAD_BYTES] = wire.first_chunk().ok_or(Malformed("the head is cut off"))?;
        let mut words = [0u64; HEAD_BYTES / 8];
        for (word, bytes) in words.iter_mut().zip(wire.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        let [first, superstep, events, letters, gets, puts, letter_count, letter_payload, last, places] = words;
        if first as u32 != MAGIC {
            return Err(Malformed("it has no head"));
        }
        if (first >> 32) as u16 != WIRE_VERSION {
            return Err(Malformed("it is of another version"));
        }
        let kind = first >> 48;
        let (has_board, dense) = (kind & HAS_BOARD != 0, kind & DENSE != 0);
        let ends = match kind & !(HAS_BOARD | DENSE) {
            1 => Ends::Sync,
            2 => Ends::Program,
            _ => return Err(Malformed("its kind is unknown")),
        };
        let head = Head {
            ends,
            has_board,
            dense,
            superstep,
            events,
            letters,
            gets,
            puts,
            places,
            letter_count,
            letter_payload,
            puts_apart: last as u32,
            tag: (last >> 32) as u32,
        };
        head.check()?;
        Ok(head)
    }

    pub(crate) fn check(&self) -> Result<(), Malformed> {
        let whole = |bytes: u64, of: u64| bytes.is_multiple_of(of) && bytes <= BODY_MAX;
        let good = whole(self.events, EVENT_BYTES as u64)
            && whole(self.letters, SEND_ALIGN as u64)
            && whole(self.gets, 8)
            && whole(self.puts, 8)
            && whole(self.places, 8)
            && self.letter_payload <= self.letters
            && self.letter_count <= self.letters / SEND_ALIGN as u64
            && u64::from(self.puts_apart) <= self.puts / 24
            && self.body() <= BODY_MAX;
        if good { Ok(()) } else { Err(Malformed("its parts have impossible lengths")) }
    }

    /// Bytes that follow.
    #[must_use]
    pub fn body(&self) -> u64 {
        self.events + self.letters + self.gets + self.puts + self.places
    }

    /// Where in the body what lies.
    #[must_use]
    pub fn parts(&self) -> Parts {
        let events = self.events as usize;
        let letters = events + self.letters as usize;
        let gets = letters + self.gets as usize;
        let puts = gets + self.puts as usize;
        let places = puts + self.places as usize;
        Parts {
            events: 0..events,
            letters: events..letters,
            gets: letters..gets,
            puts: gets..puts,
            places: puts..places,
        }
    }
}
