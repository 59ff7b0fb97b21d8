//! The one library of a process: where it is, who may enter, and who sleeps (spec/bmi.md 2, P5 to
//! P8).

use crate::codes::Code;
use crate::library::Library;
use crate::log::tell;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once};
use std::time::{Duration, Instant};
use weir_engine::{EventFd, SleepHere, Sleeper};

/// Empty looks in a row before a test that may sleep does: the round trip of a small message on a
/// fast network.
const SPIN: Duration = Duration::from_micros(50);
/// What comes within this time wakes the program's own thread, which then looks and goes on. Who
/// waits longer leaves the sockets to the engine's thread, so that an idle program is not woken for
/// each timer of its protocol.
const HERE_MAX: Duration = Duration::from_millis(10);
/// Nothing sleeps longer at a time, whatever it was told.
const SLEEP_MAX: Duration = Duration::from_secs(3600);
/// A post that found no room is tried again so often.
const HELD_UP: Duration = Duration::from_millis(1);

/// A library from the first `BMI_initialize` to the last `BMI_finalize`.
struct Open {
    library: Library,
    /// Threads asleep.
    sleepers: usize,
    /// An event loop sleeps, as far as is known.
    evented: bool,
    /// A panic left it half changed.
    broken: bool,
    wakers: Arc<Wakers>,
}

/// By what those who sleep are woken. Who sleeps keeps it, whatever becomes of the library.
struct Wakers {
    /// Signalled when another thread has found something for them.
    wake: EventFd,
    /// All that may wake a sleeper.
    all: nix::sys::epoll::Epoll,
    watched: Mutex<Vec<RawFd>>,
}

/// Of this process.
#[derive(Default)]
struct Global {
    /// How often it is initialized; held by who initializes or finalizes.
    count: Mutex<usize>,
    /// Which of the libraries that this process has had it is, counted from 1; 0: there is none.
    number: AtomicU64,
    /// What is locked by each call: once, for it costs more than much of what a call does.
    inside: Mutex<Inside>,
}

#[derive(Default)]
struct Inside {
    number: u64,
    open: Option<Open>,
}

/// One of the libraries that this process has, or has had.
#[derive(Clone, Copy)]
pub struct Instance {
    global: &'static Global,
    number: u64,
}

static GLOBAL: AtomicPtr<Global> = AtomicPtr::new(std::ptr::null_mut());
static FORKED: AtomicBool = AtomicBool::new(false);
static WATCH_FORKS: Once = Once::new();

extern "C" fn in_child() {
    FORKED.store(true, Ordering::Release);
}

/// The place of the library. In a child made by fork that of the parent, which may be locked for
/// ever, is left alone.
#[inline]
fn global() -> Result<&'static Global, Code> {
    // (R4: what a module's function was called for holds the lock.)
    if crate::module::upcall::is_inside() {
        return Err(Code::EDEADLK);
    }
    let there = GLOBAL.load(Ordering::Acquire);
    if there.is_null() || FORKED.load(Ordering::Acquire) {
        return Err(Code::EDEVINIT);
    }
    // SAFETY: made by `make_global` and never freed.
    Ok(unsafe { &*there })
}

