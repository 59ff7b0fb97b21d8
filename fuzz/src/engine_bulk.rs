//! Bulk connections as the engine has them (`engine/src/bulk_connections.rs`): two engines whose
//! packets are in memory and whose connections are TCP's over loopback. The input says how many
//! bytes each read and write moves and which of them fails, what the network loses, who connects
//! besides and what comes between.
//!
//! The books are those of [`crate::engine`]; and no connection outlives its engine, no more of one
//! is kept than a head, and whatever fails goes by packets.

use std::io::Write;
use std::net::{Shutdown, SocketAddr, TcpStream};

use arbitrary::Arbitrary;
use std::rc::Rc;
use weir_engine::bare::{self, Connected, Gather, Told};
use weir_engine::{EngineConfig, Iov};
use weir_link::Time;
use weir_message::Messages;

use crate::driver::{Driver, Host};
use crate::engine::{self, KEY, Net};
use crate::guarded::Pages;
use crate::input::{Few, Rest};

/// Strangers at a time.
const STRANGERS_MAX: usize = 8;

/// One run.
#[derive(Arbitrary, Debug)]
pub struct Input {
    options: u16,
    bulk_connections: u8,
    delay_us: u16,
    steps: Rest<Step, 200>,
}

/// What one call to the system does.
#[derive(Arbitrary, Copy, Clone, Debug)]
pub struct Call(u8, u16);

impl Call {
    fn rigged(self) -> bare::Call {
        let n = usize::from(self.1);
        match self.0 {
            0..8 => bare::Call::Fails,
            8..60 => bare::Call::Most(n % 130),
            60..80 => bare::Call::Short(n % 4),
            80..200 => bare::Call::Most(n % 3000),
            _ => bare::Call::Most(n),
        }
    }
}

/// One event; `side` says whose.
#[derive(Arbitrary, Clone, Debug)]
#[expect(missing_docs, reason = "plain")]
pub enum Step {
    Engine(engine::Step),
    /// Long enough for a bulk connection.
    Large {
        side: bool,
        len: u32,
        mode: u8,
    },
    Read {
        side: bool,
        busy: bool,
        calls: Few<Call, 12>,
    },
    Write {
        side: bool,
        calls: Few<Call, 12>,
    },
    /// Everything goes well for some rounds.
    Pump {
        rounds: u8,
    },
    Lose {
        segments: u8,
    },
    /// Somebody connects, says something and perhaps goes.
    Stranger {
        side: bool,
        bytes: Few<u8, 60>,
        ends: bool,
    },
    Close {
        side: bool,
        sure: u8,
    },
}

impl Host for Connected {
    type Memory = Gather;
    type Sink = Told;

    fn messages(&self) -> &Messages<Gather, Told> {
        self.messages()
    }

    fn messages_mut(&mut self) -> &mut Messages<Gather, Told> {
        self.messages_mut()
    }

    #[allow(unsafe_code, reason = "the engine's memory is raw")]
    fn named(pages: &Rc<Pages>, split: bool) -> Gather {
        let iov: Vec<Iov> = pages.pieces(split).into_iter().map(|(base, len)| Iov { base, len }).collect();
        // SAFETY: the driver keeps the pages, mapped if not readable, as long as it lives.
        unsafe { Gather::new(&iov) }
    }

    fn turn(&mut self, now: Time) {
        self.read(now, false);
        self.write(now);
    }

    fn next_look(&self, now: Time) -> Option<Time> {
        self.next_timeout(now)
    }

    fn connections(&self) -> usize {
        self.connections()
    }
}

struct Run {
    net: Net<Connected>,
    addrs: [SocketAddr; 2],
    strangers: Vec<TcpStream>,
    /// Who takes no more bulk connections.
    closed: Option<bool>,
}

/// Runs the input and heals; returns how many records were read to their end.
///
/// # Panics
/// If a promise is broken.
pub fn run(input: &Input) -> u64 {
    let mut run = Run::new(input.options, input.bulk_connections);
    if input.bulk_connections & 1 == 0 {
        run.meet();
    }
    for step in &input.steps.0 {
        run.step(step);
        bare::rig([]);
        run.net.settle();
        run.count();
    }
    run.net.heal(1000 * (1 + u64::from(input.delay_us % 4000)));
    run.count();
    let counters = |s: &Driver<Connected>| s.host.messages().endpoint().counters().clone();
    let records = run.net.sides.iter().map(|s| counters(s).bulk.records_received).sum();
    let misunderstood = |c: weir_link::Counters| c.violations + c.bulk.heads_damaged;
    let misunderstandings: u64 = run.net.sides.iter().map(|s| misunderstood(counters(s))).sum();
    assert_eq!(misunderstandings, 0, "what an honest peer wrote was not what was read");
    run.net.sides.iter_mut().for_each(|s| s.host.close());
    assert_eq!(bare::open(), 0, "connections outlive their engines");
    records
}

