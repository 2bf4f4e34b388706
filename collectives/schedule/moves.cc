#include "collectives/schedule/moves.h"

#include <numeric>

#include "collectives/schedule/stages.h"

namespace dunlin::collective::moves {
namespace {

Team all_ranks(const Problem& problem, int rank) {
  return {0, 1, problem.size, rank};
}

std::size_t at_block(const Problem& problem, int block, std::size_t offset = 0) {
  return static_cast<std::size_t>(block) * problem.count + offset;
}

// The same position in the input of every rank, in the order of the ranks.
std::vector<Place> every_input(const Problem& problem, std::size_t offset) {
  std::vector<Place> places;
  for (int rank = 0; rank < problem.size; ++rank) places.push_back(input_at(offset, rank));
  return places;
}

std::vector<Place> every_output(const Problem& problem, std::size_t offset) {
  std::vector<Place> places;
  for (int rank = 0; rank < problem.size; ++rank) places.push_back(output_at(offset, rank));
  return places;
}

// Runs `body`, which accesses mapped memory, after all ranks have entered; then waits until all
// ranks have finished.
template <typename Body>
Program shared(const Problem& problem, int rank, Body&& body) {
  ProgramBuilder builder(rank, problem.size);
  signal_all(builder, all_ranks(problem, rank));
  body(builder);
  signal_all(builder, all_ranks(problem, rank));
  return builder.take();
}

// The ranks for which this rank works on mapped memory, if there is no root.
std::vector<int> served_by(int rank, const Problem& problem, const Shape& shape) {
  if (!shape.is_one_gpu) return {rank};
  std::vector<int> served(rank == 0 ? static_cast<std::size_t>(problem.size) : 0);
  std::iota(served.begin(), served.end(), 0);
  return served;
}

constexpr std::size_t kRounding = 64;  // elements that aligning a place in scratch may take

}  // namespace

Program reduce_tree(const Problem& problem, const Shape& shape, int rank) {
  ProgramBuilder builder(rank, problem.size);
  const Tree tree{all_ranks(problem, rank), problem.root};
  const auto places = static_cast<std::size_t>(levels_of(problem.size)) + 1;
  for_each_slice(builder, {0, problem.count}, places, kRounding * (places + 1), shape,
                 [&](Range slice) {
                   tree_reduce(builder, tree, slice, BufferKind::kInput, shape.segment, true, true);
                 });
  return builder.take();
}

Program broadcast_tree(const Problem& problem, const Shape& shape, int rank) {
  ProgramBuilder builder(rank, problem.size);
  if (rank == problem.root) builder.copy(input_at(0), output_at(0), problem.count);
  tree_broadcast(builder, {all_ranks(problem, rank), problem.root}, {0, problem.count},
                 shape.segment, true);
  return builder.take();
}

Program reduce_scatter_ring(const Problem& problem, const Shape& shape, int rank) {
  ProgramBuilder builder(rank, problem.size);
  const auto size = static_cast<std::size_t>(problem.size);
  for_each_slice(builder, {0, problem.count}, size, 2 * kRounding * size, shape, [&](Range slice) {
    RingReduceScatter stage(builder, all_ranks(problem, rank),
                            Split::blocks(slice, problem.count, problem.size), BufferKind::kInput,
                            shape.segment, true);
    stage.set_result(output_at(slice.begin));
    stage.run();
  });
  return builder.take();
}

Program reduce_scatter_direct(const Problem& problem, const Shape& shape, int rank) {
  ProgramBuilder builder(rank, problem.size);
  const auto size = static_cast<std::size_t>(problem.size);
  const Team team = all_ranks(problem, rank);
  for_each_slice(builder, {0, problem.count}, size, 2 * kRounding * size, shape, [&](Range slice) {
    std::vector<Place> inputs;
    for (std::size_t i = 0; i < size; ++i) inputs.push_back(builder.scratch(slice.count));
    const Place slot = inputs[static_cast<std::size_t>(rank)];
    for (int i = 1; i < team.size(); ++i) {
      const int peer = team.rank(team.wrapped(rank + i));
      builder.put(input_at(at_block(problem, peer, slice.begin)), peer, slot, slice.count);
    }
    inputs[static_cast<std::size_t>(rank)] = input_at(at_block(problem, rank, slice.begin));
    for (int i = 1; i < team.size(); ++i) {
      const int peer = team.rank(team.wrapped(rank - i));
      builder.wait(peer, inputs[static_cast<std::size_t>(peer)], slice.count);
    }
    const Place sum = output_at(slice.begin);
    builder.reduce(inputs, {&sum, 1}, slice.count, true);
  });
  return builder.take();
}

Program all_gather_ring(const Problem& problem, const Shape& shape, int rank) {
  ProgramBuilder builder(rank, problem.size);
  const Team team = all_ranks(problem, rank);
  builder.copy(input_at(0), output_at(at_block(problem, rank)), problem.count);
  // From now on the predecessor may write to this rank's output.
  builder.signal(team.previous());
  builder.wait_signal(team.next());
  RingAllGather(builder, team, Split::blocks({0, problem.count}, problem.count, problem.size),
                shape.segment)
      .run();
  return builder.take();
}

Program all_gather_direct(const Problem& problem, const Shape& shape, int rank) {
  ProgramBuilder builder(rank, problem.size);
  const auto size = static_cast<std::size_t>(problem.size);
  const Team team = all_ranks(problem, rank);
  builder.copy(input_at(0), output_at(at_block(problem, rank)), problem.count);
  for_each_slice(builder, {0, problem.count}, size, 2 * kRounding * size, shape, [&](Range slice) {
    std::vector<Place> slots;
    for (std::size_t i = 0; i < size; ++i) slots.push_back(builder.scratch(slice.count));
    for (int i = 1; i < team.size(); ++i) {
      const int peer = team.rank(team.wrapped(rank + i));
      builder.put(input_at(slice.begin), peer, slots[static_cast<std::size_t>(rank)], slice.count);
    }
    for (int i = 1; i < team.size(); ++i) {
      const int peer = team.rank(team.wrapped(rank - i));
      const Place slot = slots[static_cast<std::size_t>(peer)];
      builder.wait(peer, slot, slice.count);
      builder.copy(slot, output_at(at_block(problem, peer, slice.begin)), slice.count);
    }
  });
  return builder.take();
}

Program all_to_all_pairwise(const Problem& problem, const Shape& shape, int rank) {
  ProgramBuilder builder(rank, problem.size);
  const Team team = all_ranks(problem, rank);
  // From now on the peers may write to this rank's output.
  for (int i = 1; i < team.size(); ++i) builder.signal(team.rank(team.wrapped(rank - i)));
  builder.copy(input_at(at_block(problem, rank)), output_at(at_block(problem, rank)),
               problem.count);
  const Range block{0, problem.count};
  for (std::size_t s = 0; s < segments_of(block, shape.segment); ++s) {
    const Range piece = segment_of(block, shape.segment, s);
    for (int i = 1; i < team.size(); ++i) {
      const int to = team.rank(team.wrapped(rank + i));
      if (s == 0) builder.wait_signal(to);
      builder.put(input_at(at_block(problem, to, piece.begin)), to,
                  output_at(at_block(problem, rank, piece.begin)), piece.count);
    }
    for (int i = 1; i < team.size(); ++i) {
      const int from = team.rank(team.wrapped(rank - i));
      builder.wait(from, output_at(at_block(problem, from, piece.begin)), piece.count);
    }
  }
  return builder.take();
}

Program barrier_direct(const Problem& problem, const Shape&, int rank) {
  ProgramBuilder builder(rank, problem.size);
  signal_all(builder, all_ranks(problem, rank));
  return builder.take();
}

Program barrier_dissemination(const Problem& problem, const Shape&, int rank) {
  ProgramBuilder builder(rank, problem.size);
  const Team team = all_ranks(problem, rank);
  for (int distance = 1; distance < team.size(); distance *= 2) {
    builder.signal(team.rank(team.wrapped(rank + distance)));
    builder.wait_signal(team.rank(team.wrapped(rank - distance)));
  }
  return builder.take();
}

Program reduce_shared(const Problem& problem, const Shape& shape, int rank) {
  return shared(problem, rank, [&](ProgramBuilder& builder) {
    if (shape.is_one_gpu) {
      const Place sum = output_at(0);
      if (rank == problem.root)
        builder.reduce(every_input(problem, 0), {&sum, 1}, problem.count, true);
      return;
    }
    const Range part = part_of({0, problem.count}, problem.size, rank);
    const Place sum = output_at(part.begin, problem.root);
    builder.reduce(every_input(problem, part.begin), {&sum, 1}, part.count, true);
  });
}

Program broadcast_shared(const Problem& problem, const Shape& shape, int rank) {
  return shared(problem, rank, [&](ProgramBuilder& builder) {
    if (shape.is_one_gpu) {
      const Place input = input_at(0);
      if (rank == problem.root)
        builder.reduce({&input, 1}, every_output(problem, 0), problem.count);
      return;
    }
    builder.copy(input_at(0, problem.root), output_at(0), problem.count);
  });
}

Program reduce_scatter_shared(const Problem& problem, const Shape& shape, int rank) {
  return shared(problem, rank, [&](ProgramBuilder& builder) {
    for (const int served : served_by(rank, problem, shape)) {
      const Place sum = output_at(0, served);
      builder.reduce(every_input(problem, at_block(problem, served)), {&sum, 1}, problem.count,
                     true);
    }
  });
}

Program all_gather_shared(const Problem& problem, const Shape& shape, int rank) {
  return shared(problem, rank, [&](ProgramBuilder& builder) {
    const std::vector<int> served = served_by(rank, problem, shape);
    for (int i = 0; i < problem.size && !served.empty(); ++i) {
      const int peer = (rank + i) % problem.size;
      std::vector<Place> outputs;
      for (const int each : served) outputs.push_back(output_at(at_block(problem, peer), each));
      const Place input = input_at(0, peer);
      builder.reduce({&input, 1}, outputs, problem.count);
    }
  });
}

Program all_to_all_shared(const Problem& problem, const Shape& shape, int rank) {
  return shared(problem, rank, [&](ProgramBuilder& builder) {
    for (const int served : served_by(rank, problem, shape)) {
      for (int i = 0; i < problem.size; ++i) {
        const int peer = (rank + i) % problem.size;
        builder.copy(input_at(at_block(problem, served), peer),
                     output_at(at_block(problem, peer), served), problem.count);
      }
    }
  });
}

}  // namespace dunlin::collective::moves
