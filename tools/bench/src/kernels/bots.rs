//! Bag of tasks: member 0 hands out tasks of random size to whoever is free, and takes results from
//! anybody.
//!
//! A task has, drawn in this order, bytes to send (up to 64 KiB), cycles to compute, bytes to
//! receive (up to 64 KiB). The thesis has up to 25 million cycles at 500 MHz, 50 ms; here it is up
//! to 250 us, so that messages weigh as much on today's machines. Tasks come from one seeded
//! generator: every run is of the same bag.

use rand_pcg::Pcg64;
use rand_pcg::rand_core::{Rng, SeedableRng};

use crate::error::Result;
use crate::machine::{Machine, TAG_TASK, TAG_WORK};

/// Most bytes that a task sends or receives.
pub const MOST_BYTES: usize = 65_536;
/// Longest computing, us.
const MOST_US: f64 = 250.0;
/// The thesis's seed.
const SEED: u64 = 310_952;
const HEADER_BYTES: usize = 24;
/// In place of the bytes to send: there is no more work.
const END: u64 = u64::MAX;

#[derive(Clone, Copy)]
struct Task {
    send: u64,
    compute_ns: u64,
    recv: u64,
}

impl Task {
    fn header(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        for (place, word) in bytes.chunks_exact_mut(8).zip([self.send, self.compute_ns, self.recv]) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    fn of_header(bytes: &[u8; HEADER_BYTES]) -> Task {
        let word = |i: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[8 * i..8 * i + 8]);
            u64::from_le_bytes(word)
        };
        Task { send: word(0), compute_ns: word(1), recv: word(2) }
    }
}

/// A member of the farm.
pub struct Bots {
    tasks: Vec<Task>,
    members: Vec<usize>,
    place: usize,
    ticks_per_us: f64,
    data: Vec<u8>,
    /// Bytes moved and time computed, here.
    done: f64,
}

impl Bots {
    pub fn new(count: u32, members: &[usize], place: usize, ticks_per_us: f64) -> Bots {
        let mut random = Pcg64::seed_from_u64(SEED);
        let mut unit = || (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        let task = |_| Task {
            send: (unit() * MOST_BYTES as f64) as u64,
            compute_ns: (unit() * MOST_US * 1000.0) as u64,
            recv: (unit() * MOST_BYTES as f64) as u64,
        };
        Bots {
            tasks: (0..count).map(task).collect(),
            members: members.to_vec(),
            place,
            ticks_per_us,
            data: vec![1; MOST_BYTES],
            done: 0.0,
        }
    }

    pub fn run<M: Machine>(&mut self, m: &M) -> Result<()> {
        if self.place == 0 { self.master(m) } else { self.slave(m) }
    }

    fn master<M: Machine>(&mut self, m: &M) -> Result<()> {
        let mut tasks = std::mem::take(&mut self.tasks).into_iter();
        let all: Vec<Task> = tasks.as_slice().to_vec();
        let mut out = 0;
        for (&slave, task) in self.members[1..].iter().zip(tasks.by_ref()) {
            self.hand_out(m, task, slave)?;
            out += 1;
        }
        while out > 0 {
            let mut header = [0; HEADER_BYTES];
            let slave = m.recv_any(&mut header, TAG_TASK)?;
            let recv = Task::of_header(&header).recv as usize;
            m.recv(&mut self.data[..recv], slave, TAG_WORK)?;
            match tasks.next() {
                Some(task) => self.hand_out(m, task, slave)?,
                None => out -= 1,
            }
        }
        let end = Task { send: END, compute_ns: 0, recv: 0 }.header();
        self.members[1..].iter().try_for_each(|&slave| m.send(&end, slave, TAG_TASK))?;
        self.tasks = all;
        Ok(())
    }

    fn hand_out<M: Machine>(&self, m: &M, task: Task, slave: usize) -> Result<()> {
        m.send(&task.header(), slave, TAG_TASK)?;
        m.send(&self.data[..task.send as usize], slave, TAG_WORK)
    }

    fn slave<M: Machine>(&mut self, m: &M) -> Result<()> {
        let master = self.members[0];
        loop {
            let mut header = [0; HEADER_BYTES];
            m.recv(&mut header, master, TAG_TASK)?;
            let task = Task::of_header(&header);
            if task.send == END {
                return Ok(());
            }
            m.recv(&mut self.data[..task.send as usize], master, TAG_WORK)?;
            m.spin_until(m.ticks() + (task.compute_ns as f64 / 1000.0 * self.ticks_per_us) as u64);
            m.send(&header, master, TAG_TASK)?;
            m.send(&self.data[..task.recv as usize], master, TAG_WORK)?;
            self.done += (task.send + task.compute_ns + task.recv) as f64;
        }
    }

    pub fn check(&self) -> f64 {
        self.done
    }
}
