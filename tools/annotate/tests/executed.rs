//! The model of a program has each process do what the program does: random programs are compiled
//! against an MPI that only writes down what is called, run once for each process, and compared
//! with what their models do, call by call.
//!
//! `WEIR_ANNOTATE_PROGRAMS=FIRST..LAST` looks at other programs than the first 60 and those that
//! were wrong once. A program that the annotator says it does not follow, or whose numbers the
//! language refuses, is not compared; most must be.

#[path = "executed/program.rs"]
mod program;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use weir_annotate::{Options, annotate};
use weir_annotations::expr::{Expr, PROCNUM, Slot};
use weir_annotations::program::{Bound, Message, OpKind, Recv, Requests, Send, Until, WaitMode};
use weir_annotations::{Model, Setting, Source, Value, parse};

/// What one process did, a line for each call.
type Log = Vec<String>;

/// How a comparison ended.
#[derive(Debug, PartialEq)]
enum Ending {
    Same,
    /// The annotator says what it does not follow, or asks.
    Told(String),
    /// The language has no such number.
    Refused(String),
    /// The program itself does what C does not define, or goes on too long.
    Useless,
}

/// Programs whose models were wrong once.
const FOUND: [u64; 2] = [374, 1109];
/// Programs that have persistent requests and waits for some, too, begin here.
const LATER: u64 = program::LATER;

/// The default programs, or those of the environment.
fn wanted() -> Vec<u64> {
    let Ok(text) = std::env::var("WEIR_ANNOTATE_PROGRAMS") else {
        return (0..60).chain(FOUND).chain(LATER..LATER + 40).collect();
    };
    let (first, last) = text.split_once("..").expect("FIRST..LAST");
    (first.parse().expect("a number")..last.parse().expect("a number")).collect()
}

#[test]
fn models_do_what_their_programs_do() {
    let folder = tempfile::tempdir().expect("a folder");
    let wanted = wanted();
    let (next, wrong, told) = (AtomicUsize::new(0), AtomicUsize::new(0), std::sync::Mutex::new(BTreeMap::new()));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(&seed) = wanted.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let text = program::program(seed);
                    match compared(&text, seed, folder.path()) {
                        Ok(ending) => {
                            let name = format!("{ending:?}");
                            let kind = name.split('(').next().unwrap_or("").to_owned();
                            told.lock().expect("a lock").entry(kind).or_insert_with(Vec::new).push((seed, name));
                        }
                        Err(why) => {
                            wrong.fetch_add(1, Ordering::Relaxed);
                            eprintln!("program {seed}: {why}");
                        }
                    }
                }
            });
        }
    });
    let told = told.into_inner().expect("a lock");
    for (kind, all) in &told {
        eprintln!("{kind}: {} of {}", all.len(), wanted.len());
        for (seed, name) in all.iter().filter(|(_, name)| name.len() > kind.len()) {
            eprintln!("  {seed}: {name}");
        }
    }
    assert_eq!(wrong.into_inner(), 0, "programs whose models do something else");
    let same = told.get("Same").map_or(0, Vec::len);
    assert!(same * 2 > wanted.len(), "too few programs could be compared: {same}");
}

/// Whether a program and its model do the same in each process, for several numbers of processes.
fn compared(text: &str, seed: u64, folder: &Path) -> Result<Ending, String> {
    let shown = |what: &str, annotated: &str| format!("{what}\n{annotated}");
    let found = annotate(text, "t.c", &Options::default()).map_err(|e| shown(&e.to_string(), text))?;
    let annotated = found.text();
    let parsed = parse(&[Source { name: "t.c", text: &annotated }]);
    let parsed = parsed.map_err(|faults| shown(&format!("{faults:?}"), &annotated))?.program;
    // What is asked for is what the language asks for.
    let asked: BTreeSet<&str> = found.unknown.iter().filter_map(|u| u.parameter.as_deref()).collect();
    let missing: BTreeSet<&str> =
        parsed.parameters.iter().filter(|p| p.default.is_none()).map(|p| p.name.as_str()).collect();
    if !missing.is_subset(&asked) || !asked.iter().all(|name| parsed.parameters.iter().any(|p| p.name == *name)) {
        return Err(shown(&format!("told to give {asked:?}, asked for {missing:?}"), &annotated));
    }
    // What is computed takes no time here.
    let silent = |u: &weir_annotate::Unknown| u.parameter.as_ref().is_some_and(|name| name.starts_with("serial_"));
    if let Some(unknown) = found.unknown.iter().find(|u| !silent(u)) {
        return Ok(Ending::Told(unknown.to_string()));
    }
    let program = compiled(text, seed, folder)?;
    for numprocs in [1, 2, 3, 5] {
        let parameters = asked.iter().map(|name| ((*name).to_owned(), Value::Int(0))).collect();
        let setting = Setting { numprocs, parameters, ..Setting::default() };
        let model = match parsed.model(&setting) {
            Ok(model) => model.model,
            Err(faults) => return Ok(Ending::Refused(format!("{faults:?}"))),
        };
        for rank in 0..numprocs {
            let Some(real) = executed(&program, rank, numprocs)? else { return Ok(Ending::Useless) };
            let own = match Process::new(&model, rank).run() {
                Ok(own) => own,
                Err(why) => return Ok(Ending::Refused(why)),
            };
            if real != own {
                let at = real.iter().zip(&own).take_while(|(a, b)| a == b).count();
                let what = format!(
                    "process {rank} of {numprocs}: call {at} is {:?}, and {:?} in the model",
                    real.get(at),
                    own.get(at)
                );
                return Err(shown(&what, &annotated));
            }
        }
    }
    Ok(Ending::Same)
}

