//! Values of a model's expressions at a process.

use weir_annotations::expr::{EvalError, Slot};
use weir_annotations::{Expr, Value};

use crate::observe::Observer;
use crate::vm::{Run, Step};

impl<O: Observer> Run<'_, O> {
    pub(super) fn slots_of(&self, process: u32) -> &[Value] {
        let start = process as usize * self.width;
        &self.slots[start..start + self.width]
    }

    pub(super) fn slot(&self, process: u32, slot: Slot) -> Option<Value> {
        self.slots_of(process).get(slot.0 as usize).copied()
    }

    /// Puts a value into a slot.
    pub(super) fn set(&mut self, process: u32, slot: Slot, value: Value) -> Step<()> {
        if slot.0 as usize >= self.width {
            return self.no_value(process, EvalError::NoSlot(slot.0));
        }
        self.slots[process as usize * self.width + slot.0 as usize] = value;
        Ok(())
    }

    #[inline]
    pub(super) fn value(&mut self, process: u32, expr: &Expr) -> Step<Value> {
        if let Expr::Const(value) = expr {
            return Ok(*value);
        }
        let value = expr.eval(self.slots_of(process));
        value.or_else(|e| self.no_value(process, e))
    }

    /// A whole number.
    #[inline]
    pub(super) fn whole(&mut self, process: u32, expr: &Expr) -> Step<i64> {
        if let Expr::Const(Value::Int(value)) = expr {
            return Ok(*value);
        }
        let value = expr.int_value(self.slots_of(process));
        value.or_else(|e| self.no_value(process, e))
    }

    #[cold]
    pub(super) fn no_value<T>(&mut self, process: u32, error: EvalError) -> Step<T> {
        let op = self.processes[process as usize].pc;
        self.wrong(process, op, error.to_string())
    }

    /// A number of bytes. A fraction of a byte is cut off: sizes are often computed by dividing.
    pub(super) fn bytes(&mut self, process: u32, expr: &Expr) -> Step<u64> {
        let value = self.value(process, expr)?;
        let op = self.processes[process as usize].pc;
        match value {
            Value::Int(bytes) if bytes >= 0 => Ok(bytes as u64),
            Value::Float(bytes) if (0.0..9e18).contains(&bytes) => Ok(bytes as u64),
            _ => self.wrong(process, op, format!("a message of {value} bytes")),
        }
    }

    /// The number of a process; none for `MPI_PROC_NULL` (-1).
    pub(super) fn rank(&mut self, process: u32, expr: &Expr) -> Step<Option<u32>> {
        let rank = self.whole(process, expr)?;
        if rank == -1 {
            return Ok(None);
        }
        if (0..i64::from(self.model.numprocs)).contains(&rank) {
            return Ok(Some(rank as u32));
        }
        let op = self.processes[process as usize].pc;
        let last = self.model.numprocs - 1;
        self.wrong(process, op, format!("there is no process {rank}: they are numbered from 0 to {last}"))
    }

    /// The number of a communicator.
    pub(super) fn comm(&mut self, process: u32, expr: &Expr) -> Step<u32> {
        let comm = self.whole(process, expr)?;
        if (0..1i64 << 30).contains(&comm) {
            return Ok(comm as u32);
        }
        let op = self.processes[process as usize].pc;
        self.wrong(process, op, format!("{comm} is no number of a communicator: these are from 0 to 2^30 - 1"))
    }

    /// A tag.
    pub(super) fn tag(&mut self, process: u32, expr: &Expr) -> Step<i64> {
        let tag = self.whole(process, expr)?;
        if tag >= 0 {
            return Ok(tag);
        }
        let op = self.processes[process as usize].pc;
        self.wrong(process, op, format!("tag {tag}: tags are 0 or more"))
    }
}
