//! The messages by which two endpoints get to know each other, and what proves that each has the
//! job's key (spec/shm.md 3). Pure: bytes in, bytes out.

use ring::{hkdf, hmac};

/// Version of everything two endpoints share: messages, layout of the memory, rings.
pub const VERSION: u8 = 2;
/// What every message begins with.
const MAGIC: [u8; 8] = *b"WEIRSHM\0";
/// Bytes of a random number that is used once.
pub const NONCE_LEN: usize = 32;
const MAC_LEN: usize = 32;
/// Bytes of a message's head: magic, kind, version, reason, five zero bytes, sender's id,
/// receiver's id.
const HEAD_LEN: usize = 32;
/// Bytes of HELLO.
pub const HELLO_LEN: usize = HEAD_LEN + NONCE_LEN;
/// Bytes of CHALLENGE, PROOF and READY.
pub const SIGNED_LEN: usize = HEAD_LEN + NONCE_LEN + MAC_LEN;
/// Bytes of REFUSE.
pub const REFUSE_LEN: usize = HEAD_LEN;

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Connector: who I am, whom I want, a nonce.
    Hello = 1,
    /// Listener: a nonce of mine, proof that I have the key.
    Challenge = 2,
    /// Connector: proof that I have the key, the memory, where to probe.
    Proof = 3,
    /// Listener: mapped; where to probe.
    Ready = 4,
    /// Either: no, and why. Not signed: who has another key could not read it, and it harms only
    /// this connection.
    Refuse = 5,
}

/// Why a handshake is refused, as REFUSE says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Reason {
    /// The version is not ours.
    Version = 1,
    /// The proof is wrong: another key.
    Key = 2,
    /// The memory is not as it must be.
    Memory = 3,
    /// We are connecting to you ourselves, and ours counts.
    Crossed = 4,
    /// No room for another peer.
    Full = 5,
    /// There is an association with this endpoint id already.
    Already = 6,
    /// Not what belongs here.
    Malformed = 7,
}

impl Reason {
    fn from_byte(byte: u8) -> Reason {
        match byte {
            1 => Reason::Version,
            2 => Reason::Key,
            3 => Reason::Memory,
            4 => Reason::Crossed,
            5 => Reason::Full,
            6 => Reason::Already,
            _ => Reason::Malformed,
        }
    }
}

/// The two ids of a connection, from its connector's side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// Who connects.
    pub connector: u64,
    /// Who listens.
    pub listener: u64,
}

/// Where the other side finds the word that shows whether it can read this process's memory, and
/// how long the memory is (PROOF only).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// Address of the word.
    pub probe_address: u64,
    /// What it holds.
    pub probe_value: u64,
    /// Bytes of the memory.
    pub memory_bytes: u64,
    /// Bytes of each ring.
    pub ring_bytes: u64,
}

/// Keys derived from the job's key: nothing here is any use elsewhere.
pub struct Keys {
    mac: hmac::Key,
    name: [u8; 8],
}

impl Keys {
    /// HKDF-SHA256 of the job's key.
    #[must_use]
    pub fn derive(job_key: &[u8; 32]) -> Keys {
        struct Len;
        impl hkdf::KeyType for Len {
            fn len(&self) -> usize {
                40
            }
        }
        let mut out = [0; 40];
        let prk = hkdf::Salt::new(hkdf::HKDF_SHA256, &[]).extract(job_key);
        // Fails only for more than 255 blocks of output; this is two.
        prk.expand(&[b"weir 1 shm"], Len)
            .and_then(|okm| okm.fill(&mut out))
            .expect("HKDF output of constant, small length");
        let mut name = [0; 8];
        name.copy_from_slice(&out[32..]);
        Keys { mac: hmac::Key::new(hmac::HMAC_SHA256, &out[..32]), name }
    }

