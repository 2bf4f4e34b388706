// Shared: the options that are the same on all ranks of a measurement. Under a launcher each rank
// reads them from its own command line; otherwise the side that connects sends them to the
// listener.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
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
// All of them and their names on the command line.
struct BenchName {
  Bench bench;
  const char* name;
};
inline constexpr BenchName kBenches[] = {
    {Bench::kPut, "put"},
    {Bench::kPutLatency, "put-latency"},
    {Bench::kPutNotify, "put-notify"},
    {Bench::kNotify, "notify"},
    {Bench::kGet, "get"},
    {Bench::kAtomic, "atomic"},
    {Bench::kChannel, "channel"},
    {Bench::kBarrier, "barrier"},
    {Bench::kMutex, "mutex"},
    {Bench::kWindow, "window"},
    {Bench::kAllReduce, "all-reduce"},
    {Bench::kReduceScatter, "reduce-scatter"},
    {Bench::kAllGather, "all-gather"},
    {Bench::kBroadcast, "broadcast"},
    {Bench::kAllToAll, "all-to-all"},
    {Bench::kReduce, "reduce"},
    {Bench::kNeighborAllReduce, "neighbor-all-reduce"},
    {Bench::kPartial, "partial"},
    {Bench::kGroups, "groups"},
    {Bench::kOverlap, "overlap"},
    {Bench::kStragglerRing, "straggler-ring"},
    {Bench::kTune, "tune"},
    {Bench::kConsistency, "consistency"},
};
const char* to_string(Bench bench);

// Where the memory that is measured lies: host, wrapped, any or cuda[:N] on the command line.
struct MemoryChoice {
  enum class Kind : std::uint8_t {
    kHost,     // memory that Dunlin allocated; "registered" is another name for it
    kWrapped,  // of puts and gets: the program's own memory, registered
    kAny,      // of collectives: the program's own memory, which is copied in and out
    kCuda,     // memory of a GPU
  };
  Kind kind = Kind::kHost;
  int gpu = -1;  // its number; -1: each rank takes the one that its place on its host gives
  bool operator==(const MemoryChoice&) const = default;
};
Result<MemoryChoice> parse_memory(std::string_view text);
std::string to_string(const MemoryChoice& memory);
bool takes_any_memory(Bench bench);
bool takes_wrapped_memory(Bench bench);
bool takes_gpu_memory(Bench bench);

struct Straggler {
  int rank = 0;
  double factor = 1;
};

// Reads "RANK:FACTOR" with a factor of 1 or more; returns nothing for anything else.
std::optional<Straggler> parse_straggler(const std::string& text);

struct ConsistencyOptions {
  std::string graph = "complete";
  std::size_t count = 47'237;  // the features of RCV1 and one bias
  std::uint64_t reduces = 10'000;
  std::string sync = "all";
  std::optional<Straggler> straggler;
  Duration compute{};
};

// Options of the collectives, of neighbor-all-reduce, partial, groups, overlap and tune.
struct CollectiveOptions {
  std::string algorithm;  // a name; "all": each that suits; empty: chosen by size
  std::string type = "float32";
  std::string op = "sum";
  bool is_in_place = true;
  Duration progress_every = std::chrono::microseconds(10);  // of the computation of overlap
  std::string graph = "ring";                               // of neighbor-all-reduce
  std::uint32_t tensors = 1;  // of neighbor-all-reduce, started together
  int group_size = 2;         // of partial and groups
  std::string tuning_file{};  // of tune; empty: as configured
};

// Options of straggler-ring.
struct RingOptions {
  Duration step = std::chrono::milliseconds(3);  // the time of each step
  std::vector<Duration> extras;                  // by how much one step is late; one row for each
  double alpha = 2;                              // as in collective::LatenessOptions
  std::uint64_t moves_every = 0;                 // reduces; 0: the late step stays the same
};

// `named` holds the names of the options that are on the command line.
struct Shared {
  Bench bench = Bench::kPut;
  std::vector<std::size_t> sizes;
  std::uint64_t iterations = 0;  // 0: by size
  Duration duration{};           // of each size, instead of iterations; 0: `iterations` count
  std::uint64_t warmup = 0;      // 0: a share of the iterations
  std::uint32_t depth = 0;       // 0: the benchmark's own default
  // The verbs transport stripes large puts over so many queue pairs per port; 0: as configured.
  std::uint32_t queue_pairs = 0;
  bool is_bidirectional = false;
  bool is_put = false;  // window: puts in place of accumulates
  MemoryChoice memory;
  bool checks = true;
  bool has_histogram = false;
  ConsistencyOptions consistency;
  CollectiveOptions collective;
  RingOptions ring;
  std::set<std::string> named;
};

// Limits of the options, whether they come from a command line or from a client.
// Sums of several sizes fit 64 bits.
inline constexpr std::size_t kLargestSize = std::size_t{1} << 48;
inline constexpr std::uint64_t kMostIterations = std::uint64_t{1} << 40;
inline constexpr int kHighestGpu = 65'535;
inline constexpr std::uint32_t kDeepest = 4096;
inline constexpr std::uint32_t kMostTensors = 65'536;
inline constexpr std::uint32_t kMostQueuePairs = 8;  // as DUNLIN_VERBS_QP_COUNT
inline constexpr Duration kLongestDuration = std::chrono::hours(24);
inline constexpr Duration kLongestCompute = std::chrono::seconds(1);
// The deadline of a ring covers many such steps.
inline constexpr Duration kLongestStep = std::chrono::seconds(1);

// Returns kInvalidArgument for a time that is not from 0 to `longest`.
Result<Duration> duration_from(double count, Duration unit, Duration longest);

// Says what is wrong with the combination of options; "": nothing.
std::string problem_of(const Shared& options);

// The members have the names of the options.
nlohmann::ordered_json to_json(const Shared& options);
// Returns kCorrupted or kInvalidArgument for options that no command line can have.
Result<Shared> shared_from_json(const nlohmann::ordered_json& json);

// Lists the options that the listener's command line names and that the client has otherwise, one
// per line; "": none.
std::string disagreement(const Shared& listener, const Shared& client);

}  // namespace dunlin::perf
