//! What each command does: gathers the facts, then prints them as text or as JSON.

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use clap::CommandFactory;
use serde_json::{Value, json};
use weir_job::Env;

use crate::args::{Args, Command, DoctorArgs, EXIT_FAILED, EnvArgs, Output, StatArgs};
use crate::doctor::Severity;
use crate::mpi::Kind;
use crate::{
    bench, bmi, bsp, carriers, change, compile, doctor, environment, interfaces, jobs, local, mpi, pages, provider,
    run, settings, stat, tune,
};

/// Does what the command line asks; returns the exit code.
///
/// # Errors
/// What went wrong, in one line with its causes.
pub fn run(args: Args) -> Result<u8> {
    let env = Env::from_process();
    match args.command {
        Command::Env(args) => print_env(&env, &args).inspect_err(|_| fail_eval(&args)),
        Command::Run(args) => run::run(&env, args),
        Command::RunRanks(args) => local::run_ranks(&env, args),
        Command::Cc(args) => compile::run(&env, &args),
        Command::Info(output) => info(&env, &output),
        Command::Doctor(args) => diagnose(&env, &args),
        Command::Ping(args) => weir_ping::command::run(&args, &crate::version()).or_else(|error| match error {
            weir_ping::Error::Usage(said) => wrong_line(&said),
            error => Err(anyhow!("{error}")),
        }),
        Command::Stat(args) => show_counters(&args),
        Command::Bench(args) => Ok(bench::run(&env, &args)),
        // Their texts hold their causes, which printing the chain would say again.
        Command::Report(args) => weir_report::cli::report(&args).or_else(of_report),
        Command::Annotate(args) => weir_annotate::cli::run(&args).or_else(|error| match error {
            weir_annotate::Error::Usage(said) => wrong_line(&said),
            error => Err(anyhow!("{error}")),
        }),
        Command::Record(args) => weir_record::cli::run(&args).or_else(|error| match error {
            weir_record::Error::Usage(said) => wrong_line(&said),
            error => Err(anyhow!("{error}")),
        }),
        Command::Export(args) => weir_report::cli::export(&args).or_else(of_report),
        Command::Predict(args) => Ok(weir_predict_tool::run(&args)),
        Command::Emulate(args) => weir_emulate::cli::run(*args),
        Command::Bmi(args) => bmi::run(&env, &args),
        Command::Bsp(args) => bsp::run(&env, args),
        Command::Tune(args) => tune::run(&env, &args),
        Command::Xdpd(args) => weir_xdpd::run(&args).map(|()| 0),
        Command::Completions { shell } => {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut Args::command(), "weir", &mut text);
            print_all(&text)
        }
        Command::Man { dir } => man(dir.as_deref()),
        Command::ProbeSharedMemory => print_json(&serde_json::to_value(carriers::probe()?)?),
        Command::ProbeProvider { file } => print_json(&serde_json::to_value(provider::load(&file)?)?),
    }
}

fn of_report(error: weir_report::Error) -> Result<u8> {
    match error {
        weir_report::Error::Usage(said) => wrong_line(&said),
        error => Err(anyhow!("{error}")),
    }
}

/// Says what is wrong with the command line; returns the exit code for that.
pub(crate) fn wrong_line(said: &str) -> Result<u8> {
    weir_put::tell!("weir: {said}");
    Ok(2)
}

pub(crate) fn search_path(env: &Env) -> Option<&std::ffi::OsStr> {
    env.get("PATH").map(std::ffi::OsString::as_os_str)
}

/// Prints, and ends the command if its reader has gone away.
pub(crate) fn print_all(text: &[u8]) -> Result<u8> {
    match std::io::stdout().write_all(text).and_then(|()| std::io::stdout().flush()) {
        Ok(()) => Ok(0),
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => weir_emulate::process::reader_is_gone(),
        Err(error) => Err(error).context("standard output"),
    }
}

pub(crate) fn print_json(value: &Value) -> Result<u8> {
    print_all(format!("{value}\n").as_bytes())
}

