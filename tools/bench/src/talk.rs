//! Exchanges that are messages between two and nothing else: ranks make them, and single threads of
//! ranks.

use crate::error::{BenchError, Result};
use crate::machine::{Messages, TAG_ANSWER, TAG_DATA, Tag};

/// Who talks to whom, and with which bytes.
pub struct Talk<'a> {
    /// The partner's rank.
    pub peer: usize,
    /// What is sent.
    pub out: &'a mut [u8],
    /// Where it arrives.
    pub into: &'a mut [u8],
    /// Bytes of what is sent, also when something else has the buffer meanwhile.
    pub bytes: usize,
    /// Messages in a window of `message-rate` and `stream`.
    pub window: usize,
    /// The tag of what is timed.
    pub data: Tag,
    /// That of answers, which are not.
    pub answer: Tag,
    /// Of `stream`: whether an answer is still to come, and when the last window was over.
    flow: Flow,
    /// Of `ping-pong-filled`: round trips so far.
    turn: u64,
}

/// Where a stream stands between two windows.
#[derive(Clone, Copy, Debug, Default)]
struct Flow {
    owed: bool,
    last: Option<u64>,
}

impl<'a> Talk<'a> {
    /// With these tags.
    pub fn new(
        peer: usize,
        out: &'a mut [u8],
        into: &'a mut [u8],
        window: usize,
        (data, answer): (Tag, Tag),
    ) -> Talk<'a> {
        let bytes = out.len();
        Talk { peer, bytes, out, into, window, data, answer, flow: Flow::default(), turn: 0 }
    }

    /// With those of ranks as a whole.
    pub fn of_ranks(peer: usize, out: &'a mut [u8], into: &'a mut [u8], window: usize) -> Talk<'a> {
        Talk::new(peer, out, into, window, (TAG_DATA, TAG_ANSWER))
    }
}

/// What who begins tells its partner before more exchanges that are not timed.
pub const MORE: [u8; 1] = [1];
/// The same: there are no more.
pub const NO_MORE: [u8; 1] = [0];
/// Small messages are exchanged so many times for each word about whether to go on, so that the
/// word is the smaller part.
const AT_ONCE: usize = 16;
/// Beside messages of so many bytes the word does not matter.
const WEIGHTY_BYTES: usize = 65_536;

/// Exchanges of messages of so many bytes for each word about whether to go on.
#[must_use]
pub fn between_words(bytes: usize) -> usize {
    (WEIGHTY_BYTES / bytes.max(1)).clamp(1, AT_ONCE)
}

/// An operation between two; `begin` and `end` are where a repetition's readings go.
pub trait Plain {
    /// One repetition, at the one that begins.
    ///
    /// # Errors
    /// The machine's.
    fn lead<M: Messages>(m: &M, t: &mut Talk<'_>, begin: &mut u64, end: &mut u64) -> Result<()>;
    /// The same, at its partner; where both do the same, it is not written again.
    ///
    /// # Errors
    /// The machine's.
    #[inline(always)]
    fn follow<M: Messages>(m: &M, t: &mut Talk<'_>, begin: &mut u64, end: &mut u64) -> Result<()> {
        Self::lead(m, t, begin, end)
    }
    /// What is left to do when all repetitions are made.
    ///
    /// # Errors
    /// The machine's.
    fn finish<M: Messages>(_: &M, _: &mut Talk<'_>, _leads: bool) -> Result<()> {
        Ok(())
    }
}

/// Out and back.
pub struct PingPong;

impl Plain for PingPong {
    #[inline(always)]
    fn lead<M: Messages>(m: &M, t: &mut Talk<'_>, begin: &mut u64, end: &mut u64) -> Result<()> {
        let start = m.ticks();
        m.send(t.out, t.peer, t.data)?;
        m.recv(t.into, t.peer, t.data)?;
        let stop = m.ticks();
        (*begin, *end) = (start, stop);
        Ok(())
    }

    #[inline(always)]
    fn follow<M: Messages>(m: &M, t: &mut Talk<'_>, _: &mut u64, _: &mut u64) -> Result<()> {
        m.recv(t.into, t.peer, t.data)?;
        m.send(t.out, t.peer, t.data)
    }
}

/// Out and back, as programs do it: each message is filled by the program before it leaves, and
/// compared whole when it has come, so that caches hold what the program left there. What the
/// answering side does of that is part of the time.
pub struct Filled;

impl Filled {
    /// Fills what is sent next.
    #[inline]
    fn fill(t: &mut Talk<'_>) {
        // Odd numbers, so that no two messages of a batch are alike anywhere.
        const TURN: u64 = 0x9e37_79b9_7f4a_7c15;
        const PLACE: u64 = 0xd134_2543_de82_ef95;
        let mut word = t.turn.wrapping_mul(TURN);
        let mut words = t.out.chunks_exact_mut(size_of::<u64>());
        for bytes in &mut words {
            word = word.wrapping_add(PLACE);
            bytes.copy_from_slice(&word.to_ne_bytes());
        }
        let rest = words.into_remainder();
        let last = word.wrapping_add(PLACE).to_ne_bytes();
        rest.copy_from_slice(&last[..rest.len()]);
    }

