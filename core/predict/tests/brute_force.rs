//! The engine against a simulator written from MPI's rules, which has no queue of events: it keeps
//! all that was ever sent and posted, and looks through all of it for what can happen next. Random
//! small programs: the same matches, times and deadlocks.

mod common;

use common::*;
use proptest::prelude::*;
use weir_annotations::expr::{Binary, Expr, Slot, Value};
use weir_annotations::program::{Bound, Law, Message, OpKind, SendMode, Serial, Time as Timed};
use weir_predict::observe::Recording;
use weir_predict::{Options, Verdict, evaluate_observed};

/// Nanoseconds.
type Ns = i64;

const LATENCY: Ns = 1000;
/// Standard sends above this many bytes ask first. A byte takes 1 ns.
const EAGER: i64 = 1000;

#[derive(Debug, Clone)]
enum Action {
    Serial(Ns),
    Send {
        mode: SendMode,
        to: i64,
        bytes: i64,
        tag: i64,
        request: Option<u32>,
    },
    Recv {
        from: Option<i64>,
        tag: Option<i64>,
        request: Option<u32>,
    },
    /// A send or receive that begins when it is started.
    Init(Box<Action>),
    Start(Vec<u32>),
    Free(u32),
    Sendrecv {
        to: i64,
        bytes: i64,
        from: i64,
    },
    WaitAll(Vec<u32>),
    /// Then computes for (position + 1) x 3 us.
    WaitAny(Vec<u32>),
    /// Then computes for (how many were complete + 1) x 3 us.
    WaitSome(Vec<u32>),
    /// The same.
    TestSome(Vec<u32>),
    /// Then computes for 7 us if it is complete.
    Test(u32),
    /// Then computes for (source + 1) x 2 us.
    Probe {
        from: Option<i64>,
        tag: Option<i64>,
    },
    /// Then computes for 5 us if there is a message.
    Iprobe {
        from: Option<i64>,
        tag: Option<i64>,
    },
}

// ---- The simulator ------------------------------------------------------------------------------

#[derive(Debug)]
struct Sent {
    from: usize,
    to: i64,
    tag: i64,
    bytes: i64,
    post: Ns,
    /// When its envelope is there.
    arrival: Ns,
    asks: bool,
    synchronous: bool,
    matched: bool,
    done: Option<Ns>,
    action: usize,
}

#[derive(Debug)]
struct Posted {
    owner: usize,
    from: Option<i64>,
    tag: Option<i64>,
    post: Ns,
    matched: bool,
    done: Option<Ns>,
    action: usize,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Ref {
    Send(usize),
    Recv(usize),
}

#[derive(Debug, Clone)]
enum Stands {
    At(Vec<Ref>),
    AtAny(Vec<(usize, Ref)>),
    /// Whether it waits.
    AtSome(Vec<Ref>, bool),
    AtTest(Option<Ref>),
    AtProbe {
        from: Option<i64>,
        tag: Option<i64>,
        blocking: bool,
    },
}

#[derive(Default)]
struct Process {
    pc: usize,
    clock: Ns,
    stands: Option<Stands>,
    done: bool,
    names: Vec<(u32, Ref)>,
    /// Persistent requests: which, made by which action, for what.
    made: Vec<(u32, usize, Action)>,
}

#[derive(Debug, PartialEq)]
struct Result {
    /// When each process ended; none: never.
    ends: Vec<Option<Ns>>,
    /// (sender, its action, receiver, its action, when received), sorted.
    matches: Vec<(usize, usize, usize, usize, Ns)>,
}

#[derive(Default)]
struct Simulator {
    processes: Vec<Process>,
    sends: Vec<Sent>,
    recvs: Vec<Posted>,
    matches: Vec<(usize, usize, usize, usize, Ns)>,
}

/// What can happen next, in the order in which it is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Decision {
    Match {
        arrival: Ns,
        from: usize,
        send: usize,
        recv: usize,
    },
    /// A call that is complete when it is made ends before any other process goes on.
    GoOn(usize),
    Release(usize),
    Look(usize),
}

