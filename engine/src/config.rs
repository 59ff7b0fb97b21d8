//! What can be set on an endpoint, from the environment or by a face, each with its default and
//! reason.

use crate::api::EngineError;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;
use weir_message::{MultiOrder, StreamBits};

/// How packets are protected.
pub use weir_link::Level;

/// Which carriers may be used (`policy.rs` says which is, for tests and for who doubts it).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CarrierUse {
    /// Whatever is best.
    Auto,
    /// Shared memory with peers of this host, also where packets are captured or lost on purpose;
    /// packets for others.
    Shm,
    /// Packets, and TCP where it pays; no shared memory.
    Network,
    /// Packets only.
    Udp,
    /// Packets, and TCP for what is long whatever the network is like; no shared memory.
    Tcp,
    /// SCTP with peers that are set to it too, packets with others; no shared memory and no TCP.
    Sctp,
}

/// Where control may stand in the streams of SCTP while something long is under way (spec/sctp.md
/// 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SctpControl {
    /// Nowhere: what is long goes to its end first.
    A,
    /// In the streams of data, but for those on which something long is under way.
    B,
    /// In a stream of its own.
    C,
}

/// When large payload goes by TCP connections (spec/bulk.md 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BulkUse {
    /// Never.
    Off,
    /// Where nothing is lost, the round trip is short and the link fast.
    Auto,
    /// Wherever a connection can be made, for measurements and tests.
    Always,
}

/// Whether packets come past the kernel's UDP, by a BPF ring buffer or AF_XDP, beside the UDP
/// socket (spec/xdp.md).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XdpUse {
    /// Never.
    Off,
    /// Where a helper (`weir xdpd`) gives a socket; nothing is said where none does.
    Auto,
    /// By the helper, or by this process where it has the rights and there is no helper; where
    /// neither can be, it is said why.
    On,
}

/// Whether packets are sent as ECN-capable, and marks of switches heeded (spec/protocol.md 6.7). To
/// hear of marks costs 2 to 3 % of a small message, and gains nothing where no switch marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EcnUse {
    /// Never.
    Off,
    /// Where the kernel's TCP is set to DCTCP: then who runs this host says that its switches mark.
    Auto,
    /// Always.
    On,
}

impl EcnUse {
    /// Whether it is to be used on this host.
    #[must_use]
    pub fn is_on(self) -> bool {
        let is_dctcp =
            || std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control").is_ok_and(|s| s.trim() == "dctcp");
        self == EcnUse::On || self == EcnUse::Auto && is_dctcp()
    }
}

