//! What the ranks of a job ask their launcher and what it answers: a state machine without
//! processes or sockets.

use crate::KEY_BYTES;
use crate::launch::local::frame::{Reply, Request, VERSION};

/// To whom an answer goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    /// One rank.
    One(u32),
    /// Every rank.
    All,
}

/// An answer, and to whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// To whom it goes.
    pub to: To,
    /// What it is.
    pub reply: Reply,
}

/// Why the whole job ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// One line for people.
    pub reason: String,
    /// The job's exit code, not 0.
    pub code: u8,
}

impl Fault {
    fn new(reason: String) -> Self {
        Self { reason, code: 1 }
    }
}

/// What a rank has come to.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Arrived {
    Exchange(Vec<u8>),
    Fence,
}

impl Arrived {
    fn name(&self) -> &'static str {
        match self {
            Arrived::Exchange(_) => "an exchange",
            Arrived::Fence => "a fence",
        }
    }
}

#[derive(Clone, Debug, Default)]
struct Rank {
    joined: bool,
    arrived: Option<Arrived>,
    finalized: bool,
    /// Its process has ended well without having joined.
    gone: bool,
}

/// The books of one job.
#[derive(Debug)]
pub struct Hub {
    id: String,
    key: [u8; KEY_BYTES],
    ranks: Vec<Rank>,
    /// The number of the exchange or fence that is next to be complete.
    round: u32,
}

/// Ranks named in one line, at most.
const NAMED_MAX: usize = 8;

impl Hub {
    /// For a job of so many ranks.
    pub fn new(id: String, key: [u8; KEY_BYTES], size: u32) -> Self {
        Self { id, key, ranks: vec![Rank::default(); size as usize], round: 0 }
    }

    fn size(&self) -> u32 {
        u32::try_from(self.ranks.len()).unwrap_or(u32::MAX)
    }

    /// What a rank asks, and who is answered what.
    ///
    /// # Errors
    /// If the job ends by it: the rank wants that, or asks what makes no sense.
    pub fn request(&mut self, number: u32, request: Request) -> Result<Option<Answer>, Fault> {
        let size = self.size();
        let Some(rank) = self.ranks.get_mut(number as usize) else {
            return Err(Fault::new(format!("there is no rank {number}")));
        };
        match request {
            Request::Join { version } if version != VERSION => Err(Fault::new(format!(
                "rank {number} speaks version {version} of the launch protocol, weir run version {VERSION}: the program's library and the command are of different versions of Weir"
            ))),
            Request::Join { .. } if rank.joined => Err(Fault::new(format!(
                "rank {number} joined twice: a program that it started inherited its place; set WEIR_LAUNCHER=none for that one"
            ))),
            Request::Join { .. } => {
                rank.joined = true;
                let reply = Reply::Welcome { rank: number, size, key: self.key, id: self.id.clone() };
                Ok(Some(Answer { to: To::One(number), reply }))
            }
            Request::Abort { code, message } => Err(aborted(number, code, &message)),
            _ if !rank.joined || rank.finalized => Err(Fault::new(format!(
                "rank {number} asks {}",
                if rank.joined { "after its end" } else { "before it has joined" }
            ))),
            Request::Finalize => {
                rank.finalized = true;
                let answer = Answer { to: To::One(number), reply: Reply::Bye };
                self.check().map(|()| Some(answer))
            }
            Request::Exchange { round, data } => self.arrive(number, round, Arrived::Exchange(data)),
            Request::Fence { round } => self.arrive(number, round, Arrived::Fence),
        }
    }

    fn arrive(&mut self, number: u32, round: u32, at: Arrived) -> Result<Option<Answer>, Fault> {
        let different = self.ranks.iter().enumerate().find_map(|(other, rank)| {
            let arrived = rank.arrived.as_ref()?;
            (arrived.name() != at.name()).then(|| format!("rank {other} is in {}", arrived.name()))
        });
        if let Some(different) = different {
            let reason = format!("rank {number} is in {}, {different}: the ranks do different things", at.name());
            return Err(Fault::new(reason));
        }
        let expected = self.round;
        let rank = &mut self.ranks[number as usize];
        if round != expected || rank.arrived.is_some() {
            let reason = format!("rank {number} is in round {round} while round {expected} is not complete");
            return Err(Fault::new(reason));
        }
        rank.arrived = Some(at);
        if self.ranks.iter().any(|rank| rank.arrived.is_none()) {
            return self.check().map(|()| None);
        }
        self.round = round.wrapping_add(1);
        let all: Vec<Arrived> = self.ranks.iter_mut().filter_map(|rank| rank.arrived.take()).collect();
        let mut data = Vec::new();
        for one in all {
            match one {
                Arrived::Exchange(blob) => data.push(blob),
                Arrived::Fence => return Ok(Some(Answer { to: To::All, reply: Reply::Passed { round } })),
            }
        }
        Ok(Some(Answer { to: To::All, reply: Reply::All { round, data } }))
    }

