//! One turn after the other: who connects, who asks, who is gone, what has no rank any more.

use crate::ending::{Ending, Endings};
use anyhow::{Context, Result, bail};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustix::net::{SocketFlags, accept_with, sockopt};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};
use weir_xdp::{Answer, Ask, Broker, Grant, Mode, Netlink, NoSocket, Refused, helper, may_be_steered, peer_groups};

/// Ranks served at a time, and connections that have not asked yet.
const RANKS_MAX: usize = 256;
const STRANGERS_MAX: usize = 64;
/// What a user is refused is said once in this time: each rank of a job asks.
const SAID: Duration = Duration::from_secs(60);
/// Who has not asked by then is let go.
const WAIT: Duration = Duration::from_secs(helper::WAIT_S as u64);
/// After so long without anything to do a ring of one who is gone is freed, which takes a while:
/// when a job ends, or the next one begins, it would keep ranks waiting.
const QUIET: Duration = Duration::from_millis(100);
/// The longest sleep.
const TURN: Duration = Duration::from_secs(1);
/// Before another try to take a connection, where the system hands out none.
const PAUSE: Duration = Duration::from_millis(10);

/// Who may have what.
#[derive(Clone, Debug)]
pub struct Policy {
    /// The interfaces served, by name.
    pub interfaces: Vec<String>,
    /// The users beside root, and groups.
    pub users: Vec<u32>,
    /// A process that one of these groups is among is served, too.
    pub groups: Vec<u32>,
    /// When a program that serves nobody is detached; `None`: never.
    pub idle: Option<Duration>,
}

impl Policy {
    /// Whether who is at the other end may have something.
    fn allows(&self, connection: &OwnedFd, user: u32, group: u32) -> bool {
        let is_among = |group: &u32| self.groups.contains(group);
        user == 0
            || self.users.contains(&user)
            || is_among(&group)
            || (!self.groups.is_empty() && peer_groups(connection).is_ok_and(|all| all.iter().any(is_among)))
    }
}

/// A connection.
struct Rank {
    connection: OwnedFd,
    user: u32,
    since: Instant,
    grant: Option<Grant>,
}

/// The helper.
pub struct Server {
    listener: OwnedFd,
    policy: Policy,
    broker: Broker,
    ranks: Vec<Rank>,
    endings: Endings,
    netlink: Netlink,
    told: Told,
    /// Since when some interface has a program and no rank.
    idle_since: Option<Instant>,
    last_used: Instant,
}

impl Server {
    /// One that listens there.
    ///
    /// # Errors
    /// The system's.
    pub fn new(listener: OwnedFd, policy: Policy, mode: Mode) -> Result<Server> {
        let netlink = Netlink::open().context("cannot ask for interfaces")?;
        let broker = Broker::new(mode);
        Ok(Server {
            listener,
            policy,
            broker,
            ranks: Vec::new(),
            endings: Endings::default(),
            netlink,
            told: Told::default(),
            idle_since: None,
            last_used: Instant::now(),
        })
    }

