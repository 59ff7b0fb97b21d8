//! `fi_atomic` and its kin: atomic operations on remote memory.
//!
//! Only for an endpoint that was asked for with `FI_ATOMIC`: an MPI that takes all that is offered
//! would else do with it what messages do better.

use crate::abi::*;
use crate::ep::EpObj;
use crate::guard::{code_of, int, size};
use crate::handle::Handle;
use crate::info::IOV_LIMIT;
use crate::transfer::*;
use std::ffi::{c_int, c_void};
use std::ptr;
use weir_engine::{AMO_COUNT_MAX, AmoOp, Atomic, AtomicOp, AtomicType, Iov};

/// The endpoint's atomic calls.
pub static ATOMIC_OPS: FiOpsAtomic = FiOpsAtomic {
    size: size_of::<FiOpsAtomic>(),
    write,
    writev,
    writemsg,
    inject,
    readwrite,
    readwritev,
    readwritemsg,
    compwrite,
    compwritev,
    compwritemsg,
    writevalid,
    readwritevalid,
    compwritevalid,
};

const FLAGS: u64 =
    FI_COMPLETION | FI_MORE | FI_INJECT | FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE;

/// The three sets of calls.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Base,
    Fetch,
    Compare,
}

/// The operation, if it is one for these calls. Operations and types have libfabric's numbers in
/// the same order as ours.
fn operation(form: Form, datatype: c_int, op: c_int) -> Result<Atomic, i32> {
    let of = usize::try_from(datatype).ok().and_then(|n| AtomicType::ALL.get(n)).ok_or(FI_EOPNOTSUPP)?;
    let op = usize::try_from(op).ok().and_then(|n| AtomicOp::ALL.get(n)).ok_or(FI_EOPNOTSUPP)?;
    let fits = match form {
        Form::Base => !op.has_compare() && *op != AtomicOp::Read,
        Form::Fetch => !op.has_compare(),
        Form::Compare => op.has_compare(),
    };
    Atomic::new(*op, *of).filter(|_| fits).ok_or(FI_EOPNOTSUPP)
}

/// A list of elements in the caller's memory.
struct Elements {
    list: [Iov; IOV_LIMIT],
    pieces: usize,
    count: usize,
}

impl Elements {
    fn one(addr: *const c_void, count: usize, of: AtomicType) -> Result<Elements, i32> {
        // SAFETY: one entry.
        unsafe { Elements::new(&FiIoc { addr: addr.cast_mut(), count }, 1, of) }
    }

    /// # Errors
    /// `FI_EINVAL` when the list is too long or null, `FI_EMSGSIZE` when it has too many elements.
    ///
    /// # Safety
    /// `list` is null or has `pieces` entries.
    unsafe fn new(list: *const FiIoc, pieces: usize, of: AtomicType) -> Result<Elements, i32> {
        if pieces > IOV_LIMIT || list.is_null() && pieces > 0 {
            return Err(FI_EINVAL);
        }
        let mut all = Elements { list: [Iov { base: ptr::null_mut(), len: 0 }; IOV_LIMIT], pieces, count: 0 };
        for i in 0..pieces {
            // SAFETY: below `pieces` (caller).
            let piece = unsafe { &*list.add(i) };
            all.count = all.count.saturating_add(piece.count);
            if all.count > AMO_COUNT_MAX as usize {
                return Err(FI_EMSGSIZE);
            }
            all.list[i] = Iov { base: piece.addr.cast(), len: piece.count * of.bytes() };
        }
        Ok(all)
    }

    fn none() -> Elements {
        Elements { list: [Iov { base: ptr::null_mut(), len: 0 }; IOV_LIMIT], pieces: 0, count: 0 }
    }

    fn as_slice(&self) -> &[Iov] {
        &self.list[..self.pieces]
    }
}

/// The memory of an operation.
struct Operands {
    operand: Elements,
    compare: Elements,
    /// None: the calls that want none.
    result: Option<Elements>,
}

/// A place in a peer's memory.
struct Place {
    peer: u64,
    addr: u64,
    key: u64,
    /// How many elements are there, where the call says so.
    elements: Option<usize>,
}

