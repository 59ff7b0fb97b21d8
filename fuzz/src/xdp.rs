//! AF_XDP: frames received, frames written, and what ranks and helper say to each other
//! (spec/xdp.md 3 and 5).

use arbitrary::Arbitrary;
use std::net::{IpAddr, SocketAddr};
use weir_xdp::frame::{self, Template};
use weir_xdp::{Answer, Ask, BYTES};

/// A frame, as it is or written well and then changed; and a message.
#[derive(Arbitrary, Clone, Debug)]
pub struct Input {
    frame: Vec<u8>,
    own: ([u8; 16], bool, u16),
    remote: ([u8; 16], bool, u16),
    payload: Vec<u8>,
    changes: Vec<(u16, u8)>,
    cut: Option<u16>,
    message: Vec<u8>,
    right_head: bool,
}

fn address((octets, v4, port): ([u8; 16], bool, u16)) -> SocketAddr {
    let ip = if v4 { IpAddr::from([octets[0], octets[1], octets[2], octets[3]]) } else { IpAddr::from(octets) };
    SocketAddr::new(ip, port)
}

/// Whether something was read: a datagram or a message.
pub fn run(input: &Input) -> bool {
    let any = read(&input.frame);
    let written = written(input);
    let said = message(input);
    any || written || said
}

/// What is read of a frame lies within it.
fn read(bytes: &[u8]) -> bool {
    let Some(got) = frame::read(bytes) else { return false };
    assert!(got.payload.start <= got.payload.end && got.payload.end <= bytes.len());
    assert!(got.ecn <= 3 && got.remote.is_ipv4() == got.own.is_ipv4());
    true
}

/// What is written is read back, and changed it harms nobody.
fn written(input: &Input) -> bool {
    let (own, remote) = (address(input.own), address(input.remote));
    let Some(template) = Template::new([1; 6], [2; 6], own, remote) else {
        assert!(own.is_ipv4() != remote.is_ipv4());
        return false;
    };
    let mut bytes = vec![0; 2048];
    let half = input.payload.len() / 2;
    let Some(len) = template.write(&mut bytes, &input.payload[..half], &[&input.payload[half..]]) else {
        assert!(template.head_bytes() + input.payload.len() > 2048);
        return false;
    };
    bytes.truncate(len);
    let got = frame::read(&bytes).expect("what was written");
    assert_eq!((got.remote, got.own, &bytes[got.payload]), (own, remote, &input.payload[..]));
    for &(at, to) in &input.changes {
        let at = usize::from(at) % bytes.len();
        bytes[at] = to;
    }
    bytes.truncate(input.cut.map_or(len, |cut| usize::from(cut) % (len + 1)));
    read(&bytes)
}

/// A message is read or refused; what was read is written as it was read.
fn message(input: &Input) -> bool {
    let mut bytes = input.message.clone();
    if input.right_head {
        bytes.resize(BYTES, 0);
        bytes[..6].copy_from_slice(&Ask { interface: 1, most: 64 }.encode()[..6]);
    }
    let ask = Ask::decode(&bytes);
    if let Ok(ask) = &ask {
        assert_eq!(Ask::decode(&ask.encode()).as_ref(), Ok(ask));
    }
    let answer = Answer::decode(&bytes);
    if let Ok(answer) = &answer {
        assert_eq!(Answer::decode(&answer.encode()).as_ref(), Ok(answer));
    }
    assert!(ask.is_err() || answer.is_err(), "a message is one of the two");
    ask.is_ok() || answer.is_ok()
}
