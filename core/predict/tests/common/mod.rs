//! Models by hand, for tests: a list of steps for each process.
#![allow(dead_code, reason = "each test binary uses some of it")]

use weir_annotations::expr::{Binary, Expr, PROCNUM, Slot, Value};
use weir_annotations::place::Place;
use weir_annotations::program::*;
use weir_predict::{Machine, Options, Outcome, Time, Verdict, evaluate};

/// A step of a process.
#[derive(Debug, Clone)]
pub struct Step(pub OpKind);

pub fn serial_us(us: f64) -> Step {
    let time = weir_annotations::program::Time { law: Law::Fixed(Expr::Const(Value::Float(us))), unit_ns: 1e3 };
    Step(OpKind::Serial(Box::new(Serial { times: vec![(None, time, Place::default())] })))
}

pub fn message(message: Message) -> Step {
    Step(OpKind::Message(Box::new(message)))
}

pub fn send_of(mode: SendMode, to: i64, bytes: i64, tag: i64, request: Option<u32>) -> Send {
    Send {
        mode,
        to: Expr::int(to),
        size: Expr::int(bytes),
        tag: Expr::int(tag),
        comm: Expr::int(0),
        request: request.map(request_of),
        carries: Vec::new(),
    }
}

pub fn request_of(id: u32) -> Request {
    Request { id: RequestId(id), index: None }
}

pub fn recv_of(from: Option<i64>, tag: Option<i64>, request: Option<u32>) -> Recv {
    Recv {
        from: from.map(Expr::int),
        size: None,
        tag: tag.map(Expr::int),
        comm: Expr::int(0),
        request: request.map(request_of),
        blocking: true,
        binds: Vec::new(),
    }
}

pub fn send(to: i64, bytes: i64) -> Step {
    message(Message::Send(send_of(SendMode::Standard, to, bytes, 0, None)))
}

pub fn ssend(to: i64, bytes: i64) -> Step {
    message(Message::Send(send_of(SendMode::Synchronous, to, bytes, 0, None)))
}

pub fn isend(to: i64, bytes: i64, request: u32) -> Step {
    message(Message::Send(send_of(SendMode::Standard, to, bytes, 0, Some(request))))
}

pub fn issend(to: i64, bytes: i64, request: u32) -> Step {
    message(Message::Send(send_of(SendMode::Synchronous, to, bytes, 0, Some(request))))
}

pub fn recv(from: i64) -> Step {
    message(Message::Recv(recv_of(Some(from), None, None)))
}

pub fn recv_any() -> Step {
    message(Message::Recv(recv_of(None, None, None)))
}

pub fn recv_bind(recv: Recv, binds: &[(Bound, u32)]) -> Step {
    let binds = binds.iter().map(|(b, s)| (*b, Slot(*s))).collect();
    message(Message::Recv(Recv { binds, ..recv }))
}

pub fn irecv(from: i64, request: u32) -> Step {
    message(Message::Recv(recv_of(Some(from), None, Some(request))))
}

fn requests(mode: WaitMode, ids: &[u32], binds: &[(Bound, u32)]) -> Requests {
    let binds = binds.iter().map(|(b, s)| (*b, Slot(*s))).collect();
    Requests { mode, list: ids.iter().map(|id| request_of(*id)).collect(), binds }
}

pub fn wait(id: u32) -> Step {
    message(Message::Wait(requests(WaitMode::One, &[id], &[])))
}

pub fn wait_all(ids: &[u32]) -> Step {
    message(Message::Wait(requests(WaitMode::All, ids, &[])))
}

pub fn wait_any(ids: &[u32], index: u32) -> Step {
    message(Message::Wait(requests(WaitMode::Any, ids, &[(Bound::Index, index)])))
}

pub fn wait_some(ids: &[u32], count: u32) -> Step {
    message(Message::Wait(requests(WaitMode::Some, ids, &[(Bound::Outcount, count)])))
}

pub fn test_some(ids: &[u32], count: u32) -> Step {
    message(Message::Test(requests(WaitMode::Some, ids, &[(Bound::Outcount, count)])))
}

pub fn start(ids: &[u32]) -> Step {
    message(Message::Start(ids.iter().map(|id| request_of(*id)).collect()))
}

pub fn request_free(id: u32) -> Step {
    message(Message::Free(request_of(id)))
}

