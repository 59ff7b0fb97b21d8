//! Members of the job that share memory with an endpoint and write into it what an endpoint of this
//! version would not.

mod common;

use common::{KEY, LIMIT, config, open, post, send};
use std::io::IoSlice;
use std::net::UdpSocket;
use std::time::{Duration, Instant};
use weir_engine::{CarrierUse, Completion, DownReason, Endpoint, EngineConfig, OpError, Queue, SendMode};
use weir_link::EndpointName;
use weir_match::Class;
use weir_match::envelope::{Envelope, MAX_BYTES};
use weir_shm::{Config, PeerIx, Shm, State};

/// Kinds of records (spec/shm.md 10).
const HELLO: u16 = 1;
const WHOLE: u16 = 2;
const MESSAGE_AT: u16 = 6;

/// A member with records of its own.
struct Member {
    shm: Shm,
    ix: PeerIx,
    start: Instant,
}

impl Member {
    /// The name of a member with this id, at the address of a socket.
    fn name(of: &Endpoint, id: u64, at: &UdpSocket) -> [u8; 48] {
        let mut name = EndpointName::decode(&of.name()).expect("a name");
        name.endpoint_id = id;
        name.port = at.local_addr().expect("address").port();
        name.encode()
    }

    /// Shares memory with `ep`, as the endpoint of this name, and has said so.
    fn meets(ep: &Endpoint, id: u64, name: &[u8; 48]) -> Member {
        let mut shm = Shm::open(id, &KEY, Config::default()).expect("open");
        let to = EndpointName::decode(&ep.name()).expect("a name").endpoint_id;
        let ix = shm.connect(to, 0).expect("another");
        let mut member = Member { shm, ix, start: Instant::now() };
        member.until(ep, State::Up);
        let mut hello = name.to_vec();
        hello.extend_from_slice(&1000u64.to_le_bytes());
        hello.extend_from_slice(&(1u64 << 20).to_le_bytes());
        hello.extend_from_slice(&[0, 0]);
        hello.extend_from_slice(&weir_match::StreamBits::default().features().to_le_bytes());
        hello.extend_from_slice(&[0; 4]);
        member.put(HELLO, &hello);
        member
    }

    fn state(&mut self) -> Option<State> {
        self.shm.poll(self.start.elapsed().as_nanos() as u64, &mut Vec::new());
        self.shm.state(self.ix)
    }

    fn until(&mut self, ep: &Endpoint, wanted: State) {
        let start = Instant::now();
        while self.state() != Some(wanted) {
            ep.progress();
            assert!(start.elapsed() < LIMIT, "{:?}: {}", self.shm.state(self.ix), ep.counters_json());
        }
    }

    fn put(&mut self, kind: u16, record: &[u8]) {
        self.shm.send(self.ix, kind, &[IoSlice::new(record)]).expect("there is room");
    }
}

fn envelope(tag: u64) -> Vec<u8> {
    let mut buf = [0; MAX_BYTES];
    let n = Envelope::Eager { class: Class::Tagged, tag, data: None, sync: None }.encode(&mut buf);
    buf[..n].to_vec()
}

fn by_memory() -> EngineConfig {
    EngineConfig { carrier: CarrierUse::Shm, connect_timeout: Duration::from_millis(300), ..config() }
}

fn polled(ep: &Endpoint, queue: Queue) -> Completion {
    let (start, mut out) = (Instant::now(), Vec::new());
    while ep.poll(queue, &mut out, 1) == 0 {
        assert!(start.elapsed() < LIMIT, "no completion: {}", ep.counters_json());
    }
    out[0]
}

#[test]
fn a_message_without_bytes_whose_record_names_no_memory_is_received_once() {
    let (ep, socket) = (open(by_memory()), UdpSocket::bind("127.0.0.1:0").expect("socket"));
    let name = Member::name(&ep, 77, &socket);
    let from = ep.insert_peer(&name).expect("usable");
    let mut member = Member::meets(&ep, 77, &name);
    for mseq in 0..3u64 {
        let envelope = envelope(mseq);
        let mut record = vec![0; 32];
        record[2..4].copy_from_slice(&(envelope.len() as u16).to_le_bytes());
        record[4..8].copy_from_slice(&(mseq as u32).to_le_bytes());
        record[8..16].copy_from_slice(&mseq.to_le_bytes());
        record.extend_from_slice(&envelope);
        member.put(MESSAGE_AT, &record);
    }
    for tag in 0..3 {
        post(&ep, Some(from), tag, &mut []);
        let c = polled(&ep, Queue::Recv);
        assert_eq!((c.context, c.len, c.result), (tag as usize, 0, Ok(())));
    }
}

/// What is sent to it goes by packets, for there was no memory to share then, and packets find that
/// nobody is there. What it sends goes by memory.
#[test]
fn who_was_given_up_is_told_so_by_shared_memory_too() {
    let (ep, socket) = (open(by_memory()), UdpSocket::bind("127.0.0.1:0").expect("socket"));
    let name = Member::name(&ep, 78, &socket);
    let to = ep.insert_peer(&name).expect("usable");
    let mut data = [1u8; 8];
    send(&ep, to, 1, &mut data, SendMode::Delivery).expect("accepted");
    let mut member = Member::meets(&ep, 78, &name);
    let ended = polled(&ep, Queue::Send);
    assert_eq!(ended.result, Err(OpError::PeerDown(DownReason::ConnectTimeout)));
    let start = Instant::now();
    while matches!(member.state(), Some(State::Up)) {
        ep.progress();
        assert!(start.elapsed() < LIMIT / 10, "it sends to who is not listening any more, for ever");
    }
    let envelope = envelope(1);
    let mut record = vec![0; 12];
    record[2..4].copy_from_slice(&(envelope.len() as u16).to_le_bytes());
    record.extend_from_slice(&envelope);
    assert!(member.shm.send(member.ix, WHOLE, &[IoSlice::new(&record)]).is_err());
}
