//! An endpoint against a member of the job that lies: it holds the key, makes genuine packets, and
//! fills them with whatever the input says. Only its own association may suffer.

use std::net::SocketAddr;

use arbitrary::Arbitrary;
use weir_link::{BulkConfig, Config, DataKey, Endpoint, Level, PeerId, Time};
use weir_wire::frame::{self, AckTimes, Credit, Grant, MsgHead, ParityHead, Recovered, RndvAbort};
use weir_wire::handshake::{Accept, Confirm, Cookie, Opening, Refuse, Reset};
use weir_wire::number::truncate;
use weir_wire::seal::{MAC_LEN, Role};
use weir_wire::{
    AddrList, EndpointName, Frame, Frames, Handshake, HandshakeKey, Header, Params, RefuseCode, SessionKeys,
};

use crate::input::{Few, Rest};
use crate::upper::{Sent, Upper};

const KEY: [u8; 32] = [7; 32];
const OUR_ID: u64 = 1;
const ITS_ID: u64 = 2;
const OUR_ASSOCIATION: u64 = 0x0102_0304_0506_0708;
const PEER: PeerId = PeerId(0);

/// One run.
#[derive(Arbitrary, Debug)]
pub struct Input {
    /// The endpoint opens the association, not the liar.
    it_opens: bool,
    takes_sctp: bool,
    level: u8,
    features: u16,
    params: LyingParams,
    steps: Rest<Step, 200>,
}

/// Parameters of the handshake; `None` for sensible ones.
#[derive(Arbitrary, Copy, Clone, Debug)]
#[expect(missing_docs, reason = "plain")]
pub struct LyingParams {
    pub numbers: Option<(u16, u16, u32, u64, u64, u32, u32)>,
    pub addresses: u8,
    /// The version of SCTP that is offered: mostly none or the one that there is.
    pub sctp: u8,
    /// How many rows of parity it says it takes.
    pub parity_rows: u8,
}

/// One frame that need not make sense.
#[derive(Arbitrary, Clone, Debug)]
#[expect(missing_docs, reason = "plain")]
pub enum Lie {
    Ping,
    /// Of the newest packet, `first` back, then `(gap, len)`.
    Ack {
        back: u8,
        delay_ns: u32,
        receiver_delay_us: u16,
        read_us: u32,
        first: u8,
        more: Few<(u8, u8), 40>,
    },
    AckAll,
    AckRaw {
        largest: u32,
        first_len: u32,
        sure: u8,
    },
    Credit {
        msgs: u32,
        bytes: u64,
    },
    Grant {
        handle: Handle,
        limit: u64,
    },
    Msg {
        control: bool,
        stream: u8,
        mseq: u32,
        sseq: u32,
        total: u32,
        offset: u32,
        len: u8,
        env_len: u8,
    },
    /// A fragment of a small message, likely to meet others.
    Fragment {
        mseq: u8,
        total: u16,
        offset: u16,
        len: u8,
    },
    Rndv {
        handle: Handle,
        offset: u64,
        len: u8,
    },
    RndvNear {
        handle: Handle,
        offset: u16,
        len: u8,
    },
    Abort {
        handle: Handle,
        code: u16,
    },
    Challenge(u64),
    Response(u64),
    /// Only if `sure` is 0, as with all that ends the association.
    Close {
        code: u16,
        sure: u8,
    },
    /// Rows of one group, as the bits say, which is often so short that they restore it.
    Parity {
        message: bool,
        handle: Handle,
        count: u8,
        rows: u8,
        frag: u8,
        base: u16,
    },
    /// MARKED with any count.
    Marked {
        path: u8,
        count: u32,
    },
    BulkConnection {
        bulk: u8,
        read: u32,
        over: bool,
    },
    Recovered {
        message: bool,
        handle: Handle,
        offset: u16,
        len: u16,
    },
    Padding,
    Raw(Few<u8, 64>),
}

/// A handle: one that the endpoint opened, or any number.
#[derive(Arbitrary, Copy, Clone, Debug)]
#[expect(missing_docs, reason = "plain")]
pub enum Handle {
    Opened(u8),
    Seq(u8),
    Any(u64),
}

