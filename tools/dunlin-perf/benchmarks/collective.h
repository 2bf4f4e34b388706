// Subject: the collective that a benchmark times, as the options describe it, with the memory for
// it. collective.cc and overlap.cc share it. Owner thread only.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collectives/communicator/communicator.h"
#include "tools/dunlin-perf/benchmarks/plan.h"
#include "tools/dunlin-perf/job/job.h"

namespace dunlin::perf {

// Returns nothing for benchmarks that do not time one collective.
std::optional<collective::Collective> collective_of(Bench bench);

// Returns kInvalidArgument when the options have an unknown name. ok for any other benchmark.
Status check_collective(const Shared& options);

// "registered", "any" or "cuda": the memory that collectives run on.
const char* memory_name(const Shared& options);

class Subject {
 public:
  static constexpr std::size_t kNoSize = ~std::size_t{0};

  // Allocates memory for the largest size and touches it. Collective.
  static Result<std::unique_ptr<Subject>> create(Job& job, const Options& options);

  // `size` is in bytes, and that of the larger one of a rank's input and output. It is rounded up
  // to whole elements of every rank.
  void resize(std::size_t size);
  // Takes the name of an algorithm; empty: chosen by size.
  void choose(std::string_view algorithm) { call_.algorithm = algorithm; }

  collective::Communicator& communicator() { return *communicator_; }
  // For what the benchmark itself tells the other ranks, which is in host memory.
  collective::Communicator& host_communicator() {
    return host_communicator_ != nullptr ? *host_communicator_ : *communicator_;
  }
  const collective::Call& call() const { return call_; }
  std::size_t size() const { return count_to_size(call_.count); }
  bool is_in_place() const;
  // The algorithms that `--algorithm` selects and that suit this job.
  Result<std::vector<std::string_view>> algorithms(std::string_view wanted);
  // The algorithm of the next call; "" if that would be refused.
  std::string_view algorithm() const;
  // The bandwidth of the busiest link divided by size / time, as in nccl-tests.
  double bus_factor() const;

  // Makes one blocking call.
  Status once();
  // Makes one call on small integers, whose results are exact in every type, and compares them.
  Status check();
  // Fills the memory with zeros, which no reduction changes.
  Status clear();
  // The members of the JSON line in addition to the figures.
  nlohmann::ordered_json facts() const;

 private:
  explicit Subject(Job& job, const Options& options) : job_(job), options_(options) {}
  std::size_t count_to_size(std::size_t count) const;
  std::size_t blocks() const;  // of `count` elements, in the larger one of input and output
  Status allocate();
  // The bytes of the memory, for the CPU: the memory itself, or a copy of that of a GPU.
  std::span<std::byte> image();
  std::size_t offset_of(const void* place) const {
    return static_cast<std::size_t>(static_cast<const std::byte*>(place) - memory_.data());
  }
  // Takes the image over into the memory, and the other way round.
  Status store();
  Status load();
  Status compare();

  Job& job_;
  const Options& options_;
  std::unique_ptr<collective::Communicator> communicator_;
  std::unique_ptr<collective::Communicator> host_communicator_;  // beside one of GPUs
  std::vector<std::byte> other_;  // memory that is not registered with the communicator
  std::span<std::byte> memory_;
  std::vector<std::byte> staged_;  // the image of GPU memory
  collective::Call call_;
};

}  // namespace dunlin::perf
