//! A descriptor that a launcher left open for this process and named in a variable.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};

/// A copy, closed on exec, of the socket that this process inherited under the number `fd`. The
/// number itself stays open: who else in this process may speak to the same launcher by it is not
/// known here.
///
/// # Errors
/// No such descriptor is open, or it is no socket: the variable is another process's.
pub fn adopt(fd: RawFd) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: the number is only looked at and copied, by calls that check it; should another
    // thread close it meanwhile, the copy fails or is of what that thread opened, which the next
    // check turns away unless it is a socket, too.
    let inherited = unsafe { BorrowedFd::borrow_raw(fd) };
    let own = inherited.try_clone_to_owned()?;
    let kind = nix::sys::stat::fstat(&own)?.st_mode & libc::S_IFMT;
    if kind != libc::S_IFSOCK {
        return Err(io::Error::from_raw_os_error(libc::ENOTSOCK));
    }
    Ok(own)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn what_is_adopted_is_the_same_socket_and_is_not_handed_on() {
        let (mut near, far) = UnixStream::pair().unwrap();
        let own = adopt(far.as_raw_fd()).unwrap();
        let flags = nix::fcntl::fcntl(&own, nix::fcntl::FcntlArg::F_GETFD).unwrap();
        assert_eq!(flags & libc::FD_CLOEXEC, libc::FD_CLOEXEC);
        near.write_all(b"x").unwrap();
        let mut byte = [0];
        UnixStream::from(own).read_exact(&mut byte).unwrap();
        assert_eq!(&byte, b"x");
    }

    #[test]
    fn what_is_closed_or_no_socket_is_refused() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(adopt(file.as_raw_fd()).unwrap_err().raw_os_error(), Some(libc::ENOTSOCK));
        for closed in [-1, 1_000_000] {
            assert_eq!(adopt(closed).unwrap_err().raw_os_error(), Some(libc::EBADF));
        }
    }
}
