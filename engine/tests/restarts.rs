//! A server that ends and comes back at its port. Who names it by that port loses no message
//! silently: of what is sent meanwhile each message arrives once, or its send fails.
//!
//! That is what sends promise that complete when they are acknowledged, delivered or matched. Those
//! that complete when their memory is free promise nothing of the kind.

mod common;

use common::{LIMIT, config, iov, open, recv_op, send_op};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};
use weir_engine::{Completion, Endpoint, EngineConfig, EngineError, Queue, RecvOp, SendMode};
use weir_wire::EndpointName;

/// The port of the server, for the process that is one.
const PORT: &str = "WEIR_TEST_PORT";
/// By packets and by more of them, copied and granted, and by TCP where that pays.
const LENGTHS: [usize; 4] = [8, 3000, 100_000, 600_000];
/// Sends under way at a time.
const AT_ONCE: usize = 16;

/// Not a test of its own: the server. Says the tag of each message; ends with its standard input.
#[test]
fn server() {
    let Ok(port) = std::env::var(PORT) else { return };
    let ep = open(EngineConfig { port: port.parse().expect("port"), ..config() });
    let mut rooms: Vec<Vec<u8>> = (0..64).map(|_| vec![0; 600_000]).collect();
    let post = |at: usize, room: &mut [u8]| {
        let memory = iov(room);
        let op = RecvOp { ignore: u64::MAX, context: at, ..recv_op(None, 0, &memory) };
        // SAFETY: kept as long as the endpoint.
        unsafe { ep.recv(&op) }.expect("receive");
    };
    rooms.iter_mut().enumerate().for_each(|(at, room)| post(at, room));
    let over = std::thread::spawn(|| _ = std::io::stdin().read(&mut [0]));
    println!("\nup");
    let mut out: Vec<Completion> = Vec::new();
    while !over.is_finished() {
        out.clear();
        ep.poll(Queue::Recv, &mut out, 8);
        for c in &out {
            println!("got {}", c.tag);
            post(c.context, &mut rooms[c.context]);
        }
    }
    ep.close();
    out.clear();
    ep.poll(Queue::Recv, &mut out, 64);
    out.iter().filter(|c| c.result.is_ok()).for_each(|c| println!("got {}", c.tag));
}

/// The process that runs it.
struct Server(Child);

impl Server {
    /// Starts it, and tells of what it receives.
    fn start(port: u16, tell: &Sender<u64>) -> Server {
        let mut command = Command::new(std::env::current_exe().expect("own path"));
        command.args(["--exact", "server", "--nocapture"]).env(PORT, port.to_string());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("spawn");
        let (out, tell) = (BufReader::new(child.stdout.take().expect("piped")), tell.clone());
        std::thread::spawn(move || {
            let tag = |line: String| line.strip_prefix("got ").and_then(|n| n.parse().ok());
            out.lines().map_while(Result::ok).filter_map(tag).for_each(|tag| _ = tell.send(tag));
        });
        Server(child)
    }

    /// Ends it at once.
    fn kill(&mut self) {
        self.0.kill().expect("killed");
        self.0.wait().expect("ended");
    }

    /// Has it end in order.
    fn ask_to_end(&mut self) {
        let _ = self.0.stdin.take().map(|mut stdin| stdin.flush());
    }

