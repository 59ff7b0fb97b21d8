//! Who takes part and who talks to whom: n x p placements, complement pairs between nodes, pairs
//! within nodes.

use std::collections::VecDeque;

use weir_distribution::Locality;

/// Which rank is on which node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The node of each rank, numbered from 0 in the order of their first ranks.
    pub nodes: Vec<usize>,
}

/// Ranks that take part in a cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Ascending.
    pub members: Vec<usize>,
    /// Nodes with members (n of n x p).
    pub nodes: usize,
    /// Members on each node (p); the most, where nodes differ.
    pub per_node: usize,
}

/// Partners, and where they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pairing {
    /// The first of each begins.
    pub pairs: Vec<(usize, usize)>,
    /// Where partners are.
    pub locality: Locality,
}

impl Layout {
    /// From what each rank says its node is called.
    #[must_use]
    pub fn of_names(names: &[String]) -> Layout {
        let mut seen: Vec<&String> = Vec::new();
        let nodes = names.iter().map(|name| match seen.iter().position(|one| *one == name) {
            Some(node) => node,
            None => {
                seen.push(name);
                seen.len() - 1
            }
        });
        Layout { nodes: nodes.collect() }
    }

    /// How many nodes there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.nodes.iter().max().map_or(0, |most| most + 1)
    }

    fn ranks_on(&self, node: usize) -> impl Iterator<Item = usize> + '_ {
        self.nodes.iter().enumerate().filter(move |(_, n)| **n == node).map(|(rank, _)| rank)
    }

    /// All ranks.
    #[must_use]
    pub fn everybody(&self) -> Placement {
        let most = (0..self.count()).map(|node| self.ranks_on(node).count()).max().unwrap_or(0);
        Placement { members: (0..self.nodes.len()).collect(), nodes: self.count(), per_node: most }
    }

    /// The first `p` ranks on each of the first `n` nodes that have so many.
    #[must_use]
    pub fn placement(&self, n: usize, p: usize) -> Option<Placement> {
        let fit = (0..self.count()).filter(|&node| self.ranks_on(node).count() >= p).take(n);
        let nodes: Vec<usize> = fit.collect();
        let mut members: Vec<usize> = nodes.iter().flat_map(|&node| self.ranks_on(node).take(p)).collect();
        members.sort_unstable();
        (nodes.len() == n && p > 0 && n > 0).then_some(Placement { members, nodes: n, per_node: p })
    }

    /// Each member of the first half, ordered by node, with its complement in the second: the whole
    /// machine's links carry messages, and partners share no node if nodes have equally many
    /// members.
    #[must_use]
    pub fn complement(&self, members: &[usize]) -> Pairing {
        let mut order = members.to_vec();
        order.sort_by_key(|&rank| (self.nodes[rank], rank));
        let half = order.len() / 2;
        self.judged((0..half).map(|i| (order[i], order[i + half])).collect())
    }

    /// Partners on different nodes only: each step pairs a member of the node that has most left
    /// with one of the node that has most left but for it. Where nodes have equally many members
    /// these are complements; else as many pairs as there can be, and who is left has nobody on
    /// another node.
    #[must_use]
    pub fn between(&self, members: &[usize]) -> Pairing {
        let complement = self.complement(members);
        if complement.locality == Locality::Inter {
            return complement;
        }
        let mut left: Vec<VecDeque<usize>> = vec![VecDeque::new(); self.count()];
        members.iter().for_each(|&rank| left[self.nodes[rank]].push_back(rank));
        let mut pairs = Vec::new();
        loop {
            // The first of equals, so that every rank comes to the same pairs.
            let mut order: Vec<usize> = (0..left.len()).collect();
            order.sort_by_key(|&node| std::cmp::Reverse(left[node].len()));
            let [one, other, ..] = order[..] else { break };
            let (Some(a), Some(b)) = (left[one].front().copied(), left[other].front().copied()) else { break };
            left[one].pop_front();
            left[other].pop_front();
            pairs.push((a.min(b), a.max(b)));
        }
        self.judged(pairs)
    }

    /// The same within each node; who has no partner there is left out.
    #[must_use]
    pub fn within(&self, members: &[usize]) -> Pairing {
        let of_node =
            |node: usize| -> Vec<usize> { members.iter().copied().filter(|&rank| self.nodes[rank] == node).collect() };
        let pairs = (0..self.count()).flat_map(|node| {
            let own = of_node(node);
            let half = own.len() / 2;
            (0..half).map(move |i| (own[i], own[i + half])).collect::<Vec<_>>()
        });
        self.judged(pairs.collect())
    }

    fn judged(&self, pairs: Vec<(usize, usize)>) -> Pairing {
        let same = pairs.iter().filter(|(a, b)| self.nodes[*a] == self.nodes[*b]).count();
        let locality = match same {
            0 => Locality::Inter,
            all if all == pairs.len() => Locality::Intra,
            _ => Locality::Mixed,
        };
        Pairing { pairs, locality }
    }

    /// Where the members of a collective are.
    #[must_use]
    pub fn locality(&self, placement: &Placement) -> Locality {
        match (placement.nodes, placement.per_node) {
            (1, _) => Locality::Intra,
            (_, 1) => Locality::Inter,
            _ => Locality::Mixed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(nodes: &[usize]) -> Layout {
        Layout { nodes: nodes.to_vec() }
    }

    #[test]
    fn nodes_are_found_by_name() {
        let names: Vec<String> = ["b", "a", "b", "a"].map(str::to_owned).to_vec();
        assert_eq!(Layout::of_names(&names), layout(&[0, 1, 0, 1]));
    }

    #[test]
    fn no_partner_shares_a_node_when_nodes_are_equal() {
        for (n, p) in [(2, 1), (2, 4), (3, 2), (8, 3), (5, 4)] {
            for cyclic in [false, true] {
                let nodes: Vec<usize> = (0..n * p).map(|r| if cyclic { r % n } else { r / p }).collect();
                let layout = layout(&nodes);
                let pairing = layout.complement(&layout.everybody().members);
                assert_eq!(pairing.locality, Locality::Inter, "{n}x{p}");
                assert_eq!(pairing.pairs.len(), n * p / 2);
                let mut all: Vec<usize> = pairing.pairs.iter().flat_map(|&(a, b)| [a, b]).collect();
                all.sort_unstable();
                assert_eq!(all, (0..n * p).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn pairs_between_unequal_nodes_are_as_many_as_can_be_and_none_is_within() {
        let cases: [(&[usize], usize); 6] = [
            (&[0, 0, 0, 1], 1),
            (&[0, 0, 0, 1, 1, 2], 3),
            (&[0, 1, 1, 1, 2, 2], 3),
            (&[0, 0, 0, 0, 1, 2], 2),
            (&[0, 0, 1, 1], 2),
            (&[0, 0], 0),
        ];
        for (nodes, most) in cases {
            let layout = layout(nodes);
            let pairing = layout.between(&layout.everybody().members);
            assert_eq!(pairing.pairs.len(), most, "{nodes:?}");
            assert!(pairing.pairs.iter().all(|&(a, b)| nodes[a] != nodes[b]), "{nodes:?}: {:?}", pairing.pairs);
            let mut ranks: Vec<usize> = pairing.pairs.iter().flat_map(|&(a, b)| [a, b]).collect();
            ranks.sort_unstable();
            ranks.dedup();
            assert_eq!(ranks.len(), 2 * most, "{nodes:?}: nobody is in two pairs");
        }
    }

    #[test]
    fn within_nodes_and_mixed_are_told_apart() {
        let even = layout(&[0, 0, 1, 1]);
        assert_eq!(even.within(&[0, 1, 2, 3]).pairs, [(0, 1), (2, 3)]);
        assert_eq!(even.within(&[0, 1, 2, 3]).locality, Locality::Intra);
        assert_eq!(layout(&[0, 0, 0, 1]).complement(&[0, 1, 2, 3]).locality, Locality::Mixed);
        assert!(layout(&[0, 1]).within(&[0, 1]).pairs.is_empty());
    }

    #[test]
    fn placements_take_the_first_nodes_that_are_large_enough() {
        let layout = layout(&[0, 1, 1, 2, 2, 2]);
        assert_eq!(layout.placement(2, 2).unwrap().members, [1, 2, 3, 4]);
        assert_eq!(layout.placement(3, 1).unwrap().members, [0, 1, 3]);
        assert!(layout.placement(3, 2).is_none());
        assert_eq!((layout.everybody().nodes, layout.everybody().per_node), (3, 3));
    }
}
