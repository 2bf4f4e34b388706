// Algorithm: a generator of programs. It generates the program of each rank separately, from the
// problem and from a shape that is the same on all ranks.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "collectives/schedule/problem.h"
#include "collectives/schedule/program.h"
#include "collectives/schedule/team.h"

namespace dunlin::collective {

// What the algorithms have to respect and may choose. The same on all ranks.
struct Shape {
  static constexpr std::size_t kUnlimited = std::size_t{1} << 62;

  std::size_t segment = kUnlimited;  // elements per message; longer ones are sent in segments
  std::size_t scratch = kUnlimited;  // elements of scratch; longer vectors are processed in slices
  const Grouping* groups = nullptr;  // for algorithms that need groups; not owned
  // Arrangement of the ranks (torus-2d, mesh-2d) or of the groups' leaders (2d-tga). 0: the most
  // square one, but for torus-2d `hosts`.
  Grid grid{0, 0};
  // The ranks as a grid whose rows are hosts, for torus-2d. 0: unknown, or they form none.
  Grid hosts{0, 0};
  // The mapped memory of all ranks is that of one GPU. A GPU takes turns among the processes that
  // use it, and a turn costs more than most collectives (bench/gpu/README.md). So one rank works
  // for all in the algorithms on mapped memory: the root, or rank 0 if there is none.
  bool is_one_gpu = false;

  // The arrangement of `size` ranks that torus-2d takes.
  Grid torus(int size) const;
};

struct Algorithm {
  Collective collective;
  std::string_view name;
  std::string_view summary;
  bool needs_groups = false;
  bool needs_mapped_peers = false;  // every rank must map the memory of all others
  // The algorithm synchronizes: a rank that has completed it knows that all ranks have entered it.
  bool is_synchronizing = false;
  // The algorithm is polite: no rank accesses a peer's memory before that peer has entered it.
  // Other algorithms write to a peer's scratch at once, so that memory must already be free.
  bool is_polite = false;
  // For two or more ranks.
  Program (*generate)(const Problem& problem, const Shape& shape, int rank);
  // Returns kInvalidArgument if the shape does not suit, for example if it has no groups or a grid
  // of another size.
  Status (*check)(const Problem& problem, const Shape& shape);
};

// All algorithms, sorted by collective.
std::span<const Algorithm> algorithms();
// kInvalidArgument for an unknown name. The message lists the known ones.
Result<const Algorithm*> find_algorithm(Collective collective, std::string_view name);

// Checks the arguments, then generates the program. The program of a single rank is a copy.
Result<Program> generate(const Algorithm& algorithm, const Problem& problem, const Shape& shape,
                         int rank);

}  // namespace dunlin::collective
