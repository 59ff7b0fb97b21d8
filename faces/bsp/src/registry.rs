//! Registered memory: which addresses of this process stand for which areas, and how large each
//! area is in every process (`spec/bsp.md` 3).
//!
//! Addresses are numbers here. An *area* is one call of `bsp_push_reg` made by all processes; its
//! *slot* names it in messages. Slots are given and reused in the order of the calls, so they are
//! the same everywhere. Its *serial* is how many areas were registered before it.
#![forbid(unsafe_code)]

use std::collections::HashMap;

/// What a length of an area says where the process registered `NULL`.
pub const NULL_AREA: u64 = u64::MAX;
/// What a deregistration names where the process gave `NULL`: whichever area the others name.
const ANY: u64 = u64::MAX;
/// Bytes of an [`Event`] in a message.
pub const EVENT_BYTES: usize = 16;

/// What all processes do in the same order, as each of them tells it to the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// `bsp_push_reg`: so many bytes here, or [`NULL_AREA`].
    Push(u64),
    /// `bsp_pop_reg` of the area of this serial number, or of whichever the others name.
    Pop(u64),
    /// `bsp_set_tagsize`.
    TagSize(u64),
}

impl Event {
    /// As it travels.
    #[must_use]
    pub fn encode(self) -> [u8; EVENT_BYTES] {
        let (kind, value): (u64, u64) = match self {
            Event::Push(bytes) => (1, bytes),
            Event::Pop(serial) => (2, serial),
            Event::TagSize(bytes) => (3, bytes),
        };
        let mut out = [0; EVENT_BYTES];
        out[..8].copy_from_slice(&kind.to_le_bytes());
        out[8..].copy_from_slice(&value.to_le_bytes());
        out
    }

    /// Off the wire; `None`: no event of this version.
    #[must_use]
    pub fn decode(wire: &[u8; EVENT_BYTES]) -> Option<Event> {
        let (kind, value) = wire.split_at(8);
        let number = |bytes: &[u8]| bytes.first_chunk().map_or(0, |b| u64::from_le_bytes(*b));
        match (number(kind), number(value)) {
            (1, bytes) => Some(Event::Push(bytes)),
            (2, serial) => Some(Event::Pop(serial)),
            (3, bytes) => Some(Event::TagSize(bytes)),
            _ => None,
        }
    }

    /// The primitive.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Event::Push(_) => "bsp_push_reg",
            Event::Pop(_) => "bsp_pop_reg",
            Event::TagSize(_) => "bsp_set_tagsize",
        }
    }
}

/// How large an area is in each process. Mostly everywhere the same.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Sizes {
    Same(u64),
    Each(Box<[u64]>),
}

impl Sizes {
    fn of(each: impl ExactSizeIterator<Item = u64> + Clone) -> Sizes {
        let mut all = each.clone();
        let first = all.next().unwrap_or(0);
        if all.all(|size| size == first) { Sizes::Same(first) } else { Sizes::Each(each.collect()) }
    }

    fn at(&self, pid: usize) -> u64 {
        match self {
            Sizes::Same(size) => *size,
            Sizes::Each(sizes) => sizes.get(pid).copied().unwrap_or(0),
        }
    }
}

/// An area that is registered.
#[derive(Clone, Debug)]
struct Area {
    serial: u64,
    base: usize,
    sizes: Sizes,
}

/// A call of this superstep, and where it was made.
#[derive(Clone, Copy, Debug)]
struct Call<P> {
    event: Event,
    base: usize,
    place: P,
}

/// Why processes do not agree about their calls of a superstep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disagreement<P> {
    /// The how-manieth call of the superstep, from 0.
    pub nth: usize,
    /// With whom.
    pub pid: usize,
    /// What this process did, and where; `None`: nothing more.
    pub here: Option<(Event, P)>,
    /// What the other one did; `None`: nothing more.
    pub there: Option<Event>,
}

/// Why a call is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegistryError {
    /// No area was registered by this address.
    Unknown,
    /// It was, but only from the next superstep on.
    NotYet,
    /// Not by it, but it lies in an area: whose base is so many bytes before.
    Inside(usize),
    /// A `NULL` that was never registered.
    NullUnknown,
    /// It was, and was taken back in this superstep as often.
    TakenBack,
}

