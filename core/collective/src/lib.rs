//! Collectives made of messages between two members of a group: one place for all who need them and
//! have none of their own, faces and benchmark alike.
//!
//! Pure: [`Group`] is how messages go, and its errors are the only ones. Nothing is allocated;
//! every collective sends and receives a number of messages that the group's size bounds, and an
//! error of one of them ends it. (That the others hear of it is the affair of who carries the
//! messages: `weir_engine::Team` tells them.)
//!
//! The algorithms are the textbook's: binomial trees for broadcast and reduction (largest subtree
//! first), dissemination for the barrier (Hensgen, Finkel and Manber 1988), linear gather and
//! scatter, rings for allgather, pairwise exchange for alltoall, a chain for running sums. A group
//! of one exchanges nothing.
//!
//! Buffers over `n` members hold `n` blocks of equal length where each member has its own; block
//! `i` belongs to member `i`.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

mod uneven;

pub use uneven::{allgatherv, alltoallv, exscan, gatherv, reduce_scatter, scan, scatterv};

/// A group as one of its members sees it. All members call the same collectives in the same order.
pub trait Group {
    /// What may go wrong with a message.
    type Error;

    /// This member's place, from 0.
    fn own(&self) -> usize;
    /// How many members there are, at least one.
    fn members(&self) -> usize;

    /// Sends to a member; returns when `data` may be used again.
    ///
    /// # Errors
    /// When it cannot be sent.
    fn send(&self, data: &[u8], to: usize) -> Result<(), Self::Error>;
    /// Receives exactly `into.len()` bytes from a member.
    ///
    /// # Errors
    /// When they do not come.
    fn recv(&self, into: &mut [u8], from: usize) -> Result<(), Self::Error>;
    /// Sends and receives at a time.
    ///
    /// # Errors
    /// As [`Group::send`] and [`Group::recv`].
    fn sendrecv(&self, data: &[u8], to: usize, into: &mut [u8], from: usize) -> Result<(), Self::Error>;

    /// The member `steps` places on, around the ring.
    fn ahead(&self, steps: usize) -> usize {
        (self.own() + steps) % self.members()
    }

    /// The member `steps` places back.
    fn behind(&self, steps: usize) -> usize {
        (self.own() + self.members() - steps % self.members()) % self.members()
    }
}

/// A number as messages carry it: eight bytes, little-endian.
pub trait Number: Copy {
    /// On its way.
    fn to_wire(self) -> [u8; 8];
    /// Off it.
    fn from_wire(wire: [u8; 8]) -> Self;
}

impl Number for f64 {
    fn to_wire(self) -> [u8; 8] {
        self.to_le_bytes()
    }
    fn from_wire(wire: [u8; 8]) -> Self {
        f64::from_le_bytes(wire)
    }
}

impl Number for u64 {
    fn to_wire(self) -> [u8; 8] {
        self.to_le_bytes()
    }
    fn from_wire(wire: [u8; 8]) -> Self {
        u64::from_le_bytes(wire)
    }
}

/// Returns when all members have called it. Dissemination: in round k each tells the one 2^k places
/// on.
///
/// # Errors
/// The group's.
#[inline]
pub fn barrier<G: Group>(g: &G) -> Result<(), G::Error> {
    let mut step = 1;
    while step < g.members() {
        g.sendrecv(&[], g.ahead(step), &mut [], g.behind(step))?;
        step *= 2;
    }
    Ok(())
}

/// The root's `data` comes to all. Binomial tree: a member receives from the one without its lowest
/// bit, then serves its own children, the largest subtree first.
///
/// # Errors
/// The group's.
#[inline]
pub fn bcast<G: Group>(g: &G, root: usize, data: &mut [u8]) -> Result<(), G::Error> {
    let n = g.members();
    // Places in the tree, whose root is 0.
    let own = (g.own() + n - root) % n;
    let member = |place: usize| (place + root) % n;
    let low = if own == 0 { n.next_power_of_two() } else { 1 << own.trailing_zeros() };
    if own != 0 {
        g.recv(data, member(own - low))?;
    }
    let mut mask = low >> 1;
    while mask > 0 {
        if own + mask < n {
            g.send(data, member(own + mask))?;
        }
        mask >>= 1;
    }
    Ok(())
}

