//! One cell's samples as they come: a histogram of everything, a bounded uniform choice of them,
//! and moments, in constant memory.

use std::io::Read as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};

use crate::Error;
use crate::error::argument;
use crate::random::{Random, seeded};
use crate::reservoir::Slots;
use crate::sample::{Sample, check_duration};
use crate::summary::{CONFIDENCE, Interval, Summary, dependent_quantile_interval, dependent_ranks};

/// Bytes before the deflated stream in the V2 encoding: a cookie and a length.
const ENVELOPE: usize = 8;
/// What a deflated V2 histogram begins with.
const V2_DEFLATE_COOKIE: [u8; 4] = 0x1c84_9314_u32.to_be_bytes();
/// Bytes of a histogram inflated; one of five digits over all of 64 bits, each of its counts in
/// nine bytes, has less.
const MOST_INFLATED: u64 = 64 << 20;

/// The greatest value a histogram tells apart, about 12 days in nanoseconds; what is above is
/// counted there.
pub const HIGHEST: u64 = 1 << 50;

/// How a [`Recorder`] is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct RecorderConfig {
    /// Samples kept one by one; beyond it a uniform choice of that many.
    pub reservoir: usize,
    /// Decimal digits the histogram keeps of each value, 1 to 4. With 3 it takes 336 KiB, with 2 a
    /// tenth.
    pub digits: u8,
    /// Seed of the choice.
    pub seed: u64,
}

impl Default for RecorderConfig {
    /// 100,000 samples (the most the seed's experiments had in a cell), 3 digits.
    fn default() -> Self {
        Self { reservoir: 100_000, digits: 3, seed: 0 }
    }
}

/// Count, mean and sum of squared deviations of a stream (Welford 1962; merged as in Chan, Golub
/// and LeVeque 1979).
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Moments {
    count: u64,
    mean: f64,
    squares: f64,
}

impl Moments {
    /// Adds one value.
    pub fn add(&mut self, value: f64) {
        self.count += 1;
        let before = value - self.mean;
        self.mean += before / self.count as f64;
        self.squares += before * (value - self.mean);
    }

    /// Adds all that `other` has seen.
    pub fn merge(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        let (a, b) = (self.count as f64, other.count as f64);
        let apart = other.mean - self.mean;
        self.mean += apart * (b / (a + b));
        self.squares += other.squares + apart * apart * (a * b / (a + b));
        self.count += other.count;
    }

    /// Values seen.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Their mean; 0 when there are none.
    pub fn mean(&self) -> f64 {
        self.mean
    }

    /// Their standard deviation, divisor n - 1; 0 below two values.
    pub fn sd(&self) -> f64 {
        if self.count < 2 { 0.0 } else { (self.squares / (self.count - 1) as f64).max(0.0).sqrt() }
    }
}

/// Takes durations one at a time and forgets none: see the module's text. Values are rounded to
/// whole units (nanoseconds) in the histogram only; kept samples, extremes and moments are exact.
#[derive(Debug, Clone)]
pub struct Recorder {
    histogram: Histogram<u64>,
    moments: Moments,
    min: f64,
    max: f64,
    slots: Slots,
    kept: Vec<f64>,
    random: Random,
}

impl Recorder {
    /// An empty recorder. The reservoir grows as it fills; reserve with [`Recorder::reserve`] where
    /// no allocation may happen while measuring.
    ///
    /// # Errors
    /// [`Error::Argument`] for digits out of 1..=4 or an empty reservoir.
    pub fn new(config: RecorderConfig) -> Result<Self, Error> {
        argument("digits", f64::from(config.digits), (1..=4).contains(&config.digits), "1 to 4")?;
        argument("reservoir", config.reservoir as f64, config.reservoir > 0, "at least 1")?;
        let histogram =
            Histogram::new_with_bounds(1, HIGHEST, config.digits).map_err(|e| Error::Corrupt(e.to_string()))?;
        let mut random = seeded(config.seed);
        Ok(Self {
            histogram,
            moments: Moments::default(),
            min: f64::INFINITY,
            max: f64::NEG_INFINITY,
            slots: Slots::new(config.reservoir, &mut random),
            kept: Vec::new(),
            random,
        })
    }

