//! A process that serves or asks. It does what standard input says and ends when that does: whoever
//! started it, however it died, leaves nothing behind.

use std::io::{BufRead, Write};
use std::net::{TcpListener, ToSocketAddrs};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use crate::error::{BenchError, Result};
use crate::host::{self, Facts};
use crate::stop::{self, Then};
use crate::sys::process;

use super::ask::{self, IDLE, Monotonic, Time};
use super::carry::{Asking, BmiClient, BmiServer, Serving};
use super::key;
use super::sockets::{SocketClient, SocketServer};
use super::words::{Order, Report, Stack};

/// Who has no orders any more ends by itself within this time, or is ended: a library may hang.
const LAST: Duration = Duration::from_secs(3);
/// A free port may be taken by another process before it is listened at.
const TRIES: u32 = 5;
/// An order is a line no longer than this.
const LONGEST_LINE: usize = 1 << 16;

/// Does what standard input says until its end; returns the exit code.
#[must_use]
pub fn run() -> u8 {
    // A terminal tells all processes of Ctrl-C; who leads decides.
    let deaf = stop::listen(Then::Look, 1).map(|_| ());
    let (to, orders) = channel();
    std::thread::spawn(move || read(&to));
    match deaf.and_then(|()| obey(&orders)) {
        Ok(()) => 0,
        Err(error) => {
            say(&Report::Failed(error.to_string()));
            1
        }
    }
}

/// Hands on what is ordered. When nobody orders any more, this process has little time left.
fn read(to: &Sender<Result<Order>>) {
    let mut lines = std::io::stdin().lock();
    let mut line = String::new();
    loop {
        line.clear();
        match std::io::Read::take(&mut lines, LONGEST_LINE as u64).read_line(&mut line) {
            Ok(0) | Err(_) => break,
            Ok(_) => {
                let order = serde_json::from_str(&line);
                let order = order.map_err(|error| BenchError::machine("an order on standard input", error));
                let wrong = order.is_err();
                if to.send(order).is_err() || wrong {
                    break;
                }
            }
        }
    }
    // The other end of the channel is closed with this one.
    let _ = std::thread::spawn(|| {
        std::thread::sleep(LAST);
        process::end(1)
    });
}

fn say(report: &Report) {
    if let Ok(mut line) = serde_json::to_string(report) {
        line.push('\n');
        let mut out = std::io::stdout().lock();
        // Who does not listen has closed standard input, too.
        let _ = out.write_all(line.as_bytes()).and_then(|()| out.flush());
    }
}

fn obey(orders: &Receiver<Result<Order>>) -> Result<()> {
    match orders.recv() {
        Ok(Ok(Order::Serve { stack, address, port })) => serve(orders, &stack, &address, port),
        Ok(Ok(Order::Ask { stack, url, timeout_ms })) => {
            client(orders, &stack, &url, timeout_ms).map_err(|error| at(&url, error))
        }
        Ok(Ok(_)) => Err(BenchError::machine("the first order", "neither to serve nor to ask")),
        Ok(Err(error)) => Err(error),
        Err(_) => Ok(()),
    }
}

fn ready(port: u16) -> Report {
    Report::Ready { facts: Box::new(Facts::here()), clock: host::clock_identity(), port }
}

/// A port that nobody has at this address, for the moment.
fn free_port(address: &str) -> Result<u16> {
    let failed = |error: std::io::Error| BenchError::machine(format!("a port at {address}"), error);
    let bare = address.trim_start_matches('[').trim_end_matches(']');
    let mut places = (bare, 0).to_socket_addrs().map_err(failed)?;
    let place = places.next().ok_or_else(|| failed(std::io::ErrorKind::AddrNotAvailable.into()))?;
    Ok(TcpListener::bind(place).and_then(|listener| listener.local_addr()).map_err(failed)?.port())
}

/// Whether somebody else listens at this port: as ours and the system say it.
fn is_taken(error: &BenchError) -> bool {
    let said = error.to_string();
    ["EADDRINUSE", "already in use"].iter().any(|words| said.contains(words))
}

fn listen(stack: &Stack, url: &str) -> Result<Box<dyn Serving>> {
    Ok(if stack.is_sockets() { Box::new(SocketServer::new(url)?) } else { Box::new(BmiServer::new(stack, url)?) })
}

