//! Which processors this thread may use.

use std::io;

/// The logical processors that the calling thread may run on, ascending.
///
/// # Errors
/// The kernel's.
pub fn allowed() -> io::Result<Vec<u32>> {
    // SAFETY: a cpu_set_t is plain bits.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: writes at most the size given into a set that is ours.
    if unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let most = 8 * size_of::<libc::cpu_set_t>();
    // SAFETY: every number asked for is within the set.
    Ok((0..most).filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) }).map(|cpu| cpu as u32).collect())
}

/// Keeps the calling thread on one processor.
///
/// # Errors
/// The kernel's, e.g. when the processor is not among those allowed.
pub fn bind(cpu: u32) -> io::Result<()> {
    // SAFETY: a cpu_set_t is plain bits.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    if cpu as usize >= 8 * size_of::<libc::cpu_set_t>() {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    // SAFETY: the number was just seen to be within the set.
    unsafe { libc::CPU_SET(cpu as usize, &mut set) };
    // SAFETY: reads a set that is ours.
    match unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The processor on which the calling thread runs now; nothing where the kernel does not tell. It
/// costs some tens of nanoseconds.
#[must_use]
pub fn current() -> Option<u32> {
    // SAFETY: asks for a number.
    u32::try_from(unsafe { libc::sched_getcpu() }).ok()
}

/// Processors online on this machine.
#[must_use]
pub fn online_processors() -> usize {
    // SAFETY: asks for a number.
    let count = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    usize::try_from(count).unwrap_or(1).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_kept_where_it_was_bound() {
        std::thread::spawn(|| {
            let cpu = *allowed().unwrap().last().unwrap();
            bind(cpu).unwrap();
            assert_eq!(allowed().unwrap(), [cpu]);
            assert_eq!(current(), Some(cpu));
            assert!(bind(1_000_000).is_err());
        })
        .join()
        .unwrap();
    }
}
