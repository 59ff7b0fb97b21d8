//! The contention surface: time by size and level, as a heat map.

use super::parts::{sentence, title, words};
use crate::digest::{Point, Profile};
use crate::frame::{Frame, Margins, Plot};
use crate::order::spread_out;
use crate::style::{self, LETTER};
use crate::svg::{Anchor, width_em};
use crate::units;

const MARGINS: Margins = Margins { left: 88.0, right: 14.0 };
const ROW: f64 = 30.0;
/// Most columns, so that a number fits into each.
const MOST_SIZES: usize = 8;
const MOST_LEVELS: usize = 24;

/// Slow-down against the least contended level that measured a size, for each size and level;
/// nothing if there is one level only.
#[must_use]
pub fn surface(profile: &Profile) -> Option<Plot> {
    if profile.levels.len() < 2 {
        return None;
    }
    let sizes = spread_out(profile.sizes.clone(), MOST_SIZES);
    let levels = spread_out((0..profile.levels.len()).collect(), MOST_LEVELS);
    let cells: Vec<Vec<Option<(&Point, f64)>>> =
        levels.iter().map(|l| sizes.iter().map(|s| slow_down(profile, *l, *s)).collect()).collect();
    let factors = cells.iter().flatten().flatten().map(|c| c.1);
    let (least, most) = (factors.clone().fold(1.0, f64::min), factors.fold(1.0, f64::max));
    // Colours reach to twice the time at least: a tenth more must not look like the end of the
    // world.
    let brightest = most.max(2.0 * least);
    let explanation = format!(
        "{}. In each cell the median time as a multiple of that at the least contended level; the brighter, the slower, up to {}.{}",
        sentence(&profile.key.qualities()),
        units::number(brightest),
        // The same pairs of ranks with more threads are more pairs that talk at once.
        if profile.levels.iter().any(|l| l.threads > 0) {
            " 1·4 is one pair of ranks with 4 threads each: 4 pairs of threads talk at once."
        } else {
            ""
        }
    );
    let mut frame = Frame::new(&title(profile, "contention surface"), &explanation, ROW * levels.len() as f64, MARGINS);
    let width = (frame.right - frame.left) / sizes.len().max(1) as f64;
    // The lowest level is at the bottom, as on any axis.
    for (row, level) in levels.iter().enumerate() {
        let y = frame.bottom - (row + 1) as f64 * ROW;
        frame.canvas.text(
            "small muted",
            frame.left - 7.0,
            y + ROW / 2.0 + 4.0,
            Anchor::End,
            &profile.levels[*level].short(),
        );
        for (column, cell) in cells[row].iter().enumerate() {
            let x = frame.left + column as f64 * width;
            let Some((point, factor)) = cell else { continue };
            let step = style::step((factor / least).ln() / (brightest / least).ln());
            frame.canvas.rect(&format!("h{step}"), x + 0.5, y + 0.5, width - 1.0, ROW - 1.0);
            let (cx, cy) = (x + width / 2.0, y + ROW / 2.0);
            frame.canvas.text(
                &format!("small {}", style::ink_on(step)),
                cx,
                cy + 4.0,
                Anchor::Middle,
                &units::number(rounded(*factor)),
            );
            let text = format!(
                "{}, {}; {} × the least contended",
                profile.levels[*level].label(),
                words(point),
                units::number(rounded(*factor))
            );
            frame.canvas.hint(cx, cy, &text);
        }
    }
    let mut free_from = f64::MIN;
    for (column, size) in sizes.iter().enumerate() {
        let (x, text) = (frame.left + (column as f64 + 0.5) * width, units::size(*size));
        let half = width_em(&text) * LETTER * 0.53;
        if x - half >= free_from {
            frame.canvas.text("small muted", x, frame.bottom + 16.0, Anchor::Middle, &text);
            free_from = x + half + 4.0;
        }
    }
    // Beside a few rows there is no room for more than a word.
    let label = match (profile.counted(), levels.len() > 4) {
        (Some(counted), true) => format!("{counted} (nodes × ranks)"),
        (Some(counted), false) => counted.to_owned(),
        (None, true) => "nodes × ranks per node".to_owned(),
        (None, false) => "placement".to_owned(),
    };
    let (x, y) = ((frame.left + frame.right) / 2.0, (frame.top + frame.bottom) / 2.0);
    frame.canvas.text("small", x, frame.bottom + 35.0, Anchor::Middle, "message size");
    frame.canvas.text_upwards("small", 15.0, y, Anchor::Middle, &label);
    let left_out = profile.sizes.len() - sizes.len();
    let note = if left_out > 0 { format!("{left_out} sizes between those shown are left out.") } else { String::new() };
    let description = format!(
        "Medians from {} to {} times those at the least contended level.",
        units::number(least),
        units::number(most)
    );
    Some(frame.finish(&format!("{} contention", profile.title), description, &note))
}

fn slow_down(profile: &Profile, level: usize, size: u64) -> Option<(&Point, f64)> {
    let usable = |level: usize| profile.points.get(&(level, size)).filter(|p| p.has_row() && p.row.p50_ns > 0.0);
    let point = usable(level)?;
    let reference = (0..profile.levels.len()).find_map(usable)?;
    Some((point, point.row.p50_ns / reference.row.p50_ns))
}

/// To hundredths, or to its first digit where less than a hundredth is left of a time: that is not
/// nothing.
fn rounded(factor: f64) -> f64 {
    match factor {
        f if f >= 10.0 || f <= 0.0 => f,
        f if f >= 0.01 => (f * 100.0).round() / 100.0,
        f => {
            let digit = 10f64.powf(f.log10().floor());
            (f / digit).round() * digit
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_time_is_shown_as_nothing_of_another() {
        let shown = |factor| units::number(rounded(factor));
        assert_eq!(
            [35.12, 1.826, 1.0, 0.0996, 0.012, 0.001_13].map(shown),
            ["35.1", "1.83", "1", "0.1", "0.01", "0.001"]
        );
    }
}
