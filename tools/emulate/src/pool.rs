//! Memory for packets in flight: fixed-size slots, counted references, a limit.

use crate::model::Handle;

const SLOTS_PER_CHUNK: usize = 256;

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    references: u32,
    len: u32,
}

/// Slots for packets, allocated in chunks when first needed and reused most recent first.
#[derive(Debug)]
pub struct Pool {
    slot_bytes: usize,
    most_slots: usize,
    chunks: Vec<Box<[u8]>>,
    slots: Vec<Slot>,
    free: Vec<Handle>,
}

impl Pool {
    /// A pool of slots of `slot_bytes` that never holds more than `most_bytes`.
    pub fn new(slot_bytes: usize, most_bytes: usize) -> Self {
        let most_slots = (most_bytes / slot_bytes.max(1)).max(SLOTS_PER_CHUNK);
        Pool { slot_bytes, most_slots, chunks: Vec::new(), slots: Vec::new(), free: Vec::new() }
    }

    /// Stores a packet with one reference; `None` if it is too long or the pool is full.
    pub fn store(&mut self, data: &[u8]) -> Option<Handle> {
        if data.len() > self.slot_bytes {
            return None;
        }
        if self.free.is_empty() && self.slots.len() + SLOTS_PER_CHUNK <= self.most_slots {
            let first = self.slots.len();
            self.chunks.push(vec![0; SLOTS_PER_CHUNK * self.slot_bytes].into_boxed_slice());
            self.slots.resize(first + SLOTS_PER_CHUNK, Slot::default());
            self.free.extend((first as Handle..(first + SLOTS_PER_CHUNK) as Handle).rev());
        }
        let handle = self.free.pop()?;
        self.slots[handle as usize] = Slot { references: 1, len: data.len() as u32 };
        let (chunk, at) = self.place(handle);
        self.chunks[chunk][at..at + data.len()].copy_from_slice(data);
        Some(handle)
    }

    /// The packet.
    pub fn get(&self, handle: Handle) -> &[u8] {
        let (chunk, at) = self.place(handle);
        &self.chunks[chunk][at..at + self.slots[handle as usize].len as usize]
    }

    /// The packet, to be changed; `None` if others hold it too.
    pub fn get_mut(&mut self, handle: Handle) -> Option<&mut [u8]> {
        let (chunk, at) = self.place(handle);
        let slot = self.slots[handle as usize];
        (slot.references == 1).then(|| &mut self.chunks[chunk][at..at + slot.len as usize])
    }

    /// Takes one more reference.
    pub fn retain(&mut self, handle: Handle) {
        self.slots[handle as usize].references += 1;
    }

    /// Drops one reference; the last one frees the slot.
    pub fn release(&mut self, handle: Handle) {
        let slot = &mut self.slots[handle as usize];
        slot.references -= 1;
        if slot.references == 0 {
            self.free.push(handle);
        }
    }

    /// A second packet with the same bytes.
    pub fn duplicate(&mut self, handle: Handle) -> Option<Handle> {
        let copy = self.get(handle).to_vec();
        self.store(&copy)
    }

    fn place(&self, handle: Handle) -> (usize, usize) {
        let handle = handle as usize;
        (handle / SLOTS_PER_CHUNK, (handle % SLOTS_PER_CHUNK) * self.slot_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_reused_and_bounded() {
        let mut pool = Pool::new(100, 512 * 100);
        let all: Vec<_> = std::iter::from_fn(|| pool.store(b"x")).collect();
        assert_eq!(all.len(), 512);
        pool.release(all[7]);
        assert_eq!(pool.store(b"again"), Some(all[7]));
        assert_eq!(pool.get(all[7]), b"again");
        assert!(pool.store(b"full").is_none());
    }

    #[test]
    fn a_shared_packet_is_not_changed() {
        let mut pool = Pool::new(100, 0);
        let handle = pool.store(b"ab").unwrap();
        pool.retain(handle);
        assert!(pool.get_mut(handle).is_none());
        let copy = pool.duplicate(handle).unwrap();
        pool.get_mut(copy).unwrap()[0] = b'z';
        assert_eq!((pool.get(handle), pool.get(copy)), (&b"ab"[..], &b"zb"[..]));
        pool.release(handle);
        assert!(pool.get_mut(handle).is_some());
        assert!(pool.store(&[0; 101]).is_none(), "too long for a slot");
    }
}
