//! Whatever is called with whatever flags, sizes and addresses, in any order: no panic, no call
//! that waits for ever, and the endpoints work afterwards.
//!
//! Everything is arbitrary but memory: lengths are those of memory that is there, or longer than
//! any message, which is refused before memory is touched. What is lent for sending, what is
//! received into and what peers may write are three places, for an application must not have one
//! used in two ways at once.

use super::refusals::{UNKNOWN, zeroed};
use super::*;
use crate::atomic::ATOMIC_OPS as ATOMIC;
use crate::info::{IOV_LIMIT, MAX_MSG};
use crate::msg::MSG_OPS as MSG;
use crate::params::MAX_INJECT;
use crate::rma::RMA_OPS as RMA;
use crate::tagged::TAGGED_OPS as TAGGED;
use libc::iovec;
use proptest::prelude::*;
use std::cell::UnsafeCell;
use std::time::{Duration, Instant};

/// Bytes of each place.
const PLACE_BYTES: usize = 64 << 10;
/// Contexts of operations are below this.
const CONTEXTS: usize = 8;
/// Nothing takes this long, however busy the machine, but what hangs.
const LIMIT: Duration = Duration::from_secs(120);

/// One call, and all it could be given; each takes what it has use for.
#[derive(Clone, Debug)]
struct Call {
    what: usize,
    by_second: bool,
    /// Null stands for the object.
    null_object: bool,
    null_memory: bool,
    len: usize,
    pieces: usize,
    address: u64,
    flags: u64,
    tag: u64,
    ignore: u64,
    key: u64,
    context: usize,
    number: u64,
}

fn flags() -> impl Strategy<Value = u64> {
    let known = prop::sample::select(vec![
        FI_COMPLETION,
        FI_INJECT,
        FI_TRANSMIT_COMPLETE,
        FI_DELIVERY_COMPLETE,
        FI_MATCH_COMPLETE,
        FI_REMOTE_CQ_DATA,
        FI_MULTI_RECV,
        FI_PEEK,
        FI_PEEK | FI_CLAIM,
        FI_CLAIM,
        FI_PEEK | FI_DISCARD,
        FI_CLAIM | FI_DISCARD,
        FI_SEND,
        FI_RECV,
    ]);
    let several = (known.clone(), known.clone()).prop_map(|(a, b)| a | b);
    prop_oneof![8 => Just(0), 4 => known, 2 => several, 1 => (0..64u32).prop_map(|bit| 1 << bit), 1 => any::<u64>(), 1 => Just(UNKNOWN)]
}

fn len() -> impl Strategy<Value = usize> {
    let there = vec![0, 1, 8, 64, 65, 1400, 4096, MAX_INJECT, MAX_INJECT + 1, 32769, PLACE_BYTES];
    let beyond = vec![MAX_MSG + 1, isize::MAX as usize, usize::MAX];
    prop_oneof![8 => prop::sample::select(there), 1 => prop::sample::select(beyond)]
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![0..20u64, prop::sample::select(vec![1 << 16, 1 << 40, u64::MAX - 1, u64::MAX]), any::<u64>()]
}

fn call() -> impl Strategy<Value = Call> {
    let pieces = prop_oneof![8 => 0..4usize, 1 => prop::sample::select(vec![IOV_LIMIT, IOV_LIMIT + 1, usize::MAX])];
    let address = prop_oneof![8 => 0..2u64, 1 => 2..4u64, 1 => Just(FI_ADDR_UNSPEC), 1 => any::<u64>()];
    let objects = (0..CALLS.len(), any::<bool>(), prop::bool::weighted(0.05), prop::bool::weighted(0.05));
    let what = (len(), pieces, address, flags());
    let ignore = prop_oneof![Just(0), Just(u64::MAX), any::<u64>()];
    // Few, so that they meet.
    let few = || prop_oneof![4 => 0..3u64, 1 => number()];
    let which = (few(), ignore, few(), 0..CONTEXTS, number());
    (objects, what, which).prop_map(|(objects, what, which)| {
        let (what_call, by_second, null_object, null_memory) = objects;
        let (len, pieces, address, flags) = what;
        let (tag, ignore, key, context, number) = which;
        let what = what_call;
        Call {
            what,
            by_second,
            null_object,
            null_memory,
            len,
            pieces,
            address,
            flags,
            tag,
            ignore,
            key,
            context,
            number,
        }
    })
}

