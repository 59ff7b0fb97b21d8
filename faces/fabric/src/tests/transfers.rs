//! What the message, tagged and remote memory calls refuse, with which code.

use super::refusals::{TOO_LONG, Table, UNKNOWN, zeroed};
use super::*;
use crate::info;
use crate::msg::MSG_OPS as MSG;
use crate::params;
use crate::rma::RMA_OPS as RMA;
use crate::tagged::TAGGED_OPS as TAGGED;
use libc::iovec;

/// One transfer call, given the endpoint, memory, and the other's address.
type Transfer = fn(Handle<FidEp>, *const c_void, usize, u64) -> isize;
/// One that takes a list.
type Listed = fn(Handle<FidEp>, *const iovec, usize, u64) -> isize;
/// One that takes a message and flags.
type Flagged = fn(Handle<FidEp>, *const iovec, usize, u64, u64) -> isize;

/// Calls a member of one of the endpoint's tables, which are the same for a null endpoint.
macro_rules! call {
    // SAFETY: tables are static; the callers' arguments are valid, or null where that must be
    // refused.
    ($table:path, $name:ident, $($arg:expr),*) => { unsafe { ($table.$name)($($arg),*) } };
}
const SENDS: [(&str, Transfer); 6] = [
    ("fi_send", |e, b, n, a| call!(MSG, send, e, b, n, null_mut(), a, null_mut())),
    ("fi_senddata", |e, b, n, a| call!(MSG, senddata, e, b, n, null_mut(), 1, a, null_mut())),
    ("fi_tsend", |e, b, n, a| call!(TAGGED, send, e, b, n, null_mut(), a, 1, null_mut())),
    ("fi_tsenddata", |e, b, n, a| call!(TAGGED, senddata, e, b, n, null_mut(), 1, a, 1, null_mut())),
    ("fi_write", |e, b, n, a| call!(RMA, write, e, b, n, null_mut(), a, 0, 1, null_mut())),
    ("fi_writedata", |e, b, n, a| call!(RMA, writedata, e, b, n, null_mut(), 1, a, 0, 1, null_mut())),
];
const INJECTS: [(&str, Transfer); 6] = [
    ("fi_inject", |e, b, n, a| call!(MSG, inject, e, b, n, a)),
    ("fi_injectdata", |e, b, n, a| call!(MSG, injectdata, e, b, n, 1, a)),
    ("fi_tinject", |e, b, n, a| call!(TAGGED, inject, e, b, n, a, 1)),
    ("fi_tinjectdata", |e, b, n, a| call!(TAGGED, injectdata, e, b, n, 1, a, 1)),
    ("fi_inject_write", |e, b, n, a| call!(RMA, inject, e, b, n, a, 0, 1)),
    ("fi_inject_writedata", |e, b, n, a| call!(RMA, injectdata, e, b, n, 1, a, 0, 1)),
];
const RECEIVES: [(&str, Transfer); 3] = [
    ("fi_recv", |e, b, n, a| call!(MSG, recv, e, b.cast_mut(), n, null_mut(), a, null_mut())),
    ("fi_trecv", |e, b, n, a| call!(TAGGED, recv, e, b.cast_mut(), n, null_mut(), a, 1, 0, null_mut())),
    ("fi_read", |e, b, n, a| call!(RMA, read, e, b.cast_mut(), n, null_mut(), a, 0, 1, null_mut())),
];
const LISTED: [(&str, Listed); 6] = [
    ("fi_sendv", |e, v, n, a| call!(MSG, sendv, e, v, null_mut(), n, a, null_mut())),
    ("fi_tsendv", |e, v, n, a| call!(TAGGED, sendv, e, v, null_mut(), n, a, 1, null_mut())),
    ("fi_writev", |e, v, n, a| call!(RMA, writev, e, v, null_mut(), n, a, 0, 1, null_mut())),
    ("fi_recvv", |e, v, n, a| call!(MSG, recvv, e, v, null_mut(), n, a, null_mut())),
    ("fi_trecvv", |e, v, n, a| call!(TAGGED, recvv, e, v, null_mut(), n, a, 1, 0, null_mut())),
    ("fi_readv", |e, v, n, a| call!(RMA, readv, e, v, null_mut(), n, a, 0, 1, null_mut())),
];
const FLAGGED: [(&str, Flagged); 6] = [
    ("fi_sendmsg", |e, v, n, a, f| call!(MSG, sendmsg, e, &untagged(v, n, a), f)),
    ("fi_recvmsg", |e, v, n, a, f| call!(MSG, recvmsg, e, &untagged(v, n, a), f)),
    ("fi_tsendmsg", |e, v, n, a, f| call!(TAGGED, sendmsg, e, &tagged(v, n, a), f)),
    ("fi_trecvmsg", |e, v, n, a, f| call!(TAGGED, recvmsg, e, &tagged(v, n, a), f)),
    ("fi_writemsg", |e, v, n, a, f| remote(v, n, a, |m| call!(RMA, writemsg, e, m, f))),
    ("fi_readmsg", |e, v, n, a, f| remote(v, n, a, |m| call!(RMA, readmsg, e, m, f))),
];

