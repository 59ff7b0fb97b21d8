//! From values to places on paper: linear and logarithmic scales, the axis of sizes, and their
//! ticks.

use crate::units;

/// How values are spread over an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Evenly.
    Linear,
    /// By their logarithm.
    Log,
}

impl Kind {
    /// The word for it in a page or file name.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Linear => "linear",
            Self::Log => "log",
        }
    }
}

/// One axis: values `low..=high` lie at places `from..=to`.
#[derive(Debug, Clone, Copy)]
pub struct Scale {
    kind: Kind,
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

/// A place on an axis with what is written there; an empty text is a tick without words.
#[derive(Debug, Clone, PartialEq)]
pub struct Tick {
    /// The place.
    pub at: f64,
    /// The words.
    pub text: String,
}

impl Scale {
    /// A scale for values between `low` and `high`, widened where they leave no room (equal, not
    /// finite, or not positive on a logarithmic scale), so that it can place any value.
    #[must_use]
    pub fn new(kind: Kind, low: f64, high: f64, from: f64, to: f64) -> Self {
        let (mut low, mut high) =
            if low.is_finite() && high.is_finite() && low <= high { (low, high) } else { (0.0, 1.0) };
        if kind == Kind::Log {
            low = if low > 0.0 { low } else { (high / 1e6).max(1e-9) };
            high = high.max(low);
            if high / low < 1.2 {
                (low, high) = (low / 1.2, high * 1.2);
            }
        } else if high - low <= f64::EPSILON * high.abs().max(low.abs()) * 16.0 {
            let room = if high == 0.0 { 1.0 } else { high.abs() * 0.2 };
            (low, high) = (low - room, high + room);
        }
        Self { kind, low, high, from, to }
    }

    /// The place of a value; what lies beyond the scale is put at its end.
    #[must_use]
    pub fn at(&self, value: f64) -> f64 {
        let part = match self.kind {
            Kind::Linear => (value - self.low) / (self.high - self.low),
            Kind::Log => (value.max(self.low * 1e-3) / self.low).ln() / (self.high / self.low).ln(),
        };
        let part = if part.is_nan() { 0.0 } else { part.clamp(0.0, 1.0) };
        self.from + part * (self.to - self.from)
    }

    /// The value at a part (0..=1) of the scale.
    #[must_use]
    pub fn value_at(&self, part: f64) -> f64 {
        match self.kind {
            Kind::Linear => self.low + part * (self.high - self.low),
            Kind::Log => self.low * (self.high / self.low).powf(part),
        }
    }

    /// Whether a value lies on the scale.
    #[must_use]
    pub fn holds(&self, value: f64) -> bool {
        value >= self.low * (1.0 - 1e-9) - 1e-12 && value <= self.high * (1.0 + 1e-9) + 1e-12
    }

    /// Which part (0..=1) of the scale lies below a value.
    #[must_use]
    pub fn part(&self, value: f64) -> f64 {
        (self.at(value) - self.from) / (self.to - self.from)
    }

    /// Least and largest value.
    #[must_use]
    pub fn range(&self) -> (f64, f64) {
        (self.low, self.high)
    }

    /// Ticks, about `wanted` of them with words.
    #[must_use]
    pub fn ticks(&self, wanted: usize, words: fn(f64) -> String) -> Vec<Tick> {
        let held = |wanted: usize| {
            let mut values = match self.kind {
                Kind::Linear => linear_ticks(self.low, self.high, wanted),
                Kind::Log => log_ticks(self.low, self.high, wanted),
            };
            values.retain(|v| self.holds(*v));
            values
        };
        // One tick alone tells no scale.
        let finer = [1, 2, 4].map(|times| held(wanted * times));
        let enough = finer.iter().position(|values| values.len() > 1).unwrap_or(0);
        // Nothing is nothing in any unit: 0 ns on an axis of seconds would look like another one.
        let text = |v: f64| if v == 0.0 { "0".to_owned() } else { words(v) };
        finer[enough].iter().map(|v| Tick { at: self.at(*v), text: text(*v) }).collect()
    }
}

fn linear_ticks(low: f64, high: f64, wanted: usize) -> Vec<f64> {
    let rough = (high - low) / wanted.max(1) as f64;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|m| m * power).find(|s| *s >= rough * 0.999).unwrap_or(rough);
    let first = (low / step).ceil();
    let last = (high / step).floor();
    if !(step > 0.0 && first.is_finite() && last - first < 1000.0) {
        return vec![low, high];
    }
    (0..=(last - first).max(0.0) as u32).map(|i| (first + f64::from(i)) * step).collect()
}

