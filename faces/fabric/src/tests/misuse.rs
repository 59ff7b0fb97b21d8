//! Calls of null, of objects of another kind, and with counts that no list has.

use super::refusals::{Table, UNKNOWN, zeroed};
use super::*;
use crate::msg::MSG_OPS as MSG;
use libc::iovec;

#[test]
fn of_calls_of_null() {
    let world = World::new();
    let mut t = Table::of(&world);
    let mut room = [0u64; 16];
    let (buf, mut len): (*mut c_void, usize) = (room.as_mut_ptr().cast(), 64);
    let (len, words): (*mut usize, *mut u64) = (&raw mut len, buf.cast());
    let name = world.name();
    // SAFETY: no object, which must be refused; memory is there.
    unsafe {
        let av = &*(*world.av.raw()).ops;
        let (host, port) = (c"127.0.0.1".as_ptr(), c"4000".as_ptr());
        let names: *const c_void = name.as_ptr().cast();
        t.row("fi_av_insert", FI_EINVAL, || (av.insert)(null_handle(), names, 1, words, 0, null_mut()).into());
        t.row("fi_av_insertsvc", FI_EINVAL, || (av.insertsvc)(null_handle(), host, port, words, 0, null_mut()).into());
        t.row("fi_av_remove", FI_EINVAL, || (av.remove)(null_handle(), words, 1, 0).into());
        t.row("fi_av_lookup", FI_EINVAL, || (av.lookup)(null_handle(), 0, buf, len).into());
        let cq = &*(*world.cq.raw()).ops;
        t.row("fi_cq_readfrom", FI_EINVAL, || (cq.readfrom)(null_handle(), buf, 1, words) as i64);
        t.row("fi_cq_readerr", FI_EINVAL, || (cq.readerr)(null_handle(), buf.cast(), 0) as i64);
        t.row("fi_cq_sread", FI_EINVAL, || (cq.sread)(null_handle(), buf, 1, null(), -1) as i64);
        t.row("fi_cq_sreadfrom", FI_EINVAL, || (cq.sreadfrom)(null_handle(), buf, 1, words, null(), -1) as i64);
        let eq = &*(*world.eq.raw()).ops;
        t.row("fi_eq_read", FI_EINVAL, || (eq.read)(null_handle(), buf.cast(), buf, 64, 0) as i64);
        t.row("fi_eq_sread", FI_EINVAL, || (eq.sread)(null_handle(), buf.cast(), buf, 64, -1, 0) as i64);
        t.row("fi_eq_readerr", FI_EINVAL, || (eq.readerr)(null_handle(), buf.cast(), 0) as i64);
        let cntr = &*(*world.cntr.raw()).ops;
        t.row("fi_cntr_read", 0, || (cntr.read)(null_handle()) as i64);
        t.row("fi_cntr_readerr", 0, || (cntr.readerr)(null_handle()) as i64);
        let (ep, name, long) = (world.ep_ops(), FI_OPT_MIN_MULTI_RECV, size_of::<usize>());
        t.row("fi_getopt", FI_EINVAL, || (ep.getopt)(null_handle(), FI_OPT_ENDPOINT, name, buf, len).into());
        t.row("fi_setopt", FI_EINVAL, || (ep.setopt)(null_handle(), FI_OPT_ENDPOINT, name, buf, long).into());
        let getname = (*(*world.ep.raw()).cm).getname;
        t.row("fi_getname", FI_EINVAL, || getname(null_handle(), buf, len).into());
    }
    t.end();
}

