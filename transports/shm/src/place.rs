//! Where a board lies: memory without a name, made by one member and opened by the others by its
//! number in that one's process (spec/shm.md 11).

use crate::board::{Shape, Words};
use crate::sync::{AtomicU64, Ordering};
use crate::sys::{self, Mapping, MemoryError};
use std::fmt;
use std::os::fd::{AsRawFd, OwnedFd};
use std::str::FromStr;

/// The memory of a board.
#[derive(Debug)]
pub struct BoardMemory {
    mapping: Mapping,
    words: usize,
}

impl Words for BoardMemory {
    #[inline]
    fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping has so many words (`map`), begins at a page, and is of atomics, so
        // that others may write there at any time.
        unsafe { std::slice::from_raw_parts(self.mapping.at().as_ptr().cast(), self.words) }
    }
}

/// How members find a board: a text of one line without spaces at its ends, not secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    pid: u32,
    fd: i32,
    token: [u64; 2],
}

impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {:016x}{:016x}", self.pid, self.fd, self.token[0], self.token[1])
    }
}

impl FromStr for Ticket {
    type Err = NoBoard;

    fn from_str(text: &str) -> Result<Ticket, NoBoard> {
        let read = || {
            let [pid, fd, token] = text.split(' ').collect::<Vec<_>>()[..] else { return None };
            let half = |range| u64::from_str_radix(token.get(range)?, 16).ok();
            let (pid, fd) = (pid.parse().ok()?, fd.parse().ok()?);
            (token.len() == 32).then_some(Ticket { pid, fd, token: [half(0..16)?, half(16..32)?] })
        };
        read().ok_or(NoBoard::Ticket)
    }
}

/// Why there is no board, for people.
#[derive(Debug, thiserror::Error)]
pub enum NoBoard {
    /// The system gave no random numbers.
    #[error("there are no random numbers")]
    Random,
    /// No memory, or no descriptor.
    #[error("memory to be shared cannot be had: {0}")]
    Memory(std::io::Error),
    /// Files of this process may not be so long.
    #[error("a file of this process may not have {0} bytes (ulimit -f)")]
    FileSize(usize),
    /// The system does not seal memory.
    #[error("memory to be shared cannot be sealed")]
    Seals,
    /// What was told of it is none.
    #[error("what was told of it cannot be read")]
    Ticket,
    /// The maker's descriptor cannot be opened.
    #[error("it cannot be opened at its maker's: {0}")]
    Open(std::io::Error),
    /// What is there is something else.
    #[error("something else is at its place (another PID namespace?)")]
    Other,
}

/// A board that was made, and how others find it: as long as `memory` is open.
#[derive(Debug)]
pub struct Made {
    /// What the maker has of it.
    pub board: BoardMemory,
    /// What others are told.
    pub ticket: Ticket,
    /// What they open.
    pub memory: OwnedFd,
}

/// Makes the memory of a board.
///
/// # Errors
/// [`NoBoard`].
pub fn make(shape: Shape) -> Result<Made, NoBoard> {
    let bytes = shape.words() * size_of::<AtomicU64>();
    let mut token = [0; 16];
    getrandom::fill(&mut token).map_err(|_| NoBoard::Random)?;
    let memory = sys::sealed_memory(bytes).map_err(|why| match why {
        MemoryError::Make(cause) => NoBoard::Memory(cause),
        MemoryError::FileSize => NoBoard::FileSize(bytes),
        MemoryError::Seal => NoBoard::Seals,
    })?;
    let board = map(&memory, shape)?;
    let token = [0, 1].map(|half| u64::from_le_bytes(*token.as_chunks::<8>().0.get(half).unwrap_or(&[1; 8])));
    for (word, value) in board.words().iter().zip(token) {
        word.store(value, Ordering::Relaxed);
    }
    let ticket = Ticket { pid: std::process::id(), fd: memory.as_raw_fd(), token };
    Ok(Made { board, ticket, memory })
}

fn map(memory: &OwnedFd, shape: Shape) -> Result<BoardMemory, NoBoard> {
    let words = shape.words();
    let mapping = Mapping::shared(memory, words * size_of::<AtomicU64>()).map_err(NoBoard::Memory)?;
    Ok(BoardMemory { mapping, words })
}

/// Opens the memory of a board that another process of this host has made.
///
/// # Errors
/// [`NoBoard`].
pub fn join(ticket: &Ticket, shape: Shape) -> Result<BoardMemory, NoBoard> {
    let memory = sys::open_memory_of(ticket.pid, ticket.fd).map_err(NoBoard::Open)?;
    if !sys::is_sealed_memory(&memory, shape.words() * size_of::<AtomicU64>()) {
        return Err(NoBoard::Other);
    }
    let board = map(&memory, shape)?;
    let alike = board.words().iter().zip(ticket.token).all(|(word, value)| word.load(Ordering::Relaxed) == value);
    if alike { Ok(board) } else { Err(NoBoard::Other) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::board::{Board, ROW_BYTES, Seen};

    #[test]
    fn a_board_is_found_by_its_ticket_and_carries_what_is_said() {
        let shape = Shape::of(2).expect("a shape");
        let made = make(shape).expect("memory");
        let ticket: Ticket = made.ticket.to_string().parse().expect("a ticket");
        let joined = join(&ticket, shape).expect("found");
        let mut here = Board::new(made.board, shape, 0, 1).expect("a board");
        let mut there = Board::new(joined, shape, 1, 1).expect("a board");
        assert!(here.say(1, 1, &[7; ROW_BYTES], &[b"what is long", &[9; 300]]));
        here.post(1, 1);
        there.post(1, 1);
        assert_eq!(there.look(0, 1, 1), Seen::Here { says: true });
        assert_eq!(here.look(1, 1, 1), Seen::Here { says: false });
        assert!(there.tells(0, 1));
        let row = there.row(0, 1);
        assert_eq!(row.says, [7; ROW_BYTES]);
        let bytes = there.bytes(0, 1, row.at.expect("there"), 312).expect("there").to_vec();
        assert_eq!((&bytes[..12], &bytes[12..]), (&b"what is long"[..], &[9; 300][..]));
    }

    #[test]
    fn what_is_something_else_is_not_taken_for_a_board() {
        let shape = Shape::of(2).expect("a shape");
        let made = make(shape).expect("memory");
        let other = make(shape).expect("memory");
        let wrong_token = Ticket { token: other.ticket.token, ..made.ticket };
        assert!(matches!(join(&wrong_token, shape), Err(NoBoard::Other)));
        assert!(matches!(join(&made.ticket, Shape::of(3).expect("a shape")), Err(NoBoard::Other)));
        let no_file = Ticket { fd: i32::MAX, ..made.ticket };
        assert!(matches!(join(&no_file, shape), Err(NoBoard::Open(_))));
        let terminal = Ticket { fd: 0, ..made.ticket };
        assert!(join(&terminal, shape).is_err());
        for text in [
            "",
            "1",
            "1 2",
            "1 2 3",
            "x 2 0123456789abcdef0123456789abcdef",
            "1 2 0123456789abcdef0123456789abcde\u{e9}",
        ] {
            assert!(matches!(text.parse::<Ticket>(), Err(NoBoard::Ticket)), "{text}");
        }
    }
}
