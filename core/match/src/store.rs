//! Where receives and messages are kept: the nodes, and the indexes that find them.

use crate::bins::{Bins, Key};
use crate::order::Peer;
use crate::slab::{Links, List, NIL, Node, Place, Slab};
use crate::types::{Arrival, Class, MsgToken, OpToken, Pattern, Posted, Source, StreamBits};
use alloc::{collections::BTreeSet, vec::Vec};

/// A posted receive.
#[derive(Copy, Clone, Debug)]
pub struct Receive {
    pub op: OpToken,
    /// Place in the posting order.
    pub seq: u64,
    pub multi: Option<Buffer>,
    bin: u32,
    links: Links,
}

/// What is left of a multi-receive buffer.
#[derive(Copy, Clone, Debug)]
pub struct Buffer {
    pub used: u64,
    pub room: u64,
    pub min_room: u64,
}

impl Place for Receive {
    #[inline]
    fn is_live(&self) -> bool {
        self.bin != NIL
    }
    #[inline]
    fn vacate(&mut self) {
        self.bin = NIL;
    }
}

impl Node for Receive {
    #[inline]
    fn links(&self, _: usize) -> Links {
        self.links
    }
    #[inline]
    fn links_mut(&mut self, _: usize) -> &mut Links {
        &mut self.links
    }
}

/// A message waiting.
#[derive(Copy, Clone, Debug)]
pub struct Message {
    pub msg: MsgToken,
    pub tag: u64,
    pub len: u64,
    /// Place in the order of its peer's messages.
    pub position: u64,
    pub peer: u32,
    pub sseq: u32,
    pub stream: u16,
    pub class: Class,
    live: bool,
    /// Bins of the stream bits of its tag from its peer, and from any; `NIL` where it is in none.
    bins: [u32; 2],
    links: [Links; 4],
}

/// Tagged: in the bin of (peer, stream bits of the tag), by position.
pub const BY_TAG: usize = 0;
/// Tagged, while `Store::any_index` is set: in the bin of (any peer, stream bits of the tag), by
/// arrival.
pub const BY_TAG_ANY: usize = 1;
/// In the peer's list of the class, by position.
pub const BY_PEER: usize = 2;
/// In the list of the class, by arrival.
pub const BY_ARRIVAL: usize = 3;

impl Place for Message {
    #[inline]
    fn is_live(&self) -> bool {
        self.live
    }
    #[inline]
    fn vacate(&mut self) {
        self.live = false;
    }
}

impl Node for Message {
    #[inline]
    fn links(&self, which: usize) -> Links {
        self.links[which]
    }
    #[inline]
    fn links_mut(&mut self, which: usize) -> &mut Links {
        &mut self.links[which]
    }
}

/// One form of pattern in use; a message is looked up once for each, so programs should use few
/// masks (MPIs do).
#[derive(Copy, Clone, Debug)]
struct Form {
    ignore: u64,
    class: Class,
    any: bool,
    /// Receives of this form posted now.
    live: usize,
}

/// After how many removed messages without a look the index by (any peer, stream bits) may go.
const ANY_INTEREST: u32 = 1024;

/// Forms kept although no receive of them is posted, so that they need not be made anew.
const IDLE_FORMS: usize = 8;

/// All receives and messages.
#[derive(Debug)]
pub struct Store {
    /// What of a tag decides over its stream.
    pub stream_bits: StreamBits,
    pub receives: Slab<Receive>,
    /// How many of them are tagged.
    pub tagged_receives: usize,
    pub messages: Slab<Message>,
    pub bins: Bins,
    forms: Vec<Form>,
    next_seq: u64,
    pub peers: Vec<Peer>,
    /// Waiting messages by class, in the order of arrival.
    pub arrived: [List; 2],
    /// Whether waiting messages are in bins of (any peer, stream bits) too. Set when such a receive
    /// first looks for one; unset when none waits any more and none was looked for lately. Directed
    /// receives are the rule, and these bins cost as much again.
    any_index: bool,
    /// Messages that may still be removed before the index counts as not looked at lately.
    any_interest: u32,
    /// Waiting messages with a gap below them.
    pub behind_gap: usize,
    /// Peers with tagged messages behind a gap.
    pub gappy: BTreeSet<u32>,
}

/// The bin of the messages whose tags agree with this one in the stream bits. It holds all that a
/// receive on one stream can match, and seldom others: the rest of a tag is protocol bits.
#[inline]
fn stream_key(bits: StreamBits, source: Source, tag: u64) -> Key {
    Key::of_receive(&Pattern { class: Class::Tagged, source, tag, ignore: !bits.0 })
}

#[inline]
fn of(class: Class) -> usize {
    match class {
        Class::Tagged => 0,
        Class::Untagged => 1,
    }
}

impl Store {
    pub fn new(stream_bits: StreamBits) -> Self {
        Store {
            stream_bits,
            receives: Slab::new(),
            tagged_receives: 0,
            messages: Slab::new(),
            bins: Bins::new(),
            forms: Vec::new(),
            next_seq: 0,
            peers: Vec::new(),
            arrived: [List::EMPTY; 2],
            any_index: false,
            any_interest: 0,
            behind_gap: 0,
            gappy: BTreeSet::new(),
        }
    }

