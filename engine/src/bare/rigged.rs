//! Connections for the fuzzer: how many bytes each call takes, and which call fails, is as it says;
//! else they are as always. One fuzzer a thread.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use weir_tcp::{Arrived, Connection, Listener, Tcp};

/// What becomes of one read or write.
#[derive(Clone, Copy, Debug)]
pub enum Call {
    /// It moves so many bytes at most; 0: it would block.
    Most(usize),
    /// A write lacks so many bytes of its end; a read ends so many before the last piece of memory,
    /// which is behind the payload of a record.
    Short(usize),
    /// The connection is over.
    Fails,
}

#[derive(Default)]
struct Rig {
    calls: VecDeque<Call>,
    /// Segments that the network lost, of any connection.
    lost: u32,
    open: usize,
}

thread_local! {
    static RIG: RefCell<Rig> = RefCell::default();
}

/// What becomes of the next calls of this thread; those after them are as always.
pub fn rig(calls: impl IntoIterator<Item = Call>) {
    RIG.with_borrow_mut(|r| r.calls = calls.into_iter().collect());
}

/// The network lost segments, as the system says when it is asked.
pub fn lose(segments: u32) {
    RIG.with_borrow_mut(|r| r.lost = r.lost.saturating_add(segments));
}

/// Connections of this thread that are open.
#[must_use]
pub fn open() -> usize {
    RIG.with_borrow(|r| r.open)
}

/// Bytes that the next call, which ends there, may move.
fn most(end: usize) -> io::Result<usize> {
    match RIG.with_borrow_mut(|r| r.calls.pop_front()) {
        None => Ok(usize::MAX),
        Some(Call::Most(n)) => Ok(n),
        Some(Call::Short(n)) => Ok(end.saturating_sub(n)),
        Some(Call::Fails) => Err(io::ErrorKind::ConnectionReset.into()),
    }
}

/// Memory that is not (or no more) the engine's is not a failure of the connection.
fn allowed<T>(result: io::Result<T>) -> io::Result<T> {
    let fault = matches!(&result, Err(e) if e.raw_os_error() == Some(libc::EFAULT));
    assert!(!fault, "a connection touched memory of an operation that has ended");
    result
}

/// A connection of TCP's over loopback, of which each call does as it was rigged.
pub struct Rigged(Connection);

impl Rigged {
    fn new(inner: Connection) -> Rigged {
        RIG.with_borrow_mut(|r| r.open += 1);
        Rigged(inner)
    }
}

impl Tcp for Rigged {
    type Listener = Listener;

    fn bind(addrs: &[SocketAddr]) -> io::Result<Listener> {
        Listener::bind(addrs)
    }

    fn accept(listener: &Listener) -> io::Result<Option<Rigged>> {
        Ok(listener.accept()?.map(Rigged::new))
    }

    fn connect(remote: SocketAddr, local: Option<IpAddr>) -> io::Result<Rigged> {
        Connection::connect(remote, local).map(Rigged::new)
    }

    fn is_connected(&self) -> io::Result<bool> {
        self.0.is_connected()
    }

    fn shutdown(&self) {
        self.0.shutdown();
    }

    fn remote(&self) -> Option<SocketAddr> {
        self.0.remote()
    }

    fn lost_segments(&self) -> io::Result<u32> {
        Ok(RIG.with_borrow(|r| r.lost))
    }

    fn write(&mut self, data: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut left = most(data.iter().map(|s| s.len()).sum())?;
        let mut some: Vec<IoSlice<'_>> = Vec::new();
        for slice in data {
            let n = left.min(slice.len());
            some.push(IoSlice::new(&slice[..n]));
            left -= n;
        }
        if some.iter().all(|s| s.is_empty()) { Ok(0) } else { allowed(self.0.write(&some)) }
    }

    unsafe fn read(&mut self, pieces: &mut [libc::iovec]) -> io::Result<Arrived> {
        let last = pieces.last().map_or(0, |p| p.iov_len);
        let mut left = most(pieces.iter().map(|p| p.iov_len).sum::<usize>() - last)?;
        for piece in &mut *pieces {
            piece.iov_len = piece.iov_len.min(left);
            left -= piece.iov_len;
        }
        // SAFETY: parts of pieces that are writable (caller).
        allowed(unsafe { self.0.read(pieces) })
    }
}

impl AsFd for Rigged {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for Rigged {
    fn drop(&mut self) {
        RIG.with_borrow_mut(|r| r.open -= 1);
    }
}
