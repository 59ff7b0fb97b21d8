//! The operations under way, and the completions that wait in contexts (spec/bmi.md 2, 4, 8).

use crate::addresses::AddrKey;
use crate::codes::Code;
use crate::memory::Block;
use slotmap::{Key, KeyData, SlotMap, new_key_type};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Instant;
use weir_engine::Iov;

new_key_type! {
    /// An operation: index and generation.
    pub struct OpKey;
}

impl OpKey {
    /// As programs see it; never 0.
    #[must_use]
    pub fn to_id(self) -> i64 {
        self.data().as_ffi().cast_signed()
    }

    /// What a program says is one.
    #[must_use]
    pub fn from_id(id: i64) -> OpKey {
        KeyData::from_ffi(id.cast_unsigned()).into()
    }
}

/// Contexts at a time (`BMI_MAX_CONTEXTS`).
pub const CONTEXTS_MAX: usize = 16;
/// Keys in a queue that name nothing any more, beside as many as name something.
const STALE_MAX: usize = 64;

/// Memory of an operation in pieces that the engine cannot name all at once: it works on one block,
/// copied before or after.
#[derive(Debug)]
pub struct Staging {
    /// What the engine has.
    pub block: Block,
    /// Where a received message goes in the end.
    pub scatter: Vec<Iov>,
}

/// An operation.
#[derive(Debug)]
pub struct Op {
    /// Where its end is told.
    pub context: usize,
    /// With whom.
    pub addr: AddrKey,
    /// Which method carries it.
    pub method: usize,
    /// A receive.
    pub is_recv: bool,
    /// The program's.
    pub user_ptr: usize,
    /// Of a send: its bytes.
    pub size: u64,
    /// How it ended: code (0 or negative) and bytes.
    pub done: Option<(i32, u64)>,
    /// Cancelled: what its failure is called.
    pub instead: Option<Code>,
    /// Nobody wants to hear of it.
    pub orphan: bool,
    /// Its memory, where that is not the program's.
    pub staging: Option<Staging>,
}

/// How an operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Which.
    pub key: OpKey,
    /// 0, or a negative code.
    pub error: i32,
    /// Bytes.
    pub size: u64,
    /// The program's.
    pub user_ptr: usize,
}

#[derive(Debug, Default)]
struct Queue {
    keys: VecDeque<OpKey>,
    /// Of these, how many name something.
    waiting: usize,
    /// Which of the contexts that had this number it is.
    generation: u64,
}

/// A context while it is open: when it is closed, another of the same number is not it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// Its number.
    pub context: usize,
    generation: u64,
}

/// A limit of time that has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Limit {
    /// It is to be cancelled.
    Cancel,
    /// It was, and has not ended since.
    Drop,
}

/// All of them.
#[derive(Default)]
pub struct Ops {
    table: SlotMap<OpKey, Op>,
    contexts: [Option<Queue>; CONTEXTS_MAX],
    /// Contexts opened so far.
    opened: u64,
    limits: BinaryHeap<Reverse<(Instant, Limit, OpKey)>>,
    /// Operations that ended with an error.
    pub failed: u64,
    /// Addresses that have one operation less.
    pub released: Vec<AddrKey>,
    /// Something ended that is to be collected.
    pub news: bool,
    /// The receive that the last post has begun.
    pub fresh: Option<OpKey>,
    /// Its failure is not told yet (W7).
    held_back: Option<OpKey>,
    late: Option<(OpKey, Code)>,
}

impl Ops {
    /// A context.
    pub fn open_context(&mut self) -> Option<usize> {
        let free = self.contexts.iter().position(Option::is_none)?;
        self.opened += 1;
        self.contexts[free] = Some(Queue { generation: self.opened, ..Queue::default() });
        Some(free)
    }

    /// The context of this number, if it is open.
    #[must_use]
    pub fn context(&self, id: i64) -> Option<usize> {
        let i = usize::try_from(id).ok()?;
        self.contexts.get(i)?.as_ref().map(|_| i)
    }

    /// The same, to be known again after a sleep in which it may be closed (W3).
    #[must_use]
    pub fn opened(&self, id: i64) -> Option<Opened> {
        let context = self.context(id)?;
        let generation = self.contexts[context].as_ref()?.generation;
        Some(Opened { context, generation })
    }

