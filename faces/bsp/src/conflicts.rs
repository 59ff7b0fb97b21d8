//! Check mode: which puts and gets of a superstep meet in the same memory (`spec/bsp.md` 9).
//!
//! Every process tells with its superstep message where in its program each run was asked for; who
//! has the memory finds those that meet.
#![forbid(unsafe_code)]

use crate::packing::Malformed;

/// Longest text of a place; longer ones keep their end.
const PLACE_BYTES: usize = 255;
/// Pairs that are told in one superstep, at most.
pub const TOLD_MAX: usize = 16;
/// A run was asked for without a buffer.
const UNBUFFERED: u32 = 1 << 31;

/// Where the runs of a message were asked for: those that are put, then those that are got, in
/// their order in the message.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Places {
    texts: Vec<String>,
    puts: Vec<u32>,
    gets: Vec<u32>,
}

impl Places {
    /// Nothing was asked for.
    pub fn clear(&mut self) {
        *self = Places::default();
    }

    /// A put was asked for there.
    pub fn put(&mut self, place: &str, unbuffered: bool) {
        let index = self.index(place, unbuffered);
        self.puts.push(index);
    }

    /// A get was.
    pub fn get(&mut self, place: &str, unbuffered: bool) {
        let index = self.index(place, unbuffered);
        self.gets.push(index);
    }

    fn index(&mut self, place: &str, unbuffered: bool) -> u32 {
        let mut from = place.len().saturating_sub(PLACE_BYTES);
        while !place.is_char_boundary(from) {
            from += 1;
        }
        let place = &place[from..];
        // Mostly the one before.
        let known = self.texts.iter().rposition(|text| text == place);
        let index = known.unwrap_or_else(|| {
            self.texts.push(place.to_owned());
            self.texts.len() - 1
        });
        index as u32 | if unbuffered { UNBUFFERED } else { 0 }
    }

    /// As it travels: a multiple of 8 bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for n in [self.texts.len(), self.puts.len(), self.gets.len()] {
            out.extend_from_slice(&(n as u32).to_le_bytes());
        }
        for text in &self.texts {
            out.push(text.len() as u8);
            out.extend_from_slice(text.as_bytes());
        }
        for index in self.puts.iter().chain(&self.gets) {
            out.extend_from_slice(&index.to_le_bytes());
        }
        out.resize(out.len().next_multiple_of(8), 0);
        out
    }

    /// Off the wire.
    ///
    /// # Errors
    /// It is none of this version.
    pub fn decode(wire: &[u8]) -> Result<Places, Malformed> {
        Self::read(wire).ok_or(Malformed("its places cannot be read"))
    }

    fn read(mut wire: &[u8]) -> Option<Places> {
        fn number(wire: &mut &[u8]) -> Option<u32> {
            let (word, rest) = wire.split_first_chunk::<4>()?;
            *wire = rest;
            Some(u32::from_le_bytes(*word))
        }
        if wire.is_empty() {
            return Some(Places::default());
        }
        let [texts, puts, gets] = [number(&mut wire)?, number(&mut wire)?, number(&mut wire)?];
        let mut places = Places::default();
        for _ in 0..texts {
            let (len, rest) = wire.split_first()?;
            let (text, rest) = rest.split_at_checked(usize::from(*len))?;
            places.texts.push(String::from_utf8_lossy(text).into_owned());
            wire = rest;
        }
        let index = |wire: &mut &[u8]| number(wire).filter(|n| n & !UNBUFFERED < texts);
        for _ in 0..puts {
            places.puts.push(index(&mut wire)?);
        }
        for _ in 0..gets {
            places.gets.push(index(&mut wire)?);
        }
        (wire.len() < 8).then_some(places)
    }

    /// Where the `nth` put was asked for, and whether without a buffer.
    #[must_use]
    pub fn of_put(&self, nth: usize) -> (&str, bool) {
        self.of(&self.puts, nth)
    }

    /// Where the `nth` get was.
    #[must_use]
    pub fn of_get(&self, nth: usize) -> (&str, bool) {
        self.of(&self.gets, nth)
    }

    fn of(&self, all: &[u32], nth: usize) -> (&str, bool) {
        let Some(index) = all.get(nth) else { return ("", false) };
        let text = self.texts.get((index & !UNBUFFERED) as usize);
        (text.map_or("", String::as_str), index & UNBUFFERED != 0)
    }
}

/// A run of memory that somebody reads or writes at the end of the superstep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access<'a> {
    /// The address of its first byte, ...
    pub start: u64,
    /// ... and that behind its last one.
    pub end: u64,
    /// Who asked for it.
    pub pid: usize,
    /// Where.
    pub place: &'a str,
    /// It is written.
    pub writes: bool,
    /// It was asked for without a buffer: then what comes of it is not determined.
    pub unbuffered: bool,
}

/// Two that meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conflict<'a> {
    /// One.
    pub first: Access<'a>,
    /// The other.
    pub second: Access<'a>,
    /// In how many bytes.
    pub bytes: u64,
    /// What comes of it depends on time, or is some bytes of either.
    pub undetermined: bool,
}

impl Access<'_> {
    /// Both were asked for by the same call of the same process, but for where.
    fn is_alike(&self, other: &Access<'_>) -> bool {
        let of = |a: &Access<'_>| (a.pid, a.writes, a.unbuffered);
        of(self) == of(other) && self.place == other.place
    }
}

