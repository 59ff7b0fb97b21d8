//! Everything at once: several threads of two endpoints send, receive, look, claim, cancel, read,
//! write and add, and one of the two is closed meanwhile. Each operation ends, and ends once.

use super::refusals::zeroed;
use super::*;
use crate::atomic::ATOMIC_OPS as ATOMIC;
use crate::msg::MSG_OPS as MSG;
use crate::rma::RMA_OPS as RMA;
use crate::tagged::TAGGED_OPS as TAGGED;
use libc::iovec;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::{Duration, Instant};

/// How long it goes on.
const TIME: Duration = Duration::from_secs(5);
/// Nothing takes this long, however busy the machine, but what hangs.
const LIMIT: Duration = Duration::from_secs(120);
/// Operations under way at an endpoint, at most.
const SLOTS: usize = 96;
/// Bytes of each; of what peers may write too.
const ROOM: usize = 64 << 10;
/// The key of what peers may write.
const KEY: u64 = 7;

/// What an operation is, in the low bits of its slot's state; above is its number.
mod kind {
    pub const FREE: u64 = 0;
    /// Anything that ends with its first completion.
    pub const PLAIN: u64 = 1;
    /// The same, which may be cancelled.
    pub const RECEIVE: u64 = 2;
    /// A receive of several messages.
    pub const MULTI: u64 = 3;
    /// A look at a message that is to be kept.
    pub const CLAIM: u64 = 4;
    pub const BITS: u32 = 3;
    pub const MASK: u64 = (1 << BITS) - 1;
}

/// A place for an operation: its state and its memory.
struct Slot {
    state: AtomicU64,
    memory: Box<[std::cell::UnsafeCell<u8>]>,
}

/// An endpoint and its operations.
struct Side {
    world: World,
    region: Handle<FidMr>,
    slots: Vec<Slot>,
    begun: AtomicU64,
    ended: AtomicU64,
    /// Held from the reading of a completion until it is dealt with: the last of a buffer for
    /// several messages is to come last.
    reading: Mutex<()>,
}

// SAFETY: objects of libfabric may be used from several threads; memory belongs to whoever has its
// slot, and what is exposed is only written by the provider.
unsafe impl Sync for Side {}

impl Drop for Side {
    fn drop(&mut self) {
        assert_eq!(close(self.region), 0);
    }
}

/// A generator of numbers, good enough for this.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}

impl Side {
    fn new() -> Side {
        let world = World::with(FI_ATOMIC);
        let memory = || (0..ROOM).map(|_| std::cell::UnsafeCell::new(1)).collect::<Box<[_]>>();
        let slots: Vec<Slot> = (0..SLOTS + 1).map(|_| Slot { state: AtomicU64::new(0), memory: memory() }).collect();
        let (domain, exposed) = (world.base.domain, slots[SLOTS].memory.as_ptr());
        // SAFETY: an open domain; the region is closed before its memory goes.
        let region = opened(|out| unsafe {
            let rights = FI_REMOTE_READ | FI_REMOTE_WRITE;
            ((*(*domain.raw()).mr).reg)(fid_of(domain), exposed.cast(), ROOM, rights, 0, KEY, 0, out, null_mut())
        });
        let [begun, ended] = [0, 0].map(AtomicU64::new);
        Side { world, region, slots, begun, ended, reading: Mutex::new(()) }
    }

    /// Takes a free slot for an operation of that kind. Where it is, and the operation's context.
    fn take(&self, random: &mut Random, kind: u64) -> Option<(usize, *mut c_void)> {
        let at = random.below(SLOTS);
        let state = &self.slots[at].state;
        let free = state.load(Acquire);
        let own = (free + (1 << kind::BITS)) | kind;
        // (It may complete before the call returns.)
        let is_own = free & kind::MASK == kind::FREE && state.compare_exchange(free, own, AcqRel, Relaxed).is_ok();
        self.begun.fetch_add(u64::from(is_own), Relaxed);
        is_own.then(|| (at, context(own, at)))
    }

    /// What began there is over.
    fn free(&self, at: usize) {
        let state = &self.slots[at].state;
        state.store(state.load(Relaxed) & !kind::MASK, Release);
    }

    /// It did not begin: refused with a code that may be.
    fn give_back(&self, at: usize, code: isize) {
        let known = [FI_EAGAIN, FI_EHOSTUNREACH, FI_ENOMEM].iter().any(|c| code == -(*c as isize));
        assert!(known, "refused with {code}");
        self.begun.fetch_sub(1, Relaxed);
        self.free(at);
    }

    fn memory(&self, at: usize) -> *mut c_void {
        self.slots[at].memory.as_ptr().cast_mut().cast()
    }

    /// Begins something.
    fn begin(&self, random: &mut Random) {
        let which = random.below(20);
        let kind = match which {
            0..6 | 11 | 13..16 => kind::PLAIN,
            6..10 => kind::RECEIVE,
            10 => kind::MULTI,
            12 => kind::CLAIM,
            _ => return self.cancel(random.below(SLOTS)),
        };
        let Some((at, context)) = self.take(random, kind) else { return };
        let code = match which {
            0..6 => self.send(at, context, random),
            6..11 => self.receive(at, context, random, kind == kind::MULTI),
            11..13 => self.look(context, random, kind == kind::CLAIM),
            _ => self.remote(at, context, random),
        };
        if code != 0 {
            self.give_back(at, code);
        }
    }

