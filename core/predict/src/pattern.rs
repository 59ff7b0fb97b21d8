//! Collectives as messages between two: what a process does in each step, computed from the step's
//! number, so that nothing is kept of a collective but where it stands.
//!
//! Sources: the tree, dissemination and ring patterns are those of Thakur, Rabenseifner and Gropp
//! (Optimization of collective communication operations in MPICH, IJHPCA 19(1), 2005), Bruck's of
//! Bruck et al. (IEEE TPDS 8(11), 1997), dissemination of Hensgen, Finkel and Manber (IJPP 17(1),
//! 1988).

use weir_annotations::program::CollectiveOp;

use crate::machine::Algorithm;

/// What a process does next in a collective. Processes are numbered within the group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Micro {
    /// Begins to send.
    Send { to: u32, bytes: u64 },
    /// Begins to receive.
    Recv { from: u32 },
    /// Goes on when all it began is complete.
    Wait,
    /// Nothing in this step.
    Skip,
    /// The pattern is done.
    End,
}

/// A pattern of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pattern {
    /// From the root down a binomial tree; `blocks`: each subtree gets the blocks of its processes.
    TreeDown { blocks: bool },
    /// Up the same tree.
    TreeUp { blocks: bool },
    /// From the root to each other, in order.
    FanOut,
    /// From each other to the root, received in order.
    FanIn,
    /// Round k: to the process 2^k on, from the one 2^k back.
    Dissemination,
    /// Step i: to the i-th next, from the i-th previous.
    Exchange,
    /// All receives, all sends in the same order everywhere, then all are waited for.
    AtOnce,
    /// Bruck's all to all: round k moves the blocks whose distance has bit k.
    BruckAlltoall,
    /// Bruck's allgather: round k moves up to 2^k blocks.
    BruckAllgather,
    /// n - 1 times a block to the next, one from the previous.
    Ring,
    /// Recursive doubling, processes beyond a power of two folded in.
    Doubling,
    /// Round k: to the process 2^k on, from the one 2^k back, without going round.
    ScanDoubling,
    /// From the previous, to the next.
    Chain,
}

/// What a collective is made of: one pattern or two, one after the other, with bytes for each
/// message (or block).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Plan {
    phases: [Option<(Pattern, u64)>; 2],
}

impl Plan {
    /// `bytes` as in [`weir_annotations::program::Collective::size`], `n` processes.
    pub fn of(operation: CollectiveOp, algorithm: Algorithm, n: u32, bytes: u64) -> Self {
        use Algorithm as A;
        use CollectiveOp as Op;
        use Pattern as P;
        let tree = algorithm == A::Binomial;
        let down = if tree { P::TreeDown { blocks: false } } else { P::FanOut };
        let up = if tree { P::TreeUp { blocks: false } } else { P::FanIn };
        let scatter = if tree { P::TreeDown { blocks: true } } else { P::FanOut };
        let gather = if tree { P::TreeUp { blocks: true } } else { P::FanIn };
        let all = bytes.saturating_mul(u64::from(n));
        let one = |p| [Some((p, bytes)), None];
        let phases = match (operation, algorithm) {
            (Op::Barrier, A::Linear | A::Binomial) => [Some((up, 0)), Some((down, 0))],
            (Op::Barrier, _) => [Some((P::Dissemination, 0)), None],
            (Op::Bcast, _) => one(down),
            (Op::Reduce, _) => one(up),
            (Op::Scatter, _) => one(scatter),
            (Op::Gather, _) => one(gather),
            (Op::Allgather, A::Ring) => one(P::Ring),
            (Op::Allgather, A::Bruck) => one(P::BruckAllgather),
            (Op::Allgather, _) => [Some((gather, bytes)), Some((down, all))],
            (Op::Alltoall, A::Linear) => one(P::AtOnce),
            (Op::Alltoall, A::Bruck) => one(P::BruckAlltoall),
            (Op::Alltoall, _) => one(P::Exchange),
            (Op::Allreduce, A::Linear | A::Binomial) => [Some((up, bytes)), Some((down, bytes))],
            (Op::Allreduce, _) => one(P::Doubling),
            (Op::ReduceScatter, A::Linear | A::Binomial) => [Some((up, all)), Some((scatter, bytes))],
            (Op::ReduceScatter, _) => one(P::Exchange),
            (Op::Scan | Op::Exscan, A::Linear) => one(P::Chain),
            (Op::Scan | Op::Exscan, _) => one(P::ScanDoubling),
        };
        Self { phases }
    }

    /// The pattern of a phase, and its bytes.
    pub fn phase(&self, phase: usize) -> Option<(Pattern, u64)> {
        self.phases.get(phase).copied().flatten()
    }
}

