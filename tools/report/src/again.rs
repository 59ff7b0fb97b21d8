//! Commands to type next: one that measures a run again as another one was measured, so that each
//! cell has a partner, and one that adds launches.

use std::path::Path;

use weir_distribution::Run;

use crate::digest::Digest;
use crate::units;

/// Options whose values are what is taken from the other run, or belong to one start of the
/// program: left out with their values.
const LEFT_OUT: [&str; 14] = [
    "--output",
    "--test",
    "--sizes",
    "--pairs",
    "--locality",
    "--placement",
    "--start",
    "--window",
    "--iterations",
    "--threads",
    "--threads-by",
    "--like",
    "--meet",
    "--launches",
];
/// The same by their letters.
const LETTERS: [&str; 3] = ["-o", "-t", "-s"];
/// Options without a value that are left out.
const FLAGS: [&str; 2] = ["--append", "--json"];

/// A command line as somebody typed it: the program, its words but for `bench`, and the launcher's
/// command after `--`, or the one that told its ranks, if there was one.
struct Typed<'a> {
    program: &'a str,
    words: Vec<&'a str>,
    launcher: Vec<&'a str>,
}

impl<'a> Typed<'a> {
    /// None for a run that no `weir bench` made.
    fn of(run: &'a Run) -> Option<Self> {
        let (program, rest) = run.command.split_first()?;
        let (_, rest) = rest.split_first().filter(|(word, _)| *word == "bench")?;
        let mut parts = rest.splitn(2, |word| word == "--");
        let mut part = || parts.next().unwrap_or_default().iter().map(String::as_str).collect();
        let (words, mut launcher): (_, Vec<&str>) = (part(), part());
        if launcher.is_empty() {
            launcher.extend(run.mpi.iter().flat_map(|mpi| &mpi.launcher_command).map(String::as_str));
        }
        Some(Self { program, words, launcher })
    }

    /// The benchmark of another kind, if it is one: its name.
    fn below(&self) -> Option<&'a str> {
        self.words.first().copied().filter(|word| *word == "serverload")
    }

    /// What starts ranks as those of `run` were: as it was typed, if that is known and was for as
    /// many; else by number and place, as the launcher's own options and the environment are not
    /// known.
    fn launcher(&self, run: &Run, as_then: bool) -> Vec<String> {
        if as_then && !self.launcher.is_empty() {
            return self.launcher.iter().map(|word| (*word).to_owned()).collect();
        }
        // What `weir run` has besides goes with any number of ranks.
        if let [program, "run", words @ ..] = self.launcher.as_slice() {
            let begin = [*program, "run", "-n"].map(str::to_owned);
            let rest = without(words.iter().copied(), &["--ranks", "--np", "-np"], &["-n"], &[]);
            return begin.into_iter().chain([ranks(run).to_string()]).chain(rest.map(str::to_owned)).collect();
        }
        let mut words = vec!["mpiexec".to_owned(), "-n".to_owned(), ranks(run).to_string()];
        words.extend(places(run));
        words
    }
}

/// Ranks of a run.
fn ranks(run: &Run) -> usize {
    run.launches.iter().map(|launch| launch.placement.len()).max().unwrap_or(0)
}

