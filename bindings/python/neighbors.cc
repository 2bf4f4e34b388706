#include "bindings/python/neighbors.h"

#include <fmt/format.h>
#include <pybind11/stl.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "bindings/python/array.h"
#include "bindings/python/job.h"
#include "bindings/python/request.h"
#include "bindings/session/agreement.h"
#include "bindings/session/machines.h"
#include "bindings/session/neighbors.h"
#include "runtime/fnv.h"

namespace dunlin::python {

namespace py = pybind11;
using binding::Neighbors;
using binding::Session;
using collective::NeighborCall;
using collective::WeightedRank;

namespace {

NeighborCall call_of(const Array& input, py::handle sources, py::handle destinations,
                     const std::string& name) {
  NeighborCall call{.name = name, .input = input.data, .count = input.count, .type = input.type};
  call.sources = ranks_of(sources, "sources");
  call.destinations = ranks_of(destinations, "destinations");
  return call;
}

// What the package says about dead neighbors ("raise", "own data", "own share").
collective::OnDeath on_death_of(std::string_view text) {
  using collective::OnDeath;
  if (text == "own data") return OnDeath::kOwnData;
  if (text == "own share") return OnDeath::kOwnShare;
  return OnDeath::kFail;
}

struct Average {
  Average(py::handle x, py::handle sources, py::handle destinations, double self_weight,
          const std::string& name, py::handle out, Usable usable,
          std::string_view on_death = "raise") {
    const Array input = view_of(x, "neighbor_average", usable);
    const Array output = output_for(input, input.shape, out);
    call = call_of(input, sources, destinations, name);
    call.output = output.data;
    call.self_weight = self_weight;
    call.on_death = on_death_of(on_death);
    outcome.result = output.object;
    outcome.memory = {input.keeper, output.keeper};
    gpu = input.gpu;
    ready = {input.ready, output.ready};
    call.input_ready = input.ready.get();
    call.output_ready = output.ready.get();
  }
  std::shared_ptr<Neighbors> neighbors() const {
    return gpu ? Job::instance().neighbors_on(*gpu, "neighbor_average")
               : Job::instance().neighbors();
  }
  NeighborCall call;
  Outcome outcome;
  std::optional<int> gpu;
  std::vector<std::shared_ptr<GpuEvent>> ready;  // the call refers to them
};

py::object average(py::object x, py::object sources, py::object destinations, double self_weight,
                   const std::string& name, py::object out, std::string_view on_death) {
  (void)Job::instance().session();
  Average made(x, sources, destinations, self_weight, name, out, Usable::kHostAndGpu, on_death);
  const std::shared_ptr<Neighbors> neighbors = made.neighbors();
  return complete(
      [&](const Session::Interrupt& interrupt,
          std::shared_ptr<binding::SessionOperation>* unfinished) {
        return neighbors->average(made.call, interrupt, unfinished);
      },
      std::move(made.outcome));
}

std::unique_ptr<Request> start_average(py::object x, py::object sources, py::object destinations,
                                       double self_weight, const std::string& name, py::object out,
                                       std::string_view on_death) {
  const std::shared_ptr<Session> session = Job::instance().session();
  Average made(x, sources, destinations, self_weight, name, out, Usable::kHostAndGpu, on_death);
  const std::shared_ptr<Neighbors> neighbors = made.neighbors();
  auto operation = take(released([&] { return neighbors->start(made.call); }));
  return std::make_unique<Request>(session, std::move(operation), std::move(made.outcome));
}

// A hash of the axes after the first one, which have to be the same on both ranks.
std::uint32_t layout_of(const std::vector<py::ssize_t>& shape) {
  std::string axes;
  for (std::size_t i = 1; i < shape.size(); ++i) axes += fmt::format("{},", shape[i]);
  return static_cast<std::uint32_t>(hash_of(axes));
}

// An array with the number of rows that the bytes hold.
py::object array_of(const Bytes& bytes, collective::DataType type, std::vector<py::ssize_t> shape) {
  std::size_t row = collective::size_of(type);
  for (std::size_t i = 1; i < shape.size(); ++i) row *= static_cast<std::size_t>(shape[i]);
  if (shape.empty()) shape.push_back(0);
  shape[0] = row == 0 ? 0 : static_cast<py::ssize_t>(bytes.size() / row);
  const Array made = make_array(type, std::move(shape));
  if (!bytes.empty()) std::memcpy(made.data, bytes.data(), bytes.size());
  return made.object;
}

std::unique_ptr<Request> start_gather(py::object x, py::object sources, py::object destinations,
                                      const std::string& name) {
  const std::shared_ptr<Neighbors> neighbors = Job::instance().neighbors();
  const Array input = view_of(x, "neighbor_gather");
  NeighborCall call = call_of(input, sources, destinations, name);
  call.layout = layout_of(input.shape);
  const std::shared_ptr<Session> session = Job::instance().session();
  auto gathering = take(released([&] { return neighbors->start_gather(call); }));
  Outcome outcome;
  outcome.memory = {input.keeper};
  outcome.make = [parts = std::move(gathering.result), type = input.type, shape = input.shape] {
    py::list arrays;
    for (const Bytes& part : parts->parts()) arrays.append(array_of(part, type, shape));
    return py::object(std::move(arrays));
  };
  return std::make_unique<Request>(session, std::move(gathering.operation), std::move(outcome));
}

py::object gather(py::object x, py::object sources, py::object destinations,
                  const std::string& name) {
  // If an exception drops the request, the job keeps its memory.
  return start_gather(std::move(x), std::move(sources), std::move(destinations), name)
      ->wait(std::nullopt);
}

// Averages of groups of ranks with neighboring groups.
class Machines {
 public:
  explicit Machines(const std::vector<std::vector<int>>& machines)
      : session_(Job::instance().session()), forks_(Job::instance().forks()) {
    std::vector<std::vector<Rank>> ranks;
    for (const std::vector<int>& machine : machines)
      ranks.emplace_back(machine.begin(), machine.end());
    const Session::Interrupt interrupt = interrupt_of_thread();
    made_ = take(released(
        [&] { return binding::Machines::create(*session_, std::move(ranks), interrupt); }));
  }

