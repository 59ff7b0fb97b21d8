//! What an application sleeps on: it may when there is nothing for it, and wakes when there is.

use super::*;
use crate::msg::MSG_OPS as MSG;
use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Nothing takes this long, however busy the machine, but what hangs.
const LIMIT: Duration = Duration::from_secs(60);

/// An endpoint with a queue for each direction, or with a counter alone. It knows itself by address
/// 0.
struct Sleeper {
    ep: Handle<FidEp>,
    av: Handle<FidAv>,
    /// What it is bound to, with the flags of that.
    bound: Vec<(Handle<Fid>, u64)>,
    base: Base,
}

impl Sleeper {
    fn new(of: impl FnOnce(Handle<FidDomain>, &FiOpsDomain) -> Vec<(Handle<Fid>, u64)>) -> Sleeper {
        let base = Base::new(V2);
        let domain = base.domain;
        // SAFETY: zeros are valid attributes; objects are used before they are closed.
        unsafe {
            let mut av_attr: FiAvAttr = std::mem::zeroed();
            let ops = &*(*domain.raw()).ops;
            let av = opened(|out| (ops.av_open)(domain, &raw mut av_attr, out, null_mut()));
            let ep = opened(|out| (ops.endpoint)(domain, base.info.0, out, null_mut()));
            let sleeper = Sleeper { ep, av, bound: of(domain, ops), base };
            for &(object, flags) in sleeper.bound.iter().chain([&(fid_of(av), 0)]) {
                assert_eq!(sleeper.bind(object, flags), 0);
            }
            assert_eq!(((*(*ep.raw()).fid.ops).control)(fid_of(ep), FI_ENABLE, null_mut()), 0);
            let name = name_of(ep);
            assert_eq!(((*(*av.raw()).ops).insert)(av, name.as_ptr().cast(), 1, null_mut(), 0, null_mut()), 1);
            sleeper
        }
    }

    fn with_two_queues() -> Sleeper {
        Sleeper::new(|domain, ops| vec![(queue(domain, ops), FI_SEND), (queue(domain, ops), FI_RECV)])
    }

    fn with_a_counter() -> Sleeper {
        Sleeper::new(|domain, ops| {
            let mut attr =
                FiCntrAttr { events: FI_CNTR_EVENTS_COMP, wait_obj: FI_WAIT_FD, wait_set: null_mut(), flags: 0 };
            // SAFETY: an open domain and valid attributes.
            let cntr = opened(|out| unsafe { (ops.cntr_open)(domain, &raw mut attr, out, null_mut()) });
            vec![(fid_of(cntr), FI_SEND | FI_RECV)]
        })
    }

    fn bind(&self, object: Handle<Fid>, flags: u64) -> i32 {
        // SAFETY: open objects.
        unsafe { ((*(*self.ep.raw()).fid.ops).bind)(fid_of(self.ep), object, flags) }
    }

    fn object<T>(&self, at: usize) -> Handle<T> {
        handle_of(self.bound[at].0.raw().cast())
    }

    fn try_wait(&self, at: usize) -> i32 {
        let mut fid = self.bound[at].0;
        // SAFETY: an open fabric and one open object.
        unsafe { ((*(*self.base.fabric.raw()).ops).trywait)(self.base.fabric, &raw mut fid, 1) }
    }

    /// Until it may sleep; `look` finds nothing that it would miss.
    fn may_sleep(&self, at: usize, what: &str, look: impl Fn()) {
        let start = Instant::now();
        while self.try_wait(at) != 0 {
            look();
            assert!(start.elapsed() < LIMIT / 2, "{what}: never may it sleep");
        }
    }

    fn descriptor(&self, at: usize) -> c_int {
        let (fid, mut fd) = (self.bound[at].0, -1 as c_int);
        // SAFETY: an open object and a place for the answer.
        let code = unsafe { ((*(*fid.raw()).ops).control)(fid, FI_GETWAIT, (&raw mut fd).cast()) };
        assert_eq!(code, 0);
        fd
    }

