//! Ledgers and parameters of BSP programs.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    weir_fuzz::bsp_files::run(data);
});
