#include "bindings/python/windows.h"

#include "bindings/session/windows.h"

#include <fmt/format.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings/python/array.h"
#include "bindings/python/gpu_array.h"
#include "bindings/python/gpu_memory.h"
#include "bindings/python/job.h"
#include "bindings/python/neighbors.h"
#include "bindings/session/mutexes.h"
#include "runtime/overlap.h"

namespace dunlin::python {

namespace py = pybind11;
using binding::Session;
using binding::WeightedPeer;
using collective::DepositKind;
using collective::WeightedRank;

namespace {

std::vector<WeightedPeer> peers_of(py::handle ranks, const char* what) {
  std::vector<WeightedPeer> peers;
  for (const auto& [rank, weight] : ranks_of(ranks, what)) peers.push_back({rank, weight});
  return peers;
}

std::vector<int> numbers_of(const std::vector<WeightedRank>& ranks) {
  std::vector<int> numbers;
  for (const WeightedRank& each : ranks) numbers.push_back(each.rank.value());
  return numbers;
}

class Window {
 public:
  Window(py::object x, py::object sources, py::object destinations, const std::string& name,
         bool zero_init)
      : session_(Job::instance().session()) {
    binding::Window::Options options;
    options.name = name;
    options.is_zeroed = zero_init;
    Array input;
    const auto read = [&] {
      input = view_of(x, "Window", Usable::kHostAndGpu);
      await_ready(input, "Window");
      options.sources = ranks_of(sources, "sources");
      for (const WeightedRank& to : ranks_of(destinations, "destinations"))
        options.destinations.push_back(to.rank);
    };
    const Session::Interrupt interrupt = interrupt_of_thread();
    const auto create = [&](Status mistake) {
      return released([&] {
        return binding::Window::create(*session_, options, input.data, interrupt,
                                       std::move(mistake));
      });
    };
    try {
      read();
    } catch (...) {
      // The other ranks hear of it, so that they don't wait in vain.
      (void)create({Code::kInvalidArgument, "an argument is wrong"});
      throw;
    }
    shape_ = input.shape;
    uniform_ = 1.0 / static_cast<double>(options.sources.size() + 1);
    if (!py::isinstance<py::dict>(sources)) {
      for (WeightedRank& from : options.sources) from.weight = uniform_;
    }
    for (const auto& [rank, weight] : options.sources) defaults_.push_back({rank, weight});
    options.type = input.type;
    options.count = input.count;
    options.gpu = input.gpu;
    window_ = take(create({}));
    const auto& [bytes, owner] = window_->tensor();
    if (input.gpu) {
      tensor_ =
          py::cast(std::make_unique<GpuArray>(input.type, shape_, *input.gpu, owner, bytes.data()));
      return;
    }
    using Owner = std::shared_ptr<MemoryRegion>;
    const py::capsule keeper(new Owner(owner),
                             [](void* kept) { delete static_cast<Owner*>(kept); });
    tensor_ = array_over(py::dtype(to_string(input.type)), shape_, bytes.data(), keeper);
  }

  const std::string& name() const { return window_->options().name; }
  const py::object& tensor() const { return tensor_; }
  std::vector<int> sources() const { return numbers_of(window_->options().sources); }
  std::vector<int> destinations() const {
    std::vector<int> numbers;
    for (const Rank to : window_->options().destinations) numbers.push_back(to.value());
    return numbers;
  }
  double p() {
    check_job(session_);
    return take(released([&] { return window_->p(); }));
  }
  void set_p(double p) {
    check_job(session_);
    check(released([&] { return window_->set_p(p); }));
  }
  void publish() {
    check_job(session_);
    check(released([&] { return window_->publish(); }));
  }

  void put(py::object destinations, double self_weight) {
    deposit(DepositKind::kPut, destinations, self_weight);
  }
  void accumulate(py::object destinations, double self_weight) {
    deposit(DepositKind::kAccumulate, destinations, self_weight);
  }
  void flush(std::optional<double> timeout) {
    check_job(session_);
    const Duration longest = duration(timeout);
    const Session::Interrupt interrupt = interrupt_of_thread();
    check(released([&] { return window_->flush(longest, interrupt); }));
  }
  void get(py::object sources, std::optional<double> timeout) {
    check_job(session_);
    const Duration longest = duration(timeout);
    std::vector<WeightedPeer> from = defaults_;
    for (WeightedPeer& each : from) each.weight = 1;
    if (!sources.is_none()) from = peers_of(sources, "sources");
    const Session::Interrupt interrupt = interrupt_of_thread();
    check(released([&] { return window_->get(from, longest, interrupt); }));
  }

