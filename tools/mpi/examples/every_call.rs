//! Makes every call of the crate and checks what it does: the test of an MPI, and of this crate
//! under it.
//!
//! `mpiexec -n 3 every_call` ends with a line of JSON from rank 0, or with the first thing that is
//! wrong. With an argument it ends in another way: `abort` by MPI_Abort on the last rank, `leave`
//! by the last rank ending in the middle; `which` only says which MPI it is, and `threads` has
//! several threads of each rank call MPI at once.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use weir_mpi::{Abi, Access, Blocks, Communicator, Error, Level, Mpi, Reduction, Requests, Source, Tag, ThreadWork};

/// What is wrong, and where.
#[derive(Debug)]
struct Wrong(String);

impl From<Error> for Wrong {
    fn from(error: Error) -> Self {
        Self(error.to_string())
    }
}

type Checked = Result<(), Wrong>;

macro_rules! check {
    ($condition:expr) => {
        if !$condition {
            return Err(Wrong(format!("line {}: not {}", line!(), stringify!($condition))));
        }
    };
}

/// The exit code of `abort`.
const ABORTED: i32 = 7;

fn main() -> ExitCode {
    let mode = std::env::args().nth(1);
    match run(mode.as_deref()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Wrong(what)) => {
            eprintln!("every_call: {what}");
            ExitCode::FAILURE
        }
    }
}

fn run(mode: Option<&str>) -> Checked {
    let level = if mode == Some("threads") { Level::Multiple } else { Level::Funneled };
    let mpi = Mpi::load_at(&weir_job::Env::from_process(), None, level)?;
    let world = mpi.world()?;
    match mode {
        Some("which") => {}
        Some("threads") => threads(&mpi, &world)?,
        Some(way @ ("abort" | "leave")) => return end_early(&mpi, &world, way),
        Some(other) => return Err(Wrong(format!("no such way to run: {other}"))),
        None => every_call(&mpi, &world)?,
    }
    if world.rank() == 0 {
        let version = mpi.version().lines().next().unwrap_or_default().split(',').next().unwrap_or_default();
        let version = version.split_whitespace().collect::<Vec<_>>().join(" ");
        let (file, abi) = (mpi.library().display(), mpi.abi());
        let ranks = world.size();
        println!(
            r#"{{"complete": true, "ranks": {ranks}, "library": "{file}", "abi": "{abi}", "version": "{version}"}}"#
        );
    }
    mpi.finalize()?;
    match world.barrier() {
        Err(Error::Finalized(_)) => Ok(()),
        other => Err(Wrong(format!("after the end: {other:?}"))),
    }
}

/// The last rank ends the job while the others wait for a message of its.
fn end_early(mpi: &Mpi, world: &Communicator, way: &str) -> Checked {
    let last = world.size() - 1;
    if world.rank() == last {
        if way == "abort" {
            mpi.abort(ABORTED);
        }
        return Err(Wrong("left in the middle, as told".into()));
    }
    world.receive(&mut [0], last, 1)?;
    Err(Wrong("a message that nobody sent".into()))
}

/// Exchanges of threads, each with the same thread of the neighbours.
struct Ring;

impl ThreadWork for Ring {
    type Seat = i32;
    type Out = Checked;

    fn run(&self, group: &Communicator, requests: &mut Requests, thread: i32) -> Checked {
        let (next, before) = ring(group);
        for round in 0..200 {
            let length = [0, 8, 3000, 70_000][round % 4];
            let (mine, theirs) = (content(group.rank() + round, length), content(before + round, length));
            let mine: Vec<u8> = mine.iter().map(|byte| byte ^ thread as u8).collect();
            let mut inbox = vec![0; length];
            if round % 3 == 0 {
                let status = group.send_receive((&mine, next, thread), (&mut inbox, before.into(), thread.into()))?;
                check!(status.tag() == thread);
            } else {
                requests.scope(|scope| -> Checked {
                    let _ = scope.receive(group, &mut inbox, before, thread)?;
                    let _ = scope.send(group, &mine, next, thread)?;
                    Ok(scope.wait_all()?)
                })?;
            }
            check!(inbox.iter().zip(&theirs).all(|(is, sent)| *is == sent ^ thread as u8));
        }
        Ok(())
    }
}

