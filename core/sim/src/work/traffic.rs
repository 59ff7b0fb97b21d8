//! Random traffic: messages between random ranks at random times, and receives of all kinds that
//! take them.
//!
//! Tags fall into groups (bits 32 and up), and all receives of a group are of one kind. So any
//! receive finds its message whatever the order of arrival, and every program ends; within a group,
//! wildcards and exact tags compete as they like.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::PROTOCOL;
use super::script::Step;
use crate::check::Program;
use crate::rank::{COUNTERS, READABLE_BYTES, RecvOp, RemoteOp, SendOp, WRITABLE_BYTES};
use crate::rng::Rng;
use crate::spec::{HostId, Ns};

/// How the receives of a group of tags look.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Kind {
    /// From the sender, this tag.
    Exact,
    /// From the sender, any tag of the group.
    AnyTag,
    /// From anyone, this tag.
    AnySource,
    /// From anyone, any tag of the group.
    AnySourceAnyTag,
    /// Untagged, from the sender.
    Untagged,
    /// Untagged, from anyone.
    UntaggedAny,
    /// From anyone, any tag of the group, into a buffer for several.
    Many,
    /// The same from the sender.
    ManyFrom,
    /// Untagged, from anyone, into a buffer for several.
    ManyUntagged,
}

/// One message and the receive that is meant to be enough for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Planned {
    /// Sender.
    pub from: HostId,
    /// Receiver.
    pub to: HostId,
    /// When it is sent.
    pub send_at_ns: Ns,
    /// When its receive is posted.
    pub receive_at_ns: Ns,
    /// Kind of the receive; also the group of tags.
    pub kind: Kind,
    /// Low bits of the tag.
    pub tag: u64,
    /// Bytes.
    pub len: u64,
    /// Complete only when matched.
    pub sync: bool,
    /// Bytes of the receive's buffer.
    pub room: u64,
    /// 0: before anyone has restarted; 1: after that.
    pub phase: u32,
    /// Its receiver looks for it and claims it before it receives.
    #[serde(default)]
    pub look: bool,
    /// When the receive is withdrawn and begun again, if it has taken nothing.
    #[serde(default)]
    pub again_at_ns: Option<Ns>,
}

impl Planned {
    /// A message of `len` bytes whose receive names its sender and tag, both at the beginning: what
    /// tests vary.
    #[must_use]
    pub fn plain(from: HostId, to: HostId, len: u64) -> Planned {
        Planned {
            from,
            to,
            send_at_ns: 0,
            receive_at_ns: 0,
            kind: Kind::Exact,
            tag: 1,
            len,
            sync: false,
            room: u64::MAX,
            phase: 0,
            look: false,
            again_at_ns: None,
        }
    }
}

/// Buffers for several messages, of which so many are posted at a time, until all the messages of a
/// group have come to a rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PlannedMany {
    /// The rank.
    pub to: HostId,
    /// 0: before anyone has restarted; 1: after that.
    pub phase: u32,
    /// The group: the messages of this kind and phase.
    pub kind: Kind,
    /// And of this sender only.
    pub from: Option<HostId>,
    /// When the first are posted.
    pub at_ns: Ns,
    /// Bytes of a buffer.
    pub room: u64,
    /// It takes another message as long as so many are free.
    pub min: u64,
    /// How many are posted at a time.
    pub buffers: u32,
}

/// A remote write or read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PlannedRemote {
    /// By whom.
    pub from: HostId,
    /// When it begins.
    pub at_ns: Ns,
    /// 0: before anyone has restarted; 1: after that.
    pub phase: u32,
    /// What.
    pub op: RemoteOp,
}

/// Random traffic.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Traffic {
    /// All messages.
    pub messages: Vec<Planned>,
    /// Remote writes, reads and additions beside them.
    #[serde(default)]
    pub remote: Vec<PlannedRemote>,
    /// The receives of messages that share their buffers.
    #[serde(default)]
    pub many: Vec<PlannedMany>,
    /// Hosts that crash and restart during phase 0.
    pub crashing: Vec<HostId>,
    /// When phase 1 begins.
    pub phase_ns: Ns,
    /// Who has done with whom in phase 0, and when.
    #[serde(default)]
    pub drops: Vec<(HostId, HostId, Ns)>,
    /// When the dead of phase 0 must be known to be dead.
    pub forget_ns: Ns,
}

/// What random traffic is drawn from.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Ranks.
    pub hosts: u32,
    /// Messages.
    pub messages: u64,
    /// Largest message.
    pub len_max: u64,
    /// Bytes in all.
    pub bytes_max: u64,
    /// Acts of a phase are spread over this time.
    pub spread_ns: Ns,
    /// Only receives that name their sender.
    pub directed: bool,
}

