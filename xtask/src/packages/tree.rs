//! What is installed, as files below a prefix. Every package holds this tree, so that everything is
//! found from where the program is.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::crates;
use crate::origin::Origin;
use crate::paths::Paths;
use crate::process::run_quiet;

/// The profile of what is shipped: `[profile.dist]` of the workspace.
pub const SHIPPED: &str = "dist";
/// The command, below the prefix.
pub const PROGRAM: &str = "bin/weir";
/// The provider: in a folder of its own, since libfabric loads every file that ends in `fi.so` of
/// the folder it is pointed at.
pub const PROVIDER: &str = "lib/weir/libweir-fi.so";
/// BMI's library, header, and what pkg-config(1) says of them.
pub const BMI: [(&str, &str); 3] = [
    ("lib", "lib/libweir-bmi.so"),
    ("include/bmi.h", "include/bmi.h"),
    ("packaging/weir-bmi.pc", "lib/pkgconfig/weir-bmi.pc"),
];
/// For BMI methods from outside.
pub const BMI_MODULES: [&str; 2] = ["include/bmi-method.h", "include/bmi-support.h"];
/// What compilers and pkg-config need for programs and methods of BMI: in the project, and below
/// the prefix.
pub fn for_bmi_programs() -> impl Iterator<Item = (&'static str, &'static str)> {
    BMI[1..].iter().copied().chain(BMI_MODULES.map(|header| (header, header)))
}

/// BSPlib: where linkers look, ...
pub const BSP: &str = "lib/libweir-bsp.so";
/// ... and where compilers and pkg-config do.
pub const BSP_HEADER: &str = "include/bsp.h";
/// The module for Fortran, which is compiled with the program.
pub const BSP_MODULE: &str = "share/weir/bsp.f90";
/// The same.
pub const BSP_PKGCONFIG: &str = "lib/pkgconfig/weir-bsp.pc";
/// Texts and bills.
pub const DOC: &str = "share/doc/weir";
/// For Wireshark.
pub const DISSECTOR: &str = "share/weir/wireshark/weir.lua";
/// Completions: the shell, and where it looks below a prefix.
pub const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "share/bash-completion/completions/weir"),
    ("zsh", "share/zsh/site-functions/_weir"),
    ("fish", "share/fish/vendor_completions.d/weir.fish"),
];
/// For systemd: socket, service, and the file of the service's options.
pub const SYSTEMD: [&str; 3] = [
    "share/weir/systemd/weir-xdpd.socket",
    "share/weir/systemd/weir-xdpd.service",
    "share/weir/systemd/weir-xdpd.default",
];
/// Files that are as they are in the project.
const AS_THEY_ARE: [(&str, &str); 15] = [
    ("include/bsp.h", BSP_HEADER),
    ("include/bmi-method.h", BMI_MODULES[0]),
    ("include/bmi-support.h", BMI_MODULES[1]),
    ("include/bsp.f90", BSP_MODULE),
    ("tools/wireshark/weir.lua", DISSECTOR),
    ("packaging/modulefiles/weir.lua", "share/weir/modulefiles/weir.lua"),
    ("packaging/modulefiles/weir.tcl", "share/weir/modulefiles/weir"),
    ("packaging/systemd/weir-xdpd.socket", SYSTEMD[0]),
    ("packaging/systemd/weir-xdpd.service", SYSTEMD[1]),
    ("packaging/systemd/weir-xdpd.default", SYSTEMD[2]),
    ("README.md", "share/doc/weir/README.md"),
    ("CHANGELOG.md", "share/doc/weir/CHANGELOG.md"),
    ("SECURITY.md", "share/doc/weir/SECURITY.md"),
    ("LICENSE-APACHE", "share/doc/weir/LICENSE-APACHE"),
    ("LICENSE-MIT", "share/doc/weir/LICENSE-MIT"),
];

/// Lays out below `root` what Cargo made in its folder `built`, and what goes with it. `root` has
/// nothing of it yet.
///
/// # Errors
/// If a file is missing or a licence is not allowed.
pub fn stage(paths: &Paths, origin: &Origin, built: &Path, root: &Path) -> Result<()> {
    let crates = crates::all(paths)?;
    let complaints = crates::complaints(&crates);
    anyhow::ensure!(complaints.is_empty(), "{}", complaints.join("\n"));
    copy(&built.join("weir"), &root.join(PROGRAM))?;
    copy(&built.join("libweir_fi.so"), &root.join(PROVIDER))?;
    let [(_, library), rest @ ..] = BMI;
    copy(&built.join("libweir_bmi.so"), &root.join(library))?;
    for (from, to) in rest {
        copy(&paths.root.join(from), &root.join(to))?;
    }
    copy(&built.join("libweir_bsp.so"), &root.join(BSP))?;
    write(&root.join(BSP_PKGCONFIG), &pkgconfig(paths)?)?;
    for (from, to) in AS_THEY_ARE {
        copy(&paths.root.join(from), &root.join(to))?;
    }
    for page in entries(&paths.root.join("docs/man"))? {
        let name = page.file_name().context("a page without a name")?.to_string_lossy().into_owned();
        let section = name.rsplit('.').next().unwrap_or("1").to_owned();
        copy(&page, &root.join(format!("share/man/man{section}")).join(name))?;
    }
    for (shell, to) in COMPLETIONS {
        let text = run_quiet(Command::new(root.join(PROGRAM)).args(["completions", shell]))?;
        write(&root.join(to), &text)?;
    }
    write(&root.join(DOC).join("third-party-licences.txt"), &crates::licence_texts(&crates)?)?;
    write(&root.join(DOC).join("weir.cdx.json"), &crates::bill_of_materials(paths, origin, &crates)?)?;
    plain_modes(root)
}

/// What pkg-config is told, of this version.
///
/// # Errors
/// If it cannot be read.
pub fn pkgconfig(paths: &Paths) -> Result<String> {
    let file = paths.root.join("packaging/pkgconfig/weir-bsp.pc");
    let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    Ok(text.replace("@VERSION@", env!("CARGO_PKG_VERSION")))
}

/// Modes that do not depend on who built it.
fn plain_modes(root: &Path) -> Result<()> {
    for file in files(root)? {
        let mode = if is_program(&file) { 0o755 } else { 0o644 };
        fs::set_permissions(root.join(&file), fs::Permissions::from_mode(mode))?;
    }
    Ok(())
}

/// Whether a file of the tree is to be run.
pub fn is_program(file: &Path) -> bool {
    file == Path::new(PROGRAM)
}

/// Copies a file, folders included.
pub fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to.parent().context("no folder")?)?;
    fs::copy(from, to).with_context(|| format!("cannot copy {}", from.display()))?;
    Ok(())
}

/// Writes a file, folders included.
pub fn write(to: &Path, text: &str) -> Result<()> {
    fs::create_dir_all(to.parent().context("no folder")?)?;
    fs::write(to, text).with_context(|| format!("cannot write {}", to.display()))
}

/// All files below a folder, as paths from it, in order. A link counts as a file.
///
/// # Errors
/// If it cannot be read.
pub fn files(root: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut open = vec![root.to_owned()];
    while let Some(folder) = open.pop() {
        for path in entries(&folder)? {
            if path.symlink_metadata()?.is_dir() {
                open.push(path);
            } else {
                found.push(path.strip_prefix(root)?.to_owned());
            }
        }
    }
    found.sort();
    Ok(found)
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let list = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut all: Vec<PathBuf> = list.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    all.sort();
    Ok(all)
}
