//! What this transport costs beside the bare system calls, measured in one run.
//!
//! * `udp-raw`: on loopback, the two ends as two threads; and the price of single calls and
//!   options, in one thread.
//! * `udp-raw serve ADDR` and `udp-raw client ADDR`: the two ends as two processes, for example in
//!   two namespaces joined by veth. ADDR is the server's. The server ends with the client.
//!
//! Ping-pong: half a round trip of 8 bytes, both ends polling, plain `sendto`/`recvfrom`, this
//! transport, and this transport without a connected socket by turns; the 10th percentile tells
//! most on a machine that others use too. Bulk: datagrams of 44 bytes of header and 1428 of
//! payload, at most 2 MiB under way; ends sleep when there is nothing to do, and the CPU time is
//! that of the sending and the receiving thread.

use std::io::{self, IoSlice};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};
use weir_udp::{UdpConfig, UdpTransport};

const PLAIN_PORT: u16 = 7700;
const WEIR_PORT: u16 = 7701;
const PLAINER_PORT: u16 = 7702;
const ALONE_PORT: u16 = 7703;
const ROUNDS: usize = 20;
const PINGS: usize = 1000;
const WARM_UP: usize = 50;
const BULK_BYTES: usize = 512 << 20;
const WINDOW_BYTES: usize = 2 << 20;
const HEAD: [u8; 44] = [b'd'; 44];
const PAYLOAD_BYTES: usize = 1428;
const PATIENCE: Duration = Duration::from_secs(2);
/// How long the server waits for a client at all.
const SERVER_PATIENCE: Duration = Duration::from_secs(60);

fn main() -> io::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let parse = |text: &str| {
        text.parse::<IpAddr>().map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, format!("'{text}': {e}")))
    };
    match args.as_slice() {
        [] => {
            let ip = IpAddr::V4(Ipv4Addr::LOCALHOST);
            calls::table()?;
            let server = Ends::bind(ip)?;
            let thread = std::thread::spawn(move || serve(server));
            client(ip, Ends::any(ip)?)?;
            thread.join().map_err(|_| io::Error::other("the server thread panicked"))?
        }
        ["calls"] => calls::table(),
        ["serve", ip] => serve(Ends::bind(parse(ip)?)?),
        ["client", ip] => {
            let ip = parse(ip)?;
            client(ip, Ends::any(ip)?)
        }
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "usage: udp-raw [calls | serve ADDR | client ADDR]")),
    }
}

/// One end: a plain socket, and three of this transport.
struct Ends {
    plain: UdpSocket,
    weir: UdpTransport,
    /// Without segmentation offload.
    plainer: UdpTransport,
    /// Without a second, connected socket.
    alone: UdpTransport,
}

impl Ends {
    fn make([plain, weir, plainer, alone]: [SocketAddr; 4]) -> io::Result<Ends> {
        let plain = UdpSocket::bind(plain)?;
        plain.set_nonblocking(true)?;
        let cfg = |bind| UdpConfig { bind: Some(bind), ..UdpConfig::default() };
        Ok(Ends {
            plain,
            weir: UdpTransport::bind(&cfg(weir))?,
            plainer: UdpTransport::bind(&UdpConfig { offload: false, ..cfg(plainer) })?,
            alone: UdpTransport::bind(&UdpConfig { connected: false, ..cfg(alone) })?,
        })
    }

    fn bind(ip: IpAddr) -> io::Result<Ends> {
        Ends::make([PLAIN_PORT, WEIR_PORT, PLAINER_PORT, ALONE_PORT].map(|port| (ip, port).into()))
    }

    /// The client's: the address that leads to `server`.
    fn any(server: IpAddr) -> io::Result<Ends> {
        let probe = UdpSocket::bind(SocketAddr::new(
            if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { "::".parse().expect("any") },
            0,
        ))?;
        probe.connect((server, PLAIN_PORT))?;
        let own = SocketAddr::new(probe.local_addr()?.ip(), 0);
        Ends::make([own; 4])
    }
}

