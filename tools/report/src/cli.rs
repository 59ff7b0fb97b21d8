//! `weir report` and `weir export`: the command line, what is written where, what is printed.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use weir_distribution::export::{classic, csv};
use weir_distribution::{Label, Reader, Warning};

use crate::compare::{self, Comparison};
use crate::digest::Digest;
use crate::frame::{Plot, Sheet};
use crate::json::{comparison_json, run_json};
use crate::table::{Table, clean};
use crate::{Error, load, notes, page, png, units, warnings};

/// What to make.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// One page that opens anywhere, without a network
    Html,
    /// Each plot as a drawing with selectable text
    Svg,
    /// Each plot as pixels
    Png,
    /// Only the tables, on standard output or in a file (-o)
    Text,
}

/// Arguments of `weir report`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  weir report run1                          tables here, plots in run1/report.html
  weir report run1 run2                     is the second faster? verdicts here, plots in run2/report-against-run1.html
  weir report run1 run2 --json              the same for programs
  weir report run1 --format png -o figures  each plot as a file, for a paper; else in run1/plots
  weir report run1 run2 --format svg        those of the comparison, in run2/plots-against-run1
  weir report run1 --format text -o run1.txt
  weir report run1 run2 --anyway            although nothing of one went by the provider that was set for it

With one run: a table for each operation, and a page with all distributions. With two: for each cell that both \
measured the ratio of times with its interval, a test corrected for the number of cells, and a verdict; a \
difference that the clocks alone could explain is said to be none. One launch cannot tell a difference of the \
machines from one between launches: nothing is decided then, and a warning names the command that adds launches.

What carried the messages is what weir bench counted, not what FI_PROVIDER said: MPICH keeps messages within a node to \
itself. Where the two differ the report says so, and a run of which nothing went by its provider is not compared.

Exit codes:
  0    all of the run is shown
  1    failed; one line on standard error says why
  2    the command line is wrong
  3    shown, but samples or histograms of some cells are missing or damaged; the warnings name them")]
pub struct ReportArgs {
    /// A run's folder; a second one is compared with it
    #[arg(required = true, num_args = 1..=2, value_name = "RUN")]
    pub runs: Vec<PathBuf>,
    /// What to make
    #[arg(long, value_enum, default_value = "html")]
    pub format: Format,
    /// The file (html, text; - is standard output) or folder (svg, png) to write; else one inside
    /// the last run's folder
    #[arg(short, long, value_name = "PATH")]
    pub output: Option<PathBuf>,
    /// Compare also a run of which nothing went by the provider that was set for it
    #[arg(long)]
    pub anyway: bool,
    /// Print one JSON document instead of tables; then a page is written only with -o
    #[arg(long)]
    pub json: bool,
    /// Print only where things were written
    #[arg(short, long, conflicts_with = "json")]
    pub quiet: bool,
}

/// What to turn a run into.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    /// cells.csv with a row for each cell, samples.csv with all samples
    Csv,
    /// cells.csv, and a file of samples for each cell
    CsvPerCell,
    /// The five text files of MPIBench: summary, histograms, outliers, subsamples, gnu; and span,
    /// waits and bandwidth where a run has them
    Classic,
}

/// Arguments of `weir export`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  weir export run1                            run1/export/cells.csv and samples.csv
  weir export run1 --gzip                     the same packed; --cells-only leaves out the samples
  weir export run1 --format classic -o old    five text files for each table, or six
  MPIBENCH_SUBSAMPLES=100 weir export run1 --format classic

cells.csv has the span of collectives, the bandwidth of streams and the waits of farms in its last columns; the classic files \
have them in ROOT.span, ROOT.bandwidth and ROOT.waits, a line for each launch.

The classic files heed MPIBENCH_HIST_BIN, MPIBENCH_OUTLIER_PERCENTILE, MPIBENCH_OUTLIER_PERCENTILE_MULTIPLIER and \
MPIBENCH_SUBSAMPLES; without the two of outliers, they are those that weir bench found. Programs that read Parquet need no \
export: run1/samples holds the samples as they are.

Exit codes:
  0    all is written
  1    failed, also where samples or histograms of a cell are missing or damaged; one line on standard error says why
  2    the command line is wrong")]
