//! What is tried between two hosts, in which order, and in which words it is told (`spec/ping.md`
//! 3).

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use crate::host::Host;
use crate::words::{Answer, Question};
use crate::{Error, Finding, Severity, clean};

/// Datagrams to each address.
const COPIES: u32 = 5;
/// Their size: what any network carries.
const SMALL_BYTES: usize = 256;
/// Sizes by which the largest datagram that passes is found.
const LADDER: [usize; 8] = [1200, 1372, 1432, 1472, 2048, 4096, 8152, 8972];
/// How long datagrams may be under way.
const UNDER_WAY: Duration = Duration::from_millis(600);
/// How long a connection may take to be made.
const CONNECT_MS: u64 = 1500;
/// Messages of the measurement of rates.
const RATE_BYTES: usize = 1 << 20;
const RATE_WINDOW: u32 = 16;
/// How long a rate is measured, us.
const RATE_US: f64 = 400_000.0;

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// Round trips.
    pub count: u32,
}

/// Whether each address of one host is reached from the other.
#[derive(Clone, Debug, Default)]
struct Reached {
    yes: Vec<IpAddr>,
    no: Vec<(IpAddr, String)>,
}

impl Reached {
    fn works(&self) -> bool {
        !self.yes.is_empty()
    }
}

/// Both ways of something, from the first host to the second and back.
type Both<T> = [T; 2];

/// Tries all between two hosts.
///
/// # Errors
/// A host that was there is gone.
pub fn examine(a: &mut Host, b: &mut Host, asked: &Asked) -> Result<Vec<Finding>, Error> {
    let mut all = Vec::new();
    about_versions(a, b, &mut all);
    let key_fits = about_keys(a, b, &mut all);
    let opened = about_endpoints(a, b, &mut all);
    if a.hello.addresses.is_empty() || b.hello.addresses.is_empty() {
        return Ok(all);
    }
    let udp = [datagrams(a, b)?, datagrams(b, a)?];
    let tcp = [connections(a, b)?, connections(b, a)?];
    let mut probes = told_probes((a, b), &udp, &tcp);
    if udp.iter().all(Reached::works) {
        probes.push(largest((a, b), &udp)?);
    }
    let mut endpoints = Vec::new();
    if key_fits && opened {
        match flows(a, b, asked, &mut endpoints)? {
            Ok(()) => probes.iter_mut().for_each(|finding| soften(finding, &udp)),
            Err(text) => endpoints.push(not_met(&text, &udp)),
        }
    }
    all.append(&mut probes);
    all.append(&mut endpoints);
    Ok(all)
}

fn about_versions(a: &Host, b: &Host, all: &mut Vec<Finding>) {
    let (one, other) = (clean(&a.hello.version), clean(&b.hello.version));
    if one != other {
        let text = format!(
            "weir {one} on {}, {other} on {}: endpoints of different versions may refuse each other",
            a.name, b.name
        );
        all.push(Finding::new("version", Severity::Warning, text).fixed_by("install one version on all hosts"));
    } else {
        all.push(Finding::new("version", Severity::Ok, format!("weir {one} on both")));
    }
}

/// Whether both have the same key.
fn about_keys(a: &Host, b: &Host, all: &mut Vec<Finding>) -> bool {
    let mut fits = true;
    for host in [a, b] {
        if let Some(problem) = &host.hello.key_problem {
            all.push(Finding::new("key", Severity::Error, format!("{}: {}", host.name, clean(problem))));
            fits = false;
        }
    }
    let (Some(one), Some(other)) = (&a.hello.key, &b.hello.key) else { return false };
    let from = |host: &Host| format!("on {} (from {})", host.name, clean(&host.hello.source));
    if one == other {
        all.push(Finding::new("key", Severity::Ok, format!("the same on both: {}", clean(one))));
    } else {
        let text = format!("other keys: {} {}, {} {}", clean(one), from(a), clean(other), from(b));
        all.push(
            Finding::new("key", Severity::Error, text)
                .fixed_by("give both hosts one key: WEIR_KEY, or one file by WEIR_KEY_FILE"),
        );
        fits = false;
    }
    fits
}

fn about_endpoints(a: &Host, b: &Host, all: &mut Vec<Finding>) -> bool {
    let mut opened = true;
    for host in [a, b] {
        if let Some(problem) = &host.hello.problem {
            all.push(
                Finding::new(
                    "endpoint",
                    Severity::Error,
                    format!("{}: none can be opened: {}", host.name, clean(problem)),
                )
                .fixed_by("weir doctor, there"),
            );
        }
        opened &= host.hello.name.is_some();
    }
    opened
}