/// Memory that changes while it is lent.
struct Place(Box<[UnsafeCell<u8>]>);

impl Place {
    fn new() -> Place {
        Place((0..PLACE_BYTES).map(|_| UnsafeCell::new(7)).collect())
    }

    fn at(&self) -> *mut c_void {
        self.0.as_ptr().cast_mut().cast()
    }
}

/// An endpoint with memory for its operations. The regions go first, then the endpoint, then the
/// memory.
struct Side {
    regions: Vec<Handle<FidMr>>,
    world: World,
    lent: Place,
    room: Place,
    exposed: Place,
    /// For the last operations alone.
    last: Place,
}

impl Drop for Side {
    fn drop(&mut self) {
        for region in self.regions.drain(..) {
            assert_eq!(close(region), 0);
        }
    }
}

impl Side {
    fn new() -> Side {
        let [lent, room, exposed, last] = [(); 4].map(|()| Place::new());
        Side { regions: Vec::new(), world: World::with(FI_ATOMIC), lent, room, exposed, last }
    }

    fn ep(&self, c: &Call) -> Handle<FidEp> {
        if c.null_object { null_handle() } else { self.world.ep }
    }
}

impl Call {
    fn context(&self) -> *mut c_void {
        self.context as *mut c_void
    }

    fn memory(&self, place: &Place) -> *mut c_void {
        if self.null_memory { null_mut() } else { place.at() }
    }

    fn list(&self, place: &Place) -> [iovec; IOV_LIMIT + 1] {
        [iovec { iov_base: self.memory(place), iov_len: self.len }; IOV_LIMIT + 1]
    }

    fn message(&self, list: &[iovec]) -> FiMsg {
        let (msg_iov, iov_count, addr, context) = (list.as_ptr(), self.pieces, self.address, self.context());
        FiMsg { msg_iov, desc: null_mut(), iov_count, addr, context, data: self.number }
    }

    fn tagged(&self, list: &[iovec]) -> FiMsgTagged {
        let FiMsg { msg_iov, desc, iov_count, addr, context, data } = self.message(list);
        FiMsgTagged { msg_iov, desc, iov_count, addr, tag: self.tag, ignore: self.ignore, context, data }
    }

    /// A type and an operation, known ones as a rule.
    fn atomic(&self) -> (i32, i32) {
        ((self.number % 12) as i32, (self.ignore.wrapping_add(self.context as u64) % 21) as i32)
    }

    fn elements(&self, place: &Place) -> [FiIoc; IOV_LIMIT + 1] {
        [FiIoc { addr: self.memory(place), count: self.len }; IOV_LIMIT + 1]
    }

    fn atomic_message(&self, list: &[FiIoc], then: impl FnOnce(*const FiMsgAtomic) -> isize) -> isize {
        let range = FiRmaIoc { addr: self.tag, count: self.len.wrapping_mul(self.pieces), key: self.key };
        let (datatype, op) = self.atomic();
        then(&FiMsgAtomic {
            msg_iov: list.as_ptr(),
            desc: null_mut(),
            iov_count: self.pieces,
            addr: self.address,
            rma_iov: &raw const range,
            rma_iov_count: if self.number.is_multiple_of(8) { self.number as usize } else { 1 },
            datatype,
            op,
            context: self.context(),
            data: self.number,
        })
    }

