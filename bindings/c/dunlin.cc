#include "bindings/c/dunlin.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "bindings/c/internal.h"

using dunlin::Code;
using dunlin::Duration;
using dunlin::Result;
using dunlin::Status;
using dunlin::binding::CommunicatorHandle;
using dunlin::binding::Ending;
using dunlin::binding::Session;
using dunlin::c::guarded;
using dunlin::collective::Call;
using dunlin::collective::Collective;
using dunlin::collective::DataType;
using dunlin::collective::ReduceOp;
using dunlin::collective::Reduction;

namespace {

static_assert(DUNLIN_INTERNAL == static_cast<int>(Code::kInternal));
static_assert(DUNLIN_PEER_DEAD == static_cast<int>(Code::kPeerDead));
static_assert(DUNLIN_FLOAT64 == static_cast<int>(DataType::kFloat64));
static_assert(DUNLIN_BFLOAT16 == static_cast<int>(DataType::kBfloat16));
static_assert(DUNLIN_AVERAGE == static_cast<int>(ReduceOp::kAverage));

struct LastError {
  std::string text;
  int peer = -1;
};

LastError& last_error() {
  thread_local LastError error;
  return error;
}

std::string& next_name() {
  thread_local std::string name;
  return name;
}

// A call with types that are not checked yet. It takes the name that the thread has given.
struct Wanted {
  Collective collective;
  const void* input;
  void* output;
  size_t count;
  dunlin_data_type type = DUNLIN_UINT8;
  dunlin_op op = DUNLIN_SUM;
  int root = 0;
  std::string name = dunlin::c::take_next_name();
};

Result<Call> call_of(const Wanted& wanted) {
  DUNLIN_ASSIGN(const Reduction reduction, dunlin::c::reduction_of(wanted.type, wanted.op));
  Call call{wanted.collective, wanted.input, wanted.output, wanted.count, reduction, wanted.root};
  call.name = wanted.name;
  return call;
}

dunlin_code run(dunlin_communicator* communicator, const Wanted& wanted) {
  return guarded([&]() -> Status {
    DUNLIN_ASSIGN(const Call call, call_of(wanted));
    return communicator->job->session->run(communicator->handle, call, {});
  });
}

dunlin_code start(dunlin_communicator* communicator, const Wanted& wanted,
                  dunlin_request** request) {
  return guarded([&]() -> Status {
    DUNLIN_ASSIGN(const Call call, call_of(wanted));
    Session& session = *communicator->job->session;
    auto made = std::make_unique<dunlin_request>();
    made->session = &session;
    DUNLIN_ASSIGN(made->operation, session.start(communicator->handle, call, {}));
    *request = made.release();
    return Status::ok();
  });
}

// Frees the request if its operation is over.
Status finish(dunlin_request** request, Status status) {
  if (!(*request)->operation->is_over()) return status;
  delete std::exchange(*request, nullptr);
  return status;
}

dunlin_code end(dunlin_job* job, Ending ending) {
  return guarded([&]() -> Status {
    const std::unique_ptr<dunlin_job> owned(job);
    return owned->session->shutdown(ending, owned->session->config().deadline);
  });
}

// Gives the caller a communicator that the job owns.
Status add_part(dunlin_job* job, Result<CommunicatorHandle> handle, dunlin_communicator** part) {
  auto made = std::make_unique<dunlin_communicator>();
  made->job = job;
  DUNLIN_ASSIGN(made->handle, std::move(handle));
  const std::lock_guard guard(job->mutex);
  *part = job->parts.emplace_back(std::move(made)).get();
  return Status::ok();
}

}  // namespace

