//! One connection: greeted, read into records, and written to.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::SocketAddr;

use weir_link::{BulkHealth, BulkNews, BulkRecord, GREETING_LEN, PeerId, RECORD_HEAD_LEN, RecordHead, RecordIn, Time};

use crate::surroundings::{Broken, Head, Read, Surroundings};

/// Payload that is read with its head where the last record had no more: to copy it costs less than
/// another call to the system.
const SHORT_PAYLOAD: u32 = 16 << 10;
/// The longest head of a record, bytes, and some room.
const HEAD_ROOM: usize = 256;
/// What is read besides a payload, at most: heads, and short payloads whole.
pub const STAGE_BYTES: usize = SHORT_PAYLOAD as usize + HEAD_ROOM;
/// The same behind a longer record: what is read of the next payload is read in vain, for its place
/// is known from the head on. (Short ones of up to 4 KiB come whole even so.)
const STAGE_BYTES_LONG: usize = 4096 + HEAD_ROOM;

/// So many bytes of short records go together.
const TOGETHER_BYTES: usize = 64 << 10;

/// Where a connection stands.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// Ours, not connected yet.
    Connecting,
    /// Ours, greeted; the answer is awaited.
    Greeted,
    /// Somebody's; the greeting is awaited.
    Stranger,
    /// Records may come.
    Up,
}

/// Why a connection is dropped.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Over<W> {
    /// It failed, or the network or the peer is not up to it: the next one is a while off.
    Failed,
    /// It could not be made. None: nobody answered.
    NotMade(Option<W>),
}

impl<W> From<Broken> for Over<W> {
    fn from(_: Broken) -> Over<W> {
        Over::Failed
    }
}

/// One connection.
pub(crate) struct Conn<S> {
    pub io: S,
    pub stage: Stage,
    pub since: Time,
    /// Whose it is, but for a stranger; and where that one is.
    pub peer: PeerId,
    pub to: SocketAddr,
    pub bulk: u32,
    /// Bytes read and not yet looked at: a greeting, or heads.
    staged: Box<[u8; STAGE_BYTES]>,
    pub have: usize,
    /// A head was left there, to be looked at in the next pass.
    pub put_off: bool,
    /// How much of the stage is read into, at least.
    reach: usize,
    /// The record whose payload is being read, and how much of it is there.
    record: Option<(RecordIn, u32)>,
    /// The head of the record being written, behind records that go before it, and how much of that
    /// went out; then its payload.
    head: Vec<u8>,
    head_done: usize,
    pub out: Option<(BulkRecord, u32)>,
    /// It had no room when last written to, and who watches it knows.
    pub blocked: bool,
    pub health: BulkHealth,
}

/// What a step may end in.
type Step<T, E> = Result<T, Over<<E as Surroundings>::Why>>;

impl<S> Conn<S> {
    /// Of somebody who is at `to`; `news`: of a peer that this endpoint connects to.
    pub fn new(io: S, now: Time, news: Option<&BulkNews>, to: Option<SocketAddr>) -> Self {
        Conn {
            io,
            stage: if news.is_some() { Stage::Connecting } else { Stage::Stranger },
            since: now,
            peer: news.map_or(PeerId(u32::MAX), |n| n.peer),
            to: to.unwrap_or(SocketAddr::from(([0; 4], 0))),
            bulk: 0,
            staged: Box::new([0; STAGE_BYTES]),
            have: 0,
            put_off: false,
            reach: STAGE_BYTES_LONG,
            record: None,
            head: Vec::new(),
            head_done: 0,
            out: None,
            blocked: false,
            health: BulkHealth::new(now),
        }
    }

    /// Forgets the first `n` staged bytes.
    fn unstage(&mut self, n: usize) {
        self.staged.copy_within(n..self.have, 0);
        self.have -= n;
    }

    /// Greets once connected.
    pub fn greet<E: Surroundings<Stream = S>>(&mut self, on: &mut E, now: Time) -> Step<(), E> {
        if !on.is_connected(&mut self.io).map_err(|why| Over::NotMade(Some(why)))? {
            return Ok(());
        }
        on.answers_tcp(self.peer);
        let (bulk, greeting) = on.greeting(self.peer).ok_or(Over::Failed)?;
        (self.bulk, self.stage, self.since) = (bulk, Stage::Greeted, now);
        // The first bytes of a connection always find room.
        let n = on.write(&mut self.io, &greeting, None)?;
        if n == GREETING_LEN { Ok(()) } else { Err(Over::Failed) }
    }

