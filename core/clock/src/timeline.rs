//! The global clock over a whole run: several synchronisations, and straight lines between them.

use crate::model::{Model, Reading, Span};
use crate::number::{gap, round};
use crate::probe::Assumptions;
use alloc::vec::Vec;

/// Why a model does not fit into a timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TimelineError {
    /// Synchronisations must come in the order of time.
    #[error("clock timeline: a synchronisation at {new_ns} ns does not come after the last one at {last_ns} ns")]
    NotLater {
        /// Anchor of the last model, local ns.
        last_ns: i64,
        /// Anchor of the model refused, local ns.
        new_ns: i64,
    },
}

/// What one synchronisation says best: the offset at its anchor.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Knot {
    local_ns: i64,
    offset_ns: i64,
    error_ns: f64,
}

/// One rank's global clock.
///
/// Between two synchronisations, at local times `b` and `a` with offsets `B` and `A`, the seed's
/// interpolation (Grove 2003, section 4.3.2):
///
/// `global(t) = t + B + (A - B) (t - b) / (a - b)`
///
/// Its error is at most the two ends' errors in the same proportion, plus
/// `wander/2 |t - b| |t - a|` for a drift that is not steady. Outside of all synchronisations the
/// same line is continued, for which the same bound holds (and grows), or the nearest
/// synchronisation's own model is used: whichever is bounded tighter. With one synchronisation
/// only, its model is all there is; convert after the last synchronisation, not before.
#[derive(Clone, Debug, PartialEq)]
pub struct Timeline {
    knots: Vec<Knot>,
    first: Model,
    last: Model,
    wander_per_ns: f64,
}

impl Timeline {
    /// A timeline with its first synchronisation.
    #[must_use]
    pub fn new(model: Model, assumptions: &Assumptions) -> Timeline {
        Timeline {
            knots: Vec::from([knot(&model)]),
            first: model,
            last: model,
            wander_per_ns: assumptions.wander_per_ns(),
        }
    }

    /// The root's timeline: its own clock, without error, for ever.
    #[must_use]
    pub fn root() -> Timeline {
        let assumptions = Assumptions { wander_per_s: 0.0, ..Assumptions::default() };
        Timeline::new(Model::IDENTITY, &assumptions)
    }

    /// Adds a later synchronisation. On the root, where every model is [`Model::IDENTITY`], nothing
    /// is to be added and nothing happens.
    ///
    /// # Errors
    /// [`TimelineError::NotLater`] if its anchor is not after the last one's; the timeline stays as
    /// it was.
    pub fn push(&mut self, model: Model) -> Result<(), TimelineError> {
        if model == Model::IDENTITY && self.last == Model::IDENTITY {
            return Ok(());
        }
        let (last_ns, new_ns) = (self.last.anchor_ns(), model.anchor_ns());
        if new_ns <= last_ns {
            return Err(TimelineError::NotLater { last_ns, new_ns });
        }
        self.knots.push(knot(&model));
        self.last = model;
        Ok(())
    }

    /// Synchronisations held.
    #[must_use]
    pub fn synchronisations(&self) -> usize {
        self.knots.len()
    }

    /// The model of the last synchronisation: what is known while the run goes on. Its
    /// [`Model::inverse`] gives the local time of an agreed global instant.
    #[must_use]
    pub fn latest(&self) -> &Model {
        &self.last
    }

    /// Global time of a local time, with its error bound.
    #[must_use]
    pub fn at(&self, local_ns: i64) -> Reading {
        match self.place(local_ns) {
            Place::Between(line) => line.at(local_ns),
            Place::Outside(Some(line), model) => tighter(line.at(local_ns), model.at(local_ns)),
            Place::Outside(None, model) => model.at(local_ns),
        }
    }

    /// Length between two local times of this rank on the global clock. If both lie between the
    /// same two synchronisations, or outside on the same side, the offset's error cancels and only
    /// the drift's counts; else the bounds of both ends do.
    #[must_use]
    pub fn duration(&self, start_ns: i64, end_ns: i64) -> Span {
        match (self.place(start_ns), self.place(end_ns)) {
            (Place::Between(a), Place::Between(b)) if a == b => a.duration(start_ns, end_ns),
            (Place::Outside(line, a), Place::Outside(_, b)) if a == b => {
                let by_model = a.duration(start_ns, end_ns);
                let by_line = line.map_or(by_model, |line| line.duration(start_ns, end_ns));
                if by_line.error_ns < by_model.error_ns { by_line } else { by_model }
            }
            _ => self.at(start_ns).until(self.at(end_ns)),
        }
    }

    fn place(&self, local_ns: i64) -> Place<'_> {
        let after = self.knots.partition_point(|k| k.local_ns <= local_ns);
        let n = self.knots.len();
        let line = |right: usize| {
            let knots = (self.knots.get(right.wrapping_sub(1)), self.knots.get(right));
            let (Some(b), Some(a)) = knots else { return None };
            Some(Chord { before: *b, after: *a, wander_per_ns: self.wander_per_ns })
        };
        match line(after) {
            Some(line) => Place::Between(line),
            None if after == 0 => Place::Outside(line(1), &self.first),
            None => Place::Outside(line(n - 1), &self.last),
        }
    }
}

enum Place<'a> {
    Between(Chord),
    Outside(Option<Chord>, &'a Model),
}

/// The straight line through two knots.
#[derive(Clone, Copy, PartialEq)]
struct Chord {
    before: Knot,
    after: Knot,
    wander_per_ns: f64,
}

impl Chord {
    fn run_ns(&self) -> f64 {
        gap(self.after.local_ns, self.before.local_ns)
    }

    fn rise_ns(&self) -> f64 {
        gap(self.after.offset_ns, self.before.offset_ns)
    }

    fn at(&self, local_ns: i64) -> Reading {
        let (from, to) = (gap(local_ns, self.before.local_ns), gap(local_ns, self.after.local_ns));
        let share = from / self.run_ns();
        let offset_ns = self.before.offset_ns.saturating_add(round(self.rise_ns() * share));
        let ends_ns = (1.0 - share).abs() * self.before.error_ns + share.abs() * self.after.error_ns;
        Reading {
            global_ns: local_ns.saturating_add(offset_ns),
            error_ns: ends_ns + 0.5 * self.wander_per_ns * (from * to).abs() + 0.5,
        }
    }

    fn duration(&self, start_ns: i64, end_ns: i64) -> Span {
        let length = gap(end_ns, start_ns);
        let reach = |t: i64| gap(t, self.before.local_ns).abs().max(gap(t, self.after.local_ns).abs());
        // The true rate equals the true chord's somewhere between the knots, and wanders from
        // there.
        let drift = (self.before.error_ns + self.after.error_ns) / self.run_ns();
        let bend = self.wander_per_ns * reach(start_ns).max(reach(end_ns));
        let by_rate = (drift + bend) * length.abs();
        let by_ends = self.at(start_ns).error_ns + self.at(end_ns).error_ns;
        Span { duration_ns: length + self.rise_ns() / self.run_ns() * length, error_ns: by_rate.min(by_ends) }
    }
}

fn knot(model: &Model) -> Knot {
    let local_ns = model.anchor_ns();
    Knot { local_ns, offset_ns: model.offset_ns(), error_ns: model.bound().error_ns(0.0) }
}

fn tighter(a: Reading, b: Reading) -> Reading {
    if a.error_ns < b.error_ns { a } else { b }
}
