//! Idle checker: endpoints that have nothing to tell each other send little (spec 9).

use std::collections::BTreeMap;

use super::Program;
use crate::spec::{Ns, SEC};

/// Packets that an endpoint may send to an idle peer in each second, on average over [`WINDOW_NS`].
///
/// Without loss it is a PING, its answer, and three packets for each path that stands by: below 25
/// with eight paths. A question or answer that is lost is followed by two packets at each probe
/// timeout, which doubles from 300 us or more to 250 ms: some 20 in the first quarter of a second
/// and 8 in each later one, and the peer acknowledges each. What repeats without end does so at
/// least once in a round trip, two packets or more, and no round trip of these networks is above 40
/// ms.
pub const PACKETS_PER_S_MAX: u64 = 100;
/// How long it is looked at.
pub const WINDOW_NS: Ns = 2 * SEC;

/// Packets sent so far: by whom, to whom.
pub type Sent = BTreeMap<(Program, Program), u64>;

/// Compares what was sent before and after [`WINDOW_NS`] in which nothing was to be done.
///
/// # Errors
/// Someone has sent more than it may.
pub fn check(before: &Sent, after: &Sent) -> Result<(), String> {
    for ((by, to), sent) in after {
        let Some(packets) = before.get(&(*by, *to)).map(|earlier| sent.saturating_sub(*earlier)) else { continue };
        if packets * SEC > PACKETS_PER_S_MAX * WINDOW_NS {
            return Err(format!(
                "{by} has nothing to tell {to} and sent it {packets} packets in {} s",
                WINDOW_NS / SEC
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chatter_is_found_and_keeping_alive_is_not() {
        let pair = (Program { host: 0, incarnation: 0 }, Program { host: 1, incarnation: 0 });
        let most = PACKETS_PER_S_MAX * WINDOW_NS / SEC;
        for (sent, is_fine) in [(0, true), (most, true), (most + 1, false)] {
            assert_eq!(check(&Sent::from([(pair, 7)]), &Sent::from([(pair, 7 + sent)])).is_ok(), is_fine, "{sent}");
        }
    }
}
