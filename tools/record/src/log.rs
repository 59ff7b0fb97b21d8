//! The file that the recorder writes for each process (`spec/recording.md`), and the text that went
//! into it.

use std::collections::BTreeMap;

use thiserror::Error;

/// What every file begins with.
pub const MAGIC: &[u8; 8] = b"WEIRREC2";
/// Bytes a file has at most; the recorder stops there.
pub const MOST_BYTES: usize = 64 << 20;
/// Calls, and requests that they complete, in all files together: a model of more takes more memory
/// and time than anybody expects.
pub const MOST_CALLS: usize = 4_000_000;
/// Members of communicators in all files together.
pub const MOST_MEMBERS: usize = 1 << 25;
/// Bytes of all files together.
pub const MOST_TOGETHER: usize = 256 << 20;
/// Places of calls in a file; the recorder writes fewer.
const MOST_SITES: usize = 4096;
/// Processes of a recorded run at most.
pub const MOST_PROCESSES: u64 = 65_536;

/// A peer: `MPI_PROC_NULL`.
pub const NULL_PEER: i64 = -1;
/// A peer or tag: any.
pub const ANY: i64 = -2;
/// In place of a source: what completed was no receive.
const NOT_RECEIVED: i64 = -3;

const SITE: u8 = 1;
const COMM: u8 = 2;
const CALL: u8 = 3;
const UNSEEN: u8 = 4;
const END: u8 = 5;

/// Names of the collectives, in the order of their numbers from 32.
pub const COLLECTIVES: [&str; 16] = [
    "Barrier",
    "Bcast",
    "Gather",
    "Gatherv",
    "Scatter",
    "Scatterv",
    "Allgather",
    "Allgatherv",
    "Alltoall",
    "Alltoallv",
    "Reduce",
    "Allreduce",
    "Reduce_scatter",
    "Reduce_scatter_block",
    "Scan",
    "Exscan",
];
/// Names of the sends, in the order of their numbers from 0; from 4 those that begin only.
pub const SENDS: [&str; 8] = ["Send", "Ssend", "Bsend", "Rsend", "Isend", "Issend", "Ibsend", "Irsend"];

/// What a receive got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Got {
    /// Process number in `MPI_COMM_WORLD`, [`NULL_PEER`].
    pub source: i64,
    /// Its tag.
    pub tag: i64,
    /// Its length.
    pub bytes: u64,
}

/// A call of MPI. Peers are process numbers in `MPI_COMM_WORLD`, [`NULL_PEER`] or [`ANY`]; requests
/// are the lowest numbers free at the time; communicators are numbers, 0 is `MPI_COMM_WORLD`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are MPI's arguments of these names")]
pub enum Call {
    /// `kind` counts in [`SENDS`]; those from 4 have a request.
    Send { kind: u8, to: i64, tag: i64, bytes: u64, comm: u64, request: Option<u64> },
    /// With a request if it only begins, else with what came.
    Recv { from: i64, tag: i64, comm: u64, request: Option<u64>, got: Option<Got> },
    /// Both at once.
    Sendrecv { to: i64, tag: i64, bytes: u64, from: i64, recvtag: i64, comm: u64, got: Got },
    /// Also `MPI_Iprobe` that found something.
    Probe { from: i64, tag: i64, comm: u64, got: Got },
    /// Requests that were completed: by one name or (`all`) as a list; `any`: others of the list
    /// were not.
    Wait { all: bool, any: bool, done: Vec<(u64, Option<Got>)> },
    /// `kind` counts in [`COLLECTIVES`].
    Collective { kind: u8, bytes: u64, root: i64, comm: u64, request: Option<u64> },
    /// A request that is given up: its operation goes on by itself.
    Free { request: u64 },
    /// The last one.
    Finalize,
}

/// A call, when and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// An index into [`Recording::sites`] from 1; 0: not known.
    pub site: u32,
    /// How long the process did without MPI before it.
    pub before_ns: u64,
    /// How long the call lasted.
    pub inside_ns: u64,
    /// What was called.
    pub call: Call,
}

/// Where calls stand: a place in a program file.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Site {
    /// The file, as the dynamic linker calls it.
    pub object: String,
    /// The place behind the call, as addresses are counted in that file.
    pub offset: u64,
}

