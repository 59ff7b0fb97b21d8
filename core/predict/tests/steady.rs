//! Loops that repeat exactly: with whole periods skipped, the same comes out as with each iteration
//! run.

mod common;

use common::*;
use proptest::prelude::*;
use weir_annotations::expr::{Binary, Expr, PROCNUM, Slot, Value};
use weir_annotations::place::Place;
use weir_annotations::program::*;
use weir_predict::machine::Grid;
use weir_predict::{Draw, Machine, Options, Outcome, Quantiles, Time, Verdict, evaluate, hypothetical};

/// A step, or a loop of them.
#[derive(Debug, Clone)]
enum Part {
    Do(OpKind),
    /// So many times.
    Loop(i64, Vec<Part>),
    /// Computes for so many times 100 ns the index of the innermost loop.
    ByIndex(i64),
}

struct Builder {
    ops: Vec<Op>,
    slots: u32,
}

impl Builder {
    fn push(&mut self, kind: OpKind) -> usize {
        let column = self.ops.len() as u32;
        self.ops.push(Op { kind, place: Place { file: 0, line: 1, column, length: 0 } });
        self.ops.len() - 1
    }

    fn parts(&mut self, parts: &[Part], index: Slot) {
        for part in parts {
            match part {
                Part::Do(kind) => {
                    self.push(kind.clone());
                }
                Part::ByIndex(times) => {
                    let product = Expr::Binary(Binary::Multiply, Box::new((Expr::Slot(index), Expr::int(*times))));
                    let time = weir_annotations::program::Time { law: Law::Fixed(product), unit_ns: 100.0 };
                    self.push(OpKind::Serial(Box::new(Serial { times: vec![(None, time, Place::default())] })));
                }
                Part::Loop(count, body) => {
                    let (index, left) = (Slot(self.slots), Slot(self.slots + 1));
                    self.slots += 2;
                    let begin = self.push(OpKind::End);
                    self.parts(body, index);
                    let exit = self.push(OpKind::LoopEnd(begin as u32)) as u32 + 1;
                    let until = Until::Count(Expr::int(*count));
                    let around = weir_annotations::program::Loop { until, index, left, exit, steady: false };
                    self.ops[begin].kind = OpKind::LoopBegin(Box::new(around));
                }
            }
        }
    }
}

/// One model of a list for each process.
fn built(programs: &[Vec<Part>]) -> Model {
    let mut all = Builder { ops: Vec::new(), slots: 32 };
    let mut ends = Vec::new();
    for (rank, parts) in programs.iter().enumerate() {
        let rank_is = Expr::Binary(Binary::Equal, Box::new((Expr::Slot(PROCNUM), Expr::int(rank as i64))));
        let begin = all.push(OpKind::End);
        all.parts(parts, Slot(FREE));
        ends.push(all.push(OpKind::End));
        all.ops[begin].kind = OpKind::JumpUnless(rank_is, all.ops.len() as u32);
    }
    let end = all.push(OpKind::End) as u32;
    ends.into_iter().for_each(|at| all.ops[at].kind = OpKind::Jump(end));
    Model { ops: all.ops, slots: vec![Value::Int(0); all.slots as usize], ..model(&vec![Vec::new(); programs.len()]) }
}

/// Steps of a run, at most. Ten times what the programs here take that end; those that heap up
/// messages nobody asks for would look through them for minutes.
const BUDGET: u64 = 20_000_000;

fn with(model: &Model, machine: &Machine, draw: Draw, skip_repeats: bool) -> Outcome {
    let outcome = evaluate(model, machine, &Options { draw, skip_repeats, budget: BUDGET, ..Options::default() }, 7);
    check_sums(&outcome);
    outcome
}

