//! Bulk connections of the test network: rows of bytes that come in order, in pieces, and may break
//! off at any byte.

use std::collections::VecDeque;

use rand_chacha::rand_core::RngCore;
use weir_link::*;

use super::{Net, Pattern};

/// One direction of a connection.
#[derive(Default)]
struct Row {
    /// Under way; then at the receiver's host and not read.
    flying: VecDeque<u8>,
    there: VecDeque<u8>,
    /// Read and not taken apart.
    read: Vec<u8>,
    record: Option<(RecordIn, u32)>,
}

/// A connection between two nodes.
pub struct Conn {
    nodes: [usize; 2],
    peers: [PeerId; 2],
    bulk: u32,
    rows: [Row; 2],
    /// It has broken: one end is gone, and the other reads what had come, if the bulk connection is
    /// not over before.
    broken: bool,
}

/// All of the network.
#[derive(Default)]
pub struct BulkConnections {
    pub conns: Vec<Conn>,
    /// Connections fail to be made.
    pub refuse: bool,
    /// Chance for each move of bytes that the connection breaks, parts per million.
    pub breaks: u32,
    pub opened: u64,
    pub broke: u64,
}

impl Net {
    /// Connects, writes, acknowledges and reads for a while; says whether anything moved.
    pub fn pump_bulk_connections(&mut self) -> bool {
        let mut moved = false;
        for i in 0..self.nodes.len() {
            while let Some(news) = self.nodes[i].ep.take_bulk_news() {
                moved = true;
                self.connect(i, news);
            }
        }
        let mut bulk_connections = std::mem::take(&mut self.bulk_connections);
        for c in &mut bulk_connections.conns {
            for side in 0..2 {
                moved |= self.write(c, side);
                moved |= self.carry(c, side);
                moved |= self.read(c, side);
            }
            if !c.broken && self.chance(bulk_connections.breaks) && c.rows.iter().any(|r| !r.flying.is_empty()) {
                c.broken = true;
                bulk_connections.broke += 1;
                let gone = self.rng.next_u32() as usize % 2;
                c.rows.iter_mut().for_each(|r| r.flying.clear());
                c.rows[1 - gone].there.clear();
                self.nodes[c.nodes[gone]].ep.bulk_over(self.now, c.peers[gone], c.bulk);
            }
            let is_read = c.rows.iter().all(|r| r.there.is_empty());
            for side in 0..if c.broken && is_read { 2 } else { 0 } {
                self.nodes[c.nodes[side]].ep.bulk_over(self.now, c.peers[side], c.bulk);
            }
        }
        let nodes = &self.nodes;
        bulk_connections.conns.retain(|c| (0..2).any(|i| nodes[c.nodes[i]].ep.bulk_is_up(c.peers[i], c.bulk)));
        self.bulk_connections = bulk_connections;
        moved
    }

    fn connect(&mut self, from: usize, news: BulkNews) {
        let to = (0..self.nodes.len()).find(|n| super::addr(*n, 0).ip() == news.remote.ip()).expect("address");
        let Some((bulk, greeting)) = self.nodes[from].ep.bulk_greeting(news.peer) else { return };
        let answered =
            if self.bulk_connections.refuse { None } else { self.nodes[to].ep.bulk_greeted(self.now, &greeting) };
        let Some((peer, number, answer)) = answered else {
            return self.nodes[from].ep.bulk_over(self.now, news.peer, bulk);
        };
        assert_eq!(number, bulk);
        assert!(self.nodes[to].ep.bulk_greeted(self.now, &greeting).is_none(), "a greeting is good once");
        assert!(self.nodes[from].ep.bulk_answered(self.now, news.peer, bulk, &answer));
        assert!(!self.nodes[from].ep.bulk_answered(self.now, news.peer, bulk, &answer), "so is an answer");
        self.bulk_connections.opened += 1;
        let rows = [Row::default(), Row::default()];
        self.bulk_connections.conns.push(Conn {
            nodes: [from, to],
            peers: [news.peer, peer],
            bulk,
            rows,
            broken: false,
        });
    }

