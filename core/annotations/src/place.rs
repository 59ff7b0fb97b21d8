//! Places in the sources, and what is wrong there.

/// A place in the sources: what diagnostics point to and what lost time is counted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Place {
    /// Which file, an index into [`crate::Program::files`] ([`crate::Model::files`]).
    pub file: u32,
    /// The line, from 1.
    pub line: u32,
    /// The column in characters, from 1.
    pub column: u32,
    /// How many characters it spans; 0 where only its beginning is known.
    pub length: u32,
}

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// The model is evaluated nevertheless.
    Warning,
    /// There is no model.
    Error,
}

/// Errors after which no more is looked for: nobody reads them, and each takes memory.
const MOST_ERRORS: usize = 1000;

/// Whether so many errors have been found that no more is looked for.
pub(crate) fn enough(found: &[Diagnostic]) -> bool {
    found.len() >= MOST_ERRORS && found.iter().filter(|d| d.severity == Severity::Error).nth(MOST_ERRORS - 1).is_some()
}

/// What is wrong at a place, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// How bad it is.
    pub severity: Severity,
    /// A word that stays the same from version to version, such as `unknown-attribute`.
    pub code: &'static str,
    /// What is wrong, one line.
    pub message: String,
    /// Where.
    pub place: Place,
    /// Other places that belong to it, each with what is there.
    pub also: Vec<(Place, String)>,
    /// What to do about it, one line.
    pub help: Option<String>,
}

impl Diagnostic {
    /// An error at a place.
    #[must_use]
    pub fn error(code: &'static str, place: Place, message: impl Into<String>) -> Self {
        Self { severity: Severity::Error, code, message: message.into(), place, also: Vec::new(), help: None }
    }

    /// A warning at a place.
    #[must_use]
    pub fn warning(code: &'static str, place: Place, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(code, place, message) }
    }

    /// The same with advice.
    #[must_use]
    pub fn with_help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// The same with another place that belongs to it.
    #[must_use]
    pub fn with_place(mut self, place: Place, what: impl Into<String>) -> Self {
        self.also.push((place, what.into()));
        self
    }
}
