//! Messages by their tags: what operations that are made of them are given, on the command line and
//! in a run's configurations.

use std::collections::BTreeMap;

use crate::error::{BenchError, Result};
use crate::machine::{MAIL_TAGS, Tag};
use crate::operation::Kind;

/// Tags of tasks, or of messages, are from here on; those below are of a farm's other messages.
pub const FIRST_TAG: Tag = 100;
/// Most tags that messages may have.
const MOST_TAGS: i64 = 1000;

/// What receives of messages by their tags take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Receive {
    /// Each one tag, which it names.
    Named,
    /// Whatever tag comes first (MPI_ANY_TAG).
    Any,
}

impl Receive {
    fn word(self) -> &'static str {
        match self {
            Receive::Named => "named",
            Receive::Any => "any",
        }
    }
}

/// The options of farm and open-loop.
#[derive(Clone, Debug, clap::Args)]
pub struct TaggedArgs {
    /// Tags of the messages of farm and open-loop, in turn
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=MOST_TAGS), allow_negative_numbers = true)]
    pub tags: u32,
    /// What their receives take: each one tag, which it names, or whatever comes first
    /// (MPI_ANY_TAG), which by MPI's order waits for any message that is missing
    #[arg(long, value_enum, value_name = "WHAT", default_value = "named")]
    pub receive: Receive,
    /// Receives that stand posted at once: of farm at each worker, which begins with as many
    /// requests; of open-loop for each tag
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000), allow_negative_numbers = true)]
    pub outstanding: u32,
    /// Tasks by which a request of a worker is answered, in farm
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000), allow_negative_numbers = true)]
    pub fanout: u32,
    /// How long a worker computes for each task of farm, microseconds
    #[arg(long, value_name = "US", default_value_t = 0.0, allow_negative_numbers = true)]
    pub compute: f64,
    /// Time between two messages of open-loop, microseconds
    #[arg(long, value_name = "US", default_value_t = 500.0, allow_negative_numbers = true)]
    pub interval: f64,
    /// A farm that is not done after so long ends the measurement when a worker next asks,
    /// seconds; never if not given
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    pub timeout: Option<f64>,
}

impl TaggedArgs {
    /// Refuses what makes no sense.
    ///
    /// # Errors
    /// [`BenchError::Usage`].
    pub fn make_sense(&self) -> Result<()> {
        let limits = [
            ("--compute", self.compute, 0.0, 1e7),
            ("--interval", self.interval, 0.1, 1e7),
            ("--timeout", self.timeout.unwrap_or(1.0), 0.01, 1e7),
        ];
        match limits.into_iter().find(|(_, value, low, high)| !(low..=high).contains(&value)) {
            Some((name, value, low, high)) => {
                Err(BenchError::Usage(format!("{name} is {value}, it may be from {low} to {high}")))
            }
            None => Ok(()),
        }
    }
}

/// How an operation uses messages by their tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tagged {
    /// How many tags there are.
    pub tags: u32,
    /// What receives take.
    pub receive: Receive,
    /// Receives that stand posted at once: of a farm's worker, or of each tag.
    pub outstanding: u32,
    /// Tasks that answer a request.
    pub fanout: u32,
    /// Computing for each task, ns.
    pub compute_ns: u64,
    /// Between two messages of an open loop, ns.
    pub interval_ns: u64,
    /// A farm ends the measurement if it is not done after so long, ns.
    pub timeout_ns: Option<u64>,
}

impl Tagged {
    /// That of an operation, as asked; nothing if it has no messages by their tags.
    ///
    /// # Errors
    /// [`BenchError::Usage`] if receives that name their tags would leave some out.
    pub fn asked(kind: Kind, args: &TaggedArgs) -> Result<Option<Tagged>> {
        if !kind.is_tagged() {
            return Ok(None);
        }
        let ns = |us: f64| (us * 1e3) as u64;
        let asked = Tagged {
            tags: args.tags,
            receive: args.receive,
            outstanding: args.outstanding,
            fanout: args.fanout,
            compute_ns: ns(args.compute),
            interval_ns: ns(args.interval),
            timeout_ns: args.timeout.map(|s| (s * 1e9) as u64),
        };
        if kind == Kind::Farm && asked.receive == Receive::Named && asked.outstanding < asked.tags {
            let text = format!(
                "farm: --outstanding {} receives do not name all of {} tags; give more of them, fewer --tags, or --receive any",
                asked.outstanding, asked.tags
            );
            return Err(BenchError::Usage(text));
        }
        Ok(Some(asked.of(kind)))
    }

    /// The same without what the operation does not heed.
    fn of(self, kind: Kind) -> Tagged {
        match kind {
            Kind::Farm => Tagged { interval_ns: 0, ..self },
            _ => Tagged { fanout: 1, compute_ns: 0, timeout_ns: None, ..self },
        }
    }

