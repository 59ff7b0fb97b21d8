//! Which library to load: the launcher's, if there is a launcher; else the only one there is.

mod launch;

use std::fs;
use std::path::{Path, PathBuf};

use weir_job::Env;

pub use launch::{Family, Launch};

use crate::elf;
use crate::error::Error;
use crate::sys::abi::Abi;

/// The variable that names the library.
pub const LIBRARY_VARIABLE: &str = "WEIR_MPI_LIBRARY";

/// A library that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its file.
    pub library: PathBuf,
    /// Why this one, in words.
    pub why: String,
    /// Whether the user named it: then the user knows better which launcher goes with it.
    pub named: bool,
}

/// A file that says it is an MPI library.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Candidate {
    file: PathBuf,
    abi: Abi,
}

impl Candidate {
    /// Whose it is. The standard's ABI may be anybody's: what the library itself says is asked when
    /// it is loaded ([`must_agree`]).
    fn family(&self) -> Option<Family> {
        match self.abi {
            Abi::Mpich => Some(Family::Mpich),
            Abi::OpenMpi => Some(Family::OpenMpi),
            Abi::Standard => None,
        }
    }

    fn may_be(&self, family: Family) -> bool {
        self.family().is_none_or(|own| own == family)
    }
}

/// Where to look, by how much a place says about what the user wants.
struct Places {
    beside_launcher: Vec<PathBuf>,
    search_path: Vec<PathBuf>,
    system: Vec<PathBuf>,
}

impl Places {
    fn of(launch: &Launch, env: &Env) -> Self {
        Self {
            beside_launcher: launch.library_folders(env),
            search_path: elf::path_list(env.get("LD_LIBRARY_PATH").map(std::ffi::OsString::as_os_str)),
            system: elf::system_folders(),
        }
    }

