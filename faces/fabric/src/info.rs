//! `fi_getinfo`: what the provider offers, checked against what the caller asks for.
//!
//! Everything offered is in the constants below. Each part of the hints is checked by one function
//! that names the field it refuses, so that `FI_LOG_LEVEL=info` tells why. The structures returned
//! belong to libfabric, which frees each part with `free` and may be newer than this file: each is
//! allocated with zeroed room to spare behind the part known here.

use crate::abi::*;
use crate::addr::{self, Name};
use crate::guard;
use crate::host;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

/// Name of the provider, its fabric and its only domain.
pub const NAME: &CStr = c"weir";

/// Largest message, bytes.
pub const MAX_MSG: usize = weir_engine::MAX_MESSAGE_BYTES as usize;
/// Pieces of local memory per operation.
pub const IOV_LIMIT: usize = if weir_engine::MAX_IOV < 32 { weir_engine::MAX_IOV } else { 32 };
/// Ranges of remote memory per operation.
pub const RMA_IOV_LIMIT: usize = 1;
/// Pieces of memory per registered region.
pub const MR_IOV_LIMIT: usize = IOV_LIMIT;
/// Operations worth having under way at once, per direction. Nothing breaks beyond: calls say to
/// try again.
pub const QUEUE_SIZE: usize = 4096;
/// Bytes of immediate data.
pub const CQ_DATA_SIZE: usize = 8;
/// Objects of a kind per domain: only memory limits them.
const MANY: usize = 65_536;

const DIRECTIONS_MSG: u64 = FI_SEND | FI_RECV;
const DIRECTIONS_RMA: u64 = FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
/// Given only when asked for.
const PRIMARY_CAPS: u64 = FI_MSG | FI_RMA | FI_TAGGED | FI_DIRECTED_RECV | DIRECTIONS_MSG | DIRECTIONS_RMA;
/// Costs nothing, always given.
const FREE_CAPS: u64 = FI_MULTI_RECV | DOMAIN_CAPS;
const DOMAIN_CAPS: u64 = FI_LOCAL_COMM | FI_REMOTE_COMM;
/// What is given to who asks for nothing.
const CAPS: u64 = PRIMARY_CAPS | FREE_CAPS | FI_SOURCE;
/// All there is. Atomic operations are for who names them: MPICH takes what is given without hints,
/// and would then send each element of an accumulate by itself.
const OFFERED: u64 = CAPS | FI_ATOMIC;
const TX_CAPS: u64 = FI_MSG | FI_RMA | FI_TAGGED | FI_ATOMIC | FI_SEND | FI_READ | FI_WRITE;
const RX_CAPS: u64 = FI_MSG
    | FI_RMA
    | FI_ATOMIC
    | FI_TAGGED
    | FI_RECV
    | FI_REMOTE_READ
    | FI_REMOTE_WRITE
    | FI_MULTI_RECV
    | FI_SOURCE
    | FI_DIRECTED_RECV;
/// Defaults an application may set for its sends.
pub const TX_OP_FLAGS: u64 = FI_COMPLETION
    | FI_INJECT
    | FI_INJECT_COMPLETE
    | FI_TRANSMIT_COMPLETE
    | FI_DELIVERY_COMPLETE
    | FI_MATCH_COMPLETE
    | FI_MORE;
/// Defaults an application may set for its receives.
pub const RX_OP_FLAGS: u64 = FI_COMPLETION | FI_MULTI_RECV | FI_MORE;
const MSG_ORDER: u64 = FI_ORDER_SAS;

/// The version that hints are as long as: libfabric copies those of older applications.
const HINTS: u32 = fi_version(1, 5);

/// Why hints cannot be met.
struct Refusal(String);

type Check = Result<(), Refusal>;

fn at_most<T: PartialOrd + std::fmt::Display>(field: &str, asked: T, offered: T) -> Check {
    if asked > offered { Err(Refusal(format!("hints ask for {field} {asked}, offered are {offered}"))) } else { Ok(()) }
}

fn within(field: &str, asked: u64, offered: u64) -> Check {
    match asked & !offered {
        0 => Ok(()),
        more => Err(Refusal(format!("hints ask for {field} {asked:#x}; of these {more:#x} is not offered"))),
    }
}

