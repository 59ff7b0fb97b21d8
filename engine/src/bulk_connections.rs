//! The sockets of bulk connections (spec/bulk.md): what the driver of an endpoint's bulk TCP
//! connections (`core/bulk-driver`) is lent here. When one is made, fed, read and given up is
//! decided there.

use crate::memory::{places_of, slices_of};
use crate::state::State;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::resource::{Resource, getrlimit};
use smallvec::SmallVec;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};
use weir_bulk_driver::{Broken, Head, Interest, Limits, NotMade, Read, Surroundings};
use weir_link::{BulkNews, BulkRecord, Endpoint, PeerId, RecordIn, Time};
use weir_tcp::{Arrived, Connection, Tcp};

/// Connections in all, at most, and no more than this part of the descriptors that the process may
/// have.
const CONNS_MAX: u64 = 1024;
const DESCRIPTORS_PART: u64 = 4;
/// When the system refuses to hand out a connection, it is asked again after this: what was lacking
/// may be there then.
const DEAF_NS: u64 = 1_000_000_000;
/// Bytes read in one pass of progress, and written in one pass, by all connections together, before
/// datagrams have their turn.
const TURN_BYTES: u64 = 4 << 20;
/// Payload nobody wants is read into this much memory at a time.
const SCRATCH_BYTES: usize = 64 << 10;
/// In the set of descriptors: the listener. (No connection has this key.)
const LISTENER: u64 = u64::MAX;

/// All of an endpoint. `C`: whose connections.
pub struct BulkConnections<C: Tcp = Connection> {
    driver: weir_bulk_driver::BulkConnections<C>,
    sockets: Sockets<C>,
}

/// What is the system's.
struct Sockets<C: Tcp> {
    /// None once the endpoint is closed.
    listener: Option<C::Listener>,
    /// It is not listened to until then.
    deaf_until: Option<Time>,
    epoll: Epoll,
    scratch: Vec<u8>,
    /// Who may end connections: a child of fork(2) has copies of them.
    pid: u32,
}

/// Both, and the messages, lent to the driver.
struct Lent<'a, C: Tcp> {
    sockets: &'a mut Sockets<C>,
    st: &'a mut State,
}

impl<C: Tcp> BulkConnections<C> {
    /// Listens at the endpoint's port.
    ///
    /// # Errors
    /// The system's, the port being another's among them: then there are no bulk connections.
    pub fn open(addrs: &[SocketAddr]) -> io::Result<Self> {
        let listener = C::bind(addrs)?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(&listener, EpollEvent::new(EpollFlags::EPOLLIN, LISTENER))?;
        let descriptors = getrlimit(Resource::RLIMIT_NOFILE).map_or(CONNS_MAX, |(soft, _)| soft);
        let conns = (descriptors / DESCRIPTORS_PART).min(CONNS_MAX) as usize;
        Ok(BulkConnections {
            driver: weir_bulk_driver::BulkConnections::new(Limits { conns, turn_bytes: TURN_BYTES }),
            sockets: Sockets {
                listener: Some(listener),
                deaf_until: None,
                epoll,
                scratch: vec![0; SCRATCH_BYTES],
                pid: std::process::id(),
            },
        })
    }

    /// Readable when something is to be done here. Valid as long as this value.
    pub fn fd(&self) -> RawFd {
        self.sockets.epoll.0.as_raw_fd()
    }

    /// Drops all connections, and takes no more. The descriptor of [`BulkConnections::fd`] stays,
    /// for somebody may be asleep on it.
    pub fn close(&mut self) {
        if let Some(listener) = self.sockets.listener.take() {
            let _ = self.sockets.epoll.delete(&listener);
        }
        self.sockets.deaf_until = None;
        self.driver.close(|io| self.sockets.end(io));
    }

    /// How many connections there are, and how many bytes of heads at most one keeps that were not
    /// put off.
    #[cfg(feature = "bare")]
    pub fn kept(&self) -> (usize, usize) {
        (self.driver.len(), self.driver.staged())
    }

    /// When to look although nothing wakes a sleeper.
    pub fn next_timeout(&self, st: &State, now: Time) -> Option<Time> {
        let driver = self.driver.next_timeout(st.proto(), now);
        driver.into_iter().chain(self.sockets.deaf_until).min()
    }

    /// A sleep is over.
    pub fn has_slept(&mut self) {
        self.driver.has_slept();
    }

    /// Connects, accepts, reads. `busy`: the socket had datagrams, which come first. Returns the
    /// bytes read.
    pub fn progress(&mut self, st: &mut State, now: Time, busy: bool) -> u64 {
        self.driver.progress(&mut Lent { sockets: &mut self.sockets, st }, now, busy)
    }

