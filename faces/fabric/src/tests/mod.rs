//! The calls as a C program makes them: through the tables of a provider's objects.

mod any_call;
mod asleep;
mod atomics;
mod broken;
pub mod forks;
mod misuse;
mod refusals;
mod regions;
mod stress;
mod transfers;
mod turns;
mod unread;

use crate::abi::*;
use crate::handle::Handle;
use crate::info::release;
use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::Arc;

/// The newest version most tests speak.
const V2: u32 = fi_version(2, 5);

/// What the provider offers on loopback to an application of this version.
struct Info(*mut FiInfo);

impl Info {
    fn new(version: u32) -> Info {
        let mut info = null_mut();
        // SAFETY: texts are literals, there are no hints, and the answer has a place.
        let code = unsafe {
            let flags = FI_SOURCE | FI_NUMERICHOST;
            (provider().getinfo)(version, c"127.0.0.1".as_ptr(), null(), flags, null(), &raw mut info)
        };
        assert_eq!(code, 0);
        Info(info)
    }
}

impl Drop for Info {
    fn drop(&mut self) {
        // SAFETY: made by getinfo.
        unsafe { release(self.0) };
    }
}

fn provider() -> &'static FiProvider {
    // SAFETY: a static structure.
    unsafe { &*crate::fi_prov_ini().cast::<FiProvider>() }
}

/// A place for a new object, and the object.
fn opened<T>(call: impl FnOnce(*mut *mut T) -> i32) -> Handle<T> {
    let mut object = null_mut();
    assert_eq!(call(&raw mut object), 0);
    handle_of(object)
}

/// The handle of what a call has just made.
fn handle_of<T>(object: *mut T) -> Handle<T> {
    // SAFETY: made by the provider (callers); tests close objects when they have done with them.
    unsafe { Handle::new(object) }
}

/// What a C program passes that has no object.
fn null_handle<T>() -> Handle<T> {
    // SAFETY: null.
    unsafe { Handle::new(null_mut()) }
}

/// The same object, as calls take it that are of all objects.
fn fid_of<T>(object: Handle<T>) -> Handle<Fid> {
    // SAFETY: every object begins with a `Fid`.
    unsafe { Handle::new(object.raw().cast()) }
}

/// Closes an object.
fn close<T>(object: Handle<T>) -> i32 {
    let fid = fid_of(object);
    // SAFETY: an open object; the callers close each once.
    unsafe { ((*(*fid.raw()).ops).close)(fid) }
}

fn name_of(ep: Handle<FidEp>) -> crate::addr::Name {
    let mut name = [0; weir_engine::NAME_BYTES];
    let mut len = name.len();
    // SAFETY: a buffer of that length.
    let code = unsafe { ((*(*ep.raw()).cm).getname)(fid_of(ep), name.as_mut_ptr().cast(), &raw mut len) };
    assert_eq!(code, 0);
    name
}

thread_local! {
    /// The watchdog time of endpoints that this thread opens.
    pub static WATCHDOG_US: std::cell::Cell<u32> = const { std::cell::Cell::new(500) };
}

/// A fabric and a domain.
struct Base {
    info: Info,
    fabric: Handle<FidFabric>,
    domain: Handle<FidDomain>,
}

impl Base {
    fn new(version: u32) -> Base {
        let info = Info::new(version);
        // SAFETY: complete attributes, as getinfo made them.
        unsafe {
            let fabric = opened(|out| (provider().fabric)((*info.0).fabric_attr, out, null_mut()));
            let domain = opened(|out| ((*(*fabric.raw()).ops).domain)(fabric, info.0, out, null_mut()));
            Base { info, fabric, domain }
        }
    }
}

impl Drop for Base {
    fn drop(&mut self) {
        let codes = (close(self.domain), close(self.fabric));
        // A test that failed has said why.
        assert!(std::thread::panicking() || codes == (0, 0), "something of it is still open: {codes:?}");
    }
}

/// An enabled endpoint with all it can be bound to. It knows itself by address 0.
struct World {
    ep: Handle<FidEp>,
    av: Handle<FidAv>,
    cq: Handle<FidCq>,
    cntr: Handle<FidCntr>,
    eq: Handle<FidEq>,
    base: Base,
}

impl World {
    fn new() -> World {
        World::with(0)
    }

    /// The same, with capabilities that are only for who asks.
    fn with(caps: u64) -> World {
        let base = Base::new(V2);
        // SAFETY: the answer of getinfo.
        unsafe { (*base.info.0).caps |= caps };
        let (fabric, domain) = (base.fabric, base.domain);
        // SAFETY: zeros are valid attributes; objects are used before they are closed.
        unsafe {
            let (mut av_attr, mut cq_attr): (FiAvAttr, FiCqAttr) = std::mem::zeroed();
            cq_attr.format = FI_CQ_FORMAT_TAGGED;
            let ops = &*(*domain.raw()).ops;
            let av = opened(|out| (ops.av_open)(domain, &raw mut av_attr, out, null_mut()));
            let cq = opened(|out| (ops.cq_open)(domain, &raw mut cq_attr, out, null_mut()));
            let cntr = opened(|out| (ops.cntr_open)(domain, null_mut(), out, null_mut()));
            let eq = opened(|out| ((*(*fabric.raw()).ops).eq_open)(fabric, null_mut(), out, null_mut()));
            let ep = opened(|out| (ops.endpoint)(domain, base.info.0, out, null_mut()));
            let world = World { ep, av, cq, cntr, eq, base };
            let binds: [(Handle<Fid>, u64); 4] = [
                (fid_of(av), 0),
                (fid_of(cq), FI_SEND | FI_RECV),
                (fid_of(cntr), FI_SEND | FI_RECV | FI_READ | FI_WRITE),
                (fid_of(eq), 0),
            ];
            for (object, flags) in binds {
                assert_eq!(((*(*ep.raw()).fid.ops).bind)(fid_of(ep), object, flags), 0);
            }
            assert_eq!(((*(*ep.raw()).fid.ops).control)(fid_of(ep), FI_ENABLE, null_mut()), 0);
            assert_eq!(world.insert(&world.name()), 0);
            world
        }
    }

