use super::*;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::string::ToString;
use alloc::vec;
use proptest::prelude::*;

const MS: TimeNs = 1_000_000;

/// What is pushed comes back once it has been flushed.
#[derive(Default)]
struct Mirror {
    queued: Vec<(Route, Vec<u8>)>,
    here: VecDeque<(Route, Vec<u8>)>,
}

impl Datagrams for Mirror {
    type Error = ();

    fn recv(&mut self, _: TimeNs, _: usize, mut deliver: impl FnMut(&RxInfo, &mut [u8])) -> Result<usize, ()> {
        let n = self.here.len();
        for ((remote, local), mut bytes) in self.here.drain(..) {
            deliver(&RxInfo { remote, local, ecn: 0, fresh: true }, &mut bytes);
        }
        Ok(n)
    }

    fn push<P: Deref<Target = [u8]>>(&mut self, _: TimeNs, route: Route, head: &[u8], payload: &[P]) {
        let mut bytes = head.to_vec();
        payload.iter().for_each(|p| bytes.extend_from_slice(p));
        self.queued.push((route, bytes));
    }

    fn flush(&mut self, _: TimeNs) {
        self.here.extend(self.queued.drain(..));
    }

    fn blocked_at(&self) -> Option<c_int> {
        None
    }

    fn wake_sources(&self) -> [c_int; WAKE_SOURCES] {
        [-1; WAKE_SOURCES]
    }

    fn local_addrs(&self) -> &[SocketAddr] {
        &[]
    }

    fn max_datagram(&self) -> u16 {
        1472
    }

    fn rx_buffer_bytes(&self) -> u64 {
        1 << 20
    }

    fn take_refused(&mut self, _: impl FnMut(SocketAddr)) {}
}

fn faulty(text: &str) -> Faulty<Mirror> {
    Faulty::new(Mirror::default(), Some(text), 0).expect("valid")
}

fn to(port: u16) -> Route {
    (SocketAddr::from(([10, 0, 0, 1], port)), None)
}

/// Sends `n` datagrams of 40 bytes at once, each to a port of its own, and takes what comes within
/// a second.
fn run(f: &mut Faulty<Mirror>, n: u16) -> Vec<(u16, Vec<u8>)> {
    for port in 0..n {
        f.push(0, to(port), &[0; 10], &[&[0u8; 20][..], &[0; 10]]);
    }
    let mut out = Vec::new();
    for now_ns in [1000 * MS, 2000 * MS] {
        f.flush(now_ns);
        f.recv(now_ns, 1, |info, bytes| out.push((info.remote.port(), bytes.to_vec()))).expect("usable");
    }
    out
}

#[test]
fn rates_are_kept_and_seeds_repeat() {
    let spec = "loss=10%, dup=5%,corrupt=0.02,seed=3";
    let mut f = faulty(spec);
    let out = run(&mut f, 10_000);
    assert_eq!(out, run(&mut faulty(spec), 10_000));
    assert_ne!(out, run(&mut faulty("loss=10%,dup=5%,corrupt=2%,seed=4"), 10_000));
    assert_ne!(out, run(&mut Faulty::new(Mirror::default(), Some(spec), 1).expect("valid"), 10_000), "salted");
    let kinds = out.iter().map(|(i, _)| i).collect::<BTreeSet<_>>().len();
    assert!((8_800..9_200).contains(&kinds), "{kinds} of 10000 survive 10 %");
    let doubled = out.len() - kinds;
    assert!((380..520).contains(&doubled), "{doubled} of 9000 doubled at 5 %");
    let damaged = out.iter().filter(|(_, b)| b.iter().map(|x| x.count_ones()).sum::<u32>() == 1).count();
    assert!((130..260).contains(&damaged), "{damaged} of 9000 damaged at 2 %");
    assert!(out.is_sorted_by_key(|(i, _)| *i), "without jitter the order stays");
    assert_eq!(f.faults_injected() as usize, 10_000 - kinds + doubled + damaged);
}

#[test]
fn a_device_without_faults_is_left_alone() {
    let mut f = Faulty::new(Mirror::default(), None, 0).expect("nothing to be wrong");
    let out = run(&mut f, 100);
    assert_eq!((out.len(), f.faults_injected(), f.next_due_ns()), (100, 0, None));
}

#[test]
fn delayed_datagrams_wait_and_jitter_mixes_them() {
    let mut f = faulty("delay=2ms,jitter=1ms");
    for port in 0..100 {
        f.push::<&[u8]>(0, to(port), &[1], &[]);
    }
    f.flush(MS);
    assert!(f.device().here.is_empty() && f.device().queued.is_empty());
    let due_ns = f.next_due_ns().expect("something is held");
    assert!((2 * MS..=3 * MS).contains(&due_ns));
    assert_eq!(f.next_leaving_ns(), Some(due_ns));
    // The owner looks, which is enough.
    f.recv(3 * MS, 1, |_, _| panic!("nothing was flushed before")).expect("usable");
    let ports: Vec<u16> = f.device().here.iter().map(|(route, _)| route.0.port()).collect();
    assert_eq!((ports.len(), f.next_due_ns()), (100, None));
    assert!(!ports.is_sorted());
}