/// Both ways, held against each other; what was skipped.
fn both(programs: &[Vec<Part>], machine: &Machine, draw: Draw) -> (Outcome, Outcome) {
    let model = built(programs);
    let each = with(&model, machine, draw, false);
    if matches!(each.verdict, Verdict::OutOfBudget { endless: false, .. }) {
        // Where it was given up depends on what was skipped.
        return (each.clone(), each);
    }
    let skipped = with(&model, machine, draw, true);
    // What is skipped takes no op and no event.
    assert!(each.skipped.is_empty() && skipped.steps - skipped.looked <= each.steps - each.looked, "{programs:?}");
    let alike = Outcome { skipped: Vec::new(), steps: each.steps, looked: each.looked, ..skipped.clone() };
    assert_eq!(alike.verdict, each.verdict, "{programs:?}");
    assert_eq!((&alike.time, &alike.ends), (&each.time, &each.ends), "{programs:?}");
    assert_eq!(alike.losses, each.losses, "{programs:?}");
    assert_eq!(
        (alike.messages, alike.bytes, &alike.notices),
        (each.messages, each.bytes, &each.notices),
        "{programs:?}"
    );
    assert_eq!(alike.unreceived, each.unreceived, "{programs:?}");
    assert!(alike == each, "{alike:?} {each:?} {programs:?}");
    (each, skipped)
}

fn part(step: Step) -> Part {
    Part::Do(step.0)
}

fn parts(steps: Vec<Step>) -> Vec<Part> {
    steps.into_iter().map(part).collect()
}

fn iterations(outcome: &Outcome) -> u64 {
    outcome.skipped.iter().map(|s| s.iterations).sum()
}

// ---- By hand ------------------------------------------------------------------------------------

#[test]
fn a_million_iterations_of_an_exchange_come_out_to_the_last_digit() {
    let side = |other: i64| vec![Part::Loop(1_000_000, parts(vec![sendrecv(other, 500, other), serial_us(2.5)]))];
    let outcome = with(&built(&[side(1), side(0)]), &simple(), Draw::Full, true);
    assert_eq!(outcome.verdict, Verdict::Finished);
    // 1.5 us for the message and 2.5 us of work.
    assert_eq!(outcome.time, us(4.0).times(1_000_000));
    assert_eq!(outcome.messages, 2_000_000);
    assert!(iterations(&outcome) > 999_000 && outcome.steps < 10_000, "{:?} {}", outcome.skipped, outcome.steps);
}

#[test]
fn persistent_requests_repeat_whether_made_before_a_loop_or_in_it() {
    let init = |other: i64| {
        let send = Message::SendInit(send_of(SendMode::Standard, other, 500, 0, Some(0)));
        parts(vec![message(send), message(Message::RecvInit(recv_of(Some(other), None, Some(1))))])
    };
    let round = || parts(vec![start(&[1, 0]), serial_us(1.5), wait_all(&[0, 1])]);
    let freed = || parts(vec![request_free(0), request_free(1)]);
    let before = |other| [init(other), vec![Part::Loop(1000, round())], freed()].concat();
    let within = |other| vec![Part::Loop(1000, [init(other), round(), freed()].concat())];
    for programs in [[before(1), before(0)], [within(1), within(0)]] {
        let (_, skipped) = both(&programs, &simple(), Draw::Full);
        assert!(iterations(&skipped) > 900, "{:?}", skipped.skipped);
    }
}

#[test]
fn what_nobody_waits_for_is_skipped_too() {
    // One computes alone; another never waits, as what it receives is there already; a third waits
    // throughout.
    let alone = vec![Part::Loop(5000, parts(vec![serial_us(3.0)]))];
    let (_, skipped) = both(&[alone], &simple(), Draw::Full);
    assert!(iterations(&skipped) > 4900);
    let slow = parts(vec![send(1, 100), serial_us(9.0), recv(1)]);
    let quick = parts(vec![recv(0), serial_us(1.0), send(0, 100)]);
    let waiting = parts(vec![recv(0), serial_us(1.0)]);
    let mut first = vec![Part::Loop(3000, slow)];
    first.extend(parts(vec![send(2, 10)]));
    let (_, skipped) = both(&[first, vec![Part::Loop(3000, quick)], waiting], &simple(), Draw::Full);
    assert!(iterations(&skipped) > 2500, "{:?}", skipped.skipped);
}

