//! What BMI reads: headers of the TCP wires in a stream that is cut anywhere, addresses, method
//! lists.

use weir_bmi::addresses::{Url, agrees};
use weir_bmi::bare::{self, Lookup, Word, wanted};
use weir_bmi::tcp::codec::{EAGER_MAX, HEADER_MAX, Header, Mode, Need, Refused, SIZE_MAX, Stream, Wire};

use crate::input::{Few, Rest};
use arbitrary::Arbitrary;

/// A stream: what comes, and in what pieces.
#[derive(Arbitrary, Debug)]
pub struct Bytes {
    /// Which wire is known beforehand, if any.
    wire: u8,
    cuts: Few<u8, 16>,
    parts: Rest<Part, 40>,
}

/// A part of a stream.
#[derive(Arbitrary, Clone, Debug)]
#[expect(missing_docs, reason = "plain")]
pub enum Part {
    /// A good message.
    Message {
        radix: bool,
        tag: i32,
        size: u16,
        unexpected: Option<u8>,
    },
    /// A header whose fields say anything.
    Fields {
        magic: u8,
        mode: u8,
        tag: i64,
        size: i64,
        class: u8,
    },
    Any {
        bytes: Few<u8, 60>,
    },
}

impl Part {
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Part::Message { radix, tag, size, unexpected } => {
                let wire = if *radix { Wire::Radix } else { Wire::OrangeFs };
                let size = if unexpected.is_some() { u64::from(*size).min(EAGER_MAX) } else { u64::from(*size) };
                out.extend_from_slice(&Header::of(*tag, size, *unexpected).encode(wire)[..wire.header_len()]);
                out.resize(out.len() + size as usize, 0x55);
            }
            Part::Fields { magic, mode, tag, size, class } => {
                let magic: u32 = [51903, 51912, 51900 + u32::from(*magic)][usize::from(magic % 3)];
                out.extend_from_slice(&magic.to_le_bytes());
                out.extend_from_slice(&u32::from(*mode).to_le_bytes());
                out.extend_from_slice(&tag.to_le_bytes());
                // Around the limits, too.
                let size = match mode >> 4 {
                    0 => *size,
                    1 => EAGER_MAX as i64 + size % 2,
                    2 => SIZE_MAX as i64 + size % 2,
                    _ => size % 300,
                };
                out.extend_from_slice(&size.to_le_bytes());
                if magic == 51912 {
                    out.push(*class);
                }
            }
            Part::Any { bytes } => out.extend_from_slice(&bytes.0),
        }
    }
}

/// What a stream holds, read again here, all at once and by the table of the specification (9).
fn by_hand(bytes: &[u8], known: Option<Wire>) -> (Vec<(i32, u64, u32, u8)>, bool) {
    let (mut all, mut at, mut wire) = (Vec::new(), 0, known);
    loop {
        let rest = &bytes[at..];
        let word = |at: usize| Some(u32::from_le_bytes(rest.get(at..at + 4)?.try_into().ok()?));
        let long = |at: usize| Some(i64::from_le_bytes(rest.get(at..at + 8)?.try_into().ok()?));
        if wire.is_none() {
            let Some(magic) = word(0) else { return (all, false) };
            wire = match magic {
                51903 => Some(Wire::OrangeFs),
                51912 => Some(Wire::Radix),
                _ => return (all, true),
            };
        }
        let radix = wire == Some(Wire::Radix);
        let head = if radix { 25 } else { 24 };
        if rest.len() < head {
            return (all, false);
        }
        let (Some(magic), Some(mode), Some(tag), Some(size)) = (word(0), word(4), long(8), long(16)) else {
            return (all, false);
        };
        let good_tag = radix || (-(1i64 << 31)..1i64 << 32).contains(&tag);
        let most = match mode {
            2 | 4 => 16384,
            8 => 16 << 20,
            _ => return (all, true),
        };
        if magic != if radix { 51912 } else { 51903 } || !good_tag || !(0..=most).contains(&size) {
            return (all, true);
        }
        all.push((tag as i32, size as u64, mode, if radix { rest[24] } else { 0 }));
        let end = (at + head) as u64 + size as u64;
        if end > bytes.len() as u64 {
            return (all, false);
        }
        at = end as usize;
    }
}

