//! The harness's own small exchanges: rank 0 gathers, decides and tells. Linear, as they are never
//! timed and few.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Machine, TAG_CONTROL};
use crate::error::{BenchError, Result};

/// Longest message that a rank may announce to another, bytes: what is beyond is a broken stream,
/// not a wish for memory.
const LONGEST: u64 = 1 << 36;

/// What is longer goes in pieces: MPI counts in 32 bits.
const PIECE: usize = 1 << 30;

/// How long who waits quietly sleeps between two looks, ns: it disturbs no measurement, and a cell
/// is longer by far.
const LOOK_NS: u64 = 5_000_000;

/// Exchanges among all ranks, for every [`Machine`].
pub trait Control: Machine {
    /// Sends bytes whose length the receiver does not know.
    ///
    /// # Errors
    /// The machine's.
    fn tell_bytes(&self, data: &[u8], to: usize) -> Result<()> {
        self.send(&(data.len() as u64).to_le_bytes(), to, TAG_CONTROL)?;
        data.chunks(PIECE).try_for_each(|piece| self.send(piece, to, TAG_CONTROL))
    }

    /// Receives what [`Control::tell_bytes`] sent.
    ///
    /// # Errors
    /// The machine's, or a length that cannot be.
    fn hear_bytes(&self, from: usize) -> Result<Vec<u8>> {
        let mut len = [0; 8];
        self.recv(&mut len, from, TAG_CONTROL)?;
        let len = u64::from_le_bytes(len);
        if len > LONGEST {
            let cause = format!("rank {from} announced {len} bytes");
            return Err(BenchError::machine("exchange among ranks", cause));
        }
        let mut data = vec![0; len as usize];
        data.chunks_mut(PIECE).try_for_each(|piece| self.recv(piece, from, TAG_CONTROL))?;
        Ok(data)
    }

    /// Everybody's bytes, by rank, at rank 0; nothing elsewhere.
    ///
    /// # Errors
    /// The machine's.
    fn gather_bytes(&self, data: &[u8]) -> Result<Vec<Vec<u8>>> {
        if self.rank() != 0 {
            self.tell_bytes(data, 0)?;
            return Ok(Vec::new());
        }
        let mut all = vec![data.to_vec()];
        for rank in 1..self.size() {
            all.push(self.hear_bytes(rank)?);
        }
        Ok(all)
    }

    /// Rank 0's bytes, at every rank.
    ///
    /// # Errors
    /// The machine's.
    fn share_bytes(&self, data: Vec<u8>) -> Result<Vec<u8>> {
        if self.rank() != 0 {
            return self.hear_bytes(0);
        }
        for rank in 1..self.size() {
            self.tell_bytes(&data, rank)?;
        }
        Ok(data)
    }

    /// Everybody's bytes, read by rank as they come, at rank 0; nothing elsewhere. There may be a
    /// lot of them: only one rank's are held.
    ///
    /// # Errors
    /// The machine's, or the reader's.
    fn gather_read<T>(&self, data: Vec<u8>, read: impl Fn(&[u8]) -> Result<T>) -> Result<Vec<T>> {
        if self.rank() != 0 {
            self.tell_bytes(&data, 0)?;
            return Ok(Vec::new());
        }
        let mut all = vec![read(&data)?];
        drop(data);
        for rank in 1..self.size() {
            all.push(read(&self.hear_bytes(rank)?)?);
        }
        Ok(all)
    }

    /// Everybody's value, by rank, at rank 0; nothing elsewhere.
    ///
    /// # Errors
    /// The machine's, or ranks of different versions.
    fn gather_values<T: Serialize + DeserializeOwned>(&self, value: &T) -> Result<Vec<T>> {
        self.gather_bytes(&encode(value)?)?.iter().map(|one| decode(one)).collect()
    }

    /// Rank 0's value, at every rank.
    ///
    /// # Errors
    /// The machine's, or ranks of different versions.
    fn share<T: Serialize + DeserializeOwned>(&self, value: &T) -> Result<T> {
        let data = if self.rank() == 0 { encode(value)? } else { Vec::new() };
        decode(&self.share_bytes(data)?)
    }

    /// Waits for a word from a rank without keeping a processor busy.
    ///
    /// # Errors
    /// The machine's.
    fn wait_quietly(&self, from: usize) -> Result<()> {
        while !self.arrived(from, TAG_CONTROL)? {
            self.pause(LOOK_NS);
        }
        Ok(())
    }

    /// Tells some ranks a value.
    ///
    /// # Errors
    /// The machine's.
    fn tell<T: Serialize>(&self, value: &T, to: &[usize]) -> Result<()> {
        let data = encode(value)?;
        to.iter().filter(|&&rank| rank != self.rank()).try_for_each(|&rank| self.tell_bytes(&data, rank))
    }

    /// Receives what [`Control::tell`] told.
    ///
    /// # Errors
    /// The machine's, or ranks of different versions.
    fn hear<T: DeserializeOwned>(&self, from: usize) -> Result<T> {
        decode(&self.hear_bytes(from)?)
    }

    /// What a rank came to on its own; if any rank failed, all do, so that nobody waits for it.
    ///
    /// # Errors
    /// That of the first rank that has one, at every rank: [`BenchError::Usage`] if it is, else
    /// [`BenchError::Told`] or [`BenchError::Elsewhere`]; or the machine's.
    fn agree<T>(&self, result: Result<T>) -> Result<T> {
        let own = result.as_ref().err().map(|error| (matches!(error, BenchError::Usage(_)), error.to_string()));
        let all = self.everybody(&own)?;
        match all.into_iter().enumerate().find_map(|(rank, cause)| Some((rank, cause?))) {
            None => result,
            Some((_, (true, cause))) => Err(BenchError::Usage(cause)),
            Some((0, (false, cause))) => Err(BenchError::Told(cause)),
            Some((rank, (false, cause))) => Err(BenchError::Elsewhere { rank, cause }),
        }
    }

    /// Everybody's value, by rank, at every rank.
    ///
    /// # Errors
    /// The machine's, or ranks of different versions.
    fn everybody<T: Serialize + DeserializeOwned>(&self, value: &T) -> Result<Vec<T>> {
        self.share(&self.gather_values(value)?)
    }
}

impl<M: Machine> Control for M {}

fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>> {
    serde_json::to_vec(value).map_err(|error| BenchError::machine("exchange among ranks", error))
}

fn decode<T: DeserializeOwned>(data: &[u8]) -> Result<T> {
    serde_json::from_slice(data).map_err(|error| {
        BenchError::machine("exchange among ranks", format!("{error}; are all ranks of one version of weir?"))
    })
}
