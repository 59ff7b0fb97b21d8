//! The proof of a model: its text, read as any other, has each process do exactly what was
//! recorded.

use std::collections::BTreeSet;

use weir_annotations::expr::{EvalError, NUMPROCS, PROCNUM};
use weir_annotations::program::{Collective, Message, Request, SendMode, Until, WaitMode};
use weir_annotations::{Expr, Model, OpKind, Parsed, Setting, Source, Value, parse};

use crate::acts::{Act, Group, Kind, Sample};
use crate::error::Error;
use crate::log::{ANY, COLLECTIVES};

/// Steps of control for each act, at most.
const STEPS: usize = 64;

/// A model from its text.
///
/// # Errors
/// What is wrong with it first.
pub fn read(text: &str) -> Result<Parsed, String> {
    parse(&[Source { name: "the file", text }])
        .map_err(|found| found.first().map_or_else(String::new, |d| format!("line {}: {}", d.place.line, d.message)))
}

/// Checks a model's text against recorded processes.
///
/// # Errors
/// The first difference.
pub fn check(text: &str, samples: &[Sample], requests: bool) -> Result<(), Error> {
    agrees(&read(text).map_err(Error::Differs)?, samples, requests)
}

/// The same of a model that has been read.
///
/// # Errors
/// The first difference.
pub fn agrees(parsed: &Parsed, samples: &[Sample], requests: bool) -> Result<(), Error> {
    let mut counts: Vec<i64> = samples.iter().map(|s| s.n).collect();
    counts.dedup();
    for n in counts {
        let numprocs = u32::try_from(n).unwrap_or(0);
        let prepared = parsed
            .program
            .model(&Setting { numprocs, ..Setting::default() })
            .map_err(|found| Error::Differs(found.first().map_or_else(String::new, |d| d.message.clone())))?;
        for sample in samples.iter().filter(|s| s.n == n) {
            compare(&prepared.model, sample, requests)
                .map_err(|what| Error::Differs(format!("process {} of {n}: {what}", sample.p)))?;
        }
    }
    Ok(())
}

fn compare(model: &Model, sample: &Sample, requests: bool) -> Result<(), String> {
    let wanted: Vec<&Act> = sample.acts.iter().filter(|act| act.kind != Kind::End).collect();
    let mut next = 0;
    let mut open = Open::default();
    run(
        model,
        sample.p,
        wanted.len() * STEPS + 10_000,
        &mut |mut act| {
            let expected = wanted.get(next);
            next += 1;
            let number = act.numbers.last().copied();
            if act.kind.begins() && !requests {
                act.numbers.pop();
            }
            let same = expected.is_some_and(|expected| **expected == act || open.same_wait(expected, &act));
            open.pass(&act, number);
            match expected {
                Some(_) if same => Ok(()),
                Some(expected) => {
                    Err(format!("act {next} is {}, recorded was {}", act.shown(requests), expected.shown(requests)))
                }
                None => Err(format!("does more than was recorded: {}", act.shown(requests))),
            }
        },
        true,
    )?;
    if next < wanted.len() {
        return Err(format!("does {next} of {} acts", wanted.len()));
    }
    Ok(())
}

/// Requests of a process that are open, the oldest first, by the model's numbers.
#[derive(Default)]
struct Open(Vec<i64>);

impl Open {
    /// The requests that a wait is for, however it names them.
    fn waited(&self, act: &Act) -> Option<BTreeSet<i64>> {
        match act.kind {
            Kind::Wait(_) => Some(act.numbers.iter().copied().collect()),
            Kind::WaitOldest => Some(self.0.first().copied().into_iter().collect()),
            Kind::WaitAll => Some(self.0.iter().copied().collect()),
            _ => None,
        }
    }

    /// Whether both wait for the same requests.
    fn same_wait(&self, one: &Act, other: &Act) -> bool {
        self.waited(one).is_some_and(|set| self.waited(other) == Some(set))
    }

