//! The engine's TCP connections without its sockets, clock and threads, for the fuzz target
//! `engine_bulk`: the connections are TCP's, over loopback, and what each call to the system does
//! is as the fuzzer says ([`rig`]). All else of the engine is in `weir_message`, which fuzz targets
//! drive directly. And for the target `sctp`: what a peer that lies can say to an endpoint by SCTP.

use crate::bulk_connections::BulkConnections;
use crate::config::{BulkUse, EngineConfig};
use crate::diagnostics::silent;
use crate::state::State;
use crate::telling::Telling;
use crate::trace::Trace;
use std::net::{SocketAddr, TcpListener};
use weir_link::{Level, Time};
use weir_message::Messages;

mod rigged;
mod sctp;

pub use crate::memory::Gather;
/// Where trace and news would go.
pub use crate::telling::Telling as Told;
pub use rigged::{Call, lose, open, rig};
pub use sctp::{sctp_hello, sctp_is_up, sctp_says, sctp_unhear};

/// A port may be taken by somebody else just when it has been found.
const TRIES: usize = 100;

/// Messages and the connections that carry large payload.
pub struct Connected {
    st: State,
    bulk_connections: BulkConnections<rigged::Rigged>,
}

impl Connected {
    /// An endpoint with this id at an address of loopback's, which is returned; `tune` may change
    /// settings of the protocol that the engine does not have.
    ///
    /// # Panics
    /// If there is no port.
    #[must_use]
    pub fn new(
        cfg: EngineConfig,
        key: [u8; 32],
        id: u64,
        seed: [u8; 32],
        tune: impl FnOnce(&mut weir_link::Config),
    ) -> (Connected, SocketAddr) {
        let cfg = EngineConfig { level: Level::Integrity, bulk_connections: BulkUse::Always, ..cfg };
        let free = || TcpListener::bind(("127.0.0.1", 0)).and_then(|l| l.local_addr());
        let open = |_| free().and_then(|addr| Ok((BulkConnections::open(&[addr])?, addr))).ok();
        let (bulk_connections, addr) = (0..TRIES).find_map(open).expect("a port of loopback");
        let mut proto = crate::open::proto_config(&cfg, 4 << 20, 1472);
        proto.bulk.on = true;
        tune(&mut proto);
        let proto = weir_link::Endpoint::new(proto, key, id, &[addr], seed);
        let telling = Telling::new(Trace::open(0, None, silent()).expect("no trace is opened"), cfg.clone(), silent());
        let messages = Messages::new(crate::open::message_config(&cfg), proto, telling);
        (Connected { st: State::new(messages), bulk_connections }, addr)
    }

    /// What has connections.
    #[must_use]
    pub fn messages(&self) -> &Messages<Gather, Told> {
        &self.st.messages
    }

    /// The same.
    pub fn messages_mut(&mut self) -> &mut Messages<Gather, Told> {
        &mut self.st.messages
    }

    /// Connects, accepts and reads.
    ///
    /// # Panics
    /// If more is kept of a connection than a head.
    pub fn read(&mut self, now: Time, busy: bool) {
        self.bulk_connections.progress(&mut self.st, now, busy);
        let (_, staged) = self.bulk_connections.kept();
        assert!(staged < weir_link::RECORD_HEAD_LEN + weir_wire::MAX_ENVELOPE_LEN, "{staged} bytes are kept");
    }

    /// Writes what is to go by connections.
    pub fn write(&mut self, now: Time) {
        self.bulk_connections.transmit(&mut self.st, now);
    }

    /// When the connections are to be looked at.
    #[must_use]
    pub fn next_timeout(&self, now: Time) -> Option<Time> {
        self.bulk_connections.next_timeout(&self.st, now)
    }

    /// How many connections it has.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.bulk_connections.kept().0
    }

    /// Takes no more connections, and ends those it has.
    pub fn close(&mut self) {
        self.bulk_connections.close();
    }
}