/// Threads with a communicator each, and with one for all, told apart by their tags.
fn threads(mpi: &Mpi, world: &Communicator) -> Checked {
    check!(mpi.level() == Level::Multiple);
    let own: Vec<Communicator> = (0..4).map(|_| world.duplicate()).collect::<Result<_, _>>()?;
    for communicators in [own.iter().collect::<Vec<_>>(), vec![world; 4]] {
        let own = |group: &Communicator, requests: &mut Requests| Ring.run(group, requests, 0);
        for result in mpi.threads(&Ring, &communicators, 2, (1..4).collect(), own)? {
            result?;
        }
        world.barrier()?;
    }
    Ok(())
}

fn every_call(mpi: &Mpi, world: &Communicator) -> Checked {
    about(mpi)?;
    let mut requests = mpi.requests(8);
    let half = groups(world)?;
    for group in [world, &world.duplicate()?, &half] {
        blocking(group)?;
        probing(group)?;
        pending(group, &mut requests)?;
        standing(group, &mut requests)?;
        collective(group)?;
        reductions(group)?;
        uneven(group)?;
        running_sums(group)?;
        again_and_again(group)?;
        one_sided(group)?;
    }
    wrong_arguments(world)?;
    too_long_for_the_buffer(mpi, world, &mut requests)?;
    broken_off(world, &mut requests)
}

fn about(mpi: &Mpi) -> Checked {
    check!(!mpi.version().is_empty() && !mpi.why().is_empty());
    check!(mpi.standard_version()? >= (3, 1));
    check!(!mpi.processor_name()?.is_empty());
    check!(mpi.launch().size.is_none_or(|size| size as usize == mpi.world().map_or(0, |world| world.size())));
    let before = mpi.wtime();
    check!((before..).contains(&mpi.wtime()));
    check!(matches!(Mpi::load(), Err(Error::AlreadyLoaded)));
    Ok(())
}

/// Groups of ranks; returns that of the ranks whose number is as odd as this one's, in reverse
/// order.
fn groups(world: &Communicator) -> Result<Communicator, Wrong> {
    let (rank, size) = (world.rank(), world.size());
    let node = world.split_by_node()?;
    check!(node.size() == size && node.rank() == rank);
    let none = world.split((rank == 0).then_some(3), 0)?;
    check!(none.map(|alone| (alone.rank(), alone.size())) == (rank == 0).then_some((0, 1)));
    let same = |other: &usize| other % 2 == rank % 2;
    let half = world.split(Some((rank % 2) as i32), -(rank as i32))?.ok_or(Wrong("no group".into()))?;
    check!(half.size() == (0..size).filter(same).count());
    check!(half.rank() == (rank + 1..size).filter(same).count());
    Ok(half)
}

/// What a message from `from` holds.
fn content(from: usize, length: usize) -> Vec<u8> {
    (0..length).map(|i| (i * 7 + from + 1) as u8).collect()
}

/// The neighbours: to whom, from whom.
fn ring(group: &Communicator) -> (usize, usize) {
    let (rank, size) = (group.rank(), group.size());
    ((rank + 1) % size, (rank + size - 1) % size)
}

fn blocking(group: &Communicator) -> Checked {
    let (next, before) = ring(group);
    for length in [0, 1, 8, 1000, 100_000] {
        let (mine, theirs) = (content(group.rank(), length), content(before, length));
        let mut inbox = vec![0; length + 3];
        let status = group.send_receive((&mine, next, 5), (&mut inbox, Source::Rank(before), Tag::Any))?;
        check!((status.source(), status.tag(), status.bytes()?) == (before, 5, length));
        check!(inbox[..length] == theirs && inbox[length..] == [0; 3]);
    }
    // One after the other, so that no send needs a buffer; rank 0 begins.
    let mut word = [0; 8];
    if group.rank() == 0 && group.size() > 1 {
        group.send(&content(0, 8), next, 6)?;
        let status = group.receive(&mut word, Source::Any, Tag::Any)?;
        check!((status.source(), status.tag(), status.bytes()?) == (before, 6, 8));
    } else if group.size() > 1 {
        group.receive(&mut word, before, 6)?;
        group.send(&word, next, 6)?;
    }
    check!(group.size() == 1 || word[..] == content(0, 8));
    Ok(())
}

