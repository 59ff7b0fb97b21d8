! NAS Parallel Benchmark MG: four V-cycles of multigrid for the Poisson equation on a periodic cube of n^3 points, by MPI. Written from
! its specification (RNR-94-007, section 3.2), with the distribution of examples/bsp/nas/mg.c.
!
!   mpiexec -n 4 ./mg [--class S|W|A]          on a power of two of processes
!
! Planes of z are dealt out in blocks; a plane goes to and comes from each neighbour after each operation, from whomever it comes, by its
! tag. Levels with fewer than two planes for each process are computed by all: their planes are gathered once on the way down.
program nas_mg
  use, intrinsic :: iso_fortran_env, only: int64
  use mpi
  use nas_cfd
  implicit none

  type(size_class), parameter :: CLASSES(3) = [ &
    size_class('S', 32, 4, 0.0_dp, [0, 0, 0, 0, 0], [0, 0, 0, 0, 0], 0.5307707005734e-04_dp), &
    size_class('W', 128, 4, 0.0_dp, [0, 0, 0, 0, 0], [0, 0, 0, 0, 0], 0.6467329375339e-05_dp), &
    size_class('A', 256, 4, 0.0_dp, [0, 0, 0, 0, 0], [0, 0, 0, 0, 0], 0.2433365309069e-05_dp)]
  integer, parameter :: CHARGES = 10, TAG_UP = 1, TAG_DOWN = 2
  real(dp), parameter :: ALLOWED = 1e-8_dp

  ! n points a side, of whose planes this process has `planes` behind `first` others, with one more on all six sides of each array.
  type :: level
    integer :: n, first, planes
    logical :: is_whole
    real(dp), allocatable :: u(:, :, :), r(:, :, :)
  end type level

  type(level), allocatable :: levels(:)
  real(dp), allocatable :: v(:, :, :)
  type(size_class) :: of
  integer :: ranks, rank, ierror, top, cycles
  real(dp) :: begun, took, norm, off

  call MPI_Init(ierror)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierror)
  of = CLASSES(class_of('mg', CLASSES))
  if (iand(ranks, ranks - 1) /= 0) call give_up('mg: a power of two of processes is wanted')
  if (of%n < 2 * ranks) call give_up('mg: too many processes for so few planes')
  call make_levels()
  call place_charges()
  ! One cycle to touch all memory; then anew.
  call begin_at_nothing()
  call v_cycle()
  call begin_at_nothing()
  begun = begin()
  levels(top)%r = v
  call subtract(levels(top))
  do cycles = 1, of%steps
    call v_cycle()
    levels(top)%r = v
    call subtract(levels(top))
  end do
  took = MPI_Wtime() - begun
  norm = root_mean_square(levels(top))
  off = abs(norm / of%integral - 1)
  call tell('mg', of, took, 58.0_dp * of%steps * real(of%n, dp)**3, off, off <= ALLOWED)

