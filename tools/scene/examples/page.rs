//! Writes the page of a made-up prediction, to be looked at:
//! `cargo run -p weir-scene --example page -- page.html`.

#[path = "../tests/common/mod.rs"]
mod common;

fn main() {
    let Some(file) = std::env::args_os().nth(1) else {
        eprintln!("page: name the file to write");
        std::process::exit(2);
    };
    if let Err(error) = std::fs::write(&file, weir_scene::page::html(&common::scene())) {
        eprintln!("page: cannot write {}: {error}", file.display());
        std::process::exit(1);
    }
}
