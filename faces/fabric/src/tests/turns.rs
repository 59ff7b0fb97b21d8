//! Several endpoints of a program: what one is to do is done, whichever of them the program polls.

use super::*;
use crate::msg::MSG_OPS as MSG;
use std::time::{Duration, Instant};

/// Nothing takes this long, however busy the machine, but what hangs.
const LIMIT: Duration = Duration::from_secs(60);

/// An endpoint of another's domain, with queue and vector of its own.
struct Beside {
    ep: Handle<FidEp>,
    av: Handle<FidAv>,
    cq: Handle<FidCq>,
}

impl Beside {
    fn new(world: &World) -> Beside {
        let domain = world.base.domain;
        // SAFETY: zeros are valid attributes; objects are used before they are closed.
        unsafe {
            let (mut av_attr, mut cq_attr): (FiAvAttr, FiCqAttr) = std::mem::zeroed();
            let ops = &*(*domain.raw()).ops;
            let av = opened(|out| (ops.av_open)(domain, &raw mut av_attr, out, null_mut()));
            let cq = opened(|out| (ops.cq_open)(domain, &raw mut cq_attr, out, null_mut()));
            let ep = opened(|out| (ops.endpoint)(domain, world.base.info.0, out, null_mut()));
            for (object, flags) in [(fid_of(av), 0), (fid_of(cq), FI_SEND | FI_RECV)] {
                assert_eq!(((*(*ep.raw()).fid.ops).bind)(fid_of(ep), object, flags), 0);
            }
            assert_eq!(((*(*ep.raw()).fid.ops).control)(fid_of(ep), FI_ENABLE, null_mut()), 0);
            Beside { ep, av, cq }
        }
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        let codes = [close(self.ep), close(self.av), close(self.cq)];
        assert!(std::thread::panicking() || codes == [0; 3], "{codes:?}");
    }
}

/// Completions read, none or one.
fn read(cq: Handle<FidCq>) -> isize {
    let mut entry = [0u64; 8];
    // SAFETY: room for an entry of any format.
    unsafe { ((*(*cq.raw()).ops).read)(cq, entry.as_mut_ptr().cast(), 1) }
}

#[test]
fn a_program_that_polls_one_of_its_endpoints_makes_progress_on_the_other() {
    WATCHDOG_US.set(0);
    let (world, peer) = (World::new(), World::new());
    let beside = Beside::new(&world);
    WATCHDOG_US.set(500);
    // Long: it takes answers of the endpoint that nobody polls.
    let (mut room, data) = (vec![0u8; 300_000], vec![7u8; 300_000]);
    let to = peer.insert(&name_of(beside.ep));
    // SAFETY: the memory outlives the completions below.
    unsafe {
        let into: *mut c_void = room.as_mut_ptr().cast();
        assert_eq!((MSG.recv)(beside.ep, into, room.len(), null_mut(), FI_ADDR_UNSPEC, null_mut()), 0);
        assert_eq!((MSG.send)(peer.ep, data.as_ptr().cast(), data.len(), null_mut(), to, null_mut()), 0);
    }
    let start = Instant::now();
    while read(peer.cq) != 1 {
        assert_eq!(read(world.cq), -(FI_EAGAIN as isize));
        assert!(start.elapsed() < LIMIT, "the endpoint that is not polled stands still");
    }
    assert_eq!(read(beside.cq), 1);
    assert_eq!(room, data);
}