namespace dunlin::c {

dunlin_code report(const Status& status) {
  if (status.is_error()) {
    last_error().text = status.message();
    last_error().peer = status.peer() ? status.peer()->value() : -1;
  }
  return static_cast<dunlin_code>(status.code());
}

dunlin_code report_exhausted() {
  last_error() = {};
  return DUNLIN_RESOURCE_EXHAUSTED;
}

std::string take_next_name() {
  return std::exchange(next_name(), {});
}

Duration timeout_of(Duration deadline, double seconds) {
  constexpr double kLongest = 1e9;  // beyond any sensible wait
  if (!(seconds >= 0)) return deadline;
  return std::chrono::duration_cast<Duration>(
      std::chrono::duration<double>(std::min(seconds, kLongest)));
}

Result<DataType> type_of(dunlin_data_type type) {
  if (static_cast<unsigned>(type) > DUNLIN_FLOAT64)
    return Status(Code::kInvalidArgument, "no such dunlin_data_type");
  return static_cast<DataType>(type);
}

Result<Reduction> reduction_of(dunlin_data_type type, dunlin_op op) {
  DUNLIN_ASSIGN(const DataType known, type_of(type));
  if (static_cast<unsigned>(op) > DUNLIN_AVERAGE)
    return Status(Code::kInvalidArgument, "no such dunlin_op");
  return Reduction{known, static_cast<ReduceOp>(op)};
}

}  // namespace dunlin::c

const char* dunlin_last_error(void) {
  return last_error().text.c_str();
}

int dunlin_last_error_peer(void) {
  return last_error().peer;
}

const char* dunlin_code_name(dunlin_code code) {
  return static_cast<unsigned>(code) > DUNLIN_INTERNAL ? "unknown"
                                                       : dunlin::to_string(static_cast<Code>(code));
}

dunlin_code dunlin_init(const dunlin_options* options, dunlin_job** job) {
  return guarded([&]() -> Status {
    auto made = std::make_unique<dunlin_job>();
    const bool has_thread = options == nullptr || options->background_progress != 0;
    DUNLIN_ASSIGN(made->session, Session::create({.background_progress = has_thread}));
    if (made->session->is_newcomer())
      return {Code::kUnavailable, "programs in C cannot join a running job"};
    DUNLIN_ASSIGN(made->neighbors, dunlin::binding::Neighbors::create(*made->session, "world"));
    DUNLIN_ASSIGN(made->partial, dunlin::binding::PartialReduces::create(*made->session));
    made->world = {made.get(), made->session->world()};
    *job = made.release();
    return Status::ok();
  });
}

dunlin_code dunlin_finalize(dunlin_job* job) {
  return end(job, Ending::kTogether);
}

void dunlin_leave(dunlin_job* job) {
  (void)end(job, Ending::kAlone);
}

int dunlin_local_rank(const dunlin_job* job) {
  return job->session->job().local_rank;
}

int dunlin_local_size(const dunlin_job* job) {
  return job->session->job().local_size;
}

dunlin_communicator* dunlin_world(dunlin_job* job) {
  return &job->world;
}

int dunlin_rank(const dunlin_communicator* communicator) {
  return communicator->handle->rank;
}

int dunlin_size(const dunlin_communicator* communicator) {
  return communicator->handle->size;
}

dunlin_code dunlin_split(dunlin_communicator* communicator, int color, int key,
                         dunlin_communicator** part) {
  return guarded([&] {
    dunlin_job* const job = communicator->job;
    return add_part(job, job->session->split(communicator->handle, color, key), part);
  });
}

dunlin_code dunlin_on_gpu(dunlin_job* job, int gpu, dunlin_communicator** communicator) {
  return guarded([&] { return add_part(job, job->session->on_gpu(gpu), communicator); });
}

dunlin_code dunlin_release(dunlin_communicator* communicator) {
  return guarded([&]() -> Status {
    dunlin_job* const job = communicator->job;
    DUNLIN_TRY(job->session->release(communicator->handle, {}));
    const std::lock_guard guard(job->mutex);
    std::erase_if(job->parts, [&](const auto& part) { return part.get() == communicator; });
    return Status::ok();
  });
}

dunlin_code dunlin_allocate(dunlin_communicator* communicator, size_t bytes, void** memory) {
  return guarded([&]() -> Status {
    DUNLIN_ASSIGN(const auto made,
                  communicator->job->session->allocate(communicator->handle, bytes, {}));
    *memory = made.bytes.data();
    return Status::ok();
  });
}

dunlin_code dunlin_free(dunlin_communicator* communicator, void* memory) {
  return guarded([&] {
    return communicator->job->session->free(communicator->handle,
                                            {static_cast<std::byte*>(memory), 0}, {});
  });
}

dunlin_code dunlin_all_reduce(dunlin_communicator* communicator, const void* input, void* output,
                              size_t count, dunlin_data_type type, dunlin_op op) {
  return run(communicator, {Collective::kAllReduce, input, output, count, type, op});
}

