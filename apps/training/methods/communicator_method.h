// CommunicatorMethod: a method whose ranks speak to one another by a communicator's collectives.
// They leave together: by a barrier, after which it may be destroyed. Owner thread only.
#pragma once

#include <memory>
#include <vector>

#include "apps/training/methods/method_base.h"
#include "apps/training/methods/shared_vector.h"

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

  // An average of this part of shared(), behind those that were started before.
  Status start_average(ModelRange range);
  std::size_t averages_started() const { return requests_.size(); }
  // kBusy until all that were started are over.
  Status test_averages();
  void forget_averages();
  // While leaving.
  Status test_barrier();

 private:
  std::unique_ptr<collective::Communicator> communicator_;
  Sgd sgd_;
  SharedVector shared_;  // its memory is the communicator's
  std::vector<collective::Request> requests_;
  std::size_t over_ = 0;  // of them
  bool is_barrier_started_ = false;
  collective::Request barrier_;
};

}  // namespace dunlin::training
