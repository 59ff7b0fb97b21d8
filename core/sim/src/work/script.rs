//! Programs that are lists of steps.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};

use crate::check::Program;
use crate::rank::{App, Io, Outcome, RecvId, RecvOp, RemoteId, RemoteOp, SendId, SendOp};
use crate::spec::{HostId, Ns};

/// One step of a script.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Step {
    /// Start a send; in the first phase to the host's first incarnation, later to the one alive.
    Send(SendOp),
    /// Post a receive; its sender is understood like the receiver of a send.
    Receive(RecvOp),
    /// Look for a message until there is one, claim it, and receive it then; its sender is
    /// understood like the receiver of a send.
    Look(RecvOp),
    /// The receive or look before this is known by this number.
    Mark(u32),
    /// Withdraw the receive or look known by this number and begin it again, if it has taken
    /// nothing.
    Again(u32),
    /// So many messages of this host, understood like the receiver of a send, are to come into the
    /// buffers of this group.
    Await {
        /// The group.
        group: u32,
        /// The sender.
        from: HostId,
        /// How many.
        count: u32,
    },
    /// Post buffers for several messages, and others in the place of those handed back, until all
    /// that is awaited has come; its sender is understood like the receiver of a send.
    Many {
        /// The group.
        group: u32,
        /// What they take.
        op: RecvOp,
        /// Bytes that are to be free in one that takes more.
        min: u64,
        /// How many are posted at a time.
        buffers: u32,
    },
    /// Start a remote write or read; its target is understood like the receiver of a send.
    Remote(RemoteOp),
    /// Go on when at most so many sends are open.
    WaitSends(usize),
    /// Go on when at most so many receives are open.
    WaitReceives(usize),
    /// Go on at this time.
    At(Ns),
    /// Compute for this long.
    Compute(Ns),
    /// A new phase begins: receives posted before belong to the past.
    Phase,
    /// Have done with the first incarnation on this host, whether it lives or not.
    Drop(HostId),
    /// Withdraw the receives of earlier phases directed at a host that has died. If an association
    /// with it existed, its death must have been noticed by now. It is forgotten.
    Forget(HostId),
}

/// Buffers for several messages that one another follow.
#[derive(Debug, Default)]
struct Group {
    /// Messages to come, by sender.
    awaited: BTreeMap<HostId, u32>,
    /// What the buffers take, and how many bytes are to be free.
    op: Option<(RecvOp, Option<Program>, u64)>,
    phase: u32,
    open: BTreeSet<RecvId>,
}

/// Runs a list of steps.
#[derive(Debug)]
pub struct Script {
    steps: VecDeque<Step>,
    sends: BTreeSet<SendId>,
    /// With phase and the program each is directed at.
    receives: BTreeMap<RecvId, (u32, Option<Program>)>,
    /// Those that are known by a number: what they are, and whether they look.
    marks: BTreeMap<u32, (RecvId, RecvOp, bool)>,
    last: Option<(RecvId, RecvOp, bool)>,
    groups: BTreeMap<u32, Group>,
    remote: BTreeSet<RemoteId>,
    phase: u32,
    wake: Option<Ns>,
    waited: bool,
}

impl Script {
    /// A program that does these steps and is done when all operations have ended.
    #[must_use]
    pub fn new(steps: impl IntoIterator<Item = Step>) -> Self {
        Script {
            steps: steps.into_iter().collect(),
            sends: BTreeSet::new(),
            receives: BTreeMap::new(),
            marks: BTreeMap::new(),
            last: None,
            groups: BTreeMap::new(),
            remote: BTreeSet::new(),
            phase: 0,
            wake: None,
            waited: false,
        }
    }

    fn go(&mut self, io: &mut Io<'_, '_>) {
        while let Some(step) = self.steps.front().copied() {
            if !self.step(io, step) {
                return;
            }
            self.waited = false;
            self.wake = None;
            self.steps.pop_front();
        }
    }

    /// Does one step; false if it must wait.
    fn step(&mut self, io: &mut Io<'_, '_>, step: Step) -> bool {
        match step {
            Step::Send(op) => {
                let to = self.program(io, op.to);
                self.sends.insert(io.send_to(op, to));
            }
            Step::Receive(op) | Step::Look(op) => {
                let from = op.from.map(|h| self.program(io, h));
                self.begin(io, op, from, matches!(step, Step::Look(_)));
            }
            Step::Mark(mark) => {
                if let Some(last) = self.last {
                    self.marks.insert(mark, last);
                }
            }
            Step::Again(mark) => {
                if let Some((id, op, looks)) = self.marks.remove(&mark)
                    && let Some((phase, from)) = self.receives.get(&id).copied()
                    && io.cancel(id)
                {
                    let again = self.begin(io, op, from, looks);
                    self.receives.insert(again, (phase, from));
                }
            }
            Step::Await { group, from, count } => {
                *self.groups.entry(group).or_default().awaited.entry(from).or_insert(0) += count;
            }
            Step::Many { group, op, min, buffers } => {
                let from = op.from.map(|h| self.program(io, h));
                let all = self.groups.entry(group).or_default();
                (all.op, all.phase) = (Some((op, from, min)), self.phase);
                for _ in 0..buffers {
                    all.open.insert(io.receive_many(op, from, min));
                }
            }
            Step::Remote(op) => {
                let to = self.program(io, op.to);
                self.remote.insert(io.remote(op, to));
            }
            Step::WaitSends(n) => return self.sends.len() <= n,
            Step::WaitReceives(n) => return self.receives.len() <= n,
            Step::At(t) => {
                self.wake = Some(t);
                return io.now() >= t;
            }
            Step::Compute(d) => {
                if !self.waited {
                    self.waited = true;
                    self.wake = Some(io.now() + d);
                }
                return self.wake.is_none_or(|t| io.now() >= t);
            }
            Step::Phase => self.phase += 1,
            Step::Drop(host) => self.drop_peer(io, host),
            Step::Forget(host) => self.forget(io, host),
        }
        true
    }

