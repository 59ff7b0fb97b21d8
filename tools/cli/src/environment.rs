//! The variables that make an MPI run over Weir.

use std::ffi::OsString;
use std::path::Path;

use weir_job::{Env, JobKey, KeyError, KeySource};

use weir_bench::typed;

use crate::mpi::{self, Found, Kind};
use crate::settings;

/// One variable and its value.
pub type Variable = (String, String);

/// Open MPI 4's launcher ends at once where `-x` stands beside the list of variables that it hands
/// to other machines: there the list is left out, and `-x` names them, unless the site has a list.
fn refuses_both(found: &Found) -> bool {
    found.kind == Kind::Openmpi && found.version.as_deref().is_some_and(|version| version.starts_with("4."))
}

/// Whether Open MPI is told by its list what goes to other machines.
fn by_list(found: &Found, env: &Env) -> bool {
    found.kind == Kind::Openmpi && (!refuses_both(found) || env.get(LIST).is_some())
}

/// What stands between two names of the list.
fn separator(found: &Found, env: &Env) -> String {
    let set = env.get(SEPARATOR).filter(|_| refuses_both(found)).map(|set| set.to_string_lossy().into_owned());
    set.filter(|set| !set.is_empty()).unwrap_or_else(|| ";".to_owned())
}

/// The list of the site, or of an earlier `weir env`, and these names behind it, each once: Open
/// MPI 5 starts nothing where two values are given for one name, or none.
fn extended(names: &[String], separator: &str, env: &Env) -> String {
    let before = env.get(LIST).map(|list| list.to_string_lossy().into_owned()).unwrap_or_default();
    let name = |one: &str| one.split('=').next().unwrap_or(one).to_owned();
    let is_ours = |name: &str| OURS.contains(&name) || name == "WEIR_KEY" || settings::NAMES.is_for_all_hosts(name);
    let is_lost = |one: &str| env.get(one).is_none_or(|value| value.to_string_lossy().contains('='));
    let is_over = |one: &str| is_ours(one) && is_lost(one);
    let stays = |one: &&str| !one.is_empty() && *one != typed::LAUNCHER && !names.contains(&name(one)) && !is_over(one);
    before.split(separator).filter(stays).chain(names.iter().map(String::as_str)).collect::<Vec<_>>().join(separator)
}

/// Whether this is one of the user's settings that hold on all hosts.
fn is_for_all_hosts(name: &std::ffi::OsStr) -> bool {
    name.to_str().is_some_and(|name| settings::NAMES.is_for_all_hosts(name))
}

/// The user's settings that hold on all hosts, in order.
fn for_all_hosts(env: &Env) -> Vec<String> {
    let mut names: Vec<_> = env.names().filter(|name| is_for_all_hosts(name)).collect();
    names.sort_unstable();
    names.into_iter().map(|name| name.to_string_lossy().into_owned()).collect()
}

/// What ranks on other machines need: of what we set, the key's variable, the user's settings.
fn for_other_hosts(variables: &[Variable], key: &JobKey, env: &Env) -> Vec<String> {
    let set = variables.iter().map(|(name, _)| name.as_str()).filter(|name| OURS.contains(name));
    // A key in the environment is not among what we set. Where there is none it is not named:
    // Open MPI 5 starts nothing where it finds no variable of a name.
    let key = match &key.source {
        KeySource::Environment => env.get("WEIR_KEY").map(|_| "WEIR_KEY"),
        KeySource::Launcher => Some("WEIR_KEY"),
        KeySource::NamedFile(_) | KeySource::UserFile(_) | KeySource::CreatedFile(_) => None,
    };
    set.chain(key).map(str::to_owned).chain(for_all_hosts(env)).collect()
}

/// The arguments by which Open MPI's launcher hands over variables.
pub fn words(names: &[String]) -> Vec<String> {
    names.iter().flat_map(|name| ["-x".to_owned(), name.clone()]).collect()
}

/// What Open MPI's launcher is to be told by arguments: the variables that ranks need on other
/// machines and that are not in its list; nothing for other MPIs, which hand over all.
pub fn handed_over(found: &Found, variables: &[Variable], key: &JobKey, env: &Env) -> Vec<String> {
    if found.kind != Kind::Openmpi || (refuses_both(found) && by_list(found, env)) {
        return Vec::new();
    }
    let list = variables.iter().find(|(name, _)| name == LIST).map_or("", |(_, list)| list);
    let separator = separator(found, env);
    let is_listed = |name: &String| list.split(&separator).any(|one| one == name);
    for_other_hosts(variables, key, env).into_iter().filter(|name| !is_listed(name)).collect()
}

