//! The provider's settings, as the provider itself reads them: what it would say of them, before a
//! program runs.

use weir_engine::{Endpoint, EngineConfig, SettingNames, XdpUse};
use weir_job::Env;

/// As the provider lets people name them.
pub const NAMES: SettingNames<'_> = SettingNames { prefix: "FI_", listed_by: "fi_info -g weir or man fi_weir" };

/// Something to say of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complaint {
    /// One line.
    pub text: String,
    /// No endpoint can be opened with it.
    pub fatal: bool,
}

/// What the provider would say of the settings in this environment. Whether an endpoint opens with
/// them is tried where `opens`: where it is known why none does, that is no fault of theirs.
pub fn complaints(env: &Env, opens: bool) -> Vec<Complaint> {
    let unknown = NAMES.unknown(env.names().map(|name| name.to_string_lossy().into_owned()));
    let mut all: Vec<Complaint> = unknown.into_iter().map(|text| Complaint { text, fatal: false }).collect();
    let config = understood(env);
    let warnings = config.as_ref().map(EngineConfig::warnings).unwrap_or_default();
    all.extend(warnings.into_iter().map(|text| Complaint { text: as_set(env, &text), fatal: false }));
    match config.and_then(|config| if opens { try_endpoint(env, config) } else { Ok(()) }) {
        Ok(()) => all.extend(faults(env).map(|text| Complaint { text, fatal: false })),
        Err(text) => all.push(Complaint { text, fatal: true }),
    }
    all
}

/// Faults are for tests: where the variable is forgotten, all jobs are slow, and every result looks
/// right.
fn faults(env: &Env) -> Option<String> {
    let value = value(env, "WEIR_FAULTS").filter(|value| !value.is_empty())?;
    let name = set_as(env, "WEIR_FAULTS");
    Some(format!(
        "{name}={}: every process started here loses or damages packets on purpose; unset {name}",
        value.escape_debug()
    ))
}

/// The first value that cannot be understood, whatever machine it is on.
///
/// # Errors
/// One line that names the variable.
pub fn understood(env: &Env) -> Result<EngineConfig, String> {
    EngineConfig::from_vars(&|name| value(env, name)).map_err(|error| as_set(env, &error.to_string()))
}

/// The name under which the user has set this.
pub fn set_as(env: &Env, name: &str) -> String {
    let full = format!("FI_{name}");
    if env.get(&full).is_some() { full } else { name.to_owned() }
}

/// A text that names settings, each under the name that the user has set: it may come from where
/// only one is known.
fn as_set(env: &Env, text: &str) -> String {
    let in_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let named = |piece: &str| {
        let name = piece.trim_end_matches(|c| !in_name(c));
        let is_setting = name.starts_with("WEIR_");
        if is_setting { set_as(env, name) + &piece[name.len()..] } else { piece.to_owned() }
    };
    text.split_inclusive(|c| !in_name(c)).map(named).collect()
}

/// The value of a setting as libfabric gives it to the provider: its own name of it goes first.
pub fn value(env: &Env, name: &str) -> Option<String> {
    let value = env.get(&format!("FI_{name}")).or_else(|| env.get(name))?;
    Some(value.to_string_lossy().into_owned())
}

