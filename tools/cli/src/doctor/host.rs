//! What of this machine is looked at: its interfaces, its kernel, what ranks on it talk through.

use weir_engine::EcnUse;
use weir_job::Env;

use super::{Finding, Severity};
use crate::carriers::{self, SharedMemory};
use crate::interfaces::{self, read_number};
use crate::settings;

/// The interfaces that are used, what speaks against some of them, and what packets they carry.
pub fn check_interfaces(env: &Env, all: &mut Vec<Finding>) {
    let named = interfaces::named(env);
    let variable = settings::set_as(env, "WEIR_IFACE");
    let list = match interfaces::list(&named) {
        Ok(list) => list,
        Err(error) => {
            all.push(Finding::new("interfaces", Severity::Error, error.to_string()));
            return;
        }
    };
    for name in &named {
        if !list.iter().any(|one| one.name == *name && one.up) {
            let text = format!("{variable} names {name}, which is not up or has no address");
            // Those that are there serve without it.
            let severity = if list.iter().any(|one| one.chosen) { Severity::Warning } else { Severity::Error };
            all.push(Finding::new("interfaces", severity, text).fixed_by(format!("unset {variable}")));
        }
    }
    let chosen: Vec<_> = list.iter().filter(|one| one.chosen).collect();
    if chosen.is_empty() {
        // Those that were named are not there, as is said above; it means nothing for the others.
        if named.is_empty() {
            all.push(Finding::new("interfaces", Severity::Error, "no interface is up and has an address"));
        }
        return;
    }
    let names: Vec<String> = chosen
        .iter()
        .map(|one| {
            format!("{} ({})", one.name, one.addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))
        })
        .collect();
    if chosen.iter().all(|one| one.loopback) {
        all.push(Finding::new(
            "interfaces",
            Severity::Warning,
            "only the loopback interface is usable: ranks on other machines cannot be reached",
        ));
    } else {
        all.push(Finding::new("interfaces", Severity::Ok, format!("uses {}", names.join(" and "))));
    }
    all.extend(virtual_ones(&chosen, &variable));
    all.extend(not_told(&chosen, &variable));
    for one in &chosen {
        // Clouds and tunnels often carry a little less than 1500; below IPv6's least, something is
        // wrong.
        if let Some(mtu) = one.mtu.filter(|mtu| *mtu < 1500) {
            let severity = if mtu < 1280 { Severity::Warning } else { Severity::Info };
            all.push(Finding::new(
                "mtu",
                severity,
                format!("{} carries packets of {mtu} bytes; 1500 are usual", one.name),
            ));
        }
    }
    let mut sizes: Vec<u32> = chosen.iter().filter_map(|one| one.mtu).collect();
    sizes.sort_unstable();
    sizes.dedup();
    if sizes.len() > 1 {
        all.push(Finding::new(
            "mtu",
            Severity::Info,
            format!("the interfaces carry packets of different sizes ({sizes:?}); each path's own is found out"),
        ));
    }
}

/// Interfaces that other machines do not reach, in one line.
fn virtual_ones(chosen: &[&interfaces::Interface], variable: &str) -> Option<Finding> {
    let is_virtual =
        |name: &str| ["docker", "virbr", "br-", "cni", "tun", "tap", "wg"].iter().any(|start| name.starts_with(start));
    let (strange, others): (Vec<_>, Vec<_>) = chosen
        .iter()
        .map(|one| (one.local || is_virtual(&one.name), one.name.as_str()))
        .partition(|(strange, _)| *strange);
    let names =
        |list: &[(bool, &str)], between: &str| list.iter().map(|(_, name)| *name).collect::<Vec<_>>().join(between);
    if strange.is_empty() || others.is_empty() {
        return None;
    }
    let (look, network) =
        if strange.len() == 1 { ("looks", "a virtual network") } else { ("look", "virtual networks") };
    let text = format!("{} {look} like {network} that other machines do not reach", names(&strange, " and "));
    let fix = format!("export {variable}={}", names(&others, ","));
    Some(Finding::new("interfaces", Severity::Warning, text).fixed_by(fix))
}

