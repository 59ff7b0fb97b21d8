//! Peers that a rank has done with, and the end of the rank itself.

use std::collections::{BTreeMap, BTreeSet};

use weir_link::{PeerId, Time};
use weir_match::Class;
use weir_message::{DownReason, PeekOp};

use super::{Core, SendId, SendOp, Shared};
use crate::check::Program;
use crate::planted::Defect;
use crate::spec::{Ns, SEC};
use crate::world::Host;

/// How long a rank that ends stays at most, as the engine does (`Config::linger`).
const LINGER_NS: Ns = 5 * SEC;

/// The end of a rank.
#[derive(Copy, Clone, Debug)]
struct Leaving {
    since: Ns,
    /// Nothing was owed any more, or time was over: the endpoint was closed.
    closed: bool,
    gone: bool,
}

/// Whom a rank has done with.
#[derive(Debug, Default)]
pub(super) struct Parting {
    leaving: Option<Leaving>,
    /// Those dropped while they lived: nothing is sent to them any more, and nothing of theirs is
    /// wanted.
    dropped: BTreeSet<Program>,
    /// Of these, those that have opened to us since.
    again: Vec<Program>,
    /// Sends that failed and that a defect begins anew.
    heirs: BTreeMap<SendId, SendOp>,
}

impl Parting {
    /// Whether the rank takes part in nothing new.
    pub(super) fn is_leaving(&self) -> bool {
        self.leaving.is_some()
    }

    /// It has gone.
    pub(super) fn has_left(&self) -> bool {
        self.leaving.is_some_and(|l| l.gone)
    }

    pub(super) fn has_dropped(&self, program: Program) -> bool {
        self.dropped.contains(&program)
    }

    /// One that was dropped is there again.
    pub(super) fn note_again(&mut self, program: Program) {
        self.again.push(program);
    }

    pub(super) fn next_wake(&self) -> Option<Ns> {
        self.leaving.map(|l| l.since + LINGER_NS).filter(|_| !self.has_left())
    }

    /// A send has failed with its peer.
    pub(super) fn keep_for_heir(&mut self, id: SendId, op: SendOp) {
        self.heirs.insert(id, op);
    }
}

impl Core {
    /// The program ends: nothing new begins, and what was accepted is still delivered.
    pub(super) fn leave(&mut self, host: &mut Host<'_, Shared>) {
        let gone = host.shared.has(Defect::LeftAtOnce);
        self.parting.leaving.get_or_insert(Leaving { since: host.now, closed: false, gone: false });
        self.closing = true;
        host.shared.checks.liveness.died(self.program, host.now);
        self.peers.values_mut().for_each(|p| p.backlog.clear());
        self.remote_backlog.clear();
        self.looks.clear();
        let me = self.program;
        host.note(70, || format!("leaves          {me}"));
        if gone {
            self.go(host, true);
        }
    }

    /// Goes once nothing is owed any more, or time is over.
    pub(super) fn push_leaving(&mut self, host: &mut Host<'_, Shared>) {
        let Some(mut l) = self.parting.leaving.filter(|l| !l.gone) else { return };
        let is_late = host.now >= l.since + LINGER_NS;
        if !l.closed && (is_late || !self.messages.owes()) {
            l.closed = true;
            self.messages.endpoint_mut().close(Time(host.now));
            self.parting.leaving = Some(l);
        }
        let is_drained = l.closed && self.messages.endpoint().is_drained();
        if is_drained || is_late {
            self.go(host, !is_late);
        }
    }

