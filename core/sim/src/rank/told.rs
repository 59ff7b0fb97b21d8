//! What the messages tell step by step, handed to the checkers.

use std::collections::BTreeMap;
use std::fmt;

use weir_link::{DataKey, DownReason, PeerId};
use weir_message::{Notice, Sink, Step};

use super::{Core, Peer, RecvId, SendId, Shared};
use crate::check::delivery::Coverage;
use crate::check::{Checks, Program};
use crate::planted::{Defect, hits};
use crate::world::Host;

/// Keeps the steps of one call.
#[derive(Debug, Default)]
pub struct Steps(pub(super) Vec<Step>);

impl Sink for Steps {
    fn on(&self, _level: u8) -> bool {
        false
    }

    fn line(&mut self, _text: fmt::Arguments<'_>) {}

    fn notice(&mut self, _notice: &Notice<'_>) {}

    fn step(&mut self, step: Step) {
        self.0.push(step);
    }
}

/// Which bytes have come of what is on its way, by sender.
pub(super) type Pieces = BTreeMap<(PeerId, DataKey), Coverage>;

impl Core {
    /// Everything that a call has brought about: steps for the checkers, then operations that have
    /// ended.
    pub(super) fn settle(&mut self, host: &mut Host<'_, Shared>) {
        let mut steps = std::mem::take(&mut self.messages.sink_mut().0);
        for step in steps.drain(..) {
            self.step(host, step);
        }
        self.messages.sink_mut().0 = steps;
        while let Some(c) = self.messages.poll(weir_link::Time(host.now)) {
            let planted = host.shared.planted.filter(|_| hits(c.context as u64));
            match planted {
                Some(Defect::EndLost) => continue,
                Some(Defect::EndTwice) => self.completed(host, &c),
                _ => {}
            }
            self.completed(host, &c);
        }
    }

    fn step(&mut self, host: &mut Host<'_, Shared>, step: Step) {
        let me = self.program;
        match step {
            Step::Up { peer } => {
                let p = self.peer_slot(host, PeerId(peer));
                p.was_up = true;
                let (other, forgotten) = (p.program, std::mem::take(&mut p.forgotten));
                host.note(10, || format!("up              {me} with {other}"));
                if self.parting.has_dropped(other) {
                    if let Some(p) = self.peers.get_mut(&PeerId(peer)) {
                        p.down = None;
                    }
                    return self.parting.note_again(other);
                }
                if forgotten && host.shared.checks.liveness.is_dead(other) {
                    return host
                        .violation("old-life", format!("{me}: {other} is dead and forgotten, and comes up again"));
                }
                // Completions name those only that were inserted.
                self.peer_of(host, other);
            }
            Step::Down { .. } if host.shared.has(Defect::DeathUnheard) => {}
            Step::Down { peer, reason } => self.down(host, PeerId(peer), reason),
            Step::Seen { peer, mseq, .. } => {
                let former = self.pieces.insert((PeerId(peer), DataKey::Message(mseq)), Coverage::default());
                if former.is_some() {
                    host.violation("first", format!("{me}: message number {mseq} of peer {peer} begins again"));
                }
                self.seen(host, &step);
            }
            Step::Piece { peer, key, offset, len, total, complete } => {
                let of = (PeerId(peer), key);
                if let Err((kind, why)) = self.piece(of, offset, len, total, complete) {
                    host.violation(kind, format!("{me}: {key:?} of peer {peer}: {why}"));
                }
            }
            Step::Restored { peer, key, offset, len } => {
                let all = self.pieces.get_mut(&(PeerId(peer), key));
                let added = all.map_or(Err("not under way".into()), |c| c.add(offset, offset + len));
                if let Err(e) = added {
                    host.violation("parity", format!("{me}: {key:?} of peer {peer}: {e}"));
                }
            }
            Step::Taken { peer, data, context } => {
                let (from, message) = (self.peer_slot(host, PeerId(peer)).program, data.unwrap_or(u64::MAX));
                host.shared.checks.delivery.matched(from, message);
                let receive = RecvId(context as u64);
                if self.is_many(receive) {
                    self.taken_by_many(host, receive, from, message);
                } else if !self.has_claimed(receive, from, message)
                    && let Err(e) = host.shared.checks.order.taken(from, me, message, context as u64)
                {
                    host.violation("order", e);
                }
            }
            Step::Whole { peer, data } => {
                let from = self.peer_slot(host, PeerId(peer)).program;
                host.shared.checks.delivery.arrived(from, data.unwrap_or(u64::MAX));
            }
            Step::Credit { peer, msgs, bytes } => {
                if host.shared.has(Defect::CreditTwice) {
                    self.messages.endpoint_mut().consume(PeerId(peer), msgs, bytes);
                }
                let from = self.peer_slot(host, PeerId(peer)).program;
                if let Err(e) = host.shared.checks.memory.consumed(from, me, msgs.into(), bytes) {
                    host.violation("memory", e);
                }
            }
        }
    }

    /// Compares the protocol's word on what has come with the bytes told before.
    fn piece(
        &mut self,
        of: (PeerId, DataKey),
        offset: u64,
        len: u64,
        total: u64,
        complete: bool,
    ) -> Result<(), (&'static str, String)> {
        if let DataKey::Message(_) = of.1
            && !self.pieces.contains_key(&of)
        {
            return Err(("first", format!("bytes {offset}+{len} before its beginning, or after its end")));
        }
        if offset + len > total {
            return Err(("range", format!("bytes {offset}+{len} of {total}")));
        }
        let there = self.pieces.entry(of).or_default();
        there.add(offset, offset + len).map_err(|e| ("exactly-once", e))?;
        if complete != there.is_all(total) {
            return Err(("complete", format!("complete = {complete} with {} of {total} bytes", there.bytes())));
        }
        if complete {
            self.pieces.remove(&of);
        }
        Ok(())
    }

    /// A message begins to arrive: it is one that was sent.
    fn seen(&mut self, host: &mut Host<'_, Shared>, step: &Step) {
        let Step::Seen { peer, class, tag, data, len, credit_bytes, .. } = *step else { return };
        let (me, from) = (self.program, self.peer_slot(host, PeerId(peer)).program);
        let message = data.unwrap_or(u64::MAX);
        let sent = host.shared.checks.delivery.get(from, message).map(|m| (m.to, m.tag, m.len));
        let tag_sent = if class == weir_match::Class::Tagged { sent.map_or(0, |s| s.1) } else { 0 };
        if sent.map(|s| (s.0, s.2)) != Some((me, len)) || tag != tag_sent {
            let why = format!("{me}: message {message} of {from} (tag {tag:#x}, {len} B) was sent as {sent:?}");
            return host.violation("envelope", why);
        }
        let more = self.messages.endpoint().sessions().get(PeerId(peer)).map_or(0, |s| s.bulk_credit());
        if let Err(e) = host.shared.checks.memory.arrived(from, me, credit_bytes, more) {
            host.violation("memory", e);
        }
    }

    fn down(&mut self, host: &mut Host<'_, Shared>, peer: PeerId, reason: DownReason) {
        let program = self.program;
        let p = self.peer_slot(host, peer);
        let other = p.program;
        let waiting: Vec<SendId> = p.backlog.drain(..).collect();
        if p.down.replace(reason).is_some() {
            host.violation("down-twice", format!("{program} was told twice that {other} is down"));
        }
        host.note(11, || format!("down            {program} loses {other}: {reason}"));
        let in_order = self.closing || (reason == DownReason::Closed && host.shared.closing);
        if !in_order && let Err(e) = host.shared.checks.liveness.verdict(program, other, &reason.to_string()) {
            host.violation("false-death", e);
        }
        let Checks { order, delivery, memory, .. } = &mut host.shared.checks;
        memory.parted(other, program);
        order.parted(other, program, |message| delivery.get(other, message).is_some_and(|m| m.arrived));
        self.pieces.retain(|(p, _), _| *p != peer);
        for id in waiting {
            self.end_send(host, id, false);
        }
    }

    /// The slot for a peer of the endpoint, made when first seen.
    pub(super) fn peer_slot(&mut self, host: &mut Host<'_, Shared>, id: PeerId) -> &mut Peer {
        let endpoint = self.messages.endpoint();
        let by_program = &mut self.by_program;
        let endpoint_id = endpoint.peer_endpoint_id(id);
        if let Some(former) = self.peers.get(&id).filter(|p| p.endpoint_id != endpoint_id) {
            let (program, known) = (former.program, former.inserted && !former.forgotten);
            by_program.remove(&program);
            self.peers.remove(&id);
            host.shared.checks.tally.places_reused += 1;
            if known {
                host.violation("identity", format!("{id:?} is {program}, and is given to {endpoint_id:#x}"));
            }
        }
        self.peers.entry(id).or_insert_with(|| {
            let program = host.shared.directory.program(endpoint_id).unwrap_or_else(|| {
                host.violation("identity", format!("peer {id:?} has endpoint id {endpoint_id:#x}, which nobody has"));
                Program { host: super::HostId::MAX, incarnation: 0 }
            });
            by_program.insert(program, id);
            Peer::new(program, endpoint_id)
        })
    }

    /// The endpoint's peer for a program.
    pub(super) fn peer_of(&mut self, host: &mut Host<'_, Shared>, program: Program) -> PeerId {
        if let Some(id) = self.by_program.get(&program).filter(|id| self.peers.get(id).is_some_and(|p| p.inserted)) {
            return *id;
        }
        let Some(name) = host.shared.directory.name(program) else {
            host.violation("scenario", format!("{program} has no name yet"));
            return PeerId(u32::MAX);
        };
        match self.messages.insert_peer(&name) {
            Ok(id) => {
                self.peer_slot(host, PeerId(id)).inserted = true;
                PeerId(id)
            }
            Err(e) => {
                host.violation("name", format!("{} refuses the name of {program}: {e}", self.program));
                PeerId(u32::MAX)
            }
        }
    }
}
