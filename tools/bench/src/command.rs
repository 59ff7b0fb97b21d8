//! `weir bench`: from the command line to the exit code.

use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use weir_distribution::{MpiInfo, Reader, Run};
use weir_job::Env;

use crate::append;
use crate::error::{BenchError, Result};
use crate::host::{self, Facts};
use crate::machine::mpi::MpiMachine;
use crate::machine::weir::WeirMachine;
use crate::machine::{Control, Machine};
use crate::operation;
use crate::options::{Args, OF_SEVERAL, Settings, Transport};
use crate::run::{self, About, Desk, Report, Silent, Watcher};
use crate::show::{self, Progress, Warnings};
use crate::spawn;
use crate::speaker::Part;
use crate::stop::{self, Asked, Then};
use crate::sys::affinity;
use crate::typed;

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
    let done = match args.settings() {
        Err(error) => Err(error),
        // One list is enough of all processes of a job.
        Ok(_) if args.list && Part::of(&Env::from_process(), true) == Part::Silent => Ok(EXIT_DONE),
        Ok(_) if args.list && args.telling.json => print(&format!("{}\n", operation::list_json())),
        Ok(_) if args.list => print(&operation::list()),
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
            Part::of(&Env::from_process(), usage).say(&error.to_string());
            if usage { EXIT_USAGE } else { EXIT_FAILED }
        }
    }
}

/// A reader that has gone away is no failure.
pub(crate) fn print(text: &str) -> Result<u8> {
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
    let short = |complete: u32, what: &str| {
        let words: Vec<OsString> = std::env::args_os().collect();
        weir_put::tell!(
            "weir bench: {}",
            missing(complete, count, what, dir, &command_for_more(&words, count - complete))
        );
    };
    for number in 1..=count {
        let before = launches_in(dir);
        if !args.telling.quiet && !args.telling.json {
            weir_put::tell!("launch {number} of {count}");
        }
        let mut command = Command::new(&start[0]);
        command.args(&start[1..]).args(words_for_launch(std::env::args_os().skip(1)));
        command.arg(format!("--{OF_SEVERAL}"));
        if number > 1 && !args.append {
            command.arg("--append");
        }
        command.arg(typed::OPTION).arg(typed::one_word(&typed::own()));
        command.args(quieter(args));
        if args.telling.json {
            // One document is promised: that of the run, at the end.
            command.stdout(Stdio::null());
        }
        let status = command
            .spawn()
            .and_then(|mut child| asked.wait_for(&mut child))
            .map_err(|error| BenchError::machine(format!("cannot start {}", Path::new(&start[0]).display()), error))?;
        let complete = number - u32::from(!status.success());
        if asked.stop.load(Ordering::Relaxed) {
            if complete < count {
                let when = if status.success() { "after" } else { "in" };
                short(complete, &format!("interrupted {when} launch {number}"));
            }
            return Ok(EXIT_INTERRUPTED);
        }
        if !status.success() {
            // What the first launch could not understand, no other one would.
            if (complete, status.code()) != (0, Some(EXIT_USAGE.into())) {
                short(complete, &format!("launch {number} ended with {status}"));
            }
            return Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(EXIT_FAILED));
        }
        if launches_in(dir) <= before {
            let what = format!(
                "launch {number} measured nothing: what was started ended without a weir bench that wrote to {}",
                dir.display()
            );
            short(number - 1, &what);
            return Ok(EXIT_FAILED);
        }
    }
    let reader = Reader::open(dir).map_err(|error| BenchError::Told(error.to_string()))?;
    if args.telling.json {
        return print_json(reader.run());
    }
    let code = print(&show::launches(reader.run()))?;
    if !args.telling.quiet {
        weir_put::tell!("{}", next(dir));
    }
    Ok(code)
}

/// What a launch of several is told besides: where one document is promised it has nothing to say.
/// Said twice, it would not be understood.
fn quieter(args: &Args) -> Option<&'static str> {
    (args.telling.json && !args.telling.quiet).then_some("--quiet")
}

