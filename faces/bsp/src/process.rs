//! A process of a BSP program, from `bsp_begin` to `bsp_end`.

use crate::aligned::Aligned;
use crate::bootstrap::Bootstrap;
use crate::conflicts::Places;
use crate::counts;
use crate::fail;
use crate::forwarding::Buffers;
use crate::head::WIRE_VERSION;
use crate::ledger::Ledger;
use crate::meeting::{Meeting, Offer};
use crate::packing::{Letters, PACKED_MAX, Records};
use crate::place::Place;
use crate::queue::Inbox;
use crate::registry::{NULL_AREA, Registry, RegistryError};
use crate::settings::{Settings, is_level};
use crate::short::{Aim, Short, Way};
use crate::superstep::Scratch;
use crate::wire::Wire;
use std::io::Write;
use std::sync::Arc;
use std::time::Instant;
use weir_engine::{Diagnostic, Endpoint, EngineConfig, NAME_BYTES, shares_memory};
use weir_job::KEY_BYTES;

/// Memory of the program's: where a get puts what it reads, or from where a put is.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// Its first byte.
    pub into: *mut u8,
    /// How much.
    pub len: usize,
}

/// What is asked for of one process in this superstep.
#[derive(Debug, Default)]
pub struct Outgoing {
    /// What is put.
    pub puts: Records,
    /// What is got, ...
    pub gets: Records,
    /// ... and where it goes.
    pub wanted: Vec<Wanted>,
    /// Sources of puts that travel alone, ...
    pub puts_apart: Vec<Wanted>,
    /// ... and destinations of such gets.
    pub gets_apart: Vec<Wanted>,
    /// Messages.
    pub letters: Letters,
    /// Where puts and gets were asked for, in check mode, ...
    pub places: Option<Places>,
    /// ... and where gets go in the order of their calls; the same as it travels.
    pub got: Vec<Wanted>,
    /// The same.
    pub sealed: Vec<u8>,
}

impl Outgoing {
    /// Nothing is asked for yet.
    #[must_use]
    pub fn new(check: bool) -> Outgoing {
        let mut out = Outgoing { places: check.then(Places::default), ..Outgoing::default() };
        (out.puts.separate, out.gets.separate) = (check, check);
        out
    }

    /// Nothing more is asked for.
    pub fn seal(&mut self) {
        if let Some(places) = &self.places {
            self.sealed = places.encode();
        }
    }

    /// Empty again; its memory is kept.
    pub fn clear(&mut self) {
        self.puts.clear();
        self.gets.clear();
        self.letters.clear();
        for list in [&mut self.wanted, &mut self.puts_apart, &mut self.gets_apart, &mut self.got] {
            list.clear();
        }
        self.sealed.clear();
        if let Some(places) = &mut self.places {
            places.clear();
        }
    }

    /// Bytes that come in one piece.
    #[must_use]
    pub fn wanted_bytes(&self) -> usize {
        self.wanted.iter().map(|w| w.len).sum()
    }

    /// Where gets go, and where they were asked for; in check mode.
    pub fn wanted_places(&self) -> impl Iterator<Item = (&Wanted, &str, bool)> {
        let places = self.places.iter();
        places.flat_map(|places| {
            self.got.iter().enumerate().map(|(nth, wanted)| {
                let (place, unbuffered) = places.of_get(nth);
                (wanted, place, unbuffered)
            })
        })
    }
}

/// Entries of the cache of addresses: the variables that a loop of a program puts to.
const CACHE: usize = 64;

/// An area that a program's address means. Its size if that is one in all processes, else 0: what
/// is asked of it is looked at more closely.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    base: usize,
    size: u64,
    slot: u32,
    /// For short puts; none in check mode, where each has a place.
    aim: Aim,
}

