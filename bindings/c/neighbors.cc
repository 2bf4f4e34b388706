// Neighbors, windows and mutexes of the C interface.
#include <optional>
#include <span>
#include <utility>

#include "bindings/c/internal.h"
#include "bindings/session/agreement.h"

using dunlin::Code;
using dunlin::Rank;
using dunlin::Result;
using dunlin::Status;
using dunlin::binding::Mutex;
using dunlin::binding::NeighborGather;
using dunlin::binding::SessionOperation;
using dunlin::binding::WeightedPeer;
using dunlin::binding::Window;
using dunlin::c::guarded;
using dunlin::c::timeout_of;
using dunlin::collective::LockOutcome;
using dunlin::collective::NeighborCall;
using dunlin::collective::WeightedRank;

struct dunlin_gathered {
  std::shared_ptr<NeighborGather> result;
  std::size_t element;  // bytes
};

namespace {

template <typename Weighted>
std::vector<Weighted> list_of(const dunlin_neighbor* ranks, size_t count) {
  std::vector<Weighted> list;
  for (const dunlin_neighbor& each : std::span(ranks, ranks == nullptr ? 0 : count))
    list.push_back({Rank(each.rank), each.weight});
  return list;
}

struct Lists {
  const dunlin_neighbor* sources;
  size_t source_count;
  const dunlin_neighbor* destinations;
  size_t destination_count;
};

NeighborCall call_of(const char* name, const Lists& lists) {
  NeighborCall call;
  call.name = name == nullptr ? "" : name;
  call.sources = list_of<WeightedRank>(lists.sources, lists.source_count);
  call.destinations = list_of<WeightedRank>(lists.destinations, lists.destination_count);
  return call;
}

struct Tensor {
  const void* input;
  size_t count;
  dunlin_data_type type;
};

Result<NeighborCall> call_of(const char* name, const Tensor& tensor, const Lists& lists) {
  NeighborCall call = call_of(name, lists);
  DUNLIN_ASSIGN(call.type, dunlin::c::type_of(tensor.type));
  call.input = tensor.input;
  call.count = tensor.count;
  return call;
}

Status start_gather(dunlin_job* job, const NeighborCall& call,
                    std::unique_ptr<dunlin_gathered>& gathered,
                    std::shared_ptr<SessionOperation>& operation) {
  DUNLIN_ASSIGN(auto made, job->neighbors->start_gather(call));
  gathered.reset(new dunlin_gathered{std::move(made.result), size_of(call.type)});
  operation = std::move(made.operation);
  return Status::ok();
}

// Removes a handle from the job's list, and frees it.
template <typename Handle>
Status drop(dunlin_job* job, std::vector<std::unique_ptr<Handle>>& handles, Handle* handle,
            Status status) {
  if (!status.is_ok() && status.code() != Code::kPeerDead) return status;
  const std::lock_guard guard(job->mutex);
  std::erase_if(handles, [&](const auto& each) { return each.get() == handle; });
  return status;
}

dunlin_code deposit(dunlin_window* window, const dunlin_neighbor* destinations, size_t count,
                    double self_weight, decltype(&Window::put) how) {
  return guarded([&] {
    const auto named = list_of<WeightedPeer>(destinations, count);
    std::optional<std::span<const WeightedPeer>> to;
    if (destinations != nullptr) to = named;
    return ((*window->window).*how)(to, self_weight);
  });
}

dunlin_code create_window(dunlin_job* job, std::optional<int> gpu, const char* name,
                          const void* initial, size_t count, dunlin_data_type type, int is_zeroed,
                          std::span<const dunlin_neighbor> sources,
                          std::span<const dunlin_neighbor> destinations, dunlin_window** window) {
  return guarded([&]() -> Status {
    Window::Options options;
    options.name = name;
    options.sources = list_of<WeightedRank>(sources.data(), sources.size());
    for (const auto& to : list_of<WeightedRank>(destinations.data(), destinations.size()))
      options.destinations.push_back(to.rank);
    const auto known = dunlin::c::type_of(type);
    if (known) options.type = *known;
    options.count = count;
    options.is_zeroed = is_zeroed != 0;
    options.gpu = gpu;
    auto made = std::make_unique<dunlin_window>();
    made->job = job;
    DUNLIN_ASSIGN(made->window,
                  Window::create(*job->session, std::move(options), initial, {}, known.status()));
    const std::lock_guard guard(job->mutex);
    *window = job->windows.emplace_back(std::move(made)).get();
    return Status::ok();
  });
}

}  // namespace

