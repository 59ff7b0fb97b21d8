//! An exchange by way of a launcher that keeps names and values: every rank puts its data, all
//! wait, every rank gets all.

use super::{Backend, LaunchError, Launcher};

/// A launcher that keeps names and values. Values are words of hexadecimal digits and a few
/// letters.
pub trait Kvs: Send {
    /// In errors.
    fn launcher(&self) -> Launcher;
    /// Longest name and value, in bytes, with what the launcher needs for their ends.
    fn maxima(&self) -> (usize, usize);
    /// Keeps a value for all, who can get it after the next fence.
    fn put(&mut self, key: &str, value: &str) -> Result<(), LaunchError>;
    /// Returns when all ranks have called it, unless [`Kvs::fence_waits`] says otherwise.
    fn fence(&mut self) -> Result<(), LaunchError>;
    /// Whether all launchers of this kind let nobody through a fence before all have come. Where
    /// not, [`Kvs::get`] waits.
    fn fence_waits(&self) -> bool {
        true
    }
    /// What rank `from` put.
    fn get(&mut self, from: u32, key: &str) -> Result<String, LaunchError>;
    /// As [`Backend::abort`].
    fn abort(&mut self, code: i32, message: &str) -> Result<(), LaunchError>;
    /// As [`Backend::finalize`].
    fn finalize(&mut self) -> Result<(), LaunchError>;
}

/// A value beyond that is cut into several, whatever the launcher permits.
const VALUE_MAX: usize = 16 * 1024;
/// Digits of the length that the first piece begins with.
const LENGTH_DIGITS: usize = 8;
/// Room for a piece's name: two numbers of 32 bits, one of 16 and what is between them.
const NAME_BYTES: usize = 40;

/// Exchanges over a [`Kvs`].
pub struct Spread<K> {
    kvs: K,
    rank: u32,
    size: u32,
    round: u32,
}

impl<K: Kvs> Spread<K> {
    /// For this rank.
    pub fn new(kvs: K, rank: u32, size: u32) -> Self {
        Self { kvs, rank, size, round: 0 }
    }

    fn name(round: u32, rank: u32, piece: usize) -> String {
        format!("weir-{round:x}-{rank:x}-{piece:x}")
    }

    /// Digits in a value, always an even number.
    fn digits(&self) -> Result<usize, LaunchError> {
        let (keys, values) = self.kvs.maxima();
        if keys <= NAME_BYTES || values < 2 * LENGTH_DIGITS {
            let problem = format!("names of at most {keys} and values of at most {values} bytes are too short");
            return Err(LaunchError::Protocol { launcher: self.kvs.launcher(), during: "an exchange", problem });
        }
        Ok((values - 1).min(VALUE_MAX) & !1)
    }

    fn next_round(&mut self) -> u32 {
        let round = self.round;
        self.round = round.wrapping_add(1);
        round
    }

    fn put(&mut self, round: u32, own: &[u8], digits: usize) -> Result<(), LaunchError> {
        let text = format!("{:08x}", own.len()) + &to_hex(own);
        for (piece, value) in text.as_bytes().chunks(digits).enumerate() {
            self.kvs.put(&Self::name(round, self.rank, piece), &String::from_utf8_lossy(value))?;
        }
        Ok(())
    }

    fn gather(&mut self, round: u32, from: u32, digits: usize) -> Result<Vec<u8>, LaunchError> {
        let wrong = |problem: &str| LaunchError::Peer { rank: from, problem: problem.into() };
        let mut text = self.kvs.get(from, &Self::name(round, from, 0))?;
        let length = text.get(..LENGTH_DIGITS).and_then(|head| usize::from_str_radix(head, 16).ok());
        let length = length.filter(|bytes| *bytes <= super::BLOB_MAX_BYTES).ok_or_else(|| wrong("no length"))?;
        let whole = LENGTH_DIGITS + 2 * length;
        for piece in 1..whole.div_ceil(digits) {
            text += &self.kvs.get(from, &Self::name(round, from, piece))?;
        }
        if text.len() != whole {
            return Err(wrong("another number of bytes than it said"));
        }
        from_hex(&text[LENGTH_DIGITS..]).ok_or_else(|| wrong("what are no hexadecimal digits"))
    }
}

