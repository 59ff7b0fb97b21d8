//! One UDP port an endpoint, a device for [`Datagrams`], at the cost of the bare system call for
//! one small datagram and of one call per 64 KiB for bulk.
//!
//! * **Sending** copies datagrams one behind the other. Those of equal size to one destination
//!   become one segmented super-packet (UDP GSO, `UDP_SEGMENT` in udp(7)); what is left is sent by
//!   `sendmmsg`. A lone datagram is one `sendto`.
//! * **Receiving** starts with one `recvmsg`. Only a socket that delivered twice in a row, or a
//!   super-packet (UDP GRO), is read until empty: many small datagrams by `recvmmsg`, big ones one
//!   by one into the same cache-warm buffer.
//! * **Trouble** is counted, never fatal: a refused or unreachable destination, a full device queue
//!   or a datagram above the path MTU is a loss like any other. A full socket buffer parks the rest
//!   ([`UdpTransport::blocked`]).
//!
//! Why not `quinn-udp`: it leaves the forming of batches to its user, and it always uses `recvmmsg`
//! and ancillary data that a lone small datagram need not pay for. So the calls are made through
//! `libc` here.
//!
//! Decisions by measurement stand beside the code they concern;
//! `cargo run --release -p weir-udp --example udp-raw` repeats them. Beyond those: packet info is
//! asked for only when the socket serves several addresses (2 %); one unconnected socket serves all
//! peers, and a second one is connected to the peer that most arrives from, which saves the lookup
//! of route and socket (13 %); `MSG_ZEROCOPY` is not used (reasoned, not measured): on loopback and
//! veth the kernel copies all the same, and elsewhere each call's completion has to be read back.

mod addr;
mod batch;
mod config;
mod connected;
mod counters;
mod interfaces;
mod open;
mod probe;
mod rx;
mod sys;
mod transport;
mod tx;

pub use config::UdpConfig;
pub use counters::UdpCounters;
pub use interfaces::{Interface, interfaces, usable};
pub use transport::{UdpTransport, Unreachable};
pub use weir_net::{Datagrams, RxInfo};
