//! A cell of a server and its clients in the distribution format.

use weir_distribution::{
    Cell, ClockInfo, Launch, Locality, RankClock, Run, Sample, Service, SizeMode, StartSync, State, Tool, Transport,
    Warning,
};

use crate::cell::Measured;
use crate::collect::{self, Relations, Rules};
use crate::error::Result;
use crate::host::{self, Facts};
use crate::operation::{Kind, Operation};
use crate::pairing::{Layout, Placement};
use crate::plan::Spec;
use crate::{run, typed, warnings};

use super::args::{Load, Loop, ServerloadArgs};
use super::fairness;
use super::lead::{Offset, Used};
use super::words::Stack;

/// Which processes are on one host.
pub struct Pairs<'a>(pub &'a Layout);

impl Relations for Pairs<'_> {
    fn same_node(&self, a: usize, b: usize) -> bool {
        self.0.nodes[a] == self.0.nodes[b]
    }

    /// No time is read at two processes.
    fn same_clock(&self, _: usize, _: usize) -> bool {
        true
    }
}

/// A cell as the harness has it.
#[must_use]
pub fn spec(load: Load, loops: Loop, layout: &Layout) -> Spec {
    let members: Vec<usize> = (0..=load.clients as usize).collect();
    let part = Layout { nodes: members.iter().map(|&rank| layout.nodes[rank]).collect() };
    let Placement { nodes, per_node, .. } = part.everybody();
    let beside = members[1..].iter().filter(|&&rank| layout.nodes[rank] == layout.nodes[0]).count();
    let locality = match beside {
        0 => Locality::Inter,
        all if all == members.len() - 1 => Locality::Intra,
        _ => Locality::Mixed,
    };
    Spec {
        operation: Operation { kind: Kind::Serverload, mode: SizeMode::Message },
        size: load.bytes,
        placement: Placement { members, nodes, per_node },
        pairing: None,
        locality,
        start: if loops == Loop::Closed { StartSync::Window } else { StartSync::None },
        count: 0,
        pattern: None,
        threads: None,
        tagged: None,
    }
}

/// The cell's record and its samples.
///
/// # Errors
/// The rules make no sense.
pub fn cell(
    args: &ServerloadArgs,
    spec: &Spec,
    (measured, used): &(Measured, Used),
    rules: &Rules,
    layout: &Layout,
) -> Result<(Cell, Vec<Sample>)> {
    let (mut cell, samples) = collect::cell(spec, measured, rules, &Pairs(layout))?;
    cell.configuration.pairs = spec.placement.members.len() as u32 - 1;
    let parameters = &mut cell.configuration.parameters;
    parameters.insert("loop".into(), if args.loops == Loop::Closed { "closed" } else { "open" }.into());
    if args.loops == Loop::Open {
        parameters.extend(args.rate.map(|rate| ("rate_per_s".to_owned(), rate.to_string())));
        // Each client has instants of its own.
        (cell.skew, cell.span) = (None, None);
    }
    let service = service(args.loops, measured, &cell);
    cell.service = Some(Service { server_cpu_ns: used.cpu_ns, server_peak_bytes: used.peak_bytes, ..service });
    Ok((cell, samples))
}

/// How even the clients were served in the repetitions that count.
fn service(loops: Loop, measured: &Measured, cell: &Cell) -> Service {
    let clients = &measured.ranks[1..];
    let missed = |k: usize| clients.iter().any(|noted| noted.missed.binary_search(&(k as u32)).is_ok());
    let fair: Vec<usize> = (cell.warm_up as usize..cell.repetitions as usize).filter(|&k| !missed(k)).collect();
    let times: Vec<Vec<f64>> = fair.iter().map(|&k| clients.iter().map(|noted| noted.length_ns[k]).collect()).collect();
    let begin = |k: usize| clients.iter().map(|noted| noted.begin_ns[k]).min().unwrap_or(0);
    let end = |k: usize| clients.iter().map(|noted| noted.end_ns[k]).max().unwrap_or(0);
    let busy_ns = match loops {
        Loop::Closed => fair.iter().map(|&k| end(k) - begin(k)).sum(),
        Loop::Open => {
            fair.iter().map(|&k| end(k)).max().unwrap_or(0) - fair.iter().map(|&k| begin(k)).min().unwrap_or(0)
        }
    };
    fairness::service(&times, loops == Loop::Closed, busy_ns as f64)
}

/// The run and its launch, before anything is measured.
#[must_use]
pub fn head(args: &ServerloadArgs, stack: &Stack, facts: &[Facts], layout: &Layout) -> (Run, Launch) {
    let name = args.telling.machine.clone().unwrap_or_else(|| facts[0].node.name.clone());
    let mut run = Run::new(&name);
    run.tool = Tool { name: "weir bench".into(), version: env!("CARGO_PKG_VERSION").into() };
    run.title.clone_from(&args.telling.title);
    run.created_utc = Some(run::now_utc());
    run.command = typed::words(None);
    run.nodes = run::nodes(facts, layout, &[]);
    run.environment = host::environment(std::env::vars());
    run.network = host::network();
    let mut settings: std::collections::BTreeMap<String, String> = run
        .environment
        .iter()
        .filter(|(name, _)| name.starts_with("WEIR_"))
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect();
    if let Some(library) = stack.library.as_ref().filter(|_| !stack.is_sockets()) {
        settings.insert("library".into(), library.display().to_string());
        settings.insert("dialect".into(), stack.dialect.name().into());
    }
    run.transport = Transport { backend: "bmi".into(), provider: Some(stack.provider()), settings };
    let launch = Launch {
        number: 0,
        origin_utc: run.created_utc.clone(),
        state: State::Running,
        placement: run::placement(facts, layout),
        warnings: of_placement(facts, layout),
        ..Launch::default()
    };
    (run, launch)
}

