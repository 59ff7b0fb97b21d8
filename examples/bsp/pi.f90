! Pi by the midpoint rule in Fortran: each process adds up its share of the strips, all shares come together at process 0.
!
!   weir cc -O2 examples/bsp/pi.f90 -o pi && weir run -n 4 ./pi
!
! Memory is named by c_loc of a variable that has the attribute target. One superstep: w = 4 n / p operations, h = 8 (p - 1) bytes,
!   T = 4 n / (p s) + 8 (p - 1) g + l
program pi
    use, intrinsic :: iso_c_binding
    use bsp
    implicit none
    integer, parameter :: strips = 1000000
    real(c_double), allocatable, target :: shares(:)
    real(c_double), target :: share
    real(c_double) :: x
    integer(bsp_size) :: at
    integer :: i, p, me

    call bsp_begin()
    p = bsp_nprocs()
    me = bsp_pid()
    allocate (shares(p))
    call bsp_push_reg(c_loc(shares), int(8 * p, bsp_size))
    call bsp_sync()

    share = 0
    do i = me, strips - 1, p
        x = (i + 0.5d0) / strips
        share = share + 4 / (1 + x * x) / strips
    end do
    at = 8 * me
    call bsp_put(0, c_loc(share), c_loc(shares), at, 8_bsp_size)
    call bsp_sync()

    if (me == 0) then
        ! The rule is off by less than 1 / (12 strips^2), and by what rounding adds.
        if (abs(sum(shares) - acos(-1d0)) > 1d-11) call bsp_abort("this is not pi")
        print '(a,f14.12,a,i0,a)', 'pi is ', sum(shares), ', by ', p, ' processes'
    end if
    call bsp_pop_reg(c_loc(shares))
    call bsp_sync()
    call bsp_end()
end program