    /// Nobody is connected, nothing attached, for as long as the policy says.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let quiet = self.policy.idle.is_some_and(|idle| self.last_used.elapsed() >= idle);
        quiet && self.ranks.is_empty() && self.broker.idle().next().is_none()
    }

    /// Sleeps until there is something to do, and does it.
    ///
    /// # Errors
    /// Such as mean that it cannot go on.
    pub fn turn(&mut self) -> Result<()> {
        let ready = self.sleep()?;
        let now = Instant::now();
        let mut heard = Vec::new();
        for (rank, ready) in self.ranks.iter().zip(&ready.ranks) {
            let late = rank.grant.is_none() && now.duration_since(rank.since) > WAIT;
            heard.push(match ready {
                true => hear(rank, &mut self.endings),
                false if late => Heard::End,
                false => Heard::Nothing,
            });
        }
        // First of all nothing more goes to those who are gone; then their places are free.
        for (rank, heard) in self.ranks.iter_mut().zip(&heard) {
            if !matches!(heard, Heard::Nothing | Heard::Ask(..))
                && let Some(grant) = rank.grant.take()
            {
                self.broker.release(grant);
            }
        }
        self.broker.refresh();
        self.answer(heard, now);
        if ready.listener {
            self.accept(now);
        }
        if ready.nothing {
            self.broker.tidy();
        }
        self.detach_idle(now);
        self.endings.go_on();
        if self.endings.are_stuck() {
            bail!("somebody sends what cannot be closed, and ever more of it: only the end of this process closes it");
        }
        Ok(())
    }

    /// Answers all who have asked, and lets go of those who are to go.
    fn answer(&mut self, heard: Vec<Heard>, now: Instant) {
        let mut asks = Vec::new();
        let mut refused = Vec::new();
        let free = RANKS_MAX.saturating_sub(self.broker.holders());
        for (at, heard) in heard.into_iter().enumerate() {
            match heard {
                Heard::Nothing => {}
                Heard::End => refused.push((at, None)),
                Heard::Wrong(why) => refused.push((at, Some(why.into()))),
                Heard::Ask(udp, ask) => match self.is_served(&ask) {
                    Err(no) => refused.push((at, Some(no))),
                    Ok(()) if asks.len() >= free => refused.push((at, Some(Refused::Full.into()))),
                    Ok(()) => asks.push((at, (udp, ask))),
                },
            }
        }
        let (who, asks): (Vec<usize>, Vec<_>) = asks.into_iter().unzip();
        for (at, granted) in who.into_iter().zip(self.broker.grant_all(asks)) {
            match granted {
                Ok((grant, bound)) => {
                    let rank = &mut self.ranks[at];
                    rank.grant = Some(grant);
                    let fds = [bound.socket.as_raw_fd(), bound.memory.as_raw_fd()];
                    // One that does not take it is gone, as is seen in the next turn.
                    let _ = helper::send(&rank.connection, &Answer::Grant(bound.layout).encode(), &fds);
                }
                Err(no) => refused.push((at, Some(no))),
            }
        }
        // From behind, so that the others keep their numbers.
        refused.sort_unstable_by_key(|(at, _)| std::cmp::Reverse(*at));
        for (at, no) in refused {
            let rank = self.ranks.swap_remove(at);
            if let Some(no) = &no {
                self.say_why(rank.user, no, now);
            }
            self.endings.add(Ending::Connection(rank.connection, no.map(|no| no.why)));
        }
    }

    /// Whether it is an interface of this network, and one of those named.
    fn is_served(&mut self, ask: &Ask) -> Result<(), NoSocket> {
        let link = self.netlink.link(ask.interface).map_err(|_| Refused::Interface)?;
        if self.policy.interfaces.contains(&link.name) { Ok(()) } else { Err(Refused::Interface.into()) }
    }

    fn accept(&mut self, now: Instant) {
        // (Bounded: others have their turn.)
        for _ in 0..16 {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let connection = match accept_with(&self.listener, flags) {
                Ok(connection) => connection,
                Err(rustix::io::Errno::AGAIN) => return,
                // Out of descriptors, perhaps: who waits would be seen again at once, for ever.
                Err(_) => return std::thread::sleep(PAUSE),
            };
            self.last_used = now;
            let Ok(who) = sockopt::socket_peercred(&connection) else {
                self.endings.add(Ending::Connection(connection, None));
                continue;
            };
            let user = who.uid.as_raw();
            // Nothing of such a one is waited for.
            if !self.policy.allows(&connection, user, who.gid.as_raw()) {
                self.say_why(user, &Refused::User.into(), now);
                self.endings.add(Ending::Connection(connection, Some(Refused::User)));
                continue;
            }
            let strangers = self.ranks.iter().filter(|r| r.grant.is_none()).count();
            if strangers >= STRANGERS_MAX
                && let Some(oldest) = self.ranks.iter().position(|r| r.grant.is_none())
            {
                self.endings.add(Ending::Connection(self.ranks.remove(oldest).connection, None));
            }
            self.ranks.push(Rank { connection, user, since: now, grant: None });
        }
    }

    /// Says why somebody is refused, once in a while.
    fn say_why(&mut self, user: u32, no: &NoSocket, now: Instant) {
        if self.told.is_news(user, no.why, now) {
            crate::say(&format!("no socket for user {user}: {no}"));
        }
    }

    fn detach_idle(&mut self, now: Instant) {
        if !self.ranks.is_empty() {
            self.last_used = now;
        }
        let idle: Vec<u32> = self.broker.idle().collect();
        if idle.is_empty() {
            self.idle_since = None;
            return;
        }
        let since = *self.idle_since.get_or_insert(now);
        if self.policy.idle.is_some_and(|most| now.duration_since(since) >= most) {
            idle.into_iter().for_each(|interface| self.broker.detach(interface));
            self.idle_since = None;
        }
    }

    fn sleep(&self) -> Result<Ready> {
        let entry = |fd| PollFd::new(fd, PollFlags::POLLIN);
        let mut entries = vec![entry(self.listener.as_fd())];
        entries.extend(self.ranks.iter().map(|r| entry(r.connection.as_fd())));
        // (Each turn looks what has changed.)
        entries.extend(self.broker.changes().map(entry));
        let time = if self.broker.is_untidy() { QUIET } else { TURN };
        let time = PollTimeout::try_from(time).unwrap_or(PollTimeout::ZERO);
        match poll(&mut entries, time) {
            Ok(_) | Err(nix::Error::EINTR) => {}
            Err(e) => return Err(e).context("cannot wait for ranks"),
        }
        let is_ready = |e: &PollFd<'_>| e.revents().is_some_and(|r| !r.is_empty());
        Ok(Ready {
            nothing: !entries.iter().any(is_ready),
            listener: is_ready(&entries[0]),
            ranks: entries[1..=self.ranks.len()].iter().map(is_ready).collect(),
        })
    }
}