    /// It is gone: in good order if nothing was left to be done.
    fn go(&mut self, host: &mut Host<'_, Shared>, in_order: bool) {
        if let Some(l) = &mut self.parting.leaving {
            l.gone = true;
        }
        let me = self.program;
        let checks = &host.shared.checks;
        let takes = |to: Program| {
            let peer = self.by_program.get(&to).and_then(|p| self.peers.get(p));
            let by_us = peer.is_some_and(|p| p.was_up && matches!(p.down, None | Some(DownReason::LocalClose)));
            // Whom it dropped itself, with what was on its way to him, it owes nothing.
            by_us
                && !self.parting.dropped.contains(&to)
                && !checks.liveness.is_dead(to)
                && !checks.liveness.silence_kills
        };
        let lost = checks.delivery.told_and_not_there(me).find(|(_, to)| takes(*to));
        if let (true, Some((message, to))) = (in_order, lost) {
            let why =
                format!("{me} is gone in good order, and its message {message}, told as complete, is not at {to}");
            host.violation("lost", why);
        }
        let tally = &mut host.shared.checks.tally;
        *(if in_order { &mut tally.left_in_order } else { &mut tally.left_late }) += 1;
        host.note(71, || format!("is gone         {me}{}", if in_order { "" } else { ", with debts" }));
    }

    /// Has done with a program that is dead: its place may be given to another.
    pub(super) fn forget(&mut self, host: &mut Host<'_, Shared>, program: Program) {
        let Some(&id) = self.by_program.get(&program) else { return };
        let Some(p) = self.peers.get_mut(&id).filter(|p| p.down.is_some()) else { return };
        p.forgotten = true;
        host.shared.checks.tally.forgotten += 1;
        if !host.shared.has(Defect::ForgottenKept) {
            self.messages.remove_peer(Time(host.now), id.0);
        }
        self.settle(host);
    }

    /// Has done with a program, whether it lives or not. It is forgotten later: what was claimed of
    /// it may still be received, and names it.
    pub(super) fn drop_peer(&mut self, host: &mut Host<'_, Shared>, program: Program) {
        self.parting.dropped.insert(program);
        host.shared.checks.liveness.dropped(self.program, program);
        let me = self.program;
        host.shared.checks.tally.dropped += 1;
        host.note(72, || format!("drops           {me} drops {program}"));
        self.end_dropped(host, program);
    }

    /// Those dropped that have come again.
    pub(super) fn push_dropped(&mut self, host: &mut Host<'_, Shared>) {
        while let Some(program) = self.parting.again.pop() {
            self.end_dropped(host, program);
        }
    }

    fn end_dropped(&mut self, host: &mut Host<'_, Shared>, program: Program) {
        let Some(&id) = self.by_program.get(&program) else { return };
        let waiting: Vec<SendId> = self.peers.get_mut(&id).map(|p| p.backlog.drain(..).collect()).unwrap_or_default();
        waiting.into_iter().for_each(|send| self.end_send(host, send, false));
        self.messages.close_peer(Time(host.now), id.0);
        self.settle(host);
        // What had come of it is nobody's.
        for class in [Class::Tagged, Class::Untagged] {
            let all =
                PeekOp { source: Some(id.0), class, tag: 0, ignore: u64::MAX, claim: false, discard: true, context: 0 };
            while let Ok(Some(_)) = self.messages.peek(Time(host.now), &all) {
                self.settle(host);
            }
        }
    }

    /// With the defect, what was meant for a life that is over goes to the next one.
    pub(super) fn push_heirs(&mut self, host: &mut Host<'_, Shared>) {
        for (id, op) in std::mem::take(&mut self.parting.heirs) {
            let heir = host.shared.directory.current(op.to);
            if heir.incarnation == 0 {
                self.parting.heirs.insert(id, op);
                continue;
            }
            let peer = self.peer_of(host, heir);
            self.send_to_heir(host, id, op, peer);
        }
    }

    /// Whether places are kept of those that this rank has done with.
    pub(super) fn keeps_forgotten(&self) -> Option<Program> {
        let kept = |id: &PeerId| self.messages.endpoint().peers().any(|p| p == *id);
        self.peers.iter().find(|(id, p)| p.forgotten && kept(id)).map(|(_, p)| p.program)
    }

    /// Has another look at those it has done with: something may have named them until now.
    pub(super) fn forget_again(&mut self, now: Ns, shared: &Shared) {
        if !shared.has(Defect::ForgottenKept) {
            for (id, _) in self.peers.iter().filter(|(_, p)| p.forgotten) {
                self.messages.remove_peer(Time(now), id.0);
            }
        }
    }
}