    /// A greeting, or the answer to ours, may be there.
    fn greeted<E: Surroundings<Stream = S>>(&mut self, on: &mut E, now: Time) -> Step<(), E> {
        let Some(bytes) = self.staged[..self.have].first_chunk::<GREETING_LEN>().copied() else { return Ok(()) };
        if self.stage == Stage::Greeted {
            if !on.endpoint_mut().bulk_answered(now, self.peer, self.bulk, &bytes) {
                return Err(Over::Failed);
            }
            self.stage = Stage::Up;
        } else {
            let (peer, bulk, answer) = on.greeted(now, &bytes).ok_or(Over::Failed)?;
            (self.peer, self.bulk, self.stage) = (peer, bulk, Stage::Up);
            on.endpoint_mut().sessions_mut().hold(peer);
            if on.write(&mut self.io, &answer, None)? != GREETING_LEN {
                return Err(Over::Failed);
            }
        }
        on.is_up(self.peer, self.bulk);
        self.health = BulkHealth::new(now);
        self.unstage(GREETING_LEN);
        Ok(())
    }

    /// Reads some `most` bytes. Returns how many came.
    pub fn read<E: Surroundings<Stream = S>>(&mut self, on: &mut E, now: Time, most: u64) -> Step<u64, E> {
        let mut total = 0;
        if self.stage == Stage::Up && !on.endpoint().bulk_is_up(self.peer, self.bulk) {
            // The peer has said so by packets, and sends by them what may lie here unread.
            return Err(Over::Failed);
        }
        if core::mem::take(&mut self.put_off) {
            self.take_staged(on, now)?;
        }
        while total < most && !self.put_off {
            let (came, more) = self.read_some(on)?;
            if came == 0 {
                break;
            }
            total += came as u64;
            self.take_staged(on, now)?;
            if !more {
                break;
            }
        }
        Ok(total)
    }

    /// One call to the system: into the place of the record's payload and, behind it, the stage.
    /// Returns how much came, bytes, and whether another call may find more.
    pub fn read_some<E: Surroundings<Stream = S>>(&mut self, on: &mut E) -> Step<(usize, bool), E> {
        let payload = self.record.as_ref().map(|(record, done)| (self.peer, record, *done));
        let reach = self.reach.max(self.have + HEAD_ROOM).min(STAGE_BYTES);
        let stage = &mut self.staged[self.have..reach];
        let Read::Bytes { payload, staged, more } = on.read(&mut self.io, payload, stage)? else {
            return Err(Over::Failed);
        };
        if let Some((_, done)) = &mut self.record {
            *done += payload as u32;
        }
        self.have += staged;
        Ok((payload + staged, more))
    }

    /// Takes greetings, heads and payload out of the stage, and ends the record that is complete.
    pub fn take_staged<E: Surroundings<Stream = S>>(&mut self, on: &mut E, now: Time) -> Step<(), E> {
        on.takes(true);
        let result = self.take_records(on, now);
        on.takes(false);
        result
    }

