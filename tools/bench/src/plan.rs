//! Which cells are measured, in which order, and whether they can be.

use std::collections::BTreeMap;
use std::sync::Arc;

use rand_pcg::Pcg64;
use rand_pcg::rand_core::{Rng, SeedableRng};
use weir_distribution::{Configuration, Locality, Operation as Name, SizeMode, StartSync};

use crate::error::{BenchError, Result};
use crate::exchange::{Leg, Turn};
use crate::kernels;
use crate::machine::Apart;
use crate::operation::{Class, Kind, Operation};
use crate::options::{Settings, Transport, Where};
use crate::pairing::{Layout, Pairing, Placement};
use crate::pattern::Plan;
use crate::tagged::Tagged;
use crate::threads::Threads;

/// A cell to be measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// The operation.
    pub operation: Operation,
    /// Its size, bytes.
    pub size: u64,
    /// Who takes part.
    pub placement: Placement,
    /// Partners, if the operation has them: as many pairs as there shall be messages under way.
    pub pairing: Option<Pairing>,
    /// Where the members of a collective are, or partners.
    pub locality: Locality,
    /// How repetitions begin.
    pub start: StartSync,
    /// Messages in a window, or iterations of a kernel.
    pub count: u32,
    /// What each member does in a pattern of the user's own.
    pub pattern: Option<Arc<Plan>>,
    /// Threads of each rank, if it is measured between them.
    pub threads: Option<Threads>,
    /// How it uses messages by their tags, if it is made of them.
    pub tagged: Option<Tagged>,
}

impl Spec {
    /// The cell's name in the distribution format.
    #[must_use]
    pub fn configuration(&self) -> Configuration {
        let kind = self.operation.kind;
        let parameter = match (kind.has_window(), kind.class()) {
            (true, _) => Some(("window", self.count.to_string())),
            (_, Class::Kernel) => Some(("iterations", self.count.to_string())),
            _ => self.pattern.as_ref().map(|pattern| ("pattern", pattern.label.clone())),
        };
        let threads = self.threads.map(|threads| ("threads", threads.count.to_string()));
        // What is as it is by itself is not said.
        let by = self.threads.filter(|threads| threads.apart == Apart::Tag).map(|_| ("threads_by", "tag".to_owned()));
        let all = [parameter, threads, by].into_iter().flatten();
        let mut parameters: BTreeMap<String, String> = all.map(|(name, value)| (name.to_owned(), value)).collect();
        parameters.extend(self.tagged.iter().flat_map(|of| of.parameters(kind)));
        Configuration {
            operation: Name::from(kind.name()),
            size_bytes: self.size,
            size_mode: self.operation.mode,
            nodes: self.placement.nodes as u32,
            ranks_per_node: self.placement.per_node as u32,
            ranks: self.placement.members.len() as u32,
            pairs: self.pairing.as_ref().map_or(0, |p| p.pairs.len() as u32),
            locality: self.locality,
            start: self.start,
            parameters,
        }
    }

    /// This rank's partner, and whether this rank begins.
    #[must_use]
    pub fn part(&self, rank: usize) -> Option<(usize, bool)> {
        if self.operation.kind == Kind::Serverload {
            let server = *self.placement.members.first()?;
            return (rank != server).then_some((server, true));
        }
        let pairs = &self.pairing.as_ref()?.pairs;
        pairs.iter().find_map(|&(a, b)| match rank {
            r if r == a => Some((b, true)),
            r if r == b => Some((a, false)),
            _ => None,
        })
    }

    /// Bytes of messages by their tags, and of the room that receives have for them, at one rank at
    /// most.
    fn tagged_bytes(&self) -> Option<(u64, u64)> {
        let of = self.tagged?;
        let all = |count: u64| self.size.saturating_mul(count);
        Some((all(of.tags.into()), all(of.places(self.operation.kind) as u64)))
    }

    /// Bytes of the buffers (sent from, received into) that one rank needs at most.
    #[must_use]
    pub fn buffer_bytes(&self) -> (u64, u64) {
        match &self.pattern {
            Some(pattern) => pattern.buffer_bytes(),
            None => self.operation.buffer_bytes(self.size, self.placement.members.len(), self.count as usize),
        }
    }

