//! The one library of a process: where it is, who may enter, and who sleeps (spec/bmi.md 2, P5 to
//! P8).

use crate::codes::Code;
use crate::library::Library;
use crate::log::tell;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
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

/// What is locked.
pub struct Inside {
    /// The library.
    pub library: Library,
    /// Threads asleep.
    sleepers: usize,
    /// An event loop sleeps, as far as is known.
    evented: bool,
    /// A panic left it half changed.
    broken: bool,
}

/// A library from the first `BMI_initialize` to the last `BMI_finalize`.
pub struct Instance {
    inside: Mutex<Inside>,
    /// Wakes those who sleep when another thread has found something for them.
    wake: EventFd,
    /// All that may wake a sleeper.
    all: nix::sys::epoll::Epoll,
    watched: Mutex<Vec<RawFd>>,
}

/// Of this process.
#[derive(Default)]
struct Global {
    now: Mutex<(usize, Option<Arc<Instance>>)>,
}

static GLOBAL: AtomicPtr<Global> = AtomicPtr::new(std::ptr::null_mut());
static FORKED: AtomicBool = AtomicBool::new(false);
static WATCH_FORKS: Once = Once::new();

extern "C" fn in_child() {
    FORKED.store(true, Ordering::Release);
}

/// The place of the library. In a child made by fork that of the parent, which may be locked for
/// ever, is left alone.
fn global(begins: bool) -> Result<&'static Global, Code> {
    // (R4: what a module's function was called for holds the lock.)
    if crate::module::upcall::is_inside() {
        return Err(Code::EDEADLK);
    }
    WATCH_FORKS.call_once(|| {
        // SAFETY: the handler only stores to an atomic.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
    let forked = FORKED.load(Ordering::Acquire);
    let there = GLOBAL.load(Ordering::Acquire);
    if !forked && !there.is_null() {
        // SAFETY: made below and never freed.
        return Ok(unsafe { &*there });
    }
    if !begins {
        return Err(Code::EDEVINIT);
    }
    // Once in a process.
    let new = Box::into_raw(Box::<Global>::default());
    let expected = if forked { there } else { std::ptr::null_mut() };
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What a panic left half changed is marked as such.
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// One initialize more.
///
/// # Errors
/// The code of what went wrong.
pub fn initialize(begin: impl FnOnce() -> Result<Library, Code>) -> Result<(), Code> {
    let mut now = lock(&global(true)?.now);
    if now.1.is_none() {
        let instance = Instance::new(begin()?).map_err(|error| {
            tell(&format!("making the descriptors that wake a test: {error}"));
            crate::codes::of_io(&error)
        })?;
        now.1 = Some(Arc::new(instance));
    }
    now.0 += 1;
    Ok(())
}

/// One finalize more; the last one ends it.
///
/// # Errors
/// `BMI_EDEVINIT` when it is not initialized.
pub fn finalize() -> Result<(), Code> {
    let mut now = lock(&global(false)?.now);
    now.0 = now.0.checked_sub(1).ok_or(Code::EDEVINIT)?;
    if now.0 == 0
        && let Some(instance) = now.1.take()
    {
        let mut inside = lock(&instance.inside);
        if !inside.broken {
            inside.library.end();
        }
        // Who sleeps finds that it is over.
        inside.broken = true;
        instance.wake.signal();
    }
    Ok(())
}

/// The library, if it is initialized.
///
/// # Errors
/// `BMI_EDEVINIT`.
pub fn instance() -> Result<Arc<Instance>, Code> {
    lock(&global(false)?.now).1.clone().ok_or(Code::EDEVINIT)
}

/// Calls something of the library.
///
/// # Errors
/// `BMI_EDEVINIT`, or what the call says.
pub fn within<T>(call: impl FnOnce(&mut Library) -> Result<T, Code>) -> Result<T, Code> {
    instance()?.within(call)
}

impl Instance {
    fn new(library: Library) -> std::io::Result<Instance> {
        let wake = EventFd::new()?;
        let all = nix::sys::epoll::Epoll::new(nix::sys::epoll::EpollCreateFlags::EPOLL_CLOEXEC)?;
        let instance = Instance {
            inside: Mutex::new(Inside { library, sleepers: 0, evented: false, broken: false }),
            wake,
            all,
            watched: Mutex::new(Vec::new()),
        };
        instance.watch(instance.wake.as_raw_fd())?;
        Ok(instance)
    }

    /// The descriptor wakes sleepers from now on.
    fn watch(&self, fd: RawFd) -> std::io::Result<()> {
        use nix::sys::epoll::{EpollEvent, EpollFlags};
        let mut watched = lock(&self.watched);
        if !watched.contains(&fd) {
            // SAFETY: the descriptor is open as long as the library is, which is as long as this
            // set.
            let borrowed = unsafe { std::os::fd::BorrowedFd::borrow_raw(fd) };
            self.all.add(borrowed, EpollEvent::new(EpollFlags::EPOLLIN, fd as u64))?;
            watched.push(fd);
        }
        Ok(())
    }

    /// Locked, and marked as broken until the caller marks it as whole again: a panic on the way
    /// leaves it so.
    fn enter(&self) -> Result<MutexGuard<'_, Inside>, Code> {
        let mut inside = lock(&self.inside);
        if std::mem::replace(&mut inside.broken, true) {
            return Err(Code::EDEVINIT);
        }
        Ok(inside)
    }

    /// Calls something of this library. (What takes several calls stays with it: after a finalize
    /// and another initialize its numbers would name other things.)
    ///
    /// # Errors
    /// `BMI_EDEVINIT` when it has ended, or what the call says.
    pub fn within<T>(&self, call: impl FnOnce(&mut Library) -> Result<T, Code>) -> Result<T, Code> {
        let mut inside = self.enter()?;
        let result = call(&mut inside.library);
        self.tell(&mut inside);
        inside.broken = false;
        result
    }

    /// Others may sleep for what this thread has found.
    fn tell(&self, inside: &mut Inside) {
        let t = &mut inside.library.t;
        let news = std::mem::take(&mut t.ops.news) | std::mem::take(&mut t.inbox.news);
        if news && (inside.sleepers > 0 || inside.evented) {
            self.wake.signal();
        }
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
        let mut inside = self.enter()?;
        let evented = std::mem::replace(&mut inside.evented, false);
        loop {
            // (An event loop may still sleep on the descriptor.)
            inside.library.is_alone = inside.sleepers == 0 && !evented;
            let mut result = found(&mut inside.library);
            if matches!(result, Ok(None)) {
                inside.library.progress();
                result = found(&mut inside.library);
            }
            self.tell(&mut inside);
            let waited = begun.map_or(Duration::ZERO, |begun| begun.elapsed());
            if !matches!(result, Ok(None)) || waited >= idle {
                inside.broken = false;
                return result;
            }
            if waited < SPIN {
                inside.broken = false;
                drop(inside);
                let yielded = Instant::now();
                std::thread::yield_now();
                let took = yielded.elapsed();
                inside = self.enter()?;
                inside.library.yielded(took);
                continue;
            }
            // (Another that sleeps is woken when this one comes back, and takes its place.)
            let here = if inside.sleepers == 0 && !evented { HERE_MAX.saturating_sub(waited) } else { Duration::ZERO };
            inside = self.sleep(inside, idle - waited, here)?;
        }
    }

    /// Sleeps until something may have come; on the sockets themselves if `here` is not zero, for
    /// so long.
    fn sleep<'a>(
        &'a self,
        mut inside: MutexGuard<'a, Inside>,
        most: Duration,
        here: Duration,
    ) -> Result<MutexGuard<'a, Inside>, Code> {
        let prepared = self.prepare(&mut inside, most, here);
        inside.broken = false;
        let Some((timeout, sleeper)) = prepared else {
            inside.broken = true;
            return Ok(inside);
        };
        inside.sleepers += 1;
        drop(inside);
        let is_here = sleeper.is_some();
        match sleeper {
            Some(sleeper) => sleeper.sleep(self.all.0.as_raw_fd(), timeout),
            None => self.sleep_elsewhere(timeout),
        }
        let mut inside = lock(&self.inside);
        inside.sleepers -= 1;
        if std::mem::replace(&mut inside.broken, true) {
            return Err(Code::EDEVINIT);
        }
        if inside.sleepers == 0 && !inside.evented {
            self.wake.clear();
        } else if is_here {
            // Nobody watches the sockets for the others now.
            self.wake.signal();
        }
        Ok(inside)
    }

    /// Sleeps on what the methods signal.
    fn sleep_elsewhere(&self, timeout: Duration) {
        let timespec = libc::timespec {
            tv_sec: timeout.as_secs() as libc::time_t,
            tv_nsec: libc::c_long::from(timeout.subsec_nanos().cast_signed()),
        };
        let mut fd = libc::pollfd { fd: self.all.0.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry, and a time that lives as long as the call. (A signal ends the sleep
        // early, which is as good as a look.)
        unsafe { libc::ppoll(&raw mut fd, 1, &raw const timespec, std::ptr::null()) };
    }

    /// For how long to sleep, and whether on the sockets themselves; none: there is something to
    /// do.
    fn prepare(&self, inside: &mut Inside, most: Duration, here: Duration) -> Option<(Duration, Option<Sleeper>)> {
        let now = Instant::now();
        let mut timeout = most.min(SLEEP_MAX);
        let fds: Vec<RawFd> = inside.library.methods().iter().filter_map(crate::method::Method::fd).collect();
        for fd in fds {
            if self.watch(fd).is_err() {
                // Out of kernel memory, or no descriptor that can be waited for: look again soon.
                inside.library.has_no_fd(fd);
                timeout = timeout.min(HELD_UP);
            }
        }
        let limits = inside.library.t.ops.next_limit().into_iter();
        let waits = inside.library.t.ops.waits_for_peers();
        let due = limits.chain(inside.library.methods().iter().filter_map(|m| m.next_timeout(waits))).min();
        if let Some(due) = due {
            timeout = timeout.min(due.saturating_duration_since(now));
        }
        if timeout.is_zero() {
            return None;
        }
        let here = if here.is_zero() { SleepHere::Never } else { inside.library.sleep_here(here) };
        match here {
            SleepHere::For(sleeper) => return Some((timeout, Some(sleeper))),
            SleepHere::LookAgain => return None,
            SleepHere::Never => {}
        }
        if !inside.library.arm() {
            if !inside.library.is_held_up() {
                return None;
            }
            timeout = timeout.min(HELD_UP);
        }
        Some((timeout, None))
    }

    /// A descriptor for event loops.
    #[must_use]
    pub fn fd(&self) -> RawFd {
        self.all.0.as_raw_fd()
    }

    /// An event loop is about to sleep on it; false: it should not.
    ///
    /// # Errors
    /// `BMI_EDEVINIT`.
    pub fn arm(&self) -> Result<bool, Code> {
        let mut inside = self.enter()?;
        inside.library.progress();
        self.wake.clear();
        let t = &mut inside.library.t;
        (t.ops.news, t.inbox.news) = (false, false);
        let waits = t.ops.any_waits() || t.inbox.is_wanted();
        let armed =
            !waits && self.prepare(&mut inside, SLEEP_MAX, Duration::ZERO).is_some() && !inside.library.is_held_up();
        inside.evented = armed;
        inside.broken = false;
        Ok(armed)
    }
}
