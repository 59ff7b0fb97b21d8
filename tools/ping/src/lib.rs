//! Whether jobs can run over Weir between hosts, tried without any MPI (`spec/ping.md`).
//!
//! * [`words`]: what driver and end say to each other. [`channel`]: how it travels. [`proof`]: how
//!   a listener and a driver prove themselves.
//! * [`end`]: answers questions at a host, by [`probe`] (datagrams and connections) and [`flow`]
//!   (endpoints).
//! * [`host`]: a host as the driver has it. [`pair`]: what is tried between two. [`command`]:
//!   `weir ping`.

#![forbid(unsafe_code)]

pub mod channel;
pub mod command;
pub mod end;
pub mod environment;
pub mod flow;
pub mod host;
pub mod listen;
pub mod pair;
pub mod probe;
pub mod proof;
pub mod words;

/// What cannot be done, in one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A host or an end failed.
    #[error("{0}")]
    Failed(String),
    /// The channel is over, or what came on it is no message.
    #[error("{0}")]
    Channel(String),
    /// The command line is wrong.
    #[error("{0}")]
    Usage(String),
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Tried, and good.
    Ok,
    /// Worth knowing.
    Info,
    /// Works, but slower or not as meant.
    Warning,
    /// Does not work.
    Error,
}

impl Severity {
    /// As the commands print it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Severity::Ok => "ok",
            Severity::Info => "info",
            Severity::Warning => "warning",
            Severity::Error => "ERROR",
        }
    }
}

/// One thing that was tried.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Finding {
    /// What was tried.
    pub check: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// What was found.
    pub cause: String,
    /// What repairs it.
    pub fix: Option<String>,
}

impl Finding {
    /// Without a repair.
    #[must_use]
    pub fn new(check: &'static str, severity: Severity, cause: impl Into<String>) -> Finding {
        Finding { check, severity, cause: cause.into(), fix: None }
    }

    /// With one.
    #[must_use]
    pub fn fixed_by(mut self, fix: impl Into<String>) -> Finding {
        self.fix = Some(fix.into());
        self
    }
}

/// A text without anything that could steer a terminal: what a host says of itself is not ours.
#[must_use]
pub fn clean(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() || ('\u{202a}'..='\u{202e}').contains(&c) { '\u{fffd}' } else { c })
        .collect()
}

/// Bytes in hexadecimal.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// From hexadecimal, exactly so many bytes.
#[must_use]
pub fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.as_bytes();
    if digits.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let digit = |d: u8| char::from(d).to_digit(16).map(|d| d as u8);
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}
