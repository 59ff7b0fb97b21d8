//! `weir doctor`: what keeps programs from running over Weir, or from running well.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde::Serialize;
use weir_engine::EcnUse;
use weir_job::Env;

use crate::carriers::{self, SharedMemory};
use crate::environment;
use crate::interfaces::{self, read_number};
use crate::mpi::{self, Kind};
use crate::{provider, run, running, settings};

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Checked, and good.
    Ok,
    /// Worth knowing.
    Info,
    /// Works, but slower or not as meant.
    Warning,
    /// Does not work.
    Error,
}

/// One thing that was looked at.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// What was looked at.
    pub check: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// What was found.
    pub cause: String,
    /// The command that repairs it.
    pub fix: Option<String>,
}

impl Finding {
    /// Without a repair.
    pub fn new(check: &'static str, severity: Severity, cause: impl Into<String>) -> Self {
        Self { check, severity, cause: cause.into(), fix: None }
    }

    /// With one.
    pub fn fixed_by(mut self, command: impl Into<String>) -> Self {
        self.fix = Some(command.into());
        self
    }
}

/// Looks at everything; `program` is one the user wants to run.
pub fn examine(env: &Env, program: Option<&Path>) -> Vec<Finding> {
    let mut all = Vec::new();
    let provider = check_provider(env, &mut all);
    let key = check_key(env, &mut all);
    let found = check_mpi(env, program, &mut all);
    check_variables(env, provider.is_some(), &mut all);
    let mut network = Vec::new();
    // Addresses that are named overrule interfaces that are.
    if ["WEIR_ADDR", "FI_WEIR_ADDR"].iter().all(|name| env.get(name).is_none()) {
        check_interfaces(env, &mut network);
    }
    let has_interface = !network.iter().any(|finding| finding.severity == Severity::Error);
    check_settings(env, key.is_some(), has_interface, &mut all);
    all.append(&mut network);
    check_kernel(env, &mut all);
    all.extend(running::bulk_connections(&running::documents(), &settings::set_as(env, "WEIR_BULK")));
    all.push(match (provider, key, found) {
        (Some(provider), Some(key), Some(found)) => try_mpi(env, &found, &provider, &key),
        (provider, key, _) => skipped(provider.is_some(), key.is_some(), program.is_some()),
    });
    all
}

/// Round trips between two hosts: enough for a look.
const ROUND_TRIPS: u32 = 200;

/// What is found between hosts.
pub fn between(args: &crate::args::DoctorArgs) -> Result<Vec<Finding>, weir_ping::Error> {
    let agent = weir_ping::command::agent(args.agent.as_deref(), args.weir.as_deref())?;
    let found = weir_ping::command::between(&args.hosts, &agent, &crate::version(), ROUND_TRIPS)?;
    let own = |finding: weir_ping::Finding| Finding {
        check: finding.check,
        severity: match finding.severity {
            weir_ping::Severity::Ok => Severity::Ok,
            weir_ping::Severity::Info => Severity::Info,
            weir_ping::Severity::Warning => Severity::Warning,
            weir_ping::Severity::Error => Severity::Error,
        },
        cause: finding.cause,
        fix: finding.fix,
    };
    Ok(found.into_iter().map(own).collect())
}

/// Why there is no trial run: the first thing that is missing.
fn skipped(provider: bool, key: bool, program: bool) -> Finding {
    let missing = match (provider, key) {
        (false, _) => "provider",
        (_, false) => "key",
        // Where a program was named, it may be that alone.
        _ if program => "program that could run",
        _ => "usable MPI",
    };
    Finding::new("trial run", Severity::Info, format!("skipped: there is no {missing}, see above"))
}

