//! The examples of `spec/protocol.md` section 13: each is read there, built again from the values
//! it names, and decoded.

mod common;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use common::{counting, hex, job_key};
use ring::hkdf;
use weir_wire::bulk::{Greeting, RECORD_HEAD_LEN, RecordHead, RecordKind};
use weir_wire::frame::{
    self, AckTimes, Bulk, Close, Credit, Frame, Frames, Grant, MsgHead, ParityHead, Recovered, RndvAbort,
};
use weir_wire::handshake::{Accept, Confirm, Cookie, Opening, Refuse, Reset};
use weir_wire::seal::{RecvKeys, Role, SendKeys, fingerprint};
use weir_wire::{
    AddrList, DataKey, EndpointName, Handshake, HandshakeKey, Header, Level, Params, RefuseCode, SessionKeys,
};

const OPENER: u64 = 0x1122_3344_5566_7788;
const RESPONDER: u64 = 0x99aa_bbcc_ddee_ff00;
const OPENER_ASSOCIATION: u64 = 0x0102_0304_0506_0708;

/// One line of an example: bytes, and what they are.
struct Field {
    bytes: Vec<u8>,
    label: String,
}

/// An example, read from its beginning on.
struct Example {
    name: String,
    fields: Vec<Field>,
    at: usize,
}

impl Example {
    /// All its bytes.
    fn bytes(&self) -> Vec<u8> {
        self.fields.iter().flat_map(|f| f.bytes.clone()).collect()
    }

    /// The next field whose label begins so.
    fn field(&mut self, label: &str) -> &Field {
        let found = self.fields[self.at..].iter().position(|f| f.label.starts_with(label));
        self.at +=
            found.unwrap_or_else(|| panic!("{}: no field `{label}` from line {} on", self.name, self.at + 1)) + 1;
        &self.fields[self.at - 1]
    }

    /// The number that the next field of this name is said to be; never taken from its bytes.
    fn number<T: TryFrom<u64>>(&mut self, label: &str) -> T {
        let said = number_of(&self.field(label).label).unwrap_or_else(|| panic!("{}: `{label}` has no =", self.name));
        T::try_from(said).unwrap_or_else(|_| panic!("{}: `{label}` is too large", self.name))
    }

    fn array<const N: usize>(&mut self, label: &str) -> [u8; N] {
        self.field(label).bytes.as_slice().try_into().unwrap_or_else(|_| panic!("{label}: not {N} bytes"))
    }
}

/// The number behind the `=` of a label.
fn number_of(label: &str) -> Option<u64> {
    let digits = label.split_once(" = ")?.1.split(|c: char| !c.is_ascii_alphanumeric()).next()?;
    match digits.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => digits.parse().ok(),
    }
}

fn specification() -> String {
    std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../spec/protocol.md")).expect("spec/protocol.md")
}

/// The fenced blocks ```` ```hex NAME ````; a line without a label goes on with the field before
/// it.
fn examples() -> BTreeMap<String, Example> {
    let text = specification();
    let mut all = BTreeMap::new();
    for block in text.split("\n```hex ").skip(1) {
        let (block, _) = block.split_once("\n```").expect("a block ends");
        let (name, lines) = block.split_once('\n').expect("a block has lines");
        let mut example = Example { name: name.to_owned(), fields: Vec::new(), at: 0 };
        for line in lines.lines() {
            let (bytes, label) = line.split_once("  ").unwrap_or((line, ""));
            match example.fields.last_mut() {
                Some(last) if label.is_empty() => last.bytes.extend(hex(bytes)),
                _ => example.fields.push(Field { bytes: hex(bytes), label: label.trim().to_owned() }),
            }
        }
        assert!(all.insert(name.to_owned(), example).is_none(), "two examples `{name}`");
    }
    all
}

fn keys(level: Level, role: Role) -> SessionKeys {
    SessionKeys::derive(&job_key(), level, role, &counting(0xa0), &counting(0xb0), OPENER, RESPONDER)
}

