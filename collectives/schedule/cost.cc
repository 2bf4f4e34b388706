#include "collectives/schedule/cost.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace dunlin::collective {
namespace {

class Predictor {
 public:
  Predictor(std::span<const Program> programs, std::size_t element, const CostModel& model)
      : programs_(programs), element_(element), model_(model), walk_(programs) {
    report_.links.resize(model.links.size());
    report_.times.resize(programs.size());
    for (std::size_t rank = 0; rank < programs.size(); ++rank)
      report_.times[rank].reserve(programs[rank].steps.size());
  }

  Result<CostReport> run() {
    DUNLIN_TRY(walk_.run([this](const StepId& id, const StepId* sent) { return visit(id, sent); }));
    for (const auto& times : report_.times)
      report_.rank_seconds.push_back(times.empty() ? 0 : times.back().end);
    if (!report_.rank_seconds.empty()) report_.seconds = std::ranges::max(report_.rank_seconds);
    find_critical_path();
    return std::move(report_);
  }

 private:
  int peer_of(const Program& program, std::int32_t peer) const {
    return program.peers[static_cast<std::size_t>(peer)];
  }

  Result<std::size_t> class_of(int from, int to) const {
    const std::size_t link = model_.class_of ? model_.class_of(from, to) : 0;
    if (link < model_.links.size()) return link;
    return Status(Code::kInvalidArgument, fmt::format("the link from rank {} to {} is of class {}, "
                                                      "but the model has {} classes",
                                                      from, to, link, model_.links.size()));
  }

  Status visit(const StepId& id, const StepId* sent) {
    const Program& program = programs_[static_cast<std::size_t>(id.rank)];
    const Step& step = program.steps[id.index];
    auto& times = report_.times[static_cast<std::size_t>(id.rank)];
    const double begin = times.empty() ? 0 : times.back().end;
    const double bytes = static_cast<double>(step.count) * static_cast<double>(element_);
    StepTime time{begin};
    switch (step.kind) {
      case StepKind::kPut:
      case StepKind::kSignal: {
        DUNLIN_ASSIGN(const std::size_t link, class_of(id.rank, peer_of(program, step.peer)));
        LinkUse& use = report_.links[link];
        if (step.kind == StepKind::kSignal) {
          ++use.signals;
          break;
        }
        ++use.puts;
        use.bytes += step.count * element_;
        time.end = begin + model_.links[link].beta * bytes;
        break;
      }
      case StepKind::kWait: {
        const double arrival = report_.end(*sent) + model_.link(sent->rank, id.rank).alpha;
        time = {std::max(begin, arrival), sent->rank, static_cast<std::uint32_t>(sent->index),
                arrival > begin};
        break;
      }
      case StepKind::kReduce: {
        DUNLIN_ASSIGN(const double moved, move_over_links(program, step));
        const std::uint64_t reduced =
            step.count * element_ * std::max<std::uint64_t>(1, std::uint64_t{step.inputs} - 1);
        report_.reduced_bytes += reduced;
        time.end = begin + model_.launch + model_.gamma * static_cast<double>(reduced) + moved;
        break;
      }
      case StepKind::kDrain:
        break;  // the put's input is free as soon as its last byte has left
    }
    times.push_back(time);
    return Status::ok();
  }

  // Accesses of a reduce to peers' mapped memory cross the links to those peers.
  Result<double> move_over_links(const Program& program, const Step& step) {
    double seconds = 0;
    const std::uint64_t bytes = step.count * element_;
    for (const bool is_input : {true, false}) {
      for (const Operand& operand : is_input ? program.inputs(step) : program.targets(step)) {
        if (operand.peer == kSelf) continue;
        const int peer = peer_of(program, operand.peer);
        DUNLIN_ASSIGN(const std::size_t link,
                      is_input ? class_of(peer, program.rank) : class_of(program.rank, peer));
        report_.links[link].bytes += bytes;
        seconds += model_.links[link].beta * static_cast<double>(bytes);
      }
    }
    return seconds;
  }

  void find_critical_path() {
    const auto last = std::ranges::max_element(report_.rank_seconds);
    if (last == report_.rank_seconds.end()) return;
    const auto rank = static_cast<std::size_t>(last - report_.rank_seconds.begin());
    if (report_.times[rank].empty()) return;
    StepId id{static_cast<int>(rank), report_.times[rank].size() - 1};
    for (;;) {
      report_.critical_path.push_back(id);
      const StepTime& time = report_.times[static_cast<std::size_t>(id.rank)][id.index];
      if (time.is_late) {
        id = {time.sender, time.sender_index};
      } else if (id.index > 0) {
        --id.index;
      } else {
        break;
      }
    }
    std::ranges::reverse(report_.critical_path);
  }

  std::span<const Program> programs_;
  std::size_t element_;
  const CostModel& model_;
  Walk walk_;
  CostReport report_;
};

bool is_cost(double value) {
  return std::isfinite(value) && value >= 0;
}

}  // namespace

CostModel CostModel::uniform(const LinkCost& link, double gamma) {
  return {{link}, {}, gamma};
}

CostModel CostModel::grouped(const Grouping& groups, const LinkCost& within,
                             const LinkCost& between, double gamma) {
  return {{within, between},
          [groups](int from, int to) {
            return groups.group_of(from) == groups.group_of(to) ? std::size_t{0} : std::size_t{1};
          },
          gamma};
}

Result<CostReport> predict(std::span<const Program> programs, std::size_t element,
                           const CostModel& model) {
  bool is_valid = is_cost(model.gamma) && is_cost(model.launch) && !model.links.empty();
  for (const LinkCost& link : model.links)
    is_valid = is_valid && is_cost(link.alpha) && is_cost(link.beta);
  if (!is_valid)
    return Status(Code::kInvalidArgument, "a cost model needs links, and no cost may be negative");
  return Predictor(programs, element, model).run();
}

}  // namespace dunlin::collective
