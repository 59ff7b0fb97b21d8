//! `weir bench`: from the command line to the exit code.

use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use weir_distribution::{MpiInfo, Reader, Run};
use weir_job::Env;
use weir_mpi::find::Launch;

use crate::error::{BenchError, Result};
use crate::host::{self, Facts};
use crate::machine::mpi::MpiMachine;
use crate::machine::weir::WeirMachine;
use crate::machine::{Control, Machine};
use crate::operation::Operation;
use crate::options::{Args, Settings, Transport};
use crate::run::{self, About, Report, Silent, Watcher};
use crate::show::{self, Progress, Warnings};
use crate::spawn;
use crate::stop::{self, Asked, Then};
use crate::sys::affinity;

/// All cells are measured.
pub const EXIT_DONE: u8 = 0;
/// Something failed.
pub const EXIT_FAILED: u8 = 1;
/// The command line is wrong, or asks for what this machine cannot do.
pub const EXIT_USAGE: u8 = 2;
/// Somebody asked to stop.
pub const EXIT_INTERRUPTED: u8 = 130;

/// An error before the ranks know of each other, such as a missing library, is told by rank 0, and by the first rank of any other node only if it still lives after this time: usually all find the same,
/// and many launchers end the others when rank 0 has ended.
const OTHER_NODE: Duration = Duration::from_secs(3);

/// Does what the command line asks; returns the exit code.
#[must_use]
pub fn run(args: &Args) -> u8 {
    let env = Env::from_process();
    let rank = rank_of(&env);
    let done = match args.settings() {
        Err(error) => Err(error),
        Ok(_) if args.list => list(),
        Ok(settings) if args.launches.is_some() => launches(&settings),
        Ok(_) if !args.launcher.is_empty() => {
            Err(BenchError::Usage("a launcher's command after -- needs --launches, e.g. --launches 1".into()))
        }
        Ok(settings) => match args.transport {
            Transport::Mpi => over_mpi(&settings),
            Transport::Weir => over_weir(&settings),
        },
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            let usage = matches!(error, BenchError::Usage(_));
            match (rank, local_rank_of(&env)) {
                (0, _) => eprintln!("weir bench: {error}"),
                // Rank 0 found the same, and said it, or another rank of this node does.
                _ if usage => {}
                (_, Some(1..)) => {}
                (rank, _) => {
                    std::thread::sleep(OTHER_NODE);
                    eprintln!("weir bench: rank {rank}: {error}");
                }
            }
            if usage { EXIT_USAGE } else { EXIT_FAILED }
        }
    }
}

/// This process's number as its launcher says, before any MPI is found: launchers of no MPI say it too.
fn rank_of(env: &Env) -> u32 {
    let told = |name: &str| env.get(name)?.to_str()?.trim().parse().ok();
    let names = ["PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID"];
    Launch::of_process(env).rank.or_else(|| names.into_iter().find_map(told)).unwrap_or(0)
}

/// This process's number among those of its node, if its launcher says it.
fn local_rank_of(env: &Env) -> Option<u32> {
    let names = ["MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK", "PMIX_LOCAL_RANK", "SLURM_LOCALID"];
    names.into_iter().find_map(|name| env.get(name)?.to_str()?.trim().parse().ok())
}

fn list() -> Result<u8> {
    let mut text = String::new();
    for op in Operation::all() {
        text += &format!("{op}\n");
    }
    print(&text)
}

/// A reader that has gone away is no failure.
fn print(text: &str) -> Result<u8> {
    match std::io::stdout().write_all(text.as_bytes()).and_then(|()| std::io::stdout().flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(BenchError::machine("standard output", error))
        }
        _ => Ok(EXIT_DONE),
    }
}

