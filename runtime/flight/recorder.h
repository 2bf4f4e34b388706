// Recorder: the flight recorder of a rank. It writes what the rank does, and for whom it waits, to
// a file that other processes can read while the rank runs and after its death (layout.h).
//
// It is written for the data path. Nothing but open() allocates, and it makes no system call.
// Repeated operations of one kind cost two stores each. It reads no clock for operations: it dates
// them by the readings that waits and steps make anyway.
//
// Owner thread only, except step(), which one other thread may call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "runtime/bootstrap/bootstrap.h"
#include "runtime/clock.h"
#include "runtime/config.h"
#include "runtime/flight/layout.h"
#include "runtime/rank.h"
#include "runtime/status.h"

namespace dunlin::flight {

class MetricsServer;
struct MetricsAddress;

class Recorder {
 public:
  struct Options {
    std::string folder;  // of the job; created, with its parent, if it does not exist
    std::string job;
    Rank rank;
    int size = 1;
    bool keeps = false;  // the file stays in any case
  };

  // Creates the record of this rank as the configuration says, and serves its metrics if they are
  // asked for. Null if it says off, if the job has one rank only or its ranks are threads, or if
  // the file cannot be created; then the reason is logged. kInvalidArgument for a malformed
  // Config::metrics. The clock outlives the recorder.
  static Result<std::unique_ptr<Recorder>> open(const Config& config, Bootstrap& bootstrap,
                                                const Clock& clock);
  // Creates the record as the options say. kResourceExhausted when there is no space for the file.
  static Result<std::unique_ptr<Recorder>> create(const Options& options, const Clock& clock);
  // Removes the file if leave() was called and nothing speaks against it (Options::keeps, keep(),
  // fail()). The file says that the rank has failed if leave() was not called.
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  // An operation begins. `name` is a literal. Several may be in progress.
  void begin(const char* name, std::uint64_t bytes) {
    bump(file_->counts.begun);
    if (name != name_ || bytes != bytes_ || is_dated_) describe(name, bytes);
  }
  // It ends, in any order. True now and then: a good time to note bytes().
  bool end(const char* name, std::uint64_t bytes) {
    const std::uint64_t ended = bump(file_->counts.ended);
    if (name == run_name_ && bytes == run_bytes_) {
      ++run_count_;
    } else {
      begin_run(name, bytes);
    }
    return ended % kOperationsPerNote == 0;
  }

  // An operation that has begun fails: it is in progress no more.
  void give_up() { bump(file_->counts.ended); }

  // The program's own loop begins its next step, which has this number. Reads the clock.
  void step(std::uint64_t number);

  // The call waits for `peer` since `since`, or Rank(): it waits for nobody any more. `now` is the
  // time until which it is known to have done so. WaitRecord calls them.
  void wait_for(Rank peer, TimePoint since, TimePoint now);
  void end_wait(TimePoint now);

  // How many bytes this rank has put to peers, and got from them, over a transport so far.
  void bytes(std::string_view transport, std::uint64_t put, std::uint64_t got);

  // Serves the metrics of this rank there, until its end.
  Status serve(const MetricsAddress& address);

  // The last error, for readers of the file after the rank's end. The file stays. The rank need
  // not have failed: it may tolerate the death of another one, or try again.
  void fail(const Status& status);
  // The rank ends, and has not failed: the destructor removes the file, and the job's folder if it
  // is the last. If another rank is dead, the file stays.
  void leave(const PeerTable& peers);
  // The file stays though this rank leaves: others may want to know how it ended.
  void keep() { is_kept_ = true; }

  const std::string& path() const { return path_; }
  const std::string& folder() const { return options_.folder; }

 private:
  static constexpr std::uint64_t kOperationsPerNote = 64;

  Recorder(Options options, std::string path, const Clock& clock, File* file);

  // Adds 1 to a counter that only this thread writes.
  static std::uint64_t bump(Word& word) {
    const std::uint64_t value = word.load(std::memory_order_relaxed) + 1;
    word.store(value, std::memory_order_relaxed);
    return value;
  }
  static void add(Word& word, std::uint64_t amount) {
    word.store(word.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);
  }
  void describe(const char* name, std::uint64_t bytes);
  void begin_run(const char* name, std::uint64_t bytes);
  // Writes how long the run has become, unless its event has been overwritten.
  void close_run();
  std::uint8_t index_of(const char* name);
  // Returns the number of the event.
  std::uint64_t push(EventKind kind, std::uint64_t began, std::uint64_t ended, std::uint64_t value,
                     const Packed& fields);
  void write(std::uint64_t number, std::uint64_t began, std::uint64_t ended, std::uint64_t value,
             std::uint64_t packed);
  void note_step();
  void charge(Rank peer, std::uint64_t waited_ns);
  void see(TimePoint now);
  std::uint64_t seen() const { return file_->counts.seen_ns.load(std::memory_order_relaxed); }

  const Options options_;
  const std::string path_;
  const Clock& clock_;
  File* const file_;
  const int pid_;  // forked children must not end the record
  // The operation in `now`.
  const char* name_ = nullptr;
  std::uint64_t bytes_ = 0;
  bool is_dated_ = false;  // its beginning is known
  // The run of equal operations that ended last.
  const char* run_name_ = nullptr;
  std::uint64_t run_bytes_ = 0;
  std::uint64_t run_count_ = 0;
  std::uint64_t run_event_ = 0;
  const char* names_[kNames] = {};
  // The wait in progress.
  Rank awaited_;
  TimePoint awaited_since_{};
  std::uint64_t noted_step_ = 0;  // Steps::steps when an event told of it
  std::string error_;             // the last one
  bool is_kept_ = false;
  bool has_left_ = false;
  std::unique_ptr<MetricsServer> metrics_;
};

}  // namespace dunlin::flight
