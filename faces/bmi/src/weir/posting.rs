//! Posts of `bmi_weir`: handed to the engine at once, or kept until it has room or the peer is
//! found.

use super::{Kept, OPERATION, Place, State, Weir, code_of, engine_tag};
use crate::addresses::AddrKey;
use crate::codes::Code;
use crate::library::Wanted;
use crate::memory::Block;
use crate::ops::{Staging, gather};
use crate::tables::{Post, Posted, Tables};
use std::collections::VecDeque;
use weir_engine::{Class, EngineError, Iov, MAX_INJECT_BYTES, MAX_IOV, RecvOp, SendMode, SendOp};

/// How an attempt to hand a post to the engine went.
enum Tried {
    Done(u64),
    Begun,
    /// Begun, and perhaps ended: there are completions.
    Ended,
    /// There is no room.
    Again,
    /// The peer is gone, and this was not known.
    Down,
    Refused(Code),
}

impl Weir {
    /// What is known of an address.
    pub(super) fn place(&mut self, t: &Tables, addr: AddrKey) -> &mut Place {
        if !self.places.contains_key(addr) {
            let addrs = t.addrs.get(addr).map(|a| a.places.clone()).unwrap_or_default();
            self.places.insert(addr, Place { addrs, state: State::Unknown, kept: VecDeque::new() });
        }
        &mut self.places[addr]
    }

    /// Sends a short message to a peer that is there and for whom nothing waits: the engine has it
    /// with that, and nobody is told of its end. False: it is to be posted.
    pub fn send_at_once(&self, wanted: &Wanted<'_>) -> bool {
        let is_short = wanted.size as usize <= MAX_INJECT_BYTES && wanted.pieces.len() <= MAX_IOV;
        let Some(Place { state: State::Up(peer), kept, .. }) = self.places.get(wanted.addr).filter(|_| is_short) else {
            return false;
        };
        if !kept.is_empty() {
            return false;
        }
        let (tag, data) = engine_tag(wanted.tag, wanted.unexpected);
        let op = SendOp {
            peer: *peer,
            class: Class::Tagged,
            tag,
            data,
            memory: wanted.pieces,
            mode: SendMode::Inject,
            copy: false,
            report: false,
            context: 0,
            user: OPERATION,
        };
        // SAFETY: the program's memory is readable during the post.
        unsafe { self.ep.send(&op) }.is_ok()
    }

    /// Begins a send or a receive.
    ///
    /// # Errors
    /// The code of the refusal.
    pub fn post(&mut self, t: &mut Tables, post: &Post<'_>, is_recv: bool) -> Result<Posted, Code> {
        let staged = self.stage(t, post, is_recv)?;
        let post = &Post { pieces: staged.as_ref().map_or(post.pieces, std::slice::from_ref), ..*post };
        for _ in 0..2 {
            let place = self.place(t, post.addr);
            match place.state {
                State::Gone => return Err(Code::ECONNRESET),
                State::Up(peer) if place.kept.is_empty() => match self.hand_over(peer, post, is_recv) {
                    Tried::Done(size) => return Ok(Posted::Done(size)),
                    Tried::Begun => return Ok(Posted::Begun),
                    Tried::Ended => {
                        // One whose message had arrived has ended already.
                        self.take_received(t);
                        return Ok(Posted::Begun);
                    }
                    Tried::Refused(code) => return Err(code),
                    Tried::Down => {
                        // What is not known yet is told now, and the address is as new.
                        self.progress(t);
                        self.is_dead(t, post.addr, peer);
                    }
                    Tried::Again => {
                        self.held_up.insert(post.addr);
                        break;
                    }
                },
                State::Up(_) | State::Asking(_) => break,
                State::Unknown => {
                    self.ask(post.addr);
                    break;
                }
            }
        }
        let kept = Kept {
            key: post.key,
            is_recv,
            tag: post.tag,
            unexpected: post.unexpected,
            pieces: post.pieces.to_vec(),
            size: post.size,
        };
        let place = self.place(t, post.addr);
        if place.state == State::Gone {
            return Err(Code::ECONNRESET);
        }
        place.kept.push_back(kept);
        if matches!(place.state, State::Up(_)) {
            // Nothing tells of room.
            self.held_up.insert(post.addr);
        }
        Ok(Posted::Begun)
    }

