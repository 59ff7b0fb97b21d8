//! A rank's bulk connections: the driver that ships (`core/bulk-driver`), lent the simulated
//! network and the rank's messages; and greetings sent once more, as somebody on the way might.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use weir_bulk_driver::{Broken, Head, Limits, NotMade, Read, Surroundings};
use weir_link::{BULK_GREETING_NS, BulkNews, BulkRecord, Endpoint, GREETING_LEN, PeerId, RecordIn, Time};
use weir_message::{Memory, Room};

use super::{Core, Shared, address, place};
use crate::planted::Defect;
use crate::rng::Rng;
use crate::spec::Ns;
use crate::tcp::{Arrived, Socket};
use crate::world::Host;

/// As the engine has it; less in a turn, so that turns end in the middle of records.
const LIMITS: Limits = Limits { conns: 1024, turn_bytes: 256 << 10 };
/// Bytes moved by one call.
const CALL_BYTES: usize = 64 << 10;

/// All of a rank.
pub(super) struct BulkConnections {
    /// Some may be taken; else nothing is listened to.
    on: bool,
    /// None if not, and while it works.
    driver: Option<weir_bulk_driver::BulkConnections<Socket>>,
    /// When to look for connections, for some wait.
    accept_at: Option<Ns>,
    /// The system says what the network loses.
    sees_losses: bool,
    /// Chance that a used greeting is sent again, and those that are.
    replays: u32,
    rng: Rng,
    /// What this rank greeted with, and whether it was answered: else the peer may still take it.
    greetings: BTreeMap<(PeerId, u32), ([u8; GREETING_LEN], bool)>,
    replayed: Vec<Replay>,
    /// Records being read.
    records: BTreeMap<(PeerId, u32), RecordIn>,
    scratch: Vec<u8>,
}

/// A greeting that was used is sent once more.
struct Replay {
    io: Socket,
    since: Ns,
    greeting: [u8; GREETING_LEN],
    sent: bool,
}

/// What the driver is lent.
struct Lent<'a, 'h> {
    core: &'a mut Core,
    host: &'a mut Host<'h, Shared>,
}

impl BulkConnections {
    pub(super) fn new(shared: &Shared, endpoint_id: u64) -> BulkConnections {
        let spec = shared.bulk_connections.clone().unwrap_or_default();
        BulkConnections {
            on: shared.bulk_connections.is_some(),
            driver: shared.bulk_connections.is_some().then(|| weir_bulk_driver::BulkConnections::new(LIMITS)),
            accept_at: None,
            sees_losses: spec.sees_losses,
            replays: spec.replays,
            rng: Rng::new(endpoint_id, u64::MAX - 3),
            greetings: BTreeMap::new(),
            replayed: Vec::new(),
            records: BTreeMap::new(),
            scratch: Vec::new(),
        }
    }

    /// Some may be taken.
    pub(super) fn are_on(&self) -> bool {
        self.on
    }

    /// When something of the connections is due.
    pub(super) fn next_wake(&self, endpoint: &Endpoint) -> Option<Ns> {
        let driver = self.driver.as_ref().and_then(|d| d.next_timeout(endpoint, Time(0))).map(|at| at.0);
        let replays = self.replayed.iter().map(|r| r.since + BULK_GREETING_NS + 1);
        driver.into_iter().chain(self.accept_at).chain(replays).min()
    }
}

impl Core {
    /// Connects, accepts and reads.
    pub(super) fn read_bulk_connections(&mut self, host: &mut Host<'_, Shared>) {
        let Some(mut driver) = self.bulk_connections.driver.take() else { return };
        let now = Time(host.now);
        // (Hosts sleep until something comes for them.)
        driver.has_slept();
        driver.progress(&mut Lent { core: self, host }, now, false);
        self.bulk_connections.driver = Some(driver);
        self.bulk_connections.accept_at = host.is_waited_for().then(|| host.now + weir_bulk_driver::ROUND_NS);
        let replayed = std::mem::take(&mut self.bulk_connections.replayed);
        self.bulk_connections.replayed = replayed.into_iter().filter_map(|r| self.replay(host, r)).collect();
    }

    /// Writes what is to go by bulk connections.
    pub(super) fn write_bulk_connections(&mut self, host: &mut Host<'_, Shared>) {
        let Some(mut driver) = self.bulk_connections.driver.take() else { return };
        let now = Time(host.now);
        driver.transmit(&mut Lent { core: self, host }, now);
        self.bulk_connections.driver = Some(driver);
    }

