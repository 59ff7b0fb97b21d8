//! The fabric object. It is made by `provider`.

use crate::abi::*;
use crate::guard;
use crate::handle::{Begins, Handle};
use std::ffi::c_int;
use std::sync::Arc;

/// What all objects of a fabric share.
pub struct Fabric {
    /// The interface version the application speaks; it decides how long some structures of his
    /// are.
    pub api_version: u32,
}

/// The fabric object.
#[repr(C)]
pub struct FabricObj {
    /// The handle.
    pub fid: FidFabric,
    /// What its members share.
    pub fabric: Arc<Fabric>,
}

// SAFETY: `repr(C)`, the handle first; `open` gives it its class.
unsafe impl Begins for FidFabric {
    type Object = FabricObj;
    const CLASS: usize = FI_CLASS_FABRIC;
}

/// What tells a fabric of this provider from another's.
pub static OPS: FiOps = FiOps {
    size: size_of::<FiOps>(),
    close,
    bind: no_bind,
    control: no_control,
    ops_open: refused,
    tostr: refused,
    ops_set: refused,
};

unsafe extern "C" fn close(fid: Handle<Fid>) -> c_int {
    guard::int(|| {
        if Arc::strong_count(&fid.object::<FidFabric>()?.fabric) > 1 {
            return Err(FI_EBUSY);
        }
        // SAFETY: made by `Box::into_raw` in `open`, closed once.
        drop(unsafe { Box::from_raw(fid.raw().cast::<FabricObj>()) });
        Ok(0)
    })
}
