//! One server and many clients, as BMI has them (`spec/bmi.md`): requests from anybody, answers by
//! tag. A client asks, waits for the answer, and asks again; or asks ahead.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use crate::check::Program;
use crate::rank::{App, Io, Outcome, RecvId, RecvOp, SendOp};
use crate::rng::Rng;
use crate::spec::{HostId, Ns};

/// The tag of all requests.
const REQUEST: u64 = 1 << 40;
/// Which life of its host sent a request: two bits that choose no stream and that receives ignore.
const LIFE_AT: u32 = 54;
const LIFE: u64 = 3 << LIFE_AT;

/// Shape of the service. Host 0 is the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Service {
    /// Requests of each client.
    pub requests: u32,
    /// Requests of a client that are not answered, at most: 1 is a client that waits.
    pub ahead: u32,
    /// Bytes of a request.
    pub request_bytes: u64,
    /// Smallest and largest answer, bytes.
    pub answer_bytes: (u64, u64),
    /// Receives that the server keeps posted.
    pub receives: u32,
    /// What a request costs the server, one after another.
    pub compute_ns: Ns,
    /// Clients begin within this time.
    pub spread_ns: Ns,
    /// The server lives so long at least.
    pub serve_ns: Ns,
    /// Requests go in rounds: the nth of each client at n of these, if its last is answered. 0: as
    /// soon as that is.
    #[serde(default)]
    pub round_ns: Ns,
}

impl Service {
    /// The length of an answer, which both sides can work out.
    fn answer(&self, seed: u64, to: Program, nth: u32) -> u64 {
        let which = u64::from(to.host) << 32 | u64::from(to.incarnation) << 24 | u64::from(nth);
        Rng::new(seed, which).log_between(self.answer_bytes.0, self.answer_bytes.1)
    }

    /// Bytes and messages in all.
    #[must_use]
    pub fn volume(&self, hosts: u32) -> (u64, u64) {
        let all = u64::from(hosts) * u64::from(self.requests);
        (all * (self.request_bytes + self.answer_bytes.1), 2 * all)
    }
}

fn send(to: HostId, tag: u64, len: u64) -> SendOp {
    SendOp { to, tagged: true, tag, len, sync: false }
}

/// The server.
#[derive(Debug)]
pub struct Server {
    service: Service,
    seed: u64,
    posted: u32,
    asked: BTreeMap<Program, u32>,
    /// Answers that are ready at these times, in order.
    computing: VecDeque<(Ns, Program, u32)>,
    free_at: Ns,
    open_sends: u64,
    now: Ns,
    answered: u64,
}

impl Server {
    /// A server.
    #[must_use]
    pub fn new(service: Service, seed: u64) -> Self {
        Server {
            service,
            seed,
            posted: 0,
            asked: BTreeMap::new(),
            computing: VecDeque::new(),
            free_at: 0,
            open_sends: 0,
            now: 0,
            answered: 0,
        }
    }

    /// Takes as many requests as it has time for.
    fn post(&mut self, io: &mut Io<'_, '_>) {
        while self.posted + (self.computing.len() as u32) < self.service.receives {
            self.posted += 1;
            io.receive(RecvOp { from: None, tagged: true, tag: REQUEST, ignore: LIFE, room: u64::MAX });
        }
    }
}

impl App for Server {
    fn start(&mut self, io: &mut Io<'_, '_>) {
        self.post(io);
    }

    fn outcome(&mut self, io: &mut Io<'_, '_>, outcome: Outcome) {
        match outcome {
            Outcome::Received { from, tag, .. } => {
                self.posted -= 1;
                let program = Program { host: from, incarnation: ((tag & LIFE) >> LIFE_AT) as u32 };
                let nth = self.asked.entry(program).or_default();
                self.free_at = self.free_at.max(io.now()) + self.service.compute_ns;
                self.computing.push_back((self.free_at, program, *nth));
                *nth += 1;
            }
            Outcome::RecvFailed(_) => self.posted -= 1,
            Outcome::Sent(_) | Outcome::SendFailed(_) => self.open_sends -= 1,
            Outcome::Part { .. } | Outcome::Back { .. } | Outcome::Remote(_) => {}
        }
        self.wake(io);
    }