    /// One greeting sent again, until nobody answers it.
    fn replay(&mut self, host: &mut Host<'_, Shared>, mut r: Replay) -> Option<Replay> {
        let lives = (|| {
            if !r.sent && host.is_connected(r.io)? {
                r.sent = host.tcp_write(r.io, &r.greeting)? > 0;
            }
            match host.tcp_read(r.io, &mut [0; GREETING_LEN])? {
                Arrived::Bytes(0) if host.now - r.since <= BULK_GREETING_NS => Ok(()),
                Arrived::Bytes(0) | Arrived::End => Err(Broken),
                Arrived::Bytes(_) => {
                    host.violation("bulk-greeting", format!("{}: a greeting sent again was answered", self.program));
                    Err(Broken)
                }
            }
        })();
        if lives.is_err() {
            host.tcp_close(r.io);
        }
        lives.is_ok().then_some(r)
    }
}

impl Surroundings for Lent<'_, '_> {
    type Stream = Socket;
    type Why = ();

    fn accept(&mut self, _: Time) -> Option<Socket> {
        self.host.accept()
    }

    fn connect(&mut self, news: &BulkNews) -> Result<Socket, NotMade<()>> {
        let there = place(news.remote).filter(|(to, _)| self.host.shared.directory.exists(*to));
        let (to, net) = there.ok_or(NotMade::Lacking)?;
        Ok(self.host.connect(net, to))
    }

    fn is_connected(&mut self, io: &mut Socket) -> Result<bool, ()> {
        self.host.is_connected(*io).map_err(|Broken| ())
    }

    fn close(&mut self, io: Socket) {
        self.host.tcp_close(io);
    }

    fn remote(&self, io: &Socket) -> Option<SocketAddr> {
        self.host.tcp_remote(*io).map(|(to, net)| address(to, net))
    }

    fn lost_segments(&self, io: &Socket) -> Result<u32, Broken> {
        Ok(if self.core.bulk_connections.sees_losses { self.host.tcp_lost(*io) } else { 0 })
    }

    fn write(&mut self, io: &mut Socket, head: &[u8], payload: Option<(&BulkRecord, u32)>) -> Result<usize, Broken> {
        let room = self.host.tcp_room(*io)?.min(CALL_BYTES);
        let bytes = &mut self.core.bulk_connections.scratch;
        bytes.clear();
        bytes.extend_from_slice(&head[..head.len().min(room)]);
        if let Some((record, done)) = payload {
            // If the send was given up, its memory is the caller's again.
            let source = self.core.messages.payload(record.token).ok_or(Broken)?;
            let of_head = bytes.len();
            bytes.resize(of_head + (room - of_head).min((record.len - done) as usize), 0);
            source.read(record.offset + u64::from(done), &mut bytes[of_head..]);
        }
        self.host.tcp_write(*io, bytes)
    }

    fn payload(&mut self, record: &BulkRecord, bytes: &mut Vec<u8>) -> Result<(), Broken> {
        // If the send was given up, its memory is the caller's again.
        let source = self.core.messages.payload(record.token).ok_or(Broken)?;
        let at = bytes.len();
        bytes.resize(at + record.len as usize, 0);
        source.read(record.offset, &mut bytes[at..]);
        Ok(())
    }

    fn read(
        &mut self,
        io: &mut Socket,
        payload: Option<(PeerId, &RecordIn, u32)>,
        stage: &mut [u8],
    ) -> Result<Read, Broken> {
        let rest = payload.map_or(0, |(_, record, done)| (record.len - done) as usize);
        let Core { bulk_connections, messages, .. } = &mut *self.core;
        bulk_connections.scratch.resize((rest + stage.len()).min(CALL_BYTES), 0);
        let Arrived::Bytes(n) = self.host.tcp_read(*io, &mut bulk_connections.scratch)? else { return Ok(Read::End) };
        let (there, behind) = bulk_connections.scratch[..n].split_at(n.min(rest));
        if let Some((peer, record, done)) = payload {
            match messages.record_room(peer.0, record, done) {
                Room::Memory(memory, at) => _ = memory.write(at, there),
                Room::Buffer(buffer) => buffer[..there.len()].copy_from_slice(there),
                // Nobody wants it (any more).
                Room::None => {}
            }
        }
        stage[..behind.len()].copy_from_slice(behind);
        // (A host is woken once for what comes: what lies behind it has to be found now.)
        Ok(Read::Bytes { payload: there.len(), staged: behind.len(), more: n > 0 })
    }

    fn endpoint(&self) -> &Endpoint {
        self.core.messages.endpoint()
    }

    fn endpoint_mut(&mut self) -> &mut Endpoint {
        self.core.messages.endpoint_mut()
    }

    fn takes(&mut self, begins: bool) {
        self.core.messages.set_by_bulk(begins);
    }

    fn record_tells(&mut self, now: Time, peer: PeerId, bulk: u32, head: &[u8]) -> Head {
        let messages = &mut self.core.messages;
        let good = messages.with_events(now, head, |proto, events| proto.record_tells(now, peer, bulk, head, events));
        let answers = messages.completions().0 > 0;
        self.core.settle(self.host);
        match (good, answers) {
            (false, _) => Head::Wrong,
            (true, true) => Head::Answers,
            (true, false) => Head::Good,
        }
    }

