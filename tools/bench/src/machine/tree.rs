//! Collectives for machines that have none of their own: those of `weir_collective`, by the
//! machine's messages.

use std::cell::RefCell;

use weir_collective::Group;

use super::{Machine, Tag};
use crate::error::{BenchError, Result};

/// Messages inside collectives.
const TAG_TREE: Tag = 16;

/// The members of a group, by place, and this rank's own place.
#[derive(Clone, Debug)]
pub struct Members {
    ranks: Vec<usize>,
    own: usize,
    /// Numbers on their way, as bytes: kept, so that nothing is allocated while a collective is
    /// timed.
    wire: RefCell<Vec<u8>>,
    /// Sums before they are scattered: kept for the same reason.
    sums: RefCell<Vec<f64>>,
}

impl Members {
    /// The group as this rank sees it; `None` if it is not in it.
    pub fn new(ranks: &[usize], rank: usize) -> Option<Members> {
        let own = ranks.iter().position(|&one| one == rank)?;
        Some(Members { ranks: ranks.to_vec(), own, wire: RefCell::default(), sums: RefCell::default() })
    }

    /// How many they are.
    pub fn count(&self) -> usize {
        self.ranks.len()
    }

    /// The rank of the member at this place.
    pub fn rank(&self, place: usize) -> usize {
        self.ranks[place]
    }

    /// This rank's own place.
    pub fn own(&self) -> usize {
        self.own
    }

    /// Makes and touches room for numbers of so many bytes.
    pub fn make_room(&self, bytes: usize) {
        let mut wire = self.wire.borrow_mut();
        if wire.len() < bytes {
            wire.resize(bytes, 1);
        }
        let mut sums = self.sums.borrow_mut();
        if sums.len() < bytes / 8 {
            sums.resize(bytes / 8, 1.0);
        }
    }
}

/// The collectives of a [`Machine`] of which this rank's number is the field `rank`, all of them by
/// messages.
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

        fn blocks(&self, lengths: &[usize]) -> Result<Vec<usize>> {
            Ok(lengths.to_vec())
        }

        fn gatherv(&self, group: &Members, data: &[u8], into: &mut [u8], blocks: &Vec<usize>) -> Result<()> {
            tree::gatherv(self, group, data, into, blocks)
        }

        fn scatterv(&self, group: &Members, data: &[u8], into: &mut [u8], blocks: &Vec<usize>) -> Result<()> {
            tree::scatterv(self, group, data, into, blocks)
        }

        fn allgatherv(&self, group: &Members, data: &[u8], into: &mut [u8], blocks: &Vec<usize>) -> Result<()> {
            tree::allgatherv(self, group, data, into, blocks)
        }

        fn alltoallv(&self, group: &Members, data: &[u8], into: &mut [u8], blocks: &Vec<usize>) -> Result<()> {
            tree::alltoallv(self, group, data, into, blocks)
        }

        fn reduce_scatter(&self, group: &Members, data: &[f64], into: &mut [f64], blocks: &Vec<usize>) -> Result<()> {
            tree::reduce_scatter(self, group, data, into, blocks)
        }

        fn scan(&self, group: &Members, data: &[f64], into: &mut [f64]) -> Result<()> {
            tree::scan(self, group, data, into)
        }

        fn exscan(&self, group: &Members, data: &[f64], into: &mut [f64]) -> Result<()> {
            tree::exscan(self, group, data, into)
        }

        /// Nothing goes on here while nobody waits: it is the barrier.
        fn ibarrier(&self, group: &Members) -> Result<()> {
            tree::barrier(self, group)
        }

        fn iallreduce(&self, group: &Members, data: &[f64], into: &mut [f64]) -> Result<()> {
            tree::allreduce(self, group, data, into)
        }

        fn persistent<'b>(&self, out: &'b [u8], into: &'b mut [u8], peer: usize, tag: Tag) -> Result<Again<'b>> {
            Ok(Again { out, into, peer, tag })
        }

        fn start_and_wait(&self, exchange: &mut Again<'_>) -> Result<()> {
            let Again { out, into, peer, tag } = exchange;
            self.sendrecv(out, *peer, into, *peer, *tag)
        }
    };
}
pub(super) use collectives;

/// The group's members as `weir_collective` sees them: its messages are the machine's, of a tag of
/// their own.
struct By<'a, M>(&'a M, &'a Members);

