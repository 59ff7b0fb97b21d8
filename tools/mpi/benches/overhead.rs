//! What a call costs beyond MPI's own: every call goes into a library that returns at once, so that
//! all of the time is ours but the call itself (`call`, some 2 ns).

#[path = "../tests/fake/mod.rs"]
mod fake;

use std::hint::black_box;
use std::path::Path;

use criterion::Criterion;
use weir_mpi::{Error, Mpi, Source, Tag};

fn overhead(c: &mut Criterion) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fake-mpi");
    // The ABI with pointers; WEIR_FAKE_ABI=1 is that with integers.
    let integers = std::env::var("WEIR_FAKE_ABI").is_ok_and(|abi| abi == "1");
    let (soname, abi) = if integers { ("libmpi.so.12", 1) } else { ("libmpi.so.40", 2) };
    let library = fake::compile(&folder, soname, abi, &[]);
    let mpi = Mpi::load_with(&weir_job::Env::default(), Some(&library)).unwrap();
    let world = mpi.world().unwrap();
    let (out, mut inbox) = ([0; 64], [0; 64]);
    c.bench_function("call", |b| b.iter(|| black_box(mpi.wtime())));
    c.bench_function("barrier", |b| b.iter(|| world.barrier()));
    c.bench_function("send", |b| b.iter(|| world.send(black_box(&out), 0, 1)));
    c.bench_function("receive", |b| {
        b.iter(|| world.receive(black_box(&mut inbox), Source::Rank(0), Tag::Is(1)).map(|status| status.tag()))
    });
    c.bench_function("probe now", |b| b.iter(|| world.probe_now(Source::Any, Tag::Any).map(|status| status.is_some())));
    let mut requests = mpi.requests(64);
    c.bench_function("scope with a send and a receive (4 calls)", |b| {
        b.iter(|| {
            requests.scope(|scope| -> Result<(), Error> {
                let receive = scope.receive(&world, &mut inbox, 0, 1)?;
                let send = scope.send(&world, &out, 0, 1)?;
                let _ = scope.wait(send)?;
                let _ = scope.wait(receive)?;
                Ok(())
            })
        });
    });
    c.bench_function("scope with 64 sends and a wait for all (65 calls)", |b| {
        b.iter(|| {
            requests.scope(|scope| {
                for _ in 0..64 {
                    let _ = scope.send(&world, &out, 0, 1)?;
                }
                scope.wait_all()
            })
        });
    });
    drop(world);
    mpi.finalize().unwrap();
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    overhead(&mut criterion);
    criterion.final_summary();
}
