//! Loss on the wire: none, independent, or the Gilbert-Elliott two-state chain for bursts.

use super::chance;
use rand_pcg::Pcg64Mcg;

/// How a wire loses packets.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub enum Loss {
    /// Loses nothing.
    #[default]
    None,
    /// Each packet is lost independently with this probability.
    Random(f64),
    /// Gilbert-Elliott: a good and a bad state, each with its own loss probability. Before every packet the chain moves
    /// from good to bad with `to_bad` and from bad to good with `to_good`.
    GilbertElliott {
        /// Probability of good to bad, per packet.
        to_bad: f64,
        /// Probability of bad to good, per packet; its inverse is the mean length of a burst in packets.
        to_good: f64,
        /// Loss probability in the good state.
        loss_good: f64,
        /// Loss probability in the bad state.
        loss_bad: f64,
    },
}

impl Loss {
    /// The long-run share of packets lost, in `[0, 1]`.
    pub fn mean(&self) -> f64 {
        match *self {
            Loss::None => 0.0,
            Loss::Random(p) => p,
            Loss::GilbertElliott { to_bad, to_good, loss_good, loss_bad } => {
                let total = to_bad + to_good;
                if total <= 0.0 {
                    return loss_good; // the chain never leaves the good state it starts in
                }
                let bad = to_bad / total;
                bad * loss_bad + (1.0 - bad) * loss_good
            }
        }
    }
}

/// The memory of a [`Loss`] process: which state the chain is in.
#[derive(Clone, Copy, Debug, Default)]
pub struct LossState {
    bad: bool,
}

impl LossState {
    /// Decides the fate of the next packet; true means lost.
    pub fn lost(&mut self, loss: &Loss, rng: &mut Pcg64Mcg) -> bool {
        match *loss {
            Loss::None => false,
            Loss::Random(p) => chance(rng, p),
            Loss::GilbertElliott { to_bad, to_good, loss_good, loss_bad } => {
                let flip = if self.bad { to_good } else { to_bad };
                if chance(rng, flip) {
                    self.bad = !self.bad;
                }
                chance(rng, if self.bad { loss_bad } else { loss_good })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_core::SeedableRng;

    fn run(loss: Loss, packets: usize, seed: u64) -> Vec<bool> {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let mut state = LossState::default();
        (0..packets).map(|_| state.lost(&loss, &mut rng)).collect()
    }

    #[test]
    fn random_loss_stays_within_five_sigma() {
        let (n, p) = (200_000, 0.01);
        let lost = run(Loss::Random(p), n, 1).iter().filter(|x| **x).count() as f64;
        let sigma = (n as f64 * p * (1.0 - p)).sqrt();
        assert!((lost - n as f64 * p).abs() < 5.0 * sigma, "{lost} lost of {n}");
    }

    #[test]
    fn gilbert_elliott_has_the_mean_and_the_burst_length_asked_for() {
        let loss = Loss::GilbertElliott { to_bad: 0.002, to_good: 0.2, loss_good: 0.0, loss_bad: 1.0 };
        let fate = run(loss, 2_000_000, 2);
        let lost = fate.iter().filter(|x| **x).count();
        let bursts = fate.windows(2).filter(|w| !w[0] && w[1]).count();
        let share = lost as f64 / fate.len() as f64;
        let length = lost as f64 / bursts as f64;
        assert!((share - loss.mean()).abs() < 0.1 * loss.mean(), "share {share}, mean {}", loss.mean());
        assert!((length - 5.0).abs() < 0.3, "mean burst {length}, 1 / to_good = 5");
    }

    #[test]
    fn the_ends_of_the_scale_are_exact() {
        assert!(run(Loss::Random(0.0), 1000, 3).iter().all(|x| !x));
        assert!(run(Loss::Random(1.0), 1000, 3).iter().all(|x| *x));
        assert!(run(Loss::None, 1000, 3).iter().all(|x| !x));
    }

    #[test]
    fn a_seed_reproduces() {
        let loss = Loss::GilbertElliott { to_bad: 0.05, to_good: 0.3, loss_good: 0.01, loss_bad: 0.7 };
        assert_eq!(run(loss, 5000, 9), run(loss, 5000, 9));
        assert_ne!(run(loss, 5000, 9), run(loss, 5000, 10));
    }
}
