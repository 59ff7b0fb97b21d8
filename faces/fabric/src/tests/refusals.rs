//! What the calls of each object refuse, with which code; and that a call refused changes nothing.
//! Transfers are in `transfers`, memory regions in `regions`.

use super::*;
use crate::info;
use crate::params;

/// A flag that no call knows.
pub const UNKNOWN: u64 = 1 << 60;
/// Longer than any message.
pub const TOO_LONG: usize = info::MAX_MSG + 1;

/// The calls tried so far, and what was wrong with their answers.
pub struct Table<'a> {
    world: &'a World,
    wrong: Vec<String>,
}

impl Table<'_> {
    pub fn of(world: &World) -> Table<'_> {
        Table { world, wrong: Vec::new() }
    }

    /// A call that must answer `-code`, or 0 where that is 0, and leave everything as it was.
    pub fn row(&mut self, what: &str, code: i32, call: impl FnOnce() -> i64) {
        let before = self.world.state();
        let answer = call();
        if answer != -i64::from(code) {
            self.wrong.push(format!("{what}: {answer} instead of -{code}"));
        }
        if self.world.state() != before {
            self.wrong.push(format!("{what}: {before:?} became {:?}", self.world.state()));
        }
    }

    pub fn end(self) {
        assert!(self.wrong.is_empty(), "{}", self.wrong.join("\n"));
    }
}

/// The answer of a call that would make an object; 1 if the object's place was touched.
fn made<T>(call: impl FnOnce(*mut *mut T) -> i32) -> i64 {
    let untouched = std::ptr::dangling_mut::<T>();
    let mut place = untouched;
    let code = call(&raw mut place);
    if place == untouched { i64::from(code) } else { 1 }
}

/// A copy with one thing changed.
fn with<T>(mut attr: T, change: impl FnOnce(&mut T)) -> T {
    change(&mut attr);
    attr
}

pub fn zeroed<T>() -> T {
    // SAFETY: used for plain C structures only, in which zeros are valid.
    unsafe { std::mem::zeroed() }
}

#[test]
fn of_fabrics() {
    let world = World::new();
    let (fabric, attr) = (world.base.fabric, FiFabricAttr { api_version: V2, ..zeroed() });
    let mut t = Table::of(&world);
    let open = |change: fn(&mut FiFabricAttr)| {
        let mut attr = with(attr, change);
        // SAFETY: valid attributes and a place.
        made(|out| unsafe { (provider().fabric)(&raw mut attr, out, null_mut()) })
    };
    t.row("fi_fabric of another name", FI_ENODATA, || open(|a| a.name = c"tcp".as_ptr().cast_mut()));
    // SAFETY: nulls where the interface forbids them, else valid objects.
    unsafe {
        t.row("fi_fabric(null)", FI_EINVAL, || made(|out| (provider().fabric)(null_mut(), out, null_mut())));
        let mut attr = attr;
        let nowhere = || (provider().fabric)(&raw mut attr, null_mut(), null_mut()).into();
        t.row("fi_fabric to nowhere", FI_EINVAL, nowhere);
        let ops = &*(*fabric.raw()).ops;
        for (what, call) in
            [("fi_passive_ep", ops.passive_ep), ("fi_wait_open", ops.wait_open), ("fi_domain2", ops.domain2)]
        {
            t.row(what, FI_ENOSYS, || call() as i64);
        }
        let fid_ops = &*(*fabric.raw()).fid.ops;
        t.row("fi_close of a fabric in use", FI_EBUSY, || close(fabric).into());
        t.row("fi_close(null)", FI_EINVAL, || (fid_ops.close)(null_handle()).into());
        t.row("fi_control of a fabric", FI_ENOSYS, || (fid_ops.control)(fid_of(fabric), 99, null_mut()).into());
        t.row("fi_bind of a fabric", FI_ENOSYS, || (fid_ops.bind)(fid_of(fabric), fid_of(world.eq), 0).into());
        t.row("fi_trywait(null)", FI_EINVAL, || (ops.trywait)(fabric, null_mut(), 1).into());
        for (what, mut fid, count) in [
            ("fi_trywait of -1", fid_of(world.cq), -1),
            ("fi_trywait of null", null_handle(), 1),
            ("fi_trywait of a vector", fid_of(world.av), 1),
        ] {
            t.row(what, FI_EINVAL, || (ops.trywait)(fabric, &raw mut fid, count).into());
        }
    }
    t.end();
}

