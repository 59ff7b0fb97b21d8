//! Addresses: what URLs mean, and the table of those that are known (spec/bmi.md 5).

use crate::codes::Code;
use slotmap::{Key, KeyData, SlotMap, new_key_type};
use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

new_key_type! {
    /// An address: index and generation.
    pub struct AddrKey;
}

impl AddrKey {
    /// As programs see it; never 0.
    #[must_use]
    pub fn to_id(self) -> i64 {
        self.data().as_ffi().cast_signed()
    }

    /// What a program says is one.
    #[must_use]
    pub fn from_id(id: i64) -> AddrKey {
        KeyData::from_ffi(id.cast_unsigned()).into()
    }
}

/// Longest text of an address, with its end.
pub const TEXT_MAX: usize = 2048;

/// A URL taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url<'a> {
    /// Before `://`.
    pub scheme: &'a str,
    /// Host or address, without brackets.
    pub host: &'a str,
    /// Port.
    pub port: u16,
}

impl<'a> Url<'a> {
    /// `scheme://host:port`, whatever stands behind a further slash.
    ///
    /// # Errors
    /// `BMI_ENOPROTOOPT` without a scheme, `BMI_EINVAL` without a host or port, of which 0 is none.
    pub fn parse(text: &'a str) -> Result<Url<'a>, Code> {
        Url::with_port(text, None).and_then(|url| if url.port == 0 { Err(Code::EINVAL) } else { Ok(url) })
    }

    /// The same of where a server listens: without a port any will do, which is 0 (A1).
    ///
    /// # Errors
    /// As [`Url::parse`].
    pub fn of_listener(text: &'a str) -> Result<Url<'a>, Code> {
        Url::with_port(text, Some("0"))
    }

    fn with_port(text: &'a str, without: Option<&'a str>) -> Result<Url<'a>, Code> {
        let (scheme, rest) = text.trim().split_once("://").ok_or(Code::ENOPROTOOPT)?;
        let place = rest.split('/').next().unwrap_or(rest);
        let lacks = |host, without: Option<&'a str>| without.map(|port| (host, port)).ok_or(Code::EINVAL);
        let (host, port) = match place.strip_prefix('[') {
            Some(v6) => {
                let (host, behind) = v6.split_once(']').ok_or(Code::EINVAL)?;
                host.parse::<std::net::Ipv6Addr>().map_err(|_| Code::EINVAL)?;
                match behind.strip_prefix(':') {
                    Some(port) => (host, port),
                    None => lacks(host, without.filter(|_| behind.is_empty()))?,
                }
            }
            None => place.rsplit_once(':').map_or_else(|| lacks(place, without), Ok)?,
        };
        if host.is_empty() || (host.contains(':') && !place.starts_with('[')) || host.bytes().any(|b| b <= b' ') {
            return Err(Code::EINVAL);
        }
        let digits = !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
        let port = port.parse().ok().filter(|_| digits).ok_or(Code::EINVAL)?;
        Ok(Url { scheme, host, port })
    }

    /// Host and port, as they are written.
    #[must_use]
    pub fn place(&self) -> String {
        let (host, port) = (self.host, self.port);
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }

    /// The addresses of the host. Asks the system's resolver unless it is an address.
    ///
    /// # Errors
    /// `BMI_EHOSTNTFD`.
    pub fn resolve(&self) -> Result<Vec<SocketAddr>, Code> {
        if let Ok(ip) = self.host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(ip, self.port)]);
        }
        let mut found: Vec<SocketAddr> =
            (self.host, self.port).to_socket_addrs().map_err(|_| Code::EHOSTNTFD)?.collect();
        // Stable: IPv4 first, which the other side has where it has either.
        found.sort_by_key(SocketAddr::is_ipv6);
        found.dedup();
        found.truncate(8);
        if found.is_empty() { Err(Code::EHOSTNTFD) } else { Ok(found) }
    }
}

/// Whether two addresses agree in their first bits.
#[must_use]
pub fn agrees(a: IpAddr, b: IpAddr, bits: u32) -> bool {
    match (a, b) {
        (IpAddr::V4(a), IpAddr::V4(b)) if bits <= 32 => {
            (u32::from(a) ^ u32::from(b)).checked_shr(32 - bits).unwrap_or(0) == 0
        }
        (IpAddr::V6(a), IpAddr::V6(b)) if bits <= 128 => {
            (u128::from(a) ^ u128::from(b)).checked_shr(128 - bits).unwrap_or(0) == 0
        }
        _ => false,
    }
}

