//! What a capture holds, and what becomes of it on a full disk.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::net::SocketAddr;
use std::ops::Deref;
use weir_capture::Captured;
use weir_net::{Datagrams, Faulty, Route, RxInfo, TimeNs, WAKE_SOURCES};

/// What is pushed comes back.
struct Mirror {
    own: Vec<SocketAddr>,
    here: VecDeque<(Route, Vec<u8>)>,
}

impl Datagrams for Mirror {
    type Error = ();

    fn recv(&mut self, _: TimeNs, _: usize, mut deliver: impl FnMut(&RxInfo, &mut [u8])) -> Result<usize, ()> {
        let n = self.here.len();
        for ((remote, local), mut bytes) in self.here.drain(..) {
            deliver(&RxInfo { remote, local, ecn: 0, fresh: true }, &mut bytes);
        }
        Ok(n)
    }

    fn push<P: Deref<Target = [u8]>>(&mut self, _: TimeNs, route: Route, head: &[u8], payload: &[P]) {
        let mut bytes = head.to_vec();
        payload.iter().for_each(|p| bytes.extend_from_slice(p));
        self.here.push_back((route, bytes));
    }

    fn flush(&mut self, _: TimeNs) {}

    fn blocked_at(&self) -> Option<c_int> {
        None
    }

    fn wake_sources(&self) -> [c_int; WAKE_SOURCES] {
        [-1; WAKE_SOURCES]
    }

    fn local_addrs(&self) -> &[SocketAddr] {
        &self.own
    }

    fn max_datagram(&self) -> u16 {
        1472
    }

    fn rx_buffer_bytes(&self) -> u64 {
        1 << 20
    }

    fn take_refused(&mut self, _: impl FnMut(SocketAddr)) {}
}

const OWN: u16 = 7000;
const PEER: u16 = 7001;

fn mirror() -> Captured<Mirror> {
    Captured::new(Mirror { own: vec![SocketAddr::from(([10, 0, 0, 1], OWN))], here: VecDeque::new() })
}

fn peer() -> Route {
    (SocketAddr::from(([10, 0, 0, 2], PEER)), None)
}

fn file(name: &str) -> std::path::PathBuf {
    std::env::temp_dir().join(format!("weir-{name}-{}.pcapng", std::process::id()))
}

fn take(device: &mut impl Datagrams<Error = ()>) -> Vec<Vec<u8>> {
    let mut got = Vec::new();
    device.recv(0, 1, |_, bytes| got.push(bytes.to_vec())).expect("usable");
    got
}

/// Who does not want to know why a capture ended.
fn nobody() -> weir_capture::Ended {
    Box::new(|_| {})
}

#[test]
fn a_capture_holds_every_datagram_with_its_addresses() {
    let path = file("capture");
    let (mut a, mut b) = (mirror(), mirror());
    assert!(!a.is_capturing() && a.capture_to(&path, nobody()).expect("a file"));
    assert!(!b.capture_to(&path, nobody()).expect("it opens") && !b.is_capturing(), "two would write one file");
    for payload in [&b"first"[..], b"second", b""] {
        a.push(0, peer(), b"h", &[payload]);
    }
    assert_eq!(take(&mut a), [&b"hfirst"[..], b"hsecond", b"h"], "what passes is left as it is");
    drop(a);
    let bytes = std::fs::read(&path).expect("the capture");
    std::fs::remove_file(&path).expect("the capture");
    let way = |direction, from, to| move |bytes: &[u8]| (direction, from, to, bytes.to_vec());
    let all = [&b"hfirst"[..], b"hsecond", b"h"];
    let want: Vec<_> = all.map(way(2, OWN, PEER)).into_iter().chain(all.map(way(1, PEER, OWN))).collect();
    assert_eq!(read_pcapng(&bytes), want);
}

#[test]
fn behind_a_bad_network_it_holds_what_the_device_was_given_and_gave() {
    let path = file("faulty");
    let mut captured = mirror();
    captured.capture_to(&path, nobody()).expect("a file");
    let mut device = Faulty::new(captured, Some("loss=100%"), 1).expect("valid");
    device.push::<&[u8]>(0, peer(), b"lost", &[]);
    drop(device);
    let mut captured = mirror();
    captured.capture_to(&path, nobody()).expect("a file");
    let mut device = Faulty::new(captured, Some("rx_loss=100%"), 1).expect("valid");
    device.push::<&[u8]>(0, peer(), b"out", &[]);
    assert!(take(&mut device).is_empty());
    drop(device);
    let bytes = std::fs::read(&path).expect("the capture");
    std::fs::remove_file(&path).expect("the capture");
    assert_eq!(read_pcapng(&bytes), [(2, OWN, PEER, b"out".to_vec()), (1, PEER, OWN, b"out".to_vec())]);
}

/// (direction, source port, destination port, UDP payload) of each packet, checking block lengths
/// and IPv4 headers on the way.
fn read_pcapng(mut file: &[u8]) -> Vec<(u32, u16, u16, Vec<u8>)> {
    let word = |b: &[u8], at: usize| u32::from_le_bytes(b[at..at + 4].try_into().expect("four bytes"));
    let half = |b: &[u8], at: usize| u16::from_be_bytes([b[at], b[at + 1]]);
    assert_eq!(word(file, 0), 0x0a0d_0d0a);
    let mut out = Vec::new();
    while !file.is_empty() {
        let total = word(file, 4) as usize;
        let (block, rest) = file.split_at(total);
        assert_eq!(word(block, total - 4) as usize, total);
        if word(block, 0) == 6 {
            let len = word(block, 20) as usize;
            let ip = &block[28..28 + len];
            assert_eq!((ip[0], ip[9], half(ip, 2) as usize, half(ip, 24) as usize), (0x45, 17, len, len - 20));
            let flags_at = 28 + len.next_multiple_of(4) + 4;
            out.push((word(block, flags_at), half(ip, 20), half(ip, 22), ip[28..].to_vec()));
        }
        file = rest;
    }
    out
}

#[test]
fn a_full_disk_ends_the_capture_and_nothing_else() {
    let mut a = mirror();
    let (tell, told) = std::sync::mpsc::channel();
    let ended = Box::new(move |line: &str| tell.send(line.to_owned()).expect("somebody listens"));
    a.capture_to("/dev/full", ended).expect("it opens");
    let mut n = 0;
    while a.is_capturing() {
        assert!(n < 100, "the buffer must overflow some time");
        a.push::<&[u8]>(0, peer(), &[7; 50_000], &[]);
        n += take(&mut a).len();
    }
    assert!(n > 0);
    a.push::<&[u8]>(0, peer(), b"still here", &[]);
    assert_eq!(take(&mut a), [b"still here"]);
    let line = told.try_recv().expect("it is told");
    assert!(line.contains("/dev/full") && line.contains("stopped"), "{line}");
    let e = a.capture_to("/nonexistent/dir/file", nobody()).expect_err("no such directory").to_string();
    assert!(e.contains("/nonexistent/dir/file"), "{e}");
}
