//! The primitives of BSPlib as the program that measures calls them. What they may do to memory is
//! memory that this module keeps for ever.

use std::ffi::{CStr, c_int, c_void};

use crate::params::By;

use weir_bsp::{
    bsp_begin, bsp_end, bsp_get_tag, bsp_hpput, bsp_move, bsp_nprocs, bsp_pid, bsp_push_reg, bsp_put, bsp_qsize,
    bsp_send, bsp_sync_at,
};

/// This process, between `bsp_begin` and `bsp_end`.
pub struct Program {
    pid: usize,
    p: usize,
}

/// Memory that others put into, and memory that puts are from; both have this many bytes, in all
/// processes.
pub struct Area {
    into: *mut c_void,
    from: *const c_void,
    bytes: usize,
}

impl Program {
    /// Meets the others: as many as were started. If they cannot be met, the process ends with a
    /// line that says why.
    pub fn begin() -> Program {
        // SAFETY: plain numbers; the first call of a primitive.
        let (p, pid) = unsafe {
            bsp_begin(bsp_nprocs().max(1));
            (bsp_nprocs(), bsp_pid())
        };
        Program { pid: usize::try_from(pid).unwrap_or(0), p: usize::try_from(p).unwrap_or(1) }
    }

    /// This process's number.
    pub fn pid(&self) -> usize {
        self.pid
    }

    /// How many take part.
    pub fn p(&self) -> usize {
        self.p
    }

    /// Ends the superstep; `place` is what a ledger calls it.
    pub fn sync(&mut self, place: &'static CStr) {
        // SAFETY: a text that lives for ever.
        unsafe { bsp_sync_at(place.as_ptr()) };
    }

    /// An area, from the next superstep on. Its memory is never given back.
    pub fn area(&mut self, bytes: usize) -> Area {
        let words = bytes.div_ceil(8).max(1);
        let memory = |fill: u64| Box::leak(vec![fill; words].into_boxed_slice()).as_mut_ptr();
        let (into, from) = (memory(0), memory(0x0102_0304_0506_0708));
        // SAFETY: memory of that length, which nobody but the library uses any more.
        unsafe { bsp_push_reg(into.cast(), bytes) };
        Area { into: into.cast(), from: from.cast(), bytes }
    }

    /// Brings bytes of the area's source to another process: into its area there, or into its
    /// queue.
    pub fn bring(&mut self, by: By, area: &Area, to: usize, offset: usize, bytes: usize) {
        assert!(bytes <= area.bytes, "a put is longer than its source");
        let pid = to as c_int;
        // SAFETY: the source is never changed nor freed; that the destination lies in the area is
        // checked by the library, for all have as much.
        unsafe {
            match by {
                By::Hpput => bsp_hpput(pid, area.from, area.into, offset, bytes),
                By::Put => bsp_put(pid, area.from, area.into, offset, bytes),
                // Tags have no bytes.
                By::Send => bsp_send(pid, std::ptr::null(), area.from, bytes),
            }
        };
    }

    /// Sends numbers to another process, which [`Program::received`] them in the next superstep.
    pub fn send(&mut self, to: usize, values: &[f64]) {
        // SAFETY: copied before it returns; tags have no bytes.
        unsafe { bsp_send(to as c_int, std::ptr::null(), values.as_ptr().cast(), size_of_val(values)) };
    }

    /// What was sent to this process in the superstep before, by the sender's number.
    pub fn received(&mut self) -> Vec<Vec<f64>> {
        let (mut count, mut bytes): (c_int, c_int) = (0, 0);
        // SAFETY: two numbers to write to.
        unsafe { bsp_qsize(&raw mut count, &raw mut bytes) };
        let one = |_| {
            let mut length: c_int = 0;
            // SAFETY: a number to write to; tags have no bytes.
            unsafe { bsp_get_tag(&raw mut length, std::ptr::null_mut()) };
            let mut values = vec![0.0f64; usize::try_from(length).unwrap_or(0) / 8];
            // SAFETY: memory of that length.
            unsafe { bsp_move(values.as_mut_ptr().cast(), size_of_val(values.as_slice())) };
            values
        };
        (0..count).map(one).collect()
    }

    /// Ends the program. The process goes on by itself.
    pub fn end(self) {
        // SAFETY: the last call of a primitive: whoever could call another one is consumed.
        unsafe { bsp_end() };
    }
}
