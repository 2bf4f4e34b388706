// Algorithms: generators of programs. A collective is generated for each rank by itself, from the
// problem and a shape that all ranks share.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "collectives/schedule/problem.h"
#include "collectives/schedule/program.h"
#include "collectives/schedule/team.h"

namespace dunlin::collective {

// What algorithms may choose; the same on all ranks.
struct Shape {
  static constexpr std::size_t kUnlimited = std::size_t{1} << 62;

  std::size_t segment = kUnlimited;  // elements per message: longer ones are pipelined in segments
  std::size_t scratch = kUnlimited;  // elements that a program may use: longer vectors go in slices
  const Grouping* groups = nullptr;  // for those that need groups; outlives the generation
  Grid grid{0, 0};  // of the ranks (torus, mesh) or of the groups' leaders (2d-tga); 0: squarest
};

struct Algorithm {
  Collective collective;
  std::string_view name;
  std::string_view summary;
  bool needs_groups = false;
  bool needs_mapped_peers = false;  // every rank's memory is mapped by every other's process
  // What a rank whose collective has come to an end knows: that every rank has entered it.
  bool is_synchronizing = false;
  // No rank's memory is written or read by others before that rank has entered the collective.
  // Otherwise peers' scratch is written at once, which has to be free then.
  bool is_polite = false;
  // For two ranks or more.
  Program (*generate)(const Problem& problem, const Shape& shape, int rank);
  // kInvalidArgument when the shape doesn't suit: no groups, or a grid of other dimensions.
  Status (*check)(const Problem& problem, const Shape& shape);
};

// All of them; those of one collective are neighbours.
std::span<const Algorithm> algorithms();
// kInvalidArgument lists the names that there are.
Result<const Algorithm*> find_algorithm(Collective collective, std::string_view name);

// Checks, then generates; a rank that is alone copies.
Result<Program> generate(const Algorithm& algorithm, const Problem& problem, const Shape& shape,
                         int rank);

}  // namespace dunlin::collective
