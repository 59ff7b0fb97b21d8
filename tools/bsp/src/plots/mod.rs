//! Drawings of both pages.

pub mod machine;
pub mod profile;

pub(crate) use weir_report::frame::Margins;
use weir_report::style::CATEGORY_COUNT;

const MARGINS: Margins = Margins { left: 74.0, right: 20.0 };
const HEIGHT: f64 = 220.0;
/// Most series of a drawing.
const SERIES_MAX: usize = 8;

/// The class of a line of the `nth` series: colours repeat with another dash.
fn line_class(nth: usize) -> String {
    let dash = ["", " dash", " dot"][(nth / CATEGORY_COUNT) % 3];
    format!("line c{}{dash}", nth % CATEGORY_COUNT)
}

/// The class of an area of the same.
fn area_class(nth: usize) -> String {
    format!("f{}", nth % CATEGORY_COUNT)
}
