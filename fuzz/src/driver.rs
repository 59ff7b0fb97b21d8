//! One side of a fuzzed pair: `weir_message` with the memory of its operations in guarded pages.
//! Datagrams, time and operations go in, datagrams and completions come out.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;

use weir_link::{Endpoint, EndpointName, PacketBuf, RxMeta, Time};
use weir_message::{
    Access, AmoOp, Atomic, AtomicOp, AtomicType, Class, Completion, Config, Memory, MessageError, Messages, OpKind,
    RecvOp, RmaOp, SendMode, SendOp, Sink,
};

use crate::guarded::{Guarded, Pages};

/// Who has the messages, and what carries them beside packets.
pub trait Host {
    /// How operations name their memory.
    type Memory: Memory;
    /// Where news go.
    type Sink: Sink;

    /// The messages.
    fn messages(&self) -> &Messages<Self::Memory, Self::Sink>;

    /// The same.
    fn messages_mut(&mut self) -> &mut Messages<Self::Memory, Self::Sink>;

    /// Pages by name, in one piece or several.
    fn named(pages: &Rc<Pages>, split: bool) -> Self::Memory;

    /// Reads and writes what can go by connections.
    fn turn(&mut self, _now: Time) {}

    /// When the connections are to be looked at.
    fn next_look(&self, _now: Time) -> Option<Time> {
        None
    }

    /// How many there are.
    fn connections(&self) -> usize {
        0
    }
}

/// Messages that go in packets only.
impl Host for Messages<Guarded, ()> {
    type Memory = Guarded;
    type Sink = ();

    fn messages(&self) -> &Self {
        self
    }

    fn messages_mut(&mut self) -> &mut Self {
        self
    }

    fn named(pages: &Rc<Pages>, split: bool) -> Guarded {
        Guarded::new(pages, split)
    }
}

/// An operation that has ended.
#[derive(Debug)]
pub struct Ended {
    /// What the engine says.
    pub completion: Completion,
    /// Its memory as it is now; empty for notices of remote writes.
    pub memory: Vec<u8>,
}

/// How a send or write is begun.
#[derive(Clone, Copy, Debug)]
pub struct How {
    /// When it counts as complete.
    pub mode: SendMode,
    /// The memory is the caller's again at once.
    pub copy: bool,
    /// The memory is in several pieces.
    pub split: bool,
}

/// One side.
pub struct Driver<H> {
    /// Its messages.
    pub host: H,
    out: PacketBuf,
    ops: BTreeMap<usize, Rc<Pages>>,
    regions: BTreeMap<u64, Rc<Pages>>,
    /// Memory of operations that have ended; kept so that nothing else comes to lie there.
    spent: Vec<Rc<Pages>>,
    next: usize,
}

impl Driver<Messages<Guarded, ()>> {
    /// Messages of an endpoint at `addr` with this id.
    #[must_use]
    pub fn new(
        cfg: &Config,
        proto: weir_link::Config,
        key: [u8; 32],
        id: u64,
        addr: SocketAddr,
        seed: [u8; 32],
    ) -> Self {
        let proto = Endpoint::new(cfg.protocol(proto), key, id, &[addr], seed);
        Driver::of(Messages::new(cfg.clone(), proto, ()))
    }
}

