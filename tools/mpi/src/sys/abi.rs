//! The ABIs: how each is recognised, and its constants. The numbers are those of the headers that
//! MPICH 5.0.2 and Open MPI 5.0.11 install, and for the standard's those of MPI 5.0, chapter
//! "Application Binary Interface".

use std::ffi::{c_int, c_void};
use std::path::Path;

use super::functions::Raw;
use crate::error::Error;
use crate::level::Level;

/// How a library's functions are to be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Abi {
    /// MPICH's since 3.1 (`libmpi.so.12`, Debian's `libmpich.so.12`), shared by Intel MPI, MVAPICH,
    /// Cray MPICH, ParaStation MPI.
    Mpich,
    /// Open MPI's since 3.0 (`libmpi.so.40`).
    OpenMpi,
    /// The MPI standard's own, since MPI 5.0 (`libmpi_abi.so.*`).
    Standard,
}

impl std::fmt::Display for Abi {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Mpich => "MPICH's ABI",
            Self::OpenMpi => "Open MPI's ABI",
            Self::Standard => "the MPI standard's ABI",
        })
    }
}

impl Abi {
    /// The ABI that a library's SONAME promises; none for a library that is not an MPI's main one,
    /// or one of another ABI.
    pub fn of_soname(soname: &str) -> Option<Self> {
        let (name, version) = soname.split_once(".so.")?;
        let major = version.split('.').next()?;
        match (name, major) {
            ("libmpi_abi", _) => Some(Self::Standard),
            ("libmpi" | "libmpich", "12") => Some(Self::Mpich),
            // Cray's name tells the compiler too: libmpi_cray.so.12, libmpi_gnu_91.so.12.
            (other, "12") if other.starts_with("libmpi_cray") || other.starts_with("libmpi_gnu") => Some(Self::Mpich),
            ("libmpi", "40") => Some(Self::OpenMpi),
            _ => None,
        }
    }
}

/// A library's own word for its ABI, against which the SONAME is checked.
pub struct Symbols {
    /// Whether it defines `ompi_mpi_comm_world`, as only Open MPI's ABI does.
    pub ompi_world: bool,
    /// What `MPI_Abi_get_version` says; none if there is no such function. Libraries of other ABIs
    /// than the standard's say -1.
    pub abi_version: Option<(c_int, c_int)>,
}

/// Decides by both SONAME and symbols.
///
/// # Errors
/// If they disagree, or the ABI is of a version that is not known.
pub fn recognise(library: &Path, soname: &str, symbols: &Symbols) -> Result<Abi, Error> {
    let refuse = |cause: String| Err(Error::Unknown { library: library.to_owned(), cause });
    match (Abi::of_soname(soname), symbols) {
        (None, _) => refuse(format!(
            "its SONAME is {soname}, not that of an MPI known here (libmpi.so.12, libmpich.so.12, libmpi.so.40, libmpi_abi.so)"
        )),
        (Some(Abi::Standard), Symbols { abi_version: Some((1, _)), .. }) => Ok(Abi::Standard),
        (Some(Abi::Standard), Symbols { abi_version: Some((major, minor)), .. }) => {
            refuse(format!("its ABI is version {major}.{minor} of the MPI standard's, known here is version 1"))
        }
        (Some(Abi::Standard), _) => {
            refuse("named as of the MPI standard's ABI, but without MPI_Abi_get_version".into())
        }
        (Some(Abi::OpenMpi), Symbols { ompi_world: true, .. }) => Ok(Abi::OpenMpi),
        (Some(Abi::OpenMpi), _) => refuse("named as Open MPI's library, but without ompi_mpi_comm_world".into()),
        (Some(Abi::Mpich), Symbols { ompi_world: false, .. }) => Ok(Abi::Mpich),
        (Some(Abi::Mpich), _) => refuse("named as MPICH's library, but with Open MPI's ompi_mpi_comm_world".into()),
    }
}

/// `MPI_THREAD_SINGLE` to `MPI_THREAD_MULTIPLE`, which rise in every ABI.
#[derive(Clone, Copy)]
pub struct Levels([c_int; 4]);

impl Levels {
    /// As MPI takes it.
    pub fn of(self, level: Level) -> c_int {
        self.0[level as usize]
    }