/// Settings of one endpoint. `Default` is what suits a process of a parallel job on a cluster.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// Local addresses to offer; empty: every usable interface (`WEIR_ADDR`, comma-separated).
    pub addrs: Vec<IpAddr>,
    /// Interfaces to use, by name; empty: all usable (`WEIR_IFACE`, comma-separated).
    pub ifaces: Vec<String>,
    /// Bind exactly this address (a face's own parameter; overrides the two lists and the port).
    pub bind: Option<SocketAddr>,
    /// UDP port; 0: any free one (`WEIR_PORT`).
    pub port: u16,
    /// How many ports from that one on may be taken: the first that is free is
    /// (`WEIR_PORT=45000-45100`).
    pub port_span: u16,
    /// Protection of packets (`WEIR_LEVEL`: integrity, auth, encrypt). A connection gets the higher
    /// of the two sides' levels.
    pub level: Level,
    /// Congestion control (`WEIR_CONGESTION`: target, reno).
    pub congestion: weir_link::CongestionKind,
    /// Long messages go by all links to a peer (`WEIR_STRIPE`: on, off). Off is for links that
    /// share a wire somewhere: they would take a share of it each.
    pub stripe: bool,
    /// Messages up to this size are sent without asking (`WEIR_EAGER_BYTES`), of more than 32 KiB
    /// as far as path and receiver have room (`spec/protocol.md` 5, "Unasked"): a copy of an
    /// unexpected message of this size costs about what the extra round trip of 12 us would.
    pub eager_bytes: u32,
    /// Sends up to this size are copied and complete at once when the face asks only for reusable
    /// memory (`WEIR_COPY_BYTES`), of long ones in a row the first; to peers a millisecond and more
    /// away all that go unasked, unless it is 0.
    pub copy_bytes: usize,
    /// Streams per peer, 1 to 64 (`WEIR_STREAMS`; the seed's default is 10).
    pub streams: u16,
    /// What of a tag decides over its stream: given by the face, the same in all endpoints of a
    /// job.
    pub stream_bits: StreamBits,
    /// In which order messages of a peer that went into multi-receives are reported: given by the
    /// face.
    pub multi_order: MultiOrder,
    /// Whether the face is told of peers ([`crate::Endpoint::peer_events`]), and how many may be
    /// known at a time that it never inserted; beyond that they are turned away. With none, nothing
    /// is told, and completions do not name who was not inserted. Given by the face.
    pub strangers_max: Option<usize>,
    /// Whether messages that arrive and that no receive takes wake who sleeps on
    /// [`crate::Endpoint::notify_fd`], until somebody looks for them ([`crate::Endpoint::peek`]):
    /// for a face that posts no receives for requests. Given by the face.
    pub tell_unasked: bool,
    /// Whether the sockets take what comes to any address of the host, though only those above are
    /// offered to peers: for a server that is reached by host name. Given by the face.
    pub everywhere: bool,
    /// Processes of the job on this host, if the face knows: with more of them than cores, waiting
    /// gives the core away from the first on.
    pub processes_here: Option<usize>,
    /// A silent peer is dead after this time (`WEIR_PEER_TIMEOUT_MS`).
    pub peer_timeout: Duration,
    /// Whether a peer that did not leave in good order may be inserted again once it was forgotten.
    /// To a job it is dead for good; a server that was cut off for a while is not. Given by the
    /// face.
    pub dead_may_return: bool,
    /// Least time between the questions to a peer of which the network says that its program is
    /// gone; the third one that is not answered ends it. Given by the face.
    pub doubt_interval: Duration,
    /// A peer that is opened to and not heard for this long is given up
    /// (`WEIR_CONNECT_TIMEOUT_MS`). What the endpoint itself was late by does not count.
    pub connect_timeout: Duration,
    /// A send that has found no memory for this long, while messages wait that the program does not
    /// receive, fails (`WEIR_SEND_TIMEOUT_MS`). 10 min: longer than a receiver that lives usually
    /// computes or writes between two receives.
    pub send_timeout: Duration,
    /// The watchdog steps in when nobody has polled for this long and something waits; 0 turns it
    /// off (`WEIR_WATCHDOG_US`). 500 us: longer than a library takes between two polls to send or
    /// take a megabyte; sooner, the thread competes for a core with a program that is
    /// communicating.
    pub watchdog_us: u32,
    /// Empty polls spin for this long before they yield the core (`WEIR_SPIN_US`). 100 us: the
    /// round trip of 64 KiB; on a node where others wait for cores each yield may cost a time
    /// slice.
    pub spin_us: u32,
    /// Where others want the core, a poll that has found nothing for a while may sleep on the
    /// sockets for this long, or a quarter of it where several threads poll or send; where others
    /// compute and a peer has been awaited for four times that, for up to as many times as long as
    /// processes share a core, or 16 times if this is the host's only one (`WEIR_POLL_SLEEP_US`).
    /// The host's only one sleeps for half of the wait, too, where others had its core for a
    /// quarter of that, and at once in the next 15 waits.
    /// 0: a poll never sleeps. That is the default of the engine: a face whose callers poll in a
    /// loop and have nothing else to do sets more, as [`EngineConfig::from_vars`] does (200).
    pub poll_sleep_us: u32,
    /// Short messages, and announcements of long ones, to one peer that follow each other within
    /// this time share packets and system calls (`WEIR_COALESCE_NS`; 0: every send leaves at once).
    pub coalesce_ns: u32,
    /// Unexpected data a peer may have sent ahead, bytes (`WEIR_CREDIT_BYTES`).
    pub credit_bytes: u64,
    /// So much more by a bulk TCP connection; none: as much again.
    pub bulk_credit_bytes: Option<u64>,
    /// Longest delay of an acknowledgement that could go with an answer of the program's
    /// (spec/protocol.md P-4.4). The peer waits as much longer until it takes a packet for lost.
    pub ack_delay: Duration,
    /// Unexpected messages a peer may have sent ahead (`WEIR_CREDIT_MSGS`).
    pub credit_msgs: u32,
    /// Memory for messages nobody has asked for, all peers together, bytes
    /// (`WEIR_UNEXPECTED_BYTES`). While less is held, a peer may send beyond `credit_msgs`; every
    /// message counts, also an empty one. 64 MiB: a quarter of a million messages.
    pub unexpected_bytes: u64,
    /// Copies of payloads for all peers, bytes (`WEIR_COPIED_BYTES`). Beyond it what must be copied
    /// (injected) is refused, until it has had to wait for too long; beyond half of it other small
    /// sends are not copied, and complete when they are acknowledged.
    pub copied_bytes: u64,
    /// Copies for one peer that could be done without, bytes (`WEIR_COPIED_PEER_BYTES`). 16 MiB:
    /// more than is under way on any path.
    pub copied_peer_bytes: u64,
    /// Socket receive buffer wanted, bytes (`WEIR_RCVBUF`).
    pub rcvbuf_bytes: usize,
    /// Which carriers may be used (`WEIR_CARRIER`: auto, shm, network, udp, tcp, sctp).
    pub carrier: CarrierUse,
    /// Where control stands in SCTP's streams (`WEIR_SCTP_CONTROL`: a, b, c).
    pub sctp_control: SctpControl,
    /// SCTP's least retransmission timer, ms (`WEIR_SCTP_RTO_MIN_MS`). 1000: RFC 9260.
    pub sctp_rto_min_ms: u32,
    /// When large payload goes by TCP connections (`WEIR_BULK`: auto, always, off).
    pub bulk_connections: BulkUse,
    /// Segmentation offload (`WEIR_OFFLOAD`: on, off).
    pub offload: bool,
    /// Whether marks of switches are asked for and heeded (`WEIR_ECN`: auto, on, off).
    pub ecn: EcnUse,
    /// Whether packets come past the kernel's UDP (`WEIR_XDP`: off, auto, on). Auto: who runs the
    /// host decides, by starting the helper.
    pub xdp: XdpUse,
    /// Where the helper (`weir xdpd`) listens (`WEIR_XDP_SOCKET`).
    pub xdp_socket: PathBuf,
    /// Closing waits this long for unacknowledged data (`WEIR_LINGER_MS`).
    pub linger: Duration,
    /// Write the counters there when the endpoint closes (`WEIR_STATS`; `%p` becomes the process
    /// id, `-` is standard error).
    pub stats: Option<String>,
    /// Trace of requests' lives: 0 off, 1 what goes wrong, 2 every stage, 3 packets too
    /// (`WEIR_TRACE`, to `WEIR_TRACE_FILE` or standard error).
    pub trace: u8,
    /// Where the trace goes; `%p` becomes the process id, `-` is standard error.
    pub trace_file: Option<PathBuf>,
    /// Capture of all packets, but not of what goes by bulk connections, pcapng (`WEIR_CAPTURE`;
    /// `%p` becomes the process id).
    pub capture: Option<String>,
    /// Faults injected for tests (`WEIR_FAULTS`, for example `loss=1%,dup=0.1%`).
    pub faults: Option<String>,
}