    /// Closes it. What has ended is forgotten; what has not is told to nobody, and returned.
    pub fn close_context(&mut self, context: usize) -> Vec<OpKey> {
        self.contexts[context] = None;
        // Who sleeps for it is to hear that it is closed.
        self.news = true;
        self.table.retain(|_, op| op.context != context || op.done.is_none());
        let left = self.table.iter_mut().filter(|(_, op)| op.context == context);
        left.map(|(key, op)| {
            op.orphan = true;
            key
        })
        .collect()
    }

    /// Begins one.
    pub fn insert(&mut self, op: Op) -> OpKey {
        self.table.insert(op)
    }

    /// One that has begun and is complete already, or was refused: nobody knows of it yet.
    pub fn take_back(&mut self, key: OpKey) -> Option<Op> {
        self.table.remove(key)
    }

    /// It is there.
    #[must_use]
    pub fn get(&self, key: OpKey) -> Option<&Op> {
        self.table.get(key)
    }

    /// The same.
    pub fn get_mut(&mut self, key: OpKey) -> Option<&mut Op> {
        self.table.get_mut(key)
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// None.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Whether any has not ended. (Those that wait to be collected count too, which costs a look
    /// now and then.)
    #[must_use]
    pub fn waits_for_peers(&self) -> bool {
        !self.table.is_empty()
    }

    /// Those that have not ended.
    pub fn under_way(&self) -> impl Iterator<Item = (OpKey, &Op)> {
        self.table.iter().filter(|(_, op)| op.done.is_none())
    }

    /// It has ended. Once only: a second end is none.
    pub fn end(&mut self, key: OpKey, result: Result<u64, Code>) {
        if let Err(code) = result
            && self.held_back == Some(key)
        {
            self.late.get_or_insert((key, code));
            return;
        }
        let Some(op) = self.table.get_mut(key).filter(|op| op.done.is_none()) else { return };
        let (error, size) = match result {
            Ok(size) => (0, size),
            Err(code) => (-op.instead.unwrap_or(code).0, 0),
        };
        self.failed += u64::from(error != 0);
        if let Some(staging) = op.staging.take() {
            scatter(staging, if error == 0 { size } else { 0 });
        }
        op.done = Some((error, size));
        self.released.push(op.addr);
        if op.orphan {
            self.table.remove(key);
            return;
        }
        if let Some(queue) = self.contexts.get_mut(op.context).and_then(Option::as_mut) {
            queue.keys.push_back(key);
            queue.waiting += 1;
            self.news = true;
        }
    }

    /// From here to [`Ops::let_go`] the failure of the receive that was posted last is not told:
    /// what makes it fail may be found by the test that follows the post (W7).
    #[inline]
    pub fn hold_back(&mut self) {
        self.held_back = self.fresh.take();
    }

    /// What was held back is told to the next test.
    #[inline]
    pub fn let_go(&mut self) {
        if self.held_back.take().is_some()
            && let Some((key, code)) = self.late.take()
        {
            self.end(key, Err(code));
        }
    }

    /// Collects this one, if it has ended.
    pub fn collect(&mut self, key: OpKey) -> Option<Ended> {
        self.table.get(key)?.done?;
        let op = self.table.remove(key)?;
        let (error, size) = op.done?;
        if let Some(queue) = self.contexts.get_mut(op.context).and_then(Option::as_mut) {
            queue.waiting -= 1;
            if queue.keys.front() == Some(&key) {
                queue.keys.pop_front();
            } else if queue.keys.len() > 2 * queue.waiting + STALE_MAX {
                let table = &self.table;
                queue.keys.retain(|key| table.contains_key(*key));
            }
        }
        Some(Ended { key, error, size, user_ptr: op.user_ptr })
    }

    /// Collects the oldest of a context.
    pub fn collect_any(&mut self, context: usize) -> Option<Ended> {
        loop {
            let key = *self.contexts.get(context)?.as_ref()?.keys.front()?;
            if let Some(ended) = self.collect(key) {
                return Some(ended);
            }
            self.contexts[context].as_mut()?.keys.pop_front();
        }
    }

    /// Whether something waits in a context.
    #[must_use]
    pub fn waits(&self, context: usize) -> bool {
        self.contexts.get(context).and_then(Option::as_ref).is_some_and(|q| q.waiting > 0)
    }

    /// Whether something waits in any.
    #[must_use]
    pub fn any_waits(&self) -> bool {
        (0..CONTEXTS_MAX).any(|context| self.waits(context))
    }

    /// At this time the operation is to be cancelled, or its peer dropped.
    pub fn limit(&mut self, key: OpKey, limit: Limit, at: Instant) {
        // Of operations that ended long before their limit no more are kept than there are others.
        if self.limits.len() > 2 * self.table.len() + STALE_MAX {
            let table = &self.table;
            self.limits.retain(|Reverse((_, _, key))| table.get(*key).is_some_and(|op| op.done.is_none()));
        }
        self.limits.push(Reverse((at, limit, key)));
    }

    /// Takes limits of this kind away again.
    pub fn no_limit(&mut self, key: OpKey) {
        self.limits.retain(|Reverse((_, limit, k))| *k != key || *limit != Limit::Cancel);
    }

    /// When the next limit is reached.
    #[must_use]
    pub fn next_limit(&self) -> Option<Instant> {
        self.limits.peek().map(|Reverse((at, _, _))| *at)
    }

    /// A limit that is reached, of an operation that has not ended.
    pub fn reached(&mut self, now: Instant) -> Option<(OpKey, Limit)> {
        while let Some(Reverse((at, _, _))) = self.limits.peek() {
            if *at > now {
                return None;
            }
            let Reverse((_, limit, key)) = self.limits.pop()?;
            if self.table.get(key).is_some_and(|op| op.done.is_none()) {
                return Some((key, limit));
            }
        }
        None
    }
}

/// Puts what has come to its places.
fn scatter(staging: Staging, size: u64) {
    let Staging { mut block, scatter } = staging;
    let mut bytes = block.bytes_mut();
    let len = (size as usize).min(bytes.len());
    bytes = &mut bytes[..len];
    let mut rest: &[u8] = bytes;
    for piece in scatter {
        let (now, later) = rest.split_at(piece.len.min(rest.len()));
        if !now.is_empty() {
            // SAFETY: the program keeps the memory of a receive until its end is told, which is
            // later.
            unsafe { std::ptr::copy_nonoverlapping(now.as_ptr(), piece.base, now.len()) };
        }
        rest = later;
    }
}

/// Pieces as one block; none when the system has no memory.
///
/// # Safety
/// The pieces are readable.
#[must_use]
pub unsafe fn gather(pieces: &[Iov]) -> Option<Block> {
    let mut block = Block::for_message(pieces.iter().map(|p| p.len).sum())?;
    let mut at = 0;
    let bytes = block.bytes_mut();
    for piece in pieces.iter().filter(|p| p.len > 0) {
        // SAFETY: readable (caller), and the block is as long as all of them.
        unsafe { std::ptr::copy_nonoverlapping(piece.base, bytes[at..].as_mut_ptr(), piece.len) };
        at += piece.len;
    }
    Some(block)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn op(context: usize) -> Op {
        Op {
            context,
            addr: AddrKey::default(),
            method: 0,
            is_recv: true,
            user_ptr: 7,
            size: 0,
            done: None,
            instead: None,
            orphan: false,
            staging: None,
        }
    }

    /// H11, M6.
    #[test]
    fn an_id_that_was_collected_names_nothing_though_its_place_is_anothers() {
        let mut ops = Ops::default();
        let context = ops.open_context().expect("room");
        let key = ops.insert(op(context));
        ops.end(key, Ok(3));
        ops.end(key, Err(Code::EIO));
        assert_eq!(ops.collect(key), Some(Ended { key, error: 0, size: 3, user_ptr: 7 }));
        let next = ops.insert(op(context));
        assert_ne!(key.to_id(), next.to_id());
        assert!(ops.get(OpKey::from_id(key.to_id())).is_none() && ops.get(OpKey::from_id(next.to_id())).is_some());
        assert!(ops.get(OpKey::from_id(0)).is_none() && ops.get(OpKey::from_id(-1)).is_none());
        assert_eq!(ops.collect_any(context), None);
    }

    /// W7.
    #[test]
    fn the_failure_of_a_receive_is_told_to_the_second_test_and_no_other_end_is_held_back() {
        let mut ops = Ops::default();
        let context = ops.open_context().expect("room");
        let [other, key, good] = [0; 3].map(|_| ops.insert(op(context)));
        ops.fresh = Some(key);
        ops.hold_back();
        ops.end(other, Err(Code::EIO));
        ops.end(key, Err(Code::ECONNRESET));
        ops.end(key, Err(Code::EIO));
        assert_eq!(ops.collect_any(context).map(|e| e.key), Some(other));
        assert_eq!((ops.collect_any(context), ops.collect(key)), (None, None));
        ops.let_go();
        assert_eq!(ops.collect_any(context).map(|e| (e.key, e.error)), Some((key, -Code::ECONNRESET.0)));
        ops.fresh = Some(good);
        ops.hold_back();
        ops.end(good, Ok(1));
        assert_eq!(ops.collect_any(context).map(|e| (e.key, e.error)), Some((good, 0)));
        ops.let_go();
        assert!(ops.is_empty() && ops.fresh.is_none());
    }

    /// W3.
    #[test]
    fn a_context_that_is_closed_is_not_the_next_of_its_number() {
        let mut ops = Ops::default();
        let id = ops.open_context().expect("room") as i64;
        let first = ops.opened(id).expect("open");
        assert_eq!(ops.opened(id), Some(first));
        ops.close_context(first.context);
        assert_eq!(ops.opened(id), None);
        assert_eq!(ops.open_context(), Some(first.context));
        assert!(ops.opened(id).is_some_and(|second| second != first && second.context == first.context));
        assert_eq!(ops.opened(-1), None);
    }

    /// H9, W2.
    #[test]
    fn completions_go_to_their_context_oldest_first() {
        let mut ops = Ops::default();
        let (a, b) = (ops.open_context().expect("room"), ops.open_context().expect("room"));
        let keys = [a, b, a, a].map(|context| ops.insert(op(context)));
        for key in keys {
            ops.end(key, Ok(0));
        }
        ops.collect(keys[2]);
        let order = |ops: &mut Ops, context| std::iter::from_fn(|| ops.collect_any(context)).map(|e| e.key).collect();
        let (of_a, of_b): (Vec<OpKey>, Vec<OpKey>) = (order(&mut ops, a), order(&mut ops, b));
        assert_eq!((of_a, of_b), (vec![keys[0], keys[3]], vec![keys[1]]));
        assert!(ops.is_empty() && !ops.any_waits());
    }

    #[test]
    fn queues_and_limits_do_not_grow_with_what_has_ended() {
        let mut ops = Ops::default();
        let context = ops.open_context().expect("room");
        let first = ops.insert(op(context));
        ops.end(first, Ok(0));
        for _ in 0..10_000 {
            let key = ops.insert(op(context));
            ops.limit(key, Limit::Cancel, Instant::now() + std::time::Duration::from_secs(1000));
            ops.end(key, Ok(0));
            ops.collect(key).expect("it has ended");
        }
        let queue = ops.contexts[context].as_ref().expect("open");
        assert!(queue.keys.len() <= 3 + STALE_MAX && queue.waiting == 1, "{}", queue.keys.len());
        assert!(ops.limits.len() <= 3 + STALE_MAX);
    }

    #[test]
    fn a_closed_context_is_told_of_nothing() {
        let mut ops = Ops::default();
        let context = ops.open_context().expect("room");
        let (done, begun) = (ops.insert(op(context)), ops.insert(op(context)));
        ops.end(done, Ok(0));
        assert_eq!(ops.close_context(context), [begun]);
        assert_eq!(ops.open_context(), Some(context));
        ops.end(begun, Ok(0));
        assert!(ops.is_empty() && ops.collect_any(context).is_none());
    }

    #[test]
    fn at_most_sixteen_contexts() {
        let mut ops = Ops::default();
        assert!((0..CONTEXTS_MAX).all(|i| ops.open_context() == Some(i)));
        assert_eq!(ops.open_context(), None);
        assert_eq!((ops.context(16), ops.context(-1), ops.context(3)), (None, None, Some(3)));
    }
}