#[test]
fn of_domains() {
    let world = World::new();
    let (fabric, domain) = (world.base.fabric, world.base.domain);
    let mut t = Table::of(&world);
    // SAFETY: nulls where the interface forbids them, else valid objects and complete attributes.
    unsafe {
        let offered = *(*world.base.info.0).domain_attr;
        let make = (*(*fabric.raw()).ops).domain;
        let open = |change: fn(&mut FiDomainAttr)| {
            let mut attr = with(offered, change);
            let mut info = FiInfo { domain_attr: &raw mut attr, ..zeroed() };
            made(|out| make(fabric, &raw mut info, out, null_mut()))
        };
        type Change = fn(&mut FiDomainAttr);
        let changes: [(&str, Change); 14] = [
            ("threading", |a| a.threading = 77),
            ("threading below 0", |a| a.threading = -1),
            ("control_progress", |a| a.control_progress = 77),
            ("data_progress", |a| a.data_progress = 77),
            ("resource_mgmt", |a| a.resource_mgmt = 77),
            ("av_type", |a| a.av_type = 77),
            ("caps", |a| a.caps = UNKNOWN),
            ("name", |a| a.name = c"eth0".as_ptr().cast_mut()),
            ("mr_key_size", |a| a.mr_key_size = 9),
            ("cq_data_size", |a| a.cq_data_size = info::CQ_DATA_SIZE + 1),
            ("mr_iov_limit", |a| a.mr_iov_limit = info::MR_IOV_LIMIT + 1),
            ("max_ep_tx_ctx", |a| a.max_ep_tx_ctx = usize::MAX),
            ("auth_key_size", |a| a.auth_key_size = 1),
            ("ep_cnt", |a| a.ep_cnt = usize::MAX),
        ];
        for (what, change) in changes {
            t.row(&format!("fi_domain: {what}"), FI_EINVAL, || open(change));
        }
        let mut nothing: FiInfo = zeroed();
        let info = world.base.info.0;
        t.row("fi_domain(null)", FI_EINVAL, || made(|out| make(null_handle(), info, out, null_mut())));
        t.row("fi_domain, no info", FI_EINVAL, || made(|out| make(fabric, null_mut(), out, null_mut())));
        t.row("fi_domain, no attr", FI_EINVAL, || made(|out| make(fabric, &raw mut nothing, out, null_mut())));
        t.row("fi_domain to nowhere", FI_EINVAL, || make(fabric, info, null_mut(), null_mut()).into());
        let fid_ops = &*(*domain.raw()).fid.ops;
        let bind = |other: Handle<Fid>, flags| (fid_ops.bind)(fid_of(domain), other, flags).into();
        t.row("fi_domain_bind, unknown flag", FI_EBADFLAGS, || bind(fid_of(world.eq), UNKNOWN));
        t.row("fi_domain_bind, FI_REG_MR", FI_EBADFLAGS, || bind(fid_of(world.eq), FI_REG_MR));
        t.row("fi_domain_bind(null)", FI_EINVAL, || bind(null_handle(), 0));
        t.row("fi_domain_bind of a queue", FI_EINVAL, || bind(fid_of(world.cq), 0));
        t.row("fi_control of a domain", FI_ENOSYS, || (fid_ops.control)(fid_of(domain), 99, null_mut()).into());
        t.row("fi_close of a domain in use", FI_EBUSY, || close(domain).into());
        let ops = &*(*domain.raw()).ops;
        for call in [ops.scalable_ep, ops.poll_open, ops.stx_ctx, ops.srx_ctx, ops.query_collective, ops.endpoint2] {
            t.row("what a domain does not offer", FI_ENOSYS, || call() as i64);
        }
    }
    t.end();
}

#[test]
fn of_opening_endpoints() {
    let world = World::new();
    let domain = world.base.domain;
    let mut t = Table::of(&world);
    /// What is offered, to be changed.
    struct Parts {
        tx: FiTxAttr,
        rx: FiRxAttr,
        ep: FiEpAttr,
        caps: u64,
    }
    // SAFETY: nulls where the interface forbids them, else valid objects and complete attributes.
    unsafe {
        let make = (*(*domain.raw()).ops).endpoint;
        let info = world.base.info.0;
        let open = |change: fn(&mut Parts)| {
            let parts = Parts { tx: *(*info).tx_attr, rx: *(*info).rx_attr, ep: *(*info).ep_attr, caps: (*info).caps };
            let mut p = with(parts, change);
            let attrs = (&raw mut p.tx, &raw mut p.rx, &raw mut p.ep);
            let mut info = FiInfo { caps: p.caps, tx_attr: attrs.0, rx_attr: attrs.1, ep_attr: attrs.2, ..zeroed() };
            made(|out| make(domain, &raw mut info, out, null_mut()))
        };
        type Change = fn(&mut Parts);
        let changes: [(&str, i32, Change); 17] = [
            ("tx op_flags", FI_EBADFLAGS, |p| p.tx.op_flags = UNKNOWN),
            ("rx op_flags", FI_EBADFLAGS, |p| p.rx.op_flags = UNKNOWN),
            ("caps", FI_EINVAL, |p| p.caps |= UNKNOWN),
            ("type", FI_EINVAL, |p| p.ep.ep_type = 77),
            ("protocol", FI_EINVAL, |p| p.ep.protocol = 77),
            ("max_msg_size", FI_EINVAL, |p| p.ep.max_msg_size = TOO_LONG),
            ("auth_key_size", FI_EINVAL, |p| p.ep.auth_key_size = 1),
            ("tx_ctx_cnt", FI_ENOSYS, |p| p.ep.tx_ctx_cnt = 2),
            ("rx_ctx_cnt", FI_ENOSYS, |p| p.ep.rx_ctx_cnt = usize::MAX),
            ("inject_size", FI_EINVAL, |p| p.tx.inject_size = params::MAX_INJECT + 1),
            ("tx size", FI_EINVAL, |p| p.tx.size = usize::MAX),
            ("tx iov_limit", FI_EINVAL, |p| p.tx.iov_limit = info::IOV_LIMIT + 1),
            ("rma_iov_limit", FI_EINVAL, |p| p.tx.rma_iov_limit = info::RMA_IOV_LIMIT + 1),
            ("tx msg_order", FI_EINVAL, |p| p.tx.msg_order = UNKNOWN),
            ("tx comp_order", FI_EINVAL, |p| p.tx.comp_order = 1),
            ("rx size", FI_EINVAL, |p| p.rx.size = usize::MAX),
            ("rx iov_limit", FI_EINVAL, |p| p.rx.iov_limit = info::IOV_LIMIT + 1),
        ];
        for (what, code, change) in changes {
            t.row(&format!("fi_endpoint: {what}"), code, || open(change));
        }
        let mut odd = [1u8; 7];
        let mut elsewhere = FiInfo { src_addr: odd.as_mut_ptr().cast(), src_addrlen: odd.len(), ..zeroed() };
        t.row("fi_endpoint: src_addr", FI_EINVAL, || made(|out| make(domain, &raw mut elsewhere, out, null_mut())));
        t.row("fi_endpoint(null)", FI_EINVAL, || made(|out| make(null_handle(), info, out, null_mut())));
        t.row("fi_endpoint, no info", FI_EINVAL, || made(|out| make(domain, null_mut(), out, null_mut())));
        t.row("fi_endpoint to nowhere", FI_EINVAL, || make(domain, info, null_mut(), null_mut()).into());
    }
    t.end();
}