    fn is_woken(&self, at: usize, within: Duration) -> bool {
        let mut set = libc::pollfd { fd: self.descriptor(at), events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid entry.
        unsafe { libc::poll(&raw mut set, 1, within.as_millis() as c_int) == 1 }
    }

    fn read(&self, at: usize) -> isize {
        let (cq, mut entry): (Handle<FidCq>, _) = (self.object(at), [0u64; 8]);
        // SAFETY: an open queue, and room for an entry of any format.
        unsafe { ((*(*cq.raw()).ops).read)(cq, entry.as_mut_ptr().cast(), 1) }
    }

    /// Sends itself a message of no bytes, to be reported or not.
    fn send(&self, reported: bool) {
        // SAFETY: no memory.
        let code = unsafe {
            if reported {
                (MSG.send)(self.ep, null(), 0, null_mut(), 0, null_mut())
            } else {
                (MSG.inject)(self.ep, null(), 0, 0)
            }
        };
        assert_eq!(code, 0);
    }

    /// A receive that is cancelled.
    fn end_badly(&self) {
        self.receive();
        // SAFETY: an open endpoint.
        assert_eq!(unsafe { ((*(*self.ep.raw()).ops).cancel)(fid_of(self.ep), null_mut()) }, 0);
    }

    fn receive(&self) {
        // SAFETY: no memory.
        assert_eq!(unsafe { (MSG.recv)(self.ep, null_mut(), 0, null_mut(), FI_ADDR_UNSPEC, null_mut()) }, 0);
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let codes = [close(self.ep), close(self.av)];
        let more: Vec<i32> = self.bound.iter().map(|(object, _)| close(*object)).collect();
        assert!(
            std::thread::panicking() || codes == [0; 2] && more.iter().all(|code| *code == 0),
            "{codes:?} {more:?}"
        );
    }
}

/// A queue with a descriptor.
fn queue(domain: Handle<FidDomain>, ops: &FiOpsDomain) -> Handle<Fid> {
    // SAFETY: zeros are valid attributes.
    let mut attr: FiCqAttr = unsafe { std::mem::zeroed() };
    attr.wait_obj = FI_WAIT_FD;
    // SAFETY: an open domain and valid attributes.
    fid_of(opened(|out: *mut *mut FidCq| unsafe { (ops.cq_open)(domain, &raw mut attr, out, null_mut()) }))
}

#[test]
fn a_signal_keeps_from_sleeping_once() {
    let s = Sleeper::with_two_queues();
    s.may_sleep(1, "nothing is there", || ());
    let cq: Handle<FidCq> = s.object(1);
    // SAFETY: an open queue.
    assert_eq!(unsafe { ((*(*cq.raw()).ops).signal)(cq) }, 0);
    assert!(s.is_woken(1, LIMIT));
    assert_eq!(s.try_wait(1), -FI_EAGAIN);
    s.may_sleep(1, "the signal was heard", || assert_eq!(s.read(1), -(FI_EAGAIN as isize)));
    assert!(!s.is_woken(1, Duration::ZERO));
}

#[test]
fn who_waits_for_one_queue_may_sleep_while_the_other_has_something_unread() {
    let s = Sleeper::with_two_queues();
    s.send(true);
    // Its completion is there, and nobody reads it.
    for _ in 0..2 {
        s.may_sleep(1, "the other queue has something", || assert_eq!(s.read(1), -(FI_EAGAIN as isize)));
        assert!(!s.is_woken(1, Duration::from_millis(50)), "woken for nothing");
    }
    assert_eq!(s.try_wait(0), -FI_EAGAIN);
    s.receive();
    assert!(s.is_woken(1, LIMIT), "the message that was there");
    assert_eq!((s.read(1), s.read(0)), (1, 1));
}

#[test]
fn a_counter_wakes_for_what_has_no_completion() {
    let s = Sleeper::with_a_counter();
    let cntr: Handle<FidCntr> = s.object(0);
    // SAFETY: an open counter.
    let value = || unsafe { ((*(*cntr.raw()).ops).read)(cntr) };
    for round in 0..20 {
        s.receive();
        assert_eq!(value(), 2 * round);
        s.may_sleep(0, "nothing was counted", || assert_eq!(value(), 2 * round));
        s.send(false);
        let start = Instant::now();
        while value() < 2 * round + 2 {
            assert!(s.is_woken(0, LIMIT), "round {round}: asleep for ever");
            assert!(start.elapsed() < LIMIT);
            if value() < 2 * round + 2 {
                s.may_sleep(0, "one more is to come", || _ = value());
            }
        }
    }
    // What it says itself wakes too, and who did not look is told to.
    let add = |n| {
        // SAFETY: an open counter.
        assert_eq!(unsafe { ((*(*cntr.raw()).ops).add)(cntr, n) }, 0);
    };
    s.may_sleep(0, "all was read", || _ = value());
    add(1);
    assert!(s.is_woken(0, LIMIT));
    assert_eq!(s.try_wait(0), -FI_EAGAIN, "it has not looked");
    assert_eq!(s.try_wait(0), 0, "it has been told once");
}

#[test]
fn an_error_that_was_not_looked_at_keeps_from_sleeping_at_a_counter() {
    let s = Sleeper::with_a_counter();
    let cntr: Handle<FidCntr> = s.object(0);
    // SAFETY: an open counter.
    let (value, errors) = unsafe {
        let ops = &*(*cntr.raw()).ops;
        (move || (ops.read)(cntr), move || (ops.readerr)(cntr))
    };
    s.may_sleep(0, "nothing was counted", || _ = value());
    // SAFETY: an open counter.
    assert_eq!(unsafe { ((*(*cntr.raw()).ops).adderr)(cntr, 3) }, 0);
    assert!(s.is_woken(0, LIMIT), "asleep beside an error");
    assert_eq!(s.try_wait(0), -FI_EAGAIN, "it has not looked");
    assert_eq!(s.try_wait(0), 0, "it has been told once");
    // Of an operation, and looked at before it is asked.
    for round in 1..=3 {
        s.end_badly();
        assert_eq!(s.try_wait(0), -FI_EAGAIN, "round {round}: it has not looked");
        s.may_sleep(0, "it was told once", || _ = value());
        s.end_badly();
        assert_eq!(errors(), 3 + 2 * round);
        s.may_sleep(0, "it has looked", || panic!("round {round}: told of what it has seen"));
    }
    assert_eq!(value(), 0);
}

#[test]
fn an_error_that_was_not_taken_keeps_from_sleeping_at_a_queue() {
    let s = Sleeper::with_two_queues();
    let cq: Handle<FidCq> = s.object(1);
    for _ in 0..3 {
        s.may_sleep(1, "nothing is there", || ());
        s.end_badly();
        assert!(s.is_woken(1, LIMIT), "asleep beside an error");
        assert_eq!(s.try_wait(1), -FI_EAGAIN, "it has not looked");
        for _ in 0..2 {
            assert_eq!(s.read(1), -(FI_EAVAIL as isize));
            assert_eq!(s.try_wait(1), -FI_EAGAIN, "the error is to be taken");
        }
        s.may_sleep(0, "the other queue has nothing", || assert_eq!(s.read(0), -(FI_EAGAIN as isize)));
        // SAFETY: zeros are valid, and the entry is of the newest version.
        let taken = unsafe {
            let mut entry: FiCqErrEntry = std::mem::zeroed();
            let taken = ((*(*cq.raw()).ops).readerr)(cq, &raw mut entry, 0);
            assert_eq!(entry.err, FI_ECANCELED);
            taken
        };
        assert_eq!(taken, 1);
    }
    s.may_sleep(1, "it was taken", || assert_eq!(s.read(1), -(FI_EAGAIN as isize)));
}

#[test]
fn an_error_that_was_not_taken_keeps_from_sleeping_at_an_event_queue() {
    let world = World::new();
    let ask = || {
        let mut fid = fid_of(world.eq);
        // SAFETY: an open fabric and one open object.
        unsafe { ((*(*world.base.fabric.raw()).ops).trywait)(world.base.fabric, &raw mut fid, 1) }
    };
    assert_eq!(ask(), 0);
    world.eq.get().expect("open").eq.push_error(null_mut(), null_mut(), 7, FI_EINVAL);
    // SAFETY: an open queue; zeros are a valid entry.
    unsafe {
        let ops = &*(*world.eq.raw()).ops;
        let (mut event, mut room) = (0, [0u64; 8]);
        for _ in 0..2 {
            assert_eq!(ask(), -FI_EAGAIN, "the error is to be taken");
            let got = (ops.read)(world.eq, &raw mut event, room.as_mut_ptr().cast(), 64, 0);
            assert_eq!(got, -(FI_EAVAIL as isize));
        }
        let mut entry: FiEqErrEntry = std::mem::zeroed();
        assert!((ops.readerr)(world.eq, &raw mut entry, 0) > 0);
        assert_eq!((entry.err, entry.data), (FI_EINVAL, 7));
    }
    assert_eq!(ask(), 0);
}

/// A counter that several threads wait for.
#[derive(Clone, Copy)]
struct Waited(Handle<FidCntr>);

// SAFETY: libfabric's counters may be used by several threads at once.
unsafe impl Send for Waited {}
// SAFETY: as above.
unsafe impl Sync for Waited {}

impl Waited {
    fn wait(self, threshold: u64) -> i32 {
        // SAFETY: an open counter.
        unsafe { ((*(*self.0.raw()).ops).wait)(self.0, threshold, -1) }
    }

