! What the simulated CFD applications BT and SP of the NAS Parallel Benchmarks share, by MPI: how the cube is dealt out, faces, and solving along lines.
!
! The cube is dealt out in multi-partitions: q*q processes have q pieces each, one in every slab of each direction, so that all work at
! each stage of a solve, and the next piece of all of a process's pieces is always the same process's. A step sends six messages with
! the faces of all pieces, and for each direction of solving q-1 forward with the end of the elimination and q-1 back with the beginning
! of the solution: few messages, long ones from class A on, none blocking.
module nas_multi
  use mpi
  use nas_cfd
  implicit none
  private
  public :: pieces, deal_out, all_forcings, all_initial_values, all_right_hand_sides, surround, solve

  ! Tags: what comes forward and back in a direction, and faces from before and behind.
  integer, parameter :: TAG_FORWARD = 10, TAG_BACK = 20, TAG_BEFORE = 30, TAG_BEHIND = 40

  type(piece), allocatable :: pieces(:)
  ! In each direction, which of my pieces is in which slab; whose pieces are before and behind mine.
  integer, allocatable :: in_slab(:, :)
  integer :: before(3), behind(3), q, points_of_a_line
  real(dp), allocatable :: faces_out(:, :), faces_in(:, :)

  abstract interface
    ! A stage of solving along the lines of direction k through one piece: what came of each line, and what goes on.
    subroutine stage(k, c, rows_in, rows_out)
      import :: dp
      integer, intent(in) :: k, c
      real(dp), intent(in) :: rows_in(:, :)
      real(dp), intent(inout) :: rows_out(:, :)
    end subroutine stage
  end interface

