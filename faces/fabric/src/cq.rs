//! Completion queues: poll the engines of the endpoints bound, translate what they say into the
//! format the application chose.

use crate::abi::*;
use crate::domain::Domain;
use crate::ep_core::EpCore;
use crate::guard;
use crate::handle::{Begins, Handle};
use crate::maybe_lock::MaybeLock;
use crate::news;
use crate::wait::{FdSet, Patience, Sleeper, Step};
use std::collections::VecDeque;
use std::ffi::{c_char, c_int, c_void};
use std::os::fd::{AsRawFd, RawFd};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use weir_engine::{Class, Completion, EventFd, OpError, OpKind, Queue};

/// Completions taken from an engine at once.
const BATCH: usize = 64;

/// An endpoint's direction that completes here.
struct Source {
    ep: Arc<EpCore>,
    queue: Queue,
}

/// A completion not yet read, with its sender as the application knows him.
struct Pending {
    completion: Completion,
    from: u64,
}

struct Inner {
    sources: Vec<Source>,
    /// The source polled first next time, so that a busy one starves no other.
    turn: usize,
    /// What could not be handed out at once: behind an error, or from an endpoint that was closed.
    pending: VecDeque<Pending>,
}

impl Inner {
    /// Polls all endpoints, and keeps what they have completed.
    fn poll_all(&mut self) {
        let Inner { sources, pending, .. } = self;
        sources.iter().for_each(|source| _ = source.keep(pending));
    }
}

impl Source {
    /// Polls the endpoint, and keeps what it has completed, a batch of it. Returns how many.
    fn keep(&self, pending: &mut VecDeque<Pending>) -> usize {
        let keep = |c: &Completion| pending.push_back(Pending { from: self.ep.address_of(c.source), completion: *c });
        self.ep.engine.poll_each(self.queue, BATCH, keep)
    }

    /// What to sleep on.
    fn fd(&self) -> Result<RawFd, i32> {
        self.ep.engine.fd_for(self.queue).map_err(|e| e.raw_os_error().unwrap_or(FI_EIO))
    }
}

/// A completion queue, shared with the endpoints bound to it.
pub struct Cq {
    inner: MaybeLock<Inner>,
    format: c_int,
    api_version: u32,
    signalled: AtomicBool,
    sleeper: Sleeper,
}

impl Cq {
    /// Completions of this endpoint's queue come here from now on.
    ///
    /// # Errors
    /// `FI_EOPBADSTATE` where a panic left the queue half changed.
    pub fn attach(&self, ep: &Arc<EpCore>, queue: Queue) -> Result<(), i32> {
        let mut inner = self.inner.lock()?;
        let source = Source { ep: ep.clone(), queue };
        if let Some((set, _)) = self.sleeper.existing() {
            set.add(source.fd()?);
        }
        inner.sources.push(source);
        Ok(())
    }

    /// Lets go of an endpoint; what it has completed stays readable.
    pub fn detach(&self, ep: &Arc<EpCore>) {
        let Ok(mut guard) = self.inner.lock() else { return };
        let inner = &mut *guard;
        let (gone, kept) = std::mem::take(&mut inner.sources).into_iter().partition(|s| Arc::ptr_eq(&s.ep, ep));
        inner.sources = kept;
        inner.turn = 0;
        // In a child made by fork(2) what the parent is sent is not to be read, and the set of
        // descriptors is the parent's too.
        if ep.engine.is_inherited() {
            return;
        }
        for source in gone as Vec<Source> {
            while source.keep(&mut inner.pending) > 0 {}
            if let (Some((set, _)), Ok(fd)) = (self.sleeper.existing(), source.fd()) {
                set.remove(fd);
            }
        }
    }

    /// Adds a completion made by the face itself (a peek's answer).
    pub fn push(&self, completion: Completion, from: u64) {
        let Ok(mut inner) = self.inner.lock() else { return };
        inner.pending.push_back(Pending { completion, from });
        drop(inner);
        if let Some((_, wake)) = self.sleeper.existing() {
            wake.signal();
        }
    }

    /// Prepares the application for sleeping on the descriptor, if there is nothing to read. A
    /// signal (`fi_cq_signal`) keeps it from that once.
    ///
    /// # Errors
    /// `FI_EAGAIN`.
    pub fn try_wait(&self) -> Result<(), i32> {
        if self.signalled.swap(false, Ordering::AcqRel) { Err(FI_EAGAIN) } else { self.arm() }
    }