    fn name(&self) -> crate::addr::Name {
        name_of(self.ep)
    }

    fn insert(&self, name: &crate::addr::Name) -> u64 {
        let mut address = FI_ADDR_NOTAVAIL;
        // SAFETY: one name, one place.
        let n = unsafe {
            ((*(*self.av.raw()).ops).insert)(self.av, name.as_ptr().cast(), 1, &raw mut address, 0, null_mut())
        };
        assert_eq!(n, 1);
        address
    }

    fn option(&self, name: i32) -> usize {
        let (mut value, mut len) = (0usize, size_of::<usize>());
        let ops = self.ep_ops();
        // SAFETY: a place of that length.
        unsafe {
            (ops.getopt)(fid_of(self.ep), FI_OPT_ENDPOINT, name, (&raw mut value).cast(), &raw mut len);
        }
        value
    }

    fn default_flags(&self, direction: u64) -> u64 {
        let mut flags = direction;
        // SAFETY: one flag word.
        unsafe { ((*(*self.ep.raw()).fid.ops).control)(fid_of(self.ep), FI_GETOPSFLAG, (&raw mut flags).cast()) };
        flags
    }

    fn ep_ops(&self) -> &'static FiOpsEp {
        // SAFETY: a static table.
        unsafe { &*(*self.ep.raw()).ops }
    }

    /// All that a call could have changed: who holds what, what is known, what is set, what was
    /// counted, what is there to be read.
    fn state(&self) -> Vec<u64> {
        let mut state: Vec<usize> = vec![
            Arc::strong_count(&self.base.fabric.get().expect("open").fabric),
            Arc::strong_count(&self.base.domain.get().expect("open").domain),
            Arc::strong_count(&self.av.get().expect("open").av),
            Arc::strong_count(&self.cq.get().expect("open").cq),
            Arc::strong_count(&self.cntr.get().expect("open").cntr),
            Arc::strong_count(&self.eq.get().expect("open").eq),
        ];
        state.extend([0, 1, 6, 7, 12, 13, 14, 16, 17, 18].map(|name| self.option(name)));
        let mut state: Vec<u64> = state.into_iter().map(|n| n as u64).collect();
        state.extend([FI_SEND, FI_RECV].map(|direction| self.default_flags(direction)));
        let mut buf = [0u64; 64];
        let room: *mut c_void = buf.as_mut_ptr().cast();
        // SAFETY: open objects; room for more than any of these answers.
        unsafe {
            for index in 0..4 {
                let mut len = 8;
                state.push(((*(*self.av.raw()).ops).lookup)(self.av, index, room, &raw mut len) as u64);
            }
            state.extend([((*(*self.cntr.raw()).ops).read)(self.cntr), ((*(*self.cntr.raw()).ops).readerr)(self.cntr)]);
            state.push(((*(*self.cq.raw()).ops).read)(self.cq, room, 1) as u64);
            state.push(((*(*self.eq.raw()).ops).read)(self.eq, null_mut(), room, 512, FI_PEEK) as u64);
        }
        state
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let codes = [close(self.ep), close(self.av), close(self.cq), close(self.cntr), close(self.eq)];
        assert!(std::thread::panicking() || codes == [0; 5], "{codes:?}");
    }
}

/// Attributes that end where the next page cannot be read.
struct AtTheEdge(*mut u8, usize);

impl AtTheEdge {
    fn new() -> AtTheEdge {
        // SAFETY: fresh pages of our own, the second of them closed.
        unsafe {
            let page = usize::try_from(libc::sysconf(libc::_SC_PAGESIZE)).expect("a page's size");
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let at = libc::mmap(null_mut(), 2 * page, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
            assert_ne!(at, libc::MAP_FAILED);
            assert_eq!(libc::mprotect(at.byte_add(page), page, libc::PROT_NONE), 0);
            AtTheEdge(at.cast(), page)
        }
    }

    /// The first `len` bytes of `attr`, and nothing behind them.
    fn put<T>(&self, attr: &T, len: usize) -> *mut T {
        assert!(len <= size_of::<T>() && len.is_multiple_of(8));
        // SAFETY: `len` bytes at the end of the open page.
        unsafe {
            let to = self.0.add(self.1 - len);
            std::ptr::copy_nonoverlapping((&raw const *attr).cast::<u8>(), to, len);
            to.cast()
        }
    }
}

impl Drop for AtTheEdge {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`.
        unsafe { libc::munmap(self.0.cast(), 2 * self.1) };
    }
}
