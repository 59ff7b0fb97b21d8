//! What is inside the packages: the crates, their licences and texts, as Cargo knows them. Nothing
//! is fetched for it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::licence::is_allowed;
use crate::origin::Origin;
use crate::paths::Paths;
use crate::process::run_quiet;

/// What packages are made from.
const ROOTS: [&str; 4] = ["weir", "weir-fabric", "weir-bmi", "weir-bsp"];
/// The machine they are for.
const PLATFORM: &str = "x86_64-unknown-linux-gnu";
/// How licence files begin.
const TEXTS: [&str; 6] = ["license", "licence", "copying", "notice", "unlicense", "copyright"];

/// A crate that goes into the packages, or that helps to make them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crate {
    id: String,
    /// Its name on crates.io, or in the workspace.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Its licence expression; none if its manifest has none.
    pub licence: Option<String>,
    folder: PathBuf,
    /// From this workspace.
    own: bool,
    /// Its code is in the packages: no macro that runs in the compiler, no build script's helper.
    shipped: bool,
    needs: Vec<String>,
}

/// The crates of both products, by name and version.
///
/// # Errors
/// If Cargo does not tell.
pub fn all(paths: &Paths) -> Result<Vec<Crate>> {
    let words = ["metadata", "--format-version", "1", "--locked", "--filter-platform", PLATFORM];
    let text = run_quiet(paths.cargo().args(words))?;
    let metadata: Value = serde_json::from_str(&text).context("cargo metadata says something else")?;
    from_metadata(&metadata)
}

fn from_metadata(metadata: &Value) -> Result<Vec<Crate>> {
    let packages = metadata["packages"].as_array().context("cargo metadata names no packages")?;
    let nodes = metadata["resolve"]["nodes"].as_array().context("cargo metadata resolves nothing")?;
    let by_id: BTreeMap<&str, &Value> = packages.iter().filter_map(|p| Some((p["id"].as_str()?, p))).collect();
    let needs: BTreeMap<&str, &Value> = nodes.iter().filter_map(|n| Some((n["id"].as_str()?, &n["deps"]))).collect();
    let is_root = |id: &&str| by_id[id]["name"].as_str().is_some_and(|name| ROOTS.contains(&name));
    // What runs in the compiler, and what that needs, is reached first as shipped or never.
    let mut found: BTreeMap<&str, bool> = BTreeMap::new();
    let mut open: Vec<(&str, bool)> = by_id.keys().filter(|id| is_root(id)).map(|id| (*id, true)).collect();
    while let Some((id, shipped)) = open.pop() {
        let shipped = shipped && !is_macro(by_id[id]);
        if found.get(id).is_some_and(|before| *before || !shipped) {
            continue;
        }
        found.insert(id, shipped);
        for need in needs.get(id).and_then(|deps| deps.as_array()).into_iter().flatten() {
            let kinds: BTreeSet<Option<&str>> =
                need["dep_kinds"].as_array().into_iter().flatten().map(|kind| kind["kind"].as_str()).collect();
            let Some((on, _)) = need["pkg"].as_str().and_then(|on| by_id.get_key_value(on)) else { continue };
            if kinds.contains(&None) {
                open.push((on, shipped));
            } else if kinds.contains(&Some("build")) {
                open.push((on, false));
            }
        }
    }
    let mut crates = Vec::new();
    for (id, shipped) in &found {
        let normal =
            |need: &Value| need["dep_kinds"].as_array().is_some_and(|kinds| kinds.iter().any(|k| k["kind"].is_null()));
        let needs = needs.get(id).and_then(|deps| deps.as_array()).into_iter().flatten().filter(|need| normal(need));
        let needs = needs.filter_map(|need| need["pkg"].as_str()).filter(|on| found.get(on) == Some(&true));
        crates.push(one(by_id[id], *shipped, needs.map(str::to_owned).collect())?);
    }
    crates.sort_by(|a, b| (&a.name, &a.version).cmp(&(&b.name, &b.version)));
    Ok(crates)
}

fn is_macro(package: &Value) -> bool {
    let kinds = package["targets"].as_array().into_iter().flatten().filter_map(|target| target["kind"].as_array());
    kinds.flatten().any(|kind| kind == "proc-macro")
}

fn one(package: &Value, shipped: bool, needs: Vec<String>) -> Result<Crate> {
    let text = |key: &str| package[key].as_str().map(str::to_owned);
    let manifest = PathBuf::from(text("manifest_path").context("a crate without a manifest")?);
    Ok(Crate {
        id: text("id").context("a crate without an id")?,
        name: text("name").context("a crate without a name")?,
        version: text("version").context("a crate without a version")?,
        licence: text("license"),
        folder: manifest.parent().context("a manifest in no folder")?.to_owned(),
        own: package["source"].is_null(),
        shipped,
        needs,
    })
}

