//! What goes by a bulk connection and what comes by it: records, each a head and a piece of a
//! message or of rendezvous data (spec/bulk.md 3 and 4).

use alloc::vec::Vec;

use smallvec::SmallVec;
use weir_session::{DataKey, Event, Flow, Fragment, FragmentIn, Line};
use weir_wire::bulk::{RECORD_HEAD_LEN, RECORD_MAX, RecordError, RecordHead, RecordKind};
use weir_wire::frame::Credit;

use crate::connection::{BulkConnection, Cx};

/// The payload of a record, which follows its head on the connection.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct BulkRecord {
    /// The operation, as given in [`weir_session::Message::token`] or to `send_rndv`.
    pub token: u64,
    /// First byte of its payload.
    pub offset: u64,
    /// Number of bytes.
    pub len: u32,
    /// Nothing stands in line behind it.
    pub last: bool,
}

/// A record whose payload is being read.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct RecordIn {
    /// What its bytes belong to.
    pub key: DataKey,
    /// Place of the payload in it.
    pub offset: u64,
    /// Number of bytes.
    pub len: u32,
    total_len: u32,
    /// Its bytes on the bulk connection.
    size: u64,
    /// Its sender may wait to hear that it was read.
    tell: bool,
}

const TOO_LONG: &str = "message too long";

/// What is wrong with a record.
pub enum Wrong {
    /// Its head is not what was sent: TCP's checksum is short, and lets a change through now and
    /// then.
    Damaged,
    /// The peer broke a rule.
    Rule(&'static str),
}

impl From<&'static str> for Wrong {
    fn from(why: &'static str) -> Wrong {
        Wrong::Rule(why)
    }
}

/// What is written of a record besides its kind.
struct Next {
    fragment: Fragment,
    kind: RecordKind,
    envelope: SmallVec<[u8; 48]>,
    token: u64,
    /// Somebody waits to hear of it.
    awaited: bool,
    from: u64,
    to: u64,
    /// Nothing stands behind it.
    last: bool,
}

impl BulkConnection {
    /// The next record, pulled from the session: its head is appended to `head`, its payload is to
    /// follow. Records are written in the order in which they were pulled.
    pub fn next_record(
        &mut self,
        cx: &mut Cx<'_>,
        crc: impl Fn(&[u8], &[u8]) -> u32,
        head: &mut Vec<u8>,
    ) -> Option<BulkRecord> {
        if !self.is_up() {
            return None;
        }
        let n = pull(cx)?;
        let (len, start) = ((n.to - n.from) as u32, head.len());
        self.app_acks.is_told();
        self.app_acks.answers(cx.now);
        self.wants_tell |= n.awaited;
        let tell = self.wants_tell && n.last;
        self.wants_tell &= !tell;
        let (msgs, bytes_limit) = cx.s.credit_told();
        let credit = Credit { msgs_limit: msgs as u32, bytes_limit };
        RecordHead { kind: n.kind, offset: n.from, len, credit, read: self.app_acks.read, tell }.write(
            &n.envelope,
            crc,
            head,
        );
        self.handed += (head.len() - start) as u64 + u64::from(len);
        self.records.push(self.handed, n.fragment);
        Some(BulkRecord { token: n.token, offset: n.from, len, last: n.last })
    }

