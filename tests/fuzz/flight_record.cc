// Flight records (runtime/flight/reader.h), which a rank that has died or a stranger may have left
// in any state. An input is a list of words that replace those of a valid record.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <new>
#include <utility>

#include "runtime/flight/reader.h"
#include "tests/fuzz/harness.h"

namespace dunlin::fuzz {
namespace {

using namespace flight;

constexpr std::size_t kWords = sizeof(File) / sizeof(std::uint64_t);

struct Patch {
  std::uint32_t word = 0;  // index
  std::uint64_t value = 0;
};

// A record in a file of this process.
class Base {
 public:
  Base() {
    const int fd = mkstemp(path_.data());
    FUZZ_CHECK(fd >= 0 && ftruncate(fd, sizeof(File)) == 0);
    void* const memory = mmap(nullptr, sizeof(File), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    FUZZ_CHECK(memory != MAP_FAILED);
    close(fd);
    words_ = static_cast<std::uint64_t*>(memory);
    File* const file = new (memory) File{};
    file->header.magic = kMagic;
    file->header.version = kVersion;
    file->header.file_bytes = sizeof(File);
    file->header.rank = 1;
    file->header.size = 4;
    std::strcpy(file->header.process, bootstrap::ProcessId::of_self().to_string().c_str());
    file->names_used = 1;
    std::strcpy(file->names[0], "all-reduce");
    file->counts.events = 1;
    file->events[0].number = 1;
    file->events[0].packed = pack({EventKind::kOperation, 0, 3, 1});
  }
  ~Base() {
    munmap(words_, sizeof(File));
    unlink(path_.c_str());
  }
  const std::string& path() const { return path_; }
  std::uint64_t exchange(const Patch& patch) {
    return std::exchange(words_[patch.word % kWords], patch.value);
  }

 private:
  std::string path_ = std::filesystem::temp_directory_path() / "dunlin-fuzz-XXXXXX";
  std::uint64_t* words_ = nullptr;
};

bool is_printable(std::string_view text) {
  return std::ranges::all_of(text, [](char each) { return each >= ' ' && each <= '~'; });
}

void check_times(const Snapshot& seen, TimePoint now) {
  FUZZ_CHECK(seen.is_from_elsewhere || seen.at <= now);
  FUZZ_CHECK(seen.began <= seen.at && seen.awaited_since <= seen.at);
  FUZZ_CHECK(seen.own_time <= seen.step_time && seen.own_time >= Duration());
  FUZZ_CHECK(seen.waited >= Duration());
}

void check(const Record& record) {
  const TimePoint now(std::chrono::hours(1));
  const Snapshot seen = record.snapshot(now);
  check_times(seen, now);
  FUZZ_CHECK(seen.rank.value() >= 0 && seen.rank.value() < seen.size);
  FUZZ_CHECK(seen.awaited.value() < seen.size && seen.phase <= Phase::kFailed);
  for (const std::string* const text :
       {&seen.job, &seen.host, &seen.program, &seen.operation, &seen.error})
    FUZZ_CHECK(is_printable(*text));
  FUZZ_CHECK(seen.peers.size() <= kPeers + 1 && seen.transports.size() <= kTransports);
  for (const PeerTime& each : seen.peers)
    FUZZ_CHECK(each.peer.value() >= 0 && each.peer.value() < seen.size &&
               each.waited >= Duration());
  for (const TransportUse& each : seen.transports) FUZZ_CHECK(is_printable(each.name));
  const auto events = record.events();
  FUZZ_CHECK(events.size() <= kEvents);
  for (const PastEvent& each : events)
    FUZZ_CHECK(is_printable(each.name) && each.peer.value() < seen.size);
}

Seed seed(std::string name, std::initializer_list<Patch> patches) {
  ByteWriter bytes;
  for (const Patch& each : patches) bytes.number(each.word).number(each.value);
  return {std::move(name), bytes.take()};
}

constexpr std::uint32_t word_at(std::size_t offset) {
  return static_cast<std::uint32_t>(offset / sizeof(std::uint64_t));
}

}  // namespace

std::vector<Seed> seeds() {
  constexpr std::uint32_t now = word_at(offsetof(File, now));
  constexpr std::uint32_t counts = word_at(offsetof(File, counts));
  constexpr std::uint32_t steps = word_at(offsetof(File, steps));
  constexpr std::uint32_t error = word_at(offsetof(File, error));
  constexpr std::uint32_t peer = word_at(offsetof(File, peers));
  return {
      seed("waits", {{now + 3, 1'000}, {now + 4, 3}, {now + 5, 2'000}, {counts + 1, 1}}),
      seed("steps", {{steps + 1, 7}, {steps + 2, 5'000}, {steps + 3, 6}, {steps + 4, 600}}),
      seed("failed", {{now + 6, 2}, {error + 1, 9'000}, {error + 2, 0x6f6f74206f6f74}}),
      seed("peers", {{peer + 1, 4}, {peer + 2, 50'000}, {peer + 3, 2}, {counts + 4, 50'000}}),
      seed("torn", {{now, 1}, {peer, 3}}),
      seed("elsewhere", {{word_at(offsetof(Header, process)), 0x2d78}}),
  };
}

}  // namespace dunlin::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace dunlin::fuzz;
  static Base base;
  Input input(data, size);
  std::vector<Patch> undo;
  while (input.rest().size() >= sizeof(Patch::word) + sizeof(Patch::value) && undo.size() < 64) {
    Patch patch{input.take<std::uint32_t>(), input.take<std::uint64_t>()};
    undo.push_back({patch.word, base.exchange(patch)});
  }
  if (const auto record = dunlin::flight::Record::open(base.path())) check(*record);
  std::for_each(undo.rbegin(), undo.rend(), [](const Patch& each) { base.exchange(each); });
  return 0;
}
