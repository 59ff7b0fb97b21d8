//! What moves an endpoint's datagrams: its UDP sockets and, where there are, AF_XDP's rings beside
//! them, captured, and with the faults that tests ask for.

use weir_capture::Captured;
use weir_net::Faulty;
use weir_udp::UdpTransport;
use weir_xdp::Pair;

/// The device of an endpoint.
pub type Device = Faulty<Captured<Pair<UdpTransport>>>;
