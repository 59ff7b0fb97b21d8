//! Address vectors: from libfabric's addresses (indices) to endpoint names and the engine's peers.

use crate::abi::*;
use crate::addr::{self, Name};
use crate::domain::Domain;
use crate::ep_core::EpCore;
use crate::eq::Eq;
use crate::guard;
use crate::handle::{Begins, Handle};
use crate::host;
use crate::kept::Kept;
use crate::lines;
use crate::table::NONE;
use std::collections::BTreeSet;
use std::ffi::{c_char, c_int, c_void};
use std::sync::{Arc, MutexGuard};
use weir_engine::NAME_BYTES;

/// An address vector and the endpoints that use it.
#[derive(Default)]
pub struct Av {
    inner: Kept<Inner>,
}

#[derive(Default)]
struct Inner {
    entries: Vec<Option<Name>>,
    /// Indices below the end that are unused: an address takes the lowest.
    free: BTreeSet<usize>,
    /// Peers that had several indices at a time, each with the endpoint whose peer it is: only of
    /// these others are looked for when one is removed.
    several: BTreeSet<(usize, u64)>,
    eps: Vec<Arc<EpCore>>,
}

impl Av {
    fn inner(&self) -> Result<MutexGuard<'_, Inner>, i32> {
        self.inner.lock()
    }

    /// Adds an endpoint; it learns all addresses there are.
    ///
    /// # Errors
    /// `FI_EINVAL` when a name cannot be used by this endpoint.
    pub fn attach(&self, ep: &Arc<EpCore>) -> Result<(), i32> {
        let inner = &mut *self.inner()?;
        for (index, name) in inner.entries.iter().enumerate() {
            if let Some(name) = name {
                inner.several.extend(teach(ep, index as u64, name)?);
            }
        }
        inner.eps.push(ep.clone());
        Ok(())
    }

    /// Removes an endpoint.
    pub fn detach(&self, ep: &Arc<EpCore>) {
        if let Ok(mut inner) = self.inner() {
            inner.eps.retain(|e| !Arc::ptr_eq(e, ep));
            // (Its place in memory may be another's.)
            inner.several.retain(|(of, _)| *of != place(ep));
        }
    }

    /// Adds an address to all endpoints, now and later.
    ///
    /// # Errors
    /// `FI_EINVAL` when it is no name or cannot be used.
    pub fn insert(&self, name: &Name) -> Result<u64, i32> {
        if !addr::is_name(name) {
            lines::complain(
                "fi_av_insert: the address is not an endpoint name of this version of weir (do all ranks use the same provider?)",
            );
            return Err(FI_EINVAL);
        }
        let inner = &mut *self.inner()?;
        let index = inner.free.first().copied().unwrap_or(inner.entries.len());
        for (i, ep) in inner.eps.iter().enumerate() {
            match teach(ep, index as u64, name) {
                Ok(another) => inner.several.extend(another),
                Err(code) => {
                    inner.eps[..i].iter().for_each(|done| forget(done, index as u64));
                    return Err(code);
                }
            }
        }
        if inner.free.pop_first().is_some() {
            inner.entries[index] = Some(*name);
        } else {
            inner.entries.push(Some(*name));
        }
        Ok(index as u64)
    }

    /// Takes addresses out, all or none.
    ///
    /// # Errors
    /// `FI_EINVAL` when one is not there, or named twice: so also when they are more than there are
    /// (of such a list nothing is read).
    ///
    /// # Safety
    /// `indices` is null or has `count` entries.
    unsafe fn remove(&self, indices: *const u64, count: usize) -> Result<(), i32> {
        let mut inner = self.inner()?;
        if count > inner.entries.len() || (indices.is_null() && count > 0) {
            return Err(FI_EINVAL);
        }
        // SAFETY: `count` entries (caller).
        let indices: Vec<u64> = (0..count).map(|i| unsafe { indices.add(i).read_unaligned() }).collect();
        let mut sorted = indices.clone();
        sorted.sort_unstable();
        let known = |index: &u64| inner.entries.get(usize::try_from(*index).ok()?)?.as_ref();
        if sorted.windows(2).any(|two| two[0] == two[1]) || !sorted.iter().all(|index| known(index).is_some()) {
            return Err(FI_EINVAL);
        }
        indices.iter().for_each(|index| inner.remove(*index));
        Ok(())
    }

    fn name(&self, index: u64) -> Option<Name> {
        self.inner().ok()?.entries.get(usize::try_from(index).ok()?).copied().flatten()
    }
}

