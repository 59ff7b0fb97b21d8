//! MPI libraries that do nothing, compiled by the C compiler that Rust links with.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles `mpi.c` for an ABI into `folder`, with this SONAME and these arguments; returns the
/// library.
pub fn compile(folder: &Path, soname: &str, abi: u32, arguments: &[&str]) -> PathBuf {
    std::fs::create_dir_all(folder).unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fake/mpi.c");
    let library = folder.join(soname);
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-shared", "-fPIC", "-w", &format!("-DABI={abi}"), &format!("-Wl,-soname,{soname}"), "-o"]);
    let made = cc.arg(&library).arg(source).args(arguments).status().expect("cc, which Rust needs too");
    assert!(made.success(), "cc: {made}");
    library
}
