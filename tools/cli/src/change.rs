//! For `weir stat --every`: what was counted between two documents of one process.
//!
//! Only counters are subtracted. What holds now (windows, queues, bytes held), what was the most ever, what names something
//! and what was negotiated stay as they are in the later document.

use serde_json::{Map, Value};

/// The parts of an endpoint that count, and in each what does not count but holds now. Names that end in `_peak` are the most
/// there ever was, wherever they stand. The documents are made in `engine/src/stat.rs`.
const COUNTING: [(&str, &[&str]); 4] = [
    ("engine", &["unexpected_bytes", "copied_bytes"]),
    ("census", &["posted", "unexpected", "behind_gap"]),
    ("protocol", &[]),
    ("transport", &[]),
];
/// What is counted of a peer, beside its streams; all else, its paths too, is its state now.
const OF_A_PEER: [&str; 14] = [
    "packets_sent",
    "packets_received",
    "acks_sent",
    "acks_received",
    "packets_lost",
    "losses_spurious",
    "repairs_sent",
    "bytes_resent",
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
    for endpoint in list(&mut all, "endpoints") {
        let Some(old) = same(before, "endpoints", "endpoint", endpoint) else { continue };
        for (part, gauges) in COUNTING {
            let counters = |name: &str| !name.ends_with("_peak") && !gauges.contains(&name);
            if let (Some(Value::Object(part)), Some(Value::Object(old))) = (endpoint.get_mut(part), old.get(part)) {
                subtract(part, old, counters);
            }
        }
        for peer in list(endpoint, "peers") {
            let old = same(old, "peers", "peer", peer);
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

/// The thing in the earlier document's list that bears the same name: lists grow and shrink.
fn same<'a>(before: &'a Value, list: &str, key: &str, thing: &Value) -> Option<&'a Value> {
    let name = thing.get(key)?;
    before.get(list)?.as_array()?.iter().find(|old| old.get(key) == Some(name))
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
    use serde_json::json;

    #[test]
    fn counters_are_subtracted() {
        let part = |n: u64| json!({"endpoint": "ab", "engine": {"polls": n}, "census": {"expected_short": n}, "protocol": {"acks_sent": n}, "transport": {"tx_bytes": n}, "peers": [{"peer": 2, "packets_sent": n}]});
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
                "census": {"posted": n, "unexpected": n, "behind_gap": n},
                "protocol": {"last_violation": ""},
                "peers": [{"peer": 2, "level": n, "primary_path": n, "messages_open": n, "messages_waiting": n, "bodies_open": n,
                    "bodies_in": n, "lanes_open": n, "paths": [{"mtu": n, "window_bytes": n, "in_flight_bytes": n, "reorder_threshold": n,
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
}
