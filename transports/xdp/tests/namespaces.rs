//! XDP between two hosts in network namespaces: needs root, iproute2 and a kernel with AF_XDP. Where one is missing the tests are reported as ignored.

mod common;

use common::{by_xdp, exchange, hosts};
use weir_xdp::Mode;

fn main() -> std::process::ExitCode {
    common::main(&[("short_datagrams_go_by_xdp_both_ways", short_datagrams_go_by_xdp_both_ways)])
}

fn short_datagrams_go_by_xdp_both_ways() {
    for mode in [Mode::Generic, Mode::Native] {
        let [ha, hb] = hosts();
        let (mut a, mut b) = (ha.open(mode), hb.open(mode));
        common::until_by_xdp(&mut a, &mut b);
        for n in 0..1000 {
            exchange(&mut a, &mut b, n);
        }
        let ((tx_a, rx_a), (tx_b, rx_b)) = (by_xdp(&a), by_xdp(&b));
        assert!(tx_a > 900 && tx_b > 900 && rx_a > 900 && rx_b > 900, "{mode:?}: {tx_a} {rx_a} {tx_b} {rx_b}");
    }
}
