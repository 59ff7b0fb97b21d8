//! Loops that take no time: what repeats exactly never ends, and need not use up the budget to be
//! known.
//!
//! While time stands still and nobody communicates, only program counters, slots and the generator
//! of choices change. If all of them are as they were before, the run goes round in a circle. What
//! does not repeat (a loop that counts) may be long or endless: the budget decides.

use std::sync::Arc;

use weir_annotations::Value;
use weir_annotations::expr::Slot;
use weir_annotations::program::{Model, OpKind, Pc};
use weir_stats::Random;

use crate::observe::Observer;
use crate::vm::Run;

/// Steps at one time before it is looked whether they repeat.
const PATIENCE: u64 = 1_000_000;

/// What is known about steps that take no time.
#[derive(Debug, Default)]
pub(super) struct Still {
    /// How many steps there were when time went on last.
    from: u64,
    /// When the next picture is taken.
    next: u64,
    /// Things that happened beside control and looks without success.
    pub changes: u64,
    picture: Option<Picture>,
    /// Slots whose values decide nothing: the count of iterations of a loop whose `index` nobody
    /// reads. Known when it is asked.
    unread: Option<Arc<[bool]>>,
}

/// All that control and looks can change.
#[derive(Debug)]
struct Picture {
    process: u32,
    changes: u64,
    processes: Vec<(Pc, Random)>,
    slots: Vec<Value>,
}

/// Slots that nothing reads.
fn unread(model: &Model) -> Arc<[bool]> {
    let mut unread = vec![true; model.slots.len().max(2)];
    let mut read = |slot: Slot| {
        if let Some(unread) = unread.get_mut(slot.0 as usize) {
            *unread = false;
        }
    };
    for op in &model.ops {
        match &op.kind {
            OpKind::LoopBegin(around) => read(around.left),
            OpKind::Take(take) => read(take.cursor),
            _ => {}
        }
        op.clone().each_expr(&mut |expr| {
            expr.mentions(&mut |slot| {
                read(slot);
                false
            });
        });
    }
    unread.into()
}

impl Still {
    /// Time goes on.
    pub fn moved(&mut self, steps: u64) {
        self.from = steps;
        self.next = 0;
        self.picture = None;
    }
}

impl<O: Observer> Run<'_, O> {
    /// Whether all is as it was before at this time. Asked where loops end.
    #[inline]
    pub(super) fn repeats(&mut self, rank: u32) -> bool {
        self.steps - self.still.from > PATIENCE && self.is_as_before(rank)
    }

    /// Slots whose values decide nothing.
    pub(super) fn unread(&mut self) -> Arc<[bool]> {
        Arc::clone(self.still.unread.get_or_insert_with(|| unread(self.model)))
    }

    #[cold]
    fn is_as_before(&mut self, rank: u32) -> bool {
        if self.steps >= self.still.next {
            // Ever later, so that each circle has room between two pictures.
            self.still.next = self.steps.saturating_mul(2);
            let processes = self.processes.iter().map(|p| (p.pc, p.own.clone())).collect();
            let (changes, slots) = (self.still.changes, self.slots.clone());
            self.still.picture = Some(Picture { process: rank, changes, processes, slots });
            return false;
        }
        let unread = self.unread();
        let Some(picture) = &self.still.picture else { return false };
        if picture.process != rank || picture.changes != self.still.changes {
            return false;
        }
        let own = rank as usize;
        let same = |at: usize| {
            let process = &self.processes[at];
            picture.processes[at] == (process.pc, process.own.clone()) && {
                let slots = at * self.width..(at + 1) * self.width;
                let pairs = self.slots[slots.clone()].iter().zip(&picture.slots[slots]).zip(&*unread);
                pairs.into_iter().all(|((is, was), unread)| *unread || is == was)
            }
        };
        same(own) && (0..self.processes.len()).all(same)
    }
}
