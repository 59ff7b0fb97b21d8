//! What `weir bench` says of the one cell that a launch measured, as the numbers of a table.

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::cells::Cell;
use crate::stack::Carrier;

/// The numbers of `cell` in a run as `weir bench --json` tells it (`spec/distribution-format.md`).
///
/// # Errors
/// If the run is not whole, or something else carried its messages than what was asked for (of an
/// MPI's own shared memory that is what was asked for), or they went past the network between
/// hosts.
pub fn numbers(run: &Value, cell: &Cell, carrier: Carrier) -> Result<Value> {
    ensure!(run["state"] == "complete", "the run is {}", run["state"]);
    let launches = run["launches"].as_array().map_or(&[][..], Vec::as_slice);
    let warnings = launches.iter().filter_map(|launch| launch["warnings"].as_array()).flatten();
    let otherwise = |warning: &&Value| match warning["code"].as_str() {
        Some("not-carried") => carrier != Carrier::Own,
        Some("past-the-network") => !cell.one_host,
        _ => false,
    };
    if let Some(other) = warnings.into_iter().find(otherwise) {
        bail!("{}", other["message"].as_str().unwrap_or("something else carried the messages"));
    }
    let Some([one]) = run["cells"].as_array().map(Vec::as_slice) else { bail!("not one cell") };
    let number =
        |path: &str| one.pointer(path).and_then(Value::as_f64).with_context(|| format!("the cell has no {path}"));
    let us = |quantile: &str| Ok::<f64, anyhow::Error>(number(&format!("/summary/{quantile}_ns"))? / 1e3);
    let size = number("/configuration/size_bytes")?;
    let repetitions = number("/repetitions")?;
    let mut numbers = json!({
        "program": super::cells::WEIR_BENCH, "size": size, "repetitions": repetitions, "warm_up": number("/warm_up")?,
        "min_us": us("min")?, "median_us": us("p50")?, "p99_us": us("p99")?, "max_us": us("max")?, "mean_us": us("mean")?,
    });
    match one.pointer("/configuration/operation").and_then(Value::as_str) {
        // Their times are all there is to tell.
        Some("ping-pong-filled" | "put-lock" | "get-lock" | "accumulate-lock" | "open-loop") => {}
        Some("farm") => {
            // The first rank's: when it had the last result.
            let (bytes, rate) = (number("/bandwidth/bytes")?, number("/bandwidth/mean_bytes_per_s")?);
            numbers["seconds"] = (bytes / rate).into();
            numbers["mb_per_s"] = (rate / 1e6).into();
            numbers["longest_wait_ms"] = (number("/waits/summary/max_ns")? / 1e6).into();
        }
        // Of a call that goes both ways: each way.
        Some("ping-pong" | "sendrecv") => numbers["mb_per_s"] = (size / us("mean")?).into(),
        Some("message-rate") => {
            let bytes_per_s = number("/bandwidth/mean_bytes_per_s")?;
            let window = one.pointer("/configuration/parameters/window").and_then(Value::as_str);
            let window: f64 = window.and_then(|text| text.parse().ok()).context("the cell has no window")?;
            numbers["mb_per_s"] = (bytes_per_s / 1e6).into();
            numbers["messages_per_s"] = (bytes_per_s / size).into();
            // A repetition is a window each way.
            numbers["cpu_ns_per_byte"] = (number("/cpu_ns")? / (2.0 * repetitions * window * size)).into();
        }
        Some("overlap") => numbers["overlap"] = (number("/overlap/percent")? / 100.0).into(),
        Some("incast") => {
            let (bytes, rate) =
                (number("/bandwidth/bytes")?, cell.wire.rate_mbit_per_s.context("a wire without a rate")?);
            let longest_ms = bytes / number("/bandwidth/min_bytes_per_s")? * 1e3;
            numbers["goodput_mbit_per_s"] = (number("/bandwidth/mean_bytes_per_s")? * 8.0 / 1e6).into();
            // Beyond what its bytes need on that wire.
            numbers["longest_stall_ms"] = (longest_ms - bytes * 8.0 / (f64::from(rate) * 1e3)).into();
        }
        other => bail!("no table has numbers of {other:?}"),
    }
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::super::cells::{Extent, cells};
    use super::*;

    fn cell(section: &str) -> Cell {
        cells(&[section.to_owned()], Extent { quick: true, seconds: 1.0 }).remove(0)
    }

    fn run(operation: &str, more: &Value) -> Value {
        let mut cell = json!({
            "configuration": {"operation": operation, "size_bytes": 1000, "parameters": {"window": "10"}},
            "repetitions": 50, "warm_up": 2, "cpu_ns": 3e6,
            "summary": {"min_ns": 1e3, "p50_ns": 2e3, "p99_ns": 9e3, "max_ns": 2e4, "mean_ns": 4e3},
        });
        if !more.is_null() {
            cell["bandwidth"] = more.clone();
        }
        json!({"state": "complete", "launches": [{"number": 0, "warnings": []}], "cells": [cell]})
    }

    #[test]
    fn times_are_microseconds_and_bandwidth_is_of_the_mean() {
        let told = numbers(&run("ping-pong", &Value::Null), &cell("latency"), Carrier::Weir).unwrap();
        assert_eq!((&told["median_us"], &told["p99_us"], &told["mb_per_s"]), (&json!(2.0), &json!(9.0), &json!(250.0)));
    }

    #[test]
    fn cells_of_filled_buffers_passive_targets_and_exchanges_have_all_their_numbers() {
        for cell in
            cells(&["cold", "passive", "exchange", "jitter"].map(str::to_owned), Extent { quick: true, seconds: 1.0 })
        {
            let told = numbers(&run(&cell.args[1], &Value::Null), &cell, Carrier::Weir).unwrap();
            for metric in &cell.metrics {
                assert!(told[metric.key].is_f64(), "{}: {}", cell.id, metric.key);
            }
        }
    }

    #[test]
    fn a_window_goes_both_ways() {
        let told =
            numbers(&run("message-rate", &json!({"mean_bytes_per_s": 5e8})), &cell("rate"), Carrier::Weir).unwrap();
        assert_eq!((&told["mb_per_s"], &told["messages_per_s"]), (&json!(500.0), &json!(5e5)));
        // 3 ms for 50 times two windows of 10 kB.
        assert_eq!(told["cpu_ns_per_byte"], 3.0);
    }

    #[test]
    fn overlap_is_a_part_of_one() {
        let mut run = run("overlap", &Value::Null);
        assert!(numbers(&run, &cell("overlap"), Carrier::Weir).is_err());
        run["cells"][0]["overlap"] = json!({"alone_ns": 2e3, "compute_ns": 2e3, "percent": 25.0});
        assert_eq!(numbers(&run, &cell("overlap"), Carrier::Weir).unwrap()["overlap"], 0.25);
    }

    #[test]
    fn a_farms_time_is_the_first_ranks() {
        let mut run = run("farm", &json!({"bytes": 3e7, "mean_bytes_per_s": 6e7}));
        assert!(numbers(&run, &cell("farm"), Carrier::Weir).is_err());
        run["cells"][0]["waits"] = json!({"summary": {"max_ns": 5e6}});
        let told = numbers(&run, &cell("farm"), Carrier::Weir).unwrap();
        assert_eq!(
            (&told["seconds"], &told["mb_per_s"], &told["longest_wait_ms"]),
            (&json!(0.5), &json!(60.0), &json!(5.0))
        );
    }

    #[test]
    fn a_stall_is_what_the_longest_round_took_beyond_the_wires_time() {
        // 8 messages of 1000 bytes: 64 us at 1000 Mbit/s; the longest took 1 ms.
        let bandwidth = json!({"bytes": 8000.0, "mean_bytes_per_s": 1e8, "min_bytes_per_s": 8e6});
        let told = numbers(&run("incast", &bandwidth), &cell("incast"), Carrier::Weir).unwrap();
        assert_eq!(told["goodput_mbit_per_s"], 800.0);
        assert!((told["longest_stall_ms"].as_f64().unwrap() - 0.936).abs() < 1e-9, "{told}");
    }

    #[test]
    fn what_is_not_whole_or_went_another_way_is_no_number() {
        let whole = run("ping-pong", &Value::Null);
        let refused = |change: &dyn Fn(&mut Value)| {
            let mut run = whole.clone();
            change(&mut run);
            format!("{:#}", numbers(&run, &cell("latency"), Carrier::Weir).unwrap_err())
        };
        assert_eq!(refused(&|run| run["state"] = "stopped".into()), "the run is \"stopped\"");
        let warning = json!([{"code": "not-carried", "message": "nothing went by it"}]);
        assert_eq!(refused(&|run| run["launches"][0]["warnings"] = warning.clone()), "nothing went by it");
        let past = json!([{"code": "past-the-network", "message": "by memory"}]);
        assert_eq!(refused(&|run| run["launches"][0]["warnings"] = past.clone()), "by memory");
        let mut own = whole.clone();
        own["launches"][0]["warnings"] = warning;
        assert!(numbers(&own, &cell("latency"), Carrier::Own).is_ok(), "an MPI's own shared memory");
        assert_eq!(refused(&|run| run["cells"] = json!([])), "not one cell");
        assert_eq!(refused(&|run| run["cells"][0]["summary"] = Value::Null), "the cell has no /summary/min_ns");
        assert!(refused(&|run| run["cells"][0]["configuration"]["operation"] = "bcast".into()).contains("bcast"));
    }
}
