//! Exchanges that are messages between two and nothing else: ranks make them, and single threads of
//! ranks.

use crate::error::Result;
use crate::machine::{Messages, TAG_ANSWER, TAG_DATA, Tag};

/// Who talks to whom, and with which bytes.
pub struct Talk<'a> {
    /// The partner's rank.
    pub peer: usize,
    /// What is sent.
    pub out: &'a [u8],
    /// Where it arrives.
    pub into: &'a mut [u8],
    /// Messages in a window of `message-rate` and `stream`.
    pub window: usize,
    /// The tag of what is timed.
    pub data: Tag,
    /// That of answers, which are not.
    pub answer: Tag,
    /// Of `stream`: whether an answer is still to come, and when the last window was over.
    flow: Flow,
}

/// Where a stream stands between two windows.
#[derive(Clone, Copy, Debug, Default)]
struct Flow {
    owed: bool,
    last: Option<u64>,
}

impl<'a> Talk<'a> {
    /// With these tags.
    pub fn new(peer: usize, out: &'a [u8], into: &'a mut [u8], window: usize, (data, answer): (Tag, Tag)) -> Talk<'a> {
        Talk { peer, out, into, window, data, answer, flow: Flow::default() }
    }

    /// With those of ranks as a whole.
    pub fn of_ranks(peer: usize, out: &'a [u8], into: &'a mut [u8], window: usize) -> Talk<'a> {
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
