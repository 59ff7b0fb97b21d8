//! What carries a cell's messages, counted at each rank around its batches
//! (`spec/distribution-format.md` 3.8).

use std::collections::BTreeMap;
use std::os::fd::RawFd;

use weir_distribution::Carried;

use crate::machine::Machine;
use crate::sys::carried::acknowledged_bytes;

/// Counts around batches.
#[derive(Debug, Default)]
pub struct Tally {
    sum: Option<Carried>,
    /// TCP sockets known before the next batch: they are looked for after a batch, where time does
    /// not matter.
    known: Vec<RawFd>,
}

/// What was counted before a batch.
pub struct Before {
    weir: Option<weir_engine::Traffic>,
    sockets: BTreeMap<RawFd, u64>,
    interfaces: Option<u64>,
}

impl Tally {
    /// Looks for what there is to count.
    #[must_use]
    pub fn new<M: Machine>(m: &M) -> Tally {
        let known = if m.carried().is_some() { sockets().into_keys().collect() } else { Vec::new() };
        Tally { sum: None, known }
    }

    /// Counts before a batch.
    #[must_use]
    pub fn before<M: Machine>(&self, m: &M) -> Before {
        let sockets = self.known.iter().filter_map(|&fd| Some((fd, acknowledged_bytes(fd)?))).collect();
        let weir = m.carried();
        Before { interfaces: weir.and_then(|_| sent_by_interfaces()), weir, sockets }
    }

    /// Counts after it.
    pub fn after<M: Machine>(&mut self, m: &M, before: &Before) {
        let (Some(then), Some(now)) = (before.weir, m.carried()) else { return };
        let weir = now.since(&then);
        let sockets = sockets();
        // A number may be another socket's by now, which begins at nothing.
        let of =
            |(fd, bytes): (&RawFd, &u64)| bytes - before.sockets.get(fd).filter(|then| *then <= bytes).unwrap_or(&0);
        let batch = Carried {
            weir_ranks: 0,
            weir_messages: weir.messages,
            weir_bytes: weir.payload_bytes,
            weir_shm_bytes: weir.shm_bytes,
            weir_udp_bytes: weir.udp_bytes,
            weir_tcp_bytes: weir.tcp_bytes,
            socket_bytes: Some(sockets.iter().map(of).sum()),
            interface_bytes: sent_by_interfaces().zip(before.interfaces).map(|(now, then)| now.saturating_sub(then)),
        };
        let sum = self.sum.get_or_insert_default();
        sum.add(&batch);
        sum.weir_ranks = sum.weir_ranks.max(u64::from(weir.endpoints > 0));
        self.known = sockets.into_keys().collect();
    }

    /// What was counted at this rank; nothing if it has no means to count.
    #[must_use]
    pub fn sum(&self) -> Option<Carried> {
        self.sum
    }
}

/// The TCP sockets of this process, and the bytes that were acknowledged on each.
fn sockets() -> BTreeMap<RawFd, u64> {
    let Ok(folder) = std::fs::read_dir("/proc/self/fd") else { return BTreeMap::new() };
    let number = |entry: std::fs::DirEntry| entry.file_name().to_str()?.parse::<RawFd>().ok();
    folder.flatten().filter_map(number).filter_map(|fd| Some((fd, acknowledged_bytes(fd)?))).collect()
}

/// Bytes that the interfaces of this network namespace have sent, but for the loopback; nothing
/// where the kernel does not say.
fn sent_by_interfaces() -> Option<u64> {
    sent_of(&std::fs::read_to_string("/proc/self/net/dev").ok()?)
}

/// The same of the kernel's table: two lines of heads, then each interface with what it received,
/// eight numbers, and what it sent.
fn sent_of(table: &str) -> Option<u64> {
    const SENT: usize = 8;
    let mut sum = 0u64;
    for line in table.lines().skip(2) {
        let (name, counts) = line.split_once(':')?;
        if name.trim() != "lo" {
            sum = sum.saturating_add(counts.split_whitespace().nth(SENT)?.parse().ok()?);
        }
    }
    Some(sum)
}

