//! A machine from what a benchmark measured (`spec/prediction.md` 7). Pure: the caller reads the
//! run's cells.

use std::collections::{BTreeMap, BTreeSet};

use thiserror::Error;
use weir_annotations::program::CollectiveOp;

use crate::Quantiles;
use crate::machine::{
    Collectives, Cpu, Fabric, Grid, Interface, Local, Machine, Order, Path, Placement, Sharing, Transit, operation_of,
};

/// Operations whose samples are times of single messages, the one that is taken first among equals
/// first. Ping-pong's are halved round trips.
const ONE_WAY: [&str; 3] = ["isend", "send", "ping-pong"];
/// The operation whose samples are times of local completion.
const LOCAL: &str = "isendlocal";
/// Where a protocol changes is not measured: up to so many bytes sends count as eager unless the
/// caller knows better.
pub const USUAL_EAGER_BYTES: u64 = 65_536;
/// A rate is taken from sizes from here on only: below, a line through two sizes says little of
/// bandwidth.
const RATE_FROM_BYTES: u64 = 4096;

/// A cell of a run: one operation in one configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    /// The operation, without its size mode, as in `spec/distribution-format.md` 5.
    pub operation: String,
    /// Bytes of a message (or of the one buffer), or of the block of one process in gather,
    /// scatter, allgather and alltoall: of size mode `total` the caller divides by the ranks.
    pub bytes: u64,
    /// Ranks that took part.
    pub ranks: u32,
    /// Nodes.
    pub nodes: u32,
    /// Ranks on each.
    pub ranks_per_node: u32,
    /// Messages in flight at once; 0 for collectives.
    pub pairs: u32,
    /// Whether no message left its node.
    pub intra: bool,
    /// The launch that it was measured in.
    pub launch: u32,
    /// The distribution of its times in nanoseconds.
    pub times: Quantiles,
}

/// What the caller says beside the measurements.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Wishes {
    /// Processes on a node of the machine that is asked about; none: as most of what was measured
    /// between nodes.
    pub ranks_per_node: Option<u32>,
    /// Sends up to so many bytes are eager; none: [`USUAL_EAGER_BYTES`].
    pub eager_bytes: Option<u64>,
    /// Collectives that are drawn as wholes from what was measured; others are made of messages.
    pub measured: BTreeSet<CollectiveOp>,
}

/// Why there is no machine.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CalibrationError {
    /// Nothing measures a message.
    #[error("no times of single messages were measured: isend, send or ping-pong must be among the operations")]
    NoMessages,
    /// A collective that is to be drawn was not measured.
    #[error("{0} is to be drawn from what was measured, but was not measured")]
    NotMeasured(&'static str),
}

