//! Idle repair: parity fragments on lossy long paths (spec 6.6).

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use smallvec::SmallVec;
use weir_session::galois::{add_times, double};
use weir_session::{Hole, Session, factors_for};
use weir_wire::frame::ParityHead;
use weir_wire::{DataKey, MAX_PARITY_COUNT, MAX_PARITY_ROWS};

use crate::{Config, Payloads};

/// Parity frames that may wait; more are not worth sending.
const DUE_MAX: usize = 8;
/// Parity costs at most this part of the data.
const SHARE: u64 = 8;
/// A group with fewer fragments is not protected: it would be repetition.
const GROUP_MIN: u8 = 2;
/// Rows whose data may be saved up at most.
const SAVED_ROWS: u64 = 32;
/// Parts of fragments that the rows of a group are used for, at most.
pub(crate) const HOLES_MAX: usize = 8;

/// Consecutive fragments of equal length of one message or rendezvous data.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Group {
    key: DataKey,
    base: u64,
    frag: u16,
    count: u8,
    /// It is over with so many.
    most: u8,
}

/// One row of a group's parity.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Row {
    group: Group,
    row: u8,
}

/// Sender side: groups of fragments that parity may follow.
#[derive(Debug, Default)]
pub(crate) struct ParitySender {
    /// Loss and round trip of the path are high enough.
    pub(crate) active: bool,
    group: Option<Group>,
    due: VecDeque<Row>,
    /// Data bytes not yet spent on parity.
    budget: u64,
}

impl ParitySender {
    /// A parity fragment waits to be sent.
    pub(crate) fn is_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// The path was measured anew.
    pub(crate) fn set_active(&mut self, active: bool) {
        self.active = active;
        if !active && (self.group.is_some() || self.budget > 0) {
            *self = ParitySender::default();
        }
    }

    /// Fresh bytes `[from, from + len)` of `total` were sent, to one who takes so many rows.
    pub(crate) fn note(&mut self, cfg: &Config, rows: u8, key: DataKey, (from, len): (u64, u64), total: u64) {
        if !self.active || len == 0 {
            return;
        }
        self.budget = (self.budget + len).min(SHARE * SAVED_ROWS * len.max(1024));
        let joins = self.group.is_some_and(|g| {
            g.key == key && from == g.base + u64::from(g.count) * u64::from(g.frag) && len <= u64::from(g.frag)
        });
        let each = cfg.parity_group.clamp(1, MAX_PARITY_COUNT / MAX_PARITY_ROWS);
        let rows = rows.clamp(1, MAX_PARITY_ROWS);
        let mut g = match self.group.take() {
            Some(g) if joins => Group { count: g.count + 1, ..g },
            other => {
                // Another message has its turn, or fragments are longer now: what was sent of this
                // group is one, unless that is so little that a row would cost more than it saves.
                other.into_iter().filter(|g| g.count >= each / 2).for_each(|g| self.close(g, each, rows));
                Group { key, base: from, frag: len as u16, count: 1, most: group_size(each * rows, total - from, len) }
            }
        };
        let last = from + len == total;
        let short = len < u64::from(g.frag);
        if short && !last {
            // A fragment of another length in the middle: what came before it is a group of its
            // own.
            g.count -= 1;
        } else if !last && g.count < g.most {
            self.group = Some(g);
            return;
        }
        self.close(g, each, rows);
    }

    /// A group is complete: its rows are due, one for `each` so many of its fragments.
    fn close(&mut self, g: Group, each: u8, rows: u8) {
        let cost = SHARE * u64::from(g.frag);
        for row in 0..g.count.div_ceil(each).min(rows) {
            if g.count >= GROUP_MIN && self.budget >= cost && self.due.len() < DUE_MAX {
                self.budget -= cost;
                self.due.push_back(Row { group: g, row });
            }
        }
    }

    /// The next row to send, without taking it.
    pub(crate) fn next(&self) -> Option<Row> {
        self.due.front().copied()
    }

    pub(crate) fn drop_next(&mut self) {
        self.due.pop_front();
    }
}

/// How many fragments of `len` bytes a group has that begins `left` bytes before the end: what is
/// left for the last two is shared by both, so that none is left with next to nothing.
fn group_size(most: u8, left: u64, len: u64) -> u8 {
    let fragments = left.div_ceil(len.max(1));
    let most = u64::from(most);
    let size = if fragments > most && fragments < 2 * most { fragments.div_ceil(2) } else { fragments.min(most) };
    size as u8
}