/// The same for programs of Weir's own interfaces, for which no variable is set: they agree on a
/// key by their launcher unless one is named.
pub fn handed_to_weirs(found: &Found, env: &Env) -> Vec<String> {
    // Open MPI 4 starts nothing where it is told by both; a site's list stands.
    if refuses_both(found) && env.get(LIST).is_some() {
        return Vec::new();
    }
    let keys = ["WEIR_KEY", "WEIR_KEY_FILE"].into_iter().filter(|name| env.get(name).is_some()).map(str::to_owned);
    if found.kind == Kind::Openmpi { keys.chain(for_all_hosts(env)).collect() } else { Vec::new() }
}

/// Open MPI 5's list of the variables that go to other machines. It names them only, so that what
/// is changed afterwards is changed everywhere. A value with an equals sign gets lost on the way.
const LIST: &str = "OMPI_MCA_mca_base_env_list";
/// What Open MPI 4 has between two names of it, if not a semicolon; 5 knows nothing else.
const SEPARATOR: &str = "OMPI_MCA_mca_base_env_list_delimiter";
/// What we set that ranks on other machines need.
const OURS: [&str; 4] = ["FI_PROVIDER_PATH", "FI_PROVIDER", "WEIR_KEY_FILE", typed::LAUNCHER];

/// Tells the ranks this command, on whichever machine they are.
pub fn tell_command(variables: &mut Vec<Variable>, words: &[OsString], found: &Found, env: &Env) {
    variables
        .iter_mut()
        .filter(|(name, _)| name == LIST)
        .for_each(|(_, list)| *list += &format!("{}{}", separator(found, env), typed::LAUNCHER));
    variables.push((typed::LAUNCHER.to_owned(), typed::one_word(words)));
}

/// What to set so that programs of this MPI use the provider in `folder`.
///
/// `no_shm` also sends messages between ranks on one machine through Weir, which MPICH would
/// otherwise keep in shared memory; Open MPI's `cm` layer sends all messages through the provider
/// anyway.
pub fn variables(found: &Found, folder: &Path, key: &JobKey, env: &Env, no_shm: bool) -> Vec<Variable> {
    let mut all: Vec<Variable> = Vec::new();
    let mut set = |name: &str, value: String| all.push((name.to_owned(), value));
    set("FI_PROVIDER_PATH", provider_path(folder, env));
    set("FI_PROVIDER", "weir".into());
    // The name of the key's file, not the key: it would show in process lists and logs.
    if let Some(path) = key.source.path() {
        set("WEIR_KEY_FILE", path.display().to_string());
    }
    match found.kind {
        Kind::Mpich => {
            // MPICH may be built for UCX and libfabric both; without a choice UCX may come first.
            set("MPIR_CVAR_CH4_NETMOD", "ofi".into());
            if no_shm {
                set("MPIR_CVAR_NOLOCAL", "1".into());
            }
        }
        Kind::Intel => {
            set("I_MPI_FABRICS", if no_shm { "ofi" } else { "shm:ofi" }.into());
            set("I_MPI_OFI_PROVIDER", "weir".into());
            // Else scripts of Intel's point libfabric at the providers they know.
            set("I_MPI_OFI_LIBRARY_INTERNAL", "0".into());
            if let Some(path) = with_libfabric(found, env) {
                set("LD_LIBRARY_PATH", path);
            }
        }
        Kind::Openmpi => {
            set("OMPI_MCA_pml", "cm".into());
            set("OMPI_MCA_mtl", "ofi".into());
            // The first name is that of Open MPI 5, the second that of 4.
            set("OMPI_MCA_opal_common_ofi_provider_include", "weir".into());
            set("OMPI_MCA_mtl_ofi_provider_include", "weir".into());
            set("OMPI_MCA_osc", "^ucx".into());
        }
    }
    // Its launcher hands only its own variables to other machines; this names the rest.
    if by_list(found, env) {
        let value = |name: &str| {
            let ours = all.iter().find(|(set, _)| set == name).map(|(_, value)| value.clone());
            ours.or_else(|| Some(env.get(name)?.to_string_lossy().into_owned()))
        };
        let mut names = for_other_hosts(&all, key, env);
        names.retain(|name| value(name).is_none_or(|value| !value.contains('=')));
        all.push((LIST.to_owned(), extended(&names, &separator(found, env), env)));
    }
    all
}

