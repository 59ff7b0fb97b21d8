! NAS Parallel Benchmark LU: symmetric successive over-relaxation, two triangular sweeps a step, by MPI. See cfd.f90.
!
!   mpiexec -n 4 ./lu [--class S|W|A]
!
! Columns of z are dealt out in two dimensions. A point of the lower sweep needs its neighbours at x-1, y-1 and z-1, so the processes
! are a pipeline: for each plane a process waits for one column of points from each of the two before it, does its part of the plane,
! and sends on. Many short messages, blocking, each of which somebody waits for. Before the fluxes are computed two layers go to each
! neighbour, received from whomever they come, by their tag.
program nas_lu
  use mpi
  use nas_cfd
  implicit none

  type(size_class), parameter :: CLASSES(3) = [ &
    size_class('S', 12, 50, 0.5_dp, &
      [1.6196343210976702e-02_dp, 2.1976745164821318e-03_dp, 1.5179927653399185e-03_dp, 1.5029584435994323e-03_dp, &
       3.4264073155896461e-02_dp], &
      [6.4223319957960924e-04_dp, 8.4144342047347926e-05_dp, 5.8588269616485186e-05_dp, 5.8474222595157350e-05_dp, &
       1.3103347914111294e-03_dp], &
      7.8418928865937083_dp), &
    size_class('W', 33, 300, 0.0015_dp, &
      [0.1236511638192e+02_dp, 0.1317228477799e+01_dp, 0.2550120713095e+01_dp, 0.2326187750252e+01_dp, &
       0.2826799444189e+02_dp], &
      [0.4867877144216_dp, 0.5064652880982e-01_dp, 0.9281818101960e-01_dp, 0.8570126542733e-01_dp, &
       0.1084277417792e+01_dp], &
      0.1161399311023e+02_dp), &
    size_class('A', 64, 250, 2.0_dp, &
      [7.7902107606689367e+02_dp, 6.3402765259692870e+01_dp, 1.9499249727292479e+02_dp, 1.7845301160418537e+02_dp, &
       1.8384760349464247e+03_dp], &
      [2.9964085685471943e+01_dp, 2.8194576365003349_dp, 7.3473412698774742_dp, 6.7139225687777051_dp, &
       7.0715315688392578e+01_dp], &
      2.6030925604886277e+01_dp)]
  real(dp), parameter :: OMEGA = 1.2_dp
  ! What comes over this side of a process is marked by it: the one before in x, behind in x, before in y, behind in y.
  integer, parameter :: SIDES = 4
  integer :: beside(SIDES)
  type(piece) :: own(1)
  type(size_class) :: of
  integer :: ranks, rank, ierror, step
  real(dp) :: begun, took, n, residual(5), error(5), integral, off
  logical :: right

  call MPI_Init(ierror)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierror)
  of = CLASSES(class_of('lu', CLASSES))
  n = of%n
  call deal_out()
  call make_forcing(of%n, own(1))
  call initial_values(of%n, own(1))
  call surround()
  call right_hand_side(of%n, own(1))
  begun = begin()
  do step = 1, of%steps
    call one_step()
  end do
  took = MPI_Wtime() - begun
  call norms(of%n, own, residual, error)
  integral = surface_integral()
  off = abs(integral / of%integral - 1)
  right = is_as_published('lu', of, residual, error, off)
  ! The operations are as NAS counts them.
  call tell('lu', of, took, of%steps * (1984.77_dp * n**3 - 10923.3_dp * n**2 + 27770.9_dp * n - 144010.0_dp), off, right)

