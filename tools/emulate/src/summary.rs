//! What a network is, in short, for the records of what is measured in it: the variable
//! `WEIR_EMULATE_NETWORK` (`spec/network-toml.md`, "What a command finds").

use crate::model::{Chance, Loss, Mark, PipeSpec, QueueLimit};
use crate::spec::{DEFAULT_QUEUE_PACKETS, Spec};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The variable that says it.
const NETWORK_VARIABLE: &str = "WEIR_EMULATE_NETWORK";
/// More hosts than these whose links are not as the others' are counted only, and of changes the
/// last so many are told: an environment has to have room for it.
pub(crate) const MOST_TOLD: usize = 16;
/// A longer text leaves out all single hosts.
const MOST_BYTES: usize = 32 << 10;

type Settings = BTreeMap<String, String>;

/// The variable and its value. `changes`: what was changed since the start, oldest first.
pub(crate) fn variable(spec: &Spec, changes: &[String]) -> (String, String) {
    let text = [MOST_TOLD, 0].map(|most| summary(spec, changes, most).to_string());
    let text = text.into_iter().reduce(|all, short| if all.len() <= MOST_BYTES { all } else { short });
    (NETWORK_VARIABLE.to_owned(), text.unwrap_or_default())
}

fn summary(spec: &Spec, changes: &[String], most_told: usize) -> Value {
    let networks: Vec<Value> = (0..spec.networks.len()).map(|network| of_network(spec, network, most_told)).collect();
    let mut out = Map::new();
    out.insert("emulator".into(), "weir emulate".into());
    let mut tell = |key: &str, value: Value, is_usual: bool| {
        if !is_usual {
            out.insert(key.into(), value);
        }
    };
    tell("name", json!(spec.name), spec.name.is_none());
    tell("hosts", json!(spec.hosts.len()), false);
    tell("seed", json!(spec.seed), false);
    tell("plain", json!(true), !spec.plain);
    tell("networks", json!(networks), false);
    tell("sysctl", json!(spec.sysctl), spec.sysctl.is_empty());
    tell("events", json!(spec.events.len()), spec.events.is_empty());
    let last = &changes[changes.len().saturating_sub(MOST_TOLD)..];
    tell("changes", json!(last), changes.is_empty());
    Value::Object(out)
}

/// The settings that most hosts' links have, and those of the others.
fn of_network(spec: &Spec, network: usize, most_told: usize) -> Value {
    let of = &spec.networks[network];
    let each: Vec<Settings> = (0..spec.hosts.len()).map(|host| of_link(spec, network, host)).collect();
    let count = |settings: &Settings| each.iter().filter(|own| *own == settings).count();
    // Of several the first.
    let usual = each.iter().rev().max_by_key(|settings| count(settings)).cloned().unwrap_or_default();
    let others = || spec.hosts.iter().zip(&each).filter(|(_, own)| **own != usual);
    let told: Map<String, Value> = others().take(most_told).map(|(host, own)| (host.clone(), json!(own))).collect();
    let left_out = others().count() - told.len();
    let mut out = json!({ "name": of.name, "settings": usual });
    if !told.is_empty() {
        out["hosts"] = Value::Object(told);
    }
    if left_out > 0 {
        out["hosts_left_out"] = left_out.into();
    }
    out
}

/// A link's settings by their keys in the network file, flat where they hold as flat ones do.
fn of_link(spec: &Spec, network: usize, host: usize) -> Settings {
    let of = &spec.networks[network];
    let mut out = Settings::new();
    out.insert("mtu".into(), of.mtu.to_string());
    for (key, is) in [("bus", of.bus), ("collisions", of.collisions)] {
        if is {
            out.insert(key.into(), "yes".into());
        }
    }
    if spec.plain {
        out.insert("offload".into(), if spec.offload() { "on" } else { "off" }.into());
        out.extend(spec.nft_loss.map(|loss| ("loss".into(), percent(loss))));
        return out;
    }
    // The spec was checked: each pipe can be made.
    let (up, down) =
        spec.pipes(network, host).map_or_else(|_| Default::default(), |(up, down)| (of_pipe(&up), of_pipe(&down)));
    const BOTH: [&str; 2] = ["rate", "overhead"];
    const OF_MEDIUM: [&str; 4] = ["rate", "overhead", "queue", "mark"];
    for (key, value) in &up {
        if !of.bus && *key == "queue" && *value == format!("{DEFAULT_QUEUE_PACKETS}p") {
            continue; // nobody asked for it: it follows from the rate
        }
        let flat = if of.bus { OF_MEDIUM.contains(key) } else { BOTH.contains(key) && down.get(key) == Some(value) };
        out.insert(if flat { (*key).to_owned() } else { format!("up.{key}") }, value.clone());
    }
    for (key, value) in &down {
        let flat = if of.bus { !OF_MEDIUM.contains(key) } else { !BOTH.contains(key) || up.get(key) == Some(value) };
        out.insert(if flat { (*key).to_owned() } else { format!("down.{key}") }, value.clone());
    }
    out
}

