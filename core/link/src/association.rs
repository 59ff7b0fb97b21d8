//! One association: its parts, what the caller asks of it, and what is due when.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::SocketAddr;

use rand_chacha::ChaCha12Rng;
use smallvec::SmallVec;

use weir_bulk::BulkConnection;
use weir_session::{Carrier, Common, Session, Terms};

use crate::counters::PeerCounters;
use crate::judging::Unread;
use crate::marks::MarksIn;
use crate::opening::Opening;
use crate::openings::Openings;
use crate::paths::{Path, PathState};
use crate::received::Received;
use crate::recovery::Recovery;
use crate::turns::Outflow;
use crate::{BulkNews, Config, Counters, DownReason, Event, Level, PeerId, Time};

/// What every step of an association works with.
pub(crate) struct Cx<'a> {
    pub(crate) now: Time,
    pub(crate) cfg: &'a Config,
    pub(crate) counters: &'a mut Counters,
    /// The session with the peer, and what it shares with others.
    pub(crate) s: &'a mut Session,
    pub(crate) common: &'a mut Common,
    pub(crate) rng: &'a mut ChaCha12Rng,
    /// Our own endpoint id.
    pub(crate) endpoint_id: u64,
    pub(crate) bulk_news: &'a mut VecDeque<BulkNews>,
    /// Openings of the endpoint.
    pub(crate) openings: &'a mut Openings,
    /// What leaves the endpoint.
    pub(crate) outflow: &'a mut Outflow,
    /// What counts in no verdict about others: what the endpoint was late by, and the time in which
    /// many openings went on, all in all.
    pub(crate) late_ns: u64,
    /// Whether all that has arrived was read.
    pub(crate) unread: &'a mut Unread,
    /// Short cuts are switched off.
    #[cfg(test)]
    pub(crate) plain: bool,
}

impl Cx<'_> {
    /// Whether all goes the general way, as in half of the tests: short cuts must make no
    /// difference.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        #[cfg(test)]
        return self.plain;
        #[cfg(not(test))]
        false
    }
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

/// Parameters of the peer (spec 2.5).
#[derive(Copy, Clone, Debug)]
pub(crate) struct PeerParams {
    pub(crate) max_datagram: u16,
    pub(crate) rx_buffer: u64,
    pub(crate) ack_delay_max_ns: u64,
    /// Both sides take bulk connections.
    pub(crate) bulk_connections: bool,
    /// What it sends is ECN-capable, and it wants to be told of marks.
    pub(crate) ecn: bool,
    /// Both sides take SCTP (spec/sctp.md 2).
    pub(crate) sctp: bool,
    /// Rows of parity of one group that it takes.
    pub(crate) parity_rows: u8,
    /// It is for us to connect bulk connections.
    pub(crate) connects: bool,
    /// For the session.
    pub(crate) terms: Terms,
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
    pub(crate) accepted: Option<Box<crate::opening::Accepted>>,
    pub(crate) crypt: Option<Box<crate::crypt::Crypt>>,
    pub(crate) peer: PeerParams,

    /// Packets of small messages sent since a flow was served.
    pub(crate) small_run: u32,
    /// Packets of the front flow sent since its turn began.
    pub(crate) flow_run: u32,

    pub(crate) ping: bool,
    /// Restored by parity, to be told: (is a message, key, offset, length).
    pub(crate) recovered: VecDeque<(bool, u64, u64, u16)>,
    /// Packets that may go out whatever the window says.
    pub(crate) probes: u8,
    /// By which path.
    pub(crate) probe_path: u8,
    pub(crate) parity: crate::parity::ParitySender,
    pub(crate) parity_in: crate::parity::ParityReceiver,
    /// The TCP connection that large payload may go by.
    pub(crate) bulk: Option<Box<BulkConnection>>,
    /// How far the last bulk connection was read, for each CLOSE.
    pub(crate) closed_bulk: Option<weir_wire::frame::Bulk>,

