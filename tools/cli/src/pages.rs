//! The man pages, from the same description that parses the command line.

use anyhow::{Context, Result};
use clap::{Arg, ArgAction, Command, CommandFactory};
use clap_mangen::roff::{Inline, Roff, bold, italic, roman};

use crate::args::Args;

/// All pages with their file names. The emulator has a page written by hand.
pub fn all() -> Result<Vec<(String, Vec<u8>)>> {
    // Without the command `help`, which has no page.
    // And without the commit: a page is of a version.
    let mut main = Args::command().disable_help_subcommand(true).version(env!("CARGO_PKG_VERSION"));
    main.build();
    let mut pages = Vec::new();
    pages.push(("weir.1".into(), page(&main)?));
    for command in main.get_subcommands().filter(|c| !["emulate", "help"].contains(&c.get_name())) {
        add(&mut pages, command, &format!("weir-{}", command.get_name()))?;
    }
    Ok(pages)
}

/// The page of a command, and of those below it.
fn add(pages: &mut Vec<(String, Vec<u8>)>, command: &Command, name: &str) -> Result<()> {
    if command.is_hide_set() {
        return Ok(());
    }
    pages.push((format!("{name}.1"), page(&named(command, name))?));
    for below in command.get_subcommands().filter(|c| c.get_name() != "help") {
        add(pages, below, &format!("{name}-{}", below.get_name()))?;
    }
    Ok(())
}

/// The command as its page has it.
fn named(command: &Command, name: &str) -> Command {
    let named = command.clone().name(name.to_owned()).bin_name(name.replace('-', " ")).display_name(name.to_owned());
    named.disable_help_subcommand(true)
}

fn page(command: &Command) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    clap_mangen::Man::new(command.clone()).render(&mut text)?;
    if command.is_subcommand_required_set() {
        return Ok(text);
    }
    // That of clap_mangen leaves out what options take, and the -- before a launcher.
    let text = String::from_utf8(text).context("a man page is not text")?;
    let begin = ".SH SYNOPSIS\n";
    let (before, rest) = text.split_once(begin).context("a man page has no synopsis")?;
    let end = rest.find(".SH ").context("a man page ends with its synopsis")?;
    Ok(format!("{before}{begin}{}{}", synopsis(command), &rest[end..]).into_bytes())
}

/// The line that says how a command is typed.
fn synopsis(command: &Command) -> String {
    let mut line = vec![bold(command.get_bin_name().unwrap_or_else(|| command.get_name()))];
    let (positionals, options): (Vec<&Arg>, Vec<&Arg>) =
        command.get_arguments().filter(|arg| !arg.is_hide_set()).partition(|arg| arg.is_positional());
    options.iter().for_each(|arg| line.extend(option(arg)));
    positionals.iter().for_each(|arg| line.extend(positional(arg)));
    Roff::new().text(line).to_roff()
}

/// `[-o|--output <FOLDER>]`.
fn option(arg: &Arg) -> Vec<Inline> {
    let mut out = vec![roman(if arg.is_required_set() { " " } else { " [" })];
    out.extend(arg.get_short().map(|short| bold(format!("-{short}"))));
    if arg.get_short().is_some() && arg.get_long().is_some() {
        out.push(roman("|"));
    }
    out.extend(arg.get_long().map(|long| bold(format!("--{long}"))));
    if arg.get_action().takes_values() {
        out.extend([roman(" "), italic(value(arg))]);
    }
    out.push(roman(match (arg.is_required_set(), matches!(arg.get_action(), ArgAction::Append)) {
        (true, false) => "",
        (true, true) => "...",
        (false, false) => "]",
        (false, true) => "]...",
    }));
    out
}

/// `<RUN> [<RUN>]`, `[<PID>]`, `[-- <LAUNCHER>...]`.
fn positional(arg: &Arg) -> Vec<Inline> {
    let most = arg.get_num_args().map_or(1, |range| range.max_values());
    let name = || italic(value(arg));
    let required = arg.is_required_set();
    let mut out = vec![roman(if required { " " } else { " [" })];
    if arg.is_last_set() {
        out.extend([bold("--"), roman(" ")]);
    }
    out.push(name());
    match most {
        0 | 1 => {}
        2 => out.extend([roman(" ["), name(), roman("]")]),
        _ => out.push(roman("...")),
    }
    if !required {
        out.push(roman("]"));
    }
    out
}

fn value(arg: &Arg) -> String {
    let named = arg.get_value_names().map(|names| names.iter().map(|name| format!("<{name}>")).collect::<Vec<_>>());
    named.map_or_else(|| format!("<{}>", arg.get_id().as_str().to_uppercase()), |names| names.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn the_man_pages_in_docs_are_those_of_this_program() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/man");
        for (name, text) in all().unwrap() {
            let kept = std::fs::read(folder.join(&name)).unwrap_or_default();
            assert!(
                kept == text,
                "docs/man/{name} is out of date; renew it with: d=$(mktemp -d); cargo run -p weir -- man --dir $d && cp $d/man1/* docs/man"
            );
        }
    }

    #[test]
    fn a_synopsis_says_what_options_take_and_how_a_launcher_is_told() {
        let pages = all().unwrap();
        let synopsis = |page: &str| {
            let text = &pages.iter().find(|(name, _)| name == page).expect("a page").1;
            let text = String::from_utf8(text.clone()).unwrap().replace("\\-", "-");
            let lines: Vec<&str> = text.lines().skip_while(|line| *line != ".SH SYNOPSIS").collect();
            assert_eq!(lines[2], ".SH DESCRIPTION");
            ["\\fB", "\\fI", "\\fR"].iter().fold(lines[1].to_owned(), |line, font| line.replace(font, ""))
        };
        let bench = synopsis("weir-bench.1");
        for part in ["weir bench [-o|--output <FOLDER>] [--append]", " [--seed <", " [-- <LAUNCHER>...]"] {
            assert!(bench.contains(part), "{part}: {bench}");
        }
        assert!(!bench.contains("--meet") && bench.ends_with("...]"), "{bench}");
        let report = "weir report [--format <FORMAT>] [-o|--output <PATH>] [--anyway] [--json] [-q|--quiet] [-h|--help] <RUN> [<RUN>]";
        assert_eq!(synopsis("weir-report.1"), report);
        assert!(synopsis("weir-run.1").ends_with(" <PROGRAM>..."));
        assert!(synopsis("weir-stat.1").ends_with(" [<PID>]"));
    }
}
