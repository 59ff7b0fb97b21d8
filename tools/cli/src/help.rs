//! The texts behind the options of `--help`, in lines that fit: a terminal that tears lines made
//! for a wider one shows neither sentences nor columns.

use clap::Command;

/// What any terminal shows.
pub const WIDTH: usize = 79;

/// How wide texts may be: as the shell says (`COLUMNS`, which clap heeds too), or what any terminal
/// shows.
pub fn width() -> usize {
    let columns = std::env::var("COLUMNS").ok().and_then(|text| text.trim().parse().ok());
    columns.filter(|columns| (20..=1000).contains(columns)).unwrap_or(WIDTH)
}

/// The same command, and all below it, with texts of this width.
pub fn flowing(mut command: Command, width: usize) -> Command {
    if let Some(text) = command.get_after_help().map(|text| flow(&text.to_string(), width)) {
        command = command.after_help(text);
    }
    let names: Vec<String> = command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
    names.into_iter().fold(command, |command, name| command.mut_subcommand(name, |sub| flowing(sub, width)))
}

/// Paragraphs filled to `width`; lines that are indented stay lines, and what is too long of one
/// goes on under its last column.
fn flow(text: &str, width: usize) -> String {
    let mut out = String::new();
    let mut paragraph = String::new();
    for line in text.lines() {
        if line.starts_with(' ') || line.trim().is_empty() || line.ends_with(':') && paragraph.is_empty() {
            fill(&mut out, &std::mem::take(&mut paragraph), 0, width);
            match line.trim().is_empty() {
                true => out.push('\n'),
                false => fill(&mut out, line, hanging(line), width),
            }
        } else {
            if !paragraph.is_empty() {
                paragraph.push(' ');
            }
            paragraph += line.trim_end();
            // A list's head.
            if line.ends_with(':') {
                fill(&mut out, &std::mem::take(&mut paragraph), 0, width);
            }
        }
    }
    fill(&mut out, &paragraph, 0, width);
    out.truncate(out.trim_end().len());
    out
}

/// Where the second column of a line begins; without one, a little behind its first word.
fn hanging(line: &str) -> usize {
    let indent = line.len() - line.trim_start().len();
    if indent == 0 {
        return 0;
    }
    let gap = line.trim_start().find("  ").map(|at| {
        let rest = &line[indent + at..];
        indent + at + rest.len() - rest.trim_start().len()
    });
    gap.filter(|column| *column < 60).unwrap_or(indent + 2)
}

/// Adds a line, in as many as it takes; those after the first begin at `hang`. A word that is
/// longer than all stays whole.
fn fill(out: &mut String, line: &str, hang: usize, width: usize) {
    let mut rest = line.trim_end();
    if rest.is_empty() {
        return;
    }
    let mut begin = 0;
    while begin + rest.chars().count() > width {
        let room: usize = rest.chars().take(width - begin + 1).map(char::len_utf8).sum();
        let own = rest.len() - rest.trim_start().len();
        // Within a column only: blanks that make columns are kept.
        let Some(cut) = rest[own..room].rfind(' ').map(|at| own + at).filter(|cut| !rest[..*cut].trim().is_empty())
        else {
            break;
        };
        *out += rest[..cut].trim_end();
        *out += "\n";
        *out += &" ".repeat(hang);
        (rest, begin) = (rest[cut..].trim_start(), hang);
    }
    *out += rest;
    *out += "\n";
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn no_line_of_any_help_is_torn_on_a_terminal_of_80_columns() {
        let main = flowing(crate::args::Args::command(), WIDTH);
        let mut all = vec![main];
        let mut looked_at = 0;
        while let Some(command) = all.pop() {
            let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            for line in text.lines().filter(|line| line.chars().count() > WIDTH) {
                // A word that cannot be divided, such as a command's option.
                assert!(line.split_whitespace().count() == 1, "{}: {line}", command.get_name());
            }
            looked_at += usize::from(!text.is_empty());
            all.extend(command.get_subcommands().cloned());
        }
        assert!(looked_at > 12, "{looked_at} texts");
    }

    #[test]
    fn paragraphs_are_filled_and_columns_kept() {
        let text = "Examples:\n  a b    one two three four\n\nThis is a line\nand more of it.\n  x  y";
        assert_eq!(
            flow(text, 20),
            "Examples:\n  a b    one two\n         three four\n\nThis is a line and\nmore of it.\n  x  y"
        );
    }

    #[test]
    fn not_a_word_is_lost() {
        for command in crate::args::Args::command().get_subcommands() {
            let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
            assert_eq!(words(&flow(&text, WIDTH)), words(&text), "{}", command.get_name());
        }
    }
}
