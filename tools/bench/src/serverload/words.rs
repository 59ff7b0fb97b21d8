//! What the process that leads and those that serve and ask say to each other: a JSON document a
//! line, orders on standard input, reports on standard output. So whatever starts a command on
//! another host, and passes its input and output on, will do.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{BenchError, Result};
use crate::host::Facts;
use crate::sys::bmi::Dialect;

use super::carry::SOCKETS;

/// What carries requests and answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stack {
    /// A method of BMI without `bmi_`, or [`SOCKETS`].
    pub method: String,
    /// The BMI library; none for sockets.
    pub library: Option<PathBuf>,
    /// Whose functions it has.
    pub dialect: Dialect,
}

impl Stack {
    /// Whether it is no BMI.
    #[must_use]
    pub fn is_sockets(&self) -> bool {
        self.method == SOCKETS
    }

    /// Its name in the distribution format.
    #[must_use]
    pub fn provider(&self) -> String {
        if self.is_sockets() { self.method.clone() } else { format!("bmi_{}", self.method) }
    }

    /// The library's file.
    ///
    /// # Errors
    /// There is none.
    pub fn library(&self) -> Result<&Path> {
        let none = || BenchError::Usage(format!("method {}: no BMI library is named", self.method));
        self.library.as_deref().ok_or_else(none)
    }

    /// Where a server is, as its clients name it.
    #[must_use]
    pub fn url(&self, address: &str, port: u16) -> String {
        // An IPv6 address stands in brackets.
        let host = if address.contains(':') && !address.starts_with('[') {
            format!("[{address}]")
        } else {
            address.to_owned()
        };
        if self.is_sockets() { format!("{host}:{port}") } else { format!("{}://{host}:{port}", self.method) }
    }
}

/// Where a server is or is to be, as people write it: `METHOD://HOST:PORT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// As [`Stack::method`].
    pub method: String,
    /// Name or address; an IPv6 address without its brackets.
    pub host: String,
    /// None: any.
    pub port: Option<u16>,
}

impl Place {
    /// Reads one.
    ///
    /// # Errors
    /// [`BenchError::Usage`]: what is wrong with it.
    pub fn parse(text: &str) -> Result<Place> {
        let wrong = |what: &str| {
            BenchError::Usage(format!("{:?} {what}; write METHOD://HOST:PORT, such as weir://n1:4000", text))
        };
        let (method, rest) = text.split_once("://").ok_or_else(|| wrong("has no method"))?;
        let named = method.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        if method.is_empty() || !named || method.starts_with("bmi_") {
            return Err(wrong("has no method's name, which is one without bmi_,"));
        }
        let (host, port) = match rest.strip_prefix('[') {
            Some(rest) => {
                let (host, rest) = rest.split_once(']').ok_or_else(|| wrong("lacks a ]"))?;
                (
                    host,
                    if rest.is_empty() {
                        None
                    } else {
                        Some(rest.strip_prefix(':').ok_or_else(|| wrong("has no : before its port"))?)
                    },
                )
            }
            None => rest.split_once(':').map_or((rest, None), |(host, port)| (host, Some(port))),
        };
        if host.is_empty() || host.contains(['/', ',', ' ']) {
            return Err(wrong("has no host"));
        }
        let number =
            |port: &str| port.parse().ok().filter(|port| *port > 0).ok_or_else(|| wrong("has no port from 1 to 65535"));
        Ok(Place { method: method.to_owned(), host: host.to_owned(), port: port.map(number).transpose()? })
    }

    /// The same place at this port.
    #[must_use]
    pub fn with_port(&self, port: u16) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        format!("{}://{host}:{port}", self.method)
    }
}

/// Instants at which requests are due, drawn by who asks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Due {
    /// Requests.
    pub count: u32,
    /// Mean distance, ns.
    pub gap_ns: f64,
    /// Seed of the distances.
    pub seed: u64,
}

/// What the leader wants. Times are on the clock of who is told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Order {
    /// Serve at this address, at this port if one is named.
    Serve { stack: Stack, address: String, port: Option<u16> },
    /// Be a client of the server at this URL; the first request, which is not timed, finds it.
    Ask { stack: Stack, url: String, timeout_ms: u64 },
    /// Say what time it is.
    Time,
    /// Of a server: what was used since the last time.
    Usage,
    /// Ask once, at this instant.
    Round { begin_ns: i64, bytes: u64, timeout_ms: u64 },
    /// Ask when requests are due, the first one after this instant.
    Stream { begin_ns: i64, bytes: u64, due: Due, timeout_ms: u64 },
}

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Timed {
    /// When it began, ns.
    pub begin_ns: i64,
    /// How long it took, ns.
    pub length_ns: i64,
}

/// What it is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Report {
    /// It serves at this port, or has found its server (port 0).
    Ready { facts: Box<Facts>, clock: String, port: u16 },
    /// The time, ns.
    Time(i64),
    /// What a server used: processor time, ns; the most memory that was resident, bytes; requests
    /// taken.
    Usage { cpu_ns: u64, peak_bytes: Option<u64>, requests: u64 },
    /// A round's request. `late`: the order came after its instant.
    Round { timed: Timed, late: bool },
    /// All requests that were due.
    Stream(Vec<Timed>),
    /// What went wrong.
    Failed(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(method: &str) -> Stack {
        Stack { method: method.into(), library: None, dialect: Dialect::Radix }
    }

    #[test]
    fn a_place_is_read_as_it_is_written() {
        for (text, host, port) in [
            ("weir://n1:4000", "n1", Some(4000)),
            ("weir://[fe80::1]:7", "fe80::1", Some(7)),
            ("weir://[fe80::1]", "fe80::1", None),
            ("weir://10.0.0.1", "10.0.0.1", None),
        ] {
            let place = Place::parse(text).unwrap();
            assert_eq!((place.method.as_str(), place.host.as_str(), place.port), ("weir", host, port));
            assert_eq!(
                place.with_port(port.unwrap_or(9)),
                if port.is_some() { text.to_owned() } else { format!("{text}:9") }
            );
        }
        for wrong in [
            "",
            "n1:4000",
            "://n1:4",
            "bmi_tcp://n1:4",
            "tcp://:4",
            "tcp://n1:0",
            "tcp://n1:x",
            "tcp://n1:65536",
            "tcp://[::1",
            "tcp://[::1]4",
            "tcp://a/b:1",
            "tcp://::1",
        ] {
            let error = Place::parse(wrong).unwrap_err().to_string();
            assert!(error.contains("METHOD://HOST:PORT") && !error.contains('\n'), "{wrong}: {error}");
        }
    }

    #[test]
    fn a_server_is_named_as_its_method_wants_it() {
        assert_eq!(stack("weir").url("10.0.0.1", 7), "weir://10.0.0.1:7");
        assert_eq!(stack("tcp").url("fe80::1", 7), "tcp://[fe80::1]:7");
        assert_eq!(stack(SOCKETS).url("h", 7), "h:7");
        assert_eq!((stack("tcp").provider().as_str(), stack(SOCKETS).provider().as_str()), ("bmi_tcp", "sockets"));
        assert!(stack("tcp").library().unwrap_err().to_string().contains("no BMI library"));
    }
}
