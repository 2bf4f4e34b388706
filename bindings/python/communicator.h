// The collectives of a communicator on Python arrays, in host memory or in that of a GPU.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "bindings/python/array.h"
#include "bindings/python/job.h"
#include "bindings/python/request.h"
#include "bindings/session/gpu_collectives.h"

namespace dunlin::python {

// A checked call and its result.
struct Prepared {
  collective::Call call;
  Outcome outcome;
  // Set if the call is on the memory of this GPU. The events are those of GpuCall.
  std::optional<int> gpu{};
  std::shared_ptr<GpuEvent> input_ready{};
  std::shared_ptr<GpuEvent> output_ready{};
};

class Communicator {
 public:
  Communicator(std::shared_ptr<binding::Session> session, binding::CommunicatorHandle handle)
      : session_(std::move(session)), handle_(std::move(handle)) {}

  int rank() const { return handle_->rank; }
  int size() const { return handle_->size; }

  // Check the arrays, and make the result array if `out` is None.
  Prepared all_reduce(pybind11::handle x, std::string_view op, pybind11::handle out,
                      std::string_view name) const;
  Prepared reduce(pybind11::handle x, int root, std::string_view op, pybind11::handle out,
                  std::string_view name) const;
  Prepared broadcast(pybind11::handle x, int root, pybind11::handle out,
                     std::string_view name) const;
  Prepared all_gather(pybind11::handle x, pybind11::handle out, std::string_view name) const;
  Prepared reduce_scatter(pybind11::handle x, std::string_view op, pybind11::handle out,
                          std::string_view name) const;
  Prepared all_to_all(pybind11::handle x, pybind11::handle out, std::string_view name) const;
  Prepared barrier(std::string_view name) const;

  // Whether all members have a GPU, and a transport, for calls on GPU memory: the same answer at
  // all members. The first call is collective, as that of such a call is. Later ones return at
  // once.
  bool can_use_gpu(int device) const;

  pybind11::object run(Prepared prepared);
  std::unique_ptr<Request> start(Prepared prepared);

  // `device`: the number of the GPU whose memory it is; empty: host memory.
  pybind11::object empty(pybind11::object shape, pybind11::object dtype, std::optional<int> device);
  void free(pybind11::handle array);
  std::vector<std::vector<int>> hosts() const;
  std::unique_ptr<Communicator> split(int color, std::optional<int> key);
  void release();

 private:
  // Throws after dunlin.shutdown().
  void check_open() const;
  // The members' calls on memory of GPUs. The first call of all members is collective.
  std::shared_ptr<binding::GpuCollectives> on_gpu(int device) const;

  std::shared_ptr<binding::Session> session_;
  binding::CommunicatorHandle handle_;
};

}  // namespace dunlin::python
