//! What becomes of an endpoint after a panic, which is a defect of Weir: its state may be half
//! changed, so nothing of it is used any more.
//!
//! The lock is marked as the panic passes ([`crate::Lock::is_poisoned`]), and who sleeps until
//! something comes is woken. From then on every operation is refused ([`EngineError::Broken`]),
//! completions no longer come, and [`crate::Endpoint::check`] tells waiting ones. Nothing that the
//! application lent is read or written any more. Who caught the panic calls [`after_panic`]: it
//! closes the endpoint's sockets, so that its peers find nobody there, as if its program had ended
//! (to say farewell would take the protocol's state), and gives the line for people.

use crate::core::Core;
use crate::diagnostics::Diagnostic;
use crate::lock::Guard;
use crate::{EngineError, Shared, live};
use std::any::Any;
use std::cell::RefCell;
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The endpoint's state, locked. Whoever panics with it wakes those who sleep.
pub struct Entered<'a> {
    core: Guard<'a, Core>,
    shared: &'a Shared,
}

impl Deref for Entered<'_> {
    type Target = Core;
    #[inline]
    fn deref(&self) -> &Core {
        &self.core
    }
}

impl DerefMut for Entered<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Core {
        &mut self.core
    }
}

impl Drop for Entered<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.core.is_unwound() {
            // Whoever wakes waits for the lock, which is marked before it is free.
            self.shared.wake_all();
        }
    }
}

impl Shared {
    /// Waits for the lock.
    ///
    /// # Errors
    /// [`EngineError::Broken`] after a panic.
    #[inline]
    pub(crate) fn enter(&self) -> Result<Entered<'_>, EngineError> {
        // (Apart, so that the usual case is short enough to stand where it is called.)
        match self.core.try_lock() {
            Some(core) if !self.core.is_poisoned() => Ok(Entered { core, shared: self }),
            tried => {
                drop(tried);
                self.enter_slowly()
            }
        }
    }

    #[cold]
    fn enter_slowly(&self) -> Result<Entered<'_>, EngineError> {
        self.entered(self.core.lock())
    }

    /// In a child made by fork(2): nothing of this endpoint is used here, and nothing is done to
    /// the descriptors that are the parent's too.
    ///
    /// # Safety
    /// By the thread that forked, which is the only one of the child.
    pub(crate) unsafe fn abandon(&self) {
        if let Some(group) = self.group.get() {
            // SAFETY: passed on from the caller.
            unsafe { group.abandon() };
        }
        self.core.abandon();
        self.armed.take_all();
        self.watch.abandon();
    }

    /// Whether this process was forked from the one that opened the endpoint.
    pub(crate) fn is_inherited(&self) -> bool {
        self.pid != std::process::id()
    }

    /// Why nothing can be done here.
    #[cold]
    pub(crate) fn why_broken(&self) -> EngineError {
        if self.is_inherited() { EngineError::Inherited } else { EngineError::Broken }
    }

    /// Takes the lock if it is free and the state good.
    pub(crate) fn try_enter(&self) -> Option<Entered<'_>> {
        self.entered(self.core.try_lock()?).ok()
    }

    #[inline]
    fn entered<'a>(&'a self, core: Guard<'a, Core>) -> Result<Entered<'a>, EngineError> {
        if self.core.is_poisoned() { Err(self.why_broken()) } else { Ok(Entered { core, shared: self }) }
    }

    /// Ends what others see of the endpoint. What the state says is not asked: each socket's number
    /// is made one of a file that is always at its end, by which the kernel lets go of the socket,
    /// and whoever sleeps on the number wakes.
    fn leave_network(&self) {
        let Ok(null) = std::fs::File::open("/dev/null") else { return };
        let core = self.core.lock();
        if core.finished || self.is_inherited() {
            return;
        }
        for fd in self.sockets.into_iter().filter(|fd| *fd >= 0) {
            // SAFETY: both are open descriptors: the sockets are the core's, which lives. The
            // number stays the core's, to be closed once.
            unsafe { libc::dup3(std::os::fd::AsRawFd::as_raw_fd(&null), fd, libc::O_CLOEXEC) };
        }
        drop(core);
        let connections = || {
            self.core.lock().close_connections();
        };
        // They may be what is half changed: then they end with the process.
        let _ = catch_unwind(AssertUnwindSafe(connections));
    }
}

/// To be called by who caught a panic, with what it brought: ends what the network sees of every
/// endpoint of this process that it left half changed. Returns a line for people, once for each of
/// these; or one if it passed through none.
#[must_use]
pub fn after_panic(payload: &(dyn Any + Send)) -> Vec<String> {
    left_broken(payload).into_iter().map(|(_, line)| line).collect()
}

/// What [`after_panic`] tells, and of which endpoint.
fn left_broken(payload: &(dyn Any + Send)) -> Vec<(Option<Arc<Shared>>, String)> {
    let what = text_of(payload);
    let mut lines = Vec::new();
    for shared in live::all() {
        if !shared.is_inherited() && shared.core.is_poisoned() && !shared.told_broken.swap(true, Ordering::AcqRel) {
            shared.leave_network();
            let line = format!(
                "endpoint {} is out of order after a defect in weir ({what}): its operations fail from now on; please report this line",
                shared.place
            );
            lines.push((Some(shared), line));
        }
    }
    if lines.is_empty() {
        lines.push((None, format!("a call failed by a defect in weir ({what}); please report this line")));
    }
    lines
}

/// The way of a thread of ours to say it: there is no caller to hand it to, so it goes where the
/// endpoint's lines go, or any endpoint's.
pub fn tell_panic(payload: &(dyn Any + Send)) {
    for (of, line) in left_broken(payload) {
        if let Some(shared) = of.or_else(|| live::all().into_iter().next()) {
            (shared.diagnostics)(&Diagnostic::Notice(&line));
        }
    }
}

thread_local! {
    /// Where this thread's last panic was, and what it said, until somebody has caught it.
    static LAST: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// For a face that is a library of its own in somebody else's program, and catches what its calls
/// panic: panics say nothing by themselves, [`after_panic`] has their place and text.
pub fn keep_panics() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        // A second one before the first was caught ends the process: then it says so as ever.
        if !keep(info) {
            usual(info);
        }
    }));
}

fn keep(info: &PanicHookInfo<'_>) -> bool {
    let place = info.location().map_or_else(String::new, |l| format!(" at {}:{}", l.file(), l.line()));
    let line = format!("panicked{place}: {}", said(info.payload()));
    LAST.try_with(|last| {
        let mut last = last.borrow_mut();
        let first = last.is_none();
        *last = Some(line);
        first
    })
    .unwrap_or(false)
}

fn said(payload: &dyn Any) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no text")
}

/// One line, whatever the text holds.
fn text_of(payload: &(dyn Any + Send)) -> String {
    let kept = LAST.try_with(RefCell::take).ok().flatten();
    kept.unwrap_or_else(|| format!("panicked: {}", said(payload))).escape_debug().to_string()
}

#[cfg(test)]
mod tests;
