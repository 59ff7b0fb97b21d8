//! `fi_tsend`, `fi_trecv` and their kin: tagged messages, with peek, claim and discard.

use crate::abi::*;
use crate::ep::EpObj;
use crate::guard::{code_of, size};
use crate::handle::Handle;
use crate::transfer::*;
use libc::iovec;
use std::ffi::c_void;
use std::ptr;
use weir_engine::{Class, Completion, PeekOp};

/// The endpoint's tagged calls.
pub static TAGGED_OPS: FiOpsTagged = FiOpsTagged {
    size: size_of::<FiOpsTagged>(),
    recv: recv_one,
    recvv,
    recvmsg,
    send: send_one,
    sendv,
    sendmsg,
    inject,
    senddata,
    injectdata,
};

const RECV_FLAGS: u64 = FI_COMPLETION | FI_MORE | FI_PEEK | FI_CLAIM | FI_DISCARD;

#[inline]
fn letter(to: u64, tag: u64, data: Option<u64>, context: *mut c_void) -> Letter {
    Letter { class: Class::Tagged, to, tag, data, context }
}

#[inline]
fn wish(from: u64, tag: u64, ignore: u64, report: bool, context: *mut c_void) -> Wish {
    Wish { class: Class::Tagged, from, tag, ignore, report, multi: false, context }
}

unsafe extern "C" fn recv_one(
    ep: Handle<FidEp>,
    buf: *mut c_void,
    len: usize,
    _desc: *mut c_void,
    from: u64,
    tag: u64,
    ignore: u64,
    context: *mut c_void,
) -> isize {
    size(|| {
        let ep = EpObj::ready(&ep)?;
        // SAFETY: the application lends the memory until the completion.
        unsafe { recv(ep, &one(buf, len), &wish(from, tag, ignore, ep.rx_report(), context)) }
    })
}

unsafe extern "C" fn recvv(
    ep: Handle<FidEp>,
    iov: *const iovec,
    _desc: *mut *mut c_void,
    count: usize,
    from: u64,
    tag: u64,
    ignore: u64,
    context: *mut c_void,
) -> isize {
    size(|| {
        let ep = EpObj::ready(&ep)?;
        // SAFETY: `count` entries.
        let pieces = unsafe { Pieces::new(iov, count) }?;
        // SAFETY: the application lends the memory until the completion.
        unsafe { recv(ep, pieces.as_slice(), &wish(from, tag, ignore, ep.rx_report(), context)) }
    })
}

unsafe extern "C" fn recvmsg(ep: Handle<FidEp>, msg: *const FiMsgTagged, flags: u64) -> isize {
    size(|| {
        let ep = EpObj::ready(&ep)?;
        // SAFETY: null or a message.
        let msg = unsafe { msg.as_ref() }.ok_or(FI_EINVAL)?;
        if flags & !RECV_FLAGS != 0 || (flags & FI_DISCARD != 0 && flags & (FI_PEEK | FI_CLAIM) == 0) {
            return Err(FI_EBADFLAGS);
        }
        if flags & FI_PEEK != 0 {
            return peek(ep, msg, flags);
        }
        // SAFETY: the message has `iov_count` entries.
        let pieces = unsafe { Pieces::new(msg.msg_iov, msg.iov_count) }?;
        let wish = wish(msg.addr, msg.tag, msg.ignore, ep.rx_reports(flags), msg.context);
        if flags & FI_CLAIM == 0 {
            // SAFETY: the application lends the memory until the completion.
            return unsafe { recv(ep, pieces.as_slice(), &wish) };
        }
        let op = recv_op(ep, pieces.as_slice(), &wish)?;
        let done = if flags & FI_DISCARD != 0 {
            ep.core.engine.discard_claimed(&op)
        } else {
            // SAFETY: the application lends the memory until the completion.
            unsafe { ep.core.engine.recv_claimed(&op) }
        };
        done.map(|()| 0).map_err(|e| code_of(&e))
    })
}

