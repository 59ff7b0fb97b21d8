//! Endpoints: one engine each; opening, binding, options, names. The data transfer calls are in
//! `msg`, `tagged`, `rma` and `atomic`.

use crate::abi::*;
use crate::addr::{self, Name};
use crate::cq::Cq;
use crate::ep::EpObj;
use crate::ep_core::{ENDPOINTS, EpCore};
use crate::guard;
use crate::handle::Handle;
use crate::info;
use crate::lines;
use crate::params;
use crate::table::Table;
use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use weir_engine::{Endpoint, EngineError, Queue};

/// The first endpoint of a process takes the port from the settings; further ones cannot, unless it
/// is a range.
fn open_engine(source: Option<Name>) -> Result<Arc<Endpoint>, i32> {
    let attempt = || -> Result<Arc<Endpoint>, EngineError> {
        let mut config = params::engine_config()?;
        config.warnings().iter().for_each(|line| lines::complain(line));
        if let Some((port, addrs)) = source.as_ref().and_then(addr::parts) {
            (config.port, config.port_span) = (port, 1);
            if !addrs.is_empty() {
                config.addrs = addrs;
            }
        } else if config.port != 0 && config.port_span == 1 {
            static TAKEN: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);
            if TAKEN.swap(true, std::sync::atomic::Ordering::AcqRel) {
                config.port = 0;
            }
        }
        start(config).map_err(params::by_its_name)
    };
    params::unknown_names().iter().for_each(|line| lines::complain(line));
    let opened = attempt().map_err(|e| {
        lines::complain(&e.to_string());
        guard::code_of(&e)
    });
    if opened.is_ok() {
        leave_mark(std::env::var_os("WEIR_AGENT_MARK"));
    }
    opened
}

#[cfg(not(test))]
fn start(config: weir_engine::EngineConfig) -> Result<Arc<Endpoint>, EngineError> {
    Endpoint::open(config, crate::news::sink())
}

/// Tests have a key of their own, and do not wait for messages that nobody will receive.
#[cfg(test)]
fn start(config: weir_engine::EngineConfig) -> Result<Arc<Endpoint>, EngineError> {
    let linger = std::time::Duration::from_millis(20);
    let watchdog_us = crate::tests::WATCHDOG_US.get();
    Endpoint::open_told(weir_engine::EngineConfig { linger, watchdog_us, ..config }, [7; 32], crate::news::sink())
}

/// Tells `weir run`, which names this file, that its program uses Weir. Without the file it only
/// says so in vain.
fn leave_mark(file: Option<std::ffi::OsString>) {
    if let Some(file) = file.filter(|file| !file.is_empty()) {
        let _ = std::fs::OpenOptions::new().write(true).create(true).truncate(false).open(file);
    }
}

