//! What shells read: a line that sets a variable, and words that can be typed again.

use anyhow::{Context, Result};

use crate::environment::Variable;

/// A shell whose syntax is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Shell {
    /// sh, bash, dash, zsh, ksh.
    #[value(aliases = ["sh", "dash", "zsh", "ksh"])]
    Bash,
    /// fish.
    Fish,
    /// csh, tcsh.
    #[value(alias = "tcsh")]
    Csh,
}

impl Shell {
    /// The lines that set these variables, for `eval`.
    ///
    /// # Errors
    /// If this shell has no way to write a value.
    pub fn lines(self, variables: &[Variable]) -> Result<String> {
        let line = |one: &Variable| {
            let line = self
                .line(one)
                .with_context(|| format!("{}: holds a line break, which csh does not read; use sh", one.0));
            Ok(line? + "\n")
        };
        variables.iter().map(line).collect()
    }

    /// One line that sets a variable. It ends in `;`, since `eval $(..)` puts all lines into one.
    ///
    /// None: this shell has no way to write the value.
    fn line(self, (name, value): &Variable) -> Option<String> {
        Some(match self {
            Self::Bash if !is_changed_by_eval(value) => format!("export {name}={};", quote(value)),
            // Backquotes take line breaks off the end. Parentheses are patterns in some shells.
            Self::Bash if value.ends_with('\n') => {
                format!("export {name}=\"`printf '{}.'`\"; export {name}=\"${{{name}%.}}\";", format_of(value))
            }
            Self::Bash => format!("export {name}=\"`printf '{}'`\";", format_of(value)),
            Self::Fish => format!("set -gx {name} {};", quote_fish(value)),
            Self::Csh if value.contains('\n') => return None,
            Self::Csh if is_plain(value) => format!("setenv {name} {value};"),
            Self::Csh if value.is_empty() => format!("setenv {name} '';"),
            Self::Csh => format!("setenv {name} \"`printf '{}'`\";", format_of(value)),
        })
    }
}

fn is_plain(value: &str) -> bool {
    !value.is_empty() && value.chars().all(|c| c.is_ascii_alphanumeric() || "_-./:=,+@".contains(c))
}

/// Whether `eval $(..)` would change a value, however it is quoted: before the shell sees any
/// quotes it takes all apart at blanks, puts names of files where there are patterns, and joins
/// what it has with one blank between.
fn is_changed_by_eval(value: &str) -> bool {
    value.contains("  ")
        || value.contains(is_of_patterns)
        || value.contains(|c: char| c != ' ' && c.is_ascii_whitespace())
}

/// Whether some shell has it in patterns for names of files: `(`, `|`, `^`, `#` and `~` after
/// `shopt -s extglob` or `setopt glob_subst extended_glob`, braces in ksh.
fn is_of_patterns(c: char) -> bool {
    "*?[]\\(){}|<>^#~".contains(c)
}

/// A value as the `printf` of any shell takes it between single quotes: without blanks and what
/// shells have in patterns, history (`!`) or other quotes.
fn format_of(value: &str) -> String {
    let plain = |c: char| !is_of_patterns(c) && !c.is_ascii_whitespace() && !"'%-!$`\"".contains(c);
    let one = |c: char| match c {
        // dash looks for it after it has read the escapes.
        '%' => "%%".to_owned(),
        c if plain(c) => c.to_string(),
        c => format!("\\{:03o}", u32::from(c)),
    };
    value.chars().map(one).collect()
}

/// Quoted for POSIX shells, where it is needed.
pub fn quote(value: &str) -> String {
    if is_plain(value) { value.to_owned() } else { format!("'{}'", value.replace('\'', r"'\''")) }
}