const TAG_MASK: u64 = 0xffff_ffff;
/// The part of a tag that buffers for several messages ignore.
const MANY_MASK: u64 = 0xf_ffff;
/// The bit of the tag that says that the sender waits for the match, as MPI libraries have one.
const SYNC: u64 = 1 << 54;

impl Kind {
    fn tag(self, low: u64) -> u64 {
        ((self as u64 + 1) << 32) | (low & TAG_MASK)
    }

    fn is_tagged(self) -> bool {
        !matches!(self, Kind::Untagged | Kind::UntaggedAny | Kind::ManyUntagged)
    }

    fn is_many(self) -> bool {
        matches!(self, Kind::Many | Kind::ManyFrom | Kind::ManyUntagged)
    }
}

fn phase_bits(phase: u32) -> u64 {
    u64::from(phase) << 24
}

impl PlannedMany {
    fn receive(&self) -> RecvOp {
        let ignore = if self.kind.is_tagged() { PROTOCOL | MANY_MASK } else { 0 };
        let (tagged, tag) = (self.kind.is_tagged(), self.kind.tag(phase_bits(self.phase)));
        RecvOp { from: self.from, tagged, tag, ignore, room: self.room }
    }

    /// Whether a message is one of those that it takes.
    fn takes(&self, m: &Planned) -> bool {
        (m.to, m.phase, m.kind) == (self.to, self.phase, self.kind) && self.from.is_none_or(|from| from == m.from)
    }
}

impl Planned {
    fn send(&self) -> SendOp {
        let sync = if self.sync && self.ignore() & SYNC != 0 { SYNC } else { 0 };
        SendOp {
            to: self.to,
            tagged: self.kind.is_tagged(),
            tag: self.kind.tag(self.low()) | sync,
            len: self.len,
            sync: self.sync,
        }
    }

    fn receive(&self) -> RecvOp {
        let from = matches!(self.kind, Kind::Exact | Kind::AnyTag | Kind::Untagged).then_some(self.from);
        let (tagged, tag, ignore) = (self.kind.is_tagged(), self.kind.tag(self.low()), self.ignore());
        RecvOp { from, tagged, tag, ignore, room: self.room }
    }

    /// Low bits of the tag as it is sent: those of messages that share buffers say which phase they
    /// are of.
    fn low(&self) -> u64 {
        if self.kind.is_many() { phase_bits(self.phase) | self.tag & MANY_MASK } else { self.tag }
    }

    /// Protocol bits as MPI libraries do it, and one kind of receive that ignores nothing.
    fn ignore(&self) -> u64 {
        match self.kind {
            Kind::Exact => PROTOCOL,
            Kind::AnyTag | Kind::AnySourceAnyTag => PROTOCOL | TAG_MASK,
            Kind::Many | Kind::ManyFrom => PROTOCOL | MANY_MASK,
            Kind::AnySource | Kind::Untagged | Kind::UntaggedAny | Kind::ManyUntagged => 0,
        }
    }
}

impl Traffic {
    /// Draws the messages of one phase.
    pub fn draw(&mut self, rng: &mut Rng, b: &Bounds, phase: u32, begin_ns: Ns) {
        // Untagged receives from anyone take all untagged messages: a run has one kind or the
        // other.
        let untagged = if b.directed || rng.chance(500_000) { Kind::Untagged } else { Kind::UntaggedAny };
        let kinds: &[Kind] = if b.directed {
            &[Kind::Exact, Kind::Exact, Kind::AnyTag, untagged]
        } else {
            &[Kind::Exact, Kind::Exact, Kind::AnyTag, Kind::AnySource, Kind::AnySourceAnyTag, untagged]
        };
        let tags = rng.pick(&[1, 2, 5, 20, 1000]);
        let mut bytes = 0;
        for _ in 0..b.messages {
            let from = rng.below(u64::from(b.hosts)) as HostId;
            let to = (from + 1 + rng.below(u64::from(b.hosts) - 1) as HostId) % b.hosts;
            let len = match rng.below(10) {
                0 => 0,
                1..=4 => rng.log_between(1, 100.min(b.len_max)),
                _ => rng.log_between(1, b.len_max),
            };
            let len = if bytes + len > b.bytes_max { len % 64 } else { len };
            bytes += len;
            let send_at_ns = begin_ns + rng.below(b.spread_ns + 1);
            // Early, late, or at the same time.
            let receive_at_ns = match rng.below(3) {
                0 => begin_ns,
                1 => begin_ns + rng.below(b.spread_ns + 1),
                _ => send_at_ns + rng.below(b.spread_ns / 2 + 1),
            };
            let room = if rng.chance(50_000) { rng.below(len + 1) } else { u64::MAX };
            self.messages.push(Planned {
                from,
                to,
                send_at_ns,
                receive_at_ns,
                kind: rng.pick(kinds),
                tag: rng.below(tags),
                len,
                sync: rng.chance(100_000),
                room,
                phase,
                look: false,
                again_at_ns: None,
            });
        }
    }