    /// The level that a library which answered this number gives: no more than it promises.
    pub fn given(self, provided: c_int) -> Level {
        let promised = |level: &Level| self.of(*level) <= provided;
        Level::ALL.into_iter().rfind(promised).unwrap_or(Level::Single)
    }
}

/// The constants of an ABI whose handles are `H`.
pub struct Constants<H> {
    pub world: H,
    pub comm_null: H,
    pub byte: H,
    pub double: H,
    pub int64: H,
    pub sum: H,
    pub min: H,
    pub max: H,
    pub info_null: H,
    pub request_null: H,
    pub errors_return: H,
    pub any_source: c_int,
    pub any_tag: c_int,
    pub undefined: c_int,
    pub shared: c_int,
    /// `MPI_LOCK_EXCLUSIVE`.
    pub lock_exclusive: c_int,
    pub levels: Levels,
    pub in_status: c_int,
    /// Bytes of an `MPI_Status`.
    pub status_bytes: usize,
    /// Where in it, in `int`s, `MPI_SOURCE` is; `MPI_TAG` and `MPI_ERROR` follow.
    pub source_at: usize,
}

/// MPICH's: integers whose high bits tell the kind of object.
pub const MPICH: Constants<c_int> = Constants {
    world: 0x4400_0000,
    comm_null: 0x0400_0000,
    byte: 0x4c00_010d,
    double: 0x4c00_080b,
    int64: 0x4c00_083a,
    sum: 0x5800_0003,
    min: 0x5800_0002,
    max: 0x5800_0001,
    info_null: 0x1c00_0000,
    request_null: 0x2c00_0000,
    errors_return: 0x5400_0001,
    any_source: -2,
    any_tag: -1,
    undefined: -32766,
    shared: 1,
    lock_exclusive: 234,
    levels: Levels([0, 1, 2, 3]),
    in_status: 17,
    status_bytes: 20,
    source_at: 2,
};

/// The standard's: small integers in the place of pointers.
pub fn standard() -> Constants<*mut c_void> {
    let handle = std::ptr::without_provenance_mut::<c_void>;
    Constants {
        world: handle(0x101),
        comm_null: handle(0x100),
        byte: handle(0x247),
        double: handle(0x214),
        int64: handle(0x258),
        sum: handle(0x21),
        min: handle(0x22),
        max: handle(0x23),
        info_null: handle(0x130),
        request_null: handle(0x180),
        errors_return: handle(0x143),
        any_source: -1,
        any_tag: -2,
        undefined: -32766,
        shared: 221,
        lock_exclusive: 301,
        levels: Levels([0, 1024, 2048, 4096]),
        in_status: 19,
        status_bytes: 32,
        source_at: 0,
    }
}

/// Open MPI's: addresses of objects in the library, which `find` gives by name.
///
/// # Errors
/// What `find` says if there is no such object.
pub fn open_mpi<E>(find: impl Fn(&'static str) -> Result<*mut c_void, E>) -> Result<Constants<*mut c_void>, E> {
    Ok(Constants {
        world: find("ompi_mpi_comm_world")?,
        comm_null: find("ompi_mpi_comm_null")?,
        byte: find("ompi_mpi_byte")?,
        double: find("ompi_mpi_double")?,
        int64: find("ompi_mpi_int64_t")?,
        sum: find("ompi_mpi_op_sum")?,
        min: find("ompi_mpi_op_min")?,
        max: find("ompi_mpi_op_max")?,
        info_null: find("ompi_mpi_info_null")?,
        request_null: find("ompi_request_null")?,
        errors_return: find("ompi_mpi_errors_return")?,
        any_source: -1,
        any_tag: -1,
        undefined: -32766,
        shared: 0,
        lock_exclusive: 1,
        levels: Levels([0, 1, 2, 3]),
        in_status: 18,
        status_bytes: 24,
        source_at: 0,
    })
}

impl<H: Raw> Constants<H> {
    /// The operation of a reduction.
    pub fn operation(&self, reduction: crate::Reduction) -> H {
        match reduction {
            crate::Reduction::Sum => self.sum,
            crate::Reduction::Min => self.min,
            crate::Reduction::Max => self.max,
        }
    }
}
