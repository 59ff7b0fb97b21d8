//! A timeline as Chrome trace events (Google, "Trace Event Format"), which Perfetto and others
//! open: a track for each process, a slice for each stretch of its time with the source line, a
//! flow from the sender's slice to the receiver's for each message.

use std::collections::BTreeSet;
use std::io::{self, Write};

use serde_json::{Value, json};

use crate::timeline::Timeline;

/// Writes a timeline. Times of trace events are microseconds; here they have three decimals, whole
/// nanoseconds.
///
/// # Errors
/// The writer's.
pub fn write(out: &mut impl Write, timeline: &Timeline, title: &str) -> io::Result<()> {
    let mut data = json!({"title": title, "processes": timeline.numprocs, "end_us": micros(timeline.end_ns)});
    if let Some(cut) = timeline.cut() {
        data["left_out"] = cut.into();
    }
    writeln!(out, "{{\"displayTimeUnit\":\"ns\",\"otherData\":{data},\"traceEvents\":[")?;
    write!(
        out,
        "{}",
        json!({"ph": "M", "cat": "__metadata", "ts": 0, "pid": 1, "name": "process_name", "args": {"name": title}})
    )?;
    let tracks: BTreeSet<u32> =
        timeline.bars.iter().map(|b| b.process).chain(timeline.arrows.iter().flat_map(|a| [a.from, a.to])).collect();
    for rank in tracks {
        event(
            out,
            &json!({"ph": "M", "cat": "__metadata", "ts": 0, "pid": 1, "tid": track(rank), "name": "thread_name", "args": {"name": format!("rank {rank}")}}),
        )?;
        event(
            out,
            &json!({"ph": "M", "cat": "__metadata", "ts": 0, "pid": 1, "tid": track(rank), "name": "thread_sort_index", "args": {"sort_index": rank}}),
        )?;
    }
    for bar in &timeline.bars {
        let (start, end) = (micros(bar.start_ns), micros(bar.end_ns));
        let place = timeline.places.get(bar.place as usize).map_or("", String::as_str);
        // Rounding both ends alike keeps neighbours from overlapping.
        let took = ((end - start) * 1000.0).round() / 1000.0;
        event(
            out,
            &json!({"ph": "X", "pid": 1, "tid": track(bar.process), "ts": start, "dur": took, "name": bar.doing.name(),
                "cat": bar.doing.name(), "args": {"line": place}}),
        )?;
    }
    for (number, arrow) in timeline.arrows.iter().enumerate() {
        let place = timeline.places.get(arrow.place as usize).map_or("", String::as_str);
        let shared = |ph: &str, rank: u32, at: f64| json!({"ph": ph, "pid": 1, "tid": track(rank), "ts": micros(at), "id": number, "name": "message", "cat": "message"});
        let mut sent = shared("s", arrow.from, arrow.sent_ns);
        sent["args"] = json!({"bytes": arrow.bytes, "from": arrow.from, "to": arrow.to, "line": place});
        let mut received = shared("f", arrow.to, arrow.received_ns);
        received["bp"] = "e".into();
        event(out, &sent)?;
        event(out, &received)?;
    }
    writeln!(out, "\n]}}")
}

/// Number 0 is no thread to viewers.
fn track(rank: u32) -> u64 {
    u64::from(rank) + 1
}

fn event(out: &mut impl Write, event: &Value) -> io::Result<()> {
    write!(out, ",\n{event}")
}

/// Microseconds with three decimals; what is not finite is 0, so that the document stays JSON.
fn micros(ns: f64) -> f64 {
    if ns.is_finite() { ns.round() / 1000.0 } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::{Arrow, Bar, Doing};

    fn read(timeline: &Timeline) -> Value {
        let mut out = Vec::new();
        write(&mut out, timeline, "a \"title\"\n").unwrap();
        serde_json::from_slice(&out).expect("JSON")
    }

    fn of(all: &Value, ph: &str) -> Vec<Value> {
        all["traceEvents"].as_array().unwrap().iter().filter(|e| e["ph"] == ph).cloned().collect()
    }

    #[test]
    fn slices_and_flows_are_what_the_run_had() {
        let bar = |process, start_ns, end_ns, doing| Bar { process, start_ns, end_ns, doing, place: 0 };
        let timeline = Timeline {
            numprocs: 2,
            end_ns: 2500.0,
            shown_ns: 2500.0,
            bars: vec![
                bar(0, 0.0, 1000.4, Doing::Compute),
                bar(0, 1000.4, 1500.6, Doing::Send),
                bar(1, 0.0, 2500.0, Doing::Wait),
            ],
            arrows: vec![Arrow { from: 0, to: 1, bytes: 8, sent_ns: 1000.4, received_ns: 2500.0, place: 0 }],
            all: (3, 1),
            places: vec!["a.c:3".into()],
        };
        let all = read(&timeline);
        let slices = of(&all, "X");
        assert_eq!(slices.len(), 3);
        assert_eq!(
            (&slices[1]["ts"], &slices[1]["dur"], &slices[1]["args"]["line"]),
            (&json!(1.0), &json!(0.501), &json!("a.c:3"))
        );
        // Neighbours touch, and the flow begins where the slice of the send does.
        assert_eq!(
            slices[0]["ts"].as_f64().unwrap() + slices[0]["dur"].as_f64().unwrap(),
            slices[1]["ts"].as_f64().unwrap()
        );
        let (sent, received) = (of(&all, "s"), of(&all, "f"));
        assert_eq!((&sent[0]["ts"], &sent[0]["tid"], &sent[0]["id"]), (&json!(1.0), &json!(1), &received[0]["id"]));
        assert_eq!(
            (&received[0]["ts"], &received[0]["tid"], &received[0]["bp"]),
            (&json!(2.5), &json!(2), &json!("e"))
        );
        assert_eq!(all["otherData"].get("left_out"), None);
    }

    #[test]
    fn what_was_left_out_is_told() {
        let timeline = Timeline { numprocs: 1, end_ns: 2e9, shown_ns: 1e9, all: (7, 0), ..Timeline::default() };
        assert!(read(&timeline)["otherData"]["left_out"].as_str().unwrap().contains("0 of 7 stretches"));
    }
}