    /// Has some receivers look before they receive, and some withdraw what they have posted and
    /// begin again.
    pub fn draw_looks(&mut self, rng: &mut Rng) {
        let (look, again) = (rng.pick(&[0, 50_000, 500_000, 1_000_000]), rng.pick(&[0, 50_000, 300_000]));
        let last_ns = self.messages.iter().map(|m| m.send_at_ns.max(m.receive_at_ns)).max().unwrap_or(0);
        // Who withdraws in the first phase does so before the second begins.
        let end_ns = if self.crashing.is_empty() { last_ns } else { self.phase_ns };
        for m in &mut self.messages {
            m.look = rng.chance(look);
            let end_ns = if m.phase == 0 { end_ns } else { last_ns };
            m.again_at_ns = rng.chance(again).then(|| rng.between(m.receive_at_ns, end_ns.max(m.receive_at_ns)));
        }
    }

    /// Has some messages share the buffers they are received in.
    pub fn draw_many(&mut self, rng: &mut Rng, hosts: u32) {
        let share = rng.pick(&[100_000, 500_000, 1_000_000]);
        let directed = rng.chance(500_000);
        let kind = if directed { Kind::ManyFrom } else { Kind::Many };
        let phases = 1 + self.messages.iter().map(|m| m.phase).max().unwrap_or(0);
        // What has no tag cannot say which phase it is of; and of that all or none.
        let untagged = phases == 1 && rng.chance(300_000);
        for m in &mut self.messages {
            let to_be = if m.kind.is_tagged() { kind } else { Kind::ManyUntagged };
            let chosen = if m.kind.is_tagged() { rng.chance(share) } else { untagged };
            if chosen {
                *m = Planned { kind: to_be, look: false, again_at_ns: None, room: u64::MAX, ..*m };
            }
        }
        let longest = self.messages.iter().filter(|m| m.kind.is_many()).map(|m| m.len).max().unwrap_or(0);
        let senders: Vec<Option<HostId>> = if directed { (0..hosts).map(Some).collect() } else { vec![None] };
        for (to, phase) in (0..hosts).flat_map(|to| (0..phases).map(move |phase| (to, phase))) {
            let some = senders.iter().map(|from| (kind, *from)).chain([(Kind::ManyUntagged, None)]);
            for (kind, from) in some {
                let room = match rng.below(4) {
                    // The longest may not fit.
                    0 => rng.log_between(1, longest.max(1)),
                    1 => longest.max(1),
                    _ => rng.log_between(longest.max(1), 4 * longest.max(1)),
                };
                let min = rng.pick(&[0, 1, room / 4, longest.min(room), room]);
                let all = PlannedMany { to, phase, kind, from, at_ns: 0, room, min, buffers: rng.between(1, 4) as u32 };
                if let Some(at_ns) = self.messages.iter().filter(|m| all.takes(m)).map(|m| m.receive_at_ns).min() {
                    self.many.push(PlannedMany { at_ns, ..all });
                }
            }
        }
    }

    /// Draws remote writes and reads for the time that the messages take.
    pub fn draw_remote(&mut self, rng: &mut Rng, hosts: u32, bytes_max: u64) {
        let mut written = vec![0; hosts as usize];
        let mut left = bytes_max.min(WRITABLE_BYTES);
        let len_max = rng.log_between(64, 256 << 10);
        for phase in 0..=self.messages.iter().map(|m| m.phase).max().unwrap_or(0) {
            let times = || self.messages.iter().filter(|m| m.phase == phase).map(|m| m.send_at_ns);
            let (Some(first), Some(last)) = (times().min(), times().max()) else { continue };
            for _ in 0..rng.log_between(2, 100) {
                let from = rng.below(u64::from(hosts)) as HostId;
                let to = (from + 1 + rng.below(u64::from(hosts) - 1) as HostId) % hosts;
                let (read, len) = (rng.chance(400_000), rng.log_between(1, len_max).saturating_sub(1).min(left));
                left -= len;
                let free: &mut u64 = &mut written[to as usize];
                let at = if read { rng.below(READABLE_BYTES - len + 1) } else { std::mem::replace(free, *free + len) };
                let (notice, wrong) = (!read && rng.chance(300_000), rng.chance(30_000));
                let op = RemoteOp { to, read, at, len, notice: notice && !wrong, wrong, add: false };
                self.remote.push(PlannedRemote { from, at_ns: rng.between(first, last), phase, op });
            }
        }
    }

