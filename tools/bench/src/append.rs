//! Another launch in a run that is there: of the same machine, set up in the same way, its
//! repetitions begun in the same way. Else the launches are no repetitions of each other, and
//! medians over them mean nothing.

use std::collections::BTreeMap;
use std::path::Path;

use weir_distribution::{Between, Cell, Configuration, Launch, Reader, Run, StartSync, State, is_of_a_launch};

use crate::error::{BenchError, Result};
use crate::operation::Class;
use crate::options::{Settings, Start};
use crate::plan::Spec;

/// How a cell's repetitions are begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Begun {
    /// The way.
    pub start: StartSync,
    /// Whether somebody asked for it, or an earlier launch had it, so that a barrier must not take
    /// its place.
    pub fixed: bool,
}

/// The run to which a launch is to be added, if there is one.
///
/// # Errors
/// The run cannot be read.
pub fn earlier(settings: &Settings) -> Result<Option<Run>> {
    match &settings.args.output {
        Some(dir) if settings.args.append && is_run(dir) => {
            let reader = Reader::open(dir).map_err(|error| BenchError::Told(error.to_string()))?;
            Ok(Some(reader.into_run()))
        }
        _ => Ok(None),
    }
}

/// Whether there is a run in a folder.
#[must_use]
pub fn is_run(dir: &Path) -> bool {
    dir.join("run.json").exists()
}

/// How each cell's repetitions are begun: as asked, or as in the run whose like is measured; else
/// as in the launches before, else as `fresh` says, what this launch found best.
///
/// # Errors
/// [`BenchError::Usage`] if what is asked is not what the run has.
pub fn starts(settings: &Settings, cells: &[Spec], earlier: Option<&Run>, fresh: StartSync) -> Result<Vec<Begun>> {
    let like = settings.args.like.is_some();
    let asked = match settings.args.start {
        Start::Auto => None,
        Start::Barrier => Some(StartSync::Barrier),
        Start::Window => Some(StartSync::Window),
        Start::None => Some(StartSync::None),
    };
    let there = earlier.map_or(&[][..], |run| run.cells.as_slice());
    let usual = usual(there);
    let begun = |spec: &Spec| {
        // Between pairs there is nothing to begin together, and kernels take long: neither is a
        // matter of choice.
        if spec.operation.kind.class() != Class::Collective {
            return Ok(Begun { start: spec.start, fixed: true });
        }
        let same: Vec<StartSync> = of_cell(there, &spec.configuration());
        let wanted = if like { Some(spec.start) } else { asked };
        match (wanted, same.first()) {
            (Some(wanted), Some(&there)) if !same.contains(&wanted) => {
                let name = spec.operation;
                let option = if like { "--like, which begins by" } else { "--start" };
                let text = format!(
                    "{option} {}: earlier launches of this run began {name} by {}; leave out {}, or name another folder",
                    word(wanted),
                    word(there),
                    if like { "--like" } else { "--start" }
                );
                Err(BenchError::Usage(text))
            }
            (Some(start), _) => Ok(Begun { start, fixed: true }),
            (None, Some(&start)) => Ok(Begun { start, fixed: true }),
            // A size that is new to the run, of an operation that is not: one operation is begun in
            // one way.
            (None, None) => Ok(match of_operation(there, &spec.configuration()) {
                Some(start) => Begun { start, fixed: true },
                None => Begun { start: usual.unwrap_or(fresh), fixed: false },
            }),
        }
    };
    cells.iter().map(begun).collect()
}

/// What a run's cells of this configuration were begun by.
fn of_cell(there: &[Cell], configuration: &Configuration) -> Vec<StartSync> {
    let as_there = |start| Configuration { start, ..configuration.clone() };
    let same = there.iter().filter(|cell| cell.configuration == as_there(cell.configuration.start));
    same.map(|cell| cell.configuration.start).collect()
}