    /// Lengths of the members' blocks: in bytes, all alike, or in the numbers of which each keeps
    /// its part.
    #[must_use]
    pub fn block_lengths(&self) -> Vec<usize> {
        let ranks = self.placement.members.len();
        if self.operation.kind != Kind::ReduceScatter {
            return vec![self.operation.block_bytes(self.size, ranks) as usize; ranks];
        }
        let numbers = self.size as usize / 8;
        (0..ranks).map(|place| numbers / ranks + usize::from(place < numbers % ranks)).collect()
    }

    /// What a rank sends and receives where that is no collective of the machine's.
    #[must_use]
    pub fn turns(&self, rank: usize) -> Vec<Turn> {
        let members = &self.placement.members;
        let Some(place) = members.iter().position(|&member| member == rank) else { return Vec::new() };
        if let Some(pattern) = &self.pattern {
            let of_rank = |leg: &Leg| Leg { peer: members[leg.peer], bytes: leg.bytes };
            let turn = |turn: &Turn| Turn {
                compute_ns: turn.compute_ns,
                sends: turn.sends.iter().map(of_rank).collect(),
                receives: turn.receives.iter().map(of_rank).collect(),
            };
            return pattern.turns.get(place).map_or_else(Vec::new, |turns| turns.iter().map(turn).collect());
        }
        if self.operation.kind != Kind::Incast {
            return Vec::new();
        }
        let legs = |peers: &[usize], bytes: u64| {
            peers.iter().map(|&peer| Leg { peer, bytes: bytes as usize }).collect::<Vec<_>>()
        };
        let (first, others) = members.split_at(1);
        match place {
            0 => vec![Turn { sends: legs(others, 0), receives: legs(others, self.size), ..Turn::default() }],
            // Asked, then answering.
            _ => vec![
                Turn { receives: legs(first, 0), ..Turn::default() },
                Turn { sends: legs(first, self.size), ..Turn::default() },
            ],
        }
    }

    /// The ranks that give samples.
    #[must_use]
    pub fn active(&self) -> Vec<usize> {
        match &self.pairing {
            // The server times nothing.
            None if self.operation.kind == Kind::Serverload => self.placement.members[1..].to_vec(),
            None => self.placement.members.clone(),
            Some(pairing) => {
                let mut ranks: Vec<usize> = pairing.pairs.iter().flat_map(|&(a, b)| [a, b]).collect();
                ranks.sort_unstable();
                ranks
            }
        }
    }
}

/// What a node has to offer.
#[derive(Clone, Debug)]
pub struct Room {
    /// Its name.
    pub name: String,
    /// Memory that can still be had, bytes, if known.
    pub available_bytes: Option<u64>,
}

/// All cells, in the order of the command line.
///
/// # Errors
/// [`BenchError::Usage`], if this machine cannot do what is asked.
pub fn cells(settings: &Settings, layout: &Layout, start: StartSync) -> Result<Vec<Spec>> {
    let ranks = layout.nodes.len();
    if ranks < 2 {
        let hint = match settings.args.transport {
            Transport::Mpi => "start at least two, e.g.: mpiexec -n 2 weir bench",
            Transport::Weir => "start at least two: -n 2",
        };
        return Err(BenchError::Usage(format!("there is one process, and nobody to exchange messages with; {hint}")));
    }
    let placements = match settings.placements.as_slice() {
        [] => vec![layout.everybody()],
        asked => asked.iter().map(|&(n, p)| find(layout, n, p)).collect::<Result<_>>()?,
    };
    let mut cells = Vec::new();
    for placement in &placements {
        for &operation in &settings.operations {
            match operation.kind.class() {
                Class::PointToPoint | Class::OneSided => paired(settings, layout, placement, operation, &mut cells)?,
                Class::Collective if operation.kind == Kind::Pattern => {
                    pattern(settings, layout, placement, start, &mut cells)?;
                }
                Class::Collective => collectives(settings, layout, placement, operation, start, &mut cells)?,
                Class::Kernel => {
                    let has_size = operation.kind.has_size();
                    let own = kernels::message_bytes(operation.kind, placement.members.len());
                    let sizes = if has_size { settings.sizes.clone() } else { vec![own] };
                    for size in sizes {
                        cells.push(kernel(settings, layout, placement, operation, size)?);
                    }
                }
            }
        }
    }
    room_for_samples(settings, &cells)?;
    Ok(cells)
}

