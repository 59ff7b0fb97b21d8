//! Hosts with twenty interfaces, most of which lead nowhere: bridges of containers with the same
//! addresses on every host, cables between containers, some without a carrier, several in one
//! subnet. Nothing is said of them to Weir, and MPI programs run all the same.

use std::time::Duration;

use anyhow::{Result, bail};
use serde_json::Value;

use crate::e2e::{Ended, carried, counters_in, judged, no_folder};
use crate::lab::{DATA_IFACE, Lab, Wire};
use crate::launch::Job;
use crate::mpi;
use crate::paths::Paths;
use crate::process::run_limited;
use crate::stack::{Carrier, Stack};

/// A start and a few seconds of exchange; the rest is for machines that do much else.
const LIMIT: Duration = Duration::from_secs(120);
/// An address that is wrong makes an opening wait for the timeout of connections, 10 s; one that is
/// tried in turn for a tenth of a second.
const LONGEST: Duration = Duration::from_secs(9);
/// A machine that does much else may make any run long: a wait of Weir's own comes each time.
const TRIES: usize = 3;

/// What is on each host beside the network between them; `N` is the host's number. A bridge has a
/// carrier, since a container's cable hangs on it; `down` ones have none.
const COMMON: &str = "
bridge() { ip link add $1 type bridge; ip addr add $2 dev $1; ip link add p-$1 type veth peer name c-$1; ip link set p-$1 master $1; for i in $1 p-$1 c-$1; do ip link set $i up; done; }
cable() { ip link add $1 type veth peer name x-$1; ip addr add $2 dev $1; ip link set $1 up; ip link set x-$1 up; }
down() { ip link add $1 type bridge; ip addr add $2 dev $1; }
bridge docker0 172.17.0.1/16
bridge br-5f3a 172.18.0.1/16
bridge virbr0 192.168.122.1/24
bridge vmbr7 10.250.0.1/16
bridge vmbr8 10.251.0.1/16
bridge vmbr9 10.252.0.1/16
down down0 192.168.130.1/24
down down1 192.168.131.1/24
cable veth1 169.254.7.1/16
for n in 100 101 102; do ip addr add 10.77.1.$((n+N))/24 dev net1; done
";

/// Seven more that look like any other, with the same addresses on all hosts, before the one that
/// leads somewhere: the measured network's address is moved to an interface that was made last.
const BEHIND_OTHERS: &str = "
for k in 1 2 3 4; do cable eth$k 192.168.10$k.1/24; done
ip addr flush dev net1
ip link add ext0 link net1 type macvlan mode bridge
ip addr add 10.77.1.$N/24 dev ext0
ip link set ext0 up
";

/// Runs what contains `only` in its title; `report` hears of each as it ends.
///
/// # Errors
/// If there can be no network of hosts.
pub fn run(paths: &Paths, only: &str, mut report: impl FnMut(&str, &Ended)) -> Result<()> {
    let cases = [
        ("hosts with twenty interfaces", ""),
        ("hosts with twenty interfaces, the right one behind others", BEHIND_OTHERS),
    ];
    for (title, more) in cases.into_iter().filter(|(title, _)| title.contains(only)) {
        let lab = Lab::start(2, &Wire::plain(0.0))?;
        let made = (0..lab.hosts.len()).try_for_each(|host| prepare(&lab, host, more));
        for stack in Stack::all(&[]).into_iter().filter(|stack| stack.carrier == Carrier::Weir) {
            let ended = match &made {
                Ok(()) => exchange(paths, &lab, &stack).into(),
                Err(why) => Ended::Skipped(format!("{why:#}")),
            };
            report(&format!("{title} on {}", stack.name), &ended);
        }
        if made.is_ok() {
            report(&format!("weir doctor on {title}"), &doctor(paths, &lab, more.is_empty()).into());
        }
    }
    Ok(())
}

/// Makes the interfaces of one host.
fn prepare(lab: &Lab, host: usize, more: &str) -> Result<()> {
    let line = format!("set -e; N={}; {COMMON}{more}", host + 1);
    let outcome = run_limited(&mut lab.on(host, &line)?, Duration::from_secs(30))?;
    if !outcome.ok() {
        bail!("interfaces cannot be made: {}", outcome.cause());
    }
    Ok(())
}

