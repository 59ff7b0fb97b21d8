//! Raw numbers of the laboratory book: they do not stay in the repository, its pages do.
//!
//! `cargo xtask bench mpi` writes `docs/lab/PAGE.json` beside a page. `pack` collects these files
//! into one archive for a release, and writes down their hashes in `docs/lab/data.sha256`; `unpack`
//! puts those of an archive back, if they are what was written down.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::paths::Paths;
use crate::process::run_quiet;

/// The laboratory book.
const BOOK: &str = "docs/lab";
/// Hashes of the pages' numbers, as `sha256sum` writes them.
const MANIFEST: &str = "docs/lab/data.sha256";
/// The archive, in `target/lab-data`, and the folder inside of it.
const ARCHIVE: &str = "lab-data.tar.gz";
const INSIDE: &str = "lab-data";

/// What may be asked for.
#[derive(clap::Subcommand)]
pub enum What {
    /// Collect the raw numbers of all pages into target/lab-data/lab-data.tar.gz; those that are
    /// gone from docs/lab come from git's history
    Pack,
    /// Put the raw numbers of an archive back into docs/lab
    Unpack {
        /// The archive
        #[arg(value_name = "FILE")]
        archive: PathBuf,
    },
}

/// Packs or unpacks.
///
/// # Errors
/// If files are missing or are not what was written down.
pub fn run(paths: &Paths, what: &What) -> Result<()> {
    match what {
        What::Pack => pack(&paths.root, &paths.target.join("lab-data")),
        What::Unpack { archive } => unpack(&paths.root, archive),
    }
}

fn pack(root: &Path, out: &Path) -> Result<()> {
    let mut known = manifest(root)?;
    let work = tempfile::tempdir()?;
    let inside = work.path().join(INSIDE);
    fs::create_dir(&inside)?;
    let mut lacking = Vec::new();
    for (name, hash) in &known {
        let to = inside.join(name);
        if !from_book(root, name, &to)? && !from_history(root, name, &to)? {
            lacking.push(name.clone());
        } else if hash_of(&to)? != *hash {
            bail!("{BOOK}/{name} is not what {MANIFEST} says: a page's numbers do not change; move it away");
        }
    }
    for name in in_book(root)?.into_iter().filter(|name| !known.contains_key(name)).collect::<Vec<_>>() {
        let to = inside.join(&name);
        from_book(root, &name, &to)?;
        known.insert(name, hash_of(&to)?);
    }
    if !lacking.is_empty() {
        bail!("neither in {BOOK} nor in the history here: {}; unpack an earlier archive first", lacking.join(", "));
    }
    let text = written(&known);
    fs::write(root.join(MANIFEST), &text).with_context(|| format!("cannot write {MANIFEST}"))?;
    fs::write(inside.join("data.sha256"), &text)?;
    fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
    let plain = out.join(ARCHIVE.trim_end_matches(".gz"));
    // The same numbers make the same bytes.
    let mut tar = Command::new("tar");
    tar.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--format=ustar", "--mode=u=rwX,go=rX"]);
    tar.arg("--mtime=@0").arg("-C").arg(work.path()).arg("-cf").arg(&plain).arg(INSIDE);
    run_quiet(&mut tar)?;
    run_quiet(Command::new("gzip").args(["-9n", "--force"]).arg(&plain))?;
    println!("{} files in {}", known.len(), out.join(ARCHIVE).display());
    Ok(())
}

fn unpack(root: &Path, archive: &Path) -> Result<()> {
    let known = manifest(root)?;
    let work = tempfile::tempdir()?;
    // Names that lead out of the folder are refused by tar itself.
    run_quiet(Command::new("tar").arg("-xzf").arg(archive).arg("-C").arg(work.path()))
        .with_context(|| format!("cannot unpack {}", archive.display()))?;
    let mut put = 0;
    for (name, hash) in &known {
        let from = work.path().join(INSIDE).join(name);
        if !fs::symlink_metadata(&from).is_ok_and(|is| is.is_file()) {
            continue;
        }
        if hash_of(&from)? != *hash {
            bail!("{name} in {} is not what {MANIFEST} says", archive.display());
        }
        let to = root.join(BOOK).join(name);
        if to.exists() {
            if hash_of(&to)? != *hash {
                bail!("{} is not what {MANIFEST} says, and is not written over", to.display());
            }
            continue;
        }
        fs::copy(&from, &to).with_context(|| format!("cannot write {}", to.display()))?;
        put += 1;
    }
    println!("{put} files put into {BOOK}");
    Ok(())
}

/// What is wrong with the book's list of hashes; one line each.
///
/// # Errors
/// If it cannot be read.
pub fn troubles(root: &Path) -> Result<Vec<String>> {
    let known = manifest(root)?;
    let page_of = |name: &str| root.join(BOOK).join(name).with_extension("md");
    let without = known.keys().filter(|name| !page_of(name).exists());
    let mut found: Vec<String> = without.map(|name| format!("{MANIFEST} has {name}, which has no page")).collect();
    let tracked = run_quiet(Command::new("git").current_dir(root).args(["ls-files", "docs/lab/*.json"]));
    // Packed sources are no repository.
    let tracked = tracked.unwrap_or_default();
    found
        .extend(tracked.lines().map(|name| format!("{name} is in the repository; cargo xtask lab-data pack keeps it")));
    Ok(found)
}

