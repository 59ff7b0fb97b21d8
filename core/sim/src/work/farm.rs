//! The task farm: a manager hands out tasks and takes results from whoever is ready.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::PROTOCOL;
use crate::rank::{App, Io, Outcome, RecvId, RecvOp, SendOp};
use crate::spec::{HostId, Ns};

/// Tag of the message that sends a worker home.
const STOP: u64 = 1 << 32;
/// Tag of results.
const RESULT: u64 = 1 << 33;

/// Shape of a farm. Host 0 is the manager.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Farm {
    /// Tasks in all.
    pub tasks: u64,
    /// Bytes of a task.
    pub task_bytes: u64,
    /// Bytes of a result.
    pub result_bytes: u64,
    /// Tasks a worker has at a time.
    pub fan_out: u64,
    /// Tags that tasks are spread over.
    pub tags: u64,
    /// Time a task takes.
    pub compute_ns: Ns,
    /// A worker's receives name a tag each; otherwise they take any, and have to wait for any task
    /// that is missing.
    #[serde(default)]
    pub named: bool,
}

fn send(to: HostId, tag: u64, len: u64) -> SendOp {
    SendOp { to, tagged: true, tag, len, sync: false }
}

/// The manager.
#[derive(Debug)]
pub struct Manager {
    farm: Farm,
    workers: u32,
    given: u64,
    results: u64,
    open_sends: u64,
    stopped: bool,
}

impl Manager {
    /// A manager of `workers` workers on hosts 1 ...
    #[must_use]
    pub fn new(farm: Farm, workers: u32) -> Self {
        Manager { farm, workers, given: 0, results: 0, open_sends: 0, stopped: false }
    }

    fn give(&mut self, io: &mut Io<'_, '_>, worker: HostId) {
        if self.given < self.farm.tasks {
            let tag = self.given % self.farm.tags.max(1);
            self.given += 1;
            self.open_sends += 1;
            io.send(send(worker, tag, self.farm.task_bytes));
            io.receive(RecvOp { from: None, tagged: true, tag: RESULT, ignore: 0, room: u64::MAX });
        }
    }
}

impl App for Manager {
    fn start(&mut self, io: &mut Io<'_, '_>) {
        for _ in 0..self.farm.fan_out.max(1) {
            for w in 1..=self.workers {
                self.give(io, w);
            }
        }
    }

    fn outcome(&mut self, io: &mut Io<'_, '_>, outcome: Outcome) {
        match outcome {
            Outcome::Received { from, .. } => {
                self.results += 1;
                self.give(io, from);
            }
            Outcome::Sent(_) | Outcome::SendFailed(_) => self.open_sends -= 1,
            Outcome::RecvFailed(_) | Outcome::Part { .. } | Outcome::Back { .. } | Outcome::Remote(_) => {}
        }
        if self.results == self.farm.tasks && !self.stopped {
            self.stopped = true;
            for w in 1..=self.workers {
                self.open_sends += 1;
                io.send(send(w, STOP, 0));
            }
        }
    }

    fn wake(&mut self, _io: &mut Io<'_, '_>) {}

    fn next_wake(&self) -> Option<Ns> {
        None
    }

    fn is_done(&self) -> bool {
        self.stopped && self.open_sends == 0
    }

    fn state(&self) -> String {
        format!(
            "manager: {} given, {} results of {}, {} sends open",
            self.given, self.results, self.farm.tasks, self.open_sends
        )
    }
}

/// A worker.
#[derive(Debug)]
pub struct Worker {
    farm: Farm,
    /// Results ready at these times, in order of computing.
    computing: Vec<Ns>,
    free_at: Ns,
    /// Open receives, with the tag each names.
    receives: BTreeMap<RecvId, u64>,
    open_sends: u64,
    stopped: bool,
}

impl Worker {
    /// A worker.
    #[must_use]
    pub fn new(farm: Farm) -> Self {
        Worker { farm, computing: Vec::new(), free_at: 0, receives: BTreeMap::new(), open_sends: 0, stopped: false }
    }

    fn post(&mut self, io: &mut Io<'_, '_>, tag: u64) {
        // Tags below 2^33: tasks and the order to stop.
        let ignore = if self.farm.named { PROTOCOL } else { PROTOCOL | (RESULT - 1) };
        let r = io.receive(RecvOp { from: Some(0), tagged: true, tag, ignore, room: u64::MAX });
        self.receives.insert(r, tag);
    }
}

impl App for Worker {
    fn start(&mut self, io: &mut Io<'_, '_>) {
        if self.farm.named {
            let tags = self.farm.tags.max(1);
            (0..tags.max(self.farm.fan_out)).for_each(|i| self.post(io, i % tags));
            self.post(io, STOP);
        } else {
            (0..=self.farm.fan_out).for_each(|_| self.post(io, 0));
        }
    }

    fn outcome(&mut self, io: &mut Io<'_, '_>, outcome: Outcome) {
        match outcome {
            Outcome::Received { receive, tag, .. } => {
                let named = self.receives.remove(&receive);
                if tag == STOP {
                    self.stopped = true;
                    let open: Vec<_> = std::mem::take(&mut self.receives).into_keys().collect();
                    for r in open {
                        io.cancel(r);
                    }
                } else {
                    self.free_at = self.free_at.max(io.now()) + self.farm.compute_ns;
                    self.computing.push(self.free_at);
                    self.post(io, named.unwrap_or(0));
                }
            }
            Outcome::Sent(_) | Outcome::SendFailed(_) => self.open_sends -= 1,
            Outcome::RecvFailed(r) => {
                self.receives.remove(&r);
            }
            Outcome::Part { .. } | Outcome::Back { .. } | Outcome::Remote(_) => {}
        }
        self.wake(io);
    }

    fn wake(&mut self, io: &mut Io<'_, '_>) {
        while self.computing.first().is_some_and(|t| *t <= io.now()) {
            self.computing.remove(0);
            self.open_sends += 1;
            io.send(send(0, RESULT, self.farm.result_bytes));
        }
    }

    fn next_wake(&self) -> Option<Ns> {
        self.computing.first().copied()
    }

    fn is_done(&self) -> bool {
        self.stopped && self.open_sends == 0 && self.computing.is_empty()
    }

    fn state(&self) -> String {
        format!(
            "worker: computing {}, receives open {}, sends open {}",
            self.computing.len(),
            self.receives.len(),
            self.open_sends
        )
    }
}
