//! One association: its parts, what the caller asks of it, and what is due when.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::SocketAddr;

use rand_chacha::ChaCha12Rng;
use smallvec::SmallVec;

use crate::bodies::{BodiesIn, BodiesOut};
use crate::counters::{PeerCounters, count};
use crate::grants::Grants;
use crate::handshake::Opening;
use crate::lane::{Lane, LaneNews};
use crate::messages::{ENVELOPE_MAX, MessagesIn, MessagesOut};
use crate::paths::{Path, PathState};
use crate::received::Received;
use crate::recovery::{Recovery, SentFrame};
use crate::{BodyOpened, Config, Counters, Credit, DownReason, Event, Level, Message, PeerId, SendError, Time};

/// Aborts that may wait to be sent: more bodies than a receiver that behaves has open.
const ABORTS_MAX: usize = 1 << 16;

/// What every step of an association works with.
pub(crate) struct Cx<'a> {
    pub(crate) now: Time,
    pub(crate) cfg: &'a Config,
    pub(crate) counters: &'a mut Counters,
    pub(crate) grants: &'a mut Grants,
    pub(crate) rng: &'a mut ChaCha12Rng,
    /// Our own endpoint id.
    pub(crate) endpoint_id: u64,
    pub(crate) lane_news: &'a mut VecDeque<LaneNews>,
}

/// Life of an association.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// Known, not opened.
    Idle,
    /// We sent INIT or CONFIRM.
    Opening,
    /// Established.
    Up,
    /// Over, for good.
    Down(DownReason),
}

/// Something with fresh data to send.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Flow {
    /// A matched message of several packets.
    Message(u64),
    /// A body.
    Body(u32, u32),
}

/// Parameters of the peer (spec 2.5).
#[derive(Copy, Clone, Debug)]
pub(crate) struct PeerParams {
    pub(crate) max_datagram: u16,
    pub(crate) credit_bytes: u64,
    pub(crate) rx_buffer: u64,
    pub(crate) ack_delay_max_ns: u64,
    /// Both sides take lanes.
    pub(crate) lanes: bool,
    /// It is for us to connect them.
    pub(crate) connects: bool,
}

/// One association.
pub(crate) struct Association {
    pub(crate) id: PeerId,
    pub(crate) endpoint_id: u64,
    pub(crate) addrs: SmallVec<[SocketAddr; 2]>,
    pub(crate) state: State,
    /// Association ids: ours is what the peer writes into its packets.
    pub(crate) local_id: u64,
    pub(crate) remote_id: u64,
    pub(crate) opening: Option<Box<Opening>>,
    pub(crate) accepted: Option<Box<crate::handshake::Accepted>>,
    pub(crate) crypt: Option<Box<crate::crypt::Crypt>>,
    pub(crate) peer: PeerParams,

    pub(crate) out: MessagesOut,
    pub(crate) inn: MessagesIn,
    pub(crate) bodies_out: BodiesOut,
    pub(crate) bodies_in: BodiesIn,

    /// Admitted messages that fit one packet.
    pub(crate) small: VecDeque<u64>,
    /// Packets of small messages sent since a flow was served.
    pub(crate) small_run: u32,
    pub(crate) flows: VecDeque<Flow>,
    /// Packets of the front flow sent since its turn began.
    pub(crate) flow_run: u32,
    /// Ranges of messages and bodies to be sent again.
    pub(crate) lost: VecDeque<SentFrame>,
    pub(crate) lost_control: VecDeque<u64>,

    pub(crate) credit_dirty: bool,
    pub(crate) ping: bool,
    pub(crate) grants_dirty: VecDeque<u64>,
    pub(crate) aborts: VecDeque<(u64, u16)>,
    /// Restored by parity, to be told: (is a message, key, offset, length).
    pub(crate) recovered: VecDeque<(bool, u64, u64, u16)>,
    /// Packets that may go out whatever the window says.
    pub(crate) probes: u8,
    pub(crate) parity: crate::parity::ParitySender,
    /// The TCP connection that large payload may go by.
    pub(crate) lane: Option<Box<Lane>>,
    /// How far the last lane was read, for each CLOSE.
    pub(crate) closed_lane: Option<weir_wire::frame::Lane>,