/// What the provider itself would say of its settings. That there is no key or no interface is
/// found by others, and told once.
fn check_settings(env: &Env, has_key: bool, has_interface: bool, all: &mut Vec<Finding>) {
    let complaints = settings::complaints(env, has_interface);
    if complaints.is_empty() {
        let (severity, text) = match (has_key, has_interface) {
            (true, true) => (Severity::Ok, "an endpoint opens with these settings"),
            (false, true) => (Severity::Info, "valid, but no endpoint opens without a key: see above"),
            (true, false) => (Severity::Info, "valid, but no endpoint opens without an interface: see below"),
            (false, false) => (Severity::Info, "valid, but no endpoint opens without a key and an interface"),
        };
        all.push(Finding::new("settings", severity, text));
    }
    for one in complaints {
        let severity = if one.fatal { Severity::Error } else { Severity::Warning };
        all.push(Finding::new("settings", severity, one.text));
    }
}

/// What brings the provider: who has the sources builds it, who has a package installs that anew.
fn missing_provider(program: Option<&std::path::Path>) -> &'static str {
    let sources = |folder: &std::path::Path| folder.join("xtask/Cargo.toml").is_file();
    if program.is_some_and(|program| program.ancestors().any(sources)) {
        "cargo xtask build"
    } else {
        "install the package anew (such as: pip install --force-reinstall weir-hpc), or set WEIR_LIB to the folder of the provider"
    }
}

fn check_provider(env: &Env, all: &mut Vec<Finding>) -> Option<std::path::PathBuf> {
    let name = "provider";
    let file = match provider::find(env) {
        Ok(file) => file,
        Err(error) => {
            let fix = missing_provider(std::env::current_exe().ok().as_deref());
            all.push(Finding::new(name, Severity::Error, error.to_string()).fixed_by(fix));
            return None;
        }
    };
    match provider::probe(&file) {
        Ok(facts) if facts.name == "weir" => {
            let (major, minor) = facts.version;
            let (api_major, api_minor) = facts.api_version;
            let text =
                format!("{} loads: version {major}.{minor}, libfabric API {api_major}.{api_minor}", file.display());
            all.push(Finding::new(name, Severity::Ok, text));
            Some(file)
        }
        Ok(facts) => {
            all.push(Finding::new(name, Severity::Error, format!("{} calls itself '{}'", file.display(), facts.name)));
            None
        }
        Err(error) => {
            all.push(
                Finding::new(name, Severity::Error, format!("{}: {error:#}", file.display()))
                    .fixed_by(format!("ldd {}", file.display())),
            );
            None
        }
    }
}

fn check_key(env: &Env, all: &mut Vec<Finding>) -> Option<weir_job::JobKey> {
    match environment::key(env) {
        Ok(key) => {
            let own = match key.source {
                weir_job::KeySource::UserFile(_) | weir_job::KeySource::CreatedFile(_) => {
                    ", your own, since neither WEIR_KEY nor WEIR_KEY_FILE is set"
                }
                _ => "",
            };
            let (print, source) = (key.fingerprint(), &key.source);
            let text = format!("fingerprint {print} from {source}{own}; it must be the same on all machines");
            all.push(Finding::new("key", Severity::Ok, text));
            Some(key)
        }
        Err(error) => {
            let fix = match &error {
                weir_job::KeyError::Mode { path, .. } => {
                    Some(format!("chmod 600 {}", environment::quote(&path.display().to_string())))
                }
                weir_job::KeyError::Format { .. } | weir_job::KeyError::NoPlace | weir_job::KeyError::NoHome { .. } => {
                    Some("export WEIR_KEY=$(openssl rand -hex 32)".into())
                }
                _ => None,
            };
            all.push(Finding { fix, ..Finding::new("key", Severity::Error, error.to_string()) });
            None
        }
    }
}

