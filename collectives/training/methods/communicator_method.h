// CommunicatorMethod: the common part of methods that use the collectives of a communicator. If the
// models are in the memory of GPUs, so is the communicator's. All ranks leave together, with a
// barrier; after it the method may be destroyed. Owner thread only.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "collectives/training/methods/method_base.h"
#include "collectives/training/methods/model_compute.h"
#include "collectives/training/methods/shared_vector.h"

namespace dunlin::training {

class CommunicatorMethod : public MethodBase {
 public:
  CommunicatorMethod(transport::Fabric& fabric, const MethodOptions& options)
      : MethodBase(fabric, options) {}
  virtual Status prepare();
  Status connect() override;

  std::span<float> velocity() override { return compute_->velocity(); }
  std::vector<transport::Awaited> awaited() const override;
  Rank blocker() const override;

 protected:
  ModelCompute& compute() { return *compute_; }
  SharedVector& shared() { return shared_; }

  // Starts the average of this part of shared(), and with the first element that of the flag.
  Status start_average(ModelRange range);
  std::size_t averages_started() const { return requests_.size(); }
  // Returns kBusy until all averages have completed.
  Status test_averages();
  void forget_averages();
  // Tests the barrier of the phase kLeaving.
  Status test_barrier();

 private:
  std::unique_ptr<collective::Communicator> communicator_;
  std::unique_ptr<collective::Communicator> flags_;  // of host memory, if the other one is of GPUs
  std::unique_ptr<ModelCompute> compute_;
  SharedVector shared_;  // in memory of the communicators
  std::vector<collective::CollectiveRequest> requests_;
  std::size_t completed_ = 0;                                  // number of completed requests
  std::optional<collective::CollectiveRequest> flag_request_;  // of flags_, until it has completed
  bool is_barrier_started_ = false;
  collective::CollectiveRequest barrier_;
};

}  // namespace dunlin::training
