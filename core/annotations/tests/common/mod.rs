//! A walk through a model without time: which ops a process passes, in order. Conditions are
//! evaluated, messages bind nothing.

#![allow(dead_code, reason = "each test file uses a part")]

use std::collections::BTreeMap;

use weir_annotations::expr::PROCNUM;
use weir_annotations::program::{Message, Until, choice_of};
use weir_annotations::{Diagnostic, Model, Op, OpKind, Parsed, Setting, Source, Value, parse};

/// Reads one file.
pub fn read(text: &str) -> Result<Parsed, Vec<Diagnostic>> {
    parse(&[Source { name: "model.c", text }])
}

/// A model with parameters and a processor.
pub fn model(text: &str, numprocs: u32, given: &[(&str, i64)], processor: Option<&str>) -> Model {
    let parameters: BTreeMap<String, Value> = given.iter().map(|(n, v)| ((*n).to_owned(), Value::Int(*v))).collect();
    let setting = Setting { numprocs, parameters, processor: processor.map(str::to_owned), ..Setting::default() };
    let parsed = read(text).unwrap_or_else(|found| panic!("{}", lines(&found)));
    parsed.program.model(&setting).unwrap_or_else(|found| panic!("{}", lines(&found))).model
}

/// Diagnostics, one a line.
pub fn lines(found: &[Diagnostic]) -> String {
    let one = |d: &Diagnostic| {
        let also: String = d.also.iter().map(|(p, what)| format!("\n    {}:{} {what}", p.line, p.column)).collect();
        let help = d.help.as_ref().map(|help| format!("\n    help: {help}")).unwrap_or_default();
        let place = d.place;
        format!(
            "{}:{}+{} {:?} {}: {}{also}{help}\n",
            place.line, place.column, place.length, d.severity, d.code, d.message
        )
    };
    found.iter().map(one).collect()
}

/// What process `rank` does: each message and serial segment as a line. `most` steps at most.
pub fn walk(model: &Model, rank: u32, most: usize) -> Vec<String> {
    let mut slots = model.slots.clone();
    slots[PROCNUM.0 as usize] = Value::Int(i64::from(rank));
    let (mut pc, mut said) = (0, Vec::new());
    for _ in 0..most {
        let Op { kind, .. } = &model.ops[pc];
        pc += 1;
        match kind {
            OpKind::End => return said,
            OpKind::Jump(to) => pc = *to as usize,
            OpKind::JumpUnless(condition, to) => {
                if !condition.eval(&slots).unwrap().truth() {
                    pc = *to as usize;
                }
            }
            OpKind::Set(slot, value) => slots[slot.0 as usize] = value.eval(&slots).unwrap(),
            OpKind::Check(condition, why) => assert!(condition.eval(&slots).unwrap().truth(), "{why}"),
            OpKind::Choose(branches) => pc = choice_of(branches, &slots, 0.0).unwrap().unwrap() as usize,
            OpKind::LoopBegin(l) => {
                slots[l.index.0 as usize] = Value::Int(0);
                if let Until::Count(count) = &l.until {
                    slots[l.left.0 as usize] = Value::Int(count.int_value(&slots).unwrap());
                }
                pc = next(model, pc - 1, &slots);
            }
            OpKind::LoopEnd(begin) => {
                let OpKind::LoopBegin(l) = &model.ops[*begin as usize].kind else {
                    panic!("a LoopEnd without its begin")
                };
                let add = |v: Value, by: i64| Value::Int(v.as_i64().unwrap() + by);
                slots[l.index.0 as usize] = add(slots[l.index.0 as usize], 1);
                slots[l.left.0 as usize] = add(slots[l.left.0 as usize], -1);
                pc = next(model, *begin as usize, &slots);
            }
            OpKind::Serial(serial) => said.push(format!("serial {:?}", serial.times[0].1.law)),
            OpKind::Message(message) => said.push(shown(message, &slots, model.numprocs)),
            OpKind::Take(take) => {
                let table = &model.streams[take.stream.0 as usize];
                let row = usize::try_from(slots[take.cursor.0 as usize].as_i64().unwrap()).unwrap();
                let there = row < table.rows();
                slots[take.valid.0 as usize] = Value::Int(i64::from(there));
                if there {
                    for (column, slot) in &take.fields {
                        slots[slot.0 as usize] = table.value(row, *column).unwrap();
                    }
                    slots[take.cursor.0 as usize] = Value::Int(row as i64 + 1);
                }
            }
        }
    }
    said.push("...".to_owned());
    said
}

fn next(model: &Model, begin: usize, slots: &[Value]) -> usize {
    let OpKind::LoopBegin(l) = &model.ops[begin].kind else { panic!("no loop") };
    let goes_on = match &l.until {
        Until::Count(_) => slots[l.left.0 as usize].as_i64().unwrap() > 0,
        Until::While(condition) => condition.eval(slots).unwrap().truth(),
    };
    if goes_on { begin + 1 } else { l.exit as usize }
}

fn shown(message: &Message, slots: &[Value], numprocs: u32) -> String {
    let value = |e: &weir_annotations::Expr| e.eval(slots).unwrap().to_string();
    let any = |e: &Option<weir_annotations::Expr>| e.as_ref().map_or("any".to_owned(), value);
    match message {
        Message::Send(send) => format!("send {} to {}", value(&send.size), value(&send.to)),
        Message::Recv(recv) => format!("recv {} from {}", any(&recv.size), any(&recv.from)),
        Message::Sendrecv(send, recv) => format!("sendrecv to {} from {}", value(&send.to), any(&recv.from)),
        Message::Wait(requests) => format!("wait {:?} for {}", requests.mode, requests.list.len()),
        Message::Test(requests) => format!("test {:?} of {}", requests.mode, requests.list.len()),
        Message::SendInit(send) => format!("send init {} to {}", value(&send.size), value(&send.to)),
        Message::RecvInit(recv) => format!("recv init {} from {}", any(&recv.size), any(&recv.from)),
        Message::Start(list) => format!("start {}", list.len()),
        Message::Free(_) => "free".to_owned(),
        Message::Probe(recv) => format!("probe from {}", any(&recv.from)),
        Message::Collective(all) => {
            let group = all.group.list(slots, numprocs).unwrap().unwrap();
            format!("{:?} {} of {} at {}", all.operation, value(&all.size), group.len(), any(&all.root))
        }
    }
}
