//! The directive language (`spec/annotations.md`): what the comments `// PEVPM ...` of a program
//! say about its performance.
//!
//! Pure: text comes in, [`Diagnostic`]s and a [`Program`] come out. No file is read here.
//!
//! * [`parse`]: the text of files becomes a [`Program`]
//! * [`model`]: a program becomes a [`Model`], for one number of processes and one set of
//!   parameters
//! * [`program`]: a parsed and checked program, and the [`Model`] that a virtual machine runs
//! * [`expr`]: its expressions, over numbered slots
//! * [`place`]: where in the sources something stands, and what is wrong there
#![forbid(unsafe_code)]

mod compile;
mod csource;
mod cvalues;
mod directive;
mod exparse;
pub mod expr;
mod lex;
mod message;
pub mod model;
mod names;
pub mod place;
pub mod program;
mod recorded;
mod records;
mod steady;
mod syntax;
mod tree;
mod unit;

pub use expr::{EvalError, Expr, Slot, Value};
pub use model::{Prepared, Setting};
pub use place::{Diagnostic, Place, Severity};
pub use program::{Message, Model, Op, OpKind, Program};
pub use recorded::{recorded_counts, recorded_line};
pub use unit::{MAX_BYTES, Parsed, Source, parse};
