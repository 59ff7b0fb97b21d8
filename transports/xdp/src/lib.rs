//! Packets past the kernel's UDP, beside the socket of the same port (spec/xdp.md): reception
//! without a system call, from a BPF ring buffer or an AF_XDP socket; by the latter also a send
//! past UDP and IP.
//!
//! * [`Pair`] is the device: another one, and XDP beside it, while there is XDP.
//! * [`Broker`] attaches the program and makes ring buffers and sockets, for this process or, in
//!   the helper (`weir xdpd`), for others.
//! * [`helper`] is what the two say to each other.
//!
//! Why raw bpf(2) and rings of our own: `aya` reads programs from object files only, which take a
//! compiler (clang or bpf-linker) to build; `libbpf-rs` and `xsk-rs` bring C libraries; the crates
//! that are Rust alone (`xdpilone`, `xdp`) make their sockets themselves and take none that was
//! handed over, which is all a rank without rights ever has. The programs are 63 and 150
//! instructions (`program.rs`), a ring 100 lines (`ring.rs`).

mod broker;
mod buffer;
mod code;
mod counters;
pub mod frame;
pub mod helper;
mod loss;
mod netlink;
mod pair;
mod program;
mod ring;
mod routes;
mod sys;
mod words;
mod xsk;

pub use broker::{Broker, Grant, Mode, NoSocket, interface_of, may_be_steered};
pub use buffer::Buffer;
pub use counters::XdpCounters;
pub use loss::Loss;
pub use netlink::{Changes, Link, Netlink};
pub use pair::{Holder, Pair, Port};
pub use program::{Program, RECORDS_MAX, Ring};
pub use sys::peer_groups;
pub use words::{Answer, Ask, BYTES, MOST, Refused};
pub use xsk::{Bound, Frame, Layout, Xsk};
