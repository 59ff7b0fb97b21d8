//! An engine without socket, clock and threads, for fuzzing and property tests: datagrams, time and operations go in, datagrams and completions come out.
//!
//! It owns the memory of its operations, each piece in pages of its own that end with the memory and cannot be touched any more once the operation has completed: whatever reads or writes
//! past the end, or after the end of the operation, is a fault at that very place.

use crate::api::{Access, Class, Completion, EngineError, Iov, OpKind, RecvOp, RmaOp, SendMode, SendOp};
use crate::config::EngineConfig;
use crate::core::State;
#[cfg(feature = "bare")]
use crate::lanes::Lanes;
use crate::memory::{Gather, slices_of};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::io::IoSlice;
use std::net::SocketAddr;
use weir_message::MessageError;
use weir_proto::{EndpointName, PacketBuf, RxMeta, Time};

/// What lies before the memory on its first page.
const GUARD: u8 = 0xEE;

/// Memory of one operation or region.
struct Memory {
    base: *mut u8,
    mapped: usize,
    len: usize,
}

impl Memory {
    /// `bytes`, followed by a page that cannot be touched.
    fn new(bytes: &[u8]) -> Memory {
        // SAFETY: asks for a number.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        let data = bytes.len().next_multiple_of(page);
        let mapped = data + page;
        let (rights, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping at an address of the system's choice.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), mapped, rights, kind, -1, 0) }.cast::<u8>();
        assert!(!base.is_null() && base.cast() != libc::MAP_FAILED, "no memory");
        // SAFETY: the first `data` bytes of the new mapping, which nobody else knows; then its last page.
        unsafe {
            std::ptr::write_bytes(base, GUARD, data - bytes.len());
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), base.add(data - bytes.len()), bytes.len());
            assert_eq!(libc::mprotect(base.add(data).cast(), page, libc::PROT_NONE), 0);
        }
        Memory { base, mapped, len: bytes.len() }
    }

    fn data_at(&self) -> usize {
        self.len.next_multiple_of(self.page()) - self.len
    }

    fn page(&self) -> usize {
        // SAFETY: asks for a number.
        unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
    }

    /// As one piece, or as three (an empty one among them) where the engine may see several.
    fn iov(&self, split: bool) -> SmallVec<[Iov; 3]> {
        let base = self.base.wrapping_add(self.data_at());
        let half = if split { self.len / 3 } else { self.len };
        let mut iov = SmallVec::new();
        iov.push(Iov { base, len: half });
        if split {
            iov.push(Iov { base, len: 0 });
            iov.push(Iov { base: base.wrapping_add(half), len: self.len - half });
        }
        iov
    }

    /// What is there now.
    fn bytes(&self) -> Vec<u8> {
        // SAFETY: the mapping is readable up to its last page as long as this value has not been `spent`, and the engine does not run meanwhile.
        let all = unsafe { std::slice::from_raw_parts(self.base, self.data_at() + self.len) };
        let (guard, data) = all.split_at(self.data_at());
        assert!(guard.iter().all(|b| *b == GUARD), "bytes before the memory of an operation were written");
        data.to_vec()
    }

    /// From now on nobody may touch it. Returns what was there.
    fn spend(&self) -> Vec<u8> {
        let bytes = self.bytes();
        // SAFETY: the whole mapping of this value.
        assert_eq!(unsafe { libc::mprotect(self.base.cast(), self.mapped, libc::PROT_NONE) }, 0);
        bytes
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the whole mapping of this value, which goes away after all that could use it (`Bare::spent`).
        unsafe { libc::munmap(self.base.cast(), self.mapped) };
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

/// The engine.
pub struct Bare {
    st: State,
    /// The connections of its lanes, the only sockets it may have.
    #[cfg(feature = "bare")]
    lanes: Option<Lanes>,
    out: PacketBuf,
    ops: BTreeMap<usize, Memory>,
    regions: BTreeMap<u64, Memory>,
    /// Memory of operations that have ended; kept so that nothing else comes to lie there.
    spent: Vec<Memory>,
    next: usize,
}

impl Bare {
    /// An engine at `addr` with this endpoint id; `tune` may change settings of the protocol that the engine does not have.
    ///
    /// # Panics
    /// Never: no file is opened.
    #[must_use]
    pub fn new(
        cfg: EngineConfig,
        key: [u8; 32],
        id: u64,
        addr: SocketAddr,
        seed: [u8; 32],
        tune: impl FnOnce(&mut weir_proto::Config),
    ) -> Bare {
        let mut proto_cfg = crate::open::proto_config(&cfg, 4 << 20, 1472);
        tune(&mut proto_cfg);
        let proto = weir_proto::Endpoint::new(proto_cfg, key, id, &[addr], seed);
        let trace = crate::trace::Trace::open(0, None).expect("no trace is opened");
        let telling = crate::telling::Telling::new(trace, cfg.clone());
        let st = State::new(weir_message::Messages::new(crate::open::message_config(&cfg), proto, telling));
        let (ops, regions) = (BTreeMap::new(), BTreeMap::new());
        Bare {
            st,
            #[cfg(feature = "bare")]
            lanes: None,
            out: PacketBuf::default(),
            ops,
            regions,
            spent: Vec::new(),
            next: 1,
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> [u8; 48] {
        self.st.messages.own_name()
    }

    /// Makes a peer known.
    ///
    /// # Panics
    /// If the name is none.
    pub fn insert_peer(&mut self, name: &[u8; 48]) -> u32 {
        let decoded = EndpointName::decode(name).expect("a name");
        self.st.messages.insert_peer(&decoded).expect("a usable name")
    }

    /// The context of the operation begun, if it was accepted; its memory ends with its completion, or at once if it is copied or refused.
    fn keep(&mut self, memory: Memory, at_once: bool, result: Result<(), MessageError>) -> Result<usize, EngineError> {
        let context = self.next;
        self.next += 1;
        if at_once || result.is_err() {
            memory.spend();
            self.spent.push(memory);
        } else {
            self.ops.insert(context, memory);
        }
        result.map(|()| context).map_err(Into::into)
    }

    /// Sends `bytes`; returns the context of the completion.
    ///
    /// # Errors
    /// As [`crate::Endpoint::send`].
    pub fn send(
        &mut self,
        now: Time,
        peer: u32,
        tag: Option<u64>,
        data: u64,
        bytes: &[u8],
        how: How,
    ) -> Result<usize, EngineError> {
        let memory = Memory::new(bytes);
        let op = SendOp {
            peer,
            class: if tag.is_some() { Class::Tagged } else { Class::Untagged },
            tag: tag.unwrap_or(0),
            data: Some(data),
            iov: &memory.iov(how.split),
            mode: how.mode,
            copy: how.copy,
            report: true,
            context: self.next,
            user: 0,
        };
        // SAFETY: `keep` keeps the memory until the completion.
        let result = self.st.messages.send(now, unsafe { op.named() });
        self.keep(memory, how.copy || how.mode == SendMode::Inject, result)
    }

    /// Posts a receive of `room` bytes; returns the context of the completion.
    ///
    /// # Errors
    /// As [`crate::Endpoint::recv`].
    pub fn recv(
        &mut self,
        now: Time,
        source: Option<u32>,
        tag: Option<u64>,
        ignore: u64,
        room: usize,
        split: bool,
    ) -> Result<usize, EngineError> {
        let memory = Memory::new(&vec![0; room]);
        let op = RecvOp {
            source,
            class: if tag.is_some() { Class::Tagged } else { Class::Untagged },
            tag: tag.unwrap_or(0),
            ignore,
            iov: &memory.iov(split),
            multi_min: None,
            report: true,
            context: self.next,
            user: 0,
        };
        // SAFETY: `keep` keeps the memory until the completion.
        let result = self.st.messages.recv(now, unsafe { op.named() });
        self.keep(memory, false, result)
    }

    /// Writes `bytes` to a peer's region; returns the context of the completion.
    ///
    /// # Errors
    /// As [`crate::Endpoint::write`].
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
    ) -> Result<usize, EngineError> {
        let memory = Memory::new(bytes);
        let op = self.rma(peer, key, remote_addr, data, how);
        // SAFETY: `keep` keeps the memory until the completion.
        let result = self.st.messages.write(now, unsafe { (RmaOp { iov: &memory.iov(how.split), ..op }).named() });
        self.keep(memory, how.copy || how.mode == SendMode::Inject, result)
    }

    /// Reads `len` bytes of a peer's region; returns the context of the completion.
    ///
    /// # Errors
    /// As [`crate::Endpoint::read`].
    pub fn read(
        &mut self,
        now: Time,
        peer: u32,
        key: u64,
        remote_addr: u64,
        len: usize,
        split: bool,
    ) -> Result<usize, EngineError> {
        let memory = Memory::new(&vec![0; len]);
        let op = self.rma(peer, key, remote_addr, None, How { mode: SendMode::Transmit, copy: false, split });
        // SAFETY: `keep` keeps the memory until the completion.
        let result = self.st.messages.read(now, unsafe { (RmaOp { iov: &memory.iov(split), ..op }).named() });
        self.keep(memory, false, result)
    }

    fn rma(&self, peer: u32, key: u64, remote_addr: u64, data: Option<u64>, how: How) -> RmaOp<'static> {
        let (mode, copy, context) = (how.mode, how.copy, self.next);
        RmaOp { peer, iov: &[], remote_addr, key, data, mode, copy, report: true, context, user: 0 }
    }

    /// Lets peers reach new memory with this content.
    ///
    /// # Errors
    /// As [`crate::Endpoint::register`].
    pub fn register(&mut self, content: &[u8], access: Access) -> Result<u64, EngineError> {
        let memory = Memory::new(content);
        // SAFETY: the memory stays in `regions` until it is unregistered.
        let gather = unsafe { Gather::new(&memory.iov(false)) };
        let key = self.st.messages.register(gather, 0, access, None)?;
        self.regions.insert(key, memory);
        Ok(key)
    }

    /// What a region holds now.
    #[must_use]
    pub fn region(&self, key: u64) -> Option<Vec<u8>> {
        self.regions.get(&key).map(Memory::bytes)
    }

    /// Withdraws a region, whose memory may not be touched from now on.
    pub fn unregister(&mut self, now: Time, key: u64) -> bool {
        let known = self.st.messages.unregister(now, key);
        if let Some(memory) = self.regions.remove(&key) {
            memory.spend();
            self.spent.push(memory);
        }
        known
    }

    /// Cancels the receive with this context, if nothing is bound to it.
    pub fn cancel(&mut self, now: Time, context: usize) -> bool {
        self.st.messages.cancel(now, context)
    }

    /// A datagram arrives.
    pub fn datagram(&mut self, now: Time, remote: SocketAddr, datagram: &mut [u8]) {
        self.st.messages.datagram(now, RxMeta { remote, local: None, slack_ns: 0, ecn: 0 }, datagram);
    }

    /// When [`Bare::timeouts`] wants to be called at the latest.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Time> {
        self.st.messages.next_timeout()
    }

    /// Runs the timers that are due.
    pub fn timeouts(&mut self, now: Time) {
        self.st.messages.timeouts(now);
    }

    /// The next datagram to be sent, its payload taken from the memory of its operation as the transport would.
    pub fn transmit(&mut self, now: Time) -> Option<(SocketAddr, Vec<u8>)> {
        let t = self.st.messages.poll_transmit(now, &mut self.out)?;
        let mut bytes = self.out.head.clone();
        if let Some(p) = &t.payload
            && let Some(source) = self.st.messages.payload(p.token)
        {
            let mut slices: SmallVec<[IoSlice<'_>; 4]> = SmallVec::new();
            slices_of(source, p.offset, usize::from(p.len), &mut slices);
            slices.iter().for_each(|s| bytes.extend_from_slice(s));
        }
        Some((t.remote, bytes))
    }

    /// The next operation that has ended. Its memory may not be touched from now on.
    pub fn poll(&mut self, now: Time) -> Option<Ended> {
        let completion = self.st.messages.poll(now)?;
        if completion.kind == OpKind::RemoteWrite {
            return Some(Ended { completion, memory: Vec::new() });
        }
        let memory = self.ops.remove(&completion.context).map_or_else(Vec::new, |memory| {
            let bytes = memory.spend();
            self.spent.push(memory);
            bytes
        });
        Some(Ended { completion, memory })
    }

    /// Whether this peer has been given up.
    #[must_use]
    pub fn is_down(&self, peer: u32) -> bool {
        self.st.messages.down(peer).is_some()
    }

    /// What waits in the tables: operations, receives, messages, bodies.
    #[must_use]
    pub fn held(&self) -> [usize; 4] {
        self.st.messages.held()
    }
}

#[cfg(feature = "bare")]
pub mod lanes;

#[cfg(test)]
mod tests {
    use super::*;

    /// The memory of an operation is where its completion leaves it, and ends with its page.
    #[test]
    fn memory_is_given_back_whole() {
        for len in [0, 1, 100, 4096, 5000] {
            let content: Vec<u8> = (0..len).map(|i| i as u8).collect();
            let memory = Memory::new(&content);
            assert_eq!(memory.iov(true).iter().map(|p| p.len).sum::<usize>(), len);
            assert_eq!((memory.base as usize + memory.data_at() + len) % 4096, 0);
            assert_eq!(memory.spend(), content);
        }
    }
}
