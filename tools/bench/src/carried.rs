//! What carries a cell's messages, counted at each rank around its batches (`spec/distribution-format.md` 3.8).

use std::collections::BTreeMap;
use std::os::fd::RawFd;

use weir_distribution::Carried;

use crate::machine::Machine;
use crate::sys::carried::acknowledged_bytes;

/// Counts around batches.
#[derive(Debug, Default)]
pub struct Tally {
    sum: Option<Carried>,
    /// TCP sockets known before the next batch: they are looked for after a batch, where time does not matter.
    known: Vec<RawFd>,
}

/// What was counted before a batch.
pub struct Before {
    weir: Option<weir_engine::Traffic>,
    sockets: BTreeMap<RawFd, u64>,
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
        Before { weir: m.carried(), sockets }
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

/// So many numbers travel for each rank.
pub const NUMBERS: usize = 9;

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
        };
        for carried in [None, Some(Carried::default()), Some(all), Some(Carried { socket_bytes: None, ..all })] {
            assert_eq!(of_numbers(&to_numbers(carried)), carried);
        }
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
