//! What of this shell's settings an end on another host is started with.

/// Settings that a job's launcher would hand on, and that mean the same on every host; not the key,
/// which would show in lists of processes.
const HANDED_ON: [&str; 15] = [
    "WEIR_KEY_FILE",
    "WEIR_PORT",
    "WEIR_IFACE",
    "WEIR_LEVEL",
    "WEIR_CARRIER",
    "WEIR_SCTP_CONTROL",
    "WEIR_SCTP_RTO_MIN_MS",
    "WEIR_BULK",
    "WEIR_LANES",
    "WEIR_OFFLOAD",
    "WEIR_ECN",
    "WEIR_XDP",
    "WEIR_CONGESTION",
    "WEIR_BMI_OPEN",
    "WEIR_STRIPE",
];

/// The words before the command: `env NAME=VALUE ...`, quoted, as agents put the words they are
/// given into one line for a shell; nothing without settings.
#[must_use]
pub fn for_host() -> Vec<String> {
    of(&|name| std::env::var(name).ok())
}

fn of(get: &dyn Fn(&str) -> Option<String>) -> Vec<String> {
    let set = |name: &&str| get(name).map(|value| format!("{name}={value}"));
    let words: Vec<String> = HANDED_ON.iter().filter_map(set).map(|word| quoted(&word)).collect();
    if words.is_empty() { words } else { std::iter::once("env".to_owned()).chain(words).collect() }
}

/// A word as a shell takes it.
#[must_use]
pub fn quoted(word: &str) -> String {
    shlex::try_quote(word).map_or_else(|_| String::new(), |quoted| quoted.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_handed_on_but_no_key() {
        let set = |name: &str| match name {
            "WEIR_KEY" => Some("00".repeat(32)),
            "WEIR_PORT" => Some("45000-45100".into()),
            "WEIR_KEY_FILE" => Some("/home/a b/key".into()),
            _ => None,
        };
        assert_eq!(of(&set), ["env", "'WEIR_KEY_FILE=/home/a b/key'", "'WEIR_PORT=45000-45100'"]);
        assert!(of(&|_| None).is_empty());
    }
}
