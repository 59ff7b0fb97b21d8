//! Payload checker: every byte is a function of (sender, message, offset), so nothing needs to be
//! stored to check it.

use crate::rng::mix;

/// The key of a message's payload.
#[must_use]
pub fn key(endpoint_id: u64, message: u64) -> u64 {
    mix(endpoint_id ^ mix(message))
}

fn word(key: u64, index: u64) -> u64 {
    // Two rounds of multiplication: neighbouring words differ in most bits, so shifted or swapped
    // data cannot pass.
    let x = (key ^ index.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x ^ (x >> 29)
}

/// Writes the payload's bytes from `offset` on.
pub fn fill(key: u64, offset: u64, dst: &mut [u8]) {
    let mut index = offset / 8;
    let skip = (offset % 8) as usize;
    let mut rest = dst;
    if skip > 0 {
        let n = rest.len().min(8 - skip);
        rest[..n].copy_from_slice(&word(key, index).to_le_bytes()[skip..skip + n]);
        rest = &mut rest[n..];
        index += 1;
    }
    let mut words = rest.chunks_exact_mut(8);
    for chunk in &mut words {
        chunk.copy_from_slice(&word(key, index).to_le_bytes());
        index += 1;
    }
    let tail = words.into_remainder();
    let n = tail.len();
    tail.copy_from_slice(&word(key, index).to_le_bytes()[..n]);
}

/// Offset of the first wrong byte of `data`, which claims to start at `offset`.
#[must_use]
pub fn first_wrong(key: u64, offset: u64, data: &[u8]) -> Option<u64> {
    let mut want = [0; 1024];
    for (i, piece) in data.chunks(want.len()).enumerate() {
        let at = offset + (i * 1024) as u64;
        let want = &mut want[..piece.len()];
        fill(key, at, want);
        if want != piece {
            let wrong = want.iter().zip(piece).position(|(a, b)| a != b).unwrap_or(0);
            return Some(at + wrong as u64);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_agree_with_the_whole() {
        let mut whole = vec![0; 5000];
        fill(7, 3, &mut whole);
        for (from, to) in [(0, 1), (1, 9), (5, 4096), (13, 14), (4990, 5000), (8, 8)] {
            let mut piece = vec![0; to - from];
            fill(7, 3 + from as u64, &mut piece);
            assert_eq!(piece, whole[from..to]);
        }
        assert_eq!(first_wrong(7, 3, &whole), None);
        whole[4321] ^= 1;
        assert_eq!(first_wrong(7, 3, &whole), Some(4324));
        assert!(first_wrong(8, 3, &whole).is_some());
    }
}
