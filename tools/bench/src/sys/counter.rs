//! Time for timing: the cycle counter where it can be trusted, else the kernel's unsteered clock.
//!
//! The counter is read between fences. The one before (`lfence`) keeps the reading from being done
//! before what precedes it is complete; the one after keeps what follows from beginning before the
//! reading (Intel, "How to benchmark code execution times", 2010; AMD64 manual volume 3, RDTSC:
//! serialising needs LFENCE).

/// The clock sources that the kernel would use.
const AVAILABLE: &str = "/sys/devices/system/clocksource/clocksource0/available_clocksource";

/// What is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The processor's cycle counter.
    Tsc,
    /// `CLOCK_MONOTONIC_RAW`, in nanoseconds.
    MonotonicRaw,
}

impl Source {
    /// The cycle counter if both the processor and the kernel say that it is steady; else the
    /// kernel's clock.
    #[must_use]
    pub fn best() -> Source {
        Source::of(is_invariant(), std::fs::read_to_string(AVAILABLE).ok().as_deref())
    }

    /// The kernel compares the counter with other clocks as long as it runs, and takes it off its
    /// list when it was wrong, e.g. set by a firmware or not the same on all sockets: what the
    /// processor says of itself does not tell that.
    fn of(invariant: bool, available: Option<&str>) -> Source {
        let listed = available.is_some_and(|list| list.split_whitespace().any(|name| name == "tsc"));
        if invariant && listed { Source::Tsc } else { Source::MonotonicRaw }
    }

    /// A reading of the kernel's clock between two of this source.
    #[must_use]
    pub fn pair(self) -> weir_clock::TickPair {
        let before = self.read();
        let monotonic_ns = monotonic_raw_ns().cast_signed();
        weir_clock::TickPair { before, monotonic_ns, after: self.read() }
    }

    /// Its name in the distribution format.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Source::Tsc => "tsc",
            Source::MonotonicRaw => "monotonic-raw",
        }
    }

    /// Reads it.
    #[inline(always)]
    #[must_use]
    pub fn read(self) -> u64 {
        match self {
            Source::Tsc => tsc(),
            Source::MonotonicRaw => monotonic_raw_ns(),
        }
    }
}

/// The cycle counter, fenced; 0 where there is none.
#[inline(always)]
#[must_use]
pub fn tsc() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_mm_lfence, _rdtsc};
        // SAFETY: every x86-64 processor has both instructions; they touch no memory.
        unsafe {
            _mm_lfence();
            let ticks = _rdtsc();
            _mm_lfence();
            ticks
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    0
}

/// The kernel's clock that no daemon steers, ns.
#[must_use]
pub fn monotonic_raw_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec, which is ours.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_RAW, &raw mut time) };
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}

/// Whether the processor says that its counter goes at one rate whatever the core does (CPUID
/// 8000_0007H, EDX bit 8).
#[must_use]
pub fn is_invariant() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::__cpuid;
        #[allow(unused_unsafe, reason = "the function became safe after the oldest compiler promised")]
        // SAFETY: every x86-64 processor has the instruction.
        let cpuid = |leaf| unsafe { __cpuid(leaf) };
        cpuid(0x8000_0000).eax >= 0x8000_0007 && cpuid(0x8000_0007).edx & (1 << 8) != 0
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_that_the_kernel_does_not_list_is_not_read() {
        assert_eq!(Source::of(true, Some("tsc hpet acpi_pm \n")), Source::Tsc);
        assert_eq!(Source::of(true, Some("kvm-clock tsc")), Source::Tsc);
        for (invariant, available) in
            [(false, Some("tsc")), (true, Some("hpet acpi_pm")), (true, Some("tsc-early")), (true, None)]
        {
            assert_eq!(Source::of(invariant, available), Source::MonotonicRaw, "{invariant} {available:?}");
        }
    }

    #[test]
    fn no_source_goes_back() {
        for source in [Source::Tsc, Source::MonotonicRaw] {
            let mut last = source.read();
            for _ in 0..10_000 {
                let now = source.read();
                assert!(now >= last, "{source:?}");
                last = now;
            }
        }
    }
}
