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
    let reply = reply.unwrap_or_else(|e| json!({ "error": e.to_string() }));
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

fn obey(words: &[&str], shared: &Shared) -> Result<Value> {
    let bad = Error::Request;
    match words {
        ["stats"] => Ok(serde_json::to_value(shared.stats()?).unwrap_or_default()),
        ["info"] => Ok(shared.info()),
        ["stop"] => {
            shared.request_stop();
            Ok(json!({}))
        }
        [verb @ ("cut" | "heal"), host, network, rest @ ..] => {
            let direction = match rest {
                [] => Direction::Both,
                [word] => word.parse().map_err(bad)?,
                _ => return Err(bad(format!("too many words; write {USAGE}"))),
            };
            let action = if *verb == "cut" { Action::Cut } else { Action::Heal };
            shared.change(host, network, direction, action).map(|()| json!({}))
        }
        ["set", host, network, rest @ ..] => {
            let (direction, settings) = match rest {
                [word, settings @ ..] if !word.contains('=') => {
                    let neither = |_| {
                        bad(format!("'{word}' is neither a direction (up, down, both) nor KEY=VALUE, as in loss=2%"))
                    };
                    (word.parse().map_err(neither)?, settings)
                }
                settings => (Direction::Down, settings),
            };
            if settings.is_empty() {
                return Err(bad("set needs at least one KEY=VALUE, as in loss=2%".into()));
            }
            let settings = PipeSettings::from_words(settings.iter().copied()).map_err(bad)?;
            shared.change(host, network, direction, Action::Set(Box::new(settings))).map(|()| json!({}))
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
        stream.read_to_string(&mut text)?;
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
