//! Connections that have not proved themselves.

use crate::handshake::Listener;
use std::os::fd::OwnedFd;

/// A connection that has not proved itself.
#[derive(Debug)]
pub struct Stranger {
    pub socket: OwnedFd,
    /// After HELLO.
    pub handshake: Option<Listener>,
    pub deadline_ns: u64,
}

/// All of them.
#[derive(Debug, Default)]
pub struct Strangers {
    all: Vec<Option<Stranger>>,
    count: usize,
}

impl Strangers {
    /// When the first of them has had its time.
    pub fn next_timeout_ns(&self) -> Option<u64> {
        self.all.iter().flatten().map(|stranger| stranger.deadline_ns).min()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Places, taken or not.
    pub fn places(&self) -> usize {
        self.all.len()
    }

    /// The one at a place.
    pub fn get(&self, at: usize) -> Option<&Stranger> {
        self.all.get(at)?.as_ref()
    }

    /// Puts one back where it was taken from: its tag says so.
    pub fn put_back(&mut self, at: usize, stranger: Stranger) {
        if let Some(place) = self.all.get_mut(at) {
            self.count += usize::from(place.replace(stranger).is_none());
        }
    }

    /// Takes one out.
    pub fn take(&mut self, at: usize) -> Option<Stranger> {
        let stranger = self.all.get_mut(at)?.take()?;
        self.count -= 1;
        Some(stranger)
    }

    /// Adds one; returns its place.
    pub fn put(&mut self, stranger: Stranger) -> usize {
        self.count += 1;
        match self.all.iter().position(Option::is_none) {
            Some(at) => {
                self.all[at] = Some(stranger);
                at
            }
            None => {
                self.all.push(Some(stranger));
                self.all.len() - 1
            }
        }
    }

    /// Whose time is over first.
    pub fn oldest(&self) -> Option<usize> {
        let all = self.all.iter().enumerate();
        all.filter_map(|(at, s)| s.as_ref().map(|s| (s.deadline_ns, at))).min().map(|(_, at)| at)
    }
}
