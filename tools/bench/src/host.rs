//! What one process can find out about the node it runs on. What it cannot is left out.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};
use weir_distribution::{NETWORK_VARIABLE, Network, Node, TscInfo};

use crate::memory;
use crate::sys::{affinity, counter};

/// One rank's facts, told to rank 0.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Facts {
    /// What tells nodes apart: host name, boot of the kernel (two machines may have one name), and
    /// network namespace, as hosts may be emulated on one machine.
    pub identity: String,
    /// What tells apart whose clock the kernel keeps: ranks for which it is equal read the kernel's
    /// clock alike, on emulated hosts of one machine too.
    pub kernel: String,
    /// The node.
    pub node: Node,
    /// Memory that can still be had there, bytes.
    pub available_bytes: Option<u64>,
    /// Processors this rank may run on.
    pub processors: Vec<u32>,
    /// Processors online there.
    pub online: usize,
    /// Processors' worth of time that the rank's control group may use, if that is limited.
    pub quota: Option<f64>,
    /// Version of the program.
    pub version: String,
    /// Whether all ranks of the node read one cycle counter: the kernel itself trusts it.
    pub shared_counter: bool,
}

impl Facts {
    /// Facts of a node of which only the name is known.
    #[must_use]
    pub fn unknown(name: &str) -> Facts {
        Facts {
            identity: name.to_owned(),
            kernel: name.to_owned(),
            node: Node { name: name.to_owned(), ..Node::default() },
            available_bytes: None,
            processors: Vec::new(),
            online: 1,
            quota: None,
            version: env!("CARGO_PKG_VERSION").into(),
            shared_counter: true,
        }
    }