/// So many receives and sends are begun at once in an all-to-all: MPICH's
/// `MPIR_CVAR_ALLTOALL_THROTTLE`.
const AT_ONCE: u64 = 32;

/// Where a process stands in a group.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seat {
    /// Its number, below `n`.
    pub me: u32,
    /// The root's.
    pub root: u32,
    /// How many there are.
    pub n: u32,
}

/// The lowest bit that is set in `v`, not 0; for 0 the least power of two that is not below `n`.
fn span(v: u32, n: u32) -> u64 {
    if v == 0 { u64::from(n).next_power_of_two() } else { 1 << v.trailing_zeros() }
}

fn rounds(n: u32) -> u32 {
    32 - (n.max(1) - 1).leading_zeros()
}

impl Seat {
    /// The number relative to the root.
    fn v(&self) -> u32 {
        ((u64::from(self.me) + u64::from(self.n) - u64::from(self.root)) % u64::from(self.n)) as u32
    }

    /// The process at a number relative to the root.
    fn real(&self, v: u64) -> u32 {
        ((v + u64::from(self.root)) % u64::from(self.n)) as u32
    }

    fn on(&self, by: u64) -> u32 {
        ((u64::from(self.me) + by) % u64::from(self.n)) as u32
    }

    fn back(&self, by: u64) -> u32 {
        let n = u64::from(self.n);
        ((u64::from(self.me) + n - by % n) % n) as u32
    }

    /// What it does in a step of a pattern. Steps count from 0 to the one that gives `End`.
    pub fn micro(&self, pattern: Pattern, bytes: u64, step: u64) -> Micro {
        if self.n < 2 {
            return Micro::End;
        }
        match pattern {
            Pattern::TreeDown { blocks } => self.tree_down(blocks, bytes, step),
            Pattern::TreeUp { blocks } => self.tree_up(blocks, bytes, step),
            Pattern::FanOut => self.fan_out(bytes, step),
            Pattern::FanIn => self.fan_in(bytes, step),
            Pattern::Dissemination => {
                self.in_rounds(step, rounds(self.n).into(), |s, k| (Some((s.on(1 << k), bytes)), Some(s.back(1 << k))))
            }
            Pattern::Exchange => {
                self.in_rounds(step, u64::from(self.n) - 1, |s, k| (Some((s.on(k + 1), bytes)), Some(s.back(k + 1))))
            }
            Pattern::Ring => {
                self.in_rounds(step, u64::from(self.n) - 1, |s, _| (Some((s.on(1), bytes)), Some(s.back(1))))
            }
            Pattern::AtOnce => self.at_once(bytes, step),
            Pattern::BruckAlltoall => self.in_rounds(step, rounds(self.n).into(), |s, k| {
                let size = bytes.saturating_mul(with_bit(u64::from(s.n), k));
                (Some((s.on(1 << k), size)), Some(s.back(1 << k)))
            }),
            Pattern::BruckAllgather => self.in_rounds(step, rounds(self.n).into(), |s, k| {
                let blocks = (1u64 << k).min(u64::from(s.n) - (1 << k));
                (Some((s.back(1 << k), bytes.saturating_mul(blocks))), Some(s.on(1 << k)))
            }),
            Pattern::Doubling => self.doubling(bytes, step),
            Pattern::ScanDoubling => self.in_rounds(step, rounds(self.n).into(), |s, k| {
                let to = u64::from(s.me) + (1 << k);
                let send = (to < u64::from(s.n)).then_some((to as u32, bytes));
                (send, u64::from(s.me).checked_sub(1 << k).map(|from| from as u32))
            }),
            Pattern::Chain => match step {
                0 if self.me > 0 => Micro::Recv { from: self.me - 1 },
                2 if self.me + 1 < self.n => Micro::Send { to: self.me + 1, bytes },
                1 | 3 => Micro::Wait,
                0 | 2 => Micro::Skip,
                _ => Micro::End,
            },
        }
    }

    /// Rounds of a receive, a send and a wait for both.
    fn in_rounds(
        &self,
        step: u64,
        rounds: u64,
        round: impl FnOnce(&Self, u64) -> (Option<(u32, u64)>, Option<u32>),
    ) -> Micro {
        if step / 3 >= rounds {
            return Micro::End;
        }
        if step % 3 == 2 {
            return Micro::Wait;
        }
        match (step % 3, round(self, step / 3)) {
            (0, (_, Some(from))) => Micro::Recv { from },
            (1, (Some((to, bytes)), _)) => Micro::Send { to, bytes },
            _ => Micro::Skip,
        }
    }

    /// The blocks of a subtree that begins at `v` and has `span` places.
    fn subtree(&self, blocks: bool, bytes: u64, v: u64, span: u64) -> u64 {
        if blocks { bytes.saturating_mul(span.min(u64::from(self.n) - v)) } else { bytes }
    }

