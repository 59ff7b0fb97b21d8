//! What the message, tagged and remote memory calls share: memory lists, flags, and the way into
//! the engine.

use crate::abi::*;
use crate::ep::{EpObj, mode_of};
use crate::guard::code_of;
use crate::info::IOV_LIMIT;
use libc::iovec;
use std::ffi::c_void;
use weir_engine::{Class, Iov, RecvOp, SendMode, SendOp};

/// Flags a send call may carry.
pub const SEND_FLAGS: u64 = FI_REMOTE_CQ_DATA
    | FI_COMPLETION
    | FI_MORE
    | FI_INJECT
    | FI_INJECT_COMPLETE
    | FI_TRANSMIT_COMPLETE
    | FI_DELIVERY_COMPLETE
    | FI_MATCH_COMPLETE;

/// One piece of memory.
#[inline]
pub fn one(buf: *const c_void, len: usize) -> [Iov; 1] {
    [Iov { base: buf.cast_mut().cast(), len }]
}

/// A caller's memory list, copied to the stack.
pub struct Pieces {
    list: [Iov; IOV_LIMIT],
    count: usize,
}

impl Pieces {
    /// # Errors
    /// `FI_EINVAL` when the list is too long or null.
    ///
    /// # Safety
    /// `iov` is null or has `count` entries.
    pub unsafe fn new(iov: *const iovec, count: usize) -> Result<Pieces, i32> {
        if count > IOV_LIMIT || (iov.is_null() && count > 0) {
            return Err(FI_EINVAL);
        }
        let mut list = [Iov { base: std::ptr::null_mut(), len: 0 }; IOV_LIMIT];
        for (i, piece) in list.iter_mut().enumerate().take(count) {
            // SAFETY: below `count` (caller).
            let v = unsafe { *iov.add(i) };
            *piece = Iov { base: v.iov_base.cast(), len: v.iov_len };
        }
        Ok(Pieces { list, count })
    }

    /// The list.
    pub fn as_slice(&self) -> &[Iov] {
        &self.list[..self.count]
    }

    /// Sum of the lengths, bytes.
    pub fn total(&self) -> Option<usize> {
        self.as_slice().iter().try_fold(0usize, |sum, p| sum.checked_add(p.len))
    }
}

/// How a send completes.
#[derive(Clone, Copy)]
pub struct How {
    pub mode: SendMode,
    /// The memory is the application's again on return, whenever the send completes.
    pub copy: bool,
    pub report: bool,
}

/// For calls without flags.
#[inline]
pub fn by_default(ep: &EpObj) -> How {
    let flags = ep.tx_flags();
    How { mode: mode_of(flags), copy: flags & FI_INJECT != 0, report: ep.tx_reports(flags) }
}

/// For the inject calls.
pub const INJECTED: How = How { mode: SendMode::Inject, copy: true, report: false };

/// For calls with flags.
///
/// # Errors
/// `FI_EBADFLAGS` for flags that mean nothing here.
#[inline]
pub fn by_flags(ep: &EpObj, flags: u64, allowed: u64) -> Result<How, i32> {
    if flags & !allowed != 0 {
        return Err(FI_EBADFLAGS);
    }
    Ok(How { mode: mode_of(flags), copy: flags & FI_INJECT != 0, report: ep.tx_reports(flags) })
}

/// What a send says apart from its memory.
pub struct Letter {
    pub class: Class,
    pub to: u64,
    pub tag: u64,
    pub data: Option<u64>,
    pub context: *mut c_void,
}

/// Starts a send.
///
/// # Errors
/// libfabric's codes.
///
/// # Safety
/// The memory stays valid and unchanged until the completion (injected: until return).
#[inline]
pub unsafe fn send(ep: &EpObj, iov: &[Iov], letter: &Letter, how: How) -> Result<isize, i32> {
    if how.copy {
        fits(iov, ep.inject_size())?;
    } else if ep.max_msg_size() < crate::info::MAX_MSG {
        fits(iov, ep.max_msg_size())?;
    }
    let op = SendOp {
        peer: ep.peer(letter.to)?,
        class: letter.class,
        tag: letter.tag,
        data: letter.data,
        memory: iov,
        mode: how.mode,
        copy: how.copy,
        report: how.report,
        context: letter.context as usize,
        user: 0,
    };
    // SAFETY: passed on from the caller.
    match unsafe { ep.core.engine.send(&op) } {
        Ok(()) => Ok(0),
        Err(e) => Err(code_of(&e)),
    }
}

/// Refuses memory beyond `limit` bytes.
///
/// # Errors
/// `FI_EMSGSIZE`.
#[inline]
pub fn fits(iov: &[Iov], limit: usize) -> Result<(), i32> {
    let sum = iov.iter().fold(0usize, |sum, p| sum.saturating_add(p.len));
    if sum > limit { Err(FI_EMSGSIZE) } else { Ok(()) }
}

/// What a receive wants apart from its memory.
pub struct Wish {
    pub class: Class,
    pub from: u64,
    pub tag: u64,
    pub ignore: u64,
    pub report: bool,
    pub multi: bool,
    pub context: *mut c_void,
}

/// The engine's form of a receive.
///
/// # Errors
/// `FI_EINVAL` for an unknown source.
#[inline]
pub fn recv_op<'a>(ep: &EpObj, iov: &'a [Iov], wish: &Wish) -> Result<RecvOp<'a>, i32> {
    Ok(RecvOp {
        source: ep.source(wish.from)?,
        class: wish.class,
        tag: wish.tag,
        ignore: wish.ignore,
        memory: iov,
        multi_min: if wish.multi { Some(ep.min_multi_recv()) } else { None },
        report: wish.report,
        context: wish.context as usize,
        user: 0,
    })
}

/// Posts a receive.
///
/// # Errors
/// libfabric's codes.
///
/// # Safety
/// The memory stays valid and unused until the completion.
#[inline]
pub unsafe fn recv(ep: &EpObj, iov: &[Iov], wish: &Wish) -> Result<isize, i32> {
    let op = recv_op(ep, iov, wish)?;
    // SAFETY: passed on from the caller.
    match unsafe { ep.core.engine.recv(&op) } {
        Ok(()) => Ok(0),
        Err(e) => Err(code_of(&e)),
    }
}
