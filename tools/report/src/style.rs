//! Colours and letters of all drawings: one table of classes, written as a style sheet for a page,
//! for a drawing that stands alone (both follow the reader's choice of light or dark), or for
//! pixels (light).
//!
//! Categories take the colours of Okabe and Ito ("Color Universal Design", 2008), which people with
//! any common colour blindness tell apart, lightened on dark ground; ordered values take viridis
//! (van der Walt and Smith, 2015), whose lightness rises evenly. Lines of one plot differ in dash
//! and mark too, never in colour alone.

use std::fmt::Write as _;

/// Colours of categories: on light ground, on dark ground.
const CATEGORIES: [(&str, &str); 7] = [
    ("#0072b2", "#56b4e9"), // blue
    ("#d55e00", "#f28e4b"), // vermilion
    ("#00785a", "#2fc59a"), // green
    ("#a8477f", "#e39cc6"), // purple
    ("#9a6700", "#e8b13a"), // orange
    ("#5a5fc7", "#a9adff"), // indigo
    ("#4d5560", "#b9c2cc"), // grey
];

/// How many categories there are before colours repeat.
pub const CATEGORY_COUNT: usize = CATEGORIES.len();

/// How many steps the colours of ordered values have: classes `q0` (lines), `h0` (areas) and on.
pub const STEPS: usize = 12;

/// Viridis at eleven even steps.
const VIRIDIS: [[u8; 3]; 11] = [
    [0x44, 0x01, 0x54],
    [0x48, 0x24, 0x75],
    [0x41, 0x44, 0x87],
    [0x35, 0x5f, 0x8d],
    [0x2a, 0x78, 0x8e],
    [0x21, 0x91, 0x8c],
    [0x22, 0xa8, 0x84],
    [0x44, 0xbf, 0x70],
    [0x7a, 0xd1, 0x51],
    [0xbd, 0xdf, 0x26],
    [0xfd, 0xe7, 0x25],
];

/// Opacity of the five shades of density, `d0` (a single sample) to `d4`.
const SHADES: [f64; 5] = [0.16, 0.28, 0.42, 0.6, 0.85];

/// How many shades of density there are.
pub const SHADE_COUNT: usize = SHADES.len();

/// Size of most letters in drawings, in user units.
pub const LETTER: f64 = 12.4;

/// Letters in drawings; the last two are on any machine, the first is what pixels are drawn with.
pub const FONTS: &str = "'Noto Sans',system-ui,'DejaVu Sans',Arial,sans-serif";

/// Which ground a style sheet is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ground {
    /// White.
    Light,
    /// Near black.
    Dark,
}

fn viridis(part: f64) -> String {
    let place = part.clamp(0.0, 1.0) * (VIRIDIS.len() - 1) as f64;
    let below = (place as usize).min(VIRIDIS.len() - 2);
    let mix = place - below as f64;
    let channel = |i: usize| {
        let (a, b) = (f64::from(VIRIDIS[below][i]), f64::from(VIRIDIS[below + 1][i]));
        (a + (b - a) * mix).round() as u8
    };
    format!("#{:02x}{:02x}{:02x}", channel(0), channel(1), channel(2))
}

/// The class of text that is readable on area `h<step>`.
#[must_use]
pub fn ink_on(step: usize) -> &'static str {
    if step * 2 >= STEPS { "on-light" } else { "on-dark" }
}

/// The step (0..[`STEPS`]) of a part (0..=1) of a range.
#[must_use]
pub fn step(part: f64) -> usize {
    ((part.clamp(0.0, 1.0) * STEPS as f64) as usize).min(STEPS - 1)
}

/// The step of the `i`-th of `n` ordered things.
#[must_use]
pub fn step_of(i: usize, n: usize) -> usize {
    if n < 2 { STEPS / 2 } else { i * (STEPS - 1) / (n - 1) }
}

/// Rules that are the same on any ground.
fn shapes(prefix: &str) -> String {
    let mut css = String::new();
    let mut rule = |selector: &str, body: &str| {
        let _ = writeln!(css, "{prefix}{selector}{{{body}}}");
    };
    rule("text", &format!("font-family:{FONTS};font-size:13px"));
    rule(".small", &format!("font-size:{LETTER}px"));
    rule(".title", "font-size:15px;font-weight:600");
    rule(".strong", "font-weight:600");
    rule(".line", "fill:none;stroke-width:1.7;stroke-linejoin:round;stroke-linecap:round");
    rule(".thick", "stroke-width:2.6");
    rule(".thin", "fill:none;stroke-width:1.2;stroke-linejoin:round");
    rule(".bar", "fill:none;stroke-width:5;stroke-linecap:butt");
    rule(".dash", "stroke-dasharray:6 4");
    rule(".dot", "stroke-dasharray:1.5 3.5");
    rule(".ring", "fill:none;stroke-width:1.4");
    rule(".grid", "fill:none;stroke-width:1");
    rule(".axis", "fill:none;stroke-width:1");
    // How thick its strokes are, each plot says: neighbours meet, and must not blend where they do.
    rule(".density", "fill:none;shape-rendering:crispEdges");
    rule(".ridge", "fill-opacity:.72;stroke-width:1.1;stroke-linejoin:round");
    rule(".band", "fill-opacity:.14;stroke:none");
    rule(".hit", "fill-opacity:0;stroke:none");
    for (i, opacity) in SHADES.iter().enumerate() {
        rule(&format!(".d{i}"), &format!("stroke-opacity:{opacity}"));
    }
    for i in 0..STEPS {
        rule(&format!(".h{i}"), &format!("fill:{}", viridis(i as f64 / (STEPS - 1) as f64)));
    }
    rule(".on-light", "fill:#10151a");
    rule(".on-dark", "fill:#fff");
    css
}

