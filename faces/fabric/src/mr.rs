//! Memory regions that peers may read and write.

use crate::abi::*;
use crate::domain::{Domain, Region};
use crate::guard;
use crate::handle::{Begins, Handle};
use crate::info::MR_IOV_LIMIT;
use libc::iovec;
use std::ffi::{c_int, c_void};
use std::sync::Arc;

/// The region object.
#[repr(C)]
pub struct MrObj {
    fid: FidMr,
    domain: Arc<Domain>,
}

// SAFETY: `repr(C)`, the handle first; `register` gives it its class.
unsafe impl Begins for FidMr {
    type Object = MrObj;
    const CLASS: usize = FI_CLASS_MR;
}

/// The domain's registration calls.
pub static MR_OPS: FiOpsMr = FiOpsMr { size: size_of::<FiOpsMr>(), reg, regv, regattr };

static OPS: FiOps =
    FiOps { size: size_of::<FiOps>(), close, bind, control, ops_open: refused, tostr: refused, ops_set: refused };

/// What `fi_mr(3)` lists as access to a region. Only the two remote ones let a peer at it.
const ACCESS: u64 = FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE | FI_COLLECTIVE;
/// Capabilities that programs add to these (LCI adds `FI_RMA`). libfabric's own providers do not
/// look at them, and they grant nothing.
const CAPABILITIES: u64 = FI_MSG | FI_RMA | FI_TAGGED | FI_ATOMIC;

/// What a registration asks for.
struct Request {
    iov: Vec<(usize, usize)>,
    access: u64,
    key: u64,
    context: *mut c_void,
}

/// The domain a registration is for.
fn domain_of(fid: &Handle<Fid>) -> Result<&Arc<Domain>, i32> {
    Ok(&fid.object::<FidDomain>()?.domain)
}

/// Refuses what no registration may say here. There is no flag to offer: they ask for events of
/// remote access, for persistence, for keys that are used once, for memory of a device, or
/// (`FI_MR_DMABUF`) say that the memory list is none. An offset is reserved by the interface and
/// must be 0.
fn plain(flags: u64, offset: u64) -> Result<(), i32> {
    match (flags, offset) {
        (0, 0) => Ok(()),
        (0, _) => Err(FI_EINVAL),
        _ => Err(FI_EBADFLAGS),
    }
}

unsafe fn register(domain: &Arc<Domain>, request: Request, out: *mut *mut FidMr) -> Result<i32, i32> {
    if out.is_null() {
        return Err(FI_EINVAL);
    }
    if request.access & !(ACCESS | CAPABILITIES) != 0 {
        return Err(FI_EBADFLAGS);
    }
    let region = Region {
        iov: request.iov,
        access: weir_engine::Access {
            remote_read: request.access & FI_REMOTE_READ != 0,
            remote_write: request.access & FI_REMOTE_WRITE != 0,
        },
    };
    let key = domain.register((!domain.basic_mr).then_some(request.key), region)?;
    let object = Box::new(MrObj {
        fid: FidMr {
            fid: Fid { fclass: FI_CLASS_MR, context: request.context, ops: &raw const OPS },
            mem_desc: std::ptr::null_mut(),
            key,
        },
        domain: domain.clone(),
    });
    // SAFETY: writable (checked for null).
    unsafe { *out = Box::into_raw(object).cast() };
    Ok(0)
}

/// The pieces of a region. A null address with a length, or what reaches into the upper half of the
/// address space, which no program has, would be memory that is not there, at which a peer's write
/// would end the process: refused.
///
/// # Safety
/// `iov` is null or has `count` entries.
unsafe fn pieces(iov: *const iovec, count: usize) -> Result<Vec<(usize, usize)>, i32> {
    if count == 0 || count > MR_IOV_LIMIT || iov.is_null() {
        return Err(FI_EINVAL);
    }
    let piece = |v: iovec| {
        let base = v.iov_base as usize;
        let exists =
            v.iov_len == 0 || (base != 0 && base.checked_add(v.iov_len).is_some_and(|end| end <= isize::MAX as usize));
        if exists { Ok((base, v.iov_len)) } else { Err(FI_EINVAL) }
    };
    // SAFETY: `count` entries (caller).
    (0..count).map(|i| piece(unsafe { *iov.add(i) })).collect()
}

unsafe extern "C" fn reg(
    fid: Handle<Fid>,
    buf: *const c_void,
    len: usize,
    access: u64,
    offset: u64,
    key: u64,
    flags: u64,
    out: *mut *mut FidMr,
    context: *mut c_void,
) -> c_int {
    let v = iovec { iov_base: buf.cast_mut(), iov_len: len };
    // SAFETY: one entry; the rest as the caller gave it.
    unsafe { regv(fid, &raw const v, 1, access, offset, key, flags, out, context) }
}

