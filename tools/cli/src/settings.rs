//! The provider's settings, as the provider itself reads them: what it would say of them, before a program runs.

use weir_engine::{Endpoint, EngineConfig, EngineError, unknown_settings};
use weir_job::Env;

/// Something to say of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complaint {
    /// One line.
    pub text: String,
    /// No endpoint can be opened with it.
    pub fatal: bool,
}

/// What the provider would say of the settings in this environment.
pub fn complaints(env: &Env) -> Vec<Complaint> {
    let unknown = unknown_settings(env.names().map(|name| name.to_string_lossy().into_owned()));
    let mut all: Vec<Complaint> = unknown.into_iter().map(|text| Complaint { text, fatal: false }).collect();
    if let Ok(config) = EngineConfig::from_vars(&|name| value(env, name)) {
        all.extend(config.warnings().into_iter().map(|text| Complaint { text, fatal: false }));
    }
    match try_endpoint(env) {
        Ok(()) => all.extend(faults(env).map(|text| Complaint { text, fatal: false })),
        Err(text) => all.push(Complaint { text, fatal: true }),
    }
    all
}

/// Faults are for tests: where the variable is forgotten, all jobs are slow, and every result looks right.
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
    EngineConfig::from_vars(&|name| value(env, name)).map_err(|error| named(env, error))
}

/// The name under which the user has set this.
fn set_as(env: &Env, name: &str) -> String {
    let full = format!("FI_{name}");
    if env.get(&full).is_some() { full } else { name.to_owned() }
}

/// What is wrong, with the variable that the user has set.
fn named(env: &Env, error: EngineError) -> String {
    error.with_variable(|name| set_as(env, name)).to_string()
}

/// The value of a setting as libfabric gives it to the provider: its own name of it goes first.
fn value(env: &Env, name: &str) -> Option<String> {
    let value = env.get(&format!("FI_{name}")).or_else(|| env.get(name))?;
    Some(value.to_string_lossy().into_owned())
}

/// Opens and closes an endpoint, which finds what the values alone do not tell: an interface or an address that is not
/// there, a port in use.
fn try_endpoint(env: &Env) -> Result<(), String> {
    let mut config = understood(env)?;
    // Files of a run that may be going on.
    (config.stats, config.trace_file, config.capture, config.trace) = (None, None, None, 0);
    // The key is looked at elsewhere, and no message is sent here.
    let endpoint = Endpoint::open_with_key(config, [0; 32]).map_err(|error| named(env, error))?;
    endpoint.close();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(name: &str, value: &str) -> Vec<Complaint> {
        complaints(&Env::from_pairs([(name, value)]))
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
}
