//! A clock as a line against another clock, and how far the line may be wrong.

use crate::number::{LIMIT_NS, gap, in_limit, round};

/// Size of [`Model::to_bytes`].
pub const MODEL_BYTES: usize = 72;

/// Added to products of errors and rates, whose second-order terms are left out (rates are below
/// 10^-3).
const GUARD: f64 = 1e-3;

/// The bound of a [`Model`]'s error at local time `t`, with `d = |t - anchor|`:
///
/// `fixed + inner + tilt * min(d, half_span) + slope_error * max(0, d - half_span) + wander / 2 * d^2`
///
/// Within the measured span it is all but flat, outside it grows by what is not known about the
/// drift. `tilt` is what references' models add, whose own spans were earlier.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bound {
    /// Error that is the same at all times, ns: asymmetric paths.
    pub fixed_ns: f64,
    /// Further error at the anchor, ns: queueing, readings, rounding.
    pub inner_ns: f64,
    /// Growth of the error within the span (ratio), not above `slope_error`; 0 for a fit of its
    /// own.
    pub tilt: f64,
    /// Half the length of the measured span, ns.
    pub half_span_ns: f64,
    /// How far the slope may be wrong (ratio, 1e-6 is 1 ppm).
    pub slope_error: f64,
    /// How fast the true slope may change, per ns.
    pub wander_per_ns: f64,
}

impl Bound {
    /// The bound at distance `d_ns` (absolute) from the anchor, ns.
    #[must_use]
    pub fn error_ns(&self, d_ns: f64) -> f64 {
        self.fixed_ns
            + self.inner_ns
            + self.tilt * d_ns.min(self.half_span_ns)
            + self.slope_error * (d_ns - self.half_span_ns).max(0.0)
            + 0.5 * self.wander_per_ns * d_ns * d_ns
    }

    /// Every part finite, not negative, and small enough that sums and products stay finite, too.
    fn is_valid(&self) -> bool {
        let Bound { fixed_ns, inner_ns, tilt, half_span_ns, slope_error, wander_per_ns } = *self;
        let in_range = |x: f64, most: f64| (0.0..=most).contains(&x);
        let lengths = [fixed_ns, inner_ns, half_span_ns];
        lengths.iter().all(|x| in_range(*x, LIMIT_NS as f64))
            && in_range(slope_error, 1.0)
            && in_range(tilt, slope_error)
            && in_range(wander_per_ns, 1e-6)
    }
}

/// A time on the root's clock, and how far it may be from the truth.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reading {
    /// Time on the global (root's) clock, ns.
    pub global_ns: i64,
    /// Bound on the distance from the true global time, ns.
    pub error_ns: f64,
}

impl Reading {
    /// From this reading to a later one *of another rank*, ns, negative if `later` was in fact
    /// earlier. Both errors count in full; for two times of the same rank [`Model::duration`] and
    /// [`Timeline::duration`](crate::Timeline::duration) give far smaller bounds.
    #[must_use]
    pub fn until(self, later: Reading) -> Span {
        Span { duration_ns: gap(later.global_ns, self.global_ns), error_ns: self.error_ns + later.error_ns }
    }
}

/// A length of time and how far it may be wrong, both ns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    /// Length on the global clock, ns.
    pub duration_ns: f64,
    /// Bound on its error, ns.
    pub error_ns: f64,
}

/// Why bytes or numbers are no model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    /// A number is not finite, negative where it may not be, or out of range.
    #[error("clock model: {0} is out of range")]
    OutOfRange(&'static str),
}

/// Local time to reference time: `reference(t) = t + offset + slope * (t - anchor)`, with a
/// [`Bound`].
///
/// The offset is kept as a whole number of ns at an anchor close to the measurements, so that
/// clocks whose origins are years apart lose nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Model {
    anchor_ns: i64,
    offset_ns: i64,
    slope: f64,
    bound: Bound,
}

