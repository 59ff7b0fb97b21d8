//! The calls of MPI: which are messages, where in their arguments size, peer, tag, communicator and
//! request stand, and which cost nothing.

/// A number of an argument, from 0.
type At = usize;

/// What a call of MPI is to a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A send to one process.
    Send {
        /// Where the request stands, for those that do not wait.
        request: Option<At>,
    },
    /// A receive from one process.
    Receive {
        /// Where the request stands, for those that do not wait.
        request: Option<At>,
    },
    /// `MPI_Sendrecv`: a send and a receive at once.
    Exchange,
    /// `MPI_Sendrecv_replace`.
    ExchangeInPlace,
    /// `MPI_Probe`, `MPI_Iprobe`: looking at a message without receiving it.
    Probe {
        /// Where the flag stands, for the one that does not wait.
        flag: Option<At>,
    },
    /// `MPI_Wait`, `MPI_Test`: one request; and where the flag stands.
    One {
        /// The flag of a test.
        flag: Option<At>,
    },
    /// `MPI_Waitall` and its kin: a count and an array of requests.
    Several {
        /// What else they give, by the name that the model has for it.
        gives: &'static [(&'static str, At)],
    },
    /// `MPI_Start`, `MPI_Request_free`: one request alone.
    Begin,
    /// All processes of a communicator take part.
    Collective {
        /// Count and datatype; none for a barrier.
        size: Option<(At, At)>,
        /// Which process is the root.
        root: Option<At>,
        /// The communicator.
        comm: At,
        /// Whether each process's part has its own size, of which the model knows only one.
        each: bool,
        /// Where the request stands, for those that do not wait.
        request: Option<At>,
    },
    /// Nothing travels, or nothing whose time counts.
    Local,
    /// It ends the job.
    Abort,
}

const fn collective(size: Option<(At, At)>, root: Option<At>, comm: At) -> Kind {
    Kind::Collective { size, root, comm, each: false, request: None }
}

const fn uneven(size: (At, At), root: Option<At>, comm: At) -> Kind {
    Kind::Collective { size: Some(size), root, comm, each: true, request: None }
}

const SEND: Kind = Kind::Send { request: None };
const ISEND: Kind = Kind::Send { request: Some(6) };

/// Calls that are messages. Arguments are those of the C bindings (MPI 4.1).
const MESSAGES: [(&str, Kind); 47] = [
    ("MPI_Send", SEND),
    ("MPI_Ssend", SEND),
    ("MPI_Bsend", SEND),
    ("MPI_Rsend", SEND),
    ("MPI_Isend", ISEND),
    ("MPI_Issend", ISEND),
    ("MPI_Ibsend", ISEND),
    ("MPI_Irsend", ISEND),
    ("MPI_Recv", Kind::Receive { request: None }),
    ("MPI_Irecv", Kind::Receive { request: Some(6) }),
    ("MPI_Sendrecv", Kind::Exchange),
    ("MPI_Sendrecv_replace", Kind::ExchangeInPlace),
    ("MPI_Probe", Kind::Probe { flag: None }),
    ("MPI_Iprobe", Kind::Probe { flag: Some(3) }),
    ("MPI_Wait", Kind::One { flag: None }),
    ("MPI_Test", Kind::One { flag: Some(1) }),
    ("MPI_Waitall", Kind::Several { gives: &[] }),
    ("MPI_Waitany", Kind::Several { gives: &[("index", 2)] }),
    ("MPI_Waitsome", Kind::Several { gives: &[("outcount", 2)] }),
    ("MPI_Testall", Kind::Several { gives: &[("flag", 2)] }),
    ("MPI_Testany", Kind::Several { gives: &[("index", 2), ("flag", 3)] }),
    ("MPI_Testsome", Kind::Several { gives: &[("outcount", 2)] }),
    ("MPI_Send_init", ISEND),
    ("MPI_Ssend_init", ISEND),
    ("MPI_Bsend_init", ISEND),
    ("MPI_Rsend_init", ISEND),
    ("MPI_Recv_init", Kind::Receive { request: Some(6) }),
    ("MPI_Start", Kind::Begin),
    ("MPI_Startall", Kind::Several { gives: &[] }),
    ("MPI_Request_free", Kind::Begin),
    ("MPI_Barrier", collective(None, None, 0)),
    ("MPI_Bcast", collective(Some((1, 2)), Some(3), 4)),
    ("MPI_Reduce", collective(Some((2, 3)), Some(5), 6)),
    ("MPI_Allreduce", collective(Some((2, 3)), None, 5)),
    ("MPI_Scan", collective(Some((2, 3)), None, 5)),
    ("MPI_Exscan", collective(Some((2, 3)), None, 5)),
    ("MPI_Gather", collective(Some((1, 2)), Some(6), 7)),
    ("MPI_Scatter", collective(Some((1, 2)), Some(6), 7)),
    ("MPI_Allgather", collective(Some((1, 2)), None, 6)),
    ("MPI_Alltoall", collective(Some((1, 2)), None, 6)),
    ("MPI_Gatherv", uneven((1, 2), Some(7), 8)),
    ("MPI_Scatterv", uneven((5, 6), Some(7), 8)),
    ("MPI_Allgatherv", uneven((1, 2), None, 7)),
    ("MPI_Alltoallv", uneven((1, 3), None, 8)),
    ("MPI_Reduce_scatter", uneven((2, 3), None, 5)),
    ("MPI_Abort", Kind::Abort),
    ("MPI_Finalize", Kind::Local),
];

