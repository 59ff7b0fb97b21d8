//! How the heads of a superstep come to those they are for, where there are many processes:
//! forwarded in rounds, and only those that announce something (`spec/bsp.md` 6.16 to 6.24).
//!
//! A message from each to each would be p - 1 messages of a process in every superstep, also where
//! nobody has anything for anybody. In rounds it is ceil(log2 p): in round k a process tells the
//! one 2^k places on, and gives it every head whose way (destination minus source, modulo p) has
//! bit k set (the index operation of Bruck and others, 1997). Who has heard its last round has
//! heard of all, so the rounds are the barrier (Hensgen, Finkel and Manber 1988).
//!
//! Pure: what is to be sent is written to bytes, what came is read from them and judged before it
//! is used.
#![forbid(unsafe_code)]

use crate::head::{Ends, Head, WIRE_VERSION};
use crate::packing::{Malformed, SEND_ALIGN};

/// A body up to this length travels with its head in a round: it is copied log2(p) / 2 times on its
/// way, which costs less than a message of its own.
pub const RIDE_BYTES: usize = 128;
/// So many processes tell each other directly: two messages more for four of them, and half of the
/// rounds one after another.
pub const DIRECT_MAX: usize = 4;
/// So many do if the last superstep was a total exchange of bodies that fit into a direct message,
/// and do not travel with a head.
pub const DIRECT_DENSE_MAX: usize = 16;
/// Rounds of the most processes that there can be.
pub const ROUNDS_MAX: usize = 20;
/// Bytes before the heads of a message of a round.
pub const ROUND_HEAD_BYTES: usize = 40;
/// No head of a round is longer, its body included: ten numbers of at most ten bytes.
const ITEM_MAX: usize = 100 + RIDE_BYTES;
/// `WBSR`.
const MAGIC: u32 = u32::from_le_bytes(*b"WBSR");
/// Flags of a round's head.
const DENSE: u64 = 1;
const BOARDS: u64 = 2;
/// No process.
const NOBODY: u32 = u32::MAX;

/// Whether processes tell each other directly in this superstep. All ask with the same `was_dense`.
#[must_use]
pub fn is_direct(n: usize, was_dense: bool) -> bool {
    n <= DIRECT_MAX || (was_dense && n <= DIRECT_DENSE_MAX)
}

/// How many rounds there are.
#[must_use]
pub fn rounds(n: usize) -> usize {
    n.max(1).next_power_of_two().trailing_zeros() as usize
}

/// Whom a process tells in a round.
#[must_use]
pub fn to(pid: usize, n: usize, round: usize) -> usize {
    (pid + (1 << round)) % n
}

/// Who tells it.
#[must_use]
pub fn from(pid: usize, n: usize, round: usize) -> usize {
    (pid + n - (1 << round)) % n
}

/// Who waits for a process in every superstep, and so finds out first that it is gone.
pub fn watchers(gone: usize, n: usize) -> impl Iterator<Item = usize> {
    let direct = n <= DIRECT_MAX;
    let count = if direct { n } else { rounds(n) };
    (0..count).map(move |k| if direct { k } else { to(gone, n, k) }).filter(move |pid| *pid != gone)
}

/// Whether most others get from this process what fits into a direct message and not into a head's.
#[must_use]
pub fn is_dense(pid: usize, heads: &[Head], direct_bytes: usize) -> bool {
    let fits = |body: u64| body > RIDE_BYTES as u64 && body <= direct_bytes as u64;
    let count = heads.iter().enumerate().filter(|(to, head)| *to != pid && fits(head.body())).count();
    4 * count >= 3 * heads.len().saturating_sub(1)
}

/// What holds for a process, or for all that a process has heard of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Common {
    /// The lowest that called `bsp_sync`, ...
    pub sync: Option<usize>,
    /// ... and `bsp_end`.
    pub end: Option<usize>,
    /// Whether all of them were dense ([`is_dense`]), ...
    pub dense: bool,
    /// ... and have the board of this host.
    pub boards: bool,
}

impl Common {
    /// Of one process.
    #[must_use]
    pub fn of(pid: usize, ends: Ends, dense: bool, boards: bool) -> Common {
        let only = |kind| (ends == kind).then_some(pid);
        Common { sync: only(Ends::Sync), end: only(Ends::Program), dense, boards }
    }

    /// Of both. (It counts nothing, so it does not matter that rounds may tell of a process twice.)
    fn join(&mut self, other: Common) {
        let lower = |a: Option<usize>, b: Option<usize>| a.into_iter().chain(b).min();
        (self.sync, self.end) = (lower(self.sync, other.sync), lower(self.end, other.end));
        self.dense &= other.dense;
        self.boards &= other.boards;
    }
}

/// A head on its way, with its body.
#[derive(Clone, Copy, Debug)]
struct Item {
    from: usize,
    to: usize,
    head: Head,
    /// Where its body lies in `bodies`, if it travels along.
    at: usize,
}

impl Item {
    fn rides(&self) -> usize {
        ridden(&self.head)
    }

