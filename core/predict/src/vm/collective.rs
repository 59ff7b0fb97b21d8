//! Collectives: at each process an activity that takes the steps of its pattern, or waits for a
//! draw of the whole.

use hashbrown::HashMap;

use weir_annotations::program::{Collective, CollectiveOp, Pc, Ranks, SendMode};
use weir_stats::open_unit;

use crate::loss::{Awaited, Parts};
use crate::machine::{Algorithm, Flight, Grid, Level, SendEnd, operation_name};
use crate::matching::Wanted;
use crate::observe::{Doing, Observer};
use crate::outcome::Failure;
use crate::pattern::{Micro, Plan, Seat};
use crate::tour::{Kind as Moment, MARK, Order, TURN_BITS, Tour, What as Ordered};
use crate::vm::messages::{Outgoing, matched_comm};
use crate::vm::process::Flow;
use crate::vm::requests::{Kind, NOBODY, Request};
use crate::vm::{Run, Step, Stop, What};
use crate::{Cause, Time};

/// The processes of a group.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Group {
    All,
    /// Rising, not touching.
    Ranges(Box<[(u32, u32)]>),
}

impl Group {
    fn size(&self, numprocs: u32) -> u32 {
        match self {
            Self::All => numprocs,
            Self::Ranges(ranges) => ranges.iter().map(|(low, high)| high - low + 1).sum(),
        }
    }

    /// A number that groups which share processes differ in, as a rule.
    fn mark(&self) -> i64 {
        let Self::Ranges(ranges) = self else { return 0 };
        let mark = ranges.iter().fold(1i64, |mark, r| {
            mark.wrapping_mul(31).wrapping_add(i64::from(r.0)).wrapping_mul(31).wrapping_add(i64::from(r.1))
        });
        mark & MARK
    }

    /// Gives itself to a tour.
    fn tour(&self, tour: &mut Tour) {
        let ranges: &[(u32, u32)] = if let Self::Ranges(ranges) = self { ranges } else { &[] };
        tour.word(ranges.len() as u64);
        ranges.iter().flat_map(|r| [r.0, r.1]).for_each(|end| tour.word(end.into()));
    }

    /// The number of a process within the group.
    fn seat(&self, rank: u32) -> Option<u32> {
        let Self::Ranges(ranges) = self else { return Some(rank) };
        let mut before = 0;
        for (low, high) in ranges {
            if (*low..=*high).contains(&rank) {
                return Some(before + rank - low);
            }
            before += high - low + 1;
        }
        None
    }

    /// The process at a number within the group, which is below its size.
    fn rank(&self, seat: u32) -> u32 {
        let Self::Ranges(ranges) = self else { return seat };
        let mut left = seat;
        for (low, high) in ranges {
            if left <= high - low {
                return low + left;
            }
            left -= high - low + 1;
        }
        seat
    }
}

/// How many collectives a process has begun in a communicator and group.
#[derive(Debug)]
pub(super) struct Turn {
    comm: u32,
    group: Group,
    count: i64,
}

impl Turn {
    /// Says where its process stands.
    pub fn stands(&self, tour: &mut Tour) {
        tour.stands_at(self.comm, self.group.mark(), self.count);
    }

    /// Gives itself to a tour.
    pub fn tour(&self, tour: &mut Tour) {
        let Self { comm, group, count } = self;
        tour.word((*comm).into());
        group.tour(tour);
        tour.turn(*comm, group.mark(), *count);
    }
}

/// A collective at one process.
#[derive(Debug)]
pub(super) struct Activity {
    owner: u32,
    /// Its place among the collectives of its process.
    number: u64,
    request: u32,
    operation: CollectiveOp,
    group: Group,
    seat: Seat,
    plan: Plan,
    phase: usize,
    step: u64,
    comm: u32,
    tag: i64,
    bytes: u64,
    /// Its requests, and how many are not complete.
    begun: Vec<u32>,
    open: u32,
    /// It goes on when all are.
    waits: bool,
    /// Until when sends and ends of receives keep it.
    kept: Time,
    /// It is drawn as a whole: what its process will have waited for.
    drawn: Option<Awaited>,
}

