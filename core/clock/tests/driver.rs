//! The driver over a blocking exchange: ranks as threads, messages through channels, time virtual.

mod common;

use common::{Clock, Net, SECOND, Trouble, effort};
use std::sync::mpsc::{Receiver, Sender, channel};
use weir_clock::{Exchange, MODEL_BYTES, Model, Participant, Probe, Schedule, SyncError, synchronise};

enum Message {
    Ping { t: f64 },
    Pong { t: f64, remote_ns: i64 },
    Finish,
    Model([u8; MODEL_BYTES]),
}

#[derive(Debug, PartialEq)]
struct Gone;

/// One rank: its clock, its own virtual now, a channel to and from every other rank.
struct Rank {
    clock: Clock,
    now: f64,
    to: Vec<Sender<Message>>,
    from: Vec<Receiver<Message>>,
    /// Its clock steps forward every 20 answers, further each time.
    jumps: bool,
}

const DELAY_NS: f64 = 10_000.0;

impl Rank {
    fn send(&self, peer: u32, message: Message) -> Result<(), Gone> {
        self.to[peer as usize].send(message).map_err(|_| Gone)
    }
    fn receive(&self, peer: u32) -> Result<Message, Gone> {
        self.from[peer as usize].recv().map_err(|_| Gone)
    }
}

impl Exchange for Rank {
    type Error = Gone;

    fn probe(&mut self, reference: u32) -> Result<Option<Probe>, Gone> {
        let send_ns = self.clock.read(self.now);
        self.send(reference, Message::Ping { t: self.now + DELAY_NS })?;
        let Message::Pong { t, remote_ns } = self.receive(reference)? else { panic!("not a pong") };
        self.now = t;
        Ok(Some(Probe { send_ns, remote_ns, receive_ns: self.clock.read(t) }))
    }

    fn finish(&mut self, reference: u32) -> Result<(), Gone> {
        self.send(reference, Message::Finish)
    }

    fn serve(&mut self, client: u32) -> Result<(), Gone> {
        let mut turn = 0i64;
        loop {
            match self.receive(client)? {
                Message::Ping { t } => {
                    turn += 1;
                    // A rank that is busy until later answers later: the client sees a longer round
                    // trip.
                    self.now = self.now.max(t);
                    let steps = turn / 20;
                    let off_ns = if self.jumps { steps * steps * 1_000_000 } else { 0 };
                    let remote_ns = self.clock.read(self.now) + off_ns;
                    self.send(client, Message::Pong { t: self.now + DELAY_NS, remote_ns })?;
                }
                Message::Finish => return Ok(()),
                _ => panic!("not a ping"),
            }
        }
    }

    fn give(&mut self, client: u32, model: &[u8; MODEL_BYTES]) -> Result<(), Gone> {
        self.send(client, Message::Model(*model))
    }

    fn take(&mut self, reference: u32) -> Result<[u8; MODEL_BYTES], Gone> {
        let Message::Model(bytes) = self.receive(reference)? else { panic!("not a model") };
        Ok(bytes)
    }

    fn wait_until(&mut self, local_ns: i64) -> Result<(), Gone> {
        self.now += (local_ns as f64 - self.clock.exact(self.now)).max(0.0) * 1.001;
        Ok(())
    }
}

/// Ranks with channels between all of them.
fn ranks(net: &Net) -> Vec<Rank> {
    let rank = |clock: &Clock| Rank { clock: *clock, now: SECOND, to: Vec::new(), from: Vec::new(), jumps: false };
    let mut ranks: Vec<Rank> = net.clocks.iter().map(rank).collect();
    for a in 0..ranks.len() {
        for b in 0..ranks.len() {
            // In the order of the loops, `to[b]` of a and `from[a]` of b land at the right places.
            let (to, from) = channel();
            ranks[a].to.push(to);
            ranks[b].from.push(from);
        }
    }
    ranks
}

fn run(schedule: &Schedule, ranks: Vec<Rank>) -> Vec<Result<Participant, SyncError<Gone>>> {
    std::thread::scope(|scope| {
        let play =
            |(r, mut rank): (usize, Rank)| scope.spawn(move || synchronise(schedule, r as u32, effort(), &mut rank));
        let threads: Vec<_> = ranks.into_iter().enumerate().map(play).collect();
        threads.into_iter().map(|t| t.join().expect("no panic")).collect()
    })
}

#[test]
fn seven_ranks_agree_on_the_roots_clock() {
    let net = Net::new(7, Trouble::JITTER, 42);
    for (rank, part) in run(&Schedule::new(7), ranks(&net)).into_iter().enumerate() {
        let model = part.unwrap().result().unwrap();
        let reading = model.at(net.clocks[rank].read(1.3 * SECOND));
        let error = net.error_ns(1.3 * SECOND, reading.global_ns).abs();
        assert!(error <= reading.error_ns + common::READING_NS && error < 2_000.0, "rank {rank}: {error} ns");
    }
}

#[test]
fn a_reference_whose_clock_jumps_fails_its_clients_and_hangs_nobody() {
    // Rank 2 is the reference of 3 and, in the last round, of 10; rank 3 then that of 11.
    let net = Net::new(12, Trouble::JITTER, 42);
    let mut all = ranks(&net);
    all[2].jumps = true;
    let results: Vec<Result<Model, SyncError<_>>> =
        run(&Schedule::new(12), all).into_iter().map(|part| part.unwrap().result()).collect();
    for (rank, result) in results.iter().enumerate() {
        match rank {
            3 | 10 => assert!(matches!(result, Err(SyncError::Fit { reference: 2, .. })), "rank {rank}: {result:?}"),
            11 => assert_eq!(*result, Err(SyncError::NoReference { rank: 11, reference: 3 })),
            _ => assert!(result.is_ok(), "rank {rank}: {result:?}"),
        }
    }
}

#[test]
fn a_broken_exchange_and_a_foreign_rank_are_errors() {
    let net = Net::new(2, Trouble::JITTER, 1);
    let mut all = ranks(&net);
    let alone = all.remove(0);
    drop(all);
    let results = run(&Schedule::new(2), vec![alone]);
    assert!(matches!(results[0], Err(SyncError::Exchange(Gone))));
    let foreign = Participant::new(&Schedule::new(2), 2, effort()).err();
    assert_eq!(foreign, Some(SyncError::NoSuchRank { rank: 2, ranks: 2 }));
}
