//! The control socket: one JSON array of words a connection, one JSON object in reply.

use crate::error::{Context, Error, Result};
use crate::launch::RunDir;
use crate::network::Shared;
use crate::spec::{Action, Direction, PipeSettings};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::EventFd;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

const MOST_REQUEST_BYTES: usize = 64 * 1024;
/// Longest reply that is read: the counters of the most interfaces there may be have about a
/// megabyte.
const MOST_REPLY_BYTES: u64 = 64 << 20;
/// For a whole request, and for a whole reply.
const TIMEOUT: Duration = Duration::from_secs(5);

/// What the words of a request may be.
pub const USAGE: &str = "cut HOST NETWORK [up|down] | heal HOST NETWORK [up|down] | \
     set HOST NETWORK [up|down|both] KEY=VALUE... | stats | info | stop";

/// Answers requests until `stop` is written.
pub(crate) fn serve(listener: &UnixListener, shared: &Shared, stop: &Arc<EventFd>) {
    loop {
        let mut fds = [PollFd::new(listener.as_fd(), PollFlags::POLLIN), PollFd::new(stop.as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, PollTimeout::NONE) {
            Ok(_) if fds[1].any() == Some(true) => return,
            Ok(_) => {}
            Err(nix::Error::EINTR) => continue,
            Err(_) => return,
        }
        if let Ok((stream, _)) = listener.accept() {
            let _ = answer(stream, shared); // a client that went away is its own problem
        }
    }
}

fn answer(mut stream: UnixStream, shared: &Shared) -> std::io::Result<()> {
    stream.set_write_timeout(Some(TIMEOUT))?;
    let text = read_request(&mut stream)?;
    let reply = match serde_json::from_slice::<Vec<String>>(&text) {
        Err(e) => Err(Error::Request(format!("not a JSON array of words: {e}"))),
        Ok(words) => obey(&words.iter().map(String::as_str).collect::<Vec<_>>(), shared),
    };
    // One line: the words that it repeats may hold anything.
    let reply = reply.unwrap_or_else(|e| json!({ "error": e.to_string().replace(char::is_control, " ") }));
    stream.write_all(format!("{reply}\n").as_bytes())
}

/// Reads until the client closes its side; a client that is slow or says too much is an error.
fn read_request(stream: &mut UnixStream) -> std::io::Result<Vec<u8>> {
    let end = Instant::now() + TIMEOUT;
    let (mut text, mut piece) = (Vec::new(), [0; 4096]);
    while text.len() < MOST_REQUEST_BYTES {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(std::io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut piece) {
            Ok(0) => return Ok(text),
            Ok(length) => text.extend_from_slice(&piece[..length]),
            // Also when this process was stopped and goes on.
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Err(std::io::ErrorKind::InvalidData.into())
}

/// What a client may ask for.
#[derive(Debug)]
enum Request<'a> {
    Stats,
    Info,
    Stop,
    Change { host: &'a str, network: &'a str, direction: Direction, action: Action },
}

fn obey(words: &[&str], shared: &Shared) -> Result<Value> {
    match understand(words)? {
        Request::Stats => Ok(serde_json::to_value(shared.stats()?).unwrap_or_default()),
        Request::Info => Ok(shared.info()),
        Request::Stop => {
            shared.request_stop();
            Ok(json!({}))
        }
        Request::Change { host, network, direction, action } => {
            shared.change(host, network, direction, action)?;
            shared.note_change(words);
            Ok(json!({}))
        }
    }
}

/// What the words of a request ask for.
fn understand<'a>(words: &[&'a str]) -> Result<Request<'a>> {
    let bad = Error::Request;
    match *words {
        ["stats"] => Ok(Request::Stats),
        ["info"] => Ok(Request::Info),
        ["stop"] => Ok(Request::Stop),
        [verb @ ("cut" | "heal"), host, network, ref rest @ ..] => {
            let direction = match rest {
                [] => Direction::Usual,
                [word] => word.parse().map_err(bad)?,
                _ => return Err(bad(format!("too many words; write {USAGE}"))),
            };
            let action = if verb == "cut" { Action::Cut } else { Action::Heal };
            Ok(Request::Change { host, network, direction, action })
        }
        ["set", host, network, ref rest @ ..] => {
            let (direction, settings) = match rest {
                [word, settings @ ..] if !word.contains('=') => {
                    let neither = |_| {
                        bad(format!("'{word}' is neither a direction (up, down, both) nor KEY=VALUE, as in loss=2%"))
                    };
                    (word.parse().map_err(neither)?, settings)
                }
                settings => (Direction::Usual, settings),
            };
            if settings.is_empty() {
                return Err(bad("set needs at least one KEY=VALUE, as in loss=2%".into()));
            }
            let settings = PipeSettings::from_words(settings.iter().copied()).map_err(bad)?;
            Ok(Request::Change { host, network, direction, action: Action::Set(Box::new(settings)) })
        }
        [] => Err(bad(format!("no request; the requests are: {USAGE}"))),
        [verb @ ("stats" | "info" | "stop" | "cut" | "heal" | "set"), ..] => {
            Err(bad(format!("'{verb}' wants other words; the requests are: {USAGE}")))
        }
        [word, ..] => Err(bad(format!("no request '{word}'; the requests are: {USAGE}"))),
    }
}