/// What an end could not do, where that says something of the way; else the host is no use.
fn sizes(host: &Host, answer: Result<Answer, String>) -> Result<Result<BTreeMap<usize, u32>, String>, Error> {
    match answer {
        Ok(Answer::Sizes(sizes)) => Ok(Ok(sizes)),
        Err(text) => Ok(Err(text)),
        Ok(_) => Err(confused(host)),
    }
}

fn confused(host: &Host) -> Error {
    Error::Failed(format!("{}: an answer to another question", host.name))
}

fn fresh() -> Result<u64, Error> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|error| Error::Failed(format!("no random numbers: {error}")))?;
    Ok(u64::from_le_bytes(bytes))
}

/// Datagrams with a number to an address of `to`, and what came of them.
fn sent(
    from: &mut Host,
    to: &mut Host,
    address: IpAddr,
    of: &[usize],
    copies: u32,
) -> Result<Result<BTreeMap<usize, u32>, String>, Error> {
    let nonce = fresh()?;
    if let Err(text) = to.say(&Question::Expect { nonce })? {
        return Err(Error::Failed(format!("{}: {text}", to.name)));
    }
    let goal = SocketAddr::new(address, to.hello.udp_port);
    let left = from.say(&Question::Datagrams { to: goal, nonce, sizes: of.to_vec(), copies })?;
    let left = match sizes(from, left)? {
        Ok(left) => left,
        Err(text) => return Ok(Err(text)),
    };
    let begun = Instant::now();
    loop {
        let heard = to.say(&Question::Heard { nonce })?;
        let heard = sizes(to, heard)?.map_err(|text| Error::Failed(format!("{}: {text}", to.name)))?;
        let all = left.iter().all(|(size, count)| heard.get(size).is_some_and(|here| here >= count));
        if all || begun.elapsed() > UNDER_WAY {
            return Ok(Ok(heard));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn datagrams(from: &mut Host, to: &mut Host) -> Result<Reached, Error> {
    let mut reached = Reached::default();
    for address in to.hello.addresses.clone() {
        match sent(from, to, address, &[SMALL_BYTES], COPIES)? {
            Ok(heard) if heard.values().sum::<u32>() > 0 => reached.yes.push(address),
            Ok(_) => reached.no.push((address, "nothing arrives".into())),
            Err(text) => reached.no.push((address, text)),
        }
    }
    Ok(reached)
}

fn connections(from: &mut Host, to: &mut Host) -> Result<Reached, Error> {
    let mut reached = Reached::default();
    for address in to.hello.addresses.clone() {
        let nonce = fresh()?;
        let _ = to.say(&Question::Expect { nonce })?;
        let goal = SocketAddr::new(address, to.hello.tcp_port);
        match from.say(&Question::Connect { to: goal, nonce, timeout_ms: CONNECT_MS })? {
            Ok(Answer::Took { .. }) => reached.yes.push(address),
            Ok(_) => return Err(confused(from)),
            Err(text) => reached.no.push((address, text)),
        }
    }
    Ok(reached)
}

/// What probes found, in words.
fn told_probes((a, b): (&Host, &Host), udp: &Both<Reached>, tcp: &Both<Reached>) -> Vec<Finding> {
    let mut all = Vec::new();
    let names = |way: usize| if way == 0 { (&a.name, &b.name) } else { (&b.name, &a.name) };
    for (check, ways) in [("udp", udp), ("tcp", tcp)] {
        if ways.iter().all(Reached::works) {
            all.push(Finding::new(check, Severity::Ok, format!("{} passes both ways", check.to_uppercase())));
        }
        for (way, reached) in ways.iter().enumerate() {
            let (from, to) = names(way);
            let ports = if check == "udp" { "UDP" } else { "TCP" };
            if !reached.works() {
                let why = reached
                    .no
                    .iter()
                    .map(|(address, why)| format!("{address}: {}", clean(why)))
                    .collect::<Vec<_>>()
                    .join("; ");
                all.push(blocked(check, ports, (from, to), &why, tcp[way].works()));
            } else if !reached.no.is_empty() {
                let list = reached
                    .no
                    .iter()
                    .map(|(address, why)| format!("{address} ({})", clean(why)))
                    .collect::<Vec<_>>()
                    .join(", ");
                let text = format!("of the addresses of {to} not reached from {from} by {ports}: {list}; others are");
                all.push(
                    Finding::new(check, Severity::Info, text)
                        .fixed_by("name the network that all hosts share: WEIR_IFACE"),
                );
            }
        }
    }
    all
}

/// That a protocol does not pass one way.
fn blocked(check: &'static str, protocol: &str, (from, to): (&str, &str), why: &str, tcp_passes: bool) -> Finding {
    if check == "udp" && tcp_passes {
        let text =
            format!("UDP from {from} to {to} does not pass, TCP does: a firewall or security group drops UDP ({why})");
        return Finding::new(check, Severity::Error, text)
            .fixed_by("let UDP through both ways, e.g. ports 45000 to 45100, and set WEIR_PORT=45000-45100");
    }
    if check == "udp" {
        let text = format!(
            "UDP from {from} to {to} does not pass, nor does TCP: no way between them, or a firewall drops both ({why})"
        );
        return Finding::new(check, Severity::Error, text)
            .fixed_by(format!("ping {to}, there: ip route; then look at firewalls"));
    }
    let text = format!(
        "{protocol} from {from} to {to} does not pass: large messages go in packets, which costs processor time ({why})"
    );
    Finding::new(check, Severity::Warning, text).fixed_by("let TCP through at the ports of UDP")
}

/// The largest datagrams that pass, by the first address that is reached each way.
fn largest((a, b): (&mut Host, &mut Host), udp: &Both<Reached>) -> Result<Finding, Error> {
    let mut most = [0; 2];
    for way in 0..2 {
        let (from, to) = if way == 0 { (&mut *a, &mut *b) } else { (&mut *b, &mut *a) };
        if let Ok(heard) = sent(from, to, udp[way].yes[0], &LADDER, 3)? {
            most[way] = heard.keys().copied().max().unwrap_or(0);
        }
    }
    let least = most[0].min(most[1]);
    let tell = |bytes: usize| if bytes == 0 { format!("none of {}", LADDER[0]) } else { bytes.to_string() };
    let text = if most[0] == most[1] {
        format!("the largest datagram of those tried that passes has {} bytes, both ways", tell(least))
    } else {
        format!(
            "the largest datagrams that pass have {} bytes from {} to {}, {} back",
            tell(most[0]),
            a.name,
            b.name,
            tell(most[1])
        )
    };
    let severity = if least < LADDER[0] { Severity::Warning } else { Severity::Ok };
    Ok(Finding::new("mtu", severity, text))
}

/// Messages of endpoints; the inner error is why there are none.
fn flows(a: &mut Host, b: &mut Host, asked: &Asked, all: &mut Vec<Finding>) -> Result<Result<(), String>, Error> {
    let name = |host: &Host| host.hello.name.clone().unwrap_or_default();
    let names = [name(a), name(b)];
    for (own, host) in [&mut *a, &mut *b].into_iter().enumerate() {
        if let Err(text) = host.say(&Question::Meet { names: names.clone(), own })? {
            return Ok(Err(format!("{}: {text}", host.name)));
        }
    }
    let few = Question::RoundTrips { bytes: 8, count: 10.min(asked.count) };
    if let Err(text) = together(a, b, few, Question::Answer { bytes: 8, count: 10.min(asked.count) })? {
        return Ok(Err(text));
    }
    let (bytes, count) = (8, asked.count);
    match together(a, b, Question::RoundTrips { bytes, count }, Question::Answer { bytes, count })? {
        Ok(Answer::RoundTrips(q)) => {
            let text = format!(
                "of 8 bytes: median {}, half of them within {} to {}, 99 of 100 below {}, least {}, most {} ({} of them)",
                us(q.p50),
                us(q.p25),
                us(q.p75),
                us(q.p99),
                us(q.min),
                us(q.max),
                q.count
            );
            all.push(Finding::new("round trip", Severity::Ok, text));
        }
        Ok(_) => return Err(confused(a)),
        Err(text) => return Ok(Err(text)),
    }
    let there = match rate(a, b)? {
        Ok(rate) => rate,
        Err(text) => return Ok(Err(text)),
    };
    let back = match rate(b, a)? {
        Ok(rate) => rate,
        Err(text) => return Ok(Err(text)),
    };
    let carrier = match a.say(&Question::Carrier)? {
        Ok(Answer::Carrier { carrier, why, .. }) => format!(", by {} ({})", carrier_words(&carrier), clean(&why)),
        _ => String::new(),
    };
    let text = format!("of messages of 1 MiB: {} from {} to {}, {} back{carrier}", mb(there), a.name, b.name, mb(back));
    all.push(Finding::new("rate", Severity::Ok, text));
    Ok(Ok(()))
}

fn carrier_words(carrier: &str) -> &str {
    match carrier {
        "shm" => "shared memory",
        "udp" => "UDP packets",
        "udp+tcp" => "a bulk TCP connection beside UDP packets",
        other => other,
    }
}

/// Asks both, and takes both answers; the leader's if both could.
fn together(
    leader: &mut Host,
    follower: &mut Host,
    lead: Question,
    follow: Question,
) -> Result<Result<Answer, String>, Error> {
    follower.ask(&follow)?;
    leader.ask(&lead)?;
    let (led, followed) = (leader.hear()?, follower.hear()?);
    Ok(match (led, followed) {
        (Err(text), _) => Err(format!("{}: {text}", leader.name)),
        (_, Err(text)) => Err(format!("{}: {text}", follower.name)),
        (Ok(answer), Ok(_)) => Ok(answer),
    })
}

/// Bytes a second.
fn rate(from: &mut Host, to: &mut Host) -> Result<Result<f64, String>, Error> {
    let mut count = 1;
    loop {
        let (bytes, window) = (RATE_BYTES, RATE_WINDOW);
        let answer =
            together(from, to, Question::Stream { bytes, window, count }, Question::Take { bytes, window, count })?;
        let us = match answer {
            Ok(Answer::Took { us }) if us > 0.0 => us,
            Ok(_) => return Err(confused(from)),
            Err(text) => return Ok(Err(text)),
        };
        // The first windows open what large messages go by, and are not counted.
        if (us >= RATE_US / 4.0 && count > 1) || us >= RATE_US || count >= 4096 {
            return Ok(Ok(f64::from(count * window) * bytes as f64 / us * 1e6));
        }
        count = ((RATE_US / us * f64::from(count)).ceil() as u32).clamp(2 * count, 4096);
    }
}

/// Endpoints that found each other make what probes missed a note: jobs run.
fn soften(finding: &mut Finding, udp: &Both<Reached>) {
    if finding.check == "udp" && finding.severity == Severity::Error && !udp.iter().all(Reached::works) {
        finding.severity = Severity::Info;
        finding.cause = format!("probes at other ports do not pass, endpoints do: {}", finding.cause);
    }
}

/// That endpoints do not find each other.
fn not_met(text: &str, udp: &Both<Reached>) -> Finding {
    let text = clean(text);
    if udp.iter().all(Reached::works) {
        let text = format!("endpoints do not find each other although UDP passes at the ports of the probes: {text}");
        return Finding::new("endpoint", Severity::Error, text)
            .fixed_by("a firewall may let some ports through only: WEIR_PORT=45000-45100, and open these");
    }
    Finding::new("endpoint", Severity::Error, format!("endpoints do not find each other: {text}"))
}

fn us(us: f64) -> String {
    if us < 1000.0 { format!("{us:.1} us") } else { format!("{:.2} ms", us / 1000.0) }
}

fn mb(bytes_per_s: f64) -> String {
    if bytes_per_s < 1e9 { format!("{:.0} MB/s", bytes_per_s / 1e6) } else { format!("{:.2} GB/s", bytes_per_s / 1e9) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reached(works: bool) -> Reached {
        let address = IpAddr::from([10, 0, 0, 1]);
        match works {
            true => Reached { yes: vec![address], no: Vec::new() },
            false => Reached { yes: Vec::new(), no: vec![(address, "nothing arrives".into())] },
        }
    }

    #[test]
    fn udp_that_is_dropped_is_told_apart_from_no_way() {
        let words = |tcp| blocked("udp", "UDP", ("n1", "n2"), "10.0.0.1: nothing arrives", tcp).cause;
        assert!(words(true).contains("TCP does: a firewall or security group drops UDP"));
        assert!(words(false).contains("nor does TCP"));
        assert_eq!(blocked("tcp", "TCP", ("n1", "n2"), "", true).severity, Severity::Warning);
    }

    #[test]
    fn endpoints_that_met_make_an_error_of_probes_a_note() {
        let mut finding = blocked("udp", "UDP", ("n1", "n2"), "", true);
        soften(&mut finding, &[reached(false), reached(true)]);
        assert_eq!(finding.severity, Severity::Info);
        assert!(not_met("silent", &[reached(true), reached(true)]).cause.contains("although UDP passes"));
        assert!(!not_met("silent", &[reached(false), reached(true)]).cause.contains("although"));
    }
}