/// How many launches there are of the run in a folder; none if there is no run, or none that can be
/// read.
fn launches_in(dir: &Path) -> usize {
    Reader::open(dir).map_or(0, |reader| reader.run().launches.len())
}

/// What to type next.
fn next(dir: &Path) -> String {
    format!("next: weir report {}", quoted(&dir.to_string_lossy()))
}

/// The last line where launches are missing: how many there are, what happened, and the command
/// that adds the others.
fn missing(complete: u32, count: u32, what: &str, dir: &Path, command: &str) -> String {
    let kept = if append::is_run(dir) { format!("; what was finished is in {}", dir.display()) } else { String::new() };
    let (are, missing) = (if complete == 1 || count == 1 { "is" } else { "are" }, count - complete);
    let launches = if count == 1 { "launch" } else { "launches" };
    format!(
        "{complete} of {count} {launches} {are} complete, {missing} missing: {what}{kept}. To add what is missing: {command}"
    )
}

/// This command line, so that it adds `missing` launches: to be typed again.
fn command_for_more(given: &[OsString], missing: u32) -> String {
    let (program, words) = given.split_first().map_or((OsString::from("weir"), &[][..]), |(p, w)| (p.clone(), w));
    let launcher = words.iter().skip_while(|word| *word != "--").cloned();
    let own = without_launches(words.iter().cloned()).filter(|word| word != "--append");
    let more = ["--launches".into(), missing.to_string().into(), "--append".into()];
    let all = [program].into_iter().chain(own).chain(more).chain(launcher);
    let quoted = all.map(|word| quoted(&word.to_string_lossy()));
    quoted.collect::<Vec<_>>().join(" ")
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    // Only a zero byte cannot be quoted, and no argument has one.
    shlex::try_quote(word).map_or_else(|_| word.to_owned(), std::borrow::Cow::into_owned)
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
fn words_for_launch(given: impl Iterator<Item = OsString>) -> Vec<OsString> {
    without_launches(given).filter(|word| word != "--json").collect()
}

/// The words of a command line but for `--launches` and the launcher.
fn without_launches(mut given: impl Iterator<Item = OsString>) -> impl Iterator<Item = OsString> {
    std::iter::from_fn(move || {
        loop {
            let word = given.next().filter(|word| word != "--")?;
            if word == "--launches" {
                given.next();
            } else if !word.to_string_lossy().starts_with("--launches=") {
                return Some(word);
            }
        }
    })
}

fn over_mpi(settings: &Settings) -> Result<u8> {
    let machine = MpiMachine::load(settings.args.mpi_library.as_deref(), !settings.args.threads.is_empty())?;
    let about = about_mpi(&machine, &settings.args);
    // After MPI has started, which may have taken the signals for itself.
    let asked = stop::listen(Then::EndAfterAWhile, EXIT_INTERRUPTED)?;
    let result = measure(&machine, settings, &about, &asked);
    match result {
        Ok((None, _)) if machine.rank() == 0 => Ok(taken_over()),
        // Every rank knows of these: MPI ends in good order.
        Err(error @ (BenchError::Usage(_) | BenchError::Told(_) | BenchError::Elsewhere { .. })) => {
            // Said before the others may end: some launchers end rank 0 as soon as another has
            // failed.
            if machine.rank() == 0 {
                weir_put::tell!("weir bench: {error}");
            }
            machine.finish()?;
            Ok(if matches!(error, BenchError::Usage(_)) { EXIT_USAGE } else { EXIT_FAILED })
        }
        Err(error) => {
            weir_put::tell!("weir bench: rank {}: {error}", machine.rank());
            machine.abort(i32::from(EXIT_FAILED));
            Ok(EXIT_FAILED)
        }
        // Who passed the wish on may kill a second later, and MPI need not end in good order any
        // more: people first.
        Ok((Some(report), watcher)) if !report.complete => {
            let concluded = conclude(report, &(&settings.args).into(), &asked.stop, watcher);
            machine.finish()?;
            concluded
        }
        Ok((report, watcher)) => {
            machine.finish()?;
            report.map_or(Ok(code_of_others(&asked)), |report| {
                conclude(report, &(&settings.args).into(), &asked.stop, watcher)
            })
        }
    }
}

/// What ranks other than 0 end with: launchers make one code of all ranks' codes, some of them by
/// the last.
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
    spawn::end_with_starter()?;
    let (rank, size) = (number(spawn::RANK)?, number(spawn::RANKS)?);
    let named = |rank| spawn::named(&settings.args.hosts, rank);
    let machine = WeirMachine::join(socket, rank, size).map_err(|error| BenchError::machine(named(rank), error))?;
    let about = About {
        backend: "weir".into(),
        mpi: None,
        thread_level: None,
        environment: host::environment(std::env::vars()),
        network: host::network(),
        command: typed::words(settings.args.typed.as_deref()),
    };
    let asked = stop::listen(Then::EndAfterAWhile, EXIT_INTERRUPTED)?;
    match measure(&machine, settings, &about, &asked) {
        Ok((None, _)) if rank == 0 => Ok(taken_over()),
        Ok((Some(report), watcher)) if !report.complete => {
            let concluded = conclude(report, &(&settings.args).into(), &asked.stop, watcher);
            machine.finish();
            concluded
        }
        Ok((report, watcher)) => {
            machine.finish();
            report.map_or(Ok(code_of_others(&asked)), |report| {
                conclude(report, &(&settings.args).into(), &asked.stop, watcher)
            })
        }
        Err(error) => {
            let usage = matches!(error, BenchError::Usage(_));
            let told = usage || matches!(error, BenchError::Told(_) | BenchError::Elsewhere { .. });
            if told {
                // All know of it, and none waits for another.
                machine.finish();
            }
            match error {
                _ if told && rank != 0 => Ok(if usage { EXIT_USAGE } else { EXIT_FAILED }),
                BenchError::Elsewhere { rank, cause } => Err(BenchError::machine(named(rank), cause)),
                error if told => Err(error),
                error => Err(BenchError::machine(named(rank), error)),
            }
        }
    }
}

