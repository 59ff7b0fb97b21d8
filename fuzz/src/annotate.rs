//! Any text as C to be annotated: no panic, what stood there still stands there, brackets of
//! directives pair.

use weir_annotate::{Options, annotate, measure};

/// Annotates bytes as C; whether there was something to annotate.
pub fn run(data: &[u8]) -> bool {
    let text = String::from_utf8_lossy(data);
    let mut any = false;
    for timed in [false, true] {
        let Ok(found) = annotate(&text, "fuzzed.c", &Options { timed, ..Options::default() }) else { continue };
        any = true;
        let out = found.text();
        assert_eq!(bare(&out), bare(&text), "the source has changed");
        let brackets = out.lines().filter_map(|l| l.trim_start().strip_prefix("// PEVPM ")).map(|d| match d {
            "{" => 1,
            "}" => -1,
            _ => 0i64,
        });
        assert_eq!(brackets.sum::<i64>(), 0, "brackets that do not pair");
        let _ = measure::instrumented(&text, &found.segments, "fuzzed.c");
    }
    any
}

fn bare(text: &str) -> String {
    let lines = text.split('\n').filter(|l| !l.trim_start().starts_with("// PEVPM"));
    lines.flat_map(str::split_whitespace).collect()
}
