//! A medium that all share, on which who sends at once is heard by nobody: how it collapses under
//! load, and the slot length that keeps clear of that (seed 3.2 to 3.4, 3.6).

use libm::{exp, pow};

/// What slotted 1-persistent CSMA/CD carries when `g` frames are offered in a frame's time; `a` is
/// the propagation time over the frame's time (Hammond and O'Reilly). Up to its peak more load
/// carries more; beyond, a disturbance feeds on itself.
#[must_use]
pub fn carried(g: f64, a: f64) -> f64 {
    if g <= 0.0 {
        return 0.0;
    }
    let free = exp(-3.0 * a * g) * (3.0 - 2.0 * exp(-a * g));
    let w = g * (1.0 + a) * free + 3.0 - 3.0 * g * (1.0 + a) * exp(-(1.0 + a) * g) - 3.0 * exp(-a * g)
        + 3.0 * g * exp(-(1.0 + 2.0 * a) * g)
        + exp(-3.0 * a * g)
        - g * (1.0 - 2.0 * a) * exp(-(1.0 + 4.0 * a) * g);
    g * free / w
}

/// The load at which most is carried, and how much that is.
#[must_use]
pub fn peak(a: f64) -> (f64, f64) {
    // One peak, between 0 and some hundred frames: thirds of the interval.
    let (mut low, mut high) = (0.01, 200.0);
    for _ in 0..100 {
        let (x, y) = (low + (high - low) / 3.0, high - (high - low) / 3.0);
        if carried(x, a) < carried(y, a) { low = x } else { high = y }
    }
    (low, carried(low, a))
}

/// The slot for which `share` of the medium is carried in steady state: the frame's time over it.
#[must_use]
pub fn slot_ns(frame_ns: u64, share: f64) -> u64 {
    (frame_ns as f64 / share.clamp(0.01, 1.0)) as u64
}

/// Expected packets in a slot that have company, if `p` processes each choose one of `p` slots.
#[must_use]
pub fn contention(p: u32) -> f64 {
    if p < 2 { 0.0 } else { 1.0 - pow(1.0 - 1.0 / f64::from(p), f64::from(p - 1)) }
}

/// Chance that a slot has several packets.
#[must_use]
pub fn collision(p: u32) -> f64 {
    let x = f64::from(p);
    if p < 2 { 0.0 } else { 1.0 - pow(1.0 - 1.0 / x, x) - pow(1.0 - 1.0 / x, x - 1.0) }
}

/// The least gap between packets that a receiver bears with `buffers` of them, if it may be without
/// a processor for `away_ns` (seed 3.6).
#[must_use]
pub fn least_gap_ns(away_ns: u64, buffers: u64) -> u64 {
    away_ns / buffers.max(1)
}

/// Whether a sender must ask for an acknowledgement: what is free lasts no longer than a round trip
/// (seed 3.5). Rates are packets a second.
#[must_use]
pub fn must_ask(free: u64, in_rate: f64, out_rate: f64, rtt_s: f64) -> bool {
    free as f64 <= (in_rate + out_rate) * rtt_s
}

/// After how many packets since its last acknowledgement a receiver answers one that asks: a `2p`th
/// of a pool of `n`, at least one.
#[must_use]
pub fn answers_after(n: u64, p: u64) -> u64 {
    (n / (2 * p.max(1))).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(x: f64, want: f64, by: f64) {
        assert!((x - want).abs() <= by, "{x} is not {want}");
    }

    /// The seed's numbers (3.2): tau 25.65 us, a frame of 1200 us.
    const A: f64 = 25.65 / 1200.0;

    #[test]
    fn an_ethernet_carries_what_the_seed_says_and_collapses_where_it_says() {
        near(carried(1e-3, A) / 1e-3, 1.0, 2e-3);
        near(carried(5.0, A), 0.800, 1e-3);
        near(carried(60.0, A), 0.58, 5e-3);
        near(carried(100.0, A), 0.15, 5e-3);
        let (g, s) = peak(A);
        near(s, 0.864, 1e-3);
        near(g, 16.0, 1.0);
        near(peak(10.0 / 1200.0).1, 0.942, 1e-3);
        near(peak(51.3 / 1200.0).1, 0.762, 1e-3);
        assert_eq!(carried(0.0, A), 0.0);
    }

    #[test]
    fn slots_are_a_frame_s_time_over_the_share_that_is_carried() {
        assert_eq!(slot_ns(1_200_000, 0.8), 1_500_000);
        assert_eq!(slot_ns(1_200_000, 1.0), 1_200_000);
    }

    #[test]
    fn contention_does_not_grow_with_the_number_of_processes() {
        near(contention(2), 0.5, 1e-12);
        near(contention(100_000), 1.0 - (-1.0f64).exp(), 1e-5);
        assert!((20..1000).all(|p| contention(p) < 0.632 * 1.02 && contention(p) > 0.60));
        near(collision(2), 0.25, 1e-12);
        near(collision(100_000), 1.0 - 2.0 * (-1.0f64).exp(), 1e-5);
        // The sum that the closed form stands for.
        for p in 2..12i32 {
            let x = 1.0 / f64::from(p);
            let choose = |i: i32| (0..i).fold(1.0, |c, k| c * f64::from(p - k) / f64::from(k + 1));
            let sum: f64 = (2..=p).map(|i| f64::from(i) * choose(i) * x.powi(i) * (1.0 - x).powi(p - i)).sum();
            near(contention(p as u32), sum, 1e-9);
        }
    }

    #[test]
    fn acknowledgements_are_asked_for_in_time_and_answered_seldom() {
        assert!(must_ask(10, 100_000.0, 100_000.0, 50e-6));
        assert!(!must_ask(11, 100_000.0, 100_000.0, 50e-6));
        assert_eq!((answers_after(400, 8), answers_after(400, 400), answers_after(0, 0)), (25, 1, 1));
        assert_eq!(least_gap_ns(10_000_000, 400), 25_000);
    }
}