/// Starts launches one after the other, each adding itself to the run.
fn launches(settings: &Settings) -> Result<u8> {
    let args = &settings.args;
    let count = args.launches.unwrap_or(1);
    let own = std::env::current_exe().map_err(|error| BenchError::machine("this program", error))?;
    let start = start_of_launch(args, own)?;
    let Some(dir) = &args.output else {
        return Err(BenchError::Usage("--launches needs a folder: -o run1".into()));
    };
    if !args.append && dir.join("run.json").exists() {
        let text = format!("there is a run in {} already; give another folder, or --append", dir.display());
        return Err(BenchError::Usage(text));
    }
    let asked = stop::listen(Then::Wait, EXIT_INTERRUPTED)?;
    for number in 1..=count {
        if !args.quiet && !args.json {
            eprintln!("launch {number} of {count}");
        }
        let mut command = Command::new(&start[0]);
        command.args(&start[1..]).args(words_for_launch(std::env::args_os().skip(1)));
        if number > 1 && !args.append {
            command.arg("--append");
        }
        if args.json {
            // One document is promised: that of the run, at the end.
            command.arg("--quiet").stdout(Stdio::null());
        }
        let status = command
            .status()
            .map_err(|error| BenchError::machine(format!("cannot start {}", Path::new(&start[0]).display()), error))?;
        if asked.stop.load(Ordering::Relaxed) {
            return Ok(EXIT_INTERRUPTED);
        }
        if !status.success() {
            let text =
                format!("launch {number} of {count} ended with {status}; finished cells are in {}", dir.display());
            eprintln!("weir bench: {text}");
            return Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(EXIT_FAILED));
        }
    }
    let reader = Reader::open(dir).map_err(|error| BenchError::Told(error.to_string()))?;
    if args.json {
        return print_json(reader.run());
    }
    print(&show::launches(reader.run()))
}

/// The command that starts a launch, before this command line's own words.
fn start_of_launch(args: &Args, own: PathBuf) -> Result<Vec<OsString>> {
    match (args.transport, args.launcher.is_empty()) {
        (Transport::Mpi, true) => {
            let text = "--launches needs the launcher's command after --, e.g. -- mpiexec -n 4";
            Err(BenchError::Usage(text.into()))
        }
        (Transport::Weir, false) => {
            let text = "--transport weir starts the ranks itself: say -n and no launcher after --";
            Err(BenchError::Usage(text.into()))
        }
        _ => Ok(args.launcher.iter().cloned().chain([own.into()]).collect()),
    }
}

/// The words of a command line but for `--launches`, what it answers with, and the launcher.
fn words_for_launch(mut given: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut words = Vec::new();
    while let Some(word) = given.next() {
        if word == "--" {
            break;
        }
        if word == "--launches" {
            given.next();
        } else if word != "--json" && !word.to_string_lossy().starts_with("--launches=") {
            words.push(word);
        }
    }
    words
}

fn over_mpi(settings: &Settings) -> Result<u8> {
    let machine = MpiMachine::load(settings.args.mpi_library.as_deref())?;
    let about = about_mpi(&machine);
    // After MPI has started, which may have taken the signals for itself.
    let asked = stop::listen(Then::EndAfterAWhile, EXIT_INTERRUPTED)?;
    let result = measure(&machine, settings, &about, &asked.stop);
    match result {
        // Every rank knows of these: MPI ends in good order.
        Err(error @ (BenchError::Usage(_) | BenchError::Told(_) | BenchError::Elsewhere { .. })) => {
            // Said before the others may end: some launchers end rank 0 as soon as another has failed.
            if machine.rank() == 0 {
                eprintln!("weir bench: {error}");
            }
            machine.finish()?;
            Ok(if matches!(error, BenchError::Usage(_)) { EXIT_USAGE } else { EXIT_FAILED })
        }
        Err(error) => {
            eprintln!("weir bench: rank {}: {error}", machine.rank());
            machine.abort(i32::from(EXIT_FAILED));
            Ok(EXIT_FAILED)
        }
        // Who passed the wish on may kill a second later, and MPI need not end in good order any more: people first.
        Ok((Some(report), watcher)) if !report.complete => {
            let concluded = conclude(report, settings, &asked.stop, watcher);
            machine.finish()?;
            concluded
        }
        Ok((report, watcher)) => {
            machine.finish()?;
            report.map_or(Ok(code_of_others(&asked)), |report| conclude(report, settings, &asked.stop, watcher))
        }
    }
}

/// What ranks other than 0 end with: launchers make one code of all ranks' codes, some of them by the last.
fn code_of_others(asked: &Asked) -> u8 {
    if asked.stop.load(Ordering::Relaxed) { EXIT_INTERRUPTED } else { EXIT_DONE }
}

/// The rank that the starting process gave this one.
fn number(name: &str) -> Result<usize> {
    let text = std::env::var(name).unwrap_or_default();
    text.parse().map_err(|_| {
        BenchError::Usage(format!("{name} is {text:?}; --meet is for ranks that weir bench starts itself"))
    })
}

