//! The layers: a crate may use only crates of lower layers (ARCHITECTURE.md).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

/// A crate's layer, 0 being the lowest; none for a folder that is not a crate.
fn layer_of(folder: &str) -> Option<u32> {
    let (top, name) = folder.split_once('/').unwrap_or((folder, ""));
    match (top, name) {
        ("core", "crc") => Some(0),
        ("core", "wire" | "clock" | "stats" | "net" | "collective" | "superstep" | "annotations") => Some(1),
        ("core", "session" | "match" | "predict") => Some(2),
        // Carriers: they pull from sessions. Packets also carry what the two ends of a bulk TCP
        // connection say to each other.
        ("core", "bulk") => Some(3),
        ("core", "link") => Some(4),
        ("core", "message" | "bulk-driver") => Some(5),
        // The simulator runs what ships, so it stands on their heads.
        ("core", "sim") => Some(6),
        // What `job` needs of the system and of PMIx beyond safe calls.
        ("job", "sys") => Some(6),
        ("transports" | "job", _) => Some(7),
        ("engine", _) => Some(8),
        ("faces", _) => Some(9),
        ("tools", "put" | "xdpd") => Some(9),
        ("tools", "emulate" | "distribution" | "mpi") => Some(10),
        ("tools", "bench" | "report" | "annotate" | "record") => Some(11),
        ("tools", "scene") => Some(12),
        ("tools", "predict" | "ping" | "bsp") => Some(13),
        ("tools", _) => Some(14),
        ("xtask" | "fuzz" | "tests", _) => Some(15),
        _ => None,
    }
}

/// A dependency that goes up, or sideways in one layer.
#[derive(Debug, PartialEq, Eq)]
pub struct Upward {
    /// The crate that depends.
    pub from: String,
    /// The crate it depends on.
    pub on: String,
}

/// Reads the manifests of all workspace members and returns the dependencies that break the rule.
///
/// Test-only dependencies may go up: a test may look at a crate from above.
///
/// # Errors
/// If a manifest cannot be read, or a member is in no known layer.
pub fn upward(root: &Path) -> Result<Vec<Upward>> {
    let workspace = read(&root.join("Cargo.toml"))?;
    let members = workspace["workspace"]["members"].as_array().context("the workspace names no members")?;
    let folders: Vec<&str> = members.iter().filter_map(toml::Value::as_str).collect();
    let mut names = BTreeMap::new();
    let mut manifests = Vec::new();
    for folder in &folders {
        let manifest = read(&root.join(folder).join("Cargo.toml"))?;
        let name = manifest["package"]["name"].as_str().context("a package without a name")?.to_owned();
        names.insert(name, *folder);
        manifests.push((*folder, manifest));
    }
    let mut found = Vec::new();
    for (folder, manifest) in &manifests {
        let Some(layer) = layer_of(folder) else { bail!("{folder} is in no layer") };
        for on in dependencies(manifest).iter().filter_map(|name| names.get(name)) {
            if layer_of(on).is_none_or(|lower| lower >= layer) {
                found.push(Upward { from: (*folder).to_owned(), on: (*on).to_owned() });
            }
        }
    }
    Ok(found)
}

/// Crates whose modules may form no circle.
const WITHOUT_CIRCLES: [&str; 19] = [
    "core/bulk",
    "core/bulk-driver",
    "core/collective",
    "core/link",
    "core/match",
    "core/message",
    "core/net",
    "core/session",
    "core/stats",
    "core/superstep",
    "transports/capture",
    "transports/sctp",
    "transports/shm",
    "transports/tcp",
    "transports/udp",
    "transports/xdp",
    "engine",
    "job",
    "tools/report",
];

/// The circles of `use crate::` lines between modules of crates that may have none, each as its
/// modules in order, the first one twice.
///
/// # Errors
/// If a file cannot be read.
pub fn circles(root: &Path) -> Result<Vec<String>> {
    circles_of(root, &WITHOUT_CIRCLES)
}

fn circles_of(root: &Path, folders: &[&str]) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for folder in folders {
        let src = root.join(folder).join("src");
        let mut uses: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (module, text) in modules(&src, &src)? {
            uses.entry(module.clone()).or_default().extend(used_modules(&text).filter(|on| *on != module));
        }
        found.extend(circle_of(&uses).map(|circle| format!("{folder}: {}", circle.join(" -> "))));
    }
    Ok(found)
}

