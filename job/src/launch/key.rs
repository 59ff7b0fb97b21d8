//! How the ranks agree on a key, by a launcher that hands none out (`spec/launch.md` C4).

use super::LaunchError;
use crate::{Env, JobKey, KEY_BYTES, KeySource, load_key, parse_key};

/// What rank 0 gives: a new key ...
const NEW: &str = "key:";
/// ... or the fingerprint of the one that it was given, as all others must have been.
const NAMED: &str = "fingerprint:";

/// The key of the job; `zeros` gives rank 0's bytes to all.
pub fn agree(
    env: &Env,
    rank: u32,
    zeros: impl FnOnce(&[u8]) -> Result<Vec<u8>, LaunchError>,
) -> Result<JobKey, LaunchError> {
    let is_named = ["WEIR_KEY", "WEIR_KEY_FILE"].iter().any(|name| env.get(name).is_some());
    let own = is_named.then(|| load_key(env)).transpose()?;
    if rank == 0 {
        let key = own.clone().map_or_else(JobKey::for_one_run, Ok)?;
        let told = if is_named { format!("{NAMED}{}", key.fingerprint()) } else { format!("{NEW}{}", key.reveal()) };
        zeros(told.as_bytes())?;
        let source = if is_named { key.source } else { KeySource::Launcher };
        return Ok(JobKey { bytes: key.bytes, source });
    }
    let told = zeros(&[])?;
    let told = String::from_utf8_lossy(&told);
    let differ = |zero: String| LaunchError::KeysDiffer {
        rank,
        zero,
        own: own.as_ref().map_or("none".into(), |key| format!("key {} ({})", key.fingerprint(), key.source)),
    };
    match (told.strip_prefix(NEW), told.strip_prefix(NAMED), &own) {
        (Some(digits), _, None) => {
            let bytes: [u8; KEY_BYTES] = parse_key(digits, "rank 0")?;
            Ok(JobKey { bytes, source: KeySource::Launcher })
        }
        (Some(_), _, Some(_)) => Err(differ("none".into())),
        (_, Some(fingerprint), Some(key)) if key.fingerprint() == fingerprint => Ok(key.clone()),
        (_, Some(fingerprint), _) => Err(differ(format!("key {}", fingerprint.escape_debug()))),
        (None, None, _) => Err(LaunchError::Peer { rank: 0, problem: "no key".into() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The keys of a rank 0 and a rank 1 with these values of `WEIR_KEY`.
    fn agreed(zero: Option<&str>, one: Option<&str>) -> (JobKey, Result<JobKey, LaunchError>) {
        let env = |key: Option<&str>| Env::from_pairs(key.map(|key| ("WEIR_KEY", key.to_owned())));
        let mut told = Vec::new();
        let first = agree(&env(zero), 0, |own| {
            told = own.to_vec();
            Ok(told.clone())
        });
        (first.unwrap(), agree(&env(one), 1, |_| Ok(told)))
    }

    #[test]
    fn without_a_key_all_get_a_new_one_and_with_one_it_stays_at_home() {
        let (zero, one) = agreed(None, None);
        assert_eq!(zero.bytes, one.unwrap().bytes);
        assert_ne!(zero.bytes, agreed(None, None).0.bytes);
        let key = "ab".repeat(32);
        let (zero, one) = agreed(Some(&key), Some(&key));
        assert_eq!((zero.reveal(), one.unwrap().reveal()), (key.clone(), key.clone()));
        let mut told = Vec::new();
        let env = Env::from_pairs([("WEIR_KEY", &key)]);
        let keep = |own: &[u8]| {
            told = own.to_vec();
            Ok(Vec::new())
        };
        agree(&env, 0, keep).unwrap();
        assert!(!String::from_utf8(told).unwrap().contains(&key));
    }

    #[test]
    fn keys_that_differ_are_an_error_that_names_them() {
        let (one, other) = ("ab".repeat(32), "cd".repeat(32));
        for (zero, own, named) in [
            (Some(&one), Some(&other), "rank 0 has key "),
            (Some(&one), None, "and rank 1 has none"),
            (None, Some(&other), "rank 0 has none and rank 1 has key "),
        ] {
            let why = agreed(zero.map(String::as_str), own.map(String::as_str)).1.unwrap_err().to_string();
            assert!(why.contains(named) && !why.contains(&one) && !why.contains(&other), "{why}");
        }
    }

    #[test]
    fn what_is_no_key_is_an_error() {
        for told in ["", "key:", "key:zz", "hello", "fingerprint:"] {
            let got = agree(&Env::default(), 1, |_| Ok(told.as_bytes().to_vec()));
            assert!(got.is_err(), "{told}");
        }
        assert!(agree(&Env::from_pairs([("WEIR_KEY", "short")]), 0, |_| Ok(vec![])).is_err());
    }
}
