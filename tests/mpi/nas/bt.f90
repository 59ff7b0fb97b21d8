! NAS Parallel Benchmark BT: implicit time steps by three block-tridiagonal solves (Beam and Warming), by MPI. See cfd.f90 and multi.f90.
!
!   mpiexec -n 4 ./bt [--class S|W|A]          on 1, 4, 9, ... processes
!
! Forward go the last row of the elimination, a block and its right-hand side, and back the first point of the solution.
module nas_bt_steps
  use nas_cfd
  use nas_multi
  implicit none
  private
  public :: CLASSES, of, n, make_room, one_step

  type(size_class), parameter :: CLASSES(3) = [ &
    size_class('S', 12, 60, 0.010_dp, &
      [1.7034283709541311e-01_dp, 1.2975252070034097e-02_dp, 3.2527926989486055e-02_dp, 2.6436421275166801e-02_dp, &
       1.9211784131744430e-01_dp], &
      [4.9976913345811579e-04_dp, 4.5195666782961927e-05_dp, 7.3973765172921357e-05_dp, 7.3821238632439731e-05_dp, &
       8.9269630987491446e-04_dp], 0.0_dp), &
    size_class('W', 24, 200, 0.0008_dp, &
      [0.1125590409344e+03_dp, 0.1180007595731e+02_dp, 0.2710329767846e+02_dp, 0.2469174937669e+02_dp, 0.2638427874317e+03_dp], &
      [0.4419655736008e+01_dp, 0.4638531260002_dp, 0.1011551749967e+01_dp, 0.9235878729944_dp, 0.1018045837718e+02_dp], &
      0.0_dp), &
    size_class('A', 64, 200, 0.0008_dp, &
      [1.0806346714637264e+02_dp, 1.1319730901220813e+01_dp, 2.5974354511582465e+01_dp, 2.3665622544678910e+01_dp, &
       2.5278963211748344e+02_dp], &
      [4.2348416040525025_dp, 4.4390282496995698e-01_dp, 9.6692480136345650e-01_dp, 8.8302063039765474e-01_dp, &
       9.7379901770829278_dp], 0.0_dp)]
  ! Numbers of a line that go forward: a block of 25 and a right-hand side. And back.
  integer, parameter :: FORWARD = 30, BACK = 5

  ! The blocks behind the diagonal of a piece, divided by it: what of the elimination is kept for the way back.
  type :: blocks
    real(dp), allocatable :: upper(:, :, :)
  end type blocks

  type(blocks), allocatable :: kept(:)
  type(size_class) :: of
  real(dp) :: n