/// Samples of all ranks in a cell for which rank 0 has memory: 24 bytes each, and as much while
/// they arrive.
pub const MOST_SAMPLES: u64 = 10_000_000;

/// Refuses more repetitions than rank 0 could hold the samples of.
pub(crate) fn room_for_samples(settings: &Settings, cells: &[Spec]) -> Result<()> {
    let (Some(reps), Some(ranks)) = (settings.args.reps, cells.iter().map(|cell| cell.active().len() as u64).max())
    else {
        return Ok(());
    };
    let most = MOST_SAMPLES / ranks.max(1);
    if u64::from(reps) <= most {
        return Ok(());
    }
    let text = format!(
        "--reps {reps}: rank 0 has room for {MOST_SAMPLES} samples of a cell, which are at most {most} repetitions on {ranks} ranks"
    );
    Err(BenchError::Usage(text))
}

fn find(layout: &Layout, n: usize, p: usize) -> Result<Placement> {
    let most = layout.everybody();
    let placement = layout.placement(n, p).ok_or_else(|| {
        let there = format!("there {} with at most {} on each", are(most.nodes, "node"), many(most.per_node, "rank"));
        BenchError::Usage(format!("placement {n}x{p} does not fit: {there}"))
    })?;
    if placement.members.len() < 2 {
        return Err(BenchError::Usage(format!("placement {n}x{p} has one process, at least two are needed")));
    }
    Ok(placement)
}

/// The pairings that are wanted and that there are.
fn pairings(settings: &Settings, layout: &Layout, placement: &Placement) -> Result<Vec<Pairing>> {
    let intra = layout.within(&placement.members);
    let wanted = &settings.args.locality;
    let mut found = Vec::new();
    if wanted.contains(&Where::Inter) {
        let between = layout.between(&placement.members);
        if between.pairs.is_empty() {
            let name = format!("{}x{}", placement.nodes, placement.per_node);
            return Err(BenchError::Usage(format!("--locality inter: all ranks of {name} are on one node")));
        }
        found.push(between);
    } else if wanted.is_empty() && placement.nodes > 1 {
        // Where nodes have unequally many ranks, complements may be of both kinds; they are filed
        // as mixed.
        found.push(layout.complement(&placement.members));
    }
    if wanted.contains(&Where::Intra) || wanted.is_empty() {
        if intra.pairs.is_empty() && !wanted.is_empty() {
            return Err(BenchError::Usage("--locality intra: no node has two ranks".into()));
        }
        found.extend((!intra.pairs.is_empty()).then_some(intra));
    }
    Ok(found)
}

fn paired(
    settings: &Settings,
    layout: &Layout,
    placement: &Placement,
    operation: Operation,
    cells: &mut Vec<Spec>,
) -> Result<()> {
    let ranks = placement.members.len();
    if !ranks.is_multiple_of(2) {
        let text = format!(
            "{operation} pairs all processes, and {ranks} is odd; start {} or {}, or measure what needs no pairs: -t collectives",
            ranks - 1,
            ranks + 1
        );
        return Err(BenchError::Usage(text));
    }
    let sizes = sizes(settings, operation, ranks as u64)?;
    let tagged = Tagged::asked(operation.kind, &settings.args.tagged)?;
    let threads: Vec<Option<Threads>> = match settings.args.threads.as_slice() {
        asked if operation.kind.has_threads() && !asked.is_empty() => {
            asked.iter().map(|&count| Some(Threads { count, apart: settings.args.threads_by })).collect()
        }
        _ => vec![None],
    };
    for pairing in pairings(settings, layout, placement)? {
        let most = pairing.pairs.len();
        let levels: Vec<usize> = match settings.args.pairs.as_slice() {
            [] => vec![most],
            asked => asked.iter().map(|&k| k as usize).collect(),
        };
        for level in levels {
            if level > most {
                let pairs = if most == 1 { "pair" } else { "pairs" };
                let text = format!(
                    "--pairs {level}: {ranks} processes make {most} {pairs} at most, as they are asked to be paired"
                );
                return Err(BenchError::Usage(text));
            }
            let pairs = pairing.pairs[..level].to_vec();
            for &size in &sizes {
                cells.extend(threads.iter().map(|&threads| Spec {
                    operation,
                    size,
                    placement: placement.clone(),
                    pairing: Some(Pairing { pairs: pairs.clone(), locality: pairing.locality }),
                    locality: pairing.locality,
                    start: StartSync::None,
                    count: settings.args.window,
                    pattern: None,
                    threads,
                    tagged,
                }));
            }
        }
    }
    Ok(())
}

