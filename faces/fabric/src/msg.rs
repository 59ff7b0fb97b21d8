//! `fi_send`, `fi_recv` and their kin: untagged messages.

use crate::abi::*;
use crate::ep::EpObj;
use crate::guard::size;
use crate::handle::Handle;
use crate::transfer::*;
use libc::iovec;
use std::ffi::c_void;
use std::ptr;
use weir_engine::Class;

/// The endpoint's untagged calls.
pub static MSG_OPS: FiOpsMsg = FiOpsMsg {
    size: size_of::<FiOpsMsg>(),
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

const RECV_FLAGS: u64 = FI_COMPLETION | FI_MORE | FI_MULTI_RECV;

fn letter(to: u64, data: Option<u64>, context: *mut c_void) -> Letter {
    Letter { class: Class::Untagged, to, tag: 0, data, context }
}

fn wish(from: u64, report: bool, multi: bool, context: *mut c_void) -> Wish {
    Wish { class: Class::Untagged, from, tag: 0, ignore: 0, report, multi, context }
}

unsafe extern "C" fn recv_one(
    ep: Handle<FidEp>,
    buf: *mut c_void,
    len: usize,
    _desc: *mut c_void,
    from: u64,
    context: *mut c_void,
) -> isize {
    size(|| {
        let ep = EpObj::ready(&ep)?;
        // SAFETY: the application lends the memory until the completion.
        unsafe { recv(ep, &one(buf, len), &wish(from, ep.rx_report(), ep.rx_flags() & FI_MULTI_RECV != 0, context)) }
    })
}

unsafe extern "C" fn recvv(
    ep: Handle<FidEp>,
    iov: *const iovec,
    _desc: *mut *mut c_void,
    count: usize,
    from: u64,
    context: *mut c_void,
) -> isize {
    size(|| {
        let ep = EpObj::ready(&ep)?;
        // SAFETY: `count` entries.
        let pieces = unsafe { Pieces::new(iov, count) }?;
        // SAFETY: the application lends the memory until the completion.
        unsafe { recv(ep, pieces.as_slice(), &wish(from, ep.rx_report(), ep.rx_flags() & FI_MULTI_RECV != 0, context)) }
    })
}

unsafe extern "C" fn recvmsg(ep: Handle<FidEp>, msg: *const FiMsg, flags: u64) -> isize {
    size(|| {
        let ep = EpObj::ready(&ep)?;
        // SAFETY: null or a message.
        let msg = unsafe { msg.as_ref() }.ok_or(FI_EINVAL)?;
        if flags & !RECV_FLAGS != 0 {
            return Err(FI_EBADFLAGS);
        }
        // SAFETY: the message has `iov_count` entries.
        let pieces = unsafe { Pieces::new(msg.msg_iov, msg.iov_count) }?;
        // SAFETY: the application lends the memory until the completion.
        unsafe {
            recv(ep, pieces.as_slice(), &wish(msg.addr, ep.rx_reports(flags), flags & FI_MULTI_RECV != 0, msg.context))
        }
    })
}

unsafe extern "C" fn send_one(
    ep: Handle<FidEp>,
    buf: *const c_void,
    len: usize,
    _desc: *mut c_void,
    to: u64,
    context: *mut c_void,
) -> isize {
    size(|| {
        let ep = EpObj::ready(&ep)?;
        // SAFETY: the application lends the memory until the completion.
        unsafe { send(ep, &one(buf, len), &letter(to, None, context), by_default(ep)) }
    })
}

unsafe extern "C" fn sendv(
    ep: Handle<FidEp>,
    iov: *const iovec,
    _desc: *mut *mut c_void,
    count: usize,
    to: u64,
    context: *mut c_void,
) -> isize {
    size(|| {
        let ep = EpObj::ready(&ep)?;
        // SAFETY: `count` entries.
        let pieces = unsafe { Pieces::new(iov, count) }?;
        // SAFETY: the application lends the memory until the completion.
        unsafe { send(ep, pieces.as_slice(), &letter(to, None, context), by_default(ep)) }
    })
}

unsafe extern "C" fn sendmsg(ep: Handle<FidEp>, msg: *const FiMsg, flags: u64) -> isize {
    size(|| {
        let ep = EpObj::ready(&ep)?;
        // SAFETY: null or a message.
        let msg = unsafe { msg.as_ref() }.ok_or(FI_EINVAL)?;
        let how = by_flags(ep, flags, SEND_FLAGS)?;
        // SAFETY: the message has `iov_count` entries.
        let pieces = unsafe { Pieces::new(msg.msg_iov, msg.iov_count) }?;
        let data = (flags & FI_REMOTE_CQ_DATA != 0).then_some(msg.data);
        // SAFETY: the application lends the memory until the completion.
        unsafe { send(ep, pieces.as_slice(), &letter(msg.addr, data, msg.context), how) }
    })
}

unsafe extern "C" fn inject(ep: Handle<FidEp>, buf: *const c_void, len: usize, to: u64) -> isize {
    size(|| {
        let ep = EpObj::ready(&ep)?;
        // SAFETY: the memory is readable during the call.
        unsafe { send(ep, &one(buf, len), &letter(to, None, ptr::null_mut()), INJECTED) }
    })
}

unsafe extern "C" fn senddata(
    ep: Handle<FidEp>,
    buf: *const c_void,
    len: usize,
    _desc: *mut c_void,
    data: u64,
    to: u64,
    context: *mut c_void,
) -> isize {
    size(|| {
        let ep = EpObj::ready(&ep)?;
        // SAFETY: the application lends the memory until the completion.
        unsafe { send(ep, &one(buf, len), &letter(to, Some(data), context), by_default(ep)) }
    })
}

unsafe extern "C" fn injectdata(ep: Handle<FidEp>, buf: *const c_void, len: usize, data: u64, to: u64) -> isize {
    size(|| {
        let ep = EpObj::ready(&ep)?;
        // SAFETY: the memory is readable during the call.
        unsafe { send(ep, &one(buf, len), &letter(to, Some(data), ptr::null_mut()), INJECTED) }
    })
}
