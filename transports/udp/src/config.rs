//! What can be set on a socket, with defaults and reasons.

use std::net::{IpAddr, SocketAddr};

/// Settings of one socket.
#[derive(Clone, Debug)]
pub struct UdpConfig {
    /// Local addresses to serve; empty: those of every usable interface (see
    /// [`crate::interfaces`]).
    pub addrs: Vec<IpAddr>,
    /// Serve only interfaces of these names; empty: all usable. Ignored when `addrs` is not empty.
    pub ifaces: Vec<String>,
    /// Serve exactly this address and port; overrides the fields above and `port`.
    pub bind: Option<SocketAddr>,
    /// Bind to the unspecified address, of both families where the system has both, and take what
    /// comes to any address of the host; `addrs` and `ifaces` say only what is told to peers.
    pub everywhere: bool,
    /// UDP port; 0: any free one.
    pub port: u16,
    /// How many ports from `port` upwards to try; 1 (or 0) means just that one.
    pub port_span: u16,
    /// Receive buffer wanted, bytes of payload. The kernel may give less: see
    /// [`crate::UdpTransport::rx_buffer_bytes`].
    pub rcvbuf_bytes: usize,
    /// Send buffer wanted, bytes of payload.
    pub sndbuf_bytes: usize,
    /// Use segmentation offload where the kernel has it and it works; `false`: never.
    pub offload: bool,
    /// Let an empty read spin on the device queue for so long (`SO_BUSY_POLL`); 0: leave the
    /// system's default. Only real network cards gain.
    pub busy_poll_us: u32,
    /// Send as ECN-capable and report the ECN bits of what arrives. To send so costs nothing (one
    /// option of the socket); the ancillary data of what arrives costs 2 to 3 % of a small
    /// datagram, hence only where switches mark.
    pub ecn: bool,
    /// Connect a second socket to the peer that most arrives from: an eighth of a small datagram's
    /// way less.
    pub connected: bool,
    /// Most unsent payload kept while the socket's own buffer is full, bytes.
    pub parked_limit_bytes: usize,
}

impl Default for UdpConfig {
    fn default() -> Self {
        UdpConfig {
            addrs: Vec::new(),
            ifaces: Vec::new(),
            bind: None,
            everywhere: false,
            port: 0,
            port_span: 1,
            // A 100 Gbit/s sender fills this in 0.7 ms: about the longest a busy receiver's core is
            // elsewhere.
            rcvbuf_bytes: 8 << 20,
            sndbuf_bytes: 4 << 20,
            offload: true,
            busy_poll_us: 0,
            ecn: false,
            connected: true,
            // One full batch of super-packets.
            parked_limit_bytes: 4 << 20,
        }
    }
}