    /// Prepares for sleeping on the descriptor.
    ///
    /// # Errors
    /// `FI_EAGAIN` when there is something to read.
    fn arm(&self) -> Result<(), i32> {
        let inner = self.inner.lock()?;
        let (_, wake) = self.sleeper(&inner)?;
        if !inner.pending.is_empty() || self.signalled.load(Ordering::Acquire) {
            return Err(FI_EAGAIN);
        }
        wake.clear();
        // Signalled between the two lines above: the signal must not be lost with the clearing.
        if self.signalled.load(Ordering::Acquire) {
            return Err(FI_EAGAIN);
        }
        if inner.sources.iter().all(|s| s.ep.engine.arm_for(s.queue)) { Ok(()) } else { Err(FI_EAGAIN) }
    }

    /// What to say where nothing was found.
    #[inline]
    fn nothing(inner: &Inner) -> Result<isize, i32> {
        // An endpoint that a panic left half changed completes nothing any more: who waits for it
        // must hear of that.
        inner.sources.iter().try_for_each(|s| s.ep.engine.check().map_err(|e| guard::code_of(&e)))?;
        Err(FI_EAGAIN)
    }

    /// The descriptors to sleep on; made now if need be, with all endpoints bound so far.
    fn sleeper(&self, inner: &Inner) -> Result<(&FdSet, &EventFd), i32> {
        if let Some((set, wake)) = self.sleeper.existing() {
            return Ok((set, wake));
        }
        // (Descriptors first: a set that was made is taken for whole.)
        let fds = inner.sources.iter().map(Source::fd).collect::<Result<Vec<_>, _>>()?;
        let (set, wake) = self.sleeper.get()?;
        fds.into_iter().for_each(|fd| set.add(fd));
        Ok((set, wake))
    }

    fn wait_fd(&self) -> Result<c_int, i32> {
        let inner = self.inner.lock()?;
        self.sleeper(&inner).map(|(set, _)| set.as_raw_fd())
    }

    /// Reads up to `count` completions.
    ///
    /// # Safety
    /// `buf` has room for `count` entries of the format; `from` is null or has room for `count`
    /// addresses.
    #[inline]
    unsafe fn read(&self, buf: *mut c_void, count: usize, from: *mut u64) -> Result<isize, i32> {
        let mut guard = self.inner.lock()?;
        let inner = &mut *guard;
        if !inner.pending.is_empty() || count == 0 {
            // Progress all the same: who probes in a loop gets nothing else here, and must not
            // starve his peers. Only a probe that found nothing counts as an empty poll, after
            // which the core may be given away.
            let nothing = matches!(inner.pending.front(), Some(p) if p.completion.result == Err(OpError::NoMessage));
            for source in &inner.sources {
                if nothing {
                    source.ep.engine.poll_each(source.queue, 0, |_| ());
                } else {
                    source.ep.engine.progress();
                }
            }
            // SAFETY: passed on from the caller.
            return unsafe { self.read_pending(inner, buf, count, from) };
        }
        let Inner { sources, pending, turn } = &mut *inner;
        let mut done = 0;
        for i in 0..sources.len() {
            let source = &sources[if sources.len() == 1 { 0 } else { (*turn + i) % sources.len() }];
            let ep = &*source.ep;
            let found = ep.engine.poll_each(source.queue, (count - done).min(BATCH), |c| {
                let address = ep.address_of(c.source);
                if c.result.is_err() || !pending.is_empty() {
                    // An error waits to be asked for, and behind it everything waits its turn.
                    pending.push_back(Pending { completion: *c, from: address });
                    return;
                }
                // SAFETY: `done < count`: there are no more than were asked for.
                unsafe { self.put(c, address, buf, done, from) };
                done += 1;
            });
            if found > 0 && (done == count || !pending.is_empty()) {
                break;
            }
        }
        inner.turn = inner.turn.wrapping_add(1);
        if done > 0 {
            Ok(done as isize)
        } else if inner.pending.is_empty() {
            Self::nothing(inner)
        } else {
            Err(FI_EAVAIL)
        }
    }