    fn write(&mut self, c: &mut Conn, side: usize) -> bool {
        let (node, row) = (c.nodes[side], &mut c.rows[side]);
        if c.broken || row.flying.len() > 300_000 {
            return false;
        }
        let mut head = Vec::new();
        let Some(u) = self.nodes[node].ep.bulk_next(self.now, c.peers[side], c.bulk, &mut head) else { return false };
        let mut payload = vec![0; u.len as usize];
        Pattern.read(u.token, u.offset, &mut payload);
        row.flying.extend(head);
        row.flying.extend(payload);
        true
    }

    fn carry(&mut self, c: &mut Conn, side: usize) -> bool {
        let row = &mut c.rows[side];
        if row.flying.is_empty() {
            return false;
        }
        let n = (1 + self.rng.next_u32() as usize % 100_000).min(row.flying.len());
        row.there.extend(row.flying.drain(..n));
        true
    }

    /// What `side` wrote is read by the other.
    fn read(&mut self, c: &mut Conn, side: usize) -> bool {
        let (node, peer, row) = (c.nodes[1 - side], c.peers[1 - side], &mut c.rows[side]);
        if row.there.is_empty() {
            return false;
        }
        if !self.nodes[node].ep.bulk_is_up(peer, c.bulk) {
            row.there.clear();
            return true;
        }
        let n = (1 + self.rng.next_u32() as usize % 70_000).min(row.there.len());
        row.read.extend(row.there.drain(..n));
        loop {
            if let Some((record, done)) = &mut row.record {
                let n = ((record.len - *done) as usize).min(row.read.len());
                self.put(node, peer, record, *done, &row.read[..n]);
                row.read.drain(..n);
                *done += n as u32;
                if *done < record.len {
                    return true;
                }
                let record = *record;
                row.record = None;
                self.arrived(node, peer, c.bulk, &record);
                continue;
            }
            let Some(len) = RecordHead::len_with_envelope(&row.read).filter(|n| *n <= row.read.len()) else {
                return true;
            };
            if len < RECORD_HEAD_LEN {
                return true;
            }
            let head: Vec<u8> = row.read.drain(..len).collect();
            let mut events = Vec::new();
            if !self.nodes[node].ep.record_tells(self.now, peer, c.bulk, &head, &mut events) {
                return true;
            }
            self.events(node, &events, &head);
            events.clear();
            let record = self.nodes[node].ep.record_begins(self.now, peer, &head, &mut events);
            self.events(node, &events, &head);
            let Some(record) = record else { return true };
            row.record = Some((record, 0));
        }
    }

    /// Payload of a record is what the operation's is.
    fn put(&mut self, node: usize, peer: PeerId, record: &RecordIn, done: u32, bytes: &[u8]) {
        let token = match record.key {
            DataKey::Rndv(h) => self.nodes[node].rndvs.get(&(peer.0, h)).map(|r| r.token),
            DataKey::Message(m) => {
                let known = &self.nodes[node].messages;
                known.iter().find(|(k, r)| k.0 == peer.0 && r.token == m).map(|(k, _)| k.1)
            }
        };
        let Some(token) = token else { return };
        let from = record.offset + u64::from(done);
        assert!((from..).zip(bytes).all(|(o, b)| *b == super::byte_of(token, o)), "payload of {token} from {from}");
    }

    fn arrived(&mut self, node: usize, peer: PeerId, bulk: u32, record: &RecordIn) {
        let n = &mut self.nodes[node];
        let r = match record.key {
            DataKey::Rndv(h) => n.rndvs.get_mut(&(peer.0, h)),
            DataKey::Message(m) => n.messages.iter_mut().find(|(k, r)| k.0 == peer.0 && r.token == m).map(|(_, r)| r),
        };
        if let Some(r) = r {
            for o in record.offset..record.offset + u64::from(record.len) {
                r.bytes += u64::from(!std::mem::replace(&mut r.have[o as usize], true));
            }
        }
        let mut events = Vec::new();
        n.ep.record_ends(self.now, peer, bulk, record, &mut events);
        self.events(node, &events, &[]);
    }
}
