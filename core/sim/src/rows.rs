//! The rows of `weir-sim table`: what each table is made of, and one row as the scenario that it
//! runs.

use crate::link_table;
use crate::mark_table;
use crate::scenario::{EndpointSpec, Scenario};
use crate::service_table;
use crate::spec::{MS, US};
use crate::step_table;
use crate::storm::Storm;
use crate::table::{self, Point};

/// Rows that a refusal shows.
const SHOWN: usize = 5;
/// Lengths of messages between hosts with several links.
const LINK_LENS: [u64; 4] = [30_000, 300_000, 1 << 20, 4 << 20];
/// Ranks that start at once.
const STORM_RANKS: [u32; 3] = [64, 128, 256];

/// The tables of this name that are made of points, each with lines of one kind; none if it is made
/// of something else.
#[must_use]
pub fn points(what: &str, e: &EndpointSpec) -> Vec<Vec<Point>> {
    match what {
        "incast" => vec![table::incast_points(e, &[8, 32], &[64 << 10, 1 << 20], &[64, 256, 1000], 4 << 20)],
        "marks" => vec![mark_table::all(e)],
        "fan-in" => {
            let (losses, queues) = ([0, 10_000], [32, 64, 256]);
            vec![table::fan_in_points(e, &[8, 32], &[10 * US, MS], &losses, &queues, (64 << 10, 16))]
        }
        "pingpong" => {
            let delays = [10 * US, 100 * US, MS, 5 * MS, 10 * MS];
            let lens = [8, 30_000, 64 << 10, 300_000, 1 << 20];
            vec![table::ping_pong_points(e, &delays, &[0, 1_000, 10_000, 20_000], &lens, 200)]
        }
        "stream" => {
            vec![table::stream_points(e, &[10 * US, MS, 10 * MS], &[0, 10_000, 20_000], &[16, 64, 1000], 16 << 20)]
        }
        "exchange" => {
            let (delays, lens) = ([10 * US, 200 * US, MS, 10 * MS], [300_000, 1 << 20, 4 << 20]);
            vec![
                table::exchange_points(e, 1000, &[2, 8], &delays, &lens, &[0, 10_000], 10),
                table::exchange_points(e, 100, &[2, 8], &[50 * US], &lens, &[0, 10_000], 10),
            ]
        }
        "supersteps" => vec![step_table::points(e, 12)],
        "service" => vec![service_table::points(&[64, 256, 1000], &[32, 64, 256], &[0, 10_000], 10_000, 4)],
        "jitter" => {
            let jitters = [0, 200 * US, MS, 2 * MS, 5 * MS];
            vec![table::jitter_points(e, &[10 * US, MS, 5 * MS], &jitters, &[0, 10_000], 64 << 20)]
        }
        _ => Vec::new(),
    }
}

/// The lines of the table `links`.
#[must_use]
pub fn links(e: &EndpointSpec) -> Vec<link_table::Line> {
    link_table::lines(e, &LINK_LENS)
}

/// The lines of the table `storm`.
#[must_use]
pub fn storms() -> Vec<Storm> {
    Storm::points(&STORM_RANKS)
}

/// Names and scenarios of all rows of a table; none of those whose rows have no names of their own.
fn all(what: &str, e: &EndpointSpec) -> Vec<(String, Scenario)> {
    match what {
        "links" => links(e).iter().map(|line| (line.name(), line.together())).collect(),
        "storm" => storms().iter().map(|storm| (storm.name(), storm.scenario())).collect(),
        _ => points(what, e).into_iter().flatten().map(|p| (p.name, p.scenario)).collect(),
    }
}

/// The words of a name, one space between them: tables have theirs in columns.
fn words(name: &str) -> String {
    name.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The scenario of the row of that name, or of the only one in whose name this stands.
///
/// # Errors
/// There is none, or there are several.
pub fn scenario(what: &str, e: &EndpointSpec, row: &str) -> Result<Scenario, String> {
    let (wanted, mut rows) = (words(row), all(what, e));
    if rows.is_empty() {
        return Err(format!(
            "the rows of the table {what} have no names of their own: name another, e.g. weir-sim table links"
        ));
    }
    rows.iter_mut().for_each(|(name, _)| *name = words(name));
    if let Some(at) = rows.iter().position(|(name, _)| *name == wanted) {
        return Ok(rows.swap_remove(at).1);
    }
    let (mut found, others): (Vec<_>, Vec<_>) = rows.into_iter().partition(|(name, _)| name.contains(&wanted));
    match found.len() {
        1 => Ok(found.swap_remove(0).1),
        0 => Err(format!("no row of the table {what} is named {wanted:?}; there are {}", listed(&others))),
        n => Err(format!("{n} rows of the table {what} have {wanted:?} in their names: {}", listed(&found))),
    }
}

fn listed(rows: &[(String, Scenario)]) -> String {
    let shown = rows.iter().take(SHOWN).map(|(name, _)| format!("{name:?}")).collect::<Vec<_>>().join(", ");
    if rows.len() > SHOWN { format!("{shown}, ... ({} in all)", rows.len()) } else { shown }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMED: [&str; 11] = [
        "incast",
        "marks",
        "fan-in",
        "pingpong",
        "stream",
        "jitter",
        "exchange",
        "links",
        "supersteps",
        "service",
        "storm",
    ];

    #[test]
    fn each_row_is_found_by_its_name_and_comes_back_from_its_text() {
        let e = EndpointSpec::default();
        for what in NAMED {
            assert!(!all(what, &e).is_empty(), "{what}");
            for (name, expected) in all(what, &e) {
                let found = scenario(what, &e, &name).unwrap_or_else(|error| panic!("{what}: {error}"));
                assert_eq!(found, expected, "{what}: {name}");
                let text = serde_json::to_string(&found).unwrap();
                assert_eq!(serde_json::from_str::<Scenario>(&text).unwrap(), expected, "{what}: {name}");
            }
        }
    }

    #[test]
    fn what_names_no_row_or_several_is_told_with_those_there_are() {
        let e = EndpointSpec::default();
        let refused = |what, row| scenario(what, &e, row).unwrap_err();
        let none = refused("links", "three");
        assert!(none.starts_with("no row of the table links is named \"three\"; there are \"one stream"), "{none}");
        let many = refused("links", "two stream");
        assert!(many.starts_with("4 rows of the table links have \"two stream\""), "{many}");
        assert!(refused("many", "total").contains("no names of their own"));
    }
}
