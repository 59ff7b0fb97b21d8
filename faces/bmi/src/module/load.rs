//! Finding and loading a module: its file, its symbols, its version (spec/bmi.md 13.1, 13.2).

use crate::codes::Code;
use crate::log::tell;
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use std::ffi::{c_char, c_int, c_void};
use std::path::{Path, PathBuf};

/// `BMI_METHOD_VERSION` of `include/bmi-method.h`.
pub const VERSION: c_int = 1;

/// `struct bmi_method_unexpected_info`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct UnexpectedInfo {
    pub error_code: i32,
    pub addr: *mut c_void,
    pub buffer: *mut c_void,
    pub size: i64,
    pub tag: i32,
}

macro_rules! functions {
    ($($name:ident($($arg:ty),*) $(-> $ret:ty)?;)*) => {
        /// The functions of a module. Of each, `BMI_method_` before its name is the symbol.
        #[derive(Clone, Copy)]
        pub struct Functions {
            $(pub $name: unsafe extern "C" fn($($arg),*) $(-> $ret)?,)*
        }

        impl Functions {
            /// Those of a loaded file, or the names of the symbols that it lacks.
            ///
            /// # Safety
            /// What it calls so has these types.
            unsafe fn of(library: &Library) -> Result<Functions, Vec<&'static str>> {
                let mut missing = Vec::new();
                $(
                    let name = concat!("BMI_method_", stringify!($name), "\0");
                    // SAFETY: of this type (caller); an option, since a symbol may be defined and
                    // null.
                    let found = unsafe { library.get::<Option<unsafe extern "C" fn($($arg),*) $(-> $ret)?>>(name.as_bytes()) };
                    let $name = found.ok().and_then(|symbol| *symbol);
                    if $name.is_none() {
                        missing.push(name.trim_end_matches('\0'));
                    }
                )*
                match ($($name,)*) {
                    ($(Some($name),)*) => Ok(Functions { $($name,)* }),
                    _ => Err(missing),
                }
            }
        }
    };
}

functions! {
    initialize(*mut c_void, c_int, c_int) -> c_int;
    finalize() -> c_int;
    set_info(*mut c_void, c_int, *mut c_void) -> c_int;
    get_info(*mut c_void, c_int, *mut c_void) -> c_int;
    memalloc(i64, c_int) -> *mut c_void;
    memfree(*mut c_void, i64, c_int) -> c_int;
    unexpected_free(*mut c_void) -> c_int;
    addr_lookup(*const c_char) -> *mut c_void;
    addr_reset(*mut c_void);
    addr_free(*mut c_void);
    addr_text(*mut c_void) -> *const c_char;
    addr_range(*mut c_void, *const c_char, c_int) -> c_int;
    post_send_list(*mut i64, *mut c_void, *const *const c_void, *const i64, c_int, i64, c_int, i32) -> c_int;
    post_recv_list(*mut i64, *mut c_void, *const *mut c_void, *const i64, c_int, i64, *mut i64, c_int, i32) -> c_int;
    post_sendunexpected_list(*mut i64, *mut c_void, *const *const c_void, *const i64, c_int, i64, c_int, i32, u8) -> c_int;
    cancel(i64) -> c_int;
    testglobal(c_int, *mut i64, *mut c_int, *mut i32, *mut i64) -> c_int;
    testunexpected(c_int, *mut c_int, *mut UnexpectedInfo, u8) -> c_int;
    descriptor() -> c_int;
}

/// A module, loaded. Nothing of it was called.
pub struct Loaded {
    /// Its method's name, `bmi_` and more.
    pub name: String,
    /// What it can be asked for.
    pub functions: Functions,
    /// Unloads it when it is dropped.
    pub library: Library,
}

/// A word of the method list, taken apart (L1, L2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named<'a> {
    /// The method's name.
    pub name: &'a str,
    /// Its file, if that was named.
    pub file: Option<&'a Path>,
}