/// One event.
#[derive(Arbitrary, Clone, Debug)]
#[expect(missing_docs, reason = "plain")]
pub enum Step {
    /// A genuine packet with these frames; numbers may be skipped.
    Packet {
        skip: u16,
        path: u8,
        ack_now: bool,
        from: u8,
        lies: Few<Lie, 8>,
    },
    /// The same packet again.
    Repeat,
    /// Handshake packets out of turn.
    Cookie([u8; 8]),
    Init {
        id: u8,
        association: u8,
        features: u8,
    },
    /// An INIT of another version of the protocol.
    Foreign {
        version: u8,
    },
    /// The endpoint forgets us if we are dead to it, and we come again as another incarnation.
    Again,
    Confirm {
        id: u8,
    },
    Accept {
        association: u8,
    },
    Refuse {
        code: u8,
        right: bool,
        own: bool,
    },
    Reset {
        right: u8,
    },
    Stray(Few<u8, 200>),
    AdvanceUs(u16),
    AdvanceMs(u8),
    Timeout,
    Send {
        control: bool,
        stream: u8,
        len: u16,
        patient: bool,
    },
    OpenRndv {
        len: u32,
    },
    SendRndv {
        handle: Handle,
        granted: u32,
        len: u32,
    },
    CloseRndv(u8),
    AbortRndv(Handle),
    Consume,
    /// The honest upper layer is wrong about what it consumed.
    ConsumeTooMuch(u16),
    Close {
        sure: u8,
    },
}

struct Liar {
    now: Time,
    it: Upper,
    key: HandshakeKey,
    keys: Option<SessionKeys>,
    level: Level,
    its_association: u64,
    next_number: u64,
    /// Numbers the endpoint has used.
    its_next_number: u64,
    handles: Vec<u64>,
    last_packet: Vec<u8>,
    opening: Opening,
    params: Params,
    /// The endpoint's own opening, when it opens.
    its_opening: Option<Opening>,
    /// What an ACCEPT out of turn said, which counts if the one in turn was refused for its
    /// features.
    lied_association: u64,
    /// How often we came again.
    incarnations: u64,
    /// Both take SCTP.
    may_sctp: bool,
}

fn addr(i: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 2 + i % 4], 4791))
}

fn its_addr() -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], 4791))
}

fn lying_params(lie: LyingParams) -> Params {
    let (max_datagram, streams, msgs, bytes, rx, delay, timeout) =
        lie.numbers.unwrap_or((1472, 64, 1024, 1 << 20, 4 << 20, 25, 5000));
    Params {
        max_datagram: max_datagram.max(1200),
        streams: streams.max(1),
        initial_credit_msgs: msgs,
        initial_credit_bytes: bytes,
        rx_buffer_bytes: rx,
        ack_delay_max_us: delay,
        peer_timeout_ms: timeout,
        bulk_connections: 1,
        ecn: true,
        sctp: if lie.sctp < 200 { lie.sctp % 2 } else { lie.sctp },
        parity_rows: lie.parity_rows,
        addresses: (0..lie.addresses % 9).map(addr).collect::<AddrList>(),
    }
}

/// Runs the input; returns how many packets of ours found an association.
pub fn run(input: &Input) -> u64 {
    let level = [Level::Integrity, Level::Integrity, Level::Auth, Level::Encrypt][usize::from(input.level % 4)];
    // No bulk connection comes of it, but they are asked for and spoken of.
    let config = Config {
        level,
        ecn: true,
        sctp: input.takes_sctp,
        bulk: BulkConfig { on: true, min_rate: 0, ..BulkConfig::default() },
        ..Config::default()
    };
    let ep = Endpoint::new(config, KEY, ITS_ID, &[its_addr()], [3; 32]);
    let opening = Opening {
        level,
        features: 0,
        opener_id: OUR_ID,
        responder_id: ITS_ID,
        opener_association: OUR_ASSOCIATION,
        nonce: [5; 16],
    };
    let mut liar = Liar {
        now: Time(1_000_000),
        it: Upper::new(ep, 1 << 32, false),
        key: HandshakeKey::derive(&KEY),
        keys: None,
        level,
        its_association: 0,
        next_number: 0,
        its_next_number: 0,
        handles: Vec::new(),
        last_packet: Vec::new(),
        opening,
        params: lying_params(input.params),
        its_opening: None,
        lied_association: OUR_ASSOCIATION,
        incarnations: 0,
        may_sctp: input.takes_sctp && lying_params(input.params).sctp == 1,
    };
    if input.it_opens {
        let mut name = EndpointName::new(4791, weir_wire::seal::fingerprint(&KEY), OUR_ID);
        name.push(addr(0).ip());
        assert_eq!(liar.it.ep.peer(&name), Ok(PEER));
        let _ = liar.it.send(liar.now, PEER, false, 1, 20, 100, false);
    } else {
        liar.say(&Handshake::Init(opening));
    }
    // Mostly those of the endpoint, or no run would get far.
    let features = if input.features < 0xf000 { 0 } else { input.features };
    // Our answers come of themselves, from what the endpoint sends.
    liar.collect(features);
    for step in &input.steps.0 {
        liar.step(step);
        liar.collect(features);
    }
    // Silence: the endpoint must get rid of everything that is open by its own timers.
    liar.it.close(liar.now);
    liar.collect(features);
    liar.advance(60_000_000_000, features);
    assert_eq!(liar.it.open_ops(), 0, "operations outlive the peer timeout and the linger time");
    liar.next_number
}