    /// The peer's numbering, made on first use.
    #[inline]
    pub fn peer_mut(&mut self, peer: u32) -> &mut Peer {
        let p = peer as usize;
        if p >= self.peers.len() {
            self.peers.resize_with(p + 1, Peer::new);
        }
        &mut self.peers[p]
    }

    /// Waiting messages of a class in the order of arrival.
    pub fn arrived(&self, class: Class) -> u32 {
        self.arrived[of(class)].head
    }

    /// Waiting messages of a class and peer in the order of their positions.
    pub fn waiting(&self, peer: u32, class: Class) -> u32 {
        self.peers.get(peer as usize).map_or(NIL, |p| p.waiting[of(class)].head)
    }

    /// Of these, the first behind a gap.
    pub fn first_behind_gap(&self, peer: u32, class: Class) -> u32 {
        self.peers.get(peer as usize).map_or(NIL, |p| p.behind_gap[of(class)])
    }

    pub fn pattern_of(&self, receive: u32) -> Pattern {
        self.bins.get(self.receives.get(receive).bin).key.pattern()
    }

    /// Puts a receive behind all others.
    #[inline]
    pub fn add_receive(&mut self, p: &Posted, multi: Option<Buffer>) {
        let key = Key::of_receive(&p.pattern());
        let form = self.forms.iter_mut().find(|f| f.ignore == key.ignore && f.any == key.any && f.class == key.class);
        match form {
            Some(form) => form.live += 1,
            None => self.forms.push(Form { ignore: key.ignore, class: key.class, any: key.any, live: 1 }),
        }
        let bin = self.bins.find_or_make(&key);
        let ix = self.receives.insert(Receive { op: p.op, seq: self.next_seq, multi, bin, links: Links::NONE });
        self.next_seq += 1;
        self.tagged_receives += usize::from(p.class == Class::Tagged);
        self.bins.get_mut(bin).receives.push_back(&mut self.receives, 0, ix);
    }

    #[inline]
    pub fn remove_receive(&mut self, ix: u32) {
        let bin = self.receives.get(ix).bin;
        let b = self.bins.get_mut(bin);
        b.receives.unlink(&mut self.receives, 0, ix);
        let key = b.key;
        self.bins.release(bin);
        self.receives.remove(ix);
        self.tagged_receives -= usize::from(key.class == Class::Tagged);
        let form = self.forms.iter().position(|f| f.ignore == key.ignore && f.any == key.any && f.class == key.class);
        if let Some(f) = form {
            self.forms[f].live -= 1;
            if self.forms[f].live == 0 && self.forms.len() > IDLE_FORMS {
                self.forms.swap_remove(f);
                self.forms.shrink_to(4 * IDLE_FORMS);
            }
        }
    }

    /// The receive posted first among those that match, or `NIL`.
    #[inline]
    pub fn first_receive(&self, peer: u32, class: Class, tag: u64) -> u32 {
        let (mut first, mut first_seq) = (NIL, u64::MAX);
        for form in &self.forms {
            if form.live == 0 || form.class != class {
                continue;
            }
            let source = if form.any { Source::Any } else { Source::Peer(peer) };
            let bin = self.bins.find(&Key::of_receive(&Pattern { class, source, tag, ignore: form.ignore }));
            if bin == NIL {
                continue;
            }
            let head = self.bins.get(bin).receives.head;
            if head != NIL && self.receives.get(head).seq < first_seq {
                (first, first_seq) = (head, self.receives.get(head).seq);
            }
        }
        first
    }

    /// Whether order allows a receive that is on one stream, or not, to take this message.
    #[inline]
    pub fn is_eligible(&self, m: &Message, on_one_stream: bool) -> bool {
        let peer = &self.peers[m.peer as usize];
        peer.is_in_order(m.position) || on_one_stream && peer.is_in_stream_order(m.stream, m.sseq)
    }

    /// First of the waiting messages whose tags agree with this one in the stream bits, or `NIL`:
    /// of one peer by position, of any peer by arrival.
    #[inline]
    pub fn first_on_stream(&self, source: Source, tag: u64) -> u32 {
        match self.bins.find(&stream_key(self.stream_bits, source, tag)) {
            NIL => NIL,
            bin => self.bins.get(bin).messages.head,
        }
    }

    /// A place for a message that is not yet in any index; `link_message` must follow.
    #[inline]
    pub fn make_message(&mut self, a: &Arrival, position: u64) -> u32 {
        let tagged = a.class == Class::Tagged;
        let tag = if tagged { a.tag } else { 0 };
        let mut bins = [NIL; 2];
        if tagged {
            bins[0] = self.bins.find_or_make(&stream_key(self.stream_bits, Source::Peer(a.peer), tag));
            if self.any_index {
                bins[1] = self.bins.find_or_make(&stream_key(self.stream_bits, Source::Any, tag));
            }
        }
        self.messages.insert(Message {
            msg: a.msg,
            tag,
            len: a.len,
            position,
            peer: a.peer,
            sseq: a.sseq,
            stream: a.stream,
            class: a.class,
            live: true,
            bins,
            links: [Links::NONE; 4],
        })
    }

