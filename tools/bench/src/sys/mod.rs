//! What needs unsafe code: asking what carried messages, reading the cycle counter, the kernel's clock, the processors a thread may use.

pub mod affinity;
pub mod carried;
pub mod counter;
pub mod port;
pub mod process;
