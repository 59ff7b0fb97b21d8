//! Closing what others have made, aside: a descriptor that a rank has sent may take hours to close
//! (a TCP socket that lingers, a file of a file system that does not answer), and so may a
//! connection with such a descriptor in it that was never read. Whoever waited for it would serve
//! nobody.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use weir_xdp::{Answer, Refused, helper};

/// Threads that wait for something to be closed, at the most. What comes while all of them wait is
/// kept until one is done, or no descriptors are left: then nobody else is served, and who was
/// served still is.
const THREADS_MAX: usize = 16;

/// Something to be closed.
pub enum Ending {
    /// A connection, of which the rank is told why, if there is a reason.
    Connection(OwnedFd, Option<Refused>),
    /// What a rank has sent.
    Descriptor(OwnedFd),
}

impl Ending {
    fn end(self) {
        let (connection, why) = match self {
            Ending::Connection(connection, Some(why)) => (connection, why),
            Ending::Connection(foreign, None) | Ending::Descriptor(foreign) => return drop(foreign),
        };
        // (Answered and read, so that the answer is what the rank finds, and not a broken
        // connection.)
        let _ = helper::send(&connection, &Answer::Refuse(why).encode(), &[]);
        let _ = helper::recv(&connection);
    }
}

/// All that is to be closed.
#[derive(Default)]
pub struct Endings {
    next: Vec<Ending>,
    threads: Arc<AtomicUsize>,
}

impl Endings {
    /// One more, in a while.
    pub fn add(&mut self, ending: Ending) {
        self.next.push(ending);
    }

    /// A thread closes all that were added since the last call, if there may be one more.
    pub fn go_on(&mut self) {
        if self.next.is_empty() || self.threads.load(Ordering::Acquire) >= THREADS_MAX {
            return;
        }
        self.threads.fetch_add(1, Ordering::AcqRel);
        let (all, threads) = (std::mem::take(&mut self.next), Arc::clone(&self.threads));
        let work = move || {
            all.into_iter().for_each(Ending::end);
            threads.fetch_sub(1, Ordering::AcqRel);
        };
        if std::thread::Builder::new().name("ending".into()).spawn(work).is_err() {
            // (What it was given is closed here, then.)
            self.threads.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    /// Nobody reads there: it closes after so long.
    fn lingering() -> (OwnedFd, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
        let mut writes = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
        rustix::net::sockopt::set_socket_linger(&writes, Some(Duration::from_secs(1))).expect("an option");
        writes.set_nonblocking(true).expect("an option");
        while writes.write(&[0; 65536]).is_ok() {}
        (writes.into(), listener.accept().expect("connected").0)
    }

    #[test]
    fn who_ends_slowly_holds_up_nobody() {
        let (slow, mut other) = lingering();
        let mut endings = Endings::default();
        let begun = Instant::now();
        endings.add(Ending::Descriptor(slow));
        endings.go_on();
        let (fast, mut told) = std::os::unix::net::UnixStream::pair().expect("a pair");
        fast.set_nonblocking(true).expect("as those that are accepted");
        endings.add(Ending::Connection(fast.into(), Some(Refused::User)));
        endings.go_on();
        let mut answer = [0; weir_xdp::BYTES];
        told.read_exact(&mut answer).expect("an answer");
        assert!(matches!(Answer::decode(&answer), Ok(Answer::Refuse(Refused::User))));
        let until = |left| {
            while endings.threads.load(Ordering::Acquire) > left {
                std::thread::sleep(Duration::from_millis(5));
            }
            begun.elapsed()
        };
        assert!(until(1) < Duration::from_millis(900), "the other one waits still");
        let all = until(0);
        assert!(all > Duration::from_millis(500), "it did not linger: {all:?}");
        let _ = other.read(&mut [0; 1]);
    }
}