/// `fi_endpoint`.
///
/// # Safety
/// As libfabric's contract says.
pub unsafe extern "C" fn open(
    domain: Handle<FidDomain>,
    info: *mut FiInfo,
    out: *mut *mut FidEp,
    context: *mut c_void,
) -> c_int {
    guard::int(|| {
        let domain = &domain.get()?.domain;
        // SAFETY: null or valid, as are its parts.
        let info = unsafe { info.as_ref() }.ok_or(FI_EINVAL)?;
        // SAFETY: as above.
        let (tx, rx, ep_attr) = unsafe { (info.tx_attr.as_ref(), info.rx_attr.as_ref(), info.ep_attr.as_ref()) };
        if out.is_null() || ep_attr.is_some_and(|e| e.ep_type != FI_EP_UNSPEC && e.ep_type != FI_EP_RDM) {
            return Err(FI_EINVAL);
        }
        if ep_attr.is_some_and(|e| e.tx_ctx_cnt > 1 || e.rx_ctx_cnt > 1) {
            return Err(FI_ENOSYS);
        }
        let (tx_flags, rx_flags) = (tx.map_or(0, |t| t.op_flags), rx.map_or(0, |r| r.op_flags));
        if tx_flags & !info::TX_OP_FLAGS != 0 || rx_flags & !info::RX_OP_FLAGS != 0 {
            return Err(FI_EBADFLAGS);
        }
        info::check_endpoint_of(domain.fabric.api_version, info.caps, ep_attr, tx, rx)?;
        // SAFETY: the address has the length beside it.
        let source = unsafe { addr::from_hint(info.src_addr, info.src_addrlen) };
        if source.is_none() && !info.src_addr.is_null() {
            return Err(FI_EINVAL);
        }
        let core = Arc::new(EpCore { engine: open_engine(source)?, forward: Table::new(), reverse: Table::new() });
        domain.add_ep(&core)?;
        core.engine.join(&ENDPOINTS);
        let object = Box::new(EpObj {
            fid: FidEp {
                fid: Fid { fclass: FI_CLASS_EP, context, ops: &raw const OPS },
                ops: &raw const EP_OPS,
                cm: &raw const CM_OPS,
                msg: &raw const crate::msg::MSG_OPS,
                rma: &raw const crate::rma::RMA_OPS,
                tagged: &raw const crate::tagged::TAGGED_OPS,
                atomic: &raw const crate::atomic::ATOMIC_OPS,
                collective: &raw const COLLECTIVE_OPS,
            },
            core,
            enabled: false,
            atomic: (info.caps | tx.map_or(0, |t| t.caps)) & FI_ATOMIC != 0,
            directed: (info.caps | rx.map_or(0, |r| r.caps)) & FI_DIRECTED_RECV != 0,
            tx_selective: false,
            rx_selective: false,
            tx_flags: AtomicU64::new(tx_flags),
            rx_flags: AtomicU64::new(rx_flags),
            min_multi_recv: AtomicUsize::new(64),
            inject_size: AtomicUsize::new(params::inject_size()),
            max_msg_size: AtomicUsize::new(info::MAX_MSG),
            av: None,
            tx_cq: None,
            rx_cq: None,
            cntrs: Vec::new(),
            counted: 0,
            domain: domain.clone(),
        });
        // SAFETY: writable (checked for null).
        unsafe { *out = Box::into_raw(object).cast() };
        Ok(0)
    })
}

static OPS: FiOps =
    FiOps { size: size_of::<FiOps>(), close, bind, control, ops_open: refused, tostr: refused, ops_set: refused };
static EP_OPS: FiOpsEp = FiOpsEp {
    size: size_of::<FiOpsEp>(),
    cancel,
    getopt,
    setopt,
    tx_ctx: refused,
    rx_ctx: refused,
    rx_size_left: refused,
    tx_size_left: refused,
};
static CM_OPS: FiOpsCm = FiOpsCm {
    size: size_of::<FiOpsCm>(),
    setname: refused,
    getname,
    getpeer: refused,
    connect: refused,
    listen: refused,
    accept: refused,
    reject: refused,
    shutdown: refused,
    join: refused,
};
static COLLECTIVE_OPS: FiOpsCollective = FiOpsCollective { size: size_of::<FiOpsCollective>(), ops: [refused; 11] };

/// Closes: what was sent still arrives (the engine lingers for that); completions already made stay
/// readable; memory of operations under way is free afterwards.
unsafe extern "C" fn close(fid: Handle<Fid>) -> c_int {
    guard::int(|| {
        fid.object::<FidEp>()?;
        // SAFETY: made by `Box::into_raw` in `open`, closed once.
        let ep = unsafe { Box::from_raw(fid.raw().cast::<EpObj>()) };
        ep.core.engine.close();
        for cq in [&ep.tx_cq, &ep.rx_cq].into_iter().flatten() {
            cq.detach(&ep.core);
        }
        for cntr in &ep.cntrs {
            cntr.detach(&ep.core);
        }
        if let Some(av) = &ep.av {
            av.detach(&ep.core);
        }
        Ok(0)
    })
}

