//! The grant scheduler: which incoming rendezvous transfer may send how far, over all peers of the
//! endpoint (spec 5).

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use weir_superstep::OwnQueue;

use crate::{Config, PeerId, Time};

mod meter;
mod told;

use meter::{Meter, SCALE_MIN, SCALE_ONE};

/// A rendezvous transfer that has not been granted to its end.
#[derive(Copy, Clone, Debug)]
struct Waiting {
    peer: PeerId,
    handle: u64,
    len: u64,
    granted: u64,
    /// Since when it got nothing.
    since: Time,
    /// Later rendezvous transfers served before it.
    overtaken: u8,
    /// Its sender has a bulk connection.
    bulk: bool,
}

/// What a peer was granted and has not sent.
#[derive(Copy, Clone, Debug, Default)]
struct Account {
    outstanding: u64,
    /// Of these, granted to rendezvous transfers while it had a bulk connection.
    bulk: u64,
    /// When it last had sent a step of it; of less, when it got the first grant.
    moved: Time,
    /// Bytes that came since then.
    came: u64,
    /// It fell silent: how much may be outstanding when it counts as awake again. Its rendezvous
    /// transfers are aside and what it was granted is not in the common sum.
    asleep: Option<u64>,
    /// Rendezvous transfers of it in `waiting`.
    in_line: u32,
    /// Its place in the superstep, from 1 on; 0: it has none.
    rank: u32,
    /// Bulk data goes to it, too.
    is_both_ways: bool,
    /// In this interval of the meter (by its number): packets it said are lacking, and how many of
    /// them may count.
    interval: u64,
    lacking: u64,
    may_lack: u64,
}

/// All rendezvous transfers waiting for grants.
#[derive(Debug)]
pub struct Grants {
    /// In order of arrival, by serial number; those of silent peers apart.
    waiting: BTreeMap<u64, Waiting>,
    aside: BTreeMap<u64, Waiting>,
    /// Those of peers that have a place in the superstep, by place and serial number: they are
    /// served in this order, before all others.
    placed: BTreeMap<(u32, u64), Waiting>,
    /// The peers that have a place.
    order: Vec<PeerId>,
    /// What waits in front of a grant in the interfaces of this endpoint and its peers, in the
    /// superstep.
    own_queue: OwnQueue,
    /// Peers that have any in `waiting`.
    peers_in_line: u64,
    /// Those of `waiting`, longest without a grant first.
    patience: BTreeSet<(Time, u64)>,
    by_handle: BTreeMap<(PeerId, u64), u64>,
    serial: u64,
    /// By index of the peer.
    accounts: Vec<Account>,
    /// Granted and not received, all peers but the silent ones.
    outstanding: u64,
    /// Of `outstanding`, what was granted to rendezvous transfers whose sender had a bulk
    /// connection.
    bulk_outstanding: u64,
    /// Who was granted last.
    last: PeerId,
    /// What these may be granted beyond the budget.
    bulk_extra: u64,
    floor: u64,
    ceiling: u64,
    step: u64,
    share: u64,
    overtake: u8,
    patience_ns: u64,
    /// When a rendezvous transfer that stands further back was last looked for.
    rescued: Time,
    /// Shrinks under loss, in [`SCALE_ONE`]ths.
    scale: u64,
    /// Packets that came in intervals without such loss since it last grew or shrank: a slow wire
    /// brings few in one.
    unharmed: u64,
    /// Shrinks under marks, likewise.
    unmarked: u64,
    /// Packets that came in intervals without marks or such loss.
    clean: u64,
    meter: Meter,
    /// Intervals after which the budget was made smaller because of marks.
    cuts: u64,
    /// Something happened for which [`Self::next`] has to be asked.
    changed: bool,
}

/// A rendezvous transfer whose sender has a bulk connection is granted at least so much at a time.
const BULK_STEP: u64 = 512 << 10;