    /// Compares what has come with what is, or was, sent.
    #[inline]
    fn check(t: &mut Talk<'_>) -> Result<()> {
        if t.into != t.out {
            let place = t.into.iter().zip(t.out.iter()).position(|(a, b)| a != b).unwrap_or(0);
            let cause = format!("message {} from rank {} is wrong from byte {place} on", t.turn, t.peer);
            return Err(BenchError::machine("ping-pong-filled", cause));
        }
        t.turn += 1;
        Ok(())
    }
}

impl Plain for Filled {
    #[inline(always)]
    fn lead<M: Messages>(m: &M, t: &mut Talk<'_>, begin: &mut u64, end: &mut u64) -> Result<()> {
        Self::fill(t);
        let start = m.ticks();
        m.send(t.out, t.peer, t.data)?;
        m.recv(t.into, t.peer, t.data)?;
        let stop = m.ticks();
        (*begin, *end) = (start, stop);
        Self::check(t)
    }

    #[inline(always)]
    fn follow<M: Messages>(m: &M, t: &mut Talk<'_>, _: &mut u64, _: &mut u64) -> Result<()> {
        m.recv(t.into, t.peer, t.data)?;
        Self::fill(t);
        Self::check(t)?;
        m.send(t.out, t.peer, t.data)
    }
}

/// A window of messages, and the answer to the last.
pub struct Rate;

impl Plain for Rate {
    #[inline(always)]
    fn lead<M: Messages>(m: &M, t: &mut Talk<'_>, begin: &mut u64, end: &mut u64) -> Result<()> {
        let start = m.ticks();
        m.send_window(t.out, t.window, t.peer, t.data)?;
        m.recv(&mut [], t.peer, t.answer)?;
        let stop = m.ticks();
        (*begin, *end) = (start, stop);
        Ok(())
    }

    #[inline(always)]
    fn follow<M: Messages>(m: &M, t: &mut Talk<'_>, _: &mut u64, _: &mut u64) -> Result<()> {
        m.recv_window(t.into, t.window, t.peer, t.data)?;
        m.send(&[], t.peer, t.answer)
    }
}

/// Both ways in one call.
pub struct BothWays;

impl Plain for BothWays {
    #[inline(always)]
    fn lead<M: Messages>(m: &M, t: &mut Talk<'_>, begin: &mut u64, end: &mut u64) -> Result<()> {
        let start = m.ticks();
        m.sendrecv(t.out, t.peer, t.into, t.peer, t.data)?;
        let stop = m.ticks();
        (*begin, *end) = (start, stop);
        Ok(())
    }
}

/// Windows of messages one after the other, seen by who receives them: from the end of one to the
/// end of the next. The sender waits for the answer to a window only when it has sent the next, so
/// that messages are always under way, and never more than two windows.
pub struct Stream;

impl Plain for Stream {
    #[inline(always)]
    fn lead<M: Messages>(m: &M, t: &mut Talk<'_>, _: &mut u64, _: &mut u64) -> Result<()> {
        m.send_window(t.out, t.window, t.peer, t.data)?;
        if std::mem::replace(&mut t.flow.owed, true) {
            m.recv(&mut [], t.peer, t.answer)?;
        }
        Ok(())
    }

    #[inline(always)]
    fn follow<M: Messages>(m: &M, t: &mut Talk<'_>, begin: &mut u64, end: &mut u64) -> Result<()> {
        // The first begins when its receiver is ready for it.
        let start = t.flow.last.unwrap_or_else(|| m.ticks());
        m.recv_window(t.into, t.window, t.peer, t.data)?;
        let stop = m.ticks();
        m.send(&[], t.peer, t.answer)?;
        t.flow.last = Some(stop);
        (*begin, *end) = (start, stop);
        Ok(())
    }

    fn finish<M: Messages>(m: &M, t: &mut Talk<'_>, leads: bool) -> Result<()> {
        let owed = std::mem::take(&mut t.flow).owed;
        if leads && owed { m.recv(&mut [], t.peer, t.answer) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::sim::{Model, run};

    /// Three round trips of so many bytes, of which the answering side spoils one byte of the
    /// second if it shall; what the beginning side says.
    fn round_trips(bytes: usize, spoilt: Option<usize>) -> Result<()> {
        let mut all = run(&Model::plain(2), |m| {
            let peer = 1 - crate::machine::Machine::rank(m);
            let (mut out, mut into) = (vec![1; bytes], vec![1; bytes]);
            let mut t = Talk::of_ranks(peer, &mut out, &mut into, 1);
            let (mut begin, mut end) = (0, 0);
            for trip in 0..3 {
                if peer == 1 {
                    Filled::lead(m, &mut t, &mut begin, &mut end)?;
                } else if let Some(place) = spoilt.filter(|_| trip == 1) {
                    let mut back = vec![0; bytes];
                    m.recv(&mut back, peer, TAG_DATA)?;
                    back[place] ^= 1;
                    return m.send(&back, peer, TAG_DATA);
                } else {
                    Filled::follow(m, &mut t, &mut begin, &mut end)?;
                }
            }
            Ok(())
        });
        all.remove(0)
    }

    #[test]
    fn a_message_that_comes_back_different_is_named_with_its_place() {
        for bytes in [0, 1, 7, 8, 9, 100] {
            round_trips(bytes, None).unwrap();
        }
        for place in [0, 8, 99] {
            let error = round_trips(100, Some(place)).unwrap_err().to_string();
            assert_eq!(error, format!("ping-pong-filled: message 1 from rank 1 is wrong from byte {place} on"));
        }
    }

    #[test]
    fn no_message_is_like_one_before() {
        let (mut out, mut into) = ([0; 64], [0; 64]);
        let mut t = Talk::of_ranks(0, &mut out, &mut into, 1);
        let mut messages = std::collections::BTreeSet::new();
        for turn in 0..1000 {
            t.turn = turn;
            Filled::fill(&mut t);
            assert!(messages.insert(t.out.to_vec()), "{turn}");
        }
    }
}