  py::object update(std::optional<double> self_weight, py::object sources, bool reset,
                    py::object out) {
    std::vector<WeightedPeer> from = defaults_;
    if (!sources.is_none()) from = peers_of(sources, "sources");
    return combine(self_weight.value_or(uniform_), from, reset, out);
  }
  py::object update_then_collect() {
    std::vector<WeightedPeer> from = defaults_;
    for (WeightedPeer& each : from) each.weight = 1;
    return combine(1, from, true, py::none());
  }

  py::dict versions() {
    check_job(session_);
    py::dict versions;
    for (const WeightedPeer& each : defaults_) {
      const auto buffer = take(released([&] { return window_->buffer(each.peer, nullptr); }));
      versions[py::int_(each.peer.value())] = buffer.version;
    }
    return versions;
  }
  py::object buffer(int rank) {
    check_job(session_);
    const binding::Window::Options& options = window_->options();
    const Array copy = options.gpu ? make_gpu_array(options.type, shape_, *options.gpu, "buffer")
                                   : make_array(options.type, shape_);
    (void)take(released([&] { return window_->buffer(Rank(rank), copy.data); }));
    return copy.object;
  }
  double buffer_p(int rank) {
    check_job(session_);
    return take(released([&] { return window_->buffer(Rank(rank), nullptr); })).p;
  }
  void free() {
    check_job(session_);
    const Session::Interrupt interrupt = interrupt_of_thread();
    check(released([&] { return window_->free(interrupt); }));
  }

 private:
  Duration duration(std::optional<double> timeout) const {
    return to_duration(timeout).value_or(session_->config().deadline);
  }
  void deposit(DepositKind kind, py::handle destinations, double self_weight) {
    check_job(session_);
    std::vector<WeightedPeer> named;
    std::optional<std::span<const WeightedPeer>> to;
    if (!destinations.is_none()) to = named = peers_of(destinations, "destinations");
    check(released([&] {
      return kind == DepositKind::kPut ? window_->put(to, self_weight)
                                       : window_->accumulate(to, self_weight);
    }));
  }
  py::object combine(double self_weight, const std::vector<WeightedPeer>& from, bool reset,
                     py::handle out) {
    check_job(session_);
    binding::Window::Update what{self_weight, from, reset};
    Array result;
    if (!out.is_none()) {
      Array own;
      own.type = window_->options().type;
      own.gpu = window_->options().gpu;
      result = output_for(own, shape_, out);
      await_ready(result, "out");
      const std::span<std::byte> tensor = window_->tensor().bytes;
      if (dunlin::overlap(result.data, result.bytes(), tensor.data(), tensor.size()))
        raise(Status(Code::kInvalidArgument,
                     "out overlaps the tensor; use None for a result in the tensor"));
      what.result = result.data;
    }
    (void)take(released([&] { return window_->update(what); }));
    return out.is_none() ? tensor_ : result.object;
  }

  std::shared_ptr<Session> session_;
  std::shared_ptr<binding::Window> window_;
  std::vector<py::ssize_t> shape_;
  py::object tensor_;                   // a NumPy array, or a GpuArray
  double uniform_ = 1;                  // the weight of self and each source if none is given
  std::vector<WeightedPeer> defaults_;  // of update()
};

class Mutex {
 public:
  Mutex(const std::string& name, int owner) : session_(Job::instance().session()) {
    const Session::Interrupt interrupt = interrupt_of_thread();
    mutex_ = take(
        released([&] { return binding::Mutex::create(*session_, name, Rank(owner), interrupt); }));
  }
  const std::string& name() const { return mutex_->name(); }
  bool lock(std::optional<double> timeout) {
    check_job(session_);
    const Duration longest = to_duration(timeout).value_or(session_->config().deadline);
    const Session::Interrupt interrupt = interrupt_of_thread();
    const auto outcome = take(released([&] { return mutex_->lock(longest, interrupt); }));
    return outcome == collective::LockOutcome::kLockedAfterDeath;
  }
  void unlock() {
    check_job(session_);
    const Session::Interrupt interrupt = interrupt_of_thread();
    check(released([&] { return mutex_->unlock(interrupt); }));
  }
  void free() {
    check_job(session_);
    const Session::Interrupt interrupt = interrupt_of_thread();
    check(released([&] { return mutex_->free(interrupt); }));
  }