    /// A rank's process has ended with exit code 0.
    ///
    /// # Errors
    /// If others need it.
    pub fn ended(&mut self, number: u32) -> Result<(), Fault> {
        let Some(rank) = self.ranks.get_mut(number as usize) else { return Ok(()) };
        if rank.joined && !rank.finalized {
            return Err(Fault::new(format!(
                "rank {number} ended (exit code 0) without leaving the job, so the others would wait for it"
            )));
        }
        rank.gone = !rank.finalized;
        self.check()
    }

    /// Nobody may wait for who will not come.
    fn check(&self) -> Result<(), Fault> {
        let waits = self.ranks.iter().position(|rank| rank.arrived.is_some());
        let never = self.ranks.iter().position(|rank| rank.gone || rank.finalized);
        match (waits, never) {
            (Some(waits), Some(never)) => Err(Fault::new(format!(
                "rank {waits} waits for all ranks, but rank {never} has {}",
                if self.ranks[never].gone { "ended without joining" } else { "left the job" }
            ))),
            _ => Ok(()),
        }
    }

    /// Whether some rank waits for others.
    pub fn waits(&self) -> bool {
        self.ranks.iter().any(|rank| rank.arrived.is_some())
    }

    /// The number of the round that some wait in.
    pub fn round(&self) -> u32 {
        self.round
    }

    /// The job ends because ranks did not come to where others wait.
    pub fn too_late(&self, after_s: u64) -> Fault {
        let missing = |wanted: &dyn Fn(&Rank) -> bool| {
            let all: Vec<usize> = (0..self.ranks.len()).filter(|at| wanted(&self.ranks[*at])).collect();
            (named(&all), all.len())
        };
        let (never, nobody) = missing(&|rank| !rank.joined);
        let (slow, count) = missing(&|rank| rank.joined && rank.arrived.is_none());
        let mut parts = Vec::new();
        if nobody > 0 {
            parts.push(format!("{never} did not join"));
        }
        if count > 0 {
            parts.push(format!("{slow} did not come"));
        }
        Fault::new(format!(
            "the others waited {after_s} s: {}; WEIR_LAUNCH_TIMEOUT (seconds) allows for slower starts",
            parts.join(", ")
        ))
    }
}

fn aborted(number: u32, code: i32, message: &str) -> Fault {
    let code8 = match code.to_le_bytes()[0] {
        0 => 1,
        other => other,
    };
    let line: String = message.trim_end().chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let colon = if line.is_empty() { "" } else { ": " };
    Fault { reason: format!("rank {number} aborted the job (code {code}){colon}{line}"), code: code8 }
}

