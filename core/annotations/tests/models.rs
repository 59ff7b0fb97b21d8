//! Models are read as they are meant: what each process does is compared with the program they
//! describe.

mod common;

use std::sync::Arc;

use common::{lines, model, read, walk};
use weir_annotations::program::{OpKind, Table};
use weir_annotations::{Setting, Source, Value, parse};

const JACOBI: &str = include_str!("models/jacobi.c");

/// One iteration of the program of figure 86, as C executes it.
fn jacobi(rank: u32, numprocs: u32) -> Vec<String> {
    let mut all = Vec::new();
    let mut send = |to: u32| all.push(format!("send 1024 to {to}"));
    if rank.is_multiple_of(2) {
        if rank != 0 {
            send(rank - 1);
        }
        send(rank + 1);
        all.push(format!("recv 1024 from {}", rank + 1));
        if rank != 0 {
            all.push(format!("recv 1024 from {}", rank - 1));
        }
    } else {
        if rank != numprocs - 1 {
            all.push(format!("recv 1024 from {}", rank + 1));
        }
        all.push(format!("recv 1024 from {}", rank - 1));
        all.push(format!("send 1024 to {}", rank - 1));
        if rank != numprocs - 1 {
            all.push(format!("send 1024 to {}", rank + 1));
        }
    }
    all
}

#[test]
fn the_jacobi_of_the_thesis_does_what_its_program_does_at_any_even_number_of_processes() {
    let text = JACOBI.replace("Loop iterations = 100000", "Loop iterations = 2");
    for numprocs in (2..=128).step_by(2) {
        let model = model(&text, numprocs, &[], Some("orion"));
        for rank in 0..numprocs {
            let mut once = jacobi(rank, numprocs);
            once.push(format!("serial Fixed(Const(Float({:?})))", 5.7 / f64::from(numprocs)));
            assert_eq!(walk(&model, rank, 1000), [once.clone(), once].concat(), "{rank} of {numprocs}");
        }
    }
}

#[test]
fn a_constant_of_the_source_is_replaced_by_what_is_given() {
    let text = JACOBI.replace("Loop iterations = 100000", "Loop iterations = iterations");
    let run = |given: &[(&str, i64)]| model(&text, 2, given, Some("sc"));
    assert_eq!(walk(&run(&[("iterations", 3), ("xsize", 8)]), 0, 1000)[0], "send 32 to 1");
    assert_eq!(walk(&run(&[("iterations", 3)]), 0, 1000).len(), 9);
    assert_eq!(walk(&run(&[]), 0, 100).last().unwrap(), "...");
}

#[test]
fn its_loop_is_steady() {
    let model = model(JACOBI, 4, &[], Some("perseus"));
    assert!(matches!(&model.ops[0].kind, OpKind::LoopBegin(l) if l.steady));
}

#[test]
fn the_transform_of_the_digest_is_two_segments_around_an_exchange_with_a_warning_for_complex() {
    let text = include_str!("models/fft.c").replace("10000", "1");
    let parsed = read(&text).unwrap();
    assert_eq!(parsed.warnings.len(), 1, "{}", lines(&parsed.warnings));
    assert_eq!(parsed.warnings[0].code, "complex");
    let half = "serial Fixed(Const(Float(6.175)))";
    assert_eq!(walk(&model(&text, 4, &[], None), 3, 100), [half, "Alltoall 32768 of 4 at any", half]);
}

