//! The MPI functions that are called, as one table. Only the type of a handle differs between ABIs:
//! `int` in MPICH's, a pointer in Open MPI's and the standard's.

use std::ffi::{c_char, c_double, c_int, c_void};

/// A status in any ABI: MPICH's is 20 bytes, Open MPI's 24, the standard's 32.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug)]
pub struct RawStatus(pub [c_int; 8]);

impl RawStatus {
    /// Nothing known yet.
    pub const EMPTY: Self = Self([0; 8]);
}

/// A handle as it is kept here, wide enough for every ABI.
///
/// A pointer, so that Open MPI's handles keep their provenance, and so that what holds one stays on
/// its thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle(pub *mut c_void);

/// `MPI_Aint`: wide enough for an address, in every ABI.
pub type Aint = isize;

/// The type of a handle in one ABI.
pub trait Raw: Copy + Eq {
    /// From what is kept.
    fn of(handle: Handle) -> Self;
    /// To what is kept.
    fn keep(self) -> Handle;
}

impl Raw for c_int {
    fn of(handle: Handle) -> Self {
        // The low half: `keep` put a `c_int` in.
        handle.0.addr() as Self
    }

    fn keep(self) -> Handle {
        Handle(std::ptr::without_provenance_mut(self.cast_unsigned() as usize))
    }
}

impl Raw for *mut c_void {
    fn of(handle: Handle) -> Self {
        handle.0
    }

    fn keep(self) -> Handle {
        Handle(self)
    }
}

