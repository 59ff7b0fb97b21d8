//! Which receive takes which message, as MPI says: of the receives that could take a message that
//! arrives, the one posted first; of the messages that a receive could take when it is posted, the
//! one that arrived first. Messages of one channel (a source, a destination, a communicator) arrive
//! in the order they were sent; whoever calls this sees to that.
//!
//! Lists are by channel, so that the work does not grow with the number of processes; what names
//! any source has lists of its own by destination. Memory is that of what is posted or under way
//! now: a channel on which nothing is gives its place back.

use std::collections::VecDeque;

use hashbrown::HashMap;

use crate::Time;
use crate::tour::{Order, Tour, What};

/// A channel's place in the table.
pub(crate) type ChannelId = u32;

/// Idle channels that are kept before they are looked through.
const IDLE_KEPT: usize = 64;

/// A tag, or any.
pub(crate) type TagWanted = Option<i64>;

/// A receive that waits.
#[derive(Debug, Clone, Copy)]
struct Posted {
    request: u32,
    tag: TagWanted,
    comm: u32,
    /// Place in the order of all receives of the run.
    number: u64,
}

/// A message that nobody has asked for yet.
#[derive(Debug, Clone, Copy)]
struct Unexpected {
    message: u32,
    tag: i64,
    comm: u32,
    /// Place in the order of all arrivals of the run.
    number: u64,
}

/// From one process to another in one communicator.
#[derive(Debug, Default)]
pub(crate) struct Channel {
    key: (u32, u32, u32),
    /// When the last message that was sent on it is there.
    pub last: Time,
    /// Until when nothing arrives, because a message that was lost is before it.
    pub held: Time,
    /// Messages on it that are sent and not yet there.
    pub under_way: u32,
    /// These, in the order they were sent, where it is not known when each will be there.
    pub way: VecDeque<u32>,
    posted: VecDeque<Posted>,
    unexpected: VecDeque<Unexpected>,
}

impl Channel {
    fn is_idle(&self) -> bool {
        self.under_way == 0 && self.posted.is_empty() && self.unexpected.is_empty()
    }
}

impl Channel {
    fn tour(&mut self, tour: &mut Tour) {
        let Self { key: (from, to, comm), last, held, under_way, way, posted, unexpected } = self;
        [*from, *to, *comm, *under_way].into_iter().for_each(|part| tour.word(part.into()));
        way.iter().for_each(|message| tour.message(*message));
        tour.future(last);
        tour.future(held);
        [posted.len(), unexpected.len()].into_iter().for_each(|n| tour.word(n as u64));
        posted.iter().for_each(|posted| posted.tour(tour));
        for Unexpected { message, tag, comm, number } in unexpected {
            tour.message(*message);
            tour.tag(*comm, *tag);
            tour.ordered(Order::Match, *number, What::Message(*message));
        }
    }
}

impl Posted {
    fn tour(&self, tour: &mut Tour) {
        let Self { request, tag, comm, number } = self;
        tour.request(*request);
        tour.word((*comm).into());
        tour.word(tag.is_some().into());
        tour.tag(*comm, tag.unwrap_or(-1));
        tour.ordered(Order::Match, *number, What::Request(*request));
    }
}

/// What waits at one destination, whatever its source.
#[derive(Debug, Default)]
struct Anywhere {
    posted: VecDeque<Posted>,
    /// In order of arrival, with the channel each is on. Some may be gone: then the channel does
    /// not have them.
    unexpected: VecDeque<(ChannelId, Unexpected)>,
    gone: usize,
}

/// All that waits for a match.
#[derive(Debug)]
pub(crate) struct Matching {
    index: HashMap<(u32, u32, u32), ChannelId, foldhash::fast::FixedState>,
    channels: Vec<Channel>,
    free: Vec<ChannelId>,
    /// How many channels there may be before idle ones are given back.
    sweep_at: usize,
    anywhere: Vec<Anywhere>,
    /// Whether any receive or probe names no source: then arrivals are listed by destination, too.
    wildcards: bool,
    numbers: u64,
    /// List entries looked at: work that no other count shows.
    pub looked: u64,
}

/// What a receive or probe asks for. `from`: `None` is any source.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    pub to: u32,
    pub from: Option<u32>,
    pub comm: u32,
    pub tag: TagWanted,
}

fn fits(wanted: TagWanted, tag: i64) -> bool {
    wanted.is_none_or(|w| w == tag)
}

impl Matching {
    pub fn new(numprocs: u32, wildcards: bool) -> Self {
        Self {
            index: HashMap::with_hasher(foldhash::fast::FixedState::with_seed(0)),
            channels: Vec::new(),
            free: Vec::new(),
            sweep_at: IDLE_KEPT + numprocs as usize,
            anywhere: (0..if wildcards { numprocs } else { 0 }).map(|_| Anywhere::default()).collect(),
            wildcards,
            numbers: 0,
            looked: 0,
        }
    }

