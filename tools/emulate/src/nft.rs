//! Random loss by nftables, spoken over netlink: the `nft` program is not needed.

use crate::netlink::{ACK, CREATE, DUMP, Message, Netlink, attribute, attributes};
use std::io;

const SUBSYSTEM: u16 = 10 << 8;
const NEW_TABLE: u16 = SUBSYSTEM;
const NEW_CHAIN: u16 = SUBSYSTEM | 3;
const NEW_RULE: u16 = SUBSYSTEM | 6;
const GET_RULE: u16 = SUBSYSTEM | 7;
const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;
const FAMILY_NETDEV: u8 = 5;
const TABLE: &str = "weir";
const MODULUS: u32 = 1_000_000;

fn head(family: u8, resource: u16) -> [u8; 4] {
    let [high, low] = resource.to_be_bytes();
    [family, 0, high, low]
}

/// Drops each packet that `interface` receives with this probability, and counts the drops.
pub fn drop_received(netlink: &mut Netlink, interface: &str, probability: f64) -> io::Result<()> {
    let mut table = Message::new(NEW_TABLE, ACK | CREATE, &head(FAMILY_NETDEV, 0));
    table.string(1, TABLE);
    let mut chain = Message::new(NEW_CHAIN, ACK | CREATE, &head(FAMILY_NETDEV, 0));
    chain.string(1, TABLE).string(3, interface);
    chain.nest(4, |m| {
        m.be32(1, 0).be32(2, 0).string(3, interface); // hook ingress, priority 0, device
    });
    chain.be32(5, 1).string(7, "filter"); // policy accept
    let mut rule = Message::new(NEW_RULE, ACK | CREATE, &head(FAMILY_NETDEV, 0));
    rule.string(1, TABLE).string(2, interface);
    let bound = (probability.clamp(0.0, 1.0) * f64::from(MODULUS)).round() as u32;
    rule.nest(4, |m| expressions(m, bound));
    let messages =
        vec![Message::new(BATCH_BEGIN, 0, &head(0, 10)), table, chain, rule, Message::new(BATCH_END, 0, &head(0, 10))];
    netlink.transaction(messages, 3)
}

/// `numgen random mod 1000000 < bound counter drop`.
fn expressions(rule: &mut Message, bound: u32) {
    const REGISTER: u32 = 1;
    let mut expression = |name: &str, fill: &dyn Fn(&mut Message)| {
        rule.nest(1, |m| {
            m.string(1, name).nest(2, |m| fill(m));
        });
    };
    expression("numgen", &|m| {
        m.be32(1, REGISTER).be32(2, MODULUS).be32(3, 1); // random
    });
    // The generator writes in host order, the comparison is of bytes: bring the number into network
    // order.
    expression("byteorder", &|m| {
        m.be32(1, REGISTER).be32(2, REGISTER).be32(3, 1).be32(4, 4).be32(5, 4);
    });
    expression("cmp", &|m| {
        m.be32(1, REGISTER).be32(2, 2).nest(3, |m| {
            m.be32(1, bound); // less than
        });
    });
    expression("counter", &|_| {});
    expression("immediate", &|m| {
        m.be32(1, 0).nest(2, |m| {
            m.nest(2, |m| {
                m.be32(1, 0); // verdict drop
            });
        });
    });
}

/// Packets dropped so far by the rule of [`drop_received`].
pub fn dropped(netlink: &mut Netlink, interface: &str) -> io::Result<u64> {
    let mut message = Message::new(GET_RULE, DUMP, &head(FAMILY_NETDEV, 0));
    message.string(1, TABLE).string(2, interface);
    let mut packets = 0;
    netlink.dump(message, |body| {
        let rule = body.get(4..).unwrap_or_default();
        for (_, element) in attributes(attribute(rule, 4).unwrap_or_default()) {
            if attribute(element, 1) == Some(b"counter\0") {
                let count = attribute(element, 2).and_then(|data| attribute(data, 2));
                packets += count.and_then(|b| b.try_into().ok()).map_or(0, u64::from_be_bytes);
            }
        }
    })?;
    Ok(packets)
}
