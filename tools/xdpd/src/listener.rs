//! The Unix socket that ranks connect to: our own, or systemd's (sd_listen_fds(3)).

use crate::sys;
use anyhow::{Context, Result, bail};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, connect, getsockopt, listen as nix_listen, socket,
    sockopt,
};
use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

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

/// The file of a socket of ours. It is removed when this is dropped, unless another has come in its
/// place.
#[derive(Debug)]
pub struct OwnFile {
    path: PathBuf,
    /// Device and inode.
    is: (u64, u64),
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    let meta = fs::symlink_metadata(path).ok()?;
    Some((meta.dev(), meta.ino()))
}

impl Drop for OwnFile {
    fn drop(&mut self) {
        if identity(&self.path) == Some(self.is) {
            // Where it stays, the next helper replaces it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Listens at a path. A socket that a dead helper left is replaced; nothing else is.
///
/// # Errors
/// The path cannot be used, something else is there, or another helper listens there.
pub fn listen(path: &Path) -> Result<(OwnedFd, OwnFile)> {
    let told = path.display();
    let address = UnixAddr::new(path).with_context(|| format!("{told} cannot be the path of a socket"))?;
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    if let Ok(there) = fs::symlink_metadata(path) {
        if !there.file_type().is_socket() {
            bail!("{told} is there and is no socket: it is left as it is; name another path by --socket");
        }
        let probe = unix().context("cannot make a socket")?;
        if connect(probe.as_raw_fd(), &address) != Err(nix::Error::ECONNREFUSED) {
            bail!("{told} is in use by another weir xdpd, or another program's; --socket names another path");
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
    let is = identity(path).with_context(|| format!("cannot look at {told}"))?;
    Ok((listener, OwnFile { path: path.to_owned(), is }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_socket_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("notes");
        fs::write(&file, "dear").expect("ours");
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&file, &link).expect("ours");
        for path in [&file, &link, &folder.path().to_owned()] {
            let error = listen(path).expect_err("no socket").to_string();
            assert!(error.contains("is no socket"), "{error}");
        }
        assert_eq!(fs::read_to_string(&link).expect("both are there"), "dear");
    }

    #[test]
    fn who_ends_takes_its_socket_along_and_one_that_was_left_is_replaced() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("s");
        let (listener, file) = listen(&path).expect("listens");
        assert!(listen(&path).expect_err("in use").to_string().contains("in use"));
        drop((listener, file));
        assert!(!path.exists());
        // Killed: nothing is dropped.
        let (listener, file) = listen(&path).expect("listens");
        drop(listener);
        std::mem::forget(file);
        assert!(path.exists());
        let (_listener, file) = listen(&path).expect("replaces it");
        // Another one's file stays.
        fs::rename(&path, folder.path().join("elsewhere")).expect("ours");
        fs::write(&path, "").expect("ours");
        drop(file);
        assert!(path.exists());
    }
}
