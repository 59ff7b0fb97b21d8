//! The counters as a JSON document: for `weir stat` (served on an abstract Unix socket), and dumped when an endpoint closes.

use crate::Shared;
use crate::core::Core;
use crate::trace::with_pid;
use std::io::Write;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::{Mutex, OnceLock, Weak};

/// All counters of one endpoint.
pub fn document(core: &Core) -> serde_json::Value {
    let st = &core.st;
    let census = st.matcher.stats();
    let peers: Vec<_> = st
        .proto
        .peers()
        .map(|p| {
            let mut v = serde_json::to_value(st.proto.peer_stats(p)).unwrap_or_default();
            if let Some(o) = v.as_object_mut() {
                o.insert("peer".into(), p.0.into());
            }
            v
        })
        .collect();
    serde_json::json!({
        "endpoint": st.own_name.iter().skip(8).take(8).rev().map(|b| format!("{b:02x}")).collect::<String>(),
        "local": core.udp.local_addrs().iter().map(ToString::to_string).collect::<Vec<_>>(),
        "engine": st.counters,
        "census": {
            "expected_short": census.census.expected_short, "expected_long": census.census.expected_long,
            "unexpected_short": census.census.unexpected_short, "unexpected_long": census.census.unexpected_long,
            "posted": census.posted, "unexpected": census.unexpected, "behind_gap": census.behind_gap,
        },
        "protocol": st.proto.counters(),
        "transport": core.udp.counters(),
        "peers": peers,
    })
}

/// Writes the counters where the user asked for them.
pub fn dump(core: &Core, to: &str) {
    let text = format!("{:#}\n", document(core));
    let result =
        if to == "-" { std::io::stderr().write_all(text.as_bytes()) } else { std::fs::write(with_pid(to), text) };
    if let Err(e) = result {
        // Not `eprintln`, which panics when nobody reads standard error any more.
        let _ = writeln!(std::io::stderr(), "weir: counters not written to {to}: {e}");
    }
}

type Live = Mutex<Vec<Weak<Shared>>>;

/// Makes an endpoint's counters readable by `weir stat PID`, for as long as it lives.
pub fn publish(shared: Weak<Shared>) {
    static LIVE: OnceLock<Live> = OnceLock::new();
    static SERVER: OnceLock<()> = OnceLock::new();
    let live = LIVE.get_or_init(Live::default);
    lock(live).push(shared);
    SERVER.get_or_init(|| {
        // Without the socket (name taken by a process of the same id in another namespace, say) there is just no live view.
        let address = SocketAddr::from_abstract_name(format!("weir-stat-{}", std::process::id()));
        if let Ok(listener) = address.and_then(|a| UnixListener::bind_addr(&a)) {
            let _ = std::thread::Builder::new().name("weir-stat".into()).spawn(move || serve(&listener, live));
        }
    });
}

fn lock(live: &Live) -> std::sync::MutexGuard<'_, Vec<Weak<Shared>>> {
    live.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn serve(listener: &UnixListener, live: &Live) {
    for stream in listener.incoming() {
        let Ok(mut stream) = stream else { continue };
        let endpoints: Vec<_> = {
            let mut live = lock(live);
            live.retain(|w| w.strong_count() > 0);
            live.iter().filter_map(Weak::upgrade).map(|s| document(&s.core.lock())).collect()
        };
        let text = serde_json::json!({ "pid": std::process::id(), "version": env!("CARGO_PKG_VERSION"), "endpoints": endpoints }).to_string();
        let _ = stream.set_write_timeout(Some(std::time::Duration::from_secs(1)));
        let _ = stream.write_all(text.as_bytes());
    }
}
