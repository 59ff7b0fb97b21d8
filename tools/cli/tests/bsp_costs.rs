//! The programs of `examples/bsp`: they compile as their first lines say, and cost what their
//! formulas say, with p, l, g and s as they are measured here, on shared memory.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use libtest_mimic::{Arguments, Failed, Trial};
use serde_json::Value;

/// The prediction is to be within this share of the time, in the median of launches.
const OFF: f64 = 0.2;
const PROCESSES: &str = "2";
/// Launches of each, at least and, where others disturb them, at most.
const LAUNCHES: std::ops::RangeInclusive<usize> = 5..=25;
/// Bytes of a superstep: l and g are measured with about so many, for a superstep of few bytes
/// costs more than those times the g of many.
const LONG: &str = "256K";
const SHORT: &str = "2K";
/// Each with what it is told, and how much its supersteps move (LU half a column).
const EXAMPLES: [(&str, &[&str], &str); 6] = [
    ("sort", &["--n", "400000"], LONG),
    ("lu", &["--n", "500"], SHORT),
    ("fft", &["--log2-n", "18"], LONG),
    ("spmv", &["--n", "20000", "--per-row", "40", "--iterations", "50"], LONG),
    ("jacobi", &["--n", "512", "--iterations", "100"], LONG),
    ("nbody", &["--n", "1000", "--steps", "10"], LONG),
];

