//! Lanes of the test network: rows of bytes that come in order, in pieces, and may break off at any byte.

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
    unit: Option<(UnitIn, u32)>,
}

/// A connection between two nodes.
pub struct Conn {
    nodes: [usize; 2],
    peers: [PeerId; 2],
    lane: u32,
    rows: [Row; 2],
    /// It has broken: one end is gone, and the other reads what had come, if the lane is not over before.
    broken: bool,
}

/// All of the network.
#[derive(Default)]
pub struct Lanes {
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
    pub fn pump_lanes(&mut self) -> bool {
        let mut moved = false;
        for i in 0..self.nodes.len() {
            while let Some(news) = self.nodes[i].ep.take_lane_news() {
                moved = true;
                self.connect(i, news);
            }
        }
        let mut lanes = std::mem::take(&mut self.lanes);
        for c in &mut lanes.conns {
            for side in 0..2 {
                moved |= self.write(c, side);
                moved |= self.carry(c, side);
                moved |= self.read(c, side);
            }
            if !c.broken && self.chance(lanes.breaks) && c.rows.iter().any(|r| !r.flying.is_empty()) {
                c.broken = true;
                lanes.broke += 1;
                let gone = self.rng.next_u32() as usize % 2;
                c.rows.iter_mut().for_each(|r| r.flying.clear());
                c.rows[1 - gone].there.clear();
                self.nodes[c.nodes[gone]].ep.lane_over(self.now, c.peers[gone], c.lane);
            }
            let is_read = c.rows.iter().all(|r| r.there.is_empty());
            for side in 0..if c.broken && is_read { 2 } else { 0 } {
                self.nodes[c.nodes[side]].ep.lane_over(self.now, c.peers[side], c.lane);
            }
        }
        let nodes = &self.nodes;
        lanes.conns.retain(|c| (0..2).any(|i| nodes[c.nodes[i]].ep.lane_is_up(c.peers[i], c.lane)));
        self.lanes = lanes;
        moved
    }

    fn connect(&mut self, from: usize, news: LaneNews) {
        let to = (0..self.nodes.len()).find(|n| super::addr(*n, 0).ip() == news.remote.ip()).expect("address");
        let Some((lane, greeting)) = self.nodes[from].ep.lane_greeting(news.peer) else { return };
        let answered = if self.lanes.refuse { None } else { self.nodes[to].ep.lane_greeted(self.now, &greeting) };
        let Some((peer, number, answer)) = answered else {
            return self.nodes[from].ep.lane_over(self.now, news.peer, lane);
        };
        assert_eq!(number, lane);
        assert!(self.nodes[to].ep.lane_greeted(self.now, &greeting).is_none(), "a greeting is good once");
        assert!(self.nodes[from].ep.lane_answered(self.now, news.peer, lane, &answer));
        assert!(!self.nodes[from].ep.lane_answered(self.now, news.peer, lane, &answer), "so is an answer");
        self.lanes.opened += 1;
        let rows = [Row::default(), Row::default()];
        self.lanes.conns.push(Conn { nodes: [from, to], peers: [news.peer, peer], lane, rows, broken: false });
    }

    fn write(&mut self, c: &mut Conn, side: usize) -> bool {
        let (node, row) = (c.nodes[side], &mut c.rows[side]);
        if c.broken || row.flying.len() > 300_000 {
            return false;
        }
        let mut head = Vec::new();
        let Some(u) = self.nodes[node].ep.lane_next(self.now, c.peers[side], c.lane, &mut head) else { return false };
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
        if !self.nodes[node].ep.lane_is_up(peer, c.lane) {
            row.there.clear();
            return true;
        }
        let n = (1 + self.rng.next_u32() as usize % 70_000).min(row.there.len());
        row.read.extend(row.there.drain(..n));
        loop {
            if let Some((unit, done)) = &mut row.unit {
                let n = ((unit.len - *done) as usize).min(row.read.len());
                self.put(node, peer, unit, *done, &row.read[..n]);
                row.read.drain(..n);
                *done += n as u32;
                if *done < unit.len {
                    return true;
                }
                let unit = *unit;
                row.unit = None;
                self.arrived(node, peer, c.lane, &unit);
                continue;
            }
            let Some(len) = UnitHead::len_with_envelope(&row.read).filter(|n| *n <= row.read.len()) else {
                return true;
            };
            if len < UNIT_HEAD_LEN {
                return true;
            }
            let head: Vec<u8> = row.read.drain(..len).collect();
            let mut events = Vec::new();
            if !self.nodes[node].ep.unit_tells(self.now, peer, c.lane, &head, &mut events) {
                return true;
            }
            self.events(node, &events, &head);
            events.clear();
            let unit = self.nodes[node].ep.unit_begins(self.now, peer, &head, &mut events);
            self.events(node, &events, &head);
            let Some(unit) = unit else { return true };
            row.unit = Some((unit, 0));
        }
    }

    /// Payload of a unit is what the operation's is.
    fn put(&mut self, node: usize, peer: PeerId, unit: &UnitIn, done: u32, bytes: &[u8]) {
        let token = match unit.key {
            BodyKey::Body(h) => self.nodes[node].bodies.get(&(peer.0, h)).map(|r| r.token),
            BodyKey::Message(m) => {
                let known = &self.nodes[node].messages;
                known.iter().find(|(k, r)| k.0 == peer.0 && r.token == m).map(|(k, _)| k.1)
            }
        };
        let Some(token) = token else { return };
        let from = unit.offset + u64::from(done);
        assert!((from..).zip(bytes).all(|(o, b)| *b == super::byte_of(token, o)), "payload of {token} from {from}");
    }

    fn arrived(&mut self, node: usize, peer: PeerId, lane: u32, unit: &UnitIn) {
        let n = &mut self.nodes[node];
        let r = match unit.key {
            BodyKey::Body(h) => n.bodies.get_mut(&(peer.0, h)),
            BodyKey::Message(m) => n.messages.iter_mut().find(|(k, r)| k.0 == peer.0 && r.token == m).map(|(_, r)| r),
        };
        if let Some(r) = r {
            for o in unit.offset..unit.offset + u64::from(unit.len) {
                r.bytes += u64::from(!std::mem::replace(&mut r.have[o as usize], true));
            }
        }
        let mut events = Vec::new();
        n.ep.unit_ends(self.now, peer, lane, unit, &mut events);
        self.events(node, &events, &[]);
    }
}
