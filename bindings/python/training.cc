#include "bindings/python/training.h"

#include "bindings/session/training.h"

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

namespace dunlin::python {

namespace py = pybind11;
using binding::Session;
using binding::Training;
using collective::DataType;
using training::MethodKind;
using training::MethodOptions;

namespace {

// The common part of the two classes. `type` is the name of the Python class.
class Worker {
 public:
  const std::string& name() const { return training_->options().name; }
  std::size_t count() const { return training_->options().count; }

  py::object leave(py::object model) {
    check_job(session_);
    Outcome outcome;
    float* parameters = nullptr;
    if (!model.is_none()) parameters = writable(model, outcome);
    const Session::Interrupt interrupt = interrupt_of_thread();
    check(released([&] { return training_->leave(parameters, interrupt); }));
    return model;
  }

 protected:
  explicit Worker(const char* type) : type_(type), session_(Job::instance().session()) {}
  void create(MethodOptions options, Status mistake) {
    const Session::Interrupt interrupt = interrupt_of_thread();
    training_ = take(released([&] {
      return Training::create(*session_, std::move(options), interrupt, std::move(mistake));
    }));
  }

  py::object run(const Training::Step& step, Outcome outcome) {
    return complete(
        [&](const Session::Interrupt& interrupt,
            std::shared_ptr<binding::SessionOperation>* unfinished) {
          return training_->run(step, interrupt, unfinished);
        },
        std::move(outcome));
  }
  std::unique_ptr<Request> start(const Training::Step& step, Outcome outcome) {
    auto operation = take(released([&] { return training_->start(step); }));
    return std::make_unique<Request>(session_, std::move(operation), std::move(outcome));
  }
  py::dict report(const char* synchronizations) {
    check_job(session_);
    const auto own = take(released([&] { return training_->report(); }));
    py::dict all;
    all["iterations"] = own.iterations;
    all[synchronizations] = own.synchronizations;
    all["bytes_sent"] = own.bytes_sent;
    all["waited"] = to_seconds(own.waited);
    return all;
  }
  // The elements of an array, which `outcome` keeps.
  float* writable(py::handle array, Outcome& outcome) const {
    return floats(writable_view_of(array, type_), "model", outcome);
  }
  const float* readable(py::handle array, Outcome& outcome) const {
    return floats(view_of(array, type_), "gradient", outcome);
  }

  const char* type_;
  std::shared_ptr<Session> session_;
  std::shared_ptr<Training> training_;

 private:
  float* floats(const Array& array, const char* what, Outcome& outcome) const {
    if (array.type != DataType::kFloat32 || array.count != count()) {
      raise(Status(Code::kInvalidArgument,
                   fmt::format("{}: the {} has to have {} float32 elements, not {} {}", type_, what,
                               count(), array.count, to_string(array.type))));
    }
    outcome.memory.push_back(array.keeper);
    return reinterpret_cast<float*>(array.data);
  }
};

class PairAverage : public Worker {
 public:
  PairAverage(py::handle count, py::handle graph, py::handle seed, py::handle name)
      : Worker("PairAverage") {
    Arguments given;
    MethodOptions options;
    options.kind = MethodKind::kAdPsgd;
    options.has_own_step = true;
    options.name = given.read<std::string>("name", name);
    options.count = given.read<std::size_t>("count", count);
    options.graph = given.read<std::string>("graph", graph);
    options.seed = given.read<std::uint64_t>("seed", seed);
    create(std::move(options), std::move(given.mistake));
  }

  const std::string& graph() const { return training_->options().graph; }
  py::object average(py::object model) {
    Outcome outcome;
    const Training::Step step = step_of(model, outcome);
    return run(step, std::move(outcome));
  }
  std::unique_ptr<Request> start_average(py::object model) {
    Outcome outcome;
    const Training::Step step = step_of(model, outcome);
    return start(step, std::move(outcome));
  }
  py::dict statistics() { return report("averages"); }