/// The text of each module, submodules as parts of theirs; not the crate's root, which knows them
/// all, and no tests, which may look around.
fn modules(src: &Path, dir: &Path) -> Result<Vec<(String, String)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))? {
        let path = entry?.path();
        if path.file_stem().is_some_and(|name| name == "tests") {
            continue;
        }
        if path.is_dir() {
            found.extend(modules(src, &path)?);
            continue;
        }
        let relative = path.strip_prefix(src).unwrap_or(&path).with_extension("");
        let first = relative.iter().next().map(|name| name.to_string_lossy().into_owned());
        let Some(module) = first.filter(|m| m != "lib" && path.extension().is_some_and(|e| e == "rs")) else {
            continue;
        };
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        found.push((module, text));
    }
    Ok(found)
}

/// The modules that `crate::` paths outside of comments and tests name, alone or in braces. Tests
/// stand last in a file.
fn used_modules(text: &str) -> impl Iterator<Item = String> {
    let code = text.split("#[cfg(test)]\nmod ").next().unwrap_or(text);
    let lines: Vec<&str> = code.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    let paths: Vec<String> = lines.join("\n").split("crate::").skip(1).flat_map(first_names).collect();
    paths.into_iter()
}

/// The first names of a path, of which there are several where it begins with a brace.
fn first_names(path: &str) -> Vec<String> {
    let name = |item: &str| item.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    let Some(group) = path.strip_prefix('{') else { return vec![name(path)] };
    let (mut depth, mut names, mut from) = (0u32, Vec::new(), 0);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ',' if depth > 0 => {}
            ',' | '}' => {
                names.push(name(&group[from..at]));
                from = at + 1;
                if c == '}' {
                    break;
                }
            }
            _ => {}
        }
    }
    names
}

/// A circle, if there is one.
fn circle_of(uses: &BTreeMap<String, BTreeSet<String>>) -> Option<Vec<String>> {
    fn visit<'a>(
        module: &'a str,
        uses: &'a BTreeMap<String, BTreeSet<String>>,
        way: &mut Vec<&'a str>,
        clean: &mut BTreeSet<&'a str>,
    ) -> Option<Vec<String>> {
        if let Some(at) = way.iter().position(|m| *m == module) {
            return Some(way[at..].iter().chain([&module]).map(|m| (*m).to_owned()).collect());
        }
        if clean.contains(module) {
            return None;
        }
        way.push(module);
        let circle = uses.get(module).into_iter().flatten().find_map(|on| visit(on, uses, way, clean));
        way.pop();
        clean.insert(module);
        circle
    }
    let mut clean = BTreeSet::new();
    uses.keys().find_map(|module| visit(module, uses, &mut Vec::new(), &mut clean))
}

/// The direct dependencies of the workspace's members, tests' and fuzz targets' too, for which
/// `ARCHITECTURE.md` gives no reason.
///
/// # Errors
/// If a file cannot be read.
pub fn without_reason(root: &Path) -> Result<Vec<String>> {
    let text = fs::read_to_string(root.join("ARCHITECTURE.md")).context("cannot read ARCHITECTURE.md")?;
    let table = text.split("## Dependencies").nth(1).context("ARCHITECTURE.md has no table of dependencies")?;
    let cells = table.lines().filter_map(|line| line.strip_prefix('|')?.split('|').next());
    let told: BTreeSet<&str> = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect();
    let workspace = read(&root.join("Cargo.toml"))?;
    let members = workspace["workspace"]["members"].as_array().context("the workspace names no members")?;
    let mut missing = BTreeSet::new();
    for folder in members.iter().filter_map(toml::Value::as_str) {
        let manifest = read(&root.join(folder).join("Cargo.toml"))?;
        let tests = manifest.get("dev-dependencies").and_then(toml::Value::as_table).into_iter().flatten();
        let all = dependencies(&manifest).into_iter().chain(tests.map(package));
        missing.extend(all.filter(|name| !name.starts_with("weir-") && !told.contains(name.as_str())));
    }
    Ok(missing.into_iter().collect())
}