pub struct ExportArgs {
    /// A run's folder
    #[arg(value_name = "RUN")]
    pub run: PathBuf,
    /// What to write
    #[arg(long, value_enum, default_value = "csv")]
    pub format: ExportFormat,
    /// The folder to write; else `export` inside the run's
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// With csv: cells.csv alone, a row for each cell
    #[arg(long)]
    pub cells_only: bool,
    /// With csv: pack each file by gzip, as pandas and R read it too
    #[arg(long)]
    pub gzip: bool,
    /// Print the files' names as one JSON document
    #[arg(long)]
    pub json: bool,
    /// Print nothing
    #[arg(short, long, conflicts_with = "json")]
    pub quiet: bool,
}

/// Does what `weir export` is asked for; returns the exit code.
///
/// # Errors
/// In one line what cannot be read or written.
pub fn export(args: &ExportArgs) -> Result<u8, Error> {
    if args.format == ExportFormat::Classic && (args.cells_only || args.gzip) {
        return Err(Error::Usage("--cells-only and --gzip are for --format csv".into()));
    }
    let reader = Reader::open(&args.run)?;
    if let Some((field, problem)) = notes::damaged_histograms(reader.run()).into_iter().next() {
        return Err(Error::Damaged { file: reader.dir().join("run.json"), field, problem });
    }
    let folder = args.output.clone().unwrap_or_else(|| reader.dir().join("export"));
    let files = match args.format {
        ExportFormat::Csv | ExportFormat::CsvPerCell => export_csv(&reader, &folder, args)?,
        ExportFormat::Classic => {
            let options = classic::Options::from_variables(|name| std::env::var(name).ok())?;
            classic::write(&reader, &folder, &options)?
        }
    };
    if args.json {
        print(&format!("{}\n", serde_json::json!({ "files": files })))?;
    } else if !args.quiet {
        print(&files.iter().map(|f| format!("{}\n", f.display())).collect::<String>())?;
    }
    Ok(0)
}

/// The tables, told beforehand how large they will be: samples as text are many times what they are
/// as Parquet.
fn export_csv(reader: &Reader, folder: &Path, args: &ExportArgs) -> Result<Vec<PathBuf>, Error> {
    let layout = match (args.cells_only, args.format) {
        (true, _) => csv::Layout::CellsOnly,
        (_, ExportFormat::CsvPerCell) => csv::Layout::PerCell,
        _ => csv::Layout::Flat,
    };
    let packing = if args.gzip { csv::Packing::Gzip } else { csv::Packing::Plain };
    let told = csv::estimate(reader, layout)?;
    if !args.quiet && told.rows > 0 {
        let packed = if args.gzip { " before it is packed" } else { "; --gzip packs it, --cells-only leaves it out" };
        let line = format!(
            "weir: {} of samples, about {} as text{packed}\n",
            units::plural(told.rows, "row"),
            units::size(told.bytes)
        );
        let _ = std::io::stderr().write_all(line.as_bytes());
    }
    Ok(csv::write(reader, folder, layout, packing)?)
}

/// What a report is about.
enum Subject {
    One(Box<Digest>),
    Two(Box<(Digest, Digest, Comparison)>),
}

/// Exit code: done, but a part of a run is missing or damaged.
pub const EXIT_DAMAGED: u8 = 3;

/// Does what `weir report` is asked for; returns the exit code.
///
/// # Errors
/// In one line what cannot be read or written.
pub fn report(args: &ReportArgs) -> Result<u8, Error> {
    report_to(&mut std::io::stdout(), args)
}

/// The same, with `out` for standard output.
///
/// # Errors
/// In one line what cannot be read or written. What is asked for in a file is written also where
/// `out` fails.
pub fn report_to(out: &mut impl std::io::Write, args: &ReportArgs) -> Result<u8, Error> {
    if let Some(output) = args.output.as_deref().filter(|output| args.runs.iter().any(|run| is_part_of(output, run))) {
        return Err(Error::Usage(format!("{}: not overwritten: it is read", clean(&output.display().to_string()))));
    }
    let subject = match &args.runs[..] {
        [run] => Subject::One(Box::new(load(run)?)),
        [first, second] => {
            let (first, second) = (load(first)?, load(second)?);
            if !args.anyway {
                [&first, &second].into_iter().try_for_each(honestly_labelled)?;
            }
            let comparison = compare::compare(&first, &second);
            Subject::Two(Box::new((first, second, comparison)))
        }
        _ => return Err(Error::Usage("one run or two, as in: weir report run1 run2".into())),
    };
    // Standard output takes one document.
    if args.output.as_deref().is_some_and(is_standard_output) {
        return subject.to_standard_output(out, args);
    }
    // What goes into a file does not go to standard output too.
    let to_file = args.format == Format::Text && args.output.is_some();
    let only_printed = args.output.is_none() && (args.json || args.format == Format::Text);
    // What cannot be printed keeps nothing from the file, nor the other way round.
    let written = if only_printed { Ok(None) } else { write(&subject, args).map(Some) };
    let printed = if args.json {
        print_to(out, &format!("{}\n", subject.json()))
    } else if !args.quiet && !to_file {
        print_to(out, &subject.text())
    } else {
        Ok(())
    };
    let written = written?;
    printed?;
    match written {
        // With --json standard output is the document's.
        Some(written) if args.json => weir_put::tell!("weir: {written}"),
        Some(written) => print_to(out, &format!("{written}\n"))?,
        None => {}
    }
    Ok(subject.exit_code())
}

