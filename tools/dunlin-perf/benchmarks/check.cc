#include "tools/dunlin-perf/benchmarks/check.h"

#include <fmt/format.h>

#include <vector>

#include "tools/dunlin-perf/benchmarks/pair.h"

namespace dunlin::perf {
namespace {

class Pattern {
 public:
  explicit Pattern(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 1) {}
  std::byte next() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;  // Knuth's MMIX generator
    return static_cast<std::byte>(state_ >> 56);
  }

 private:
  std::uint64_t state_;
};

}  // namespace

void fill(std::span<std::byte> bytes, std::uint64_t seed) {
  Pattern pattern(seed);
  for (std::byte& byte : bytes) byte = pattern.next();
}

Status verify(std::span<const std::byte> bytes, std::uint64_t seed, const char* what) {
  Pattern pattern(seed);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const std::byte expected = pattern.next();
    if (bytes[i] == expected) continue;
    return {Code::kCorrupted,
            fmt::format("wrong data in a {} of {} bytes: byte {} is {:#04x}, expected {:#04x}",
                        what, bytes.size(), i, std::to_integer<int>(bytes[i]),
                        std::to_integer<int>(expected))};
  }
  return Status::ok();
}

Status fill(Job& job, std::span<std::byte> bytes, std::uint64_t seed) {
  if (job.gpu() == nullptr) {
    fill(bytes, seed);
    return Status::ok();
  }
  std::vector<std::byte> staged(bytes.size());
  fill(staged, seed);
  return job.gpu()->write(bytes.data(), staged);
}

Status verify(Job& job, std::span<const std::byte> bytes, std::uint64_t seed, const char* what) {
  if (job.gpu() == nullptr) return verify(bytes, seed, what);
  std::vector<std::byte> staged(bytes.size());
  DUNLIN_TRY(job.gpu()->read(staged, bytes.data()));
  return verify(staged, seed, what);
}

Status check_puts(Pair& pair, std::size_t size, bool both_ways) {
  const auto seed_of = [size](bool leader) { return 2 * size + (leader ? 1 : 2); };
  const std::uint64_t guard_seed = 2 * size + 3;
  const std::span<std::byte> guard = pair.target().memory()->bytes().subspan(size, kGuard);
  DUNLIN_ASSIGN(const auto from, pair.source().slice(0, size));
  DUNLIN_ASSIGN(const auto to, pair.remote().slice(0, size));
  Job& job = pair.job();
  DUNLIN_TRY(fill(job, guard, guard_seed));
  DUNLIN_TRY(pair.sync());
  if (pair.leads() || both_ways) {
    DUNLIN_TRY(fill(job, {from.data(), size}, seed_of(pair.leads())));
    DUNLIN_TRY(job.post(pair.peer(), [&] { return pair.lane().put(from, to, nullptr); }));
    DUNLIN_TRY(pair.flush(transport::Visibility::kRemote));
  }
  DUNLIN_TRY(pair.sync());
  if (pair.leads() && !both_ways) return Status::ok();
  DUNLIN_TRY(verify(job, {pair.target().data(), size}, seed_of(!pair.leads()), "put"));
  DUNLIN_TRY(verify(job, guard, guard_seed, "stretch behind a put"));
  return Status::ok();
}

}  // namespace dunlin::perf
