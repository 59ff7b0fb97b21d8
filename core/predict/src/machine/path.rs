//! How long a message is under way between two processes, as far as it depends on these two only.

use super::grid::{Beyond, Grid, Level};
use crate::{Quantiles, Time};

/// Between two processes: both of one node, or of two.
#[derive(Debug, Clone, PartialEq)]
pub struct Path {
    /// From the beginning of the send to the end of a receive that was posted in time.
    pub transit: Transit,
    /// Standard sends of at most so many bytes are eager; none: all.
    pub eager_bytes: Option<u64>,
    /// How long a call that sends keeps its process.
    pub send: Local,
    /// How long the end of a receive keeps its process.
    pub receive: Local,
}

/// A message's time from send to arrival.
#[derive(Debug, Clone, PartialEq)]
pub enum Transit {
    /// By formula.
    Linear(Linear),
    /// By measured distributions.
    Measured(Grid),
}

/// latency + size / bandwidth, the whole times 1 + a draw of `spread`.
#[derive(Debug, Clone, PartialEq)]
pub struct Linear {
    /// Of a message without bytes.
    pub latency: Time,
    /// Above 0; infinite: bytes take no time.
    pub bytes_per_s: f64,
    /// What asking for permission adds to a message that is not eager.
    pub handshake: Time,
    /// Excess over the least time, as a share of it (not in nanoseconds); none: nothing varies.
    pub spread: Option<Quantiles>,
}

/// Time at one end.
#[derive(Debug, Clone, PartialEq)]
pub enum Local {
    /// None at all.
    Nothing,
    /// So much, and so much for each byte.
    Linear(Time, f64),
    /// Measured, by size.
    Measured(Grid),
}

/// How a value is drawn from a distribution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Draw {
    /// By chance.
    #[default]
    Full,
    /// Always its mean.
    Average,
    /// Always its least.
    Least,
    /// Always its greatest.
    Greatest,
}

impl Draw {
    /// The value that the share `unit` (from 0 to 1) means in this mode.
    #[must_use]
    pub fn of(self, table: &Quantiles, unit: f64) -> f64 {
        match self {
            Self::Full => table.at(unit),
            Self::Average => table.mean(),
            Self::Least => table.min(),
            Self::Greatest => table.max(),
        }
    }
}

/// A message's time under way, by cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flight {
    /// What an empty message would take at best.
    pub latency: Time,
    /// What its bytes add at best.
    pub bandwidth: Time,
    /// What it takes more than at best.
    pub contention: Time,
}

impl Flight {
    /// All of it.
    #[must_use]
    pub fn total(&self) -> Time {
        self.latency + self.bandwidth + self.contention
    }

    /// At best.
    #[must_use]
    pub fn least(&self) -> Time {
        self.latency + self.bandwidth
    }
}

impl Path {
    /// By latency and bandwidth alone, everything eager, nothing local.
    #[must_use]
    pub fn linear(latency: Time, bytes_per_s: f64) -> Self {
        let linear = Linear { latency, bytes_per_s, handshake: Time::ZERO, spread: None };
        Self { transit: Transit::Linear(linear), eager_bytes: None, send: Local::Nothing, receive: Local::Nothing }
    }

    /// Whether anything on it is drawn by chance.
    pub(crate) fn varies(&self) -> bool {
        let transit = match &self.transit {
            Transit::Linear(linear) => linear.spread.as_ref().is_some_and(|spread| !spread.is_constant()),
            Transit::Measured(_) => true,
        };
        transit || [&self.send, &self.receive].into_iter().any(|local| matches!(local, Local::Measured(_)))
    }

    /// Bytes per second, by formula; none: it is measured.
    pub(crate) fn rate(&self) -> Option<f64> {
        match &self.transit {
            Transit::Linear(linear) => Some(linear.bytes_per_s),
            Transit::Measured(_) => None,
        }
    }

