//! A small assembler for BPF (linux/bpf.h, RFC 9669): what the one program here needs, with jumps
//! to labels.
//!
//! Neither a C compiler nor an object file is needed, at build time or later: the programs have 63
//! and 152 instructions, and `tests/namespaces.rs` has the kernel run it on frames.

use std::collections::HashMap;

/// A register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reg(pub u8);

/// Result of calls.
pub const R0: Reg = Reg(0);
pub const R1: Reg = Reg(1);
pub const R2: Reg = Reg(2);
pub const R3: Reg = Reg(3);
pub const R4: Reg = Reg(4);
/// Kept by calls, as are the next.
pub const R6: Reg = Reg(6);
pub const R7: Reg = Reg(7);
pub const R8: Reg = Reg(8);
pub const R9: Reg = Reg(9);
/// The end of the stack.
pub const STACK: Reg = Reg(10);

/// Bytes that a load or store moves, as the instruction says it.
#[derive(Clone, Copy, Debug)]
pub enum Width {
    U32 = 0x00,
    U16 = 0x08,
    U8 = 0x10,
    U64 = 0x18,
}

const CLASS_LD: u8 = 0x00;
const CLASS_LDX: u8 = 0x01;
const CLASS_ST: u8 = 0x02;
const CLASS_STX: u8 = 0x03;
const CLASS_ALU: u8 = 0x04;
const CLASS_JMP: u8 = 0x05;
const CLASS_ALU64: u8 = 0x07;
const MODE_MEM: u8 = 0x60;
/// The operand is a register and not a number.
const BY_REG: u8 = 0x08;

/// What a jump asks.
#[derive(Clone, Copy, Debug)]
pub enum If {
    Equal = 0x10,
    Greater = 0x20,
    NotEqual = 0x50,
}

/// What is done to a register.
#[derive(Clone, Copy, Debug)]
pub enum Alu {
    Add = 0x00,
    And = 0x50,
    Right = 0x70,
    Move = 0xb0,
}

/// Code being written.
#[derive(Debug, Default)]
pub struct Code {
    words: Vec<u64>,
    labels: HashMap<&'static str, usize>,
    jumps: Vec<(usize, &'static str)>,
}

impl Code {
    fn put(&mut self, opcode: u8, to: Reg, from: Reg, offset: i16, number: i32) -> &mut Code {
        // As it lies in memory: opcode, registers (the first in the low half on a little-endian
        // machine), offset, number.
        let registers = if cfg!(target_endian = "little") { to.0 | from.0 << 4 } else { to.0 << 4 | from.0 };
        let (o, n) = (offset.to_ne_bytes(), number.to_ne_bytes());
        self.words.push(u64::from_ne_bytes([opcode, registers, o[0], o[1], n[0], n[1], n[2], n[3]]));
        self
    }

    /// `to` = what lies at `from` + `offset`.
    pub fn load(&mut self, width: Width, to: Reg, from: Reg, offset: i16) -> &mut Code {
        self.put(CLASS_LDX | MODE_MEM | width as u8, to, from, offset, 0)
    }

    /// What lies at `to` + `offset` = `from`.
    pub fn store(&mut self, width: Width, to: Reg, offset: i16, from: Reg) -> &mut Code {
        self.put(CLASS_STX | MODE_MEM | width as u8, to, from, offset, 0)
    }

    /// The same with a number.
    pub fn store_number(&mut self, width: Width, to: Reg, offset: i16, number: i32) -> &mut Code {
        self.put(CLASS_ST | MODE_MEM | width as u8, to, R0, offset, number)
    }

    /// `to` = `to` op number.
    pub fn number(&mut self, op: Alu, to: Reg, number: i32) -> &mut Code {
        self.put(CLASS_ALU64 | op as u8, to, R0, 0, number)
    }

    /// `to` = `to` op `from`.
    pub fn register(&mut self, op: Alu, to: Reg, from: Reg) -> &mut Code {
        self.put(CLASS_ALU64 | BY_REG | op as u8, to, from, 0, 0)
    }

