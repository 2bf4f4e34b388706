// Method: how the models of workers that train together come together. One rank's side of it.
//
// A model is a vector of float32 parameters, as is its gradient; both lie in memory that the method
// allocates, registered where data go from there directly. An iteration of a worker:
//
//   method.begin(iteration)              // parameters() are now what it computes with
//   ... forward; backward, from the last layer to the first; after each of them:
//   method.ready(first, count)           // this part of gradient() is final
//   method.finish(learning_rate)         // synchronizes and updates
//
// Before the first begin(), parameters() may be written: initial ones, which have to be the same on
// all workers, or a checkpoint's (where there are servers, one worker's count: parameter_worker.h).
// They are the worker's model: what it would be judged by after finish(), and at last after
// leave(). The method writes them only between the call of begin(), finish() or leave() and its
// end, and reads gradient() only from ready() on.
//
// A state machine: nothing here blocks. begin(), finish() and leave() start what test() reports the
// end of, kBusy before; progress() moves everything on, and has to be called while the worker
// computes, too, as others may need this rank (an AD-PSGD partner, whoever asks the group
// generator). The caller progresses the fabric. Owner thread only: that of the fabric.
// `Synchronizer` is the way to use it from a thread that computes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apps/training/sgd.h"
#include "collectives/partial/group_average.h"
#include "collectives/stochastic_reduce.h"
#include "transports/fabric.h"

namespace dunlin::training {

enum class MethodKind : std::uint8_t {
  kAllReduce,             // gradients are averaged over all workers, overlapping the backward pass
  kParameterServer,       // the same through servers: gradients in, when all are in, parameters out
  kAsyncParameterServer,  // each gradient is applied as it comes
  kAdPsgd,                // models of pairs are averaged, a neighbour in the graph at a time
  kLocalSgd,              // models are averaged over all workers every section_length iterations
  kStochastic,            // models are averaged with in-neighbours (ASAP): NOTIFY-ACK, BSP, ASYNC
  kPartial,               // models are averaged in groups that change (Ripples / Prague)
};
const char* to_string(MethodKind kind);
Result<MethodKind> parse_method(std::string_view name);  // "all-reduce", "parameter-server", ...

struct MethodOptions {
  std::string name = "training";  // distinguishes the methods of one job; the same on all ranks
  MethodKind kind = MethodKind::kAllReduce;
  std::size_t count = 0;  // parameters
  SgdOptions sgd;
  // Of the gradient, that travel at once while the backward pass goes on; of all-reduce and the
  // parameter servers. 1 MiB: long enough for the bandwidth of any transport, short enough that the
  // first pieces are on their way early.
  std::size_t piece_elements = std::size_t{1} << 18;
  // Of the parameter servers: so many of the job's last ranks hold a part of the model each, and
  // don't train.
  int servers = 1;
  // Iterations from one synchronization to the next; of local SGD and of partial all-reduce.
  std::uint64_t section_length = 1;
  std::string graph = "complete";  // of AD-PSGD and stochastic reduce: collective::make_graph
  collective::SyncMode sync = collective::SyncMode::kNotifyAck;  // of stochastic reduce
  std::uint32_t depth = 2;  // receive slots per in-neighbour, of stochastic reduce
  std::string algorithm;    // of all-reduce and local SGD; empty: chosen
  collective::GroupSource groups = collective::GroupSource::kSmart;
  // Of partial all-reduce; layout: the job's hosts unless it is set.
  collective::GroupOptions generator;
  std::uint64_t seed = 1;
};
// Whether some ranks serve instead of training.
bool has_servers(MethodKind kind);
// Whether a worker may end without the others.
bool ends_alone(const MethodOptions& options);
// Whether the others train on when a worker dies.
bool survives_deaths(const MethodOptions& options);
// kInvalidArgument: what doesn't suit, for so many ranks.
Status check(const MethodOptions& options, int ranks);

// What a worker's iterations have cost so far; a server's, what it has done.
struct MethodReport {
  std::uint64_t iterations = 0;        // finished
  std::uint64_t synchronizations = 0;  // in which others' values came in; a server's: steps
  // Payload, without headers. An average of k ranks counts as a ring's: 2 (k - 1) / k of the model.
  std::uint64_t bytes_sent = 0;
  Duration waited{};  // from finish() (and begin()) to their ends
};

class Method {
 public:
  virtual ~Method() = default;

  // Blocks until the ranks that this one speaks to have prepared (config.deadline); nothing else is
  // called before it.
  virtual Status connect() = 0;

  // Whether this rank holds a part of the model for others instead of training; then only test()
  // (its end: all workers have left) and progress() are called.
  virtual bool is_server() const { return false; }
  virtual std::span<float> parameters() = 0;
  virtual std::span<float> gradient() = 0;

  // `iteration`: counted from 0, through all runs of one training, and alike on all workers that go
  // in step: sections end with multiples of their length.
  virtual Status begin(std::uint64_t iteration) = 0;
  // Each element once per iteration. What has not been said to be ready is so with finish().
  virtual Status ready(std::size_t first, std::size_t count) = 0;
  // `stop`: this worker would like to end. Methods in which workers can't end one by one agree on
  // it: stopped() says so once test() has reported the end, on all of them after the same
  // iteration, this one or, where it takes the word some time to go around, a later one.
  virtual Status finish(float learning_rate, bool stop) = 0;
  virtual bool stopped() const = 0;
  // This worker will not train any more. Ends when nobody needs this rank either, and the method
  // may be destroyed. Where workers can't end one by one, all leave after the same iteration.
  virtual Status leave() = 0;

  virtual void progress() = 0;
  // progress(); then kBusy until what was started is over, or its outcome; ok when nothing was
  // started. After an error only the destructor.
  virtual Status test() = 0;
  // Whom this rank waits for, and for what. Those whose loss the method goes on without are left
  // out once progress() has seen it.
  virtual std::vector<transport::Awaited> awaited() const = 0;
  virtual const MethodReport& report() const = 0;
  // What belongs to the model besides parameters(), for checkpoints: the optimizer's state, where
  // it lies with the worker. Empty without momentum, and where servers hold it.
  virtual std::span<float> velocity() = 0;
};

// Collective over all ranks. In two steps, so that one thread can set up many ranks: this one
// allocates and publishes, Method::connect() waits for the others.
Result<std::unique_ptr<Method>> prepare_method(transport::Fabric& fabric,
                                               const MethodOptions& options);
// Both.
Result<std::unique_ptr<Method>> make_method(transport::Fabric& fabric,
                                            const MethodOptions& options);

}  // namespace dunlin::training
