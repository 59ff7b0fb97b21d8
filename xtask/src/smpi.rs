//! SimGrid's SMPI, calibrated as its documentation says, beside `weir predict`: who predicts the
//! real runs better, and in what time.
//!
//! The documentation measures the calls and ping-pongs of two ranks
//! (`examples/predict/calibrate.c`), fits lines to their times piece by piece, and gives them to
//! SMPI: what the calls take at their ends (`smpi/os`, `smpi/ois`, `smpi/or`), and what the network
//! takes as multiples of the platform's latency and bandwidth (`smpi/lat-factor`,
//! `smpi/bw-factor`). The fit is our own.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::process::{run_limited, run_quiet};

/// Pieces of a fit at most, and points of one at least.
const MOST_PIECES: usize = 5;
const FEWEST_POINTS: usize = 4;

/// A piece of a line: from so many bytes on, seconds and seconds per byte.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Piece {
    from: f64,
    fixed: f64,
    per_byte: f64,
}

/// What was measured between two ranks: sizes and median seconds, by operation.
pub struct Measured(BTreeMap<String, Vec<(f64, f64)>>);

impl Measured {
    /// From what `calibrate` printed.
    ///
    /// # Errors
    /// If it is not that.
    pub fn read(text: &str) -> Result<Self> {
        let mut all: BTreeMap<String, BTreeMap<u64, Vec<f64>>> = BTreeMap::new();
        for line in text.lines() {
            let mut words = line.split(' ');
            let (Some(operation), Some(bytes), Some(ns)) = (words.next(), words.next(), words.next()) else { continue };
            let (bytes, ns): (u64, f64) = (bytes.parse().context(line.to_owned())?, ns.parse()?);
            all.entry(operation.to_owned()).or_default().entry(bytes).or_default().push(ns * 1e-9);
        }
        if ["isend", "recv", "pingpong"].iter().any(|operation| !all.contains_key(*operation)) {
            bail!("calibrate printed no times");
        }
        let median = |mut times: Vec<f64>| {
            times.sort_by(f64::total_cmp);
            times[times.len() / 2]
        };
        let by_size = |sizes: BTreeMap<u64, Vec<f64>>| {
            sizes.into_iter().map(|(bytes, times)| (bytes as f64, median(times))).collect()
        };
        Ok(Self(all.into_iter().map(|(operation, sizes)| (operation, by_size(sizes))).collect()))
    }

    fn of(&self, operation: &str) -> &[(f64, f64)] {
        self.0.get(operation).map_or(&[], Vec::as_slice)
    }

    /// Seconds of the network alone: half of a ping-pong without what the calls take.
    fn network(&self, send: &[Piece], recv: &[Piece]) -> Vec<(f64, f64)> {
        let own = |bytes: f64| at(send, bytes) + at(recv, bytes);
        self.of("pingpong").iter().map(|(bytes, time)| (*bytes, (time / 2.0 - own(*bytes)).max(time * 0.05))).collect()
    }
}

fn at(pieces: &[Piece], bytes: f64) -> f64 {
    let piece = pieces.iter().rev().find(|piece| piece.from <= bytes).or(pieces.first());
    piece.map_or(0.0, |piece| piece.fixed + piece.per_byte * bytes)
}

/// A line through points, which weighs by relative distance; neither part is below 0. With the sum
/// of squares.
fn line(points: &[(f64, f64)]) -> (f64, f64, f64) {
    let (mut w, mut wx, mut wy, mut wxx, mut wxy) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for (x, y) in points {
        let weight = 1.0 / (y * y).max(1e-18);
        (w, wx, wy) = (w + weight, wx + weight * x, wy + weight * y);
        (wxx, wxy) = (wxx + weight * x * x, wxy + weight * x * y);
    }
    let spread = w * wxx - wx * wx;
    let mut per_byte = if spread > 0.0 { ((w * wxy - wx * wy) / spread).max(0.0) } else { 0.0 };
    let mut fixed = (wy - per_byte * wx) / w;
    if fixed < 0.0 {
        (fixed, per_byte) = (0.0, if wxx > 0.0 { wxy / wxx } else { 0.0 });
    }
    let off = |(x, y): &(f64, f64)| ((fixed + per_byte * x - y) / y.max(1e-9)).powi(2);
    (fixed, per_byte, points.iter().map(off).sum())
}

