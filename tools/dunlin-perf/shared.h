// Shared: what all ranks of a measurement do alike. Under a launcher each reads it from its own
// command line; without one, the side that connects tells it the listener.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "runtime/clock.h"
#include "runtime/status.h"

namespace dunlin::perf {

enum class Bench : std::uint8_t {
  kPut,
  kPutLatency,
  kPutNotify,
  kNotify,
  kGet,
  kAtomic,
  kChannel,
  kBarrier,
  kMutex,
  kWindow,
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kBroadcast,
  kAllToAll,
  kReduce,
  kNeighborAllReduce,
  kPartial,
  kGroups,
  kOverlap,
  kStragglerRing,
  kTune,
  kConsistency
};
inline constexpr Bench kBenches[] = {Bench::kPut,
                                     Bench::kPutLatency,
                                     Bench::kPutNotify,
                                     Bench::kNotify,
                                     Bench::kGet,
                                     Bench::kAtomic,
                                     Bench::kChannel,
                                     Bench::kBarrier,
                                     Bench::kMutex,
                                     Bench::kWindow,
                                     Bench::kAllReduce,
                                     Bench::kReduceScatter,
                                     Bench::kAllGather,
                                     Bench::kBroadcast,
                                     Bench::kAllToAll,
                                     Bench::kReduce,
                                     Bench::kNeighborAllReduce,
                                     Bench::kPartial,
                                     Bench::kGroups,
                                     Bench::kOverlap,
                                     Bench::kStragglerRing,
                                     Bench::kTune,
                                     Bench::kConsistency};
const char* to_string(Bench bench);

struct Straggler {
  int rank = 0;
  double factor = 1;
};

// "RANK:FACTOR" with a factor of 1 or more; nothing for anything else.
std::optional<Straggler> parse_straggler(const std::string& text);

struct ConsistencyOptions {
  std::string graph = "complete";
  std::size_t count = 47'237;  // the features of RCV1 and a bias
  std::uint64_t reduces = 10'000;
  std::string sync = "all";
  std::optional<Straggler> straggler;
  Duration compute{};
};

// Of all-reduce and its kin, of neighbor-all-reduce, partial and overlap.
struct CollectiveOptions {
  std::string algorithm;  // a name; "all": each that suits; empty: chosen
  std::string type = "float32";
  std::string op = "sum";
  bool is_in_place = true;
  std::string memory = "registered";                        // or "any"
  Duration progress_every = std::chrono::microseconds(10);  // of overlap's computation
  std::string graph = "ring";                               // of neighbor-all-reduce
  std::uint32_t tensors = 1;                                // of neighbor-all-reduce, at a time
  int group_size = 2;                                       // of partial and groups
  std::string tuning_file{};                                // of tune; empty: the configuration's
};

// Of straggler-ring.
struct RingOptions {
  Duration step = std::chrono::milliseconds(3);  // what each step takes
  std::vector<Duration> extras;                  // by how much one is late; one row each
  double alpha = 2;                              // collective::LatenessOptions
};

// What all ranks do alike. `named` holds the options that the command line has, by their names.
struct Shared {
  Bench bench = Bench::kPut;
  std::vector<std::size_t> sizes;
  std::uint64_t iterations = 0;   // 0: by size
  Duration duration{};            // of each size, instead of iterations; 0: by iterations
  std::uint64_t warmup = 0;       // 0: a share of the iterations
  std::uint32_t depth = 0;        // 0: the benchmark's own default
  std::uint32_t queue_pairs = 0;  // of the verbs transport, per port, for stripes; 0: as configured
  bool is_bidirectional = false;
  bool checks = true;
  bool has_histogram = false;
  ConsistencyOptions consistency;
  CollectiveOptions collective;
  RingOptions ring;
  std::set<std::string> named;
};

// Bounds of what the command line or a client may ask for.
inline constexpr std::size_t kLargestSize = std::size_t{1} << 48;  // a sum of some is a number
inline constexpr std::uint64_t kMostIterations = std::uint64_t{1} << 40;
inline constexpr std::uint32_t kDeepest = 4096;
inline constexpr std::uint32_t kMostTensors = 65'536;
inline constexpr std::uint32_t kMostQueuePairs = 8;  // as DUNLIN_VERBS_QP_COUNT
inline constexpr double kLongestSeconds = 86'400;
inline constexpr double kLongestStep = 1'000;  // milliseconds; a ring's deadline holds many

// kInvalidArgument: beyond the bounds of a ring's step.
Result<Duration> milliseconds_from(double milliseconds);

// What is wrong with the combination; "": nothing.
std::string problem_of(const Shared& options);

// Under the options' names.
nlohmann::ordered_json to_json(const Shared& options);
// kCorrupted or kInvalidArgument for what no command line can have said.
Result<Shared> shared_from_json(const nlohmann::ordered_json& json);

// What the listener's command line names and the client's has otherwise, a line for each; "":
// nothing.
std::string disagreement(const Shared& listener, const Shared& client);

}  // namespace dunlin::perf
