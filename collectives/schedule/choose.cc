#include "collectives/schedule/choose.h"

namespace dunlin::collective {
namespace {

// Below this size one hop costs more than the bytes that it moves. The limit is lower on one host,
// where the alternative costs two signals.
constexpr std::size_t kDirectBytes = 4096;
constexpr std::size_t kDirectMappedBytes = 2048;
// With `direct`, every rank sums the data of all ranks. That is too much work for more ranks.
constexpr int kDirectRanks = 16;
constexpr std::size_t kHalvingBytes = std::size_t{256} << 10;

std::string_view all_reduce_for(int size, std::size_t bytes, bool is_all_mapped) {
  const std::size_t direct_bytes = is_all_mapped ? kDirectMappedBytes : kDirectBytes;
  if (bytes <= direct_bytes && size <= kDirectRanks) return "direct";
  if (is_all_mapped) return "shared";
  if (bytes <= kDirectBytes) return "recursive-doubling";
  return bytes <= kHalvingBytes ? "halving-doubling" : "ring";
}

std::string_view name_for(const Problem& problem, std::size_t bytes, bool is_all_mapped) {
  const bool is_direct = bytes <= kDirectBytes && problem.size <= kDirectRanks;
  switch (problem.collective) {
    case Collective::kAllReduce:
      return all_reduce_for(problem.size, bytes, is_all_mapped);
    case Collective::kReduceScatter:
    case Collective::kAllGather:
      return is_direct ? "direct" : is_all_mapped ? "shared" : "ring";
    case Collective::kAllToAll:
      return is_all_mapped ? "shared" : "pairwise";
    case Collective::kReduce:
    case Collective::kBroadcast:
      return "tree";
    case Collective::kBarrier:
      // On one host a signal is a store, which costs less than a second hop. If ranks share cores,
      // a rank completes in its first time slice after the last rank has entered.
      return is_all_mapped && problem.size <= kDirectRanks ? "direct" : "dissemination";
  }
  return "";
}

}  // namespace

const Algorithm* choose_algorithm(const Problem& problem, std::size_t element, bool is_all_mapped) {
  const std::size_t bytes = problem.count * element;
  return find_algorithm(problem.collective, name_for(problem, bytes, is_all_mapped)).value();
}

}  // namespace dunlin::collective
