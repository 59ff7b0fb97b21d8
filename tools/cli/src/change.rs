//! For `weir stat --every`: what was counted between two documents of one process.
//!
//! Only counters are subtracted. What holds now (windows, queues, bytes held), what was the most
//! ever, what names something and what was negotiated stay as they are in the later document.

use std::collections::HashMap;

use serde_json::{Map, Value};

/// The parts of an endpoint that count, and in each what does not count but holds now. Names that
/// end in `_peak` are the most there ever was, wherever they stand. The documents are made in
/// `engine/src/stat.rs`.
const COUNTING: [(&str, &[&str]); 8] = [
    ("engine", &["unexpected_bytes", "copied_bytes"]),
    ("processor", &[]),
    ("queue_statistics", &["posted", "unexpected", "behind_gap"]),
    ("protocol", &[]),
    ("transport", &[]),
    ("shared_memory", &[]),
    ("sctp", &[]),
    ("xdp", &["place"]),
];
/// What is counted of a peer, beside its streams; all else, its paths too, is its state now.
const OF_A_PEER: [&str; 17] = [
    "packets_sent",
    "packets_received",
    "acks_sent",
    "acks_received",
    "packets_lost",
    "losses_spurious",
    "repairs_sent",
    "bytes_resent",
    "marks_received",
    "marks_told",
    "marks_windows",
    "grants_sent",
    "grants_received",
    "stalls_credit",
    "stalls_window",
    "stalls_pacing",
    "failovers",
];

/// The later document, with its counters less those of the earlier one.
pub fn between(before: &Value, after: &Value) -> Value {
    let mut all = after.clone();
    let earlier = by_name(before, "endpoints", "endpoint");
    for endpoint in list(&mut all, "endpoints") {
        let Some(old) = named(endpoint, "endpoint").and_then(|name| earlier.get(&name)) else { continue };
        for (part, gauges) in COUNTING {
            let counters = |name: &str| !name.ends_with("_peak") && !gauges.contains(&name);
            if let (Some(Value::Object(part)), Some(Value::Object(old))) = (endpoint.get_mut(part), old.get(part)) {
                subtract(part, old, counters);
            }
        }
        let earlier = by_name(old, "peers", "peer");
        for peer in list(endpoint, "peers") {
            let old = named(peer, "peer").and_then(|name| earlier.get(&name));
            if let (Value::Object(peer), Some(Value::Object(old))) = (peer, old) {
                subtract(peer, old, |name| OF_A_PEER.contains(&name));
                for (stream, counters) in peer.get_mut("streams").and_then(Value::as_object_mut).into_iter().flatten() {
                    let old = old.get("streams").and_then(|streams| streams.get(stream));
                    if let (Value::Object(counters), Some(Value::Object(old))) = (counters, old) {
                        subtract(counters, old, |_| true);
                    }
                }
            }
        }
    }
    all
}

/// The things in a list of a document's, to be changed.
fn list<'a>(value: &'a mut Value, name: &str) -> impl Iterator<Item = &'a mut Value> {
    value.get_mut(name).and_then(Value::as_array_mut).into_iter().flatten()
}

/// The things in a list of the earlier document, by their names: lists grow and shrink, and may
/// have as many entries as a job has ranks.
fn by_name<'a>(before: &'a Value, list: &str, key: &str) -> HashMap<String, &'a Value> {
    let things = before.get(list).and_then(Value::as_array).into_iter().flatten();
    things.filter_map(|thing| Some((named(thing, key)?, thing))).collect()
}

fn named(thing: &Value, key: &str) -> Option<String> {
    thing.get(key).map(Value::to_string)
}

