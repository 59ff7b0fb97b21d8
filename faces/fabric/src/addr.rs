//! Endpoint names as libfabric addresses: made from a host and a service, printed for people.
//!
//! A name normally comes from `fi_getname` of the peer. One made here from `host:port` has endpoint
//! id 0, which means "whoever is at that address".

use crate::abi::*;
use std::ffi::{CStr, c_char, c_int};
use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use weir_engine::NAME_BYTES;
use weir_wire::EndpointName;

/// A name as libfabric carries it.
pub type Name = [u8; NAME_BYTES];

/// The addresses of a host. `passive`: for binding, where no host means every local address.
///
/// # Safety
/// Both texts are null or C strings.
unsafe fn look_up(
    node: *const c_char,
    service: *const c_char,
    numeric: bool,
    passive: bool,
) -> Result<(Vec<IpAddr>, u16), String> {
    // SAFETY: all-zero is a valid addrinfo.
    let mut hints: libc::addrinfo = unsafe { std::mem::zeroed() };
    hints.ai_socktype = libc::SOCK_DGRAM;
    hints.ai_flags = if passive { libc::AI_PASSIVE } else { 0 } | if numeric { libc::AI_NUMERICHOST } else { 0 };
    let mut list: *mut libc::addrinfo = std::ptr::null_mut();
    // SAFETY: texts are null or C strings (caller); the rest is ours.
    let rc = unsafe { libc::getaddrinfo(node, service, &raw const hints, &raw mut list) };
    if rc != 0 {
        // SAFETY: gai_strerror returns a static C string.
        let why = unsafe { CStr::from_ptr(libc::gai_strerror(rc)) }.to_string_lossy().into_owned();
        let text = |p: *const c_char| {
            // SAFETY: not null here, a C string (caller).
            if p.is_null() { "-".into() } else { unsafe { CStr::from_ptr(p) }.to_string_lossy() }
        };
        return Err(format!("cannot resolve host {} service {}: {why}", text(node), text(service)));
    }
    let (mut ips, mut port) = (Vec::new(), 0);
    let mut at = list;
    // SAFETY: getaddrinfo returned a list of valid entries, each with an address of its family.
    while let Some(entry) = unsafe { at.as_ref() } {
        let (ip, p) = match entry.ai_family {
            // SAFETY: an AF_INET entry carries a sockaddr_in.
            libc::AF_INET => unsafe { ip_of_v4(entry.ai_addr.cast()) },
            // SAFETY: an AF_INET6 entry carries a sockaddr_in6.
            libc::AF_INET6 => unsafe { ip_of_v6(entry.ai_addr.cast()) },
            _ => {
                at = entry.ai_next;
                continue;
            }
        };
        port = p;
        if !ips.contains(&ip) {
            ips.push(ip);
        }
        at = entry.ai_next;
    }
    // SAFETY: from getaddrinfo, not used after this.
    unsafe { libc::freeaddrinfo(list) };
    // IPv4 first: more of them fit, and a host's name often has an IPv6 address nobody listens on.
    ips.sort_by_key(IpAddr::is_ipv6);
    Ok((ips, port))
}

/// Makes a name from a host and a service, either of which may be null.
///
/// # Errors
/// What could not be resolved, for the log.
///
/// # Safety
/// Both texts are null or C strings.
pub unsafe fn resolve(
    node: *const c_char,
    service: *const c_char,
    numeric: bool,
    passive: bool,
) -> Result<Name, String> {
    // SAFETY: passed on from the caller.
    let (mut ips, port) = unsafe { look_up(node, service, numeric, passive)? };
    if passive {
        // "Any address" is a name without addresses.
        ips.retain(|ip| !ip.is_unspecified());
    } else if ips.is_empty() {
        return Err("the host has neither an IPv4 nor an IPv6 address".to_owned());
    }
    let mut name = EndpointName::new(port, [0; 4], 0);
    for ip in ips {
        // What does not fit is left out: the first addresses are the preferred ones.
        name.push(ip);
    }
    Ok(name.encode())
}

