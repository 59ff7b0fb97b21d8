//! From recordings to what the model maker works on: acts with numbers, the same numbering of
//! places in all processes, and what depended on the run.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::acts::{Act, Field, Group, Kind, Sample};
use crate::error::Error;
use crate::log::{ANY, Call, Got, NULL_PEER, Recording, Site};

/// Recorded runs, ready to be put together.
#[derive(Debug, Clone, Default)]
pub struct Runs {
    /// Processes of all runs, by run and number.
    pub samples: Vec<Sample>,
    /// Names of places, by number; 0 is not known.
    pub places: Vec<String>,
    /// Whether requests are told apart by number.
    pub requests: bool,
    /// Whether tags say something.
    pub tags: bool,
    /// What people have to know.
    pub notes: Vec<String>,
}

/// Puts recorded runs together; each is whole: a recording for each of its processes, in order.
///
/// # Errors
/// If something was recorded that no model can be made of.
pub fn gather(runs: &[Vec<Recording>], name_of: &mut dyn FnMut(&Site) -> String) -> Result<Runs, Error> {
    let mut out = Runs { places: vec![String::new()], ..Runs::default() };
    let mut numbers: HashMap<String, u32> = HashMap::new();
    let mut sources = Sources::default();
    for run in runs {
        refuse(run)?;
        communicators(run)?;
        for recording in run {
            let places: Vec<u32> = recording.sites.iter().map(|site| out.place(name_of(site), &mut numbers)).collect();
            out.samples.push(sample(recording, &places, &mut sources)?);
        }
        out.notes.extend(unmatched(run));
    }
    out.requests = !out.samples.iter().all(in_order);
    out.tags = !one_tag(&out.samples);
    let (requests, tags) = (out.requests, out.tags);
    out.samples.iter_mut().for_each(|sample| simplify(sample, requests, tags));
    sources.tell(&out.places, &mut out.notes);
    Ok(out)
}

impl Runs {
    fn place(&mut self, name: String, numbers: &mut HashMap<String, u32>) -> u32 {
        *numbers.entry(name).or_insert_with_key(|name| {
            self.places.push(name.clone());
            u32::try_from(self.places.len() - 1).unwrap_or(0)
        })
    }
}

fn refuse(run: &[Recording]) -> Result<(), Error> {
    let unseen: BTreeSet<&str> = run.iter().flat_map(|r| &r.unseen).map(String::as_str).collect();
    if unseen.is_empty() {
        return Ok(());
    }
    let list = unseen.into_iter().collect::<Vec<_>>().join(", ");
    Err(Error::Refused(format!("the program uses what no model is made of: {list}")))
}

/// All members of a communicator know it by the same number. Each is compared with its first, who
/// looks whether all have it: so that one of all of many processes is gone through twice by each,
/// and not by each with each.
fn communicators(run: &[Recording]) -> Result<(), Error> {
    let of = |m: u64, id: &u64| run.get(usize::try_from(m).ok()?).and_then(|other| other.comms.get(id));
    for recording in run {
        for (id, members) in &recording.comms {
            let Some(first) = members.first().copied() else { continue };
            let whole = first != recording.rank
                || members.iter().all(|m| of(*m, id).is_some_and(|o| o.first() == Some(&first)));
            if members.len() > 1 && (of(first, id) != Some(members) || !whole) {
                return Err(Error::Refused(format!(
                    "process {} made or first used a communicator at another time than its members: they cannot be told apart",
                    recording.rank
                )));
            }
        }
    }
    Ok(())
}

/// Messages of which one side was not seen.
fn unmatched(run: &[Recording]) -> Option<String> {
    let mut open: BTreeMap<(i64, i64, u64), i64> = BTreeMap::new();
    for recording in run {
        let me = recording.rank.cast_signed();
        let mut comms: HashMap<u64, (i64, u64)> = HashMap::new();
        for event in &recording.events {
            let mut sent = |to: i64, comm: u64| *open.entry((me, to, comm)).or_default() += 1;
            match &event.call {
                Call::Send { to, comm, .. } => sent(*to, *comm),
                Call::Sendrecv { to, comm, got, .. } => {
                    sent(*to, *comm);
                    *open.entry((got.source, me, *comm)).or_default() -= 1;
                }
                Call::Recv { comm, got: Some(got), .. } => *open.entry((got.source, me, *comm)).or_default() -= 1,
                Call::Recv { from, comm, request: Some(request), .. } => {
                    comms.insert(*request, (*from, *comm));
                }
                // Whether it received anything is not known.
                Call::Free { request } => {
                    if let Some((from, comm)) = comms.remove(request) {
                        *open.entry((from, me, comm)).or_default() -= 1;
                    }
                }
                Call::Wait { done, .. } => {
                    for (request, got) in done {
                        if let (Some(got), Some((_, comm))) = (got, comms.remove(request)) {
                            *open.entry((got.source, me, comm)).or_default() -= 1;
                        }
                    }
                }
                _ => {}
            }
        }
    }
    let ((from, to, _), count) =
        open.into_iter().find(|((from, to, _), count)| *count != 0 && *from >= 0 && *to >= 0)?;
    let what =
        if count > 0 { "were sent and not seen to be received" } else { "were received and not seen to be sent" };
    let n = run.len();
    Some(format!(
        "with {n} processes {} messages from process {from} to {to} {what}: the program communicates by calls that are not recorded, and the model may hang",
        count.abs()
    ))
}