impl<'a> Named<'a> {
    /// What a word names, if it can name a module.
    #[must_use]
    pub fn parse(word: &'a str) -> Option<Named<'a>> {
        let (name, file) = match word.rsplit_once('/') {
            Some((_, last)) => {
                let last = last.strip_prefix("lib").unwrap_or(last);
                (last.split('.').next().unwrap_or(last), Some(Path::new(word)))
            }
            None => (word, None),
        };
        let rest = name.strip_prefix("bmi_")?;
        let good = !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
        good.then_some(Named { name, file })
    }

    /// Where its file may be, in the order in which that is looked at. A name without a folder is
    /// the dynamic linker's to find.
    fn places(&self, folders: &str, privileged: bool) -> Vec<PathBuf> {
        let linkers = PathBuf::from(format!("lib{}.so", self.name));
        match (self.file, privileged) {
            (Some(_), true) => Vec::new(),
            (Some(file), false) => vec![file.to_owned()],
            (None, true) => vec![linkers],
            (None, false) => {
                let folders = folders.split(':').filter(|folder| !folder.is_empty()).map(Path::new);
                let named = |folder: &Path| [folder.join(format!("{}.so", self.name)), folder.join(&linkers)];
                folders.flat_map(named).filter(|file| file.exists()).chain([linkers.clone()]).collect()
            }
        }
    }

    /// Loads it.
    ///
    /// # Errors
    /// The code; a line says which file and what is wrong with it. Nothing stays loaded.
    pub fn load(&self, folders: &str) -> Result<Loaded, Code> {
        // SAFETY: reads what the kernel said at the beginning of the process.
        let privileged = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
        let Some(place) = self.places(folders, privileged).into_iter().next() else {
            tell(&format!("{}: no file is loaded by its name in a process with raised privileges", self.name));
            return Err(Code::ENOPROTOOPT);
        };
        let shown = place.display().to_string().escape_debug().to_string();
        let searched = self.file.is_none() && place.parent().is_none_or(|folder| folder.as_os_str().is_empty());
        // SAFETY: it runs the initialisers of a file that the program, or who runs it, has named to
        // be run.
        let library = unsafe { Library::open(Some(&place), RTLD_NOW | RTLD_LOCAL) }.map_err(|error| {
            tell(&format!("{} cannot be loaded: {}", shown, reason(&error).escape_debug()));
            if searched || !place.exists() { Code::ENOPROTOOPT } else { Code::ENOSYS }
        })?;
        let told = |what: &str| tell(&format!("{shown} is no method: {what}"));
        // SAFETY: the header declares these with these types.
        let found = unsafe { Functions::of(&library) };
        // SAFETY: an int, by the header; of a symbol's place.
        let version = unsafe { library.get::<*const c_int>(b"BMI_method_version\0") }.ok().map(|symbol| *symbol);
        let missing = found.as_ref().err().cloned().unwrap_or_default();
        let version = version.filter(|place| !place.is_null());
        if version.is_none() || !missing.is_empty() {
            let all: Vec<&str> = version.is_none().then_some("BMI_method_version").into_iter().chain(missing).collect();
            told(&format!("it lacks {}", all.join(", ")));
            return Err(Code::ENOSYS);
        }
        // SAFETY: not null, and as long as the file is loaded.
        let version = version.map(|place| unsafe { *place });
        if version != Some(VERSION) {
            told(&format!("it is of version {} of the interface, not {VERSION}", version.unwrap_or(0)));
            return Err(Code::EPROTONOSUPPORT);
        }
        let functions = found.map_err(|_| Code::ENOSYS)?;
        Ok(Loaded { name: self.name.to_owned(), functions, library })
    }
}

/// What the dynamic linker says, without its address in memory.
fn reason(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// L1.
    #[test]
    fn a_word_names_a_method_by_itself_or_by_its_file() {
        let of = |word| Named::parse(word).map(|n| (n.name, n.file.is_some()));
        for (word, expected) in [
            ("bmi_mock", Some(("bmi_mock", false))),
            ("/opt/m/libbmi_mock.so.1", Some(("bmi_mock", true))),
            ("./bmi_x-2.so", Some(("bmi_x-2", true))),
            ("m/bmi_mock", Some(("bmi_mock", true))),
            ("mock", None),
            ("bmi_", None),
            ("bmi_a b", None),
            ("bmi_a.so", None),
            ("/opt/m/libmock.so", None),
            ("/opt/bmi_mock/", None),
            ("/", None),
        ] {
            assert_eq!(of(word), expected, "{word}");
        }
    }

    /// L2.
    #[test]
    fn who_has_raised_privileges_loads_nothing_by_a_path() {
        let by_path = Named::parse("/opt/bmi_mock.so").expect("a name");
        let by_name = Named::parse("bmi_mock").expect("a name");
        assert_eq!(by_path.places("/opt", true), Vec::<PathBuf>::new());
        assert_eq!(by_path.places("/opt", false), [Path::new("/opt/bmi_mock.so")]);
        assert_eq!(by_name.places("/no/such/folder", true), [Path::new("libbmi_mock.so")]);
        assert_eq!(by_name.places("/no/such/folder", false), [Path::new("libbmi_mock.so")]);
    }

    #[test]
    fn what_is_not_there_is_another_error_than_what_is_no_module() {
        assert_eq!(Named::parse("bmi_no_such_method").expect("a name").load("").map(|_| ()), Err(Code::ENOPROTOOPT));
        assert_eq!(Named::parse("/no/such/bmi_x.so").expect("a name").load("").map(|_| ()), Err(Code::ENOPROTOOPT));
        let text = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../include/bmi.h");
        let named = Named { name: "bmi_h", file: Some(&text) };
        assert_eq!(named.load("").map(|_| ()), Err(Code::ENOSYS));
    }
}