 private:
  std::shared_ptr<Session> session_;
  std::shared_ptr<binding::Mutex> mutex_;
};

// A mutex for each ordered pair of different ranks, between these two alone. Its memory is the
// first one's. This rank knows those pairs that it is one of.
class PairMutexes {
 public:
  explicit PairMutexes(std::string set_name)
      : session_(Job::instance().session()), name_(std::move(set_name)) {
    std::vector<binding::Mutex::Plan> plans;
    std::vector<Pair> pairs;
    const int self = session_->job().rank.value();
    for (int other = 0; other < session_->job().size; ++other) {
      if (other == self) continue;
      const std::vector<Rank> members = {Rank(std::min(self, other)), Rank(std::max(self, other))};
      for (const Pair& pair : {Pair(self, other), Pair(other, self)}) {
        const std::string name = fmt::format("{} {} {}", name_, pair.first, pair.second);
        plans.push_back({name, Rank(pair.first), members});
        pairs.push_back(pair);
      }
    }
    const Session::Interrupt interrupt = interrupt_of_thread();
    set_ =
        take(released([&] { return binding::Mutex::create(*session_, name_, plans, interrupt); }));
    for (std::size_t i = 0; i < pairs.size(); ++i) places_[pairs[i]] = set_[i];
  }

  bool lock(int owner, int other, std::optional<double> timeout) {
    binding::Mutex& mutex = at(owner, other);
    const Duration longest = to_duration(timeout).value_or(session_->config().deadline);
    const Session::Interrupt interrupt = interrupt_of_thread();
    const auto outcome = take(released([&] { return mutex.lock(longest, interrupt); }));
    return outcome == collective::LockOutcome::kLockedAfterDeath;
  }
  void unlock(int owner, int other) {
    binding::Mutex& mutex = at(owner, other);
    const Session::Interrupt interrupt = interrupt_of_thread();
    check(released([&] { return mutex.unlock(interrupt); }));
  }
  void free() {
    check_job(session_);
    const Session::Interrupt interrupt = interrupt_of_thread();
    check(released([&] { return binding::Mutex::free(*session_, name_, set_, interrupt); }));
  }

 private:
  using Pair = std::pair<int, int>;  // owner rank, the other rank

  binding::Mutex& at(int owner, int other) {
    check_job(session_);
    const auto found = places_.find({owner, other});
    if (found != places_.end()) return *found->second;
    throw py::value_error(
        fmt::format("rank {} is not one of the ranks {} and {}, which must differ",
                    session_->job().rank.value(), owner, other));
  }

  std::shared_ptr<Session> session_;
  std::string name_;
  binding::Mutex::Set set_;
  std::map<Pair, std::shared_ptr<binding::Mutex>> places_;
};

}  // namespace

void define_windows(py::module_& module) {
  using py::arg;
  const auto none = py::none();
  py::class_<Window>(module, "Window")
      .def(py::init<py::object, py::object, py::object, const std::string&, bool>(), arg("x"),
           arg("sources"), arg("destinations"), arg("name") = "window", arg("zero_init") = false)
      .def_property_readonly("name", &Window::name)
      .def_property_readonly("tensor", &Window::tensor)
      .def_property_readonly("sources", &Window::sources)
      .def_property_readonly("destinations", &Window::destinations)
      .def_property("p", &Window::p, &Window::set_p)
      .def("publish", &Window::publish)
      .def("put", &Window::put, arg("destinations") = none, arg("self_weight") = 1.0)
      .def("accumulate", &Window::accumulate, arg("destinations") = none, arg("self_weight") = 1.0)
      .def("flush", &Window::flush, arg("timeout") = none)
      .def("get", &Window::get, arg("sources") = none, arg("timeout") = none)
      .def("update", &Window::update, arg("self_weight") = none, arg("sources") = none,
           arg("reset") = false, arg("out") = none)
      .def("update_then_collect", &Window::update_then_collect)
      .def("versions", &Window::versions)
      .def("buffer", &Window::buffer, arg("rank"))
      .def("buffer_p", &Window::buffer_p, arg("rank"))
      .def("free", &Window::free);
}

void define_mutexes(py::module_& module) {
  using py::arg;
  py::class_<Mutex>(module, "Mutex")
      .def(py::init<const std::string&, int>(), arg("name"), arg("owner_rank") = 0)
      .def_property_readonly("name", &Mutex::name)
      .def("lock", &Mutex::lock, arg("timeout") = py::none())
      .def("unlock", &Mutex::unlock)
      .def("free", &Mutex::free);
  py::class_<PairMutexes>(module, "PairMutexes")
      .def(py::init<std::string>(), arg("name"))
      .def("lock", &PairMutexes::lock, arg("owner_rank"), arg("other_rank"),
           arg("timeout") = py::none())
      .def("unlock", &PairMutexes::unlock, arg("owner_rank"), arg("other_rank"))
      .def("free", &PairMutexes::free);
}

}  // namespace dunlin::python
