//! What carries requests and answers between a server and its clients: any BMI library, or plain
//! TCP sockets.
//!
//! A request is the length of the answer that it wants, 8 bytes, the lowest first. An answer is so
//! many bytes of [`pattern`].

use std::sync::Arc;
use std::time::Duration;

use crate::error::{BenchError, Result};
use crate::sys::bmi::{Bmi, Peer};

use super::words::Stack;

/// The longest answer, bytes: the originals' longest message.
pub const MOST_BYTES: u64 = 16 << 20;
/// The method that is no BMI.
pub const SOCKETS: &str = "sockets";

/// A server.
pub trait Serving {
    /// Takes requests and gives answers, sleeping for so long at most if there is nothing to do.
    /// Returns how many requests it took.
    ///
    /// # Errors
    /// What carries them is broken; that a client is gone is no error.
    fn turn(&mut self, idle: Duration) -> Result<u64>;

    /// Packets that came so far and were dropped because they are not sealed with this process's
    /// key, or are damaged.
    fn refused(&self) -> u64 {
        0
    }
}

/// A client.
pub trait Asking {
    /// Asks for so many bytes; `mark`, which no request under way has, comes back with the answer.
    ///
    /// # Errors
    /// The server is gone.
    fn ask(&mut self, bytes: u64, mark: u32) -> Result<()>;

    /// Tells the marks of answers that have come, sleeping for so long at most if there are none.
    ///
    /// # Errors
    /// The server is gone, or an answer is not what was asked for.
    fn answers(&mut self, idle: Duration, each: &mut dyn FnMut(u32)) -> Result<()>;
}

/// What answers hold.
#[must_use]
pub fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(of_pattern).collect()
}

fn of_pattern(place: usize) -> u8 {
    (place as u8).wrapping_mul(31) ^ (place >> 8) as u8
}

/// Whether an answer of this length begins and ends as it must: all of it would take as long to
/// look at as to receive.
pub(super) fn is_answer(data: &[u8]) -> bool {
    let ends = data.len().saturating_sub(64)..data.len();
    (0..data.len().min(64)).chain(ends).all(|place| data[place] == of_pattern(place))
}

/// What a request wants; none of one that no client here sends.
pub(super) fn wanted(request: &[u8]) -> Option<usize> {
    let bytes = u64::from_le_bytes(request.try_into().ok()?);
    usize::try_from(bytes).ok().filter(|_| bytes <= MOST_BYTES)
}

/// Answers are pieces of this; it grows with what is asked for.
#[derive(Default)]
pub(super) struct Answers(Option<Arc<[u8]>>);

impl Answers {
    /// One that is long enough.
    pub fn of(&mut self, bytes: usize) -> Arc<[u8]> {
        match &self.0 {
            Some(data) if data.len() >= bytes => Arc::clone(data),
            _ => Arc::clone(self.0.insert(pattern(bytes.next_power_of_two()).into())),
        }
    }
}

/// A server over BMI.
pub struct BmiServer {
    bmi: Bmi,
    answers: Answers,
}

impl BmiServer {
    /// Listens at a URL of the stack's method.
    ///
    /// # Errors
    /// The library's.
    pub fn new(stack: &Stack, url: &str) -> Result<BmiServer> {
        let bmi = Bmi::server(stack.library()?, stack.dialect, &stack.provider(), url)?;
        Ok(BmiServer { bmi, answers: Answers::default() })
    }
}

/// Times of sleep as BMI has them.
fn whole_ms(idle: Duration) -> u32 {
    u32::try_from(idle.as_millis()).unwrap_or(u32::MAX)
}

impl Serving for BmiServer {
    fn turn(&mut self, idle: Duration) -> Result<u64> {
        // With answers under way it is their ends that are waited for: that test returns for
        // requests, too (W4; of the originals' for anything).
        let idle_ms = whole_ms(idle);
        let asleep = if self.bmi.open() == 0 { idle_ms } else { 0 };
        let answers = &mut self.answers;
        let taken = self.bmi.requests(asleep, |bmi, request| {
            if let Some(bytes) = wanted(request.data) {
                // One who is gone already is no reason to stop.
                let _ = bmi.answer(request.from, &answers.of(bytes), bytes, request.tag);
            }
            Ok(())
        })?;
        if self.bmi.open() > 0 {
            self.bmi.collect(if taken == 0 { idle_ms } else { 0 }, |_, _, _| {})?;
        }
        Ok(taken as u64)
    }

    fn refused(&self) -> u64 {
        self.bmi.refused()
    }
}

/// A client over BMI.
pub struct BmiClient {
    bmi: Bmi,
    server: Peer,
    /// Memory of answers that nobody waits for.
    spare: Vec<Vec<u8>>,
    /// Answers that were there at once.
    there: Vec<u32>,
}

impl BmiClient {
    /// Of the server at a URL.
    ///
    /// # Errors
    /// The library's.
    pub fn new(stack: &Stack, url: &str) -> Result<BmiClient> {
        let bmi = Bmi::client(stack.library()?, stack.dialect)?;
        let server = bmi.lookup(url)?;
        Ok(BmiClient { bmi, server, spare: Vec::new(), there: Vec::new() })
    }
}

/// Refuses what is not the answer to a request.
fn checked(data: &[u8], got: usize) -> Result<()> {
    if got != data.len() {
        let text = format!("{got} bytes instead of {}", data.len());
        return Err(BenchError::machine("an answer", text));
    }
    if is_answer(data) {
        Ok(())
    } else {
        Err(BenchError::machine("an answer", "its bytes are not those that were sent"))
    }
}

impl Asking for BmiClient {
    fn ask(&mut self, bytes: u64, mark: u32) -> Result<()> {
        let mut into = self.spare.pop().unwrap_or_default();
        into.clear();
        into.resize(bytes as usize, 0);
        // Tags are positive numbers that come again when nobody remembers the last time.
        let tag = (mark & i32::MAX as u32) as i32;
        if let Some((data, got)) = self.bmi.receive(self.server, into, tag)? {
            checked(&data, got)?;
            self.there.push(mark);
        }
        self.bmi.request(self.server, &bytes.to_le_bytes().as_slice().into(), tag)
    }

    fn answers(&mut self, idle: Duration, each: &mut dyn FnMut(u32)) -> Result<()> {
        let there = std::mem::take(&mut self.there);
        let idle_ms = if there.is_empty() { whole_ms(idle) } else { 0 };
        there.into_iter().for_each(&mut *each);
        let (mut wrong, spare) = (Ok(()), &mut self.spare);
        self.bmi.collect(idle_ms, |tag, data, got| {
            match checked(&data, got) {
                Ok(()) => each(tag.unsigned_abs()),
                Err(error) => wrong = Err(error),
            }
            spare.push(data);
        })?;
        wrong
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_known_by_its_bytes_and_its_length() {
        let mut data = pattern(1000);
        assert!(checked(&data, 1000).is_ok());
        assert!(checked(&data, 999).unwrap_err().to_string().contains("999 bytes instead of 1000"));
        data[999] ^= 1;
        assert!(checked(&data, 1000).is_err());
        assert!(is_answer(&[]) && is_answer(&pattern(1)));
    }

    #[test]
    fn a_request_of_another_kind_wants_nothing() {
        assert_eq!(wanted(&100_000u64.to_le_bytes()), Some(100_000));
        assert_eq!(wanted(&(MOST_BYTES + 1).to_le_bytes()), None);
        assert_eq!((wanted(b""), wanted(&[0; 9])), (None, None));
    }
}
