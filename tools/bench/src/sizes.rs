//! The syntax of sizes: numbers, `init-incr-max`, and powers `low..high`.

use crate::error::{BenchError, Result};

/// Most sizes one list may have.
const MOST: usize = 4096;

/// Reads a list of sizes in bytes, e.g. `0,8,1k`, `0-128-1024` (from, step, to) or `8..1M` (powers
/// of two; `8..1M*4` of four). Suffixes k, M, G and T, also Ki, Mi, Gi and Ti, are powers of 1024.
/// The result is ascending, each size once.
///
/// # Errors
/// [`BenchError::Usage`], naming the part that cannot be read.
pub fn parse(text: &str) -> Result<Vec<u64>> {
    let mut sizes = Vec::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let more = one(part).map_err(|cause| BenchError::Usage(format!("sizes {text:?}: {cause}")))?;
        sizes.extend(more);
    }
    sizes.sort_unstable();
    sizes.dedup();
    match sizes.len() {
        0 => Err(BenchError::Usage(format!("sizes {text:?}: none given; e.g. 8,1k or 0-128-1024 or 8..1M"))),
        1..=MOST => Ok(sizes),
        many => Err(BenchError::Usage(format!("sizes {text:?}: {many} sizes, at most {MOST} can be measured"))),
    }
}

fn one(part: &str) -> std::result::Result<Vec<u64>, String> {
    if let Some((low, rest)) = part.split_once("..") {
        let (high, factor) = rest.split_once('*').unwrap_or((rest, "2"));
        return powers(number(low)?, number(high)?, number(factor)?);
    }
    let words: Vec<&str> = part.split('-').collect();
    match words[..] {
        [size] => Ok(vec![number(size)?]),
        [init, incr, max] => range(number(init)?, number(incr)?, number(max)?),
        _ => Err(format!("{part:?} is neither a number nor from-step-to")),
    }
}

fn range(init: u64, incr: u64, max: u64) -> std::result::Result<Vec<u64>, String> {
    if incr == 0 {
        return Err("the step is 0".into());
    }
    if max < init {
        return Err(format!("{max} is less than {init}"));
    }
    if (max - init) / incr >= MOST as u64 {
        return Err(format!("from {init} to {max} by {incr} are more than {MOST} sizes"));
    }
    Ok((0..=(max - init) / incr).map(|i| init + i * incr).collect())
}

fn powers(low: u64, high: u64, factor: u64) -> std::result::Result<Vec<u64>, String> {
    if factor < 2 || low == 0 {
        return Err("powers begin above 0 and have a factor of at least 2".into());
    }
    if high < low {
        return Err(format!("{high} is less than {low}"));
    }
    let next = |size: &u64| size.checked_mul(factor).filter(|&next| next <= high);
    Ok(std::iter::successors(Some(low), next).collect())
}

pub(crate) fn number(text: &str) -> std::result::Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match &text[digits.len()..] {
        "" | "B" => 0,
        "k" | "K" | "Ki" | "KiB" => 10,
        "M" | "Mi" | "MiB" => 20,
        "G" | "Gi" | "GiB" => 30,
        "T" | "Ti" | "TiB" => 40,
        other => return Err(format!("{other:?} is no suffix (k, M, G, T)")),
    };
    let value: u64 = digits.parse().map_err(|_| format!("{text:?} is not a number of bytes"))?;
    value.checked_mul(1 << shift).filter(|&v| v <= i64::MAX as u64).ok_or_else(|| format!("{text:?} is too large"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_ranges_and_powers() {
        assert_eq!(parse("8,0,1k,8").unwrap(), [0, 8, 1024]);
        assert_eq!(parse("0-128-512").unwrap(), [0, 128, 256, 384, 512]);
        assert_eq!(parse("0-100-250").unwrap(), [0, 100, 200]);
        assert_eq!(parse("8..64").unwrap(), [8, 16, 32, 64]);
        assert_eq!(parse("1..1M*1k").unwrap(), [1, 1024, 1 << 20]);
        assert_eq!(parse("0,1Mi..3M").unwrap(), [0, 1 << 20, 2 << 20]);
        assert_eq!(parse("1T").unwrap(), [1 << 40]);
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let cases = [
            ("", "none given"),
            ("8x", "\"x\" is no suffix"),
            ("eight", "\"eight\" is no suffix"),
            ("1-2", "neither a number"),
            ("0-0-8", "the step is 0"),
            ("9-1-8", "8 is less than 9"),
            ("0..8", "above 0"),
            ("0-1-1000000", "more than 4096"),
            ("99999999999999999999", "not a number of bytes"),
            ("9999999999G", "too large"),
        ];
        for (text, expected) in cases {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