impl<H: Host> Driver<H> {
    /// With this host.
    #[must_use]
    pub fn of(host: H) -> Self {
        let (ops, regions) = (BTreeMap::new(), BTreeMap::new());
        Driver { host, out: PacketBuf::default(), ops, regions, spent: Vec::new(), next: 1 }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> [u8; 48] {
        self.host.messages().own_name()
    }

    /// Makes a peer known.
    ///
    /// # Panics
    /// If the name is none.
    pub fn insert_peer(&mut self, name: &[u8; 48]) -> u32 {
        let decoded = EndpointName::decode(name).expect("a name");
        self.host.messages_mut().insert_peer(&decoded).expect("a usable name")
    }

    /// The context of the operation begun, if it was accepted; its memory ends with its completion,
    /// or at once if it is copied or refused.
    fn keep(
        &mut self,
        pages: Rc<Pages>,
        at_once: bool,
        result: Result<(), MessageError>,
    ) -> Result<usize, MessageError> {
        let context = self.next;
        self.next += 1;
        if at_once || result.is_err() {
            pages.spend();
            self.spent.push(pages);
        } else {
            self.ops.insert(context, pages);
        }
        result.map(|()| context)
    }

    /// Sends `bytes`; returns the context of the completion.
    ///
    /// # Errors
    /// As [`Messages::send`].
    pub fn send(
        &mut self,
        now: Time,
        peer: u32,
        tag: Option<u64>,
        data: u64,
        bytes: &[u8],
        how: How,
    ) -> Result<usize, MessageError> {
        let pages = Rc::new(Pages::new(bytes));
        let op = SendOp {
            peer,
            class: if tag.is_some() { Class::Tagged } else { Class::Untagged },
            tag: tag.unwrap_or(0),
            data: Some(data),
            memory: H::named(&pages, how.split),
            mode: how.mode,
            copy: how.copy,
            report: true,
            context: self.next,
            user: 0,
        };
        let result = self.host.messages_mut().send(now, op);
        self.keep(pages, how.copy || how.mode == SendMode::Inject, result.map(drop))
    }

    /// Posts a receive of `room` bytes; returns the context of the completion.
    ///
    /// # Errors
    /// As [`Messages::recv`].
    pub fn recv(
        &mut self,
        now: Time,
        source: Option<u32>,
        tag: Option<u64>,
        ignore: u64,
        room: usize,
        split: bool,
    ) -> Result<usize, MessageError> {
        let pages = Rc::new(Pages::new(&vec![0; room]));
        let op = RecvOp {
            source,
            class: if tag.is_some() { Class::Tagged } else { Class::Untagged },
            tag: tag.unwrap_or(0),
            ignore,
            memory: H::named(&pages, split),
            multi_min: None,
            report: true,
            context: self.next,
            user: 0,
        };
        let result = self.host.messages_mut().recv(now, op);
        self.keep(pages, false, result)
    }

    /// Writes `bytes` to a peer's region; returns the context of the completion.
    ///
    /// # Errors
    /// As [`Messages::write`].
    #[expect(clippy::too_many_arguments, reason = "the fields of the operation")]
    pub fn write(
        &mut self,
        now: Time,
        peer: u32,
        key: u64,
        remote_addr: u64,
        data: Option<u64>,
        bytes: &[u8],
        how: How,
    ) -> Result<usize, MessageError> {
        let pages = Rc::new(Pages::new(bytes));
        let op = self.rma(peer, key, remote_addr, data, how);
        let result = self.host.messages_mut().write(now, RmaOp { memory: H::named(&pages, how.split), ..op });
        self.keep(pages, how.copy || how.mode == SendMode::Inject, result)
    }

    /// Reads `len` bytes of a peer's region; returns the context of the completion.
    ///
    /// # Errors
    /// As [`Messages::read`].
    pub fn read(
        &mut self,
        now: Time,
        peer: u32,
        key: u64,
        remote_addr: u64,
        len: usize,
        split: bool,
    ) -> Result<usize, MessageError> {
        let pages = Rc::new(Pages::new(&vec![0; len]));
        let op = self.rma(peer, key, remote_addr, None, How { mode: SendMode::Transmit, copy: false, split });
        let result = self.host.messages_mut().read(now, RmaOp { memory: H::named(&pages, split), ..op });
        self.keep(pages, false, result)
    }

    /// Adds one to `count` counters of a peer's region; returns the context of the completion.
    ///
    /// # Errors
    /// As [`Messages::atomic`].
    pub fn add(
        &mut self,
        now: Time,
        peer: u32,
        key: u64,
        remote_addr: u64,
        count: u32,
        fetch: bool,
    ) -> Result<usize, MessageError> {
        let ones = Rc::new(Pages::new(&1u64.to_le_bytes().repeat(count as usize)));
        let pages = Rc::new(Pages::new(&vec![0; if fetch { 8 * count as usize } else { 0 }]));
        let op = AmoOp {
            peer,
            atomic: Atomic::new(AtomicOp::Sum, AtomicType::U64).expect("there is one"),
            count,
            operand: H::named(&ones, false),
            compare: H::Memory::default(),
            result: H::named(&pages, false),
            remote_addr,
            key,
            report: true,
            context: self.next,
            user: 0,
        };
        let result = self.host.messages_mut().atomic(now, op);
        // The operands are not looked at any more.
        ones.spend();
        self.spent.push(ones);
        self.keep(pages, false, result)
    }

    fn rma(&self, peer: u32, key: u64, remote_addr: u64, data: Option<u64>, how: How) -> RmaOp<H::Memory> {
        let (mode, copy, context) = (how.mode, how.copy, self.next);
        RmaOp { peer, memory: H::Memory::default(), remote_addr, key, data, mode, copy, report: true, context, user: 0 }
    }

    /// Lets peers reach new memory with this content.
    ///
    /// # Errors
    /// As [`Messages::register`].
    pub fn register(&mut self, content: &[u8], access: Access) -> Result<u64, MessageError> {
        let pages = Rc::new(Pages::new(content));
        let memory = H::named(&pages, false);
        let key = self.host.messages_mut().register(memory, 0, access, None)?;
        self.regions.insert(key, pages);
        Ok(key)
    }

    /// What a region holds now.
    #[must_use]
    pub fn region(&self, key: u64) -> Option<Vec<u8>> {
        self.regions.get(&key).map(|pages| pages.bytes())
    }

    /// Withdraws a region, whose memory may not be touched from now on.
    pub fn unregister(&mut self, now: Time, key: u64) -> bool {
        let known = self.host.messages_mut().unregister(now, key);
        if let Some(pages) = self.regions.remove(&key) {
            pages.spend();
            self.spent.push(pages);
        }
        known
    }

    /// Cancels the receive with this context, if nothing is bound to it.
    pub fn cancel(&mut self, now: Time, context: usize) -> bool {
        self.host.messages_mut().cancel(now, context)
    }

    /// A datagram arrives.
    pub fn datagram(&mut self, now: Time, remote: SocketAddr, datagram: &mut [u8]) {
        self.host.messages_mut().datagram(now, RxMeta { remote, local: None, receiver_delay_ns: 0, ecn: 0 }, datagram);
    }

    /// When [`Driver::timeouts`] wants to be called at the latest.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Time> {
        self.host.messages().next_timeout()
    }

