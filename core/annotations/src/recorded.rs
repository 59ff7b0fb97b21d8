//! With which numbers of processes a model was recorded: a comment that `weir record` writes and
//! `weir predict` reads (`spec/annotations.md` 7).

use std::collections::BTreeSet;

const BEFORE: &str = "# Recorded with ";
const BEHIND: &str = " processes by weir record.";

/// The line, without its end.
#[must_use]
pub fn recorded_line(counts: &BTreeSet<u32>) -> String {
    let counts: Vec<String> = counts.iter().map(u32::to_string).collect();
    format!("{BEFORE}{}{BEHIND}", counts.join(", "))
}

/// The numbers of processes of the first such line of a text; none: it was not recorded.
#[must_use]
pub fn recorded_counts(text: &str) -> Option<BTreeSet<u32>> {
    text.lines().find_map(|line| {
        let list = line.trim_end().strip_prefix(BEFORE)?.strip_suffix(BEHIND)?;
        list.split(", ").map(|count| count.parse().ok().filter(|n| *n > 0)).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_nothing_else() {
        for counts in [vec![4], vec![2, 4, 4096]] {
            let counts: BTreeSet<u32> = counts.into_iter().collect();
            let text = format!("# ./jacobi\r\n{}\r\nSerial time = 1\n", recorded_line(&counts));
            assert_eq!(recorded_counts(&text), Some(counts));
        }
        let others = [
            "",
            "# Recorded with a processes by weir record.",
            "# Recorded with 0 processes by weir record.",
            "x # Recorded with 2 processes by weir record.",
            "# Recorded with 2, processes by weir record.",
        ];
        for other in others {
            assert_eq!(recorded_counts(other), None, "{other}");
        }
    }
}