impl Liar {
    fn say(&mut self, packet: &Handshake) {
        let mut out = Vec::new();
        packet.write(&self.key, &mut out);
        self.it.handle(self.now, addr(0), out);
    }

    /// Reads what the endpoint sends and answers handshake packets as an honest peer would.
    fn collect(&mut self, features: u16) {
        if let Some(news) = self.it.ep.take_bulk_news()
            && let Some((bulk, _)) = self.it.ep.bulk_greeting(news.peer)
        {
            self.it.ep.bulk_over(self.now, news.peer, bulk);
        }
        while let Some(peer) = self.it.ep.next_for_sctp() {
            let ids = self.it.ep.sctp_ids(peer);
            assert!(
                ids.is_none() || self.may_sctp && self.level == Level::Integrity,
                "SCTP with a peer that does not take it, or at a level that it cannot keep"
            );
            assert!(ids.is_none_or(|[(ours, _), (its, _)]| self.it.ep.sctp_hello(peer).is_some() && ours != its));
        }
        for _ in 0..10 {
            let sent = self.it.transmit(self.now);
            if sent.is_empty() {
                break;
            }
            for Sent { bytes, .. } in sent {
                self.read(bytes, features);
            }
        }
    }

    fn read(&mut self, mut bytes: Vec<u8>, features: u16) {
        if let Ok(header) = Header::parse(&bytes) {
            let Some(keys) = &self.keys else { return };
            let number = weir_wire::expand(header.number, self.its_next_number);
            let Ok(range) = keys.recv.open(header.level, number, &mut bytes) else { return };
            assert!([OUR_ASSOCIATION, self.lied_association].contains(&header.association));
            assert!(number >= self.its_next_number, "a packet number was used twice");
            self.its_next_number = number + 1;
            let frames = Frames::parse(&bytes, range).expect("the endpoint writes well-formed frames");
            let end = bytes.len();
            assert!(frames.iter().all(|f| !matches!(f, Frame::Msg(m) if m.payload.end > end)));
            return;
        }
        let packet = Handshake::parse(&bytes, &self.key).expect("the endpoint writes genuine packets");
        match packet {
            Handshake::Init(o) if self.keys.is_none() => {
                self.its_opening = Some(o);
                self.say(&Handshake::Cookie(Cookie { opener_association: o.opener_association, cookie: [9; 32] }));
            }
            Handshake::Confirm(c) if self.keys.is_none() => {
                let o = c.opening;
                self.its_association = o.opener_association;
                let accept = self.accept(o.opener_association, features);
                self.keys = Some(SessionKeys::derive(
                    &KEY,
                    self.level,
                    Role::Responder,
                    &o.nonce,
                    &accept.nonce,
                    o.opener_id,
                    o.responder_id,
                ));
                self.say(&Handshake::Accept(accept));
            }
            Handshake::Cookie(c) if self.keys.is_none() => {
                let confirm = Confirm { opening: self.opening, cookie: c.cookie, params: self.params.clone() };
                self.say(&Handshake::Confirm(confirm));
            }
            Handshake::Accept(a) if self.keys.is_none() => {
                assert_eq!((a.opener_association, a.responder_id), (OUR_ASSOCIATION, ITS_ID));
                self.level = a.level;
                self.its_association = a.responder_association;
                let o = &self.opening;
                self.keys =
                    Some(SessionKeys::derive(&KEY, a.level, Role::Opener, &o.nonce, &a.nonce, o.opener_id, ITS_ID));
            }
            _ => {}
        }
    }

