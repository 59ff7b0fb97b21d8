//! What the engine decides, on small programs with known answers: the six probes of the digest,
//! MPI's rules, deadlocks.

mod common;

use common::*;
use weir_annotations::program::Message;
use weir_annotations::program::{Bound, CollectiveOp, SendMode};
use weir_predict::{Cause, Machine, Missing, Verdict};

// A message of 1000 bytes takes 2 us on this machine, an empty one 1 us.

#[test]
fn a_receive_posted_after_its_message_is_there_ends_when_it_is_posted() {
    assert_eq!(ends(&[vec![serial_us(10.0), recv(1)], vec![send(0, 0)]], &simple()), [10.0, 0.0]);
}

#[test]
fn a_chain_whose_earliest_receive_is_matched_last_is_no_deadlock() {
    let chain = [vec![recv(1)], vec![recv(2), send(0, 0)], vec![serial_us(3.0), send(1, 0)]];
    assert_eq!(ends(&chain, &simple()), [5.0, 4.0, 3.0]);
}

#[test]
fn a_wildcard_takes_what_arrives_first_though_it_is_sent_later() {
    // From 1: sent at 0, arrives at 10. From 2, which waits for 3 until 2: arrives at 3.
    let take = |recv| recv_bind(recv, &[(Bound::Source, FREE)]);
    let programs = [
        vec![take(recv_of(None, None, None)), expect(FREE, 2), take(recv_of(None, None, None)), expect(FREE, 1)],
        vec![send(0, 9000)],
        vec![recv(3), send(0, 0)],
        vec![serial_us(1.0), send(2, 0)],
    ];
    assert_eq!(ends(&programs, &simple()), [10.0, 0.0, 2.0, 1.0]);
}

#[test]
fn a_wait_for_a_receive_lasts_until_the_message_is_there() {
    assert_eq!(ends(&[vec![irecv(1, 0), wait(0)], vec![send(0, 5000)]], &simple()), [6.0, 0.0]);
}

#[test]
fn a_test_before_the_message_is_there_says_no_and_after_it_yes() {
    let programs = [
        vec![
            irecv(1, 0),
            serial_us(0.3),
            set(FREE, 7),
            test(0, FREE),
            expect(FREE, 0),
            serial_us(0.7),
            test(0, FREE),
            expect(FREE, 1),
            // It is complete, so that nothing is left to wait for.
            wait(0),
        ],
        vec![send(0, 0)],
    ];
    assert_eq!(ends(&programs, &simple()), [1.0, 0.0]);
}

#[test]
fn a_ring_of_synchronous_sends_is_a_deadlock_and_of_others_not() {
    let ring = |step: &dyn Fn(i64) -> Vec<Step>| -> Vec<Vec<Step>> { (0..3).map(step).collect() };
    let blocking = run(&ring(&|r| vec![ssend((r + 1) % 3, 0), recv((r + 2) % 3)]), &simple());
    let Verdict::Deadlock(deadlock) = &blocking.verdict else { panic!("{:?}", blocking.verdict) };
    assert_eq!(deadlock.cycle, [0, 1, 2]);
    assert_eq!(deadlock.blocked.len(), 3);
    assert_eq!(deadlock.blocked[1].waits[0].process, Some(2));
    assert_eq!(deadlock.blocked[1].waits[0].what, Missing::Receive);
    let posted = ring(&|r| vec![issend((r + 1) % 3, 0, 0), recv((r + 2) % 3), wait(0)]);
    assert_eq!(ends(&posted, &simple()), [1.0; 3]);
    assert_eq!(ends(&ring(&|r| vec![send((r + 1) % 3, 0), recv((r + 2) % 3)]), &simple()), [1.0; 3]);
}

