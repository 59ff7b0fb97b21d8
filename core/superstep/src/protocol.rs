//! The superstep protocol as a transition function: two processes that send each other the messages
//! of a few supersteps over a network that loses, repeats and reorders, with bounded memory.
//!
//! It is small enough to be explored whole (`tests/model.rs`), with each rule switched off in turn
//! to see what it is for; and it is held against the sessions that ship, action by action
//! (`core/session/tests/superstep_model.rs`). Numbers are those of `spec/superstep.md`.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// Set of messages by number, all supersteps counted through.
pub type Set = u32;

/// Who holds memory for what.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Memory {
    /// The seed's: a pool of so many buffers for both directions. With `low_pool`, the lower
    /// harness: of the last buffer only the message that is next in order may have need, and
    /// nothing that is sent.
    Pool {
        /// Buffers.
        buffers: u32,
        /// The lower harness is on.
        low_pool: bool,
    },
    /// Weir's: what a peer may send is told to it, so many messages beyond those read; and so many
    /// sent ones are kept. With `promised` off a receiver takes what comes as long as any buffer of
    /// its promise is free, whatever its number: the lower harness off.
    Credit {
        /// Messages beyond those read.
        credit: u32,
        /// Messages kept until they are known to have arrived.
        queue: u32,
        /// A receiver keeps to what it promised: nothing that is within the credit is ever refused,
        /// and nothing beyond it is sent.
        promised: bool,
    },
}

/// What is explored: the sizes, and which rules hold. All rules hold in what ships.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Rules {
    /// Messages each sends in a superstep.
    pub messages: u32,
    /// Supersteps.
    pub supersteps: u32,
    /// Memory, and the lower harness.
    pub memory: Memory,
    /// The upper harness: whose send is refused reads what has come.
    pub drains: bool,
    /// Messages of older supersteps count as arrived when the peer is known to be in a newer one.
    pub implicit: bool,
    /// Wrong: they count as arrived when one is in a newer superstep oneself.
    pub implicit_too_early: bool,
    /// Who is done goes on to answer.
    pub lingers: bool,
    /// Packets under way in each direction at most.
    pub in_flight: usize,
}

impl Rules {
    /// Messages in all, each way.
    #[must_use]
    pub fn total(&self) -> u32 {
        self.messages * self.supersteps
    }
}

/// What is on the wire. What it says of its sender's state is true when it is sent.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Packet {
    /// The message it carries; `None`: it only tells.
    pub message: Option<u32>,
    /// The superstep its sender is in.
    pub superstep: u32,
    /// What its sender has got.
    pub got: Set,
    /// Messages its sender lets the other send, all in all.
    pub limit: u32,
}

/// One process.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Side {
    /// Messages sent at least once.
    pub sent: u32,
    /// Sent, and not known to have arrived.
    pub kept: Set,
    /// Messages that have come.
    pub got: Set,
    /// Messages read, in order.
    pub read: u32,
    /// The superstep it is in; the number of all of them when it is done.
    pub superstep: u32,
    /// Messages the other lets it send.
    pub limit: u32,
}

/// Both processes and what is between them.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct State {
    /// The processes.
    pub sides: [Side; 2],
    /// Packets under way to each of them. Equal ones are one: it may be delivered again.
    pub to: [BTreeSet<Packet>; 2],
}

/// What happens next.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// The program sends its next message.
    Send(usize),
    /// The program reads the next message.
    Read(usize),
    /// The program goes on to the next superstep, or ends.
    Advance(usize),
    /// A message that may be lost is sent again.
    Again(usize, u32),
    /// A packet that only tells.
    Tell(usize),
    /// A packet arrives; it may arrive again if the last is true.
    Deliver(usize, Packet, bool),
    /// A packet is lost.
    Lose(usize, Packet),
}

fn count(set: Set) -> u32 {
    set.count_ones()
}

const fn bit(i: u32) -> Set {
    1 << i
}

impl Side {
    /// The start.
    #[must_use]
    pub fn new(rules: &Rules) -> Side {
        let limit = match rules.memory {
            Memory::Pool { .. } => rules.total(),
            Memory::Credit { credit, .. } => credit,
        };
        Side { limit, ..Side::default() }
    }

