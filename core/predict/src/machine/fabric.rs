//! The links between nodes, and which of them a message passes.

use crate::machine::Level;

/// Links on a route at most.
pub const MOST_HOPS: usize = 6;

/// A link, or what else messages share: a switch's backplane.
#[derive(Debug, Clone, PartialEq)]
pub struct Link {
    /// Its name, for people.
    pub name: String,
    /// What it carries at once; none: no limit.
    pub bytes_per_s: Option<f64>,
}

/// Links that a message passes, as indices into [`Fabric::links`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Route {
    links: [u32; MOST_HOPS],
    len: u8,
}

impl Route {
    fn of(hops: &[u32]) -> Self {
        let mut route = Self::default();
        for (slot, link) in route.links.iter_mut().zip(hops) {
            *slot = *link;
            route.len += 1;
        }
        route
    }

    /// The links.
    #[must_use]
    pub fn links(&self) -> &[u32] {
        &self.links[..usize::from(self.len)]
    }
}

/// What connects the nodes.
#[derive(Debug, Clone, PartialEq)]
pub struct Fabric {
    links: Vec<Link>,
    /// The switch of each node; empty: one switch for all, with room for any number of nodes.
    switch_of: Vec<u32>,
    /// Routes between all nodes, by both; with how many nodes there are. Empty: they follow from
    /// the switches.
    routes: Vec<Route>,
    nodes: usize,
}

impl Fabric {
    /// Nodes with a route from each to each, by both: so many times so many.
    pub(crate) fn routed(links: Vec<Link>, nodes: usize, routes: &[Vec<u32>]) -> Self {
        Self { links, switch_of: Vec::new(), routes: routes.iter().map(|hops| Route::of(hops)).collect(), nodes }
    }

    /// One switch for all nodes: its backplane is the only link.
    #[must_use]
    pub fn flat(bytes_per_s: Option<f64>) -> Self {
        let links = vec![Link { name: "backplane".to_owned(), bytes_per_s }];
        Self { links, switch_of: Vec::new(), routes: Vec::new(), nodes: 0 }
    }

    /// Switches with so many nodes each, each connected by a link up and a link down to a core
    /// without limit. None of nodes: as one.
    #[must_use]
    pub fn switches(nodes_of: &[u32], backplane_bytes_per_s: Option<f64>, uplink_bytes_per_s: Option<f64>) -> Self {
        let mut fabric = Self { links: Vec::new(), switch_of: Vec::new(), routes: Vec::new(), nodes: 0 };
        for (switch, nodes) in (0u32..).zip(nodes_of) {
            for (what, bytes_per_s) in
                [("backplane", backplane_bytes_per_s), ("up", uplink_bytes_per_s), ("down", uplink_bytes_per_s)]
            {
                fabric.links.push(Link { name: format!("switch {switch} {what}"), bytes_per_s });
            }
            fabric.switch_of.extend((0..*nodes).map(|_| switch));
        }
        fabric.nodes = fabric.switch_of.len();
        if fabric.switch_of.is_empty() { Self::flat(backplane_bytes_per_s) } else { fabric }
    }

    /// The links, in no meaningful order.
    #[must_use]
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// How many nodes have a place, if that is limited.
    #[must_use]
    pub fn nodes(&self) -> Option<usize> {
        Some(self.nodes).filter(|n| *n > 0)
    }

    /// What a message between two different nodes passes.
    #[must_use]
    pub fn route(&self, from: u32, to: u32) -> Route {
        if let Some(route) = self.routes.get(from as usize * self.nodes + to as usize) {
            return *route;
        }
        let Some(last) = self.switch_of.last() else { return Route::of(&[0]) };
        let switch = |node: u32| self.switch_of.get(node as usize).unwrap_or(last);
        let (a, b) = (switch(from) * 3, switch(to) * 3);
        if a == b { Route::of(&[a]) } else { Route::of(&[a, a + 1, b + 2, b]) }
    }

    /// What a message meets on a route, `in_flight` being what is on each link, itself included.
    /// The worst link governs.
    pub(crate) fn level(&self, route: &Route, in_flight: &[u32]) -> Level {
        let mut level = Level::ALONE;
        for &link in route.links() {
            let (n, limit) = (in_flight[link as usize], self.links[link as usize].bytes_per_s);
            level.messages = level.messages.max(n);
            if let Some(limit) = limit {
                level.alone_bytes_per_s = level.alone_bytes_per_s.min(limit);
                level.share_bytes_per_s = level.share_bytes_per_s.min(limit / f64::from(n.max(1)));
            }
        }
        level
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_link_of_a_route_governs() {
        let fabric = Fabric::switches(&[2, 2], None, Some(100.0));
        assert_eq!(fabric.route(0, 1).links(), [0]);
        assert_eq!(fabric.route(1, 2).links(), [0, 1, 5, 3]);
        assert_eq!(fabric.route(3, 0).links(), [3, 4, 2, 0]);
        // Two cross from the first switch to the second, one more stays within the second.
        let in_flight = [2, 2, 0, 3, 0, 2];
        let level = fabric.level(&fabric.route(0, 3), &in_flight);
        assert_eq!((level.messages, level.alone_bytes_per_s, level.share_bytes_per_s), (3, 100.0, 50.0));
        assert_eq!(fabric.level(&fabric.route(2, 3), &in_flight).share_bytes_per_s, f64::INFINITY);
    }
}