fn probing(group: &Communicator) -> Checked {
    check!(group.probe_now(Source::Any, 99)?.is_none());
    let last = group.size() - 1;
    if last > 0 && group.rank() == last {
        group.send(&[1, 2, 3], 0, 7)?;
        group.send(&[4], 0, 8)?;
    } else if last > 0 && group.rank() == 0 {
        // The second first: a probe does not take the message.
        let status = group.probe(Source::Any, 8)?;
        check!((status.source(), status.tag(), status.bytes()?) == (last, 8, 1));
        let first = loop {
            if let Some(status) = group.probe_now(last, Tag::Any)? {
                break status;
            }
        };
        check!((first.tag(), first.bytes()?) == (7, 3));
        let mut inbox = [0; 3];
        group.receive(&mut inbox, last, 7)?;
        check!(inbox == [1, 2, 3]);
        check!(group.receive(&mut inbox, last, 8)?.bytes()? == 1);
    }
    Ok(group.barrier()?)
}

fn pending(group: &Communicator, requests: &mut Requests) -> Checked {
    let (next, before) = ring(group);
    let (mine, theirs) = (content(group.rank(), 50_000), content(before, 50_000));
    let mut inboxes = vec![vec![0; 50_000]; 3];
    // All at once.
    requests.scope(|scope| -> Checked {
        for (tag, inbox) in (0..).zip(&mut inboxes) {
            let _ = scope.receive(group, inbox, before, tag)?;
        }
        for tag in [2, 0, 1] {
            let _ = scope.send(group, &mine, next, tag)?;
        }
        check!(scope.pending() == 6);
        scope.wait_all()?;
        check!(scope.pending() == 0);
        Ok(())
    })?;
    check!(inboxes.iter().all(|inbox| *inbox == theirs));
    // One by one, with more requests in all than the table holds.
    let mut small = vec![[0u8; 4]; 20];
    let out: Vec<[u8; 4]> = (0..20).map(|i| [i, i, group.rank() as u8, 1]).collect();
    requests.scope(|scope| -> Checked {
        for (i, (inbox, out)) in small.iter_mut().zip(&out).enumerate() {
            let receive = scope.receive(group, inbox, Source::Any, i as i32)?;
            let send = scope.send(group, out, next, i as i32)?;
            let status = if i % 2 == 0 {
                scope.wait(receive)?
            } else {
                loop {
                    if let Some(status) = scope.test(receive)? {
                        break status;
                    }
                }
            };
            check!((status.source(), status.tag(), status.bytes()?) == (before, i as i32, 4));
            check!(scope.wait(receive).err() == Some(Error::NotPending));
            let _ = scope.wait(send)?;
        }
        Ok(())
    })?;
    check!((0..).zip(&small).all(|(i, inbox)| *inbox == [i, i, before as u8, 1]));
    // Left to the end of the scope, or to a loop that tests.
    let (mut left, mut tested) = ([0; 4], [0; 4]);
    requests.scope(|scope| -> Checked {
        let _ = scope.receive(group, &mut tested, before, 1)?;
        let _ = scope.send(group, &out[1], next, 1)?;
        while !scope.test_all()? {}
        let _ = scope.receive(group, &mut left, before, 2)?;
        let _ = scope.send(group, &out[2], next, 2)?;
        Ok(())
    })?;
    check!(tested == [1, 1, before as u8, 1] && left == [2, 2, before as u8, 1]);
    // A full table refuses, and is of use again.
    let mut spare = [[0; 1]; 9];
    let full = requests.scope(|scope| -> Result<(), Error> {
        for inbox in &mut spare {
            let _ = scope.receive(group, inbox, before, 30)?;
        }
        Ok(())
    });
    check!(full == Err(Error::TooManyRequests(8)));
    Ok(group.barrier()?)
}