#[test]
fn a_ring_deadlocks_by_the_size_of_its_messages() {
    let mut machine = simple();
    machine.intra.eager_bytes = Some(100);
    machine.inter.eager_bytes = Some(100);
    let ring = |bytes| (0..3).map(|r| vec![send((r + 1) % 3, bytes), recv((r + 2) % 3)]).collect::<Vec<_>>();
    assert_eq!(run(&ring(100), &machine).verdict, Verdict::Finished);
    assert!(matches!(run(&ring(101), &machine).verdict, Verdict::Deadlock(_)));
}

#[test]
fn who_waits_for_a_process_that_has_ended_is_told_without_a_cycle() {
    let outcome = run(&[vec![recv(1)], vec![], vec![recv(0)]], &simple());
    let Verdict::Deadlock(deadlock) = &outcome.verdict else { panic!() };
    assert_eq!(deadlock.blocked.iter().map(|b| b.process).collect::<Vec<_>>(), [0, 2]);
    assert!(deadlock.cycle.is_empty());
}

#[test]
fn messages_of_a_channel_do_not_overtake() {
    // The second is shorter and would be there at 2.
    let take = |bytes| [recv_bind(recv_of(Some(1), None, None), &[(Bound::Size, FREE)]), expect(FREE, bytes)];
    let mut first = take(9000).to_vec();
    first.extend(take(0));
    assert_eq!(ends(&[first, vec![send(0, 9000), serial_us(1.0), send(0, 0)]], &simple()), [10.0, 1.0]);
}

#[test]
fn tags_choose_among_what_waits() {
    let tagged = |tag| recv_bind(recv_of(Some(1), Some(tag), None), &[(Bound::Size, FREE)]);
    let send = |tag, bytes| message(Message::Send(send_of(SendMode::Standard, 0, bytes, tag, None)));
    let programs = [vec![tagged(2), expect(FREE, 20), tagged(1), expect(FREE, 10)], vec![send(1, 10), send(2, 20)]];
    assert_eq!(run(&programs, &simple()).verdict, Verdict::Finished);
}

#[test]
fn a_rendezvous_sender_waits_for_the_receiver_and_the_data_go_then() {
    let mut machine = simple();
    machine.inter.eager_bytes = Some(0);
    // Announced at 1, asked for at 10, then 5 us of data.
    assert_eq!(ends(&[vec![serial_us(10.0), recv(1)], vec![send(0, 5000)]], &machine), [15.0, 15.0]);
    // Posted in time: as any message.
    assert_eq!(ends(&[vec![recv(1)], vec![send(0, 5000)]], &machine), [6.0, 6.0]);
    // Buffered: the sender does not wait.
    let bsend = message(Message::Send(send_of(SendMode::Buffered, 0, 5000, 0, None)));
    assert_eq!(ends(&[vec![serial_us(10.0), recv(1)], vec![bsend]], &machine), [10.0, 0.0]);
    // A short synchronous one is complete when its receive begins.
    assert_eq!(ends(&[vec![serial_us(10.0), recv(1)], vec![ssend(0, 0)]], &machine), [10.0, 10.0]);
}

#[test]
fn wait_any_takes_the_earliest_and_wait_all_the_last() {
    let others = [vec![serial_us(5.0), send(0, 0)], vec![serial_us(1.0), send(0, 0)]];
    let mut programs = vec![vec![irecv(1, 0), irecv(2, 1), wait_any(&[0, 1], FREE), expect(FREE, 1)]];
    programs.extend(others);
    assert_eq!(ends(&programs, &simple())[0], 2.0);
    programs[0].push(wait_any(&[0, 1], FREE));
    programs[0].push(expect(FREE, 0));
    programs[0].push(wait_any(&[0, 1], FREE));
    programs[0].push(expect(FREE, -1));
    assert_eq!(ends(&programs, &simple())[0], 6.0);
    programs[0] = vec![irecv(1, 0), irecv(2, 1), wait_all(&[0, 1])];
    assert_eq!(ends(&programs, &simple())[0], 6.0);
}

