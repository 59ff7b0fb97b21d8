//! Damaging packets on purpose.

use crate::model::Corruption;

const ETHERNET_BYTES: usize = 14;

/// Damages a packet as the model decided. The Ethernet header stays intact, so that the packet
/// still arrives.
pub fn damage(packet: &mut [u8], corruption: Corruption) {
    match corruption {
        Corruption::FlipBit(number) => {
            let body = packet.get_mut(ETHERNET_BYTES..).unwrap_or_default();
            if !body.is_empty() {
                let bit = (number % (body.len() as u64 * 8)) as usize;
                body[bit / 8] ^= 1 << (bit % 8);
            }
        }
        Corruption::SwapWords(number) => swap_words(packet, number),
    }
}

/// Exchanges two different words of the payload of UDP or TCP. The Internet checksum is a sum of
/// words, so it holds.
fn swap_words(packet: &mut [u8], number: u64) {
    let Some(at) = payload(packet) else { return };
    let words = (packet.len() - at) / 2;
    if words < 2 {
        return;
    }
    let first = (number % words as u64) as usize;
    // The nearest word that differs from the first: exchanging equal words would be no damage.
    let word = |i: usize| [packet[at + 2 * i], packet[at + 2 * i + 1]];
    let Some(second) = (1..words).map(|d| (first + d) % words).find(|i| word(*i) != word(first)) else {
        return;
    };
    for half in 0..2 {
        packet.swap(at + 2 * first + half, at + 2 * second + half);
    }
}

/// Where the payload of UDP or TCP begins; always an even distance from the IP header.
fn payload(packet: &[u8]) -> Option<usize> {
    let ip = packet.get(ETHERNET_BYTES..)?;
    let (protocol, header) = match (u16::from_be_bytes([*packet.get(12)?, *packet.get(13)?]), ip.first()? >> 4) {
        (0x0800, 4) => (*ip.get(9)?, usize::from(ip[0] & 15) * 4),
        (0x86dd, 6) => (*ip.get(6)?, 40),
        _ => return None,
    };
    let transport = match protocol {
        17 => 8,
        6 => usize::from(ip.get(header + 12)? >> 4) * 4,
        _ => return None,
    };
    let at = ETHERNET_BYTES + header + transport;
    (at < packet.len()).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn udp(payload: &[u8]) -> Vec<u8> {
        let mut packet = vec![0; 14 + 20 + 8];
        packet[12] = 8;
        packet[14] = 0x45;
        packet[14 + 9] = 17;
        packet.extend_from_slice(payload);
        packet
    }

    fn sum(packet: &[u8]) -> u16 {
        let words = packet.chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(*w.get(1).unwrap_or(&0)));
        let mut sum: u32 = words.sum();
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }

    proptest! {
        #[test]
        fn swapped_words_change_the_payload_but_not_the_sum(
            payload in proptest::collection::vec(any::<u8>(), 4..200),
            number: u64,
        ) {
            let before = udp(&payload);
            let mut after = before.clone();
            damage(&mut after, Corruption::SwapWords(number));
            let words: Vec<_> = payload.chunks_exact(2).collect();
            if words.windows(2).any(|w| w[0] != w[1]) {
                prop_assert_ne!(&before, &after);
            }
            prop_assert_eq!(sum(&before), sum(&after));
            prop_assert_eq!(&before[..42], &after[..42]);
        }

        #[test]
        fn a_flip_changes_one_bit_behind_the_ethernet_header(
            packet in proptest::collection::vec(any::<u8>(), 15..200),
            number: u64,
        ) {
            let mut after = packet.clone();
            damage(&mut after, Corruption::FlipBit(number));
            let bits: u32 = packet.iter().zip(&after).map(|(a, b)| (a ^ b).count_ones()).sum();
            prop_assert_eq!(bits, 1);
            prop_assert_eq!(&packet[..14], &after[..14]);
        }

        #[test]
        fn nothing_panics(mut packet in proptest::collection::vec(any::<u8>(), 0..80), number: u64) {
            damage(&mut packet, Corruption::FlipBit(number));
            damage(&mut packet, Corruption::SwapWords(number));
        }
    }
}
