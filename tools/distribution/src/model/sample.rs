//! One timed operation at one process.

/// One timed operation at one process; a row of a samples file.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// Who timed it.
    pub rank: u32,
    /// The other side of a point-to-point operation; -1: none.
    pub peer: i32,
    /// Counts from 0 within the cell, warm-up included; the same at all ranks for the same instance
    /// of the operation.
    pub repetition: u32,
    /// When it began, in nanoseconds on the launch's global clock since its origin.
    pub start_ns: i64,
    /// How long it took. May be negative by up to `error_ns` where the two ends are on different
    /// clocks.
    pub duration_ns: f64,
    /// Bound on the part of `duration_ns` that is due to the clocks; 0 where both ends were read
    /// from one.
    pub error_ns: f32,
    /// Bits of [`flags`].
    pub flags: u8,
}

/// Bits of [`Sample::flags`]. Others are reserved: written as 0, left alone by readers.
pub mod flags {
    /// A repetition of the warm-up; not in the summary.
    pub const WARM_UP: u8 = 1;
    /// Beyond the outlier boundary; in the summary all the same.
    pub const OUTLIER: u8 = 2;
    /// Some process came after the agreed start; not in the summary.
    pub const MISSED_WINDOW: u8 = 4;
    /// The partner is on the same node.
    pub const SAME_NODE: u8 = 8;
    /// An outlier that the uniform choice of samples left out and that is kept beside it, so that
    /// no outlier is lost. It is in the summary, as all that was measured is; who takes the samples
    /// for the distribution must leave it out.
    pub const BESIDE: u8 = 16;
    /// The rank, or its partner, changed its processor in this batch of repetitions; in the summary
    /// all the same.
    pub const MOVED: u8 = 32;
    /// Samples with any of these bits are not in the summary, the histogram and the fits.
    pub const EXCLUDED: u8 = WARM_UP | MISSED_WINDOW;
}

impl Sample {
    /// Whether it is one of the samples that stand for the cell's distribution: it counts in
    /// summary, histogram and fits, and is not an outlier kept beside the uniform choice.
    #[must_use]
    pub fn counts(&self) -> bool {
        self.flags & (flags::EXCLUDED | flags::BESIDE) == 0
    }

    /// Whether it is an outlier kept beside the uniform choice that the other samples are.
    #[must_use]
    pub fn is_beside(&self) -> bool {
        self.flags & flags::BESIDE != 0 && self.flags & flags::EXCLUDED == 0
    }

    /// Says whether it lies beyond the outlier boundary.
    pub fn set_outlier(&mut self, beyond: bool) {
        self.flags = if beyond { self.flags | flags::OUTLIER } else { self.flags & !flags::OUTLIER };
    }

    /// Whether it lies beyond the outlier boundary.
    #[must_use]
    pub fn is_outlier(&self) -> bool {
        self.flags & flags::OUTLIER != 0
    }
}
