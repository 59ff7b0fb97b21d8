//! How a run ended: who waits for whom when nothing moves any more, and what should be known about
//! it.

use weir_annotations::program::{CollectiveOp, Message, OpKind};

use crate::machine::operation_name;
use crate::observe::Observer;
use crate::outcome::{Blocked, Deadlock, LISTED, Missing, Unreceived, Verdict, WaitsFor};
use crate::vm::Run;
use crate::vm::process::State;
use crate::vm::requests::{Kind, NOBODY};

impl<O: Observer> Run<'_, O> {
    /// How the run ended.
    pub(super) fn verdict(&mut self) -> Verdict {
        if let Some(failure) = self.failure.take() {
            return Verdict::Failed(failure);
        }
        if let Some((process, op, endless)) = self.out_of_budget {
            return Verdict::OutOfBudget { process, op, at: self.now, endless };
        }
        if let Some(crowded) = self.crowded.take() {
            return Verdict::Crowded(crowded);
        }
        let blocked: Vec<Blocked> = (0..self.processes.len() as u32)
            .filter(|p| !self.processes[*p as usize].is_done())
            .map(|p| self.blocked(p))
            .collect();
        if blocked.is_empty() {
            return Verdict::Finished;
        }
        let cycle = self.cycle(&blocked);
        Verdict::Deadlock(Deadlock { blocked, cycle })
    }

    fn blocked(&self, rank: u32) -> Blocked {
        let process = &self.processes[rank as usize];
        let mut waits = Vec::new();
        if let State::Probing(wanted) = process.state {
            let (process, comm) = (wanted.from, wanted.comm >> 1);
            waits.push(WaitsFor {
                process,
                what: Missing::Message,
                op: self.processes[rank as usize].pc,
                tag: wanted.tag,
                comm,
            });
        }
        for (_, request) in &process.wait {
            self.waits_for(*request, &mut waits);
        }
        waits.truncate(LISTED);
        Blocked { process: rank, op: process.pc, since: process.accounted, waits }
    }

    fn waits_for(&self, id: u32, waits: &mut Vec<WaitsFor>) {
        let request = &self.requests[id];
        if request.done.is_some() || waits.len() >= LISTED {
            return;
        }
        let (comm, op) = (request.comm >> 1, request.op);
        if request.kind != Kind::Collective {
            let what = if request.kind == Kind::Recv { Missing::Message } else { Missing::Receive };
            // Tags of collectives are of our making.
            let inner = request.activity != NOBODY;
            let (what, tag) = if inner { (Missing::Collective, None) } else { (what, request.tag) };
            waits.push(WaitsFor { process: request.peer, what, op, tag, comm });
            return;
        }
        // Of a collective: what its parts wait for, or the others where it is drawn as a whole.
        let Some(activity) = request.peer else { return };
        let (open, whole) = self.open_parts(activity);
        if whole {
            waits.push(WaitsFor { process: None, what: Missing::Collective, op, tag: None, comm });
        }
        for part in open {
            self.waits_for(part, waits);
        }
    }

    /// Follows who waits for whom from the first blocked process until one comes again. Who waits
    /// for any waits for the first blocked one other than itself.
    fn cycle(&self, blocked: &[Blocked]) -> Vec<u32> {
        let numprocs = self.processes.len();
        let mut seen = vec![u32::MAX; numprocs];
        for (start, first) in (0u32..).zip(blocked) {
            let mut way = Vec::new();
            let mut at = first.process;
            loop {
                let mark = &mut seen[at as usize];
                if *mark == start {
                    let from = way.iter().position(|p| *p == at).unwrap_or(0);
                    return way.split_off(from);
                }
                if *mark != u32::MAX {
                    break;
                }
                *mark = start;
                way.push(at);
                let Ok(place) = blocked.binary_search_by_key(&at, |b| b.process) else { break };
                match self.next_of(&blocked[place], blocked) {
                    Some(next) => at = next,
                    None => break,
                }
            }
        }
        Vec::new()
    }

    /// A blocked process that this one waits for.
    fn next_of(&self, one: &Blocked, blocked: &[Blocked]) -> Option<u32> {
        let is_blocked = |p: u32| blocked.binary_search_by_key(&p, |b| b.process).is_ok();
        let named = one.waits.iter().filter_map(|w| w.process).find(|p| is_blocked(*p));
        let any = one.waits.iter().any(|w| w.process.is_none());
        let other = || blocked.iter().map(|b| b.process).find(|p| *p != one.process);
        named.or_else(|| if any { other() } else { None })
    }

    /// Messages that nobody received.
    pub(super) fn unreceived(&self) -> (Vec<Unreceived>, u64) {
        let left = self.matching.left_over();
        let listed = left.iter().take(LISTED).map(|id| {
            let m = &self.messages[*id];
            // Tags of collectives are of our making.
            let tag = if m.comm & 1 == 1 { -1 } else { m.tag };
            Unreceived { from: m.from, to: m.to, tag, comm: m.comm >> 1, bytes: m.bytes, op: m.op }
        });
        (listed.collect(), left.len() as u64)
    }

    pub(super) fn notices(&self) -> Vec<String> {
        let mut notices = Vec::new();
        let far = &self.network.beyond;
        if far.sizes > 0 {
            notices.push(format!(
                "{} of {} messages are larger than any that was measured (up to {} bytes): the line through the two largest sizes was continued",
                far.sizes, self.sent, far.size_max
            ));
        }
        if far.levels > 0 {
            notices.push(format!(
                "{} of {} messages met more others (up to {}) than were measured: the highest level measured was taken",
                far.levels, self.sent, far.level_max
            ));
        }
        let far = &self.local_beyond;
        if far.sizes > 0 {
            notices.push(format!(
                "{} local times or collectives are of sizes larger than any that was measured (up to {} bytes): the line through the two largest was continued",
                far.sizes, far.size_max
            ));
        }
        if far.levels > 0 {
            notices.push(format!(
                "{} parts in collectives are among more processes (up to {}) than were measured ({}): the most measured were taken",
                far.levels,
                far.level_max,
                self.measured_counts()
            ));
        }
        if far.below > 0 {
            notices.push(format!(
                "{} parts in collectives are among fewer processes (down to {}) than were measured ({}): the fewest measured were taken",
                far.below,
                far.below_min,
                self.measured_counts()
            ));
        }
        if let Some(place) = self.taken_for_waiting.and_then(|op| self.model.ops.get(op as usize)).map(|op| op.place) {
            let file = self.model.files.get(place.file as usize).map_or("", String::as_str);
            notices.push(format!(
                "{file}:{}: looks in vain without an end were taken for a wait, after 1000 at one time",
                place.line
            ));
        }
        if self.ready_unposted > 0 {
            notices.push(format!(
                "{} messages of MPI_Rsend were there before their receives were posted: MPI calls such a program erroneous",
                self.ready_unposted
            ));
        }
        notices
    }

    /// With how many processes the measured collectives of the model were measured.
    fn measured_counts(&self) -> String {
        let used = |operation: &CollectiveOp| {
            self.model.ops.iter().any(|op| {
                let OpKind::Message(message) = &op.kind else { return false };
                matches!(&**message, Message::Collective(one) if one.operation == *operation)
            })
        };
        let all = self.machine.collectives.measured.iter().filter(|(operation, _)| used(operation));
        let of = all.map(|(operation, grid)| {
            let counts: Vec<String> = grid.levels().map(|n| n.to_string()).collect();
            format!("{} with {}", operation_name(*operation), counts.join(", "))
        });
        of.collect::<Vec<_>>().join("; ")
    }
}