/// Starts an operation.
///
/// # Safety
/// The operands are readable during the call, the result is the application's loan until the
/// completion.
unsafe fn start(
    ep: &EpObj,
    atomic: Atomic,
    memory: &Operands,
    at: &Place,
    context: *mut c_void,
    how: How,
) -> Result<isize, i32> {
    let Operands { operand, compare, result } = memory;
    let result = result.as_ref();
    let wanted = if atomic.op().has_operand() { Some(operand) } else { result }.map_or(0, |all| all.count);
    // One that fetches has room for each element: without any it would be another operation.
    if result.is_some_and(|all| all.count != wanted) || at.elements.is_some_and(|there| there != wanted) {
        return Err(FI_EINVAL);
    }
    if how.copy {
        fits(operand.as_slice(), ep.inject_size())?;
    }
    let op = AmoOp {
        peer: ep.peer(at.peer)?,
        atomic,
        count: wanted as u32,
        operand: if atomic.op().has_operand() { operand.as_slice() } else { &[] },
        compare: compare.as_slice(),
        result: result.map_or(&[], Elements::as_slice),
        remote_addr: at.addr,
        key: at.key,
        report: how.report,
        context: context as usize,
        user: 0,
    };
    // SAFETY: passed on from the caller.
    unsafe { ep.core.engine.atomic(&op) }.map(|()| 0).map_err(|e| code_of(&e))
}

unsafe extern "C" fn write(
    ep: Handle<FidEp>,
    buf: *const c_void,
    count: usize,
    _desc: *mut c_void,
    peer: u64,
    addr: u64,
    key: u64,
    datatype: c_int,
    op: c_int,
    context: *mut c_void,
) -> isize {
    size(|| {
        let ep = EpObj::atomic(&ep)?;
        let atomic = operation(Form::Base, datatype, op)?;
        let operand = Elements::one(buf, count, atomic.of())?;
        let memory = Operands { operand, compare: Elements::none(), result: None };
        // SAFETY: see `start`.
        unsafe { start(ep, atomic, &memory, &Place { peer, addr, key, elements: None }, context, by_default(ep)) }
    })
}

unsafe extern "C" fn writev(
    ep: Handle<FidEp>,
    iov: *const FiIoc,
    _desc: *mut *mut c_void,
    count: usize,
    peer: u64,
    addr: u64,
    key: u64,
    datatype: c_int,
    op: c_int,
    context: *mut c_void,
) -> isize {
    size(|| {
        let ep = EpObj::atomic(&ep)?;
        let atomic = operation(Form::Base, datatype, op)?;
        // SAFETY: `count` entries.
        let operand = unsafe { Elements::new(iov, count, atomic.of()) }?;
        let memory = Operands { operand, compare: Elements::none(), result: None };
        // SAFETY: see `start`.
        unsafe { start(ep, atomic, &memory, &Place { peer, addr, key, elements: None }, context, by_default(ep)) }
    })
}

/// What stands in a list of operands. What is only read has none, and nobody looks at what stands
/// there.
///
/// # Safety
/// `list` is null or has `pieces` entries.
unsafe fn operand_of(atomic: Atomic, list: *const FiIoc, pieces: usize) -> Result<Elements, i32> {
    // SAFETY: passed on from the caller.
    if atomic.op().has_operand() { unsafe { Elements::new(list, pieces, atomic.of()) } } else { Ok(Elements::none()) }
}

/// The operation, the operands and the place of a message-style call; there is one range.
///
/// # Safety
/// The message has `iov_count` and `rma_iov_count` entries.
unsafe fn unpack(msg: &FiMsgAtomic, form: Form) -> Result<(Atomic, Elements, Place), i32> {
    let atomic = operation(form, msg.datatype, msg.op)?;
    // SAFETY: `iov_count` entries (caller).
    let operand = unsafe { operand_of(atomic, msg.msg_iov, msg.iov_count) }?;
    // SAFETY: null or `rma_iov_count` entries, of which there is one.
    let remote = unsafe { msg.rma_iov.as_ref() }.filter(|_| msg.rma_iov_count == 1).ok_or(FI_EINVAL)?;
    let place = Place { peer: msg.addr, addr: remote.addr, key: remote.key, elements: Some(remote.count) };
    Ok((atomic, operand, place))
}

unsafe extern "C" fn writemsg(ep: Handle<FidEp>, msg: *const FiMsgAtomic, flags: u64) -> isize {
    size(|| {
        let ep = EpObj::atomic(&ep)?;
        // SAFETY: null or a message.
        let msg = unsafe { msg.as_ref() }.ok_or(FI_EINVAL)?;
        let how = by_flags(ep, flags, FLAGS)?;
        // SAFETY: a valid message.
        let (atomic, operand, place) = unsafe { unpack(msg, Form::Base) }?;
        let memory = Operands { operand, compare: Elements::none(), result: None };
        // SAFETY: see `start`.
        unsafe { start(ep, atomic, &memory, &place, msg.context, how) }
    })
}

