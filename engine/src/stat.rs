//! The counters as a JSON document: for `weir stat` (served on an abstract Unix socket), and dumped
//! when an endpoint closes.

use crate::core::Core;
use crate::diagnostics::{Diagnostic, Diagnostics};
use crate::files::own_file;
use crate::{Shared, live};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use weir_net::Datagrams;

/// The numbers of one endpoint, copied while its lock is held; what becomes of them is nobody's
/// wait.
pub struct Numbers {
    own_name: [u8; 48],
    local: Vec<std::net::SocketAddr>,
    engine: crate::EngineCounters,
    matcher: weir_match::Stats,
    protocol: weir_link::Counters,
    transport: weir_udp::UdpCounters,
    xdp: Option<(weir_xdp::XdpCounters, crate::xdp::Place)>,
    faults_injected: u64,
    peers: Vec<(u32, weir_link::PeerStats, weir_message::Streams, (&'static str, String))>,
    shm: Option<weir_shm::ShmCounters>,
    sctp: Option<crate::sctp::SctpCounters>,
    no_tcp_to: Vec<std::net::SocketAddr>,
}

/// Addresses shown that do not answer TCP, at most; a job that has more of them has said enough.
const NO_TCP_MAX: usize = 64;

/// All counters of one endpoint.
pub fn numbers(core: &Core) -> Numbers {
    let st = &core.st;
    let messages = &st.messages;
    Numbers {
        own_name: messages.own_name(),
        local: core.device.local_addrs().to_vec(),
        engine: crate::EngineCounters { messages: messages.counters().clone(), engine: st.counters },
        matcher: messages.matcher_stats(),
        protocol: st.proto().counters().clone(),
        transport: *core.device.device().device().device().counters(),
        xdp: crate::xdp::told(&core.device),
        faults_injected: core.device.faults_injected(),
        peers: st
            .proto()
            .peers()
            .map(|p| (p.0, st.proto().peer_stats(p), messages.streams(p.0), crate::policy::told(core, p.0)))
            .collect(),
        shm: core.shm.as_ref().map(|shm| *shm.counters()),
        sctp: core.sctp.as_ref().map(|sctp| *sctp.counters()),
        no_tcp_to: st.no_tcp_to().take(NO_TCP_MAX).collect(),
    }
}

impl Numbers {
    /// As one document. Which of its numbers only grow, so that `weir stat --every` may subtract
    /// them, stands in `tools/cli/src/change.rs`.
    pub fn document(&self) -> serde_json::Value {
        let m = &self.matcher;
        let peers: Vec<_> = self
            .peers
            .iter()
            .map(|(peer, stats, streams, (carrier, why))| {
                let mut v = serde_json::to_value(stats).unwrap_or_default();
                if let Some(o) = v.as_object_mut() {
                    o.insert("peer".into(), (*peer).into());
                    o.insert("carrier".into(), (*carrier).into());
                    o.insert("carrier_why".into(), why.clone().into());
                    // Under their numbers, so that the difference of two documents is that of the
                    // same streams.
                    let streams: std::collections::BTreeMap<String, _> =
                        streams.used().map(|(i, s)| (i.to_string(), *s)).collect();
                    o.insert("streams".into(), serde_json::to_value(streams).unwrap_or_default());
                }
                v
            })
            .collect();
        let mut transport = serde_json::to_value(self.transport).unwrap_or_default();
        transport["faults_injected"] = self.faults_injected.into();
        let xdp = self.xdp.as_ref().map(|(counters, place)| {
            let mut v = serde_json::to_value(counters).unwrap_or_default();
            v["place"] = serde_json::to_value(place).unwrap_or_default();
            v
        });
        serde_json::json!({
            "pid": std::process::id(),
            "endpoint": self.own_name.iter().skip(8).take(8).rev().map(|b| format!("{b:02x}")).collect::<String>(),
            "local": self.local.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "engine": self.engine,
            "processor": crate::processor::of_this_process(),
            "queue_statistics": {
                "expected_short": m.queue_statistics.expected_short, "expected_long": m.queue_statistics.expected_long,
                "unexpected_short": m.queue_statistics.unexpected_short, "unexpected_long": m.queue_statistics.unexpected_long,
                "posted": m.posted, "unexpected": m.unexpected, "behind_gap": m.behind_gap,
            },
            "protocol": self.protocol,
            "transport": transport,
            "xdp": xdp,
            "shared_memory": self.shm,
            "sctp": self.sctp,
            "peers": peers,
            "no_tcp_to": self.no_tcp_to.iter().map(ToString::to_string).collect::<Vec<_>>(),
        })
    }
}

/// Writes the counters where the user asked for them.
pub fn dump(core: &Core, to: &str, diagnostics: &Diagnostics) {
    let text = format!("{:#}\n", numbers(core).document());
    if to == "-" {
        return diagnostics(&Diagnostic::Counters(&text));
    }
    let file = own_file("WEIR_STATS", to);
    if let Err(e) = std::fs::write(&file, text) {
        diagnostics(&Diagnostic::Notice(&format!("counters not written to {file}: {e}")));
    }
}

/// What is told of an endpoint that a panic left half changed.
pub fn broken() -> serde_json::Value {
    serde_json::json!({ "out_of_order": true })
}

/// Makes an endpoint's counters readable by `weir stat PID`, for as long as it lives.
pub fn publish(shared: Weak<Shared>) {
    /// The process that has a server: a child made by fork(2) has none of its parent's threads.
    static SERVED: AtomicU32 = AtomicU32::new(0);
    live::add(shared);
    let pid = std::process::id();
    if SERVED.swap(pid, Ordering::Relaxed) == pid {
        return;
    }
    // Without the socket (name taken by a process of the same id in another namespace, say) there
    // is just no live view.
    let address = SocketAddr::from_abstract_name(format!("weir-stat-{pid}"));
    if let Ok(listener) = address.and_then(|a| UnixListener::bind_addr(&a)) {
        let _ = std::thread::Builder::new().name("weir-stat".into()).spawn(move || serve(&listener));
    }
}

fn serve(listener: &UnixListener) {
    // SAFETY: takes nothing and cannot fail.
    let own = unsafe { libc::geteuid() };
    // This thread is none of the program's.
    crate::watchdog::block_signals();
    for stream in listener.incoming() {
        let Ok(mut stream) = stream else { continue };
        // An abstract address has no owner and no mode: anybody on the machine can connect.
        if !peer_uid(&stream).is_some_and(|uid| may_read(uid, own)) {
            continue;
        }
        let document = |s: &Arc<Shared>| {
            let numbers = s.enter().map(|core| numbers(&core));
            numbers.map_or_else(|_| broken(), |numbers| numbers.document())
        };
        // A panic here is one with an endpoint locked, which is told of and answers no more; the
        // next question finds that.
        let endpoints = catch_unwind(AssertUnwindSafe(|| live::all().iter().map(document).collect::<Vec<_>>()));
        let endpoints = endpoints.unwrap_or_else(|payload| {
            crate::broken::tell_panic(&*payload);
            Vec::new()
        });
        let text = serde_json::json!({ "pid": std::process::id(), "version": env!("CARGO_PKG_VERSION"), "endpoints": endpoints }).to_string();
        let _ = stream.set_write_timeout(Some(std::time::Duration::from_secs(1)));
        let _ = stream.write_all(text.as_bytes());
    }
}

/// Whether a user may see the counters, which name peers and addresses: their owner, and the
/// superuser.
fn may_read(uid: u32, own: u32) -> bool {
    uid == own || uid == 0
}

/// Who is at the other end; the kernel noted it at connect(2).
fn peer_uid(stream: &UnixStream) -> Option<u32> {
    let mut who = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of_val(&who) as libc::socklen_t;
    // SAFETY: the pointers describe `who` and `len`, which live through the call.
    let r = unsafe {
        libc::getsockopt(stream.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, (&raw mut who).cast(), &raw mut len)
    };
    (r == 0 && len as usize == size_of_val(&who)).then_some(who.uid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    fn ask() -> String {
        let address = SocketAddr::from_abstract_name(format!("weir-stat-{}", std::process::id())).expect("name");
        let mut stream = UnixStream::connect_addr(&address).expect("served");
        let mut text = String::new();
        // Who is refused may meet a reset.
        let _ = stream.read_to_string(&mut text);
        text
    }

    /// The signals a thread of this process has blocked, as the kernel shows them.
    fn blocked_of(thread: &str) -> u64 {
        for task in std::fs::read_dir("/proc/self/task").expect("proc").flatten() {
            let read = |name| std::fs::read_to_string(task.path().join(name)).unwrap_or_default();
            if read("comm").trim() == thread {
                let status = read("status");
                let line = status.lines().find_map(|l| l.strip_prefix("SigBlk:")).expect("line");
                return u64::from_str_radix(line.trim(), 16).expect("mask");
            }
        }
        panic!("no thread {thread}");
    }

    #[test]
    fn the_live_view_takes_no_signal_and_answers_its_owner() {
        let config = crate::EngineConfig {
            addrs: vec!["127.0.0.1".parse().expect("address")],
            ..crate::EngineConfig::packets()
        };
        let ep = crate::Endpoint::open_with_key(config, [3; 32]).expect("open");
        let text = ask();
        assert!(text.contains("\"endpoints\":[{") && text.contains("127.0.0.1"), "{text}");
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGUSR1, libc::SIGALRM] {
            assert!(blocked_of("weir-stat") >> (signal - 1) & 1 == 1, "signal {signal} could be delivered there");
        }
        drop(ep);
    }

    #[test]
    fn only_the_owner_and_the_superuser_may_read() {
        assert!(may_read(1000, 1000) && may_read(0, 1000) && may_read(0, 0));
        assert!(!may_read(1001, 1000) && !may_read(1000, 0));
        let (a, _b) = UnixStream::pair().expect("pair");
        // SAFETY: takes nothing and cannot fail.
        assert_eq!(peer_uid(&a), Some(unsafe { libc::geteuid() }));
    }
}
