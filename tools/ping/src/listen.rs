//! An end that listens, and a driver that finds it (`spec/ping.md` 4).

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use weir_job::JobKey;

use crate::channel::{Channel, MOST_BYTES};
use crate::proof::{self, NONCE_BYTES, Nonces, Role, Session};
use crate::{Error, clean, end, hex, unhex};

/// The port, unless another is named.
pub const PORT: u16 = 47470;
/// How long whoever connects may take to prove himself, and a connection to be made.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Serialize, Deserialize)]
struct Greeting {
    weir_ping: u32,
    version: String,
    fingerprint: String,
    nonce: String,
}

#[derive(Serialize, Deserialize)]
struct Claim {
    nonce: String,
    proof: String,
}

#[derive(Serialize, Deserialize)]
struct Proof {
    proof: String,
}

/// Listens, and answers one driver after the other; `tell` hears how it goes. Returns only with
/// `once`, after the first driver.
///
/// # Errors
/// The address cannot be had.
pub fn serve(address: &str, key: &JobKey, version: &str, once: bool, tell: &mut dyn FnMut(&str)) -> Result<(), Error> {
    let listener = listener(address)?;
    let own = listener.local_addr().map_or_else(|_| address.to_owned(), |own| own.to_string());
    tell(&format!(
        "listening at {own}, key {}; on the other host: weir ping HOST:{}",
        key.fingerprint(),
        own.rsplit(':').next().unwrap_or_default()
    ));
    loop {
        let (stream, from) = match listener.accept() {
            Ok(accepted) => accepted,
            Err(error) => {
                tell(&format!("a connection was lost: {error}"));
                std::thread::sleep(Duration::from_millis(100));
                continue;
            }
        };
        let from = std::net::SocketAddr::new(from.ip().to_canonical(), from.port());
        let answered = as_end(stream, key, version, PATIENCE).and_then(|mut channel| {
            tell(&format!("{from} asks"));
            end::serve(&mut channel, version)
        });
        match answered {
            Ok(()) => tell(&format!("{from} is done")),
            Err(error) => tell(&format!("{from}: {error}")),
        }
        if once {
            return Ok(());
        }
    }
}

/// Listens at an address with a port, or at all addresses: those of IPv4 alone where the kernel has
/// no IPv6.
fn listener(address: &str) -> Result<TcpListener, Error> {
    let of_all = |port: u16| TcpListener::bind(&[all_addresses(port, true), all_addresses(port, false)][..]);
    let (bound, place) = match address.parse::<u16>() {
        Ok(port) => (of_all(port), format!("port {port}")),
        Err(_) if address.is_empty() => (of_all(PORT), format!("port {PORT}")),
        Err(_) => (TcpListener::bind(address), address.to_owned()),
    };
    bound.map_err(|error| Error::Failed(format!("cannot listen at {place}: {error}")))
}

fn all_addresses(port: u16, ipv6: bool) -> SocketAddr {
    use std::net::{Ipv4Addr, Ipv6Addr};
    if ipv6 { (Ipv6Addr::UNSPECIFIED, port).into() } else { (Ipv4Addr::UNSPECIFIED, port).into() }
}

/// Connects to where an end listens.
///
/// # Errors
/// The name does not resolve, or nobody answers, in words.
pub fn reach(address: &str) -> Result<TcpStream, Error> {
    let (host, _) = address.rsplit_once(':').unwrap_or((address, ""));
    let all: Vec<SocketAddr> = address
        .to_socket_addrs()
        .map_err(|error| Error::Failed(format!("the name {host} is not known here: {error}")))?
        .collect();
    let mut last = format!("the name {host} has no address");
    for one in all {
        match TcpStream::connect_timeout(&one, PATIENCE) {
            Ok(stream) => return Ok(stream),
            Err(error) => {
                last = match error.kind() {
                    std::io::ErrorKind::ConnectionRefused => {
                        format!("{one} refuses: is weir ping --listen running there, and at this port?")
                    }
                    std::io::ErrorKind::TimedOut | std::io::ErrorKind::WouldBlock => {
                        format!(
                            "{one} does not answer: the host is down, or something on the way drops TCP to this port"
                        )
                    }
                    _ => format!("{one}: {error}"),
                }
            }
        }
    }
    Err(Error::Failed(last))
}

