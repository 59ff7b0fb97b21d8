//! What a superstep costs: w + h g + l (seed 3.1).

/// A machine, in the units of its work: operations.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Machine {
    /// Processes.
    pub p: u32,
    /// Operations that a barrier takes.
    pub l: f64,
    /// Operations that a word of 32 bits takes on its way.
    pub g: f64,
    /// Operations a second.
    pub s: f64,
}

impl Machine {
    /// Operations of a superstep in which the busiest process computes `w` and sends or gets `h`
    /// words.
    #[must_use]
    pub fn operations(&self, w: f64, h: f64) -> f64 {
        w + h * self.g + self.l
    }

    /// Seconds of the same.
    #[must_use]
    pub fn seconds(&self, w: f64, h: f64) -> f64 {
        self.operations(w, h) / self.s
    }

    /// What a link carries, bits a second.
    #[must_use]
    pub fn bits_per_s(&self) -> f64 {
        32.0 * self.s / self.g
    }

    /// g of a machine whose links carry so much.
    #[must_use]
    pub fn g_from_bits_per_s(s: f64, bits_per_s: f64) -> f64 {
        32.0 * s / bits_per_s
    }
}

/// l and g from times of supersteps without work: least squares over (words, seconds), in seconds
/// and seconds a word. `None` for fewer than two different h.
#[must_use]
pub fn fit(samples: &[(f64, f64)]) -> Option<(f64, f64)> {
    let n = samples.len() as f64;
    let (h, t) = samples.iter().fold((0.0, 0.0), |(h, t), s| (h + s.0 / n, t + s.1 / n));
    let (hh, ht) =
        samples.iter().fold((0.0, 0.0), |(hh, ht), s| (hh + (s.0 - h) * (s.0 - h), ht + (s.0 - h) * (s.1 - t)));
    (hh > 0.0).then(|| (t - h * ht / hh, ht / hh))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_s_cluster() {
        // Seed 2.4: 88 Mflops, 91.1 Mbit/s a link, barrier 207.2 us.
        let s = 88e6;
        let c = Machine { p: 8, l: 207.2e-6 * s, g: Machine::g_from_bits_per_s(s, 91.1e6), s };
        assert!((c.g - 30.9).abs() < 0.05 && (c.l - 18_234.0).abs() < 1.0, "{c:?}");
        assert!((c.bits_per_s() - 91.1e6).abs() < 1.0);
        let want = 1e-3 + 16384.0 * 32.0 / 91.1e6 + 207.2e-6;
        assert!((c.seconds(88_000.0, 16384.0) - want).abs() < 1e-12);
    }

    #[test]
    fn l_and_g_come_back_from_times() {
        let times: alloc::vec::Vec<_> = [0.0, 100.0, 1000.0, 5000.0].map(|h| (h, 2e-4 + h * 3e-7)).into();
        let (l, g) = fit(&times).unwrap();
        assert!((l - 2e-4).abs() < 1e-12 && (g - 3e-7).abs() < 1e-15);
        assert_eq!(fit(&[(1.0, 1.0), (1.0, 2.0)]), None);
        assert_eq!(fit(&[]), None);
    }
}
