//! What a machine is: who is where, how long a message is under way between two processes, what is
//! shared on its way, and how collectives are made. A [`Machine`] is data; what is under way in a
//! run is in [`crate::network`].

mod collectives;
mod fabric;
mod graph;
mod grid;
mod path;

pub use collectives::{Algorithm, Collectives, Measured, operation_name, operation_of};
pub use fabric::{Fabric, Link, MOST_HOPS, Route};
pub use graph::{GraphError, GraphLink, MOST_GRAPH_NODES, of_graph};
pub use grid::{Beyond, Grid, Level};
pub(crate) use path::SendEnd;
pub use path::{Draw, Flight, Linear, Local, Path, Transit};

use weir_annotations::program::{Message, Model, Op, OpKind};

use crate::{Options, Time};

/// A machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Machine {
    /// Its name, for people.
    pub name: String,
    /// Which process runs where.
    pub placement: Placement,
    /// Between processes of different nodes, where `links` has no more to say.
    pub inter: Path,
    /// Between processes of one node, and of a process with itself.
    pub intra: Path,
    /// The links between nodes.
    pub fabric: Fabric,
    /// How what is on a link shares it.
    pub sharing: Sharing,
    /// What a message takes on each of these links, where they differ: the longest on its route
    /// counts. Empty: `inter` on all.
    pub links: Vec<Path>,
    /// What a node can send and take at once.
    pub interface: Interface,
    /// Messages that are lost and sent again; none: they never are.
    pub tail: Option<Tail>,
    /// How fast its processors are: serial times are divided by this.
    pub cpu: Cpu,
    /// How collectives are made.
    pub collectives: Collectives,
    /// How much launches of a program on it differ: the standard deviation of the logarithm of a
    /// factor that all measured times of a run have in common. 0: nothing is known of it.
    pub between_launches: f64,
    /// What was assumed when it was made, for people.
    pub notices: Vec<String>,
}

/// Which process runs on which node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// Processes on a node, at least 1.
    pub ranks_per_node: u32,
    /// How neighbours in rank are placed.
    pub order: Order,
}

/// How messages share a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sharing {
    /// As each finds it when it sets out; at nodes one goes behind the other.
    #[default]
    Once,
    /// Evenly, and anew whenever one begins or ends, at nodes too. All paths between nodes are by
    /// formula.
    Fair,
}

/// How neighbours in rank are placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// A node is filled before the next.
    Block,
    /// One to each node in turn.
    Cyclic,
}

impl Placement {
    /// How many nodes so many processes need.
    #[must_use]
    pub fn nodes(&self, numprocs: u32) -> u32 {
        numprocs.div_ceil(self.ranks_per_node.max(1)).max(1)
    }

    /// The node of a process.
    #[must_use]
    pub fn node_of(&self, rank: u32, numprocs: u32) -> u32 {
        match self.order {
            Order::Block => rank / self.ranks_per_node.max(1),
            Order::Cyclic => rank % self.nodes(numprocs),
        }
    }
}

/// What a node can send and take at once: messages queue for it.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Interface {
    /// Bytes per second that come in; none: no limit.
    pub ingress_bytes_per_s: Option<f64>,
    /// Bytes per second that go out; none: no limit.
    pub egress_bytes_per_s: Option<f64>,
    /// Bytes that may wait to come in before what arrives is lost; none: no limit.
    pub buffer_bytes: Option<f64>,
}

/// Loss of messages, and the timer after which they are sent again.
///
/// The `k`-th time that the same message is lost it waits `timeout` x 2^k, k from 0 and counted no
/// further than `doublings`: with 200 ms that is 200, 600, 1400 ms in all. What was sent behind it
/// on the same channel waits with it, which is what makes losses come in bursts at few processes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tail {
    /// The first timer.
    pub timeout: Time,
    /// The chance that a message is lost whatever the load.
    pub chance: f64,
    /// The chance that a message is lost which meets a node whose buffer is full
    /// ([`Interface::buffer_bytes`]).
    pub overflow_chance: f64,
    /// How often the timer doubles at most.
    pub doublings: u32,
}

/// How fast processors are.
#[derive(Debug, Clone, PartialEq)]
pub struct Cpu {
    /// All of them, as a multiple of what the serial times hold for.
    pub speed: f64,
    /// Some of them, by process, instead.
    pub speed_of: Vec<(u32, f64)>,
}

impl Default for Cpu {
    fn default() -> Self {
        Self { speed: 1.0, speed_of: Vec::new() }
    }
}

impl Cpu {
    /// The speed of a process's processor; 1 for what is no speed.
    #[must_use]
    pub fn speed(&self, rank: u32) -> f64 {
        let speed = self.speed_of.iter().rev().find(|s| s.0 == rank).map_or(self.speed, |s| s.1);
        if speed > 0.0 && speed.is_finite() { speed } else { 1.0 }
    }
}

impl Machine {
    /// How many processes have a place, if that is limited.
    #[must_use]
    pub fn places(&self) -> Option<u64> {
        let nodes = u64::try_from(self.fabric.nodes()?).ok()?;
        Some(nodes * u64::from(self.placement.ranks_per_node.max(1)))
    }

    /// Whether two runs of a model with different seeds may differ by what its communication takes.
    #[must_use]
    pub fn varies(&self, options: &Options, model: &Model) -> bool {
        let measured = |op: &Op| match &op.kind {
            OpKind::Message(message) => match &**message {
                Message::Collective(collective) => self.collectives.measured.contains_key(&collective.operation),
                _ => false,
            },
            _ => false,
        };
        let drawn = [&self.inter, &self.intra].into_iter().chain(&self.links).any(Path::varies)
            || model.ops.iter().any(measured);
        options.losses && self.tail.is_some() || options.draw == Draw::Full && drawn
    }

    /// The simplest: a message of n bytes takes `latency` + n / bandwidth from send to arrival,
    /// local parts take no time, every standard send is eager, nothing is shared and nothing
    /// varies.
    #[must_use]
    pub fn simplest(latency: Time, bytes_per_s: f64) -> Self {
        let path = Path::linear(latency, bytes_per_s);
        Self {
            name: "latency and bandwidth".to_owned(),
            placement: Placement { ranks_per_node: 1, order: Order::Block },
            inter: path.clone(),
            intra: path,
            fabric: Fabric::flat(None),
            sharing: Sharing::Once,
            links: Vec::new(),
            interface: Interface::default(),
            tail: None,
            cpu: Cpu::default(),
            collectives: Collectives::default(),
            between_launches: 0.0,
            notices: Vec::new(),
        }
    }
}