/// Peers are told of so many addresses only: where there are more, the right one may be missing.
fn not_told(chosen: &[&interfaces::Interface], variable: &str) -> Option<Finding> {
    let left_out: Vec<&str> = chosen.iter().filter(|one| !one.told).map(|one| one.name.as_str()).collect();
    if left_out.is_empty() {
        return None;
    }
    let text = format!(
        "peers are told of {} addresses only, and {} of these interfaces are left out: {}",
        interfaces::NAMED,
        left_out.len(),
        left_out.join(", ")
    );
    // The one that other machines are most likely behind; if it is another, its name goes there.
    let first = chosen.iter().find(|one| one.told && !one.local).map_or("NAME", |one| one.name.as_str());
    Some(Finding::new("interfaces", Severity::Warning, text).fixed_by(format!("export {variable}={first}")))
}

/// Below this, a burst of 64 KiB messages from a few peers overflows the socket.
const GOOD_BUFFER_BYTES: u64 = 4 << 20;

/// That a socket's buffer is large enough, though it may be less than what is asked for.
fn enough(name: &str, bytes: u64, wanted: u64, variable: &str) -> String {
    let less = if bytes < wanted {
        format!(": enough, though Weir asks for {wanted} ({variable}) where it is granted")
    } else {
        String::new()
    };
    format!("net.core.{name} is {bytes}{less}")
}

/// Limits and abilities of the kernel, and the carriers that depend on them.
pub fn check_kernel(env: &Env, all: &mut Vec<Finding>) {
    let variable = settings::set_as(env, "WEIR_RCVBUF");
    // A setting that cannot be understood is told of where they are looked at.
    let wanted = settings::understood(env).unwrap_or_default().rcvbuf_bytes as u64;
    for name in ["rmem_max", "wmem_max"] {
        match read_number::<u64>(&format!("/proc/sys/net/core/{name}")) {
            Some(bytes) if bytes < GOOD_BUFFER_BYTES => {
                let text =
                    format!("net.core.{name} is {bytes}: bursts may overflow the socket's buffer and must be repaired");
                all.push(
                    Finding::new("buffers", Severity::Warning, text)
                        .fixed_by(format!("sudo sysctl -w net.core.{name}={GOOD_BUFFER_BYTES}")),
                );
            }
            Some(bytes) => all.push(Finding::new("buffers", Severity::Ok, enough(name, bytes, wanted, &variable))),
            None => {}
        }
    }
    let carriers = carriers::find(env);
    all.push(shared_memory(&carriers.shared_memory));
    all.push(offloads(&carriers.udp));
    all.push(xdp(&carriers.xdp));
    all.push(ecn(settings::understood(env).unwrap_or_default().ecn, &settings::set_as(env, "WEIR_ECN")));
    if let Ok(name) = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control") {
        let text =
            format!("TCP's congestion control is {}; name it when you compare with stacks over TCP", name.trim());
        all.push(Finding::new("rivals", Severity::Info, text));
    }
    if let Ok(cores) = std::thread::available_parallelism() {
        all.push(Finding::new(
            "cores",
            Severity::Info,
            format!("{cores} cores; MPI ranks poll, so more ranks than cores slow each other down"),
        ));
    }
}

/// What ranks of one host talk through.
fn shared_memory(found: &SharedMemory) -> Finding {
    let severity = match found {
        SharedMemory { usable: false, .. } => Severity::Warning,
        SharedMemory { single_copy: true, left_out: None, .. } => Severity::Ok,
        _ => Severity::Info,
    };
    let otherwise = if found.usable { "" } else { "; ranks of one host talk by packets" };
    let text = format!("between ranks of one host and user: {}{otherwise}", found.describe());
    Finding { fix: found.fix.clone(), ..Finding::new("shared memory", severity, text) }
}