/// A machine from a run's cells. What had to be assumed is in [`Machine::notices`].
///
/// # Errors
/// If no operation measured single messages, or a collective that is wished was not measured.
pub fn calibrate(name: &str, cells: &[Cell], wishes: &Wishes) -> Result<Machine, CalibrationError> {
    let mut notices = Vec::new();
    let most = |intra: bool| usual_ranks_per_node(cells, intra);
    let ranks_per_node = wishes.ranks_per_node.or_else(|| most(false)).or_else(|| most(true)).unwrap_or(1).max(1);
    let between = messages(cells, false, ranks_per_node, &mut notices);
    let within = messages(cells, true, ranks_per_node, &mut notices);
    let launches = between.as_ref().or(within.as_ref()).map(|one| one.launches.clone()).unwrap_or_default();
    notices.push(launches.told());
    let (inter, intra) = match (between, within) {
        (None, None) => return Err(CalibrationError::NoMessages),
        (Some(inter), Some(intra)) => (inter, intra),
        (Some(inter), None) => {
            if ranks_per_node > 1 {
                notices
                    .push("nothing was measured within a node: messages there are taken to be as between nodes".into());
            }
            (inter.clone(), inter)
        }
        (None, Some(intra)) => {
            notices.push("nothing was measured between nodes: messages there are taken to be as within a node".into());
            (intra.clone(), intra)
        }
    };
    if wishes.eager_bytes.is_none() {
        notices
            .push(format!("up to which size sends are eager was not measured: {USUAL_EAGER_BYTES} bytes are assumed"));
    }
    let rate = node_rate(&inter);
    if rate.is_none() {
        notices.push(
            "no two sizes of at least 4 KiB were measured between nodes: nodes have no limit of their rate".into(),
        );
    }
    let path = |one: OneWay, intra: bool| Path {
        transit: Transit::Measured(one.grid),
        eager_bytes: Some(wishes.eager_bytes.unwrap_or(USUAL_EAGER_BYTES)),
        send: local(cells, intra),
        receive: Local::Nothing,
    };
    let (inter, intra) = (path(inter, false), path(intra, true));
    if inter.send == Local::Nothing {
        notices.push("isendlocal was not measured: sends keep their process for no time".into());
    }
    Ok(Machine {
        name: name.to_owned(),
        placement: Placement { ranks_per_node, order: Order::Block },
        inter,
        intra,
        fabric: Fabric::flat(None),
        sharing: Sharing::Once,
        links: Vec::new(),
        interface: Interface { ingress_bytes_per_s: rate, egress_bytes_per_s: rate, buffer_bytes: None },
        tail: None,
        cpu: Cpu::default(),
        collectives: collectives(cells, wishes)?,
        between_launches: launches.spread(),
        notices,
    })
}

fn is_one_way(cell: &Cell) -> bool {
    ONE_WAY.contains(&cell.operation.as_str())
}

/// The number of ranks on a node that most cells have; the largest of several.
fn usual_ranks_per_node(cells: &[Cell], intra: bool) -> Option<u32> {
    let mut count: BTreeMap<u32, usize> = BTreeMap::new();
    for cell in cells.iter().filter(|c| is_one_way(c) && c.intra == intra) {
        *count.entry(cell.ranks_per_node).or_default() += 1;
    }
    count.into_iter().max_by_key(|(ranks, n)| (*n, *ranks)).map(|(ranks, _)| ranks)
}

/// Times of single messages, within or between nodes.
#[derive(Debug, Clone)]
struct OneWay {
    grid: Grid,
    /// How many of a node's processes sent at once, by level.
    senders: BTreeMap<u32, u32>,
    launches: Launches,
}

/// Distributions of single messages: of one operation, the one with most places, at one number of
/// ranks on a node, the nearest.
fn messages(cells: &[Cell], intra: bool, ranks_per_node: u32, notices: &mut Vec<String>) -> Option<OneWay> {
    let fitting: Vec<&Cell> = cells.iter().filter(|c| is_one_way(c) && c.intra == intra).collect();
    let there: BTreeSet<u32> = fitting.iter().map(|c| c.ranks_per_node).collect();
    let nearest = there.iter().rev().find(|p| **p <= ranks_per_node).or_else(|| there.first()).copied()?;
    let where_ = if intra { "within a node" } else { "between nodes" };
    if nearest != ranks_per_node && !intra {
        notices.push(format!(
            "messages {where_} were not measured with {ranks_per_node} ranks on a node: those of {nearest} are taken"
        ));
    }
    let places = |operation: &str| {
        let of = fitting.iter().filter(|c| c.operation == operation && c.ranks_per_node == nearest);
        of.map(|c| (c.pairs.max(1), c.bytes)).collect::<BTreeSet<_>>().len()
    };
    // `max_by_key` takes the last of equals: the list is turned round.
    let operation = ONE_WAY.iter().rev().copied().max_by_key(|operation| places(operation))?;
    let chosen = fitting.iter().filter(|c| c.operation == operation && c.ranks_per_node == nearest);
    let chosen: Vec<&&Cell> = chosen.collect();
    let launches = Launches::of(chosen.iter().map(|c| (c.pairs, c.bytes, c.launch, c.times.at(0.5))));
    let mut pooled: BTreeMap<(u32, u64), Vec<Quantiles>> = BTreeMap::new();
    let mut senders = BTreeMap::new();
    for cell in chosen {
        let level = cell.pairs.max(1);
        pooled.entry((level, cell.bytes)).or_default().push(launches.without(cell.launch, &cell.times));
        // Half of the nodes send at once.
        let sending = (cell.nodes / 2).max(1);
        senders.insert(level, level.div_ceil(sending).min(cell.ranks_per_node.max(1)));
    }
    let grid = Grid::new(pooled.into_iter().map(|((level, bytes), t)| (level, bytes, pool(&t))).collect())?;
    if !intra && grid.levels().count() == 1 {
        notices.push(
            "messages were measured at one level of contention only: more of them in flight change nothing".into(),
        );
    }
    Some(OneWay { grid, senders, launches })
}

