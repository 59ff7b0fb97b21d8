//! Links whose rate is shared anew whenever a message begins or ends to pass them
//! (`spec/prediction.md` 4.6): rates are max-min fair among all flows that are connected by full
//! links.
//!
//! What a flow has left is its end at its present rate; a change of its rate stretches that. So a
//! flow whose share does not change is not touched, and shares that are simple ratios of the rate
//! alone leave no rounding behind but that of a unit. What begins and ends at one time is taken
//! together ([`Flows::settle`]).

use crate::Time;
use crate::machine::MOST_HOPS;
use crate::tour::{Kind, Order, Tour, What};

/// Limited links on a way at most: a route, and a node's link at each end.
const MOST_LINKS: usize = MOST_HOPS + 2;
/// Shares that differ by less are the same: they were divided differently.
const SAME: f64 = 1.0 + 1e-12;
/// Ratios that differ by less from one of whole numbers up to [`SIMPLE`] are that.
const NEAR: f64 = 1e-12;
/// See [`NEAR`].
const SIMPLE: f64 = 1024.0;
/// How much a flow is slowed at most: rates are numbers of 53 digits.
const MOST_SLOWED: f64 = 1e15;
/// No sum of rates is counted beyond, so that sums have room.
const MOST_RATE: f64 = 1e30;

/// A message's bytes on their way.
#[derive(Debug, Clone)]
struct Flow {
    message: u32,
    /// Its place among events of one time.
    key: u64,
    links: [u32; MOST_LINKS],
    len: u8,
    /// Bytes per second if it met nobody.
    alone: f64,
    /// How many times as long as alone its bytes take now.
    slowed: Ratio,
    began: Time,
    /// When it ends if nothing changes.
    ends: Time,
    /// Place in the order of all flows.
    number: u64,
    /// Place in the heap.
    heap_at: u32,
    /// The last look that came by.
    mark: u64,
}

impl Flow {
    fn links(&self) -> &[u32] {
        &self.links[..usize::from(self.len)]
    }
}

/// A ratio of whole numbers, at least 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Ratio(u64, u64);

impl Ratio {
    const ONE: Self = Self(1, 1);

    /// The nearest simple one, or the number as it is.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounds are looked at")]
    fn of(value: f64) -> Self {
        let value = value.clamp(1.0, MOST_SLOWED);
        // Convergents of the continued fraction.
        let (mut before, mut now) = ((1.0, 0.0), (value.floor(), 1.0));
        let mut rest = value - value.floor();
        loop {
            if (now.0 / now.1 - value).abs() <= value * NEAR {
                return Self(now.0 as u64, now.1 as u64);
            }
            let next = 1.0 / rest;
            let whole = next.floor();
            (before, now) = (now, (whole * now.0 + before.0, whole * now.1 + before.1));
            if now.1 > SIMPLE {
                break;
            }
            rest = next - whole;
        }
        // 53 digits, of which some are behind the point.
        let bits = value.to_bits();
        let behind = 1075 - (bits >> 52);
        Self(bits & ((1 << 52) - 1) | 1 << 52, 1 << behind)
    }

    #[expect(clippy::cast_precision_loss, reason = "a rate is no exact number")]
    fn value(self) -> f64 {
        self.0 as f64 / self.1 as f64
    }
}

/// What flows share.
#[derive(Debug, Clone)]
struct Shared {
    /// Bytes per second; none: no limit.
    limit: Option<f64>,
    /// The flows on it, in no order.
    flows: Vec<u32>,
    /// Sum of their rates alone, each rounded up: whole, so that it does not depend on the order.
    wanted: u128,
    /// Of the look at hand: what is left of the limit, and for how many flows.
    left: f64,
    open: u32,
    mark: u64,
}