    /// How far it has still to go from here.
    fn left(&self, here: usize, n: usize) -> usize {
        (self.to + n - here) % n
    }
}

/// Bytes of a body that travel with its head.
#[must_use]
pub fn ridden(head: &Head) -> usize {
    if head.body() <= RIDE_BYTES as u64 { head.body() as usize } else { 0 }
}

/// The rounds of a superstep, as one process sees them. Its memory is used again and again.
#[derive(Debug, Default)]
pub struct Counts {
    pid: usize,
    n: usize,
    /// Of this process.
    own: Option<Head>,
    common: Option<Common>,
    /// Heads that are here: this process's own, what is to be passed on, and what came for it.
    items: Vec<Item>,
    bodies: Vec<u8>,
}

/// The beginning of a message of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundHead {
    common: Common,
    superstep: u64,
    tag: u32,
    /// How many heads follow, ...
    pub items: usize,
    /// ... in so many bytes.
    pub bytes: usize,
}

impl RoundHead {
    /// Off the wire, in a program of `n` processes.
    ///
    /// # Errors
    /// It is none of this version, or says what cannot be.
    pub fn decode(wire: &[u8], n: usize) -> Result<RoundHead, Malformed> {
        let wire: &[u8; ROUND_HEAD_BYTES] = wire.first_chunk().ok_or(Malformed("the head of a round is cut off"))?;
        let mut words = [0u64; ROUND_HEAD_BYTES / 8];
        for (word, bytes) in words.iter_mut().zip(wire.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        let [first, superstep, pids, counts, bytes] = words;
        if first as u32 != MAGIC || (first >> 32) as u16 != WIRE_VERSION {
            return Err(Malformed("it has no head of a round of this version"));
        }
        let pid = |word: u32| match word {
            NOBODY => Ok(None),
            pid if (pid as usize) < n => Ok(Some(pid as usize)),
            _ => Err(Malformed("the head of a round names a process that is none")),
        };
        let flags = first >> 48;
        if flags & !(DENSE | BOARDS) != 0 {
            return Err(Malformed("the head of a round has an unknown flag"));
        }
        let (dense, boards) = (flags & DENSE != 0, flags & BOARDS != 0);
        let common = Common { sync: pid(pids as u32)?, end: pid((pids >> 32) as u32)?, dense, boards };
        let items = (counts >> 32) as usize;
        if items > n || bytes > (items * ITEM_MAX) as u64 || common.sync.or(common.end).is_none() {
            return Err(Malformed("the head of a round says what cannot be"));
        }
        Ok(RoundHead { common, superstep, tag: counts as u32, items, bytes: bytes as usize })
    }

    fn encode(&self) -> [u8; ROUND_HEAD_BYTES] {
        let pid = |pid: Option<usize>| pid.map_or(NOBODY, |pid| pid as u32);
        let flags = if self.common.dense { DENSE } else { 0 } | if self.common.boards { BOARDS } else { 0 };
        let words = [
            u64::from(MAGIC) | u64::from(WIRE_VERSION) << 32 | flags << 48,
            self.superstep,
            u64::from(pid(self.common.sync)) | u64::from(pid(self.common.end)) << 32,
            u64::from(self.tag) | (self.items as u64) << 32,
            self.bytes as u64,
        ];
        let mut out = [0; ROUND_HEAD_BYTES];
        for (bytes, word) in out.chunks_exact_mut(8).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        out
    }
}

impl Counts {
    /// Begins a superstep: `heads` are this process's, by destination; `body` writes the body of
    /// one that travels with its head.
    pub fn begin(&mut self, pid: usize, heads: &[Head], common: Common, mut body: impl FnMut(usize, &mut Vec<u8>)) {
        (self.pid, self.n, self.own, self.common) = (pid, heads.len(), heads.get(pid).copied(), Some(common));
        self.items.clear();
        self.bodies.clear();
        for (to, head) in heads.iter().enumerate().filter(|(to, head)| *to != pid && head.body() > 0) {
            let at = self.bodies.len();
            self.items.push(Item { from: pid, to, head: *head, at });
            if ridden(head) > 0 {
                body(to, &mut self.bodies);
            }
        }
    }

    /// Writes the message of a round; what it tells of is somebody else's affair from now on.
    pub fn write(&mut self, round: usize, out: &mut Vec<u8>) {
        out.clear();
        let (Some(own), Some(common)) = (self.own, self.common) else { return };
        out.resize(ROUND_HEAD_BYTES, 0);
        let (pid, n, bodies, mut items) = (self.pid, self.n, &self.bodies, 0);
        self.items.retain(|item| {
            let leaves = item.left(pid, n) >> round & 1 != 0;
            if leaves {
                write_item(item, bodies, out);
                items += 1;
            }
            !leaves
        });
        let bytes = out.len() - ROUND_HEAD_BYTES;
        let head = RoundHead { common, superstep: own.superstep, tag: own.tag, items, bytes };
        out[..ROUND_HEAD_BYTES].copy_from_slice(&head.encode());
    }

