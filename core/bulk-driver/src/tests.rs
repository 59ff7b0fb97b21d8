//! The driver at times that the tests choose, with connections in memory and an endpoint that knows
//! nobody. What it does with peers is tried in the simulator and by the fuzz target `bulk`.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::net::SocketAddr;

use proptest::prelude::*;
use slotmap::Key;
use weir_link::{
    BULK_GREETING_NS, BulkNews, BulkRecord, Config, Endpoint, GREETING_LEN, PeerId, RECORD_HEAD_LEN, RecordIn, Time,
};

use crate::conn::{Conn, Stage};
use crate::*;

const LIMITS: Limits = Limits { conns: 70, turn_bytes: 4 << 20 };
/// The token of a send whose payload is not there any more.
const GIVEN_UP: u64 = 99;
const HERE: SocketAddr = SocketAddr::new(core::net::IpAddr::V4(core::net::Ipv4Addr::LOCALHOST), 7);

/// Connections by number; each has bytes to be read.
struct World {
    endpoint: Endpoint,
    waiting: VecDeque<u32>,
    open: BTreeMap<u32, Vec<u8>>,
    read_first: Vec<u32>,
    over: Vec<u32>,
    no_room: bool,
    /// Another read may find more.
    more: bool,
    /// Records to be written, made of the number that is their token; how much a write takes, and
    /// what those wrote that took something.
    due: VecDeque<BulkRecord>,
    takes: VecDeque<usize>,
    written: Vec<Vec<u8>>,
    /// Records that come are good; how much each read had room for.
    good: bool,
    stages: Vec<usize>,
}

impl World {
    fn new() -> World {
        World {
            endpoint: Endpoint::new(Config::default(), [1; 32], 7, &[HERE], [2; 32]),
            waiting: VecDeque::new(),
            open: BTreeMap::new(),
            read_first: Vec::new(),
            over: Vec::new(),
            no_room: true,
            more: true,
            due: VecDeque::new(),
            takes: VecDeque::new(),
            written: Vec::new(),
            good: false,
            stages: Vec::new(),
        }
    }
}

impl Surroundings for World {
    type Stream = u32;
    type Why = ();

    fn accept(&mut self, _: Time) -> Option<u32> {
        let io = self.waiting.pop_front()?;
        self.open.insert(io, Vec::new());
        Some(io)
    }

    fn connect(&mut self, _: &BulkNews) -> Result<u32, NotMade<()>> {
        self.open.insert(1000, Vec::new());
        Ok(1000)
    }

    fn is_connected(&mut self, _: &mut u32) -> Result<bool, ()> {
        Ok(false)
    }

    fn close(&mut self, io: u32) {
        assert!(self.open.remove(&io).is_some(), "{io} was closed twice");
    }

    fn remote(&self, _: &u32) -> Option<SocketAddr> {
        Some(HERE)
    }

    fn lost_segments(&self, _: &u32) -> Result<u32, Broken> {
        Ok(0)
    }

    fn write(&mut self, _: &mut u32, head: &[u8], payload: Option<(&BulkRecord, u32)>) -> Result<usize, Broken> {
        let Some(takes) = self.takes.pop_front() else { return if self.no_room { Ok(0) } else { Err(Broken) } };
        let mut bytes = head.to_vec();
        if let Some((record, done)) = payload {
            bytes.resize(head.len() + (record.len - done) as usize, record.token as u8);
        }
        bytes.truncate(takes);
        let n = bytes.len();
        self.written.push(bytes);
        Ok(n)
    }

    fn payload(&mut self, record: &BulkRecord, bytes: &mut Vec<u8>) -> Result<(), Broken> {
        if record.token == GIVEN_UP {
            return Err(Broken);
        }
        bytes.resize(bytes.len() + record.len as usize, record.token as u8);
        Ok(())
    }

    fn next_record(&mut self, _: Time, _: PeerId, _: u32, head: &mut Vec<u8>) -> Option<BulkRecord> {
        let record = self.due.pop_front()?;
        head.extend([0xff, record.token as u8]);
        Some(record)
    }

    fn read(&mut self, io: &mut u32, _: Option<(PeerId, &RecordIn, u32)>, stage: &mut [u8]) -> Result<Read, Broken> {
        self.read_first.push(*io);
        self.stages.push(stage.len());
        let bytes = core::mem::take(self.open.get_mut(io).ok_or(Broken)?);
        stage[..bytes.len()].copy_from_slice(&bytes);
        Ok(Read::Bytes { payload: 0, staged: bytes.len(), more: self.more && !bytes.is_empty() })
    }

    fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    fn endpoint_mut(&mut self) -> &mut Endpoint {
        &mut self.endpoint
    }

    fn record_tells(&mut self, _: Time, _: PeerId, _: u32, _: &[u8]) -> Head {
        if self.good { Head::Good } else { Head::Wrong }
    }

    fn record_begins(&mut self, _: Time, _: PeerId, _: u32, _: &[u8]) -> Option<RecordIn> {
        None
    }

    fn record_whole(&mut self, _: Time, _: PeerId, _: u32, _: &[u8], _: usize) -> bool {
        self.good
    }

    fn put(&mut self, _: PeerId, _: &RecordIn, _: u32, _: &[u8]) {}

    fn record_ends(&mut self, _: Time, _: PeerId, _: u32, _: &RecordIn) {}

    fn is_over(&mut self, _: Time, _: PeerId, bulk: u32) {
        self.over.push(bulk);
    }
}

fn round(n: u64) -> Time {
    Time((1 + n) * 2 * ROUND_NS)
}

/// So many strangers, and when the last of them was taken.
fn with_strangers(count: u32) -> (World, BulkConnections<u32>, Time) {
    let (mut world, mut bulk_connections) = (World::new(), BulkConnections::new(LIMITS));
    world.waiting.extend(0..count);
    let mut at = round(0);
    for n in 1.. {
        bulk_connections.progress(&mut world, at, true);
        if world.waiting.is_empty() {
            break;
        }
        at = round(n);
    }
    (world, bulk_connections, at)
}

// spec: L-2.9
#[test]
fn the_oldest_stranger_gives_way() {
    let (world, bulk_connections, _) = with_strangers(100);
    assert_eq!(bulk_connections.len(), STRANGERS_MAX);
    assert!(world.open.keys().copied().eq(100 - STRANGERS_MAX as u32..100), "{:?}", world.open.keys());
}

#[test]
fn so_many_are_taken_in_a_round_and_none_between_two() {
    let (mut world, mut bulk_connections) = (World::new(), BulkConnections::new(LIMITS));
    world.waiting.extend(0..50);
    bulk_connections.progress(&mut world, round(0), false);
    assert_eq!(bulk_connections.len(), ACCEPTS_MAX);
    bulk_connections.progress(&mut world, round(0).plus_ns(ROUND_NS - 1), false);
    assert_eq!(bulk_connections.len(), ACCEPTS_MAX);
    bulk_connections.progress(&mut world, round(0).plus_ns(ROUND_NS), false);
    assert_eq!(bulk_connections.len(), 2 * ACCEPTS_MAX);
}

#[test]
fn the_first_to_be_read_is_another_each_time_however_often_bulk_connections_are_read() {
    let (mut world, mut bulk_connections, at) = with_strangers(2);
    // So it is while datagrams come all the time.
    let firsts = [(); 4].map(|()| {
        world.read_first.clear();
        (0..8).for_each(|_| _ = bulk_connections.progress(&mut world, at, true));
        world.read_first[0]
    });
    assert!(firsts.windows(2).all(|w| w[0] != w[1]), "{firsts:?}");
}

// spec: L-2.8
#[test]
fn who_is_silent_is_dropped_in_time_and_what_came_late_is_read_first() {
    let (mut world, mut bulk_connections, at) = with_strangers(2);
    let due = bulk_connections.next_timeout(&world.endpoint, at).expect("strangers");
    assert_eq!(due, at.plus_ns(BULK_GREETING_NS + 1));
    world.open.insert(1, alloc::vec![b'W'; GREETING_LEN]);
    bulk_connections.progress(&mut world, due, true);
    assert!(bulk_connections.is_empty() && world.open.is_empty());
    assert_eq!(world.endpoint.counters().bulk.greetings_refused, 1);
}

#[test]
fn a_read_that_was_not_filled_is_the_last_and_another_may_find_more() {
    for (more, reads) in [(true, 2), (false, 1)] {
        let (mut world, mut bulk_connections, at) = with_strangers(1);
        world.more = more;
        world.open.insert(0, alloc::vec![b'W'; GREETING_LEN - 1]);
        world.read_first.clear();
        // (Not every pass reads.)
        for _ in 0..8 {
            bulk_connections.progress(&mut world, at, true);
            if !world.read_first.is_empty() {
                break;
            }
        }
        assert_eq!((world.read_first.len(), bulk_connections.len()), (reads, 1), "{more}");
    }
}

