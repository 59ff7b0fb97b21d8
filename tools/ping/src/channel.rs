//! Lines of JSON between a driver and an end, with a time limit for each, and with a code on each
//! where both have proved themselves.

use std::io::{BufRead, BufReader, Read, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Error;
use crate::proof::Session;

/// Longest line.
pub const MOST_BYTES: usize = 65_536;
/// Lines that wait to be taken: a question is asked when the last is answered.
const WAITING: usize = 4;

/// One side of a channel.
pub struct Channel {
    out: Box<dyn Write + Send>,
    lines: Receiver<Result<String, Error>>,
    session: Option<Session>,
}

impl Channel {
    /// Of two streams. Reading goes on in a thread until the stream ends.
    pub fn new(input: impl Read + Send + 'static, out: impl Write + Send + 'static) -> Channel {
        let (to, lines) = sync_channel(WAITING);
        std::thread::spawn(move || {
            let mut input = BufReader::new(input);
            loop {
                let line = next_line(&mut input);
                let is_last = line.is_err();
                if to.send(line).is_err() || is_last {
                    return;
                }
            }
        });
        Channel { out: Box::new(out), lines, session: None }
    }

    /// From here on each line has a code.
    pub fn seal(&mut self, session: Session) {
        self.session = Some(session);
    }

    /// Sends a message.
    ///
    /// # Errors
    /// The other side is gone.
    pub fn send(&mut self, message: &impl Serialize) -> Result<(), Error> {
        let mut line = serde_json::to_string(message).map_err(|error| Error::Channel(error.to_string()))?;
        if let Some(session) = &mut self.session {
            line = session.sign(&line);
        }
        line.push('\n');
        let gone = |error: std::io::Error| Error::Channel(format!("the other side is gone: {error}"));
        self.out.write_all(line.as_bytes()).and_then(|()| self.out.flush()).map_err(gone)
    }

    /// Takes the next message.
    ///
    /// # Errors
    /// The other side is gone, silent for too long, or sends what is no such message.
    pub fn receive<T: DeserializeOwned>(&mut self, limit: Duration) -> Result<T, Error> {
        let line = match self.lines.recv_timeout(limit) {
            Ok(line) => line?,
            Err(RecvTimeoutError::Timeout) => {
                return Err(Error::Channel(format!("no answer for {} s", limit.as_secs())));
            }
            Err(RecvTimeoutError::Disconnected) => return Err(Error::Channel("the other side has ended".into())),
        };
        let text = match &mut self.session {
            Some(session) => session.check(&line).ok_or_else(|| Error::Channel("a line with a wrong code".into()))?,
            None => &line,
        };
        serde_json::from_str(text).map_err(|error| {
            Error::Channel(format!(
                "not understood ({error}): {}",
                crate::clean(&line.chars().take(100).collect::<String>())
            ))
        })
    }
}

fn next_line(input: &mut impl BufRead) -> Result<String, Error> {
    let mut line = Vec::new();
    let read = input.by_ref().take(MOST_BYTES as u64 + 1).read_until(b'\n', &mut line);
    match read {
        Ok(0) => Err(Error::Channel("the other side has ended".into())),
        Ok(_) if line.pop() == Some(b'\n') => {
            String::from_utf8(line).map_err(|_| Error::Channel("a line that is no text".into()))
        }
        Ok(_) if line.len() >= MOST_BYTES => Err(Error::Channel("a line that does not end".into())),
        Ok(_) => Err(Error::Channel("the other side has ended in the middle of a line".into())),
        Err(error) => Err(Error::Channel(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::{Answer, Question};
    use proptest::prelude::*;
    use std::os::unix::net::UnixStream;

    fn received(bytes: &[u8]) -> Result<Answer, Error> {
        let mut channel = Channel::new(std::io::Cursor::new(bytes.to_vec()), std::io::sink());
        channel.receive(Duration::from_secs(60))
    }

    #[test]
    fn a_message_comes_as_it_was_sent() {
        let (one, other) = UnixStream::pair().unwrap();
        let end = one.try_clone().unwrap();
        let mut from = Channel::new(one.try_clone().unwrap(), one);
        let mut to = Channel::new(other.try_clone().unwrap(), other);
        let asked = Question::Heard { nonce: u64::MAX };
        from.send(&asked).unwrap();
        assert_eq!(to.receive::<Question>(Duration::from_secs(60)).unwrap(), asked);
        // (Dropping the channel does not end it: who listens on it keeps it open.)
        end.shutdown(std::net::Shutdown::Both).unwrap();
        let begin = std::time::Instant::now();
        assert!(to.receive::<Question>(Duration::from_secs(60)).is_err());
        assert!(begin.elapsed() < Duration::from_secs(50), "the end was not seen");
    }

    #[test]
    fn what_is_no_line_of_json_ends_the_channel_in_one_line() {
        let long = vec![b'x'; 2 * MOST_BYTES];
        for bytes in [&b""[..], b"\n", b"{}\n", b"\"done\"", b"\xff\n", b"Welcome to node7!\x1b[2J\n", &long] {
            let error = received(bytes).unwrap_err().to_string();
            assert!(!error.contains(char::is_control) && error.len() < 400, "{error}");
        }
        assert_eq!(received(b"\"done\"\n").unwrap(), Answer::Done);
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_message_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Err(error) = received(&bytes) {
                prop_assert!(!error.to_string().contains(char::is_control));
            }
        }
    }
}