/// What woke a turn.
struct Ready {
    nothing: bool,
    listener: bool,
    ranks: Vec<bool>,
}

/// What a rank has said.
enum Heard {
    Nothing,
    /// It is gone, or is to go.
    End,
    /// It is to go, and to be told why.
    Wrong(Refused),
    /// A question, by right of a UDP socket.
    Ask(OwnedFd, Ask),
}

/// Reads what a rank says.
fn hear(rank: &Rank, endings: &mut Endings) -> Heard {
    let (message, mut with) = match helper::recv(&rank.connection) {
        Ok(got) => got,
        Err(e) if matches!(e.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::Interrupted) => {
            return Heard::Nothing;
        }
        Err(_) => return Heard::End,
    };
    let udp = if with.len() == 1 { with.pop() } else { None };
    let heard = if message.is_empty() || rank.grant.is_some() {
        // The end; or more than one question.
        Err(None)
    } else {
        Ask::decode(&message).map_err(Some)
    };
    let heard = heard.and_then(|ask| match udp.as_ref().map(may_be_steered) {
        Some(Ok(())) => Ok(ask),
        Some(Err(no)) => Err(Some(no.why)),
        None => Err(Some(Refused::Socket)),
    });
    match (heard, udp) {
        (Ok(ask), Some(udp)) => Heard::Ask(udp, ask),
        (heard, udp) => {
            with.extend(udp);
            with.into_iter().for_each(|fd| endings.add(Ending::Descriptor(fd)));
            heard.err().flatten().map_or(Heard::End, Heard::Wrong)
        }
    }
}

/// What was said of whom, and when.
#[derive(Default)]
struct Told(Vec<(u32, Refused, Instant)>);

impl Told {
    /// It was not said lately; it is now.
    fn is_news(&mut self, user: u32, why: Refused, now: Instant) -> bool {
        self.0.retain(|(.., at)| now.duration_since(*at) < SAID);
        let is_news = !self.0.iter().any(|(whose, what, _)| (*whose, *what) == (user, why));
        if is_news {
            self.0.push((user, why, now));
        }
        is_news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_said_once_in_a_while_to_each_user_and_for_each_reason() {
        let (mut told, now) = (Told::default(), Instant::now());
        assert!(told.is_news(7, Refused::Socket, now));
        assert!(!told.is_news(7, Refused::Socket, now + SAID / 2));
        assert!(told.is_news(8, Refused::Socket, now) && told.is_news(7, Refused::User, now));
        assert!(told.is_news(7, Refused::Socket, now + SAID));
    }
}
