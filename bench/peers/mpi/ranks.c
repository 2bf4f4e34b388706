/* Prints the number of ranks of the job: "ranks N". If the launcher and the library do not fit
 * together, every process is a job of its own. */
#include <mpi.h>
#include <stdio.h>

int main(int argc, char** argv) {
  int rank, size;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (rank == 0) printf("ranks %d\n", size);
  MPI_Finalize();
  return 0;
}