fn over_weir(settings: &Settings) -> Result<u8> {
    let Some(socket) = &settings.args.meet else { return start_ranks(settings) };
    let (rank, size) = (number(spawn::RANK)?, number(spawn::RANKS)?);
    let machine = WeirMachine::join(socket, rank, size)?;
    let about = About {
        backend: "weir".into(),
        mpi: None,
        environment: host::environment(std::env::vars()),
        command: std::env::args().collect(),
    };
    let asked = stop::listen(Then::EndAfterAWhile, EXIT_INTERRUPTED)?;
    match measure(&machine, settings, &about, &asked.stop) {
        Ok((report, watcher)) => {
            machine.finish();
            report.map_or(Ok(code_of_others(&asked)), |report| conclude(report, settings, &asked.stop, watcher))
        }
        Err(error) => {
            let usage = matches!(error, BenchError::Usage(_));
            let told = usage || matches!(error, BenchError::Told(_) | BenchError::Elsewhere { .. });
            if told {
                // All know of it, and none waits for another.
                machine.finish();
            }
            match told && rank != 0 {
                true => Ok(if usage { EXIT_USAGE } else { EXIT_FAILED }),
                false => Err(error),
            }
        }
    }
}

fn start_ranks(settings: &Settings) -> Result<u8> {
    let args = &settings.args;
    let Some(ranks) = args.ranks else {
        return Err(BenchError::Usage("--transport weir starts the ranks itself: say how many, e.g. -n 4".into()));
    };
    let agent = args.agent.as_deref().unwrap_or_default().split_whitespace().map(str::to_owned).collect();
    let words = std::env::args_os().skip(1).collect();
    spawn::run(&spawn::Job { ranks: ranks as usize, agent, words }, &stop::listen(Then::Look, EXIT_INTERRUPTED)?)
}

fn about_mpi(machine: &MpiMachine) -> About {
    let mpi = machine.mpi();
    let launch = mpi.launch();
    let standard = mpi.standard_version().ok().map(|(major, minor)| format!("{major}.{minor}"));
    About {
        backend: "mpi".into(),
        mpi: Some(MpiInfo {
            library_version: name_and_version(mpi.version()),
            library_path: Some(mpi.library().display().to_string()),
            standard,
            abi: Some(abi_word(mpi.abi()).into()),
            launcher: launch.program.as_ref().and_then(|p| Some(p.file_name()?.to_string_lossy().into_owned())),
        }),
        environment: host::environment(std::env::vars()),
        command: std::env::args().collect(),
    }
}

fn abi_word(abi: weir_mpi::Abi) -> &'static str {
    match abi {
        weir_mpi::Abi::Mpich => "mpich",
        weir_mpi::Abi::OpenMpi => "open-mpi",
        weir_mpi::Abi::Standard => "standard",
    }
}

/// Name and version: MPIs say a page about themselves.
fn name_and_version(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    let words = line.split(|c: char| c.is_whitespace() || c == ',').filter(|word| !word.is_empty());
    words.filter(|word| *word != "Version:").take_while(|word| *word != "package:").collect::<Vec<_>>().join(" ")
}

/// A run as one line of JSON.
fn print_json(run: &Run) -> Result<u8> {
    let text = serde_json::to_string(run).map_err(|error| BenchError::machine("--json", error))?;
    print(&format!("{text}\n"))
}

/// Measures; rank 0 gets the report and who watched.
fn measure<M: Machine>(
    machine: &M,
    settings: &Settings,
    about: &About,
    stop: &AtomicBool,
) -> Result<(Option<Report>, Box<dyn Watcher>)> {
    let args = &settings.args;
    if args.bind {
        let bound = bind(machine)?;
        machine.agree(bound)?;
    }
    let mut watcher: Box<dyn Watcher> = match (machine.rank(), args.quiet || args.json) {
        (0, false) => Box::new(Progress::new()),
        (0, true) => Box::new(Warnings),
        _ => Box::new(Silent),
    };
    let report = run::launch(machine, settings, about, &Facts::here(), stop, watcher.as_mut())?;
    Ok((report, watcher))
}

