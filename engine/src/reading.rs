//! What a face needs of an endpoint whose peers it meets by memory that they share: reading the
//! memory of a peer's program that has been lent, one copy from there to its place, without a
//! message (`spec/shm.md` 6); and patience.

use crate::clock::now;
use crate::shm::SharedMemory;
use crate::{Endpoint, EngineError, Iov};
use smallvec::SmallVec;
use weir_link::DownReason;
use weir_shm::RemotePiece;

/// Pieces that are mostly read at a time.
const FEW: usize = 16;

impl Endpoint {
    /// The program begins to wait for something that comes by other means than messages, and will
    /// poll meanwhile: those polls are patient as if the last one had found something, and give the
    /// core away only when they have been empty for a while.
    pub fn begin_wait(&self) {
        self.shared.is_back(now());
    }

    /// Whether the memory of a peer's program can be read by [`Endpoint::read_memory`].
    #[must_use]
    pub fn can_read_memory(&self, peer: u32) -> bool {
        let Ok(core) = self.shared.enter() else { return false };
        core.shm.as_ref().and_then(|shm| shm.pull(peer)).is_some_and(|pull| pull.is_ok())
    }

    /// Reads memory of a peer's program: the remote pieces, in their order, fill the local ones,
    /// which are as long together. The peer has said where it is, and leaves it as it is until it
    /// is told that it was read; both by means of the face. Addresses that lead nowhere are an
    /// error, and nobody's harm. The endpoint is locked meanwhile: who reads megabytes reads them
    /// in parts.
    ///
    /// # Errors
    /// [`EngineError::PeerDown`] if its program has ended, [`EngineError::Io`] if its memory is not
    /// there or cannot be read.
    ///
    /// # Safety
    /// The local memory is writable, and not otherwise used.
    pub unsafe fn read_memory(&self, peer: u32, remote: &[RemotePiece], local: &[Iov]) -> Result<(), EngineError> {
        let wanted: usize = local.iter().map(|piece| piece.len).sum();
        let places = local.iter().map(|piece| libc::iovec { iov_base: piece.base.cast(), iov_len: piece.len });
        let places: SmallVec<[libc::iovec; FEW]> = places.collect();
        let failed = |source| EngineError::Io { doing: "reading the memory of a peer's program".to_owned(), source };
        let mut core = self.shared.enter()?;
        let shm: &mut SharedMemory = core.shm.as_mut().ok_or(EngineError::Invalid("no memory is shared"))?;
        // SAFETY: passed on from the caller.
        match unsafe { shm.read_memory(peer, remote, &places) } {
            Ok(read) if read == wanted => Ok(()),
            Ok(_) => Err(failed(std::io::ErrorKind::UnexpectedEof.into())),
            Err(e) if e.kind() == std::io::ErrorKind::ConnectionReset => Err(EngineError::PeerDown(DownReason::Gone)),
            Err(e) => Err(failed(e)),
        }
    }
}