    /// Writes what is to go by bulk connections.
    pub fn transmit(&mut self, st: &mut State, now: Time) {
        self.driver.transmit(&mut Lent { sockets: &mut self.sockets, st }, now);
    }
}

impl<C: Tcp> Sockets<C> {
    /// Whether connections are taken: not for a while after the system refused to hand one out.
    fn listens(&mut self, now: Time) -> bool {
        let (Some(listener), Some(until)) = (&self.listener, self.deaf_until) else { return true };
        if now < until {
            return false;
        }
        let added = self.epoll.add(listener, EpollEvent::new(EpollFlags::EPOLLIN, LISTENER));
        self.deaf_until = added.is_err().then(|| now.plus_ns(DEAF_NS));
        added.is_ok()
    }

    fn end(&self, io: C) {
        // Closing would do, but for a child of fork(2) that holds a copy.
        let _ = self.epoll.delete(&io);
        if self.pid == std::process::id() {
            io.shutdown();
        }
    }
}

fn event(key: u64, interest: Interest) -> EpollEvent {
    let flags = match interest {
        Interest::Made => EpollFlags::EPOLLOUT,
        Interest::Read => EpollFlags::EPOLLIN,
        Interest::ReadOrRoom => EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT,
    };
    EpollEvent::new(flags, key)
}

fn broken(_: io::Error) -> Broken {
    Broken
}

fn piece(bytes: &mut [u8]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() }
}

