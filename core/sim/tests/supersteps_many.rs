//! Supersteps of many processes, kept as a snapshot: they complete, within eight times what the
//! wire takes. (The goal, within a tenth of h g + l with the g of the wire, is not reached:
//! `docs/lab/2026-11-26-supersteps-2.md`. `g` in the table is fitted to the same points, so
//! `over model` says only how straight the line through them is.) `WEIR_SIM_BIG=1` runs total
//! exchanges of 256 and 1024 processes too (minutes, and gigabytes).
//! `INSTA_UPDATE=always cargo test -p weir-sim --test supersteps_many` accepts new numbers.

use weir_sim::step_many;

#[test]
fn supersteps_of_many_processes_complete_within_eight_times_the_wire() {
    let big = std::env::var_os("WEIR_SIM_BIG").is_some();
    let series = step_many::series(big);
    let measured: Vec<_> = series.iter().map(step_many::Series::measure).collect();
    let table = step_many::table(&series, &measured);
    for (one, m) in series.iter().zip(&measured) {
        for (nth, r) in m.reports.iter().enumerate() {
            assert_eq!(r.violation, None, "{}", one.name);
            // 8 ns a byte: a gigabit a second.
            let (h, ns) = m.means[nth];
            assert!(nth == 0 || ns < 8.0 * (h * 8.0 + m.means[0].1), "{}\n{table}", one.name);
        }
    }
    if big {
        println!("{table}");
    } else {
        insta::assert_snapshot!("supersteps_many", table);
    }
}
