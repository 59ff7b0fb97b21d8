//! What can go wrong, and what the annotator could not know; each is one line for people.

use std::fmt;
use std::path::PathBuf;

/// Why there is no model.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file cannot be written.
    #[error("cannot write {}: {source}; choose another place with -o", path.display())]
    Write {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is too long.
    #[error("{file}: longer than {most} bytes")]
    TooLong {
        /// Which.
        file: String,
        /// What is read at most.
        most: usize,
    },
    /// The parser gave up.
    #[error("{file}: cannot be parsed as C")]
    Unreadable {
        /// Which.
        file: String,
    },
    /// It has directives.
    #[error("{file}:{line}: there are directives already; give the source without them")]
    Annotated {
        /// Which.
        file: String,
        /// Of the first directive.
        line: u32,
    },
    /// There is no such function.
    #[error("{file}: no function {function}; name the one to begin with by --function")]
    NoFunction {
        /// Which file.
        file: String,
        /// Which function.
        function: String,
    },
    /// A function that communicates calls itself.
    #[error(
        "{file}:{line}: {function} communicates and calls itself ({chain}); a model has no recursion: make it a loop"
    )]
    Recursion {
        /// Which file.
        file: String,
        /// Where it is called again.
        line: u32,
        /// Which function.
        function: String,
        /// Who calls whom.
        chain: String,
    },
    /// Functions within functions make more than can be written down.
    #[error("{file}:{line}: the model would have more than {most} directives")]
    TooMuch {
        /// Which file.
        file: String,
        /// Where the bound was met.
        line: u32,
        /// The bound.
        most: usize,
    },
    /// Statements nested too deeply.
    #[error("{file}:{line}: statements nested deeper than {most}")]
    TooDeep {
        /// Which file.
        file: String,
        /// Where the bound was met.
        line: u32,
        /// The bound.
        most: usize,
    },
    /// There is nothing to model.
    #[error("{file}: {function} makes no call of MPI that sends, receives or waits{}", listed(.hidden))]
    Nothing {
        /// Which file.
        file: String,
        /// The function that was looked at.
        function: String,
        /// What may communicate without its being seen: at most three.
        hidden: Vec<Unknown>,
    },
    /// A compiler, launcher or program failed.
    #[error("{what}")]
    Run {
        /// What failed, and how.
        what: String,
    },
    /// The command line makes no sense.
    #[error("{0}")]
    Usage(String),
}

/// The end of a line that names what is not seen.
fn listed(hidden: &[Unknown]) -> String {
    hidden.iter().map(|unknown| format!("; line {unknown}")).collect()
}

/// Something that the annotator could not know.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unknown {
    /// Line of the source.
    pub line: u32,
    /// The parameter that stands for it, if one can.
    pub parameter: Option<String>,
    /// What it is, and why it is not known.
    pub why: String,
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.parameter {
            Some(name) => write!(f, "{}: parameter {name}: {}", self.line, self.why),
            None => write!(f, "{}: {}", self.line, self.why),
        }
    }
}
