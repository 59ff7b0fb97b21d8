//! `cargo xtask dist`: what people install, made so that the same commit makes the same bytes.
//!
//! | file | subject |
//! |---|---|
//! | `zig` | the three products, built for an old glibc |
//! | `tree` | the files below a prefix that every package holds |
//! | `crates`, `licence` | what is inside: crates, licences, the bill of materials |
//! | `elf` | what the products ask of a machine |
//! | `deb` | the package for Debian; the wheel is packed by `packaging/wheel.py` |
//! | `check` | installing them where there is no compiler, and running MPI programs |

pub mod check;
pub mod crates;
mod deb;
mod elf;
mod licence;
pub mod tree;
mod zig;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::e2e::Ended;
use crate::origin::Origin;
use crate::paths::Paths;
use crate::process::run_quiet;

/// Most bytes of each product.
const MOST: [(&str, u64); 4] =
    [("libweir_fi.so", 3_000_000), ("libweir_bmi.so", 3_000_000), ("libweir_bsp.so", 3_000_000), ("weir", 16_000_000)];

/// What `cargo xtask dist` is told.
#[derive(clap::Args)]
pub struct Options {
    /// Then install wheel, Debian package and archive where there is no compiler, and run MPI
    /// programs over each
    #[arg(long)]
    check: bool,
    /// Pack what an earlier run built
    #[arg(long)]
    no_build: bool,
}

/// The packages of one version.
#[derive(Clone, Debug)]
pub struct Packages {
    /// For pip.
    pub wheel: PathBuf,
    /// For Debian and its kin; none where there is no dpkg-deb.
    pub deb: Option<PathBuf>,
    /// To be unpacked anywhere.
    pub archive: PathBuf,
    /// The sources of the commit; none outside of git.
    pub sources: Option<PathBuf>,
}

impl Packages {
    /// All files.
    fn files(&self) -> Vec<&PathBuf> {
        [Some(&self.wheel), self.deb.as_ref(), Some(&self.archive), self.sources.as_ref()]
            .into_iter()
            .flatten()
            .collect()
    }
}

/// Builds, packs and, if asked to, checks; returns whether nothing failed.
///
/// # Errors
/// If something cannot be built or packed, is too large, or needs a newer system.
pub fn run(paths: &Paths, options: &Options) -> Result<bool> {
    let origin = Origin::find(paths);
    let built = if options.no_build { zig::built(paths) } else { zig::build(paths, &origin)? };
    let folders: Vec<String> = zig::folders(paths).into_iter().map(|(folder, _)| folder).collect();
    for (name, most) in MOST {
        let file = built.join(name);
        let needs = elf::check(&file, most, zig::OLDEST_GLIBC)?;
        elf::names_none(&file, &folders)?;
        let (major, minor) = needs.glibc.unwrap_or_default();
        println!("{name}: {} bytes, glibc {major}.{minor}, {}", fs::metadata(&file)?.len(), needs.libraries.join(" "));
    }
    let version = run_quiet(Command::new(built.join("weir")).arg("--version"))?;
    let wanted = origin.commit.as_deref().unwrap_or(origin.version);
    ensure!(version.contains(wanted), "what was built says {}, not {wanted}: build it again", version.trim());
    let out = paths.target.join("packages");
    let packages = assemble(paths, &origin, &built, &out)?;
    recipe(paths, &origin, &packages, &out)?;
    for file in packages.files() {
        println!("{:>9} bytes  {}", fs::metadata(file)?.len(), file.display());
    }
    if packages.deb.is_none() {
        println!("no Debian package: there is no dpkg-deb here");
    }
    if !options.check {
        return Ok(true);
    }
    let mut good = true;
    check::run(paths, &origin, &packages, &built, &mut |name, ended| {
        good &= !matches!(ended, Ended::Failed(_));
        println!("{name}: {ended:?}");
    })?;
    Ok(good)
}