fn check_mpi(env: &Env, program: Option<&Path>, all: &mut Vec<Finding>) -> Option<mpi::Found> {
    let path = env.get("PATH").map(std::ffi::OsString::as_os_str);
    let kinds = mpi::all_on_path(path);
    for found in &kinds {
        let launcher = found.launcher.as_deref().unwrap_or(Path::new("?"));
        let text = format!(
            "{} {} at {}",
            found.kind,
            found.version.as_deref().unwrap_or("of unknown version"),
            launcher.display()
        );
        all.push(Finding::new("mpi", Severity::Info, text));
    }
    if kinds.len() > 1 {
        let names: Vec<String> = kinds.iter().map(|found| found.kind.to_string()).collect();
        let text = format!(
            "{} are on PATH; a program built for one, started by another's mpiexec, may run as many single ranks",
            names.join(" and ")
        );
        all.push(Finding::new("mpi", Severity::Warning, text).fixed_by("weir run -n 4 ./program"));
    }
    let first = mpi::on_search_path(None, path);
    let Some(program) = program else {
        if let Err(error) = &first {
            all.push(Finding::new("mpi", Severity::Error, error.to_string()).fixed_by("pip install mpich"));
        }
        return first.ok();
    };
    let looked_at = run::locate(program, env)
        .and_then(|file| Ok((mpi::of_program(&file, env)?, mpi::linked(&file, env)?.is_some(), file)));
    match looked_at {
        Ok((needed, is_linked, file)) => {
            if let Some(why) = mpi::cannot_use_libfabric(&needed) {
                all.push(Finding::new("program", Severity::Error, why));
                return None;
            }
            all.push(if is_linked || mpi::is_for_python(&file, env) {
                uses_mpi(program, &needed, first.as_ref().ok())
            } else {
                shows_no_mpi(program, &file, &needed)
            });
            Some(needed)
        }
        Err(error) => {
            all.push(Finding::new("program", Severity::Error, format!("{error:#}")));
            None
        }
    }
}

/// A program whose MPI is known, beside the launcher that plain `mpiexec` would be.
fn uses_mpi(program: &Path, needed: &mpi::Found, first: Option<&mpi::Found>) -> Finding {
    let text = format!("{} uses {}", program.display(), needed.kind);
    if first.is_none_or(|first| first.kind == needed.kind) {
        return Finding::new("program", Severity::Ok, text);
    }
    let fix = format!("weir run -n 4 {}", environment::quote(&program.display().to_string()));
    Finding::new("program", Severity::Warning, text + ", but the first mpiexec on PATH is another MPI's").fixed_by(fix)
}

/// A program that does not show which MPI it uses, if it uses any. `weir run` starts it all the
/// same: it may start another one.
fn shows_no_mpi(program: &Path, file: &Path, taken: &mpi::Found) -> Finding {
    let name = program.display();
    if weir_mpi::elf::is_elf(file) {
        let text = format!(
            "no MPI library found in {name}: unless it loads one or starts another program, it does not use Weir"
        );
        return Finding::new("program", Severity::Warning, text);
    }
    let text = format!(
        "{name} is a script: what it starts is taken for a program of {}, whose mpiexec comes first on PATH; name the program itself to be sure",
        taken.kind
    );
    Finding::new("program", Severity::Info, text)
}

/// Settings in the user's shell that would keep Weir from being used. Without any provider it is
/// clear that they name none.
fn check_variables(env: &Env, has_provider: bool, all: &mut Vec<Finding>) {
    let conflicts = [
        ("FI_PROVIDER", "weir"),
        ("MPIR_CVAR_OFI_USE_PROVIDER", "weir"),
        ("MPIR_CVAR_CH4_NETMOD", "ofi"),
        ("I_MPI_OFI_PROVIDER", "weir"),
        ("OMPI_MCA_pml", "cm"),
        ("OMPI_MCA_mtl", "ofi"),
        ("OMPI_MCA_opal_common_ofi_provider_include", "weir"),
    ];
    for (name, wanted) in conflicts {
        if let Some(value) = env.get(name).filter(|value| *value != wanted) {
            let text = format!("{name}={} keeps MPI away from Weir", value.to_string_lossy());
            all.push(Finding::new("environment", Severity::Warning, text).fixed_by(format!("unset {name}")));
        }
    }
    all.extend(has_provider.then(|| chosen_but_not_there(env)).flatten());
}

/// The variables that choose the provider `weir` for programs started by plain `mpiexec`.
const CHOICES: [&str; 5] = [
    "FI_PROVIDER",
    "I_MPI_OFI_PROVIDER",
    "MPIR_CVAR_OFI_USE_PROVIDER",
    "OMPI_MCA_opal_common_ofi_provider_include",
    "OMPI_MCA_mtl_ofi_provider_include",
];

