//! Messages between the endpoints of two hosts: round trips, and windows one way.

use std::time::{Duration, Instant};

use weir_bench::sys::port::{In, Out, Port};

use crate::words::Quantiles;

const DATA: u16 = 1;
const DONE: u16 = 2;
/// Nothing for so long: the other one is not there, or does not come through.
const PATIENCE: Duration = Duration::from_secs(5);
/// Polls between two looks at the time.
const POLLS: u32 = 256;
/// What a question may ask for at most.
pub const MOST_BYTES: usize = 64 << 20;

fn words(error: weir_bench::BenchError) -> String {
    error.to_string()
}

/// Waits until a message can be received, but not for ever.
fn wait(port: &Port, from: usize, tag: u16) -> Result<(), String> {
    let mut begun = None;
    loop {
        for _ in 0..POLLS {
            if port.arrived(from, tag).map_err(words)? {
                return Ok(());
            }
        }
        if begun.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
            return Err(format!("nothing came from the other endpoint for {} s", PATIENCE.as_secs()));
        }
    }
}

fn receive(port: &Port, into: &mut [u8], from: usize, tag: u16) -> Result<(), String> {
    wait(port, from, tag)?;
    let receive = In { into, from: Some(from), count: 1, exact: true };
    port.run(None, Some(receive), tag, || {}).map(|_| ()).map_err(words)
}

fn send(port: &Port, data: &[u8], to: usize, tag: u16) -> Result<(), String> {
    port.run(Some(Out { data, to, count: 1 }), None, tag, || {}).map(|_| ()).map_err(words)
}

/// Sends messages back.
///
/// # Errors
/// The endpoint's, or that nothing came.
pub fn answer(port: &Port, other: usize, bytes: usize, count: u32) -> Result<(), String> {
    let mut buffer = vec![0; bytes];
    for _ in 0..count {
        receive(port, &mut buffer, other, DATA)?;
        send(port, &buffer, other, DATA)?;
    }
    Ok(())
}

/// Times messages there and back.
///
/// # Errors
/// As [`answer`].
pub fn round_trips(port: &Port, other: usize, bytes: usize, count: u32) -> Result<Quantiles, String> {
    let mut buffer = vec![1; bytes];
    let mut times = Vec::with_capacity(count as usize);
    for _ in 0..count {
        let begun = Instant::now();
        send(port, &buffer, other, DATA)?;
        receive(port, &mut buffer, other, DATA)?;
        times.push(begun.elapsed().as_secs_f64() * 1e6);
    }
    Ok(Quantiles::of(&mut times))
}

/// Takes windows of messages, and acknowledges each.
///
/// # Errors
/// As [`answer`].
pub fn take(port: &Port, other: usize, bytes: usize, window: u32, count: u32) -> Result<(), String> {
    let mut buffer = vec![0; bytes * window as usize];
    for _ in 0..count {
        wait(port, other, DATA)?;
        let receive = In { into: &mut buffer, from: Some(other), count: window as usize, exact: true };
        port.run(None, Some(receive), DATA, || {}).map_err(words)?;
        send(port, &[], other, DONE)?;
    }
    Ok(())
}

/// Sends windows of messages.
///
/// # Errors
/// As [`answer`].
pub fn stream(port: &Port, other: usize, bytes: usize, window: u32, count: u32) -> Result<Duration, String> {
    let buffer = vec![1; bytes * window as usize];
    let begun = Instant::now();
    for _ in 0..count {
        port.run(Some(Out { data: &buffer, to: other, count: window as usize }), None, DATA, || {}).map_err(words)?;
        receive(port, &mut [], other, DONE)?;
    }
    Ok(begun.elapsed())
}
