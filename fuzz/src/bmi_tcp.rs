//! A server of `bmi_tcp` and its connections, real ones over loopback: the input says what comes on
//! each, in which pieces, what the program posts, cancels and drops, and what the library dials.
//! Some connections are honest, some say anything.
//!
//! The books: every operation ends exactly once; what a receive gets of an honest connection is
//! what was sent under its tag, in order; no byte is written beside a receive's memory; what is
//! held stays in its budgets; whoever breaks the rules of the wire loses its connection and nobody
//! else does; when all have gone nothing is left.

use std::collections::{HashMap, VecDeque};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};

use arbitrary::Arbitrary;
use weir_bmi::addresses::AddrKey;
use weir_bmi::bare::{self, Iov, Library, Posted, Use, Wanted};
use weir_bmi::codes::Code;
use weir_bmi::ops::OpKey;
use weir_bmi::tcp::codec::{EAGER_MAX, Header, Wire};

use crate::input::{Few, Rest};

/// Connections at a time.
const CONNS_MAX: usize = 6;
/// The budget of all and of each, bytes: small, so that it is reached.
const ALL_BYTES: u64 = 50_000;
/// Bytes beside the memory of each receive that nobody may write to.
const FENCE: usize = 16;
const FENCED: u8 = 0xa7;

/// One run.
#[derive(Arbitrary, Debug)]
pub struct Input {
    /// Bit 0: which wire is dialled with.
    options: u8,
    steps: Rest<Step, 200>,
}

/// One event.
#[derive(Arbitrary, Clone, Debug)]
#[expect(missing_docs, reason = "plain")]
pub enum Step {
    Connect {
        radix: bool,
    },
    /// Anything, or the rest of the message under way changed to it.
    Any {
        conn: u8,
        bytes: Few<u8, 60>,
    },
    /// A header whose fields say anything.
    Fields {
        conn: u8,
        mode: u8,
        tag: u8,
        size: i64,
    },
    /// A good message.
    Message {
        conn: u8,
        tag: u8,
        size: u16,
        class: Option<u8>,
    },
    /// Of what is to come on a connection, so much comes.
    Bring {
        conn: u8,
        bytes: u16,
    },
    Read {
        conn: u8,
        bytes: u16,
    },
    /// It says no more, or is gone.
    End {
        conn: u8,
        reset: bool,
    },
    Receive {
        conn: u8,
        tag: u8,
        size: u16,
    },
    Send {
        conn: u8,
        tag: u8,
        size: u16,
        class: Option<u8>,
    },
    Cancel {
        op: u8,
    },
    Drop {
        conn: u8,
    },
    Collect {
        class: u8,
    },
    /// The library sends to who listens here, which dials.
    Dial {
        tag: u8,
        size: u16,
    },
    Accept,
}

struct Conn {
    stream: TcpStream,
    addr: Option<AddrKey>,
    radix: bool,
    /// Only good messages were written.
    honest: bool,
    /// What is to come.
    ahead: VecDeque<u8>,
    /// Good messages that nobody has received yet, by tag; and unexpected ones.
    sent: HashMap<i32, VecDeque<Vec<u8>>>,
    unexpected: VecDeque<(i32, u8, Vec<u8>)>,
    /// Receives of a tag that were too short, or were cancelled with one: each may have taken a
    /// message.
    lost: HashMap<i32, usize>,
    number: u8,
}

struct Op {
    memory: Vec<u8>,
    size: usize,
    conn: Option<usize>,
    tag: i32,
    is_recv: bool,
}

struct World {
    library: Library,
    port: u16,
    context: i64,
    conns: Vec<Conn>,
    ops: HashMap<OpKey, Op>,
    order: Vec<OpKey>,
    listener: TcpListener,
    dialled: Option<AddrKey>,
    received: u64,
    messages: u8,
}

fn payload(conn: u8, tag: i32, nth: u8, size: usize) -> Vec<u8> {
    (0..size).map(|i| (i as u8).wrapping_mul(31) ^ conn.wrapping_mul(77) ^ (tag as u8).wrapping_mul(13) ^ nth).collect()
}

/// Of these sizes none is longer than what a test can bring at once.
fn length(size: u16) -> usize {
    match size >> 12 {
        0..8 => usize::from(size) % 200,
        8..13 => usize::from(size) % 20_000,
        _ => EAGER_MAX as usize - 1 + usize::from(size) % 3,
    }
}

