//! A machine from a graph of links, each with what a message takes on it (`spec/prediction.md` 8, a
//! network of the source).

use std::collections::VecDeque;

use thiserror::Error;

use crate::Machine;
use crate::machine::Sharing;
use crate::machine::fabric::{Fabric, Link, MOST_HOPS};
use crate::machine::path::Path;

/// Nodes of a graph at most: routes are kept for each pair.
pub const MOST_GRAPH_NODES: usize = 1024;

/// A link, in one direction.
#[derive(Debug, Clone, PartialEq)]
pub struct GraphLink {
    /// Its name.
    pub name: String,
    /// A node or switch.
    pub from: String,
    /// A node or switch.
    pub to: String,
    /// What a message takes on it.
    pub path: Path,
}

/// Why a graph is no network.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum GraphError {
    /// No link at all.
    #[error("a network without links connects nothing")]
    NoLinks,
    /// Too many nodes.
    #[error("{0} nodes, and a network of links has at most {MOST_GRAPH_NODES}")]
    TooManyNodes(usize),
    /// A node cannot send to another.
    #[error("no way leads from {0} to {1}: links go in one direction")]
    NoWay(String, String),
    /// A route is too long.
    #[error("the shortest way from {0} to {1} has {2} links, and a route has at most {MOST_HOPS}")]
    TooLong(String, String, usize),
    /// What is measured has no rate to be shared.
    #[error("link {0} is of a measured profile, and `sharing = \"fair\"` needs rates")]
    NoRate(String),
}

/// A machine like `base`, whose nodes are connected by links. Ends that have one neighbour are its
/// nodes, in the order in which they are named first, the others switches; where none has only one,
/// all are nodes. Which is which is told in its notices.
///
/// # Errors
/// If a node cannot reach another by few enough links.
pub fn of_graph(base: Machine, links: Vec<GraphLink>) -> Result<Machine, GraphError> {
    if links.is_empty() {
        return Err(GraphError::NoLinks);
    }
    let mut ends: Vec<&str> = Vec::new();
    let mut end_of = |name| {
        ends.iter().position(|end| *end == name).unwrap_or_else(|| {
            ends.push(name);
            ends.len() - 1
        })
    };
    let edges: Vec<(usize, usize)> = links.iter().map(|link| (end_of(&link.from), end_of(&link.to))).collect();
    let nodes = nodes(ends.len(), &edges);
    if nodes.len() > MOST_GRAPH_NODES {
        return Err(GraphError::TooManyNodes(nodes.len()));
    }
    let mut routes = Vec::with_capacity(nodes.len() * nodes.len());
    for from in &nodes {
        let before = ways(*from, ends.len(), &edges);
        for to in &nodes {
            let route = route(*from, *to, &edges, &before);
            let route = route.ok_or_else(|| GraphError::NoWay(ends[*from].to_owned(), ends[*to].to_owned()))?;
            if route.len() > MOST_HOPS {
                return Err(GraphError::TooLong(ends[*from].to_owned(), ends[*to].to_owned(), route.len()));
            }
            routes.push(route);
        }
    }
    let named = |list: &mut dyn Iterator<Item = usize>| list.map(|end| ends[end]).collect::<Vec<_>>().join(", ");
    let mut told = format!("nodes of the network, in order: {}", named(&mut nodes.iter().copied()));
    let switches = named(&mut (0..ends.len()).filter(|end| !nodes.contains(end)));
    if !switches.is_empty() {
        told.push_str(&format!("; switches: {switches}"));
    }
    let mut machine = base;
    machine.notices.push(told);
    let fair = machine.sharing == Sharing::Fair;
    let known = links.iter().map(|link| {
        let rate = fair.then(|| link.path.rate().ok_or_else(|| GraphError::NoRate(link.name.clone())));
        Ok(Link { name: link.name.clone(), bytes_per_s: rate.transpose()? })
    });
    machine.fabric = Fabric::routed(known.collect::<Result<_, _>>()?, nodes.len(), &routes);
    machine.links = links.into_iter().map(|link| link.path).collect();
    Ok(machine)
}

