//! Models of programs whose calls are made up here: what is made from few processes must repeat
//! what more would do.

use std::collections::BTreeMap;

use weir_record::check::check;
use weir_record::log::{ANY, Call, Event, Got, Recording, Site};
use weir_record::model::{Model, model};
use weir_record::runs::{Runs, gather};

/// What a process of a made-up program does: calls with the line that each stands in.
#[derive(Default)]
struct Script {
    calls: Vec<(u32, Call)>,
    requests: Vec<(u64, bool)>,
}

impl Script {
    fn send(&mut self, line: u32, to: u64, bytes: u64) {
        self.calls.push((line, Call::Send { kind: 0, to: to.cast_signed(), tag: 0, bytes, comm: 0, request: None }));
    }

    fn recv(&mut self, line: u32, from: u64, bytes: u64) {
        self.recv_wild(line, from.cast_signed(), from, bytes);
    }

    fn recv_wild(&mut self, line: u32, from: i64, source: u64, bytes: u64) {
        let got = Some(Got { source: source.cast_signed(), tag: 0, bytes });
        self.calls.push((line, Call::Recv { from, tag: 0, comm: 0, request: None, got }));
    }

    fn begin(&mut self, line: u32, peer: u64, receives: bool) {
        let request = Some(self.requests.len() as u64);
        self.requests.push((peer, receives));
        let peer = peer.cast_signed();
        self.calls.push((
            line,
            if receives {
                Call::Recv { from: peer, tag: 3, comm: 0, request, got: None }
            } else {
                Call::Send { kind: 4, to: peer, tag: 3, bytes: 800, comm: 0, request }
            },
        ));
    }

    fn wait_all(&mut self, line: u32) {
        let got = |peer: u64| Got { source: peer.cast_signed(), tag: 3, bytes: 800 };
        let requests = std::mem::take(&mut self.requests).into_iter().enumerate();
        let done = requests.map(|(r, (peer, receives))| (r as u64, receives.then(|| got(peer)))).collect();
        self.calls.push((line, Call::Wait { all: true, any: false, done }));
    }

    fn collective(&mut self, line: u32, kind: u8, bytes: u64, root: i64) {
        self.calls.push((line, Call::Collective { kind, bytes, root, comm: 0, request: None }));
    }
}

type Program = fn(u64, u64, &mut Script);

fn recording(program: Program, n: u64, p: u64) -> Recording {
    let mut script = Script::default();
    program(n, p, &mut script);
    script.calls.push((999, Call::Finalize));
    let sites = (0..=999).map(|line| Site { object: "program.c".into(), offset: line }).collect();
    let event = |(line, call)| Event { site: line + 1, before_ns: 1000, inside_ns: 10, call };
    Recording { rank: p, size: n, sites, events: script.calls.into_iter().map(event).collect(), ..Recording::default() }
}

fn runs(program: Program, counts: &[u64]) -> Runs {
    let recorded: Vec<Vec<Recording>> =
        counts.iter().map(|n| (0..*n).map(|p| recording(program, *n, p)).collect()).collect();
    // As they would come out of files.
    for recording in recorded.iter().flatten() {
        assert_eq!(Recording::read(&recording.written()).as_ref(), Ok(recording));
    }
    gather(&recorded, &mut |site| format!("{}:{}", site.object, site.offset)).unwrap()
}

/// Makes a model of runs with these counts; it must do what runs with the others do.
fn scales(program: Program, small: &[u64], large: &[u64]) -> Model {
    let made = model(&runs(program, small), "made up").unwrap();
    assert!(made.scales, "{}", made.text);
    let other = runs(program, large);
    if let Err(error) = check(&made.text, &other.samples, other.requests) {
        panic!("{error}\n{}", made.text);
    }
    made
}

fn jacobi(n: u64, p: u64, s: &mut Script) {
    s.collective(1, 0, 0, -1);
    for _ in 0..50 {
        if p.is_multiple_of(2) {
            if p != 0 {
                s.send(2, p - 1, 1024);
            }
            if p != n - 1 {
                s.send(3, p + 1, 1024);
                s.recv(4, p + 1, 1024);
            }
            if p != 0 {
                s.recv(5, p - 1, 1024);
            }
        } else {
            if p != n - 1 {
                s.recv(6, p + 1, 1024);
            }
            s.recv(7, p - 1, 1024);
            s.send(8, p - 1, 1024);
            if p != n - 1 {
                s.send(9, p + 1, 1024);
            }
        }
    }
    s.collective(10, 10, 8, 0);
}