    fn accept(&self, opener_association: u64, features: u16) -> Accept {
        Accept {
            level: self.level,
            features,
            opener_association,
            responder_id: self.opening.opener_id,
            responder_association: OUR_ASSOCIATION,
            nonce: [6; 16],
            params: self.params.clone(),
        }
    }

    fn advance(&mut self, ns: u64, features: u16) {
        let until = self.now.plus_ns(ns);
        let mut rounds = 0;
        while let Some(due) = self.it.ep.next_timeout().filter(|t| *t <= until) {
            self.now = self.now.max(due);
            self.it.handle_timeout(self.now);
            self.collect(features);
            rounds += 1;
            assert!(rounds < 200_000, "timers come due for ever");
        }
        self.now = until;
    }

    fn handle(&self, h: Handle) -> u64 {
        match h {
            Handle::Opened(i) => self.handles.get(usize::from(i) % self.handles.len().max(1)).copied().unwrap_or(0),
            Handle::Seq(i) => i.into(),
            Handle::Any(h) => h,
        }
    }

    fn step(&mut self, step: &Step) {
        let now = self.now;
        match step {
            Step::Packet { skip, path, ack_now, from, lies } => self.packet(*skip, *path, *ack_now, *from, &lies.0),
            Step::Repeat => {
                let copy = self.last_packet.clone();
                self.it.handle(now, addr(0), copy);
            }
            Step::Cookie(bytes) => {
                let mut cookie = [0; 32];
                cookie[..8].copy_from_slice(bytes);
                self.say(&Handshake::Cookie(Cookie { opener_association: self.its_association, cookie }));
            }
            Step::Init { id, association, features } => {
                let opening = Opening {
                    features: u16::from(*features).saturating_sub(200),
                    opener_id: (*id).into(),
                    opener_association: (*association).into(),
                    nonce: [*id; 16],
                    ..self.opening
                };
                self.say(&Handshake::Init(opening));
            }
            Step::Foreign { version } => {
                let mut packet = Vec::new();
                Handshake::Init(self.opening).write(&self.key, &mut packet);
                packet[0] = version << 4;
                packet.truncate(packet.len() - MAC_LEN);
                let mac = self.key.mac(&packet);
                packet.extend_from_slice(&mac);
                self.it.handle(now, addr(0), packet);
            }
            Step::Again => self.come_again(),
            Step::Confirm { id } => {
                let opening = Opening { opener_id: (*id).into(), ..self.opening };
                self.say(&Handshake::Confirm(Confirm { opening, cookie: [1; 32], params: self.params.clone() }));
            }
            Step::Accept { association } => {
                let mut accept = self.accept(self.its_association, 0);
                accept.responder_association = (*association).into();
                if self.lied_association == OUR_ASSOCIATION {
                    self.lied_association = accept.responder_association;
                }
                accept.responder_association = self.lied_association;
                self.say(&Handshake::Accept(accept));
            }
            Step::Refuse { code, right, own } => {
                let opener_association =
                    if *right { self.its_opening.map_or(self.its_association, |o| o.opener_association) } else { 77 };
                // Of the peer itself, or of somebody else.
                let endpoint_id = if *own { self.opening.opener_id } else { 78 };
                self.say(&Handshake::Refuse(Refuse {
                    code: RefuseCode::from_wire(*code),
                    opener_association,
                    endpoint_id,
                }));
            }
            Step::Reset { right } => {
                let association = if *right == 0 { OUR_ASSOCIATION } else { 77 };
                // Of the peer itself, or of somebody else.
                let endpoint_id = if *right < 2 { self.opening.opener_id } else { 78 };
                self.say(&Handshake::Reset(Reset { association, endpoint_id }));
            }
            Step::Stray(bytes) => self.it.handle(now, addr(0), bytes.0.clone()),
            Step::AdvanceUs(us) => self.advance(1000 * u64::from(*us % 2000), 0),
            Step::AdvanceMs(ms) => {
                // Beyond the peer timeout now and then.
                let ms = if *ms == 255 { 6000 } else { u64::from(*ms % 64) };
                self.advance(1_000_000 * ms, 0);
            }
            Step::Timeout => {
                if let Some(t) = self.it.ep.next_timeout() {
                    self.advance(t.since_ns(now), 0);
                }
            }
            other => self.local(other),
        }
    }