#[test]
fn a_probe_waits_and_leaves_the_message() {
    let programs = [
        vec![
            probe(Some(1), false, &[(Bound::Flag, FREE)]),
            expect(FREE, 0),
            probe(None, true, &[(Bound::Source, FREE), (Bound::Size, FREE + 1)]),
            expect(FREE, 1),
            expect(FREE + 1, 1000),
            serial_us(1.0),
            recv(1),
        ],
        vec![send(0, 1000)],
    ];
    assert_eq!(ends(&programs, &simple()), [3.0, 0.0]);
}

#[test]
fn to_nobody_is_done_at_once() {
    let programs =
        [vec![send(-1, 5), recv_bind(recv_of(Some(-1), None, None), &[(Bound::Source, FREE)]), expect(FREE, -1)]];
    assert_eq!(ends(&programs, &simple()), [0.0]);
}

#[test]
fn exchanges_cost_one_message() {
    let programs: Vec<_> = (0..4).map(|r| vec![sendrecv((r + 1) % 4, 1000, (r + 3) % 4)]).collect();
    assert_eq!(ends(&programs, &simple()), [2.0; 4]);
}

#[test]
fn a_barrier_by_dissemination_is_log2_of_empty_messages_after_the_last() {
    let programs: Vec<_> =
        (0..8).map(|r| vec![serial_us(f64::from(r)), collective(CollectiveOp::Barrier, 0, None, None)]).collect();
    let ends = ends(&programs, &simple());
    assert!(ends.iter().all(|e| *e >= 7.0) && ends.contains(&10.0), "{ends:?}");
}

#[test]
fn a_collective_that_does_not_block_goes_on_beside_its_process() {
    let programs: Vec<_> = (0..4)
        .map(|_| vec![collective(CollectiveOp::Allreduce, 1000, None, Some(0)), serial_us(3.0), wait(0)])
        .collect();
    // Two rounds of 2 us begin at 0, and nobody is kept from going on.
    assert_eq!(ends(&programs, &simple()), [4.0; 4]);
}

#[test]
fn causes_are_those_planted() {
    // Process 1 computes 8 us more; the message takes 1 us and 2 us for its bytes.
    let programs = [vec![serial_us(2.0), recv(1)], vec![serial_us(10.0), send(0, 2000)]];
    let outcome = run(&programs, &simple());
    let of = |cause| outcome.losses.by_process[0].of(cause);
    assert_eq!(of(Cause::Computation), us(2.0));
    assert_eq!(of(Cause::Imbalance), us(8.0));
    assert_eq!(of(Cause::Latency), us(1.0));
    assert_eq!(of(Cause::Bandwidth), us(2.0));
    let place = outcome.losses.by_op.iter().position(|o| o.of(Cause::Bandwidth) > us(0.0)).unwrap();
    assert_eq!(model(&programs).ops[place].place.line, 0);
    // At the end process 1 waits 3 us for the other.
    assert_eq!(outcome.losses.by_process[1].of(Cause::Imbalance), us(3.0));
}

#[test]
fn a_model_that_never_ends_is_given_up() {
    use weir_annotations::expr::{Expr, Slot};
    use weir_annotations::program::{Loop, OpKind, Until};
    let mut model = model(&[vec![set(FREE, 1), set(FREE, 1)]]);
    let around = Loop { until: Until::While(Expr::int(1)), index: Slot(8), left: Slot(9), exit: 3, steady: false };
    model.ops[1].kind = OpKind::LoopBegin(Box::new(around));
    model.ops[2].kind = OpKind::LoopEnd(1);
    let given_up = |options: &weir_predict::Options| {
        let outcome = weir_predict::evaluate(&model, &simple(), options, 1);
        let Verdict::OutOfBudget { process: 0, endless, .. } = outcome.verdict else { panic!("{:?}", outcome.verdict) };
        (endless, outcome.steps)
    };
    assert!(!given_up(&weir_predict::Options { budget: 1000, ..Default::default() }).0);
    // It goes round in a circle while time stands still: that is known without using up the budget.
    let (endless, steps) = given_up(&weir_predict::Options::default());
    assert!(endless && steps < 30_000_000, "{endless} {steps}");
}

