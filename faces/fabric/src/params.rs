//! The provider's parameters: one table for `fi_info -g weir`, for reading them and for the manual
//! page's test.
//!
//! Each is `FI_WEIR_X` to libfabric and `WEIR_X` to the rest of Weir; the former wins.

use crate::abi::*;
use crate::{host, libraries};
use std::ffi::CString;
use std::sync::LazyLock;
use weir_engine::{EngineConfig, EngineError, SettingNames};

/// Largest injected message, bytes.
pub const MAX_INJECT: usize =
    if weir_engine::MAX_INJECT_BYTES < (16 << 10) { weir_engine::MAX_INJECT_BYTES } else { 16 << 10 };

/// What `weir_version` tells.
pub static VERSION: LazyLock<CString> = LazyLock::new(|| {
    let version = env!("CARGO_PKG_VERSION");
    let text = match option_env!("WEIR_COMMIT") {
        Some(commit) if !commit.is_empty() => format!("{version} ({commit})"),
        _ => version.to_owned(),
    };
    CString::new(text).unwrap_or_default()
});

/// A parameter: its name in lower case without prefix, and what it means.
pub struct Param {
    /// `port` for `FI_WEIR_PORT` and `WEIR_PORT`.
    pub name: &'static str,
    /// One or two sentences.
    pub help: &'static str,
}

const fn param(name: &'static str, help: &'static str) -> Param {
    Param { name, help }
}

/// All of them.
pub const PARAMS: &[Param] = &[
    param(
        "iface",
        "Network interfaces to use, comma-separated names (default: every one that is up; loopback only if there is no other)",
    ),
    param("addr", "Local IP addresses to use, comma-separated (default: those of the interfaces)"),
    param(
        "port",
        "UDP port of the first endpoint, or a range such as 45000-45100 of which each endpoint takes one (default: 0, any free one)",
    ),
    param(
        "level",
        "Protection of packets: integrity (CRC32C), auth (a code per packet), encrypt (default: integrity). A pair of endpoints uses the higher of its two levels",
    ),
    param(
        "congestion",
        "Congestion control: target (receiver grants and a delay target, tolerates random loss) or reno (for comparison) (default: target)",
    ),
    param(
        "stripe",
        "Whether messages that do not fit one packet go by all links to a peer: on, or off where links share a wire (default: on)",
    ),
    param(
        "eager_bytes",
        "Messages up to this size are sent without asking the receiver first, of more than 32 KiB as far as path and receiver have room (default: 131072)",
    ),
    param(
        "copy_bytes",
        "Sends up to this size are copied and complete at once where only reusable memory was asked for, but for those of more than 16 KiB to a peer that has not acknowledged 128 KiB of copies; to hosts a millisecond and more away all that are sent without asking, unless this is 0 (default: 65536)",
    ),
    param(
        "streams",
        "Independent streams per peer, 1 to 64; a lost packet holds up only messages of its stream, and receives for any tag (default: 10)",
    ),
    param("peer_timeout_ms", "A peer silent for this long is dead and its operations fail (default: 5000)"),
    param("connect_timeout_ms", "A peer that is opened to and not heard for this long is given up (default: 10000)"),
    param(
        "send_timeout_ms",
        "A send that has found no memory for this long fails if messages wait that the program does not receive (default: 600000)",
    ),
    param(
        "watchdog_us",
        "A thread takes over progress when packets wait and the application has not polled for this long; 0 turns it off (default: 500)",
    ),
    param("spin_us", "Empty polls spin for this long before they give up the core (default: 100)"),
    param(
        "poll_sleep_us",
        "Where others want the core, reading an empty completion queue may sleep for this long, a quarter of it if several threads read or send, up to 16 times it where a peer has been awaited for long and no other rank, or many more than cores, are on the host; 0: never (default: 200)",
    ),
    param(
        "coalesce_ns",
        "Small messages, and announcements of long ones, to one peer that follow each other within this time share a packet; 0 turns it off (default: 2000)",
    ),
    param(
        "credit_bytes",
        "Bytes of messages nobody has received yet that a peer may have sent ahead; by a bulk TCP connection twice as many (default: 1048576)",
    ),
    param(
        "credit_msgs",
        "Messages nobody has received yet that a peer may have sent ahead; more as long as unexpected_bytes allow (default: 4096)",
    ),
    param(
        "unexpected_bytes",
        "Memory for messages nobody has received yet, all peers together, in bytes; as long as less is used a peer may send more than credit_msgs (default: 67108864)",
    ),
    param(
        "copied_bytes",
        "Memory for copies of what is sent, all peers together, in bytes; beyond it fi_inject has to wait, and gets more when that does not help, up to sixteen times; beyond half of it other sends complete when they are acknowledged (default: 67108864)",
    ),
    param("copied_peer_bytes", "The same for other sends to one peer (default: 16777216)"),
    param("rcvbuf", "Socket receive buffer wanted, bytes; the system may grant less (default: 8388608)"),
    param(
        "carrier",
        "What may carry messages: auto, shm (shared memory also where packets are captured or lost on purpose), network (no shared memory), udp (packets only), tcp (packets, and TCP for large messages always), sctp (SCTP with peers that are set to it too) (default: auto)",
    ),
    param(
        "sctp_control",
        "Where answers stand in the streams of SCTP while a long message is under way: a, b or c, as in spec/sctp.md (default: c)",
    ),
    param("sctp_rto_min_ms", "SCTP's least retransmission timer, 10 to 60000 (default: 1000)"),
    param(
        "bulk",
        "When large payload goes by TCP: auto (where nothing is lost, the round trip is short and the link fast), always or off (default: auto)",
    ),
    param("offload", "Segmentation offload of UDP: on or off (default: on, tested at start)"),
    param(
        "ecn",
        "Send packets as ECN-capable and heed marks of switches whose queues are long: auto (where the kernel's TCP is set to DCTCP, by which who runs the host says that its switches mark), on or off (default: auto)",
    ),
    param(
        "xdp",
        "Packets received past the kernel's UDP, by a ring buffer, or short ones by an AF_XDP socket: off, auto (where weir xdpd gives one) or on (by this process itself where there is no weir xdpd and it has the rights; where neither can be it is said why) (default: auto)",
    ),
    param("xdp_socket", "Where weir xdpd listens (default: /run/weir/xdpd.sock)"),
    param("linger_ms", "Closing an endpoint waits up to this long for unacknowledged messages (default: 5000)"),
    param(
        "stats",
        "File for the counters when an endpoint closes; %p is the process id, - is standard error (default: none)",
    ),
    param("trace", "Trace of requests' lives: 0 off, 1 what goes wrong, 2 every stage, 3 packets too (default: 0)"),
    param(
        "trace_file",
        "File for the trace; %p is the process id, - is standard error; one process alone writes a file (default: standard error)",
    ),
    param(
        "capture",
        "File for a pcapng capture of all packets; what goes by TCP (bulk connections) is not in it; %p is the process id, and one process alone writes a file (default: none)",
    ),
    param("faults", "Faults to inject, for tests, for example loss=1%,dup=0.1% (default: none)"),
    param("inject_size", "Largest message of fi_inject, bytes; not above 16384 (default: 16384)"),
];