/// Receives that stand posted, which name their tags or take any, and sends of which more are made
/// than the table holds at once.
fn standing(group: &Communicator, requests: &mut Requests) -> Checked {
    let (next, before) = ring(group);
    let (mine, theirs) = (content(group.rank(), 2000), content(before, 2000));
    for named in [true, false] {
        let tag = |place: usize| if named { Tag::Is(place as i32) } else { Tag::Any };
        let (mut inbox, mut seen) = (group.inbox(3, 3000)?, [false; 30]);
        check!(inbox.wait_any().err() == Some(Error::NotPending));
        (0..3).try_for_each(|place| inbox.post(place, before, tag(place)))?;
        check!(
            inbox.memory(0).is_empty() && inbox.post(0, before, tag(0)).is_err() && inbox.post(3, before, 0).is_err()
        );
        requests.scope(|scope| -> Checked {
            for turn in 0..30 {
                while scope.pending() > 6 {
                    scope.test_some()?;
                }
                let _ = scope.send(group, &mine[..1000 + turn], next, (turn % 3) as i32)?;
                // Whoever sends may be ahead, and of several that have ended any may be told first.
                let (place, status) = inbox.wait_any()?;
                let length = status.bytes()?;
                let number = length.wrapping_sub(1000);
                check!(status.source() == before && number < 30 && !std::mem::replace(&mut seen[number], true));
                check!(status.tag() == (number % 3) as i32 && (!named || place == number % 3));
                check!(inbox.memory(place)[..length] == theirs[..length]);
                inbox.post(place, before, tag(place))?;
            }
            Ok(())
        })?;
        group.barrier()?;
        // Those that are left are taken back: what comes now is for others.
        drop(inbox);
        group.barrier()?;
        let mut inbox = group.inbox(1, 8)?;
        requests.scope(|scope| -> Checked {
            let _ = scope.send(group, &[7], next, 1)?;
            check!(inbox.receive(0, Source::Any, tag(1))?.bytes()? == 1 && inbox.memory(0)[0] == 7);
            Ok(())
        })?;
    }
    Ok(())
}

fn collective(group: &Communicator) -> Checked {
    let (rank, size) = (group.rank(), group.size());
    let root = size - 1;
    let mine = content(rank, 10);
    let all: Vec<u8> = (0..size).flat_map(|from| content(from, 10)).collect();

    let mut shared = if rank == root { content(99, 10) } else { vec![0; 10] };
    group.broadcast(&mut shared, root)?;
    check!(shared == content(99, 10));

    let mut gathered = vec![0; if rank == root { 10 * size } else { 0 }];
    group.gather(&mine, &mut gathered, root)?;
    check!(rank != root || gathered == all);

    let mut own = [0; 10];
    group.scatter(&gathered, &mut own, root)?;
    check!(own[..] == mine);

    let mut everywhere = vec![0; 10 * size];
    group.all_gather(&mine, &mut everywhere)?;
    check!(everywhere == all);

    let out: Vec<u8> = (0..size).flat_map(|to| [rank as u8, to as u8, 3]).collect();
    let mut exchanged = vec![0; 3 * size];
    group.all_to_all(&out, &mut exchanged)?;
    let want: Vec<u8> = (0..size).flat_map(|from| [from as u8, rank as u8, 3]).collect();
    check!(exchanged == want);

    if rank == root {
        let short = group.gather(&mine, &mut [0; 3], root);
        check!(short == Err(Error::Length { function: "MPI_Gather", is: 3, wanted: 10 * size }));
    }
    Ok(group.barrier()?)
}

fn reductions(group: &Communicator) -> Checked {
    let (rank, size) = (group.rank() as f64, group.size() as f64);
    let numbers = [rank, 10.0 - rank, 0.5];
    let last = size - 1.0;
    for (by, want) in [
        (Reduction::Sum, [size * last / 2.0, 10.0 * size - size * last / 2.0, size / 2.0]),
        (Reduction::Min, [0.0, 10.0 - last, 0.5]),
        (Reduction::Max, [last, 10.0, 0.5]),
    ] {
        let mut result = [0.0; 3];
        group.all_reduce(&numbers, &mut result, by)?;
        check!(result == want);
        let mut at_root = [0.0; 3];
        group.reduce(&numbers, &mut at_root, by, 0)?;
        check!(at_root == if rank == 0.0 { want } else { [0.0; 3] });
    }
    Ok(())
}

/// Blocks of different lengths, one of them empty.
fn uneven(group: &Communicator) -> Checked {
    let (rank, size, root) = (group.rank(), group.size(), 0);
    let lengths: Vec<usize> = (0..size).map(|of| 7 * of).collect();
    let blocks = Blocks::new(&lengths)?;
    let (mine, all) = (content(rank, 7 * rank), lengths.iter().enumerate());
    let all: Vec<u8> = all.flat_map(|(from, &length)| content(from, length)).collect();

    let mut gathered = vec![0; if rank == root { blocks.all() } else { 0 }];
    group.gather_blocks(&mine, &mut gathered, &blocks, root)?;
    check!(rank != root || gathered == all);
    let mut own = vec![0; blocks.of(rank)];
    group.scatter_blocks(&gathered, &mut own, &blocks, root)?;
    check!(own == mine);
    let mut everywhere = vec![0; blocks.all()];
    group.all_gather_blocks(&mine, &mut everywhere, &blocks)?;
    check!(everywhere == all);

    // To rank n so many bytes as n and this rank make together.
    let sums: Vec<usize> = (0..size).map(|other| other + rank).collect();
    let both = Blocks::new(&sums)?;
    let out: Vec<u8> = sums.iter().enumerate().flat_map(|(to, &n)| vec![(rank * 16 + to) as u8; n]).collect();
    let mut exchanged = vec![0; both.all()];
    group.all_to_all_blocks((&out, &both), (&mut exchanged, &both))?;
    let want: Vec<u8> = sums.iter().enumerate().flat_map(|(from, &n)| vec![(from * 16 + rank) as u8; n]).collect();
    check!(exchanged == want);

    let short = group.all_gather_blocks(&mine, &mut vec![0; blocks.all() + 1], &blocks);
    check!(matches!(short, Err(Error::Length { function: "MPI_Allgatherv", .. })));
    Ok(group.barrier()?)
}