    /// Makes room for the whole reservoir now.
    pub fn reserve(&mut self) {
        self.kept.reserve_exact(self.slots.capacity().saturating_sub(self.kept.len()));
    }

    /// Takes one duration. Gives the place in the reservoir where it was put, if any, so that the
    /// caller can keep the rest of the sample's columns in arrays of its own: places come in order
    /// until the reservoir is full, then replace.
    ///
    /// # Errors
    /// [`Error::NotFinite`] and [`Error::Negative`]; nothing is recorded then.
    #[inline]
    pub fn record(&mut self, value: f64) -> Result<Option<usize>, Error> {
        if !(0.0..f64::INFINITY).contains(&value) {
            check_duration(self.moments.count as usize, value)?;
        }
        self.histogram.saturating_record(to_units(value));
        self.moments.add(value);
        self.min = self.min.min(value);
        self.max = self.max.max(value);
        let place = self.slots.offer(&mut self.random);
        match place {
            Some(place) if place < self.kept.len() => self.kept[place] = value,
            Some(_) => self.kept.push(value),
            None => {}
        }
        Ok(place)
    }

    /// Adds all that `other` has seen, as if it had been recorded here: histogram, extremes and
    /// count exactly, moments but for rounding, and the reservoir again a uniform choice among all.
    /// The other's samples keep their places when there is room for all of both (they follow ours);
    /// otherwise places have no meaning after a merge.
    ///
    /// # Errors
    /// [`Error::Argument`] when the two have different digits or reservoirs.
    pub fn merge(&mut self, other: &Self) -> Result<(), Error> {
        let reservoir = other.slots.capacity();
        argument("reservoir", reservoir as f64, reservoir == self.slots.capacity(), "the same in both recorders")?;
        let digits = other.histogram.sigfig();
        argument("digits", f64::from(digits), digits == self.histogram.sigfig(), "the same in both recorders")?;
        self.histogram.add(&other.histogram).map_err(|e| Error::Corrupt(e.to_string()))?;
        self.slots.merge(&mut self.kept, &other.slots, &other.kept, &mut self.random);
        self.moments.merge(&other.moments);
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        Ok(())
    }

    /// Values recorded.
    pub fn count(&self) -> u64 {
        self.moments.count
    }

    /// Least value, exact; `None` when empty.
    pub fn min(&self) -> Option<f64> {
        (self.count() > 0).then_some(self.min)
    }

    /// Greatest value, exact; `None` when empty.
    pub fn max(&self) -> Option<f64> {
        (self.count() > 0).then_some(self.max)
    }

    /// Count, mean and standard deviation.
    pub fn moments(&self) -> Moments {
        self.moments
    }

    /// The samples kept: all in the order they came, until there were more than the reservoir
    /// holds.
    pub fn kept(&self) -> &[f64] {
        &self.kept
    }

    /// True while every sample is kept.
    pub fn keeps_all(&self) -> bool {
        self.count() == self.kept.len() as u64
    }

    /// The kept samples as a sorted set.
    ///
    /// # Errors
    /// [`Error::TooFew`] when empty.
    pub fn sample(&self) -> Result<Sample, Error> {
        Sample::durations(self.kept.clone())
    }

    /// The histogram of everything, in whole units.
    pub fn histogram(&self) -> &Histogram<u64> {
        &self.histogram
    }

    /// Quantile of everything from the histogram, to its resolution; `None` when empty. Cheap
    /// enough to ask while measuring.
    pub fn quantile(&self, p: f64) -> Option<f64> {
        (self.count() > 0).then(|| self.histogram_quantile(p))
    }

    fn histogram_quantile(&self, p: f64) -> f64 {
        let value = self.histogram.value_at_quantile(p.clamp(0.0, 1.0));
        (self.histogram.median_equivalent(value) as f64).clamp(self.min, self.max)
    }

