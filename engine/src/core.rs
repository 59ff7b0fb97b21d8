//! One endpoint's heart, behind the lock: reads the socket, feeds the protocol, dispatches its
//! events, writes what is due.
//!
//! The contract with the pure layers below: after each call that changes them, transmit until they
//! have nothing to say. What happens to sends, receives and remote memory operations is decided in
//! `weir_message`.

use crate::bulk_connections::BulkConnections;
use crate::clock;
use crate::device::Device;
use crate::memory::{Gather, slices_of};
use crate::sctp::Sctp;
use crate::shm::SharedMemory;
use crate::state::State;
use crate::{Completion, Queue};
use smallvec::SmallVec;
use std::io::IoSlice;
use std::os::fd::RawFd;
use weir_link::{PacketBuf, PeerId, RxMeta, Time};
use weir_message::SendOp;
use weir_net::Datagrams;
use weir_session::Carrier;

/// Datagram batches read in one progress call before sends get their turn.
const RX_BATCHES: usize = 8;
/// So many looks in a row that find nothing have looked at all sockets of a device, also where one
/// is looked at in one of 32 looks only (`transports/xdp/src/pair.rs`).
const EMPTY_LOOKS: usize = 40;
/// A datagram that waits takes at least so many bytes of a socket's buffer.
const DATAGRAM_BYTES_MIN: u64 = 512;
/// Packets written in one progress call before arrivals get their turn: about 1 MiB.
const TX_PACKETS: usize = 768;
/// Packets built before they go out: what one segmentation-offload batch holds.
const FLUSH_PACKETS: usize = 44;
/// The first go out sooner, so that the peer has something to do while the next are built; a
/// message of 64 KiB goes in two halves and not as 44 packets and 3. Each batch costs a system
/// call.
const FIRST_FLUSH_PACKETS: usize = 24;
/// Failed reads of the socket in a row after which it is given up. What the system can lack for a
/// moment (memory) comes back sooner.
const READ_FAILURES_MAX: u32 = 1000;

/// Where short messages have waited so long for others, which takes 16 of them less, the next so
/// many sends go at once: twice as many each time, until some have left soon.
const TOGETHER_LONG_NS: u64 = 20_000;
const APART: u16 = 64;
const APART_MAX: u16 = 4096;

/// While peers of this host send, the sockets are looked at so often, if nothing is awaited there:
/// a look costs as much as two short messages through memory, and what it may find is a first
/// contact.
const SOCKET_GAP_NS: u64 = 100_000;
/// The same where packets are awaited: short against a network's round trip. In each pass once no
/// peer of this host has sent for so long: then it is packets that the program waits for. (Half a
/// round trip of two ranks of one host, beside a third: 1.33 us; where each pass looks 2.1 to 2.3.
/// docs/lab/2026-11-25-instructions.md)
const AWAITED_GAP_NS: u64 = 5_000;
/// Peers of this host that sent nothing for so long do not keep the sockets waiting.
const SHM_QUIET_NS: u64 = 1_000_000;

/// While what comes comes by bulk connections, datagrams are looked for so often: each look is a
/// system call before the one that finds something.
const TCP_CAME_GAP_NS: u64 = 1_500;

/// An endpoint that talks to nobody is looked at so often by who polls it: first contact may be so
/// late, while a look costs several system calls. Who sleeps on its descriptors is woken at once.
pub const QUIET_GAP_NS: u64 = 30_000;

/// While the socket has no room, timers wait for it or for this long: without room they can do
/// little.
const BLOCKED_NS: u64 = 1_000_000;

/// The state behind the endpoint's lock.
pub struct Core {
    pub device: Device,
    /// Connections for large payload, if this endpoint takes them.
    pub bulk_connections: Option<BulkConnections>,
    /// Memory shared with peers of this host, if this endpoint shares any.
    pub shm: Option<SharedMemory>,
    /// Else why, for people.
    pub no_shm: String,
    /// SCTP, if this endpoint takes it.
    pub sctp: Option<Sctp>,
    /// Packets of some peer are to be expected.
    packets_expected: bool,
    /// What came last came by a bulk connection.
    tcp_came: bool,
    /// When a record was last found.
    shm_found: Time,
    /// Somebody sleeps, or has slept since the last pass: peers wake this endpoint by shared
    /// memory.
    asleep: bool,
    /// Completions of sends, of receives: nobody takes them.
    pub untaken: [bool; 2],
    /// Nobody talks to this endpoint, and it to nobody. As of `judged`, and until it has something
    /// to say.
    quiet: bool,
    judged: Time,
    pub st: State,
    out: PacketBuf,
    /// Bytes queued that no transmit pass has seen, roughly.
    pub held_bytes: usize,
    /// In so many messages.
    pub held_messages: usize,
    /// Since when more than a packet's worth waits; and how many sends are not to, for some have
    /// waited long, of how many.
    together_since: Option<Time>,
    apart: u16,
    apart_of: u16,
    /// When sends to several peers were last expected, or the last of these was made.
    pub batch_at: Time,
    /// Something was sent since the watchdog's last pass.
    pub sent: bool,
    /// Reads of the socket that failed, in a row.
    read_failures: u32,
    /// Closed to the end: nothing is read or written any more, for the payloads are the caller's
    /// again.
    pub finished: bool,
}