contains

  ! Gives each process its columns: as square a grid of processes as there is.
  subroutine deal_out()
    integer :: across, x, y, from(3), extent(3)
    across = int(sqrt(real(ranks)))
    do while (mod(ranks, across) /= 0)
      across = across - 1
    end do
    x = mod(rank, across)
    y = rank / across
    if (of%n / (ranks / across) < AROUND) call give_up('lu: too many processes for so few points')
    beside = [rank - 1, rank + 1, rank - across, rank + across]
    if (x == 0) beside(1) = MPI_PROC_NULL
    if (x == across - 1) beside(2) = MPI_PROC_NULL
    if (y == 0) beside(3) = MPI_PROC_NULL
    if (y == ranks / across - 1) beside(4) = MPI_PROC_NULL
    from = [block_start(of%n, across, x), block_start(of%n, ranks / across, y), 0]
    extent = [block_start(of%n, across, x + 1), block_start(of%n, ranks / across, y + 1), of%n] - from
    own(1) = new_piece(from, extent)
  end subroutine deal_out

  subroutine one_step()
    own(1)%rhs = of%dt * own(1)%rhs
    call lower_sweep()
    call upper_sweep()
    own(1)%u = own(1)%u + own(1)%rhs / (OMEGA * (2 - OMEGA))
    call surround()
    call right_hand_side(of%n, own(1))
  end subroutine one_step

  ! Two layers from each neighbour: first in x, then in y, as both kinds of fluxes are computed.
  subroutine surround()
    integer :: k
    do k = 1, 2
      call surround_in(k)
    end do
  end subroutine surround

  subroutine surround_in(k)
    integer, intent(in) :: k
    real(dp), allocatable, save :: came(:, :), gone(:)
    integer :: side, sign, filled, requests(2), numbers
    numbers = 5 * AROUND * product(own(1)%extent) / own(1)%extent(k)
    if (allocated(came)) deallocate (came, gone)
    allocate (came(numbers, 2), gone(numbers))
    requests = MPI_REQUEST_NULL
    do sign = 1, 2
      side = 2 * (k - 1) + sign
      call into_mpi()
      if (beside(side) /= MPI_PROC_NULL) &
        call MPI_Irecv(came(:, sign), numbers, MPI_DOUBLE_PRECISION, MPI_ANY_SOURCE, side, MPI_COMM_WORLD, requests(sign), ierror)
      call out_of_mpi()
    end do
    do sign = 1, 2
      side = 2 * (k - 1) + sign
      if (beside(side) == MPI_PROC_NULL) cycle
      filled = 0
      if (sign == 1) then
        call pack_face(own(1), k, 0, AROUND - 1, own(1)%u, gone, filled)
      else
        call pack_face(own(1), k, own(1)%extent(k) - AROUND, own(1)%extent(k) - 1, own(1)%u, gone, filled)
      end if
      call into_mpi()
      ! It comes over the other's other side.
      call MPI_Send(gone, numbers, MPI_DOUBLE_PRECISION, beside(side), 2 * (k - 1) + 3 - sign, MPI_COMM_WORLD, ierror)
      call out_of_mpi()
    end do
    do sign = 1, 2
      if (requests(sign) == MPI_REQUEST_NULL) cycle
      call into_mpi()
      call MPI_Wait(requests(sign), MPI_STATUS_IGNORE, ierror)
      call out_of_mpi()
      call received(numbers)
      filled = 0
      if (sign == 1) then
        call unpack_face(own(1), k, -AROUND, -1, own(1)%u, came(:, sign), filled)
      else
        call unpack_face(own(1), k, own(1)%extent(k), own(1)%extent(k) + AROUND - 1, own(1)%u, came(:, sign), filled)
      end if
    end do
  end subroutine surround_in

  ! A column of points of direction k at place `layer` of the other direction in plane z, from a neighbour or to it.
  subroutine pass(side, k, layer, z, is_sent)
    integer, intent(in) :: side, k, layer, z
    logical, intent(in) :: is_sent
    real(dp), allocatable, save :: column(:)
    integer :: base, i, numbers
    if (beside(side) == MPI_PROC_NULL) return
    numbers = 5 * own(1)%extent(k)
    if (.not. allocated(column)) allocate (column(5 * of%n))
    base = own(1)%origin + layer * own(1)%stride(3 - k) + z * own(1)%stride(3)
    if (is_sent) then
      do i = 0, own(1)%extent(k) - 1
        column(5 * i + 1:5 * i + 5) = own(1)%rhs(:, base + i * own(1)%stride(k))
      end do
      call into_mpi()
      call MPI_Send(column, numbers, MPI_DOUBLE_PRECISION, beside(side), opposite(side), MPI_COMM_WORLD, ierror)
      call out_of_mpi()
    else
      call into_mpi()
      call MPI_Recv(column, numbers, MPI_DOUBLE_PRECISION, beside(side), side, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierror)
      call out_of_mpi()
      call received(numbers)
      do i = 0, own(1)%extent(k) - 1
        own(1)%rhs(:, base + i * own(1)%stride(k)) = column(5 * i + 1:5 * i + 5)
      end do
    end if
  end subroutine pass

  pure integer function opposite(side)
    integer, intent(in) :: side
    opposite = side - 1 + 2 * mod(side, 2)
  end function opposite

  ! From the first corner of the cube to the last.
  subroutine lower_sweep()
    integer :: x, y, z, from(3), to(3)
    from = low(own(1))
    to = high(of%n, own(1))
    do z = from(3), to(3)
      call pass(1, 2, -1, z, .false.)
      call pass(3, 1, -1, z, .false.)
      do y = from(2), to(2)
        do x = from(1), to(1)
          call relax(in_piece(own(1), x, y, z), -1, own(1)%points, own(1)%u, own(1)%rhs)
        end do
      end do
      call pass(2, 2, own(1)%extent(1) - 1, z, .true.)
      call pass(4, 1, own(1)%extent(2) - 1, z, .true.)
    end do
  end subroutine lower_sweep

  ! And back.
  subroutine upper_sweep()
    integer :: x, y, z, from(3), to(3)
    from = low(own(1))
    to = high(of%n, own(1))
    do z = to(3), from(3), -1
      call pass(2, 2, own(1)%extent(1), z, .false.)
      call pass(4, 1, own(1)%extent(2), z, .false.)
      do y = to(2), from(2), -1
        do x = to(1), from(1), -1
          call relax(in_piece(own(1), x, y, z), 1, own(1)%points, own(1)%u, own(1)%rhs)
        end do
      end do
      call pass(1, 2, 0, z, .true.)
      call pass(3, 1, 0, z, .true.)
    end do
  end subroutine upper_sweep

  ! One point: what its three neighbours before it (sign -1) or behind it (+1) contribute, and the block on the diagonal.
  subroutine relax(here, sign, points, u, rhs)
    integer, intent(in) :: here, sign, points
    real(dp), intent(in) :: u(5, points)
    real(dp), intent(inout) :: rhs(5, points)
    real(dp) :: t1, t2, contributed(5)
    integer :: k, there
    t1 = of%dt * (n - 1)**2
    t2 = sign * of%dt * 0.5_dp * (n - 1)
    contributed = 0
    do k = 1, 3
      there = here + sign * own(1)%stride(k)
      call contribute(k, t1, t2, u(:, there), rhs(:, there), contributed)
    end do
    if (sign < 0) then
      rhs(:, here) = rhs(:, here) - contributed
      call solve_diagonal(t1, u(:, here), rhs(:, here))
    else
      call solve_diagonal(t1, u(:, here), contributed)
      rhs(:, here) = rhs(:, here) - contributed
    end if
  end subroutine relax

  ! OMEGA times the neighbour's block, applied to its values: the Jacobians of convective and viscous fluxes at u, not written out.
  pure subroutine contribute(k, t1, t2, u, change, sum)
    integer, intent(in) :: k
    real(dp), intent(in) :: t1, t2, u(5), change(5)
    real(dp), intent(inout) :: sum(5)
    real(dp) :: inverse, v(3), square, energy, along, convective(5), viscous(5), slip(3), drag
    integer :: c
    inverse = 1 / u(1)
    v = u(2:4) * inverse
    square = v(1)**2 + v(2)**2 + v(3)**2
    energy = u(5) * inverse
    along = v(1) * change(2) + v(2) * change(3) + v(3) * change(4)
    convective(1) = change(1 + k)
    do c = 1, 3
      convective(1 + c) = v(c) * (change(1 + k) - v(k) * change(1)) + v(k) * change(1 + c)
    end do
    convective(1 + k) = convective(1 + k) + C2 * (0.5_dp * square * change(1) - along + change(5))
    convective(5) = (C2 * square - C1 * energy) * v(k) * change(1) - C2 * v(k) * along &
                    + (C1 * energy - 0.5_dp * C2 * square) * change(1 + k) + C1 * v(k) * change(5)
    slip = (change(2:4) - v * change(1)) * C34 * inverse
    viscous(1) = 0
    viscous(5) = C34 * C15 * inverse * (change(5) - energy * change(1))
    do c = 1, 3
      drag = merge(ONE_AT_SPEED, 1.0_dp, c == k)
      viscous(1 + c) = drag * slip(c)
      viscous(5) = viscous(5) + (drag - C15) * v(c) * slip(c)
    end do
    sum = sum + OMEGA * (t2 * convective - t1 * (viscous + DIFFUSION(k) * change))
  end subroutine contribute

  ! The block on the diagonal has nothing above its own diagonal: only viscosity is in it, and that of all directions together.
  pure subroutine solve_diagonal(t1, u, x)
    real(dp), intent(in) :: t1, u(5)
    real(dp), intent(inout) :: x(5)
    real(dp) :: inverse, v(3), one, drag, heat
    inverse = 1 / u(1)
    v = u(2:4) * inverse
    one = 1 + 2 * t1 * sum(DIFFUSION)
    drag = 2 * t1 * (2 + ONE_AT_SPEED) * C34 * inverse
    heat = 2 * t1 * 3 * C34 * C15 * inverse
    x(1) = x(1) / one
    x(2:4) = (x(2:4) + drag * v * x(1)) / (one + drag)
    x(5) = (x(5) + heat * u(5) * inverse * x(1) - (drag - heat) * sum(v * (x(2:4) - v * x(1)))) / (one + heat)
  end subroutine solve_diagonal

  ! A quarter of the sum over six faces of the pressure, by the trapezoidal rule: corners count once, edges twice, inner points four times.
  real(dp) function surface_integral()
    integer :: first(3), last(3), place(3), x, y, z, face, k
    real(dp) :: total(1), weight, u(5)
    first = [1, 1, 2]
    last = [of%n - 2, of%n - 3, of%n - 2]
    total = 0
    do z = 0, own(1)%extent(3) - 1
      do y = 0, own(1)%extent(2) - 1
        do x = 0, own(1)%extent(1) - 1
          place = own(1)%first + [x, y, z]
          u = own(1)%u(:, in_piece(own(1), x, y, z))
          if (any(place < first) .or. any(place > last)) cycle
          do face = 1, 3
            if (place(face) /= first(face) .and. place(face) /= last(face)) cycle
            weight = 1
            do k = 1, 3
              if (k /= face .and. place(k) > first(k) .and. place(k) < last(k)) weight = 2 * weight
            end do
            total = total + weight * C2 * (u(5) - 0.5_dp * sum(u(2:4)**2) / u(1))
          end do
        end do
      end do
    end do
    call sum_up(total)
    surface_integral = 0.25_dp * total(1) / (n - 1)**2
  end function surface_integral
end program nas_lu