fn quote_fish(value: &str) -> String {
    if is_plain(value) { value.to_owned() } else { format!("'{}'", value.replace('\\', r"\\").replace('\'', r"\'")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::path::Path;
    use std::process::Command;

    /// Shells that start here, how each is called, what it is, and the line by which people have it
    /// read our lines, from the file `lines`. bash and zsh also with all of their patterns.
    const SHELLS: [(&str, &[&str], Shell, &str); 10] = [
        ("sh", &["-c"], Shell::Bash, "eval $(cat lines)"),
        ("dash", &["-c"], Shell::Bash, "eval \"$(cat lines)\""),
        ("bash", &["-c"], Shell::Bash, "eval $(cat lines)"),
        ("bash", &["-O", "extglob", "-O", "nullglob", "-c"], Shell::Bash, "eval $(cat lines)"),
        ("zsh", &["-f", "-c"], Shell::Bash, "eval $(cat lines)"),
        (
            "zsh",
            &["-f", "-o", "globsubst", "-o", "extendedglob", "-o", "nullglob", "-c"],
            Shell::Bash,
            "eval $(cat lines)",
        ),
        ("ksh", &["-c"], Shell::Bash, "eval $(cat lines)"),
        ("mksh", &["-c"], Shell::Bash, "eval $(cat lines)"),
        ("fish", &["--no-config", "-c"], Shell::Fish, "cat lines | source"),
        ("tcsh", &["-f", "-c"], Shell::Csh, "eval `cat lines`"),
    ];

    /// A folder with files that patterns may meet, one of them with a quote as they stand in lines.
    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for name in ["a", "b", "'a", "ab';", "V='a", "B=x", "{a"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        folder
    }

    fn is_here(shell: &str) -> bool {
        Command::new(shell).args(["-c", "exit 0"]).output().is_ok_and(|out| out.status.success())
    }

    /// The value of the second of three variables as a program sees it that the shell starts after
    /// it has read our lines.
    fn through(folder: &Path, row: usize, value: &str) -> Option<Vec<u8>> {
        let (name, words, shell, read) = SHELLS[row];
        let all = [("A", "x  y"), ("V", value), ("B", "z")].map(|(name, value)| (name.to_owned(), value.to_owned()));
        let lines: Option<Vec<String>> = all.iter().map(|one| shell.line(one)).collect();
        std::fs::write(folder.join("lines"), lines?.join("\n") + "\n").unwrap();
        let script = format!("{read}; env printenv B V");
        let out = Command::new(name).args(words).arg(&script).current_dir(folder).env_remove("V").output().unwrap();
        let text = out.stdout.strip_prefix(b"z\n").and_then(|rest| rest.strip_suffix(b"\n"));
        let said =
            || format!("{name} {}: {:?}", String::from_utf8_lossy(&out.stderr), std::fs::read(folder.join("lines")));
        Some(text.unwrap_or_else(|| panic!("{}", said())).to_owned())
    }

    fn survives(value: &str) {
        let folder = folder();
        let mut read_by = 0;
        for row in (0..SHELLS.len()).filter(|row| is_here(SHELLS[*row].0)) {
            let Some(got) = through(folder.path(), row, value) else { continue };
            assert_eq!(String::from_utf8_lossy(&got), value, "{:?}", SHELLS[row]);
            read_by += 1;
        }
        assert!(read_by > 0, "no shell is here");
    }

    #[test]
    fn values_survive_eval_which_takes_them_apart_and_puts_names_of_files_in() {
        let values = "plain|two words|a * b|*|a?|[ab]|it's;$HOME `x` \\ \"|^ucx|/a  b|$HOME  `x` \"*|-n  x|{a,b}|@(a)|!x|~|a\\b|%d%%|#x| a ";
        for value in values.split('|').chain(["a|b", "", "a\t'b\\c%d\n\u{e4}  -", "a\nb\n\nc", "\n"]) {
            survives(value);
        }
    }

    #[test]
    fn csh_is_not_told_what_it_cannot_read() {
        let line = |value: &str| Shell::Csh.line(&("V".to_owned(), value.to_owned()));
        assert_eq!((line("a\n"), line("\na")), (None, None));
        let error = Shell::Csh.lines(&[("V".to_owned(), "a\n".to_owned())]).unwrap_err();
        assert_eq!(error.to_string(), "V: holds a line break, which csh does not read; use sh");
        assert_eq!(line("a b").unwrap(), "setenv V \"`printf 'a\\040b'`\";");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn any_value_survives_any_shell(value in "[ab'\"$`\\\\ \t\n*?\\[\\](){}|<>^#~!%&;,.:=\u{e4}-]{0,9}") {
            survives(&value);
        }

        #[test]
        fn any_characters_survive_sh(value in "[^\0]{0,20}") {
            let folder = folder();
            prop_assert_eq!(String::from_utf8(through(folder.path(), 0, &value).unwrap()).unwrap(), value);
        }
    }

    #[test]
    fn quoted_words_can_be_typed() {
        for value in ["plain", "two words", "it's;$HOME `x` \\ \"", "^ucx", "", "a\n*"] {
            let script = format!("printf %s {}", quote(value));
            let out = Command::new("sh").args(["-c", &script]).output().unwrap();
            assert_eq!(String::from_utf8_lossy(&out.stdout), value, "{script}");
        }
    }
}