    pub(crate) rec: Recovery,
    pub(crate) rx: Received,
    pub(crate) marks_in: MarksIn,
    /// With no room to spare: most peers have one, and it is large. (Asked for some twenty times in
    /// a packet, it is found in fewer steps than where it could stand in one of two places.)
    pub(crate) paths: Vec<Path>,
    pub(crate) primary: u8,

    pub(crate) heard: Time,
    pub(crate) last_ping: Time,
    pub(crate) pings: u32,
    /// What the endpoint had been late by when the peer's silence was first noticed.
    pub(crate) late_ns: u64,
    /// It counts among the silent ones of the endpoint.
    pub(crate) is_silent: bool,
    /// Somebody says that the peer is gone.
    pub(crate) doubt: Option<crate::judging::Doubt>,
    /// Of several paths, the one that fragments go by now, and how many more do before the choice
    /// is made anew.
    pub(crate) stripe: crate::delivery::Turn,
    /// Somebody waits for the acknowledgement of what is being sent.
    pub(crate) ack_wanted: bool,
    /// The packet just built can be the first by a template.
    pub(crate) has_template: bool,
    /// By which path.
    pub(crate) template_path: u8,
    /// Closing: until when.
    pub(crate) closing: Option<Time>,
    pub(crate) close_pending: Option<u16>,
    /// It cannot go on and ends at the next timeout, which is now.
    pub(crate) ending: Option<DownReason>,
    pub(crate) closes_sent: u8,
    /// When it last used a slot of a medium that all share.
    pub(crate) slotted_at: Time,
    /// How much longer acknowledgements wait because data goes in slots
    /// (`spec/superstep.md` 7.7); 0: it goes in none, and nothing that did is in flight.
    pub(crate) slots_ack_ns: u64,

    /// The caller forgot it: its place may be given to another peer.
    pub(crate) vacant: bool,
    /// The caller forgot it while its peer was still to be told that it is closed, or a carrier
    /// still to let go of it.
    pub(crate) forgetting: bool,
    /// It stands in the endpoint's queue of associations with something to send.
    pub(crate) ready: bool,
    /// Bytes it was served, and those it did not want while others were.
    pub(crate) served: u64,
    /// What all had got when it was put in that queue.
    pub(crate) lined_up: u64,
    /// Earliest entry in the endpoint's timer heap.
    pub(crate) armed: Time,
    pub(crate) counts: PeerCounters,
    /// Acknowledgements that took the short way.
    #[cfg(test)]
    pub(crate) acks_in_order: u64,
}

impl Association {
    pub(crate) fn new(cfg: &Config, id: PeerId, endpoint_id: u64, addrs: &[SocketAddr], now: Time) -> Self {
        Association {
            id,
            endpoint_id,
            addrs: addrs.iter().copied().take(crate::config::PATHS_MAX).collect(),
            state: State::Idle,
            local_id: 0,
            remote_id: 0,
            opening: None,
            accepted: None,
            crypt: None,
            peer: PeerParams {
                max_datagram: cfg.max_datagram,
                rx_buffer: cfg.rx_buffer_bytes,
                ack_delay_max_ns: cfg.ack_delay_max.as_nanos() as u64,
                bulk_connections: false,
                ecn: false,
                sctp: false,
                parity_rows: 1,
                connects: false,
                terms: Terms { credit_msgs: 0, credit_bytes: cfg.session.initial_credit_bytes },
            },
            small_run: 0,
            flow_run: 0,
            ping: false,
            recovered: VecDeque::new(),
            probes: 0,
            probe_path: 0,
            parity: crate::parity::ParitySender::default(),
            parity_in: crate::parity::ParityReceiver::default(),
            bulk: None,
            closed_bulk: None,
            rec: Recovery::default(),
            rx: Received::default(),
            marks_in: MarksIn::default(),
            paths: Vec::new(),
            primary: 0,
            heard: now,
            last_ping: now,
            pings: 0,
            late_ns: 0,
            is_silent: false,
            doubt: None,
            stripe: crate::delivery::Turn::default(),
            ack_wanted: false,
            has_template: false,
            template_path: 0,
            closing: None,
            close_pending: None,
            ending: None,
            closes_sent: 0,
            slotted_at: Time::ZERO,
            slots_ack_ns: 0,
            vacant: false,
            forgetting: false,
            ready: false,
            served: 0,
            lined_up: 0,
            armed: Time::MAX,
            counts: PeerCounters::default(),
            #[cfg(test)]
            acks_in_order: 0,
        }
    }

