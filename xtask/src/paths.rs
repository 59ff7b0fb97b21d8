//! Where things are: the project, its build results, and what the chores make.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The folders the chores work with.
#[derive(Clone, Debug)]
pub struct Paths {
    /// The project's root, where the workspace's `Cargo.toml` is.
    pub root: PathBuf,
    /// Cargo's target folder.
    pub target: PathBuf,
    /// What holds that which a user installs, in the target folder: [`Paths::BUILT`], or
    /// [`Paths::TESTED`].
    pub made: &'static str,
}

impl Paths {
    /// What `xtask build` makes.
    pub const BUILT: &'static str = "weir";
    /// What `xtask test` makes: with the command of the tests, which is compiled already.
    pub const TESTED: &'static str = "tested";

    /// Finds the folders from where this program was built and from `CARGO_TARGET_DIR`.
    pub fn find() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."));
        let target = std::env::var_os("CARGO_TARGET_DIR")
            .filter(|dir| !dir.is_empty())
            .map_or_else(|| root.join("target"), |dir| root.join(dir));
        Self { root: root.to_owned(), target, made: Self::BUILT }
    }

    /// The same, but for what `xtask test` makes.
    pub fn tested(&self) -> Self {
        Self { made: Self::TESTED, ..self.clone() }
    }

    /// Where that is which a user installs: `bin/weir`, `lib/libweir-fi.so`.
    pub fn dist(&self) -> PathBuf {
        self.target.join(self.made)
    }

    /// The folder libfabric is pointed at. libfabric loads every file there whose name ends in
    /// `fi.so`.
    pub fn provider_dir(&self) -> PathBuf {
        self.dist().join("lib")
    }

    /// The provider, once built.
    pub fn provider(&self) -> PathBuf {
        self.provider_dir().join("libweir-fi.so")
    }

    /// The command, once built.
    pub fn command(&self) -> PathBuf {
        self.dist().join("bin/weir")
    }

    /// BMI's library, once built.
    pub fn bmi(&self) -> PathBuf {
        self.provider_dir().join("libweir-bmi.so")
    }

    /// The virtual environments and the compiled test programs.
    pub fn mpi(&self) -> PathBuf {
        self.target.join("mpi")
    }

    /// The sources of the MPI test programs.
    pub fn mpi_sources(&self) -> PathBuf {
        self.root.join("tests/mpi")
    }

    /// Cargo at the project's root, building into [`Paths::target`].
    ///
    /// Cargo tells a program that it runs which package it belongs to; build scripts that look at
    /// these variables would run again, had a Cargo below it the same.
    pub fn cargo(&self) -> Command {
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.current_dir(&self.root).env("CARGO_TARGET_DIR", &self.target).env("CARGO_TERM_COLOR", "never");
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_PRIMARY_"].iter().any(|p| text.starts_with(p)) {
                command.env_remove(name);
            }
        }
        command
    }

    /// The compiler that Cargo uses.
    pub fn rustc(&self) -> Command {
        let mut command = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
        command.current_dir(&self.root);
        command
    }
}
