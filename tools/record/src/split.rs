//! Loops that folding by place alone made one of two: rounds within iterations (peers that repeat
//! with a period), or the same message several times before its size changes. The numbers of the
//! calls tell them apart.

use std::collections::BTreeMap;

use crate::acts::Sample;
use crate::merge::Column;

/// Splits the loops of one process's columns.
pub fn split(columns: &mut [Column], process: usize, sample: &Sample) {
    for column in columns {
        let Column::Loop { of, body } = column else { continue };
        split(body, process, sample);
        let Some(count) = of.get(&process).copied() else { continue };
        // Loops within are told apart already.
        if body.iter().any(|inner| matches!(inner, Column::Loop { .. })) {
            continue;
        }
        let rounds = rounds_of(body, process, sample);
        let Some((outer, inner)) = parts(&rounds, count) else { continue };
        let mut within = Column::Loop { of: BTreeMap::from([(process, inner)]), body: std::mem::take(body) };
        if let (Column::Loop { body, .. }, Some((some, each))) =
            (&mut within, rounds.get(..inner as usize).and_then(|one| runs(one, inner)))
        {
            let runs = Column::Loop { of: BTreeMap::from([(process, each)]), body: std::mem::take(body) };
            within = Column::Loop { of: BTreeMap::from([(process, some)]), body: vec![runs] };
        }
        *body = vec![within];
        of.insert(process, outer);
        if outer == 1
            && let Some(only) = body.pop()
        {
            *column = only;
        }
    }
}

/// Of each time the body ran, a number that is the same where all its calls had the same numbers.
fn rounds_of(body: &[Column], process: usize, sample: &Sample) -> Vec<u32> {
    let leaves: Vec<&Vec<u32>> = body
        .iter()
        .filter_map(|column| if let Column::Leaf { of, .. } = column { of.get(&process) } else { None })
        .collect();
    let times = leaves.iter().map(|acts| acts.len()).min().unwrap_or(0);
    let mut known = std::collections::HashMap::new();
    (0..times)
        .map(|round| {
            let numbers: Vec<&Vec<i64>> = leaves
                .iter()
                .filter_map(|acts| sample.acts.get(acts[round] as usize))
                .map(|act| &act.numbers)
                .collect();
            let next = u32::try_from(known.len()).unwrap_or(u32::MAX);
            *known.entry(numbers).or_insert(next)
        })
        .collect()
}

/// A loop of `count` as (outer, inner): by its shortest period, or as one whose iterations come in
/// runs.
fn parts(rounds: &[u32], count: u64) -> Option<(u64, u64)> {
    let period = period(rounds) as u64;
    if period <= 1 || !count.is_multiple_of(period) {
        return None;
    }
    if period < count || runs(rounds, count).is_some() { Some((count / period, period)) } else { None }
}

/// The shortest period (Knuth, Morris and Pratt 1977).
fn period(list: &[u32]) -> usize {
    let mut border = vec![0usize; list.len() + 1];
    let mut k = 0;
    for at in 1..list.len() {
        while k > 0 && list[at] != list[k] {
            k = border[k];
        }
        k += usize::from(list[at] == list[k]);
        border[at + 1] = k;
    }
    list.len() - border.last().copied().unwrap_or(0)
}

/// Runs of equal rounds, if all are as long, longer than one and several.
fn runs(list: &[u32], count: u64) -> Option<(u64, u64)> {
    let mut lengths = list.chunk_by(|a, b| a == b).map(<[u32]>::len);
    let each = lengths.next()? as u64;
    let alike = lengths.all(|length| length as u64 == each);
    (alike && each > 1 && each < count && count.is_multiple_of(each)).then_some((count / each, each))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_and_runs_are_the_shortest() {
        assert_eq!(parts(&[1, 1, 1, 1], 4), None);
        assert_eq!(parts(&[1, 2, 1, 2, 1, 2], 6), Some((3, 2)));
        assert_eq!(parts(&[1, 2, 3, 4], 4), None);
        assert_eq!(parts(&[1, 1, 2, 2, 3, 3], 6), Some((1, 6)));
        assert_eq!(runs(&[1, 1, 2, 2, 3, 3], 6), Some((3, 2)));
        assert_eq!(runs(&[1, 1, 2], 3), None);
    }
}