fn one_of(field: &str, asked: c_int, last: c_int) -> Check {
    if (0..=last).contains(&asked) {
        Ok(())
    } else {
        Err(Refusal(format!("hints ask for {field} {asked}, which is unknown")))
    }
}

fn named(field: &str, asked: *const c_char) -> Check {
    if asked.is_null() {
        return Ok(());
    }
    // SAFETY: names in hints are C strings.
    let asked = unsafe { CStr::from_ptr(asked) };
    if asked == NAME {
        Ok(())
    } else {
        Err(Refusal(format!("hints ask for {field} '{}', offered is 'weir'", asked.to_string_lossy())))
    }
}

/// An open object that hints name is one of this provider's.
fn ours(field: &str, object: *mut c_void, ops: *const FiOps) -> Check {
    // SAFETY: null or an open object (caller), which of any provider begins with a `Fid`.
    match unsafe { object.cast::<Fid>().as_ref() } {
        Some(fid) if !ptr::eq(fid.ops, ops) => {
            Err(Refusal(format!("hints name an open {field} that is another provider's")))
        }
        _ => Ok(()),
    }
}

/// The caller's hints with the optional parts resolved.
struct Hints<'a> {
    info: &'a FiInfo,
    tx: Option<&'a FiTxAttr>,
    rx: Option<&'a FiRxAttr>,
    ep: Option<&'a FiEpAttr>,
    domain: Option<&'a FiDomainAttr>,
    fabric: Option<&'a FiFabricAttr>,
}

impl<'a> Hints<'a> {
    /// # Safety
    /// `info` is a complete `fi_info` tree.
    unsafe fn new(info: &'a FiInfo) -> Self {
        // SAFETY: each part is null or valid (caller). Fields behind those of the oldest library
        // are not read, see `check_domain`.
        unsafe {
            Hints {
                info,
                tx: info.tx_attr.as_ref(),
                rx: info.rx_attr.as_ref(),
                ep: info.ep_attr.as_ref(),
                domain: info.domain_attr.as_ref(),
                fabric: info.fabric_attr.as_ref(),
            }
        }
    }

    fn check(&self) -> Check {
        if let Some(ep) = self.ep {
            EP.check(ep, HINTS)?;
        }
        within("caps", self.info.caps, OFFERED)?;
        if self.info.addr_format != FI_FORMAT_UNSPEC && self.info.addr_format != WEIR_ADDR_FORMAT {
            return Err(Refusal(format!(
                "hints ask for addr_format {}, offered is only weir's own ({WEIR_ADDR_FORMAT})",
                self.info.addr_format
            )));
        }
        for (field, address, len) in [
            ("src_addr", self.info.src_addr, self.info.src_addrlen),
            ("dest_addr", self.info.dest_addr, self.info.dest_addrlen),
        ] {
            // SAFETY: addresses in hints have the length beside them.
            if !address.is_null() && unsafe { addr::from_hint(address, len) }.is_none() {
                return Err(Refusal(format!(
                    "hints have a {field} of {len} bytes that is neither a weir name nor an IP socket address"
                )));
            }
        }
        if let Some(fabric) = self.fabric {
            named("fabric", fabric.name)?;
            ours("fabric", fabric.fabric, &raw const crate::fabric::OPS)?;
        }
        if let Some(domain) = self.domain {
            DOMAIN.check(domain, HINTS)?;
            ours("domain", domain.domain, &raw const crate::domain::OPS)?;
        }
        if let Some(tx) = self.tx {
            check_tx(tx)?;
        }
        if let Some(rx) = self.rx {
            check_rx(rx)?;
        }
        Ok(())
    }
}

/// What attributes may hold in two parts: applications of before 1.5 end them before the second.
struct Parts<T> {
    first: fn(&T) -> Check,
    since_1_5: fn(&T) -> Check,
}

impl<T> Parts<T> {
    /// For attributes as long as an application of this version has them.
    fn check(&self, attr: &T, version: u32) -> Check {
        (self.first)(attr)?;
        if version >= fi_version(1, 5) { (self.since_1_5)(attr) } else { Ok(()) }
    }
}

