//! Event queues: insertion of addresses may report here, and applications write events of their
//! own.

use crate::abi::*;
use crate::fabric::Fabric;
use crate::guard;
use crate::handle::{Begins, Handle};
use crate::kept::Kept;
use crate::wait::{FdSet, Patience, Step, new_event};
use std::collections::VecDeque;
use std::ffi::{c_char, c_int, c_void};
use std::os::fd::AsRawFd;
use std::ptr;
use std::sync::{Arc, MutexGuard};
use weir_engine::EventFd;

/// Events an application may queue before it must read them.
const CAPACITY: usize = 1 << 16;
/// Longest event an application may write, bytes.
const MAX_EVENT: usize = 4096;

enum Item {
    Event { event: u32, data: Vec<u8> },
    Error(FiEqErrEntry),
}

// SAFETY: the addresses in an entry are the application's, passed through untouched.
unsafe impl Send for Item {}

/// The queue, shared with what reports to it.
pub struct Eq {
    items: Kept<VecDeque<Item>>,
    wake: EventFd,
    set: FdSet,
}

impl Eq {
    fn items(&self) -> Result<MutexGuard<'_, VecDeque<Item>>, i32> {
        self.items.lock()
    }

    fn queue(&self, item: Item) -> Result<(), i32> {
        let mut items = self.items()?;
        if items.len() >= CAPACITY {
            return Err(FI_EAGAIN);
        }
        items.push_back(item);
        drop(items);
        // In a child made by fork(2) the descriptors are the parent's.
        if !self.items.is_inherited() {
            self.wake.signal();
        }
        Ok(())
    }

    /// For tests: what another thread holds.
    #[cfg(test)]
    pub fn hold(&self) -> MutexGuard<'_, impl Sized> {
        self.items().expect("in order")
    }

    /// For tests: what to sleep on.
    #[cfg(test)]
    pub fn descriptor(&self) -> c_int {
        self.set.as_raw_fd()
    }

    /// Queues an event of our own.
    pub fn push(&self, event: u32, entry: FiEqEntry) {
        // SAFETY: the entry is plain old data without padding (three 8-byte fields).
        let data =
            unsafe { std::slice::from_raw_parts((&raw const entry).cast::<u8>(), size_of::<FiEqEntry>()) }.to_vec();
        let _ = self.queue(Item::Event { event, data });
    }

    /// Queues a failure.
    pub fn push_error(&self, fid: *mut Fid, context: *mut c_void, data: u64, err: i32) {
        let _ = self.queue(Item::Error(FiEqErrEntry {
            fid,
            context,
            data,
            err,
            prov_errno: err,
            err_data: ptr::null_mut(),
            err_data_size: 0,
        }));
    }

    /// Prepares for sleeping on the descriptor.
    ///
    /// # Errors
    /// `FI_EAGAIN` when there is something to read; `FI_EOPBADSTATE` in a child made by fork(2),
    /// which would take the parent's wake-up.
    pub fn arm(&self) -> Result<(), i32> {
        let items = self.items()?;
        if !items.is_empty() {
            return Err(FI_EAGAIN);
        }
        if self.items.is_inherited() {
            return Err(FI_EOPBADSTATE);
        }
        self.wake.clear();
        Ok(())
    }

    /// # Safety
    /// `event` is null or writable, `buf` is null or writable for `len` bytes.
    unsafe fn read(&self, event: *mut u32, buf: *mut c_void, len: usize, keep: bool) -> Result<isize, i32> {
        let mut items = self.items()?;
        let (kind, n) = match items.front() {
            None => return Err(FI_EAGAIN),
            Some(Item::Error(_)) => return Err(FI_EAVAIL),
            Some(Item::Event { event, data }) => {
                if len < data.len() || (buf.is_null() && !data.is_empty()) {
                    return Err(FI_ETOOSMALL);
                }
                if !data.is_empty() {
                    // SAFETY: `len` bytes, which is enough.
                    unsafe { ptr::copy_nonoverlapping(data.as_ptr(), buf.cast(), data.len()) };
                }
                (*event, data.len())
            }
        };
        if !event.is_null() {
            // SAFETY: writable (caller).
            unsafe { *event = kind };
        }
        if !keep {
            items.pop_front();
        }
        Ok(n as isize)
    }
}

/// The event queue object.
#[repr(C)]
pub struct EqObj {
    fid: FidEq,
    /// What reporters share.
    pub eq: Arc<Eq>,
    /// What reports to it is of the same.
    pub fabric: Arc<Fabric>,
}

// SAFETY: `repr(C)`, the handle first; `open` gives it its class.
unsafe impl Begins for FidEq {
    type Object = EqObj;
    const CLASS: usize = FI_CLASS_EQ;
}

