//! What ranks print, line by line with the rank in front.

use std::collections::VecDeque;
use std::io::{self, Write};

/// A longer line is cut into pieces of this length.
const LINE_MAX_BYTES: usize = 64 * 1024;

/// Prints a line on standard error, which the ranks of a job share, in one write.
///
/// `eprintln!` writes each part of its format by itself: what another process prints meanwhile
/// would stand in the middle of the line.
pub fn say(line: impl std::fmt::Display) {
    // Nobody is left to be told that nobody reads.
    let _ = say_to(&mut io::stderr().lock(), line);
}

fn say_to(out: &mut impl Write, line: impl std::fmt::Display) -> io::Result<()> {
    out.write_all(format!("{line}\n").as_bytes())
}

/// One rank's standard output or error, as far as its last line is not complete.
#[derive(Debug)]
pub struct Lines {
    prefix: Vec<u8>,
    part: Vec<u8>,
}

impl Lines {
    /// Of this rank.
    pub fn of(rank: u32) -> Self {
        Self { prefix: format!("[{rank}] ").into_bytes(), part: Vec::new() }
    }

    /// Takes what the rank printed; whole lines go to `out`.
    pub fn take(&mut self, bytes: &[u8], out: &mut VecDeque<u8>) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let mut piece = piece;
            while self.part.len() + piece.len() > LINE_MAX_BYTES {
                let (now, later) = piece.split_at(LINE_MAX_BYTES - self.part.len());
                self.part.extend(now);
                self.flush(out);
                piece = later;
            }
            self.part.extend(piece);
            if self.part.ends_with(b"\n") {
                out.extend(&self.prefix);
                out.extend(self.part.drain(..));
            }
        }
    }

    /// The rank prints no more: its last line is given a line's end.
    pub fn flush(&mut self, out: &mut VecDeque<u8>) {
        if !self.part.is_empty() {
            out.extend(&self.prefix);
            out.extend(self.part.drain(..));
            out.push_back(b'\n');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_line_is_said_in_one_write() {
        struct Writes(Vec<Vec<u8>>);
        impl Write for Writes {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0.push(bytes.to_vec());
                Ok(bytes.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let mut writes = Writes(Vec::new());
        say_to(&mut writes, format_args!("rank {}: {}", 3, "no")).unwrap();
        assert_eq!(writes.0, [b"rank 3: no\n"]);
    }

    fn tagged(pieces: &[&[u8]]) -> String {
        let (mut lines, mut out) = (Lines::of(3), VecDeque::new());
        pieces.iter().for_each(|piece| lines.take(piece, &mut out));
        lines.flush(&mut out);
        String::from_utf8(out.into()).unwrap()
    }

    #[test]
    fn each_line_has_its_rank_in_front_and_the_last_one_an_end() {
        assert_eq!(tagged(&[b"a\nb", b"c\n\nd"]), "[3] a\n[3] bc\n[3] \n[3] d\n");
        assert_eq!(tagged(&[]), "");
    }

    #[test]
    fn an_endless_line_is_cut() {
        let long = vec![b'x'; LINE_MAX_BYTES + 1];
        let text = tagged(&[&long, b"\n"]);
        assert_eq!(text.lines().map(str::len).collect::<Vec<_>>(), [LINE_MAX_BYTES + 4, 5]);
    }

    proptest! {
        #[test]
        fn nothing_is_lost_however_it_arrives(text in "[a\n]{0,80}", cuts in proptest::collection::vec(0usize..80, 0..5)) {
            let mut pieces: Vec<&[u8]> = vec![];
            let (mut cuts, mut from) = (cuts, 0);
            cuts.sort_unstable();
            for cut in cuts.into_iter().map(|cut| cut.min(text.len())).chain([text.len()]) {
                pieces.push(&text.as_bytes()[from..cut]);
                from = cut;
            }
            let want: String = text.lines().map(|line| format!("[3] {line}\n")).collect();
            prop_assert_eq!(tagged(&pieces), want);
        }
    }
}
