//! The data plane: one thread that carries packets between real interfaces and the model.
//!
//! It reads the ring, lets the model's time advance, sends what is due, and sleeps until the next
//! packet or the next due time. Packets enter the model at the time the kernel received them, so a
//! late wake-up delays only packets that were due meanwhile, and rates stay exact.

use crate::damage::damage;
use crate::ecn;
use crate::model::{Corruption, Destination, Events, Fabric, Handle, PipeSpec, PortId, Sink, TimeNs};
use crate::pool::Pool;
use crate::spec::{Action, Direction};
use crate::stats::{Lateness, PlaneStats};
use crate::sys::{RxRing, TxBatch};
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::eventfd::EventFd;
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError};

/// Packets taken from the ring before due packets get their turn.
const READ_BUDGET: usize = 128;
/// The longest that packets may wait in the ring when they are not due sooner.
const MOST_LAZY_NS: u64 = 100_000;
/// How much longer than asked a sleep lasts, at least: what bare metal takes to wake up.
const LEAST_WAKE_NS: u64 = 5_000;
/// ... and at most: a machine where all cores were busy while it was measured.
const MOST_WAKE_NS: u64 = 50_000;
/// Sleeps that are measured, and how long they are.
const TRIALS: usize = 21;
const TRIAL_NS: u64 = 20_000;

/// A request to the data plane.
#[derive(Debug)]
pub enum Command {
    /// Change a link now.
    Change(Change),
    /// Report the counters.
    Stats(Sender<PlaneStats>),
    /// Stop.
    Stop,
}

/// A change of one port.
#[derive(Clone, Debug)]
pub struct Change {
    /// The port.
    pub port: PortId,
    /// Which of its pipes.
    pub direction: Direction,
    /// What happens to them.
    pub action: Action,
}

/// New parameters of an uplink whose rate has changed, for whoever shapes the host's interface.
#[derive(Clone, Debug)]
pub struct NewRate {
    /// The port.
    pub port: PortId,
    /// The uplink.
    pub uplink: PipeSpec,
}

/// Everything the data plane works with.
#[derive(Debug)]
pub struct Plane {
    /// The model, its ports numbered as in `interfaces`.
    pub fabric: Fabric,
    /// The kernel's number of each port's interface.
    pub interfaces: Vec<i32>,
    /// Ports by network and Ethernet address.
    pub addresses: BTreeMap<[u8; 6], PortId>,
    /// Longest frame of each port.
    pub most_bytes: Vec<u32>,
    /// Changes to come, times from the start.
    pub schedule: Events<Change>,
    /// Requests.
    pub commands: Receiver<Command>,
    /// Written after a request was sent.
    pub wake: Arc<EventFd>,
    /// Where new uplink rates are announced.
    pub rates: Sender<NewRate>,
    /// Packets received.
    pub ring: RxRing,
    /// Packets sent.
    pub tx: TxBatch,
    /// Packets held.
    pub pool: Pool,
    /// The least time from host to host, kept up to date by the plane itself.
    pub transit_ns: u64,
    /// The last wait was for a due time so near that it was not worth a sleep: packets follow each
    /// other closely.
    pub napped: bool,
    /// What waking up takes here: see [`wake_ns`].
    pub wake_ns: u64,
}

/// What the model has handed over but the kernel has not got yet.
struct Outbox<'a> {
    pool: &'a mut Pool,
    due: &'a mut Vec<(i32, Handle, TimeNs)>,
    interfaces: &'a [i32],
}

impl Sink for Outbox<'_> {
    fn retain(&mut self, handle: Handle) {
        self.pool.retain(handle);
    }

    fn release(&mut self, handle: Handle) {
        self.pool.release(handle);
    }

    fn mark(&mut self, handle: Handle) -> (Handle, bool) {
        match ecn::bits(self.pool.get(handle)) {
            0 => return (handle, false),
            3 => return (handle, true),
            _ => {}
        }
        let handle = self.own(handle);
        let packet = self.pool.get_mut(handle);
        let is_marked = packet.is_some();
        if let Some(packet) = packet {
            ecn::mark(packet);
        }
        (handle, is_marked)
    }

    fn send(&mut self, at_ns: TimeNs, port: PortId, mut handle: Handle, corruption: Option<Corruption>) {
        if let Some(corruption) = corruption {
            handle = self.own(handle);
            if let Some(packet) = self.pool.get_mut(handle) {
                damage(packet, corruption);
            }
        }
        self.due.push((self.interfaces[port], handle, at_ns));
    }
}

impl Outbox<'_> {
    /// A packet that may be changed: a copy where others still hold this one; the same, which may
    /// not be, if memory is short.
    fn own(&mut self, handle: Handle) -> Handle {
        if self.pool.get_mut(handle).is_some() {
            return handle;
        }
        let Some(copy) = self.pool.duplicate(handle) else { return handle };
        self.pool.release(handle);
        copy
    }
}