    fn tiers(&self) -> [(&'static str, &[PathBuf]); 3] {
        [
            ("beside the launcher", &self.beside_launcher),
            ("on LD_LIBRARY_PATH", &self.search_path),
            ("in the system's folders", &self.system),
        ]
    }
}

/// Finds the library for a process that was started like this. `named` is a path, or a file name to
/// be looked for, and goes before the variable `WEIR_MPI_LIBRARY`, which goes before everything
/// else.
///
/// # Errors
/// If there is none, or none that goes with the launcher, or several and nothing tells which.
pub fn library(launch: &Launch, env: &Env, named: Option<&Path>) -> Result<Found, Error> {
    find_in(launch, &Places::of(launch, env), env, named)
}

fn find_in(launch: &Launch, places: &Places, env: &Env, named: Option<&Path>) -> Result<Found, Error> {
    let variable = env.get(LIBRARY_VARIABLE).map(PathBuf::from);
    if let Some(named) = named.map(Path::to_owned).or(variable) {
        return by_name(&named, places);
    }
    if launch.unclear {
        let text =
            "the environment is that of two launchers, MPICH's and Open MPI's, and neither is a parent of this process";
        return Err(Error::Ambiguous(format!("{text}; {}", say_which())));
    }
    match launch.family {
        Some(family) => of_family(family, launch, places),
        None => only_one(places),
    }
}

fn say_which() -> String {
    format!("say which library by {LIBRARY_VARIABLE}")
}

fn by_name(named: &Path, places: &Places) -> Result<Found, Error> {
    let found = |library: PathBuf| Found { library, why: "named by the user".into(), named: true };
    if named.components().count() > 1 {
        let missing = || Error::NotFound(format!("{} does not exist", named.display()));
        return if named.is_file() { Ok(found(named.to_owned())) } else { Err(missing()) };
    }
    let name = named.to_string_lossy();
    let all = places.tiers().into_iter().flat_map(|(_, folders)| folders);
    // `libmpi_abi.so` means whatever version there is. What comes by just that name may be a linker
    // script.
    let is_it = |file: &Path| {
        let own = file.file_name().unwrap_or_default().to_string_lossy();
        own == name || own.strip_prefix(&*name).is_some_and(|rest| rest.starts_with('.'))
    };
    let mut files = all.flat_map(|folder| entries(folder)).filter(|file| is_it(file) && elf::is_elf(file));
    let missing =
        || Error::NotFound(format!("no {name} beside the launcher, on LD_LIBRARY_PATH or in the system's folders"));
    files.next().map(found).ok_or_else(missing)
}

/// The library of a launcher's family, the nearest to the launcher first.
fn of_family(family: Family, launch: &Launch, places: &Places) -> Result<Found, Error> {
    let mut others = Vec::new();
    for (place, folders) in places.tiers() {
        let mut here: Vec<Candidate> = folders.iter().flat_map(|folder| candidates(folder)).collect();
        // An MPI's own ABI before the standard's, of whose owner the name says nothing.
        here.sort_by_key(|candidate| candidate.family().is_none());
        if let Some(one) = here.iter().find(|candidate| candidate.may_be(family)) {
            return Ok(Found { library: one.file.clone(), why: place.into(), named: false });
        }
        others.extend(here);
    }
    let launcher = launch.name();
    Err(match others.first() {
        Some(other) => Error::Mixed(format!(
            "started by {launcher}, but the only MPI library found is {}, with {}; start with that library's own mpiexec, or name {family}'s library by {LIBRARY_VARIABLE}",
            other.file.display(),
            other.abi
        )),
        None => Error::NotFound(format!(
            "started by {launcher}, but no library is beside it, on LD_LIBRARY_PATH or in the system's folders; {}",
            say_which()
        )),
    })
}

/// Without an MPI's launcher: the only one of the first place that has any.
fn only_one(places: &Places) -> Result<Found, Error> {
    for (place, folders) in places.tiers() {
        let mut here: Vec<Candidate> = folders.iter().flat_map(|folder| candidates(folder)).collect();
        here.sort_by_key(|candidate| candidate.family().is_none());
        let Some(first) = here.first() else { continue };
        if let Some(other) = here.iter().find(|other| other.family().is_some_and(|own| !first.may_be(own))) {
            return Err(Error::Ambiguous(format!(
                "no MPI's launcher started this process, and there are two MPIs {place}: {} and {}; start with mpiexec, or {}",
                first.file.display(),
                other.file.display(),
                say_which()
            )));
        }
        return Ok(Found { library: first.file.clone(), why: format!("the only MPI {place}"), named: false });
    }
    Err(Error::NotFound(format!(
        "no MPI's launcher started this process, and there is no library on LD_LIBRARY_PATH or in the system's folders; start with mpiexec, or {}",
        say_which()
    )))
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> =
        fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    files.sort();
    files
}

/// The files of a folder that are an MPI's main library by name and by SONAME.
fn candidates(folder: &Path) -> Vec<Candidate> {
    let by_name = entries(folder).into_iter().filter(|file| {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        // Not all the versions of a name that link to one file: `libmpi.so.40.30.4`.
        Abi::of_soname(&name).is_some() && name.split(".so.").nth(1).is_some_and(|version| !version.contains('.'))
    });
    by_name.filter_map(|file| Some(Candidate { abi: Abi::of_soname(&elf::soname(&file)?)?, file })).collect()
}

/// Whose MPI a library is, by what `MPI_Get_library_version` says.
fn family_of_version(text: &str) -> Option<Family> {
    if text.starts_with("Open MPI") {
        return Some(Family::OpenMpi);
    }
    let made_from_mpich = ["MPICH", "Intel(R) MPI", "MVAPICH", "ParaStation"];
    made_from_mpich.iter().any(|name| text.contains(name)).then_some(Family::Mpich)
}

/// What a library says it is, as short as it goes: `MPICH Version: 5.0.2`, `Open MPI v5.0.11`.
fn headline(version: &str) -> String {
    let first = version.lines().next().unwrap_or_default().split(',').next().unwrap_or_default();
    first.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Compares what a loaded library says it is with the launcher.
///
/// # Errors
/// If they are not of one family, and the user did not name the library.
pub fn must_agree(launch: &Launch, found: &Found, version: &str) -> Result<(), Error> {
    match (launch.family, family_of_version(version)) {
        (Some(launcher), Some(library)) if launcher != library && !found.named => Err(Error::Mixed(format!(
            "started by {}, but {} is {library}'s ({}); start with that library's own mpiexec, or name {launcher}'s library by {LIBRARY_VARIABLE}",
            launch.name(),
            found.library.display(),
            headline(version)
        ))),
        _ => Ok(()),
    }
}

/// Why the ranks of a job did not find each other, if that is so: each thinks it is the only one.
pub fn is_alone(launch: &Launch, found: &Found, version: &str, size: usize) -> Option<String> {
    let started = launch.size.filter(|started| *started > 1 && size == 1)?;
    Some(format!(
        "{} started {started} processes, but each is alone in MPI: {} ({}) does not understand this launcher; start with the mpiexec of that library, or name the launcher's library by {LIBRARY_VARIABLE}",
        launch.name(),
        found.library.display(),
        headline(version)
    ))
}

#[cfg(test)]
mod tests;