#[test]
fn who_is_closed_makes_and_takes_no_more() {
    let (mut world, mut bulk_connections, at) = with_strangers(2);
    let mut ended = Vec::new();
    bulk_connections.close(|io| ended.push(io));
    ended.sort_unstable();
    assert_eq!(ended, [0, 1]);
    world.waiting.push_back(9);
    bulk_connections.progress(&mut world, at.plus_ns(ROUND_NS), false);
    bulk_connections.connect(&mut world, at, &BulkNews { peer: PeerId(0), remote: HERE, local: None });
    assert!(bulk_connections.is_empty() && !world.open.contains_key(&1000));
    assert_eq!(bulk_connections.next_timeout(&world.endpoint, at), None);
}

// spec: L-6.12
#[test]
fn behind_a_short_record_a_whole_one_is_read() {
    // A message of so many bytes: all that the driver itself looks at.
    let record = |len: u32| {
        let mut record = alloc::vec![0; RECORD_HEAD_LEN + len as usize];
        record[0] = 1;
        record[24..32].copy_from_slice(&u64::from(len).to_le_bytes());
        record[32..36].copy_from_slice(&len.to_le_bytes());
        record
    };
    let mut world = World { good: true, ..World::new() };
    let mut c = in_a_record(3);
    for len in [4000, 16 << 10] {
        world.open.insert(3, record(len));
        assert!(c.read_some(&mut world).is_ok() && c.take_staged(&mut world, round(0)).is_ok());
    }
    assert!(world.stages[0] < 5000 && world.stages[1] > 16 << 10, "{:?}", world.stages);
}

/// Records of so many bytes, made of 1, 2, 3 and so on.
fn records(lens: &[u32]) -> VecDeque<BulkRecord> {
    let record =
        |(i, len): (usize, &u32)| BulkRecord { token: i as u64 + 1, offset: 0, len: *len, last: i + 1 == lens.len() };
    lens.iter().enumerate().map(record).collect()
}

/// What is to be written of them.
fn bytes_of(records: &VecDeque<BulkRecord>) -> Vec<u8> {
    let bytes = |r: &BulkRecord| [&[0xff, r.token as u8][..], &alloc::vec![r.token as u8; r.len as usize]].concat();
    records.iter().flat_map(bytes).collect()
}

// spec: L-6.11
#[test]
fn short_records_in_line_are_written_by_one_call() {
    for (lens, calls) in [
        (&[2000, 3000, 16_384][..], &[21_390][..]),
        (&[16_385, 100], &[16_387, 102]),
        // The fifth is not copied any more, the sixth does not go with them.
        (&[16_000; 6], &[80_010, 16_002]),
        (&[100, 1 << 20, 100], &[102 + (1 << 20) + 2, 102]),
    ] {
        let mut world = World { due: records(lens), takes: [usize::MAX; 9].into(), ..World::new() };
        let (all, mut room) = (bytes_of(&world.due), Vec::new());
        let mut c = in_a_record(3);
        c.out = None;
        assert_eq!(c.write(&mut world, round(0), 4 << 20, &mut room).ok(), Some(all.len() as u64));
        assert_eq!(world.written.iter().map(Vec::len).collect::<Vec<_>>(), calls);
        assert_eq!(world.written.concat(), all);
        assert!(c.out.is_none() && !c.blocked);
    }
}

proptest! {
    /// Wherever the system cuts them.
    #[test]
    fn records_that_go_together_arrive_whole(
        lens in prop::collection::vec(prop_oneof![1u32..50, 16_000u32..17_000], 1..9),
        takes in prop::collection::vec(prop_oneof![Just(0), 1usize..60, 1000usize..40_000], 0..40),
    ) {
        let mut world = World { due: records(&lens), takes: takes.into(), ..World::new() };
        let (all, mut room) = (bytes_of(&world.due), Vec::new());
        let mut c = in_a_record(3);
        c.out = None;
        while !world.takes.is_empty() && (c.out.is_some() || !world.due.is_empty()) {
            prop_assert!(c.write(&mut world, round(0), 4 << 20, &mut room).is_ok());
        }
        world.takes = [usize::MAX; 99].into();
        prop_assert!(c.write(&mut world, round(0), 4 << 20, &mut room).is_ok());
        prop_assert_eq!(world.written.concat(), all);
    }
}

#[test]
fn a_send_given_up_among_those_that_go_together_is_the_end_of_the_connection() {
    let mut due = records(&[100, 100, 100]);
    due[1].token = GIVEN_UP;
    let (mut world, mut bulk_connections) = (World { due, ..World::new() }, BulkConnections::new(LIMITS));
    world.open.insert(3, Vec::new());
    let k = bulk_connections.conns.insert(in_a_record(3));
    bulk_connections.conns[k].out = None;
    bulk_connections.transmit(&mut world, round(0));
    assert_eq!((bulk_connections.len(), &world.over[..], world.written.len()), (0, &[3][..], 0));
}