    pub(crate) rec: Recovery,
    pub(crate) rx: Received,
    pub(crate) paths: SmallVec<[Path; 1]>,
    pub(crate) primary: u8,

    pub(crate) heard: Time,
    pub(crate) last_ping: Time,
    pub(crate) pings: u32,
    /// Somebody says that the peer is gone.
    pub(crate) doubt: Option<crate::life::Doubt>,
    /// When the pacer lets the waiting data go.
    pub(crate) pacing_until: Option<Time>,
    /// Somebody waits for the acknowledgement of what is being sent.
    pub(crate) ack_wanted: bool,
    /// The packet just built can be the first of a run.
    pub(crate) can_run: bool,
    pub(crate) regrant_at: Option<Time>,
    /// Closing: until when.
    pub(crate) closing: Option<Time>,
    pub(crate) close_pending: Option<u16>,
    /// It cannot go on and ends at the next timeout, which is now.
    pub(crate) ending: Option<DownReason>,
    pub(crate) closes_sent: u8,

    /// The caller forgot it: its place may be given to another peer.
    pub(crate) vacant: bool,
    /// It stands in the endpoint's queue of associations with something to send.
    pub(crate) ready: bool,
    /// It changed since the endpoint last looked.
    pub(crate) touched: bool,
    /// Earliest entry in the endpoint's timer heap.
    pub(crate) armed: Time,
    pub(crate) counts: PeerCounters,
}

impl Association {
    pub(crate) fn new(cfg: &Config, id: PeerId, endpoint_id: u64, addrs: &[SocketAddr], now: Time) -> Self {
        Association {
            id,
            endpoint_id,
            addrs: addrs.iter().copied().take(crate::paths::PATHS_MAX).collect(),
            state: State::Idle,
            local_id: 0,
            remote_id: 0,
            opening: None,
            accepted: None,
            crypt: None,
            peer: PeerParams {
                max_datagram: cfg.max_datagram,
                credit_bytes: cfg.initial_credit_bytes,
                rx_buffer: cfg.rx_buffer_bytes,
                ack_delay_max_ns: cfg.ack_delay_max.as_nanos() as u64,
                lanes: false,
                connects: false,
            },
            out: MessagesOut::new(cfg.control_window),
            inn: MessagesIn::new(cfg.initial_credit_msgs, cfg.initial_credit_bytes),
            bodies_out: BodiesOut::default(),
            bodies_in: BodiesIn::default(),
            small: VecDeque::new(),
            small_run: 0,
            flows: VecDeque::new(),
            flow_run: 0,
            lost: VecDeque::new(),
            lost_control: VecDeque::new(),
            credit_dirty: false,
            ping: false,
            grants_dirty: VecDeque::new(),
            aborts: VecDeque::new(),
            recovered: VecDeque::new(),
            probes: 0,
            parity: crate::parity::ParitySender::default(),
            lane: None,
            closed_lane: None,
            rec: Recovery::default(),
            rx: Received::default(),
            paths: SmallVec::new(),
            primary: 0,
            heard: now,
            last_ping: now,
            pings: 0,
            doubt: None,
            pacing_until: None,
            ack_wanted: false,
            can_run: false,
            regrant_at: None,
            closing: None,
            close_pending: None,
            ending: None,
            closes_sent: 0,
            vacant: false,
            ready: false,
            touched: false,
            armed: Time::MAX,
            counts: PeerCounters::default(),
        }
    }

    /// Becomes the association of another peer; what the endpoint's queues and timers know of its place stays true.
    pub(crate) fn renew(&mut self, cfg: &Config, endpoint_id: u64, addrs: &[SocketAddr], now: Time) {
        let (ready, touched, armed) = (self.ready, self.touched, self.armed);
        *self = Association { ready, touched, armed, ..Association::new(cfg, self.id, endpoint_id, addrs, now) };
    }

    pub(crate) fn level(&self) -> Level {
        self.crypt.as_ref().map_or(Level::Integrity, |c| c.level())
    }

    fn check_open(&self) -> Result<(), SendError> {
        if matches!(self.state, State::Down(_)) || self.closing.is_some() { Err(SendError::Closed) } else { Ok(()) }
    }