/// What a pipe does to packets, by the keys of the network file; what it does not is left out.
fn of_pipe(pipe: &PipeSpec) -> BTreeMap<&'static str, String> {
    let mut out = BTreeMap::new();
    let mut tell = |key: &'static str, value: Option<String>| out.extend(value.map(|value| (key, value)));
    let some = |number: u64| (number > 0).then_some(number);
    let chance = |chance: Chance| (chance != Chance::NEVER).then(|| percent(chance.fraction()));
    tell("rate", some(pipe.rate_bytes_per_s).map(|rate| scaled(rate * 8, 1000, &["", "k", "m", "g"])));
    tell("overhead", some(pipe.wire_overhead_bytes.into()).map(|bytes| bytes.to_string()));
    let QueueLimit { packets, bytes, .. } = pipe.queue;
    tell("queue", limit(packets, bytes).filter(|_| pipe.rate_bytes_per_s > 0));
    let Mark { packets, bytes } = pipe.mark;
    tell("mark", limit(packets, bytes));
    tell("delay", some(pipe.delay_ns).map(time));
    tell("jitter", some(pipe.jitter_ns).map(time));
    let Loss { each, burst } = pipe.loss;
    match burst {
        None => tell("loss", chance(each)),
        Some(burst) => {
            let [to_bad, to_good, good, bad] =
                [burst.to_bad, burst.to_good, each, burst.loss].map(|chance| percent(chance.fraction()));
            let text = format!("to_bad {to_bad}, to_good {to_good}, loss_good {good}, loss_bad {bad}");
            tell("gilbert", Some(text));
        }
    }
    tell("duplicate", chance(pipe.duplicate));
    tell("reorder", chance(pipe.reorder.chance));
    tell("reorder_hold", some(pipe.reorder.most_ns).filter(|_| pipe.reorder.chance != Chance::NEVER).map(time));
    tell("corrupt", chance(pipe.corrupt));
    tell("corrupt_hidden", chance(pipe.corrupt_hidden));
    out
}

fn limit(packets: Option<u32>, bytes: Option<u64>) -> Option<String> {
    let parts = [packets.map(|n| format!("{n}p")), bytes.map(|n| scaled(n, 1000, &["B", "kB", "MB", "GB"]))];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join(","))
}

fn time(ns: u64) -> String {
    scaled(ns, 1000, &["ns", "us", "ms", "s"])
}

/// With the largest unit in which it is a whole number.
fn scaled(mut number: u64, step: u64, units: &[&str]) -> String {
    let mut unit = 0;
    while number > 0 && number.is_multiple_of(step) && unit + 1 < units.len() {
        (number, unit) = (number / step, unit + 1);
    }
    format!("{number}{}", units[unit])
}