dunlin_code dunlin_reduce(dunlin_communicator* communicator, const void* input, void* output,
                          size_t count, dunlin_data_type type, dunlin_op op, int root) {
  return run(communicator, {Collective::kReduce, input, output, count, type, op, root});
}

dunlin_code dunlin_broadcast(dunlin_communicator* communicator, void* buffer, size_t count,
                             dunlin_data_type type, int root) {
  return run(communicator, {Collective::kBroadcast, buffer, buffer, count, type, DUNLIN_SUM, root});
}

dunlin_code dunlin_reduce_scatter(dunlin_communicator* communicator, const void* input,
                                  void* output, size_t count, dunlin_data_type type, dunlin_op op) {
  return run(communicator, {Collective::kReduceScatter, input, output, count, type, op});
}

dunlin_code dunlin_all_gather(dunlin_communicator* communicator, const void* input, void* output,
                              size_t count, dunlin_data_type type) {
  return run(communicator, {Collective::kAllGather, input, output, count, type});
}

dunlin_code dunlin_all_to_all(dunlin_communicator* communicator, const void* input, void* output,
                              size_t count, dunlin_data_type type) {
  return run(communicator, {Collective::kAllToAll, input, output, count, type});
}

dunlin_code dunlin_barrier(dunlin_communicator* communicator) {
  return run(communicator, {Collective::kBarrier, nullptr, nullptr, 0});
}

dunlin_code dunlin_name_next(const char* name) {
  return guarded([&] {
    next_name() = name == nullptr ? "" : name;
    return Status::ok();
  });
}

dunlin_code dunlin_start_all_reduce(dunlin_communicator* communicator, const void* input,
                                    void* output, size_t count, dunlin_data_type type, dunlin_op op,
                                    dunlin_request** request) {
  return start(communicator, {Collective::kAllReduce, input, output, count, type, op}, request);
}

dunlin_code dunlin_start_reduce(dunlin_communicator* communicator, const void* input, void* output,
                                size_t count, dunlin_data_type type, dunlin_op op, int root,
                                dunlin_request** request) {
  return start(communicator, {Collective::kReduce, input, output, count, type, op, root}, request);
}

dunlin_code dunlin_start_broadcast(dunlin_communicator* communicator, void* buffer, size_t count,
                                   dunlin_data_type type, int root, dunlin_request** request) {
  return start(communicator,
               {Collective::kBroadcast, buffer, buffer, count, type, DUNLIN_SUM, root}, request);
}

dunlin_code dunlin_start_reduce_scatter(dunlin_communicator* communicator, const void* input,
                                        void* output, size_t count, dunlin_data_type type,
                                        dunlin_op op, dunlin_request** request) {
  return start(communicator, {Collective::kReduceScatter, input, output, count, type, op}, request);
}

dunlin_code dunlin_start_all_gather(dunlin_communicator* communicator, const void* input,
                                    void* output, size_t count, dunlin_data_type type,
                                    dunlin_request** request) {
  return start(communicator, {Collective::kAllGather, input, output, count, type}, request);
}

dunlin_code dunlin_start_all_to_all(dunlin_communicator* communicator, const void* input,
                                    void* output, size_t count, dunlin_data_type type,
                                    dunlin_request** request) {
  return start(communicator, {Collective::kAllToAll, input, output, count, type}, request);
}

dunlin_code dunlin_start_barrier(dunlin_communicator* communicator, dunlin_request** request) {
  return start(communicator, {Collective::kBarrier, nullptr, nullptr, 0}, request);
}

dunlin_code dunlin_test(dunlin_request** request) {
  if (*request == nullptr) return DUNLIN_OK;
  return guarded([&] { return finish(request, (*request)->session->test((*request)->operation)); });
}

dunlin_code dunlin_wait(dunlin_request** request, double timeout_seconds) {
  if (*request == nullptr) return DUNLIN_OK;
  return guarded([&] {
    Session& session = *(*request)->session;
    const Duration timeout = dunlin::c::timeout_of(session, timeout_seconds);
    return finish(request, session.wait((*request)->operation, timeout, {}));
  });
}

void dunlin_forget(dunlin_request* request) {
  delete request;
}