    /// Queues a message.
    pub(crate) fn send(&mut self, cx: &mut Cx<'_>, m: &Message<'_>) -> Result<(), SendError> {
        self.check_open()?;
        if m.envelope.len() > ENVELOPE_MAX {
            return Err(SendError::TooLong);
        }
        if m.control {
            if m.len as usize > crate::build::control_len_max(cx.cfg) {
                return Err(SendError::TooLong);
            }
            if self.out.control.span() >= cx.cfg.control_queue as usize {
                return Err(SendError::QueueFull);
            }
        } else {
            if u64::from(m.len) > self.peer.credit_bytes / 2 || m.stream >= cx.cfg.streams {
                return Err(SendError::TooLong);
            }
            if self.out.matched.unsent >= cx.cfg.send_queue_msgs {
                return Err(SendError::QueueFull);
            }
        }
        self.out.push(m);
        cx.counters.messages_sent += 1;
        if !m.control && self.state == State::Up {
            self.admit(cx);
        }
        Ok(())
    }

    /// Moves messages that credit lets out into the queues they are sent from.
    pub(crate) fn admit(&mut self, cx: &mut Cx<'_>) {
        let was_stalled = self.out.stalled;
        let room = self.path().map_or(0, |p| crate::build::message_room(p.mtu.size(), self.level()));
        while let Some((mseq, len)) = self.out.admit() {
            let env = self.out.matched.get(mseq).map_or(0, |m| m.envelope().len());
            if len as usize + env <= room {
                self.small.push_back(mseq);
            } else {
                self.push_flow(cx, Flow::Message(mseq), u64::from(len));
            }
        }
        if self.out.stalled && !was_stalled {
            count!(self, cx, stalls_credit);
        }
    }

    /// Opens a handle for a body from the peer.
    pub(crate) fn open_body(&mut self, cx: &mut Cx<'_>, len: u64) -> Result<BodyOpened, SendError> {
        self.check_open()?;
        if len == 0 {
            return Err(SendError::TooLong);
        }
        if self.bodies_in.open() >= cx.cfg.bodies_max {
            return Err(SendError::QueueFull);
        }
        let lane = self.has_lane();
        let granted = cx.grants.open(cx.now, self.id, len, lane);
        let handle = self.bodies_in.add(cx.now, len, granted);
        cx.grants.wait(cx.now, self.id, handle, len, granted, lane);
        self.arm_regrant(cx);
        Ok(BodyOpened { handle, granted })
    }

    /// The receiver gives up on a body.
    pub(crate) fn close_body(&mut self, now: Time, grants: &mut Grants, handle: u64) {
        if let Some(outstanding) = self.bodies_in.remove(handle) {
            grants.returned(now, self.id, outstanding);
            grants.forget(self.id, handle);
        }
    }

    /// Sends a body.
    pub(crate) fn send_body(
        &mut self,
        cx: &mut Cx<'_>,
        handle: u64,
        granted: u64,
        len: u64,
        token: u64,
    ) -> Result<(), SendError> {
        self.check_open()?;
        let slot = self.bodies_out.add(handle, granted, len, token).ok_or(SendError::QueueFull)?;
        self.queue_body(cx, slot);
        Ok(())
    }

    /// The body may send: it stands in line.
    pub(crate) fn queue_body(&mut self, cx: &mut Cx<'_>, slot: u32) {
        if let Some(b) = self.bodies_out.get_mut(slot)
            && !b.queued
            && (b.granted > b.sent)
        {
            b.queued = true;
            let (flow, len) = (Flow::Body(slot, b.generation), b.len);
            self.push_flow(cx, flow, len);
        }
    }

    /// The sender gives up on a body, or does not begin it; then the receiver that opened it learns that nothing will come.
    pub(crate) fn abort_body(&mut self, handle: u64, code: u16) -> Option<u64> {
        if matches!(self.state, State::Down(_)) {
            return None;
        }
        if self.aborts.len() >= ABORTS_MAX {
            self.aborts.pop_front();
        }
        self.aborts.push_back((handle, code));
        self.bodies_out.slot_of(handle).map(|slot| self.bodies_out.remove(slot))
    }

