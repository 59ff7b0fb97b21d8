//! Which loops do the same in each iteration, so that an evaluator may look for their steady state.

use std::collections::BTreeSet;

use crate::compile::Code;
use crate::expr::Slot;
use crate::program::{Bound, Message, Op, OpKind, Recv, Until, WaitMode};

/// What an op says about itself.
#[derive(Debug, Default)]
struct Facts {
    uses: BTreeSet<Slot>,
    sets: Vec<Slot>,
    /// What it does is decided by chance or by the time.
    unsteady: bool,
}

/// Marks the loops of a program.
pub fn mark(code: &mut Code) {
    let mut facts: Vec<Facts> = code.ops.iter_mut().map(facts_of).collect();
    // Which persistent receive a start begins is not looked up: one from any, or one that binds,
    // may be meant.
    let changes = |m: &Message| matches!(m, Message::RecvInit(recv) if recv.from.is_none() || !recv.binds.is_empty());
    if code.ops.iter().filter_map(message_of).any(changes) {
        for (fact, op) in facts.iter_mut().zip(&code.ops) {
            fact.unsteady |= matches!(message_of(op), Some(Message::Start(_)));
        }
    }
    let mut begins = Vec::new();
    for at in 0..code.ops.len() {
        match &code.ops[at].kind {
            OpKind::LoopBegin(_) => begins.push(at),
            OpKind::LoopEnd(begin) => {
                let begin = *begin as usize;
                begins.pop();
                let steady = is_steady(&code.ops, &facts, begin, at, &code.formals);
                if let Some(OpKind::LoopBegin(l)) = code.ops.get_mut(begin).map(|op| &mut op.kind) {
                    l.steady = steady;
                }
            }
            _ => {}
        }
    }
}

fn message_of(op: &Op) -> Option<&Message> {
    if let OpKind::Message(message) = &op.kind { Some(message) } else { None }
}

fn is_steady(ops: &[Op], facts: &[Facts], begin: usize, end: usize, formals: &BTreeSet<Slot>) -> bool {
    let OpKind::LoopBegin(outer) = &ops[begin].kind else { return false };
    if !matches!(outer.until, Until::Count(_)) {
        return false;
    }
    let body = begin + 1..end;
    // An inner loop that is not steady for its index alone may be part of a steady one, so each is
    // looked at anew.
    if ops[body.clone()].iter().any(|op| matches!(&op.kind, OpKind::LoopBegin(l) if matches!(l.until, Until::While(_))))
    {
        return false;
    }
    let mut changed: BTreeSet<Slot> = BTreeSet::from([outer.index]);
    for fact in &facts[body.clone()] {
        if fact.unsteady {
            return false;
        }
        changed.extend(fact.sets.iter().filter(|slot| !formals.contains(slot)));
    }
    facts[body].iter().all(|fact| fact.uses.is_disjoint(&changed))
}

fn facts_of(op: &mut Op) -> Facts {
    let mut facts = Facts::default();
    op.each_expr(&mut |expr| {
        expr.mentions(&mut |slot| {
            facts.uses.insert(slot);
            false
        });
    });
    let bound = |binds: &[(Bound, Slot)]| binds.iter().map(|(_, slot)| *slot).collect();
    let any = |recv: &Recv| recv.from.is_none();
    match &op.kind {
        OpKind::Set(slot, _) => facts.sets.push(*slot),
        OpKind::Take(_) | OpKind::Choose(_) => facts.unsteady = true,
        OpKind::Message(message) => match &**message {
            Message::Recv(recv) | Message::Sendrecv(_, recv) => {
                facts.unsteady = any(recv);
                facts.sets = bound(&recv.binds);
            }
            Message::Wait(requests) => {
                facts.unsteady = matches!(requests.mode, WaitMode::Any | WaitMode::Some);
                facts.sets = bound(&requests.binds);
            }
            Message::Test(_) | Message::Probe(_) => facts.unsteady = true,
            Message::Send(_)
            | Message::SendInit(_)
            | Message::RecvInit(_)
            | Message::Start(_)
            | Message::Free(_)
            | Message::Collective(_) => {}
        },
        _ => {}
    }
    facts
}
