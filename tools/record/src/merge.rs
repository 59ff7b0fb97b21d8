//! Puts the folded lists of all processes into one program: what stands at the same place is one
//! column, loops with common calls are one loop, and each column knows which processes have it.

use std::collections::{BTreeMap, BTreeSet};

use crate::acts::Sample;
use crate::fold::Node;
use crate::rules;

/// A statement of the program, or a loop, with what each process did there.
#[derive(Debug, Clone)]
pub enum Column {
    /// A call.
    Leaf {
        /// Which call at which place: the same number, the same statement.
        key: u32,
        /// By process (an index of the samples): its acts there, in order.
        of: BTreeMap<usize, Vec<u32>>,
    },
    /// A loop.
    Loop {
        /// By process: how many times.
        of: BTreeMap<usize, u64>,
        /// What is repeated.
        body: Vec<Column>,
    },
}

/// Cells of the table that aligns two lists, at most.
const MOST_CELLS: usize = 4_000_000;

impl Column {
    /// The processes that have it.
    #[must_use]
    pub fn present(&self) -> BTreeSet<usize> {
        match self {
            Self::Leaf { of, .. } => of.keys().copied().collect(),
            Self::Loop { of, .. } => of.keys().copied().collect(),
        }
    }

    fn keys(&self, into: &mut BTreeSet<u32>) {
        match self {
            Self::Leaf { key, .. } => {
                into.insert(*key);
            }
            Self::Loop { body, .. } => body.iter().for_each(|column| column.keys(into)),
        }
    }

    fn all_keys(&self) -> BTreeSet<u32> {
        let mut keys = BTreeSet::new();
        self.keys(&mut keys);
        keys
    }
}

/// The columns of one process: its folded list, with the numbers of its acts put where they stand.
#[must_use]
pub fn columns(sample: usize, nodes: &[Node], keys: &[u32]) -> Vec<Column> {
    fn shape(sample: usize, nodes: &[Node]) -> Vec<Column> {
        let one = |node: &Node| match node {
            Node::Leaf(_) => Column::Leaf { key: 0, of: BTreeMap::from([(sample, Vec::new())]) },
            Node::Loop(count, body) => {
                Column::Loop { of: BTreeMap::from([(sample, *count)]), body: shape(sample, body) }
            }
        };
        nodes.iter().map(one).collect()
    }
    fn fill(columns: &mut [Column], keys: &[u32], next: &mut u32) {
        for column in columns {
            match column {
                Column::Leaf { key, of } => {
                    *key = keys.get(*next as usize).copied().unwrap_or(0);
                    of.values_mut().for_each(|acts| acts.push(*next));
                    *next += 1;
                }
                Column::Loop { of, body } => {
                    let count = of.values().next().copied().unwrap_or(0);
                    (0..count).for_each(|_| fill(body, keys, next));
                }
            }
        }
    }
    let mut out = shape(sample, nodes);
    fill(&mut out, keys, &mut 0);
    out
}

/// Two programs as one. None: they are too long to be compared.
#[must_use]
pub fn merge(mut first: Vec<Column>, mut second: Vec<Column>, samples: &[Sample]) -> Option<Vec<Column>> {
    wrap(&mut first, &second);
    wrap(&mut second, &first);
    if first.len().checked_mul(second.len())? > MOST_CELLS {
        return None;
    }
    let pairs = align(&first, &second, samples);
    let mut out = Vec::new();
    let (mut a, mut b) = (first.into_iter().enumerate().peekable(), second.into_iter().enumerate().peekable());
    for (i, j) in pairs {
        while let Some((_, column)) = a.next_if(|(at, _)| *at < i) {
            out.push(column);
        }
        while let Some((_, column)) = b.next_if(|(at, _)| *at < j) {
            out.push(column);
        }
        if let (Some((_, x)), Some((_, y))) = (a.next(), b.next()) {
            out.push(join(x, y, samples)?);
        }
    }
    out.extend(a.map(|(_, column)| column));
    out.extend(b.map(|(_, column)| column));
    Some(out)
}

fn join(first: Column, second: Column, samples: &[Sample]) -> Option<Column> {
    Some(match (first, second) {
        (Column::Leaf { key, mut of }, Column::Leaf { of: more, .. }) => {
            of.extend(more);
            Column::Leaf { key, of }
        }
        (Column::Loop { mut of, body }, Column::Loop { of: more, body: other }) => {
            of.extend(more);
            Column::Loop { of, body: merge(body, other, samples)? }
        }
        (first, _) => first,
    })
}

