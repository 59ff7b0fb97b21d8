//! `weir doctor`: what keeps programs from running over Weir, or from running well.

mod host;
mod program;

use std::path::Path;

use serde::Serialize;
use weir_job::Env;

use crate::{environment, provider, running, settings, shell};
use host::{check_interfaces, check_kernel};
use program::{check_mpi, skipped, try_mpi};

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
                    Some(format!("chmod 600 {}", shell::quote(&path.display().to_string())))
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

#[cfg(test)]
mod tests {
    use super::*;

    pub fn has(all: &[Finding], check: &str, severity: Severity) -> bool {
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

    #[test]
    fn a_trial_that_is_left_out_is_told() {
        let all = examine(&Env::from_pairs([("PATH", "/nonexistent"), ("WEIR_LIB", "/nonexistent")]), None);
        assert!(all.iter().any(|f| f.check == "trial run" && f.cause.contains("skipped")), "{all:?}");
    }

    #[test]
    fn a_library_that_is_no_provider_is_refused() {
        let error = provider::load(Path::new("/proc/self/exe")).unwrap_err();
        assert!(!error.to_string().is_empty());
    }
}
