//! The provider's settings, as the provider itself reads them: what it would say of them, before a program runs.

use weir_engine::{Endpoint, EngineConfig, unknown_settings};
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
    all.extend(try_endpoint(env).err().map(|text| Complaint { text, fatal: true }));
    all
}

/// The value of a setting as libfabric gives it to the provider: its own name of it goes first.
fn value(env: &Env, name: &str) -> Option<String> {
    let value = env.get(&format!("FI_{name}")).or_else(|| env.get(name))?;
    Some(value.to_string_lossy().into_owned())
}

/// Opens and closes an endpoint, which finds what the values alone do not tell: an interface or an address that is not
/// there, a port in use.
fn try_endpoint(env: &Env) -> Result<(), String> {
    let mut config = EngineConfig::from_vars(&|name| value(env, name)).map_err(|error| error.to_string())?;
    // Files of a run that may be going on.
    (config.stats, config.trace_file, config.capture, config.trace) = (None, None, None, 0);
    // The key is looked at elsewhere, and no message is sent here.
    let endpoint = Endpoint::open_with_key(config, [0; 32]).map_err(|error| error.to_string())?;
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
            let named = all[0].text.contains(name.trim_start_matches("FI_"));
            assert!(named && all[0].text.contains(value), "{name}={value}: {all:?}");
        }
        let all = told("WEIR_KEYFILE", "/x");
        assert!(all.len() == 1 && !all[0].fatal && all[0].text.contains("WEIR_KEY_FILE"), "{all:?}");
    }
}