    /// The abstract name at which an endpoint of this job listens.
    #[must_use]
    pub fn socket_name(&self, endpoint_id: u64) -> Vec<u8> {
        format!("weir/shm/{VERSION}/{:016x}/{endpoint_id:016x}", u64::from_be_bytes(self.name)).into_bytes()
    }

    fn sign(&self, transcript: &[&[u8]]) -> hmac::Tag {
        let mut context = hmac::Context::with_key(&self.mac);
        transcript.iter().for_each(|part| context.update(part));
        context.sign()
    }

    /// Appends to a message the proof over it and all before it. Every part has a fixed length and
    /// a kind of its own, so that no two conversations read the same.
    fn signed(&self, before: &[&[u8]], mut message: Vec<u8>) -> [u8; SIGNED_LEN] {
        let tag = self.sign(&[before, &[&message]].concat());
        message.extend_from_slice(tag.as_ref());
        message.try_into().expect("head, 32 bytes and a proof")
    }

    fn verify(&self, before: &[&[u8]], message: &[u8; SIGNED_LEN]) -> bool {
        let (body, mac) = message.split_at(SIGNED_LEN - MAC_LEN);
        let mut all: Vec<u8> = before.concat();
        all.extend_from_slice(body);
        hmac::verify(&self.mac, &all, mac).is_ok()
    }
}

fn head(kind: Kind, reason: u8, from: u64, to: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(SIGNED_LEN);
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&[kind as u8, VERSION, reason, 0, 0, 0, 0, 0]);
    out.extend_from_slice(&from.to_le_bytes());
    out.extend_from_slice(&to.to_le_bytes());
    out
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes)
}

/// A message's head, checked: it is of `kind`, our version, and between these two.
fn expect<const N: usize>(bytes: &[u8], kind: Kind, from: Option<u64>, to: u64) -> Result<[u8; N], Reason> {
    if bytes.len() < HEAD_LEN || bytes[..8] != MAGIC {
        return Err(Reason::Malformed);
    }
    if bytes[8] == Kind::Refuse as u8 {
        return Err(Reason::from_byte(bytes[10]));
    }
    if bytes[9] != VERSION {
        return Err(Reason::Version);
    }
    let ids = from.is_none_or(|from| u64_at(bytes, 16) == from) && u64_at(bytes, 24) == to;
    if bytes[8] != kind as u8 || bytes[10..16] != [0; 6] || !ids {
        return Err(Reason::Malformed);
    }
    bytes.try_into().map_err(|_| Reason::Malformed)
}

fn terms_message(kind: Kind, from: u64, to: u64, terms: &Terms) -> Vec<u8> {
    let mut out = head(kind, 0, from, to);
    for word in [terms.probe_address, terms.probe_value, terms.memory_bytes, terms.ring_bytes] {
        out.extend_from_slice(&word.to_le_bytes());
    }
    out
}

fn terms_of(message: &[u8; SIGNED_LEN]) -> Terms {
    let word = |i: usize| u64_at(message, HEAD_LEN + 8 * i);
    Terms { probe_address: word(0), probe_value: word(1), memory_bytes: word(2), ring_bytes: word(3) }
}

/// REFUSE.
#[must_use]
pub fn refuse(reason: Reason, from: u64, to: u64) -> Vec<u8> {
    head(Kind::Refuse, reason as u8, from, to)
}

/// The connector's side, from its first message on.
#[derive(Debug)]
pub struct Connector {
    pair: Pair,
    hello: Vec<u8>,
    challenge: Option<[u8; SIGNED_LEN]>,
    proof: Option<[u8; SIGNED_LEN]>,
}

impl Connector {
    /// Begins; `hello` is to be sent.
    #[must_use]
    pub fn new(pair: Pair, nonce: &[u8; NONCE_LEN]) -> Connector {
        let mut hello = head(Kind::Hello, 0, pair.connector, pair.listener);
        hello.extend_from_slice(nonce);
        Connector { pair, hello, challenge: None, proof: None }
    }