impl Simulator {
    fn run(programs: &[Vec<Action>]) -> Result {
        let mut all = Self::default();
        all.processes.resize_with(programs.len(), Process::default);
        loop {
            for (rank, program) in programs.iter().enumerate() {
                while all.processes[rank].stands.is_none() && !all.processes[rank].done {
                    all.act(rank, program);
                }
            }
            let Some((at, decision)) = all.decisions().into_iter().min() else { break };
            all.commit(at, decision);
        }
        all.matches.sort_unstable();
        let ends = all.processes.iter().map(|p| p.done.then_some(p.clock)).collect();
        Result { ends, matches: all.matches }
    }

    fn send(&mut self, rank: usize, mode: SendMode, to: i64, bytes: i64, tag: i64, action: usize) -> Ref {
        let post = self.processes[rank].clock;
        let asks = bytes > EAGER && mode != SendMode::Buffered;
        let alone = post + LATENCY + if asks { 0 } else { bytes };
        let before = self.sends.iter().filter(|s| s.from == rank && s.to == to).map(|s| s.arrival).max();
        let arrival = alone.max(before.unwrap_or(0));
        let synchronous = mode == SendMode::Synchronous;
        let done = (!asks && !synchronous).then_some(post);
        let (from, matched) = (rank, false);
        self.sends.push(Sent { from, to, tag, bytes, post, arrival, asks, synchronous, matched, done, action });
        Ref::Send(self.sends.len() - 1)
    }

    fn recv(&mut self, owner: usize, from: Option<i64>, tag: Option<i64>, action: usize) -> Ref {
        let post = self.processes[owner].clock;
        self.recvs.push(Posted { owner, from, tag, post, matched: false, done: None, action });
        Ref::Recv(self.recvs.len() - 1)
    }

    /// Begins a send or receive, of an action.
    fn begin(&mut self, rank: usize, what: &Action, action: usize) -> Option<Stands> {
        let (made, request) = match what {
            Action::Send { mode, to, bytes, tag, request } => {
                (self.send(rank, *mode, *to, *bytes, *tag, action), request)
            }
            Action::Recv { from, tag, request } => (self.recv(rank, *from, *tag, action), request),
            other => panic!("{other:?} begins nothing"),
        };
        match request {
            Some(id) => {
                self.processes[rank].names.push((*id, made));
                None
            }
            None => Some(Stands::At(vec![made])),
        }
    }

