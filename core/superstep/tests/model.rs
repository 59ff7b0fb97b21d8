//! The superstep protocol explored whole for small cases: everything a network may do that loses,
//! repeats and reorders, and all orders in which two programs may act.
//!
//! Safety is checked by `stateright`. Liveness is checked on the graph of states itself: from every
//! state that can be reached the end can be reached (no deadlock, and no livelock that chance does
//! not end). That is stronger than `stateright`'s own "eventually", which overlooks cycles.
//!
//! Each rule is switched off in turn, and the counterexample must be found: so each is shown to be
//! needed.

use std::collections::{HashMap, VecDeque};

use stateright::{Checker, Model, Property};
use weir_superstep::protocol::{Action, Memory, Rules, State};

/// The seed's pool, of few buffers, with both harnesses.
const POOL: Rules = Rules {
    messages: 2,
    supersteps: 1,
    memory: Memory::Pool { buffers: 2, low_pool: true },
    drains: true,
    implicit: true,
    implicit_too_early: false,
    lingers: true,
    in_flight: 2,
};

/// What Weir has.
const CREDIT: Rules = Rules { memory: Memory::Credit { credit: 1, queue: 2, promised: true }, ..POOL };

/// Two supersteps of one message.
const TWO_STEPS: Rules = Rules { messages: 1, supersteps: 2, ..CREDIT };

#[derive(Clone)]
struct Protocol(Rules);

impl Model for Protocol {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::new(&self.0)]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        actions.extend(state.actions(&self.0));
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        state.next(&self.0, action)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("bounds and truth", |m: &Protocol, s: &State| s.check(&m.0).is_ok()),
            Property::sometimes("both end", |m: &Protocol, s: &State| s.is_done(&m.0)),
        ]
    }
}

/// The whole graph: how many states there are, and the shortest way to one from which the end
/// cannot be reached, of those described.
fn explore(rules: Rules, described: impl Fn(&State) -> bool) -> (usize, Option<(Vec<Action>, State)>) {
    let m = Protocol(rules);
    let mut states = m.init_states();
    let mut index: HashMap<State, usize> = states.iter().cloned().zip(0..).collect();
    let mut came: Vec<Option<(usize, Action)>> = vec![None; states.len()];
    let mut back: Vec<Vec<usize>> = vec![Vec::new(); states.len()];
    let mut at = 0;
    while at < states.len() {
        for action in states[at].actions(&rules) {
            let Some(next) = states[at].next(&rules, action) else { continue };
            let i = *index.entry(next).or_insert_with_key(|s| {
                states.push(s.clone());
                came.push(Some((at, action)));
                back.push(Vec::new());
                states.len() - 1
            });
            back[i].push(at);
        }
        at += 1;
    }
    let mut ends: Vec<bool> = states.iter().map(|s| s.is_done(&rules)).collect();
    let mut queue: VecDeque<usize> = (0..states.len()).filter(|i| ends[*i]).collect();
    while let Some(i) = queue.pop_front() {
        for &j in &back[i] {
            if !std::mem::replace(&mut ends[j], true) {
                queue.push_back(j);
            }
        }
    }
    let stuck = (0..states.len()).find(|i| !ends[*i] && described(&states[*i])).map(|mut i| {
        let state = states[i].clone();
        let mut way = Vec::new();
        while let Some((j, action)) = came[i] {
            way.push(action);
            i = j;
        }
        way.reverse();
        (way, state)
    });
    (states.len(), stuck)
}

fn tell(way: &[Action], state: &State) -> String {
    format!("{} actions: {way:?}\nends in {state:?}", way.len())
}

/// All promises hold in every state, and from each the end can be reached.
fn holds(name: &str, rules: Rules) {
    let checker = Protocol(rules).checker().threads(1).spawn_bfs().join();
    checker.assert_properties();
    let (states, stuck) = explore(rules, |_| true);
    assert_eq!(checker.unique_state_count(), states);
    println!("{name}: {states} states");
    if let Some((way, state)) = stuck {
        panic!("{name}: stuck after {}", tell(&way, &state));
    }
}