/// Compiles a program so that it stops where C does not define what it does.
fn compiled(text: &str, seed: u64, folder: &Path) -> Result<std::path::PathBuf, String> {
    let (source, program) = (folder.join(format!("p{seed}.c")), folder.join(format!("p{seed}")));
    fs::write(&source, text).map_err(|e| e.to_string())?;
    let checks = "-fsanitize=signed-integer-overflow,shift,integer-divide-by-zero,float-cast-overflow";
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-w", checks, "-fsanitize-undefined-trap-on-error", "-I"]);
    cc.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/executed")).arg(&source).arg("-o").arg(&program);
    let done = cc.output().map_err(|e| format!("cc: {e}"))?;
    if done.status.success() { Ok(program) } else { Err(format!("{}\n{text}", String::from_utf8_lossy(&done.stderr))) }
}

/// What a process of a program does; none if it does what C does not define, or goes on too long.
fn executed(program: &Path, rank: u32, numprocs: u32) -> Result<Option<Log>, String> {
    let mut command = Command::new(program);
    command.env("RECORDER_RANK", rank.to_string()).env("RECORDER_SIZE", numprocs.to_string());
    let done = command.output().map_err(|e| e.to_string())?;
    let log: Log = String::from_utf8_lossy(&done.stdout).lines().map(str::to_owned).collect();
    Ok((done.status.success() && log.last().is_none_or(|l| l != "too long")).then_some(log))
}

/// A process of a model, on its own: what a receive or a test finds follows the rule of
/// `executed/mpi.h`.
struct Process<'a> {
    model: &'a Model,
    slots: Vec<Value>,
    log: Log,
    received: i64,
    tests: i64,
    somes: i64,
}

impl<'a> Process<'a> {
    fn new(model: &'a Model, rank: u32) -> Self {
        let mut slots = model.slots.clone();
        slots[PROCNUM.0 as usize] = Value::Int(i64::from(rank));
        Self { model, slots, log: Log::new(), received: 0, tests: 0, somes: 0 }
    }

    fn value(&self, expr: &Expr) -> Result<i64, String> {
        expr.int_value(&self.slots).map_err(|e| e.to_string())
    }

    fn put(&mut self, slot: Slot, value: i64) {
        self.slots[slot.0 as usize] = Value::Int(value);
    }

    fn holds(&self, expr: &Expr) -> Result<bool, String> {
        Ok(expr.eval(&self.slots).map_err(|e| e.to_string())?.truth())
    }

    fn run(mut self) -> Result<Log, String> {
        let mut at = 0_usize;
        for _ in 0..1_000_000 {
            let here = at;
            at += 1;
            match &self.model.ops[here].kind {
                OpKind::Set(slot, expr) => {
                    let value = expr.eval(&self.slots).map_err(|e| e.to_string())?;
                    self.slots[slot.0 as usize] = value;
                }
                OpKind::Jump(to) => at = *to as usize,
                OpKind::JumpUnless(expr, to) => {
                    if !self.holds(expr)? {
                        at = *to as usize;
                    }
                }
                OpKind::LoopBegin(l) => {
                    self.put(l.index, 0);
                    if let Until::Count(count) = &l.until {
                        let count = count.eval(&self.slots).map_err(|e| e.to_string())?.as_f64() as i64;
                        if count < 0 {
                            return Err("a loop of fewer than no iterations".to_owned());
                        }
                        self.put(l.left, count);
                    }
                    at = self.next(here)?;
                }
                OpKind::LoopEnd(begin) => {
                    let OpKind::LoopBegin(l) = &self.model.ops[*begin as usize].kind else {
                        return Err("no loop".into());
                    };
                    let (index, left) = (self.slots[l.index.0 as usize], self.slots[l.left.0 as usize]);
                    self.put(l.index, index.as_i64().unwrap_or(0) + 1);
                    self.put(l.left, left.as_i64().unwrap_or(0) - 1);
                    at = self.next(*begin as usize)?;
                }
                OpKind::Message(message) => self.message(message)?,
                OpKind::Serial(_) => {}
                OpKind::Check(expr, why) => {
                    if !self.holds(expr)? {
                        return Err(why.to_string());
                    }
                }
                OpKind::End => return Ok(self.log),
                other => return Err(format!("{other:?}")),
            }
        }
        Err("no end".to_owned())
    }

