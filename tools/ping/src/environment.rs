//! What of this shell's settings an end on another host is started with.

use weir_engine::EngineConfig;

/// Settings that a job's launcher would hand on, and that mean the same on every host; not the key,
/// which would show in lists of processes. Each also as `FI_WEIR_X`, which counts first.
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

/// The engine's settings as a rank under an MPI has them: of `FI_WEIR_X` and `WEIR_X` the former
/// counts.
///
/// # Errors
/// One line about the first that cannot be understood, by the name that is set.
pub fn settings() -> Result<EngineConfig, String> {
    settings_of(&|name| std::env::var(name).ok())
}

fn settings_of(get: &dyn Fn(&str) -> Option<String>) -> Result<EngineConfig, String> {
    let full = |name: &str| format!("FI_{name}");
    let value = |name: &str| get(&full(name)).or_else(|| get(name)).filter(|value| !value.is_empty());
    let as_set = |name: &str| if get(&full(name)).is_some() { full(name) } else { name.to_owned() };
    EngineConfig::from_vars(&value).map_err(|error| error.with_variable(as_set).to_string())
}

/// The words before the command: `env NAME=VALUE ...`, quoted, as agents put the words they are
/// given into one line for a shell; nothing without settings.
#[must_use]
pub fn for_host() -> Vec<String> {
    of(&|name| std::env::var(name).ok())
}

fn of(get: &dyn Fn(&str) -> Option<String>) -> Vec<String> {
    let set = |name: String| get(&name).map(|value| format!("{name}={value}"));
    let names = HANDED_ON.iter().flat_map(|name| [(*name).to_owned(), format!("FI_{name}")]);
    let words: Vec<String> = names.filter_map(set).map(|word| quoted(&word)).collect();
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
    fn libfabrics_name_of_a_setting_counts_first_here_and_there() {
        let set = |name: &str| match name {
            "WEIR_PORT" => Some("45000".into()),
            "FI_WEIR_PORT" => Some("46000-46100".into()),
            "FI_WEIR_LEVEL" => Some("auth".into()),
            _ => None,
        };
        let words = ["WEIR_PORT=45000", "FI_WEIR_PORT=46000-46100", "FI_WEIR_LEVEL=auth"].map(quoted);
        assert_eq!(of(&set).split_first().unwrap(), (&"env".to_owned(), &words[..]));
        let config = settings_of(&set).unwrap();
        assert_eq!((config.port, config.port_span, config.level), (46000, 101, weir_engine::Level::Auth));
        let error = settings_of(&|name| (name == "FI_WEIR_PORT").then(|| "x".into())).unwrap_err();
        assert!(error.starts_with("FI_WEIR_PORT: 'x'"), "{error}");
    }

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
