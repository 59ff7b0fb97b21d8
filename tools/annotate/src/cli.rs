//! `weir annotate`: the command line, what is written where, what is said.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::io::Read as _;
use std::path::PathBuf;
use std::time::Duration;

use crate::c::MOST_BYTES;
use crate::measure::{self, Plan};
use crate::{Annotated, Error, Options, annotate};

/// Arguments of `weir annotate`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  weir annotate plain.c -o model.c            then: weir predict model.c --machine run1 -n 2,4,8
  weir annotate plain.c --timed               only what the program itself times, between two calls of MPI_Wtime
  weir annotate plain.c --measure -n 2,4 -o model.c -- --iterations 100
                                              with the times of what is computed, from a run with 2 and one with 4 processes

Directives go before the statements they are about; the C code stays as it is. What cannot be known from the text \
becomes a parameter, for weir predict -p NAME=VALUE (times in milliseconds), and is listed on standard error with its line and the reason; so is \
what the model leaves out: a switch with messages, calls by pointers, macros and other files that communicate. What is \
followed, call by call: docs/annotate.md.

Exit codes:
  0  annotated, whether or not there are parameters
  1  failed; one line on standard error says why
  2  the command line is wrong")]
pub struct AnnotateArgs {
    /// C source with calls of MPI
    pub source: PathBuf,
    /// The file to write; else standard output
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// The function that the model begins with
    #[arg(long, default_value = "main", value_name = "NAME")]
    pub function: String,
    /// Only what lies between the first and the last call of MPI_Wtime in that function's own
    /// statements
    #[arg(long)]
    pub timed: bool,
    /// Compile and run the program with its segments timed, and write their medians
    #[arg(long)]
    pub measure: bool,
    /// With --measure: numbers of processes, one run each
    #[arg(short = 'n', long = "ranks", value_delimiter = ',', default_value = "2,4", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub ranks: Vec<u32>,
    /// With --measure: the compiler
    #[arg(long, default_value = "mpicc", value_name = "FILE")]
    pub compiler: OsString,
    /// With --measure: an argument for the compiler; may be given several times
    #[arg(long, value_name = "ARG", allow_hyphen_values = true)]
    pub compiler_arg: Vec<OsString>,
    /// With --measure: the launcher
    #[arg(long, default_value = "mpiexec", value_name = "FILE")]
    pub launcher: OsString,
    /// With --measure: an argument for the launcher; may be given several times
    #[arg(long, value_name = "ARG", allow_hyphen_values = true)]
    pub launcher_arg: Vec<OsString>,
    /// With --measure: how long a run may take, in seconds
    #[arg(long, default_value_t = 600, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub limit: u64,
    /// With --measure: the program's own arguments
    #[arg(last = true, value_name = "ARGUMENTS")]
    pub arguments: Vec<OsString>,
}

/// Runs `weir annotate`; gives its exit code.
///
/// # Errors
/// One line that says what failed.
pub fn run(args: &AnnotateArgs) -> Result<u8, Error> {
    let name = args.source.display().to_string();
    if !args.measure && !args.arguments.is_empty() {
        return Err(Error::Usage("arguments for the program need --measure".into()));
    }
    if let Some(output) = &args.output
        && output.is_file()
        && output.canonicalize().ok() == args.source.canonicalize().ok()
    {
        return Err(Error::Usage(format!("{}: not overwritten: it is read", output.display())));
    }
    if let Some(output) = args.output.as_ref().filter(|_| args.measure) {
        // Not after all its runs.
        weir_put::looks_writable(output).map_err(|source| Error::Write { path: output.clone(), source })?;
    }
    // One more than is taken: what is too long is told as such, also of a device, which has no end.
    let mut bytes = Vec::new();
    fs::File::open(&args.source)
        .and_then(|file| file.take(MOST_BYTES as u64 + 1).read_to_end(&mut bytes))
        .map_err(|source| Error::Read { path: args.source.clone(), source })?;
    let text = String::from_utf8_lossy(&bytes);
    let options = Options { function: args.function.clone(), timed: args.timed };
    let mut annotated = annotate(&text, &name, &options)?;
    if args.measure {
        let plan = Plan {
            compiler: args.compiler.clone(),
            compiler_arguments: args.compiler_arg.clone(),
            launcher: args.launcher.clone(),
            launcher_arguments: args.launcher_arg.clone(),
            counts: args.ranks.clone(),
            arguments: args.arguments.clone(),
            limit: Duration::from_secs(args.limit),
        };
        measure::measure(&mut annotated, &args.source, &plan)?;
    }
    let failed = |path: &std::path::Path, source| Error::Write { path: path.to_owned(), source };
    weir_put::text(args.output.as_deref(), &annotated.text(), failed)?;
    weir_put::told(&told(&annotated, &name));
    Ok(0)
}

/// What could not be known, as lines for people.
fn told(annotated: &Annotated, name: &str) -> String {
    let mut out = String::new();
    for unknown in &annotated.unknown {
        let _ = writeln!(out, "{name}:{unknown}");
    }
    let given = annotated.unknown.iter().filter_map(|u| u.parameter.as_deref());
    let mut names: Vec<&str> = given.collect();
    names.sort_unstable();
    names.dedup();
    if !names.is_empty() {
        let _ = writeln!(
            out,
            "to be given to weir predict: {}",
            names.iter().map(|n| format!("-p {n}=...")).collect::<Vec<_>>().join(" ")
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: AnnotateArgs,
    }

    #[test]
    fn the_output_is_written_whole_behind_a_link_and_devices_are_left() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name).display().to_string();
        fs::write(at("in.c"), "int main(void) { MPI_Barrier(MPI_COMM_WORLD); }\n").expect("a source");
        fs::write(at("far.c"), "what was there").expect("a file");
        std::os::unix::fs::symlink("far.c", at("out.c")).expect("a link");
        let to = |output: &str| run(&Line::parse_from(["annotate", &at("in.c"), "-o", output]).args);
        assert_eq!(to(&at("out.c")).expect("annotated"), 0);
        assert!(fs::symlink_metadata(at("out.c")).expect("a link").is_symlink());
        assert!(fs::read_to_string(at("far.c")).expect("a file").contains("PEVPM Message type = MPI_Barrier"));
        // No file is made where a device was meant, and what is full says so.
        assert!(matches!(to("/dev/no-such-thing"), Err(Error::Write { .. })));
        assert!(matches!(to("/dev/full"), Err(Error::Write { .. })));
        // Nothing is compiled and run for a file that cannot be written.
        let words = ["annotate", &at("in.c"), "--measure", "--compiler", "false", "-o", "/no/such/folder/out.c"];
        assert!(matches!(run(&Line::parse_from(words).args), Err(Error::Write { .. })));
    }
}