fn clock_ns(clock: ClockId) -> u64 {
    clock_gettime(clock).map_or(0, |t| t.tv_sec() as u64 * 1_000_000_000 + t.tv_nsec() as u64)
}

fn timeout(ns: u64) -> TimeSpec {
    TimeSpec::new((ns / 1_000_000_000) as i64, (ns % 1_000_000_000) as i64)
}

/// How much longer than asked a short sleep of this thread lasts. It is 3 us on bare metal and 30
/// in some virtual machines, where each timer leaves the machine for its host. The processor is
/// busy for about as long, so it says both how early to wake up and which sleeps are not worth it.
fn wake_ns() -> u64 {
    let mut over = [0; TRIALS];
    for over in &mut over {
        let start_ns = clock_ns(ClockId::CLOCK_MONOTONIC);
        // Interrupted, it says little: the median does not care.
        let _ = ppoll(&mut [], Some(timeout(TRIAL_NS)), None);
        *over = (clock_ns(ClockId::CLOCK_MONOTONIC) - start_ns).saturating_sub(TRIAL_NS);
    }
    over.sort_unstable();
    over[TRIALS / 2].clamp(LEAST_WAKE_NS, MOST_WAKE_NS)
}

impl Plane {
    /// Runs until told to stop, or until nobody can tell any more. Call it on a thread of the
    /// switch's namespace.
    pub fn run(mut self) {
        let start_ns = clock_ns(ClockId::CLOCK_MONOTONIC);
        let mut ports = vec![None; self.interfaces.iter().max().map_or(0, |i| *i as usize + 1)];
        for (port, interface) in self.interfaces.iter().enumerate() {
            ports[*interface as usize] = Some(port);
        }
        let mut stats = PlaneStats::default();
        let mut late = Lateness::default();
        let mut due = Vec::with_capacity(READ_BUDGET);
        self.transit_ns = self.fabric.least_transit_ns();
        self.wake_ns = wake_ns();
        loop {
            let now_ns = clock_ns(ClockId::CLOCK_MONOTONIC);
            // Nothing in the model may pass the packets that are still in the ring.
            let (count, now_ns) = self.read(now_ns, &ports, &mut due, &mut stats);
            while let Some((at_ns, change)) = self.schedule.pop(now_ns.saturating_sub(start_ns)) {
                self.advance(start_ns + at_ns, &mut due);
                self.apply(&change);
            }
            self.advance(now_ns, &mut due);
            self.flush(&mut due, &mut late, &mut stats);
            match self.commands.try_recv() {
                Ok(Command::Change(change)) => {
                    self.apply(&change);
                    continue;
                }
                Ok(Command::Stats(reply)) => {
                    let _ = reply.send(self.report(&stats, &late));
                    continue;
                }
                Ok(Command::Stop) | Err(TryRecvError::Disconnected) => return,
                Err(TryRecvError::Empty) => {}
            }
            if !self.ring.ready() {
                self.sleep(start_ns, count > 0);
            }
        }
    }

    /// Moves packets from the ring into the model. Returns how many, and up to which time all have
    /// been moved.
    fn read(
        &mut self,
        now_ns: u64,
        ports: &[Option<PortId>],
        due: &mut Vec<(i32, Handle, u64)>,
        stats: &mut PlaneStats,
    ) -> (usize, u64) {
        if !self.ring.ready() {
            return (0, now_ns);
        }
        let realtime_ns = clock_ns(ClockId::CLOCK_REALTIME);
        let (fabric, pool, interfaces) = (&mut self.fabric, &mut self.pool, &self.interfaces);
        let (addresses, most_bytes) = (&self.addresses, &self.most_bytes);
        let mut last_ns = now_ns;
        for count in 0..READ_BUDGET {
            let took = self.ring.take(|frame| {
                let age_ns = realtime_ns.saturating_sub(frame.realtime_ns);
                last_ns = now_ns.saturating_sub(age_ns);
                let Some(port) = usize::try_from(frame.interface).ok().and_then(|i| *ports.get(i)?) else {
                    return;
                };
                if frame.len > most_bytes[port] || frame.data.len() != frame.len as usize || frame.len < 14 {
                    stats.oversize += 1;
                    return;
                }
                let Some(handle) = pool.store(frame.data) else {
                    stats.no_memory += 1;
                    return;
                };
                let mut outbox = Outbox { pool, due, interfaces };
                let mut mac = [0; 6];
                mac.copy_from_slice(&frame.data[..6]);
                let to = match addresses.get(&mac) {
                    Some(to) => Destination::Port(*to),
                    None if mac[0] & 1 == 1 => Destination::Flood,
                    None => {
                        fabric.count_unreachable();
                        outbox.release(handle);
                        return;
                    }
                };
                fabric.ingress(last_ns, port, to, frame.len, handle, &mut outbox);
            });
            if took.is_none() {
                return (count, now_ns);
            }
        }
        (READ_BUDGET, last_ns)
    }