unsafe extern "C" fn regv(
    fid: Handle<Fid>,
    iov: *const iovec,
    count: usize,
    access: u64,
    offset: u64,
    key: u64,
    flags: u64,
    out: *mut *mut FidMr,
    context: *mut c_void,
) -> c_int {
    guard::int(|| {
        plain(flags, offset)?;
        // SAFETY: the application gives `count` entries.
        unsafe { register(domain_of(&fid)?, Request { iov: pieces(iov, count)?, access, key, context }, out) }
    })
}

unsafe extern "C" fn regattr(fid: Handle<Fid>, attr: *const FiMrAttr, flags: u64, out: *mut *mut FidMr) -> c_int {
    guard::int(|| {
        let domain = domain_of(&fid)?;
        if attr.is_null() {
            return Err(FI_EINVAL);
        }
        // SAFETY: every version has the fields up to `context`, and the others are looked at as the
        // version allows; before the list is read, the flags have said that it is one, of
        // `iov_count` entries.
        unsafe {
            plain(flags, (*attr).offset)?;
            ordinary(attr, domain.fabric.api_version)?;
            let iov = pieces((*attr).mr_iov, (*attr).iov_count)?;
            let (access, key, context) = ((*attr).access, (*attr).requested_key, (*attr).context);
            register(domain, Request { iov, access, key, context }, out)
        }
    })
}

/// Refuses what attributes ask for in the fields that an application of this version has behind
/// `context`. Hints among them (`page_size`, `sub_mr_cnt`) may be ignored.
///
/// # Safety
/// The attributes are as long as they are in this version.
unsafe fn ordinary(attr: *const FiMrAttr, version: u32) -> Result<(), i32> {
    // A key would keep out peers that have another one. Nothing here does that; a domain has no
    // such keys either. SAFETY: there since 1.5 (caller).
    if version >= fi_version(1, 5) && unsafe { (*attr).auth_key_size } != 0 {
        return Err(FI_EINVAL);
    }
    // What lies in a device's memory must not be read and written as if it lay in the host's.
    // SAFETY: there since 1.9 (caller).
    if version >= fi_version(1, 9) && unsafe { (*attr).iface } != FI_HMEM_SYSTEM {
        return Err(FI_ENOSYS);
    }
    // The region would have to lie within its base, and to keep it open.
    // SAFETY: there since 2.0 (caller).
    if version >= fi_version(2, 0) && !unsafe { (*attr).base_mr }.is_null() {
        return Err(FI_ENOSYS);
    }
    Ok(())
}

unsafe extern "C" fn close(fid: Handle<Fid>) -> c_int {
    guard::int(|| {
        fid.object::<FidMr>()?;
        // SAFETY: made by `Box::into_raw` in `register`, closed once.
        let object = unsafe { Box::from_raw(fid.raw().cast::<MrObj>()) };
        object.domain.unregister(object.fid.key);
        Ok(0)
    })
}

/// A region belongs to all endpoints of the domain; binding it to one of them changes nothing.
unsafe extern "C" fn bind(fid: Handle<Fid>, other: Handle<Fid>, flags: u64) -> c_int {
    guard::int(|| {
        let region = fid.object::<FidMr>()?;
        match other.class()? {
            FI_CLASS_EP if flags != 0 => Err(FI_EBADFLAGS),
            FI_CLASS_EP => {
                let is_of_its_domain = Arc::ptr_eq(&region.domain, &other.object::<FidEp>()?.domain);
                if is_of_its_domain { Ok(0) } else { Err(FI_EINVAL) }
            }
            _ => Err(FI_ENOSYS),
        }
    })
}

/// A region is usable from its registration on; enabling it changes nothing.
unsafe extern "C" fn control(fid: Handle<Fid>, command: c_int, _: *mut c_void) -> c_int {
    guard::int(|| {
        fid.object::<FidMr>()?;
        if command == FI_ENABLE { Ok(0) } else { Err(FI_ENOSYS) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_address_space_is_no_region() {
        let everything = iovec { iov_base: std::ptr::null_mut(), iov_len: usize::MAX };
        // SAFETY: one entry.
        assert_eq!(unsafe { pieces(&raw const everything, 1) }, Err(FI_EINVAL));
        let nothing = iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        // SAFETY: one entry.
        assert_eq!(unsafe { pieces(&raw const nothing, 1) }, Ok(vec![(0, 0)]));
    }
}