/// Whether an operation over so many ranks can be of this size.
fn can_have(operation: Operation, size: u64, ranks: u64) -> bool {
    // A total that leaves less than a byte for each would measure the empty operation again and
    // again.
    let too_little = operation.mode == SizeMode::Total && size > 0 && size < ranks;
    // What is summed are 64-bit floats.
    let in_pieces = operation.kind.sums() && !size.is_multiple_of(8);
    !too_little && !in_pieces
}

/// What is not measured of what was asked for, and why: a line for each operation.
#[must_use]
pub fn left_out(settings: &Settings, layout: &Layout) -> Vec<String> {
    let most = match settings.placements.as_slice() {
        [] => layout.nodes.len(),
        asked => asked.iter().map(|&(n, p)| n * p).max().unwrap_or(0),
    } as u64;
    let line = |&operation: &Operation| {
        let sizes = settings.sizes.iter().filter(|&&size| !can_have(operation, size, most));
        let sizes: Vec<String> = sizes.map(u64::to_string).collect();
        let why = if operation.kind.sums() {
            "it sums 64-bit floats, so that sizes are multiples of 8".to_owned()
        } else {
            format!("its size is divided among {most} processes")
        };
        (!sizes.is_empty()).then(|| format!("{operation} is not measured at {} bytes: {why}", sizes.join(", ")))
    };
    settings
        .operations
        .iter()
        .filter(|op| op.kind.class() != Class::Kernel && op.kind.has_size() && op.kind != Kind::Pattern)
        .filter_map(line)
        .collect()
}

/// The sizes at which an operation over so many ranks is measured.
fn sizes(settings: &Settings, operation: Operation, ranks: u64) -> Result<Vec<u64>> {
    if !operation.kind.has_size() {
        return Ok(vec![operation.kind.only_size()]);
    }
    let sizes: Vec<u64> = settings.sizes.iter().copied().filter(|&size| can_have(operation, size, ranks)).collect();
    if !sizes.is_empty() {
        return Ok(sizes);
    }
    let wants = if operation.kind.sums() {
        "sums 64-bit floats, and no size is a multiple of 8".to_owned()
    } else {
        format!("divides its size, and none reaches {ranks} bytes, one for each process")
    };
    Err(BenchError::Usage(format!("{operation} {wants}")))
}

fn collectives(
    settings: &Settings,
    layout: &Layout,
    placement: &Placement,
    operation: Operation,
    start: StartSync,
    cells: &mut Vec<Spec>,
) -> Result<()> {
    let blocks = sizes(settings, operation, placement.members.len() as u64)?;
    cells.extend(blocks.into_iter().map(|size| Spec {
        operation,
        size,
        placement: placement.clone(),
        pairing: None,
        locality: layout.locality(placement),
        start,
        count: 0,
        pattern: None,
        threads: None,
        tagged: None,
    }));
    Ok(())
}

fn kernel(
    settings: &Settings,
    layout: &Layout,
    placement: &Placement,
    operation: Operation,
    size: u64,
) -> Result<Spec> {
    let ranks = placement.members.len();
    kernels::fits(operation.kind, ranks)?;
    Ok(Spec {
        operation,
        size,
        placement: placement.clone(),
        pairing: None,
        locality: layout.locality(placement),
        start: StartSync::Barrier,
        count: settings.args.iterations.unwrap_or(kernels::default_iterations(operation.kind)),
        pattern: None,
        threads: None,
        tagged: Tagged::asked(operation.kind, &settings.args.tagged)?,
    })
}

