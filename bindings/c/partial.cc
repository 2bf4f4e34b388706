// Partial all-reduces and averages in groups of the C interface.
#include <span>
#include <utility>

#include "bindings/c/internal.h"

using dunlin::Code;
using dunlin::Rank;
using dunlin::Result;
using dunlin::Status;
using dunlin::binding::GroupAverage;
using dunlin::c::guarded;
using dunlin::collective::GroupSource;
using dunlin::collective::PartialCall;

namespace {

struct Wanted {
  uint64_t number;
  const int* ranks;
  size_t rank_count;
  const void* input;
  void* output;
  size_t count;
  dunlin_data_type type;
  dunlin_op op;
};

Result<PartialCall> call_of(const Wanted& wanted) {
  PartialCall call;
  call.number = wanted.number;
  for (const int rank : std::span(wanted.ranks, wanted.ranks == nullptr ? 0 : wanted.rank_count))
    call.members.emplace_back(rank);
  call.input = wanted.input;
  call.output = wanted.output;
  call.count = wanted.count;
  call.label = dunlin::c::take_next_name();
  DUNLIN_ASSIGN(call.reduction, dunlin::c::reduction_of(wanted.type, wanted.op));
  return call;
}

const char* text_of(const char* name) {
  return name == nullptr ? "" : name;
}

Result<GroupSource> source_of(dunlin_group_source source) {
  switch (source) {
    case DUNLIN_GROUPS_SMART:
      return GroupSource::kSmart;
    case DUNLIN_GROUPS_STATIC:
      return GroupSource::kStatic;
    case DUNLIN_GROUPS_RANDOM:
      return GroupSource::kRandom;
    case DUNLIN_GROUPS_BUFFERED:
      return GroupSource::kBuffered;
  }
  return Status(Code::kInvalidArgument, "no such dunlin_group_source");
}

Status take(const dunlin_groups_options& wanted, GroupAverage::Options& options) {
  DUNLIN_ASSIGN(options.source, source_of(wanted.source));
  dunlin::collective::GroupOptions& groups = options.groups;
  if (wanted.group_size != 0) groups.group_size = wanted.group_size;
  if (wanted.slowdown_threshold != 0) groups.slowdown_threshold = wanted.slowdown_threshold;
  if (wanted.hosts != 0 || wanted.workers_per_host != 0)
    groups.layout = {wanted.hosts, wanted.workers_per_host};
  if (wanted.seed != 0) groups.seed = wanted.seed;
  return Status::ok();
}

}  // namespace

dunlin_code dunlin_partial_all_reduce(dunlin_job* job, const char* name, uint64_t number,
                                      const int* ranks, size_t rank_count, const void* input,
                                      void* output, size_t count, dunlin_data_type type,
                                      dunlin_op op) {
  return guarded([&]() -> Status {
    DUNLIN_ASSIGN(const PartialCall call,
                  call_of({number, ranks, rank_count, input, output, count, type, op}));
    return job->partial->run(text_of(name), {call}, {}, nullptr);
  });
}

dunlin_code dunlin_start_partial_all_reduce(dunlin_job* job, const char* name, uint64_t number,
                                            const int* ranks, size_t rank_count, const void* input,
                                            void* output, size_t count, dunlin_data_type type,
                                            dunlin_op op, dunlin_request** request) {
  return guarded([&]() -> Status {
    DUNLIN_ASSIGN(const PartialCall call,
                  call_of({number, ranks, rank_count, input, output, count, type, op}));
    DUNLIN_ASSIGN(auto operation, job->partial->start(text_of(name), {call}));
    *request = new dunlin_request{job->session.get(), std::move(operation)};
    return Status::ok();
  });
}

dunlin_code dunlin_groups_create(dunlin_job* job, const char* name, size_t count,
                                 const dunlin_groups_options* options, dunlin_groups** groups) {
  return guarded([&]() -> Status {
    GroupAverage::Options wanted;
    wanted.name = text_of(name);
    wanted.count = count;
    Status mistake = options == nullptr ? Status::ok() : take(*options, wanted);
    auto made = std::make_unique<dunlin_groups>();
    made->job = job;
    DUNLIN_ASSIGN(made->average,
                  GroupAverage::create(*job->session, std::move(wanted), {}, std::move(mistake)));
    const std::lock_guard guard(job->mutex);
    *groups = job->groups.emplace_back(std::move(made)).get();
    return Status::ok();
  });
}

dunlin_code dunlin_groups_average(dunlin_groups* groups, uint64_t iteration, float* model) {
  return guarded([&] { return groups->average->run(iteration, {model, model}, {}, nullptr); });
}

dunlin_code dunlin_start_groups_average(dunlin_groups* groups, uint64_t iteration, float* model,
                                        dunlin_request** request) {
  return guarded([&]() -> Status {
    DUNLIN_ASSIGN(auto operation, groups->average->start(iteration, {model, model}));
    *request = new dunlin_request{groups->job->session.get(), std::move(operation)};
    return Status::ok();
  });
}

dunlin_code dunlin_groups_model(dunlin_groups* groups, float** model) {
  return guarded([&]() -> Status {
    DUNLIN_ASSIGN(const std::span<float> memory, groups->average->model());
    *model = memory.data();
    return Status::ok();
  });
}

dunlin_code dunlin_groups_leave(dunlin_groups* groups) {
  return guarded([&] { return groups->average->leave(); });
}

dunlin_code dunlin_groups_get_statistics(dunlin_groups* groups,
                                         dunlin_groups_statistics* statistics) {
  return guarded([&]() -> Status {
    DUNLIN_ASSIGN(const auto own, groups->average->statistics());
    DUNLIN_ASSIGN(const Rank server, groups->average->master());
    *statistics = {.iterations = own.iterations,
                   .groups = own.groups,
                   .members = own.members,
                   .alone = own.alone,
                   .failures = own.failures,
                   .waited_seconds = dunlin::to_seconds(own.waited),
                   .server = server.value()};
    return Status::ok();
  });
}