fn log_ticks(low: f64, high: f64, wanted: usize) -> Vec<f64> {
    let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
    let decades = (high / low).log10();
    let steps: &[f64] = match decades {
        d if d < 0.7 => return linear_ticks(low, high, wanted),
        d if d < 1.6 => &[1.0, 1.5, 2.0, 3.0, 5.0, 7.0],
        d if d < 3.5 => &[1.0, 2.0, 5.0],
        _ => &[1.0],
    };
    let skip = if steps.len() == 1 { (decades / wanted.max(1) as f64).ceil().max(1.0) as i32 } else { 1 };
    (first..=last)
        .filter(|power| power.rem_euclid(skip) == 0)
        .flat_map(|power| steps.iter().map(move |step| step * 10f64.powi(power)))
        .collect()
}

/// The axis of message sizes: logarithmic to base 2 where sizes differ much, with a place of its
/// own for size 0.
#[derive(Debug, Clone)]
pub struct Sizes {
    all: Vec<u64>,
    scale: Scale,
    zero_at: Option<f64>,
}

impl Sizes {
    /// An axis for these sizes (bytes, ordered) between two places.
    #[must_use]
    pub fn new(sizes: &[u64], from: f64, to: f64) -> Self {
        let positive: Vec<u64> = sizes.iter().copied().filter(|s| *s > 0).collect();
        let (low, high) = (positive.first().copied().unwrap_or(1) as f64, positive.last().copied().unwrap_or(1) as f64);
        let log = high / low > 16.0;
        let has_zero = sizes.first() == Some(&0);
        if !log {
            let low = if has_zero { 0.0 } else { low };
            return Self { all: sizes.to_vec(), scale: Scale::new(Kind::Linear, low, high, from, to), zero_at: None };
        }
        // Size 0 stands one step before the smallest other size.
        let step = (to - from) / ((high / low).log2() + 1.0).max(2.0);
        let start = if has_zero { from + step.min(48.0) } else { from };
        Self {
            all: sizes.to_vec(),
            scale: Scale::new(Kind::Log, low, high, start, to),
            zero_at: has_zero.then_some(from),
        }
    }

    /// The place of a size.
    #[must_use]
    pub fn at(&self, size: u64) -> f64 {
        match self.zero_at {
            Some(place) if size == 0 => place,
            _ => self.scale.at(size as f64),
        }
    }

    /// The sizes.
    #[must_use]
    pub fn all(&self) -> &[u64] {
        &self.all
    }

    /// How wide a mark at one size may be without touching the next one's.
    #[must_use]
    pub fn pitch(&self) -> f64 {
        let places: Vec<f64> = self.all.iter().map(|s| self.at(*s)).collect();
        places.windows(2).map(|w| w[1] - w[0]).fold(40.0, f64::min).max(1.0)
    }

