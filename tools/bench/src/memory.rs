//! How much memory this process may still take: what the node has, or what its control groups
//! leave, whichever is less.

use std::fs;
use std::path::Path;

/// Memory that can still be had, bytes, if the kernel tells.
#[must_use]
pub fn available_bytes() -> Option<u64> {
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    least(of_node(&meminfo), of_groups(Path::new("/sys/fs/cgroup"), &groups))
}

fn least(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    a.into_iter().chain(b).min()
}

/// `MemAvailable` of `/proc/meminfo`.
fn of_node(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// What the control groups of `/proc/self/cgroup`, mounted at `root`, leave (cgroups(7): version 2
/// has one hierarchy, version 1 one for memory). Every group up to the root may have a limit.
fn of_groups(root: &Path, groups: &str) -> Option<u64> {
    let mut all = None;
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next()) else { continue };
        let (mount, names) = match controllers {
            "" => (root.to_owned(), ["memory.max", "memory.current", "inactive_file "]),
            // Version 1 counts what is below a group in its own file.
            list if list.split(',').any(|one| one == "memory") => {
                (root.join("memory"), ["memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "])
            }
            _ => continue,
        };
        // In a container the path may be that of the host, and nothing be there: then the mount is
        // the container's own group.
        let below = path.trim_start_matches('/');
        let mut folder = mount.join(below);
        if below.split('/').any(|part| part == "..") || !folder.is_dir() {
            folder.clone_from(&mount);
        }
        for folder in folder.ancestors().take_while(|folder| folder.starts_with(&mount)) {
            all = least(all, of_group(folder, names));
        }
    }
    all
}

/// The limit of one group less what is used and cannot be taken back.
fn of_group(folder: &Path, [limit, used, reclaimable]: [&str; 3]) -> Option<u64> {
    let number = |name: &str| fs::read_to_string(folder.join(name)).ok()?.trim().parse::<u64>().ok();
    // `max` is no number: no limit.
    let limit = number(limit)?;
    let stat = fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
    let cached = stat.lines().find_map(|line| line.strip_prefix(reclaimable)?.trim().parse::<u64>().ok());
    let used = number(used)?.saturating_sub(cached.unwrap_or(0));
    Some(limit.saturating_sub(used))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(root: &Path, path: &str, files: &[(&str, &str)]) {
        let folder = root.join(path);
        fs::create_dir_all(&folder).unwrap();
        files.iter().for_each(|(name, text)| fs::write(folder.join(name), text).unwrap());
    }

    #[test]
    fn the_narrowest_group_above_a_process_counts() {
        let root = tempfile::tempdir().unwrap();
        group(
            root.path(),
            "job",
            &[("memory.max", "1000\n"), ("memory.current", "700\n"), ("memory.stat", "anon 1\ninactive_file 300\n")],
        );
        group(root.path(), "job/step", &[("memory.max", "max\n"), ("memory.current", "700\n")]);
        assert_eq!(of_groups(root.path(), "0::/job/step\n"), Some(600));
        group(root.path(), "job/step", &[("memory.max", "720\n")]);
        assert_eq!(of_groups(root.path(), "0::/job/step\n"), Some(20));
        assert_eq!(of_groups(root.path(), "0::/\n"), None);
    }

    #[test]
    fn version_1_and_containers_are_understood() {
        let root = tempfile::tempdir().unwrap();
        let files = [("memory.limit_in_bytes", "5000"), ("memory.usage_in_bytes", "1000")];
        group(root.path(), "memory", &files);
        let groups = "12:cpu,cpuacct:/a\n5:memory:/docker/of-the-host\n0::/x\n";
        assert_eq!(of_groups(root.path(), groups), Some(4000));
        assert_eq!(of_groups(root.path(), "nonsense"), None);
    }

    #[test]
    fn the_lesser_of_node_and_groups_is_what_there_is() {
        assert_eq!(of_node("MemTotal: 9 kB\nMemAvailable:   8 kB\n"), Some(8192));
        assert_eq!((least(Some(3), Some(2)), least(None, Some(2)), least(None, None)), (Some(2), Some(2), None));
        assert!(available_bytes().is_some());
    }
}