/// Everybody's `data` combined, place by place, comes to member 0's `into`; the others' `into` is
/// changed on the way. The tree of [`bcast`] upwards.
///
/// `wire` has room for eight bytes a number. `combine` is associative and commutative, as far as
/// the caller minds.
///
/// # Errors
/// The group's.
///
/// # Panics
/// If `into` is not as long as `data`, or `wire` is too short.
#[inline]
pub fn reduce<G: Group, T: Number>(
    g: &G,
    data: &[T],
    into: &mut [T],
    wire: &mut [u8],
    combine: impl Fn(T, T) -> T,
) -> Result<(), G::Error> {
    let (own, n) = (g.own(), g.members());
    into.copy_from_slice(data);
    let wire = &mut wire[..8 * data.len()];
    let mut mask = 1;
    while mask < n {
        if own & mask != 0 {
            to_wire(into, wire);
            return g.send(wire, own - mask);
        }
        if own + mask < n {
            g.recv(wire, own + mask)?;
            from_wire(wire, into, &combine);
        }
        mask <<= 1;
    }
    Ok(())
}

/// The same for everybody.
///
/// # Errors
/// The group's.
///
/// # Panics
/// As [`reduce`].
#[inline]
pub fn allreduce<G: Group, T: Number>(
    g: &G,
    data: &[T],
    into: &mut [T],
    wire: &mut [u8],
    combine: impl Fn(T, T) -> T,
) -> Result<(), G::Error> {
    reduce(g, data, into, wire, combine)?;
    let wire = &mut wire[..8 * data.len()];
    to_wire(into, wire);
    bcast(g, 0, wire)?;
    from_wire(wire, into, |_, value| value);
    Ok(())
}

fn to_wire<T: Number>(numbers: &[T], wire: &mut [u8]) {
    for (bytes, number) in wire.chunks_exact_mut(8).zip(numbers) {
        bytes.copy_from_slice(&number.to_wire());
    }
}

fn from_wire<T: Number>(wire: &[u8], numbers: &mut [T], combine: impl Fn(T, T) -> T) {
    let words = wire.chunks_exact(8).filter_map(|bytes| bytes.first_chunk());
    for (number, word) in numbers.iter_mut().zip(words) {
        *number = combine(*number, T::from_wire(*word));
    }
}

/// Everybody's `data` comes to member 0's `into`, by member; others' `into` is not looked at.
/// Member 0 receives in order.
///
/// # Errors
/// The group's.
///
/// # Panics
/// If member 0's `into` has no room.
#[inline]
pub fn gather<G: Group>(g: &G, data: &[u8], into: &mut [u8]) -> Result<(), G::Error> {
    if g.own() != 0 {
        return g.send(data, 0);
    }
    let block = data.len();
    into[..block].copy_from_slice(data);
    for place in 1..g.members() {
        g.recv(&mut into[place * block..(place + 1) * block], place)?;
    }
    Ok(())
}

/// Member 0's blocks in `data` go one to each `into`, in order.
///
/// # Errors
/// The group's.
///
/// # Panics
/// If member 0's `data` is too short.
#[inline]
pub fn scatter<G: Group>(g: &G, data: &[u8], into: &mut [u8]) -> Result<(), G::Error> {
    if g.own() != 0 {
        return g.recv(into, 0);
    }
    let block = into.len();
    for place in 1..g.members() {
        g.send(&data[place * block..(place + 1) * block], place)?;
    }
    into.copy_from_slice(&data[..block]);
    Ok(())
}

/// Everybody's `data` comes to everybody's `into`, by member. Ring: in each step the block last
/// received goes on to the next member.
///
/// # Errors
/// The group's.
///
/// # Panics
/// If `into` has no room.
#[inline]
pub fn allgather<G: Group>(g: &G, data: &[u8], into: &mut [u8]) -> Result<(), G::Error> {
    let (block, n, own) = (data.len(), g.members(), g.own());
    into[own * block..(own + 1) * block].copy_from_slice(data);
    for step in 1..n {
        let (has, wants) = ((own + n - step + 1) % n, (own + n - step) % n);
        let (carried, place) = two_blocks(into, block, has, wants);
        g.sendrecv(carried, g.ahead(1), place, g.behind(1))?;
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

/// Block `i` of `data` goes to member `i`, which finds it at this member's place in `into`.
/// Pairwise: in step i to the member i places on, from the one i places back.
///
/// # Errors
/// The group's.
///
/// # Panics
/// If `into` has no room.
#[inline]
pub fn alltoall<G: Group>(g: &G, data: &[u8], into: &mut [u8]) -> Result<(), G::Error> {
    let (n, own) = (g.members(), g.own());
    let block = data.len() / n;
    let at = |place: usize| place * block..(place + 1) * block;
    into[at(own)].copy_from_slice(&data[at(own)]);
    for step in 1..n {
        let (to, from) = (g.ahead(step), g.behind(step));
        g.sendrecv(&data[at(to)], to, &mut into[at(from)], from)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
