//! Diagnostics with the lines they are about.

use std::fmt::Write as _;

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};
use weir_annotations::{Diagnostic, Place, Severity};

use crate::input::Text;

/// Diagnostics that are shown at most; the rest is counted.
const MOST: usize = 20;

/// All of them as text, the errors' number last.
pub fn diagnostics(all: &[Diagnostic], texts: &[Text], colour: bool) -> String {
    let mut out = String::new();
    for diagnostic in all.iter().take(MOST) {
        out.push_str(&one(diagnostic, texts, colour));
        out.push('\n');
    }
    if all.len() > MOST {
        let _ = writeln!(out, "... and {} more", all.len() - MOST);
    }
    out
}

fn one(diagnostic: &Diagnostic, texts: &[Text], colour: bool) -> String {
    let level = match diagnostic.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
    };
    let title = level.primary_title(&diagnostic.message).id(diagnostic.code);
    let mut group = Group::with_title(title);
    let place = diagnostic.place;
    let marks = std::iter::once((place, None)).chain(diagnostic.also.iter().map(|(p, what)| (*p, Some(what.as_str()))));
    let marks: Vec<_> = marks.filter(|(place, _)| place.line > 0).collect();
    // One snippet a file, the diagnostic's own first.
    let mut files: Vec<u32> = Vec::new();
    for (place, _) in &marks {
        if !files.contains(&place.file) {
            files.push(place.file);
        }
    }
    for file in files {
        let Some(text) = texts.get(file as usize) else { continue };
        let mut snippet = Snippet::source(text.text.as_str()).path(text.name.as_str()).fold(true);
        for (at, (place, what)) in marks.iter().enumerate().filter(|(_, (place, _))| place.file == file) {
            let Some(span) = span(&text.text, *place) else { continue };
            let kind = if at == 0 { AnnotationKind::Primary } else { AnnotationKind::Context };
            let mark = kind.span(span);
            snippet = snippet.annotation(match what {
                Some(what) => mark.label(*what),
                None => mark,
            });
        }
        group = group.element(snippet);
    }
    if let Some(help) = &diagnostic.help {
        group = group.element(Level::HELP.message(help));
    }
    let renderer = if colour { Renderer::styled() } else { Renderer::plain() };
    renderer.render(&[group])
}

/// The bytes of a place.
fn span(text: &str, place: Place) -> Option<std::ops::Range<usize>> {
    let line_begin = match place.line {
        0 => return None,
        1 => 0,
        line => text.match_indices('\n').nth(line as usize - 2)?.0 + 1,
    };
    let line = text.get(line_begin..)?.split('\n').next()?;
    let byte = |column: u32| line.char_indices().nth(column as usize).map_or(line.len(), |(at, _)| at);
    let begin = byte(place.column.saturating_sub(1));
    let end = byte(place.column.saturating_sub(1).saturating_add(place.length.max(1)));
    Some(line_begin + begin..line_begin + end)
}

/// `file:line` of a place, for one line.
pub fn at(place: Place, files: &[String]) -> String {
    match files.get(place.file as usize) {
        Some(file) => format!("{file}:{}", place.line),
        None => format!("line {}", place.line),
    }
}
