//! Completion counters: sums over the engines' own totals, so that counting costs the hot path
//! nothing.

use crate::abi::*;
use crate::domain::Domain;
use crate::ep_core::EpCore;
use crate::guard;
use crate::handle::{Begins, Handle};
use crate::kept::Kept;
use crate::wait::{FdSet, Patience, Sleeper, Step};
use std::ffi::{c_int, c_void};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, MutexGuard};
use std::time::Duration;
use weir_engine::EventFd;

/// An endpoint's operations that a counter counts.
struct Source {
    ep: Arc<EpCore>,
    flags: u64,
}

/// A sleep in `fi_cntr_wait` is over after this at the latest.
const SLEEP_MAX: Duration = Duration::from_millis(10);

impl Source {
    /// Ended well, ended badly.
    fn counts(&self) -> (u64, u64) {
        let t = self.ep.engine.totals();
        let mut sums = (0u64, 0u64);
        for (flag, good, bad) in [
            (FI_SEND, t.sends, t.send_errors),
            (FI_RECV, t.recvs, t.recv_errors),
            (FI_WRITE, t.writes, t.write_errors),
            (FI_READ, t.reads, t.read_errors),
        ] {
            if self.flags & flag != 0 {
                sums = (sums.0 + good, sums.1 + bad);
            }
        }
        sums
    }
}

#[derive(Default)]
struct Inner {
    sources: Vec<Source>,
    /// What the application set or added, and what endpoints counted that are gone; added to the
    /// sources' sums modulo 2^64.
    value: u64,
    errors: u64,
}

impl Inner {
    fn counts(&self) -> (u64, u64) {
        self.sources
            .iter()
            .map(Source::counts)
            .fold((self.value, self.errors), |a, c| (a.0.wrapping_add(c.0), a.1.wrapping_add(c.1)))
    }
}

/// A counter, shared with the endpoints bound to it.
pub struct Cntr {
    inner: Kept<Inner>,
    sleeper: Sleeper,
    /// Where the application was last told that it is, and its errors.
    told: AtomicU64,
    told_errors: AtomicU64,
}

