//! Who is in the job: the key every rank must share, and the identity its launcher gave it.
//!
//! An MPI library tells a network provider no secret, so the key comes from the environment
//! (`WEIR_KEY`, `WEIR_KEY_FILE`) or from a file of the user's that is made on first use. A home
//! directory shared by the machines of a cluster makes that file the cluster's key.

#![forbid(unsafe_code)]

mod identity;
mod key;
pub mod launch;
pub mod ranks;

pub use identity::{Identity, identity};
pub use key::{JobKey, KEY_BYTES, KeyError, KeySource, default_key_path, fingerprint, load_key, parse_key};

use std::ffi::OsString;

/// The environment variables this crate reads, as an argument: a test need not change its own
/// process's environment, and a reader sees everything the answer depends on.
///
/// A variable that is set to the empty string counts as not set.
#[derive(Clone, Debug, Default)]
pub struct Env {
    vars: std::collections::BTreeMap<OsString, OsString>,
}

impl Env {
    /// The environment of this process.
    pub fn from_process() -> Self {
        Self { vars: std::env::vars_os().collect() }
    }

    /// Exactly these variables, and no others.
    pub fn from_pairs<K, V>(pairs: impl IntoIterator<Item = (K, V)>) -> Self
    where
        K: Into<OsString>,
        V: Into<OsString>,
    {
        Self { vars: pairs.into_iter().map(|(k, v)| (k.into(), v.into())).collect() }
    }

    /// The names of all variables that are set.
    pub fn names(&self) -> impl Iterator<Item = &std::ffi::OsStr> {
        self.vars.keys().map(OsString::as_os_str)
    }

    /// The value of `name`, if it is set and not empty.
    pub fn get(&self, name: &str) -> Option<&OsString> {
        self.vars.get(std::ffi::OsStr::new(name)).filter(|value| !value.is_empty())
    }
}