contains

  ! Process (i, j) has in slab c of z the piece at i+c of x and j-c of y, in a ring.
  subroutine deal_out(program, n)
    character(*), intent(in) :: program
    integer, intent(in) :: n
    integer :: c, i, j, k, place(3), from(3), extent(3), most, ranks, rank, ierror
    call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)
    call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierror)
    points_of_a_line = n
    q = nint(sqrt(real(ranks)))
    if (q * q /= ranks) call give_up(program//': 1, 4, 9 or another square number of processes is wanted')
    if (n / q < AROUND + 1) call give_up(program//': too many processes for so few points')
    i = mod(rank, q)
    j = rank / q
    allocate (pieces(q), in_slab(q, 3))
    do c = 0, q - 1
      place = [modulo(i + c, q), modulo(j - c, q), c]
      do k = 1, 3
        in_slab(place(k) + 1, k) = c + 1
        from(k) = block_start(n, q, place(k))
        extent(k) = block_start(n, q, place(k) + 1) - from(k)
      end do
      pieces(c + 1) = new_piece(from, extent)
    end do
    behind = [process(i + 1, j), process(i, j + 1), process(i - 1, j + 1)]
    before = [process(i - 1, j), process(i, j - 1), process(i + 1, j - 1)]
    most = 5 * AROUND * q * (n / q + 1)**2
    allocate (faces_out(most, 6), faces_in(most, 6))
  end subroutine deal_out

  pure integer function process(i, j)
    integer, intent(in) :: i, j
    process = modulo(i, q) + q * modulo(j, q)
  end function process

  subroutine all_forcings()
    integer :: c
    do c = 1, q
      call make_forcing(points_of_a_line, pieces(c))
    end do
  end subroutine all_forcings

  subroutine all_initial_values()
    integer :: c
    do c = 1, q
      call initial_values(points_of_a_line, pieces(c))
    end do
  end subroutine all_initial_values

  subroutine all_right_hand_sides()
    integer :: c
    do c = 1, q
      call right_hand_side(points_of_a_line, pieces(c))
    end do
  end subroutine all_right_hand_sides

  ! Two layers from the six processes around; all six at once.
  subroutine surround()
    integer :: requests(12), k, sent(6), come(6), ierror
    if (q == 1) return
    do k = 1, 3
      call pack_slabs(k, .true., faces_out(:, 2 * k - 1), sent(2 * k - 1))
      call pack_slabs(k, .false., faces_out(:, 2 * k), sent(2 * k))
      come(2 * k - 1) = size_of_faces(k, 2, q)
      come(2 * k) = size_of_faces(k, 1, q - 1)
    end do
    call into_mpi()
    do k = 1, 3
      call MPI_Irecv(faces_in(:, 2 * k - 1), come(2 * k - 1), MPI_DOUBLE_PRECISION, before(k), TAG_BEFORE + k, MPI_COMM_WORLD, &
                     requests(2 * k - 1), ierror)
      call MPI_Irecv(faces_in(:, 2 * k), come(2 * k), MPI_DOUBLE_PRECISION, behind(k), TAG_BEHIND + k, MPI_COMM_WORLD, &
                     requests(2 * k), ierror)
    end do
    do k = 1, 3
      ! I am before who is behind me.
      call MPI_Isend(faces_out(:, 2 * k - 1), sent(2 * k - 1), MPI_DOUBLE_PRECISION, behind(k), TAG_BEFORE + k, MPI_COMM_WORLD, &
                     requests(6 + 2 * k - 1), ierror)
      call MPI_Isend(faces_out(:, 2 * k), sent(2 * k), MPI_DOUBLE_PRECISION, before(k), TAG_BEHIND + k, MPI_COMM_WORLD, &
                     requests(6 + 2 * k), ierror)
    end do
    call MPI_Waitall(12, requests, MPI_STATUSES_IGNORE, ierror)
    call out_of_mpi()
    do k = 1, 3
      call received(come(2 * k - 1))
      call received(come(2 * k))
      call unpack_slabs(k, .true., faces_in(:, 2 * k - 1))
      call unpack_slabs(k, .false., faces_in(:, 2 * k))
    end do
  end subroutine surround

  ! Faces for who is behind me in direction k, or before me: of all my pieces that have something there, by their slabs of z.
  subroutine pack_slabs(k, to_behind, buffer, filled)
    integer, intent(in) :: k
    logical, intent(in) :: to_behind
    real(dp), intent(inout) :: buffer(:)
    integer, intent(out) :: filled
    integer :: c, last
    filled = 0
    do c = 1, q
      last = pieces(c)%extent(k) - 1
      if (to_behind .and. in_slab(q, k) /= c) call pack_face(pieces(c), k, last - AROUND + 1, last, pieces(c)%u, buffer, filled)
      if (.not. to_behind .and. in_slab(1, k) /= c) call pack_face(pieces(c), k, 0, AROUND - 1, pieces(c)%u, buffer, filled)
    end do
  end subroutine pack_slabs

  subroutine unpack_slabs(k, from_before, buffer)
    integer, intent(in) :: k
    logical, intent(in) :: from_before
    real(dp), intent(in) :: buffer(:)
    integer :: c, taken, extent
    taken = 0
    do c = 1, q
      extent = pieces(c)%extent(k)
      if (from_before .and. in_slab(1, k) /= c) call unpack_face(pieces(c), k, -AROUND, -1, pieces(c)%u, buffer, taken)
      if (.not. from_before .and. in_slab(q, k) /= c) &
        call unpack_face(pieces(c), k, extent, extent + AROUND - 1, pieces(c)%u, buffer, taken)
    end do
  end subroutine unpack_slabs

  ! Numbers in the faces of my pieces in these slabs of direction k.
  integer function size_of_faces(k, from, to)
    integer, intent(in) :: k, from, to
    integer :: s
    size_of_faces = 0
    do s = from, to
      associate (extent => pieces(in_slab(s, k))%extent)
        size_of_faces = size_of_faces + 5 * AROUND * product(extent) / extent(k)
      end associate
    end do
  end function size_of_faces

  ! Solves along all lines of direction k, through the slabs and back; of each line so many numbers go forward and back. What comes for
  ! the next stage is asked for before this one is done.
  subroutine solve(k, forward, back, eliminate, substitute)
    integer, intent(in) :: k, forward, back
    procedure(stage) :: eliminate, substitute
    real(dp), allocatable, save :: rows_in(:, :, :), rows_out(:, :), solved_in(:, :, :), solved_out(:, :)
    integer :: s, most, request_in, request_out
    most = (points_of_a_line / q + 1)**2
    if (.not. allocated(rows_in)) &
      allocate (rows_in(forward, most, 0:1), rows_out(forward, most), solved_in(back, most, 0:1), solved_out(back, most))
    request_in = MPI_REQUEST_NULL
    request_out = MPI_REQUEST_NULL
    rows_in(:, :, 1) = 0
    do s = 1, q
      call came(request_in, forward * lines_of(s, k))
      if (s < q) call expect(before(k), TAG_FORWARD + k, forward * lines_of(s + 1, k), rows_in(:, :, mod(s + 1, 2)), request_in)
      call finished(request_out)
      call eliminate(k, in_slab(s, k), rows_in(:, :, mod(s, 2)), rows_out)
      if (s < q) call put(behind(k), TAG_FORWARD + k, forward * lines_of(s, k), rows_out, request_out)
    end do
    solved_in(:, :, mod(q, 2)) = 0
    do s = q, 1, -1
      call came(request_in, back * lines_of(s, k))
      if (s > 1) call expect(behind(k), TAG_BACK + k, back * lines_of(s - 1, k), solved_in(:, :, mod(s - 1, 2)), request_in)
      call finished(request_out)
      call substitute(k, in_slab(s, k), solved_in(:, :, mod(s, 2)), solved_out)
      if (s > 1) call put(before(k), TAG_BACK + k, back * lines_of(s, k), solved_out, request_out)
    end do
    call finished(request_out)
  end subroutine solve

  ! Lines of direction k through my piece in this slab of it.
  integer function lines_of(s, k)
    integer, intent(in) :: s, k
    integer :: inner(3)
    inner = high(points_of_a_line, pieces(in_slab(s, k))) - low(pieces(in_slab(s, k))) + 1
    lines_of = product(inner) / inner(k)
  end function lines_of

  subroutine expect(from, tag, numbers, buffer, request)
    integer, intent(in) :: from, tag, numbers
    real(dp), intent(inout), contiguous :: buffer(:, :)
    integer, intent(out) :: request
    integer :: ierror
    call into_mpi()
    call MPI_Irecv(buffer, numbers, MPI_DOUBLE_PRECISION, from, tag, MPI_COMM_WORLD, request, ierror)
    call out_of_mpi()
  end subroutine expect

  subroutine came(request, numbers)
    integer, intent(inout) :: request
    integer, intent(in) :: numbers
    if (request == MPI_REQUEST_NULL) return
    call finished(request)
    call received(numbers)
  end subroutine came

  subroutine put(to, tag, numbers, buffer, request)
    integer, intent(in) :: to, tag, numbers
    real(dp), intent(in), contiguous :: buffer(:, :)
    integer, intent(out) :: request
    integer :: ierror
    call into_mpi()
    call MPI_Isend(buffer, numbers, MPI_DOUBLE_PRECISION, to, tag, MPI_COMM_WORLD, request, ierror)
    call out_of_mpi()
  end subroutine put

  subroutine finished(request)
    integer, intent(inout) :: request
    integer :: ierror
    if (request == MPI_REQUEST_NULL) return
    call into_mpi()
    call MPI_Wait(request, MPI_STATUS_IGNORE, ierror)
    call out_of_mpi()
  end subroutine finished
end module nas_multi
