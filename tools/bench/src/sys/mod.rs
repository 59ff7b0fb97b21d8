//! What needs unsafe code: a BMI library, asking what carried messages, reading the cycle counter,
//! the kernel's clock, the processors a thread may use.

pub mod affinity;
pub mod bmi;
pub mod carried;
pub mod counter;
pub mod mail;
pub mod port;
pub mod process;