  std::unique_ptr<Request> start_average(py::object x, py::object sources, py::object destinations,
                                         double self_weight, const std::string& name,
                                         py::object out) {
    if (forks_ != Job::instance().forks()) raise(binding::closed());
    (void)Job::instance().session();
    Average made(x, sources, destinations, self_weight, name, out, Usable::kHost);
    auto operation = take(released([&] { return made_->start(made.call); }));
    return std::make_unique<Request>(session_, std::move(operation), std::move(made.outcome));
  }
  py::object average(py::object x, py::object sources, py::object destinations, double self_weight,
                     const std::string& name, py::object out) {
    return start_average(std::move(x), std::move(sources), std::move(destinations), self_weight,
                         name, std::move(out))
        ->wait(std::nullopt);
  }

 private:
  std::shared_ptr<Session> session_;
  int forks_;
  std::shared_ptr<binding::Machines> made_;
};

void check_neighbors(py::object sources, py::object destinations) {
  const std::shared_ptr<Session> session = Job::instance().session();
  NeighborCall call;
  call.sources = ranks_of(sources, "sources");
  call.destinations = ranks_of(destinations, "destinations");
  const Session::Interrupt interrupt = interrupt_of_thread();
  check(released([&] { return binding::check_neighbors(*session, call, interrupt); }));
}

}  // namespace

std::vector<WeightedRank> ranks_of(py::handle neighbors, const char* what) {
  std::vector<WeightedRank> ranks;
  if (neighbors.is_none()) return ranks;
  try {
    if (py::isinstance<py::dict>(neighbors)) {
      for (const auto& [rank, weight] : py::reinterpret_borrow<py::dict>(neighbors))
        ranks.push_back({Rank(rank.cast<int>()), weight.cast<double>()});
    } else {
      for (const py::handle rank : neighbors) ranks.push_back({Rank(rank.cast<int>()), 1});
    }
  } catch (const py::cast_error&) {
    throw py::type_error(
        fmt::format("{} has to be a dictionary {{rank: weight}} or a list of ranks", what));
  }
  return ranks;
}

void define_neighbors(py::module_& module) {
  using py::arg;
  const auto none = py::none();
  module.def("neighbor_average", &average, arg("x"), arg("sources") = none,
             arg("destinations") = none, arg("self_weight") = 1.0, arg("name") = "",
             arg("out") = none, arg("on_death") = "raise");
  module.def("start_neighbor_average", &start_average, arg("x"), arg("sources") = none,
             arg("destinations") = none, arg("self_weight") = 1.0, arg("name") = "",
             arg("out") = none, arg("on_death") = "raise");
  module.def("neighbor_gather", &gather, arg("x"), arg("sources") = none,
             arg("destinations") = none, arg("name") = "");
  module.def("start_neighbor_gather", &start_gather, arg("x"), arg("sources") = none,
             arg("destinations") = none, arg("name") = "");
  module.def("check_neighbors", &check_neighbors, arg("sources") = none,
             arg("destinations") = none);
  py::class_<Machines>(
      module, "Machines",
      "Groups of ranks that average with neighboring groups.\n\n"
      "Machines([[0, 1], [2, 3]]) has two groups of two ranks. All groups have the same\n"
      "size. Collective over all ranks, with the same argument. Lasts until shutdown().")
      .def(py::init<const std::vector<std::vector<int>>&>(), arg("machines"))
      .def(
          "average", &Machines::average, arg("x"), arg("sources") = none,
          arg("destinations") = none, arg("self_weight") = 1.0, arg("name") = "", arg("out") = none,
          "neighbor_average() of machines: x of a machine is the average of its ranks' x.\n\n"
          "Sources and destinations are numbers of machines. All ranks of a machine make the same\n"
          "calls in the same order, and get bitwise the same result. Calls are matched by name.")
      .def("start_average", &Machines::start_average, arg("x"), arg("sources") = none,
           arg("destinations") = none, arg("self_weight") = 1.0, arg("name") = "",
           arg("out") = none, "Starts average() and returns a Request at once.");
}

}  // namespace dunlin::python