impl Inner {
    /// Takes out an address that is there.
    fn remove(&mut self, index: u64) {
        let at = index as usize;
        self.entries[at] = None;
        self.free.insert(at);
        for ep in &self.eps {
            let peer = ep.forward.get(index);
            forget(ep, index);
            // The same name may have been inserted twice: then its other index names the peer from
            // now on.
            let several = (place(ep), peer);
            if self.several.contains(&several) {
                let mut entries = self.entries.iter().enumerate();
                if let Some((other, _)) = entries.find(|(i, e)| e.is_some() && ep.forward.get(*i as u64) == peer) {
                    ep.reverse.set(peer, other as u64);
                    continue;
                }
                self.several.remove(&several);
            }
            if let Ok(peer) = u32::try_from(peer) {
                ep.engine.remove_peer(peer);
            }
        }
    }
}

/// Makes an endpoint know a peer. Returns both if it knows that peer by another index too.
fn teach(ep: &Arc<EpCore>, index: u64, name: &Name) -> Result<Option<(usize, u64)>, i32> {
    let name = addr::complete(name, &ep.engine.name());
    let peer = ep.engine.insert_peer(&name).map_err(|e| {
        lines::complain(&format!("fi_av_insert: {e}"));
        guard::code_of(&e)
    })?;
    let peer = u64::from(peer);
    let before = ep.reverse.get(peer);
    if !ep.forward.set(index, peer) || !ep.reverse.set(peer, index) {
        return Err(FI_ENOMEM);
    }
    Ok((before != NONE).then_some((place(ep), peer)))
}

/// What tells endpoints from each other as long as they live.
fn place(ep: &Arc<EpCore>) -> usize {
    Arc::as_ptr(ep).addr()
}

fn forget(ep: &EpCore, index: u64) {
    let peer = ep.forward.get(index);
    ep.forward.set(index, NONE);
    if ep.reverse.get(peer) == index {
        ep.reverse.set(peer, NONE);
    }
}

/// The address vector object.
#[repr(C)]
pub struct AvObj {
    fid: FidAv,
    /// What endpoints share with it.
    pub av: Arc<Av>,
    eq: Kept<Option<Arc<Eq>>>,
    /// Insertions report to the event queue.
    asynchronous: bool,
    /// Only its endpoints can use it.
    pub domain: Arc<Domain>,
}

// SAFETY: `repr(C)`, the handle first; `open` gives it its class.
unsafe impl Begins for FidAv {
    type Object = AvObj;
    const CLASS: usize = FI_CLASS_AV;
}

/// `fi_av_open`.
///
/// # Safety
/// As libfabric's contract says.
pub unsafe extern "C" fn open(
    domain: Handle<FidDomain>,
    attr: *mut FiAvAttr,
    out: *mut *mut FidAv,
    context: *mut c_void,
) -> c_int {
    guard::int(|| {
        let domain = &domain.get()?.domain;
        // SAFETY: null or valid.
        let attr = unsafe { attr.as_mut() }.ok_or(FI_EINVAL)?;
        if out.is_null() || !(FI_AV_UNSPEC..=FI_AV_TABLE).contains(&attr.av_type) {
            return Err(FI_EINVAL);
        }
        // Neither vectors shared between processes nor receive contexts are offered.
        if !attr.name.is_null() || attr.rx_ctx_bits != 0 {
            return Err(FI_ENOSYS);
        }
        if attr.flags & !FI_EVENT != 0 {
            return Err(FI_EBADFLAGS);
        }
        let object = Box::new(AvObj {
            fid: FidAv { fid: Fid { fclass: FI_CLASS_AV, context, ops: &raw const OPS }, ops: &raw const AV_OPS },
            av: Arc::new(Av::default()),
            eq: Kept::default(),
            asynchronous: attr.flags & FI_EVENT != 0,
            domain: domain.clone(),
        });
        if attr.av_type == FI_AV_UNSPEC {
            attr.av_type = FI_AV_TABLE;
        }
        // SAFETY: writable (checked for null).
        unsafe { *out = Box::into_raw(object).cast() };
        Ok(0)
    })
}