/// The user's own pattern, at each size if it speaks of one.
fn pattern(
    settings: &Settings,
    layout: &Layout,
    placement: &Placement,
    start: StartSync,
    cells: &mut Vec<Spec>,
) -> Result<()> {
    let Some((pattern, file)) = settings.pattern.as_deref().zip(settings.args.pattern.as_deref()) else {
        return Err(BenchError::Usage("pattern: no file is named; weir bench --pattern FILE".into()));
    };
    let sizes = if pattern.has_size() { settings.sizes.as_slice() } else { &[0] };
    for &size in sizes {
        let plan = pattern.plan(placement.members.len(), size, file);
        let plan = plan.map_err(|fault| BenchError::Usage(fault.of(file)))?;
        cells.push(Spec {
            operation: Operation { kind: Kind::Pattern, mode: SizeMode::Message },
            size,
            placement: placement.clone(),
            pairing: None,
            locality: layout.locality(placement),
            start,
            count: 0,
            pattern: Some(Arc::new(plan)),
            threads: None,
            tagged: None,
        });
    }
    Ok(())
}

/// Share of a node's available memory that the buffers may take: the MPI library needs some too.
const SHARE: f64 = 0.6;

/// So much memory, in words.
fn memory(bytes: u64) -> String {
    let (value, unit) = match bytes {
        0..0x2_8000_0000 => (bytes >> 20, "MiB"),
        0x2_8000_0000..0xa00_0000_0000 => (bytes >> 30, "GiB"),
        _ => (bytes >> 40, "TiB"),
    };
    format!("{value} {unit}")
}

/// A number of things: `1 node`, `2 nodes`.
pub(crate) fn many(count: usize, thing: &str) -> String {
    format!("{count} {thing}{}", if count == 1 { "" } else { "s" })
}

/// The same with its verb: `is 1 node`, `are 2 nodes`.
pub(crate) fn are(count: usize, thing: &str) -> String {
    format!("{} {}", if count == 1 { "is" } else { "are" }, many(count, thing))
}

/// Refuses sizes that do not fit, before anything is measured.
///
/// # Errors
/// [`BenchError::Usage`], naming the operation, the size and the node.
pub fn check_memory(cells: &[Spec], layout: &Layout, rooms: &[Room], most_bytes: u64) -> Result<()> {
    for cell in cells {
        let ranks = cell.placement.members.len();
        let own = cell.operation.block_bytes(cell.size, ranks);
        let block = cell.pattern.as_ref().map_or(own, |pattern| pattern.longest());
        if block > most_bytes {
            let text = format!(
                "{} of {block} bytes: a message may have {most_bytes} at most; give smaller --sizes",
                cell.operation
            );
            return Err(BenchError::Usage(text));
        }
        let (out, into) = cell.buffer_bytes();
        let (out, into) = if cell.operation.kind.sums() { (cell.size, cell.size) } else { (out, into) };
        // What a kernel works on, and what others reach, which is as long as a message.
        let besides = if cell.operation.kind.class() == Class::OneSided { cell.size } else { 0 };
        let (out, into) = cell.tagged_bytes().unwrap_or((out, into));
        // Unexpected messages are copied once more.
        let need = out.saturating_add(into.saturating_mul(2)).saturating_add(besides);
        let need = need.saturating_mul(cell.threads.map_or(1, |threads| threads.count.into()));
        for (node, room) in rooms.iter().enumerate() {
            let Some(available) = room.available_bytes else { continue };
            let here = cell.active().iter().filter(|&&rank| layout.nodes[rank] == node).count() as u64;
            let all = need.saturating_mul(here);
            if all as f64 > available as f64 * SHARE {
                // A pattern has sizes of its own.
                let smaller = if cell.pattern.is_some() { "sizes, in --sizes or in the file" } else { "--sizes" };
                let text = format!(
                    "{} of {} bytes needs about {} for {} on {}, where {} are available; give smaller {smaller}",
                    cell.operation,
                    cell.size,
                    memory(all),
                    many(here as usize, "rank"),
                    room.name,
                    memory(available)
                );
                return Err(BenchError::Usage(text));
            }
        }
    }
    Ok(())
}