/// Refuses a run that is not what its label says.
fn honestly_labelled(digest: &Digest) -> Result<(), Error> {
    let label = Label::of(&digest.run);
    match (label.is_false(), label.named.clone(), label.told()) {
        (true, Some(named), Some(told)) => {
            let advice = if named == "weir" { ", after: eval $(weir env --no-shm)" } else { "" };
            Err(Error::FalseLabel { run: clean(&digest.name), named: clean(&named), told: clean(&told), advice })
        }
        _ => Ok(()),
    }
}

/// Whether a file is one of those that a run consists of.
fn is_part_of(file: &Path, run: &Path) -> bool {
    let folder = folder_of(run);
    let samples = std::fs::read_dir(folder.join("samples")).into_iter().flatten().flatten().map(|entry| entry.path());
    let own = ["run.json", "cells.jsonl"].map(|name| folder.join(name));
    file.is_file() && own.into_iter().chain(samples).any(|own| weir_put::is_same(file, &own))
}

/// Whether `-o` names standard output.
fn is_standard_output(path: &Path) -> bool {
    ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"].iter().any(|name| path == Path::new(name))
}

/// Prints; a reader that has gone away, as in `weir report run1 | head`, is no failure.
fn print(text: &str) -> Result<(), Error> {
    print_to(&mut std::io::stdout().lock(), text)
}

fn print_to(out: &mut impl std::io::Write, text: &str) -> Result<(), Error> {
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(source) if source.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Error::Write { path: "standard output".into(), source })
        }
        _ => Ok(()),
    }
}

impl Subject {
    /// A script must see that not all was read, whatever it does with the warnings.
    fn exit_code(&self) -> u8 {
        let damaged = match self {
            Self::One(digest) => notes::is_damaged(digest),
            Self::Two(two) => notes::is_damaged(&two.0) || notes::is_damaged(&two.1),
        };
        if damaged { EXIT_DAMAGED } else { 0 }
    }

    /// The page or the tables instead of what is printed else.
    fn to_standard_output(&self, out: &mut impl std::io::Write, args: &ReportArgs) -> Result<u8, Error> {
        let text = match args.format {
            _ if args.json => return Err(Error::Usage("--json is on standard output already: leave out -o".into())),
            Format::Html => self.page(),
            Format::Text => self.text(),
            Format::Svg | Format::Png => {
                return Err(Error::Usage("plots are several files: name a folder with -o".into()));
            }
        };
        print_to(out, &text)?;
        Ok(self.exit_code())
    }

    fn json(&self) -> serde_json::Value {
        match self {
            Self::One(digest) => run_json(digest),
            Self::Two(two) => comparison_json(&two.0, &two.1, &two.2),
        }
    }

    fn page(&self) -> String {
        match self {
            Self::One(digest) => page::of_run(digest),
            Self::Two(two) => page::of_two(&two.0, &two.1, &two.2),
        }
    }

    fn plots(&self) -> Vec<Plot> {
        match self {
            Self::One(digest) => crate::run_plots(digest),
            Self::Two(two) => crate::comparison_plots(&two.0, &two.1, &two.2),
        }
    }

    /// Why there is no plot.
    fn nothing_to_draw(&self) -> Error {
        Error::NothingToDraw(match self {
            Self::One(digest) => format!("{} holds no cell that can be drawn", clean(&digest.name)),
            Self::Two(two) => {
                format!("{} and {} have no cell in common that can be drawn", clean(&two.0.name), clean(&two.1.name))
            }
        })
    }