/// What a run's cells of this operation were begun by, whatever their size.
fn of_operation(there: &[Cell], configuration: &Configuration) -> Option<StartSync> {
    let is_it = |cell: &&Cell| {
        cell.configuration.operation == configuration.operation
            && cell.configuration.size_mode == configuration.size_mode
    };
    there.iter().find(is_it).map(|cell| cell.configuration.start)
}

/// What a run's collectives were begun by: by windows if any was, as single cells in which they did
/// not work were begun by barriers.
fn usual(there: &[Cell]) -> Option<StartSync> {
    let kernel = |cell: &Cell| cell.configuration.parameters.contains_key("iterations");
    let collectives = there.iter().filter(|cell| cell.configuration.pairs == 0 && !kernel(cell));
    let starts: Vec<StartSync> = collectives.map(|cell| cell.configuration.start).collect();
    let windows = starts.iter().find(|start| **start == StartSync::Window);
    windows.or(starts.first()).copied()
}

fn word(start: StartSync) -> &'static str {
    match start {
        StartSync::None => "none",
        StartSync::Barrier => "barrier",
        StartSync::Window => "window",
    }
}

fn compared(settings: &BTreeMap<String, String>) -> BTreeMap<&str, &str> {
    settings
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .filter(|(name, _)| !is_of_a_launch(name))
        .collect()
}

/// Refuses a launch of another machine, or of one set up in another way, naming what differs.
///
/// # Errors
/// [`BenchError::Usage`].
pub fn same_machine(dir: &Path, there: &Run, here: &Run, launch: &Launch) -> Result<()> {
    let of = |run: &Run| {
        let none = || "none".to_owned();
        let mpi = run.mpi.as_ref();
        let with =
            |name: &str, more: Option<&String>| more.map_or_else(|| name.to_owned(), |more| format!("{name} ({more})"));
        let nodes: Vec<String> = run.nodes.iter().map(|n| with(&n.name, n.cpu.as_ref())).collect();
        [
            ("transport", with(&run.transport.backend, run.transport.provider.as_ref())),
            ("MPI library", mpi.map_or_else(none, |mpi| mpi.library_version.clone())),
            ("ABI of the MPI library", mpi.and_then(|mpi| mpi.abi.clone()).unwrap_or_else(none)),
            ("list of nodes", nodes.join(", ")),
        ]
    };
    let differs = |what: &str, there: &str, here: &str| {
        let text = format!("--append: {what} of the run in {} is {there}, here it is {here}", dir.display());
        Err(BenchError::Usage(text))
    };
    for ((what, there), (_, here)) in of(there).into_iter().zip(of(here)) {
        if there != here {
            return differs(what, &there, &here);
        }
    }
    let (before, now) = (Between::nodes_of(there), Between::nodes_of(here));
    if before.differs_from(now) {
        return differs("network", &before.told(), &now.told());
    }
    let (before, now) = (compared(&there.transport.settings), compared(&here.transport.settings));
    let names = before.keys().chain(now.keys());
    if let Some(name) = names.copied().find(|name| before.get(name) != now.get(name)) {
        let value =
            |settings: &BTreeMap<&str, &str>| settings.get(name).map_or("not set".to_owned(), |v| format!("{v:?}"));
        return differs(name, &value(&before), &value(&now));
    }
    let Some(first) = there.launches.iter().find(|l| !l.placement.is_empty()) else { return Ok(()) };
    let places = |launch: &Launch| -> Vec<String> { launch.placement.iter().map(|p| p.node.to_string()).collect() };
    let (before, now) = (places(first), places(launch));
    if before != now {
        return differs("the node of each rank", &before.join(", "), &now.join(", "));
    }
    let pinned = first.placement.iter().zip(&launch.placement).find(|(a, b)| a.pinned != b.pinned);
    let words = |pinned| if pinned { "kept on one processor" } else { "free to move" };
    pinned.map_or(Ok(()), |(a, b)| differs(&format!("rank {}", a.rank), words(a.pinned), words(b.pinned)))
}