impl Shared {
    /// Whether it can slow its flows at all.
    fn is_tight(&self) -> bool {
        self.limit.is_some_and(|limit| self.wanted > whole(limit.floor()))
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounds are looked at")]
fn whole(rate: f64) -> u128 {
    rate.clamp(0.0, MOST_RATE) as u128
}

/// All flows of a run.
#[derive(Debug)]
pub(crate) struct Flows {
    shared: Vec<Shared>,
    flows: Vec<Flow>,
    free: Vec<u32>,
    /// Flows by their ends, earliest first.
    heap: Vec<u32>,
    numbers: u64,
    marks: u64,
    /// Those connected with the one at hand.
    near: Vec<u32>,
    near_links: Vec<u32>,
    /// Links on which something began, or (true) ended, since rates were set.
    changed: Vec<(u32, bool)>,
    /// Of the round at hand: who is given a rate, and how much it is slowed.
    given: Vec<(u32, Ratio)>,
    /// Flows looked at: work that no other count shows.
    pub looked: u64,
}

/// A flow to begin.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Beginning<'a> {
    pub message: u32,
    pub key: u64,
    pub bytes: u64,
    /// Bytes per second if it met nobody: at most each limit on its way.
    pub alone: f64,
    /// What it passes, at most [`MOST_LINKS`].
    pub links: &'a [u32],
}

impl Flows {
    /// Links with their limits.
    pub fn new(limits: impl Iterator<Item = Option<f64>>) -> Self {
        let one = |limit| Shared { limit, flows: Vec::new(), wanted: 0, left: 0.0, open: 0, mark: 0 };
        Self {
            shared: limits.map(one).collect(),
            flows: Vec::new(),
            free: Vec::new(),
            heap: Vec::new(),
            numbers: 0,
            marks: 0,
            near: Vec::new(),
            near_links: Vec::new(),
            changed: Vec::new(),
            given: Vec::new(),
            looked: 0,
        }
    }

    /// Whether something began or ended since rates were set: ends beyond now are not known then.
    #[inline]
    pub fn is_unsettled(&self) -> bool {
        !self.changed.is_empty()
    }

    /// Sets rates anew after all that began and ended until now.
    pub fn settle(&mut self, now: Time) {
        let mut changed = std::mem::take(&mut self.changed);
        self.look(&changed);
        changed.clear();
        self.changed = changed;
        self.share(now);
    }

    /// The next end, and its place among events of that time. Beyond now only if rates are settled.
    #[inline]
    pub fn first(&self) -> Option<(Time, u64)> {
        self.heap.first().map(|id| self.order_of(*id))
    }

    /// How many there are.
    pub fn live(&self) -> usize {
        self.heap.len()
    }

    /// The last end of all, as things are.
    pub fn last_end(&self) -> Time {
        self.heap.iter().map(|id| self.flows[*id as usize].ends).max().unwrap_or(Time::ZERO)
    }

    /// A message's bytes set out.
    pub fn begin(&mut self, now: Time, what: Beginning<'_>) {
        self.numbers += 1;
        let mut flow = Flow {
            message: what.message,
            key: what.key,
            links: [0; MOST_LINKS],
            len: 0,
            alone: what.alone,
            slowed: Ratio::ONE,
            began: now,
            ends: now + Time::of_bytes(what.bytes, what.alone),
            number: self.numbers,
            heap_at: self.heap.len() as u32,
            mark: 0,
        };
        let limited = what.links.iter().filter(|link| self.shared[**link as usize].limit.is_some());
        for (slot, link) in flow.links.iter_mut().zip(limited) {
            *slot = *link;
            flow.len += 1;
        }
        let (links, len) = (flow.links, usize::from(flow.len));
        let id = match self.free.pop() {
            Some(id) => {
                self.flows[id as usize] = flow;
                id
            }
            None => {
                self.flows.push(flow);
                (self.flows.len() - 1) as u32
            }
        };
        self.heap.push(id);
        self.up(self.heap.len() - 1);
        for link in &links[..len] {
            let shared = &mut self.shared[*link as usize];
            shared.flows.push(id);
            shared.wanted += whole(what.alone.ceil());
            self.changed.push((*link, false));
        }
    }

    /// The flow that ends first ends: its message, and when it began.
    pub fn end(&mut self) -> Option<(u32, Time)> {
        let id = *self.heap.first()?;
        let last = self.heap.len() - 1;
        self.heap.swap(0, last);
        self.heap.pop();
        if let Some(moved) = self.heap.first() {
            self.flows[*moved as usize].heap_at = 0;
            self.down(0);
        }
        let flow = &self.flows[id as usize];
        let (message, began, alone, links, len) =
            (flow.message, flow.began, flow.alone, flow.links, usize::from(flow.len));
        for link in &links[..len] {
            let shared = &mut self.shared[*link as usize];
            if let Some(at) = shared.flows.iter().position(|other| *other == id) {
                shared.flows.swap_remove(at);
                shared.wanted -= whole(alone.ceil());
            }
            self.changed.push((*link, true));
        }
        self.free.push(id);
        Some((message, began))
    }

