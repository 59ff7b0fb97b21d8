//! All that decides how a run goes on, written down so that two moments of it can be compared:
//! places in tables, numbers of messages and the time itself leave no trace.
//!
//! Each part of the state gives itself to a [`Tour`] field by field, in an order that only the
//! state decides. The same way is gone a second time to move the state on by some periods.

use hashbrown::HashMap;
use weir_stats::Random;

use crate::Time;

/// What a point of time is of, and so whether it may stand still while all else moves on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It moves with all else.
    Moves,
    /// Until when a process that goes on has a cause for its time. It moves.
    Account,
    /// The same of a process that waits: it may wait all the time.
    WaitsSince,
    /// Of something that may lie untouched all the time.
    Lies,
    /// When a request was complete: as `Lies`, but the earliest is looked for.
    Done,
    /// When a process's last wait had ended.
    Woken,
}

/// A point of time: of what is in which place.
#[derive(Debug, Clone, Copy)]
struct Moment {
    at: Time,
    kind: Kind,
    place: u32,
}

/// Places in a table, numbered as they are come to.
#[derive(Debug, Default)]
struct Met {
    /// By place, 1 more than its number; 0: not met.
    number: Vec<u32>,
    /// Places by number.
    places: Vec<u32>,
    /// How many of these have been visited.
    visited: usize,
}

impl Met {
    fn number(&mut self, place: u32) -> u32 {
        let at = place as usize;
        if self.number.len() <= at {
            self.number.resize(at + 1, 0);
        }
        if self.number[at] == 0 {
            self.places.push(place);
            self.number[at] = self.places.len() as u32;
        }
        self.number[at]
    }

    fn next(&mut self) -> Option<u32> {
        let place = self.places.get(self.visited).copied()?;
        self.visited += 1;
        Some(place)
    }
}

/// How the state is moved on.
#[derive(Debug)]
pub(crate) struct Shift {
    by: Time,
    /// Which moments move.
    moves: Vec<bool>,
    /// How much longer processes have computed.
    busier: Vec<Time>,
}

/// A way through the state.
#[derive(Debug, Default)]
pub(crate) struct Tour {
    now: Time,
    words: Vec<u64>,
    moments: Vec<Moment>,
    /// How long processes have computed since a wait, and which moment that wait's end is.
    busy: Vec<(Time, usize)>,
    generators: Vec<Random>,
    messages: Met,
    requests: Met,
    activities: Met,
    /// What is in an order of its own: (whose, its number there, what).
    order: Vec<(u64, u64, u64)>,
    /// The least number of a collective that a process stands at, by communicator and mark of the
    /// group.
    turns: HashMap<(u32, i64), i64, foldhash::fast::FixedState>,
    shift: Option<Shift>,
}

/// Bits of a collective's tag below its number.
pub(crate) const TURN_BITS: u32 = 24;
/// Bits of a collective's tag that mark the group.
pub(crate) const MARK: i64 = 0xf_ffff;

impl Tour {
    /// To look at the state.
    pub fn look(now: Time) -> Self {
        Self { now, ..Self::default() }
    }

    /// To move it on.
    pub fn shift(now: Time, shift: Shift) -> Self {
        Self { now, shift: Some(shift), ..Self::default() }
    }

    /// The time.
    pub fn now(&self) -> Time {
        self.now
    }

    /// What it costs.
    pub fn len(&self) -> u64 {
        (self.words.len() + 2 * self.moments.len() + 2 * self.busy.len()) as u64
    }

    /// What must be the same.
    pub fn word(&mut self, word: u64) {
        self.words.push(word);
    }

    /// Likewise.
    pub fn signed(&mut self, word: i64) {
        self.words.push(word.cast_unsigned());
    }

    /// Likewise; none differs from all numbers.
    pub fn maybe(&mut self, word: Option<u64>) {
        self.words.extend([u64::from(word.is_some()), word.unwrap_or(0)]);
    }

    /// A span of time that must be the same.
    pub fn span(&mut self, span: Time) {
        let all = span.yoctoseconds();
        self.words.extend([(all >> 64) as u64, all as u64]);
    }

    /// A point of time that decides nothing once it is past.
    pub fn future(&mut self, at: &mut Time) {
        self.span((*at - self.now).or_zero());
        if let Some(shift) = &self.shift
            && *at > self.now
        {
            *at += shift.by;
        }
    }

    /// A point of time; `place`: of what in its table.
    pub fn moment(&mut self, at: &mut Time, kind: Kind, place: u32) {
        if let Some(shift) = &self.shift
            && shift.moves.get(self.moments.len()) == Some(&true)
        {
            *at += shift.by;
        }
        self.moments.push(Moment { at: *at, kind, place });
    }

    /// When a process's last wait had ended, and how long it had computed since.
    pub fn since_wait(&mut self, woken: &mut Time, busy: &mut Time) {
        if let Some(more) = self.shift.as_ref().and_then(|shift| shift.busier.get(self.busy.len())) {
            *busy += *more;
        }
        self.busy.push((*busy, self.moments.len()));
        self.moment(woken, Kind::Woken, 0);
    }

    /// A generator whose numbers decide something.
    pub fn generator(&mut self, random: &Random) {
        if self.shift.is_none() {
            self.generators.push(random.clone());
        }
    }

    /// A message, by its place in its table.
    pub fn message(&mut self, place: u32) {
        let number = self.messages.number(place);
        self.words.push(u64::from(number));
    }

    /// A request likewise; all ones: none.
    pub fn request(&mut self, place: u32) {
        let number = if place == u32::MAX { 0 } else { self.requests.number(place) };
        self.words.push(u64::from(number));
    }

