//! The library without a process around it, for who drives it step by step: one server or client,
//! nobody asleep, no lock.

pub use crate::library::{Library, Lookup, Unexpected, Wanted, Word, wanted};
pub use crate::memory::Use;
pub use crate::method::Kind;
pub use crate::settings::Settings;
pub use crate::tables::Posted;
pub use weir_engine::Iov;

use crate::addresses::AddrKey;
use crate::codes::{Code, INIT_SERVER, option};

/// Settings of these variables, and no others.
///
/// # Errors
/// As [`Settings::read`].
pub fn settings(vars: &[(&str, &str)]) -> Result<Settings, Code> {
    Settings::read(&|name| vars.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned()))
}

/// A server of one of the library's methods, at a free port of this host; and the port.
///
/// # Errors
/// The code of what went wrong.
pub fn server(scheme: &str, vars: &[(&str, &str)]) -> Result<(Library, u16), Code> {
    let (method, at) = (format!("bmi_{scheme}"), format!("{scheme}://127.0.0.1:0"));
    let library = Library::with(settings(vars)?, Some(&method), Some(&at), INIT_SERVER)?;
    let port = library.methods().first().map_or(0, crate::method::Method::port);
    Ok((library, port))
}

/// A client, of whichever methods its lookups need.
///
/// # Errors
/// The code of what went wrong.
pub fn client(vars: &[(&str, &str)]) -> Result<Library, Code> {
    Library::with(settings(vars)?, None, None, 0)
}

/// The address of a text, whose host is no name.
///
/// # Errors
/// Its code.
pub fn look_up(library: &mut Library, text: &str) -> Result<AddrKey, Code> {
    match library.lookup(text)? {
        Lookup::Known(addr) => Ok(addr),
        Lookup::Unresolved(kind, url) => {
            let places = url.resolve()?;
            library.looked_up(text, kind, places)
        }
    }
}

/// `BMI_DROP_ADDR`.
///
/// # Errors
/// Its code.
pub fn drop_addr(library: &mut Library, addr: AddrKey) -> Result<(), Code> {
    library.set(Some(addr), option::DROP_ADDR, None)
}