impl<K: Kvs> Backend for Spread<K> {
    fn exchange(&mut self, own: &[u8]) -> Result<Vec<Vec<u8>>, LaunchError> {
        let digits = self.digits()?;
        let round = self.next_round();
        self.put(round, own, digits)?;
        self.kvs.fence()?;
        (0..self.size)
            .map(|from| if from == self.rank { Ok(own.to_vec()) } else { self.gather(round, from, digits) })
            .collect()
    }

    fn zeros(&mut self, own: &[u8]) -> Result<Vec<u8>, LaunchError> {
        let digits = self.digits()?;
        let round = self.next_round();
        if self.rank == 0 {
            self.put(round, own, digits)?;
        }
        self.kvs.fence()?;
        if self.rank == 0 { Ok(own.to_vec()) } else { self.gather(round, 0, digits) }
    }

    fn fence(&mut self) -> Result<(), LaunchError> {
        if self.kvs.fence_waits() { self.kvs.fence() } else { self.exchange(&[]).map(drop) }
    }

    fn abort(&mut self, code: i32, message: &str) -> Result<(), LaunchError> {
        self.kvs.abort(code, message)
    }

    fn finalize(&mut self) -> Result<(), LaunchError> {
        self.kvs.finalize()
    }
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    let digits = digits.iter().all(u8::is_ascii_hexdigit).then(|| digits.chunks(2))?;
    digits.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::sync::{Arc, Barrier, Mutex};

    /// A launcher in memory.
    struct Memory {
        values: Arc<Mutex<BTreeMap<String, String>>>,
        all: Arc<Barrier>,
        value_max: usize,
    }

    impl Kvs for Memory {
        fn launcher(&self) -> Launcher {
            Launcher::Pmi1
        }
        fn maxima(&self) -> (usize, usize) {
            (64, self.value_max)
        }
        fn put(&mut self, key: &str, value: &str) -> Result<(), LaunchError> {
            assert!(key.len() < 64 && value.len() < self.value_max, "{key}={value}");
            assert_eq!(self.values.lock().unwrap().insert(key.into(), value.into()), None, "{key} is put twice");
            Ok(())
        }
        fn fence(&mut self) -> Result<(), LaunchError> {
            self.all.wait();
            Ok(())
        }
        fn get(&mut self, _: u32, key: &str) -> Result<String, LaunchError> {
            self.values.lock().unwrap().get(key).cloned().ok_or(LaunchError::Over)
        }
        fn abort(&mut self, _: i32, _: &str) -> Result<(), LaunchError> {
            Ok(())
        }
        fn finalize(&mut self) -> Result<(), LaunchError> {
            Ok(())
        }
    }

    fn alone(value_max: usize, values: &[(&str, &str)]) -> Spread<Memory> {
        let values = values.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        let kvs = Memory { values: Arc::new(Mutex::new(values)), all: Arc::new(Barrier::new(1)), value_max };
        Spread::new(kvs, 0, 2)
    }

    #[test]
    fn what_another_rank_gave_is_checked() {
        for (value, named) in [
            ("0000000", "no length"),
            ("0000ffff", "no length"),
            ("zzzzzzzz", "no length"),
            ("00000002ab", "another number of bytes"),
            ("00000001abcd", "another number of bytes"),
            ("00000001xy", "no hexadecimal"),
            ("00000001\u{e9}", "no hexadecimal"),
        ] {
            let got = alone(1024, &[("weir-0-1-0", value)]).exchange(b"own");
            let why = got.unwrap_err().to_string();
            assert!(why.starts_with("rank 1 gave") && why.contains(named), "{value}: {why}");
        }
        assert!(alone(10, &[]).exchange(b"own").unwrap_err().to_string().contains("too short"));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(50))]
        #[test]
        fn all_ranks_get_what_each_gave(
            data in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..=300), 1..5), value_max in 20..300usize,
        ) {
            let size = data.len();
            let (values, all) = (Arc::default(), Arc::new(Barrier::new(size)));
            let ranks: Vec<_> = (0..size).map(|rank| {
                let kvs = Memory { values: Arc::clone(&values), all: Arc::clone(&all), value_max };
                let own = data[rank].clone();
                std::thread::spawn(move || {
                    let mut rank = Spread::new(kvs, rank as u32, size as u32);
                    (rank.zeros(&own).unwrap(), rank.exchange(&own).unwrap(), rank.exchange(&own).unwrap())
                })
            }).collect();
            for rank in ranks {
                let (zero, first, second) = rank.join().unwrap();
                prop_assert_eq!(&zero, &data[0]);
                prop_assert!(first == data && second == data);
            }
        }
    }
}
