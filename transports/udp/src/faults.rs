//! A bad network in the process: drops, doubles, damages and delays datagrams by a seeded random generator, on the way out and in.
//!
//! For tests where no network can be emulated (`weir emulate` is the better tool: it also has queues and rates). The specification is a list
//! such as `loss=1%,dup=0.1%,corrupt=0.1%,delay=2ms,jitter=1ms,seed=7`; keys that start with `rx_` hold for what arrives, the others for
//! what is sent. With jitter datagrams overtake each other.

use std::collections::BinaryHeap;
use std::io;
use std::time::{Duration, Instant};

/// Most bytes held back at a time; what comes beyond is dropped, as by a router's full queue.
const HELD_LIMIT_BYTES: usize = 64 << 20;

/// What befalls the datagrams of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Profile {
    loss: f64,
    duplicate: f64,
    corrupt: f64,
    delay: Duration,
    jitter: Duration,
}

/// A datagram held back until it is due; `T` says where it goes.
struct Held<T> {
    due: Instant,
    order: u64,
    about: T,
    bytes: Vec<u8>,
}

impl<T> PartialEq for Held<T> {
    fn eq(&self, other: &Self) -> bool {
        self.order == other.order
    }
}
impl<T> Eq for Held<T> {}
impl<T> PartialOrd for Held<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl<T> Ord for Held<T> {
    /// The earliest is the greatest: `BinaryHeap` gives the greatest first.
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (other.due, other.order).cmp(&(self.due, self.order))
    }
}

/// The bad network of one direction.
pub struct Lane<T> {
    profile: Profile,
    rng: fastrand::Rng,
    held: BinaryHeap<Held<T>>,
    held_bytes: usize,
    order: u64,
}

impl<T: Clone> Lane<T> {
    fn new(profile: Profile, seed: u64) -> Lane<T> {
        Lane { profile, rng: fastrand::Rng::with_seed(seed), held: BinaryHeap::new(), held_bytes: 0, order: 0 }
    }

    /// Takes a datagram; returns how many faults befell it. What remains of it comes out of [`Lane::due`].
    pub fn admit(&mut self, now: Instant, about: T, mut bytes: Vec<u8>) -> u64 {
        let Profile { loss, duplicate, corrupt, delay, jitter } = self.profile;
        // All draws are made every time, so that one fault's rate does not change another's pattern.
        let [lost, doubled, damaged, late] = std::array::from_fn(|_| self.rng.f64());
        let at = self.rng.usize(..);
        if lost < loss {
            return 1;
        }
        let mut faults = u64::from(!delay.is_zero() || !jitter.is_zero());
        if damaged < corrupt && !bytes.is_empty() {
            let bit = at % (bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            faults += 1;
        }
        let due = now + delay + jitter.mul_f64(late);
        if doubled < duplicate {
            faults += 1;
            faults += u64::from(!self.hold(due, about.clone(), bytes.clone()));
        }
        faults + u64::from(!self.hold(due, about, bytes))
    }

    fn hold(&mut self, due: Instant, about: T, bytes: Vec<u8>) -> bool {
        // At least 256 bytes each, so that tiny datagrams are bounded in number too.
        let cost = bytes.len().max(256);
        if self.held_bytes + cost > HELD_LIMIT_BYTES {
            return false;
        }
        self.held_bytes += cost;
        self.order += 1;
        self.held.push(Held { due, order: self.order, about, bytes });
        true
    }

    /// The next datagram whose time has come.
    pub fn due(&mut self, now: Instant) -> Option<(T, Vec<u8>)> {
        if self.held.peek()?.due > now {
            return None;
        }
        let h = self.held.pop()?;
        self.held_bytes -= h.bytes.len().max(256);
        Some((h.about, h.bytes))
    }

    /// When the next one is due.
    pub fn next_due(&self) -> Option<Instant> {
        self.held.peek().map(|h| h.due)
    }
}

/// The bad network, both directions.
pub struct Faults<Tx, Rx> {
    pub tx: Lane<Tx>,
    pub rx: Lane<Rx>,
}

impl<Tx: Clone, Rx: Clone> Faults<Tx, Rx> {
    /// Reads a specification; `salt` makes sockets with the same seed differ from each other.
    pub fn parse(text: &str, salt: u64) -> io::Result<Faults<Tx, Rx>> {
        let (tx, rx, seed) = parse(text).map_err(|e| {
            // One line, whatever the variable holds.
            let told = format!("WEIR_FAULTS='{text}': {e}").replace(char::is_control, " ");
            io::Error::new(io::ErrorKind::InvalidInput, told)
        })?;
        let seed = seed ^ salt.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Ok(Faults { tx: Lane::new(tx, seed), rx: Lane::new(rx, !seed) })
    }