    /// The channel, made if it is not there.
    pub fn channel(&mut self, from: u32, to: u32, comm: u32) -> ChannelId {
        let key = (from, to, comm);
        if let Some(id) = self.index.get(&key) {
            return *id;
        }
        if self.index.len() >= self.sweep_at {
            self.sweep();
        }
        let id = self.free.pop().unwrap_or_else(|| {
            self.channels.push(Channel::default());
            (self.channels.len() - 1) as ChannelId
        });
        let channel = &mut self.channels[id as usize];
        channel.key = key;
        (channel.last, channel.held) = (Time::ZERO, Time::ZERO);
        self.index.insert(key, id);
        id
    }

    /// Gives back what is idle. `last` of an idle channel is past, so that nothing is forgotten.
    fn sweep(&mut self) {
        for (id, channel) in (0u32..).zip(&mut self.channels) {
            if channel.is_idle() && self.index.get(&channel.key) == Some(&id) {
                self.index.remove(&channel.key);
                self.free.push(id);
            }
        }
        self.sweep_at = self.sweep_at.max(self.index.len() * 2);
    }

    pub fn at(&mut self, id: ChannelId) -> &mut Channel {
        &mut self.channels[id as usize]
    }

    /// A message is there: the request of the receive that takes it, or it waits.
    pub fn arrived(&mut self, id: ChannelId, message: u32, tag: i64) -> Option<u32> {
        let channel = &mut self.channels[id as usize];
        let (_, to, comm) = channel.key;
        let named = channel.posted.iter().position(|p| fits(p.tag, tag));
        self.looked += named.map_or(channel.posted.len(), |n| n + 1) as u64;
        let named = named.map(|at| (channel.posted[at].number, at));
        let any = self.anywhere.get(to as usize).and_then(|here| {
            let at = here.posted.iter().position(|p| p.comm == comm && fits(p.tag, tag));
            self.looked += at.map_or(here.posted.len(), |n| n + 1) as u64;
            at.map(|at| (here.posted[at].number, at))
        });
        let taken = match (named, any) {
            (Some(named), Some(any)) if any < named => self.anywhere[to as usize].posted.remove(any.1),
            (Some((_, at)), _) => channel.posted.remove(at),
            (None, Some((_, at))) => self.anywhere[to as usize].posted.remove(at),
            (None, None) => None,
        };
        if let Some(posted) = taken {
            return Some(posted.request);
        }
        self.numbers += 1;
        let entry = Unexpected { message, tag, comm, number: self.numbers };
        channel.unexpected.push_back(entry);
        if self.wildcards {
            self.tidy(to);
            self.anywhere[to as usize].unexpected.push_back((id, entry));
        }
        None
    }

    /// Takes what is gone out of a destination's list, once it is half of it.
    fn tidy(&mut self, to: u32) {
        let here = &mut self.anywhere[to as usize];
        if here.gone > here.unexpected.len() / 2 + 16 {
            let channels = &self.channels;
            here.unexpected.retain(|(id, u)| place(&channels[*id as usize], u.number).is_some());
            here.gone = 0;
        }
    }

    /// The message that a receive would take now.
    fn find(&mut self, wanted: Wanted) -> Option<(ChannelId, usize)> {
        let Some(from) = wanted.from else { return self.find_anywhere(wanted) };
        let id = *self.index.get(&(from, wanted.to, wanted.comm))?;
        Some((id, self.find_on(id, wanted.tag)?))
    }

    /// The same on one channel.
    fn find_on(&mut self, id: ChannelId, tag: TagWanted) -> Option<usize> {
        let waiting = &self.channels[id as usize].unexpected;
        let at = waiting.iter().position(|u| fits(tag, u.tag));
        self.looked += at.map_or(waiting.len(), |n| n + 1) as u64;
        at
    }

    fn find_anywhere(&mut self, wanted: Wanted) -> Option<(ChannelId, usize)> {
        self.anywhere.get(wanted.to as usize)?;
        self.tidy(wanted.to);
        let here = &self.anywhere[wanted.to as usize];
        for (id, entry) in &here.unexpected {
            self.looked += 1;
            if entry.comm == wanted.comm
                && fits(wanted.tag, entry.tag)
                && let Some(at) = place(&self.channels[*id as usize], entry.number)
            {
                return Some((*id, at));
            }
        }
        None
    }

    /// A receive is posted: the message that it takes, or it waits.
    pub fn posted(&mut self, wanted: Wanted, request: u32) -> Option<u32> {
        // Made if it is not there: either the message is on it, or the receive will be. Looking it
        // up is what costs most where there are millions.
        let own = wanted.from.map(|from| self.channel(from, wanted.to, wanted.comm));
        let found = match own {
            Some(id) => self.find_on(id, wanted.tag).map(|at| (id, at)),
            None => self.find_anywhere(wanted),
        };
        if let Some((id, at)) = found {
            if self.wildcards {
                self.anywhere[wanted.to as usize].gone += 1;
            }
            return self.channels[id as usize].unexpected.remove(at).map(|u| u.message);
        }
        self.numbers += 1;
        let entry = Posted { request, tag: wanted.tag, comm: wanted.comm, number: self.numbers };
        match own {
            Some(id) => self.channels[id as usize].posted.push_back(entry),
            None => self.anywhere[wanted.to as usize].posted.push_back(entry),
        }
        None
    }

