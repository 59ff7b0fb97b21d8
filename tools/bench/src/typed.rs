//! The command line as somebody typed it. Who starts launches or ranks changes it for them, and hands them this one to record, in one word that
//! no shell on the way changes.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// The option that hands it on.
pub const OPTION: &str = "--typed";

/// This process's command line.
#[must_use]
pub fn own() -> Vec<OsString> {
    std::env::args_os().collect()
}

/// Words as one: with commas between them, and of all else than letters, digits and some signs the value in hexadecimal after `%`.
#[must_use]
pub fn one_word(words: &[OsString]) -> String {
    words.iter().map(|word| escaped(word)).collect::<Vec<_>>().join(",")
}

fn escaped(word: &OsStr) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
    let letter = |&byte: &u8| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02x}") };
    word.as_bytes().iter().map(letter).collect()
}

/// The words that were typed: those handed on, else this process's own.
#[must_use]
pub fn words(handed_on: Option<&str>) -> Vec<String> {
    let words = handed_on.map_or_else(own, |text| text.split(',').map(unescaped).collect());
    words.iter().map(|word| word.to_string_lossy().into_owned()).collect()
}

fn unescaped(text: &str) -> OsString {
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let value = part.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        // What nobody escaped stays as it is.
        bytes.push(value.unwrap_or(b'%'));
        bytes.extend_from_slice(if value.is_some() { &part.as_bytes()[2..] } else { part.as_bytes() });
    }
    OsString::from_vec(bytes)
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
        let not_utf_8 = [OsString::from_vec(vec![b'a', 0xff])];
        assert_eq!(words(Some(&one_word(&not_utf_8))), ["a\u{fffd}"]);
        assert_eq!(words(Some("100%,%zz")), ["100%", "%zz"], "by hand, and nonsense");
    }
}
