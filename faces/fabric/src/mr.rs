//! Memory regions that peers may read and write.

use crate::abi::*;
use crate::domain::{Domain, DomainObj, Region};
use crate::guard;
use crate::info::MR_IOV_LIMIT;
use libc::iovec;
use std::ffi::{c_int, c_void};
use std::sync::Arc;

/// The region object.
#[repr(C)]
struct MrObj {
    fid: FidMr,
    domain: Arc<Domain>,
}

/// The domain's registration calls.
pub static MR_OPS: FiOpsMr = FiOpsMr { size: size_of::<FiOpsMr>(), reg, regv, regattr };

static OPS: FiOps =
    FiOps { size: size_of::<FiOps>(), close, bind, control, ops_open: refused, tostr: refused, ops_set: refused };

const ACCESS: u64 = FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;

/// What a registration asks for.
struct Request {
    iov: Vec<(usize, usize)>,
    access: u64,
    key: u64,
    context: *mut c_void,
}

unsafe fn register(fid: *mut Fid, request: Request, out: *mut *mut FidMr) -> Result<i32, i32> {
    // SAFETY: null or an object, which begins with a `Fid`.
    if unsafe { fid.as_ref() }.ok_or(FI_EINVAL)?.fclass != FI_CLASS_DOMAIN || out.is_null() {
        return Err(FI_EINVAL);
    }
    // SAFETY: the class says what it is.
    let domain = unsafe { DomainObj::of(fid.cast()) }?;
    if request.access & !ACCESS != 0 {
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

/// A null address with a length would be the whole address space, in which a peer's write could hit nothing and end the process: refused.
///
/// # Safety
/// `iov` is null or has `count` entries.
unsafe fn pieces(iov: *const iovec, count: usize) -> Result<Vec<(usize, usize)>, i32> {
    if count > MR_IOV_LIMIT || (iov.is_null() && count > 0) {
        return Err(FI_EINVAL);
    }
    // SAFETY: `count` entries (caller).
    (0..count)
        .map(|i| unsafe { *iov.add(i) })
        .map(
            |v| {
                if v.iov_base.is_null() && v.iov_len > 0 {
                    Err(FI_EINVAL)
                } else {
                    Ok((v.iov_base as usize, v.iov_len))
                }
            },
        )
        .collect()
}

unsafe extern "C" fn reg(
    fid: *mut Fid,
    buf: *const c_void,
    len: usize,
    access: u64,
    _offset: u64,
    key: u64,
    _flags: u64,
    out: *mut *mut FidMr,
    context: *mut c_void,
) -> c_int {
    guard::int(|| {
        let v = iovec { iov_base: buf.cast_mut(), iov_len: len };
        // SAFETY: one entry; the object is libfabric's caller's responsibility.
        unsafe { register(fid, Request { iov: pieces(&raw const v, 1)?, access, key, context }, out) }
    })
}

unsafe extern "C" fn regv(
    fid: *mut Fid,
    iov: *const iovec,
    count: usize,
    access: u64,
    _offset: u64,
    key: u64,
    _flags: u64,
    out: *mut *mut FidMr,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the application gives `count` entries.
    guard::int(|| unsafe { register(fid, Request { iov: pieces(iov, count)?, access, key, context }, out) })
}

unsafe extern "C" fn regattr(fid: *mut Fid, attr: *const FiMrAttr, _flags: u64, out: *mut *mut FidMr) -> c_int {
    guard::int(|| {
        // SAFETY: null or valid.
        let attr = unsafe { attr.as_ref() }.ok_or(FI_EINVAL)?;
        // SAFETY: the attributes hold `iov_count` entries.
        unsafe {
            register(
                fid,
                Request {
                    iov: pieces(attr.mr_iov, attr.iov_count)?,
                    access: attr.access,
                    key: attr.requested_key,
                    context: attr.context,
                },
                out,
            )
        }
    })
}

unsafe extern "C" fn close(fid: *mut Fid) -> c_int {
    guard::int(|| {
        if fid.is_null() {
            return Err(FI_EINVAL);
        }
        // SAFETY: made by `Box::into_raw` in `register`, closed once.
        let object = unsafe { Box::from_raw(fid.cast::<MrObj>()) };
        object.domain.unregister(object.fid.key);
        Ok(0)
    })
}

/// A region belongs to all endpoints of the domain; binding it to one of them changes nothing.
unsafe extern "C" fn bind(fid: *mut Fid, other: *mut Fid, _: u64) -> c_int {
    guard::int(|| {
        // SAFETY: null or an object, which begins with a `Fid`.
        match (fid.is_null(), unsafe { other.as_ref() }) {
            (false, Some(o)) if o.fclass == FI_CLASS_EP => Ok(0),
            (false, Some(_)) => Err(FI_ENOSYS),
            _ => Err(FI_EINVAL),
        }
    })
}

/// A region is usable from its registration on; enabling it changes nothing.
unsafe extern "C" fn control(_: *mut Fid, command: c_int, _: *mut c_void) -> c_int {
    if command == FI_ENABLE { 0 } else { -FI_ENOSYS }
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