impl<'a> Conflict<'a> {
    fn of(a: &Access<'a>, b: &Access<'a>) -> Option<Conflict<'a>> {
        let bytes = a.end.min(b.end).saturating_sub(a.start.max(b.start));
        let undetermined = a.unbuffered || b.unbuffered;
        // Of one process the later of two buffered puts wins, as in any program.
        let expected = a.pid == b.pid && !undetermined && a.writes && b.writes;
        let conflict = bytes > 0 && (a.writes || b.writes) && !expected;
        conflict.then_some(Conflict { first: *a, second: *b, bytes, undetermined })
    }

    /// Of which two places it is, and what they do: one line is enough for all that are alike.
    fn kind(&self) -> (&'a str, &'a str, bool, bool) {
        (self.first.place, self.second.place, self.first.writes, self.second.writes)
    }
}

/// Those that meet, by address; of each kind the first, and `TOLD_MAX` at most.
#[must_use]
pub fn find<'a>(mut accesses: Vec<Access<'a>>) -> Vec<Conflict<'a>> {
    accesses.retain(|a| a.start < a.end);
    accesses.sort_by_key(|a| (a.start, a.end, a.pid));
    let (mut open, mut found): (Vec<Access<'a>>, Vec<Conflict<'a>>) = (Vec::new(), Vec::new());
    for access in accesses {
        open.retain(|before| before.end > access.start);
        for conflict in open.iter().filter_map(|before| Conflict::of(before, &access)) {
            if found.len() < TOLD_MAX && found.iter().all(|known| known.kind() != conflict.kind()) {
                found.push(conflict);
            }
        }
        if found.len() == TOLD_MAX {
            break;
        }
        // Of those that are alike the one that reaches farthest meets whatever any of them meets:
        // a loop that puts to one variable is looked at in a time that grows with its turns only.
        match open.iter_mut().find(|before| before.is_alike(&access)) {
            Some(before) if before.end < access.end => *before = access,
            Some(_) => {}
            None => open.push(access),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn places_read_back(ops in proptest::collection::vec(("[a-c]{0,3}", any::<bool>(), any::<bool>()), 0..40)) {
            let mut places = Places::default();
            for (place, unbuffered, puts) in &ops {
                if *puts { places.put(place, *unbuffered) } else { places.get(place, *unbuffered) }
            }
            let wire = places.encode();
            prop_assert_eq!(wire.len() % 8, 0);
            let read = Places::decode(&wire).expect("readable");
            let (mut puts, mut gets) = (0, 0);
            for (place, unbuffered, is_put) in &ops {
                let (nth, found) = if *is_put { (&mut puts, Places::of_put as fn(&Places, usize) -> (&str, bool)) } else { (&mut gets, Places::of_get as fn(&Places, usize) -> (&str, bool)) };
                prop_assert_eq!(found(&read, *nth), (place.as_str(), *unbuffered));
                *nth += 1;
            }
        }

        #[test]
        fn any_bytes_are_places_or_an_error(wire in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(places) = Places::decode(&wire) {
                let _ = (places.of_put(3), places.of_get(0), places.encode());
            }
        }

        #[test]
        fn two_that_meet_are_found_and_no_others(
            runs in proptest::collection::vec((0u64..60, 0u64..12, 0usize..4, any::<bool>(), any::<bool>()), 0..24),
        ) {
            let names: Vec<String> = (0..runs.len()).map(|i| i.to_string()).collect();
            let accesses: Vec<Access<'_>> = runs.iter().zip(&names)
                .map(|((start, len, pid, writes, unbuffered), place)| Access {
                    start: *start, end: start + len, pid: *pid, place, writes: *writes, unbuffered: *unbuffered,
                })
                .collect();
            let mut meet = 0;
            for (i, a) in accesses.iter().enumerate() {
                for b in &accesses[i + 1..] {
                    let common = (0..80).filter(|at| a.start <= *at && *at < a.end && b.start <= *at && *at < b.end).count();
                    let same = a.pid == b.pid && a.writes && b.writes && !a.unbuffered && !b.unbuffered;
                    meet += usize::from(common > 0 && (a.writes || b.writes) && !same);
                }
            }
            let found = find(accesses);
            prop_assert_eq!(found.len(), meet.min(TOLD_MAX));
            for c in &found {
                prop_assert_eq!(c.undetermined, c.first.unbuffered || c.second.unbuffered);
            }
        }

        /// As of programs: few calls, each of them often.
        #[test]
        fn of_calls_that_come_often_each_pair_that_meets_is_found_once(
            runs in proptest::collection::vec((0u64..200, 0u64..12, 0usize..2, 0usize..3), 0..60),
        ) {
            let names = ["a", "b", "c"];
            let accesses: Vec<Access<'_>> = runs.iter().map(|(start, len, pid, call)| Access {
                start: *start, end: start + len, pid: *pid, place: names[*call], writes: *call > 0, unbuffered: *call > 1,
            }).collect();
            let kind = |c: &Conflict<'_>| {
                let mut both = [(c.first.place, c.first.writes), (c.second.place, c.second.writes)];
                both.sort_unstable();
                both.map(|(place, writes)| format!("{place}{writes}"))
            };
            let pairs = accesses.iter().enumerate().flat_map(|(i, a)| accesses[..i].iter().map(move |b| (a, b)));
            let mut meet: Vec<_> = pairs.filter_map(|(a, b)| Conflict::of(a, b)).map(|c| kind(&c)).collect();
            let mut told: Vec<_> = find(accesses.clone()).iter().map(kind).collect();
            for kinds in [&mut meet, &mut told] {
                kinds.sort_unstable();
                kinds.dedup();
            }
            prop_assert_eq!(meet, told);
        }
    }

    /// Each with each would be 2 x 10^10 looks.
    #[test]
    fn a_loop_that_puts_to_one_variable_is_looked_at_once_a_turn() {
        let put = |pid| Access { start: 8, end: 12, pid, place: "a", writes: true, unbuffered: true };
        let found = find((0..200_000).map(|turn| put(turn % 2)).collect());
        assert_eq!(found.len(), 1);
    }
}
