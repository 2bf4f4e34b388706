// Subject: the collective that a benchmark times, on memory of its own, as the options want it.
// all-reduce and its kin (collective.cc) and overlap (overlap.cc) share it. Owner thread only.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "tools/dunlin-perf/job.h"
#include "tools/dunlin-perf/plan.h"

namespace dunlin::perf {

// Nothing for benchmarks that aren't of one collective.
std::optional<collective::Collective> collective_of(Bench bench);

// What is wrong with the names that the options hold; ok for any other benchmark.
Status check_collective(const Shared& options);

class Subject {
 public:
  static constexpr std::size_t kNoSize = ~std::size_t{0};

  // Collective. Memory for the largest size, touched.
  static Result<std::unique_ptr<Subject>> create(Job& job, const Options& options);

  // `size`: bytes of the larger one of a rank's input and output, which is rounded up to whole
  // elements of every rank.
  void resize(std::size_t size);
  // An algorithm's name; empty: chosen.
  void choose(std::string_view algorithm) { call_.algorithm = algorithm; }

  collective::Communicator& communicator() { return *communicator_; }
  const collective::Call& call() const { return call_; }
  std::size_t size() const { return count_to_size(call_.count); }
  bool is_in_place() const;
  // Those that `--algorithm` means and that suit this job.
  Result<std::vector<std::string_view>> algorithms(std::string_view wanted);
  // What the next call is done with; "": it would be refused.
  std::string_view algorithm() const;
  // GB/s of the busiest link over size / time, after nccl-tests.
  double bus_factor() const;

  // One blocking call.
  Status once();
  // One call on small integers, whose results are exact in every type; compares.
  Status check();
  // Zeros, which stay what they are however often they are combined.
  void clear();
  // What the JSON line says beside the figures.
  nlohmann::ordered_json facts() const;

 private:
  explicit Subject(Job& job, const Options& options) : job_(job), options_(options) {}
  std::size_t count_to_size(std::size_t count) const;
  std::size_t blocks() const;  // of `count` elements in the larger one of input and output
  Status allocate();
  Status compare() const;

  Job& job_;
  const Options& options_;
  std::unique_ptr<collective::Communicator> communicator_;
  std::vector<std::byte> other_;  // memory that the communicator doesn't know
  std::span<std::byte> memory_;
  collective::Call call_;
};

}  // namespace dunlin::perf
