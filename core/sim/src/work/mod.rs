//! Work for the ranks: what a parallel program would do.

pub mod farm;
pub mod script;
pub mod service;
pub mod supersteps;
pub mod traffic;

use serde::{Deserialize, Serialize};

use crate::check::Program;
use crate::rank::{App, RecvOp, SendOp};
use crate::rng::Rng;
use crate::spec::{HostId, Ns};
use script::{Script, Step};

/// What one host sends to host 0.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Flow {
    /// When it begins.
    pub start_ns: Ns,
    /// Bytes of a message.
    pub len: u64,
    /// Messages.
    pub count: u32,
    /// Sends open at a time.
    pub window: usize,
}

/// What the ranks do.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Workload {
    /// Hosts in pairs (0 with 1, 2 with 3 ...) answer each other.
    PingPong {
        /// Bytes each way.
        len: u64,
        /// There and back.
        rounds: u32,
    },
    /// Each host of the first half sends to its partner in the second half.
    Stream {
        /// Smallest and largest message.
        len: (u64, u64),
        /// Messages from each sender.
        count: u32,
        /// Tags they are spread over.
        tags: u64,
        /// Sends open at a time.
        window: usize,
    },
    /// All hosts but 0 send to host 0 at once.
    Incast {
        /// Bytes of a message.
        len: u64,
        /// Messages from each sender.
        count: u32,
        /// Sends open at a time, each sender.
        window: usize,
    },
    /// Host 0 receives from the others, each of which begins at its own time; host 1 has the first.
    Flows(Vec<Flow>),
    /// Everyone sends to everyone, round after round.
    AllToAll {
        /// Bytes of a message.
        len: u64,
        /// Rounds.
        rounds: u32,
    },
    /// Supersteps: computation, then everyone sends different amounts to everyone, then all wait.
    Superstep {
        /// Number of steps.
        steps: u32,
        /// Smallest and largest message.
        len: (u64, u64),
        /// Computation in each step.
        compute_ns: Ns,
    },
    /// Supersteps with a reduction before each, of which everybody knows what it sends and gets.
    Bsp(supersteps::Bsp),
    /// Host 0 farms tasks out.
    Farm(farm::Farm),
    /// Clients ask host 0.
    Service(service::Service),
    /// Random messages, receives and times.
    Traffic(traffic::Traffic),
}

/// Bits of the tag in which MPI libraries keep their protocol and which their receives ignore
/// (these are MPICH's).
const PROTOCOL: u64 = 0xc0 << 48;

fn send(to: HostId, tag: u64, len: u64) -> Step {
    Step::Send(SendOp { to, tagged: true, tag, len, sync: false })
}

fn receive(from: HostId, tag: u64) -> Step {
    Step::Receive(RecvOp { from: Some(from), tagged: true, tag, ignore: PROTOCOL, room: u64::MAX })
}

/// A length that every rank can work out: it depends on nothing but its arguments.
fn length(range: (u64, u64), seed: u64, which: u64) -> u64 {
    Rng::new(seed, which).log_between(range.0, range.1)
}

impl Workload {
    /// The program for a rank.
    #[must_use]
    pub fn app(&self, program: Program, hosts: u32, seed: u64) -> Box<dyn App> {
        let me = program.host;
        match self {
            Workload::Farm(f) if me == 0 => Box::new(farm::Manager::new(*f, hosts - 1)),
            Workload::Farm(f) => Box::new(farm::Worker::new(*f)),
            Workload::Bsp(b) => Box::new(supersteps::Process::new(*b, me, hosts, seed)),
            Workload::Service(s) if me == 0 => Box::new(service::Server::new(*s, seed)),
            Workload::Service(s) => Box::new(service::Client::new(*s, program, seed)),
            _ => Box::new(Script::new(self.steps(program, hosts, seed))),
        }
    }

    fn steps(&self, program: Program, hosts: u32, seed: u64) -> Vec<Step> {
        let me = program.host;
        match *self {
            Workload::PingPong { len, rounds } => ping_pong(me, hosts, len, rounds),
            Workload::Stream { len, count, tags, window } => stream(me, hosts, seed, len, count, tags, window),
            Workload::Incast { len, count, window } => incast(me, hosts, len, count, window),
            Workload::Flows(ref f) => flows(me, f),
            Workload::AllToAll { len, rounds } => exchange(me, hosts, rounds, 0, |_, _, _| len),
            Workload::Superstep { steps, len, compute_ns } => {
                exchange(me, hosts, steps, compute_ns, |step, from, to| {
                    length(len, seed, u64::from(step) << 48 | u64::from(from) << 24 | u64::from(to))
                })
            }
            Workload::Traffic(ref t) => t.steps(program),
            Workload::Farm(_) | Workload::Bsp(_) | Workload::Service(_) => Vec::new(),
        }
    }

