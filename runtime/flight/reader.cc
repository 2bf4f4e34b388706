#include "runtime/flight/reader.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <utility>

#include "runtime/bootstrap/printable.h"
#include "runtime/fd.h"
#include "runtime/process_stat.h"
#include "runtime/topology.h"
#include "runtime/wait.h"

namespace dunlin::flight {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;

// A writer changes a part for some nanoseconds. One that died while it did so never ends.
constexpr int kMostTries = 1000;

// No clock of another host shows more. Sums of such times do not overflow.
constexpr Duration kLongestUptime = std::chrono::hours(10 * 365 * 24);

std::uint64_t get(const Word& word) {
  return word.load(kRelaxed);
}

// A time from a file. One that no clock can have shown becomes the latest.
TimePoint time_of(std::uint64_t ns) {
  return TimePoint(Duration(static_cast<std::int64_t>(std::min<std::uint64_t>(ns, INT64_MAX))));
}

Duration duration_of(std::uint64_t ns) {
  // The sum of two does not overflow.
  return Duration(static_cast<std::int64_t>(std::min<std::uint64_t>(ns, INT64_MAX / 4)));
}

std::string text_of(const char* field, std::size_t size) {
  return bootstrap::printable(std::string(field, strnlen(field, size)));
}

// Calls `read()` until it has seen one state of the part. False: the writer has died, or was
// stopped, in the middle of a change.
template <typename Read>
bool read_consistently(const Word& sequence, Read&& read) {
  for (int tries = 0; tries < kMostTries; ++tries) {
    // Pairs with the release store at the end of SeqlockUpdate.
    const std::uint64_t before = sequence.load(std::memory_order_acquire);
    if (before % 2 == 0) {
      read();
      // Pairs with the release fence at its beginning.
      std::atomic_thread_fence(std::memory_order_acquire);
      if (sequence.load(kRelaxed) == before) return true;
    }
    cpu_relax();
  }
  return false;
}

struct Doing {
  std::uint64_t operation = kNames, bytes = 0, since = 0, awaited = 0, wait_since = 0, phase = 0;
};

Doing doing_of(const Now& part) {
  Doing doing;
  const bool is_known = read_consistently(part.sequence, [&] {
    doing = {get(part.operation), get(part.bytes),         get(part.since_ns),
             get(part.awaited),   get(part.wait_since_ns), get(part.phase)};
  });
  return is_known ? doing : Doing();
}

ProcessState state_of(const bootstrap::ProcessId& process) {
  switch (bootstrap::watch_process(process).state) {
    case bootstrap::ProcessWatch::State::kUnknown:
      return ProcessState::kUnknown;
    case bootstrap::ProcessWatch::State::kEnded:
      return ProcessState::kEnded;
    case bootstrap::ProcessWatch::State::kAlive:
      break;
  }
  const std::string stat = process_stat(process.pid);
  const bool is_stopped = !stat.empty() && (stat.front() == 'T' || stat.front() == 't');
  return is_stopped ? ProcessState::kStopped : ProcessState::kRunning;
}

}  // namespace

Record::Record(Record&& other) noexcept
    : path_(std::move(other.path_)),
      file_(std::exchange(other.file_, nullptr)),
      rank_(other.rank_),
      size_(other.size_),
      process_(std::move(other.process_)) {}

Record& Record::operator=(Record&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(file_, other.file_);
  std::swap(rank_, other.rank_);
  std::swap(size_, other.size_);
  std::swap(process_, other.process_);
  return *this;
}

Record::~Record() {
  if (file_ != nullptr) munmap(const_cast<File*>(file_), sizeof(File));
}

Result<Record> Record::open(const std::string& path) {
  return open_at(AT_FDCWD, path);
}