const EP: Parts<FiEpAttr> =
    Parts { first: check_ep, since_1_5: |ep| at_most("ep_attr auth_key_size", ep.auth_key_size, 0) };
const DOMAIN: Parts<FiDomainAttr> = Parts { first: check_domain, since_1_5: check_new_domain };

fn check_ep(ep: &FiEpAttr) -> Check {
    if ep.ep_type != FI_EP_UNSPEC && ep.ep_type != FI_EP_RDM {
        return Err(Refusal(format!("hints ask for endpoint type {}, offered is FI_EP_RDM", ep.ep_type)));
    }
    if ep.protocol != 0 && ep.protocol != WEIR_PROTO {
        return Err(Refusal(format!("hints ask for protocol {:#x}, offered is {WEIR_PROTO:#x}", ep.protocol)));
    }
    at_most("protocol_version", ep.protocol_version, 1)?;
    at_most("max_msg_size", ep.max_msg_size, MAX_MSG)?;
    at_most("ep_attr tx_ctx_cnt", ep.tx_ctx_cnt, 1)?;
    at_most("ep_attr rx_ctx_cnt", ep.rx_ctx_cnt, 1)
}

fn check_domain(d: &FiDomainAttr) -> Check {
    named("domain", d.name)?;
    one_of("threading", d.threading, FI_THREAD_ENDPOINT)?;
    one_of("control_progress", d.control_progress, FI_PROGRESS_CONTROL_UNIFIED)?;
    one_of("data_progress", d.data_progress, FI_PROGRESS_CONTROL_UNIFIED)?;
    one_of("resource_mgmt", d.resource_mgmt, FI_RM_ENABLED)?;
    one_of("av_type", d.av_type, FI_AV_TABLE)?;
    at_most("mr_key_size", d.mr_key_size, 8)?;
    at_most("cq_data_size", d.cq_data_size, CQ_DATA_SIZE)?;
    [
        ("cq_cnt", d.cq_cnt, MANY),
        ("ep_cnt", d.ep_cnt, MANY),
        ("tx_ctx_cnt", d.tx_ctx_cnt, MANY),
        ("rx_ctx_cnt", d.rx_ctx_cnt, MANY),
        ("max_ep_tx_ctx", d.max_ep_tx_ctx, 1),
        ("max_ep_rx_ctx", d.max_ep_rx_ctx, 1),
        ("max_ep_stx_ctx", d.max_ep_stx_ctx, 0),
        ("max_ep_srx_ctx", d.max_ep_srx_ctx, 0),
    ]
    .into_iter()
    .try_for_each(|(field, asked, offered)| at_most(field, asked, offered))
}

fn check_new_domain(d: &FiDomainAttr) -> Check {
    for (field, asked, offered) in [
        ("cntr_cnt", d.cntr_cnt, MANY),
        ("mr_cnt", d.mr_cnt, MANY),
        ("mr_iov_limit", d.mr_iov_limit, MR_IOV_LIMIT),
        ("domain auth_key_size", d.auth_key_size, 0),
        ("max_err_data", d.max_err_data, 0),
    ] {
        at_most(field, asked, offered)?;
    }
    within("domain caps", d.caps, DOMAIN_CAPS)
}

/// Refuses what a call names that hints could not have got.
fn refuse(call: &str, check: Check) -> Result<(), i32> {
    check.map_err(|Refusal(why)| {
        host::info(|| format!("{call}: {why}"));
        FI_EINVAL
    })
}

/// Checks what a domain is opened with as hints are checked, for an application may change what it
/// got.
///
/// # Errors
/// `FI_EINVAL`.
pub fn check_domain_of(version: u32, attr: &FiDomainAttr) -> Result<(), i32> {
    refuse("fi_domain", DOMAIN.check(attr, version))
}

/// The same for an endpoint.
///
/// # Errors
/// `FI_EINVAL`.
pub fn check_endpoint_of(
    version: u32,
    caps: u64,
    ep: Option<&FiEpAttr>,
    tx: Option<&FiTxAttr>,
    rx: Option<&FiRxAttr>,
) -> Result<(), i32> {
    let check = within("caps", caps, OFFERED)
        .and_then(|()| ep.map_or(Ok(()), |ep| EP.check(ep, version)))
        .and_then(|()| tx.map_or(Ok(()), check_tx))
        .and_then(|()| rx.map_or(Ok(()), check_rx));
    refuse("fi_endpoint", check)
}

