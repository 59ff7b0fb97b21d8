! The module `mpi` as far as the kernels need it, over the C library of MPICH 5: its wheels bring no Fortran. Handles are integers there, and numbers are
! those of its mpi.h; the ABI of MPICH has had them since 3.1.
module mpi
  use, intrinsic :: iso_c_binding, only: c_double, c_int, c_ptr, c_intptr_t, c_null_ptr
  implicit none
  private :: c_double, c_int, c_ptr, c_intptr_t, c_null_ptr
  integer(c_int), parameter :: MPI_COMM_WORLD = int(z'44000000', c_int), MPI_DOUBLE_PRECISION = int(z'4c00080b', c_int)
  integer(c_int), parameter :: MPI_INTEGER = int(z'4c000405', c_int)
  integer(c_int), parameter :: MPI_MAX = int(z'58000001', c_int), MPI_SUM = int(z'58000003', c_int)
  integer(c_int), parameter :: MPI_REQUEST_NULL = int(z'2c000000', c_int), MPI_PROC_NULL = -1, MPI_ANY_SOURCE = -2
  ! Statuses are not looked at: MPICH's address for that is 1.
  integer(c_intptr_t), parameter :: MPI_STATUS_IGNORE = 1, MPI_STATUSES_IGNORE = 1

  interface
    integer(c_int) function c_init(argc, argv) bind(c, name='MPI_Init')
      import :: c_int, c_ptr
      type(c_ptr), value :: argc, argv
    end function c_init
    integer(c_int) function c_finalize() bind(c, name='MPI_Finalize')
      import :: c_int
    end function c_finalize
    integer(c_int) function c_abort(comm, code) bind(c, name='MPI_Abort')
      import :: c_int
      integer(c_int), value :: comm, code
    end function c_abort
    real(c_double) function MPI_Wtime() bind(c, name='MPI_Wtime')
      import :: c_double
    end function MPI_Wtime
    integer(c_int) function c_rank(comm, rank) bind(c, name='MPI_Comm_rank')
      import :: c_int
      integer(c_int), value :: comm
      integer(c_int) :: rank
    end function c_rank
    integer(c_int) function c_size(comm, ranks) bind(c, name='MPI_Comm_size')
      import :: c_int
      integer(c_int), value :: comm
      integer(c_int) :: ranks
    end function c_size
    integer(c_int) function c_barrier(comm) bind(c, name='MPI_Barrier')
      import :: c_int
      integer(c_int), value :: comm
    end function c_barrier
    integer(c_int) function c_bcast(buffer, count, kind, root, comm) bind(c, name='MPI_Bcast')
      import :: c_int
      type(*) :: buffer(*)
      integer(c_int), value :: count, kind, root, comm
    end function c_bcast
    integer(c_int) function c_reduce(from, to, count, kind, op, root, comm) bind(c, name='MPI_Reduce')
      import :: c_int
      type(*) :: from(*), to(*)
      integer(c_int), value :: count, kind, op, root, comm
    end function c_reduce
    integer(c_int) function c_allreduce(from, to, count, kind, op, comm) bind(c, name='MPI_Allreduce')
      import :: c_int
      type(*) :: from(*), to(*)
      integer(c_int), value :: count, kind, op, comm
    end function c_allreduce
    integer(c_int) function c_allgather(from, count, kind, to, to_count, to_kind, comm) bind(c, name='MPI_Allgather')
      import :: c_int
      type(*) :: from(*), to(*)
      integer(c_int), value :: count, kind, to_count, to_kind, comm
    end function c_allgather
    integer(c_int) function c_send(buffer, count, kind, to, tag, comm) bind(c, name='MPI_Send')
      import :: c_int
      type(*) :: buffer(*)
      integer(c_int), value :: count, kind, to, tag, comm
    end function c_send
    integer(c_int) function c_recv(buffer, count, kind, from, tag, comm, status) bind(c, name='MPI_Recv')
      import :: c_int, c_intptr_t
      type(*) :: buffer(*)
      integer(c_int), value :: count, kind, from, tag, comm
      integer(c_intptr_t), value :: status
    end function c_recv
    integer(c_int) function c_isend(buffer, count, kind, to, tag, comm, request) bind(c, name='MPI_Isend')
      import :: c_int
      type(*) :: buffer(*)
      integer(c_int), value :: count, kind, to, tag, comm
      integer(c_int) :: request
    end function c_isend
    integer(c_int) function c_irecv(buffer, count, kind, from, tag, comm, request) bind(c, name='MPI_Irecv')
      import :: c_int
      type(*) :: buffer(*)
      integer(c_int), value :: count, kind, from, tag, comm
      integer(c_int) :: request
    end function c_irecv
    integer(c_int) function c_wait(request, status) bind(c, name='MPI_Wait')
      import :: c_int, c_intptr_t
      integer(c_int) :: request
      integer(c_intptr_t), value :: status
    end function c_wait
    integer(c_int) function c_waitall(count, requests, statuses) bind(c, name='MPI_Waitall')
      import :: c_int, c_intptr_t
      integer(c_int), value :: count
      integer(c_int) :: requests(*)
      integer(c_intptr_t), value :: statuses
    end function c_waitall
  end interface

