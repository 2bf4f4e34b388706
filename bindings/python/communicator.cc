#include "bindings/python/communicator.h"

#include <fmt/format.h>

#include <cstring>
#include <string>
#include <utility>

#include "bindings/python/gpu_array.h"

namespace dunlin::python {

namespace py = pybind11;
using binding::GpuCall;
using binding::GpuCollectives;
using binding::Session;
using binding::SessionOperation;
using collective::Collective;
using collective::Reduction;

namespace {

using Shape = std::vector<py::ssize_t>;

[[noreturn]] void refuse(const std::string& why) {
  raise(Status(Code::kInvalidArgument, why));
}

Reduction reduction_of(const Array& input, std::string_view op) {
  return {input.type, take(collective::parse_reduce_op(op))};
}

Prepared prepared(Collective collective, const Array& input, const Array& output, std::size_t count,
                  Reduction reduction, std::string_view name, int root = 0) {
  Prepared made;
  made.call = {collective, input.data, output.data, count, reduction, root};
  made.call.name = name;
  made.outcome.result = output.object;
  made.outcome.memory = {input.keeper, output.keeper};
  made.gpu = output.gpu;
  made.input_ready = input.ready;
  made.output_ready = output.ready;
  return made;
}

// The number of elements of each of `size` parts along the first axis.
std::size_t part_of(const Array& input, int size, const char* what) {
  if (input.shape.empty() || input.shape[0] % size != 0) {
    refuse(fmt::format(
        "{}: the length of the first axis has to be a multiple of the number of ranks, {}", what,
        size));
  }
  return input.count / static_cast<std::size_t>(size);
}

Shape shape_of(const py::object& array) {
  Shape extents;
  for (const py::handle extent : array.attr("shape")) extents.push_back(extent.cast<py::ssize_t>());
  return extents;
}

GpuCall gpu_call(Prepared& prepared) {
  return {prepared.call, std::move(prepared.input_ready), std::move(prepared.output_ready)};
}

}  // namespace

void Communicator::check_open() const {
  if (Job::instance().session() != session_)
    raise(Status(Code::kClosed, "the communicator belongs to a job that was shut down"));
}

Prepared Communicator::all_reduce(py::handle x, std::string_view op, py::handle out,
                                  std::string_view name) const {
  const Array input = view_of(x, "all_reduce", Usable::kHostAndGpu);
  const Reduction reduction = reduction_of(input, op);
  const Array output = output_for(input, input.shape, out);
  check_overlap(input, output, 0);
  return prepared(Collective::kAllReduce, input, output, input.count, reduction, name);
}

Prepared Communicator::reduce(py::handle x, int root, std::string_view op, py::handle out,
                              std::string_view name) const {
  const Array input = view_of(x, "reduce", Usable::kHostAndGpu);
  const Reduction reduction = reduction_of(input, op);
  if (rank() != root) {
    // Only the root has a result.
    Prepared made = prepared(Collective::kReduce, input, input, input.count, reduction, name, root);
    made.outcome.result = py::none();
    made.call.copies = !input.gpu;
    return made;
  }
  const Array output = output_for(input, input.shape, out);
  check_overlap(input, output, 0);
  Prepared made = prepared(Collective::kReduce, input, output, input.count, reduction, name, root);
  // The other members don't know whether the output is an array of empty(). GPU memory is always
  // copied in a reduce (gpu_staging.h).
  made.call.copies = !input.gpu;
  return made;
}

Prepared Communicator::broadcast(py::handle x, int root, py::handle out,
                                 std::string_view name) const {
  const Array input = view_of(x, "broadcast", Usable::kHostAndGpu);
  const Array output = output_for(input, input.shape, out);
  check_overlap(input, output, 0);
  // In host memory, the operation runs in place, in the result.
  if (!input.gpu && rank() == root && output.data != input.data && input.count > 0)
    std::memcpy(output.data, input.data, input.bytes());
  return prepared(Collective::kBroadcast, input.gpu ? input : output, output, output.count,
                  {output.type}, name, root);
}

Prepared Communicator::all_gather(py::handle x, py::handle out, std::string_view name) const {
  const Array input = view_of(x, "all_gather", Usable::kHostAndGpu);
  Shape shape = input.shape;
  shape.insert(shape.begin(), size());
  const Array output = output_for(input, std::move(shape), out);
  check_overlap(output, input, static_cast<std::size_t>(rank()) * input.count);
  return prepared(Collective::kAllGather, input, output, input.count, {input.type}, name);
}

Prepared Communicator::reduce_scatter(py::handle x, std::string_view op, py::handle out,
                                      std::string_view name) const {
  const Array input = view_of(x, "reduce_scatter", Usable::kHostAndGpu);
  const Reduction reduction = reduction_of(input, op);
  const std::size_t count = part_of(input, size(), "reduce_scatter");
  Shape shape = input.shape;
  shape[0] /= size();
  const Array output = output_for(input, std::move(shape), out);
  check_overlap(input, output, static_cast<std::size_t>(rank()) * count);
  return prepared(Collective::kReduceScatter, input, output, count, reduction, name);
}

Prepared Communicator::all_to_all(py::handle x, py::handle out, std::string_view name) const {
  const Array input = view_of(x, "all_to_all", Usable::kHostAndGpu);
  const std::size_t count = part_of(input, size(), "all_to_all");
  const Array output = output_for(input, input.shape, out);
  if (overlap(input, output)) refuse("all_to_all can't be done in place");
  return prepared(Collective::kAllToAll, input, output, count, {input.type}, name);
}

Prepared Communicator::barrier(std::string_view name) const {
  Prepared made;
  made.call = {Collective::kBarrier};
  made.call.name = name;
  return made;
}

std::shared_ptr<GpuCollectives> Communicator::on_gpu(int device) const {
  const Session::Interrupt interrupt = interrupt_of_thread();
  return take(released([&] { return GpuCollectives::of(*session_, handle_, device, interrupt); }));
}

bool Communicator::can_use_gpu(int device) const {
  check_open();
  const Session::Interrupt interrupt = interrupt_of_thread();
  const Status status =
      released([&] { return GpuCollectives::of(*session_, handle_, device, interrupt).status(); });
  if (status.code() == Code::kUnavailable) return false;
  check(status);
  return true;
}

py::object Communicator::run(Prepared prepared) {
  check_open();
  if (prepared.gpu) {
    const std::shared_ptr<GpuCollectives> gpus = on_gpu(*prepared.gpu);
    return complete(
        [&](const Session::Interrupt& interrupt, std::shared_ptr<SessionOperation>* unfinished) {
          return gpus->run(gpu_call(prepared), interrupt, unfinished);
        },
        std::move(prepared.outcome));
  }
  return complete(
      [&](const Session::Interrupt& interrupt, std::shared_ptr<SessionOperation>* unfinished) {
        return session_->run(handle_, prepared.call, interrupt, unfinished);
      },
      std::move(prepared.outcome));
}

std::unique_ptr<Request> Communicator::start(Prepared prepared) {
  check_open();
  if (prepared.gpu) {
    const std::shared_ptr<GpuCollectives> gpus = on_gpu(*prepared.gpu);
    auto operation = take(released([&] { return gpus->start(gpu_call(prepared)); }));
    return std::make_unique<Request>(session_, std::move(operation), std::move(prepared.outcome));
  }
  const Session::Interrupt interrupt = interrupt_of_thread();
  Status interrupted;
  auto operation = take(released([&] {
    return session_->start(handle_, prepared.call, interrupt, {}, std::nullopt, &interrupted);
  }));
  auto request =
      std::make_unique<Request>(session_, std::move(operation), std::move(prepared.outcome));
  check(interrupted);
  return request;
}

py::object Communicator::empty(py::object shape, py::object dtype, std::optional<int> device) {
  check_open();
  // NumPy converts shape and type, and knows the size.
  const py::object numpy = py::module_::import("numpy");
  const py::dtype type = numpy.attr("dtype")(dtype);
  if (type.attr("hasobject").cast<bool>()) refuse("empty: arrays of Python objects can't be sent");
  const py::object model =
      numpy.attr("broadcast_to")(numpy.attr("zeros")(py::tuple(), type), shape);
  const auto bytes = model.attr("nbytes").cast<std::size_t>();
  const Session::Interrupt interrupt = interrupt_of_thread();
  if (device) {
    const collective::DataType element =
        view_of(numpy.attr("zeros")(py::tuple(), type), "empty").type;
    const std::shared_ptr<GpuCollectives> gpus = on_gpu(*device);
    auto memory = take(released([&] { return gpus->allocate(bytes, interrupt); }));
    return py::cast(std::make_unique<GpuArray>(element, shape_of(model), *device,
                                               std::move(memory.owner), memory.bytes.data()));
  }
  auto memory = take(released([&] { return session_->allocate(handle_, bytes, interrupt); }));
  using Owner = std::shared_ptr<MemoryRegion>;
  const py::capsule keeper(new Owner(std::move(memory.owner)),
                           [](void* owner) { delete static_cast<Owner*>(owner); });
  return array_over(type, shape_of(model), memory.bytes.data(), keeper);
}

void Communicator::free(py::handle array) {
  check_open();
  if (py::isinstance<GpuArray>(array)) {
    const Array view = array.cast<const GpuArray&>().view();
    const std::shared_ptr<GpuCollectives> gpus = on_gpu(*view.gpu);
    const Session::Interrupt interrupt = interrupt_of_thread();
    return check(released([&] { return gpus->free({view.data, view.bytes()}, interrupt); }));
  }
  if (!py::isinstance<py::array>(array))
    throw py::type_error("free: the argument has to be an array of empty()");
  // The buffer protocol is not used, as NumPy has none for types of other packages.
  auto known = py::reinterpret_borrow<py::array>(array);
  const std::span<std::byte> memory(static_cast<std::byte*>(known.mutable_data()),
                                    static_cast<std::size_t>(known.nbytes()));
  const Session::Interrupt interrupt = interrupt_of_thread();
  check(released([&] { return session_->free(handle_, memory, interrupt); }));
}

std::unique_ptr<Communicator> Communicator::split(int color, std::optional<int> key) {
  check_open();
  auto part = take(released([&] { return session_->split(handle_, color, key.value_or(rank())); }));
  return std::make_unique<Communicator>(session_, std::move(part));
}

std::vector<std::vector<int>> Communicator::hosts() const {
  check_open();
  std::vector<std::vector<int>> hosts;
  check(released([&] {
    return session_->with_fabric([&](transport::Fabric&) {
      if (!handle_->communicator) return binding::closed();
      const collective::Grouping& groups = handle_->communicator->hosts();
      for (int group = 0; group < groups.groups(); ++group) {
        const auto members = groups.members(group);
        hosts.emplace_back(members.begin(), members.end());
      }
      return Status::ok();
    });
  }));
  return hosts;
}

void Communicator::release() {
  check_open();
  const Session::Interrupt interrupt = interrupt_of_thread();
  check(released([&] { return session_->release(handle_, interrupt); }));
}

}  // namespace dunlin::python