    /// Where a loop goes on: in its body, or behind it.
    fn next(&self, begin: usize) -> Result<usize, String> {
        let OpKind::LoopBegin(l) = &self.model.ops[begin].kind else { return Err("no loop".into()) };
        let on = match &l.until {
            Until::Count(_) => self.slots[l.left.0 as usize].as_i64().unwrap_or(0) > 0,
            Until::While(condition) => self.holds(condition)?,
        };
        Ok(if on { begin + 1 } else { l.exit as usize })
    }

    fn send(&self, send: &Send) -> Result<String, String> {
        Ok(format!("{} {} {}", self.value(&send.to)?, self.value(&send.size)?, self.value(&send.tag)?))
    }

    fn recv(&self, recv: &Recv) -> Result<String, String> {
        let of = |expr: &Option<Expr>| expr.as_ref().map_or(Ok(-1), |e| self.value(e));
        Ok(format!("{} {} {}", of(&recv.from)?, of(&recv.size)?, of(&recv.tag)?))
    }

    /// A receive that waits is complete: a status learns its source and tag.
    fn complete(&mut self, recv: &Recv) -> Result<(), String> {
        let any = (self.received * 5 + 3) % 8;
        self.received += 1;
        let tag = recv.tag.as_ref().map_or(Ok(any), |t| self.value(t))?;
        let from = recv.from.as_ref().map_or(Ok(-1), |f| self.value(f))?;
        for (what, slot) in &recv.binds {
            match what {
                Bound::Source => self.put(*slot, from),
                Bound::Tag => self.put(*slot, tag),
                _ => {}
            }
        }
        Ok(())
    }

    /// What a wait or test for some finds.
    fn outcount(&mut self, requests: &Requests, least: i64, most: i64) {
        if requests.mode != WaitMode::Some {
            return;
        }
        let count = least + self.somes % most;
        self.somes += 1;
        for (_, slot) in requests.binds.iter().filter(|(what, _)| *what == Bound::Outcount) {
            self.put(*slot, count);
        }
    }

    fn message(&mut self, message: &Message) -> Result<(), String> {
        let said = match message {
            Message::Send(send) => format!("send {}", self.send(send)?),
            Message::Recv(recv) => {
                let said = format!("recv {}", self.recv(recv)?);
                if recv.request.is_none() {
                    self.complete(recv)?;
                }
                said
            }
            Message::Sendrecv(send, recv) => {
                let said = format!("both {} {}", self.send(send)?, self.recv(recv)?);
                self.complete(recv)?;
                said
            }
            Message::SendInit(send) => format!("make send {}", self.send(send)?),
            Message::RecvInit(recv) => format!("make recv {}", self.recv(recv)?),
            Message::Start(list) => format!("start {}", list.len()),
            Message::Free(_) => "free".to_owned(),
            Message::Wait(requests) => {
                self.outcount(requests, 1, 2);
                "wait".to_owned()
            }
            Message::Test(requests) if requests.mode == WaitMode::Some => {
                self.outcount(requests, 0, 3);
                "test".to_owned()
            }
            Message::Test(requests) => {
                let flag = i64::from(self.tests % 3 == 2);
                self.tests += 1;
                for (_, slot) in requests.binds.iter().filter(|(what, _)| *what == Bound::Flag) {
                    self.put(*slot, flag);
                }
                "test".to_owned()
            }
            Message::Probe(_) => "probe".to_owned(),
            Message::Collective(all) => {
                let root = all.root.as_ref().map_or(Ok(-1), |r| self.value(r))?;
                format!("{:?} {} {root}", all.operation, self.value(&all.size)?)
            }
        };
        self.log.push(said);
        Ok(())
    }
}