impl Default for EngineConfig {
    fn default() -> Self {
        EngineConfig {
            addrs: Vec::new(),
            ifaces: Vec::new(),
            bind: None,
            port: 0,
            port_span: 1,
            level: Level::Integrity,
            congestion: weir_link::CongestionKind::Target,
            stripe: true,
            eager_bytes: 128 << 10,
            copy_bytes: 64 << 10,
            streams: 10,
            stream_bits: StreamBits::default(),
            multi_order: MultiOrder::default(),
            strangers_max: None,
            tell_unasked: false,
            everywhere: false,
            processes_here: None,
            peer_timeout: Duration::from_secs(5),
            dead_may_return: false,
            doubt_interval: weir_link::Config::default().doubt_interval,
            connect_timeout: Duration::from_secs(10),
            send_timeout: Duration::from_secs(600),
            watchdog_us: 500,
            spin_us: 100,
            poll_sleep_us: 0,
            coalesce_ns: 2_000,
            credit_bytes: 1 << 20,
            bulk_credit_bytes: None,
            ack_delay: weir_link::Config::default().ack_delay_max,
            credit_msgs: 4096,
            unexpected_bytes: 64 << 20,
            copied_bytes: 64 << 20,
            copied_peer_bytes: 16 << 20,
            rcvbuf_bytes: 8 << 20,
            carrier: CarrierUse::Auto,
            sctp_control: SctpControl::C,
            sctp_rto_min_ms: 1000,
            bulk_connections: BulkUse::Auto,
            offload: true,
            ecn: EcnUse::Auto,
            xdp: XdpUse::Auto,
            xdp_socket: PathBuf::from(weir_xdp::helper::SOCKET),
            linger: Duration::from_secs(5),
            stats: None,
            trace: 0,
            trace_file: None,
            capture: None,
            faults: None,
        }
    }
}

/// What [`EngineConfig::poll_sleep_us`] is for who is set up by people: a message-passing library,
/// a benchmark. With more ranks than cores a sleep gives the core to who has something to do, and
/// ends when something arrives; a yield does neither (4 ranks on 2 cores: a barrier takes half the
/// time of one with yields). A library may have other transports to look at, so not for long.
const POLL_SLEEP_US: u32 = 200;

/// The name that a setting had before this version, under which it is still taken.
fn former_name(name: &str) -> Option<&'static str> {
    (name == "WEIR_BULK").then_some("WEIR_LANES")
}

impl EngineConfig {
    /// The defaults without shared memory: for tests of what becomes of packets and TCP
    /// connections.
    #[must_use]
    pub fn packets() -> Self {
        EngineConfig { carrier: CarrierUse::Network, ..EngineConfig::default() }
    }

    /// Reads `WEIR_*` through `get` (usually the environment; a face may look at its own parameters
    /// first).
    ///
    /// # Errors
    /// The first variable that cannot be understood, by name.
    pub fn from_vars(get: &dyn Fn(&str) -> Option<String>) -> Result<Self, EngineError> {
        let either = |name: &str| get(name).or_else(|| get(former_name(name)?));
        let as_set = |name: &str| former_name(name).filter(|_| get(name).is_none()).unwrap_or(name).to_owned();
        Self::read(&either).map_err(|error| error.with_variable(as_set))
    }