fn check_tx(tx: &FiTxAttr) -> Check {
    within("tx caps", tx.caps, OFFERED)?;
    within("tx op_flags", tx.op_flags, TX_OP_FLAGS)?;
    within("tx msg_order", tx.msg_order, MSG_ORDER)?;
    within("tx comp_order", tx.comp_order, 0)?;
    at_most("inject_size", tx.inject_size, crate::params::inject_size())?;
    at_most("tx size", tx.size, MANY)?;
    at_most("tx iov_limit", tx.iov_limit, IOV_LIMIT)?;
    at_most("rma_iov_limit", tx.rma_iov_limit, RMA_IOV_LIMIT)
}

fn check_rx(rx: &FiRxAttr) -> Check {
    within("rx caps", rx.caps, OFFERED)?;
    within("rx op_flags", rx.op_flags, RX_OP_FLAGS)?;
    within("rx msg_order", rx.msg_order, MSG_ORDER)?;
    within("rx comp_order", rx.comp_order, 0)?;
    at_most("rx size", rx.size, MANY)?;
    at_most("rx iov_limit", rx.iov_limit, IOV_LIMIT)
}

/// The capabilities given for those asked: what was asked, the free ones, and where a kind of
/// operation was named without a direction, all its directions.
fn granted(asked: u64) -> u64 {
    if asked == 0 {
        return CAPS;
    }
    let mut caps = (asked & OFFERED) | FREE_CAPS;
    if caps & (FI_MSG | FI_TAGGED) != 0 && caps & DIRECTIONS_MSG == 0 {
        caps |= DIRECTIONS_MSG;
    }
    if caps & (FI_RMA | FI_ATOMIC) != 0 && caps & DIRECTIONS_RMA == 0 {
        caps |= DIRECTIONS_RMA;
    }
    caps
}

/// The registration mode returned: none is needed since 1.5; before, a caller chose between two.
fn mr_mode(version: u32, asked: c_int) -> c_int {
    if asked & (FI_MR_BASIC | FI_MR_SCALABLE) != 0 {
        if asked & FI_MR_SCALABLE != 0 { FI_MR_SCALABLE } else { FI_MR_BASIC }
    } else if version < fi_version(1, 5) {
        FI_MR_SCALABLE
    } else {
        0
    }
}

fn nonzero_or<T: PartialEq + Default>(asked: Option<T>, default: T) -> T {
    asked.filter(|a| *a != T::default()).unwrap_or(default)
}

fn tx_attr(hints: Option<&Hints>, caps: u64) -> FiTxAttr {
    let tx = hints.and_then(|h| h.tx);
    let wanted = tx.map_or(0, |t| t.caps);
    FiTxAttr {
        caps: caps & TX_CAPS & if wanted == 0 { u64::MAX } else { granted(wanted) },
        mode: 0,
        op_flags: tx.map_or(0, |t| t.op_flags),
        msg_order: MSG_ORDER,
        comp_order: 0,
        inject_size: crate::params::inject_size(),
        size: nonzero_or(tx.map(|t| t.size), QUEUE_SIZE),
        iov_limit: IOV_LIMIT,
        rma_iov_limit: RMA_IOV_LIMIT,
        tclass: tx.map_or(0, |t| t.tclass),
    }
}

fn rx_attr(hints: Option<&Hints>, caps: u64) -> FiRxAttr {
    let rx = hints.and_then(|h| h.rx);
    let wanted = rx.map_or(0, |r| r.caps);
    FiRxAttr {
        caps: caps & RX_CAPS & if wanted == 0 { u64::MAX } else { granted(wanted) },
        mode: 0,
        op_flags: rx.map_or(0, |r| r.op_flags),
        msg_order: MSG_ORDER,
        comp_order: 0,
        total_buffered_recv: 0,
        size: nonzero_or(rx.map(|r| r.size), QUEUE_SIZE),
        iov_limit: IOV_LIMIT,
    }
}

