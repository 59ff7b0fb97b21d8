//! Persistent requests, which are made once and started again and again; and requests that are
//! given up.

use weir_annotations::program::{Message, OpKind, Pc, Recv, Request, Send};

use crate::matching::Wanted;
use crate::observe::Observer;
use crate::tour::Tour;
use crate::vm::messages::Outgoing;
use crate::vm::process::Flow;
use crate::vm::requests::{Kind, Named, carried};
use crate::vm::{Run, Step};

/// What `MPI_Send_init` and its like leave.
#[derive(Debug, Clone)]
pub(super) struct Persistent {
    /// Its number among those of its process, from 1: what it begins bears it.
    number: u64,
    /// The op that made it: it says what is carried and bound.
    op: Pc,
    begins: Begins,
}

/// A request's name and index.
pub(super) type Key = (u32, i64);

/// What each start begins. None: of nobody, complete at once.
#[derive(Debug, Clone)]
enum Begins {
    Send(Option<Outgoing>),
    Recv(Option<Wanted>, Option<u64>),
}

impl Persistent {
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Gives itself, under its name, to a tour.
    pub fn tour(&self, (id, index): Key, tour: &mut Tour) {
        let Self { number: _, op, begins } = self;
        [id, *op].into_iter().for_each(|part| tour.word(part.into()));
        tour.signed(index);
        match begins {
            Begins::Send(None) => tour.word(0),
            Begins::Send(Some(Outgoing { to, tag, comm, bytes, mode, op, carries })) => {
                [1, *to, *comm, *op].into_iter().for_each(|part| tour.word(part.into()));
                [*bytes, *mode as u64].into_iter().for_each(|part| tour.word(part));
                tour.tag(*comm, *tag);
                carried(carries, tour);
            }
            Begins::Recv(None, _) => tour.word(2),
            Begins::Recv(Some(Wanted { to, from, comm, tag }), room) => {
                [3, *to, *comm].into_iter().for_each(|part| tour.word(part.into()));
                tour.maybe(from.map(u64::from));
                tour.maybe(tag.map(i64::cast_unsigned));
                tour.maybe(*room);
            }
        }
    }
}