    /// Its axes in a configuration, by name.
    #[must_use]
    pub fn parameters(&self, kind: Kind) -> BTreeMap<String, String> {
        let us = |ns: u64| (ns as f64 / 1e3).to_string();
        let mut all = vec![
            ("tags", self.tags.to_string()),
            ("receive", self.receive.word().to_owned()),
            ("outstanding", self.outstanding.to_string()),
        ];
        match kind {
            Kind::Farm => all.extend([("fanout", self.fanout.to_string()), ("compute_us", us(self.compute_ns))]),
            _ => all.push(("interval_us", us(self.interval_ns))),
        }
        all.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// What a configuration with these parameters had; what they do not say is as asked.
    #[must_use]
    pub fn had(self, parameters: &BTreeMap<String, String>) -> Tagged {
        let text = |name: &str| parameters.get(name).map(String::as_str);
        let number = |name: &str| text(name).and_then(|value| value.parse::<u32>().ok()).filter(|n| *n > 0);
        let ns = |name: &str| text(name).and_then(|us| us.parse::<f64>().ok()).map(|us| (us * 1e3).round() as u64);
        let receive = match text("receive") {
            Some("any") => Receive::Any,
            Some("named") => Receive::Named,
            _ => self.receive,
        };
        Tagged {
            tags: number("tags").filter(|tags| i64::from(*tags) <= MOST_TAGS).unwrap_or(self.tags),
            receive,
            outstanding: number("outstanding").unwrap_or(self.outstanding),
            fanout: number("fanout").unwrap_or(self.fanout),
            compute_ns: ns("compute_us").unwrap_or(self.compute_ns),
            interval_ns: ns("interval_us").unwrap_or(self.interval_ns),
            timeout_ns: self.timeout_ns,
        }
    }

    /// The tag of the message of this number.
    #[must_use]
    pub fn tag(&self, number: u64) -> Tag {
        FIRST_TAG + (number % u64::from(self.tags)) as Tag
    }

    /// Receives that stand posted at once, of all tags.
    #[must_use]
    pub fn places(&self, kind: Kind) -> usize {
        let of_tags = if kind == Kind::Farm { 1 } else { self.tags as usize };
        self.outstanding as usize * of_tags
    }

    /// Messages of so many bytes, one for each tag, no two alike.
    #[must_use]
    pub fn payloads(&self, bytes: usize) -> Vec<Vec<u8>> {
        (0..u64::from(self.tags)).map(|tag| payload(tag, bytes)).collect()
    }
}

const _: () = assert!(FIRST_TAG as i64 + MOST_TAGS <= MAIL_TAGS as i64);

/// Bytes that depend on their tag and on their place, so that what is mixed up or shifted differs.
fn payload(tag: u64, bytes: usize) -> Vec<u8> {
    // Odd numbers: no two places of a message, and no two messages, have one word.
    const TAG: u64 = 0x9e37_79b9_7f4a_7c15;
    const PLACE: u64 = 0xd134_2543_de82_ef95;
    let word = |place: u64| ((tag + 1).wrapping_mul(TAG) ^ place.wrapping_mul(PLACE)).to_ne_bytes();
    (0..bytes as u64 / 8 + 1).flat_map(word).take(bytes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::tests::args;

    #[test]
    fn what_was_measured_is_said_and_found_again() {
        let line = "--tags 7 --receive any --outstanding 3 --fanout 5 --compute 0.25 --interval 12.5";
        let words: Vec<&str> = line.split(' ').collect();
        for kind in [Kind::Farm, Kind::OpenLoop] {
            let asked = Tagged::asked(kind, &args(&words).tagged).unwrap().unwrap();
            let usual = Tagged::asked(kind, &args(&[]).tagged).unwrap().unwrap();
            let said = asked.parameters(kind);
            assert_ne!(asked, usual);
            assert_eq!(usual.had(&said), asked, "{said:?}");
        }
        assert_eq!(Tagged::asked(Kind::Send, &args(&[]).tagged).unwrap(), None);
    }

    #[test]
    fn tags_that_no_receive_names_are_refused() {
        let refused = |words: &[&str]| Tagged::asked(Kind::Farm, &args(words).tagged).unwrap_err().to_string();
        assert!(refused(&["--tags", "11"]).contains("--outstanding 10 receives do not name all of 11 tags"));
        assert!(Tagged::asked(Kind::Farm, &args(&["--tags", "11", "--receive", "any"]).tagged).is_ok());
        assert!(Tagged::asked(Kind::OpenLoop, &args(&["--tags", "11"]).tagged).is_ok());
    }

    #[test]
    fn no_two_tags_have_a_message_that_begins_alike() {
        let all: std::collections::BTreeSet<Vec<u8>> = (0..MOST_TAGS as u64).map(|tag| payload(tag, 8)).collect();
        assert_eq!(all.len(), MOST_TAGS as usize);
        assert_eq!((payload(3, 0), payload(3, 20).len()), (Vec::new(), 20));
    }
}
