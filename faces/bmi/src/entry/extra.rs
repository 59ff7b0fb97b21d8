//! What only Weir has (spec/bmi.md 12).

use super::int;
use crate::addresses::AddrKey;
use crate::codes::Code;
use crate::instance::{instance, within};
use crate::ops::{Limit, OpKey};
use std::ffi::c_int;
use std::time::{Duration, Instant};

/// How often a ping is looked after.
const LOOK: Duration = Duration::from_micros(200);

/// `struct WEIR_BMI_statistics`.
#[repr(C)]
#[derive(Default)]
pub struct Statistics {
    sends: u64,
    sends_immediate: u64,
    receives: u64,
    receives_immediate: u64,
    unexpected_sent: u64,
    unexpected_received: u64,
    failed: u64,
    operations: u64,
    addresses: u64,
    buffered_bytes: u64,
    connections_refused: u64,
    packets_refused: u64,
}

/// `WEIR_BMI_descriptor`.
#[unsafe(no_mangle)]
pub extern "C" fn WEIR_BMI_descriptor() -> c_int {
    int(|| instance()?.fd())
}

/// `WEIR_BMI_arm`.
#[unsafe(no_mangle)]
pub extern "C" fn WEIR_BMI_arm() -> c_int {
    int(|| Ok(c_int::from(!instance()?.arm()?)))
}

/// `WEIR_BMI_timeout`.
#[unsafe(no_mangle)]
pub extern "C" fn WEIR_BMI_timeout(id: i64, ms: c_int, context: i64) -> c_int {
    int(|| {
        within(|library| {
            let ms = u64::try_from(ms).map_err(|_| Code::EINVAL)?;
            let ops = &mut library.t.ops;
            let (context, key) = (ops.context(context).ok_or(Code::EINVAL)?, OpKey::from_id(id));
            ops.get(key).filter(|op| op.context == context).ok_or(Code::EINVAL)?;
            ops.no_limit(key);
            if ms > 0 {
                ops.limit(key, Limit::Cancel, Instant::now() + Duration::from_millis(ms));
            }
            Ok(0)
        })
    })
}

/// `WEIR_BMI_statistics`.
///
/// # Safety
/// `out` is null or writable for `bytes`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn WEIR_BMI_statistics(out: *mut Statistics, bytes: usize) -> c_int {
    int(|| {
        let now = within(|library| {
            let (buffered_bytes, packets_refused, t) = (library.buffered(), library.packets_refused(), &library.t);
            let c = t.counters;
            Ok(Statistics {
                sends: c.sends[0],
                sends_immediate: c.sends[1],
                receives: c.receives[0],
                receives_immediate: c.receives[1],
                unexpected_sent: c.unexpected_sent,
                unexpected_received: c.unexpected_received,
                failed: t.ops.failed,
                operations: t.ops.under_way().count() as u64,
                addresses: t.addrs.len() as u64,
                buffered_bytes,
                connections_refused: c.refused,
                packets_refused,
            })
        })?;
        if out.is_null() {
            return Err(Code::EINVAL);
        }
        // SAFETY: writable for `bytes` (caller), and no more than the structure has; both are plain
        // numbers.
        unsafe {
            std::ptr::copy_nonoverlapping(
                (&raw const now).cast::<u8>(),
                out.cast(),
                bytes.min(size_of::<Statistics>()),
            );
        }
        Ok(0)
    })
}

/// `WEIR_BMI_ping`.
#[unsafe(no_mangle)]
pub extern "C" fn WEIR_BMI_ping(addr: i64, ms: c_int) -> c_int {
    int(|| {
        let limit = Duration::from_millis(u64::try_from(ms).map_err(|_| Code::EINVAL)?);
        let begun = Instant::now();
        let instance = instance()?;
        let (method, ticket) = instance.within(|library| library.ping(AddrKey::from_id(addr)))?;
        loop {
            match instance.within(|library| Ok(library.pinged(method, ticket)))? {
                Some(found) => return found.map(|()| 0),
                None if begun.elapsed() >= limit => {
                    instance.within(|library| {
                        library.no_ping(method, ticket);
                        Ok(())
                    })?;
                    return Err(Code::ETIMEDOUT);
                }
                None => std::thread::sleep(LOOK),
            }
        }
    })
}
