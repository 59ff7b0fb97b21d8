//! `-p name=value`.

use std::collections::BTreeMap;
use std::str::FromStr;

use weir_annotations::Value;

/// One value for one name.
#[derive(Debug, Clone, PartialEq)]
pub struct Assignment {
    /// The parameter.
    pub name: String,
    /// Its value.
    pub value: Value,
}

impl FromStr for Assignment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = text.split_once('=').ok_or_else(|| format!("`{text}`: name=value is meant"))?;
        let (name, value) = (name.trim(), value.trim());
        if name.is_empty() || !name.chars().all(|c| c == '_' || c.is_ascii_alphanumeric()) {
            return Err(format!("`{name}` is no name"));
        }
        let number = value.parse().map(Value::Int).ok();
        let number = number.or_else(|| value.parse().ok().filter(|v: &f64| v.is_finite()).map(Value::Float));
        let value = number.ok_or_else(|| {
            // `3ms` would mean 3 where the source says `time = t` and 0.003 where it says
            // `time = t s`.
            let unit =
                value.starts_with(|c: char| c.is_ascii_digit()) && value.ends_with(|c: char| c.is_ascii_alphabetic());
            let hint =
                "; a parameter has no unit: it counts in that of the source's expression, a time without one in ms";
            format!("`{value}` is no number{}", if unit { hint } else { "" })
        })?;
        Ok(Self { name: name.to_owned(), value })
    }
}

/// Names that mean something in each program, and what to do instead.
const GIVEN: [(&str, &str); 3] = [
    ("numprocs", "give the numbers of processes with -n, such as -n 4"),
    ("procnum", "each process has its own number"),
    ("MPI_COMM_WORLD", "its number is 0"),
];

/// All by name.
///
/// # Errors
/// That one name has two values, or is no parameter's.
pub fn by_name(all: &[Assignment]) -> Result<BTreeMap<String, Value>, String> {
    let mut map = BTreeMap::new();
    for one in all {
        if let Some((_, instead)) = GIVEN.iter().find(|(name, _)| *name == one.name) {
            return Err(format!("`{}` is no parameter: {instead}", one.name));
        }
        if let Some(other) = map.insert(one.name.clone(), one.value).filter(|other| *other != one.value) {
            return Err(format!("parameter `{}` is given as {other} and as {}", one.name, one.value));
        }
    }
    Ok(map)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> Result<Assignment, String> {
        text.parse()
    }

    #[test]
    fn whole_numbers_stay_whole() {
        assert_eq!(one("n = 5").unwrap().value, Value::Int(5));
        assert_eq!(one("x=-1.5e3").unwrap().value, Value::Float(-1500.0));
        for bad in ["n", "=5", "n=", "n=five", "a b=1", "n=inf", "n=nan"] {
            assert!(one(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_unit_is_told_of() {
        assert!(one("t=3ms").unwrap_err().contains("no unit"));
        assert_eq!(one("t=ms").unwrap_err(), "`ms` is no number");
    }

    #[test]
    fn contradictions_are_told() {
        let all = |texts: &[&str]| by_name(&texts.iter().map(|t| one(t).unwrap()).collect::<Vec<_>>());
        assert!(all(&["n=1", "m=2", "n=1"]).is_ok());
        assert!(all(&["numprocs=4"]).unwrap_err().contains("-n 4"));
        assert_eq!(all(&["n=1", "n=2"]).unwrap_err(), "parameter `n` is given as 1 and as 2");
    }
}