/// The way past UDP: where it is asked for and cannot be had everything works, slower.
fn xdp(xdp: &carriers::Xdp) -> Finding {
    let text = xdp.describe();
    match (&xdp.place, xdp.wanted) {
        (Some(_), _) => Finding::new("xdp", Severity::Ok, text),
        (None, false) => Finding::new("xdp", Severity::Info, text),
        // Most hosts have no helper, and who did not ask for it lacks nothing.
        (None, true) if !xdp.asked => Finding::new("xdp", Severity::Info, text),
        // A helper that refuses says itself what would change that, and where no interface is
        // served none would help.
        (None, true) => Finding {
            fix: xdp.nobody.then(|| "sudo weir xdpd --interface NAME --allow USER (weir-xdpd(1))".to_owned()),
            ..Finding::new("xdp", Severity::Warning, text)
        },
    }
}

/// Marks of switches: whether they are asked for, by whom, and how to see that any come.
fn ecn(wanted: EcnUse, variable: &str) -> Finding {
    let why = match (wanted, wanted.is_on()) {
        (EcnUse::Auto, true) => "heeded, for the kernel's TCP is set to DCTCP".to_owned(),
        (EcnUse::Auto, false) => {
            format!("not asked for, as the kernel's TCP is not set to DCTCP; where switches mark: export {variable}=on")
        }
        (_, true) => format!("heeded ({variable}=on)"),
        (_, false) => format!("not asked for ({variable}=off)"),
    };
    let seen = if wanted.is_on() { "; weir stat counts those that come (marks_received)" } else { "" };
    Finding::new("ECN", Severity::Info, format!("marks of switches are {why}{seen}"))
}