fn ep_attr(hints: Option<&Hints>) -> FiEpAttr {
    let format = hints.and_then(|h| h.ep).map_or(0, |e| e.mem_tag_format);
    FiEpAttr {
        ep_type: FI_EP_RDM,
        protocol: WEIR_PROTO,
        protocol_version: 1,
        max_msg_size: MAX_MSG,
        msg_prefix_size: 0,
        max_order_raw_size: 0,
        max_order_war_size: 0,
        max_order_waw_size: 0,
        // A named format (below the limit) is met as any other, for all bits are compared.
        mem_tag_format: if format != 0 && format < FI_TAG_MAX_FORMAT { format } else { FI_TAG_GENERIC },
        tx_ctx_cnt: 1,
        rx_ctx_cnt: 1,
        auth_key_size: 0,
        auth_key: ptr::null_mut(),
    }
}

fn domain_attr(version: u32, hints: Option<&Hints>) -> FiDomainAttr {
    let d = hints.and_then(|h| h.domain);
    FiDomainAttr {
        domain: d.map_or(ptr::null_mut(), |d| d.domain),
        name: ptr::null_mut(),
        threading: nonzero_or(d.map(|d| d.threading), FI_THREAD_SAFE),
        control_progress: nonzero_or(d.map(|d| d.control_progress), FI_PROGRESS_MANUAL),
        data_progress: nonzero_or(d.map(|d| d.data_progress), FI_PROGRESS_MANUAL),
        resource_mgmt: FI_RM_ENABLED,
        // Both kinds are the same here. Asked for none, say so, as other providers do: fabtests
        // takes FI_AV_TABLE for the promise that whom it talks to has address 0.
        av_type: d.map_or(FI_AV_UNSPEC, |d| d.av_type),
        mr_mode: mr_mode(version, d.map_or(0, |d| d.mr_mode)),
        mr_key_size: 8,
        cq_data_size: CQ_DATA_SIZE,
        cq_cnt: MANY,
        ep_cnt: MANY,
        tx_ctx_cnt: MANY,
        rx_ctx_cnt: MANY,
        max_ep_tx_ctx: 1,
        max_ep_rx_ctx: 1,
        max_ep_stx_ctx: 0,
        max_ep_srx_ctx: 0,
        cntr_cnt: MANY,
        mr_iov_limit: MR_IOV_LIMIT,
        caps: DOMAIN_CAPS,
        mode: 0,
        auth_key: ptr::null_mut(),
        auth_key_size: 0,
        max_err_data: 0,
        mr_cnt: MANY,
        tclass: d.map_or(0, |d| d.tclass),
        max_ep_auth_key: 0,
        max_group_id: 0,
        max_cntr_value: u64::MAX,
        max_err_cntr_value: u64::MAX,
    }
}

/// Room behind each structure for fields a newer libfabric appends; it copies and reads them,
/// finding zeros.
const SPARE_BYTES: usize = 128;

/// Copies `value` to memory that `free` can release. Null when there is none.
fn c_copy<T>(value: T) -> *mut T {
    // SAFETY: calloc's memory is aligned for every C structure and long enough for a `T`.
    unsafe {
        let p = libc::calloc(1, size_of::<T>() + SPARE_BYTES).cast::<T>();
        if !p.is_null() {
            p.write(value);
        }
        p
    }
}

/// Releases a tree made by [`build`], complete or not.
///
/// # Safety
/// It is null or from there, and released once.
pub unsafe fn release(info: *mut FiInfo) {
    // SAFETY: every pointer is null or from the C allocator; `free` takes null.
    unsafe {
        if let Some(i) = info.as_ref() {
            if let Some(d) = i.domain_attr.as_ref() {
                libc::free(d.name.cast());
            }
            if let Some(f) = i.fabric_attr.as_ref() {
                libc::free(f.name.cast());
            }
            for part in [
                i.src_addr,
                i.dest_addr,
                i.tx_attr.cast(),
                i.rx_attr.cast(),
                i.ep_attr.cast(),
                i.domain_attr.cast(),
                i.fabric_attr.cast(),
                info.cast(),
            ] {
                libc::free(part);
            }
        }
    }
}