/// Among so many senders the budget is divided while several wait and nothing is lost: one that was
/// granted all of it may have others to send to, and the wire would wait for it. (Homa, SIGCOMM
/// 2018, 3.3, overcommits to 7 or 8 for the same reason.) Where packets are lost they are fewer,
/// down to one: the bursts of many meet in the switch's queue.
const SENDERS_MAX: u64 = 8;
/// So many in line are looked at for those whose peers do not hold their part yet.
const LOOKED_AT_MAX: usize = 256;
/// No budget is smaller, whatever was configured and lost: below it every grant is a packet or two.
const BUDGET_MIN: u64 = 32 << 10;

/// What the rendezvous transfer's peer may be granted before it holds its `part`. What goes by bulk
/// connections is held back by TCP, and of short ones (`share`) each is soon over.
fn own_room(accounts: &[Account], share: u64, w: &Waiting, part: u64) -> u64 {
    if w.bulk || w.len <= share {
        return u64::MAX;
    }
    part.saturating_sub(accounts.get(w.peer.0 as usize).map_or(0, |a| a.outstanding))
}

impl Grants {
    pub(crate) fn new(cfg: &Config) -> Self {
        Grants {
            waiting: BTreeMap::new(),
            aside: BTreeMap::new(),
            placed: BTreeMap::new(),
            order: Vec::new(),
            own_queue: OwnQueue::System,
            peers_in_line: 0,
            patience: BTreeSet::new(),
            by_handle: BTreeMap::new(),
            serial: 0,
            accounts: Vec::new(),
            outstanding: 0,
            bulk_outstanding: 0,
            last: PeerId(0),
            bulk_extra: cfg.grant_bulk_extra,
            floor: cfg.grant_budget,
            ceiling: cfg.grant_budget_max.max(cfg.grant_budget),
            step: cfg.grant_step.max(1),
            share: cfg.grant_share,
            overtake: cfg.grant_overtake,
            patience_ns: cfg.grant_patience.as_nanos() as u64,
            rescued: Time::ZERO,
            scale: SCALE_ONE,
            unharmed: 0,
            unmarked: SCALE_ONE,
            clean: 0,
            meter: Meter { interval: 1, ..Meter::default() },
            cuts: 0,
            changed: false,
        }
    }

    /// What the wires hold, times so many quarters.
    fn wire(&self, quarters: u64) -> u64 {
        const NS: u64 = 1_000_000_000;
        // A division of 128 bits is slow.
        match self.meter.rate.checked_mul(self.meter.rtt_ns).and_then(|product| product.checked_mul(quarters)) {
            Some(product) => product / 4 / NS,
            None => {
                (u128::from(self.meter.rate) * u128::from(self.meter.rtt_ns) * u128::from(quarters)
                    / 4
                    / u128::from(NS)) as u64
            }
        }
    }

    /// Bytes that may be granted and unreceived: the configured budget, in a superstep what it
    /// takes ([`Self::told_ahead`]), plus what the wires hold and a quarter of it, less after loss.
    /// What is above the wires waits in queues: marks shrink that alone.
    fn budget(&self) -> u64 {
        let wire = self.wire(4);
        let above = self.ahead().saturating_add(self.wire(5) - wire);
        let above = (above * self.unmarked / SCALE_ONE).max(BUDGET_MIN.min(above));
        (above.saturating_add(wire).min(self.ceiling) * self.scale / SCALE_ONE).max(BUDGET_MIN)
    }

    /// Peers in line, and this one if it is not.
    fn peers_with(&self, account: &Account) -> u64 {
        self.peers_in_line + u64::from(account.in_line == 0)
    }

    /// What each of so many peers may hold while rendezvous transfers of theirs wait: its part of
    /// the budget. No bound where they are of one.
    fn part(&self, peers: u64) -> u64 {
        // Wires that hold little are filled by one sender after another; long ones are not.
        let scale = if self.wire(4) <= BUDGET_MIN { self.scale.min(self.unmarked) } else { self.scale };
        let most = 1 + (SENDERS_MAX - 1) * scale.saturating_sub(SCALE_MIN) / (SCALE_ONE - SCALE_MIN);
        match peers {
            0 | 1 => u64::MAX,
            several => (self.budget() / several.min(most)).max(self.step),
        }
    }