/// What launches have in common: each one's times are the usual ones times a factor.
#[derive(Debug, Clone, PartialEq, Default)]
struct Launches {
    /// The logarithm of the factor, by launch. They sum to 0. Empty: there is one launch only.
    logs: BTreeMap<u32, f64>,
}

/// Logarithms are rounded to so many parts of 1: libraries may differ in their last digit.
const LOG_GRAIN: f64 = 1e9;

impl Launches {
    /// Of (level, size, launch, median): of the configurations that all launches measured.
    fn of(medians: impl Iterator<Item = (u32, u64, u32, f64)>) -> Self {
        let mut by_place: BTreeMap<(u32, u64), BTreeMap<u32, f64>> = BTreeMap::new();
        for (level, bytes, launch, median) in medians.filter(|m| m.3 > 0.0) {
            by_place.entry((level, bytes)).or_default().insert(launch, median);
        }
        let all: BTreeSet<u32> = by_place.values().flat_map(|launches| launches.keys().copied()).collect();
        by_place.retain(|_, launches| launches.len() == all.len());
        if all.len() < 2 || by_place.is_empty() {
            return Self::default();
        }
        let log =
            |launch: &u32| by_place.values().map(|medians| medians[launch].ln()).sum::<f64>() / by_place.len() as f64;
        let logs: BTreeMap<u32, f64> = all.iter().map(|launch| (*launch, log(launch))).collect();
        let mean = logs.values().sum::<f64>() / logs.len() as f64;
        let rounded = |log: f64| ((log - mean) * LOG_GRAIN).round() / LOG_GRAIN;
        Self { logs: logs.into_iter().map(|(launch, log)| (launch, rounded(log))).collect() }
    }

    /// Times of a launch without its factor.
    fn without(&self, launch: u32, times: &Quantiles) -> Quantiles {
        match self.logs.get(&launch) {
            Some(log) if *log != 0.0 => times.times(((-log).exp() * LOG_GRAIN).round() / LOG_GRAIN),
            _ => times.clone(),
        }
    }

    /// The standard deviation of the logarithm of a further launch's factor, from so many as there
    /// are.
    fn spread(&self) -> f64 {
        if self.logs.len() < 2 {
            return 0.0;
        }
        let n = self.logs.len() as f64;
        let variance = self.logs.values().map(|log| log * log).sum::<f64>() / (n - 1.0);
        (variance * (1.0 + 1.0 / n)).sqrt()
    }

    fn told(&self) -> String {
        match self.logs.len() {
            0 => "one launch was measured: by how much launches differ is not in the bands".to_owned(),
            n => format!(
                "{n} launches were measured: each run has a factor of its own, drawn with a deviation of {:.1} %",
                self.spread() * 100.0
            ),
        }
    }
}

/// Launches together, each counting as much.
fn pool(tables: &[Quantiles]) -> Quantiles {
    let Some(first) = tables.first() else { return Quantiles::constant(0.0) };
    if tables.len() == 1 {
        return first.clone();
    }
    /// Values of each: both ends among them.
    const EACH: u32 = 1024;
    let values = tables.iter().flat_map(|t| (0..=EACH).map(|i| t.at(f64::from(i) / f64::from(EACH))));
    Quantiles::of_samples(values.collect()).unwrap_or_else(|| first.clone())
}