    /// With a range as long as the list, most of the time.
    fn remote(&self, list: &[iovec], then: impl FnOnce(*const FiMsgRma) -> isize) -> isize {
        let FiMsg { msg_iov, desc, iov_count, addr, context, data } = self.message(list);
        let range = FiRmaIov { addr: self.tag, len: self.len.wrapping_mul(self.pieces), key: self.key };
        let rma_iov_count = if self.number.is_multiple_of(8) { self.number as usize } else { 1 };
        let rma_iov = &raw const range;
        then(&FiMsgRma { msg_iov, desc, iov_count, addr, rma_iov, rma_iov_count, context, data })
    }
}

/// Which calls take flags, of which an unknown one must be refused.
#[derive(Clone, Copy, PartialEq)]
enum Flags {
    Taken,
    None,
}
use Flags::{None as Unflagged, Taken as Flagged};

type Perform = fn(&mut Side, &Call, &[crate::addr::Name]) -> isize;

/// A call of the tables: its name, whether it takes flags, and how it is done.
// SAFETY: (of all) objects are open or null; memory is there, null, or so long that it must be
// refused.
const CALLS: [(&str, Flags, Perform); 59] = [
    ("send", Unflagged, |s, c, _| unsafe {
        (MSG.send)(s.ep(c), c.memory(&s.lent), c.len, null_mut(), c.address, c.context())
    }),
    ("senddata", Unflagged, |s, c, _| unsafe {
        (MSG.senddata)(s.ep(c), c.memory(&s.lent), c.len, null_mut(), c.number, c.address, c.context())
    }),
    ("inject", Unflagged, |s, c, _| unsafe { (MSG.inject)(s.ep(c), c.memory(&s.lent), c.len, c.address) }),
    ("injectdata", Unflagged, |s, c, _| unsafe {
        (MSG.injectdata)(s.ep(c), c.memory(&s.lent), c.len, c.number, c.address)
    }),
    ("sendv", Unflagged, |s, c, _| unsafe {
        (MSG.sendv)(s.ep(c), c.list(&s.lent).as_ptr(), null_mut(), c.pieces, c.address, c.context())
    }),
    ("sendmsg", Flagged, |s, c, _| unsafe { (MSG.sendmsg)(s.ep(c), &c.message(&c.list(&s.lent)), c.flags) }),
    ("recv", Unflagged, |s, c, _| unsafe {
        (MSG.recv)(s.ep(c), c.memory(&s.room), c.len, null_mut(), c.address, c.context())
    }),
    ("recvv", Unflagged, |s, c, _| unsafe {
        (MSG.recvv)(s.ep(c), c.list(&s.room).as_ptr(), null_mut(), c.pieces, c.address, c.context())
    }),
    ("recvmsg", Flagged, |s, c, _| unsafe { (MSG.recvmsg)(s.ep(c), &c.message(&c.list(&s.room)), c.flags) }),
    ("tsend", Unflagged, |s, c, _| unsafe {
        (TAGGED.send)(s.ep(c), c.memory(&s.lent), c.len, null_mut(), c.address, c.tag, c.context())
    }),
    ("tsenddata", Unflagged, |s, c, _| unsafe {
        (TAGGED.senddata)(s.ep(c), c.memory(&s.lent), c.len, null_mut(), c.number, c.address, c.tag, c.context())
    }),
    ("tinject", Unflagged, |s, c, _| unsafe { (TAGGED.inject)(s.ep(c), c.memory(&s.lent), c.len, c.address, c.tag) }),
    ("tinjectdata", Unflagged, |s, c, _| unsafe {
        (TAGGED.injectdata)(s.ep(c), c.memory(&s.lent), c.len, c.number, c.address, c.tag)
    }),
    ("tsendv", Unflagged, |s, c, _| unsafe {
        (TAGGED.sendv)(s.ep(c), c.list(&s.lent).as_ptr(), null_mut(), c.pieces, c.address, c.tag, c.context())
    }),
    ("tsendmsg", Flagged, |s, c, _| unsafe { (TAGGED.sendmsg)(s.ep(c), &c.tagged(&c.list(&s.lent)), c.flags) }),
    ("trecv", Unflagged, |s, c, _| unsafe {
        (TAGGED.recv)(s.ep(c), c.memory(&s.room), c.len, null_mut(), c.address, c.tag, c.ignore, c.context())
    }),
    ("trecvv", Unflagged, |s, c, _| unsafe {
        let list = c.list(&s.room);
        (TAGGED.recvv)(s.ep(c), list.as_ptr(), null_mut(), c.pieces, c.address, c.tag, c.ignore, c.context())
    }),
    ("trecvmsg", Flagged, |s, c, _| unsafe { (TAGGED.recvmsg)(s.ep(c), &c.tagged(&c.list(&s.room)), c.flags) }),
    ("read", Unflagged, |s, c, _| unsafe {
        (RMA.read)(s.ep(c), c.memory(&s.room), c.len, null_mut(), c.address, c.tag, c.key, c.context())
    }),
    ("readv", Unflagged, |s, c, _| unsafe {
        let list = c.list(&s.room);
        (RMA.readv)(s.ep(c), list.as_ptr(), null_mut(), c.pieces, c.address, c.tag, c.key, c.context())
    }),
    ("readmsg", Flagged, |s, c, _| unsafe { c.remote(&c.list(&s.room), |m| (RMA.readmsg)(s.ep(c), m, c.flags)) }),
    ("write", Unflagged, |s, c, _| unsafe {
        (RMA.write)(s.ep(c), c.memory(&s.lent), c.len, null_mut(), c.address, c.tag, c.key, c.context())
    }),
    ("writev", Unflagged, |s, c, _| unsafe {
        let list = c.list(&s.lent);
        (RMA.writev)(s.ep(c), list.as_ptr(), null_mut(), c.pieces, c.address, c.tag, c.key, c.context())
    }),
    ("writemsg", Flagged, |s, c, _| unsafe { c.remote(&c.list(&s.lent), |m| (RMA.writemsg)(s.ep(c), m, c.flags)) }),
    ("inject_write", Unflagged, |s, c, _| unsafe {
        (RMA.inject)(s.ep(c), c.memory(&s.lent), c.len, c.address, c.tag, c.key)
    }),
    ("writedata", Unflagged, |s, c, _| unsafe {
        let memory = c.memory(&s.lent);
        (RMA.writedata)(s.ep(c), memory, c.len, null_mut(), c.number, c.address, c.tag, c.key, c.context())
    }),
    ("inject_writedata", Unflagged, |s, c, _| unsafe {
        (RMA.injectdata)(s.ep(c), c.memory(&s.lent), c.len, c.number, c.address, c.tag, c.key)
    }),
    ("atomic", Unflagged, |s, c, _| unsafe {
        let (of, op) = c.atomic();
        (ATOMIC.write)(s.ep(c), c.memory(&s.lent), c.len, null_mut(), c.address, c.tag, c.key, of, op, c.context())
    }),
    ("atomicv", Unflagged, |s, c, _| unsafe {
        let ((of, op), list) = (c.atomic(), c.elements(&s.lent));
        let list = list.as_ptr();
        (ATOMIC.writev)(s.ep(c), list, null_mut(), c.pieces, c.address, c.tag, c.key, of, op, c.context())
    }),
    ("inject_atomic", Unflagged, |s, c, _| unsafe {
        let (of, op) = c.atomic();
        (ATOMIC.inject)(s.ep(c), c.memory(&s.lent), c.len, c.address, c.tag, c.key, of, op)
    }),
    ("fetch_atomicmsg", Flagged, |s, c, _| unsafe {
        let mut result = c.elements(&s.room);
        c.atomic_message(&c.elements(&s.lent), |m| {
            (ATOMIC.readwritemsg)(s.ep(c), m, result.as_mut_ptr(), null_mut(), c.pieces, c.flags)
        })
    }),
    ("compare_atomicmsg", Flagged, |s, c, _| unsafe {
        let (compare, mut result) = (c.elements(&s.lent), c.elements(&s.room));
        c.atomic_message(&compare, |m| {
            let (at, to) = (compare.as_ptr(), result.as_mut_ptr());
            (ATOMIC.compwritemsg)(s.ep(c), m, at, null_mut(), c.pieces, to, null_mut(), c.pieces, c.flags)
        })
    }),
    ("atomicvalid", Unflagged, |s, c, _| unsafe {
        let ((of, op), mut count) = (c.atomic(), 0);
        let place = if c.null_memory { null_mut() } else { &raw mut count };
        (ATOMIC.readwritevalid)(s.ep(c), of, op, place) as isize
    }),
    ("mr_reg", Flagged, |s, c, _| register(s, c, 0)),
    ("mr_regv", Flagged, |s, c, _| register(s, c, 1)),
    ("mr_regattr", Flagged, |s, c, _| register(s, c, 2)),
    ("mr_close", Unflagged, |s, _, _| s.regions.pop().map_or(0, |region| close(region) as isize)),
    ("av_insert", Flagged, |s, c, names| unsafe {
        let (name, mut to) = (names[c.context % names.len()], 0);
        let mut errors = [0i32; 1];
        let context = if c.null_memory { null_mut() } else { errors.as_mut_ptr().cast() };
        ((*(*s.world.av.raw()).ops).insert)(s.world.av, name.as_ptr().cast(), 1, &raw mut to, c.flags, context) as isize
    }),
    ("av_remove", Flagged, |s, c, _| unsafe {
        // What the endpoints are known by must stay for the end, and may be named only where that
        // is refused.
        let behind = |n: u64| if n < 4 { 2 + n % 2 } else { n };
        let mut list = [if c.flags == 0 { behind(c.number) } else { c.number }, behind(c.key)];
        ((*(*s.world.av.raw()).ops).remove)(s.world.av, list.as_mut_ptr(), 1 + c.context % 2, c.flags) as isize
    }),
    ("av_lookup", Unflagged, |s, c, _| unsafe {
        let (mut name, mut len) = ([0u8; 256], c.context * 30);
        ((*(*s.world.av.raw()).ops).lookup)(s.world.av, c.address, name.as_mut_ptr().cast(), &raw mut len) as isize
    }),
    ("cq_read", Unflagged, |s, c, _| unsafe {
        let mut entries = [0u64; 6 * CONTEXTS];
        ((*(*s.world.cq.raw()).ops).read)(s.world.cq, c.memory_of(&mut entries), c.context)
    }),
    ("cq_readfrom", Unflagged, |s, c, _| unsafe {
        let (mut entries, mut from) = ([0u64; 6 * CONTEXTS], [0u64; CONTEXTS]);
        ((*(*s.world.cq.raw()).ops).readfrom)(s.world.cq, c.memory_of(&mut entries), c.context, from.as_mut_ptr())
    }),
    ("cq_readerr", Flagged, |s, c, _| unsafe {
        let mut entry: FiCqErrEntry = zeroed();
        ((*(*s.world.cq.raw()).ops).readerr)(s.world.cq, &raw mut entry, c.flags)
    }),
    ("cq_sread", Unflagged, |s, c, _| unsafe {
        let mut entries = [0u64; 6 * CONTEXTS];
        ((*(*s.world.cq.raw()).ops).sread)(
            s.world.cq,
            c.memory_of(&mut entries),
            c.context,
            null(),
            (c.number % 2) as i32,
        )
    }),
    ("cq_signal", Unflagged, |s, _, _| unsafe { ((*(*s.world.cq.raw()).ops).signal)(s.world.cq) as isize }),
    ("cntr_add", Unflagged, |s, c, _| unsafe { ((*(*s.world.cntr.raw()).ops).add)(s.world.cntr, c.number) as isize }),
    ("cntr_set", Unflagged, |s, c, _| unsafe { ((*(*s.world.cntr.raw()).ops).set)(s.world.cntr, c.number) as isize }),
    ("cntr_seterr", Unflagged, |s, c, _| unsafe {
        ((*(*s.world.cntr.raw()).ops).seterr)(s.world.cntr, c.number) as isize
    }),
    ("cntr_wait", Unflagged, |s, c, _| unsafe {
        ((*(*s.world.cntr.raw()).ops).wait)(s.world.cntr, c.number, (c.key % 2) as i32) as isize
    }),
    ("eq_read", Flagged, |s, c, _| unsafe {
        let mut room = [0u64; 600];
        ((*(*s.world.eq.raw()).ops).read)(s.world.eq, null_mut(), c.memory_of(&mut room), c.len.min(4800), c.flags)
    }),
    ("eq_readerr", Flagged, |s, c, _| unsafe {
        let mut entry: FiEqErrEntry = zeroed();
        ((*(*s.world.eq.raw()).ops).readerr)(s.world.eq, &raw mut entry, c.flags)
    }),
    ("eq_write", Flagged, |s, c, _| unsafe {
        ((*(*s.world.eq.raw()).ops).write)(s.world.eq, c.number as u32, c.memory(&s.lent), c.len, c.flags)
    }),
    ("eq_sread", Flagged, |s, c, _| unsafe {
        let mut room = [0u64; 600];
        let (len, timeout) = (c.len.min(4800), (c.number % 2) as i32);
        ((*(*s.world.eq.raw()).ops).sread)(s.world.eq, null_mut(), c.memory_of(&mut room), len, timeout, c.flags)
    }),
    ("cancel", Unflagged, |s, c, _| unsafe { (s.world.ep_ops().cancel)(fid_of(s.ep(c)), c.context()) }),
    ("getopt", Unflagged, |s, c, _| unsafe {
        let (mut value, mut len) = (0u64, 2 * c.context);
        let place = if c.null_memory { null_mut() } else { (&raw mut value).cast() };
        (s.world.ep_ops().getopt)(fid_of(s.ep(c)), 0, c.number as i32, place, &raw mut len) as isize
    }),
    ("setopt", Unflagged, |s, c, _| unsafe {
        let value = c.key;
        let len = 8 - c.context % 2;
        (s.world.ep_ops().setopt)(fid_of(s.ep(c)), 0, c.number as i32, (&raw const value).cast(), len) as isize
    }),
    ("ops_flags", Unflagged, |s, c, _| unsafe {
        let mut word = c.flags;
        let place = if c.null_memory { null_mut() } else { (&raw mut word).cast() };
        let command = [FI_SETOPSFLAG, FI_GETOPSFLAG, FI_ENABLE, 99][c.context % 4];
        ((*(*s.world.ep.raw()).fid.ops).control)(fid_of(s.ep(c)), command, place) as isize
    }),
    ("ep_bind", Flagged, |s, c, _| unsafe {
        let w = &s.world;
        let other = [fid_of(w.av), fid_of(w.cq), fid_of(w.cntr), fid_of(w.eq), null_handle()][c.context % 5];
        ((*(*w.ep.raw()).fid.ops).bind)(fid_of(s.ep(c)), other, c.flags) as isize
    }),
    ("cq_open", Flagged, |s, c, _| unsafe {
        let (format, wait_obj, wait_cond) = (c.number as i32, c.context as i32, c.key as i32);
        let mut attr = FiCqAttr { size: c.len, flags: c.flags, format, wait_obj, wait_cond, ..zeroed() };
        let (domain, mut cq) = (s.world.base.domain, null_mut());
        let code = ((*(*domain.raw()).ops).cq_open)(domain, &raw mut attr, &raw mut cq, null_mut());
        if code == 0 { close(handle_of(cq)) as isize } else { code as isize }
    }),
];