fn give_up_after(patience: Duration, what: &str) -> impl FnMut() -> io::Result<()> + use<> {
    let mut polls = 0u32;
    let what = what.to_owned();
    let start = Instant::now();
    move || {
        polls += 1;
        if polls.is_multiple_of(65_536) && start.elapsed() > patience {
            return Err(io::Error::new(io::ErrorKind::TimedOut, format!("nothing heard: {what}")));
        }
        Ok(())
    }
}

fn plain_receive(s: &UdpSocket, buf: &mut [u8], patience: Duration) -> io::Result<(usize, SocketAddr)> {
    let mut tick = give_up_after(patience, "plain");
    loop {
        match s.recv_from(buf) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => tick()?,
            other => return other,
        }
    }
}

/// One datagram's first bytes, its length and sender.
struct Got {
    bytes: [u8; 8],
    from: SocketAddr,
}

fn weir_receive(t: &mut UdpTransport, patience: Duration) -> io::Result<Got> {
    let mut got = None;
    let mut tick = give_up_after(patience, "weir");
    while got.is_none() {
        t.recv(1, |info, d| {
            let mut bytes = [0; 8];
            let n = d.len().min(8);
            bytes[..n].copy_from_slice(&d[..n]);
            got = Some(Got { bytes, from: info.remote });
        })?;
        tick()?;
    }
    got.ok_or_else(|| io::Error::other("nothing"))
}

fn weir_send(t: &mut UdpTransport, to: SocketAddr, bytes: &[u8]) -> io::Result<()> {
    t.push(to, None, bytes, &[]);
    t.flush()
}

/// The server follows the client's plan.
fn serve(mut ends: Ends) -> io::Result<()> {
    let mut patience = SERVER_PATIENCE;
    for _ in 0..ROUNDS {
        let mut buf = [0; 64];
        for _ in 0..WARM_UP + PINGS {
            let (n, from) = plain_receive(&ends.plain, &mut buf, patience)?;
            ends.plain.send_to(&buf[..n], from)?;
            patience = PATIENCE;
        }
        for t in [&mut ends.weir, &mut ends.alone] {
            for _ in 0..WARM_UP + PINGS {
                let got = weir_receive(t, patience)?;
                weir_send(t, got.from, &got.bytes)?;
            }
        }
    }
    for t in [&mut ends.weir, &mut ends.plainer] {
        sink(t)?;
    }
    Ok(())
}

/// Takes bulk data, telling the sender after every quarter window how much has come; at the end
/// also the CPU time spent, in us.
fn sink(t: &mut UdpTransport) -> io::Result<()> {
    let (mut received, mut told, mut peer) = (0usize, 0usize, None);
    let start_us = cpu_us();
    let mut tick = give_up_after(SERVER_PATIENCE, "bulk data");
    while received < BULK_BYTES {
        let n = t.recv(16, |info, d| {
            received += d.len();
            peer = Some(info.remote);
        })?;
        if n == 0 {
            t.wait(Some(PATIENCE))?;
        }
        if let Some(to) = peer.filter(|_| received - told >= WINDOW_BYTES / 4) {
            told = received;
            weir_send(t, to, &(received as u64).to_le_bytes())?;
        }
        tick()?;
    }
    let spent = (cpu_us() - start_us) | 1 << 63;
    let to = peer.ok_or_else(|| io::Error::other("no sender"))?;
    weir_send(t, to, &spent.to_le_bytes())
}

fn client(ip: IpAddr, mut ends: Ends) -> io::Result<()> {
    let [plain_to, weir_to, alone_to] = [PLAIN_PORT, WEIR_PORT, ALONE_PORT].map(|port| SocketAddr::new(ip, port));
    let mut buf = [0; 64];
    let (mut plain_ns, mut weir_ns, mut alone_ns) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        ping_rounds(&mut plain_ns, || {
            ends.plain.send_to(b"12345678", plain_to)?;
            plain_receive(&ends.plain, &mut buf, PATIENCE).map(|_| ())
        })?;
        ping_rounds(&mut weir_ns, || {
            weir_send(&mut ends.weir, weir_to, b"12345678")?;
            weir_receive(&mut ends.weir, PATIENCE).map(|_| ())
        })?;
        ping_rounds(&mut alone_ns, || {
            weir_send(&mut ends.alone, alone_to, b"12345678")?;
            weir_receive(&mut ends.alone, PATIENCE).map(|_| ())
        })?;
    }
    for (name, share) in [("10th percentile", 10), ("median", 2)] {
        let [plain, weir, alone] = [&mut plain_ns, &mut weir_ns, &mut alone_ns].map(|ns| quantile(ns, share));
        println!(
            "ping-pong 8 B, half round trip, {name}: plain {plain:.0} ns, weir {weir:.0} ns, without a connected socket {alone:.0} ns"
        );
    }
    bulk("with offload", &mut ends.weir, weir_to)?;
    bulk("without offload", &mut ends.plainer, SocketAddr::new(ip, PLAINER_PORT))
}

