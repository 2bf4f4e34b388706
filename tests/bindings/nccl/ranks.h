// Ranks that are processes of their own, each of which loads the plugin and calls it as NCCL does.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "tests/bindings/nccl/plugin.h"

namespace dunlin::testing {

inline constexpr int kMostRanks = 4;

using Block = std::vector<unsigned char>;
// The bytes that tests send; they differ between seeds.
Block pattern(std::size_t size, std::size_t seed);

// What all ranks see, in memory that they share.
struct Board {
  std::atomic<bool> has_handle[kMostRanks];
  char handle[kMostRanks][abi::kHandleBytes];
  std::atomic<int> step[kMostRanks];  // for the tests
  std::atomic<int> process[kMostRanks];
};

// The deadline of all waits: ten times what a loaded host needs.
inline constexpr int kPatienceSeconds = 60;

struct Rank {
  int number;
  int size;
  Board& board;
  Plugin& plugin;

  void listen(void** listener);
  // Connects to the rank's listener, or accepts. They call until there is a comm.
  void* connect(int to);
  void* accept(void* listener);
  void* add(void* comm, void* data, std::size_t bytes, int type = abi::kPointerHost);
  // Call until there is a request.
  void* send(void* comm, void* data, std::size_t bytes, int tag, void* memory);
  void* receive(void* comm, void* data, std::size_t bytes, int tag, void* memory);
  // Until the request is done; returns the size.
  int wait(void* request, int* sizes = nullptr);
  // Tests until there is an error, which it returns.
  abi::Result wait_for_error(void* request);
  // Waits until all ranks have come here.
  void sync();
  // Waits until the other rank's process is stopped (SIGSTOP).
  void await_stopped(int other);
  void send_signal(int other, int signal);
};

// Rank 0 receives from rank 1 through `comm`.
struct Pair {
  explicit Pair(Rank& from);
  bool is_receiver() const { return rank.number == 0; }
  void close();
  Rank& rank;
  void* listener = nullptr;
  void* comm = nullptr;
};

// Ends the process with a sentence if the condition does not hold.
void require(bool condition, const char* what, int line);
#define REQUIRE(condition) ::dunlin::testing::require((condition), #condition, __LINE__)

// Calls `step` until it returns true.
void until(const std::function<bool()>& step, const char* what);

// Runs the body once per rank, over the transport; empty: without a setting. Each rank uses another
// of the transport's devices, in turn. Returns "" if all processes have ended well but those in
// `killed`, which have to have been killed.
std::string run(int size, int version, const std::string& transport,
                const std::function<void(Rank&)>& body, const std::vector<int>& killed = {});

// What the ranks pass to the plugin as NCCL's log.
abi::Logger logger();
// How many warnings the plugin has logged in this process.
int warnings();
// Whether the plugin has logged a message with this text in this process.
bool has_logged(const std::string& text);

}  // namespace dunlin::testing
