//! What `weir bsp` does with files and with what was measured.

use std::path::{Path, PathBuf};

use crate::args::{ParamsArgs, ReportArgs};
use crate::params::{FILE_MAX_BYTES, Machine, Params};
use crate::{Error, ledger, measure, params_page, params_text, put, report_page, report_text, summary};

/// `weir bsp report`: what is to be printed.
///
/// # Errors
/// If a file cannot be read or written, or is none of those that are expected.
pub fn report(args: &ReportArgs) -> Result<String, Error> {
    if let Some(html) = &args.html {
        not_read(html, args.files.iter().chain(&args.params))?;
    }
    let params = args.params.as_deref().map(Params::read).transpose()?;
    let mut runs = Vec::new();
    for file in &args.files {
        let profile = ledger::read(file)?;
        let costs = params.as_ref().and_then(|params| params.costs(profile.processes));
        let summary = summary::summary(&profile, costs);
        runs.push((profile, summary));
    }
    if let Some(html) = &args.html {
        put(html, &report_page::html(&runs))?;
    }
    if args.json {
        return Ok(report_text::document(&runs));
    }
    let texts: Vec<String> = runs.iter().map(|(profile, summary)| report_text::text(profile, summary)).collect();
    // A line for each column that is explained.
    Ok(format!("{}\n{}\n", texts.join("\n"), report_text::EXPLANATION.replace(". ", ".\n")))
}

/// Measures, as one process of a job. Process 0 gets what came of it.
///
/// # Errors
/// If it is a job of one process.
pub fn measure(args: &ParamsArgs) -> Result<Option<Machine>, Error> {
    measure::run(args).map_err(Error::Usage)
}

/// What process 0 of processes that [`measure`] leaves for who started them.
///
/// # Errors
/// If the file cannot be written.
pub fn leave(machine: Machine, file: &Path) -> Result<(), Error> {
    put(file, &Params { machines: vec![machine] }.text())
}

/// Refuses to write over a file that is read.
fn not_read<'a>(file: &Path, mut read: impl Iterator<Item = &'a PathBuf>) -> Result<(), Error> {
    match read.any(|read| file.is_file() && weir_put::is_same(file, read)) {
        true => Err(Error::Usage(format!("{}: not overwritten: it is read", file.display()))),
        false => Ok(()),
    }
}

/// Whether what is measured can be shown at all: looked at before it is measured.
///
/// # Errors
/// If the file that is added to is no such file, or what is asked for cannot be written.
pub fn earlier(args: &ParamsArgs) -> Result<Params, Error> {
    for file in args.output.iter().chain(&args.html) {
        weir_put::looks_writable(file).map_err(|cause| Error::Write { path: file.clone(), cause })?;
    }
    if let Some(html) = &args.html {
        not_read(html, args.from.iter().chain(&args.output))?;
        if args.output.as_ref() == Some(html) {
            return Err(Error::Usage(format!("{}: --html and -o name the same file", html.display())));
        }
    }
    let mut all = Params::default();
    for file in &args.from {
        all.merge(Params::read(file)?);
    }
    if let Some(file) = args.output.as_deref().filter(|file| args.append && file.exists()) {
        all.merge(Params::read(file)?);
    }
    Ok(all)
}

/// Writes files and page.
///
/// # Errors
/// If a file cannot be written.
pub fn keep(args: &ParamsArgs, params: &Params) -> Result<(), Error> {
    if let Some(file) = &args.output {
        let text = params.text();
        if text.len() as u64 > FILE_MAX_BYTES {
            let what =
                format!("{} bytes are more than a file may have: fewer --samples, or a file of its own", text.len());
            return Err(Error::Usage(format!("{}: {what}", file.display())));
        }
        put(file, &text)?;
    }
    if let Some(file) = &args.html {
        put(file, &params_page::html(params, &args.predict))?;
    }
    Ok(())
}

/// What is to be printed.
#[must_use]
pub fn show(args: &ParamsArgs, params: &Params) -> String {
    match args.json {
        true => format!("{}\n", params_text::document(params, &args.predict)),
        false if args.histograms => params_text::text(params, &args.predict) + &params_text::histograms(params),
        false => params_text::text(params, &args.predict),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    enum Line {
        Params(Box<ParamsArgs>),
        Report(ReportArgs),
    }

    fn refused(words: &[&str]) -> String {
        let line = Line::parse_from(["bsp"].iter().chain(words));
        let done = match &line {
            Line::Params(args) => earlier(args).map(drop),
            Line::Report(args) => report(args).map(drop),
        };
        done.unwrap_err().to_string()
    }

    #[test]
    fn what_is_read_is_not_written_over() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "kept").unwrap();
        let file = file.display().to_string();
        for words in [
            &["report", &file, "--html", &file][..],
            &["report", "no-such", "--params", &file, "--html", &file],
            &["params", "--from", &file, "--html", &file],
            &["params", "--append", "-o", &file, "--html", &file],
        ] {
            assert_eq!(refused(words), format!("{file}: not overwritten: it is read"));
        }
        assert!(refused(&["params", "-o", "new", "--html", "new"]).ends_with("name the same file"));
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "kept");
    }

    #[test]
    fn a_file_that_cannot_be_written_is_told_before_anything_is_measured() {
        for option in ["-o", "--html"] {
            let told = refused(&["params", option, "/no/such/folder/file"]);
            assert_eq!(told, "cannot write /no/such/folder/file: No such file or directory (os error 2)");
        }
    }
}