#[test]
fn loops_in_loops_are_skipped_within_and_as_wholes() {
    let inner = |other: i64| Part::Loop(200, parts(vec![sendrecv(other, 500, other), serial_us(1.0)]));
    let side = |other: i64| vec![Part::Loop(300, vec![inner(other), part(serial_us(5.0))])];
    let (each, skipped) = both(&[side(1), side(0)], &simple(), Draw::Full);
    assert!(skipped.steps * 20 < each.steps, "{} of {}", skipped.steps, each.steps);
    // The outer loop never repeats: its index is read. The inner one does.
    let side = |other: i64| vec![Part::Loop(50, vec![inner(other), Part::ByIndex(3)])];
    let (each, skipped) = both(&[side(1), side(0)], &simple(), Draw::Full);
    assert!(skipped.steps * 2 < each.steps && iterations(&skipped) > 5000, "{} of {}", skipped.steps, each.steps);
}

#[test]
fn loops_of_different_length_repeat_when_both_do() {
    // Two pairs that have nothing to do with each other, of 3 and 5 us: the whole repeats every 15
    // us.
    let side = |other: i64, us: f64| vec![Part::Loop(4000, parts(vec![sendrecv(other, 0, other), serial_us(us)]))];
    let programs = [side(1, 2.0), side(0, 2.0), side(3, 4.0), side(2, 4.0)];
    let (_, skipped) = both(&programs, &simple(), Draw::Full);
    assert!(iterations(&skipped) > 3000, "{:?}", skipped.skipped);
}

#[test]
fn what_varies_or_grows_is_not_skipped() {
    // Messages pile up before a receiver that is slower.
    let source = vec![Part::Loop(500, parts(vec![send(1, 10), serial_us(1.0)]))];
    let sink = vec![Part::Loop(500, parts(vec![recv(0), serial_us(5.0)]))];
    let (_, skipped) = both(&[source, sink], &simple(), Draw::Full);
    // What is left when the source has ended repeats but for the heap that shrinks.
    assert_eq!(iterations(&skipped), 0);
    // Where anything is drawn, nothing is skipped.
    let spread = hypothetical(
        "[network]\nlatency_us = 1\nbandwidth_MB_per_s = 1000\nspread = { family = \"exponential\", mean = 0.2 }\n",
    )
    .unwrap();
    let side = |other: i64| vec![Part::Loop(500, parts(vec![sendrecv(other, 500, other)]))];
    let (_, skipped) = both(&[side(1), side(0)], &spread, Draw::Full);
    assert!(skipped.skipped.is_empty());
    let (_, skipped) = both(&[side(1), side(0)], &spread, Draw::Average);
    assert!(iterations(&skipped) > 400);
}

#[test]
fn a_loop_beyond_the_end_of_time_fails_as_it_would() {
    let body = |us: f64| parts(vec![serial_us(us)]);
    // 10^18 iterations of 1000 s: beyond 4 x 10^13 s.
    let model = built(&[vec![Part::Loop(1_000_000_000_000_000_000, body(1e9))]]);
    let outcome = with(&model, &simple(), Draw::Full, true);
    assert!(matches!(outcome.verdict, Verdict::Failed(_)), "{:?}", outcome.verdict);
    assert!(outcome.time > Time::from_seconds(3.9e13), "{}", outcome.time);
}

// ---- Random programs ----------------------------------------------------------------------------

#[derive(Debug, Clone)]
struct Gene {
    kind: u8,
    from: u8,
    to: u8,
    bytes: u8,
    how: u8,
    ns: u8,
}

fn gene() -> impl Strategy<Value = Gene> {
    (any::<u8>(), any::<u8>(), any::<u8>(), any::<u8>(), any::<u8>(), any::<u8>())
        .prop_map(|(kind, from, to, bytes, how, ns)| Gene { kind, from, to, bytes, how, ns })
}

