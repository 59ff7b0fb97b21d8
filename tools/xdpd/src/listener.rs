//! The Unix socket that ranks connect to: our own, or systemd's (sd_listen_fds(3)).

use crate::sys;
use anyhow::{Context, Result, bail};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, connect, getsockopt, listen as nix_listen, socket,
    sockopt,
};
use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// A socket of the kind that ranks connect to.
fn unix() -> nix::Result<OwnedFd> {
    socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK, None)
}

/// The socket that systemd listens at, if it started this process for one.
///
/// # Errors
/// It is of another kind.
pub fn from_systemd() -> Result<Option<OwnedFd>> {
    let number = |name| std::env::var(name).ok().and_then(|v| v.parse::<u32>().ok());
    if number("LISTEN_PID") != Some(std::process::id()) || number("LISTEN_FDS") != Some(1) {
        return Ok(None);
    }
    let fd = sys::handed_over().context("systemd's socket is not open")?;
    if getsockopt(&fd, sockopt::SockType).ok() != Some(SockType::SeqPacket) {
        bail!("systemd's socket is not of the kind ListenSequentialPacket");
    }
    Ok(Some(fd))
}

/// Listens at a path. A file that a dead helper left is replaced.
///
/// # Errors
/// The path cannot be used, or another helper listens there.
pub fn listen(path: &Path) -> Result<OwnedFd> {
    let told = path.display();
    let address = UnixAddr::new(path).with_context(|| format!("{told} cannot be the path of a socket"))?;
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    if path.exists() {
        let probe = unix().context("cannot make a socket")?;
        if connect(probe.as_raw_fd(), &address) != Err(nix::Error::ECONNREFUSED) {
            bail!("{told} is in use: another weir xdpd, or no socket at all");
        }
        fs::remove_file(path).with_context(|| format!("cannot remove the socket {told} of one that is gone"))?;
    }
    let listener = unix().context("cannot make a socket")?;
    bind(listener.as_raw_fd(), &address).with_context(|| format!("cannot listen at {told}"))?;
    // Who may ask is decided by who asks, not by the file.
    fs::set_permissions(path, fs::Permissions::from_mode(0o666))
        .with_context(|| format!("cannot open {told} to all"))?;
    nix_listen(&listener, Backlog::new(64).unwrap_or(Backlog::MAXCONN))
        .with_context(|| format!("cannot listen at {told}"))?;
    Ok(listener)
}
