//! What can be set, and the engine's settings as this face has them (spec/bmi.md 7, 11).

use crate::codes::Code;
use crate::log::tell;
use crate::tcp::codec::Wire;
use std::time::Duration;
use weir_engine::EngineConfig;

/// Whoever sets `WEIR_BMI_OPEN` has this key: everybody.
const OPEN_KEY: [u8; 32] = *b"weir-bmi: everybody has this key";
/// Between questions to a peer whose program is said to be gone: three of them are to be over
/// within 100 ms.
const DOUBT: Duration = Duration::from_millis(20);

/// What a client may send ahead to a server by a bulk TCP connection beside its little credit:
/// eight messages of 256 KiB, as OrangeFS has them under way with each server. They go unasked
/// then, where each would cost two packets and a wake on both sides. A server has posted what it is
/// about to get. A client often posts what it is sent later: that would be copied once more.
const BULK_CREDIT: u64 = 2 << 20;
/// A server's answer takes longer than that of a program that computes nothing: its threads hand a
/// request to one another, and to what stores. An acknowledgement that goes alone just before it
/// costs both sides a packet and its wakes.
const ACK_DELAY: Duration = Duration::from_micros(500);

/// This face's own settings.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Peers that came by themselves, at a time.
    pub peers_max: usize,
    /// Unposted payload of a peer of `bmi_tcp`, bytes.
    pub peer_bytes: u64,
    /// The same, all peers.
    pub bytes: u64,
    /// A header that has begun is whole by then.
    pub header: Duration,
    /// A payload that nothing comes of is given up by then.
    pub stall: Duration,
    /// The wire of `bmi_tcp`.
    pub wire: Wire,
    /// Folders of modules, separated by `:`.
    pub modules: String,
    /// Without a key.
    pub open: bool,
    /// What peers of a server may send ahead by a bulk TCP connection besides; none: as usual.
    pub bulk_credit: Option<u64>,
    /// The engine's.
    pub engine: EngineConfig,
}

impl Settings {
    /// Reads them through `get`, usually the environment.
    ///
    /// # Errors
    /// `BMI_EINVAL`; a line says which is wrong.
    pub fn read(get: &dyn Fn(&str) -> Option<String>) -> Result<Settings, Code> {
        // This face's defaults where nothing is set: clients are many, and a silent one is to be
        // known soon.
        let with_defaults = |name: &str| {
            get(name).or_else(|| match name {
                "WEIR_PEER_TIMEOUT_MS" => Some("2000".into()),
                "WEIR_CREDIT_BYTES" => Some("131072".into()),
                // Callers hold a lock while they poll.
                "WEIR_POLL_SLEEP_US" => Some("0".into()),
                _ => None,
            })
        };
        let engine = EngineConfig::from_vars(&with_defaults).map_err(|error| {
            tell(&error.to_string());
            Code::EINVAL
        })?;
        let number = |name: &str, usual: u64, most: u64| match get(name) {
            None => Ok(usual),
            Some(text) => text.trim().parse().ok().filter(|n| (1..=most).contains(n)).ok_or_else(|| {
                tell(&format!("{name}: '{}' is not a number from 1 to {most}", text.escape_debug()));
                Code::EINVAL
            }),
        };
        let word = |name: &str, words: &[&str]| match get(name) {
            None => Ok(0),
            Some(text) => words.iter().position(|w| w.eq_ignore_ascii_case(text.trim())).ok_or_else(|| {
                tell(&format!("{name}: '{}' is none of {}", text.escape_debug(), words.join(", ")));
                Code::EINVAL
            }),
        };
        let millis = |name: &str, usual| number(name, usual, 86_400_000).map(Duration::from_millis);
        let peers_max = number("WEIR_BMI_PEERS_MAX", 16384, 1 << 22)? as usize;
        let settings = Settings {
            peers_max,
            peer_bytes: number("WEIR_BMI_PEER_BYTES", 1 << 20, 1 << 40)?,
            bytes: number("WEIR_BMI_BYTES", 64 << 20, 1 << 40)?,
            header: millis("WEIR_BMI_HEADER_MS", 10_000)?,
            stall: millis("WEIR_BMI_STALL_MS", 30_000)?,
            wire: [Wire::OrangeFs, Wire::Radix][word("WEIR_BMI_TCP_WIRE", &["orangefs", "radix"])?],
            modules: get("WEIR_BMI_MODULES").unwrap_or_default(),
            open: word("WEIR_BMI_OPEN", &["0", "1"])? == 1,
            // (Who says how much says it of both.)
            bulk_credit: get("WEIR_CREDIT_BYTES").is_none().then_some(BULK_CREDIT),
            engine: EngineConfig {
                strangers_max: Some(peers_max),
                tell_unasked: true,
                everywhere: true,
                dead_may_return: true,
                doubt_interval: DOUBT,
                ack_delay: ACK_DELAY,
                ..engine
            },
        };
        if settings.open && settings.engine.level != weir_engine::Level::Integrity {
            tell("WEIR_BMI_OPEN=1 and WEIR_LEVEL above integrity do not go together: everybody has that key");
            return Err(Code::EINVAL);
        }
        Ok(settings)
    }