    fn tree_down(&self, blocks: bool, bytes: u64, step: u64) -> Micro {
        let v = self.v();
        let top = span(v, self.n);
        let step = match (v, step) {
            (0, step) => step,
            (_, 0) => return Micro::Recv { from: self.real(u64::from(v) - top) },
            (_, 1) => return Micro::Wait,
            (_, step) => step - 2,
        };
        // The farthest child first: its subtree is the largest.
        let children = u64::from(top.trailing_zeros());
        if step == children {
            return Micro::Wait;
        }
        if step > children {
            return Micro::End;
        }
        let mask = top >> (step + 1);
        let child = u64::from(v) + mask;
        if child >= u64::from(self.n) {
            return Micro::Skip;
        }
        Micro::Send { to: self.real(child), bytes: self.subtree(blocks, bytes, child, mask) }
    }

    fn tree_up(&self, blocks: bool, bytes: u64, step: u64) -> Micro {
        let v = u64::from(self.v());
        let top = span(v as u32, self.n);
        let children = u64::from(top.trailing_zeros());
        // The nearest child first: its subtree is done first.
        if step < 2 * children {
            let child = v + (1 << (step / 2));
            return match step % 2 {
                _ if child >= u64::from(self.n) => Micro::Skip,
                0 => Micro::Recv { from: self.real(child) },
                _ => Micro::Wait,
            };
        }
        match step - 2 * children {
            0 if v > 0 => Micro::Send { to: self.real(v - top), bytes: self.subtree(blocks, bytes, v, top) },
            1 if v > 0 => Micro::Wait,
            _ => Micro::End,
        }
    }

    fn fan_out(&self, bytes: u64, step: u64) -> Micro {
        let others = u64::from(self.n) - 1;
        match (self.v(), step) {
            (0, step) if step < others => Micro::Send { to: self.real(step + 1), bytes },
            (0, step) if step == others => Micro::Wait,
            (0, _) => Micro::End,
            (_, 0) => Micro::Recv { from: self.root },
            (_, 1) => Micro::Wait,
            _ => Micro::End,
        }
    }

    fn fan_in(&self, bytes: u64, step: u64) -> Micro {
        let others = u64::from(self.n) - 1;
        match (self.v(), step) {
            (0, step) if step / 2 >= others => Micro::End,
            (0, step) if step % 2 == 0 => Micro::Recv { from: self.real(step / 2 + 1) },
            (0, _) => Micro::Wait,
            (_, 0) => Micro::Send { to: self.root, bytes },
            (_, 1) => Micro::Wait,
            _ => Micro::End,
        }
    }

    fn at_once(&self, bytes: u64, step: u64) -> Micro {
        let others = u64::from(self.n) - 1;
        let batch = others.min(AT_ONCE);
        let (done, within) = (step / (2 * batch + 1) * batch, step % (2 * batch + 1));
        if done >= others {
            return Micro::End;
        }
        let distance = done + within % batch + 1;
        match within / batch {
            0 | 1 if distance > others => Micro::Skip,
            0 => Micro::Recv { from: self.on(distance) },
            1 => Micro::Send { to: self.back(distance), bytes },
            _ => Micro::Wait,
        }
    }

    fn doubling(&self, bytes: u64, step: u64) -> Micro {
        let power = if self.n.is_power_of_two() { self.n } else { self.n.next_power_of_two() / 2 };
        let extra = self.n - power;
        // Of the first 2 * extra processes the even ones hand over to their neighbour and get the
        // result from it.
        let folded = self.me < 2 * extra;
        if folded && self.me.is_multiple_of(2) {
            return match step {
                0 => Micro::Send { to: self.me + 1, bytes },
                2 => Micro::Recv { from: self.me + 1 },
                1 | 3 => Micro::Wait,
                _ => Micro::End,
            };
        }
        let step = match (folded, step) {
            (false, step) => step,
            (true, 0) => return Micro::Recv { from: self.me - 1 },
            (true, 1) => return Micro::Wait,
            (true, step) => step - 2,
        };
        let number = if folded { self.me / 2 } else { self.me - extra };
        let real = |number: u32| if number < extra { number * 2 + 1 } else { number + extra };
        let all = 3 * u64::from(power.trailing_zeros());
        if step < all {
            let peer = real(number ^ (1 << (step / 3)));
            return match step % 3 {
                0 => Micro::Recv { from: peer },
                1 => Micro::Send { to: peer, bytes },
                _ => Micro::Wait,
            };
        }
        match step - all {
            0 if folded => Micro::Send { to: self.me - 1, bytes },
            1 if folded => Micro::Wait,
            _ => Micro::End,
        }
    }
}

