//! Groups of threads, each pair with a channel.

use crate::*;
use std::cell::Cell;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::vec::Vec;
use std::{thread, vec};

struct Member {
    own: usize,
    to: Vec<Sender<Vec<u8>>>,
    from: Vec<Receiver<Vec<u8>>>,
    sent: Cell<usize>,
}

impl Group for Member {
    type Error = &'static str;
    fn own(&self) -> usize {
        self.own
    }
    fn members(&self) -> usize {
        self.to.len()
    }
    fn send(&self, data: &[u8], to: usize) -> Result<(), Self::Error> {
        self.sent.set(self.sent.get() + 1);
        self.to[to].send(data.to_vec()).map_err(|_| "gone")
    }
    fn recv(&self, into: &mut [u8], from: usize) -> Result<(), Self::Error> {
        let data = self.from[from].recv().map_err(|_| "gone")?;
        if data.len() != into.len() {
            return Err("another length");
        }
        into.copy_from_slice(&data);
        Ok(())
    }
    fn sendrecv(&self, data: &[u8], to: usize, into: &mut [u8], from: usize) -> Result<(), Self::Error> {
        self.send(data, to)?;
        self.recv(into, from)
    }
}

/// Runs `part` as each member of a group of `n`; what each returns, by member.
fn each<T: Send>(n: usize, part: impl Fn(Member) -> T + Sync) -> Vec<T> {
    let mut pairs: Vec<Vec<_>> = (0..n).map(|_| (0..n).map(|_| Some(channel())).collect()).collect();
    let mut members = Vec::new();
    let mut to: Vec<Vec<Sender<Vec<u8>>>> = (0..n).map(|_| Vec::new()).collect();
    let mut from: Vec<Vec<Receiver<Vec<u8>>>> = (0..n).map(|_| Vec::new()).collect();
    for a in 0..n {
        for b in 0..n {
            let (s, r) = pairs[a][b].take().expect("each once");
            to[a].push(s);
            // Those of one receiver come in the order of senders, for `a` goes up.
            from[b].push(r);
        }
    }
    for (own, (to, from)) in to.into_iter().zip(from).enumerate() {
        members.push(Member { own, to, from, sent: Cell::new(0) });
    }
    thread::scope(|s| {
        let threads: Vec<_> = members.into_iter().map(|m| s.spawn(|| part(m))).collect();
        threads.into_iter().map(|t| t.join().expect("a member")).collect()
    })
}

const SIZES: [usize; 8] = [1, 2, 3, 4, 5, 7, 8, 13];

#[test]
fn everybody_has_the_roots_bytes() {
    for n in SIZES {
        for root in 0..n {
            let got = each(n, |m| {
                let mut data = if m.own == root { [7, root as u8] } else { [0; 2] };
                bcast(&m, root, &mut data).expect("nobody is gone");
                data
            });
            assert_eq!(got, vec![[7, root as u8]; n]);
        }
    }
}

#[test]
fn counts_are_summed_for_one_and_for_all() {
    for n in SIZES {
        let got = each(n, |m| {
            let (data, mut sums, mut all, mut wire) = ([m.own as u64, 1], [0; 2], [0; 2], [0; 16]);
            reduce(&m, &data, &mut sums, &mut wire, |a, b| a + b).expect("nobody is gone");
            allreduce(&m, &data, &mut all, &mut wire, |a, b| a + b).expect("nobody is gone");
            (if m.own == 0 { sums } else { all }, all)
        });
        let sums = [(n * (n - 1) / 2) as u64, n as u64];
        assert_eq!(got, vec![(sums, sums); n]);
    }
}

#[test]
fn blocks_come_to_their_places() {
    for n in SIZES {
        let by_member: Vec<u8> = (0..n).flat_map(|i| [i as u8; 3]).collect();
        let got = each(n, |m| {
            let (mine, mut all, mut part) = ([m.own as u8; 3], vec![99; 3 * n], [0; 3]);
            allgather(&m, &mine, &mut all).expect("nobody is gone");
            let mut gathered = vec![0; 3 * n];
            gather(&m, &mine, &mut gathered).expect("nobody is gone");
            scatter(&m, &gathered, &mut part).expect("nobody is gone");
            let data: Vec<u8> = (0..n).map(|to| (m.own * 16 + to) as u8).collect();
            let mut crossed = vec![0; n];
            alltoall(&m, &data, &mut crossed).expect("nobody is gone");
            (all, part, crossed)
        });
        for (own, (all, part, crossed)) in got.into_iter().enumerate() {
            assert_eq!((all, part), (by_member.clone(), [own as u8; 3]));
            assert_eq!(crossed, (0..n).map(|from| (from * 16 + own) as u8).collect::<Vec<_>>());
        }
    }
}