impl<M: Machine> Group for By<'_, M> {
    type Error = BenchError;

    #[inline]
    fn own(&self) -> usize {
        self.1.own
    }

    #[inline]
    fn members(&self) -> usize {
        self.1.ranks.len()
    }

    #[inline]
    fn send(&self, data: &[u8], to: usize) -> Result<()> {
        self.0.send(data, self.1.ranks[to], TAG_TREE)
    }

    #[inline]
    fn recv(&self, into: &mut [u8], from: usize) -> Result<()> {
        self.0.recv(into, self.1.ranks[from], TAG_TREE)
    }

    #[inline]
    fn sendrecv(&self, data: &[u8], to: usize, into: &mut [u8], from: usize) -> Result<()> {
        self.0.sendrecv(data, self.1.ranks[to], into, self.1.ranks[from], TAG_TREE)
    }
}

#[inline]
pub fn barrier<M: Machine>(m: &M, g: &Members) -> Result<()> {
    weir_collective::barrier(&By(m, g))
}

#[inline]
pub fn bcast<M: Machine>(m: &M, g: &Members, data: &mut [u8]) -> Result<()> {
    weir_collective::bcast(&By(m, g), 0, data)
}

pub fn reduce<M: Machine>(m: &M, g: &Members, data: &[f64], into: &mut [f64]) -> Result<()> {
    g.make_room(8 * data.len());
    weir_collective::reduce(&By(m, g), data, into, &mut g.wire.borrow_mut(), |sum, value| sum + value)
}

pub fn allreduce<M: Machine>(m: &M, g: &Members, data: &[f64], into: &mut [f64]) -> Result<()> {
    g.make_room(8 * data.len());
    weir_collective::allreduce(&By(m, g), data, into, &mut g.wire.borrow_mut(), |sum, value| sum + value)
}

pub fn gather<M: Machine>(m: &M, g: &Members, data: &[u8], into: &mut [u8]) -> Result<()> {
    weir_collective::gather(&By(m, g), data, into)
}

pub fn scatter<M: Machine>(m: &M, g: &Members, data: &[u8], into: &mut [u8]) -> Result<()> {
    weir_collective::scatter(&By(m, g), data, into)
}

pub fn allgather<M: Machine>(m: &M, g: &Members, data: &[u8], into: &mut [u8]) -> Result<()> {
    weir_collective::allgather(&By(m, g), data, into)
}

pub fn alltoall<M: Machine>(m: &M, g: &Members, data: &[u8], into: &mut [u8]) -> Result<()> {
    weir_collective::alltoall(&By(m, g), data, into)
}

pub fn gatherv<M: Machine>(m: &M, g: &Members, data: &[u8], into: &mut [u8], blocks: &[usize]) -> Result<()> {
    weir_collective::gatherv(&By(m, g), data, into, blocks)
}

pub fn scatterv<M: Machine>(m: &M, g: &Members, data: &[u8], into: &mut [u8], blocks: &[usize]) -> Result<()> {
    weir_collective::scatterv(&By(m, g), data, into, blocks)
}

pub fn allgatherv<M: Machine>(m: &M, g: &Members, data: &[u8], into: &mut [u8], blocks: &[usize]) -> Result<()> {
    weir_collective::allgatherv(&By(m, g), data, into, blocks)
}

pub fn alltoallv<M: Machine>(m: &M, g: &Members, data: &[u8], into: &mut [u8], blocks: &[usize]) -> Result<()> {
    weir_collective::alltoallv(&By(m, g), (data, blocks), (into, blocks))
}

pub fn reduce_scatter<M: Machine>(m: &M, g: &Members, data: &[f64], into: &mut [f64], blocks: &[usize]) -> Result<()> {
    g.make_room(8 * data.len());
    let sums = &mut g.sums.borrow_mut()[..data.len()];
    weir_collective::reduce_scatter(&By(m, g), (data, blocks), into, sums, &mut g.wire.borrow_mut(), |a, b| a + b)
}

pub fn scan<M: Machine>(m: &M, g: &Members, data: &[f64], into: &mut [f64]) -> Result<()> {
    g.make_room(8 * data.len());
    weir_collective::scan(&By(m, g), data, into, &mut g.wire.borrow_mut(), |sum, value| sum + value)
}

pub fn exscan<M: Machine>(m: &M, g: &Members, data: &[f64], into: &mut [f64]) -> Result<()> {
    g.make_room(8 * data.len());
    weir_collective::exscan(&By(m, g), data, into, &mut g.wire.borrow_mut(), |sum, value| sum + value)
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