unsafe extern "C" fn inject(
    ep: Handle<FidEp>,
    buf: *const c_void,
    count: usize,
    peer: u64,
    addr: u64,
    key: u64,
    datatype: c_int,
    op: c_int,
) -> isize {
    size(|| {
        let ep = EpObj::atomic(&ep)?;
        let atomic = operation(Form::Base, datatype, op)?;
        let operand = Elements::one(buf, count, atomic.of())?;
        let memory = Operands { operand, compare: Elements::none(), result: None };
        // SAFETY: see `start`.
        unsafe { start(ep, atomic, &memory, &Place { peer, addr, key, elements: None }, ptr::null_mut(), INJECTED) }
    })
}

unsafe extern "C" fn readwrite(
    ep: Handle<FidEp>,
    buf: *const c_void,
    count: usize,
    _desc: *mut c_void,
    result: *mut c_void,
    _result_desc: *mut c_void,
    peer: u64,
    addr: u64,
    key: u64,
    datatype: c_int,
    op: c_int,
    context: *mut c_void,
) -> isize {
    size(|| {
        let ep = EpObj::atomic(&ep)?;
        let atomic = operation(Form::Fetch, datatype, op)?;
        let operand = Elements::one(buf, count, atomic.of())?;
        let result = Elements::one(result, count, atomic.of())?;
        let memory = Operands { operand, compare: Elements::none(), result: Some(result) };
        // SAFETY: see `start`.
        unsafe { start(ep, atomic, &memory, &Place { peer, addr, key, elements: None }, context, by_default(ep)) }
    })
}

unsafe extern "C" fn readwritev(
    ep: Handle<FidEp>,
    iov: *const FiIoc,
    _desc: *mut *mut c_void,
    count: usize,
    resultv: *mut FiIoc,
    _result_desc: *mut *mut c_void,
    result_count: usize,
    peer: u64,
    addr: u64,
    key: u64,
    datatype: c_int,
    op: c_int,
    context: *mut c_void,
) -> isize {
    size(|| {
        let ep = EpObj::atomic(&ep)?;
        let atomic = operation(Form::Fetch, datatype, op)?;
        // SAFETY: as many entries as are said.
        let (operand, result) =
            unsafe { (operand_of(atomic, iov, count)?, Elements::new(resultv, result_count, atomic.of())?) };
        let memory = Operands { operand, compare: Elements::none(), result: Some(result) };
        // SAFETY: see `start`.
        unsafe { start(ep, atomic, &memory, &Place { peer, addr, key, elements: None }, context, by_default(ep)) }
    })
}

unsafe extern "C" fn readwritemsg(
    ep: Handle<FidEp>,
    msg: *const FiMsgAtomic,
    resultv: *mut FiIoc,
    _result_desc: *mut *mut c_void,
    result_count: usize,
    flags: u64,
) -> isize {
    size(|| {
        let ep = EpObj::atomic(&ep)?;
        // SAFETY: null or a message.
        let msg = unsafe { msg.as_ref() }.ok_or(FI_EINVAL)?;
        let how = by_flags(ep, flags, FLAGS)?;
        // SAFETY: a valid message.
        let (atomic, operand, place) = unsafe { unpack(msg, Form::Fetch) }?;
        // SAFETY: as many entries as are said.
        let result = unsafe { Elements::new(resultv, result_count, atomic.of()) }?;
        let memory = Operands { operand, compare: Elements::none(), result: Some(result) };
        // SAFETY: see `start`.
        unsafe { start(ep, atomic, &memory, &place, msg.context, how) }
    })
}

unsafe extern "C" fn compwrite(
    ep: Handle<FidEp>,
    buf: *const c_void,
    count: usize,
    _desc: *mut c_void,
    compare: *const c_void,
    _compare_desc: *mut c_void,
    result: *mut c_void,
    _result_desc: *mut c_void,
    peer: u64,
    addr: u64,
    key: u64,
    datatype: c_int,
    op: c_int,
    context: *mut c_void,
) -> isize {
    size(|| {
        let ep = EpObj::atomic(&ep)?;
        let atomic = operation(Form::Compare, datatype, op)?;
        let all = |at| Elements::one(at, count, atomic.of());
        let memory = Operands { operand: all(buf)?, compare: all(compare)?, result: Some(all(result)?) };
        // SAFETY: see `start`.
        unsafe { start(ep, atomic, &memory, &Place { peer, addr, key, elements: None }, context, by_default(ep)) }
    })
}