/// Calls and families of calls in which nothing travels whose time counts: questions, and what is
/// done once at the start.
const LOCAL: [&str; 25] = [
    "MPI_Init",
    "MPI_Init_thread",
    "MPI_Initialized",
    "MPI_Finalized",
    "MPI_Wtime",
    "MPI_Wtick",
    "MPI_Comm_",
    "MPI_Group_",
    "MPI_Get_address",
    "MPI_Get_count",
    "MPI_Get_elements",
    "MPI_Get_library_version",
    "MPI_Get_processor_name",
    "MPI_Get_version",
    "MPI_Type_",
    "MPI_Op_",
    "MPI_Error_",
    "MPI_Errhandler_",
    "MPI_Info_",
    "MPI_Query_thread",
    "MPI_Is_thread_main",
    "MPI_Pcontrol",
    "MPI_Buffer_attach",
    "MPI_Cart_",
    "MPI_Dims_create",
];
/// Calls of these families that are more than that.
const NOT_LOCAL: [&str; 7] = [
    "MPI_Comm_spawn",
    "MPI_Comm_spawn_multiple",
    "MPI_Comm_accept",
    "MPI_Comm_connect",
    "MPI_Comm_disconnect",
    "MPI_Comm_join",
    "MPI_Comm_idup",
];
/// Calls that move data within a process; their time is that of computing.
const PACKING: [&str; 3] = ["MPI_Pack", "MPI_Pack_size", "MPI_Unpack"];

/// What a function of this name is, if it is MPI's; `Err` if it is MPI's and no directive can say
/// it.
#[must_use]
pub fn kind(name: &str) -> Option<Result<Kind, ()>> {
    if name.starts_with("PMPI_") {
        return Some(Err(()));
    }
    if !name.starts_with("MPI_") {
        return None;
    }
    if let Some((_, kind)) = MESSAGES.iter().find(|(known, _)| *known == name) {
        return Some(Ok(*kind));
    }
    if let Some(kind) = not_blocking(name) {
        return Some(Ok(kind));
    }
    let listed = LOCAL.iter().any(|known| if known.ends_with('_') { name.starts_with(known) } else { name == *known });
    let local = (listed && !NOT_LOCAL.contains(&name)) || PACKING.contains(&name);
    Some(if local { Ok(Kind::Local) } else { Err(()) })
}

/// Whether a call only reads what its first argument points to: what it sends.
#[must_use]
pub fn only_reads_first(name: &str) -> bool {
    match kind(name) {
        Some(Ok(Kind::Send { .. } | Kind::Exchange)) => true,
        Some(Ok(Kind::Collective { size: Some(_), .. })) => !matches!(name, "MPI_Bcast" | "MPI_Ibcast"),
        _ => false,
    }
}