#[test]
fn the_slave_of_the_digest_leaves_its_body_when_it_is_told_to() {
    let text = include_str!("models/slave.c");
    // Without a value for DIE and clock it says so, with the lines.
    let parsed = read(text).unwrap();
    let found = parsed.program.model(&Setting { numprocs: 2, ..Setting::default() }).unwrap_err();
    let names: Vec<&str> = found.iter().map(|d| d.message.as_str()).collect();
    assert_eq!(names, ["`DIE` has no value", "`clock` has no value"]);
    let help: Vec<&str> = found.iter().filter_map(|d| d.help.as_deref()).collect();
    assert_eq!(help, ["DIE", "clock"].map(|name| format!("it is a parameter that is not given: -p {name}=VALUE")));
    // With DIE = -1, the value of a tag that nothing has bound, it is left before it begins.
    assert_eq!(walk(&model(text, 2, &[("DIE", -1), ("clock", 5)], None), 1, 100), [""; 0]);
    let model = model(text, 2, &[("DIE", 3), ("clock", 5)], None);
    // Behind the receive that binds the tag stands the check that leaves.
    let kinds: Vec<bool> = model.ops.iter().map(|op| matches!(op.kind, OpKind::JumpUnless(..))).collect();
    assert_eq!(kinds.iter().filter(|is| **is).count(), 1);
    assert!(matches!(model.ops[1].kind, OpKind::Message(_)) && kinds[2]);
}

#[test]
fn a_parameter_that_is_not_given_is_not_taken_for_another_that_is_not_given_either() {
    let parsed = read("Serial time = t1\nSerial time = t2").unwrap();
    let helps = |given: &[(&str, i64)]| {
        let parameters = given.iter().map(|(name, n)| ((*name).to_owned(), Value::Int(*n))).collect();
        let found = parsed.program.model(&Setting { numprocs: 2, parameters, ..Setting::default() }).unwrap_err();
        found.into_iter().filter_map(|d| d.help).collect::<Vec<_>>()
    };
    let plain = |name| format!("it is a parameter that is not given: -p {name}=VALUE");
    assert_eq!(helps(&[]), [plain("t1"), plain("t2")]);
    // One that has a value may have been meant.
    assert_eq!(helps(&[("t1", 3)]), [format!("{}; did you mean `t1`?", plain("t2"))]);
}

#[test]
fn conditions_and_bodies_pair_in_both_orders() {
    let behind = "Runon c1 = procnum == 0\n& c2 = 1,3..4\n& c3 = else\n{\nSerial time = 1\n}\n{\nSerial time = 2\n}\n{\nSerial time = 3\n}";
    let between = "Runon c1 = procnum == 0\n{\nSerial time = 1\n}\n& c2 = 1,3..4\n{\nSerial time = 2\n}\n& c3 = else\n{\nSerial time = 3\n}";
    for text in [behind, between] {
        let model = model(text, 6, &[], None);
        let did: Vec<String> = (0..6).map(|rank| walk(&model, rank, 100).concat()).collect();
        let time = |n: i64| format!("serial Fixed(Const(Int({n})))");
        assert_eq!(did, [1, 2, 3, 2, 2, 3].map(time));
    }
}

#[test]
fn processes_that_a_branch_leaves_out_are_told() {
    let text =
        "Runon c1 = procnum < numprocs/2 & c2 = procnum > numprocs/2 {\nSerial time = 1\n}\n{\nSerial time = 1\n}";
    let warnings = |numprocs| {
        let setting = Setting { numprocs, ..Setting::default() };
        read(text).unwrap().program.model(&setting).unwrap().warnings
    };
    assert_eq!(warnings(5)[0].message, "no condition holds for process 2");
    let text = text.replace("<", "<=").replace(">", ">=");
    let setting = Setting { numprocs: 4, ..Setting::default() };
    let found = read(&text).unwrap().program.model(&setting).unwrap().warnings;
    assert_eq!(found[0].code, "overlap");
}

