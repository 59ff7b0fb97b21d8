! NAS Parallel Benchmark SP: implicit time steps by diagonalised solves (Pulliam and Chaussee), five scalar pentadiagonal systems a line,
! by MPI. See cfd.f90.
!
!   mpiexec -n 4 ./sp [--class S|W|A]          on 1, 4, 9, ... processes
!
! The cube is dealt out in multi-partitions: q*q processes have q pieces each, one in every slab of each direction, so that all work at
! each stage of a solve, and the next piece of all of a process's pieces is always the same process's. A step sends six messages with
! the faces of all pieces, and for each direction of solving q-1 forward with the last two rows of the elimination and q-1 back with the
! first two of the solution: few messages, long ones from class A on, none blocking.
program nas_sp
  use mpi
  use nas_cfd
  implicit none

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
  ! Tags: what comes forward and back in a direction, and faces from before and behind.
  integer, parameter :: TAG_FORWARD = 10, TAG_BACK = 20, TAG_BEFORE = 30, TAG_BEHIND = 40

  ! What of the elimination is kept for the way back, and what of u is used again and again: the speed of sound, 1 by density.
  type :: scratch
    real(dp), allocatable :: band(:, :), sound(:), inverse(:)
  end type scratch

  type(piece), allocatable :: pieces(:)
  type(scratch), allocatable :: kept(:)
  ! In each direction, which of my pieces is in which slab; whose pieces are before and behind mine.
  integer, allocatable :: in_slab(:, :)
  integer :: before(3), behind(3), q
  real(dp), allocatable :: faces_out(:, :), faces_in(:, :)
  type(size_class) :: of
  integer :: ranks, rank, ierror, step
  real(dp) :: begun, took, n, residual(5), error(5), off
  logical :: right

  call MPI_Init(ierror)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierror)
  of = CLASSES(class_of('sp', CLASSES))
  n = of%n
  call deal_out()
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