    fn send(&self, at: usize, context: *mut c_void, random: &mut Random) -> isize {
        let (to, tag, data) = (1, random.next() % 3, random.next());
        let iov_len = [0, 8, 700, 5000, 20_000, ROOM][random.below(6)];
        let piece = iovec { iov_base: self.memory(at), iov_len };
        let levels = [0, 0, FI_INJECT_COMPLETE, FI_TRANSMIT_COMPLETE, FI_DELIVERY_COMPLETE, FI_MATCH_COMPLETE];
        let flags = levels[random.below(levels.len())] | FI_COMPLETION;
        let (msg_iov, ep) = (&raw const piece, self.world.ep);
        // SAFETY: an open endpoint; the memory belongs to the slot until it ends.
        unsafe {
            if random.below(3) == 0 {
                let msg = FiMsg { msg_iov, iov_count: 1, addr: to, context, data, ..zeroed() };
                return (MSG.sendmsg)(ep, &raw const msg, flags | FI_REMOTE_CQ_DATA);
            }
            let msg = FiMsgTagged { msg_iov, iov_count: 1, addr: to, tag, context, ..zeroed() };
            (TAGGED.sendmsg)(ep, &raw const msg, flags)
        }
    }

    fn receive(&self, at: usize, context: *mut c_void, random: &mut Random, multi: bool) -> isize {
        let (tag, ignore) = (random.next() % 3, [0, u64::MAX][random.below(2)]);
        let iov_len = if multi { ROOM } else { [0, 700, ROOM, ROOM][random.below(4)] };
        let piece = iovec { iov_base: self.memory(at), iov_len };
        let (msg_iov, ep, addr) = (&raw const piece, self.world.ep, FI_ADDR_UNSPEC);
        // SAFETY: as above.
        unsafe {
            if multi || random.below(3) == 0 {
                let msg = FiMsg { msg_iov, iov_count: 1, addr, context, ..zeroed() };
                return (MSG.recvmsg)(ep, &raw const msg, FI_COMPLETION | if multi { FI_MULTI_RECV } else { 0 });
            }
            let msg = FiMsgTagged { msg_iov, iov_count: 1, addr, tag, ignore, context, ..zeroed() };
            (TAGGED.recvmsg)(ep, &raw const msg, FI_COMPLETION)
        }
    }

    fn look(&self, context: *mut c_void, random: &mut Random, claim: bool) -> isize {
        let msg = FiMsgTagged { addr: FI_ADDR_UNSPEC, tag: random.next() % 3, context, ..zeroed() };
        // SAFETY: as above; no memory.
        unsafe { (TAGGED.recvmsg)(self.world.ep, &raw const msg, FI_PEEK | if claim { FI_CLAIM } else { 0 }) }
    }

    fn remote(&self, at: usize, context: *mut c_void, random: &mut Random) -> isize {
        let (ep, to, none, buf) = (self.world.ep, 1, null_mut(), self.memory(at));
        let len = [8, 3000, 40_000][random.below(3)];
        // Now and then one that is refused.
        let key = if random.below(8) == 0 { KEY + 1 } else { KEY };
        // SAFETY: as above.
        unsafe {
            match random.below(3) {
                0 => (RMA.write)(ep, buf, len, none, to, 0, key, context),
                1 => (RMA.read)(ep, buf, len, none, to, 0, key, context),
                _ => {
                    let operand = buf.byte_add(ROOM / 2);
                    let (uint64, sum) = (7, 2);
                    (ATOMIC.readwrite)(ep, operand, 1, none, buf, none, to, 0, key, uint64, sum, context)
                }
            }
        }
    }

    /// Cancels what is there, if it is a receive.
    fn cancel(&self, at: usize) {
        let state = self.slots[at].state.load(Acquire);
        if matches!(state & kind::MASK, kind::RECEIVE | kind::MULTI) {
            // SAFETY: an open endpoint.
            let code = unsafe { (self.world.ep_ops().cancel)(fid_of(self.world.ep), context(state, at)) };
            assert!(code == 0 || code == -(FI_ENOENT as isize), "{code}");
        }
    }

    /// Takes what has ended.
    fn poll(&self, random: &mut Random) {
        let (cq, mut entry): (_, FiCqTaggedEntry) = (self.world.cq, zeroed());
        let _reading = self.reading.lock().expect("no other thread failed");
        // SAFETY: an open queue, room for one entry each.
        unsafe {
            let ops = &*(*cq.raw()).ops;
            match (ops.read)(cq, (&raw mut entry).cast(), 1) {
                1 => self.ends(entry.op_context, Ok(entry.flags), random),
                n if n == -(FI_EAVAIL as isize) => {
                    let mut error: FiCqErrEntry = zeroed();
                    assert_eq!((ops.readerr)(cq, &raw mut error, 0), 1);
                    self.ends(error.op_context, Err((error.err, error.flags)), random);
                }
                n => assert_eq!(n, -(FI_EAGAIN as isize)),
            }
        }
    }

