//! A task farm: member 0 hands out tasks of one size, all others work.
//!
//! A worker keeps receives posted, and asks by requests, each of which is answered by so many
//! tasks; it sends a small result for each task, and a request for each answer that it has done.
//! The tags of tasks take turns. Receives name their tags, or take any: then, by MPI's rule, they
//! wait for a message that is missing, whatever its tag. Nobody waits for a send. Each task is
//! compared whole.
//!
//! Source: Kamal, "SCTP-Based Middleware for MPI" (M.Sc. thesis, University of British Columbia,
//! 2005): ten tags, ten requests of each worker outstanding, one task or ten for a request.

use crate::error::{BenchError, Result};
use crate::machine::{Landed, Machine, Mail, Room, Tag};
use crate::operation::Kind;
use crate::tagged::{FIRST_TAG, Receive, Tagged};

const TAG_REQUEST: Tag = 1;
const TAG_RESULT: Tag = 2;
/// A worker has heard that there is no more, and says how often it has asked.
const TAG_FINAL: Tag = 3;
/// There is no more.
const TAG_STOP: Tag = 4;
const RESULT_BYTES: usize = 64;
/// A number in a message.
const NUMBER_BYTES: usize = 8;

/// From a request to its answer: in which repetition, and how long, ns.
pub type Wait = (u32, f32);

/// A member of the farm.
pub struct Farm {
    tasks: u64,
    of: Tagged,
    members: usize,
    place: usize,
    bytes: usize,
    ticks_per_us: f64,
    /// Tasks by tag, and results by the tag of their task.
    payloads: Vec<Vec<u8>>,
    results: Vec<[u8; RESULT_BYTES]>,
    /// The numbers that requests have.
    numbers: Vec<[u8; NUMBER_BYTES]>,
    /// Repetitions so far.
    repetition: u32,
    /// Of all repetitions, as far as there is room.
    waits: Vec<Wait>,
    most_waits: usize,
    /// Tasks done here.
    done: u64,
}

fn wrong(cause: String) -> BenchError {
    BenchError::machine("farm", cause)
}

impl Farm {
    /// Of so many tasks of so many bytes; `most_waits` are kept in all.
    pub fn new(
        tasks: u32,
        of: Tagged,
        (members, place): (usize, usize),
        bytes: usize,
        ticks_per_us: f64,
        most_waits: usize,
    ) -> Farm {
        let result = |kind: u64| {
            let mut result = [0; RESULT_BYTES];
            result[..NUMBER_BYTES].copy_from_slice(&kind.to_le_bytes());
            result
        };
        let tasks = u64::from(tasks);
        // One worker may have all tasks, and asks once more for each place of its receives; and one
        // number more tells how often it has asked.
        let most = tasks / u64::from(of.fanout) + u64::from(of.outstanding) + 1;
        let numbers = if place == 0 { 0 } else { most };
        Farm {
            tasks,
            of,
            members,
            place,
            bytes,
            ticks_per_us,
            payloads: of.payloads(bytes),
            results: (0..u64::from(of.tags)).map(result).collect(),
            numbers: (0..numbers).map(u64::to_le_bytes).collect(),
            repetition: 0,
            waits: Vec::new(),
            most_waits,
            done: 0,
        }
    }

    /// So many repetitions, each begun by a barrier: `places` are where their readings go. The
    /// master's ends when the last result has come, a worker's when it hears that there is no more.
    pub fn run<'p, M: Machine>(
        &mut self,
        m: &M,
        group: &M::Group,
        places: impl Iterator<Item = (&'p mut u64, &'p mut u64)>,
    ) -> Result<()> {
        let Farm { payloads, results, numbers, waits, .. } = self;
        let (payloads, results, numbers) = (&*payloads, &*results, &*numbers);
        let receives = self.of.places(Kind::Farm);
        // A receive more hears of the end where the others name the tags of tasks.
        let named = self.of.receive == Receive::Named;
        let room = match self.place {
            0 => Room { places: 1, bytes: RESULT_BYTES },
            _ => Room { places: receives + usize::from(named), bytes: self.bytes },
        };
        let (of, tasks, ticks_per_us) = (self.of, self.tasks, self.ticks_per_us);
        let (master, members, most_waits) = (self.place == 0, self.members, self.most_waits);
        let (mut repetition, mut all_done) = (self.repetition, 0);
        m.mail(group, room, |mail| {
            if !master {
                (0..room.places).try_for_each(|place| post(mail, &of, place))?;
            }
            for (begin, end) in places {
                m.barrier(group)?;
                *begin = m.ticks();
                *end = if master {
                    let timeout = of.timeout_ns.map(|ns| *begin + (ns as f64 / 1e3 * ticks_per_us) as u64);
                    hand_out(m, mail, &of, tasks, payloads, members - 1, timeout)?
                } else {
                    let worker = Worker { of: &of, payloads, results, numbers, ticks_per_us };
                    let note = |ticks: u64| {
                        if waits.len() < most_waits {
                            waits.push((repetition, (ticks as f64 / ticks_per_us * 1e3) as f32));
                        }
                    };
                    let (end, done) = worker.work(m, mail, note)?;
                    all_done += done;
                    end
                };
                repetition += 1;
            }
            Ok(())
        })?;
        (self.repetition, self.done) = (repetition, self.done + all_done);
        Ok(())
    }

    /// How long requests were waited for here.
    pub fn waits(&self) -> &[Wait] {
        &self.waits
    }

    /// Tasks done here.
    pub fn check(&self) -> f64 {
        self.done as f64
    }
}