    /// Facts, warnings, tables.
    fn text(&self) -> String {
        match self {
            Self::One(digest) => {
                let mut out = format!("{}\n", clean(&digest.run.machine));
                out += &facts_text(digest);
                out += &warnings_text(&warnings::of_run(digest));
                out.push('\n');
                out += &digest.profiles.iter().map(|p| Table::of_profile(p).text()).collect::<String>();
                out += &digest.profiles.iter().filter_map(Table::of_service).map(|t| t.text()).collect::<String>();
                if digest.profiles.is_empty() {
                    out += "This run holds no finished cell.\n";
                }
                out
            }
            Self::Two(two) => {
                let (first, second, comparison) = &**two;
                let mut out = String::new();
                for (which, digest) in [("first", first), ("second", second)] {
                    let _ = writeln!(out, "{which}: {}, {}", clean(&digest.name), clean(&digest.run.machine));
                    out += &facts_text(digest);
                }
                out.push('\n');
                out += &comparison.matches.iter().map(|m| Table::of_match(m).text()).collect::<String>();
                // On a terminal what comes last is what is read first.
                let told = warnings::of_two((first, second), comparison);
                out += &warnings_text(&told.into_iter().map(|told| told.warning).collect::<Vec<_>>());
                let _ = writeln!(out, "{}", comparison.summary());
                out
            }
        }
    }
}

fn facts_text(digest: &Digest) -> String {
    let mut out = String::new();
    for (name, text) in page::facts(digest) {
        let _ = writeln!(out, "  {:10}  {}", name.to_lowercase(), clean(&text));
    }
    out
}

fn warnings_text(warnings: &[Warning]) -> String {
    let mut out = String::new();
    for Warning { message, advice, .. } in warnings {
        let advice = advice.as_ref().map_or_else(String::new, |a| format!("\n  to do: {}", clean(a)));
        let _ = writeln!(out, "warning: {}{advice}", clean(message));
    }
    out
}

/// Writes the page, the tables or the plots; returns what to say about it.
fn write(subject: &Subject, args: &ReportArgs) -> Result<String, Error> {
    let folder = folder_of(args.runs.last().map_or(Path::new("."), PathBuf::as_path));
    // What a comparison is with is in each name: another one must not take its place.
    let named = |what: &str| match subject {
        Subject::One(_) => what.to_owned(),
        Subject::Two(two) => format!("{what}-against-{}", file_name(&two.0.name)),
    };
    let document = match args.format {
        Format::Html => Some(("page", "html", subject.page())),
        Format::Text => Some(("tables", "txt", subject.text())),
        Format::Svg | Format::Png => None,
    };
    if let Some((what, ending, text)) = document {
        let name = format!("{}.{ending}", named("report"));
        let path = args.output.clone().unwrap_or_else(|| folder.join(&name));
        // A folder is a place for it as well.
        let path = if path.is_dir() { path.join(name) } else { path };
        put(&path, text.as_bytes())?;
        return Ok(format!("{what}: {}", path.display()));
    }
    let plots = subject.plots();
    if plots.is_empty() {
        return Err(subject.nothing_to_draw());
    }
    let folder = args.output.clone().unwrap_or_else(|| folder.join(named("plots")));
    std::fs::create_dir_all(&folder).map_err(|source| Error::Write { path: folder.clone(), source })?;
    for plot in &plots {
        let (bytes, ending) = match args.format {
            Format::Png => (png::png(plot)?, "png"),
            _ => (plot.svg(Sheet::Adaptive).into_bytes(), "svg"),
        };
        put(&folder.join(format!("{}.{ending}", plot.name)), &bytes)?;
    }
    Ok(format!("{}: {}", units::plural(plots.len() as u64, "plot"), folder.display()))
}

fn folder_of(run: &Path) -> &Path {
    if run.is_file() { run.parent().unwrap_or(Path::new("")) } else { run }
}

/// A run's name as part of a file name.
fn file_name(name: &str) -> String {
    name.chars().map(|c| if c.is_alphanumeric() || "-_.".contains(c) { c } else { '_' }).take(80).collect()
}

/// Writes a file, or to what else the name is of.
fn put(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let failed = |source| Error::Write { path: path.to_owned(), source };
    weir_put::put(path, failed, |out| out.write_all(bytes).map_err(failed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{self, ErrorKind};

    struct Failing(ErrorKind);

    impl io::Write for Failing {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_cannot_be_printed_is_a_failure_but_for_a_reader_that_has_gone() {
        let told = |kind| print_to(&mut Failing(kind), "table").map_err(|error| error.to_string());
        assert_eq!(told(ErrorKind::BrokenPipe), Ok(()));
        let full = told(ErrorKind::StorageFull).unwrap_err();
        assert!(full.starts_with("cannot write standard output: "), "{full}");
    }
}