    fn act(&mut self, rank: usize, program: &[Action]) {
        let pc = self.processes[rank].pc;
        let Some(action) = program.get(pc) else {
            self.processes[rank].done = true;
            return;
        };
        self.processes[rank].pc += 1;
        let named = |p: &Process, id: &u32| p.names.iter().find(|n| n.0 == *id).map(|n| n.1);
        let stands = match action {
            Action::Serial(ns) => {
                self.processes[rank].clock += ns;
                None
            }
            Action::Send { .. } | Action::Recv { .. } => self.begin(rank, action, pc),
            Action::Init(what) => {
                if let Action::Send { request: Some(id), .. } | Action::Recv { request: Some(id), .. } = **what {
                    self.processes[rank].made.push((id, pc, (**what).clone()));
                }
                None
            }
            Action::Start(ids) => {
                for id in ids {
                    let (_, made, what) = self.processes[rank].made.iter().find(|m| m.0 == *id).unwrap().clone();
                    assert!(named(&self.processes[rank], id).is_none(), "started twice");
                    self.begin(rank, &what, made);
                }
                None
            }
            Action::Free(id) => {
                let own = &mut self.processes[rank];
                own.names.retain(|n| n.0 != *id);
                own.made.retain(|m| m.0 != *id);
                None
            }
            Action::Sendrecv { to, bytes, from } => {
                let received = self.recv(rank, Some(*from), None, pc);
                Some(Stands::At(vec![received, self.send(rank, SendMode::Standard, *to, *bytes, 0, pc)]))
            }
            Action::WaitAll(ids) => {
                let own = &mut self.processes[rank];
                let list = ids.iter().filter_map(|id| named(own, id)).collect();
                own.names.retain(|n| !ids.contains(&n.0));
                Some(Stands::At(list))
            }
            Action::WaitAny(ids) => {
                let own = &self.processes[rank];
                let list = ids.iter().enumerate();
                Some(Stands::AtAny(list.filter_map(|(n, id)| Some((n, named(own, id)?))).collect()))
            }
            Action::WaitSome(ids) | Action::TestSome(ids) => {
                let own = &self.processes[rank];
                let list = ids.iter().filter_map(|id| named(own, id)).collect();
                Some(Stands::AtSome(list, matches!(action, Action::WaitSome(_))))
            }
            Action::Test(id) => Some(Stands::AtTest(named(&self.processes[rank], id))),
            Action::Probe { from, tag } => Some(Stands::AtProbe { from: *from, tag: *tag, blocking: true }),
            Action::Iprobe { from, tag } => Some(Stands::AtProbe { from: *from, tag: *tag, blocking: false }),
        };
        self.processes[rank].stands = stands;
    }

    fn done(&self, what: Ref) -> Option<Ns> {
        match what {
            Ref::Send(s) => self.sends[s].done,
            Ref::Recv(r) => self.recvs[r].done,
        }
    }

    fn compatible(send: &Sent, to: usize, from: Option<i64>, tag: Option<i64>) -> bool {
        send.to == to as i64 && from.is_none_or(|f| f == send.from as i64) && tag.is_none_or(|t| t == send.tag)
    }

    /// The message that a probe sees first, with its arrival.
    fn seen(&self, rank: usize, from: Option<i64>, tag: Option<i64>) -> Option<(Ns, usize, usize)> {
        let open = self.sends.iter().enumerate().filter(|(_, s)| !s.matched && Self::compatible(s, rank, from, tag));
        open.map(|(n, s)| (s.arrival, s.from, n)).min()
    }

    fn decisions(&self) -> Vec<(Ns, Decision)> {
        let mut all = Vec::new();
        for (send, s) in self.sends.iter().enumerate().filter(|(_, s)| !s.matched) {
            // The receive posted first of those that could take it; it must be the first of its
            // channel for that receive.
            let takes = |r: &Posted| !r.matched && Self::compatible(s, r.owner, r.from, r.tag);
            let Some((recv, r)) = self.recvs.iter().enumerate().find(|(_, r)| takes(r)) else { continue };
            let earlier = self.sends[..send]
                .iter()
                .any(|e| !e.matched && e.from == s.from && Self::compatible(e, r.owner, r.from, r.tag));
            if !earlier {
                let (arrival, from) = (s.arrival, s.from);
                all.push((arrival.max(r.post), Decision::Match { arrival, from, send, recv }));
            }
        }
        for (rank, p) in self.processes.iter().enumerate() {
            match &p.stands {
                Some(Stands::At(list)) => {
                    let last = list.iter().map(|w| self.done(*w)).try_fold(p.clock, |t, d| d.map(|d| t.max(d)));
                    let decision = |at| if at == p.clock { Decision::GoOn(rank) } else { Decision::Release(rank) };
                    all.extend(last.map(|at| (at, decision(at))));
                }
                Some(Stands::AtAny(list)) => {
                    let first = list.iter().filter_map(|(_, w)| self.done(*w)).min();
                    let first = if list.is_empty() { Some(p.clock) } else { first };
                    all.extend(first.map(|at| (at.max(p.clock), Decision::Release(rank))));
                }
                Some(Stands::AtSome(list, true)) => {
                    let first = list.iter().filter_map(|w| self.done(*w)).min();
                    let first = if list.is_empty() { Some(p.clock) } else { first };
                    all.extend(first.map(|at| (at.max(p.clock), Decision::Release(rank))));
                }
                Some(Stands::AtProbe { from, tag, blocking: true }) => {
                    let seen = self.seen(rank, *from, *tag);
                    all.extend(seen.map(|s| (s.0.max(p.clock), Decision::Release(rank))));
                }
                Some(Stands::AtTest(_) | Stands::AtProbe { .. } | Stands::AtSome(..)) => {
                    all.push((p.clock, Decision::Look(rank)))
                }
                None => {}
            }
        }
        all
    }