    fn add(self, n: u64) {
        // SAFETY: an open counter.
        assert_eq!(unsafe { ((*(*self.0.raw()).ops).add)(self.0, n) }, 0);
    }
}

#[test]
fn each_of_several_threads_that_wait_for_one_counter_wakes_when_it_has_come_far_enough() {
    const ROUNDS: u64 = 300;
    const END: u64 = 1 << 40;
    let s = Sleeper::with_a_counter();
    let cntr = Waited(s.object(0));
    let reached = AtomicU64::new(0);
    let late = std::thread::scope(|threads| {
        // These look whenever something is added, find that it is not enough, and sleep on.
        let mut waiting: Vec<_> = (0..3).map(|_| threads.spawn(move || assert_eq!(cntr.wait(END), 0))).collect();
        waiting.push(threads.spawn(|| {
            for n in 1..=ROUNDS {
                assert_eq!(cntr.wait(n), 0);
                reached.store(n, Ordering::Release);
            }
        }));
        let is_there = |n| {
            let start = Instant::now();
            while reached.load(Ordering::Acquire) < n && start.elapsed() < LIMIT / 2 {
                std::thread::sleep(Duration::from_micros(100));
            }
            reached.load(Ordering::Acquire) >= n
        };
        let late = (1..=ROUNDS).find(|n| {
            // All are asleep, as a rule.
            std::thread::sleep(Duration::from_micros(200));
            cntr.add(1);
            !is_there(*n)
        });
        // Whatever became of it they are to end.
        cntr.add(END);
        while waiting.iter().any(|thread| !thread.is_finished()) {
            cntr.add(1);
            std::thread::sleep(Duration::from_millis(1));
        }
        late
    });
    assert_eq!(late, None, "asleep past this");
}

#[test]
fn a_child_that_uses_and_closes_its_copies_leaves_the_parents_sleep_alone() {
    let s = Sleeper::with_two_queues();
    s.may_sleep(1, "nothing is there", || ());
    // SAFETY: the child makes no use of other threads' state but what closing takes, and ends
    // without running anything of this program.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let is_refused = |code: isize| code == -(FI_EOPBADSTATE as isize);
        // SAFETY: no memory.
        let sent = unsafe { (MSG.inject)(s.ep, null(), 0, 0) };
        let ok = is_refused(s.read(1)) && is_refused(s.read(0)) && is_refused(sent) && close(s.ep) == 0;
        // SAFETY: the child's end.
        unsafe { libc::_exit(i32::from(!ok)) };
    }
    assert!(child > 0);
    let mut status = 0;
    // SAFETY: a place for the answer.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child could not close");
    s.receive();
    s.send(false);
    assert!(s.is_woken(1, LIMIT), "asleep for ever");
    assert_eq!(s.read(1), 1);
}
