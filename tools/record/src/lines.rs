//! From addresses of calls to lines of the source, by `addr2line` where there is one and the
//! program has its lines.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::log::Site;

/// Addresses given to one command.
const AT_ONCE: usize = 500;

/// The names of places: `jacobi.c:75`, or program and address where the line is not known.
#[must_use]
pub fn names(sites: &BTreeSet<Site>) -> HashMap<Site, String> {
    let mut by_object: BTreeMap<&str, Vec<&Site>> = BTreeMap::new();
    for site in sites {
        by_object.entry(&site.object).or_default().push(site);
    }
    let mut out = HashMap::new();
    for (object, all) in by_object {
        for some in all.chunks(AT_ONCE) {
            let lines = asked(object, some).unwrap_or_default();
            for (at, site) in some.iter().enumerate() {
                let line = lines.get(at).and_then(|line| short(line));
                out.insert((*site).clone(), line.unwrap_or_else(|| address(site)));
            }
        }
    }
    out
}

fn file_name(path: &str) -> &str {
    Path::new(path).file_name().and_then(|name| name.to_str()).unwrap_or(path)
}

fn address(site: &Site) -> String {
    format!("{}+{:#x}", file_name(&site.object), site.offset)
}

fn asked(object: &str, sites: &[&Site]) -> Option<Vec<String>> {
    if !Path::new(object).is_file() {
        return None;
    }
    let mut command = Command::new("addr2line");
    // The address is that behind the call, which may belong to the next line.
    command.arg("-e").arg(object).args(sites.iter().map(|site| format!("{:#x}", site.offset.saturating_sub(1))));
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect())
}

/// File and line without folders. None: `??:0`.
fn short(line: &str) -> Option<String> {
    let line = line.split(" (discriminator").next().unwrap_or(line);
    let (file, number) = line.rsplit_once(':')?;
    number.parse::<u32>().ok().filter(|n| *n > 0 && !file.starts_with("??"))?;
    Some(format!("{}:{number}", file_name(file)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_short_and_unknown_ones_are_addresses() {
        assert_eq!(short("/home/me/jacobi.c:75 (discriminator 2)").unwrap(), "jacobi.c:75");
        assert_eq!(short("??:0"), None);
        assert_eq!(short("??:?"), None);
        let site = Site { object: "/nowhere/program".into(), offset: 0x12 };
        assert_eq!(names(&BTreeSet::from([site.clone()]))[&site], "program+0x12");
    }
}