    /// What may be granted of it to a rendezvous transfer whose sender has a bulk connection, or to
    /// any other.
    fn room_for(&self, bulk: bool) -> u64 {
        // What goes by bulk connections takes nothing from the others: TCP holds it back where it
        // is too much.
        let (room, taken) = if bulk {
            (self.budget() + self.bulk_extra, self.outstanding)
        } else {
            (self.budget(), self.outstanding - self.bulk_outstanding)
        };
        room.saturating_sub(taken)
    }

    fn account(&mut self, peer: PeerId) -> &mut Account {
        let i = peer.0 as usize;
        if self.accounts.len() <= i {
            self.accounts.resize(i + 1, Account::default());
        }
        &mut self.accounts[i]
    }

    /// The peer was granted more.
    fn book(&mut self, now: Time, peer: PeerId, bytes: u64, bulk: bool) {
        let by_bulk = if bulk { bytes } else { 0 };
        self.outstanding += bytes;
        self.bulk_outstanding += by_bulk;
        if bytes > 0 {
            self.last = peer;
        }
        let a = self.account(peer);
        a.bulk += by_bulk;
        if a.outstanding == 0 {
            (a.moved, a.came) = (now, 0);
        }
        a.outstanding += bytes;
    }

    /// Bulk data goes to this peer, too, or not: what it is granted waits in two queues, the grants
    /// behind what goes to it and the data behind what comes from it (spec 5.3).
    pub fn set_both_ways(&mut self, peer: PeerId, on: bool) {
        self.account(peer).is_both_ways = on;
    }

    /// One peer holds all that is granted, nobody else waits, and bulk data goes to it, too.
    fn is_both_ways(&self) -> bool {
        let is_it = |a: &Account| a.outstanding > 0 && a.outstanding == self.outstanding && a.asleep.is_none();
        let alone = |a: &Account| self.placed.is_empty() && self.peers_in_line == u64::from(a.in_line > 0);
        self.accounts.get(self.last.0 as usize).is_some_and(|a| a.is_both_ways && is_it(a) && alone(a))
    }

    /// A rendezvous transfer was opened: what it may send at once. Registered if that is not all.
    pub(crate) fn open(&mut self, now: Time, peer: PeerId, len: u64, bulk: bool) -> u64 {
        let room = self.room_for(bulk);
        let account = *self.account(peer);
        let granted = if account.asleep.is_some() {
            0
        } else if bulk {
            // Those that wait come first.
            if self.nobody_waits() { len.min(room) } else { 0 }
        } else if account.rank > 0 {
            self.open_told(&account, len, room)
        } else if self.nobody_waits() {
            len.min(room).min((room / 2).max(self.share))
        } else if len <= self.share || self.peers_with(&account) == 1 {
            if room >= len.min(self.share) { len.min(self.share) } else { 0 }
        } else if room >= self.share && self.in_turn(self.part(self.peers_with(&account))).is_none() {
            // Those that wait hold their parts.
            self.share.min(self.part(self.peers_with(&account)).saturating_sub(account.outstanding))
        } else {
            0
        };
        self.book(now, peer, granted, bulk);
        granted
    }

    /// Puts a rendezvous transfer that is not granted to its end in the queue.
    pub(crate) fn wait(&mut self, now: Time, peer: PeerId, handle: u64, len: u64, granted: u64, bulk: bool) {
        if granted >= len {
            return;
        }
        let w = Waiting { peer, handle, len, granted, since: now, overtaken: 0, bulk };
        self.serial += 1;
        self.by_handle.insert((peer, handle), self.serial);
        if self.account(peer).asleep.is_some() {
            self.aside.insert(self.serial, w);
        } else {
            self.line_up(self.serial, w);
            self.changed = true;
        }
    }

    fn nobody_waits(&self) -> bool {
        self.waiting.is_empty() && self.placed.is_empty()
    }

    /// Puts a rendezvous transfer where it stands in line.
    fn line_up(&mut self, serial: u64, w: Waiting) {
        match self.account(w.peer).rank {
            0 => {
                self.patience.insert((w.since, serial));
                self.waiting.insert(serial, w);
                let a = self.account(w.peer);
                a.in_line += 1;
                self.peers_in_line += u64::from(a.in_line == 1);
            }
            rank => _ = self.placed.insert((rank, serial), w),
        }
    }

