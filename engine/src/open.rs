//! Opening an endpoint: key, socket, addresses, protocol, threads.

use crate::bulk_connections::BulkConnections;
use crate::clock::now;
use crate::config::{CarrierUse, EngineConfig, Level};
use crate::core::Core;
use crate::diagnostics::{Diagnostic, Diagnostics, silent};
use crate::files::own_file;
use crate::policy;
use crate::sctp::Sctp;
use crate::shm::SharedMemory;
use crate::socket::{no_socket, sockets};
use crate::state::State;
use crate::telling::Telling;
use crate::trace::{self, Trace};
use crate::{Endpoint, EngineError, EventFd, NAME_BYTES, Shared, lock, stat, waiting, watch, watchdog, xdp};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use weir_capture::Captured;
use weir_message::Messages;
use weir_net::{Datagrams, Faulty};
use weir_sctp::NoSctp;
use weir_session::Terms;
use weir_shm::Shm;

impl Endpoint {
    /// Opens an endpoint with the job's key from the environment or the user's key file
    /// ([`job_key`]). What it has to say goes to `diagnostics`.
    ///
    /// # Errors
    /// One line with the cause: key, configuration, or the system's refusal of a socket or thread.
    pub fn open(cfg: EngineConfig, diagnostics: Diagnostics) -> Result<Arc<Endpoint>, EngineError> {
        Self::open_told(cfg, job_key()?, diagnostics)
    }

    /// Opens an endpoint with this job key, and lets nobody know what it has to say.
    ///
    /// # Errors
    /// As [`Endpoint::open`].
    pub fn open_with_key(cfg: EngineConfig, job_key: [u8; 32]) -> Result<Arc<Endpoint>, EngineError> {
        Self::open_told(cfg, job_key, silent())
    }

