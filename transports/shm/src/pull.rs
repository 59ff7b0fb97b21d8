//! Whether the peer's memory can be read directly: tried once, by reading a word that the peer has told.

use crate::handshake::Terms;
use crate::sys::{self, RemotePiece};
use crate::why::NoPull;
use std::io::{self, IoSliceMut};

/// Reads the word that `terms` tell from process `pid`.
///
/// # Errors
/// Why large messages have to go through the ring.
pub fn probe(pid: i32, terms: &Terms) -> Result<(), NoPull> {
    if pid <= 0 {
        return Err(NoPull::OtherPidNamespace);
    }
    let mut word = [0; 8];
    let remote = [RemotePiece { address: terms.probe_address, len: 8 }];
    match sys::read_process(pid, &remote, &mut [IoSliceMut::new(&mut word)]) {
        Ok(8) if u64::from_ne_bytes(word) == terms.probe_value => Ok(()),
        Ok(_) => Err(NoPull::OtherProcess),
        Err(cause) => Err(reason(&cause, yama_scope())),
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
        assert_eq!(probe(pid, &terms), Ok(()));
        terms.probe_value = 8;
        assert_eq!(probe(pid, &terms), Err(NoPull::OtherProcess));
        terms.probe_address = 0;
        assert_eq!(probe(pid, &terms), Err(NoPull::OtherProcess));
    }
}