    /// Messages that have come and were not read.
    #[must_use]
    pub fn unread(&self) -> u32 {
        count(self.got) - self.read
    }

    /// The lowest message that has not come.
    #[must_use]
    pub fn missing(&self) -> u32 {
        (!self.got).trailing_zeros()
    }

    /// Whether the next message may be sent: [`Action::Send`] is refused otherwise.
    #[must_use]
    pub fn has_room(&self, rules: &Rules) -> bool {
        match rules.memory {
            Memory::Pool { buffers, low_pool } => count(self.kept) + self.unread() + u32::from(low_pool) < buffers,
            Memory::Credit { queue, .. } => count(self.kept) < queue && self.sent < self.limit,
        }
    }

    /// Messages of this superstep are left to be sent.
    #[must_use]
    pub fn wants_to_send(&self, rules: &Rules) -> bool {
        self.sent < rules.messages * (self.superstep + 1).min(rules.supersteps)
    }

    /// A message of this superstep that comes next in order is here, and the program looks for it:
    /// it has sent all, or its send was refused and it drains.
    #[must_use]
    pub fn may_read(&self, rules: &Rules) -> bool {
        let is_here = self.got & bit(self.read) != 0 && self.read < rules.messages * (self.superstep + 1);
        is_here && (!self.wants_to_send(rules) || (rules.drains && !self.has_room(rules)))
    }

    /// All of this superstep is sent and read.
    #[must_use]
    pub fn may_advance(&self, rules: &Rules) -> bool {
        self.superstep < rules.supersteps
            && !self.wants_to_send(rules)
            && self.read == rules.messages * (self.superstep + 1)
    }

    /// Its program has ended.
    #[must_use]
    pub fn is_done(&self, rules: &Rules) -> bool {
        self.superstep == rules.supersteps
    }

    /// A packet that tells where it stands, with a message or without.
    #[must_use]
    pub fn packet(&self, rules: &Rules, message: Option<u32>) -> Packet {
        let limit = match rules.memory {
            Memory::Pool { .. } => rules.total(),
            Memory::Credit { credit, .. } => (self.read + credit).min(rules.total()),
        };
        Packet { message, superstep: self.superstep, got: self.got, limit }
    }

    /// Whether a message that is new can be taken in.
    #[must_use]
    pub fn accepts(&self, rules: &Rules, message: u32) -> bool {
        match rules.memory {
            Memory::Pool { buffers, low_pool } => {
                let free = buffers.saturating_sub(count(self.kept) + self.unread());
                free > u32::from(low_pool && message != self.missing())
            }
            Memory::Credit { credit, promised: true, .. } => message < self.read + credit,
            Memory::Credit { credit, queue, promised: false } => {
                // One budget for what is sent and what comes, given to whoever is first.
                count(self.kept) + self.unread() < credit.min(queue)
            }
        }
    }

    /// A message may have been lost: it is one of the two oldest that are kept (a probe), or a
    /// later one has arrived (a hole).
    #[must_use]
    pub fn may_repeat(&self, message: u32) -> bool {
        let older = count(self.kept & (bit(message) - 1));
        let later_arrived = self.sent > message + 1 && {
            let later = (bit(self.sent) - 1) & !(bit(message + 1) - 1);
            self.kept & later != later
        };
        self.kept & bit(message) != 0 && (older < 2 || later_arrived)
    }

    fn arrived(&mut self, set: Set) {
        self.kept &= !set;
    }

    /// The program sends; the message's number.
    pub fn send(&mut self) -> u32 {
        let message = self.sent;
        self.kept |= bit(message);
        self.sent += 1;
        message
    }

    /// The program reads one.
    pub fn read(&mut self) {
        self.read += 1;
    }

    /// The program goes on.
    pub fn advance(&mut self, rules: &Rules) {
        self.superstep += 1;
        if rules.implicit_too_early {
            self.arrived(bit(rules.messages * self.superstep) - 1);
        }
    }

