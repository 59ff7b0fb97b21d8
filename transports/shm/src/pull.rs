//! Reading the peer's memory directly: whether it can be, tried once by reading a word that the
//! peer has told; and each read, which brings that word along.

use crate::handshake::Terms;
use crate::sys::{self, RemotePiece};
use crate::why::NoPull;
use smallvec::SmallVec;
use std::io::{self, IoSliceMut};

/// The word by which a process is known to be the peer's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The process.
    pid: i32,
    /// Where it has the word, in its terms.
    address: u64,
    /// The word.
    value: u64,
}

/// Reads the word that `terms` tell from process `pid`.
///
/// # Errors
/// Why large messages have to go through the ring.
pub fn probe(pid: i32, terms: &Terms) -> Result<Probe, NoPull> {
    if pid <= 0 {
        return Err(NoPull::OtherPidNamespace);
    }
    let mut word = [0; 8];
    let remote = [RemotePiece { address: terms.probe_address, len: WORD }];
    match sys::read_process(pid, &remote, &mut [IoSliceMut::new(&mut word)]) {
        Ok(8) if u64::from_ne_bytes(word) == terms.probe_value => {
            Ok(Probe { pid, address: terms.probe_address, value: terms.probe_value })
        }
        Ok(_) => Err(NoPull::OtherProcess),
        Err(cause) => Err(reason(&cause, yama_scope())),
    }
}

/// Bytes of the word.
const WORD: u64 = 8;

/// Why nothing was read.
#[derive(Debug)]
pub enum NotRead {
    /// The process is not the peer's any more.
    Ended,
    /// The system's reason.
    System(io::Error),
}

/// Reads the remote pieces, in their order, into the local ones, and the peer's word before them by
/// the same call. A call reads from one address space: if the word is right, so is whose memory was
/// read. Returns how many bytes; fewer than asked where a later piece is not there. `pieces` is
/// room for the list.
///
/// # Errors
/// See [`NotRead`].
///
/// # Safety
/// Every local piece may be written.
pub unsafe fn read(
    probe: Probe,
    remote: impl Iterator<Item = RemotePiece>,
    local: &[libc::iovec],
    pieces: &mut Vec<RemotePiece>,
) -> Result<usize, NotRead> {
    pieces.clear();
    pieces.push(RemotePiece { address: probe.address, len: WORD });
    pieces.extend(remote);
    let mut word = [0u8; WORD as usize];
    let mut places: SmallVec<[libc::iovec; 8]> = SmallVec::new();
    places.push(libc::iovec { iov_base: word.as_mut_ptr().cast(), iov_len: word.len() });
    places.extend_from_slice(local);
    // SAFETY: the word is ours, the rest the caller's word.
    let read = unsafe { sys::read_process_into(probe.pid, pieces, &places) };
    match read {
        // Before the word itself: it has no memory any more, or let go of that page.
        Err(e) if matches!(e.raw_os_error(), Some(libc::ESRCH | libc::EFAULT)) => Err(NotRead::Ended),
        Err(e) => Err(NotRead::System(e)),
        Ok(n) if n < word.len() || u64::from_ne_bytes(word) != probe.value => Err(NotRead::Ended),
        Ok(n) if n == word.len() && pieces[1..].iter().any(|p| p.len > 0) && local.iter().any(|p| p.iov_len > 0) => {
            Err(NotRead::System(io::Error::from_raw_os_error(libc::EFAULT)))
        }
        Ok(n) => Ok(n - word.len()),
    }
}

fn reason(cause: &io::Error, yama: u32) -> NoPull {
    match cause.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) if yama > 0 => NoPull::Yama,
        Some(libc::EPERM | libc::EACCES) => NoPull::NotPermitted,
        Some(libc::ENOSYS) => NoPull::NoSystemCall,
        _ => NoPull::OtherProcess,
    }
}

