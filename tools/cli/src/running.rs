//! For `weir doctor`: what the counters of the processes that use Weir now say of the network.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;

use crate::doctor::{Finding, Severity};
use crate::stat;

/// Processes that are asked, at most; and how long each may take. Who is stopped answers nobody and
/// is not waited for; after a few that run and do not answer the others are given less.
const PROCESSES_MAX: usize = 256;
const ANSWER_LIMIT: Duration = Duration::from_secs(1);
const SHORT_LIMIT: Duration = Duration::from_millis(50);
const SILENT_MAX: usize = 3;
/// Addresses and processes named in one line, at most.
const NAMED_MAX: usize = 4;

/// The counters of the user's processes with an endpoint in this network namespace.
pub fn documents() -> Vec<(u32, Value)> {
    answers().into_iter().filter_map(|(pid, document)| Some((pid, document.ok()?))).collect()
}

/// The same, and without counters those that serve some and did not answer: whose they are is not
/// known of these.
pub fn answers() -> Vec<(u32, Result<Value, stat::Silent>)> {
    let mut silent = 0;
    let mut all = Vec::new();
    for pid in stat::served().into_iter().take(PROCESSES_MAX) {
        // All the same they are asked: whose they are their sockets tell.
        let wait = silent < SILENT_MAX && !stat::is_stopped(pid);
        match stat::ask(pid, &stat::address(pid), if wait { ANSWER_LIMIT } else { SHORT_LIMIT }) {
            Ok(document) => all.push((pid, Ok(document))),
            // Else gone meanwhile, or another user's.
            Err(error) => {
                if let Ok(why) = error.downcast::<stat::Silent>() {
                    silent += usize::from(why != stat::Silent::Stopped);
                    all.push((pid, Err(why)));
                }
            }
        }
    }
    all
}

/// Whether bulk connections work where they are wanted; `variable` is the one to switch them off
/// by.
pub fn bulk_connections(documents: &[(u32, Value)], variable: &str) -> Vec<Finding> {
    let mut blocked = (BTreeSet::new(), Vec::new());
    let (mut others, mut opened) = (0_u64, 0_u64);
    for (pid, document) in documents {
        let endpoints = document["endpoints"].as_array().map_or(&[][..], Vec::as_slice);
        let mut is_blocked = false;
        for e in endpoints {
            let connects = count(&e["engine"]["bulk_connects_failed"]);
            is_blocked |= connects > 0;
            // Another's process may say anything.
            others = others.saturating_add(count(&e["protocol"]["bulk_connections_failed"]).saturating_sub(connects));
            opened = opened.saturating_add(count(&e["protocol"]["bulk_connections_opened"]));
            let to = e["no_tcp_to"].as_array().into_iter().flatten();
            blocked.0.extend(to.filter_map(|one| one.as_str()?.parse::<SocketAddr>().ok()));
        }
        if is_blocked {
            blocked.1.push(*pid);
        }
    }
    let (addresses, pids) = blocked;
    let mut found = Vec::new();
    if !pids.is_empty() {
        let to = if addresses.is_empty() { String::new() } else { format!(" to {}", few(addresses.iter())) };
        let text = format!(
            "TCP{to} was not answered (process {}): large messages go in packets; a firewall may drop TCP, which should pass to the ports that UDP has",
            few(pids.iter())
        );
        found
            .push(Finding::new("bulk connections", Severity::Warning, text).fixed_by(format!("export {variable}=off")));
    }
    if others > 0 {
        let text = format!(
            "{others} ends of bulk connections failed ({opened} were up), in all processes that run: the network lost segments, or a peer ended; large messages go in packets for a while"
        );
        found.push(Finding::new("bulk connections", Severity::Info, text));
    }
    if found.is_empty() && opened > 0 {
        found.push(Finding::new(
            "bulk connections",
            Severity::Ok,
            "large messages of the processes that run go by TCP",
        ));
    }
    found
}

