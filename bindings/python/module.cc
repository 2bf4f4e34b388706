// dunlin._dunlin: the extension module. The package's Python files wrap it, and document it for
// users.
#include <fmt/format.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <vector>

#include "bindings/python/array.h"
#include "bindings/python/communicator.h"
#include "bindings/python/gpu_array.h"
#include "bindings/python/graph.h"
#include "bindings/python/job.h"
#include "bindings/python/neighbors.h"
#include "bindings/python/partial.h"
#include "bindings/python/request.h"
#include "bindings/python/stochastic.h"
#include "bindings/python/straggler_ring.h"
#include "bindings/python/training.h"
#include "bindings/python/windows.h"

namespace dunlin::python {
namespace {

namespace py = pybind11;
using py::arg;

// Members that are waited for may still read their data.
Duration longest_change(const binding::Session& session, std::optional<double> timeout) {
  const Config& config = session.config();
  return to_duration(timeout).value_or(std::max(config.deadline, config.bootstrap_timeout));
}

void define_job(py::module_& module) {
  module.def("init", [](bool background_progress) { Job::instance().init(background_progress); });
  module.def("shutdown", [](bool together, std::optional<double> timeout) {
    Job::instance().shutdown(together ? binding::Ending::kTogether : binding::Ending::kAlone,
                             timeout);
  });
  module.def("forget", [] { Job::instance().forget(); });
  module.def("is_initialized", [] { return Job::instance().is_initialized(); });
  module.def("job", [] {
    const JobInfo& job = Job::instance().session()->job();
    return py::make_tuple(job.rank.value(), job.size, job.local_rank, job.local_size, job.launcher);
  });
  module.def("begin_step", [](std::uint64_t number) {
    const std::shared_ptr<binding::Session> session = Job::instance().session();
    check(released([&] {
      return session->with_fabric([&](transport::Fabric& fabric) {
        fabric.begin_step(number);
        return Status::ok();
      });
    }));
  });
  // Settings that the package's Python files use.
  module.def("settings", [] {
    const Config& config = Job::instance().session()->config();
    py::dict settings;
    settings["nodes_per_machine"] = config.nodes_per_machine;
    settings["timeline"] = config.timeline;
    return settings;
  });
  module.def("world", [] {
    const auto& session = Job::instance().session();
    return std::make_unique<Communicator>(session, session->world());
  });
}

// How the members of the job change.
void define_members(py::module_& module) {
  module.def("is_elastic", [] { return Job::instance().session()->is_elastic(); });
  module.def("is_newcomer", [] { return Job::instance().session()->is_newcomer(); });
  module.def("members", [] {
    std::vector<int> ranks;
    for (const Rank rank : Job::instance().session()->members()) ranks.push_back(rank.value());
    return ranks;
  });
  // Whether the rank has died or left, as far as this process knows.
  module.def("is_gone", [](int rank) {
    const std::shared_ptr<binding::Session> session = Job::instance().session();
    bool is_gone = false;
    check(released([&] {
      return session->with_fabric([&](transport::Fabric& fabric) -> Status {
        if (rank < 0 || rank >= fabric.size())
          return {Code::kOutOfRange, fmt::format("rank {} in a job of {}", rank, fabric.size())};
        is_gone = fabric.peers().state(Rank(rank)) > PeerState::kAbsent;
        return Status::ok();
      });
    }));
    return is_gone;
  });
  module.def("changes_before", [](std::optional<std::uint64_t> step, bool in_step) {
    const std::shared_ptr<binding::Session> session = Job::instance().session();
    return take(released([&] { return session->changes_before(step, in_step); }));
  });
  module.def("reform", [](std::optional<double> timeout) {
    const std::shared_ptr<binding::Session> session = Job::instance().session();
    const Duration longest = longest_change(*session, timeout);
    return take(released([&] { return session->reform(longest); }));
  });
  module.def("share_model",
             [](const py::object& model, std::uint64_t version, std::optional<double> timeout) {
               const std::shared_ptr<binding::Session> session = Job::instance().session();
               const Duration longest = longest_change(*session, timeout);
               const Array array = writable_view_of(model, "share_model");
               return take(released([&] {
                 return session->share_model({array.data, array.bytes()}, version, longest);
               }));
             });
  module.def("retire", [] { Job::instance().session()->retire(); });
}

void define_request(py::module_& module) {
  py::class_<Request>(
      module, "Request",
      "An operation in progress. It keeps its arrays alive, and continues if it is dropped.")
      .def("test", &Request::test,
           "Whether the operation is over. Advances it. Raises the error if it has failed.")
      .def("wait", &Request::wait, arg("timeout") = py::none(),
           "Waits until the operation is over, and returns the array with its result.\n\n"
           "timeout: seconds; None: DUNLIN_DEADLINE. After DeadlineExceededError or Ctrl-C the\n"
           "operation continues, and can be waited for again.");
}

// Both forms of a collective: NAME(...) and start_NAME(...).
template <typename... Parameters, typename Prepare, typename... Extra>
void define_collective(py::class_<Communicator>& type, const std::string& name, Prepare prepare,
                       const Extra&... extra) {
  type.def(
      name.c_str(),
      [prepare](Communicator& self, Parameters... parameters) {
        return self.run((self.*prepare)(parameters...));
      },
      extra...);
  type.def(("start_" + name).c_str(),
           [prepare](Communicator& self, Parameters... parameters) {
             return self.start((self.*prepare)(parameters...));
           },
           extra...);
}

void define_communicator(py::module_& module) {
  py::class_<Communicator> type(
      module, "Communicator",
      "A group of ranks that make collective calls; dunlin.world() has all ranks.");
  type.def_property_readonly("rank", &Communicator::rank,
                             "This process's rank in the communicator.")
      .def_property_readonly("size", &Communicator::size, "The number of ranks.");
  const auto none = py::none();
  define_collective<py::object, std::string_view, py::object, std::string_view>(
      type, "all_reduce", &Communicator::all_reduce, arg("x"), arg("op") = "sum", arg("out") = none,
      arg("name") = "");
  define_collective<py::object, int, std::string_view, py::object, std::string_view>(
      type, "reduce", &Communicator::reduce, arg("x"), arg("root") = 0, arg("op") = "sum",
      arg("out") = none, arg("name") = "");
  define_collective<py::object, int, py::object, std::string_view>(
      type, "broadcast", &Communicator::broadcast, arg("x"), arg("root") = 0, arg("out") = none,
      arg("name") = "");
  define_collective<py::object, py::object, std::string_view>(
      type, "all_gather", &Communicator::all_gather, arg("x"), arg("out") = none, arg("name") = "");
  define_collective<py::object, std::string_view, py::object, std::string_view>(
      type, "reduce_scatter", &Communicator::reduce_scatter, arg("x"), arg("op") = "sum",
      arg("out") = none, arg("name") = "");
  define_collective<py::object, py::object, std::string_view>(
      type, "all_to_all", &Communicator::all_to_all, arg("x"), arg("out") = none, arg("name") = "");
  define_collective<std::string_view>(type, "barrier", &Communicator::barrier, arg("name") = "");
  type.def("empty", &Communicator::empty, arg("shape"), arg("dtype") = "float32",
           arg("device") = py::none())
      .def("free", &Communicator::free, arg("array").noconvert())
      .def("can_use_gpu", &Communicator::can_use_gpu, arg("device"),
           "Whether all ranks have a GPU, and a transport, for calls on GPU memory. `device` is "
           "the\n"
           "number of this rank's. Collective. All ranks get the same answer.")
      .def("hosts", &Communicator::hosts, "The ranks of each host: a list of lists, ascending.")
      .def("split", &Communicator::split, arg("color"), arg("key") = none)
      .def("release", &Communicator::release);
}

}  // namespace
}  // namespace dunlin::python

PYBIND11_MODULE(_dunlin, module) {
  module.doc() = "The implementation of the package dunlin.";
  dunlin::python::define_job(module);
  dunlin::python::define_members(module);
  dunlin::python::define_request(module);
  dunlin::python::define_gpu_array(module);
  dunlin::python::define_communicator(module);
  dunlin::python::define_neighbors(module);
  dunlin::python::define_partial(module);
  dunlin::python::define_stochastic(module);
  dunlin::python::define_straggler_ring(module);
  dunlin::python::define_training(module);
  dunlin::python::define_windows(module);
  dunlin::python::define_mutexes(module);
  dunlin::python::define_graph(module);
}
