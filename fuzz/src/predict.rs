//! The virtual machine on models that no compiler would make: whatever they say, the run ends, and
//! its account of time is without rest. Beside it, descriptions of machines.

use arbitrary::Arbitrary;
use weir_annotations::expr::{Binary, Expr, NUMPROCS, PROCNUM, Slot, Value};
use weir_annotations::place::Place;
use weir_annotations::program::{
    Bound, Collective, CollectiveOp, FieldId, Law, Loop, Message, Model, Op, OpKind, Ranks, Recv, Request, RequestId,
    Requests, Send, SendMode, Serial, Time, Until, WaitMode,
};
use weir_predict::observe::Recording;
use weir_predict::{Options, Verdict, evaluate_observed, hypothetical};

use crate::input::Rest;

/// A model, the machine and the luck.
#[derive(Arbitrary, Debug)]
pub struct Input {
    numprocs: u8,
    machine: u8,
    modes: u8,
    seed: u16,
    ops: Rest<Gene, 60>,
}

/// An op; each field means what the kind makes of it.
#[derive(Arbitrary, Copy, Clone, Debug)]
pub struct Gene {
    kind: u8,
    a: u8,
    b: u8,
    c: u8,
    how: u8,
}

const SLOTS: u32 = 8;
/// Steps of a run: enough for loops to end, few enough for thousands of runs.
const BUDGET: u64 = 20_000;

const MACHINES: [&str; 4] = [
    "[network]\nlatency_us = 1\nbandwidth_MB_per_s = 1000\n",
    "[network]\nlatency_us = 0\nbandwidth_MB_per_s = 1e300\neager_bytes = 0\n[nodes]\nranks = 3\n",
    r#"
    [network]
    latency_us = 5
    bandwidth_MB_per_s = 100
    eager_bytes = 50
    handshake_us = 3
    send_us = 0.5
    receive_ns_per_byte = 2
    spread = { family = "exponential", mean = 0.5 }
    [nodes]
    ranks = 2
    placement = "cyclic"
    ingress_MB_per_s = 50
    egress_MB_per_s = 80
    buffer_bytes = 100
    [fabric]
    nodes_per_switch = [1, 1]
    uplink_MB_per_s = 60
    [retransmission]
    timeout_ms = 0.01
    chance = 0.1
    [collectives]
    allgather = "bruck"
    allreduce = "binomial"
    alltoall = "bruck"
    "#,
    r#"
    [network]
    latency_us = 5
    bandwidth_MB_per_s = 100
    eager_bytes = 50
    [nodes]
    ranks = 2
    ingress_MB_per_s = 50
    egress_MB_per_s = 80
    [fabric]
    sharing = "fair"
    nodes_per_switch = [1, 1, 2]
    switch_MB_per_s = 90
    uplink_MB_per_s = 60
    [retransmission]
    timeout_ms = 0.01
    chance = 0.1
    "#,
];

/// A number that is mostly small, sometimes none that is meant.
fn number(gene: u8) -> Expr {
    let other = |op, by: i64| Expr::Binary(op, Box::new((Expr::Slot(PROCNUM), Expr::int(by))));
    match gene {
        0..=99 => Expr::int(i64::from(gene % 6)),
        100..=149 => Expr::int(i64::from(gene)),
        150..=169 => other(Binary::Add, 1),
        170..=189 => other(Binary::Remainder, 2),
        190..=209 => Expr::Slot(Slot(u32::from(gene) % (SLOTS + 1))),
        210..=219 => Expr::Slot(NUMPROCS),
        220..=229 => Expr::Const(Value::Float(f64::from(gene) / 7.0)),
        230..=239 => Expr::int(-1),
        240..=244 => Expr::int(i64::MAX),
        245..=249 => Expr::Const(Value::Float(1e300)),
        _ => other(Binary::Divide, 0),
    }
}

impl Gene {
    fn bit(self, n: u8) -> bool {
        self.how >> n & 1 == 1
    }

