//! Requirements of the specifications and the tests that cite them.
//!
//! A requirement is a line `- **P-4.12** ...` of `spec/protocol.md` or `- **L-5.4** ...` of
//! `spec/bulk.md`. A test that shows it has a comment line `// spec: P-4.12` above it. What no test
//! cites stands in `docs/uncited.md`, and the list may only get shorter.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

/// The texts, and the letter of their requirements.
const TEXTS: [(&str, char); 2] = [("spec/protocol.md", 'P'), ("spec/bulk.md", 'L')];
/// Where the list of those that nobody cites is.
const UNCITED: &str = "docs/uncited.md";
/// How many there may be. Lower it when tests are added; never raise it.
const UNCITED_MAX: usize = 13;
/// Folders with tests.
const CODE: [&str; 8] = ["core", "engine", "faces", "fuzz", "job", "tools", "transports", "xtask/src"];
/// A paragraph has five lines of a hundred characters at most.
const PARAGRAPH_MAX: usize = 500;
/// What makes a sentence a requirement.
const KEYWORDS: [&str; 3] = ["MUST", "SHOULD", "MAY"];

/// A requirement's number: letter, section, place in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Id(char, u32, u32);

impl Id {
    /// Reads `P-4.12`.
    fn read(text: &str) -> Option<Id> {
        let (letter, rest) = text.split_once('-')?;
        let (section, place) = rest.split_once('.')?;
        let mut letters = letter.chars();
        let letter = letters.next().filter(|c| letters.next().is_none() && c.is_ascii_uppercase())?;
        let number = |digits: &str| digits.parse().ok().filter(|_| !digits.starts_with(['+', '0']));
        Some(Id(letter, number(section)?, number(place)?))
    }
}

impl std::fmt::Display for Id {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}.{}", self.0, self.1, self.2)
    }
}

/// What is wrong with the texts, the citations or the list; one line each.
///
/// # Errors
/// If a file cannot be read.
pub fn troubles(root: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    let mut texts = BTreeMap::new();
    for (name, letter) in TEXTS {
        let text = fs::read_to_string(root.join(name)).with_context(|| format!("cannot read {name}"))?;
        found.extend(long_paragraphs(name, &text));
        found.extend(references(&text).map(|(line, id)| Trouble::Names(format!("{name}:{line}"), id, false)));
        let (all, wrong) = requirements(name, letter, &text);
        found.extend(wrong.into_iter().map(Trouble::Said));
        texts.extend(all);
    }
    for folder in CODE {
        found.extend(citations(root, &root.join(folder))?);
    }
    let mut cited = BTreeSet::new();
    let mut troubles = Vec::new();
    for trouble in found {
        match trouble {
            Trouble::Said(line) => troubles.push(line),
            Trouble::Names(_, id, is_test) if texts.contains_key(&id) => {
                if is_test {
                    cited.insert(id);
                }
            }
            Trouble::Names(place, id, _) => troubles.push(format!("{place}: there is no requirement {id}")),
        }
    }
    let uncited: BTreeMap<Id, &str> =
        texts.iter().filter(|(id, _)| !cited.contains(id)).map(|(id, text)| (*id, text.as_str())).collect();
    troubles.extend(compare_list(root, &uncited)?);
    if uncited.len() != UNCITED_MAX {
        troubles.push(format!(
            "{} requirements are cited by no test, xtask/src/requirements.rs says {UNCITED_MAX} (it may only get smaller)",
            uncited.len()
        ));
    }
    Ok(troubles)
}

/// What a pass over the files finds.
enum Trouble {
    /// It is wrong.
    Said(String),
    /// A requirement is named there; by a test that shows it, or by a text.
    Names(String, Id, bool),
}

/// The requirements of a text, and what is wrong with them.
fn requirements(name: &str, letter: char, text: &str) -> (BTreeMap<Id, String>, Vec<String>) {
    let (mut all, mut wrong) = (BTreeMap::new(), Vec::new());
    let mut section = 0;
    let mut before = 0;
    for (i, line) in text.lines().enumerate() {
        let at = format!("{name}:{}", i + 1);
        if let Some(title) = line.strip_prefix("## ") {
            section = title.split('.').next().and_then(|number| number.parse().ok()).unwrap_or(0);
            before = 0;
        }
        let Some((id, said)) = line.strip_prefix("- **").and_then(|rest| rest.split_once("** ")) else { continue };
        let Some(id) = Id::read(id) else {
            wrong.push(format!("{at}: '{id}' is no number of a requirement"));
            continue;
        };
        if id.0 != letter || id.1 != section || id.2 != before + 1 {
            wrong.push(format!("{at}: {id} stands where {letter}-{section}.{} is expected", before + 1));
        }
        before = id.2;
        if !KEYWORDS.iter().any(|word| said.contains(word)) {
            wrong.push(format!("{at}: {id} says neither MUST nor SHOULD nor MAY"));
        }
        all.insert(id, said.to_owned());
    }
    (all, wrong)
}

/// Paragraphs that need a second reading.
fn long_paragraphs(name: &str, text: &str) -> Vec<Trouble> {
    let mut code = false;
    let mut found = Vec::new();
    for (i, line) in text.lines().enumerate() {
        code ^= line.starts_with("```");
        let len = line.chars().count();
        if !code && !line.starts_with('|') && len > PARAGRAPH_MAX {
            found.push(Trouble::Said(format!(
                "{name}:{}: a paragraph of {len} characters ({PARAGRAPH_MAX} may be)",
                i + 1
            )));
        }
    }
    found
}

