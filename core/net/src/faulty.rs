//! A bad network before a device: drops, doubles, damages and delays its datagrams, on the way out
//! and in.
//!
//! For tests where no network can be emulated (`weir emulate` is the better tool: it also has
//! queues and rates). What the network is like is a list such as
//! `loss=1%,dup=0.1%,corrupt=0.1%,delay=2ms,jitter=1ms,seed=7`; keys that start with `rx_` hold for
//! what arrives, the others for what is sent. With jitter datagrams overtake each other.

use alloc::boxed::Box;
use alloc::collections::BinaryHeap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::ffi::c_int;
use core::net::SocketAddr;
use core::ops::Deref;

use rand_core::SeedableRng;
use rand_pcg::Pcg64Mcg;

use crate::{Chance, Datagrams, Loss, Offer, Pipe, PipeSpec, Reorder, Route, RxInfo, TimeNs, WAKE_SOURCES, below};

/// Most bytes held back at a time; what comes beyond is dropped, as by a router's full queue.
const HELD_LIMIT_BYTES: usize = 64 << 20;
/// What a datagram counts at least, so that tiny ones are bounded in number too.
const HELD_LEAST_BYTES: usize = 256;

/// A datagram on its way, by when it is due and by its number; `T` says where it goes.
struct Held<T> {
    key: Reverse<(TimeNs, u64)>,
    about: T,
    bytes: Vec<u8>,
}

impl<T> PartialEq for Held<T> {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}
impl<T> Eq for Held<T> {}
impl<T> PartialOrd for Held<T> {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl<T> Ord for Held<T> {
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        self.key.cmp(&other.key)
    }
}

/// One direction.
struct Way<T> {
    pipe: Pipe<Pcg64Mcg>,
    held: BinaryHeap<Held<T>>,
    held_bytes: usize,
    order: u64,
    /// Datagrams that were lost, doubled, damaged or delayed.
    faults: u64,
}

impl<T: Clone> Way<T> {
    fn new(spec: PipeSpec, seed: u64) -> Way<T> {
        let pipe = Pipe::new(spec, Pcg64Mcg::seed_from_u64(seed));
        Way { pipe, held: BinaryHeap::new(), held_bytes: 0, order: 0, faults: 0 }
    }

    /// Takes a datagram; what remains of it comes out of [`Way::due`].
    fn admit(&mut self, now_ns: TimeNs, about: T, mut bytes: Vec<u8>) {
        let bits = bytes.len() as u64 * 8;
        let offer = self.pipe.offer(now_ns, bytes.len() as u32, |_, rng: &mut Pcg64Mcg| below(rng, bits));
        let Offer::Deliver { at_ns, copy_at_ns, damage, .. } = offer else {
            self.faults += 1;
            return;
        };
        if let Some(copy_ns) = copy_at_ns {
            self.faults += 1;
            self.hold(copy_ns, about.clone(), bytes.clone());
        }
        self.faults += u64::from(at_ns > now_ns);
        if let Some(byte) = damage.and_then(|bit| bytes.get_mut((bit / 8) as usize)) {
            *byte ^= 1 << (damage.unwrap_or(0) % 8);
            self.faults += 1;
        }
        self.hold(at_ns, about, bytes);
    }

    fn hold(&mut self, due_ns: TimeNs, about: T, bytes: Vec<u8>) {
        let cost = bytes.len().max(HELD_LEAST_BYTES);
        if self.held_bytes + cost > HELD_LIMIT_BYTES {
            self.faults += 1;
            return;
        }
        self.held_bytes += cost;
        self.order += 1;
        self.held.push(Held { key: Reverse((due_ns, self.order)), about, bytes });
    }

    /// The next datagram whose time has come.
    fn due(&mut self, now_ns: TimeNs) -> Option<(T, Vec<u8>)> {
        self.next_due_ns().filter(|&due| due <= now_ns)?;
        let h = self.held.pop()?;
        self.held_bytes -= h.bytes.len().max(HELD_LEAST_BYTES);
        Some((h.about, h.bytes))
    }

