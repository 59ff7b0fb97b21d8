//! Processes that know each other by rank and do things together: messages between two of them that
//! are over when a call returns, and so the collectives of `weir_collective`.
//!
//! A face that needs a barrier, a broadcast or the sum of counts has it from here. A team's
//! messages have a tag of their own, so they meet none of the face's; completions of the face's own
//! operations that a team's waiting comes across are kept for it ([`Team::take_others`]).
//!
//! A member that fails makes all of them fail: whoever finds out that one is gone, or that anything
//! else went wrong, tells all others by their next message, and a team that has failed once refuses
//! everything. So nobody waits for ever: who waits for a member that is gone hears it from the
//! endpoint, within the peer timeout at most, and who waits for one that waits hears it from that
//! one.

use crate::{
    Class, Completion, DownReason, Endpoint, EngineError, Iov, MAX_INJECT_BYTES, OpError, OpKind, Queue, RecvOp,
    SendMode, SendOp,
};
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use weir_collective::Group;

/// What the immediate data of a message says: a member that failed, and that all have failed with
/// it.
const FAILED: u64 = 1;
/// Completions taken at once.
const AT_ONCE: usize = 64;

/// Why a team's messages do not go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TeamError {
    /// A member is gone.
    #[error("rank {rank} is gone: {reason}")]
    Gone {
        /// Which.
        rank: usize,
        /// Why.
        reason: DownReason,
    },
    /// A member says that it has failed, or has found another one gone.
    #[error("rank {rank} has failed, or found another rank gone")]
    Failed {
        /// Which.
        rank: usize,
    },
    /// Members do not call the same: a message of another length came.
    #[error("rank {rank} sent {sent} bytes where {wanted} were wanted: the ranks do not call the same")]
    Length {
        /// Which.
        rank: usize,
        /// So long was its message.
        sent: usize,
        /// And so long should it have been.
        wanted: usize,
    },
    /// The endpoint refused, or an operation failed otherwise.
    #[error("{0}")]
    Endpoint(String),
}

/// The processes of a job, as one of them sees them. Not to be shared between threads: its calls
/// wait.
pub struct Team {
    endpoint: Arc<Endpoint>,
    /// By rank; nothing is sent to oneself.
    peers: Vec<u32>,
    own: usize,
    tag: u64,
    /// What tells a team's completions from the face's.
    user: u64,
    found: RefCell<Vec<Completion>>,
    others: RefCell<Vec<Completion>>,
    broken: RefCell<Option<TeamError>>,
}

/// What a call waits for, and what came of it.
#[derive(Default)]
struct Pending {
    sending: Cell<bool>,
    receiving: Cell<bool>,
    /// Whose message is awaited, and how long it is.
    from: usize,
    wanted: usize,
    /// What went wrong first.
    failed: RefCell<Option<TeamError>>,
}

impl Pending {
    fn fail(&self, why: TeamError) {
        self.failed.borrow_mut().get_or_insert(why);
    }

    fn is_over(&self) -> bool {
        !self.receiving.get() && !self.sending.get()
    }

    fn has_failed(&self) -> bool {
        self.failed.borrow().is_some()
    }
}

impl Team {
    /// A team of these processes, by rank, of which this one is `own`. Its messages bear `tag`,
    /// which nobody else of the endpoint uses for tagged messages, nor matches by a wildcard; its
    /// completions `user`, which no other operation of the endpoint has.
    ///
    /// # Errors
    /// [`EngineError`] when a name cannot be used.
    pub fn new(
        endpoint: Arc<Endpoint>,
        names: &[[u8; crate::NAME_BYTES]],
        own: usize,
        tag: u64,
        user: u64,
    ) -> Result<Team, EngineError> {
        if own >= names.len() {
            return Err(EngineError::Invalid("a team's own rank is not one of its ranks"));
        }
        let peers = names.iter().map(|name| endpoint.insert_peer(name)).collect::<Result<_, _>>()?;
        Ok(Team {
            endpoint,
            peers,
            own,
            tag,
            user,
            found: RefCell::new(Vec::with_capacity(AT_ONCE)),
            others: RefCell::default(),
            broken: RefCell::default(),
        })
    }

    /// The endpoint.
    #[must_use]
    pub fn endpoint(&self) -> &Arc<Endpoint> {
        &self.endpoint
    }

    /// The endpoint's number of a member, by rank.
    #[must_use]
    pub fn peer(&self, rank: usize) -> Option<u32> {
        self.peers.get(rank).copied()
    }

    /// Completions of the face's own operations that came while the team waited, oldest first.
    pub fn take_others(&self, out: &mut Vec<Completion>) {
        out.append(&mut self.others.borrow_mut());
    }

    /// One pass of progress. What completes is kept for [`Team::take_others`].
    ///
    /// # Errors
    /// Where a message of the team's failed, or the endpoint is out of order.
    pub fn progress(&self) -> Result<(), TeamError> {
        let pending = Pending::default();
        self.take(&pending);
        match pending.failed.into_inner() {
            Some(why) => Err(self.fail(why)),
            None => Ok(()),
        }
    }

    /// This member cannot go on: all others are told, by what they wait for next of this one. Every
    /// call fails from now on.
    pub fn fail(&self, why: TeamError) -> TeamError {
        let before = self.broken.replace(Some(why.clone()));
        if before.is_none() {
            for rank in (0..self.peers.len()).filter(|rank| *rank != self.own) {
                // Who cannot be told is gone, or will find out as this one did.
                self.begin_send(&[], rank, Some(FAILED), &Pending::default());
            }
            self.endpoint.progress();
        }
        why
    }