    fn read(get: &dyn Fn(&str) -> Option<String>) -> Result<Self, EngineError> {
        let mut c = EngineConfig { poll_sleep_us: POLL_SLEEP_US, ..EngineConfig::default() };
        let v = Vars { get };
        v.list("WEIR_ADDR", &mut c.addrs, "an IP address such as 10.0.0.1 (interfaces are chosen by WEIR_IFACE)")?;
        v.list("WEIR_IFACE", &mut c.ifaces, "the name of an interface")?;
        v.ports("WEIR_PORT", &mut c.port, &mut c.port_span)?;
        v.one_of(
            "WEIR_LEVEL",
            &mut c.level,
            &[("integrity", Level::Integrity), ("auth", Level::Auth), ("encrypt", Level::Encrypt)],
        )?;
        v.one_of(
            "WEIR_CONGESTION",
            &mut c.congestion,
            &[("target", weir_link::CongestionKind::Target), ("reno", weir_link::CongestionKind::Reno)],
        )?;
        v.one_of("WEIR_STRIPE", &mut c.stripe, &[("on", true), ("1", true), ("off", false), ("0", false)])?;
        v.number("WEIR_EAGER_BYTES", &mut c.eager_bytes, 0, 16 << 20)?;
        v.number("WEIR_COPY_BYTES", &mut c.copy_bytes, 0, 1 << 20)?;
        v.number("WEIR_STREAMS", &mut c.streams, 1, 64)?;
        v.millis("WEIR_PEER_TIMEOUT_MS", &mut c.peer_timeout, 50)?;
        v.millis("WEIR_CONNECT_TIMEOUT_MS", &mut c.connect_timeout, 50)?;
        v.millis("WEIR_SEND_TIMEOUT_MS", &mut c.send_timeout, 1000)?;
        v.number("WEIR_WATCHDOG_US", &mut c.watchdog_us, 0, 1_000_000)?;
        v.number("WEIR_SPIN_US", &mut c.spin_us, 0, 10_000_000)?;
        v.number("WEIR_POLL_SLEEP_US", &mut c.poll_sleep_us, 0, 10_000)?;
        v.number("WEIR_COALESCE_NS", &mut c.coalesce_ns, 0, 1_000_000)?;
        v.number("WEIR_CREDIT_BYTES", &mut c.credit_bytes, 4096, 1 << 40)?;
        v.number("WEIR_CREDIT_MSGS", &mut c.credit_msgs, 16, 1 << 24)?;
        v.number("WEIR_UNEXPECTED_BYTES", &mut c.unexpected_bytes, 0, 1 << 40)?;
        // At least a few of the longest injected messages.
        v.number("WEIR_COPIED_BYTES", &mut c.copied_bytes, 64 << 10, 1 << 40)?;
        v.number("WEIR_COPIED_PEER_BYTES", &mut c.copied_peer_bytes, 64 << 10, 1 << 40)?;
        v.number("WEIR_RCVBUF", &mut c.rcvbuf_bytes, 64 << 10, 1 << 30)?;
        v.one_of(
            "WEIR_CARRIER",
            &mut c.carrier,
            &[
                ("auto", CarrierUse::Auto),
                ("shm", CarrierUse::Shm),
                ("network", CarrierUse::Network),
                ("udp", CarrierUse::Udp),
                ("tcp", CarrierUse::Tcp),
                ("sctp", CarrierUse::Sctp),
            ],
        )?;
        v.one_of(
            "WEIR_SCTP_CONTROL",
            &mut c.sctp_control,
            &[("a", SctpControl::A), ("b", SctpControl::B), ("c", SctpControl::C)],
        )?;
        v.number("WEIR_SCTP_RTO_MIN_MS", &mut c.sctp_rto_min_ms, 10, 60_000)?;
        v.one_of(
            "WEIR_BULK",
            &mut c.bulk_connections,
            &[("auto", BulkUse::Auto), ("always", BulkUse::Always), ("off", BulkUse::Off), ("0", BulkUse::Off)],
        )?;
        v.one_of("WEIR_OFFLOAD", &mut c.offload, &[("on", true), ("1", true), ("off", false), ("0", false)])?;
        v.one_of(
            "WEIR_ECN",
            &mut c.ecn,
            &[("auto", EcnUse::Auto), ("on", EcnUse::On), ("1", EcnUse::On), ("off", EcnUse::Off), ("0", EcnUse::Off)],
        )?;
        v.one_of(
            "WEIR_XDP",
            &mut c.xdp,
            &[("off", XdpUse::Off), ("0", XdpUse::Off), ("auto", XdpUse::Auto), ("on", XdpUse::On), ("1", XdpUse::On)],
        )?;
        if let Some(path) = v.file("WEIR_XDP_SOCKET", weir_xdp::helper::SOCKET)? {
            c.xdp_socket = PathBuf::from(path);
        }
        v.millis("WEIR_LINGER_MS", &mut c.linger, 0)?;
        // The provider's own, which reads it; here it is only judged, with all others.
        v.number(PROVIDERS, &mut 0, 0, INJECT_MOST_BYTES)?;
        v.number("WEIR_TRACE", &mut c.trace, 0, 3)?;
        c.stats = v.file("WEIR_STATS", "/tmp/stat.%p, or - for standard error")?;
        c.trace_file = v.file("WEIR_TRACE_FILE", "/tmp/trace.%p, or - for standard error")?.map(PathBuf::from);
        c.capture = v.file("WEIR_CAPTURE", CAPTURE_SUCH_AS)?;
        if c.capture.as_deref() == Some("-") {
            let problem = format!(
                "'-' is no file, and a capture goes to one only, such as {CAPTURE_SUCH_AS} (./- for one of that name)"
            );
            return Err(Vars::bad("WEIR_CAPTURE", problem));
        }
        c.faults = get("WEIR_FAULTS");
        Ok(c)
    }

    /// Reads the process environment.
    ///
    /// # Errors
    /// As [`EngineConfig::from_vars`].
    pub fn from_env() -> Result<Self, EngineError> {
        Self::from_vars(&|name| std::env::var(name).ok().filter(|v| !v.is_empty()))
    }

