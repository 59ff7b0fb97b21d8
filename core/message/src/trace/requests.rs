//! The lines of requests' and messages' lives, as they are in the tables.
//!
//! A line has the request's number and a space, so that `grep '#17 '` finds a life and nothing
//! else; a line about a request and a message has both numbers.

use crate::api::{AmoOp, OpError, OpKind, RecvOp, RmaOp, SendOp};
use crate::arrivals::{Arriving, Carriage, Place};
use crate::keys::{MsgKey, RecvKey, SendKey, key};
use crate::lives::OutKey;
use crate::memory::Memory;
use crate::messages::Messages;
use crate::notice::Sink;
use crate::rndvs::RndvOwner;
use crate::sends::{Role, SendState};
use crate::source::Source;
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use weir_link::{DownReason, PeerId, RndvOpened};
use weir_match::stream_of;

/// A line's end: how a request ended.
fn outcome(told: bool, result: Result<(), OpError>) -> String {
    match (result, told) {
        (Ok(()), false) => "completed".to_owned(),
        (Ok(()), true) => "acknowledged".to_owned(),
        (Err(OpError::Cancelled), _) => "cancelled".to_owned(),
        (Err(e), false) => format!("failed ({e})"),
        (Err(e), true) => format!("failed after its completion ({e})"),
    }
}

/// Level 1 tells of what nobody wanted.
fn is_trouble(result: Result<(), OpError>) -> bool {
    !matches!(result, Ok(()) | Err(OpError::Cancelled))
}

fn source(source: Option<u32>) -> String {
    source.map_or_else(|| "any".to_owned(), |peer| peer.to_string())
}

fn what<M>(s: &SendState<M>) -> &'static str {
    match (s.role, s.kind) {
        (Role::ReadReply, _) => "answer",
        (Role::Atomic(_) | Role::Atomics, _) => "atomic",
        (_, OpKind::Write) => "write",
        (_, OpKind::Read) => "read",
        _ => "send",
    }
}

