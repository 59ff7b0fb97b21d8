//! A task farm: member 0 hands out tasks of one size, all others work, with a small result for
//! each. Every worker has up to ten tasks at a time, so that none waits while another task is on
//! its way.
//!
//! Source: Kamal, "SCTP-Based Middleware for MPI" (M.Sc. thesis, University of British Columbia,
//! 2005), whose farm keeps ten requests of each worker outstanding; its tags are left out here.

use crate::error::Result;
use crate::machine::{Machine, TAG_TASK, TAG_WORK};

/// Tasks at each worker at once.
pub const OUTSTANDING: u32 = 10;
/// A result, bytes.
const RESULT_BYTES: usize = 64;
/// Before a task.
const MORE: [u8; 1] = [1];
/// There are no more.
const END: [u8; 1] = [0];

/// A member of the farm.
pub struct Farm {
    tasks: u32,
    members: Vec<usize>,
    place: usize,
    data: Vec<u8>,
    /// Tasks done here.
    done: u64,
}

impl Farm {
    pub fn new(tasks: u32, members: &[usize], place: usize, bytes: usize) -> Farm {
        Farm { tasks, members: members.to_vec(), place, data: vec![1; bytes], done: 0 }
    }

    pub fn run<M: Machine>(&mut self, m: &M) -> Result<()> {
        if self.place == 0 { self.master(m) } else { self.worker(m) }
    }

    fn master<M: Machine>(&self, m: &M) -> Result<()> {
        let (workers, mut given) = (&self.members[1..], 0);
        for _ in 0..OUTSTANDING {
            for &worker in workers.iter().take((self.tasks - given) as usize) {
                self.hand_out(m, worker)?;
                given += 1;
            }
        }
        for _ in 0..self.tasks {
            let worker = m.recv_any(&mut [0; RESULT_BYTES], TAG_TASK)?;
            if given < self.tasks {
                self.hand_out(m, worker)?;
                given += 1;
            }
        }
        workers.iter().try_for_each(|&worker| m.send(&END, worker, TAG_TASK))
    }

    fn hand_out<M: Machine>(&self, m: &M, worker: usize) -> Result<()> {
        m.send(&MORE, worker, TAG_TASK)?;
        m.send(&self.data, worker, TAG_WORK)
    }

    fn worker<M: Machine>(&mut self, m: &M) -> Result<()> {
        let master = self.members[0];
        loop {
            let mut word = END;
            m.recv(&mut word, master, TAG_TASK)?;
            if word == END {
                return Ok(());
            }
            m.recv(&mut self.data, master, TAG_WORK)?;
            m.send(&[1; RESULT_BYTES], master, TAG_TASK)?;
            self.done += 1;
        }
    }

    pub fn check(&self) -> f64 {
        self.done as f64
    }
}