    /// Collects the flows whose rates may change because of what happened on these links: those on
    /// them, and those connected with these by links that can slow anybody. Where something ended,
    /// the link may have been full before.
    fn look(&mut self, links: &[(u32, bool)]) {
        self.marks += 1;
        let mark = self.marks;
        self.near.clear();
        self.near_links.clear();
        let Self { shared, flows, near, near_links, .. } = self;
        let mut visit = |link: u32, any: bool, flows: &mut Vec<Flow>, near: &mut Vec<u32>| {
            let one = &mut shared[link as usize];
            if one.mark == mark {
                return;
            }
            let tight = one.is_tight();
            if !tight && !any {
                return;
            }
            one.mark = mark;
            if tight {
                near_links.push(link);
            }
            for id in &one.flows {
                let flow = &mut flows[*id as usize];
                if flow.mark != mark {
                    flow.mark = mark;
                    near.push(*id);
                }
            }
        };
        links.iter().for_each(|(link, ended)| visit(*link, *ended, flows, near));
        let mut at = 0;
        while let Some(id) = near.get(at) {
            let (links, len) = (flows[*id as usize].links, usize::from(flows[*id as usize].len));
            links[..len].iter().for_each(|link| visit(*link, false, flows, near));
            at += 1;
        }
        self.looked += self.near.len() as u64;
    }

    /// Sets the rates of the flows that were collected: the least share of any link that is left,
    /// or a flow's own limit, is given to those it limits, and so on with what remains.
    fn share(&mut self, now: Time) {
        let mut near = std::mem::take(&mut self.near);
        if near.len() > 1 {
            near.sort_unstable_by_key(|id| self.flows[*id as usize].number);
        }
        for link in &self.near_links {
            let shared = &mut self.shared[*link as usize];
            (shared.left, shared.open) = (shared.limit.unwrap_or(f64::INFINITY), shared.flows.len() as u32);
        }
        let mut least = 0.0f64;
        let mut open = near.len();
        while open > 0 {
            let shares = self.near_links.iter().map(|link| &self.shared[*link as usize]).filter(|one| one.open > 0);
            let full = shares.map(|one| one.left / f64::from(one.open)).fold(f64::INFINITY, f64::min);
            let own = near[..open].iter().map(|id| self.flows[*id as usize].alone).fold(full, f64::min);
            least = least.max(own);
            // Those that are given their rate in this round go behind the others; their order
            // stays.
            let given = self.round(&mut near[..open], least * SAME, least, now);
            open -= given;
        }
        near.clear();
        self.near = near;
    }

    /// One round: how many flows were given their rate. These are at the end of `open` afterwards.
    fn round(&mut self, open: &mut [u32], bound: f64, least: f64, now: Time) -> usize {
        let mut kept = 0;
        let mut given = 0;
        let mut rates = std::mem::take(&mut self.given);
        rates.clear();
        for at in 0..open.len() {
            let id = open[at];
            match self.slowed(id, bound, least) {
                Some(slowed) => {
                    rates.push((id, slowed));
                    given += 1;
                }
                None => {
                    open[kept] = id;
                    kept += 1;
                }
            }
        }
        for (slot, (id, slowed)) in open[kept..].iter_mut().zip(&rates) {
            *slot = *id;
            let flow = &self.flows[*id as usize];
            let (rate, links, len) = (flow.alone / slowed.value(), flow.links, usize::from(flow.len));
            for link in &links[..len] {
                let shared = &mut self.shared[*link as usize];
                shared.left = (shared.left - rate).max(0.0);
                shared.open = shared.open.saturating_sub(1);
            }
            self.set(*id, *slowed, now);
        }
        self.given = rates;
        given
    }