    fn request(self) -> Option<Request> {
        let index = self.bit(6).then(|| number(self.c));
        self.bit(7).then_some(Request { id: RequestId(u32::from(self.c % 3)), index })
    }

    fn send(self) -> Send {
        let modes = [SendMode::Standard, SendMode::Synchronous, SendMode::Buffered, SendMode::Ready];
        Send {
            mode: modes[usize::from(self.how % 4)],
            to: number(self.a),
            size: number(self.b),
            tag: number(self.c % 2),
            comm: number(u8::from(self.bit(5))),
            request: self.request(),
            carries: if self.bit(4) { vec![(FieldId(0), number(self.b))] } else { Vec::new() },
        }
    }

    fn recv(self) -> Recv {
        let bound = [Bound::Source, Bound::Tag, Bound::Size, Bound::Flag, Bound::Index, Bound::Carried(FieldId(0))];
        Recv {
            from: (!self.bit(0)).then(|| number(self.a)),
            size: self.bit(3).then(|| number(self.b)),
            tag: (!self.bit(1)).then(|| number(self.c % 2)),
            comm: number(u8::from(self.bit(5))),
            request: self.request(),
            blocking: self.bit(2),
            binds: vec![(bound[usize::from(self.b % 6)], Slot(2 + u32::from(self.c % 4)))],
        }
    }

    fn requests(self) -> Requests {
        let mode = [WaitMode::One, WaitMode::All, WaitMode::Any, WaitMode::Some][usize::from(self.how % 4)];
        let one = |id: u8| Request { id: RequestId(u32::from(id % 3)), index: self.bit(6).then(|| number(self.c)) };
        let list = if mode == WaitMode::One { vec![one(self.a)] } else { vec![one(self.a), one(self.b)] };
        let binds =
            vec![(Bound::Flag, Slot(3)), (Bound::Index, Slot(4)), (Bound::Source, Slot(5)), (Bound::Outcount, Slot(2))];
        Requests { mode, list, binds }
    }

    fn collective(self) -> Collective {
        use CollectiveOp as C;
        let all = [
            C::Barrier,
            C::Bcast,
            C::Scatter,
            C::Gather,
            C::Allgather,
            C::Alltoall,
            C::Reduce,
            C::Allreduce,
            C::ReduceScatter,
            C::Scan,
            C::Exscan,
        ];
        let group = if self.bit(0) { vec![(number(self.b), number(self.c))] } else { Vec::new() };
        Collective {
            operation: all[usize::from(self.a) % all.len()],
            size: number(self.b),
            group: Ranks(group),
            root: self.bit(1).then(|| number(self.c)),
            comm: number(u8::from(self.bit(5))),
            request: self.request(),
            alike: !self.bit(4),
        }
    }

    fn kind(self, at: u32, len: u32) -> OpKind {
        let ahead = |by: u8| (at + 1 + u32::from(by) % 8).min(len);
        let message = |m| OpKind::Message(Box::new(m));
        match self.kind % 20 {
            0..=3 => message(Message::Send(self.send())),
            4..=7 => message(Message::Recv(self.recv())),
            8 => {
                message(Message::Sendrecv(Send { request: None, ..self.send() }, Recv { request: None, ..self.recv() }))
            }
            9 => message(Message::Wait(self.requests())),
            10 => message(match self.how % 4 {
                0 => Message::SendInit(self.send()),
                1 => Message::RecvInit(self.recv()),
                2 => Message::Start(self.requests().list),
                _ => Message::Free(self.requests().list.swap_remove(0)),
            }),
            11 => message(Message::Test(self.requests())),
            12 => message(Message::Probe(Recv { request: None, ..self.recv() })),
            13 | 14 => message(Message::Collective(self.collective())),
            15 => {
                let law = match self.how % 4 {
                    0 => Law::Fixed(number(self.a)),
                    1 => Law::Exponential(number(self.a)),
                    2 => Law::Pearson5(number(self.a), number(self.b), number(self.c)),
                    _ => Law::Uniform(number(self.a), number(self.b)),
                };
                let time = Time { law, unit_ns: 1e3 };
                OpKind::Serial(Box::new(Serial { times: vec![(None, time, Place::default())] }))
            }
            16 => OpKind::JumpUnless(number(self.a), ahead(self.b)),
            17 => OpKind::Choose(vec![(number(self.a), ahead(self.b)), (number(self.c), ahead(self.how))]),
            18 => OpKind::Set(Slot(u32::from(self.a) % (SLOTS + 1)), number(self.b)),
            _ => OpKind::LoopBegin(Box::new(Loop {
                until: if self.bit(0) { Until::While(number(self.a)) } else { Until::Count(number(self.a)) },
                index: Slot(6),
                left: Slot(7),
                exit: ahead(self.b) + 1,
                steady: false,
            })),
        }
    }
}

