//! What needs unsafe code: reading the cycle counter, the kernel's clock, the processors a thread may use.

pub mod affinity;
pub mod counter;
pub mod port;
pub mod process;