/// How a launcher is told the nodes of a run's ranks, where there are several with as many ranks on
/// each, in blocks or in turn; nothing else. On one node alone ranks that were on several would be
/// another placement, which is never compared with theirs, and so they would in another order.
fn places(run: &Run) -> Vec<String> {
    let Some(launch) = run.launches.iter().max_by_key(|launch| launch.placement.len()) else { return Vec::new() };
    let mut placement: Vec<(u32, u32)> = launch.placement.iter().map(|one| (one.rank, one.node)).collect();
    placement.sort_unstable();
    let of_ranks: Vec<u32> = placement.into_iter().map(|(_, node)| node).collect();
    let mut nodes = Vec::new();
    for node in &of_ranks {
        if !nodes.contains(node) {
            nodes.push(*node);
        }
    }
    let names: Vec<&str> = nodes.iter().filter_map(|&n| run.nodes.get(n as usize)).map(|n| n.name.as_str()).collect();
    let each = of_ranks.len() / nodes.len().max(1);
    let are = |node: &dyn Fn(usize) -> usize| {
        of_ranks.len() == nodes.len() * each && of_ranks.iter().enumerate().all(|(at, own)| *own == nodes[node(at)])
    };
    let (in_blocks, in_turn) = (are(&|at| at / each), are(&|at| at % nodes.len()));
    if names.len() < 2 || names.len() != nodes.len() || !(in_blocks || in_turn) {
        return Vec::new();
    }
    if run.mpi.as_ref().is_some_and(|mpi| mpi.abi.as_deref() == Some("open-mpi")) {
        let slots: Vec<String> = names.iter().map(|name| format!("{name}:{each}")).collect();
        let turns = if in_blocks { &[][..] } else { &["--map-by", "node"] };
        turns.iter().map(|word| (*word).to_owned()).chain(["--host".to_owned(), slots.join(",")]).collect()
    } else {
        // It goes round the nodes with so many ranks each time.
        let at_once = if in_blocks { each } else { 1 };
        vec!["-ppn".to_owned(), at_once.to_string(), "-hosts".to_owned(), names.join(",")]
    }
}

/// The command that measures `run`, in folder `second`, again as `like` in folder `first` was, on
/// as many ranks, as far as runs tell how they were started: none for a run that no `weir bench`
/// made.
#[must_use]
pub fn command(first: &Path, like: &Run, second: &Path, run: &Run) -> Option<String> {
    // A server's load is not measured by ranks.
    let typed = Typed::of(run).filter(|typed| typed.below().is_none())?;
    let mut words = vec![typed.program.to_owned(), "bench".to_owned(), "-o".to_owned()];
    words.push(format!("{}-like-{}", plain(second), first.file_name().unwrap_or_default().to_string_lossy()));
    words.extend(["--like".to_owned(), plain(first)]);
    // How many there are its cells say; but the MPI library is asked for them beforehand, and is
    // another one without.
    if like.cells.iter().any(|cell| cell.configuration.parameters.contains_key("threads")) {
        words.extend(["--threads".to_owned(), "1".to_owned()]);
    }
    words.extend(kept(typed.words.iter().copied()).map(str::to_owned));
    let launches = run.launches.len();
    if launches > 1 {
        words.extend(["--launches".to_owned(), launches.to_string()]);
    }
    let launcher = typed.launcher(like, ranks(like) == ranks(run));
    let all = match (run.transport.backend == "mpi", launches > 1) {
        (false, _) => words,
        (true, false) => launcher.into_iter().chain(words).collect(),
        (true, true) => words.into_iter().chain(["--".to_owned()]).chain(launcher).collect(),
    };
    Some(line(&all))
}

/// The command that adds `count` launches to a run, as far as runs tell how they were started: none
/// for a run that no `weir bench` made.
#[must_use]
pub fn more(dir: &Path, run: &Run, count: usize) -> Option<String> {
    let typed = Typed::of(run)?;
    let own = without(typed.words.iter().copied(), &["--output", "--meet", "--launches"], &["-o"], &FLAGS);
    let mut words = vec![typed.program.to_owned(), "bench".to_owned()];
    words.extend(typed.below().map(str::to_owned));
    words.extend(["-o".to_owned(), plain(dir)]);
    words.extend(own.skip(usize::from(typed.below().is_some())).map(str::to_owned));
    words.extend(["--append".to_owned(), "--launches".to_owned(), count.to_string()]);
    if run.transport.backend == "mpi" {
        words.push("--".to_owned());
        words.extend(typed.launcher(run, true));
    }
    Some(line(&words))
}

