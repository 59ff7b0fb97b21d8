//! The network between the nodes, where an emulator makes it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Run;

/// The variable in which an emulator tells this to the programs it runs: the field `network` of a
/// run, as JSON.
pub const NETWORK_VARIABLE: &str = "WEIR_EMULATE_NETWORK";
/// A variable of emulated hosts that is older.
const NAME_VARIABLE: &str = "WEIR_EMULATE_NAME";

/// An emulated network.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    /// What makes it, e.g. `weir emulate`.
    pub emulator: String,
    /// The name that somebody gave it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// How many hosts it has; not all need be measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hosts: Option<u32>,
    /// The seed of its randomness.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Whether the kernel alone joins the hosts.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub plain: bool,
    /// The parallel networks of the hosts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub networks: Vec<Links>,
    /// Kernel settings of the hosts.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sysctl: BTreeMap<String, String>,
    /// How many changes of links were to come at times of their own.
    #[serde(default, skip_serializing_if = "is_none")]
    pub events: u32,
    /// What somebody changed since the network began, before the program was started: the last
    /// changes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<String>,
}

/// One network, to which each host has a link.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Links {
    /// Its name, and that of the hosts' interfaces.
    pub name: String,
    /// What the links of most hosts do, as the emulator's own file says it
    /// (`spec/network-toml.md`).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, String>,
    /// The settings of hosts whose links are not as those.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub hosts: BTreeMap<String, BTreeMap<String, String>>,
    /// How many more such hosts there are.
    #[serde(default, skip_serializing_if = "is_none")]
    pub hosts_left_out: u32,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde wants it so")]
fn is_none(count: &u32) -> bool {
    *count == 0
}

/// The settings that say most about times, in this order; others follow.
const FIRST: [&str; 9] = ["bus", "collisions", "rate", "delay", "jitter", "loss", "gilbert", "queue", "mark"];
/// What every network has unless somebody says otherwise.
const USUAL_MTU: &str = "1500";

impl Network {
    /// From the value of [`NETWORK_VARIABLE`]; nothing where that is none.
    #[must_use]
    pub fn from_variable(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok().filter(|network: &Network| !network.emulator.is_empty())
    }

    /// Whether both do the same to packets, whatever their names, seeds and numbers of hosts.
    #[must_use]
    pub fn is_like(&self, other: &Network) -> bool {
        let bare = |network: &Network| Network { name: None, hosts: None, seed: None, ..network.clone() };
        bare(self) == bare(other)
    }

    /// In one line, for people.
    #[must_use]
    pub fn told(&self) -> String {
        let mut first = vec![format!("emulated by {}", self.emulator)];
        first.extend(self.hosts.map(|n| format!("{n} {}", if n == 1 { "host" } else { "hosts" })));
        first.extend(self.plain.then(|| "joined by the kernel alone".to_owned()));
        first.extend(self.name.as_ref().map(|name| format!("named {name}")));
        let mut parts = vec![first.join(", ")];
        for one in &self.networks {
            parts.push(format!("{}: {}", one.name, settings(&one.settings)));
            parts.extend(one.hosts.iter().map(|(host, own)| format!("{host} on {}: {}", one.name, settings(own))));
            if one.hosts_left_out > 0 {
                parts.push(format!("{} more hosts on {} with links of their own", one.hosts_left_out, one.name));
            }
        }
        parts.extend(self.sysctl.iter().map(|(key, value)| format!("{key}={value}")));
        match self.events {
            0 => {}
            1 => parts.push("1 change at its time".to_owned()),
            n => parts.push(format!("{n} changes at their times")),
        }
        if !self.changes.is_empty() {
            parts.push(format!("changed before: {}", self.changes.join(", ")));
        }
        parts.join("; ")
    }
}

