//! Compiling C programs against `bsp.h` and running them as several processes, without a launcher.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// No job takes longer: those that end because of an error above all.
pub const LIMIT: Duration = Duration::from_secs(100);
const LOOK: Duration = Duration::from_millis(2);

/// As what a program is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lang {
    /// C11.
    C,
    /// C++17.
    Cxx,
}

/// Where programs are made, and the library lies under its name.
fn place() -> &'static Path {
    static PLACE: OnceLock<PathBuf> = OnceLock::new();
    PLACE.get_or_init(|| {
        let deps = std::env::current_exe().expect("this test").parent().expect("a folder").to_owned();
        let built = deps.join("libweir_bsp.so");
        assert!(built.exists(), "{} is made with this test", built.display());
        let place = deps.join("weir-bsp-tests");
        std::fs::create_dir_all(&place).expect("a folder");
        let link = place.join("libweir-bsp.so");
        if std::fs::read_link(&link).ok().as_deref() != Some(&built) {
            let own = place.join(format!("link.{}", std::process::id()));
            std::os::unix::fs::symlink(&built, &own).expect("a link");
            std::fs::rename(&own, &link).expect("renamed");
        }
        place
    })
}

/// The folder with the header.
pub fn include() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../include")
}

/// Compiles, without a warning.
pub fn compile(source: &Path, lang: Lang) -> Result<PathBuf, String> {
    match lang {
        Lang::C => compile_with(source, "cc", &["-std=c11", "-pedantic"], "c"),
        Lang::Cxx => compile_with(source, "c++", &["-x", "c++", "-std=c++17"], "cxx"),
    }
}

/// Compiles with these options.
pub fn compile_with(source: &Path, compiler: &str, options: &[&str], suffix: &str) -> Result<PathBuf, String> {
    let stem = source.file_stem().expect("a name").to_string_lossy();
    let program = place().join(format!("{stem}.{suffix}"));
    let own = place().join(format!("{stem}.{suffix}.{}", std::process::id()));
    let mut command = Command::new(compiler);
    // Lines are told by the name that the compiler was given.
    command.current_dir(source.parent().expect("a folder")).args(options);
    command
        .args(["-Wall", "-Wextra", "-Wno-sign-compare", "-Werror", "-g", "-O1", "-D_GNU_SOURCE", "-I"])
        .arg(include());
    command.arg(source.file_name().expect("a name")).arg("-o").arg(&own);
    command.arg("-L").arg(place()).args(["-lweir-bsp", "-lm"]).arg(format!("-Wl,-rpath,{}", place().display()));
    let output = command.output().map_err(|e| format!("{compiler}: {e}"))?;
    if !output.status.success() {
        return Err(format!("{compiler} {options:?}: {}", String::from_utf8_lossy(&output.stderr)));
    }
    std::fs::rename(&own, &program).map_err(|e| e.to_string())?;
    Ok(program)
}

/// Processes that are to be started.
pub struct Job {
    program: PathBuf,
    started: usize,
    size: usize,
    args: Vec<String>,
    env: Vec<(String, String)>,
}

impl Job {
    /// So many of a program.
    pub fn new(program: &Path, size: usize) -> Job {
        Job { program: program.to_owned(), started: size, size, args: Vec::new(), env: Vec::new() }
    }

    /// They are told to be so many, of which the last ones do not come.
    pub fn of_size(mut self, size: usize) -> Job {
        self.size = size;
        self
    }

    /// With this argument.
    pub fn arg(mut self, arg: &str) -> Job {
        self.args.push(arg.to_owned());
        self
    }