    fn ends(&self, context: *mut c_void, result: Result<u64, (i32, u64)>, random: &mut Random) {
        let (number, at) = (context.addr() as u64 >> 8, context.addr() & 0xff);
        let is = self.slots[at].state.load(Acquire);
        let is_there = is >> kind::BITS == number && is & kind::MASK != kind::FREE;
        assert!(is_there, "slot {at}: operation {number} ends again, or never began ({is:x}, {result:x?})");
        match (is & kind::MASK, result) {
            (kind::CLAIM, Ok(_)) => return self.take_claimed(at, context, random),
            // More may come until the memory is given back.
            (kind::MULTI, Ok(flags) | Err((_, flags))) if flags & FI_MULTI_RECV == 0 => return,
            _ => {}
        }
        self.ended.fetch_add(1, Relaxed);
        self.free(at);
    }

    /// A message that was claimed is received, or thrown away: that has the same context, and ends
    /// once.
    fn take_claimed(&self, at: usize, context: *mut c_void, random: &mut Random) {
        let state = &self.slots[at].state;
        state.store(state.load(Relaxed) & !kind::MASK | kind::PLAIN, Release);
        let piece = iovec { iov_base: self.memory(at), iov_len: [8, ROOM][random.below(2)] };
        let msg = FiMsgTagged { msg_iov: &raw const piece, iov_count: 1, addr: FI_ADDR_UNSPEC, context, ..zeroed() };
        let flags = FI_CLAIM | FI_COMPLETION | [0, FI_DISCARD][random.below(2)];
        // SAFETY: an open endpoint; the memory belongs to the slot until it ends.
        assert_eq!(unsafe { (TAGGED.recvmsg)(self.world.ep, &raw const msg, flags) }, 0);
    }

    /// One thread of a program.
    fn run(&self, seed: u64, is_over: impl Fn() -> bool) {
        let mut random = Random(seed);
        while !is_over() {
            self.begin(&mut random);
            self.poll(&mut random);
        }
    }

    /// All that was begun ends.
    fn settle(&self) {
        let (start, mut random) = (Instant::now(), Random(1));
        let is_free = |slot: &Slot| slot.state.load(Acquire) & kind::MASK == kind::FREE;
        while !self.slots.iter().all(is_free) {
            (0..SLOTS).for_each(|at| self.cancel(at));
            self.poll(&mut random);
            assert!(start.elapsed() < LIMIT, "something never ended");
        }
        assert_eq!(self.begun.load(Relaxed), self.ended.load(Relaxed));
    }
}

fn context(state: u64, at: usize) -> *mut c_void {
    std::ptr::without_provenance_mut(((state >> kind::BITS) << 8) as usize | at)
}

/// Two threads of each of two endpoints; one of these is closed in the middle of what the other
/// does.
fn everything_at_once() {
    let (first, second) = (Side::new(), Side::new());
    let names = [first.world.name(), second.world.name()];
    assert_eq!((first.world.insert(&names[1]), second.world.insert(&names[0])), (1, 1));
    let (start, is_closed) = (Instant::now(), AtomicBool::new(false));
    let is_late = || start.elapsed() > TIME;
    std::thread::scope(|outer| {
        for seed in [3, 4] {
            let (second, is_closed) = (&second, &is_closed);
            outer.spawn(move || second.run(seed, || is_closed.load(Relaxed) || start.elapsed() > 5 * TIME));
        }
        std::thread::scope(|inner| {
            for seed in [1, 2] {
                let (first, is_late) = (&first, &is_late);
                inner.spawn(move || first.run(seed, is_late));
            }
        });
        let (begun, ended) = (first.begun.load(Relaxed), first.ended.load(Relaxed));
        assert!(ended <= begun && ended > 100, "{ended} of {begun}");
        drop(first);
        std::thread::sleep(Duration::from_millis(300));
        is_closed.store(true, Relaxed);
    });
    second.settle();
    println!("{} operations", second.ended.load(Relaxed));
}

/// Says that this process is to do it.
const PART: &str = "WEIR_TEST_STRESS";

/// Not a test of its own: what goes on over one carrier, in a process of its own.
#[test]
fn part() {
    if std::env::var_os(PART).is_some() {
        everything_at_once();
    }
}

#[test]
fn whatever_several_threads_do_ends_once_by_every_carrier_also_when_the_other_side_closes() {
    let start = |carrier: &str| {
        let mut command = Command::new(std::env::current_exe().expect("own path"));
        command.args(["--exact", "tests::stress::part", "--nocapture"]).env(PART, "1").env("WEIR_CARRIER", carrier);
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().expect("spawn")
    };
    let all = ["shm", "udp", "tcp"].map(|carrier| (carrier, start(carrier)));
    for (carrier, child) in all {
        let out = child.wait_with_output().expect("ended");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(out.status.success(), "{carrier}: {}{}", text(&out.stdout), text(&out.stderr));
        println!("{carrier}: {}", text(&out.stdout));
    }
}