    /// The message that a receive would take, left where it is.
    pub fn peek(&mut self, wanted: Wanted) -> Option<u32> {
        let (id, at) = self.find(wanted)?;
        Some(self.channels[id as usize].unexpected[at].message)
    }

    /// Gives all that waits, and what lies before it, to a tour.
    pub fn tour(&mut self, tour: &mut Tour) {
        let now = tour.now();
        let decides = |c: &Channel| !c.is_idle() || c.last > now || c.held > now;
        let mut ids: Vec<usize> = (0..self.channels.len()).filter(|id| decides(&self.channels[*id])).collect();
        ids.sort_unstable_by_key(|id| self.channels[*id].key);
        tour.word(ids.len() as u64);
        for id in ids {
            self.channels[id].tour(tour);
        }
        for here in &self.anywhere {
            let Anywhere { posted, unexpected: _, gone: _ } = here;
            tour.word(posted.len() as u64);
            posted.iter().for_each(|posted| posted.tour(tour));
        }
    }

    /// Messages that nobody asked for, in order of arrival.
    pub fn left_over(&self) -> Vec<u32> {
        let mut all: Vec<_> = self.channels.iter().flat_map(|c| &c.unexpected).map(|u| (u.number, u.message)).collect();
        all.sort_unstable();
        all.into_iter().map(|(_, message)| message).collect()
    }

    /// How many channels have a place.
    #[cfg(test)]
    pub fn channels(&self) -> usize {
        self.channels.len()
    }
}

/// Where an arrival stands in its channel, if it is still there: numbers rise.
fn place(channel: &Channel, number: u64) -> Option<usize> {
    channel.unexpected.binary_search_by_key(&number, |u| u.number).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(from: Option<u32>, tag: TagWanted) -> Wanted {
        Wanted { to: 0, from, comm: 0, tag }
    }

    #[test]
    fn the_receive_posted_first_takes_a_message_whether_it_names_a_source_or_not() {
        let mut m = Matching::new(3, true);
        let from_2 = m.channel(2, 0, 0);
        assert_eq!(m.posted(wanted(Some(2), Some(9)), 10), None);
        assert_eq!(m.posted(wanted(None, None), 11), None);
        assert_eq!(m.posted(wanted(Some(2), None), 12), None);
        assert_eq!(m.arrived(from_2, 1, 5), Some(11));
        assert_eq!(m.arrived(from_2, 2, 5), Some(12));
        assert_eq!(m.arrived(from_2, 3, 9), Some(10));
        assert_eq!(m.arrived(from_2, 4, 9), None);
    }

    #[test]
    fn a_receive_takes_the_message_that_arrived_first() {
        let mut m = Matching::new(3, true);
        let (from_1, from_2) = (m.channel(1, 0, 0), m.channel(2, 0, 0));
        for (channel, message, tag) in [(from_2, 1, 5), (from_1, 2, 5), (from_1, 3, 6), (from_2, 4, 6)] {
            assert_eq!(m.arrived(channel, message, tag), None);
        }
        assert_eq!(m.peek(wanted(None, None)), Some(1));
        assert_eq!(m.posted(wanted(Some(1), Some(6)), 10), Some(3));
        assert_eq!(m.posted(wanted(None, Some(6)), 11), Some(4));
        assert_eq!(m.posted(wanted(None, None), 12), Some(1));
        assert_eq!(m.left_over(), [2]);
        assert_eq!(m.posted(wanted(None, None), 13), Some(2));
        assert_eq!(m.posted(wanted(None, None), 14), None);
    }

    #[test]
    fn communicators_do_not_meet() {
        let mut m = Matching::new(2, true);
        let other = m.channel(1, 0, 7);
        assert_eq!(m.arrived(other, 1, 5), None);
        assert_eq!(m.posted(wanted(Some(1), None), 10), None);
        assert_eq!(m.posted(wanted(None, None), 11), None);
        assert_eq!(m.posted(Wanted { comm: 7, ..wanted(None, None) }, 12), Some(1));
    }

    #[test]
    fn channels_are_given_back_when_nothing_is_on_them() {
        let mut m = Matching::new(2, true);
        for comm in 0..10_000 {
            let id = m.channel(1, 0, comm);
            assert_eq!(m.arrived(id, comm, 0), None);
            assert_eq!(m.posted(Wanted { comm, ..wanted(Some(1), None) }, 1), Some(comm));
        }
        assert!(m.channels() <= IDLE_KEPT + 3, "{}", m.channels());
        assert!(m.anywhere[0].unexpected.len() < 100, "{}", m.anywhere[0].unexpected.len());
    }
}