impl Cntr {
    fn inner(&self) -> Result<MutexGuard<'_, Inner>, i32> {
        self.inner.lock()
    }

    /// Counts an endpoint's operations of these kinds from now on.
    ///
    /// # Errors
    /// `FI_EOPBADSTATE` where a panic left the counter half changed.
    pub fn attach(&self, ep: &Arc<EpCore>, flags: u64) -> Result<(), i32> {
        let source = Source { ep: ep.clone(), flags };
        let mut inner = self.inner()?;
        let so_far = source.counts();
        inner.value = inner.value.wrapping_sub(so_far.0);
        inner.errors = inner.errors.wrapping_sub(so_far.1);
        if let Some((_, wake)) = self.sleeper.existing() {
            ep.engine.signal_counts(wake);
        }
        inner.sources.push(source);
        Ok(())
    }

    /// Keeps what an endpoint counted, and lets go of it.
    pub fn detach(&self, ep: &Arc<EpCore>) {
        let Ok(mut inner) = self.inner() else { return };
        // (Of a parent's endpoint another thread of the parent's may hold what this would lock.)
        if let Some((_, wake)) = self.sleeper.existing()
            && !ep.engine.is_inherited()
        {
            ep.engine.signal_counts_no_more(wake);
        }
        let (gone, kept) = std::mem::take(&mut inner.sources).into_iter().partition(|s| Arc::ptr_eq(&s.ep, ep));
        inner.sources = kept;
        for source in gone as Vec<Source> {
            let counts = source.counts();
            inner.value = inner.value.wrapping_add(counts.0);
            inner.errors = inner.errors.wrapping_add(counts.1);
        }
    }

    fn counts(&self) -> Result<(u64, u64), i32> {
        Ok(self.inner()?.counts())
    }

    /// Makes progress on all endpoints.
    ///
    /// # Errors
    /// `FI_EOPBADSTATE` where one of them, or this, is out of order: who waits must hear of it.
    fn progress(&self) -> Result<(), i32> {
        let eps: Vec<Arc<EpCore>> = self.inner()?.sources.iter().map(|s| s.ep.clone()).collect();
        eps.iter().for_each(|ep| ep.engine.progress());
        eps.iter().try_for_each(|ep| ep.engine.check()).map_err(|e| guard::code_of(&e))
    }

    /// Prepares the application for sleeping on the descriptor, if it knows how far the counter is.
    ///
    /// # Errors
    /// `FI_EAGAIN`.
    pub fn try_wait(&self) -> Result<(), i32> {
        let told = (self.told.load(Relaxed), self.told_errors.load(Relaxed));
        let now = self.arm(None)?;
        // It is asked to look but once: it may have no interest in the value, or in errors.
        self.told.store(now.0, Relaxed);
        self.told_errors.store(now.1, Relaxed);
        if now == told { Ok(()) } else { Err(FI_EAGAIN) }
    }

    /// Prepares for sleeping on the descriptor. Returns where the counter is.
    ///
    /// # Errors
    /// `FI_EAGAIN` when that is no longer where the caller has `seen` it.
    fn arm(&self, seen: Option<(u64, u64)>) -> Result<(u64, u64), i32> {
        let inner = self.inner()?;
        self.sleeper(&inner)?.1.clear();
        // What is counted, added or set from here on signals.
        let armed = inner.sources.iter().all(|s| s.ep.engine.arm_for_counts());
        let now = inner.counts();
        if armed && seen.is_none_or(|seen| seen == now) { Ok(now) } else { Err(FI_EAGAIN) }
    }

    /// The descriptors to sleep on; made now if need be, and told to all endpoints bound so far.
    fn sleeper(&self, inner: &Inner) -> Result<(&FdSet, &Arc<EventFd>), i32> {
        if let Some(made) = self.sleeper.existing() {
            return Ok(made);
        }
        let made = self.sleeper.get()?;
        inner.sources.iter().for_each(|s| s.ep.engine.signal_counts(made.1));
        Ok(made)
    }

    fn wait(&self, threshold: u64, timeout_ms: i32) -> Result<i32, i32> {
        let patience = Patience::new(timeout_ms);
        let errors = self.counts()?.1;
        loop {
            let progress = self.progress();
            let now = self.counts()?;
            if now.0 >= threshold {
                self.told.store(now.0, Relaxed);
                return Ok(0);
            }
            progress?;
            if now.1 != errors {
                return Err(FI_EAVAIL);
            }
            match patience.next() {
                Step::Over => return Err(FI_ETIMEDOUT),
                Step::Spin => std::hint::spin_loop(),
                Step::Sleep(left) => {
                    if self.arm(Some(now)).is_ok() {
                        // (Several may wait, each for another value: one that arms clears what was
                        // to wake another.)
                        self.sleeper.get()?.0.wait(Some(left.map_or(SLEEP_MAX, |left| left.min(SLEEP_MAX))));
                    }
                }
            }
        }
    }
}

/// The counter object.
#[repr(C)]
pub struct CntrObj {
    fid: FidCntr,
    /// What endpoints share.
    pub cntr: Arc<Cntr>,
    wait_obj: c_int,
    /// Only its endpoints can use it.
    pub domain: Arc<Domain>,
}

// SAFETY: `repr(C)`, the handle first; `open` gives it its class.
unsafe impl Begins for FidCntr {
    type Object = CntrObj;
    const CLASS: usize = FI_CLASS_CNTR;
}

/// `fi_cntr_open`.
///
/// # Safety
/// As libfabric's contract says.
pub unsafe extern "C" fn open(
    domain: Handle<FidDomain>,
    attr: *mut FiCntrAttr,
    out: *mut *mut FidCntr,
    context: *mut c_void,
) -> c_int {
    guard::int(|| {
        let domain = &domain.get()?.domain;
        // SAFETY: null or valid; null asks for the defaults.
        let attr = unsafe { attr.as_ref() };
        let (events, wait_obj) = attr.map_or((FI_CNTR_EVENTS_COMP, FI_WAIT_UNSPEC), |a| (a.events, a.wait_obj));
        if out.is_null() {
            return Err(FI_EINVAL);
        }
        if attr.is_some_and(|a| a.flags != 0) {
            return Err(FI_EBADFLAGS);
        }
        if events != FI_CNTR_EVENTS_COMP
            || !matches!(wait_obj, FI_WAIT_NONE | FI_WAIT_UNSPEC | FI_WAIT_FD | FI_WAIT_YIELD)
        {
            return Err(FI_ENOSYS);
        }
        let cntr = Cntr {
            inner: Kept::default(),
            sleeper: Sleeper::default(),
            told: AtomicU64::new(0),
            told_errors: AtomicU64::new(0),
        };
        let object = Box::new(CntrObj {
            fid: FidCntr { fid: Fid { fclass: FI_CLASS_CNTR, context, ops: &raw const OPS }, ops: &raw const CNTR_OPS },
            cntr: Arc::new(cntr),
            wait_obj,
            domain: domain.clone(),
        });
        // SAFETY: writable (checked for null).
        unsafe { *out = Box::into_raw(object).cast() };
        Ok(0)
    })
}