/// Declares all parameters to libfabric, and one that nobody sets: libfabric keeps two numbers of a
/// version, and this is where `fi_info -g weir` shows the rest.
pub fn define_all() {
    for p in PARAMS {
        if let (Ok(name), Ok(help)) = (CString::new(p.name), CString::new(p.help)) {
            host::define_param(&name, FI_PARAM_STRING, &help);
        }
    }
    let version = format!("This provider is weir {}; setting it changes nothing", VERSION.to_string_lossy());
    if let Ok(help) = CString::new(version) {
        host::define_param(c"version", FI_PARAM_STRING, &help);
    }
}

/// The value of `WEIR_X`: libfabric's parameter first, then the environment.
pub fn lookup(weir_name: &str) -> Option<String> {
    let short = weir_name.strip_prefix("WEIR_").unwrap_or(weir_name).to_ascii_lowercase();
    let from_libfabric = CString::new(short).ok().and_then(|name| host::text_param(&name));
    from_libfabric
        .or_else(|| std::env::var(format!("FI_{weir_name}")).ok())
        .or_else(|| std::env::var(weir_name).ok())
        .filter(|v| !v.is_empty())
}

/// The engine's settings.
///
/// # Errors
/// The first parameter that cannot be understood.
pub fn engine_config() -> Result<EngineConfig, EngineError> {
    let config = EngineConfig::from_vars(&|name| lookup(name)).map_err(by_its_name)?;
    Ok(libraries::served(config, &|name| std::env::var(name).ok()))
}

/// An error of a setting under the name it was set by.
pub fn by_its_name(error: EngineError) -> EngineError {
    error.with_variable(name_as_set)
}

