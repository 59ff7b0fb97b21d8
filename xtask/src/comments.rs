//! Comments wrap at 100 columns (STYLE.md): a line of prose that is longer is not read.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// The last column that a comment may have.
const COLUMNS: usize = 100;
/// Folders with code of ours.
const CODE: [&str; 8] = ["core", "engine", "faces", "fuzz", "job", "tools", "transports", "xtask/src"];

/// Where a comment that stands alone in its line is longer, `file:line` each. Tables, code,
/// citations of requirements and directives of annotated programs may be.
///
/// # Errors
/// If a file cannot be read.
pub fn too_long(root: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for folder in CODE {
        visit(root, &root.join(folder), &mut found)?;
    }
    found.sort();
    Ok(found)
}

fn visit(root: &Path, dir: &Path, found: &mut Vec<String>) -> Result<()> {
    for entry in fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))? {
        let path = entry?.path();
        if path.is_dir() && !path.ends_with("target") {
            visit(root, &path, found)?;
        } else if path.extension().is_some_and(|e| e == "rs") {
            let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
            let name = path.strip_prefix(root).unwrap_or(&path).display().to_string();
            found.extend(long_lines(&text).into_iter().map(|line| format!("{name}:{line}")));
        }
    }
    Ok(())
}

/// The numbers of a text's lines whose comment could be wrapped and is not.
fn long_lines(text: &str) -> Vec<usize> {
    let mut is_code = false;
    let mut found = Vec::new();
    for (i, line) in text.lines().enumerate() {
        let Some(comment) = line.trim_start().strip_prefix("//") else {
            is_code = false;
            continue;
        };
        let comment = comment.trim_start_matches(['/', '!']).trim_start();
        is_code ^= comment.starts_with("```");
        let is_prose =
            !is_code && !comment.starts_with(['|', '#']) && !["spec:", "PEVPM "].iter().any(|s| comment.starts_with(s));
        // A word or a span of code that is longer than a line stays whole. (Lines of texts in
        // tests look like comments too.)
        if is_prose && !line.contains("\\n") && line.chars().count() > COLUMNS && words(comment).count() > 1 {
            found.push(i + 1);
        }
    }
    found
}

/// What a line may be cut between: words, and spans of code as a whole.
fn words(comment: &str) -> impl Iterator<Item = &str> {
    let mut is_span = false;
    comment.split(move |c: char| {
        is_span ^= c == '`';
        c == ' ' && !is_span
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_wrap() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        assert_eq!(too_long(root).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn what_could_be_wrapped_is_found() {
        let prose = "word ".repeat(25);
        assert_eq!(long_lines(&format!("/// Short.\n/// {prose}\nfn f() {{}}\n    // {prose}")), [2, 4]);
        let allowed = format!("//! | {prose} |\n//! ```\n//! {prose}\n//! ```\n// spec: {prose}\nlet a = \"{prose}\";");
        assert_eq!(long_lines(&allowed), Vec::<usize>::new());
        assert_eq!(long_lines(&format!("/// `{prose}`")), Vec::<usize>::new(), "it cannot be cut");
    }
}