    /// An act of the model has been done; `number`: of the request that it begins.
    fn pass(&mut self, act: &Act, number: Option<i64>) {
        match act.kind {
            Kind::Free => self.0.retain(|open| !act.numbers.contains(open)),
            kind if kind.begins() => self.0.extend(number),
            _ => {
                if let Some(done) = self.waited(act) {
                    if act.kind == Kind::WaitOldest {
                        self.0.drain(..self.0.len().min(1));
                    } else {
                        self.0.retain(|open| !done.contains(open));
                    }
                }
            }
        }
    }
}

/// What a process does by a model, without time: each act is given away.
///
/// # Errors
/// What the receiver of the acts says, and what cannot be evaluated.
pub fn run(
    model: &Model,
    process: i64,
    budget: usize,
    each: &mut dyn FnMut(Act) -> Result<(), String>,
    requests: bool,
) -> Result<(), String> {
    let mut slots = model.slots.clone();
    for (slot, value) in [(PROCNUM, process), (NUMPROCS, i64::from(model.numprocs))] {
        *slots.get_mut(slot.0 as usize).ok_or("no slots")? = Value::Int(value);
    }
    let said = |error: EvalError| error.to_string();
    let mut at = 0usize;
    for _ in 0..budget {
        let Some(op) = model.ops.get(at) else { return Err("runs off its end".into()) };
        at += 1;
        match &op.kind {
            OpKind::End => return Ok(()),
            OpKind::Serial(serial) => {
                for (_, time, _) in &serial.times {
                    if let weir_annotations::program::Law::Fixed(expr) = &time.law {
                        expr.eval(&slots).map_err(said)?;
                    }
                }
            }
            OpKind::Set(slot, expr) => slots[slot.0 as usize] = expr.eval(&slots).map_err(said)?,
            OpKind::Jump(target) => at = *target as usize,
            OpKind::JumpUnless(condition, target) => {
                if !condition.eval(&slots).map_err(said)?.truth() {
                    at = *target as usize;
                }
            }
            OpKind::LoopBegin(l) => {
                let Until::Count(count) = &l.until else { return Err("a loop without a count".into()) };
                let count = count.eval(&slots).map_err(said)?.as_f64().trunc() as i64;
                slots[l.index.0 as usize] = Value::Int(0);
                slots[l.left.0 as usize] = Value::Int(count);
                if count <= 0 {
                    at = l.exit as usize;
                }
            }
            OpKind::LoopEnd(begin) => {
                let Some(OpKind::LoopBegin(l)) = model.ops.get(*begin as usize).map(|op| &op.kind) else {
                    return Err("a loop without a beginning".into());
                };
                let step = |slots: &mut [Value], slot: usize, by: i64| {
                    let value = slots[slot].as_i64().unwrap_or(0) + by;
                    slots[slot] = Value::Int(value);
                    value
                };
                step(&mut slots, l.index.0 as usize, 1);
                at = if step(&mut slots, l.left.0 as usize, -1) > 0 { *begin as usize + 1 } else { l.exit as usize };
            }
            OpKind::Message(message) => each(act(message, &slots, model.numprocs, requests)?)?,
            OpKind::Check(..) | OpKind::Choose(_) | OpKind::Take(_) => return Err("what no recorded model has".into()),
        }
    }
    Err("does not end".into())
}

