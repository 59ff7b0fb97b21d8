//! The domain: keeps the memory regions that its endpoints all share. It is made by `domain_calls`.

use crate::abi::*;
use crate::ep_core::EpCore;
use crate::eq::Eq;
use crate::fabric::Fabric;
use crate::guard;
use crate::handle::{Begins, Handle};
use crate::kept::Kept;
use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::{Arc, MutexGuard, Weak};

/// What the objects of a domain share.
pub struct Domain {
    /// Its fabric.
    pub fabric: Arc<Fabric>,
    /// The application serialises all its calls on this domain's objects: locks of this face are
    /// left out.
    pub serialised: bool,
    /// Peers address regions by virtual address and the provider chooses the keys (the registration
    /// mode before 1.5).
    pub basic_mr: bool,
    members: Kept<Members>,
}

/// A registered region: an endpoint opened later must know it too.
#[derive(Clone)]
pub struct Region {
    /// Pieces: address and length.
    pub iov: Vec<(usize, usize)>,
    /// What peers may do.
    pub access: weir_engine::Access,
}

#[derive(Default)]
struct Members {
    eps: Vec<Weak<EpCore>>,
    regions: BTreeMap<u64, Region>,
    next_key: u64,
}

impl Domain {
    /// One without endpoints and regions.
    pub fn new(fabric: Arc<Fabric>, serialised: bool, basic_mr: bool) -> Domain {
        Domain { fabric, serialised, basic_mr, members: Kept::new(Members { next_key: 1, ..Members::default() }) }
    }

    fn members(&self) -> Result<MutexGuard<'_, Members>, i32> {
        self.members.lock()
    }

    /// Adds an endpoint; it learns the regions there are.
    ///
    /// # Errors
    /// What the engine says to a region.
    pub fn add_ep(&self, ep: &Arc<EpCore>) -> Result<(), i32> {
        let mut members = self.members()?;
        for (&key, region) in &members.regions {
            self.register_with(ep, key, region)?;
        }
        members.eps.retain(|e| e.strong_count() > 0);
        members.eps.push(Arc::downgrade(ep));
        Ok(())
    }

    fn register_with(&self, ep: &EpCore, key: u64, region: &Region) -> Result<(), i32> {
        let iov: Vec<weir_engine::Iov> =
            region.iov.iter().map(|&(base, len)| weir_engine::Iov { base: base as *mut u8, len }).collect();
        // SAFETY: the application keeps registered memory valid until it closes the region.
        unsafe { ep.engine.register(&iov, region.access, Some(key), self.basic_mr) }
            .map(|_| ())
            .map_err(|e| guard::code_of(&e))
    }

    /// Registers a region with every endpoint, under the application's key or one chosen here.
    /// Returns the key.
    ///
    /// # Errors
    /// `FI_ENOKEY` when the key is in use.
    pub fn register(&self, wanted: Option<u64>, region: Region) -> Result<u64, i32> {
        let mut members = self.members()?;
        let key = match wanted {
            Some(key) if members.regions.contains_key(&key) => return Err(FI_ENOKEY),
            Some(key) => key,
            None => loop {
                let key = members.next_key;
                members.next_key += 1;
                if !members.regions.contains_key(&key) {
                    break key;
                }
            },
        };
        let eps: Vec<Arc<EpCore>> = members.eps.iter().filter_map(Weak::upgrade).collect();
        for (i, ep) in eps.iter().enumerate() {
            if let Err(code) = self.register_with(ep, key, &region) {
                eps[..i].iter().for_each(|done| {
                    done.engine.unregister(key);
                });
                return Err(code);
            }
        }
        members.regions.insert(key, region);
        Ok(key)
    }

    /// Withdraws a region everywhere.
    pub fn unregister(&self, key: u64) {
        let Ok(mut members) = self.members() else { return };
        members.regions.remove(&key);
        for ep in members.eps.iter().filter_map(Weak::upgrade) {
            ep.engine.unregister(key);
        }
    }
}

/// The domain object.
#[repr(C)]
pub struct DomainObj {
    /// The handle.
    pub fid: FidDomain,
    /// What its members share.
    pub domain: Arc<Domain>,
    /// Kept so that the queue cannot be closed before the domain.
    pub eq: Kept<Option<Arc<Eq>>>,
}

// SAFETY: `repr(C)`, the handle first; `open` gives it its class.
unsafe impl Begins for FidDomain {
    type Object = DomainObj;
    const CLASS: usize = FI_CLASS_DOMAIN;
}

/// What tells a domain of this provider from another's.
pub static OPS: FiOps = FiOps {
    size: size_of::<FiOps>(),
    close,
    bind,
    control: no_control,
    ops_open: refused,
    tostr: refused,
    ops_set: refused,
};

unsafe extern "C" fn close(fid: Handle<Fid>) -> c_int {
    guard::int(|| {
        if Arc::strong_count(&fid.object::<FidDomain>()?.domain) > 1 {
            return Err(FI_EBUSY);
        }
        // SAFETY: made by `Box::into_raw` in `open`, closed once.
        drop(unsafe { Box::from_raw(fid.raw().cast::<DomainObj>()) });
        Ok(0)
    })
}

/// Regions are registered at once, so the flag that asks for events of that (`FI_REG_MR`) is
/// refused: its user would wait for them.
unsafe extern "C" fn bind(fid: Handle<Fid>, other: Handle<Fid>, flags: u64) -> c_int {
    guard::int(|| {
        if flags != 0 {
            return Err(FI_EBADFLAGS);
        }
        let (domain, eq) = (fid.object::<FidDomain>()?, other.object::<FidEq>()?);
        if !Arc::ptr_eq(&domain.domain.fabric, &eq.fabric) {
            return Err(FI_EINVAL);
        }
        *domain.eq.lock()? = Some(eq.eq.clone());
        Ok(0)
    })
}
