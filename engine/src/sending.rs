//! Sends of a caller: what leaves at once, and what waits for others that follow.

use weir_link::Time;

use crate::clock::now;
use crate::core::Core;
use crate::memory::Gather;
use crate::{Endpoint, EngineError, SendOp, check_iov};

impl Endpoint {
    /// Starts a send.
    ///
    /// # Errors
    /// [`EngineError::Again`] when a queue is full (make progress and repeat),
    /// [`EngineError::PeerDown`], [`EngineError::TooBig`], [`EngineError::Invalid`].
    ///
    /// # Safety
    /// The memory of `op.memory` is readable, and stays so and unchanged until the completion (with
    /// [`SendMode::Inject`]: until this returns).
    pub unsafe fn send(&self, op: &SendOp<'_>) -> Result<(), EngineError> {
        check_iov(op.memory)?;
        let mut core = self.shared.enter()?;
        if core.st.closed {
            return Err(EngineError::Closed);
        }
        // SAFETY: passed on from the caller.
        let op = op.with_memory(unsafe { Gather::new(op.memory) });
        if core.send_straight(&op) {
            // Nothing of it is left to look after, but what comes may be.
            self.shared.sent();
            core.sent = true;
            self.wake_sleeper(&core);
            return Ok(());
        }
        let now = now();
        let peer = op.peer;
        let burst = self.is_burst(&core, now, peer);
        let late = !burst && core.held_bytes > 0;
        if late {
            // Whoever takes its time between two sends does not make the first wait for a third.
            core.transmit(now);
        }
        if !burst && core.send_alone(now, &op) {
            self.shared.sent();
            core.sent = true;
            let done = crate::clock::now();
            let p = core.st.peer(peer);
            (p.last_send, p.in_row) = (done, 0);
            if late {
                // Those that follow this one may wait for each other again.
                core.batch_at = done;
            }
            self.wake_sleeper(&core);
            return Ok(());
        }
        let bytes = core.st.messages.send_lent(now, op)?;
        self.after_send(&mut core, now, peer, bytes);
        core.st.messages.copy_lent();
        Ok(())
    }

    /// Whether a send of now belongs to a burst of sends to this peer.
    #[inline]
    fn is_burst(&self, core: &Core, at: Time, peer: u32) -> bool {
        // From the end of the last send to the beginning of this one: what the program did between
        // them.
        let last = core.st.peers.get(peer as usize).map_or(Time::ZERO, |p| p.last_send);
        at.since_ns(last.max(core.batch_at)) < self.shared.coalesce_ns && self.shared.watchdog_ns > 0
    }

    /// The caller was just handed several messages or completions, and so is likely to send several
    /// messages, to one peer or to many, and then to make progress. Small ones that follow each
    /// other within [`EngineConfig::coalesce_ns`] then wait for that, the first of them too: they
    /// share packets, or at least a system call. For faces whose programs test after they have
    /// posted; one whose programs compute meanwhile would hold up what could have left.
    pub fn expect_several(&self) {
        let Ok(mut core) = self.shared.enter() else { return };
        core.batch_at = now();
    }

    /// Sends what was just queued, unless it is one of a burst of short ones: then it waits for as
    /// much as one call to the system takes, for the next poll, or for the watchdog at the latest.
    /// Where some have waited long it waits for a full packet only ([`Core::waits_for_others`]).
    /// `bytes`: what of it goes now. A long message that is announced is a short one here.
    #[inline]
    pub(crate) fn after_send(&self, core: &mut Core, at: Time, peer: u32, bytes: usize) {
        // Beside the payload: frame head and envelope.
        const FRAME_BYTES: usize = 48;
        const PACKET_BYTES: usize = 1400;
        // One call to the system takes so much in packets, so much by TCP.
        const BATCH_BYTES: usize = 16 << 10;
        const TCP_BYTES: usize = 48 << 10;
        // So many are worth one, whatever their length: the peer has enough to do with them.
        const MESSAGES: usize = 16;
        // A longer one is worth one by itself: its receiver would begin later. Behind so many in a
        // row that is less than what the calls cost.
        const SHORT_BYTES: usize = 4 << 10;
        const SHORT_BYTES_IN_ROW: usize = 16 << 10;
        const ROW: u32 = 4;
        self.shared.sent();
        core.sent = true;
        if core.transmit_unless_packets(at, peer) {
            return self.wake_sleeper(core);
        }
        let burst = self.is_burst(core, at, peer);
        let batch = burst && at.since_ns(core.batch_at) < self.shared.coalesce_ns;
        let p = core.st.peer(peer);
        p.last_send = at;
        p.in_row = if burst { p.in_row.saturating_add(1) } else { 0 };
        let in_row = p.in_row >= ROW && !batch;
        core.held_bytes += bytes + FRAME_BYTES;
        core.held_messages += 1;
        if batch {
            core.batch_at = at;
        }
        let most = if !batch && core.waits_for_tcp(peer) { TCP_BYTES } else { BATCH_BYTES };
        let short = bytes <= if in_row { SHORT_BYTES_IN_ROW } else { SHORT_BYTES };
        // (Who sleeps until something comes does not flush.)
        let may_wait = |core: &mut Core| {
            batch || core.held_messages < MESSAGES && !self.shared.armed.any() && core.waits_for_others(at)
        };
        let waits = burst && short && (core.held_bytes < PACKET_BYTES || core.held_bytes < most && may_wait(core));
        if !waits {
            core.transmit(at);
            if bytes <= SHORT_BYTES_IN_ROW {
                core.st.peer(peer).last_send = now();
            }
        } else {
            self.shared.watch.holds(at, self.shared.hold_time());
        }
        self.wake_sleeper(core);
    }

    /// What this thread did may have completed something (a message to self, one that had arrived):
    /// another that sleeps must know. Costs the look at one flag.
    pub(crate) fn wake_sleeper(&self, core: &Core) {
        if self.shared.armed.any() {
            self.shared.wake_due(core);
        }
    }
}
