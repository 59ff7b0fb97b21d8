//! The protocol between `weir run` and the ranks it starts on this machine (`spec/launch.md` 3).

pub(super) mod client;
pub mod frame;

/// The variable that names the socket to the launcher, inherited by the rank.
pub const SOCKET_VARIABLE: &str = "WEIR_JOB_FD";