 private:
  Training::Step step_of(const py::object& model, Outcome& outcome) const {
    check_job(session_);
    outcome.result = model;
    return {.model = writable(model, outcome)};
  }
};

class ParameterServers : public Worker {
 public:
  ParameterServers(py::handle count, py::handle servers, py::handle asynchronous,
                   py::handle momentum, py::handle weight_decay, py::handle name)
      : Worker("ParameterServers") {
    Arguments given;
    MethodOptions options;
    options.name = given.read<std::string>("name", name);
    options.count = given.read<std::size_t>("count", count);
    options.servers = given.read<int>("servers", servers);
    options.kind = given.read<bool>("asynchronous", asynchronous)
                       ? MethodKind::kAsyncParameterServer
                       : MethodKind::kParameterServer;
    options.sgd.momentum = given.read<float>("momentum", momentum);
    options.sgd.weight_decay = given.read<float>("weight_decay", weight_decay);
    create(std::move(options), std::move(given.mistake));
  }

  int servers() const { return training_->options().servers; }
  bool is_asynchronous() const {
    return training_->options().kind == MethodKind::kAsyncParameterServer;
  }
  bool is_server() const { return training_->is_server(); }
  py::object step(py::object model, py::object gradient, float learning_rate) {
    Outcome outcome;
    const Training::Step step = step_of(model, gradient, learning_rate, outcome);
    return run(step, std::move(outcome));
  }
  std::unique_ptr<Request> start_step(py::object model, py::object gradient, float learning_rate) {
    Outcome outcome;
    const Training::Step step = step_of(model, gradient, learning_rate, outcome);
    return start(step, std::move(outcome));
  }
  void serve(std::optional<double> timeout) {
    check_job(session_);
    const Duration longest = to_duration(timeout).value_or(session_->config().deadline);
    const Session::Interrupt interrupt = interrupt_of_thread();
    check(released([&] { return training_->serve(longest, interrupt); }));
  }
  py::dict statistics() { return report("updates"); }

 private:
  Training::Step step_of(const py::object& model, const py::object& gradient, float learning_rate,
                         Outcome& outcome) const {
    check_job(session_);
    outcome.result = model;
    float* const parameters = writable(model, outcome);
    return {parameters, readable(gradient, outcome), learning_rate};
  }
};

}  // namespace

void define_training(py::module_& module) {
  using py::arg;
  const auto none = py::none();
  py::class_<PairAverage>(module, "PairAverage")
      .def(py::init<py::handle, py::handle, py::handle, py::handle>(), arg("count"),
           arg("graph") = "complete", arg("seed") = 1, arg("name") = "pairs")
      .def_property_readonly("name", &PairAverage::name)
      .def_property_readonly("count", &PairAverage::count)
      .def_property_readonly("graph", &PairAverage::graph)
      .def("average", &PairAverage::average, arg("model"))
      .def("start_average", &PairAverage::start_average, arg("model"))
      .def("leave", &PairAverage::leave, arg("model") = none)
      .def("statistics", &PairAverage::statistics);
  py::class_<ParameterServers>(module, "ParameterServers")
      .def(py::init<py::handle, py::handle, py::handle, py::handle, py::handle, py::handle>(),
           arg("count"), arg("servers") = 1, arg("asynchronous") = false, arg("momentum") = 0.0,
           arg("weight_decay") = 0.0, arg("name") = "parameters")
      .def_property_readonly("name", &ParameterServers::name)
      .def_property_readonly("count", &ParameterServers::count)
      .def_property_readonly("servers", &ParameterServers::servers)
      .def_property_readonly("asynchronous", &ParameterServers::is_asynchronous)
      .def_property_readonly("is_server", &ParameterServers::is_server)
      .def("step", &ParameterServers::step, arg("model"), arg("gradient"), arg("learning_rate"))
      .def("start_step", &ParameterServers::start_step, arg("model"), arg("gradient"),
           arg("learning_rate"))
      .def("serve", &ParameterServers::serve, arg("timeout") = none)
      .def("leave", [](ParameterServers& self) { self.leave(py::none()); })
      .def("statistics", &ParameterServers::statistics);
}

}  // namespace dunlin::python