/// To nine digits behind the point, which is finer than anybody writes.
fn percent(fraction: f64) -> String {
    format!("{}%", (fraction * 100.0 * 1e9).round() / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::PipeSettings;

    fn of(text: &str) -> Value {
        serde_json::from_str(&variable(&Spec::from_toml(text).unwrap(), &[]).1).unwrap()
    }

    #[test]
    fn settings_are_told_as_they_are_written() {
        let flat = "rate = \"2.5gbit\"\noverhead = 24\nqueue = \"64p,100kB\"\nmark = \"20p\"\ndelay = \"1ms\"\njitter = \"50us\"\n\
            loss = \"0.1%\"\nduplicate = \"1%\"\nreorder = \"2%\"\ncorrupt = \"0.01%\"\ncorrupt_hidden = \"100%\"";
        let told = of(&format!("hosts = 2\nname = \"lab\"\nseed = 7\n[link]\n{flat}"));
        let settings = json!({
            "mtu": "1500", "rate": "2500m", "overhead": "24", "queue": "64p,100kB", "mark": "20p", "delay": "1ms", "jitter": "50us",
            "loss": "0.1%", "duplicate": "1%", "reorder": "2%", "reorder_hold": "1ms", "corrupt": "0.01%", "corrupt_hidden": "100%",
        });
        let expected = json!({
            "emulator": "weir emulate", "name": "lab", "hosts": 2, "seed": 7,
            "networks": [{ "name": "net1", "settings": settings }],
        });
        assert_eq!(told, expected);
    }

    #[test]
    fn each_setting_that_is_told_can_be_set_so() {
        let text =
            "hosts = 2\n[link]\nrate = \"1234567\"\nqueue = \"1001B\"\ndelay = \"1500ns\"\nloss = \"0.3%\"\nburst = 4";
        let told = of(text)["networks"][0]["settings"].clone();
        assert_eq!(told["gilbert"], "to_bad 0.075225677%, to_good 25%, loss_good 0%, loss_bad 100%");
        for key in ["rate", "queue", "delay"] {
            let word = format!("{key}={}", told[key].as_str().unwrap());
            PipeSettings::from_words([word.as_str()]).unwrap();
        }
        assert_eq!(told["rate"], "1234568", "whole bytes");
    }

    #[test]
    fn a_bus_is_told_with_its_medium() {
        let told = of("hosts = 3\n[[network]]\nbus = true\ncollisions = true\nmtu = 1400\n\
            link = { rate = \"10m\", overhead = 24, queue = \"64p\", delay = \"5us\" }");
        let settings = json!({
            "mtu": "1400", "bus": "yes", "collisions": "yes", "rate": "10m", "overhead": "24", "queue": "64p", "delay": "5us",
        });
        assert_eq!(told["networks"][0]["settings"], settings);
    }

    #[test]
    fn hosts_that_differ_are_told_apart_as_far_as_there_is_room() {
        let one =
            of("hosts = 4\n[[network]]\nlink = { delay = \"1ms\" }\n[network.host.host1]\nup = { loss = \"2%\" }");
        assert_eq!(one["networks"][0]["settings"], json!({ "mtu": "1500", "delay": "1ms" }));
        let own = json!({ "host1": { "mtu": "1500", "delay": "1ms", "up.loss": "2%" } });
        assert_eq!(one["networks"][0]["hosts"], own);
        let mut text = "hosts = 250\n[[network]]\n".to_owned();
        for host in 1..=100 {
            text += &format!("[network.host.host{host}]\ndelay = \"{host}ms\"\n");
        }
        let many = of(&text);
        assert_eq!(many["networks"][0]["hosts"].as_object().unwrap().len(), MOST_TOLD);
        assert_eq!(many["networks"][0]["hosts_left_out"], 100 - MOST_TOLD);
    }

    #[test]
    fn plain_networks_events_and_changes_are_told() {
        let plain = of("hosts = 2\nplain = true\nnft_loss = \"1%\"\n[sysctl]\n\"net.ipv4.tcp_sack\" = \"0\"");
        assert_eq!(plain["plain"], true);
        assert_eq!(plain["networks"][0]["settings"], json!({ "mtu": "1500", "offload": "off", "loss": "1%" }));
        assert_eq!(plain["sysctl"], json!({ "net.ipv4.tcp_sack": "0" }));
        let cut = of("hosts = 2\n[[event]]\nat = \"1s\"\naction = \"cut\"\nhost = \"host2\"\nnetwork = \"net1\"");
        assert_eq!(cut["events"], 1);
        let changes: Vec<String> = (0..100).map(|n| format!("set host1 net1 delay={n}ms")).collect();
        let told: Value = serde_json::from_str(&variable(&Spec::star(2), &changes).1).unwrap();
        assert_eq!(told["changes"].as_array().unwrap().len(), MOST_TOLD);
        assert_eq!(told["changes"][MOST_TOLD - 1], "set host1 net1 delay=99ms");
    }
}