    /// The first message.
    #[must_use]
    pub fn hello(&self) -> &[u8] {
        &self.hello
    }

    /// Whether the listener has proved itself and READY is what comes next.
    #[must_use]
    pub fn has_proved(&self) -> bool {
        self.proof.is_some()
    }

    /// Takes CHALLENGE, gives PROOF, with which the memory goes.
    ///
    /// # Errors
    /// Why it is not what was waited for, or what the listener refuses.
    pub fn challenge(&mut self, keys: &Keys, bytes: &[u8], terms: &Terms) -> Result<[u8; SIGNED_LEN], Reason> {
        let challenge = expect(bytes, Kind::Challenge, Some(self.pair.listener), self.pair.connector)?;
        if !keys.verify(&[&self.hello], &challenge) {
            return Err(Reason::Key);
        }
        let message = terms_message(Kind::Proof, self.pair.connector, self.pair.listener, terms);
        let proof = keys.signed(&[&self.hello, &challenge], message);
        (self.challenge, self.proof) = (Some(challenge), Some(proof));
        Ok(proof)
    }

    /// Takes READY: the listener's terms.
    ///
    /// # Errors
    /// As [`challenge`](Connector::challenge).
    pub fn ready(&self, keys: &Keys, bytes: &[u8]) -> Result<Terms, Reason> {
        let ready = expect(bytes, Kind::Ready, Some(self.pair.listener), self.pair.connector)?;
        let (Some(challenge), Some(proof)) = (&self.challenge, &self.proof) else { return Err(Reason::Malformed) };
        let good = keys.verify(&[&self.hello, challenge, proof], &ready);
        good.then(|| terms_of(&ready)).ok_or(Reason::Key)
    }
}

/// The listener's side of one connection, after HELLO.
#[derive(Debug)]
pub struct Listener {
    pair: Pair,
    hello: [u8; HELLO_LEN],
    challenge: [u8; SIGNED_LEN],
}

impl Listener {
    /// Takes HELLO; CHALLENGE is to be sent.
    ///
    /// # Errors
    /// Why it is no HELLO to `own_id`.
    pub fn new(keys: &Keys, bytes: &[u8], own_id: u64, nonce: &[u8; NONCE_LEN]) -> Result<Listener, Reason> {
        let hello: [u8; HELLO_LEN] = expect(bytes, Kind::Hello, None, own_id)?;
        let pair = Pair { connector: u64_at(&hello, 16), listener: own_id };
        if pair.connector == own_id {
            return Err(Reason::Malformed);
        }
        let mut message = head(Kind::Challenge, 0, own_id, pair.connector);
        message.extend_from_slice(nonce);
        let challenge = keys.signed(&[&hello], message);
        Ok(Listener { pair, hello, challenge })
    }

    /// The second message.
    #[must_use]
    pub fn challenge(&self) -> &[u8] {
        &self.challenge
    }

    /// Who connects, as it says; true once its proof is good.
    #[must_use]
    pub fn connector(&self) -> u64 {
        self.pair.connector
    }

    /// Takes PROOF: the connector's terms, and READY, to be sent when the memory is found good.
    ///
    /// # Errors
    /// [`Reason::Key`] if it does not prove that the connector has the key, or why it is no PROOF.
    pub fn proof(&self, keys: &Keys, bytes: &[u8], own: &Terms) -> Result<(Terms, [u8; SIGNED_LEN]), Reason> {
        let Pair { connector, listener } = self.pair;
        let proof = expect(bytes, Kind::Proof, Some(connector), listener)?;
        if !keys.verify(&[&self.hello, &self.challenge], &proof) {
            return Err(Reason::Key);
        }
        let message = terms_message(Kind::Ready, listener, connector, own);
        Ok((terms_of(&proof), keys.signed(&[&self.hello, &self.challenge, &proof], message)))
    }
}