#[test]
fn blocks_of_unequal_length_come_to_their_places() {
    for n in SIZES {
        // Among them empty ones, at both ends and in the middle.
        for lengths in
            [(0..n).collect::<Vec<_>>(), (0..n).map(|i| 2 * (i % 2)).collect(), vec![0; n], (0..n).rev().collect()]
        {
            let by_member: Vec<u8> = (0..n).flat_map(|i| vec![i as u8 + 1; lengths[i]]).collect();
            let got = each(n, |m| {
                let mine = vec![m.own as u8 + 1; lengths[m.own]];
                let (mut all, mut gathered) = (vec![99; by_member.len()], vec![0; by_member.len()]);
                allgatherv(&m, &mine, &mut all, &lengths).expect("nobody is gone");
                gatherv(&m, &mine, &mut gathered, &lengths).expect("nobody is gone");
                let mut part = vec![0; lengths[m.own]];
                scatterv(&m, &gathered, &mut part, &lengths).expect("nobody is gone");
                // As many bytes to each as both their numbers together.
                let sums: Vec<usize> = (0..n).map(|other| other + m.own).collect();
                let data: Vec<u8> = (0..n).flat_map(|to| vec![(m.own * 16 + to) as u8; sums[to]]).collect();
                let mut crossed = vec![0; data.len()];
                alltoallv(&m, (&data, &sums), (&mut crossed, &sums)).expect("nobody is gone");
                (all, part, crossed)
            });
            for (own, (all, part, crossed)) in got.into_iter().enumerate() {
                assert_eq!((all, part), (by_member.clone(), vec![own as u8 + 1; lengths[own]]));
                let want: Vec<u8> = (0..n).flat_map(|from| vec![(from * 16 + own) as u8; from + own]).collect();
                assert_eq!(crossed, want);
            }
        }
    }
}

#[test]
fn sums_run_up_to_each_member_and_are_parted_among_all() {
    for n in SIZES {
        let lengths: Vec<usize> = (0..n).map(|i| i % 3).collect();
        let all: usize = lengths.iter().sum();
        let got = each(n, |m| {
            let (data, mut sums, mut below, mut wire) = ([m.own as u64, 1], [0; 2], [77; 2], vec![0; 16 + 8 * all]);
            scan(&m, &data, &mut sums, &mut wire, |a, b| a + b).expect("nobody is gone");
            exscan(&m, &data, &mut below, &mut wire, |a, b| a + b).expect("nobody is gone");
            let numbers: Vec<u64> = (0..all).map(|i| (i * 100 + m.own) as u64).collect();
            let (mut part, mut room) = (vec![0; lengths[m.own]], vec![0; all]);
            let by = (&numbers[..], &lengths[..]);
            reduce_scatter(&m, by, &mut part, &mut room, &mut wire, |a, b| a + b).expect("nobody is gone");
            (sums, below, part)
        });
        for (own, (sums, below, part)) in got.into_iter().enumerate() {
            let up_to = (own * (own + 1) / 2) as u64;
            assert_eq!(sums, [up_to, own as u64 + 1]);
            assert_eq!(below, if own == 0 { [77; 2] } else { [up_to - own as u64, own as u64] });
            let first: usize = lengths[..own].iter().sum();
            let want: Vec<u64> =
                (first..first + lengths[own]).map(|i| (i * 100 * n + n * (n - 1) / 2) as u64).collect();
            assert_eq!(part, want);
        }
    }
}

#[test]
fn what_is_not_commutative_is_combined_in_the_order_of_members() {
    let got = each(5, |m| {
        let (mut sums, mut wire) = ([0u64], [0; 8]);
        scan(&m, &[m.own as u64 + 1], &mut sums, &mut wire, |before, own| before * 10 + own).expect("nobody is gone");
        sums[0]
    });
    assert_eq!(got, [1, 12, 123, 1234, 12345]);
}

#[test]
fn nobody_leaves_a_barrier_before_all_have_come_and_it_takes_a_message_a_round() {
    for n in SIZES {
        let come = std::sync::atomic::AtomicUsize::new(0);
        let order = std::sync::atomic::Ordering::SeqCst;
        let sent = each(n, |m| {
            come.fetch_add(1, order);
            barrier(&m).expect("nobody is gone");
            assert_eq!(come.load(order), n);
            m.sent.get()
        });
        assert_eq!(sent, vec![n.next_power_of_two().ilog2() as usize; n]);
    }
}

#[test]
fn an_error_of_a_message_ends_the_collective() {
    let got = each(3, |m| {
        if m.own == 2 {
            return Err("left");
        }
        let mut data = [0; 1];
        barrier(&m).and_then(|()| bcast(&m, 2, &mut data))
    });
    assert!(got.iter().all(Result::is_err), "{got:?}");
}