    /// The endpoint's index of our latest incarnation.
    fn peer(&self) -> PeerId {
        self.it.newest.unwrap_or(PEER)
    }

    fn come_again(&mut self) {
        let peer = self.peer();
        self.it.forget(self.now, peer);
        self.incarnations += 1;
        self.opening.opener_id = OUR_ID + 1000 * self.incarnations;
        self.opening.nonce = [5; 16];
        self.opening.nonce[..8].copy_from_slice(&self.incarnations.to_le_bytes());
        self.keys = None;
        (self.next_number, self.its_next_number, self.its_opening) = (0, 0, None);
        self.handles.clear();
        self.say(&Handshake::Init(self.opening));
    }

    /// What the endpoint's own upper layer does.
    fn local(&mut self, step: &Step) {
        let (now, peer) = (self.now, self.peer());
        if self.it.ep.peers().next().is_none() {
            return;
        }
        match step {
            Step::Send { control, stream, len, patient } => {
                let stream = if *control { 0 } else { u16::from(stream % 4) };
                let _ = self.it.send(now, peer, *control, stream, 20, u32::from(*len), *patient);
            }
            Step::OpenRndv { len } => {
                if let Ok(opened) = self.it.open_rndv(now, peer, u64::from(*len % (1 << 20)), None) {
                    self.handles.push(opened.handle);
                }
            }
            Step::SendRndv { handle, granted, len } => {
                let (handle, len) = (self.handle(*handle), u64::from(*len % (1 << 20)));
                let _ = self.it.send_rndv(now, peer, handle, u64::from(*granted).min(len), len);
            }
            Step::CloseRndv(i) => {
                self.it.close_rndv((*i).into());
            }
            Step::AbortRndv(h) => {
                let handle = self.handle(*h);
                self.it.abort_rndv(now, peer, handle, 3);
            }
            Step::Consume => self.it.consume(),
            Step::ConsumeTooMuch(n) => self.it.ep.consume(peer, u32::from(*n), u64::from(*n) << 8),
            Step::Close { sure: 0 } => self.it.close(now),
            _ => {}
        }
    }

    fn packet(&mut self, skip: u16, path: u8, ack_now: bool, from: u8, lies: &[Lie]) {
        let Some(keys) = &self.keys else { return };
        self.next_number += u64::from(skip);
        let mut packet = Vec::new();
        let header = Header {
            level: self.level,
            ack_now,
            path: path % 8,
            number: truncate(self.next_number),
            association: self.its_association,
        };
        header.write(&mut packet);
        for lie in lies {
            self.write(lie, &mut packet);
        }
        if packet.len() > 60_000 {
            return;
        }
        keys.send.seal(self.next_number, &mut packet);
        self.next_number += 1;
        self.last_packet.clone_from(&packet);
        // Mostly from the address it knows.
        let from = if from < 200 { addr(0) } else { addr(from) };
        self.it.handle(self.now, from, packet);
    }

