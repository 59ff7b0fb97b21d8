//! What a finished cell costs the writer, by how many there are before it:
//! `cargo run --release -p weir-distribution --example many_cells [CELLS] [FOLDER]`. Cells are as
//! `weir bench` makes them on 16 ranks: two histograms, a summary, 1600 samples.

use std::time::{Duration, Instant};

use weir_distribution::{
    Cell, Configuration, Existing, HdrHistogram, HistogramRecord, Independence, Run, Sample, Skew, SummaryRecord,
    Writer,
};

/// Bytes of base64 in the histogram of some thousand times that are spread over two decades.
const HISTOGRAM_BYTES: usize = 2000;

fn histogram() -> HistogramRecord {
    let text = "HISTFAAA".chars().cycle().take(HISTOGRAM_BYTES).collect();
    HistogramRecord::Hdr(HdrHistogram { count: 1600, unit_ns: 1.0, significant_digits: 3, v2_deflate_base64: text })
}

fn cell() -> Cell {
    let configuration =
        Configuration { ranks_per_node: 8, ranks: 16, pairs: 0, ..Configuration::pair("allreduce", 64) };
    let mut cell = Cell::new(0, 0, configuration);
    let summary = SummaryRecord { count: 1600, ..SummaryRecord::default() };
    cell.summary = Some(summary.clone());
    cell.histogram = Some(histogram());
    cell.skew = Some(Skew { summary, histogram: Some(histogram()) });
    let autocorrelation = (0..20).map(|lag| 0.01 * f64::from(lag)).collect();
    cell.independence =
        Some(Independence { repetitions: 100, autocorrelation, runs_p: 0.5, ljung_box_p: 0.5, effective_count: 800.0 });
    cell
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let cells: u32 = words.next().map_or(Ok(2000), |word| word.parse())?;
    let own = tempfile::tempdir()?;
    let folder = words.next().map_or_else(|| own.path().join("run"), Into::into);
    let mut writer = Writer::create(&folder, Run::new("many"), Existing::Overwrite)?;
    let samples: Vec<Sample> = (0..1600)
        .map(|i| Sample { rank: i % 16, peer: -1, repetition: i / 16, duration_ns: f64::from(i), ..Sample::default() })
        .collect();
    let (mut span, mut all) = (Duration::ZERO, Duration::ZERO);
    for n in 1..=cells {
        let begun = Instant::now();
        writer.write_cell(cell(), &samples)?;
        span += begun.elapsed();
        if n.is_multiple_of(cells.div_ceil(10)) {
            println!("cell {n}: {:.2} ms each", span.as_secs_f64() * 1e3 / f64::from(cells.div_ceil(10)));
            all += std::mem::take(&mut span);
        }
    }
    println!("all: {:.1} s", (all + span).as_secs_f64());
    Ok(())
}
