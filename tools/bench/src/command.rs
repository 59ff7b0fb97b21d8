//! `weir bench`: from the command line to the exit code.

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use weir_distribution::{MpiInfo, Reader};
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
use crate::show::{self, Progress};
use crate::spawn;
use crate::sys::affinity;

/// All cells are measured.
pub const EXIT_DONE: u8 = 0;
/// Something failed.
pub const EXIT_FAILED: u8 = 1;
/// The command line is wrong, or asks for what this machine cannot do.
pub const EXIT_USAGE: u8 = 2;
/// Somebody asked to stop.
pub const EXIT_INTERRUPTED: u8 = 130;

/// Does what the command line asks; returns the exit code.
#[must_use]
pub fn run(args: &Args) -> u8 {
    let env = Env::from_process();
    // Errors that every rank finds for itself are told by one of them.
    let first = Launch::of_process(&env).rank.unwrap_or(0) == 0;
    let done = match args.settings() {
        Err(error) => Err(error),
        Ok(_) if args.list => list(),
        Ok(settings) if args.launches.is_some() => launches(&settings),
        Ok(settings) => match args.transport {
            Transport::Mpi => over_mpi(&settings),
            Transport::Weir => over_weir(&settings),
        },
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            let usage = matches!(error, BenchError::Usage(_));
            if first || !usage {
                eprintln!("weir bench: {error}");
            }
            if usage { EXIT_USAGE } else { EXIT_FAILED }
        }
    }
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

/// Set when this process is asked to stop. The launcher passes Ctrl-C on to every rank, and the terminal may too: a second signal is not a
/// second wish.
fn stop_flag() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))
            .map_err(|error| BenchError::machine("signals", error))?;
    }
    Ok(stop)
}

/// Starts launches one after the other, each adding itself to the run.
fn launches(settings: &Settings) -> Result<u8> {
    let args = &settings.args;
    let count = args.launches.unwrap_or(1);
    let Some((program, launcher)) = args.launcher.split_first() else {
        return Err(BenchError::Usage("--launches needs the launcher's command after --, e.g. -- mpiexec -n 4".into()));
    };
    let Some(dir) = &args.output else {
        return Err(BenchError::Usage("--launches needs a folder: -o run1".into()));
    };
    if !args.append && dir.join("run.json").exists() {
        let text = format!("there is a run in {} already; give another folder, or --append", dir.display());
        return Err(BenchError::Usage(text));
    }
    let own = std::env::current_exe().map_err(|error| BenchError::machine("this program", error))?;
    let stop = stop_flag()?;
    for number in 1..=count {
        if !args.quiet && !args.json {
            eprintln!("launch {number} of {count}");
        }
        let mut command = Command::new(program);
        command.args(launcher).arg(&own).args(words_for_launch());
        if number > 1 && !args.append {
            command.arg("--append");
        }
        let status = command
            .status()
            .map_err(|error| BenchError::machine(format!("cannot start {}", Path::new(program).display()), error))?;
        if stop.load(Ordering::Relaxed) {
            return Ok(EXIT_INTERRUPTED);
        }
        if !status.success() {
            let text =
                format!("launch {number} of {count} ended with {status}; finished cells are in {}", dir.display());
            eprintln!("weir bench: {text}");
            return Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(EXIT_FAILED));
        }
    }
    if args.json || args.quiet {
        return Ok(EXIT_DONE);
    }
    let reader = Reader::open(dir).map_err(|error| BenchError::Told(error.to_string()))?;
    print(&show::launches(reader.run()))
}

/// The words of this command line but for `--launches` and the launcher.
fn words_for_launch() -> Vec<std::ffi::OsString> {
    let mut words = Vec::new();
    let mut given = std::env::args_os().skip(1);
    while let Some(word) = given.next() {
        if word == "--" {
            break;
        }
        if word == "--launches" {
            given.next();
        } else if !word.to_string_lossy().starts_with("--launches=") {
            words.push(word);
        }
    }
    words
}

fn over_mpi(settings: &Settings) -> Result<u8> {
    let machine = MpiMachine::load(settings.args.mpi_library.as_deref())?;
    let about = about_mpi(&machine);
    let result = measure(&machine, settings, &about);
    match result {
        // Every rank knows of these: MPI ends in good order.
        Err(error @ (BenchError::Usage(_) | BenchError::Told(_) | BenchError::Elsewhere { .. })) => {
            let first = machine.rank() == 0;
            machine.finish()?;
            match error {
                BenchError::Usage(_) => Err(error),
                _ if first => Err(error),
                _ => Ok(EXIT_FAILED),
            }
        }
        Err(error) => {
            eprintln!("weir bench: rank {}: {error}", machine.rank());
            machine.abort(i32::from(EXIT_FAILED));
            Ok(EXIT_FAILED)
        }
        Ok((report, watcher)) => {
            machine.finish()?;
            report.map_or(Ok(EXIT_DONE), |report| conclude(report, settings, watcher))
        }
    }
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
    match measure(&machine, settings, &about) {
        Ok((report, watcher)) => {
            machine.finish();
            report.map_or(Ok(EXIT_DONE), |report| conclude(report, settings, watcher))
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
    spawn::run(&spawn::Job { ranks: ranks as usize, agent, words }, stop_flag()?.as_ref())
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

/// Measures; rank 0 gets the report and who watched.
fn measure<M: Machine>(machine: &M, settings: &Settings, about: &About) -> Result<(Option<Report>, Box<dyn Watcher>)> {
    let args = &settings.args;
    let stop = stop_flag()?;
    if args.bind {
        let bound = bind(machine)?;
        machine.agree(bound)?;
    }
    let quiet = args.quiet || args.json || machine.rank() != 0;
    let mut watcher: Box<dyn Watcher> = if quiet { Box::new(Silent) } else { Box::new(Progress::new()) };
    let report = run::launch(machine, settings, about, &Facts::here(), &stop, watcher.as_mut())?;
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
fn conclude(mut report: Report, settings: &Settings, mut watcher: Box<dyn Watcher>) -> Result<u8> {
    let args = &settings.args;
    let code = if report.complete { EXIT_DONE } else { EXIT_INTERRUPTED };
    if args.json {
        run::fit(&mut report, watcher.as_mut())?;
        let text = serde_json::to_string(&report.run).map_err(|error| BenchError::machine("--json", error))?;
        print(&format!("{text}\n"))?;
        return Ok(code);
    }
    watcher.end();
    print(&show::tables(&report.run, report.launch))?;
    if report.complete && args.output.is_some() {
        run::fit(&mut report, watcher.as_mut())?;
        watcher.end();
    }
    if args.quiet {
        return Ok(code);
    }
    let warnings = report.run.launch(report.launch).map_or(&[][..], |l| l.warnings.as_slice());
    // On a terminal they have scrolled away.
    if std::io::stderr().is_terminal() {
        warnings.iter().for_each(|warning| eprintln!("{}", show::warning_line(warning)));
    }
    match (&args.output, report.complete) {
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
