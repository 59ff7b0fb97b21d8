! What the simulated CFD applications LU and SP of the NAS Parallel Benchmarks share: the equations, the grid, its pieces, norms, and what is told at the end.
! Written from their specification (Bailey and others, "The NAS Parallel Benchmarks", RNR-94-007, 1994, chapter 3; NAS-95-020, 1995); constants and published
! results are theirs. examples/bsp/nas has the same for BSPlib.
!
! Five conserved quantities (density, three momenta, energy) on n^3 points of the unit cube. The steady state sought is a known polynomial: a forcing term is made
! so that the discrete equations hold for it. Both start from the same interpolation of its boundary values and iterate on  du/dt = forcing + fluxes(u).
!
! Places are counted from 0. A process has one piece of the cube or several; each has two layers of its neighbours around it.
module nas_cfd
  use, intrinsic :: iso_fortran_env, only: dp => real64, error_unit, output_unit
  use mpi
  implicit none
  private
  public :: dp, piece, size_class, new_piece, in_piece, low, high, make_forcing, initial_values, right_hand_side, norms
  public :: pack_face, unpack_face
  public :: begin, into_mpi, out_of_mpi, received, class_of, is_as_published, tell, give_up, block_start, sum_up

  real(dp), parameter, public :: C1 = 1.4_dp, C2 = 0.4_dp, C34 = 0.1_dp, C15 = C1 * C1
  real(dp), parameter, public :: DISSIPATION = 0.25_dp, ONE_AT_SPEED = 4.0_dp / 3
  ! Second-difference coefficients of the three directions.
  real(dp), parameter, public :: DIFFUSION(3) = [0.75_dp, 0.75_dp, 1.0_dp]
  ! Layers around a piece.
  integer, parameter, public :: AROUND = 2
  real(dp), parameter :: ALLOWED = 1e-8_dp
  ! A message is long beyond so many bytes; what the kernels' messages are told by.
  integer, parameter :: SHORT_BYTES = 65536

  ! The five polynomials: a constant, then the powers 1 to 4 of x, y, z.
  real(dp), parameter :: POLYNOMIAL(13, 5) = reshape([ &
    2.0_dp, 0.0_dp, 0.0_dp, 4.0_dp, 5.0_dp, 3.0_dp, 0.5_dp, 0.02_dp, 0.01_dp, 0.03_dp, 0.5_dp, 0.4_dp, 0.3_dp, &
    1.0_dp, 0.0_dp, 0.0_dp, 0.0_dp, 1.0_dp, 2.0_dp, 3.0_dp, 0.01_dp, 0.03_dp, 0.02_dp, 0.4_dp, 0.3_dp, 0.5_dp, &
    2.0_dp, 2.0_dp, 0.0_dp, 0.0_dp, 0.0_dp, 2.0_dp, 3.0_dp, 0.04_dp, 0.03_dp, 0.05_dp, 0.3_dp, 0.5_dp, 0.4_dp, &
    2.0_dp, 2.0_dp, 0.0_dp, 0.0_dp, 0.0_dp, 2.0_dp, 3.0_dp, 0.03_dp, 0.05_dp, 0.04_dp, 0.2_dp, 0.1_dp, 0.3_dp, &
    5.0_dp, 4.0_dp, 3.0_dp, 2.0_dp, 0.1_dp, 0.4_dp, 0.3_dp, 0.05_dp, 0.04_dp, 0.03_dp, 0.1_dp, 0.3_dp, 0.2_dp], [13, 5])

  ! A box of points. A point's place in the arrays is origin + x*stride(1) + y*stride(2) + z*stride(3), x, y and z counted within the piece.
  type :: piece
    integer :: first(3), extent(3), stride(3), origin, points
    real(dp), allocatable :: u(:, :), rhs(:, :), forcing(:, :)
  end type piece

  ! A size of a benchmark, with what NAS publishes of it; `integral` is LU's, of the surface.
  type :: size_class
    character :: name
    integer :: n, steps
    real(dp) :: dt, residual(5), error(5), integral
  end type size_class

  ! Of this process: when communication began, its time so far, and messages that came.
  real(dp) :: since = 0, communication_s = 0
  real(dp) :: short_received = 0, long_received = 0