#[test]
fn of_endpoints() {
    let world = World::new();
    let mut t = Table::of(&world);
    let (ep, fid) = (world.ep, fid_of(world.ep));
    // SAFETY: nulls where the interface forbids them, else valid objects.
    unsafe {
        let fid_ops = &*(*ep.raw()).fid.ops;
        let bind = |other: Handle<Fid>, flags| (fid_ops.bind)(fid, other, flags).into();
        let (av, cq, cntr, eq): (Handle<Fid>, Handle<Fid>, Handle<Fid>, Handle<Fid>) =
            (fid_of(world.av), fid_of(world.cq), fid_of(world.cntr), fid_of(world.eq));
        for (what, other) in [("av", av), ("cq", cq), ("cntr", cntr), ("eq", eq)] {
            t.row(&format!("fi_ep_bind, {what}, unknown flag"), FI_EBADFLAGS, || bind(other, UNKNOWN));
        }
        t.row("fi_ep_bind of a second vector", FI_EINVAL, || bind(av, 0));
        t.row("fi_ep_bind of a second queue", FI_EINVAL, || bind(cq, FI_SEND));
        t.row("fi_ep_bind of a queue for nothing", FI_EINVAL, || bind(cq, FI_SELECTIVE_COMPLETION));
        t.row("fi_ep_bind of a second counter", FI_EINVAL, || bind(cntr, FI_RECV));
        t.row("fi_ep_bind for remote writes", FI_ENOSYS, || bind(cntr, FI_REMOTE_WRITE));
        t.row("fi_ep_bind(null)", FI_EINVAL, || bind(null_handle(), 0));
        t.row("fi_ep_bind of an endpoint", FI_EINVAL, || bind(fid, 0));
        let mut word = UNKNOWN | FI_SEND;
        let word = &raw mut word;
        t.row("FI_SETOPSFLAG, unknown flag", FI_EBADFLAGS, || {
            (fid_ops.control)(fid, FI_SETOPSFLAG, word.cast()).into()
        });
        *word = FI_SEND | FI_RECV;
        t.row("FI_GETOPSFLAG both ways", FI_EINVAL, || (fid_ops.control)(fid, FI_GETOPSFLAG, word.cast()).into());
        t.row("FI_SETOPSFLAG(null)", FI_EINVAL, || (fid_ops.control)(fid, FI_SETOPSFLAG, null_mut()).into());
        t.row("fi_control, unknown command", FI_ENOSYS, || (fid_ops.control)(fid, 99, word.cast()).into());
        let ops = world.ep_ops();
        t.row("fi_cancel(null)", FI_EINVAL, || (ops.cancel)(null_handle(), null_mut()) as i64);
        t.row("fi_cancel of nothing", FI_ENOENT, || (ops.cancel)(fid, null_mut()) as i64);
        for call in [ops.tx_ctx, ops.rx_ctx, ops.rx_size_left, ops.tx_size_left] {
            t.row("what an endpoint does not offer", FI_ENOSYS, || call() as i64);
        }
    }
    options(&mut t, fid);
    names_and_tables(&mut t, ep);
    t.end();
}

#[test]
fn of_binding_a_queue_to_an_endpoint_in_use() {
    let base = Base::new(V2);
    let domain = base.domain;
    // SAFETY: zeros are valid attributes; objects are used before they are closed.
    unsafe {
        let (mut av_attr, mut cq_attr): (FiAvAttr, FiCqAttr) = zeroed();
        let ops = &*(*domain.raw()).ops;
        let av = opened(|out| (ops.av_open)(domain, &raw mut av_attr, out, null_mut()));
        let cq = opened(|out| (ops.cq_open)(domain, &raw mut cq_attr, out, null_mut()));
        let ep = opened(|out| (ops.endpoint)(domain, base.info.0, out, null_mut()));
        let fid_ops = &*(*ep.raw()).fid.ops;
        let bind = |other, flags| (fid_ops.bind)(fid_of(ep), other, flags);
        assert_eq!((bind(fid_of(av), 0), bind(fid_of(cq), FI_SEND)), (0, 0));
        assert_eq!((fid_ops.control)(fid_of(ep), FI_ENABLE, null_mut()), 0);
        assert_eq!(bind(fid_of(cq), FI_RECV), -FI_EOPBADSTATE, "nothing would come to it");
        assert_eq!([close(ep), close(cq), close(av)], [0; 3]);
    }
}

/// All that could be bound to an endpoint, of a fabric and domain of its own.
struct Elsewhere {
    base: Base,
    av: Handle<FidAv>,
    cq: Handle<FidCq>,
    cntr: Handle<FidCntr>,
    eq: Handle<FidEq>,
}

