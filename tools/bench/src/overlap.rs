//! How long a rank computes in each exchange of `overlap`: as long as the exchange takes alone.

use crate::error::Result;
use crate::machine::Machine;
use crate::measure::{self, Pair, Slots};
use crate::operation::Kind;

/// Exchanges of the first rounds, of which the first of all makes connections.
const FIRST: usize = 10;
/// Exchanges alone of which the median is taken, at least and at most.
const LEAST: f64 = 20.0;
const MOST: f64 = 1000.0;
/// The part of a cell's time that they may take.
const SHARE: f64 = 0.2;

/// The median time of an exchange alone, ns, as the first of the group finds it; all of the group
/// call it, and learn the same.
///
/// # Errors
/// The machine's.
pub fn alone_ns<M: Machine>(
    m: &M,
    group: &M::Group,
    pair: &mut Pair<'_, M>,
    time_ns: f64,
    ticks_per_us: f64,
) -> Result<f64> {
    let mut count = FIRST;
    let mut alone_ns = 0.0;
    for round in 0..3 {
        let mut slots = Slots::default();
        slots.grow(count);
        m.barrier(group)?;
        measure::pair(m, Kind::Exchange, pair, &mut slots, 0, || Ok(()))?;
        // Of two in turn: who begins late makes its partner's exchange longer, and its own shorter,
        // and the next one the other way round.
        let ends = slots.end.iter().skip(1);
        let mut two: Vec<u64> = ends.zip(&slots.begin).map(|(end, begin)| end.saturating_sub(*begin)).collect();
        two.sort_unstable();
        let median = two.get(two.len() / 2).copied().unwrap_or(0).max(1);
        // Who decides how many come next is one rank: all must make as many.
        let mut word = (median as f64 / 2.0 / ticks_per_us * 1000.0).to_ne_bytes();
        m.bcast(group, &mut word)?;
        alone_ns = f64::from_ne_bytes(word);
        let mut next = (SHARE * time_ns / alone_ns).clamp(LEAST, MOST).to_ne_bytes();
        m.bcast(group, &mut next)?;
        if round > 0 {
            count = f64::from_ne_bytes(next) as usize;
        }
    }
    Ok(alone_ns)
}
