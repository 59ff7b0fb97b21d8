//! Marking packets as a switch does whose queue is long: Congestion Experienced in the IP header of
//! ECN-capable ones (RFC 3168).

const ETHERNET_BYTES: usize = 14;
const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xdd];

/// The ECN bits of an Ethernet frame's IP packet: 0 for one that is not ECN-capable, or no IP.
pub fn bits(frame: &[u8]) -> u8 {
    match (frame.get(12..14), frame.get(ETHERNET_BYTES..ETHERNET_BYTES + 20)) {
        (Some(kind), Some(ip)) if kind == IPV4 && ip[0] >> 4 == 4 => ip[1] & 3,
        (Some(kind), Some(ip)) if kind == IPV6 && ip[0] >> 4 == 6 => ip[1] >> 4 & 3,
        _ => 0,
    }
}

/// Marks a frame that is ECN-capable; others stay as they are.
pub fn mark(frame: &mut [u8]) {
    if !matches!(bits(frame), 1 | 2) {
        return;
    }
    let is_ipv4 = frame[12..14] == IPV4;
    let ip = &mut frame[ETHERNET_BYTES..];
    if !is_ipv4 {
        ip[1] |= 0x30;
        return;
    }
    let word = |ip: &[u8], at: usize| u16::from_be_bytes([ip[at], ip[at + 1]]);
    let (before, sum) = (word(ip, 0), word(ip, 10));
    ip[1] |= 3;
    let after = word(ip, 0);
    // HC' = ~(~HC + ~m + m') of RFC 1624, 3.
    let mut new = u32::from(!sum) + u32::from(!before) + u32::from(after);
    while new > 0xffff {
        new = (new & 0xffff) + (new >> 16);
    }
    ip[10..12].copy_from_slice(&(!(new as u16)).to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The sum over the header, which is 0xffff where the checksum is right.
    fn sum(header: &[u8]) -> u16 {
        let mut sum: u32 = header.chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]]))).sum();
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }

    fn ipv4(mut header: [u8; 20]) -> Vec<u8> {
        header[0] = 0x45;
        (header[10], header[11]) = (0, 0);
        let check = !sum(&header);
        header[10..12].copy_from_slice(&check.to_be_bytes());
        let mut frame = vec![0; 12];
        frame.extend(IPV4);
        frame.extend(header);
        frame
    }

    proptest! {
        #[test]
        fn a_marked_ipv4_header_has_a_right_checksum_and_nothing_else_changed(header: [u8; 20]) {
            let before = ipv4(header);
            let mut after = before.clone();
            mark(&mut after);
            prop_assert_eq!(sum(&after[14..34]), 0xffff);
            let ecn = before[15] & 3;
            prop_assert_eq!(bits(&after), if ecn == 0 { 0 } else { 3 });
            if matches!(ecn, 1 | 2) {
                (after[15], after[24], after[25]) = (before[15], before[24], before[25]);
            }
            prop_assert_eq!(before, after);
        }

        #[test]
        fn of_ipv6_only_the_two_bits_change(mut frame in proptest::collection::vec(any::<u8>(), 54..80), ecn in 0..4u8) {
            frame[12..14].copy_from_slice(&IPV6);
            (frame[14], frame[15]) = (0x60 | frame[14] & 15, frame[15] & 0xcf | ecn << 4);
            let before = frame.clone();
            mark(&mut frame);
            prop_assert_eq!(bits(&frame), if ecn == 0 { 0 } else { 3 });
            frame[15] = before[15];
            prop_assert_eq!(before, frame);
        }

        #[test]
        fn nothing_panics_and_other_protocols_stay_as_they_are(mut frame in proptest::collection::vec(any::<u8>(), 0..60)) {
            let before = frame.clone();
            mark(&mut frame);
            if bits(&before) == 0 {
                prop_assert_eq!(before, frame);
            }
        }
    }
}
