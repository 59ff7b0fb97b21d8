! The primitives from Fortran: a ring of puts, gets and messages. Prints the number of processes.
program ring
    use, intrinsic :: iso_c_binding
    use bsp
    implicit none
    integer(c_int), target :: x(4), me, got, tag
    integer(c_int) :: p, right, left
    integer(bsp_size) :: size, messages, bytes
    integer(c_ptrdiff_t) :: status
    type(c_ptr) :: tag_at, payload_at
    integer(c_int), pointer :: payload

    call bsp_begin()
    p = bsp_nprocs()
    me = bsp_pid()
    right = modulo(me + 1, p)
    left = modulo(me - 1, p)
    x = -1
    got = -1
    call bsp_push_reg(c_loc(x), 16_bsp_size)
    size = 4
    call bsp_set_tagsize(size)
    if (size /= 0) call bsp_abort("tags had a size")
    call bsp_sync()
    call bsp_put(right, c_loc(me), c_loc(x), 4_bsp_size, 4_bsp_size)
    call bsp_hpput(right, c_loc(me), c_loc(x), 12_bsp_size, 4_bsp_size)
    call bsp_get(right, c_loc(x), 0_bsp_size, c_loc(got), 4_bsp_size)
    tag = 7 + me
    call bsp_send(right, c_loc(tag), c_loc(me), 4_bsp_size)
    call bsp_send(right, c_loc(tag), c_loc(me), 4_bsp_size)
    call bsp_sync()
    if (x(2) /= left .or. x(4) /= left .or. x(1) /= -1 .or. got /= -1) call bsp_abort("puts or gets are wrong")
    call bsp_qsize(messages, bytes)
    if (messages /= 2 .or. bytes /= 8) call bsp_abort("the queue is wrong")
    call bsp_get_tag(status, c_loc(tag))
    if (status /= 4 .or. tag /= 7 + left) call bsp_abort("the tag is wrong")
    got = -1
    call bsp_move(c_loc(got), 4_bsp_size)
    if (got /= left) call bsp_abort("the payload is wrong")
    if (bsp_hpmove(tag_at, payload_at) /= 4) call bsp_abort("bsp_hpmove is wrong")
    call c_f_pointer(payload_at, payload)
    if (payload /= left) call bsp_abort("the payload in the queue is wrong")
    if (bsp_hpmove(tag_at, payload_at) /= -1) call bsp_abort("the queue is not empty")
    if (bsp_time() < 0) call bsp_abort("time goes back")
    call bsp_pop_reg(c_loc(x))
    if (me == 0) print "(i0)", p
    call bsp_end()
end program
