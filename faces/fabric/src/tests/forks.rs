//! Children made by fork(2) beside a busy thread.

use super::*;
use crate::ep::EpObj;
use std::sync::Barrier;

/// How a child ends that does this, here and now.
pub fn status_of_child(what: impl FnOnce() -> bool) -> i32 {
    // SAFETY: the child runs `what`, which takes nothing of other threads but what it is a test of,
    // and ends without running anything else of this program.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: a child that hangs is ended by the system; else it ends here.
        unsafe {
            libc::alarm(60);
            libc::_exit(i32::from(!what()));
        }
    }
    let mut status = -1;
    // SAFETY: a place for the answer.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    status
}

/// What a child finds that is forked while another thread holds what `hold` takes.
pub fn fork_beside<T>(hold: impl FnOnce() -> T + Send, what: impl FnOnce() -> bool) {
    let (begun, over) = (Barrier::new(2), Barrier::new(2));
    std::thread::scope(|s| {
        s.spawn(|| {
            let held = hold();
            begun.wait();
            over.wait();
            drop(held);
        });
        begun.wait();
        let status = status_of_child(what);
        over.wait();
        assert_eq!(status, 0);
    });
}

/// What threads may share here.
struct Shared<T>(T);
// SAFETY: objects of libfabric may be used from several threads.
unsafe impl<T> Sync for Shared<T> {}

#[test]
fn a_child_forked_while_another_thread_has_an_event_queue_is_refused_it_and_can_close_it() {
    let world = World::new();
    let shared = Shared(&world);
    let shared = &shared;
    let (refused, none) = (-(FI_EOPBADSTATE as isize), null_mut());
    fork_beside(
        move || shared.0.eq.get().expect("open").eq.hold(),
        || {
            let mut entry: FiEqErrEntry = super::refusals::zeroed();
            // SAFETY: an open queue; no memory, or room for an entry.
            let answers = unsafe {
                let ops = &*(*world.eq.raw()).ops;
                [
                    (ops.read)(world.eq, none, none.cast(), 0, 0),
                    (ops.sread)(world.eq, none, none.cast(), 0, -1, 0),
                    (ops.readerr)(world.eq, &raw mut entry, 0),
                    (ops.write)(world.eq, 1, null(), 0, 0),
                ]
            };
            answers == [refused; 4] && close(world.eq) == 0
        },
    );
}

#[test]
fn a_child_forked_while_another_thread_binds_a_queue_can_use_its_vector_and_domain() {
    let world = World::new();
    let shared = Shared(&world);
    let shared = &shared;
    let (av, domain) = (world.av, world.base.domain);
    fork_beside(
        move || {
            let world = shared.0;
            (world.av.get().expect("open").hold(), world.base.domain.get().expect("open").eq.lock().expect("in order"))
        },
        || {
            let (eq, name) = (fid_of(world.eq), world.name());
            // SAFETY: open objects, one name.
            let (bound, inserted) = unsafe {
                let bind = |object: Handle<Fid>| ((*(*object.raw()).ops).bind)(object, eq, 0);
                let insert = (*(*av.raw()).ops).insert;
                (
                    [bind(fid_of(av)), bind(fid_of(domain))],
                    insert(av, name.as_ptr().cast(), 1, null_mut(), 0, null_mut()),
                )
            };
            bound == [-FI_EOPBADSTATE; 2] && (inserted == 0 || inserted == 1)
        },
    );
}

#[test]
fn a_child_that_waits_for_events_leaves_the_parents_wake_up_alone() {
    let world = World::new();
    let eq = world.eq.get().expect("open").eq.clone();
    eq.arm().expect("nothing is there");
    let fd = eq.descriptor();
    let is_awake = || {
        let mut set = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid entry.
        unsafe { libc::poll(&raw mut set, 1, 0) == 1 }
    };
    // SAFETY: an open queue, no memory.
    let (read, write) = unsafe { ((*(*world.eq.raw()).ops).sread, (*(*world.eq.raw()).ops).write) };
    let in_child = |what: &dyn Fn() -> bool| assert_eq!(status_of_child(what), 0);
    // SAFETY: as above.
    in_child(&|| unsafe { write(world.eq, 1, null(), 0, 0) } == 0);
    assert!(!is_awake(), "the event is the child's");
    // SAFETY: as above.
    assert_eq!(unsafe { write(world.eq, 1, null(), 0, 0) }, 0);
    let taken = || {
        // SAFETY: as above.
        let once = || unsafe { read(world.eq, null_mut(), null_mut(), 0, -1, 0) };
        once() == 0 && once() == -(FI_EOPBADSTATE as isize)
    };
    in_child(&taken);
    assert!(is_awake(), "the wake-up is gone");
}

#[test]
fn a_child_of_a_program_with_endpoints_has_its_own() {
    let world = World::new();
    // SAFETY: an open, enabled endpoint.
    assert!(EpObj::ready(&world.ep).is_ok());
    let status = status_of_child(|| {
        let own = World::new();
        let room = [0u8; 8];
        // SAFETY: memory that lives as long as the child.
        let sent = unsafe { (crate::msg::MSG_OPS.inject)(own.ep, room.as_ptr().cast(), 8, 0) };
        sent == 0
    });
    assert_eq!(status, 0);
}