/// Appends the half round trips of one round, ns.
fn ping_rounds(out: &mut Vec<f64>, mut ping: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    for _ in 0..WARM_UP {
        ping()?;
    }
    for _ in 0..PINGS {
        let start = Instant::now();
        ping()?;
        out.push(start.elapsed().as_nanos() as f64 / 2.0);
    }
    Ok(())
}

/// The value below which one in `share` lies.
fn quantile(values: &mut [f64], share: usize) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / share]
}

fn bulk(what: &str, t: &mut UdpTransport, to: SocketAddr) -> io::Result<()> {
    let user = vec![7u8; PAYLOAD_BYTES * 1024];
    let (mut sent, mut received, mut peer_us) = (0usize, 0usize, None);
    let before = *t.counters();
    let (start, start_us) = (Instant::now(), cpu_us());
    let mut heard = Instant::now();
    while peer_us.is_none() {
        let mut burst = 0;
        while sent < BULK_BYTES && sent - received < WINDOW_BYTES && burst < 128 && !t.blocked() {
            let at = (sent / (HEAD.len() + PAYLOAD_BYTES)) % 1024 * PAYLOAD_BYTES;
            t.push(to, None, &HEAD, &[IoSlice::new(&user[at..at + PAYLOAD_BYTES])]);
            sent += HEAD.len() + PAYLOAD_BYTES;
            burst += 1;
        }
        t.flush()?;
        let n = t.recv(4, |_, d| {
            let word = d.first_chunk().map_or(0, |b| u64::from_le_bytes(*b));
            if word >> 63 == 1 {
                peer_us = Some(word & !(1 << 63));
            } else {
                received = received.max(word as usize);
            }
        })?;
        if n > 0 {
            heard = Instant::now();
        } else if burst == 0 && !t.wait(Some(PATIENCE))? && heard.elapsed() > PATIENCE {
            println!("bulk {what}: stopped, {} of {sent} bytes lost", sent - received);
            return Ok(());
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    let own_us = cpu_us() - start_us;
    let calls = t.counters().tx_calls - before.tx_calls;
    let per_gib = |us: u64| us as f64 / 1e3 / (sent as f64 / f64::from(1 << 30));
    println!(
        "bulk {what}: {:.1} Gbit/s, {calls} calls for {} datagrams, CPU {:.0} ms/GiB sending, {:.0} ms/GiB receiving",
        sent as f64 * 8e-9 / seconds,
        t.counters().tx_datagrams - before.tx_datagrams,
        per_gib(own_us),
        per_gib(peer_us.unwrap_or(0))
    );
    Ok(())
}

/// CPU time of this thread, us.
fn cpu_us() -> u64 {
    let mut ts = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `ts` is a timespec to fill.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut ts) };
    ts.tv_sec as u64 * 1_000_000 + ts.tv_nsec as u64 / 1000
}

mod calls {
    //! The price of single calls: one thread sends to itself over loopback and reads, so that only
    //! the calls differ.

    use super::{UdpConfig, UdpTransport, quantile, weir_send};
    use std::io;
    use std::mem::zeroed;
    use std::net::{SocketAddr, UdpSocket};
    use std::os::fd::{AsRawFd, RawFd};
    use std::time::Instant;

    /// Short, so that most rounds fit into one time slice.
    const REPEAT: usize = 100;
    const ROUNDS: usize = 400;

    type Case<'a> = (&'a str, Box<dyn FnMut() + 'a>);