/// `fi_eq_open`.
///
/// # Safety
/// As libfabric's contract says.
pub unsafe extern "C" fn open(
    fabric: Handle<FidFabric>,
    attr: *mut FiEqAttr,
    out: *mut *mut FidEq,
    context: *mut c_void,
) -> c_int {
    guard::int(|| {
        let fabric = &fabric.get()?.fabric;
        // SAFETY: null or valid; null asks for the defaults.
        let (wait_obj, flags) = unsafe { attr.as_ref() }.map_or((FI_WAIT_NONE, 0), |a| (a.wait_obj, a.flags));
        if out.is_null() {
            return Err(FI_EINVAL);
        }
        // Applications may always write; which processor an event is signalled to is not chosen
        // here, as with completion queues.
        if flags & !(FI_WRITE | FI_AFFINITY) != 0 {
            return Err(FI_EBADFLAGS);
        }
        if !matches!(wait_obj, FI_WAIT_NONE | FI_WAIT_UNSPEC | FI_WAIT_FD | FI_WAIT_YIELD) {
            return Err(FI_ENOSYS);
        }
        let eq = Eq { items: Kept::new(VecDeque::new()), wake: new_event()?, set: FdSet::new()? };
        eq.set.add(eq.wake.as_raw_fd());
        let object = Box::new(EqObj {
            fid: FidEq { fid: Fid { fclass: FI_CLASS_EQ, context, ops: &raw const OPS }, ops: &raw const EQ_OPS },
            eq: Arc::new(eq),
            fabric: fabric.clone(),
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
static EQ_OPS: FiOpsEq = FiOpsEq { size: size_of::<FiOpsEq>(), read, readerr, write, sread, strerror };

unsafe extern "C" fn close(fid: Handle<Fid>) -> c_int {
    guard::int(|| {
        if Arc::strong_count(&fid.object::<FidEq>()?.eq) > 1 {
            return Err(FI_EBUSY);
        }
        // SAFETY: made by `Box::into_raw` in `open`, closed once.
        drop(unsafe { Box::from_raw(fid.raw().cast::<EqObj>()) });
        Ok(0)
    })
}

unsafe extern "C" fn control(fid: Handle<Fid>, command: c_int, arg: *mut c_void) -> c_int {
    guard::int(|| {
        let object = fid.object::<FidEq>()?;
        if command != FI_GETWAIT {
            return Err(FI_ENOSYS);
        }
        if arg.is_null() {
            return Err(FI_EINVAL);
        }
        // SAFETY: the argument is where the descriptor goes.
        unsafe { *arg.cast::<c_int>() = object.eq.set.as_raw_fd() };
        Ok(0)
    })
}

/// Whether an event read with these flags stays in the queue.
fn keeps(flags: u64) -> Result<bool, i32> {
    match flags {
        0 => Ok(false),
        FI_PEEK => Ok(true),
        _ => Err(FI_EBADFLAGS),
    }
}

unsafe extern "C" fn read(fid: Handle<FidEq>, event: *mut u32, buf: *mut c_void, len: usize, flags: u64) -> isize {
    // SAFETY: the caller's buffers.
    guard::size(|| unsafe { fid.get()?.eq.read(event, buf, len, keeps(flags)?) })
}

unsafe extern "C" fn readerr(fid: Handle<FidEq>, out: *mut FiEqErrEntry, flags: u64) -> isize {
    guard::size(|| {
        let keep = keeps(flags)?;
        let mut items = fid.get()?.eq.items()?;
        if out.is_null() {
            return Err(FI_EINVAL);
        }
        let Some(Item::Error(entry)) = items.front() else { return Err(FI_EAGAIN) };
        // SAFETY: writable (checked for null).
        unsafe { *out = *entry };
        if !keep {
            items.pop_front();
        }
        Ok(size_of::<FiEqErrEntry>() as isize)
    })
}

unsafe extern "C" fn write(fid: Handle<FidEq>, event: u32, buf: *const c_void, len: usize, flags: u64) -> isize {
    guard::size(|| {
        let object = fid.get()?;
        if flags != 0 {
            return Err(FI_EBADFLAGS);
        }
        if len > MAX_EVENT || (buf.is_null() && len > 0) {
            return Err(FI_EINVAL);
        }
        let mut data = vec![0u8; len];
        if len > 0 {
            // SAFETY: `len` readable bytes (caller).
            unsafe { ptr::copy_nonoverlapping(buf.cast::<u8>(), data.as_mut_ptr(), len) };
        }
        object.eq.queue(Item::Event { event, data }).map(|()| len as isize)
    })
}

unsafe extern "C" fn sread(
    fid: Handle<FidEq>,
    event: *mut u32,
    buf: *mut c_void,
    len: usize,
    timeout: c_int,
    flags: u64,
) -> isize {
    guard::size(|| {
        let eq = &fid.get()?.eq;
        let (keep, patience) = (keeps(flags)?, Patience::new(timeout));
        loop {
            // SAFETY: the caller's buffers.
            match unsafe { eq.read(event, buf, len, keep) } {
                Err(FI_EAGAIN) => {}
                done => return done,
            }
            match patience.next() {
                Step::Over => return Err(FI_EAGAIN),
                Step::Spin => std::hint::spin_loop(),
                Step::Sleep(left) => match eq.arm() {
                    Ok(()) => eq.set.wait(left),
                    Err(FI_EAGAIN) => {}
                    Err(code) => return Err(code),
                },
            }
        }
    })
}

unsafe extern "C" fn strerror(
    _: Handle<FidEq>,
    prov_errno: c_int,
    _: *const c_void,
    buf: *mut c_char,
    len: usize,
) -> *const c_char {
    // SAFETY: the caller's buffer.
    guard::guard(ptr::null(), || unsafe { guard::error_text(prov_errno, buf, len) })
}