Result<Record> Record::open_at(int folder, const std::string& path) {
  const Fd fd(openat(folder, path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!fd.is_open()) return Status::from_errno(path, errno);
  struct stat info {};
  if (fstat(fd.get(), &info) != 0) return Status::from_errno(path, errno);
  // Its owner could shorten the file at any time, which would end this process. Users do that to
  // themselves only.
  if (info.st_uid != geteuid())
    return Status(Code::kPermissionDenied, path + " belongs to another user");
  if (!S_ISREG(info.st_mode)) return Status(Code::kCorrupted, path + " is no regular file");
  if (info.st_size != static_cast<off_t>(sizeof(File))) {
    return Status(Code::kCorrupted,
                  fmt::format("{} has {} bytes, but a flight record of this version has {}", path,
                              info.st_size, sizeof(File)));
  }
  void* const address = mmap(nullptr, sizeof(File), PROT_READ, MAP_SHARED, fd.get(), 0);
  if (address == MAP_FAILED) return Status::from_errno("mapping " + path, errno);
  Record record;
  record.path_ = path;
  record.file_ = static_cast<const File*>(address);
  DUNLIN_TRY(record.check().with_context(path));
  return record;
}

Status Record::check() {
  const Header& header = file_->header;
  // Pairs with the release store in fill_header().
  if (header.magic.load(std::memory_order_acquire) != kMagic)
    return {Code::kCorrupted, "this is no flight record, or it is just being created"};
  if (get(header.version) != kVersion || get(header.file_bytes) != sizeof(File)) {
    return {Code::kCorrupted,
            fmt::format("this is a flight record of version {}, but this program reads version {}",
                        get(header.version), kVersion)};
  }
  const std::uint64_t rank = get(header.rank);
  const std::uint64_t size = get(header.size);
  if (size > INT_MAX || rank >= size)
    return {Code::kCorrupted, fmt::format("it says that it is of rank {} of {}", rank, size)};
  rank_ = Rank(static_cast<int>(rank));
  size_ = static_cast<int>(size);
  DUNLIN_ASSIGN(process_, bootstrap::ProcessId::parse(std::string_view(
                              header.process, strnlen(header.process, sizeof header.process))));
  return Status::ok();
}

ProcessState Record::process_state() const {
  return state_of(process_);
}

bool Record::is_from_elsewhere() const {
  static const std::string kernel = host_identity("");
  return !kernel.empty() && !process_.space.empty() && !process_.space.starts_with(kernel + "-");
}

std::string Record::name_at(std::uint64_t index) const {
  // Pairs with the release store in Recorder::index_of().
  const std::uint64_t used = file_->names_used.load(std::memory_order_acquire);
  if (index >= std::min<std::uint64_t>(used, kNames)) return "?";
  return text_of(file_->names[index], kNameBytes);
}

std::vector<PeerTime> Record::peers() const {
  std::vector<PeerTime> result;
  for (const PeerWait& entry : file_->peers) {
    if (get(entry.rank) == 0) continue;
    PeerTime time;
    std::uint64_t tag = 0;
    const bool is_read = read_consistently(entry.sequence, [&] {
      tag = get(entry.rank);
      time.waited = duration_of(get(entry.waited_ns));
      time.waits = get(entry.waits);
    });
    if (!is_read || tag == 0 || tag > static_cast<std::uint64_t>(size_)) continue;
    time.peer = Rank(static_cast<int>(tag - 1));
    result.push_back(time);
  }
  return result;
}

Snapshot Record::snapshot(TimePoint now) const {
  Snapshot result;
  const Header& header = file_->header;
  result.rank = rank_;
  result.size = size_;
  result.job = text_of(header.job, sizeof header.job);
  result.host = text_of(header.host, sizeof header.host);
  result.program = text_of(header.program, sizeof header.program);
  result.pid = process_.pid;
  // In this order: a rank whose process has ended has written everything before.
  result.process = process_state();
  result.is_from_elsewhere = is_from_elsewhere();
  // This host's clock says nothing about the times in a record from elsewhere.
  if (result.is_from_elsewhere) now = TimePoint(kLongestUptime);

  Doing doing;
  // A wait is either in progress or in the sums. As waits take kShortestWait at least, this reads
  // between two changes.
  const bool is_known = read_consistently(file_->now.wait_sequence, [&] {
    doing = doing_of(file_->now);
    result.waited = duration_of(get(file_->counts.waited_ns));
    result.peers = peers();
  });
  // The writer is in the middle of a change, for good if it is dead. The last try, if there was
  // one, has mixed two states.
  if (!is_known) {
    doing = doing_of(file_->now);
    doing.awaited = 0;
    result.waited = {};
    result.peers.clear();
  }
  result.phase = doing.phase <= static_cast<std::uint64_t>(Phase::kFailed)
                     ? static_cast<Phase>(doing.phase)
                     : Phase::kRunning;
  const std::uint64_t ended = get(file_->counts.ended);
  const std::uint64_t begun = get(file_->counts.begun);
  result.operations = ended;
  result.events = get(file_->counts.events);
  result.seen = std::min(time_of(get(file_->counts.seen_ns)), now);

  struct {
    std::uint64_t number = 0, began = 0, steps = 0, total = 0, own = 0;
  } step;
  if (read_consistently(file_->steps.sequence, [&] {
        const Steps& part = file_->steps;
        step = {get(part.number), get(part.began_ns), get(part.steps), get(part.total_ns),
                get(part.own_ns)};
      })) {
    result.step = step.number;
    result.steps = step.steps;
    if (step.began != 0) result.step_began = std::min(time_of(step.began), now);
    result.step_time = duration_of(step.total);
    result.own_time = std::min(duration_of(step.own), result.step_time);
  }
  if (result.step_began) result.seen = std::max(result.seen, *result.step_began);
  result.at = result.is_over() ? result.seen : now;
  result.began = std::min(time_of(get(header.began_ns)), result.at);

  if (begun != ended) {
    result.operation = name_at(doing.operation);
    result.operation_bytes = doing.bytes;
    if (doing.since != 0) result.operation_since = std::min(time_of(doing.since), result.at);
  }
  if (doing.awaited != 0 && doing.awaited <= static_cast<std::uint64_t>(size_)) {
    result.awaited = Rank(static_cast<int>(doing.awaited - 1));
    result.awaited_since = std::min(time_of(doing.wait_since), result.at);
    const Duration so_far = result.at - result.awaited_since;
    const auto known =
        std::find_if(result.peers.begin(), result.peers.end(),
                     [&](const PeerTime& each) { return each.peer == result.awaited; });
    if (known == result.peers.end()) {
      result.peers.push_back({result.awaited, so_far, 1});
    } else {
      known->waited += so_far;
    }
    result.waited += so_far;
  }
  std::sort(result.peers.begin(), result.peers.end(), [](const PeerTime& a, const PeerTime& b) {
    return a.waited != b.waited ? a.waited > b.waited : a.peer < b.peer;
  });

  const std::uint64_t transports =
      std::min<std::uint64_t>(file_->transports_used.load(std::memory_order_acquire), kTransports);
  for (std::uint64_t i = 0; i < transports; ++i) {
    const TransportBytes& each = file_->transports[i];
    result.transports.push_back(
        {text_of(each.name, sizeof each.name), get(each.put), get(each.got)});
  }
  std::array<std::uint64_t, kErrorWords> text{};
  std::uint64_t when = 0;
  const bool has_error = read_consistently(file_->error.sequence, [&] {
    when = get(file_->error.when_ns);
    for (std::size_t i = 0; i < text.size(); ++i) text[i] = get(file_->error.text[i]);
  });
  if (has_error && when != 0)
    result.error = text_of(reinterpret_cast<const char*>(text.data()), sizeof text);
  return result;
}

std::vector<PastEvent> Record::events() const {
  std::vector<PastEvent> result;
  const std::uint64_t end = file_->counts.events.load(std::memory_order_acquire);
  for (std::uint64_t number = end - std::min<std::uint64_t>(end, kEvents); number != end;
       ++number) {
    const Event& event = file_->events[number % kEvents];
    if (event.number.load(std::memory_order_acquire) != number + 1) continue;
    PastEvent past;
    past.began = time_of(get(event.began_ns));
    past.ended = time_of(get(event.ended_ns));
    past.value = get(event.value);
    const Packed fields = unpack(get(event.packed));
    std::atomic_thread_fence(std::memory_order_acquire);
    if (event.number.load(kRelaxed) != number + 1) continue;
    if (fields.kind == EventKind::kNone || fields.kind > EventKind::kError) continue;
    past.kind = fields.kind;
    past.count = fields.count;
    if (fields.kind == EventKind::kOperation) past.name = name_at(fields.name);
    if (fields.peer != 0 && fields.peer <= static_cast<std::uint64_t>(size_))
      past.peer = Rank(static_cast<int>(fields.peer - 1));
    result.push_back(std::move(past));
  }
  return result;
}

}  // namespace dunlin::flight