/// Calls without a directive that the directive language counts as communication, so that a `Skip`
/// must stand in their place.
const SKIPPED: [&str; 20] = [
    "MPI_Mprobe",
    "MPI_Improbe",
    "MPI_Mrecv",
    "MPI_Imrecv",
    "MPI_Psend_init",
    "MPI_Precv_init",
    "MPI_Pready",
    "MPI_Pready_range",
    "MPI_Pready_list",
    "MPI_Parrived",
    "MPI_Put",
    "MPI_Get",
    "MPI_Accumulate",
    "MPI_Win_fence",
    "MPI_Win_lock",
    "MPI_Win_unlock",
    "MPI_Alltoallw",
    "MPI_Ialltoallw",
    "MPI_Reduce_scatter_block",
    "MPI_Ireduce_scatter_block",
];

/// Whether a call that is left out has a `Skip` in its place. The language passes over those that
/// only make requests.
#[must_use]
pub fn wants_skip(name: &str) -> bool {
    let may = name.ends_with("_init") || name == "MPI_Request_free";
    (matches!(kind(name), Some(Ok(_))) && !may) || SKIPPED.contains(&name)
}

/// A collective that does not block: its name has an `I`, and its request comes last.
fn not_blocking(name: &str) -> Option<Kind> {
    let rest = name.strip_prefix("MPI_I")?;
    let mut letters = rest.chars();
    let blocking = format!("MPI_{}{}", letters.next()?.to_ascii_uppercase(), letters.as_str());
    match MESSAGES.iter().find(|(known, _)| *known == blocking)?.1 {
        Kind::Collective { size, root, comm, each, .. } => {
            Some(Kind::Collective { size, root, comm, each, request: Some(comm + 1) })
        }
        _ => None,
    }
}

/// Basic datatypes with the C type of the same size; an empty one is a byte.
const DATATYPES: [(&str, &str); 32] = [
    ("MPI_BYTE", ""),
    ("MPI_PACKED", ""),
    ("MPI_CHAR", ""),
    ("MPI_SIGNED_CHAR", ""),
    ("MPI_UNSIGNED_CHAR", ""),
    ("MPI_INT8_T", ""),
    ("MPI_UINT8_T", ""),
    ("MPI_C_BOOL", ""),
    ("MPI_SHORT", "short"),
    ("MPI_UNSIGNED_SHORT", "short"),
    ("MPI_INT16_T", "short"),
    ("MPI_UINT16_T", "short"),
    ("MPI_INT", "int"),
    ("MPI_UNSIGNED", "int"),
    ("MPI_INT32_T", "int"),
    ("MPI_UINT32_T", "int"),
    ("MPI_LONG", "long"),
    ("MPI_UNSIGNED_LONG", "long"),
    ("MPI_LONG_LONG", "long long"),
    ("MPI_LONG_LONG_INT", "long long"),
    ("MPI_UNSIGNED_LONG_LONG", "long long"),
    ("MPI_INT64_T", "long long"),
    ("MPI_UINT64_T", "long long"),
    ("MPI_AINT", "long"),
    ("MPI_OFFSET", "long long"),
    ("MPI_COUNT", "long long"),
    ("MPI_FLOAT", "float"),
    ("MPI_DOUBLE", "double"),
    ("MPI_LONG_DOUBLE", "long double"),
    ("MPI_C_FLOAT_COMPLEX", "double"),
    ("MPI_C_COMPLEX", "double"),
    ("MPI_2INT", "double"),
];

/// The C type of a basic datatype's size: an empty text for one byte.
#[must_use]
pub fn datatype(name: &str) -> Option<&'static str> {
    DATATYPES.iter().find(|(known, _)| *known == name).map(|(_, c)| *c)
}

/// Functions of C that take no time worth a directive: words for people, memory, arguments.
pub const CHEAP: [&str; 30] = [
    "printf",
    "fprintf",
    "puts",
    "putchar",
    "fputs",
    "fputc",
    "fflush",
    "snprintf",
    "sprintf",
    "perror",
    "exit",
    "abort",
    "free",
    "malloc",
    "calloc",
    "realloc",
    "posix_memalign",
    "atoi",
    "atol",
    "atof",
    "strtol",
    "strtoul",
    "strtod",
    "strcmp",
    "strncmp",
    "getenv",
    "getopt",
    "assert",
    "srand",
    "time",
];

