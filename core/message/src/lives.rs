//! The trace of requests' lives: numbers of their own, and what is known of each while it lives.
//!
//! The numbers are kept with the operations; what else is known of them is kept here, for as long
//! as they live, and only while the trace is on. A line has the number and a space, so that
//! `grep '#17 '` finds a life and nothing else; a line about a request and a message has both
//! numbers.

use crate::notice::Sink;
use alloc::format;
use alloc::string::String;
use core::fmt;
use hashbrown::HashMap;
use smallvec::SmallVec;

type Table<K, V> = HashMap<K, V, foldhash::fast::FixedState>;

/// What a frame on its way out names: the low half of a message's number, or a rendezvous
/// transfer's handle.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum OutKey {
    Message(u32),
    Control(u32),
    Rndv(u64),
}

/// A request whose payload is on its way out.
#[derive(Default)]
struct Out {
    what: &'static str,
    /// The names of its parts in packets.
    keys: SmallVec<[(u32, OutKey); 2]>,
    /// Bytes to go, gone for the first time, and gone again.
    len: u64,
    sent: u64,
    resent: u64,
    begun: bool,
    by_bulk: bool,
    by_packets: bool,
}

/// A rendezvous transfer that comes in.
struct In {
    /// The beginning of its lines: `#17 recv`.
    who: String,
    /// And their end: the message that it belongs to.
    of: String,
    got: u64,
    by_bulk: bool,
    by_packets: bool,
}

/// What is known of the requests that live.
#[derive(Default)]
struct Lives {
    last: u64,
    out: Table<u64, Out>,
    keys: Table<(u32, OutKey), u64>,
    rndvs_in: Table<(u32, u64), In>,
}

fn by(bulk: bool, packets: bool) -> &'static str {
    match (bulk, packets) {
        (true, false) => "by bulk connection",
        (true, true) => "by bulk connection and packets",
        (false, _) => "by packets",
    }
}

/// The trace of one endpoint.
pub(crate) struct Trace<S> {
    sink: S,
    /// What comes now comes by a bulk connection, not in packets.
    by_bulk: bool,
    lives: Lives,
}

impl<S: Sink> Trace<S> {
    pub(crate) fn new(sink: S) -> Self {
        Trace { sink, by_bulk: false, lives: Lives::default() }
    }

    /// Whether events of this level are wanted.
    #[inline]
    pub(crate) fn on(&self, level: u8) -> bool {
        self.sink.on(level)
    }

    /// Writes one line.
    #[cold]
    pub(crate) fn line(&mut self, text: fmt::Arguments<'_>) {
        self.sink.line(text);
        if !self.sink.on(1) {
            // It could not be written, and the trace is over.
            self.lives = Lives::default();
        }
    }

    pub(crate) fn sink(&self) -> &S {
        &self.sink
    }

    pub(crate) fn sink_mut(&mut self) -> &mut S {
        &mut self.sink
    }

    /// Says how what comes from now on comes.
    pub(crate) fn set_by_bulk(&mut self, by_bulk: bool) {
        self.by_bulk = by_bulk;
    }

