int iterations = 100000, xsize = 256, ysize = 256/numprocs + 2;
// PEVPM Loop iterations = 100000
// PEVPM {
for (i = 0; i < iterations; i++) {
// PEVPM Runon c1 = procnum%2 == 0
// PEVPM &     c2 = procnum%2 != 0
// PEVPM {
  if (procnum % 2 == 0) {
// PEVPM Runon c1 = procnum != 0
// PEVPM {
    if (procnum != 0)
// PEVPM Message type = MPI_Send
// PEVPM &       size = xsize*sizeof(float)
// PEVPM &       from = procnum
// PEVPM &       to   = procnum-1
      MPI_Send(grid[1], ..., procnum-1, ...);
// PEVPM }
// PEVPM Message type = MPI_Send
// PEVPM &       size = xsize*sizeof(float)
// PEVPM &       from = procnum
// PEVPM &       to   = procnum+1
    MPI_Send(grid[ysize-2], ..., procnum+1, ...);
// PEVPM Message type = MPI_Recv
// PEVPM &       size = xsize*sizeof(float)
// PEVPM &       from = procnum+1
// PEVPM &       to   = procnum
    MPI_Recv(grid[ysize-1], ..., procnum+1, ...);
// PEVPM Runon c1 = procnum != 0
// PEVPM {
    if (procnum != 0)
// PEVPM Message type = MPI_Recv
// PEVPM &       size = xsize*sizeof(float)
// PEVPM &       from = procnum-1
// PEVPM &       to   = procnum
      MPI_Recv(grid[0], ..., procnum-1, ...);
// PEVPM }
  }
// PEVPM }
// PEVPM {
  else {
// PEVPM Runon c1 = procnum != numprocs-1
// PEVPM {
    if (procnum != numprocs-1)
// PEVPM Message type = MPI_Recv
// PEVPM &       size = xsize*sizeof(float)
// PEVPM &       from = procnum+1
// PEVPM &       to   = procnum
      MPI_Recv(grid[ysize-1], ..., procnum+1, ...);
// PEVPM }
// PEVPM Message type = MPI_Recv
// PEVPM &       size = xsize*sizeof(float)
// PEVPM &       from = procnum-1
// PEVPM &       to   = procnum
    MPI_Recv(grid[0], ..., procnum-1, ...);
// PEVPM Message type = MPI_Send
// PEVPM &       size = xsize*sizeof(float)
// PEVPM &       from = procnum
// PEVPM &       to   = procnum-1
    MPI_Send(grid[1], ..., procnum-1, ...);
// PEVPM Runon c1 = procnum != numprocs-1
// PEVPM {
    if (procnum != numprocs-1)
// PEVPM Message type = MPI_Send
// PEVPM &       size = xsize*sizeof(float)
// PEVPM &       from = procnum
// PEVPM &       to   = procnum+1
      MPI_Send(grid[ysize-2], ..., procnum+1, ...);
// PEVPM }
  }
// PEVPM }
// PEVPM Serial on perseus time = 3.24/numprocs
// PEVPM Serial on orion   time = 5.70/numprocs
// PEVPM Serial on sc      time = 1.582/numprocs
  stencil: new[j][k] = 0.25*(old[j][k-1]+old[j-1][k]+old[j][k+1]+old[j+1][k]); swap
}
// PEVPM }
