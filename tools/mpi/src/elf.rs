//! Which shared libraries a program needs, found as the dynamic linker would find them.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use goblin::container::Ctx;
use goblin::elf::dynamic::{DT_NEEDED, DT_RPATH, DT_RUNPATH, DT_SONAME, DT_STRSZ, DT_STRTAB, Dynamic};
use goblin::elf::program_header::{PT_DYNAMIC, PT_LOAD};
use goblin::elf::{Elf, ProgramHeader};

/// Most libraries looked at; a program with more is answered from those.
const MAX_LIBRARIES: usize = 400;
/// Largest file that is read as a program or library.
const MAX_FILE_BYTES: u64 = 1 << 30;
/// Largest part of a file that is read for the linker: a table of strings may have megabytes.
const MAX_PART_BYTES: u64 = 64 << 20;

/// A library a program needs, directly or through others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Library {
    /// Its name in the program.
    pub name: String,
    /// The file the linker would take; none if it would find none.
    pub file: Option<PathBuf>,
}

/// What one ELF file says to the dynamic linker.
struct Needs {
    soname: Option<String>,
    libraries: Vec<String>,
    rpath: Vec<PathBuf>,
    runpath: Vec<PathBuf>,
}

/// Reads only the parts of the file that are for the linker: MPI libraries have tens of megabytes,
/// and every rank looks.
fn needs_of(path: &Path) -> Option<Needs> {
    let file = fs::File::open(path).ok()?;
    if file.metadata().ok()?.len() > MAX_FILE_BYTES {
        return None;
    }
    let part = |offset: u64, bytes: u64| {
        let mut part = vec![0; usize::try_from(bytes).ok().filter(|_| bytes <= MAX_PART_BYTES)?];
        file.read_exact_at(&mut part, offset).ok()?;
        Some(part)
    };
    let header = Elf::parse_header(&part(0, 64).or_else(|| part(0, 52))?).ok()?;
    let context = Ctx::new(header.container().ok()?, header.endianness().ok()?);
    let (count, entry) = (header.e_phnum, ProgramHeader::size(context));
    let table = part(header.e_phoff, u64::from(count) * entry as u64)?;
    let segments = ProgramHeader::parse(&table, 0, count.into(), context).ok()?;
    let dynamic = segments.iter().find(|segment| segment.p_type == PT_DYNAMIC)?;
    let bytes = part(dynamic.p_offset, dynamic.p_filesz)?;
    // To the parser, the part is the file.
    let alone = ProgramHeader { p_offset: 0, ..dynamic.clone() };
    let entries = Dynamic::parse(&bytes, &[alone], context).ok()??.dyns;
    let value = |tag: u64| entries.iter().find(|entry| entry.d_tag == tag).map(|entry| entry.d_val);
    let address = value(DT_STRTAB)?;
    let mut loaded = segments.iter().filter(|segment| segment.p_type == PT_LOAD);
    let segment =
        loaded.find(|segment| address.checked_sub(segment.p_vaddr).is_some_and(|at| at < segment.p_filesz))?;
    let strings = part((address - segment.p_vaddr).checked_add(segment.p_offset)?, value(DT_STRSZ)?)?;
    let text = |at: u64| {
        let rest = strings.get(usize::try_from(at).ok()?..)?;
        Some(String::from_utf8_lossy(rest.split(|byte| *byte == 0).next()?).into_owned())
    };
    let all = |tag: u64| entries.iter().filter(move |entry| entry.d_tag == tag).filter_map(|entry| text(entry.d_val));
    let origin = fs::canonicalize(path).ok()?.parent()?.to_owned();
    let folders = |tag: u64| {
        let lists: Vec<String> = all(tag).collect();
        let parts = lists.iter().flat_map(|paths| paths.split(':')).filter(|part| !part.is_empty());
        parts.map(|part| PathBuf::from(expand_origin(part, &origin))).collect()
    };
    Some(Needs {
        soname: all(DT_SONAME).next(),
        libraries: all(DT_NEEDED).collect(),
        rpath: folders(DT_RPATH),
        runpath: folders(DT_RUNPATH),
    })
}

