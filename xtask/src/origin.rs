//! Which version this is, and of which commit and day: what packages are named after and stamped
//! with.

use std::fs;
use std::process::Command;
use std::time::UNIX_EPOCH;

use crate::paths::Paths;
use crate::process::run_quiet;

/// A version of the project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// As the workspace's manifest has it.
    pub version: &'static str,
    /// The first digits of the commit, with `-changed` behind it where files differ from it; none
    /// outside of git, as in an unpacked archive.
    pub commit: Option<String>,
    /// What everything in packages is dated by, seconds since 1970: `SOURCE_DATE_EPOCH`, else the
    /// commit's time, else that of `Cargo.lock` (archives keep times).
    pub epoch: u64,
}

impl Origin {
    /// Finds out. `WEIR_COMMIT`, where it is set, names the commit: who builds from an archive may
    /// know it.
    pub fn find(paths: &Paths) -> Self {
        let told = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
        let of_commit = || git(paths, &["log", "-1", "--format=%ct"])?.parse().ok();
        let of_file = || {
            let modified = fs::metadata(paths.root.join("Cargo.lock")).and_then(|meta| meta.modified()).ok()?;
            Some(modified.duration_since(UNIX_EPOCH).ok()?.as_secs())
        };
        Self {
            version: env!("CARGO_PKG_VERSION"),
            commit: told("WEIR_COMMIT").or_else(|| commit(paths)),
            epoch: told("SOURCE_DATE_EPOCH")
                .and_then(|text| text.parse().ok())
                .or_else(of_commit)
                .or_else(of_file)
                .unwrap_or(0),
        }
    }

    /// What `option_env!("WEIR_COMMIT")` shall see; empty is the same as none.
    pub fn commit_or_nothing(&self) -> &str {
        self.commit.as_deref().unwrap_or_default()
    }
}

fn commit(paths: &Paths) -> Option<String> {
    let commit = git(paths, &["rev-parse", "--short=12", "HEAD"])?;
    let changed = git(paths, &["status", "--porcelain", "--untracked-files=no"]).is_none_or(|text| !text.is_empty());
    Some(if changed { format!("{commit}-changed") } else { commit })
}

/// What git says, if the project's folder is the top of a repository. An archive that was unpacked
/// somewhere within another repository is none of its commits.
fn git(paths: &Paths, words: &[&str]) -> Option<String> {
    let ask = |words: &[&str]| run_quiet(Command::new("git").arg("-C").arg(&paths.root).args(words)).ok();
    let prefix = ask(&["rev-parse", "--show-prefix"])?;
    if !prefix.trim().is_empty() {
        return None;
    }
    ask(words).map(|text| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(folder: &std::path::Path, script: &str) {
        let who = "export GIT_CONFIG_GLOBAL=/dev/null GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b \
                   GIT_AUTHOR_DATE='1000000000 +0000' GIT_COMMITTER_DATE='1000000000 +0000'; ";
        run_quiet(Command::new("sh").args(["-ec", &format!("{who}{script}")]).current_dir(folder)).unwrap();
    }

    #[test]
    fn a_commit_is_told_with_its_time_and_changes_but_only_of_the_projects_own_repository() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().to_owned();
        let paths = Paths { target: root.join("target"), root: root.clone(), made: Paths::BUILT };
        fs::write(root.join("Cargo.lock"), "one").unwrap();
        assert_eq!(commit(&paths), None, "no repository");
        run(&root, "git init -q; git add Cargo.lock; git commit -qm one; mkdir unpacked");
        let clean = commit(&paths).unwrap();
        assert!(clean.len() == 12 && clean.chars().all(|c| c.is_ascii_hexdigit()), "{clean}");
        assert_eq!(git(&paths, &["log", "-1", "--format=%ct"]).unwrap(), "1000000000");
        fs::write(root.join("Cargo.lock"), "other").unwrap();
        assert_eq!(commit(&paths).unwrap(), format!("{clean}-changed"));
        let inner = Paths { root: root.join("unpacked"), target: root.join("unpacked/target"), made: Paths::BUILT };
        assert_eq!(commit(&inner), None, "an archive unpacked in somebody's repository");
    }
}
