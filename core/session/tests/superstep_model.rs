//! The superstep protocol that is explored whole (`weir_superstep::protocol`,
//! `core/superstep/tests/model.rs`) and the sessions that ship do the same: whatever happens, the
//! same messages are let out, have come, are still kept and are promised room.

use std::collections::{BTreeMap, BTreeSet};

use weir_session::{Config, Event, Flow, Fragment, FragmentIn, Message, PeerId, Sessions, Terms};
use weir_superstep::protocol::{Action, Memory, Packet, Rules, State};

const PEER: PeerId = PeerId(0);
const LEN: u32 = 100;

/// One process with a session that ships.
struct Real {
    sessions: Sessions,
    /// Messages that have come, by number.
    got: BTreeSet<u32>,
    kept: BTreeMap<u32, Fragment>,
}

impl Real {
    fn new(credit: u32) -> Real {
        let mut sessions = Sessions::new(Config { initial_credit_msgs: credit, ..Config::default() });
        assert_eq!(sessions.add(), PEER);
        let (s, common) = sessions.get_mut(PEER).expect("added");
        s.set_piece_max(1000);
        assert!(s.begin(common, Terms { credit_msgs: u64::from(credit), credit_bytes: 1 << 20 }));
        Real { sessions, got: BTreeSet::new(), kept: BTreeMap::new() }
    }

    fn send(&mut self, number: u32) {
        let m =
            Message { control: false, stream: 0, envelope: &[], len: LEN, patient: false, token: u64::from(number) };
        self.sessions.send(PEER, &m).expect("there is room");
        let (s, _) = self.sessions.get_mut(PEER).expect("a session");
        let piece = s.next_small().expect("credit lets it out at once");
        assert_eq!(piece.flow, Flow::Message(u64::from(number)));
        s.took_small(piece.to);
        self.kept.insert(number, Fragment::of(piece.flow, piece.from, piece.to));
    }

    fn again(&mut self, number: u32) {
        let f = self.kept[&number];
        let (s, _) = self.sessions.get_mut(PEER).expect("a session");
        s.lost(f);
        let piece = s.next_lost().expect("it is not known to have arrived");
        assert_eq!((piece.flow, piece.from, piece.to), (Flow::Message(u64::from(number)), 0, u64::from(LEN)));
        s.took_lost(piece.to);
    }

    /// True if the message it carries is new.
    fn receive(&mut self, p: &Packet) -> bool {
        let (s, common) = self.sessions.get_mut(PEER).expect("a session");
        s.on_credit(common, p.limit, 1 << 20);
        for number in (0..32).filter(|m| p.got & (1 << m) != 0) {
            if let Some(f) = self.kept.remove(&number) {
                assert_eq!(s.arrived(common, &f), Some(u64::from(number)));
            }
        }
        let Some(number) = p.message else { return false };
        let f = FragmentIn { stream: 0, mseq: u64::from(number), sseq: number, total_len: LEN, offset: 0 };
        let mut events = Vec::new();
        s.on_message(common, &f, &(0..0), &(0..LEN as usize), &mut events).expect("within what was promised");
        let is_new = matches!(events[..], [Event::Message { first: true, complete: true, .. }]);
        assert!(is_new || events.is_empty());
        assert_eq!(self.got.insert(number), is_new);
        is_new
    }

    fn read(&mut self) {
        self.sessions.consume(PEER, 1, u64::from(LEN));
    }

    /// Messages it lets the other send.
    fn limit(&mut self, total: u32) -> u32 {
        let (s, _) = self.sessions.get_mut(PEER).expect("a session");
        (s.credit_told().0 as u32).min(total)
    }
}

fn set(messages: impl IntoIterator<Item = u32>) -> u32 {
    messages.into_iter().fold(0, |all, m| all | 1 << m)
}

/// What both say of each other, in this state.
fn compare(state: &State, real: &mut [Real; 2], rules: &Rules) {
    for (side, real) in state.sides.iter().zip(real) {
        assert_eq!(side.got, set(real.got.iter().copied()));
        assert_eq!(side.kept, set(real.kept.keys().copied()));
        let s = real.sessions.get(PEER).expect("a session");
        assert_eq!(s.messages_open() as u32, side.kept.count_ones());
        if side.sent < rules.total() {
            assert_eq!(s.credit().msgs > 0, side.has_room(rules), "a send is refused by one and not by the other");
        }
        assert_eq!(real.limit(rules.total()), side.packet(rules, None).limit);
    }
}

fn act(state: &State, action: Action, real: &mut [Real; 2], rules: &Rules) {
    match action {
        Action::Send(i) => real[i].send(state.sides[i].sent),
        Action::Read(i) => real[i].read(),
        Action::Again(i, message) => real[i].again(message),
        Action::Deliver(i, p, _) => {
            let is_new = real[i].receive(&p);
            assert_eq!(is_new, state.sides[i].clone().receive(rules, &p));
        }
        Action::Advance(_) | Action::Tell(_) | Action::Lose(..) => {}
    }
}

#[test]
fn sessions_do_what_the_model_does_whatever_happens() {
    let mut chance = 0x9e37_79b9_7f4a_7c15u64;
    let mut draw = |n: usize| {
        chance ^= chance << 13;
        chance ^= chance >> 7;
        chance ^= chance << 17;
        (chance % n as u64) as usize
    };
    let (mut ended, mut refused, mut repeated) = (0, 0, 0);
    for run in 0..600 {
        let credit = 1 + run % 4;
        let rules = Rules {
            messages: 3 + run % 3,
            supersteps: 2,
            memory: Memory::Credit { credit, queue: 32, promised: true },
            drains: true,
            implicit: false,
            implicit_too_early: false,
            lingers: true,
            in_flight: 4,
        };
        let mut real = [Real::new(credit), Real::new(credit)];
        let mut state = State::new(&rules);
        for _ in 0..400 {
            compare(&state, &mut real, &rules);
            if state.is_done(&rules) {
                ended += 1;
                break;
            }
            let actions = state.actions(&rules);
            let action = actions[draw(actions.len())];
            act(&state, action, &mut real, &rules);
            refused += usize::from(state.sides.iter().any(|s| s.wants_to_send(&rules) && !s.has_room(&rules)));
            repeated += usize::from(matches!(action, Action::Again(..)));
            state = state.next(&rules, action).unwrap_or(state);
        }
    }
    assert!(ended > 300 && refused > 1000 && repeated > 1000, "{ended} ended, {refused} refused, {repeated} repeated");
}