/// Bytes a node moves in a second: of the steepest levels, how many more bytes its senders moved in
/// how much more time.
fn node_rate(inter: &OneWay) -> Option<f64> {
    let mut best: Option<f64> = None;
    for level in inter.grid.levels() {
        let sizes: Vec<u64> = inter.grid.sizes_at(level).filter(|s| *s >= RATE_FROM_BYTES).collect();
        let [.., small, large] = sizes[..] else { continue };
        let median = |size| inter.grid.cell(level, size).map(|t| t.at(0.5));
        let (Some(short), Some(long)) = (median(small), median(large)) else { continue };
        if long > short {
            let senders = inter.senders.get(&level).copied().unwrap_or(1);
            let rate = (large - small) as f64 / (long - short) * 1e9 * f64::from(senders);
            best = Some(best.map_or(rate, |b| b.max(rate)));
        }
    }
    best.filter(|r| r.is_finite())
}

/// Local completion, at the lowest level that was measured.
fn local(cells: &[Cell], intra: bool) -> Local {
    let of = |intra: bool| -> Option<Grid> {
        let fitting: Vec<&Cell> = cells.iter().filter(|c| c.operation == LOCAL && c.intra == intra).collect();
        let lowest = fitting.iter().map(|c| c.pairs.max(1)).min()?;
        let at_lowest: Vec<&Cell> = fitting.into_iter().filter(|c| c.pairs.max(1) == lowest).collect();
        let launches = Launches::of(at_lowest.iter().map(|c| (1, c.bytes, c.launch, c.times.at(0.5))));
        let mut pooled: BTreeMap<u64, Vec<Quantiles>> = BTreeMap::new();
        for cell in at_lowest {
            pooled.entry(cell.bytes).or_default().push(launches.without(cell.launch, &cell.times));
        }
        Grid::new(pooled.into_iter().map(|(bytes, t)| (1, bytes, pool(&t))).collect())
    };
    of(intra).or_else(|| of(!intra)).map_or(Local::Nothing, Local::Measured)
}