/// Rules that depend on the ground.
fn colours(prefix: &str, ground: Ground) -> String {
    let pick = |pair: (&'static str, &'static str)| if ground == Ground::Light { pair.0 } else { pair.1 };
    let mut css = String::new();
    let mut rule = |selector: &str, body: &str| {
        let _ = writeln!(css, "{prefix}{selector}{{{body}}}");
    };
    rule(".ground", &format!("fill:{}", pick(("#ffffff", "#14181d"))));
    rule("text", &format!("fill:{}", pick(("#1b1f24", "#e6e9ed"))));
    rule(".muted", &format!("fill:{}", pick(("#57606a", "#a3adb8"))));
    rule(".grid", &format!("stroke:{}", pick(("#e4e7eb", "#2a3139"))));
    rule(".axis", &format!("stroke:{}", pick(("#8b949e", "#6b7580"))));
    rule(".ridge", &format!("stroke:{}", pick(("#ffffff", "#14181d"))));
    for (i, pair) in CATEGORIES.into_iter().enumerate() {
        let colour = pick(pair);
        rule(&format!(".c{i}"), &format!("stroke:{colour}"));
        rule(&format!(".f{i}"), &format!("fill:{colour}"));
    }
    // The palest end vanishes on white, the darkest on black: lines use the part of the scale that
    // shows.
    let (from, to) = if ground == Ground::Light { (0.0, 0.8) } else { (0.3, 1.0) };
    for i in 0..STEPS {
        let colour = viridis(from + (to - from) * i as f64 / (STEPS - 1) as f64);
        rule(&format!(".q{i}"), &format!("stroke:{colour}"));
        rule(&format!(".qf{i}"), &format!("fill:{colour}"));
    }
    css
}

/// The style sheet for light ground only, for pixels: plain rules that any renderer of SVG knows.
#[must_use]
pub fn plain(prefix: &str) -> String {
    // Shapes come last: ink on coloured areas must win over the colour of text in general.
    colours(prefix, Ground::Light) + &shapes(prefix)
}

/// The style sheet that follows the reader's choice of light or dark; paper is always light.
#[must_use]
pub fn adaptive(prefix: &str) -> String {
    format!(
        "{}@media screen and (prefers-color-scheme:dark){{\n{}{prefix}.on-dark{{fill:#fff}}{prefix}.on-light{{fill:#10151a}}}}\n",
        plain(prefix),
        colours(prefix, Ground::Dark)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Relative luminance after WCAG 2.
    fn luminance(hex: &str) -> f64 {
        let channel = |i: usize| {
            let c = f64::from(u8::from_str_radix(&hex[i..i + 2], 16).unwrap()) / 255.0;
            if c <= 0.040_45 { c / 12.92 } else { ((c + 0.055) / 1.055f64).powf(2.4) }
        };
        0.2126 * channel(1) + 0.7152 * channel(3) + 0.0722 * channel(5)
    }

    fn contrast(a: &str, b: &str) -> f64 {
        let (a, b) = (luminance(a), luminance(b));
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    #[test]
    fn categories_stand_out_from_their_ground() {
        for (light, dark) in CATEGORIES {
            assert!(contrast(light, "#ffffff") >= 3.8, "{light} on white");
            assert!(contrast(dark, "#14181d") >= 4.5, "{dark} on dark");
        }
        assert!(contrast("#57606a", "#ffffff") >= 4.5 && contrast("#a3adb8", "#14181d") >= 4.5);
    }

    #[test]
    fn text_on_heat_is_readable() {
        for i in 0..STEPS {
            let ink = if ink_on(i) == "on-light" { "#10151a" } else { "#ffffff" };
            let area = viridis(i as f64 / (STEPS - 1) as f64);
            assert!(contrast(ink, &area) >= 4.0, "step {i}: {ink} on {area}");
        }
    }

    #[test]
    fn steps_cover_their_range() {
        assert_eq!((step(0.0), step(1.0), step(2.0), step(-1.0)), (0, STEPS - 1, STEPS - 1, 0));
        assert_eq!((step_of(0, 5), step_of(4, 5), step_of(0, 1)), (0, STEPS - 1, STEPS / 2));
    }
}