fn settings(all: &BTreeMap<String, String>) -> String {
    let told = |key: &str, value: &str| match (key, value) {
        ("mtu", USUAL_MTU) => None,
        (key, "yes") => Some(key.to_owned()),
        (key, value) => Some(format!("{key} {value}")),
    };
    let first = FIRST.iter().filter_map(|key| told(key, all.get(*key)?));
    let rest = all.iter().filter(|(key, _)| !FIRST.contains(&key.as_str())).filter_map(|(key, value)| told(key, value));
    let told: Vec<String> = first.chain(rest).collect();
    if told.is_empty() { "perfect links".to_owned() } else { told.join(", ") }
}

/// What a run says of the network between its nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Between<'a> {
    /// It was emulated, like this.
    Emulated(&'a Network),
    /// It was emulated, and the run does not say how: its writer was older.
    Untold,
    /// Nothing: most likely it was a real one.
    Nothing,
}

impl<'a> Between<'a> {
    /// What this run says.
    #[must_use]
    pub fn nodes_of(run: &'a Run) -> Self {
        match &run.network {
            Some(network) => Between::Emulated(network),
            None if run.environment.contains_key(NAME_VARIABLE) => Between::Untold,
            None => Between::Nothing,
        }
    }

    /// Whether it is known that two runs had different networks.
    #[must_use]
    pub fn differs_from(self, other: Between) -> bool {
        match (self, other) {
            (Between::Emulated(one), Between::Emulated(other)) => !one.is_like(other),
            (Between::Emulated(_) | Between::Untold, Between::Nothing)
            | (Between::Nothing, Between::Emulated(_) | Between::Untold) => true,
            (Between::Untold, _) | (_, Between::Untold) | (Between::Nothing, Between::Nothing) => false,
        }
    }

    /// For people.
    #[must_use]
    pub fn told(self) -> String {
        match self {
            Between::Emulated(network) => network.told(),
            Between::Untold => "emulated, and the run does not say how".to_owned(),
            Between::Nothing => "none that was emulated, as far as the run tells".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAB: &str = r#"{"emulator": "weir emulate", "name": "lab", "hosts": 4, "seed": 7, "networks": [
        {"name": "net1", "settings": {"bus": "yes", "rate": "10m", "mtu": "1500", "queue": "64p", "overhead": "24"},
         "hosts": {"host2": {"mtu": "9000", "loss": "2%"}}},
        {"name": "net2", "settings": {"mtu": "1500"}}], "events": 2, "changes": ["cut host2 net1"], "later": 1}"#;

    fn lab() -> Network {
        Network::from_variable(LAB).unwrap()
    }

    #[test]
    fn a_network_is_told_in_one_line() {
        let told = "emulated by weir emulate, 4 hosts, named lab; net1: bus, rate 10m, queue 64p, overhead 24; \
            host2 on net1: loss 2%, mtu 9000; net2: perfect links; 2 changes at their times; changed before: cut host2 net1";
        assert_eq!(lab().told(), told);
        assert_eq!(Network::from_variable("{}"), None);
        assert_eq!(Network::from_variable("net-1"), None);
        assert_eq!(Network::from_variable("{\"emulator\": \"\"}"), None);
    }

    #[test]
    fn networks_differ_by_what_they_do() {
        let same = Network { name: None, hosts: Some(9), seed: Some(1), ..lab() };
        assert!(lab().is_like(&same));
        let mut other = lab();
        other.networks[0].settings.insert("rate".into(), "100m".into());
        assert!(!lab().is_like(&other));
        assert!(!lab().is_like(&Network { changes: Vec::new(), ..lab() }));
    }

    #[test]
    fn what_is_not_known_does_not_differ() {
        let (mut with, mut old, real) = (Run::new("m"), Run::new("m"), Run::new("m"));
        with.network = Some(lab());
        old.environment.insert(NAME_VARIABLE.into(), "net-1".into());
        let [with, old, real] = [&with, &old, &real].map(Between::nodes_of);
        assert!(with.differs_from(real) && real.differs_from(with) && old.differs_from(real) && real.differs_from(old));
        assert!(!with.differs_from(with) && !old.differs_from(old) && !real.differs_from(real));
        assert!(!with.differs_from(old) && !old.differs_from(with));
    }
}
