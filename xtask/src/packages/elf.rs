//! What a program or library asks of the machine it shall run on, by binutils' readelf.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::process::run_quiet;

/// A version of glibc.
pub type Glibc = (u32, u32);

/// What a file needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// The newest version of glibc among those of its symbols.
    pub glibc: Option<Glibc>,
    /// The libraries it names, in its order.
    pub libraries: Vec<String>,
}

/// Reads a file's needs.
///
/// # Errors
/// If there is no readelf, or it is no ELF file.
pub fn needs(file: &Path) -> Result<Needs> {
    let text =
        run_quiet(Command::new("readelf").env("LC_ALL", "C").args(["--wide", "--dynamic", "--version-info"]).arg(file))
            .context("readelf, of binutils, is needed")?;
    Ok(needs_in(&text))
}

fn needs_in(text: &str) -> Needs {
    let library = |line: &str| Some(line.split_once("Shared library: [")?.1.split_once(']')?.0.to_owned());
    let versions = text.split("Name: GLIBC_").skip(1).filter_map(|rest| {
        let number = rest.split(|c: char| !c.is_ascii_digit() && c != '.').next()?;
        let mut parts = number.split('.').map(str::parse);
        Some((parts.next()?.ok()?, parts.next()?.ok()?))
    });
    let libraries = text.lines().filter(|line| line.contains("(NEEDED)")).filter_map(library);
    Needs { glibc: versions.max(), libraries: libraries.collect() }
}

/// Fails if a file is larger than it may be, or needs a newer glibc.
///
/// # Errors
/// So, with both numbers; or as [`needs`].
pub fn check(file: &Path, most_bytes: u64, newest: Glibc) -> Result<Needs> {
    let name = file.display();
    let bytes = fs::metadata(file).with_context(|| format!("cannot find {name}"))?.len();
    ensure!(bytes <= most_bytes, "{name} has {bytes} bytes, more than the {most_bytes} it may have");
    let needs = needs(file)?;
    let glibc = needs.glibc.with_context(|| format!("{name} needs no symbol of glibc: is it linked dynamically?"))?;
    ensure!(glibc <= newest, "{name} needs glibc {}.{}, newer than {}.{}", glibc.0, glibc.1, newest.0, newest.1);
    Ok(needs)
}

/// Fails if a file names one of these folders of the machine it was built on.
///
/// # Errors
/// So, with what stands there.
pub fn names_none(file: &Path, folders: &[String]) -> Result<()> {
    let bytes = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    for folder in folders {
        let at = bytes.windows(folder.len()).position(|window| window == folder.as_bytes());
        if let Some(at) = at {
            let until = bytes.len().min(at + 120);
            let shown: String =
                String::from_utf8_lossy(&bytes[at..until]).chars().take_while(|c| !c.is_control()).collect();
            anyhow::bail!("{} names a folder of this machine: {shown}", file.display());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "
 0x0000000000000001 (NEEDED)             Shared library: [libgcc_s.so.1]
 0x0000000000000001 (NEEDED)             Shared library: [libc.so.6]
 0x000000000000000e (SONAME)             Library soname: [libweir.so]
  0x0010:   Name: GLIBC_2.2.5  Flags: none  Version: 7
  0x0020:   Name: GLIBC_2.17  Flags: none  Version: 6
  0x0030:   Name: GLIBC_2.9  Flags: none  Version: 5
  0x0040:   Name: GCC_3.0  Flags: none  Version: 4
";

    #[test]
    fn the_newest_version_is_found_by_number_and_libraries_are_those_needed() {
        let needs = needs_in(TEXT);
        assert_eq!(needs.glibc, Some((2, 17)));
        assert_eq!(needs.libraries, ["libgcc_s.so.1", "libc.so.6"]);
        assert_eq!(needs_in("There is no dynamic section"), Needs::default());
    }

    #[test]
    fn a_file_that_is_too_large_or_too_new_or_names_a_folder_is_refused() {
        let me = std::env::current_exe().unwrap();
        let why = |result: Result<Needs>| result.unwrap_err().to_string();
        assert!(check(&me, u64::MAX, (2, 999)).is_ok());
        assert!(why(check(&me, 1000, (2, 999))).contains("more than the 1000"));
        assert!(why(check(&me, u64::MAX, (2, 1))).contains("newer than 2.1"));
        let folder = env!("CARGO_MANIFEST_DIR").to_owned();
        let error = names_none(&me, std::slice::from_ref(&folder)).unwrap_err().to_string();
        assert!(error.contains(&folder), "{error}");
        assert!(names_none(Path::new("/bin/echo"), &[folder]).is_ok());
    }
}