    /// The rare case: entries kept back, or a read of nothing (which only makes progress).
    #[cold]
    unsafe fn read_pending(
        &self,
        inner: &mut Inner,
        buf: *mut c_void,
        count: usize,
        from: *mut u64,
    ) -> Result<isize, i32> {
        if count == 0 && inner.pending.is_empty() {
            inner.poll_all();
            return if inner.pending.is_empty() { Self::nothing(inner) } else { Ok(0) };
        }
        let mut done = 0;
        while done < count {
            match inner.pending.front() {
                Some(p) if p.completion.result.is_err() => break,
                // SAFETY: `done < count`.
                Some(p) => unsafe { self.put(&p.completion, p.from, buf, done, from) },
                None => break,
            }
            inner.pending.pop_front();
            done += 1;
        }
        match (done, inner.pending.front()) {
            (0, Some(p)) if p.completion.result.is_err() => Err(FI_EAVAIL),
            _ => Ok(done as isize),
        }
    }

    /// Writes entry `at` of the caller's array.
    ///
    /// # Safety
    /// The arrays have an entry `at`; `from` may be null.
    #[inline]
    unsafe fn put(&self, c: &Completion, address: u64, buf: *mut c_void, at: usize, from: *mut u64) {
        let entry = FiCqTaggedEntry {
            op_context: c.context as *mut c_void,
            flags: flags_of(c),
            len: c.len,
            buf: std::ptr::with_exposed_provenance_mut(c.address),
            data: c.data.unwrap_or(0),
            tag: c.tag,
        };
        let size = entry_size(self.format);
        // SAFETY: the smaller formats are the beginning of the largest; the arrays have an entry
        // `at` (caller).
        unsafe {
            let to = buf.cast::<u8>().add(at * size);
            match size {
                48 => to.cast::<FiCqTaggedEntry>().write_unaligned(entry),
                n => ptr::copy_nonoverlapping((&raw const entry).cast::<u8>(), to, n),
            }
            if !from.is_null() {
                *from.add(at) = address;
            }
        }
    }

    unsafe fn read_blocking(
        &self,
        buf: *mut c_void,
        count: usize,
        from: *mut u64,
        timeout_ms: i32,
    ) -> Result<isize, i32> {
        let patience = Patience::new(timeout_ms);
        loop {
            // SAFETY: passed on from the caller.
            match unsafe { self.read(buf, count, from) } {
                Err(FI_EAGAIN) => {}
                done => return done,
            }
            if self.signalled.swap(false, Ordering::AcqRel) {
                return Err(FI_EAGAIN);
            }
            match patience.next() {
                Step::Over => return Err(FI_EAGAIN),
                Step::Spin => std::hint::spin_loop(),
                Step::Sleep(left) => {
                    if self.arm().is_ok() {
                        self.sleeper.get()?.0.wait(left);
                    }
                }
            }
        }
    }

    /// # Safety
    /// `out` is an error entry as long as the application's interface version says.
    unsafe fn read_error(&self, out: *mut FiCqErrEntry) -> Result<isize, i32> {
        let mut inner = self.inner.lock()?;
        let Some(front) = inner.pending.front() else { return Err(FI_EAGAIN) };
        let Err(error) = &front.completion.result else { return Err(FI_EAGAIN) };
        let (err, prov_errno) = guard::codes_of(error);
        news::explain(error);
        let c = &front.completion;
        let olen = if let OpError::Truncated { excess } = error { *excess } else { 0 };
        // SAFETY: fields up to `err_data` exist in every version; the later ones are written only
        // for versions that have them (caller).
        unsafe {
            (*out).op_context = c.context as *mut c_void;
            (*out).flags = flags_of(c);
            (*out).len = c.len;
            (*out).buf = std::ptr::with_exposed_provenance_mut(c.address);
            (*out).data = c.data.unwrap_or(0);
            (*out).tag = c.tag;
            (*out).olen = olen;
            (*out).err = err;
            (*out).prov_errno = prov_errno;
            // No error data is given: a caller's own buffer stays his, of length 0 now; without
            // one, the pointer is ours to set.
            if self.api_version < fi_version(1, 5) {
                (*out).err_data = ptr::null_mut();
            } else {
                if (*out).err_data_size == 0 {
                    (*out).err_data = ptr::null_mut();
                }
                (*out).err_data_size = 0;
            }
            if self.api_version >= fi_version(1, 20) {
                (*out).src_addr = front.from;
            }
        }
        inner.pending.pop_front();
        Ok(1)
    }
}

