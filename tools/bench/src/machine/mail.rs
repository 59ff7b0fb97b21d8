//! Messages by tags of their own, apart from all others.

use super::Tag;
use crate::error::Result;

/// Tags of mail are below this.
pub const MAIL_TAGS: Tag = 1 << 14;
/// Where a machine has one room of tags for all messages: those of mail are from here on.
pub(super) const TAG_MAIL: Tag = 1 << 14;

/// What a rank's receives need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// Receives that can stand posted at once.
    pub places: usize,
    /// Most bytes of a message.
    pub bytes: usize,
}

/// A message that has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Landed {
    /// The place of the receive that took it.
    pub place: usize,
    /// Its tag.
    pub tag: Tag,
    /// Who sent it, by its place in the group.
    pub from: usize,
    /// Bytes.
    pub bytes: usize,
}

/// Messages among the members of a group: sends that are begun without waiting, and receives that
/// stand posted, each at a place of its own ([`super::Machine::mail`]). Members are named by their
/// places in the group.
///
/// Receives take messages in MPI's order: of those that fit one message, the one that was posted
/// first; of messages that fit one receive and come from one member, the one that was sent first.
pub trait Mail<'a> {
    /// Begins a send; `data` may be sent again at once.
    ///
    /// # Errors
    /// The machine's.
    fn send(&mut self, data: &'a [u8], to: usize, tag: Tag) -> Result<()>;

    /// Posts the receive at a place that is free: from a member or anybody, of this tag or any.
    ///
    /// # Errors
    /// The machine's.
    fn post(&mut self, place: usize, from: Option<usize>, tag: Option<Tag>) -> Result<()>;

    /// Waits until one of the receives has its message; its place is free then.
    ///
    /// # Errors
    /// The machine's.
    fn next(&mut self) -> Result<Landed>;

    /// Receives a message at a place that is free, and waits for this one: by the machine's own
    /// call for that, if it has one. No receive may be posted meanwhile.
    ///
    /// # Errors
    /// The machine's.
    fn receive(&mut self, place: usize, from: Option<usize>, tag: Option<Tag>) -> Result<Landed> {
        self.post(place, from, tag)?;
        self.next()
    }

    /// The memory of a free place, which begins with the message that came there last.
    fn memory(&self, place: usize) -> &[u8];

    /// Goes on with what was begun until the clock shows `until`; returns what it shows then.
    ///
    /// # Errors
    /// The machine's.
    fn spin_until(&mut self, until: u64) -> Result<u64>;
}