/// Lines piece by piece: as many as the points are worth (by the Bayesian information criterion),
/// broken where they fit best.
fn fit(points: &[(f64, f64)]) -> Vec<Piece> {
    let n = points.len();
    // best[k][i]: the least sum of squares of the first i points by k pieces, and where the last
    // one begins.
    let mut best = vec![vec![(f64::INFINITY, 0usize); n + 1]; MOST_PIECES + 1];
    best[0][0] = (0.0, 0);
    for pieces in 1..=MOST_PIECES {
        for end in FEWEST_POINTS.min(n)..=n {
            for begin in 0..=end.saturating_sub(FEWEST_POINTS.min(n)) {
                let before = best[pieces - 1][begin].0;
                if before.is_finite() {
                    let all = before + line(&points[begin..end]).2;
                    if all < best[pieces][end].0 {
                        best[pieces][end] = (all, begin);
                    }
                }
            }
        }
    }
    let count = n as f64;
    let worth =
        |pieces: &usize| count * (best[*pieces][n].0 / count).max(1e-9).ln() + 3.0 * *pieces as f64 * count.ln();
    let all = (1..=MOST_PIECES).filter(|pieces| best[*pieces][n].0.is_finite());
    let Some(mut pieces) = all.min_by(|a, b| worth(a).total_cmp(&worth(b))) else { return Vec::new() };
    let (mut found, mut end) = (Vec::new(), n);
    while pieces > 0 {
        let begin = best[pieces][end].1;
        let (fixed, per_byte, _) = line(&points[begin..end]);
        found.push(Piece { from: if begin == 0 { 0.0 } else { points[begin].0 }, fixed, per_byte });
        (pieces, end) = (pieces - 1, begin);
    }
    found.reverse();
    found
}

/// Pieces as SMPI has them: bytes, then values.
fn listed(pieces: &[Piece], values: impl Fn(&Piece) -> Vec<f64>) -> String {
    let each = pieces.iter().map(|piece| {
        let mut text = format!("{}", piece.from);
        values(piece).into_iter().for_each(|value| {
            let _ = write!(text, ":{value:e}");
        });
        text
    });
    each.collect::<Vec<_>>().join(";")
}

/// SMPI as it was calibrated.
pub struct Smpi {
    options: Vec<String>,
    platform: String,
    hosts: usize,
    /// How long the calibration took.
    pub took: Duration,
}

impl Smpi {
    /// From measurements between two hosts, and within one. `latency_s` and `bytes_per_s` are the
    /// platform's, one way.
    ///
    /// # Errors
    /// If there is no smpirun.
    pub fn calibrated(
        between: &Measured,
        within: &Measured,
        hosts: usize,
        latency_s: f64,
        bytes_per_s: f64,
        took: Duration,
    ) -> Result<Self> {
        if run_quiet(Command::new("smpirun").arg("-version")).is_err() {
            bail!("there is no smpirun: install SimGrid (Debian: libsimgrid-dev)");
        }
        let (send, recv) = (fit(between.of("isend")), fit(between.of("recv")));
        let network = fit(&between.network(&send, &recv));
        let loopback = line(&within.network(&[], &[]));
        let times = |piece: &Piece| vec![piece.fixed, piece.per_byte];
        let latency = |piece: &Piece| vec![piece.fixed / latency_s];
        let bandwidth = |piece: &Piece| vec![(1.0 / (piece.per_byte * bytes_per_s).max(1e-3)).min(1e3)];
        let options = vec![
            format!("smpi/os:{}", listed(&send, times)),
            format!("smpi/ois:{}", listed(&send, times)),
            format!("smpi/or:{}", listed(&recv, times)),
            format!("smpi/lat-factor:{}", listed(&network, latency)),
            format!("smpi/bw-factor:{}", listed(&network, bandwidth)),
            "smpi/async-small-thresh:65536".to_owned(),
            "smpi/send-is-detached-thresh:65536".to_owned(),
            "smpi/wtime:1e-6".to_owned(),
        ];
        let platform = format!(
            "<?xml version='1.0'?>\n<!DOCTYPE platform SYSTEM \"https://simgrid.org/simgrid.dtd\">\n<platform version=\"4.1\">\n\
             <zone id=\"all\" routing=\"Full\">\n<cluster id=\"star\" prefix=\"host-\" suffix=\"\" radical=\"0-{}\" speed=\"1Gf\" \
             bw=\"{bytes_per_s}Bps\" lat=\"{}s\" loopback_bw=\"{}Bps\" loopback_lat=\"{}s\"/>\n</zone>\n</platform>\n",
            hosts - 1,
            latency_s / 2.0,
            1.0 / loopback.1.max(1e-12),
            loopback.0
        );
        Ok(Self { options, platform, hosts, took })
    }

