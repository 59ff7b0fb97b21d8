//! C programs built against the header and the library, and run within a limit of time.

#![allow(dead_code, reason = "each test uses a part")]

pub mod wire;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Nothing takes this long, however busy the machine, but what hangs.
pub const LIMIT: Duration = Duration::from_secs(300);

/// The job's key of all programs here.
pub const KEY: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Where the library that was built for this test is.
pub fn library() -> PathBuf {
    let exe = std::env::current_exe().expect("a program knows where it is");
    // Cargo leaves the one it has just built beside the tests; that of `cargo build`, a folder
    // higher, may be older.
    let library = exe.parent().expect("it is in a folder").join("libweir_bmi.so");
    assert!(library.exists(), "{} is not there", library.display());
    library
}

/// Builds `c/NAME.c`.
pub fn build(name: &str, flags: &[&str]) -> PathBuf {
    let flags_name: String = flags.concat().chars().filter(char::is_ascii_alphanumeric).collect();
    compile(name, &format!("{name}{flags_name}"), flags)
}

/// Builds `c/mock.c` as the module `NAME.so`, from a folder of its own with the headers only.
pub fn module(name: &str, flags: &[&str]) -> PathBuf {
    compile("mock", &format!("{name}.so"), &[&["-shared", "-fPIC"], flags].concat())
}

/// Builds `c/NAME.c` as what is loaded before a program (`LD_PRELOAD`).
pub fn preload(name: &str) -> PathBuf {
    compile(name, &format!("{name}.so"), &["-shared", "-fPIC"])
}

fn compile(name: &str, out: &str, flags: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(format!("{name}.c"));
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join(out);
    // Once in each process that runs tests.
    static BUILT: std::sync::Mutex<Vec<PathBuf>> = std::sync::Mutex::new(Vec::new());
    if BUILT.lock().expect("no test fails with it").contains(&out) {
        return out;
    }
    // Several tests may want the same program at the same time.
    let mine = out.with_extension(format!("{}-{:?}", std::process::id(), std::thread::current().id()));
    let library = library();
    let done = Command::new("cc")
        .args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-g", "-pthread"])
        .args(flags)
        .arg("-I")
        .arg(root().join("include"))
        .arg("-o")
        .arg(&mine)
        .arg(source)
        .arg(&library)
        .arg(format!("-Wl,-rpath,{}", library.parent().expect("a folder").display()))
        .output()
        .expect("cc");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    std::fs::rename(&mine, &out).expect("renamed");
    BUILT.lock().expect("no test fails with it").push(out.clone());
    out
}

/// A program to be run.
pub struct Program {
    command: Command,
}

impl Program {
    /// With these arguments.
    pub fn new(program: &Path, args: &[&str]) -> Program {
        let mut command = Command::new(program);
        command.args(args);
        // Nothing of who runs the tests.
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("WEIR_")) {
            command.env_remove(name);
        }
        command.env("WEIR_KEY", KEY);
        Program { command }
    }

    /// With these variables.
    pub fn vars(mut self, vars: &[(&str, &str)]) -> Program {
        self.command.envs(vars.iter().copied());
        self
    }

    /// Runs it; it must succeed. What it printed.
    pub fn passes(self) -> String {
        self.run().0
    }

    /// The same. What it said to people.
    pub fn passes_saying(self) -> String {
        self.run().1
    }

    fn run(mut self) -> (String, String) {
        let out = tempfile_in_target();
        let err = tempfile_in_target();
        let open = |path: &Path| Stdio::from(std::fs::File::create(path).expect("a file"));
        let mut child =
            self.command.stdin(Stdio::null()).stdout(open(&out)).stderr(open(&err)).spawn().expect("started");
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().expect("waited") {
                break Some(status);
            }
            if begun.elapsed() > LIMIT {
                let _ = child.kill();
                let _ = child.wait();
                break None;
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
        let (printed, said) = (read(&out), read(&err));
        let _ = (std::fs::remove_file(&out), std::fs::remove_file(&err));
        assert!(status.is_some_and(|s| s.success()), "{status:?}\n{printed}\n{said}");
        (printed, said)
    }
}

fn tempfile_in_target() -> PathBuf {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("out-{}-{n}", std::process::id()))
}
