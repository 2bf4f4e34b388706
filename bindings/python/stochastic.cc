#include "bindings/python/stochastic.h"

#include "bindings/session/stochastic.h"

#include <fmt/format.h>
#include <pybind11/stl.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "bindings/python/arguments.h"
#include "bindings/python/array.h"
#include "bindings/python/job.h"
#include "bindings/python/request.h"
#include "collectives/graph/generators.h"
#include "collectives/graph/rebuild.h"

namespace dunlin::python {

namespace py = pybind11;
using binding::Session;
using collective::Graph;

namespace {

class StochasticReduce {
 public:
  StochasticReduce(py::handle count, py::handle graph, py::handle sync, py::handle depth,
                   py::handle weighting, py::handle dtype, py::handle name, py::handle gpu)
      : session_(Job::instance().session()) {
    Arguments given;
    binding::StochasticReduce::Options options;
    options.name = given.read<std::string>("name", name);
    options.count = given.read<std::size_t>("count", count);
    options.type = real_type_of(dtype, given);
    options.graph = graph_of(graph, given);
    if (!gpu.is_none()) options.gpu = given.read<int>("gpu", gpu);
    options.mode = given.read(collective::parse_sync_mode(given.read<std::string>("sync", sync)));
    options.depth = given.read<std::uint32_t>("depth", depth);
    options.weighting =
        given.read(collective::parse_weighting(given.read<std::string>("weighting", weighting)));
    const Session::Interrupt interrupt = interrupt_of_thread();
    reduce_ = take(released([&] {
      return binding::StochasticReduce::create(*session_, std::move(options), interrupt,
                                               std::move(given.mistake));
    }));
  }

  const std::string& name() const { return reduce_->options().name; }
  std::size_t count() const { return reduce_->options().count; }
  const char* dtype() const { return to_string(reduce_->options().type); }
  const char* sync() const { return to_string(reduce_->options().mode); }
  std::uint32_t depth() const { return reduce_->options().depth; }
  std::optional<int> gpu() const { return reduce_->options().gpu; }

  py::object average(py::object model, py::object out) {
    Call call(*this, model, out);
    return complete(
        [&](const Session::Interrupt& interrupt,
            std::shared_ptr<binding::SessionOperation>* unfinished) {
          return reduce_->run(call.memory, interrupt, unfinished);
        },
        std::move(call.outcome));
  }
  std::unique_ptr<Request> start(py::object model, py::object out) {
    Call call(*this, model, out);
    auto operation = take(released([&] { return reduce_->start(call.memory); }));
    return std::make_unique<Request>(session_, std::move(operation), std::move(call.outcome));
  }
  py::dict statistics() {
    check_job(session_);
    const auto own = take(released([&] { return reduce_->statistics(); }));
    py::dict all;
    all["reduces"] = own.reduces;
    all["inputs"] = own.inputs;
    all["torn"] = own.torn;
    all["stale"] = own.stale;
    all["bytes_sent"] = own.bytes_sent;
    all["waited"] = to_seconds(own.waited);
    return all;
  }
  void free() {
    check_job(session_);
    const Session::Interrupt interrupt = interrupt_of_thread();
    check(released([&] { return reduce_->free(interrupt); }));
  }

 private:
  // The arrays of one reduce. Without `out`, the model gets the average.
  struct Call {
    Call(const StochasticReduce& reduce, const py::object& x, const py::object& out) {
      check_job(reduce.session_);
      const Array input = out.is_none()
                              ? writable_view_of(x, "StochasticReduce", Usable::kHostAndGpu)
                              : view_of(x, "StochasticReduce", Usable::kHostAndGpu);
      check_gpu(input, reduce.gpu(), "StochasticReduce");
      if (input.type != reduce.reduce_->options().type || input.count != reduce.count()) {
        raise(Status(
            Code::kInvalidArgument,
            fmt::format("StochasticReduce: the model has to have {} {} elements, not {} "
                        "{}",
                        reduce.count(), reduce.dtype(), input.count, to_string(input.type))));
      }
      Array output = input;
      if (!out.is_none()) {
        output = output_for(input, input.shape, out);
        check_overlap(input, output, 0);
      }
      memory = {input.data, output.data, input.ready, output.ready};
      outcome.result = output.object;
      outcome.memory = {input.keeper, output.keeper};
    }
    binding::ModelMemory memory;
    Outcome outcome;
  };

  std::optional<Graph> graph_of(py::handle graph, Arguments& given) const {
    if (py::isinstance<Graph>(graph)) return graph.cast<const Graph&>();
    const auto spec = given.read<std::string>("graph", graph);
    const int members = session_->world()->size;
    auto made = session_->is_elastic() ? collective::resize_graph(spec, members)
                                       : collective::make_graph(spec, members);
    if (made) return std::move(made).value();
    given.fail(std::move(made).status());
    return std::nullopt;
  }

  std::shared_ptr<Session> session_;
  std::shared_ptr<binding::StochasticReduce> reduce_;
};

}  // namespace

void define_stochastic(py::module_& module) {
  using py::arg;
  py::class_<StochasticReduce>(module, "StochasticReduce")
      .def(py::init<py::handle, py::handle, py::handle, py::handle, py::handle, py::handle,
                    py::handle, py::handle>(),
           arg("count"), arg("graph") = "root-expander", arg("sync") = "notify-ack",
           arg("depth") = 2, arg("weighting") = "uniform", arg("dtype") = "float32",
           arg("name") = "model", arg("gpu") = py::none())
      .def_property_readonly("name", &StochasticReduce::name)
      .def_property_readonly("count", &StochasticReduce::count)
      .def_property_readonly("dtype", &StochasticReduce::dtype)
      .def_property_readonly("sync", &StochasticReduce::sync)
      .def_property_readonly("depth", &StochasticReduce::depth)
      .def_property_readonly("gpu", &StochasticReduce::gpu)
      .def("average", &StochasticReduce::average, arg("model"), arg("out") = py::none())
      .def("start_average", &StochasticReduce::start, arg("model"), arg("out") = py::none())
      .def("statistics", &StochasticReduce::statistics)
      .def("free", &StochasticReduce::free);
}

}  // namespace dunlin::python
