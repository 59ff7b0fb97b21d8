//! The package for Debian and its kin, by dpkg-deb.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::elf::{self, Glibc};
use super::tree;
use crate::origin::Origin;
use crate::process::run_quiet;

/// Debian's own revision of the version.
pub const REVISION: &str = "1";
/// Where Debian's Wireshark looks for plugins.
const PLUGINS: &str = "usr/lib/x86_64-linux-gnu/wireshark/plugins";
/// Where systemd looks for units of packages.
const UNITS: &str = "usr/lib/systemd/system";
/// What the administrator writes: an upgrade leaves it as it is.
const OPTIONS: &str = "etc/default/weir-xdpd";
/// What dpkg runs, as debhelper's `dh_installsystemd --no-enable --no-start
/// --no-restart-after-upgrade` would have it (Debian Policy 9.3.4).
const SCRIPTS: [(&str, &str); 3] = [
    ("postinst", include_str!("../../../packaging/debian/postinst")),
    ("prerm", include_str!("../../../packaging/debian/prerm")),
    ("postrm", include_str!("../../../packaging/debian/postrm")),
];
/// Libraries lie where the linker looks by itself (Debian Policy 8.1.1).
const TRIGGERS: &str = "activate-noawait ldconfig\n";

/// Makes the package from a staged tree; `root` is an empty folder for its own.
///
/// # Errors
/// If there is no dpkg-deb, or a library has no package that is known.
pub fn make(origin: &Origin, staged: &Path, root: &Path, out: &Path) -> Result<()> {
    lay_out(origin, staged, root)?;
    let needs = [tree::PROGRAM, tree::PROVIDER, tree::BMI[0].1, tree::BSP].map(|file| elf::needs(&staged.join(file)));
    let depends = depends(&needs.into_iter().collect::<Result<Vec<_>>>()?)?;
    let mut sums = String::new();
    let mut bytes = 0;
    for file in tree::files(root)? {
        let full = root.join(&file);
        let meta = full.symlink_metadata()?;
        bytes += meta.len();
        if meta.is_file() && file != Path::new(OPTIONS) {
            let sum = run_quiet(Command::new("md5sum").arg("--").arg(&full))?;
            sums += &format!("{}  {}\n", sum.split(' ').next().unwrap_or_default(), file.display());
        }
    }
    tree::write(&root.join("DEBIAN/md5sums"), &sums)?;
    tree::write(&root.join("DEBIAN/control"), &control(origin, &depends, bytes.div_ceil(1024)))?;
    tree::write(&root.join("DEBIAN/conffiles"), &format!("/{OPTIONS}\n"))?;
    tree::write(&root.join("DEBIAN/triggers"), TRIGGERS)?;
    for (name, text) in SCRIPTS {
        let script = root.join("DEBIAN").join(name);
        tree::write(&script, text)?;
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
    }
    // Modes do not depend on who made them.
    run_quiet(Command::new("chmod").args(["-R", "u=rwX,go=rX"]).arg(root))?;
    let mut pack = Command::new("dpkg-deb");
    pack.env("SOURCE_DATE_EPOCH", origin.epoch.to_string()).args(["--root-owner-group", "-Zxz", "--build"]);
    run_quiet(pack.arg(root).arg(out)).context("dpkg-deb cannot make the package")?;
    Ok(())
}

/// Debian's places differ in little: compressed pages, a folder of its own for zsh, one name for
/// the copyright, plugins that Wireshark finds, units that systemd finds.
fn lay_out(origin: &Origin, staged: &Path, root: &Path) -> Result<()> {
    let doc = root.join("usr").join(tree::DOC);
    for file in tree::files(staged)? {
        let name = file.display().to_string();
        let to = match name.as_str() {
            // One file of two licences, and modules are for who has no package.
            text if text.ends_with("LICENSE-APACHE")
                || text.ends_with("LICENSE-MIT")
                || text.contains("/modulefiles/") =>
            {
                continue;
            }
            "share/zsh/site-functions/_weir" => "usr/share/zsh/vendor-completions/_weir".into(),
            "share/doc/weir/CHANGELOG.md" => "usr/share/doc/weir/changelog".into(),
            options if options == tree::SYSTEMD[2] => OPTIONS.to_owned(),
            unit if tree::SYSTEMD.contains(&unit) => unit.replace("share/weir/systemd", UNITS),
            _ => format!("usr/{name}"),
        };
        let to = root.join(&to);
        tree::copy(&staged.join(&file), &to)?;
        let packed = to.starts_with(root.join("usr/share/man"))
            || to.ends_with("changelog")
            || to.ends_with("third-party-licences.txt");
        if packed {
            run_quiet(Command::new("gzip").arg("-9n").arg(&to))?;
        }
    }
    let plugins = root.join(PLUGINS);
    fs::create_dir_all(&plugins)?;
    // From plugins up to usr.
    symlink(Path::new("../../../..").join(tree::DISSECTOR), plugins.join("weir.lua"))?;
    tree::write(&doc.join("copyright"), &copyright(&fs::read_to_string(staged.join(tree::DOC).join("LICENSE-MIT"))?))?;
    let entry = changelog(origin)?;
    tree::write(&doc.join("changelog.Debian"), &entry)?;
    run_quiet(Command::new("gzip").arg("-9n").arg(doc.join("changelog.Debian")))?;
    Ok(())
}