static OPS: FiOps = FiOps {
    size: size_of::<FiOps>(),
    close,
    bind: no_bind,
    control,
    ops_open: refused,
    tostr: refused,
    ops_set: refused,
};
static CNTR_OPS: FiOpsCntr = FiOpsCntr { size: size_of::<FiOpsCntr>(), read, readerr, add, set, wait, adderr, seterr };

unsafe extern "C" fn close(fid: Handle<Fid>) -> c_int {
    guard::int(|| {
        if Arc::strong_count(&fid.object::<FidCntr>()?.cntr) > 1 {
            return Err(FI_EBUSY);
        }
        // SAFETY: made by `Box::into_raw` in `open`, closed once.
        drop(unsafe { Box::from_raw(fid.raw().cast::<CntrObj>()) });
        Ok(0)
    })
}

unsafe extern "C" fn control(fid: Handle<Fid>, command: c_int, arg: *mut c_void) -> c_int {
    guard::int(|| {
        let object = fid.object::<FidCntr>()?;
        if arg.is_null() {
            return Err(FI_EINVAL);
        }
        let answer = match command {
            FI_GETWAIT if object.wait_obj == FI_WAIT_FD => {
                let inner = object.cntr.inner()?;
                object.cntr.sleeper(&inner)?.0.as_raw_fd()
            }
            FI_GETWAITOBJ => object.wait_obj,
            _ => return Err(FI_ENOSYS),
        };
        // SAFETY: the argument is where the answer goes.
        unsafe { *arg.cast::<c_int>() = answer };
        Ok(0)
    })
}

unsafe extern "C" fn read(fid: Handle<FidCntr>) -> u64 {
    guard::guard(0, || {
        let Ok(object) = fid.get() else { return 0 };
        // There is no way to tell of an error here; what was counted stays.
        let _ = object.cntr.progress();
        let value = object.cntr.counts().unwrap_or_default().0;
        object.cntr.told.store(value, Relaxed);
        value
    })
}

unsafe extern "C" fn readerr(fid: Handle<FidCntr>) -> u64 {
    guard::guard(0, || {
        let Ok(object) = fid.get() else { return 0 };
        let _ = object.cntr.progress();
        let errors = object.cntr.counts().unwrap_or_default().1;
        object.cntr.told_errors.store(errors, Relaxed);
        errors
    })
}

/// Changes the application's part of a counter.
fn change(fid: Handle<FidCntr>, how: impl FnOnce(&mut Inner)) -> c_int {
    guard::int(|| {
        let cntr = &fid.get()?.cntr;
        how(&mut *cntr.inner()?);
        if let Some((_, wake)) = cntr.sleeper.existing() {
            wake.signal();
        }
        Ok(0)
    })
}

unsafe extern "C" fn add(fid: Handle<FidCntr>, value: u64) -> c_int {
    change(fid, |c| c.value = c.value.wrapping_add(value))
}

unsafe extern "C" fn set(fid: Handle<FidCntr>, value: u64) -> c_int {
    change(fid, |c| c.value = c.value.wrapping_add(value.wrapping_sub(c.counts().0)))
}

unsafe extern "C" fn adderr(fid: Handle<FidCntr>, value: u64) -> c_int {
    change(fid, |c| c.errors = c.errors.wrapping_add(value))
}

unsafe extern "C" fn seterr(fid: Handle<FidCntr>, value: u64) -> c_int {
    change(fid, |c| c.errors = c.errors.wrapping_add(value.wrapping_sub(c.counts().1)))
}

unsafe extern "C" fn wait(fid: Handle<FidCntr>, threshold: u64, timeout: c_int) -> c_int {
    guard::int(|| fid.get()?.cntr.wait(threshold, timeout))
}