    /// The scheduler raised a grant.
    pub(crate) fn raise_grant(&mut self, cx: &mut Cx<'_>, handle: u64, limit: u64) {
        if let Some(b) = self.bodies_in.get_mut(handle) {
            b.granted = b.granted.max(limit);
            b.touched = cx.now;
            if !b.grant_dirty {
                b.grant_dirty = true;
                self.grants_dirty.push_back(handle);
            }
            self.arm_regrant(cx);
        }
    }

    fn regrant_ns(&self, cfg: &Config) -> u64 {
        let srtt = self.path().map_or(0, |p| p.rtt.srtt);
        // What goes by a lane waits its turn there, and is not lost.
        let least = if self.has_lane() { cfg.lane_regrant } else { cfg.regrant_min };
        (4 * srtt).max(least.as_nanos() as u64)
    }

    /// Starts the watch over granted bytes, or has it look earlier than at a body that is long silent.
    pub(crate) fn arm_regrant(&mut self, cx: &Cx<'_>) {
        let at = cx.now.plus_ns(self.regrant_ns(cx.cfg));
        self.regrant_at = Some(self.regrant_at.map_or(at, |t| t.min(at)));
    }

    /// Repeats the grants of bodies whose granted bytes stay away (spec 4).
    pub(crate) fn regrant(&mut self, cx: &mut Cx<'_>) {
        self.regrant_at = None;
        let base = self.regrant_ns(cx.cfg);
        let mut next = Time::MAX;
        let mut again: SmallVec<[u64; 8]> = SmallVec::new();
        for (h, b) in self.bodies_in.handles() {
            if b.granted <= b.received {
                continue;
            }
            let at = b.touched.plus_ns(regrant_after_ns(base, b.repeats));
            if at <= cx.now {
                again.push(h);
                next = next.min(cx.now.plus_ns(regrant_after_ns(base, b.repeats.saturating_add(1))));
            } else {
                next = next.min(at);
            }
        }
        for h in again {
            if let Some(b) = self.bodies_in.get_mut(h) {
                b.repeats = b.repeats.saturating_add(1);
                b.touched = cx.now;
                if !b.grant_dirty {
                    b.grant_dirty = true;
                    self.grants_dirty.push_back(h);
                    cx.counters.regrants_sent += 1;
                }
            }
        }
        // A peer that sends nothing must not hold what others could use.
        if let Some(at) = cx.grants.watch(cx.now, self.id, base * u64::from(cx.cfg.grant_silence)) {
            next = next.min(at);
        }
        if next != Time::MAX {
            self.regrant_at = Some(next);
        }
    }

    /// Credit left, after what is queued.
    pub(crate) fn credit(&self) -> Credit {
        self.out.credit()
    }