impl Call {
    fn memory_of<const N: usize>(&self, room: &mut [u64; N]) -> *mut c_void {
        if self.null_memory { null_mut() } else { room.as_mut_ptr().cast() }
    }
}

fn register(s: &mut Side, c: &Call, way: usize) -> isize {
    let (list, mut mr) = (c.list(&s.exposed), null_mut());
    // Beyond what is there is beyond the address space, or refused by its access: a peer must not
    // be let at what is not ours.
    let len = if c.len > PLACE_BYTES { usize::MAX } else { c.len };
    let list = list.map(|piece| iovec { iov_len: len, ..piece });
    let access = if c.context == 0 { c.ignore } else { FI_REMOTE_READ | FI_REMOTE_WRITE };
    let offset = if c.tag < 4 { 0 } else { c.tag };
    let (domain, mr_iov, iov_count) = (s.world.base.domain, list.as_ptr(), c.pieces);
    let fid: Handle<Fid> = if c.null_object { null_handle() } else { fid_of(domain) };
    let attr = FiMrAttr { mr_iov, iov_count, access, offset, requested_key: c.key, ..zeroed() };
    // SAFETY: an open domain or null; memory that is there, or that must be refused.
    let code = unsafe {
        let ops = &*(*domain.raw()).mr;
        let (out, none) = (&raw mut mr, null_mut());
        match way {
            0 => (ops.reg)(fid, list[0].iov_base, len, access, offset, c.key, c.flags, out, none),
            1 => (ops.regv)(fid, mr_iov, iov_count, access, offset, c.key, c.flags, out, none),
            _ => (ops.regattr)(fid, &raw const attr, c.flags, out),
        }
    };
    if !mr.is_null() {
        s.regions.push(handle_of(mr));
    }
    code as isize
}