#[test]
fn the_jacobi_of_two_and_four_processes_is_that_of_any_number() {
    let made = scales(jacobi, &[2, 4], &[3, 5, 8, 16]);
    assert!(made.text.contains("Loop iterations = 50 {"), "{}", made.text);
    assert!(made.text.contains("# program.c:8\n"), "{}", made.text);
    assert!(made.text.lines().count() < 60, "{}", made.text);
    scales(jacobi, &[4], &[6, 8]);
}

fn ring(n: u64, p: u64, s: &mut Script) {
    for _ in 0..n - 1 {
        s.send(1, (p + 1) % n, 1 << 20);
        s.recv(2, (p + n - 1) % n, 1 << 20);
    }
}

#[test]
fn a_ring_whose_rounds_depend_on_the_count_scales() {
    let made = scales(ring, &[2, 4], &[3, 7, 16]);
    assert!(made.text.contains("Loop iterations = numprocs - 1 {"), "{}", made.text);
}

fn binomial(n: u64, p: u64, s: &mut Script) {
    let mut mask = 1;
    while mask < n {
        if p < mask && p + mask < n {
            s.send(1, p + mask, 4096);
        } else if p >= mask && p < 2 * mask {
            s.recv(2, p - mask, 4096);
        }
        mask *= 2;
    }
}

#[test]
fn a_binomial_broadcast_by_hand_scales_to_powers_of_two() {
    let made = scales(binomial, &[4, 8], &[2, 16, 32]);
    assert!(made.notes[0].contains("a power of two"), "{:?}", made.notes);
    // With other numbers it is an error, not another program.
    assert!(check(&made.text, &runs(binomial, &[6]).samples, false).is_err());
}

fn doubling(n: u64, p: u64, s: &mut Script) {
    for _ in 0..10 {
        let mut mask = 1;
        while mask < n {
            s.send(1, p ^ mask, 64);
            s.recv(2, p ^ mask, 64);
            mask *= 2;
        }
    }
}

#[test]
fn recursive_doubling_scales_to_powers_of_two() {
    scales(doubling, &[4, 8], &[2, 16]);
}

fn master(n: u64, p: u64, s: &mut Script) {
    for _ in 0..5 {
        if p == 0 {
            (1..n).for_each(|w| s.send(1, w, 100));
            (1..n).for_each(|w| s.recv_wild(2, ANY, n - w, 100));
        } else {
            s.recv(3, 0, 100);
            s.send(4, 0, 100);
        }
    }
}

#[test]
fn a_master_that_serves_its_workers_in_turn_scales_and_keeps_its_wildcards() {
    let made = scales(master, &[4], &[2, 3, 8]);
    assert!(made.text.contains("from = ANY"), "{}", made.text);
    assert!(made.notes.iter().any(|note| note.contains("receives from any source")), "{:?}", made.notes);
    scales(master, &[2, 4], &[8]);
}

/// Four neighbours on a square that is closed in one direction, with requests.
fn grid(n: u64, p: u64, s: &mut Script) {
    let w = n.isqrt();
    let (x, y) = (p % w, p / w);
    for _ in 0..20 {
        let mut around = vec![y * w + (x + 1) % w, y * w + (x + w - 1) % w];
        around.extend((y > 0).then(|| p - w));
        around.extend((y + 1 < w).then(|| p + w));
        around.iter().for_each(|peer| s.begin(1, *peer, true));
        around.iter().for_each(|peer| s.begin(2, *peer, false));
        s.wait_all(3);
        s.collective(4, 11, 8, -1);
    }
}

#[test]
fn neighbours_on_a_square_scale_to_squares() {
    let made = scales(grid, &[9, 16], &[25]);
    assert!(made.notes[0].contains("a square"), "{:?}", made.notes);
}

fn transform(n: u64, _: u64, s: &mut Script) {
    for _ in 0..100 {
        s.collective(1, 8, 524_288 / n / n, -1);
    }
}

#[test]
fn sizes_follow_the_count_where_two_counts_show_it() {
    let made = scales(transform, &[2, 4], &[8, 16]);
    assert!(made.text.contains("size = 524288/(numprocs*numprocs)"), "{}", made.text);
    // One count shows nothing: told.
    let made = model(&runs(transform, &[4]), "").unwrap();
    assert!(made.notes.iter().any(|note| note.contains("guesses")), "{:?}", made.notes);
}