/// What a stretch of the program does at each process: mostly sends with their receives; what does
/// not block is waited for at its end.
fn stretch(n: usize, genes: &[Gene], request: &mut u32) -> Vec<Vec<Part>> {
    let mut all = vec![Vec::new(); n];
    let mut open: Vec<Vec<u32>> = vec![Vec::new(); n];
    let mut made: Vec<Vec<u32>> = vec![Vec::new(); n];
    for gene in genes {
        let (from, to) = (usize::from(gene.from) % n, usize::from(gene.to) % n);
        let bytes = [0, 10, 300, 1000, 1001, 3000][usize::from(gene.bytes) % 6];
        let bit = |n: u8| gene.how >> n & 1 == 1;
        let modes = [SendMode::Standard, SendMode::Standard, SendMode::Synchronous, SendMode::Buffered];
        *request += 2;
        let (sent, received) = (*request, *request + 1);
        match gene.kind % 16 {
            0..=6 => {
                let mode = modes[usize::from(gene.how >> 4) % 4];
                let send = send_of(mode, to as i64, bytes, 0, bit(2).then_some(sent));
                let source = (!bit(0)).then_some(from as i64);
                all[from].push(part(message(Message::Send(send))));
                all[to].push(part(message(Message::Recv(recv_of(source, None, bit(3).then_some(received))))));
                open[from].extend(bit(2).then_some(sent));
                open[to].extend(bit(3).then_some(received));
            }
            7 if from != to => {
                all[from].push(part(sendrecv(to as i64, bytes, to as i64)));
                all[to].push(part(sendrecv(from as i64, 10, from as i64)));
            }
            8 => {
                let operations =
                    [CollectiveOp::Barrier, CollectiveOp::Bcast, CollectiveOp::Allreduce, CollectiveOp::Alltoall];
                let operation = operations[usize::from(gene.how) % 4];
                let root = (operation == CollectiveOp::Bcast).then_some(to as i64);
                for (rank, parts) in all.iter_mut().enumerate() {
                    parts.push(part(collective(operation, bytes, root, bit(2).then_some(sent))));
                    open[rank].extend(bit(2).then_some(sent));
                }
            }
            9 if !open[from].is_empty() => {
                let which = open[from][usize::from(gene.how) % open[from].len()];
                all[from].push(part(test(which, FREE)));
                let flagged = Expr::Binary(Binary::Multiply, Box::new((Expr::Slot(Slot(FREE)), Expr::int(7))));
                let time = weir_annotations::program::Time { law: Law::Fixed(flagged), unit_ns: 100.0 };
                let serial = Serial { times: vec![(None, time, Place::default())] };
                all[from].push(Part::Do(OpKind::Serial(Box::new(serial))));
            }
            10 if bit(0) && bit(1) => all[from].push(Part::ByIndex(i64::from(gene.ns) % 4)),
            11 if bit(0) && bit(1) && bit(2) => all[from].push(part(send(to as i64, bytes))),
            12 if !open[from].is_empty() && bit(0) => all[from].push(part(wait_some(&open[from].clone(), FREE))),
            12 if !open[from].is_empty() => all[from].push(part(wait_any(&open[from].clone(), FREE))),
            13 => {
                let send = send_of(modes[usize::from(gene.how >> 4) % 4], to as i64, bytes, 0, Some(sent));
                let source = (!bit(0)).then_some(from as i64);
                for (rank, id, init) in [
                    (from, sent, Message::SendInit(send)),
                    (to, received, Message::RecvInit(recv_of(source, None, Some(received)))),
                ] {
                    all[rank].extend([part(message(init)), part(start(&[id]))]);
                    open[rank].push(id);
                    // Else one more is there after each time.
                    made[rank].extend((!bit(1) || !bit(2)).then_some(id));
                }
            }
            14 if bit(0) && !open[from].is_empty() => {
                let which = usize::from(gene.how >> 4) % open[from].len();
                let id = open[from].swap_remove(which);
                made[from].retain(|one| *one != id);
                all[from].push(part(request_free(id)));
            }
            _ => all[from].push(part(serial_us(f64::from(gene.ns % 8) / 2.0))),
        }
    }
    for ((parts, open), made) in all.iter_mut().zip(open).zip(made) {
        if !open.is_empty() {
            parts.push(part(wait_all(&open)));
        }
        parts.extend(made.into_iter().map(|id| part(request_free(id))));
    }
    all
}

#[derive(Debug, Clone)]
struct Genes {
    before: Vec<Gene>,
    body: Vec<Gene>,
    inner: Vec<Gene>,
    behind: Vec<Gene>,
    count: i64,
    inner_count: i64,
    machine: u8,
}

fn genes() -> impl Strategy<Value = Genes> {
    let list = |most: usize| prop::collection::vec(gene(), 0..most);
    (list(3), list(8), list(4), list(3), 20i64..160, 0i64..40, any::<u8>()).prop_map(
        |(before, body, inner, behind, count, inner_count, machine)| Genes {
            before,
            body,
            inner,
            behind,
            count,
            inner_count,
            machine,
        },
    )
}