impl World {
    fn new(options: u8) -> World {
        let wire = if options & 1 == 0 { "orangefs" } else { "radix" };
        let vars = [
            ("WEIR_BMI_TCP_WIRE", wire),
            ("WEIR_BMI_PEER_BYTES", "20000"),
            ("WEIR_BMI_BYTES", "50000"),
            ("WEIR_LINGER_MS", "1"),
        ];
        let (mut library, port) = bare::server("tcp", &vars).expect("it listens");
        let context = library.t.ops.open_context().expect("room") as i64;
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.set_nonblocking(true).expect("set");
        World {
            library,
            port,
            context,
            conns: Vec::new(),
            ops: HashMap::new(),
            order: Vec::new(),
            listener,
            dialled: None,
            received: 0,
            messages: 0,
        }
    }

    fn conn(&self, conn: u8) -> Option<usize> {
        (!self.conns.is_empty()).then(|| usize::from(conn) % self.conns.len())
    }

    fn add(&mut self, stream: TcpStream, addr: Option<AddrKey>, radix: bool) {
        stream.set_nonblocking(true).expect("set");
        socket_lingers_not(&stream);
        let number = self.conns.len() as u8;
        self.conns.push(Conn {
            stream,
            addr,
            radix,
            honest: true,
            ahead: VecDeque::new(),
            sent: HashMap::new(),
            unexpected: VecDeque::new(),
            lost: HashMap::new(),
            number,
        });
    }

    fn connect(&mut self, radix: bool) {
        if self.conns.len() == CONNS_MAX {
            return;
        }
        let Ok(stream) = TcpStream::connect(("127.0.0.1", self.port)) else { return };
        let from = stream.local_addr().expect("bound");
        self.library.progress();
        let found = self.library.t.addrs.iter().find(|(_, a)| a.places == [from] && !a.gone).map(|(key, _)| key);
        self.add(stream, found, radix);
    }

    fn queue(&mut self, conn: usize, tag: i32, size: usize, class: Option<u8>) {
        let conn = &mut self.conns[conn];
        let wire = if conn.radix { Wire::Radix } else { Wire::OrangeFs };
        let size = if class.is_some() { size.min(EAGER_MAX as usize) } else { size };
        if conn.ahead.len() > 100_000 {
            return;
        }
        self.messages = self.messages.wrapping_add(1);
        let data = payload(conn.number, tag, self.messages, size);
        let header = Header::of(tag, size as u64, class).encode(wire);
        conn.ahead.extend(&header[..wire.header_len()]);
        conn.ahead.extend(&data);
        match class {
            Some(class) => conn.unexpected.push_back((tag, if conn.radix { class } else { 0 }, data)),
            None => conn.sent.entry(tag).or_default().push_back(data),
        }
    }

    fn post(&mut self, addr: AddrKey, conn: Option<usize>, tag: i32, size: usize, is_recv: bool, class: Option<u8>) {
        if self.ops.len() > 100 {
            return;
        }
        let mut memory = vec![FENCED; size + 2 * FENCE];
        let pieces = [Iov { base: memory[FENCE..].as_mut_ptr(), len: size }];
        let (pieces, unexpected) = (if size > 0 { &pieces[..] } else { &[] }, class);
        let wanted =
            Wanted { addr, tag, unexpected, pieces, size: size as u64, is_recv, user_ptr: 0, context: self.context };
        let op = Op { memory, size, conn, tag, is_recv };
        match self.library.post(&wanted) {
            Ok((Posted::Done(bytes), _)) => self.ended(op, 0, bytes),
            Ok((Posted::Begun, key)) => {
                assert!(self.ops.insert(key, op).is_none(), "an id twice");
                self.order.push(key);
            }
            Err(_) => self.ended(op, 1, 0),
        }
    }

    /// An operation is over: what it received is what was sent.
    fn ended(&mut self, op: Op, error: i32, bytes: u64) {
        let fences = [&op.memory[..FENCE], &op.memory[FENCE + op.size..]];
        assert!(
            fences.iter().all(|fence| fence.iter().all(|b| *b == FENCED)),
            "memory beside a receive was written to"
        );
        let Some(conn) = op.conn.filter(|_| op.is_recv).map(|c| &mut self.conns[c]) else { return };
        if error != 0 {
            assert_eq!(bytes, 0);
            if error == -Code::EMSGSIZE.0 || error == -Code::ECANCEL.0 {
                *conn.lost.entry(op.tag).or_default() += 1;
            }
            return;
        }
        assert!(bytes <= op.size as u64);
        self.received += 1;
        if !conn.honest {
            return;
        }
        let got = &op.memory[FENCE..FENCE + bytes as usize];
        let queue = conn.sent.entry(op.tag).or_default();
        loop {
            let Some(next) = queue.pop_front() else { panic!("a message that nobody sent, or one before its time") };
            if next == got {
                return;
            }
            // One that another receive has taken.
            let lost = conn.lost.entry(op.tag).or_default();
            assert!(*lost > 0, "a message was passed over");
            *lost -= 1;
        }
    }