    fn left_line(&mut self, peer: PeerId) {
        let a = self.account(peer);
        let was_last = a.in_line == 1;
        a.in_line = a.in_line.saturating_sub(1);
        self.peers_in_line = self.peers_in_line.saturating_sub(u64::from(was_last));
    }

    /// Takes a rendezvous transfer out of the line, wherever it stands.
    fn leave_line(&mut self, peer: PeerId, serial: u64) -> Option<Waiting> {
        let rank = self.account(peer).rank;
        if let Some(w) = self.placed.remove(&(rank, serial)) {
            return Some(w);
        }
        let w = self.waiting.remove(&serial)?;
        self.patience.remove(&(w.since, serial));
        self.left_line(peer);
        Some(w)
    }

    /// Granted bytes arrived.
    pub fn arrived(&mut self, now: Time, peer: PeerId, bytes: u64) {
        let step = self.step;
        let a = self.account(peer);
        a.came += bytes;
        if a.came >= step {
            (a.moved, a.came) = (now, 0);
        }
        self.returned(now, peer, bytes);
    }

    /// Granted bytes arrived, or will not come any more.
    pub(crate) fn returned(&mut self, now: Time, peer: PeerId, bytes: u64) {
        let a = self.account(peer);
        let bytes = bytes.min(a.outstanding);
        a.outstanding -= bytes;
        let by_bulk = bytes.min(a.bulk);
        a.bulk -= by_bulk;
        match a.asleep {
            Some(wake) if a.outstanding <= wake => self.wake(now, peer),
            Some(_) => {}
            None => {
                self.outstanding -= bytes;
                self.bulk_outstanding -= by_bulk;
                self.changed |= !self.nobody_waits();
            }
        }
    }

    /// Whether the peer has fallen silent: it was granted something and for `after_ns` sent less
    /// than a step. Then what it holds is left to the others, and its rendezvous transfers get no
    /// more. Returns when to ask again, if anything is outstanding.
    pub(crate) fn watch(&mut self, now: Time, peer: PeerId, after_ns: u64) -> Option<Time> {
        let a = self.account(peer);
        if a.outstanding == 0 {
            return None;
        }
        if a.asleep.is_some() {
            return Some(now.plus_ns(after_ns));
        }
        let at = a.moved.plus_ns(after_ns);
        if at > now {
            return Some(at);
        }
        a.asleep = Some(a.outstanding / 2);
        let (out, bulk) = (a.outstanding, a.bulk);
        self.outstanding -= out;
        self.bulk_outstanding -= bulk;
        for serial in self.serials(peer) {
            if let Some(w) = self.leave_line(peer, serial) {
                self.aside.insert(serial, w);
            }
        }
        self.changed |= !self.nobody_waits();
        Some(now.plus_ns(after_ns))
    }

    /// A silent peer has sent half of what it held: it counts again.
    fn wake(&mut self, now: Time, peer: PeerId) {
        let a = self.account(peer);
        (a.asleep, a.moved, a.came) = (None, now, 0);
        let (out, bulk) = (a.outstanding, a.bulk);
        self.outstanding += out;
        self.bulk_outstanding += bulk;
        for serial in self.serials(peer) {
            if let Some(w) = self.aside.remove(&serial) {
                // It was its own affair that it got nothing.
                self.line_up(serial, Waiting { since: now, ..w });
            }
        }
        self.changed |= !self.nobody_waits();
    }

    /// The peer has no bulk connection any more: its rendezvous transfers get what all get.
    pub(crate) fn bulk_over(&mut self, peer: PeerId) {
        let rank = self.account(peer).rank;
        for serial in self.serials(peer) {
            let placed = self.placed.get_mut(&(rank, serial));
            if let Some(w) = placed.or_else(|| self.waiting.get_mut(&serial)).or_else(|| self.aside.get_mut(&serial)) {
                w.bulk = false;
            }
        }
        self.changed |= !self.nobody_waits();
    }