    fn next_due_ns(&self) -> Option<TimeNs> {
        self.held.peek().map(|h| h.key.0.0)
    }
}

/// The bad network, both ways.
struct Faults {
    tx: Way<Route>,
    rx: Way<RxInfo>,
}

/// A device behind a bad network; or the device alone, at the cost of looking whether there is one.
pub struct Faulty<D> {
    device: D,
    faults: Option<Box<Faults>>,
}

impl<D: Datagrams> Faulty<D> {
    /// The device, and before it the network that `text` describes, if it describes one; `salt`
    /// makes endpoints with the same seed differ from each other.
    ///
    /// # Errors
    /// What is wrong with the text, in one line.
    pub fn new(device: D, text: Option<&str>, salt: u64) -> Result<Faulty<D>, String> {
        let faults = text.map(|text| {
            let (tx, rx, seed) = parse(text).map_err(|e| format!("'{text}': {e}").replace(char::is_control, " "))?;
            let seed = seed ^ salt.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            Ok::<_, String>(Box::new(Faults { tx: Way::new(tx, seed), rx: Way::new(rx, !seed) }))
        });
        Ok(Faulty { device, faults: faults.transpose()? })
    }

    /// The device.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// Datagrams that were lost, doubled, damaged or delayed on purpose.
    pub fn faults_injected(&self) -> u64 {
        self.faults.as_ref().map_or(0, |f| f.tx.faults + f.rx.faults)
    }

    #[cold]
    fn recv_badly(
        &mut self,
        now_ns: TimeNs,
        batches: usize,
        mut deliver: impl FnMut(&RxInfo, &mut [u8]),
    ) -> Result<usize, D::Error> {
        let Some(faults) = &mut self.faults else { return Ok(0) };
        let rx = &mut faults.rx;
        let read = self.device.recv(now_ns, batches, |info, datagram| rx.admit(now_ns, *info, datagram.to_vec()));
        let mut n = 0;
        while let Some((info, mut datagram)) = rx.due(now_ns) {
            deliver(&info, &mut datagram);
            n += 1;
        }
        // What was held back leaves when the owner looks, too.
        self.flush(now_ns);
        read.map(|_| n)
    }

    #[cold]
    fn push_badly<P: Deref<Target = [u8]>>(&mut self, now_ns: TimeNs, route: Route, head: &[u8], payload: &[P]) {
        let Some(faults) = &mut self.faults else { return };
        let mut bytes = head.to_vec();
        payload.iter().for_each(|p| bytes.extend_from_slice(p));
        faults.tx.admit(now_ns, route, bytes);
        self.release_due(now_ns);
    }

    /// Hands on what was held back long enough.
    #[cold]
    fn release_due(&mut self, now_ns: TimeNs) {
        let Some(faults) = &mut self.faults else { return };
        while let Some((route, bytes)) = faults.tx.due(now_ns) {
            self.device.push::<&[u8]>(now_ns, route, &bytes, &[]);
        }
    }
}

impl<D: Datagrams> Datagrams for Faulty<D> {
    type Error = D::Error;

    #[inline]
    fn recv(
        &mut self,
        now_ns: TimeNs,
        batches: usize,
        deliver: impl FnMut(&RxInfo, &mut [u8]),
    ) -> Result<usize, D::Error> {
        if self.faults.is_some() {
            return self.recv_badly(now_ns, batches, deliver);
        }
        self.device.recv(now_ns, batches, deliver)
    }

    #[inline]
    fn push<P: Deref<Target = [u8]>>(&mut self, now_ns: TimeNs, route: Route, head: &[u8], payload: &[P]) {
        if self.faults.is_some() {
            return self.push_badly(now_ns, route, head, payload);
        }
        self.device.push(now_ns, route, head, payload);
    }

    #[inline]
    fn send_now(&mut self, now_ns: TimeNs, route: Route, datagram: &[u8]) {
        if self.faults.is_some() {
            self.push_badly::<&[u8]>(now_ns, route, datagram, &[]);
            return self.flush(now_ns);
        }
        self.device.send_now(now_ns, route, datagram);
    }