    fn commit(&mut self, at: Ns, decision: Decision) {
        match decision {
            Decision::Match { send, recv, .. } => {
                let (s, r) = (&mut self.sends[send], &mut self.recvs[recv]);
                (s.matched, r.matched) = (true, true);
                let done = if s.asks { at + s.bytes } else { at };
                r.done = Some(done);
                if s.asks || s.synchronous {
                    s.done = Some(done);
                }
                assert!(s.post < done);
                self.matches.push((s.from, s.action, r.owner, r.action, done));
            }
            Decision::GoOn(rank) | Decision::Release(rank) => self.release(at, rank),
            Decision::Look(rank) => self.look(rank),
        }
    }

    /// Takes what is complete of a list; how long that is computed for.
    fn take_some(&mut self, rank: usize, list: &[Ref], at: Ns) -> Ns {
        let complete: Vec<Ref> = list.iter().filter(|w| self.done(**w).is_some_and(|d| d <= at)).copied().collect();
        self.processes[rank].names.retain(|name| !complete.contains(&name.1));
        if list.is_empty() { 0 } else { (complete.len() as Ns + 1) * 3000 }
    }

    fn release(&mut self, at: Ns, rank: usize) {
        let stands = self.processes[rank].stands.take().unwrap();
        let mut at = at;
        match stands {
            Stands::AtAny(list) => {
                let first =
                    list.iter().filter_map(|(n, w)| self.done(*w).map(|d| (d, *n, *w))).min_by_key(|f| (f.0, f.1));
                if let Some((_, n, what)) = first {
                    self.processes[rank].names.retain(|name| name.1 != what);
                    at += (n as Ns + 1) * 3000;
                }
            }
            Stands::AtSome(list, _) => at += self.take_some(rank, &list, at),
            Stands::AtProbe { from, tag, .. } => at += (self.seen(rank, from, tag).unwrap().1 as Ns + 1) * 2000,
            _ => {}
        }
        self.processes[rank].clock = at;
    }

    fn look(&mut self, rank: usize) {
        let stands = self.processes[rank].stands.take().unwrap();
        let clock = self.processes[rank].clock;
        let after = match stands {
            Stands::AtTest(what) => {
                let complete = what.is_none_or(|w| self.done(w).is_some_and(|d| d <= clock));
                if let (true, Some(what)) = (complete, what) {
                    self.processes[rank].names.retain(|name| name.1 != what);
                }
                if complete { 7000 } else { 0 }
            }
            Stands::AtSome(list, _) => self.take_some(rank, &list, clock),
            Stands::AtProbe { from, tag, .. } => {
                let there = self.seen(rank, from, tag).is_some_and(|s| s.0 <= clock);
                Ns::from(there) * 5000
            }
            _ => 0,
        };
        self.processes[rank].clock += after;
    }
}

// ---- The same programs as models ----------------------------------------------------------------

/// (slot + 1) x `ns`, or slot x `ns`.
fn serial_by(slot: u32, plus: i64, ns: f64) -> Step {
    let sum = Expr::Binary(Binary::Add, Box::new((Expr::Slot(Slot(slot)), Expr::int(plus))));
    let product = Expr::Binary(Binary::Multiply, Box::new((sum, Expr::Const(Value::Float(ns)))));
    let time = Timed { law: Law::Fixed(product), unit_ns: 1.0 };
    Step(OpKind::Serial(Box::new(Serial { times: vec![(None, time, Default::default())] })))
}