/// The object for a call that builds it up (binding, enabling): no other call may be made on it
/// meanwhile, for it cannot be used yet.
///
/// # Safety
/// Null or an endpoint of ours that is not enabled.
unsafe fn exclusive<'a>(fid: Handle<Fid>) -> Result<&'a mut EpObj, i32> {
    // SAFETY: passed on from the caller; the application builds an endpoint up in one thread.
    unsafe { fid.raw().cast::<EpObj>().as_mut() }.ok_or(FI_EINVAL)
}

unsafe extern "C" fn bind(fid: Handle<Fid>, other: Handle<Fid>, flags: u64) -> c_int {
    guard::int(|| {
        let class = other.class()?;
        let ep = fid.object::<FidEp>()?;
        may_bind(ep, class, flags)?;
        if !is_of_its_domain(ep, &other, class)? {
            return Err(FI_EINVAL);
        }
        // Nothing of an endpoint of this kind is reported to event queues; binding one does no
        // harm.
        if class == FI_CLASS_EQ {
            return Ok(0);
        }
        // SAFETY: a handle of ours, of an endpoint that is not enabled.
        let ep = unsafe { exclusive(fid) }?;
        match class {
            FI_CLASS_AV => {
                let av = other.object::<FidAv>()?.av.clone();
                av.attach(&ep.core)?;
                ep.av = Some(av);
            }
            FI_CLASS_CQ => bind_cq(ep, &other.object::<FidCq>()?.cq, flags),
            _ => {
                let cntr = other.object::<FidCntr>()?.cntr.clone();
                cntr.attach(&ep.core, flags)?;
                ep.counted |= flags;
                ep.cntrs.push(cntr);
            }
        }
        Ok(0)
    })
}

/// Whether an object is of the endpoint's domain, or an event queue of its fabric: by another's it
/// would outlive what it needs, or be used without the lock that its own domain asks for.
fn is_of_its_domain(ep: &EpObj, other: &Handle<Fid>, class: usize) -> Result<bool, i32> {
    let domain = match class {
        FI_CLASS_AV => &other.object::<FidAv>()?.domain,
        FI_CLASS_CQ => &other.object::<FidCq>()?.domain,
        FI_CLASS_CNTR => &other.object::<FidCntr>()?.domain,
        FI_CLASS_EQ => return Ok(Arc::ptr_eq(&ep.domain.fabric, &other.object::<FidEq>()?.fabric)),
        _ => return Ok(false),
    };
    Ok(Arc::ptr_eq(&ep.domain, domain))
}

/// Whether an object of this class can be bound to the endpoint in this way, and now.
fn may_bind(ep: &EpObj, class: usize, flags: u64) -> Result<(), i32> {
    match class {
        // There is but one way to use these two.
        FI_CLASS_AV | FI_CLASS_EQ if flags != 0 => return Err(FI_EBADFLAGS),
        FI_CLASS_EQ => return Ok(()),
        FI_CLASS_AV if ep.av.is_some() => return Err(FI_EINVAL),
        FI_CLASS_AV => {}
        FI_CLASS_CQ => queueable(ep, flags)?,
        FI_CLASS_CNTR => {
            countable(flags)?;
            // Each kind of operation is counted once.
            if flags & ep.counted != 0 {
                return Err(FI_EINVAL);
            }
        }
        _ => return Err(FI_EINVAL),
    }
    // Other threads may use the endpoint by now, and it has told what it reports, and where.
    if ep.enabled { Err(FI_EOPBADSTATE) } else { Ok(()) }
}

/// Whether a queue can take completions of these kinds.
fn queueable(ep: &EpObj, flags: u64) -> Result<(), i32> {
    if flags & !(FI_SEND | FI_RECV | FI_SELECTIVE_COMPLETION) != 0 {
        return Err(FI_EBADFLAGS);
    }
    let (tx, rx) = (flags & FI_SEND != 0, flags & FI_RECV != 0);
    if (!tx && !rx) || (tx && ep.tx_cq.is_some()) || (rx && ep.rx_cq.is_some()) { Err(FI_EINVAL) } else { Ok(()) }
}

