//! Packs the fonts that the program brings along: half of their bytes.

use std::io::Write as _;
use std::path::Path;

use flate2::{Compression, write::DeflateEncoder};

fn main() -> std::io::Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    let folder = std::env::var_os("OUT_DIR").expect("Cargo says where");
    for (name, font) in [("regular", notosans::REGULAR_TTF), ("bold", notosans::BOLD_TTF)] {
        let mut packed = DeflateEncoder::new(Vec::new(), Compression::best());
        packed.write_all(font)?;
        std::fs::write(Path::new(&folder).join(name), packed.finish()?)?;
    }
    Ok(())
}