/// What is known of one.
#[derive(Debug)]
pub struct Address {
    /// Which method it is of.
    pub method: usize,
    /// The text of its lookup; none of one that came by itself.
    pub url: Option<CString>,
    /// Where its host is; empty of one that came by itself.
    pub places: Vec<SocketAddr>,
    /// Where it came from, as text.
    pub seen: Option<CString>,
    /// References to it.
    pub refs: i32,
    /// Operations with it that have not ended.
    pub ops: u32,
    /// Messages of its that wait to be handed out.
    pub waiting: u32,
    /// It is gone and cannot be reached again.
    pub gone: bool,
}

/// All of them.
#[derive(Debug, Default)]
pub struct Addresses {
    table: SlotMap<AddrKey, Address>,
    by_text: HashMap<CString, AddrKey>,
    by_place: HashMap<(usize, Vec<SocketAddr>), AddrKey>,
}

impl Addresses {
    /// One that was looked up by this text before.
    #[must_use]
    pub fn by_text(&self, text: &CString) -> Option<AddrKey> {
        self.by_text.get(text).copied()
    }

    /// The one of a method at these places, made if it is not there.
    pub fn at(&mut self, method: usize, text: CString, places: Vec<SocketAddr>) -> AddrKey {
        let place = (method, places);
        if let Some(&key) = self.by_place.get(&place) {
            self.by_text.insert(text, key);
            return key;
        }
        let address = Address { url: Some(text.clone()), places: place.1.clone(), ..Address::of(method) };
        let key = self.table.insert(address);
        self.by_place.insert(place, key);
        self.by_text.insert(text, key);
        key
    }

    /// One that its method knows by this text, made if the method does not know it under another.
    pub fn named(&mut self, method: usize, known: Option<AddrKey>, text: &CStr) -> AddrKey {
        let key = known.unwrap_or_else(|| self.table.insert(Address::of(method)));
        self.by_text.insert(text.to_owned(), key);
        if let Some(address) = self.table.get_mut(key) {
            address.url.get_or_insert_with(|| text.to_owned());
            address.gone = false;
        }
        key
    }

    /// One came by itself.
    pub fn arrived(&mut self, method: usize, from: Option<SocketAddr>) -> AddrKey {
        let seen = from.and_then(|from| CString::new(from.ip().to_string()).ok());
        self.table.insert(Address { seen, places: from.into_iter().collect(), ..Address::of(method) })
    }

    /// It is there.
    #[must_use]
    pub fn get(&self, key: AddrKey) -> Option<&Address> {
        self.table.get(key)
    }

