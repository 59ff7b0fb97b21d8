//! `run.json`: text to data, with the field in every error; data to text, with cells rendered once.

use std::path::Path;

use serde::Deserialize;
use serde_json::error::Category;

use crate::check;
use crate::error::{Error, Result};
use crate::model::{Cell, FORMAT, Run, VERSION, Version};

/// Unknown fields are listed up to here: a list for people.
const MAX_UNKNOWN: usize = 32;

/// What must be known before the rest can be read.
#[derive(Deserialize)]
struct Head {
    format: Option<String>,
    version: Option<Version>,
}

/// Reads the text of a `run.json`; `file` is only named in errors. Returns the run and the fields
/// that this version does not know: misspelt ones in a file edited by hand, or those of a newer
/// minor version.
///
/// # Errors
/// Not JSON, another format, a newer major version, a field that is missing, of another type or
/// without sense.
pub fn parse_run(file: &Path, text: &[u8]) -> Result<(Run, Vec<String>)> {
    match serde_json::from_slice::<Head>(text) {
        Ok(head) => check_head(file, &head)?,
        // What is no JSON at all is told better with a field; what is another type is not our head.
        Err(e) if e.classify() == Category::Data => {
            let problem = format!("not the head of a run: {}", in_words(&e.to_string()));
            return Err(Error::Format { file: file.to_owned(), field: "version", problem });
        }
        Err(_) => {}
    }
    let mut unknown = Vec::new();
    let run = tracked(file, text, &mut unknown)?;
    check(file, &run)?;
    Ok((run, unknown))
}

/// Checks what the types do not say.
///
/// # Errors
/// A field without sense.
pub(crate) fn check(file: &Path, run: &Run) -> Result<()> {
    check::run(run).map_err(|(field, problem)| Error::Field { file: file.to_owned(), field, problem })
}

fn check_head(file: &Path, head: &Head) -> Result<()> {
    let wrong = |field, problem: &str| Err(Error::Format { file: file.to_owned(), field, problem: problem.to_owned() });
    match head.format.as_deref() {
        None => return wrong("format", &format!("missing; a run says \"{FORMAT}\" here")),
        Some(FORMAT) => {}
        Some(other) => return wrong("format", &format!("`{}` is not \"{FORMAT}\"", shortened(other))),
    }
    match head.version {
        None => wrong("version", &format!("missing; expected \"{VERSION}\" or the like")),
        Some(found) if found.major != VERSION.major => Err(Error::Version { file: file.to_owned(), found }),
        Some(_) => Ok(()),
    }
}

fn tracked(file: &Path, text: &[u8], unknown: &mut Vec<String>) -> Result<Run> {
    let parsed = with_fields(text, &mut |path| {
        if unknown.len() < MAX_UNKNOWN {
            unknown.push(with_brackets(&shortened(&path.to_string())));
        }
    });
    parsed.map_err(|(path, e)| Error::Json {
        file: file.to_owned(),
        field: place(&path),
        problem: if text.trim_ascii().is_empty() { "the file is empty".to_owned() } else { in_words(&e.to_string()) },
        line: e.line(),
        column: e.column(),
    })
}

/// Hears of each field that is not known.
type Unknown<'a> = &'a mut dyn FnMut(serde_ignored::Path);

/// Parses a whole text; an error has the field that the parser was in. All texts go through this
/// one: each other parser would be compiled for all types of a run, which takes 0.2 MB.
fn with_fields<T: serde::de::DeserializeOwned>(
    text: &[u8],
    unknown: Unknown,
) -> std::result::Result<T, (serde_path_to_error::Path, serde_json::Error)> {
    let mut json = serde_json::Deserializer::from_slice(text);
    let mut track = serde_path_to_error::Track::new();
    let tracking = serde_path_to_error::Deserializer::new(&mut json, &mut track);
    let parsed = serde_ignored::deserialize::<_, Unknown, T>(tracking, unknown);
    match parsed {
        Ok(value) => match json.end() {
            Ok(()) => Ok(value),
            // What follows is in no field.
            Err(e) => Err((serde_path_to_error::Track::new().path(), e)),
        },
        Err(e) => Err((track.path(), e)),
    }
}

