! Calls the all-to-alls of mpi_f08 and the attributes, and waits for a line on rank 0's
! standard input before it ends.
program pattern
  use mpi_f08
  implicit none
  integer, parameter :: n = 16
  integer :: rank, size, ierr = 0, i
  type(MPI_Request) :: request, requests(2)
  type(MPI_Status) :: statuses(2), status
  integer :: from(64 * n), to(64 * n), counts(64), displs(64), bytes(64), at(2), found
  type(MPI_Datatype) :: types(64)
  integer :: maxrate, matb
  integer(kind=MPI_ADDRESS_KIND) :: rate
  logical :: there, flag
  character(len=80) :: line
  call MPI_INIT(ierr)
  call MPI_COMM_RANK(MPI_COMM_WORLD, rank, ierr)
  call MPI_COMM_SIZE(MPI_COMM_WORLD, size, ierr)
  do i = 1, size
    counts(i) = n
    displs(i) = (i - 1) * n
    bytes(i) = (i - 1) * n * 4
    types(i) = MPI_INTEGER
  end do
  call fresh
  call MPI_ALLTOALL(from, n, MPI_INTEGER, to, n, MPI_INTEGER, MPI_COMM_WORLD)
  call check(1)
  call MPI_ALLTOALLV(from, counts, displs, MPI_INTEGER, to, counts, displs, MPI_INTEGER, MPI_COMM_WORLD, ierr)
  call check(2)
  call MPI_ALLTOALLW(from, counts, bytes, types, to, counts, bytes, types, MPI_COMM_WORLD, ierr)
  call check(3)
  call MPI_IALLTOALL(from, n, MPI_INTEGER, to, n, MPI_INTEGER, MPI_COMM_WORLD, request)
  call MPI_WAIT(request, status)
  call check(4)
  call MPI_IALLTOALLV(from, counts, displs, MPI_INTEGER, to, counts, displs, MPI_INTEGER, MPI_COMM_WORLD, requests(2), ierr)
  requests(1) = MPI_REQUEST_NULL
  call MPI_WAITALL(2, requests, statuses, ierr)
  call check(5)
  call MPI_IALLTOALLW(from, counts, bytes, types, to, counts, bytes, types, MPI_COMM_WORLD, requests(2), ierr)
  call MPI_WAITANY(2, requests, i, status, ierr)
  if (i /= 2 .and. i /= 1) call wrong(6) ! MPICH 4.0.2 counts from 0 here
  call check(6)
  call MPI_IALLTOALL(from, n, MPI_INTEGER, to, n, MPI_INTEGER, MPI_COMM_WORLD, request)
  flag = .false.
  do while (.not. flag)
    call MPI_TEST(request, flag, MPI_STATUS_IGNORE, ierr)
  end do
  call check(7)
  call MPI_IALLTOALL(from, n, MPI_INTEGER, to, n, MPI_INTEGER, MPI_COMM_WORLD, requests(2), ierr)
  call MPI_WAITSOME(2, requests, found, at, statuses, ierr)
  call check(8)

  call mesh_keyvals(maxrate, matb, there)
  if (there) then
    call MPI_COMM_GET_ATTR(MPI_COMM_WORLD, maxrate, rate, flag, ierr)
    if (.not. flag .or. rate /= 12500) call wrong(20)
    call MPI_COMM_SET_ATTR(MPI_COMM_WORLD, matb, rate / 5, ierr)
    call MPI_COMM_GET_ATTR(MPI_COMM_WORLD, matb, rate, flag)
    if (.not. flag .or. rate /= 2500) call wrong(21)
    rate = 1250
    call MPI_COMM_SET_ATTR(MPI_COMM_WORLD, matb, rate)
  end if
  call MPI_COMM_GET_ATTR(MPI_COMM_WORLD, MPI_TAG_UB, rate, flag, ierr)
  if (.not. flag .or. rate < 32767) call wrong(24)
  call MPI_BARRIER(MPI_COMM_WORLD, ierr)
  if (rank == 0) then
    print '(a)', 'at done'
    flush (6)
    read (*, '(a)') line
  end if
  call MPI_BARRIER(MPI_COMM_WORLD, ierr)
  if (rank == 0) print '(a)', 'good'
  call MPI_FINALIZE(ierr)
contains
  subroutine fresh
    integer :: k
    do k = 1, size * n
      from(k) = rank * 1000 + (k - 1) / n
      to(k) = -1
    end do
  end subroutine fresh
  subroutine check(step)
    integer, intent(in) :: step
    integer :: k
    if (ierr /= MPI_SUCCESS) call wrong(step)
    do k = 1, size * n
      if (to(k) /= (k - 1) / n * 1000 + rank) call wrong(step)
    end do
    call fresh
  end subroutine check
  subroutine wrong(step)
    integer, intent(in) :: step
    integer :: e
    print *, 'rank', rank, 'wrong at', step
    call MPI_ABORT(MPI_COMM_WORLD, 1, e)
  end subroutine wrong
end program pattern