/// How many of 1..n have bit `k` set.
fn with_bit(n: u64, k: u64) -> u64 {
    let (size, half) = (1u64 << (k + 1), 1u64 << k);
    n / size * half + (n % size).saturating_sub(half)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, VecDeque};

    /// Runs a collective with unbounded channels; returns the bytes that each process got, and
    /// sends of each.
    fn run(operation: CollectiveOp, algorithm: Algorithm, n: u32, root: u32, bytes: u64) -> Vec<(u64, u64)> {
        let plan = Plan::of(operation, algorithm, n, bytes);
        let mut channels: BTreeMap<(u32, u32), VecDeque<u64>> = BTreeMap::new();
        let mut state = vec![(0usize, 0u64, Vec::<u32>::new()); n as usize];
        let mut got = vec![(0, 0); n as usize];
        loop {
            let mut moved = false;
            for me in 0..n {
                let (phase, step, wanted) = &mut state[me as usize];
                while let Some((pattern, bytes)) = plan.phase(*phase) {
                    match (Seat { me, root, n }).micro(pattern, bytes, *step) {
                        Micro::Send { to, bytes } => {
                            assert!(to < n && to != me);
                            channels.entry((me, to)).or_default().push_back(bytes);
                            got[me as usize].1 += 1;
                        }
                        Micro::Recv { from } => wanted.push(from),
                        Micro::Wait => {
                            let here = |from: &u32, channels: &BTreeMap<(u32, u32), VecDeque<u64>>| {
                                channels.get(&(*from, me)).is_some_and(|c| !c.is_empty())
                            };
                            if !wanted.iter().all(|from| here(from, &channels)) {
                                break;
                            }
                            for from in wanted.drain(..) {
                                got[me as usize].0 += channels.get_mut(&(from, me)).unwrap().pop_front().unwrap();
                            }
                        }
                        Micro::Skip => {}
                        Micro::End => {
                            assert!(wanted.is_empty(), "{operation:?} {algorithm:?} ended with open receives");
                            *phase += 1;
                            *step = 0;
                            moved = true;
                            continue;
                        }
                    }
                    *step += 1;
                    moved = true;
                    assert!(*step < 10_000);
                }
            }
            if !moved {
                break;
            }
        }
        for (phase, ..) in &state {
            assert_eq!(plan.phase(*phase), None, "{operation:?} {algorithm:?} n {n} root {root} does not end");
        }
        assert!(channels.values().all(VecDeque::is_empty), "{operation:?} {algorithm:?} n {n}: messages left");
        got
    }

    #[test]
    fn each_collective_ends_and_leaves_no_message_whatever_the_algorithm_number_and_root() {
        for operation in CollectiveOp::ALL {
            for algorithm in Algorithm::ALL.into_iter().filter(|a| a.can(operation)) {
                for n in 1..=17 {
                    for root in [0, n / 2, n - 1] {
                        let got = run(operation, algorithm, n, root, 10);
                        check(operation, algorithm, n, root, &got);
                    }
                }
            }
        }
    }

    /// Everybody gets at least what the operation must give it.
    fn check(operation: CollectiveOp, algorithm: Algorithm, n: u32, root: u32, got: &[(u64, u64)]) {
        use CollectiveOp as Op;
        for (me, (bytes, _)) in (0u32..).zip(got) {
            let others = u64::from(n - 1);
            let least = match operation {
                Op::Barrier => 0,
                Op::Bcast | Op::Scatter if me != root => 10,
                Op::Gather if me == root => 10 * others,
                Op::Allgather | Op::Alltoall => 10 * others,
                Op::Scan | Op::Exscan if me > 0 => 10,
                Op::Allreduce if n > 1 => 10,
                _ => 0,
            };
            assert!(*bytes >= least, "{operation:?} {algorithm:?} n {n} root {root}: {me} got {bytes} of {least}");
        }
    }

    #[test]
    fn a_binomial_broadcast_over_sixteen_has_paths_of_1_4_6_4_1() {
        let mut depth = [0usize; 16];
        let mut counts = [0; 5];
        for me in 0..16u32 {
            if me > 0 {
                let seat = Seat { me, root: 0, n: 16 };
                let Micro::Recv { from } = seat.micro(Pattern::TreeDown { blocks: false }, 1, 0) else { panic!() };
                depth[me as usize] = depth[from as usize] + 1;
            }
            counts[depth[me as usize]] += 1;
        }
        assert_eq!(counts, [1, 4, 6, 4, 1]);
    }

    #[test]
    fn blocks_with_a_bit() {
        for n in 1..40u64 {
            for k in 0..6 {
                assert_eq!(with_bit(n, k), (1..n).filter(|j| j >> k & 1 == 1).count() as u64);
            }
        }
    }
}