/// So many numbers travel for each rank.
pub const NUMBERS: usize = 11;

/// As numbers, to travel.
#[must_use]
pub fn to_numbers(carried: Option<Carried>) -> [u64; NUMBERS] {
    let c = carried.unwrap_or_default();
    [
        u64::from(carried.is_some()),
        c.weir_ranks,
        c.weir_messages,
        c.weir_bytes,
        c.weir_shm_bytes,
        c.weir_udp_bytes,
        c.weir_tcp_bytes,
        u64::from(c.socket_bytes.is_some()),
        c.socket_bytes.unwrap_or(0),
        u64::from(c.interface_bytes.is_some()),
        c.interface_bytes.unwrap_or(0),
    ]
}

/// From such numbers.
#[must_use]
pub fn of_numbers(n: &[u64; NUMBERS]) -> Option<Carried> {
    (n[0] != 0).then_some(Carried {
        weir_ranks: n[1],
        weir_messages: n[2],
        weir_bytes: n[3],
        weir_shm_bytes: n[4],
        weir_udp_bytes: n[5],
        weir_tcp_bytes: n[6],
        socket_bytes: (n[7] != 0).then_some(n[8]),
        interface_bytes: (n[9] != 0).then_some(n[10]),
    })
}

/// That cells between hosts which are one machine's namespaces did not go by its network: no
/// emulated link has shaped them.
#[must_use]
pub fn past_the_network(run: &weir_distribution::Run, launch: u32) -> Option<weir_distribution::Warning> {
    let between = || run.cells.iter().filter(|c| c.launch == launch && c.configuration.nodes > 1);
    let past = between().filter(|c| c.carrier() == Some(weir_distribution::Carrier::Unseen)).count();
    let message = format!(
        "{past} of {} cells between hosts did not go by the network: the hosts are namespaces of one machine, and their interfaces sent less than the messages have; they share a kernel, and memory",
        between().count()
    );
    let advice = "weir run -n 2 --hosts host1,host2 goes over Weir; over TCP MPICH goes with MPIR_CVAR_CH4_NETMOD=ofi FI_PROVIDER=tcp, and UCX with UCX_TLS=tcp,self";
    (past > 0).then(|| weir_distribution::Warning {
        code: "past-the-network".into(),
        message,
        advice: Some(advice.into()),
    })
}