    /// Bytes and messages in all, for the allowance of time.
    #[must_use]
    pub fn volume(&self, hosts: u32) -> (u64, u64) {
        let h = u64::from(hosts);
        match self {
            Workload::PingPong { len, rounds } => (h * len * u64::from(*rounds), h * u64::from(*rounds)),
            Workload::Stream { len, count, .. } => (h * len.1 * u64::from(*count), h * u64::from(*count)),
            Workload::Incast { len, count, .. } => (h * len * u64::from(*count), h * u64::from(*count)),
            Workload::Flows(f) => {
                (f.iter().map(|f| f.len * u64::from(f.count)).sum(), f.iter().map(|f| u64::from(f.count)).sum())
            }
            Workload::AllToAll { len, rounds } => (h * h * len * u64::from(*rounds), h * h * u64::from(*rounds)),
            Workload::Superstep { steps, len, .. } => (h * h * len.1 * u64::from(*steps), h * h * u64::from(*steps)),
            Workload::Farm(f) => (f.tasks * (f.task_bytes + f.result_bytes), 2 * f.tasks),
            Workload::Bsp(b) => b.volume(hosts),
            Workload::Service(s) => s.volume(hosts),
            Workload::Traffic(t) => {
                let (messages, remote) = (t.messages.iter().map(|m| m.len), t.remote.iter().map(|r| r.op.len));
                (messages.chain(remote).sum(), (t.messages.len() + t.remote.len()) as u64)
            }
        }
    }

    /// The longest chain of messages of which each waits for the one before.
    #[must_use]
    pub fn chain(&self) -> u64 {
        match *self {
            Workload::PingPong { rounds, .. } | Workload::AllToAll { rounds, .. } => 2 * u64::from(rounds),
            Workload::Superstep { steps, .. } => 2 * u64::from(steps),
            Workload::Stream { count, .. } | Workload::Incast { count, .. } => u64::from(count),
            Workload::Flows(ref f) => f.iter().map(|f| u64::from(f.count)).max().unwrap_or(0),
            Workload::Farm(f) => 2 * f.tasks,
            Workload::Bsp(b) => 20 * u64::from(b.steps),
            Workload::Service(s) => 2 * u64::from(s.requests),
            Workload::Traffic(ref t) => (t.messages.len() as u64).min(50),
        }
    }

    /// When the program itself acts last, apart from waiting for operations.
    #[must_use]
    pub fn last_act_ns(&self) -> Ns {
        match self {
            Workload::Traffic(t) => t.last_act_ns(),
            Workload::Superstep { steps, compute_ns, .. } => u64::from(*steps) * compute_ns,
            Workload::Farm(f) => f.tasks * f.compute_ns,
            Workload::Bsp(b) => u64::from(b.steps) * b.compute_ns,
            Workload::Service(s) => s.serve_ns.max(s.spread_ns),
            Workload::Flows(f) => f.iter().map(|f| f.start_ns).max().unwrap_or(0),
            _ => 0,
        }
    }
}

fn ping_pong(me: HostId, hosts: u32, len: u64, rounds: u32) -> Vec<Step> {
    let other = me ^ 1;
    if other >= hosts {
        return Vec::new();
    }
    let wait = Step::WaitReceives(0);
    let round = if me < other {
        [send(other, 1, len), receive(other, 1), wait]
    } else {
        [receive(other, 1), wait, send(other, 1, len)]
    };
    (0..rounds).flat_map(|_| round).collect()
}

fn stream(me: HostId, hosts: u32, seed: u64, len: (u64, u64), count: u32, tags: u64, window: usize) -> Vec<Step> {
    let half = hosts / 2;
    if me >= 2 * half {
        return Vec::new();
    }
    let tag = |i: u32| u64::from(i) % tags.max(1);
    if me >= half {
        return (0..count).flat_map(|i| [receive(me - half, tag(i)), Step::WaitReceives(2 * window)]).collect();
    }
    let one = |i: u32| send(me + half, tag(i), length(len, seed, u64::from(me) << 32 | u64::from(i)));
    (0..count).flat_map(|i| [one(i), Step::WaitSends(window.max(1) - 1)]).collect()
}

fn incast(me: HostId, hosts: u32, len: u64, count: u32, window: usize) -> Vec<Step> {
    if me > 0 {
        return (0..count).flat_map(|_| [send(0, 7, len), Step::WaitSends(window.max(1) - 1)]).collect();
    }
    (0..count).flat_map(|_| (1..hosts).map(|h| receive(h, 7))).collect()
}

fn flows(me: HostId, flows: &[Flow]) -> Vec<Step> {
    let Some(mine) = me.checked_sub(1) else {
        let all = (1..).zip(flows).flat_map(|(h, f)| (0..f.count).map(move |_| receive(h, 7)));
        return all.collect();
    };
    let Some(f) = flows.get(mine as usize) else { return Vec::new() };
    let sends = (0..f.count).flat_map(|_| [send(0, 7, f.len), Step::WaitSends(f.window.max(1) - 1)]);
    std::iter::once(Step::At(f.start_ns)).chain(sends).collect()
}

/// Rounds in which everyone sends `len(round, from, to)` to everyone, beginning with the next
/// neighbour.
fn exchange(
    me: HostId,
    hosts: u32,
    rounds: u32,
    compute_ns: Ns,
    len: impl Fn(u32, HostId, HostId) -> u64,
) -> Vec<Step> {
    let mut steps = Vec::new();
    for round in 0..rounds {
        if compute_ns > 0 {
            steps.push(Step::Compute(compute_ns));
        }
        steps.extend((1..hosts).map(|d| receive((me + hosts - d) % hosts, u64::from(round))));
        steps.extend((1..hosts).map(|d| (me + d) % hosts).map(|to| send(to, u64::from(round), len(round, me, to))));
        steps.extend([Step::WaitReceives(0), Step::WaitSends(0)]);
    }
    steps
}