impl Core {
    pub fn new(
        device: Device,
        bulk_connections: Option<BulkConnections>,
        shm: Result<SharedMemory, String>,
        sctp: Option<Sctp>,
        st: State,
    ) -> Core {
        Core {
            device,
            bulk_connections,
            no_shm: shm.as_ref().err().cloned().unwrap_or_default(),
            shm: shm.ok(),
            sctp,
            asleep: false,
            untaken: [false; 2],
            quiet: false,
            judged: Time::ZERO,
            packets_expected: true,
            tcp_came: false,
            shm_found: Time::ZERO,
            st,
            out: PacketBuf::default(),
            held_bytes: 0,
            held_messages: 0,
            together_since: None,
            apart: 0,
            apart_of: 0,
            batch_at: Time::ZERO,
            sent: false,
            read_failures: 0,
            finished: false,
        }
    }

    /// Ends what there is with a peer, at once.
    pub fn drop_peer(&mut self, now: Time, peer: u32) {
        self.st.messages.remove_peer(now, peer);
        // (Packets carry nothing of what it has with itself, and their end would end nothing.)
        if self.st.messages.end_own(now, peer) {
            return;
        }
        if !self.shm.as_mut().is_some_and(|shm| shm.drop_peer(&mut self.st, now, PeerId(peer))) {
            self.st.messages.close_peer(now, peer);
        }
    }

    /// The pass of progress of somebody who passes again soon: an endpoint that talks to nobody is
    /// spared most of them.
    #[inline]
    pub fn progress_polled(&mut self, now: Time) -> usize {
        // Whoever has slept may have been woken by what is there to be read.
        let spared = !self.asleep && now < self.quiet_until() && self.st.messages.next_timeout().is_none();
        if spared { 0 } else { self.progress(now) }
    }

    /// Until when there is no need to look at an endpoint that talks to nobody.
    #[inline]
    pub fn quiet_until(&self) -> Time {
        if self.quiet { self.st.last_look.plus_ns(QUIET_GAP_NS) } else { Time::ZERO }
    }

    /// Reads what has arrived, runs timers, writes what is due. Returns the datagrams and records
    /// read.
    pub fn progress(&mut self, now: Time) -> usize {
        let read = self.pass(now);
        if self.untaken != [false; 2] {
            self.throw_untaken_away(now);
        }
        read
    }

    /// Completions that nobody ever takes: else they would fill the memory, and who writes here
    /// with immediate data would wait for ever for the place that a notice takes.
    #[cold]
    fn throw_untaken_away(&mut self, now: Time) {
        let ([sent, received], messages) = (self.untaken, &mut self.st.messages);
        if sent {
            messages.take_sent(usize::MAX, |_| ());
        }
        if received {
            messages.take_received(now, usize::MAX, |_| ());
        }
        if messages.wants_transmit() {
            self.transmit(now);
        }
    }

    /// Hands out up to `max` completions of a queue, oldest first. Returns how many.
    #[inline]
    pub fn take(&mut self, queue: Queue, max: usize, now: Time, each: impl FnMut(&Completion)) -> usize {
        let messages = &mut self.st.messages;
        match queue {
            Queue::Send => messages.take_sent(max, each),
            Queue::Recv => messages.take_received(now, max, each),
            Queue::Both => messages.take_both(now, max, each),
        }
    }

