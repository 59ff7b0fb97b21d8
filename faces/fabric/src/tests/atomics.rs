//! Atomic operations: what the calls do, what is said to be offered, and what is refused with which
//! code.

use super::refusals::{Table, UNKNOWN, zeroed};
use super::*;
use crate::atomic::ATOMIC_OPS as ATOMIC;
use crate::info::IOV_LIMIT;
use std::time::{Duration, Instant};
use weir_engine::AMO_COUNT_MAX;

/// Nothing takes this long, however busy the machine, but what hangs.
const LIMIT: Duration = Duration::from_secs(120);
const KEY: u64 = 5;
/// No address anybody has.
const NOBODY: u64 = 77;

/// An endpoint with atomic operations, and a region of its own that it changes.
struct Counting {
    region: Handle<FidMr>,
    world: World,
    memory: Box<[u64; 8]>,
}

impl Counting {
    fn new() -> Counting {
        let (world, mut memory) = (World::with(FI_ATOMIC), Box::new([0u64; 8]));
        let domain = world.base.domain;
        // SAFETY: the memory lives until the region is closed.
        let region = unsafe {
            let (at, access) = (memory.as_mut_ptr().cast(), FI_REMOTE_READ | FI_REMOTE_WRITE);
            opened(|out| ((*(*domain.raw()).mr).reg)(fid_of(domain), at, 64, access, 0, KEY, 0, out, null_mut()))
        };
        Counting { region, world, memory }
    }

    /// What is there, read as another thread may write it.
    fn word(&self, i: usize) -> u64 {
        // SAFETY: within the memory.
        unsafe { (&raw const self.memory[i]).read_volatile() }
    }

    /// The flags of the next completion, or the code of the next failure.
    fn completion(&self) -> Result<(u64, usize), i32> {
        let (mut entry, mut error): (FiCqTaggedEntry, FiCqErrEntry) = (zeroed(), zeroed());
        let (cq, start) = (self.world.cq, Instant::now());
        loop {
            // SAFETY: an open queue; room for one entry each.
            unsafe {
                match ((*(*cq.raw()).ops).read)(cq, (&raw mut entry).cast(), 1) {
                    1 => return Ok((entry.flags, entry.op_context as usize)),
                    n if n == -(FI_EAVAIL as isize) => {
                        assert_eq!(((*(*cq.raw()).ops).readerr)(cq, &raw mut error, 0), 1);
                        return Err(error.err);
                    }
                    n => assert_eq!(n, -(FI_EAGAIN as isize)),
                }
            }
            assert!(start.elapsed() < LIMIT);
        }
    }

    fn counted(&self) -> u64 {
        let cntr = self.world.cntr;
        // SAFETY: an open counter.
        unsafe { ((*(*cntr.raw()).ops).read)(cntr) }
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        assert_eq!(close(self.region), 0);
    }
}

fn place<T>(value: &T) -> *const c_void {
    (&raw const *value).cast()
}

