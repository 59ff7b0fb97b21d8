//! What `weir bsp` does with files and with what was measured.

use std::path::Path;

use crate::args::{ParamsArgs, ReportArgs};
use crate::params::{FILE_MAX_BYTES, Machine, Params};
use crate::{Error, ledger, measure, params_page, params_text, put, report_page, report_text, summary};

/// `weir bsp report`: what is to be printed.
///
/// # Errors
/// If a file cannot be read or written, or is none of those that are expected.
pub fn report(args: &ReportArgs) -> Result<String, Error> {
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

/// Whether what is measured can be shown at all: looked at before it is measured.
///
/// # Errors
/// If the file that is added to is no such file.
pub fn earlier(args: &ParamsArgs) -> Result<Params, Error> {
    let mut all = Params::default();
    for file in &args.from {
        all.merge(Params::read(file)?);
    }
    if let Some(file) = args.output.as_deref().filter(|file| args.append && file.exists()) {
        all.merge(Params::read(file)?);
    }
    Ok(all)
}

/// Writes files and page; what is to be printed.
///
/// # Errors
/// If a file cannot be written.
pub fn show(args: &ParamsArgs, params: &Params) -> Result<String, Error> {
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
    Ok(match args.json {
        true => format!("{}\n", params_text::document(params, &args.predict)),
        false if args.histograms => params_text::text(params, &args.predict) + &params_text::histograms(params),
        false => params_text::text(params, &args.predict),
    })
}