    fn take_records<E: Surroundings<Stream = S>>(&mut self, on: &mut E, now: Time) -> Step<(), E> {
        if self.stage != Stage::Up {
            self.greeted(on, now)?;
            if self.stage != Stage::Up {
                return Ok(());
            }
        }
        let (peer, bulk) = (self.peer, self.bulk);
        let mut at = 0;
        loop {
            if let Some((record, done)) = &mut self.record {
                let n = ((record.len - *done) as usize).min(self.have - at);
                if n > 0 {
                    on.put(peer, record, *done, &self.staged[at..at + n]);
                    (*done, at) = (*done + n as u32, at + n);
                }
                if *done < record.len {
                    break;
                }
                let record = *record;
                self.record = None;
                self.reach = if record.len <= SHORT_PAYLOAD { STAGE_BYTES } else { STAGE_BYTES_LONG };
                on.record_ends(now, peer, bulk, &record);
            }
            let staged = &self.staged[at..self.have];
            let whole = |n: &usize| (RECORD_HEAD_LEN..=staged.len()).contains(n);
            let Some(len) = RecordHead::len_with_envelope(staged).filter(whole) else { break };
            let head = &staged[..len];
            match on.record_tells(now, peer, bulk, head) {
                Head::Wrong => return Err(Over::Failed),
                Head::Good => {}
                Head::Answers => {
                    // Who waited for the send may want to post the receive first, so that it need
                    // not be copied.
                    self.put_off = true;
                    break;
                }
            }
            let end = RecordHead::whole_message(head).map_or(usize::MAX, |payload| len + payload as usize);
            if let Some(whole) = staged.get(..end) {
                if !on.record_whole(now, peer, bulk, whole, len) {
                    return Err(Over::Failed);
                }
                at += end;
                self.reach = STAGE_BYTES;
                continue;
            }
            self.record = Some((on.record_begins(now, peer, bulk, head).ok_or(Over::Failed)?, 0));
            at += len;
        }
        self.unstage(at);
        Ok(())
    }

    /// Writes records until there is no more, or no room, or some `most` bytes are written. Returns
    /// how many were. `room`: of all connections, where they put records together.
    pub fn write<E: Surroundings<Stream = S>>(
        &mut self,
        on: &mut E,
        now: Time,
        most: u64,
        room: &mut Vec<u8>,
    ) -> Step<u64, E> {
        if self.out.is_none() {
            self.head = core::mem::take(room);
        }
        let turn = self.write_records(on, now, most);
        if self.out.is_none() {
            *room = core::mem::take(&mut self.head);
        }
        turn
    }

    fn write_records<E: Surroundings<Stream = S>>(&mut self, on: &mut E, now: Time, most: u64) -> Step<u64, E> {
        let mut turn = 0;
        self.blocked = false;
        while turn < most {
            let (record, done) = match self.out {
                Some(out) => out,
                None => {
                    let Some(record) = self.next(on, now)? else { break };
                    (record, 0)
                }
            };
            self.out = Some((record, done));
            // A record cut off, since its send was given up, counts for nothing; to the peer the
            // bulk connection has failed, and so it has here.
            let n = on.write(&mut self.io, &self.head[self.head_done..], Some((&record, done)))?;
            if n == 0 {
                self.blocked = true;
                break;
            }
            turn += n as u64;
            let of_head = n.min(self.head.len() - self.head_done);
            self.head_done += of_head;
            let done = done + (n - of_head) as u32;
            self.out = (done < record.len).then_some((record, done));
        }
        Ok(turn)
    }

    /// The next record, and in front of its head, all of it, the short ones that stand before it in
    /// line: one call to the system takes them.
    fn next<E: Surroundings<Stream = S>>(&mut self, on: &mut E, now: Time) -> Step<Option<BulkRecord>, E> {
        self.head.clear();
        self.head_done = 0;
        loop {
            let Some(record) = on.next_record(now, self.peer, self.bulk, &mut self.head) else {
                // (Behind one that is not the last there is another.)
                return if self.head.is_empty() { Ok(None) } else { Err(Over::Failed) };
            };
            let end = self.head.len() + record.len as usize;
            if record.last || record.len > SHORT_PAYLOAD || end > TOGETHER_BYTES {
                return Ok(Some(record));
            }
            on.payload(&record, &mut self.head)?;
        }
    }

    /// Looks now and then whether the bulk connection is worth having.
    pub fn watch<E: Surroundings<Stream = S>>(&mut self, on: &mut E, now: Time) -> Step<(), E> {
        let read = on.endpoint().bulk_waits(self.peer, self.bulk);
        let lost = || {
            // TCP may not know yet, or never find out: what is sent by packets to the same address
            // gets no answer.
            let failed = on.endpoint().path_has_failed(self.peer, self.to.ip());
            if failed { Err(Broken) } else { on.lost_segments(&self.io) }
        };
        if self.health.suffers(now, read, lost)? {
            return Err(Over::Failed);
        }
        if self.health.is_to_ask(now) {
            on.endpoint_mut().ask_path(now, self.peer, self.to.ip());
        }
        Ok(())
    }
}