/// Listens at this address, at a port that is free if none is named; says at which.
///
/// # Errors
/// The library's, or the system's.
pub fn listen_at(stack: &Stack, address: &str, port: Option<u16>) -> Result<(Box<dyn Serving>, u16)> {
    let mut tries = 0;
    loop {
        let at = port.map_or_else(|| free_port(address), Ok)?;
        tries += 1;
        match listen(stack, &stack.url(address, at)) {
            Ok(serving) => return Ok((serving, at)),
            Err(error) if port.is_none() && tries < TRIES && is_taken(&error) => {}
            Err(error) => return Err(error),
        }
    }
}

fn serve(orders: &Receiver<Result<Order>>, stack: &Stack, address: &str, port: Option<u16>) -> Result<()> {
    let (mut serving, port) = listen_at(stack, address, port)?;
    say(&ready(port));
    let (mut requests, mut used_ns) = (0, process::cpu_ns());
    loop {
        match orders.try_recv() {
            Ok(Ok(Order::Usage)) => {
                let now_ns = process::cpu_ns();
                say(&Report::Usage { cpu_ns: now_ns - used_ns, peak_bytes: host::peak_memory_bytes(), requests });
                host::forget_peak_memory();
                (requests, used_ns) = (0, now_ns);
            }
            Ok(Ok(Order::Time)) => say(&Report::Time(Monotonic.now_ns())),
            Ok(Ok(_)) => return Err(BenchError::machine("an order", "not for a server")),
            Ok(Err(error)) => return Err(error),
            Err(std::sync::mpsc::TryRecvError::Disconnected) => return Ok(()),
            Err(std::sync::mpsc::TryRecvError::Empty) => {}
        }
        requests += serving.turn(IDLE)?;
    }
}

/// Why the first request was not answered: a server does not answer who has another key, nor say so
/// to him.
fn unanswered(error: BenchError, stack: &Stack, url: &str) -> BenchError {
    match key::told(stack) {
        Some(key) => BenchError::machine(
            format!("{url} answers nothing"),
            format!("{error}; here is {key}, is it the server's?"),
        ),
        None => error,
    }
}

/// What went wrong with a server's answers, with where it is.
fn at(url: &str, error: BenchError) -> BenchError {
    let known = error.to_string().contains(url);
    if known { error } else { BenchError::machine(format!("asking {url}"), error) }
}

fn client(orders: &Receiver<Result<Order>>, stack: &Stack, url: &str, timeout_ms: u64) -> Result<()> {
    let mut asking: Box<dyn Asking> =
        if stack.is_sockets() { Box::new(SocketClient::new(url)?) } else { Box::new(BmiClient::new(stack, url)?) };
    // The first one makes the connection.
    let now = Monotonic.now_ns();
    let first = ask::round(asking.as_mut(), &Monotonic, now, 8, Duration::from_millis(timeout_ms));
    first.map_err(|error| unanswered(error, stack, url))?;
    say(&ready(0));
    loop {
        // Nobody looks after a library that needs to be called meanwhile: it is called now and
        // then.
        let order = match orders.recv_timeout(Duration::from_millis(500)) {
            Ok(order) => order?,
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
            Err(RecvTimeoutError::Timeout) => {
                asking.answers(Duration::ZERO, &mut |_| {})?;
                continue;
            }
        };
        match order {
            Order::Time => say(&Report::Time(Monotonic.now_ns())),
            Order::Round { begin_ns, bytes, timeout_ms } => {
                let timeout = Duration::from_millis(timeout_ms);
                let (timed, late) = ask::round(asking.as_mut(), &Monotonic, begin_ns, bytes, timeout)?;
                say(&Report::Round { timed, late });
            }
            Order::Stream { begin_ns, bytes, due, timeout_ms } => {
                let timeout = Duration::from_millis(timeout_ms);
                let all = ask::stream(asking.as_mut(), &Monotonic, begin_ns, bytes, &ask::due(due), timeout)?;
                say(&Report::Stream(all));
            }
            _ => return Err(BenchError::machine("an order", "not for a client")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_wrong_with_answers_is_told_with_the_server() {
        let late = BenchError::machine("waiting for answers", "1 request was not answered");
        assert_eq!(
            at("tcp://n1:4", late).to_string(),
            "asking tcp://n1:4: waiting for answers: 1 request was not answered"
        );
        let named = || BenchError::machine("connecting to n1:4", "Connection refused");
        assert_eq!(at("n1:4", named()).to_string(), named().to_string());
    }
}
