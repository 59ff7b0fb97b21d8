//! What carried a cell's messages, as it was counted, and what a run's label is worth
//! (`spec/distribution-format.md` 3.8).

use serde::{Deserialize, Serialize};

use super::{Cell, Operation, Run, SizeMode};

/// Counts over the ranks that take part in a cell, of all its batches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Carried {
    /// Ranks that had a Weir endpoint open.
    pub weir_ranks: u64,
    /// Messages and remote operations begun at Weir endpoints.
    pub weir_messages: u64,
    /// Their payload.
    pub weir_bytes: u64,
    /// Bytes that Weir carried through shared memory.
    #[serde(default)]
    pub weir_shm_bytes: u64,
    /// Bytes of Weir's datagrams.
    #[serde(default)]
    pub weir_udp_bytes: u64,
    /// Bytes that went by Weir's bulk TCP connections.
    #[serde(default)]
    pub weir_tcp_bytes: u64,
    /// Bytes that were sent and acknowledged on TCP sockets of the processes; absent: not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket_bytes: Option<u64>,
    /// Bytes that the network interfaces of the ranks' hosts sent, but for the loopback, once for
    /// each rank of a host; absent: not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface_bytes: Option<u64>,
}

impl Carried {
    /// Adds what another rank, or another batch, counted. Ranks are added as they are.
    pub fn add(&mut self, other: &Self) {
        let sum = |own: &mut u64, others: u64| *own = own.saturating_add(others);
        sum(&mut self.weir_ranks, other.weir_ranks);
        sum(&mut self.weir_messages, other.weir_messages);
        sum(&mut self.weir_bytes, other.weir_bytes);
        sum(&mut self.weir_shm_bytes, other.weir_shm_bytes);
        sum(&mut self.weir_udp_bytes, other.weir_udp_bytes);
        sum(&mut self.weir_tcp_bytes, other.weir_tcp_bytes);
        for (own, more) in
            [(&mut self.socket_bytes, other.socket_bytes), (&mut self.interface_bytes, other.interface_bytes)]
        {
            if let Some(more) = more {
                *own = Some(own.unwrap_or(0).saturating_add(more));
            }
        }
    }
}

/// What carried a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Carrier {
    /// Weir's endpoints.
    Weir,
    /// TCP sockets that are not Weir's.
    Tcp,
    /// Neither, and all ranks are on one node: its memory.
    Memory,
    /// Neither, between nodes, and their interfaces sent less: memory that the nodes share, or a
    /// network that the kernel does not see.
    Unseen,
    /// Neither, between nodes: nobody counted what did.
    Unknown,
}

impl Carrier {
    /// For people; `mpi` names the library.
    #[must_use]
    pub fn told(self, mpi: &str) -> String {
        match self {
            Carrier::Weir => "Weir".into(),
            Carrier::Tcp => "TCP".into(),
            Carrier::Memory => format!("shared memory of {mpi}"),
            Carrier::Unseen => "neither Weir nor TCP, and past the hosts' interfaces".into(),
            Carrier::Unknown => "neither Weir nor TCP".into(),
        }
    }
}

impl Cell {
    /// What carried it; nothing if it was not counted.
    #[must_use]
    pub fn carrier(&self) -> Option<Carrier> {
        let carried = self.carried?;
        let c = &self.configuration;
        let kernel = c.parameters.contains_key("iterations");
        // Atomic operations are no payload of Weir's, and a pattern's messages may be of any
        // length.
        let counted = [
            Operation::ACCUMULATE,
            Operation::ACCUMULATE_FENCE,
            Operation::ACCUMULATE_LOCK,
            Operation::FETCH_AND_OP,
            Operation::FETCH_AND_OP_FENCE,
            Operation::FETCH_AND_OP_LOCK,
            Operation::PATTERN,
        ];
        let by_number = kernel || counted.into_iter().any(|name| c.operation == name);
        let message = match c.size_mode {
            _ if by_number => 0,
            SizeMode::Total => c.size_bytes / u64::from(c.ranks.max(1)),
            SizeMode::Message | SizeMode::Each => c.size_bytes,
        };
        let least = u128::from(message) * u128::from(self.repetitions);
        let twice = |n: u64| 2 * u128::from(n);
        let repetitions = u128::from(self.repetitions.max(1));
        let by_bytes = |bytes: u64| match message {
            0 => u128::from(bytes) >= repetitions,
            _ => twice(bytes) >= least,
        };
        let weir = match message {
            0 => twice(carried.weir_messages) >= repetitions,
            _ => by_bytes(carried.weir_bytes),
        };
        let sockets = by_bytes(carried.socket_bytes.unwrap_or(0));
        Some(match (weir, sockets, c.nodes) {
            (true, ..) => Carrier::Weir,
            (_, true, _) => Carrier::Tcp,
            (_, _, 1) => Carrier::Memory,
            _ if carried.interface_bytes.is_some_and(|bytes| !by_bytes(bytes)) => Carrier::Unseen,
            _ => Carrier::Unknown,
        })
    }
}

