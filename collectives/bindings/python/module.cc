// dunlin._dunlin: the extension module. What users see is made of it in the package's Python files,
// which also document it.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "collectives/bindings/python/communicator.h"
#include "collectives/bindings/python/graph.h"
#include "collectives/bindings/python/job.h"
#include "collectives/bindings/python/neighbors.h"
#include "collectives/bindings/python/partial.h"
#include "collectives/bindings/python/request.h"
#include "collectives/bindings/python/windows.h"

namespace dunlin::python {
namespace {

namespace py = pybind11;
using py::arg;

void define_job(py::module_& module) {
  module.def("init", [](bool background_progress) { Job::instance().init(background_progress); });
  module.def("shutdown", [](bool together, std::optional<double> patience) {
    Job::instance().shutdown(together ? binding::Ending::kTogether : binding::Ending::kAlone,
                             patience);
  });
  module.def("forget", [] { Job::instance().forget(); });
  module.def("is_initialized", [] { return Job::instance().is_initialized(); });
  module.def("job", [] {
    const JobInfo& job = Job::instance().runtime()->job();
    return py::make_tuple(job.rank.value(), job.size, job.local_rank, job.local_size, job.launcher);
  });
  // What the package's Python files look at.
  module.def("settings", [] {
    const Config& config = Job::instance().runtime()->config();
    py::dict settings;
    settings["nodes_per_machine"] = config.nodes_per_machine;
    settings["timeline"] = config.timeline;
    return settings;
  });
  module.def("world", [] {
    const auto& runtime = Job::instance().runtime();
    return std::make_unique<Communicator>(runtime, runtime->world());
  });
}

void define_request(py::module_& module) {
  py::class_<Request>(module, "Request",
                      "An operation under way. It keeps its arrays; dropped, it goes on.")
      .def("test", &Request::test,
           "Whether it has ended. Gives progress. Raises what it has failed with.")
      .def("wait", &Request::wait, arg("timeout") = py::none(),
           "Waits until it has ended, and returns the array with its result.\n\n"
           "timeout: seconds; None: DUNLIN_DEADLINE. After DeadlineExceededError, or Ctrl-C, the\n"
           "operation is still under way, and can be waited for again.");
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
  py::class_<Communicator> type(module, "Communicator",
                                "Ranks that do collectives together; dunlin.world() has all.");
  type.def_property_readonly("rank", &Communicator::rank, "This process's number in it.")
      .def_property_readonly("size", &Communicator::size, "How many ranks it has.");
  const auto none = py::none();
  define_collective<py::object, std::string_view, py::object>(type, "all_reduce",
                                                              &Communicator::all_reduce, arg("x"),
                                                              arg("op") = "sum", arg("out") = none);
  define_collective<py::object, int, std::string_view, py::object>(
      type, "reduce", &Communicator::reduce, arg("x"), arg("root") = 0, arg("op") = "sum",
      arg("out") = none);
  define_collective<py::object, int, py::object>(type, "broadcast", &Communicator::broadcast,
                                                 arg("x"), arg("root") = 0, arg("out") = none);
  define_collective<py::object, py::object>(type, "all_gather", &Communicator::all_gather, arg("x"),
                                            arg("out") = none);
  define_collective<py::object, std::string_view, py::object>(
      type, "reduce_scatter", &Communicator::reduce_scatter, arg("x"), arg("op") = "sum",
      arg("out") = none);
  define_collective<py::object, py::object>(type, "all_to_all", &Communicator::all_to_all, arg("x"),
                                            arg("out") = none);
  define_collective<>(type, "barrier", &Communicator::barrier);
  type.def("empty", &Communicator::empty, arg("shape"), arg("dtype") = "float32")
      .def("free", &Communicator::free, arg("array").noconvert())
      .def("hosts", &Communicator::hosts, "The ranks of each host: a list of lists, ascending.")
      .def("split", &Communicator::split, arg("color"), arg("key") = none)
      .def("release", &Communicator::release);
}

}  // namespace
}  // namespace dunlin::python

PYBIND11_MODULE(_dunlin, module) {
  module.doc() = "What the package dunlin is made of.";
  dunlin::python::define_job(module);
  dunlin::python::define_request(module);
  dunlin::python::define_communicator(module);
  dunlin::python::define_neighbors(module);
  dunlin::python::define_partial(module);
  dunlin::python::define_windows(module);
  dunlin::python::define_mutexes(module);
  dunlin::python::define_graph(module);
}
