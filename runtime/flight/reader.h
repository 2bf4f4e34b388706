// Record: reads the flight record of a rank, while the rank runs or after its end. One thread.
//
// A reader never takes a torn part: it reads again if the writer changed the part meanwhile.
// Nothing in the file is trusted. Numbers are checked, and texts come out printable.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/bootstrap/process_id.h"
#include "runtime/clock.h"
#include "runtime/flight/layout.h"
#include "runtime/rank.h"
#include "runtime/status.h"

namespace dunlin::flight {

enum class ProcessState : std::uint8_t {
  kUnknown,  // it runs in another pid namespace or on another host
  kRunning,
  kStopped,  // by a signal such as SIGSTOP
  kEnded,
};

// How long a rank has waited for one of its peers.
struct PeerTime {
  Rank peer;
  Duration waited{};
  std::uint64_t waits = 0;
};

struct TransportUse {
  std::string name;
  std::uint64_t put = 0;  // bytes
  std::uint64_t got = 0;
};

// What a record said at one moment.
struct Snapshot {
  Rank rank;
  int size = 0;
  std::string job;
  std::string host;
  std::string program;
  pid_t pid = 0;
  ProcessState process = ProcessState::kUnknown;
  Phase phase = Phase::kRunning;
  bool is_from_elsewhere = false;  // see Record; it counts as ended
  TimePoint began;                 // of the rank
  TimePoint at;    // of the snapshot; of the last sign of life, if the rank has ended
  TimePoint seen;  // the last time that the rank knew
  // What it does: the operation that began last, if one is in progress.
  std::string operation;
  std::uint64_t operation_bytes = 0;
  std::optional<TimePoint> operation_since;
  // For whom it waits at the moment. Rank(): for nobody.
  Rank awaited;
  TimePoint awaited_since{};
  std::uint64_t operations = 0;  // completed
  std::uint64_t events = 0;
  std::uint64_t step = 0;   // as the program counts
  std::uint64_t steps = 0;  // completed
  std::optional<TimePoint> step_began;
  Duration step_time{};         // of all completed steps
  Duration own_time{};          // the part of it in which the rank did not wait
  Duration waited{};            // in sum, with the wait in progress
  std::vector<PeerTime> peers;  // the longest first, with the wait in progress
  std::vector<TransportUse> transports;
  std::string error;  // the last one

  bool is_over() const {
    return phase != Phase::kRunning || process == ProcessState::kEnded || is_from_elsewhere;
  }
  // It has ended without leaving the job.
  bool has_failed() const {
    return phase == Phase::kFailed || (phase == Phase::kRunning && process == ProcessState::kEnded);
  }
  // It has ended, but whether it left the job is not known.
  bool has_unknown_end() const {
    return phase == Phase::kRunning && process == ProcessState::kUnknown && is_from_elsewhere;
  }
  Duration elapsed() const { return at - began; }
};

// An event of the last few thousand.
struct PastEvent {
  EventKind kind = EventKind::kNone;
  std::string name;  // of an operation
  TimePoint began;
  TimePoint ended;
  std::uint64_t value = 0;  // bytes, or the number of a step
  std::uint64_t count = 0;  // equal operations in a row
  Rank peer;
};

class Record {
 public:
  // kNotFound, kPermissionDenied (also for files of other users), or kCorrupted: the text says what
  // is wrong with the file.
  static Result<Record> open(const std::string& path);
  // The file `name` in the folder with this descriptor.
  static Result<Record> open_at(int folder, const std::string& name);
  Record(Record&& other) noexcept;
  Record& operator=(Record&& other) noexcept;
  ~Record();

  Rank rank() const { return rank_; }
  const std::string& path() const { return path_; }
  ProcessState process_state() const;
  // Whether it was written before this host was started, or on another one: neither its process nor
  // its clock can be looked at.
  bool is_from_elsewhere() const;
  Snapshot snapshot(TimePoint now) const;
  // The last events, the oldest first. Those that the rank is writing are left out.
  std::vector<PastEvent> events() const;

 private:
  Record() = default;
  Status check();
  std::string name_at(std::uint64_t index) const;
  std::vector<PeerTime> peers() const;

  std::string path_;
  const File* file_ = nullptr;
  Rank rank_;
  int size_ = 0;
  bootstrap::ProcessId process_;
};

}  // namespace dunlin::flight