fn fresh_nonce() -> Result<[u8; NONCE_BYTES], Error> {
    let mut nonce = [0; NONCE_BYTES];
    getrandom::fill(&mut nonce).map_err(|error| Error::Failed(format!("no random numbers: {error}")))?;
    Ok(nonce)
}

/// A stream that is read until a time: whoever says a byte now and then does not hold it for
/// longer.
struct Input {
    stream: TcpStream,
    until: Option<Instant>,
}

impl Read for Input {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        if let Some(until) = self.until {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(std::io::ErrorKind::TimedOut.into());
            }
            self.stream.set_read_timeout(Some(left))?;
        }
        self.stream.read(into)
    }
}

/// A stream on which lines go to and fro before there is a channel.
struct Meeting {
    input: BufReader<Input>,
    out: TcpStream,
}

impl Meeting {
    /// Of both it is over after `patience`.
    fn new(stream: TcpStream, patience: Duration) -> Result<Meeting, Error> {
        let set = stream.set_write_timeout(Some(patience)).and_then(|()| stream.set_nodelay(true));
        let out = set.and_then(|()| stream.try_clone()).map_err(|error| Error::Channel(error.to_string()))?;
        Ok(Meeting { input: BufReader::new(Input { stream, until: Some(Instant::now() + patience) }), out })
    }

    fn send(&mut self, message: &impl Serialize) -> Result<(), Error> {
        let text = serde_json::to_string(message).map_err(|error| Error::Channel(error.to_string()))? + "\n";
        self.out.write_all(text.as_bytes()).map_err(|error| Error::Channel(format!("hung up: {error}")))
    }

    fn receive<T: DeserializeOwned>(&mut self) -> Result<T, Error> {
        let mut line = Vec::new();
        let read = (&mut self.input).take(MOST_BYTES as u64).read_until(b'\n', &mut line);
        if read.is_err() || line.is_empty() {
            return Err(Error::Channel("hung up, or is silent: it may not have this job's key".into()));
        }
        serde_json::from_slice(&line).map_err(|_| Error::Channel("it is no weir ping that listens there".into()))
    }

    fn into_channel(mut self, key: &[u8; 32], role: Role, nonces: &Nonces) -> Result<Channel, Error> {
        self.input.get_mut().until = None;
        self.out.set_read_timeout(None).map_err(|error| Error::Channel(error.to_string()))?;
        let mut channel = Channel::new(self.input, self.out);
        channel.seal(Session::new(key, role, nonces));
        Ok(channel)
    }
}

/// The listener's side of the meeting.
fn as_end(stream: TcpStream, key: &JobKey, version: &str, patience: Duration) -> Result<Channel, Error> {
    let mut meeting = Meeting::new(stream, patience)?;
    let end = fresh_nonce()?;
    meeting.send(&Greeting {
        weir_ping: 1,
        version: version.to_owned(),
        fingerprint: key.fingerprint(),
        nonce: hex(&end),
    })?;
    let claim: Claim = meeting.receive()?;
    let driver = unhex(&claim.nonce).ok_or_else(|| Error::Channel("a number of another length".into()))?;
    let nonces = Nonces { end, driver };
    if !proof::holds(&key.bytes, Role::Driver, &nonces, &claim.proof) {
        return Err(Error::Channel("turned away: it has another key".into()));
    }
    meeting.send(&Proof { proof: proof::of(&key.bytes, Role::End, &nonces) })?;
    meeting.into_channel(&key.bytes, Role::End, &nonces)
}