/// The name by which this process's environment has a setting: libfabric's own, `FI_WEIR_X`, where
/// that is set, else `WEIR_X`.
fn name_as_set(name: &str) -> String {
    let full = format!("FI_{name}");
    if std::env::var_os(&full).is_some() { full } else { name.to_owned() }
}

/// A line of the engine, which knows its own names only, with each setting under the name it was
/// set by.
pub fn as_set(line: &str) -> String {
    let in_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let named = |piece: &str| {
        let name = piece.trim_end_matches(|c| !in_name(c));
        if name.starts_with("WEIR_") { name_as_set(name) + &piece[name.len()..] } else { piece.to_owned() }
    };
    line.split_inclusive(|c| !in_name(c)).map(named).collect()
}

/// What to say of settings in the environment that nobody reads: a misspelt one would otherwise be
/// ignored silently.
pub fn unknown_names() -> Vec<String> {
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    SettingNames { prefix: "FI_", listed_by: "fi_info -g weir or man fi_weir" }.unknown(names)
}

/// Largest injected message, bytes.
pub fn inject_size() -> usize {
    static SIZE: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
    let most = MAX_INJECT;
    *SIZE.get_or_init(|| {
        lookup("WEIR_INJECT_SIZE").and_then(|v| v.trim().parse().ok()).map_or(most, |n: usize| n.clamp(64, most))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manual_page_names_every_parameter() {
        let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/man/fi_weir.7"))
            .expect("manual page");
        for p in PARAMS {
            let name = format!("FI_WEIR_{}", p.name.to_ascii_uppercase());
            assert!(page.contains(&name), "{name} is missing in fi_weir.7");
        }
    }

    #[test]
    fn a_line_names_settings_as_they_were_set() {
        // Nobody sets this one: the environment is the process's.
        assert_eq!(as_set("no answer (WEIR_NOT_SET_MS): more"), "no answer (WEIR_NOT_SET_MS): more");
        assert_eq!(as_set("WEIR_NOT_SET=1, XWEIR_Y"), "WEIR_NOT_SET=1, XWEIR_Y");
    }

    #[test]
    fn every_setting_of_the_engine_is_a_parameter() {
        let asked = std::cell::RefCell::new(Vec::new());
        EngineConfig::from_vars(&|name| {
            asked.borrow_mut().push(name.to_owned());
            None
        })
        .expect("defaults are valid");
        // A setting's name of before is taken from the environment alone.
        for name in asked.into_inner().iter().filter(|name| *name != "WEIR_LANES") {
            let short = name.trim_start_matches("WEIR_").to_ascii_lowercase();
            assert!(PARAMS.iter().any(|p| p.name == short), "{name} is not declared to libfabric");
        }
    }

    /// The first word of the default a text tells.
    fn told(text: &str) -> &str {
        let at = text.to_ascii_lowercase().rfind("default: ").unwrap_or_else(|| panic!("no default in '{text}'"));
        let rest = &text[at + "default: ".len()..];
        rest.split([',', ')', ';', ' ', '\n']).next().map_or("", |w| w.trim_end_matches('.'))
    }

    #[test]
    fn the_defaults_told_are_the_defaults_used() {
        let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/man/fi_weir.7"))
            .expect("manual page");
        let used = format!("{:?}", EngineConfig::from_vars(&|_| None).expect("valid"));
        for p in PARAMS {
            let name = p.name.to_ascii_uppercase();
            let section = page.split(&format!(".TP\n.B FI_WEIR_{name}\n")).nth(1).expect("a section of its own");
            let section = section.split("\n.TP\n").next().and_then(|s| s.split("\n.SH ").next()).expect("text");
            let value = told(p.help);
            assert_eq!(told(section), value, "{name}: the manual page and fi_info tell different defaults");
            match p.name {
                "inject_size" => assert_eq!(value, MAX_INJECT.to_string()),
                // Words for what is not set; that it is not set is in the engine's own defaults.
                "iface" | "addr" | "stats" | "trace_file" | "capture" | "faults" => {
                    assert!(["every", "those", "none", "standard"].contains(&value), "{name}: {value}");
                }
                _ => {
                    let wanted = format!("WEIR_{name}");
                    let set = EngineConfig::from_vars(&|n| (n == wanted).then(|| value.to_owned())).expect("valid");
                    assert_eq!(format!("{set:?}"), used, "{name}: {value} is not what is used");
                }
            }
        }
    }
}