/// The areas of a process, and its calls of this superstep. `P`: what tells where a call was made.
#[derive(Debug)]
pub struct Registry<P> {
    own: usize,
    areas: Vec<Option<Area>>,
    free: Vec<u32>,
    /// Slots by address, the newest last: what holds in this superstep.
    now: HashMap<usize, Vec<u32>>,
    /// Serials by address, the newest last: what will hold in the next one. (Of `NULL` only how
    /// many there are is right.)
    next: HashMap<usize, Vec<u64>>,
    /// Areas registered or about to be.
    serials: u64,
    /// Those that take effect.
    effective: u64,
    /// Where a serial's area lies.
    slots: HashMap<u64, u32>,
    /// Serials of areas for which all have `NULL`, the newest last.
    nowhere: Vec<u64>,
    calls: Vec<Call<P>>,
}

impl<P> Registry<P> {
    /// Without areas, of process `own`.
    #[must_use]
    pub fn new(own: usize) -> Self {
        Registry {
            own,
            areas: Vec::new(),
            free: Vec::new(),
            now: HashMap::new(),
            next: HashMap::new(),
            serials: 0,
            effective: 0,
            slots: HashMap::new(),
            nowhere: Vec::new(),
            calls: Vec::new(),
        }
    }
}

impl<P: Copy> Registry<P> {
    /// `bsp_push_reg`. `base` 0 stands for `NULL`.
    pub fn push(&mut self, base: usize, bytes: u64, place: P) {
        let event = Event::Push(if base == 0 { NULL_AREA } else { bytes });
        self.calls.push(Call { event, base, place });
        self.next.entry(base).or_default().push(self.serials);
        self.serials += 1;
    }

    /// `bsp_pop_reg`.
    ///
    /// # Errors
    /// Where there is nothing to be deregistered.
    pub fn pop(&mut self, base: usize, place: P) -> Result<(), RegistryError> {
        let newest = self.next.get_mut(&base).and_then(Vec::pop);
        let Some(serial) = newest else {
            return Err(match base {
                0 => RegistryError::NullUnknown,
                _ if self.now.contains_key(&base) => RegistryError::TakenBack,
                _ => self.why_unknown(base),
            });
        };
        // Which of several NULLs is meant the others say.
        let event = Event::Pop(if base == 0 { ANY } else { serial });
        self.calls.push(Call { event, base, place });
        Ok(())
    }

    /// `bsp_set_tagsize`: it is agreed upon with the others.
    pub fn tag_size(&mut self, bytes: u64, place: P) {
        self.calls.push(Call { event: Event::TagSize(bytes), base: 0, place });
    }

    /// The area that an address stands for in this superstep, as its slot.
    ///
    /// # Errors
    /// There is none.
    #[inline]
    pub fn find(&self, base: usize) -> Result<u32, RegistryError> {
        match self.now.get(&base).and_then(|slots| slots.last()) {
            Some(slot) => Ok(*slot),
            None => Err(self.why_unknown(base)),
        }
    }

    #[cold]
    fn why_unknown(&self, base: usize) -> RegistryError {
        if self.next.get(&base).is_some_and(|serials| !serials.is_empty()) {
            return RegistryError::NotYet;
        }
        // The nearest base before it of an area that reaches there.
        let here = |area: &&Area| {
            let bytes = area.sizes.at(self.own);
            bytes != NULL_AREA && area.base <= base && ((base - area.base) as u64) < bytes
        };
        let around = self.areas.iter().flatten().filter(here).map(|area| base - area.base).min();
        around.map_or(RegistryError::Unknown, RegistryError::Inside)
    }

    /// The base of an area here (0: `NULL`) and its bytes in process `pid` ([`NULL_AREA`] there);
    /// `None`: no such slot.
    #[inline]
    #[must_use]
    pub fn area(&self, slot: u32, pid: usize) -> Option<(usize, u64)> {
        let area = self.areas.get(slot as usize)?.as_ref()?;
        Some((area.base, area.sizes.at(pid)))
    }

    /// The bytes of an area, if it has memory here and as many everywhere.
    #[must_use]
    pub fn size_everywhere(&self, slot: u32) -> Option<u64> {
        let area = self.areas.get(slot as usize)?.as_ref()?;
        match area.sizes {
            Sizes::Same(size) if area.base != 0 && size != NULL_AREA => Some(size),
            Sizes::Same(_) | Sizes::Each(_) => None,
        }
    }

