//! What leaves by a connection of `bmi_tcp`, and what comes: several messages by one system call
//! where they are there (spec/bmi.md T2, T5, T11, T12).

use super::codec::{Header, Mode, Need};
use super::conn::{Conn, Dest, Incoming, Read};
use super::held::{self, Held};
use super::sockets::Failure;
use super::{ConnKey, Tcp};
use crate::codes::Code;
use crate::inbox::{Body, Entry};
use crate::memory::Block;
use crate::tables::Tables;
use std::time::{Duration, Instant};

/// What one pass reads of a connection (B2).
const PASS_MESSAGES: usize = 16;
const PASS_BYTES: u64 = 256 << 10;

impl Tcp {
    pub(super) fn write(&mut self, t: &mut Tables, key: ConnKey) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        conn.batched = false;
        if conn.is_connecting() {
            match conn.connected() {
                Ok(true) => {}
                Ok(false) => return,
                Err(failure) => return self.end(t, key, &failure),
            }
        }
        if !self.conns[key].out.is_empty() {
            self.watch(key);
        }
        if let Err(failure) = self.conns[key].write_queue(|op, size| t.ops.end(op, Ok(size))) {
            return self.end(t, key, &failure);
        }
        self.set_interest(key);
    }

    /// Several posts are likely to follow, and then a test (T12).
    pub fn expect_several(&mut self) {
        self.batch_at = Some(Instant::now());
    }

    /// A post of now belongs to several.
    pub(super) fn is_one_of_several(&mut self) -> bool {
        let Some(at) = self.batch_at else { return false };
        let now = Instant::now();
        let follows = now.saturating_duration_since(at) < Duration::from_nanos(self.settings.engine.coalesce_ns.into());
        self.batch_at = follows.then_some(now);
        follows
    }

    /// What waited for others leaves.
    pub(super) fn write_batches(&mut self, t: &mut Tables) {
        self.batch_at = None;
        let mut keys = std::mem::take(&mut self.batches);
        for key in keys.drain(..) {
            self.write(t, key);
        }
        self.batches = keys;
    }

    /// Bytes that the message under way may still bring in (T5).
    pub(super) fn allowance(&self, key: ConnKey) -> u64 {
        let Some(conn) = self.conns.get(key) else { return u64::MAX };
        let Some((incoming, has)) = conn.incoming.as_ref().and_then(|i| Some((i, i.buffered()?))) else {
            return u64::MAX;
        };
        let peer = self.places.get(conn.addr).map_or_else(Held::default, |p| p.held);
        held::may_bring(peer, self.held, has, incoming.header.size, &self.settings)
    }

    /// There is no room for what comes next in a connection. (A header that has begun is read to
    /// its end.)
    pub(super) fn must_rest(&self, key: ConnKey, allowed: u64) -> bool {
        let Some(conn) = self.conns.get(key) else { return false };
        match conn.stream.need() {
            Need::Payload(_) => allowed == 0,
            Need::Header(_) => {
                let peer = self.places.get(conn.addr).map_or_else(Held::default, |p| p.held);
                !conn.stream.in_header() && !held::may_begin(peer, self.held)
            }
        }
    }

    /// Reads what has come, a turn of it.
    pub(super) fn read(&mut self, t: &mut Tables, key: ConnKey) {
        let (mut messages, mut bytes) = (0, 0);
        if let Some(conn) = self.conns.get_mut(key) {
            conn.lend(&mut self.spare);
        }
        // Nobody tells again of what was read ahead.
        while (messages < PASS_MESSAGES && bytes < PASS_BYTES) || self.conns.get(key).is_some_and(Conn::has_ahead) {
            let allowed = self.allowance(key);
            let rests = self.must_rest(key, allowed);
            let Some(conn) = self.conns.get_mut(key).filter(|c| !c.is_connecting()) else { return };
            if rests {
                self.resting.insert(key);
                break;
            }
            match conn.read(allowed) {
                Ok(Read::Nothing) => break,
                Ok(Read::Header(header)) => self.begin(t, key, header),
                Ok(Read::Payload { bytes: n, held }) => {
                    bytes += n;
                    if held {
                        let addr = self.conns[key].addr;
                        self.hold(addr, Held { bytes: n, messages: 0 });
                    }
                }
                Ok(Read::Part) => {}
                Err(failure) => return self.end(t, key, &failure),
            }
            if self.conns.get(key).is_some_and(Conn::is_whole) {
                self.finish(t, key);
                messages += 1;
            }
        }
        if let Some(conn) = self.conns.get_mut(key) {
            conn.give_back(&mut self.spare);
        }
        self.set_interest(key);
    }

    /// A message begins: who takes it?
    fn begin(&mut self, t: &mut Tables, key: ConnKey, header: Header) {
        let conn = &mut self.conns[key];
        let place = &mut self.places[conn.addr];
        let dest = match header.mode {
            Mode::Unexpected => Dest::Inbox(Vec::new()),
            Mode::Eager | Mode::Rendezvous => match place.matching.take(header.tag) {
                Some(posted) if header.size > posted.size => {
                    t.ops.end(posted.key, Err(Code::EMSGSIZE));
                    Dest::Discard
                }
                Some(posted) => Dest::User { key: posted.key, pieces: posted.pieces },
                None => Dest::Buffer(Vec::new()),
            },
        };
        let (addr, incoming) = (conn.addr, Incoming { header, dest, at: 0 });
        let is_held = incoming.buffered().is_some();
        conn.incoming = Some(incoming);
        if is_held {
            self.hold(addr, Held::one(0));
        }
    }

    /// All of it is here.
    fn finish(&mut self, t: &mut Tables, key: ConnKey) {
        let conn = &mut self.conns[key];
        let addr = conn.addr;
        let Some(Incoming { header, dest, .. }) = conn.incoming.take() else { return };
        match dest {
            Dest::User { key, .. } => t.ops.end(key, Ok(header.size)),
            Dest::Discard => {}
            Dest::Buffer(bytes) => self.places[addr].matching.arrived(header.tag, bytes),
            Dest::Inbox(bytes) => {
                let Some(mut block) = Block::for_message(bytes.len()) else {
                    // It was accepted; without memory to hand it out the connection says so.
                    self.release(addr, Held::one(bytes.len() as u64));
                    return self.end(t, key, &Failure::no_memory());
                };
                block.bytes_mut().copy_from_slice(&bytes);
                let entry = Entry { tag: header.tag, size: bytes.len(), body: Body::Here(block) };
                if t.inbox.push(header.class, addr, entry).is_err() {
                    return self.release(addr, Held::one(bytes.len() as u64));
                }
                if let Some(address) = t.addrs.get_mut(addr) {
                    address.waiting += 1;
                }
            }
        }
    }
}
