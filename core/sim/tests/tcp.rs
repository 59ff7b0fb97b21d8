//! The model of TCP connections alone, with nodes that know no protocol: host 0 writes a row of
//! bytes, host 1 reads it.

use weir_sim::spec::*;
use weir_sim::{Arrived, Broken, Host, Log, Node, Received, Socket, TcpCounters, World};

/// How an end of a connection came to its end.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Fate {
    Ended,
    Broken,
}

/// What the nodes are to do and what they saw.
#[derive(Clone, Default)]
struct Seen {
    bytes: u64,
    /// The reader reads this seldom; 0: as soon as it can.
    read_every_ns: Ns,
    /// The writer keeps its end open.
    stays: bool,
    connected_ns: Option<Ns>,
    written: u64,
    /// Bytes read and when the last came.
    read: u64,
    read_ns: Ns,
    /// The most that was written and not read.
    ahead: u64,
    fates: [Option<Fate>; 2],
}

struct Talker {
    host: HostId,
    io: Option<Socket>,
    next_read: Ns,
}

fn make(_: &mut Seen, host: HostId, incarnation: u32) -> Talker {
    // The second incarnation of the writer has nothing to say.
    Talker { host: if incarnation == 0 { host } else { 1 }, io: None, next_read: 0 }
}

fn byte(at: u64) -> u8 {
    (at ^ at >> 8 ^ at >> 16) as u8
}

impl Talker {
    fn write(&mut self, host: &mut Host<'_, Seen>) -> Result<(), Broken> {
        let io = *self.io.get_or_insert_with(|| host.connect(0, 1));
        if !host.is_connected(io)? {
            return Ok(());
        }
        let now = host.now;
        host.shared.connected_ns.get_or_insert(now);
        while host.shared.written < host.shared.bytes {
            let from = host.shared.written;
            let row: Vec<u8> = (from..host.shared.bytes.min(from + 30_000)).map(byte).collect();
            let n = host.tcp_write(io, &row)?;
            if n == 0 {
                return Ok(());
            }
            let seen = &mut *host.shared;
            seen.written += n as u64;
            seen.ahead = seen.ahead.max(seen.written - seen.read);
        }
        if !host.shared.stays {
            host.tcp_close(io);
            host.shared.fates[0] = Some(Fate::Ended);
        }
        Ok(())
    }

    fn read(&mut self, host: &mut Host<'_, Seen>) -> Result<(), Broken> {
        self.io = self.io.or_else(|| host.accept());
        let Some(io) = self.io else { return Ok(()) };
        let mut bytes = [0; 10_000];
        if host.now < self.next_read {
            return Ok(());
        }
        self.next_read = if host.shared.read_every_ns > 0 { host.now + host.shared.read_every_ns } else { 0 };
        loop {
            match host.tcp_read(io, &mut bytes)? {
                Arrived::Bytes(0) => return Ok(()),
                Arrived::End => {
                    host.shared.fates[1] = Some(Fate::Ended);
                    host.tcp_close(io);
                    return Ok(());
                }
                Arrived::Bytes(n) => {
                    let from = host.shared.read;
                    assert!(bytes[..n].iter().zip(from..).all(|(b, at)| *b == byte(at)), "bytes from {from} on");
                    host.shared.read += n as u64;
                    host.shared.read_ns = host.now;
                    if host.shared.read_every_ns > 0 {
                        return Ok(());
                    }
                }
            }
        }
    }
}