/// The state of a run from those of its launches: complete only if all are. One that was killed is
/// `running` for ever.
#[must_use]
pub fn state_of(launches: &[Launch]) -> State {
    let complete = launches.iter().all(|launch| launch.state == State::Complete);
    if complete { State::Complete } else { State::Stopped }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::tests::args;
    use crate::pairing::Layout;
    use weir_distribution::{MpiInfo, Network, Node, Placement};

    fn planned(words: &[&str]) -> Vec<Spec> {
        let layout = Layout { nodes: vec![0, 1] };
        crate::plan::cells(&args(words).settings().unwrap(), &layout, StartSync::Barrier).unwrap()
    }

    fn run_of(cells: &[(Spec, StartSync)]) -> Run {
        let mut run = Run::new("m");
        run.cells = cells
            .iter()
            .zip(0..)
            .map(|((spec, start), id)| Cell::new(id, 0, Configuration { start: *start, ..spec.configuration() }))
            .collect();
        run
    }

    #[test]
    fn an_added_launch_begins_each_cell_as_the_earlier_ones_did() {
        let cells = planned(&["-t", "barrier,bcast,reduce,send,jacobi", "-s", "8", "--iterations", "2"]);
        let of = |name: &str| cells.iter().find(|c| c.operation.to_string() == name).unwrap().clone();
        let run = run_of(&[(of("bcast"), StartSync::Window), (of("barrier"), StartSync::Barrier)]);
        let begun = starts(&args(&[]).settings().unwrap(), &cells, Some(&run), StartSync::Barrier).unwrap();
        let found: Vec<(String, StartSync, bool)> =
            cells.iter().zip(begun).map(|(c, b)| (c.operation.to_string(), b.start, b.fixed)).collect();
        let expected =
            |name: &str, start, fixed| assert!(found.contains(&(name.to_owned(), start, fixed)), "{name}: {found:?}");
        expected("bcast", StartSync::Window, true);
        expected("barrier", StartSync::Barrier, true);
        // New to the run: as most of it.
        expected("reduce", StartSync::Window, false);
        expected("send", StartSync::None, true);
        expected("jacobi", StartSync::Barrier, true);
        // A size that no launch had.
        let larger: Vec<Spec> = planned(&["-t", "barrier,bcast", "-s", "64"]);
        let begun = starts(&args(&[]).settings().unwrap(), &larger, Some(&run), StartSync::Barrier).unwrap();
        let bcast = larger.iter().position(|c| c.operation.to_string() == "bcast").unwrap();
        assert_eq!(begun[bcast], Begun { start: StartSync::Window, fixed: true });
    }

    #[test]
    fn what_is_asked_must_be_what_the_run_has() {
        let cells = planned(&["-t", "bcast", "-s", "8"]);
        let run = run_of(&[(cells[0].clone(), StartSync::Window)]);
        let asked = |words: &[&str]| {
            let settings = args(words).settings().unwrap();
            starts(&settings, &cells, Some(&run), StartSync::Barrier).map(|b| (b[0].start, b[0].fixed))
        };
        assert_eq!(asked(&["--start", "window"]).unwrap(), (StartSync::Window, true));
        let text = asked(&["--start", "barrier"]).unwrap_err().to_string();
        assert!(text.contains("--start barrier: earlier launches of this run began bcast by window"), "{text}");
        // The cells of a run whose like is measured say themselves how they begin: by a barrier,
        // here.
        let text = asked(&["--like", "run1"]).unwrap_err().to_string();
        assert!(text.contains("--like, which begins by barrier: earlier launches"), "{text}");
        let fresh = starts(&args(&[]).settings().unwrap(), &cells, None, StartSync::Window).unwrap();
        assert_eq!(fresh, [Begun { start: StartSync::Window, fixed: false }]);
    }

    fn machine() -> (Run, Launch) {
        let mut run = Run::new("m");
        run.nodes = vec![Node { name: "a".into(), ..Node::default() }, Node { name: "b".into(), ..Node::default() }];
        run.mpi = Some(MpiInfo { library_version: "MPICH 5".into(), abi: Some("mpich".into()), ..MpiInfo::default() });
        for (name, value) in [("FI_PROVIDER", "tcp"), ("WEIR_KEY", "(not kept)"), ("OMPI_MCA_initial_wdir", "/a")] {
            run.transport.settings.insert(name.into(), value.into());
        }
        let placement = (0..2).map(|rank| Placement { rank, node: rank, processors: vec![rank], pinned: true });
        let launch = Launch { placement: placement.collect(), ..Launch::default() };
        run.launches.push(launch.clone());
        (run, launch)
    }

    #[test]
    fn what_sets_launches_apart_is_named() {
        let (run, launch) = machine();
        let refusal = |change: &dyn Fn(&mut Run, &mut Launch)| {
            let (mut other, mut added) = (run.clone(), launch.clone());
            change(&mut other, &mut added);
            same_machine(Path::new("run1"), &run, &other, &added)
                .err()
                .map(|error| error.to_string())
                .unwrap_or_default()
        };
        let set = |name: &'static str, value: &'static str| {
            move |run: &mut Run, _: &mut Launch| {
                run.transport.settings.insert(name.into(), value.into());
            }
        };
        assert_eq!(refusal(&|_, _| ()), "");
        assert_eq!(refusal(&set("OMPI_MCA_initial_wdir", "/b")), "");
        assert_eq!(refusal(&set("WEIR_KEY_FILE", "/k")), "");
        assert_eq!(refusal(&set("WEIR_EMULATE_NAME", "net-2")), "");
        let text = refusal(&set("FI_PROVIDER", "weir"));
        assert_eq!(text, "--append: FI_PROVIDER of the run in run1 is \"tcp\", here it is \"weir\"");
        assert!(refusal(&set("UCX_TLS", "tcp")).contains("UCX_TLS of the run in run1 is not set"));
        assert!(refusal(&set("WEIR_STREAMS", "2")).contains("WEIR_STREAMS"));
        let other_abi = |run: &mut Run, _: &mut Launch| run.mpi.as_mut().unwrap().abi = Some("standard".into());
        assert!(refusal(&other_abi).contains("ABI"));
        assert!(refusal(&|_, l| l.placement[1].pinned = false).contains("rank 1 of the run in run1 is kept on one"));
        assert!(
            refusal(&|_, l| l.placement[1].node = 0)
                .contains("the node of each rank of the run in run1 is 0, 1, here it is 0, 0")
        );
        let text = refusal(&|run, _| run.nodes[1].name = "c".into());
        assert_eq!(text, "--append: list of nodes of the run in run1 is a, b, here it is a, c");
        let text = refusal(&|run, _| run.mpi.as_mut().unwrap().library_version = "Open MPI v5.0.11".into());
        assert_eq!(text, "--append: MPI library of the run in run1 is MPICH 5, here it is Open MPI v5.0.11");
        let text = refusal(&|run, _| run.mpi = None);
        assert_eq!(text, "--append: MPI library of the run in run1 is MPICH 5, here it is none");
        let emulated = |run: &mut Run, _: &mut Launch| {
            run.network = Some(Network { emulator: "e".into(), ..Network::default() });
        };
        let text = refusal(&emulated);
        assert_eq!(
            text,
            "--append: network of the run in run1 is none that was emulated, as far as the run tells, here it is emulated by e"
        );
        // On another processor, but as free to move as before.
        assert_eq!(refusal(&|_, l| l.placement[1].processors = vec![7]), "");
    }

    #[test]
    fn a_run_is_complete_if_all_its_launches_are() {
        let launch = |state| Launch { state, ..Launch::default() };
        let of = |states: &[State]| state_of(&states.iter().map(|s| launch(*s)).collect::<Vec<_>>());
        assert_eq!(of(&[State::Complete, State::Complete]), State::Complete);
        assert_eq!(of(&[State::Running, State::Complete]), State::Stopped);
        assert_eq!(of(&[State::Stopped, State::Complete]), State::Stopped);
    }
}