impl Elsewhere {
    fn new() -> Elsewhere {
        let base = Base::new(V2);
        let (mut av_attr, mut cq_attr): (FiAvAttr, FiCqAttr) = (zeroed(), zeroed());
        // SAFETY: zeros are valid attributes; objects are used before they are closed.
        unsafe {
            let (domain, ops) = (base.domain, &*(*base.domain.raw()).ops);
            let av = opened(|out| (ops.av_open)(domain, &raw mut av_attr, out, null_mut()));
            let cq = opened(|out| (ops.cq_open)(domain, &raw mut cq_attr, out, null_mut()));
            let cntr = opened(|out| (ops.cntr_open)(domain, null_mut(), out, null_mut()));
            let eq = opened(|out| ((*(*base.fabric.raw()).ops).eq_open)(base.fabric, null_mut(), out, null_mut()));
            Elsewhere { base, av, cq, cntr, eq }
        }
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        let codes = [close(self.av), close(self.cq), close(self.cntr), close(self.eq)];
        assert!(std::thread::panicking() || codes == [0; 4], "still bound: {codes:?}");
    }
}

#[test]
fn of_binding_what_is_of_another_domain() {
    let (world, other) = (World::new(), Elsewhere::new());
    let mut t = Table::of(&world);
    let (domain, other_domain) = (world.base.domain, other.base.domain);
    let (memory, info) = ([0u8; 8], world.base.info.0);
    // SAFETY: open objects, complete attributes, memory that is there.
    unsafe {
        let ep: Handle<FidEp> = opened(|out| ((*(*domain.raw()).ops).endpoint)(domain, info, out, null_mut()));
        let bind = |to: Handle<Fid>, what: Handle<Fid>, flags| i64::from(((*(*to.raw()).ops).bind)(to, what, flags));
        let to_ep = |what, flags| bind(fid_of(ep), what, flags);
        t.row("fi_ep_bind, another's vector", FI_EINVAL, || to_ep(fid_of(other.av), 0));
        t.row("fi_ep_bind, another's queue", FI_EINVAL, || to_ep(fid_of(other.cq), FI_SEND | FI_RECV));
        t.row("fi_ep_bind, another's counter", FI_EINVAL, || to_ep(fid_of(other.cntr), FI_SEND));
        t.row("fi_ep_bind, another's event queue", FI_EINVAL, || to_ep(fid_of(other.eq), 0));
        t.row("fi_ep_bind of a domain", FI_EINVAL, || to_ep(fid_of(domain), 0));
        t.row("fi_av_bind, another's event queue", FI_EINVAL, || bind(fid_of(world.av), fid_of(other.eq), 0));
        t.row("fi_domain_bind, another's event queue", FI_EINVAL, || bind(fid_of(domain), fid_of(other.eq), 0));
        let mr: Handle<FidMr> = opened(|out| {
            let reg = (*(*other_domain.raw()).mr).reg;
            reg(fid_of(other_domain), memory.as_ptr().cast(), 8, FI_REMOTE_READ, 0, 1, 0, out, null_mut())
        });
        t.row("fi_mr_bind, another's endpoint", FI_EINVAL, || bind(fid_of(mr), fid_of(world.ep), 0));
        // What is of its own can be bound after all that.
        let own = [(fid_of(world.av), 0), (fid_of(world.cq), FI_SEND | FI_RECV), (fid_of(world.cntr), FI_SEND)];
        assert_eq!(own.map(|(what, flags)| to_ep(what, flags)), [0; 3]);
        assert_eq!([to_ep(fid_of(world.eq), 0), bind(fid_of(world.av), fid_of(world.eq), 0)], [0; 2]);
        assert_eq!([close(ep), close(mr)], [0; 2]);
    }
    t.end();
}

fn options(t: &mut Table, fid: Handle<Fid>) {
    let ops = t.world.ep_ops();
    let set = |level, name, value: usize, len: usize| {
        // SAFETY: a value of eight bytes, which is the most that is said.
        unsafe { (ops.setopt)(fid, level, name, (&raw const value).cast(), len) }.into()
    };
    t.row("fi_setopt, level", FI_ENOPROTOOPT, || set(9, FI_OPT_MIN_MULTI_RECV, 1, 8));
    t.row("fi_setopt, name", FI_ENOPROTOOPT, || set(FI_OPT_ENDPOINT, 99, 1, 8));
    t.row("fi_setopt, short", FI_EINVAL, || set(FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, 1, 4));
    t.row("fi_setopt, fixed", FI_ENOPROTOOPT, || set(FI_OPT_ENDPOINT, FI_OPT_TX_SIZE, 1, 8));
    for (name, most) in [
        (FI_OPT_MAX_MSG_SIZE, info::MAX_MSG),
        (FI_OPT_MAX_TAGGED_SIZE, info::MAX_MSG),
        (FI_OPT_MAX_RMA_SIZE, info::MAX_MSG),
        (FI_OPT_INJECT_MSG_SIZE, params::MAX_INJECT),
        (FI_OPT_INJECT_TAGGED_SIZE, params::MAX_INJECT),
        (FI_OPT_INJECT_RMA_SIZE, params::MAX_INJECT),
    ] {
        t.row("fi_setopt, too large", FI_EINVAL, || set(FI_OPT_ENDPOINT, name, most + 1, 8));
    }
    // SAFETY: nulls where the interface forbids them, else places of the length said.
    unsafe {
        t.row("fi_setopt(null)", FI_EINVAL, || {
            (ops.setopt)(fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, null(), 8).into()
        });
        let (mut value, mut len) = (7usize, 8);
        let (place, room): (*mut c_void, *mut usize) = ((&raw mut value).cast(), &raw mut len);
        let get = |level, name, place, room| (ops.getopt)(fid, level, name, place, room).into();
        t.row("fi_getopt, level", FI_ENOPROTOOPT, || get(9, FI_OPT_MIN_MULTI_RECV, place, room));
        t.row("fi_getopt, name", FI_ENOPROTOOPT, || get(FI_OPT_ENDPOINT, 99, place, room));
        t.row("fi_getopt, no length", FI_EINVAL, || get(FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, place, null_mut()));
        *room = 4;
        t.row("fi_getopt, short", FI_ETOOSMALL, || get(FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, place, room));
        assert_eq!((value, std::mem::replace(&mut *room, 0)), (7, 8), "the length wanted is told");
        t.row("fi_getopt(null)", FI_ETOOSMALL, || get(FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, null_mut(), room));
        assert_eq!(*room, 8, "the length wanted is told");
    }
}

