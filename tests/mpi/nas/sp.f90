! NAS Parallel Benchmark SP: implicit time steps by diagonalised solves (Pulliam and Chaussee), five scalar pentadiagonal systems a line,
! by MPI. See cfd.f90 and multi.f90.
!
!   mpiexec -n 4 ./sp [--class S|W|A]          on 1, 4, 9, ... processes
!
! Forward go the last two rows of the elimination, and back the first two of the solution.
module nas_sp_steps
  use nas_cfd
  use nas_multi
  implicit none
  private
  public :: CLASSES, of, n, make_room, one_step

  type(size_class), parameter :: CLASSES(3) = [ &
    size_class('S', 12, 100, 0.015_dp, &
      [2.7470315451339479e-02_dp, 1.0360746705285417e-02_dp, 1.6235745065095532e-02_dp, 1.5840557224455615e-02_dp, &
       3.4849040609362460e-02_dp], &
      [2.7289258557377227e-05_dp, 1.0364446640837285e-05_dp, 1.6154798287166471e-05_dp, 1.5750704994480102e-05_dp, &
       3.4177666183390531e-05_dp], 0.0_dp), &
    size_class('W', 36, 400, 0.0015_dp, &
      [0.1893253733584e-02_dp, 0.1717075447775e-03_dp, 0.2778153350936e-03_dp, 0.2887475409984e-03_dp, 0.3143611161242e-02_dp], &
      [0.7542088599534e-04_dp, 0.6512852253086e-05_dp, 0.1049092285688e-04_dp, 0.1128838671535e-04_dp, 0.1212845639773e-03_dp], &
      0.0_dp), &
    size_class('A', 64, 400, 0.0015_dp, &
      [2.4799822399300195_dp, 1.1276337964368832_dp, 1.5028977888770491_dp, 1.4217816211695179_dp, 2.1292113035138280_dp], &
      [1.0900140297820550e-04_dp, 3.7343951769282091e-05_dp, 5.0092785406541633e-05_dp, 4.7671093939528255e-05_dp, &
       1.3621613399213001e-04_dp], 0.0_dp)]
  real(dp), parameter :: HALF_ROOT = sqrt(0.5_dp)
  ! Numbers of a line that go forward: of each of the last two rows two coefficients of three systems, and five right-hand sides. And back.
  integer, parameter :: FORWARD = 22, BACK = 10

  ! What of the elimination is kept for the way back, and what of u is used again and again: the speed of sound, 1 by density.
  type :: scratch
    real(dp), allocatable :: band(:, :), sound(:), inverse(:)
  end type scratch

  type(scratch), allocatable :: kept(:)
  type(size_class) :: of
  real(dp) :: n