dunlin_code dunlin_check_neighbors(dunlin_job* job, const dunlin_neighbor* sources,
                                   size_t source_count, const dunlin_neighbor* destinations,
                                   size_t destination_count) {
  return guarded([&] {
    return dunlin::binding::check_neighbors(
        *job->session, call_of("", {sources, source_count, destinations, destination_count}), {});
  });
}

dunlin_code dunlin_neighbor_average(dunlin_job* job, const char* name, const void* input,
                                    void* output, size_t count, dunlin_data_type type,
                                    double self_weight, const dunlin_neighbor* sources,
                                    size_t source_count, const dunlin_neighbor* destinations,
                                    size_t destination_count) {
  return guarded([&]() -> Status {
    DUNLIN_ASSIGN(NeighborCall call,
                  call_of(name, {input, count, type},
                          {sources, source_count, destinations, destination_count}));
    call.output = output;
    call.self_weight = self_weight;
    return job->neighbors->average(call, {}, nullptr);
  });
}

dunlin_code dunlin_start_neighbor_average(dunlin_job* job, const char* name, const void* input,
                                          void* output, size_t count, dunlin_data_type type,
                                          double self_weight, const dunlin_neighbor* sources,
                                          size_t source_count, const dunlin_neighbor* destinations,
                                          size_t destination_count, dunlin_request** request) {
  return guarded([&]() -> Status {
    DUNLIN_ASSIGN(NeighborCall call,
                  call_of(name, {input, count, type},
                          {sources, source_count, destinations, destination_count}));
    call.output = output;
    call.self_weight = self_weight;
    DUNLIN_ASSIGN(auto operation, job->neighbors->start(call));
    *request = new dunlin_request{job->session.get(), std::move(operation)};
    return Status::ok();
  });
}

dunlin_code dunlin_neighbor_gather(dunlin_job* job, const char* name, const void* input,
                                   size_t count, dunlin_data_type type,
                                   const dunlin_neighbor* sources, size_t source_count,
                                   const dunlin_neighbor* destinations, size_t destination_count,
                                   dunlin_gathered** gathered) {
  return guarded([&]() -> Status {
    DUNLIN_ASSIGN(const NeighborCall call,
                  call_of(name, {input, count, type},
                          {sources, source_count, destinations, destination_count}));
    std::unique_ptr<dunlin_gathered> made;
    std::shared_ptr<SessionOperation> operation;
    DUNLIN_TRY(start_gather(job, call, made, operation));
    DUNLIN_TRY(job->session->wait(operation, job->session->config().deadline, {}));
    *gathered = made.release();
    return Status::ok();
  });
}

dunlin_code dunlin_start_neighbor_gather(dunlin_job* job, const char* name, const void* input,
                                         size_t count, dunlin_data_type type,
                                         const dunlin_neighbor* sources, size_t source_count,
                                         const dunlin_neighbor* destinations,
                                         size_t destination_count, dunlin_gathered** gathered,
                                         dunlin_request** request) {
  return guarded([&]() -> Status {
    DUNLIN_ASSIGN(const NeighborCall call,
                  call_of(name, {input, count, type},
                          {sources, source_count, destinations, destination_count}));
    std::unique_ptr<dunlin_gathered> made;
    std::shared_ptr<SessionOperation> operation;
    DUNLIN_TRY(start_gather(job, call, made, operation));
    *request = new dunlin_request{job->session.get(), std::move(operation)};
    *gathered = made.release();
    return Status::ok();
  });
}

size_t dunlin_gathered_count(const dunlin_gathered* gathered, size_t source) {
  return gathered->result->parts()[source].size() / gathered->element;
}

const void* dunlin_gathered_data(const dunlin_gathered* gathered, size_t source) {
  return gathered->result->parts()[source].data();
}

void dunlin_gathered_free(dunlin_gathered* gathered) {
  delete gathered;
}

dunlin_code dunlin_window_create(dunlin_job* job, const char* name, const void* initial,
                                 size_t count, dunlin_data_type type, int is_zeroed,
                                 const dunlin_neighbor* sources, size_t source_count,
                                 const dunlin_neighbor* destinations, size_t destination_count,
                                 dunlin_window** window) {
  return create_window(job, {}, name, initial, count, type, is_zeroed, {sources, source_count},
                       {destinations, destination_count}, window);
}

dunlin_code dunlin_window_create_on_gpu(dunlin_job* job, const char* name, int gpu,
                                        const void* initial, size_t count, dunlin_data_type type,
                                        int is_zeroed, const dunlin_neighbor* sources,
                                        size_t source_count, const dunlin_neighbor* destinations,
                                        size_t destination_count, dunlin_window** window) {
  return create_window(job, gpu, name, initial, count, type, is_zeroed, {sources, source_count},
                       {destinations, destination_count}, window);
}