/// The ends that are nodes: those with one neighbour, or all.
fn nodes(ends: usize, edges: &[(usize, usize)]) -> Vec<usize> {
    let neighbours = |end: usize| {
        let mut all: Vec<usize> = Vec::new();
        for (from, to) in edges {
            for (one, other) in [(from, to), (to, from)] {
                if *one == end && *other != end && !all.contains(other) {
                    all.push(*other);
                }
            }
        }
        all.len()
    };
    let outer: Vec<usize> = (0..ends).filter(|end| neighbours(*end) == 1).collect();
    if outer.is_empty() { (0..ends).collect() } else { outer }
}

/// For each end the link by which it is reached first from there.
fn ways(from: usize, ends: usize, edges: &[(usize, usize)]) -> Vec<Option<usize>> {
    let mut before = vec![None; ends];
    let mut next = VecDeque::from([from]);
    while let Some(end) = next.pop_front() {
        for (link, (_, to)) in edges.iter().enumerate().filter(|(_, edge)| edge.0 == end) {
            if *to != from && before[*to].is_none() {
                before[*to] = Some(link);
                next.push_back(*to);
            }
        }
    }
    before
}

fn route(from: usize, to: usize, edges: &[(usize, usize)], before: &[Option<usize>]) -> Option<Vec<u32>> {
    let mut route = Vec::new();
    let mut at = to;
    while at != from {
        let link = before[at]?;
        route.push(link as u32);
        at = edges[link].0;
    }
    route.reverse();
    Some(route)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Time;

    fn links(ends: &[(&str, &str)]) -> Vec<GraphLink> {
        let path = Path::linear(Time::from_us(1.0), 1e9);
        let one = |(from, to): &(&str, &str)| GraphLink {
            name: format!("{from}-{to}"),
            from: (*from).to_owned(),
            to: (*to).to_owned(),
            path: path.clone(),
        };
        ends.iter().map(one).collect()
    }

    fn made(ends: &[(&str, &str)]) -> Result<Machine, GraphError> {
        of_graph(Machine::simplest(Time::from_us(1.0), 1e9), links(ends))
    }

    #[test]
    fn ends_with_one_neighbour_are_nodes_and_routes_are_the_shortest() {
        let both = |a, b| [(a, b), (b, a)];
        let tree = [both("n0", "s"), both("n1", "s"), both("s", "t"), both("t", "n2")].concat();
        let machine = made(&tree).unwrap();
        assert_eq!(machine.fabric.nodes(), Some(3));
        assert_eq!(machine.fabric.route(0, 1).links(), [0, 3]);
        assert_eq!(machine.fabric.route(1, 2).links(), [2, 4, 6]);
        assert_eq!(machine.fabric.route(2, 0).links(), [7, 5, 1]);
        assert!(machine.notices[0].contains("n0, n1, n2; switches: s, t"), "{:?}", machine.notices);
        // A ring in one direction has no ends: all are nodes.
        let ring = made(&[("a", "b"), ("b", "c"), ("c", "a")]).unwrap();
        assert_eq!(ring.fabric.route(0, 2).links(), [0, 1]);
        assert_eq!(ring.fabric.route(2, 1).links(), [2, 0]);
    }

    #[test]
    fn what_connects_too_little_is_refused() {
        assert_eq!(made(&[]), Err(GraphError::NoLinks));
        assert_eq!(made(&[("a", "b")]), Err(GraphError::NoWay("b".into(), "a".into())));
        let names: Vec<String> = (0..12).map(|n| format!("r{n}")).collect();
        let ring: Vec<(&str, &str)> = (0..12).map(|n| (names[n].as_str(), names[(n + 1) % 12].as_str())).collect();
        assert!(matches!(made(&ring), Err(GraphError::TooLong(..))));
    }
}