contains

  subroutine make_room()
    integer :: c
    allocate (kept(size(pieces)))
    do c = 1, size(pieces)
      associate (points => pieces(c)%points)
        allocate (kept(c)%band(6, points), kept(c)%sound(points), kept(c)%inverse(points))
      end associate
      kept(c)%sound = 0
      kept(c)%inverse = 0
    end do
  end subroutine make_room

  subroutine one_step()
    integer :: c
    call all_right_hand_sides()
    do c = 1, size(pieces)
      call look_up(pieces(c), kept(c))
      pieces(c)%rhs = of%dt * pieces(c)%rhs
    end do
    call change(0)
    call solve(1, FORWARD, BACK, eliminate, substitute)
    call change(1)
    call solve(2, FORWARD, BACK, eliminate, substitute)
    call change(2)
    call solve(3, FORWARD, BACK, eliminate, substitute)
    call change(3)
    do c = 1, size(pieces)
      pieces(c)%u = pieces(c)%u + pieces(c)%rhs
    end do
    call surround()
  end subroutine one_step

  ! Speed of sound and 1 by density of a piece and what is around it.
  subroutine look_up(p, s)
    type(piece), intent(in) :: p
    type(scratch), intent(inout) :: s
    integer :: i
    do i = 1, p%points
      ! Nothing is known behind the edges of a piece, and nothing asked.
      if (p%u(1, i) <= 0) cycle
      s%inverse(i) = 1 / p%u(1, i)
      s%sound(i) = sqrt(C1 * C2 * s%inverse(i) * (p%u(5, i) - 0.5_dp * s%inverse(i) * (p%u(2, i)**2 + p%u(3, i)**2 + p%u(4, i)**2)))
    end do
  end subroutine look_up

  ! All inner points into the eigenvectors of x (0), from those of x to y's (1), y to z (2), and back to conserved quantities (3).
  subroutine change(which)
    integer, intent(in) :: which
    integer :: c, x, y, z, here, from(3), to(3)
    do c = 1, size(pieces)
      from = low(pieces(c))
      to = high(of%n, pieces(c))
      do z = from(3), to(3)
        do y = from(2), to(2)
          do x = from(1), to(1)
            here = in_piece(pieces(c), x, y, z)
            associate (u => pieces(c)%u(:, here), r => pieces(c)%rhs(:, here), &
                       a => kept(c)%sound(here), over => kept(c)%inverse(here))
              select case (which)
              case (0)
                r = to_x(u, over, a, r)
              case (1)
                r = [-r(2), r(1), HALF_ROOT * (r(4) - r(5)), 0.5_dp * (r(4) + r(5)) - HALF_ROOT * r(3), &
                     0.5_dp * (r(4) + r(5)) + HALF_ROOT * r(3)]
              case (2)
                r = [HALF_ROOT * (r(4) - r(5)), -r(3), r(2), 0.5_dp * (r(4) + r(5)) - HALF_ROOT * r(1), &
                     0.5_dp * (r(4) + r(5)) + HALF_ROOT * r(1)]
              case default
                r = from_z(u, over, a, r)
              end select
            end associate
          end do
        end do
      end do
    end do
  end subroutine change

  pure function to_x(u, over, a, r) result(out)
    real(dp), intent(in) :: u(5), over, a, r(5)
    real(dp) :: out(5), v(3), t1, t2, t3
    v = u(2:4) * over
    t1 = C2 / a**2 * (0.5_dp * sum(v**2) * r(1) - sum(v * r(2:4)) + r(5))
    t2 = HALF_ROOT * over * (v(1) * r(1) - r(2))
    t3 = HALF_ROOT * over * a * t1
    out = [r(1) - t1, -over * (v(3) * r(1) - r(4)), over * (v(2) * r(1) - r(3)), t3 - t2, t3 + t2]
  end function to_x

  pure function from_z(u, over, a, r) result(out)
    real(dp), intent(in) :: u(5), over, a, r(5)
    real(dp) :: out(5), v(3), t1, t2, t3
    v = u(2:4) * over
    t1 = HALF_ROOT * u(1) / a * (r(4) + r(5))
    t2 = r(3) + t1
    t3 = HALF_ROOT * u(1) * (r(4) - r(5))
    out = [t2, v(1) * t2 - u(1) * r(2), v(2) * t2 + u(1) * r(1), v(3) * t2 + t3, &
           u(1) * (v(2) * r(1) - v(1) * r(2)) + 0.5_dp * sum(v**2) * t2 + a**2 * t1 / C2 + v(3) * t3]
  end function from_z

  ! Down a slab: each row is freed of the two before it and divided by its diagonal. What came are the last two rows of the slab before.
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
        associate (p => pieces(c), s => kept(c))
          call eliminate_line(k, p%first(k), from(k), to(k), p%origin + i * p%stride(inner) + j * p%stride(outer), p%stride(k), &
                              p%points, p%u, s%inverse, s%sound, p%rhs, s%band, rows_in(:, line), rows_out(:, line))
        end associate
      end do
    end do
  end subroutine eliminate

  ! The eigenvalues are v three times, v + a and v - a: three matrices, of which each point keeps what is behind the diagonal.
  subroutine eliminate_line(k, first, from, to, base, stride, points, u, inverse, sound, rhs, band, row_in, row_out)
    integer, intent(in) :: k, first, from, to, base, stride, points
    real(dp), intent(in) :: u(5, points), inverse(points), sound(points), row_in(FORWARD)
    real(dp), intent(inout) :: rhs(5, points), band(6, points), row_out(FORWARD)
    integer, parameter :: OF_SYSTEM(2, 3) = reshape([1, 3, 4, 4, 5, 5], [2, 3])
    real(dp), parameter :: SPEED(3) = [0.0_dp, 1.0_dp, -1.0_dp]
    real(dp) :: t1, t2, fourth, v(3), a(3), drag(3), row(5), r0, r1, r2, r3, r4, factor, kept(FORWARD / 2, 2)
    integer :: i, here, place, m, f, l
    t1 = of%dt * (n - 1)**2
    t2 = of%dt * 0.5_dp * (n - 1)
    fourth = of%dt * DISSIPATION
    kept = reshape(row_in, [FORWARD / 2, 2])
    do i = 2, 3
      here = base + (from + i - 3) * stride
      call eigenvalues(k, u(1 + k, here), inverse(here), sound(here), v(i), a(i), drag(i))
    end do
    do i = from, to
      here = base + i * stride
      v(1:2) = v(2:3)
      a(1:2) = a(2:3)
      drag(1:2) = drag(2:3)
      call eigenvalues(k, u(1 + k, here + stride), inverse(here + stride), sound(here + stride), v(3), a(3), drag(3))
      place = first + i
      row = [fourth, -t2 * v(1) - t1 * drag(1) - 4 * fourth, 1 + 2 * t1 * drag(2) + 6 * fourth, &
             t2 * v(3) - t1 * drag(3) - 4 * fourth, fourth]
      if (place == 1 .or. place == of%n - 2) row(3) = row(3) - fourth
      if (place <= 2) row(1) = 0
      if (place >= of%n - 3) row(5) = 0
      do m = 1, 3
        f = OF_SYSTEM(1, m)
        l = OF_SYSTEM(2, m)
        r0 = row(1)
        r1 = row(2) - SPEED(m) * t2 * a(1)
        r2 = row(3)
        r3 = row(4) + SPEED(m) * t2 * a(3)
        r4 = row(5)
        r1 = r1 - r0 * kept(2 * m - 1, 1)
        r2 = r2 - r0 * kept(2 * m, 1)
        r2 = r2 - r1 * kept(2 * m - 1, 2)
        r3 = r3 - r1 * kept(2 * m, 2)
        factor = 1 / r2
        rhs(f:l, here) = factor * (rhs(f:l, here) - r0 * kept(6 + f:6 + l, 1) - r1 * kept(6 + f:6 + l, 2))
        band(2 * m - 1, here) = factor * r3
        band(2 * m, here) = factor * r4
      end do
      kept(:, 1) = kept(:, 2)
      kept(1:6, 2) = band(:, here)
      kept(7:11, 2) = rhs(:, here)
    end do
    row_out = reshape(kept, [FORWARD])
  end subroutine eliminate_line

  ! What a row has of a point: the speed along the line and that of sound, and the drag (the greatest of the four that the specification
  ! compares).
  pure subroutine eigenvalues(k, momentum, inverse, sound, v, a, drag)
    integer, intent(in) :: k
    real(dp), intent(in) :: momentum, inverse, sound
    real(dp), intent(out) :: v, a, drag
    v = momentum * inverse
    a = sound
    drag = DIFFUSION(k) + max(ONE_AT_SPEED, C15) * C34 * inverse
  end subroutine eigenvalues

  ! And up again: what came are the first two rows of the slab behind.
  subroutine substitute(k, c, rows_in, rows_out)
    integer, intent(in) :: k, c
    real(dp), intent(in) :: rows_in(:, :)
    real(dp), intent(inout) :: rows_out(:, :)
    real(dp) :: next(5, 2)
    integer :: from(3), to(3), i, j, x, here, inner, outer, line
    from = low(pieces(c))
    to = high(of%n, pieces(c))
    inner = merge(2, 1, k == 1)
    outer = merge(2, 3, k == 3)
    line = 0
    do j = from(outer), to(outer)
      do i = from(inner), to(inner)
        line = line + 1
        next = reshape(rows_in(:, line), [5, 2])
        do x = to(k), from(k), -1
          associate (p => pieces(c))
            here = p%origin + i * p%stride(inner) + j * p%stride(outer) + x * p%stride(k)
          end associate
          associate (r => pieces(c)%rhs(:, here), b => kept(c)%band(:, here))
            r = r - [b(1), b(1), b(1), b(3), b(5)] * next(:, 1) - [b(2), b(2), b(2), b(4), b(6)] * next(:, 2)
            next(:, 2) = next(:, 1)
            next(:, 1) = r
          end associate
        end do
        rows_out(:, line) = reshape(next, [BACK])
      end do
    end do
  end subroutine substitute
end module nas_sp_steps

program nas_sp
  use mpi
  use nas_cfd
  use nas_multi
  use nas_sp_steps
  implicit none
  integer :: ierror, step
  real(dp) :: begun, took, residual(5), error(5), off
  logical :: right

  call MPI_Init(ierror)
  of = CLASSES(class_of('sp', CLASSES))
  n = of%n
  call deal_out('sp', of%n)
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
  right = is_as_published('sp', of, residual, error, off)
  ! The operations are as NAS counts them.
  call tell('sp', of, took, of%steps * (881.174_dp * n**3 - 4683.91_dp * n**2 + 11484.5_dp * n - 19272.4_dp), off, right)
end program nas_sp
