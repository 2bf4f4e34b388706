#include "collectives/communicator/signature.h"

#include <fmt/format.h>

#include <cassert>

#include "runtime/fnv.h"

namespace dunlin::collective {
namespace {

// From the highest bit: the collective plus one, the operator (0: none), the type, the algorithm.
constexpr int kHashBits = 46;
constexpr int kAlgorithmBits = 6;
constexpr int kFieldBits = 4;
constexpr int kTypeAt = kHashBits + kAlgorithmBits;
constexpr int kOpAt = kTypeAt + kFieldBits;
constexpr int kCollectiveAt = kOpAt + kFieldBits;
static_assert(kCollectiveAt + kFieldBits == 64);

// Whether the result depends on where the members' buffers of this kind are: whether a member may
// access a peer's buffer.
bool depends_on_place(const CallTerms& terms, BufferKind kind) {
  if (!terms.problem.is_rooted()) return true;
  const bool is_broadcast = terms.problem.collective == Collective::kBroadcast;
  // The root alone works: it reads its own input and peers' outputs, or the reverse.
  if (terms.algorithm->needs_mapped_peers && terms.is_one_gpu)
    return is_broadcast == (kind == BufferKind::kOutput);
  // Along a tree, a reduce accesses peers' scratch only, and a broadcast their outputs.
  return terms.algorithm->needs_mapped_peers || (is_broadcast && kind == BufferKind::kOutput);
}

void add(Fnv& hash, const CallTerms& terms, BufferKind kind, const Placement& placement) {
  if (!depends_on_place(terms, kind)) return;
  // 0 stands for a call that passes no such buffer.
  hash.add(placement.window == nullptr ? 0 : placement.window_id + std::uint64_t{1})
      .add(placement.first)
      .add(placement.stride);
}

std::string describe(const char* what, const Placement& placement) {
  if (placement.window == nullptr) return "";
  return fmt::format(", {} at byte {} of allocation {}", what, placement.first,
                     placement.window_id);
}

std::string describe_kind(Collective collective, std::string_view algorithm) {
  return fmt::format("{} '{}'", to_string(collective), algorithm);
}

}  // namespace

std::uint64_t signature_of(const CallTerms& terms) {
  Fnv hash;
  hash.add(terms.problem.count)
      .add(terms.problem.is_rooted() ? static_cast<std::uint64_t>(terms.problem.root) : 0)
      .add(terms.is_staged)
      .add(terms.slice)
      .add(terms.empty_calls)
      .add(hash_of(terms.name));
  add(hash, terms, BufferKind::kInput, terms.input);
  add(hash, terms, BufferKind::kOutput, terms.output);
  const auto algorithm = static_cast<std::uint64_t>(terms.algorithm - algorithms().data());
  const bool reduces = terms.problem.reduces();
  const std::uint64_t op = reduces ? static_cast<std::uint64_t>(terms.reduction.op) + 1 : 0;
  const std::uint64_t kind = static_cast<std::uint64_t>(terms.problem.collective) + 1;
  const bool has_data = terms.problem.collective != Collective::kBarrier;
  const std::uint64_t type = has_data ? static_cast<std::uint64_t>(terms.reduction.type) : 0;
  assert(algorithm < std::uint64_t{1} << kAlgorithmBits);
  // Mixes the bits that a multiplication leaves in the upper half into the lower one.
  const std::uint64_t mixed = (hash.value() ^ hash.value() >> 29) * 0xbf58476d1ce4e5b9u;
  return kind << kCollectiveAt | op << kOpAt | type << kTypeAt | algorithm << kHashBits |
         mixed >> (64 - kHashBits);
}

std::string describe(const CallTerms& terms) {
  std::string text = describe_kind(terms.problem.collective, terms.algorithm->name);
  if (!terms.name.empty()) text += fmt::format(" named \"{}\"", terms.name);
  if (terms.problem.collective == Collective::kBarrier) return text;
  text += fmt::format(" of {} {}", terms.problem.count, to_string(terms.reduction.type));
  if (terms.problem.reduces()) text += fmt::format(" ({})", to_string(terms.reduction.op));
  if (terms.problem.is_rooted()) text += fmt::format(", root {}", terms.problem.root);
  if (terms.is_staged) {
    text += ", in memory that is not from allocate()";
  } else {
    text += describe("input", terms.input) + describe("output", terms.output);
  }
  if (terms.empty_calls != 0)
    text += fmt::format(", after {} calls without elements", terms.empty_calls);
  return text;
}

std::string describe_signature(std::uint64_t signature) {
  const auto field = [&](int at, int bits) {
    return signature >> at & ((std::uint64_t{1} << bits) - 1);
  };
  const std::uint64_t kind = field(kCollectiveAt, kFieldBits);
  const std::uint64_t op = field(kOpAt, kFieldBits);
  const std::uint64_t type = field(kTypeAt, kFieldBits);
  const std::uint64_t algorithm = field(kHashBits, kAlgorithmBits);
  if (kind == 0 || kind > std::size(kAllCollectives) || algorithm >= algorithms().size() ||
      op > static_cast<std::uint64_t>(ReduceOp::kAverage) + 1 ||
      type > static_cast<std::uint64_t>(DataType::kFloat64)) {
    return "something else";
  }
  const auto collective = static_cast<Collective>(kind - 1);
  std::string text = describe_kind(collective, algorithms()[algorithm].name);
  if (collective == Collective::kBarrier) return text;
  text += fmt::format(" of {}", to_string(static_cast<DataType>(type)));
  if (op != 0) text += fmt::format(" ({})", to_string(static_cast<ReduceOp>(op - 1)));
  return text;
}

}  // namespace dunlin::collective