impl Row {
    /// Fragment length in bytes.
    pub(crate) fn frag(&self) -> usize {
        usize::from(self.group.frag)
    }

    /// The operation that holds the protected bytes and its length, if they are still there.
    pub(crate) fn source(&self, s: &Session) -> Option<(u64, u64)> {
        match self.group.key {
            DataKey::Message(m) => s.message(m).filter(|m| !m.is_done()).map(|m| (m.token, u64::from(m.len))),
            DataKey::Rndv(h) => s.rndv_of(h).map(|(_, b)| (b.token, b.len)),
        }
    }

    /// Appends the PARITY frame.
    pub(crate) fn write(&self, payloads: &impl Payloads, token: u64, total: u64, out: &mut Vec<u8>) {
        let Group { key, base, frag, count, .. } = self.group;
        weir_wire::frame::write_parity_head(&ParityHead { key, count, row: self.row, frag, base }, out);
        let at = out.len();
        out.resize(at + self.frag(), 0);
        let sum = &mut out[at..];
        let mut piece = [0u8; 512];
        // Horner's rule: from the last fragment to the first, whose factor is 1.
        for k in (0..u64::from(count)).rev() {
            (0..self.row).for_each(|_| double(sum));
            let start = base + k * u64::from(frag);
            let len = total.saturating_sub(start).min(u64::from(frag)) as usize;
            let mut done = 0;
            for part in sum[..len].chunks_mut(piece.len()) {
                let piece = &mut piece[..part.len()];
                payloads.read(token, start + done, piece);
                add_times(part, piece, 1);
                done += part.len() as u64;
            }
        }
    }
}

/// Receiver side: rows of the newest group that are not enough yet for what it lacks.
#[derive(Debug, Default)]
pub(crate) struct ParityReceiver {
    of: Option<(DataKey, u64, u16, u8)>,
    /// What it lacked was told: rows of it that come yet, as in the same packet, tell nothing more.
    told: bool,
    rows: SmallVec<[(u8, Vec<u8>); MAX_PARITY_ROWS as usize]>,
}

/// What can be restored: where, and from which sum.
type Restorable = (Hole, Vec<u8>);

impl ParityReceiver {
    /// A row came, and of its group these ranges lack, `lacking`, lowest first. What can be
    /// restored now.
    pub(crate) fn take(&mut self, h: &ParityHead, row: &[u8], lacking: &[(u64, u64)]) -> Vec<Restorable> {
        let of = Some((h.key, h.base, h.frag, h.count));
        if self.of != of {
            *self = ParityReceiver { of, ..ParityReceiver::default() };
        }
        if self.told {
            return Vec::new();
        }
        let holes = in_fragments(h, lacking);
        let mut fragments: SmallVec<[u64; MAX_PARITY_ROWS as usize]> = holes.iter().map(|(k, ..)| *k).collect();
        fragments.dedup();
        if holes.is_empty() || holes.len() > HOLES_MAX || fragments.len() > usize::from(MAX_PARITY_ROWS) {
            *self = ParityReceiver::default();
            return Vec::new();
        }
        if self.rows.iter().all(|(number, _)| *number != h.row) {
            self.rows.push((h.row, row.to_vec()));
            self.rows.sort_unstable_by_key(|(number, _)| *number);
        }
        if self.rows.len() < fragments.len() {
            return Vec::new();
        }
        self.told = true;
        let rows = core::mem::take(&mut self.rows);
        let rows = &rows[..fragments.len()];
        let numbers: SmallVec<[u8; MAX_PARITY_ROWS as usize]> = rows.iter().map(|(number, _)| *number).collect();
        let mut restorable = Vec::new();
        for _ in 0..fragments.len() {
            let first = fragments[0];
            let Some(factors) = factors_for(&numbers, &fragments) else { continue };
            let mut sum = vec![0; usize::from(h.frag)];
            for (number, bytes) in rows {
                add_times(&mut sum, bytes, factors[usize::from(*number)]);
            }
            for &(_, offset, len) in holes.iter().filter(|(k, ..)| *k == first) {
                let hole = Hole { base: h.base, frag: h.frag, count: h.count, offset, len, factors };
                restorable.push((hole, sum.clone()));
            }
            fragments.rotate_left(1);
        }
        restorable
    }
}