contains

  subroutine make_levels()
    integer :: k, n
    top = nint(log(real(of%n)) / log(2.0))
    allocate (levels(top))
    do k = 1, top
      n = 2**k
      levels(k)%n = n
      levels(k)%is_whole = ranks == 1 .or. n < 2 * ranks
      levels(k)%planes = merge(n, n / ranks, levels(k)%is_whole)
      levels(k)%first = merge(0, rank * (n / ranks), levels(k)%is_whole)
      allocate (levels(k)%u(0:n + 1, 0:n + 1, 0:levels(k)%planes + 1), levels(k)%r(0:n + 1, 0:n + 1, 0:levels(k)%planes + 1))
      levels(k)%u = 0
      levels(k)%r = 0
    end do
    allocate (v, mold=levels(top)%u)
    v = 0
  end subroutine make_levels

  subroutine begin_at_nothing()
    levels(top)%u = 0
    levels(top)%r = v
    call subtract(levels(top))
  end subroutine begin_at_nothing

  ! Down to two points a side, and up again.
  subroutine v_cycle()
    integer :: k
    do k = top, 2, -1
      call restrict_to(levels(k), levels(k - 1))
    end do
    levels(1)%u = 0
    call smooth(levels(1))
    do k = 2, top
      if (k < top) levels(k)%u = 0
      call interpolate(levels(k - 1), levels(k))
      if (k == top) levels(k)%r = v
      call subtract(levels(k))
      call smooth(levels(k))
    end do
  end subroutine v_cycle

  ! Sums over the neighbours in the plane across x: the four beside, the four at the corners.
  pure subroutine neighbours(a, n, y, z, beside, corners)
    integer, intent(in) :: n, y, z
    real(dp), intent(in) :: a(0:, 0:, 0:)
    real(dp), intent(out) :: beside(0:n + 1), corners(0:n + 1)
    beside = a(:, y - 1, z) + a(:, y + 1, z) + a(:, y, z - 1) + a(:, y, z + 1)
    corners = a(:, y - 1, z - 1) + a(:, y + 1, z - 1) + a(:, y - 1, z + 1) + a(:, y + 1, z + 1)
  end subroutine neighbours

  ! r = r - A u, the 27-point operator with -8/3, 0, 1/6, 1/12 for centre, faces, edges, corners.
  subroutine subtract(l)
    type(level), intent(inout) :: l
    real(dp) :: beside(0:l%n + 1), corners(0:l%n + 1)
    integer :: x, y, z
    do z = 1, l%planes
      do y = 1, l%n
        call neighbours(l%u, l%n, y, z, beside, corners)
        do x = 1, l%n
          l%r(x, y, z) = l%r(x, y, z) + 8.0_dp / 3 * l%u(x, y, z) - 1.0_dp / 6 * (corners(x) + beside(x - 1) + beside(x + 1)) &
                         - 1.0_dp / 12 * (corners(x - 1) + corners(x + 1))
        end do
      end do
    end do
    call surround(l, l%r)
  end subroutine subtract

  ! u = u + S r, the smoother with -3/8, 1/32, -1/64, 0.
  subroutine smooth(l)
    type(level), intent(inout) :: l
    real(dp) :: beside(0:l%n + 1), corners(0:l%n + 1)
    integer :: x, y, z
    do z = 1, l%planes
      do y = 1, l%n
        call neighbours(l%r, l%n, y, z, beside, corners)
        do x = 1, l%n
          l%u(x, y, z) = l%u(x, y, z) - 3.0_dp / 8 * l%r(x, y, z) &
                         + 1.0_dp / 32 * (beside(x) + l%r(x - 1, y, z) + l%r(x + 1, y, z)) &
                         - 1.0_dp / 64 * (corners(x) + beside(x - 1) + beside(x + 1))
        end do
      end do
    end do
    call surround(l, l%u)
  end subroutine smooth

  ! The coarser level's right-hand side: weights 1/2, 1/4, 1/8, 1/16 around every other point.
  subroutine restrict_to(l, coarse)
    type(level), intent(in) :: l
    type(level), intent(inout) :: coarse
    real(dp) :: beside(0:l%n + 1), corners(0:l%n + 1)
    integer :: i, j, k, x, planes, first
    planes = merge(coarse%n, l%planes / 2, l%is_whole)
    first = l%first / 2 - coarse%first
    do k = 1, planes
      do j = 1, coarse%n
        call neighbours(l%r, l%n, 2 * j, 2 * k, beside, corners)
        do i = 1, coarse%n
          x = 2 * i
          coarse%r(i, j, first + k) = 0.5_dp * l%r(x, 2 * j, 2 * k) &
                                      + 0.25_dp * (beside(x) + l%r(x - 1, 2 * j, 2 * k) + l%r(x + 1, 2 * j, 2 * k)) &
                                      + 0.125_dp * (corners(x) + beside(x - 1) + beside(x + 1)) &
                                      + 0.0625_dp * (corners(x - 1) + corners(x + 1))
        end do
      end do
    end do
    if (coarse%is_whole .and. .not. l%is_whole) call gather(coarse, first, planes)
    call surround(coarse, coarse%r)
  end subroutine restrict_to

  ! The last level that is dealt out: its planes go to everybody.
  subroutine gather(coarse, first, planes)
    type(level), intent(inout) :: coarse
    integer, intent(in) :: first, planes
    real(dp) :: own(0:coarse%n + 1, 0:coarse%n + 1, planes)
    real(dp) :: all(0:coarse%n + 1, 0:coarse%n + 1, coarse%n)
    own = coarse%r(:, :, first + 1:first + planes)
    call into_mpi()
    call MPI_Allgather(own, size(own), MPI_DOUBLE_PRECISION, all, size(own), MPI_DOUBLE_PRECISION, MPI_COMM_WORLD, ierror)
    call out_of_mpi()
    coarse%r(:, :, 1:coarse%n) = all
  end subroutine gather

  ! Adds the coarser level's correction: each point is the mean of the 1, 2, 4 or 8 coarse points around it.
  subroutine interpolate(coarse, l)
    type(level), intent(in) :: coarse
    type(level), intent(inout) :: l
    real(dp) :: row(0:coarse%n + 1)
    integer :: i, y, z, j, k, odd_y, odd_z, b, c
    do z = 1, l%planes
      odd_z = mod(l%first + z, 2)
      k = (l%first + z) / 2 - coarse%first
      do y = 1, l%n
        odd_y = mod(y, 2)
        j = y / 2
        row = 0
        do c = 0, odd_z
          do b = 0, odd_y
            row = row + coarse%u(:, j + b, k + c)
          end do
        end do
        row = row / ((1 + odd_y) * (1 + odd_z))
        do i = 1, coarse%n
          l%u(2 * i - 1, y, z) = l%u(2 * i - 1, y, z) + 0.5_dp * (row(i - 1) + row(i))
          l%u(2 * i, y, z) = l%u(2 * i, y, z) + row(i)
        end do
      end do
    end do
    call surround(l, l%u)
  end subroutine interpolate

  ! Fills what lies around the points: in planes by wrapping, in the third dimension from the neighbours.
  subroutine surround(l, a)
    type(level), intent(in) :: l
    real(dp), intent(inout) :: a(0:, 0:, 0:)
    real(dp), allocatable, save :: from_below(:, :), from_above(:, :), to_above(:, :), to_below(:, :)
    integer :: n, last, requests(4), numbers
    n = l%n
    last = l%planes
    a(0, 1:n, 1:last) = a(n, 1:n, 1:last)
    a(n + 1, 1:n, 1:last) = a(1, 1:n, 1:last)
    a(:, 0, 1:last) = a(:, n, 1:last)
    a(:, n + 1, 1:last) = a(:, 1, 1:last)
    if (l%is_whole) then
      a(:, :, 0) = a(:, :, last)
      a(:, :, last + 1) = a(:, :, 1)
      return
    end if
    numbers = (n + 2)**2
    to_above = a(:, :, last)
    to_below = a(:, :, 1)
    if (allocated(from_below)) deallocate (from_below, from_above)
    allocate (from_below(0:n + 1, 0:n + 1), from_above(0:n + 1, 0:n + 1))
    call into_mpi()
    call MPI_Irecv(from_below, numbers, MPI_DOUBLE_PRECISION, MPI_ANY_SOURCE, TAG_UP, MPI_COMM_WORLD, requests(1), ierror)
    call MPI_Irecv(from_above, numbers, MPI_DOUBLE_PRECISION, MPI_ANY_SOURCE, TAG_DOWN, MPI_COMM_WORLD, requests(2), ierror)
    call MPI_Isend(to_above, numbers, MPI_DOUBLE_PRECISION, mod(rank + 1, ranks), TAG_UP, MPI_COMM_WORLD, requests(3), ierror)
    call MPI_Isend(to_below, numbers, MPI_DOUBLE_PRECISION, mod(rank + ranks - 1, ranks), TAG_DOWN, MPI_COMM_WORLD, &
                   requests(4), ierror)
    call MPI_Waitall(4, requests, MPI_STATUSES_IGNORE, ierror)
    call out_of_mpi()
    call received(numbers)
    call received(numbers)
    a(:, :, 0) = from_below
    a(:, :, last + 1) = from_above
  end subroutine surround

  ! The generator of the benchmarks: a x mod 2^46, in halves that fit.
  pure integer(int64) function times(a, x)
    integer(int64), intent(in) :: a, x
    integer(int64), parameter :: HALF = 2_int64**23
    integer(int64) :: middle
    middle = mod((a / HALF) * mod(x, HALF) + mod(a, HALF) * (x / HALF), HALF)
    times = mod(middle * HALF + mod(a, HALF) * mod(x, HALF), HALF * HALF)
  end function times

  ! Keeps the ten greatest, greatest first: value and place.
  pure subroutine offer(best, one)
    real(dp), intent(inout) :: best(2, CHARGES)
    real(dp), intent(in) :: one(2)
    integer :: i
    if (one(1) <= best(1, CHARGES)) return
    i = CHARGES
    do while (i > 1)
      if (one(1) <= best(1, i - 1)) exit
      best(:, i) = best(:, i - 1)
      i = i - 1
    end do
    best(:, i) = one
  end subroutine offer

  ! The right-hand side: +1 at the ten places with the greatest random numbers, -1 at the ten with the least. All processes find those of
  ! their planes and tell them.
  subroutine place_charges()
    integer(int64), parameter :: FACTOR = 1220703125_int64, SEED = 314159265_int64
    real(dp) :: own(2, CHARGES, 2), all(2, CHARGES, 2, ranks), best(2, CHARGES)
    integer(int64) :: x, base, exponent, n, place, points
    integer :: sign, i, q, z
    n = of%n
    points = n * n * levels(top)%planes
    x = SEED
    base = FACTOR
    exponent = n * n * levels(top)%first
    do while (exponent > 0)
      if (mod(exponent, 2_int64) == 1) x = times(base, x)
      base = times(base, base)
      exponent = exponent / 2
    end do
    own = 0
    do place = n * n * levels(top)%first, n * n * levels(top)%first + points - 1
      x = times(FACTOR, x)
      call offer(own(:, :, 1), real([x, place], dp))
      ! The least, upside down.
      call offer(own(:, :, 2), real([2_int64**46 - x, place], dp))
    end do
    call MPI_Allgather(own, size(own), MPI_DOUBLE_PRECISION, all, size(own), MPI_DOUBLE_PRECISION, MPI_COMM_WORLD, ierror)
    do sign = 1, 2
      best = 0
      do q = 1, ranks
        do i = 1, CHARGES
          call offer(best, all(:, i, sign, q))
        end do
      end do
      do i = 1, CHARGES
        place = int(best(2, i), int64)
        z = int(place / (n * n)) - levels(top)%first
        if (z >= 0 .and. z < levels(top)%planes) v(mod(place, n) + 1, mod(place / n, n) + 1, z + 1) = 3 - 2 * sign
      end do
    end do
  end subroutine place_charges

  real(dp) function root_mean_square(l)
    type(level), intent(in) :: l
    real(dp) :: total(1)
    total = sum(l%r(1:l%n, 1:l%n, 1:l%planes)**2)
    call sum_up(total)
    root_mean_square = sqrt(total(1) / real(l%n, dp)**3)
  end function root_mean_square
end program nas_mg
