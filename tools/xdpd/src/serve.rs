//! One turn after the other: who connects, who asks, who is gone, what has no rank any more.

use anyhow::{Context, Result};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustix::net::{SocketFlags, accept_with, sockopt};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};
use weir_xdp::{Answer, Ask, Broker, Changes, Grant, Mode, Netlink, NoSocket, Refused, helper, may_be_steered};

/// Ranks served at a time, and connections that have not asked yet.
const RANKS_MAX: usize = 256;
const STRANGERS_MAX: usize = 64;
/// What a user is refused is said once in this time: each rank of a job asks.
const SAID: Duration = Duration::from_secs(60);
/// Who has not asked by then is let go.
const WAIT: Duration = Duration::from_secs(helper::WAIT_S as u64);
/// The longest sleep.
const TURN: Duration = Duration::from_secs(1);

/// Who may have what.
#[derive(Clone, Debug)]
pub struct Policy {
    /// The interfaces served, by name.
    pub interfaces: Vec<String>,
    /// The users beside root.
    pub users: Vec<u32>,
    /// When a program that serves nobody is detached; `None`: never.
    pub idle: Option<Duration>,
}

/// A connection.
struct Rank {
    connection: OwnedFd,
    user: Option<u32>,
    since: Instant,
    grant: Option<Grant>,
}

/// The helper.
pub struct Server {
    listener: OwnedFd,
    policy: Policy,
    broker: Broker,
    ranks: Vec<Rank>,
    changes: Changes,
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
        let changes = Changes::open().context("cannot listen to changes of the network")?;
        let netlink = Netlink::open().context("cannot ask for interfaces")?;
        let broker = Broker::new(mode);
        Ok(Server {
            listener,
            policy,
            broker,
            ranks: Vec::new(),
            changes,
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
        for (rank, ready) in self.ranks.iter_mut().zip(&ready.ranks) {
            let keep = if *ready {
                read(rank, &self.policy, &mut self.broker, &mut self.netlink, &mut self.told)
            } else {
                true
            };
            let late = rank.grant.is_none() && now.duration_since(rank.since) > WAIT;
            if !keep || late {
                if let Some(grant) = rank.grant.take() {
                    self.broker.release(grant);
                }
                rank.user = None;
            }
        }
        self.ranks.retain(|rank| rank.user.is_some());
        if ready.listener {
            self.accept(now);
        }
        if ready.changes {
            // (An overflow or any change: what is asked below is the truth.)
            self.changes.any(u32::MAX);
            self.broker.drop_absent();
        }
        self.detach_idle(now);
        Ok(())
    }

    fn accept(&mut self, now: Instant) {
        // (Bounded: others have their turn.)
        for _ in 0..16 {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let Ok(connection) = accept_with(&self.listener, flags) else { return };
            let user = sockopt::socket_peercred(&connection).ok().map(|c| c.uid.as_raw());
            let strangers = self.ranks.iter().filter(|r| r.grant.is_none()).count();
            if strangers >= STRANGERS_MAX
                && let Some(oldest) = self.ranks.iter().position(|r| r.grant.is_none())
            {
                self.ranks.remove(oldest);
            }
            if user.is_some() {
                self.ranks.push(Rank { connection, user, since: now, grant: None });
            }
            self.last_used = now;
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
        let mut entries = vec![
            PollFd::new(self.listener.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.changes.socket().as_fd(), PollFlags::POLLIN),
        ];
        entries.extend(self.ranks.iter().map(|r| PollFd::new(r.connection.as_fd(), PollFlags::POLLIN)));
        let time = PollTimeout::try_from(TURN).unwrap_or(PollTimeout::ZERO);
        match poll(&mut entries, time) {
            Ok(_) | Err(nix::Error::EINTR) => {}
            Err(e) => return Err(e).context("cannot wait for ranks"),
        }
        let is_ready = |e: &PollFd<'_>| e.revents().is_some_and(|r| !r.is_empty());
        Ok(Ready {
            listener: is_ready(&entries[0]),
            changes: is_ready(&entries[1]),
            ranks: entries[2..].iter().map(is_ready).collect(),
        })
    }
}

/// What woke a turn.
struct Ready {
    listener: bool,
    changes: bool,
    ranks: Vec<bool>,
}

/// Reads what a rank says, and answers. False: it is gone, or is to go.
fn read(rank: &mut Rank, policy: &Policy, broker: &mut Broker, netlink: &mut Netlink, told: &mut Told) -> bool {
    let (message, with) = match helper::recv(&rank.connection) {
        Ok(got) => got,
        Err(e) => return matches!(e.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::Interrupted),
    };
    if message.is_empty() || rank.grant.is_some() {
        // The end; or more than one question.
        return false;
    }
    let user = rank.user.unwrap_or(u32::MAX);
    match grant(&message, &with, user, policy, broker, netlink) {
        Ok((grant, bound)) => {
            let answer = Answer::Grant(bound.layout).encode();
            let fds = [bound.socket.as_raw_fd(), bound.memory.as_raw_fd()];
            rank.grant = Some(grant);
            helper::send(&rank.connection, &answer, &fds).is_ok()
        }
        Err(no) => {
            if told.is_news(user, no.why, Instant::now()) {
                crate::say(&format!("no socket for user {user}: {no}"));
            }
            let _ = helper::send(&rank.connection, &Answer::Refuse(no.why).encode(), &[]);
            false
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

fn grant(
    message: &[u8],
    with: &[OwnedFd],
    user: u32,
    policy: &Policy,
    broker: &mut Broker,
    netlink: &mut Netlink,
) -> Result<(Grant, weir_xdp::Bound), NoSocket> {
    let ask = Ask::decode(message)?;
    if user != 0 && !policy.users.contains(&user) {
        return Err(Refused::User.into());
    }
    let udp = with.first().ok_or(Refused::Socket)?;
    // An interface's number means something within its namespace only.
    may_be_steered(udp)?;
    let link = netlink.link(ask.interface).map_err(|_| Refused::Interface)?;
    if !policy.interfaces.contains(&link.name) {
        return Err(Refused::Interface.into());
    }
    if broker.holders() >= RANKS_MAX {
        return Err(Refused::Full.into());
    }
    broker.grant(udp, ask)
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