/// Posts a worker's receive: at each place of the same tag, the last of the end; or of any.
fn post(mail: &mut dyn Mail<'_>, of: &Tagged, place: usize) -> Result<()> {
    let tag = match of.receive {
        Receive::Any => None,
        Receive::Named if place == of.places(Kind::Farm) => Some(TAG_STOP),
        Receive::Named => Some(of.tag(place as u64)),
    };
    mail.post(place, Some(0), tag)
}

/// The number with which a message begins.
fn number(memory: &[u8]) -> u64 {
    memory.first_chunk().map_or(u64::MAX, |bytes| u64::from_le_bytes(*bytes))
}

/// The master's part, for so many workers; until when the last result had come. What each worker
/// sent has come when this returns, so that nothing of it is left.
fn hand_out<'p, M: Machine>(
    m: &M,
    mail: &mut dyn Mail<'p>,
    of: &Tagged,
    tasks: u64,
    payloads: &'p [Vec<u8>],
    workers: usize,
    timeout: Option<u64>,
) -> Result<u64> {
    let mut requests = vec![0; workers + 1];
    let (mut issued, mut done, mut finals, mut asked, mut promised) = (0, 0, 0, 0, 0);
    let mut end = None;
    while finals < workers || asked < promised {
        let Landed { tag, from, .. } = mail.receive(0, None, None)?;
        let value = number(mail.memory(0));
        match tag {
            TAG_RESULT if value < u64::from(of.tags) => done += 1,
            TAG_REQUEST if value == requests[from] => {
                (requests[from], asked) = (value + 1, asked + 1);
                if end.is_none() && timeout.is_some_and(|at| m.ticks() > at) {
                    let seconds = of.timeout_ns.unwrap_or(0) as f64 / 1e9;
                    return Err(wrong(format!(
                        "{done} of {tasks} tasks were done in {seconds} s, the time it was given"
                    )));
                }
                for _ in 0..u64::from(of.fanout).min(tasks - issued) {
                    let tag = of.tag(issued);
                    mail.send(&payloads[usize::from(tag - FIRST_TAG)], from, tag)?;
                    issued += 1;
                }
            }
            TAG_FINAL => (finals, promised) = (finals + 1, promised + value),
            _ => return Err(wrong(format!("rank {from} of the farm sent {value} by tag {tag} out of turn"))),
        }
        if end.is_none() && done == tasks {
            end = Some(m.ticks());
            (1..=workers).try_for_each(|worker| mail.send(&[], worker, TAG_STOP))?;
        }
    }
    Ok(end.unwrap_or_else(|| m.ticks()))
}

/// A worker's part.
struct Worker<'w, 'p> {
    of: &'w Tagged,
    payloads: &'w [Vec<u8>],
    results: &'p [[u8; RESULT_BYTES]],
    numbers: &'p [[u8; NUMBER_BYTES]],
    ticks_per_us: f64,
}

impl<'p> Worker<'_, 'p> {
    /// Works until it hears that there is no more; when that was, and how many tasks it has done.
    /// `note` is told how long each answer took, in ticks: as many tasks as answer a request, in
    /// the order in which they come, are its answer.
    fn work<M: Machine>(&self, m: &M, mail: &mut dyn Mail<'p>, mut note: impl FnMut(u64)) -> Result<(u64, u64)> {
        let mut sent = Vec::with_capacity(self.numbers.len());
        let mut done = 0;
        let fanout = u64::from(self.of.fanout);
        for _ in 0..self.of.outstanding {
            self.ask(m, mail, &mut sent)?;
        }
        let end = loop {
            let landed = mail.next()?;
            let now = m.ticks();
            if landed.tag == TAG_STOP {
                post(mail, self.of, landed.place)?;
                break now;
            }
            let kind = self.checked(&landed, mail.memory(landed.place))?;
            done += 1;
            let answered = done % fanout == 0;
            if answered {
                note(now.saturating_sub(sent[(done / fanout) as usize - 1]));
            }
            if self.of.compute_ns > 0 {
                m.spin_until(m.ticks() + (self.of.compute_ns as f64 / 1e3 * self.ticks_per_us) as u64);
            }
            post(mail, self.of, landed.place)?;
            mail.send(&self.results[kind], 0, TAG_RESULT)?;
            if answered {
                self.ask(m, mail, &mut sent)?;
            }
        };
        mail.send(&self.numbers[sent.len()], 0, TAG_FINAL)?;
        Ok((end, done))
    }

    fn ask<M: Machine>(&self, m: &M, mail: &mut dyn Mail<'p>, sent: &mut Vec<u64>) -> Result<()> {
        let number = &self.numbers[sent.len()];
        sent.push(m.ticks());
        mail.send(number, 0, TAG_REQUEST)
    }

    /// The kind of a task that came, which is compared whole.
    fn checked(&self, landed: &Landed, memory: &[u8]) -> Result<usize> {
        let kind = usize::from(landed.tag.wrapping_sub(FIRST_TAG));
        let wanted = self.payloads.get(kind).map(Vec::as_slice);
        let wanted = wanted.ok_or_else(|| wrong(format!("a task with tag {}", landed.tag)))?;
        if memory.get(..landed.bytes) != Some(wanted) {
            return Err(wrong(format!("a task of {} bytes with tag {} is wrong", landed.bytes, landed.tag)));
        }
        Ok(kind)
    }
}