/// That what the environment names carried nothing of some cells, or of all.
#[must_use]
pub fn warning(run: &weir_distribution::Run, launch: u32) -> Option<weir_distribution::Warning> {
    let of_launch = weir_distribution::Run {
        cells: run.cells.iter().filter(|c| c.launch == launch).cloned().collect(),
        ..run.clone()
    };
    let label = weir_distribution::Label::of(&of_launch);
    let (kept, others) = label.kept()?;
    if others == 0 {
        return None;
    }
    let name = label.named.as_deref()?;
    let by = label.told()?;
    let message = if kept == 0 {
        format!("FI_PROVIDER={name} is set, and nothing went by it: what was measured is {by}")
    } else {
        format!("FI_PROVIDER={name} is set, and {others} of {} cells did not go by it: {by}", kept + others)
    };
    let local = label.carriers.iter().any(|c| c.0 == weir_distribution::Carrier::Memory);
    let advice = match (name, local) {
        ("weir", true) => {
            "MPICH keeps messages within a node to itself: eval $(weir env --no-shm), or weir run --no-shm; or one rank on each of two hosts"
        }
        (_, true) => {
            "MPICH keeps messages within a node to itself: MPIR_CVAR_NOLOCAL=1; or one rank on each of two hosts"
        }
        ("weir", false) => "weir doctor says what keeps programs from Weir",
        _ => "FI_LOG_LEVEL=info says which provider is chosen, and why",
    };
    Some(weir_distribution::Warning { code: "not-carried".into(), message, advice: Some(advice.into()) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_distribution::{Cell, Configuration, Run};

    #[test]
    fn counts_travel_as_numbers() {
        let all = Carried {
            weir_ranks: 1,
            weir_messages: 2,
            weir_bytes: 3,
            weir_shm_bytes: 4,
            weir_udp_bytes: 5,
            weir_tcp_bytes: 6,
            socket_bytes: Some(7),
            interface_bytes: Some(8),
        };
        let without = [Carried { socket_bytes: None, ..all }, Carried { interface_bytes: None, ..all }];
        for carried in [None, Some(Carried::default()), Some(all), Some(without[0]), Some(without[1])] {
            assert_eq!(of_numbers(&to_numbers(carried)), carried);
        }
    }

    #[test]
    fn what_interfaces_sent_is_read_without_the_loopback() {
        let head = "Inter-|   Receive  |  Transmit\n face |bytes packets errs drop fifo frame compressed multicast|bytes packets\n";
        let line = |name: &str, sent: u64| format!("{name:>6}: 1 2 3 4 5 6 7 8 {sent} 10 11 12 13 14 15 16\n");
        let table = format!("{head}{}{}{}", line("lo", 1_000_000), line("net1", 500), line("eth0", 7));
        assert_eq!(sent_of(&table), Some(507));
        assert_eq!((sent_of(head), sent_of(&format!("{head}nonsense\n"))), (Some(0), None));
        assert!(sent_by_interfaces().is_some());
    }

    #[test]
    fn cells_between_namespaces_of_one_machine_that_no_interface_sent_are_told() {
        let mut run = Run::new("m");
        let cell = |nodes, sent| {
            let mut configuration = Configuration::pair("send", 1000);
            (configuration.nodes, configuration.ranks_per_node) = (nodes, 2 / nodes);
            let carried = Carried { interface_bytes: Some(sent), ..Carried::default() };
            Cell { repetitions: 10, carried: Some(carried), ..Cell::new(0, 0, configuration) }
        };
        run.cells = vec![cell(2, 10_500), cell(1, 0)];
        assert_eq!(past_the_network(&run, 0), None);
        run.cells.push(cell(2, 90));
        let told = past_the_network(&run, 0).unwrap();
        assert!(told.message.starts_with("1 of 2 cells between hosts did not go by the network"), "{told:?}");
        assert!(told.advice.unwrap().contains("FI_PROVIDER=tcp"));
        assert_eq!(past_the_network(&run, 1), None);
    }

    #[test]
    fn a_provider_that_is_set_and_unused_is_told_with_what_to_do() {
        let mut run = Run::new("m");
        run.transport.provider = Some("weir".into());
        run.mpi = Some(weir_distribution::MpiInfo { library_version: "MPICH 5".into(), ..Default::default() });
        let cell = |launch, bytes| {
            let mut configuration = Configuration::pair("send", 10);
            (configuration.nodes, configuration.ranks_per_node) = (1, 2);
            let carried = Carried { weir_ranks: 2, weir_bytes: bytes, ..Carried::default() };
            Cell { repetitions: 10, carried: Some(carried), ..Cell::new(0, launch, configuration) }
        };
        run.cells = vec![cell(0, 100), cell(1, 0), cell(1, 0)];
        assert_eq!(warning(&run, 0), None);
        let told = warning(&run, 1).unwrap();
        assert!(
            told.message.ends_with("what was measured is shared memory of MPICH (FI_PROVIDER=weir set, unused)"),
            "{told:?}"
        );
        assert!(told.advice.unwrap().contains("--no-shm"));
        run.cells[2] = cell(1, 100);
        assert!(warning(&run, 1).unwrap().message.contains("1 of 2 cells did not go by it"));
    }
}