    /// Exchanges `with` and the 32 bits at `at`: a full barrier too.
    pub fn exchange_32(&mut self, at: Reg, with: Reg) -> &mut Code {
        const ATOMIC_U32: u8 = 0xc0;
        const EXCHANGE: i32 = 0xe1;
        self.put(CLASS_STX | ATOMIC_U32, at, with, 0, EXCHANGE)
    }

    /// Adds `what` to the 64 bits at `at`, in one piece.
    pub fn add_64(&mut self, at: Reg, what: Reg) -> &mut Code {
        const ATOMIC_U64: u8 = 0xd8;
        self.put(CLASS_STX | ATOMIC_U64, at, what, 0, 0)
    }

    /// The low 16 bits of a register, which hold a number as it lies on the wire, as a number.
    pub fn swap_from_wire_16(&mut self, to: Reg) -> &mut Code {
        const END_TO_BIG: u8 = 0xd8;
        self.put(CLASS_ALU | END_TO_BIG, to, R0, 0, 16)
    }

    /// Goes to `label` if `left` and the number are such.
    pub fn jump_if(&mut self, question: If, left: Reg, number: i32, label: &'static str) -> &mut Code {
        self.jumps.push((self.words.len(), label));
        self.put(CLASS_JMP | question as u8, left, R0, 0, number)
    }

    /// The same of two registers.
    pub fn jump_if_registers(&mut self, question: If, left: Reg, right: Reg, label: &'static str) -> &mut Code {
        self.jumps.push((self.words.len(), label));
        self.put(CLASS_JMP | BY_REG | question as u8, left, right, 0, 0)
    }

    /// Goes to `label`.
    pub fn jump(&mut self, label: &'static str) -> &mut Code {
        self.jumps.push((self.words.len(), label));
        self.put(CLASS_JMP, R0, R0, 0, 0)
    }

    /// Names the next instruction.
    pub fn label(&mut self, label: &'static str) -> &mut Code {
        self.labels.insert(label, self.words.len());
        self
    }

    /// `to` = the map of this descriptor.
    pub fn map(&mut self, to: Reg, fd: i32) -> &mut Code {
        const WIDE_NUMBER: u8 = 0x18;
        const IS_MAP_FD: Reg = Reg(1);
        self.put(CLASS_LD | WIDE_NUMBER, to, IS_MAP_FD, 0, fd).put(0, R0, R0, 0, 0)
    }

    /// Calls a function of the kernel by its number.
    pub fn call(&mut self, function: i32) -> &mut Code {
        self.put(CLASS_JMP | 0x80, R0, R0, 0, function)
    }

    /// Returns `R0`.
    pub fn exit(&mut self) -> &mut Code {
        self.put(CLASS_JMP | 0x90, R0, R0, 0, 0)
    }

    /// The instructions, with jumps resolved; `None`: a label is missing or too far.
    pub fn finish(&self) -> Option<Vec<u64>> {
        let mut words = self.words.clone();
        for &(at, label) in &self.jumps {
            let to = *self.labels.get(label)?;
            let offset = i16::try_from(to as isize - at as isize - 1).ok()?;
            let mut bytes = words[at].to_ne_bytes();
            bytes[2..4].copy_from_slice(&offset.to_ne_bytes());
            words[at] = u64::from_ne_bytes(bytes);
        }
        Some(words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_as_the_kernel_reads_them() {
        let mut c = Code::default();
        c.number(Alu::Move, R0, 2).jump_if(If::Equal, R0, 7, "end").load(Width::U16, R3, R7, 12);
        c.label("end").exit();
        let words = c.finish().expect("the label is there");
        let bytes: Vec<[u8; 8]> = words.iter().map(|w| w.to_ne_bytes()).collect();
        if cfg!(target_endian = "little") {
            assert_eq!(bytes[0], [0xb7, 0, 0, 0, 2, 0, 0, 0]);
            assert_eq!(bytes[1], [0x15, 0, 1, 0, 7, 0, 0, 0]);
            assert_eq!(bytes[2], [0x69, 0x73, 12, 0, 0, 0, 0, 0]);
            assert_eq!(bytes[3], [0x95, 0, 0, 0, 0, 0, 0, 0]);
        }
    }

    #[test]
    fn a_jump_to_nowhere_is_no_program() {
        let mut c = Code::default();
        c.jump("nowhere").exit();
        assert_eq!(c.finish(), None);
    }
}
