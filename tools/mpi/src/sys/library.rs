//! A loaded library, and MPI from its initialisation to its end.

use std::cell::Cell;
use std::ffi::{c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use libloading::os::unix;

use super::abi::{self, Abi, Constants, Symbols};
use super::communicator::Communicator;
use super::functions::{Functions, Raw};
use super::requests::Requests;
use crate::elf;
use crate::error::Error;
use crate::find::{self, Found, Launch};
use crate::level::Level;

/// Longest text that an MPI hands out (`MPI_MAX_LIBRARY_VERSION_STRING` of MPICH and the standard's
/// ABI; all others are less).
const MAX_TEXT_BYTES: usize = 8192;

/// The functions and constants of one ABI.
pub struct Table<H> {
    pub f: Functions<H>,
    pub k: Constants<H>,
}

/// The same for either kind of handle.
pub enum Calls {
    Int(Table<c_int>),
    Pointer(Table<*mut c_void>),
}

/// Evaluates `$call` with `$table` being the library's [`Table`]. The branch always goes one way.
macro_rules! on {
    ($library:expr, $table:ident => $call:expr) => {
        match &$library.calls {
            $crate::sys::library::Calls::Int($table) => $call,
            $crate::sys::library::Calls::Pointer($table) => $call,
        }
    };
}
pub(super) use on;

/// A loaded library. It is never unloaded: MPIs leave threads and handlers behind.
pub struct Library {
    pub calls: Calls,
    pub abi: Abi,
    pub path: PathBuf,
    /// What `MPI_Get_library_version` says.
    pub version: String,
    /// Whether MPI runs: between `MPI_Init_thread` and `MPI_Finalize`. Being a `Cell`, it also
    /// keeps all that refers to the library on one thread, as `MPI_THREAD_FUNNELED` wants it;
    /// [`Mpi::threads`] is the one way around that.
    running: Cell<bool>,
    /// Scopes that are open, in which MPI may be using buffers.
    pub scopes: Cell<usize>,
}

impl Library {
    /// Loads the library and recognises its ABI.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let unknown = |cause: String| Error::Unknown { library: path.to_owned(), cause };
        let soname = elf::soname(path).ok_or_else(|| unknown("not a shared library with a SONAME".into()))?;
        if Abi::of_soname(&soname).is_none() {
            abi::recognise(path, &soname, &Symbols { ompi_world: false, abi_version: None })?;
        }
        // Open MPI's plug-ins take its symbols from the global scope; a program linked with any MPI
        // has them there too. SAFETY: the file says that it is an MPI library, whose initialisers
        // are made to run in any process.
        let loaded = unsafe { unix::Library::open(Some(path), unix::RTLD_NOW | unix::RTLD_GLOBAL) };
        let loaded =
            loaded.map_err(|error| Error::Load { library: path.to_owned(), cause: linkers_words(path, &error) })?;
        let address = |name: &str| {
            // SAFETY: the address is taken, nothing is read; what is behind it is said by the
            // caller's use.
            let symbol = unsafe { loaded.get::<*mut c_void>(name.as_bytes()) };
            symbol.ok().map(|symbol| *symbol).filter(|address| !address.is_null())
        };
        let abi_version = address("MPI_Abi_get_version").and_then(|function| {
            // SAFETY: the standard gives the function of this name this type.
            let ask: unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int = unsafe { std::mem::transmute(function) };
            let (mut major, mut minor) = (0, 0);
            // SAFETY: it may be called before MPI_Init, and writes two integers.
            (unsafe { ask(&raw mut major, &raw mut minor) } == 0).then_some((major, minor))
        });
        let symbols = Symbols { ompi_world: address("ompi_mpi_comm_world").is_some(), abi_version };
        let abi = abi::recognise(path, &soname, &symbols)?;
        let find = |name: &'static str| address(name).ok_or_else(|| unknown(format!("it has no {name}")));
        // SAFETY: addresses of the functions of an MPI, whose handles are as `recognise` found.
        let calls = unsafe {
            match abi {
                Abi::Mpich => Calls::Int(Table { f: Functions::resolve(find)?, k: abi::MPICH }),
                Abi::Standard => Calls::Pointer(Table { f: Functions::resolve(find)?, k: abi::standard() }),
                Abi::OpenMpi => Calls::Pointer(Table { f: Functions::resolve(find)?, k: abi::open_mpi(find)? }),
            }
        };
        std::mem::forget(loaded);
        let mut library = Self {
            calls,
            abi,
            path: path.to_owned(),
            version: String::new(),
            running: Cell::new(false),
            scopes: Cell::new(0),
        };
        library.version = library.ask_version()?;
        Ok(library)
    }

    fn ask_version(&self) -> Result<String, Error> {
        // SAFETY: the function may be called before MPI_Init; the buffer is as long as any MPI's
        // limit.
        text(|buffer, length| on!(self, t => unsafe { (t.f.get_library_version)(buffer, length) }))
            .map_err(|code| self.failure("MPI_Get_library_version", code))
    }

    /// Turns MPI's return code into an error with MPI's own text.
    #[inline]
    pub fn check(&self, function: &'static str, code: c_int) -> Result<(), Error> {
        if code == 0 { Ok(()) } else { Err(self.failure(function, code)) }
    }

    /// Refuses calls into an MPI that has ended.
    #[inline]
    pub fn must_run(&self, function: &'static str) -> Result<(), Error> {
        if self.running.get() { Ok(()) } else { Err(Error::Finalized(function)) }
    }

    /// Whether MPI is between its initialisation and its end.
    pub fn is_running(&self) -> bool {
        self.running.get()
    }

    #[cold]
    pub fn failure(&self, function: &'static str, code: c_int) -> Error {
        let mut class = code;
        // SAFETY: the function takes any code and writes one integer.
        on!(self, t => unsafe { (t.f.error_class)(code, &raw mut class) });
        // SAFETY: the buffer is longer than any MPI's limit for error texts.
        let said = text(|buffer, length| on!(self, t => unsafe { (t.f.error_string)(code, buffer, length) }));
        let text = said.map_or_else(|_| format!("error {code}"), |text| one_line(&text));
        Error::Failed { function, class, text: text.into() }
    }
}

