//! At the end of the program: the ledgers of all processes come to process 0, which writes them to
//! files.

use crate::fail;
use crate::head::Ends;
use crate::ledger::Ledger;
use crate::place::Place;
use crate::process::Process;
use crate::superstep;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

/// Of the ledger's file.
const FORMAT: u32 = 1;

/// A superstep more, in which all processes take part and none of the program's is left.
pub fn collect(process: &mut Process, ledger: &Ledger) {
    if ledger.left_out > 0 {
        let text = format!("the ledger is full: it lacks the last {} supersteps", ledger.left_out);
        fail::say(Some(process.pid()), &text);
    }
    process.budget = u64::MAX;
    let (pid, tag) = (process.pid(), vec![0; process.tags[1]]);
    for text in [ledger.lines(pid), ledger.events(pid)] {
        process.out[0].letters.send(&tag, text.as_bytes());
    }
    superstep::end(process, Ends::Program, Place::UNKNOWN);
    if pid > 0 {
        return;
    }
    let (mut lines, mut events) = (Vec::new(), Vec::new());
    while let Some(found) = process.inbox.take() {
        // SAFETY: it lies in the queue, which stays until the end of a superstep that will not
        // come.
        let text = unsafe { std::slice::from_raw_parts(found.payload, found.len) };
        if lines.len() == events.len() { lines.push(text) } else { events.push(text) }
    }
    let n = process.nprocs();
    if let Some(path) = process.settings.ledger.clone() {
        told(
            &path,
            "WEIR_BSP_LEDGER",
            write(&path, |to| {
                writeln!(to, "{{\"weir_bsp_ledger\":{FORMAT},\"processes\":{n}}}")?;
                lines.iter().try_for_each(|text| to.write_all(text))
            }),
        );
    }
    if let Some(path) = process.settings.trace.clone() {
        told(
            &path,
            "WEIR_TRACE",
            write(&path, |to| {
                to.write_all(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n")?;
                events.iter().try_for_each(|text| to.write_all(text))?;
                to.write_all(
                    b"{\"ph\":\"M\",\"pid\":1,\"name\":\"process_name\",\"args\":{\"name\":\"supersteps\"}}\n]}\n",
                )
            }),
        );
    }
}

fn write(path: &Path, fill: impl FnOnce(&mut BufWriter<File>) -> std::io::Result<()>) -> std::io::Result<()> {
    let mut to = BufWriter::new(File::create(path)?);
    fill(&mut to)?;
    to.flush()
}

fn told(path: &Path, variable: &str, result: std::io::Result<()>) {
    if let Err(error) = result {
        fail::say(Some(0), &format!("{variable}: cannot write {}: {error}", path.display()));
    }
}
