//! Writes the directives of a performance model (`spec/annotations.md`) into C source with MPI
//! calls.
//!
//! [`annotate`] reads C as text, without a compiler: messages, loops, branches by rank, sizes,
//! peers, tags, communicators and requests become directives before the statements they are about.
//! What cannot be known from the text becomes a parameter, and is listed with its line and the
//! reason ([`Annotated::unknown`]). What is computed between two calls is a `Serial` whose time is
//! a parameter, or was measured ([`measure`]).

#![forbid(unsafe_code)]

mod c;
mod calling;
mod calls;
pub mod cli;
pub mod emit;
mod error;
mod expr;
mod grid;
mod hidden;
mod leaving;
mod loops;
pub mod measure;
mod messages;
mod names;
mod prune;
mod steps;
mod translate;
mod types;
mod vars;
mod walk;

pub use error::{Error, Unknown};
pub use steps::Segment;

use steps::Step;

/// What is to be annotated.
#[derive(Debug, Clone)]
pub struct Options {
    /// The function that the model begins with.
    pub function: String,
    /// Only what lies between the first and the last call of `MPI_Wtime` in that function's own
    /// statements.
    pub timed: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { function: "main".into(), timed: false }
    }
}

/// A source and what its model says, before it is written down.
#[derive(Debug)]
pub struct Annotated {
    source: String,
    steps: Vec<Step>,
    values: emit::Values,
    /// What could not be known, by line.
    pub unknown: Vec<Unknown>,
    /// What is computed between calls, in the order of the source.
    pub segments: Vec<Segment>,
}

/// Reads C and works out its model. `file` is its name for messages.
///
/// # Errors
/// If there is nothing to model, it has directives already, it recurses, or it is beyond bounds.
/// Text that is no C is no error as long as a function that communicates can be found in it.
pub fn annotate(source: &str, file: &str, options: &Options) -> Result<Annotated, Error> {
    if let Some(line) = source.lines().position(|l| l.split_whitespace().take(3).any(|w| w == "PEVPM")) {
        return Err(Error::Annotated { file: file.to_owned(), line: u32::try_from(line).unwrap_or(u32::MAX - 1) + 1 });
    }
    let text = c::with_defines(source);
    let tree = c::parse(&text, file)?;
    let unit = c::Unit::of(&text, source.len(), &tree);
    let mut walker = walk::Walker::new(unit, file, &options.function)?;
    if options.timed {
        walker.between_clocks()?;
    }
    let steps = prune::pruned(walker.walk()?);
    let needed = prune::needed(&steps);
    walker.unknown.retain(|u| u.parameter.as_ref().is_none_or(|name| needed.contains(name)));
    walker.defaults.retain(|name, _| needed.contains(name));
    let mut segments = Vec::new();
    Step::segments(&steps, &mut |segment| segments.push(*segment));
    let mut unknown = walker.unknown;
    for segment in &segments {
        unknown.insert(Unknown {
            line: segment.line,
            parameter: Some(segment.parameter()),
            why: "the time of what is computed here; --measure finds it".into(),
        });
    }
    let values = emit::Values { defaults: walker.defaults, unindexed: walker.unindexed, ..emit::Values::default() };
    Ok(Annotated { source: source.to_owned(), steps, values, unknown: each_once(unknown), segments })
}

/// Each parameter once for each reason, with its first line.
fn each_once(unknown: std::collections::BTreeSet<Unknown>) -> Vec<Unknown> {
    let mut seen = std::collections::BTreeSet::new();
    unknown.into_iter().filter(|u| u.parameter.is_none() || seen.insert((u.parameter.clone(), u.why.clone()))).collect()
}

impl Annotated {
    /// The source with its directives.
    #[must_use]
    pub fn text(&self) -> String {
        emit::annotated(&self.source, &self.steps, &self.values)
    }

    /// Gives a segment a measured time, as the directive language writes times.
    pub fn set_time(&mut self, segment: &Segment, time: String) {
        let name = segment.parameter();
        self.unknown.retain(|u| u.parameter.as_ref() != Some(&name));
        self.values.times.insert(name, time);
    }

    /// The source without directives.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }
}