fn programs(n: usize, genes: &Genes) -> Vec<Vec<Part>> {
    let mut request = 0;
    let mut of = |genes: &[Gene]| stretch(n, genes, &mut request);
    let (mut all, body, inner, behind) = (of(&genes.before), of(&genes.body), of(&genes.inner), of(&genes.behind));
    for (rank, (mut body, inner)) in body.into_iter().zip(inner).enumerate() {
        if genes.inner_count > 0 && !inner.is_empty() {
            body.push(Part::Loop(genes.inner_count, inner));
        }
        all[rank].push(Part::Loop(genes.count, body));
        all[rank].extend(behind[rank].iter().cloned());
    }
    all
}

const RICH: &str = r#"
[network]
latency_us = 2
bandwidth_MB_per_s = 500
eager_bytes = 1000
handshake_us = 1
send_us = 0.5
receive_us = 0.25
receive_ns_per_byte = 0.5
[intra]
latency_us = 0.5
bandwidth_MB_per_s = 2000
[nodes]
ranks = 2
ingress_MB_per_s = 600
egress_MB_per_s = 400
[fabric]
switch_MB_per_s = 700
"#;

fn machine(which: u8) -> (Machine, Draw) {
    let mut asking = simple();
    (asking.inter.eager_bytes, asking.intra.eager_bytes) = (Some(1000), Some(1000));
    match which % 5 {
        0 => (simple(), Draw::Full),
        1 => (asking, Draw::Full),
        2 => (hypothetical(RICH).unwrap(), Draw::Full),
        3 => (hypothetical(&format!("{RICH}sharing = \"fair\"\n")).unwrap(), Draw::Full),
        _ => {
            let time = |ns: f64| Quantiles::of_samples(vec![ns, ns * 2.0]).unwrap();
            for operation in [CollectiveOp::Allreduce, CollectiveOp::Bcast] {
                let grid = Grid::new(vec![(2, 0, time(4000.0)), (4, 3000, time(9000.0))]).unwrap();
                asking.collectives.measured.insert(operation, grid);
            }
            (asking, Draw::Average)
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn skipping_changes_nothing(n in 1usize..5, genes in genes()) {
        let (machine, draw) = machine(genes.machine);
        both(&programs(n, &genes), &machine, draw);
    }
}

/// Receives of any source and of one process take turns, so that lists hold entries that are taken
/// already, and not the same ones where iterations were skipped.
#[test]
fn who_skips_may_look_at_more_but_does_not_do_more() {
    let gene = |kind, from, to, bytes, how, ns| Gene { kind, from, to, bytes, how, ns };
    let genes = Genes {
        before: Vec::new(),
        body: vec![gene(173, 83, 62, 0, 119, 0), gene(0, 31, 188, 51, 108, 0), gene(75, 0, 8, 0, 87, 0)],
        inner: vec![gene(16, 29, 0, 12, 29, 0), gene(144, 161, 30, 4, 149, 0), gene(122, 6, 0, 0, 124, 2)],
        behind: Vec::new(),
        count: 27,
        inner_count: 23,
        machine: 86,
    };
    let (machine, draw) = machine(genes.machine);
    let (each, skipped) = both(&programs(2, &genes), &machine, draw);
    assert!(!skipped.skipped.is_empty() && skipped.looked > each.looked, "{} {}", skipped.looked, each.looked);
}

#[test]
fn most_random_loops_that_end_are_skipped() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let (mut ended, mut skipped, mut stuck) = (0, 0, 0);
    for _ in 0..300 {
        let genes = genes().new_tree(&mut runner).unwrap().current();
        let (machine, draw) = machine(genes.machine);
        let (_, outcome) = both(&programs(3, &genes), &machine, draw);
        if outcome.verdict == Verdict::Finished {
            ended += 1;
            skipped += u32::from(!outcome.skipped.is_empty());
        } else {
            stuck += 1;
        }
    }
    assert!(
        ended > 100 && skipped * 2 > ended && stuck > 10,
        "{ended} ended, {skipped} of them skipped, {stuck} stuck"
    );
}
