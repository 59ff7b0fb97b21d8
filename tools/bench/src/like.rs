//! Measuring what another run measured: cells with its configurations, so that each has a partner
//! when the two are compared. What a run chooses for itself, how repetitions begin and where the
//! partners are, is taken over as well.

use std::collections::BTreeSet;
use std::sync::Arc;

use weir_distribution::{Configuration, Locality, Reader};

use crate::error::{BenchError, Result};
use crate::kernels;
use crate::machine::{Apart, MOST_THREADS};
use crate::operation::{Class, Kind, Operation};
use crate::options::Settings;
use crate::pairing::{Layout, Pairing, Placement};
use crate::pattern::Plan;
use crate::plan::{self, Spec, room_for_samples};
use crate::tagged::Tagged;
use crate::threads::Threads;

/// The configurations of the run that is to be measured again, each once; nothing if none is named.
/// Rank 0 reads it.
///
/// # Errors
/// The run cannot be read, or has no cells.
pub fn wanted(settings: &Settings) -> Result<Option<Vec<Configuration>>> {
    let Some(dir) = &settings.args.like else { return Ok(None) };
    let reader = Reader::open(dir).map_err(|error| BenchError::Usage(format!("--like: {error}")))?;
    let configurations: BTreeSet<Configuration> =
        reader.into_run().cells.into_iter().map(|cell| cell.configuration).collect();
    if configurations.is_empty() {
        return Err(BenchError::Usage(format!("--like {}: the run has no cells", dir.display())));
    }
    Ok(Some(configurations.into_iter().collect()))
}

/// Cells of these configurations.
///
/// # Errors
/// [`BenchError::Usage`] with the first that these ranks cannot measure.
pub fn cells(settings: &Settings, wanted: &[Configuration], layout: &Layout) -> Result<Vec<Spec>> {
    if let (Some(file), Some(run)) = (&settings.args.pattern, &settings.args.like)
        && !wanted.iter().any(|c| c.operation == Kind::Pattern.name())
    {
        let text = "has no pattern, and --like measures what is in it; leave --pattern out, or measure the file alone";
        return Err(BenchError::Usage(format!("--pattern {}: the run {} {text}", file.display(), run.display())));
    }
    let cells: Vec<Spec> = wanted.iter().map(|c| cell(settings, c, layout)).collect::<Result<_>>()?;
    room_for_samples(settings, &cells)?;
    Ok(cells)
}

fn cell(settings: &Settings, c: &Configuration, layout: &Layout) -> Result<Spec> {
    let refused = |why: String| {
        BenchError::Usage(format!("--like: {} of {} bytes cannot be measured here: {why}", c.label(), c.size_bytes))
    };
    let operation = Operation::all().into_iter().find(|op| c.operation == op.kind.name() && op.mode == c.size_mode);
    let operation = operation.ok_or_else(|| refused("this version has no such operation".into()))?;
    let placement = placement(c, layout).ok_or_else(|| refused(other_ranks(c, layout)))?;
    let pairing = match operation.kind.class() {
        class if class.is_paired() => {
            Some(pairing(c, layout, &placement).ok_or_else(|| refused(other_ranks(c, layout)))?)
        }
        _ => None,
    };
    if operation.kind.class() == Class::Kernel {
        kernels::fits(operation.kind, placement.members.len())?;
    }
    let number = |name: &str| c.parameters.get(name).and_then(|value| value.parse::<u32>().ok()).filter(|n| *n > 0);
    let count = match operation.kind.class() {
        Class::PointToPoint | Class::OneSided => number("window").unwrap_or(settings.args.window),
        Class::Kernel => number("iterations").unwrap_or(kernels::default_iterations(operation.kind)),
        Class::Collective => 0,
    };
    let locality = pairing.as_ref().map_or_else(|| layout.locality(&placement), |pairing| pairing.locality);
    let apart =
        if c.parameters.get("threads_by").is_some_and(|by| by == "tag") { Apart::Tag } else { Apart::Communicator };
    let threads = number("threads").filter(|count| operation.kind.has_threads() && *count <= MOST_THREADS);
    let threads = threads.map(|count| Threads { count, apart });
    if threads.is_some() && settings.args.threads.is_empty() {
        let why = "it was between threads, for which the MPI library is asked beforehand; add --threads 1";
        return Err(refused(why.into()));
    }
    let pattern = match operation.kind {
        Kind::Pattern => Some(pattern(settings, c, &refused)?),
        _ => None,
    };
    let tagged = Tagged::asked(operation.kind, &settings.args.tagged)?.map(|asked| asked.had(&c.parameters));
    let (size, start) = (c.size_bytes, c.start);
    let spec = Spec { operation, size, placement, pairing, locality, start, count, pattern, threads, tagged };
    // Whatever else a run says of itself: a cell that is not its like would have no partner.
    match spec.configuration() == *c {
        true => Ok(spec),
        false => Err(refused(format!("its like would be {:?} instead of {c:?}", spec.configuration()))),
    }
}

/// The plan of the pattern that a cell had, from the same file.
fn pattern(settings: &Settings, c: &Configuration, refused: &dyn Fn(String) -> BenchError) -> Result<Arc<Plan>> {
    let label = c.parameters.get("pattern").map_or("", String::as_str);
    let Some((pattern, file)) = settings.pattern.as_deref().zip(settings.args.pattern.as_deref()) else {
        return Err(refused(format!("it was the pattern {label}; name its file by --pattern")));
    };
    if pattern.label(file) != label {
        return Err(refused(format!("it was the pattern {label}, {} is {}", file.display(), pattern.label(file))));
    }
    let plan = pattern.plan(c.ranks as usize, c.size_bytes, file).map_err(|fault| BenchError::Usage(fault.of(file)))?;
    Ok(Arc::new(plan))
}