    /// How long until something held back is due.
    pub fn next_due(&self, now: Instant) -> Option<Duration> {
        let next = [self.tx.next_due(), self.rx.next_due()].into_iter().flatten().min()?;
        Some(next.saturating_duration_since(now))
    }
}

fn parse(text: &str) -> Result<(Profile, Profile, u64), String> {
    let (mut tx, mut rx, mut seed) = (Profile::default(), Profile::default(), 1);
    for item in text.split(',').map(str::trim).filter(|i| !i.is_empty()) {
        let (key, value) = item.split_once('=').ok_or_else(|| format!("'{item}' is not KEY=VALUE, such as loss=1%"))?;
        if key == "seed" {
            seed = value.parse().map_err(|_| format!("seed '{value}' is not a whole number"))?;
            continue;
        }
        let (profile, name) = match key.strip_prefix("rx_") {
            Some(name) => (&mut rx, name),
            None => (&mut tx, key),
        };
        match name {
            "loss" => profile.loss = share(value)?,
            "dup" => profile.duplicate = share(value)?,
            "corrupt" => profile.corrupt = share(value)?,
            "delay" => profile.delay = duration(value)?,
            "jitter" => profile.jitter = duration(value)?,
            _ => {
                return Err(format!(
                    "'{key}' is none of loss, dup, corrupt, delay, jitter (each also with rx_), seed; write for example loss=1%,delay=200us"
                ));
            }
        }
    }
    Ok((tx, rx, seed))
}

fn share(text: &str) -> Result<f64, String> {
    let (number, scale) = text.strip_suffix('%').map_or((text, 1.0), |n| (n, 100.0));
    match number.parse::<f64>() {
        Ok(n) if (0.0..=scale).contains(&n) => Ok(n / scale),
        _ => Err(format!("'{text}' is not a share such as 1% or 0.01")),
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    let bad = || format!("'{text}' is not a time up to 60s such as 200us or 2ms");
    let split = text.find(|c: char| c.is_alphabetic()).ok_or_else(bad)?;
    let unit_s = match &text[split..] {
        "ns" => 1e-9,
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        _ => return Err(bad()),
    };
    let seconds = text[..split].parse::<f64>().map_err(|_| bad())? * unit_s;
    if (0.0..=60.0).contains(&seconds) { Ok(Duration::from_secs_f64(seconds)) } else { Err(bad()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn faults(text: &str) -> Faults<u32, ()> {
        Faults::parse(text, 0).expect("valid")
    }

    fn run(f: &mut Faults<u32, ()>, n: u32) -> Vec<(u32, Vec<u8>)> {
        let now = Instant::now();
        for i in 0..n {
            f.tx.admit(now, i, vec![0; 40]);
        }
        std::iter::from_fn(|| f.tx.due(now + Duration::from_secs(1))).collect()
    }

    #[test]
    fn rates_are_kept_and_seeds_repeat() {
        let spec = "loss=10%, dup=5%,corrupt=0.02,seed=3";
        let out = run(&mut faults(spec), 10_000);
        assert_eq!(out, run(&mut faults(spec), 10_000));
        assert_ne!(out, run(&mut faults("loss=10%,dup=5%,corrupt=2%,seed=4"), 10_000));
        let kinds = out.iter().map(|(i, _)| i).collect::<std::collections::BTreeSet<_>>().len();
        assert!((8_800..9_200).contains(&kinds), "{kinds} of 10000 survive 10 %");
        let doubled = out.len() - kinds;
        assert!((380..520).contains(&doubled), "{doubled} of 9000 doubled at 5 %");
        let damaged = out.iter().filter(|(_, b)| b.iter().map(|x| x.count_ones()).sum::<u32>() == 1).count();
        assert!((130..260).contains(&damaged), "{damaged} of 9450 damaged at 2 %");
        assert!(out.is_sorted_by_key(|(i, _)| *i), "without jitter the order stays");
    }

    #[test]
    fn delayed_datagrams_wait_and_jitter_mixes_them() {
        let mut f = faults("delay=2ms,jitter=1ms");
        let now = Instant::now();
        for i in 0..100 {
            f.tx.admit(now, i, vec![1]);
        }
        assert!(f.tx.due(now + Duration::from_millis(1)).is_none());
        let wait = f.next_due(now).expect("something is held");
        assert!(wait >= Duration::from_millis(2) && wait <= Duration::from_millis(3));
        let out: Vec<u32> = std::iter::from_fn(|| f.tx.due(now + Duration::from_millis(3))).map(|(i, _)| i).collect();
        assert_eq!(out.len(), 100);
        assert!(!out.is_sorted());
    }

    #[test]
    fn what_is_held_is_bounded() {
        let mut f = faults("delay=1s");
        let now = Instant::now();
        let dropped: u64 = (0..2_000).map(|i| f.tx.admit(now, i, vec![0; 65_000]) - 1).sum();
        assert!(f.tx.held_bytes <= HELD_LIMIT_BYTES && dropped > 900);
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        for bad in [
            "loss",
            "loss=2",
            "loss=101%",
            "loss=-1%",
            "delay=5",
            "delay=-1ms",
            "jitter=1h",
            "seed=x",
            "loose=1%",
            "rx_seed=1",
            "delay=NaNs",
        ] {
            let e = Faults::<(), ()>::parse(bad, 0).err().expect(bad).to_string();
            assert!(e.contains(bad), "{e}");
        }
        assert!(Faults::<(), ()>::parse("", 0).is_ok());
    }

    type Put = fn(&mut Profile, u32);

    /// One item of a specification, what its number does to a profile, the number, and whether that is the profile of what arrives.
    fn item() -> impl Strategy<Value = (String, Put, u32, bool)> {
        let kinds: [(&str, &str, Put); 5] = [
            ("loss", "%", |p, n| p.loss = f64::from(n) / 100.0),
            ("dup", "%", |p, n| p.duplicate = f64::from(n) / 100.0),
            ("corrupt", "%", |p, n| p.corrupt = f64::from(n) / 100.0),
            ("delay", "ms", |p, n| p.delay = Duration::from_secs_f64(f64::from(n) * 1e-3)),
            ("jitter", "us", |p, n| p.jitter = Duration::from_secs_f64(f64::from(n) * 1e-6)),
        ];
        (proptest::sample::select(kinds.to_vec()), 0u32..=100, any::<bool>()).prop_map(|((name, unit, put), n, rx)| {
            (format!("{}{name}={n}{unit}", if rx { "rx_" } else { "" }), put, n, rx)
        })
    }

    proptest! {
        #[test]
        fn any_text_is_a_bad_network_or_an_error_of_one_line(
            text in prop_oneof![
                "(?s).{0,20}",
                "(rx_)?(loss|dup|corrupt|delay|jitter|seed)=-?([0-9]{0,4}[.e]?[0-9]{0,25}|nan|inf)(%|s|ms|us|ns)?[, \n\u{1b}]?",
            ],
            others in "(,(delay|rx_jitter)=[0-9]{1,2}(s|ms)){0,3}",
        ) {
            let text = text + &others;
            match Faults::<u8, u8>::parse(&text, 1) {
                Ok(mut faults) => {
                    let now = Instant::now();
                    faults.tx.admit(now, 1, vec![0; 9]);
                    faults.rx.admit(now, 1, Vec::new());
                    prop_assert!(faults.next_due(now).is_none_or(|due| due <= Duration::from_secs(120)));
                }
                Err(e) => {
                    let e = e.to_string();
                    prop_assert!(e.starts_with("WEIR_FAULTS='") && !e.contains(char::is_control), "{e:?}");
                }
            }
        }

        #[test]
        fn written_faults_read_back(
            items in proptest::collection::vec(item(), 0..6), between in "[ \n]?,[ \n,]?", seed in any::<Option<u64>>(),
        ) {
            let mut words: Vec<String> = items.iter().map(|item| item.0.clone()).collect();
            words.extend(seed.map(|seed| format!("seed={seed}")));
            let mut wanted = (Profile::default(), Profile::default(), seed.unwrap_or(1));
            for (_, put, n, rx) in items {
                put(if rx { &mut wanted.1 } else { &mut wanted.0 }, n);
            }
            prop_assert_eq!(parse(&words.join(&between)), Ok(wanted));
        }
    }
}