    /// Looks around.
    #[must_use]
    pub fn here() -> Facts {
        let name = text("/proc/sys/kernel/hostname").unwrap_or_else(|| "localhost".into());
        let boot = text("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let node = node(name.clone(), &cpuinfo, &meminfo);
        let trusted = node.tsc.as_ref().is_some_and(|t| t.invariant && t.kernel_clocksource.as_deref() == Some("tsc"));
        Facts {
            identity: identity(&name, &boot, &namespace("net")),
            kernel: clock_identity(),
            node,
            available_bytes: memory::available_bytes(),
            processors: affinity::allowed().unwrap_or_default(),
            online: affinity::online_processors(),
            quota: quota(Path::new("/sys/fs/cgroup"), &fs::read_to_string("/proc/self/cgroup").unwrap_or_default()),
            version: env!("CARGO_PKG_VERSION").into(),
            shared_counter: trusted,
        }
    }
}

/// Whether these processes are on several hosts that are namespaces of one machine.
#[must_use]
pub fn are_of_one_machine(facts: &[Facts]) -> bool {
    let Some((first, others)) = facts.split_first() else { return false };
    others.iter().all(|one| one.kernel == first.kernel) && others.iter().any(|one| one.identity != first.identity)
}

/// What tells apart whose monotonic clock the kernel keeps: processes for which it is equal read
/// the same one, in whatever network namespace. Where the boot cannot be known, those of one name.
#[must_use]
pub fn clock_identity() -> String {
    let boot = text("/proc/sys/kernel/random/boot_id").or_else(|| text("/proc/sys/kernel/hostname"));
    format!("{} {}", boot.unwrap_or_default(), namespace("time"))
}

/// The most memory of this process that has been resident since [`forget_peak_memory`], bytes.
#[must_use]
pub fn peak_memory_bytes() -> Option<u64> {
    kib_of(&fs::read_to_string("/proc/self/status").ok()?, "VmHWM")
}

/// The most memory is found anew from now on, where the kernel lets a process ask for that.
pub fn forget_peak_memory() {
    let _ = fs::write("/proc/self/clear_refs", "5");
}

/// Network namespaces have the same few numbers on every machine, so that they tell nothing apart
/// without the boot.
fn identity(name: &str, boot: &str, namespace: &str) -> String {
    format!("{name} {boot} {namespace}")
}

/// The number of this process's namespace of a kind, as the kernel writes it; nothing if it cannot
/// be known.
fn namespace(kind: &str) -> String {
    let link = fs::read_link(Path::new("/proc/self/ns").join(kind));
    link.map_or_else(|_| String::new(), |p| p.display().to_string())
}

/// The least share of processors that the control groups of a process leave it (version 2:
/// `cpu.max`, quota and period in microseconds or `max`), in processors. `groups` is what
/// `/proc/self/cgroup` says.
fn quota(root: &Path, groups: &str) -> Option<f64> {
    let own = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let limit = |group: &Path| {
        let words = text(root.join(group).join("cpu.max"))?;
        let (quota, period) = words.split_once(' ')?;
        let (quota, period) = (quota.parse::<f64>().ok()?, period.parse::<f64>().ok()?);
        (period > 0.0).then(|| quota / period)
    };
    Path::new(own).ancestors().filter_map(limit).reduce(f64::min)
}

fn text(path: impl AsRef<Path>) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

fn node(name: String, cpuinfo: &str, meminfo: &str) -> Node {
    let cpu = Path::new("/sys/devices/system/cpu");
    let (sockets, cores) = sockets_and_cores(cpuinfo);
    let threads = cpuinfo.lines().filter(|line| line.starts_with("processor")).count();
    let turbo = match (text(cpu.join("intel_pstate/no_turbo")).as_deref(), text(cpu.join("cpufreq/boost")).as_deref()) {
        (Some("0"), _) | (None, Some("1")) => Some(true),
        (Some(_), _) | (None, Some(_)) => Some(false),
        (None, None) => None,
    };
    let kernel = text("/proc/sys/kernel/ostype").zip(text("/proc/sys/kernel/osrelease"));
    Node {
        name,
        cpu: value_of(cpuinfo, "model name").map(str::to_owned),
        sockets,
        cores,
        threads: (threads > 0).then_some(threads as u32),
        memory_bytes: kib_of(meminfo, "MemTotal"),
        kernel: kernel.map(|(system, release)| format!("{system} {release} {}", std::env::consts::ARCH)),
        governor: text(cpu.join("cpu0/cpufreq/scaling_governor")),
        turbo,
        tsc: Some(TscInfo {
            invariant: counter::is_invariant(),
            frequency_hz: None,
            kernel_clocksource: text("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        }),
    }
}

/// `name : value` lines, as the kernel writes them.
fn value_of<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    lines.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim())
}

fn kib_of(meminfo: &str, name: &str) -> Option<u64> {
    let value = value_of(meminfo, name)?.strip_suffix("kB")?.trim().parse::<u64>().ok()?;
    value.checked_mul(1024)
}

fn sockets_and_cores(cpuinfo: &str) -> (Option<u32>, Option<u32>) {
    let mut cores = std::collections::BTreeSet::new();
    for block in cpuinfo.split("\n\n") {
        if let Some(socket) = value_of(block, "physical id") {
            cores.insert((socket.to_owned(), value_of(block, "core id").unwrap_or("0").to_owned()));
        }
    }
    let sockets: std::collections::BTreeSet<&String> = cores.iter().map(|(socket, _)| socket).collect();
    let some = |count: usize| (count > 0).then_some(count as u32);
    (some(sockets.len()), some(cores.len()))
}

/// Variables that steer libraries and transports.
const STEERING: [&str; 10] =
    ["FI_", "MPICH_", "MPIR_", "MPIX_", "OMPI_MCA_", "PRTE_MCA_", "UCX_", "UCC_", "WEIR_", "OMP_"];
/// What may hold a secret is named, its value is not kept.
const SECRET: [&str; 4] = ["KEY", "SECRET", "TOKEN", "PASS"];
/// What stands for it.
pub const NOT_KEPT: &str = "(not kept)";

/// Whether the value of a variable is not to be kept.
#[must_use]
pub fn is_secret(name: &str) -> bool {
    SECRET.iter().any(|word| name.contains(word)) && !name.ends_with("_FILE")
}

/// Selected variables of the environment, secrets blotted out. What they say of an emulated network
/// and of the command of `weir run` has places of its own ([`network`],
/// [`crate::typed::launcher`]).
#[must_use]
pub fn environment(vars: impl Iterator<Item = (String, String)>) -> BTreeMap<String, String> {
    let vars = vars.filter(|(name, _)| name != NETWORK_VARIABLE && name != crate::typed::LAUNCHER);
    let steering = vars.filter(|(name, _)| STEERING.iter().any(|prefix| name.starts_with(prefix)));
    let shown = steering.map(|(name, value)| {
        let value = if is_secret(&name) { NOT_KEPT.to_owned() } else { value };
        (name, value)
    });
    shown.collect()
}

/// The network between the hosts, where an emulator makes it and tells so.
#[must_use]
pub fn network() -> Option<Network> {
    Network::from_variable(&std::env::var(NETWORK_VARIABLE).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_writes_is_understood() {
        let cpuinfo = "processor\t: 0\nmodel name\t: A\nphysical id\t: 0\ncore id\t: 0\n\nprocessor\t: 1\nphysical id\t: 0\ncore id\t: 0\n\nprocessor\t: 2\nphysical id\t: 1\ncore id\t: 0\n";
        let node = node("n".into(), cpuinfo, "MemTotal:       24000 kB\n");
        assert_eq!((node.sockets, node.cores, node.threads), (Some(2), Some(2), Some(3)));
        assert_eq!((node.cpu.as_deref(), node.memory_bytes), (Some("A"), Some(24_576_000)));
        assert_eq!(kib_of("MemTotal: much", "MemTotal"), None);
    }

    #[test]
    fn machines_of_one_name_are_told_apart_by_their_boots() {
        let (one, other) = (identity("node", "a-1", "net:[4026531840]"), identity("node", "b-2", "net:[4026531840]"));
        assert_ne!(one, other);
        assert_ne!(one, identity("node", "a-1", "net:[4026532000]"), "hosts emulated on one machine");
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        assert!(Facts::here().identity.contains(boot.trim()));
    }

    #[test]
    fn hosts_of_one_kernel_are_one_machine() {
        let of = |kernel: &str, identity: &str| Facts { kernel: kernel.into(), ..Facts::unknown(identity) };
        assert!(are_of_one_machine(&[of("a", "host1"), of("a", "host2"), of("a", "host1")]));
        assert!(!are_of_one_machine(&[of("a", "host1"), of("b", "host2")]));
        assert!(!are_of_one_machine(&[of("a", "host1"), of("a", "host1")]), "one host");
        assert!(!are_of_one_machine(&[Facts::unknown("host1"), Facts::unknown("host2")]), "nobody knows");
    }

    #[test]
    fn emulated_hosts_of_one_machine_are_nodes_and_one_clock() {
        let (here, network) = (Facts::here(), namespace("net"));
        assert!(network.starts_with("net:["), "{network}");
        assert!(
            here.identity.contains(&network) && !here.kernel.contains(&network),
            "{} {}",
            here.identity,
            here.kernel
        );
        assert!(here.kernel.contains(&namespace("time")), "{}", here.kernel);
    }

    #[test]
    fn a_group_has_what_it_and_those_above_it_may_use() {
        let root = tempfile::tempdir().unwrap();
        let inner = root.path().join("job/step");
        fs::create_dir_all(&inner).unwrap();
        let groups = "3:cpuset:/\n0::/job/step\n";
        assert_eq!(quota(root.path(), groups), None);
        fs::write(inner.join("cpu.max"), "max 100000\n").unwrap();
        assert_eq!(quota(root.path(), groups), None);
        fs::write(root.path().join("job/cpu.max"), "250000 100000\n").unwrap();
        assert_eq!(quota(root.path(), groups), Some(2.5));
        fs::write(inner.join("cpu.max"), "50000 100000\n").unwrap();
        assert_eq!(quota(root.path(), groups), Some(0.5));
        assert_eq!(quota(root.path(), "0::/\n"), None);
    }

    #[test]
    fn secrets_are_not_kept() {
        let vars = [
            ("FI_PROVIDER", "tcp"),
            ("WEIR_KEY", "abc"),
            ("WEIR_KEY_FILE", "/k"),
            ("HOME", "/h"),
            (NETWORK_VARIABLE, "{}"),
        ];
        let kept = environment(vars.into_iter().map(|(a, b)| (a.to_owned(), b.to_owned())));
        let expected = [("FI_PROVIDER", "tcp"), ("WEIR_KEY", "(not kept)"), ("WEIR_KEY_FILE", "/k")];
        assert_eq!(kept, expected.into_iter().map(|(a, b)| (a.to_owned(), b.to_owned())).collect());
    }

    #[test]
    fn the_peak_of_memory_is_that_since_it_was_forgotten() {
        forget_peak_memory();
        let before = peak_memory_bytes().unwrap();
        let memory = std::hint::black_box(vec![1u8; 64 << 20]);
        let with = peak_memory_bytes().unwrap();
        assert!(with >= before + (60 << 20) && memory[1 << 20] == 1, "{before} {with}");
    }

    #[test]
    fn this_node_has_a_name_and_processors() {
        let facts = Facts::here();
        assert!(!facts.node.name.is_empty() && !facts.processors.is_empty());
    }
}