    #[inline]
    fn flush(&mut self, now_ns: TimeNs) {
        if self.faults.is_some() {
            self.release_due(now_ns);
        }
        self.device.flush(now_ns);
    }

    #[inline]
    fn blocked_at(&self) -> Option<c_int> {
        self.device.blocked_at()
    }

    fn next_due_ns(&self) -> Option<TimeNs> {
        let held = self.faults.as_ref().map(|f| [f.tx.next_due_ns(), f.rx.next_due_ns()]).unwrap_or_default();
        held.into_iter().chain([self.device.next_due_ns()]).flatten().min()
    }

    fn next_leaving_ns(&self) -> Option<TimeNs> {
        let held = self.faults.as_ref().and_then(|f| f.tx.next_due_ns());
        [held, self.device.next_leaving_ns()].into_iter().flatten().min()
    }

    fn wake_sources(&self) -> [c_int; WAKE_SOURCES] {
        self.device.wake_sources()
    }

    fn set_backlog(&mut self, bytes: Option<u64>) {
        self.device.set_backlog(bytes);
    }

    fn prepare_sleep(&mut self) -> bool {
        self.device.prepare_sleep()
    }

    fn local_addrs(&self) -> &[SocketAddr] {
        self.device.local_addrs()
    }

    fn max_datagram(&self) -> u16 {
        self.device.max_datagram()
    }

    fn rx_buffer_bytes(&self) -> u64 {
        self.device.rx_buffer_bytes()
    }

    #[inline]
    fn take_refused(&mut self, tell: impl FnMut(SocketAddr)) {
        self.device.take_refused(tell);
    }
}

fn parse(text: &str) -> Result<(PipeSpec, PipeSpec, u64), String> {
    let (mut tx, mut rx, mut seed) = (PipeSpec::default(), PipeSpec::default(), 1);
    for item in text.split(',').map(str::trim).filter(|i| !i.is_empty()) {
        let (key, value) = item.split_once('=').ok_or_else(|| format!("'{item}' is not KEY=VALUE, such as loss=1%"))?;
        if key == "seed" {
            seed = value.parse().map_err(|_| format!("seed '{value}' is not a whole number"))?;
            continue;
        }
        let (pipe, name) = match key.strip_prefix("rx_") {
            Some(name) => (&mut rx, name),
            None => (&mut tx, key),
        };
        match name {
            "loss" => pipe.loss = Loss::independent(share(value)?),
            "dup" => pipe.duplicate = share(value)?,
            "corrupt" => pipe.corrupt = share(value)?,
            "delay" => pipe.delay_ns = duration_ns(value)?,
            // All are held back, each for as long as it likes.
            "jitter" => pipe.reorder = Reorder { chance: Chance::ALWAYS, least_ns: 0, most_ns: duration_ns(value)? },
            _ => {
                return Err(format!(
                    "'{key}' is none of loss, dup, corrupt, delay, jitter (each also with rx_), seed; write for example loss=1%,delay=200us"
                ));
            }
        }
    }
    Ok((tx, rx, seed))
}

fn share(text: &str) -> Result<Chance, String> {
    let (number, scale) = text.strip_suffix('%').map_or((text, 1.0), |n| (n, 100.0));
    match number.parse::<f64>() {
        Ok(n) if (0.0..=scale).contains(&n) => Ok(Chance::of(n / scale)),
        _ => Err(format!("'{text}' is not a share such as 1% or 0.01")),
    }
}

fn duration_ns(text: &str) -> Result<TimeNs, String> {
    let bad = || format!("'{text}' is not a time up to 60s such as 200us or 2ms");
    let split = text.find(|c: char| c.is_alphabetic()).ok_or_else(bad)?;
    let unit_ns = match &text[split..] {
        "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        _ => return Err(bad()),
    };
    let ns = text[..split].parse::<f64>().map_err(|_| bad())? * unit_ns;
    if (0.0..=60e9).contains(&ns) { Ok(ns as TimeNs) } else { Err(bad()) }
}

#[cfg(test)]
mod tests;