/// The codec: what is found in a stream is the same however it is cut, and the same as what is read
/// by hand. How many messages.
pub fn stream(input: &Bytes) -> u64 {
    let mut bytes = Vec::new();
    input.parts.0.iter().for_each(|part| part.write(&mut bytes));
    let known = [None, Some(Wire::OrangeFs), Some(Wire::Radix)][usize::from(input.wire % 3)];
    let (mut stream, mut seen, mut refused, mut rest, mut turn) =
        (Stream::new(known), Vec::new(), false, &bytes[..], 0);
    while !rest.is_empty() && !refused {
        let cut = input.cuts.0.get(turn % input.cuts.0.len().max(1)).map_or(7, |c| usize::from(*c) + 1);
        turn += 1;
        let n = match stream.need() {
            Need::Header(lack) => {
                assert!(lack > 0 && lack <= HEADER_MAX);
                let n = cut.min(lack).min(rest.len());
                match stream.take_header(&rest[..n]) {
                    Ok(Some(h)) => {
                        let mode = match h.mode {
                            Mode::Unexpected => 2,
                            Mode::Eager => 4,
                            Mode::Rendezvous => 8,
                        };
                        seen.push((h.tag, h.size, mode, h.class));
                        round(h, stream.wire().expect("a header was read"));
                    }
                    Ok(None) => {}
                    Err(why) => refused = !told(why).is_empty(),
                }
                n
            }
            Need::Payload(left) => {
                let n = (cut as u64).min(left).min(rest.len() as u64);
                stream.took(n);
                n as usize
            }
        };
        rest = &rest[n..];
    }
    assert_eq!((&seen, refused), (&by_hand(&bytes, known).0, by_hand(&bytes, known).1));
    seen.len() as u64
}

/// What is written of a header reads as the same.
fn round(h: Header, wire: Wire) {
    assert_eq!(Header::decode(&h.encode(wire), wire), Ok(h));
}

/// Why one is none: a line.
fn told(why: Refused) -> String {
    let line = why.to_string();
    assert!(!line.is_empty() && !line.contains('\n'));
    line
}

/// Any text: as a URL, as a list of addresses that a server and a client look up, as a method list,
/// as a range.
pub fn text(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(url) = Url::parse(text) {
        assert!(!url.host.is_empty() && text.contains(url.host) && text.contains(url.scheme));
        let host = if url.host.contains(':') { format!("[{}]", url.host) } else { url.host.to_owned() };
        assert_eq!(Url::parse(&format!("{}://{host}:{}/x", url.scheme, url.port)), Ok(url));
    }
    thread_local! {
        static CLIENT: std::cell::RefCell<bare::Library> = std::cell::RefCell::new(bare::client(&[]).expect("valid"));
    }
    CLIENT.with_borrow_mut(|client| {
        // (A host that is a name is the caller's to resolve.)
        if let Ok(Lookup::Unresolved(kind, url)) = client.lookup(text) {
            assert_eq!(url.scheme, kind.scheme());
            assert!(text.contains(url.host));
        }
    });
    if let Ok(all) = wanted(text) {
        for word in &all {
            let Word::Outside(named) = word else { continue };
            assert!(named.name.len() > 4 && named.name.starts_with("bmi_") && !named.name.contains('/'));
        }
        let again: Vec<String> = all
            .iter()
            .map(|word| match word {
                Word::Ours(kind) => format!("bmi_{}", kind.scheme()),
                Word::Outside(named) => named.file.map_or(named.name.to_owned(), |file| file.display().to_string()),
            })
            .collect();
        assert_eq!(wanted(&again.join(",")), Ok(all.clone()));
    }
    if let Some((a, b)) = text.split_once(' ')
        && let (Ok(a), Ok(b)) = (a.parse(), b.parse())
    {
        for bits in 0..=130 {
            assert!(!agrees(a, b, bits) || agrees(b, a, bits));
            assert!(bits == 0 || !agrees(a, b, bits) || agrees(a, b, bits - 1));
        }
    }
}
