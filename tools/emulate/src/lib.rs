//! A network emulator on namespaces.
//!
//! Hosts are network namespaces, joined by one or several stars. Each packet crosses a switch in
//! user space that knows, for each direction of each link: rate, queue, delay, jitter, random and
//! burst loss, duplication, reordering, corruption, cut and heal. The hosts of a bus share one
//! medium, and send in turn. Plain networks have a kernel bridge instead and run at the speed of
//! veth.
//!
//! ```no_run
//! use weir_emulate::{Network, spec::Spec};
//!
//! # fn main() -> weir_emulate::Result<()> {
//! weir_emulate::privilege::acquire()?; // first thing in main, while there is one thread
//! let spec = Spec::from_toml("hosts = 2\n[link]\nrate = \"1g\"\ndelay = \"1ms\"\nloss = \"1%\"")?;
//! let network = Network::start(&spec)?;
//! let mut ping = network.host(0)?.command("ping");
//! ping.args(["-c", "3", "host2"]).status().expect("ping is installed");
//! network.cut("host2", "net1")?;
//! println!("{}", network.stats()?);
//! # Ok(())
//! # }
//! ```
//!
//! * [`model`] is the emulated network as arithmetic: pure, seeded, without a clock.
//! * [`spec`] describes networks; the file format is in `spec/network-toml.md`.
//! * [`Network`] runs one. [`cli`] is the command `weir emulate`.

#![deny(unsafe_code)]

mod build;
pub mod cli;
pub mod control;
mod damage;
mod ecn;
mod error;
mod launch;
mod link;
pub mod model;
mod namespace;
mod netlink;
mod network;
mod nft;
mod plane;
mod pool;
pub mod privilege;
pub mod process;
pub mod spec;
pub mod stats;
mod summary;
mod supervise;
mod sys;
pub mod units;

pub use error::{Error, Result};
pub use network::{Host, Network};