fn placement(c: &Configuration, layout: &Layout) -> Option<Placement> {
    let (n, p) = (c.nodes as usize, c.ranks_per_node as usize);
    let fits = |placement: &Placement| {
        (placement.nodes, placement.per_node, placement.members.len()) == (n, p, c.ranks as usize)
    };
    Some(layout.everybody()).filter(fits).or_else(|| layout.placement(n, p).filter(fits))
}

fn pairing(c: &Configuration, layout: &Layout, placement: &Placement) -> Option<Pairing> {
    let pairing = match c.locality {
        Locality::Inter => layout.between(&placement.members),
        Locality::Intra => layout.within(&placement.members),
        Locality::Mixed => layout.complement(&placement.members),
    };
    let count = c.pairs as usize;
    let there = pairing.locality == c.locality && (1..=pairing.pairs.len()).contains(&count);
    there.then(|| Pairing { pairs: pairing.pairs[..count].to_vec(), locality: pairing.locality })
}

fn other_ranks(c: &Configuration, layout: &Layout) -> String {
    let most = layout.everybody();
    format!(
        "it was measured on {} ranks as {}x{}, here {} with at most {} on each; start as many as then, placed alike",
        c.ranks,
        c.nodes,
        c.ranks_per_node,
        plan::are(most.nodes, "node"),
        plan::many(most.per_node, "rank")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::tests::args;
    use crate::plan;
    use weir_distribution::StartSync;

    #[test]
    fn whatever_can_be_planned_has_its_like() {
        let lines: [(&str, &[usize]); 9] = [
            ("-t all -s 8,64 --iterations 3", &[0, 0, 1, 1]),
            ("-t message-rate -s 8 --window 7 --pairs 1,2", &[0, 1, 0, 1]),
            ("-t send,alltoall-total -s 64 --placement 2x1,2x2,1x2", &[0, 0, 1, 1]),
            ("-t send,bcast -s 8", &[0, 0, 0, 1]),
            ("-t send -s 8 --locality inter", &[0, 0, 0, 1]),
            (
                "-t farm,open-loop -s 8 --tags 3 --receive any --outstanding 2 --fanout 4 --compute 5 --interval 90",
                &[0, 1],
            ),
            ("-t default", &[0, 0]),
            ("-t stream,send -s 8 --threads 1,3", &[0, 1]),
            ("-t ping-pong -s 8 --threads 2 --threads-by tag", &[0, 1]),
        ];
        for (line, nodes) in lines {
            let words: Vec<&str> = line.split_whitespace().collect();
            let (settings, layout) = (args(&words).settings().unwrap(), Layout { nodes: nodes.to_vec() });
            let planned = plan::cells(&settings, &layout, StartSync::Window).unwrap();
            let wanted: Vec<Configuration> = planned.iter().map(Spec::configuration).collect();
            let like = cells(&args(&["--like", "run", "--threads", "1"]).settings().unwrap(), &wanted, &layout)
                .unwrap_or_else(|e| panic!("{line}: {e}"));
            for (one, other) in planned.iter().zip(&like) {
                let count = if one.operation.kind.has_window() { one.count } else { other.count };
                assert_eq!(&Spec { count, ..one.clone() }, other, "{line}");
            }
        }
    }

    #[test]
    fn a_pattern_that_the_other_run_has_not_is_not_passed_over() {
        let settings = args(&["--like", "run1", "--pattern", "halo.pattern"]).settings().unwrap();
        let layout = Layout { nodes: vec![0, 1] };
        let text = cells(&settings, &[Configuration::pair("send", 8)], &layout).unwrap_err().to_string();
        assert!(text.starts_with("--pattern halo.pattern: the run run1 has no pattern"), "{text}");
    }

    #[test]
    fn what_other_ranks_measured_is_refused_in_one_line() {
        let settings = args(&[]).settings().unwrap();
        let refused = |c: Configuration, nodes: &[usize]| {
            let layout = Layout { nodes: nodes.to_vec() };
            cells(&settings, &[c], &layout).unwrap_err().to_string()
        };
        let pair = Configuration::pair("send", 8);
        let text = refused(pair.clone(), &[0, 0]);
        let expected = "--like: send of 8 bytes cannot be measured here: it was measured on 2 ranks as 2x1, here is 1 node with at most 2 ranks on each";
        assert!(text.starts_with(expected) && !text.contains('\n'), "{text}");
        assert!(refused(Configuration { pairs: 2, ..pair.clone() }, &[0, 1]).contains("start as many as then"));
        assert!(refused(Configuration::pair("teleport", 8), &[0, 1]).contains("no such operation"));
        let threads = Configuration {
            parameters: [("threads".to_owned(), "2".to_owned())].into(),
            ..Configuration::pair("ping-pong", 8)
        };
        assert!(refused(threads, &[0, 1]).contains("add --threads 1"));
        let odd = Configuration { parameters: [("colour".to_owned(), "red".to_owned())].into(), ..pair };
        assert!(refused(odd, &[0, 1]).contains("instead of"));
    }
}