/// Whether a counter can count operations of these kinds.
fn countable(flags: u64) -> Result<(), i32> {
    const KINDS: u64 = FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
    if flags & !KINDS != 0 {
        return Err(FI_EBADFLAGS);
    }
    // The target of a remote operation is not told of it (`FI_RMA_EVENT` is not offered): only a
    // write with immediate data shows there.
    if flags & (FI_REMOTE_READ | FI_REMOTE_WRITE) != 0 { Err(FI_ENOSYS) } else { Ok(()) }
}

fn bind_cq(ep: &mut EpObj, cq: &Arc<Cq>, flags: u64) {
    let selective = flags & FI_SELECTIVE_COMPLETION != 0;
    if flags & FI_SEND != 0 {
        ep.tx_selective = selective;
        ep.tx_cq = Some(cq.clone());
    }
    if flags & FI_RECV != 0 {
        ep.rx_selective = selective;
        ep.rx_cq = Some(cq.clone());
    }
}

impl EpObj {
    /// Connects the queues to the engine: one queue for both directions is polled once.
    fn enable(&mut self) -> Result<(), i32> {
        if self.av.is_none() {
            return Err(FI_ENOAV);
        }
        if self.tx_cq.is_none() && self.rx_cq.is_none() && self.cntrs.is_empty() {
            return Err(FI_ENOCQ);
        }
        match (&self.tx_cq, &self.rx_cq) {
            (Some(tx), Some(rx)) if Arc::ptr_eq(tx, rx) => tx.attach(&self.core, Queue::Both)?,
            (tx, rx) => {
                for (cq, queue) in [(tx, Queue::Send), (rx, Queue::Recv)] {
                    match cq {
                        Some(cq) => cq.attach(&self.core, queue)?,
                        None => self.core.engine.nobody_takes(queue),
                    }
                }
            }
        }
        // Without a queue for a direction there is nobody to report to.
        self.tx_selective |= self.tx_cq.is_none();
        self.rx_selective |= self.rx_cq.is_none();
        self.enabled = true;
        Ok(())
    }
}

unsafe extern "C" fn control(fid: Handle<Fid>, command: c_int, arg: *mut c_void) -> c_int {
    guard::int(|| {
        let ep = fid.object::<FidEp>()?;
        match command {
            FI_ENABLE if ep.enabled => {}
            // SAFETY: a handle of ours; before this call nobody else may use the endpoint.
            FI_ENABLE => unsafe { exclusive(fid) }?.enable()?,
            FI_GETOPSFLAG | FI_SETOPSFLAG => {
                // SAFETY: the argument is null or one 64-bit flag word.
                ops_flags(ep, command, unsafe { arg.cast::<u64>().as_mut() }.ok_or(FI_EINVAL)?)?;
            }
            _ => return Err(FI_ENOSYS),
        }
        Ok(0)
    })
}

/// Reads or sets the default flags of one direction, which the flag word names.
fn ops_flags(ep: &EpObj, command: c_int, flags: &mut u64) -> Result<(), i32> {
    let direction = *flags & (FI_SEND | FI_RECV);
    let (slot, allowed) = match direction {
        FI_SEND => (&ep.tx_flags, info::TX_OP_FLAGS),
        FI_RECV => (&ep.rx_flags, info::RX_OP_FLAGS),
        _ => return Err(FI_EINVAL),
    };
    if command == FI_GETOPSFLAG {
        *flags = slot.load(Relaxed);
        return Ok(());
    }
    let wanted = *flags & !direction;
    if wanted & !allowed != 0 {
        return Err(FI_EBADFLAGS);
    }
    slot.store(wanted, Relaxed);
    Ok(())
}

unsafe extern "C" fn cancel(fid: Handle<Fid>, context: *mut c_void) -> isize {
    guard::size(|| {
        let ep = fid.object::<FidEp>()?;
        if ep.core.engine.cancel(context as usize) { Ok(0) } else { Err(FI_ENOENT) }
    })
}