/// `kernel.yama.ptrace_scope`; 0 where there is no Yama.
fn yama_scope() -> u32 {
    let text = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    text.trim().parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_of_another_namespace_is_told_from_one_that_may_not_be_read() {
        assert_eq!(probe(0, &Terms::default()), Err(NoPull::OtherPidNamespace));
        let eperm = io::Error::from_raw_os_error(libc::EPERM);
        assert_eq!(reason(&eperm, 1), NoPull::Yama);
        assert_eq!(reason(&eperm, 0), NoPull::NotPermitted);
        assert_eq!(reason(&io::Error::from_raw_os_error(libc::ENOSYS), 1), NoPull::NoSystemCall);
    }

    #[test]
    fn a_word_that_is_not_the_one_told_is_not_believed() {
        let word = 7u64;
        let pid = i32::try_from(std::process::id()).expect("a process id");
        let mut terms = Terms { probe_address: (&raw const word) as u64, probe_value: 7, ..Terms::default() };
        let is_own = Probe { pid, address: terms.probe_address, value: 7 };
        assert_eq!(probe(pid, &terms), Ok(is_own));
        terms.probe_value = 8;
        assert_eq!(probe(pid, &terms), Err(NoPull::OtherProcess));
        terms.probe_address = 0;
        assert_eq!(probe(pid, &terms), Err(NoPull::OtherProcess));
    }

    /// Reads `from` in this process as a peer's whose word is `value` at address `word`.
    fn read_own(word: u64, value: u64, from: &[RemotePiece], into: &mut [u8]) -> Result<usize, NotRead> {
        let pid = i32::try_from(std::process::id()).expect("a process id");
        read_of(Probe { pid, address: word, value }, from, into)
    }

    fn read_of(probe: Probe, from: &[RemotePiece], into: &mut [u8]) -> Result<usize, NotRead> {
        let place = [libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() }];
        // SAFETY: memory that is lent for writing.
        unsafe { read(probe, from.iter().copied(), &place, &mut Vec::new()) }
    }

    #[test]
    fn what_is_read_counts_only_with_the_word_before_it() {
        let (word, source) = (7u64, *b"twelve bytes");
        let at = (&raw const word).expose_provenance() as u64;
        let piece = RemotePiece { address: source.as_ptr().expose_provenance() as u64, len: 12 };
        let nowhere = RemotePiece { address: 8, len: 12 };
        let mut into = [0; 24];
        assert!(matches!(read_own(at, 7, &[piece], &mut into), Ok(12)));
        assert_eq!(&into[..12], &source);
        assert!(matches!(read_own(at, 7, &[piece, nowhere], &mut into), Ok(12)), "what was there");
        assert!(matches!(read_own(at, 7, &[], &mut into), Ok(0)));
        assert!(matches!(read_own(at, 9, &[piece], &mut into), Err(NotRead::Ended)), "another process's");
        assert!(matches!(read_own(at, 7, &[nowhere], &mut into), Err(NotRead::System(_))), "the sender's fault");
        assert!(matches!(read_own(4096, 7, &[piece], &mut into), Err(NotRead::Ended)), "it let go of its memory");
    }

    #[test]
    fn a_process_at_its_end_has_no_memory_though_its_number_is_still_its_own() {
        let mut child = std::process::Command::new("true").spawn().expect("spawn");
        let pid = child.id() as i32;
        // SAFETY: an all-zero siginfo is a valid one to fill; the child is ours and stays to be
        // waited for.
        let ended = unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            libc::waitid(libc::P_PID, pid as u32, &raw mut info, libc::WEXITED | libc::WNOWAIT)
        };
        assert_eq!(ended, 0);
        let (here, mut into) = (7u64, [0u8; 8]);
        let at = (&raw const here).expose_provenance() as u64;
        let result = read_of(Probe { pid, address: at, value: 7 }, &[RemotePiece { address: at, len: 8 }], &mut into);
        assert!(matches!(result, Err(NotRead::Ended)), "{result:?}");
        let _ = child.wait();
    }
}