/// What is wrong with the licences, a line each; also of crates that only help to build.
pub fn complaints(crates: &[Crate]) -> Vec<String> {
    let wrong = |one: &Crate| {
        let which = format!("{} {}", one.name, one.version);
        match &one.licence {
            None => Some(format!("{which} says no licence")),
            Some(expression) => match is_allowed(expression) {
                Ok(true) => None,
                Ok(false) => Some(format!(
                    "{which} is under {expression}, which is not among the allowed (xtask/src/packages/licence.rs)"
                )),
                Err(cause) => Some(format!("{which}: {cause}")),
            },
        }
    };
    crates.iter().filter_map(wrong).collect()
}

/// The texts of all licences of what is shipped, each once, under the names of the crates that came
/// with it.
///
/// # Errors
/// If a text cannot be read.
pub fn licence_texts(crates: &[Crate]) -> Result<String> {
    let mut texts: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut without = Vec::new();
    for one in crates.iter().filter(|one| one.shipped && !one.own) {
        let mut files = Vec::new();
        find_texts(&one.folder, 4, &mut files).with_context(|| format!("cannot look into {}", one.folder.display()))?;
        if files.is_empty() {
            without.push(one);
        }
        for file in files {
            let bytes = fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
            let text = String::from_utf8_lossy(&bytes).replace("\r\n", "\n").trim_matches('\n').to_owned();
            texts.entry(text).or_default().insert(format!("{} {}", one.name, one.version));
        }
    }
    let mut all: Vec<(BTreeSet<String>, String)> = texts.into_iter().map(|(text, of)| (of, text)).collect();
    all.sort();
    let mut out =
        "Weir contains code of the crates below, under these licences; where a crate offers several, any of them.\n\n"
            .to_owned();
    for one in crates.iter().filter(|one| one.shipped && !one.own) {
        out += &format!("{} {}: {}\n", one.name, one.version, one.licence.as_deref().unwrap_or("none told"));
    }
    for one in without {
        out += &format!(
            "\n{} {} comes without a licence file; its manifest names the licence above.\n",
            one.name, one.version
        );
    }
    for (of, text) in all {
        let names: Vec<&str> = of.iter().map(String::as_str).collect();
        out += &format!("\n{}\n{}\n\n{text}\n", "=".repeat(100), names.join(", "));
    }
    Ok(out)
}

/// Files that are named like licences, also in folders of what a crate brought in from elsewhere
/// (fonts, other people's C).
fn find_texts(folder: &Path, depth: usize, files: &mut Vec<PathBuf>) -> Result<()> {
    let mut entries: Vec<PathBuf> = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    entries.sort();
    for path in entries {
        let name = path.file_name().map(|name| name.to_string_lossy().to_ascii_lowercase()).unwrap_or_default();
        let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
        if path.is_dir() {
            if depth > 1 {
                find_texts(&path, depth - 1, files)?;
            }
        } else if TEXTS.iter().any(|begin| name.starts_with(begin))
            && !["rs", "c", "h", "py", "toml"].contains(&extension)
        {
            files.push(path);
        }
    }
    Ok(())
}