/// Calls an MPI function that writes a text and its length.
fn text(call: impl FnOnce(*mut c_char, *mut c_int) -> c_int) -> Result<String, c_int> {
    let mut buffer = [0u8; MAX_TEXT_BYTES];
    let mut length = 0;
    let code = call(buffer.as_mut_ptr().cast(), &raw mut length);
    if code != 0 {
        return Err(code);
    }
    let written = usize::try_from(length).unwrap_or(0).min(buffer.len());
    let bytes = buffer[..written].split(|byte| *byte == 0).next().unwrap_or_default();
    Ok(String::from_utf8_lossy(bytes).trim().to_owned())
}

/// Why the linker refused a file; it begins with the file, where the file itself is the cause.
fn linkers_words(path: &Path, error: &libloading::Error) -> String {
    let text = std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string);
    let own = format!("{}: ", path.display());
    one_line(text.strip_prefix(&own).unwrap_or(&text))
}

fn one_line(text: &str) -> String {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ")
}

/// Loads a library without initialising MPI; returns its ABI and what it says its version is.
///
/// # Errors
/// If it cannot be loaded, or is not an MPI that is known here.
pub fn load_only(library: &Path) -> Result<(Abi, String), Error> {
    let library = Library::open(library)?;
    Ok((library.abi, library.version))
}

/// MPI, loaded and initialised. There is one in a process, and it stays on its thread.
///
/// The good end of a job is [`Mpi::finalize`]. A value that is merely dropped does not finalise,
/// since MPI_Finalize waits for the other ranks, which after an error may be waiting for this one:
/// the process then ends without, and the launcher ends the job.
pub struct Mpi {
    pub(super) library: &'static Library,
    launch: Launch,
    found: Found,
    level: Level,
}

/// Whether this process has initialised MPI.
static INITIALISED: AtomicBool = AtomicBool::new(false);

impl Mpi {
    /// Finds the MPI that the launcher of this process belongs to, loads and initialises it. Errors
    /// are returned from then on, rather than ending the job.
    ///
    /// # Errors
    /// If there is no MPI, or several between which nothing decides, or one that does not go with
    /// the launcher; if the library cannot be used; if the ranks of a job do not find each other.
    pub fn load() -> Result<Self, Error> {
        Self::load_with(&weir_job::Env::from_process(), None)
    }

    /// The same with this environment and, if given, this library: a path, or a name such as
    /// `libmpi_abi.so` to be looked for. `WEIR_MPI_LIBRARY` says the same as `library`, which goes
    /// before.
    ///
    /// # Errors
    /// As [`Mpi::load`].
    pub fn load_with(env: &weir_job::Env, library: Option<&Path>) -> Result<Self, Error> {
        Self::load_at(env, library, Level::Funneled)
    }

    /// The same, asking for this level of threads; what the library gives instead, [`Mpi::level`]
    /// says.
    ///
    /// # Errors
    /// As [`Mpi::load`].
    pub fn load_at(env: &weir_job::Env, library: Option<&Path>, wanted: Level) -> Result<Self, Error> {
        let launch = Launch::of_process(env);
        let found = find::library(&launch, env, library)?;
        let library = Library::open(&found.library)?;
        find::must_agree(&launch, &found, &library.version)?;
        if INITIALISED.swap(true, Ordering::Relaxed) {
            return Err(Error::AlreadyLoaded);
        }
        let mut mpi = Self { library: Box::leak(Box::new(library)), launch, found, level: Level::Single };
        mpi.level = mpi.initialise(wanted)?;
        let (world, text) = (mpi.world()?, &mpi.library.version);
        if let Some(cause) = find::is_alone(&mpi.launch, &mpi.found, text, world.size()) {
            mpi.finalize()?;
            return Err(Error::Singleton(cause));
        }
        Ok(mpi)
    }