/// Everything back to what it was at the beginning, as far as an application can.
fn settle(s: &Side) {
    let (ep, ops) = (fid_of(s.world.ep), s.world.ep_ops());
    // SAFETY: an open endpoint, values of the lengths said.
    unsafe {
        for (name, value) in [(FI_OPT_MAX_MSG_SIZE, MAX_MSG), (FI_OPT_INJECT_MSG_SIZE, MAX_INJECT)] {
            assert_eq!((ops.setopt)(ep, FI_OPT_ENDPOINT, name, (&raw const value).cast(), 8), 0);
        }
        for mut direction in [FI_SEND, FI_RECV] {
            let word = (&raw mut direction).cast();
            assert_eq!(((*(*s.world.ep.raw()).fid.ops).control)(ep, FI_SETOPSFLAG, word), 0);
        }
        for context in 0..CONTEXTS {
            while (ops.cancel)(ep, context as *mut c_void) == 0 {}
        }
    }
}

/// The contexts of what has completed at `s`; none of these may have failed.
fn completed(s: &Side, wanted: &[usize]) -> Result<Vec<usize>, TestCaseError> {
    let mut entry: FiCqTaggedEntry = zeroed();
    let mut error: FiCqErrEntry = zeroed();
    let (cq, mut found) = (s.world.cq, Vec::new());
    loop {
        // SAFETY: an open queue; room for one entry each.
        unsafe {
            match ((*(*cq.raw()).ops).read)(cq, (&raw mut entry).cast(), 1) {
                1 => found.push(entry.op_context as usize),
                n if n == -(FI_EAVAIL as isize) => {
                    prop_assert_eq!(((*(*cq.raw()).ops).readerr)(cq, &raw mut error, 0), 1);
                    let context = error.op_context as usize;
                    prop_assert!(!wanted.contains(&context), "operation {context:#x} failed with {}", error.err);
                }
                n => {
                    prop_assert_eq!(n, -(FI_EAGAIN as isize));
                    return Ok(found);
                }
            }
        }
    }
}