/// Collectives that are drawn as a whole and in which not everybody is yet, by communicator and
/// tag.
#[derive(Debug)]
pub(super) struct Gatherings(HashMap<(u32, i64), Gathering, foldhash::fast::FixedState>);

impl Default for Gatherings {
    fn default() -> Self {
        Self(HashMap::with_hasher(foldhash::fast::FixedState::with_seed(0)))
    }
}

/// Collectives to which not everybody has come, by communicator, group and number: what the first
/// said of them.
#[derive(Debug)]
pub(super) struct Meetings {
    open: HashMap<(u32, Group, i64), Meeting, foldhash::fast::FixedState>,
    /// Groups that processes keep numbers of.
    pub groups: u64,
}

impl Meetings {
    /// Gives itself to a tour.
    pub fn tour(&self, tour: &mut Tour) {
        let mut all: Vec<_> = self.open.iter().collect();
        all.sort_unstable_by(|a, b| a.0.cmp(b.0));
        tour.word(all.len() as u64);
        for ((comm, group, count), meeting) in all {
            let Meeting { operation, blocks, root, bytes, process, op, here } = meeting;
            tour.word((*comm).into());
            group.tour(tour);
            tour.turn(*comm, group.mark(), *count);
            [*operation as u32, u32::from(*blocks), *root, *process, *op, *here]
                .into_iter()
                .for_each(|w| tour.word(w.into()));
            tour.maybe(*bytes);
        }
    }

    /// Collectives to which some have come and others have not.
    pub fn open(&self) -> u64 {
        self.open.len() as u64
    }
}

impl Gatherings {
    /// Gives itself to a tour.
    pub fn tour(&self, tour: &mut Tour) {
        let mut all: Vec<_> = self.0.iter().collect();
        all.sort_unstable_by_key(|(place, _)| **place);
        tour.word(all.len() as u64);
        for ((comm, tag), Gathering { here, root, waiting }) in all {
            [*comm, *here, u32::from(*root), waiting.len() as u32].into_iter().for_each(|w| tour.word(w.into()));
            tour.tag(*comm, *tag);
            waiting.iter().for_each(|one| tour.activity(*one));
        }
    }

    /// The same, of those that are drawn as a whole.
    pub fn open(&self) -> u64 {
        self.0.len() as u64
    }
}

impl Default for Meetings {
    fn default() -> Self {
        Self { open: HashMap::with_hasher(foldhash::fast::FixedState::with_seed(0)), groups: 0 }
    }
}

/// What a process says of a collective, and how many have come to it.
#[derive(Debug, Clone, Copy)]
struct Meeting {
    operation: CollectiveOp,
    blocks: bool,
    root: u32,
    /// None: sizes may differ.
    bytes: Option<u64>,
    process: u32,
    op: Pc,
    here: u32,
}

impl Meeting {
    fn name(&self) -> String {
        format!("{}{}", if self.blocks { "" } else { "non-blocking " }, operation_name(self.operation))
    }

    /// In what another process's part differs, if it does: here and there.
    fn differs(&self, there: &Self) -> Option<(String, String)> {
        let name = self.name();
        if (self.operation, self.blocks) != (there.operation, there.blocks) {
            return Some((name, there.name()));
        }
        if self.root != there.root {
            return Some((format!("{name} with root {}", self.root), format!("root {}", there.root)));
        }
        match (self.bytes, there.bytes) {
            (Some(here), Some(there)) if here != there => {
                Some((format!("{name} of {here} bytes"), format!("{there} bytes")))
            }
            _ => None,
        }
    }
}

#[derive(Debug, Default)]
struct Gathering {
    here: u32,
    root: bool,
    waiting: Vec<u32>,
}

/// For whom a process waits in a collective that is drawn as a whole.
fn waits_for_all(operation: CollectiveOp, is_root: bool) -> bool {
    match operation {
        CollectiveOp::Bcast | CollectiveOp::Scatter => false,
        CollectiveOp::Gather | CollectiveOp::Reduce => is_root,
        _ => true,
    }
}