/// What one process did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Recording {
    /// Its number.
    pub rank: u64,
    /// How many there were.
    pub size: u64,
    /// A number that all files of one run have, and those of another have not.
    pub run: u64,
    /// Places of calls.
    pub sites: Vec<Site>,
    /// Communicators other than `MPI_COMM_WORLD`: number and members, in the order of their ranks.
    pub comms: BTreeMap<u64, Vec<u64>>,
    /// The calls in order.
    pub events: Vec<Event>,
    /// What it did that no model can be made of.
    pub unseen: Vec<String>,
}

/// Why a file is no recording.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LogError {
    /// It is none at all.
    #[error("is no recording of weir record")]
    Foreign,
    /// It ends early.
    #[error("ends early, at byte {0}: the process did not reach MPI_Finalize, or the disk was full")]
    Short(usize),
    /// It is longer than the recorder writes.
    #[error("is longer than {} MiB", MOST_BYTES >> 20)]
    Long,
    /// All files together hold more than a model is made of.
    #[error("makes more than {0} in all recordings together: record a shorter run, or fewer processes")]
    Many(String),
    /// Something in it cannot be.
    #[error("is damaged at byte {at}: {what}")]
    Damaged {
        /// Where.
        at: usize,
        /// What is wrong.
        what: &'static str,
    },
}

/// Reads numbers; knows where it is.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Where `bytes` begin in the file.
    base: usize,
}

