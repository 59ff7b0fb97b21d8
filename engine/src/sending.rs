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
            core.st.peer(peer).last_send = done;
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

    /// Sends what was just queued, unless it is one of a burst of small ones that go to this peer
    /// in packets: then it waits for a full packet, the next poll, or the watchdog at the latest.
    /// `bytes`: what of it goes now. A long message that is announced is a small one here.
    #[inline]
    pub(crate) fn after_send(&self, core: &mut Core, at: Time, peer: u32, bytes: usize) {
        // Beside the payload: frame head and envelope.
        const FRAME_BYTES: usize = 48;
        const PACKET_BYTES: usize = 1400;
        // What is for many peers fills no packet; one system call takes so much of it.
        const BATCH_BYTES: usize = 16 << 10;
        const BATCH_SIZE_MAX: usize = 4 << 10;
        self.shared.sent();
        core.sent = true;
        if core.transmit_unless_packets(at, peer) {
            return self.wake_sleeper(core);
        }
        let burst = self.is_burst(core, at, peer);
        let batch = burst && at.since_ns(core.batch_at) < self.shared.coalesce_ns;
        core.st.peer(peer).last_send = at;
        core.held_bytes += bytes + FRAME_BYTES;
        if batch {
            core.batch_at = at;
        }
        let most = if batch { BATCH_BYTES } else { PACKET_BYTES };
        if !burst || core.held_bytes >= most || bytes > BATCH_SIZE_MAX {
            core.transmit(at);
            if bytes < PACKET_BYTES {
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
