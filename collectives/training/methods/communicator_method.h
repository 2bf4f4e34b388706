// CommunicatorMethod: the common part of methods that use the collectives of a communicator. All
// ranks leave together, with a barrier; after it the method may be destroyed. Owner thread only.
#pragma once

#include <memory>
#include <vector>

#include "collectives/training/methods/method_base.h"
#include "collectives/training/methods/shared_vector.h"

namespace dunlin::training {

class CommunicatorMethod : public MethodBase {
 public:
  CommunicatorMethod(transport::Fabric& fabric, const MethodOptions& options)
      : MethodBase(fabric, options), sgd_(options.sgd, options.count) {}
  Status prepare();
  Status connect() override;

  std::span<float> velocity() override { return sgd_.velocity(); }
  std::vector<transport::Awaited> awaited() const override;

 protected:
  Sgd& sgd() { return sgd_; }
  SharedVector& shared() { return shared_; }

  // Starts the average of this part of shared().
  Status start_average(ModelRange range);
  std::size_t averages_started() const { return requests_.size(); }
  // Returns kBusy until all averages have completed.
  Status test_averages();
  void forget_averages();
  // For the phase kLeaving.
  Status test_barrier();

 private:
  std::unique_ptr<collective::Communicator> communicator_;
  Sgd sgd_;
  SharedVector shared_;  // in memory of the communicator
  std::vector<collective::CollectiveRequest> requests_;
  std::size_t completed_ = 0;  // number of completed requests
  bool is_barrier_started_ = false;
  collective::CollectiveRequest barrier_;
};

}  // namespace dunlin::training