    /// Serial numbers of the peer's rendezvous transfers.
    fn serials(&self, peer: PeerId) -> Vec<u64> {
        self.by_handle.range((peer, 0)..=(peer, u64::MAX)).map(|(_, s)| *s).collect()
    }

    /// The rendezvous transfer is gone.
    pub(crate) fn forget(&mut self, peer: PeerId, handle: u64) {
        let Some(serial) = self.by_handle.remove(&(peer, handle)) else { return };
        if self.leave_line(peer, serial).is_some() {
            self.changed |= !self.nobody_waits();
        }
        self.aside.remove(&serial);
    }

    /// The peer is gone, with all that it was granted.
    pub(crate) fn forget_peer(&mut self, peer: PeerId) {
        let handles: Vec<u64> = self.by_handle.range((peer, 0)..=(peer, u64::MAX)).map(|(k, _)| k.1).collect();
        for h in handles {
            self.forget(peer, h);
        }
        let Some(a) = self.accounts.get_mut(peer.0 as usize) else { return };
        // Its place may be another's; in the order it stays named until the next superstep, and
        // nothing of it waits.
        let a = core::mem::take(a);
        if a.asleep.is_none() && a.outstanding > 0 {
            self.outstanding -= a.outstanding;
            self.bulk_outstanding -= a.bulk;
            self.changed |= !self.nobody_waits();
        }
    }

    /// Something happened for which [`crate::Sessions::run_grants`] is to be called.
    #[must_use]
    #[inline]
    pub fn has_changed(&self) -> bool {
        self.changed
    }

    pub(crate) fn asked(&mut self) {
        self.changed = false;
    }

    /// Next rendezvous transfer to raise and its new limit. Call until `None`.
    pub fn next(&mut self, now: Time) -> Option<(PeerId, u64, u64)> {
        let starved = self.starved(now);
        if starved.is_none() && self.room_for(false) == 0 && self.room_for(true) == 0 {
            return None;
        }
        if starved.is_none()
            && let Some(raised) = self.next_told(now)
        {
            return Some(raised);
        }
        let part = self.part(self.peers_in_line);
        let (serial, is_rescue) = match starved {
            Some(pick) => pick,
            None => (self.in_turn(part)?, false),
        };
        let w = *self.waiting.get(&serial)?;
        let left = w.len - w.granted;
        // Starved rendezvous transfers get one share above the budget.
        let own = own_room(&self.accounts, self.share, &w, part);
        let room = self.room_for(w.bulk).min(own).max(if starved.is_some() { self.step } else { 0 });
        let add = left.min(if starved.is_some() { room.min(self.share.max(self.step)) } else { room });
        if !is_rescue {
            let before = self.waiting.range_mut(..serial).take(LOOKED_AT_MAX).map(|(_, e)| e);
            for e in before.filter(|e| own_room(&self.accounts, self.share, e, part) >= self.step) {
                e.overtaken = e.overtaken.saturating_add(1);
            }
        }
        self.book(now, w.peer, add, w.bulk);
        self.patience.remove(&(w.since, serial));
        let w = Waiting { granted: w.granted + add, since: now, overtaken: 0, ..w };
        if w.granted == w.len {
            self.waiting.remove(&serial);
            self.left_line(w.peer);
            self.by_handle.remove(&(w.peer, w.handle));
        } else {
            self.patience.insert((now, serial));
            self.waiting.insert(serial, w);
        }
        Some((w.peer, w.handle, w.granted))
    }

    /// What it is worth to be granted at a time: by a bulk connection a piece that fills a record,
    /// for each costs a packet.
    fn least(&self, w: &Waiting) -> u64 {
        (w.len - w.granted).min(if w.bulk { BULK_STEP } else { self.step })
    }

    /// Those that stand in front.
    fn front(&self) -> impl Iterator<Item = (&u64, &Waiting)> {
        self.waiting.iter().take(usize::from(self.overtake) + 1)
    }