fn model(input: &Input) -> Model {
    let genes = &input.ops.0;
    let len = genes.len() as u32;
    let mut kinds: Vec<OpKind> = (0u32..).zip(genes).map(|(at, gene)| gene.kind(at, len)).collect();
    for at in 0..kinds.len() {
        // The op before its exit ends a loop, as far as there is one.
        if let OpKind::LoopBegin(around) = &mut kinds[at] {
            let end = (around.exit as usize - 1).min(len as usize - 1);
            around.exit = end as u32 + 1;
            if end > at {
                kinds[end] = OpKind::LoopEnd(at as u32);
            }
        }
    }
    kinds.push(OpKind::End);
    Model {
        files: [].into(),
        ops: kinds.into_iter().map(|kind| Op { kind, place: Place::default() }).collect(),
        slots: vec![Value::Int(0); SLOTS as usize],
        slot_names: Vec::new(),
        numprocs: u32::from(input.numprocs % 7),
        slowness: Vec::new(),
        streams: Vec::new(),
        requests: Vec::new(),
        fields: vec!["field".to_owned()],
        network: None,
    }
}

/// Runs a model; returns how many messages were received.
///
/// # Panics
/// If the account of time has a rest, or time goes back.
pub fn run(input: &Input) -> u64 {
    let model = model(input);
    let machine = hypothetical(MACHINES[usize::from(input.machine) % MACHINES.len()]).expect("a good description");
    let options = Options {
        contention: input.modes & 1 == 0,
        node_limits: input.modes & 2 == 0,
        losses: input.modes & 4 == 0,
        infinite_bandwidth: input.modes & 8 != 0,
        budget: BUDGET,
        ..Options::default()
    };
    let mut seen = Recording::default();
    let outcome = evaluate_observed(&model, &machine, &options, u64::from(input.seed), &mut seen);
    // What goes beyond the end of the clock is a failure, and has no sums.
    if outcome.time <= weir_predict::Time::clock_end(outcome.ends.len() as u32) {
        let whole = outcome.time.yoctoseconds() * outcome.ends.len() as i128;
        assert_eq!(outcome.losses.total().total().yoctoseconds(), whole, "causes sum to the time of all processes");
        let by_op: i128 = outcome.losses.by_op.iter().map(|o| o.total().yoctoseconds()).sum();
        assert_eq!(by_op, whole, "so do ops");
    }
    assert!(seen.messages.windows(2).all(|w| w[0].received <= w[1].received), "time goes back");
    assert!(seen.messages.iter().all(|m| m.sent <= m.arrived && m.arrived <= m.received));
    match &outcome.verdict {
        Verdict::Deadlock(deadlock) => assert!(!deadlock.blocked.is_empty()),
        Verdict::Failed(failure) => assert!(!failure.message.is_empty() && !failure.message.contains('\n')),
        _ => {}
    }
    seen.messages.len() as u64
}

/// Reads a description of a machine.
///
/// # Panics
/// If an error has more than one line.
pub fn description(text: &[u8]) {
    let Ok(text) = std::str::from_utf8(text) else { return };
    if let Err(error) = hypothetical(text) {
        let error = error.to_string();
        assert!(!error.is_empty() && !error.contains('\n'), "{error:?}");
    }
}
