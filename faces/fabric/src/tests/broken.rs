//! What an application meets after a panic inside the provider.

use super::*;
use crate::ep::EpObj;
use crate::guard;
use crate::msg::MSG_OPS;
use crate::tagged::TAGGED_OPS;

/// A call that panics inside the engine, as a defect would make it.
fn panicking_call(world: &World) -> i32 {
    // SAFETY: an open, enabled endpoint.
    let core = EpObj::ready(&world.ep).expect("enabled").core.clone();
    guard::int(|| {
        core.engine.panic_inside();
        Ok(0)
    })
}

#[test]
fn after_a_panic_calls_fail_those_that_wait_return_and_all_can_be_closed() {
    let world = World::new();
    let mut room = [0u8; 8];
    let mut entry = [0u64; 16];
    let (buf, entries): (*mut c_void, *mut c_void) = (room.as_mut_ptr().cast(), entry.as_mut_ptr().cast());
    // SAFETY: open objects, and memory that lives longer than they are used.
    unsafe {
        let cq = &*(*world.cq.raw()).ops;
        let cntr = &*(*world.cntr.raw()).ops;
        let receive = || (TAGGED_OPS.recv)(world.ep, buf, 8, null_mut(), FI_ADDR_UNSPEC, 1, 0, null_mut());
        assert_eq!(receive(), 0);
        assert_eq!((cq.read)(world.cq, entries, 1), -(FI_EAGAIN as isize));
        assert_eq!(panicking_call(&world), -FI_EOTHER);
        let out_of_order = -(FI_EOPBADSTATE as isize);
        assert_eq!(receive(), out_of_order);
        assert_eq!((MSG_OPS.send)(world.ep, buf, 8, null_mut(), 0, null_mut()), out_of_order);
        assert_eq!((cq.read)(world.cq, entries, 1), out_of_order);
        assert_eq!((cq.sread)(world.cq, entries, 1, null(), -1), out_of_order, "however long it would wait");
        assert_eq!((cntr.wait)(world.cntr, 1000, -1), -FI_EOPBADSTATE);
        assert_eq!((cntr.read)(world.cntr), 0);
    }
    // Closing, when `world` is dropped, fails nowhere.
}

#[test]
fn a_thread_that_waits_in_a_call_returns_when_another_panics() {
    struct Shared(Handle<FidCq>);
    // SAFETY: libfabric's queues may be read from several threads.
    unsafe impl Sync for Shared {}
    let world = World::new();
    let cq = Shared(world.cq);
    let cq = &cq;
    let code = std::thread::scope(|s| {
        let waits = s.spawn(move || {
            let mut entry = [0u64; 16];
            // SAFETY: an open queue, and room for an entry.
            unsafe { ((*(*cq.0.raw()).ops).sread)(cq.0, entry.as_mut_ptr().cast(), 1, null(), -1) }
        });
        // Asleep, as a rule, by then; if not, it finds out before it sleeps.
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert_eq!(panicking_call(&world), -FI_EOTHER);
        waits.join().expect("returns")
    });
    assert_eq!(code, -(FI_EOPBADSTATE as isize));
}
