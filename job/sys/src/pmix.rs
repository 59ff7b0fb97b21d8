//! PMIx, loaded when the program runs.