/// Each action as two steps, so that an op tells its action.
fn steps(actions: &[Action]) -> Vec<Step> {
    let nothing = || set(FREE + 1, 0);
    let bound = |from: Option<i64>, tag, what, blocking| {
        let mut recv = recv_of(from, tag, None);
        (recv.blocking, recv.binds) = (blocking, vec![(what, Slot(FREE))]);
        message(Message::Probe(recv))
    };
    let mut all = Vec::new();
    for action in actions {
        all.extend(match action {
            Action::Serial(ns) => [serial_us(*ns as f64 / 1e3), nothing()],
            Action::Send { mode, to, bytes, tag, request } => {
                [message(Message::Send(send_of(*mode, *to, *bytes, *tag, *request))), nothing()]
            }
            Action::Recv { from, tag, request } => [message(Message::Recv(recv_of(*from, *tag, *request))), nothing()],
            Action::Init(what) => [
                message(match (**what).clone() {
                    Action::Send { mode, to, bytes, tag, request } => {
                        Message::SendInit(send_of(mode, to, bytes, tag, request))
                    }
                    Action::Recv { from, tag, request } => Message::RecvInit(recv_of(from, tag, request)),
                    other => panic!("{other:?} cannot be persistent"),
                }),
                nothing(),
            ],
            Action::Start(ids) => [start(ids), nothing()],
            Action::Free(id) => [request_free(*id), nothing()],
            Action::WaitSome(ids) => [wait_some(ids, FREE), serial_by(FREE, 1, 3000.0)],
            Action::TestSome(ids) => [test_some(ids, FREE), serial_by(FREE, 1, 3000.0)],
            Action::Sendrecv { to, bytes, from } => [sendrecv(*to, *bytes, *from), nothing()],
            Action::WaitAll(ids) => [wait_all(ids), nothing()],
            Action::WaitAny(ids) => [wait_any(ids, FREE), serial_by(FREE, 1, 3000.0)],
            Action::Test(id) => [test(*id, FREE), serial_by(FREE, 0, 7000.0)],
            Action::Probe { from, tag } => [bound(*from, *tag, Bound::Source, true), serial_by(FREE, 1, 2000.0)],
            Action::Iprobe { from, tag } => [bound(*from, *tag, Bound::Flag, false), serial_by(FREE, 0, 5000.0)],
        });
    }
    all
}

fn engine(programs: &[Vec<Action>]) -> Result {
    let steps: Vec<_> = programs.iter().map(|p| steps(p)).collect();
    let model = model(&steps);
    let mut machine = simple();
    (machine.inter.eager_bytes, machine.intra.eager_bytes) = (Some(EAGER as u64), Some(EAGER as u64));
    let mut seen = Recording::default();
    let outcome = evaluate_observed(&model, &machine, &Options::default(), 1, &mut seen);
    check_sums(&outcome);
    let blocked: Vec<u32> = match &outcome.verdict {
        Verdict::Finished => Vec::new(),
        Verdict::Deadlock(deadlock) => {
            check_cycle(deadlock);
            deadlock.blocked.iter().map(|b| b.process).collect()
        }
        other => panic!("{other:?}"),
    };
    // Times of the model are a `double` each: to the nearest nanosecond.
    let ns = |t: weir_predict::Time| ((t.yoctoseconds() + 500_000_000_000_000) / 1_000_000_000_000_000) as Ns;
    let ends = (0u32..).zip(&outcome.ends).map(|(r, t)| (!blocked.contains(&r)).then(|| ns(*t))).collect();
    let action = |op: u32| (model.ops[op as usize].place.column as usize - 1) / 2;
    let mut last = weir_predict::Time::ZERO;
    let mut matches = Vec::new();
    for m in &seen.messages {
        assert!(m.received >= last, "commits go back in time");
        assert!(m.sent <= m.arrived && m.arrived <= m.received);
        last = m.received;
        matches.push((m.from as usize, action(m.send_op), m.to as usize, action(m.receive_op), ns(m.received)));
    }
    matches.sort_unstable();
    check_spans(&seen, &outcome);
    Result { ends, matches }
}

