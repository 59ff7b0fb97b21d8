//! The command line as somebody typed it. Who starts launches or ranks changes it for them, and
//! hands them this one to record, in one word that no shell on the way changes.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use crate::host;
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
    if number == Some(ranks) { without_secrets(words) } else { Vec::new() }
}

/// Words without the values of variables that hold secrets, which a launcher may be given as
/// `NAME=VALUE`, or as the word behind `NAME`.
fn without_secrets(mut words: Vec<String>) -> Vec<String> {
    let name_of = |word: &str| word.rsplit('=').next().unwrap_or_default().to_owned();
    let is_name = |name: &str| {
        let plain = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
        name.len() > 2 && name.chars().all(plain) && host::is_secret(name)
    };
    let mut behind = false;
    for word in &mut words {
        let parts: Vec<&str> = word.split('=').collect();
        let value = parts.iter().position(|part| is_name(part)).filter(|place| place + 1 < parts.len());
        if let Some(place) = value {
            *word = format!("{}={}", parts[..=place].join("="), host::NOT_KEPT);
        } else if std::mem::take(&mut behind) && !word.rsplit('=').next().unwrap_or_default().starts_with('-') {
            let option = word.find('=').filter(|_| word.starts_with('-')).map_or("", |at| &word[..=at]);
            *word = format!("{option}{}", host::NOT_KEPT);
        } else {
            behind = is_name(&name_of(word));
        }
    }
    words
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
        let secret =
            "weir,run,-n,2,--launcher-arg%3D-genv,--launcher-arg%3DWEIR_KEY,--launcher-arg%3Dabc,-x,TOKEN%3Dt,--";
        let kept = ["--launcher-arg=-genv", "--launcher-arg=WEIR_KEY", "--launcher-arg=(not kept)"];
        assert_eq!(launcher(Some(secret), 2)[4..7], kept);
        assert_eq!(launcher(Some(secret), 2)[7..], ["-x", "TOKEN=(not kept)", "--"]);
        assert_eq!([launcher(None, 1), launcher(Some(""), 1)], [[""; 0]; 2]);
        let not_utf_8 = [OsString::from_vec(vec![b'a', 0xff])];
        assert_eq!(words(Some(&one_word(&not_utf_8))), ["a\u{fffd}"]);
        assert_eq!(words(Some("100%,%zz")), ["100%", "%zz"], "by hand, and nonsense");
    }
}