    /// Of those in front the rendezvous transfer that has waited longest beyond patience. Else, if
    /// all of them are of one peer, once in that time the longest waiting of another; and whether
    /// it is such a one, which overtakes nobody.
    fn starved(&mut self, now: Time) -> Option<(u64, bool)> {
        let due = |since| now.since_ns(since) >= self.patience_ns;
        self.patience.first().filter(|p| due(p.0))?;
        let front = self.front().filter(|(_, w)| due(w.since));
        let in_front = front.min_by_key(|(_, w)| w.since).map(|(s, _)| (*s, false));
        if in_front.is_some() || !due(self.rescued) {
            return in_front;
        }
        let (_, first) = self.waiting.first_key_value()?;
        let mut others = self.patience.iter().take_while(|p| due(p.0));
        let of_another = |serial| self.waiting.get(serial).is_some_and(|w| w.peer != first.peer);
        let alone = self.front().all(|(_, w)| w.peer == first.peer);
        let found = others.find(|(_, serial)| alone && of_another(serial)).map(|(_, serial)| (*serial, true));
        self.rescued = now;
        found
    }

    /// Of those in front whose peers do not hold their `part` yet, the one with least to come. For
    /// a first one that was overtaken often enough room is saved: nobody who would take of it
    /// passes any more.
    fn in_turn(&self, part: u64) -> Option<u64> {
        let may_get = |w: &Waiting| own_room(&self.accounts, self.share, w, part) >= self.least(w);
        let has_room = |w: &Waiting| self.room_for(w.bulk) >= self.least(w);
        let mut line = self.waiting.iter().take(LOOKED_AT_MAX).filter(|(_, w)| may_get(w));
        let (&serial, first) = line.next()?;
        let saving = first.overtaken >= self.overtake;
        if saving && has_room(first) {
            return Some(serial);
        }
        core::iter::once((&serial, first))
            .chain(line.take(usize::from(self.overtake)))
            .filter(|(_, w)| has_room(w) && !(saving && w.bulk == first.bulk))
            .min_by_key(|(_, w)| w.len - w.granted)
            .map(|(s, _)| *s)
    }