    /// How much a flow is slowed if a share of at most `bound` limits it.
    fn slowed(&self, id: u32, bound: f64, least: f64) -> Option<Ratio> {
        let flow = &self.flows[id as usize];
        let mut found: Option<(f64, f64)> = None;
        for link in flow.links() {
            let shared = &self.shared[*link as usize];
            if shared.mark != self.marks || shared.open == 0 || !shared.is_tight() {
                continue;
            }
            let share = shared.left / f64::from(shared.open);
            if share <= bound && found.is_none_or(|(least, _)| share < least) {
                found = Some((share, flow.alone / shared.left * f64::from(shared.open)));
            }
        }
        match found {
            Some((share, slowed)) if share >= least => Some(Ratio::of(slowed)),
            // Divided differently, it would be a little less than before.
            Some(_) => Some(Ratio::of(flow.alone / least)),
            None => (flow.alone <= bound).then_some(Ratio::ONE),
        }
    }

    fn set(&mut self, id: u32, slowed: Ratio, now: Time) {
        let flow = &mut self.flows[id as usize];
        if slowed == flow.slowed {
            return;
        }
        let before = flow.ends;
        let (times, parts) =
            (u128::from(slowed.0) * u128::from(flow.slowed.1), u128::from(slowed.1) * u128::from(flow.slowed.0));
        flow.ends = now + (flow.ends - now).fraction(times, parts);
        flow.slowed = slowed;
        let at = flow.heap_at as usize;
        if flow.ends < before {
            self.up(at);
        } else {
            self.down(at);
        }
    }

    fn order_of(&self, id: u32) -> (Time, u64) {
        let flow = &self.flows[id as usize];
        (flow.ends, flow.key)
    }

    fn up(&mut self, mut at: usize) {
        while at > 0 {
            let above = (at - 1) / 2;
            if self.order_of(self.heap[above]) <= self.order_of(self.heap[at]) {
                return;
            }
            self.exchange(at, above);
            at = above;
        }
    }

    fn down(&mut self, mut at: usize) {
        loop {
            let first = 2 * at + 1;
            let below = (first..(first + 2).min(self.heap.len())).min_by_key(|below| self.order_of(self.heap[*below]));
            match below {
                Some(below) if self.order_of(self.heap[below]) < self.order_of(self.heap[at]) => {
                    self.exchange(at, below);
                    at = below;
                }
                _ => return,
            }
        }
    }

    fn exchange(&mut self, one: usize, other: usize) {
        self.heap.swap(one, other);
        for at in [one, other] {
            self.flows[self.heap[at] as usize].heap_at = at as u32;
        }
    }