/// Keeps each rank on a processor of its own, of those it may use.
fn bind<M: Machine>(machine: &M) -> Result<Result<()>> {
    let own = Facts::here().identity;
    let all = machine.everybody(&own)?;
    let place = all[..machine.rank()].iter().filter(|one| **one == own).count();
    Ok((|| {
        let allowed = affinity::allowed().map_err(|error| BenchError::machine("--bind", error))?;
        let Some(cpu) = allowed.get(place % allowed.len().max(1)) else { return Ok(()) };
        affinity::bind(*cpu).map_err(|error| BenchError::machine(format!("--bind: processor {cpu}"), error))
    })())
}

/// Shows what came out, then fits, which takes a while; at rank 0.
fn conclude(mut report: Report, settings: &Settings, stop: &AtomicBool, mut watcher: Box<dyn Watcher>) -> Result<u8> {
    let args = &settings.args;
    let code = |whole: bool| if whole { EXIT_DONE } else { EXIT_INTERRUPTED };
    if args.json {
        let fitted = run::fit(&mut report, stop, watcher.as_mut())?;
        print_json(&report.run)?;
        return Ok(code(report.complete && fitted));
    }
    watcher.end();
    print(&show::tables(&report.run, report.launch))?;
    let mut fitted = true;
    if report.complete && args.output.is_some() {
        fitted = run::fit(&mut report, stop, watcher.as_mut())?;
        watcher.end();
    }
    let code = code(report.complete && fitted);
    if args.quiet {
        return Ok(code);
    }
    let warnings = report.run.launch(report.launch).map_or(&[][..], |l| l.warnings.as_slice());
    // On a terminal they have scrolled away.
    if std::io::stderr().is_terminal() {
        warnings.iter().for_each(|warning| eprintln!("{}", show::warning_line(warning)));
    }
    match (&args.output, report.complete) {
        (Some(dir), true) if !fitted => {
            eprintln!(
                "interrupted; all cells are in {}, some without fits: weir report {}",
                dir.display(),
                dir.display()
            )
        }
        (Some(dir), true) => eprintln!("next: weir report {}", dir.display()),
        (Some(dir), false) => {
            eprintln!("interrupted; finished cells are in {}: weir report {}", dir.display(), dir.display())
        }
        (None, true) => eprintln!("nothing was kept; give a folder for that: -o run1"),
        (None, false) => eprintln!("interrupted"),
    }
    Ok(code)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::tests::args;

    fn words(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(OsString::from).collect()
    }

    #[test]
    fn launches_need_a_launcher_over_mpi_only() {
        let start = |line: &str| {
            let line: Vec<&str> = line.split_whitespace().collect();
            start_of_launch(&args(&line), "/bin/weir".into()).map_err(|error| error.to_string())
        };
        assert_eq!(start("--launches 2 -o r -- mpiexec -n 4"), Ok(words("mpiexec -n 4 /bin/weir")));
        assert_eq!(start("--launches 2 -o r --transport weir -n 2"), Ok(words("/bin/weir")));
        assert!(start("--launches 2 -o r").unwrap_err().contains("needs the launcher"));
        assert!(start("--launches 2 -o r --transport weir -n 2 -- mpiexec").unwrap_err().contains("no launcher"));
    }

    #[test]
    fn a_launchers_command_without_launches_is_refused() {
        let line: Vec<&str> = "-t send -s 8 -- mpiexec -n 2".split_whitespace().collect();
        assert_eq!(run(&args(&line)), EXIT_USAGE);
    }

    #[test]
    fn a_launch_gets_the_words_but_those_about_launches() {
        let given = words("bench --launches 3 --json -t send --launches=2 -o r -- mpiexec -n 4");
        assert_eq!(words_for_launch(given.into_iter()), words("bench -t send -o r"));
    }

    #[test]
    fn the_rank_is_known_under_any_launcher_before_an_mpi_is_found() {
        let rank = |name: &str| rank_of(&Env::from_pairs([(name, "3")]));
        for name in ["PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID"] {
            assert_eq!(rank(name), 3, "{name}");
        }
        assert_eq!(rank("HOME"), 0);
    }

    #[test]
    fn an_mpi_is_named_in_a_few_words() {
        let cases = [
            ("MPICH Version:      5.0.2\nMPICH Release date: x\n", "MPICH 5.0.2"),
            ("Open MPI v5.0.11, package: Open MPI root@x Distribution, ident: 5.0.11", "Open MPI v5.0.11"),
            ("", ""),
        ];
        for (text, expected) in cases {
            assert_eq!(name_and_version(text), expected);
        }
    }
}