    /// Opens an endpoint with this job key. What it has to say goes to `diagnostics`.
    ///
    /// # Errors
    /// As [`Endpoint::open`].
    pub fn open_told(
        cfg: EngineConfig,
        job_key: [u8; 32],
        diagnostics: Diagnostics,
    ) -> Result<Arc<Endpoint>, EngineError> {
        let io = |doing: &str| {
            let doing = doing.to_owned();
            move |source| EngineError::Io { doing, source }
        };
        crate::forked::see_to_children();
        let (sctp, no_sctp) = sctp(&cfg)?;
        if let Some(why) = &no_sctp {
            diagnostics(&Diagnostic::Notice(&format!("WEIR_CARRIER=sctp, but packets carry everything: {why}")));
        }
        let (udp, bulk_connections) = sockets(&cfg).map_err(|error| no_socket(&cfg, error))?;
        let (pair, no_xdp) = xdp::beside(udp, &cfg);
        if let Some(why) = &no_xdp {
            diagnostics(&Diagnostic::Notice(&format!("WEIR_XDP=on, but packets go by UDP alone: {why}")));
        }
        let mut captured = Captured::new(pair);
        if let Some(path) = &cfg.capture {
            let path_here = own_file("WEIR_CAPTURE", path);
            let to = diagnostics.clone();
            let ended = Box::new(move |line: &str| to(&Diagnostic::Notice(line)));
            if !captured.capture_to(&path_here, ended).map_err(io("opening the capture file"))? {
                trace::tell_taken(&diagnostics, "WEIR_CAPTURE", path, &path_here);
            }
        }
        let salt = captured.local_addrs().first().map_or(0, |a| u64::from(a.port()));
        let device = Faulty::new(captured, cfg.faults.as_deref(), salt)
            .map_err(|problem| EngineError::Config { variable: "WEIR_FAULTS".into(), problem })?;
        let mut seed = [0; 32];
        let mut id = [0; 8];
        for buf in [&mut seed[..], &mut id[..]] {
            getrandom::fill(buf)
                .map_err(|e| EngineError::Io { doing: "reading random numbers".into(), source: e.into() })?;
        }
        let id = u64::from_le_bytes(id);
        let mut proto = proto_config(&cfg, device.rx_buffer_bytes(), device.max_datagram());
        proto.bulk.on = bulk_connections.is_some();
        proto.sctp = sctp.is_some();
        let mut proto = weir_link::Endpoint::new(proto, job_key, id, device.local_addrs(), seed);
        proto.comes_in_parts();
        let name = proto.name().encode();
        let mut trace = Trace::open(cfg.trace, cfg.trace_file.as_deref(), diagnostics.clone())
            .map_err(io("opening the trace file"))?;
        trace.opened(id, device.local_addrs());
        let messages =
            Messages::new(message_config(&cfg), proto, Telling::new(trace, cfg.clone(), diagnostics.clone()));
        let bulk_connections_fd = bulk_connections.as_ref().map_or(-1, BulkConnections::fd);
        let shm = shared_memory(&cfg, id, &job_key, name);
        let shm_fd = shm.as_ref().map_or(-1, SharedMemory::fd);
        let shared = Arc::new(Shared {
            last_poll: AtomicU64::new(now().0),
            last_found: AtomicU64::new(now().0),
            armed: crate::armed::Armed::default(),
            sleeps_here: AtomicBool::new(false),
            armed_beside: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            told_broken: AtomicBool::new(false),
            place: device.local_addrs().first().map_or_else(|| "without an address".to_owned(), ToString::to_string),
            #[cfg(test)]
            watchdog_panics: AtomicBool::new(false),
            sockets: device.wake_sources(),
            others: [bulk_connections_fd, shm_fd],
            notify: EventFd::new().map_err(io("making an event descriptor"))?,
            narrower: crate::armed::Narrower::default(),
            watch: watch::Watch::new(device.wake_sources(), [bulk_connections_fd, shm_fd])
                .map_err(io("making event descriptors"))?,
            waiting: waiting::Waiting::new(
                cfg.spin_us,
                cfg.poll_sleep_us,
                cfg.processes_here.unwrap_or(0),
                std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            ),
            coalesce_ns: u64::from(cfg.coalesce_ns),
            watchdog_ns: u64::from(cfg.watchdog_us) * 1000,
            sent_since_poll: AtomicBool::new(false),
            group: std::sync::OnceLock::new(),
            helped: AtomicBool::new(false),
            quiet_until: AtomicU64::new(0),
            pid: std::process::id(),
            stats: cfg.stats.clone(),
            diagnostics,
            linger: cfg.linger,
            core: lock::Lock::new(Core::new(device, bulk_connections, shm, sctp, State::new(messages))),
        });
        let thread = watchdog::start(&shared)?;
        stat::publish(Arc::downgrade(&shared));
        Ok(Arc::new(Endpoint { shared, name, watchdog: std::sync::Mutex::new(Some(thread)) }))
    }
}

/// Memory to be shared with peers of this host, if it is wanted and the system has what it takes;
/// else why packets do.
fn shared_memory(
    cfg: &EngineConfig,
    id: u64,
    job_key: &[u8; 32],
    name: [u8; NAME_BYTES],
) -> Result<SharedMemory, String> {
    if !policy::shares_memory(cfg) {
        return Err("the settings say so".into());
    }
    let shm = Shm::open(id, job_key, weir_shm::Config::default()).map_err(|cause| cause.to_string())?;
    let terms = Terms { credit_msgs: u64::from(cfg.credit_msgs), credit_bytes: cfg.credit_bytes };
    Ok(SharedMemory::new(shm, name, terms, cfg.stream_bits.features(), cfg.dead_may_return))
}

/// SCTP, if it is wanted; it goes beside packets that have a checksum and no code. Or why there is
/// none in a child made by fork(2): it cannot have what it inherited, and goes on without
/// (spec/sctp.md 1).
fn sctp(cfg: &EngineConfig) -> Result<(Option<Sctp>, Option<NoSctp>), EngineError> {
    if cfg.carrier != CarrierUse::Sctp {
        return Ok((None, None));
    }
    let config = |problem: String| EngineError::Config { variable: "WEIR_CARRIER".into(), problem };
    if cfg.level != Level::Integrity {
        return Err(config("sctp protects no better than WEIR_LEVEL=integrity; leave one of the two out".into()));
    }
    match weir_sctp::available() {
        Ok(()) => Ok((Some(Sctp::new(cfg.streams, cfg.sctp_rto_min_ms, cfg.sctp_control)), None)),
        Err(why @ NoSctp::Forked) => Ok((None, Some(why))),
        Err(why) => Err(config(why.to_string())),
    }
}

