//! `cargo xtask bench emulator`: how fast the emulator's switch forwards 1500-byte packets, written
//! down in `docs/lab`.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::measure::Spread;
use super::report::number;
use super::{machine, today, write};
use crate::paths::Paths;
use crate::process::run_limited;

/// The first launch builds the program.
const LIMIT: Duration = Duration::from_secs(900);
/// What the emulator is to reach: bits a second of 1500-byte packets, on one core at most.
const GOAL_GBIT_PER_S: f64 = 2.0;
/// Links of a lower rate are there for the cost of a packet and for how late packets are.
const GOAL_LINKS: [&str; 3] = ["perfect", "perfect, no real-time priority", "4g, 1 ms, 1 % loss"];
/// Columns of the table: where the value stands in the program's answer, and its name.
const COLUMNS: [(&str, &str); 8] = [
    ("/gbit_per_s", "Gbit/s"),
    ("/cores", "cores"),
    ("/cpu_ns_per_packet", "CPU ns/packet"),
    ("/forwarded_packets_per_s", "packets/s"),
    ("/offered_packets_per_s", "offered packets/s"),
    ("/late_us/p50", "late p50 us"),
    ("/late_us/p99", "late p99 us"),
    ("/overrun_packets", "overrun packets"),
];

/// What to measure, and how often.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  cargo xtask bench emulator
  cargo xtask bench emulator --only perfect --launches 3 --no-report")]
pub struct Options {
    /// Only links whose names contain this
    #[arg(long)]
    pub only: Option<String>,
    /// Launches, each with a network of its own for each link
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub launches: u32,
    /// Name of the report in docs/lab
    #[arg(long, default_value = "emulator")]
    pub name: String,
    /// Print the results as JSON
    #[arg(long)]
    pub json: bool,
    /// Write no report
    #[arg(long)]
    pub no_report: bool,
}

/// Measures and reports.
///
/// # Errors
/// If nothing can be measured, or the report cannot be written.
pub fn run(paths: &Paths, options: &Options) -> Result<()> {
    let file = paths.root.join("docs/lab").join(format!("{}-{}.md", today(), options.name));
    if !options.no_report && file.exists() {
        bail!("{} is there already; choose another --name", file.display());
    }
    let mut about: Vec<(String, String)> = machine(paths).into_iter().filter(|(key, _)| key != "MPIs").collect();
    about.push(("launches".into(), options.launches.to_string()));
    let mut launches = Vec::new();
    for launch in 1..=options.launches {
        eprintln!("launch {launch} of {}", options.launches);
        launches.push(measure(paths, options.only.as_deref())?);
    }
    let text = markdown(&launches, &about);
    let about: serde_json::Map<String, Value> = about.into_iter().map(|(key, value)| (key, value.into())).collect();
    let all = json!({ "about": about, "launches": launches });
    if options.json {
        println!("{all:#}");
    } else {
        println!("{text}");
    }
    if !options.no_report {
        write(&file, &text)?;
        write(&file.with_extension("json"), &format!("{all:#}\n"))?;
        eprintln!("written to {}", file.display());
    }
    Ok(())
}

/// One launch: what the program says of each link.
fn measure(paths: &Paths, only: Option<&str>) -> Result<Vec<Value>> {
    let mut command = paths.cargo();
    command.args(["bench", "--quiet", "-p", "weir-emulate", "--bench", "forwarding", "--", "--json"]).args(only);
    let outcome = run_limited(&mut command, LIMIT)?;
    if !outcome.ok() {
        bail!("{}\n{}", outcome.cause(), outcome.stderr);
    }
    let lines = outcome.stdout.lines().filter(|line| line.starts_with('{'));
    let links: Vec<Value> = lines.map(serde_json::from_str).collect::<Result<_, _>>().context("no JSON")?;
    if links.is_empty() {
        bail!("no link has such a name");
    }
    Ok(links)
}

/// The spread of one column over the launches of a link.
fn spread(launches: &[Vec<Value>], link: &str, column: &str) -> Option<Spread> {
    let of_link = launches.iter().flatten().filter(|result| result["link"] == link);
    Spread::of(of_link.filter_map(|result| result.pointer(column)?.as_f64()).collect())
}

fn markdown(launches: &[Vec<Value>], about: &[(String, String)]) -> String {
    let mut text = String::from("# How fast the emulator is\n\n");
    for (key, value) in about {
        let _ = writeln!(text, "- {key}: {value}");
    }
    text += "\nOne host floods another with UDP packets of 1500 bytes for two seconds, through the switch in user space \
             (`tools/emulate/benches/forwarding.rs`); bits are those of Ethernet frames that it forwarded. `cores` is the processor time of its only \
             thread through the time that passed; the sender's core comes on top. `late`: how long after its due time a packet was sent. `overrun`: \
             packets lost because the switch did not keep up with what was offered. Each number is the median over the launches, with the least and the \
             greatest in brackets.\n\n";
    let _ = writeln!(text, "| link | {} |", COLUMNS.map(|(_, name)| name).join(" | "));
    let _ = writeln!(text, "|---|{}", "---:|".repeat(COLUMNS.len()));
    let links: Vec<&str> =
        launches.first().into_iter().flatten().filter_map(|result| result["link"].as_str()).collect();
    for link in &links {
        let cells = COLUMNS.map(|(column, _)| match spread(launches, link, column) {
            Some(s) => format!("{} ({}-{})", number(s.median), number(s.min), number(s.max)),
            None => "-".into(),
        });
        let _ = writeln!(text, "| {link} | {} |", cells.join(" | "));
    }
    for link in links.iter().filter(|link| GOAL_LINKS.contains(link)) {
        let value = |column| spread(launches, link, column).map_or(f64::NAN, |s| s.median);
        let (rate, cores) = (value("/gbit_per_s"), value("/cores"));
        let verdict = if rate >= GOAL_GBIT_PER_S && cores <= 1.0 { "reached" } else { "**not reached**" };
        let _ = writeln!(
            text,
            "\nGoal, {link}: >= {GOAL_GBIT_PER_S} Gbit/s on one core at most: {} on {}, {verdict}.",
            number(rate),
            number(cores)
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch(gbit_per_s: f64, cores: f64) -> Vec<Value> {
        vec![json!({ "link": "perfect", "gbit_per_s": gbit_per_s, "cores": cores, "late_us": { "p50": 3, "p99": 9 } })]
    }

    #[test]
    fn medians_and_the_goal_are_shown() {
        let text =
            markdown(&[launch(3.0, 0.9), launch(2.5, 0.8), launch(1.0, 0.7)], &[("date".into(), "today".into())]);
        assert!(text.contains("| perfect | 2.500 (1.000-3.000) | 0.8000 (0.7000-0.9000) | - |"), "{text}");
        assert!(text.contains("9.000 (9.000-9.000)"), "{text}");
        assert!(text.contains("2.500 on 0.8000, reached."), "{text}");
    }

    #[test]
    fn too_slow_or_more_than_a_core_is_not_enough() {
        for slow in [launch(1.9, 0.5), launch(9.0, 1.2), vec![json!({ "link": "perfect" })]] {
            assert!(markdown(&[slow], &[]).contains("**not reached**"));
        }
    }
}