    /// Sends to one member and receives from another, each if wanted. When it returns, both are
    /// over, and the memory is the caller's again.
    fn exchange(&self, out: Option<(&[u8], usize)>, into: Option<(&mut [u8], usize)>) -> Result<(), TeamError> {
        if let Some(why) = &*self.broken.borrow() {
            return Err(why.clone());
        }
        let (from, wanted) = into.as_ref().map_or((0, 0), |(into, from)| (*from, into.len()));
        let pending = Pending { from, wanted, ..Pending::default() };
        if let Some((into, from)) = into {
            self.post(into, from, &pending);
        }
        if let Some((data, to)) = out.filter(|_| !pending.has_failed()) {
            self.begin_send(data, to, None, &pending);
        }
        // Whatever happens, the memory is the engine's until both have ended; and they do, for a
        // peer that lives answers and one that does not is found to be gone.
        while !pending.is_over() && self.endpoint.check().is_ok() {
            if pending.has_failed() {
                self.endpoint.cancel(self.receive());
            }
            self.take(&pending);
        }
        if let Err(error) = self.endpoint.check() {
            // Nothing of the caller's memory is touched any more.
            pending.fail(TeamError::Endpoint(error.to_string()));
        }
        match pending.failed.into_inner() {
            Some(why) => Err(self.fail(why)),
            None => Ok(()),
        }
    }

    /// The context of a receive, by which it is cancelled: an address in this team, that no other
    /// operation of the process has.
    fn receive(&self) -> usize {
        std::ptr::from_ref(&self.tag) as usize
    }

    fn post(&self, into: &mut [u8], from: usize, pending: &Pending) {
        let iov = [Iov { base: into.as_mut_ptr(), len: into.len() }];
        let op = RecvOp {
            source: Some(self.peers[from]),
            class: Class::Tagged,
            tag: self.tag,
            ignore: 0,
            memory: &iov,
            multi_min: None,
            report: true,
            context: self.receive(),
            user: self.user,
        };
        // SAFETY: `into` is borrowed by `exchange`, which does not return before this receive has
        // ended.
        if self.accepted(from, pending, || unsafe { self.endpoint.recv(&op) }) {
            pending.receiving.set(true);
        }
    }

    fn begin_send(&self, data: &[u8], to: usize, word: Option<u64>, pending: &Pending) {
        let copied = data.len() <= MAX_INJECT_BYTES;
        let iov = [Iov { base: data.as_ptr().cast_mut(), len: data.len() }];
        let op = SendOp {
            peer: self.peers[to],
            class: Class::Tagged,
            tag: self.tag,
            data: word,
            memory: &iov,
            mode: if copied { SendMode::Inject } else { SendMode::Transmit },
            copy: false,
            report: !copied,
            // Of a copied one only a failure is told, and maybe much later.
            context: to << 1 | usize::from(copied),
            user: self.user,
        };
        // SAFETY: copied, or borrowed by `exchange`, which does not return before this send has
        // ended; the engine only reads it.
        if self.accepted(to, pending, || unsafe { self.endpoint.send(&op) }) && !copied {
            pending.sending.set(true);
        }
    }

    /// Calls until it is not told to try again.
    fn accepted(&self, rank: usize, pending: &Pending, call: impl Fn() -> Result<(), EngineError>) -> bool {
        loop {
            match call() {
                Ok(()) => return true,
                Err(EngineError::Again) => self.take(pending),
                Err(EngineError::PeerDown(reason)) => pending.fail(TeamError::Gone { rank, reason }),
                Err(other) => pending.fail(TeamError::Endpoint(other.to_string())),
            }
            if pending.has_failed() {
                return false;
            }
        }
    }

    /// Makes progress, and takes what has completed; what is the face's is kept.
    fn take(&self, pending: &Pending) {
        let mut found = self.found.borrow_mut();
        self.endpoint.poll(Queue::Both, &mut found, AT_ONCE);
        for c in found.drain(..) {
            if c.user != self.user || c.kind == OpKind::RemoteWrite {
                self.others.borrow_mut().push(c);
            } else if let Err(why) = Self::judged(&c, pending) {
                pending.fail(why);
            }
        }
    }

    /// How an operation of the team's has ended.
    fn judged(c: &Completion, pending: &Pending) -> Result<(), TeamError> {
        let is_receive = c.kind == OpKind::Recv;
        let (rank, copied) = if is_receive { (pending.from, false) } else { (c.context >> 1, c.context & 1 != 0) };
        if is_receive {
            pending.receiving.set(false);
        } else if !copied {
            pending.sending.set(false);
        }
        let wanted = pending.wanted;
        match c.result {
            Ok(()) if is_receive && c.data == Some(FAILED) => Err(TeamError::Failed { rank }),
            Ok(()) if is_receive && c.len != wanted => Err(TeamError::Length { rank, sent: c.len, wanted }),
            Ok(()) => Ok(()),
            Err(OpError::Truncated { excess }) => Err(TeamError::Length { rank, sent: c.len + excess, wanted }),
            Err(OpError::PeerDown(reason)) => Err(TeamError::Gone { rank, reason }),
            Err(error) => Err(TeamError::Endpoint(error.to_string())),
        }
    }
}

impl Group for Team {
    type Error = TeamError;

    fn own(&self) -> usize {
        self.own
    }

    fn members(&self) -> usize {
        self.peers.len()
    }

    fn send(&self, data: &[u8], to: usize) -> Result<(), TeamError> {
        self.exchange(Some((data, to)), None)
    }

    fn recv(&self, into: &mut [u8], from: usize) -> Result<(), TeamError> {
        self.exchange(None, Some((into, from)))
    }

    fn sendrecv(&self, data: &[u8], to: usize, into: &mut [u8], from: usize) -> Result<(), TeamError> {
        self.exchange(Some((data, to)), Some((into, from)))
    }
}
