//! The guide (`docs/guide`): its list of chapters, its links, and the commands it names must be
//! there.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use clap::CommandFactory;

use crate::paths::Paths;

/// Where the chapters are.
const CHAPTERS: &str = "docs/guide/src";
/// The list of chapters.
const SUMMARY: &str = "SUMMARY.md";

/// What is wrong with the guide; one line each.
///
/// # Errors
/// If a chapter or a man page cannot be read.
pub fn troubles(paths: &Paths) -> Result<Vec<String>> {
    let folder = paths.root.join(CHAPTERS);
    let mut chapters = BTreeSet::new();
    for entry in fs::read_dir(&folder).with_context(|| format!("cannot read {CHAPTERS}"))? {
        chapters.insert(entry?.file_name().to_string_lossy().into_owned());
    }
    let read =
        |name: &str| fs::read_to_string(folder.join(name)).with_context(|| format!("cannot read {CHAPTERS}/{name}"));
    let mut found = Vec::new();
    let listed: BTreeSet<String> = links(&read(SUMMARY)?).into_iter().map(str::to_owned).collect();
    let others = chapters.iter().filter(|name| *name != SUMMARY);
    found.extend(others.filter(|name| !listed.contains(*name)).map(|name| format!("{SUMMARY} lacks {name}")));
    for name in &chapters {
        let text = read(name)?;
        let at = |what: String| format!("{CHAPTERS}/{name}: {what}");
        let dead = links(&text).into_iter().filter(|link| !folder.join(link).exists());
        found.extend(dead.map(|link| at(format!("the link {link} leads nowhere"))));
        for line in commands(&text) {
            found.extend(wrong_command(&paths.root, line)?.map(at));
        }
        found.extend(unknown_settings(&paths.root, &text)?.into_iter().map(at));
    }
    // The README's commands too.
    let readme = fs::read_to_string(paths.root.join("README.md")).context("cannot read README.md")?;
    for line in commands(&readme) {
        found.extend(wrong_command(&paths.root, line)?.map(|what| format!("README.md: {what}")));
    }
    Ok(found)
}

/// Where the text's links lead within the project.
pub fn links(text: &str) -> Vec<&str> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
    targets.filter(|target| !target.is_empty() && !target.contains("://")).collect()
}

/// The lines of blocks of shell, and what stands between backquotes elsewhere.
fn commands(text: &str) -> Vec<&str> {
    let (mut found, mut block) = (Vec::new(), None);
    for line in text.lines() {
        if let Some(language) = line.strip_prefix("```") {
            block = if block.is_none() { Some(language) } else { None };
        } else if block == Some("sh") {
            found.push(line);
        } else if block.is_none() {
            found.extend(line.split('`').skip(1).step_by(2));
        }
    }
    found
}

/// What is wrong with a line that calls `weir` or `cargo xtask`, if it does.
fn wrong_command(root: &Path, line: &str) -> Result<Option<String>> {
    let line = line.split(" # ").next().unwrap_or(line);
    let words: Vec<&str> =
        line.split(|c: char| c.is_whitespace() || "()'\"`;".contains(c)).filter(|word| !word.is_empty()).collect();
    for (i, word) in words.iter().enumerate() {
        let (before, rest) = (i.checked_sub(1).map_or("", |i| words[i]), &words[i + 1..]);
        let wrong = match *word {
            // (`--transport weir` calls nothing.)
            "weir" if !(before.starts_with("--") && before.len() > 2) => wrong_weir(root, rest)?,
            "xtask" if before == "cargo" => wrong_chore(rest),
            _ => None,
        };
        if let Some(what) = wrong {
            return Ok(Some(format!("'{}': {what}", line.trim())));
        }
    }
    Ok(None)
}

/// The words behind `weir`: a command that has a manual page, with options that stand there.
fn wrong_weir(root: &Path, words: &[&str]) -> Result<Option<String>> {
    let Some(command) = words.first().filter(|word| word.starts_with(|c: char| c.is_ascii_lowercase())) else {
        return Ok(None);
    };
    // A command below it has a page of its own.
    let (mut page, options) = (format!("docs/man/weir-{command}.1"), &words[1..]);
    for below in options {
        let of_below = page.replace(".1", &format!("-{below}.1"));
        if below.contains('/') || !root.join(&of_below).exists() {
            break;
        }
        page = of_below;
    }
    let file = root.join(&page);
    if !file.exists() {
        return Ok(Some(format!("there is no {page}")));
    }
    let page_text = plain(&fs::read_to_string(&file).with_context(|| format!("cannot read {page}"))?);
    // What stands behind `--` or the next command is another's.
    let own = options.iter().take_while(|word| !["--", "|", "weir", "sh", "mpiexec"].contains(*word));
    let long = own.filter(|word| word.starts_with("--") && word.len() > 2);
    let names = long.map(|word| word.split('=').next().unwrap_or(word));
    Ok(names.into_iter().find(|name| !has_word(&page_text, name)).map(|name| format!("{page} has no {name}")))
}