#[test]
fn operations_are_done_completed_and_counted() {
    let c = Counting::new();
    let (ep, none) = (c.world.ep, null_mut());
    let context = |n: usize| n as *mut c_void;
    let (five, mut held) = (5u64, 9u64);
    let result: *mut c_void = (&raw mut held).cast();
    // SAFETY: the values live until the completions.
    unsafe {
        let code = (ATOMIC.write)(ep, place(&five), 1, none, 0, 8, KEY, FI_UINT64, FI_SUM, context(1));
        assert_eq!((code, c.completion(), c.word(1)), (0, Ok((FI_ATOMIC | FI_WRITE, 1)), 5));
        let code =
            (ATOMIC.readwrite)(ep, place(&five), 1, none, result, none, 0, 8, KEY, FI_UINT64, FI_SUM, context(2));
        assert_eq!((code, c.completion(), c.word(1)), (0, Ok((FI_ATOMIC | FI_READ, 2)), 10));
        assert_eq!(result.cast::<u64>().read(), 5);
        // Only read, without an operand.
        let code =
            (ATOMIC.readwrite)(ep, null(), 1, none, result, none, 0, 8, KEY, FI_UINT64, FI_ATOMIC_READ, context(3));
        assert_eq!((code, c.completion()), (0, Ok((FI_ATOMIC | FI_READ, 3))));
        assert_eq!(result.cast::<u64>().read(), 10);
        let (compare, new) = (10u64, 77u64);
        let code = (ATOMIC.compwrite)(
            ep,
            place(&new),
            1,
            none,
            place(&compare),
            none,
            result,
            none,
            0,
            8,
            KEY,
            FI_UINT64,
            FI_CSWAP,
            context(4),
        );
        assert_eq!((code, c.completion(), c.word(1)), (0, Ok((FI_ATOMIC | FI_READ, 4)), 77));
        assert_eq!(result.cast::<u64>().read(), 10);
        // Injected: no completion, but it is counted.
        assert_eq!((ATOMIC.inject)(ep, place(&five), 1, 0, 16, KEY, FI_UINT64, FI_ATOMIC_WRITE), 0);
    }
    let start = Instant::now();
    while c.word(2) != 5 || c.counted() != 5 {
        assert!(start.elapsed() < LIMIT);
    }
    assert_eq!(c.world.state().iter().rev().nth(1), Some(&(-i64::from(FI_EAGAIN) as u64)), "no completion");
}

#[test]
fn lists_and_messages_are_operations_on_several_elements() {
    let c = Counting::new();
    let (ep, none, nowhere) = (c.world.ep, null_mut(), null_mut());
    let mut values = [1u64, 2, 3];
    let mut held = [9u64; 3];
    let piece = |at: *mut u64, count| FiIoc { addr: at.cast(), count };
    let (from, to) = (values.as_mut_ptr(), held.as_mut_ptr());
    let operand = [piece(from, 2), piece(from.wrapping_add(2), 1)];
    let mut result = [piece(to, 1), piece(to.wrapping_add(1), 2)];
    let range = FiRmaIoc { addr: 0, count: 3, key: KEY };
    let msg = FiMsgAtomic {
        msg_iov: operand.as_ptr(),
        iov_count: 2,
        addr: 0,
        rma_iov: &raw const range,
        rma_iov_count: 1,
        datatype: FI_UINT64,
        op: FI_SUM,
        context: 7 as *mut c_void,
        ..zeroed()
    };
    // SAFETY: the values live until the completions.
    unsafe {
        assert_eq!((ATOMIC.writev)(ep, operand.as_ptr(), nowhere, 2, 0, 0, KEY, FI_UINT64, FI_SUM, none), 0);
        assert_eq!(c.completion(), Ok((FI_ATOMIC | FI_WRITE, 0)));
        assert_eq!([c.word(0), c.word(1), c.word(2), c.word(3)], [1, 2, 3, 0]);
        assert_eq!((ATOMIC.writemsg)(ep, &raw const msg, FI_COMPLETION | FI_INJECT | FI_DELIVERY_COMPLETE), 0);
        assert_eq!(c.completion(), Ok((FI_ATOMIC | FI_WRITE, 7)));
        assert_eq!((ATOMIC.readwritemsg)(ep, &raw const msg, result.as_mut_ptr(), nowhere, 2, FI_COMPLETION), 0);
        assert_eq!(c.completion(), Ok((FI_ATOMIC | FI_READ, 7)));
        assert_eq!(([c.word(0), c.word(1), c.word(2)], to.cast::<[u64; 3]>().read()), ([3, 6, 9], [2, 4, 6]));
        let vectored = (ATOMIC.readwritev)(
            ep,
            operand.as_ptr(),
            nowhere,
            2,
            result.as_mut_ptr(),
            nowhere,
            2,
            0,
            0,
            KEY,
            FI_UINT64,
            FI_SUM,
            none,
        );
        assert_eq!((vectored, c.completion()), (0, Ok((FI_ATOMIC | FI_READ, 0))));
        // What is only read needs no operands.
        let looked = (ATOMIC.readwritev)(
            ep,
            null(),
            nowhere,
            1,
            result.as_mut_ptr(),
            nowhere,
            2,
            0,
            0,
            KEY,
            FI_UINT64,
            FI_ATOMIC_READ,
            none,
        );
        assert_eq!((looked, c.completion()), (0, Ok((FI_ATOMIC | FI_READ, 0))));
        assert_eq!(to.cast::<[u64; 3]>().read(), [4, 8, 12]);
        // Only the element that is compared with what it is.
        let mut expected = [0u64, 8, 0];
        let compare = [piece(expected.as_mut_ptr(), 3)];
        let swap = FiMsgAtomic { op: FI_CSWAP, ..msg };
        let swapped = (ATOMIC.compwritemsg)(
            ep,
            &raw const swap,
            compare.as_ptr(),
            nowhere,
            1,
            result.as_mut_ptr(),
            nowhere,
            2,
            FI_COMPLETION,
        );
        assert_eq!((swapped, c.completion()), (0, Ok((FI_ATOMIC | FI_READ, 7))));
        assert_eq!(([c.word(0), c.word(1), c.word(2)], to.cast::<[u64; 3]>().read()), ([4, 2, 12], [4, 8, 12]));
        let masked = (ATOMIC.compwritev)(
            ep,
            operand.as_ptr(),
            nowhere,
            2,
            compare.as_ptr(),
            nowhere,
            1,
            result.as_mut_ptr(),
            nowhere,
            2,
            0,
            0,
            KEY,
            FI_UINT64,
            FI_MSWAP,
            none,
        );
        assert_eq!((masked, c.completion(), c.word(1)), (0, Ok((FI_ATOMIC | FI_READ, 0)), 2));
    }
}

