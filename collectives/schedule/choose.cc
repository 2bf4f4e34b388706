#include "collectives/schedule/choose.h"

#include <algorithm>
#include <bit>

namespace dunlin::collective {
namespace {

// Below this size one hop costs more than the bytes that it moves. The limit is lower on one host,
// where the alternative costs two signals.
constexpr std::size_t kDirectBytes = 4096;
constexpr std::size_t kDirectMappedBytes = 2048;
// With `direct`, every rank sums the data of all ranks. That is too much work for more ranks.
constexpr int kDirectRanks = 16;
// With `direct`, a host sends the data of each of its ranks to all others. Beyond so many bytes,
// the alternatives, which send them to one other host at a time, are faster. Between two hosts they
// send once in each direction, too, and `direct` saves only hops within the hosts.
constexpr std::size_t kDirectHostBytes = std::size_t{32} << 10;
constexpr std::size_t kDirectTwoHostsBytes = std::size_t{8} << 10;
// Up to these sizes, hops cost more than the bytes of recursive doubling. The first one holds for
// ranks on hosts of their own, of a number that is no power of two, or whose messages cost system
// calls. For others it is divided by the number of ranks of a host, as these send at the same time,
// and the second one is the least.
constexpr std::size_t kDoublingBytes = std::size_t{24} << 10;
constexpr std::size_t kDoublingSharedBytes = 4096;
// If messages cost system calls and 2^k ranks share each host, a tree takes the fewest: between two
// hosts it sends once in each direction, and recursive doubling does for each rank of a host. But
// the tree takes twice as many hops between hosts, which counts for more up to the first size.
// Beyond the second one, its bytes on the link count for more (bench/TCP.md).
constexpr std::size_t kTreeFromBytes = 1024;
constexpr std::size_t kTreeBytes = std::size_t{32} << 10;
// A ring overlaps sending with reducing, and halving-doubling has fewer hops. The ring gains from
// so many bytes for each of its hops on. If the number of ranks is no power of two,
// halving-doubling sends the data of the ranks that are left over once more and in full: then the
// ring gains from so many bytes for the square of its hops between hosts on.
constexpr std::size_t kRingBytesPerHop = std::size_t{64} << 10;
constexpr std::size_t kRingBytesPerSquare = 1024;

std::string_view all_reduce_for(const Problem& problem, std::size_t bytes,
                                const Connections& connections) {
  const int size = problem.size;
  // A launch and the wait for it cost more than the bytes of anything that `direct` is for.
  if (connections.is_one_gpu) return "shared";
  if (connections.is_all_mapped)
    return bytes <= kDirectMappedBytes && size <= kDirectRanks ? "direct" : "shared";
  const bool share_hosts = connections.hosts.rows > 0;
  const Grid grid = share_hosts                    ? connections.hosts
                    : connections.has_uneven_hosts ? Grid{1, size}
                                                   : Grid::squarest(size);
  if (connections.has_costly_messages) {
    const bool is_tree = share_hosts && std::has_single_bit(static_cast<unsigned>(grid.columns));
    if (is_tree && bytes >= kTreeFromBytes && bytes <= kTreeBytes) return "tree";
    if (bytes <= kDoublingBytes) return "recursive-doubling";
  }
  const std::size_t host_bytes = grid.rows == 2 ? kDirectTwoHostsBytes : kDirectHostBytes;
  const auto columns = static_cast<std::size_t>(grid.columns);
  const std::size_t direct_bytes =
      share_hosts ? host_bytes / (columns * static_cast<std::size_t>(size)) : kDirectBytes;
  if (size <= kDirectRanks && bytes <= std::min(direct_bytes, kDirectBytes)) return "direct";
  const bool is_power = std::has_single_bit(static_cast<unsigned>(size));
  const auto hops = static_cast<std::size_t>(grid.rows + grid.columns);
  const auto far_hops =
      static_cast<std::size_t>(share_hosts ? grid.rows : grid.rows + grid.columns - 1);
  const bool is_long =
      is_power ? bytes >= kRingBytesPerHop * hops
               : bytes > kDoublingSharedBytes && bytes >= kRingBytesPerSquare * far_hops * far_hops;
  if (!is_long) {
    const std::size_t doubling_bytes =
        is_power && share_hosts ? std::max(kDoublingSharedBytes, kDoublingBytes / columns)
                                : kDoublingBytes;
    return bytes <= doubling_bytes ? "recursive-doubling" : "halving-doubling";
  }
  // A torus sends data through the NIC once they have been reduced within the host. A single ring
  // does both at the same time, which gains if the NIC is as fast as the memory.
  if (connections.shares_fast_nic && bytes >= kRingBytesPerHop * hops) return "ring";
  return grid.rows > 1 ? "torus-2d" : "ring";
}

std::string_view name_for(const Problem& problem, std::size_t bytes,
                          const Connections& connections) {
  const bool is_all_mapped = connections.is_all_mapped;
  const bool is_direct =
      bytes <= kDirectBytes && problem.size <= kDirectRanks && !connections.is_one_gpu;
  switch (problem.collective) {
    case Collective::kAllReduce:
      return all_reduce_for(problem, bytes, connections);
    case Collective::kReduceScatter:
    case Collective::kAllGather:
      return is_direct ? "direct" : is_all_mapped ? "shared" : "ring";
    case Collective::kAllToAll:
      return is_all_mapped ? "shared" : "pairwise";
    case Collective::kReduce:
      return "tree";  // "shared" needs members that pass memory at the same place
    case Collective::kBroadcast:
      return connections.is_one_gpu ? "shared" : "tree";
    case Collective::kBarrier:
      // On one host a signal is a store, which costs less than a second hop. If ranks share cores,
      // a rank completes in its first time slice after the last rank has entered.
      return is_all_mapped && problem.size <= kDirectRanks ? "direct" : "dissemination";
  }
  return "";
}

}  // namespace

Connections Connections::among(const Grouping& hosts) {
  Connections connections;
  const auto grid = hosts.as_grid();
  if (grid) connections.hosts = *grid;
  connections.has_uneven_hosts = !grid && hosts.groups() > 1 && hosts.groups() < hosts.size();
  return connections;
}

const Algorithm* choose_algorithm(const Problem& problem, std::size_t element,
                                  const Connections& connections) {
  const std::size_t bytes = problem.count * element;
  return find_algorithm(problem.collective, name_for(problem, bytes, connections)).value();
}

}  // namespace dunlin::collective
