//! What driver and end say to each other (`spec/ping.md` 2).

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

/// The version of the questions.
pub const FORMAT: u32 = 1;

/// What a driver asks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "fields are told in the specification")]
pub enum Question {
    /// Who are you?
    Hello {
        format: u32,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<String>,
    },
    /// This number counts from now on.
    Expect { nonce: u64 },
    /// Send datagrams.
    Datagrams { to: SocketAddr, nonce: u64, sizes: Vec<usize>, copies: u32 },
    /// What came?
    Heard { nonce: u64 },
    /// Connect by TCP.
    Connect { to: SocketAddr, nonce: u64, timeout_ms: u64 },
    /// Know the other endpoint.
    Meet { names: [String; 2], own: usize },
    /// Send messages back.
    Answer { bytes: usize, count: u32 },
    /// Time messages there and back.
    RoundTrips { bytes: usize, count: u32 },
    /// Take windows of messages.
    Take { bytes: usize, window: u32, count: u32 },
    /// Send windows of messages.
    Stream { bytes: usize, window: u32, count: u32 },
    /// What carries them?
    Carrier,
}

/// What an end says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "fields are told in the specification")]
pub enum Answer {
    /// It cannot, and why.
    Failed(String),
    /// Done.
    Done,
    /// Who it is.
    Hello(Box<Hello>),
    /// Datagrams by their size.
    Sizes(BTreeMap<usize, u32>),
    /// So long it took.
    Took { us: f64 },
    /// Round trips.
    RoundTrips(Quantiles),
    /// What carries messages.
    Carrier { carrier: String, why: String, mtu: Option<u64> },
}

/// Who an end is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`FORMAT`].
    pub format: u32,
    /// Version of `weir`.
    pub version: String,
    /// What the host calls itself.
    pub host: String,
    /// Fingerprint of its key.
    pub key: Option<String>,
    /// Where the key is from.
    pub source: String,
    /// Why there is none.
    pub key_problem: Option<String>,
    /// The endpoint's name, in hexadecimal.
    pub name: Option<String>,
    /// Why there is none.
    pub problem: Option<String>,
    /// Where the endpoint is reached.
    pub addresses: Vec<IpAddr>,
    /// Where datagrams are heard.
    pub udp_port: u16,
    /// Where connections are taken.
    pub tcp_port: u16,
}

/// Quantiles of round trips, us.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Quantiles {
    pub count: u32,
    pub min: f64,
    pub p25: f64,
    pub p50: f64,
    pub p75: f64,
    pub p99: f64,
    pub max: f64,
}

impl Quantiles {
    /// Of these times, which are sorted here.
    #[must_use]
    pub fn of(times_us: &mut [f64]) -> Quantiles {
        times_us.sort_by(f64::total_cmp);
        let at = |q: f64| {
            times_us.get(((times_us.len().saturating_sub(1)) as f64 * q).round() as usize).copied().unwrap_or(0.0)
        };
        Quantiles {
            count: times_us.len() as u32,
            min: at(0.0),
            p25: at(0.25),
            p50: at(0.5),
            p75: at(0.75),
            p99: at(0.99),
            max: at(1.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_end_says_is_as_the_specification_has_it() {
        let text = |answer: &Answer| serde_json::to_string(answer).unwrap();
        assert_eq!(text(&Answer::Failed("no".into())), r#"{"failed":"no"}"#);
        assert_eq!(text(&Answer::Sizes([(1200, 3)].into())), r#"{"sizes":{"1200":3}}"#);
        let hello = serde_json::from_str::<Question>(r#"{"hello":{"format":1}}"#).unwrap();
        assert_eq!(hello, Question::Hello { format: 1, key: None });
        assert_eq!(serde_json::to_string(&hello).unwrap(), r#"{"hello":{"format":1}}"#);
        let sizes: Answer = serde_json::from_str(&text(&Answer::Sizes([(64, 1)].into()))).unwrap();
        assert_eq!(sizes, Answer::Sizes([(64, 1)].into()));
    }

    #[test]
    fn quantiles_are_of_the_times() {
        let q = Quantiles::of(&mut [3.0, 1.0, 2.0, 4.0, 5.0]);
        assert_eq!((q.count, q.min, q.p50, q.p99, q.max), (5, 1.0, 3.0, 5.0, 5.0));
        assert_eq!(Quantiles::of(&mut []), Quantiles::default());
    }
}