/// The library path with the folder of Intel MPI's own libfabric, which it loads by name; none if
/// the path leads to one already, or it brings none along.
fn with_libfabric(found: &Found, env: &Env) -> Option<String> {
    let folder = mpi::intels_libfabric(found)?;
    let before = env.get("LD_LIBRARY_PATH").map(|value| value.to_string_lossy().into_owned()).unwrap_or_default();
    let folders = || before.split(':').filter(|folder| !folder.is_empty());
    if folders().any(|folder| Path::new(folder).join("libfabric.so.1").exists()) {
        return None;
    }
    Some(folders().chain([folder.display().to_string().as_str()]).collect::<Vec<_>>().join(":"))
}

/// The job's key. A file that was named from the working folder is named from the root: ranks may
/// start in another one.
///
/// # Errors
/// If there is none, or it is unusable.
pub fn key(env: &Env) -> Result<JobKey, KeyError> {
    let mut key = weir_job::load_key(env)?;
    if let KeySource::NamedFile(path) = &mut key.source
        && let Ok(absolute) = std::path::absolute(&*path)
    {
        *path = absolute;
    }
    match key.source.path() {
        Some(path) if path.to_str().is_none() => Err(KeyError::Io {
            path: path.to_owned(),
            action: "tell ranks where to find",
            cause: std::io::Error::other("its name is no UTF-8; name it otherwise"),
        }),
        _ => Ok(key),
    }
}

/// Stands for the key where there is none: its name is set nowhere.
pub fn no_key() -> JobKey {
    JobKey { bytes: [0; weir_job::KEY_BYTES], source: KeySource::Environment }
}

/// What to know of messages that do not go over Weir.
pub fn shared_memory_hint(kind: Kind, no_shm: bool) -> Option<String> {
    (kind != Kind::Openmpi && !no_shm).then(|| {
        format!(
            "{kind} keeps messages between ranks on one machine in shared memory; with --no-shm they go over weir too"
        )
    })
}