    /// What to tell whoever chose these settings, though they are valid: one line each.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let unwatched = format!(
            "WEIR_WATCHDOG_US=0: nobody answers for a process that computes and makes no calls; after {:.1} s (WEIR_PEER_TIMEOUT_MS) it is taken for dead",
            self.peer_timeout.as_secs_f64()
        );
        (self.watchdog_us == 0).then_some(unwatched).into_iter().collect()
    }

    /// The addresses to bind, with the port.
    #[must_use]
    pub fn socket_addrs(&self) -> Vec<SocketAddr> {
        self.addrs.iter().map(|&ip| SocketAddr::new(ip, self.port)).collect()
    }
}

/// A good value of `WEIR_CAPTURE`.
const CAPTURE_SUCH_AS: &str = "/tmp/%p.pcapng";
/// A setting that one face, the provider, reads beside the engine's: all that bear Weir's name are
/// known in one place.
const PROVIDERS: &str = "WEIR_INJECT_SIZE";
/// The most that `fi_inject` may be set to take (`docs/man/fi_weir.7`), bytes.
const INJECT_MOST_BYTES: usize = 16 << 10;
/// Settings that other parts of Weir read, by these names alone: keys, the command's, the
/// launchers', those of the other faces and of the tools. (A test of the command finds all that are
/// read.)
const OTHERS: [&str; 26] = [
    "WEIR_KEY",
    "WEIR_KEY_FILE",
    "WEIR_LIB",
    "WEIR_PREFIX",
    "WEIR_LAUNCHER",
    "WEIR_LAUNCH_TIMEOUT",
    "WEIR_PMIX_LIBRARY",
    "WEIR_MPI_LIBRARY",
    "WEIR_RECORD_DIR",
    "WEIR_SEGMENTS_DIR",
    "WEIR_BMI_BYTES",
    "WEIR_BMI_HEADER_MS",
    "WEIR_BMI_MODULES",
    "WEIR_BMI_OPEN",
    "WEIR_BMI_PEERS_MAX",
    "WEIR_BMI_PEER_BYTES",
    "WEIR_BMI_STALL_MS",
    "WEIR_BMI_TCP_WIRE",
    "WEIR_BSP_BOARD",
    "WEIR_BSP_CHECK",
    "WEIR_BSP_HP_BYTES",
    "WEIR_BSP_LEDGER",
    "WEIR_BSP_MEMORY",
    "WEIR_BSP_ORDER",
    "WEIR_BSP_QUEUE",
    "WEIR_BSP_SLOT",
];
/// Of settings those that stay on a host: addresses are of one host, and of keys the command says
/// which goes.
const HERE: [&str; 3] = ["WEIR_KEY", "WEIR_KEY_FILE", "WEIR_ADDR"];
/// What the emulator, `weir run` and who starts the processes of a job tell these: each process or
/// launch has its own.
const TOLD: [&str; 12] = [
    "WEIR_HOSTS",
    "WEIR_HOSTFILE",
    "WEIR_LAUNCH_AGENT",
    "WEIR_NETWORKS",
    "WEIR_RUN_COMMAND",
    "WEIR_JOB_FD",
    "WEIR_JOB_ID",
    "WEIR_RANK",
    "WEIR_SIZE",
    "WEIR_BSP_MEET",
    "WEIR_BSP_RANK",
    "WEIR_BSP_SIZE",
];
/// What Weir's own tools and tests tell each other.
const INTERNAL: [&str; 5] = ["WEIR_EMULATE_", "WEIR_AGENT_", "WEIR_BENCH_", "WEIR_TEST_", "WEIR_UDP_TEST_"];
/// Changed, missing, additional or exchanged letters after which a name is no misspelling of
/// another any more, for a name of any length; for a short one it is a third of its letters.
const MOST_WRONG: usize = 4;

/// How a face lets people name the settings.
#[derive(Clone, Copy, Debug)]
pub struct SettingNames<'a> {
    /// What may stand before a name: with `FI_`, people may set `FI_WEIR_X` for `WEIR_X`.
    pub prefix: &'a str,
    /// Where all are listed.
    pub listed_by: &'a str,
}