/// The user's shell chooses Weir, as after `eval $(weir env)`, but libfabric will not find the
/// provider where that shell says.
fn chosen_but_not_there(env: &Env) -> Option<Finding> {
    let choice = CHOICES.iter().find(|name| env.get(name).is_some_and(|value| value == "weir"))?;
    let path = env.get("FI_PROVIDER_PATH").map(|value| value.to_string_lossy().into_owned()).unwrap_or_default();
    let folders = path.split(':').map(|part| part.trim_start_matches('@')).filter(|part| !part.is_empty());
    let file = folders.map(|folder| Path::new(folder).join(provider::FILE_NAME)).find(|file| file.is_file());
    let why = match file {
        Some(file) => match provider::probe(&file) {
            Ok(_) => return None,
            Err(error) => format!("the provider in FI_PROVIDER_PATH does not load: {error:#}"),
        },
        None if path.is_empty() => "FI_PROVIDER_PATH is not set".to_owned(),
        None => format!("FI_PROVIDER_PATH={path} holds no {}", provider::FILE_NAME),
    };
    let text =
        format!("{choice}=weir, but {why}: programs started here by mpiexec, without weir run, fail in MPI_Init");
    Some(Finding::new("environment", Severity::Error, text).fixed_by("eval $(weir env)"))
}