    /// Its options, for people.
    pub fn shown(&self) -> String {
        self.options.join(" ")
    }

    /// Compiles a program for it.
    ///
    /// # Errors
    /// If that fails.
    pub fn compile(source: &Path, program: &Path) -> Result<()> {
        let mut cc = Command::new("smpicc");
        cc.args(["-O2", "-std=gnu11"]).arg(source).arg("-o").arg(program).arg("-lm");
        run_quiet(&mut cc).with_context(|| format!("smpicc: {} does not compile", source.display())).map(|_| ())
    }

    /// The run time that it predicts, and how long that took. A host is filled before the next, as
    /// in the real runs.
    ///
    /// # Errors
    /// If it does not run.
    pub fn predict(
        &self,
        program: &Path,
        arguments: &[&str],
        ranks: usize,
        folder: &Path,
        limit: Duration,
    ) -> Result<(f64, Duration)> {
        let each = ranks.div_ceil(self.hosts.min(ranks));
        let names: Vec<String> = (0..ranks).map(|rank| format!("host-{}\n", rank / each)).collect();
        fs::write(folder.join("smpi.hosts"), names.concat())?;
        fs::write(folder.join("smpi.xml"), &self.platform)?;
        let begin = Instant::now();
        let mut command = Command::new("smpirun");
        command.args(["-np", &ranks.to_string(), "-hostfile", "smpi.hosts", "-platform", "smpi.xml"]);
        command.arg("--log=root.thres:error").args(self.options.iter().map(|option| format!("--cfg={option}")));
        command.arg(program).args(arguments).current_dir(folder);
        let outcome = run_limited(&mut command, limit)?;
        if !outcome.ok() {
            bail!("smpirun with {ranks} ranks: {}\n{}", outcome.cause(), outcome.stderr);
        }
        let printed =
            outcome.stdout.lines().find(|line| line.starts_with('{')).context("the program printed no result")?;
        let result: Value = serde_json::from_str(printed)?;
        Ok((result["slowest_s"].as_f64().context("the result has no time")?, begin.elapsed()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_in_two_pieces_is_found() {
        let time = |bytes: f64| if bytes < 1000.0 { 1e-6 + 1e-9 * bytes } else { 9e-6 + 3e-9 * bytes };
        let points: Vec<(f64, f64)> = (0..40).map(|n| 1.35f64.powi(n)).map(|x| (x, time(x))).collect();
        let pieces = fit(&points);
        assert_eq!(pieces.len(), 2, "{pieces:?}");
        assert!(pieces[0].from == 0.0 && (700.0..1400.0).contains(&pieces[1].from), "{pieces:?}");
        assert!((pieces[1].fixed - 9e-6).abs() < 1e-12 && (pieces[1].per_byte - 3e-9).abs() < 1e-15);
        assert!((at(&pieces, 500.0) - 1.5e-6).abs() < 1e-12);
        assert_eq!(listed(&pieces[..1], |p| vec![p.fixed, p.per_byte]).split(':').count(), 3);
    }

    #[test]
    fn what_is_measured_is_read_by_its_medians() {
        let text = "isend 1 100\nisend 1 300\nisend 1 200\nrecv 1 50\npingpong 1 2000\n";
        let measured = Measured::read(text).unwrap();
        assert_eq!(measured.of("isend"), [(1.0, 200.0 * 1e-9)]);
        assert!(Measured::read("hello").is_err());
        let network = measured.network(&fit(measured.of("isend")), &fit(measured.of("recv")));
        assert!((network[0].1 - 750e-9).abs() < 1e-12, "{network:?}");
    }
}