/// The name by which a shared library wants to be found; none if the file is no library, or has no
/// such name.
pub fn soname(path: &Path) -> Option<String> {
    needs_of(path)?.soname
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

/// The linker's default folders and those of `/etc/ld.so.conf` and `/etc/ld.so.conf.d`.
pub fn system_folders() -> Vec<PathBuf> {
    let mut configs: Vec<PathBuf> =
        fs::read_dir("/etc/ld.so.conf.d").into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    configs.push("/etc/ld.so.conf".into());
    configs.sort();
    let mut folders = Vec::new();
    for config in configs {
        let text = fs::read_to_string(config).unwrap_or_default();
        folders.extend(text.lines().map(str::trim).filter(|line| line.starts_with('/')).map(PathBuf::from));
    }
    folders.extend(["/lib64", "/usr/lib64", "/lib", "/usr/lib"].map(PathBuf::from));
    // Where /lib is a link to /usr/lib, each would be looked through twice.
    let mut seen = BTreeSet::new();
    folders.retain(|folder| fs::canonicalize(folder).is_ok_and(|real| seen.insert(real)));
    folders
}

/// A shared library of 64 bits with nothing in it but what is for the linker.
#[cfg(test)]
pub(crate) fn made_up(soname: Option<&str>, needs: &[&str]) -> Vec<u8> {
    let (at_dynamic, mut strings, mut entries) = (64 + 2 * 56, vec![0u8], Vec::new());
    let names = soname.iter().map(|name| (DT_SONAME, *name)).chain(needs.iter().map(|name| (DT_NEEDED, *name)));
    for (tag, name) in names {
        entries.push((tag, strings.len() as u64));
        strings.extend(name.bytes().chain([0]));
    }
    let at_strings = at_dynamic + (entries.len() as u64 + 3) * 16;
    entries.extend([(DT_STRTAB, at_strings), (DT_STRSZ, strings.len() as u64), (0, 0)]);
    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(16, 0);
    let mut put = |value: u64, bytes: usize| file.extend(&value.to_le_bytes()[..bytes]);
    // ET_DYN for x86-64: e_type, e_machine, e_version, e_entry, e_phoff, e_shoff, e_flags, then
    // sizes and counts.
    let header =
        [(3, 2), (62, 2), (1, 4), (0, 8), (64, 8), (0, 8), (0, 4), (64, 2), (56, 2), (2, 2), (64, 2), (0, 2), (0, 2)];
    header.into_iter().for_each(|(value, bytes)| put(value, bytes));
    let all = at_strings + strings.len() as u64;
    for (kind, at, bytes) in [(PT_LOAD, 0, all), (PT_DYNAMIC, at_dynamic, at_strings - at_dynamic)] {
        put(kind.into(), 4);
        put(6, 4);
        [at, at, at, bytes, bytes, 8].into_iter().for_each(|value| put(value, 8));
    }
    entries.into_iter().for_each(|(tag, value)| [tag, value].into_iter().for_each(|value| put(value, 8)));
    file.extend(strings);
    file
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
    fn a_library_says_its_name_and_its_needs() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("any");
        fs::write(&file, made_up(Some("libmpi.so.12"), &["libfabric.so.1", "libno.so.9"])).unwrap();
        fs::write(dir.path().join("libfabric.so.1"), made_up(None, &[])).unwrap();
        assert_eq!(soname(&file).as_deref(), Some("libmpi.so.12"));
        assert_eq!(soname(&dir.path().join("libfabric.so.1")), None);
        let found = libraries(&file, &[dir.path().to_owned()]);
        let want = [("libfabric.so.1", Some(dir.path().join("libfabric.so.1"))), ("libno.so.9", None)];
        assert_eq!(found, want.map(|(name, file)| Library { name: name.into(), file }));
    }

    #[test]
    fn a_library_cut_or_damaged_anywhere_is_read_without_harm() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("x");
        let whole = made_up(Some("libmpi.so.12"), &["libc.so.6"]);
        for length in 0..whole.len() {
            fs::write(&file, &whole[..length]).unwrap();
            assert_eq!(soname(&file), None, "{length} bytes");
        }
        for at in 0..whole.len() {
            for value in [0, 0x7f, 0xff] {
                let mut bytes = whole.clone();
                bytes[at] = value;
                fs::write(&file, &bytes).unwrap();
                let _ = (soname(&file), libraries(&file, &[]));
            }
        }
    }

    #[test]
    fn origin_is_the_files_own_folder() {
        assert_eq!(expand_origin("$ORIGIN/../lib:${ORIGIN}", Path::new("/a/bin")), "/a/bin/../lib:/a/bin");
    }
}