fn start_ranks(settings: &Settings) -> Result<u8> {
    let args = &settings.args;
    let of_hosts = u32::try_from(args.hosts.len()).ok().filter(|hosts| *hosts > 0);
    let Some(ranks) = args.ranks.or(of_hosts) else {
        return Err(BenchError::Usage("--transport weir starts the ranks itself: say how many, e.g. -n 4".into()));
    };
    let own = || std::env::var("WEIR_LAUNCH_AGENT").ok().filter(|agent| !agent.is_empty());
    let agent = spawn::Agent::of(&args.hosts, args.agent.as_deref(), own().as_deref()).map_err(BenchError::Usage)?;
    let mut words: Vec<OsString> = std::env::args_os().skip(1).collect();
    if args.typed.is_none() {
        words.extend([typed::OPTION.into(), typed::one_word(&typed::own()).into()]);
    }
    spawn::run(&spawn::Job { ranks: ranks as usize, agent, words }, &stop::listen(Then::Look, EXIT_INTERRUPTED)?)
}

fn about_mpi(machine: &MpiMachine, args: &Args) -> About {
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
            launcher_command: typed::launcher(std::env::var(typed::LAUNCHER).ok().as_deref(), machine.size()),
        }),
        thread_level: Some(mpi.level().word().into()),
        environment: host::environment(std::env::vars()),
        network: host::network(),
        command: typed::words(args.typed.as_deref()),
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
    asked: &Asked,
) -> Result<(Option<Report>, Box<dyn Watcher>)> {
    let (args, desk) = (&settings.args, Desk::default());
    if machine.rank() == 0 {
        asked.at_last(last_words(args.into(), desk.clone()));
    }
    if args.bind {
        let bound = bind(machine)?;
        machine.agree(bound)?;
    }
    let mut watcher = if machine.rank() == 0 { Manner::from(args).watcher() } else { Box::new(Silent) };
    let report = run::launch_at(machine, settings, about, &Facts::here(), &asked.stop, watcher.as_mut(), &desk)?;
    Ok((report, watcher))
}