contains

  subroutine MPI_Init(ierror)
    integer, intent(out) :: ierror
    ierror = c_init(c_null_ptr, c_null_ptr)
  end subroutine MPI_Init

  subroutine MPI_Finalize(ierror)
    integer, intent(out) :: ierror
    ierror = c_finalize()
  end subroutine MPI_Finalize

  subroutine MPI_Abort(comm, code, ierror)
    integer, intent(in) :: comm, code
    integer, intent(out) :: ierror
    ierror = c_abort(comm, code)
  end subroutine MPI_Abort

  subroutine MPI_Comm_rank(comm, rank, ierror)
    integer, intent(in) :: comm
    integer, intent(out) :: rank, ierror
    ierror = c_rank(comm, rank)
  end subroutine MPI_Comm_rank

  subroutine MPI_Comm_size(comm, ranks, ierror)
    integer, intent(in) :: comm
    integer, intent(out) :: ranks, ierror
    ierror = c_size(comm, ranks)
  end subroutine MPI_Comm_size

  subroutine MPI_Barrier(comm, ierror)
    integer, intent(in) :: comm
    integer, intent(out) :: ierror
    ierror = c_barrier(comm)
  end subroutine MPI_Barrier

  subroutine MPI_Bcast(buffer, count, kind, root, comm, ierror)
    type(*) :: buffer(*)
    integer, intent(in) :: count, kind, root, comm
    integer, intent(out) :: ierror
    ierror = c_bcast(buffer, count, kind, root, comm)
  end subroutine MPI_Bcast

  subroutine MPI_Reduce(from, to, count, kind, op, root, comm, ierror)
    type(*) :: from(*), to(*)
    integer, intent(in) :: count, kind, op, root, comm
    integer, intent(out) :: ierror
    ierror = c_reduce(from, to, count, kind, op, root, comm)
  end subroutine MPI_Reduce

  subroutine MPI_Allreduce(from, to, count, kind, op, comm, ierror)
    type(*) :: from(*), to(*)
    integer, intent(in) :: count, kind, op, comm
    integer, intent(out) :: ierror
    ierror = c_allreduce(from, to, count, kind, op, comm)
  end subroutine MPI_Allreduce

  subroutine MPI_Allgather(from, count, kind, to, to_count, to_kind, comm, ierror)
    type(*) :: from(*), to(*)
    integer, intent(in) :: count, kind, to_count, to_kind, comm
    integer, intent(out) :: ierror
    ierror = c_allgather(from, count, kind, to, to_count, to_kind, comm)
  end subroutine MPI_Allgather

  subroutine MPI_Send(buffer, count, kind, to, tag, comm, ierror)
    type(*) :: buffer(*)
    integer, intent(in) :: count, kind, to, tag, comm
    integer, intent(out) :: ierror
    ierror = c_send(buffer, count, kind, to, tag, comm)
  end subroutine MPI_Send

  subroutine MPI_Recv(buffer, count, kind, from, tag, comm, status, ierror)
    type(*) :: buffer(*)
    integer, intent(in) :: count, kind, from, tag, comm
    integer(c_intptr_t), intent(in) :: status
    integer, intent(out) :: ierror
    ierror = c_recv(buffer, count, kind, from, tag, comm, status)
  end subroutine MPI_Recv

  subroutine MPI_Isend(buffer, count, kind, to, tag, comm, request, ierror)
    type(*) :: buffer(*)
    integer, intent(in) :: count, kind, to, tag, comm
    integer, intent(out) :: request, ierror
    ierror = c_isend(buffer, count, kind, to, tag, comm, request)
  end subroutine MPI_Isend

  subroutine MPI_Irecv(buffer, count, kind, from, tag, comm, request, ierror)
    type(*) :: buffer(*)
    integer, intent(in) :: count, kind, from, tag, comm
    integer, intent(out) :: request, ierror
    ierror = c_irecv(buffer, count, kind, from, tag, comm, request)
  end subroutine MPI_Irecv

  subroutine MPI_Wait(request, status, ierror)
    integer, intent(inout) :: request
    integer(c_intptr_t), intent(in) :: status
    integer, intent(out) :: ierror
    ierror = c_wait(request, status)
  end subroutine MPI_Wait

  subroutine MPI_Waitall(count, requests, statuses, ierror)
    integer, intent(in) :: count
    integer, intent(inout) :: requests(count)
    integer(c_intptr_t), intent(in) :: statuses
    integer, intent(out) :: ierror
    ierror = c_waitall(count, requests, statuses)
  end subroutine MPI_Waitall
end module mpi
