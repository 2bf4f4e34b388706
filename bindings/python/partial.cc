#include "bindings/python/partial.h"

#include <fmt/format.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bindings/python/arguments.h"
#include "bindings/python/array.h"
#include "bindings/python/job.h"
#include "bindings/python/request.h"
#include "bindings/session/group_average.h"
#include "bindings/session/partial.h"

namespace dunlin::python {

namespace py = pybind11;
using binding::PartialReduces;
using binding::Session;
using collective::DataType;
using collective::PartialCall;

namespace {

// The number of a call; None: 0.
std::uint64_t number_of(const std::optional<std::int64_t>& number) {
  if (!number) return 0;
  if (*number < 1) throw py::value_error("number has to be at least 1, or None");
  return static_cast<std::uint64_t>(*number);
}

struct Reduce {
  Reduce(py::handle x, const std::vector<int>& ranks, std::string_view op,
         std::optional<std::int64_t> number, py::handle out, std::string label) {
    const Array input = view_of(x, "partial_all_reduce", Usable::kHostAndGpu);
    const Array output = output_for(input, input.shape, out);
    check_overlap(input, output, 0);
    PartialCall& inner = call.call;
    inner.number = number_of(number);
    for (const int rank : ranks) inner.members.emplace_back(rank);
    inner.input = input.data;
    inner.output = output.data;
    inner.count = input.count;
    inner.reduction = {input.type, take(collective::parse_reduce_op(op))};
    inner.label = std::move(label);
    call.gpu = input.gpu;
    call.input_ready = input.ready;
    call.output_ready = output.ready;
    outcome.result = output.object;
    outcome.memory = {input.keeper, output.keeper};
  }
  PartialReduces::Call call;
  Outcome outcome;
};

py::object reduce(py::object x, const std::vector<int>& ranks, std::string_view op,
                  const std::string& name, std::optional<std::int64_t> number, py::object out,
                  std::string label) {
  const std::shared_ptr<PartialReduces> partial = Job::instance().partial();
  Reduce made(x, ranks, op, number, out, std::move(label));
  const std::shared_ptr<Session> session = Job::instance().session();
  return complete(
      [&](const Session::Interrupt& interrupt,
          std::shared_ptr<binding::SessionOperation>* unfinished) {
        return partial->run(name, made.call, interrupt, unfinished);
      },
      std::move(made.outcome));
}

std::unique_ptr<Request> start_reduce(py::object x, const std::vector<int>& ranks,
                                      std::string_view op, const std::string& name,
                                      std::optional<std::int64_t> number, py::object out,
                                      std::string label) {
  const std::shared_ptr<PartialReduces> partial = Job::instance().partial();
  Reduce made(x, ranks, op, number, out, std::move(label));
  const std::shared_ptr<Session> session = Job::instance().session();
  auto operation = take(released([&] { return partial->start(name, made.call); }));
  return std::make_unique<Request>(session, std::move(operation), std::move(made.outcome));
}

class GroupAverage {
 public:
  GroupAverage(py::handle count, py::handle source, py::handle group_size,
               py::handle slowdown_threshold, py::handle layout, py::handle seed, py::handle name,
               py::handle gpu)
      : session_(Job::instance().session()) {
    Arguments given;
    binding::GroupAverage::Options options;
    options.name = given.read<std::string>("name", name);
    options.count = given.read<std::size_t>("count", count);
    options.source =
        given.read(collective::parse_group_source(given.read<std::string>("source", source)));
    options.groups.group_size = given.read<int>("group_size", group_size);
    options.groups.slowdown_threshold =
        given.read<std::uint64_t>("slowdown_threshold", slowdown_threshold);
    if (!layout.is_none()) {
      const auto hosts = given.read<std::pair<int, int>>("layout", layout);
      options.groups.layout = {hosts.first, hosts.second};
    }
    options.groups.seed = given.read<std::uint64_t>("seed", seed);
    if (!gpu.is_none()) options.gpu = given.read<int>("gpu", gpu);
    const Session::Interrupt interrupt = interrupt_of_thread();
    average_ = take(released([&] {
      return binding::GroupAverage::create(*session_, std::move(options), interrupt,
                                           std::move(given.mistake));
    }));
  }

