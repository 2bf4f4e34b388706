// Method: one rank's side of a way to bring the models of training workers together.
//
// A model is a vector of float32 parameters, and so is its gradient. Both lie in memory that the
// method allocates and, where they are sent directly, registers: host memory or, with
// MethodOptions::gpu, the memory of a GPU, which only work on that GPU can access. One iteration of
// a worker is:
//
//   method.begin(iteration)              // parameters() are now the ones to compute with
//   ... forward pass, then backward pass from the last layer to the first; after each layer:
//   method.ready(first, count)           // this part of gradient() is final
//   method.finish(learning_rate, stop)   // synchronizes and updates
//
// parameters() are the worker's model: the result of training after finish() and, at the end, after
// leave(). They may be written before the first begin(), either with initial values, which must be
// the same on all workers, or with those of a checkpoint. (Parameter servers take the initial
// values of one worker, see parameter_worker.h.) Otherwise the method writes them, and only while
// begin(), finish() or leave() is in progress. It reads gradient() only from ready() on.
//
// On a GPU, the caller's work on parameters() and gradient() has to be complete when it calls
// ready() and finish(), and the method's work is complete when the phase has ended. The contents of
// parameters() are undefined until the caller has written them. Averages and steps are kernels
// whose bits are those of the host's; no part of a model passes through host memory, unless the
// transport between two hosts stages it.
//
// A state machine: no call blocks. begin(), finish() and leave() start a phase; test() returns
// kBusy until that phase has ended. progress() has to be called while the worker computes, too,
// because other ranks may need this one (for an AD-PSGD average, or as the group generator). The
// caller progresses the fabric. Only the thread that owns the fabric may call a method;
// `Synchronizer` lets another thread compute.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/groups/group_average.h"
#include "collectives/stochastic/stochastic_reduce.h"
#include "collectives/straggler/lateness.h"
#include "collectives/training/sgd.h"
#include "transports/fabric.h"

namespace dunlin::training {

enum class MethodKind : std::uint8_t {
  kAllReduce,             // averages gradients over all workers, overlapping the backward pass
  kParameterServer,       // the same through servers, which wait for the gradients of all workers
  kAsyncParameterServer,  // servers apply each gradient when it arrives
  kAdPsgd,                // averages the models of pairs of neighbors in a graph
  kLocalSgd,              // averages models over all workers every section_length iterations
  kStochastic,            // averages models with in-neighbors (ASAP): NOTIFY-ACK, BSP or ASYNC
  kPartial,               // averages models in groups that change (Ripples / Prague)
  kStragglerRing,         // averages gradients around a ring that does not wait for a late rank
};
const char* to_string(MethodKind kind);
Result<MethodKind> parse_method(std::string_view name);  // "all-reduce", "parameter-server", ...

struct MethodOptions {
  std::string name = "training";  // distinguishes the methods of a job; the same on all ranks
  MethodKind kind = MethodKind::kAllReduce;
  std::size_t count = 0;  // parameters
  // The ranks that take part, ascending, where takes_newcomers(); the same on all of them. Each set
  // of members has a `name` of its own. Empty: all ranks of the job.
  std::vector<Rank> members{};
  SgdOptions sgd;
  // The GPU, by its number in this process, in whose memory the model, its gradient and the
  // optimizer's state are. Empty: host memory. Either all ranks have a GPU or none has. For
  // all-reduce, local SGD, stochastic reduce in NOTIFY-ACK, and partial all-reduce with groups that
  // are not static.
  std::optional<int> gpu{};
  // The worker takes its step itself, with an optimizer of its own: it writes parameters() before
  // finish(), which averages them and ignores gradient() and the learning rate. begin() leaves
  // parameters() as they are. For methods that average models only.
  bool has_own_step = false;
  // All-reduce and parameter servers: elements of the gradient that are sent together while the
  // backward pass continues. 1 MiB is long enough for the bandwidth of every transport and short
  // enough for the first pieces to leave early.
  std::size_t piece_elements = std::size_t{1} << 18;
  // Parameter servers: the number of servers. They are the last ranks of the job, hold a part of
  // the model each, and do not train.
  int servers = 1;
  // Local SGD and partial all-reduce: iterations from one synchronization to the next.
  std::uint64_t section_length = 1;
  // AD-PSGD and stochastic reduce: a spec for collective::make_graph.
  std::string graph = "complete";
  // Stochastic reduce: the mode, and receive slots per in-neighbor.
  collective::SyncMode sync = collective::SyncMode::kNotifyAck;
  std::uint32_t depth = 2;
  // All-reduce and local SGD: name of an algorithm; empty: the communicator chooses.
  std::string algorithm;
  // Straggler ring: which rank is late.
  collective::LatenessOptions lateness;
  // Partial all-reduce: where groups come from, and the generator's options. A layout that
  // is not given is that of the job's hosts.
  collective::GroupSource groups = collective::GroupSource::kSmart;
  collective::GroupOptions generator;
  std::uint64_t seed = 1;
};
// True if some ranks serve instead of training.
bool has_servers(MethodKind kind);
// True if models are averaged, and not gradients.
bool averages_models(MethodKind kind);
// True if a worker may stop training before the others do.
bool ends_alone(const MethodOptions& options);
// True if the other workers continue when a worker dies.
bool survives_deaths(const MethodOptions& options);
// True if the members can be any ranks of the job, so that a program can make the method anew when
// ranks have joined, left or died.
bool takes_newcomers(const MethodOptions& options);
// Returns kInvalidArgument if the options do not suit `ranks` ranks.
Status check(const MethodOptions& options, int ranks);

// What the iterations of a worker have cost so far, or what a server has done.
struct MethodReport {
  std::uint64_t iterations = 0;        // finished
  std::uint64_t synchronizations = 0;  // that took in values of other ranks; a server's steps
  // Payload without headers. An average of k ranks counts as in a ring: 2 (k - 1) / k of the model.
  std::uint64_t bytes_sent = 0;
  Duration waited{};  // time that begin() and finish() took