impl<M: Memory, S: Sink> Messages<M, S> {
    fn own(&self, peer: u32) -> &'static str {
        if self.is_own(peer) { " (self)" } else { "" }
    }

    /// A send was accepted.
    #[cold]
    pub(crate) fn trace_send(&mut self, op: &SendOp<M>, k: SendKey, eager: bool, mseq: Option<u64>) {
        let number = self.trace.number();
        let Some(s) = self.sends.get_mut(k) else { return };
        s.number = number;
        let (len, told) = (s.len, s.announced);
        let how = if eager { "eager" } else { "rendezvous" };
        let copied = if matches!(s.source, Source::User(_)) && self.lent != Some(k) { "lent" } else { "copied" };
        let stream = stream_of(op.tag, op.class, self.cfg.streams, self.cfg.stream_bits);
        let mseq_low = mseq.unwrap_or(0) as u32;
        let own = self.own(op.peer);
        let mseq = mseq.map_or_else(|| "-".to_owned(), |m| m.to_string());
        self.trace.line(format_args!(
            "#{number} send posted to={}{own} tag={:#x} len={len} {how} {copied} mode={:?} stream={stream} mseq={mseq}",
            op.peer, op.tag, op.mode
        ));
        self.trace.expect_out(number, "send", len);
        self.trace.name_out(number, op.peer, OutKey::Message(mseq_low));
        if told {
            self.trace.line(format_args!("#{number} send completed at once"));
        }
    }

    /// A remote write or read is begun; returns its number.
    #[cold]
    pub(crate) fn trace_rma(&mut self, op: &RmaOp<M>, what: &'static str, len: u64) -> u64 {
        let (number, own) = (self.trace.number(), self.own(op.peer));
        self.trace.line(format_args!(
            "#{number} {what} posted to={}{own} key={:#x} addr={:#x} len={len}",
            op.peer, op.key, op.remote_addr
        ));
        self.trace.expect_out(number, what, len);
        number
    }

    /// An atomic operation is begun; returns its number.
    #[cold]
    pub(crate) fn trace_atomic(&mut self, op: &AmoOp<M>) -> u64 {
        let (number, own) = (self.trace.number(), self.own(op.peer));
        let (what, of) = (op.atomic.op(), op.atomic.of());
        self.trace.line(format_args!(
            "#{number} atomic posted to={}{own} key={:#x} addr={:#x} {what:?} of={of:?} count={}",
            op.peer, op.key, op.remote_addr, op.count
        ));
        number
    }

    /// It was refused at once, and may be tried again.
    #[cold]
    pub(crate) fn trace_refused(&mut self, s: &SendState<M>, why: &str) {
        if s.number != 0 {
            self.trace.over(s.number);
            self.trace.line(format_args!("#{} {} refused ({why})", s.number, what(s)));
        }
    }

    /// Control message of a remote write: its piece, or its announcement.
    #[cold]
    pub(crate) fn trace_control_of(&mut self, peer: u32, k: SendKey) {
        let number = self.sends.get(k).map_or(0, |s| s.number);
        if let Some(mseq) = self.sessions.last_message(peer, true) {
            self.trace.name_out(number, peer, OutKey::Control(mseq as u32));
        }
    }

    /// The peer asks for the rendezvous transfer of a rendezvous or of a large write.
    #[cold]
    pub(crate) fn trace_granted(&mut self, peer: u32, k: SendKey, handle: u64, len: u64, granted: u64) {
        let Some(s) = self.sends.get(k).filter(|s| s.number != 0) else { return };
        let (number, what) = (s.number, what(s));
        self.trace.cut_out(number, len);
        self.trace.name_out(number, peer, OutKey::Rndv(handle));
        self.trace.line(format_args!("#{number} {what} asked for rndv={handle:#x} len={len} granted={granted}"));
    }

    /// A peer reads from memory here.
    #[cold]
    pub(crate) fn trace_answer(&mut self, k: SendKey, handle: u64, granted: u64) {
        let number = self.trace.number();
        let Some(s) = self.sends.get_mut(k) else { return };
        s.number = number;
        let (peer, region, len) = (s.peer, s.tag, s.len);
        self.trace.line(format_args!(
            "#{number} answer posted to={peer} key={region:#x} len={len} rndv={handle:#x} granted={granted}"
        ));
        self.trace.expect_out(number, "answer", len);
        self.trace.name_out(number, peer, OutKey::Rndv(handle));
    }

    /// A record is handed to a bulk connection.
    #[cold]
    pub(crate) fn trace_record_out(&mut self, record: &weir_link::BulkRecord) {
        let number = self.sends.get(key::<SendKey>(record.token)).map_or(0, |s| s.number);
        self.trace.sent_piece(number, record.offset, u64::from(record.len), true);
    }

    /// The peer has matched a message whose sender wanted to know.
    #[cold]
    pub(crate) fn trace_match_told(&mut self, k: SendKey) {
        if let Some(number) = self.sends.get(k).map(|s| s.number) {
            self.trace.line(format_args!("#{number} send matched there"));
        }
    }

    /// A send, write, read or answer is over.
    #[cold]
    pub(crate) fn trace_send_over(&mut self, s: &SendState<M>, told: bool, result: Result<(), OpError>) {
        let (what, text) = (what(s), outcome(told, result));
        if self.trace.on(2) && s.number != 0 {
            let resent = self.trace.over(s.number);
            let again = if resent > 0 { format!(" sent_again={resent}") } else { String::new() };
            self.trace.line(format_args!("#{} {what} {text} to={} len={}{again}", s.number, s.peer, s.len));
        } else if is_trouble(result) {
            self.trace.line(format_args!("{what} {text} to={} tag={:#x} len={}", s.peer, s.tag, s.len));
        }
    }

    /// A receive was posted, for `claimed` if for one message only.
    #[cold]
    pub(crate) fn trace_posted(&mut self, k: RecvKey, op: &RecvOp<M>, claimed: Option<MsgKey>) {
        let number = self.trace.number();
        let Some(r) = self.recvs.get_mut(k) else { return };
        r.number = number;
        let room = r.dest.len();
        if let Some(m) = claimed.and_then(|m| self.msgs.get(m)) {
            return self.trace.line(format_args!("#{number} recv posted for the claimed #{} room={room}", m.number));
        }
        let many = if op.multi_min.is_some() { " for several messages" } else { "" };
        let from = source(op.source);
        self.trace.line(format_args!(
            "#{number} recv posted from={from} tag={:#x} ignore={:#x} room={room}{many}",
            op.tag, op.ignore
        ));
    }

    /// A message was seen for the first time; `whole`: all that comes of it unasked.
    #[cold]
    pub(crate) fn trace_arrived(&mut self, k: MsgKey, place: (u16, u64, u32), whole: bool) {
        let number = self.trace.number();
        let Some(m) = self.msgs.get_mut(k) else { return };
        m.number = number;
        let (peer, tag, len) = (m.peer, m.tag, m.len);
        let how = match m.carriage {
            Carriage::Eager if whole => "arrived whole",
            Carriage::Eager => "first piece came",
            Carriage::Rendezvous(_) => "announced",
        };
        let bulk = self.trace.by_what();
        let (own, (stream, mseq, sseq)) = (self.own(peer), place);
        self.trace.line(format_args!(
            "#{number} message {how} {bulk} from={peer}{own} tag={tag:#x} len={len} stream={stream} mseq={mseq} sseq={sseq}"
        ));
    }

    /// The beginning and the end of a line about a message: of the receive that has taken it, and
    /// its own number.
    fn who(&self, m: &Arriving<M>) -> (String, String) {
        match &m.place {
            Place::Recv { recv, .. } => {
                let number = self.recvs.get(*recv).map_or(0, |r| r.number);
                (format!("#{number} recv"), format!(" of #{} ", m.number))
            }
            _ => (format!("#{} message", m.number), String::new()),
        }
    }

    /// The last piece of an eager message came.
    #[cold]
    pub(crate) fn trace_message_whole(&mut self, k: MsgKey) {
        let Some(m) = self.msgs.get(k) else { return };
        let ((who, of), len, how) = (self.who(m), m.len, self.trace.by_what());
        self.trace.line(format_args!("{who} last piece came {how} len={len}{of}"));
    }

    /// A receive takes a message. The one that has the lower number was there first.
    #[cold]
    pub(crate) fn trace_matched(&mut self, k: MsgKey, r: RecvKey) {
        let (Some(m), Some(r)) = (self.msgs.get(k), self.recvs.get(r)) else { return };
        let (number, message) = (r.number, m.number);
        let how = if number < message { "expected" } else { "unexpected" };
        let (peer, tag, len) = (m.peer, m.tag, m.len);
        self.trace.line(format_args!("#{number} recv matched #{message} {how} from={peer} tag={tag:#x} len={len}"));
    }

    /// Something else became of a message.
    #[cold]
    pub(crate) fn trace_message(&mut self, k: MsgKey, text: &str) {
        if let Some(number) = self.msgs.get(k).map(|m| m.number) {
            self.trace.line(format_args!("#{number} message {text}"));
        }
    }

    /// A rendezvous transfer is asked for.
    #[cold]
    pub(crate) fn trace_asked(&mut self, peer: u32, opened: RndvOpened, len: u64, owner: RndvOwner) {
        let (who, of) = match owner {
            RndvOwner::Msg(k) => match self.msgs.get(k) {
                Some(m) => self.who(m),
                None => return,
            },
            RndvOwner::Read(k) => (format!("#{} read", self.sends.get(k).map_or(0, |s| s.number)), String::new()),
            RndvOwner::Write { region, .. } => {
                let number = self.trace.number();
                self.trace.line(format_args!("#{number} target announced from={peer} key={region:#x} len={len}"));
                (format!("#{number} target"), String::new())
            }
        };
        let (handle, granted) = (opened.handle, opened.granted);
        self.trace.line(format_args!("{who} asks for rndv={handle:#x} len={len} granted={granted}{of}"));
        self.trace.expect_rndv(peer, handle, who, of);
    }

    /// A small remote write landed here, or was refused.
    #[cold]
    pub(crate) fn trace_target(&mut self, peer: u32, region: u64, len: usize, result: &str) {
        let number = self.trace.number();
        self.trace.line(format_args!("#{number} target {result} from={peer} key={region:#x} len={len}"));
    }

    /// A receive is over, or has got one message of several.
    #[cold]
    pub(crate) fn trace_recv_over(
        &mut self,
        number: u64,
        msg: Option<&Arriving<M>>,
        len: usize,
        result: Result<(), OpError>,
        done: bool,
    ) {
        let text = outcome(false, result);
        let last = if done { "" } else { " more may come" };
        let of = msg.map_or_else(String::new, |m| format!(" from={} tag={:#x} of #{} ", m.peer, m.tag, m.number));
        if self.trace.on(2) {
            self.trace.line(format_args!("#{number} recv {text} len={len}{of}{last}"));
        } else if is_trouble(result) {
            let of = msg.map_or_else(String::new, |m| format!(" from={} tag={:#x}", m.peer, m.tag));
            self.trace.line(format_args!("recv {text} len={len}{of}"));
        }
    }

    /// A peer is there.
    #[cold]
    pub(crate) fn trace_peer_up(&mut self, peer: PeerId) {
        let (who, id) = (self.address_of(peer), self.sessions.endpoint().peer_endpoint_id(peer));
        self.trace.line(format_args!("peer up peer={} at {who} endpoint {id:016x}", peer.0));
    }

    /// A peer is gone.
    #[cold]
    pub(crate) fn trace_peer_down(&mut self, peer: PeerId, who: &str, reason: DownReason) {
        self.trace.line(format_args!("peer down peer={} at {who} ({reason})", peer.0));
    }
}