unsafe extern "C" fn compwritev(
    ep: Handle<FidEp>,
    iov: *const FiIoc,
    _desc: *mut *mut c_void,
    count: usize,
    comparev: *const FiIoc,
    _compare_desc: *mut *mut c_void,
    compare_count: usize,
    resultv: *mut FiIoc,
    _result_desc: *mut *mut c_void,
    result_count: usize,
    peer: u64,
    addr: u64,
    key: u64,
    datatype: c_int,
    op: c_int,
    context: *mut c_void,
) -> isize {
    size(|| {
        let ep = EpObj::atomic(&ep)?;
        let atomic = operation(Form::Compare, datatype, op)?;
        // SAFETY: as many entries as are said.
        let memory = unsafe {
            Operands {
                operand: Elements::new(iov, count, atomic.of())?,
                compare: Elements::new(comparev, compare_count, atomic.of())?,
                result: Some(Elements::new(resultv, result_count, atomic.of())?),
            }
        };
        // SAFETY: see `start`.
        unsafe { start(ep, atomic, &memory, &Place { peer, addr, key, elements: None }, context, by_default(ep)) }
    })
}

unsafe extern "C" fn compwritemsg(
    ep: Handle<FidEp>,
    msg: *const FiMsgAtomic,
    comparev: *const FiIoc,
    _compare_desc: *mut *mut c_void,
    compare_count: usize,
    resultv: *mut FiIoc,
    _result_desc: *mut *mut c_void,
    result_count: usize,
    flags: u64,
) -> isize {
    size(|| {
        let ep = EpObj::atomic(&ep)?;
        // SAFETY: null or a message.
        let msg = unsafe { msg.as_ref() }.ok_or(FI_EINVAL)?;
        let how = by_flags(ep, flags, FLAGS)?;
        // SAFETY: a valid message.
        let (atomic, operand, place) = unsafe { unpack(msg, Form::Compare) }?;
        // SAFETY: as many entries as are said.
        let (compare, result) = unsafe {
            (Elements::new(comparev, compare_count, atomic.of())?, Elements::new(resultv, result_count, atomic.of())?)
        };
        // SAFETY: see `start`.
        unsafe { start(ep, atomic, &Operands { operand, compare, result: Some(result) }, &place, msg.context, how) }
    })
}

/// Whether the endpoint has an operation, and for how many elements a call.
fn valid(ep: &Handle<FidEp>, form: Form, datatype: c_int, op: c_int, count: *mut usize) -> c_int {
    int(|| {
        if !ep.get()?.atomic {
            return Err(FI_ENOSYS);
        }
        operation(form, datatype, op)?;
        // SAFETY: null or a place for the answer.
        *unsafe { count.as_mut() }.ok_or(FI_EINVAL)? = AMO_COUNT_MAX as usize;
        Ok(0)
    })
}

unsafe extern "C" fn writevalid(ep: Handle<FidEp>, datatype: c_int, op: c_int, count: *mut usize) -> c_int {
    valid(&ep, Form::Base, datatype, op, count)
}

unsafe extern "C" fn readwritevalid(ep: Handle<FidEp>, datatype: c_int, op: c_int, count: *mut usize) -> c_int {
    valid(&ep, Form::Fetch, datatype, op, count)
}

unsafe extern "C" fn compwritevalid(ep: Handle<FidEp>, datatype: c_int, op: c_int, count: *mut usize) -> c_int {
    valid(&ep, Form::Compare, datatype, op, count)
}

/// `fi_query_atomic`: what endpoints of a domain have that are asked for with `FI_ATOMIC`.
///
/// # Safety
/// As libfabric's contract says.
pub unsafe extern "C" fn query(
    domain: Handle<FidDomain>,
    datatype: c_int,
    op: c_int,
    attr: *mut FiAtomicAttr,
    flags: u64,
) -> c_int {
    int(|| {
        domain.get()?;
        let form = match flags {
            0 => Form::Base,
            FI_FETCH_ATOMIC => Form::Fetch,
            FI_COMPARE_ATOMIC => Form::Compare,
            // Atomic operations on receive buffers, or nothing known.
            FI_TAGGED => return Err(FI_EOPNOTSUPP),
            _ => return Err(FI_EBADFLAGS),
        };
        let atomic = operation(form, datatype, op)?;
        // SAFETY: null or a place for the answer.
        let attr = unsafe { attr.as_mut() }.ok_or(FI_EINVAL)?;
        *attr = FiAtomicAttr { count: AMO_COUNT_MAX as usize, size: atomic.of().bytes() };
        Ok(0)
    })
}
