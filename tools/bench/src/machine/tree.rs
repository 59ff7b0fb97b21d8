//! Collectives made of messages between two ranks, for machines that have none of their own.
//!
//! The algorithms are the textbook's: binomial trees for broadcast and reduction (largest subtree first), dissemination for the barrier (Hensgen, Finkel and Manber 1988), linear gather and
//! scatter, rings for allgather, pairwise exchange for alltoall.

use std::cell::RefCell;

use super::{Machine, Tag};
use crate::error::Result;

/// Messages inside collectives.
const TAG_TREE: Tag = 16;

/// The members of a group, by place, and this rank's own place.
#[derive(Clone, Debug)]
pub struct Members {
    ranks: Vec<usize>,
    own: usize,
    /// Numbers on their way, as bytes: kept, so that nothing is allocated while a collective is timed.
    wire: RefCell<Vec<u8>>,
}

impl Members {
    /// The group as this rank sees it; `None` if it is not in it.
    pub fn new(ranks: &[usize], rank: usize) -> Option<Members> {
        let own = ranks.iter().position(|&one| one == rank)?;
        Some(Members { ranks: ranks.to_vec(), own, wire: RefCell::default() })
    }

    /// Makes and touches room for numbers of so many bytes.
    pub fn make_room(&self, bytes: usize) {
        let mut wire = self.wire.borrow_mut();
        if wire.len() < bytes {
            wire.resize(bytes, 1);
        }
    }

    fn len(&self) -> usize {
        self.ranks.len()
    }

    /// The rank `steps` places on, around the ring.
    fn ahead(&self, steps: usize) -> usize {
        self.ranks[(self.own + steps) % self.len()]
    }

    fn behind(&self, steps: usize) -> usize {
        self.ranks[(self.own + self.len() - steps % self.len()) % self.len()]
    }
}

/// The collectives of a [`Machine`] of which this rank's number is the field `rank`, all of them by messages.
macro_rules! collectives {
    () => {
        fn group(&self, members: &[usize]) -> Result<Option<Members>> {
            Ok(Members::new(members, self.rank))
        }

        fn make_room(&self, group: &Members, bytes: usize) {
            group.make_room(bytes);
        }

        fn barrier(&self, group: &Members) -> Result<()> {
            tree::barrier(self, group)
        }

        fn bcast(&self, group: &Members, data: &mut [u8]) -> Result<()> {
            tree::bcast(self, group, data)
        }

        fn gather(&self, group: &Members, data: &[u8], into: &mut [u8]) -> Result<()> {
            tree::gather(self, group, data, into)
        }

        fn scatter(&self, group: &Members, data: &[u8], into: &mut [u8]) -> Result<()> {
            tree::scatter(self, group, data, into)
        }

        fn allgather(&self, group: &Members, data: &[u8], into: &mut [u8]) -> Result<()> {
            tree::allgather(self, group, data, into)
        }

        fn alltoall(&self, group: &Members, data: &[u8], into: &mut [u8]) -> Result<()> {
            tree::alltoall(self, group, data, into)
        }

        fn reduce(&self, group: &Members, data: &[f64], into: &mut [f64]) -> Result<()> {
            tree::reduce(self, group, data, into)
        }

        fn allreduce(&self, group: &Members, data: &[f64], into: &mut [f64]) -> Result<()> {
            tree::allreduce(self, group, data, into)
        }
    };
}
pub(super) use collectives;

/// Dissemination: in round k each tells the one 2^k places on.
pub fn barrier<M: Machine>(m: &M, g: &Members) -> Result<()> {
    let mut step = 1;
    while step < g.len() {
        m.sendrecv(&[], g.ahead(step), &mut [], g.behind(step), TAG_TREE)?;
        step *= 2;
    }
    Ok(())
}

/// Binomial tree: a member receives from the one without its lowest bit, then serves its own children, the largest subtree first.
pub fn bcast<M: Machine>(m: &M, g: &Members, data: &mut [u8]) -> Result<()> {
    let (own, top) = (g.own, g.len().next_power_of_two());
    let low = if own == 0 { top } else { 1 << own.trailing_zeros() };
    if own != 0 {
        m.recv(data, g.ranks[own - low], TAG_TREE)?;
    }
    let mut mask = low >> 1;
    while mask > 0 {
        if own + mask < g.len() {
            m.send(data, g.ranks[own + mask], TAG_TREE)?;
        }
        mask >>= 1;
    }
    Ok(())
}

/// The same tree upwards.
pub fn reduce<M: Machine>(m: &M, g: &Members, data: &[f64], into: &mut [f64]) -> Result<()> {
    let own = g.own;
    into.copy_from_slice(data);
    g.make_room(8 * data.len());
    let mut kept = g.wire.borrow_mut();
    let wire = &mut kept[..8 * data.len()];
    let mut mask = 1;
    while mask < g.len() {
        if own & mask != 0 {
            to_wire(into, wire);
            return m.send(wire, g.ranks[own - mask], TAG_TREE);
        }
        if own + mask < g.len() {
            m.recv(wire, g.ranks[own + mask], TAG_TREE)?;
            from_wire(wire, into, |sum, value| sum + value);
        }
        mask <<= 1;
    }
    Ok(())
}

