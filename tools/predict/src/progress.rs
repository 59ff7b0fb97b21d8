//! The bar that shows how far long work is: also within a run, which of millions of processes takes
//! minutes.

use std::io::IsTerminal as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use weir_predict::{Observer, Time};

use crate::table;

/// Parts of a run on the bar.
const PARTS: u64 = 1000;

/// A bar over runs; not drawn where nobody sees it.
#[derive(Debug)]
pub struct Progress {
    /// Of one run it is drawn only once that has taken a while.
    bar: OnceLock<ProgressBar>,
    seen: bool,
    what: String,
    runs: u64,
    ended: AtomicU64,
    /// Steps of a run: at most, and of the last that came to its end.
    budget: u64,
    usual: AtomicU64,
}

impl Progress {
    /// Of so many runs of this, none of which may take more steps than `budget`.
    pub fn new(what: String, runs: u64, budget: u64, quiet: bool) -> Self {
        let seen = !quiet && std::io::stderr().is_terminal();
        let (bar, ended, usual) = (OnceLock::new(), AtomicU64::new(0), AtomicU64::new(0));
        let progress = Self { bar, seen, what, runs, ended, budget, usual };
        if runs > 1 {
            progress.tell();
        }
        progress
    }

    /// One run begins.
    pub fn run(&self) -> OneRun<'_> {
        OneRun { of: self, told: 0, steps: 0 }
    }

    /// All is done, or given up.
    pub fn clear(&self) {
        if let Some(bar) = self.bar.get() {
            bar.finish_and_clear();
        }
    }

    fn bar(&self) -> &ProgressBar {
        self.bar.get_or_init(|| {
            if !self.seen {
                let bar = ProgressBar::hidden();
                bar.set_length(self.runs * PARTS);
                return bar;
            }
            let bar = ProgressBar::with_draw_target(Some(self.runs * PARTS), ProgressDrawTarget::stderr_with_hz(5));
            // How long one run will take nobody knows; but how long it may.
            let end = if self.runs > 1 { "{percent} %, {eta} left" } else { "{percent} % of --budget" };
            if let Ok(style) = ProgressStyle::with_template(&format!("{{msg}} {{wide_bar}} {end}")) {
                bar.set_style(style);
            }
            bar.enable_steady_tick(Duration::from_millis(500));
            bar
        })
    }

    fn tell(&self) {
        let ended = self.ended.load(Ordering::Relaxed);
        self.bar().set_message(format!("{}, {ended} of {} runs", self.what, self.runs));
    }
}

/// Tells how far one run is.
#[derive(Debug)]
pub struct OneRun<'a> {
    of: &'a Progress,
    /// Parts of the run that the bar has.
    told: u64,
    steps: u64,
}

impl OneRun<'_> {
    /// The run has come to its end.
    pub fn ends(self) {
        let of = self.of;
        of.usual.store(self.steps, Ordering::Relaxed);
        of.ended.fetch_add(1, Ordering::Relaxed);
        if of.runs > 1 {
            of.bar().inc(PARTS - self.told);
            of.tell();
        }
    }
}

impl Observer for OneRun<'_> {
    fn watches(&self) -> bool {
        false
    }

    fn steps(&mut self, steps: u64, now: Time) {
        self.steps = steps;
        let usual = self.of.usual.load(Ordering::Relaxed);
        let all = if usual > 0 { usual } else { self.of.budget };
        let part = (u128::from(steps) * u128::from(PARTS) / u128::from(all.max(1))).min(u128::from(PARTS - 1));
        let part = u64::try_from(part).unwrap_or(PARTS - 1).max(self.told);
        self.of.bar().inc(part - self.told);
        self.told = part;
        if self.of.runs == 1 {
            let at = table::duration(now.seconds());
            self.of.bar().set_message(format!("{}, {} million steps, {at} predicted", self.of.what, steps / 1_000_000));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_predict::{Machine, Options, evaluate_observed};

    /// The places of the bar while one process takes so many steps, as they are told.
    fn places(runs: u64, steps: u64) -> (Vec<u64>, Progress) {
        struct Noted<'a>(OneRun<'a>, Vec<u64>);
        impl Observer for Noted<'_> {
            fn watches(&self) -> bool {
                false
            }
            fn steps(&mut self, steps: u64, now: Time) {
                self.0.steps(steps, now);
                self.1.push(self.0.of.bar().position());
            }
        }
        let source = weir_annotations::Source { name: "p", text: "Loop while = 1 {\nSerial time = 1\n}\n" };
        let program = weir_annotations::parse(&[source]).unwrap().program;
        let setting = weir_annotations::Setting { numprocs: 1, ..Default::default() };
        let model = program.model(&setting).unwrap().model;
        let options = Options { budget: steps, ..Options::default() };
        let progress = Progress::new("one".to_owned(), runs, steps, true);
        let mut noted = Noted(progress.run(), Vec::new());
        evaluate_observed(&model, &Machine::simplest(Time::ZERO, 1e9), &options, 1, &mut noted);
        let Noted(run, places) = noted;
        run.ends();
        (places, progress)
    }

    #[test]
    fn the_bar_moves_within_a_run() {
        let (places, progress) = places(1, 10_000_000);
        assert!(places.len() > 5 && places.is_sorted() && places[0] > 0, "{places:?}");
        assert!(places[0] < 200 && places.last().is_some_and(|last| (900..1000).contains(last)), "{places:?}");
        let said = progress.bar().message();
        assert!(
            said.starts_with("one, ") && said.contains(" million steps, ") && said.ends_with(" predicted"),
            "{said}"
        );
    }

    #[test]
    fn of_several_runs_each_has_its_part() {
        let (places, progress) = places(4, 5_000_000);
        assert!(places.last().is_some_and(|last| *last < PARTS), "{places:?}");
        assert_eq!((progress.bar().position(), progress.bar().length()), (PARTS, Some(4 * PARTS)));
        assert_eq!(progress.bar().message(), "one, 1 of 4 runs");
        // Others are known to take as many steps as that one did.
        let mut second = progress.run();
        second.steps(places.len() as u64 / 2 * (1 << 20), Time::ZERO);
        assert!((PARTS + 300..2 * PARTS).contains(&progress.bar().position()), "{:?}", progress.bar().position());
        second.ends();
        assert_eq!(progress.bar().position(), 2 * PARTS);
    }
}
