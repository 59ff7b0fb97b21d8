//! Drawings as pixels, with the letters that this program brings along: a bare machine needs no
//! fonts.

use std::io::Read as _;
use std::sync::{Arc, OnceLock};

use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{Options, Tree, fontdb};

use crate::Error;
use crate::frame::{Plot, Sheet};

/// Pixels for each unit of a drawing: sharp on paper at the width of a column.
const SCALE: f32 = 2.0;

/// The fonts, packed by the build script.
const FONTS: [&[u8]; 2] =
    [include_bytes!(concat!(env!("OUT_DIR"), "/regular")), include_bytes!(concat!(env!("OUT_DIR"), "/bold"))];

fn fonts() -> Arc<fontdb::Database> {
    static LOADED: OnceLock<Arc<fontdb::Database>> = OnceLock::new();
    let load = || {
        let mut database = fontdb::Database::new();
        for packed in FONTS {
            let mut font = Vec::new();
            // They are our own bytes: a test draws letters with them.
            if flate2::read::DeflateDecoder::new(packed).read_to_end(&mut font).is_ok() {
                database.load_font_data(font);
            }
        }
        Arc::new(database)
    };
    LOADED.get_or_init(load).clone()
}

/// The drawing on light ground, as a PNG file's bytes.
///
/// # Errors
/// [`Error::Draw`] if it cannot be drawn, which would be a fault of this program.
pub fn png(plot: &Plot) -> Result<Vec<u8>, Error> {
    let failed = |what: String| Error::Draw { plot: plot.name.clone(), what };
    let options = Options { fontdb: fonts(), font_family: "Noto Sans".into(), ..Options::default() };
    let tree = Tree::from_str(&plot.svg(Sheet::Plain), &options).map_err(|e| failed(e.to_string()))?;
    let size = tree.size().to_int_size().scale_by(SCALE).ok_or_else(|| failed("no size".into()))?;
    let mut pixels = Pixmap::new(size.width(), size.height()).ok_or_else(|| failed("no memory".into()))?;
    resvg::render(&tree, Transform::from_scale(SCALE, SCALE), &mut pixels.as_mut());
    pixels.encode_png().map_err(|e| failed(e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_fonts_are_there() {
        let fonts = fonts();
        let mut weights: Vec<u16> = fonts.faces().map(|face| face.weight.0).collect();
        weights.sort_unstable();
        assert_eq!(weights, [400, 700]);
        assert!(fonts.faces().all(|face| face.families.iter().any(|(name, _)| name == "Noto Sans")));
    }
}