/// The package that an entry of a table of dependencies names.
fn package((name, value): (&String, &toml::Value)) -> String {
    value.get("package").and_then(toml::Value::as_str).unwrap_or(name).to_owned()
}

fn read(path: &Path) -> Result<toml::Table> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    text.parse().with_context(|| path.display().to_string())
}

/// The package names in `[dependencies]`, `[build-dependencies]` and their platform-specific kin.
fn dependencies(manifest: &toml::Table) -> Vec<String> {
    let mut tables = vec![manifest.get("dependencies"), manifest.get("build-dependencies")];
    for target in manifest.get("target").and_then(toml::Value::as_table).into_iter().flat_map(|t| t.values()) {
        tables.extend([target.get("dependencies"), target.get("build-dependencies")]);
    }
    let entries = tables.into_iter().flatten().filter_map(toml::Value::as_table).flatten();
    entries.map(package).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_dependency_goes_up() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        assert_eq!(upward(root).unwrap(), []);
    }

    #[test]
    fn no_modules_form_a_circle() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        assert_eq!(circles(root).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn a_circle_of_modules_is_found_and_tests_may_look_around() {
        let dir = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| {
            let file = dir.path().join("core/message/src").join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        };
        write("lib.rs", "pub use crate::high::High;");
        write("low.rs", "// crate::high\nstruct Low;\n#[cfg(test)]\nmod tests {\n    use crate::high::High;\n}");
        write("low/tests.rs", "use crate::high::High;");
        write("high.rs", "use crate::middle::Middle;\nuse crate::low::Low;");
        write("middle.rs", "use crate::low::Low;");
        assert_eq!(circles_of(dir.path(), &["core/message"]).unwrap(), Vec::<String>::new());
        write("low/part.rs", "fn f() -> crate::high::High;");
        assert_eq!(circles_of(dir.path(), &["core/message"]).unwrap(), ["core/message: high -> low -> high"]);
        write("low/part.rs", "use crate::{\n    far::{high, other},\n    middle,\n};");
        assert_eq!(circles_of(dir.path(), &["core/message"]).unwrap(), ["core/message: low -> middle -> low"]);
    }

    #[test]
    fn each_dependency_has_its_reason() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        assert_eq!(without_reason(root).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn a_dependency_without_a_reason_is_found() {
        let dir = workspace(
            "[dependencies]\nring = \"1\"\nother = { package = \"crc\", version = \"1\" }\n[dev-dependencies]\ninsta = \"1\"",
        );
        let page =
            "Uses `insta`.\n## Dependencies\n| crate | why |\n|---|---|\n| `ring` and `hex` | better than `crc` |\n";
        fs::write(dir.path().join("ARCHITECTURE.md"), page).unwrap();
        assert_eq!(without_reason(dir.path()).unwrap(), ["crc", "insta"]);
    }

    fn workspace(link_depends_on: &str) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| {
            let file = dir.path().join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        };
        write("Cargo.toml", "[workspace]\nmembers = [\"core/link\", \"engine\", \"core/wire\"]");
        write("core/wire/Cargo.toml", "[package]\nname = \"weir-wire\"");
        write(
            "engine/Cargo.toml",
            "[package]\nname = \"weir-engine\"\n[dependencies]\nweir-wire = \"1\"\n[dev-dependencies]\nweir-link = \"1\"",
        );
        write("core/link/Cargo.toml", &format!("[package]\nname = \"weir-link\"\n{link_depends_on}"));
        dir
    }

    #[test]
    fn an_upward_dependency_is_found_however_it_is_written() {
        let want = [Upward { from: "core/link".into(), on: "engine".into() }];
        for text in [
            "[dependencies]\nweir-engine = \"1\"",
            "[dependencies]\nsneaky = { package = \"weir-engine\", version = \"1\" }",
            "[target.'cfg(unix)'.dependencies]\nweir-engine = { workspace = true }",
            "[build-dependencies]\nweir-engine = \"1\"",
        ] {
            assert_eq!(upward(workspace(text).path()).unwrap(), want, "{text}");
        }
        assert_eq!(upward(workspace("[dependencies]\nweir-wire = \"1\"").path()).unwrap(), []);
    }
}