fn offloads(udp: &carriers::Udp) -> Finding {
    match (&udp.why, udp.gso, udp.gro) {
        (Some(why), ..) => Finding::new("offload", Severity::Error, format!("cannot open a UDP socket: {why}")),
        (None, true, true) => {
            Finding::new("offload", Severity::Ok, "the kernel cuts and joins UDP packets (GSO and GRO)")
        }
        (None, gso, gro) => {
            let missing: Vec<&str> =
                [("GSO", gso), ("GRO", gro)].iter().filter(|(_, has)| !has).map(|(name, _)| *name).collect();
            let missing = missing.join(" and ");
            let text = format!("the kernel has no UDP {missing}: more CPU time per byte (Linux 5.0 has both)");
            Finding::new("offload", Severity::Warning, text)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::has;
    use super::*;

    #[test]
    fn it_is_said_whether_marks_of_switches_are_heeded_and_how_to_see_them() {
        let text = |wanted| ecn(wanted, "FI_WEIR_ECN").cause;
        assert!(text(EcnUse::On).contains("heeded (FI_WEIR_ECN=on); weir stat counts"), "{}", text(EcnUse::On));
        assert!(text(EcnUse::Off).ends_with("not asked for (FI_WEIR_ECN=off)"), "{}", text(EcnUse::Off));
        assert!(text(EcnUse::Auto).contains("DCTCP"));
    }

    #[test]
    fn what_ranks_of_one_host_lack_is_one_line_with_its_repair() {
        let good = SharedMemory { usable: true, single_copy: true, ..SharedMemory::default() };
        assert_eq!(shared_memory(&good).severity, Severity::Ok);
        let copied = SharedMemory {
            usable: true,
            why: Some("not permitted".into()),
            fix: Some("sysctl x".into()),
            ..SharedMemory::default()
        };
        let told = shared_memory(&copied);
        assert_eq!((told.severity, told.fix.as_deref()), (Severity::Info, Some("sysctl x")));
        assert!(told.cause.contains("copied twice: not permitted"), "{}", told.cause);
        let none = SharedMemory { why: Some("no memory".into()), ..SharedMemory::default() };
        let told = shared_memory(&none);
        assert_eq!(told.severity, Severity::Warning);
        assert!(told.cause.ends_with("not usable: no memory; ranks of one host talk by packets"), "{}", told.cause);
        let left_out = SharedMemory { left_out: Some("WEIR_CARRIER is set".into()), ..good };
        let told = shared_memory(&left_out);
        assert_eq!(told.severity, Severity::Info);
        assert!(told.cause.ends_with("WEIR_CARRIER is set"), "{}", told.cause);
    }

    #[test]
    fn how_to_start_a_helper_is_said_where_none_is_and_not_beside_what_one_says() {
        let told = |asked, why: &str, nobody| {
            xdp(&carriers::Xdp { wanted: true, asked, place: None, why: Some(why.to_owned()), nobody })
        };
        let refused =
            told(true, "the helper does not serve the interface of this address (weir xdpd --interface)", false);
        assert_eq!((refused.severity, &refused.fix), (Severity::Warning, &None));
        assert_eq!(refused.cause.matches("xdpd").count(), 1, "{}", refused.cause);
        let nobody = "no helper (weir xdpd, which root starts) listens at /run/weir/xdpd.sock";
        assert_eq!(told(false, nobody, true).severity, Severity::Info, "as on most hosts");
        assert_eq!(told(false, "only loopback is served", false).severity, Severity::Info);
        let Finding { severity, fix, .. } = told(true, nobody, true);
        assert_eq!(severity, Severity::Warning);
        assert!(fix.is_some_and(|fix| fix.starts_with("sudo weir xdpd --interface")));
    }

    #[test]
    fn of_many_interfaces_those_that_lead_nowhere_and_those_not_told_are_named() {
        let one = |name: &str, told: bool, local: bool| interfaces::Interface {
            name: name.into(),
            addresses: vec![],
            mtu: Some(1500),
            up: true,
            loopback: false,
            chosen: true,
            local,
            told,
        };
        let all =
            [one("eth0", true, false), one("br0", true, true), one("docker0", false, false), one("eth7", false, false)];
        let chosen: Vec<_> = all.iter().collect();
        let found = virtual_ones(&chosen, "WEIR_IFACE").unwrap();
        assert!(found.cause.starts_with("br0 and docker0 look like virtual networks"), "{found:?}");
        assert_eq!(found.fix.unwrap(), "export WEIR_IFACE=eth0,eth7");
        let found = not_told(&chosen, "WEIR_IFACE").unwrap();
        assert!(
            found.cause.contains("6 addresses only, and 2 of") && found.cause.ends_with("docker0, eth7"),
            "{found:?}"
        );
        assert_eq!(found.fix.unwrap(), "export WEIR_IFACE=eth0");
        // A host's only network may be a bridge.
        assert!(
            virtual_ones(&chosen[1..2], "WEIR_IFACE").is_none() && virtual_ones(&chosen[..1], "WEIR_IFACE").is_none()
        );
        assert!(not_told(&chosen[..2], "WEIR_IFACE").is_none());
    }

    #[test]
    fn a_missing_interface_is_an_error_and_says_nothing_of_others() {
        for name in ["WEIR_IFACE", "FI_WEIR_IFACE"] {
            let mut all = Vec::new();
            check_interfaces(&Env::from_pairs([(name, "nosuch0")]), &mut all);
            assert!(has(&all, "interfaces", Severity::Error) && all.len() == 1, "{all:?}");
            assert!(all[0].cause.starts_with(&format!("{name} names nosuch0")), "{all:?}");
            assert_eq!(all[0].fix, Some(format!("unset {name}")));
        }
        let mut all = Vec::new();
        check_interfaces(&Env::from_pairs([("WEIR_IFACE", "lo,nosuch0")]), &mut all);
        assert!(!has(&all, "interfaces", Severity::Error) && all[0].cause.contains("nosuch0"), "lo serves: {all:?}");
    }

    #[test]
    fn a_buffer_below_what_is_asked_for_is_told_to_be_enough() {
        assert_eq!(enough("rmem_max", 9 << 20, 8 << 20, "WEIR_RCVBUF"), "net.core.rmem_max is 9437184");
        let text = enough("rmem_max", 4 << 20, 8 << 20, "FI_WEIR_RCVBUF");
        assert_eq!(
            text,
            "net.core.rmem_max is 4194304: enough, though Weir asks for 8388608 (FI_WEIR_RCVBUF) where it is granted"
        );
    }
}