/// What to do for `count` launches more in a run: the command, or in words what to type where it is
/// not known.
#[must_use]
pub fn advice(digest: &Digest, count: usize) -> String {
    match digest.folder.as_deref().and_then(|dir| more(dir, &digest.run, count)) {
        Some(command) => format!("add {}, set up as then: {command}", units::plural_es(count as u64, "launch")),
        None => format!(
            "add {} with the command that made the run, --append and --launches {count}",
            units::plural_es(count as u64, "launch")
        ),
    }
}

/// Words as a line for a shell.
pub fn line<'a, S: AsRef<str> + ?Sized + 'a>(words: impl IntoIterator<Item = &'a S>) -> String {
    words.into_iter().map(|word| quoted(word.as_ref())).collect::<Vec<_>>().join(" ")
}

/// The words that stay where another run says what is measured.
fn kept<'a>(given: impl Iterator<Item = &'a str>) -> impl Iterator<Item = &'a str> {
    without(given, &LEFT_OUT, &LETTERS, &FLAGS)
}

/// The words but for some options with their values, by name and by letter, and some without.
fn without<'a>(
    mut given: impl Iterator<Item = &'a str>,
    names: &[&str],
    letters: &[&str],
    flags: &[&str],
) -> impl Iterator<Item = &'a str> {
    std::iter::from_fn(move || {
        loop {
            let word = given.next()?;
            if names.contains(&word) || letters.contains(&word) {
                given.next();
                continue;
            }
            let long = word.split_once('=').is_some_and(|(name, _)| names.contains(&name));
            // A letter with its value in one word, as in -t send,bcast without the blank.
            let short = !word.starts_with("--") && letters.iter().any(|letter| word.starts_with(letter));
            if !(long || short || flags.contains(&word)) {
                return Some(word);
            }
        }
    })
}

/// A folder's path without a separator at its end.
fn plain(dir: &Path) -> String {
    dir.components().collect::<std::path::PathBuf>().display().to_string()
}