/// Some object of each kind, with its table.
fn all(world: &World, region: Handle<FidMr>) -> [(&'static str, Handle<Fid>); 8] {
    [
        ("fabric", fid_of(world.base.fabric)),
        ("domain", fid_of(world.base.domain)),
        ("endpoint", fid_of(world.ep)),
        ("vector", fid_of(world.av)),
        ("queue", fid_of(world.cq)),
        ("counter", fid_of(world.cntr)),
        ("event queue", fid_of(world.eq)),
        ("region", fid_of(region)),
    ]
}

#[test]
fn of_calls_of_another_kind_of_object() {
    let world = World::new();
    let (domain, memory) = (world.base.domain, [0u8; 64]);
    // SAFETY: an open domain, and memory that is there until the region is closed.
    let region: Handle<FidMr> = opened(|out| unsafe {
        let reg = (*(*domain.raw()).mr).reg;
        reg(fid_of(domain), memory.as_ptr().cast(), 64, FI_REMOTE_READ, 0, 1, 0, out, null_mut())
    });
    let mut t = Table::of(&world);
    let mut word = 0u64;
    let word: *mut c_void = (&raw mut word).cast();
    let objects = all(&world, region);
    for (of, own) in objects {
        // SAFETY: a static table.
        let ops = unsafe { &*(*own.raw()).ops };
        // SAFETY: (of all) null, or an open object.
        let (close, bind, control) = unsafe {
            (|o| (ops.close)(o).into(), |a, b| (ops.bind)(a, b, 0).into(), |o, c| (ops.control)(o, c, word).into())
        };
        let others = objects.into_iter().filter(|(kind, _)| *kind != of).chain([("null", null_handle())]);
        for (kind, other) in others {
            t.row(&format!("fi_close as of a {of}, of a {kind}"), FI_EINVAL, || close(other));
            // Some kinds know neither call at all.
            if of != "fabric" && of != "domain" && of != "vector" {
                t.row(&format!("fi_control as of a {of}, of a {kind}"), FI_EINVAL, || control(other, FI_ENABLE));
            }
            if ["domain", "endpoint", "vector", "region"].contains(&of) {
                t.row(&format!("fi_bind as of a {of}, of a {kind}"), FI_EINVAL, || bind(other, fid_of(world.eq)));
            }
        }
    }
    t.end();
    assert_eq!(super::close(region), 0);
}

#[test]
fn of_counts_that_no_list_has() {
    let world = World::new();
    let mut t = Table::of(&world);
    let mut addresses = [0u64; 1];
    let (list, mut fid): (*mut u64, Handle<Fid>) = (addresses.as_mut_ptr(), fid_of(world.cq));
    let data = [0u8; 8];
    let piece = iovec { iov_base: data.as_ptr().cast_mut().cast(), iov_len: 8 };
    // SAFETY: lists that are as long as what must be read of them.
    unsafe {
        let av = &*(*world.av.raw()).ops;
        let trywait = (*(*world.base.fabric.raw()).ops).trywait;
        t.row("fi_trywait of the least number", FI_EINVAL, || {
            trywait(world.base.fabric, &raw mut fid, i32::MIN).into()
        });
        for count in [2, 1 << 40, 1 << 60, 1 << 63, usize::MAX] {
            t.row(&format!("fi_av_remove of {count}"), FI_EINVAL, || (av.remove)(world.av, list, count, 0).into());
            let names = world.name();
            let insert = || (av.insert)(world.av, names.as_ptr().cast(), count, list, 0, null_mut()).into();
            if count > 2 {
                t.row(&format!("fi_av_insert of {count}"), FI_EINVAL, insert);
            }
            let eq = &*(*world.eq.raw()).ops;
            if count > 2 {
                t.row(&format!("fi_eq_write of {count}"), FI_EINVAL, || {
                    (eq.write)(world.eq, 1, list.cast(), count, 0) as i64
                });
            }
            let msg = FiMsg { msg_iov: &raw const piece, iov_count: count.max(1 << 40), ..zeroed() };
            t.row(&format!("fi_recvmsg of {count}"), FI_EINVAL, || (MSG.recvmsg)(world.ep, &raw const msg, 0) as i64);
        }
        for flag in [FI_PEEK, FI_CLAIM, FI_DISCARD, UNKNOWN] {
            let msg = FiMsg { msg_iov: &raw const piece, iov_count: 1, addr: FI_ADDR_UNSPEC, ..zeroed() };
            t.row("fi_recvmsg, a flag of tagged ones", FI_EBADFLAGS, || {
                (MSG.recvmsg)(world.ep, &raw const msg, flag) as i64
            });
        }
    }
    t.end();
}

#[test]
fn an_event_queue_that_is_full_takes_no_more_and_one_in_use_is_not_closed() {
    let world = World::new();
    // SAFETY: open objects, no memory.
    unsafe {
        let ops = &*(*world.eq.raw()).ops;
        let write = || (ops.write)(world.eq, 1, null(), 0, 0);
        let most = 1 << 20;
        let full = (0..most).find_map(|_| Some(write()).filter(|n| *n != 0));
        assert_eq!(full, Some(-(FI_EAGAIN as isize)));
        assert_eq!((ops.read)(world.eq, null_mut(), null_mut(), 0, 0), 0);
        assert_eq!((write(), write()), (0, -(FI_EAGAIN as isize)));
        assert_eq!(((*(*world.av.raw()).fid.ops).bind)(fid_of(world.av), fid_of(world.eq), 0), 0);
    }
    assert_eq!(close(world.eq), -FI_EBUSY);
}