contains

  ! Process (i, j) has in slab c of z the piece at i+c of x and j-c of y, in a ring.
  subroutine deal_out()
    integer :: c, i, j, k, place(3), from(3), extent(3), most
    q = nint(sqrt(real(ranks)))
    if (q * q /= ranks) call give_up('sp: 1, 4, 9 or another square number of processes is wanted')
    if (of%n / q < AROUND + 1) call give_up('sp: too many processes for so few points')
    i = mod(rank, q)
    j = rank / q
    allocate (pieces(q), kept(q), in_slab(q, 3))
    do c = 0, q - 1
      place = [modulo(i + c, q), modulo(j - c, q), c]
      do k = 1, 3
        in_slab(place(k) + 1, k) = c + 1
        from(k) = block_start(of%n, q, place(k))
        extent(k) = block_start(of%n, q, place(k) + 1) - from(k)
      end do
      pieces(c + 1) = new_piece(from, extent)
      associate (points => pieces(c + 1)%points)
        allocate (kept(c + 1)%band(6, points), kept(c + 1)%sound(points), kept(c + 1)%inverse(points))
      end associate
      kept(c + 1)%sound = 0
      kept(c + 1)%inverse = 0
    end do
    behind = [process(i + 1, j), process(i, j + 1), process(i - 1, j + 1)]
    before = [process(i - 1, j), process(i, j - 1), process(i + 1, j - 1)]
    most = 5 * AROUND * q * (of%n / q + 1)**2
    allocate (faces_out(most, 6), faces_in(most, 6))
  end subroutine deal_out

  pure integer function process(i, j)
    integer, intent(in) :: i, j
    process = modulo(i, q) + q * modulo(j, q)
  end function process

  subroutine all_forcings()
    integer :: c
    do c = 1, q
      call make_forcing(of%n, pieces(c))
    end do
  end subroutine all_forcings

  subroutine all_initial_values()
    integer :: c
    do c = 1, q
      call initial_values(of%n, pieces(c))
    end do
  end subroutine all_initial_values

  subroutine all_right_hand_sides()
    integer :: c
    do c = 1, q
      call right_hand_side(of%n, pieces(c))
    end do
  end subroutine all_right_hand_sides

  subroutine one_step()
    integer :: c
    call all_right_hand_sides()
    do c = 1, q
      call look_up(pieces(c), kept(c))
      pieces(c)%rhs = of%dt * pieces(c)%rhs
    end do
    call change(0)
    call solve(1)
    call change(1)
    call solve(2)
    call change(2)
    call solve(3)
    call change(3)
    do c = 1, q
      pieces(c)%u = pieces(c)%u + pieces(c)%rhs
    end do
    call surround()
  end subroutine one_step

  ! Two layers from the six processes around; all six at once.
  subroutine surround()
    integer :: requests(12), k, sent(6), come(6)
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
    do c = 1, q
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

  ! Solves along all lines of direction k, through the slabs and back. What comes for the next stage is asked for before this one is done.
  subroutine solve(k)
    integer, intent(in) :: k
    real(dp), allocatable, save :: rows_in(:, :, :), rows_out(:, :), solved_in(:, :, :), solved_out(:, :)
    integer :: s, most, request_in, request_out
    most = (of%n / q + 1)**2
    if (.not. allocated(rows_in)) &
      allocate (rows_in(FORWARD, most, 0:1), rows_out(FORWARD, most), solved_in(BACK, most, 0:1), solved_out(BACK, most))
    request_in = MPI_REQUEST_NULL
    request_out = MPI_REQUEST_NULL
    rows_in(:, :, 1) = 0
    do s = 1, q
      call came(request_in, FORWARD * lines_of(s, k))
      if (s < q) call expect(before(k), TAG_FORWARD + k, FORWARD * lines_of(s + 1, k), rows_in(:, :, mod(s + 1, 2)), request_in)
      call finished(request_out)
      call eliminate(k, pieces(in_slab(s, k)), kept(in_slab(s, k)), rows_in(:, :, mod(s, 2)), rows_out)
      if (s < q) call put(behind(k), TAG_FORWARD + k, FORWARD * lines_of(s, k), rows_out, request_out)
    end do
    solved_in(:, :, mod(q, 2)) = 0
    do s = q, 1, -1
      call came(request_in, BACK * lines_of(s, k))
      if (s > 1) call expect(behind(k), TAG_BACK + k, BACK * lines_of(s - 1, k), solved_in(:, :, mod(s - 1, 2)), request_in)
      call finished(request_out)
      call substitute(k, pieces(in_slab(s, k)), kept(in_slab(s, k)), solved_in(:, :, mod(s, 2)), solved_out)
      if (s > 1) call put(before(k), TAG_BACK + k, BACK * lines_of(s, k), solved_out, request_out)
    end do
    call finished(request_out)
  end subroutine solve

  ! Lines of direction k through my piece in this slab of it.
  integer function lines_of(s, k)
    integer, intent(in) :: s, k
    integer :: inner(3)
    inner = high(of%n, pieces(in_slab(s, k))) - low(pieces(in_slab(s, k))) + 1
    lines_of = product(inner) / inner(k)
  end function lines_of

  subroutine expect(from, tag, numbers, buffer, request)
    integer, intent(in) :: from, tag, numbers
    real(dp), intent(inout), contiguous :: buffer(:, :)
    integer, intent(out) :: request
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
    call into_mpi()
    call MPI_Isend(buffer, numbers, MPI_DOUBLE_PRECISION, to, tag, MPI_COMM_WORLD, request, ierror)
    call out_of_mpi()
  end subroutine put

  subroutine finished(request)
    integer, intent(inout) :: request
    if (request == MPI_REQUEST_NULL) return
    call into_mpi()
    call MPI_Wait(request, MPI_STATUS_IGNORE, ierror)
    call out_of_mpi()
  end subroutine finished

  ! Down a slab: each row is freed of the two before it and divided by its diagonal. What came are the last two rows of the slab before.
  subroutine eliminate(k, p, s, rows_in, rows_out)
    integer, intent(in) :: k
    type(piece), intent(inout) :: p
    type(scratch), intent(inout) :: s
    real(dp), intent(in) :: rows_in(:, :)
    real(dp), intent(inout) :: rows_out(:, :)
    integer :: from(3), to(3), i, j, inner, outer, line
    from = low(p)
    to = high(of%n, p)
    inner = merge(2, 1, k == 1)
    outer = merge(2, 3, k == 3)
    line = 0
    do j = from(outer), to(outer)
      do i = from(inner), to(inner)
        line = line + 1
        call eliminate_line(k, p%first(k), from(k), to(k), p%origin + i * p%stride(inner) + j * p%stride(outer), p%stride(k), &
                            p%points, p%u, s%inverse, s%sound, p%rhs, s%band, rows_in(:, line), rows_out(:, line))
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
  subroutine substitute(k, p, s, rows_in, rows_out)
    integer, intent(in) :: k
    type(piece), intent(inout) :: p
    type(scratch), intent(in) :: s
    real(dp), intent(in) :: rows_in(:, :)
    real(dp), intent(inout) :: rows_out(:, :)
    real(dp) :: next(5, 2)
    integer :: from(3), to(3), i, j, x, here, inner, outer, line
    from = low(p)
    to = high(of%n, p)
    inner = merge(2, 1, k == 1)
    outer = merge(2, 3, k == 3)
    line = 0
    do j = from(outer), to(outer)
      do i = from(inner), to(inner)
        line = line + 1
        next = reshape(rows_in(:, line), [5, 2])
        do x = to(k), from(k), -1
          here = p%origin + i * p%stride(inner) + j * p%stride(outer) + x * p%stride(k)
          associate (r => p%rhs(:, here), b => s%band(:, here))
            r = r - [b(1), b(1), b(1), b(3), b(5)] * next(:, 1) - [b(2), b(2), b(2), b(4), b(6)] * next(:, 2)
            next(:, 2) = next(:, 1)
            next(:, 1) = r
          end associate
        end do
        rows_out(:, line) = reshape(next, [BACK])
      end do
    end do
  end subroutine substitute
end program nas_sp
