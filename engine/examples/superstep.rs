//! A second face on the engine, to show its API: supersteps in the manner of BSPlib. Processes put
//! and get each other's registered memory; what they ask for takes effect when all of them have
//! called `sync`, gets before puts.
//!
//! `cargo run --example superstep 4` starts four processes on this host. `WEIR_CARRIER=shm|udp|tcp`
//! says what carries; the face does not know. (`faces/bsp` is the BSPlib for programs.)

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, Command};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};
use weir_engine::collective::{Group, allreduce, barrier};
use weir_engine::{
    Access, Completion, Diagnostic, Endpoint, EngineConfig, EngineError, Iov, NAME_BYTES, RmaOp, SendMode, Team,
    TeamError,
};

/// What can go wrong, in words.
pub type Failure = Box<dyn std::error::Error>;

/// The `user` word of the team's operations, and of this face's own.
const TEAMS: u64 = 1;
const OWN: u64 = 2;
/// The tag of the team's messages: this face sends no others.
const TAG: u64 = 0;
/// All processes have come by then, and are looked for so often.
const MEETING: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(1);

/// A put that takes effect at the end of the superstep: buffered, as BSPlib has it.
struct Put {
    to: usize,
    region: u64,
    offset: u64,
    data: Vec<u8>,
}

/// A get: into `into`, which is borrowed until the end of the superstep.
struct Get {
    from: usize,
    region: u64,
    offset: u64,
    into: Iov,
}

/// Memory that all may put to and get from, each process its own under the same number.
pub struct Region {
    key: u64,
    memory: Box<[Cell<u8>]>,
}

impl Region {
    /// A copy of what is there.
    pub fn read(&self) -> Vec<u8> {
        self.memory.iter().map(Cell::get).collect()
    }

    /// Fills it. Only between supersteps: others change it in them.
    pub fn write(&self, data: &[u8]) {
        self.memory.iter().zip(data).for_each(|(cell, byte)| cell.set(*byte));
    }
}

/// A process of a BSP program.
pub struct Bsp {
    team: Team,
    regions: Cell<u64>,
    puts: RefCell<Vec<Put>>,
    gets: RefCell<Vec<Get>>,
}

