//! The three machines of Grove's thesis (Performance modelling of message-passing parallel
//! programs, University of Adelaide, 2003), by its published figures. Their descriptions are in
//! `machines/`, for reading and copying.

use weir_annotations::program::CollectiveOp;
use weir_stats::Distribution;

use crate::machine::{Grid, Machine};
use crate::{Quantiles, hypothetical};

/// Names of the machines, and what describes each.
pub const PUBLISHED: [(&str, &str); 3] = [
    ("perseus", include_str!("../machines/perseus.toml")),
    ("orion", include_str!("../machines/orion.toml")),
    ("apac", include_str!("../machines/apac.toml")),
];

/// The machine of this name; `sc` is `apac`, as the annotated programs of the thesis call it.
#[must_use]
pub fn published(name: &str) -> Option<Machine> {
    let name = if name == "sc" { "apac" } else { name };
    let (_, text) = PUBLISHED.iter().find(|p| p.0 == name)?;
    let mut machine = hypothetical(text).ok()?;
    if name == "apac" {
        hardware_collectives(&mut machine);
    }
    machine.notices.push(format!("{name} is described by published means and least times, not by its distributions"));
    Some(machine)
}

/// APAC's barrier takes 4.0 +- 1.2, 5.0 +- 1.2, 6.5 +- 2.0 us with one, two, four processes on a
/// node, whatever their number; its broadcast about as long as one message.
fn hardware_collectives(machine: &mut Machine) {
    let (mean, sd) = match machine.placement.ranks_per_node {
        1 => (4000.0, 1200.0),
        2 => (5000.0, 1200.0),
        _ => (6500.0, 2000.0),
    };
    let barrier = Quantiles::of_distribution(&Distribution::Normal { mean, sd }, mean - 2.0 * sd);
    let barrier = barrier.and_then(|b| Grid::new(vec![(2, 0, b)])).map(Grid::for_any_level);
    let message = |bytes: u64| (2, bytes, Quantiles::constant(3500.0 + bytes as f64 / 0.262));
    let bcast = Grid::new(vec![message(0), message(262_144)]).map(Grid::for_any_level);
    machine.collectives.measured.extend(barrier.map(|grid| (CollectiveOp::Barrier, grid)));
    machine.collectives.measured.extend(bcast.map(|grid| (CollectiveOp::Bcast, grid)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{Beyond, Draw, Level};

    #[test]
    fn published_figures_come_out_again() {
        // 64 KB between nodes take about 6 ms on Perseus; Orion and APAC are 6 to 8 and 30 to 45
        // times as fast for small ones.
        let least = |name: &str, bytes| {
            let machine = published(name).unwrap();
            let mut beyond = Beyond::default();
            machine.inter.flight(bytes, false, Level::ALONE, Draw::Least, 0.0, &mut beyond).least().seconds()
        };
        assert!((least("perseus", 65_536) / 6e-3 - 1.0).abs() < 0.02);
        assert!((least("perseus", 8) / least("orion", 8) - 8.0).abs() < 0.1);
        assert!((30.0..50.0).contains(&(least("perseus", 8) / least("sc", 8))));
        assert!(published("cray").is_none());
    }
}