#[test]
fn faults_on_the_way_in_spare_the_way_out_and_the_reverse() {
    let mut f = faulty("rx_loss=100%");
    f.push::<&[u8]>(0, to(1), b"out", &[]);
    f.flush(0);
    assert_eq!(f.device().here.len(), 1);
    assert_eq!(f.recv(0, 1, |_, _| panic!("all is lost")), Ok(0));
    assert_eq!(f.faults_injected(), 1);
    let mut f = faulty("rx_delay=1ms");
    f.push::<&[u8]>(0, to(1), b"late", &[]);
    f.flush(0);
    assert_eq!((f.recv(0, 1, |_, _| panic!("too early")), f.next_due_ns()), (Ok(0), Some(MS)));
    assert_eq!(f.next_leaving_ns(), None, "all that was handed over has left");
    let mut got = Vec::new();
    assert_eq!(f.recv(MS, 1, |info, bytes| got.push((info.remote.port(), bytes.to_vec()))), Ok(1));
    assert_eq!(got, [(1, b"late".to_vec())]);
}

#[test]
fn what_is_held_is_bounded() {
    let mut f = faulty("delay=1s");
    for _ in 0..2_000 {
        f.push::<&[u8]>(0, to(1), &[0; 65_000], &[]);
    }
    let tx = &f.faults.as_ref().expect("there are some").tx;
    assert!(tx.held_bytes <= HELD_LIMIT_BYTES && tx.held.len() < 1_100);
    assert_eq!(tx.faults, 2_000 + 2_000 - tx.held.len() as u64, "each is delayed, and some are dropped");
}

fn refusal(text: &str) -> Option<String> {
    Faulty::new(Mirror::default(), Some(text), 0).err()
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
        let e = refusal(bad).expect(bad);
        assert!(e.contains(bad), "{e}");
    }
    assert_eq!(refusal(""), None);
    let told = refusal("lost=1").unwrap_or_default();
    assert!(told.starts_with("'lost=1': 'lost' is none of loss,"), "{told}");
}

type Put = fn(&mut PipeSpec, u32);

/// One item of a list, what its number does to a pipe, the number, and whether that is the pipe of
/// what arrives.
fn item() -> impl Strategy<Value = (String, Put, u32, bool)> {
    let kinds: [(&str, &str, Put); 5] = [
        ("loss", "%", |p, n| p.loss = Loss::independent(Chance::of(f64::from(n) / 100.0))),
        ("dup", "%", |p, n| p.duplicate = Chance::of(f64::from(n) / 100.0)),
        ("corrupt", "%", |p, n| p.corrupt = Chance::of(f64::from(n) / 100.0)),
        ("delay", "ms", |p, n| p.delay_ns = u64::from(n) * MS),
        ("jitter", "us", |p, n| {
            p.reorder = Reorder { chance: Chance::ALWAYS, least_ns: 0, most_ns: u64::from(n) * 1000 };
        }),
    ];
    (proptest::sample::select(kinds.to_vec()), 0u32..=100, any::<bool>())
        .prop_map(|((name, unit, put), n, rx)| (format!("{}{name}={n}{unit}", if rx { "rx_" } else { "" }), put, n, rx))
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
        match Faulty::new(Mirror::default(), Some(&(text + &others)), 1) {
            Ok(mut f) => {
                f.push::<&[u8]>(0, to(1), &[0; 9], &[]);
                f.push::<&[u8]>(0, to(1), &[], &[]);
                f.recv(0, 1, |_, _| ()).expect("usable");
                prop_assert!(f.next_due_ns().is_none_or(|due_ns| due_ns <= 120_000 * MS));
            }
            Err(e) => prop_assert!(!e.contains(char::is_control), "{e:?}"),
        }
    }

    #[test]
    fn written_faults_read_back(
        items in proptest::collection::vec(item(), 0..6), between in "[ \n]?,[ \n,]?", seed in any::<Option<u64>>(),
    ) {
        let mut words: Vec<String> = items.iter().map(|item| item.0.clone()).collect();
        words.extend(seed.map(|seed| "seed=".to_string() + &seed.to_string()));
        let mut wanted = (PipeSpec::default(), PipeSpec::default(), seed.unwrap_or(1));
        for (_, put, n, rx) in items {
            put(if rx { &mut wanted.1 } else { &mut wanted.0 }, n);
        }
        prop_assert_eq!(parse(&words.join(&between)), Ok(wanted));
    }
}

#[test]
fn the_list_of_what_may_wait_is_by_time_and_then_by_order() {
    let mut way: Way<u8> = Way::new(PipeSpec::default(), 1);
    for (due_ns, about) in [(5, 1), (3, 2), (5, 3), (3, 4)] {
        way.hold(due_ns, about, vec![]);
    }
    let order: Vec<u8> = core::iter::from_fn(|| way.due(5)).map(|(about, _)| about).collect();
    assert_eq!(order, [2, 4, 1, 3]);
}
