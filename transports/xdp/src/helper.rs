//! The two ends of the Unix socket between ranks and helper (spec/xdp.md 3).

use crate::words::{Answer, Ask, BYTES, Refused};
use crate::xsk::{Bound, Layout};
use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, UnixAddr, connect, recvmsg,
    sendmsg, setsockopt, socket, sockopt,
};
use nix::sys::time::TimeVal;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;

/// Where the helper listens, if nothing else is said.
pub const SOCKET: &str = "/run/weir/xdpd.sock";
/// How long either side waits for the other, seconds.
pub const WAIT_S: i64 = 2;

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

/// Receives one message with its descriptors, at most two; more are closed. An empty message is the
/// end.
///
/// # Errors
/// The system's.
pub fn recv(from: &OwnedFd) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    // One more than the longest, so that a longer one is seen to be.
    let mut bytes = [0; BYTES + 1];
    let mut space = nix::cmsg_space!([RawFd; 4]);
    let mut parts = [IoSliceMut::new(&mut bytes)];
    let got = recvmsg::<UnixAddr>(from.as_raw_fd(), &mut parts, Some(&mut space), MsgFlags::MSG_CMSG_CLOEXEC)?;
    let mut with = Vec::new();
    for c in got.cmsgs()? {
        if let ControlMessageOwned::ScmRights(fds) = c {
            // SAFETY: the kernel just made these descriptors for us, and nobody else knows them.
            with.extend(fds.into_iter().map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }));
        }
    }
    let len = got.bytes;
    with.truncate(2);
    Ok((bytes[..len].to_vec(), with))
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
    /// It said no.
    #[error("{0}")]
    Refused(#[from] Refused),
}

/// Asks the helper at `path` for a socket of the interface, by right of the UDP socket `udp`. The
/// connection is the hold on it.
///
/// # Errors
/// Why there is none.
pub fn ask(path: &Path, udp: RawFd, ask: Ask) -> Result<(OwnedFd, Bound), NoHelp> {
    let told = || path.display().to_string();
    let unreachable = |cause: io::Error| NoHelp::Unreachable { path: told(), cause };
    let connection = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None)
        .map_err(|e| unreachable(e.into()))?;
    wait_at_most(&connection).map_err(unreachable)?;
    let address = UnixAddr::new(path).map_err(|e| unreachable(e.into()))?;
    match connect(connection.as_raw_fd(), &address) {
        Ok(()) => {}
        Err(nix::Error::ENOENT | nix::Error::ECONNREFUSED) => return Err(NoHelp::Nobody { path: told() }),
        Err(e) => return Err(unreachable(e.into())),
    }
    send(&connection, &ask.encode(), &[udp]).map_err(unreachable)?;
    let (message, with) = recv(&connection).map_err(unreachable)?;
    match (Answer::decode(&message)?, <[OwnedFd; 2]>::try_from(with)) {
        (Answer::Grant(layout), Ok([socket, memory])) if is_as_asked(&layout, &ask) => {
            Ok((connection, Bound { socket, memory, layout }))
        }
        (Answer::Grant(_), _) => Err(Refused::Malformed.into()),
        (Answer::Refuse(why), _) => Err(why.into()),
    }
}

fn is_as_asked(layout: &Layout, ask: &Ask) -> bool {
    layout.interface == ask.interface && layout.most <= ask.most
}

/// Whether the other side of a connection is gone. It never says anything more.
#[must_use]
pub fn is_over(connection: &OwnedFd) -> bool {
    let mut byte = [0];
    !matches!(crate::sys::recv(connection, &mut byte), Err(e) if e.kind() == io::ErrorKind::WouldBlock || e.kind() == io::ErrorKind::Interrupted)
}