    /// When a waiting rendezvous transfer has lost patience.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        self.patience.first().map(|&(oldest, _)| {
            let front = self.front().map(|(_, w)| w.since).min().unwrap_or(Time::MAX);
            front.min(oldest.max(self.rescued)).plus_ns(self.patience_ns)
        })
    }

    /// Bytes granted and not received, all peers but the silent ones.
    #[must_use]
    pub fn outstanding(&self) -> u64 {
        self.outstanding
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    // spec: P-6.49
    #[test]
    fn the_budget_is_twice_for_one_alone_with_whom_bulk_data_goes_both_ways() {
        let cfg = Config { grant_budget: 256 << 10, ..Config::default() };
        let (one, other, len) = (PeerId(0), PeerId(1), 1 << 20);
        for (is_both, others, budget) in [(false, false, 256u64), (true, false, 512), (true, true, 256)] {
            let mut g = Grants::new(&cfg);
            g.set_both_ways(one, is_both);
            let mut granted = g.open(Time(0), one, len, false);
            g.wait(Time(0), one, 1, len, granted, false);
            if others {
                let first = g.open(Time(0), other, len, false);
                g.wait(Time(0), other, 2, len, first, false);
                granted += first;
            }
            while let Some((peer, handle, to)) = g.next(Time(0)) {
                assert!(peer == one || others, "{peer:?} {handle} {to}");
            }
            assert!(g.outstanding() >= granted);
            assert_eq!(g.outstanding(), budget << 10, "{is_both} {others}");
        }
    }

    #[test]
    fn nobody_stays_due_behind_a_first_that_was_served() {
        let cfg = Config { grant_budget: 64 << 10, ..Config::default() };
        let mut g = Grants::new(&cfg);
        for i in 0..3 {
            let (t, p) = (Time(1 + i), PeerId(i as u32));
            let granted = g.open(t, p, 1 << 20, false);
            // The last has least to come: it is everyone's first choice.
            g.wait(t, p, 7, (1 << 20) - i * 65536, granted, false);
        }
        let late = Time(20 * MS);
        let mut served = [0; 3];
        while let Some((peer, ..)) = g.next(late) {
            served[peer.0 as usize] += 1;
        }
        assert_eq!(served, [1, 1, 1]);
        assert!(g.deadline().is_some_and(|t| t > late), "a deadline in the past that nothing answers is a busy loop");
    }

    // spec: P-5.17, P-5.18, P-5.19
    #[test]
    fn budget_order_and_patience() {
        let cfg = Config { grant_budget: 256 << 10, ..Config::default() };
        let mut g = Grants::new(&cfg);
        let t = Time(1);
        let a = g.open(t, PeerId(0), 10 << 20, false);
        assert_eq!(a, 128 << 10);
        g.wait(t, PeerId(0), 1, 10 << 20, a, false);
        let b = g.open(t, PeerId(1), 1 << 20, false);
        assert_eq!(b, 64 << 10);
        g.wait(t, PeerId(1), 2, 1 << 20, b, false);
        // The smaller one first, up to the budget.
        assert_eq!(g.next(t), Some((PeerId(1), 2, 128 << 10)));
        assert_eq!(g.next(t), None);
        assert_eq!(g.outstanding(), 256 << 10);
        g.arrived(t, PeerId(1), 16 << 10);
        assert_eq!(g.next(t), Some((PeerId(1), 2, 144 << 10)));
        // The big one has waited long enough.
        let late = Time(20 * MS);
        assert_eq!(g.next(late).map(|x| x.0), Some(PeerId(0)));
        g.forget_peer(PeerId(0));
        g.forget(PeerId(1), 2);
        assert_eq!(g.deadline(), None);
        g.forget_peer(PeerId(1));
        assert_eq!(g.outstanding(), 0);
    }

    // spec: P-5.18
    #[test]
    fn room_is_saved_for_a_first_that_was_overtaken_often_enough() {
        let cfg = Config { grant_budget: 64 << 10, ..Config::default() };
        let mut g = Grants::new(&cfg);
        let (t, holder) = (Time(1), PeerId(3));
        assert_eq!(g.open(t, holder, 64 << 10, false), 64 << 10);
        g.wait(t, PeerId(0), 0, 10 << 20, 0, false);
        // Rendezvous transfers of a packet or two stand behind it and pass it as often as they may.
        for h in 1..=12 {
            g.wait(t, PeerId(1), h, 3000, 0, false);
        }
        for _ in 0..g.overtake {
            g.arrived(t, holder, 3000);
            assert_eq!(g.next(t).map(|n| n.0), Some(PeerId(1)));
            assert_eq!(g.next(t), None);
        }
        // What comes free from now on is kept until it is a step for the first.
        for _ in 0..5 {
            g.arrived(t, holder, 3000);
            assert_eq!(g.next(t), None);
        }
        // A rendezvous transfer by a bulk connection has room of its own.
        g.wait(t, PeerId(2), 99, 3000, 0, true);
        assert_eq!(g.next(t).map(|n| n.0), Some(PeerId(2)));
        g.arrived(t, holder, 3000);
        assert_eq!(g.next(t).map(|n| n.0), Some(PeerId(0)));
    }

    /// Of eight that wait each is granted its part, whoever is first and has least; one that does
    /// not send leaves the others theirs.
    // spec: P-5.25
    #[test]
    fn the_budget_is_divided_among_those_that_wait() {
        let mut g = Grants::new(&Config::default());
        let t = Time(1);
        for p in 0..9 {
            g.wait(t, PeerId(p), 1, (1 << 20) - u64::from(p), 0, false);
        }
        let mut got = [0; 9];
        while let Some((peer, _, limit)) = g.next(t) {
            got[peer.0 as usize] = limit;
        }
        assert_eq!(got, [0, 32 << 10, 32 << 10, 32 << 10, 32 << 10, 32 << 10, 32 << 10, 32 << 10, 32 << 10]);
        // The first was overtaken often enough; after it who brought something is granted more, and
        // not those that hold their part.
        g.arrived(t, PeerId(5), 32 << 10);
        assert_eq!(g.next(t).map(|n| n.0), Some(PeerId(0)));
        g.arrived(t, PeerId(6), 16 << 10);
        assert_eq!(g.next(t), Some((PeerId(6), 1, 48 << 10)));
        // Loss: fewer, down to one.
        g.scale = SCALE_MIN;
        assert_eq!(g.part(g.peers_in_line), BUDGET_MIN);
        // One alone gets all there is.
        g.scale = SCALE_ONE;
        (0..8).for_each(|p| g.forget_peer(PeerId(p)));
        assert_eq!((g.next(t), g.next(t)), (Some((PeerId(8), 1, 256 << 10)), None));
    }

    #[test]
    fn what_a_silent_peer_holds_is_left_to_the_others_until_it_sends_again() {
        let mut g = Grants::new(&Config::default());
        let (silent, busy) = (PeerId(0), PeerId(1));
        let mut held = 0;
        for h in 0..16 {
            let granted = g.open(Time(1), silent, 1 << 20, false);
            g.wait(Time(1), silent, h, 1 << 20, granted, false);
            held += granted;
        }
        while let Some((_, _, _)) = g.next(Time(1)) {}
        assert!(held <= 256 << 10 && g.outstanding() == 256 << 10);
        let granted = g.open(Time(MS), busy, 100 << 20, false);
        g.wait(Time(MS), busy, 1, 100 << 20, granted, false);
        assert_eq!((granted, g.next(Time(MS))), (0, None));
        // It has not sent a step for 8 ms.
        assert_eq!(g.watch(Time(7 * MS), silent, 8 * MS).map(|t| t > Time(7 * MS)), Some(true));
        assert_eq!(g.next(Time(7 * MS)), None);
        g.watch(Time(9 * MS), silent, 8 * MS);
        assert!(g.changed);
        assert_eq!(g.next(Time(9 * MS)), Some((busy, 1, 256 << 10)));
        // A byte now and then does not give it back its hold on everybody; nor do new rendezvous
        // transfers.
        g.arrived(Time(10 * MS), silent, 1);
        let more = g.open(Time(10 * MS), silent, 1 << 20, false);
        g.wait(Time(10 * MS), silent, 99, 1 << 20, more, false);
        assert_eq!((more, g.outstanding()), (0, 256 << 10));
        g.arrived(Time(10 * MS), busy, 64 << 10);
        assert_eq!(g.next(Time(10 * MS)), Some((busy, 1, 320 << 10)));
        // It sends half of what it held: it takes part again.
        g.arrived(Time(15 * MS), silent, 128 << 10);
        assert_eq!(g.outstanding(), (384 << 10) - 1);
        g.arrived(Time(15 * MS), busy, 256 << 10);
        // It still holds its half of the budget; what it holds less of is granted anew.
        assert_eq!(g.next(Time(15 * MS)).map(|x| x.0), Some(busy));
        g.arrived(Time(15 * MS), silent, 64 << 10);
        assert_eq!(g.next(Time(15 * MS)).map(|x| x.0), Some(silent));
        g.forget_peer(silent);
        g.forget_peer(busy);
        assert_eq!((g.outstanding(), g.deadline()), (0, None));
    }

    // spec: P-5.19
    #[test]
    fn one_peer_with_all_places_in_front_does_not_starve_the_others() {
        let cfg = Config { grant_budget: 64 << 10, ..Config::default() };
        let mut g = Grants::new(&cfg);
        for h in 0..52 {
            let peer = PeerId(h.max(49) - 49);
            let granted = g.open(Time(1), peer, 1 << 20, false);
            g.wait(Time(1), peer, u64::from(h), 1 << 20, granted, false);
        }
        let mut served = BTreeSet::new();
        let mut t = Time(1);
        while served.len() < 3 {
            t = g.deadline().expect("some wait").max(t);
            assert!(t < Time(60 * MS), "{served:?}");
            let mut n = 0;
            while let Some((peer, ..)) = g.next(t) {
                served.insert(peer);
                n += 1;
            }
            assert!(n <= 10, "above the budget there are few shares at a time, not {n}");
            assert!(g.deadline().is_some_and(|d| d > t), "a deadline in the past that nothing answers is a busy loop");
        }
    }
}
