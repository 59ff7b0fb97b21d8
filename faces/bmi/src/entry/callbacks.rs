//! What modules call (spec/bmi.md U2).

use super::{guard, int};
use crate::module::upcall;
use std::ffi::{c_int, c_void};

/// `bmi_method_addr_reg_callback`.
#[unsafe(no_mangle)]
pub extern "C" fn weir_bmi_addr_reg_callback(addr: *mut c_void) -> i64 {
    guard(0, || upcall::register(addr))
}

/// `bmi_method_addr_forget_callback`.
#[unsafe(no_mangle)]
pub extern "C" fn weir_bmi_addr_forget_callback(addr: i64) -> c_int {
    int(|| upcall::forget(addr).map(|()| 0))
}