const fn entry_size(format: c_int) -> usize {
    match format {
        FI_CQ_FORMAT_CONTEXT => 8,
        FI_CQ_FORMAT_MSG => 24,
        FI_CQ_FORMAT_DATA => 40,
        _ => size_of::<FiCqTaggedEntry>(),
    }
}

#[inline]
fn flags_of(c: &Completion) -> u64 {
    let class = if c.class == Class::Tagged { FI_TAGGED } else { FI_MSG };
    let base = match c.kind {
        OpKind::Send => FI_SEND | class,
        OpKind::Recv | OpKind::Peek | OpKind::MultiRecvReleased => FI_RECV | class,
        OpKind::Write => FI_RMA | FI_WRITE,
        OpKind::Read => FI_RMA | FI_READ,
        OpKind::RemoteWrite => FI_RMA | FI_REMOTE_WRITE,
        OpKind::Atomic => FI_ATOMIC | FI_WRITE,
        OpKind::FetchAtomic => FI_ATOMIC | FI_READ,
    };
    let data = if c.data.is_some() && matches!(c.kind, OpKind::Recv | OpKind::Peek | OpKind::RemoteWrite) {
        FI_REMOTE_CQ_DATA
    } else {
        0
    };
    base | data | if c.multi_done { FI_MULTI_RECV } else { 0 }
}

/// The completion queue object.
#[repr(C)]
pub struct CqObj {
    fid: FidCq,
    /// What endpoints share.
    pub cq: Arc<Cq>,
    wait_obj: c_int,
    /// Only its endpoints can use it.
    pub domain: Arc<Domain>,
}

// SAFETY: `repr(C)`, the handle first; `open` gives it its class.
unsafe impl Begins for FidCq {
    type Object = CqObj;
    const CLASS: usize = FI_CLASS_CQ;
}

/// `fi_cq_open`.
///
/// # Safety
/// As libfabric's contract says.
pub unsafe extern "C" fn open(
    domain: Handle<FidDomain>,
    attr: *mut FiCqAttr,
    out: *mut *mut FidCq,
    context: *mut c_void,
) -> c_int {
    guard::int(|| {
        let domain = &domain.get()?.domain;
        // SAFETY: null or valid.
        let attr = unsafe { attr.as_ref() }.ok_or(FI_EINVAL)?;
        if out.is_null() {
            return Err(FI_EINVAL);
        }
        if !matches!(attr.wait_obj, FI_WAIT_NONE | FI_WAIT_UNSPEC | FI_WAIT_FD | FI_WAIT_YIELD) {
            return Err(FI_ENOSYS);
        }
        if attr.flags & !FI_AFFINITY != 0 {
            return Err(FI_EBADFLAGS);
        }
        if !(FI_CQ_FORMAT_UNSPEC..=FI_CQ_FORMAT_TAGGED).contains(&attr.format)
            || !(FI_CQ_COND_NONE..=FI_CQ_COND_THRESHOLD).contains(&attr.wait_cond)
        {
            return Err(FI_EINVAL);
        }
        let inner = Inner { sources: Vec::new(), turn: 0, pending: VecDeque::new() };
        let cq = Cq {
            // SAFETY: the lock is left out only if the application promised to serialise its calls
            // on the domain's objects.
            inner: unsafe { MaybeLock::new(inner, !domain.serialised) },
            format: if attr.format == FI_CQ_FORMAT_UNSPEC { FI_CQ_FORMAT_TAGGED } else { attr.format },
            api_version: domain.fabric.api_version,
            signalled: AtomicBool::new(false),
            sleeper: Sleeper::default(),
        };
        let object = Box::new(CqObj {
            fid: FidCq { fid: Fid { fclass: FI_CLASS_CQ, context, ops: &raw const OPS }, ops: &raw const CQ_OPS },
            cq: Arc::new(cq),
            wait_obj: attr.wait_obj,
            domain: domain.clone(),
        });
        // SAFETY: writable (checked for null).
        unsafe { *out = Box::into_raw(object).cast() };
        Ok(0)
    })
}