static OPS: FiOps = FiOps {
    size: size_of::<FiOps>(),
    close,
    bind,
    control: no_control,
    ops_open: refused,
    tostr: refused,
    ops_set: refused,
};

static AV_OPS: FiOpsAv = FiOpsAv {
    size: size_of::<FiOpsAv>(),
    insert,
    insertsvc,
    insertsym: refused,
    remove,
    lookup,
    straddr,
    av_set: refused,
    insert_auth_key: refused,
    lookup_auth_key: refused,
    set_user_id: refused,
};

unsafe extern "C" fn close(fid: Handle<Fid>) -> c_int {
    guard::int(|| {
        if Arc::strong_count(&fid.object::<FidAv>()?.av) > 1 {
            return Err(FI_EBUSY);
        }
        // SAFETY: made by `Box::into_raw` in `open`, closed once.
        drop(unsafe { Box::from_raw(fid.raw().cast::<AvObj>()) });
        Ok(0)
    })
}

unsafe extern "C" fn bind(fid: Handle<Fid>, other: Handle<Fid>, flags: u64) -> c_int {
    guard::int(|| {
        if flags != 0 {
            return Err(FI_EBADFLAGS);
        }
        let (av, eq) = (fid.object::<FidAv>()?, other.object::<FidEq>()?);
        if !Arc::ptr_eq(&av.domain.fabric, &eq.fabric) {
            return Err(FI_EINVAL);
        }
        *av.eq.lock()? = Some(eq.eq.clone());
        Ok(0)
    })
}

unsafe extern "C" fn insert(
    fid: Handle<FidAv>,
    names: *const c_void,
    count: usize,
    out: *mut u64,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    guard::int(|| {
        let object = fid.get()?;
        if flags & !(FI_MORE | FI_SYNC_ERR) != 0 {
            return Err(FI_EBADFLAGS);
        }
        if (names.is_null() && count > 0)
            || (flags & FI_SYNC_ERR != 0 && context.is_null())
            || c_int::try_from(count).is_err()
        {
            return Err(FI_EINVAL);
        }
        object.may_report(flags)?;
        let mut inserted = 0;
        for i in 0..count {
            // SAFETY: `count` names of NAME_BYTES (caller).
            let name = unsafe { names.cast::<Name>().add(i).read_unaligned() };
            let result = object.av.insert(&name);
            if !out.is_null() {
                // SAFETY: `count` entries (caller).
                unsafe { *out.add(i) = result.unwrap_or(FI_ADDR_NOTAVAIL) };
            }
            if flags & FI_SYNC_ERR != 0 {
                // SAFETY: with this flag the context is an array of `count` int (libfabric's
                // contract).
                unsafe { *context.cast::<c_int>().add(i) = result.err().unwrap_or(0) };
            }
            match result {
                Ok(_) => inserted += 1,
                Err(err) => object.report_failure(fid, context, i, err),
            }
        }
        Ok(object.report_done(fid, context, inserted))
    })
}

