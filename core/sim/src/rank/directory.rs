//! What all ranks of a run share: who lives where, the checkers, the scenario.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use weir_link::Config;
use weir_wire::EndpointName;

use super::App;
use crate::check::{Checks, Program};
use crate::planted::Defect;
use crate::spec::{BulkSpec, HostId, NetId, Ns};

/// Endpoint names and ids of all programs, as a launcher's exchange would give them.
#[derive(Debug, Default)]
pub struct Directory {
    names: BTreeMap<Program, EndpointName>,
    programs: BTreeMap<u64, Program>,
    current: BTreeMap<HostId, u32>,
}

impl Directory {
    pub(super) fn enter(&mut self, program: Program, endpoint_id: u64, name: EndpointName) {
        self.names.insert(program, name);
        self.programs.insert(endpoint_id, program);
        self.current.insert(program.host, program.incarnation);
    }

    /// The program with this endpoint id.
    #[must_use]
    pub fn program(&self, endpoint_id: u64) -> Option<Program> {
        self.programs.get(&endpoint_id).copied()
    }

    /// The name of a program.
    #[must_use]
    pub fn name(&self, program: Program) -> Option<EndpointName> {
        self.names.get(&program).cloned()
    }

    /// The incarnation that lives on a host, or lived there last.
    #[must_use]
    pub fn current(&self, host: HostId) -> Program {
        Program { host, incarnation: self.current.get(&host).copied().unwrap_or(0) }
    }

    /// Whether there is such a host.
    #[must_use]
    pub fn exists(&self, host: HostId) -> bool {
        self.current.contains_key(&host)
    }
}

/// Makes the program for a rank.
pub type MakeApp = Rc<dyn Fn(Program) -> Box<dyn App>>;

/// What all ranks of a run share.
pub struct Shared {
    /// The run's seed.
    pub seed: u64,
    /// Networks that each host is on.
    pub networks: NetId,
    /// Configuration of every endpoint.
    pub config: Config,
    /// The settings of its messages.
    pub messages: weir_message::Config,
    /// Bulk connections are taken, and how.
    pub bulk_connections: Option<BulkSpec>,
    /// No datagram may be larger.
    pub max_datagram: usize,
    /// The key of the job.
    pub job_key: [u8; 32],
    /// Who is who.
    pub directory: Directory,
    /// The checkers.
    pub checks: Checks,
    /// Hosts whose program is not done.
    pub unfinished: BTreeSet<HostId>,
    /// Hosts that will come back after a crash.
    pub restarting: BTreeSet<HostId>,
    /// When the first and the last process had got all of each superstep.
    pub superstep_ends: Vec<(Ns, Ns)>,
    /// From each request to its answer.
    pub answer_ns: Vec<Ns>,
    /// When the last program became done.
    pub finished_ns: Ns,
    /// The run is being wound up.
    pub closing: bool,
    /// What is wrong with every rank.
    pub planted: Option<Defect>,
    make: MakeApp,
}

impl Shared {
    /// Nothing is known yet.
    #[must_use]
    pub fn new(seed: u64, networks: NetId, config: Config, messages: weir_message::Config, make: MakeApp) -> Self {
        let mut checks = Checks::default();
        checks.memory.limits = crate::check::memory::Limits {
            credit_msgs: u64::from(config.session.initial_credit_msgs),
            credit_bytes: config.session.initial_credit_bytes,
            send_queue_msgs: config.session.send_queue_msgs + config.session.control_queue as usize,
            rndvs_max: config.session.rndvs_max,
            rx_buffer_bytes: config.rx_buffer_bytes,
            wire_bytes: 0,
            rate: 0,
            round_trip_ns: 0,
            datagram_bytes: u64::from(config.max_datagram),
        };
        Shared {
            seed,
            networks,
            max_datagram: usize::from(config.max_datagram),
            config,
            messages,
            bulk_connections: None,
            job_key: [0x5a; 32],
            directory: Directory::default(),
            checks,
            answer_ns: Vec::new(),
            unfinished: BTreeSet::new(),
            restarting: BTreeSet::new(),
            superstep_ends: Vec::new(),
            finished_ns: 0,
            closing: false,
            planted: None,
            make,
        }
    }

    /// Whether every rank has this defect.
    pub(super) fn has(&self, defect: Defect) -> bool {
        self.planted == Some(defect)
    }

    pub(super) fn make_app(&self, program: Program) -> Box<dyn App> {
        (self.make)(program)
    }

    pub(super) fn crashed(&mut self, program: Program, now: Ns) {
        self.checks.died(program, now);
        if !self.restarting.contains(&program.host) {
            self.unfinished.remove(&program.host);
        }
    }
}
