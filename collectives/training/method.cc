#include "collectives/training/method.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>

#include "collectives/graph/generators.h"
#include "collectives/graph/properties.h"
#include "collectives/schedule/algorithm.h"
#include "collectives/training/methods/ad_psgd.h"
#include "collectives/training/methods/all_reduce.h"
#include "collectives/training/methods/async_parameter_server.h"
#include "collectives/training/methods/local_sgd.h"
#include "collectives/training/methods/parameter_server.h"
#include "collectives/training/methods/parameter_wire.h"
#include "collectives/training/methods/parameter_worker.h"
#include "collectives/training/methods/partial.h"
#include "collectives/training/methods/stochastic.h"
#include "collectives/training/methods/straggler_ring.h"

namespace dunlin::training {
namespace {

constexpr MethodKind kMethods[] = {
    MethodKind::kAllReduce, MethodKind::kParameterServer, MethodKind::kAsyncParameterServer,
    MethodKind::kAdPsgd,    MethodKind::kLocalSgd,        MethodKind::kStochastic,
    MethodKind::kPartial,   MethodKind::kStragglerRing};

Status refuse(const MethodOptions& options, const std::string& why) {
  return {Code::kInvalidArgument, fmt::format("{}: {}", to_string(options.kind), why)};
}

Status check_servers(const MethodOptions& options, int ranks) {
  if (options.servers < 1 || options.servers >= ranks) {
    return refuse(
        options,
        fmt::format("{} servers of {} ranks: at least one server and one worker are needed",
                    options.servers, ranks));
  }
  if (options.count >= static_cast<std::size_t>(options.servers)) return Status::ok();
  return refuse(options, fmt::format("{} servers cannot share {} parameters", options.servers,
                                     options.count));
}

Status check_groups(const MethodOptions& options, int ranks) {
  const collective::GroupOptions groups = groups_of(options, ranks, 1);
  if (groups.layout.workers() != ranks) {
    return refuse(options, fmt::format("{} hosts of {} workers do not make up a job of {} ranks",
                                       groups.layout.hosts, groups.layout.workers_per_host, ranks));
  }
  return collective::check(groups);
}

Status check_gpu(const MethodOptions& options) {
  if (has_servers(options.kind) || options.kind == MethodKind::kAdPsgd ||
      options.kind == MethodKind::kStragglerRing)
    return refuse(options,
                  "models on GPUs are not supported: use host memory, or all-reduce, local-sgd, "
                  "stochastic or partial");
  if (options.kind == MethodKind::kStochastic && options.sync != collective::SyncMode::kNotifyAck)
    return refuse(options, fmt::format("{} needs models in host memory: on GPUs, use notify-ack",
                                       collective::to_string(options.sync)));
  if (options.kind == MethodKind::kPartial && options.groups == collective::GroupSource::kStatic)
    return refuse(
        options,
        "static groups need models in host memory: on GPUs, use random, buffered or smart");
  return Status::ok();
}

Status check_graph(const MethodOptions& options, int ranks) {
  DUNLIN_ASSIGN(const auto graph, graph_of(options, ranks));
  if (collective::is_strongly_connected(graph)) return Status::ok();
  return refuse(options,
                fmt::format("graph '{}' is not strongly connected: some models, and the request to "
                            "stop, would not reach all ranks",
                            options.graph));
}

}  // namespace

const char* to_string(MethodKind kind) {
  switch (kind) {
    case MethodKind::kAllReduce:
      return "all-reduce";
    case MethodKind::kParameterServer:
      return "parameter-server";
    case MethodKind::kAsyncParameterServer:
      return "async-parameter-server";
    case MethodKind::kAdPsgd:
      return "ad-psgd";
    case MethodKind::kLocalSgd:
      return "local-sgd";
    case MethodKind::kStochastic:
      return "stochastic";
    case MethodKind::kPartial:
      return "partial";
    case MethodKind::kStragglerRing:
      return "straggler-ring";
  }
  return "unknown";
}

Result<MethodKind> parse_method(std::string_view name) {
  std::string known;
  for (const MethodKind kind : kMethods) {
    if (name == to_string(kind)) return kind;
    known += (known.empty() ? "" : ", ") + std::string(to_string(kind));
  }
  return Status(Code::kInvalidArgument,
                fmt::format("there is no method '{}'; known are {}", name, known));
}

bool has_servers(MethodKind kind) {
  return kind == MethodKind::kParameterServer || kind == MethodKind::kAsyncParameterServer;
}

bool averages_models(MethodKind kind) {
  return kind != MethodKind::kAllReduce && kind != MethodKind::kStragglerRing && !has_servers(kind);
}

bool ends_alone(const MethodOptions& options) {
  switch (options.kind) {
    case MethodKind::kAsyncParameterServer:
    case MethodKind::kAdPsgd:
      return true;
    case MethodKind::kPartial:
      return options.groups != collective::GroupSource::kStatic;
    case MethodKind::kStochastic:
      return options.sync == collective::SyncMode::kAsync;
    case MethodKind::kAllReduce:
    case MethodKind::kParameterServer:
    case MethodKind::kLocalSgd:
    case MethodKind::kStragglerRing:
      return false;
  }
  return false;
}

bool survives_deaths(const MethodOptions& options) {
  return ends_alone(options) && options.kind != MethodKind::kStochastic;
}

bool takes_newcomers(const MethodOptions& options) {
  switch (options.kind) {
    case MethodKind::kLocalSgd:
    case MethodKind::kStochastic:
      return true;
    case MethodKind::kPartial:
      return options.groups != collective::GroupSource::kStatic;
    case MethodKind::kAllReduce:
    case MethodKind::kParameterServer:
    case MethodKind::kAsyncParameterServer:
    case MethodKind::kAdPsgd:
    case MethodKind::kStragglerRing:
      return false;
  }
  return false;
}

Status check(const MethodOptions& options, int ranks) {
  if (options.count == 0) return refuse(options, "the model has no parameters");
  if (ranks < 1) return refuse(options, fmt::format("a job of {} ranks", ranks));
  for (const float number : {options.sgd.momentum, options.sgd.weight_decay}) {
    if (std::isfinite(number) && number >= 0) continue;
    return refuse(options,
                  fmt::format("momentum {} and weight decay {} must be finite and not negative",
                              options.sgd.momentum, options.sgd.weight_decay));
  }
  if (options.has_own_step && !averages_models(options.kind))
    return refuse(options, "workers can't take their own steps, as gradients are averaged");
  if (options.piece_elements == 0) return refuse(options, "pieces need at least one element");
  if (options.section_length == 0)
    return refuse(options, "a section of 0 iterations never synchronizes");
  if (options.gpu) DUNLIN_TRY(check_gpu(options));
  if (has_servers(options.kind)) return check_servers(options, ranks);
  if (options.kind == MethodKind::kAdPsgd)
    return collective::make_graph(options.graph, ranks).status();
  if (options.kind == MethodKind::kStochastic) {
    if (options.depth == 0) return refuse(options, "with depth 0 no model can be received");
    return check_graph(options, ranks);
  }
  if (options.kind == MethodKind::kPartial) return check_groups(options, ranks);
  if (options.kind == MethodKind::kStragglerRing)
    return collective::Lateness::check(options.lateness);
  const bool is_collective =
      options.kind == MethodKind::kAllReduce || options.kind == MethodKind::kLocalSgd;
  if (!is_collective || options.algorithm.empty()) return Status::ok();
  return collective::find_algorithm(collective::Collective::kAllReduce, options.algorithm).status();
}

MethodReport& MethodReport::operator+=(const MethodReport& other) {
  iterations += other.iterations;
  synchronizations += other.synchronizations;
  bytes_sent += other.bytes_sent;
  waited += other.waited;
  return *this;
}

Result<std::unique_ptr<Method>> prepare_method(transport::Fabric& fabric,
                                               const MethodOptions& options) {
  const bool is_whole_job = options.members.empty();
  if (!is_whole_job && !takes_newcomers(options))
    return refuse(options, "all ranks of the job take part");
  DUNLIN_TRY(
      check(options, is_whole_job ? fabric.size() : static_cast<int>(options.members.size())));
  const bool is_server =
      has_servers(options.kind) && ParameterRoles(options, fabric.size()).is_server(fabric.rank());
  switch (options.kind) {
    case MethodKind::kAllReduce:
      return prepare_all_reduce(fabric, options);
    case MethodKind::kParameterServer:
      return is_server ? prepare_parameter_server(fabric, options)
                       : prepare_parameter_worker(fabric, options);
    case MethodKind::kAsyncParameterServer:
      return is_server ? prepare_async_parameter_server(fabric, options)
                       : prepare_parameter_worker(fabric, options);
    case MethodKind::kAdPsgd:
      return prepare_ad_psgd(fabric, options);
    case MethodKind::kLocalSgd:
      return prepare_local_sgd(fabric, options);
    case MethodKind::kStochastic:
      return prepare_stochastic(fabric, options);
    case MethodKind::kPartial:
      return prepare_partial(fabric, options);
    case MethodKind::kStragglerRing:
      return prepare_straggler_ring(fabric, options);
  }
  return Status(Code::kInvalidArgument, "the method is unknown");
}

Result<std::unique_ptr<Method>> make_method(transport::Fabric& fabric,
                                            const MethodOptions& options) {
  DUNLIN_ASSIGN(auto method, prepare_method(fabric, options));
  if (!options.members.empty()) {
    constexpr std::byte kPrepared{1};
    DUNLIN_TRY(fabric.bootstrap()
                   .gather(options.name + "/prepared", options.members, std::span(&kPrepared, 1),
                           fabric.config().bootstrap_timeout)
                   .status());
  }
  DUNLIN_TRY(method->connect());
  return method;
}

}  // namespace dunlin::training