/// The field that a parser was in; `.` for the file as a whole. Parts that the parser had no name
/// for yet, as in a text that is cut short within a name, are left out.
fn place(path: &serde_path_to_error::Path) -> String {
    let text = path.to_string();
    let known = text.split('.').take_while(|part| !part.starts_with('?')).collect::<Vec<_>>().join(".");
    if known.is_empty() { ".".to_owned() } else { shortened(&known) }
}

/// `cells.3.x` as `cells[3].x`.
fn with_brackets(path: &str) -> String {
    let mut out = String::new();
    for part in path.split('.') {
        if !out.is_empty() && !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()) {
            out.push_str(&format!("[{part}]"));
        } else {
            out.push_str(if out.is_empty() { "" } else { "." });
            out.push_str(part);
        }
    }
    out
}

/// The parser's message without the place, which is told apart, and without names of Rust's types.
fn in_words(message: &str) -> String {
    let message = message.rfind(" at line ").map_or(message, |at| &message[..at]);
    let mut text = shortened(message);
    for (rust, word) in [
        ("expected f64", "expected a number"),
        ("expected u64", "expected a whole number"),
        ("expected u32", "expected a whole number"),
        ("expected u8", "expected a whole number up to 255"),
        ("expected i64", "expected a whole number"),
        ("expected a map", "expected an object"),
        ("expected a sequence", "expected a list"),
    ] {
        if let Some(head) = text.strip_suffix(rust) {
            text = format!("{head}{word}");
        }
    }
    if let Some(what) = text.strip_prefix("EOF while parsing") {
        return format!("the file ends within{what}: it was cut short, as by a full disk or a copy that did not end");
    }
    text.replace("expected struct", "expected an object:")
}

/// Foreign text in a message: at most a line's worth of it, and no control characters.
fn shortened(text: &str) -> String {
    let clean = |c: char| if c.is_control() { ' ' } else { c };
    let mut out: String = text.chars().take(200).map(clean).collect();
    if out.len() < text.len() {
        out.push_str("...");
    }
    out
}

/// A cell as it will stand in `run.json`. What was written is read back, so that numbers JSON
/// cannot hold are found here, with their field, and not by the reader.
pub(crate) fn render_cell(file: &Path, index: usize, cell: &Cell) -> Result<String> {
    let text = pretty(file, cell)?;
    if let Err((path, e)) = with_fields::<Cell>(text.as_bytes(), &mut |_| {}) {
        let field = format!("cells[{index}].{path}");
        return Err(Error::Field { file: file.to_owned(), field, problem: in_words(&e.to_string()) });
    }
    Ok(text.replace('\n', "\n    "))
}

/// A cell as a line of the journal, its end included.
pub(crate) fn render_line(file: &Path, cell: &Cell) -> Result<String> {
    let text = serde_json::to_string(cell).map_err(|e| unwritable(file, &e))?;
    Ok(text + "\n")
}

/// Reads a line of the journal; `number` from 1.
///
/// # Errors
/// Not JSON, or a field that is missing or of another type.
pub(crate) fn parse_line(file: &Path, number: usize, line: &[u8]) -> Result<Cell> {
    with_fields(line, &mut |_| {}).map_err(|(path, e)| Error::Json {
        file: file.to_owned(),
        field: place(&path),
        problem: in_words(&e.to_string()),
        line: number,
        column: e.column(),
    })
}

