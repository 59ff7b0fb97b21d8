//! Numbers as people read them: times, sizes, rates, counts, with the unit that fits.

/// A time given in ns with three significant digits: `870 ns`, `1.25 µs`, `3.4 ms`, `2 s`.
#[must_use]
pub fn time(ns: f64) -> String {
    if !ns.is_finite() {
        return "–".into();
    }
    let (value, unit) = scaled(ns, &TIMES);
    format!("{value} {unit}")
}

/// [`time`] with zeros at its end, so that times in a column have the same number of digits:
/// `2.30 µs`.
#[must_use]
pub fn time_in_column(ns: f64) -> String {
    let short = time(ns);
    let Some((digits, unit)) = short.split_once(' ') else { return short };
    let have = digits.chars().filter(char::is_ascii_digit).count();
    if have >= 3 || digits == "0" {
        return short;
    }
    let point = if digits.contains('.') { "" } else { "." };
    format!("{digits}{point}{} {unit}", "0".repeat(3 - have))
}

/// Two times in the unit of the larger, with as many digits as tell them apart: `16.46 – 16.50 µs`,
/// `0.99 – 1.01 µs`. Where that would leave little of the smaller, each has its own:
/// `1.94 µs – 2.79 ms`.
#[must_use]
pub fn range(low_ns: f64, high_ns: f64) -> String {
    let (Some(&(by, unit)), true) =
        (unit_of(high_ns.abs().max(low_ns.abs())), low_ns.is_finite() && high_ns.is_finite())
    else {
        return "–".into();
    };
    if low_ns > 0.0 && low_ns < high_ns / 20.0 {
        return format!("{} – {}", time_in_column(low_ns), time_in_column(high_ns));
    }
    let (low, high) = (low_ns / by, high_ns / by);
    // Three digits of the larger, or more where less would make both ends one.
    let enough = 2 - high.abs().max(1e-9).log10().floor() as i32;
    let apart = if high > low { -(high - low).log10().floor() as i32 } else { 0 };
    // Beyond six decimals is what the conversion to a double left.
    let decimals = enough.max(apart).clamp(0, 6) as usize;
    format!("{low:.decimals$} – {high:.decimals$} {unit}")
}

/// A size in bytes: `0 B`, `1500 B`, `64 KiB`, `1.5 MiB`; binary units only where they are exact to
/// two decimals.
#[must_use]
pub fn size(bytes: u64) -> String {
    for (unit, name) in [(1u64 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")] {
        if bytes >= unit && (bytes.is_multiple_of(unit) || (u128::from(bytes) * 4).is_multiple_of(u128::from(unit))) {
            return format!("{} {name}", trimmed(bytes as f64 / unit as f64, 2));
        }
    }
    match bytes {
        0..100_000 => format!("{bytes} B"),
        _ => {
            let (value, unit) =
                scaled(bytes as f64, &[(1024.0, "KiB"), (1_048_576.0, "MiB"), (1_073_741_824.0, "GiB")]);
            format!("{value} {unit}")
        }
    }
}

/// A rate given in bytes a second, in decimal units as network rates are: `118 MB/s`.
#[must_use]
pub fn rate(bytes_per_s: f64) -> String {
    if !bytes_per_s.is_finite() {
        return "–".into();
    }
    let (value, unit) =
        scaled(bytes_per_s, &[(1.0, "B/s"), (1e3, "kB/s"), (1e6, "MB/s"), (1e9, "GB/s"), (1e12, "TB/s")]);
    format!("{value} {unit}")
}

/// A count with its thousands parted by thin blanks: `12 480`.
#[must_use]
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push('\u{202f}');
        }
        out.push(digit);
    }
    out
}

/// A count with its word: `1 node`, `4 nodes`.
#[must_use]
pub fn plural(n: u64, word: &str) -> String {
    format!("{} {word}{}", count(n), if n == 1 { "" } else { "s" })
}

/// The same where the plural ends in `es`: `1 launch`, `5 launches`.
#[must_use]
pub fn plural_es(n: u64, word: &str) -> String {
    format!("{} {word}{}", count(n), if n == 1 { "" } else { "es" })
}

/// The word that goes with a number: `one` with 1, else `many`.
#[must_use]
pub fn verb(n: usize, one: &'static str, many: &'static str) -> &'static str {
    if n == 1 { one } else { many }
}

/// Some of all cells: `1 of 35 cells`, `1 of 1 cell`.
#[must_use]
pub fn of_cells(some: usize, all: usize) -> String {
    format!("{} of {}", count(some as u64), plural(all as u64, "cell"))
}

/// A plain number with three significant digits.
#[must_use]
pub fn number(value: f64) -> String {
    if !value.is_finite() {
        return "–".into();
    }
    if value != 0.0 && !(1e-3..1e6).contains(&value.abs()) {
        return format!("{value:.2e}");
    }
    significant(value)
}

