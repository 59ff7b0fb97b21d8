//! Who measures against whom, and in which round.

use alloc::vec::Vec;

/// How the client gets its model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// By probes.
    Measure,
    /// It reads the same physical clock as the reference and takes over its model unchanged.
    Adopt,
}

/// One pair in one round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Rounds follow each other; the pairs of one round are disjoint and work at the same time
    /// (adopting apart: a leader serves all its followers in the last round).
    pub round: u32,
    /// The rank that has its model already.
    pub reference: u32,
    /// The rank that gets one.
    pub client: u32,
    /// How.
    pub kind: Kind,
}

/// The whole plan, the same on all ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    ranks: u32,
    rounds: u32,
    steps: Vec<Step>,
}

impl Schedule {
    /// HCA3's order for `ranks` ranks, rank 0 being the root, in `ceil(log2(ranks))` rounds: among
    /// the first `2^k` ranks the distance between reference and client halves from round to round,
    /// from `2^(k-1)` to 1, so that every reference was a client before; the ranks from `2^k` on
    /// measure against the first ones in a last round.
    #[must_use]
    pub fn new(ranks: u32) -> Schedule {
        let members: Vec<u32> = (0..ranks).collect();
        let steps = hierarchy(&members);
        let rounds = steps.last().map_or(0, |s| s.round + 1);
        Schedule { ranks, rounds, steps }
    }

    /// The same among the first ranks of each domain, then the others of a domain adopt:
    /// `domain_of[r]` is the same for ranks that read one physical clock (processes of one host, if
    /// its counter is the same on all cores). One rank's domain is all one needs to know of a rank.
    #[must_use]
    pub fn with_domains(domain_of: &[u64]) -> Schedule {
        let mut ordered: Vec<(u64, u32)> = domain_of.iter().enumerate().map(|(r, d)| (*d, r as u32)).collect();
        ordered.sort_unstable();
        let mut leaders = Vec::new();
        let mut followers = Vec::new();
        for domain in ordered.chunk_by(|a, b| a.0 == b.0) {
            let leader = domain[0].1;
            leaders.push(leader);
            followers.extend(domain[1..].iter().map(|(_, follower)| (leader, *follower)));
        }
        // Leaders in the order of ranks, so that rank 0 is the root.
        leaders.sort_unstable();
        followers.sort_unstable();
        let mut steps = hierarchy(&leaders);
        let round = steps.last().map_or(0, |s| s.round + 1);
        let rounds = round + u32::from(!followers.is_empty());
        let adopt = |(reference, client)| Step { round, reference, client, kind: Kind::Adopt };
        steps.extend(followers.into_iter().map(adopt));
        Schedule { ranks: domain_of.len() as u32, rounds, steps }
    }

    /// How many ranks take part.
    #[must_use]
    pub fn ranks(&self) -> u32 {
        self.ranks
    }

    /// How many rounds there are.
    #[must_use]
    pub fn rounds(&self) -> u32 {
        self.rounds
    }

    /// All steps in the order of rounds.
    #[must_use]
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The steps of one rank, in order: at most one as client, then those as reference.
    pub fn steps_of(&self, rank: u32) -> impl Iterator<Item = Step> + '_ {
        self.steps.iter().copied().filter(move |s| s.reference == rank || s.client == rank)
    }
}

fn hierarchy(members: &[u32]) -> Vec<Step> {
    let n = members.len();
    let mut steps = Vec::new();
    let Some(levels) = n.checked_ilog2() else { return steps };
    let whole = 1usize << levels;
    let step = |round, reference: usize, client: usize| Step {
        round,
        reference: members[reference],
        client: members[client],
        kind: Kind::Measure,
    };
    for round in 0..levels {
        let distance = whole >> (round + 1);
        let references = (0..whole).step_by(2 * distance);
        steps.extend(references.map(|r| step(round, r, r + distance)));
    }
    steps.extend((whole..n).map(|client| step(levels, client - whole, client)));
    steps
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use std::vec;

    fn measured(schedule: &Schedule) -> Vec<Step> {
        schedule.steps().iter().copied().filter(|s| s.kind == Kind::Measure).collect()
    }

    /// Every rank but the root is reached once, by one reached in an earlier round; no rank works
    /// twice in a round.
    fn check(schedule: &Schedule) {
        let mut reached = BTreeSet::from([0]);
        for round in 0..schedule.rounds() {
            let steps: Vec<Step> = schedule.steps().iter().copied().filter(|s| s.round == round).collect();
            assert!(!steps.is_empty(), "round {round} is empty");
            let mut busy = BTreeSet::new();
            for s in &steps {
                assert!(reached.contains(&s.reference), "{s:?}: reference has no model yet");
                assert!(!reached.contains(&s.client), "{s:?}: client has a model already");
                assert!(busy.insert(s.client), "{s:?}: client is busy");
                assert!(s.kind == Kind::Adopt || busy.insert(s.reference), "{s:?}: reference is busy");
            }
            reached.extend(steps.iter().map(|s| s.client));
        }
        assert_eq!(reached, (0..schedule.ranks()).collect());
    }

    #[test]
    fn every_count_of_ranks_up_to_300_is_covered_once_in_log2_rounds() {
        for ranks in 1..=300u32 {
            let schedule = Schedule::new(ranks);
            check(&schedule);
            assert_eq!(schedule.rounds(), ranks.next_power_of_two().ilog2(), "{ranks} ranks");
            assert_eq!(schedule.steps().len() as u32, ranks - 1);
        }
    }

    #[test]
    fn the_six_rank_schedule_is_the_papers() {
        let pairs: Vec<_> = Schedule::new(6).steps().iter().map(|s| (s.round, s.reference, s.client)).collect();
        assert_eq!(pairs, vec![(0, 0, 2), (1, 0, 1), (1, 2, 3), (2, 0, 4), (2, 1, 5)]);
    }

    #[test]
    fn no_ranks_need_no_steps() {
        assert_eq!((Schedule::new(0).rounds(), Schedule::with_domains(&[]).steps().len()), (0, 0));
    }

    proptest! {
        #[test]
        fn domains_are_measured_once_each_and_adopted_within(domain_of in prop::collection::vec(0u64..9, 1..80)) {
            let schedule = Schedule::with_domains(&domain_of);
            check(&schedule);
            let domains: BTreeSet<u64> = domain_of.iter().copied().collect();
            prop_assert_eq!(measured(&schedule).len(), domains.len() - 1);
            for s in schedule.steps() {
                let same = domain_of[s.reference as usize] == domain_of[s.client as usize];
                prop_assert_eq!(same, s.kind == Kind::Adopt);
            }
            for rank in 0..domain_of.len() as u32 {
                let steps: Vec<Step> = schedule.steps_of(rank).collect();
                let clients = steps.iter().filter(|s| s.client == rank).count();
                prop_assert_eq!(clients, usize::from(rank != 0));
                prop_assert!(rank == 0 || steps[0].client == rank);
            }
        }
    }
}