    fn write(&self, lie: &Lie, out: &mut Vec<u8>) {
        let filling = [0xf1; 256];
        let key = |message: bool, h: Handle| {
            if message { DataKey::Message(self.handle(h)) } else { DataKey::Rndv(self.handle(h)) }
        };
        match lie {
            Lie::Ping => frame::write_ping(out),
            Lie::AckAll => {
                if let Some(largest) = self.its_next_number.checked_sub(1) {
                    frame::write_ack([0..=largest], AckTimes::default(), 1000, out);
                }
            }
            Lie::Ack { back, delay_ns, receiver_delay_us, read_us, first, more } => {
                let times = AckTimes { delay_ns: *delay_ns, receiver_delay_us: *receiver_delay_us, read_us: *read_us };
                self.write_ack(*back, times, *first, &more.0, out);
            }
            Lie::AckRaw { sure: 5.., .. } => {}
            Lie::AckRaw { largest, first_len, .. } => {
                let at = out.len();
                frame::write_ack([0..=0], AckTimes::default(), 1000, out);
                out[at + 4..at + 8].copy_from_slice(&largest.to_le_bytes());
                out[at + 16..at + 20].copy_from_slice(&first_len.max(&1).to_le_bytes());
            }
            Lie::Credit { msgs, bytes } => {
                frame::write_credit(&Credit { msgs_limit: *msgs, bytes_limit: *bytes }, out);
            }
            Lie::Grant { handle, limit } => {
                frame::write_grant(&Grant { handle: self.handle(*handle), limit: *limit }, out);
            }
            Lie::Msg { control, stream, mseq, sseq, total, offset, len, env_len } => {
                let (len, env_len) = (u16::from(*len), usize::from(*env_len % 49));
                let head = if *control {
                    MsgHead { control: true, stream: 0, mseq: *mseq, sseq: 0, total_len: len.into(), offset: 0, len }
                } else {
                    let offset = (*offset).min(u32::MAX - u32::from(len));
                    let total_len = if len == 0 { 0 } else { (*total).max(offset + u32::from(len)) };
                    let offset = if len == 0 { 0 } else { offset };
                    MsgHead {
                        control: false,
                        stream: u16::from(*stream),
                        mseq: *mseq,
                        sseq: *sseq,
                        total_len,
                        offset,
                        len,
                    }
                };
                frame::write_msg_head(&head, &filling[..env_len], out);
                out.extend_from_slice(&filling[..usize::from(len)]);
            }
            Lie::Fragment { mseq, total, offset, len } => {
                let len = u16::from(*len).max(1);
                let total = (*total % 2048).max(len);
                let offset = u32::from(*offset % (total - len + 1));
                let mseq = u32::from(*mseq % 8);
                let head =
                    MsgHead { control: false, stream: 1, mseq, sseq: mseq, total_len: total.into(), offset, len };
                frame::write_msg_head(&head, &filling[..20], out);
                out.extend_from_slice(&filling[..usize::from(len)]);
            }
            Lie::Rndv { handle, offset, len } => {
                let offset = (*offset).min(u64::MAX - 256);
                frame::write_rndv_head(self.handle(*handle), offset, u16::from(*len), out);
                out.extend_from_slice(&filling[..usize::from(*len)]);
            }
            Lie::RndvNear { handle, offset, len } => {
                frame::write_rndv_head(self.handle(*handle), u64::from(*offset), u16::from(*len), out);
                out.extend_from_slice(&filling[..usize::from(*len)]);
            }
            Lie::Abort { handle, code } => {
                frame::write_rndv_abort(&RndvAbort { handle: self.handle(*handle), code: *code }, out);
            }
            Lie::Challenge(data) => frame::write_path_challenge(*data, out),
            Lie::Response(data) => frame::write_path_response(*data, out),
            Lie::Close { code, sure: 0 } => frame::write_close(*code, "lie", out),
            Lie::Close { .. } => {}
            Lie::Parity { message, handle, count, rows, frag, base } => {
                let count = 1 + if count & 0x80 == 0 { count % 48 } else { count % 4 };
                let rows = if rows % 8 == 0 { 1 } else { rows % 8 };
                for row in (0..3).filter(|row| rows >> row & 1 == 1) {
                    let (key, frag, base) = (key(*message, *handle), u16::from(*frag).max(1), u64::from(*base));
                    frame::write_parity_head(&ParityHead { key, count, row, frag, base }, out);
                    out.extend_from_slice(&filling[..usize::from(frag)]);
                }
            }
            Lie::Marked { path, count } => {
                frame::write_marked(&frame::Marked { path: path % 8, count: *count }, out);
            }
            Lie::BulkConnection { bulk, read, over } => {
                let (bulk, over) = (u32::from(*bulk), *over && *bulk != 0);
                frame::write_bulk(&frame::Bulk { bulk, read: u64::from(*read), over }, out);
            }
            Lie::Recovered { message, handle, offset, len } => {
                let r = Recovered { key: key(*message, *handle), offset: u64::from(*offset), len: (*len).max(1) };
                frame::write_recovered(&r, out);
            }
            Lie::Padding => frame::write_padding(out.len() + 40, out),
            Lie::Raw(bytes) => out.extend_from_slice(&bytes.0),
        }
    }

    fn write_ack(&self, back: u8, times: AckTimes, first: u8, more: &[(u8, u8)], out: &mut Vec<u8>) {
        let Some(largest) = self.its_next_number.checked_sub(1 + u64::from(back)) else { return };
        let mut start = largest.saturating_sub(first.into());
        let mut ranges = vec![start..=largest];
        for (gap, len) in more {
            let Some(end) = start.checked_sub(2 + u64::from(*gap)) else { break };
            start = end.saturating_sub((*len).into());
            ranges.push(start..=end);
        }
        frame::write_ack(ranges, times, 1000, out);
    }
}
