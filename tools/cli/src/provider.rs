//! Where the provider for libfabric is, and whether it can be loaded.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use serde::{Deserialize, Serialize};

use crate::mpi::ask;
use weir_mpi::elf;

/// The provider's file name: libfabric scans folders for names that end in `fi.so`.
pub const FILE_NAME: &str = "libweir-fi.so";

/// What a loaded provider says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// The provider's name.
    pub name: String,
    /// Its own version, major and minor.
    pub version: (u16, u16),
    /// Its whole version, with the commit it was built from if that is known; none of other
    /// providers, and of ours before it told.
    pub full_version: Option<String>,
    /// The newest libfabric API it speaks.
    pub api_version: (u16, u16),
}

/// Finds the provider: in `WEIR_LIB`, beside this program as installed, or in `FI_PROVIDER_PATH`.
///
/// # Errors
/// If it is in none of them; the message lists where it was looked for. A `WEIR_LIB` without it is
/// an error: another provider than the one named would be taken silently.
pub fn find(env: &weir_job::Env) -> Result<PathBuf> {
    let file = search(env)?;
    nameable(&file, "FI_PROVIDER_PATH", ":")?;
    Ok(file)
}

/// Refuses a file that a variable cannot name: one with something in its path that separates the
/// variable's words, or that is no text. It would be looked for elsewhere, without a word.
///
/// # Errors
/// What is wrong with the path.
pub fn nameable(file: &Path, variable: &str, separators: &str) -> Result<()> {
    let shown = || weir_report::table::clean(&file.display().to_string());
    let Some(text) = file.to_str() else {
        bail!("{}: the path is no UTF-8, so {variable} cannot name it; move it", shown());
    };
    match text.chars().find(|c| separators.contains(*c)) {
        Some(' ') => bail!("{}: {variable} cannot name a path with a blank; move it", shown()),
        Some(c) => bail!("{}: {variable} cannot name a path with '{}'; move it", shown(), c.escape_debug()),
        None => Ok(()),
    }
}

fn search(env: &weir_job::Env) -> Result<PathBuf> {
    if let Some(found) = named(env, &[FILE_NAME]) {
        return found;
    }
    let mut folders = std::env::current_exe().map(|program| beside(&program)).unwrap_or_default();
    let path = env.get("FI_PROVIDER_PATH").map(std::ffi::OsString::as_os_str);
    folders.extend(elf::path_list(path));
    folders.extend(["/usr/local/lib/weir", "/usr/lib/weir"].map(PathBuf::from));
    let found = folders.iter().map(|folder| folder.join(FILE_NAME)).find(|file| file.is_file());
    match found {
        Some(file) => Ok(file.canonicalize()?),
        None => {
            let looked: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
            bail!("{FILE_NAME} is in none of: {}; set WEIR_LIB to its folder", looked.join(", "))
        }
    }
}

/// A library in the folder that `WEIR_LIB` names, in `weir` below it, or, of a folder `weir`, in
/// the one above it: so that `lib` and `lib/weir` of an installation suit all libraries. Nothing
/// where it is not set.
///
/// # Errors
/// There is none of these files.
pub fn named(env: &weir_job::Env, files: &[&str]) -> Option<Result<PathBuf>> {
    let folder = PathBuf::from(env.get("WEIR_LIB")?);
    let above = folder.ends_with("weir").then(|| folder.join(".."));
    let folders: Vec<PathBuf> = [folder.clone(), folder.join("weir")].into_iter().chain(above).collect();
    let mut places = folders.iter().flat_map(|folder| files.iter().map(move |file| folder.join(file)));
    Some(match places.find(|file| file.is_file()) {
        Some(file) => file.canonicalize().map_err(anyhow::Error::from),
        None => {
            Err(anyhow!("WEIR_LIB={}: there is no {} in that folder, nor in weir below it", folder.display(), files[0]))
        }
    })
}

/// Where the provider is beside this program, wherever both were moved to: in `lib/weir` of its
/// prefix (installed by a package of any kind), in `lib` (`cargo xtask build`), or in what that
/// built, where the program is the one in Cargo's own folder. (The system tells the program's file,
/// not a link to it.)
pub fn beside(program: &Path) -> Vec<PathBuf> {
    let prefix = program.canonicalize().ok().and_then(|file| Some(file.parent()?.parent()?.to_owned()));
    let of = |prefix: PathBuf| ["lib/weir", "lib64/weir", "lib", "weir/lib"].map(|folder| prefix.join(folder));
    prefix.map(of).into_iter().flatten().collect()
}

/// Loads the provider in a process of its own, so that a broken one cannot take this one along.
///
/// # Errors
/// The loader's or the provider's own complaint.
pub fn probe(provider: &Path) -> Result<Facts> {
    let me = std::env::current_exe()?;
    let said = ask(Command::new(me).arg("probe-provider").arg(provider), Duration::from_secs(20))?;
    serde_json::from_str(said.trim()).with_context(|| format!("unexpected answer: {}", said.trim()))
}

/// The head of libfabric's `struct fi_provider` (rdma/providers/fi_prov.h); the same in all
/// libfabric versions since 1.0, and 72 bytes long.
#[repr(C)]
struct FiProvider {
    version: u32,
    fi_version: u32,
    context: [*mut std::ffi::c_void; 4],
    name: *const std::ffi::c_char,
    calls: [*const std::ffi::c_void; 3],
}