/// Packs what Cargo made in its folder `built` into the folder `out`, whose older packages go.
///
/// # Errors
/// If a program for it is missing, or a licence is not allowed.
pub fn assemble(paths: &Paths, origin: &Origin, built: &Path, out: &Path) -> Result<Packages> {
    if out.exists() {
        fs::remove_dir_all(out).with_context(|| format!("cannot remove {}", out.display()))?;
    }
    fs::create_dir_all(out)?;
    let version = origin.version;
    let work = tempfile::tempdir_in(out)?;
    let name = format!("weir-{version}-linux-x86_64");
    let staged = work.path().join(&name);
    tree::stage(paths, origin, built, &staged)?;
    dated(origin, &staged)?;

    let archive = out.join(format!("{name}.tar.gz"));
    tar(origin, work.path(), &name, &archive)?;

    let (major, minor) = zig::OLDEST_GLIBC;
    let tag = format!("manylinux_{major}_{minor}_x86_64");
    let wheel = out.join(format!("weir_hpc-{version}-py3-none-{tag}.whl"));
    let mut python = Command::new("python3");
    python.arg(paths.root.join("packaging/wheel.py")).arg("--tree").arg(&staged).arg("--out").arg(&wheel);
    run_quiet(python.args(["--version", version, "--tag", &tag, "--epoch", &origin.epoch.to_string()]))?;

    let deb = if has("dpkg-deb") {
        let file = out.join(format!("weir_{version}-{}_amd64.deb", deb::REVISION));
        deb::make(origin, &staged, &work.path().join("deb"), &file)?;
        Some(file)
    } else {
        None
    };
    let sources = sources(paths, origin, out)?;
    Ok(Packages { wheel, deb, archive, sources })
}

fn has(program: &str) -> bool {
    run_quiet(Command::new(program).arg("--version")).is_ok()
}

/// One time for all, which archives keep.
fn dated(origin: &Origin, root: &Path) -> Result<()> {
    let time = format!("@{}", origin.epoch);
    run_quiet(Command::new("find").arg(root).args(["-exec", "touch", "-h", "-d", &time, "{}", "+"])).map(drop)
}

/// An archive whose bytes depend on nothing but names, modes and contents.
fn tar(origin: &Origin, folder: &Path, name: &str, out: &Path) -> Result<()> {
    let plain = out.with_extension("");
    let mut tar = Command::new("tar");
    tar.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--format=ustar", "--mode=u=rwX,go=rX"]);
    tar.arg(format!("--mtime=@{}", origin.epoch)).arg("-C").arg(folder).arg("-cf").arg(&plain).arg(name);
    run_quiet(&mut tar)?;
    // With the suffix that it adds by itself.
    run_quiet(Command::new("gzip").args(["-9n", "--force"]).arg(&plain)).map(drop)
}

/// The sources of the commit, for who builds: Spack above all. None outside of git, where who asks
/// has them already.
fn sources(paths: &Paths, origin: &Origin, out: &Path) -> Result<Option<PathBuf>> {
    if origin.commit.is_none() || !has("git") {
        return Ok(None);
    }
    let name = format!("weir-{}", origin.version);
    let plain = out.join(format!("{name}.tar"));
    let mut git = Command::new("git");
    git.arg("-C")
        .arg(&paths.root)
        .args(["archive", "--format=tar", &format!("--prefix={name}/"), "HEAD", "-o"])
        .arg(&plain);
    if run_quiet(&mut git).is_err() {
        return Ok(None);
    }
    run_quiet(Command::new("gzip").args(["-9n", "--force"]).arg(&plain))?;
    Ok(Some(out.join(format!("{name}.tar.gz"))))
}