    /// Those of the process.
    ///
    /// # Errors
    /// As [`Settings::read`].
    pub fn from_env() -> Result<Settings, Code> {
        Settings::read(&|name| std::env::var(name).ok().filter(|v| !v.is_empty()))
    }

    /// The job's key, or everybody's.
    ///
    /// # Errors
    /// `BMI_EACCES`; a line says where a key was looked for.
    pub fn key(&self) -> Result<[u8; 32], Code> {
        if self.open {
            return Ok(OPEN_KEY);
        }
        weir_engine::job_key().map_err(|error| {
            tell(&error.to_string());
            Code::EACCES
        })
    }

    /// That key for people: its public name.
    #[must_use]
    pub fn key_named(&self, key: &[u8; 32]) -> String {
        match self.open {
            true => "everybody's key (WEIR_BMI_OPEN=1)".into(),
            false => format!("key {}", weir_engine::key_fingerprint(key)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<Settings, Code> {
        Settings::read(&|name| pairs.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned()))
    }

    #[test]
    fn silence_is_noticed_within_two_seconds_unless_somebody_says_otherwise() {
        assert_eq!(read(&[]).expect("valid").engine.peer_timeout, Duration::from_secs(2));
        let set = read(&[("WEIR_PEER_TIMEOUT_MS", "700")]).expect("valid");
        assert_eq!(set.engine.peer_timeout, Duration::from_millis(700));
    }

    // V8, V9
    #[test]
    fn servers_let_much_in_by_bulk_connections_unless_somebody_says_how_much() {
        let usual = read(&[]).expect("valid");
        assert_eq!((usual.engine.credit_bytes, usual.bulk_credit), (128 << 10, Some(2 << 20)));
        assert_eq!(usual.engine.bulk_credit_bytes, None, "a client's");
        assert_eq!(usual.engine.ack_delay, Duration::from_micros(500));
        let set = read(&[("WEIR_CREDIT_BYTES", "65536")]).expect("valid");
        assert_eq!((set.engine.credit_bytes, set.bulk_credit), (65536, None));
    }

    #[test]
    fn what_cannot_be_understood_is_refused() {
        for (name, value) in [
            ("WEIR_BMI_BYTES", "much"),
            ("WEIR_BMI_PEERS_MAX", "0"),
            ("WEIR_BMI_TCP_WIRE", "pvfs"),
            ("WEIR_CARRIER", "pigeon"),
        ] {
            assert_eq!(read(&[(name, value)]).map(|_| ()), Err(Code::EINVAL), "{name}");
        }
        assert!(read(&[("WEIR_BMI_OPEN", "1")]).expect("valid").open);
        assert_eq!(read(&[("WEIR_BMI_OPEN", "1"), ("WEIR_LEVEL", "auth")]).map(|_| ()), Err(Code::EINVAL));
        assert_eq!(read(&[("WEIR_BMI_TCP_WIRE", "radix")]).expect("valid").wire, Wire::Radix);
    }
}