/// The whole file from its head (a run without cells) and its cells as rendered.
pub(crate) fn render_run(file: &Path, head: &Run, cells: &[String]) -> Result<String> {
    debug_assert!(head.cells.is_empty());
    let mut text = pretty(file, head)?;
    if cells.is_empty() {
        text.push('\n');
        return Ok(text);
    }
    let end = text.rfind("[]").unwrap_or(text.len());
    text.truncate(end);
    text.reserve(cells.iter().map(|c| c.len() + 6).sum::<usize>() + 8);
    for (i, cell) in cells.iter().enumerate() {
        text.push_str(if i == 0 { "[\n    " } else { ",\n    " });
        text.push_str(cell);
    }
    text.push_str("\n  ]\n}\n");
    Ok(text)
}

fn pretty<T: serde::Serialize>(file: &Path, value: &T) -> Result<String> {
    serde_json::to_string_pretty(value).map_err(|e| unwritable(file, &e))
}

fn unwritable(file: &Path, error: &serde_json::Error) -> Error {
    Error::Field { file: file.to_owned(), field: ".".to_owned(), problem: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_fields_are_named_as_errors_name_fields() {
        assert_eq!(with_brackets("cells.3.summary.typo"), "cells[3].summary.typo");
        assert_eq!(with_brackets("typo"), "typo");
    }

    #[test]
    fn what_is_no_json_is_told_with_the_field_that_was_reached_or_none() {
        let head = format!("{{\"format\": \"{FORMAT}\", \"version\": \"{VERSION}\"");
        let cases = [
            (
                "{",
                "run.json: the file ends within an object: it was cut short, as by a full disk or a copy that did not end (line",
            ),
            ("", "run.json: the file is empty (line 1, column 0)"),
            (" \n", "run.json: the file is empty (line 2, column 0)"),
            ("]", "run.json: expected value (line 1, column 1)"),
            ("hello", "run.json: expected value (line 1, column 1)"),
            (&format!("{head}, \"mach")[..], "run.json: the file ends within a string"),
            (&format!("{head}, machine"), "run.json: key must be a string"),
            (&format!("{head}, \"machine\": "), "run.json: machine: the file ends within a value"),
            (&format!("{head}, \"cells\": [{{"), "run.json: cells[0]: the file ends within an object"),
        ];
        for (text, expected) in cases {
            let told = parse_run(Path::new("run.json"), text.as_bytes()).unwrap_err().to_string();
            assert!(told.starts_with(expected), "{text}: {told}");
        }
        let told = parse_line(Path::new("cells.jsonl"), 3, b"{nonsense}").unwrap_err().to_string();
        assert_eq!(told, "cells.jsonl: key must be a string (line 3, column 2)");
    }

    #[test]
    fn foreign_text_in_messages_is_cut_and_stays_on_one_line() {
        let long = "x\n".repeat(1000);
        let text = shortened(&long);
        assert!(text.len() < 250 && !text.contains('\n'), "{text}");
    }

    /// Found by fuzzing.
    #[test]
    fn so_do_names_of_fields() {
        let name = "c\\nfig\\u001b[31m".to_owned() + &"x".repeat(1000);
        let head = format!("\"format\": \"{FORMAT}\", \"version\": \"{VERSION}\"");
        for text in [format!("{{{head}, \"{name}\" 1}}"), format!("{{{head}, \"{name}\": {{\"y\" 1}}}}")] {
            let told = parse_run(Path::new("run.json"), text.as_bytes()).unwrap_err().to_string();
            assert!(told.len() < 400 && !told.contains(char::is_control), "{told:?}");
        }
        let told = parse_line(Path::new("cells.jsonl"), 2, format!("{{\"{name}\" 1}}\n").as_bytes()).unwrap_err();
        assert!(!told.to_string().contains(char::is_control), "{told:?}");
        let mut unknown = Vec::new();
        let _ = tracked(Path::new("run.json"), format!("{{\"{name}\": 1}}").as_bytes(), &mut unknown);
        assert!(unknown.len() == 1 && !unknown[0].contains(char::is_control), "{unknown:?}");
    }
}