/// What a run's transport is called, and whether that is true.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Label {
    /// What the environment named: `weir`, `tcp`.
    pub named: Option<String>,
    /// Cells by what carried them, the most first.
    pub carriers: Vec<(Carrier, usize)>,
    /// Cells of which nobody counted it.
    pub uncounted: usize,
    /// The MPI library in a word, for people.
    mpi: String,
}

impl Label {
    /// That of a run.
    #[must_use]
    pub fn of(run: &Run) -> Self {
        let mut carriers = std::collections::BTreeMap::new();
        let mut uncounted = 0;
        for cell in &run.cells {
            match cell.carrier() {
                Some(carrier) => *carriers.entry(carrier).or_insert(0usize) += 1,
                None => uncounted += 1,
            }
        }
        let mut carriers: Vec<_> = carriers.into_iter().collect();
        carriers.sort_by_key(|(carrier, cells)| (std::cmp::Reverse(*cells), *carrier));
        Self { named: run.transport.provider.clone(), carriers, uncounted, mpi: name_of_mpi(run) }
    }

    /// The carrier that is named, if it is one that can be counted.
    fn wanted(&self) -> Option<Carrier> {
        match self.named.as_deref().map(|name| name.split(';').next().unwrap_or(name)) {
            Some("weir") => Some(Carrier::Weir),
            Some("tcp") => Some(Carrier::Tcp),
            _ => None,
        }
    }

    /// Cells that what is named carried, and those that something else did.
    #[must_use]
    pub fn kept(&self) -> Option<(usize, usize)> {
        let wanted = self.wanted()?;
        let count = |same: bool| self.carriers.iter().filter(|c| (c.0 == wanted) == same).map(|c| c.1).sum();
        Some((count(true), count(false)))
    }

    /// Whether not one cell that was counted was carried by what is named.
    #[must_use]
    pub fn is_false(&self) -> bool {
        matches!(self.kept(), Some((0, others)) if others > 0)
    }

    /// What carried the messages, for people: `weir`, or
    /// `shared memory of MPICH (FI_PROVIDER=weir set, unused)`.
    #[must_use]
    pub fn told(&self) -> Option<String> {
        let named = self.named.as_deref();
        if self.carriers.is_empty() {
            return named
                .map(|name| if self.uncounted > 0 { format!("{name} (as set, not counted)") } else { name.into() });
        }
        let list = || {
            let one = |(carrier, cells): &(Carrier, usize)| {
                let told = carrier.told(&self.mpi);
                if self.carriers.len() > 1 { format!("{told} in {}", many(*cells)) } else { told }
            };
            self.carriers.iter().map(one).collect::<Vec<_>>().join(", ")
        };
        Some(match (named, self.kept()) {
            (Some(name), Some((_, 0))) => name.to_owned(),
            (Some(name), Some((0, _))) => format!("{} (FI_PROVIDER={name} set, unused)", list()),
            (Some(name), Some(_)) => format!("{} (FI_PROVIDER={name} set)", list()),
            (Some(name), None) => format!("{name} (as set); counted: {}", list()),
            (None, _) => list(),
        })
    }
}

fn many(cells: usize) -> String {
    if cells == 1 { "1 cell".into() } else { format!("{cells} cells") }
}