fn names_and_tables(t: &mut Table, ep: Handle<FidEp>) {
    // SAFETY: nulls where the interface forbids them, else places of the length said; tables are
    // static.
    unsafe {
        let cm = &*(*ep.raw()).cm;
        let mut len = 0;
        let none = null_mut();
        t.row("fi_getname, no length", FI_EINVAL, || (cm.getname)(fid_of(ep), none, null_mut()).into());
        t.row("fi_getname, no room", FI_ETOOSMALL, || (cm.getname)(fid_of(ep), none, &raw mut len).into());
        assert_eq!(len, weir_engine::NAME_BYTES);
        let others = [cm.setname, cm.getpeer, cm.connect, cm.listen, cm.accept, cm.reject, cm.shutdown, cm.join];
        for call in others {
            t.row("a table's call that is not offered", FI_ENOSYS, || call() as i64);
        }
        // `fi_barrier` and its kin call through this table without looking at it.
        assert!(!(*ep.raw()).collective.is_null(), "fi_barrier would call through null");
        assert_eq!((*(*ep.raw()).collective).size, size_of::<FiOpsCollective>());
        for call in (*(*ep.raw()).collective).ops {
            t.row("a collective call", FI_ENOSYS, || call() as i64);
        }
    }
}

#[test]
fn of_address_vectors() {
    let world = World::new();
    let mut t = Table::of(&world);
    let (av, name) = (world.av, world.name());
    // SAFETY: nulls where the interface forbids them, else valid objects and as many entries as are
    // said.
    unsafe {
        let make = (*(*world.base.domain.raw()).ops).av_open;
        let open = |change: fn(&mut FiAvAttr)| {
            let mut attr = with(zeroed(), change);
            made(|out| make(world.base.domain, &raw mut attr, out, null_mut()))
        };
        t.row("fi_av_open, unknown flag", FI_EBADFLAGS, || open(|a| a.flags = UNKNOWN));
        t.row("fi_av_open, type", FI_EINVAL, || open(|a| a.av_type = 77));
        t.row("fi_av_open, type below 0", FI_EINVAL, || open(|a| a.av_type = -1));
        t.row("fi_av_open, a name", FI_ENOSYS, || open(|a| a.name = c"shared".as_ptr()));
        t.row("fi_av_open, rx_ctx_bits", FI_ENOSYS, || open(|a| a.rx_ctx_bits = 1));
        t.row("fi_av_open(null)", FI_EINVAL, || made(|out| make(world.base.domain, null_mut(), out, null_mut())));
        let mut attr: FiAvAttr = zeroed();
        t.row("fi_av_open of no domain", FI_EINVAL, || made(|out| make(null_handle(), &raw mut attr, out, null_mut())));

        let ops = &*(*av.raw()).ops;
        let names: *const c_void = name.as_ptr().cast();
        let (mut to, mut errors) = ([5u64; 2], [5i32; 2]);
        let (to, errors): (*mut u64, *mut c_void) = (to.as_mut_ptr(), errors.as_mut_ptr().cast());
        let insert = |names, count, flags, context| (ops.insert)(av, names, count, to, flags, context).into();
        t.row("fi_av_insert, unknown flag", FI_EBADFLAGS, || insert(names, 1, UNKNOWN, null_mut()));
        t.row("fi_av_insert, FI_AUTH_KEY", FI_EBADFLAGS, || insert(names, 1, FI_AUTH_KEY, null_mut()));
        t.row("fi_av_insert(null)", FI_EINVAL, || insert(null(), 1, 0, null_mut()));
        t.row("fi_av_insert of too many", FI_EINVAL, || insert(names, 1 << 31, 0, null_mut()));
        t.row("fi_av_insert, FI_SYNC_ERR to nowhere", FI_EINVAL, || insert(names, 1, FI_SYNC_ERR, null_mut()));
        let odd = [0xffu8; weir_engine::NAME_BYTES];
        t.row("fi_av_insert of no name", 0, || insert(odd.as_ptr().cast(), 1, FI_SYNC_ERR, errors));
        assert_eq!((*to, *errors.cast::<i32>()), (FI_ADDR_NOTAVAIL, FI_EINVAL));
        let service = |node, service, flags| (ops.insertsvc)(av, node, service, to, flags, null_mut()).into();
        let (node, port) = (c"127.0.0.1".as_ptr(), c"4000".as_ptr());
        t.row("fi_av_insertsvc, unknown flag", FI_EBADFLAGS, || service(node, port, UNKNOWN));
        t.row("fi_av_insertsvc, no node", FI_EINVAL, || service(null(), port, 0));
        t.row("fi_av_insertsvc, no service", FI_EINVAL, || service(node, null(), 0));

        let remove = |list: &[u64], flags| (ops.remove)(av, list.as_ptr().cast_mut(), list.len(), flags).into();
        t.row("fi_av_remove, unknown flag", FI_EBADFLAGS, || remove(&[0], UNKNOWN));
        t.row("fi_av_remove, FI_AUTH_KEY", FI_EBADFLAGS, || remove(&[0], FI_AUTH_KEY));
        t.row("fi_av_remove(null)", FI_EINVAL, || (ops.remove)(av, null_mut(), 1, 0).into());
        t.row("fi_av_remove of none", FI_EINVAL, || remove(&[1], 0));
        t.row("fi_av_remove of one and none", FI_EINVAL, || remove(&[0, 1], 0));
        t.row("fi_av_remove of one twice", FI_EINVAL, || remove(&[0, 0], 0));
        t.row("fi_av_remove of FI_ADDR_UNSPEC", FI_EINVAL, || remove(&[FI_ADDR_UNSPEC], 0));
        t.row("fi_av_lookup of none", FI_EINVAL, || (ops.lookup)(av, 1, errors, null_mut()).into());
        t.row("fi_av_lookup, no length", FI_EINVAL, || (ops.lookup)(av, 0, errors, null_mut()).into());
        let straddr = |name| (ops.straddr)(av, name, null_mut(), null_mut()) as i64;
        t.row("fi_av_straddr, no length", 0, || straddr(names));
        for call in [ops.insertsym, ops.av_set, ops.insert_auth_key, ops.lookup_auth_key, ops.set_user_id] {
            t.row("what a vector does not offer", FI_ENOSYS, || call() as i64);
        }
        let fid_ops = &*(*av.raw()).fid.ops;
        let bind = |other, flags| (fid_ops.bind)(fid_of(av), other, flags).into();
        t.row("fi_av_bind, unknown flag", FI_EBADFLAGS, || bind(fid_of(world.eq), UNKNOWN));
        t.row("fi_av_bind(null)", FI_EINVAL, || bind(null_handle(), 0));
        t.row("fi_av_bind of a queue", FI_EINVAL, || bind(fid_of(world.cq), 0));
        t.row("fi_close of a vector in use", FI_EBUSY, || close(av).into());
        t.row("fi_control of a vector", FI_ENOSYS, || (fid_ops.control)(fid_of(av), 99, null_mut()).into());
    }
    t.end();
}