/// The recipes, ready for use beside the packages: Spack's knows where the sources are and their
/// checksum, the container's which wheel to install.
fn recipe(paths: &Paths, origin: &Origin, packages: &Packages, out: &Path) -> Result<()> {
    let read = |file: &str| {
        fs::read_to_string(paths.root.join("packaging").join(file))
            .with_context(|| format!("cannot read packaging/{file}"))
    };
    let mut spack = read("spack/package.py")?;
    if let Some(sources) = &packages.sources {
        let sum = run_quiet(Command::new("sha256sum").arg("--").arg(sources))?;
        let sum = sum.split(' ').next().unwrap_or_default();
        let plain = format!("    version(\"{}\")\n", origin.version);
        ensure!(spack.contains(&plain), "packaging/spack/package.py has no line {}", plain.trim());
        let file = sources.file_name().context("no name")?.to_string_lossy().into_owned();
        let known = format!(
            "    version(\n        \"{}\",\n        sha256=\"{sum}\",\n        url=\"file://\" + os.path.join(os.path.dirname(__file__), \"{file}\"),\n    )\n",
            origin.version
        );
        spack = spack.replace(&plain, &known);
    }
    fs::write(out.join("package.py"), spack)?;
    fs::write(out.join("Containerfile"), read("Containerfile")?)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Programs that can stand for what Cargo makes: real ELF files, one of which runs.
    fn stand_ins(folder: &Path) {
        for name in ["weir", "libweir_fi.so", "libweir_bmi.so", "libweir_bsp.so"] {
            fs::copy("/bin/echo", folder.join(name)).unwrap();
        }
    }

    #[test]
    fn the_same_input_makes_the_same_packages_in_another_folder_at_another_time() {
        let paths = Paths::find();
        let built = tempfile::tempdir().unwrap();
        stand_ins(built.path());
        let origin = Origin { version: "0.1.0", commit: None, epoch: 1_700_000_000 };
        let packed: Vec<(tempfile::TempDir, Packages)> = (0..2)
            .map(|_| {
                let out = tempfile::tempdir().unwrap();
                let packages = assemble(&paths, &origin, built.path(), &out.path().join("out")).unwrap();
                (out, packages)
            })
            .collect();
        let [(_a, a), (_b, b)] = packed.as_slice() else { panic!("two") };
        assert_eq!(a.files().len(), b.files().len());
        for (one, other) in a.files().into_iter().zip(b.files()) {
            assert!(fs::read(one).unwrap() == fs::read(other).unwrap(), "{} differs", one.display());
        }
        let list = run_quiet(Command::new("tar").arg("-tvf").arg(&a.archive)).unwrap();
        for file in [
            tree::PROGRAM,
            tree::PROVIDER,
            tree::BSP,
            tree::BSP_HEADER,
            tree::BSP_PKGCONFIG,
            tree::DISSECTOR,
            "share/man/man1/weir-run.1",
            "share/man/man7/fi_weir.7",
            "share/man/man7/weir-bmi.7",
            tree::BMI[0].1,
            tree::BMI[1].1,
            tree::BMI[2].1,
            tree::BMI_MODULES[0],
            tree::BMI_MODULES[1],
            tree::SYSTEMD[0],
            tree::SYSTEMD[1],
            tree::SYSTEMD[2],
            "third-party-licences.txt",
        ] {
            assert!(list.contains(file), "{file} is missing in\n{list}");
        }
        assert!(list.lines().all(|line| line.contains(" 0/0 ") && line.contains("2023-11-14")), "{list}");
        if let Some(deb) = &a.deb {
            units_are_where_systemd_finds_them(deb);
            if run_quiet(Command::new("id").arg("-u")).unwrap().trim() == "0" {
                it_is_installed_removed_and_purged(deb);
            } else {
                println!("skipped: only root can install a package");
            }
        }
    }

    /// And nothing starts them; their options are the administrator's.
    fn units_are_where_systemd_finds_them(deb: &Path) {
        let list = run_quiet(Command::new("dpkg-deb").arg("--contents").arg(deb)).unwrap();
        for file in ["usr/lib/systemd/system/weir-xdpd.socket", "usr/lib/systemd/system/weir-xdpd.service"] {
            assert!(list.lines().any(|line| line.ends_with(&format!(" ./{file}"))), "{file} is missing in\n{list}");
        }
        assert!(list.contains(" ./etc/default/weir-xdpd") && !list.contains("share/weir/systemd"), "{list}");
        let control = |file: &str| run_quiet(Command::new("dpkg-deb").arg("--info").arg(deb).arg(file));
        assert_eq!(control("conffiles").unwrap().trim(), "/etc/default/weir-xdpd");
        assert!(!control("md5sums").unwrap().contains("etc/default"));
        for script in ["postinst", "prerm", "postrm"] {
            let text = control(script).unwrap();
            assert!(!text.contains("systemctl start"), "{script} starts something");
            assert!(text.contains("\nset -e\n") && text.contains("/run/systemd/system"), "{script}: {text}");
        }
        assert!(control("preinst").is_err());
        assert_eq!(control("triggers").unwrap().trim(), "activate-noawait ldconfig");
        let folder = tempfile::tempdir().unwrap();
        run_quiet(Command::new("dpkg-deb").arg("--extract").arg(deb).arg(folder.path())).unwrap();
        let options = fs::read_to_string(folder.path().join("etc/default/weir-xdpd")).unwrap();
        assert!(options.lines().all(|line| line.starts_with('#')), "{options}");
        let service = fs::read_to_string(folder.path().join("usr/lib/systemd/system/weir-xdpd.service")).unwrap();
        assert!(service.contains("\nEnvironmentFile=-/etc/default/weir-xdpd\n"), "{service}");
    }

    /// By dpkg itself, into a folder; scripts run with `DPKG_ROOT`, as where systemd does not.
    fn it_is_installed_removed_and_purged(deb: &Path) {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        for folder in ["var/lib/dpkg/info", "var/lib/dpkg/updates", "var/lib/dpkg/triggers"] {
            fs::create_dir_all(at(folder)).unwrap();
        }
        fs::write(at("var/lib/dpkg/status"), "").unwrap();
        let dpkg = |words: &[&str]| {
            let mut dpkg = Command::new("dpkg");
            dpkg.arg("--root").arg(root.path()).args(["--force-not-root", "--force-script-chrootless"]);
            run_quiet(dpkg.args(["--force-depends", "--force-bad-path"]).args(words))
        };
        let file = deb.display().to_string();
        let link = at("etc/systemd/system/sockets.target.wants/weir-xdpd.socket");
        let is_there = |name: &str| at(name).symlink_metadata().is_ok();
        dpkg(&["--install", &file]).unwrap();
        assert!(is_there("usr/lib/systemd/system/weir-xdpd.socket") && is_there("etc/default/weir-xdpd"));
        assert!(link.symlink_metadata().is_err(), "installing enables something");
        // The administrator enables it, as `systemctl enable` does; that and the options outlive an
        // upgrade and a removal, and end with all settings.
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink("/usr/lib/systemd/system/weir-xdpd.socket", &link).unwrap();
        fs::write(at("etc/default/weir-xdpd"), "WEIR_XDPD=\"--interface eth1\"\n").unwrap();
        for again in [["--install", &file], ["--remove", "weir"], ["--install", &file], ["--remove", "weir"]] {
            dpkg(&again).unwrap();
            assert!(link.symlink_metadata().is_ok(), "{again:?}");
            assert!(fs::read_to_string(at("etc/default/weir-xdpd")).unwrap().contains("eth1"), "{again:?}");
            assert_eq!(is_there("usr/bin/weir"), again[0] == "--install", "{again:?}");
        }
        dpkg(&["--purge", "weir"]).unwrap();
        assert!(link.symlink_metadata().is_err() && !is_there("etc/default/weir-xdpd"), "purging leaves something");
        assert!(!is_there("var/lib/systemd/deb-systemd-helper-enabled"), "purging leaves a state");
        // With systemd, and without, scripts that are told anything end well.
        for (name, words) in [
            ("postinst", &["abort-remove", "triggered"][..]),
            ("prerm", &["upgrade 1", "failed-upgrade 1", "deconfigure"]),
            ("postrm", &["upgrade 1", "failed-upgrade 1", "abort-install", "disappear x 1"]),
        ] {
            let text = run_quiet(Command::new("dpkg-deb").arg("--info").arg(deb).arg(name)).unwrap();
            let script = at(name);
            fs::write(&script, text).unwrap();
            for words in words {
                let mut sh = Command::new("sh");
                sh.arg(&script).args(words.split(' ')).env("DPKG_ROOT", root.path());
                run_quiet(sh.env("DPKG_MAINTSCRIPT_PACKAGE", "weir")).unwrap();
            }
        }
    }

    #[test]
    fn spacks_recipe_knows_the_sources() {
        let paths = Paths::find();
        let out = tempfile::tempdir().unwrap();
        let sources = out.path().join("weir-0.1.0.tar.gz");
        fs::write(&sources, "abc").unwrap();
        let packages = Packages { wheel: "w".into(), deb: None, archive: "a".into(), sources: Some(sources) };
        let origin = Origin { version: env!("CARGO_PKG_VERSION"), commit: None, epoch: 0 };
        recipe(&paths, &origin, &packages, out.path()).unwrap();
        let text = fs::read_to_string(out.path().join("package.py")).unwrap();
        // The checksum of "abc" that FIPS 180-2 gives.
        assert!(text.contains("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"), "{text}");
        run_quiet(Command::new("python3").args(["-m", "py_compile"]).arg(out.path().join("package.py"))).unwrap();
    }
}