/// A process.
pub struct Process {
    /// Its number.
    pub pid: usize,
    nprocs: usize,
    /// How it met the others.
    pub bootstrap: Box<dyn Bootstrap>,
    /// Messages to them; none if there is nobody else.
    pub wire: Option<Wire>,
    /// Where it meets them, if all are on this host. Used as soon as all have said that they have
    /// it.
    pub meeting: Option<Meeting>,
    /// Since `bsp_begin`.
    pub begun: Instant,
    /// Which superstep this is, from 0.
    pub superstep: u64,
    /// Registered memory.
    pub registry: Registry<Place>,
    cache: [Known; CACHE],
    /// What is asked for, by process; ...
    pub out: Vec<Outgoing>,
    /// ... of short puts those that are not packed yet, and of whom there may be some.
    shorts: Vec<Short>,
    unpacked: Vec<usize>,
    /// Bytes of those that are, in this superstep.
    packed: usize,
    /// Bytes of tags: of messages in the queue, of those sent now, and of those of the next
    /// superstep.
    pub tags: [usize; 3],
    /// Messages that have come.
    pub inbox: Inbox,
    /// The settings, ...
    pub settings: Settings,
    /// ... and whether all processes are in check mode.
    pub check: bool,
    /// Conflicts that were told.
    pub told: usize,
    /// Bytes that were buffered in this superstep, ...
    pub buffered: u64,
    /// ... and that may be.
    pub budget: u64,
    /// What supersteps cost, if somebody asked for it.
    pub ledger: Option<Ledger>,
    /// When the last superstep ended, nanoseconds.
    pub left_ns: u64,
    /// Memory of the end of a superstep.
    pub scratch: Scratch,
    chance: u64,
    /// What superstep messages come into, by process: the heads of even and odd supersteps, and the
    /// bodies.
    pub firsts: [Vec<Aligned>; 2],
    /// The same.
    pub bodies: [Vec<Aligned>; 2],
    /// What rounds of heads come into.
    pub rounds: Buffers,
    /// Whether the last superstep was a total exchange of short bodies ([`counts::is_direct`]).
    pub was_dense: bool,
}

/// A slot of the cache.
#[inline]
fn cached_at(base: usize) -> usize {
    (base >> 4 ^ base >> 12) % CACHE
}

impl Process {
    /// This process's number.
    #[must_use]
    pub fn pid(&self) -> usize {
        self.pid
    }

    /// How many take part.
    #[must_use]
    pub fn nprocs(&self) -> usize {
        self.nprocs
    }