fn collectives(cells: &[Cell], wishes: &Wishes) -> Result<Collectives, CalibrationError> {
    let mut all = Collectives::default();
    for operation in &wishes.measured {
        let of: Vec<&Cell> = cells.iter().filter(|c| operation_of(&c.operation) == Some(*operation)).collect();
        let launches = Launches::of(of.iter().map(|c| (c.ranks, c.bytes, c.launch, c.times.at(0.5))));
        let mut pooled: BTreeMap<(u32, u64), Vec<Quantiles>> = BTreeMap::new();
        for cell in of {
            pooled.entry((cell.ranks, cell.bytes)).or_default().push(launches.without(cell.launch, &cell.times));
        }
        let grid = Grid::new(pooled.into_iter().map(|((ranks, bytes), t)| (ranks, bytes, pool(&t))).collect());
        let name = crate::machine::operation_name(*operation);
        all.measured.insert(*operation, grid.ok_or(CalibrationError::NotMeasured(name))?);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{Draw, Level};

    fn cell(operation: &str, bytes: u64, pairs: u32, intra: bool, ns: f64) -> Cell {
        Cell {
            operation: operation.to_owned(),
            bytes,
            ranks: 4,
            nodes: 4,
            ranks_per_node: 1,
            pairs,
            intra,
            launch: 0,
            times: Quantiles::of_samples(vec![ns, ns * 1.5, ns * 2.0]).unwrap(),
        }
    }

    fn cells() -> Vec<Cell> {
        vec![
            cell("ping-pong", 0, 1, false, 900.0),
            cell("send", 0, 1, false, 1000.0),
            cell("send", 10_000, 1, false, 11_000.0),
            cell("send", 20_000, 1, false, 21_000.0),
            cell("send", 0, 2, false, 1200.0),
            cell("send", 20_000, 2, false, 30_000.0),
            cell("isendlocal", 0, 1, false, 100.0),
            cell("barrier", 0, 0, false, 5000.0),
        ]
    }

    #[test]
    fn a_measured_machine_is_drawn_from_where_it_was_measured() {
        let machine = calibrate("m", &cells(), &Wishes::default()).unwrap();
        let Transit::Measured(grid) = &machine.inter.transit else { panic!() };
        let mut beyond = Default::default();
        let level = Level { messages: 2, ..Level::ALONE };
        assert_eq!(grid.draw(20_000, level, Draw::Full, 0.5, &mut beyond), 45_000.0);
        assert_eq!(grid.least(0), 1000.0, "send has more places than ping-pong");
        // 10 000 bytes more in 15 us more at the median.
        let rate = machine.interface.egress_bytes_per_s.unwrap();
        assert!((rate / (10_000.0 / 15e-6) - 1.0).abs() < 1e-9, "{rate}");
        assert!(machine.notices.iter().any(|n| n.contains("eager")));
        assert!(
            machine.notices.iter().any(|n| n.contains("one launch was measured")) && machine.between_launches == 0.0
        );
        assert!(!machine.notices.iter().any(|n| n.contains("isendlocal")));
    }

    #[test]
    fn what_is_missing_is_said() {
        assert_eq!(calibrate("m", &cells()[7..], &Wishes::default()), Err(CalibrationError::NoMessages));
        let wish = |op| Wishes { measured: [op].into(), ranks_per_node: Some(2), ..Wishes::default() };
        let error = calibrate("m", &cells(), &wish(CollectiveOp::Bcast)).unwrap_err();
        assert_eq!(error, CalibrationError::NotMeasured("bcast"));
        let machine = calibrate("m", &cells(), &wish(CollectiveOp::Barrier)).unwrap();
        assert_eq!(machine.collectives.measured.len(), 1);
        assert!(machine.notices.iter().any(|n| n.contains("within a node")));
        assert!(machine.notices.iter().any(|n| n.contains("those of 1 are taken")));
    }

    #[test]
    fn launches_are_pooled() {
        let twice = [cell("send", 0, 1, false, 1000.0), cell("send", 0, 1, false, 3000.0)];
        let machine = calibrate("m", &twice, &Wishes::default()).unwrap();
        let Transit::Measured(grid) = &machine.inter.transit else { panic!() };
        let table = grid.cell(1, 0).unwrap();
        assert_eq!((table.min(), table.max()), (1000.0, 6000.0));
        assert!((table.mean() - 3000.0).abs() < 10.0, "{}", table.mean());
    }

    #[test]
    fn what_launches_have_in_common_is_a_factor_of_the_run() {
        // Medians of 1.5, 3 us and of 1.2 times as much: each launch is off by the root of 1.2.
        let launch = |launch: u32, factor: f64| {
            let at = |bytes: u64, ns: f64| Cell { launch, ..cell("send", bytes, 1, false, ns * factor) };
            [at(0, 1000.0), at(1000, 2000.0)]
        };
        let cells = [launch(0, 1.0), launch(1, 1.2)].concat();
        let machine = calibrate("m", &cells, &Wishes::default()).unwrap();
        let half = 1.2f64.ln() / 2.0;
        assert!(
            (machine.between_launches - (2.0 * half * half * 1.5).sqrt()).abs() < 1e-8,
            "{}",
            machine.between_launches
        );
        let Transit::Measured(grid) = &machine.inter.transit else { panic!() };
        // Without the factor both are the same distribution, and not one twice as wide.
        let (table, root) = (grid.cell(1, 1000).unwrap(), 1.2f64.sqrt());
        assert!((table.min() - 2000.0 * root).abs() < 1e-3 && (table.max() - 4000.0 * root).abs() < 1e-3);
        assert!(machine.notices.iter().any(|n| n.contains("2 launches were measured")), "{:?}", machine.notices);
    }
}