/// Declares [`Functions`]: for each function its field, its name in the library, and its type.
macro_rules! functions {
    ($($field:ident = $name:literal ($($argument:ty),* $(,)?) -> $result:ty;)*) => {
        /// Pointers to the functions of a library whose handles are `H`.
        pub struct Functions<H> {
            $(#[doc = $name] pub $field: unsafe extern "C" fn($($argument),*) -> $result,)*
        }

        impl<H> Functions<H> {
            /// Resolves them all by `find`, which gives the address of a function or says that
            /// there is none.
            ///
            /// # Safety
            /// `find` must give addresses of functions of an MPI library that has handles of type
            /// `H`.
            pub unsafe fn resolve<E>(find: impl Fn(&'static str) -> Result<*mut c_void, E>) -> Result<Self, E> {
                Ok(Self {
                    $($field: {
                        let address = find($name)?;
                        // SAFETY: the caller promises that this is the MPI function of that name,
                        // whose type the MPI standard gives; pointers to functions and to data have
                        // one size here.
                        unsafe {
                            std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) -> $result>(address)
                        }
                    },)*
                })
            }
        }
    };
}

functions! {
    abort = "MPI_Abort" (H, c_int) -> c_int;
    accumulate = "MPI_Accumulate" (*const c_void, c_int, H, c_int, Aint, c_int, H, H, H) -> c_int;
    allgather = "MPI_Allgather" (*const c_void, c_int, H, *mut c_void, c_int, H, H) -> c_int;
    allgatherv = "MPI_Allgatherv"
        (*const c_void, c_int, H, *mut c_void, *const c_int, *const c_int, H, H) -> c_int;
    allreduce = "MPI_Allreduce" (*const c_void, *mut c_void, c_int, H, H, H) -> c_int;
    alltoall = "MPI_Alltoall" (*const c_void, c_int, H, *mut c_void, c_int, H, H) -> c_int;
    alltoallv = "MPI_Alltoallv"
        (*const c_void, *const c_int, *const c_int, H, *mut c_void, *const c_int, *const c_int, H, H) -> c_int;
    barrier = "MPI_Barrier" (H) -> c_int;
    bcast = "MPI_Bcast" (*mut c_void, c_int, H, c_int, H) -> c_int;
    cancel = "MPI_Cancel" (*mut H) -> c_int;
    comm_dup = "MPI_Comm_dup" (H, *mut H) -> c_int;
    comm_free = "MPI_Comm_free" (*mut H) -> c_int;
    comm_rank = "MPI_Comm_rank" (H, *mut c_int) -> c_int;
    comm_set_errhandler = "MPI_Comm_set_errhandler" (H, H) -> c_int;
    comm_size = "MPI_Comm_size" (H, *mut c_int) -> c_int;
    comm_split = "MPI_Comm_split" (H, c_int, c_int, *mut H) -> c_int;
    comm_split_type = "MPI_Comm_split_type" (H, c_int, c_int, H, *mut H) -> c_int;
    error_class = "MPI_Error_class" (c_int, *mut c_int) -> c_int;
    error_string = "MPI_Error_string" (c_int, *mut c_char, *mut c_int) -> c_int;
    exscan = "MPI_Exscan" (*const c_void, *mut c_void, c_int, H, H, H) -> c_int;
    fetch_and_op = "MPI_Fetch_and_op" (*const c_void, *mut c_void, H, c_int, Aint, H, H) -> c_int;
    finalize = "MPI_Finalize" () -> c_int;
    gather = "MPI_Gather" (*const c_void, c_int, H, *mut c_void, c_int, H, c_int, H) -> c_int;
    gatherv = "MPI_Gatherv"
        (*const c_void, c_int, H, *mut c_void, *const c_int, *const c_int, H, c_int, H) -> c_int;
    get = "MPI_Get" (*mut c_void, c_int, H, c_int, Aint, c_int, H, H) -> c_int;
    get_count = "MPI_Get_count" (*const RawStatus, H, *mut c_int) -> c_int;
    get_library_version = "MPI_Get_library_version" (*mut c_char, *mut c_int) -> c_int;
    get_processor_name = "MPI_Get_processor_name" (*mut c_char, *mut c_int) -> c_int;
    get_version = "MPI_Get_version" (*mut c_int, *mut c_int) -> c_int;
    iallreduce = "MPI_Iallreduce" (*const c_void, *mut c_void, c_int, H, H, H, *mut H) -> c_int;
    ibarrier = "MPI_Ibarrier" (H, *mut H) -> c_int;
    init_thread = "MPI_Init_thread" (*mut c_int, *mut *mut *mut c_char, c_int, *mut c_int) -> c_int;
    initialized = "MPI_Initialized" (*mut c_int) -> c_int;
    iprobe = "MPI_Iprobe" (c_int, c_int, H, *mut c_int, *mut RawStatus) -> c_int;
    irecv = "MPI_Irecv" (*mut c_void, c_int, H, c_int, c_int, H, *mut H) -> c_int;
    isend = "MPI_Isend" (*const c_void, c_int, H, c_int, c_int, H, *mut H) -> c_int;
    probe = "MPI_Probe" (c_int, c_int, H, *mut RawStatus) -> c_int;
    put = "MPI_Put" (*const c_void, c_int, H, c_int, Aint, c_int, H, H) -> c_int;
    recv = "MPI_Recv" (*mut c_void, c_int, H, c_int, c_int, H, *mut RawStatus) -> c_int;
    recv_init = "MPI_Recv_init" (*mut c_void, c_int, H, c_int, c_int, H, *mut H) -> c_int;
    reduce = "MPI_Reduce" (*const c_void, *mut c_void, c_int, H, H, c_int, H) -> c_int;
    reduce_scatter = "MPI_Reduce_scatter" (*const c_void, *mut c_void, *const c_int, H, H, H) -> c_int;
    request_free = "MPI_Request_free" (*mut H) -> c_int;
    scan = "MPI_Scan" (*const c_void, *mut c_void, c_int, H, H, H) -> c_int;
    scatter = "MPI_Scatter" (*const c_void, c_int, H, *mut c_void, c_int, H, c_int, H) -> c_int;
    scatterv = "MPI_Scatterv"
        (*const c_void, *const c_int, *const c_int, H, *mut c_void, c_int, H, c_int, H) -> c_int;
    send = "MPI_Send" (*const c_void, c_int, H, c_int, c_int, H) -> c_int;
    send_init = "MPI_Send_init" (*const c_void, c_int, H, c_int, c_int, H, *mut H) -> c_int;
    sendrecv = "MPI_Sendrecv"
        (*const c_void, c_int, H, c_int, c_int, *mut c_void, c_int, H, c_int, c_int, H, *mut RawStatus) -> c_int;
    startall = "MPI_Startall" (c_int, *mut H) -> c_int;
    test = "MPI_Test" (*mut H, *mut c_int, *mut RawStatus) -> c_int;
    testall = "MPI_Testall" (c_int, *mut H, *mut c_int, *mut RawStatus) -> c_int;
    testsome = "MPI_Testsome" (c_int, *mut H, *mut c_int, *mut c_int, *mut RawStatus) -> c_int;
    wait = "MPI_Wait" (*mut H, *mut RawStatus) -> c_int;
    waitall = "MPI_Waitall" (c_int, *mut H, *mut RawStatus) -> c_int;
    waitany = "MPI_Waitany" (c_int, *mut H, *mut c_int, *mut RawStatus) -> c_int;
    win_allocate = "MPI_Win_allocate" (Aint, c_int, H, H, *mut c_void, *mut H) -> c_int;
    win_fence = "MPI_Win_fence" (c_int, H) -> c_int;
    win_flush = "MPI_Win_flush" (c_int, H) -> c_int;
    win_free = "MPI_Win_free" (*mut H) -> c_int;
    win_lock = "MPI_Win_lock" (c_int, c_int, c_int, H) -> c_int;
    win_lock_all = "MPI_Win_lock_all" (c_int, H) -> c_int;
    win_set_errhandler = "MPI_Win_set_errhandler" (H, H) -> c_int;
    win_sync = "MPI_Win_sync" (H) -> c_int;
    win_unlock = "MPI_Win_unlock" (c_int, H) -> c_int;
    win_unlock_all = "MPI_Win_unlock_all" (H) -> c_int;
    wtime = "MPI_Wtime" () -> c_double;
}