fn waits_for_root(operation: CollectiveOp) -> bool {
    matches!(operation, CollectiveOp::Bcast | CollectiveOp::Scatter)
}

impl Activity {
    /// Its request at its process.
    pub fn request(&self) -> u32 {
        self.request
    }

    /// Gives itself to a tour; `place` is its own.
    pub fn tour(&mut self, tour: &mut Tour, place: u32) {
        // What it is made of follows from its op, its size and its group.
        let Self {
            owner,
            number,
            request,
            operation,
            group,
            seat,
            plan: _,
            phase,
            step,
            comm,
            tag,
            bytes,
            begun,
            open,
            waits,
            kept,
            drawn,
        } = self;
        [*owner, *operation as u32, seat.me, seat.root, seat.n, *open]
            .into_iter()
            .for_each(|part| tour.word(part.into()));
        [*phase as u64, *step, *bytes, u64::from(*comm), u64::from(*waits)]
            .into_iter()
            .for_each(|part| tour.word(part));
        tour.request(*request);
        group.tour(tour);
        tour.tag(*comm, *tag);
        tour.ordered(Order::Collectives(*owner), *number, Ordered::Activity(place));
        tour.word(begun.len() as u64);
        begun.iter().for_each(|part| tour.request(*part));
        tour.future(kept);
        tour.word(drawn.is_some().into());
        if let Some(Awaited { ready, woken, busy, parts }) = drawn {
            parts.tour(tour);
            tour.moment(ready, Moment::Moves, place);
            tour.since_wait(woken, busy);
        }
    }
}