    /// The peer has read so many of the bytes that were handed out.
    pub(crate) fn was_read(
        &mut self,
        cx: &mut Cx<'_>,
        number: u32,
        read: u64,
        events: &mut Vec<Event>,
    ) -> Result<(), &'static str> {
        // Of the last one, too, if it is over: what is told now need not go in packets, or has
        // arrived though its packets never will.
        if self.last != number {
            return Ok(());
        }
        if read > self.handed {
            return Err("more read of a bulk connection than was sent");
        }
        self.app_acked = self.app_acked.max(read);
        self.records.read(read, cx.s, cx.common, events, |f| {
            cx.counters.records_sent += 1;
            cx.counters.bytes_sent += f.payload_len();
        });
        self.wants_tell &= !self.records.is_empty();
        Ok(())
    }

    /// What the head of a record says of what went the other way: the first of two steps, so that
    /// the driver can see first to what has ended.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn record_tells(
        &mut self,
        cx: &mut Cx<'_>,
        number: u32,
        bytes: &[u8],
        crc: impl Fn(&[u8], &[u8]) -> u32,
        events: &mut Vec<Event>,
    ) -> Result<(), Wrong> {
        let head = RecordHead::read(bytes, crc).map_err(wrong)?;
        self.was_read(cx, number, head.read, events)?;
        cx.s.on_credit(cx.common, head.credit.msgs_limit, head.credit.bytes_limit);
        Ok(())
    }

    /// A message has come in one record; `bytes` are the head, which
    /// [`BulkConnection::record_tells`] has taken, and the payload. Events have both: nothing is to
    /// be put in its place.
    ///
    /// # Errors
    /// The rule that the peer broke.
    pub fn record_whole(
        &mut self,
        cx: &mut Cx<'_>,
        bytes: &[u8],
        head_len: usize,
        events: &mut Vec<Event>,
    ) -> Result<(), Wrong> {
        let head = RecordHead::read_again(bytes).map_err(wrong)?;
        let len = bytes.len().checked_sub(head_len).and_then(|n| u32::try_from(n).ok());
        let RecordHead { kind: RecordKind::Message { stream, sseq, mseq, .. }, len: total_len, .. } = head else {
            return Err(wrong(RecordError::Malformed));
        };
        if RecordHead::whole_message(bytes) != len {
            return Err(wrong(RecordError::Malformed));
        }
        self.has_read(cx, bytes.len() as u64, head.len, head.tell);
        let fragment = FragmentIn { stream, mseq, sseq, total_len, offset: 0 };
        Ok(cx.s.on_message(cx.common, &fragment, &(RECORD_HEAD_LEN..head_len), &(head_len..bytes.len()), events)?)
    }

    /// All bytes of a record are in their place. Returns how many of them were new.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn record_ends(&mut self, cx: &mut Cx<'_>, record: &RecordIn, events: &mut Vec<Event>) -> Result<u64, Wrong> {
        self.has_read(cx, record.size, record.len, record.tell);
        let fresh = cx.s.placed(cx.common, cx.now, record.key, record.total_len, record.offset, record.len, events)?;
        cx.common.counters.duplicate_bytes += u64::from(record.len) - fresh;
        Ok(fresh)
    }

    fn has_read(&mut self, cx: &mut Cx<'_>, size: u64, len: u32, tell: bool) {
        self.app_acks.has_read(cx.now, size, tell);
        cx.counters.records_received += 1;
        cx.counters.bytes_received += u64::from(len);
    }
}

/// Takes what goes next out of the session's line.
fn pull(cx: &mut Cx<'_>) -> Option<Next> {
    let most = u64::from(cx.cfg.record_bytes.clamp(1, RECORD_MAX));
    let piece = cx.s.next_flow(Line::Bulk)?;
    let to = piece.to.min(piece.from.saturating_add(most));
    // Taken first: what is behind it in the line decides whether it is to be told of.
    if !cx.s.took_flow(Line::Bulk, to) {
        // The others of this bulk connection have their turn in between.
        cx.s.end_turn(Line::Bulk);
    }
    let none_behind = cx.s.next_flow(Line::Bulk).is_none();
    let (kind, envelope, token, patient): (_, &[u8], _, _) = match piece.flow {
        Flow::Message(mseq) => {
            let m = cx.s.message(mseq)?;
            let (stream, sseq, total_len) = (m.stream, m.sseq, u64::from(m.len));
            (RecordKind::Message { stream, sseq, mseq, total_len }, m.envelope(), m.token, m.patient)
        }
        Flow::Rndv(slot, generation) => {
            let b = cx.s.rndv(slot, generation)?;
            (RecordKind::Rndv(b.handle), &[], b.token, false)
        }
    };
    let ends = to == piece.to;
    Some(Next {
        fragment: Fragment::of(piece.flow, piece.from, to),
        kind,
        envelope: SmallVec::from_slice(envelope),
        token,
        awaited: !patient && ends,
        from: piece.from,
        to,
        last: ends && none_behind,
    })
}

fn wrong(e: RecordError) -> Wrong {
    match e {
        RecordError::Damaged => Wrong::Damaged,
        RecordError::Malformed => Wrong::Rule("malformed record on a bulk connection"),
    }
}

/// A record begins to come, whose head [`BulkConnection::record_tells`] has taken.
///
/// # Errors
/// The rule that the peer broke.
pub fn record_begins(cx: &mut Cx<'_>, bytes: &[u8], events: &mut Vec<Event>) -> Result<RecordIn, Wrong> {
    let head = RecordHead::read_again(bytes).map_err(wrong)?;
    let size = bytes.len() as u64 + u64::from(head.len);
    let mut record =
        RecordIn { key: head.key(), offset: head.offset, len: head.len, total_len: 0, size, tell: head.tell };
    match head.kind {
        RecordKind::Message { stream, sseq, mseq, total_len } => {
            record.total_len = u32::try_from(total_len).map_err(|_| TOO_LONG)?;
            let offset = head.offset as u32;
            let fragment = FragmentIn { stream, mseq, sseq, total_len: record.total_len, offset };
            cx.s.announce(cx.common, &fragment, RECORD_HEAD_LEN..bytes.len(), events)?;
        }
        RecordKind::Rndv(handle) => {
            if !cx.s.may_arrive(handle, head.offset + u64::from(head.len)) {
                return Err(Wrong::Rule("rendezvous transfer fragment beyond its grant"));
            }
        }
    }
    Ok(record)
}