/// Two ranks exchange messages, of which Weir is told nothing but the key.
fn exchange(paths: &Paths, lab: &Lab, stack: &Stack) -> Result<(), String> {
    let program = mpi::program(paths, stack.mpi, "order");
    let args = ["--rounds", "1", "--messages", "60"].map(str::to_owned);
    let mut last = String::new();
    for _ in 0..TRIES {
        let folder = tempfile::tempdir().map_err(no_folder)?;
        let env = [
            ("WEIR_IFACE".to_owned(), String::new()),
            ("WEIR_STATS".to_owned(), folder.path().join("%p").display().to_string()),
        ];
        let job = Job { stack, ranks: 2, program: &program, args: &args, limit: LIMIT, env: &env };
        let outcome = job.run(paths, Some(lab)).map_err(|error| format!("{error:#}"))?;
        let elapsed = outcome.elapsed;
        judged(Ok(outcome))?;
        let documents = counters_in(folder.path());
        carried(&documents, 2)?;
        told_of_the_network(&documents)?;
        if elapsed < LONGEST {
            return Ok(());
        }
        last = format!(
            "{TRIES} times it took longer than {} s, at last {:.1} s",
            LONGEST.as_secs(),
            elapsed.as_secs_f64()
        );
    }
    Err(last)
}

/// How addresses on the measured network begin. The launchers' network would do as well; but it is
/// the measured one that must not be lost among those that lead nowhere.
const MEASURED: &str = "10.77.1.";

/// Who knows another knows it by an address on the measured network.
fn told_of_the_network(documents: &[Value]) -> Result<(), String> {
    let array = |value: &Value, name: &str| value.get(name).and_then(Value::as_array).cloned().unwrap_or_default();
    let ways = |document: &Value| -> Vec<String> {
        let paths = array(document, "peers").into_iter().flat_map(|peer| array(&peer, "paths"));
        paths.filter_map(|path| path.get("remote")?.as_str().map(str::to_owned)).collect()
    };
    // Open MPI has endpoints that speak to nobody, and ranks that have forgotten the other when
    // they end.
    let all: Vec<Vec<String>> = documents.iter().map(ways).filter(|ways| !ways.is_empty()).collect();
    let right = !all.is_empty() && all.iter().all(|ways| ways.iter().any(|way| way.starts_with(MEASURED)));
    if right { Ok(()) } else { Err(format!("addresses of peers: {all:?}, not one in {MEASURED}0 each")) }
}

/// The doctor uses the network between the hosts, and says what to set.
fn doctor(paths: &Paths, lab: &Lab, plain: bool) -> Result<(), String> {
    let words = |error: anyhow::Error| format!("{error:#}");
    let weir = paths.command();
    let mut command = lab.on(0, &format!("exec {} doctor --json", weir.display())).map_err(words)?;
    crate::launch::without_foreign(&mut command);
    let outcome = run_limited(&mut command, LIMIT).map_err(words)?;
    let said: Value =
        serde_json::from_str(outcome.stdout.trim()).map_err(|error| format!("{error}: {}", outcome.stdout))?;
    let findings = said.get("findings").unwrap_or(&said).as_array().cloned().unwrap_or_default();
    let text = |finding: &Value, name: &str| finding.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let all: Vec<(String, String)> = findings
        .iter()
        .filter(|finding| text(finding, "check") == "interfaces")
        .map(|finding| (text(finding, "cause"), text(finding, "fix")))
        .collect();
    let iface = if plain { DATA_IFACE } else { "ext0" };
    let says = |cause: &[&str], fix: &str| {
        all.iter().any(|(is, mends)| cause.iter().all(|part| is.contains(part)) && mends.contains(fix))
    };
    let right = says(&["uses ", iface], "")
        && says(&["docker0", "vmbr7", "virtual networks that other machines do not reach"], "export WEIR_IFACE=")
        && says(&["peers are told of 6 addresses only"], "export WEIR_IFACE=");
    if right { Ok(()) } else { Err(format!("the doctor says of interfaces: {all:?}")) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_rank_that_was_not_told_of_the_network_is_noticed() {
        let rank = |ways: &[&str]| {
            let paths: Vec<Value> = ways.iter().map(|way| json!({"remote": way})).collect();
            json!({"peers": [{"paths": []}, {"paths": paths}]})
        };
        let (good, bad, idle) = (rank(&["10.77.0.1:5", "10.77.1.2:5"]), rank(&["10.77.0.1:5"]), rank(&[]));
        assert_eq!(told_of_the_network(&[good.clone(), idle.clone()]), Ok(()));
        for wrong in [&[good, bad][..], &[idle], &[]] {
            assert!(told_of_the_network(wrong).is_err(), "{wrong:?}");
        }
    }
}
