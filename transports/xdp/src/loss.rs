//! Random loss for tests and measurements, by a program in front of all others at an interface's
//! entry (tc): what takes packets there, as that for rings does, loses its part too. nftables' hook
//! comes behind them.

use crate::code::{Alu, Code, If, R0, R1, R2, STACK, Width};
use crate::program::{LOOKUP, TCX_DROP, TCX_NEXT, nowhere};
use crate::sys::{self, FIRST, Hook, Mapping};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// A random number of 32 bits (bpf-helpers(7): `get_prandom_u32`).
const RANDOM: i32 = 7;
/// Of which so many are used, for numbers in instructions have a sign.
const BITS: u32 = 30;
/// Where the key of the one counter is on the stack.
const KEY: i16 = -8;

/// While it lives, packets are dropped.
#[derive(Debug)]
pub struct Loss {
    _link: OwnedFd,
    counter: Mapping,
}

impl Loss {
    /// Drops each packet that comes in by this interface with this probability. What the stack has
    /// as one packet and received as several is one.
    ///
    /// # Errors
    /// The kernel's: no right to (CAP_NET_ADMIN and CAP_BPF, not of a user namespace), Linux before
    /// 6.6.
    pub fn new(interface: u32, probability: f64) -> io::Result<Loss> {
        let counter = sys::map_with(sys::MAP_TYPE_ARRAY, 4, 8, 1, sys::MAP_MAPPABLE, None, "weir_lost")?;
        let code = program(counter.as_raw_fd(), probability).ok_or_else(nowhere)?;
        let program = sys::load(Hook::Ingress, &code, 0, "weir_loss")?;
        let link = sys::attach(Hook::Ingress, &program, interface, FIRST)?;
        Ok(Loss { _link: link, counter: Mapping::new(&counter, 0, 8)? })
    }

    /// How many were dropped.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        // SAFETY: the one number of the array, at the begin of its page, used as an atomic by both
        // sides.
        unsafe { self.counter.start().cast::<AtomicU64>().as_ref() }.load(Ordering::Relaxed)
    }
}

fn program(counter: i32, probability: f64) -> Option<Vec<u64>> {
    let below = (probability.clamp(0.0, 1.0) * f64::from(1 << BITS)).round() as i32;
    let mut c = Code::default();
    if below > 0 {
        c.call(RANDOM).number(Alu::Right, R0, (32 - BITS) as i32).jump_if(If::Greater, R0, below - 1, "pass");
        c.store_number(Width::U32, STACK, KEY, 0).map(R1, counter);
        c.register(Alu::Move, R2, STACK).number(Alu::Add, R2, i32::from(KEY)).call(LOOKUP);
        c.jump_if(If::Equal, R0, 0, "drop").number(Alu::Move, R1, 1).add_64(R0, R1);
        c.label("drop").number(Alu::Move, R0, TCX_DROP).exit();
    }
    c.label("pass").number(Alu::Move, R0, TCX_NEXT).exit();
    c.finish()
}