    /// How what comes now comes, for a line.
    pub(crate) fn by_what(&self) -> &'static str {
        by(self.by_bulk, false)
    }

    /// So many bytes of a request are to go, fewer than it has.
    pub(crate) fn cut_out(&mut self, number: u64, len: u64) {
        if let Some(o) = self.lives.out.get_mut(&number) {
            o.len = len;
        }
    }

    pub(crate) fn number(&mut self) -> u64 {
        self.lives.last += 1;
        self.lives.last
    }

    pub(crate) fn expect_out(&mut self, number: u64, what: &'static str, len: u64) {
        self.lives.out.insert(number, Out { what, len, ..Out::default() });
    }

    pub(crate) fn name_out(&mut self, number: u64, peer: u32, key: OutKey) {
        if let Some(o) = self.lives.out.get_mut(&number) {
            o.keys.push((peer, key));
            self.lives.keys.insert((peer, key), number);
        }
    }

    /// A frame with payload of a request, or with its announcement, leaves in a packet.
    pub(crate) fn piece_out(&mut self, peer: u32, key: OutKey, offset: u64, len: u64) {
        let Some(&number) = self.lives.keys.get(&(peer, key)) else { return };
        let Some(o) = self.lives.out.get(&number) else { return };
        let (what, total) = (o.what, o.len);
        match key {
            // A request for the peer's leave; the payload goes otherwise.
            OutKey::Message(_) | OutKey::Control(_) if len == 0 && total > 0 => {
                self.lives.keys.remove(&(peer, key));
                self.line(format_args!("#{number} {what} announced by packets"));
            }
            // Each is whole in its packet, and its number is only this piece's.
            OutKey::Control(_) => {
                self.lives.keys.remove(&(peer, key));
                let at = o.sent;
                self.sent_piece(number, at, len, false);
            }
            _ => self.sent_piece(number, offset, len, false),
        }
    }

    /// A piece leaves; what had left before leaves again.
    pub(crate) fn sent_piece(&mut self, number: u64, offset: u64, len: u64, bulk: bool) {
        let Some(o) = self.lives.out.get_mut(&number) else { return };
        o.by_bulk |= bulk;
        o.by_packets |= !bulk;
        let what = o.what;
        // What is empty has no place of its own.
        if offset < o.sent || (o.begun && len == 0) {
            o.resent += len;
            let how = by(bulk, !bulk);
            return self.line(format_args!("#{number} {what} sent again {how} at={offset} len={len}"));
        }
        let first = !core::mem::replace(&mut o.begun, true);
        o.sent += len;
        let last = o.sent >= o.len;
        let (how, total, all) = (by(bulk, !bulk), o.len, by(o.by_bulk, o.by_packets));
        match (first, last) {
            (true, true) => self.line(format_args!("#{number} {what} sent whole {how} len={total}")),
            (true, false) => self.line(format_args!("#{number} {what} first piece sent {how} len={len} of {total}")),
            (false, true) => self.line(format_args!("#{number} {what} last piece sent {how}, all {all} len={total}")),
            (false, false) => {}
        }
    }

    pub(crate) fn over(&mut self, number: u64) -> u64 {
        let Some(o) = self.lives.out.remove(&number) else { return 0 };
        for k in o.keys {
            if self.lives.keys.get(&k) == Some(&number) {
                self.lives.keys.remove(&k);
            }
        }
        o.resent
    }

    pub(crate) fn expect_rndv(&mut self, peer: u32, handle: u64, who: String, of: String) {
        self.lives.rndvs_in.insert((peer, handle), In { who, of, got: 0, by_bulk: false, by_packets: false });
    }

    /// Bytes of a rendezvous transfer came, perhaps not for the first time.
    pub(crate) fn rndv_piece_in(&mut self, peer: u32, handle: u64, len: u64, bulk: bool) {
        let Some(b) = self.lives.rndvs_in.get_mut(&(peer, handle)) else { return };
        let first = b.got == 0;
        b.got += len;
        b.by_bulk |= bulk;
        b.by_packets |= !bulk;
        if first {
            let (how, text) = (by(bulk, !bulk), format!("{} first piece came", b.who));
            let of = b.of.clone();
            self.line(format_args!("{text} {how} len={len}{of}"));
        }
    }

    /// All of a rendezvous transfer is there.
    #[cold]
    pub(crate) fn rndv_whole(&mut self, peer: u32, handle: u64, len: u64) {
        if let Some(b) = self.lives.rndvs_in.remove(&(peer, handle)) {
            let how = by(b.by_bulk, b.by_packets);
            self.line(format_args!("{} last piece came, all {how} len={len}{}", b.who, b.of));
        }
    }

    /// A rendezvous transfer is no longer wanted.
    #[cold]
    pub(crate) fn forget_rndv(&mut self, peer: u32, handle: u64) {
        self.lives.rndvs_in.remove(&(peer, handle));
    }
}