/// Our folder first; others the user has named stay.
fn provider_path(folder: &Path, env: &Env) -> String {
    let ours = folder.display().to_string();
    let before = env.get("FI_PROVIDER_PATH").map(|v| v.to_string_lossy().into_owned()).unwrap_or_default();
    let rest = before.split(':').filter(|part| !part.is_empty() && *part != ours);
    std::iter::once(ours.as_str()).chain(rest).collect::<Vec<_>>().join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(source: KeySource) -> JobKey {
        JobKey { bytes: [7; 32], source }
    }

    fn value<'a>(all: &'a [Variable], name: &str) -> Option<&'a str> {
        all.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    fn of(kind: Kind) -> Found {
        Found { kind, version: None, launcher: None, library: None }
    }

    #[test]
    fn open_mpi_4_is_told_by_its_arguments_what_5_is_told_by_a_variable() {
        let words = ["weir", "run", "-n", "2"].map(OsString::from);
        let by = |version: &str, source, run: bool, set: &[(&str, &str)]| {
            let found = Found { version: Some(version.into()), ..of(Kind::Openmpi) };
            let (key, env) = (key(source), Env::from_pairs(set.iter().copied()));
            let mut all = variables(&found, Path::new("/w"), &key, &env, false);
            if run {
                tell_command(&mut all, &words, &found, &env);
            }
            (value(&all, LIST).map(str::to_owned), handed_over(&found, &all, &key, &env).join(" "))
        };
        let file = || KeySource::UserFile("/k".into());
        let told = |version, source, set| by(version, source, false, set);
        let run = |version| by(version, file(), true, &[]);
        let more = "FI_PROVIDER_PATH;FI_PROVIDER;WEIR_KEY_FILE;WEIR_RUN_COMMAND".to_owned();
        assert_eq!(run("5.0.11"), (Some(more), String::new()));
        assert!(run("4.1.4").1.ends_with(" WEIR_KEY_FILE WEIR_RUN_COMMAND"), "{:?}", run("4.1.4"));
        let list = |rest| Some(format!("FI_PROVIDER_PATH;FI_PROVIDER{rest}"));
        let all = |rest| format!("FI_PROVIDER_PATH FI_PROVIDER{rest}");
        assert_eq!(told("5.0.11", file(), &[]), (list(";WEIR_KEY_FILE"), String::new()));
        assert_eq!(told("4.1.4", file(), &[]), (None, all(" WEIR_KEY_FILE")));
        let with_key = [("WEIR_KEY", "07")];
        assert_eq!(told("4.1.4", KeySource::Environment, &with_key), (None, all(" WEIR_KEY")));
        assert_eq!(told("5.0.11", KeySource::Environment, &with_key), (list(";WEIR_KEY"), String::new()));
        assert_eq!(told("5.0.11", KeySource::Launcher, &[]), (list(";WEIR_KEY"), String::new()));
        // Open MPI 5 would start nothing.
        assert_eq!(told("5.0.11", no_key().source, &[]), (list(""), String::new()));
        // The user's own settings; of these a value with '=' does not pass by the list.
        let set = [
            ("WEIR_PORT", "45000-45100"),
            ("FI_WEIR_IFACE", "eth1"),
            ("WEIR_FAULTS", "loss=1%"),
            ("WEIR_ADDR", "10.0.0.1"),
            ("WEIR_LAUNCH_AGENT", "/agent"),
            ("WEIR_KEY_FILE", "/k"),
            ("PATH", "/bin"),
        ];
        let (listed, named) = told("5.0.11", file(), &set);
        assert_eq!(listed, list(";WEIR_KEY_FILE;FI_WEIR_IFACE;WEIR_PORT"));
        assert_eq!(named, "WEIR_FAULTS");
        let rest = " WEIR_KEY_FILE FI_WEIR_IFACE WEIR_FAULTS WEIR_PORT";
        assert_eq!(told("4.1.4", file(), &set), (None, all(rest)));
        let weirs = |kind| handed_to_weirs(&of(kind), &Env::from_pairs(set)).join(" ");
        assert_eq!(weirs(Kind::Openmpi), rest.trim_start());
        let hydra = of(Kind::Mpich);
        assert_eq!(weirs(Kind::Mpich) + &handed_over(&hydra, &[], &key(file()), &Env::from_pairs(set)).join(" "), "");
    }

    #[test]
    fn the_list_that_a_site_has_is_extended_and_names_nothing_twice() {
        let by = |version: &str, set: &[(&str, &str)]| {
            let found = Found { version: Some(version.into()), ..of(Kind::Openmpi) };
            let (key, env) = (key(KeySource::UserFile("/k".into())), Env::from_pairs(set.iter().copied()));
            let mut all = variables(&found, Path::new("/w"), &key, &env, false);
            let list = value(&all, LIST).expect("a list").to_owned();
            tell_command(&mut all, &["weir".into()], &found, &env);
            let told = value(&all, LIST).expect("a list").to_owned();
            assert!(told.starts_with(&list) && told.ends_with(typed::LAUNCHER), "{told}");
            (list, handed_over(&found, &all, &key, &env).join(" "))
        };
        let ours = "FI_PROVIDER_PATH;FI_PROVIDER;WEIR_KEY_FILE";
        let site = [(LIST, "LD_LIBRARY_PATH;OMP_NUM_THREADS=4")];
        let both = format!("{};{ours}", site[0].1);
        assert_eq!(by("5.0.11", &site), (both.clone(), String::new()));
        // Open MPI 4 takes its list or `-x`: where the site has a list, that.
        assert_eq!(by("4.1.4", &site), (both.clone(), String::new()));
        let commas = [(LIST, "LD_LIBRARY_PATH,PATH"), (SEPARATOR, ",")];
        assert_eq!(by("4.1.4", &commas).0, format!("LD_LIBRARY_PATH,PATH,{}", ours.replace(';', ",")));
        // Two values for a name are an error there, and a name without a value: ours count, and
        // what an earlier call named and is set no more goes.
        let clash = [(LIST, "FI_PROVIDER=tcp;A;;WEIR_PORT=1;WEIR_KEY;WEIR_IFACE"), ("WEIR_PORT", "2")];
        assert_eq!(by("5.0.11", &clash).0, format!("A;{ours};WEIR_PORT"));
        // Again and again, and below `weir run`: the same.
        let again = format!("{both};{}", typed::LAUNCHER);
        assert_eq!(by("5.0.11", &[(LIST, &again), (typed::LAUNCHER, "weir run")]).0, both);
        let set = [("WEIR_FAULTS", "loss=1%"), site[0]];
        assert_eq!(by("5.0.11", &set), (both.clone(), "WEIR_FAULTS".to_owned()));
        assert_eq!(by("4.1.4", &set), (both, String::new()));
    }

    #[test]
    fn mpich_gets_the_libfabric_device() {
        let all = variables(
            &of(Kind::Mpich),
            Path::new("/w/lib"),
            &key(KeySource::UserFile("/k".into())),
            &Env::default(),
            false,
        );
        assert_eq!(value(&all, "FI_PROVIDER"), Some("weir"));
        assert_eq!(value(&all, "FI_PROVIDER_PATH"), Some("/w/lib"));
        assert_eq!(value(&all, "MPIR_CVAR_CH4_NETMOD"), Some("ofi"));
        assert_eq!(value(&all, "WEIR_KEY_FILE"), Some("/k"));
        assert_eq!(value(&all, "MPIR_CVAR_NOLOCAL"), None);
    }

    #[test]
    fn intel_mpi_gets_the_provider_by_its_own_variables_and_its_libfabric_by_the_path() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["bin/mpiexec", "lib/libfabric.so.1", "other/libfabric.so.1"] {
            std::fs::create_dir_all(dir.path().join(name).parent().unwrap()).unwrap();
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        let found = Found { launcher: Some(dir.path().join("bin/mpiexec")), ..of(Kind::Intel) };
        let all = |env: &Env, no_shm| variables(&found, Path::new("/w"), &key(KeySource::Environment), env, no_shm);
        let plain = all(&Env::default(), false);
        assert_eq!(value(&plain, "I_MPI_FABRICS"), Some("shm:ofi"));
        assert_eq!(value(&plain, "I_MPI_OFI_PROVIDER"), Some("weir"));
        assert_eq!(value(&plain, "I_MPI_OFI_LIBRARY_INTERNAL"), Some("0"));
        assert_eq!(value(&plain, "MPIR_CVAR_CH4_NETMOD"), None);
        let own = dir.path().join("lib").display().to_string();
        assert_eq!(value(&plain, "LD_LIBRARY_PATH"), Some(own.as_str()));
        assert_eq!(value(&all(&Env::default(), true), "I_MPI_FABRICS"), Some("ofi"));
        let mine = Env::from_pairs([("LD_LIBRARY_PATH", "/a:/b")]);
        assert_eq!(value(&all(&mine, true), "LD_LIBRARY_PATH"), Some(format!("/a:/b:{own}").as_str()));
        let other = dir.path().join("other");
        let theirs = Env::from_pairs([("LD_LIBRARY_PATH", other.as_os_str())]);
        assert_eq!(value(&all(&theirs, true), "LD_LIBRARY_PATH"), None);
    }

    #[test]
    fn the_key_itself_is_never_printed() {
        for kind in Kind::ALL {
            let all = variables(&of(kind), Path::new("/w"), &key(KeySource::Environment), &Env::default(), true);
            assert!(all.iter().all(|(name, value)| name != "WEIR_KEY" && !value.contains("0707")));
        }
    }

    #[test]
    fn a_key_file_is_named_from_the_root() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir_in(".").unwrap();
        let file = dir.path().file_name().map(|name| Path::new(name).join("key")).unwrap();
        std::fs::write(&file, "0".repeat(64)).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        let key = super::key(&Env::from_pairs([("WEIR_KEY_FILE", file.as_os_str())])).unwrap();
        let all = variables(&of(Kind::Mpich), Path::new("/w"), &key, &Env::default(), false);
        let named = value(&all, "WEIR_KEY_FILE").unwrap();
        assert!(named.starts_with('/') && Path::new(named).is_file(), "{named}");
    }

    #[test]
    fn other_provider_folders_stay_behind_ours() {
        let env = Env::from_pairs([("FI_PROVIDER_PATH", "/a:/w/lib:/b")]);
        assert_eq!(provider_path(Path::new("/w/lib"), &env), "/w/lib:/a:/b");
    }

    #[test]
    fn a_key_file_that_no_variable_can_name_is_refused() {
        use std::os::unix::ffi::OsStrExt;
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(std::ffi::OsStr::from_bytes(b"k\xff"));
        std::fs::write(&file, "0".repeat(64)).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        let error = super::key(&Env::from_pairs([("WEIR_KEY_FILE", file.as_os_str())])).unwrap_err().to_string();
        assert!(error.ends_with("its name is no UTF-8; name it otherwise"), "{error}");
    }
}