// spec: P-2.1, P-2.33, P-3.15, P-3.16, P-7.1, P-13.1, L-2.5
#[test]
fn every_example_is_what_this_crate_writes_and_reads() {
    let mut all = examples();
    let mut one = |name: &str| all.remove(name).unwrap_or_else(|| panic!("no example `{name}`"));
    keys_are_derived(one("keys"));
    name(one("name"));
    for kind in ["INIT", "COOKIE", "CONFIRM", "ACCEPT", "REFUSE", "RESET"] {
        handshake(one(kind));
    }
    greeting(one("greeting"), Role::Opener);
    greeting(one("answer"), Role::Responder);
    record(one("record of a message"), Role::Opener);
    record(one("record of a rendezvous transfer"), Role::Responder);
    encrypted(one("message at level encrypt"), one("message at level integrity"));
    assert!(all.len() > 10, "the packets are still there");
    for example in all.into_values() {
        protected(example);
    }
}

#[test]
fn numbers_said_of_fields_are_those_in_their_bytes() {
    let mut checked = 0;
    for example in examples().values() {
        for field in &example.fields {
            let Some(said) = number_of(&field.label) else { continue };
            let mut bytes = [0; 8];
            bytes[..field.bytes.len()].copy_from_slice(&field.bytes);
            assert_eq!(u64::from_le_bytes(bytes), said, "{}: {}", example.name, field.label);
            checked += 1;
        }
    }
    assert!(checked > 100);
}

#[test]
fn every_kind_of_packet_and_of_frame_has_an_example() {
    let labels: Vec<String> = examples().into_values().flat_map(|e| e.fields).map(|f| f.label).collect();
    let text = specification();
    let (_, tables) = text.split_once("\n## 2. Packets").expect("section 2");
    let (tables, _) = tables.split_once("\n## 3.").expect("section 3");
    let mut found = 0;
    for row in tables.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let is_name = cells[2].starts_with(|c: char| c.is_ascii_uppercase());
        let label = match cells[1].strip_prefix("0x") {
            Some(_) if is_name => format!("frame type {}", cells[2]),
            None if is_name => format!("version 1, kind {}: {}", cells[1], cells[2]),
            _ => continue,
        };
        assert!(labels.contains(&label), "no example with `{label}`");
        found += 1;
    }
    assert_eq!(found, 7 + 15, "kinds and frames");
}

/// By another implementation of HKDF; that the crate derives the same, the packets show.
fn keys_are_derived(mut e: Example) {
    let opener_nonce: [u8; 16] = counting(0xa0);
    let nonces = [opener_nonce, counting(0xb0)].concat();
    let ids = [OPENER.to_le_bytes(), RESPONDER.to_le_bytes()].concat();
    let okm = |salt: &[u8], text: &str, ids: &[u8], len: usize| {
        let prk = hkdf::Salt::new(hkdf::HKDF_SHA256, salt).extract(&job_key());
        let info = [text.as_bytes(), ids];
        let mut out = vec![0; len];
        prk.expand(&info, Len(len)).and_then(|okm| okm.fill(&mut out)).expect("short");
        out
    };
    let session = okm(&nonces, "weir 1", &ids, 96);
    assert_eq!(e.field("handshake key").bytes, okm(&[], "weir 1 handshake", &[], 32));
    let parts = [("key", 32), ("IV", 12), ("CRC salt", 4)];
    let mut at = 0;
    for side in ["opener", "responder"] {
        for (part, len) in parts {
            assert_eq!(e.field(&format!("{side} sends: {part}")).bytes, session[at..at + len]);
            at += len;
        }
    }
    assert_eq!(e.field("key of bulk connections' greetings").bytes, okm(&nonces, "weir 1 lane", &ids, 32));
    assert_eq!(e.field("fingerprint").bytes, fingerprint(&job_key()));
}

struct Len(usize);

impl hkdf::KeyType for Len {
    fn len(&self) -> usize {
        self.0
    }
}

/// The address that a label ends in.
fn ip(label: &str) -> IpAddr {
    label.trim_start_matches("address ").parse().unwrap_or_else(|_| panic!("`{label}`"))
}

fn name(mut e: Example) {
    assert_eq!(e.number::<u8>("version"), weir_wire::VERSION);
    let count: usize = e.number("address count");
    let port = e.field("port").label.split([' ', ',']).nth(1).and_then(|p| p.parse().ok()).expect("a port");
    let mut name = EndpointName::new(port, fingerprint(&job_key()), e.number("endpoint id"));
    for _ in 0..count {
        assert!(name.push(ip(&e.field("address").label)));
    }
    assert_eq!(name.encode().to_vec(), e.bytes());
    assert_eq!(EndpointName::decode(&e.bytes()), Ok(name));
}