fn untagged(msg_iov: *const iovec, iov_count: usize, addr: u64) -> FiMsg {
    FiMsg { msg_iov, iov_count, addr, ..zeroed() }
}

fn tagged(msg_iov: *const iovec, iov_count: usize, addr: u64) -> FiMsgTagged {
    FiMsgTagged { msg_iov, iov_count, addr, tag: 1, ..zeroed() }
}

/// With a range as long as the list, as far as the list can be believed.
fn remote(msg_iov: *const iovec, iov_count: usize, addr: u64, call: impl FnOnce(*const FiMsgRma) -> isize) -> isize {
    let believed = if msg_iov.is_null() || iov_count > info::IOV_LIMIT { 0 } else { iov_count };
    // SAFETY: a list of the test's own, of that length.
    let len = (0..believed).map(|i| unsafe { (*msg_iov.add(i)).iov_len }).fold(0, usize::saturating_add);
    let range = FiRmaIov { addr: 0, len, key: 1 };
    let msg = FiMsgRma { msg_iov, iov_count, addr, rma_iov: &raw const range, rma_iov_count: 1, ..zeroed() };
    call(&raw const msg)
}

/// No address anybody has.
const NOBODY: u64 = 77;

#[test]
fn of_transfers() {
    let world = World::new();
    let mut t = Table::of(&world);
    let ep = world.ep;
    let room = [0u8; 64];
    let buf: *const c_void = room.as_ptr().cast();
    for (what, call) in SENDS.into_iter().chain(INJECTS).chain(RECEIVES) {
        t.row(&format!("{what} of no endpoint"), FI_EINVAL, || call(null_handle(), buf, 8, 0) as i64);
        t.row(&format!("{what}, address"), FI_EINVAL, || call(ep, buf, 8, NOBODY) as i64);
        t.row(&format!("{what}, null memory"), FI_EINVAL, || call(ep, null(), 8, 0) as i64);
        for len in [TOO_LONG, isize::MAX as usize, usize::MAX] {
            t.row(&format!("{what} of {len}"), FI_EMSGSIZE, || call(ep, buf, len, 0) as i64);
        }
    }
    for (what, call) in INJECTS {
        t.row(&format!("{what}, long"), FI_EMSGSIZE, || call(ep, buf, params::MAX_INJECT + 1, 0) as i64);
    }
    t.end();
}

#[test]
fn of_transfers_of_lists() {
    let world = World::new();
    let mut t = Table::of(&world);
    let ep = world.ep;
    let mut room = [0u8; 64];
    let base: *mut c_void = room.as_mut_ptr().cast();
    let list = |base, len| [iovec { iov_base: base, iov_len: len }; info::IOV_LIMIT + 1];
    let (good, null_memory, long) = (list(base, 1), list(null_mut(), 1), list(base, usize::MAX / 2));
    let flagged = FLAGGED.map(|(what, call)| (what, Some(call), None));
    let listed = LISTED.map(|(what, call)| (what, None, Some(call)));
    for (what, with_flags, without) in flagged.into_iter().chain(listed) {
        let call = |ep, list: *const iovec, count, address| match (with_flags, without) {
            (Some(call), _) => call(ep, list, count, address, 0) as i64,
            (_, Some(call)) => call(ep, list, count, address) as i64,
            _ => 0,
        };
        t.row(&format!("{what} of no endpoint"), FI_EINVAL, || call(null_handle(), good.as_ptr(), 1, 0));
        t.row(&format!("{what}, address"), FI_EINVAL, || call(ep, good.as_ptr(), 1, NOBODY));
        t.row(&format!("{what}, no list"), FI_EINVAL, || call(ep, null(), 1, 0));
        t.row(&format!("{what}, long list"), FI_EINVAL, || call(ep, good.as_ptr(), info::IOV_LIMIT + 1, 0));
        t.row(&format!("{what}, endless list"), FI_EINVAL, || call(ep, good.as_ptr(), usize::MAX, 0));
        t.row(&format!("{what}, null memory"), FI_EINVAL, || call(ep, null_memory.as_ptr(), 2, 0));
        // A range that is as long as the whole list cannot be said where the sum has no number.
        let sum = if what.ends_with("emsg") || what == "fi_readmsg" { FI_EINVAL } else { FI_EMSGSIZE };
        t.row(&format!("{what}, too long"), FI_EMSGSIZE, || call(ep, long.as_ptr(), 1, 0));
        t.row(&format!("{what}, sum too long"), sum, || call(ep, long.as_ptr(), 3, 0));
    }
    for (what, call) in FLAGGED {
        let call = |flags, len| call(ep, list(base, len).as_ptr(), 1, 0, flags) as i64;
        t.row(&format!("{what}, unknown flag"), FI_EBADFLAGS, || call(UNKNOWN, 1));
        // Known flags that mean nothing for this call.
        let other = if what.contains("recv") { FI_INJECT } else { FI_PEEK };
        t.row(&format!("{what}, another's flag"), FI_EBADFLAGS, || call(other, 1));
        if what.contains("send") || what.contains("write") {
            t.row(&format!("{what}, FI_INJECT"), FI_EMSGSIZE, || call(FI_INJECT, params::MAX_INJECT + 1));
        }
    }
    let multi = |flags| FLAGGED[3].1(ep, good.as_ptr(), 1, 0, flags) as i64;
    t.row("fi_trecvmsg, FI_MULTI_RECV", FI_EBADFLAGS, || multi(FI_MULTI_RECV));
    t.row("fi_trecvmsg, FI_DISCARD alone", FI_EBADFLAGS, || multi(FI_DISCARD));
    t.row("fi_trecvmsg, FI_CLAIM of none", FI_EINVAL, || multi(FI_CLAIM));
    t.end();
}