dunlin_code dunlin_window_free(dunlin_window* window) {
  return guarded(
      [&] { return drop(window->job, window->job->windows, window, window->window->free({})); });
}

void* dunlin_window_tensor(const dunlin_window* window) {
  return window->window->tensor().bytes.data();
}

dunlin_code dunlin_window_get_p(dunlin_window* window, double* p) {
  return guarded([&]() -> Status {
    DUNLIN_ASSIGN(*p, window->window->p());
    return Status::ok();
  });
}

dunlin_code dunlin_window_set_p(dunlin_window* window, double p) {
  return guarded([&] { return window->window->set_p(p); });
}

dunlin_code dunlin_window_put(dunlin_window* window, const dunlin_neighbor* destinations,
                              size_t destination_count, double self_weight) {
  return deposit(window, destinations, destination_count, self_weight, &Window::put);
}

dunlin_code dunlin_window_accumulate(dunlin_window* window, const dunlin_neighbor* destinations,
                                     size_t destination_count, double self_weight) {
  return deposit(window, destinations, destination_count, self_weight, &Window::accumulate);
}

dunlin_code dunlin_window_flush(dunlin_window* window, double timeout_seconds) {
  return guarded([&] {
    return window->window->flush(timeout_of(*window->job->session, timeout_seconds), {});
  });
}

dunlin_code dunlin_window_publish(dunlin_window* window) {
  return guarded([&] { return window->window->publish(); });
}

dunlin_code dunlin_window_get(dunlin_window* window, const dunlin_neighbor* sources,
                              size_t source_count, double timeout_seconds) {
  return guarded([&] {
    return window->window->get(list_of<WeightedPeer>(sources, source_count),
                               timeout_of(*window->job->session, timeout_seconds), {});
  });
}

dunlin_code dunlin_window_update(dunlin_window* window, double self_weight,
                                 const dunlin_neighbor* sources, size_t source_count, int reset,
                                 void* output) {
  return guarded([&] {
    auto from = list_of<WeightedPeer>(sources, source_count);
    if (sources == nullptr) {
      for (const auto& [rank, weight] : window->window->options().sources)
        from.push_back({rank, weight});
    }
    return window->window->update({self_weight, from, reset != 0, output}).status();
  });
}

dunlin_code dunlin_window_collect(dunlin_window* window) {
  return guarded([&] {
    std::vector<WeightedPeer> from;
    for (const auto& each : window->window->options().sources) from.push_back({each.rank, 1});
    return window->window->update({1, from, true}).status();
  });
}

dunlin_code dunlin_window_buffer(dunlin_window* window, int source, void* output, double* p,
                                 uint64_t* deposits) {
  return guarded([&]() -> Status {
    DUNLIN_ASSIGN(const Window::Buffer buffer, window->window->buffer(Rank(source), output));
    if (p != nullptr) *p = buffer.p;
    if (deposits != nullptr) *deposits = buffer.version;
    return Status::ok();
  });
}

dunlin_code dunlin_mutex_create(dunlin_job* job, const char* name, int owner_rank,
                                dunlin_mutex** mutex) {
  return guarded([&]() -> Status {
    auto made = std::make_unique<dunlin_mutex>();
    made->job = job;
    DUNLIN_ASSIGN(made->mutex, Mutex::create(*job->session, name, Rank(owner_rank), {}));
    const std::lock_guard guard(job->mutex);
    *mutex = job->mutexes.emplace_back(std::move(made)).get();
    return Status::ok();
  });
}

dunlin_code dunlin_mutex_free(dunlin_mutex* mutex) {
  return guarded(
      [&] { return drop(mutex->job, mutex->job->mutexes, mutex, mutex->mutex->free({})); });
}

dunlin_code dunlin_mutex_lock(dunlin_mutex* mutex, double timeout_seconds, int* has_holder_died) {
  return guarded([&]() -> Status {
    DUNLIN_ASSIGN(const LockOutcome outcome,
                  mutex->mutex->lock(timeout_of(*mutex->job->session, timeout_seconds), {}));
    if (has_holder_died != nullptr) *has_holder_died = outcome == LockOutcome::kLockedAfterDeath;
    return Status::ok();
  });
}

dunlin_code dunlin_mutex_unlock(dunlin_mutex* mutex) {
  return guarded([&] { return mutex->mutex->unlock({}); });
}