    /// With this set.
    pub fn env(mut self, name: &str, value: &str) -> Job {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Starts them.
    pub fn start(self) -> Running {
        let meeting = tempfile::tempdir().expect("a folder");
        let start = |rank: usize| {
            let mut command = Command::new(&self.program);
            command.args(&self.args).env("WEIR_KEY", "0123456789abcdef".repeat(4)).env("WEIR_BSP_MEET", meeting.path());
            command.env("WEIR_BSP_RANK", rank.to_string()).env("WEIR_BSP_SIZE", self.size.to_string());
            command.envs(self.env.iter().map(|(n, v)| (n, v)));
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
            let mut child = command.spawn().expect("the program starts");
            let said = [heard(child.stdout.take()), heard(child.stderr.take())];
            One { child, said, status: None }
        };
        Running { all: (0..self.started).map(start).collect(), meeting }
    }

    /// Starts them and waits for all.
    pub fn run(self) -> Ended {
        self.start().wait()
    }
}

/// What comes out of a pipe, as it comes.
struct Heard {
    text: Arc<Mutex<Vec<u8>>>,
    thread: JoinHandle<()>,
}

fn heard(from: Option<impl Read + Send + 'static>) -> Heard {
    let text = Arc::new(Mutex::new(Vec::new()));
    let to = text.clone();
    let thread = std::thread::spawn(move || {
        let (mut from, mut some) = (from.expect("piped"), [0; 4096]);
        while let Ok(n @ 1..) = from.read(&mut some) {
            to.lock().expect("whole").extend_from_slice(&some[..n]);
        }
    });
    Heard { text, thread }
}

impl Heard {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.text.lock().expect("whole")).into_owned()
    }
}

struct One {
    child: Child,
    said: [Heard; 2],
    status: Option<ExitStatus>,
}

/// Processes that run.
pub struct Running {
    all: Vec<One>,
    meeting: TempDir,
}

impl Running {
    /// Where they meet.
    pub fn meeting(&self) -> &Path {
        self.meeting.path()
    }

    /// Sends a signal to one.
    pub fn signal(&self, rank: usize, signal: i32) {
        // SAFETY: a child that was not waited for: nobody else has its number.
        unsafe { libc::kill(self.all[rank].child.id() as i32, signal) };
    }

    /// Waits until the first `n` have printed this.
    pub fn until_said(&self, n: usize, text: &str) -> Result<(), String> {
        let since = Instant::now();
        while self.all.iter().take(n).any(|one| !one.said[0].text().contains(text)) {
            if since.elapsed() > LIMIT {
                return Err(format!("'{text}' was not said"));
            }
            sleep(LOOK);
        }
        Ok(())
    }

    /// Waits for all; those that do not end are killed, and count as such.
    pub fn wait(self) -> Ended {
        let all: Vec<usize> = (0..self.all.len()).collect();
        self.wait_for(&all)
    }

    /// Waits for these; all others, and those that do not end, are killed.
    pub fn wait_for(mut self, ranks: &[usize]) -> Ended {
        let since = Instant::now();
        while ranks.iter().any(|rank| self.all[*rank].status.is_none()) && since.elapsed() < LIMIT {
            for one in self.all.iter_mut().filter(|one| one.status.is_none()) {
                one.status = one.child.try_wait().ok().flatten();
            }
            sleep(LOOK);
        }
        for one in self.all.iter_mut().filter(|one| one.status.is_none()) {
            let _ = one.child.kill();
            let _ = one.child.wait();
        }
        let (mut status, mut said) = (Vec::new(), Vec::new());
        for one in self.all {
            let [out, err] = one.said.map(|heard| {
                let text = heard.text.clone();
                let _ = heard.thread.join();
                String::from_utf8_lossy(&text.lock().expect("whole")).into_owned()
            });
            status.push(one.status);
            said.push((out, err));
        }
        Ended { status, said }
    }
}

/// How processes ended.
pub struct Ended {
    /// By rank; none: it had to be killed.
    pub status: Vec<Option<ExitStatus>>,
    /// What they printed: output and errors.
    pub said: Vec<(String, String)>,
}

impl Ended {
    /// In good order.
    pub fn all_succeeded(&self) -> bool {
        self.status.iter().all(|s| s.is_some_and(|s| s.success()))
    }

    /// All ended by themselves, with an error.
    pub fn none_well(&self) -> bool {
        self.status.iter().all(|s| s.is_some_and(|s| !s.success()))
    }

    /// The lines of all on standard error.
    pub fn errors(&self) -> Vec<String> {
        self.said.iter().flat_map(|(_, err)| err.lines().map(str::to_owned)).collect()
    }

    /// All about it.
    pub fn told(&self) -> String {
        format!("{:?} {:?}", self.status, self.said)
    }
}
