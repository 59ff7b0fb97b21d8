//! Weir's own endpoints as a machine, without any MPI: the starting process makes the ranks known
//! to each other, then the endpoints carry everything.

use std::cell::Cell;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use weir_clock::TickPair;
use weir_engine::{EngineConfig, NAME_BYTES};

use super::mail::{MAIL_TAGS, TAG_MAIL};
use super::tree::{self, Members};
use super::{Again, Apart, Landed, Look, Machine, Mail, Messages, Room, Tag, Work};
use crate::error::{BenchError, Result};
use crate::exchange::{Access, Leg};
use crate::operation::Kind;
use crate::sys::mail::Mailbox;
use crate::sys::port::{In, Out, Port, Region};
use crate::sys::{affinity, counter, process};

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
        let failed = |error: std::io::Error| match error.kind() {
            ErrorKind::UnexpectedEof => BenchError::machine("meeting the other ranks", "who started them has ended"),
            _ => BenchError::machine("meeting the other ranks", error),
        };
        // On another machine, which --hosts is not for, there is no such socket.
        let mut meeting = UnixStream::connect(socket)
            .map_err(|error| BenchError::machine(format!("meeting the other ranks at {}", socket.display()), error))?;
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

/// Memory of all members of a group, each with the key of its part.
pub struct Window {
    region: Region,
    keys: Vec<u64>,
    members: Members,
    access: Access,
}

impl WeirMachine {
    /// What comes after an operation on another's memory, which is complete.
    fn after(&self, window: &Window) -> Result<()> {
        if window.access == Access::Fence { tree::barrier(self, &window.members) } else { Ok(()) }
    }
}

/// Mail by tags from [`TAG_MAIL`] on, of which receives of any ignore the others' bits.
struct ByTags<'m, 'port, 'a> {
    machine: &'m WeirMachine,
    members: &'m Members,
    mail: &'m mut Mailbox<'port, 'a>,
}

impl<'a> Mail<'a> for ByTags<'_, '_, 'a> {
    fn send(&mut self, data: &'a [u8], to: usize, tag: Tag) -> Result<()> {
        self.mail.send(data, self.members.rank(to), (TAG_MAIL | tag).into())
    }

    fn post(&mut self, place: usize, from: Option<usize>, tag: Option<Tag>) -> Result<()> {
        let ignore = if tag.is_none() { MAIL_TAGS - 1 } else { 0 };
        let from = from.map(|from| self.members.rank(from));
        self.mail.post(place, from, (TAG_MAIL | tag.unwrap_or(0)).into(), ignore.into())
    }

    fn next(&mut self) -> Result<Landed> {
        let came = self.mail.wait_any()?;
        let from = (0..self.members.count()).find(|place| self.members.rank(*place) == came.rank);
        let from = from.ok_or_else(|| BenchError::machine("Weir", "a message from outside of the group"))?;
        Ok(Landed { place: came.place, tag: came.tag as Tag & (MAIL_TAGS - 1), from, bytes: came.bytes })
    }

    fn memory(&self, place: usize) -> &[u8] {
        self.mail.memory(place)
    }

    fn spin_until(&mut self, until: u64) -> Result<u64> {
        loop {
            let now = self.machine.ticks();
            if now >= until {
                return Ok(now);
            }
            self.mail.progress()?;
        }
    }
}

impl Messages for WeirMachine {
    #[inline(always)]
    fn ticks(&self) -> u64 {
        self.source.get().read()
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

    #[inline]
    fn sendrecv(&self, data: &[u8], to: usize, into: &mut [u8], from: usize, tag: Tag) -> Result<()> {
        self.port.run(Self::out(data, to), Self::into(into, from), tag, || {})?;
        Ok(())
    }

    fn send_window(&self, data: &[u8], count: usize, to: usize, tag: Tag) -> Result<()> {
        self.port.run(Some(Out { data, to, count }), None, tag, || {})?;
        Ok(())
    }

    fn recv_window(&self, into: &mut [u8], count: usize, from: usize, tag: Tag) -> Result<()> {
        self.port.run(None, Some(In { into, from: Some(from), count, exact: true }), tag, || {})?;
        Ok(())
    }

    fn processor(&self) -> Option<u32> {
        affinity::current()
    }
}

impl Machine for WeirMachine {
    type Group = Members;
    type Blocks = Vec<usize>;
    type Window = Window;
    type Persistent<'b> = Again<'b>;

    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
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
    fn duplex(&self, data: &[u8], into: &mut [u8], peer: usize, tag: Tag) -> Result<u64> {
        let mut now = 0;
        self.port.run(Self::out(data, peer), Self::into(into, peer), tag, || now = self.ticks())?;
        Ok(now)
    }