impl Run {
    fn new(options: u16, choice: u8) -> Run {
        let (wanted, credit_bytes) = (engine::config(options), engine::credit_bytes(options));
        let cfg = EngineConfig {
            eager_bytes: wanted.eager_bytes,
            copy_bytes: wanted.copy_bytes,
            credit_msgs: wanted.credit_msgs,
            credit_bytes,
            ..EngineConfig::default()
        };
        let side = |i: usize| {
            let (host, addr) = Connected::new(cfg.clone(), KEY, engine::id_of(i), engine::seed_of(i), |proto| {
                engine::tune(options, proto);
                let ms = core::time::Duration::from_millis;
                (proto.bulk.pause, proto.bulk.pause_max) = (ms(1), ms(if choice & 2 == 0 { 4 } else { 2000 }));
                proto.bulk.min_bytes = if choice & 4 == 0 { 500 } else { 12 << 10 };
                proto.bulk.lone_bytes = proto.bulk.min_bytes / 5;
                proto.bulk.record_bytes = [700, 5000, 64 << 10, 1 << 20][usize::from(choice >> 3 & 3)];
            });
            (Driver::of(host), addr)
        };
        let [(a, at_a), (b, at_b)] = [side(0), side(1)];
        let addrs = [at_a, at_b];
        Run { net: Net::of([a, b], addrs), addrs, strangers: Vec::new(), closed: None }
    }

    /// Both know each other and have a bulk connection.
    fn meet(&mut self) {
        for len in [100, 20_000] {
            self.net.send(0, None, len, engine::how(1));
            self.pump(12);
        }
    }

    fn pump(&mut self, rounds: u8) {
        for _ in 0..rounds {
            self.net.run_network(1, 0, 1100);
            self.net.turn_bulk_connections();
            self.net.settle();
        }
    }

    fn step(&mut self, step: &Step) {
        let now = self.net.now;
        match step {
            Step::Engine(step) => self.net.step(*step),
            Step::Large { side, len, mode } => {
                self.net.send(usize::from(*side), None, 500 + *len as usize % (200 << 10), engine::how(*mode));
            }
            Step::Read { side, busy, calls } => {
                bare::rig(calls.0.iter().map(|c| c.rigged()));
                self.net.sides[usize::from(*side)].host.read(now, *busy);
            }
            Step::Write { side, calls } => {
                bare::rig(calls.0.iter().map(|c| c.rigged()));
                self.net.sides[usize::from(*side)].host.write(now);
            }
            Step::Pump { rounds } => self.pump(rounds % 8),
            Step::Lose { segments } => bare::lose((*segments).into()),
            Step::Stranger { side, bytes, ends } => self.stranger(usize::from(*side), &bytes.0, *ends),
            // (Both would be the end of both engines: that the bulk connection is over the one that
            // is left says to the other.)
            Step::Close { side, sure: 0 } if self.closed.is_none_or(|c| c == *side) => {
                self.closed = Some(*side);
                self.net.sides[usize::from(*side)].host.close();
            }
            Step::Close { .. } => {}
        }
    }

    fn stranger(&mut self, to: usize, bytes: &[u8], ends: bool) {
        if self.strangers.len() >= STRANGERS_MAX {
            self.strangers.remove(0);
        }
        // Who is closed takes no connection.
        let Ok(mut s) = TcpStream::connect(self.addrs[to]) else { return };
        let _ = s.write(bytes);
        if ends {
            let _ = s.shutdown(Shutdown::Write);
        }
        self.strangers.push(s);
    }

    /// Every connection is one that an engine knows.
    fn count(&self) {
        let known: usize = self.net.sides.iter().map(|s| s.host.connections()).sum();
        assert_eq!(bare::open(), known, "a connection that no engine knows is open");
    }
}