/// About clients that share processors, in one line however many hosts there are. That they move is
/// usual for servers.
fn of_placement(facts: &[Facts], layout: &Layout) -> Vec<Warning> {
    let told = warnings::of_placement(facts, layout, 1, warnings::Launcher::Own);
    let told = told.into_iter().filter(|w| w.code != "unpinned-ranks");
    let (mut crowded, mut rest): (Vec<Warning>, Vec<Warning>) = told.partition(|w| w.code == "oversubscribed");
    if let Some(first) = crowded.first_mut() {
        first.advice = Some("fewer --clients, or --hosts with more of them".into());
        let others = match crowded.len() - 1 {
            0 => String::new(),
            1 => "; so on 1 host more".to_owned(),
            more => format!("; so on {more} hosts more"),
        };
        crowded[0].message += &others;
        crowded.truncate(1);
    }
    crowded.append(&mut rest);
    crowded
}

/// The clocks by which the clients were released.
#[must_use]
pub fn clock(offsets: &[Offset]) -> ClockInfo {
    let one = offsets.iter().all(|offset| *offset == Offset::default());
    let rank =
        |(rank, offset): (usize, &Offset)| RankClock { rank: rank as u32, error_ns: offset.error_ns, drift_ppm: None };
    ClockInfo {
        source: "monotonic".into(),
        frequency_hz: None,
        resolution_ns: Some(1.0),
        algorithm: if one { "none" } else { "linear" }.into(),
        ranks: offsets.iter().enumerate().map(rank).collect(),
        resyncs: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::Noted;
    use crate::serverload::args::tests::args;

    /// A server and two clients on one host; what each client timed in four rounds, the third of
    /// which one was late for.
    fn measured() -> Measured {
        let noted = |lengths: [f64; 4], missed: Vec<u32>| Noted {
            begin_ns: (0..4).map(|k| k * 1000).collect(),
            end_ns: lengths.iter().zip(0..).map(|(length, k)| k * 1000 + *length as i64).collect(),
            length_ns: lengths.to_vec(),
            missed,
            ..Noted::default()
        };
        Measured {
            ranks: vec![
                Noted::default(),
                noted([900.0, 100.0, 10.0, 100.0], vec![]),
                noted([900.0, 200.0, 990.0, 400.0], vec![2]),
            ],
            repetitions: 4,
            pilot: 1,
            why: "repetitions".into(),
            span_ns: (0, 4000),
            window_ns: None,
            start: StartSync::Window,
            windows_failed: None,
            agreed_ns: Vec::new(),
            elapsed_ns: 4000.0,
            lost: crate::budget::Lost::default(),
        }
    }

    const RULES: Rules =
        Rules { keep: 1000, warm_up: Some(0), percentile: 0.99, multiplier: 5.0, seed: 1, counted: None };

    #[test]
    fn only_rounds_that_count_say_how_even_a_server_is() {
        let layout = Layout { nodes: vec![0; 3] };
        let args = args(&[]);
        let load = Load { clients: 2, bytes: 10 };
        let spec = spec(load, args.loops, &layout);
        let used = Used { cpu_ns: Some(5.0), peak_bytes: Some(7) };
        let (cell, samples) = cell(&args, &spec, &(measured(), used), &RULES, &layout).unwrap();
        let service = cell.service.unwrap();
        // The first is warm-up, the third began late.
        assert_eq!((cell.warm_up, cell.missed_windows, service.rounds), (1, 1, 2));
        assert_eq!((service.spread_p50, service.spread_max), (Some(3.0), Some(4.0)));
        assert_eq!((service.server_cpu_ns, service.server_peak_bytes), (Some(5.0), Some(7)));
        // Four answers in 200 and 400 ns.
        assert!((service.answers_per_s - 4.0 / 600e-9).abs() < 1.0, "{service:?}");
        assert_eq!(cell.summary.unwrap().count, 4);
        let c = cell.configuration;
        assert_eq!((c.pairs, c.ranks, c.locality, c.nodes, c.ranks_per_node), (2, 3, Locality::Intra, 1, 3));
        assert_eq!(c.parameters.get("loop").map(String::as_str), Some("closed"));
        assert!(samples.iter().all(|s| s.peer == 0 && s.rank > 0) && samples.len() == 8);
    }

    #[test]
    fn hosts_of_clients_are_told_apart_from_the_servers() {
        let locality = |nodes: &[usize], clients: u32| {
            spec(Load { clients, bytes: 1 }, Loop::Open, &Layout { nodes: nodes.to_vec() }).locality
        };
        assert_eq!(locality(&[0, 1, 2, 1], 3), Locality::Inter);
        assert_eq!(locality(&[0, 0, 1], 2), Locality::Mixed);
        assert_eq!(locality(&[0, 0, 1], 1), Locality::Intra, "the second client takes no part");
    }

    #[test]
    fn many_crowded_hosts_are_one_line() {
        let mut facts: Vec<Facts> = (0..6).map(|k| Facts::unknown(&format!("n{}", k / 2))).collect();
        facts.iter_mut().for_each(|facts| facts.online = 1);
        let told = of_placement(&facts, &Layout { nodes: vec![0, 0, 1, 1, 2, 2] });
        assert_eq!(told.len(), 1);
        assert!(told[0].message.ends_with("; so on 2 hosts more"), "{}", told[0].message);
        assert!(told[0].advice.as_ref().unwrap().contains("--clients"));
    }
}