#[test]
fn what_is_wrong_with_a_model_is_told_with_its_place() {
    let far = run(&[vec![send(7, 1)]], &simple());
    let Verdict::Failed(failure) = &far.verdict else { panic!() };
    assert_eq!((failure.process, failure.op), (0, 1));
    assert!(failure.message.contains("no process 7"), "{}", failure.message);
    let mut small = recv_of(Some(1), None, None);
    small.size = Some(weir_annotations::Expr::int(10));
    let outcome = run(&[vec![message(Message::Recv(small))], vec![send(0, 11)]], &simple());
    assert!(matches!(&outcome.verdict, Verdict::Failed(f) if f.message.contains("room for 10")));
    let two = Machine::simplest(us(1.0), 1e9);
    let unreceived = run(&[vec![], vec![send(0, 11)]], &two);
    assert_eq!((unreceived.unreceived_count, unreceived.unreceived[0].bytes), (1, 11));
}

#[test]
fn a_request_that_is_named_twice_is_waited_for_once() {
    let round = [irecv(1, 0), wait_all(&[0, 0])];
    let programs = [round.iter().cloned().cycle().take(20).collect(), vec![send(0, 8); 10]];
    assert_eq!(run(&programs, &simple()).verdict, Verdict::Finished);
}

#[test]
fn a_wait_for_some_takes_all_that_are_there_and_leaves_the_rest() {
    // Two messages are there at 2 us, the third at 9.
    let programs = [
        vec![
            irecv(1, 0),
            irecv(2, 1),
            irecv(3, 2),
            test_some(&[0, 1, 2], FREE),
            expect(FREE, 0),
            wait_some(&[0, 1, 2], FREE),
            expect(FREE, 2),
            serial_us(1.0),
            test_some(&[0, 1, 2], FREE),
            expect(FREE, 0),
            wait_some(&[0, 1, 2], FREE),
            expect(FREE, 1),
            wait_some(&[0, 1, 2], FREE),
            expect(FREE, -1),
        ],
        vec![send(0, 1000)],
        vec![send(0, 1000)],
        vec![send(0, 8000)],
    ];
    assert_eq!(ends(&programs, &simple()), [9.0, 0.0, 0.0, 0.0]);
}

/// A send of 1000 bytes to the other, a receive from it: made once.
fn halo(peer: i64) -> [common::Step; 2] {
    [
        message(Message::SendInit(send_of(SendMode::Standard, peer, 1000, 0, Some(0)))),
        message(Message::RecvInit(recv_of(Some(peer), None, Some(1)))),
    ]
}

#[test]
fn persistent_requests_begin_at_each_start() {
    let round = || [start(&[0, 1]), wait_all(&[0, 1]), serial_us(1.0)];
    let process = |peer| {
        let rounds = (0..3).flat_map(|_| round());
        halo(peer).into_iter().chain(rounds).chain([request_free(0), request_free(1)]).collect::<Vec<_>>()
    };
    assert_eq!(ends(&[process(1), process(0)], &simple()), [9.0, 9.0]);
    // Made and never started is nothing; a wait for it is over at once.
    let idle = |peer| halo(peer).into_iter().chain([wait_all(&[0, 1])]).collect::<Vec<_>>();
    assert_eq!(ends(&[idle(1), idle(0)], &simple()), [0.0, 0.0]);
}