    /// More pieces than the engine takes become one.
    fn stage(&self, t: &mut Tables, post: &Post<'_>, is_recv: bool) -> Result<Option<Iov>, Code> {
        if post.pieces.len() <= MAX_IOV {
            return Ok(None);
        }
        let block = if is_recv {
            Block::for_message(post.size as usize)
        } else {
            // SAFETY: the program keeps the memory of a send readable until its end is told, which
            // is later.
            unsafe { gather(post.pieces) }
        };
        let block = block.ok_or(Code::ENOMEM)?;
        let piece = Iov { base: block.base(), len: block.len() };
        let scatter = if is_recv { post.pieces.to_vec() } else { Vec::new() };
        if let Some(op) = t.ops.get_mut(post.key) {
            op.staging = Some(Staging { block, scatter });
        }
        Ok(Some(piece))
    }

    fn hand_over(&self, peer: u32, post: &Post<'_>, is_recv: bool) -> Tried {
        let (tag, data) = engine_tag(post.tag, post.unexpected);
        let context = post.key.to_id() as usize;
        let (class, memory, report, user) = (Class::Tagged, post.pieces, true, OPERATION);
        let tried = if is_recv {
            let op =
                RecvOp { source: Some(peer), class, tag, ignore: 0, memory, multi_min: None, report, context, user };
            // SAFETY: the program keeps the memory writable, and uses it for nothing else, until
            // the operation's end is told.
            unsafe { self.ep.recv_and_see(&op) }
        } else {
            let op =
                SendOp { peer, class, tag, data, memory, mode: SendMode::Transmit, copy: false, report, context, user };
            if post.size as usize <= MAX_INJECT_BYTES {
                let op = SendOp { mode: SendMode::Inject, report: false, memory, ..op };
                // SAFETY: the program's memory is readable during the post.
                match unsafe { self.ep.send(&op) } {
                    Ok(()) => return Tried::Done(post.size),
                    Err(EngineError::Again) => {}
                    Err(error) => return Tried::of(&error),
                }
            }
            // SAFETY: the program keeps the memory readable and unchanged until the operation's end
            // is told.
            unsafe { self.ep.send(&op) }.map(|()| false)
        };
        match tried {
            Ok(ended) => {
                if ended {
                    Tried::Ended
                } else {
                    Tried::Begun
                }
            }
            Err(error) => Tried::of(&error),
        }
    }

    /// Hands over what waited, as far as there is room.
    pub(super) fn go_on(&mut self, t: &mut Tables, addr: AddrKey) {
        self.held_up.remove(&addr);
        while let Some(place) = self.places.get_mut(addr)
            && let State::Up(peer) = place.state
            && let Some(kept) = place.kept.pop_front()
        {
            let Kept { key, is_recv, tag, unexpected, ref pieces, size } = kept;
            match self.hand_over(peer, &Post { key, addr, tag, unexpected, pieces, size }, is_recv) {
                Tried::Done(size) => t.ops.end(key, Ok(size)),
                // (What has ended is found by the pass that has brought this about, or the next.)
                Tried::Begun | Tried::Ended => {}
                Tried::Refused(code) => t.ops.end(key, Err(code)),
                Tried::Down => {
                    t.ops.end(key, Err(Code::ECONNRESET));
                    return self.is_dead(t, addr, peer);
                }
                Tried::Again => {
                    if let Some(place) = self.places.get_mut(addr) {
                        place.kept.push_front(kept);
                    }
                    self.held_up.insert(addr);
                    return;
                }
            }
        }
    }
}

impl Tried {
    fn of(error: &EngineError) -> Tried {
        match error {
            EngineError::Again => Tried::Again,
            EngineError::PeerDown(_) => Tried::Down,
            other => Tried::Refused(code_of(other)),
        }
    }
}