/// Opens and closes an endpoint, which finds what the values alone do not tell: an interface or an
/// address that is not there, a port in use.
fn try_endpoint(env: &Env, mut config: EngineConfig) -> Result<(), String> {
    // Files of a run that may be going on.
    (config.stats, config.trace_file, config.capture, config.trace) = (None, None, None, 0);
    // The key and the way past UDP are looked at elsewhere, and no message is sent here.
    config.xdp = XdpUse::Off;
    let endpoint = Endpoint::open_with_key(config, [0; 32]).map_err(|error| as_set(env, &error.to_string()))?;
    endpoint.close();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::path::Path;

    /// Every literal of the code of this folder that is a variable's name, but for those of tests.
    fn names_read(folder: &Path, found: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                if !["tests", "benches", "examples", "target"].iter().any(|other| path.ends_with(other)) {
                    names_read(&path, found);
                }
            } else if path.extension().is_some_and(|e| ["rs", "c", "h"].iter().any(|known| e == *known)) {
                let text = std::fs::read_to_string(&path).unwrap();
                let code = text.split("\n#[cfg(test)]\nmod ").next().unwrap_or_default();
                let letters = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
                let names = code.split('"').map(|word| word.strip_suffix('=').unwrap_or(word));
                found.extend(
                    names
                        .filter(|name| name.starts_with("WEIR_") && !name.ends_with('_') && name.chars().all(letters))
                        .map(str::to_owned),
                );
            }
        }
    }

    #[test]
    fn every_variable_that_is_read_somewhere_is_known() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut names = BTreeSet::new();
        for folder in ["core", "engine", "faces", "job", "tools", "transports"] {
            names_read(&root.join(folder), &mut names);
        }
        assert!(["WEIR_PORT", "WEIR_BSP_SLOT", "WEIR_RECORD_DIR"].iter().all(|name| names.contains(*name)));
        // Who builds it tells this one to the compiler.
        names.remove("WEIR_COMMIT");
        assert_eq!(NAMES.unknown(names), Vec::<String>::new());
    }

    fn told(name: &str, value: &str) -> Vec<Complaint> {
        complaints(&Env::from_pairs([(name, value)]), true)
    }

    #[test]
    fn settings_are_judged_as_in_a_run() {
        assert_eq!(told("WEIR_STREAMS", "4"), []);
        for (name, value) in
            [("WEIR_ADDR", "foo"), ("WEIR_IFACE", "eth77"), ("FI_WEIR_STREAMS", "0"), ("WEIR_FAULTS", "loss=2")]
        {
            let all = told(name, value);
            assert!(all.len() == 1 && all[0].fatal, "{name}={value}: {all:?}");
            assert!(all[0].text.contains(name) && all[0].text.contains(value), "{name}={value}: {all:?}");
        }
        for name in ["WEIR_FAULTS", "FI_WEIR_FAULTS"] {
            let all = told(name, "loss=5%");
            assert!(all.len() == 1 && !all[0].fatal && all[0].text.starts_with(&format!("{name}=loss=5%")), "{all:?}");
        }
        let all = told("WEIR_FAULTS", "loss=5%,\n dup=1%");
        assert!(all.len() == 1 && !all[0].text.contains('\n'), "{all:?}");
        let all = told("WEIR_STATS", "1");
        assert!(all.len() == 1 && all[0].fatal && all[0].text.starts_with("WEIR_STATS: '1' "), "{all:?}");
        let all = told("WEIR_KEYFILE", "/x");
        assert!(all.len() == 1 && !all[0].fatal && all[0].text.contains("WEIR_KEY_FILE"), "{all:?}");
    }

    #[test]
    fn a_setting_is_named_as_the_user_has_set_it() {
        for name in ["WEIR_IFACE", "FI_WEIR_IFACE"] {
            let all = told(name, "eth77");
            assert!(all.len() == 1 && all[0].text.contains(&format!("{name}: no interface named eth77")), "{all:?}");
        }
        let all = told("FI_WEIR_WATCHDOG_US", "0");
        assert!(all.len() == 1 && all[0].text.starts_with("FI_WEIR_WATCHDOG_US=0: "), "{all:?}");
        assert!(all[0].text.contains("(WEIR_PEER_TIMEOUT_MS)"), "this one is not set: {all:?}");
        let env = Env::from_pairs([("FI_WEIR_TRACE", "1")]);
        let text = "WEIR_TRACE, WEIR_TRACE_FILE, FI_WEIR_TRACE: 'é' (WEIR_TRACE)";
        assert_eq!(as_set(&env, text), "FI_WEIR_TRACE, WEIR_TRACE_FILE, FI_WEIR_TRACE: 'é' (FI_WEIR_TRACE)");
        assert_eq!(as_set(&env, ""), "");
    }

    #[test]
    fn without_an_endpoint_the_values_are_judged_all_the_same() {
        let told = |name, value| complaints(&Env::from_pairs([(name, value)]), false);
        assert_eq!(told("WEIR_IFACE", "eth77"), []);
        assert!(told("WEIR_STREAMS", "0")[0].fatal && !told("WEIR_FAULTS", "loss=1%")[0].fatal);
    }
}
