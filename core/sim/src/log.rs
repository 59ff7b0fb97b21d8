//! What happened: a hash of everything, for reproducibility, and the last events in words, for
//! people.

use std::collections::VecDeque;
use std::fmt::Write as _;

use crate::queue::Packet;
use crate::rng::mix;
use crate::spec::{Fault, HostId, Ns};

/// Why a packet was dropped.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Drop {
    Cut,
    TooBig,
    Chance,
    SwitchFull,
    SocketFull,
    Nobody,
    Collisions,
}

/// What happened to a packet.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Note {
    Send,
    Arrive,
    Corrupted,
    Dropped(Drop),
}

impl Note {
    fn code(self) -> u64 {
        match self {
            Note::Send => 1,
            Note::Arrive => 2,
            Note::Corrupted => 3,
            Note::Dropped(d) => 16 + d as u64,
        }
    }
}

#[derive(Clone, Debug)]
enum Entry {
    Packet { note: Note, net: u8, from: HostId, to: HostId, len: u32, head: [u8; 28] },
    Fault(Fault),
    Text(String),
}

/// How events are turned into words; set by the layer that knows the protocol.
pub(crate) type Describe = fn(&[u8]) -> String;

/// The log of one run.
#[derive(Debug)]
pub struct Log {
    hash: u64,
    events: u64,
    recent: VecDeque<(Ns, Entry)>,
    keep: usize,
    /// Print everything at once, to standard error.
    live: bool,
    describe: Describe,
}

impl Log {
    /// Keeps the last `keep` events; `live` prints all of them as they happen.
    #[must_use]
    pub fn new(keep: usize, live: bool) -> Self {
        Log {
            hash: 0,
            events: 0,
            recent: VecDeque::with_capacity(keep.min(4096)),
            keep,
            live,
            describe: |_| String::new(),
        }
    }

    pub(crate) fn describe_with(&mut self, describe: Describe) {
        self.describe = describe;
    }

    /// Hash over all events so far: equal runs have equal hashes.
    #[must_use]
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Number of events so far.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.events
    }

    fn mix(&mut self, word: u64) {
        self.hash = mix(self.hash.rotate_left(17) ^ word);
    }

    fn keep(&mut self, now: Ns, entry: Entry) {
        if self.live {
            eprintln!("{}", self.line(now, &entry));
        }
        if self.keep > 0 {
            if self.recent.len() == self.keep {
                self.recent.pop_front();
            }
            self.recent.push_back((now, entry));
        }
    }

    pub(crate) fn packet(&mut self, now: Ns, note: Note, p: &Packet) {
        self.events += 1;
        self.mix(now ^ (note.code() << 56));
        self.mix(u64::from(p.net) << 56 ^ u64::from(p.from) << 28 ^ u64::from(p.to) ^ (p.data.len() as u64) << 40);
        let mut words = p.data.chunks_exact(8);
        for w in words.by_ref().take(6) {
            self.hash = self.hash.rotate_left(5)
                ^ u64::from_le_bytes(w.try_into().unwrap_or_default()).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
        if self.keep > 0 || self.live {
            let mut head = [0; 28];
            let n = p.data.len().min(head.len());
            head[..n].copy_from_slice(&p.data[..n]);
            self.keep(now, Entry::Packet { note, net: p.net, from: p.from, to: p.to, len: p.data.len() as u32, head });
        }
    }

    pub(crate) fn fault(&mut self, now: Ns, fault: Fault) {
        self.events += 1;
        self.mix(now ^ (3 << 60));
        self.keep(now, Entry::Fault(fault));
    }

    /// An event of a node, given as a number for the hash and, if anyone looks, as words.
    pub fn note(&mut self, now: Ns, word: u64, text: impl FnOnce() -> String) {
        self.events += 1;
        self.mix(now ^ (5 << 60));
        self.mix(word);
        if self.keep > 0 || self.live {
            let text = text();
            self.keep(now, Entry::Text(text));
        }
    }

    fn line(&self, now: Ns, entry: &Entry) -> String {
        let mut s = format!("{:>16} ", micros(now));
        let _ = match entry {
            Entry::Packet { note, net, from, to, len, head } => {
                let what = match note {
                    Note::Send => "send".into(),
                    Note::Arrive => "arrive".into(),
                    Note::Corrupted => "corrupt".into(),
                    Note::Dropped(d) => format!("drop:{d:?}"),
                };
                write!(
                    s,
                    "{what:<15} net{net} {from:>3} -> {to:<3} {len:>5} B  {}",
                    (self.describe)(&head[..(*len as usize).min(28)])
                )
            }
            Entry::Fault(f) => write!(s, "FAULT           {f:?}"),
            Entry::Text(t) => write!(s, "{t}"),
        };
        s
    }

    /// The last events, one a line, oldest first.
    #[must_use]
    pub fn recent(&self) -> Vec<String> {
        self.recent.iter().map(|(now, e)| self.line(*now, e)).collect()
    }
}

/// Virtual time as microseconds with three digits.
pub(crate) fn micros(ns: Ns) -> String {
    format!("{}.{:03} us", ns / 1000, ns % 1000)
}