/// A manual page without changes of fonts and escapes.
fn plain(page: &str) -> String {
    let without_fonts =
        ["\\fB", "\\fI", "\\fR", "\\fP"].iter().fold(page.to_owned(), |text, font| text.replace(font, ""));
    without_fonts.replace('\\', "")
}

/// Whether the text has this option, and not only a longer one.
fn has_word(text: &str, word: &str) -> bool {
    let ends = |rest: &str| !rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '-');
    text.match_indices(word).any(|(at, _)| ends(&text[at + word.len()..]))
}

/// The words behind `cargo xtask`: a chore, with options that it has.
fn wrong_chore(words: &[&str]) -> Option<String> {
    let mut command = crate::Args::command();
    let mut name = "cargo xtask".to_owned();
    let mut rest = words;
    while let Some((first, others)) = rest.split_first() {
        let Some(found) = command.find_subcommand(first).cloned() else { break };
        (command, name, rest) = (found, format!("{name} {first}"), others);
    }
    if command.has_subcommands() {
        return Some(format!("{name} has no {}", rest.first().unwrap_or(&"chore")));
    }
    let options = rest.iter().filter_map(|word| word.strip_prefix("--")).filter(|name| !name.is_empty());
    let unknown = options
        .map(|option| option.split('=').next().unwrap_or(option))
        .find(|option| *option != "help" && !command.get_arguments().any(|arg| arg.get_long() == Some(option)));
    unknown.map(|option| format!("{name} has no --{option}"))
}

/// Settings that the text names and nothing documents.
fn unknown_settings(root: &Path, text: &str) -> Result<Vec<String>> {
    let mut known = String::new();
    for entry in fs::read_dir(root.join("docs/man")).context("cannot read docs/man")? {
        known += &fs::read_to_string(entry?.path()).context("cannot read a manual page")?;
    }
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let settings: BTreeSet<&str> = words.filter(|word| word.len() > 5 && word.starts_with("WEIR_")).collect();
    let known = plain(&known);
    let unknown = settings.into_iter().filter(|name| !has_word(&known, name));
    Ok(unknown.map(|name| format!("no manual page has {name}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths() -> Paths {
        Paths::find()
    }

    #[test]
    fn the_guide_names_what_is_there() {
        let found = troubles(&paths()).unwrap();
        assert!(found.is_empty(), "{}", found.join("\n"));
    }

    #[test]
    fn links_are_those_within_the_project() {
        let text = "[a](docs/a.md), [b](https://b.org/), [c](#c) and [d](d.md#part)";
        assert_eq!(links(text), ["docs/a.md", "d.md"]);
    }

    #[test]
    fn commands_are_those_of_shell_blocks_and_of_backquotes() {
        let text = "Use `weir env`.\n```sh\nweir run -n 2\n```\n```python\nweir = 1\n```\n";
        assert_eq!(commands(text), ["weir env", "weir run -n 2"]);
    }

    #[test]
    fn a_command_or_option_that_is_not_there_is_found() {
        let root = paths().root;
        let wrong = |line: &str| wrong_command(&root, line).unwrap();
        for line in [
            "weir run -n 2 --hosts a,b ./program --its-own",
            "eval $(weir env --mpi openmpi); mpiexec -n 4 ./program --any",
            "weir emulate --hosts 2 --loss 1% -- sh -c 'weir run -n 2 --hosts $WEIR_HOSTS ./x'",
            "cargo xtask bench mpi --only loss --launches 3",
            "weir --version",
            "nothing of the kind --at-all",
        ] {
            // What follows the program is the program's.
            assert_eq!(wrong(line.split(" ./").next().unwrap()), None, "{line}");
        }
        for (line, why) in [
            ("weir fly", "there is no docs/man/weir-fly.1"),
            ("weir run --rank 2", "has no --rank"),
            ("weir emulate --hosts 2 -- weir run --fast", "has no --fast"),
            ("cargo xtask dance", "has no dance"),
            ("cargo xtask bench mpi --onl loss", "has no --onl"),
        ] {
            assert!(wrong(line).is_some_and(|what| what.contains(why)), "{line}: {:?}", wrong(line));
        }
    }
}