fn print_env(env: &Env, args: &EnvArgs) -> Result<u8> {
    let found = match args.mpi {
        // The variables need no launcher; one may run on a machine without it.
        Some(kind) => mpi::on_search_path(Some(kind), search_path(env)).unwrap_or(mpi::Found {
            kind,
            version: None,
            launcher: None,
            library: None,
        }),
        None => mpi::on_search_path(None, search_path(env))
            .map_err(|error| anyhow!("{error:#}; or say which MPI is meant, as in: weir env --mpi mpich"))?,
    };
    let provider = provider::find(env)?;
    let (key, problem) = match environment::key(env) {
        Ok(key) => (key, None),
        // Programs are sent to Weir all the same: they fail, and say why, instead of running
        // without it.
        Err(problem) if !args.output.json => (environment::no_key(), Some(problem)),
        Err(problem) => return Err(problem.into()),
    };
    let folder = provider.parent().unwrap_or(Path::new("/"));
    let variables = environment::variables(&found, folder, &key, env, args.no_shm);
    let words = environment::words(&environment::handed_over(&found, &variables, &key, env));
    if args.output.json {
        let map: serde_json::Map<String, Value> = variables.into_iter().map(|(k, v)| (k, v.into())).collect();
        return print_json(&json!({"mpi": found, "variables": map, "launcher_args": words}));
    }
    weir_put::tell!("weir: {}", chosen(&found, args.mpi.is_some()));
    if let Some(hint) = environment::shared_memory_hint(found.kind, args.no_shm) {
        weir_put::tell!("weir: {hint}");
    }
    if !words.is_empty() {
        weir_put::tell!("weir: for ranks on other machines add to mpiexec: {}", words.join(" "));
    }
    let lines = args.shell.lines(&variables)?;
    let code = print_all(lines.as_bytes())?;
    match problem {
        Some(problem) => Err(anyhow!(
            "{problem}; until there is a key, programs that are started with these variables fail in MPI_Init"
        )),
        None => Ok(code),
    }
}

/// Makes `eval $(weir env)` fail where there are no variables: else it succeeds at nothing, and
/// what comes next runs without Weir.
fn fail_eval(args: &EnvArgs) {
    if !args.output.json && !std::io::stdout().is_terminal() {
        let _ = print_all(b"false\n");
    }
}

/// Which MPI the variables are for: a program of another one would run without Weir, and nobody
/// would notice.
fn chosen(found: &mpi::Found, named: bool) -> String {
    let launcher = found.launcher.as_ref().map(|file| file.display().to_string());
    let origin: Vec<String> = launcher.into_iter().chain((!named).then(|| "first on PATH".to_owned())).collect();
    let origin = if origin.is_empty() { String::new() } else { format!(" ({})", origin.join(", ")) };
    let version = found.version.as_ref().map_or_else(String::new, |version| format!(" {version}"));
    let (other, name) = match found.kind {
        Kind::Mpich => (Kind::Openmpi, "openmpi"),
        Kind::Openmpi | Kind::Intel => (Kind::Mpich, "mpich"),
    };
    format!("for programs of {}{version}{origin}; for {other}'s: weir env --mpi {name}", found.kind)
}

fn info(env: &Env, output: &Output) -> Result<u8> {
    let provider = provider::find(env).and_then(|file| Ok((provider::probe(&file)?, file)));
    let key = environment::key(env);
    let mpis = mpi::all_on_path(search_path(env));
    let list = interfaces::list(&interfaces::named(env))?;
    let carriers = carriers::find(env);
    let settings: Vec<String> = settings::complaints(env, true).into_iter().map(|one| one.text).collect();
    if output.json {
        let provider = match &provider {
            Ok((facts, file)) => json!({"file": file, "facts": facts}),
            Err(error) => json!({"error": format!("{error:#}")}),
        };
        let key = match &key {
            Ok(key) => json!({"fingerprint": key.fingerprint(), "source": key.source.to_string()}),
            Err(error) => json!({"error": error.to_string()}),
        };
        return print_json(
            &json!({"weir": crate::version(), "provider": provider, "key": key, "mpi": mpis, "interfaces": list, "carriers": carriers, "settings": settings}),
        );
    }
    let mut text = format!("weir        {}\n", crate::version());
    text += &match &provider {
        Ok((facts, file)) => {
            let numbers = || format!("{}.{}", facts.version.0, facts.version.1);
            let version = facts.full_version.clone().unwrap_or_else(numbers);
            format!("provider    {} {version}, {}\n", facts.name, file.display())
        }
        Err(error) => format!("provider    none: {error:#}\n"),
    };
    text += &match &key {
        Ok(key) => format!("key         {} from {}\n", key.fingerprint(), key.source),
        Err(error) => format!("key         none: {error}\n"),
    };
    for found in &mpis {
        let launcher = found.launcher.as_deref().unwrap_or(Path::new("?"));
        text += &format!(
            "mpi         {} {}, {}\n",
            found.kind,
            found.version.as_deref().unwrap_or("?"),
            launcher.display()
        );
    }
    if mpis.is_empty() {
        text += "mpi         none on PATH\n";
    }
    for one in &list {
        let addresses = one.addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        // In a namespace whose /sys is another's nobody says it.
        let mtu = one.mtu.map(|mtu| format!(", packets of {mtu} bytes")).unwrap_or_default();
        text +=
            &format!("interface   {} {}{mtu}: {addresses}\n", one.name, if one.chosen { "used" } else { "not used" });
    }
    text += &format!("carrier     shared memory: {}\n", carriers.shared_memory.describe());
    text += &format!("carrier     packets (UDP): {}\n", carriers.udp.describe());
    text += &format!("carrier     bulk TCP: {}\n", carriers.bulk_tcp.describe());
    text += &format!("carrier     packets past UDP: {}\n", carriers.xdp.describe());
    text += &format!("carrier     SCTP: {}\n", carriers.sctp.describe());
    for one in &settings {
        text += &format!("settings    {one}\n");
    }
    print_all(text.as_bytes())
}