contains

  ! First of the points that `which` of `parts` has when n are dealt out in blocks.
  pure integer function block_start(n, parts, which)
    integer, intent(in) :: n, parts, which
    block_start = which * (n / parts) + min(which, mod(n, parts))
  end function block_start

  function new_piece(first, extent) result(p)
    integer, intent(in) :: first(3), extent(3)
    type(piece) :: p
    integer :: wide(3)
    wide = extent + 2 * AROUND
    p%first = first
    p%extent = extent
    p%stride = [1, wide(1), wide(1) * wide(2)]
    p%points = product(wide)
    p%origin = 1 + AROUND * sum(p%stride)
    allocate (p%u(5, p%points), p%rhs(5, p%points), p%forcing(5, p%points))
    p%u = 0
    p%rhs = 0
    p%forcing = 0
  end function new_piece

  pure integer function in_piece(p, x, y, z)
    type(piece), intent(in) :: p
    integer, intent(in) :: x, y, z
    in_piece = p%origin + x + y * p%stride(2) + z * p%stride(3)
  end function in_piece

  ! The first and the last point of a piece, in each direction, that are inside the cube and not of its surface.
  pure function low(p)
    type(piece), intent(in) :: p
    integer :: low(3)
    low = max(0, 1 - p%first)
  end function low

  pure function high(n, p)
    integer, intent(in) :: n
    type(piece), intent(in) :: p
    integer :: high(3)
    high = min(p%extent - 1, n - 2 - p%first)
  end function high

  pure function exact(n, place)
    integer, intent(in) :: n, place(3)
    real(dp) :: exact(5), at(3)
    integer :: m, k
    at = real(place, dp) / (n - 1)
    do m = 1, 5
      exact(m) = POLYNOMIAL(1, m)
      do k = 1, 3
        exact(m) = exact(m) + at(k) * (POLYNOMIAL(1 + k, m) + at(k) * (POLYNOMIAL(4 + k, m) &
                   + at(k) * (POLYNOMIAL(7 + k, m) + at(k) * POLYNOMIAL(10 + k, m))))
      end do
    end do
  end function exact

  ! What the six faces' exact values give when blended; on the surface the exact values.
  pure function blended(n, place) result(u)
    integer, intent(in) :: n, place(3)
    real(dp) :: u(5), part(5, 3), share
    integer :: k, face(3)
    if (any(place == 0) .or. any(place == n - 1)) then
      u = exact(n, place)
      return
    end if
    do k = 1, 3
      share = real(place(k), dp) / (n - 1)
      face = place
      face(k) = n - 1
      part(:, k) = share * exact(n, face)
      face(k) = 0
      part(:, k) = part(:, k) + (1 - share) * exact(n, face)
    end do
    u = sum(part, 2) - part(:, 1) * part(:, 2) - part(:, 1) * part(:, 3) - part(:, 2) * part(:, 3) + product(part, 2)
  end function blended

  ! The forcing is what makes the exact solution stand still; it is known everywhere without asking the neighbours.
  subroutine make_forcing(n, p)
    integer, intent(in) :: n
    type(piece), intent(inout) :: p
    integer :: x, y, z, place(3)
    do z = -AROUND, p%extent(3) + AROUND - 1
      do y = -AROUND, p%extent(2) + AROUND - 1
        do x = -AROUND, p%extent(1) + AROUND - 1
          place = p%first + [x, y, z]
          if (all(place >= 0) .and. all(place < n)) p%u(:, in_piece(p, x, y, z)) = exact(n, place)
        end do
      end do
    end do
    p%forcing = 0
    call add_fluxes(n, p, p%forcing)
    p%forcing = -p%forcing
  end subroutine make_forcing

  subroutine initial_values(n, p)
    integer, intent(in) :: n
    type(piece), intent(inout) :: p
    integer :: x, y, z, place(3)
    do z = -AROUND, p%extent(3) + AROUND - 1
      do y = -AROUND, p%extent(2) + AROUND - 1
        do x = -AROUND, p%extent(1) + AROUND - 1
          place = p%first + [x, y, z]
          if (all(place >= 0) .and. all(place < n)) p%u(:, in_piece(p, x, y, z)) = blended(n, place)
        end do
      end do
    end do
  end subroutine initial_values

  subroutine right_hand_side(n, p)
    integer, intent(in) :: n
    type(piece), intent(inout) :: p
    p%rhs = p%forcing
    call add_fluxes(n, p, p%rhs)
  end subroutine right_hand_side

  ! Adds the fluxes of all three directions at the inner points.
  subroutine add_fluxes(n, p, out)
    integer, intent(in) :: n
    type(piece), intent(in) :: p
    real(dp), intent(inout) :: out(5, p%points)
    integer :: k, inner, outer, i, j, from(3), to(3)
    from = low(p)
    to = high(n, p)
    do k = 1, 3
      inner = merge(2, 1, k == 1)
      outer = merge(2, 3, k == 3)
      do j = from(outer), to(outer)
        do i = from(inner), to(inner)
          call add_line(k, n, p%first(k), from(k), to(k), p%origin + i * p%stride(inner) + j * p%stride(outer), p%stride(k), &
                        p%points, p%u, out)
        end do
      end do
    end do
  end subroutine add_fluxes

  ! What direction k contributes to du/dt at points from..to of a line: convection by central differences, viscosity, fourth-order dissipation.
  subroutine add_line(k, n, first, from, to, base, step, points, u, out)
    integer, intent(in) :: k, n, first, from, to, base, step, points
    real(dp), intent(in) :: u(5, points)
    real(dp), intent(inout) :: out(5, points)
    real(dp) :: t1, t2, v(3, 3), square(3), pressure(3), energy(3), flux(5), centre, near(2), far(2)
    integer :: i, c, here, before, behind, place
    t1 = real(n - 1, dp)**2
    t2 = 0.5_dp * (n - 1)
    call primitive(u(:, base + (from - 1) * step), v(:, 2), square(2), pressure(2), energy(2))
    call primitive(u(:, base + from * step), v(:, 3), square(3), pressure(3), energy(3))
    do i = from, to
      here = base + i * step
      before = here - step
      behind = here + step
      v(:, 1:2) = v(:, 2:3)
      square(1:2) = square(2:3)
      pressure(1:2) = pressure(2:3)
      energy(1:2) = energy(2:3)
      call primitive(u(:, behind), v(:, 3), square(3), pressure(3), energy(3))
      flux(1) = -t2 * (u(1 + k, behind) - u(1 + k, before))
      do c = 1, 3
        flux(1 + c) = C34 * t1 * (v(c, 3) - 2 * v(c, 2) + v(c, 1)) - t2 * (u(1 + c, behind) * v(k, 3) - u(1 + c, before) * v(k, 1))
      end do
      flux(1 + k) = flux(1 + k) + (ONE_AT_SPEED - 1) * C34 * t1 * (v(k, 3) - 2 * v(k, 2) + v(k, 1)) &
                    - t2 * C2 * ((u(5, behind) - pressure(3)) - (u(5, before) - pressure(1)))
      flux(5) = C34 * t1 * (0.5_dp * (1 - C15) * (square(3) - 2 * square(2) + square(1)) &
                            + (v(k, 3)**2 - 2 * v(k, 2)**2 + v(k, 1)**2) / 6 + C15 * (energy(3) - 2 * energy(2) + energy(1))) &
                - t2 * (v(k, 3) * (C1 * u(5, behind) - C2 * pressure(3)) - v(k, 1) * (C1 * u(5, before) - C2 * pressure(1)))
      ! Beside the surface the fourth difference has fewer points.
      place = first + i
      centre = merge(5.0_dp, 6.0_dp, place == 1 .or. place == n - 2)
      near = merge(4.0_dp, 0.0_dp, [place > 1, place < n - 2])
      far = merge(1.0_dp, 0.0_dp, [place > 2, place < n - 3])
      out(:, here) = out(:, here) + flux + DIFFUSION(k) * t1 * (u(:, behind) - 2 * u(:, here) + u(:, before)) &
                     - DISSIPATION * (centre * u(:, here) - near(1) * u(:, before) - near(2) * u(:, behind) &
                                      + far(1) * u(:, here - 2 * step) + far(2) * u(:, here + 2 * step))
    end do
  end subroutine add_line

  ! Velocities, the square of the speed, the density's half of it, and energy by mass.
  pure subroutine primitive(u, v, square, pressure, energy)
    real(dp), intent(in) :: u(5)
    real(dp), intent(out) :: v(3), square, pressure, energy
    real(dp) :: inverse
    inverse = 1 / u(1)
    v = u(2:4) * inverse
    square = v(1)**2 + v(2)**2 + v(3)**2
    pressure = 0.5_dp * square * u(1)
    energy = u(5) * inverse
  end subroutine primitive

  ! Layers from..to of direction k into `buffer` behind place `filled`, which moves on.
  subroutine pack_face(p, k, from, to, values, buffer, filled)
    type(piece), intent(in) :: p
    integer, intent(in) :: k, from, to
    real(dp), intent(in) :: values(5, p%points)
    real(dp), intent(inout) :: buffer(:)
    integer, intent(inout) :: filled
    integer :: i, j, layer, inner, outer
    inner = merge(2, 1, k == 1)
    outer = merge(2, 3, k == 3)
    do layer = from, to
      do j = 0, p%extent(outer) - 1
        do i = 0, p%extent(inner) - 1
          buffer(filled + 1:filled + 5) = values(:, p%origin + layer * p%stride(k) + i * p%stride(inner) + j * p%stride(outer))
          filled = filled + 5
        end do
      end do
    end do
  end subroutine pack_face

  subroutine unpack_face(p, k, from, to, values, buffer, taken)
    type(piece), intent(in) :: p
    integer, intent(in) :: k, from, to
    real(dp), intent(inout) :: values(5, p%points)
    real(dp), intent(in) :: buffer(:)
    integer, intent(inout) :: taken
    integer :: i, j, layer, inner, outer
    inner = merge(2, 1, k == 1)
    outer = merge(2, 3, k == 3)
    do layer = from, to
      do j = 0, p%extent(outer) - 1
        do i = 0, p%extent(inner) - 1
          values(:, p%origin + layer * p%stride(k) + i * p%stride(inner) + j * p%stride(outer)) = buffer(taken + 1:taken + 5)
          taken = taken + 5
        end do
      end do
    end do
  end subroutine unpack_face

  ! Around what waits for others: calls of MPI, whatever they do.
  subroutine into_mpi()
    since = MPI_Wtime()
  end subroutine into_mpi

  subroutine out_of_mpi()
    communication_s = communication_s + MPI_Wtime() - since
  end subroutine out_of_mpi

  ! A message of so many numbers came.
  subroutine received(numbers)
    integer, intent(in) :: numbers
    if (8 * numbers > SHORT_BYTES) then
      long_received = long_received + 1
    else
      short_received = short_received + 1
    end if
  end subroutine received

  ! All are here: from now on time counts. Returns the time.
  real(dp) function begin()
    integer :: ierror
    call MPI_Barrier(MPI_COMM_WORLD, ierror)
    communication_s = 0
    short_received = 0
    long_received = 0
    begin = MPI_Wtime()
  end function begin

  subroutine sum_up(values)
    real(dp), intent(inout) :: values(:)
    real(dp) :: own(size(values))
    integer :: ierror
    own = values
    call MPI_Allreduce(own, values, size(values), MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, ierror)
  end subroutine sum_up

  ! Root mean squares over the cube's inner points: of rhs, and of how far u is from the exact solution.
  subroutine norms(n, pieces, residual, error)
    integer, intent(in) :: n
    type(piece), intent(in) :: pieces(:)
    real(dp), intent(out) :: residual(5), error(5)
    real(dp) :: sums(10)
    integer :: c, x, y, z, here, from(3), to(3)
    sums = 0
    do c = 1, size(pieces)
      from = low(pieces(c))
      to = high(n, pieces(c))
      do z = from(3), to(3)
        do y = from(2), to(2)
          do x = from(1), to(1)
            here = in_piece(pieces(c), x, y, z)
            sums(1:5) = sums(1:5) + pieces(c)%rhs(:, here)**2
            sums(6:10) = sums(6:10) + (pieces(c)%u(:, here) - exact(n, pieces(c)%first + [x, y, z]))**2
          end do
        end do
      end do
    end do
    call sum_up(sums)
    residual = sqrt(sums(1:5) / real(n - 2, dp)**3)
    error = sqrt(sums(6:10) / real(n - 2, dp)**3)
  end subroutine norms

  ! The class that the words of process 0 name (`--class S`), told to all by it.
  integer function class_of(program, classes)
    character(*), intent(in) :: program
    type(size_class), intent(in) :: classes(:)
    character(64) :: word, value
    integer :: rank, ierror, i, chosen(1)
    call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)
    if (rank == 0) then
      value = 'S'
      do i = 1, command_argument_count(), 2
        call get_command_argument(i, word)
        if (word /= '--class' .or. i == command_argument_count()) &
          call give_up(program//': '//trim(word)//': --class S, W or A is all that can be said')
        call get_command_argument(i + 1, value)
      end do
      chosen = findloc(classes%name == value, .true.)
      if (chosen(1) == 0) call give_up(program//': --class '//trim(value)//': S, W or A is wanted')
    end if
    call MPI_Bcast(chosen, 1, MPI_INTEGER, 0, MPI_COMM_WORLD, ierror)
    class_of = chosen(1)
  end function class_of

  ! Ends the job.
  subroutine give_up(why)
    character(*), intent(in) :: why
    integer :: ierror
    write (error_unit, '(a)') why
    call MPI_Abort(MPI_COMM_WORLD, 2, ierror)
  end subroutine give_up

  ! Whether all is as published; `off` is how far the worst of these numbers is from it, and before that of others.
  logical function is_as_published(program, of, residual, error, off)
    character(*), intent(in) :: program
    type(size_class), intent(in) :: of
    real(dp), intent(in) :: residual(5), error(5)
    real(dp), intent(inout) :: off
    integer :: rank, ierror
    ! What is no number is not as published either: all comparisons with it are false.
    is_as_published = all(abs(residual / of%residual - 1) <= ALLOWED) .and. all(abs(error / of%error - 1) <= ALLOWED) &
                      .and. off <= ALLOWED
    off = max(off, maxval(abs(residual / of%residual - 1)), maxval(abs(error / of%error - 1)))
    call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)
    if (rank == 0) write (error_unit, '(4a,es8.1,a,es8.1,a)') program, ': class ', of%name, ': what is published differs by ', &
      off, ' at most (', ALLOWED, ' is allowed)'
  end function is_as_published

  ! One line of JSON by process 0, and the end: a run that is not right ends with an exit code. Time is that of the slowest process,
  ! what of it went to calls of MPI the mean of all; messages are those that all received, and the most that one of them did.
  subroutine tell(program, of, took, operations, off, right)
    character(*), intent(in) :: program
    type(size_class), intent(in) :: of
    real(dp), intent(in) :: took, operations, off
    logical, intent(in) :: right
    real(dp) :: own(4), most(4), sums(4)
    integer :: rank, ranks, ierror
    own = [took, communication_s, short_received, long_received]
    call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)
    call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierror)
    call MPI_Reduce(own, most, 4, MPI_DOUBLE_PRECISION, MPI_MAX, 0, MPI_COMM_WORLD, ierror)
    call MPI_Reduce(own, sums, 4, MPI_DOUBLE_PRECISION, MPI_SUM, 0, MPI_COMM_WORLD, ierror)
    if (rank == 0) then
      write (output_unit, '(5a,2(i0,a),7(es13.6,a),es8.1,3a)') '{"program": "', program, '", "class": "', of%name, '", "ranks": ', &
        ranks, ', "n": ', of%n, ', "seconds": ', most(1), ', "communication_s": ', sums(2) / ranks, ', "computation_s": ', &
        (sums(1) - sums(2)) / ranks, ', "mflops": ', operations / most(1) / 1e6_dp, ', "short": ', sums(3), ', "long": ', sums(4), &
        ', "most_received": ', most(3) + most(4), ', "off": ', off, ', "verified": ', trim(merge('true ', 'false', right)), '}'
      flush (output_unit)
    end if
    call MPI_Finalize(ierror)
    if (.not. right) stop 1
  end subroutine tell
end module nas_cfd