  const std::string& name() const { return average_->options().name; }
  std::size_t count() const { return average_->options().count; }
  const char* source() const { return to_string(average_->options().source); }
  std::optional<int> gpu() const { return average_->options().gpu; }

  py::object average(py::object model, std::optional<std::uint64_t> iteration) {
    check_job(session_);
    const Array array = view(model);
    Outcome outcome = outcome_of(model, array);
    return complete(
        [&](const Session::Interrupt& interrupt,
            std::shared_ptr<binding::SessionOperation>* unfinished) {
          return average_->run(iteration, memory_of(array), interrupt, unfinished);
        },
        std::move(outcome));
  }
  std::unique_ptr<Request> start(py::object model, std::optional<std::uint64_t> iteration) {
    check_job(session_);
    const Array array = view(model);
    Outcome outcome = outcome_of(model, array);
    auto operation = take(released([&] { return average_->start(iteration, memory_of(array)); }));
    return std::make_unique<Request>(session_, std::move(operation), std::move(outcome));
  }
  void leave() {
    check_job(session_);
    check(released([&] { return average_->leave(); }));
  }
  bool is_over() {
    check_job(session_);
    return take(released([&] { return average_->is_over(); }));
  }
  py::dict statistics() {
    check_job(session_);
    const auto own = take(released([&] { return average_->statistics(); }));
    const Rank master = take(released([&] { return average_->master(); }));
    py::dict all;
    all["iterations"] = own.iterations;
    all["groups"] = own.groups;
    all["members"] = own.members;
    all["alone"] = own.alone;
    all["failures"] = own.failures;
    all["bytes_sent"] =
        std::llround(own.models_sent * static_cast<double>(count() * sizeof(float)));
    all["waited"] = to_seconds(own.waited);
    all["server"] = master == Rank() ? py::object(py::none()) : py::int_(master.value());
    return all;
  }

 private:
  Array view(py::handle model) const {
    Array array = writable_view_of(model, "GroupAverage", Usable::kHostAndGpu);
    check_gpu(array, gpu(), "GroupAverage");
    if (array.type != DataType::kFloat32 || array.count != count()) {
      raise(Status(Code::kInvalidArgument,
                   fmt::format("GroupAverage: the model has to have {} float32 elements, not {} "
                               "{}",
                               count(), array.count, to_string(array.type))));
    }
    return array;
  }
  static Outcome outcome_of(const py::object& model, const Array& array) {
    Outcome outcome;
    outcome.result = model;
    outcome.memory = {array.keeper};
    return outcome;
  }
  static binding::ModelMemory memory_of(const Array& array) {
    return {array.data, array.data, array.ready, array.ready};
  }

  std::shared_ptr<Session> session_;
  std::shared_ptr<binding::GroupAverage> average_;
};

}  // namespace

void define_partial(py::module_& module) {
  using py::arg;
  const auto none = py::none();
  module.def("partial_all_reduce", &reduce, arg("x"), arg("ranks"), arg("op") = "avg",
             arg("name") = "", arg("number") = none, arg("out") = none, arg("label") = "");
  module.def("start_partial_all_reduce", &start_reduce, arg("x"), arg("ranks"), arg("op") = "avg",
             arg("name") = "", arg("number") = none, arg("out") = none, arg("label") = "");
  py::class_<GroupAverage>(module, "GroupAverage")
      .def(py::init<py::handle, py::handle, py::handle, py::handle, py::handle, py::handle,
                    py::handle, py::handle>(),
           arg("count"), arg("source") = "smart", arg("group_size") = 3,
           arg("slowdown_threshold") = 4, arg("layout") = none, arg("seed") = 1,
           arg("name") = "groups", arg("gpu") = none)
      .def_property_readonly("name", &GroupAverage::name)
      .def_property_readonly("count", &GroupAverage::count)
      .def_property_readonly("source", &GroupAverage::source)
      .def_property_readonly("gpu", &GroupAverage::gpu)
      .def("average", &GroupAverage::average, arg("model"), arg("iteration") = none)
      .def("start_average", &GroupAverage::start, arg("model"), arg("iteration") = none)
      .def("leave", &GroupAverage::leave)
      .def("is_over", &GroupAverage::is_over)
      .def("statistics", &GroupAverage::statistics);
}

}  // namespace dunlin::python