fn diagnose(env: &Env, args: &DoctorArgs) -> Result<u8> {
    let mut findings = doctor::examine(env, args.program.as_deref());
    if !args.hosts.is_empty() {
        findings.extend(doctor::between(args).map_err(|error| anyhow!("{error}"))?);
    }
    let worst = findings.iter().map(|finding| finding.severity).max().unwrap_or(Severity::Ok);
    if args.output.json {
        print_json(&json!({"worst": worst, "findings": findings}))?;
    } else {
        let mut text = String::new();
        for finding in &findings {
            let word = match finding.severity {
                Severity::Ok => "ok",
                Severity::Info => "info",
                Severity::Warning => "warning",
                Severity::Error => "ERROR",
            };
            text += &format!("{word:8} {:12} {}\n", finding.check, finding.cause);
            if let Some(fix) = &finding.fix {
                text += &format!("{:21} repair: {fix}\n", "");
            }
        }
        let count = |severity| findings.iter().filter(|finding| finding.severity == severity).count();
        text += &format!("{}, {}\n", many(count(Severity::Error), "error"), many(count(Severity::Warning), "warning"));
        print_all(text.as_bytes())?;
    }
    Ok(if worst == Severity::Error { EXIT_FAILED } else { 0 })
}

/// A number of things.
fn many(count: usize, thing: &str) -> String {
    format!("{count} {thing}{}", if count == 1 { "" } else { "s" })
}

fn show_counters(args: &StatArgs) -> Result<u8> {
    let show = |value: &Value| {
        if args.output.json { print_json(value) } else { print_all(stat::render(value, args.all).as_bytes()) }
    };
    if let Some(file) = &args.file {
        return show(&stat::of_file(file)?);
    }
    if let Some(job) = &args.job {
        return show_job(args, job);
    }
    let Some(pid) = args.pid else {
        let all = jobs::processes();
        return match args.output.json {
            true => print_json(&jobs::document(&all)),
            false => print_all(jobs::table(&all).as_bytes()),
        };
    };
    let mut before = stat::of_process(pid).map_err(|error| match jobs::hint(pid) {
        Some(hint) => anyhow!("{error:#}; {hint}"),
        None => error,
    })?;
    let Some(seconds) = args.every else { return show(&before) };
    loop {
        std::thread::sleep(Duration::from_secs(seconds));
        let after = match stat::of_process(pid) {
            Ok(after) => after,
            Err(error) => {
                // That a process ends is no failure of whoever watched it.
                let how = stat::ended(pid).ok_or(error)?;
                weir_put::tell!("weir: {how}");
                return Ok(0);
            }
        };
        if !args.output.json {
            print_all(format!("--- in {seconds} s\n").as_bytes())?;
        }
        show(&change::between(&before, &after))?;
        before = after;
    }
}