    /// Initialises MPI; returns the level of threads that it gives.
    fn initialise(&self, wanted: Level) -> Result<Level, Error> {
        let library = self.library;
        let (mut already, mut provided) = (0, 0);
        // SAFETY: may be called before MPI_Init; writes one integer.
        let code = on!(library, t => unsafe { (t.f.initialized)(&raw mut already) });
        library.check("MPI_Initialized", code)?;
        if already != 0 {
            return Err(Error::AlreadyLoaded);
        }
        let null = std::ptr::null_mut();
        // SAFETY: MPI is not initialised, which `already` and `INITIALISED` tell; it takes null for
        // the arguments.
        let code = on!(library, t => unsafe {
            (t.f.init_thread)(null, null.cast(), t.k.levels.of(wanted), &raw mut provided)
        });
        library.check("MPI_Init_thread", code)?;
        library.running.set(true);
        // SAFETY: the handles are this library's own.
        let code = on!(library, t => unsafe { (t.f.comm_set_errhandler)(t.k.world, t.k.errors_return) });
        library.check("MPI_Comm_set_errhandler", code)?;
        Ok(on!(library, t => t.k.levels.given(provided)))
    }

    /// What threads of this process may do, as the library said when it was initialised.
    pub fn level(&self) -> Level {
        self.level
    }

    /// All ranks (`MPI_COMM_WORLD`).
    ///
    /// # Errors
    /// If MPI fails.
    pub fn world(&self) -> Result<Communicator, Error> {
        Communicator::new(self.library, on!(self.library, t => t.k.world.keep()), false)
    }

    /// A table for `capacity` operations at once that go on while the caller does.
    pub fn requests(&self, capacity: usize) -> Requests {
        Requests::new(self.library, capacity)
    }

    /// The ABI by which the library is called.
    pub fn abi(&self) -> Abi {
        self.library.abi
    }

    /// The library's file.
    pub fn library(&self) -> &Path {
        &self.library.path
    }

    /// Where the library was found, in words.
    pub fn why(&self) -> &str {
        &self.found.why
    }

    /// What the launcher told.
    pub fn launch(&self) -> &Launch {
        &self.launch
    }

    /// What the library says it is (`MPI_Get_library_version`); several lines.
    pub fn version(&self) -> &str {
        &self.library.version
    }

    /// The version of the MPI standard that the library follows: major, minor.
    ///
    /// # Errors
    /// If MPI fails.
    pub fn standard_version(&self) -> Result<(i32, i32), Error> {
        let (mut major, mut minor) = (0, 0);
        // SAFETY: may be called at any time; writes two integers.
        let code = on!(self.library, t => unsafe { (t.f.get_version)(&raw mut major, &raw mut minor) });
        self.library.check("MPI_Get_version", code)?;
        Ok((major, minor))
    }

    /// MPI's name of the node.
    ///
    /// # Errors
    /// If MPI fails.
    pub fn processor_name(&self) -> Result<String, Error> {
        // SAFETY: MPI runs; the buffer is longer than any MPI's limit for names.
        text(|buffer, length| on!(self.library, t => unsafe { (t.f.get_processor_name)(buffer, length) }))
            .map_err(|code| self.library.failure("MPI_Get_processor_name", code))
    }

    /// MPI's clock, in seconds from some time in the past.
    pub fn wtime(&self) -> f64 {
        // SAFETY: MPI runs, since only `finalize` ends it, and it takes `self`.
        on!(self.library, t => unsafe { (t.f.wtime)() })
    }

    /// Ends all ranks of the job, with this exit code as far as the launcher passes it on.
    pub fn abort(&self, code: i32) -> ! {
        abort(self.library, code)
    }

    /// Ends MPI in good order; waits for the other ranks. Communicators that are left are of no use
    /// afterwards: their operations return [`Error::Finalized`].
    ///
    /// # Errors
    /// If MPI fails, or within a [`Scope`](crate::Scope).
    pub fn finalize(self) -> Result<(), Error> {
        if self.library.scopes.get() > 0 {
            return Err(Error::Open);
        }
        self.library.running.set(false);
        // SAFETY: MPI runs. No operation is under way in any buffer, since no scope is open.
        let code = on!(self.library, t => unsafe { (t.f.finalize)() });
        self.library.check("MPI_Finalize", code)
    }
}

/// After MPI failed at ending an operation whose buffers it may go on using: they cannot be given
/// back, so that the job is ended.
#[cold]
pub fn lost(library: &Library, function: &'static str, code: c_int) -> ! {
    eprintln!("weir: {}; what it was working on cannot be given back: ending the job", library.failure(function, code));
    abort(library, 1)
}

/// Ends the job.
pub fn abort(library: &Library, code: i32) -> ! {
    if library.is_running() {
        // SAFETY: MPI runs.
        on!(library, t => unsafe { (t.f.abort)(t.k.world, code) });
    }
    // MPI_Abort does not return, but says it may.
    std::process::exit(code)
}