    /// Takes what came in a round: its head, and the heads behind it.
    ///
    /// # Errors
    /// What cannot be.
    pub fn read(&mut self, round: usize, head: &RoundHead, mut bytes: &[u8]) -> Result<(), Malformed> {
        let (Some(own), Some(common)) = (self.own, &mut self.common) else { return Err(Malformed("nothing began")) };
        if head.superstep != own.superstep || head.bytes != bytes.len() {
            return Err(Malformed("it is of another superstep or length"));
        }
        if head.tag != own.tag {
            return Err(Malformed("its tags have another size"));
        }
        common.join(head.common);
        for _ in 0..head.items {
            let item = read_item(&mut bytes, own, &mut self.bodies)?;
            // It went as far as the lower bits of its way say, this round's among them, and is here
            // now.
            if item.from >= self.n || item.to >= self.n {
                return Err(Malformed("a head is of a process that is none"));
            }
            let way = item.left(item.from, self.n);
            let gone = way & ((2 << round) - 1);
            if way >> round & 1 == 0 || (item.from + gone) % self.n != self.pid {
                return Err(Malformed("a head came that has another way"));
            }
            self.items.push(item);
        }
        if bytes.is_empty() && self.items.len() <= 2 * self.n {
            Ok(())
        } else {
            Err(Malformed("the heads of a round have another length"))
        }
    }

    /// What holds for all, after the last round.
    #[must_use]
    pub fn common(&self) -> Option<Common> {
        self.common
    }

    /// After the last round: the heads of all that have something for this process; by source,
    /// those of the others are empty. With each that has a body that travelled along, `keep` is
    /// called.
    ///
    /// # Errors
    /// Two heads came of one process.
    pub fn finish(&self, heads: &mut Vec<Head>, mut keep: impl FnMut(usize, &[u8])) -> Result<(), Malformed> {
        let Some(own) = self.own else { return Err(Malformed("nothing began")) };
        heads.clear();
        heads.resize(self.n, Head { tag: own.tag, ..Head::empty(own.ends, own.superstep) });
        // (After the last round there are no others.)
        for item in self.items.iter().filter(|item| item.to == self.pid) {
            let Some(head) = heads.get_mut(item.from).filter(|head| head.body() == 0) else {
                return Err(Malformed("two heads came of one process"));
            };
            *head = item.head;
            if item.rides() > 0 {
                keep(item.from, self.bodies.get(item.at..item.at + item.rides()).unwrap_or(&[]));
            }
        }
        if let Some(head) = heads.get_mut(self.pid) {
            *head = own;
        }
        Ok(())
    }
}

fn write_item(item: &Item, bodies: &[u8], out: &mut Vec<u8>) {
    let h = &item.head;
    let align = SEND_ALIGN as u64;
    for value in
        [item.from as u64, item.to as u64, h.events / align, h.letters / align, h.gets / 8, h.puts / 8, h.places / 8]
    {
        write_number(value, out);
    }
    for value in [h.letter_count, h.letter_payload, u64::from(h.puts_apart)] {
        write_number(value, out);
    }
    out.extend_from_slice(bodies.get(item.at..item.at + item.rides()).unwrap_or(&[]));
}

fn read_item(bytes: &mut &[u8], own: Head, bodies: &mut Vec<u8>) -> Result<Item, Malformed> {
    const TOO_MUCH: Malformed = Malformed("a head of a round has impossible numbers");
    let mut next = || read_number(bytes);
    let [from, to, events, letters, gets, puts, places] =
        [next()?, next()?, next()?, next()?, next()?, next()?, next()?];
    let [letter_count, letter_payload, puts_apart] = [next()?, next()?, next()?];
    let times = |value: u64, of: u64| value.checked_mul(of).ok_or(TOO_MUCH);
    let align = SEND_ALIGN as u64;
    let head = Head {
        events: times(events, align)?,
        letters: times(letters, align)?,
        gets: times(gets, 8)?,
        puts: times(puts, 8)?,
        places: times(places, 8)?,
        letter_count,
        letter_payload,
        puts_apart: u32::try_from(puts_apart).map_err(|_| TOO_MUCH)?,
        ..Head { tag: own.tag, ..Head::empty(own.ends, own.superstep) }
    };
    head.check()?;
    if head.body() == 0 {
        return Err(Malformed("a head of a round announces nothing"));
    }
    let pid = |value: u64| usize::try_from(value).map_err(|_| TOO_MUCH);
    let item = Item { from: pid(from)?, to: pid(to)?, head, at: bodies.len() };
    let body = bytes.split_off(..item.rides()).ok_or(Malformed("the body of a head is cut off"))?;
    bodies.extend_from_slice(body);
    Ok(item)
}

/// Seven bits a byte, the lowest first (LEB128).
fn write_number(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn read_number(bytes: &mut &[u8]) -> Result<u64, Malformed> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.split_off_first().ok_or(Malformed("a head of a round is cut off"))?;
        let bits = u64::from(byte & 0x7f);
        if bits << shift >> shift != bits {
            break;
        }
        value |= bits << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(Malformed("a number of a round's head is too large"))
}