/// The driver's side.
///
/// # Errors
/// The listener has another key or version, or is none.
pub fn as_driver(stream: TcpStream, key: &JobKey) -> Result<Channel, Error> {
    let mut meeting = Meeting::new(stream, PATIENCE)?;
    let greeting: Greeting = meeting.receive()?;
    if greeting.weir_ping != 1 {
        return Err(Error::Failed(format!(
            "weir {} listens there, whose questions are of format {}; here it is 1",
            clean(&greeting.version),
            greeting.weir_ping
        )));
    }
    if greeting.fingerprint != key.fingerprint() {
        return Err(Error::Failed(format!(
            "another key: {} there, {} here (from {}); give both hosts the same WEIR_KEY or WEIR_KEY_FILE",
            clean(&greeting.fingerprint),
            key.fingerprint(),
            key.source
        )));
    }
    let end = unhex(&greeting.nonce).ok_or_else(|| Error::Channel("a number of another length".into()))?;
    let nonces = Nonces { end, driver: fresh_nonce()? };
    meeting.send(&Claim { nonce: hex(&nonces.driver), proof: proof::of(&key.bytes, Role::Driver, &nonces) })?;
    let back: Proof = meeting.receive()?;
    if !proof::holds(&key.bytes, Role::End, &nonces, &back.proof) {
        return Err(Error::Failed("who listens there says that it has this job's key, and does not".into()));
    }
    meeting.into_channel(&key.bytes, Role::Driver, &nonces)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::{Answer, Question};

    fn key(byte: u8) -> JobKey {
        JobKey { bytes: [byte; 32], source: weir_job::KeySource::Environment }
    }

    /// What a driver with a key and a listener with another say.
    fn meet(driver: &JobKey, end: JobKey) -> (Result<Channel, Error>, Result<Channel, Error>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let thread = std::thread::spawn(move || as_end(listener.accept().unwrap().0, &end, "1.2", PATIENCE));
        let at_driver = as_driver(reach(&address).unwrap(), driver);
        (at_driver, thread.join().unwrap())
    }

    #[test]
    fn who_has_the_key_is_heard_and_who_has_another_is_told_both() {
        let (driver, end) = meet(&key(7), key(7));
        let (mut driver, mut end) = (driver.unwrap(), end.unwrap());
        driver.send(&Question::Carrier).unwrap();
        assert_eq!(end.receive::<Question>(PATIENCE).unwrap(), Question::Carrier);
        end.send(&Answer::Done).unwrap();
        assert_eq!(driver.receive::<Answer>(PATIENCE).unwrap(), Answer::Done);
        let (driver, end) = meet(&key(7), key(8));
        let text = driver.err().unwrap().to_string();
        assert!(
            text.contains("another key")
                && text.contains(&key(7).fingerprint())
                && text.contains(&key(8).fingerprint()),
            "{text}"
        );
        assert!(end.is_err());
    }

    #[test]
    fn a_driver_that_lies_about_its_key_is_turned_away() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let thread = std::thread::spawn(move || as_end(listener.accept().unwrap().0, &key(8), "1.2", PATIENCE));
        let mut meeting = Meeting::new(TcpStream::connect(address).unwrap(), PATIENCE).unwrap();
        let greeting: Greeting = meeting.receive().unwrap();
        let nonces = Nonces { end: unhex(&greeting.nonce).unwrap(), driver: [3; 16] };
        meeting.send(&Claim { nonce: hex(&nonces.driver), proof: proof::of(&[7; 32], Role::Driver, &nonces) }).unwrap();
        assert!(meeting.receive::<Proof>().is_err());
        assert!(thread.join().unwrap().err().unwrap().to_string().contains("another key"));
    }

    #[test]
    fn who_says_a_byte_now_and_then_does_not_hold_the_listener() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut slow = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let saying = std::thread::spawn(move || {
            while slow.write_all(b"x").is_ok() {
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        let (stream, begun) = (listener.accept().unwrap().0, Instant::now());
        assert!(as_end(stream, &key(8), "1.2", Duration::from_millis(300)).is_err());
        // (Far less than its bytes would last: 65 536 of them are a line.)
        assert!(begun.elapsed() < Duration::from_secs(60));
        saying.join().unwrap();
    }

    #[test]
    fn an_unknown_name_and_a_closed_port_are_told_apart() {
        let text = reach("no-such-host.invalid:1").unwrap_err().to_string();
        assert!(text.starts_with("the name no-such-host.invalid is not known here"), "{text}");
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        assert!(reach(&free.to_string()).unwrap_err().to_string().contains("refuses"));
    }
}
