//! What the benches share that run one kind of program over Weir beside its rivals (`bench bsp`,
//! `bench bmi`): their options, what launches told, and the page.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Map, Value, json};

use super::measure::Spread;
use super::{machine, today, write};
use crate::dist;
use crate::lab::{Lab, Wire};
use crate::paths::Paths;

/// How much to measure, and where it is told.
#[derive(Debug, clap::Args)]
pub struct Common {
    /// Launches of each cell on each side
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub launches: u32,
    /// How long a program measures
    #[arg(long, default_value_t = 1.0)]
    pub seconds: f64,
    /// Print the results as JSON
    #[arg(long)]
    pub json: bool,
    /// Write no report
    #[arg(long)]
    pub no_report: bool,
    /// Measure the library that is there, without building
    #[arg(long)]
    pub no_build: bool,
}

impl Common {
    /// The facts that stand above the tables: the machine, what the hosts are (`how`), and how
    /// often each was launched.
    pub fn about(&self, paths: &Paths, how: &str) -> Vec<(String, String)> {
        let mut about = machine(paths);
        about.push(("hosts".into(), how.into()));
        about.push(("launches of each".into(), format!("{}, the sides in turn", self.launches)));
        about
    }

    /// The folder with this face's library (`bsp`: `libweir-bsp.so`), built if it is to be.
    ///
    /// # Errors
    /// If it does not build, or is not there.
    pub fn library(&self, paths: &Paths, face: &str) -> Result<PathBuf> {
        if !self.no_build {
            dist::libraries(paths)?;
        }
        let folder = paths.provider_dir();
        let library = folder.join(format!("libweir-{face}.so"));
        if !library.exists() {
            bail!("there is no {}: leave out --no-build, or run cargo xtask build", library.display());
        }
        Ok(folder)
    }

    /// Prints the results, and writes the page `docs/lab/DATE-NAME.md` unless none is wanted.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn publish(&self, paths: &Paths, name: &str, page: &str, json: &Value) -> Result<()> {
        if self.json {
            println!("{json:#}");
        } else {
            println!("{page}");
        }
        if let Some(file) = self.write(paths, name, page)? {
            eprintln!("written to {}", file.display());
        }
        Ok(())
    }

    /// Writes the page, unless none is wanted, and returns where.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, paths: &Paths, name: &str, page: &str) -> Result<Option<PathBuf>> {
        let file = paths.root.join("docs/lab").join(format!("{}-{name}.md", today()));
        if self.no_report {
            return Ok(None);
        }
        write(&file, page)?;
        Ok(Some(file))
    }
}

/// Whether a cell is among those asked for by how its name starts.
pub fn wanted(only: &[String], id: &str) -> bool {
    only.is_empty() || only.iter().any(|start| id.starts_with(start.as_str()))
}

/// What a launch told, or why it told nothing.
pub type Told = Result<Value, String>;

/// What the launches of each side told, by cell and side.
pub type BySide = BTreeMap<(&'static str, &'static str), Vec<Told>>;

/// Measures all cells, the sides of each in turn: `place` is a cell's name and its network (none:
/// one host), `sides` are the names of those that it has, and what `launch` is to know of them.
///
/// # Errors
/// If a network cannot be made. A launch that fails is told in its row.
pub fn in_turns<C, S>(
    launches: u32,
    cells: &[C],
    place: impl Fn(&C) -> (&'static str, Option<(usize, Wire)>),
    sides: impl Fn(&C) -> Vec<(&'static str, S)>,
    bar: &ProgressBar,
    mut launch: impl FnMut(&C, &S, Option<&Lab>) -> Result<Value>,
) -> Result<BySide> {
    let mut results = BySide::new();
    for cell in cells {
        let (id, wire) = place(cell);
        let lab = wire.map(|(hosts, wire)| Lab::start(hosts, &wire)).transpose()?;
        let sides = sides(cell);
        for _ in 0..launches {
            for (name, side) in &sides {
                bar.set_message(format!("{id} {name}"));
                let told = launch(cell, side, lab.as_ref()).map_err(|cause| format!("{cause:#}"));
                results.entry((id, *name)).or_default().push(told);
                bar.inc(1);
            }
        }
    }
    Ok(results)
}

/// The same for programs.
pub fn by_side_json(results: &BySide) -> Value {
    let one = |((cell, side), all): (&(&str, &str), &Vec<Told>)| json!({ "cell": cell, "side": side, "launches": launches_json(Some(all)) });
    results.iter().map(one).collect::<Vec<_>>().into()
}

/// A progress bar over so many launches.
///
/// # Errors
/// If its template were malformed.
pub fn bar(launches: usize) -> Result<ProgressBar> {
    let bar = ProgressBar::new(launches as u64);
    bar.set_style(ProgressStyle::with_template("{bar:30} {pos}/{len} {msg} ({eta} left)")?);
    Ok(bar)
}

/// A number over the launches that told it.
pub fn spread(launches: Option<&Vec<Told>>, key: &str) -> Option<Spread> {
    Spread::of(launches?.iter().filter_map(|told| told.as_ref().ok()?.get(key)?.as_f64()).collect())
}

/// Why some launches of a side told nothing, fit for a cell of a table: how many, and the first
/// cause. Empty if all told.
pub fn failures(launches: Option<&Vec<Told>>) -> String {
    let all = launches.map_or(&[][..], Vec::as_slice);
    let causes: Vec<&String> = all.iter().filter_map(|told| told.as_ref().err()).collect();
    causes.first().map_or_else(String::new, |why| {
        format!(" ({} of {} failed: {})", causes.len(), all.len(), why.replace(['|', '\n'], "/"))
    })
}

/// The page's beginning: what was done, and the facts about it.
pub fn head(title: &str, intro: &str, about: &[(String, String)]) -> String {
    let mut text = format!("# {title}\n\n{intro}\n");
    for (key, value) in about {
        let _ = writeln!(text, "- {key}: {value}");
    }
    text
}

/// The facts as JSON.
pub fn about_json(about: &[(String, String)]) -> Value {
    about.iter().map(|(key, value)| (key.clone(), Value::from(value.clone()))).collect::<Map<_, _>>().into()
}

/// All launches of a side as JSON.
pub fn launches_json(launches: Option<&Vec<Told>>) -> Value {
    let one = |told: &Told| told.clone().unwrap_or_else(|cause| json!({ "error": cause }));
    launches.map_or(&[][..], Vec::as_slice).iter().map(one).collect::<Vec<_>>().into()
}