/// Answers through the completion queue, both when a message is there and when none is.
#[cold]
fn peek(ep: &EpObj, msg: &FiMsgTagged, flags: u64) -> Result<isize, i32> {
    let cq = ep.rx_cq.as_ref().ok_or(FI_ENOCQ)?;
    let op = PeekOp {
        source: ep.source(msg.addr)?,
        class: Class::Tagged,
        tag: msg.tag,
        ignore: msg.ignore,
        claim: flags & FI_CLAIM != 0,
        discard: flags & FI_DISCARD != 0,
        context: msg.context as usize,
    };
    let found = ep.core.engine.peek(&op).map_err(|e| code_of(&e))?;
    let completion = found.unwrap_or_else(|| Completion::nothing_found(&op));
    cq.push(completion, ep.core.address_of(completion.source));
    Ok(0)
}

unsafe extern "C" fn send_one(
    ep: Handle<FidEp>,
    buf: *const c_void,
    len: usize,
    _desc: *mut c_void,
    to: u64,
    tag: u64,
    context: *mut c_void,
) -> isize {
    size(|| {
        let ep = EpObj::ready(&ep)?;
        // SAFETY: the application lends the memory until the completion.
        unsafe { send(ep, &one(buf, len), &letter(to, tag, None, context), by_default(ep)) }
    })
}

unsafe extern "C" fn sendv(
    ep: Handle<FidEp>,
    iov: *const iovec,
    _desc: *mut *mut c_void,
    count: usize,
    to: u64,
    tag: u64,
    context: *mut c_void,
) -> isize {
    size(|| {
        let ep = EpObj::ready(&ep)?;
        // SAFETY: `count` entries.
        let pieces = unsafe { Pieces::new(iov, count) }?;
        // SAFETY: the application lends the memory until the completion.
        unsafe { send(ep, pieces.as_slice(), &letter(to, tag, None, context), by_default(ep)) }
    })
}

unsafe extern "C" fn sendmsg(ep: Handle<FidEp>, msg: *const FiMsgTagged, flags: u64) -> isize {
    size(|| {
        let ep = EpObj::ready(&ep)?;
        // SAFETY: null or a message.
        let msg = unsafe { msg.as_ref() }.ok_or(FI_EINVAL)?;
        let how = by_flags(ep, flags, SEND_FLAGS)?;
        // SAFETY: the message has `iov_count` entries.
        let pieces = unsafe { Pieces::new(msg.msg_iov, msg.iov_count) }?;
        let data = (flags & FI_REMOTE_CQ_DATA != 0).then_some(msg.data);
        // SAFETY: the application lends the memory until the completion.
        unsafe { send(ep, pieces.as_slice(), &letter(msg.addr, msg.tag, data, msg.context), how) }
    })
}

unsafe extern "C" fn inject(ep: Handle<FidEp>, buf: *const c_void, len: usize, to: u64, tag: u64) -> isize {
    size(|| {
        let ep = EpObj::ready(&ep)?;
        // SAFETY: the memory is readable during the call.
        unsafe { send(ep, &one(buf, len), &letter(to, tag, None, ptr::null_mut()), INJECTED) }
    })
}

unsafe extern "C" fn senddata(
    ep: Handle<FidEp>,
    buf: *const c_void,
    len: usize,
    _desc: *mut c_void,
    data: u64,
    to: u64,
    tag: u64,
    context: *mut c_void,
) -> isize {
    size(|| {
        let ep = EpObj::ready(&ep)?;
        // SAFETY: the application lends the memory until the completion.
        unsafe { send(ep, &one(buf, len), &letter(to, tag, Some(data), context), by_default(ep)) }
    })
}

unsafe extern "C" fn injectdata(
    ep: Handle<FidEp>,
    buf: *const c_void,
    len: usize,
    data: u64,
    to: u64,
    tag: u64,
) -> isize {
    size(|| {
        let ep = EpObj::ready(&ep)?;
        // SAFETY: the memory is readable during the call.
        unsafe { send(ep, &one(buf, len), &letter(to, tag, Some(data), ptr::null_mut()), INJECTED) }
    })
}