    /// How many areas are registered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.areas.len() - self.free.len()
    }

    /// None is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Nothing was called in this superstep.
    #[inline]
    #[must_use]
    pub fn is_unchanged(&self) -> bool {
        self.calls.is_empty()
    }

    /// The calls of this superstep, for the others.
    pub fn events(&self) -> impl ExactSizeIterator<Item = Event> + '_ {
        self.calls.iter().map(|call| call.event)
    }

    /// The end of a superstep: `all` has what each process did, by pid, this one included.
    ///
    /// # Errors
    /// They did not do the same. The table is of no use then.
    pub fn agree(&mut self, all: &[&[Event]]) -> Result<(), Disagreement<P>> {
        self.compare(all)?;
        let calls = std::mem::take(&mut self.calls);
        for (nth, call) in calls.iter().enumerate() {
            match call.event {
                Event::Push(_) => self.enter(call.base, all, nth),
                Event::Pop(_) => {
                    let serial = self.popped(all, nth, call.base).map_err(|pid| Disagreement {
                        nth,
                        pid,
                        here: Some((call.event, call.place)),
                        there: all.get(pid).and_then(|events| events.get(nth)).copied(),
                    })?;
                    self.leave(serial);
                }
                Event::TagSize(_) => {}
            }
        }
        Ok(())
    }

    fn compare(&self, all: &[&[Event]]) -> Result<(), Disagreement<P>> {
        for (pid, theirs) in all.iter().enumerate() {
            let longest = theirs.len().max(self.calls.len());
            for nth in 0..longest {
                let (here, there) = (self.calls.get(nth), theirs.get(nth).copied());
                let alike = match (here.map(|call| call.event), there) {
                    (Some(Event::Push(_)), Some(Event::Push(_))) => true,
                    (Some(Event::Pop(a)), Some(Event::Pop(b))) => a == b || a == ANY || b == ANY,
                    (Some(Event::TagSize(a)), Some(Event::TagSize(b))) => a == b,
                    _ => false,
                };
                if !alike {
                    return Err(Disagreement { nth, pid, here: here.map(|c| (c.event, c.place)), there });
                }
            }
        }
        Ok(())
    }

    fn enter(&mut self, base: usize, all: &[&[Event]], nth: usize) {
        let size = |events: &&[Event]| match events.get(nth) {
            Some(Event::Push(bytes)) => *bytes,
            _ => 0,
        };
        let area = Area { serial: self.effective, base, sizes: Sizes::of(all.iter().map(size)) };
        self.effective += 1;
        let slot = self.free.pop().unwrap_or_else(|| {
            self.areas.push(None);
            (self.areas.len() - 1) as u32
        });
        self.slots.insert(area.serial, slot);
        if area.sizes == Sizes::Same(NULL_AREA) {
            self.nowhere.push(area.serial);
        }
        self.now.entry(base).or_default().push(slot);
        self.areas[slot as usize] = Some(area);
    }

    /// Which area the `nth` call takes away: the one that somebody names; where all have `NULL`,
    /// the newest that all have as such. It must be what this process calls by `base`: else, with
    /// whom it does not agree.
    fn popped(&self, all: &[&[Event]], nth: usize, base: usize) -> Result<u64, usize> {
        let named = all.iter().enumerate().find_map(|(pid, events)| match events.get(nth) {
            Some(Event::Pop(serial)) if *serial != ANY => Some((pid, *serial)),
            _ => None,
        });
        let newest = || self.nowhere.last().map(|serial| (self.own, *serial));
        let (pid, serial) = named.or_else(newest).ok_or(self.own)?;
        let slot = self.slots.get(&serial).ok_or(pid)?;
        let area = self.areas.get(*slot as usize).and_then(Option::as_ref);
        if area.is_some_and(|area| area.base == base) { Ok(serial) } else { Err(pid) }
    }

    fn leave(&mut self, serial: u64) {
        let Some(slot) = self.slots.remove(&serial) else { return };
        let Some(area) = self.areas[slot as usize].take() else { return };
        self.free.push(slot);
        if area.sizes == Sizes::Same(NULL_AREA) {
            remove_last(&mut self.nowhere, &serial);
        }
        if let Some(slots) = self.now.get_mut(&area.base) {
            remove_last(slots, &slot);
            if slots.is_empty() {
                self.now.remove(&area.base);
            }
        }
        if self.next.get(&area.base).is_some_and(Vec::is_empty) {
            self.next.remove(&area.base);
        }
    }
}

/// Removes a value of a list, in which it is mostly among the last.
fn remove_last<T: PartialEq>(list: &mut Vec<T>, value: &T) {
    if let Some(at) = list.iter().rposition(|v| v == value) {
        list.remove(at);
    }
}