fn count(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

/// The first few, and how many more.
fn few<T: ToString>(all: impl ExactSizeIterator<Item = T>) -> String {
    let more = all.len().saturating_sub(NAMED_MAX);
    let named: Vec<String> = all.take(NAMED_MAX).map(|one| one.to_string()).collect();
    named.join(", ") + &if more > 0 { format!(" and {more} more") } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stat::tests::document;
    use proptest::prelude::*;
    use serde_json::json;

    fn process(connects_failed: u64, failed: u64, opened: u64, to: &[&str]) -> Value {
        json!({"endpoints": [{
            "engine": {"bulk_connects_failed": connects_failed},
            "protocol": {"bulk_connections_failed": failed, "bulk_connections_opened": opened},
            "no_tcp_to": to,
        }]})
    }

    #[test]
    fn tcp_that_is_not_answered_is_a_warning_that_names_where() {
        let blocked = process(2, 2, 0, &["10.0.0.2:7000", "10.0.0.3:7000"]);
        let found = bulk_connections(&[(12, blocked.clone()), (13, process(0, 0, 1, &[])), (14, blocked)], "WEIR_BULK");
        assert_eq!(found.len(), 1, "{found:?}");
        let Finding { severity, cause, fix, .. } = &found[0];
        assert_eq!((*severity, fix.as_deref()), (Severity::Warning, Some("export WEIR_BULK=off")));
        assert!(cause.starts_with("TCP to 10.0.0.2:7000, 10.0.0.3:7000 was not answered (process 12, 14)"), "{cause}");
        assert!(cause.contains("a firewall may drop TCP"), "{cause}");
    }

    #[test]
    fn bulk_connections_that_failed_otherwise_are_worth_knowing_and_those_that_work_are_good() {
        let found = bulk_connections(&[(12, process(0, 3, 5, &[]))], "WEIR_BULK");
        assert!(found.len() == 1 && found[0].severity == Severity::Info, "{found:?}");
        assert!(found[0].cause.contains("3 ends of bulk connections failed (5 were up)"), "{found:?}");
        let found = bulk_connections(&[(12, process(0, 0, 5, &[]))], "WEIR_BULK");
        assert!(found.len() == 1 && found[0].severity == Severity::Ok, "{found:?}");
        assert!(
            bulk_connections(&[(12, process(0, 0, 0, &[])), (13, json!([1]))], "WEIR_BULK").is_empty(),
            "nothing is known"
        );
    }

    #[test]
    fn a_long_list_is_cut() {
        assert_eq!(few([1, 2, 3, 4].iter()), "1, 2, 3, 4");
        assert_eq!(few([1, 2, 3, 4, 5, 6].iter()), "1, 2, 3, 4 and 2 more");
    }

    #[test]
    fn a_process_that_says_nonsense_does_no_harm() {
        let most = process(1, u64::MAX, u64::MAX, &["10.0.0.2:7000", "not\nan address"]);
        let found = bulk_connections(&[(12, most.clone()), (13, most)], "WEIR_BULK");
        assert!(found[0].cause.starts_with("TCP to 10.0.0.2:7000 was not answered"), "{found:?}");
        assert!(found[1].cause.starts_with(&format!("{} ends of bulk connections failed", u64::MAX)), "{found:?}");
    }

    proptest! {
        #[test]
        fn any_answers_of_processes_are_findings_of_one_line_or_none(
            answers in proptest::collection::vec((any::<u32>(), document()), 0..4), failed: u64, to in "(?s).{0,9}", address: SocketAddr,
        ) {
            let mut all: Vec<(u32, Value)> =
                answers.into_iter().flat_map(|(pid, v)| [(pid, json!({"endpoints": [v.clone()]})), (pid, v)]).collect();
            all.push((1, process(failed, 0, failed, &[&to, &address.to_string()])));
            let found = bulk_connections(&all, "WEIR_BULK");
            prop_assert!(found.iter().all(|f| f.cause.len() < 500 && !f.cause.contains(char::is_control)), "{found:?}");
            prop_assert_eq!(found.iter().any(|f| f.cause.contains(&address.to_string())), failed > 0);
        }
    }
}