/// Sends a request to a running network and returns its reply.
pub fn request(name: &str, words: &[String]) -> Result<Value> {
    let dir = RunDir::of(name);
    let mut stream = UnixStream::connect(dir.socket())
        .map_err(|_| Error::Request(format!("no network named '{name}' is running; see: weir emulate list")))?;
    let talk = |stream: &mut UnixStream| -> std::io::Result<String> {
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.write_all(Value::from(words).to_string().as_bytes())?;
        stream.shutdown(std::net::Shutdown::Write)?;
        let mut text = String::new();
        stream.take(MOST_REPLY_BYTES).read_to_string(&mut text)?;
        Ok(text)
    };
    let text = talk(&mut stream).context(|| format!("talk to '{name}'"))?;
    let reply: Value = serde_json::from_str(&text)
        .map_err(|e| Error::Request(format!("'{name}' gave a reply that is not JSON: {e}")))?;
    match reply.get("error").and_then(Value::as_str) {
        Some(error) => Err(Error::Request(error.to_owned())),
        None => Ok(reply),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Spec;
    use proptest::prelude::*;
    use std::sync::Mutex;
    use std::sync::atomic::AtomicBool;

    /// A network without hosts, which needs no right to be made.
    fn nobody() -> Shared {
        let spec = Spec { hosts: Vec::new(), networks: Vec::new(), ..Spec::star(1) };
        let (dir, links, stop) = (RunDir { path: "/nowhere".into() }, Vec::new(), AtomicBool::new(false));
        Shared {
            name: "test".into(),
            spec,
            dir,
            links,
            door: None,
            started: Instant::now(),
            stop,
            changes: Mutex::default(),
        }
    }

    /// The one line that a client gets who sends these bytes.
    fn reply_to(bytes: &[u8]) -> Value {
        let (mut client, server) = UnixStream::pair().unwrap();
        client.write_all(bytes).unwrap();
        client.shutdown(std::net::Shutdown::Write).unwrap();
        answer(server, &nobody()).unwrap();
        let mut text = String::new();
        client.read_to_string(&mut text).unwrap();
        assert_eq!(text.lines().count(), 1, "{text:?}");
        serde_json::from_str(&text).unwrap()
    }

    fn words() -> impl Strategy<Value = Vec<String>> {
        let word = prop_oneof![
            4 => "(cut|heal|set|stats|info|stop|host1|net1|up|down|both)",
            2 => "(loss|delay|rate|queue|burst|jitter|gilbert|seed)=[0-9]{0,3}[.]?[0-9]{0,2}(%|ms|m|p|kB|nan|inf|\n)?",
            1 => "(?s).{0,8}",
        ];
        proptest::collection::vec(word, 0..7)
    }

    proptest! {
        #[test]
        fn any_bytes_are_answered_with_one_object_that_says_what_is_wrong(bytes: Vec<u8>, words in words(), at: usize, to: u8) {
            let mut damaged = serde_json::to_vec(&words).unwrap();
            let at = at % damaged.len();
            damaged[at] = to;
            for bytes in [bytes, serde_json::to_vec(&words).unwrap(), damaged] {
                let reply = reply_to(&bytes);
                let error = reply.as_object().expect("an object").get("error");
                prop_assert!(error.is_none_or(|e| e.as_str().is_some_and(|e| !e.contains(char::is_control))), "{reply}");
            }
        }

        #[test]
        fn written_requests_are_understood(
            host in "[a-z0-9]{1,9}", network in "[a-z0-9]{1,9}", loss in 0u32..=100, delay in 0u32..1000,
            side in proptest::option::of(proptest::sample::select(vec![Direction::Up, Direction::Down, Direction::Both])),
        ) {
            let side_word = side.map(|side| format!("{side:?}").to_lowercase());
            let settings = [format!("loss={loss}%"), format!("delay={delay}ms")];
            for verb in ["cut", "heal", "set"] {
                let mut words = vec![verb, &host, &network];
                words.extend(side_word.as_deref());
                words.extend(settings.iter().filter(|_| verb == "set").map(String::as_str));
                let Request::Change { host: h, network: n, direction, action } = understand(&words).unwrap() else {
                    return Err(TestCaseError::fail("not a change"));
                };
                prop_assert_eq!((h, n), (&*host, &*network));
                prop_assert_eq!(direction, side.unwrap_or(Direction::Usual));
                match action {
                    Action::Set(set) => prop_assert!(set.loss == Some(f64::from(loss) / 100.0) && set.delay == Some(u64::from(delay) * 1_000_000)),
                    other => prop_assert_eq!(format!("{other:?}").to_lowercase(), verb),
                }
            }
        }
    }
}