    /// Ticks at round sizes, about `wanted`, always one at 0 where it was measured.
    #[must_use]
    pub fn ticks(&self, wanted: usize) -> Vec<Tick> {
        let words = |bytes: f64| units::size(bytes.round() as u64);
        let mut ticks: Vec<Tick> = self.zero_at.into_iter().map(|at| Tick { at, text: "0".into() }).collect();
        let (low, high) = self.scale.range();
        if self.all.len() <= wanted.min(6) {
            return self.all.iter().map(|s| Tick { at: self.at(*s), text: units::size(*s) }).collect();
        }
        if self.scale.kind == Kind::Linear {
            return self.scale.ticks(wanted, words);
        }
        let (first, last) = (low.log2().ceil() as i32, high.log2().floor() as i32);
        let skip = [1, 2, 5, 10].into_iter().find(|s| (last - first) / s < wanted as i32).unwrap_or(10);
        ticks.extend(
            (first..=last)
                .filter(|power| power.rem_euclid(skip) == 0)
                .map(|power| 2f64.powi(power))
                .map(|bytes| Tick { at: self.scale.at(bytes), text: words(bytes) }),
        );
        ticks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_places_its_ends_and_middle() {
        let linear = Scale::new(Kind::Linear, 0.0, 10.0, 100.0, 200.0);
        assert_eq!([linear.at(0.0), linear.at(5.0), linear.at(10.0), linear.at(99.0)], [100.0, 150.0, 200.0, 200.0]);
        let log = Scale::new(Kind::Log, 1.0, 100.0, 0.0, 10.0);
        assert!((log.at(10.0) - 5.0).abs() < 1e-9);
        assert!((log.value_at(0.5) - 10.0).abs() < 1e-9);
    }

    #[test]
    fn degenerate_ranges_still_have_room() {
        let bad = [(3.0, 3.0), (0.0, 0.0), (f64::NAN, 1.0), (-1.0, -1.0), (f64::INFINITY, f64::INFINITY), (0.0, 5.0)];
        for kind in [Kind::Linear, Kind::Log] {
            for (low, high) in bad {
                let scale = Scale::new(kind, low, high, 0.0, 100.0);
                for value in [low, high, 0.0, -5.0, f64::NAN, f64::INFINITY] {
                    let at = scale.at(value);
                    assert!((0.0..=100.0).contains(&at), "{kind:?} {low}..{high}: {value} at {at}");
                }
                assert!(scale.ticks(5, units::time).iter().all(|t| t.at.is_finite()));
            }
        }
    }

    #[test]
    fn ticks_are_round_and_few() {
        let texts = |scale: Scale| scale.ticks(5, units::time).into_iter().map(|t| t.text).collect::<Vec<_>>();
        assert_eq!(
            texts(Scale::new(Kind::Linear, 0.0, 1000.0, 0.0, 1.0)),
            ["0", "200 ns", "400 ns", "600 ns", "800 ns", "1 µs"]
        );
        assert_eq!(texts(Scale::new(Kind::Log, 900.0, 2e7, 0.0, 1.0)), ["1 µs", "10 µs", "100 µs", "1 ms", "10 ms"]);
        for (low, high) in [(1.0, 1.1), (1.0, 30.0), (1.0, 1e12), (1e-9, 1e9), (123.0, 456.0)] {
            for kind in [Kind::Linear, Kind::Log] {
                let n = Scale::new(kind, low, high, 0.0, 1.0).ticks(6, units::time).len();
                assert!((2..=14).contains(&n), "{kind:?} {low}..{high}: {n}");
            }
        }
    }

    #[test]
    fn an_axis_has_two_ticks_at_least_and_one_unit_for_nothing() {
        for (low, high) in [(1.1e3, 8.9e3), (0.6e3, 9.9e3), (4.2, 6.1), (2.1e4, 3.9e4), (0.0, 4.9e9)] {
            for wanted in [2, 3, 4] {
                let ticks = Scale::new(Kind::Linear, low, high, 0.0, 1.0).ticks(wanted, units::time);
                assert!((2..=9).contains(&ticks.len()), "{low}..{high}, {wanted}: {ticks:?}");
            }
        }
        let log = Scale::new(Kind::Log, 1.5e4, 5e7, 0.0, 1.0).ticks(3, units::time);
        assert!((2..=9).contains(&log.len()), "{log:?}");
        assert_eq!(Scale::new(Kind::Linear, 0.0, 3e10, 0.0, 1.0).ticks(3, units::time)[0].text, "0");
    }

    #[test]
    fn size_zero_has_a_place_of_its_own() {
        let sizes: Vec<u64> = std::iter::once(0).chain((0..=20).map(|p| 1 << p)).collect();
        let axis = Sizes::new(&sizes, 0.0, 500.0);
        assert_eq!(axis.at(0), 0.0);
        assert!(axis.at(1) > 5.0 && axis.at(1) < 50.0);
        assert_eq!(axis.at(1 << 20), 500.0);
        let ticks = axis.ticks(8);
        assert_eq!(ticks[0].text, "0");
        assert!(ticks.iter().any(|t| t.text == "1 KiB"), "{ticks:?}");
        assert!(axis.pitch() > 5.0);
    }

    #[test]
    fn one_size_or_none_is_no_trouble() {
        for sizes in [&[][..], &[0], &[8], &[0, 8]] {
            let axis = Sizes::new(sizes, 0.0, 500.0);
            assert!(axis.ticks(8).iter().all(|t| t.at.is_finite()));
            assert!(axis.at(8).is_finite() && axis.pitch().is_finite());
        }
    }
}
