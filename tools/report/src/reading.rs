//! What may be read from a number of samples: from how many on a quantile, a form or a fit means
//! something, and how narrow an interval can be when a clock ticks.

use weir_distribution::FitRecord;

use crate::digest::Point;
use crate::units;

/// Samples from which on the 99th percentile is another one than the largest, and a form or a fit
/// is more than chance.
pub const ENOUGH: u64 = 100;

/// Launches' medians that are so many times apart are no repetitions of one another.
pub const APART: f64 = 2.0;

/// An interval as it may be shown.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shown {
    /// Lower end.
    pub low_ns: f64,
    /// Upper end.
    pub high_ns: f64,
    /// Made as wide as a tick of the clock, which is more than chance alone left open.
    pub by_tick: bool,
}

impl Point {
    /// Whether its 99th percentile means something: each launch, whose median it is, has [`ENOUGH`]
    /// samples.
    #[must_use]
    pub fn knows_p99(&self) -> bool {
        self.row.count / u64::from(self.launches.max(1)) >= ENOUGH
    }

    /// The 99th percentile of its span, where each launch has [`ENOUGH`] repetitions.
    #[must_use]
    pub fn span_p99(&self) -> Option<f64> {
        let row = self.span.row.as_ref()?;
        (row.count / u64::from(self.launches.max(1)) >= ENOUGH).then_some(row.p99_ns)
    }

    /// Whether several launches measured it, so that its statistics are medians of theirs.
    #[must_use]
    pub fn has_launches(&self) -> bool {
        self.launch_medians.len() > 1
    }

    /// From the least to the greatest median of its launches; nothing of one launch.
    #[must_use]
    pub fn launch_range(&self) -> Option<(f64, f64)> {
        let range = |r: (f64, f64), m: &f64| (r.0.min(*m), r.1.max(*m));
        self.has_launches().then(|| self.launch_medians.iter().fold((f64::INFINITY, f64::NEG_INFINITY), range))
    }

    /// How many times apart its launches' medians are, if that is more than [`APART`]: they saw two
    /// states of the machine, or one of them was disturbed, and what lies between stands for none
    /// of them.
    #[must_use]
    pub fn apart(&self) -> Option<f64> {
        self.launch_range().filter(|r| r.0 > 0.0).map(|(low, high)| high / low).filter(|factor| *factor > APART)
    }

    /// Whether its form means something: [`ENOUGH`] samples, or a histogram that somebody wrote
    /// without any.
    #[must_use]
    pub fn has_form(&self) -> bool {
        !self.curve.is_empty() && (self.drawn == 0 || self.drawn >= ENOUGH)
    }

    /// The fits that were made from [`ENOUGH`] samples.
    pub fn sound_fits(&self) -> impl Iterator<Item = &FitRecord> {
        let some = self.has_form();
        self.fits.iter().filter(move |f| some && f.samples.is_none_or(|n| n >= ENOUGH))
    }

    /// The chosen one of these.
    #[must_use]
    pub fn sound_choice(&self) -> Option<&FitRecord> {
        self.sound_fits().find(|f| f.chosen)
    }

    /// The interval of the median, at least one tick of the clock wide: a hundred thousand equal
    /// readings do not make a clock finer than it is.
    #[must_use]
    pub fn interval(&self) -> Option<Shown> {
        let (low, high) = (self.row.median_low_ns?, self.row.median_high_ns?);
        let by_tick = high - low < self.tick_ns;
        if !by_tick {
            return Some(Shown { low_ns: low, high_ns: high, by_tick });
        }
        let (middle, half) = (f64::midpoint(low, high), self.tick_ns / 2.0);
        Some(Shown { low_ns: (middle - half).max(low.min(0.0)), high_ns: middle + half, by_tick })
    }
}

impl Shown {
    /// Both ends in one unit, with as many digits as tell them apart: `16.46 – 16.50 µs`.
    #[must_use]
    pub fn words(&self) -> String {
        units::range(self.low_ns, self.high_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_distribution::SummaryRecord;

    fn point(count: u64, low: f64, high: f64, tick_ns: f64) -> Point {
        let samples =
            (0..count).map(|i| weir_distribution::Sample { duration_ns: 1000.0 + i as f64, ..Default::default() });
        let mut run = weir_distribution::Run::new("m");
        let mut cell = weir_distribution::Cell::new(0, 0, weir_distribution::Configuration::pair("send", 8));
        cell.samples = Some(weir_distribution::SamplesFile::default());
        run.cells = vec![cell];
        let all: Vec<_> = samples.collect();
        let digest = crate::condense::digest(run, "m", &|_| Ok(all.clone()));
        let mut point = digest.profiles[0].points.values().next().expect("a point").clone();
        let interval = SummaryRecord { median_low_ns: Some(low), median_high_ns: Some(high), ..point.row.clone() };
        (point.row, point.tick_ns) = (interval, tick_ns);
        point
    }

    #[test]
    fn an_interval_is_no_narrower_than_a_tick() {
        let narrow = point(200, 1000.0, 1000.0, 20.0).interval().expect("an interval");
        assert_eq!((narrow.low_ns, narrow.high_ns, narrow.by_tick), (990.0, 1010.0, true));
        assert_eq!(narrow.words(), "0.99 – 1.01 µs");
        let wide = point(200, 1000.0, 1030.0, 20.0).interval().expect("an interval");
        assert_eq!((wide.low_ns, wide.high_ns, wide.by_tick), (1000.0, 1030.0, false));
        let small = point(200, 4.0, 4.0, 20.0).interval().expect("an interval");
        assert_eq!(small.low_ns, 0.0, "no time below nothing");
    }

    #[test]
    fn few_samples_have_no_p99_no_form_and_no_fits() {
        let (few, enough) = (point(99, 0.0, 9.0, 0.0), point(100, 0.0, 9.0, 0.0));
        assert!(!few.knows_p99() && !few.has_form());
        assert!(enough.knows_p99() && enough.has_form());
        let launches = Point { launches: 5, ..point(400, 0.0, 9.0, 0.0) };
        assert!(!launches.knows_p99() && launches.has_form(), "80 in each launch, 400 in all");
    }
}