    /// Whom a step means by a host. The first phase is meant for the programs that were there at
    /// the start, however late a busy host comes to it: their successors know nothing of it and
    /// would leave its messages unmatched for ever.
    fn program(&self, io: &Io<'_, '_>, host: HostId) -> Program {
        if self.phase == 0 { Program { host, incarnation: 0 } } else { io.current(host) }
    }

    fn begin(&mut self, io: &mut Io<'_, '_>, op: RecvOp, from: Option<Program>, looks: bool) -> RecvId {
        let id = if looks { io.look_from(op, from) } else { io.receive_from(op, from) };
        self.receives.insert(id, (self.phase, from));
        self.last = Some((id, op, looks));
        id
    }

    /// A message has come into a buffer; once nothing more is awaited the rest of the buffers are
    /// withdrawn.
    fn part(&mut self, io: &mut Io<'_, '_>, receive: RecvId, from: HostId) {
        let Some(all) = self.groups.values_mut().find(|all| all.open.contains(&receive)) else { return };
        if let Some(left) = all.awaited.get_mut(&from) {
            *left -= 1;
            if *left == 0 {
                all.awaited.remove(&from);
                all.withdraw_if_done(io);
            }
        }
    }

    /// A buffer is handed back: another takes its place if more is to come.
    fn back(&mut self, io: &mut Io<'_, '_>, receive: RecvId, empty: bool) {
        let Some((k, all)) = self.groups.iter_mut().find(|(_, all)| all.open.contains(&receive)) else { return };
        all.open.remove(&receive);
        if empty {
            all.awaited.clear();
        }
        match all.op {
            Some((op, from, min)) if !all.awaited.is_empty() => _ = all.open.insert(io.receive_many(op, from, min)),
            _ if all.open.is_empty() => {
                let k = *k;
                self.groups.remove(&k);
            }
            _ => all.withdraw_if_done(io),
        }
    }

    fn drop_peer(&mut self, io: &mut Io<'_, '_>, host: HostId) {
        io.drop_peer(Program { host, incarnation: 0 });
        for all in self.groups.values_mut() {
            if all.awaited.remove(&host).is_some() {
                all.withdraw_if_done(io);
            }
        }
    }

    fn forget(&mut self, io: &mut Io<'_, '_>, host: HostId) {
        let old = |(phase, from): &(u32, Option<Program>)| *phase < self.phase && from.is_some_and(|p| p.host == host);
        let gone: Vec<_> = self.receives.iter().filter(|(_, r)| old(r)).map(|(id, r)| (*id, r.1)).collect();
        for (id, from) in gone {
            if io.cancel(id)
                && let Some(from) = from
            {
                io.must_know_dead(from);
            }
        }
        for all in self.groups.values_mut().filter(|all| all.phase < self.phase) {
            if let Some((_, Some(from), _)) = all.op.filter(|(_, from, _)| from.is_some_and(|p| p.host == host)) {
                for id in &all.open {
                    if io.cancel(*id) {
                        io.must_know_dead(from);
                    }
                }
            }
            if all.awaited.remove(&host).is_some() {
                all.withdraw_if_done(io);
            }
        }
        io.forget(Program { host, incarnation: 0 });
    }
}

impl Group {
    fn withdraw_if_done(&self, io: &mut Io<'_, '_>) {
        if self.awaited.is_empty() {
            self.open.iter().for_each(|id| _ = io.cancel(*id));
        }
    }
}

impl App for Script {
    fn start(&mut self, io: &mut Io<'_, '_>) {
        self.go(io);
    }

    fn outcome(&mut self, io: &mut Io<'_, '_>, outcome: Outcome) {
        match outcome {
            Outcome::Sent(id) | Outcome::SendFailed(id) => {
                self.sends.remove(&id);
            }
            Outcome::Received { receive, .. } | Outcome::RecvFailed(receive) => {
                self.receives.remove(&receive);
            }
            Outcome::Part { receive, from } => self.part(io, receive, from),
            Outcome::Back { receive, empty } => self.back(io, receive, empty),
            Outcome::Remote(id) => {
                self.remote.remove(&id);
            }
        }
        self.go(io);
    }

    fn wake(&mut self, io: &mut Io<'_, '_>) {
        self.go(io);
    }

    fn next_wake(&self) -> Option<Ns> {
        self.wake
    }

    fn is_done(&self) -> bool {
        let pending = self.sends.len() + self.receives.len() + self.groups.len() + self.remote.len();
        self.steps.is_empty() && pending == 0
    }

    fn state(&self) -> String {
        let some = |n: usize| format!("{n}");
        format!(
            "{} steps left, next {:?}, waits for sends {:?} ({}), receives {:?} ({}), buffers {:?}, remote {:?}",
            self.steps.len(),
            self.steps.front(),
            self.sends.iter().take(5).map(|s| s.0).collect::<Vec<_>>(),
            some(self.sends.len()),
            self.receives.keys().take(5).map(|r| r.0).collect::<Vec<_>>(),
            some(self.receives.len()),
            self.groups.values().take(3).collect::<Vec<_>>(),
            self.remote.iter().take(5).map(|r| r.0).collect::<Vec<_>>(),
        )
    }
}