fn opening(e: &mut Example) -> Opening {
    Opening {
        level: Level::from_wire(e.number("level wanted")).expect("a level"),
        features: e.number("features"),
        opener_id: e.number("opener's endpoint id"),
        responder_id: e.number("responder's endpoint id"),
        opener_association: e.number("opener's association id"),
        nonce: e.array("opener's nonce"),
    }
}

fn params(e: &mut Example) -> Params {
    let mut params = Params {
        max_datagram: e.number("max_datagram"),
        streams: e.number("streams"),
        initial_credit_msgs: e.number("initial_credit_msgs"),
        initial_credit_bytes: e.number("initial_credit_bytes"),
        rx_buffer_bytes: e.number("rx_buffer_bytes"),
        ack_delay_max_us: e.number("ack_delay_max_us"),
        peer_timeout_ms: e.number("peer_timeout_ms"),
        bulk_connections: 0,
        ecn: false,
        sctp: 0,
        parity_rows: 0,
        addresses: AddrList::new(),
    };
    let count: usize = e.number("address count");
    params.bulk_connections = e.number("bulk_connections");
    params.ecn = e.number::<u8>("ecn") == 1;
    params.sctp = e.number("sctp, version");
    for _ in 0..count {
        let port = e.number("port");
        params.addresses.push(SocketAddr::new(ip(&e.field("address").label), port));
    }
    params
}

fn handshake(mut e: Example) {
    let packet = match e.name.as_str() {
        "INIT" => Handshake::Init(opening(&mut e)),
        "COOKIE" => Handshake::Cookie(Cookie {
            opener_association: e.number("opener's association id"),
            cookie: e.array("cookie"),
        }),
        "CONFIRM" => {
            Handshake::Confirm(Confirm { opening: opening(&mut e), cookie: e.array("cookie"), params: params(&mut e) })
        }
        "ACCEPT" => Handshake::Accept(Accept {
            level: Level::from_wire(e.number("level")).expect("a level"),
            features: e.number("features"),
            opener_association: e.number("opener's association id"),
            responder_id: e.number("responder's endpoint id"),
            responder_association: e.number("responder's association id"),
            nonce: e.array("responder's nonce"),
            params: params(&mut e),
        }),
        "REFUSE" => Handshake::Refuse(Refuse {
            code: RefuseCode::from_wire(e.number("code")),
            opener_association: e.number("opener's association id"),
            endpoint_id: e.number("endpoint id"),
        }),
        _ => Handshake::Reset(Reset { association: e.number("association id"), endpoint_id: e.number("endpoint id") }),
    };
    let key = HandshakeKey::derive(&job_key());
    let mut out = Vec::new();
    packet.write(&key, &mut out);
    assert_eq!(out, e.bytes(), "{}", e.name);
    assert_eq!(Handshake::parse(&out, &key), Ok(packet));
}

/// Sender's and receiver's keys of a packet to this association.
fn ends(level: Level, association: u64) -> (SendKeys, RecvKeys) {
    let (opener, responder) = (keys(level, Role::Opener), keys(level, Role::Responder));
    if association == OPENER_ASSOCIATION { (responder.send, opener.recv) } else { (opener.send, responder.recv) }
}

fn header(e: &mut Example) -> (Header, u64) {
    let flags: u8 = e.number("flags");
    let level = Level::from_wire(flags & 3).expect("a level");
    let path = e.number("path");
    let number: u32 = e.number("packet number");
    let full = if e.name == "number above 2^32" { 1 << 32 | u64::from(number) } else { number.into() };
    (Header { level, ack_now: flags & 4 != 0, path, number, association: e.number("association id") }, full)
}

/// Everything but the head, the CRC or tag is built from frames.
fn protected(mut e: Example) {
    let bytes = e.bytes();
    let (header, number) = header(&mut e);
    assert_eq!(Header::parse(&bytes), Ok(header), "{}", e.name);
    let (send, recv) = ends(header.level, header.association);
    let mut out = Vec::new();
    header.write(&mut out);
    let mut written = 0;
    while e.fields[e.at..].iter().any(|f| f.label.starts_with("frame type ")) {
        let kind = e.field("frame type ").label["frame type ".len()..].to_owned();
        write_frame(&mut e, &kind, bytes.len() - header.level.trailer_len(), &mut out);
        written += 1;
    }
    let frames_end = out.len();
    send.seal(number, &mut out);
    assert_eq!(out, bytes, "{}", e.name);

    let range = recv.open(header.level, number, &mut out).expect("genuine");
    assert_eq!(range.end, frames_end, "{}", e.name);
    let frames = Frames::parse(&out, range.clone()).expect("well formed");
    assert_eq!(frames.iter().count(), written, "{}", e.name);
    let mut again = out[..range.start].to_vec();
    frames.iter().for_each(|f| rewrite(&f, &out[..range.end], &mut again));
    assert_eq!(again, out[..range.end], "{}", e.name);
}

