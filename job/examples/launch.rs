//! The launcher alone: `launch -n 4 [--tag-output] [--limit SECONDS] PROGRAM ARGUMENTS...` does
//! what `weir run` does for programs without an MPI.

use std::process::{Command, ExitCode};
use std::time::Duration;

use weir_job::JobKey;
use weir_job::ranks::{Start, guard, run, say};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let code = match words.split_first() {
        Some((first, words)) if first == "--below" => below(words),
        _ => std::env::current_exe().and_then(|file| guard(Command::new(file).arg("--below").args(&words))),
    };
    match code {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            say(format_args!("launch: {error}"));
            ExitCode::from(1)
        }
    }
}

fn below(words: &[String]) -> std::io::Result<u8> {
    let (mut ranks, mut tag_output, mut limit) = (1, false, 120);
    let mut words = words.iter();
    let program = loop {
        let number = |word: Option<&String>| word.and_then(|word| word.parse().ok()).unwrap_or(0);
        match words.next().map(String::as_str) {
            Some("-n") => ranks = number(words.next()),
            Some("--limit") => limit = number(words.next()),
            Some("--tag-output") => tag_output = true,
            other => break other.unwrap_or_default(),
        }
    };
    let start = Start {
        program: program.into(),
        arguments: words.map(Into::into).collect(),
        ranks,
        key: JobKey::for_one_run().map_err(std::io::Error::other)?,
        id: format!("launch-{}", std::process::id()),
        tag_output,
        limit: Duration::from_secs(u64::from(limit)),
    };
    run(&start, &mut |line| say(format_args!("weir: {line}")))
}
