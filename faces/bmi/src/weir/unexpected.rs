//! Unexpected messages of `bmi_weir`: those that have arrived are claimed by number, and fetched
//! when the program asks (spec/bmi.md B2).

use super::{CLAIM, CLAIMS_MAX, PASS, Taking, UNEXPECTED_MAX, Weir, engine_tag};
use crate::addresses::AddrKey;
use crate::inbox::{Body, Entry};
use crate::memory::Block;
use crate::tables::Tables;
use weir_engine::{Class, Completion, Iov, PeekOp, Queue, RecvOp, Seen, Wanted};

/// Messages taken from the engine as they come, in one look: as many as that reads of rings. They
/// are short, and the next look that takes such is when all of them are handed out (B1).
const COME_MAX: usize = 256;
/// Messages thrown away of a peer that is gone: more than credit lets one send ahead.
const REST_MAX: usize = 1 << 20;

pub(super) fn look(class: u8, source: Option<u32>, claim: Option<usize>) -> PeekOp {
    let (tag, _) = engine_tag(0, Some(class));
    PeekOp {
        source,
        class: Class::Tagged,
        tag,
        ignore: 0,
        claim: claim.is_some(),
        discard: false,
        context: claim.unwrap_or(0),
    }
}

/// One that was not claimed.
pub(super) struct Come {
    /// Whose it is, and its tag: as the engine says.
    source: Option<u32>,
    data: Option<u64>,
    /// None: there is no memory.
    block: Option<Block>,
}

impl Weir {
    /// Looks at what has arrived, for a program that takes unexpected messages of a class, where
    /// none waits: those that come now need not be claimed and fetched.
    pub(super) fn look_for(&mut self, t: &mut Tables, class: u8) -> Seen {
        let (tag, _) = engine_tag(0, Some(class));
        let Weir { ep, out, come, .. } = self;
        let seen = ep.look_for(Queue::Both, out, PASS, Wanted { tag, most: COME_MAX }, |message| {
            let block = Block::of(message.bytes);
            come.push(Come { source: message.source, data: message.data, block });
        });
        self.ended(t, seen);
        if !self.come.is_empty() {
            self.take_in(t, class);
        }
        seen
    }

    /// Those that have come are there to be handed out.
    fn take_in(&mut self, t: &mut Tables, class: u8) {
        let mut come = std::mem::take(&mut self.come);
        for Come { source, data, block } in come.drain(..) {
            let from = self.whose(t, source);
            // (Of nobody we know, or not of this face: nobody's.)
            if let (Some(from), Some(tag), Some(block)) = (from, data, block)
                && block.len() as u64 <= UNEXPECTED_MAX
            {
                let tag = (tag as u32).cast_signed();
                let entry = Entry { tag, size: block.len(), body: Body::Here(block) };
                if t.inbox.push(class, from, entry).is_ok()
                    && let Some(address) = t.addrs.get_mut(from)
                {
                    address.waiting += 1;
                }
            }
        }
        self.come = come;
    }

    /// Takes note of those that have arrived.
    pub(super) fn claim(&mut self, t: &mut Tables) {
        for class in t.inbox.looked_at().iter() {
            while self.claims < CLAIMS_MAX {
                let context = 1 << 63 | self.next_claim;
                let Ok(Some(found)) = self.ep.peek(&look(class, None, Some(context))) else { break };
                self.next_claim = (self.next_claim + 1) & (usize::MAX >> 1);
                let from = self.whose(t, found.source);
                let too_long = found.len as u64 > UNEXPECTED_MAX;
                let (Some(from), Some(tag), false) = (from, found.data, too_long) else {
                    // Of nobody we know, or not of this face.
                    self.discard(context);
                    continue;
                };
                let tag = (tag as u32).cast_signed();
                let entry = Entry { tag, size: found.len, body: Body::Claimed(context) };
                if t.inbox.push(class, from, entry).is_err() {
                    self.discard(context);
                    continue;
                }
                if let Some(address) = t.addrs.get_mut(from) {
                    address.waiting += 1;
                }
                self.claims += 1;
            }
        }
    }

    /// The address of who has sent a message.
    fn whose(&mut self, t: &mut Tables, peer: Option<u32>) -> Option<AddrKey> {
        self.address_of(peer).or_else(|| {
            // The library's thread may have let it in since events were heard last.
            self.hear(t);
            self.address_of(peer)
        })
    }

    /// What a peer sends comes from this address.
    fn address_of(&self, peer: Option<u32>) -> Option<AddrKey> {
        self.by_peer.get(&peer?)?.first().copied()
    }

    /// What is left of a peer that is gone is nobody's, and keeps its place from being another's.
    pub(super) fn discard_rest(&self, peer: u32) {
        for class in [Class::Tagged, Class::Untagged] {
            let op = PeekOp { class, ignore: u64::MAX, discard: true, ..look(0, Some(peer), None) };
            // (One that is not gone yet may send meanwhile, but not for ever.)
            for _ in 0..REST_MAX {
                if !matches!(self.ep.peek(&op), Ok(Some(_))) {
                    break;
                }
            }
        }
    }

    /// Has the engine put a message into a buffer. The inbox keeps its place until it is there.
    pub fn take(&mut self, t: &mut Tables, class: u8, from: AddrKey, entry: &Entry, context: usize) {
        self.claims -= 1;
        let Some(block) = Block::for_message(entry.size) else {
            self.discard(context);
            return Self::not_taken(t, class, from, context);
        };
        let piece = [Iov { base: block.base(), len: block.len() }];
        let op = RecvOp {
            source: None,
            class: Class::Tagged,
            tag: 0,
            ignore: 0,
            memory: &piece,
            multi_min: None,
            report: true,
            context,
            user: CLAIM,
        };
        // SAFETY: the block is kept in `taking` until the completion.
        let begun = unsafe { self.ep.recv_claimed(&op) };
        if begun.is_err() {
            // It was lost with its peer.
            return Self::not_taken(t, class, from, context);
        }
        self.taking.insert(context, Taking { from, class, block });
        self.take_received(t);
    }

    /// A message is in its buffer.
    pub(super) fn taken(&mut self, t: &mut Tables, c: &Completion) {
        let Some(Taking { from, class, block }) = self.taking.remove(&c.context) else { return };
        if c.result.is_err() {
            return Self::not_taken(t, class, from, c.context);
        }
        // (Of an address that was dropped meanwhile: nobody's.)
        let _ = t.inbox.arrived(class, from, c.context, Some((block, c.len)));
    }

    fn not_taken(t: &mut Tables, class: u8, from: AddrKey, context: usize) {
        if t.inbox.arrived(class, from, context, None)
            && let Some(address) = t.addrs.get_mut(from)
        {
            address.waiting -= 1;
            t.spent.push(from);
        }
    }

    /// A claimed message is thrown away.
    fn discard(&self, context: usize) {
        let op = RecvOp {
            source: None,
            class: Class::Tagged,
            tag: 0,
            ignore: 0,
            memory: &[] as &[Iov],
            multi_min: None,
            report: false,
            context,
            user: CLAIM,
        };
        let _ = self.ep.discard_claimed(&op);
    }

    /// Those of a dropped address are.
    pub fn discard_all(&mut self, entries: Vec<Entry>) {
        for entry in entries {
            if let Body::Claimed(context) = entry.body {
                self.claims -= 1;
                self.discard(context);
            }
        }
    }
}