    /// Whether processes tell each other directly in this superstep, or in rounds. It changes when
    /// a superstep has ended.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        counts::is_direct(self.nprocs, self.was_dense)
    }

    /// The area that the program means by an address, for `len` bytes from `offset` of process
    /// `pid`: its slot. `None`: [`Process::why_no_area`] says why. (An answer in registers: this is
    /// most of what a short put costs.)
    #[inline]
    pub fn area(&mut self, base: usize, pid: usize, offset: usize, len: usize) -> Option<u32> {
        let known = &self.cache[cached_at(base)];
        let end = (offset as u64).checked_add(len as u64)?;
        if known.base == base && end <= known.size {
            return Some(known.slot);
        }
        self.find_area(base, pid, end)
    }

    #[inline(never)]
    fn find_area(&mut self, base: usize, pid: usize, end: u64) -> Option<u32> {
        let known = &mut self.cache[cached_at(base)];
        if known.base != base || base == 0 {
            let slot = self.registry.find(base).ok()?;
            let size = self.registry.size_everywhere(slot).unwrap_or(0);
            let aim = if self.check { Aim::default() } else { Aim::of(base, slot, size) };
            *known = Known { base, size, slot, aim };
        }
        let slot = known.slot;
        let (_, size) = self.registry.area(slot, pid)?;
        (base != 0 && size != NULL_AREA && end <= size).then_some(slot)
    }

    /// Puts eight bytes, if it is a matter of a few looks. False: nothing has been done, and
    /// [`Process::put_near`] is to be asked, then [`Process::area`].
    #[inline]
    pub fn put_eight(&mut self, pid: usize, base: usize, offset: usize, value: impl FnOnce() -> Option<u64>) -> bool {
        self.shorts.get_mut(pid).is_some_and(|short| short.put_eight(base, offset, value))
    }

    /// Puts 1, 2, 4 or 8 bytes, if their area was used before and is of one size everywhere. False:
    /// nothing has been done.
    #[inline]
    pub fn put_near(
        &mut self,
        pid: usize,
        base: usize,
        offset: usize,
        len: usize,
        value: impl FnOnce() -> u64,
    ) -> bool {
        let aim = self.cache[cached_at(base)].aim;
        aim.takes(base, offset, len) && self.put_at(pid, &aim, offset, len, value)
    }

    /// Puts 1, 2, 4 or 8 bytes into an area of which [`Process::area`] has told. False: they are no
    /// short put, or would be more than may be buffered.
    pub fn put_short(
        &mut self,
        pid: usize,
        base: usize,
        slot: u32,
        offset: usize,
        len: usize,
        value: impl FnOnce() -> u64,
    ) -> bool {
        let size = if self.check { None } else { self.registry.area(slot, pid) };
        let aim = size.map_or(Aim::default(), |(_, size)| Aim::of(base, slot, size));
        aim.takes(base, offset, len) && self.put_at(pid, &aim, offset, len, value)
    }

    #[inline]
    fn put_at(&mut self, pid: usize, aim: &Aim, offset: usize, len: usize, value: impl FnOnce() -> u64) -> bool {
        let (Some(short), Some(out)) = (self.shorts.get_mut(pid), self.out.get_mut(pid)) else { return false };
        match short.way(aim, len, out.puts.is_empty()) {
            Way::Block => short.put(aim, offset, value()),
            Way::Alone if short.is_empty() && self.buffered + PACKED_MAX as u64 <= self.budget => {
                out.puts.put_short(aim.start(offset), len, value());
                self.buffered += PACKED_MAX as u64;
            }
            Way::Alone => {
                self.pack(pid);
                if self.free() < PACKED_MAX as u64 {
                    return false;
                }
                self.out[pid].puts.put_short(aim.start(offset), len, value());
                self.buffered += PACKED_MAX as u64;
            }
            Way::Begin => {
                if !self.begin_short(pid, len) {
                    return false;
                }
                self.shorts[pid].put(aim, offset, value());
            }
        }
        true
    }

    /// Room for short puts to a process; false: they would be more than may be buffered.
    #[inline(never)]
    fn begin_short(&mut self, pid: usize, len: usize) -> bool {
        if !self.shorts[pid].is_empty() {
            let (behind, before) = (self.packed, self.out[pid].puts.bytes().len());
            self.pack(pid);
            if let Some(meeting) = &self.meeting {
                meeting.expect(self.superstep, behind, self.out[pid].puts.bytes().len() - before);
            }
        }
        if self.free() < PACKED_MAX as u64 {
            self.pack_all();
        }
        let free = self.free();
        self.buffered += self.shorts[pid].begin(len, free);
        // (A process may be there several times.)
        if self.unpacked.last() != Some(&pid) {
            self.unpacked.push(pid);
        }
        free >= PACKED_MAX as u64
    }

    /// Packs the short puts to a process: what else is put to it comes behind them.
    #[inline(never)]
    pub fn pack(&mut self, pid: usize) {
        let (short, puts) = (&mut self.shorts[pid], &mut self.out[pid].puts);
        if short.is_empty() {
            return;
        }
        let (reserved, before) = (short.reserved(), puts.bytes().len());
        short.pack(puts);
        let packed = puts.bytes().len() - before;
        self.packed += packed;
        self.buffered = self.buffered - reserved + packed as u64;
    }

    /// Packs the short puts to all.
    pub fn pack_all(&mut self) {
        while let Some(pid) = self.unpacked.pop() {
            self.pack(pid);
        }
    }

    /// Nothing is asked for any more, and all is packed that was.
    pub fn end_asking(&mut self) {
        self.pack_all();
        (self.buffered, self.packed) = (0, 0);
    }

    fn free(&self) -> u64 {
        self.budget.saturating_sub(self.buffered)
    }

    /// Why there is none, for people.
    #[cold]
    pub fn why_no_area(&self, base: usize, pid: usize, offset: usize, len: usize) -> String {
        match self.registry.find(base) {
            Err(why) => about_address(base, why),
            Ok(slot) => {
                let (_, size) = self.registry.area(slot, pid).unwrap_or((0, 0));
                about_range(base, pid, offset, len, size)
            }
        }
    }

    /// Whether nothing was asked for in this superstep, and nobody wants to know what it costs.
    #[inline]
    #[must_use]
    pub fn is_idle(&self) -> bool {
        // (Each put, get and message is buffered in part at least.)
        self.buffered == 0 && self.registry.is_unchanged() && !self.check && self.ledger.is_none()
    }

    /// A number by chance, good enough for an order.
    pub fn chance(&mut self) -> u64 {
        // Marsaglia's xorshift64.
        self.chance ^= self.chance << 13;
        self.chance ^= self.chance >> 7;
        self.chance ^= self.chance << 17;
        self.chance
    }

    /// Whether so many bytes of the program may be buffered more. Who then does adds to `buffered`
    /// what it really takes, records and all. If not, [`Process::too_much`] is what people are
    /// told.
    #[inline]
    pub fn may_buffer(&mut self, bytes: usize) -> bool {
        self.buffered.saturating_add(bytes as u64) <= self.budget || self.may_buffer_packed(bytes)
    }

    /// The same where nothing is kept for short puts that may come.
    #[cold]
    fn may_buffer_packed(&mut self, bytes: usize) -> bool {
        self.pack_all();
        self.buffered.saturating_add(bytes as u64) <= self.budget
    }

    /// A line for people.
    #[cold]
    pub fn too_much(&self, bytes: usize) -> String {
        format!(
            "{} bytes are to be buffered in this superstep, more than the {} that may be (WEIR_BSP_MEMORY): use bsp_hpput for what is large, or more supersteps",
            self.buffered.saturating_add(bytes as u64),
            self.budget
        )
    }

    /// Addresses may mean other areas from now on.
    pub fn forget_cache(&mut self) {
        self.cache = [Known::default(); CACHE];
    }
}