/// Contexts, and tag and key, of the last operations.
const SENT: usize = 0x1000_0001;
const RECEIVED: usize = 0x1000_0002;
const WRITTEN: usize = 0x1000_0003;
const LAST: u64 = 0x00C0_FFEE_0000_0001;

/// A message and a remote write go from one to the other, whatever was done before.
fn works(from: &Side, to: &mut Side) -> Result<(), TestCaseError> {
    let (text, none, start) = (b"the last message", null_mut(), Instant::now());
    // The message comes to the front of the place, the write behind it.
    let (lent, room) = (from.last.at(), to.last.at());
    let piece = iovec { iov_base: lent, iov_len: 16 };
    let range = FiRmaIov { addr: 16, len: 16, key: LAST };
    let (msg_iov, rma_iov, context) = (&raw const piece, &raw const range, WRITTEN as *mut c_void);
    let write = FiMsgRma { msg_iov, iov_count: 1, addr: 1, rma_iov, rma_iov_count: 1, context, ..zeroed() };
    let domain = to.world.base.domain;
    // SAFETY: open objects; the places stay longer than these.
    unsafe {
        lent.cast::<[u8; 16]>().write(*text);
        let reg = (*(*domain.raw()).mr).reg;
        to.regions.push(opened(|out| reg(fid_of(domain), room, 32, FI_REMOTE_WRITE, 0, LAST, 0, out, none)));
        let posted = (TAGGED.recv)(to.world.ep, room, 16, none, FI_ADDR_UNSPEC, LAST, 0, RECEIVED as *mut c_void);
        prop_assert_eq!(posted, 0);
    }
    let (wanted, mut begun) = ([SENT, RECEIVED, WRITTEN], [false; 2]);
    let mut missing = wanted.to_vec();
    while !missing.is_empty() {
        for (i, begun) in begun.iter_mut().enumerate().filter(|(_, begun)| !**begun) {
            // SAFETY: as above.
            let code = unsafe {
                match i {
                    0 => (TAGGED.send)(from.world.ep, lent, 16, none, 1, LAST, SENT as *mut c_void),
                    _ => (RMA.writemsg)(from.world.ep, &raw const write, FI_DELIVERY_COMPLETE | FI_COMPLETION),
                }
            };
            prop_assert!(code == 0 || code == -(FI_EAGAIN as isize), "refused with {}", code);
            *begun = code == 0;
        }
        for side in [from, &*to] {
            let found = completed(side, &wanted)?;
            missing.retain(|context| !found.contains(context));
        }
        prop_assert!(start.elapsed() < LIMIT, "{:#x?} never completed", missing);
    }
    // SAFETY: nobody writes there any more.
    prop_assert_eq!(unsafe { room.cast::<[[u8; 16]; 2]>().read() }, [*text; 2]);
    Ok(())
}

