//! SPDX licence expressions: whether one can be met by licences that this project accepts in what
//! it ships.

/// Licences whose code may be in a package: none of them asks more of who uses the package than to
/// keep the texts, which each package carries.
const ALLOWED: [&str; 15] = [
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "OFL-1.1",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
    "bzip2-1.0.6",
];

/// Whether one way to choose among a crate's licences is allowed altogether.
///
/// # Errors
/// If the text is no such expression. The old form `MIT/Apache-2.0` is one.
pub fn is_allowed(expression: &str) -> Result<bool, String> {
    let text = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = text.split_whitespace().collect();
    let mut parser = Parser { words: &words, at: 0 };
    let allowed = parser.alternatives().ok_or_else(|| format!("not a licence expression: {expression}"))?;
    if parser.at == words.len() { Ok(allowed) } else { Err(format!("not a licence expression: {expression}")) }
}

struct Parser<'a> {
    words: &'a [&'a str],
    at: usize,
}

impl<'a> Parser<'a> {
    fn next_is(&mut self, word: &str) -> bool {
        let is = self.words.get(self.at).is_some_and(|next| *next == word);
        self.at += usize::from(is);
        is
    }

    /// The next word, if it names a licence or an exception.
    fn name(&mut self) -> Option<&'a str> {
        let word = self.words.get(self.at)?;
        let reserved = ["(", ")", "OR", "AND", "WITH"].contains(word);
        self.at += usize::from(!reserved);
        (!reserved).then_some(*word)
    }

    fn alternatives(&mut self) -> Option<bool> {
        let mut allowed = self.together()?;
        while self.next_is("OR") {
            allowed |= self.together()?;
        }
        Some(allowed)
    }

    fn together(&mut self) -> Option<bool> {
        let mut allowed = self.one()?;
        while self.next_is("AND") {
            allowed &= self.one()?;
        }
        Some(allowed)
    }

    fn one(&mut self) -> Option<bool> {
        if self.next_is("(") {
            let allowed = self.alternatives()?;
            return self.next_is(")").then_some(allowed);
        }
        let licence = self.name()?;
        if self.next_is("WITH") {
            let whole = format!("{licence} WITH {}", self.name()?);
            return Some(ALLOWED.contains(&whole.as_str()));
        }
        Some(ALLOWED.contains(&licence))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_several_is_enough_but_of_all_together_each_counts() {
        for expression in [
            "MIT",
            "MIT/Apache-2.0",
            "GPL-3.0-only OR MIT",
            "Apache-2.0 WITH LLVM-exception OR GPL-2.0",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
        ] {
            assert_eq!(is_allowed(expression), Ok(true), "{expression}");
        }
        for expression in [
            "GPL-3.0-only",
            "MIT AND GPL-3.0-only",
            "(MIT OR ISC) AND LGPL-2.1",
            "GPL-2.0 WITH Classpath-exception-2.0",
        ] {
            assert_eq!(is_allowed(expression), Ok(false), "{expression}");
        }
    }

    #[test]
    fn what_is_no_expression_is_no_permission() {
        for expression in ["", "MIT OR", "MIT ISC", "(MIT", "MIT)", "OR MIT", "MIT WITH", "AND"] {
            assert!(is_allowed(expression).is_err(), "{expression}");
        }
    }
}