    /// The path that carries data.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.paths.get(usize::from(self.primary))
    }

    /// Operations not completely acknowledged.
    pub(crate) fn has_open(&self) -> bool {
        self.out.matched.open > 0 || self.out.control.open > 0 || self.bodies_out.open() > 0
    }

    /// Nothing is left to do for a closing endpoint.
    pub(crate) fn is_drained(&self) -> bool {
        match self.state {
            State::Down(_) => self.close_pending.is_none(),
            State::Idle => !self.has_open(),
            State::Opening => !self.has_open(),
            State::Up => false,
        }
    }

    /// Takes the association down: everything fails, memory is given back.
    pub(crate) fn go_down(&mut self, cx: &mut Cx<'_>, reason: DownReason, events: &mut Vec<Event>) {
        if matches!(self.state, State::Down(_)) {
            return;
        }
        self.state = State::Down(reason);
        cx.counters.peers_down += 1;
        let peer = self.id;
        events.push(Event::Down { peer, reason });
        let mut fail = |token| events.push(Event::Failed { peer, token, reason });
        self.out.matched.drain_tokens(&mut fail);
        self.out.control.drain_tokens(&mut fail);
        self.bodies_out.drain_tokens(&mut fail);
        let handles: Vec<u64> = self.bodies_in.handles().map(|(h, _)| h).collect();
        for h in handles {
            self.bodies_in.remove(h);
        }
        cx.grants.forget_peer(peer);
        self.opening = None;
        self.small = VecDeque::new();
        self.flows = VecDeque::new();
        self.closed_lane = self.last_lane_frame();
        self.lane = None;
        self.lost = VecDeque::new();
        self.lost_control = VecDeque::new();
        self.grants_dirty = VecDeque::new();
        self.aborts = VecDeque::new();
        self.recovered = VecDeque::new();
        self.rec.clear();
        self.credit_dirty = false;
        self.ping = false;
        self.probes = 0;
        self.parity = crate::parity::ParitySender::default();
        self.rx.acknowledged();
        self.regrant_at = None;
        self.pacing_until = None;
        for p in &mut self.paths {
            p.in_flight = 0;
            p.in_flight_packets = 0;
            p.loss_time = None;
            p.respond = None;
            p.challenge = None;
        }
    }

    /// Something (apart from timers) waits to be put into packets.
    pub(crate) fn wants_to_send(&self, now: Time) -> bool {
        match self.state {
            State::Idle => false,
            State::Opening => self.opening.as_ref().is_some_and(|o| o.send_at <= now),
            State::Down(_) => self.close_pending.is_some(),
            State::Up => {
                self.rx.due(now)
                    || self.has_control_frames(now)
                    || self.has_data()
                    || self
                        .paths
                        .iter()
                        .any(|p| p.respond.is_some() || p.next_probe <= now || p.mtu.due().is_some_and(|t| t <= now))
            }
        }
    }

    /// Small frames wait.
    pub(crate) fn has_control_frames(&self, now: Time) -> bool {
        self.lane_due().is_some_and(|t| t <= now)
            || self.credit_dirty
            || self.ping
            || self.close_pending.is_some()
            || !self.grants_dirty.is_empty()
            || !self.aborts.is_empty()
            || !self.recovered.is_empty()
    }

    /// Control messages wait.
    pub(crate) fn has_control_messages(&self) -> bool {
        !self.lost_control.is_empty() || self.out.control_next < self.out.control_end()
    }

    /// Payload waits that window and credit do not know of yet.
    pub(crate) fn has_data(&self) -> bool {
        self.has_control_messages() || self.has_bulk()
    }

    /// Messages or bodies wait.
    pub(crate) fn has_bulk(&self) -> bool {
        !self.small.is_empty() || !self.lost.is_empty() || !self.flows.is_empty() || self.parity.is_due()
    }

    /// When something is due without any call.
    pub(crate) fn deadline(&self, cfg: &Config) -> Time {
        let mut t = Time::MAX;
        let mut at = |x: Option<Time>| {
            if let Some(x) = x {
                t = t.min(x);
            }
        };
        match self.state {
            State::Idle | State::Down(_) => {}
            State::Opening => {
                at(self.opening.as_ref().map(|o| o.send_at.min(o.give_up)));
                at(self.closing);
            }
            State::Up => {
                at(self.ending.map(|_| Time::ZERO));
                at(self.rx.due_at());
                at(self.pacing_until);
                at(self.regrant_at);
                at(self.closing);
                at(self.lane.as_ref().and_then(|l| l.credit_at));
                at(self.lane_due());
                at(Some(self.next_ping(cfg)));
                at(self.doubt.as_ref().map(|d| d.at));
                let many = self.paths.len() > 1;
                for p in &self.paths {
                    at(p.loss_time);
                    at(p.pto_at(cfg, self.peer.ack_delay_max_ns));
                    if p.state == PathState::Valid {
                        at(p.mtu.due());
                    }
                    if many {
                        at(Some(p.next_probe));
                        if p.in_flight_packets > 0 && p.state == PathState::Valid {
                            at(Some(p.waiting_since + cfg.path_suspect_after));
                        }
                    }
                }
            }
        }
        t
    }

    /// When the next PING, or the verdict, is due.
    pub(crate) fn next_ping(&self, cfg: &Config) -> Time {
        let quarter = cfg.peer_timeout.as_nanos() as u64 / 4;
        // Whoever is about to be given up is asked often: with most questions or answers lost, a probe every `pto_max` is too few.
        let interval = if self.pings >= 3 { quarter / u64::from(cfg.last_pings.max(1)) } else { quarter };
        self.heard.max(self.last_ping).plus_ns(interval)
    }
}

/// After how long the grant of a body that stays away is repeated, if it was repeated so often already.
fn regrant_after_ns(base_ns: u64, repeats: u8) -> u64 {
    base_ns << repeats.min(8)
}