/// What a call may answer when it does not do what was asked; `FI_EOTHER` among them would be a
/// panic.
const CODES: [i32; 18] = [
    FI_EOPNOTSUPP,
    FI_EINVAL,
    FI_EBADFLAGS,
    FI_EMSGSIZE,
    FI_EAGAIN,
    FI_EAVAIL,
    FI_ENOSYS,
    FI_ENOENT,
    FI_ENOPROTOOPT,
    FI_ETOOSMALL,
    FI_ENOKEY,
    FI_ETIMEDOUT,
    FI_EBUSY,
    FI_ENOCQ,
    FI_ENOAV,
    FI_ENOEQ,
    FI_EOPBADSTATE,
    FI_ENOMSG,
];

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn endpoints_survive_any_calls(calls in prop::collection::vec(call(), 1..40)) {
        let (mut first, mut second) = (Side::new(), Side::new());
        let names = [first.world.name(), second.world.name(), [0xff; weir_engine::NAME_BYTES]];
        prop_assert_eq!((first.world.insert(&names[1]), second.world.insert(&names[0])), (1, 1));
        for call in &calls {
            let (what, flags, perform) = CALLS[call.what];
            let side = if call.by_second { &mut second } else { &mut first };
            let answer = perform(side, call, &names);
            let known = answer >= 0 || CODES.iter().any(|code| answer == -(*code as isize));
            prop_assert!(known, "{}: {}", what, answer);
            let unknown_flag = flags == Flagged && call.flags & UNKNOWN != 0;
            prop_assert!(!unknown_flag || answer < 0, "{} took an unknown flag", what);
        }
        settle(&first);
        settle(&second);
        works(&first, &mut second)?;
        works(&second, &mut first)?;
    }
}