fn named(ranks: &[usize]) -> String {
    let more = ranks.len().saturating_sub(NAMED_MAX);
    let list: Vec<String> = ranks.iter().take(NAMED_MAX).map(ToString::to_string).collect();
    let word = if ranks.len() == 1 { "rank" } else { "ranks" };
    let tail = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{word} {}{tail}", list.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hub(size: u32) -> Hub {
        Hub::new("j".into(), [7; KEY_BYTES], size)
    }

    fn joined(size: u32) -> Hub {
        let mut hub = hub(size);
        for rank in 0..size {
            hub.request(rank, Request::Join { version: VERSION }).unwrap();
        }
        hub
    }

    fn exchange(round: u32, byte: u8) -> Request {
        Request::Exchange { round, data: vec![byte] }
    }

    #[test]
    fn the_last_to_come_lets_all_go() {
        let mut hub = joined(3);
        assert_eq!(hub.request(2, exchange(0, 2)), Ok(None));
        assert_eq!(hub.request(0, exchange(0, 0)), Ok(None));
        assert!(hub.waits());
        let answer = hub.request(1, exchange(0, 1)).unwrap().unwrap();
        assert_eq!(
            answer,
            Answer { to: To::All, reply: Reply::All { round: 0, data: vec![vec![0], vec![1], vec![2]] } }
        );
        assert!(!hub.waits());
        for rank in [1, 2] {
            assert_eq!(hub.request(rank, Request::Fence { round: 1 }), Ok(None));
        }
        let answer = hub.request(0, Request::Fence { round: 1 }).unwrap();
        assert_eq!(answer, Some(Answer { to: To::All, reply: Reply::Passed { round: 1 } }));
        for rank in 0..3 {
            let answer = hub.request(rank, Request::Finalize).unwrap();
            assert_eq!(answer, Some(Answer { to: To::One(rank), reply: Reply::Bye }));
            assert_eq!(hub.ended(rank), Ok(()));
        }
    }

    #[test]
    fn what_can_never_be_answered_ends_the_job() {
        let reason = |result: Result<Option<Answer>, Fault>| result.unwrap_err().reason;
        let mut one = joined(2);
        one.request(0, exchange(0, 0)).unwrap();
        assert!(reason(one.request(1, Request::Fence { round: 0 })).contains("different things"));
        let mut one = joined(2);
        one.request(0, exchange(0, 0)).unwrap();
        assert_eq!(
            reason(one.request(1, Request::Finalize)),
            "rank 0 waits for all ranks, but rank 1 has left the job"
        );
        let mut one = hub(2);
        one.request(0, Request::Join { version: VERSION }).unwrap();
        one.request(0, exchange(0, 0)).unwrap();
        assert!(one.ended(1).unwrap_err().reason.ends_with("rank 1 has ended without joining"));
        assert!(reason(joined(2).request(1, Request::Join { version: VERSION })).contains("joined twice"));
        assert!(reason(hub(2).request(1, Request::Join { version: 99 })).contains("version 99"));
        assert!(reason(hub(2).request(1, exchange(0, 0))).contains("before it has joined"));
        assert!(reason(hub(2).request(2, exchange(0, 0))).contains("no rank 2"));
        assert!(joined(2).ended(0).unwrap_err().reason.contains("without leaving"));
        // A program that prints its usage and ends is no failure.
        assert_eq!(hub(2).ended(0), Ok(()));
    }

    #[test]
    fn an_abort_says_who_and_why_in_one_line_and_never_ends_well() {
        let abort = |code, message: &str| joined(2).request(1, Request::Abort { code, message: message.into() });
        let fault = abort(3, "no\nconvergence\n").unwrap_err();
        assert_eq!((fault.reason.as_str(), fault.code), ("rank 1 aborted the job (code 3): no convergence", 3));
        assert_eq!(abort(256, "").unwrap_err().code, 1);
        // A rank may abort before it has joined.
        assert_eq!(hub(1).request(0, Request::Abort { code: -1, message: String::new() }).unwrap_err().code, 255);
    }

    #[test]
    fn who_is_late_is_named() {
        let mut one = hub(20);
        for rank in 0..3 {
            one.request(rank, Request::Join { version: VERSION }).unwrap();
        }
        one.request(0, exchange(0, 0)).unwrap();
        let reason = one.too_late(60).reason;
        assert!(
            reason.contains("ranks 3, 4, 5, 6, 7, 8, 9, 10 and 9 more did not join, ranks 1, 2 did not come"),
            "{reason}"
        );
    }

    proptest! {
        /// Ranks in any order of arrival get what each gave, in every round.
        #[test]
        fn any_order_of_arrival_gives_the_same(orders in proptest::collection::vec(Just((0..5u32).collect::<Vec<_>>()).prop_shuffle(), 1..5)) {
            let mut hub = joined(5);
            for (round, order) in orders.into_iter().enumerate() {
                let round = u32::try_from(round).unwrap();
                let (last, first) = order.split_last().unwrap();
                for rank in first {
                    prop_assert_eq!(hub.request(*rank, exchange(round, *rank as u8)), Ok(None));
                }
                let answer = hub.request(*last, exchange(round, *last as u8)).unwrap().unwrap();
                let data = (0..5).map(|rank| vec![rank]).collect();
                prop_assert_eq!(answer.reply, Reply::All { round, data });
            }
        }

        /// Whatever ranks ask, the books answer or end the job, and never wait for who has left.
        #[test]
        fn any_requests_are_answered_or_end_the_job(steps in proptest::collection::vec((0..4u32, 0..7u8, 0..3u32), 0..60)) {
            let mut hub = hub(3);
            for (rank, what, round) in steps {
                let request = match what {
                    0 | 6 => Request::Join { version: VERSION },
                    1 => Request::Exchange { round, data: vec![] },
                    2 => Request::Fence { round },
                    3 => Request::Finalize,
                    4 => Request::Abort { code: 1, message: "m".into() },
                    _ => {
                        if hub.ended(rank).is_err() { return Ok(()); }
                        continue;
                    }
                };
                match hub.request(rank, request) {
                    Ok(_) => prop_assert!(hub.check().is_ok()),
                    Err(fault) => {
                        prop_assert!(fault.code != 0 && !fault.reason.contains('\n'));
                        return Ok(());
                    }
                }
            }
        }
    }
}