pub fn allreduce<M: Machine>(m: &M, g: &Members, data: &[f64], into: &mut [f64]) -> Result<()> {
    reduce(m, g, data, into)?;
    let mut kept = g.wire.borrow_mut();
    let wire = &mut kept[..8 * data.len()];
    to_wire(into, wire);
    bcast(m, g, wire)?;
    from_wire(wire, into, |_, value| value);
    Ok(())
}

fn to_wire(numbers: &[f64], wire: &mut [u8]) {
    for (bytes, number) in wire.chunks_exact_mut(8).zip(numbers) {
        bytes.copy_from_slice(&number.to_ne_bytes());
    }
}

fn from_wire(wire: &[u8], numbers: &mut [f64], combine: impl Fn(f64, f64) -> f64) {
    let words = wire.chunks_exact(8).filter_map(|bytes| bytes.first_chunk());
    for (number, word) in numbers.iter_mut().zip(words) {
        *number = combine(*number, f64::from_ne_bytes(*word));
    }
}

/// Member 0 receives in order.
pub fn gather<M: Machine>(m: &M, g: &Members, data: &[u8], into: &mut [u8]) -> Result<()> {
    if g.own != 0 {
        return m.send(data, g.ranks[0], TAG_TREE);
    }
    let block = data.len();
    into[..block].copy_from_slice(data);
    for place in 1..g.len() {
        m.recv(&mut into[place * block..(place + 1) * block], g.ranks[place], TAG_TREE)?;
    }
    Ok(())
}

/// Member 0 sends in order.
pub fn scatter<M: Machine>(m: &M, g: &Members, data: &[u8], into: &mut [u8]) -> Result<()> {
    if g.own != 0 {
        return m.recv(into, g.ranks[0], TAG_TREE);
    }
    let block = into.len();
    for place in 1..g.len() {
        m.send(&data[place * block..(place + 1) * block], g.ranks[place], TAG_TREE)?;
    }
    into.copy_from_slice(&data[..block]);
    Ok(())
}

/// Ring: in each step the block last received goes on to the next member.
pub fn allgather<M: Machine>(m: &M, g: &Members, data: &[u8], into: &mut [u8]) -> Result<()> {
    let (block, n) = (data.len(), g.len());
    into[g.own * block..(g.own + 1) * block].copy_from_slice(data);
    for step in 1..n {
        let (has, wants) = ((g.own + n - step + 1) % n, (g.own + n - step) % n);
        let (carried, place) = two_blocks(into, block, has, wants);
        m.sendrecv(carried, g.ahead(1), place, g.behind(1), TAG_TREE)?;
    }
    Ok(())
}

/// One block to read and another to write.
fn two_blocks(all: &mut [u8], block: usize, read: usize, write: usize) -> (&[u8], &mut [u8]) {
    if read < write {
        let (before, from) = all.split_at_mut(write * block);
        (&before[read * block..(read + 1) * block], &mut from[..block])
    } else {
        let (before, from) = all.split_at_mut(read * block);
        (&from[..block], &mut before[write * block..(write + 1) * block])
    }
}

/// Pairwise: in step i to the member i places on, from the one i places back.
pub fn alltoall<M: Machine>(m: &M, g: &Members, data: &[u8], into: &mut [u8]) -> Result<()> {
    let n = g.len();
    let block = data.len() / n;
    let at = |place: usize| place * block..(place + 1) * block;
    into[at(g.own)].copy_from_slice(&data[at(g.own)]);
    for step in 1..n {
        let (to, from) = ((g.own + step) % n, (g.own + n - step) % n);
        m.sendrecv(&data[at(to)], g.ahead(step), &mut into[at(from)], g.behind(step), TAG_TREE)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::sim::{Model, run};

    #[test]
    fn collectives_take_no_memory_once_room_was_made() {
        run(&Model::plain(4), |m| {
            let g = m.group(&[0, 1, 2, 3]).unwrap().unwrap();
            m.make_room(&g, 8 * 100);
            let place = |g: &Members| (g.wire.borrow().as_ptr() as usize, g.wire.borrow().capacity());
            let before = place(&g);
            assert!(before.1 >= 800);
            let (numbers, mut sums) = ([1.0; 100], [0.0; 100]);
            m.allreduce(&g, &numbers, &mut sums).unwrap();
            assert_eq!(sums, [4.0; 100]);
            m.reduce(&g, &numbers, &mut sums).unwrap();
            assert_eq!(place(&g), before);
        });
    }
}
