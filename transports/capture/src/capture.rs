//! Writes what is sent and received to a pcapng file, which Wireshark reads (with
//! `tools/wireshark/weir.lua` it knows the protocol too).
//!
//! Format: draft-ietf-opsawg-pcapng, blocks section header, interface description (link type RAW:
//! an IP header comes first), enhanced packet. The IP and UDP headers are made up from the
//! addresses, so that every tool can tell the flows apart. A datagram is written when it is pushed:
//! one that the kernel then refuses is in the file too. When the file cannot be written (disk full)
//! capture ends with one warning, and the file behind its last whole block; traffic goes on.

use crate::records::RecordFile;
use crate::unshared::create_unshared;
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A running process's file is never older than this, as long as there is traffic.
const FLUSH_INTERVAL: Duration = Duration::from_millis(200);

/// Which way a datagram went; the value is that of the direction bits of pcapng's `epb_flags`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    In = 1,
    Out = 2,
}

/// Is told, in one line, why a capture has ended before its time.
pub type Ended = Box<dyn Fn(&str) + Send>;

/// An open capture file.
pub struct Capture {
    path: PathBuf,
    /// `None` after a failure.
    file: Option<RecordFile>,
    flushed: Instant,
    ended: Ended,
    record: Vec<u8>,
}

impl Capture {
    /// Creates (or empties) the file; `None` if another endpoint writes it.
    pub fn create(path: &Path, ended: Ended) -> io::Result<Option<Capture>> {
        let Some(file) = create_unshared(path)? else { return Ok(None) };
        let mut file = RecordFile::new(file, 256 << 10);
        // One record, for a section without its interface is no capture.
        file.append(&[&section_header()[..], &interface_description()].concat())?;
        let now = Instant::now();
        Ok(Some(Capture { path: path.to_owned(), file: Some(file), flushed: now, record: Vec::new(), ended }))
    }