contains

  subroutine make_room()
    integer :: c
    allocate (kept(size(pieces)))
    do c = 1, size(pieces)
      allocate (kept(c)%upper(5, 5, pieces(c)%points))
    end do
  end subroutine make_room

  subroutine one_step()
    integer :: c, k
    call all_right_hand_sides()
    do c = 1, size(pieces)
      pieces(c)%rhs = of%dt * pieces(c)%rhs
    end do
    do k = 1, 3
      call solve(k, FORWARD, BACK, eliminate, substitute)
    end do
    do c = 1, size(pieces)
      pieces(c)%u = pieces(c)%u + pieces(c)%rhs
    end do
    call surround()
  end subroutine one_step

  ! Down a slab: each row is freed of the one before it and divided by its diagonal block. What came is the last row of the slab before.
  subroutine eliminate(k, c, rows_in, rows_out)
    integer, intent(in) :: k, c
    real(dp), intent(in) :: rows_in(:, :)
    real(dp), intent(inout) :: rows_out(:, :)
    integer :: from(3), to(3), i, j, inner, outer, line
    from = low(pieces(c))
    to = high(of%n, pieces(c))
    inner = merge(2, 1, k == 1)
    outer = merge(2, 3, k == 3)
    line = 0
    do j = from(outer), to(outer)
      do i = from(inner), to(inner)
        line = line + 1
        associate (p => pieces(c))
          call eliminate_line(k, from(k), to(k), p%origin + i * p%stride(inner) + j * p%stride(outer), p%stride(k), p%points, &
                              p%u, p%rhs, kept(c)%upper, rows_in(:, line), rows_out(:, line))
        end associate
      end do
    end do
  end subroutine eliminate

  ! Each point's row has three blocks, of its own Jacobians and those of its neighbours: A before, B, C behind.
  subroutine eliminate_line(k, from, to, base, stride, points, u, rhs, upper, row_in, row_out)
    integer, intent(in) :: k, from, to, base, stride, points
    real(dp), intent(in) :: u(5, points), row_in(FORWARD)
    real(dp), intent(inout) :: rhs(5, points), upper(5, 5, points), row_out(FORWARD)
    real(dp) :: t1, t2, own(5, 5), convective(5, 5, 3), viscous(5, 5, 3), a(5, 5), b(5, 5), row(5, 6), last(5, 6)
    integer :: i, m, here
    t1 = of%dt * (n - 1)**2
    t2 = of%dt * 0.5_dp * (n - 1)
    own = 0
    do m = 1, 5
      own(m, m) = t1 * DIFFUSION(k)
    end do
    last = reshape(row_in, [5, 6])
    do i = 2, 3
      call jacobians(k, u(:, base + (from + i - 3) * stride), convective(:, :, i), viscous(:, :, i))
    end do
    do i = from, to
      here = base + i * stride
      convective(:, :, 1:2) = convective(:, :, 2:3)
      viscous(:, :, 1:2) = viscous(:, :, 2:3)
      call jacobians(k, u(:, here + stride), convective(:, :, 3), viscous(:, :, 3))
      a = -t2 * convective(:, :, 1) - t1 * viscous(:, :, 1) - own
      b = 2 * t1 * viscous(:, :, 2) + 2 * own
      do m = 1, 5
        b(m, m) = b(m, m) + 1
      end do
      b = b - matmul(a, last(:, 1:5))
      row(:, 1:5) = t2 * convective(:, :, 3) - t1 * viscous(:, :, 3) - own
      row(:, 6) = rhs(:, here) - matmul(a, last(:, 6))
      call solve_5(b, row)
      upper(:, :, here) = row(:, 1:5)
      rhs(:, here) = row(:, 6)
      last = row
    end do
    row_out = reshape(last, [FORWARD])
  end subroutine eliminate_line

  ! Of the fluxes of direction k at a point: of convection, and of viscosity.
  pure subroutine jacobians(k, u, convective, viscous)
    integer, intent(in) :: k
    real(dp), intent(in) :: u(5)
    real(dp), intent(out) :: convective(5, 5), viscous(5, 5)
    real(dp) :: inverse, v(3), square, energy, drag, heat
    integer :: c
    inverse = 1 / u(1)
    v = u(2:4) * inverse
    square = sum(v**2)
    energy = u(5) * inverse
    heat = C34 * C15 * inverse
    convective = 0
    viscous = 0
    convective(1, 1 + k) = 1
    do c = 1, 3
      drag = merge(ONE_AT_SPEED, 1.0_dp, c == k) * C34 * inverse
      convective(1 + c, 1) = -v(c) * v(k)
      convective(1 + c, 1 + k) = v(c)
      convective(1 + c, 1 + c) = convective(1 + c, 1 + c) + v(k)
      viscous(1 + c, 1) = -drag * v(c)
      viscous(1 + c, 1 + c) = drag
      viscous(5, 1) = viscous(5, 1) - (drag - heat) * v(c)**2
      viscous(5, 1 + c) = (drag - heat) * v(c)
    end do
    convective(1 + k, 1) = convective(1 + k, 1) + 0.5_dp * C2 * square
    convective(1 + k, 2:4) = convective(1 + k, 2:4) - C2 * v
    convective(1 + k, 5) = C2
    viscous(5, 1) = viscous(5, 1) - heat * energy
    viscous(5, 5) = heat
    convective(5, 1) = (C2 * square - C1 * energy) * v(k)
    convective(5, 2:4) = -C2 * v * v(k)
    convective(5, 1 + k) = convective(5, 1 + k) + C1 * energy - 0.5_dp * C2 * square
    convective(5, 5) = C1 * v(k)
  end subroutine jacobians

  ! Solves a system of five for six right-hand sides, by elimination without pivots; `a` is used up.
  pure subroutine solve_5(a, row)
    real(dp), intent(inout) :: a(5, 5), row(5, 6)
    real(dp) :: pivot, factor
    integer :: m, i
    do m = 1, 5
      pivot = 1 / a(m, m)
      a(m, m + 1:) = a(m, m + 1:) * pivot
      row(m, :) = row(m, :) * pivot
      do i = 1, 5
        if (i == m) cycle
        factor = a(i, m)
        a(i, m + 1:) = a(i, m + 1:) - factor * a(m, m + 1:)
        row(i, :) = row(i, :) - factor * row(m, :)
      end do
    end do
  end subroutine solve_5

  ! And up again: what came is the first point of the slab behind.
  subroutine substitute(k, c, rows_in, rows_out)
    integer, intent(in) :: k, c
    real(dp), intent(in) :: rows_in(:, :)
    real(dp), intent(inout) :: rows_out(:, :)
    real(dp) :: next(5)
    integer :: from(3), to(3), i, j, x, here, inner, outer, line
    from = low(pieces(c))
    to = high(of%n, pieces(c))
    inner = merge(2, 1, k == 1)
    outer = merge(2, 3, k == 3)
    line = 0
    do j = from(outer), to(outer)
      do i = from(inner), to(inner)
        line = line + 1
        next = rows_in(:, line)
        do x = to(k), from(k), -1
          associate (p => pieces(c))
            here = p%origin + i * p%stride(inner) + j * p%stride(outer) + x * p%stride(k)
          end associate
          next = pieces(c)%rhs(:, here) - matmul(kept(c)%upper(:, :, here), next)
          pieces(c)%rhs(:, here) = next
        end do
        rows_out(:, line) = next
      end do
    end do
  end subroutine substitute
end module nas_bt_steps

program nas_bt
  use mpi
  use nas_cfd
  use nas_multi
  use nas_bt_steps
  implicit none
  integer :: ierror, step
  real(dp) :: begun, took, residual(5), error(5), off
  logical :: right

  call MPI_Init(ierror)
  of = CLASSES(class_of('bt', CLASSES))
  n = of%n
  call deal_out('bt', of%n)
  call make_room()
  call all_forcings()
  ! One step to touch all memory; then anew.
  call all_initial_values()
  call one_step()
  call all_initial_values()
  begun = begin()
  do step = 1, of%steps
    call one_step()
  end do
  took = MPI_Wtime() - begun
  call all_right_hand_sides()
  call norms(of%n, pieces, residual, error)
  off = 0
  right = is_as_published('bt', of, residual, error, off)
  ! The operations are as NAS counts them.
  call tell('bt', of, took, of%steps * (3478.8_dp * n**3 - 17655.7_dp * n**2 + 28023.7_dp * n), off, right)
end program nas_bt