/// Requirements that a text names, with their lines: `P-4.12` between what is no letter.
fn references(text: &str) -> impl Iterator<Item = (usize, Id)> {
    let ours = |id: &Id| TEXTS.iter().any(|(_, letter)| *letter == id.0);
    text.lines().enumerate().flat_map(move |(i, line)| {
        let words = line.split(|c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '.');
        words.filter_map(|word| Id::read(word.trim_end_matches('.'))).filter(ours).map(move |id| (i + 1, id))
    })
}

/// What the tests of a folder cite.
fn citations(root: &Path, dir: &Path) -> Result<Vec<Trouble>> {
    let mut found = Vec::new();
    let entries = fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            if path.file_name().is_some_and(|name| name != "target") {
                found.extend(citations(root, &path)?);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let name = path.strip_prefix(root).unwrap_or(&path).display().to_string();
            let text = fs::read_to_string(&path).with_context(|| format!("cannot read {name}"))?;
            found.extend(cited_in(&name, &text));
        }
    }
    Ok(found)
}

/// What a file cites.
fn cited_in(name: &str, text: &str) -> Vec<Trouble> {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let mut found = Vec::new();
    for (i, line) in lines.iter().enumerate() {
        let Some(list) = line.strip_prefix("// spec: ") else { continue };
        let at = format!("{name}:{}", i + 1);
        let code = lines[i + 1..].iter().find(|line| !line.starts_with("//") && !line.starts_with('#'));
        if !code.is_some_and(|line| line.starts_with("fn ")) {
            found.push(Trouble::Said(format!("{at}: a citation stands above a test's function")));
        }
        for word in list.split(", ") {
            found.push(match Id::read(word) {
                Some(id) => Trouble::Names(at.clone(), id, true),
                None => Trouble::Said(format!("{at}: '{word}' is no number of a requirement")),
            });
        }
    }
    found
}

/// Whether the list of those that nobody cites is right.
fn compare_list(root: &Path, uncited: &BTreeMap<Id, &str>) -> Result<Vec<String>> {
    let text = fs::read_to_string(root.join(UNCITED)).with_context(|| format!("cannot read {UNCITED}"))?;
    let mut listed = BTreeSet::new();
    for line in text.lines().filter_map(|line| line.strip_prefix("| ")) {
        let word = line.split(' ').next().unwrap_or_default();
        if let Some(id) = Id::read(word) {
            listed.insert(id);
        } else if word.starts_with(|c: char| c.is_ascii_uppercase()) {
            bail!("{UNCITED}: '{word}' is no number of a requirement");
        }
    }
    let lacking = uncited.keys().filter(|id| !listed.contains(id));
    let gone = listed.iter().filter(|id| !uncited.contains_key(id));
    let lacking = lacking.map(|id| format!("{UNCITED} lacks {id}, which no test cites"));
    Ok(lacking.chain(gone.map(|id| format!("{UNCITED} has {id}, which is cited or is no requirement"))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> &'static Path {
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
    }

    #[test]
    fn requirements_are_in_order_and_those_that_no_test_cites_are_listed() {
        let troubles = troubles(root()).unwrap();
        assert!(troubles.is_empty(), "{}", troubles.join("\n"));
    }

    #[test]
    fn numbers_are_read_and_nothing_else() {
        assert_eq!(Id::read("P-4.12"), Some(Id('P', 4, 12)));
        for word in ["P-4", "p-4.1", "P-4.", "P-.1", "PP-1.1", "P-01.1", "P-1.0", "P-1.+1", ""] {
            assert_eq!(Id::read(word), None, "{word}");
        }
    }

    #[test]
    fn a_requirement_out_of_order_or_without_a_keyword_is_found() {
        let wrong = |text: &str| requirements("a.md", 'P', text).1.len();
        assert_eq!(wrong("## 4. A\n- **P-4.1** One MUST.\n- **P-4.2** One MAY.\n"), 0);
        assert_eq!(wrong("## 4. A\n- **P-4.1** One MUST.\n- **P-4.3** One MAY.\n"), 1);
        assert_eq!(wrong("## 4. A\n- **P-5.1** One MUST.\n"), 1);
        assert_eq!(wrong("## 4. A\n- **P-4.1** One must.\n"), 1);
        assert_eq!(wrong("## 4. A\n- **P4.1** One MUST.\n"), 1);
    }

    #[test]
    fn a_citation_stands_above_a_function_and_names_numbers() {
        let said = |text: &str| cited_in("a.rs", text).into_iter().filter(|t| matches!(t, Trouble::Said(_))).count();
        assert_eq!(said("// spec: P-4.1, L-2.3\n#[test]\nfn a() {}"), 0);
        assert_eq!(said("// spec: P-4.1\n/// What it is.\nfn a() {}"), 0);
        assert_eq!(said("// spec: P-4.1\nlet a = 1;"), 1);
        assert_eq!(said("// spec: P-4\n#[test]\nfn a() {}"), 1);
    }

    #[test]
    fn a_long_paragraph_is_found_outside_of_tables_and_code() {
        let long = "x".repeat(PARAGRAPH_MAX + 1);
        assert_eq!(long_paragraphs("a.md", &long).len(), 1);
        assert_eq!(long_paragraphs("a.md", &format!("| {long}\n```\n{long}\n```")).len(), 0);
    }
}
