//! A machine described by hand, in TOML (`spec/prediction.md` 8): for questions at design time.

use std::collections::BTreeMap;

use serde::Deserialize;
use thiserror::Error;

use crate::machine::{
    Algorithm, Cpu, Fabric, Interface, Linear, Local, Machine, Order, Path, Placement, Sharing, Tail, Transit,
    operation_name, operation_of,
};
use crate::{Quantiles, Time};
use weir_stats::{Distribution, Family};

/// What is wrong with a description: one line, with the key or the place.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct DescriptionError(String);

/// A machine from its description.
///
/// # Errors
/// What is wrong, and where: text that is no TOML, a key that is unknown or missing, a value out of
/// its range.
pub fn hypothetical(text: &str) -> Result<Machine, DescriptionError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let file: File = toml::from_str(text).map_err(|e| syntax(text, &e))?;
    file.machine().map_err(|DescriptionError(said)| {
        let key = said.split(": ").next().unwrap_or_default();
        DescriptionError(match line_of(text, key) {
            Some(line) => format!("line {line}: {said}"),
            None => said,
        })
    })
}

/// The line of a key such as `network.latency_us`, or of the last table on the way to it that is
/// there.
fn line_of(text: &str, key: &str) -> Option<usize> {
    let parsed = toml::de::DeTable::parse(text).ok()?;
    let (mut table, mut at) = (parsed.get_ref(), None);
    for part in key.split('.') {
        let Some((name, value)) = table.iter().find(|(name, _)| name.get_ref() == part) else { break };
        at = Some(name.span().start);
        match value.get_ref() {
            toml::de::DeValue::Table(inner) => table = inner,
            _ => break,
        }
    }
    at.and_then(|at| text.get(..at)).map(line_at)
}

/// The line on which a text ends.
fn line_at(before: &str) -> usize {
    before.matches('\n').count() + 1
}

fn syntax(text: &str, error: &toml::de::Error) -> DescriptionError {
    let message = error.message().split_whitespace().map(in_words).collect::<Vec<_>>().join(" ");
    let at = error.span().and_then(|span| text.get(..span.start));
    DescriptionError(match at {
        Some(before) => format!("line {}: {message}", line_at(before)),
        None => message,
    })
}