    fn has_ended(&mut self) -> bool {
        self.0.try_wait().expect("child").is_some()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Client {
    ep: Arc<Endpoint>,
    port: u16,
    /// The server, by its port.
    server: u32,
    data: Vec<u8>,
    /// What a send is asked for, in turns.
    modes: &'static [SendMode],
    /// By tag: under way, or how it ended.
    sends: BTreeMap<u64, Option<bool>>,
    under_way: usize,
    good: usize,
}

impl Client {
    fn new(port: u16) -> Client {
        let ep = open(config());
        let (data, sends) = (vec![7; 600_000], BTreeMap::new());
        let mut client = Client { ep, port, server: 0, data, modes: &[], sends, under_way: 0, good: 0 };
        client.server = client.insert();
        client
    }

    fn insert(&self) -> u32 {
        let own = EndpointName::decode(&self.ep.name()).expect("name");
        let mut name = EndpointName::new(self.port, own.fingerprint, 0);
        name.push("127.0.0.1".parse().expect("address"));
        self.ep.insert_peer(&name.encode()).expect("inserted")
    }

    /// The peer is down, as an operation says: whoever is at its port by now is another.
    fn look_again(&mut self) {
        self.ep.remove_peer(self.server);
        self.server = self.insert();
    }

    fn send(&mut self) {
        let tag = self.sends.len() as u64;
        let (len, mode) = (LENGTHS[tag as usize % 4], self.modes[tag as usize / 4 % self.modes.len()]);
        let memory = iov(&mut self.data[..len]);
        // SAFETY: the memory is there to the end of the test.
        match unsafe { self.ep.send(&send_op(self.server, tag, &memory, mode)) } {
            Ok(()) => {
                self.sends.insert(tag, None);
                self.under_way += 1;
            }
            Err(EngineError::Again) => {}
            Err(_) => self.look_again(),
        }
    }

    fn poll(&mut self) {
        let mut out = Vec::new();
        self.ep.poll(Queue::Both, &mut out, AT_ONCE);
        for c in out {
            let before = self.sends.insert(c.tag, Some(c.result.is_ok()));
            assert_eq!(before, Some(None), "send {} ended twice", c.tag);
            self.under_way -= 1;
            self.good += usize::from(c.result.is_ok());
            if c.result.is_err() {
                self.look_again();
            }
        }
    }

    /// Goes on as long as that says.
    fn work(&mut self, mut goes_on: impl FnMut(&Client) -> bool) {
        let start = Instant::now();
        while goes_on(self) {
            if self.under_way < AT_ONCE {
                self.send();
            }
            self.poll();
            assert!(start.elapsed() < LIMIT, "{}", self.ep.counters_json());
        }
    }

    /// Some more of what is sent ends well.
    fn succeeds(&mut self) {
        let wanted = self.good + BETWEEN;
        self.work(|client| client.good < wanted);
    }

    /// All that was sent ends.
    fn settle(&mut self) {
        let start = Instant::now();
        while self.under_way > 0 {
            self.poll();
            assert!(start.elapsed() < LIMIT, "{}", self.ep.counters_json());
        }
    }

    /// What ended well has arrived, and nothing has twice.
    fn check(&self, told: &Receiver<u64>, got: &mut BTreeMap<u64, u32>) {
        let start = Instant::now();
        let missing = |got: &BTreeMap<u64, u32>| {
            let good = self.sends.iter().filter(|(_, ended)| **ended == Some(true));
            good.map(|(tag, _)| *tag).filter(|tag| !got.contains_key(tag)).collect::<Vec<_>>()
        };
        loop {
            told.try_iter().for_each(|tag| *got.entry(tag).or_default() += 1);
            if missing(got).is_empty() {
                break;
            }
            // (The server may be slower than its acknowledgements.)
            assert!(start.elapsed() < LIMIT / 4, "lost: {:?}", missing(got));
            std::thread::sleep(Duration::from_millis(1));
        }
        let twice: Vec<_> = got.iter().filter(|(_, times)| **times > 1).collect();
        assert!(twice.is_empty(), "arrived twice: {twice:?}");
    }
}

/// Below those that systems give to who asks for any: another would have it while nobody is there.
fn free_port() -> u16 {
    static TRIED: AtomicU16 = AtomicU16::new(0);
    let first = 20_000 + (std::process::id() % 10_000) as u16;
    let next = || first + TRIED.fetch_add(1, Ordering::Relaxed);
    let is_free =
        |port: &u16| UdpSocket::bind(("127.0.0.1", *port)).is_ok() && TcpListener::bind(("127.0.0.1", *port)).is_ok();
    std::iter::repeat_with(next).take(1000).find(is_free).expect("a port")
}

/// How long nobody is at the port, ms.
const AWAY_MS: [u64; 5] = [0, 1, 20, 60, 300];
/// Messages that are to arrive before the next end.
const BETWEEN: usize = 100;

#[test]
fn what_is_sent_while_a_server_is_killed_and_restarted_arrives_once_or_fails() {
    let (port, (tell, told), mut got) = (free_port(), channel(), BTreeMap::new());
    let mut client = Client::new(port);
    client.modes = &[SendMode::Acknowledged, SendMode::Delivery, SendMode::Match];
    let mut server = Server::start(port, &tell);
    for away_ms in AWAY_MS {
        client.succeeds();
        // What it had received when it was killed it could not have told: so all of it first.
        client.settle();
        client.check(&told, &mut got);
        server.kill();
        let start = Instant::now();
        client.work(|_| start.elapsed() < Duration::from_millis(away_ms));
        server = Server::start(port, &tell);
    }
    client.succeeds();
    client.settle();
    client.check(&told, &mut got);
}

#[test]
fn what_is_matched_while_a_server_ends_in_order_and_comes_back_has_arrived_once() {
    let (port, (tell, told), mut got) = (free_port(), channel(), BTreeMap::new());
    let mut client = Client::new(port);
    client.modes = &[SendMode::Match];
    let mut server = Server::start(port, &tell);
    for away_ms in AWAY_MS {
        client.succeeds();
        server.ask_to_end();
        client.work(|_| !server.has_ended());
        let start = Instant::now();
        client.work(|_| start.elapsed() < Duration::from_millis(away_ms));
        server = Server::start(port, &tell);
    }
    client.succeeds();
    client.settle();
    client.check(&told, &mut got);
}