    /// The longest that the peer keeps an acknowledgement back.
    #[inline]
    pub(crate) fn ack_delay_max(&self) -> u64 {
        self.peer.ack_delay_max_ns + self.slots_ack_ns
    }

    /// Becomes the association of another peer; what the endpoint's queues and timers know of its
    /// place stays true.
    pub(crate) fn renew(&mut self, cfg: &Config, endpoint_id: u64, addrs: &[SocketAddr], now: Time) {
        let (ready, served, lined_up, armed) = (self.ready, self.served, self.lined_up, self.armed);
        let fresh = Association::new(cfg, self.id, endpoint_id, addrs, now);
        *self = Association { ready, served, lined_up, armed, ..fresh };
    }

    pub(crate) fn level(&self) -> Level {
        self.crypt.as_ref().map_or(Level::Integrity, |c| c.level())
    }

    /// The path that carries data.
    #[inline]
    pub(crate) fn path(&self) -> Option<&Path> {
        self.paths.get(usize::from(self.primary))
    }

    /// Nothing is left to do for a closing endpoint.
    pub(crate) fn is_drained(&self, s: &Session) -> bool {
        match self.state {
            State::Down(_) => self.close_pending.is_none(),
            State::Idle | State::Opening => !carries(s) || !s.has_open(),
            State::Up => false,
        }
    }

    /// Takes the association down: everything fails, memory is given back.
    pub(crate) fn go_down(&mut self, cx: &mut Cx<'_>, reason: DownReason, events: &mut Vec<Event>) {
        if matches!(self.state, State::Down(_)) {
            return;
        }
        cx.openings.alive.remove(self.id);
        self.state = State::Down(reason);
        cx.counters.peers_down += 1;
        if judges(cx.s) {
            // (The verdict on a peer that another carrier reaches is not for packets to give.)
            cx.s.end(cx.common, reason, events);
        }
        self.end_opening(cx);
        self.note_silence(cx);
        self.closed_bulk = self.last_bulk_frame();
        self.bulk = None;
        self.recovered = VecDeque::new();
        self.rec.clear();
        self.ping = false;
        self.probes = 0;
        self.parity = crate::parity::ParitySender::default();
        self.parity_in = crate::parity::ParityReceiver::default();
        self.rx.settle();
        for p in &mut self.paths {
            p.in_flight = 0;
            p.in_flight_packets = 0;
            p.loss_time = None;
            p.held_until = None;
            p.asks = 0;
            p.respond = None;
            p.challenge = None;
        }
    }

    /// Something (apart from timers) waits to be put into packets.
    pub(crate) fn wants_to_send(&self, s: &Session, now: Time) -> bool {
        match self.state {
            State::Idle => false,
            State::Opening => self.opening.as_ref().is_some_and(|o| o.send_at <= now),
            State::Down(_) => self.close_pending.is_some(),
            State::Up => {
                self.rx.due(now)
                    || self.has_control_frames(s, now)
                    || (carries(s) && s.has_control())
                    || self.has_data(s)
                    || self.paths.iter().any(|p| {
                        p.respond.is_some()
                            || p.asks > 0
                            || p.next_probe <= now
                            || p.mtu.due().is_some_and(|t| t <= now)
                    })
            }
        }
    }

    /// Small frames wait.
    pub(crate) fn has_control_frames(&self, s: &Session, now: Time) -> bool {
        self.bulk_due().is_some_and(|t| t <= now)
            || (carries(s) && s.has_notices())
            || self.ping
            || self.close_pending.is_some()
            || !self.recovered.is_empty()
    }