    fn collect(&mut self) {
        let context = self.context as usize;
        while let Some(end) = self.library.t.ops.collect_any(context) {
            let op = self.ops.remove(&end.key).expect("it was under way, and ends once");
            self.ended(op, end.error, end.size);
        }
    }

    fn collect_unexpected(&mut self, class: u8) {
        let mut next = None;
        while self.library.take_unexpected(class, 1, |_, message| next = Some(*message)) > 0
            && let Some(message) = next.take()
        {
            let got = read_lent(&message);
            if let Some(conn) = self.conns.iter_mut().find(|c| c.addr == Some(message.addr))
                && conn.honest
            {
                let at = conn.unexpected.iter().position(|(_, c, _)| *c == class).expect("somebody sent it");
                let (tag, _, sent) = conn.unexpected.remove(at).expect("it is there");
                assert_eq!((tag, &sent[..]), (message.tag, &got[..]));
            }
            self.received += 1;
            assert!(
                self.library.give_back(message.buffer, Use::Message)
                    && !self.library.give_back(message.buffer, Use::Message)
            );
        }
    }

    fn pump(&mut self) {
        self.library.progress();
        self.collect();
        // Of each peer a request's worth has room, whatever others have filled.
        let most = ALL_BYTES + EAGER_MAX * (CONNS_MAX as u64 + 1);
        assert!(self.library.buffered() <= most, "{} bytes are held", self.library.buffered());
    }

    fn bring(&mut self, conn: usize, bytes: usize) {
        let conn = &mut self.conns[conn];
        let now: Vec<u8> = conn.ahead.iter().copied().take(bytes).collect();
        if let Ok(n) = conn.stream.write(&now) {
            conn.ahead.drain(..n);
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            // Most go on for a while: what ends a connection is rare among steps.
            Step::Any { conn, .. } | Step::Fields { conn, .. } | Step::End { conn, .. } | Step::Drop { conn }
                if conn % 8 != 0 =>
            {
                let Some(conn) = self.conn(*conn) else { return };
                self.bring(conn, usize::from(u16::MAX));
            }
            Step::Connect { radix } => self.connect(*radix),
            Step::Any { conn, bytes } => {
                let Some(conn) = self.conn(*conn) else { return };
                self.conns[conn].honest = false;
                self.conns[conn].ahead.extend(&bytes.0);
            }
            Step::Fields { conn, mode, tag, size } => {
                let Some(conn) = self.conn(*conn) else { return };
                let conn = &mut self.conns[conn];
                conn.honest = false;
                let magic: u32 = if conn.radix { 51912 } else { 51903 };
                conn.ahead.extend(&magic.to_le_bytes());
                conn.ahead.extend(&u32::from([2, 4, 8, *mode][usize::from(mode % 4)]).to_le_bytes());
                conn.ahead.extend(&i64::from(tag % 2).to_le_bytes());
                conn.ahead
                    .extend(&[*size, size % 20_000, EAGER_MAX as i64 + 1][usize::from(mode >> 4) % 3].to_le_bytes());
                if conn.radix {
                    conn.ahead.push_back(*mode);
                }
            }
            Step::Message { conn, tag, size, class } => {
                let Some(conn) = self.conn(*conn) else { return };
                self.queue(conn, i32::from(tag % 2), length(*size), class.map(|c| c % 3));
            }
            Step::Bring { conn, bytes } => {
                let Some(conn) = self.conn(*conn) else { return };
                self.bring(conn, usize::from(*bytes));
            }
            Step::Read { conn, bytes } => {
                let Some(conn) = self.conn(*conn) else { return };
                let mut into = vec![0; usize::from(*bytes)];
                let _ = self.conns[conn].stream.read(&mut into);
            }
            Step::End { conn, reset } => {
                let Some(conn) = self.conn(*conn) else { return };
                let how = if *reset { Shutdown::Both } else { Shutdown::Write };
                let _ = self.conns[conn].stream.shutdown(how);
            }
            Step::Receive { conn, tag, size } => {
                let Some(conn) = self.conn(*conn) else { return };
                let Some(addr) = self.conns[conn].addr else { return };
                // (What a dialled address receives is of whichever connection is up.)
                let books = (Some(addr) != self.dialled).then_some(conn);
                self.post(addr, books, i32::from(tag % 2), length(*size), true, None);
            }
            Step::Send { conn, tag, size, class } => {
                let Some(conn) = self.conn(*conn) else { return };
                let Some(addr) = self.conns[conn].addr else { return };
                let size = if class.is_some() { length(*size).min(EAGER_MAX as usize) } else { length(*size) * 10 };
                self.post(addr, None, i32::from(tag % 2), size, false, class.map(|c| c % 3));
            }
            Step::Cancel { op } => {
                let Some(&key) = self.order.get(usize::from(*op) % self.order.len().max(1)) else { return };
                let _ = self.library.cancel(key, self.context, Code::ECANCEL);
            }
            Step::Drop { conn } => {
                let Some(conn) = self.conn(*conn) else { return };
                if let Some(addr) = self.conns[conn].addr {
                    let _ = bare::drop_addr(&mut self.library, addr);
                    if self.dialled == Some(addr) {
                        self.dialled = None;
                    }
                }
            }
            Step::Collect { class } => self.collect_unexpected(class % 3),
            Step::Dial { tag, size } => {
                let at = format!("tcp://{}", self.listener.local_addr().expect("bound"));
                let Ok(addr) = bare::look_up(&mut self.library, &at) else { return };
                self.dialled = Some(addr);
                self.post(addr, None, i32::from(tag % 2), length(*size), size % 2 == 0, None);
            }
            Step::Accept => {
                if self.conns.len() < CONNS_MAX
                    && let Ok((stream, _)) = self.listener.accept()
                {
                    self.add(stream, self.dialled, false);
                    // What it says is read as the library's own wire has it; nobody vouches for
                    // more.
                    self.conns.last_mut().expect("just added").honest = false;
                }
            }
        }
    }

