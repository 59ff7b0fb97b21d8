//! `fi_read`, `fi_write` and their kin: remote memory.

use crate::abi::*;
use crate::ep::EpObj;
use crate::guard::{code_of, size};
use crate::handle::Handle;
use crate::info::RMA_IOV_LIMIT;
use crate::transfer::*;
use libc::iovec;
use std::ffi::c_void;
use std::ptr;
use weir_engine::{Iov, RmaOp, SendMode};

/// The endpoint's remote memory calls.
pub static RMA_OPS: FiOpsRma = FiOpsRma {
    size: size_of::<FiOpsRma>(),
    read: read_one,
    readv,
    readmsg,
    write: write_one,
    writev,
    writemsg,
    inject,
    writedata,
    injectdata,
};

const READ_FLAGS: u64 = FI_COMPLETION | FI_MORE | FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE;
const WRITE_FLAGS: u64 = SEND_FLAGS & !FI_MATCH_COMPLETE;

/// A place in a peer's memory.
struct Place {
    peer: u64,
    addr: u64,
    key: u64,
}

fn operation<'a>(
    ep: &EpObj,
    iov: &'a [Iov],
    at: &Place,
    data: Option<u64>,
    context: *mut c_void,
    how: How,
) -> Result<RmaOp<'a>, i32> {
    fits(iov, if how.copy { ep.inject_size() } else { ep.max_msg_size() })?;
    Ok(RmaOp {
        peer: ep.peer(at.peer)?,
        memory: iov,
        remote_addr: at.addr,
        key: at.key,
        data,
        mode: how.mode,
        copy: how.copy,
        report: how.report,
        context: context as usize,
        user: 0,
    })
}

unsafe fn write(
    ep: &EpObj,
    iov: &[Iov],
    at: &Place,
    data: Option<u64>,
    context: *mut c_void,
    how: How,
) -> Result<isize, i32> {
    let op = operation(ep, iov, at, data, context, how)?;
    // SAFETY: the application lends the memory until the completion (injected: during the call).
    unsafe { ep.core.engine.write(&op) }.map(|()| 0).map_err(|e| code_of(&e))
}

unsafe fn read(ep: &EpObj, iov: &[Iov], at: &Place, context: *mut c_void, report: bool) -> Result<isize, i32> {
    let op = operation(ep, iov, at, None, context, How { mode: SendMode::Transmit, copy: false, report })?;
    // SAFETY: the application lends the memory until the completion.
    unsafe { ep.core.engine.read(&op) }.map(|()| 0).map_err(|e| code_of(&e))
}

unsafe extern "C" fn read_one(
    ep: Handle<FidEp>,
    buf: *mut c_void,
    len: usize,
    _desc: *mut c_void,
    peer: u64,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    size(|| {
        let ep = EpObj::ready(&ep)?;
        // SAFETY: see `read`.
        unsafe { read(ep, &one(buf, len), &Place { peer, addr, key }, context, ep.tx_report()) }
    })
}

unsafe extern "C" fn readv(
    ep: Handle<FidEp>,
    iov: *const iovec,
    _desc: *mut *mut c_void,
    count: usize,
    peer: u64,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    size(|| {
        let ep = EpObj::ready(&ep)?;
        // SAFETY: `count` entries.
        let pieces = unsafe { Pieces::new(iov, count) }?;
        // SAFETY: see `read`.
        unsafe { read(ep, pieces.as_slice(), &Place { peer, addr, key }, context, ep.tx_report()) }
    })
}

/// The memory and the place of a message-style call; their lengths must agree.
unsafe fn unpack(msg: &FiMsgRma) -> Result<(Pieces, Place), i32> {
    // SAFETY: the message has `iov_count` entries.
    let pieces = unsafe { Pieces::new(msg.msg_iov, msg.iov_count) }?;
    if msg.rma_iov_count > RMA_IOV_LIMIT {
        return Err(FI_EINVAL);
    }
    // SAFETY: null or `rma_iov_count` entries, of which there is one.
    let remote = unsafe { msg.rma_iov.as_ref() }.filter(|_| msg.rma_iov_count == 1).ok_or(FI_EINVAL)?;
    if pieces.total() != Some(remote.len) {
        return Err(FI_EINVAL);
    }
    Ok((pieces, Place { peer: msg.addr, addr: remote.addr, key: remote.key }))
}

