//! Compiling C programs against `bsp.h` and running them as several processes, without a launcher.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::thread::sleep;
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
    size: usize,
    args: Vec<String>,
    env: Vec<(String, String)>,
    limit: Duration,
}

impl Job {
    /// So many of a program.
    pub fn new(program: &Path, size: usize) -> Job {
        Job { program: program.to_owned(), size, args: Vec::new(), env: Vec::new(), limit: LIMIT }
    }

    /// With this set.
    pub fn env(mut self, name: &str, value: &str) -> Job {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// With this argument.
    pub fn arg(mut self, arg: &str) -> Job {
        self.args.push(arg.to_owned());
        self
    }

    /// Starts them.
    pub fn start(self) -> Running {
        let meeting = tempfile::tempdir().expect("a folder");
        let children = (0..self.size)
            .map(|rank| {
                let mut command = Command::new(&self.program);
                command.args(&self.args).envs(self.env.iter().map(|(n, v)| (n, v)));
                command.env("WEIR_KEY", "0123456789abcdef".repeat(4)).env("WEIR_BSP_MEET", meeting.path());
                command.env("WEIR_BSP_RANK", rank.to_string()).env("WEIR_BSP_SIZE", self.size.to_string());
                command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
                Some(command.spawn().expect("the program starts"))
            })
            .collect();
        Running { children, meeting, limit: self.limit }
    }

    /// Starts them and waits for all.
    pub fn run(self) -> Ended {
        self.start().wait()
    }
}

/// Processes that run.
pub struct Running {
    children: Vec<Option<Child>>,
    meeting: TempDir,
    limit: Duration,
}

impl Running {
    /// The system's number of one.
    pub fn id(&self, rank: usize) -> i32 {
        self.children[rank].as_ref().map_or(0, |child| child.id() as i32)
    }

    /// Waits for all; those that do not end are killed, and count as such.
    pub fn wait(mut self) -> Ended {
        let readers: Vec<_> = self
            .children
            .iter_mut()
            .flatten()
            .map(|child| {
                let (out, err) = (child.stdout.take().expect("piped"), child.stderr.take().expect("piped"));
                let read = |mut from: Box<dyn Read + Send>| {
                    std::thread::spawn(move || {
                        let mut text = Vec::new();
                        let _ = from.read_to_end(&mut text);
                        String::from_utf8_lossy(&text).into_owned()
                    })
                };
                (read(Box::new(out)), read(Box::new(err)))
            })
            .collect();
        let since = Instant::now();
        let mut status: Vec<Option<ExitStatus>> = vec![None; self.children.len()];
        while status.iter().any(Option::is_none) && since.elapsed() < self.limit {
            for (child, status) in self.children.iter_mut().zip(&mut status) {
                if status.is_none() {
                    *status = child.as_mut().and_then(|child| child.try_wait().ok().flatten());
                }
            }
            sleep(LOOK);
        }
        for (child, _) in self.children.iter_mut().zip(&status).filter(|(_, s)| s.is_none()) {
            if let Some(child) = child {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
        let said = readers
            .into_iter()
            .map(|(out, err)| (out.join().unwrap_or_default(), err.join().unwrap_or_default()))
            .collect();
        drop(self.meeting);
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