    /// A packet comes. What it tells counts in any case, whether or not there is room for what it
    /// carries. True if its message is new and was taken in.
    pub fn receive(&mut self, rules: &Rules, p: &Packet) -> bool {
        self.arrived(p.got);
        self.limit = self.limit.max(p.limit);
        if rules.implicit {
            self.arrived(bit(rules.messages * p.superstep) - 1);
        }
        match p.message {
            Some(m) if self.got & bit(m) == 0 && self.accepts(rules, m) => {
                self.got |= bit(m);
                true
            }
            _ => false,
        }
    }
}

impl State {
    /// The start.
    #[must_use]
    pub fn new(rules: &Rules) -> State {
        State { sides: [Side::new(rules); 2], to: Default::default() }
    }

    /// Both programs have ended.
    #[must_use]
    pub fn is_done(&self, rules: &Rules) -> bool {
        self.sides.iter().all(|s| s.is_done(rules))
    }

    /// What may happen.
    #[must_use]
    pub fn actions(&self, rules: &Rules) -> Vec<Action> {
        let mut all = Vec::new();
        for (i, side) in self.sides.iter().enumerate() {
            let answers = rules.lingers || !side.is_done(rules);
            let has_way = self.to[1 - i].len() < rules.in_flight;
            if side.wants_to_send(rules) && side.has_room(rules) && has_way {
                all.push(Action::Send(i));
            }
            if side.may_read(rules) {
                all.push(Action::Read(i));
            }
            if side.may_advance(rules) {
                all.push(Action::Advance(i));
            }
            if answers && has_way {
                all.extend((0..side.sent).filter(|m| side.may_repeat(*m)).map(|m| Action::Again(i, m)));
                all.push(Action::Tell(i));
            }
            for p in self.to[i].iter().copied() {
                // Who is gone hears nothing.
                if answers {
                    all.extend([Action::Deliver(i, p, false), Action::Deliver(i, p, true)]);
                }
                all.push(Action::Lose(i, p));
            }
        }
        all
    }

    /// What becomes of it. `None`: nothing changes.
    #[must_use]
    pub fn next(&self, rules: &Rules, action: Action) -> Option<State> {
        let mut s = self.clone();
        match action {
            Action::Send(i) => {
                let message = s.sides[i].send();
                s.put(rules, i, Some(message));
            }
            Action::Read(i) => s.sides[i].read(),
            Action::Advance(i) => s.sides[i].advance(rules),
            Action::Again(i, message) => s.put(rules, i, Some(message)),
            Action::Tell(i) => s.put(rules, i, None),
            Action::Deliver(i, p, again) => {
                s.sides[i].receive(rules, &p);
                if !again {
                    s.to[i].remove(&p);
                }
            }
            Action::Lose(i, p) => _ = s.to[i].remove(&p),
        }
        (s != *self).then_some(s)
    }

    fn put(&mut self, rules: &Rules, from: usize, message: Option<u32>) {
        let p = self.sides[from].packet(rules, message);
        self.to[1 - from].insert(p);
    }

    /// What must hold in every state.
    ///
    /// # Errors
    /// Says what does not.
    pub fn check(&self, rules: &Rules) -> Result<(), &'static str> {
        for (side, other) in [(&self.sides[0], &self.sides[1]), (&self.sides[1], &self.sides[0])] {
            let taken = count(side.kept) + side.unread();
            match rules.memory {
                Memory::Pool { buffers, .. } if taken > buffers => return Err("more buffers are held than there are"),
                Memory::Credit { credit, queue, promised } => {
                    if side.unread() > credit || count(side.kept) > queue {
                        return Err("more is held than was promised");
                    }
                    if promised && side.sent > other.read + credit {
                        return Err("more was sent than the other lets in");
                    }
                }
                Memory::Pool { .. } => {}
            }
            let sent: Set = bit(side.sent) - 1;
            if other.got & !sent != 0 {
                return Err("a message came that was never sent");
            }
            if sent & !side.kept & !other.got != 0 {
                return Err("a message is taken for arrived, and has not come");
            }
            if side.superstep > other.superstep + 1 {
                return Err("a process is two supersteps ahead");
            }
        }
        Ok(())
    }
}
