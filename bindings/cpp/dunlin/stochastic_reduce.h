// StochasticReduce: each rank averages its model with those of its in-neighbors in a node graph
// (ASAP, section 3), in one of three ways of synchronizing (section 4).
//
//   DUNLIN_ASSIGN(const auto graph, dunlin::make_graph("root-expander", job.size()));
//   dunlin::ReduceOptions options{.count = n};
//   DUNLIN_ASSIGN(options.neighborhood, dunlin::neighborhood_of(graph, dunlin::Weighting::kUniform,
//                                                               job.members().ranks, job.rank()));
//   DUNLIN_ASSIGN(auto reduce, dunlin::StochasticReduce<float>::create(job, options));
//   for (...) {
//     ... compute on reduce.model() ...
//     DUNLIN_TRY(reduce.reduce(timeout).status());
//   }
//
// A reduce sends the model to all out-neighbors before it waits for a model, so that cyclic graphs
// can't deadlock. Then model = self_weight * model + the sum of weight[j] * input[j], in one pass
// over all inputs, straight from the receive slots under NOTIFY-ACK. In BSP and ASYNC, a missing
// input is left out of the sum, and the remaining weights are scaled to add up to one.
//
// The model lives in registered memory of this object and is the caller's between reduces. After an
// error (a member died, the deadline passed) the model holds its contents from before the reduce,
// or from after it if only an acknowledgment was still to be sent. The object can then only be
// destroyed: call Job::reform(), and create another object over the survivors.
//
// With ReduceOptions::gpu, model() is memory of that GPU, which the CPU cannot access and whose
// contents are undefined at first. A reduce is one launch there, with the bits that it has on the
// CPU. Work on the model has to be complete before start(); the average is complete when test() is
// ok. kUnavailable: there is no such GPU, or a neighbor cannot reach its memory.
//
// Nothing allocates after create(). Owner thread of the job only. Destroy it when all members are
// done with theirs: neighbors may still write or acknowledge until then.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include <dunlin/graph.h>
#include <dunlin/job.h>
#include <dunlin/mixing.h>

namespace dunlin {

enum class SyncMode : std::uint8_t {
  // A reduce waits for one model from every in-neighbor, and averages models of the same step. It
  // waits for an out-neighbor only if that has not acknowledged the last `depth` models. No model
  // is torn or lost.
  kNotifyAck,
  // Models are put without flow control. After a barrier of all members, a reduce averages the
  // models that are consistent.
  kBsp,
  // Models are put without flow control. A reduce waits for nothing, and averages the models that
  // are consistent and new.
  kAsync,
};

struct ReduceOptions {
  std::string name = "model";   // distinguishes the reduces of one job; the same on all ranks
  JobMembers members{};         // the ranks that take part; none: Job::members()
  Neighborhood neighborhood{};  // the ranks that it sends to and receives from, and the weights
  std::size_t count = 0;        // elements of the model; the same on all members
  SyncMode mode = SyncMode::kNotifyAck;
  std::uint32_t depth = 2;  // receive slots per in-neighbor; the same on all members
  // The GPU, by its number in this process, in whose memory the models are. Empty: host memory.
  // Either all members have a GPU or none has. It needs kNotifyAck.
  std::optional<int> gpu{};
};

// What one reduce did.
struct ReduceReport {
  std::uint64_t step = 0;    // 1, 2, ...
  std::uint32_t inputs = 0;  // in-neighbors' models that were averaged in
  std::uint32_t torn = 0;    // left out: overwritten while being read
  std::uint32_t stale = 0;   // left out: nothing new had come
  std::uint64_t bytes_sent = 0;
  Duration waited{};  // from the end of sending to the last input
};

template <typename T>  // float, double
class StochasticReduce {
 public:
  // Collective over the members. Blocks until each neighbor has made the call.
  static Result<StochasticReduce> create(Job& job, const ReduceOptions& options);

  StochasticReduce(StochasticReduce&&) noexcept;
  StochasticReduce& operator=(StochasticReduce&&) noexcept;
  ~StochasticReduce();

  // Zeros at first, but undefined on a GPU.
  std::span<T> model();

  // Reduces the model's present contents. Returns the errors of Job::wait(). It also returns
  // kPeerDead if a member dies that is not a neighbor, because the graph has to be rebuilt then.
  Result<ReduceReport> reduce(Duration timeout);

  // The same without blocking. After start(), the model must not be touched until test() returns
  // anything but busy. Meanwhile the caller calls Job::progress(), or waits for something else, and
  // checks the members with Job::check(). A reduce that the caller gives up may still change the
  // model, until the object is destroyed.
  Status start();
  Status test();
  ReduceReport report() const;  // of the last reduce

 private:
  friend struct Internal;
  struct Impl;
  explicit StochasticReduce(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

extern template class StochasticReduce<float>;
extern template class StochasticReduce<double>;

}  // namespace dunlin