    fn advance(&mut self, now_ns: u64, due: &mut Vec<(i32, Handle, u64)>) {
        if self.fabric.next_ns().is_some_and(|at_ns| at_ns <= now_ns) {
            let mut outbox = Outbox { pool: &mut self.pool, due, interfaces: &self.interfaces };
            self.fabric.advance(now_ns, &mut outbox);
        }
    }

    fn flush(&mut self, due: &mut Vec<(i32, Handle, u64)>, late: &mut Lateness, stats: &mut PlaneStats) {
        if due.is_empty() {
            return;
        }
        let pool = &self.pool;
        stats.refused += self.tx.send(due.iter().map(|(interface, handle, _)| (*interface, pool.get(*handle))));
        let sent_ns = clock_ns(ClockId::CLOCK_MONOTONIC);
        for (_, handle, at_ns) in due.drain(..) {
            late.note(sent_ns.saturating_sub(at_ns));
            self.pool.release(handle);
        }
    }

    fn apply(&mut self, change: &Change) {
        let up = matches!(change.direction, Direction::Up | Direction::Both);
        let down = matches!(change.direction, Direction::Down | Direction::Both);
        let pipes = [up.then_some(true), down.then_some(false)];
        for is_up in pipes.into_iter().flatten() {
            let pipe = if is_up { self.fabric.up(change.port) } else { self.fabric.down(change.port) };
            let settings = match &change.action {
                Action::Cut | Action::Heal => {
                    pipe.set_cut(matches!(change.action, Action::Cut));
                    continue;
                }
                Action::Set(settings) => settings,
            };
            let mut spec = *pipe.spec();
            // The settings were tried on a copy when they were accepted.
            let _ = settings.apply(&mut spec);
            let old = pipe.spec().rate_bytes_per_s;
            pipe.set_spec(spec);
            if is_up && spec.rate_bytes_per_s != old {
                let _ = self.rates.send(NewRate { port: change.port, uplink: spec });
            }
        }
        self.transit_ns = self.fabric.least_transit_ns();
    }

    /// Reports the counters.
    fn report(&mut self, stats: &PlaneStats, late: &Lateness) -> PlaneStats {
        let mut stats = stats.clone();
        stats.unreachable = self.fabric.unreachable();
        stats.overrun = self.ring.lost();
        stats.late_us = late.summary();
        stats.cpu_s = clock_ns(ClockId::CLOCK_THREAD_CPUTIME_ID) as f64 / 1e9;
        for port in 0..self.interfaces.len() {
            stats.pipes.push((*self.fabric.up(port).counters(), *self.fabric.down(port).counters()));
        }
        stats
    }

    /// Waits for a packet, a request, or the next due time. `busy` says that packets have just
    /// arrived.
    fn sleep(&mut self, start_ns: u64, busy: bool) {
        let change_ns = self.schedule.next_ns().map(|at_ns| start_ns + at_ns);
        let next_ns = match (self.fabric.deadline_ns(), change_ns) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let left_ns = next_ns.map(|at_ns| at_ns.saturating_sub(clock_ns(ClockId::CLOCK_MONOTONIC)));
        let early_ns = self.wake_ns;
        // A sleep that is shorter costs more than it saves.
        let least_ns = early_ns + LEAST_WAKE_NS;
        // What arrives while we sleep is not due before the least transit time: no need to wake up
        // for each packet.
        let lazy_ns = self.transit_ns.min(MOST_LAZY_NS);
        let lazy = busy && lazy_ns > least_ns;
        let (sleep_ns, watch) = match left_ns {
            Some(left_ns) if left_ns > least_ns => {
                self.napped = false;
                let left_ns = left_ns - early_ns;
                (Some(if lazy { left_ns.min(lazy_ns - early_ns) } else { left_ns }), !lazy)
            }
            // Packets follow each other closely: take a nap and send several at once, rather than
            // spin.
            Some(_) if self.napped => (Some((2 * early_ns).min(MOST_LAZY_NS - early_ns)), false),
            Some(left_ns) => {
                self.napped = true;
                let end_ns = clock_ns(ClockId::CLOCK_MONOTONIC) + left_ns;
                while !self.ring.ready() && clock_ns(ClockId::CLOCK_MONOTONIC) < end_ns {
                    std::hint::spin_loop();
                }
                return;
            }
            None => (lazy.then(|| lazy_ns - early_ns), !lazy),
        };
        let events = if watch { PollFlags::POLLIN } else { PollFlags::empty() };
        let ring = PollFd::new(self.ring.as_fd(), events);
        let mut fds = [ring, PollFd::new(self.wake.as_fd(), PollFlags::POLLIN)];
        // An interrupted or failed wait only means looking earlier.
        if ppoll(&mut fds, sleep_ns.map(timeout), None).is_ok() && fds[1].any() == Some(true) {
            let _ = self.wake.read();
        }
    }
}