    /// Runs the timers that are due.
    pub fn timeouts(&mut self, now: Time) {
        self.host.messages_mut().timeouts(now);
    }

    /// The next datagram to be sent, its payload taken from the memory of its operation as the
    /// transport would.
    pub fn transmit(&mut self, now: Time) -> Option<(SocketAddr, Vec<u8>)> {
        let t = self.host.messages_mut().poll_transmit(now, &mut self.out)?;
        let mut bytes = self.out.head.clone();
        if let Some(p) = &t.payload
            && let Some(source) = self.host.messages().payload(p.token)
        {
            let from = bytes.len();
            bytes.resize(from + usize::from(p.len), 0);
            source.read(p.offset, &mut bytes[from..]);
        }
        Some((t.remote, bytes))
    }

    /// The next operation that has ended. Its memory may not be touched from now on.
    pub fn poll(&mut self, now: Time) -> Option<Ended> {
        let completion = self.host.messages_mut().poll(now)?;
        if completion.kind == OpKind::RemoteWrite {
            return Some(Ended { completion, memory: Vec::new() });
        }
        let memory = self.ops.remove(&completion.context).map_or_else(Vec::new, |pages| {
            let bytes = pages.spend();
            self.spent.push(pages);
            bytes
        });
        Some(Ended { completion, memory })
    }

    /// Whether this peer has been given up.
    #[must_use]
    pub fn is_down(&self, peer: u32) -> bool {
        self.host.messages().down(peer).is_some()
    }

    /// What waits in the tables: operations, receives, messages, rendezvous transfers.
    #[must_use]
    pub fn held(&self) -> [usize; 4] {
        self.host.messages().held()
    }
}