impl SettingNames<'_> {
    /// One line for each of these environment names that looks like a setting of Weir (`WEIR_X`, or
    /// that behind the face's prefix) and is none, with the nearest one there is.
    #[must_use]
    pub fn unknown(&self, names: impl IntoIterator<Item = String>) -> Vec<String> {
        let mut unknown: Vec<String> = names
            .into_iter()
            .filter(|n| n.strip_prefix(self.prefix).unwrap_or(n).starts_with("WEIR_"))
            .filter(|n| !INTERNAL.iter().any(|prefix| n.starts_with(prefix)))
            .collect();
        if unknown.is_empty() {
            return unknown;
        }
        let known = std::cell::RefCell::new(Vec::new());
        // The settings themselves tell their names; without values they are always valid.
        let _ = EngineConfig::from_vars(&|name| {
            known.borrow_mut().push(name.to_owned());
            None
        });
        let known = known.into_inner();
        let is_known = |name: &str| known.iter().any(|k| k == name);
        unknown.retain(|name| match self.engines(name) {
            Some(short) => !is_known(short),
            None => !is_known(name) && !OTHERS.contains(&name.as_str()) && !TOLD.contains(&name.as_str()),
        });
        unknown.sort_unstable();
        unknown.iter().map(|name| self.about_unknown(name, &known)).collect()
    }

    /// Whether this variable is a setting that means the same on all hosts of a job, and no secret:
    /// so that a launcher which hands on only what it is told is told of it.
    #[must_use]
    pub fn is_for_all_hosts(&self, name: &str) -> bool {
        let short = name.strip_prefix(self.prefix).unwrap_or(name);
        let stays = HERE.contains(&short) || TOLD.contains(&short) || INTERNAL.iter().any(|one| short.starts_with(one));
        let is_plain = |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        // (Whatever is called a key may hold one.)
        short.starts_with("WEIR_") && !short.starts_with("WEIR_KEY") && is_plain(name) && !stays
    }

    /// The engine's name in one with the prefix.
    fn engines<'n>(&self, name: &'n str) -> Option<&'n str> {
        name.strip_prefix(self.prefix).filter(|_| !self.prefix.is_empty())
    }

    fn about_unknown(&self, name: &str, known: &[String]) -> String {
        let told = name.escape_debug();
        let (prefix, short) = self.engines(name).map_or(("", name), |short| (self.prefix, short));
        // The command's own have no second name: what is meant by FI_WEIR_KEY is WEIR_KEY.
        let engines = known.iter().map(|k| (prefix, k.as_str()));
        let candidates = engines.chain(OTHERS.iter().map(|k| ("", *k)));
        let letters = |name: &str| name.len() - "WEIR_".len();
        let nearest = candidates.map(|(prefix, k)| (strsim::osa_distance(k, short), prefix, k)).min();
        let listed = self.listed_by;
        match nearest {
            Some((wrong, prefix, k)) if wrong <= MOST_WRONG.min(letters(k).max(letters(short)) / 3) => {
                format!("{told} is no setting of weir and is ignored; did you mean {prefix}{k}? ({listed} lists all)")
            }
            _ => format!("{told} is no setting of weir and is ignored ({listed} lists all)"),
        }
    }
}

/// What other settings take for on and off, beside numbers.
const SWITCHES: [&str; 6] = ["on", "off", "true", "false", "yes", "no"];

struct Vars<'a> {
    get: &'a dyn Fn(&str) -> Option<String>,
}