  MethodReport& operator+=(const MethodReport& other);
};

class Method {
 public:
  virtual ~Method() = default;

  // Blocks until the ranks that this one communicates with have prepared, at most for
  // config.deadline. Must be called before everything else.
  virtual Status connect() = 0;

  // True if this rank holds a part of the model for others instead of training. Then only test()
  // and progress() may be called; test() returns ok after all workers have left.
  virtual bool is_server() const { return false; }
  virtual std::span<float> parameters() = 0;
  virtual std::span<float> gradient() = 0;

  // `iteration` counts from 0 through all runs of one training. Workers that train in step pass the
  // same number, because sections end at multiples of their length.
  virtual Status begin(std::uint64_t iteration) = 0;
  // Each element may be reported once per iteration. finish() reports the elements that are left.
  virtual Status ready(std::size_t first, std::size_t count) = 0;
  // `stop`: this worker wants to end. In methods whose workers cannot end alone, the workers agree:
  // once test() has reported the end of the phase, stopped() is true on all of them after the same
  // iteration. That is this iteration or a later one, if the request takes time to spread.
  virtual Status finish(float learning_rate, bool stop) = 0;
  virtual bool stopped() const = 0;
  // This worker does not train any more, or not with these members. The phase ends when no other
  // rank needs this one; then the method may be destroyed. Workers that cannot end alone all leave
  // after the same iteration.
  virtual Status leave() = 0;

  virtual void progress() = 0;
  // Calls progress(). Returns kBusy while a phase is in progress, then its result; ok if no phase
  // was started. After an error only the destructor may be called.
  virtual Status test() = 0;
  // The peers that this rank waits for, and what it waits for. Peers whose death the method
  // survives are left out as soon as progress() has seen that they are dead.
  virtual std::vector<transport::Awaited> awaited() const = 0;
  // The first of them, without an allocation. Rank(): none.
  virtual Rank blocker() const = 0;
  // When test() has something to do in this phase even if nothing arrives. nullopt: never.
  virtual std::optional<TimePoint> next_event() const { return std::nullopt; }
  virtual const MethodReport& report() const = 0;
  // The part of the model's state besides parameters() that a checkpoint needs: the optimizer's
  // state, if the worker holds it. Empty without momentum, and if servers hold it.
  virtual std::span<float> velocity() = 0;
};

// Creates a method. Collective over the members. In two steps, so that one thread can create the
// methods of several ranks: this function allocates and publishes, Method::connect() waits for the
// other ranks.
Result<std::unique_ptr<Method>> prepare_method(transport::Fabric& fabric,
                                               const MethodOptions& options);
// Does both steps. If options.members is set, all of them have done the first one before any does
// the second one: then a member whose death the others have seen by then is an error on all.
Result<std::unique_ptr<Method>> make_method(transport::Fabric& fabric,
                                            const MethodOptions& options);

}  // namespace dunlin::training