/// Names and hashes.
fn manifest(root: &Path) -> Result<BTreeMap<String, String>> {
    let text = fs::read_to_string(root.join(MANIFEST)).with_context(|| format!("cannot read {MANIFEST}"))?;
    let mut known = BTreeMap::new();
    for line in text.lines() {
        let (hash, name) = line.split_once("  ").with_context(|| format!("{MANIFEST}: no hash and name: {line}"))?;
        let is_hash = hash.len() == 64 && hash.bytes().all(|b| b.is_ascii_hexdigit());
        if !is_hash || !is_name(name) || known.insert(name.to_owned(), hash.to_owned()).is_some() {
            bail!("{MANIFEST}: no hash and name, or one twice: {line}");
        }
    }
    Ok(known)
}

fn written(known: &BTreeMap<String, String>) -> String {
    known.iter().map(|(name, hash)| format!("{hash}  {name}\n")).collect()
}

/// A file of the book and of nothing else.
fn is_name(name: &str) -> bool {
    name.ends_with(".json") && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b))
}

fn in_book(root: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(root.join(BOOK)).with_context(|| format!("cannot read {BOOK}"))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        names.extend(Some(name).filter(|name| is_name(name)));
    }
    Ok(names)
}

fn from_book(root: &Path, name: &str, to: &Path) -> Result<bool> {
    let from = root.join(BOOK).join(name);
    if !from.exists() {
        return Ok(false);
    }
    fs::copy(&from, to).with_context(|| format!("cannot read {}", from.display()))?;
    Ok(true)
}

/// As it was before it left the tree, if git has that.
fn from_history(root: &Path, name: &str, to: &Path) -> Result<bool> {
    let path = format!("{BOOK}/{name}");
    let git = |args: &[&str]| run_quiet(Command::new("git").current_dir(root).args(args));
    let Ok(commit) = git(&["log", "-n1", "--diff-filter=AM", "--format=%H", "--", &path]) else { return Ok(false) };
    if commit.trim().is_empty() {
        return Ok(false);
    }
    let Ok(text) = git(&["show", &format!("{}:{path}", commit.trim())]) else { return Ok(false) };
    fs::write(to, text)?;
    Ok(true)
}

fn hash_of(file: &Path) -> Result<String> {
    let said = run_quiet(Command::new("sha256sum").arg("--").arg(file))?;
    Ok(said.split_whitespace().next().context("sha256sum says nothing")?.trim_start_matches('\\').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A project with a page and its numbers.
    fn project() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let book = dir.path().join(BOOK);
        fs::create_dir_all(&book).unwrap();
        fs::write(book.join("day-loss.md"), "# A page\n").unwrap();
        fs::write(book.join("day-loss.json"), "{\"cells\": [1]}\n").unwrap();
        fs::write(dir.path().join(MANIFEST), "").unwrap();
        dir
    }

    #[test]
    fn what_is_packed_comes_back_and_nothing_else_does() {
        let (a, out) = (project(), tempfile::tempdir().unwrap());
        pack(a.path(), out.path()).unwrap();
        let first = fs::read(out.path().join(ARCHIVE)).unwrap();
        pack(a.path(), out.path()).unwrap();
        assert_eq!(fs::read(out.path().join(ARCHIVE)).unwrap(), first, "the same numbers, the same bytes");
        assert_eq!(manifest(a.path()).unwrap().len(), 1);
        let json = a.path().join(BOOK).join("day-loss.json");
        fs::remove_file(&json).unwrap();
        unpack(a.path(), &out.path().join(ARCHIVE)).unwrap();
        assert_eq!(fs::read_to_string(&json).unwrap(), "{\"cells\": [1]}\n");
        // Numbers do not change.
        fs::write(&json, "{}").unwrap();
        assert!(format!("{:#}", pack(a.path(), out.path()).unwrap_err()).contains("is not what"));
        assert!(format!("{:#}", unpack(a.path(), &out.path().join(ARCHIVE)).unwrap_err()).contains("written over"));
        // Nor does an archive of others come in.
        let other = project();
        fs::write(other.path().join(BOOK).join("day-loss.json"), "[]").unwrap();
        let forged = tempfile::tempdir().unwrap();
        pack(other.path(), forged.path()).unwrap();
        fs::remove_file(&json).unwrap();
        assert!(unpack(a.path(), &forged.path().join(ARCHIVE)).is_err() && !json.exists());
    }

    #[test]
    fn numbers_that_are_nowhere_are_named() {
        let (a, out) = (project(), tempfile::tempdir().unwrap());
        pack(a.path(), out.path()).unwrap();
        fs::remove_file(a.path().join(BOOK).join("day-loss.json")).unwrap();
        let error = format!("{:#}", pack(a.path(), out.path()).unwrap_err());
        assert!(error.contains("day-loss.json"), "{error}");
    }

    #[test]
    fn a_list_with_anything_else_in_it_is_refused() {
        let a = project();
        let hash = "0".repeat(64);
        for line in ["nonsense", &format!("{hash}  ../../x.json"), &format!("{hash}  x.md"), "12  x.json"] {
            fs::write(a.path().join(MANIFEST), format!("{line}\n")).unwrap();
            assert!(manifest(a.path()).is_err(), "{line}");
        }
    }

    #[test]
    fn every_list_of_numbers_has_its_page_and_none_is_in_the_repository() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let found = troubles(root).unwrap();
        assert!(found.is_empty(), "{}", found.join("\n"));
    }
}