/// Receives from any source, waits for any request: what the run decided.
#[derive(Debug, Default)]
struct Sources {
    kept: BTreeSet<u32>,
    resolved: BTreeSet<u32>,
    any_request: BTreeSet<u32>,
}

impl Sources {
    fn tell(&self, places: &[String], notes: &mut Vec<String>) {
        let list = |all: &BTreeSet<u32>| {
            let names: Vec<&str> = all
                .iter()
                .filter_map(|p| places.get(*p as usize))
                .map(|n| if n.is_empty() { "a place not known" } else { n })
                .collect();
            names.join(", ")
        };
        let kept: BTreeSet<u32> = self.kept.difference(&self.resolved).copied().collect();
        if !kept.is_empty() {
            notes.push(format!("{}: receives from any source; the model does too", list(&kept)));
        }
        if !self.resolved.is_empty() {
            notes.push(format!(
                "{}: receives from any source, and whom the process talks to next depends on it; the model takes the order of this run",
                list(&self.resolved)
            ));
        }
        if !self.any_request.is_empty() {
            notes.push(format!(
                "{}: goes on with whichever request is complete first; the model waits for them in the order of this run",
                list(&self.any_request)
            ));
        }
    }
}

/// Sites at which a process talks to whom it last received from by a wildcard.
fn depends_on_source(recording: &Recording) -> bool {
    let mut last: Option<i64> = None;
    let mut wild: BTreeSet<u64> = BTreeSet::new();
    // Of each site: whether it always was the last source, and whom it talked to.
    let mut sites: BTreeMap<u32, (bool, BTreeSet<i64>)> = BTreeMap::new();
    for event in &recording.events {
        let peer = match &event.call {
            Call::Send { to, .. } | Call::Sendrecv { to, .. } => Some(*to),
            Call::Recv { from, .. } if *from != ANY => Some(*from),
            _ => None,
        };
        if let (Some(peer), Some(last)) = (peer, last) {
            let site = sites.entry(event.site).or_insert((true, BTreeSet::new()));
            site.0 &= peer == last;
            if site.1.len() < 2 {
                site.1.insert(peer);
            }
        }
        match &event.call {
            Call::Recv { from: ANY, got: Some(got), .. }
            | Call::Probe { from: ANY, got, .. }
            | Call::Sendrecv { from: ANY, got, .. } => last = Some(got.source),
            Call::Recv { from: ANY, request: Some(request), .. } => {
                wild.insert(*request);
            }
            Call::Wait { done, .. } => {
                for (request, got) in done {
                    if let (true, Some(got)) = (wild.remove(request), got) {
                        last = Some(got.source);
                    }
                }
            }
            _ => {}
        }
    }
    sites.values().any(|(always, peers)| *always && peers.len() > 1)
}

