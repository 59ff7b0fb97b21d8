//! The server of `conformance.c` on `bmi_tcp`, and bytes for it that no library of ours has
//! written.

use super::{KEY, LIMIT, build};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

/// The server of `conformance.c`.
pub struct Server {
    child: Child,
    pub port: u16,
    radix: bool,
}

impl Server {
    /// With these variables.
    pub fn start(radix: bool, vars: &[(&str, &str)]) -> Server {
        let program = build("conformance", &[]);
        Server::run(radix, vars, Command::new(program))
    }

    /// The same, with so many descriptors at most.
    pub fn with_descriptors(most: usize) -> Server {
        let program = build("conformance", &[]);
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("ulimit -n {most}; exec \"$0\" \"$@\"")]).arg(program);
        Server::run(false, &[], shell)
    }

    fn run(radix: bool, vars: &[(&str, &str)], mut command: Command) -> Server {
        let mut child = command
            .args(["--serve", "tcp://127.0.0.1:0", "bmi_tcp"])
            .env("WEIR_KEY", KEY)
            // T1: whatever it would dial with itself, it is told by whoever comes.
            .env("WEIR_BMI_TCP_WIRE", if radix { "orangefs" } else { "radix" })
            .envs(vars.iter().copied())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("started");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("it says where it is");
        let port = line.trim().strip_prefix("ready ").and_then(|p| p.parse().ok()).expect("a port");
        Server { child, port, radix }
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).expect("it listens");
        stream.set_read_timeout(Some(LIMIT)).expect("set");
        stream
    }

    /// A header, written here by hand.
    pub fn header(&self, mode: u32, tag: i64, size: i64) -> Vec<u8> {
        let mut h = if self.radix { 51912u32 } else { 51903 }.to_le_bytes().to_vec();
        h.extend(mode.to_le_bytes());
        h.extend(tag.to_le_bytes());
        if self.radix {
            // Of the tag 32 bits; then the hash of an address.
            h.truncate(12);
            h.extend(0x1234_5678u32.to_le_bytes());
        }
        h.extend(size.to_le_bytes());
        h.extend(self.radix.then_some(0));
        h
    }

    /// A request of `conformance.c`: its command, tag, count and size.
    pub fn request(&self, command: i32, tag: i32, count: i32, size: i64) -> Vec<u8> {
        let mut all = self.header(2, tag.into(), 24);
        for word in [command, tag, count, 0] {
            all.extend(word.to_le_bytes());
        }
        all.extend(size.to_le_bytes());
        all
    }

    /// Asks for two messages, and reads them off the wire.
    pub fn answers(&self, stream: &mut TcpStream) {
        const SEND: i32 = 2;
        for size in [100i64, 20_000] {
            stream.write_all(&self.request(SEND, -3, 2, size)).expect("sent");
            for seed in 0..2 {
                let mut header = vec![0; if self.radix { 25 } else { 24 }];
                stream.read_exact(&mut header).expect("a header");
                let mut expected = self.header(if size > 16384 { 8 } else { 4 }, -3, size);
                if self.radix {
                    expected[12..16].fill(0);
                }
                assert_eq!(header, expected);
                let mut payload = vec![0; size as usize];
                stream.read_exact(&mut payload).expect("a payload");
                assert!((0..size).all(|i| payload[i as usize] == (i * 7 + (i >> 9) + seed) as u8));
            }
        }
    }

    /// Memory, bytes.
    pub fn memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("it lives");
        let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).expect("a line");
        line.trim().trim_end_matches("kB").trim().parse::<u64>().expect("a number") << 10
    }

    pub fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).expect("it lives").count()
    }

    /// What it has said, after its end.
    pub fn said(mut self) -> String {
        let _ = self.child.kill();
        let mut said = String::new();
        self.child.stderr.take().expect("piped").read_to_string(&mut said).expect("text");
        said
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits for the other side to close.
pub fn is_closed(stream: &mut TcpStream) {
    let mut rest = [0; 64];
    match stream.read(&mut rest) {
        Ok(0) => {}
        Err(e) if e.kind() == ErrorKind::ConnectionReset => {}
        other => panic!("it is not closed: {other:?}"),
    }
}
