//! The directive language (`spec/annotations.md`): what the comments `// PEVPM ...` of a program say about its performance.
//!
//! Pure: text comes in, [`Diagnostic`]s and a [`Program`] come out. No file is read here.
//!
//! * [`program`]: a parsed and checked program, and the [`Model`] that a virtual machine runs
//! * [`expr`]: its expressions, over numbered slots
//! * [`place`]: where in the sources something stands, and what is wrong there
#![forbid(unsafe_code)]

pub mod expr;
pub mod place;
pub mod program;

pub use expr::{EvalError, Expr, Slot, Value};
pub use place::{Diagnostic, Place, Severity};
pub use program::{Message, Model, Op, OpKind, Program};
