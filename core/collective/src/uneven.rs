//! Blocks of unequal length, and running sums.

use crate::{Group, Number, from_wire, reduce, to_wire};

/// Where each member's block lies: the blocks lie behind each other, in the order of members.
fn place(lengths: &[usize], member: usize) -> core::ops::Range<usize> {
    let first: usize = lengths[..member].iter().sum();
    first..first + lengths[member]
}

/// As [`gather`](crate::gather), with a length for each member.
///
/// # Errors
/// The group's.
///
/// # Panics
/// If there is not a length for each member, `data` is not as long as this member's, or member 0's
/// `into` has no room.
#[inline]
pub fn gatherv<G: Group>(g: &G, data: &[u8], into: &mut [u8], lengths: &[usize]) -> Result<(), G::Error> {
    assert_eq!(data.len(), lengths[g.own()]);
    if g.own() != 0 {
        return g.send(data, 0);
    }
    into[place(lengths, 0)].copy_from_slice(data);
    for member in 1..g.members() {
        g.recv(&mut into[place(lengths, member)], member)?;
    }
    Ok(())
}

/// As [`scatter`](crate::scatter), with a length for each member.
///
/// # Errors
/// The group's.
///
/// # Panics
/// As [`gatherv`], of the other buffer each.
#[inline]
pub fn scatterv<G: Group>(g: &G, data: &[u8], into: &mut [u8], lengths: &[usize]) -> Result<(), G::Error> {
    assert_eq!(into.len(), lengths[g.own()]);
    if g.own() != 0 {
        return g.recv(into, 0);
    }
    for member in 1..g.members() {
        g.send(&data[place(lengths, member)], member)?;
    }
    into.copy_from_slice(&data[place(lengths, 0)]);
    Ok(())
}

/// As [`allgather`](crate::allgather), with a length for each member: the same ring.
///
/// # Errors
/// The group's.
///
/// # Panics
/// If there is not a length for each member, `data` is not as long as this member's, or `into` has
/// no room.
#[inline]
pub fn allgatherv<G: Group>(g: &G, data: &[u8], into: &mut [u8], lengths: &[usize]) -> Result<(), G::Error> {
    let (n, own) = (g.members(), g.own());
    into[place(lengths, own)].copy_from_slice(data);
    for step in 1..n {
        let (has, wants) = (place(lengths, (own + n - step + 1) % n), place(lengths, (own + n - step) % n));
        let (carried, room) = if has.start <= wants.start {
            // An empty block may begin where the next does.
            let (before, from) = into.split_at_mut(wants.start.max(has.end));
            (&before[has], &mut from[..wants.len()])
        } else {
            let (before, from) = into.split_at_mut(has.start.max(wants.end));
            (&from[..has.len()], &mut before[wants])
        };
        g.sendrecv(carried, g.ahead(1), room, g.behind(1))?;
    }
    Ok(())
}

/// As [`alltoall`](crate::alltoall), with a length for each member's block, in either direction.
///
/// # Errors
/// The group's.
///
/// # Panics
/// If there is not a length for each member, a buffer is too short, or the lengths of this member's
/// own block differ.
#[inline]
pub fn alltoallv<G: Group>(
    g: &G,
    (data, out): (&[u8], &[usize]),
    (into, inward): (&mut [u8], &[usize]),
) -> Result<(), G::Error> {
    let own = g.own();
    into[place(inward, own)].copy_from_slice(&data[place(out, own)]);
    for step in 1..g.members() {
        let (to, from) = (g.ahead(step), g.behind(step));
        g.sendrecv(&data[place(out, to)], to, &mut into[place(inward, from)], from)?;
    }
    Ok(())
}

/// Everybody's `data` combined, place by place, of which each member has its block in `into`: a
/// [`reduce`], then member 0 scatters.
///
/// `lengths` are in numbers. `sums` has room for as many numbers as `data`, `wire` for eight bytes
/// each.
///
/// # Errors
/// The group's.
///
/// # Panics
/// If a buffer does not have the length it should.
#[inline]
pub fn reduce_scatter<G: Group, T: Number>(
    g: &G,
    (data, lengths): (&[T], &[usize]),
    into: &mut [T],
    sums: &mut [T],
    wire: &mut [u8],
    combine: impl Fn(T, T) -> T,
) -> Result<(), G::Error> {
    reduce(g, data, sums, wire, combine)?;
    let own = g.own();
    assert_eq!(into.len(), lengths[own]);
    if own != 0 {
        let wire = &mut wire[..8 * into.len()];
        g.recv(wire, 0)?;
        from_wire(wire, into, |_, value| value);
        return Ok(());
    }
    for member in 1..g.members() {
        let block = &sums[place(lengths, member)];
        let wire = &mut wire[..8 * block.len()];
        to_wire(block, wire);
        g.send(wire, member)?;
    }
    into.copy_from_slice(&sums[place(lengths, 0)]);
    Ok(())
}

/// `data` of the members up to this one combined, place by place. A chain: each member waits for
/// the one before it.
///
/// # Errors
/// The group's.
///
/// # Panics
/// If `into` is not as long as `data`, or `wire` is too short.
#[inline]
pub fn scan<G: Group, T: Number>(
    g: &G,
    data: &[T],
    into: &mut [T],
    wire: &mut [u8],
    combine: impl Fn(T, T) -> T,
) -> Result<(), G::Error> {
    let own = g.own();
    into.copy_from_slice(data);
    let wire = &mut wire[..8 * data.len()];
    if own > 0 {
        g.recv(wire, own - 1)?;
        from_wire(wire, into, |value, before| combine(before, value));
    }
    if own + 1 < g.members() {
        to_wire(into, wire);
        g.send(wire, own + 1)?;
    }
    Ok(())
}

/// The same of the members below this one; member 0's `into` stays as it is.
///
/// # Errors
/// The group's.
///
/// # Panics
/// As [`scan`].
#[inline]
pub fn exscan<G: Group, T: Number>(
    g: &G,
    data: &[T],
    into: &mut [T],
    wire: &mut [u8],
    combine: impl Fn(T, T) -> T,
) -> Result<(), G::Error> {
    assert_eq!(into.len(), data.len());
    let (own, last) = (g.own(), g.own() + 1 == g.members());
    let wire = &mut wire[..8 * data.len()];
    if own > 0 {
        g.recv(wire, own - 1)?;
        from_wire(wire, into, |_, before| before);
    }
    if last {
        return Ok(());
    }
    for ((bytes, before), value) in wire.chunks_exact_mut(8).zip(into.iter()).zip(data) {
        let sum = if own > 0 { combine(*before, *value) } else { *value };
        bytes.copy_from_slice(&sum.to_wire());
    }
    g.send(wire, own + 1)
}