fn check_interfaces(env: &Env, all: &mut Vec<Finding>) {
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

fn check_kernel(env: &Env, all: &mut Vec<Finding>) {
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

/// Short packets by AF_XDP: where it is asked for and cannot be had everything works, slower.
fn xdp(xdp: &carriers::Xdp) -> Finding {
    let text = xdp.describe();
    match (&xdp.place, xdp.wanted) {
        (Some(_), _) => Finding::new("xdp", Severity::Ok, text),
        (None, false) => Finding::new("xdp", Severity::Info, text),
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

/// A whole MPI start is long on a loaded machine.
const TRY_LIMIT: Duration = Duration::from_secs(60);

/// Starts one rank of the MPI found, with our variables, and looks which provider it took.
fn try_mpi(env: &Env, found: &mpi::Found, provider: &Path, key: &weir_job::JobKey) -> Finding {
    let name = "trial run";
    let Some(launcher) = &found.launcher else {
        return Finding::new(name, Severity::Info, "not tried: the MPI has no launcher");
    };
    let folder = provider.parent().unwrap_or(Path::new("/"));
    let variables = environment::variables(found, folder, key, env, true);
    let mark = match run::Mark::new() {
        Ok(mark) => mark,
        Err(error) => return Finding::new(name, Severity::Warning, format!("not tried: {error:#}")),
    };
    let Some(words) = trial_program(launcher, found.library.as_deref(), mark.folder()) else {
        return Finding::new(
            name,
            Severity::Info,
            "not tried: there is neither a C compiler to make a program with, nor mpi4py beside the launcher",
        );
    };
    let mut command = Command::new(launcher);
    if found.kind == Kind::Openmpi {
        command.args(["--allow-run-as-root", "--map-by", ":OVERSUBSCRIBE"]);
    }
    command.args(["-n", "1"]).args(words).envs(variables).env(run::MARK_VARIABLE, mark.file());
    // It was asked for above, and a helper need not say no twice.
    command.env("FI_WEIR_XDP", "off");
    let which = found.library.as_ref().map_or_else(String::new, |library| format!(" ({})", library.display()));
    match mpi::ask(&mut command, TRY_LIMIT) {
        Err(error) => {
            Finding::new(name, Severity::Error, format!("{}{which} does not start over weir: {error:#}", found.kind))
                .fixed_by("FI_LOG_LEVEL=info weir run -n 1 ./program")
        }
        Ok(_) if mark.was_made() => Finding::new(
            name,
            Severity::Ok,
            format!("{}{which} starts and takes the provider weir, as weir run sets it up", found.kind),
        ),
        Ok(_) => Finding::new(
            name,
            Severity::Error,
            format!("{}{which} starts, but does not take the provider weir; was it built with libfabric?", found.kind),
        )
        .fixed_by("FI_LOG_LEVEL=info weir run -n 1 ./program"),
    }
}

/// The smallest MPI program that can be had. A program's own library is tried with one that is
/// linked with that very file; else it is mpi4py beside the launcher, or one made with its mpicc.
fn trial_program(launcher: &Path, library: Option<&Path>, scratch: &Path) -> Option<Vec<std::ffi::OsString>> {
    let folder = launcher.parent()?;
    let python = folder.join("python3");
    if library.is_none()
        && python.is_file()
        && mpi::ask(Command::new(&python).args(["-c", "import mpi4py"]), TRY_LIMIT).is_ok()
    {
        let program = "from mpi4py import MPI; MPI.COMM_WORLD.Barrier()";
        return Some(vec![python.into(), "-c".into(), program.into()]);
    }
    let source = scratch.join("trial.c");
    let out = scratch.join("trial");
    // Declared here: these two are the same in every MPI, and its headers may not be installed.
    let text = "int MPI_Init(int *, char ***);\nint MPI_Finalize(void);\n\
                int main(int c, char **v) { return MPI_Init(&c, &v) || MPI_Finalize(); }\n";
    std::fs::write(&source, text).ok()?;
    let mut command = Command::new(library.map_or_else(|| folder.join("mpicc"), |_| "cc".into()));
    command.arg(&source).arg("-o").arg(&out);
    if let Some(library) = library {
        let mut rpath = std::ffi::OsString::from("-Wl,--allow-shlib-undefined,-rpath,");
        rpath.push(library.parent()?);
        command.arg(library).arg(rpath);
    }
    mpi::ask(&mut command, TRY_LIMIT).ok()?;
    Some(vec![out.into()])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has(all: &[Finding], check: &str, severity: Severity) -> bool {
        all.iter().any(|f| f.check == check && f.severity == severity)
    }

    #[test]
    fn who_has_a_package_is_not_told_to_build() {
        let built = std::env::current_exe().expect("this program is in the target folder of the sources");
        assert_eq!(missing_provider(Some(&built)), "cargo xtask build");
        assert!(missing_provider(Some("/usr/bin/weir".as_ref())).contains("pip install"));
        assert!(missing_provider(None).contains("WEIR_LIB"));
    }

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
        let told =
            |why: &str, nobody| xdp(&carriers::Xdp { wanted: true, place: None, why: Some(why.to_owned()), nobody });
        let refused = told("the helper does not serve the interface of this address (weir xdpd --interface)", false);
        assert_eq!((refused.severity, &refused.fix), (Severity::Warning, &None));
        assert_eq!(refused.cause.matches("xdpd").count(), 1, "{}", refused.cause);
        let fix = told("no helper (weir xdpd, which root starts) listens at /run/weir/xdpd.sock", true).fix;
        assert!(fix.is_some_and(|fix| fix.starts_with("sudo weir xdpd --interface")));
    }

    #[test]
    fn a_bad_key_file_is_found_with_its_repair() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("key");
        std::fs::write(&file, "0".repeat(64)).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
        let mut all = Vec::new();
        assert!(check_key(&Env::from_pairs([("WEIR_KEY_FILE", file.as_os_str())]), &mut all).is_none());
        assert!(has(&all, "key", Severity::Error));
        assert!(all[0].fix.as_ref().is_some_and(|fix| fix.starts_with("chmod 600")));
    }

    #[test]
    fn settings_that_exclude_weir_are_found() {
        let mut all = Vec::new();
        check_variables(&Env::from_pairs([("FI_PROVIDER", "tcp"), ("OMPI_MCA_pml", "cm")]), true, &mut all);
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].fix.as_deref(), Some("unset FI_PROVIDER"));
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
    fn one_cause_is_told_once() {
        let errors = |pairs: &[(&str, &str)]| -> Vec<Finding> {
            let nowhere = [("PATH", "/nonexistent"), ("WEIR_LIB", "/nonexistent")];
            let env = Env::from_pairs(nowhere.iter().chain(pairs).copied());
            let all = examine(&env, None).into_iter();
            all.filter(|f| f.severity == Severity::Error && !["mpi", "key"].contains(&f.check)).collect()
        };
        let all = errors(&[("FI_WEIR_IFACE", "nosuch0")]);
        assert_eq!(all.iter().map(|f| f.check).collect::<Vec<_>>(), ["provider", "interfaces"], "{all:?}");
        let all = errors(&[("WEIR_IFACE", "nosuch0"), ("WEIR_ADDR", "127.0.0.1")]);
        assert_eq!(all.iter().map(|f| f.check).collect::<Vec<_>>(), ["provider"], "an address overrules: {all:?}");
        // The provider that is chosen is the one that is nowhere.
        let all = errors(&[("FI_PROVIDER", "weir")]);
        assert_eq!(all.iter().map(|f| f.check).collect::<Vec<_>>(), ["provider"], "{all:?}");
    }

    #[test]
    fn settings_are_not_called_good_where_a_key_is_missing() {
        let mut all = Vec::new();
        assert!(check_key(&Env::default(), &mut all).is_none());
        assert!(all[0].cause.starts_with("no job key") && all[0].fix.is_some(), "{all:?}");
        for (has_key, has_interface, severity, told) in [
            (true, true, Severity::Ok, "an endpoint opens"),
            (false, true, Severity::Info, "without a key"),
            (true, false, Severity::Info, "without an interface"),
            (false, false, Severity::Info, "without a key and an interface"),
        ] {
            let mut all = Vec::new();
            check_settings(&Env::default(), has_key, has_interface, &mut all);
            assert!(all.len() == 1 && all[0].severity == severity && all[0].cause.contains(told), "{all:?}");
        }
    }

    #[test]
    fn a_key_of_the_users_own_is_told_to_be_that() {
        let home = tempfile::tempdir().unwrap();
        let mut all = Vec::new();
        assert!(check_key(&Env::from_pairs([("HOME", home.path())]), &mut all).is_some());
        assert!(all[0].cause.contains("(just made), your own, since neither WEIR_KEY nor"), "{all:?}");
        let mut all = Vec::new();
        assert!(check_key(&Env::from_pairs([("WEIR_KEY", "0".repeat(64))]), &mut all).is_some());
        assert!(!all[0].cause.contains("your own"), "{all:?}");
    }

    #[test]
    fn weir_chosen_without_a_provider_is_an_error() {
        let found = |pairs: &[(&str, &str)]| chosen_but_not_there(&Env::from_pairs(pairs.iter().copied()));
        let error = found(&[("FI_PROVIDER", "weir"), ("FI_PROVIDER_PATH", "/nope")]).unwrap();
        assert_eq!((error.severity, error.fix.as_deref()), (Severity::Error, Some("eval $(weir env)")));
        assert!(error.cause.contains("FI_PROVIDER_PATH=/nope holds no libweir-fi.so"), "{error:?}");
        let error = found(&[("OMPI_MCA_mtl_ofi_provider_include", "weir")]).unwrap();
        assert!(error.cause.contains("FI_PROVIDER_PATH is not set"), "{error:?}");
        // Not chosen: what the shell says is meant for others.
        assert!(found(&[("FI_PROVIDER_PATH", "/nope")]).is_none());
        assert!(found(&[("FI_PROVIDER", "tcp"), ("FI_PROVIDER_PATH", "/nope")]).is_none());
    }

    #[test]
    fn a_provider_that_does_not_load_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(provider::FILE_NAME), "no library").unwrap();
        let path = format!("/nope:{}", dir.path().display());
        let error =
            chosen_but_not_there(&Env::from_pairs([("FI_PROVIDER", "weir"), ("FI_PROVIDER_PATH", &path)])).unwrap();
        assert!(error.cause.contains("does not load"), "{error:?}");
    }

    /// The findings about a program, where there is an MPI whose launcher only tells its version.
    fn about(program: &Path) -> Vec<Finding> {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let launcher = dir.path().join("mpiexec");
        std::fs::write(&launcher, "#!/bin/sh\necho 'HYDRA build details:  Version: 5.0.2'\n").unwrap();
        std::fs::set_permissions(&launcher, std::fs::Permissions::from_mode(0o755)).unwrap();
        let mut all = Vec::new();
        assert!(check_mpi(&Env::from_pairs([("PATH", dir.path())]), Some(program), &mut all).is_some());
        all.retain(|one| one.check == "program");
        all
    }

    #[test]
    fn a_program_without_an_mpi_is_not_said_to_use_one() {
        let all = about(&std::env::current_exe().unwrap());
        assert!(all.len() == 1 && all[0].severity == Severity::Warning, "{all:?}");
        assert!(all[0].cause.starts_with("no MPI library found in "), "{all:?}");
    }

    #[test]
    fn of_a_script_it_is_said_that_its_mpi_is_taken_for_granted() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("job.sh");
        std::fs::write(&script, "#!/bin/sh\nexec true\n").unwrap();
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
        let all = about(&script);
        assert!(all.len() == 1 && all[0].severity == Severity::Info, "{all:?}");
        assert!(all[0].cause.contains("is a script") && !all[0].cause.contains("uses"), "{all:?}");
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

    #[test]
    fn without_the_program_it_is_not_the_mpi_that_is_missing() {
        assert!(skipped(true, true, true).cause.contains("no program that could run"));
        assert!(skipped(true, true, false).cause.contains("no usable MPI"));
        assert!(skipped(false, true, true).cause.contains("no provider"));
    }

    #[test]
    fn a_program_that_is_not_there_or_cannot_start_is_an_error() {
        for (file, why) in [("./no-such", "no such file"), ("/etc/passwd", "not an executable")] {
            let mut all = Vec::new();
            assert!(check_mpi(&Env::from_process(), Some(Path::new(file)), &mut all).is_none());
            assert!(all.iter().any(|f| f.severity == Severity::Error && f.cause.contains(why)), "{all:?}");
        }
    }

    #[test]
    fn the_trial_is_linked_with_the_programs_own_library() {
        let dir = tempfile::tempdir().unwrap();
        let source = dir.path().join("mpi.c");
        let library = dir.path().join("libmpi.so.12");
        std::fs::write(
            &source,
            "int MPI_Init(int *c, char ***v) { return 0; }\nint MPI_Finalize(void) { return 0; }\n",
        )
        .unwrap();
        let made = Command::new("cc")
            .args(["-shared", "-fPIC", "-Wl,-soname,libmpi.so.12"])
            .arg(&source)
            .arg("-o")
            .arg(&library)
            .status();
        assert!(made.unwrap().success());
        let words = trial_program(Path::new("/nowhere/mpiexec"), Some(&library), dir.path()).unwrap();
        let needed = weir_mpi::elf::libraries(Path::new(&words[0]), &[]);
        assert!(needed.iter().any(|one| one.file.as_deref() == Some(&library)), "{needed:?}");
        assert!(Command::new(&words[0]).status().unwrap().success());
    }

    #[test]
    fn a_trial_that_is_left_out_is_told() {
        let all = examine(&Env::from_pairs([("PATH", "/nonexistent"), ("WEIR_LIB", "/nonexistent")]), None);
        assert!(all.iter().any(|f| f.check == "trial run" && f.cause.contains("skipped")), "{all:?}");
    }

    #[test]
    fn no_mpi_is_an_error() {
        let mut all = Vec::new();
        assert!(check_mpi(&Env::from_pairs([("PATH", "/nonexistent")]), None, &mut all).is_none());
        assert!(has(&all, "mpi", Severity::Error));
    }

    #[test]
    fn a_library_that_is_no_provider_is_refused() {
        let error = provider::load(Path::new("/proc/self/exe")).unwrap_err();
        assert!(!error.to_string().is_empty());
    }
}
