//! Finds loops in a list of tokens.
//!
//! Tokens go onto a stack; whenever its end repeats what lies directly before, or the body of the
//! loop there, both become one loop. Each such step keeps what the stack means, so that a folded
//! list always expands to what it was made of. The cost of a token is bounded: only so many
//! candidates are tried, and no body is longer than [`LONGEST`].

use std::collections::HashMap;

/// Entries of a loop's body at most.
pub const LONGEST: usize = 1024;
/// Candidates for the beginning of a repetition that are tried at each token.
const TRIED: usize = 48;

/// A list with loops.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Node {
    /// A token.
    Leaf(u32),
    /// So many times, at least 2.
    Loop(u64, Vec<Node>),
}

/// An entry of the stack. Bodies are numbered: the same body has the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Entry {
    Leaf(u32),
    Loop { body: u32, count: u64 },
}

#[derive(Debug, Default)]
struct Folder {
    stack: Vec<Entry>,
    /// Where each entry stands on the stack, ascending.
    places: HashMap<Entry, Vec<usize>>,
    /// Where loops stand on the stack, ascending.
    loops: Vec<usize>,
    bodies: Vec<Vec<Entry>>,
    numbers: HashMap<Vec<Entry>, u32>,
}

/// The tokens with their loops.
#[must_use]
pub fn fold(tokens: &[u32]) -> Vec<Node> {
    let mut folder = Folder::default();
    for token in tokens {
        folder.push(Entry::Leaf(*token));
        while folder.reduce() {}
    }
    folder.nodes(&folder.stack)
}

impl Folder {
    fn push(&mut self, entry: Entry) {
        let at = self.stack.len();
        self.stack.push(entry);
        self.places.entry(entry).or_default().push(at);
        if matches!(entry, Entry::Loop { .. }) {
            self.loops.push(at);
        }
    }

    fn pop(&mut self, count: usize) {
        for _ in 0..count {
            let Some(entry) = self.stack.pop() else { return };
            if let Some(places) = self.places.get_mut(&entry) {
                places.pop();
                if places.is_empty() {
                    self.places.remove(&entry);
                }
            }
            if matches!(entry, Entry::Loop { .. }) {
                self.loops.pop();
            }
        }
    }

    /// Makes one step, if there is one.
    fn reduce(&mut self) -> bool {
        if let Some((keep, body, count)) = self.continued().or_else(|| self.joined()).or_else(|| self.repeated()) {
            self.pop(self.stack.len() - keep);
            self.push(Entry::Loop { body, count });
            return true;
        }
        false
    }

    /// The end is one more iteration of the loop before it: what stays, and the loop.
    fn continued(&self) -> Option<(usize, u32, u64)> {
        for at in self.loops.iter().rev().take(8) {
            let Entry::Loop { body, count } = self.stack[*at] else { continue };
            let end = &self.stack[at + 1..];
            if end.len() > LONGEST {
                break;
            }
            if !end.is_empty() && self.bodies[body as usize] == end {
                return Some((*at, body, count + 1));
            }
        }
        None
    }

    /// Two loops of one body.
    fn joined(&self) -> Option<(usize, u32, u64)> {
        let [.., Entry::Loop { body: first, count: a }, Entry::Loop { body, count: b }] = self.stack[..] else {
            return None;
        };
        (first == body).then(|| (self.stack.len() - 2, body, a + b))
    }

    /// The end repeats what lies before it.
    fn repeated(&mut self) -> Option<(usize, u32, u64)> {
        let length = self.stack.len();
        let last = self.stack.last()?;
        let places = self.places.get(last)?;
        let block = places.iter().rev().skip(1).take(TRIED).map(|at| length - 1 - at).find(|block| {
            *block <= LONGEST
                && 2 * block <= length
                && self.stack[length - 2 * block..length - block] == self.stack[length - block..]
        })?;
        let body = self.stack[length - block..].to_vec();
        let number = match self.numbers.get(&body) {
            Some(number) => *number,
            None => {
                let number = u32::try_from(self.bodies.len()).ok()?;
                self.bodies.push(body.clone());
                self.numbers.insert(body, number);
                number
            }
        };
        Some((length - 2 * block, number, 2))
    }

    fn nodes(&self, entries: &[Entry]) -> Vec<Node> {
        let node = |entry: &Entry| match entry {
            Entry::Leaf(token) => Node::Leaf(*token),
            Entry::Loop { body, count } => Node::Loop(*count, self.nodes(&self.bodies[*body as usize])),
        };
        entries.iter().map(node).collect()
    }
}

/// The tokens that a list with loops means, in order.
pub fn expand(nodes: &[Node], out: &mut Vec<u32>) {
    for node in nodes {
        match node {
            Node::Leaf(token) => out.push(*token),
            Node::Loop(count, body) => (0..*count).for_each(|_| expand(body, out)),
        }
    }
}

/// How many tokens and loops are written down.
#[must_use]
pub fn size(nodes: &[Node]) -> usize {
    nodes.iter().map(|node| if let Node::Loop(_, body) = node { 1 + size(body) } else { 1 }).sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn folded(text: &str) -> String {
        fn show(nodes: &[Node]) -> String {
            let one = |node: &Node| match node {
                Node::Leaf(token) => char::from_u32(*token).unwrap().to_string(),
                Node::Loop(count, body) => format!("{count}({})", show(body)),
            };
            nodes.iter().map(one).collect()
        }
        show(&fold(&text.chars().map(u32::from).collect::<Vec<_>>()))
    }

    #[test]
    fn loops_are_found_as_people_would_write_them() {
        assert_eq!(folded("abc"), "abc");
        assert_eq!(folded("aaaa"), "4(a)");
        assert_eq!(folded("xababaabx"), "x2(ab)2(a)bx");
        assert_eq!(folded(&("b".to_owned() + &"srsr".repeat(500) + "e")), "b1000(sr)e");
        assert_eq!(folded(&format!("{}z", "aaab".repeat(10))), "10(3(a)b)z");
        assert_eq!(folded(&("aaaaaaaaab".repeat(3) + "aaa")), "3(9(a)b)3(a)");
    }

    /// Programs: nested loops of small bodies.
    fn nested() -> impl Strategy<Value = Vec<u32>> {
        let leaf = prop::collection::vec(0u32..5, 1..5);
        leaf.prop_recursive(3, 200, 4, |inner| {
            (prop::collection::vec(inner, 1..4), 1usize..6).prop_map(|(parts, times)| parts.concat().repeat(times))
        })
    }

    proptest! {
        #[test]
        fn what_is_folded_expands_to_what_it_was(tokens in prop_oneof![prop::collection::vec(0u32..4, 0..300), nested()]) {
            let nodes = fold(&tokens);
            let mut back = Vec::new();
            expand(&nodes, &mut back);
            prop_assert_eq!(&back, &tokens);
            prop_assert!(size(&nodes) <= tokens.len().max(1));
            prop_assert_eq!(fold(&back), nodes);
        }

        #[test]
        fn a_repetition_is_as_long_as_what_is_repeated(body in prop::collection::vec(0u32..6, 1..20), times in 3u32..200) {
            let tokens = body.repeat(times as usize);
            // Where the first repetition ends may be cut differently, so that parts of three bodies
            // can stay.
            prop_assert!(size(&fold(&tokens)) <= 4 * body.len() + 4, "{:?}", fold(&tokens));
        }
    }
}
