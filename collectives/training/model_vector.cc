#include "collectives/training/model_vector.h"

namespace dunlin::training {

Result<ModelVector> ModelVector::allocate_on_gpu(const std::shared_ptr<GpuDriver>& driver,
                                                 int device, std::size_t count, const Clock& clock,
                                                 Duration timeout) {
  ModelVector vector;
  if (count == 0) return vector;
  const std::size_t bytes = count * sizeof(float);
  DUNLIN_ASSIGN(vector.gpu_, MemoryRegion::allocate_on_gpu(driver, device, bytes));
  vector.elements_ = {reinterpret_cast<float*>(vector.gpu_->data()), count};
  const std::vector<float> zeros(count);
  DUNLIN_ASSIGN(const auto stream, driver->create_stream(device));
  DUNLIN_TRY(await_copy(*stream,
                        stream->copy_to_device(vector.elements_.data(), zeros.data(), bytes), clock,
                        clock.now() + timeout, "setting GPU memory to zeros"));
  return vector;
}

}  // namespace dunlin::training