impl Model {
    /// The root's own model: global time is local time, without error.
    pub const IDENTITY: Model = Model {
        anchor_ns: 0,
        offset_ns: 0,
        slope: 0.0,
        bound: Bound {
            fixed_ns: 0.0,
            inner_ns: 0.0,
            tilt: 0.0,
            half_span_ns: 0.0,
            slope_error: 0.0,
            wander_per_ns: 0.0,
        },
    };

    /// A model from its parts.
    ///
    /// # Errors
    /// Times beyond [`LIMIT_NS`](crate::LIMIT_NS), a slope of 1/2 or more (clocks are not that bad;
    /// the inverse would lose its meaning), bounds that are negative or not finite.
    pub fn new(anchor_ns: i64, offset_ns: i64, slope: f64, bound: Bound) -> Result<Model, ModelError> {
        if !in_limit(anchor_ns) {
            return Err(ModelError::OutOfRange("anchor_ns"));
        }
        if !in_limit(offset_ns) {
            return Err(ModelError::OutOfRange("offset_ns"));
        }
        // NaN is in no range.
        if !(-0.5..0.5).contains(&slope) || slope == -0.5 {
            return Err(ModelError::OutOfRange("slope"));
        }
        if !bound.is_valid() {
            return Err(ModelError::OutOfRange("bound"));
        }
        Ok(Model { anchor_ns, offset_ns, slope, bound })
    }

    /// The local time at which the model was made (the middle of its measurements), ns.
    #[must_use]
    pub fn anchor_ns(&self) -> i64 {
        self.anchor_ns
    }

    /// Reference minus local at the anchor, ns.
    #[must_use]
    pub fn offset_ns(&self) -> i64 {
        self.offset_ns
    }

    /// Rate of the reference against the local clock, minus one (5e-6: the reference is 5 ppm
    /// faster).
    #[must_use]
    pub fn slope(&self) -> f64 {
        self.slope
    }

    /// The parts of the error bound.
    #[must_use]
    pub fn bound(&self) -> &Bound {
        &self.bound
    }

    /// Reference time of the local time, with its error bound. Times far beyond
    /// [`LIMIT_NS`](crate::LIMIT_NS) saturate.
    #[must_use]
    pub fn at(&self, local_ns: i64) -> Reading {
        let d = gap(local_ns, self.anchor_ns);
        let global_ns = local_ns.saturating_add(self.offset_ns).saturating_add(round(self.slope * d));
        Reading { global_ns, error_ns: self.bound.error_ns(d.abs()) + self.rounding_ns() }
    }

    /// Length between two local times of *this* rank on the reference clock, ns. Offsets cancel:
    /// only the slope's error counts.
    #[must_use]
    pub fn duration(&self, start_ns: i64, end_ns: i64) -> Span {
        let length = gap(end_ns, start_ns);
        let (a, b) = (gap(start_ns, self.anchor_ns).abs(), gap(end_ns, self.anchor_ns).abs());
        let by_slope = (self.bound.slope_error + self.bound.wander_per_ns * a.max(b)) * length.abs();
        let by_ends = self.bound.error_ns(a) + self.bound.error_ns(b);
        Span { duration_ns: length + self.slope * length, error_ns: by_slope.min(by_ends) }
    }

