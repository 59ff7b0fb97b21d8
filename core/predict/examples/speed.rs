//! How many messages a second the engine evaluates on one core:
//! `cargo run --release -p weir-predict --example speed [PROCESSES...]`.
//!
//! Jacobi as in the literature: rows in bands, even processes send first, odd ones receive first, 1
//! KiB to each neighbour, then a serial segment. Once on the simplest machine, once with
//! contention, limits of nodes and distributions drawn from.

use std::time::Instant;

use weir_annotations::expr::{Binary, Expr, NUMPROCS, PROCNUM, Slot, Value};
use weir_annotations::place::Place;
use weir_annotations::program::*;
use weir_predict::{Machine, Options, Verdict, evaluate, hypothetical};

fn binary(op: Binary, a: Expr, b: Expr) -> Expr {
    Expr::Binary(op, Box::new((a, b)))
}

fn me() -> Expr {
    Expr::Slot(PROCNUM)
}

fn neighbour(by: i64) -> Expr {
    binary(Binary::Add, me(), Expr::int(by))
}

fn send(by: i64) -> OpKind {
    OpKind::Message(Box::new(Message::Send(Send {
        mode: SendMode::Standard,
        to: neighbour(by),
        size: Expr::int(1024),
        tag: Expr::int(0),
        comm: Expr::int(0),
        request: None,
        carries: Vec::new(),
    })))
}

fn recv(by: i64) -> OpKind {
    OpKind::Message(Box::new(Message::Recv(Recv {
        from: Some(neighbour(by)),
        size: Some(Expr::int(1024)),
        tag: Some(Expr::int(0)),
        comm: Expr::int(0),
        request: None,
        blocking: true,
        binds: Vec::new(),
    })))
}

fn jacobi(numprocs: u32, iterations: i64) -> Model {
    let not_first = || binary(Binary::NotEqual, me(), Expr::int(0));
    let last = || binary(Binary::Subtract, Expr::Slot(NUMPROCS), Expr::int(1));
    let not_last = || binary(Binary::NotEqual, me(), last());
    let even = binary(Binary::Equal, binary(Binary::Remainder, me(), Expr::int(2)), Expr::int(0));
    let time = Time { law: Law::Fixed(Expr::Const(Value::Float(3.24 / f64::from(numprocs)))), unit_ns: 1e6 };
    let until = Until::Count(Expr::int(iterations));
    let around = Loop { until, index: Slot(2), left: Slot(3), exit: 17, steady: true };
    let kinds = vec![
        OpKind::LoopBegin(Box::new(around)),
        OpKind::JumpUnless(even, 9),
        OpKind::JumpUnless(not_first(), 4),
        send(-1),
        OpKind::JumpUnless(not_last(), 7),
        send(1),
        recv(1),
        OpKind::JumpUnless(not_first(), 15),
        OpKind::Jump(14),
        OpKind::JumpUnless(not_last(), 11),
        recv(1),
        recv(-1),
        send(-1),
        OpKind::JumpUnless(binary(Binary::And, not_last(), Expr::int(1)), 15),
        // Even ones but the first receive from below here, odd ones but the last send upwards.
        OpKind::JumpUnless(Expr::int(1), 15),
        OpKind::Serial(Box::new(Serial { times: vec![(None, time, Place::default())] })),
        OpKind::LoopEnd(0),
        OpKind::End,
    ];
    let mut ops: Vec<Op> = kinds.into_iter().map(|kind| Op { kind, place: Place::default() }).collect();
    // The two halves end differently: even ones receive from below, odd ones send upwards.
    let tail = |even_half: bool| if even_half { recv(-1) } else { send(1) };
    ops[8].kind = tail(true);
    ops.insert(9, Op { kind: OpKind::Jump(16), place: Place::default() });
    ops[15].kind = tail(false);
    for (at, target) in [(1, 10), (2, 4), (4, 7), (7, 16), (10, 12), (14, 16)] {
        if let OpKind::JumpUnless(_, to) = &mut ops[at].kind {
            *to = target;
        }
    }
    if let OpKind::LoopBegin(around) = &mut ops[0].kind {
        around.exit = 18;
    }
    Model {
        files: [].into(),
        ops,
        slots: vec![Value::Int(0); 4],
        slot_names: Vec::new(),
        numprocs,
        slowness: Vec::new(),
        streams: Vec::new(),
        requests: Vec::new(),
        fields: Vec::new(),
        network: None,
    }
}

const RICH: &str = r#"
name = "distributions, contention, limits of nodes"
[network]
latency_us = 50
bandwidth_MB_per_s = 110
eager_bytes = 65536
send_us = 2
receive_us = 1
spread = { family = "pearson5", mean = 0.2 }
[nodes]
ranks = 2
ingress_MB_per_s = 117
egress_MB_per_s = 117
[fabric]
switch_MB_per_s = 260
"#;

fn main() {
    let machines = [Machine::simplest(weir_predict::Time::from_us(50.0), 100e6), hypothetical(RICH).expect("as above")];
    let given: Vec<u32> = std::env::args().skip(1).filter_map(|word| word.parse().ok()).collect();
    let usual = vec![2, 8, 64, 1024, 65_536, 1_048_576];
    let counts = if given.is_empty() { usual } else { given };
    // One by one: each of them counts.
    let options = Options { skip_repeats: false, ..Options::default() };
    for machine in machines {
        for numprocs in counts.iter().copied() {
            let model = jacobi(numprocs, (2_000_000 / (2 * i64::from(numprocs) - 2)).max(2));
            let start = Instant::now();
            let outcome = evaluate(&model, &machine, &options, 1);
            let seconds = start.elapsed().as_secs_f64();
            assert_eq!(outcome.verdict, Verdict::Finished);
            println!(
                "{}: {numprocs} processes, {} messages in {seconds:.2} s: {:.2} million a second; predicted {:.3} s",
                machine.name,
                outcome.messages,
                outcome.messages as f64 / seconds / 1e6,
                outcome.time.seconds(),
            );
        }
    }
}