#[test]
fn what_is_given_up_goes_on_by_itself() {
    let programs = [vec![isend(1, 9000, 0), request_free(0)], vec![serial_us(1.0), recv(0)]];
    assert_eq!(ends(&programs, &simple()), [0.0, 10.0]);
    // One to nobody is complete at once.
    let nobody = vec![message(Message::SendInit(send_of(SendMode::Standard, -1, 8, 0, Some(0)))), start(&[0]), wait(0)];
    assert_eq!(ends(&[nobody], &simple()), [0.0]);
}

#[test]
fn requests_that_are_used_against_mpi_are_failures_with_their_op() {
    let failure = |steps: Vec<common::Step>| match run(&[steps], &simple()).verdict {
        Verdict::Failed(failure) => failure.message,
        other => panic!("{other:?}"),
    };
    let first = Some(weir_annotations::Expr::int(0));
    let one = |id| {
        let request = weir_annotations::program::Request { index: first.clone(), ..request_of(id) };
        message(Message::Start(vec![request]))
    };
    let made = |more: Vec<common::Step>| halo(0).into_iter().chain(more).collect::<Vec<_>>();
    let said = failure(made(vec![one(1), one(1)]));
    assert!(said.contains("r1[0] is started, and was not waited for"), "{said}");
    let said = failure(vec![one(1)]);
    assert!(said.contains("r1[0] is no persistent request"), "{said}");
    let said = failure(made(vec![request_free(1), one(1)]));
    assert!(said.contains("r1[0] is no persistent request"), "{said}");
    let said = failure(made(vec![request_free(1), request_free(1)]));
    assert!(said.contains("MPI_Request_free of r1[0], under which nothing was begun"), "{said}");
    let said = failure(vec![collective(CollectiveOp::Barrier, 0, None, Some(2)), request_free(2)]);
    assert!(said.contains("MPI_Request_free of a collective"), "{said}");
}

#[test]
fn a_start_of_several_takes_the_time_of_each() {
    let mut machine = simple();
    machine.inter.send = weir_predict::machine::Local::Linear(us(2.0), 0.0);
    let process = vec![
        message(Message::SendInit(send_of(SendMode::Standard, 1, 8, 0, Some(0)))),
        message(Message::SendInit(send_of(SendMode::Standard, 1, 8, 0, Some(1)))),
        start(&[0, 1]),
    ];
    let begun = ends(&[process, vec![recv(0), recv(0)]], &machine);
    let one_by_one = ends(&[vec![isend(1, 8, 0), isend(1, 8, 1)], vec![recv(0), recv(0)]], &machine);
    assert_eq!(begun, one_by_one);
}

/// `while (!flag) { parts }`, the flag in [`FREE`]: jumps to itself, placed at `at` of a program.
fn until_flag(at: u32, parts: Vec<common::Step>) -> Vec<common::Step> {
    use weir_annotations::expr::{Expr, Slot};
    use weir_annotations::program::{Loop, OpKind, Until};
    let exit = at + parts.len() as u32 + 2;
    let not = Expr::Unary(weir_annotations::expr::Unary::Not, Box::new(Expr::Slot(Slot(FREE))));
    let around = Loop { until: Until::While(not), index: Slot(8), left: Slot(9), exit, steady: false };
    let mut all = vec![common::Step(OpKind::LoopBegin(Box::new(around)))];
    all.extend(parts);
    all.push(common::Step(OpKind::LoopEnd(at)));
    all
}

#[test]
fn a_poll_without_computing_lasts_until_the_message_is_there() {
    // Nothing but the look; looks that are counted where nobody reads the count; a look at another
    // request between; MPI_Iprobe.
    let other = || vec![test(0, FREE), test(1, FREE + 1)];
    let iprobe = probe(Some(1), false, &[(Bound::Flag, FREE)]);
    let done = |steps: Vec<common::Step>| [steps, vec![serial_us(1.0)]].concat();
    for (posted, parts) in [(1, vec![test(0, FREE)]), (2, other()), (0, vec![iprobe])] {
        let mut program: Vec<_> = (0..posted).map(|r| irecv(1, r)).collect();
        let at = program.len() as u32 + 1;
        program.extend(until_flag(at, parts));
        let programs = [done(program), vec![serial_us(4.0), send(0, 5000), serial_us(100.0), send(0, 0)]];
        let outcome = run(&programs, &simple());
        assert_eq!(outcome.ends[0], us(11.0), "{posted}: {:?}", outcome.verdict);
        let own = &outcome.losses.by_process[0];
        assert_eq!((own.of(Cause::Imbalance), own.of(Cause::Bandwidth)), (us(4.0) + outcome.time - us(11.0), us(5.0)));
        assert!(outcome.steps < 100 && outcome.notices.is_empty(), "{} {:?}", outcome.steps, outcome.notices);
    }
}