fn act(message: &Message, slots: &[Value], numprocs: u32, requests: bool) -> Result<Act, String> {
    let number = |expr: &Expr| expr.int_value(slots).map_err(|e| e.to_string());
    let optional = |expr: &Option<Expr>| expr.as_ref().map_or(Ok(ANY), number);
    let request = |request: &Option<Request>, numbers: &mut Vec<i64>| {
        if let Some(request) = request.as_ref().filter(|_| requests) {
            numbers.push(request.index.as_ref().map_or(Ok(0), number)?);
        }
        Ok::<_, String>(())
    };
    Ok(match message {
        Message::Send(send) => {
            let mode = match send.mode {
                SendMode::Standard => 0,
                SendMode::Synchronous => 1,
                SendMode::Buffered => 2,
                SendMode::Ready => 3,
            };
            let mut numbers = vec![number(&send.to)?, number(&send.size)?, number(&send.tag)?, number(&send.comm)?];
            request(&send.request, &mut numbers)?;
            Act { kind: Kind::Send(mode + if send.request.is_some() { 4 } else { 0 }), numbers }
        }
        Message::Recv(recv) | Message::Probe(recv) => {
            let mut numbers = vec![optional(&recv.from)?, optional(&recv.tag)?, number(&recv.comm)?];
            request(&recv.request, &mut numbers)?;
            let kind = match message {
                Message::Probe(_) => Kind::Probe,
                _ if recv.request.is_some() => Kind::Irecv,
                _ => Kind::Recv,
            };
            Act { kind, numbers }
        }
        Message::Sendrecv(send, recv) => {
            let numbers = vec![
                number(&send.to)?,
                number(&send.size)?,
                number(&send.tag)?,
                optional(&recv.from)?,
                optional(&recv.tag)?,
                number(&send.comm)?,
            ];
            Act { kind: Kind::Sendrecv, numbers }
        }
        Message::Wait(wait) => {
            let indices: Vec<&Expr> = wait.list.iter().filter_map(|r| r.index.as_ref()).collect();
            let numbers = indices.iter().map(|e| number(e)).collect::<Result<Vec<_>, _>>()?;
            let kind = match wait.mode {
                _ if !numbers.is_empty() => Kind::Wait(numbers.len()),
                WaitMode::One => Kind::WaitOldest,
                _ => Kind::WaitAll,
            };
            Act { kind, numbers }
        }
        Message::Free(free) => {
            let index = free.index.as_ref().map_or(Ok(0), number)?;
            Act { kind: Kind::Free, numbers: vec![index] }
        }
        Message::Collective(collective) => whole(collective, slots, numprocs, requests)?,
        Message::Test(_) | Message::SendInit(_) | Message::RecvInit(_) | Message::Start(_) => {
            return Err("what no recorded model has".into());
        }
    })
}

fn whole(collective: &Collective, slots: &[Value], numprocs: u32, requests: bool) -> Result<Act, String> {
    let number = |expr: &Expr| expr.int_value(slots).map_err(|e| e.to_string());
    let name = format!("{:?}", collective.operation);
    let flat = |name: &str| name.replace('_', "").to_lowercase();
    let kind = COLLECTIVES.iter().position(|known| flat(known) == flat(&name)).ok_or("a collective not known")?;
    let mut numbers = vec![number(&collective.size)?, number(&collective.comm)?];
    if let Some(root) = &collective.root {
        numbers.push(number(root)?);
    }
    let listed = collective.group.list(slots, numprocs).map_err(|e| e.to_string())?;
    let members = listed.map_err(|end| format!("no process {end}"))?;
    let (low, high) = (members.first().copied().unwrap_or(0), members.last().copied().unwrap_or(0));
    let group = if collective.group.0.is_empty() || members.len() == numprocs as usize {
        Group::World
    } else if (high - low) as usize + 1 == members.len() {
        numbers.extend([i64::from(low), i64::from(high)]);
        Group::Range
    } else {
        numbers.extend(members.iter().map(|m| i64::from(*m)));
        Group::List(members.len())
    };
    if let Some(request) = collective.request.as_ref().filter(|_| requests) {
        numbers.push(request.index.as_ref().map_or(Ok(0), number)?);
    }
    // Gather, scatter, allgather, alltoall: the next one is that with blocks of different sizes.
    let kind = if !collective.alike && matches!(kind, 2 | 4 | 6 | 8) { kind + 1 } else { kind };
    let kind = u8::try_from(kind).unwrap_or(0);
    let (begins, rooted) = (collective.request.is_some(), collective.root.is_some());
    Ok(Act { kind: Kind::Collective { kind, begins, rooted, group }, numbers })
}