static OPS: FiOps = FiOps {
    size: size_of::<FiOps>(),
    close,
    bind: no_bind,
    control,
    ops_open: refused,
    tostr: refused,
    ops_set: refused,
};
static CQ_OPS: FiOpsCq =
    FiOpsCq { size: size_of::<FiOpsCq>(), read, readfrom, readerr, sread, sreadfrom, signal, strerror };

unsafe extern "C" fn close(fid: Handle<Fid>) -> c_int {
    guard::int(|| {
        if Arc::strong_count(&fid.object::<FidCq>()?.cq) > 1 {
            return Err(FI_EBUSY);
        }
        // SAFETY: made by `Box::into_raw` in `open`, closed once.
        drop(unsafe { Box::from_raw(fid.raw().cast::<CqObj>()) });
        Ok(0)
    })
}

unsafe extern "C" fn control(fid: Handle<Fid>, command: c_int, arg: *mut c_void) -> c_int {
    guard::int(|| {
        let object = fid.object::<FidCq>()?;
        if arg.is_null() {
            return Err(FI_EINVAL);
        }
        let answer = match command {
            FI_GETWAIT if matches!(object.wait_obj, FI_WAIT_FD | FI_WAIT_UNSPEC) => object.cq.wait_fd()?,
            FI_GETWAITOBJ => object.wait_obj,
            _ => return Err(FI_ENOSYS),
        };
        // SAFETY: the argument is where the answer goes.
        unsafe { *arg.cast::<c_int>() = answer };
        Ok(0)
    })
}

/// Whether the caller's array can be used.
#[inline]
fn check(buf: *mut c_void, count: usize) -> Result<(), i32> {
    if buf.is_null() && count > 0 { Err(FI_EINVAL) } else { Ok(()) }
}

unsafe extern "C" fn read(fid: Handle<FidCq>, buf: *mut c_void, count: usize) -> isize {
    guard::size(|| {
        check(buf, count)?;
        // SAFETY: the caller's array has `count` entries.
        unsafe { fid.get()?.cq.read(buf, count, ptr::null_mut()) }
    })
}

unsafe extern "C" fn readfrom(fid: Handle<FidCq>, buf: *mut c_void, count: usize, from: *mut u64) -> isize {
    guard::size(|| {
        check(buf, count)?;
        // SAFETY: as in `read`, and `from` is null or has `count` entries.
        unsafe { fid.get()?.cq.read(buf, count, from) }
    })
}

/// The interface names no flag here. One that is not known could ask to leave the error where it
/// is, which must not be lost to a misunderstanding.
unsafe extern "C" fn readerr(fid: Handle<FidCq>, out: *mut FiCqErrEntry, flags: u64) -> isize {
    guard::size(|| {
        if flags != 0 {
            return Err(FI_EBADFLAGS);
        }
        if out.is_null() {
            return Err(FI_EINVAL);
        }
        // SAFETY: null or a handle of ours; the entry is as long as the version the fabric was
        // opened with says.
        unsafe { fid.get()?.cq.read_error(out) }
    })
}

unsafe extern "C" fn sread(
    fid: Handle<FidCq>,
    buf: *mut c_void,
    count: usize,
    _cond: *const c_void,
    timeout: c_int,
) -> isize {
    guard::size(|| {
        check(buf, count)?;
        // SAFETY: as in `read`.
        unsafe { fid.get()?.cq.read_blocking(buf, count, ptr::null_mut(), timeout) }
    })
}

unsafe extern "C" fn sreadfrom(
    fid: Handle<FidCq>,
    buf: *mut c_void,
    count: usize,
    from: *mut u64,
    _cond: *const c_void,
    timeout: c_int,
) -> isize {
    guard::size(|| {
        check(buf, count)?;
        // SAFETY: as in `readfrom`.
        unsafe { fid.get()?.cq.read_blocking(buf, count, from, timeout) }
    })
}

unsafe extern "C" fn signal(fid: Handle<FidCq>) -> c_int {
    guard::int(|| {
        let cq = &fid.get()?.cq;
        cq.signalled.store(true, Ordering::Release);
        if let Some((_, wake)) = cq.sleeper.existing() {
            wake.signal();
        }
        Ok(0)
    })
}