pub fn test(id: u32, flag: u32) -> Step {
    message(Message::Test(requests(WaitMode::One, &[id], &[(Bound::Flag, flag)])))
}

pub fn probe(from: Option<i64>, blocking: bool, binds: &[(Bound, u32)]) -> Step {
    let binds = binds.iter().map(|(b, s)| (*b, Slot(*s))).collect();
    message(Message::Probe(Recv { blocking, binds, ..recv_of(from, None, None) }))
}

pub fn sendrecv(to: i64, bytes: i64, from: i64) -> Step {
    let send = send_of(SendMode::Standard, to, bytes, 0, None);
    message(Message::Sendrecv(send, recv_of(Some(from), None, None)))
}

pub fn collective(operation: CollectiveOp, bytes: i64, root: Option<i64>, request: Option<u32>) -> Step {
    message(Message::Collective(Collective {
        operation,
        size: Expr::int(bytes),
        alike: true,
        group: Ranks::default(),
        root: root.map(Expr::int),
        comm: Expr::int(0),
        request: request.map(request_of),
    }))
}

/// An error of the model unless the slot holds this.
pub fn expect(slot: u32, value: i64) -> Step {
    let is = Expr::Binary(Binary::Equal, Box::new((Expr::Slot(Slot(slot)), Expr::int(value))));
    Step(OpKind::Check(is, format!("slot {slot} is not {value}").into()))
}

/// Sets a slot.
pub fn set(slot: u32, value: i64) -> Step {
    Step(OpKind::Set(Slot(slot), Expr::int(value)))
}

/// Slots that tests may use begin here.
pub const FREE: u32 = 4;

/// One model of a list for each process. Each step's place has its process as line and its number
/// as column.
pub fn model(processes: &[Vec<Step>]) -> Model {
    let mut ops = Vec::new();
    for (rank, steps) in processes.iter().enumerate() {
        let rank_is = Expr::Binary(Binary::Equal, Box::new((Expr::Slot(PROCNUM), Expr::int(rank as i64))));
        let after = ops.len() + 1 + steps.len() + 1;
        let place = |n: usize| Place { file: 0, line: rank as u32, column: n as u32, length: 0 };
        ops.push(Op { kind: OpKind::JumpUnless(rank_is, after as u32), place: place(0) });
        ops.extend(steps.iter().enumerate().map(|(n, s)| Op { kind: s.0.clone(), place: place(n + 1) }));
        ops.push(Op { kind: OpKind::Jump(0), place: place(steps.len() + 1) });
    }
    let end = ops.len() as u32;
    for op in &mut ops {
        if let OpKind::Jump(target) = &mut op.kind {
            *target = end;
        }
    }
    ops.push(Op { kind: OpKind::End, place: Place::default() });
    Model {
        files: [].into(),
        ops,
        slots: vec![Value::Int(0); 32],
        slot_names: Vec::new(),
        numprocs: processes.len() as u32,
        slowness: Vec::new(),
        streams: Vec::new(),
        requests: (0..16).map(|r| format!("r{r}")).collect(),
        fields: vec!["field".to_owned()],
        network: None,
    }
}

pub fn us(us: f64) -> Time {
    Time::from_us(us)
}

/// 1 us and 1 byte in 1 ns.
pub fn simple() -> Machine {
    Machine::simplest(us(1.0), 1e9)
}

pub fn run(processes: &[Vec<Step>], machine: &Machine) -> Outcome {
    let outcome = evaluate(&model(processes), machine, &Options::default(), 1);
    check_sums(&outcome);
    outcome
}

/// Runs to the end; when each process ended, in microseconds.
pub fn ends(processes: &[Vec<Step>], machine: &Machine) -> Vec<f64> {
    let outcome = run(processes, machine);
    assert_eq!(outcome.verdict, Verdict::Finished);
    outcome.ends.iter().map(|t| t.yoctoseconds() as f64 / 1e18).collect()
}

/// Causes sum to the run time of all processes, however they are counted.
pub fn check_sums(outcome: &Outcome) {
    let all = outcome.time.yoctoseconds() * outcome.ends.len() as i128;
    assert_eq!(outcome.losses.total().total().yoctoseconds(), all);
    for one in &outcome.losses.by_process {
        assert_eq!(one.total(), outcome.time);
    }
    let by_op: i128 = outcome.losses.by_op.iter().map(|o| o.total().yoctoseconds()).sum();
    assert_eq!(by_op, all);
}
