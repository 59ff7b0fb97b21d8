//! Counters as they are reported: as JSON, or as a table for people.

use crate::model::{Collisions, Counters};
use serde::Serialize;
use std::fmt;

/// How late packets were sent, in powers of two of a microsecond.
#[derive(Clone, Debug)]
pub struct Lateness {
    buckets: [u64; 40],
    most_ns: u64,
}

impl Default for Lateness {
    fn default() -> Self {
        Lateness { buckets: [0; 40], most_ns: 0 }
    }
}

/// A summary of [`Lateness`], in microseconds. The percentiles are upper bounds of their
/// power-of-two bucket.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct LatenessSummary {
    /// Half of the packets were sent at most this late.
    pub p50: u64,
    /// 99 % were.
    pub p99: u64,
    /// All were.
    pub max: u64,
}

impl Lateness {
    /// Notes one packet.
    pub fn note(&mut self, late_ns: u64) {
        let us = late_ns / 1000;
        let bucket = (u64::BITS - us.leading_zeros()) as usize;
        self.buckets[bucket.min(self.buckets.len() - 1)] += 1;
        self.most_ns = self.most_ns.max(late_ns);
    }

    /// The summary so far.
    pub fn summary(&self) -> LatenessSummary {
        let total: u64 = self.buckets.iter().sum();
        let most = self.most_ns.div_ceil(1000);
        let percentile = |share: f64| {
            let mut left = (total as f64 * share).ceil() as u64;
            for (bucket, count) in self.buckets.iter().enumerate() {
                if *count >= left && total > 0 {
                    return (1u64 << bucket).min(most);
                }
                left -= count;
            }
            0
        };
        LatenessSummary { p50: percentile(0.5), p99: percentile(0.99), max: most }
    }
}

/// What the data plane reports; `pipes` holds (up, down) of each port.
#[derive(Clone, Debug, Default)]
pub struct PlaneStats {
    /// Counters of each port's pipes.
    pub pipes: Vec<(Counters, Counters)>,
    /// See [`Stats::unreachable`].
    pub unreachable: u64,
    /// See [`Stats::overrun`].
    pub overrun: u64,
    /// See [`Stats::oversize`].
    pub oversize: u64,
    /// See [`Stats::no_memory`].
    pub no_memory: u64,
    /// See [`Stats::refused`].
    pub refused: u64,
    /// See [`Stats::late_us`].
    pub late_us: LatenessSummary,
    /// See [`Stats::cpu_s`].
    pub cpu_s: f64,
}

/// Counters of one host's link on one network.
#[derive(Clone, Debug, Serialize)]
pub struct LinkStats {
    /// The host.
    pub host: String,
    /// The network.
    pub network: String,
    /// Host to switch; absent on plain networks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub up: Option<Counters>,
    /// Switch to host; absent on plain networks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub down: Option<Counters>,
    /// Packets that left the host's interface.
    pub interface_tx_packets: u64,
    /// Packets that the host's interface received.
    pub interface_rx_packets: u64,
    /// Packets that the host's kernel dropped at its interface, which no part of the emulation
    /// asked for.
    pub interface_dropped: u64,
    /// Packets dropped at random as they arrived, on plain networks with `nft_loss`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nft_dropped: Option<u64>,
}

/// Counters of a whole network.
#[derive(Clone, Debug, Serialize)]
pub struct Stats {
    /// The network's name.
    pub name: String,
    /// Seconds since it started.
    pub elapsed_s: f64,
    /// Each host's link on each network.
    pub links: Vec<LinkStats>,
    /// Packets for an address that no host has.
    pub unreachable: u64,
    /// Packets lost because the emulator did not keep up. Not zero means: do not trust the run.
    pub overrun: u64,
    /// Packets above the MTU, which must not happen with offloads off.
    pub oversize: u64,
    /// Packets lost because the memory for packets in flight was full.
    pub no_memory: u64,
    /// Packets that a host's interface did not take.
    pub refused: u64,
    /// How late packets were sent.
    pub late_us: LatenessSummary,
    /// Processor time of the data plane in seconds.
    pub cpu_s: f64,
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {:.1} s, {:.2} s of processor time", self.name, self.elapsed_s, self.cpu_s)?;
        let emulated = self.links.iter().any(|l| l.up.is_some());
        if emulated {
            writeln!(
                f,
                "{:<12} {:<8} {:<4} {:>11} {:>8} {:>8} {:>8} {:>8} {:>7} {:>7} {:>7} {:>7} {:>7}",
                "host",
                "network",
                "dir",
                "forwarded",
                "queue",
                "marked",
                "loss",
                "cut",
                "copies",
                "held",
                "damaged",
                "peak p",
                "peak kB"
            )?;
        } else {
            writeln!(f, "{:<12} {:<8} {:>11} {:>11} {:>8}", "host", "network", "sent", "received", "nft loss")?;
        }
        for link in &self.links {
            for (direction, pipe) in [("up", &link.up), ("down", &link.down)] {
                let Some(c) = pipe else { continue };
                writeln!(
                    f,
                    "{:<12} {:<8} {:<4} {:>11} {:>8} {:>8} {:>8} {:>8} {:>7} {:>7} {:>7} {:>7} {:>7}",
                    link.host,
                    link.network,
                    direction,
                    c.forwarded_packets,
                    c.dropped_queue,
                    c.marked,
                    c.dropped_loss,
                    c.dropped_cut,
                    c.duplicated,
                    c.reordered,
                    c.corrupted + c.corrupted_hidden,
                    c.queue_peak_packets,
                    c.queue_peak_bytes / 1000,
                )?;
                if c.collisions > 0 {
                    writeln!(
                        f,
                        "{:<12} {:<8} {:<4} {} attempts collided, {} packets given up after {}",
                        "",
                        "",
                        "",
                        c.collisions,
                        c.dropped_collisions,
                        Collisions::ATTEMPTS
                    )?;
                }
            }
            if link.up.is_none() {
                writeln!(
                    f,
                    "{:<12} {:<8} {:>11} {:>11} {:>8}",
                    link.host,
                    link.network,
                    link.interface_tx_packets,
                    link.interface_rx_packets,
                    link.nft_dropped.map_or_else(|| "-".into(), |n| n.to_string()),
                )?;
            }
        }
        if emulated {
            let late = self.late_us;
            writeln!(f, "sent late by (us): {} in half, {} in 99 %, {} at most", late.p50, late.p99, late.max)?;
        }
        let dropped: u64 = self.links.iter().map(|l| l.interface_dropped).sum();
        for (count, what) in [
            (self.overrun, "lost because the emulator did not keep up: do not trust this run"),
            (self.oversize, "larger than the MTU"),
            (self.no_memory, "lost for want of memory"),
            (self.refused, "refused by a host's interface"),
            (self.unreachable, "for nobody"),
            (dropped, "dropped by a host's own kernel"),
        ] {
            if count > 0 {
                writeln!(f, "{count} packets {what}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lateness_percentiles_bound_from_above() {
        let mut late = Lateness::default();
        for us in 0..1000u64 {
            late.note(us * 1000);
        }
        let summary = late.summary();
        assert!((500..=512).contains(&summary.p50), "{summary:?}");
        assert!((990..=999).contains(&summary.p99), "{summary:?}");
        assert_eq!(summary.max, 999);
        assert_eq!(Lateness::default().summary().max, 0);
    }
}