    /// Summary of everything: exact while all samples are kept, else quantiles to the histogram's
    /// resolution.
    ///
    /// # Errors
    /// [`Error::TooFew`] when empty.
    pub fn summary(&self) -> Result<Summary, Error> {
        let sample = self.sample()?;
        if self.keeps_all() {
            return Ok(Summary::of(&sample));
        }
        let q = |p| self.histogram_quantile(p);
        Ok(Summary {
            count: self.count(),
            min: self.min,
            p1: q(0.01),
            p5: q(0.05),
            p25: q(0.25),
            p50: q(0.5),
            p75: q(0.75),
            p90: q(0.9),
            p99: q(0.99),
            p99_9: q(0.999),
            max: self.max,
            mean: self.moments.mean(),
            sd: self.moments.sd(),
            mad: sample.mad(),
            median_interval: self.median_interval(self.count() as f64)?,
        })
    }

    /// 95 % confidence interval of the median of everything, if it is worth `effective` independent
    /// samples ([`crate::independence::effective_count`]).
    ///
    /// # Errors
    /// [`Error::TooFew`] when empty; [`Error::Argument`] for an effective count that is no number
    /// above 0.
    pub fn median_interval(&self, effective: f64) -> Result<Interval, Error> {
        if self.keeps_all() {
            return dependent_quantile_interval(&self.sample()?, 0.5, CONFIDENCE, effective);
        }
        argument("effective count", effective, effective > 0.0, "above 0")?;
        let n = usize::try_from(self.count()).unwrap_or(usize::MAX);
        let ranks = dependent_ranks(n, effective, 0.5, CONFIDENCE);
        let at_rank = |rank: usize| self.histogram_quantile((rank as f64 + 1.0) / n as f64);
        Ok(Interval { low: at_rank(ranks.low), high: at_rank(ranks.high), coverage: ranks.coverage })
    }

    /// The histogram in HdrHistogram's V2 encoding, deflated.
    pub fn to_v2_deflate(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        // Writing to a Vec fails only for counts beyond the encoding's 63 bits, which no run
        // reaches.
        let _ = V2DeflateSerializer::new().serialize(&self.histogram, &mut bytes);
        bytes
    }

    /// [`Recorder::to_v2_deflate`] in base64 (RFC 4648 with padding), as HdrHistogram's log files
    /// hold it.
    pub fn to_base64(&self) -> String {
        STANDARD.encode(self.to_v2_deflate())
    }
}

/// Reads a histogram written by [`Recorder::to_v2_deflate`] or any HdrHistogram library.
///
/// # Errors
/// [`Error::Corrupt`] with what is wrong.
pub fn histogram_from_v2_deflate(bytes: &[u8]) -> Result<Histogram<u64>, Error> {
    let corrupt = |what: &str| Error::Corrupt(what.to_owned());
    // The reader makes room for as many bytes as a length within the deflated stream says: it gets
    // the stream inflated, with a length that is true.
    let (envelope, deflated) = bytes.split_at_checked(ENVELOPE).ok_or_else(|| corrupt("cut short"))?;
    let (cookie, length) = envelope.split_at(4);
    if cookie != V2_DEFLATE_COOKIE {
        return Err(corrupt("no deflated V2 histogram"));
    }
    if length != u32::try_from(deflated.len()).unwrap_or(u32::MAX).to_be_bytes() {
        return Err(corrupt("not as long as it says"));
    }
    let mut inflated = Vec::new();
    let mut stream = flate2::read::ZlibDecoder::new(deflated).take(MOST_INFLATED + 1);
    stream.read_to_end(&mut inflated).map_err(|e| Error::Corrupt(e.to_string()))?;
    if inflated.len() as u64 > MOST_INFLATED {
        return Err(corrupt("longer than any histogram"));
    }
    let length = inflated.get(4..8).and_then(|b| b.try_into().ok()).map(u32::from_be_bytes);
    if length.is_none_or(|length| length as usize > inflated.len()) {
        return Err(corrupt("shorter than its header says"));
    }
    Deserializer::new().deserialize(&mut &inflated[..]).map_err(|e| Error::Corrupt(e.to_string()))
}

/// Reads a histogram written by [`Recorder::to_base64`].
///
/// # Errors
/// [`Error::Corrupt`] with what is wrong.
pub fn histogram_from_base64(text: &str) -> Result<Histogram<u64>, Error> {
    histogram_from_v2_deflate(&STANDARD.decode(text).map_err(|e| Error::Corrupt(e.to_string()))?)
}

fn to_units(value: f64) -> u64 {
    (value + 0.5) as u64 // saturates
}