/// Builds a frame from the values its fields are said to have.
fn write_frame(e: &mut Example, kind: &str, packet_len: usize, out: &mut Vec<u8>) {
    match kind {
        "PADDING" => frame::write_padding(packet_len, out),
        "PING" => frame::write_ping(out),
        "ACK" => {
            let count: u8 = e.number("entries");
            let receiver_delay_us = e.number("receiver_delay_us");
            let largest: u64 = e.number("largest");
            let times = AckTimes { delay_ns: e.number("delay_ns"), receiver_delay_us, read_us: e.number("read_us") };
            let mut ranges = vec![largest + 1 - e.number::<u64>("first_len")..=largest];
            for _ in 0..count {
                let high = *ranges[ranges.len() - 1].start() - 1 - e.number::<u64>("gap");
                ranges.push(high + 1 - e.number::<u64>("len")..=high);
            }
            frame::write_ack(ranges, times, packet_len, out);
        }
        "CREDIT" => frame::write_credit(
            &Credit { msgs_limit: e.number("msgs_limit"), bytes_limit: e.number("bytes_limit") },
            out,
        ),
        "GRANT" => frame::write_grant(&Grant { handle: e.number("handle"), limit: e.number("limit") }, out),
        "MSG" => {
            let head = MsgHead {
                control: e.number::<u8>("flags") == 1,
                stream: e.number("stream"),
                mseq: e.number("mseq"),
                sseq: e.number("sseq"),
                total_len: e.number("total_len"),
                offset: e.number("offset"),
                len: e.number("len"),
            };
            frame::write_msg_head(&head, &e.field("envelope").bytes, out);
            if head.len > 0 {
                out.extend_from_slice(&e.field("payload").bytes);
            }
        }
        "RNDV" => {
            let len = e.number("len");
            frame::write_rndv_head(e.number("handle"), e.number("offset"), len, out);
            out.extend_from_slice(&e.field("payload").bytes);
        }
        "PATH_CHALLENGE" => frame::write_path_challenge(e.number("data"), out),
        "PATH_RESPONSE" => frame::write_path_response(e.number("data"), out),
        "CLOSE" => {
            let code = e.number("code");
            frame::write_close(code, std::str::from_utf8(&e.field("reason \"").bytes).expect("text"), out);
        }
        "RNDV_ABORT" => {
            let code = e.number("code");
            frame::write_rndv_abort(&RndvAbort { code, handle: e.number("handle") }, out);
        }
        "PARITY" => {
            let (count, frag) = (e.number::<u8>("count"), e.number("frag"));
            let (row, key) = (e.number("row"), data_key(count & 0x80 != 0, e.number("key")));
            frame::write_parity_head(&ParityHead { key, count: count & 0x7f, row, frag, base: e.number("base") }, out);
            out.extend_from_slice(&e.field("the sum").bytes);
        }
        "RECOVERED" => {
            let (flags, len) = (e.number::<u8>("flags"), e.number("len"));
            let key = data_key(flags == 1, e.number("key"));
            frame::write_recovered(&Recovered { key, offset: e.number("offset"), len }, out);
        }
        "BULK" => {
            let over = e.number::<u8>("flags") == 1;
            frame::write_bulk(&Bulk { bulk: e.number("bulk"), read: e.number("read"), over }, out);
        }
        "MARKED" => {
            let path = e.number("path");
            frame::write_marked(&frame::Marked { path, count: e.number("count") }, out);
        }
        other => panic!("{}: no such frame: {other}", e.name),
    }
}

fn data_key(message: bool, key: u64) -> DataKey {
    if message { DataKey::Message(key) } else { DataKey::Rndv(key) }
}