#[test]
fn functions_are_put_where_they_are_called() {
    let text = "
static void exchange(int n, double *buffer) {
    // PEVPM Message type = MPI_Bcast size = n*sizeof(double) root = 0
    MPI_Bcast(buffer, n, MPI_DOUBLE, 0, MPI_COMM_WORLD);
}
int main(int argc, char **argv) {
    const int size = 100;
    double *b = malloc(size);
    // PEVPM Loop iterations = 2 index = i
    // PEVPM {
    for (int i = 0; i < 2; i++) {
        exchange(size * 2, b);
        // PEVPM Serial time = i
    }
    // PEVPM }
    exchange(7, b);
}";
    let bcast = |n: u32| format!("Bcast {n} of 3 at 0");
    let serial = "serial Fixed(Slot(";
    let did = walk(&model(text, 3, &[], None), 1, 100);
    assert_eq!((&did[0], &did[2], &did[4]), (&bcast(1600), &bcast(1600), &bcast(56)));
    assert!(did[1].starts_with(serial) && did.len() == 5);
}

#[test]
fn rank_and_size_of_the_source_are_procnum_and_numprocs() {
    let text = "int main(void) { int me, all; MPI_Comm_rank(MPI_COMM_WORLD, &me); MPI_Comm_size(MPI_COMM_WORLD, &all);
// PEVPM Message type = MPI_Sendrecv size = 8 to = (me+1)%all from = (me+all-1)%all
MPI_Sendrecv(a, 1, MPI_DOUBLE, r, 0, b, 1, MPI_DOUBLE, l, 0, MPI_COMM_WORLD, s); }";
    assert_eq!(walk(&model(text, 4, &[], None), 3, 10), ["sendrecv to 0 from 2"]);
}

#[test]
fn a_farm_takes_its_jobs_from_a_stream_and_carries_them() {
    let text = "Stream job = \"jobs.csv\"\nTake job\nLoop while = job.valid\n{\nMessage type = MPI_Send size = job.bytes to = 1 carry = job\nTake job\n}";
    let parsed = read(text).unwrap();
    let ints = |v: &[i64]| v.iter().map(|v| Value::Int(*v)).collect();
    let table = Table { columns: vec!["other".into(), "bytes".into()], values: ints(&[0, 10, 0, 20]) };
    let setting = Setting { numprocs: 2, streams: vec![Arc::new(table)], ..Setting::default() };
    let model = parsed.program.model(&setting).unwrap().model;
    assert_eq!(walk(&model, 0, 100), ["send 10 to 1", "send 20 to 1"]);
    assert_eq!(model.fields, ["job.bytes", "job.valid"]);
    let without = Table { columns: vec!["other".into()], values: ints(&[0]) };
    let setting = Setting { numprocs: 2, streams: vec![Arc::new(without)], ..Setting::default() };
    assert_eq!(parsed.program.model(&setting).unwrap_err()[0].message, "jobs.csv has no column bytes");
}

#[test]
fn speeds_scale_serial_times() {
    let text = "Processor description = perseus & timing basis = 500\nDefault processor = perseus & speed = 1000 & speed_1 = 250 & numprocs = 3\nSerial on perseus time = 4";
    let model = model(text, 3, &[], None);
    assert_eq!(model.slowness, [0.5, 2.0, 0.5]);
    assert_eq!(read(text).unwrap().program.default_numprocs(&Default::default()).unwrap(), Some(3));
}

#[test]
fn units_laws_and_block_comments_are_read() {
    let text = "/* PEVPM Serial time = 3 us\n * PEVPM Serial time = normal(1, 0.5) unit = s */ /* PEVPM Message type = MPI_Barrier */";
    let model = model(text, 2, &[], None);
    let units: Vec<f64> = model
        .ops
        .iter()
        .filter_map(|op| match &op.kind {
            OpKind::Serial(serial) => Some(serial.times[0].1.unit_ns),
            _ => None,
        })
        .collect();
    assert_eq!(units, [1e3, 1e9]);
    assert_eq!(model.ops.len(), 4);
}

