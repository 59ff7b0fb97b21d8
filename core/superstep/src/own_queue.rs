//! How much of what a process sends may wait in its own interface while a superstep is told.
//!
//! What acknowledges, grants and gives credit leaves behind it. In a total exchange all processes
//! send all the time, so each round trip has two such waits in it: with Linux's 208 KiB of a socket
//! 1.7 ms each at a gigabit, where the network itself takes 20 us. A queue is needed all the same:
//! who sends must not run dry until it is called again.

use core::fmt;
use core::str::FromStr;

/// What may wait there.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Hash)]
pub enum OwnQueue {
    /// What leaves in [`AUTO_NS`], at the rate that was measured, [`LEAST_BYTES`] at least.
    #[default]
    Auto,
    /// As much as the system lets wait.
    System,
    /// So many bytes.
    Bytes(u64),
}

/// How long what waits takes to leave: a host that is called each 100 us does not run dry, and two
/// such waits are less than what a receiver grants ahead.
pub const AUTO_NS: u64 = 250_000;
/// Least: 22 packets, a quarter of a millisecond at a gigabit. A batch of segmentation offload
/// still fits twice.
pub const LEAST_BYTES: u64 = 32 << 10;
/// Least and most that can be said.
pub const RANGE_BYTES: (u64, u64) = (4 << 10, 1 << 30);

impl OwnQueue {
    /// Bytes that may wait where so many leave in a second, as far as that is known (0: not).
    /// `None`: as the system has it.
    #[must_use]
    pub fn bytes(self, rate: u64) -> Option<u64> {
        match self {
            OwnQueue::System => None,
            OwnQueue::Bytes(bytes) => Some(bytes),
            OwnQueue::Auto if rate == 0 => None,
            OwnQueue::Auto => {
                let waits = u128::from(rate) * u128::from(AUTO_NS) / 1_000_000_000;
                Some(u64::try_from(waits).unwrap_or(u64::MAX).max(LEAST_BYTES))
            }
        }
    }
}

impl fmt::Display for OwnQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            OwnQueue::Auto => f.write_str("auto"),
            OwnQueue::System => f.write_str("system"),
            OwnQueue::Bytes(b) if b > 0 && b % (1 << 20) == 0 => write!(f, "{}M", b >> 20),
            OwnQueue::Bytes(b) if b > 0 && b % (1 << 10) == 0 => write!(f, "{}K", b >> 10),
            OwnQueue::Bytes(b) => write!(f, "{b}"),
        }
    }
}

impl FromStr for OwnQueue {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<OwnQueue, Self::Err> {
        const WRONG: &str = "none of auto, system, or bytes from 4K to 1G";
        let text = text.trim();
        match text {
            "auto" => return Ok(OwnQueue::Auto),
            "system" => return Ok(OwnQueue::System),
            _ => {}
        }
        let (digits, shift) = match text.as_bytes().last() {
            Some(b'K' | b'k') => (&text[..text.len() - 1], 10),
            Some(b'M' | b'm') => (&text[..text.len() - 1], 20),
            Some(b'G' | b'g') => (&text[..text.len() - 1], 30),
            _ => (text, 0),
        };
        let bytes = digits.parse::<u64>().ok().and_then(|n| n.checked_mul(1 << shift)).ok_or(WRONG)?;
        if (RANGE_BYTES.0..=RANGE_BYTES.1).contains(&bytes) { Ok(OwnQueue::Bytes(bytes)) } else { Err(WRONG) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn what_may_wait_follows_the_rate() {
        assert_eq!(OwnQueue::Auto.bytes(0), None);
        assert_eq!(OwnQueue::Auto.bytes(125_000_000), Some(32 << 10));
        assert_eq!(OwnQueue::Auto.bytes(1_250_000_000), Some(312_500));
        assert_eq!(OwnQueue::Bytes(5).bytes(1 << 40), Some(5));
        assert_eq!(OwnQueue::System.bytes(1 << 40), None);
        assert!(OwnQueue::Auto.bytes(u64::MAX).is_some());
    }

    #[test]
    fn it_is_read_as_it_is_written() {
        for queue in [
            OwnQueue::Auto,
            OwnQueue::System,
            OwnQueue::Bytes(4 << 10),
            OwnQueue::Bytes(3 << 20),
            OwnQueue::Bytes(5000),
        ] {
            assert_eq!(queue.to_string().parse(), Ok(queue));
        }
        assert_eq!(" 64k ".parse(), Ok(OwnQueue::Bytes(64 << 10)));
        for wrong in ["", "K", "1", "2G", "-4K", "4KB", "best", "99999999999G", "\u{e9}"] {
            assert!(wrong.parse::<OwnQueue>().is_err(), "{wrong}");
        }
    }
}