/// `MPICH`, `Open MPI`, or what else the library calls itself first.
fn name_of_mpi(run: &Run) -> String {
    let Some(mpi) = &run.mpi else { return "the node".into() };
    let known = ["MPICH", "Open MPI", "Intel(R) MPI", "MVAPICH"];
    let known = known.iter().find(|name| mpi.library_version.contains(**name));
    known.map_or_else(|| "the MPI library".into(), |name| (*name).replace("(R)", ""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Configuration;

    fn cell(id: u32, size: u64, nodes: u32, carried: Option<Carried>) -> Cell {
        let mut configuration = Configuration::pair("send", size);
        configuration.nodes = nodes;
        configuration.ranks_per_node = 2 / nodes;
        Cell { carried, repetitions: 100, ..Cell::new(id, 0, configuration) }
    }

    fn by_weir(messages: u64, bytes: u64) -> Option<Carried> {
        Some(Carried { weir_ranks: 2, weir_messages: messages, weir_bytes: bytes, ..Carried::default() })
    }

    fn by_sockets(bytes: u64) -> Option<Carried> {
        Some(Carried { socket_bytes: Some(bytes), ..Carried::default() })
    }

    #[test]
    fn a_cell_is_carried_by_what_moved_half_of_its_least_payload() {
        let carrier = |size, nodes, carried| cell(0, size, nodes, carried).carrier();
        assert_eq!(carrier(1000, 2, by_weir(100, 50_000)), Some(Carrier::Weir));
        assert_eq!(carrier(1000, 2, by_weir(100, 49_999)), Some(Carrier::Unknown));
        assert_eq!(carrier(1000, 1, by_weir(100, 49_999)), Some(Carrier::Memory));
        assert_eq!(carrier(0, 1, by_weir(50, 0)), Some(Carrier::Weir));
        assert_eq!(carrier(0, 1, by_weir(49, 0)), Some(Carrier::Memory));
        assert_eq!(carrier(1000, 2, by_sockets(50_000)), Some(Carrier::Tcp));
        assert_eq!(carrier(0, 2, by_sockets(100)), Some(Carrier::Tcp));
        assert_eq!(carrier(0, 1, by_sockets(99)), Some(Carrier::Memory));
        assert_eq!(carrier(1000, 1, None), None);
        let by_interfaces = |bytes| Some(Carried { interface_bytes: Some(bytes), ..Carried::default() });
        assert_eq!(carrier(1000, 2, by_interfaces(49_999)), Some(Carrier::Unseen));
        assert_eq!(carrier(1000, 2, by_interfaces(50_000)), Some(Carrier::Unknown), "by UDP, for one");
        assert_eq!(carrier(0, 2, by_interfaces(99)), Some(Carrier::Unseen));
        assert_eq!(carrier(1000, 1, by_interfaces(0)), Some(Carrier::Memory));
        let mut total = cell(0, 1000, 2, by_weir(100, 25_000));
        total.configuration.size_mode = SizeMode::Total;
        assert_eq!(total.carrier(), Some(Carrier::Weir));
        let mut kernel = cell(0, 1 << 30, 2, by_weir(50, 1));
        kernel.configuration.parameters.insert("iterations".into(), "3".into());
        assert_eq!(kernel.carrier(), Some(Carrier::Weir));
        let mut added = cell(0, 1 << 30, 2, by_weir(50, 0));
        assert_ne!(added.carrier(), Some(Carrier::Weir));
        for name in [Operation::ACCUMULATE, Operation::FETCH_AND_OP_FENCE, Operation::ACCUMULATE_LOCK] {
            added.configuration.operation = name.into();
            assert_eq!(added.carrier(), Some(Carrier::Weir), "{name}");
        }
    }

    #[test]
    fn a_label_says_what_was_counted_and_not_what_was_set() {
        let told = |provider: Option<&str>, cells: Vec<Cell>| {
            let mut run = Run::new("m");
            run.transport.provider = provider.map(str::to_owned);
            run.mpi =
                Some(crate::MpiInfo { library_version: "MPICH Version:      5.0.2".into(), ..Default::default() });
            run.cells = cells;
            let label = Label::of(&run);
            (label.told().unwrap_or_default(), label.is_false())
        };
        let own = |text: &str, is_false| (text.to_owned(), is_false);
        let (weir, memory) = (cell(0, 1000, 1, by_weir(100, 100_000)), cell(1, 1000, 1, by_weir(0, 0)));
        assert_eq!(told(Some("weir"), vec![weir.clone()]), own("weir", false));
        let unused = own("shared memory of MPICH (FI_PROVIDER=weir set, unused)", true);
        assert_eq!(told(Some("weir"), vec![memory.clone(), memory.clone()]), unused);
        let both = own("shared memory of MPICH in 2 cells, Weir in 1 cell (FI_PROVIDER=weir set)", false);
        assert_eq!(told(Some("weir"), vec![memory.clone(), weir.clone(), memory.clone()]), both);
        assert_eq!(
            told(Some("tcp"), vec![memory.clone()]),
            own("shared memory of MPICH (FI_PROVIDER=tcp set, unused)", true)
        );
        assert_eq!(told(Some("tcp"), vec![cell(0, 8, 2, by_sockets(1 << 20))]), own("tcp", false));
        assert_eq!(told(Some("tcp"), vec![weir.clone()]), own("Weir (FI_PROVIDER=tcp set, unused)", true));
        assert_eq!(told(None, vec![weir.clone()]), own("Weir", false));
        assert_eq!(
            told(Some("psm3"), vec![memory.clone()]),
            own("psm3 (as set); counted: shared memory of MPICH", false)
        );
        assert_eq!(told(Some("weir"), vec![cell(0, 8, 2, None)]), own("weir (as set, not counted)", false));
        assert_eq!(told(Some("weir"), vec![]), own("weir", false));
    }
}
