//! The files that endpoints write for people: counters, trace, capture. An endpoint has its own,
//! and a process may have several endpoints (Open MPI has one for messages and one for windows).

use crate::Lock;
use std::collections::BTreeMap;

/// How many endpoints wrote to a file that this variable asked for. Locked after what closed
/// endpoints carried and the list of the endpoints, where several are, and only once children are
/// seen to (`forked.rs`).
pub static WRITTEN: Lock<Written> = Lock::new(BTreeMap::new());
/// By variable and file.
pub type Written = BTreeMap<(&'static str, String), u32>;

/// Replaces `%p` by the process id.
#[must_use]
pub fn with_pid(pattern: &str) -> String {
    pattern.replace("%p", &std::process::id().to_string())
}

/// The file of one endpoint, of those that `variable` asks for by `pattern`: the second of the
/// process, and later ones, have their number behind the name.
pub fn own_file(variable: &'static str, pattern: &str) -> String {
    let file = with_pid(pattern);
    // A device takes what all have to say.
    if std::fs::metadata(&file).is_ok_and(|m| !m.is_file()) {
        return file;
    }
    let mut written = WRITTEN.lock();
    let count = written.entry((variable, file.clone())).or_default();
    *count += 1;
    if *count == 1 { file } else { format!("{file}.{count}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_of_one_process_write_to_files_of_their_own() {
        let first = format!("/nowhere/of-{}", std::process::id());
        let of = |variable| own_file(variable, "/nowhere/of-%p");
        assert_eq!([of("A"), of("A"), of("A")], [first.clone(), format!("{first}.2"), format!("{first}.3")]);
        assert_eq!(of("B"), first, "another kind of file");
        assert_eq!([own_file("A", "/dev/full"), own_file("A", "/dev/full")], ["/dev/full"; 2]);
    }
}