/// A poll that counts its looks in a slot which is read after it.
fn counted_poll(at: u32, count: u32) -> Vec<common::Step> {
    use weir_annotations::expr::{Binary, Expr, Slot};
    let more = Expr::Binary(Binary::Add, Box::new((Expr::Slot(Slot(count)), Expr::int(1))));
    let counts = common::Step(weir_annotations::program::OpKind::Set(Slot(count), more));
    until_flag(at, vec![test(0, FREE), counts])
}

#[test]
fn a_poll_that_counts_its_looks_is_taken_for_waiting_and_told() {
    let mut program = vec![irecv(1, 0)];
    program.extend(counted_poll(2, FREE + 1));
    program.push(serial_by(FREE + 1));
    let outcome = run(&[program, vec![send(0, 5000)]], &simple());
    // 999 looks in vain, and the one that waited and finds it.
    assert_eq!(outcome.ends[0], us(7.0));
    assert!(outcome.notices.iter().any(|n| n.contains(":0: looks in vain")), "{:?}", outcome.notices);
}

/// So many nanoseconds as a slot says.
fn serial_by(slot: u32) -> common::Step {
    use weir_annotations::expr::{Expr, Slot};
    use weir_annotations::program::{Law, OpKind, Serial, Time};
    let time = Time { law: Law::Fixed(Expr::Slot(Slot(slot))), unit_ns: 1.0 };
    common::Step(OpKind::Serial(Box::new(Serial { times: vec![(None, time, weir_annotations::Place::default())] })))
}

/// `iterations` times a look at request 0.
fn looks(at: u32, iterations: i64) -> Vec<common::Step> {
    use weir_annotations::expr::{Expr, Slot};
    use weir_annotations::program::{Loop, OpKind, Until};
    let until = Until::Count(Expr::int(iterations));
    let around = Loop { until, index: Slot(8), left: Slot(9), exit: at + 3, steady: false };
    vec![common::Step(OpKind::LoopBegin(Box::new(around))), test(0, FREE), common::Step(OpKind::LoopEnd(at))]
}

#[test]
fn a_few_looks_are_no_wait_and_many_end_when_nothing_comes() {
    // The other sends only after it has heard: who took the looks for a wait would call this a
    // deadlock.
    for iterations in [10, 999, 5000] {
        let mut program = vec![irecv(1, 0)];
        program.extend(looks(2, iterations));
        program.extend([send(1, 0), wait(0)]);
        let outcome = run(&[program, vec![recv(0), send(0, 0)]], &simple());
        assert_eq!((outcome.verdict, outcome.time), (Verdict::Finished, us(2.0)), "{iterations}");
        assert_eq!(outcome.notices.len(), usize::from(iterations > 1000));
    }
}

#[test]
fn a_poll_for_what_never_comes_is_endless_at_once() {
    let mut program = vec![irecv(1, 0)];
    program.extend(until_flag(2, vec![test(0, FREE)]));
    let outcome = run(&[program, vec![recv(0)]], &simple());
    assert!(matches!(outcome.verdict, Verdict::OutOfBudget { process: 0, endless: true, .. }), "{:?}", outcome.verdict);
    assert!(outcome.steps < 100);
}
