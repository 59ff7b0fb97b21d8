//! What this process's messages went by, asked of who knows: a loaded Weir provider, and the kernel
//! of its TCP sockets.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::os::fd::RawFd;

use weir_engine::Traffic;

/// The provider's function (`faces/fabric`): writes at most so many numbers, returns how many it
/// knows.
type Ask = unsafe extern "C" fn(*mut u64, usize) -> usize;

/// A Weir provider that some library of this process has loaded. It is never unloaded again.
#[derive(Clone, Copy, Debug)]
pub struct Provider(Ask);

impl Provider {
    /// Looks for one. libfabric takes as providers what ends in `-fi.so`, and loads it where the
    /// linker's own names do not reach.
    #[must_use]
    pub fn loaded() -> Option<Provider> {
        let mut names: Vec<Vec<u8>> = Vec::new();
        // SAFETY: the callback gets this pointer back and runs only during the call.
        unsafe { libc::dl_iterate_phdr(Some(note_name), (&raw mut names).cast()) };
        names.iter().find_map(|name| Self::in_object(CStr::from_bytes_with_nul(name).ok()?))
    }

    fn in_object(name: &CStr) -> Option<Provider> {
        // SAFETY: a C string; RTLD_NOLOAD only takes a handle to what is loaded already, and runs
        // no code of it.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        if handle.is_null() {
            return None;
        }
        // SAFETY: the handle was just taken and is kept for ever; the name is a C string.
        let address = unsafe { libc::dlsym(handle, c"weir_carried".as_ptr()) };
        if address.is_null() {
            // SAFETY: gives back what was taken above, once.
            unsafe { libc::dlclose(handle) };
            return None;
        }
        // SAFETY: Weir's provider declares the function of this name with this type; others have
        // none of it.
        Some(Provider(unsafe { std::mem::transmute::<*mut c_void, Ask>(address) }))
    }

    /// What its endpoints have carried so far.
    #[must_use]
    pub fn carried(self) -> Traffic {
        let mut numbers = [0; 16];
        // SAFETY: there is room for as many numbers as are said.
        let known = unsafe { (self.0)(numbers.as_mut_ptr(), numbers.len()) };
        Traffic::of_numbers(&numbers[..known.min(numbers.len())])
    }
}

unsafe extern "C" fn note_name(info: *mut libc::dl_phdr_info, _: usize, names: *mut c_void) -> c_int {
    // SAFETY: the loader passes a valid entry, whose name is null or a C string; `names` is the
    // caller's own list.
    let (name, names) = unsafe { ((*info).dlpi_name.cast::<c_char>(), &mut *names.cast::<Vec<Vec<u8>>>()) };
    if !name.is_null() {
        // SAFETY: as above.
        let name = unsafe { CStr::from_ptr(name) };
        if name.to_bytes().ends_with(b"-fi.so") {
            names.push(name.to_bytes_with_nul().to_vec());
        }
    }
    0
}

/// Bytes that the other side of a TCP socket has acknowledged; nothing of what is no TCP socket.
#[must_use]
pub fn acknowledged_bytes(fd: RawFd) -> Option<u64> {
    /// `tcpi_bytes_acked` in `struct tcp_info` (linux/tcp.h), since Linux 4.1.
    const AT: usize = 120;
    if option(fd, libc::SOL_SOCKET, libc::SO_PROTOCOL, &mut [0u8; 4])? != libc::IPPROTO_TCP.to_ne_bytes() {
        return None;
    }
    let mut info = [0u8; AT + 8];
    let info = option(fd, libc::IPPROTO_TCP, libc::TCP_INFO, &mut info)?;
    info.get(AT..)?.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes))
}

/// What the kernel writes of a socket's option; nothing if the number is no socket's.
fn option(fd: RawFd, level: c_int, name: c_int, into: &mut [u8]) -> Option<&[u8]> {
    let mut len = into.len() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes into `into`; a number that is no descriptor, or
    // another's, is refused or answered for.
    let done = unsafe { libc::getsockopt(fd, level, name, into.as_mut_ptr().cast(), &raw mut len) };
    (done == 0).then_some(&into[..(len as usize).min(into.len())])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::fd::AsRawFd;

    #[test]
    fn only_tcp_sockets_have_acknowledged_bytes() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut other = listener.accept().unwrap().0;
        let before = acknowledged_bytes(one.as_raw_fd()).unwrap();
        one.write_all(&[7; 5000]).unwrap();
        other.read_exact(&mut [0; 5000]).unwrap();
        // An answer: by then the bytes are acknowledged.
        other.write_all(&[1]).unwrap();
        one.read_exact(&mut [0]).unwrap();
        assert_eq!(acknowledged_bytes(one.as_raw_fd()).unwrap() - before, 5000);
        assert_eq!(acknowledged_bytes(UdpSocket::bind("127.0.0.1:0").unwrap().as_raw_fd()), None);
        assert_eq!(acknowledged_bytes(-1), None);
        assert_eq!(acknowledged_bytes(std::fs::File::open("/dev/null").unwrap().as_raw_fd()), None);
    }

    #[test]
    fn no_provider_is_found_where_none_is_loaded() {
        assert!(Provider::loaded().is_none());
    }
}