fn running_sums(group: &Communicator) -> Checked {
    let (rank, size) = (group.rank(), group.size());
    let up_to = |n: usize| (n * (n + 1) / 2) as f64;
    let numbers = [rank as f64, 1.0];
    let mut sums = [-1.0; 2];
    group.scan(&numbers, &mut sums, Reduction::Sum)?;
    check!(sums == [up_to(rank), rank as f64 + 1.0]);
    let mut below = [-1.0; 2];
    group.scan_below(&numbers, &mut below, Reduction::Sum)?;
    check!(rank == 0 || below == [up_to(rank - 1), rank as f64]);
    // The first rank has one place of the result, the next two, and so on.
    let lengths: Vec<usize> = (1..=size).collect();
    let blocks = Blocks::new(&lengths)?;
    let numbers: Vec<f64> = (0..blocks.all()).map(|place| (place + rank) as f64).collect();
    let mut part = vec![0.0; rank + 1];
    group.reduce_scatter(&numbers, &mut part, &blocks, Reduction::Sum)?;
    let first: usize = (0..rank).map(|of| of + 1).sum();
    let want = (first..=first + rank).map(|place| (place * size) as f64 + up_to(size - 1));
    check!(part.iter().copied().eq(want));
    let (numbers, mut sums) = ([rank as f64, 0.5], [0.0; 2]);
    group.all_reduce_begun(&numbers, &mut sums, Reduction::Sum)?;
    check!(sums == [up_to(size - 1), size as f64 / 2.0]);
    Ok(group.barrier_begun()?)
}

fn again_and_again(group: &Communicator) -> Checked {
    let (next, before) = ring(group);
    for length in [0, 8, 70_000] {
        let (mine, theirs) = (content(group.rank(), length), content(before, length));
        let mut inbox = vec![0; length];
        let mut exchange = group.persistent((&mine, next, 11), (&mut inbox, before))?;
        for _ in 0..20 {
            exchange.exchange()?;
        }
        drop(exchange);
        check!(inbox == theirs);
    }
    check!(group.persistent((&[], group.size(), 1), (&mut [], 0)).err().is_some());
    Ok(group.barrier()?)
}

/// Each rank works on its neighbour's window, then on its own.
fn one_sided(group: &Communicator) -> Checked {
    let (rank, (next, before)) = (group.rank(), ring(group));
    for access in [Access::Flush, Access::Fence, Access::Lock] {
        let window = group.window(1024 + 8 * rank, access)?;
        check!(window.bytes() == 1024);
        // Between fences every operation is one of all ranks: the barrier is for the other kind.
        let together = || match access {
            Access::Flush | Access::Lock => group.barrier(),
            Access::Fence => Ok(()),
        };
        window.write(&[0; 1024], 0)?;
        if access == Access::Fence {
            window.fence()?;
        }
        together()?;
        window.put(&content(rank, 100), next, 16)?;
        together()?;
        let mut mine = [0; 100];
        window.read(&mut mine, 16)?;
        check!(mine[..] == content(before, 100));
        let mut theirs = [0; 100];
        window.get(&mut theirs, next, 16)?;
        check!(theirs[..] == content(rank, 100));
        together()?;
        for turn in 0..3 {
            window.accumulate(&[1.5, rank as f64], next, 512, Reduction::Sum)?;
            check!(window.fetch_and_op(5, next, 256, Reduction::Sum)? == 5 * turn);
        }
        together()?;
        let mut sums = [0; 16];
        window.read(&mut sums, 512)?;
        let number = |at: usize| sums[at..].first_chunk().map_or(0.0, |bytes| f64::from_ne_bytes(*bytes));
        check!((number(0), number(8)) == (4.5, 3.0 * before as f64));
        check!(matches!(window.get(&mut [0; 2], next, 1023), Err(Error::OutOfWindow { .. })));
        check!(window.put(&[], group.size(), 0) == Err(Error::NoSuchRank { rank: group.size(), size: group.size() }));
        check!(window.accumulate(&[1.0], next, 4, Reduction::Sum).is_err());
        together()?;
    }
    Ok(())
}