fn sample(recording: &Recording, places: &[u32], sources: &mut Sources) -> Result<Sample, Error> {
    let resolve = depends_on_source(recording);
    let mut out = Sample { n: recording.size.cast_signed(), p: recording.rank.cast_signed(), ..Sample::default() };
    // Receives from any that have begun, by request: where they stand.
    let mut open: HashMap<u64, Option<usize>> = HashMap::new();
    let mut wild = |from: i64, got: Option<Got>, place: u32| match got {
        _ if from != ANY => from,
        Some(got) if resolve => {
            sources.resolved.insert(place);
            got.source
        }
        _ => {
            (if resolve { &mut sources.resolved } else { &mut sources.kept }).insert(place);
            ANY
        }
    };
    for event in &recording.events {
        let place = event.site.checked_sub(1).and_then(|s| places.get(s as usize)).copied().unwrap_or(0);
        let mut begin = |request: u64, at: Option<usize>| match open.insert(request, at) {
            None => Ok(()),
            Some(_) => Err(Error::Refused(format!("process {}: request {request} begins twice", recording.rank))),
        };
        let (kind, numbers) = match &event.call {
            Call::Send { kind, to, tag, bytes, comm, request } => {
                let mut numbers = vec![*to, bytes.cast_signed(), *tag, comm.cast_signed()];
                if let Some(request) = request {
                    begin(*request, None)?;
                    numbers.push(request.cast_signed());
                }
                (Kind::Send(*kind), numbers)
            }
            Call::Recv { from, tag, comm, request, got } => {
                let mut numbers = vec![wild(*from, *got, place), *tag, comm.cast_signed()];
                if let Some(request) = request {
                    begin(*request, (resolve && *from == ANY).then_some(out.acts.len()))?;
                    numbers.push(request.cast_signed());
                }
                (if request.is_some() { Kind::Irecv } else { Kind::Recv }, numbers)
            }
            Call::Sendrecv { to, tag, bytes, from, recvtag, comm, got } => {
                let from = wild(*from, Some(*got), place);
                (Kind::Sendrecv, vec![*to, bytes.cast_signed(), *tag, from, *recvtag, comm.cast_signed()])
            }
            Call::Probe { from, tag, comm, got } => {
                (Kind::Probe, vec![wild(*from, Some(*got), place), *tag, comm.cast_signed()])
            }
            Call::Wait { all, any, done } => {
                if *any {
                    sources.any_request.insert(place);
                }
                for (request, got) in done {
                    let Some(at) = open.remove(request) else {
                        let said = format!("process {}: request {request} completes and has not begun", recording.rank);
                        return Err(Error::Refused(said));
                    };
                    if let (Some(act), Some(got)) = (at.and_then(|at| out.acts.get_mut(at)), got) {
                        act.numbers[0] = got.source;
                    }
                }
                let numbers: Vec<i64> = done.iter().map(|(request, _)| request.cast_signed()).collect();
                (if *all && open.is_empty() { Kind::WaitAll } else { Kind::Wait(numbers.len()) }, numbers)
            }
            Call::Free { request } => {
                if open.remove(request).is_none() {
                    let said = format!("process {}: request {request} is given up and has not begun", recording.rank);
                    return Err(Error::Refused(said));
                }
                (Kind::Free, vec![request.cast_signed()])
            }
            Call::Collective { kind, bytes, root, comm, request } => {
                let group = group_of(recording, *comm);
                let rooted = *root != NULL_PEER;
                // The language has one name for both kinds of reduce-scatter.
                let kind = if *kind == 13 { 12 } else { *kind };
                let mut numbers = vec![bytes.cast_signed(), comm.cast_signed()];
                numbers.extend(rooted.then_some(*root));
                numbers.extend(&group.1);
                if let Some(request) = request {
                    begin(*request, None)?;
                    numbers.push(request.cast_signed());
                }
                (Kind::Collective { kind, begins: request.is_some(), rooted, group: group.0 }, numbers)
            }
            Call::Finalize => (Kind::End, Vec::new()),
        };
        out.acts.push(Act { kind, numbers });
        out.before_ns.push(event.before_ns);
        out.places.push(place);
    }
    Ok(out)
}

/// The members of a communicator, as the language can name them.
fn group_of(recording: &Recording, comm: u64) -> (Group, Vec<i64>) {
    let Some(members) = recording.comms.get(&comm) else { return (Group::World, Vec::new()) };
    let mut sorted: Vec<i64> = members.iter().map(|m| m.cast_signed()).collect();
    sorted.sort_unstable();
    let (low, high) = (sorted.first().copied().unwrap_or(0), sorted.last().copied().unwrap_or(0));
    if sorted.len() as u64 == recording.size {
        (Group::World, Vec::new())
    } else if high - low + 1 == sorted.len() as i64 {
        (Group::Range, vec![low, high])
    } else {
        (Group::List(sorted.len()), sorted)
    }
}

/// Whether each wait is for all requests or for the oldest, so that they need no numbers.
fn in_order(sample: &Sample) -> bool {
    let mut open = std::collections::VecDeque::new();
    for act in &sample.acts {
        match act.kind {
            Kind::WaitAll => open.clear(),
            Kind::Wait(1) if open.front() == act.numbers.first() => {
                open.pop_front();
            }
            Kind::Wait(_) | Kind::Free => return false,
            kind if kind.begins() => open.extend(act.numbers.last().copied()),
            _ => {}
        }
    }
    true
}

/// Whether all messages have one tag, or are taken with any.
fn one_tag(samples: &[Sample]) -> bool {
    let mut tags = BTreeSet::new();
    for sample in samples {
        for act in &sample.acts {
            let fields = act.kind.fields(true);
            tags.extend(
                fields
                    .iter()
                    .zip(&act.numbers)
                    .filter(|(f, v)| matches!(f, Field::Tag | Field::RecvTag) && **v != ANY)
                    .map(|(_, v)| *v),
            );
        }
        if tags.len() > 1 {
            return false;
        }
    }
    true
}

/// Leaves out numbers that say nothing.
fn simplify(sample: &mut Sample, requests: bool, tags: bool) {
    for act in &mut sample.acts {
        let fields = act.kind.fields(true);
        if !tags {
            for (field, number) in fields.iter().zip(&mut act.numbers) {
                match field {
                    Field::Tag => *number = 0,
                    Field::RecvTag => *number = ANY,
                    _ => {}
                }
            }
        }
        match act.kind {
            Kind::WaitAll => act.numbers.clear(),
            Kind::Wait(_) if !requests => {
                act.kind = Kind::WaitOldest;
                act.numbers.clear();
            }
            kind if kind.begins() && !requests => {
                act.numbers.pop();
            }
            _ => {}
        }
    }
}