/// Writes a frame that was read.
fn rewrite(frame: &Frame<'_>, datagram: &[u8], out: &mut Vec<u8>) {
    match frame {
        Frame::Padding => frame::write_padding(datagram.len(), out),
        Frame::Ping => frame::write_ping(out),
        Frame::Ack(a) => {
            let ranges: Vec<_> = a.ranges(u64::from(a.largest) + 1).expect("sent").collect();
            frame::write_ack(ranges, a.times, datagram.len(), out);
        }
        Frame::Credit(c) => frame::write_credit(c, out),
        Frame::Grant(g) => frame::write_grant(g, out),
        Frame::Msg(m) => {
            frame::write_msg_head(&m.head, &datagram[m.envelope.clone()], out);
            out.extend_from_slice(&datagram[m.payload.clone()]);
        }
        Frame::Rndv(b) => {
            frame::write_rndv_head(b.handle, b.offset, b.payload.len() as u16, out);
            out.extend_from_slice(&datagram[b.payload.clone()]);
        }
        Frame::PathChallenge(data) => frame::write_path_challenge(*data, out),
        Frame::PathResponse(data) => frame::write_path_response(*data, out),
        Frame::Close(Close { code, reason }) => frame::write_close(*code, reason, out),
        Frame::RndvAbort(a) => frame::write_rndv_abort(a, out),
        Frame::Parity(p) => {
            frame::write_parity_head(&p.head, out);
            out.extend_from_slice(&datagram[p.payload.clone()]);
        }
        Frame::Recovered(r) => frame::write_recovered(r, out),
        Frame::Bulk(l) => frame::write_bulk(l, out),
        Frame::Marked(m) => frame::write_marked(m, out),
    }
}

/// The example in clear, sealed at level encrypt.
fn encrypted(mut e: Example, clear: Example) {
    let mut bytes = e.bytes();
    let (header, number) = header(&mut e);
    let (send, recv) = ends(Level::Encrypt, header.association);
    let frames = clear.bytes().split_off(Level::Integrity.frames_offset());
    let mut out = Vec::new();
    header.write(&mut out);
    out.extend_from_slice(&frames);
    send.seal(number, &mut out);
    assert_eq!(out, bytes);
    let range = recv.open(Level::Encrypt, number, &mut bytes).expect("genuine");
    assert_eq!(bytes[range], frames);
    protected(clear);
}

fn greeting(mut e: Example, from: Role) {
    let key = keys(Level::Integrity, from).bulk;
    let greeting = Greeting { bulk: e.number("bulk"), association: e.number("association id") };
    let bytes = greeting.write(&key);
    assert_eq!(bytes.to_vec(), e.bytes(), "{}", e.name);
    assert_eq!(Greeting::read(&bytes), Some(greeting));
    let other = if from == Role::Opener { Role::Responder } else { Role::Opener };
    assert!(Greeting::is_genuine(&bytes, &keys(Level::Integrity, other).bulk));
}

fn record(mut e: Example, from: Role) {
    let is_message = e.number::<u8>("kind") == 1;
    let envelope_len: usize = e.number("length of the envelope");
    let (stream, sseq) = (e.number("stream"), e.number("sseq"));
    let key = e.number(if is_message { "mseq" } else { "handle" });
    let offset = e.number("offset");
    let total_len = e.number("length of the message");
    let kind =
        if is_message { RecordKind::Message { stream, sseq, mseq: key, total_len } } else { RecordKind::Rndv(key) };
    let head = RecordHead {
        kind,
        offset,
        len: e.number("length of the payload"),
        credit: Credit { msgs_limit: e.number("msgs_limit"), bytes_limit: e.number("bytes_limit") },
        read: e.number("read"),
        tell: e.number::<u8>("flags") == 1,
    };
    let envelope = if is_message { e.field("envelope:").bytes.clone() } else { Vec::new() };
    assert_eq!(envelope.len(), envelope_len);
    let payload = e.field("payload").bytes.clone();
    assert_eq!(payload.len(), head.len as usize);
    let send = keys(Level::Integrity, from).send;
    let mut out = Vec::new();
    head.write(&envelope, |a, b| send.record_crc(a, b), &mut out);
    let whole = [out.clone(), payload].concat();
    assert_eq!(whole, e.bytes(), "{}", e.name);
    let recv = keys(Level::Integrity, if from == Role::Opener { Role::Responder } else { Role::Opener }).recv;
    assert_eq!(RecordHead::len_with_envelope(&whole), Some(RECORD_HEAD_LEN + envelope_len));
    assert_eq!(RecordHead::read(&out, |a, b| recv.record_crc(a, b)), Ok(head));
}