/// A word as a shell takes it; lists such as `8,64k` stay as they are typed.
fn quoted(word: &str) -> String {
    if !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || "-_./=:,@%+".contains(c)) {
        return word.to_owned();
    }
    shlex::try_quote(word).map_or_else(|_| word.to_owned(), std::borrow::Cow::into_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_distribution::{Launch, Placement};

    fn again(line: &str, backend: &str, launches: u32) -> Option<String> {
        let mut run = Run::new("m");
        run.command = line.split_whitespace().map(str::to_owned).collect();
        run.transport.backend = backend.into();
        let placement = |rank| Placement { rank, ..Placement::default() };
        let launch = |number| Launch { number, placement: (0..4).map(placement).collect(), ..Launch::default() };
        run.launches = (0..launches).map(launch).collect();
        // What was measured on four ranks needs four, however many the second run had.
        let like = run.clone();
        run.launches.iter_mut().for_each(|launch| launch.placement.truncate(2));
        command(Path::new("a/run1/"), &like, Path::new("b/run2"), &run)
    }

    #[test]
    fn what_the_other_run_decides_is_left_out_and_the_rest_stays() {
        let line = "weir bench -o b/run2 -t send,bcast -s8 --start=auto --time 30 --ci 1 --append --bind --pairs 1,2";
        let expected = "mpiexec -n 4 weir bench -o b/run2-like-run1 --like a/run1 --time 30 --ci 1 --bind";
        assert_eq!(again(line, "mpi", 1).as_deref(), Some(expected));
    }

    #[test]
    fn threads_are_asked_for_where_the_other_run_had_any() {
        let mut like = Run::new("m");
        let mut run = like.clone();
        run.command =
            "weir bench -o two --threads 1,2 --threads-by=tag --time 1".split(' ').map(str::to_owned).collect();
        run.transport.backend = "weir".into();
        let again = |like: &Run| command(Path::new("one"), like, Path::new("two"), &run).unwrap();
        assert_eq!(again(&like), "weir bench -o two-like-one --like one --time 1");
        let mut cell = weir_distribution::Cell::new(0, 0, weir_distribution::Configuration::pair("ping-pong", 8));
        cell.configuration.parameters.insert("threads".into(), "4".into());
        like.cells.push(cell);
        assert_eq!(again(&like), "weir bench -o two-like-one --like one --threads 1 --time 1");
    }

    #[test]
    fn ranks_are_started_as_the_transport_wants_it() {
        let line = "weir bench --transport weir -n 4 -o r --meet /tmp/x/meet";
        let expected = "weir bench -o b/run2-like-run1 --like a/run1 --transport weir -n 4";
        assert_eq!(again(line, "weir", 1).as_deref(), Some(expected));
        assert_eq!(again(line, "weir", 3), Some(format!("{expected} --launches 3")));
        let expected = "weir bench -o b/run2-like-run1 --like a/run1 --launches 3 -- mpiexec -n 4";
        assert_eq!(again("weir bench -o r", "mpi", 3).as_deref(), Some(expected));
    }

    #[test]
    fn launches_that_are_missing_are_added_by_a_command_that_measures_the_same() {
        let more = |line: &str, backend: &str, launches: u32| {
            let mut run = Run::new("m");
            run.command = line.split_whitespace().map(str::to_owned).collect();
            run.transport.backend = backend.into();
            let placement = vec![Placement::default(); 4];
            let launch = |number| Launch { number, placement: placement.clone(), ..Launch::default() };
            run.launches = (0..launches).map(launch).collect();
            super::more(Path::new("a/run1"), &run, 5 - launches as usize)
        };
        let line = "weir bench -o elsewhere -t send,bcast -s8 --time 30 --json --append";
        let expected = "weir bench -o a/run1 -t send,bcast -s8 --time 30 --append --launches 4 -- mpiexec -n 4";
        assert_eq!(more(line, "mpi", 1).as_deref(), Some(expected));
        let line = "weir bench --transport weir -n 4 -o r --meet /tmp/x/meet";
        let expected = "weir bench -o a/run1 --transport weir -n 4 --append --launches 2";
        assert_eq!(more(line, "weir", 3).as_deref(), Some(expected));
        assert_eq!(more("python3 make.py", "", 1), None);
        let line = "weir bench serverload --method tcp -o r --clients 8";
        let expected = "weir bench serverload -o a/run1 --method tcp --clients 8 --append --launches 4";
        assert_eq!(more(line, "bmi", 1).as_deref(), Some(expected));
        assert_eq!(again(line, "bmi", 1), None);
    }

    #[test]
    fn the_launcher_that_was_typed_is_typed_again_where_as_many_ranks_are_needed() {
        let line = "weir bench -o r --time 2 --launches 5 --json -- /opt/mpi/mpiexec -bind-to core -n 4";
        let mut run = Run::new("m");
        run.command = line.split_whitespace().map(str::to_owned).collect();
        run.command[3] = "a b".into();
        run.transport.backend = "mpi".into();
        run.launches = vec![Launch { placement: vec![Placement::default(); 4], ..Launch::default() }; 2];
        let expected = "weir bench -o 'a b' --time 2 --append --launches 3 -- /opt/mpi/mpiexec -bind-to core -n 4";
        assert_eq!(more(Path::new("a b/"), &run, 3).as_deref(), Some(expected));
        let again = |ranks: usize| {
            let mut like = run.clone();
            like.launches.iter_mut().for_each(|launch| launch.placement = vec![Placement::default(); ranks]);
            command(Path::new("one"), &like, Path::new("two"), &run)
        };
        let expected = "weir bench -o two-like-one --like one --time 2 --launches 2 --";
        assert_eq!(again(4), Some(format!("{expected} /opt/mpi/mpiexec -bind-to core -n 4")));
        assert_eq!(again(8), Some(format!("{expected} mpiexec -n 8")));
    }

    #[test]
    fn ranks_that_weir_run_started_are_started_by_it_again() {
        let mut run = Run::new("m");
        run.command = ["weir", "bench", "-o", "r", "--time", "2"].map(str::to_owned).to_vec();
        run.transport.backend = "mpi".into();
        run.launches = vec![Launch { placement: vec![Placement::default(); 4], ..Launch::default() }];
        let by = ["weir", "run", "-n", "4", "--hosts", "n1,n2", "--launcher-arg=-x y", "--no-shm"];
        let launcher_command = by.map(str::to_owned).to_vec();
        run.mpi = Some(weir_distribution::MpiInfo { launcher_command, ..Default::default() });
        let begin = "weir bench -o r --time 2 --append --launches 4 --";
        let words = "--hosts n1,n2 '--launcher-arg=-x y' --no-shm";
        assert_eq!(more(Path::new("r"), &run, 4), Some(format!("{begin} weir run -n 4 {words}")));
        let mut like = run.clone();
        like.launches[0].placement.truncate(2);
        let again = command(Path::new("one"), &like, Path::new("two"), &run);
        assert_eq!(again, Some(format!("weir run -n 2 {words} weir bench -o two-like-one --like one --time 2")));
        // Who typed a launcher knows best.
        run.command.extend(["--", "mpiexec", "-n", "4"].map(str::to_owned));
        assert_eq!(more(Path::new("r"), &run, 4), Some(format!("{begin} mpiexec -n 4")));
        run.command.truncate(6);
        run.command.extend(["--", "weir", "run", "-np=4", "--no-shm"].map(str::to_owned));
        let again = command(Path::new("one"), &like, Path::new("two"), &run);
        assert_eq!(again, Some("weir run -n 2 --no-shm weir bench -o two-like-one --like one --time 2".into()));
    }

    #[test]
    fn ranks_of_several_nodes_are_put_there_again() {
        let node = |name: &str| weir_distribution::Node { name: name.into(), ..Default::default() };
        let mut run = Run::new("m");
        run.command = ["weir", "bench", "-o", "r"].map(str::to_owned).to_vec();
        run.transport.backend = "mpi".into();
        run.nodes = vec![node("n1"), node("n2")];
        let on = |nodes: &[u32]| {
            let place = |(rank, &node)| Placement { rank: rank as u32, node, ..Placement::default() };
            vec![Launch { placement: nodes.iter().enumerate().map(place).collect(), ..Launch::default() }]
        };
        run.launches = on(&[0, 0, 1, 1]);
        let more = |run: &Run| more(Path::new("r"), run, 1).unwrap();
        let begin = "weir bench -o r --append --launches 1 -- mpiexec -n";
        assert_eq!(more(&run), format!("{begin} 4 -ppn 2 -hosts n1,n2"));
        run.mpi = Some(weir_distribution::MpiInfo { abi: Some("open-mpi".into()), ..Default::default() });
        assert_eq!(more(&run), format!("{begin} 4 --host n1:2,n2:2"));
        // In turn, and where each has one rank that is the same.
        run.launches = on(&[0, 1, 0, 1]);
        assert_eq!(more(&run), format!("{begin} 4 --map-by node --host n1:2,n2:2"));
        run.mpi = None;
        assert_eq!(more(&run), format!("{begin} 4 -ppn 1 -hosts n1,n2"));
        run.launches = on(&[0, 1]);
        assert_eq!(more(&run), format!("{begin} 2 -ppn 1 -hosts n1,n2"));
        run.launches = on(&[1, 1, 0, 0]);
        assert_eq!(more(&run), format!("{begin} 4 -ppn 2 -hosts n2,n1"));
        // What one option does not say is not said.
        for nodes in [[0, 1, 1, 0], [0, 0, 1, 0]] {
            run.launches = on(&nodes);
            assert_eq!(more(&run), format!("{begin} 4"));
        }
        run.launches = on(&[0, 0, 1]);
        assert_eq!(more(&run), format!("{begin} 3"));
        run.launches = on(&[1, 1]);
        assert_eq!(more(&run), format!("{begin} 2"));
    }

    #[test]
    fn a_run_that_was_made_up_is_measured_by_no_command() {
        assert_eq!(again("", "hypothetical", 0), None);
        assert_eq!(again("python3 make.py", "hypothetical", 0), None);
    }
}