/// Shuffles the cells (Fisher and Yates): what changes slowly on a machine must not look like an
/// effect of size.
pub fn shuffle<T>(cells: &mut [T], seed: u64) {
    let mut random = Pcg64::seed_from_u64(seed);
    for i in (1..cells.len()).rev() {
        let j = (u128::from(random.next_u64()) * (i as u128 + 1)) >> 64;
        cells.swap(i, j as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::tests::args;

    fn plan(words: &[&str], nodes: &[usize]) -> Result<Vec<Spec>> {
        cells(&args(words).settings().unwrap(), &Layout { nodes: nodes.to_vec() }, StartSync::Barrier)
    }

    fn refusal(words: &[&str], nodes: &[usize]) -> String {
        plan(words, nodes).unwrap_err().to_string()
    }

    #[test]
    fn the_default_plan_is_of_all_ranks() {
        let cells = plan(&[], &[0, 0, 1, 1]).unwrap();
        // Three operations between pairs, between and within nodes; three collectives; a barrier.
        assert_eq!(cells.len(), 3 * 2 * 6 + 3 * 6 + 1);
        assert!(cells.iter().filter(|c| c.pairing.is_some()).all(|c| c.configuration().pairs == 2));
        let one_node = plan(&[], &[0, 0, 0, 0]).unwrap();
        assert_eq!(one_node.len(), 3 * 6 + 3 * 6 + 1);
        assert!(one_node.iter().all(|c| c.locality == Locality::Intra));
    }

    #[test]
    fn contention_levels_take_some_of_the_pairs() {
        let cells = plan(&["-t", "isend", "-s", "8", "--pairs", "1,2"], &[0, 1, 0, 1]).unwrap();
        let inter: Vec<Vec<usize>> = cells.iter().filter(|c| c.locality == Locality::Inter).map(Spec::active).collect();
        assert_eq!(inter, [vec![0, 1], vec![0, 1, 2, 3]]);
        assert_eq!(cells[1].part(2), Some((3, true)));
    }

    #[test]
    fn each_number_of_threads_is_a_cell_where_threads_are_heeded() {
        let names = |words: &[&str]| -> Vec<(String, BTreeMap<String, String>)> {
            let cells = plan(words, &[0, 1]).unwrap();
            cells.iter().map(|c| (c.operation.to_string(), c.configuration().parameters)).collect()
        };
        let of = |pairs: &[(&str, &str)]| pairs.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        let asked = names(&["-t", "ping-pong,send", "-s", "8", "--threads", "1,3"]);
        let expected =
            [("ping-pong", of(&[("threads", "1")])), ("ping-pong", of(&[("threads", "3")])), ("send", of(&[]))];
        assert_eq!(asked, expected.map(|(name, parameters)| (name.to_owned(), parameters)));
        let asked = names(&["-t", "stream", "-s", "8", "--threads", "2", "--threads-by", "tag", "--window", "5"]);
        assert_eq!(asked[0].1, of(&[("threads", "2"), ("threads_by", "tag"), ("window", "5")]));
    }

    #[test]
    fn inter_asked_for_is_inter_measured() {
        let localities = |words: &[&str], nodes: &[usize]| -> Vec<(Locality, Vec<(usize, usize)>)> {
            let cells = plan(words, nodes).unwrap();
            cells.iter().map(|c| (c.locality, c.pairing.as_ref().unwrap().pairs.clone())).collect()
        };
        let asked = localities(&["-t", "send", "-s", "8", "--locality", "inter"], &[0, 0, 0, 1]);
        assert_eq!(asked, [(Locality::Inter, vec![(0, 3)])]);
        let not_asked = localities(&["-t", "send", "-s", "8"], &[0, 0, 0, 1]);
        assert_eq!(not_asked[0].0, Locality::Mixed);
        assert!(
            refusal(&["-t", "send", "--locality", "inter", "--pairs", "2"], &[0, 0, 0, 1]).contains("1 pair at most")
        );
    }

    #[test]
    fn sizes_that_cannot_be_summed_are_told() {
        let told = |words: &[&str]| left_out(&args(words).settings().unwrap(), &Layout { nodes: vec![0; 4] });
        let one = told(&["-t", "reduce,bcast", "-s", "1,8,12,16"]);
        assert_eq!(one.len(), 1);
        assert!(one[0].contains("reduce") && one[0].contains("1, 12"), "{one:?}");
        let totals = told(&["-t", "gather-total", "-s", "0,1,2,8"]);
        assert!(totals[0].contains("gather-total") && totals[0].contains("1, 2"), "{totals:?}");
        assert!(told(&["-t", "all", "-s", "8,16"]).is_empty());
    }

    #[test]
    fn repetitions_beyond_what_rank_0_can_hold_are_refused_with_the_most_that_it_can() {
        let text = refusal(&["-t", "send", "-s", "8", "--reps", "100000000"], &[0, 0]);
        assert!(text.contains("--reps 100000000") && text.contains("at most 5000000"), "{text}");
        assert!(plan(&["-t", "send", "-s", "8", "--reps", "5000000"], &[0, 0]).is_ok());
    }

    #[test]
    fn what_the_machine_cannot_do_is_refused_in_one_line() {
        let cases: [(&[&str], &[usize], &str); 9] = [
            (&["-t", "reduce", "-s", "1,2"], &[0; 4], "no size is a multiple of 8"),
            (
                &[],
                &[0],
                "there is one process, and nobody to exchange messages with; start at least two, e.g.: mpiexec -n 2",
            ),
            (&["--transport", "weir", "-n", "1"], &[0], "messages with; start at least two: -n 2"),
            (&["-t", "send"], &[0, 0, 0], "3 is odd; start 2 or 4, or measure what needs no pairs: -t collectives"),
            (&["-t", "send", "--pairs", "3"], &[0, 1, 0, 1], "make 2 pairs"),
            (&["-t", "fft"], &[0; 6], "power of two"),
            (&["--placement", "3x1"], &[0, 1], "does not fit"),
            (&["-t", "send", "--locality", "inter"], &[0, 0], "on one node"),
            (&["-t", "gather-total", "-s", "1,2"], &[0; 4], "none reaches 4 bytes"),
        ];
        for (words, nodes, expected) in cases {
            let text = refusal(words, nodes);
            assert!(text.contains(expected) && !text.contains('\n'), "{text}");
        }
        assert!(plan(&["-t", "barrier,bcast"], &[0, 0, 0]).is_ok());
    }

    #[test]
    fn sizes_beyond_memory_are_refused() {
        let cells = plan(&["-t", "alltoall", "-s", "1G"], &[0; 4]).unwrap();
        let room = |bytes| [Room { name: "n".into(), available_bytes: Some(bytes) }];
        let layout = Layout { nodes: vec![0; 4] };
        let text = check_memory(&cells, &layout, &room(8 << 30), u64::MAX).unwrap_err().to_string();
        assert!(text.contains("needs about 48 GiB for 4 ranks on n, where 8192 MiB"), "{text}");
        assert!(check_memory(&cells, &layout, &room(100 << 30), u64::MAX).is_ok());
        assert!(check_memory(&cells, &layout, &room(100 << 30), 1 << 20).is_err());
        let cells = plan(&["-t", "ping-pong", "-s", "1G", "--threads", "4"], &[0; 4]).unwrap();
        let text = check_memory(&cells, &layout, &room(8 << 30), u64::MAX).unwrap_err().to_string();
        assert!(text.contains("needs about 48 GiB for 4 ranks"), "{text}");
    }

    #[test]
    fn the_order_follows_from_the_seed() {
        let cells = plan(&[], &[0, 1]).unwrap();
        let shuffled = |seed| {
            let mut copy = cells.clone();
            shuffle(&mut copy, seed);
            copy
        };
        assert_eq!(shuffled(1), shuffled(1));
        assert_ne!(shuffled(1), shuffled(2));
        let mut back = shuffled(1);
        back.sort_by_key(|c| (c.operation, c.size));
        let mut all = cells.clone();
        all.sort_by_key(|c| (c.operation, c.size));
        assert_eq!(back, all);
    }
}
