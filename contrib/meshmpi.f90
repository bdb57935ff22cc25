! What a Fortran program may tell and ask meshd of its traffic: see meshmpi.h. Compile
! this file with the program, or include it behind one; nothing is linked.
!
!     integer :: maxrate, matb, ierr
!     integer(kind=MPI_ADDRESS_KIND) :: rate
!     logical :: there
!     call mesh_keyvals(maxrate, matb, there)             ! after MPI_Init
!     if (there) call MPI_Comm_get_attr(MPI_COMM_WORLD, maxrate, rate, there, ierr)
!     if (there) call MPI_Comm_set_attr(MPI_COMM_WORLD, matb, rate / 4, ierr)
!
! Rates are in kbyte/s. MPI_ATTR_GET and MPI_ATTR_PUT, with default integers, do the
! same.

! mesh_keyvals gives the keyvals of the attributes MAXRATE and MATB; there is .false.,
! and they are left alone, where no library answers.
subroutine mesh_keyvals(maxrate, matb, there)
  use, intrinsic :: iso_c_binding
  implicit none
  integer, intent(inout) :: maxrate, matb
  logical, intent(out) :: there
  interface
    function dlsym(handle, name) bind(c, name='dlsym')
      import :: c_ptr, c_funptr, c_char
      type(c_ptr), value :: handle
      character(kind=c_char), intent(in) :: name(*)
      type(c_funptr) :: dlsym
    end function dlsym
  end interface
  abstract interface
    function keyvals(maxrate, matb) bind(c)
      import :: c_int
      integer(c_int), intent(inout) :: maxrate, matb
      integer(c_int) :: keyvals
    end function keyvals
  end interface
  type(c_funptr) :: address
  procedure(keyvals), pointer :: ask
  integer(c_int) :: a, b
  there = .false.
  address = dlsym(c_null_ptr, 'meshmpi_keyvals' // c_null_char)
  if (.not. c_associated(address)) return
  call c_f_procpointer(address, ask)
  there = ask(a, b) == 0
  if (there) then
    maxrate = a
    matb = b
  end if
end subroutine mesh_keyvals
