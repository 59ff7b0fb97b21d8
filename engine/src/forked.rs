//! What a child made by fork(2) is to know of the endpoints of this process.

use crate::files::{WRITTEN, Written};
use crate::live::LIVE;
use crate::traffic::{CLOSED, Traffic};
use crate::{Guard, Shared};
use std::sync::{Once, Weak};

/// Before the first endpoint is made: from then on children are told.
pub fn see_to_children() {
    static ONCE: Once = Once::new();
    // SAFETY: the functions are as long in memory as this library, with which the system forgets
    // them. (Where the system has no memory for this, children are left to their own good sense.)
    ONCE.call_once(|| _ = unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) });
}

/// Another thread may be making an endpoint or closing one: the child is to have the list, the sums
/// and the names of files whole, and nobody there could let go of them. In the order in which
/// others take them.
unsafe extern "C" fn before() {
    std::mem::forget(CLOSED.lock());
    std::mem::forget(LIVE.lock());
    std::mem::forget(WRITTEN.lock());
}

/// All of it.
type Locked = (Guard<'static, Written>, Guard<'static, Vec<Weak<Shared>>>, Guard<'static, Traffic>);

/// What `before` has locked.
///
/// # Safety
/// By the thread that forked, once after it, in the parent or in the child.
unsafe fn locked() -> Locked {
    // SAFETY: `before` left its guards undropped, and nobody else takes one until these are gone.
    unsafe { (WRITTEN.assume(), LIVE.assume(), CLOSED.assume()) }
}

unsafe extern "C" fn in_parent() {
    // SAFETY: the system calls this after `before`, in the same thread.
    drop(unsafe { locked() });
}

/// A child has copies of the endpoints: their sockets, memory and descriptors are the parent's, who
/// would miss what the child takes. So there they are out of order from the beginning.
unsafe extern "C" fn in_child() {
    // SAFETY: as above.
    let (_written, live, _closed) = unsafe { locked() };
    // SAFETY: this thread is the child's only one.
    live.iter().filter_map(Weak::upgrade).for_each(|shared| unsafe { shared.abandon() });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::all;
    use crate::{Endpoint, EngineConfig, EngineError, Group};
    use std::sync::{Arc, Barrier};
    use std::time::Duration;

    /// How a child ends that does this.
    fn status_of_child(what: impl FnOnce() -> bool) -> i32 {
        // SAFETY: the child runs `what`, which takes no lock that another thread of this process
        // may hold, and ends without running anything else of this program.
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

    /// What `fork` finds while another thread holds what `hold` takes, as long as such a thread
    /// does and much longer.
    fn fork_beside<T>(hold: impl FnOnce() -> T + Send, what: impl FnOnce() -> bool) {
        let begun = Barrier::new(2);
        std::thread::scope(|s| {
            s.spawn(|| {
                let held = hold();
                begun.wait();
                std::thread::sleep(Duration::from_millis(300));
                drop(held);
            });
            begun.wait();
            assert_eq!(status_of_child(what), 0);
        });
    }

    fn open() -> Arc<Endpoint> {
        let addrs = vec!["127.0.0.1".parse().expect("address")];
        let cfg = EngineConfig { addrs, linger: Duration::ZERO, ..EngineConfig::default() };
        Endpoint::open_with_key(cfg, [7; 32]).expect("open")
    }

    #[test]
    fn a_child_forked_while_another_thread_makes_an_endpoint_knows_its_copies_for_what_they_are() {
        let ep = open();
        fork_beside(|| LIVE.lock(), || matches!(ep.check(), Err(EngineError::Inherited)) && LIVE.try_lock().is_some());
        assert!(ep.check().is_ok() && !all().is_empty(), "the parent goes on");
    }

    #[test]
    fn a_child_forked_while_another_thread_closes_an_endpoint_can_close_its_own() {
        let ep = open();
        fork_beside(|| CLOSED.lock(), || CLOSED.try_lock().is_some() && LIVE.try_lock().is_some());
        assert!(ep.check().is_ok() && CLOSED.try_lock().is_some(), "the parent goes on");
    }

    #[test]
    fn a_child_forked_while_another_thread_names_a_file_can_name_its_own() {
        let ep = open();
        fork_beside(|| WRITTEN.lock(), || crate::files::own_file("A", "/nowhere/forked") == "/nowhere/forked");
        assert!(ep.check().is_ok() && WRITTEN.try_lock().is_some(), "the parent goes on");
    }

    #[test]
    fn an_endpoint_that_a_child_makes_can_be_looked_at_there() {
        use std::os::linux::net::SocketAddrExt;
        use std::os::unix::net::{SocketAddr, UnixStream};
        let _parents = open();
        let status = status_of_child(|| {
            let _own = open();
            let address = SocketAddr::from_abstract_name(format!("weir-stat-{}", std::process::id()));
            address.and_then(|a| UnixStream::connect_addr(&a)).is_ok()
        });
        assert_eq!(status, 0);
    }

    #[test]
    fn a_child_forked_while_another_thread_has_the_list_of_a_group_can_use_the_group() {
        let (ep, other, group) = (open(), open(), Group::new());
        [&ep, &other].into_iter().for_each(|ep| ep.join(&group));
        fork_beside(|| group.hold(), || !group.has_others() && group.is_free());
        assert!(group.has_others(), "the parent goes on");
    }
}