/// Of a cycle each process waits for the next.
fn check_cycle(deadlock: &weir_predict::Deadlock) {
    for (n, process) in deadlock.cycle.iter().enumerate() {
        let next = deadlock.cycle[(n + 1) % deadlock.cycle.len()];
        let blocked = deadlock.blocked.iter().find(|b| b.process == *process).unwrap();
        assert!(blocked.waits.iter().any(|w| w.process.is_none_or(|p| p == next)));
    }
}

/// Spans of a process touch and reach to its end.
fn check_spans(seen: &Recording, outcome: &weir_predict::Outcome) {
    for (rank, end) in (0u32..).zip(&outcome.ends) {
        let mut at = weir_predict::Time::ZERO;
        for span in seen.spans.iter().filter(|s| s.process == rank) {
            assert!(span.start == at && span.end > at);
            at = span.end;
        }
        assert_eq!(at, *end);
    }
}

// ---- Random programs ----------------------------------------------------------------------------

#[derive(Debug, Clone)]
struct Gene {
    kind: u8,
    from: u8,
    to: u8,
    bytes: u8,
    tag: u8,
    how: u8,
    ns: u16,
}

fn gene() -> impl Strategy<Value = Gene> {
    (any::<u8>(), any::<u8>(), any::<u8>(), any::<u8>(), any::<u8>(), any::<u8>(), any::<u16>())
        .prop_map(|(kind, from, to, bytes, tag, how, ns)| Gene { kind, from, to, bytes, tag, how, ns })
}