impl<C: Tcp> Surroundings for Lent<'_, C> {
    type Stream = C;
    type Why = io::ErrorKind;

    fn accept(&mut self, now: Time) -> Option<C> {
        if !self.sockets.listens(now) {
            return None;
        }
        let listener = self.sockets.listener.as_ref()?;
        match C::accept(listener) {
            Ok(io) => io,
            Err(_) => {
                // Out of descriptors, perhaps: until that has passed, what waits would wake every
                // sleeper for ever.
                let _ = self.sockets.epoll.delete(listener);
                self.sockets.deaf_until = Some(now.plus_ns(DEAF_NS));
                self.st.counters.bulk_accepts_failed += 1;
                None
            }
        }
    }

    fn connect(&mut self, news: &BulkNews) -> Result<C, NotMade<io::ErrorKind>> {
        C::connect(news.remote, news.local).map_err(|e| match e.raw_os_error() {
            Some(libc::EMFILE | libc::ENFILE) => NotMade::Lacking,
            _ => NotMade::Refused(e.kind()),
        })
    }

    fn is_connected(&mut self, io: &mut C) -> Result<bool, io::ErrorKind> {
        io.is_connected().map_err(|e| e.kind())
    }

    fn close(&mut self, io: C) {
        self.sockets.end(io);
    }

    fn watch(&mut self, io: &C, key: u64, interest: Interest) -> bool {
        self.sockets.epoll.add(io, event(key, interest)).is_ok()
    }

    fn watch_for(&mut self, io: &C, key: u64, interest: Interest) {
        let _ = self.sockets.epoll.modify(io, &mut event(key, interest));
    }

    fn ready(&mut self, found: impl FnMut(u64)) -> bool {
        let mut events = [EpollEvent::empty(); 32];
        let n = self.sockets.epoll.wait(&mut events, EpollTimeout::ZERO).unwrap_or(0);
        events[..n].iter().map(EpollEvent::data).filter(|key| *key != LISTENER).for_each(found);
        true
    }

    fn remote(&self, io: &C) -> Option<SocketAddr> {
        io.remote()
    }

    fn lost_segments(&self, io: &C) -> Result<u32, Broken> {
        io.lost_segments().map_err(broken)
    }

    #[inline]
    fn write(&mut self, io: &mut C, head: &[u8], payload: Option<(&BulkRecord, u32)>) -> Result<usize, Broken> {
        let mut slices: SmallVec<[IoSlice<'_>; 4]> = SmallVec::new();
        if let Some((record, done)) = payload {
            let rest = (record.len - done) as usize;
            if let Some(source) = self.st.messages.payload(record.token) {
                slices_of(source, record.offset + u64::from(done), rest, &mut slices);
            }
            if slices.iter().map(|s| s.len()).sum::<usize>() < rest {
                // The send was given up, and its memory is the caller's again.
                return Err(Broken);
            }
        }
        if !head.is_empty() {
            slices.insert(0, IoSlice::new(head));
        }
        io.write(&slices).map_err(broken)
    }

    fn payload(&mut self, record: &BulkRecord, bytes: &mut Vec<u8>) -> Result<(), Broken> {
        // If the send was given up, its memory is the caller's again.
        let source = self.st.messages.payload(record.token).ok_or(Broken)?;
        let mut slices: SmallVec<[IoSlice<'_>; 4]> = SmallVec::new();
        slices_of(source, record.offset, record.len as usize, &mut slices);
        let before = bytes.len();
        slices.iter().for_each(|s| bytes.extend_from_slice(s));
        if bytes.len() - before == record.len as usize { Ok(()) } else { Err(Broken) }
    }

    #[inline]
    fn read(
        &mut self,
        io: &mut C,
        payload: Option<(PeerId, &RecordIn, u32)>,
        stage: &mut [u8],
    ) -> Result<Read, Broken> {
        let mut pieces: SmallVec<[libc::iovec; 4]> = SmallVec::new();
        let (mut rest, mut room) = (0, 0);
        if let Some((peer, record, done)) = payload {
            rest = (record.len - done) as usize;
            places_of(self.st.messages.record_room(peer.0, record, done), rest, &mut pieces);
            room = pieces.iter().map(|p| p.iov_len).sum();
            if room == 0 {
                // Nobody wants it (any more), or not this part.
                room = rest.min(self.sockets.scratch.len());
                pieces.push(piece(&mut self.sockets.scratch[..room]));
            }
        }
        if room == rest {
            pieces.push(piece(stage));
        }
        let offered: usize = pieces.iter().map(|p| p.iov_len).sum();
        // SAFETY: our own memory, of which nobody holds a reference, and that of a receive or
        // region, which its face declared writable until the completion, and this is before.
        match unsafe { io.read(&mut pieces) }.map_err(broken)? {
            Arrived::Bytes(n) => {
                Ok(Read::Bytes { payload: n.min(room), staged: n.saturating_sub(room), more: n >= offered })
            }
            Arrived::End => Ok(Read::End),
        }
    }

    fn endpoint(&self) -> &Endpoint {
        self.st.proto()
    }

    fn endpoint_mut(&mut self) -> &mut Endpoint {
        self.st.proto_mut()
    }

    fn takes(&mut self, begins: bool) {
        self.st.messages.set_by_bulk(begins);
    }

    fn record_tells(&mut self, now: Time, peer: PeerId, bulk: u32, head: &[u8]) -> Head {
        let messages = &mut self.st.messages;
        let sends = messages.completions().0;
        if !messages.with_events(now, head, |proto, events| proto.record_tells(now, peer, bulk, head, events)) {
            return Head::Wrong;
        }
        if messages.completions().0 > sends { Head::Answers } else { Head::Good }
    }

    fn record_begins(&mut self, now: Time, peer: PeerId, _: u32, head: &[u8]) -> Option<RecordIn> {
        let messages = &mut self.st.messages;
        let record = messages.with_events(now, head, |proto, events| proto.record_begins(now, peer, head, events))?;
        messages.record_begins(peer.0, &record);
        Some(record)
    }

    fn record_whole(&mut self, now: Time, peer: PeerId, _: u32, bytes: &[u8], head_len: usize) -> bool {
        let messages = &mut self.st.messages;
        messages.with_events(now, bytes, |proto, events| proto.record_whole(now, peer, (bytes, head_len), events))
    }

    fn put(&mut self, peer: PeerId, record: &RecordIn, done: u32, bytes: &[u8]) {
        self.st.messages.put_record(peer.0, record, done, bytes);
    }

    fn record_ends(&mut self, now: Time, peer: PeerId, bulk: u32, record: &RecordIn) {
        self.st.messages.with_events(now, &[], |proto, events| proto.record_ends(now, peer, bulk, record, events));
    }

    fn next_record(&mut self, now: Time, peer: PeerId, bulk: u32, head: &mut Vec<u8>) -> Option<BulkRecord> {
        let record = self.st.proto_mut().bulk_next(now, peer, bulk, head)?;
        self.st.messages.record_leaves(&record);
        Some(record)
    }

    fn is_up(&mut self, peer: PeerId, _: u32) {
        self.st.messages.sink_mut().trace.bulk(peer.0, "up");
    }

    fn is_over(&mut self, now: Time, peer: PeerId, bulk: u32) {
        self.st.messages.sink_mut().trace.bulk(peer.0, "failed");
        self.st.proto_mut().bulk_over(now, peer, bulk);
    }

    fn answers_tcp(&mut self, peer: PeerId) {
        self.st.peer(peer.0).no_tcp_to = None;
    }

    /// People can do something about that.
    fn no_tcp(&mut self, peer: PeerId, to: SocketAddr, why: Option<io::ErrorKind>) {
        self.st.counters.bulk_connects_failed += 1;
        let p = self.st.peer_of_tcp(peer.0);
        p.no_tcp_to = Some(to);
        if !std::mem::replace(&mut p.told_no_tcp, true) {
            self.st.messages.sink_mut().trace.no_tcp(peer.0, to, why);
        }
    }
}

#[cfg(test)]
mod tests;