    fn pass(&mut self, now: Time) -> usize {
        if self.finished || self.st.messages.broken().is_some() {
            return 0;
        }
        while let Some(peer) = self.st.messages.take_refused() {
            self.drop_peer(now, peer);
        }
        let mut read = 0;
        let slept = std::mem::take(&mut self.asleep);
        if slept && let Some(bulk_connections) = &mut self.bulk_connections {
            bulk_connections.has_slept();
        }
        if let Some(shm) = &mut self.shm {
            if slept {
                shm.cancel_sleep();
            }
            read = shm.progress(&mut self.st, now);
            let left = shm.has_left();
            if shm.is_used() && self.held_bytes == 0 && !self.is_socket_due(now, read > 0, left) {
                self.transmit_here(now);
                return read;
            }
        }
        read += self.progress_packets(now, slept);
        if slept
            && read == 0
            && let Some(shm) = &mut self.shm
        {
            shm.looks_soon();
        }
        // (Asked where the sockets were looked at, not in each pass: it may look at many peers.)
        self.packets_expected = self.shm.is_some() && self.st.proto().expects_packets();
        self.quiet &= read == 0;
        if read == 0 && now.since_ns(self.judged) >= QUIET_GAP_NS {
            (self.quiet, self.judged) = (self.is_quiet(), now);
        }
        read
    }

    /// Nobody talks to this endpoint, and it to nobody, as of when that was last judged; and
    /// nothing has begun since.
    pub fn is_left_alone(&self) -> bool {
        self.quiet
            && self.held_bytes == 0
            && self.st.messages.next_timeout().is_none()
            && self.shm.as_ref().is_none_or(|shm| !shm.has_peers())
    }

    /// Nobody talks to this endpoint, and it to nobody: no association, nothing to be sent, no
    /// timer.
    fn is_quiet(&self) -> bool {
        self.next_timeout().is_none()
            && self.device.blocked_at().is_none()
            && self.shm.as_ref().is_none_or(|shm| !shm.has_peers())
            && !self.st.proto().has_associations()
    }

    /// Whether it is time to look at the sockets, where memory is shared with peers: a look costs
    /// several times what a look at all rings does. A pass that found something in memory, and
    /// `left` the rest of what is shared to a later one, leaves the sockets to that too, if nothing
    /// is awaited there: who has its message does not wait for a look.
    fn is_socket_due(&mut self, now: Time, found: bool, left: bool) -> bool {
        if found {
            self.shm_found = now;
        }
        if left && !self.packets_expected {
            return false;
        }
        let (quiet, gap) =
            if self.packets_expected { (AWAITED_GAP_NS, AWAITED_GAP_NS) } else { (SHM_QUIET_NS, SOCKET_GAP_NS) };
        now.since_ns(self.st.last_look) >= gap || now.since_ns(self.shm_found) > quiet
    }

    /// A peer was made known: what carries what is sent to it (`policy.rs`).
    pub fn choose_carrier(&mut self, peer: u32) {
        if self.shm.is_none() {
            return;
        }
        let sessions = self.st.proto_mut().sessions_mut();
        let fresh = |s: &weir_session::Session| !s.is_up() && !s.has_open() && s.down().is_none();
        if sessions.get(PeerId(peer)).is_some_and(fresh) {
            sessions.set_carrier(PeerId(peer), Carrier::Shm);
        }
    }

    /// Puts a short send into memory shared with its peer, if nothing keeps it from going at once.
    /// False: it is to be sent as any other.
    #[inline]
    pub fn send_straight(&mut self, op: &SendOp<Gather>) -> bool {
        self.shm.as_mut().is_some_and(|shm| shm.send_straight(&mut self.st, op))
    }

    /// Sends a short message in a packet of its own, if nothing else is under way with its peer
    /// that it would have to go with. False: it is to be sent as any other.
    #[inline]
    pub fn send_alone(&mut self, now: Time, op: &SendOp<Gather>) -> bool {
        if self.finished || self.device.blocked_at().is_some() {
            return false;
        }
        let Some(t) = self.st.messages.send_alone(now, op, &mut self.out) else { return false };
        self.device.send_now(now.0, (t.remote, t.local), &self.out.head);
        true
    }

    /// Whether something waits to go by a TCP connection to this peer.
    #[inline]
    pub fn waits_for_tcp(&self, peer: u32) -> bool {
        self.st.proto().sessions().get(PeerId(peer)).is_some_and(weir_session::Session::waits_for_bulk)
    }

    /// Whether short messages are to wait for others, from now on; not where some have waited long:
    /// a program that computes between its sends and its polls is to have them under way meanwhile.
    pub fn waits_for_others(&mut self, now: Time) -> bool {
        if self.apart > 0 {
            self.apart -= 1;
            return false;
        }
        self.together_since.get_or_insert(now);
        true
    }