/// Functions of C's library, POSIX and OpenMP that do not call the program's MPI: nothing is said
/// of them. They may take time.
pub const LIBRARY: [&str; 191] = [
    "MAX",
    "MIN",
    "_Static_assert",
    "__builtin_expect",
    "abs",
    "access",
    "acos",
    "alarm",
    "aligned_alloc",
    "asin",
    "atan",
    "atan2",
    "atexit",
    "atoll",
    "bsearch",
    "cabs",
    "carg",
    "cbrt",
    "ceil",
    "cexp",
    "cimag",
    "clock",
    "clock_gettime",
    "close",
    "conj",
    "cos",
    "cosf",
    "cosh",
    "creal",
    "csqrt",
    "difftime",
    "div",
    "drand48",
    "erf",
    "erfc",
    "exp",
    "exp2",
    "expf",
    "expm1",
    "fabs",
    "fabsf",
    "fclose",
    "feof",
    "ferror",
    "fgetc",
    "fgets",
    "fileno",
    "floor",
    "fmax",
    "fmin",
    "fmod",
    "fopen",
    "fread",
    "freopen",
    "fscanf",
    "fseek",
    "fstat",
    "ftell",
    "fwrite",
    "getc",
    "getchar",
    "gethostname",
    "getline",
    "getopt_long",
    "getpid",
    "getppid",
    "getrusage",
    "gettimeofday",
    "gmtime",
    "hypot",
    "isalnum",
    "isalpha",
    "isdigit",
    "isfinite",
    "isinf",
    "islower",
    "isnan",
    "ispunct",
    "isspace",
    "isupper",
    "labs",
    "ldiv",
    "lgamma",
    "llabs",
    "llround",
    "localtime",
    "log",
    "log10",
    "log1p",
    "log2",
    "logf",
    "lrand48",
    "lround",
    "lseek",
    "max",
    "memchr",
    "memcmp",
    "memcpy",
    "memmove",
    "memset",
    "min",
    "mkdir",
    "mktime",
    "mmap",
    "munmap",
    "nanosleep",
    "offsetof",
    "omp_get_max_threads",
    "omp_get_num_threads",
    "omp_get_thread_num",
    "omp_get_wtime",
    "omp_set_num_threads",
    "open",
    "pclose",
    "popen",
    "pow",
    "powf",
    "puts",
    "qsort",
    "raise",
    "rand",
    "rand_r",
    "random",
    "read",
    "remove",
    "rename",
    "rewind",
    "rint",
    "round",
    "scanf",
    "sched_yield",
    "setbuf",
    "setenv",
    "setvbuf",
    "sigaction",
    "signal",
    "sin",
    "sinf",
    "sinh",
    "sizeof",
    "sleep",
    "sqrt",
    "sqrtf",
    "srand48",
    "srandom",
    "sscanf",
    "stat",
    "static_assert",
    "strcasecmp",
    "strcat",
    "strchr",
    "strcpy",
    "strcspn",
    "strdup",
    "strerror",
    "strftime",
    "strlen",
    "strncasecmp",
    "strncat",
    "strncpy",
    "strndup",
    "strpbrk",
    "strrchr",
    "strspn",
    "strstr",
    "strtof",
    "strtok",
    "strtok_r",
    "strtoll",
    "strtoull",
    "sysconf",
    "system",
    "tan",
    "tanh",
    "tgamma",
    "times",
    "tmpfile",
    "tolower",
    "toupper",
    "trunc",
    "ungetc",
    "unlink",
    "unsetenv",
    "usleep",
    "va_arg",
    "va_end",
    "va_start",
    "vfprintf",
    "vprintf",
    "vsnprintf",
    "write",
];

/// Functions that end the program.
pub const ENDING: [&str; 5] = ["exit", "_exit", "abort", "MPI_Abort", "_Exit"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_known_by_their_kind() {
        assert_eq!(kind("MPI_Isend"), Some(Ok(Kind::Send { request: Some(6) })));
        assert_eq!(kind("MPI_Comm_split"), Some(Ok(Kind::Local)));
        assert_eq!(kind("MPI_Put"), Some(Err(())));
        assert_eq!(kind("MPI_Initx"), Some(Err(())));
        assert_eq!(kind("compute"), None);
        for (name, only) in [("MPI_Isend", true), ("MPI_Recv", false), ("MPI_Reduce", true), ("MPI_Ibcast", false)] {
            assert_eq!(only_reads_first(name), only, "{name}");
        }
    }
}