/// A name made from host and service carries no key fingerprint; it gets the one of the endpoint
/// that uses it.
pub fn complete(name: &Name, own: &Name) -> Name {
    match EndpointName::decode(name) {
        Ok(mut n) if n.endpoint_id == 0 => {
            n.fingerprint = EndpointName::decode(own).map_or(n.fingerprint, |o| o.fingerprint);
            n.encode()
        }
        _ => *name,
    }
}

/// Whether these bytes are a name of this version.
pub fn is_name(name: &Name) -> bool {
    EndpointName::decode(name).is_ok()
}

/// Port and addresses of a name, for binding; none when it leaves both open.
pub fn parts(name: &Name) -> Option<(u16, Vec<IpAddr>)> {
    let name = EndpointName::decode(name).ok()?;
    (name.port != 0 || !name.addresses.is_empty()).then(|| (name.port, name.addresses.to_vec()))
}

/// The name that leaves everything open: what an endpoint is bound to by default.
pub fn anywhere() -> Name {
    EndpointName::new(0, [0; 4], 0).encode()
}

/// A name from an address in hints: a name already, or a socket address (applications bind to
/// those).
///
/// # Safety
/// `address` is null or has `len` bytes.
pub unsafe fn from_hint(address: *const std::ffi::c_void, len: usize) -> Option<Name> {
    if address.is_null() {
        return None;
    }
    if len == NAME_BYTES {
        // SAFETY: of that length (caller).
        return Some(unsafe { address.cast::<Name>().read_unaligned() }).filter(is_name);
    }
    if len < size_of::<libc::sockaddr_in>() {
        return None;
    }
    // SAFETY: long enough for a family.
    let (ip, port) = match c_int::from(unsafe { address.cast::<libc::sa_family_t>().read_unaligned() }) {
        // SAFETY: long enough for a sockaddr_in.
        libc::AF_INET => unsafe { ip_of_v4(address.cast()) },
        // SAFETY: long enough for a sockaddr_in6.
        libc::AF_INET6 if len >= size_of::<libc::sockaddr_in6>() => unsafe { ip_of_v6(address.cast()) },
        _ => return None,
    };
    let mut name = EndpointName::new(port, [0; 4], 0);
    if !ip.is_unspecified() {
        name.push(ip);
    }
    Some(name.encode())
}

unsafe fn ip_of_v4(at: *const libc::sockaddr_in) -> (IpAddr, u16) {
    // SAFETY: a sockaddr_in (caller).
    let a = unsafe { at.read_unaligned() };
    (IpAddr::V4(Ipv4Addr::from(u32::from_be(a.sin_addr.s_addr))), u16::from_be(a.sin_port))
}

unsafe fn ip_of_v6(at: *const libc::sockaddr_in6) -> (IpAddr, u16) {
    // SAFETY: a sockaddr_in6 (caller).
    let a = unsafe { at.read_unaligned() };
    (IpAddr::V6(Ipv6Addr::from(a.sin6_addr.s6_addr)), u16::from_be(a.sin6_port))
}

/// A name for people: `weir://10.0.0.1,10.1.0.1:4000/3f2a...`.
pub fn text(name: &Name) -> String {
    let Ok(name) = EndpointName::decode(name) else { return "not a weir address".to_owned() };
    let mut out = String::from("weir://");
    for (i, ip) in name.addresses.iter().enumerate() {
        let _ = match ip {
            IpAddr::V4(a) => write!(out, "{}{a}", if i > 0 { "," } else { "" }),
            IpAddr::V6(a) => write!(out, "{}[{a}]", if i > 0 { "," } else { "" }),
        };
    }
    let _ = write!(out, ":{}", name.port);
    if name.endpoint_id != 0 {
        let _ = write!(out, "/{:016x}", name.endpoint_id);
    }
    out
}