    /// This model followed by the reference's own: local to reference to the reference's reference.
    /// Bounds add, each counted where it is used (the parent is used away from its own anchor).
    #[must_use]
    pub fn then(&self, parent: &Model) -> Model {
        if self.slope == 0.0 && self.bound == Model::IDENTITY.bound {
            // A shift without error: the parent's own anchor stays the best place.
            return Model {
                anchor_ns: parent.anchor_ns.saturating_sub(self.offset_ns),
                offset_ns: parent.offset_ns.saturating_add(self.offset_ns),
                ..*parent
            };
        }
        let (c, p) = (&self.bound, &parent.bound);
        let met_ns = self.anchor_ns.saturating_add(self.offset_ns);
        let away = gap(met_ns, parent.anchor_ns);
        let d = away.abs();
        let offset_ns = self.offset_ns.saturating_add(parent.offset_ns).saturating_add(round(parent.slope * away));
        // How the parent stretches the child's error, and the child the parent's time axis.
        let k = 1.0 + parent.slope.abs() + p.slope_error + GUARD * f64::from(u8::from(parent.slope != 0.0));
        let m = 1.0 + self.slope.abs() + c.slope_error;
        // The parent is used up to `d + m |t - anchor|` from its anchor; its error grows by its
        // slope's error at most, and by its wander: w/2 (d + m x)^2 = w/2 d^2 + w d m x + w/2 m^2
        // x^2.
        let growth = m * (p.slope_error + p.wander_per_ns * d);
        let bound = Bound {
            fixed_ns: k * c.fixed_ns + p.fixed_ns,
            inner_ns: k * c.inner_ns + (p.error_ns(d) - p.fixed_ns) + parent.rounding_ns(),
            tilt: k * c.tilt + growth,
            half_span_ns: c.half_span_ns,
            slope_error: k * c.slope_error + growth,
            wander_per_ns: k * c.wander_per_ns + m * m * p.wander_per_ns,
        };
        let slope = self.slope + parent.slope * (1.0 + self.slope);
        Model { anchor_ns: self.anchor_ns, offset_ns, slope, bound }
    }

    /// The model the other way round: reference time to local time.
    #[must_use]
    pub fn inverse(&self) -> Model {
        let b = &self.bound;
        let stretch = 1.0 / (1.0 + self.slope);
        // The error is a height over the true line, whose slope is not quite known.
        let k = (1.0 + GUARD * f64::from(u8::from(self.slope != 0.0))) / (1.0 + self.slope - b.slope_error.min(0.25));
        let bound = Bound {
            fixed_ns: k * b.fixed_ns,
            inner_ns: k * b.inner_ns,
            tilt: k * stretch * b.tilt,
            half_span_ns: b.half_span_ns / stretch,
            slope_error: k * stretch * b.slope_error,
            wander_per_ns: k * stretch * stretch * b.wander_per_ns,
        };
        Model {
            anchor_ns: self.anchor_ns.saturating_add(self.offset_ns),
            offset_ns: self.offset_ns.saturating_neg(),
            slope: -self.slope * stretch,
            bound,
        }
    }

    /// The model in 72 bytes, little-endian: anchor, offset (i64), slope, fixed, inner, tilt, half
    /// span, slope error, wander (f64). For the message from reference to client.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; MODEL_BYTES] {
        let b = &self.bound;
        let words = [
            self.anchor_ns.to_le_bytes(),
            self.offset_ns.to_le_bytes(),
            self.slope.to_le_bytes(),
            b.fixed_ns.to_le_bytes(),
            b.inner_ns.to_le_bytes(),
            b.tilt.to_le_bytes(),
            b.half_span_ns.to_le_bytes(),
            b.slope_error.to_le_bytes(),
            b.wander_per_ns.to_le_bytes(),
        ];
        let mut bytes = [0; MODEL_BYTES];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word);
        }
        bytes
    }

    /// A model from a message.
    ///
    /// # Errors
    /// As [`Model::new`]: whatever the bytes are, the result is a sane model or an error.
    pub fn from_bytes(bytes: &[u8; MODEL_BYTES]) -> Result<Model, ModelError> {
        let word = |i: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[8 * i..8 * i + 8]);
            word
        };
        let float = |i: usize| f64::from_le_bytes(word(i));
        let bound = Bound {
            fixed_ns: float(3),
            inner_ns: float(4),
            tilt: float(5),
            half_span_ns: float(6),
            slope_error: float(7),
            wander_per_ns: float(8),
        };
        Model::new(i64::from_le_bytes(word(0)), i64::from_le_bytes(word(1)), float(2), bound)
    }

    /// Conversions round to whole ns, which is exact where there is no slope.
    fn rounding_ns(&self) -> f64 {
        if self.slope == 0.0 { 0.0 } else { 0.5 }
    }
}
