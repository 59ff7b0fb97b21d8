//! Quantities as people write them: `1g`, `1.5ms`, `1%`, `64p`, `100kB`.

use crate::model::{Mark, QueueLimit};

/// Splits a leading decimal number from its unit.
fn number(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let value: f64 = text[..end].parse().ok()?;
    (value.is_finite() && value >= 0.0).then_some((value, text[end..].trim()))
}

fn scaled(value: f64, scale: f64, what: &str, text: &str) -> Result<u64, String> {
    let scaled = (value * scale).round();
    if scaled <= 9.0e18 { Ok(scaled as u64) } else { Err(format!("{what} '{text}' is too large")) }
}

/// A rate in bits per second: a number with `k`, `m`, `g` (powers of 1000) and optionally `bit`,
/// `bps` or `bit/s`.
pub fn rate_bits_per_s(text: &str) -> Result<u64, String> {
    let bad = || format!("'{text}' is not a rate; write for example 100m, 1g or 2.5gbit");
    let (value, unit) = number(text).ok_or_else(bad)?;
    let unit = unit.to_ascii_lowercase();
    let unit = ["bit/s", "bits/s", "bps", "bit"].iter().find_map(|end| unit.strip_suffix(end)).unwrap_or(&unit);
    let scale = match unit {
        "" => 1.0,
        "k" => 1e3,
        "m" => 1e6,
        "g" => 1e9,
        _ => return Err(bad()),
    };
    match scaled(value, scale, "rate", text)? {
        0 => Err("a rate of zero sends nothing; to stop a link, cut it".into()),
        rate if rate > 1_000_000_000_000 => Err(format!("rate '{text}' is above 1 Tbit/s")),
        rate => Ok(rate),
    }
}

/// A time in nanoseconds: a number with `ns`, `us`, `ms` or `s`. Zero needs no unit.
pub fn time_ns(text: &str) -> Result<u64, String> {
    let bad = || format!("'{text}' is not a time; write for example 50us, 1ms or 2s");
    let (value, unit) = number(text).ok_or_else(bad)?;
    let scale = match unit.to_ascii_lowercase().as_str() {
        "ns" => 1.0,
        "us" | "µs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "" if value == 0.0 => 1.0,
        _ => return Err(bad()),
    };
    match scaled(value, scale, "time", text)? {
        time if time > 86_400_000_000_000 => Err(format!("time '{text}' is above one day")),
        time => Ok(time),
    }
}

/// A probability in `[0, 1]`: a number, or a number with `%`.
pub fn probability(text: &str) -> Result<f64, String> {
    let bad = || format!("'{text}' is not a probability; write for example 1% or 0.01");
    let (value, unit) = number(text).ok_or_else(bad)?;
    let value = match unit {
        "" => value,
        "%" => value / 100.0,
        _ => return Err(bad()),
    };
    if value <= 1.0 { Ok(value) } else { Err(format!("probability '{text}' is above 100%")) }
}

/// A size in bytes: a number with `k`, `m`, `g` (powers of 1000), `ki`, `mi`, `gi` (powers of
/// 1024), optionally `B`.
pub fn size_bytes(text: &str) -> Result<u64, String> {
    let bad = || format!("'{text}' is not a size; write for example 1500, 100kB or 1MiB");
    let (value, unit) = number(text).ok_or_else(bad)?;
    let unit = unit.to_ascii_lowercase();
    let scale = match unit.strip_suffix('b').unwrap_or(&unit) {
        "" => 1.0,
        "k" => 1e3,
        "m" => 1e6,
        "g" => 1e9,
        "ki" => 1024.0,
        "mi" => 1024.0 * 1024.0,
        "gi" => 1024.0 * 1024.0 * 1024.0,
        _ => return Err(bad()),
    };
    scaled(value, scale, "size", text)
}

/// A queue limit: packets as `64p`, bytes as `100kB`, both as `64p,100kB`, none as `unlimited`.
pub fn queue(text: &str) -> Result<QueueLimit, String> {
    let mut limit = QueueLimit::default();
    if text.trim() == "unlimited" {
        return Ok(limit);
    }
    for part in text.split(',').map(str::trim) {
        match part.strip_suffix(['p', 'P']) {
            Some(packets) => {
                let packets = packets.trim();
                let packets = packets
                    .parse()
                    .map_err(|_| format!("'{part}' is not a queue limit; write for example 64p or 100kB"))?;
                limit.packets = Some(packets);
            }
            None if part.bytes().all(|b| b.is_ascii_digit()) => {
                return Err(format!("queue limit '{part}' needs a unit: {part}p for packets or {part}B for bytes"));
            }
            None => limit.bytes = Some(size_bytes(part)?),
        }
    }
    Ok(limit)
}

/// From how much waiting on a queue marks: written as a [`queue`] limit; `never`.
pub fn mark(text: &str) -> Result<Mark, String> {
    if text.trim() == "never" {
        return Ok(Mark::default());
    }
    let QueueLimit { packets, bytes, .. } = queue(text).map_err(|why| why.replace("queue limit", "mark"))?;
    if (packets, bytes) == (None, None) {
        return Err(format!("'{text}' is no mark; write for example 20p or 30kB, or never"));
    }
    Ok(Mark { packets, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rates() {
        assert_eq!(rate_bits_per_s("1g"), Ok(1_000_000_000));
        assert_eq!(rate_bits_per_s("2.5 Gbit/s"), Ok(2_500_000_000));
        assert_eq!(rate_bits_per_s("100mbit"), Ok(100_000_000));
        assert_eq!(rate_bits_per_s("9600"), Ok(9600));
        for bad in ["", "0", "1t", "-1m", "fast", "1gg", "9999g"] {
            assert!(rate_bits_per_s(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn times() {
        assert_eq!(time_ns("50us"), Ok(50_000));
        assert_eq!(time_ns("1.5ms"), Ok(1_500_000));
        assert_eq!(time_ns("2s"), Ok(2_000_000_000));
        assert_eq!(time_ns("0"), Ok(0));
        for bad in ["5", "1h", "ms", "-3ms", "1e30s"] {
            assert!(time_ns(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn probabilities() {
        assert_eq!(probability("1%"), Ok(0.01));
        assert_eq!(probability("0.25"), Ok(0.25));
        for bad in ["101%", "2", "x", "-1%", "nan"] {
            assert!(probability(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn queues() {
        assert_eq!(queue("64p"), Ok(QueueLimit { packets: Some(64), ..Default::default() }));
        assert_eq!(queue("100kB"), Ok(QueueLimit { bytes: Some(100_000), ..Default::default() }));
        assert_eq!(
            queue("64p, 1MiB"),
            Ok(QueueLimit { packets: Some(64), bytes: Some(1 << 20), ..Default::default() })
        );
        assert_eq!(mark("20p,30kB"), Ok(Mark { packets: Some(20), bytes: Some(30_000) }));
        assert_eq!(mark("never"), Ok(Mark::default()));
        assert!(mark("20").unwrap_err().starts_with("mark '20' needs a unit"));
        assert!(mark("unlimited").unwrap_err().contains("20p"));
        assert_eq!(queue("unlimited"), Ok(QueueLimit::default()));
        assert!(queue("64").unwrap_err().contains("64p"));
        assert!(queue("p").is_err());
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".{0,24}") {
            let _ = (rate_bits_per_s(&text), time_ns(&text), probability(&text), size_bytes(&text), queue(&text));
        }
    }
}
