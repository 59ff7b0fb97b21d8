! BSPlib for Fortran 2003 and later, on Weir: the primitives of bsp.h by their names. Compile it with the program:
!
!     gfortran -c bsp.f90 && gfortran program.f90 bsp.o -L... -lweir-bsp
!     weir cc bsp.f90 program.f90 -o program
!
! Memory is named by c_loc of a variable that has the attribute target. Sizes are bytes, of kind bsp_size.
! What each primitive does is in bsp.h, weir-bsp(7) and spec/bsp.md.
module bsp
    use, intrinsic :: iso_c_binding, only: c_int, c_size_t, c_ptrdiff_t, c_double, c_ptr, c_null_ptr, c_char, &
        c_null_char, c_funptr, c_loc, c_sizeof
    implicit none
    private
    integer, parameter, public :: bsp_size = c_size_t

    public :: bsp_begin, bsp_end, bsp_init, bsp_abort, bsp_nprocs, bsp_pid, bsp_time, bsp_sync
    public :: bsp_push_reg, bsp_pop_reg, bsp_put, bsp_hpput, bsp_get, bsp_hpget
    public :: bsp_set_tagsize, bsp_send, bsp_qsize, bsp_get_tag, bsp_move, bsp_hpmove

    interface
        subroutine c_begin(maxprocs) bind(c, name="bsp_begin")
            import :: c_int
            integer(c_int), value :: maxprocs
        end subroutine
        subroutine bsp_end() bind(c, name="bsp_end")
        end subroutine
        subroutine c_init(spmd_part, argc, argv) bind(c, name="bsp_init")
            import :: c_int, c_ptr, c_funptr
            type(c_funptr), value :: spmd_part
            integer(c_int), value :: argc
            type(c_ptr), value :: argv
        end subroutine
        subroutine c_abort(text) bind(c, name="bsp_abort_text")
            import :: c_char
            character(kind=c_char), intent(in) :: text(*)
        end subroutine
        integer(c_int) function bsp_nprocs() bind(c, name="bsp_nprocs")
            import :: c_int
        end function
        integer(c_int) function bsp_pid() bind(c, name="bsp_pid")
            import :: c_int
        end function
        real(c_double) function bsp_time() bind(c, name="bsp_time")
            import :: c_double
        end function
        subroutine bsp_sync() bind(c, name="bsp_sync")
        end subroutine
        subroutine bsp_push_reg(addr, nbytes) bind(c, name="bsp_push_reg")
            import :: c_ptr, c_size_t
            type(c_ptr), value :: addr
            integer(c_size_t), value :: nbytes
        end subroutine
        subroutine bsp_pop_reg(addr) bind(c, name="bsp_pop_reg")
            import :: c_ptr
            type(c_ptr), value :: addr
        end subroutine
        subroutine bsp_put(pid, src, dst, offset, nbytes) bind(c, name="bsp_put")
            import :: c_int, c_ptr, c_size_t
            integer(c_int), value :: pid
            type(c_ptr), value :: src, dst
            integer(c_size_t), value :: offset, nbytes
        end subroutine
        subroutine bsp_hpput(pid, src, dst, offset, nbytes) bind(c, name="bsp_hpput")
            import :: c_int, c_ptr, c_size_t
            integer(c_int), value :: pid
            type(c_ptr), value :: src, dst
            integer(c_size_t), value :: offset, nbytes
        end subroutine
        subroutine bsp_get(pid, src, offset, dst, nbytes) bind(c, name="bsp_get")
            import :: c_int, c_ptr, c_size_t
            integer(c_int), value :: pid
            type(c_ptr), value :: src, dst
            integer(c_size_t), value :: offset, nbytes
        end subroutine
        subroutine bsp_hpget(pid, src, offset, dst, nbytes) bind(c, name="bsp_hpget")
            import :: c_int, c_ptr, c_size_t
            integer(c_int), value :: pid
            type(c_ptr), value :: src, dst
            integer(c_size_t), value :: offset, nbytes
        end subroutine
        subroutine c_set_tagsize(tag_nbytes, kind, place) bind(c, name="bsp_set_tagsize_at")
            import :: c_int, c_size_t, c_ptr
            integer(c_size_t), intent(inout) :: tag_nbytes
            integer(c_int), value :: kind
            type(c_ptr), value :: place
        end subroutine
        subroutine bsp_send(pid, tag, payload, nbytes) bind(c, name="bsp_send")
            import :: c_int, c_ptr, c_size_t
            integer(c_int), value :: pid
            type(c_ptr), value :: tag, payload
            integer(c_size_t), value :: nbytes
        end subroutine
        subroutine c_qsize(messages, messages_kind, bytes, bytes_kind, place) bind(c, name="bsp_qsize_at")
            import :: c_int, c_size_t, c_ptr
            integer(c_size_t), intent(out) :: messages, bytes
            integer(c_int), value :: messages_kind, bytes_kind
            type(c_ptr), value :: place
        end subroutine
        subroutine c_get_tag(status, kind, tag, place) bind(c, name="bsp_get_tag_at")
            import :: c_int, c_ptrdiff_t, c_ptr
            integer(c_ptrdiff_t), intent(out) :: status
            integer(c_int), value :: kind
            type(c_ptr), value :: tag, place
        end subroutine
        subroutine bsp_move(payload, nbytes) bind(c, name="bsp_move")
            import :: c_ptr, c_size_t
            type(c_ptr), value :: payload
            integer(c_size_t), value :: nbytes
        end subroutine
        integer(c_ptrdiff_t) function bsp_hpmove(tag, payload) bind(c, name="bsp_hpmove")
            import :: c_ptr, c_ptrdiff_t
            type(c_ptr), intent(out) :: tag, payload
        end function
    end interface

contains

    ! At most this many processes take part; all that there are, if it is not given.
    subroutine bsp_begin(maxprocs)
        integer, intent(in), optional :: maxprocs
        if (present(maxprocs)) then
            call c_begin(int(maxprocs, c_int))
        else
            call c_begin(bsp_nprocs())
        end if
    end subroutine

    ! c_funloc of a subroutine with bind(c) and no arguments.
    subroutine bsp_init(spmd_part)
        type(c_funptr), intent(in) :: spmd_part
        call c_init(spmd_part, 0_c_int, c_null_ptr)
    end subroutine

    subroutine bsp_abort(text)
        character(len=*), intent(in) :: text
        character(kind=c_char) :: chars(len(text) + 1)
        integer :: i
        do i = 1, len(text)
            chars(i) = text(i:i)
        end do
        chars(len(text) + 1) = c_null_char
        call c_abort(chars)
    end subroutine

    subroutine bsp_set_tagsize(tag_nbytes)
        integer(bsp_size), intent(inout) :: tag_nbytes
        call c_set_tagsize(tag_nbytes, int(c_sizeof(tag_nbytes), c_int), c_null_ptr)
    end subroutine

    subroutine bsp_qsize(messages, bytes)
        integer(bsp_size), intent(out) :: messages, bytes
        call c_qsize(messages, int(c_sizeof(messages), c_int), bytes, int(c_sizeof(bytes), c_int), c_null_ptr)
    end subroutine

    ! Status: bytes of the first message's payload; -1 if there is none.
    subroutine bsp_get_tag(status, tag)
        integer(c_ptrdiff_t), intent(out) :: status
        type(c_ptr), intent(in) :: tag
        call c_get_tag(status, -int(c_sizeof(status), c_int), tag, c_null_ptr)
    end subroutine
end module
