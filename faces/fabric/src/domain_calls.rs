//! The opening of a domain, and of what it opens: queues, counters, address vectors and endpoints.

use crate::abi::*;
use crate::domain::{Domain, DomainObj, OPS};
use crate::handle::Handle;
use crate::kept::Kept;
use crate::{atomic, av, cntr, cq, ep_calls, guard, info, mr};
use std::ffi::{c_int, c_void};
use std::sync::Arc;

/// `fi_domain`.
///
/// # Safety
/// As libfabric's contract says.
pub unsafe extern "C" fn open(
    fabric: Handle<FidFabric>,
    info: *mut FiInfo,
    out: *mut *mut FidDomain,
    context: *mut c_void,
) -> c_int {
    guard::int(|| {
        let fabric = &fabric.get()?.fabric;
        // SAFETY: null or valid.
        let info = unsafe { info.as_ref() }.ok_or(FI_EINVAL)?;
        // SAFETY: null or valid.
        let attr = unsafe { info.domain_attr.as_ref() }.ok_or(FI_EINVAL)?;
        if out.is_null() {
            return Err(FI_EINVAL);
        }
        info::check_domain_of(fabric.api_version, attr)?;
        // FI_THREAD_COMPLETION (4) serialises per completion structure, which is what our locks
        // guard.
        let serialised = attr.threading == FI_THREAD_DOMAIN || attr.threading == 4;
        let domain = Domain::new(fabric.clone(), serialised, attr.mr_mode & FI_MR_BASIC != 0);
        let object = Box::new(DomainObj {
            fid: FidDomain {
                fid: Fid { fclass: FI_CLASS_DOMAIN, context, ops: &raw const OPS },
                ops: &raw const DOMAIN_OPS,
                mr: &raw const mr::MR_OPS,
            },
            domain: Arc::new(domain),
            eq: Kept::default(),
        });
        // SAFETY: writable (checked for null).
        unsafe { *out = Box::into_raw(object).cast() };
        Ok(0)
    })
}

static DOMAIN_OPS: FiOpsDomain = FiOpsDomain {
    size: size_of::<FiOpsDomain>(),
    av_open: av::open,
    cq_open: cq::open,
    endpoint: ep_calls::open,
    scalable_ep: refused,
    cntr_open: cntr::open,
    poll_open: refused,
    stx_ctx: refused,
    srx_ctx: refused,
    query_atomic: atomic::query,
    query_collective: refused,
    endpoint2: refused,
};