    /// Draws additions to counters, few counters that many add to or many of a few, for the time
    /// that the messages take.
    pub fn draw_atomics(&mut self, rng: &mut Rng, hosts: u32) {
        let counters = rng.pick(&[1, 3, COUNTERS - 3]);
        for phase in 0..=self.messages.iter().map(|m| m.phase).max().unwrap_or(0) {
            let times = || self.messages.iter().filter(|m| m.phase == phase).map(|m| m.send_at_ns);
            let (Some(first), Some(last)) = (times().min(), times().max()) else { continue };
            let favourite = rng.below(u64::from(hosts)) as HostId;
            for _ in 0..rng.log_between(5, 300) {
                let from = rng.below(u64::from(hosts)) as HostId;
                let other = (from + 1 + rng.below(u64::from(hosts) - 1) as HostId) % hosts;
                let to = if from != favourite && rng.chance(500_000) { favourite } else { other };
                let (at, elements) = (8 * rng.below(counters), if rng.chance(100_000) { rng.between(2, 4) } else { 1 });
                let (read, wrong) = (rng.chance(600_000), rng.chance(20_000));
                let op = RemoteOp { to, read, at, len: 8 * elements, notice: false, wrong, add: true };
                self.remote.push(PlannedRemote { from, at_ns: rng.between(first, last), phase, op });
            }
        }
    }

    /// The steps of a rank: everything in order of time. An incarnation that is not the first has
    /// only phase 1.
    #[must_use]
    pub fn steps(&self, program: Program) -> Vec<Step> {
        let me = program.host;
        let mut acts: Vec<(u32, Ns, Step)> = Vec::new();
        for (i, m) in (0..).zip(&self.messages).filter(|(_, m)| m.phase >= program.incarnation.min(1)) {
            if m.from == me {
                acts.push((m.phase, m.send_at_ns, Step::Send(m.send())));
            }
            if m.to == me && !m.kind.is_many() {
                let begin = if m.look { Step::Look(m.receive()) } else { Step::Receive(m.receive()) };
                acts.push((m.phase, m.receive_at_ns, begin));
                if let Some(at) = m.again_at_ns {
                    acts.extend([(m.phase, m.receive_at_ns, Step::Mark(i)), (m.phase, at, Step::Again(i))]);
                }
            }
        }
        for (i, all) in (0..).zip(&self.many).filter(|(_, all)| all.to == me && all.phase >= program.incarnation.min(1))
        {
            let mut counts = BTreeMap::new();
            self.messages.iter().filter(|m| all.takes(m)).for_each(|m| *counts.entry(m.from).or_insert(0) += 1);
            let awaited = counts.into_iter().map(|(from, count)| Step::Await { group: i, from, count });
            acts.extend(awaited.map(|step| (all.phase, all.at_ns, step)));
            let begin = Step::Many { group: i, op: all.receive(), min: all.min, buffers: all.buffers };
            acts.push((all.phase, all.at_ns, begin));
        }
        for r in self.remote.iter().filter(|r| r.from == me && r.phase >= program.incarnation.min(1)) {
            acts.push((r.phase, r.at_ns, Step::Remote(r.op)));
        }
        if program.incarnation == 0 {
            acts.extend(self.drops.iter().filter(|d| d.0 == me).map(|d| (0, d.2, Step::Drop(d.1))));
        }
        // Stable: acts of one time stay in the order drawn.
        acts.sort_by_key(|(phase, at, _)| (*phase, *at));
        let first = acts.iter().take_while(|(phase, ..)| *phase == 0).count();
        let act = |(_, at, step): (u32, Ns, Step)| [Step::At(at), step];
        let later: Vec<_> = acts.split_off(first).into_iter().flat_map(act).collect();
        let mut steps: Vec<_> = acts.into_iter().flat_map(act).collect();
        steps.push(Step::Phase);
        let mut forget = Vec::new();
        if !self.crashing.is_empty() && program.incarnation == 0 {
            forget.push(Step::At(self.forget_ns));
            forget.extend(self.crashing.iter().map(|h| Step::Forget(*h)));
        }
        if self.forget_ns < self.phase_ns {
            steps.append(&mut forget);
        }
        steps.extend(later);
        steps.append(&mut forget);
        steps
    }

    /// When the last program acts last.
    #[must_use]
    pub fn last_act_ns(&self) -> Ns {
        let acts =
            self.messages.iter().map(|m| m.send_at_ns.max(m.receive_at_ns).max(m.again_at_ns.unwrap_or(0))).max();
        acts.unwrap_or(0).max(if self.crashing.is_empty() { 0 } else { self.forget_ns })
    }
}