    /// Makes sure that waiting tagged messages are in the bins of (any peer, stream bits). Making
    /// the index costs no more than the arrival of those that wait has cost already.
    #[inline]
    pub fn need_any_index(&mut self) {
        self.any_interest = ANY_INTEREST;
        if !self.any_index {
            self.make_any_index();
        }
    }

    #[cold]
    fn make_any_index(&mut self) {
        self.any_index = true;
        let mut at = self.arrived(Class::Tagged);
        while at != NIL {
            let bin = self.bins.find_or_make(&stream_key(self.stream_bits, Source::Any, self.messages.get(at).tag));
            self.messages.get_mut(at).bins[1] = bin;
            self.bins.get_mut(bin).messages.push_back(&mut self.messages, BY_TAG_ANY, at);
            at = self.messages.get(at).links[BY_ARRIVAL].next;
        }
    }

    /// Puts a message into all indexes. The peer's numbering must know it already.
    #[inline]
    pub fn link_message(&mut self, ix: u32) {
        let m = *self.messages.get(ix);
        let c = of(m.class);
        let nodes = &mut self.messages;
        let peer = &mut self.peers[m.peer as usize];

        if m.bins[0] != NIL {
            let by_tag = &mut self.bins.get_mut(m.bins[0]).messages;
            let prev = predecessor(nodes, BY_TAG, by_tag.tail, m.position);
            by_tag.insert_after(nodes, BY_TAG, prev, ix);
        }
        if m.bins[1] != NIL {
            self.bins.get_mut(m.bins[1]).messages.push_back(nodes, BY_TAG_ANY, ix);
        }
        self.arrived[c].push_back(nodes, BY_ARRIVAL, ix);

        let first_behind = peer.behind_gap[c];
        let from = if first_behind != NIL && m.position < nodes.get(first_behind).position {
            nodes.get(first_behind).links(BY_PEER).prev
        } else {
            peer.waiting[c].tail
        };
        let prev = predecessor(nodes, BY_PEER, from, m.position);
        peer.waiting[c].insert_after(nodes, BY_PEER, prev, ix);
        if !peer.is_in_order(m.position) {
            self.behind_gap += 1;
            if first_behind == NIL || m.position < nodes.get(first_behind).position {
                self.set_first_behind_gap(m.peer, m.class, ix);
            }
        }
    }

    /// Takes a message out of all indexes.
    #[inline]
    pub fn remove_message(&mut self, ix: u32) {
        let m = *self.messages.get(ix);
        let c = of(m.class);
        let nodes = &mut self.messages;
        let peer = &mut self.peers[m.peer as usize];
        let was_first = peer.behind_gap[c] == ix;
        let is_behind = !peer.is_in_order(m.position);
        peer.waiting[c].unlink(nodes, BY_PEER, ix);
        self.arrived[c].unlink(nodes, BY_ARRIVAL, ix);
        for (bin, which) in m.bins.into_iter().zip([BY_TAG, BY_TAG_ANY]) {
            if bin != NIL {
                self.bins.get_mut(bin).messages.unlink(nodes, which, ix);
                self.bins.release(bin);
            }
        }
        self.behind_gap -= usize::from(is_behind);
        if was_first {
            self.set_first_behind_gap(m.peer, m.class, m.links[BY_PEER].next);
        }
        self.messages.remove(ix);
        self.any_interest = self.any_interest.saturating_sub(1);
        self.any_index &= self.any_interest != 0 || self.messages.len() != 0;
    }

    /// After the peer's numbering has moved on: appends the messages that now have no gap below
    /// them to `released`.
    pub fn pass_closed_gaps(&mut self, peer: u32, released: &mut Vec<u32>) {
        for class in [Class::Tagged, Class::Untagged] {
            let first = self.peers[peer as usize].behind_gap[of(class)];
            let mut at = first;
            while at != NIL && self.peers[peer as usize].is_in_order(self.messages.get(at).position) {
                released.push(at);
                self.behind_gap -= 1;
                at = self.messages.get(at).links[BY_PEER].next;
            }
            if at != first {
                self.set_first_behind_gap(peer, class, at);
            }
        }
    }

    fn set_first_behind_gap(&mut self, peer: u32, class: Class, ix: u32) {
        self.peers[peer as usize].behind_gap[of(class)] = ix;
        if class == Class::Tagged {
            if ix == NIL {
                self.gappy.remove(&peer);
            } else {
                self.gappy.insert(peer);
            }
        }
    }
}

/// Walks from `at` towards the head to the first node whose position is not above the one given.
/// Messages mostly come in order, so this is mostly `at` itself.
#[inline]
fn predecessor(nodes: &Slab<Message>, which: usize, mut at: u32, position: u64) -> u32 {
    while at != NIL && nodes.get(at).position > position {
        at = nodes.get(at).links(which).prev;
    }
    at
}
