#include "collectives/schedule/closed_form.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "collectives/schedule/stages.h"

namespace dunlin::collective {
namespace {

// The time of one message of `bytes`, from its departure to its arrival.
double hop(const LinkCost& link, double bytes) {
  return link.alpha + link.beta * bytes;
}

// Reduce-scatter in N - 1 steps, all-gather in N - 1 steps.
double ring(int size, double bytes, const LinkCost& link, double gamma) {
  const double part = bytes / size;
  return (size - 1) * (2 * hop(link, part) + gamma * part);
}

double torus(const Grid& grid, double bytes, const LinkCost& link, double gamma) {
  return ring(grid.columns, bytes, link, gamma) +
         ring(grid.rows, bytes / grid.columns, link, gamma);
}

// The largest power of two below `size`, which is at least 2. It is the number of ranks in the
// root's other subtrees and the root itself.
int lower_half(int size) {
  return static_cast<int>(std::bit_floor(static_cast<unsigned>(size - 1)));
}

// The root puts to its deepest subtree first, which holds the ranks beyond the lower half. The last
// rank that the root serves is the nearest leaf of the lower half.
double broadcast(int size, double bytes, const LinkCost& link) {
  if (size == 1) return 0;
  const int half = lower_half(size);
  const int levels = levels_of(half);
  const double first = hop(link, bytes) + broadcast(size - half, bytes, link);
  const double others = levels * link.alpha + (levels + 1) * link.beta * bytes;
  return levels == 0 ? first : std::max(first, others);
}

// Inner nodes wait for all of their children, then sum once.
double tree_reduce_time(int size, double bytes, const LinkCost& link, double gamma) {
  if (size == 1) return 0;
  const int half = lower_half(size);
  double child = tree_reduce_time(size - half, bytes, link, gamma);
  if (half > 1) child = std::max(child, tree_reduce_time(half / 2, bytes, link, gamma));
  return child + hop(link, bytes) + levels_of(size) * gamma * bytes;
}

struct Folded {
  int size;     // a power of two
  int extra;    // pairs of ranks that act as one
  double fold;  // time until the pairs have summed
  int levels;
};
Folded fold(const ClosedFormCase& of) {
  const int size = static_cast<int>(std::bit_floor(static_cast<unsigned>(of.ranks)));
  const int extra = of.ranks - size;
  const double time = extra > 0 ? hop(of.between, of.bytes) + of.gamma * of.bytes : 0;
  return {size, extra, time, levels_of(size)};
}

double recursive_doubling(const ClosedFormCase& of) {
  const Folded folded = fold(of);
  const double all = folded.levels * (of.between.beta + of.gamma) * of.bytes;
  double latency = folded.levels * of.between.alpha;
  if (folded.extra > 0) {
    // The sum of a pair crosses all levels to a rank that ends there. Or it crosses as many levels
    // as lead to another pair, which then has to hand it to its second rank.
    const int crossed = std::bit_width(static_cast<unsigned>(folded.extra - 1));
    latency = std::max(latency, crossed * of.between.alpha + hop(of.between, of.bytes));
  }
  return folded.fold + all + latency;
}

double halving_doubling(const ClosedFormCase& of) {
  const Folded folded = fold(of);
  const double moved = of.bytes * (folded.size - 1) / folded.size;
  const double unfold = folded.extra > 0 ? hop(of.between, of.bytes) : 0;
  return folded.fold + 2 * folded.levels * of.between.alpha +
         (2 * of.between.beta + of.gamma) * moved + unfold;
}

// Rings in the groups, then `among_leaders`, then broadcasts in the groups.
double by_groups(const ClosedFormCase& of, double among_leaders) {
  const int members = (of.ranks + of.groups - 1) / of.groups;
  const double rings = ring(members, of.bytes, of.within, of.gamma);
  if (of.groups == 1) return rings;
  if (members == 1) return among_leaders;
  // Members signal that they are ready for the broadcast when their ring ends.
  return rings + std::max(among_leaders, of.within.alpha) + broadcast(members, of.bytes, of.within);
}

Result<Grid> grid_of(const ClosedFormCase& of, int nodes) {
  if (of.grid.rows <= 0) return Grid::squarest(nodes);
  if (of.grid.rows * of.grid.columns == nodes) return of.grid;
  return Status(Code::kInvalidArgument, fmt::format("a grid of {} x {} does not fit {} nodes",
                                                    of.grid.rows, of.grid.columns, nodes));
}

}  // namespace

Result<double> closed_form(std::string_view algorithm, const ClosedFormCase& of) {
  if (of.ranks < 1 || of.groups < 1 || of.groups > of.ranks) {
    return Status(Code::kInvalidArgument,
                  fmt::format("{} ranks cannot form {} groups", of.ranks, of.groups));
  }
  const LinkCost& link = of.between;
  const double bytes = of.bytes;
  if (of.ranks == 1) return of.gamma * bytes;  // a copy
  if (algorithm == "ring") return ring(of.ranks, bytes, link, of.gamma);
  if (algorithm == "hierarchical") return by_groups(of, ring(of.groups, bytes, link, of.gamma));
  if (algorithm == "torus-2d") {
    DUNLIN_ASSIGN(const Grid grid, grid_of(of, of.ranks));
    return torus(grid, bytes, link, of.gamma);
  }
  if (algorithm == "2d-tga") {
    DUNLIN_ASSIGN(const Grid grid, grid_of(of, of.groups));
    return by_groups(of, torus(grid, bytes, link, of.gamma));
  }
  if (algorithm == "recursive-doubling") return recursive_doubling(of);
  if (algorithm == "halving-doubling") return halving_doubling(of);
  if (algorithm == "tree") {
    return tree_reduce_time(of.ranks, bytes, link, of.gamma) + broadcast(of.ranks, bytes, link);
  }
  if (algorithm == "direct") return link.alpha + (of.ranks - 1) * (link.beta + of.gamma) * bytes;
  if (algorithm == "shared")
    return 2 * link.alpha + (of.ranks - 1) * (2 * link.beta + of.gamma) * bytes / of.ranks;
  return Status(Code::kNotFound, fmt::format("there is no formula for '{}'", algorithm));
}

}  // namespace dunlin::collective