/// Mostly sends with their receives, now and then one of them alone, with waits for what does not
/// block.
fn programs(n: usize, genes: &[Gene]) -> Vec<Vec<Action>> {
    let mut all = vec![Vec::new(); n];
    let mut open: Vec<Vec<u32>> = vec![Vec::new(); n];
    for (id, gene) in (0u32..).zip(genes) {
        let (from, to) = (usize::from(gene.from) % n, usize::from(gene.to) % n);
        let bytes = [0, 0, 10, 300, 1000, 1001, 3000, 20_000][usize::from(gene.bytes) % 8];
        let tag = i64::from(gene.tag) % 2;
        let bit = |n: u8| gene.how >> n & 1 == 1;
        let modes = [SendMode::Standard, SendMode::Standard, SendMode::Synchronous, SendMode::Buffered];
        let source = (!bit(0)).then_some(from as i64);
        let wanted = (!bit(1)).then_some(tag);
        let sends =
            |request| Action::Send { mode: modes[usize::from(gene.how >> 4) % 4], to: to as i64, bytes, tag, request };
        match gene.kind % 16 {
            0..=7 => {
                let (sent, received) = (2 * id, 2 * id + 1);
                all[from].push(sends(bit(2).then_some(sent)));
                all[to].push(Action::Recv { from: source, tag: wanted, request: bit(3).then_some(received) });
                open[from].extend(bit(2).then_some(sent));
                open[to].extend(bit(3).then_some(received));
            }
            8 => {
                all[from].push(Action::Sendrecv { to: to as i64, bytes, from: to as i64 });
                if from != to {
                    all[to].push(Action::Sendrecv { to: from as i64, bytes: 10, from: from as i64 });
                }
            }
            9 => all[from].push(Action::Probe { from: bit(0).then_some(to as i64), tag: bit(1).then_some(tag) }),
            10 => all[from].push(Action::Iprobe { from: bit(0).then_some(to as i64), tag: bit(1).then_some(tag) }),
            11 if !open[from].is_empty() => {
                let which = open[from][usize::from(gene.how) % open[from].len()];
                all[from].push(Action::Test(which));
            }
            12 => {
                let list = open[from].clone();
                all[from].push(match gene.how % 4 {
                    0 => Action::WaitAll(list),
                    1 => Action::WaitAny(list),
                    2 => Action::WaitSome(list),
                    _ => Action::TestSome(list),
                });
            }
            // Persistent requests: both sides made once and started twice, or one of them given up
            // while it is under way.
            14 => {
                let (sent, received) = (2 * id, 2 * id + 1);
                all[from].push(Action::Init(Box::new(sends(Some(sent)))));
                let recv = Action::Recv { from: source, tag: wanted, request: Some(received) };
                all[to].push(Action::Init(Box::new(recv)));
                for (rank, request) in [(from, sent), (to, received)] {
                    all[rank].push(Action::Start(vec![request]));
                    if bit(2) {
                        all[rank].push(Action::WaitAll(vec![request]));
                        all[rank].push(Action::Start(vec![request]));
                    }
                    if bit(3) {
                        all[rank].push(Action::Free(request));
                    } else {
                        open[rank].push(request);
                    }
                }
            }
            15 if bit(0) => {
                all[from].push(sends(Some(2 * id)));
                all[from].push(Action::Free(2 * id));
            }
            13 if bit(0) => all[from].push(sends(None)),
            13 if bit(1) => all[to].push(Action::Recv { from: source, tag: wanted, request: None }),
            _ => all[from].push(Action::Serial(i64::from(gene.ns) % 20_000)),
        }
    }
    for (actions, open) in all.iter_mut().zip(open) {
        actions.push(Action::WaitAll(open));
    }
    // A wait for nothing is a wait with an empty list, which the language does not have.
    for actions in &mut all {
        actions.retain(|a| match a {
            Action::WaitAny(list) | Action::WaitAll(list) => !list.is_empty(),
            Action::WaitSome(list) | Action::TestSome(list) => !list.is_empty(),
            _ => true,
        });
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_engine_does_what_mpi_says(n in 2usize..5, genes in prop::collection::vec(gene(), 0..24)) {
        let programs = programs(n, &genes);
        prop_assert_eq!(engine(&programs), Simulator::run(&programs));
    }
}

/// Two messages wait, and are received by calls that take no time: both sends are complete at that
/// instant, whoever's number is lower.
#[test]
fn what_is_complete_at_one_instant_is_complete_for_a_wait_for_some() {
    for sender in [0, 1] {
        let receiver = 1 - sender;
        let send =
            |id| Action::Send { mode: SendMode::Synchronous, to: receiver as i64, bytes: 0, tag: 0, request: Some(id) };
        let recv = || Action::Recv { from: Some(sender as i64), tag: Some(0), request: None };
        let mut programs = vec![Vec::new(); 2];
        programs[sender] = vec![send(1), send(2), Action::WaitSome(vec![1, 2])];
        programs[receiver] = vec![Action::Serial(2000), recv(), recv()];
        let result = engine(&programs);
        assert_eq!(result, Simulator::run(&programs));
        assert_eq!(result.ends[sender], Some(2000 + 3 * 3000));
    }
}

#[test]
fn random_programs_end_and_deadlock_both() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let (mut ended, mut matched, mut stuck) = (0, 0, 0);
    for _ in 0..1000 {
        let genes = prop::collection::vec(gene(), 0..24).new_tree(&mut runner).unwrap().current();
        let result = Simulator::run(&programs(3, &genes));
        matched += result.matches.len();
        if result.ends.iter().all(Option::is_some) { ended += 1 } else { stuck += 1 }
    }
    assert!(ended > 200 && stuck > 200 && matched > 2000, "{ended} ended, {stuck} stuck, {matched} matches");
}
