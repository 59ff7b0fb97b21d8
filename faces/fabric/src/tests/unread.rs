//! Endpoints without a queue for what comes: nobody is told of it, and nothing waits for that.

use super::*;
use crate::rma::RMA_OPS as RMA;
use std::time::{Duration, Instant};

/// Nothing takes this long, however busy the machine, but what hangs.
const LIMIT: Duration = Duration::from_secs(60);

/// An endpoint in another's domain that reports nothing: it has a counter alone.
struct Silent {
    ep: Handle<FidEp>,
    av: Handle<FidAv>,
    cntr: Handle<FidCntr>,
}

impl Silent {
    fn new(world: &World) -> Silent {
        let domain = world.base.domain;
        // SAFETY: zeros are valid attributes; objects are used before they are closed.
        unsafe {
            let mut av_attr: FiAvAttr = std::mem::zeroed();
            let ops = &*(*domain.raw()).ops;
            let av = opened(|out| (ops.av_open)(domain, &raw mut av_attr, out, null_mut()));
            let cntr = opened(|out| (ops.cntr_open)(domain, null_mut(), out, null_mut()));
            let ep = opened(|out| (ops.endpoint)(domain, world.base.info.0, out, null_mut()));
            let silent = Silent { ep, av, cntr };
            for (object, flags) in [(fid_of(av), 0), (fid_of(cntr), FI_SEND | FI_RECV)] {
                assert_eq!(silent.bind(object, flags), 0);
            }
            assert_eq!(((*(*ep.raw()).fid.ops).control)(fid_of(ep), FI_ENABLE, null_mut()), 0);
            silent
        }
    }

    fn bind(&self, object: Handle<Fid>, flags: u64) -> i32 {
        // SAFETY: open objects.
        unsafe { ((*(*self.ep.raw()).fid.ops).bind)(fid_of(self.ep), object, flags) }
    }

    /// What it counted, well and badly ended.
    fn counts(&self) -> (u64, u64) {
        // SAFETY: an open counter.
        unsafe {
            let ops = &*(*self.cntr.raw()).ops;
            ((ops.read)(self.cntr), (ops.readerr)(self.cntr))
        }
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        let codes = [close(self.ep), close(self.av), close(self.cntr)];
        assert!(std::thread::panicking() || codes == [0; 3], "{codes:?}");
    }
}

#[test]
fn writes_with_immediate_data_go_on_though_their_target_has_no_queue_to_tell_of_them() {
    // More than may wait to be told of.
    const WRITES: u64 = 20_000;
    let world = World::new();
    let target = Silent::new(&world);
    let to = world.insert(&name_of(target.ep));
    let mut memory = [0u64; 1];
    let (domain, base): (_, *mut c_void) = (world.base.domain, memory.as_mut_ptr().cast());
    // SAFETY: an open domain, and memory that outlives the region.
    let mr: Handle<FidMr> = opened(|out| unsafe {
        let reg = (*(*domain.raw()).mr).reg;
        reg(fid_of(domain), base, 8, FI_REMOTE_WRITE, 0, 5, 0, out, null_mut())
    });
    let (start, mut entry) = (Instant::now(), [0u64; 8]);
    for n in 1..=WRITES {
        let word = n.to_ne_bytes();
        loop {
            // SAFETY: what is injected is read during the call.
            let code = unsafe { (RMA.injectdata)(world.ep, word.as_ptr().cast(), 8, n, to, 0, 5) };
            if code == 0 {
                break;
            }
            assert_eq!(code, -(FI_EAGAIN as isize));
            // SAFETY: room for an entry of any format.
            let read = unsafe { ((*(*world.cq.raw()).ops).read)(world.cq, entry.as_mut_ptr().cast(), 1) };
            assert_eq!(read, -(FI_EAGAIN as isize), "nothing is reported of it");
            target.counts();
            assert!(start.elapsed() < LIMIT, "the writer stands still after {n}");
        }
    }
    // SAFETY: the memory is changed by the engine.
    while unsafe { base.cast::<u64>().read_volatile() } != WRITES {
        target.counts();
        // SAFETY: an open counter.
        unsafe { ((*(*world.cntr.raw()).ops).read)(world.cntr) };
        assert!(start.elapsed() < LIMIT, "not all came");
    }
    assert_eq!(target.counts(), (0, 0), "writes of others are no receives");
    assert_eq!(close(mr), 0);
}

#[test]
fn nothing_is_bound_to_an_endpoint_in_use() {
    let world = World::new();
    let target = Silent::new(&world);
    // SAFETY: an open domain; null asks for the defaults.
    let cntr: Handle<FidCntr> = opened(|out| unsafe {
        ((*(*world.base.domain.raw()).ops).cntr_open)(world.base.domain, null_mut(), out, null_mut())
    });
    let before = Arc::strong_count(&cntr.get().expect("open").cntr);
    assert_eq!(target.bind(fid_of(cntr), FI_READ), -FI_EOPBADSTATE);
    assert_eq!(target.bind(fid_of(world.cq), FI_RECV), -FI_EOPBADSTATE);
    assert_eq!(target.bind(fid_of(world.av), 0), -FI_EINVAL, "it has one");
    assert_eq!(target.bind(fid_of(world.eq), 0), 0, "of which it makes no use");
    assert_eq!(Arc::strong_count(&cntr.get().expect("open").cntr), before);
    assert_eq!(close(cntr), 0);
}