    /// Writes one datagram.
    pub fn datagram(&mut self, direction: Direction, from: SocketAddr, to: SocketAddr, parts: &[IoSlice<'_>]) {
        let Some(file) = &mut self.file else { return };
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.record.clear();
        packet_block(&mut self.record, direction, time, from, to, parts);
        let mut result = file.append(&self.record);
        let now = Instant::now();
        if result.is_ok() && now.duration_since(self.flushed) >= FLUSH_INTERVAL {
            self.flushed = now;
            result = file.flush();
        }
        if let Err(e) = result {
            self.stop(&e);
        }
    }

    /// Still writing?
    pub fn is_running(&self) -> bool {
        self.file.is_some()
    }

    fn stop(&mut self, e: &io::Error) {
        self.file = None;
        (self.ended)(&format!("packet capture to {} stopped: {e}", self.path.display()));
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        if let Some(file) = &mut self.file
            && let Err(e) = file.flush()
        {
            self.stop(&e);
        }
    }
}

fn section_header() -> [u8; 28] {
    let mut b = [0; 28];
    b[0..4].copy_from_slice(&0x0a0d_0d0a_u32.to_le_bytes());
    b[4..8].copy_from_slice(&28u32.to_le_bytes());
    b[8..12].copy_from_slice(&0x1a2b_3c4d_u32.to_le_bytes());
    b[12..14].copy_from_slice(&1u16.to_le_bytes());
    b[16..24].copy_from_slice(&(-1i64).to_le_bytes());
    b[24..28].copy_from_slice(&28u32.to_le_bytes());
    b
}

fn interface_description() -> [u8; 32] {
    const LINKTYPE_RAW: u16 = 101;
    const IF_TSRESOL: u16 = 9;
    let mut b = [0; 32];
    b[0..4].copy_from_slice(&1u32.to_le_bytes());
    b[4..8].copy_from_slice(&32u32.to_le_bytes());
    b[8..10].copy_from_slice(&LINKTYPE_RAW.to_le_bytes());
    // Time stamps in 10^-9 s.
    b[16..18].copy_from_slice(&IF_TSRESOL.to_le_bytes());
    b[18..20].copy_from_slice(&1u16.to_le_bytes());
    b[20] = 9;
    b[28..32].copy_from_slice(&32u32.to_le_bytes());
    b
}

fn packet_block(
    out: &mut Vec<u8>,
    direction: Direction,
    time: Duration,
    from: SocketAddr,
    to: SocketAddr,
    parts: &[IoSlice<'_>],
) {
    const EPB_FLAGS: u16 = 2;
    let nanos = time.as_nanos() as u64;
    out.extend_from_slice(&6u32.to_le_bytes());
    // The block's length, known at the end.
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&0u32.to_le_bytes());
    out.extend_from_slice(&((nanos >> 32) as u32).to_le_bytes());
    out.extend_from_slice(&(nanos as u32).to_le_bytes());
    // The packet's length, captured and original.
    out.extend_from_slice(&[0; 8]);
    let start = out.len();
    packet(out, from, to, parts);
    let len = (out.len() - start) as u32;
    out[start - 8..start - 4].copy_from_slice(&len.to_le_bytes());
    out[start - 4..start].copy_from_slice(&len.to_le_bytes());
    out.resize(out.len().next_multiple_of(4), 0);
    out.extend_from_slice(&EPB_FLAGS.to_le_bytes());
    out.extend_from_slice(&4u16.to_le_bytes());
    out.extend_from_slice(&(direction as u32).to_le_bytes());
    // End of options.
    out.extend_from_slice(&[0; 4]);
    let total = (out.len() + 4) as u32;
    out.extend_from_slice(&total.to_le_bytes());
    out[4..8].copy_from_slice(&total.to_le_bytes());
}

/// IP header, UDP header, payload.
fn packet(out: &mut Vec<u8>, from: SocketAddr, to: SocketAddr, parts: &[IoSlice<'_>]) {
    let payload: usize = parts.iter().map(|p| p.len()).sum();
    let udp_len = u16::try_from(payload + 8).unwrap_or(u16::MAX);
    let v4 = from.is_ipv4() && to.is_ipv4();
    match (from.ip(), to.ip()) {
        (IpAddr::V4(a), IpAddr::V4(b)) => {
            let at = out.len();
            out.extend_from_slice(&[0x45, 0]);
            out.extend_from_slice(&udp_len.saturating_add(20).to_be_bytes());
            // Identification 0, don't fragment, 64 hops, UDP, checksum below.
            out.extend_from_slice(&[0, 0, 0x40, 0, 64, 17, 0, 0]);
            out.extend_from_slice(&a.octets());
            out.extend_from_slice(&b.octets());
            let sum = checksum(0, &out[at..]);
            out[at + 10..at + 12].copy_from_slice(&sum.to_be_bytes());
        }
        (a, b) => {
            let v6 = |ip: IpAddr| match ip {
                IpAddr::V4(v4) => v4.to_ipv6_mapped(),
                IpAddr::V6(v6) => v6,
            };
            out.extend_from_slice(&[0x60, 0, 0, 0]);
            out.extend_from_slice(&udp_len.to_be_bytes());
            out.extend_from_slice(&[17, 64]);
            out.extend_from_slice(&v6(a).octets());
            out.extend_from_slice(&v6(b).octets());
        }
    }
    let udp_at = out.len();
    out.extend_from_slice(&from.port().to_be_bytes());
    out.extend_from_slice(&to.port().to_be_bytes());
    out.extend_from_slice(&udp_len.to_be_bytes());
    out.extend_from_slice(&[0, 0]);
    parts.iter().for_each(|p| out.extend_from_slice(p));
    if !v4 {
        // Over IPv6 the UDP checksum is not optional (RFC 8200 section 8.1): pseudo header
        // (addresses, length, protocol), then all of UDP.
        let pseudo = sum_words(u32::from(udp_len) + 17, &out[udp_at - 32..udp_at]);
        let sum = match checksum(pseudo, &out[udp_at..]) {
            0 => 0xffff,
            n => n,
        };
        out[udp_at + 6..udp_at + 8].copy_from_slice(&sum.to_be_bytes());
    }
}

fn sum_words(start: u32, bytes: &[u8]) -> u32 {
    bytes.chunks(2).fold(start, |sum, w| {
        let next = sum + u32::from(u16::from_be_bytes([w[0], w.get(1).copied().unwrap_or(0)]));
        (next & 0xffff) + (next >> 16)
    })
}

/// The Internet checksum (RFC 1071).
fn checksum(start: u32, bytes: &[u8]) -> u16 {
    let sum = sum_words(start, bytes);
    !((sum & 0xffff) + (sum >> 16)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_the_ones_of_the_rfc() {
        // RFC 1071 section 3: the sum of these is ddf2.
        assert_eq!(checksum(0, &[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), !0xddf2);
        assert_eq!(checksum(0, &[0xff]), !0xff00);
    }

    #[test]
    fn blocks_are_framed_by_their_length_and_padded() {
        let (a, b) = ("10.0.0.1:5".parse().expect("an address"), "10.0.0.2:6".parse().expect("an address"));
        for len in 0..9 {
            let mut out = Vec::new();
            packet_block(&mut out, Direction::Out, Duration::from_nanos(1), a, b, &[IoSlice::new(&vec![7; len])]);
            let total = out.len() as u32;
            assert_eq!(total % 4, 0);
            assert_eq!(out[4..8], total.to_le_bytes());
            assert_eq!(out[out.len() - 4..], total.to_le_bytes());
            assert_eq!(out[20..24], (28 + len as u32).to_le_bytes());
        }
    }
}