#[test]
fn of_messages_and_ranges() {
    let world = World::new();
    let mut t = Table::of(&world);
    let (ep, mut room) = (world.ep, [0u8; 64]);
    // SAFETY: nulls must be refused.
    unsafe {
        t.row("fi_sendmsg(null)", FI_EINVAL, || (MSG.sendmsg)(ep, null(), 0) as i64);
        t.row("fi_recvmsg(null)", FI_EINVAL, || (MSG.recvmsg)(ep, null(), 0) as i64);
        t.row("fi_tsendmsg(null)", FI_EINVAL, || (TAGGED.sendmsg)(ep, null(), 0) as i64);
        t.row("fi_trecvmsg(null)", FI_EINVAL, || (TAGGED.recvmsg)(ep, null(), 0) as i64);
        t.row("fi_writemsg(null)", FI_EINVAL, || (RMA.writemsg)(ep, null(), 0) as i64);
        t.row("fi_readmsg(null)", FI_EINVAL, || (RMA.readmsg)(ep, null(), 0) as i64);
    }
    let piece = iovec { iov_base: room.as_mut_ptr().cast(), iov_len: 8 };
    let range = |len| FiRmaIov { addr: 0, len, key: 1 };
    let (fitting, short) = ([range(8), range(0)], [range(7)]);
    for (what, rma_iov, rma_iov_count) in [
        ("of another length", short.as_ptr(), 1),
        ("null", null(), 1),
        ("of none", fitting.as_ptr(), 0),
        ("of two", fitting.as_ptr(), 2),
        ("without end", fitting.as_ptr(), usize::MAX),
    ] {
        let msg = FiMsgRma { msg_iov: &raw const piece, iov_count: 1, rma_iov, rma_iov_count, ..zeroed() };
        // SAFETY: a message of one piece and as many ranges as are looked at.
        unsafe {
            t.row(&format!("fi_writemsg, range {what}"), FI_EINVAL, || (RMA.writemsg)(ep, &raw const msg, 0) as i64);
            t.row(&format!("fi_readmsg, range {what}"), FI_EINVAL, || (RMA.readmsg)(ep, &raw const msg, 0) as i64);
        }
    }
    t.end();
}

#[test]
fn of_endpoints_not_enabled() {
    let world = World::new();
    let mut t = Table::of(&world);
    let room = [0u8; 64];
    let buf: *const c_void = room.as_ptr().cast();
    let list = iovec { iov_base: buf.cast_mut(), iov_len: 8 };
    // SAFETY: open objects, a complete info.
    let ep = opened(|out| unsafe {
        ((*(*world.base.domain.raw()).ops).endpoint)(world.base.domain, world.base.info.0, out, null_mut())
    });
    for (what, call) in SENDS.into_iter().chain(INJECTS).chain(RECEIVES) {
        t.row(what, FI_EOPBADSTATE, || call(ep, buf, 8, 0) as i64);
    }
    for (what, call) in LISTED {
        t.row(what, FI_EOPBADSTATE, || call(ep, &raw const list, 1, 0) as i64);
    }
    for (what, call) in FLAGGED {
        t.row(what, FI_EOPBADSTATE, || call(ep, &raw const list, 1, 0, 0) as i64);
    }
    let enable = |code: i32, t: &mut Table| {
        t.row("fi_enable", code, || {
            // SAFETY: an open endpoint.
            unsafe { ((*(*ep.raw()).fid.ops).control)(fid_of(ep), FI_ENABLE, null_mut()) }.into()
        });
    };
    enable(FI_ENOAV, &mut t);
    // SAFETY: open objects.
    assert_eq!(unsafe { ((*(*ep.raw()).fid.ops).bind)(fid_of(ep), fid_of(world.av), 0) }, 0);
    enable(FI_ENOCQ, &mut t);
    assert_eq!(close(ep), 0);
    t.end();
}