pub fn proto_config(cfg: &EngineConfig, rx_buffer_bytes: u64, max_datagram: u16) -> weir_link::Config {
    let usual = weir_link::Config::default();
    let mut bulk = usual.bulk.clone();
    if policy::bulk_always(cfg) {
        (bulk.rtt_max, bulk.min_rate, bulk.loss_max_ppm) = (std::time::Duration::MAX, 0, u32::MAX);
    }
    message_config(cfg).protocol(weir_link::Config {
        bulk,
        level: cfg.level,
        congestion: cfg.congestion,
        ecn: cfg.ecn.is_on(),
        sctp: cfg.carrier == CarrierUse::Sctp,
        stripe: cfg.stripe,
        peer_timeout: cfg.peer_timeout,
        doubt_interval: cfg.doubt_interval,
        ack_delay_max: cfg.ack_delay,
        dead_may_return: cfg.dead_may_return,
        connect_timeout: cfg.connect_timeout,
        linger: cfg.linger,
        session: weir_link::SessionConfig {
            initial_credit_bytes: cfg.credit_bytes,
            bulk_credit_bytes: cfg.bulk_credit_bytes,
            ..usual.session.clone()
        },
        rx_buffer_bytes,
        max_datagram,
        ..usual
    })
}

/// The part of the settings that messages go by.
pub fn message_config(cfg: &EngineConfig) -> weir_message::Config {
    weir_message::Config {
        eager_bytes: cfg.eager_bytes,
        copy_bytes: cfg.copy_bytes,
        streams: cfg.streams,
        strangers_max: cfg.strangers_max,
        tell_unasked: cfg.tell_unasked,
        stream_bits: cfg.stream_bits,
        multi_order: cfg.multi_order,
        send_timeout: cfg.send_timeout,
        credit_msgs: cfg.credit_msgs,
        unexpected_bytes: cfg.unexpected_bytes,
        copied_bytes: cfg.copied_bytes,
        copied_peer_bytes: cfg.copied_peer_bytes,
    }
}

/// The job's key from the environment or the user's key file.
///
/// # Errors
/// [`EngineError::Key`]: one line that says where it was looked for.
pub fn job_key() -> Result<[u8; 32], EngineError> {
    let key = weir_job::load_key(&weir_job::Env::from_process()).map_err(|e| EngineError::Key(e.to_string()))?;
    Ok(key.bytes)
}

/// The public name of a key, for people who compare keys: it tells nothing of the key.
#[must_use]
pub fn key_fingerprint(key: &[u8; 32]) -> String {
    weir_job::fingerprint(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_face_sets_of_credit_and_acknowledgements_reaches_the_protocol() {
        let usual = proto_config(&EngineConfig::default(), 0, 1472);
        assert_eq!(usual.ack_delay_max, weir_link::Config::default().ack_delay_max);
        assert_eq!(usual.session.bulk_credit(), usual.session.initial_credit_bytes);
        let (bulk_credit_bytes, ack_delay) = (Some(7 << 20), std::time::Duration::from_micros(700));
        let set = proto_config(&EngineConfig { bulk_credit_bytes, ack_delay, ..EngineConfig::default() }, 0, 1472);
        assert_eq!((set.session.bulk_credit(), set.ack_delay_max), (7 << 20, ack_delay));
    }

    #[test]
    fn what_is_not_on_this_host_is_told_with_its_setting() {
        let absent = std::net::IpAddr::from([192, 0, 2, 77]);
        let of_name = EngineConfig { ifaces: vec!["no-such-eth".into()], ..EngineConfig::packets() };
        let of_address = EngineConfig { addrs: vec![absent], ..EngineConfig::packets() };
        for (config, setting, value) in
            [(of_name, "WEIR_IFACE", "no-such-eth"), (of_address, "WEIR_ADDR", "192.0.2.77")]
        {
            let Err(EngineError::Config { variable, problem }) = Endpoint::open_with_key(config, [7; 32]) else {
                panic!("{setting} is not named");
            };
            assert!(variable == setting && problem.contains(value), "{variable}: {problem}");
        }
    }
}