impl Node for Talker {
    type Shared = Seen;
    fn receive(&mut self, _: &mut Host<'_, Seen>, _: Received, _: &mut [u8]) {}

    fn run(&mut self, host: &mut Host<'_, Seen>) {
        let side = self.host as usize;
        if host.shared.fates[side].is_some() {
            self.next_read = 0;
            return;
        }
        let result = if side == 0 { self.write(host) } else { self.read(host) };
        if result.is_err() {
            host.shared.fates[side] = Some(Fate::Broken);
            self.io.into_iter().for_each(|io| host.tcp_close(io));
        }
    }

    fn next_wake(&self) -> Option<Ns> {
        (self.host == 1 && self.next_read > 0).then_some(self.next_read)
    }
}

fn spec(change: impl FnOnce(&mut NetSpec)) -> NetSpec {
    let mut spec = NetSpec::single(2, NetworkSpec::default());
    change(&mut spec);
    spec
}

fn run_for(spec: &NetSpec, seed: u64, seen: &Seen, until: Ns) -> (Seen, TcpCounters, u64) {
    let mut w = World::new(spec.clone(), seed, seen.clone(), Log::new(0, false), make);
    w.run_until(until, |_| false);
    assert_eq!(w.violation(), None);
    if w.shared.fates.iter().all(Option::is_some) {
        assert_eq!(w.connections(), 0, "a connection nobody holds is forgotten");
    }
    (w.shared.clone(), w.tcp_counters(), w.log.hash())
}

fn run(spec: &NetSpec, seed: u64, seen: &Seen) -> (Seen, TcpCounters, u64) {
    run_for(spec, seed, seen, 60 * SEC)
}

const MEGABYTE: u64 = 1_000_000;

fn megabyte() -> Seen {
    Seen { bytes: MEGABYTE, ..Seen::default() }
}

#[test]
fn a_row_of_bytes_comes_whole_and_at_the_pace_of_the_link() {
    let (seen, c, _) = run(&spec(|_| {}), 1, &megabyte());
    assert_eq!((seen.read, seen.fates), (MEGABYTE, [Some(Fate::Ended); 2]));
    // A round trip of 8 us to connect; then 8 ms for the bytes and a twentieth for headers.
    assert!((8 * US..20 * US).contains(&seen.connected_ns.unwrap()), "{:?}", seen.connected_ns);
    assert!((8 * MS..10 * MS).contains(&seen.read_ns), "{}", seen.read_ns);
    assert_eq!((c.tried, c.lost, c.bytes), (1, 0, MEGABYTE));
}

#[test]
fn what_is_written_and_not_read_is_bounded() {
    let slow = Seen { read_every_ns: 100 * US, ..megabyte() };
    let spec = spec(|s| (s.host.tcp.send_buffer_bytes, s.host.tcp.receive_buffer_bytes) = (50_000, 20_000));
    let (seen, ..) = run(&spec, 1, &slow);
    assert_eq!(seen.read, MEGABYTE);
    assert!((50_000..=70_000).contains(&seen.ahead), "{} bytes ahead", seen.ahead);
}

#[test]
fn loss_makes_it_slow_and_takes_nothing() {
    let spec = spec(|s| s.networks[0].up.loss = 10_000);
    let runs: Vec<_> = (0..10).map(|seed| run(&spec, seed, &megabyte())).collect();
    assert!(runs.iter().all(|(seen, c, _)| seen.read == MEGABYTE && c.lost > 0));
    let slow = runs.iter().filter(|r| r.0.read_ns > 200 * MS).count();
    assert!((2..10).contains(&slow), "{slow} of 10 met a time-out, the others were mended at once");
}

#[test]
fn a_cut_either_way_stalls_it_until_it_heals() {
    for direction in [Direction::Up, Direction::Down, Direction::Both] {
        let spec = spec(|s| {
            s.host.tcp.send_buffer_bytes = 20_000;
            for (at_ns, fault) in [
                (2 * MS, Fault::Cut { host: 1, net: 0, direction }),
                (900 * MS, Fault::Heal { host: 1, net: 0, direction }),
            ] {
                s.faults.push(TimedFault { at_ns, fault });
            }
        });
        let (seen, ..) = run_for(&spec, 1, &megabyte(), 900 * MS);
        assert!((1..MEGABYTE).contains(&seen.read), "{direction:?}: {} bytes before it healed", seen.read);
        let (seen, ..) = run(&spec, 1, &megabyte());
        assert_eq!((seen.read, seen.fates), (MEGABYTE, [Some(Fate::Ended); 2]), "{direction:?}");
    }
}

#[test]
fn a_connection_breaks_anywhere_and_what_was_read_is_its_beginning() {
    let spec = spec(|s| s.host.tcp.breaks = 50_000);
    let runs: Vec<_> = (0..40).map(|seed| run(&spec, seed, &megabyte())).collect();
    let broken: Vec<_> = runs.iter().filter(|r| r.1.broken > 0).collect();
    assert!((10..=30).contains(&broken.len()), "every second connection may break: {} of 40", broken.len());
    for (seen, ..) in &broken {
        // The writer may have written all and gone.
        assert_eq!(seen.fates[1], Some(Fate::Broken));
        assert!(seen.read < MEGABYTE && seen.fates[0].is_some());
    }
    assert!(broken.iter().any(|r| r.0.fates[0] == Some(Fate::Broken)));
    assert!(broken.iter().any(|r| r.0.read % 1448 != 0));
    for (seen, ..) in runs.iter().filter(|r| r.1.broken == 0) {
        assert_eq!(seen.read, MEGABYTE);
    }
}

#[test]
fn a_reader_that_dies_is_noticed_at_once_or_when_it_is_back() {
    let spec = spec(|s| {
        s.faults.push(TimedFault { at_ns: 2 * MS, fault: Fault::Crash { host: 1 } });
        s.faults.push(TimedFault { at_ns: 5 * SEC, fault: Fault::Restart { host: 1 } });
    });
    let fates: Vec<_> = (0..20).map(|seed| run_for(&spec, seed, &megabyte(), 4 * SEC).0.fates[0]).collect();
    assert!(fates.contains(&Some(Fate::Broken)), "its host says so");
    assert!(fates.contains(&None), "its host has no power");
    for seed in 0..20 {
        assert_eq!(run(&spec, seed, &megabyte()).0.fates[0], Some(Fate::Broken), "seed {seed}");
    }
}

#[test]
fn a_writer_that_dies_ends_its_direction_or_says_nothing() {
    let spec = spec(|s| s.faults.push(TimedFault { at_ns: 2 * MS, fault: Fault::Crash { host: 0 } }));
    let stays = Seen { stays: true, bytes: 1000, ..Seen::default() };
    let fates: Vec<_> = (0..20).map(|seed| run(&spec, seed, &stays).0.fates[1]).collect();
    assert!(fates.contains(&Some(Fate::Ended)) && fates.contains(&None), "{fates:?}");
}

#[test]
fn a_stalled_reader_fills_its_buffer_and_loses_nothing() {
    let spec = spec(|s| {
        s.host.tcp.send_buffer_bytes = 20_000;
        s.host.tcp.receive_buffer_bytes = 20_000;
        s.faults.push(TimedFault { at_ns: 2 * MS, fault: Fault::Stall { host: 1, until_ns: 50 * MS } });
    });
    let (seen, ..) = run_for(&spec, 1, &megabyte(), 49 * MS);
    assert_eq!(seen.written - seen.read, 40_000);
    assert_eq!(run(&spec, 1, &megabyte()).0.read, MEGABYTE);
}

#[test]
fn a_connection_may_be_refused_or_ignored() {
    let spec = spec(|s| s.host.tcp.refuses = 300_000);
    let runs: Vec<_> = (0..40).map(|seed| run_for(&spec, seed, &megabyte(), 900 * MS).0).collect();
    assert!(runs.iter().any(|s| s.fates[0] == Some(Fate::Broken) && s.connected_ns.is_none()));
    assert!(runs.iter().any(|s| s.fates[0].is_none() && s.connected_ns.is_none()));
    assert!(runs.iter().any(|s| s.read == MEGABYTE));
}

#[test]
fn equal_seeds_give_equal_connections() {
    let spec = spec(|s| {
        s.networks[0].up.loss = 10_000;
        s.networks[0].up.jitter_ns = 10 * US;
        s.host.tcp.breaks = 1000;
    });
    let hash = |seed| run(&spec, seed, &megabyte()).2;
    assert_eq!(hash(1), hash(1));
    assert_ne!(hash(1), hash(2));
}