/// Ranges that lack of a group, cut where its fragments end: (fragment, first byte, length).
fn in_fragments(h: &ParityHead, lacking: &[(u64, u64)]) -> SmallVec<[(u64, u64, u16); HOLES_MAX]> {
    let frag = u64::from(h.frag);
    let mut holes = SmallVec::new();
    for &(mut from, to) in lacking {
        while from < to && holes.len() <= HOLES_MAX {
            let k = (from - h.base) / frag;
            let end = to.min(h.base + (k + 1) * frag);
            holes.push((k, from, (end - from) as u16));
            from = end;
        }
    }
    holes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hostile::{P, Two, meta};
    use crate::requirements::{has, quiet};
    use crate::{Event, Message};
    use core::time::Duration;
    use weir_wire::Frame;

    const KEY: DataKey = DataKey::Message(7);

    /// Bytes of one message.
    struct Bytes(Vec<u8>);

    impl Payloads for Bytes {
        fn read(&self, _token: u64, offset: u64, dst: &mut [u8]) {
            dst.copy_from_slice(&self.0[offset as usize..offset as usize + dst.len()]);
        }
    }

    /// (first fragment, fragments, rows) of each group of a message of so many fragments.
    fn groups(fragments: u64, rows: u8) -> Vec<(u64, u8, u8)> {
        let (cfg, mut p) = (Config::default(), ParitySender { active: true, ..ParitySender::default() });
        let mut seen: Vec<(u64, u8, u8)> = Vec::new();
        for k in 0..fragments {
            p.note(&cfg, rows, KEY, (k * 1000, 1000), fragments * 1000);
            while let Some(row) = p.next() {
                match seen.last_mut().filter(|g| g.0 == row.group.base / 1000) {
                    Some(g) => g.2 += 1,
                    None => seen.push((row.group.base / 1000, row.group.count, 1)),
                }
                p.drop_next();
            }
        }
        seen
    }

    // spec: P-6.18, P-6.34, P-6.35
    #[test]
    fn a_row_for_each_sixteen_fragments_and_no_group_of_next_to_nothing() {
        assert_eq!(groups(1, 3), []);
        assert_eq!(groups(8, 3), [(0, 8, 1)]);
        assert_eq!(groups(22, 3), [(0, 22, 2)]);
        assert_eq!(groups(48, 3), [(0, 48, 3)]);
        assert_eq!(groups(49, 3), [(0, 25, 2), (25, 24, 2)]);
        assert_eq!(groups(213, 3), [(0, 48, 3), (48, 48, 3), (96, 48, 3), (144, 35, 3), (179, 34, 3)]);
        // One who takes one row, or says nothing of it.
        for rows in [0, 1] {
            assert_eq!(groups(40, rows), [(0, 16, 1), (16, 12, 1), (28, 12, 1)]);
        }
        assert_eq!(groups(33, 200), [(0, 33, 3)]);
    }

    /// Messages that take turns, as they do on one association.
    // spec: P-6.18
    #[test]
    fn a_group_that_another_message_interrupts_has_its_rows() {
        let (cfg, mut p) = (Config::default(), ParitySender { active: true, ..ParitySender::default() });
        let mut rows = Vec::new();
        // Of 69 fragments each, 48 in a turn: groups of 35 and 13, then of 21.
        for turn in [0..48, 48..69] {
            for message in 0..2 {
                for k in turn.clone() {
                    p.note(&cfg, 3, DataKey::Message(message), (k * 1000, 1000), 69_000);
                    rows.extend(core::iter::from_fn(|| p.due.pop_front()));
                }
            }
        }
        for message in 0..2 {
            let of_it = rows.iter().filter(|row| row.group.key == DataKey::Message(message));
            let groups: Vec<(u64, u8, u8)> =
                of_it.map(|row| (row.group.base / 1000, row.group.count, row.row)).collect();
            let wanted = [(0, 35, 0), (0, 35, 1), (0, 35, 2), (35, 13, 0), (48, 21, 0), (48, 21, 1)];
            assert_eq!(groups, wanted, "message {message}");
        }
    }

    // spec: P-6.20, P-6.37
    #[test]
    fn rows_wait_until_they_are_as_many_as_the_fragments_that_lack() {
        let want: Vec<u8> = (0..20_000u32).map(|i| (i * i / 5 + 1) as u8).collect();
        let group = Group { key: KEY, base: 1000, frag: 500, count: 38, most: 48 };
        let mut frames: Vec<(ParityHead, Vec<u8>)> = Vec::new();
        for row in 0..3 {
            let mut out = Vec::new();
            Row { group, row }.write(&Bytes(want.clone()), 0, 20_000, &mut out);
            let head = ParityHead { key: KEY, count: 38, row, frag: 500, base: 1000 };
            frames.push((head, out.split_off(weir_wire::frame::PARITY_HEAD_LEN)));
        }
        let restored = |p: &mut ParityReceiver, row: usize, lacking: &[(u64, u64)]| {
            let found = p.take(&frames[row].0, &frames[row].1, lacking);
            for (hole, sum) in &found {
                let mut sum = sum.clone();
                let read = |at: u64, dst: &mut [u8]| {
                    let end = at + dst.len() as u64;
                    assert!(lacking.iter().all(|(a, b)| end <= *a || at >= *b), "missing bytes are read");
                    Bytes(want.clone()).read(0, at, dst);
                    true
                };
                let bytes = hole.restore(20_000, &mut sum, read).expect("restored");
                assert_eq!(bytes, &want[hole.offset as usize..][..usize::from(hole.len)]);
            }
            found.iter().map(|(hole, _)| (hole.offset, hole.offset + u64::from(hole.len))).collect::<Vec<_>>()
        };
        let mut p = ParityReceiver::default();
        assert_eq!(restored(&mut p, 0, &[(1500, 2000)]), [(1500, 2000)]);
        assert_eq!(restored(&mut p, 1, &[(1500, 2000)]), [], "in the same packet: it is being restored");
        let mut p = ParityReceiver::default();
        assert_eq!(restored(&mut p, 1, &[]), []);
        // Two neighbours, and a part of a third.
        let three = [(3000, 4000), (19_600, 19_900)];
        assert_eq!(restored(&mut p, 0, &three), []);
        assert_eq!(restored(&mut p, 0, &three), [], "the same row again is no other");
        assert_eq!(restored(&mut p, 1, &three), []);
        assert_eq!(restored(&mut p, 2, &three), [(3000, 3500), (3500, 4000), (19_600, 19_900)]);
        assert!(p.rows.is_empty());
        let mut p = ParityReceiver::default();
        // One came meanwhile, and the first row with it.
        assert_eq!(restored(&mut p, 1, &[(1000, 1500), (5000, 5500)]), []);
        assert_eq!(restored(&mut p, 2, &[(5000, 5500)]), [(5000, 5500)]);
        let mut p = ParityReceiver::default();
        assert_eq!(restored(&mut p, 2, &[(1000, 3000)]), [], "four");
        assert!(p.rows.is_empty());
    }

    // spec: P-6.34
    #[test]
    fn rows_and_groups_are_no_more_than_the_peer_takes() {
        for (takes, rows, fragments) in [(1, 1, 16), (2, 2, 32), (3, 3, 48)] {
            let mut t = Two::up(&quiet());
            t.ends[0].assocs[0].peer.parity_rows = takes;
            let m = Message { control: false, stream: 0, envelope: b"e", len: 500_000, patient: false, token: 2 };
            t.ends[0].send(t.now, P, m).expect("accepted");
            let mut most = (0, 0);
            for _ in 0..100 {
                t.now += Duration::from_micros(100);
                // As on a long lossy path, which this wire is not.
                t.ends[0].assocs[0].parity.active = true;
                for mut p in t.poll(0) {
                    has(&p, |f| {
                        if let Frame::Parity(p) = f {
                            most = (most.0.max(p.head.row + 1), most.1.max(p.head.count));
                        }
                        false
                    });
                    t.ends[1].handle(t.now, meta(0), &mut p, &mut t.events[1]);
                }
                t.exchange([1, 1]);
            }
            assert_eq!(most, (rows, fragments), "{takes} rows");
        }
    }

    /// Where packets have grown since a group was sent, several of its rows fit into one.
    // spec: P-6.37
    #[test]
    fn rows_of_a_group_in_one_packet_restore_it_once() {
        let mut t = Two::up(&Config::default());
        let o = t.ends[1].open_rndv(t.now, P, 1 << 20).expect("open");
        for bases in [[0, 0, 0], [0, 1000, 0]] {
            t.inject(0, |out| {
                for (row, base) in (0..).zip(bases) {
                    let head = ParityHead { key: DataKey::Rndv(o.handle), count: 1, row, frag: 100, base };
                    weir_wire::frame::write_parity_head(&head, out);
                    out.extend([0; 100]);
                }
            });
        }
        let restored = |e: &Event| if let Event::Parity { hole, .. } = e { Some(hole.base) } else { None };
        // (Another group is another matter.)
        assert_eq!(t.events[1].iter().filter_map(restored).collect::<Vec<_>>(), [0, 1000, 0]);
    }
}
