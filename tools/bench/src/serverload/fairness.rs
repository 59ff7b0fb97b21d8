//! How even a server served its clients (`spec/distribution-format.md` 3.9): pure arithmetic.

use weir_distribution::Service;

/// Jain's index of some rates: 1 if all are equal, 1/n if one of n has everything. None of nothing.
///
/// Source: Jain, Chiu and Hawe, "A quantitative measure of fairness and discrimination for resource
/// allocation in shared computer systems", DEC TR-301 (1984).
#[must_use]
pub fn jain(rates: &[f64]) -> Option<f64> {
    // In proportion to the greatest, so that no square is out of range.
    let greatest = rates.iter().copied().fold(0.0, f64::max);
    if greatest <= 0.0 || !greatest.is_finite() {
        return None;
    }
    let (sum, squares) = rates.iter().map(|rate| rate / greatest).fold((0.0, 0.0), |(s, q), x| (s + x, q + x * x));
    Some((sum * sum / (rates.len() as f64 * squares)).min(1.0))
}

/// The longest of some times over the shortest. None of nothing, and of times that are not above 0.
#[must_use]
pub fn spread(times: &[f64]) -> Option<f64> {
    let (least, most) = times.iter().fold((f64::INFINITY, 0.0f64), |(least, most), &t| (least.min(t), most.max(t)));
    (least > 0.0 && most.is_finite() && least <= most).then(|| most / least)
}

/// What is told of a cell: `times[repetition][client]`, ns, of the repetitions that count;
/// `busy_ns`: how long requests were under way in them.
#[must_use]
pub fn service(times: &[Vec<f64>], rounds: bool, busy_ns: f64) -> Service {
    let rates = |times: &[f64]| times.iter().map(|t| 1.0 / t).collect::<Vec<f64>>();
    let spreads: Vec<f64> = times.iter().filter(|_| rounds).filter_map(|round| spread(round)).collect();
    let indices: Vec<f64> = times.iter().filter(|_| rounds).filter_map(|round| jain(&rates(round))).collect();
    let clients = times.first().map_or(0, Vec::len);
    let mean = |client: usize| times.iter().map(|one| one[client]).sum::<f64>() / times.len() as f64;
    let means: Vec<f64> = (0..clients).map(mean).collect();
    let answers = (times.len() * clients) as f64;
    Service {
        rounds: if rounds { times.len() as u64 } else { 0 },
        spread_p50: median(&spreads),
        spread_max: spreads.iter().copied().reduce(f64::max),
        jain_p50: median(&indices),
        jain_min: indices.iter().copied().reduce(f64::min),
        jain_clients: jain(&rates(&means)),
        answers_per_s: if busy_ns > 0.0 { answers / busy_ns * 1e9 } else { 0.0 },
        server_cpu_ns: None,
        server_peak_bytes: None,
    }
}

fn median(values: &[f64]) -> Option<f64> {
    weir_stats::Sample::durations(values.to_vec()).ok().map(|sample| sample.median())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn equal_shares_are_1_and_one_who_has_all_is_1_of_n() {
        assert_eq!(jain(&[3.0; 7]), Some(1.0));
        assert_eq!(jain(&[0.0, 0.0, 5.0, 0.0]), Some(0.25));
        // Of the paper's kind of example: half of the users equally, the others nothing.
        assert_eq!(jain(&[2.0, 2.0, 0.0, 0.0]), Some(0.5));
        assert!((jain(&[1.0, 2.0, 3.0]).unwrap() - 36.0 / 42.0).abs() < 1e-12);
        assert_eq!((jain(&[]), jain(&[0.0])), (None, None));
    }

    #[test]
    fn one_after_the_other_is_seen_although_the_mean_of_each_client_is_the_same() {
        // Two clients that change places in each round.
        let told = service(&[vec![1e6, 4e6], vec![4e6, 1e6]], true, 8e6);
        assert_eq!((told.rounds, told.spread_p50, told.spread_max), (2, Some(4.0), Some(4.0)));
        // Rates 1 and 1/4: (5/4)^2 / (2 * 17/16).
        assert!((told.jain_p50.unwrap() - 25.0 / 34.0).abs() < 1e-12, "{told:?}");
        assert!((told.jain_clients.unwrap() - 1.0).abs() < 1e-12, "{told:?}");
        // One who is always last.
        let told = service(&[vec![1e6, 4e6], vec![1e6, 4e6]], true, 8e6);
        assert!((told.jain_clients.unwrap() - 25.0 / 34.0).abs() < 1e-12, "{told:?}");
        assert_eq!(told.answers_per_s, 500.0);
    }

    #[test]
    fn an_open_loop_has_no_rounds() {
        let told = service(&[vec![1.0, 2.0]], false, 1.0);
        assert_eq!((told.rounds, told.spread_p50, told.jain_p50), (0, None, None));
        assert!(told.jain_clients.is_some());
        assert_eq!(service(&[], true, 0.0), Service { rounds: 0, ..Service::default() });
    }

    proptest! {
        #[test]
        fn the_index_is_between_1_of_n_and_1_and_has_no_unit(
            rates in proptest::collection::vec(1e-9f64..1e9, 1..65), unit in 1e-6f64..1e6
        ) {
            let index = jain(&rates).unwrap();
            prop_assert!(index <= 1.0 && index >= 1.0 / rates.len() as f64 - 1e-12, "{}", index);
            let other: Vec<f64> = rates.iter().map(|rate| rate * unit).collect();
            prop_assert!((jain(&other).unwrap() - index).abs() < 1e-9);
        }

        #[test]
        fn to_give_to_the_poorest_from_the_richest_raises_it(mut rates in proptest::collection::vec(1.0f64..100.0, 2..65)) {
            rates.sort_by(f64::total_cmp);
            let (before, last) = (jain(&rates).unwrap(), rates.len() - 1);
            let part = (rates[last] - rates[0]) / 4.0;
            rates[0] += part;
            rates[last] -= part;
            prop_assert!(jain(&rates).unwrap() >= before - 1e-12);
        }

        #[test]
        fn the_spread_is_that_of_the_two_ends(times in proptest::collection::vec(1.0f64..1e9, 1..65)) {
            let mut sorted = times.clone();
            sorted.sort_by(f64::total_cmp);
            prop_assert_eq!(spread(&times), Some(sorted[sorted.len() - 1] / sorted[0]));
        }
    }
}