#[test]
fn an_address_takes_the_lowest_index_that_is_free() {
    let world = World::new();
    let name = world.name();
    assert_eq!([(); 3].map(|()| world.insert(&name)), [1, 2, 3]);
    let mut gone = [3, 1, 2];
    // SAFETY: an open vector, three addresses.
    assert_eq!(unsafe { ((*(*world.av.raw()).ops).remove)(world.av, gone.as_mut_ptr(), 3, 0) }, 0);
    assert_eq!([(); 4].map(|()| world.insert(&name)), [1, 2, 3, 4]);
}

#[test]
fn of_address_vectors_that_report_to_no_queue() {
    let world = World::new();
    let mut attr = FiAvAttr { flags: FI_EVENT, ..zeroed() };
    // SAFETY: open objects, a name, places for two answers.
    unsafe {
        let make = (*(*world.base.domain.raw()).ops).av_open;
        let av = opened(|out| make(world.base.domain, &raw mut attr, out, null_mut()));
        let (name, mut to, mut errors) = (world.name(), 5u64, 5i32);
        let (ops, context): (_, *mut c_void) = (&*(*av.raw()).ops, (&raw mut errors).cast());
        let to = &raw mut to;
        let insert = |flags| (ops.insert)(av, name.as_ptr().cast(), 1, to, flags, context);
        assert_eq!(insert(0), -FI_ENOEQ);
        let mut len = 0;
        assert_eq!((ops.lookup)(av, 0, null_mut(), &raw mut len), -FI_EINVAL, "nothing was inserted");
        assert_eq!(((*(*av.raw()).fid.ops).bind)(fid_of(av), fid_of(world.eq), 0), 0);
        assert_eq!(insert(FI_SYNC_ERR), -FI_EBADFLAGS, "for synchronous insertions only");
        assert_eq!(insert(0), 0);
        assert_eq!((*to, errors), (0, 5));
        assert_eq!(close(av), 0);
    }
}

#[test]
fn of_completion_queues() {
    let world = World::new();
    let mut t = Table::of(&world);
    let cq = world.cq;
    // SAFETY: nulls where the interface forbids them, else valid objects and as many entries as are
    // said.
    unsafe {
        let make = (*(*world.base.domain.raw()).ops).cq_open;
        let open = |change: fn(&mut FiCqAttr)| {
            let mut attr = with(zeroed(), change);
            made(|out| make(world.base.domain, &raw mut attr, out, null_mut()))
        };
        t.row("fi_cq_open, unknown flag", FI_EBADFLAGS, || open(|a| a.flags = UNKNOWN));
        t.row("fi_cq_open, format", FI_EINVAL, || open(|a| a.format = 77));
        t.row("fi_cq_open, format below 0", FI_EINVAL, || open(|a| a.format = -1));
        t.row("fi_cq_open, wait_cond", FI_EINVAL, || open(|a| a.wait_cond = 77));
        t.row("fi_cq_open, wait_obj", FI_ENOSYS, || open(|a| a.wait_obj = 77));
        t.row("fi_cq_open(null)", FI_EINVAL, || made(|out| make(world.base.domain, null_mut(), out, null_mut())));

        let ops = &*(*cq.raw()).ops;
        let (mut entry, mut from): (FiCqErrEntry, u64) = (zeroed(), 5);
        let (error, from) = (&raw mut entry, &raw mut from);
        t.row("fi_cq_read(null)", FI_EINVAL, || (ops.read)(cq, null_mut(), 1) as i64);
        t.row("fi_cq_readfrom(null)", FI_EINVAL, || (ops.readfrom)(cq, null_mut(), 1, from) as i64);
        t.row("fi_cq_sread(null)", FI_EINVAL, || (ops.sread)(cq, null_mut(), 1, null(), 0) as i64);
        t.row("fi_cq_sreadfrom(null)", FI_EINVAL, || (ops.sreadfrom)(cq, null_mut(), 1, from, null(), 0) as i64);
        t.row("fi_cq_readerr(null)", FI_EINVAL, || (ops.readerr)(cq, null_mut(), 0) as i64);
        t.row("fi_cq_readerr, unknown flag", FI_EBADFLAGS, || (ops.readerr)(cq, error, UNKNOWN) as i64);
        t.row("fi_cq_readerr of none", FI_EAGAIN, || (ops.readerr)(cq, error, 0) as i64);
        t.row("fi_cq_read of no queue", FI_EINVAL, || (ops.read)(null_handle(), error.cast(), 1) as i64);
        t.row("fi_cq_signal of no queue", FI_EINVAL, || (ops.signal)(null_handle()).into());
        let fid_ops = &*(*cq.raw()).fid.ops;
        t.row("FI_GETWAITOBJ to nowhere", FI_EINVAL, || {
            (fid_ops.control)(fid_of(cq), FI_GETWAITOBJ, null_mut()).into()
        });
        t.row("fi_control of a queue", FI_ENOSYS, || (fid_ops.control)(fid_of(cq), 99, error.cast()).into());
        t.row("fi_bind of a queue", FI_ENOSYS, || (fid_ops.bind)(fid_of(cq), fid_of(world.eq), 0).into());
        t.row("fi_close of a queue in use", FI_EBUSY, || close(cq).into());
        assert_eq!(*from, 5);
    }
    t.end();
}

