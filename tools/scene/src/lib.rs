//! What a prediction looks like: one page ([`page::html`]) that opens without a network, and a
//! trace ([`trace::write`]) for viewers of Chrome's trace events such as Perfetto.
//!
//! Both are made from plain data ([`Scene`], [`Timeline`]); whoever predicts fills it in. A
//! timeline is bounded: a [`Collector`] keeps the beginning of a run and says what it left out.

#![forbid(unsafe_code)]

pub mod page;
mod plots;
pub mod timeline;
pub mod trace;

pub use plots::processes;
pub use timeline::{Arrow, Bar, Collector, Doing, Timeline};

/// A program's predictions, as a page shows them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Scene {
    /// The page's title: which program, on which machine.
    pub title: String,
    /// What should be known of the prediction, as names and values.
    pub facts: Vec<(String, String)>,
    /// What should be known before it is believed: extrapolations, assumptions. Each a line.
    pub notices: Vec<String>,
    /// One for each number of processes, ascending.
    pub points: Vec<Point>,
    /// Numbers of processes without a prediction, each with why, in one line.
    pub failed: Vec<(u32, String)>,
    /// One run in full, or its beginning.
    pub timeline: Option<Timeline>,
}

impl Scene {
    /// What speed-ups are against: the smallest number of processes and seconds. With one process
    /// its run time, with more what they compute together.
    #[must_use]
    pub fn work(&self) -> Option<(u32, f64)> {
        let least = self.points.first()?;
        let computed = || least.causes.iter().find(|(name, _)| name == "computation").map(|(_, s)| *s);
        let seconds = if least.numprocs == 1 { Some(least.median_s) } else { computed() };
        seconds.filter(|s| *s > 0.0 && s.is_finite()).map(|s| (least.numprocs, s))
    }
}

/// The prediction for one number of processes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Point {
    /// How many processes.
    pub numprocs: u32,
    /// Median of the run times, seconds.
    pub median_s: f64,
    /// Lower end of the 95 % band, seconds.
    pub low_s: f64,
    /// Upper end of the 95 % band, seconds.
    pub high_s: f64,
    /// Run time of each replica, seconds.
    pub times_s: Vec<f64>,
    /// Processor time by cause, seconds; computation first. The same causes in the same order in
    /// each point.
    pub causes: Vec<(String, f64)>,
    /// Source lines with the most processor time lost, most first.
    pub lines: Vec<LineLoss>,
}

/// What a line of the source costs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LineLoss {
    /// File and line: `jacobi.c:41`.
    pub place: String,
    /// The line's text.
    pub text: String,
    /// Processor time lost there by cause, seconds, most first.
    pub causes: Vec<(String, f64)>,
}

impl LineLoss {
    /// All that is lost there, seconds.
    #[must_use]
    pub fn total_s(&self) -> f64 {
        self.causes.iter().map(|(_, s)| s).sum()
    }
}
