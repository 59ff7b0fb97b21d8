//! Closing what others have made, aside: a descriptor that a rank has sent may take hours to close
//! (a TCP socket that lingers, a file of a file system that does not answer), and so may a
//! connection with such a descriptor in it that was never read. Whoever waited for it would serve
//! nobody.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use weir_xdp::{Answer, Refused, helper};

/// Threads that wait for something to be closed, at the most.
const THREADS_MAX: usize = 16;
/// What waits for one of them, at the most. Then somebody keeps all of them busy, and only the end
/// of the process closes what they hold.
const WAITING_MAX: usize = 1024;

/// Something to be closed.
pub enum Ending {
    /// A connection, of which the rank is told why, if there is a reason.
    Connection(OwnedFd, Option<Refused>),
    /// What a rank has sent.
    Descriptor(OwnedFd),
}

impl Ending {
    fn end(self) {
        match self {
            Ending::Descriptor(fd) => let_go(fd),
            Ending::Connection(connection, why) => {
                if let Some(why) = why {
                    let _ = helper::send(&connection, &Answer::Refuse(why).encode(), &[]);
                }
                // Nothing more can be sent from here on, or this might never end. What was is
                // closed as all that was; and the rank finds the answer, where it would find a
                // connection broken with something unread.
                let _ = rustix::net::shutdown(&connection, rustix::net::Shutdown::Read);
                while let Ok((message, with)) = helper::recv(&connection) {
                    with.into_iter().for_each(let_go);
                    if message.is_empty() {
                        break;
                    }
                }
            }
        }
    }
}

/// Closes what somebody has sent, without waiting for what it may have to send itself.
fn let_go(fd: OwnedFd) {
    let _ = rustix::net::sockopt::set_socket_linger(&fd, None);
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

    /// Nothing is closed any more.
    pub fn are_stuck(&self) -> bool {
        self.next.len() > WAITING_MAX
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
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;
    use std::time::{Duration, Instant};

    /// Nobody reads there: it closes after an hour.
    fn lingering() -> (OwnedFd, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
        let mut writes = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
        rustix::net::sockopt::set_socket_linger(&writes, Some(Duration::from_secs(3600))).expect("an option");
        writes.set_nonblocking(true).expect("an option");
        while writes.write(&[0; 65536]).is_ok() {}
        (writes.into(), listener.accept().expect("connected").0)
    }

    fn until(endings: &Endings, left: usize) {
        let begun = Instant::now();
        while endings.threads.load(Ordering::Acquire) > left {
            assert!(begun.elapsed() < Duration::from_secs(60), "a thread waits still");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn what_lingers_is_closed_at_once() {
        let (slow, _other) = lingering();
        let mut endings = Endings::default();
        endings.add(Ending::Descriptor(slow));
        endings.go_on();
        until(&endings, 0);
    }

    #[test]
    fn who_sends_without_end_is_ended() {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        let sends = std::thread::spawn(move || while theirs.write(&[0; 64]).is_ok() {});
        let mut endings = Endings::default();
        endings.add(Ending::Connection(ours.into(), None));
        endings.go_on();
        until(&endings, 0);
        sends.join().expect("it ends");
    }

    #[test]
    fn who_ends_slowly_holds_up_nobody_until_there_are_too_many() {
        let mut endings = Endings::default();
        // (An answer waits for room: none does on connections that are accepted.)
        let full = || {
            let (mut ours, theirs) = UnixStream::pair().expect("a pair");
            ours.set_nonblocking(true).expect("an option");
            while ours.write(&[0; 4096]).is_ok() {}
            ours.set_nonblocking(false).expect("an option");
            (ours, theirs)
        };
        let (ours, theirs): (Vec<_>, Vec<_>) = (0..THREADS_MAX).map(|_| full()).unzip();
        for one in ours {
            endings.add(Ending::Connection(one.into(), Some(Refused::User)));
            endings.go_on();
        }
        assert_eq!(endings.threads.load(Ordering::Acquire), THREADS_MAX);
        let more = |endings: &mut Endings| {
            let (one, _) = UnixStream::pair().expect("a pair");
            endings.add(Ending::Connection(one.into(), None));
            endings.go_on();
        };
        more(&mut endings);
        assert!(endings.threads.load(Ordering::Acquire) == THREADS_MAX && !endings.are_stuck());
        drop(theirs);
        until(&endings, 0);
        endings.go_on();
        until(&endings, 0);
        assert!(endings.next.is_empty());
    }
}