    /// Gives all flows to a tour.
    pub fn tour(&mut self, tour: &mut Tour) {
        let mut ids = self.heap.clone();
        ids.sort_unstable_by_key(|id| self.order_of(*id));
        [ids.len() as u64, self.changed.len() as u64].into_iter().for_each(|word| tour.word(word));
        self.changed.iter().for_each(|(link, ended)| tour.word(u64::from(*link) << 1 | u64::from(*ended)));
        for id in ids {
            let Flow { message, key: _, links: _, len: _, alone, slowed, began, ends, number, heap_at: _, mark: _ } =
                &mut self.flows[id as usize];
            tour.message(*message);
            [alone.to_bits(), slowed.0, slowed.1].into_iter().for_each(|word| tour.word(word));
            tour.ordered(Order::Flows, *number, What::Message(*message));
            tour.moment(began, Kind::Moves, id);
            tour.moment(ends, Kind::Moves, id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn us(us: f64) -> Time {
        Time::from_us(us)
    }

    /// Flows as (begins at, bytes, rate of its own, links); when each ends.
    fn ends(limits: &[f64], flows: &[(Time, u64, f64, Vec<u32>)]) -> Vec<Time> {
        let mut all = Flows::new(limits.iter().map(|limit| Some(*limit)));
        let mut ends = vec![Time::ZERO; flows.len()];
        let mut order: Vec<usize> = (0..flows.len()).collect();
        order.sort_by_key(|at| flows[*at].0);
        let mut order = order.into_iter().peekable();
        let mut now = Time::ZERO;
        loop {
            let next = order.peek().map(|at| flows[*at].0);
            if all.is_unsettled() && next != Some(now) && all.first().is_none_or(|(end, _)| end > now) {
                all.settle(now);
                assert!(all.is_fair());
            }
            match (next, all.first()) {
                (None, None) => return ends,
                (Some(begins), first) if first.is_none_or(|(end, _)| begins < end) => {
                    let at = order.next().unwrap();
                    let (_, bytes, own, links) = &flows[at];
                    let alone = links.iter().map(|link| limits[*link as usize]).fold(*own, f64::min);
                    let message = at as u32;
                    all.begin(begins, Beginning { message, key: at as u64, bytes: *bytes, alone, links });
                    now = begins;
                }
                (_, Some((end, _))) => {
                    let (message, began) = all.end().unwrap();
                    assert_eq!(began, flows[message as usize].0);
                    ends[message as usize] = end;
                    now = end;
                }
                (Some(_), None) => unreachable!(),
            }
        }
    }

    impl Flows {
        /// The definition: no link carries more than it may, and each flow has its own rate or a
        /// full link on which none is faster.
        fn is_fair(&self) -> bool {
            let rate = |id: &u32| self.flows[*id as usize].alone / self.flows[*id as usize].slowed.value();
            let sum = |one: &Shared| one.flows.iter().map(rate).sum::<f64>();
            let within = self.shared.iter().all(|one| one.limit.is_none_or(|limit| sum(one) <= limit * (1.0 + 1e-9)));
            let has_its_due = |id: &u32| {
                let flow = &self.flows[*id as usize];
                flow.slowed == Ratio::ONE
                    || flow.links().iter().any(|link| {
                        let one = &self.shared[*link as usize];
                        let full = one.limit.is_some_and(|limit| sum(one) >= limit * (1.0 - 1e-9));
                        full && one.flows.iter().all(|other| rate(other) <= rate(id) * (1.0 + 1e-9))
                    })
            };
            let heap =
                (1..self.heap.len()).all(|at| self.order_of(self.heap[(at - 1) / 2]) <= self.order_of(self.heap[at]));
            within && heap && self.heap.iter().all(has_its_due)
        }
    }

    #[test]
    fn shares_are_simple_where_they_are_nearly() {
        assert_eq!(
            (Ratio::of(3.0), Ratio::of(0.9), Ratio::of(f64::INFINITY)),
            (Ratio(3, 1), Ratio(1, 1), Ratio(10u64.pow(15), 1))
        );
        assert_eq!(
            (Ratio::of(4.0 / 3.0 + 1e-14), Ratio::of(1e8 / (1e8 - 1e8 / 3.0 * 2.0))),
            (Ratio(4, 3), Ratio(3, 1))
        );
        for value in [std::f64::consts::PI, 1.0 + f64::EPSILON * 1e7, 123_456.789_012_3] {
            assert_eq!(Ratio::of(value).value(), value);
        }
    }

    #[test]
    fn equal_flows_share_a_link_to_the_last_unit() {
        for n in 1..50u64 {
            let flows: Vec<_> = (0..n).map(|_| (us(1.0), 30_000, 1e8, vec![0])).collect();
            let all = us(1.0) + us(300.0).times(n);
            assert_eq!(ends(&[1e8], &flows), vec![all; n as usize]);
        }
    }

    #[test]
    fn who_comes_later_takes_a_half_and_leaves_it_again() {
        // 300 us alone each, one link. The second comes after 100: both take twice as long while
        // both are there.
        let flows = [(us(0.0), 30_000, 1e8, vec![0]), (us(100.0), 30_000, 1e8, vec![0])];
        assert_eq!(ends(&[1e8], &flows), [us(500.0), us(600.0)]);
        // Three: 0 alone until 90, halves until 150, thirds from there on.
        let flows =
            [(us(0.0), 30_000, 1e8, vec![0]), (us(90.0), 30_000, 1e8, vec![0]), (us(150.0), 6_000, 1e8, vec![0])];
        // At 150: 180, 270, 60 left. The third ends at 330 (60 each done); 120, 210 left; first at
        // 570; second at 660.
        assert_eq!(ends(&[1e8], &flows), [us(570.0), us(660.0), us(330.0)]);
    }

    #[test]
    fn what_a_full_link_leaves_over_goes_to_those_on_the_others() {
        // Links of 1 and 2 (x 1e8). A on both, B on the first, C on the second: A and B a half, C
        // 1.5.
        let flows =
            [(us(0.0), 10_000, 9e8, vec![0, 1]), (us(0.0), 10_000, 9e8, vec![0]), (us(0.0), 30_000, 9e8, vec![1])];
        assert_eq!(ends(&[1e8, 2e8], &flows), [us(200.0); 3]);
        // A flow limited by itself takes less than its part, the others share the rest: 0.2, 0.4,
        // 0.4.
        let flows = [(us(0.0), 2_000, 2e7, vec![0]), (us(0.0), 4_000, 1e8, vec![0]), (us(0.0), 4_000, 1e8, vec![0])];
        assert_eq!(ends(&[1e8], &flows), [us(100.0); 3]);
    }

    #[test]
    fn an_all_to_all_on_a_star_takes_what_its_links_do() {
        // Each of n sends to each other at once: egress links 0 to n - 1, ingress n to 2 n - 1.
        for n in [2u32, 3, 5, 8, 13] {
            let pairs = (0..n).flat_map(|a| (0..n).filter(move |b| *b != a).map(move |b| (a, b)));
            let flows: Vec<_> = pairs.map(|(a, b)| (us(0.0), 10_000, 1e8, vec![a, n + b])).collect();
            let all = us(100.0).times(u64::from(n - 1));
            assert!(ends(&vec![1e8; 2 * n as usize], &flows).iter().all(|end| *end == all));
        }
    }

    /// The same in small steps of its own: rates by filling all flows alike until one is limited.
    fn naive(limits: &[f64], flows: &[(Time, u64, f64, Vec<u32>)]) -> Vec<f64> {
        let mut left: Vec<f64> = flows.iter().map(|flow| flow.1 as f64).collect();
        let begins: Vec<f64> = flows.iter().map(|flow| flow.0.seconds()).collect();
        let mut ends = vec![f64::NAN; flows.len()];
        let mut now = 0.0;
        while ends.iter().any(|end| end.is_nan()) {
            let on: Vec<usize> = (0..flows.len()).filter(|at| ends[*at].is_nan() && begins[*at] <= now).collect();
            let mut rates = vec![0.0; flows.len()];
            let mut rising = on.clone();
            while !rising.is_empty() {
                let mut by = rising.iter().map(|at| flows[*at].2 - rates[*at]).fold(f64::INFINITY, f64::min);
                let room = |link: usize, rates: &[f64]| {
                    limits[link]
                        - on.iter()
                            .filter(|at| flows[**at].3.contains(&(link as u32)))
                            .map(|at| rates[*at])
                            .sum::<f64>()
                };
                for link in 0..limits.len() {
                    let here = rising.iter().filter(|at| flows[**at].3.contains(&(link as u32))).count();
                    if here > 0 {
                        by = by.min(room(link, &rates) / here as f64);
                    }
                }
                rising.iter().for_each(|at| rates[*at] += by.max(0.0));
                let before = rising.len();
                rising.retain(|at| {
                    let full = |link: &u32| room(*link as usize, &rates) <= limits[*link as usize] * 1e-9;
                    flows[*at].2 - rates[*at] > flows[*at].2 * 1e-9 && !flows[*at].3.iter().any(full)
                });
                assert!(rising.len() < before);
            }
            let end = on.iter().map(|at| now + left[*at] / rates[*at]).fold(f64::INFINITY, f64::min);
            let begin = begins.iter().copied().filter(|at| *at > now).fold(f64::INFINITY, f64::min);
            let next = end.min(begin);
            for at in on {
                left[at] -= rates[at] * (next - now);
                if left[at] <= 1e-6 {
                    ends[at] = next;
                }
            }
            now = next;
        }
        ends
    }

    fn a_flow() -> impl Strategy<Value = (Time, u64, f64, Vec<u32>)> {
        let links = prop::collection::btree_set(0u32..6, 1..4);
        let own = prop::sample::select(vec![5e7, 1e8, 3e8, 1e9]);
        (0u32..200, 1000u64..60_000, own, links)
            .prop_map(|(at, bytes, own, links)| (us(f64::from(at)), bytes, own, links.into_iter().collect()))
    }

    proptest! {
        #[test]
        fn any_flows_end_when_a_model_in_small_steps_says(
            limits in prop::collection::vec(prop::sample::select(vec![1e8, 1.5e8, 2e8, 1e9]), 6),
            flows in prop::collection::vec(a_flow(), 1..20),
        ) {
            let (ours, theirs) = (ends(&limits, &flows), naive(&limits, &flows));
            for (ours, theirs) in ours.iter().zip(theirs) {
                prop_assert!((ours.seconds() - theirs).abs() < 1e-9 * theirs.max(1e-4), "{ours} {theirs}");
            }
        }
    }
}