    /// A collective at a process likewise.
    pub fn activity(&mut self, place: u32) {
        let number = if place == u32::MAX { 0 } else { self.activities.number(place) };
        self.words.push(u64::from(number));
    }

    /// The next message that was met and not visited.
    pub fn next_message(&mut self) -> Option<u32> {
        self.messages.next()
    }

    /// The next request likewise.
    pub fn next_request(&mut self) -> Option<u32> {
        self.requests.next()
    }

    /// The next collective at a process likewise.
    pub fn next_activity(&mut self) -> Option<u32> {
        self.activities.next()
    }

    /// Something that has a place in an order: which order, its number there (only which is less
    /// counts), and what it is.
    pub fn ordered(&mut self, which: Order, number: u64, what: What) {
        let whose = match which {
            Order::Match => 0,
            Order::Sender(process) => 1 << 32 | u64::from(process),
            Order::Collectives(process) => 2 << 32 | u64::from(process),
            Order::Flows => 3 << 32,
        };
        let what = match what {
            What::Message(place) => 1 << 32 | u64::from(self.messages.number(place)),
            What::Request(place) => 2 << 32 | u64::from(self.requests.number(place)),
            What::Activity(place) => 3 << 32 | u64::from(self.activities.number(place)),
        };
        self.order.push((whose, number, what));
    }

    /// A process stands at this number of a group's collectives.
    pub fn stands_at(&mut self, comm: u32, mark: i64, count: i64) {
        let least = self.turns.entry((comm, mark)).or_insert(count);
        *least = count.min(*least);
    }

    /// The number of a collective, from the least on that a process of its group stands at.
    pub fn turn(&mut self, comm: u32, mark: i64, count: i64) {
        let least = self.turns.get(&(comm, mark)).copied().unwrap_or(0);
        self.signed(mark);
        self.signed(count.wrapping_sub(least));
    }

    /// A tag: of a collective, its number likewise.
    pub fn tag(&mut self, comm: u32, tag: i64) {
        if comm & 1 == 1 && tag >= 0 {
            self.turn(comm, tag & MARK, tag >> TURN_BITS);
            self.signed(tag >> 20 & 0xf);
        } else {
            self.signed(tag);
        }
    }

    /// All has been come to: the orders are known.
    pub fn end(&mut self) {
        self.order.sort_unstable();
        self.words.extend(self.order.drain(..).flat_map(|(whose, _, what)| [whose, what]));
    }

    /// How the state would move on from here if what came between `before` and this came again and
    /// again, the time of which is returned, too. None if it would not come again.
    ///
    /// Processes compute on without a wait: how long they have done so then grows, and only divides
    /// waits for them between imbalance and the rest. No wait can be longer than from `begins`, the
    /// least account, to the end of a period: where all have computed for longer, it decides
    /// nothing.
    pub fn period(&self, before: &Self) -> Option<(Time, Shift)> {
        let time = self.now - before.now;
        let same = time > Time::ZERO
            && self.words == before.words
            && (self.moments.len(), self.busy.len()) == (before.moments.len(), before.busy.len())
            && self.generators == before.generators;
        if !same {
            return None;
        }
        let pairs = || before.moments.iter().zip(&self.moments);
        let moves: Vec<bool> = pairs().map(|(was, is)| is.at - was.at == time).collect();
        let least = |kind: Kind| {
            let of_kind = pairs().zip(&moves).filter(|((was, _), moves)| **moves && was.kind == kind);
            of_kind.map(|((was, _), _)| was.at).min()
        };
        let moving = pairs().zip(&moves).filter(|((was, _), moves)| **moves && was.kind == Kind::WaitsSince);
        let begins = moving.map(|((was, _), _)| was.at).chain(least(Kind::Account)).min().unwrap_or(before.now);
        let done = least(Kind::Done).unwrap_or(before.now).min(before.now);
        let stands = |was: &Moment, is: &Moment| {
            let still = was.at == is.at && was.place == is.place;
            match was.kind {
                Kind::Moves | Kind::Account => false,
                Kind::WaitsSince | Kind::Lies => still && was.at < before.now,
                Kind::Done => still && was.at < done,
                Kind::Woken => was.at == is.at && was.at <= begins,
            }
        };
        if !pairs().zip(&moves).all(|((was, is), moves)| *moves || stands(was, is)) {
            return None;
        }
        let longest = time + (before.now - begins);
        let mut busier = Vec::with_capacity(self.busy.len());
        for ((was, _), (is, woken)) in before.busy.iter().zip(&self.busy) {
            if is != was && (is < was || *was < longest || moves[*woken]) {
                return None;
            }
            busier.push(*is - *was);
        }
        Some((time, Shift { by: time, moves, busier }))
    }
}

impl Shift {
    /// So many periods instead of one.
    pub fn times(mut self, n: u64) -> Self {
        self.by = self.by.times(n);
        self.busier.iter_mut().for_each(|busier| *busier = busier.times(n));
        self
    }

    /// How far it goes.
    pub fn by(&self) -> Time {
        self.by
    }
}

/// An order of its own.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Order {
    /// Of receives that wait, and of messages that do.
    Match,
    /// Of a process's messages.
    Sender(u32),
    /// Of a process's collectives.
    Collectives(u32),
    /// Of messages that pass shared links.
    Flows,
}

/// What has a place in an order.
#[derive(Debug, Clone, Copy)]
pub(crate) enum What {
    Message(u32),
    Request(u32),
    Activity(u32),
}