/// A type of Rust is no word for people.
fn in_words(word: &str) -> &str {
    match word {
        "f64" => "a number",
        "u32" | "u64" => "a whole number, 0 or more",
        other => other,
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: Option<String>,
    network: PathText,
    intra: Option<PathText>,
    #[serde(default)]
    nodes: NodesText,
    #[serde(default)]
    fabric: FabricText,
    retransmission: Option<TailText>,
    #[serde(default)]
    processor: ProcessorText,
    #[serde(default)]
    collectives: BTreeMap<String, Choice>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(non_snake_case, reason = "the unit's own spelling")]
struct PathText {
    latency_us: f64,
    bandwidth_MB_per_s: f64,
    eager_bytes: Option<u64>,
    handshake_us: Option<f64>,
    send_us: Option<f64>,
    send_ns_per_byte: Option<f64>,
    receive_us: Option<f64>,
    receive_ns_per_byte: Option<f64>,
    spread: Option<SpreadText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SpreadText {
    family: String,
    mean: f64,
    shape: Option<f64>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
#[expect(non_snake_case, reason = "the unit's own spelling")]
struct NodesText {
    ranks: Option<u32>,
    placement: Option<String>,
    ingress_MB_per_s: Option<f64>,
    egress_MB_per_s: Option<f64>,
    buffer_bytes: Option<f64>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
#[expect(non_snake_case, reason = "the unit's own spelling")]
struct FabricText {
    nodes_per_switch: Option<Vec<u32>>,
    switch_MB_per_s: Option<f64>,
    uplink_MB_per_s: Option<f64>,
    sharing: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TailText {
    timeout_ms: Option<f64>,
    chance: Option<f64>,
    overflow_chance: Option<f64>,
    doublings: Option<u32>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct ProcessorText {
    speed: Option<f64>,
    #[serde(default)]
    speed_of: BTreeMap<String, f64>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Choice {
    One(String),
    BySize(Vec<SizeChoice>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SizeChoice {
    up_to_bytes: Option<u64>,
    algorithm: String,
}

/// The first timer of a retransmission where none is given: Linux's least.
const USUAL_TIMEOUT_MS: f64 = 200.0;
/// Microseconds until virtual time ends: [`Time::clock_end`] of one process.
const MOST_US: f64 = 4e19;
/// Nodes of a description at most.
const MOST_NODES: u64 = 1 << 22;

type Checked<T> = Result<T, DescriptionError>;

fn wrong<T>(key: &str, value: impl std::fmt::Display, rule: &str) -> Checked<T> {
    Err(DescriptionError(format!("{key}: {value} must be {rule}")))
}

fn at_least_0(key: &str, value: Option<f64>) -> Checked<f64> {
    match value {
        None => Ok(0.0),
        Some(v) if v >= 0.0 && v.is_finite() => Ok(v),
        Some(v) => wrong(key, v, "0 or more, and finite"),
    }
}

/// A time in microseconds.
fn span(key: &str, us: Option<f64>) -> Checked<Time> {
    let us = at_least_0(key, us)?;
    if us > MOST_US {
        return wrong(key, us, &format!("at most {MOST_US:e}: virtual time ends there"));
    }
    Ok(Time::from_us(us))
}

/// Bytes per second from 10^6 of them.
fn rate(key: &str, value: Option<f64>) -> Checked<Option<f64>> {
    match value {
        None => Ok(None),
        Some(v) if v > 0.0 && v.is_finite() => Ok(Some(v * 1e6)),
        Some(v) => wrong(key, v, "above 0, and finite"),
    }
}

fn chance(key: &str, value: Option<f64>, usual: f64) -> Checked<f64> {
    match value {
        None => Ok(usual),
        Some(v) if (0.0..=1.0).contains(&v) => Ok(v),
        Some(v) => wrong(key, v, "from 0 to 1"),
    }
}

impl PathText {
    fn path(&self, table: &str) -> Checked<Path> {
        let key = |name: &str| format!("{table}.{name}");
        let latency = span(&key("latency_us"), Some(self.latency_us))?;
        let bytes_per_s = rate(&key("bandwidth_MB_per_s"), Some(self.bandwidth_MB_per_s))?.unwrap_or(f64::INFINITY);
        let handshake = span(&key("handshake_us"), self.handshake_us)?;
        let linear = Linear {
            latency,
            bytes_per_s,
            handshake,
            spread: self.spread.as_ref().map(|s| s.quantiles(&key("spread"))).transpose()?,
        };
        let local = |fixed: (&str, Option<f64>), each: (&str, Option<f64>)| -> Checked<Local> {
            let (fixed, ns) = (span(&key(fixed.0), fixed.1)?, at_least_0(&key(each.0), each.1)?);
            Ok(if fixed == Time::ZERO && ns == 0.0 { Local::Nothing } else { Local::Linear(fixed, ns) })
        };
        Ok(Path {
            transit: Transit::Linear(linear),
            eager_bytes: self.eager_bytes,
            send: local(("send_us", self.send_us), ("send_ns_per_byte", self.send_ns_per_byte))?,
            receive: local(("receive_us", self.receive_us), ("receive_ns_per_byte", self.receive_ns_per_byte))?,
        })
    }
}

impl SpreadText {
    /// The excess over the least time, as a share of it, with the mean that is asked for.
    fn quantiles(&self, key: &str) -> Checked<Quantiles> {
        let mean = at_least_0(&format!("{key}.mean"), Some(self.mean))?;
        if mean == 0.0 {
            return Ok(Quantiles::constant(0.0));
        }
        let Some(family) = Family::from_name(&self.family) else {
            let known = Family::ALL.map(Family::name).join(", ");
            return wrong(&format!("{key}.family"), &self.family, &format!("one of {known}"));
        };
        let shape = self.shape;
        let positive = |usual: f64, least: f64| match shape.unwrap_or(usual) {
            v if v > least && v.is_finite() => Ok(v),
            v => wrong(&format!("{key}.shape"), v, &format!("above {least}, and finite")),
        };
        let (location, scale) = (0.0, 1.0);
        let unscaled = match family {
            Family::Exponential => Distribution::Exponential { location, scale },
            Family::Gamma | Family::Erlang => Distribution::Gamma { location, shape: positive(2.0, 0.0)?, scale },
            Family::Weibull => Distribution::Weibull { location, shape: positive(3.6, 0.0)?, scale },
            // The mean of Pearson 5 is finite only above 1.
            Family::Pearson5 => Distribution::Pearson5 { location, shape: positive(3.0, 1.0)?, scale },
            Family::Lognormal => Distribution::Lognormal { location, mu: 0.0, sigma: positive(0.5, 0.0)? },
            Family::Normal | Family::GeneralisedGamma => {
                return wrong(&format!("{key}.family"), &self.family, "a family that is never below 0, with one shape");
            }
        };
        // A tenth is what `of_distribution` rounds away least: scaled up first.
        let wide = Quantiles::of_distribution(&unscaled, 0.0).filter(|q| q.mean() > 0.0);
        match wide {
            Some(wide) => Ok(wide.times(mean / wide.mean())),
            None => wrong(&format!("{key}.shape"), shape.unwrap_or(0.0), "such that the family can be drawn from"),
        }
    }
}

impl File {
    fn machine(&self) -> Checked<Machine> {
        let inter = self.network.path("network")?;
        let intra = self.intra.as_ref().map_or_else(|| Ok(inter.clone()), |i| i.path("intra"))?;
        let interface = Interface {
            ingress_bytes_per_s: rate("nodes.ingress_MB_per_s", self.nodes.ingress_MB_per_s)?,
            egress_bytes_per_s: rate("nodes.egress_MB_per_s", self.nodes.egress_MB_per_s)?,
            buffer_bytes: self.nodes.buffer_bytes.map(|b| at_least_0("nodes.buffer_bytes", Some(b))).transpose()?,
        };
        if interface.buffer_bytes.is_some() && interface.ingress_bytes_per_s.is_none() {
            return Err(DescriptionError(
                "nodes.buffer_bytes: a buffer fills only where nodes.ingress_MB_per_s says how fast it empties".into(),
            ));
        }
        let sharing = match self.fabric.sharing.as_deref() {
            None | Some("once") => Sharing::Once,
            Some("fair") => Sharing::Fair,
            Some(other) => return wrong("fabric.sharing", format!("\"{other}\""), "\"once\" or \"fair\""),
        };
        if interface.buffer_bytes.is_some() && sharing == Sharing::Fair {
            return Err(DescriptionError(
                "nodes.buffer_bytes: nothing waits at a node where fabric.sharing is \"fair\"".into(),
            ));
        }
        let mut machine = Machine {
            name: self.name.clone().unwrap_or_else(|| "hypothetical".to_owned()),
            placement: self.placement()?,
            inter,
            intra,
            fabric: self.fabric()?,
            sharing,
            links: Vec::new(),
            interface,
            tail: self.retransmission.as_ref().map(TailText::tail).transpose()?,
            cpu: self.processor.cpu()?,
            collectives: Default::default(),
            between_launches: 0.0,
            notices: Vec::new(),
        };
        if machine.tail.is_some_and(|t| t.chance == 0.0) && interface.buffer_bytes.is_none() {
            let text = "[retransmission] has no effect: nothing is lost without `chance` or nodes.buffer_bytes";
            machine.notices.push(text.to_owned());
        }
        for (name, choice) in &self.collectives {
            self.choose(&mut machine, name, choice)?;
        }
        Ok(machine)
    }

    fn placement(&self) -> Checked<Placement> {
        let order = match self.nodes.placement.as_deref() {
            None | Some("block") => Order::Block,
            Some("cyclic") => Order::Cyclic,
            Some(other) => return wrong("nodes.placement", format!("\"{other}\""), "\"block\" or \"cyclic\""),
        };
        match self.nodes.ranks {
            Some(0) => wrong("nodes.ranks", 0, "1 or more"),
            ranks => Ok(Placement { ranks_per_node: ranks.unwrap_or(1), order }),
        }
    }

    fn fabric(&self) -> Checked<Fabric> {
        let text = &self.fabric;
        let backplane = rate("fabric.switch_MB_per_s", text.switch_MB_per_s)?;
        let uplink = rate("fabric.uplink_MB_per_s", text.uplink_MB_per_s)?;
        let Some(nodes) = &text.nodes_per_switch else {
            if uplink.is_some() {
                return Err(DescriptionError(
                    "fabric.uplink_MB_per_s: one switch has no uplink; say fabric.nodes_per_switch".into(),
                ));
            }
            return Ok(Fabric::flat(backplane));
        };
        let all: u64 = nodes.iter().map(|n| u64::from(*n)).sum();
        if all == 0 || all > MOST_NODES {
            return wrong("fabric.nodes_per_switch", all, &format!("from 1 to {MOST_NODES} in all"));
        }
        Ok(Fabric::switches(nodes, backplane, uplink))
    }

    fn choose(&self, machine: &mut Machine, name: &str, choice: &Choice) -> Checked<()> {
        let Some(operation) = operation_of(name) else {
            return wrong("collectives", format!("`{name}`"), "the name of a collective, such as bcast or alltoall");
        };
        let algorithm = |text: &str| -> Checked<Algorithm> {
            match Algorithm::from_name(text).filter(|a| a.can(operation)) {
                Some(algorithm) => Ok(algorithm),
                None => {
                    let can = Algorithm::ALL.into_iter().filter(|a| a.can(operation)).map(Algorithm::name);
                    let rule = format!("one of {}", can.collect::<Vec<_>>().join(", "));
                    wrong(&format!("collectives.{}", operation_name(operation)), format!("\"{text}\""), &rule)
                }
            }
        };
        let mut listed = match choice {
            Choice::One(text) => vec![(u64::MAX, algorithm(text)?)],
            Choice::BySize(sizes) => {
                let each = sizes.iter().map(|s| Ok((s.up_to_bytes.unwrap_or(u64::MAX), algorithm(&s.algorithm)?)));
                each.collect::<Checked<Vec<_>>>()?
            }
        };
        listed.sort_by_key(|l| l.0);
        machine.collectives.chosen.insert(operation, listed);
        Ok(())
    }
}

impl TailText {
    fn tail(&self) -> Checked<Tail> {
        let timeout = self.timeout_ms.unwrap_or(USUAL_TIMEOUT_MS);
        let timeout = span("retransmission.timeout_ms", Some(timeout * 1e3))?;
        let chance_of = chance("retransmission.chance", self.chance, 0.0)?;
        if chance_of >= 1.0 {
            return wrong("retransmission.chance", chance_of, "below 1: a message that is always lost never arrives");
        }
        Ok(Tail {
            timeout,
            chance: chance_of,
            overflow_chance: chance("retransmission.overflow_chance", self.overflow_chance, 1.0)?,
            doublings: self.doublings.unwrap_or(6).min(30),
        })
    }
}

impl ProcessorText {
    fn cpu(&self) -> Checked<Cpu> {
        let speed = |key: &str, v: f64| {
            if v > 0.0 && v.is_finite() { Ok(v) } else { wrong(key, v, "above 0, and finite") }
        };
        let mut cpu = Cpu { speed: speed("processor.speed", self.speed.unwrap_or(1.0))?, speed_of: Vec::new() };
        for (rank, value) in &self.speed_of {
            let key = format!("processor.speed_of.{rank}");
            let Ok(number) = rank.parse() else { return wrong(&key, format!("`{rank}`"), "a process number") };
            cpu.speed_of.push((number, speed(&key, *value)?));
        }
        Ok(cpu)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_annotations::program::CollectiveOp;

    #[test]
    fn the_simplest_description_is_the_simplest_machine() {
        let mut machine = hypothetical("[network]\nlatency_us = 50\nbandwidth_MB_per_s = 100\n").unwrap();
        machine.name = "latency and bandwidth".to_owned();
        assert_eq!(machine, Machine::simplest(Time::from_us(50.0), 100e6));
        // With a mark of byte order before it, too.
        assert!(hypothetical("\u{feff}[network]\nlatency_us = 50\nbandwidth_MB_per_s = 100\n").is_ok());
    }

    #[test]
    fn everything_can_be_said() {
        let text = r#"
            name = "cluster"
            [network]
            latency_us = 20
            bandwidth_MB_per_s = 110
            eager_bytes = 65536
            handshake_us = 40
            send_us = 3
            receive_ns_per_byte = 0.5
            spread = { family = "pearson5", mean = 0.2, shape = 3 }
            [intra]
            latency_us = 1
            bandwidth_MB_per_s = 4000
            [nodes]
            ranks = 2
            placement = "cyclic"
            ingress_MB_per_s = 117
            egress_MB_per_s = 117
            buffer_bytes = 65536
            [fabric]
            nodes_per_switch = [24, 24]
            switch_MB_per_s = 260
            uplink_MB_per_s = 117
            [retransmission]
            timeout_ms = 200
            [processor]
            speed = 1.5
            speed_of = { 3 = 0.5 }
            [collectives]
            barrier = "binomial"
            alltoall = [{ up_to_bytes = 2048, algorithm = "bruck" }, { algorithm = "ring" }]
        "#;
        let machine = hypothetical(text).unwrap();
        let Transit::Linear(linear) = &machine.inter.transit else { panic!() };
        let spread = linear.spread.as_ref().unwrap();
        assert!((spread.mean() - 0.2).abs() < 1e-9 && spread.min() > 0.0 && spread.max() > 1.0);
        assert_eq!(machine.placement.node_of(3, 5), 0);
        assert_eq!((machine.cpu.speed(3), machine.cpu.speed(4)), (0.5, 1.5));
        let alltoall = |bytes| machine.collectives.algorithm(CollectiveOp::Alltoall, bytes, 4);
        assert_eq!((alltoall(2048), alltoall(2049)), (Algorithm::Bruck, Algorithm::Ring));
        assert!(machine.notices.is_empty());
    }

    #[test]
    fn what_is_wrong_is_told_with_its_key_or_line() {
        let network = "[network]\nlatency_us = 50\nbandwidth_MB_per_s = 100\n";
        for (text, part) in [
            ("[network]\nlatency_us = 50\n", "bandwidth_MB_per_s"),
            ("[network]\nlatency_us = -1\nbandwidth_MB_per_s = 100\n", "line 2: network.latency_us: -1"),
            ("[network]\nlatency_us = nan\nbandwidth_MB_per_s = 100\n", "network.latency_us: NaN"),
            ("[network]\nlatency_us = 1\nbandwidth_MB_per_s = 0\n", "network.bandwidth_MB_per_s: 0"),
            (&format!("{network}latncy = 3\n"), "line 4"),
            (&format!("{network}[nodes]\nranks = 0\n"), "line 5: nodes.ranks"),
            (&format!("{network}[processor]\nspeed_of = {{ 3 = 0 }}\n"), "line 5: processor.speed_of.3: 0"),
            (&format!("{network}[nodes]\nbuffer_bytes = 5\n"), "ingress_MB_per_s"),
            (&format!("{network}[fabric]\nuplink_MB_per_s = 5\n"), "nodes_per_switch"),
            (&format!("{network}[fabric]\nnodes_per_switch = [4000000000]\n"), "nodes_per_switch"),
            (&format!("{network}[fabric]\nsharing = \"even\"\n"), "\"once\" or \"fair\""),
            (
                &format!("{network}[fabric]\nsharing = \"fair\"\n[nodes]\nbuffer_bytes = 5\ningress_MB_per_s = 1\n"),
                "nothing waits",
            ),
            (&format!("{network}[collectives]\nbcast = \"bruck\"\n"), "linear, binomial"),
            (&format!("{network}[collectives]\nbrodcast = \"linear\"\n"), "brodcast"),
            (&format!("{network}[retransmission]\nchance = 1\n"), "never arrives"),
            (&format!("{network}[processor]\nspeed = 0\n"), "processor.speed"),
            (&format!("{network}spread = {{ family = \"normal\", mean = 1 }}\n"), "never below 0"),
            ("network = [", "line 1"),
            (
                "[network]\nlatency_us = 1e25\nbandwidth_MB_per_s = 100\n",
                "network.latency_us: 10000000000000000000000000 must be at most 4e19",
            ),
        ] {
            let error = hypothetical(text).unwrap_err().to_string();
            assert!(error.contains(part) && !error.contains('\n'), "{text}: {error}");
        }
    }
}
