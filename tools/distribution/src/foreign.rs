//! What somebody took for a run and is none: what it is instead, and what to do with it.

use std::fs;
use std::io::Read;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::reader::RUN_FILE;

/// How much of a file is looked at.
const LOOK_BYTES: u64 = 4096;
/// Runs that are named, at most.
const NAMED_MAX: usize = 3;
/// Files that other commands write, known by what is in their beginning, and who reads them.
const OTHERS: [(&[u8], &str); 4] = [
    (b"\"weir_bsp_ledger\"", "this is a ledger of supersteps: weir bsp report FILE"),
    (b"\"weir_bsp_params\"", "these are parameters of supersteps: weir bsp report LEDGER --params FILE"),
    (b"\"endpoints\"", "this looks like counters: weir stat --file FILE"),
    (b"PEVPM", "this is a model: weir predict FILE"),
];

/// Refuses what is there and no folder.
pub(crate) fn refuse_files(path: &Path) -> Result<()> {
    let there = fs::metadata(path).map_err(Error::io("read", path))?;
    if there.is_dir() {
        return Ok(());
    }
    let kind = there.file_type();
    let what = match kind {
        _ if kind.is_file() && there.len() == 0 => "an empty file",
        _ if kind.is_file() => "a file",
        _ if kind.is_fifo() => "a pipe",
        _ if kind.is_socket() => "a socket",
        _ => "a device",
    };
    let advice = if kind.is_file() {
        of_a_file(path).map_or_else(String::new, |text| format!("; {text}"))
    } else {
        String::new()
    };
    Err(Error::NotAFolder { path: path.to_owned(), what, advice })
}

/// What to do with a file.
fn of_a_file(path: &Path) -> Option<String> {
    let above =
        path.ancestors().skip(1).take(2).map(|folder| if folder == Path::new("") { Path::new(".") } else { folder });
    if let Some(run) = above.into_iter().find(|folder| folder.join(RUN_FILE).is_file()) {
        return Some(format!("it lies in the run {}: name that", run.display()));
    }
    let mut head = Vec::new();
    fs::File::open(path).ok()?.take(LOOK_BYTES).read_to_end(&mut head).ok()?;
    let is_in = |mark: &[u8]| head.windows(mark.len()).any(|part| part == mark);
    OTHERS.iter().find(|(mark, _)| is_in(mark)).map(|(_, advice)| (*advice).to_owned())
}

/// That a folder is no run; which ones in it are.
pub(crate) fn not_a_run(path: PathBuf) -> Error {
    let entries = fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut runs: Vec<PathBuf> = entries.filter(|entry| entry.join(RUN_FILE).is_file()).collect();
    runs.sort();
    let named: Vec<String> = runs.iter().take(NAMED_MAX).map(|run| run.display().to_string()).collect();
    let more = if runs.len() > NAMED_MAX { ", ..." } else { "" };
    let advice = match named.len() {
        0 => "weir bench -o FOLDER writes one".to_owned(),
        1 => format!("{} is one: name that", named[0]),
        _ => format!("{}{more} are runs: name those", named.join(", ")),
    };
    Error::NotARun { path, advice }
}
