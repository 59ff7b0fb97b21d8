//! "What if": a run with something changed.

use std::fmt;
use std::str::FromStr;

use weir_predict::{Options, Outcome};

/// A change.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum WhatIf {
    /// Messages do not meet.
    NoContention,
    /// Bytes take no time.
    InfiniteBandwidth,
    /// Each process computes as much as they do on average.
    Balanced,
    /// Processors are so many times as fast.
    Cpu(f64),
}

impl WhatIf {
    /// The options with the change. `as_is` is a run without it.
    pub fn apply(self, options: &Options, as_is: &Outcome) -> Options {
        let options = options.clone();
        match self {
            Self::NoContention => Options { contention: false, node_limits: false, losses: false, ..options },
            Self::InfiniteBandwidth => Options { infinite_bandwidth: true, ..options },
            Self::Balanced => options.balanced(as_is),
            Self::Cpu(times) => Options { cpu_times: times, ..options },
        }
    }
}

impl fmt::Display for WhatIf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoContention => f.write_str("no-contention"),
            Self::InfiniteBandwidth => f.write_str("infinite-bandwidth"),
            Self::Balanced => f.write_str("balanced"),
            Self::Cpu(times) => write!(f, "cpu={times}"),
        }
    }
}

impl FromStr for WhatIf {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "no-contention" => Ok(Self::NoContention),
            "infinite-bandwidth" => Ok(Self::InfiniteBandwidth),
            "balanced" => Ok(Self::Balanced),
            _ => text
                .strip_prefix("cpu=")
                .and_then(|times| times.trim_end_matches('x').parse().ok())
                .filter(|times: &f64| *times > 0.0 && times.is_finite())
                .map(Self::Cpu)
                .ok_or_else(|| "no-contention, infinite-bandwidth, balanced, or cpu=F with F above 0".to_owned()),
        }
    }
}