    /// Hands over what was just sent to a peer whose carrier needs no socket. False: it takes
    /// packets.
    #[inline]
    pub fn transmit_unless_packets(&mut self, now: Time, peer: u32) -> bool {
        let carrier = self.st.proto().sessions().get(PeerId(peer)).map(weir_session::Session::carrier);
        if !matches!(carrier, Some(Carrier::Shm | Carrier::Loopback)) {
            return false;
        }
        self.transmit_here(now);
        // A carrier that could not be had has left it to packets.
        !self.st.proto().sessions().has_touched(Carrier::Link)
    }

    /// What needs no socket: what this endpoint sends to itself, and to peers of this host.
    fn transmit_here(&mut self, now: Time) {
        self.quiet = false;
        self.st.messages.carry_own(now);
        if let Some(shm) = &mut self.shm {
            shm.offer(&mut self.st, now);
        }
    }

    /// What SCTP has to send: it goes by the socket.
    fn transmit_sctp(&mut self, now: Time) {
        if let Some(sctp) = &mut self.sctp {
            sctp.offer(&mut self.st, now);
            sctp.flush(&self.st, &mut self.device, now);
        }
    }

    /// What may wait in this host's interface is as a superstep wants it, or as it was set.
    pub fn bound_backlog(&mut self, now: Time) {
        let bytes = self.st.proto().own_queue_bytes(now);
        self.device.set_backlog(bytes);
    }

    /// Somebody is about to sleep on the descriptors. False: there is something to do first.
    pub fn prepare_sleep(&mut self) -> bool {
        // (What one of the two has prepared the next pass undoes.)
        self.asleep = self.device.prepare_sleep() && self.shm.as_mut().is_none_or(SharedMemory::prepare_sleep);
        self.asleep
    }

    /// Whether peers are to wake somebody by shared memory: who is asleep on the descriptors, or
    /// about to be.
    pub fn is_asleep(&self) -> bool {
        self.asleep
    }

    /// Lets go of all that connects this endpoint with peers, but for the sockets.
    pub fn close_connections(&mut self) {
        if let Some(bulk_connections) = &mut self.bulk_connections {
            bulk_connections.close();
        }
        if let Some(shm) = &mut self.shm {
            shm.close();
        }
        if let Some(sctp) = &mut self.sctp {
            sctp.close();
        }
    }

    /// After closing: what was accepted has arrived, and the peers know: the last packets, which
    /// say so, have left the device.
    pub fn is_drained(&mut self) -> bool {
        let has_left = self.blocked_at().is_none() && self.device.next_leaving_ns().is_none();
        has_left && self.st.proto().is_drained() && self.shm.as_mut().is_none_or(|shm| shm.is_drained(&self.st))
    }

    /// Reads what datagrams there are. Returns how many, and the time, which has gone on if there
    /// were any.
    fn read_datagrams(&mut self, mut now: Time) -> (usize, Time) {
        let before = now;
        let (st, sctp) = (&mut self.st, &mut self.sctp);
        let receiver_delay_ns = u32::try_from(now.0.saturating_sub(st.last_look.0)).unwrap_or(u32::MAX);
        st.counters.polls += 1;
        let result = self.device.recv(now.0, RX_BATCHES, |info, datagram| {
            // Between the reading of the clock and that of the socket this thread may have lost its
            // core, and the datagram have arrived: with the old time it would have come in less
            // than a round trip.
            if info.fresh {
                now = clock::now();
            }
            if sctp.as_mut().is_some_and(|sctp| sctp.datagram(st, now, info.remote, datagram)) {
                return;
            }
            let meta = RxMeta { remote: info.remote, local: info.local, receiver_delay_ns, ecn: info.ecn };
            st.messages.datagram(now, meta, datagram);
        });
        st.last_look = before;
        match result {
            Ok(read) => {
                self.read_failures = 0;
                (read, now)
            }
            Err(e) => {
                self.read_failed(now, &e);
                (0, now)
            }
        }
    }

