//! Items by number, whose places are used again.

use std::ops::{Index, IndexMut};

/// Items by number.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    items: Vec<T>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    pub fn new() -> Self {
        Self { items: Vec::new(), free: Vec::new() }
    }

    /// Puts an item into a place that is free.
    pub fn insert(&mut self, item: T) -> u32 {
        if let Some(id) = self.free.pop() {
            self.items[id as usize] = item;
            return id;
        }
        self.items.push(item);
        (self.items.len() - 1) as u32
    }

    /// Frees a place; what is in it stays readable until the place is used again.
    pub fn free(&mut self, id: u32) {
        self.free.push(id);
    }

    /// How many items there are.
    pub fn live(&self) -> u64 {
        (self.items.len() - self.free.len()) as u64
    }

    /// The items, in the order of their places.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        let mut is_free = vec![false; self.items.len()];
        self.free.iter().for_each(|id| is_free[*id as usize] = true);
        self.items.iter().zip(is_free).filter(|(_, free)| !free).map(|(item, _)| item)
    }

    /// How many places there are, free ones included.
    #[cfg(test)]
    pub fn places(&self) -> usize {
        self.items.len()
    }
}

impl<T> Index<u32> for Slab<T> {
    type Output = T;
    fn index(&self, id: u32) -> &T {
        &self.items[id as usize]
    }
}

impl<T> IndexMut<u32> for Slab<T> {
    fn index_mut(&mut self, id: u32) -> &mut T {
        &mut self.items[id as usize]
    }
}