impl Bsp {
    /// Joins the others at the socket where they meet.
    pub fn begin(rank: usize, size: usize, meeting: &str) -> Result<Bsp, Failure> {
        // What a face gives: settings, a sink for what there is to say to people, and later a tag
        // and a `user` word of its own. (Receives name whole tags: all are stream bits.)
        let config = EngineConfig { processes_here: Some(size), ..EngineConfig::from_env()? };
        let tell = move |what: &Diagnostic<'_>| {
            let _ = writeln!(std::io::stderr(), "superstep: rank {rank}: {}", what.to_string().trim_end());
        };
        let endpoint = Endpoint::open(config, Arc::new(tell))?;
        let mut socket = UnixStream::connect(meeting)?;
        socket.write_all(&(rank as u32).to_le_bytes())?;
        socket.write_all(&endpoint.name())?;
        let mut names = vec![[0; NAME_BYTES]; size];
        for name in &mut names {
            socket.read_exact(name)?;
        }
        let team = Team::new(endpoint, &names, rank, TAG, TEAMS)?;
        Ok(Bsp { team, regions: Cell::new(0), puts: RefCell::default(), gets: RefCell::default() })
    }

    /// Registers memory; all processes do so in the same order. Others may use it from the next
    /// superstep on.
    pub fn register(&self, bytes: usize) -> Result<Region, Failure> {
        let memory: Box<[Cell<u8>]> = vec![Cell::new(0); bytes].into();
        let key = self.regions.replace(self.regions.get() + 1);
        let rights = Access { remote_read: true, remote_write: true };
        let piece = Iov { base: memory.as_ptr().cast_mut().cast(), len: bytes };
        // SAFETY: the memory lives to the end of the endpoint, which then forgets it: a region
        // outlives it.
        unsafe { self.team.endpoint().register(&[piece], rights, Some(key), false)? };
        Ok(Region { key, memory })
    }

    /// Puts `data` into a process's region at the end of this superstep.
    pub fn put(&self, to: usize, data: &[u8], region: &Region, offset: u64) {
        self.puts.borrow_mut().push(Put { to, region: region.key, offset, data: data.to_vec() });
    }

    /// Gets what a process's region holds at the end of this superstep, before any put.
    ///
    /// # Safety
    /// `into` lives until the end of this superstep, and nobody looks at it before.
    pub unsafe fn get(&self, from: usize, region: &Region, offset: u64, into: &mut [u8]) {
        let into = Iov { base: into.as_mut_ptr(), len: into.len() };
        self.gets.borrow_mut().push(Get { from, region: region.key, offset, into });
    }

    /// Ends the superstep. Returns how many gets and puts all processes made, and the bytes that
    /// the busiest one sends or asks for: the h of this superstep's h-relation.
    pub fn sync(&self) -> Result<(u64, u64), Failure> {
        let (mut puts, gets) = (self.puts.take(), self.gets.take());
        let bytes = puts.iter().map(|p| p.data.len()).sum::<usize>() + gets.iter().map(|g| g.into.len).sum::<usize>();
        // The barrier carries the counts: who finds that nobody gets, or nobody puts, leaves that
        // phase out.
        let (mut sums, mut h, mut wire) = ([0; 2], [0], [0; 16]);
        allreduce(&self.team, &[gets.len() as u64, puts.len() as u64], &mut sums, &mut wire, |a, b| a + b)?;
        allreduce(&self.team, &[bytes as u64], &mut h, &mut wire, u64::max)?;
        if sums[0] > 0 {
            self.all(
                gets.len(),
                |i| (gets[i].from, self.op(gets[i].from, gets[i].region, gets[i].offset)),
                |op, i| {
                    let memory = [gets[i].into];
                    // SAFETY: who asked promised that it lives until here (`get`), and `all` waits.
                    unsafe { self.team.endpoint().read(&op.with_memory(&memory)) }
                },
            )?;
            // Nobody puts before all have got.
            barrier(&self.team)?;
        }
        if sums[1] > 0 {
            // A Latin square: in each step every process sends to another one. (Puts to one process
            // stay in their order; where they overlap, the last wins.)
            puts.sort_by_key(|p| (p.to + self.team.members() - self.team.own()) % self.team.members());
            self.all(
                puts.len(),
                |i| (puts[i].to, self.op(puts[i].to, puts[i].region, puts[i].offset)),
                |op, i| {
                    let memory = [Iov { base: puts[i].data.as_ptr().cast_mut(), len: puts[i].data.len() }];
                    // SAFETY: only read; `puts` lives to the end of this function, and `all` waits.
                    unsafe { self.team.endpoint().write(&op.with_memory(&memory)) }
                },
            )?;
            barrier(&self.team)?;
        }
        Ok((sums[0] + sums[1], h[0]))
    }

    /// A remote operation, without memory yet; complete when the bytes are where they are wanted.
    fn op(&self, with: usize, key: u64, remote_addr: u64) -> RmaOp<'static> {
        let peer = self.team.peer(with).unwrap_or(u32::MAX);
        let (mode, memory) = (SendMode::Delivery, &[] as &[Iov]);
        RmaOp { peer, memory, remote_addr, key, data: None, mode, copy: false, report: true, context: with, user: OWN }
    }

    /// Begins `count` operations and waits for all that began, also when one of them fails: their
    /// memory is the engine's until then.
    fn all(
        &self,
        count: usize,
        of: impl Fn(usize) -> (usize, RmaOp<'static>),
        begin: impl Fn(&RmaOp<'static>, usize) -> Result<(), EngineError>,
    ) -> Result<(), Failure> {
        let (mut open, mut next, mut failed, mut done) = (0, 0, None::<TeamError>, Vec::<Completion>::new());
        while open > 0 || (next < count && failed.is_none()) {
            if next < count && failed.is_none() {
                let (with, op) = of(next);
                match begin(&op, next) {
                    Ok(()) => (open, next) = (open + 1, next + 1),
                    // A queue is full: progress makes room.
                    Err(EngineError::Again) => {}
                    Err(EngineError::PeerDown(reason)) => failed = Some(TeamError::Gone { rank: with, reason }),
                    Err(other) => failed = Some(TeamError::Endpoint(other.to_string())),
                }
            }
            if let Err(why) = self.team.progress() {
                failed.get_or_insert(why);
            }
            self.team.take_others(&mut done);
            for c in done.drain(..).filter(|c| c.user == OWN) {
                open -= 1;
                if let Err(e) = c.result {
                    failed.get_or_insert(TeamError::Endpoint(format!("memory of rank {}: {e}", c.context)));
                }
            }
            self.team.endpoint().check()?;
        }
        // The others wait for this one: they are told.
        failed.map_or(Ok(()), |why| Err(self.team.fail(why).into()))
    }
}

/// Starts `size` processes of `command`, which call [`part`], and waits. The first error ends all.
pub fn launch(size: usize, command: impl Fn() -> Command) -> Result<(), Failure> {
    let place = std::env::temp_dir().join(format!("weir-superstep-{}", std::process::id()));
    let listener = UnixListener::bind(&place)?;
    let key = std::env::var("WEIR_KEY").unwrap_or_else(|_| {
        let mut key = [0; 32];
        getrandom::fill(&mut key).expect("the system has random numbers");
        key.iter().map(|b| format!("{b:02x}")).collect()
    });
    let start = |rank: usize| {
        let said = format!("{rank} {size} {}", place.display());
        command().env("WEIR_KEY", &key).env("SUPERSTEP", said).spawn()
    };
    let mut children = (0..size).map(start).collect::<Result<Vec<Child>, _>>()?;
    let result = meet(&listener, size).and_then(|()| {
        let all_well = children.iter_mut().map(|c| Ok(c.wait()?.success())).collect::<Result<Vec<_>, Failure>>()?;
        if all_well.iter().all(|well| *well) { Ok(()) } else { Err("a process failed".into()) }
    });
    let _ = std::fs::remove_file(&place);
    children.iter_mut().for_each(|child| drop(child.kill()));
    result
}

/// Tells each process the names of all.
fn meet(listener: &UnixListener, size: usize) -> Result<(), Failure> {
    let (mut found, mut names, start) = (Vec::new(), vec![[0; NAME_BYTES]; size], Instant::now());
    listener.set_nonblocking(true)?;
    while found.len() < size {
        match listener.accept() {
            Ok((mut socket, _)) => {
                let mut rank = [0; 4];
                socket.read_exact(&mut rank)?;
                socket.read_exact(names.get_mut(u32::from_le_bytes(rank) as usize).ok_or("no such rank")?)?;
                found.push(socket);
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock && start.elapsed() < MEETING => sleep(LOOK),
            Err(e) => return Err(e.into()),
        }
    }
    found.iter_mut().try_for_each(|socket| Ok(socket.write_all(names.as_flattened())?))
}

/// What a started process does, if this is one: counts, a total exchange and a cyclic shift of a
/// megabyte, each checked. Returns what carried it.
pub fn part() -> Option<Result<String, Failure>> {
    let said = std::env::var("SUPERSTEP").ok()?;
    let mut words = said.splitn(3, ' ');
    let mut number = || words.next().and_then(|w| w.parse().ok()).unwrap_or(0);
    let (rank, size) = (number(), number());
    Some(Bsp::begin(rank, size, words.next().unwrap_or_default()).and_then(program))
}

fn program(bsp: Bsp) -> Result<String, Failure> {
    const LONG: usize = 1 << 20;
    let (me, n) = (bsp.team.own(), bsp.team.members());
    let (row, long) = (bsp.register(n)?, bsp.register(LONG)?);
    assert_eq!(bsp.sync()?, (0, 0));
    for to in 0..n {
        bsp.put(to, &[(16 * me + to) as u8], &row, me as u64);
    }
    assert_eq!(bsp.sync()?, ((n * n) as u64, n as u64));
    assert_eq!(row.read(), (0..n).map(|from| (16 * from + me) as u8).collect::<Vec<_>>());
    long.write(&vec![me as u8 + 1; LONG]);
    let mut got = vec![0; LONG];
    for round in 1..4 {
        let (right, left) = ((me + 1) % n, (me + n - 1) % n);
        // SAFETY: `got` is looked at after `sync` only.
        unsafe { bsp.get(left, &long, 0, &mut got) };
        bsp.put(right, &vec![(me + 10 * round) as u8; LONG], &long, 0);
        assert_eq!(bsp.sync()?.1, 2 * LONG as u64);
        let before = if round == 1 { left + 1 } else { (left + n - 1) % n + 10 * (round - 1) };
        assert!(got.iter().all(|b| usize::from(*b) == before), "gets come before puts");
        assert!(long.read().iter().all(|b| usize::from(*b) == left + 10 * round), "and puts have come");
    }
    let counters = bsp.team.endpoint().counters_json();
    let carriers = counters.split("\"carrier\":\"").skip(1).filter_map(|s| s.split('"').next());
    let told = Vec::from_iter(carriers.filter(|c| *c != "self").collect::<BTreeSet<_>>()).join(" ");
    bsp.sync()?;
    // In good order; what was registered is the program's again.
    bsp.team.endpoint().close();
    Ok(told)
}

#[allow(dead_code, reason = "a test has this file as a module")]
fn main() -> Result<(), Failure> {
    if let Some(result) = part() {
        println!("done by {}", result?);
        return Ok(());
    }
    let size = std::env::args().nth(1).map_or(Ok(4), |n| n.parse())?;
    launch(size, || Command::new(std::env::current_exe().unwrap_or_default()))
}