/// Where one program has a loop and the other the same calls once, these are a loop of one
/// iteration.
fn wrap(columns: &mut Vec<Column>, other: &[Column]) {
    for model in other.iter().filter(|column| matches!(column, Column::Loop { .. })) {
        let keys = model.all_keys();
        let has_loop =
            columns.iter().any(|column| matches!(column, Column::Loop { .. }) && !column.all_keys().is_disjoint(&keys));
        if has_loop {
            continue;
        }
        let fits: Vec<bool> =
            columns.iter().map(|column| matches!(column, Column::Leaf { key, .. } if keys.contains(key))).collect();
        let Some((begin, end)) = longest_run(&fits) else { continue };
        let body: Vec<Column> = columns.splice(begin..end, []).collect();
        let of = body.iter().flat_map(Column::present).map(|sample| (sample, 1)).collect();
        columns.insert(begin, Column::Loop { of, body });
    }
}

fn longest_run(fits: &[bool]) -> Option<(usize, usize)> {
    let mut best: Option<(usize, usize)> = None;
    let mut begin = 0;
    for (at, fit) in fits.iter().chain([&false]).enumerate() {
        if *fit {
            continue;
        }
        if at > begin && best.is_none_or(|(a, b)| at - begin > b - a) {
            best = Some((begin, at));
        }
        begin = at + 1;
    }
    best
}

/// Pairs of columns that are one, so that as much as possible is common (longest common subsequence
/// with weights).
fn align(first: &[Column], second: &[Column], samples: &[Sample]) -> Vec<(usize, usize)> {
    let width = second.len() + 1;
    let mut best = vec![0u32; (first.len() + 1) * width];
    let signs = |columns: &[Column]| -> Vec<Sign> { columns.iter().map(|column| sign(column, samples)).collect() };
    let (left, right) = (signs(first), signs(second));
    let weight_at = |i: usize, j: usize| weight(&left[i], &right[j]);
    for i in (0..first.len()).rev() {
        for j in (0..second.len()).rev() {
            let skip = best[(i + 1) * width + j].max(best[i * width + j + 1]);
            let take = weight_at(i, j);
            best[i * width + j] = if take > 0 { skip.max(take + best[(i + 1) * width + j + 1]) } else { skip };
        }
    }
    let (mut i, mut j, mut out) = (0, 0, Vec::new());
    while i < first.len() && j < second.len() {
        let here = best[i * width + j];
        if weight_at(i, j) > 0 && here == weight_at(i, j) + best[(i + 1) * width + j + 1] {
            out.push((i, j));
            (i, j) = (i + 1, j + 1);
        } else if here == best[(i + 1) * width + j] {
            i += 1;
        } else {
            j += 1;
        }
    }
    out
}

/// What is compared of a column.
enum Sign {
    /// The statement, and the rules by which it could find its peer.
    Leaf(u32, BTreeSet<String>),
    /// The statements within.
    Loop(BTreeSet<u32>),
}

fn sign(column: &Column, samples: &[Sample]) -> Sign {
    match column {
        Column::Leaf { key, of } => Sign::Leaf(*key, ways(of, samples)),
        Column::Loop { .. } => Sign::Loop(column.all_keys()),
    }
}

/// How much two columns have in common; 0: they are not one. Calls that go the same way count more.
fn weight(first: &Sign, second: &Sign) -> u32 {
    match (first, second) {
        (Sign::Leaf(key, ways), Sign::Leaf(other, more)) if key == other => {
            20 + ways.intersection(more).take(3).count() as u32
        }
        (Sign::Loop(a), Sign::Loop(b)) => 24 * u32::try_from(a.intersection(b).count()).unwrap_or(1),
        _ => 0,
    }
}

/// The rules that hold for the first act of some processes of a column.
fn ways(of: &BTreeMap<usize, Vec<u32>>, samples: &[Sample]) -> BTreeSet<String> {
    let some = of.iter().step_by((of.len() / 3).max(1)).take(4);
    let each = some.filter_map(|(sample, acts)| {
        let sample = samples.get(*sample)?;
        let act = sample.acts.get(*acts.first()? as usize)?;
        let field = act.kind.fields(false).first().copied()?;
        let peer = act.numbers.first().filter(|peer| field.is_process() && **peer >= 0)?;
        Some(rules::ways(sample.n, sample.p, *peer))
    });
    each.reduce(|a, b| a.intersection(&b).cloned().collect()).unwrap_or_default()
}
