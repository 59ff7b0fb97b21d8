//! The programs of `examples/bsp`, small: each compares its result with a sequential one, or with
//! what NAS publishes, and ends the job if they differ.

mod common;

use common::{Job, compile_with};
use std::path::Path;

/// Processes on shared memory, and over packets.
const HERE: [usize; 3] = [1, 2, 4];
const BETWEEN: [usize; 1] = [2];

/// Runs one on each of these, with its arguments in one string.
fn verified(file: &str, args: &str) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/bsp").join(file).with_extension("c");
    // `lu` and `nas/lu` are two.
    let suffix = if file.starts_with("nas/") { "nas" } else { "example" };
    let program = compile_with(&source, "cc", &["-std=gnu11"], suffix).expect(file);
    for (carrier, processes) in [("shm", &HERE[..]), ("udp", &BETWEEN[..])] {
        for &p in processes {
            let job = args.split_whitespace().fold(Job::new(&program, p), Job::arg).env("WEIR_CARRIER", carrier);
            let ended = job.run();
            let is_well = ended.status.iter().all(|status| status.is_some_and(|s| s.success()));
            let line = ended.said.first().map_or("", |(out, _)| out.trim());
            assert!(is_well && line.contains("\"verified\": true"), "{file}, {p} over {carrier}: {}", ended.told());
            assert!(line.contains(&format!("\"p\": {p},")), "{line}");
        }
    }
}

#[test]
fn sorting_by_samples_sorts() {
    verified("sort", "--n 20000");
}

#[test]
fn lu_decomposition_is_the_sequential_one_to_the_last_bit() {
    verified("lu", "--n 60");
}

#[test]
fn the_transform_of_six_steps_is_the_transform() {
    verified("fft", "--log2-n 12");
}

#[test]
fn the_power_method_is_the_sequential_one_to_the_last_bit() {
    verified("spmv", "--n 2000 --iterations 10");
}

#[test]
fn jacobi_is_the_sequential_one_to_the_last_bit() {
    verified("jacobi", "--n 64 --iterations 20");
}

#[test]
fn bodies_move_as_they_do_alone() {
    verified("nbody", "--n 200 --steps 5");
}

#[test]
fn nas_kernels_of_class_s_give_the_published_values() {
    for file in ["nas/mg", "nas/bt", "nas/sp", "nas/lu"] {
        verified(file, "--class S");
    }
}

#[test]
fn a_size_that_is_none_ends_the_job_with_one_line() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/bsp/jacobi.c");
    let program = compile_with(&source, "cc", &["-std=gnu11"], "refused").expect("it compiles");
    let ended = Job::new(&program, 2).arg("--n").arg("many").run();
    assert!(
        ended.none_well() && ended.errors().iter().any(|l| l.contains("--n many: not a number")),
        "{}",
        ended.told()
    );
}