#[test]
fn what_the_target_refuses_is_told_with_its_code() {
    let c = Counting::new();
    let five = 5u64;
    for (addr, key, code) in [(4, KEY, FI_EINVAL), (64, KEY, FI_EACCES), (0, KEY + 1, FI_EACCES)] {
        // SAFETY: the value lives until the completion.
        let begun = unsafe {
            (ATOMIC.write)(c.world.ep, place(&five), 1, null_mut(), 0, addr, key, FI_UINT64, FI_SUM, null_mut())
        };
        assert_eq!((begun, c.completion()), (0, Err(code)), "at {addr} of {key}");
    }
    assert_eq!((c.word(0), c.counted()), (0, 0));
}

#[test]
fn what_is_said_to_be_offered_is_and_nothing_else() {
    let c = Counting::new();
    let (ep, domain, one) = (c.world.ep, c.world.base.domain, [1u64; 2]);
    let forms =
        [(ATOMIC.writevalid, 0), (ATOMIC.readwritevalid, FI_FETCH_ATOMIC), (ATOMIC.compwritevalid, FI_COMPARE_ATOMIC)];
    let mut offered = [0; 3];
    let mut held = [0u64; 2];
    let to: *mut c_void = held.as_mut_ptr().cast();
    for datatype in -1..24 {
        for op in -1..24 {
            for (form, (valid, flag)) in forms.into_iter().enumerate() {
                let (mut count, mut attr): (usize, FiAtomicAttr) = (0, zeroed());
                let (at, none) = (place(&one), null_mut());
                // SAFETY: places for the answers; memory that lives until the completions.
                let (valid, queried, begun) = unsafe {
                    let query = (*(*domain.raw()).ops).query_atomic;
                    let valid = valid(ep, datatype, op, &raw mut count);
                    let queried = query(domain, datatype, op, &raw mut attr, flag);
                    let begun = match form {
                        0 => (ATOMIC.write)(ep, at, 1, none, 0, 0, KEY, datatype, op, none),
                        1 => (ATOMIC.readwrite)(ep, at, 1, none, to, none, 0, 0, KEY, datatype, op, none),
                        _ => (ATOMIC.compwrite)(ep, at, 1, none, at, none, to, none, 0, 0, KEY, datatype, op, none),
                    };
                    (valid, queried, begun)
                };
                assert_eq!((valid, valid as isize), (queried, begun), "datatype {datatype} operation {op} form {form}");
                if valid == 0 {
                    assert_eq!((count, attr.count), (AMO_COUNT_MAX as usize, AMO_COUNT_MAX as usize));
                    assert!([1, 2, 4, 8].contains(&attr.size));
                    assert!(c.completion().is_ok());
                    offered[form] += 1;
                } else {
                    assert_eq!((valid, count), (-FI_EOPNOTSUPP, 0));
                }
            }
        }
    }
    // Eight types of integers with all operations, two of floats without the three on bits and the
    // masked swap.
    assert_eq!(offered, [8 * 11 + 2 * 8, 8 * 12 + 2 * 9, 8 * 7 + 2 * 6]);
}