fn ping_pong_sizes(_: u64, p: u64, s: &mut Script) {
    for size in 0..12 {
        for _ in 0..100 {
            if p == 0 {
                s.send(1, 1, 8 << size);
                s.recv(2, 1, 8 << size);
            } else if p == 1 {
                s.recv(3, 0, 8 << size);
                s.send(4, 0, 8 << size);
            }
        }
    }
}

#[test]
fn sizes_that_grow_from_round_to_round_are_expressions_of_the_index() {
    let made = scales(ping_pong_sizes, &[2, 4], &[8]);
    assert!(made.text.contains("size = (8 << i0)"), "{}", made.text);
    assert!(made.text.lines().count() < 50, "{}", made.text);
}

/// A farm whose jobs differ: the master's order depends on the run.
fn farm(n: u64, p: u64, s: &mut Script) {
    let worker = |job: u64| job * job % (n - 1) + 1;
    let size = |job: u64| job * 7919 % 1000;
    for job in 0..30 {
        if p == 0 {
            s.recv_wild(1, ANY, worker(job), 8);
            s.send(2, worker(job), size(job));
        } else if p == worker(job) {
            s.send(3, 0, 8);
            s.recv(4, 0, size(job));
        }
    }
}

#[test]
fn a_farm_of_different_jobs_is_for_its_count_only_and_says_why() {
    let made = model(&runs(farm, &[3, 4]), "").unwrap();
    assert!(!made.scales);
    assert!(made.notes[0].contains("holds for 4 processes only"), "{:?}", made.notes);
    assert!(made.notes.iter().any(|note| note.contains("program.c:2: MPI_Send: size")), "{:?}", made.notes);
    assert!(made.notes.iter().any(|note| note.contains("the model takes the order of this run")), "{:?}", made.notes);
    // With another number the model is an error.
    assert!(check(&made.text, &runs(farm, &[3]).samples, false).is_err());
}

/// Pairs by no rule.
fn scattered(n: u64, p: u64, s: &mut Script) {
    let mut pairs = BTreeMap::new();
    for (a, b) in [(0, 4), (1, 3), (2, 6), (5, 7)] {
        if b < n {
            pairs.extend([(a, b), (b, a)]);
        }
    }
    if let Some(peer) = pairs.get(&p) {
        for _ in 0..10 {
            s.begin(1, *peer, true);
            s.begin(2, *peer, false);
            s.wait_all(3);
        }
    }
}

#[test]
fn pairs_by_no_rule_are_a_table_for_their_count() {
    let made = model(&runs(scattered, &[8]), "").unwrap();
    assert!(!made.scales, "{}", made.text);
    assert!(made.text.contains("procnum == 0 ? 4 : procnum == 1 ? 3 :"), "{}", made.text);
    assert!(made.text.contains("Loop iterations = 10 {"), "{}", made.text);
}

#[test]
fn what_no_model_can_be_made_of_is_refused_by_name() {
    let mut recorded: Vec<Recording> = (0..2).map(|p| recording(ring, 2, p)).collect();
    recorded[1].unseen.push("MPI_Win_create".into());
    let error = gather(&[recorded], &mut |_| String::new()).unwrap_err();
    assert!(error.to_string().contains("MPI_Win_create"), "{error}");
}

#[test]
fn messages_that_only_one_side_saw_are_told() {
    let mut recorded: Vec<Recording> = (0..2).map(|p| recording(ring, 2, p)).collect();
    recorded[0].events.remove(0);
    let runs = gather(&[recorded], &mut |_| String::new()).unwrap();
    assert!(
        runs.notes.iter().any(|n| n.contains("1 messages from process 0 to 1 were received and not seen")),
        "{:?}",
        runs.notes
    );
}

/// Blocks of something that is divided: the first processes have one more.
fn block(total: u64, n: u64, p: u64) -> u64 {
    total / n + u64::from(p < total % n)
}

fn uneven(n: u64, p: u64, s: &mut Script) {
    let own = 8 * block(1000, n, p);
    for _ in 0..10 {
        // Scatterv and gatherv have each process's own size; allgatherv, alltoallv, reduce_scatter
        // the mean, the same for all.
        s.collective(1, 5, own, 0);
        s.collective(2, 3, own, 0);
        s.collective(3, 7, 8000 / n, -1);
        s.collective(4, 9, 8000 / n / n, -1);
        s.collective(5, 12, 8000 / n, -1);
    }
}