/// The counters of a job's ranks; again and again, if that is asked for, until none of them has an
/// endpoint any more.
fn show_job(args: &StatArgs, job: &str) -> Result<u8> {
    let show = |all: &[jobs::Process]| match args.output.json {
        true => print_json(&jobs::document(all)),
        false => print_all(jobs::render(all, args.all).as_bytes()),
    };
    let mut before = jobs::of_job(job)?;
    let Some(seconds) = args.every else { return show(&before) };
    loop {
        std::thread::sleep(Duration::from_secs(seconds));
        let Ok(after) = jobs::of_job(job) else {
            weir_put::tell!(
                "weir: no process of job {} has a Weir endpoint open any more",
                weir_report::table::clean(job)
            );
            return Ok(0);
        };
        if !args.output.json {
            print_all(format!("=== in {seconds} s\n").as_bytes())?;
        }
        show(&jobs::between(&before, &after))?;
        before = after;
    }
}

/// Writes the man pages from the same description that parses the command line.
fn man(dir: Option<&Path>) -> Result<u8> {
    let Some(dir) = dir else {
        return print_all(&pages::all()?.swap_remove(0).1);
    };
    for (name, text) in pages::all()?.into_iter().chain(WRITTEN.map(|(name, text)| (name.to_owned(), text.into()))) {
        let section = name.rsplit('.').next().unwrap_or("1");
        let folder = dir.join(format!("man{section}"));
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let file = folder.join(name);
        std::fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(0)
}

/// The pages written by hand.
const WRITTEN: [(&str, &str); 4] = [
    ("weir-emulate.1", include_str!("../../../docs/man/weir-emulate.1")),
    ("fi_weir.7", include_str!("../../../docs/man/fi_weir.7")),
    ("weir-bmi.7", include_str!("../../../docs/man/weir-bmi.7")),
    ("weir-bsp.7", include_str!("../../../docs/man/weir-bsp.7")),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_of_man_pages_is_whole_and_refers_to_no_other() {
        let dir = tempfile::tempdir().unwrap();
        man(Some(dir.path())).unwrap();
        assert!(dir.path().join("man7/fi_weir.7").is_file());
        let pages: Vec<_> = std::fs::read_dir(dir.path().join("man1")).unwrap().map(|entry| entry.unwrap()).collect();
        let names: Vec<String> = pages.iter().map(|entry| entry.file_name().into_string().unwrap()).collect();
        assert!(names.iter().any(|name| name == "weir-emulate.1"), "{names:?}");
        for page in &pages {
            let text = std::fs::read_to_string(page.path()).unwrap().replace("\\-", "-");
            for (at, _) in text.match_indices("weir-") {
                let rest = &text[at..];
                let end = rest.find(|c: char| !c.is_ascii_lowercase() && c != '-').unwrap_or(rest.len());
                if rest[end..].starts_with("(1)") {
                    let name = format!("{}.1", &rest[..end]);
                    assert!(names.contains(&name), "{:?} refers to {name}", page.path());
                }
            }
        }
        let run = std::fs::read_to_string(dir.path().join("man1/weir-run.1")).unwrap();
        assert!(run.contains("\\fBweir run\\fR"), "{run}");
    }

    #[test]
    fn a_wrong_command_line_of_a_report_is_told_by_its_exit_code() {
        assert_eq!(of_report(weir_report::Error::Usage("two at most".into())).unwrap(), 2);
        let damaged = weir_report::Error::Write { path: "a".into(), source: std::io::ErrorKind::StorageFull.into() };
        assert!(of_report(damaged).is_err());
    }

    #[test]
    fn without_an_mpi_the_variables_are_refused_in_one_sentence() {
        let args =
            EnvArgs { mpi: None, shell: crate::shell::Shell::Bash, no_shm: false, output: Output { json: false } };
        let error = print_env(&Env::from_pairs([("PATH", "/nowhere")]), &args).unwrap_err();
        assert_eq!(
            format!("{error:#}"),
            "no mpiexec on PATH; install MPICH or Open MPI, for example: pip install mpich; or say which MPI is meant, as in: weir env --mpi mpich"
        );
    }

    #[test]
    fn the_mpi_that_was_chosen_is_named() {
        let found = |kind, launcher: Option<&str>| mpi::Found {
            kind,
            version: Some("1.2".into()),
            launcher: launcher.map(Into::into),
            library: None,
        };
        assert_eq!(
            chosen(&found(Kind::Openmpi, Some("/b/mpiexec")), false),
            "for programs of Open MPI 1.2 (/b/mpiexec, first on PATH); for MPICH's: weir env --mpi mpich"
        );
        assert_eq!(
            chosen(&found(Kind::Mpich, None), true),
            "for programs of MPICH 1.2; for Open MPI's: weir env --mpi openmpi"
        );
    }
}
