#include "bindings/python/pairs.h"

#include "bindings/session/pair_average.h"

#include <fmt/format.h>

#include <memory>
#include <string>
#include <utility>

#include "bindings/python/arguments.h"
#include "bindings/python/array.h"
#include "bindings/python/job.h"
#include "bindings/python/request.h"

namespace dunlin::python {

namespace py = pybind11;
using binding::Session;
using collective::DataType;

namespace {

class PairAverage {
 public:
  PairAverage(py::handle count, py::handle graph, py::handle seed, py::handle name)
      : session_(Job::instance().session()) {
    Arguments given;
    binding::PairAverage::Options options;
    options.name = given.read<std::string>("name", name);
    options.count = given.read<std::size_t>("count", count);
    options.graph = given.read<std::string>("graph", graph);
    options.seed = given.read<std::uint64_t>("seed", seed);
    const Session::Interrupt interrupt = interrupt_of_thread();
    average_ = take(released([&] {
      return binding::PairAverage::create(*session_, std::move(options), interrupt,
                                          std::move(given.mistake));
    }));
  }

  const std::string& name() const { return average_->options().name; }
  std::size_t count() const { return average_->options().count; }
  const std::string& graph() const { return average_->options().graph; }

  py::object average(py::object model) {
    check_job(session_);
    const Array array = view(model);
    return complete(
        [&](const Session::Interrupt& interrupt,
            std::shared_ptr<binding::SessionOperation>* unfinished) {
          return average_->run(floats(array), interrupt, unfinished);
        },
        outcome_of(model, array));
  }
  std::unique_ptr<Request> start(py::object model) {
    check_job(session_);
    const Array array = view(model);
    auto operation = take(released([&] { return average_->start(floats(array)); }));
    return std::make_unique<Request>(session_, std::move(operation), outcome_of(model, array));
  }
  py::object leave(py::object model) {
    check_job(session_);
    Array array;
    if (!model.is_none()) array = view(model);
    return complete(
        [&](const Session::Interrupt& interrupt,
            std::shared_ptr<binding::SessionOperation>* unfinished) {
          return average_->leave(floats(array), interrupt, unfinished);
        },
        outcome_of(model, array));
  }
  py::dict statistics() {
    check_job(session_);
    const auto own = take(released([&] { return average_->report(); }));
    py::dict all;
    all["iterations"] = own.iterations;
    all["averages"] = own.synchronizations;
    all["bytes_sent"] = own.bytes_sent;
    all["waited"] = to_seconds(own.waited);
    return all;
  }

 private:
  Array view(py::handle model) const {
    Array array = writable_view_of(model, "PairAverage");
    if (array.type != DataType::kFloat32 || array.count != count()) {
      raise(Status(Code::kInvalidArgument,
                   fmt::format("PairAverage: the model has to have {} float32 elements, not {} {}",
                               count(), array.count, to_string(array.type))));
    }
    return array;
  }
  static Outcome outcome_of(const py::object& model, const Array& array) {
    Outcome outcome;
    outcome.result = model;
    if (array.keeper) outcome.memory = {array.keeper};
    return outcome;
  }
  static float* floats(const Array& array) { return reinterpret_cast<float*>(array.data); }

  std::shared_ptr<Session> session_;
  std::shared_ptr<binding::PairAverage> average_;
};

}  // namespace

void define_pairs(py::module_& module) {
  using py::arg;
  py::class_<PairAverage>(module, "PairAverage")
      .def(py::init<py::handle, py::handle, py::handle, py::handle>(), arg("count"),
           arg("graph") = "complete", arg("seed") = 1, arg("name") = "pairs")
      .def_property_readonly("name", &PairAverage::name)
      .def_property_readonly("count", &PairAverage::count)
      .def_property_readonly("graph", &PairAverage::graph)
      .def("average", &PairAverage::average, arg("model"))
      .def("start_average", &PairAverage::start, arg("model"))
      .def("leave", &PairAverage::leave, arg("model") = py::none())
      .def("statistics", &PairAverage::statistics);
}

}  // namespace dunlin::python