/// Loads the provider into this process as libfabric would, and asks it who it is.
///
/// # Errors
/// If it is no shared library, lacks symbols, or has no entry point.
pub fn load(provider: &Path) -> Result<Facts> {
    // SAFETY: loading runs the library's initialisers, which is the very thing to be tried; this
    // process does nothing else.
    let library = unsafe { libloading::Library::new(provider) }?;
    // SAFETY: fi_prov_ini is declared by libfabric as `struct fi_provider *fi_prov_ini(void)`.
    let entry: libloading::Symbol<'_, unsafe extern "C" fn() -> *const FiProvider> =
        unsafe { library.get(b"fi_prov_ini\0") }
            .with_context(|| format!("{} is not a libfabric provider", provider.display()))?;
    // SAFETY: called once, without arguments, as libfabric calls it.
    let answer = unsafe { entry() };
    if answer.is_null() {
        bail!("the provider refused to start (fi_prov_ini returned null)");
    }
    // SAFETY: a provider returns a pointer to its own struct fi_provider, which lives as long as
    // the library.
    let head = unsafe { &*answer };
    if head.name.is_null() || head.calls.iter().take(2).any(|call| call.is_null()) {
        bail!("the provider has no name or no entry points");
    }
    // SAFETY: the name is a C string of the provider's, not null, as checked.
    let name = unsafe { std::ffi::CStr::from_ptr(head.name) }.to_string_lossy().into_owned();
    // SAFETY: our provider declares it as `const char *weir_version(void)`; other providers have no
    // function of this name.
    let told = unsafe { library.get::<unsafe extern "C" fn() -> *const std::ffi::c_char>(b"weir_version\0") };
    // SAFETY: called without arguments; the answer is null or a C string that lives as long as the
    // library.
    let told = told.ok().map(|ask| unsafe { ask() }).filter(|text| !text.is_null());
    // SAFETY: as above.
    let full_version = told.map(|text| unsafe { std::ffi::CStr::from_ptr(text) }.to_string_lossy().into_owned());
    let split = |v: u32| ((v >> 16) as u16, (v & 0xffff) as u16);
    Ok(Facts { name, version: split(head.version), full_version, api_version: split(head.fi_version) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_provider_is_looked_for_in_the_prefix_of_the_program() {
        let dir = tempfile::tempdir().unwrap();
        let prefix = dir.path().canonicalize().unwrap().join("moved");
        std::fs::create_dir_all(prefix.join("bin")).unwrap();
        std::fs::write(prefix.join("bin/weir"), "").unwrap();
        let link = dir.path().join("weir");
        std::os::unix::fs::symlink(prefix.join("bin/weir"), &link).unwrap();
        for program in [prefix.join("bin/weir"), link] {
            let folders = beside(&program);
            assert_eq!(folders[..3], ["lib/weir", "lib64/weir", "lib"].map(|folder| prefix.join(folder)));
        }
        assert!(beside(&prefix.join("bin/nothing")).is_empty());
    }

    #[test]
    fn a_path_that_the_variable_would_take_apart_is_refused() {
        use std::os::unix::ffi::OsStrExt;
        let of = |path: &[u8], separators: &str| {
            let told = nameable(Path::new(std::ffi::OsStr::from_bytes(path)), "X", separators);
            told.map_err(|error| error.to_string())
        };
        assert_eq!(of(b"/a b/l.so", ":"), Ok(()));
        assert_eq!(of(b"/a:b/l.so", ":"), Err("/a:b/l.so: X cannot name a path with ':'; move it".into()));
        assert_eq!(of(b"/a b/l.so", ": "), Err("/a b/l.so: X cannot name a path with a blank; move it".into()));
        assert!(of(b"/\xff/l.so", ":").unwrap_err().contains("no UTF-8"));
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("a:b");
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join(FILE_NAME), "").unwrap();
        let error = find(&weir_job::Env::from_pairs([("WEIR_LIB", &folder)])).unwrap_err().to_string();
        assert!(
            error.ends_with("/a:b/libweir-fi.so: FI_PROVIDER_PATH cannot name a path with ':'; move it"),
            "{error}"
        );
    }

    #[test]
    fn a_named_folder_without_the_provider_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("lib/weir");
        std::fs::create_dir_all(&folder).unwrap();
        let find = |folder: &Path| find(&weir_job::Env::from_pairs([("WEIR_LIB", folder)]));
        let error = find(&folder).unwrap_err().to_string();
        assert!(error.contains("WEIR_LIB=") && error.contains(FILE_NAME), "{error}");
        std::fs::write(folder.join(FILE_NAME), "").unwrap();
        assert!(find(&folder).is_ok());
    }

    #[test]
    fn one_value_suits_all_libraries_of_an_installation() {
        let dir = tempfile::tempdir().unwrap();
        let prefix = dir.path().canonicalize().unwrap();
        std::fs::create_dir_all(prefix.join("lib/weir")).unwrap();
        let (provider, bmi) = (prefix.join("lib/weir").join(FILE_NAME), prefix.join("lib/libweir-bmi.so"));
        std::fs::write(&provider, "").unwrap();
        std::fs::write(&bmi, "").unwrap();
        for named in ["lib", "lib/weir", "lib/weir/"] {
            let env = weir_job::Env::from_pairs([("WEIR_LIB", prefix.join(named))]);
            assert_eq!(
                (find(&env).unwrap(), crate::bmi::find(&env).unwrap()),
                (provider.clone(), bmi.clone()),
                "{named}"
            );
        }
        let env = weir_job::Env::from_pairs([("WEIR_LIB", &prefix)]);
        assert!(find(&env).is_err() && crate::bmi::find(&env).is_err(), "a prefix is not searched");
    }
}