#[cold]
fn about_address(base: usize, why: RegistryError) -> String {
    match why {
        _ if base == 0 => "NULL names no registered memory".to_owned(),
        RegistryError::NotYet => format!(
            "{base:#x} was registered in this superstep: it can be used after the next bsp_sync (or its registration was taken back)"
        ),
        RegistryError::Inside(before) => format!(
            "{base:#x} is not registered, but lies {before} bytes behind the beginning of memory that is: name its beginning, and {before} as offset"
        ),
        RegistryError::Unknown | RegistryError::NullUnknown | RegistryError::TakenBack => {
            format!("{base:#x} is not registered: call bsp_push_reg for it, then bsp_sync")
        }
    }
}

#[cold]
fn about_range(base: usize, pid: usize, offset: usize, len: usize, size: u64) -> String {
    if base == 0 {
        return "NULL names no registered memory".to_owned();
    }
    if size == NULL_AREA {
        return format!("process {pid} registered NULL where this one registered {base:#x}: it has no memory there");
    }
    let number = |n: usize| if n as isize >= 0 { n.to_string() } else { (n as isize).to_string() };
    let (offset, len) = (number(offset), number(len));
    format!("offset {offset}, length {len}: process {pid} registered {size} bytes there")
}

/// What may be buffered where nobody says: half of the memory that is free, by the processes of
/// this host.
fn share_of_memory(here: usize) -> u64 {
    const UNKNOWN: u64 = 4 << 30;
    let told = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib =
        told.lines().find_map(|line| line.strip_prefix("MemAvailable:")?.trim().strip_suffix(" kB")?.parse().ok());
    kib.map_or(UNKNOWN, |kib: u64| kib * 1024 / 2 / here as u64)
}

/// What a process tells all others first.
struct Greeting {
    wire: u16,
    version: String,
    host: String,
    maxprocs: i32,
    check: bool,
    ledger: bool,
}

impl Greeting {
    fn own(maxprocs: i32, settings: &Settings) -> Greeting {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let space = std::fs::read_link("/proc/self/ns/net").map(|p| p.display().to_string()).unwrap_or_default();
        Greeting {
            wire: WIRE_VERSION,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            host: format!("{} {space}", boot.trim()),
            maxprocs,
            check: settings.check,
            ledger: settings.ledger.is_some() || settings.trace.is_some(),
        }
    }

    fn encode(&self) -> String {
        let modes = u8::from(self.check) + 2 * u8::from(self.ledger);
        format!("weir-bsp\n{}\n{}\n{}\n{modes}\n{}", self.wire, self.version, self.maxprocs, self.host)
    }