/// How a launch is told.
#[derive(Clone, Debug, Default)]
pub(crate) struct Manner {
    /// Where it is kept.
    pub(crate) output: Option<PathBuf>,
    /// As one document.
    pub(crate) json: bool,
    /// Without progress.
    pub(crate) quiet: bool,
    /// Without fits of distributions.
    pub(crate) no_fits: bool,
    /// Who started several launches says what is next.
    pub(crate) of_several: bool,
}

impl From<&Args> for Manner {
    fn from(args: &Args) -> Manner {
        Manner {
            output: args.output.clone(),
            json: args.telling.json,
            quiet: args.telling.quiet,
            no_fits: args.no_fits,
            of_several: args.of_several,
        }
    }
}

impl Manner {
    /// Who watches a launch.
    pub(crate) fn watcher(&self) -> Box<dyn Watcher> {
        if self.quiet || self.json { Box::new(Warnings) } else { Box::new(Progress::new(self.output.is_some())) }
    }
}

/// Shows what is finished although the launch does not come to its end, as a call hangs; false if
/// there is nothing to show, or the launch shows it itself.
fn last_words(manner: Manner, desk: Desk) -> impl FnOnce() -> bool + Send {
    move || {
        let Some((run, launch)) = desk.take_over(stop::PATIENCE.saturating_sub(stop::SOON)) else { return false };
        let shown = if manner.json { print_json(&run) } else { print(&show::tables(&run, launch)) };
        if !manner.json {
            weir_put::tell!("{}", interrupted(&manner, &run, launch));
        }
        shown.is_ok()
    }
}

/// The last line of a launch that was asked to stop.
fn interrupted(manner: &Manner, run: &Run, launch: u32) -> String {
    let nothing = !run.cells.iter().any(|cell| cell.launch == launch);
    match &manner.output {
        Some(dir) if nothing && run.launches.len() > 1 => {
            format!("interrupted before the first cell was finished: the run in {} is as it was", dir.display())
        }
        _ if nothing => "interrupted before the first cell was finished: nothing is kept".to_owned(),
        Some(dir) => {
            let name = dir.to_string_lossy();
            format!("interrupted; finished cells are in {name}: weir report {}", quoted(&name))
        }
        None => "interrupted".to_owned(),
    }
}

