//! The two ends of the Unix socket between ranks and helper (spec/xdp.md 3).

use crate::sys;
use crate::words::{Answer, Ask, BYTES, Refused};
use crate::xsk::{Bound, Layout};
use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, Shutdown, SockFlag, SockType, UnixAddr, connect, getsockopt, sendmsg,
    setsockopt, shutdown, socket, sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike};
use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::Path;

/// Where the helper listens, if nothing else is said.
pub const SOCKET: &str = "/run/weir/xdpd.sock";
/// How long either side waits for the other, seconds.
pub const WAIT_S: i64 = 2;
/// How long who ends waits for the helper to let go of its port, milliseconds: `LET_GO` of
/// spec/xdp.md 8.
const LET_GO_MS: i64 = 200;

/// Sends one message, and descriptors with it.
///
/// # Errors
/// The system's.
pub fn send(to: &OwnedFd, message: &[u8; BYTES], with: &[RawFd]) -> io::Result<()> {
    let rights = [ControlMessage::ScmRights(with)];
    let rights = if with.is_empty() { &rights[..0] } else { &rights[..] };
    sendmsg::<UnixAddr>(to.as_raw_fd(), &[IoSlice::new(message)], rights, MsgFlags::MSG_NOSIGNAL, None)?;
    Ok(())
}

/// Receives one message with its descriptors, however many there are. An empty message is the end.
///
/// # Errors
/// The system's.
pub fn recv(from: &OwnedFd) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    // One more than the longest, so that a longer one is seen to be.
    let mut bytes = [0; BYTES + 1];
    let (len, with) = sys::recv_with(from, &mut bytes)?;
    Ok((bytes[..len].to_vec(), with))
}

/// A rank's hold on what the helper gave it: its connection. Dropped, it waits a moment until the
/// helper has let go of the UDP socket that it was shown: the port is free then, unless the helper
/// is busy.
#[derive(Debug)]
pub struct Hold {
    connection: OwnedFd,
    /// Whose it is: a child of fork(2) has a copy that must end nothing.
    pid: u32,
}

impl Hold {
    /// Whether the helper is gone. It never says anything more.
    #[must_use]
    pub fn is_over(&self) -> bool {
        let mut byte = [0];
        !matches!(sys::recv(&self.connection, &mut byte), Err(e) if e.kind() == io::ErrorKind::WouldBlock || e.kind() == io::ErrorKind::Interrupted)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if self.pid == std::process::id()
            && shutdown(self.connection.as_raw_fd(), Shutdown::Write).is_ok()
            && setsockopt(&self.connection, sockopt::ReceiveTimeout, &TimeVal::milliseconds(LET_GO_MS)).is_ok()
        {
            // The end is all that comes.
            let _ = recv(&self.connection);
        }
    }
}

/// Either side gives up waiting for the other after a while.
///
/// # Errors
/// The system's.
pub fn wait_at_most(fd: &OwnedFd) -> io::Result<()> {
    let time = TimeVal::new(WAIT_S, 0);
    setsockopt(fd, sockopt::ReceiveTimeout, &time)?;
    setsockopt(fd, sockopt::SendTimeout, &time)?;
    Ok(())
}

/// Why the helper gave none.
#[derive(Debug, thiserror::Error)]
pub enum NoHelp {
    /// Nobody listens.
    #[error("no helper (weir xdpd, which root starts) listens at {path}")]
    Nobody {
        /// Where it was looked for.
        path: String,
    },
    /// It may not be asked.
    #[error("the helper at {path} cannot be asked: {cause}")]
    Unreachable {
        /// Where it was looked for.
        path: String,
        /// What the system says.
        cause: io::Error,
    },
    /// It does not answer.
    #[error("the helper at {path} does not answer (waited {WAIT_S} s)")]
    Silent {
        /// Where it was looked for.
        path: String,
    },
    /// It is not who is trusted with a port.
    #[error("who listens at {path} is neither root nor this user")]
    Stranger {
        /// Where it was looked for.
        path: String,
    },
    /// It said no.
    #[error("{0}")]
    Refused(#[from] Refused),
}

/// Asks the helper at `path` for a socket of the interface, by right of the UDP socket `udp`.
///
/// # Errors
/// Why there is none.
pub fn ask(path: &Path, udp: RawFd, ask: Ask) -> Result<(Hold, Bound), NoHelp> {
    let told = || path.display().to_string();
    let unreachable = |cause: io::Error| match cause.kind() {
        io::ErrorKind::WouldBlock => NoHelp::Silent { path: told() },
        _ => NoHelp::Unreachable { path: told(), cause },
    };
    let connection = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None)
        .map_err(|e| unreachable(e.into()))?;
    wait_at_most(&connection).map_err(unreachable)?;
    let address = UnixAddr::new(path).map_err(|e| unreachable(e.into()))?;
    match connect(connection.as_raw_fd(), &address) {
        Ok(()) => {}
        Err(nix::Error::ENOENT | nix::Error::ECONNREFUSED) => return Err(NoHelp::Nobody { path: told() }),
        Err(e) => return Err(unreachable(e.into())),
    }
    // Who listened first decides who is asked, and any user may have been first at some paths.
    let who = getsockopt(&connection, sockopt::PeerCredentials).map_err(|e| unreachable(e.into()))?;
    if who.uid() != 0 && who.uid() != nix::unistd::geteuid().as_raw() {
        return Err(NoHelp::Stranger { path: told() });
    }
    // (Who is refused as such may be told so, and the connection closed, before the question is
    // sent or read: the answer is there all the same.)
    let is_closed = |e: &io::Error| matches!(e.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset);
    match send(&connection, &ask.encode(), &[udp]) {
        Err(e) if !is_closed(&e) => return Err(unreachable(e)),
        _ => {}
    }
    let (message, with) = match recv(&connection) {
        Err(e) if is_closed(&e) => recv(&connection),
        other => other,
    }
    .map_err(unreachable)?;
    match (Answer::decode(&message)?, <[OwnedFd; 2]>::try_from(with)) {
        (Answer::Grant(layout), Ok([socket, memory])) if is_as_asked(&layout, &ask) => {
            Ok((Hold { connection, pid: std::process::id() }, Bound { socket, memory, layout }))
        }
        (Answer::Grant(_), _) => Err(Refused::Malformed.into()),
        (Answer::Refuse(why), _) => Err(why.into()),
    }
}

fn is_as_asked(layout: &Layout, ask: &Ask) -> bool {
    layout.interface == ask.interface && layout.most <= ask.most
}