    /// Reads what the sockets and connections have, runs timers, writes. Returns what was read.
    fn progress_packets(&mut self, mut now: Time, slept: bool) -> usize {
        if self.held_bytes > 0 {
            // Its receiver waits for it meanwhile.
            self.transmit(now);
            now = clock::now();
        }
        let is_spared = self.tcp_came && !slept && now.since_ns(self.st.last_look) < TCP_CAME_GAP_NS;
        let (mut read, mut now) = if is_spared { (0, now) } else { self.read_datagrams(now) };
        self.tcp_came &= read == 0;
        if self.st.proto().wants_all_read() {
            self.read_all(now);
        }
        let st = &mut self.st;
        self.device.take_refused(|remote| st.proto_mut().refused(now, remote));
        if st.messages.next_timeout().is_some_and(|t| t <= now) {
            st.messages.timeouts(now);
        }
        if let Some(sctp) = &mut self.sctp {
            sctp.progress(st, now);
        }
        if let Some(bulk_connections) = &mut self.bulk_connections
            && bulk_connections.progress(st, now, read > 0) > 0
        {
            read += 1;
            // (With XDP a look at the rings costs no system call.)
            self.tcp_came = !self.device.device().device().has_xdp();
            // Megabytes may have been copied meanwhile.
            now = clock::now();
        }
        self.transmit(now);
        read
    }

    /// Reads all that has arrived: somebody is about to be judged by silence, and may have been
    /// heard.
    #[cold]
    fn read_all(&mut self, now: Time) {
        let (st, sctp) = (&mut self.st, &mut self.sctp);
        let (mut empty, mut read) = (0, 0);
        // As much as fits into the buffer and the ring beside it, if they fill as fast as they are
        // read.
        let buffer = usize::try_from(self.device.rx_buffer_bytes() / DATAGRAM_BYTES_MIN).unwrap_or(usize::MAX);
        let ring = if self.device.device().device().has_xdp() { weir_xdp::RECORDS_MAX } else { 0 };
        let most = buffer.saturating_add(ring);
        while empty < EMPTY_LOOKS && read < most {
            let result = self.device.recv(now.0, RX_BATCHES, |info, datagram| {
                if sctp.as_mut().is_some_and(|sctp| sctp.datagram(st, clock::now(), info.remote, datagram)) {
                    return;
                }
                let meta =
                    RxMeta { remote: info.remote, local: info.local, receiver_delay_ns: u32::MAX, ecn: info.ecn };
                st.messages.datagram(clock::now(), meta, datagram);
            });
            match result {
                Ok(0) => empty += 1,
                Ok(n) => (empty, read) = (0, read + n),
                // The next look finds it too, and tells.
                Err(_) => break,
            }
        }
        st.proto_mut().has_read_all(now);
    }

    /// The socket could not be read. Some errors say that it never will be again; others may pass.
    #[cold]
    fn read_failed(&mut self, now: Time, e: &std::io::Error) {
        let errno = e.raw_os_error().unwrap_or(libc::EIO);
        self.read_failures += 1;
        let passing = matches!(errno, libc::ENOMEM | libc::ENOBUFS) && self.read_failures < READ_FAILURES_MAX;
        if passing {
            self.st.counters.socket_errors += 1;
        } else if self.st.messages.broken().is_none() {
            self.st.counters.socket_errors += 1;
            let telling = self.st.messages.sink_mut();
            telling.trace.socket_failed(errno);
            self.st.messages.fail_all(now, errno);
            if let Some(bulk_connections) = &mut self.bulk_connections {
                bulk_connections.close();
            }
        }
    }