/// Both programs may come to a state from which they never end. It is the one described.
fn sticks(name: &str, rules: Rules, described: impl Fn(&State) -> bool) {
    let (states, stuck) = explore(rules, described);
    let (way, state) = stuck.unwrap_or_else(|| panic!("{name}: {states} states, none of them stuck as described"));
    println!("{name}: {states} states; stuck after {}", tell(&way, &state));
    // The way is one that the network and the programs may take.
    let mut s = State::new(&rules);
    for action in &way {
        assert!(s.actions(&rules).contains(action));
        s = s.next(&rules, *action).expect("it changes something");
    }
    assert_eq!(s, state);
}

/// A promise breaks.
fn breaks(name: &str, rules: Rules) {
    let checker = Protocol(rules).checker().threads(1).spawn_bfs().join();
    let way = checker.discovery("bounds and truth").unwrap_or_else(|| panic!("{name}: nothing breaks"));
    let (_, broken) = (way.clone().into_actions().len(), way.last_state().clone());
    println!("{name}: {:?} in {broken:?}", broken.check(&rules));
}

#[test]
fn a_pool_with_both_harnesses_comes_to_its_end_whatever_the_network_does() {
    holds("pool of 2", POOL);
    holds("pool of 3", Rules { memory: Memory::Pool { buffers: 3, low_pool: true }, in_flight: 1, ..POOL });
}

#[test]
fn credit_with_both_harnesses_comes_to_its_end_whatever_the_network_does() {
    holds("credit of 1", CREDIT);
    holds(
        "credit of 2",
        Rules { memory: Memory::Credit { credit: 2, queue: 2, promised: true }, in_flight: 1, ..CREDIT },
    );
    holds("two supersteps", TWO_STEPS);
}

#[test]
fn without_the_lower_harness_both_fill_their_pool_with_what_they_send_and_nothing_can_come() {
    let rules = Rules { memory: Memory::Pool { buffers: 2, low_pool: false }, in_flight: 1, ..POOL };
    sticks("no low-pool rule", rules, |s| s.sides.iter().all(|side| side.kept.count_ones() + side.unread() == 2));
    let rules = Rules { memory: Memory::Credit { credit: 2, queue: 2, promised: false }, in_flight: 1, ..CREDIT };
    sticks("credit that is not kept free", rules, |s| {
        s.sides.iter().all(|side| side.kept.count_ones() + side.unread() >= 2)
    });
}

#[test]
fn without_the_upper_harness_both_wait_for_room_and_neither_reads() {
    for (name, rules) in [("pool", POOL), ("credit", CREDIT)] {
        let rules = Rules { drains: false, in_flight: 1, ..rules };
        sticks(name, rules, |s| {
            s.sides.iter().all(|side| side.wants_to_send(&rules) && !side.has_room(&rules) && side.unread() > 0)
        });
    }
}

#[test]
fn to_free_what_was_sent_when_one_goes_on_oneself_loses_it() {
    breaks("implicit too early", Rules { implicit_too_early: true, ..TWO_STEPS });
    let (_, stuck) = explore(Rules { implicit_too_early: true, ..TWO_STEPS }, |_| true);
    assert!(stuck.is_some(), "what was freed and lost never comes");
}

#[test]
fn who_leaves_without_answering_leaves_the_other_behind() {
    sticks("no lingering", Rules { lingers: false, messages: 1, ..CREDIT }, |s| {
        s.sides.iter().any(|side| side.superstep == 1) && s.sides.iter().any(|side| side.superstep == 0)
    });
}

#[test]
fn a_newer_superstep_stands_for_the_acknowledgements_of_the_older_ones() {
    // Without explicit acknowledgements of a message the kept ones go when the peer is seen in the
    // next superstep.
    let rules = Rules { supersteps: 2, messages: 1, ..CREDIT };
    let mut s = State::new(&rules);
    for side in 0..2 {
        s = s.next(&rules, Action::Send(side)).expect("sent");
    }
    for side in 0..2 {
        let p = *s.to[side].first().expect("under way");
        s = s.next(&rules, Action::Deliver(side, p, false)).expect("it comes");
        s = s.next(&rules, Action::Read(side)).expect("it is read");
        s = s.next(&rules, Action::Advance(side)).expect("it was all");
    }
    assert_ne!(s.sides[0].kept, 0);
    let mut p = s.sides[1].packet(&rules, None);
    // Whatever it says of what it got.
    p.got = 0;
    s.sides[0].receive(&rules, &p);
    assert_eq!(s.sides[0].kept, 0);
}
