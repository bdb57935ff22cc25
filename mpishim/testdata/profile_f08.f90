! What TestProfileInFortran knows the sizes of.
program profile
  use mpi_f08
  implicit none
  integer :: me, n, ierr, i
  integer :: sc(4), sd(4)
  double precision :: d(64), e(64)
  character :: a(64), b(64)
  type(MPI_Request) :: r, p
  type(MPI_Status) :: st
  d = 1; a = 'a'
  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, me, ierr)
  call MPI_Comm_size(MPI_COMM_WORLD, n, ierr)
  call MPI_Irecv(e, 10, MPI_DOUBLE_PRECISION, mod(me + n - 1, n), 0, MPI_COMM_WORLD, r, ierr)
  call MPI_Send(d, 10, MPI_DOUBLE_PRECISION, mod(me + 1, n), 0, MPI_COMM_WORLD, ierr)
  call MPI_Wait(r, st, ierr)
  call MPI_Send_init(d, 2, MPI_DOUBLE_PRECISION, mod(me + 2, n), 1, MPI_COMM_WORLD, p, ierr)
  do i = 1, 3
    call MPI_Irecv(e, 2, MPI_DOUBLE_PRECISION, mod(me + 2, n), 1, MPI_COMM_WORLD, r, ierr)
    call MPI_Start(p, ierr)
    call MPI_Wait(p, st, ierr)
    call MPI_Wait(r, st, ierr)
  end do
  call MPI_Request_free(p, ierr)
  call MPI_Alltoall(MPI_IN_PLACE, 0, MPI_CHARACTER, b, 5, MPI_CHARACTER, MPI_COMM_WORLD, ierr)
  do i = 1, n
    sc(i) = me + i
    sd(i) = 10 * (i - 1)
  end do
  call MPI_Alltoallv(a, sc, sd, MPI_CHARACTER, b, sc, sd, MPI_CHARACTER, MPI_COMM_WORLD, ierr)
  call MPI_Bcast(d, 7, MPI_DOUBLE_PRECISION, 1, MPI_COMM_WORLD, ierr)
  call MPI_Allreduce(d, e, 4, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, ierr)
  if (me == 0) print '(a)', 'good'
  flush(6)
  call MPI_Finalize(ierr)
end program
