//! What a launched process and a launcher need of the system beyond safe calls: a descriptor that
//! was inherited, a child bound to its parent, and the PMIx library, found when the program runs.

mod child;
mod inherited;
pub mod pmix;

pub use child::bind;
pub use inherited::adopt;