/// The bill of materials, CycloneDX 1.5 in JSON: every crate whose code is in the packages, with
/// its licence, its checksum on crates.io, and what it needs.
///
/// # Errors
/// If `Cargo.lock` cannot be read.
pub fn bill_of_materials(paths: &Paths, origin: &Origin, crates: &[Crate]) -> Result<String> {
    let lock: toml::Table = fs::read_to_string(paths.root.join("Cargo.lock"))?.parse()?;
    let locked = lock.get("package").and_then(toml::Value::as_array).context("Cargo.lock locks no packages")?;
    let text = |entry: &toml::Value, key: &str| entry.get(key).and_then(toml::Value::as_str).map(str::to_owned);
    let sums: BTreeMap<_, _> =
        locked.iter().filter_map(|e| Some(((text(e, "name")?, text(e, "version")?), text(e, "checksum")?))).collect();
    let shipped: Vec<&Crate> = crates.iter().filter(|one| one.shipped).collect();
    let reference = |one: &Crate| format!("pkg:cargo/{}@{}", one.name, one.version);
    let by_id: BTreeMap<&str, &Crate> = shipped.iter().map(|one| (one.id.as_str(), *one)).collect();
    let components = shipped.iter().map(|one| {
        let mut component = json!({"type": "library", "bom-ref": reference(one), "name": one.name, "version": one.version, "purl": reference(one)});
        if let Some(licence) = &one.licence {
            component["licenses"] = json!([{"expression": licence.replace('/', " OR ").replace("  ", " ")}]);
        }
        if let Some(sum) = sums.get(&(one.name.clone(), one.version.clone())) {
            component["hashes"] = json!([{"alg": "SHA-256", "content": sum}]);
        }
        component
    });
    let needs = shipped.iter().map(|one| {
        let on: BTreeSet<String> =
            one.needs.iter().filter_map(|id| by_id.get(id.as_str())).map(|on| reference(on)).collect();
        json!({"ref": reference(one), "dependsOn": on})
    });
    let roots: Vec<String> =
        shipped.iter().filter(|one| ROOTS.contains(&one.name.as_str())).map(|one| reference(one)).collect();
    let mut needs: Vec<Value> = needs.collect();
    needs.push(json!({"ref": "weir-package", "dependsOn": roots}));
    let version = format!("{}{}", origin.version, origin.commit.as_ref().map(|c| format!("+{c}")).unwrap_or_default());
    let bom = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": {"type": "application", "bom-ref": "weir-package", "name": "weir", "version": version, "licenses": [{"expression": "Apache-2.0 OR MIT"}]},
            "properties": [{"name": "SOURCE_DATE_EPOCH", "value": origin.epoch.to_string()}],
        },
        "components": components.collect::<Vec<_>>(),
        "dependencies": needs,
    });
    Ok(serde_json::to_string_pretty(&bom)? + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(licence_of_ring: &str) -> Value {
        let package = |name: &str, licence: &str, kind: &str, source: Value| {
            json!({"id": name, "name": name, "version": "1.0.0", "license": licence, "manifest_path": format!("/src/{name}/Cargo.toml"),
                   "source": source, "targets": [{"kind": [kind]}]})
        };
        let on = |name: &str, kind: Value| json!({"pkg": name, "dep_kinds": [{"kind": kind}]});
        json!({
            "packages": [
                package("weir", "MIT", "bin", Value::Null),
                package("weir-fabric", "MIT", "cdylib", Value::Null),
                package("weir-bmi", "MIT", "cdylib", Value::Null),
                package("ring", licence_of_ring, "lib", json!("registry")),
                package("derive", "MIT", "proc-macro", json!("registry")),
                package("syn", "MIT", "lib", json!("registry")),
                package("cc", "MIT", "lib", json!("registry")),
                package("proptest", "GPL-3.0", "lib", json!("registry")),
            ],
            "resolve": {"nodes": [
                {"id": "weir", "deps": [on("derive", Value::Null), on("proptest", json!("dev"))]},
                {"id": "weir-fabric", "deps": [on("ring", Value::Null)]},
                {"id": "weir-bmi", "deps": []},
                {"id": "ring", "deps": [on("cc", json!("build"))]},
                {"id": "derive", "deps": [on("syn", Value::Null)]},
            ]},
        })
    }

    #[test]
    fn what_is_shipped_is_told_from_what_helps_to_build_and_tests_are_neither() {
        let crates = from_metadata(&metadata("ISC")).unwrap();
        let of =
            |shipped: bool| crates.iter().filter(|c| c.shipped == shipped).map(|c| c.name.as_str()).collect::<Vec<_>>();
        assert_eq!(of(true), ["ring", "weir", "weir-bmi", "weir-fabric"]);
        assert_eq!(of(false), ["cc", "derive", "syn"]);
        assert_eq!(complaints(&crates), Vec::<String>::new());
        let crates = from_metadata(&metadata("GPL-3.0")).unwrap();
        let told = complaints(&crates);
        assert!(told.len() == 1 && told[0].starts_with("ring 1.0.0 is under GPL-3.0"), "{told:?}");
    }

    #[test]
    fn texts_are_told_once_with_all_their_crates_also_those_in_folders() {
        let folder = tempfile::tempdir().unwrap();
        let of = |name: &str, files: &[(&str, &str)]| {
            for (file, text) in files {
                let file = folder.path().join(name).join(file);
                fs::create_dir_all(file.parent().unwrap()).unwrap();
                fs::write(file, text).unwrap();
            }
            fs::create_dir_all(folder.path().join(name)).unwrap();
            let text = |text: &str| text.to_owned();
            Crate {
                id: text(name),
                name: text(name),
                version: text("1"),
                licence: Some(text("MIT")),
                folder: folder.path().join(name),
                own: false,
                shipped: true,
                needs: vec![],
            }
        };
        let crates = [
            of("a", &[("LICENSE-MIT", "take it\r\n"), ("src/license.rs", "no text")]),
            of("b", &[("LICENCE", "take it\n"), ("fonts/LICENSE_OFL.txt", "fonts too")]),
            of("c", &[]),
        ];
        let text = licence_texts(&crates).unwrap();
        assert_eq!(text.matches("take it").count(), 1);
        assert!(text.contains("\na 1, b 1\n\ntake it\n") && text.contains("\nb 1\n\nfonts too\n"), "{text}");
        assert!(text.contains("c 1 comes without a licence file") && !text.contains("no text"), "{text}");
    }
}