impl<O: Observer> Run<'_, O> {
    fn group(&mut self, rank: u32, ranks: &Ranks) -> Step<Group> {
        if ranks.0.is_empty() {
            return Ok(Group::All);
        }
        let op = self.processes[rank as usize].pc;
        let mut ranges = Vec::with_capacity(ranks.0.len());
        for (low, high) in &ranks.0 {
            let (low, high) = (self.whole(rank, low)?, self.whole(rank, high)?);
            if low > high {
                continue;
            }
            let all = 0..i64::from(self.model.numprocs);
            if let Some(end) = [low, high].into_iter().find(|end| !all.contains(end)) {
                return self.wrong(rank, op, format!("there is no process {end} for the group"));
            }
            ranges.push((low as u32, high as u32));
        }
        ranges.sort_unstable();
        let mut merged: Vec<(u32, u32)> = Vec::with_capacity(ranges.len());
        for (low, high) in ranges {
            match merged.last_mut() {
                Some(last) if low <= last.1 + 1 => last.1 = last.1.max(high),
                _ => merged.push((low, high)),
            }
        }
        let whole = merged.first() == Some(&(0, self.model.numprocs - 1));
        Ok(if whole { Group::All } else { Group::Ranges(merged.into()) })
    }

    /// The tag of a process's next collective in a group. Groups that share two processes differ in
    /// it as a rule; if they do not, order decides, as MPI has it.
    fn turn(&mut self, rank: u32, comm: u32, group: &Group, operation: CollectiveOp) -> (i64, i64) {
        let turns = &mut self.processes[rank as usize].turns;
        let at = turns.iter().position(|t| t.comm == comm && t.group == *group).unwrap_or_else(|| {
            turns.push(Turn { comm, group: group.clone(), count: 0 });
            self.meetings.groups += u64::from(*group != Group::All);
            turns.len() - 1
        });
        turns[at].count += 1;
        let count = turns[at].count;
        (count << TURN_BITS | (operation as i64) << 20 | group.mark(), count)
    }

    /// A process comes to a collective: what it says of it must be what the others say.
    fn meet(&mut self, group: &Group, comm: u32, count: i64, n: u32, mine: Meeting) -> Step<()> {
        let place = (comm, group.clone(), count);
        let Some(first) = self.meetings.open.get_mut(&place) else {
            if n > 1 {
                self.meetings.open.insert(place, mine);
            }
            return Ok(());
        };
        first.here += 1;
        let first = *first;
        if first.here == n {
            self.meetings.open.remove(&place);
        }
        let Some((here, there)) = mine.differs(&first) else { return Ok(()) };
        let message = format!(
            "collectives that do not match: {here} at process {}, {there} at process {}",
            mine.process, first.process
        );
        let also = vec![(first.op, format!("process {} was here", first.process))];
        self.failure = Some(Failure { process: mine.process, op: mine.op, at: self.now, message, also });
        Err(Stop)
    }

    pub(super) fn collective_op(&mut self, rank: u32, collective: &Collective) -> Step<Flow> {
        let request = self.begin_collective(rank, collective)?;
        if let Some(name) = &collective.request {
            self.name(rank, name, request)?;
            return Ok(self.next_op(rank));
        }
        self.processes[rank as usize].wait.push((0, request));
        self.begin_wait(rank, false)
    }

    fn begin_collective(&mut self, rank: u32, collective: &Collective) -> Step<u32> {
        let operation = collective.operation;
        let op = self.processes[rank as usize].pc;
        let group = self.group(rank, &collective.group)?;
        let n = group.size(self.model.numprocs);
        let name = operation_name(operation);
        let Some(me) = group.seat(rank) else {
            return self.wrong(rank, op, format!("process {rank} comes to a {name} of a group that it is not in"));
        };
        let root = match &collective.root {
            None => 0,
            Some(root) => {
                let root = self.whole(rank, root)?;
                let seat = u32::try_from(root).ok().filter(|r| *r < self.model.numprocs).and_then(|r| group.seat(r));
                match seat {
                    Some(seat) => seat,
                    None => {
                        return self.wrong(
                            rank,
                            op,
                            format!("process {root} is the root of a {name} but not in its group"),
                        );
                    }
                }
            }
        };
        let bytes = self.bytes(rank, &collective.size)?;
        let comm = matched_comm(self.comm(rank, &collective.comm)?, true);
        let (tag, count) = self.turn(rank, comm, &group, operation);
        let size = collective.alike && operation != CollectiveOp::Barrier;
        let mine = Meeting {
            operation,
            blocks: collective.request.is_none(),
            root: group.rank(root),
            bytes: size.then_some(bytes),
            process: rank,
            op,
            here: 1,
        };
        self.meet(&group, comm, count, n, mine)?;
        let mut made = Request::new(rank, &self.processes[rank as usize], Kind::Collective, self.now);
        (made.tag, made.comm) = (Some(tag), comm);
        let request = self.requests.insert(made);
        // Where sizes may differ, each process must come to the same algorithm whatever its own is.
        let algorithm = match (collective.alike, operation) {
            (true, _) => self.machine.collectives.algorithm(operation, bytes, n),
            (false, CollectiveOp::Alltoall) => Algorithm::Linear,
            (false, _) => self.machine.collectives.algorithm(operation, u64::MAX, n),
        };
        self.processes[rank as usize].begun += 1;
        let activity = Activity {
            owner: rank,
            number: self.processes[rank as usize].begun,
            request,
            operation,
            seat: Seat { me, root, n },
            group,
            plan: Plan::of(operation, algorithm, n, bytes),
            phase: 0,
            step: 0,
            comm,
            tag,
            bytes,
            begun: Vec::new(),
            open: 0,
            waits: false,
            kept: self.now,
            drawn: None,
        };
        let id = self.activities.insert(activity);
        self.requests[request].peer = Some(id);
        let machine = self.machine;
        match machine.collectives.measured.get(&operation) {
            Some(grid) if n > 1 => self.gather(id, grid),
            _ => self.step(id)?,
        }
        Ok(request)
    }

    /// An activity takes steps until one has to wait.
    pub(super) fn step(&mut self, id: u32) -> Step<()> {
        let owner = self.activities[id].owner;
        self.count(owner)?;
        if let Some(awaited) = self.activities[id].drawn {
            self.end_activity(id, &awaited);
            return Ok(());
        }
        self.activities[id].waits = false;
        loop {
            self.settle(id);
            // What it was kept by comes before its next step.
            let activity = &self.activities[id];
            let (kept, number) = (activity.kept, activity.number);
            if kept > self.now {
                self.push(kept, What::Step, id, owner, number);
                return Ok(());
            }
            let Some((pattern, bytes)) = activity.plan.phase(activity.phase) else {
                self.end_activity(id, &Awaited { ready: self.now, ..Awaited::default() });
                return Ok(());
            };
            let micro = activity.seat.micro(pattern, bytes, activity.step);
            self.steps += 1;
            let activity = &mut self.activities[id];
            activity.step += 1;
            match micro {
                Micro::Skip => {}
                Micro::End => {
                    activity.phase += 1;
                    activity.step = 0;
                }
                Micro::Wait => {
                    if activity.open > 0 {
                        activity.waits = true;
                        return Ok(());
                    }
                }
                Micro::Send { to, bytes } => self.send_part(id, to, bytes),
                Micro::Recv { from } => self.recv_part(id, from)?,
            }
        }
    }

    /// Frees an activity's requests once all are complete; their receives keep it.
    fn settle(&mut self, id: u32) {
        if self.activities[id].open > 0 || self.activities[id].begun.is_empty() {
            return;
        }
        let owner = self.activities[id].owner;
        let mut begun = std::mem::take(&mut self.activities[id].begun);
        for request in begun.drain(..) {
            let done = &self.requests[request];
            let (kind, bytes) = (done.kind, done.bytes);
            if let (Kind::Recv, Ok(source)) = (kind, u32::try_from(done.source)) {
                let overhead = self.receive_overhead(owner, source, bytes);
                self.keep_activity(id, overhead, Doing::Receive);
            }
            self.requests.free(request);
        }
        self.activities[id].begun = begun;
    }

    /// An activity is kept for a time; so is its process, if it waits for it.
    fn keep_activity(&mut self, id: u32, time: Time, doing: Doing) {
        if time <= Time::ZERO {
            return;
        }
        let activity = &mut self.activities[id];
        activity.kept = activity.kept.max(self.now) + time;
        let (owner, request, kept) = (activity.owner, activity.request, activity.kept);
        // A blocking collective begins its steps before its process is set waiting: it is the only
        // thing in its list then.
        let blocking = self.processes[owner as usize].wait.is_empty()
            && self.requests[request].op == self.processes[owner as usize].pc;
        if self.requests[request].is_waited_for() || blocking {
            let rest = kept - self.processes[owner as usize].accounted;
            if rest > Time::ZERO {
                self.keep(owner, rest, Cause::Overhead, doing);
            }
        }
    }

    fn send_part(&mut self, id: u32, to: u32, bytes: u64) {
        let activity = &self.activities[id];
        let owner = activity.owner;
        let op = self.requests[activity.request].op;
        let out = Outgoing {
            to: activity.group.rank(to),
            tag: activity.tag,
            comm: activity.comm,
            bytes,
            mode: SendMode::Standard,
            op,
            carries: None,
        };
        let SendEnd { call, complete } = self.send_end(owner, &out);
        let local = self.is_local(owner, &out);
        let mut request = NOBODY;
        if !local || complete > call {
            request = self.part(id, Kind::Send, out.to);
            self.activities[id].open += 1;
        }
        self.post(owner, out, if local { NOBODY } else { request });
        if local && request != NOBODY {
            self.complete_later(request, complete);
        }
        self.keep_activity(id, call, Doing::Send);
    }

    /// A request that is part of an activity.
    fn part(&mut self, id: u32, kind: Kind, peer: u32) -> u32 {
        let activity = &self.activities[id];
        let owner = activity.owner;
        let mut made = Request::new(owner, &self.processes[owner as usize], kind, self.now);
        (made.activity, made.peer, made.tag, made.comm) = (id, Some(peer), Some(activity.tag), activity.comm);
        made.op = self.requests[activity.request].op;
        let request = self.requests.insert(made);
        self.activities[id].begun.push(request);
        request
    }

    fn recv_part(&mut self, id: u32, from: u32) -> Step<()> {
        let activity = &self.activities[id];
        let (owner, comm, tag) = (activity.owner, activity.comm, activity.tag);
        let from = activity.group.rank(from);
        let request = self.part(id, Kind::Recv, from);
        self.activities[id].open += 1;
        let wanted = Wanted { to: owner, from: Some(from), comm, tag: Some(tag) };
        if let Some(message) = self.matching.posted(wanted, request) {
            self.matched(message, request)?;
        }
        Ok(())
    }

    /// A part of an activity is complete now.
    pub(super) fn activity_completes(&mut self, id: u32, part: u32, awaited: &Awaited) {
        let _ = part;
        let activity = &mut self.activities[id];
        activity.open -= 1;
        let (owner, request, number) = (activity.owner, activity.request, activity.number);
        let goes_on = activity.open == 0 && activity.waits;
        if goes_on {
            activity.waits = false;
        }
        if self.requests[request].is_waited_for() {
            self.charge(owner, awaited);
        }
        if goes_on {
            let at = self.activities[id].kept.max(self.now);
            self.push(at, What::Step, id, owner, number);
        }
    }

    fn end_activity(&mut self, id: u32, awaited: &Awaited) {
        let request = self.activities[id].request;
        self.activities.free(id);
        self.requests[request].peer = None;
        self.complete(request, awaited);
    }

    /// A process comes to a collective that is drawn as a whole.
    fn gather(&mut self, id: u32, grid: &Grid) {
        let activity = &self.activities[id];
        let (place, n) = ((activity.comm, activity.tag), activity.seat.n);
        let (operation, is_root) = (activity.operation, activity.seat.me == activity.seat.root);
        let all = self.gatherings.0.entry(place).or_default();
        all.here += 1;
        all.root |= is_root;
        let complete = all.here == n;
        all.waiting.push(id);
        let root_here = all.root;
        let waiting = std::mem::take(&mut all.waiting);
        let (mut go, mut stay) = (Vec::new(), Vec::new());
        for one in waiting {
            let seat = self.activities[one].seat;
            let free = if waits_for_all(operation, seat.me == seat.root) {
                complete
            } else {
                root_here || !waits_for_root(operation)
            };
            if free { go.push(one) } else { stay.push(one) }
        }
        if complete {
            self.gatherings.0.remove(&place);
        } else if let Some(all) = self.gatherings.0.get_mut(&place) {
            all.waiting = stay;
        }
        let last = &self.processes[self.activities[id].owner as usize];
        let (woken, busy) = (last.woken, last.busy);
        for one in go {
            self.draw_whole(one, grid, woken, busy);
        }
    }

    /// From now on a process's part of a collective takes a draw.
    fn draw_whole(&mut self, id: u32, grid: &Grid, woken: Time, busy: Time) {
        let activity = &self.activities[id];
        let (owner, bytes, number) = (activity.owner, activity.bytes, activity.number);
        let bytes = if self.options.infinite_bandwidth { 0 } else { bytes };
        let level = Level { messages: activity.seat.n, ..Level::ALONE };
        let unit = open_unit(&mut self.processes[owner as usize].luck);
        let drawn = Time::from_ns(grid.draw(bytes, level, self.options.draw, unit, &mut self.local_beyond));
        let drawn = self.network.in_this_launch(drawn);
        // Its least time for this many processes, not for the fewest that were measured.
        let least = |bytes| {
            let mut unused = crate::machine::Beyond::default();
            Time::from_ns(grid.draw(bytes, level, crate::Draw::Least, 0.0, &mut unused))
        };
        let best = least(bytes).min(drawn);
        let latency = least(0).min(best);
        let flight = Flight { latency, bandwidth: best - latency, contention: drawn - best };
        let parts = Parts { flight, ..Parts::default() };
        self.activities[id].drawn = Some(Awaited { ready: self.now, woken, busy, parts });
        self.push(self.now + drawn, What::Step, id, owner, number);
    }

    /// The parts of a collective that are not complete at a process, and who is not there yet where
    /// it is drawn as a whole.
    pub(super) fn open_parts(&self, id: u32) -> (Vec<u32>, bool) {
        let activity = &self.activities[id];
        let open = activity.begun.iter().copied().filter(|r| self.requests[*r].done.is_none());
        (open.collect(), activity.begun.is_empty())
    }
}