#[test]
fn an_error_is_not_lost_to_a_call_that_is_refused() {
    let world = World::new();
    // SAFETY: open objects; a message that asks whether there is one; room for the answer.
    unsafe {
        let context = std::ptr::dangling_mut::<c_void>();
        let msg = FiMsgTagged { addr: FI_ADDR_UNSPEC, context, ..zeroed() };
        assert_eq!(((*(*world.ep.raw()).tagged).recvmsg)(world.ep, &raw const msg, FI_PEEK), 0);
        let (ops, mut entry): (_, FiCqErrEntry) = (&*(*world.cq.raw()).ops, zeroed());
        assert_eq!((ops.readerr)(world.cq, &raw mut entry, FI_PEEK), -(FI_EBADFLAGS as isize));
        assert_eq!((ops.readerr)(world.cq, &raw mut entry, 0), 1);
        assert_eq!((entry.err, entry.op_context), (FI_ENOMSG, context));
    }
}

#[test]
fn of_event_queues() {
    let world = World::new();
    let mut t = Table::of(&world);
    let eq = world.eq;
    // SAFETY: nulls where the interface forbids them, else valid objects and as many bytes as are
    // said.
    unsafe {
        let make = (*(*world.base.fabric.raw()).ops).eq_open;
        let open = |change: fn(&mut FiEqAttr)| {
            let mut attr = with(zeroed(), change);
            made(|out| make(world.base.fabric, &raw mut attr, out, null_mut()))
        };
        t.row("fi_eq_open, unknown flag", FI_EBADFLAGS, || open(|a| a.flags = UNKNOWN));
        t.row("fi_eq_open, wait_obj", FI_ENOSYS, || open(|a| a.wait_obj = 77));
        t.row("fi_eq_open of no fabric", FI_EINVAL, || made(|out| make(null_handle(), null_mut(), out, null_mut())));
        t.row("fi_eq_open to nowhere", FI_EINVAL, || {
            make(world.base.fabric, null_mut(), null_mut(), null_mut()).into()
        });

        let ops = &*(*eq.raw()).ops;
        let mut room = [0u64; 1024];
        let (mut event, buf): (u32, *mut c_void) = (0, room.as_mut_ptr().cast());
        let event = &raw mut event;
        t.row("fi_eq_write, unknown flag", FI_EBADFLAGS, || (ops.write)(eq, 1, buf, 8, UNKNOWN) as i64);
        t.row("fi_eq_write, too long", FI_EINVAL, || (ops.write)(eq, 1, buf, 1 << 20, 0) as i64);
        t.row("fi_eq_write(null)", FI_EINVAL, || (ops.write)(eq, 1, null(), 8, 0) as i64);
        t.row("fi_eq_write to no queue", FI_EINVAL, || (ops.write)(null_handle(), 1, buf, 8, 0) as i64);
        t.row("fi_eq_readerr(null)", FI_EINVAL, || (ops.readerr)(eq, null_mut(), 0) as i64);
        t.row("fi_eq_readerr of none", FI_EAGAIN, || (ops.readerr)(eq, buf.cast(), 0) as i64);
        // Something to be read, that refused calls must leave there.
        assert_eq!((ops.write)(eq, 7, buf, 8, 0), 8);
        t.row("fi_eq_read, unknown flag", FI_EBADFLAGS, || (ops.read)(eq, event, buf, 64, UNKNOWN) as i64);
        t.row("fi_eq_sread, unknown flag", FI_EBADFLAGS, || (ops.sread)(eq, event, buf, 64, 0, UNKNOWN) as i64);
        t.row("fi_eq_readerr, unknown flag", FI_EBADFLAGS, || (ops.readerr)(eq, buf.cast(), UNKNOWN) as i64);
        t.row("fi_eq_read, short", FI_ETOOSMALL, || (ops.read)(eq, event, buf, 7, 0) as i64);
        t.row("fi_eq_read(null)", FI_ETOOSMALL, || (ops.read)(eq, event, null_mut(), 64, 0) as i64);
        assert_eq!((ops.read)(eq, event, buf, 64, 0), 8);
        assert_eq!(*event, 7);
        let fid_ops = &*(*eq.raw()).fid.ops;
        t.row("FI_GETWAIT to nowhere", FI_EINVAL, || (fid_ops.control)(fid_of(eq), FI_GETWAIT, null_mut()).into());
        t.row("fi_control of an event queue", FI_ENOSYS, || (fid_ops.control)(fid_of(eq), 99, buf).into());
        t.row("fi_bind of an event queue", FI_ENOSYS, || (fid_ops.bind)(fid_of(eq), fid_of(world.cq), 0).into());
    }
    t.end();
}