    /// Of a message that shares its way with others: how long until its bytes set out, and its
    /// parts if it meets nobody, at so many bytes per second.
    pub(crate) fn lead(&self, bytes: u64, asked: bool, bytes_per_s: f64, draw: Draw, unit: f64) -> (Time, Flight) {
        let Transit::Linear(linear) = &self.transit else { return (Time::ZERO, Flight::default()) };
        let mut flight =
            linear.flight(bytes, asked, Level { alone_bytes_per_s: bytes_per_s, ..Level::ALONE }, draw, unit);
        // Beside nobody there is only what varies.
        let lead = flight.latency + flight.contention;
        flight.bandwidth = Time::of_bytes(bytes, bytes_per_s);
        (lead, flight)
    }

    /// Whether a standard send of so many bytes goes without asking.
    #[must_use]
    pub fn is_eager(&self, bytes: u64) -> bool {
        self.eager_bytes.is_none_or(|most| bytes <= most)
    }

    /// The time under way of a message of `bytes` that meets `level`. `unit` is its luck, from 0
    /// to 1. `asked`: it is not eager.
    pub(crate) fn flight(
        &self,
        bytes: u64,
        asked: bool,
        level: Level,
        draw: Draw,
        unit: f64,
        beyond: &mut Beyond,
    ) -> Flight {
        match &self.transit {
            Transit::Linear(linear) => linear.flight(bytes, asked, level, draw, unit),
            Transit::Measured(grid) => {
                let latency = Time::from_ns(grid.least(0));
                let least = Time::from_ns(grid.least(bytes)).max(latency);
                let drawn = Time::from_ns(grid.draw(bytes, level, draw, unit, beyond));
                // What was measured under load may be below the least without: then that is the
                // least.
                let least = least.min(drawn);
                let latency = latency.min(least);
                Flight { latency, bandwidth: least - latency, contention: drawn - least }
            }
        }
    }

    /// How long the announcement of a message that is not eager is under way.
    pub(crate) fn announcement(&self) -> Time {
        match &self.transit {
            Transit::Linear(linear) => linear.latency,
            Transit::Measured(grid) => Time::from_ns(grid.least(0)),
        }
    }
}

impl Linear {
    fn flight(&self, bytes: u64, asked: bool, level: Level, draw: Draw, unit: f64) -> Flight {
        let latency = if asked { self.latency + self.handshake } else { self.latency };
        let alone = self.bytes_per_s.min(level.alone_bytes_per_s);
        let bandwidth = Time::of_bytes(bytes, alone);
        let share = level.share_bytes_per_s;
        let shared = if share < alone { Time::of_bytes(bytes, share) } else { bandwidth };
        let mut contention = (shared - bandwidth).or_zero();
        if let Some(spread) = &self.spread {
            contention += (latency + shared).scaled(draw.of(spread, unit));
        }
        Flight { latency, bandwidth, contention }
    }
}

/// What a send that is complete without its receiver takes at its own end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SendEnd {
    /// The call of a non-blocking send: so long it keeps its process.
    pub call: Time,
    /// From the call until the memory may be used again: so long a blocking send keeps its process.
    pub complete: Time,
}

impl Local {
    /// A send of so many bytes. What was measured is until the memory may be used again; with the
    /// smallest size that is taken for the call alone. What is described by hand keeps the process
    /// in any case.
    pub(crate) fn send(&self, bytes: u64, draw: Draw, unit: impl FnOnce() -> f64, beyond: &mut Beyond) -> SendEnd {
        match self {
            Self::Measured(_) => {
                let unit = unit();
                let complete = self.time(bytes, draw, || unit, beyond);
                SendEnd { call: self.time(0, draw, || unit, beyond).min(complete), complete }
            }
            _ => {
                let all = self.time(bytes, draw, unit, beyond);
                SendEnd { call: all, complete: all }
            }
        }
    }

    /// The time of so many bytes.
    pub(crate) fn time(&self, bytes: u64, draw: Draw, unit: impl FnOnce() -> f64, beyond: &mut Beyond) -> Time {
        match self {
            Self::Nothing => Time::ZERO,
            Self::Linear(fixed, ns_per_byte) => *fixed + Time::from_ns(bytes as f64 * ns_per_byte),
            Self::Measured(grid) => Time::from_ns(grid.draw(bytes, Level::ALONE, draw, unit(), beyond)),
        }
    }
}
