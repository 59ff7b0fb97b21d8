//! The command line as somebody typed it. Who starts launches or ranks changes it for them, and
//! hands them this one to record, in one word that no shell on the way changes.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};

/// The option that hands it on.
pub const OPTION: &str = "--typed";

/// The variable by which `weir run` tells the ranks its own command line, in one such word and up
/// to their program.
pub const LAUNCHER: &str = "WEIR_RUN_COMMAND";

/// The command of `weir run` that started this process as one of `ranks`; none if none did. One of
/// another number of ranks started something that started these.
#[must_use]
pub fn launcher(told: Option<&str>, ranks: usize) -> Vec<String> {
    let words = told.filter(|told| !told.is_empty()).map(|told| words(Some(told))).unwrap_or_default();
    let number = words.iter().skip_while(|word| *word != "-n").nth(1).and_then(|number| number.parse().ok());
    if number == Some(ranks) { words } else { Vec::new() }
}

/// This process's command line.
#[must_use]
pub fn own() -> Vec<OsString> {
    std::env::args_os().collect()
}

/// What no shell changes stays as it is; the comma that parts the words is not among it.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'/');

/// Words as one: with commas between them, percent-encoded but for letters, digits and some signs.
#[must_use]
pub fn one_word(words: &[OsString]) -> String {
    words.iter().map(|word| escaped(word)).collect::<Vec<_>>().join(",")
}

fn escaped(word: &OsStr) -> String {
    percent_encode(word.as_bytes(), ESCAPED).to_string()
}

/// The words that were typed: those handed on, else this process's own.
#[must_use]
pub fn words(handed_on: Option<&str>) -> Vec<String> {
    let words = handed_on.map_or_else(own, |text| text.split(',').map(unescaped).collect());
    words.iter().map(|word| word.to_string_lossy().into_owned()).collect()
}

/// What nobody escaped stays as it is.
fn unescaped(text: &str) -> OsString {
    OsString::from_vec(percent_decode_str(text).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_typed_arrives_through_any_shell() {
        let typed = ["weir", "bench", "-o", "a b/\u{fc}", "--title", "50 % \"x\", $y", "", "--", "mpiexec", "-n", "2"];
        let one = one_word(&typed.map(OsString::from));
        assert!(one.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_./%,".contains(&b)), "{one}");
        assert_eq!(words(Some(&one)), typed);
        assert_eq!(launcher(Some("weir,run,-n,4,--no-shm"), 4), ["weir", "run", "-n", "4", "--no-shm"]);
        assert_eq!(launcher(Some("weir,run,-n,1"), 4), [""; 0], "it started an mpiexec");
        assert_eq!([launcher(None, 1), launcher(Some(""), 1)], [[""; 0]; 2]);
        let not_utf_8 = [OsString::from_vec(vec![b'a', 0xff])];
        assert_eq!(words(Some(&one_word(&not_utf_8))), ["a\u{fffd}"]);
        assert_eq!(words(Some("100%,%zz")), ["100%", "%zz"], "by hand, and nonsense");
    }
}