/// A p-value: `0.23`, or `< 0.001`.
#[must_use]
pub fn p_value(p: f64) -> String {
    match p {
        p if !p.is_finite() => "–".into(),
        p if p < 0.001 => "< 0.001".into(),
        p => trimmed(p, 3),
    }
}

const TIMES: [(f64, &str); 4] = [(1.0, "ns"), (1e3, "µs"), (1e6, "ms"), (1e9, "s")];

/// The unit of times that gives a number from 1 to 1000, if there is one.
fn unit_of(ns: f64) -> Option<&'static (f64, &'static str)> {
    TIMES.iter().rev().find(|(by, _)| ns >= *by).or(TIMES.first())
}

fn scaled(value: f64, units: &[(f64, &'static str)]) -> (String, &'static str) {
    // 999.7 ns would print as 1000 ns: the unit is chosen after rounding.
    let rounded = value.abs() * 1.000_5;
    let &(by, unit) = units.iter().rev().find(|(by, _)| rounded >= *by).unwrap_or(&units[0]);
    (significant(value / by), unit)
}

fn significant(value: f64) -> String {
    let magnitude = value.abs();
    let decimals = match magnitude {
        m if m >= 99.95 || m == 0.0 => 0,
        m if m >= 9.995 => 1,
        m if m >= 0.9995 => 2,
        m if m >= 0.09995 => 3,
        m if m >= 0.009_995 => 4,
        _ => 5,
    };
    trimmed(value, decimals)
}

fn trimmed(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    // "-0" says nothing that "0" does not.
    if text == "-0" { "0".into() } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_take_the_unit_that_fits() {
        let cases = [
            (0.0, "0 ns"),
            (870.4, "870 ns"),
            (999.7, "1 µs"),
            (1250.0, "1.25 µs"),
            (3.4e6, "3.4 ms"),
            (2e9, "2 s"),
            (0.5, "0.5 ns"),
        ];
        for (ns, text) in cases {
            assert_eq!(time(ns), text);
        }
        assert_eq!(time(f64::NAN), "–");
        assert_eq!(time(-1500.0), "-1.5 µs");
        let columns = [
            (2300.0, "2.30 µs"),
            (14_000.0, "14.0 µs"),
            (3e6, "3.00 ms"),
            (870.0, "870 ns"),
            (0.0, "0 ns"),
            (f64::NAN, "–"),
        ];
        for (ns, text) in columns {
            assert_eq!(time_in_column(ns), text);
        }
    }

    #[test]
    fn the_ends_of_a_range_can_be_told_apart() {
        for (low, high, text) in [
            (990.0, 1010.0, "0.99 – 1.01 µs"),
            (970.0, 990.0, "970 – 990 ns"),
            (16_464.0, 16_504.0, "16.46 – 16.50 µs"),
            (8452.6, 8547.7, "8.45 – 8.55 µs"),
            (144_429.0, 144_449.0, "144.43 – 144.45 µs"),
            (142_051.2, 146_577.9, "142 – 147 µs"),
            (0.0, 20.0, "0.0 – 20.0 ns"),
            (1940.0, 2_790_000.0, "1.94 µs – 2.79 ms"),
            (20.0, 300.0, "20 – 300 ns"),
            (5.0, 5.0, "5.00 – 5.00 ns"),
            (f64::NAN, 5.0, "–"),
        ] {
            assert_eq!(range(low, high), text);
        }
    }

    #[test]
    fn sizes_are_binary_where_that_is_exact() {
        let cases = [
            (0, "0 B"),
            (1, "1 B"),
            (1024, "1 KiB"),
            (1500, "1500 B"),
            (1536, "1.5 KiB"),
            (65536, "64 KiB"),
            (3 << 19, "1.5 MiB"),
            (123_456_789, "118 MiB"),
        ];
        for (bytes, text) in cases {
            assert_eq!(size(bytes), text);
        }
        assert_eq!(size(u64::MAX), "17179869184 GiB");
    }

    #[test]
    fn counts_and_rates_are_readable() {
        assert_eq!(count(12_480_000), "12\u{202f}480\u{202f}000");
        assert_eq!(count(999), "999");
        assert_eq!((plural(1, "node"), plural(1200, "node")), ("1 node".into(), "1\u{202f}200 nodes".into()));
        assert_eq!((plural_es(1, "launch"), plural_es(5, "launch")), ("1 launch".into(), "5 launches".into()));
        assert_eq!((of_cells(1, 35), of_cells(1, 1)), ("1 of 35 cells".into(), "1 of 1 cell".into()));
        assert_eq!(rate(1.18e8), "118 MB/s");
        assert_eq!(number(0.000_012), "1.20e-5");
        assert_eq!(p_value(1e-9), "< 0.001");
    }
}