    fn decode(said: &[u8], rank: usize) -> Result<Greeting, String> {
        let stranger = || format!("process {rank} runs another program, or another library than this one");
        let text = std::str::from_utf8(said).map_err(|_| stranger())?;
        let [name, wire, version, maxprocs, modes, host] = text.splitn(6, '\n').collect::<Vec<_>>()[..] else {
            return Err(stranger());
        };
        let (Ok(wire), Ok(maxprocs), Ok(modes), "weir-bsp") =
            (wire.parse(), maxprocs.parse(), modes.parse::<u8>(), name)
        else {
            return Err(stranger());
        };
        Ok(Greeting {
            wire,
            version: version.to_owned(),
            host: host.to_owned(),
            maxprocs,
            check: modes & 1 != 0,
            ledger: modes & 2 != 0,
        })
    }
}

/// What processes know when they have met.
struct Met {
    rank: usize,
    nprocs: usize,
    here: usize,
    check: bool,
    keeps: bool,
    settings: Settings,
    wire: Option<Wire>,
    meeting: Option<Meeting>,
}

impl Process {
    /// Meets the others. Does not return in a process that takes no part.
    ///
    /// # Errors
    /// One line for people, and by what the launcher can be told.
    pub fn begin(
        maxprocs: i32,
        mut bootstrap: Box<dyn Bootstrap>,
    ) -> Result<Box<Process>, (String, Box<dyn Bootstrap>)> {
        match Self::meet(maxprocs, &mut *bootstrap) {
            Ok(Some(met)) => Ok(Box::new(Self::of(met, bootstrap))),
            Ok(None) => {
                bootstrap.finish();
                fail::leave(0);
            }
            Err(why) => Err((why, bootstrap)),
        }
    }

    /// Meets the others; none: this process takes no part.
    fn meet(maxprocs: i32, bootstrap: &mut dyn Bootstrap) -> Result<Option<Met>, String> {
        let (rank, size) = (bootstrap.rank(), bootstrap.size());
        let settings = Settings::read(&|name| std::env::var(name).ok().filter(|value| !value.is_empty()))?;
        if rank == 0 {
            for name in Settings::unknown(std::env::vars_os().filter_map(|(name, _)| name.into_string().ok())) {
                fail::say(
                    None,
                    &format!("{} is no setting of weir and is ignored (weir-bsp(7) lists all)", name.escape_debug()),
                );
            }
        }
        let own = Greeting::own(maxprocs, &settings);
        let said = bootstrap.exchange(own.encode().as_bytes())?;
        let all = said.iter().enumerate().map(|(other, said)| Greeting::decode(said, other));
        let all = all.collect::<Result<Vec<_>, _>>()?;
        for (other, greeting) in all.iter().enumerate() {
            if greeting.wire != own.wire || greeting.version != own.version {
                return Err(format!(
                    "process {other} runs version {} of the library with messages of version {}, process {rank} version {} with {}: all must run the same",
                    greeting.version, greeting.wire, own.version, own.wire
                ));
            }
        }
        let here = all.iter().filter(|greeting| greeting.host == own.host).count().max(1);
        // What process 0 was told counts for all.
        let first = all.first().unwrap_or(&own);
        let (wanted, check, keeps) = (first.maxprocs, first.check, first.ledger);
        if wanted < 1 {
            return Err(format!("bsp_begin({wanted}): at least one process must take part"));
        }
        let nprocs = size.min(wanted as usize);
        let share = settings.board && all.iter().take(nprocs).all(|greeting| greeting.host == own.host);
        let connected = Self::connect(bootstrap, nprocs, here, share)?;
        let (wire, meeting) = connected.map_or((None, None), |(wire, meeting)| (Some(wire), meeting));
        Ok((rank < nprocs).then_some(Met { rank, nprocs, here, check, keeps, settings, wire, meeting }))
    }