/// Builds the answer. Null when memory is short.
fn build(version: u32, hints: Option<&Hints>, source: Option<Name>, dest: Option<Name>) -> *mut FiInfo {
    let caps = granted(hints.map_or(0, |h| h.info.caps));
    let address = |name: Option<Name>| name.map_or(ptr::null_mut(), |n| c_copy(n).cast::<c_void>());
    // SAFETY: strdup of a C string.
    let name = || unsafe { libc::strdup(NAME.as_ptr()) };
    let info = c_copy(FiInfo {
        next: ptr::null_mut(),
        caps,
        mode: 0,
        addr_format: WEIR_ADDR_FORMAT,
        src_addrlen: source.map_or(0, |n| n.len()),
        dest_addrlen: dest.map_or(0, |n| n.len()),
        src_addr: address(source),
        dest_addr: address(dest),
        handle: ptr::null_mut(),
        tx_attr: c_copy(tx_attr(hints, caps)),
        rx_attr: c_copy(rx_attr(hints, caps)),
        ep_attr: c_copy(ep_attr(hints)),
        domain_attr: c_copy(FiDomainAttr { name: name(), ..domain_attr(version, hints) }),
        // libfabric itself fills in the provider's name and version.
        fabric_attr: c_copy(FiFabricAttr {
            // One that is open already: who shares it between its parts (Open MPI) would else open
            // a second.
            fabric: hints.and_then(|h| h.fabric).map_or(ptr::null_mut(), |f| f.fabric),
            name: name(),
            prov_name: ptr::null_mut(),
            prov_version: 0,
            api_version: version,
        }),
        nic: ptr::null_mut(),
    });
    // SAFETY: just built; null parts are looked for before use.
    let complete = unsafe {
        info.as_ref().is_some_and(|i| {
            let parts = [
                i.tx_attr.cast::<c_void>(),
                i.rx_attr.cast(),
                i.ep_attr.cast(),
                i.domain_attr.cast(),
                i.fabric_attr.cast(),
            ];
            parts.iter().all(|p| !p.is_null())
                && !(*i.domain_attr).name.is_null()
                && !(*i.fabric_attr).name.is_null()
                && (source.is_none() || !i.src_addr.is_null())
                && (dest.is_none() || !i.dest_addr.is_null())
        })
    };
    if complete {
        return info;
    }
    // SAFETY: made above.
    unsafe { release(info) };
    ptr::null_mut()
}

/// `fi_provider.getinfo`.
///
/// # Safety
/// As libfabric calls it: texts are null or C strings, hints are null or a complete tree, `out` is
/// writable.
pub unsafe extern "C" fn getinfo(
    version: u32,
    node: *const c_char,
    service: *const c_char,
    flags: u64,
    hints: *const FiInfo,
    out: *mut *mut FiInfo,
) -> c_int {
    guard::int(|| {
        if out.is_null() {
            return Err(FI_EINVAL);
        }
        // SAFETY: null or a complete tree (caller).
        let hints = unsafe { hints.as_ref().map(|h| Hints::new(h)) };
        if let Some(h) = &hints
            && let Err(Refusal(why)) = h.check()
        {
            host::info(|| format!("fi_getinfo: {why}"));
            return Err(FI_ENODATA);
        }
        let (mut source, mut dest) = match &hints {
            // SAFETY: lengths are beside the addresses.
            Some(h) => unsafe {
                (
                    addr::from_hint(h.info.src_addr, h.info.src_addrlen),
                    addr::from_hint(h.info.dest_addr, h.info.dest_addrlen),
                )
            },
            None => (None, None),
        };
        if !node.is_null() || !service.is_null() {
            // SAFETY: null or C strings (caller).
            let name = unsafe { addr::resolve(node, service, flags & FI_NUMERICHOST != 0, flags & FI_SOURCE != 0) }
                .map_err(|why| {
                    host::info(|| format!("fi_getinfo: {why}"));
                    FI_ENODATA
                })?;
            if flags & FI_SOURCE != 0 {
                source = Some(name);
            } else {
                dest = Some(name);
            }
        }
        let info = build(version, hints.as_ref(), Some(source.unwrap_or_else(addr::anywhere)), dest);
        if info.is_null() {
            return Err(FI_ENOMEM);
        }
        // SAFETY: writable (caller).
        unsafe { *out = info };
        Ok(0)
    })
}

#[cfg(test)]
mod tests;