impl Reader<'_> {
    fn damaged(&self, what: &'static str) -> LogError {
        LogError::Damaged { at: self.base + self.at, what }
    }

    fn short(&self) -> LogError {
        LogError::Short(self.base + self.bytes.len())
    }

    fn is_done(&self) -> bool {
        self.at >= self.bytes.len()
    }

    fn byte(&mut self) -> Result<u8, LogError> {
        let byte = *self.bytes.get(self.at).ok_or_else(|| self.short())?;
        self.at += 1;
        Ok(byte)
    }

    /// The number of a communicator or request: the recorder counts them by 31 bits, and rules are
    /// made of them.
    fn id(&mut self) -> Result<u64, LogError> {
        let id = self.number()?;
        if id >> 31 != 0 { Err(self.damaged("no communicator or request has this number")) } else { Ok(id) }
    }

    fn number(&mut self) -> Result<u64, LogError> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let part = u64::from(byte & 127);
            if part << shift >> shift != part {
                return Err(self.damaged("a number beyond 64 bits"));
            }
            value |= part << shift;
            if byte < 128 {
                return Ok(value);
            }
        }
        Err(self.damaged("a number beyond 64 bits"))
    }

    fn signed(&mut self) -> Result<i64, LogError> {
        let value = self.number()?;
        Ok((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }

    /// A process, or one of the numbers below 0 that mean something.
    fn peer(&mut self, size: u64, least: i64) -> Result<i64, LogError> {
        let peer = self.signed()?;
        let most = size.min(MOST_PROCESSES).cast_signed();
        if peer < least || peer >= most { Err(self.damaged("no process has this number")) } else { Ok(peer) }
    }

    fn tag(&mut self, least: i64) -> Result<i64, LogError> {
        let tag = self.signed()?;
        if (least..=i64::from(i32::MAX)).contains(&tag) { Ok(tag) } else { Err(self.damaged("no tag is like this")) }
    }

    fn bytes_of_message(&mut self) -> Result<u64, LogError> {
        let bytes = self.number()?;
        if bytes < 1 << 62 { Ok(bytes) } else { Err(self.damaged("a message longer than any memory")) }
    }

    fn text(&mut self) -> String {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        self.at = self.bytes.len();
        String::from_utf8_lossy(rest).chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
    }
}

/// What the files that are read together may still hold.
#[derive(Debug, Clone, Copy)]
pub struct Room {
    calls: usize,
    members: usize,
    bytes: usize,
}

impl Default for Room {
    fn default() -> Self {
        Self { calls: MOST_CALLS, members: MOST_MEMBERS, bytes: MOST_TOGETHER }
    }
}

impl Room {
    /// Bytes that the next file may have.
    #[must_use]
    pub fn of_a_file(&self) -> usize {
        MOST_BYTES.min(self.bytes)
    }

    fn call(&mut self) -> Result<(), LogError> {
        let many = || LogError::Many(format!("{MOST_CALLS} calls"));
        self.calls = self.calls.checked_sub(1).ok_or_else(many)?;
        Ok(())
    }

    fn member(&mut self) -> Result<(), LogError> {
        let many = || LogError::Many(format!("{MOST_MEMBERS} members of communicators"));
        self.members = self.members.checked_sub(1).ok_or_else(many)?;
        Ok(())
    }

    fn file(&mut self, bytes: usize) -> Result<(), LogError> {
        if bytes > MOST_BYTES {
            return Err(LogError::Long);
        }
        let many = || LogError::Many(format!("{} MiB", MOST_TOGETHER >> 20));
        self.bytes = self.bytes.checked_sub(bytes).ok_or_else(many)?;
        Ok(())
    }
}

impl Recording {
    /// Reads a file.
    ///
    /// # Errors
    /// If it is no whole recording.
    pub fn read(bytes: &[u8]) -> Result<Self, LogError> {
        Self::read_within(bytes, &mut Room::default())
    }

    /// Reads one of several files, which share a room.
    ///
    /// # Errors
    /// If it is no whole recording, or there is no room for it.
    pub fn read_within(bytes: &[u8], room: &mut Room) -> Result<Self, LogError> {
        room.file(bytes.len())?;
        if bytes.len() < MAGIC.len() && MAGIC.starts_with(bytes) {
            return Err(LogError::Short(bytes.len()));
        }
        if !bytes.starts_with(MAGIC) {
            return Err(LogError::Foreign);
        }
        let mut reader = Reader { bytes, at: MAGIC.len(), base: 0 };
        let (rank, size, run) = (reader.number()?, reader.number()?, reader.number()?);
        let mut out = Self { rank, size, run, ..Self::default() };
        if out.rank >= out.size || out.size > MOST_PROCESSES {
            return Err(reader.damaged("this process cannot be one of so many"));
        }
        loop {
            let kind = reader.byte()?;
            let length = usize::try_from(reader.number()?).unwrap_or(usize::MAX);
            let rest = reader.bytes.get(reader.at..).unwrap_or_default();
            let body = rest.get(..length).ok_or_else(|| reader.short())?;
            let mut inner = Reader { bytes: body, at: 0, base: reader.at };
            let ended = out.record(kind, &mut inner, room).map_err(|error| match error {
                // What a record lacks is no fault of the file's length.
                LogError::Short(at) => LogError::Damaged { at, what: "a record is too short" },
                other => other,
            })?;
            if !inner.is_done() {
                return Err(inner.damaged("a record is too long"));
            }
            reader.at += length;
            if ended {
                break;
            }
        }
        if reader.is_done() { Ok(out) } else { Err(reader.damaged("something follows the end")) }
    }

    /// Takes up a record; whether it is the last.
    fn record(&mut self, kind: u8, from: &mut Reader, room: &mut Room) -> Result<bool, LogError> {
        match kind {
            SITE => {
                let id = from.number()?;
                if id != self.sites.len() as u64 + 1 || self.sites.len() >= MOST_SITES {
                    return Err(from.damaged("places are not numbered in order"));
                }
                let offset = from.number()?;
                self.sites.push(Site { offset, object: from.text() });
            }
            COMM => {
                let id = from.id()?;
                let mut members = Vec::new();
                while !from.is_done() {
                    room.member()?;
                    let member = from.number()?;
                    if member >= self.size {
                        return Err(from.damaged("no process has this number"));
                    }
                    members.push(member);
                }
                let mut sorted = members.clone();
                sorted.sort_unstable();
                sorted.dedup();
                if id == 0 || sorted.len() != members.len() || members.is_empty() {
                    return Err(from.damaged("no communicator is like this"));
                }
                if self.comms.insert(id, members).is_some() {
                    return Err(from.damaged("a communicator is there twice"));
                }
            }
            CALL => {
                room.call()?;
                let event = self.event(from, room)?;
                self.events.push(event);
            }
            UNSEEN => {
                let text = from.text();
                if !self.unseen.contains(&text) && self.unseen.len() < 64 {
                    self.unseen.push(text);
                }
            }
            END => {
                let calls = from.number()?;
                if calls != self.events.len() as u64
                    || !matches!(self.events.last(), Some(e) if e.call == Call::Finalize)
                {
                    return Err(from.damaged("calls are missing"));
                }
                return Ok(true);
            }
            _ => return Err(from.damaged("no record is of this kind")),
        }
        Ok(false)
    }

    fn event(&self, from: &mut Reader, room: &mut Room) -> Result<Event, LogError> {
        let op = from.number()?;
        let site = from.number()?;
        let site = u32::try_from(site).ok().filter(|s| *s as usize <= self.sites.len());
        let site = site.ok_or_else(|| from.damaged("no place has this number"))?;
        let (before_ns, inside_ns) = (from.number()?, from.number()?);
        if self.events.last().is_some_and(|e| e.call == Call::Finalize) {
            return Err(from.damaged("a call behind the last one"));
        }
        let op = u8::try_from(op).map_err(|_| from.damaged("no call has this number"))?;
        Ok(Event { site, before_ns, inside_ns, call: self.call(op, from, room)? })
    }

    fn comm(&self, from: &mut Reader) -> Result<u64, LogError> {
        let id = from.number()?;
        let known = id == 0 || self.comms.contains_key(&id);
        if known { Ok(id) } else { Err(from.damaged("no communicator has this number")) }
    }

    fn call(&self, op: u8, from: &mut Reader, room: &mut Room) -> Result<Call, LogError> {
        let size = self.size;
        let got = |from: &mut Reader| {
            Ok::<_, LogError>(Got {
                source: from.peer(size, NULL_PEER)?,
                tag: from.tag(-1)?,
                bytes: from.bytes_of_message()?,
            })
        };
        Ok(match op {
            0..8 => {
                let (to, tag, bytes) = (from.peer(size, NULL_PEER)?, from.tag(0)?, from.bytes_of_message()?);
                let comm = self.comm(from)?;
                let request = if op >= 4 { Some(from.id()?) } else { None };
                Call::Send { kind: op, to, tag, bytes, comm, request }
            }
            8 | 9 => {
                let (wanted, tag, comm) = (from.peer(size, ANY)?, from.tag(ANY)?, self.comm(from)?);
                let (request, got) = if op == 9 { (Some(from.id()?), None) } else { (None, Some(got(from)?)) };
                Call::Recv { from: wanted, tag, comm, request, got }
            }
            10 => Call::Sendrecv {
                to: from.peer(size, NULL_PEER)?,
                tag: from.tag(0)?,
                bytes: from.bytes_of_message()?,
                from: from.peer(size, ANY)?,
                recvtag: from.tag(ANY)?,
                comm: self.comm(from)?,
                got: got(from)?,
            },
            11 => Call::Probe {
                from: from.peer(size, ANY)?,
                tag: from.tag(ANY)?,
                comm: self.comm(from)?,
                got: got(from)?,
            },
            12 => {
                let (all, any) = (from.number()? != 0, from.number()? != 0);
                let mut done = Vec::new();
                while !from.is_done() {
                    room.call()?;
                    let request = from.id()?;
                    let source = from.signed()?;
                    let got = if source == NOT_RECEIVED {
                        None
                    } else if (NULL_PEER..size.cast_signed()).contains(&source) {
                        Some(Got { source, tag: from.tag(-1)?, bytes: from.bytes_of_message()? })
                    } else {
                        return Err(from.damaged("no process has this number"));
                    };
                    done.push((request, got));
                }
                if done.is_empty() || (!all && done.len() > 1) {
                    return Err(from.damaged("a wait for no request, or for more than it can name"));
                }
                Call::Wait { all, any, done }
            }
            13 => Call::Finalize,
            14 => Call::Free { request: from.id()? },
            32..48 | 64..80 => {
                let (bytes, root, comm) = (from.bytes_of_message()?, from.peer(size, NULL_PEER)?, self.comm(from)?);
                let request = if op >= 64 { Some(from.id()?) } else { None };
                Call::Collective { kind: (op - 32) % 32, bytes, root, comm, request }
            }
            _ => return Err(from.damaged("no call has this number")),
        })
    }

    /// The file that reads as this.
    #[must_use]
    pub fn written(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        number(&mut out, self.rank);
        number(&mut out, self.size);
        number(&mut out, self.run);
        for (at, site) in self.sites.iter().enumerate() {
            let mut body = Vec::new();
            number(&mut body, at as u64 + 1);
            number(&mut body, site.offset);
            body.extend_from_slice(site.object.as_bytes());
            record(&mut out, SITE, &body);
        }
        for (id, members) in &self.comms {
            let mut body = Vec::new();
            number(&mut body, *id);
            members.iter().for_each(|member| number(&mut body, *member));
            record(&mut out, COMM, &body);
        }
        for event in &self.events {
            record(&mut out, CALL, &body_of(event));
        }
        for text in &self.unseen {
            record(&mut out, UNSEEN, text.as_bytes());
        }
        let mut body = Vec::new();
        number(&mut body, self.events.len() as u64);
        record(&mut out, END, &body);
        out
    }
}

fn record(out: &mut Vec<u8>, kind: u8, body: &[u8]) {
    out.push(kind);
    number(out, body.len() as u64);
    out.extend_from_slice(body);
}

fn number(out: &mut Vec<u8>, mut value: u64) {
    while value > 127 {
        out.push((value & 127) as u8 | 128);
        value >>= 7;
    }
    out.push(value as u8);
}

fn signed(out: &mut Vec<u8>, value: i64) {
    number(out, (value << 1 ^ value >> 63).cast_unsigned());
}

fn got_of(out: &mut Vec<u8>, got: Got) {
    signed(out, got.source);
    signed(out, got.tag);
    number(out, got.bytes);
}

fn body_of(event: &Event) -> Vec<u8> {
    let op = match &event.call {
        Call::Send { kind, .. } => *kind,
        Call::Recv { request, .. } => 8 + u8::from(request.is_some()),
        Call::Sendrecv { .. } => 10,
        Call::Probe { .. } => 11,
        Call::Wait { .. } => 12,
        Call::Finalize => 13,
        Call::Free { .. } => 14,
        Call::Collective { kind, request, .. } => 32 + *kind + if request.is_some() { 32 } else { 0 },
    };
    let mut out = Vec::new();
    for value in [u64::from(op), u64::from(event.site), event.before_ns, event.inside_ns] {
        number(&mut out, value);
    }
    match &event.call {
        Call::Send { to, tag, bytes, comm, request, .. } => {
            signed(&mut out, *to);
            signed(&mut out, *tag);
            number(&mut out, *bytes);
            number(&mut out, *comm);
            request.iter().for_each(|r| number(&mut out, *r));
        }
        Call::Recv { from, tag, comm, request, got } => {
            signed(&mut out, *from);
            signed(&mut out, *tag);
            number(&mut out, *comm);
            request.iter().for_each(|r| number(&mut out, *r));
            got.iter().for_each(|g| got_of(&mut out, *g));
        }
        Call::Sendrecv { to, tag, bytes, from, recvtag, comm, got } => {
            signed(&mut out, *to);
            signed(&mut out, *tag);
            number(&mut out, *bytes);
            signed(&mut out, *from);
            signed(&mut out, *recvtag);
            number(&mut out, *comm);
            got_of(&mut out, *got);
        }
        Call::Probe { from, tag, comm, got } => {
            signed(&mut out, *from);
            signed(&mut out, *tag);
            number(&mut out, *comm);
            got_of(&mut out, *got);
        }
        Call::Wait { all, any, done } => {
            number(&mut out, u64::from(*all));
            number(&mut out, u64::from(*any));
            for (request, got) in done {
                number(&mut out, *request);
                match got {
                    Some(got) => got_of(&mut out, *got),
                    None => signed(&mut out, NOT_RECEIVED),
                }
            }
        }
        Call::Collective { bytes, root, comm, request, .. } => {
            number(&mut out, *bytes);
            signed(&mut out, *root);
            number(&mut out, *comm);
            request.iter().for_each(|r| number(&mut out, *r));
        }
        Call::Free { request } => number(&mut out, *request),
        Call::Finalize => {}
    }
    out
}
