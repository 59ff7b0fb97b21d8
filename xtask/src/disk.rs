//! Room on the disk. A linker that finds none dies of a bus error and names no cause, so the tests
//! say how much there is.

use std::path::Path;

/// What all builds and environments of `cargo xtask test` may take together, in bytes, with debug
/// information as people build.
const NEEDED: u64 = 12 << 30;

/// Bytes that an ordinary user can still write where `folder` is, if the system tells.
fn free(folder: &Path) -> Option<u64> {
    let there = folder.ancestors().find(|folder| folder.exists())?;
    let stat = rustix::fs::statvfs(there).ok()?;
    Some(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// A line that says how much room there is, and whether that is little for all the tests.
pub fn room(folder: &Path, needed: u64) -> String {
    let Some(free) = free(folder) else { return "disk: no figure to be had".to_owned() };
    let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    let little = if free < needed {
        format!("; the tests may need {:.0} GiB, and a linker without room dies of a bus error", gib(needed))
    } else {
        String::new()
    };
    format!("disk: {:.1} GiB free at {}{little}", gib(free), folder.display())
}

/// The same before anything is built.
pub fn room_for_all(folder: &Path) -> String {
    room(folder, if folder.join("debug").exists() { 0 } else { NEEDED })
}

/// What `folder` held is not needed again on a machine that runs the tests once (`CI` is set
/// there); people keep it, to build faster.
pub fn done_with(folder: &Path) {
    if std::env::var_os("CI").is_some_and(|value| !value.is_empty()) {
        // What stays only takes room, and the next line of the tests tells how much is left.
        let _ = std::fs::remove_dir_all(folder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_room_is_told() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        assert!(!room(here, 0).contains("may need"), "{}", room(here, 0));
        assert!(room(&here.join("not/there/yet"), u64::MAX).contains("bus error"));
    }
}