    fn wake(&mut self, io: &mut Io<'_, '_>) {
        self.now = io.now();
        while let Some((_, program, nth)) = self.computing.front().copied().filter(|(at, ..)| *at <= self.now) {
            self.computing.pop_front();
            self.open_sends += 1;
            self.answered += 1;
            let len = self.service.answer(self.seed, program, nth);
            io.send_to(send(program.host, u64::from(nth), len), program);
        }
        self.post(io);
    }

    fn next_wake(&self) -> Option<Ns> {
        let end = (self.now < self.service.serve_ns).then_some(self.service.serve_ns);
        self.computing.front().map(|(at, ..)| *at).into_iter().chain(end).min()
    }

    fn is_done(&self) -> bool {
        self.now >= self.service.serve_ns && self.open_sends == 0 && self.computing.is_empty()
    }

    fn state(&self) -> String {
        format!("server: {} clients, {} answered, {} sends open", self.asked.len(), self.answered, self.open_sends)
    }
}

/// A client.
#[derive(Debug)]
pub struct Client {
    service: Service,
    me: Program,
    begins_ns: Ns,
    begun: bool,
    /// Requests sent.
    asked: u32,
    /// Receives of answers, and when each was asked for.
    waiting: BTreeMap<RecvId, Ns>,
    /// Answers that came, and those that did not.
    answered: u32,
    failed: u32,
    open_sends: u64,
}

impl Client {
    /// A client.
    #[must_use]
    pub fn new(service: Service, me: Program, seed: u64) -> Self {
        let mut rng = Rng::new(seed, u64::from(me.host) << 8 | u64::from(me.incarnation));
        let begins_ns = rng.below(service.spread_ns + 1);
        Client {
            service,
            me,
            begins_ns,
            begun: false,
            asked: 0,
            waiting: BTreeMap::new(),
            answered: 0,
            failed: 0,
            open_sends: 0,
        }
    }

    /// When the next request may go.
    fn due_ns(&self) -> Ns {
        self.begins_ns + u64::from(self.asked) * self.service.round_ns
    }

    fn ask(&mut self, io: &mut Io<'_, '_>) {
        while self.asked < self.service.requests
            && (self.waiting.len() as u32) < self.service.ahead
            && io.now() >= self.due_ns()
        {
            let receive = RecvOp {
                from: Some(0),
                tagged: true,
                tag: u64::from(self.asked),
                ignore: 0,
                room: self.service.answer_bytes.1,
            };
            let id = io.receive(receive);
            self.waiting.insert(id, io.now());
            let life = u64::from(self.me.incarnation) << LIFE_AT & LIFE;
            self.asked += 1;
            self.open_sends += 1;
            io.send(send(0, REQUEST | life, self.service.request_bytes));
        }
    }
}

impl App for Client {
    fn start(&mut self, io: &mut Io<'_, '_>) {
        // (A later life begins when it is born.)
        if io.now() >= self.begins_ns {
            self.wake(io);
        }
    }

    fn outcome(&mut self, io: &mut Io<'_, '_>, outcome: Outcome) {
        match outcome {
            Outcome::Received { receive, .. } => {
                if let Some(since) = self.waiting.remove(&receive) {
                    self.answered += 1;
                    io.answered(since);
                }
                self.ask(io);
            }
            Outcome::RecvFailed(receive) => {
                self.failed += u32::from(self.waiting.remove(&receive).is_some());
                self.ask(io);
            }
            Outcome::Sent(_) | Outcome::SendFailed(_) => self.open_sends -= 1,
            Outcome::Part { .. } | Outcome::Back { .. } | Outcome::Remote(_) => {}
        }
    }

    fn wake(&mut self, io: &mut Io<'_, '_>) {
        self.begun = true;
        self.ask(io);
    }

    fn next_wake(&self) -> Option<Ns> {
        let waits = self.asked < self.service.requests && (self.waiting.len() as u32) < self.service.ahead;
        (!self.begun || self.service.round_ns > 0 && waits).then(|| self.due_ns())
    }

    fn is_done(&self) -> bool {
        self.begun && self.answered + self.failed == self.service.requests && self.open_sends == 0
    }

    fn state(&self) -> String {
        format!(
            "client: {} asked, {} answered, {} failed, {} sends open",
            self.asked, self.answered, self.failed, self.open_sends
        )
    }
}