    fn record_begins(&mut self, now: Time, peer: PeerId, bulk: u32, head: &[u8]) -> Option<RecordIn> {
        let messages = &mut self.core.messages;
        let record = messages.with_events(now, head, |proto, events| proto.record_begins(now, peer, head, events));
        self.core.settle(self.host);
        let record = record?;
        self.core.messages.record_begins(peer.0, &record);
        self.core.bulk_connections.records.insert((peer, bulk), record);
        Some(record)
    }

    fn record_whole(&mut self, now: Time, peer: PeerId, _: u32, bytes: &[u8], head_len: usize) -> bool {
        let messages = &mut self.core.messages;
        let whole = (bytes, head_len);
        let good = messages.with_events(now, bytes, |proto, events| proto.record_whole(now, peer, whole, events));
        self.core.settle(self.host);
        good
    }

    fn put(&mut self, peer: PeerId, record: &RecordIn, done: u32, bytes: &[u8]) {
        self.core.messages.put_record(peer.0, record, done, bytes);
    }

    /// All bytes of a record are there; some of them may have been before.
    fn record_ends(&mut self, now: Time, peer: PeerId, bulk: u32, record: &RecordIn) {
        self.core.bulk_connections.records.remove(&(peer, bulk));
        if !matches!(self.core.messages.record_room(peer.0, record, 0), Room::None) {
            let there = self.core.pieces.entry((peer, record.key)).or_default();
            there.merge(record.offset, record.offset + u64::from(record.len));
        }
        self.end_record(now, peer, bulk, record);
    }

    fn next_record(&mut self, now: Time, peer: PeerId, bulk: u32, head: &mut Vec<u8>) -> Option<BulkRecord> {
        let record = self.core.messages.endpoint_mut().bulk_next(now, peer, bulk, head)?;
        self.core.messages.record_leaves(&record);
        Some(record)
    }

    fn greeting(&mut self, peer: PeerId) -> Option<(u32, [u8; GREETING_LEN])> {
        let (bulk, greeting) = self.core.messages.endpoint_mut().bulk_greeting(peer)?;
        self.core.bulk_connections.greetings.insert((peer, bulk), (greeting, false));
        Some((bulk, greeting))
    }

    fn greeted(&mut self, now: Time, bytes: &[u8; GREETING_LEN]) -> Option<(PeerId, u32, [u8; GREETING_LEN])> {
        let (peer, bulk, answer) = self.core.messages.endpoint_mut().bulk_greeted(now, bytes)?;
        let highest = &mut self.core.peer_slot(self.host, peer).bulk;
        if bulk <= std::mem::replace(highest, bulk.max(*highest)) {
            let why = format!("{}: bulk connection {bulk} of {peer:?} was greeted before", self.core.program);
            self.host.violation("bulk-greeting", why);
        }
        Some((peer, bulk, answer))
    }

    fn is_up(&mut self, peer: PeerId, bulk: u32) {
        let program = self.core.program;
        self.host.note(51 ^ u64::from(bulk) << 8, || format!("bulk up         {program} {peer:?} #{bulk}"));
        self.core.bulk_connections.records.retain(|of, _| of.0 != peer);
        self.core.bulk_connections.greetings.retain(|of, _| of.0 != peer || of.1 == bulk);
        if let Some((_, answered)) = self.core.bulk_connections.greetings.get_mut(&(peer, bulk)) {
            *answered = true;
        }
    }

    fn is_over(&mut self, now: Time, peer: PeerId, bulk: u32) {
        let program = self.core.program;
        self.host.note(50 ^ u64::from(bulk) << 8, || format!("bulk over       {program} {peer:?} #{bulk}"));
        if let (true, Some(record)) =
            (self.host.shared.has(Defect::CutRecordCounted), self.core.bulk_connections.records.remove(&(peer, bulk)))
        {
            self.end_record(now, peer, bulk, &record);
        }
        let greeting = self.core.bulk_connections.greetings.remove(&(peer, bulk));
        if !self.host.shared.has(Defect::BulkEndUntold) {
            self.core.messages.endpoint_mut().bulk_over(now, peer, bulk);
        }
        let to = self.core.peers.get(&peer).map(|p| p.program.host);
        if let (Some((greeting, true)), Some(to)) = (greeting, to)
            && self.core.bulk_connections.rng.chance(self.core.bulk_connections.replays)
        {
            let io = self.host.connect(0, to);
            self.core.bulk_connections.replayed.push(Replay { io, since: self.host.now, greeting, sent: false });
        }
    }
}

impl Lent<'_, '_> {
    fn end_record(&mut self, now: Time, peer: PeerId, bulk: u32, record: &RecordIn) {
        let messages = &mut self.core.messages;
        messages.with_events(now, &[], |proto, events| proto.record_ends(now, peer, bulk, record, events));
        self.core.settle(self.host);
    }
}