    /// Datagrams of the cases whose names begin with it; their times are for one datagram.
    const BURST: usize = 16;
    const BURST_NAME: &str = "burst";

    pub fn table() -> io::Result<()> {
        let make = |options: &[(i32, i32)]| -> io::Result<UdpSocket> {
            let s = UdpSocket::bind("127.0.0.1:0")?;
            s.set_nonblocking(true)?;
            for &(level, name) in options {
                set(&s, level, name)?;
            }
            Ok(s)
        };
        let plain = make(&[])?;
        let plain_addr = plain.local_addr()?;
        let connected = make(&[])?;
        connected.connect(connected.local_addr()?)?;
        let with_gro = make(&[(libc::SOL_UDP, libc::UDP_GRO)])?;
        let with_info = make(&[(libc::IPPROTO_IP, libc::IP_PKTINFO)])?;
        let with_tos = make(&[(libc::IPPROTO_IP, libc::IP_RECVTOS)])?;
        let (with_gro_addr, with_info_addr, with_tos_addr) =
            (with_gro.local_addr()?, with_info.local_addr()?, with_tos.local_addr()?);
        let cfg = UdpConfig { bind: plain.local_addr().ok().map(|a| (a.ip(), 0).into()), ..UdpConfig::default() };
        let mut weir = UdpTransport::bind(&cfg)?;
        let mut idle = UdpTransport::bind(&cfg)?;
        let weir_addr = weir.local_addrs()[0];
        let both = UdpConfig {
            bind: None,
            addrs: vec!["127.0.0.1".parse().expect("ip"), "127.0.0.2".parse().expect("ip")],
            ..cfg.clone()
        };
        let mut multi = UdpTransport::bind(&both)?;
        let multi_addr = multi.local_addrs()[0];
        let mut offloaded = UdpTransport::bind(&cfg)?;
        let mut plainer = UdpTransport::bind(&UdpConfig { offload: false, ..cfg.clone() })?;
        let mut buf = [0; 64];
        let mut buf2 = [0; 64];
        let mut buf3 = [0; 64];
        let cases: Vec<Case<'_>> = vec![
            (
                "sendto + recvfrom",
                Box::new(|| {
                    let _ = plain.send_to(&[1; 72], plain_addr);
                    let _ = plain.recv_from(&mut buf);
                }),
            ),
            (
                "send + recv, connected",
                Box::new(|| {
                    let _ = connected.send(&[1; 72]);
                    let _ = connected.recv(&mut buf2);
                }),
            ),
            ("sendto + recvmsg", Box::new(|| pair(&plain, plain_addr, false, false))),
            ("sendmsg + recvmsg", Box::new(|| pair(&plain, plain_addr, true, false))),
            ("sendmsg + recvmmsg of 1", Box::new(|| pair(&plain, plain_addr, true, true))),
            ("sendto + recvmsg, GRO", Box::new(|| pair(&with_gro, with_gro_addr, false, false))),
            ("sendto + recvmsg, IP_PKTINFO", Box::new(|| pair(&with_info, with_info_addr, false, false))),
            ("sendto + recvmsg, IP_RECVTOS", Box::new(|| pair(&with_tos, with_tos_addr, false, false))),
            (
                "weir push + flush + recv",
                Box::new(|| {
                    let _ = weir_send(&mut weir, weir_addr, &[1; 72]);
                    let _ = weir.recv(1, |_, _| {});
                }),
            ),
            (
                "weir, several local addresses",
                Box::new(|| {
                    let _ = weir_send(&mut multi, multi_addr, &[1; 72]);
                    let _ = multi.recv(1, |_, _| {});
                }),
            ),
            (
                "empty recvfrom",
                Box::new(|| {
                    let _ = plain.recv_from(&mut buf3);
                }),
            ),
            (
                "empty weir recv",
                Box::new(|| {
                    let _ = idle.recv(1, |_, _| {});
                }),
            ),
            (
                "burst: sendto + recvfrom",
                Box::new(|| {
                    for _ in 0..BURST {
                        let _ = plain.send_to(&[1; 72], plain_addr);
                    }
                    let mut buf = [0; 80];
                    while plain.recv_from(&mut buf).is_ok() {}
                }),
            ),
            ("burst: weir", Box::new(|| burst(&mut offloaded))),
            ("burst: weir without offload", Box::new(|| burst(&mut plainer))),
        ];
        run(cases);
        Ok(())
    }

    fn burst(t: &mut UdpTransport) {
        let to = t.local_addrs()[0];
        for _ in 0..BURST {
            t.push(to, None, &[1; 72], &[]);
        }
        let _ = t.flush();
        while t.recv(4, |_, _| {}).is_ok_and(|n| n > 0) {}
    }

    fn run(mut cases: Vec<Case<'_>>) {
        let mut times = vec![Vec::new(); cases.len()];
        for _ in 0..ROUNDS {
            for ((name, case), times) in cases.iter_mut().zip(&mut times) {
                let each = if name.starts_with(BURST_NAME) { BURST } else { 1 };
                let start = Instant::now();
                (0..REPEAT).for_each(|_| case());
                times.push(start.elapsed().as_nanos() as f64 / (REPEAT * each) as f64);
            }
        }
        for ((name, _), times) in cases.iter().zip(&mut times) {
            println!("{name:32} {:6.0} ns (median {:.0})", quantile(times, 10), quantile(times, 2));
        }
    }

    fn set(s: &UdpSocket, level: i32, name: i32) -> io::Result<()> {
        let one: i32 = 1;
        // SAFETY: the pointer and length describe `one`.
        match unsafe { libc::setsockopt(s.as_raw_fd(), level, name, (&raw const one).cast(), 4) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn pair(s: &UdpSocket, own: SocketAddr, sendmsg: bool, many: bool) {
        let SocketAddr::V4(own) = own else {
            return;
        };
        let mut to = libc::sockaddr_in {
            sin_family: libc::AF_INET as u16,
            sin_port: own.port().to_be(),
            sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(own.ip().octets()) },
            sin_zero: [0; 8],
        };
        send_one(s.as_raw_fd(), &mut to, sendmsg);
        receive_one(s.as_raw_fd(), many);
    }

    fn send_one(fd: RawFd, to: &mut libc::sockaddr_in, sendmsg: bool) {
        let data = [1u8; 72];
        let name_len = size_of::<libc::sockaddr_in>() as u32;
        let mut iov = libc::iovec { iov_base: data.as_ptr().cast_mut().cast(), iov_len: 72 };
        // SAFETY: all pointers lead to locals that outlive the calls; zero is valid for msghdr.
        unsafe {
            if sendmsg {
                let mut h: libc::msghdr = zeroed();
                (h.msg_name, h.msg_namelen) = ((&raw mut *to).cast(), name_len);
                (h.msg_iov, h.msg_iovlen) = (&raw mut iov, 1);
                libc::sendmsg(fd, &raw const h, 0);
            } else {
                libc::sendto(fd, data.as_ptr().cast(), 72, 0, (&raw const *to).cast(), name_len);
            }
        }
    }

    fn receive_one(fd: RawFd, many: bool) {
        let mut data = [0u8; 128];
        let mut control = [0u64; 16];
        let mut name = [0u8; 28];
        let mut iov = libc::iovec { iov_base: data.as_mut_ptr().cast(), iov_len: 128 };
        // SAFETY: all pointers lead to locals that outlive the calls; zero is valid for mmsghdr.
        unsafe {
            let mut h: [libc::mmsghdr; 2] = zeroed();
            h[0].msg_hdr.msg_name = name.as_mut_ptr().cast();
            h[0].msg_hdr.msg_namelen = 28;
            (h[0].msg_hdr.msg_iov, h[0].msg_hdr.msg_iovlen) = (&raw mut iov, 1);
            h[0].msg_hdr.msg_control = control.as_mut_ptr().cast();
            h[0].msg_hdr.msg_controllen = size_of_val(&control) as _;
            if many {
                h[1] = h[0];
                libc::recvmmsg(fd, h.as_mut_ptr(), 2, libc::MSG_DONTWAIT as _, std::ptr::null_mut());
            } else {
                libc::recvmsg(fd, &raw mut h[0].msg_hdr, libc::MSG_DONTWAIT as _);
            }
        }
    }
}