unsafe extern "C" fn strerror(
    _: Handle<FidCq>,
    prov_errno: c_int,
    _: *const c_void,
    buf: *mut c_char,
    len: usize,
) -> *const c_char {
    // SAFETY: the caller's buffer.
    guard::guard(ptr::null(), || unsafe { guard::error_text(prov_errno, buf, len) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Table;
    use std::time::Duration;
    use weir_engine::{Endpoint, EngineConfig, PeekOp};

    fn queue() -> Cq {
        Cq {
            // SAFETY: with its lock.
            inner: unsafe { MaybeLock::new(Inner { sources: Vec::new(), turn: 0, pending: VecDeque::new() }, true) },
            format: FI_CQ_FORMAT_TAGGED,
            api_version: fi_version(1, 20),
            signalled: AtomicBool::new(false),
            sleeper: Sleeper::default(),
        }
    }

    /// An endpoint that gives the core away at its first empty poll.
    fn endpoint() -> Arc<EpCore> {
        let addrs = vec!["127.0.0.1".parse().expect("address")];
        let config = EngineConfig { addrs, spin_us: 0, ..EngineConfig::default() };
        let engine = Endpoint::open_with_key(config, [1; 32]).expect("open");
        Arc::new(EpCore { engine, forward: Table::new(), reverse: Table::new() })
    }

    fn answer(result: Result<(), OpError>) -> Completion {
        let class = Class::Tagged;
        let op = PeekOp { source: None, class, tag: 0, ignore: 0, claim: false, discard: false, context: 1 };
        Completion { result, ..Completion::nothing_found(&op) }
    }

    fn read_one(cq: &Cq) -> Result<isize, i32> {
        let mut entry = [0u8; size_of::<FiCqTaggedEntry>()];
        // SAFETY: room for one entry of the largest format.
        unsafe { cq.read(entry.as_mut_ptr().cast(), 1, ptr::null_mut()) }
    }

    fn yields(ep: &EpCore) -> u64 {
        let json = ep.engine.counters_json();
        let at = json.split("\"yields\":").nth(1).expect("counter");
        at.split([',', '}']).next().and_then(|n| n.parse().ok()).expect("number")
    }

    #[test]
    fn only_a_probe_that_found_nothing_may_give_the_core_away() {
        let (cq, ep) = (queue(), endpoint());
        cq.attach(&ep, Queue::Both).expect("in order");
        std::thread::sleep(Duration::from_millis(1));
        for _ in 0..10 {
            cq.push(answer(Ok(())), 0);
            assert_eq!(read_one(&cq), Ok(1));
        }
        assert_eq!(yields(&ep), 0, "a completion was there to be handed out");
        cq.push(answer(Err(OpError::NoMessage)), 0);
        assert_eq!(read_one(&cq), Err(FI_EAVAIL));
        assert!(yields(&ep) > 0, "who probes in a loop leaves the core to others");
    }

    #[test]
    fn a_probes_answer_wakes_another_thread_that_sleeps_on_the_queue() {
        let (cq, ep) = (queue(), endpoint());
        cq.attach(&ep, Queue::Both).expect("in order");
        cq.arm().expect("nothing to read");
        let mut set = libc::pollfd { fd: cq.wait_fd().expect("descriptor"), events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid entry.
        assert_eq!(unsafe { libc::poll(&raw mut set, 1, 0) }, 0, "asleep");
        cq.push(answer(Ok(())), 0);
        // SAFETY: as above.
        assert_eq!(unsafe { libc::poll(&raw mut set, 1, 0) }, 1, "awake");
        assert_eq!(cq.arm(), Err(FI_EAGAIN), "there is something to read");
    }

    #[test]
    fn a_queue_that_a_panic_left_half_changed_is_not_used_any_more() {
        let (cq, ep) = (queue(), endpoint());
        cq.attach(&ep, Queue::Both).expect("in order");
        cq.push(answer(Ok(())), 0);
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _held = cq.inner.lock();
            std::panic::resume_unwind(Box::new("a bug"));
        }));
        assert!(caught.is_err());
        assert_eq!(read_one(&cq), Err(FI_EOPBADSTATE));
        assert_eq!(cq.arm(), Err(FI_EOPBADSTATE));
        cq.push(answer(Ok(())), 0);
        cq.detach(&ep);
    }
}
