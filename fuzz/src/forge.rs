//! Greetings and records made with the job's key, which gives the keys of an association to who
//! sees its handshake.

use arbitrary::Arbitrary;
use weir_link::{GREETING_LEN, RecordHead};
use weir_wire::bulk::{Greeting, RecordKind};
use weir_wire::frame::Credit;
use weir_wire::handshake::{Handshake, Opening};
use weir_wire::seal::Role;
use weir_wire::{HandshakeKey, MAX_ENVELOPE_LEN, SessionKeys};

use crate::pair::{KEY, Net};

/// Longest payload that is written in full; of a longer one what follows on the connection is the
/// rest.
const PAYLOAD_MAX: usize = 64 << 10;
/// Openings remembered: nobody opens so often in a run.
const OPENINGS_MAX: usize = 64;

/// A record that need not make sense.
#[derive(Arbitrary, Clone, Debug)]
#[expect(missing_docs, reason = "plain")]
pub enum Lie {
    /// Of a small message, likely to meet others.
    Near {
        mseq: u8,
        total: u16,
        offset: u16,
        len: u16,
    },
    Message {
        stream: u16,
        sseq: u32,
        mseq: u64,
        total: u64,
        offset: u64,
        len: u32,
        envelope: u8,
    },
    /// Of a rendezvous transfer that the reader has open.
    Open {
        which: u8,
        offset: u32,
        len: u16,
    },
    Rndv {
        handle: u64,
        offset: u64,
        len: u32,
    },
}

/// What can be read off the handshake by who has the key.
pub(crate) struct Snoop {
    key: HandshakeKey,
    openings: Vec<Opening>,
    /// Keys, the side that opened, and the association ids of both sides.
    known: Option<(SessionKeys, usize, [u64; 2])>,
    seen: [usize; 2],
}

impl Snoop {
    pub(crate) fn new() -> Snoop {
        Snoop { key: HandshakeKey::derive(&KEY), openings: Vec::new(), known: None, seen: [0; 2] }
    }

    /// Packets are to be taken away: all are to be looked at again.
    pub(crate) fn forget_places(&mut self) {
        self.seen = [0; 2];
    }

    /// Packets that were not under way when it last looked.
    pub(crate) fn look(&mut self, net: &Net) {
        for to in 0..2 {
            let flying = &net.flying[to];
            // What was taken from the front makes it look at some again, which does no harm.
            for p in flying.iter().skip(self.seen[to].min(flying.len())) {
                match Handshake::parse(p, &self.key) {
                    Ok(Handshake::Confirm(c)) if !self.openings.contains(&c.opening) => self.openings.push(c.opening),
                    Ok(Handshake::Accept(a)) => {
                        let opening = self.openings.iter().find(|o| o.opener_association == a.opener_association);
                        let Some(o) = opening else { continue };
                        let keys = SessionKeys::derive(
                            &KEY,
                            a.level,
                            Role::Opener,
                            &o.nonce,
                            &a.nonce,
                            o.opener_id,
                            a.responder_id,
                        );
                        let mut ids = [0; 2];
                        (ids[to], ids[1 - to]) = (a.opener_association, a.responder_association);
                        self.known = Some((keys, to, ids));
                    }
                    _ => {}
                }
            }
            self.openings.truncate(OPENINGS_MAX);
            self.seen[to] = flying.len();
        }
    }

    /// A good greeting for `side`.
    pub(crate) fn greeting(&self, side: usize, bulk: u32) -> Option<[u8; GREETING_LEN]> {
        let (keys, _, ids) = self.known.as_ref()?;
        Some(Greeting { bulk, association: ids[side] }.write(&keys.bulk))
    }

    /// A record for side `to` with a good head, and how long that is.
    pub(crate) fn record(
        &self,
        net: &Net,
        to: usize,
        lie: &Lie,
        credit: Credit,
        read: u64,
    ) -> Option<(Vec<u8>, usize)> {
        let (keys, opener, _) = self.known.as_ref()?;
        let handles: Vec<u64> = net.sides[to].open_handles().collect();
        let (kind, offset, len, envelope) = record_of(lie, &handles);
        let tell = read.is_multiple_of(2);
        let head = RecordHead { kind, offset, len, credit, read, tell };
        let crc = |a: &[u8], b: &[u8]| {
            if to == *opener { keys.recv.record_crc(a, b) } else { keys.send.record_crc(a, b) }
        };
        let mut bytes = Vec::new();
        head.write(&[0xf1; MAX_ENVELOPE_LEN][..envelope], crc, &mut bytes);
        let head_len = bytes.len();
        bytes.resize(head_len + (len as usize).min(PAYLOAD_MAX), 0xf2);
        Some((bytes, head_len))
    }
}

/// Kind, offset, length of payload and of the envelope.
fn record_of(lie: &Lie, handles: &[u64]) -> (RecordKind, u64, u32, usize) {
    match *lie {
        Lie::Near { mseq, total, offset, len } => {
            let len = u32::from(len % 2048).max(1);
            let total_len = u64::from(total % 4096).max(len.into());
            let offset = u64::from(offset) % (total_len - u64::from(len) + 1);
            let (sseq, mseq) = (u32::from(mseq % 16), u64::from(mseq % 16));
            (RecordKind::Message { stream: 1, sseq, mseq, total_len }, offset, len, 16)
        }
        Lie::Message { stream, sseq, mseq, total, offset, len, envelope } => {
            // Mostly one that is not malformed.
            let mseq = if stream < 32 { mseq % 2000 } else { mseq };
            let kind = RecordKind::Message { stream: stream % 80, sseq, mseq, total_len: total };
            (kind, offset, len, usize::from(envelope % 49))
        }
        Lie::Open { which, offset, len } => {
            let handle = handles.get(usize::from(which) % handles.len().max(1)).copied().unwrap_or(0);
            (RecordKind::Rndv(handle), u64::from(offset % (2 << 20)), u32::from(len).max(1), 0)
        }
        Lie::Rndv { handle, offset, len } => (RecordKind::Rndv(handle), offset, len, 0),
    }
}