/// Puts a name into a caller's buffer, cut if it must be, and says how long it is.
///
/// # Errors
/// `FI_ETOOSMALL` when it was cut.
///
/// # Safety
/// `len` is null or valid; `to` is null or writable for `*len` bytes.
pub unsafe fn put(name: &Name, to: *mut std::ffi::c_void, len: *mut usize) -> Result<(), i32> {
    // SAFETY: as above.
    let Some(len) = (unsafe { len.as_mut() }) else { return Err(FI_EINVAL) };
    let room = std::mem::replace(len, NAME_BYTES);
    let n = room.min(NAME_BYTES);
    if !to.is_null() {
        // SAFETY: writable for `room` bytes (caller).
        unsafe { std::ptr::copy_nonoverlapping(name.as_ptr(), to.cast(), n) };
    }
    if room < NAME_BYTES || to.is_null() { Err(FI_ETOOSMALL) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numeric_hosts_become_names_that_print() {
        // SAFETY: C string literals.
        let name = unsafe { resolve(c"127.0.0.1".as_ptr(), c"4000".as_ptr(), true, false) }.expect("resolves");
        assert!(is_name(&name));
        assert_eq!(text(&name), "weir://127.0.0.1:4000");
        assert_eq!(parts(&name), Some((4000, vec![IpAddr::V4(Ipv4Addr::LOCALHOST)])));
    }

    #[test]
    fn any_local_address_is_a_name_without_addresses() {
        // SAFETY: null and a C string literal.
        let name = unsafe { resolve(std::ptr::null(), c"4001".as_ptr(), false, true) }.expect("resolves");
        assert_eq!(parts(&name), Some((4001, vec![])));
        assert_eq!(parts(&anywhere()), None);
    }

    #[test]
    fn socket_addresses_in_hints_are_understood() {
        // SAFETY: zeros are valid here.
        let mut a: libc::sockaddr_in = unsafe { std::mem::zeroed() };
        a.sin_family = libc::AF_INET as libc::sa_family_t;
        a.sin_port = 4002u16.to_be();
        a.sin_addr.s_addr = u32::from(Ipv4Addr::LOCALHOST).to_be();
        let len = size_of::<libc::sockaddr_in>();
        // SAFETY: a socket address of that length.
        let name = unsafe { from_hint((&raw const a).cast(), len) }.expect("understood");
        assert_eq!(text(&name), "weir://127.0.0.1:4002");
        // SAFETY: as above; shorter than it is.
        assert_eq!(unsafe { from_hint((&raw const a).cast(), len - 1) }, None);
        a.sin_family = libc::AF_UNIX as libc::sa_family_t;
        // SAFETY: as above.
        assert_eq!(unsafe { from_hint((&raw const a).cast(), len) }, None);
    }

    #[test]
    fn nonsense_is_refused_with_a_reason() {
        // SAFETY: C string literals.
        let why = unsafe { resolve(c"not a host".as_ptr(), c"1".as_ptr(), true, false) }.expect_err("must fail");
        assert!(why.contains("not a host"), "{why}");
        assert!(!is_name(&[0xff; NAME_BYTES]));
        assert_eq!(text(&[0xff; NAME_BYTES]), "not a weir address");
    }

    #[test]
    fn short_buffers_are_filled_and_told() {
        let name = [7u8; NAME_BYTES];
        let (mut buf, mut len) = ([0u8; NAME_BYTES], 10);
        // SAFETY: the buffer has more than `len` bytes.
        assert_eq!(unsafe { put(&name, buf.as_mut_ptr().cast(), &raw mut len) }, Err(FI_ETOOSMALL));
        assert_eq!((len, buf[9], buf[10]), (NAME_BYTES, 7, 0));
        // SAFETY: as above, now with full length.
        assert_eq!(unsafe { put(&name, buf.as_mut_ptr().cast(), &raw mut len) }, Ok(()));
        // SAFETY: null is allowed.
        assert_eq!(unsafe { put(&name, std::ptr::null_mut(), &raw mut len) }, Err(FI_ETOOSMALL));
    }
}