#[test]
fn of_atomic_operations() {
    let c = Counting::new();
    let mut t = Table::of(&c.world);
    let (ep, room, none) = (c.world.ep, [0u64; 80], null_mut());
    let (at, to): (*const c_void, *mut c_void) = (room.as_ptr().cast(), room.as_ptr().cast_mut().cast());
    let many = AMO_COUNT_MAX as usize + 1;
    // SAFETY: nulls where the interface forbids them, else valid objects and memory.
    unsafe {
        let write =
            |ep, at, count, peer| (ATOMIC.write)(ep, at, count, none, peer, 0, KEY, FI_UINT64, FI_SUM, none) as i64;
        let inject = |ep, at, count, peer| (ATOMIC.inject)(ep, at, count, peer, 0, KEY, FI_UINT64, FI_SUM) as i64;
        let fetch = |ep, at, count, peer| {
            (ATOMIC.readwrite)(ep, at, count, none, to, none, peer, 0, KEY, FI_UINT64, FI_SUM, none) as i64
        };
        let swap = |ep, at, count, peer| {
            (ATOMIC.compwrite)(ep, at, count, none, at, none, to, none, peer, 0, KEY, FI_UINT64, FI_CSWAP, none) as i64
        };
        type Call<'a> = &'a dyn Fn(Handle<FidEp>, *const c_void, usize, u64) -> i64;
        let calls: [(&str, Call<'_>); 4] = [
            ("fi_atomic", &write),
            ("fi_inject_atomic", &inject),
            ("fi_fetch_atomic", &fetch),
            ("fi_compare_atomic", &swap),
        ];
        let plain = World::new();
        for (what, call) in calls {
            t.row(&format!("{what} of no endpoint"), FI_EINVAL, || call(null_handle(), at, 1, 0));
            t.row(&format!("{what} without FI_ATOMIC"), FI_ENOSYS, || call(plain.ep, at, 1, 0));
            t.row(&format!("{what}, address"), FI_EINVAL, || call(ep, at, 1, NOBODY));
            t.row(&format!("{what}, null memory"), FI_EINVAL, || call(ep, null(), 1, 0));
            t.row(&format!("{what} of nothing"), FI_EINVAL, || call(ep, at, 0, 0));
            for count in [many, usize::MAX / 8 + 2, usize::MAX] {
                t.row(&format!("{what} of {count}"), FI_EMSGSIZE, || call(ep, at, count, 0));
            }
        }
        let nothing =
            || (ATOMIC.readwrite)(ep, at, 1, none, null_mut(), none, 0, 0, KEY, FI_UINT64, FI_SUM, none) as i64;
        t.row("fi_fetch_atomic to nowhere", FI_EINVAL, nothing);
        let (piece, range) = (FiIoc { addr: to, count: 2 }, FiRmaIoc { addr: 0, count: 2, key: KEY });
        let short = FiRmaIoc { count: 1, ..range };
        let good = FiMsgAtomic {
            msg_iov: &raw const piece,
            iov_count: 1,
            rma_iov: &raw const range,
            rma_iov_count: 1,
            datatype: FI_UINT64,
            op: FI_SUM,
            ..zeroed()
        };
        let msg = |change: &dyn Fn(&mut FiMsgAtomic), flags| {
            let mut msg = FiMsgAtomic { ..good };
            change(&mut msg);
            (ATOMIC.writemsg)(ep, &raw const msg, flags) as i64
        };
        t.row("fi_atomicmsg(null)", FI_EINVAL, || (ATOMIC.writemsg)(ep, null(), 0) as i64);
        t.row("fi_atomicmsg, unknown flag", FI_EBADFLAGS, || msg(&|_| (), UNKNOWN));
        t.row("fi_atomicmsg, another's flag", FI_EBADFLAGS, || msg(&|_| (), FI_REMOTE_CQ_DATA));
        t.row("fi_atomicmsg, no list", FI_EINVAL, || msg(&|m| m.msg_iov = null(), 0));
        t.row("fi_atomicmsg, endless list", FI_EINVAL, || msg(&|m| m.iov_count = usize::MAX, 0));
        t.row("fi_atomicmsg, long list", FI_EINVAL, || msg(&|m| m.iov_count = IOV_LIMIT + 1, 0));
        t.row("fi_atomicmsg, no range", FI_EINVAL, || msg(&|m| m.rma_iov = null(), 0));
        t.row("fi_atomicmsg, two ranges", FI_EINVAL, || msg(&|m| m.rma_iov_count = 2, 0));
        t.row("fi_atomicmsg, another count", FI_EINVAL, || msg(&|m| m.rma_iov = &raw const short, 0));
        t.row("fi_atomicmsg of another kind", FI_EOPNOTSUPP, || msg(&|m| m.op = FI_CSWAP, 0));
        let mut result = FiIoc { addr: to, count: 1 };
        let fetch = |result: *mut FiIoc, count| {
            (ATOMIC.readwritemsg)(ep, &raw const good, result, null_mut(), count, FI_COMPLETION) as i64
        };
        t.row("fi_fetch_atomicmsg, short result", FI_EINVAL, || fetch(&raw mut result, 1));
        t.row("fi_fetch_atomicmsg, no result", FI_EINVAL, || fetch(null_mut(), 1));
        t.row("fi_fetch_atomicmsg, an empty result", FI_EINVAL, || fetch(null_mut(), 0));
        let look = FiMsgAtomic { op: FI_ATOMIC_READ, msg_iov: null(), ..good };
        let read = |result| (ATOMIC.readwritemsg)(ep, &raw const look, result, null_mut(), 1, FI_COMPLETION) as i64;
        t.row("fi_fetch_atomicmsg that reads, another count", FI_EINVAL, || read(&raw mut result));
        let valid = |ep, count| (ATOMIC.writevalid)(ep, FI_UINT64, FI_SUM, count).into();
        let mut count = 0;
        t.row("fi_atomicvalid of no endpoint", FI_EINVAL, || valid(null_handle(), &raw mut count));
        t.row("fi_atomicvalid without FI_ATOMIC", FI_ENOSYS, || valid(plain.ep, &raw mut count));
        t.row("fi_atomicvalid to nowhere", FI_EINVAL, || valid(ep, null_mut()));
        let domain = c.world.base.domain;
        let mut attr: FiAtomicAttr = zeroed();
        let query = |domain, attr, flags| {
            ((*(*c.world.base.domain.raw()).ops).query_atomic)(domain, FI_UINT64, FI_SUM, attr, flags).into()
        };
        t.row("fi_query_atomic of no domain", FI_EINVAL, || query(null_handle(), &raw mut attr, 0));
        t.row("fi_query_atomic to nowhere", FI_EINVAL, || query(domain, null_mut(), 0));
        t.row("fi_query_atomic, both", FI_EBADFLAGS, || {
            query(domain, &raw mut attr, FI_FETCH_ATOMIC | FI_COMPARE_ATOMIC)
        });
        t.row("fi_query_atomic, tagged", FI_EOPNOTSUPP, || query(domain, &raw mut attr, FI_TAGGED));
    }
    t.end();
}