/// The same, made if there is none: once in a process.
fn make_global() -> Result<&'static Global, Code> {
    WATCH_FORKS.call_once(|| {
        // SAFETY: the handler only stores to an atomic.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
    match global() {
        Err(Code::EDEVINIT) => {}
        other => return other,
    }
    let there = GLOBAL.load(Ordering::Acquire);
    let expected = if FORKED.load(Ordering::Acquire) { there } else { std::ptr::null_mut() };
    let new = Box::into_raw(Box::<Global>::default());
    match GLOBAL.compare_exchange(expected, new, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => {
            FORKED.store(false, Ordering::Release);
            // SAFETY: just made, never freed.
            Ok(unsafe { &*new })
        }
        Err(other) => {
            // SAFETY: nobody else has seen it.
            drop(unsafe { Box::from_raw(new) });
            // SAFETY: whoever was first made it for good.
            Ok(unsafe { &*other })
        }
    }
}

#[inline]
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What a panic left half changed is marked as such.
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// One initialize more.
///
/// # Errors
/// The code of what went wrong.
pub fn initialize(begin: impl FnOnce() -> Result<Library, Code>) -> Result<(), Code> {
    let global = make_global()?;
    let mut count = lock(&global.count);
    if *count == 0 {
        let open = Open::new(begin()?).map_err(|error| {
            tell(&format!("making the descriptors that wake a test: {error}"));
            crate::codes::of_io(&error)
        })?;
        let mut inside = lock(&global.inside);
        inside.number += 1;
        inside.open = Some(open);
        global.number.store(inside.number, Ordering::Release);
    }
    *count += 1;
    Ok(())
}

/// One finalize more; the last one ends it.
///
/// # Errors
/// `BMI_EDEVINIT` when it is not initialized.
pub fn finalize() -> Result<(), Code> {
    let global = global()?;
    let mut count = lock(&global.count);
    *count = count.checked_sub(1).ok_or(Code::EDEVINIT)?;
    if *count == 0 {
        global.number.store(0, Ordering::Release);
        let open = lock(&global.inside).open.take();
        if let Some(mut open) = open {
            // Who sleeps finds that it is over.
            open.wakers.wake.signal();
            if !open.broken {
                open.library.end();
            }
        }
    }
    Ok(())
}

/// The library, if it is initialized.
///
/// # Errors
/// `BMI_EDEVINIT`.
#[inline]
pub fn instance() -> Result<Instance, Code> {
    let global = global()?;
    match global.number.load(Ordering::Acquire) {
        0 => Err(Code::EDEVINIT),
        number => Ok(Instance { global, number }),
    }
}

/// Calls something of the library.
///
/// # Errors
/// `BMI_EDEVINIT`, or what the call says.
#[inline]
pub fn within<T>(call: impl FnOnce(&mut Library) -> Result<T, Code>) -> Result<T, Code> {
    instance()?.within(call)
}

impl Open {
    fn new(library: Library) -> std::io::Result<Open> {
        let all = nix::sys::epoll::Epoll::new(nix::sys::epoll::EpollCreateFlags::EPOLL_CLOEXEC)?;
        let wakers = Arc::new(Wakers { wake: EventFd::new()?, all, watched: Mutex::new(Vec::new()) });
        wakers.watch(wakers.wake.as_raw_fd())?;
        Ok(Open { library, sleepers: 0, evented: false, broken: false, wakers })
    }

    /// Others may sleep for what this thread has found.
    #[inline]
    fn tell(&mut self) {
        let t = &mut self.library.t;
        let news = std::mem::take(&mut t.ops.news) | std::mem::take(&mut t.inbox.news);
        if news && (self.sleepers > 0 || self.evented) {
            self.wakers.wake.signal();
        }
    }
}

impl Wakers {
    /// The descriptor wakes sleepers from now on.
    fn watch(&self, fd: RawFd) -> std::io::Result<()> {
        use nix::sys::epoll::{EpollEvent, EpollFlags};
        let mut watched = lock(&self.watched);
        if !watched.contains(&fd) {
            // SAFETY: the descriptor is open as long as the library is, after which nothing is
            // added to this set.
            let borrowed = unsafe { std::os::fd::BorrowedFd::borrow_raw(fd) };
            self.all.add(borrowed, EpollEvent::new(EpollFlags::EPOLLIN, fd as u64))?;
            watched.push(fd);
        }
        Ok(())
    }
}

/// The library, locked.
struct Entered(MutexGuard<'static, Inside>);

impl Deref for Entered {
    type Target = Open;
    #[inline]
    fn deref(&self) -> &Open {
        self.0.open.as_ref().expect("it was entered while it is open")
    }
}

impl DerefMut for Entered {
    #[inline]
    fn deref_mut(&mut self) -> &mut Open {
        self.0.open.as_mut().expect("it was entered while it is open")
    }
}

impl Instance {
    /// Locked, and marked as broken until the caller marks it as whole again: a panic on the way
    /// leaves it so.
    #[inline]
    fn enter(&self) -> Result<Entered, Code> {
        let mut inside = lock(&self.global.inside);
        if inside.number == self.number
            && let Some(open) = &mut inside.open
            && !std::mem::replace(&mut open.broken, true)
        {
            return Ok(Entered(inside));
        }
        Err(Code::EDEVINIT)
    }

    /// Calls something of this library. (What takes several calls stays with it: after a finalize
    /// and another initialize its numbers would name other things.)
    ///
    /// # Errors
    /// `BMI_EDEVINIT` when it has ended, or what the call says.
    #[inline]
    pub fn within<T>(&self, call: impl FnOnce(&mut Library) -> Result<T, Code>) -> Result<T, Code> {
        let mut entered = self.enter()?;
        let open = &mut *entered;
        let result = call(&mut open.library);
        open.tell();
        open.broken = false;
        result
    }

    /// Looks, and makes progress, until `found` has something or the time is over (W1).
    ///
    /// # Errors
    /// As `found`; `BMI_EDEVINIT` when the library ends meanwhile.
    pub fn wait<T>(
        &self,
        idle: Duration,
        mut found: impl FnMut(&mut Library) -> Result<Option<T>, Code>,
    ) -> Result<Option<T>, Code> {
        // (Who waits for nothing reads no clock.)
        let begun = (!idle.is_zero()).then(Instant::now);
        let mut entered = self.enter()?;
        let evented = std::mem::replace(&mut entered.evented, false);
        loop {
            let open = &mut *entered;
            // (An event loop may still sleep on the descriptor.)
            open.library.is_alone = open.sleepers == 0 && !evented;
            let mut result = found(&mut open.library);
            if matches!(result, Ok(None)) {
                open.library.progress();
                result = found(&mut open.library);
            }
            open.tell();
            let waited = begun.map_or(Duration::ZERO, |begun| begun.elapsed());
            if !matches!(result, Ok(None)) || waited >= idle {
                open.broken = false;
                return result;
            }
            if waited < SPIN {
                open.broken = false;
                drop(entered);
                let yielded = Instant::now();
                std::thread::yield_now();
                let took = yielded.elapsed();
                entered = self.enter()?;
                entered.library.yielded(took);
                continue;
            }
            // (Another that sleeps is woken when this one comes back, and takes its place.)
            let here = if open.sleepers == 0 && !evented { HERE_MAX.saturating_sub(waited) } else { Duration::ZERO };
            entered = self.sleep(entered, idle - waited, here)?;
        }
    }

    /// Sleeps until something may have come; on the sockets themselves if `here` is not zero, for
    /// so long.
    fn sleep(&self, mut entered: Entered, most: Duration, here: Duration) -> Result<Entered, Code> {
        let prepared = entered.prepare(most, here);
        let Some((timeout, sleeper)) = prepared else { return Ok(entered) };
        entered.broken = false;
        entered.sleepers += 1;
        let wakers = entered.wakers.clone();
        drop(entered);
        let is_here = sleeper.is_some();
        match sleeper {
            Some(sleeper) => sleeper.sleep(wakers.all.0.as_raw_fd(), timeout),
            None => wakers.sleep(timeout),
        }
        // (One that is broken it leaves as it is: nobody sleeps any more.)
        let mut entered = self.enter()?;
        entered.sleepers -= 1;
        if entered.sleepers == 0 && !entered.evented {
            wakers.wake.clear();
        } else if is_here {
            // Nobody watches the sockets for the others now.
            wakers.wake.signal();
        }
        Ok(entered)
    }

    /// A descriptor for event loops.
    ///
    /// # Errors
    /// `BMI_EDEVINIT`.
    pub fn fd(&self) -> Result<RawFd, Code> {
        let mut entered = self.enter()?;
        entered.broken = false;
        Ok(entered.wakers.all.0.as_raw_fd())
    }

    /// An event loop is about to sleep on it; false: it should not.
    ///
    /// # Errors
    /// `BMI_EDEVINIT`.
    pub fn arm(&self) -> Result<bool, Code> {
        let mut entered = self.enter()?;
        let open = &mut *entered;
        open.library.progress();
        open.wakers.wake.clear();
        let t = &mut open.library.t;
        (t.ops.news, t.inbox.news) = (false, false);
        let waits = t.ops.any_waits() || t.inbox.is_wanted();
        let armed = !waits && open.prepare(SLEEP_MAX, Duration::ZERO).is_some() && !open.library.is_held_up();
        open.evented = armed;
        open.broken = false;
        Ok(armed)
    }
}

impl Wakers {
    /// Sleeps on what the methods signal.
    fn sleep(&self, timeout: Duration) {
        let timespec = libc::timespec {
            tv_sec: timeout.as_secs() as libc::time_t,
            tv_nsec: libc::c_long::from(timeout.subsec_nanos().cast_signed()),
        };
        let mut fd = libc::pollfd { fd: self.all.0.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry, and a time that lives as long as the call. (A signal ends the sleep
        // early, which is as good as a look.)
        unsafe { libc::ppoll(&raw mut fd, 1, &raw const timespec, std::ptr::null()) };
    }
}

impl Open {
    /// For how long to sleep, and whether on the sockets themselves; none: there is something to
    /// do.
    fn prepare(&mut self, most: Duration, here: Duration) -> Option<(Duration, Option<Sleeper>)> {
        let now = Instant::now();
        let mut timeout = most.min(SLEEP_MAX);
        let fds: Vec<RawFd> = self.library.methods().iter().filter_map(crate::method::Method::fd).collect();
        for fd in fds {
            if self.wakers.watch(fd).is_err() {
                // Out of kernel memory, or no descriptor that can be waited for: look again soon.
                self.library.has_no_fd(fd);
                timeout = timeout.min(HELD_UP);
            }
        }
        let limits = self.library.t.ops.next_limit().into_iter();
        let waits = self.library.t.ops.waits_for_peers();
        let due = limits.chain(self.library.methods().iter().filter_map(|m| m.next_timeout(waits))).min();
        if let Some(due) = due {
            timeout = timeout.min(due.saturating_duration_since(now));
        }
        if timeout.is_zero() {
            return None;
        }
        let here = if here.is_zero() { SleepHere::Never } else { self.library.sleep_here(here) };
        match here {
            SleepHere::For(sleeper) => return Some((timeout, Some(sleeper))),
            SleepHere::LookAgain => return None,
            SleepHere::Never => {}
        }
        if !self.library.arm() {
            if !self.library.is_held_up() {
                return None;
            }
            timeout = timeout.min(HELD_UP);
        }
        Some((timeout, None))
    }
}