#[test]
fn conversions_are_those_of_c() {
    let text = "#define SUM 1 + 2\n\
         void f(void) {\n const unsigned char c = 300;\n int h = 7 / 2.0;\n int once = SUM;\n int twice = 2 * SUM;\n\
         // PEVPM Set a = c\n // PEVPM Set a = h\n // PEVPM Set a = once\n // PEVPM Set a = (char)200\n\
         // PEVPM Set a = (unsigned)-1\n // PEVPM Set a = (short)(procnum+40000)\n // PEVPM Set a = (int)-3.9\n\
         // PEVPM Set a = (bool)0.5\n // PEVPM Set a = (float)0.1 == 0.1\n // PEVPM Set a = (unsigned long)(procnum-1)\n\
         // PEVPM Set a = (char)(procnum+300.5)\n }\n";
    let parsed = parse(&[Source { name: "t.c", text }]).expect("a program").program;
    let model = parsed.model(&Setting { numprocs: 2, ..Setting::default() }).expect("a model").model;
    let mut slots = model.slots.clone();
    slots[0] = Value::Int(0);
    let values: Vec<String> = model
        .ops
        .iter()
        .filter_map(|op| match &op.kind {
            OpKind::Set(_, expr) => Some(expr.eval(&slots).map_or_else(|e| e.to_string(), |v| v.to_string())),
            _ => None,
        })
        .collect();
    let beyond = "a whole number beyond 64 bits";
    assert_eq!(values, ["44", "3", "3", "-56", "4294967295", "-25536", "-3", "1", "0", beyond, beyond]);
    let torn = text.replace("Set a = c", "Set a = twice");
    let found = parse(&[Source { name: "t.c", text: &torn }]).expect("a program").program;
    let missing = found.model(&Setting { numprocs: 2, ..Setting::default() }).expect_err("no value for `twice`");
    assert!(missing[0].also.iter().any(|(_, why)| why.contains("a macro without brackets")), "{missing:?}");
}

#[test]
fn persistent_requests_are_read_with_their_calls_in_c() {
    let text = "int main() {
// PEVPM Message type = MPI_Send_init size = 8 to = 1 req = r[0]
  MPI_Send_init(a, 8, MPI_CHAR, 1, 0, MPI_COMM_WORLD, &r[0]);
// PEVPM Message type = MPI_Recv_init size = 8 from = ANY req = r[1]
  MPI_Recv_init(b, 8, MPI_CHAR, MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, &r[1]);
// PEVPM Loop iterations = 2
// PEVPM {
  for (i = 0; i < 2; i++) {
// PEVPM Message type = MPI_Startall req = r
    MPI_Startall(2, r);
// PEVPM Message type = MPI_Waitsome req = r bind n = outcount
    MPI_Waitsome(2, r, &n, at, MPI_STATUSES_IGNORE);
// PEVPM Runon c1 = n < 2
// PEVPM {
// PEVPM Message type = MPI_Waitall req = r
    if (n < 2) MPI_Waitall(2, r, MPI_STATUSES_IGNORE);
// PEVPM }
  }
// PEVPM }
// PEVPM Message type = MPI_Request_free req = r[0]
  MPI_Request_free(&r[0]);
  MPI_Request_free(&r[1]);
}
";
    let parsed = read(text).unwrap();
    assert!(parsed.warnings.is_empty(), "{:?}", parsed.warnings);
    let round = ["start 1", "wait Some for 1", "wait All for 1"];
    let all = [&["send init 8 to 1", "recv init 8 from any"][..], &round, &round, &["free"]].concat();
    assert_eq!(walk(&model(text, 2, &[], None), 0, 1000), all);
    // A start may begin a receive from anybody: no iteration is sure to be like another.
    let steady = |text: &str| {
        model(text, 2, &[], None).ops.iter().any(|op| matches!(&op.kind, OpKind::LoopBegin(l) if l.steady))
    };
    let alone = text.replace("MPI_Waitsome req = r bind n = outcount", "MPI_Waitall req = r");
    let alone = alone.replace("MPI_Waitsome(", "MPI_Waitall(").replace("c1 = n < 2", "c1 = 1");
    assert!(!steady(&alone));
    assert!(steady(&alone.replace("from = ANY", "from = 1")));
    assert!(!steady(&text.replace("from = ANY", "from = 1")));
}
