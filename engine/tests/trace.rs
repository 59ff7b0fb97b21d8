//! The trace: whoever reads it can follow one request from its beginning to its end, on both sides.

mod common;

use common::{
    KEY, LIMIT, Pair, counter, iov, open, packets, pair_of, pattern, post, recv_op, register, rma_op, send, wait,
};
use std::path::{Path, PathBuf};
use std::time::Instant;
use weir_engine::{BulkUse, Endpoint, EngineConfig, Level, OpError, PeekOp, Queue, SendMode};

/// A folder of this test's, gone when it is over.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("weir-trace-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).expect("folder");
        Folder(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn traced(level: u8, to: PathBuf) -> EngineConfig {
    EngineConfig { trace: level, trace_file: Some(to), bulk_connections: BulkUse::Off, ..packets() }
}

fn lines(file: &Path) -> Vec<String> {
    std::fs::read_to_string(file).expect("trace").lines().map(|l| l.trim().to_owned()).collect()
}

/// What `grep '#n '` finds.
fn life(file: &Path, number: u64) -> Vec<String> {
    lines(file).into_iter().filter(|l| format!("{l} ").contains(&format!("#{number} "))).collect()
}

/// The number of the request whose line holds `what`, of which there is one.
fn number(file: &Path, what: &str) -> u64 {
    let found: Vec<String> = lines(file).into_iter().filter(|l| l.contains(what)).collect();
    assert_eq!(found.len(), 1, "{what}: {found:?} of {:#?}", lines(file));
    let text = found[0].split('#').nth(1).and_then(|t| t.split(' ').next()).expect("a number");
    text.parse().expect("a number")
}

fn field(line: &str, name: &str) -> String {
    let text = line.split(&format!(" {name}=")).nth(1).unwrap_or_else(|| panic!("no {name} in {line}"));
    text.split(' ').next().expect("value").to_owned()
}

/// The life has these stages, in this order, and times that do not go back.
fn assert_stages(life: &[String], stages: &[&str]) {
    let mut rest = life.iter();
    for stage in stages {
        assert!(rest.any(|l| l.contains(stage)), "'{stage}' is not at its place in {life:#?}");
    }
    let times: Vec<f64> =
        life.iter().map(|l| l.split(' ').next().and_then(|t| t.parse().ok()).expect("time")).collect();
    assert!(times.is_sorted(), "{life:#?}");
}

/// A counter of the protocol's, of which a peer may have a namesake.
fn protocols(ep: &Endpoint, name: &str) -> u64 {
    let json = ep.counters_json();
    let all = json.split("\"protocol\":").nth(1).expect("the protocol's counters");
    let text = all.split(&format!("\"{name}\":")).nth(1).expect("the counter");
    text.split([',', '}']).next().and_then(|n| n.parse().ok()).expect("a number")
}

fn until(p: &Pair, done: impl Fn() -> bool) {
    let start = Instant::now();
    while !done() {
        p.a.progress();
        p.b.progress();
        assert!(start.elapsed() < LIMIT, "{} {}", p.a.counters_json(), p.b.counters_json());
    }
}

/// A message that its receive waits for.
fn expected(p: &Pair, tag: u64, len: usize, mode: SendMode) {
    let (mut data, mut buf) = (pattern(len, tag as u8), vec![0; len]);
    post(&p.b, Some(p.to_a), tag, &mut buf);
    send(&p.a, p.to_b, tag, &mut data, mode).expect("send");
    assert_eq!(wait(&p.b, &p.a, Queue::Recv).result, Ok(()));
    assert_eq!(wait(&p.a, &p.b, Queue::Send).result, Ok(()));
    assert!(buf == data);
}

/// A message that is there before its receive.
fn unexpected(p: &Pair, tag: u64, len: usize) {
    let (mut data, mut buf) = (pattern(len, tag as u8), vec![0; len]);
    send(&p.a, p.to_b, tag, &mut data, SendMode::Delivery).expect("send");
    // An eager message is there whole when its send completes; a rendezvous waits for its receive.
    let eager = len <= 100_000;
    if eager {
        assert_eq!(wait(&p.a, &p.b, Queue::Send).result, Ok(()));
    }
    let there = |ep: &Endpoint| {
        let peek = PeekOp {
            source: None,
            class: weir_engine::Class::Tagged,
            tag,
            ignore: 0,
            claim: false,
            discard: false,
            context: 0,
        };
        ep.peek(&peek).expect("peek").is_some()
    };
    until(p, || there(&p.b));
    post(&p.b, None, tag, &mut buf);
    assert_eq!(wait(&p.b, &p.a, Queue::Recv).result, Ok(()));
    if !eager {
        assert_eq!(wait(&p.a, &p.b, Queue::Send).result, Ok(()));
    }
    assert!(buf == data);
}

/// The message of this tag is in both files, and the two lives meet in its number.
fn assert_connected(a: &Path, b: &Path, tag: u64, sender: &[&str], message: &[&str], receiver: &[&str]) {
    let tagged = format!("tag={tag:#x} ");
    let sent = life(a, number(a, &format!("send posted to=0 {tagged}")));
    assert_stages(&sent, sender);
    let posted = life(b, number(b, &receive(b, &tagged)));
    assert_stages(&posted, receiver);
    let matched = posted.iter().find(|l| l.contains(" matched ")).expect("a match");
    let theirs = life(
        b,
        matched.split('#').nth(2).and_then(|t| t.split(' ').next()).and_then(|n| n.parse().ok()).expect("number"),
    );
    assert_stages(&theirs, message);
    let arrival = theirs.iter().find(|l| l.contains(" mseq=")).expect("an arrival");
    assert_eq!(field(&sent[0], "mseq"), field(arrival, "mseq"));
    assert_eq!(field(&sent[0], "stream"), field(arrival, "stream"));
}

/// The line of the receive for this tag, as far as it names it.
fn receive(file: &Path, tagged: &str) -> String {
    let all = lines(file);
    let line = all.iter().find(|l| l.contains("recv posted") && l.contains(tagged)).expect("a receive");
    line.split_once(' ').expect("time").1.to_owned()
}

#[test]
fn each_request_can_be_followed_from_its_beginning_to_its_end() {
    let folder = Folder::new("lives");
    let (a, b) = (folder.file("a"), folder.file("b"));
    {
        let p = pair_of(traced(2, a.clone()), traced(2, b.clone()));
        expected(&p, 0x11, 100, SendMode::Transmit);
        // More than the largest datagram of loopback's.
        expected(&p, 0x12, 100_000, SendMode::Match);
        expected(&p, 0x13, 600_000, SendMode::Delivery);
        expected(&p, 0x14, 0, SendMode::Delivery);
        unexpected(&p, 0x21, 100);
        unexpected(&p, 0x22, 100_000);
        unexpected(&p, 0x23, 600_000);
    }
    let whole = ["arrived whole by packets"];
    let (came, came_there) = (
        ["first piece sent by packets", "last piece sent by packets, all by packets len=100000"],
        ["last piece came by packets len=100000"],
    );
    assert_connected(
        &a,
        &b,
        0x11,
        &["posted", "completed at once", "sent whole by packets", "acknowledged"],
        &whole,
        &["recv posted", "matched", "completed len=100"],
    );
    assert_connected(
        &a,
        &b,
        0x12,
        &[" eager lent mode=Match ", came[0], came[1], "matched there", "completed"],
        &["first piece came", "last piece came"],
        &["recv posted", "matched", came_there[0], "completed len=100000"],
    );
    let rendezvous = [
        "posted",
        "announced by packets",
        "asked for rndv=",
        "first piece sent by packets",
        "last piece sent",
        "completed",
    ];
    let rndv = [
        "recv posted",
        "matched",
        "asks for rndv=",
        "first piece came by packets",
        "last piece came, all by packets len=600000",
        "completed len=600000",
    ];
    assert_connected(&a, &b, 0x13, &rendezvous, &["announced by packets"], &rndv);
    assert_connected(
        &a,
        &b,
        0x14,
        &["posted", "sent whole by packets len=0", "completed"],
        &whole,
        &["recv posted", "completed len=0"],
    );
    // What came unasked lived under a number of its own until its receive took it.
    assert_connected(
        &a,
        &b,
        0x21,
        &["posted", "sent whole", "completed"],
        &["arrived whole", "matched"],
        &["posted", "matched", "completed"],
    );
    assert_connected(
        &a,
        &b,
        0x22,
        &["posted", came[0], came[1], "completed"],
        &["first piece came", "message last piece came", "matched"],
        &["posted", "matched", "completed"],
    );
    assert_connected(&a, &b, 0x23, &rendezvous, &["announced by packets", "matched"], &rndv);
    for (tag, how) in
        [(0x11, "expected"), (0x13, "expected"), (0x21, "unexpected"), (0x22, "unexpected"), (0x23, "unexpected")]
    {
        let line = lines(&b)
            .into_iter()
            .find(|l| l.contains("matched") && l.contains(&format!("tag={tag:#x} ")))
            .expect("match");
        assert!(line.contains(&format!(" {how} ")), "{line}");
    }
    for file in [&a, &b] {
        assert!(lines(file)[0].contains("level 2, time 0 is"), "{:?}", lines(file)[0]);
        assert!(!lines(file).iter().any(|l| l.contains("packet out") || l.contains("packet in")));
        assert!(lines(file).iter().any(|l| l.contains("peer up peer=0 at 127.0.0.1:")));
    }
}

#[test]
fn remote_writes_and_reads_can_be_followed_on_both_sides() {
    let folder = Folder::new("remote");
    let (a, b) = (folder.file("a"), folder.file("b"));
    {
        let p = pair_of(traced(2, a.clone()), traced(2, b.clone()));
        let (mut memory, mut small, mut large, mut back) =
            (vec![0; 600_000], pattern(9000, 1), pattern(600_000, 2), vec![0; 500_000]);
        let key = register(&p.b, &mut memory);
        let (small, large, back) = (iov(&mut small), iov(&mut large), iov(&mut back));
        for op in [rma_op(p.to_b, key, &small), rma_op(p.to_b, key, &large)] {
            // SAFETY: the memory lives until the end of the test.
            unsafe { p.a.write(&op) }.expect("write");
            assert_eq!(wait(&p.a, &p.b, Queue::Send).result, Ok(()));
        }
        // SAFETY: as above.
        unsafe { p.a.read(&rma_op(p.to_b, key, &back)) }.expect("read");
        assert_eq!(wait(&p.a, &p.b, Queue::Send).result, Ok(()));
        let short = rma_op(p.to_b, key + 1, &back);
        // SAFETY: as above.
        unsafe { p.a.read(&short) }.expect("read");
        assert_eq!(wait(&p.a, &p.b, Queue::Send).result, Err(OpError::Access));
        until(&p, || lines(&b).iter().any(|l| l.contains("answer acknowledged")));
        p.b.unregister(key);
    }
    let of = |len: usize, what: &str| life(&a, number(&a, &format!("{what} posted to=0 key=0x1 addr=0x0 len={len}")));
    assert_stages(&of(9000, "write"), &["first piece sent by packets", "last piece sent by packets", "completed"]);
    assert_stages(
        &of(600_000, "write"),
        &["announced", "asked for rndv=", "first piece sent", "last piece sent", "completed"],
    );
    assert_stages(&of(500_000, "read"), &["asks for rndv=", "first piece came", "last piece came", "completed"]);
    assert_stages(&life(&a, number(&a, "read posted to=0 key=0x2")), &["failed"]);
    assert_stages(
        &life(&b, number(&b, "target announced from=0 key=0x1 len=600000")),
        &["asks for rndv=", "first piece came", "last piece came"],
    );
    assert_stages(
        &life(&b, number(&b, "answer posted to=0 key=0x1 len=500000")),
        &["first piece sent", "last piece sent", "acknowledged"],
    );
    assert!(lines(&b).iter().any(|l| l.contains("target written from=0 key=0x1")));
}

#[test]
fn what_goes_by_a_bulk_connection_says_so() {
    let folder = Folder::new("bulk_connections");
    let (a, b) = (folder.file("a"), folder.file("b"));
    {
        let bulk_connections =
            |file: &PathBuf| EngineConfig { bulk_connections: BulkUse::Always, ..traced(2, file.clone()) };
        let p = pair_of(bulk_connections(&a), bulk_connections(&b));
        let wanted = [
            (&a, "bulk connection up peer=0"),
            (&b, "bulk connection up peer=0"),
            (&a, "send sent whole by bulk connection len=100000"),
            (&b, "recv last piece came by bulk connection len=100000"),
            (&a, " by bulk connection len=3000000"),
            (&b, "last piece came, all by bulk connection len=3000000"),
        ];
        let start = Instant::now();
        // The first go in packets, until the bulk connection is up.
        for tag in 0x100.. {
            expected(&p, 2 * tag, 100_000, SendMode::Delivery);
            expected(&p, 2 * tag + 1, 3_000_000, SendMode::Delivery);
            let missing: Vec<_> =
                wanted.iter().filter(|(file, what)| !lines(file).iter().any(|l| l.contains(what))).collect();
            if missing.is_empty() {
                break;
            }
            assert!(start.elapsed() < LIMIT, "{missing:?} in {:#?} {:#?}", lines(&a), lines(&b));
        }
    }
}

#[test]
fn the_first_level_tells_only_what_goes_wrong_and_who_comes_and_goes() {
    let folder = Folder::new("first");
    let (a, b) = (folder.file("a"), folder.file("b"));
    {
        let p = pair_of(traced(1, a.clone()), traced(1, b.clone()));
        expected(&p, 0x11, 100, SendMode::Transmit);
        let (mut data, mut buf) = (pattern(100, 1), vec![0; 40]);
        post(&p.b, None, 0x12, &mut buf);
        send(&p.a, p.to_b, 0x12, &mut data, SendMode::Delivery).expect("send");
        assert_eq!(wait(&p.b, &p.a, Queue::Recv).result, Err(OpError::Truncated { excess: 60 }));
        wait(&p.a, &p.b, Queue::Send);
        // What the program itself takes back is no trouble.
        // SAFETY: the memory lives until the end of the test.
        unsafe { p.b.recv(&recv_op(None, 0x13, &iov(&mut buf))) }.expect("receive");
        assert!(p.b.cancel(0x13));
        p.a.close();
        until(&p, || lines(&b).iter().any(|l| l.contains("peer down peer=0 at 127.0.0.1:")));
    }
    let told = lines(&b);
    assert!(
        told.iter().any(|l| l.contains("recv failed (message truncated, 60 bytes did not fit) len=40 from=0 tag=0x12")),
        "{told:#?}"
    );
    for file in [&a, &b] {
        let all = lines(file);
        assert!(all.iter().any(|l| l.contains("peer up peer=0")));
        assert!(
            !all.iter()
                .any(|l| l.contains('#') || l.contains("posted") || l.contains("packet") || l.contains("cancelled")),
            "{all:#?}"
        );
    }
}

#[test]
fn the_third_level_has_each_packet_at_every_level_of_protection() {
    for level in [Level::Integrity, Level::Auth, Level::Encrypt] {
        let folder = Folder::new(&format!("packets-{level:?}"));
        let (a, b) = (folder.file("a"), folder.file("b"));
        let (sent, received);
        {
            let cfg = |file: &PathBuf| EngineConfig { level, ..traced(3, file.clone()) };
            let p = pair_of(cfg(&a), cfg(&b));
            // What is sent before the peer has answered asks first, unless it is short.
            expected(&p, 0x10, 100, SendMode::Delivery);
            expected(&p, 0x11, 100_000, SendMode::Delivery);
            expected(&p, 0x12, 600_000, SendMode::Delivery);
            let port = u16::from_be_bytes([p.b.name()[2], p.b.name()[3]]);
            let stranger = std::net::UdpSocket::bind("127.0.0.1:0").expect("socket");
            stranger.send_to(&[0x1f; 40], ("127.0.0.1", port)).expect("sent");
            until(&p, || counter(&p.b, "dropped_malformed") > 0);
            p.a.close();
            p.b.close();
            (sent, received) = (protocols(&p.a, "packets_sent"), protocols(&p.b, "packets_received"));
        }
        let count = |file: &Path, what: &str| lines(file).iter().filter(|l| l.contains(what)).count() as u64;
        assert_eq!((count(&a, " packet out "), count(&b, " packet in ")), (sent, received), "{level:?}");
        for (file, what) in [
            (&a, ": Init"),
            (&b, ": Accept"),
            (&a, " of 100000"),
            (&b, " of 100000"),
            (&a, "packet out to=0 127.0.0.1:"),
            (&b, "packet in from=0 127.0.0.1:"),
            (&a, ": ack "),
            (&a, " rndv 0x1"),
            (&b, " rndv 0x1"),
            (&b, "packet in from=- 127.0.0.1:"),
            (&b, "dropped (malformed)"),
            (&a, "#1 send posted"),
        ] {
            assert!(
                lines(file).iter().any(|l| l.contains(what)),
                "no '{what}' at {level:?} in {:#?}",
                lines(file).iter().take(40).collect::<Vec<_>>()
            );
        }
    }
}

#[test]
fn nothing_is_written_when_it_is_off() {
    let folder = Folder::new("off");
    let file = folder.file("a");
    let p = pair_of(traced(0, file.clone()), traced(0, file.clone()));
    expected(&p, 0x11, 100, SendMode::Delivery);
    drop(p);
    assert!(!file.exists());
    assert!(Endpoint::open_with_key(traced(2, folder.file("no/such/folder")), KEY).is_err());
    drop(open(traced(2, file.clone())));
    assert_eq!(lines(&file).len(), 1);
}