unsafe extern "C" fn readmsg(ep: Handle<FidEp>, msg: *const FiMsgRma, flags: u64) -> isize {
    size(|| {
        let ep = EpObj::ready(&ep)?;
        // SAFETY: null or a message.
        let msg = unsafe { msg.as_ref() }.ok_or(FI_EINVAL)?;
        if flags & !READ_FLAGS != 0 {
            return Err(FI_EBADFLAGS);
        }
        // SAFETY: a valid message.
        let (pieces, place) = unsafe { unpack(msg) }?;
        // SAFETY: see `read`.
        unsafe { read(ep, pieces.as_slice(), &place, msg.context, ep.tx_reports(flags)) }
    })
}

unsafe extern "C" fn write_one(
    ep: Handle<FidEp>,
    buf: *const c_void,
    len: usize,
    _desc: *mut c_void,
    peer: u64,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    size(|| {
        let ep = EpObj::ready(&ep)?;
        // SAFETY: see `write`.
        unsafe { write(ep, &one(buf, len), &Place { peer, addr, key }, None, context, by_default(ep)) }
    })
}

unsafe extern "C" fn writev(
    ep: Handle<FidEp>,
    iov: *const iovec,
    _desc: *mut *mut c_void,
    count: usize,
    peer: u64,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    size(|| {
        let ep = EpObj::ready(&ep)?;
        // SAFETY: `count` entries.
        let pieces = unsafe { Pieces::new(iov, count) }?;
        // SAFETY: see `write`.
        unsafe { write(ep, pieces.as_slice(), &Place { peer, addr, key }, None, context, by_default(ep)) }
    })
}

unsafe extern "C" fn writemsg(ep: Handle<FidEp>, msg: *const FiMsgRma, flags: u64) -> isize {
    size(|| {
        let ep = EpObj::ready(&ep)?;
        // SAFETY: null or a message.
        let msg = unsafe { msg.as_ref() }.ok_or(FI_EINVAL)?;
        let how = by_flags(ep, flags, WRITE_FLAGS)?;
        // SAFETY: a valid message.
        let (pieces, place) = unsafe { unpack(msg) }?;
        let data = (flags & FI_REMOTE_CQ_DATA != 0).then_some(msg.data);
        // SAFETY: see `write`.
        unsafe { write(ep, pieces.as_slice(), &place, data, msg.context, how) }
    })
}

unsafe extern "C" fn inject(
    ep: Handle<FidEp>,
    buf: *const c_void,
    len: usize,
    peer: u64,
    addr: u64,
    key: u64,
) -> isize {
    size(|| {
        let ep = EpObj::ready(&ep)?;
        // SAFETY: see `write`.
        unsafe { write(ep, &one(buf, len), &Place { peer, addr, key }, None, ptr::null_mut(), INJECTED) }
    })
}

unsafe extern "C" fn writedata(
    ep: Handle<FidEp>,
    buf: *const c_void,
    len: usize,
    _desc: *mut c_void,
    data: u64,
    peer: u64,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    size(|| {
        let ep = EpObj::ready(&ep)?;
        // SAFETY: see `write`.
        unsafe { write(ep, &one(buf, len), &Place { peer, addr, key }, Some(data), context, by_default(ep)) }
    })
}

unsafe extern "C" fn injectdata(
    ep: Handle<FidEp>,
    buf: *const c_void,
    len: usize,
    data: u64,
    peer: u64,
    addr: u64,
    key: u64,
) -> isize {
    size(|| {
        let ep = EpObj::ready(&ep)?;
        // SAFETY: see `write`.
        unsafe { write(ep, &one(buf, len), &Place { peer, addr, key }, Some(data), ptr::null_mut(), INJECTED) }
    })
}