impl AvObj {
    /// For tests: what another thread holds that binds a queue.
    #[cfg(test)]
    pub fn hold(&self) -> MutexGuard<'_, impl Sized> {
        self.eq.lock().expect("in order")
    }

    /// Where asynchronous insertions report.
    fn eq(&self) -> Option<Arc<Eq>> {
        self.eq.lock().ok()?.clone()
    }

    /// An address that could not be inserted, where insertion is asynchronous.
    fn report_failure(&self, fid: Handle<FidAv>, context: *mut c_void, index: usize, err: i32) {
        if let (true, Some(eq)) = (self.asynchronous, self.eq()) {
            eq.push_error(fid.raw().cast(), context, index as u64, err);
        }
    }

    /// Whether an insertion with these flags can tell what became of it.
    fn may_report(&self, flags: u64) -> Result<(), i32> {
        match (self.asynchronous, self.eq()) {
            (true, None) => Err(FI_ENOEQ),
            // The context is the event's there, and no array for results.
            (true, _) if flags & FI_SYNC_ERR != 0 => Err(FI_EBADFLAGS),
            _ => Ok(()),
        }
    }

    /// The end of an insertion: its count is the call's result or an event.
    fn report_done(&self, fid: Handle<FidAv>, context: *mut c_void, inserted: usize) -> i32 {
        match (self.asynchronous, self.eq()) {
            (true, Some(eq)) => {
                eq.push(FI_AV_COMPLETE, FiEqEntry { fid: fid.raw().cast(), context, data: inserted as u64 });
                0
            }
            _ => inserted as i32,
        }
    }
}

unsafe extern "C" fn insertsvc(
    fid: Handle<FidAv>,
    node: *const c_char,
    service: *const c_char,
    out: *mut u64,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    guard::int(|| {
        if node.is_null() || service.is_null() {
            return Err(FI_EINVAL);
        }
        // SAFETY: C strings (caller).
        let name = unsafe { addr::resolve(node, service, false, false) }.map_err(|why| {
            host::info(|| format!("fi_av_insertsvc: {why}"));
            FI_EINVAL
        })?;
        // SAFETY: one name of ours, the rest as the caller gave it.
        match unsafe { insert(fid, name.as_ptr().cast(), 1, out, flags, context) } {
            code if code < 0 => Err(-code),
            n => Ok(n),
        }
    })
}

/// The only flag there is names an authorisation key, which no vector here has.
unsafe extern "C" fn remove(fid: Handle<FidAv>, addrs: *mut u64, count: usize, flags: u64) -> c_int {
    guard::int(|| {
        let object = fid.get()?;
        if flags != 0 {
            return Err(FI_EBADFLAGS);
        }
        // SAFETY: `count` entries (caller).
        unsafe { object.av.remove(addrs, count) }.map(|()| 0)
    })
}

unsafe extern "C" fn lookup(fid: Handle<FidAv>, index: u64, to: *mut c_void, len: *mut usize) -> c_int {
    guard::int(|| {
        let name = fid.get()?.av.name(index).ok_or(FI_EINVAL)?;
        // SAFETY: a buffer of `*len` bytes (caller). A short buffer is no error here: the length
        // tells.
        match unsafe { addr::put(&name, to, len) } {
            Err(FI_EINVAL) => Err(FI_EINVAL),
            _ => Ok(0),
        }
    })
}

unsafe extern "C" fn straddr(
    _: Handle<FidAv>,
    name: *const c_void,
    buf: *mut c_char,
    len: *mut usize,
) -> *const c_char {
    guard::guard(std::ptr::null(), || {
        // SAFETY: null or valid (caller).
        let Some(len) = (unsafe { len.as_mut() }) else { return std::ptr::null() };
        if name.is_null() {
            return std::ptr::null();
        }
        // SAFETY: a name of this provider's format (caller).
        let text = addr::text(&unsafe { name.cast::<[u8; NAME_BYTES]>().read_unaligned() });
        let room = std::mem::replace(len, text.len() + 1);
        // SAFETY: `room` bytes (caller).
        unsafe { guard::put_text(&text, buf, room) }
    })
}
