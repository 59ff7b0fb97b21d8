//! Supersteps of many processes, kept as a snapshot: none collapses, which is to take longer than h g + l. (That they take as long is not reached: `docs/lab/2026-11-26-supersteps-2.md`.) `WEIR_SIM_BIG=1` runs total exchanges of 256 and 1024 processes too (minutes, and gigabytes).
//! `INSTA_UPDATE=always cargo test -p weir-sim --test supersteps_many` accepts new numbers.

use weir_sim::step_many;

#[test]
fn supersteps_of_many_processes_do_not_collapse() {
    let big = std::env::var_os("WEIR_SIM_BIG").is_some();
    let series = step_many::series(big);
    let measured: Vec<_> = series.iter().map(step_many::Series::measure).collect();
    let table = step_many::table(&series, &measured);
    for (one, m) in series.iter().zip(&measured) {
        for (nth, r) in m.reports.iter().enumerate() {
            assert_eq!(r.violation, None, "{}", one.name);
            assert!(nth == 0 || m.over_model(nth) < 1.1, "{}\n{table}", one.name);
        }
    }
    if big {
        println!("{table}");
    } else {
        insta::assert_snapshot!("supersteps_many", table);
    }
}
