//! Weir's own endpoints as a machine, without any MPI: the starting process makes the ranks known to each other, then the endpoints carry everything.

use std::cell::Cell;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use weir_clock::TickPair;
use weir_engine::{EngineConfig, NAME_BYTES};

use super::tree::{self, Members};
use super::{Machine, Tag};
use crate::error::{BenchError, Result};
use crate::sys::counter;
use crate::sys::port::{In, Out, Port};

/// A rank of a job of Weir's own.
pub struct WeirMachine {
    port: Port,
    rank: usize,
    size: usize,
    source: Cell<counter::Source>,
}

impl WeirMachine {
    /// Opens this rank's endpoint and learns of the others' where the ranks meet.
    ///
    /// # Errors
    /// The engine's, or if the starting process has gone away.
    pub fn join(socket: &Path, rank: usize, size: usize) -> Result<WeirMachine> {
        let mut port = Port::open(EngineConfig::from_env().map_err(|error| BenchError::machine("Weir", error))?)?;
        let failed = |error: std::io::Error| BenchError::machine("meeting the other ranks", error);
        let mut meeting = UnixStream::connect(socket).map_err(failed)?;
        meeting.write_all(&(rank as u32).to_le_bytes()).map_err(failed)?;
        meeting.write_all(&port.name()).map_err(failed)?;
        let mut names = vec![[0; NAME_BYTES]; size];
        for name in &mut names {
            meeting.read_exact(name).map_err(failed)?;
        }
        port.connect(&names)?;
        Ok(WeirMachine { port, rank, size, source: Cell::new(counter::Source::best()) })
    }

    /// Ends in good order.
    pub fn finish(self) {
        self.port.close();
    }

    fn out<'a>(data: &'a [u8], to: usize) -> Option<Out<'a>> {
        Some(Out { data, to, count: 1 })
    }

    fn into<'a>(into: &'a mut [u8], from: usize) -> Option<In<'a>> {
        Some(In { into, from: Some(from), count: 1, exact: true })
    }
}

impl Machine for WeirMachine {
    type Group = Members;

    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    #[inline(always)]
    fn ticks(&self) -> u64 {
        self.source.get().read()
    }

    fn tick_pair(&self) -> TickPair {
        self.source.get().pair()
    }

    fn pause(&self, ns: u64) {
        std::thread::sleep(std::time::Duration::from_nanos(ns));
    }

    fn distrust_counter(&self) -> bool {
        self.source.replace(counter::Source::MonotonicRaw) == counter::Source::Tsc
    }

    fn clock_source(&self) -> &'static str {
        self.source.get().name()
    }

    #[inline]
    fn send(&self, data: &[u8], to: usize, tag: Tag) -> Result<()> {
        self.port.run(Self::out(data, to), None, tag, || {})?;
        Ok(())
    }

    #[inline]
    fn recv(&self, into: &mut [u8], from: usize, tag: Tag) -> Result<()> {
        self.port.run(None, Self::into(into, from), tag, || {})?;
        Ok(())
    }

    fn recv_any(&self, into: &mut [u8], tag: Tag) -> Result<usize> {
        let receive = In { into, from: None, count: 1, exact: false };
        let from = self.port.run(None, Some(receive), tag, || {})?;
        from.ok_or_else(|| BenchError::machine("Weir", "a message from nobody"))
    }

    fn arrived(&self, from: usize, tag: Tag) -> Result<bool> {
        self.port.arrived(from, tag)
    }

    #[inline]
    fn isend_wait(&self, data: &[u8], to: usize, tag: Tag) -> Result<()> {
        self.send(data, to, tag)
    }

    #[inline]
    fn sendrecv(&self, data: &[u8], to: usize, into: &mut [u8], from: usize, tag: Tag) -> Result<()> {
        self.port.run(Self::out(data, to), Self::into(into, from), tag, || {})?;
        Ok(())
    }

    #[inline]
    fn duplex(&self, data: &[u8], into: &mut [u8], peer: usize, tag: Tag) -> Result<u64> {
        let mut now = 0;
        self.port.run(Self::out(data, peer), Self::into(into, peer), tag, || now = self.ticks())?;
        Ok(now)
    }

    fn send_window(&self, data: &[u8], count: usize, to: usize, tag: Tag) -> Result<()> {
        self.port.run(Some(Out { data, to, count }), None, tag, || {})?;
        Ok(())
    }

    fn recv_window(&self, into: &mut [u8], count: usize, from: usize, tag: Tag) -> Result<()> {
        self.port.run(None, Some(In { into, from: Some(from), count, exact: true }), tag, || {})?;
        Ok(())
    }

    tree::collectives!();

    fn carried(&self) -> Option<weir_engine::Traffic> {
        Some(weir_engine::traffic())
    }

    fn abort(&self, code: i32) {
        // The starting process sees it and ends the others.
        std::process::exit(code)
    }
}