    fn lacks(&self, kind: Kind) -> Option<&'static str> {
        match kind {
            Kind::Persistent => Some("Weir's own endpoints have no persistent requests"),
            Kind::Overlap => Some("Weir's own endpoints are measured by calls that wait"),
            Kind::Ibarrier | Kind::Iallreduce => Some("Weir's own endpoints have no non-blocking collectives"),
            _ if kind.access() == Some(Access::Lock) => Some("Weir's own endpoints have no locks of memory"),
            _ => None,
        }
    }

    fn lacks_threads(&self) -> Option<String> {
        Some("a rank over Weir's own endpoints has one thread here; measure pairs of threads over an MPI".into())
    }

    fn threads<W: Work>(&self, _: &W, _: Vec<W::Seat>, _: Apart, _: usize, _: Look<'_>) -> Result<Vec<W::Out>> {
        Err(BenchError::machine("Weir", "a rank has one thread"))
    }

    fn exchange_all(&self, out: &[u8], sends: &[Leg], into: &mut [u8], receives: &[Leg], tag: Tag) -> Result<()> {
        self.port.exchange(out, sends, into, receives, tag)
    }

    fn exchange_meanwhile(&self, _: &[u8], _: &[Leg], _: &mut [u8], _: &[Leg], _: Tag, _: impl FnOnce()) -> Result<()> {
        Err(BenchError::machine("Weir", "an exchange is one call here"))
    }

    fn mail<'a, T>(&self, group: &Members, room: Room, work: impl FnOnce(&mut dyn Mail<'a>) -> Result<T>) -> Result<T> {
        self.port.mail(room.places, room.bytes, |mail| work(&mut ByTags { machine: self, members: group, mail }))
    }

    fn window(&self, group: &Members, bytes: usize, access: Access) -> Result<Window> {
        let region = self.port.region(bytes)?;
        let mut all = vec![0; 8 * group.count()];
        tree::allgather(self, group, &region.key().to_le_bytes(), &mut all)?;
        let keys = all.chunks_exact(8).filter_map(|key| key.first_chunk()).map(|key| u64::from_le_bytes(*key));
        Ok(Window { region, keys: keys.collect(), members: group.clone(), access })
    }

    #[inline]
    fn put(&self, window: &Window, data: &[u8], to: usize) -> Result<()> {
        self.port.write(data, window.members.rank(to), window.keys[to])?;
        self.after(window)
    }

    #[inline]
    fn get(&self, window: &Window, into: &mut [u8], from: usize) -> Result<()> {
        self.port.read(into, window.members.rank(from), window.keys[from])?;
        self.after(window)
    }

    #[inline]
    fn accumulate(&self, window: &Window, data: &[f64], to: usize) -> Result<()> {
        self.port.add(data, window.members.rank(to), window.keys[to])?;
        self.after(window)
    }

    #[inline]
    fn fetch_add(&self, window: &Window, number: i64, to: usize) -> Result<i64> {
        let held = self.port.fetch_add(number, window.members.rank(to), window.keys[to])?;
        self.after(window)?;
        Ok(held)
    }

    #[inline]
    fn fence(&self, window: &Window) -> Result<()> {
        tree::barrier(self, &window.members)
    }

    fn look(&self, window: &Window, into: &mut [u8]) -> Result<()> {
        window.region.look(into);
        Ok(())
    }

    tree::collectives!();

    fn carried(&self) -> Option<weir_engine::Traffic> {
        Some(weir_engine::traffic())
    }

    fn cpu_ns(&self) -> Option<u64> {
        Some(process::cpu_ns())
    }

    fn abort(&self, code: i32) {
        // The starting process sees it and ends the others.
        std::process::exit(code)
    }
}