/// Where `weir cc` finds what belongs to this build.
fn prefix(folder: &Path) {
    let deps = std::env::current_exe().expect("this test").parent().expect("a folder").to_owned();
    let built = deps.join("libweir_bsp.so");
    assert!(built.exists(), "{} is made with this test", built.display());
    let include = root().join("include").canonicalize().expect("the headers");
    for (place, what) in
        [("include", include.clone()), ("lib/libweir-bsp.so", built), ("share/weir/bsp.f90", include.join("bsp.f90"))]
    {
        let place = folder.join(place);
        std::fs::create_dir_all(place.parent().expect("a folder")).expect("a folder");
        std::os::unix::fs::symlink(what, place).expect("a link");
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Compiles an example by the line that it begins with.
fn compile(folder: &Path, name: &str) -> PathBuf {
    let source = root().join("examples/bsp").join(name).canonicalize().expect(name);
    let text = std::fs::read_to_string(&source).expect(name);
    let line =
        text.lines().find_map(|line| line.split_once("weir cc ")?.1.split_once(" &&")).expect("how it is made").0;
    let mut words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    let (out, there) = (words.pop().expect("its name"), format!("examples/bsp/{name}"));
    for word in words.iter_mut().filter(|word| **word == there) {
        *word = source.display().to_string();
    }
    let mut cc = Command::new(env!("CARGO_BIN_EXE_weir"));
    cc.current_dir(folder).env("WEIR_PREFIX", folder).arg("cc").args(&words).arg(&out);
    let done = cc.output().expect("it starts");
    assert!(done.status.success(), "weir cc {line}: {}", String::from_utf8_lossy(&done.stderr));
    folder.join(out)
}

/// Before other processes: both processes are to have a core at a time, or what is measured is the
/// system's scheduler (40 to 80 % on a busy machine).
const UNDISTURBED: [&str; 3] = ["chrt", "-r", "1"];

fn may_be_undisturbed() -> bool {
    let [program, words @ ..] = UNDISTURBED;
    Command::new(program).args(words).arg("true").status().is_ok_and(|status| status.success())
}

/// What a command of `weir` prints, one JSON document.
fn weir(first: &[&str], words: &[&str]) -> Value {
    let mut command = Command::new(first[0]);
    command.args(&first[1..]).arg(env!("CARGO_BIN_EXE_weir")).args(words);
    let out = command.env("WEIR_CARRIER", "shm").stdin(Stdio::null()).output().expect("it starts");
    let (text, errors) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "{words:?}: {errors}");
    serde_json::from_str(text.trim()).unwrap_or_else(|e| panic!("{words:?}: {e}: {text}"))
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// The price of meeting and of a byte, seconds, where supersteps move so many bytes.
fn machine(first: &[&str], h: &str) -> (f64, f64) {
    let words = ["bsp", "params", "-n", PROCESSES, "--samples", "30", "--time", "0.3", "--h", h, "--blocks", h];
    let found = weir(first, &[&words[..], &["--patterns", "total", "-q", "--json"]].concat());
    let of = |name: &str| number(&found["machines"][0][name]["median"]) * 1e-9;
    (of("l_ns"), of("g_ns_per_byte"))
}

/// How far `w + h g + l` is from the time of one launch, as a share of it.
fn off(first: &[&str], program: &Path, words: &[&str], (l, g): (f64, f64)) -> f64 {
    let program = program.display().to_string();
    let said = weir(first, &[&["run", "-n", PROCESSES, &program], words].concat());
    assert_eq!(said["verified"], true, "{said}");
    let of = |name: &str| number(&said[name]);
    let w = of("operations") / of("operations_per_s");
    (w + of("h_bytes") * g + of("supersteps") * l) / of("time_s") - 1.0
}

fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn the_examples_cost_what_their_formulas_say() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    prefix(folder.path());
    let programs = EXAMPLES.map(|(name, ..)| compile(folder.path(), &format!("{name}.c")));
    let (first, mut offs) = (&UNDISTURBED[..], EXAMPLES.map(|_| Vec::new()));
    let mut told = String::new();
    for launch in 1..=*LAUNCHES.end() {
        let machines = [LONG, SHORT].map(|h| (h, machine(first, h)));
        for ((offs, program), (_, words, h)) in offs.iter_mut().zip(&programs).zip(EXAMPLES) {
            let of = machines.iter().find(|of| of.0 == h).expect("measured").1;
            offs.push(off(first, program, words, of));
        }
        let medians = offs.each_ref().map(|offs| median(offs));
        let each = EXAMPLES.iter().zip(medians).map(|((name, ..), off)| format!("{name} {:+.1} %", off * 100.0));
        told = format!("of {launch} launches: {}", each.collect::<Vec<_>>().join(", "));
        if launch >= *LAUNCHES.start() && medians.iter().all(|off| off.abs() <= OFF) {
            println!("{told}");
            return Ok(());
        }
    }
    Err(told.into())
}

fn programs_compile_as_their_first_lines_say() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    prefix(folder.path());
    for (name, ..) in EXAMPLES {
        compile(folder.path(), &format!("{name}.c"));
    }
    for name in ["nas/bt.c", "nas/lu.c", "nas/mg.c", "nas/sp.c"] {
        compile(folder.path(), name);
    }
    Ok(())
}

/// The module is compiled with the program.
fn the_fortran_example_needs_no_more_than_its_first_line() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    prefix(folder.path());
    let program = compile(folder.path(), "pi.f90").display().to_string();
    for p in ["1", "3"] {
        let mut run = Command::new(env!("CARGO_BIN_EXE_weir"));
        let out = run.args(["run", "-n", p, &program]).stdin(Stdio::null()).output()?;
        let (text, errors) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        if !out.status.success() || text.trim() != format!("pi is 3.141592653590, by {p} processes") {
            return Err(format!("{p}: {text}{errors}").into());
        }
    }
    Ok(())
}

fn main() {
    let fortran = Command::new("gfortran").arg("--version").output().is_ok();
    let trials = vec![
        Trial::test("programs compile as their first lines say", programs_compile_as_their_first_lines_say),
        Trial::test("the examples cost what their formulas say", the_examples_cost_what_their_formulas_say)
            .with_ignored_flag(!may_be_undisturbed()),
        Trial::test(
            "the Fortran example needs no more than its first line",
            the_fortran_example_needs_no_more_than_its_first_line,
        )
        .with_ignored_flag(!fortran),
    ];
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(1);
    libtest_mimic::run(&arguments, trials).exit();
}