    /// Writes what the protocol has to say.
    pub fn transmit(&mut self, now: Time) {
        if self.finished {
            return;
        }
        if self.st.messages.broken().is_some() {
            // What this endpoint has sent to itself can still be received.
            return self.st.messages.carry_own(now);
        }
        (self.held_bytes, self.held_messages) = (0, 0);
        if let Some(since) = self.together_since.take() {
            let was_long = now.since_ns(since) >= TOGETHER_LONG_NS;
            self.apart_of = if was_long { (2 * self.apart_of).clamp(APART, APART_MAX) } else { 0 };
            self.apart = self.apart_of;
        }
        self.st.messages.begin_transmit();
        self.transmit_here(now);
        if self.device.blocked_at().is_some() {
            self.device.flush(now.0);
            if self.device.blocked_at().is_some() {
                // What the protocol has to say waits there, where it is still the newest, until
                // there is room (`blocked_at`).
                return self.transmit_bulk_connections(now);
            }
        }
        self.transmit_sctp(now);
        if self.st.proto().own_queue_follows() {
            // (Who is in line decides over the bound, and has to be there before the first packet.)
            self.st.proto_mut().take_up(now);
            self.bound_backlog(now);
        }
        for n in 1..=TX_PACKETS {
            let Some(t) = self.st.messages.poll_transmit(now, &mut self.out) else {
                if n == 1 {
                    // Nothing was pushed that would have to go out.
                    return self.transmit_bulk_connections(now);
                }
                break;
            };
            // As of the next look at all peers; until then an answer may come.
            self.packets_expected = true;
            if n == 1 && t.payload.is_none() && !self.st.messages.may_transmit() {
                // One packet, as in an exchange of short messages: it needs no batch.
                self.device.send_now(now.0, (t.remote, t.local), &self.out.head);
                return self.transmit_bulk_connections(now);
            }
            let mut slices: SmallVec<[IoSlice<'_>; 4]> = SmallVec::new();
            if let Some(p) = &t.payload
                && let Some(source) = self.st.messages.payload(p.token)
            {
                slices_of(source, p.offset, usize::from(p.len), &mut slices);
            }
            self.device.push(now.0, (t.remote, t.local), &self.out.head, &slices);
            // The peer can begin with these while the next are built.
            if n % FLUSH_PACKETS == FIRST_FLUSH_PACKETS {
                self.device.flush(now.0);
            }
            if self.device.blocked_at().is_some() {
                break;
            }
        }
        self.device.flush(now.0);
        self.transmit_bulk_connections(now);
    }

    fn transmit_bulk_connections(&mut self, now: Time) {
        if let Some(bulk_connections) = &mut self.bulk_connections {
            bulk_connections.transmit(&mut self.st, now);
        }
    }

    /// The socket that has no room: who waits for it waits for room too.
    pub fn blocked_at(&self) -> Option<RawFd> {
        self.device.blocked_at().filter(|_| !self.finished)
    }

    /// When the endpoint wants to be called again although nothing arrives. What is only to be sent
    /// does not count while there is no room for it.
    pub fn next_timeout(&self) -> Option<Time> {
        let mut due = self.st.messages.next_timeout();
        if let Some(t) = self.bulk_connections.as_ref().and_then(|l| l.next_timeout(&self.st, clock::now())) {
            due = Some(due.map_or(t, |d| d.min(t)));
        }
        if let Some(t) = self.device.next_due_ns().map(Time) {
            due = Some(due.map_or(t, |d| d.min(t)));
        }
        if let Some(t) = self.shm.as_ref().and_then(|s| s.next_timeout(&self.st, clock::now())) {
            due = Some(due.map_or(t, |d| d.min(t)));
        }
        if let Some(t) = self.sctp.as_ref().and_then(|s| s.next_timeout(&self.st, clock::now())) {
            due = Some(due.map_or(t, |d| d.min(t)));
        }
        if self.blocked_at().is_some() { due.map(|t| t.max(clock::now().plus_ns(BLOCKED_NS))) } else { due }
    }
}

#[cfg(test)]
mod tests {
    use super::AWAITED_GAP_NS;
    use crate::{CarrierUse, Class, Endpoint, EngineConfig, Iov, SendMode};
    use std::time::Duration;

    #[test]
    fn who_has_sent_its_first_packet_looks_for_the_answer() {
        let [ep, other] = [CarrierUse::Shm, CarrierUse::Network].map(|carrier| {
            let addrs = vec!["127.0.0.1".parse().expect("address")];
            let cfg =
                EngineConfig { addrs, carrier, watchdog_us: 0, linger: Duration::ZERO, ..EngineConfig::default() };
            Endpoint::open_with_key(cfg, [7; 32]).expect("open")
        });
        let peer = ep.insert_peer(&other.name()).expect("name");
        // As of a look when there were peers of this host only.
        ep.shared.core.lock().packets_expected = false;
        let mut data = [1; 8];
        let memory = &[Iov { base: data.as_mut_ptr(), len: 8 }];
        let op = crate::SendOp {
            peer,
            class: Class::Tagged,
            tag: 1,
            data: None,
            memory,
            mode: SendMode::Inject,
            copy: true,
            report: false,
            context: 1,
            user: 0,
        };
        // SAFETY: the memory is copied.
        unsafe { ep.send(&op) }.expect("accepted");
        let mut core = ep.shared.core.lock();
        let soon = core.st.last_look.plus_ns(AWAITED_GAP_NS);
        assert!(core.is_socket_due(soon, true, true), "though peers of this host send all the time");
    }
}