fn wrong_arguments(world: &Communicator) -> Checked {
    let size = world.size();
    let nobody = Err(Error::NoSuchRank { rank: size, size });
    check!(world.send(&[], size, 0) == nobody);
    check!(world.broadcast(&mut [], size) == nobody);
    check!(world.receive(&mut [], size, 0).err() == nobody.err());
    check!(world.send(&[], 0, -1) == Err(Error::Negative { what: "tag", value: -1 }));
    check!(world.receive(&mut [], 0, -1).err() == Some(Error::Negative { what: "tag", value: -1 }));
    check!(matches!(world.all_gather(&[1], &mut vec![0; size + 1]), Err(Error::Length { .. })));
    check!(matches!(world.all_reduce(&[1.0], &mut [], Reduction::Sum), Err(Error::Length { .. })));
    check!(world.split(Some(-5), 0).err() == Some(Error::Negative { what: "colour", value: -5 }));
    Ok(())
}

fn is_truncation(error: Option<Error>, function: &str) -> Checked {
    match error {
        Some(Error::Failed { function: of, text, .. }) if of == function => {
            check!(text.to_lowercase().contains("truncat") && !text.contains('\n'));
            Ok(())
        }
        other => Err(Wrong(format!("{function} of a message that does not fit: {other:?}"))),
    }
}

/// A rank sends to itself, by each of the calls that can find the message too long. Open MPI cuts
/// such a message without a word in `MPI_Wait` and `MPI_Waitall` (over its own transports); it must
/// not be longer than the buffer then.
fn too_long_for_the_buffer(mpi: &Mpi, world: &Communicator, requests: &mut Requests) -> Checked {
    let (me, long, mut short) = (world.rank(), [1; 64], [0; 8]);
    let silent = mpi.abi() == Abi::OpenMpi;
    let received = requests.scope(|scope| -> Result<_, Error> {
        let _ = scope.send(world, &long, me, 1)?;
        Ok(world.receive(&mut short, me, 1).err())
    });
    is_truncation(received?, "MPI_Recv")?;
    let waited = requests.scope(|scope| -> Result<_, Error> {
        let receive = scope.receive(world, &mut short, me, 2)?;
        let _ = scope.send(world, &long, me, 2)?;
        Ok(scope.wait(receive))
    });
    match waited? {
        Ok(status) if silent => check!(status.bytes()? == 8),
        other => is_truncation(other.err(), "MPI_Wait")?,
    }
    let waited = requests.scope(|scope| -> Result<_, Error> {
        let _ = scope.receive(world, &mut short, me, 3)?;
        let _ = scope.send(world, &long, me, 3)?;
        Ok(scope.wait_all())
    });
    match waited? {
        Ok(()) if silent => Ok(()),
        other => is_truncation(other.err(), "MPI_Waitall"),
    }
}

/// Work that fails or panics while receives are pending gives the buffers back, and MPI goes on.
fn broken_off(world: &Communicator, requests: &mut Requests) -> Checked {
    let mut inbox = [0; 8];
    let failed = requests.scope(|scope| -> Checked {
        let _ = scope.receive(world, &mut inbox, Source::Any, 40)?;
        Err(Wrong("as planned".into()))
    });
    check!(failed.is_err_and(|Wrong(what)| what == "as planned"));
    std::panic::set_hook(Box::new(|_| {}));
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        requests.scope(|scope| -> Result<(), Error> {
            let _ = scope.receive(world, &mut inbox, Source::Any, 41)?;
            panic!("as planned")
        })
    }));
    let _ = std::panic::take_hook();
    check!(panicked.is_err());
    // Had the receives stayed, they would take these messages.
    world.barrier()?;
    let (next, before) = ring(world);
    for tag in [40, 41] {
        let mut word = [0];
        world.send_receive((&[tag as u8], next, tag), (&mut word, Source::Rank(before), Tag::Is(tag)))?;
        check!(word == [tag as u8] && inbox == [0; 8]);
    }
    Ok(())
}