    /// The same.
    pub fn get_mut(&mut self, key: AddrKey) -> Option<&mut Address> {
        self.table.get_mut(key)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (AddrKey, &Address)> {
        self.table.iter()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// None.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// It names nothing any more.
    pub fn remove(&mut self, key: AddrKey) -> Option<Address> {
        let address = self.table.remove(key)?;
        if address.url.is_some() {
            self.by_text.retain(|_, k| *k != key);
            self.by_place.retain(|_, k| *k != key);
        }
        Some(address)
    }

    /// Whether it is of no use and nothing refers to it (A5).
    #[must_use]
    pub fn is_spent(&self, key: AddrKey) -> bool {
        self.table.get(key).is_some_and(|a| a.gone && a.refs == 0 && a.ops == 0 && a.waiting == 0)
    }
}

impl Address {
    fn of(method: usize) -> Address {
        Address { method, url: None, places: Vec::new(), seen: None, refs: 0, ops: 0, waiting: 0, gone: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn urls_are_taken_apart() {
        let url = |scheme, host, port| Ok(Url { scheme, host, port });
        for (text, expected) in [
            ("weir://a:1", url("weir", "a", 1)),
            (" tcp://10.0.0.1:3334/pvfs2-fs", url("tcp", "10.0.0.1", 3334)),
            ("weir://[::1]:65535", url("weir", "::1", 65535)),
            ("host:1", Err(Code::ENOPROTOOPT)),
            ("", Err(Code::ENOPROTOOPT)),
            ("weir://a", Err(Code::EINVAL)),
            ("weir://a:", Err(Code::EINVAL)),
            ("weir://a:65536", Err(Code::EINVAL)),
            ("weir://a:0", Err(Code::EINVAL)),
            ("weir://a:+1", Err(Code::EINVAL)),
            ("weir://:1", Err(Code::EINVAL)),
            ("weir://::1:1", Err(Code::EINVAL)),
            ("weir://[::1]1", Err(Code::EINVAL)),
            ("weir://[::1", Err(Code::EINVAL)),
            ("weir://[x]:1", Err(Code::EINVAL)),
            ("weir://a b:1", Err(Code::EINVAL)),
        ] {
            assert_eq!(Url::parse(text), expected, "{text}");
        }
    }

    /// A1: Mercury's servers name none unless they are told to.
    #[test]
    fn a_server_may_leave_its_port_out() {
        let url = |scheme, host, port| Ok(Url { scheme, host, port });
        for (text, expected) in [
            ("tcp://10.0.0.1", url("tcp", "10.0.0.1", 0)),
            ("weir://a/b", url("weir", "a", 0)),
            ("tcp://[::1]", url("tcp", "::1", 0)),
            ("tcp://a:7", url("tcp", "a", 7)),
            ("tcp://a:0", url("tcp", "a", 0)),
            ("tcp://", Err(Code::EINVAL)),
            ("tcp://a:", Err(Code::EINVAL)),
            ("tcp://::1", Err(Code::EINVAL)),
            ("tcp://[::1]x", Err(Code::EINVAL)),
            ("a", Err(Code::ENOPROTOOPT)),
        ] {
            assert_eq!(Url::of_listener(text), expected, "{text}");
        }
    }

    #[test]
    fn numbers_are_resolved_without_asking_and_nonsense_is_not_found() {
        let resolve = |text| Url::parse(text).expect("valid").resolve();
        assert_eq!(resolve("weir://127.0.0.1:7"), Ok(vec!["127.0.0.1:7".parse().expect("address")]));
        assert_eq!(resolve("weir://[::1]:7"), Ok(vec!["[::1]:7".parse().expect("address")]));
        assert_eq!(resolve("weir://no-such-host.invalid:7"), Err(Code::EHOSTNTFD));
    }

    #[test]
    fn ranges_are_compared_bit_by_bit() {
        let ip = |text: &str| text.parse::<IpAddr>().expect("address");
        assert!(agrees(ip("10.1.2.3"), ip("10.1.9.9"), 16) && !agrees(ip("10.1.2.3"), ip("10.1.9.9"), 24));
        assert!(agrees(ip("10.1.2.3"), ip("99.0.0.0"), 0) && agrees(ip("10.1.2.3"), ip("10.1.2.3"), 32));
        assert!(!agrees(ip("10.1.2.3"), ip("::1"), 0) && !agrees(ip("10.1.2.3"), ip("10.1.2.3"), 33));
        assert!(agrees(ip("fe80::1"), ip("fe80::2"), 64) && !agrees(ip("fe80::1"), ip("fe80::2"), 128));
    }

    /// F16, A2.
    #[test]
    fn the_same_place_by_another_text_is_the_same_address_until_it_is_dropped() {
        let mut all = Addresses::default();
        let text = |t: &str| CString::new(t).expect("no zero");
        let place = vec!["127.0.0.1:7".parse().expect("address")];
        let a = all.at(0, text("weir://localhost:7"), place.clone());
        let b = all.at(0, text("weir://127.0.0.1:7"), place.clone());
        let other = all.at(1, text("tcp://127.0.0.1:7"), place.clone());
        assert!(a == b && a != other);
        assert_eq!(all.by_text(&text("weir://localhost:7")), Some(a));
        assert_eq!(all.get(a).and_then(|x| x.url.clone()), Some(text("weir://localhost:7")));
        all.remove(a);
        assert_eq!((all.by_text(&text("weir://127.0.0.1:7")), all.get(a).is_none()), (None, true));
        let again = all.at(0, text("weir://127.0.0.1:7"), place);
        assert_ne!(again.to_id(), a.to_id());
    }

    proptest! {
        #[test]
        fn no_text_is_too_strange(text in "\\PC{0,40}") {
            if let Ok(url) = Url::parse(&text) {
                prop_assert!(!url.host.is_empty() && text.contains(url.host));
            }
        }
    }
}