/// The packages that hold the libraries these files name.
fn depends(needs: &[elf::Needs]) -> Result<String> {
    let glibc: Option<Glibc> = needs.iter().filter_map(|one| one.glibc).max();
    let mut packages = BTreeSet::new();
    for library in needs.iter().flat_map(|one| &one.libraries) {
        packages.insert(match library.as_str() {
            "libc.so.6"
            | "libm.so.6"
            | "libdl.so.2"
            | "librt.so.1"
            | "libpthread.so.0"
            | "libutil.so.1"
            | "ld-linux-x86-64.so.2" => {
                let (major, minor) = glibc.context("a library of glibc is needed, but no version of it")?;
                format!("libc6 (>= {major}.{minor})")
            }
            "libgcc_s.so.1" => "libgcc-s1 (>= 4.2)".to_owned(),
            other => bail!("in which package of Debian is {other}?"),
        });
    }
    Ok(packages.into_iter().collect::<Vec<_>>().join(", "))
}

/// Who Debian's tools name; `DEBFULLNAME` and `DEBEMAIL` say it as they do to those.
fn maintainer() -> String {
    let told = |name: &str, usual: &str| {
        std::env::var(name).ok().filter(|text| !text.is_empty()).unwrap_or_else(|| usual.to_owned())
    };
    format!("{} <{}>", told("DEBFULLNAME", "The Weir authors"), told("DEBEMAIL", "weir@invalid.invalid"))
}

fn control(origin: &Origin, depends: &str, kib: u64) -> String {
    let Origin { version, .. } = origin;
    format!(
        "Package: weir\nVersion: {version}-{REVISION}\nArchitecture: amd64\nMaintainer: {}\nInstalled-Size: {kib}\nDepends: {depends}\n\
         Suggests: mpich (>= 4.1) | openmpi-bin, wireshark, libusrsctp2\nSection: net\nPriority: optional\n\
         Description: fast and predictable messages for parallel programs\n \
         A libfabric provider that unmodified MPICH and Open MPI load through an\n \
         environment variable: messages go over ordinary Ethernet and cloud networks,\n \
         hardly slower when the network loses packets, is crowded, or loses a link.\n .\n \
         The command weir runs programs over it, finds what is wrong, measures and\n \
         compares machines, predicts how long programs run, and emulates networks.\n",
        maintainer()
    )
}

/// Machine-readable (DEP-5). Debian has the text of the Apache licence on every machine.
fn copyright(mit: &str) -> String {
    let body: Vec<&str> = mit.lines().skip_while(|line| !line.starts_with("Permission")).collect();
    let body =
        body.iter().map(|line| if line.is_empty() { " .\n".into() } else { format!(" {line}\n") }).collect::<String>();
    format!(
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\nUpstream-Name: weir\n\n\
         Files: *\nCopyright: The Weir authors\nLicense: Apache-2.0 or Expat\nComment:\n \
         Code of other projects that was compiled in is under the licences in\n third-party-licences.txt.gz beside this file; weir.cdx.json lists it.\n\n\
         License: Apache-2.0\n On Debian systems the text is in /usr/share/common-licenses/Apache-2.0.\n\n\
         License: Expat\n{body}"
    )
}

fn changelog(origin: &Origin) -> Result<String> {
    let when =
        run_quiet(Command::new("date").env("LC_ALL", "C").args(["-u", "-R", "-d", &format!("@{}", origin.epoch)]))?;
    let commit = origin.commit.as_ref().map(|commit| format!(" (commit {commit})")).unwrap_or_default();
    let version = format!("{}-{REVISION}", origin.version);
    Ok(format!(
        "weir ({version}) unstable; urgency=medium\n\n  * Version {}{commit}.\n\n -- {}  {}\n",
        origin.version,
        maintainer(),
        when.trim()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_found_in_packages_and_an_unknown_one_is_an_error() {
        let of = |minor: u32, libraries: &[&str]| elf::Needs {
            glibc: Some((2, minor)),
            libraries: libraries.iter().map(|name| (*name).to_owned()).collect(),
        };
        let both = [of(17, &["libc.so.6", "libm.so.6"]), of(28, &["libgcc_s.so.1", "libc.so.6"])];
        assert_eq!(depends(&both).unwrap(), "libc6 (>= 2.28), libgcc-s1 (>= 4.2)");
        assert!(depends(&[of(17, &["libssl.so.3"])]).unwrap_err().to_string().contains("libssl.so.3"));
    }
}
