#include "collectives/schedule/algorithm.h"

#include <fmt/format.h>

#include <array>

#include "collectives/schedule/all_reduce.h"
#include "collectives/schedule/moves.h"

namespace dunlin::collective {
namespace {

Status any(const Problem&, const Shape&) {
  return Status::ok();
}

Status check_grid(const Grid& grid, int nodes, const char* what) {
  if (grid.rows <= 0 || grid.rows * grid.columns == nodes) return Status::ok();
  return {Code::kInvalidArgument, fmt::format("a grid of {} x {} does not fit {} {}", grid.rows,
                                              grid.columns, nodes, what)};
}

Status check_rank_grid(const Problem& problem, const Shape& shape) {
  return check_grid(shape.grid, problem.size, "ranks");
}

Status check_torus(const Problem& problem, const Shape& shape) {
  return check_grid(shape.torus(problem.size), problem.size, "ranks");
}

Status check_groups(const Problem& problem, const Shape& shape) {
  if (shape.groups == nullptr) return {Code::kInvalidArgument, "the algorithm needs groups"};
  if (shape.groups->size() == problem.size) return Status::ok();
  return {Code::kInvalidArgument, fmt::format("the groups have {} ranks, but there are {}",
                                              shape.groups->size(), problem.size)};
}

Status check_leader_grid(const Problem& problem, const Shape& shape) {
  DUNLIN_TRY(check_groups(problem, shape));
  return check_grid(shape.grid, shape.groups->groups(), "groups");
}

constexpr bool kGroups = true;
constexpr bool kMapped = true;
constexpr bool kSynchronizing = true;
constexpr bool kPolite = true;
using enum Collective;

const std::array kAlgorithms{
    Algorithm{kAllReduce, "direct",
              "every rank puts all data to every rank: one hop, for little data", !kGroups,
              !kMapped, kSynchronizing, !kPolite, all_reduce::direct, any},
    Algorithm{
        kAllReduce, "shared",
        "each rank reduces its part straight out of, and into, the mapped memory of all ranks",
        !kGroups, kMapped, kSynchronizing, kPolite, all_reduce::shared, any},
    Algorithm{kAllReduce, "recursive-doubling", "log2 P exchanges of all: for little data",
              !kGroups, !kMapped, kSynchronizing, !kPolite, all_reduce::recursive_doubling, any},
    Algorithm{kAllReduce, "halving-doubling",
              "recursive halving, recursive doubling: least data in 2 log2 P exchanges", !kGroups,
              !kMapped, kSynchronizing, !kPolite, all_reduce::halving_doubling, any},
    Algorithm{kAllReduce, "tree", "binomial tree to rank 0 and back", !kGroups, !kMapped,
              kSynchronizing, !kPolite, all_reduce::tree, any},
    Algorithm{kAllReduce, "ring", "reduce-scatter and all-gather around a ring: least data",
              !kGroups, !kMapped, kSynchronizing, !kPolite, all_reduce::ring, any},
    Algorithm{kAllReduce, "hierarchical",
              "rings in the groups, a ring of their leaders, broadcasts in the groups", kGroups,
              !kMapped, kSynchronizing, !kPolite, all_reduce::hierarchical, check_groups},
    Algorithm{kAllReduce, "torus-2d",
              "reduce-scatter along rows, rings along columns, all-gather along rows", !kGroups,
              !kMapped, kSynchronizing, !kPolite, all_reduce::torus, check_torus},
    Algorithm{kAllReduce, "mesh-2d",
              "half of the data along rows, then columns; the other half the other way round",
              !kGroups, !kMapped, kSynchronizing, !kPolite, all_reduce::mesh, check_rank_grid},
    Algorithm{kAllReduce, "2d-tga",
              "rings in the groups, a torus of their leaders, broadcasts in the groups", kGroups,
              !kMapped, kSynchronizing, !kPolite, all_reduce::two_d_tga, check_leader_grid},

    Algorithm{kReduce, "tree", "binomial tree", !kGroups, !kMapped, !kSynchronizing, kPolite,
              moves::reduce_tree, any},
    Algorithm{kReduce, "shared", "each rank reduces its part into the root's mapped memory",
              !kGroups, kMapped, kSynchronizing, kPolite, moves::reduce_shared, any},

    Algorithm{kBroadcast, "tree", "binomial tree, in segments", !kGroups, !kMapped, !kSynchronizing,
              kPolite, moves::broadcast_tree, any},
    Algorithm{kBroadcast, "shared", "every rank copies out of the root's mapped memory", !kGroups,
              kMapped, kSynchronizing, kPolite, moves::broadcast_shared, any},

    Algorithm{kReduceScatter, "direct", "every rank puts each peer's part to it: one hop", !kGroups,
              !kMapped, kSynchronizing, !kPolite, moves::reduce_scatter_direct, any},
    Algorithm{kReduceScatter, "ring", "around a ring", !kGroups, !kMapped, kSynchronizing, !kPolite,
              moves::reduce_scatter_ring, any},
    Algorithm{kReduceScatter, "shared", "each rank reduces its part out of mapped memory", !kGroups,
              kMapped, kSynchronizing, kPolite, moves::reduce_scatter_shared, any},

    Algorithm{kAllGather, "direct", "every rank puts its data to every rank: one hop", !kGroups,
              !kMapped, kSynchronizing, !kPolite, moves::all_gather_direct, any},
    Algorithm{kAllGather, "ring", "around a ring", !kGroups, !kMapped, kSynchronizing, kPolite,
              moves::all_gather_ring, any},
    Algorithm{kAllGather, "shared", "every rank copies out of the mapped memory of all ranks",
              !kGroups, kMapped, kSynchronizing, kPolite, moves::all_gather_shared, any},

    Algorithm{kAllToAll, "pairwise",
              "each rank puts to one peer after the other, beginning with the next", !kGroups,
              !kMapped, kSynchronizing, kPolite, moves::all_to_all_pairwise, any},
    Algorithm{kAllToAll, "shared", "every rank copies out of the mapped memory of all ranks",
              !kGroups, kMapped, kSynchronizing, kPolite, moves::all_to_all_shared, any},

    Algorithm{kBarrier, "direct", "every rank signals every rank: one hop", !kGroups, !kMapped,
              kSynchronizing, kPolite, moves::barrier_direct, any},
    Algorithm{kBarrier, "dissemination", "log2 P rounds of signals", !kGroups, !kMapped,
              kSynchronizing, kPolite, moves::barrier_dissemination, any},
};

}  // namespace

Grid Shape::torus(int size) const {
  if (grid.rows > 0) return grid;
  return hosts.rows > 0 ? hosts : Grid::squarest(size);
}

std::span<const Algorithm> algorithms() {
  return kAlgorithms;
}

Result<const Algorithm*> find_algorithm(Collective collective, std::string_view name) {
  std::string names;
  for (const Algorithm& algorithm : kAlgorithms) {
    if (algorithm.collective != collective) continue;
    if (algorithm.name == name) return &algorithm;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", algorithm.name);
  }
  return Status(Code::kInvalidArgument,
                fmt::format("there is no algorithm '{}' for {}; known are {}", name,
                            to_string(collective), names));
}

Result<Program> generate(const Algorithm& algorithm, const Problem& problem, const Shape& shape,
                         int rank) {
  if (problem.size < 1 || rank < 0 || rank >= problem.size || problem.root < 0 ||
      problem.root >= problem.size) {
    return Status(Code::kInvalidArgument, fmt::format("rank {} or root {} is not among {} ranks",
                                                      rank, problem.root, problem.size));
  }
  DUNLIN_TRY(algorithm.check(problem, shape));
  if (problem.size > 1) return algorithm.generate(problem, shape, rank);
  ProgramBuilder alone(rank, 1);
  alone.copy(input_at(0), output_at(0), problem.count);
  return alone.take();
}

}  // namespace dunlin::collective