    fn of(met: Met, bootstrap: Box<dyn Bootstrap>) -> Process {
        let Met { rank, nprocs, here, check, keeps, settings, wire, meeting } = met;
        let buffers = || (0..nprocs).map(|_| Aligned::default()).collect::<Vec<_>>();
        Process {
            pid: rank,
            nprocs,
            bootstrap,
            wire,
            meeting,
            begun: Instant::now(),
            superstep: 0,
            registry: Registry::new(rank),
            cache: [Known::default(); CACHE],
            out: (0..nprocs).map(|_| Outgoing::new(check)).collect(),
            shorts: (0..nprocs).map(|_| Short::default()).collect(),
            unpacked: Vec::new(),
            packed: 0,
            tags: [0; 3],
            inbox: Inbox::default(),
            budget: settings.memory.unwrap_or_else(|| share_of_memory(here)),
            settings,
            check,
            told: 0,
            buffered: 0,
            ledger: keeps.then(|| Ledger::of(nprocs)),
            left_ns: 0,
            scratch: Scratch::default(),
            chance: 0x9e37_79b9_7f4a_7c15 ^ (rank as u64 + 1) << 20,
            firsts: [buffers(), buffers()],
            bodies: [buffers(), buffers()],
            rounds: Buffers::default(),
            was_dense: false,
        }
    }

    /// An endpoint that knows all others, and the board if `share` says that one may be.
    fn connect(
        bootstrap: &mut dyn Bootstrap,
        nprocs: usize,
        here: usize,
        share: bool,
    ) -> Result<Option<(Wire, Option<Meeting>)>, String> {
        let (rank, size) = (bootstrap.rank(), bootstrap.size());
        if size == 1 {
            return Ok(None);
        }
        // All of the job take part in the exchange, as launchers want it.
        let takes_part = rank < nprocs && nprocs > 1;
        let key = bootstrap.key();
        let config = takes_part.then(|| Self::engine_config(here.min(nprocs))).transpose()?;
        let share = share && config.as_ref().is_some_and(shares_memory);
        let endpoint = config.map(|config| Self::open(rank, config, key)).transpose()?;
        let mut name = endpoint.as_ref().map(|e| e.name().to_vec()).unwrap_or_default();
        // Where there can be none, processes meet by messages.
        let offer = if share && rank == 0 { Offer::make(nprocs).ok().flatten() } else { None };
        name.extend(offer.iter().flat_map(|offer| offer.ticket().into_bytes()));
        let mut names = bootstrap.exchange(&name)?;
        names.truncate(nprocs);
        let Some(endpoint) = endpoint else { return Ok(None) };
        let ticket = names.first_mut().map(|first| first.split_off(first.len().min(NAME_BYTES))).unwrap_or_default();
        let crowded = here.min(nprocs) > std::thread::available_parallelism().map_or(1, usize::from);
        let meeting = match (offer, std::str::from_utf8(&ticket)) {
            (Some(offer), _) => offer.keep(crowded),
            (None, Ok(ticket)) if share => Meeting::join(ticket, rank, nprocs, crowded).ok(),
            _ => None,
        };
        let wire = Wire::new(endpoint, &names, rank).map_err(|e| e.to_string())?;
        Ok(Some((wire, meeting)))
    }

    fn engine_config(here: usize) -> Result<EngineConfig, String> {
        let get = |name: &str| {
            let value = std::env::var(name).ok().filter(|value| !value.is_empty())?;
            // A file in it is ours.
            (name != "WEIR_TRACE" || is_level(&value)).then_some(value)
        };
        let mut config = EngineConfig::from_vars(&get).map_err(|e| e.to_string())?;
        config.processes_here = Some(here);
        Ok(config)
    }

    fn open(rank: usize, config: EngineConfig, key: Option<[u8; KEY_BYTES]>) -> Result<Arc<Endpoint>, String> {
        let tell = move |what: &Diagnostic<'_>| match what {
            // Told by who finds it out in a superstep.
            Diagnostic::PeerDown { .. } => {}
            Diagnostic::Notice(text) => fail::say(Some(rank), text),
            Diagnostic::Trace(text) | Diagnostic::Counters(text) => {
                let _ = std::io::stderr().write_all(text.as_bytes());
            }
        };
        let key = key.map_or_else(weir_engine::job_key, Ok);
        key.and_then(|key| Endpoint::open_told(config, key, Arc::new(tell))).map_err(|e| e.to_string())
    }
}