    /// Messages or rendezvous data wait.
    pub(crate) fn has_data(&self, s: &Session) -> bool {
        (carries(s) && s.has_data()) || self.parity.is_due()
    }

    /// The session is to know how long a message may be that one packet carries.
    pub(crate) fn set_piece_max(&self, s: &mut Session) {
        if carries(s) {
            s.set_piece_max(self.path().map_or(0, |p| crate::mtu::message_room(p.mtu.size(), self.level())));
        }
    }

    /// The session is to know how long a round trip of what carries data is: of several paths, the
    /// longest.
    pub(crate) fn set_round_trip(&self, s: &mut Session) {
        if judges(s) {
            let valid = self.paths.iter().filter(|p| p.state == PathState::Valid);
            s.set_round_trip(valid.map(|p| p.rtt.srtt).max().unwrap_or(0));
        }
    }

    /// When something is due without any call.
    pub(crate) fn deadline(&self, s: &Session, cfg: &Config) -> Time {
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
                at(s.deadline().filter(|_| carries(s)));
                at(self.closing);
                at(self.bulk_due());
                at(Some(self.next_ping(cfg)));
                at(self.doubt.as_ref().map(|d| d.at));
                let many = self.paths.len() > 1;
                for p in &self.paths {
                    at(p.held_until);
                    at(p.loss_time);
                    at(p.pto_due(cfg, self.ack_delay_max()));
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

    /// As nearly always when something has come: nothing waits to be sent, and what may be due is
    /// an acknowledgement of either side, or a PING. Then [`Self::deadline`], else `None`.
    #[inline]
    pub(crate) fn due_if_calm(&self, s: &Session, cfg: &Config, now: Time) -> Option<Time> {
        let [p] = self.paths.as_slice() else { return None };
        let ack_at = self.rx.due_at().unwrap_or(Time::MAX);
        let is_calm = self.state == State::Up
            && s.is_calm()
            && ack_at > now
            && self.is_calm()
            && self.doubt.is_none()
            && p.is_calm(now)
            && p.loss_time.is_none()
            && p.mtu.due().is_none();
        if !is_calm {
            return None;
        }
        let due = ack_at.min(self.next_ping(cfg));
        Some(p.pto_due(cfg, self.ack_delay_max()).map_or(due, |at| due.min(at)))
    }

    /// Nothing but what the session wants is to be sent or done: no question, no farewell, nothing
    /// of a bulk connection.
    #[inline]
    pub(crate) fn is_calm(&self) -> bool {
        self.closing.is_none()
            && self.close_pending.is_none()
            && self.ending.is_none()
            && !self.ping
            && self.recovered.is_empty()
            && !self.parity.is_due()
            && self.bulk_due().is_none()
    }

    /// When the next PING, or the verdict, is due.
    pub(crate) fn next_ping(&self, cfg: &Config) -> Time {
        let quarter = cfg.peer_timeout.as_nanos() as u64 / 4;
        let last = cfg.last_pings.max(1);
        let interval = match self.pings {
            // What hundreds of peers ask that have nothing to say is work, for both.
            0 => 2 * quarter,
            1 => quarter,
            // Whoever is about to be given up is asked often: with most questions or answers lost,
            // a probe every `pto_max` is too few.
            n if n < 2 + last => quarter / u64::from(last),
            // Not yet given up, for this endpoint was late itself: nobody is helped by a flood.
            _ => quarter,
        };
        self.heard.max(self.last_ping).plus_ns(interval)
    }
}

/// Whether what the session sends goes by packets of ours, or another carrier has it.
#[inline]
pub(crate) fn carries(s: &Session) -> bool {
    s.carrier() == Carrier::Link
}

/// Whether the end of the association is that of the session: so it is with SCTP too, which comes
/// and goes with it.
#[inline]
pub(crate) fn judges(s: &Session) -> bool {
    matches!(s.carrier(), Carrier::Link | Carrier::Sctp)
}