#[test]
fn collectives_whose_blocks_differ_scale_by_their_blocks() {
    let made = scales(uneven, &[3, 4], &[2, 7, 16]);
    for name in ["Scatterv", "Gatherv", "Allgatherv", "Alltoallv", "Reduce_scatter"] {
        assert!(made.text.contains(&format!("type = MPI_{name} ")), "{name}\n{}", made.text);
    }
    assert!(made.text.contains("8*(1000/numprocs + (procnum < 1000 % numprocs))"), "{}", made.text);
}

/// Each process gives another size by no rule.
fn ragged(n: u64, p: u64, s: &mut Script) {
    s.collective(1, 3, p * p * 7919 % 1009 + n, 0);
    s.collective(2, 9, 40 + p * p * p % 17, -1);
}

#[test]
fn collectives_of_sizes_by_no_rule_are_a_table_for_their_count() {
    let made = model(&runs(ragged, &[5]), "").unwrap();
    assert!(!made.scales && made.notes.iter().any(|n| n.contains("MPI_Gatherv: size")), "{:?}", made.notes);
    assert!(check(&made.text, &runs(ragged, &[5]).samples, false).is_ok());
}

/// A step of two requests that are waited for together.
fn pair(n: u64, p: u64, s: &mut Script) {
    s.begin(1, (p + 1) % n, true);
    s.begin(2, (p + 1) % n, false);
    s.wait_all(3);
}

#[test]
fn a_wait_for_all_is_one_for_each_of_them() {
    let begun = |receive: &str, send: &str| {
        format!(
            "Message type = MPI_Irecv from = (procnum+1)%numprocs req = {receive}\n\
             Message type = MPI_Isend size = 800 to = (procnum+1)%numprocs req = {send}\n"
        )
    };
    let samples = runs(pair, &[2]).samples;
    let by = |waits: &str| check(&(begun("r[7]", "r[8]") + waits), &samples, false);
    for waits in ["r[7], r[8]", "r[8], r[7]", "r"] {
        assert!(
            by(&format!("Message type = MPI_Waitall req = {waits}\n")).is_ok(),
            "{waits}: {:?}",
            by(&format!("Message type = MPI_Waitall req = {waits}\n"))
        );
    }
    assert!(by("Message type = MPI_Waitall req = r[7]\n").is_err());
    assert!(by("Message type = MPI_Wait req = r[7]\nMessage type = MPI_Wait req = r[8]\n").is_err());
}

/// Sends that nobody waits for.
fn given_up(n: u64, p: u64, s: &mut Script) {
    for _ in 0..6 {
        s.begin(1, (p + 1) % n, false);
        s.requests.clear();
        s.calls.push((2, Call::Free { request: 0 }));
        s.recv_wild(3, ((p + n - 1) % n).cast_signed(), (p + n - 1) % n, 800);
    }
}

#[test]
fn requests_that_are_given_up_are_in_the_model() {
    let made = scales(given_up, &[2, 4], &[3, 8]);
    assert!(made.text.contains("Message type = MPI_Request_free  req = r[0]"), "{}", made.text);
    let mut twice = recording(given_up, 2, 0);
    twice.events.insert(2, twice.events[1].clone());
    let error = gather(&[vec![twice, recording(given_up, 2, 1)]], &mut |_| String::new()).unwrap_err();
    assert!(error.to_string().contains("request 0 is given up and has not begun"), "{error}");
}

#[test]
fn a_communicator_that_a_member_does_not_know_is_refused() {
    let made = |rank| Recording { comms: BTreeMap::from([(1, vec![0, 1, 2])]), ..recording(ring, 3, rank) };
    let mut run: Vec<Recording> = (0..3).map(made).collect();
    assert!(gather(std::slice::from_ref(&run), &mut |_| String::new()).is_ok());
    for lacking in 0..3 {
        let mut run = run.clone();
        run[lacking].comms.clear();
        let error = gather(&[run], &mut |_| String::new()).unwrap_err();
        assert!(error.to_string().contains("cannot be told apart"), "{error}");
    }
    run[2].comms.insert(1, vec![2, 0, 1]);
    assert!(gather(&[run], &mut |_| String::new()).is_err());
}