impl<O: Observer> Run<'_, O> {
    pub(super) fn send_init(&mut self, rank: u32, send: &Send) -> Step<Flow> {
        let out = self.outgoing(rank, send)?;
        self.make(rank, send.request.as_ref(), Begins::Send(out))
    }

    pub(super) fn recv_init(&mut self, rank: u32, recv: &Recv) -> Step<Flow> {
        let (wanted, room) = (self.wanted(rank, recv)?, self.room(rank, recv)?);
        self.make(rank, recv.request.as_ref(), Begins::Recv(wanted, room))
    }

    /// Enters a persistent request.
    fn make(&mut self, rank: u32, name: Option<&Request>, begins: Begins) -> Step<Flow> {
        let op = self.processes[rank as usize].pc;
        let Some(name) = name else { return self.wrong(rank, op, "a persistent request without a name") };
        let key = (name.id.0, self.index_of(rank, name)?);
        self.persistents += 1;
        let process = &mut self.processes[rank as usize];
        process.made += 1;
        let made = Persistent { number: process.made, op, begins };
        process.persistents.entry(key).or_default().push(made);
        Ok(self.next_op(rank))
    }

    fn index_of(&mut self, rank: u32, name: &Request) -> Step<i64> {
        name.index.as_ref().map_or(Ok(0), |index| self.whole(rank, index))
    }

    /// The requests of a list: one by name and index, or (with its number) each that was made under
    /// a name without index.
    fn listed_to_start(&mut self, rank: u32, list: &[Request]) -> Step<Vec<(Key, Option<u64>)>> {
        let mut keys = Vec::new();
        for name in list {
            let id = name.id.0;
            if name.index.is_some() {
                keys.push(((id, self.index_of(rank, name)?), None));
            } else {
                let all = self.processes[rank as usize].persistents.range((id, i64::MIN)..=(id, i64::MAX));
                keys.extend(all.flat_map(|(key, made)| made.iter().map(|one| (*key, Some(one.number)))));
            }
        }
        self.steps += keys.len() as u64;
        Ok(keys)
    }

    /// Begins one request after the other: the next when what the one before keeps the process is
    /// over.
    pub(super) fn start_op(&mut self, rank: u32, list: &[Request]) -> Step<Flow> {
        let all = self.listed_to_start(rank, list)?;
        loop {
            let at = self.processes[rank as usize].started;
            let Some((key, number)) = all.get(at) else {
                self.processes[rank as usize].started = 0;
                return Ok(self.next_op(rank));
            };
            self.begin_persistent(rank, *key, *number)?;
            let process = &mut self.processes[rank as usize];
            process.started = at + 1;
            if process.accounted > self.now {
                // It comes here again.
                let pc = process.pc;
                let flow = self.next_op(rank);
                self.processes[rank as usize].pc = pc;
                return Ok(flow);
            }
        }
    }

    /// The persistent request that a start means: of several under one name the oldest that is not
    /// active.
    fn one_to_start(&mut self, rank: u32, key: Key, number: Option<u64>) -> Step<Persistent> {
        let process = &self.processes[rank as usize];
        let is_active = |one: &Persistent| process.requests.iter().any(|named| named.maker == one.number);
        let made = process.persistents.get(&key).map_or(&[][..], Vec::as_slice);
        // Numbers rise: the oldest is first.
        let meant = match number.map(|number| made.binary_search_by_key(&number, |one| one.number)) {
            None => made,
            Some(Ok(at)) => &made[at..=at],
            Some(Err(_)) => &[],
        };
        let found = meant.iter().find(|one| !is_active(one)).cloned();
        let (exists, here) = (!made.is_empty(), process.pc);
        self.steps += process.requests.len() as u64;
        let Some(found) = found else {
            let name = self.shown(key);
            let why = if exists {
                format!("{name} is started, and was not waited for since it was before")
            } else {
                format!("{name} is no persistent request: MPI_Send_init and its like make one")
            };
            return self.wrong(rank, here, why);
        };
        Ok(found)
    }

    /// A request for people.
    fn shown(&self, (id, index): Key) -> String {
        let name = self.model.requests.get(id as usize).map_or("", String::as_str);
        format!("{name}[{index}]")
    }

    fn begin_persistent(&mut self, rank: u32, key: Key, number: Option<u64>) -> Step<()> {
        let (made, model) = (self.one_to_start(rank, key, number)?, self.model);
        let request = match made.begins {
            Begins::Send(None) => self.nothing(rank, Kind::Send),
            Begins::Recv(None, _) => {
                let request = self.nothing(rank, Kind::Recv);
                self.requests[request].op = made.op;
                request
            }
            Begins::Recv(Some(wanted), room) => self.begin_wanted(rank, wanted, room, made.op)?,
            Begins::Send(Some(out)) => {
                let carries = match model.ops.get(made.op as usize).map(|op| &op.kind) {
                    Some(OpKind::Message(message)) => match &**message {
                        Message::SendInit(send) => self.carried(rank, send)?,
                        _ => None,
                    },
                    _ => None,
                };
                match self.begin_outgoing(rank, Outgoing { carries, ..out }, true, false)? {
                    Some(request) => request,
                    None => return Ok(()),
                }
            }
        };
        let (id, index) = key;
        self.processes[rank as usize].requests.push(Named { id, index, request, maker: made.number });
        Ok(())
    }

    /// A request is given up: what it was for goes on by itself. Of several under one name the
    /// oldest is meant.
    pub(super) fn free_op(&mut self, rank: u32, name: &Request) -> Step<Flow> {
        let key = (name.id.0, self.index_of(rank, name)?);
        let process = &mut self.processes[rank as usize];
        let here = process.pc;
        let gone = process.persistents.get_mut(&key).map(|made| made.remove(0));
        if process.persistents.get(&key).is_some_and(Vec::is_empty) {
            process.persistents.remove(&key);
        }
        self.persistents -= u64::from(gone.is_some());
        self.steps += process.requests.len() as u64;
        let is_meant = |named: &Named| match &gone {
            Some(gone) => named.maker == gone.number,
            None => (named.id, named.index) == key,
        };
        match process.requests.iter().position(is_meant) {
            Some(at) => {
                let request = process.requests.remove(at).request;
                let given_up = &mut self.requests[request];
                if given_up.kind == Kind::Collective {
                    return self.wrong(rank, here, "MPI_Request_free of a collective, which MPI does not allow");
                }
                if given_up.done.is_some() {
                    self.requests.free(request);
                } else {
                    given_up.given_up = true;
                }
            }
            None if gone.is_none() => {
                let name = self.shown(key);
                return self.wrong(rank, here, format!("MPI_Request_free of {name}, under which nothing was begun"));
            }
            None => {}
        }
        Ok(self.next_op(rank))
    }
}