    /// All go, and nothing is left.
    fn end(mut self) -> u64 {
        for conn in self.conns.iter() {
            let _ = conn.stream.shutdown(Shutdown::Both);
        }
        let dialled = self.dialled.take();
        for addr in self.conns.iter().filter_map(|c| c.addr).chain(dialled) {
            let _ = bare::drop_addr(&mut self.library, addr);
        }
        let mut looks = 0;
        loop {
            self.pump();
            (0..3).for_each(|class| self.collect_unexpected(class));
            let strangers = self.library.t.addrs.iter().filter(|(_, a)| a.url.is_none()).count();
            if self.ops.is_empty() && strangers == 0 && self.library.buffered() == 0 && self.library.t.inbox.is_empty()
            {
                break;
            }
            looks += 1;
            assert!(
                looks < 10_000,
                "{} operations, {strangers} strangers, {} bytes are left",
                self.ops.len(),
                self.library.buffered()
            );
            std::thread::sleep(std::time::Duration::from_micros(if looks < 100 { 0 } else { 300 }));
        }
        self.library.end();
        self.received
    }
}

/// What was received of an unexpected message.
#[expect(unsafe_code, reason = "the interface is C's")]
fn read_lent(message: &bare::Unexpected) -> Vec<u8> {
    // SAFETY: the library lent so many bytes there, until they are given back.
    unsafe { std::slice::from_raw_parts(message.buffer, message.size) }.to_vec()
}

/// Its end leaves no port behind that is waited for.
#[expect(unsafe_code, reason = "the standard library does not say it")]
fn socket_lingers_not(stream: &TcpStream) {
    use std::os::fd::AsRawFd;
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    let len = size_of::<libc::linger>() as libc::socklen_t;
    // SAFETY: an open socket, and a value of this length.
    unsafe { libc::setsockopt(stream.as_raw_fd(), libc::SOL_SOCKET, libc::SO_LINGER, (&raw const linger).cast(), len) };
}

/// Runs an input. How many messages were received.
pub fn run(input: &Input) -> u64 {
    let mut world = World::new(input.options);
    world.connect(input.options & 2 != 0);
    for step in &input.steps.0 {
        world.step(step);
        world.pump();
    }
    world.end()
}