impl EpObj {
    fn option(&self, name: c_int) -> Result<Opt<'_>, i32> {
        Ok(match name {
            FI_OPT_MIN_MULTI_RECV => Opt::Settable(&self.min_multi_recv, usize::MAX),
            FI_OPT_MAX_MSG_SIZE | FI_OPT_MAX_TAGGED_SIZE | FI_OPT_MAX_RMA_SIZE => {
                Opt::Settable(&self.max_msg_size, info::MAX_MSG)
            }
            FI_OPT_INJECT_MSG_SIZE | FI_OPT_INJECT_TAGGED_SIZE | FI_OPT_INJECT_RMA_SIZE => {
                Opt::Settable(&self.inject_size, params::inject_size())
            }
            FI_OPT_CM_DATA_SIZE => Opt::Fixed(0),
            FI_OPT_TX_SIZE | FI_OPT_RX_SIZE => Opt::Fixed(info::QUEUE_SIZE),
            _ => return Err(FI_ENOPROTOOPT),
        })
    }
}

/// An option of the endpoint; all are `size_t`.
enum Opt<'a> {
    /// May be set up to a limit.
    Settable(&'a AtomicUsize, usize),
    /// May only be asked for.
    Fixed(usize),
}

unsafe extern "C" fn getopt(fid: Handle<Fid>, level: c_int, name: c_int, value: *mut c_void, len: *mut usize) -> c_int {
    guard::int(|| {
        let ep = fid.object::<FidEp>()?;
        // SAFETY: null or valid.
        let len = unsafe { len.as_mut() }.ok_or(FI_EINVAL)?;
        if level != FI_OPT_ENDPOINT {
            return Err(FI_ENOPROTOOPT);
        }
        let now = match ep.option(name)? {
            Opt::Settable(v, _) => v.load(Relaxed),
            Opt::Fixed(v) => v,
        };
        if std::mem::replace(len, size_of::<usize>()) < size_of::<usize>() || value.is_null() {
            return Err(FI_ETOOSMALL);
        }
        // SAFETY: room for a size_t (checked).
        unsafe { value.cast::<usize>().write_unaligned(now) };
        Ok(0)
    })
}

unsafe extern "C" fn setopt(fid: Handle<Fid>, level: c_int, name: c_int, value: *const c_void, len: usize) -> c_int {
    guard::int(|| {
        let ep = fid.object::<FidEp>()?;
        if level != FI_OPT_ENDPOINT {
            return Err(FI_ENOPROTOOPT);
        }
        let option = ep.option(name)?;
        if value.is_null() || len < size_of::<usize>() {
            return Err(FI_EINVAL);
        }
        // SAFETY: a size_t (checked).
        let wanted = unsafe { value.cast::<usize>().read_unaligned() };
        match option {
            Opt::Settable(v, limit) if wanted <= limit => v.store(wanted, Relaxed),
            Opt::Settable(..) => return Err(FI_EINVAL),
            Opt::Fixed(_) => return Err(FI_ENOPROTOOPT),
        }
        Ok(0)
    })
}

unsafe extern "C" fn getname(fid: Handle<Fid>, to: *mut c_void, len: *mut usize) -> c_int {
    guard::int(|| {
        let name = fid.object::<FidEp>()?.core.engine.name();
        // SAFETY: a buffer of `*len` bytes (caller).
        unsafe { addr::put(&name, to, len) }.map(|()| 0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_count_what_the_endpoint_is_told_of() {
        // What MPICH binds.
        assert_eq!(countable(FI_READ | FI_WRITE), Ok(()));
        assert_eq!(countable(FI_SEND | FI_RECV), Ok(()));
        assert_eq!(countable(FI_REMOTE_READ), Err(FI_ENOSYS));
        assert_eq!(countable(FI_REMOTE_WRITE), Err(FI_ENOSYS));
        assert_eq!(countable(FI_RECV | FI_REMOTE_WRITE), Err(FI_ENOSYS));
        assert_eq!(countable(1 << 60), Err(FI_EBADFLAGS));
    }
}