/// The books have been taken from a launch that did not stop in time: who did so ends the process.
fn taken_over() -> u8 {
    stop::wait_for_the_end();
    EXIT_INTERRUPTED
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
pub(crate) fn conclude(
    mut report: Report,
    manner: &Manner,
    stop: &AtomicBool,
    mut watcher: Box<dyn Watcher>,
) -> Result<u8> {
    // What is missing has been told as a warning.
    let measured = if report.empty == 0 { EXIT_DONE } else { EXIT_FAILED };
    let code = |whole: bool| if whole { measured } else { EXIT_INTERRUPTED };
    if manner.json {
        let fitted = manner.no_fits || run::fit(&mut report, stop, watcher.as_mut())?;
        print_json(&report.run)?;
        return Ok(code(report.complete && fitted));
    }
    watcher.end();
    print(&show::tables(&report.run, report.launch))?;
    let mut fitted = true;
    if report.complete && manner.output.is_some() && !manner.no_fits {
        fitted = run::fit(&mut report, stop, watcher.as_mut())?;
        watcher.end();
    }
    let code = code(report.complete && fitted);
    if manner.quiet {
        // What is shown is not all: that is no progress.
        if !report.complete {
            weir_put::tell!("{}", interrupted(manner, &report.run, report.launch));
        }
        return Ok(code);
    }
    let warnings = report.run.launch(report.launch).map_or(&[][..], |l| l.warnings.as_slice());
    // On a terminal they have scrolled away.
    if std::io::stderr().is_terminal() {
        warnings.iter().for_each(|warning| weir_put::tell!("{}", show::warning_line(warning)));
    }
    match (&manner.output, report.complete) {
        (Some(dir), true) if !fitted => {
            let name = dir.to_string_lossy();
            weir_put::tell!("interrupted; all cells are in {name}, some without fits: weir report {}", quoted(&name));
        }
        // Of several launches who started them says it.
        (Some(_), true) if manner.of_several => {}
        (Some(dir), true) => weir_put::tell!("{}", next(dir)),
        (None, true) => weir_put::tell!("nothing was kept; give a folder for that: -o run1"),
        (_, false) => weir_put::tell!("{}", interrupted(manner, &report.run, report.launch)),
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
    fn a_launch_is_told_once_to_be_quiet() {
        let told = |line: &str| quieter(&args(&line.split_whitespace().collect::<Vec<_>>()));
        assert_eq!(told("--launches 2 -o r --json"), Some("--quiet"));
        assert_eq!(told("--launches 2 -o r --json -q"), None);
        assert_eq!(told("--launches 2 -o r -q"), None);
    }

    #[test]
    fn a_folder_is_named_as_a_shell_takes_it() {
        assert_eq!(next(Path::new("run1")), "next: weir report run1");
        assert_eq!(next(Path::new("a b/run")), "next: weir report 'a b/run'");
    }

    #[test]
    fn who_is_interrupted_is_told_what_there_is() {
        let (one, none) = (Manner::from(&args(&["-o", "my run"])), Manner::default());
        let mut run = Run::new("m");
        run.launches = vec![weir_distribution::Launch::default()];
        let nothing = "interrupted before the first cell was finished: nothing is kept";
        assert_eq!((interrupted(&one, &run, 0).as_str(), interrupted(&none, &run, 0).as_str()), (nothing, nothing));
        run.cells.push(weir_distribution::Cell::new(0, 0, weir_distribution::Configuration::pair("send", 8)));
        assert_eq!(interrupted(&one, &run, 0), "interrupted; finished cells are in my run: weir report 'my run'");
        assert_eq!(interrupted(&none, &run, 0), "interrupted");
        run.launches.push(weir_distribution::Launch { number: 1, ..Default::default() });
        let text = interrupted(&one, &run, 1);
        assert_eq!(text, "interrupted before the first cell was finished: the run in my run is as it was");
    }

    #[test]
    fn launches_that_are_missing_are_told_with_the_command_that_adds_them() {
        let line = "weir bench --launches 5 -t send -o r --json -- mpiexec -n 4";
        let command = command_for_more(&words(line), 3);
        assert_eq!(command, "weir bench -t send -o r --json --launches 3 --append -- mpiexec -n 4");
        let one = |complete, count| missing(complete, count, "why", Path::new("/nowhere"), "c");
        assert!(one(1, 3).starts_with("1 of 3 launches is complete, 2 missing: why"), "{}", one(1, 3));
        assert!(one(0, 1).starts_with("0 of 1 launch is complete, 1 missing: why"), "{}", one(0, 1));
        let mut given = words("/opt/weir bench --launches=5 -o r --append --transport weir -n 2 --title");
        given.push("a b".into());
        let text =
            missing(2, 5, "launch 3 ended with exit status: 1", Path::new("/nowhere"), &command_for_more(&given, 3));
        let (what, command) = text.split_once(". To add what is missing: ").unwrap();
        assert_eq!(what, "2 of 5 launches are complete, 3 missing: launch 3 ended with exit status: 1");
        let expected =
            ["/opt/weir", "bench", "-o", "r", "--append", "--transport", "weir", "-n", "2", "--title", "a b"];
        let mut again = shlex::split(command).unwrap();
        again.sort();
        let mut expected: Vec<String> = expected.iter().chain(&["--launches", "3"]).map(ToString::to_string).collect();
        expected.sort();
        assert_eq!(again, expected);
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