#[test]
fn of_counters() {
    let world = World::new();
    let mut t = Table::of(&world);
    let cntr = world.cntr;
    // SAFETY: nulls where the interface forbids them, else valid objects.
    unsafe {
        let make = (*(*world.base.domain.raw()).ops).cntr_open;
        let open = |change: fn(&mut FiCntrAttr)| {
            let mut attr = with(zeroed(), change);
            made(|out| make(world.base.domain, &raw mut attr, out, null_mut()))
        };
        t.row("fi_cntr_open, unknown flag", FI_EBADFLAGS, || open(|a| a.flags = UNKNOWN));
        t.row("fi_cntr_open, events", FI_ENOSYS, || open(|a| a.events = 77));
        t.row("fi_cntr_open, wait_obj", FI_ENOSYS, || open(|a| a.wait_obj = 77));
        t.row("fi_cntr_open of no domain", FI_EINVAL, || made(|out| make(null_handle(), null_mut(), out, null_mut())));
        t.row("fi_cntr_open to nowhere", FI_EINVAL, || {
            make(world.base.domain, null_mut(), null_mut(), null_mut()).into()
        });
        let ops = &*(*cntr.raw()).ops;
        for (what, call) in [
            ("fi_cntr_add", ops.add),
            ("fi_cntr_set", ops.set),
            ("fi_cntr_adderr", ops.adderr),
            ("fi_cntr_seterr", ops.seterr),
        ] {
            t.row(what, FI_EINVAL, || call(null_handle(), 1).into());
        }
        t.row("fi_cntr_wait of none", FI_EINVAL, || (ops.wait)(null_handle(), 0, 0).into());
        t.row("fi_cntr_wait in vain", FI_ETIMEDOUT, || (ops.wait)(cntr, u64::MAX, 0).into());
        let (fid_ops, mut word) = (&*(*cntr.raw()).fid.ops, 0i32);
        let (fid, word): (Handle<Fid>, *mut c_void) = (fid_of(cntr), (&raw mut word).cast());
        t.row("FI_GETWAITOBJ to nowhere", FI_EINVAL, || (fid_ops.control)(fid, FI_GETWAITOBJ, null_mut()).into());
        t.row("fi_control of a counter", FI_ENOSYS, || (fid_ops.control)(fid, 99, word).into());
        t.row("fi_bind of a counter", FI_ENOSYS, || (fid_ops.bind)(fid, fid_of(world.eq), 0).into());
        t.row("fi_close of a counter in use", FI_EBUSY, || close(cntr).into());
    }
    t.end();
}

#[test]
fn what_the_oldest_applications_give_is_not_read_beyond() {
    let base = Base::new(fi_version(1, 4));
    // SAFETY: complete attributes, cut to what they were before 1.5.
    unsafe {
        let info = &*base.info.0;
        let edges = [AtTheEdge::new(), AtTheEdge::new()];
        let domain_attr = edges[0].put(&*info.domain_attr, std::mem::offset_of!(FiDomainAttr, cntr_cnt));
        let ep_attr = edges[1].put(&*info.ep_attr, std::mem::offset_of!(FiEpAttr, auth_key_size));
        let mut info = FiInfo { caps: info.caps, domain_attr, ep_attr, ..zeroed() };
        let info = &raw mut info;
        let domain = opened(|out| ((*(*base.fabric.raw()).ops).domain)(base.fabric, info, out, null_mut()));
        (*info).src_addr = (*base.info.0).src_addr;
        (*info).src_addrlen = (*base.info.0).src_addrlen;
        let ep: Handle<FidEp> = opened(|out| ((*(*domain.raw()).ops).endpoint)(domain, info, out, null_mut()));
        assert_eq!((close(ep), close(domain)), (0, 0));
    }
}

/// Open MPI shares one fabric and one domain between messages and windows: it names those of the
/// first part in the hints of the second.
#[test]
fn of_open_objects_in_hints() {
    let world = World::new();
    let mut t = Table::of(&world);
    let (fabric, domain) = (world.base.fabric.raw().cast::<c_void>(), world.base.domain.raw().cast::<c_void>());
    let ask = |in_fabric: *mut c_void, in_domain: *mut c_void, out: *mut *mut FiInfo| {
        let mut fabric_attr = FiFabricAttr { fabric: in_fabric, ..zeroed() };
        let mut domain_attr = FiDomainAttr { domain: in_domain, ..zeroed() };
        let hints = FiInfo { fabric_attr: &raw mut fabric_attr, domain_attr: &raw mut domain_attr, ..zeroed() };
        // SAFETY: complete hints; open objects or null.
        unsafe { (provider().getinfo)(V2, null(), null(), 0, &raw const hints, out) }
    };
    let mut info = null_mut();
    assert_eq!(ask(fabric, domain, &raw mut info), 0);
    // SAFETY: a complete answer.
    unsafe {
        assert_eq!(((*(*info).fabric_attr).fabric, (*(*info).domain_attr).domain), (fabric, domain));
        release(info);
    }
    // Of another provider: as open as they may be, they are not ours.
    let (mut other, mut nowhere) = (Fid { fclass: FI_CLASS_FABRIC, ..zeroed() }, null_mut());
    let foreign: *mut c_void = (&raw mut other).cast();
    t.row("another provider's fabric", FI_ENODATA, || ask(foreign, null_mut(), &raw mut nowhere).into());
    t.row("another provider's domain", FI_ENODATA, || ask(null_mut(), foreign, &raw mut nowhere).into());
    t.end();
}
