//! The library's name in programs: the file is packaged as `libweir-bsp.so`, whatever Cargo calls
//! it.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libweir-bsp.so");
}
