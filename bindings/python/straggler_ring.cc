#include "bindings/python/straggler_ring.h"

#include "bindings/session/straggler_ring.h"

#include <fmt/format.h>
#include <pybind11/stl.h>

#include <chrono>
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
using collective::LatenessMode;

namespace {

LatenessMode mode_of(const std::string& late, Arguments& given) {
  if (late == "never") return LatenessMode::kNever;
  if (late == "fixed") return LatenessMode::kFixed;
  if (late != "adaptive") {
    given.fail({Code::kInvalidArgument,
                fmt::format("late: '{}' is none of \"adaptive\", \"fixed\" and \"never\"", late)});
  }
  return LatenessMode::kAdaptive;
}

class StragglerRing {
 public:
  StragglerRing(py::handle count, py::handle dtype, py::handle average, py::handle late,
                py::handle step, py::handle transfer, py::handle alpha, py::handle name)
      : session_(Job::instance().session()) {
    Arguments given;
    binding::StragglerRing::Options options;
    options.name = given.read<std::string>("name", name);
    options.count = given.read<std::size_t>("count", count);
    options.type = real_type_of(dtype, given);
    options.is_average = given.read<bool>("average", average);
    options.lateness.mode = mode_of(given.read<std::string>("late", late), given);
    options.lateness.alpha = given.read<double>("alpha", alpha);
    options.lateness.step = seconds("step", step, given);
    options.lateness.transfer = seconds("transfer", transfer, given);
    const Session::Interrupt interrupt = interrupt_of_thread();
    ring_ = take(released([&] {
      return binding::StragglerRing::create(*session_, std::move(options), interrupt,
                                            std::move(given.mistake));
    }));
    using Owner = std::shared_ptr<MemoryRegion>;
    const py::capsule keeper(new Owner(ring_->data().owner),
                             [](void* kept) { delete static_cast<Owner*>(kept); });
    data_ = array_over(py::dtype(dtype_name()), {static_cast<py::ssize_t>(this->count())},
                       ring_->data().bytes.data(), keeper);
  }

  const std::string& name() const { return ring_->options().name; }
  std::size_t count() const { return ring_->options().count; }
  const char* dtype_name() const { return to_string(ring_->options().type); }
  const py::array& data() const { return data_; }

  py::object run() {
    check_job(session_);
    return complete(
        [&](const Session::Interrupt& interrupt,
            std::shared_ptr<binding::SessionOperation>* unfinished) {
          return ring_->run(interrupt, unfinished);
        },
        outcome());
  }
  std::unique_ptr<Request> start() {
    check_job(session_);
    auto operation = take(released([&] { return ring_->start(); }));
    return std::make_unique<Request>(session_, std::move(operation), outcome());
  }
  py::dict statistics() {
    check_job(session_);
    const auto own = take(released([&] { return ring_->statistics(); }));
    py::dict all;
    all["all_reduces"] = own.all_reduces;
    all["timeouts"] = own.timeouts;
    all["skips"] = own.skips;
    all["skipped"] = own.skipped;
    all["forwards"] = own.forwards;
    all["bytes_sent"] = own.bytes_sent;
    all["took"] = to_seconds(own.took);
    return all;
  }
  void free() {
    check_job(session_);
    const Session::Interrupt interrupt = interrupt_of_thread();
    check(released([&] { return ring_->free(interrupt); }));
  }

 private:
  static Duration seconds(const char* what, py::handle given_value, Arguments& given) {
    const double value = given.read<double>(what, given_value);
    // Also false for NaN.
    if (value >= 0 && value < 1e9)
      return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(value));
    given.fail(
        {Code::kInvalidArgument, fmt::format("{}: {} is no number of seconds", what, value)});
    return {};
  }
  Outcome outcome() const {
    Outcome made;
    made.result = data_;
    made.memory = {data_};
    return made;
  }

  std::shared_ptr<Session> session_;
  std::shared_ptr<binding::StragglerRing> ring_;
  py::array data_;
};

}  // namespace

void define_straggler_ring(py::module_& module) {
  using py::arg;
  py::class_<StragglerRing>(module, "StragglerRing")
      .def(py::init<py::handle, py::handle, py::handle, py::handle, py::handle, py::handle,
                    py::handle, py::handle>(),
           arg("count"), arg("dtype") = "float32", arg("average") = true, arg("late") = "adaptive",
           arg("step") = 0.0, arg("transfer") = 0.0, arg("alpha") = 2.0,
           arg("name") = "straggler-ring")
      .def_property_readonly("name", &StragglerRing::name)
      .def_property_readonly("count", &StragglerRing::count)
      .def_property_readonly("dtype", &StragglerRing::dtype_name)
      .def_property_readonly("data", &StragglerRing::data)
      .def("all_reduce", &StragglerRing::run)
      .def("start_all_reduce", &StragglerRing::start)
      .def("statistics", &StragglerRing::statistics)
      .def("free", &StragglerRing::free);
}

}  // namespace dunlin::python
