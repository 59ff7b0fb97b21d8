//! Which shared libraries a program needs, found as the dynamic linker would find them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use goblin::elf::Elf;

/// Most libraries looked at; a program with more is answered from those.
const MAX_LIBRARIES: usize = 400;
/// Largest file that is read as a program or library.
const MAX_FILE_BYTES: u64 = 1 << 30;

/// A library a program needs, directly or through others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Library {
    /// Its name in the program.
    pub name: String,
    /// The file the linker would take; none if it would find none.
    pub file: Option<PathBuf>,
}

/// What one ELF file says about its libraries.
struct Needs {
    libraries: Vec<String>,
    rpath: Vec<PathBuf>,
    runpath: Vec<PathBuf>,
}

fn needs_of(path: &Path) -> Option<Needs> {
    if fs::metadata(path).ok()?.len() > MAX_FILE_BYTES {
        return None;
    }
    let bytes = fs::read(path).ok()?;
    let elf = Elf::parse(&bytes).ok()?;
    let origin = fs::canonicalize(path).ok()?.parent()?.to_owned();
    let folders = |list: &[&str]| {
        let parts = list.iter().flat_map(|paths| paths.split(':')).filter(|part| !part.is_empty());
        parts.map(|part| PathBuf::from(expand_origin(part, &origin))).collect()
    };
    Some(Needs {
        libraries: elf.libraries.iter().map(|name| (*name).to_owned()).collect(),
        rpath: folders(&elf.rpaths),
        runpath: folders(&elf.runpaths),
    })
}

fn expand_origin(path: &str, origin: &Path) -> String {
    let origin = origin.to_string_lossy();
    path.replace("${ORIGIN}", &origin).replace("$ORIGIN", &origin)
}

/// Whether a file is an ELF program or library at all.
pub fn is_elf(path: &Path) -> bool {
    let mut magic = [0; 4];
    let read = fs::File::open(path).and_then(|mut file| std::io::Read::read_exact(&mut file, &mut magic));
    read.is_ok() && magic == *b"\x7fELF"
}

/// All libraries `program` needs, nearest first.
///
/// The order of search is that of ld.so(8): the file's RPATH if it has no RUNPATH, then
/// `LD_LIBRARY_PATH` (`search`), then RUNPATH, then the system's folders.
pub fn libraries(program: &Path, search: &[PathBuf]) -> Vec<Library> {
    let system = system_folders();
    let mut found: Vec<Library> = Vec::new();
    let mut seen = BTreeSet::new();
    let mut queue = vec![program.to_owned()];
    let mut next = 0;
    while next < queue.len() && found.len() < MAX_LIBRARIES {
        let Some(needs) = needs_of(&queue[next]) else {
            next += 1;
            continue;
        };
        next += 1;
        let rpath = if needs.runpath.is_empty() { needs.rpath.as_slice() } else { &[] };
        let folders = || rpath.iter().chain(search).chain(&needs.runpath).chain(&system);
        for name in &needs.libraries {
            if !seen.insert(name.clone()) {
                continue;
            }
            let file = folders().map(|folder| folder.join(name)).find(|file| file.is_file());
            queue.extend(file.clone());
            found.push(Library { name: name.clone(), file });
        }
    }
    found
}

/// `LD_LIBRARY_PATH`, or any path list, as folders.
pub fn path_list(value: Option<&std::ffi::OsStr>) -> Vec<PathBuf> {
    value.map(|v| std::env::split_paths(v).filter(|p| !p.as_os_str().is_empty()).collect()).unwrap_or_default()
}

/// The linker's default folders and those of `/etc/ld.so.conf.d`.
fn system_folders() -> Vec<PathBuf> {
    let mut folders = Vec::new();
    let configs = fs::read_dir("/etc/ld.so.conf.d").into_iter().flatten().flatten().map(|entry| entry.path());
    for config in configs {
        let text = fs::read_to_string(config).unwrap_or_default();
        folders.extend(text.lines().map(str::trim).filter(|line| line.starts_with('/')).map(PathBuf::from));
    }
    folders.sort();
    folders.extend(["/lib64", "/usr/lib64", "/lib", "/usr/lib"].map(PathBuf::from));
    folders
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_test_program_needs_libc() {
        let me = std::env::current_exe().unwrap();
        let all = libraries(&me, &[]);
        let libc = all.iter().find(|library| library.name.starts_with("libc.so")).unwrap();
        assert!(libc.file.as_ref().is_some_and(|file| file.is_file()), "{all:?}");
        assert!(is_elf(&me));
    }

    #[test]
    fn damaged_and_foreign_files_have_no_libraries() {
        let dir = tempfile::tempdir().unwrap();
        let me = fs::read(std::env::current_exe().unwrap()).unwrap();
        for (i, bytes) in [&b""[..], b"#!/bin/sh\n", b"\x7fELF", &me[..200], &me[..4096]].iter().enumerate() {
            let file = dir.path().join(i.to_string());
            fs::write(&file, bytes).unwrap();
            let _ = libraries(&file, &[]);
        }
        assert!(libraries(&dir.path().join("none"), &[]).is_empty());
    }

    #[test]
    fn origin_is_the_files_own_folder() {
        assert_eq!(expand_origin("$ORIGIN/../lib:${ORIGIN}", Path::new("/a/bin")), "/a/bin/../lib:/a/bin");
    }
}