impl Vars<'_> {
    fn bad(name: &str, problem: String) -> EngineError {
        EngineError::Config { variable: name.to_owned(), problem }
    }

    fn number<T>(&self, name: &str, into: &mut T, min: T, max: T) -> Result<(), EngineError>
    where
        T: std::str::FromStr + PartialOrd + std::fmt::Display,
    {
        let Some(text) = (self.get)(name) else {
            return Ok(());
        };
        match text.trim().parse::<T>() {
            Ok(n) if n >= min && n <= max => {
                *into = n;
                Ok(())
            }
            _ => Err(Self::bad(name, format!("'{}' is not a number from {min} to {max}", text.escape_debug()))),
        }
    }

    /// One port, or a range of them.
    fn ports(&self, name: &str, first: &mut u16, span: &mut u16) -> Result<(), EngineError> {
        let Some(text) = (self.get)(name) else {
            return Ok(());
        };
        let number = |text: &str| text.trim().parse::<u16>().ok();
        let read = match text.split_once('-') {
            None => number(&text).map(|port| (port, 1)),
            Some((low, high)) => number(low)
                .zip(number(high))
                .filter(|(low, high)| 0 < *low && low <= high)
                .map(|(low, high)| (low, high - low + 1)),
        };
        let what = "is neither a port from 0 to 65535 nor a range of them such as 45000-45100";
        (*first, *span) = read.ok_or_else(|| Self::bad(name, format!("'{}' {what}", text.escape_debug())))?;
        Ok(())
    }

    fn millis(&self, name: &str, into: &mut Duration, min_ms: u64) -> Result<(), EngineError> {
        let mut ms = into.as_millis() as u64;
        self.number(name, &mut ms, min_ms, 86_400_000)?;
        *into = Duration::from_millis(ms);
        Ok(())
    }

    fn one_of<T: Copy>(&self, name: &str, into: &mut T, choices: &[(&str, T)]) -> Result<(), EngineError> {
        let Some(text) = (self.get)(name) else {
            return Ok(());
        };
        match choices.iter().find(|(word, _)| word.eq_ignore_ascii_case(text.trim())) {
            Some((_, value)) => {
                *into = *value;
                Ok(())
            }
            None => {
                let words: Vec<&str> = choices.iter().map(|(w, _)| *w).collect();
                Err(Self::bad(name, format!("'{}' is none of {}", text.escape_debug(), words.join(", "))))
            }
        }
    }

    fn list<T: std::str::FromStr>(&self, name: &str, into: &mut Vec<T>, valid: &str) -> Result<(), EngineError> {
        let Some(text) = (self.get)(name) else {
            return Ok(());
        };
        for word in text.split(',').map(str::trim).filter(|w| !w.is_empty()) {
            match word.parse() {
                Ok(value) => into.push(value),
                Err(_) => return Err(Self::bad(name, format!("'{}' is not {valid}", word.escape_debug()))),
            }
        }
        Ok(())
    }

    /// The name of a file. Words that elsewhere switch something on or off are refused, not taken
    /// for names: the files would lie in the ranks' working folders, and nobody would look for
    /// them.
    fn file(&self, name: &str, such_as: &str) -> Result<Option<String>, EngineError> {
        let Some(text) = (self.get)(name) else {
            return Ok(None);
        };
        let word = text.trim().to_ascii_lowercase();
        if SWITCHES.contains(&word.as_str()) || (!word.is_empty() && word.bytes().all(|b| b.is_ascii_digit())) {
            let word = text.trim();
            let problem = format!(
                "'{word}' switches nothing on or off here; name a file, such as {such_as} (./{word} for one of that name)"
            );
            return Err(Self::bad(name, problem));
        }
        Ok(Some(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NAMES: SettingNames<'_> = SettingNames { prefix: "FI_", listed_by: "a manual page" };

    fn with(name: &'static str, value: &'static str) -> Result<EngineConfig, EngineError> {
        EngineConfig::from_vars(&move |n| (n == name).then(|| value.to_owned()))
    }

    #[test]
    fn misspelt_settings_are_told_with_the_nearest_name() {
        let names = ["WEIR_EAGERBYTES", "FI_WEIR_PEER_TIMEOUT", "WEIR_KEY", "FI_WEIR_TRACE", "WEIR_TEST_SEEDS", "PATH"];
        let told = NAMES.unknown(names.map(str::to_owned));
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(
            told[0].contains("FI_WEIR_PEER_TIMEOUT ") && told[0].contains("mean FI_WEIR_PEER_TIMEOUT_MS?"),
            "{told:?}"
        );
        assert!(told[1].contains("mean WEIR_EAGER_BYTES?"), "{told:?}");
        for far in ["WEIR_SOMETHING_ELSE_ALTOGETHER", "FI_WEIR_LOSS", "FI_WEIR_HOSTS", "WEIR_HOST", "WEIR_X", "WEIR_"] {
            let told = NAMES.unknown([far.to_owned()]);
            assert!(told.len() == 1 && !told[0].contains("mean"), "{told:?}");
        }
        let told = NAMES.unknown(
            ["FI_WEIR_KEY_FILE", "WEIR_KEYFILE", "WEIR_LIB", "WEIR_HOSTS", "WEIR_RUN_COMMAND"].map(str::to_owned),
        );
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told.iter().all(|line| line.contains("mean WEIR_KEY_FILE?")), "{told:?}");
    }

    #[test]
    fn settings_go_to_all_hosts_but_keys_addresses_and_what_one_process_is_told_do_not() {
        for name in ["WEIR_PORT", "FI_WEIR_IFACE", "WEIR_BSP_CHECK", "WEIR_LAUNCH_TIMEOUT", "WEIR_LANES", "WEIR_PROT"] {
            assert!(NAMES.is_for_all_hosts(name), "{name}");
        }
        let here = ["WEIR_KEY", "WEIR_KEY_FILE", "FI_WEIR_ADDR", "WEIR_JOB_FD", "WEIR_LAUNCH_AGENT", "WEIR_AGENT_MARK"];
        for name in
            here.into_iter().chain(["WEIR_KEYS", "WEIR_BSP_RANK", "FI_PROVIDER", "PATH", "WEIR_A;B", "FI_WEIR_KEY"])
        {
            assert!(!NAMES.is_for_all_hosts(name), "{name}");
        }
    }

    #[test]
    fn two_letters_that_have_changed_places_are_one_mistake() {
        for (wrong, meant) in [
            ("WEIR_IAFCE", "WEIR_IFACE"),
            ("FI_WEIR_IFAEC", "FI_WEIR_IFACE"),
            ("WEIR_POTR", "WEIR_PORT"),
            ("WEIR_KYE", "WEIR_KEY"),
            ("FI_WEIR_LVEEL", "FI_WEIR_LEVEL"),
        ] {
            let told = NAMES.unknown([wrong.to_owned()]);
            assert!(told.len() == 1 && told[0].contains(&format!("did you mean {meant}?")), "{told:?}");
        }
    }

    #[test]
    fn a_job_without_watchdog_is_warned() {
        assert!(EngineConfig::default().warnings().is_empty());
        let warnings = with("WEIR_WATCHDOG_US", "0").expect("valid").warnings();
        assert!(warnings.len() == 1 && warnings[0].contains("WEIR_WATCHDOG_US=0"), "{warnings:?}");
        assert!(warnings[0].contains("5.0 s"), "{warnings:?}");
    }

    #[test]
    fn values_are_read_and_bounded() {
        assert_eq!(with("WEIR_STREAMS", "4").expect("valid").streams, 4);
        assert_eq!(with("WEIR_ADDR", "10.0.0.1, ::1").expect("valid").addrs.len(), 2);
        assert_eq!(with("WEIR_PEER_TIMEOUT_MS", "700").expect("valid").peer_timeout, Duration::from_millis(700));
        let ports = |value| with("WEIR_PORT", value).map(|c| (c.port, c.port_span));
        assert_eq!([ports("45000").expect("one"), ports(" 45000 - 45100 ").expect("many")], [(45000, 1), (45000, 101)]);
        assert_eq!(ports("1-65535").expect("all"), (1, 65535));
        for (name, value) in [
            ("WEIR_PORT", "0-7"),
            ("WEIR_PORT", "45100-45000"),
            ("WEIR_PORT", "1-70000"),
            ("WEIR_PORT", "1-2-3"),
            ("WEIR_STREAMS", "0"),
            ("WEIR_LEVEL", "none"),
            ("WEIR_ADDR", "eth0"),
            ("WEIR_PORT", "70000"),
            ("WEIR_TRACE", "x"),
            ("WEIR_INJECT_SIZE", "16385"),
        ] {
            let error = with(name, value).expect_err("must be refused").to_string();
            assert!(error.contains(name) && error.contains(value), "{error}");
        }
    }

    #[test]
    fn a_setting_is_taken_under_its_former_name_unless_it_has_the_new_one() {
        let read = |set: &[(&str, &str)]| {
            let value = |name: &str| set.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
            EngineConfig::from_vars(&value).unwrap().bulk_connections
        };
        assert_eq!(read(&[("WEIR_LANES", "off")]), BulkUse::Off);
        assert_eq!(read(&[("WEIR_LANES", "off"), ("WEIR_BULK", "always")]), BulkUse::Always);
    }

    #[test]
    fn a_file_is_not_called_by_a_switch() {
        for name in ["WEIR_STATS", "WEIR_TRACE_FILE", "WEIR_CAPTURE"] {
            for value in ["1", "0", " 12", "on", "Off", "true", "no"] {
                let error = with(name, value).expect_err("must be refused").to_string();
                let told = format!("{name}: '{}' switches nothing on or off here; name a file", value.trim());
                assert!(error.starts_with(&told), "{error}");
            }
            for value in ["./1", "1.json", "/tmp/on", "./-", "%p"] {
                assert!(with(name, value).is_ok(), "{name}={value}");
            }
        }
        assert!(with("WEIR_STATS", "-").is_ok() && with("WEIR_TRACE_FILE", "-").is_ok());
        let error = with("WEIR_CAPTURE", "-").expect_err("no file").to_string();
        assert!(error.starts_with("WEIR_CAPTURE: '-' is no file"), "{error}");
        assert_eq!(with("WEIR_STATS", "./1").expect("valid").stats.as_deref(), Some("./1"));
    }

    /// The names of all settings.
    fn names() -> Vec<String> {
        let asked = std::cell::RefCell::new(Vec::new());
        let _ = EngineConfig::from_vars(&|name| {
            asked.borrow_mut().push(name.to_owned());
            None
        });
        asked.into_inner()
    }

    /// Values of all kinds, right and wrong.
    fn values() -> impl Strategy<Value = String> {
        prop_oneof![
            "(?s).{0,12}",
            "[ \n]?-?[0-9]{1,24}[ %a-z]?",
            "(integrity|auth|encrypt|target|reno|auto|always|off|on|1|0),?[\na-zA-Z]?",
            "([0-9]{1,3}\\.){3}[0-9]{1,3}, ?[0-9a-f:]{0,9}[,\r\u{1b}]?",
        ]
    }

    proptest! {
        #[test]
        fn settings_of_any_values_are_valid_or_an_error_of_one_line_that_names_one(
            set in proptest::collection::btree_map(proptest::sample::select(names()), values(), 1..6),
        ) {
            match EngineConfig::from_vars(&|name| set.get(name).cloned()) {
                Ok(config) => {
                    let ms = [config.peer_timeout, config.connect_timeout, config.send_timeout, config.linger];
                    prop_assert!(ms.iter().all(|t| t.as_millis() <= 86_400_000));
                    prop_assert!((1..=64).contains(&config.streams) && config.trace <= 3, "{config:?}");
                }
                Err(error) => {
                    let error = error.to_string();
                    prop_assert!(set.keys().any(|name| error.starts_with(&format!("{name}: "))), "{error:?} of {set:?}");
                    prop_assert!(!error.contains(char::is_control), "{error:?}");
                }
            }
        }

        #[test]
        fn written_settings_read_back(
            addrs: Vec<IpAddr>, port: u16, streams in 1u16..=64, credit in 4096u64..=1 << 40, ms in 50u64..=86_400_000,
            (before, after) in ("[ \t\n]{0,2}", "[ \r\n]{0,2}"),
        ) {
            let list: Vec<String> = addrs.iter().map(IpAddr::to_string).collect();
            let set = [
                ("WEIR_ADDR", list.join(&format!("{before},{after}"))),
                ("WEIR_PORT", port.to_string()),
                ("WEIR_STREAMS", streams.to_string()),
                ("WEIR_CREDIT_BYTES", credit.to_string()),
                ("WEIR_PEER_TIMEOUT_MS", ms.to_string()),
            ];
            let value = |name: &str| set.iter().find(|s| s.0 == name).map(|s| format!("{before}{}{after}", s.1));
            let read = EngineConfig::from_vars(&value).expect("valid");
            prop_assert_eq!(read.addrs, addrs);
            prop_assert_eq!((read.port, read.streams, read.credit_bytes), (port, streams, credit));
            prop_assert_eq!(read.peer_timeout, Duration::from_millis(ms));
        }

        #[test]
        fn unknown_names_are_told_in_one_line_each(names in proptest::collection::vec("(FI_)?WEIR_[A-Z_]{0,20}(?s:.{0,2})", 0..5)) {
            let told = NAMES.unknown(names.clone());
            prop_assert!(told.len() <= names.len() && told.iter().all(|line| !line.contains(char::is_control)), "{told:?}");
        }
    }
}