/// A connection that carries records, in the middle of one.
fn in_a_record(io: u32) -> Conn<u32> {
    let mut c = Conn::new(io, round(0), None, Some(HERE));
    (c.stage, c.peer, c.bulk) = (Stage::Up, PeerId(0), io);
    c.out = Some((BulkRecord { token: u64::MAX, offset: 0, len: 10, last: true }, 5));
    c
}

// spec: L-5.2
#[test]
fn a_record_cut_off_is_a_failure() {
    let (mut world, mut bulk_connections) = (World::new(), BulkConnections::new(LIMITS));
    world.open.insert(3, Vec::new());
    bulk_connections.conns.insert(in_a_record(3));
    bulk_connections.transmit(&mut world, round(0));
    assert_eq!((bulk_connections.len(), world.over.len()), (1, 0), "there was no room");
    world.no_room = false;
    bulk_connections.transmit(&mut world, round(0));
    assert!(bulk_connections.is_empty() && world.open.is_empty());
    assert_eq!(world.over, [3]);
}

#[test]
fn a_bulk_connection_that_the_association_does_not_have_is_dropped_at_the_next_round() {
    let (mut world, mut bulk_connections, at) = with_strangers(1);
    world.open.insert(3, Vec::new());
    let k = bulk_connections.conns.insert(in_a_record(3));
    assert!(!k.is_null());
    assert_eq!(bulk_connections.next_timeout(&world.endpoint, at), Some(at.plus_ns(ROUND_NS)));
    bulk_connections.progress(&mut world, at.plus_ns(ROUND_NS), true);
    assert_eq!((bulk_connections.len(), &world.over[..]), (1, &[3][..]));
}

proptest! {
    /// Whoever sleeps until it is time finds something to do then, or has nothing to wait for:
    /// nobody spins.
    #[test]
    fn nobody_spins(strangers in 0u32..40, sleeps in prop::collection::vec(1u64..700_000_000, 1..20)) {
        let (mut world, mut bulk_connections, mut at) = with_strangers(strangers);
        for sleep in sleeps {
            at = at.plus_ns(sleep);
            bulk_connections.progress(&mut world, at, false);
            prop_assert!(bulk_connections.next_timeout(&world.endpoint, at).is_none_or(|due| due > at));
            prop_assert_eq!(bulk_connections.len(), world.open.len());
        }
        while let Some(due) = bulk_connections.next_timeout(&world.endpoint, at) {
            let before = bulk_connections.len();
            at = due;
            bulk_connections.progress(&mut world, at, false);
            prop_assert!(bulk_connections.len() < before);
        }
    }
}

#[test]
fn while_there_are_none_new_ones_are_looked_for_less_and_less_often() {
    let (mut world, mut bulk_connections) = (World::new(), BulkConnections::new(LIMITS));
    let mut at = Time(ROUND_NS);
    // Until the one that connects at `at` is taken, by somebody who polls all the time.
    let mut taken_after = |bulk_connections: &mut BulkConnections<u32>, at: &mut Time| {
        let since = *at;
        world.waiting.push_back(1);
        while bulk_connections.is_empty() {
            *at = at.plus_ns(ROUND_NS / 10);
            bulk_connections.progress(&mut world, *at, false);
        }
        bulk_connections.close(|_| ());
        at.since_ns(since)
    };
    assert!(taken_after(&mut bulk_connections, &mut at) <= ROUND_NS);
    let idle = |bulk_connections: &mut BulkConnections<u32>, at: &mut Time, rounds: u32| {
        for _ in 0..10 * rounds {
            *at = at.plus_ns(ROUND_NS / 10);
            bulk_connections.progress(&mut World::new(), *at, false);
        }
    };
    let mut bulk_connections = BulkConnections::new(LIMITS);
    idle(&mut bulk_connections, &mut at, 50);
    assert!(taken_after(&mut bulk_connections, &mut at) <= 2 * ROUND_NS, "a program begins");
    let mut bulk_connections = BulkConnections::new(LIMITS);
    idle(&mut bulk_connections, &mut at, 1000);
    bulk_connections.has_slept();
    assert!(taken_after(&mut bulk_connections, &mut at) <= ROUND_NS, "what ended a sleep is looked for");
    let mut bulk_connections = BulkConnections::new(LIMITS);
    idle(&mut bulk_connections, &mut at, 1000);
    let late = taken_after(&mut bulk_connections, &mut at);
    assert!((ROUND_NS..=ROUND_MAX_NS).contains(&late), "{late}");
}