fn subtract(new: &mut Map<String, Value>, old: &Map<String, Value>, counts: impl Fn(&str) -> bool) {
    for (name, value) in new.iter_mut().filter(|(name, _)| counts(name)) {
        if let (Some(after), Some(before)) = (value.as_u64(), old.get(name).and_then(Value::as_u64)) {
            // Less than before: another one has come in its place, and counts from zero.
            *value = after.checked_sub(before).unwrap_or(after).into();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stat::tests::document;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn counters_are_subtracted() {
        let part = |n: u64| json!({"endpoint": "ab", "engine": {"polls": n}, "processor": {"ran_ms": n, "waited_ms": n}, "queue_statistics": {"expected_short": n}, "protocol": {"acks_sent": n}, "transport": {"tx_bytes": n}, "peers": [{"peer": 2, "packets_sent": n}]});
        let document = |n| json!({"pid": 77, "version": "1", "endpoints": [part(n)]});
        assert_eq!(between(&document(3), &document(10)), document(7));
        assert_eq!(between(&document(10), &document(3)), document(3), "counted anew");
    }

    #[test]
    fn what_holds_now_and_what_names_something_stays() {
        let document = |n: u64| {
            json!({"pid": n, "endpoints": [{
                "endpoint": "ab",
                "engine": {"unexpected_bytes": n, "unexpected_bytes_peak": n, "copied_bytes": n, "copied_bytes_peak": n, "notices_peak": n},
                "queue_statistics": {"posted": n, "unexpected": n, "behind_gap": n},
                "protocol": {"last_violation": ""},
                "peers": [{"peer": 2, "level": n, "primary_path": n, "messages_open": n, "messages_waiting": n, "rndvs_open": n,
                    "rndvs_in": n, "bulk_connections_open": n, "paths": [{"mtu": n, "window_bytes": n, "in_flight_bytes": n, "reorder_threshold": n,
                        "probe_timeouts": n, "srtt_us": 1.5}]}],
            }]})
        };
        for (before, after) in [(12, 12), (12, 15), (15, 12)] {
            assert_eq!(between(&document(before), &document(after)), document(after));
        }
        let unexpected = |n: u64| json!({"endpoints": [{"endpoint": "ab", "engine": {"unexpected": n}}]});
        assert_eq!(between(&unexpected(2), &unexpected(5)), unexpected(3), "messages that came unexpected are counted");
    }

    #[test]
    fn peers_and_endpoints_are_known_by_their_names() {
        let peer = |peer: u64, n: u64| json!({"peer": peer, "packets_sent": n});
        let before = json!({"endpoints": [{"endpoint": "gone", "engine": {"polls": 1}}, {"endpoint": "ab", "engine": {"polls": 5}, "peers": [peer(2, 10)]}]});
        let after =
            json!({"endpoints": [{"endpoint": "ab", "engine": {"polls": 7}, "peers": [peer(0, 4), peer(2, 30)]}]});
        let change =
            json!({"endpoints": [{"endpoint": "ab", "engine": {"polls": 2}, "peers": [peer(0, 4), peer(2, 20)]}]});
        assert_eq!(between(&before, &after), change);
    }

    #[test]
    fn each_stream_of_a_peer_counts_for_itself() {
        let document =
            |streams: Value| json!({"endpoints": [{"endpoint": "ab", "peers": [{"peer": 2, "streams": streams}]}]});
        let before = document(json!({"0": {"messages_out": 3, "bytes_out": 30}}));
        let after =
            document(json!({"0": {"messages_out": 5, "bytes_out": 90}, "7": {"messages_out": 1, "bytes_out": 8}}));
        let change =
            document(json!({"0": {"messages_out": 2, "bytes_out": 60}, "7": {"messages_out": 1, "bytes_out": 8}}));
        assert_eq!(between(&before, &after), change);
    }

    #[test]
    fn what_is_no_document_does_no_harm() {
        for value in [json!(3), json!([1]), json!({"endpoints": 3}), json!({"endpoints": [3]}), json!(null)] {
            assert_eq!(between(&json!({"endpoints": [{"endpoint": "ab"}]}), &value), value);
            assert_eq!(between(&value, &value), value);
        }
    }

    #[test]
    fn a_job_of_very_many_ranks_is_compared_in_one_go() {
        // Each peer looked for in the whole list would take hours.
        let peers = |n: u64| (0..300_000u64).map(|peer| json!({"peer": peer, "packets_sent": n})).collect::<Vec<_>>();
        let document = |n: u64| json!({"endpoints": [{"endpoint": "ab", "peers": peers(n)}]});
        let change = between(&document(3), &document(10));
        assert_eq!(change["endpoints"][0]["peers"][299_999]["packets_sent"], 7);
    }

    proptest! {
        #[test]
        fn any_two_documents_can_be_compared_and_nothing_is_added(before in document(), after in document()) {
            let of = |list: &Value| json!({"endpoints": [{"endpoint": 1, "engine": list, "peers": [list, {"peer": 1, "streams": list}]}]});
            between(&before, &after);
            let change = between(&of(&before), &of(&after));
            let keys = |value: &Value| value.to_string().matches('"').count();
            prop_assert_eq!(keys(&change), keys(&of(&after)));
        }

        #[test]
        fn what_was_counted_reads_back_as_the_difference(
            counters in proptest::collection::btree_map("[a-z]{1,6}", (any::<u32>(), any::<u32>()), 0..9),
        ) {
            let document = |of: &dyn Fn(&(u32, u32)) -> u64| {
                let part: Map<String, Value> = counters.iter().map(|(name, n)| (name.clone(), of(n).into())).collect();
                json!({"endpoints": [{"endpoint": "ab", "transport": part}]})
            };
            let (earlier, later) = (document(&|n| n.0.into()), document(&|n| u64::from(n.0) + u64::from(n.1)));
            prop_assert_eq!(between(&earlier, &later), document(&|n| n.1.into()));
        }
    }
}
