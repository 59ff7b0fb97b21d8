//! Processes that look in vain again and again (`spec/prediction.md` 3.12): their look waits for
//! what can change its answer.
//!
//! A process that has done nothing but control and looks in vain, and stands as it stood before at
//! this time, does so for ever unless something of its own is new. One that counts its looks never
//! stands as it stood: it is taken for waiting after so many.

use weir_annotations::Value;
use weir_annotations::program::Pc;
use weir_stats::Random;

use crate::loss::Awaited;
use crate::observe::Observer;
use crate::tour::Tour;
use crate::vm::process::State;
use crate::vm::requests::valued;
use crate::vm::{Run, What};
use crate::{Cause, Time};

/// Looks in vain at one time after which a process is taken for waiting.
const MOST_IN_VAIN: u32 = 1000;

/// A process's looks in vain at one time, since it has done anything else.
#[derive(Debug)]
pub(super) struct Polls {
    at: Time,
    in_vain: u32,
    /// One of them was for messages.
    probes: bool,
    /// How it stood at the look whose number was a power of two.
    pc: Pc,
    own: Random,
    slots: Vec<Value>,
}

impl Polls {
    /// It has done something else.
    pub fn acts(&mut self) {
        self.in_vain = 0;
    }

    /// Gives itself to a tour; `counter`: which slots are left out.
    fn tour(&self, tour: &mut Tour, counter: &[bool]) {
        let Self { at, in_vain, probes, pc, own, slots } = self;
        // Of another time it decides nothing.
        if *at != tour.now() || *in_vain == 0 {
            return;
        }
        [u64::MAX, u64::from(*in_vain), u64::from(*probes), u64::from(*pc)]
            .into_iter()
            .for_each(|word| tour.word(word));
        tour.generator(own);
        let kept = slots.iter().zip(counter).filter(|(_, counter)| !**counter);
        kept.for_each(|(value, _)| valued(*value, tour));
    }
}

impl<O: Observer> Run<'_, O> {
    /// A process has looked in vain: whether it waits in this look. `probes`: for a message.
    pub(super) fn waits_in_look(&mut self, rank: u32, probes: bool) -> bool {
        let unread = self.unread();
        let slots = &self.slots[rank as usize * self.width..(rank as usize + 1) * self.width];
        let process = &mut self.processes[rank as usize];
        let polls = process.polls.get_or_insert_with(|| {
            let slots = Vec::new();
            Box::new(Polls { at: Time::ZERO, in_vain: 0, probes, pc: 0, own: process.own.clone(), slots })
        });
        if polls.at != self.now || polls.in_vain == 0 {
            (polls.at, polls.in_vain, polls.probes) = (self.now, 0, false);
        }
        polls.in_vain += 1;
        polls.probes |= probes;
        let alike = |polls: &Polls| {
            let mut pairs = slots.iter().zip(&polls.slots).zip(&*unread);
            polls.pc == process.pc && polls.own == process.own && pairs.all(|((is, was), unread)| *unread || is == was)
        };
        let circles = polls.in_vain > 1 && alike(polls);
        let counted = !circles && polls.in_vain >= MOST_IN_VAIN;
        if circles || counted {
            process.state = State::Polling { probes: polls.probes, counted };
            polls.in_vain = 0;
            if counted {
                self.taken_for_waiting.get_or_insert(process.pc);
            }
            return true;
        }
        if polls.in_vain.is_power_of_two() {
            (polls.pc, polls.own) = (process.pc, process.own.clone());
            polls.slots.clear();
            polls.slots.extend_from_slice(slots);
        }
        false
    }

    /// Something of a process's own is new: if it waits in a look, it looks again. `message`: it is
    /// one that nobody asked for.
    pub(super) fn news(&mut self, rank: u32, message: bool, awaited: &Awaited) {
        let process = &self.processes[rank as usize];
        if let State::Polling { probes, .. } = process.state
            && (probes || !message)
        {
            self.charge(rank, awaited);
            self.look_again(rank);
        }
    }

    fn look_again(&mut self, rank: u32) {
        let process = &mut self.processes[rank as usize];
        if !process.waking {
            process.waking = true;
            let at = process.accounted.max(self.now);
            self.push(at, What::Look, rank, rank, 0);
        }
    }

    /// Nothing comes any more: those that count their looks are answered. If there are none, but
    /// some that look for ever, that is how the run ends. Whether it goes on.
    pub(super) fn answer_polls(&mut self) -> bool {
        let mut endless = None;
        for rank in 0..self.processes.len() as u32 {
            match self.processes[rank as usize].state {
                State::Polling { counted: true, .. } => {
                    self.account(rank, self.now, Cause::Synchronisation);
                    self.look_again(rank);
                }
                State::Polling { .. } => endless = endless.or(Some(rank)),
                _ => {}
            }
        }
        if let (true, Some(rank)) = (self.events.is_empty(), endless) {
            // The run is over.
            let _ = self.give_up(rank, true);
        }
        !self.events.is_empty()
    }

    /// Gives how a process looks to a tour.
    pub(super) fn tour_polls(&self, rank: u32, tour: &mut Tour) {
        if let Some(polls) = &self.processes[rank as usize].polls {
            polls.tour(tour, self.steady.counters_at());
        }
    }
}
