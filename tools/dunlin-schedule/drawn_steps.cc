#include "tools/dunlin-schedule/drawn_steps.h"

#include <fmt/format.h>

#include <map>

namespace dunlin::collective {
namespace {

// Tracks which elements of the vector lie in the scratch of each rank: puts and reduces move them.
class Provenance {
 public:
  explicit Provenance(std::size_t ranks) : scratch_(ranks) {}

  // In inputs and outputs, the place of an element is its number.
  std::size_t element_at(int rank, BufferKind buffer, std::size_t offset) const {
    if (buffer != BufferKind::kScratch) return offset;
    const auto& written = scratch_[static_cast<std::size_t>(rank)];
    const auto after = written.upper_bound(offset);
    if (after == written.begin()) return offset;
    const auto& [begin, element] = *std::prev(after);
    return element + offset - begin;
  }
  void write(int rank, BufferKind buffer, std::size_t offset, std::size_t element) {
    if (buffer == BufferKind::kScratch)
      scratch_[static_cast<std::size_t>(rank)].insert_or_assign(offset, element);
  }

 private:
  std::vector<std::map<std::size_t, std::size_t>> scratch_;  // offset -> element
};

class Steps {
 public:
  Steps(std::span<const Program> programs, const CostReport& report, const CostModel& model)
      : programs_(programs),
        report_(report),
        model_(model),
        provenance_(programs.size()),
        elements_(programs.size()) {}

  Result<std::vector<DrawnStep>> run() {
    Walk walk(programs_);
    DUNLIN_TRY(walk.run([this](const StepId& id, const StepId* sent) {
      follow(id, sent);
      return Status::ok();
    }));
    std::vector<DrawnStep> steps;
    std::vector<std::size_t> first_of_rank;
    for (const Program& program : programs_) {
      first_of_rank.push_back(steps.size());
      for (std::size_t i = 0; i < program.steps.size(); ++i)
        steps.push_back(draw(program, {program.rank, i}));
    }
    for (const StepId& id : report_.critical_path)
      steps[first_of_rank[static_cast<std::size_t>(id.rank)] + id.index].is_critical = true;
    return steps;
  }

 private:
  int owner(const Program& program, std::int32_t peer) const {
    return peer == kSelf ? program.rank : program.peers[static_cast<std::size_t>(peer)];
  }

  void follow(const StepId& id, const StepId* sent) {
    const Program& program = programs_[static_cast<std::size_t>(id.rank)];
    const Step& step = program.steps[id.index];
    std::size_t element = 0;
    if (sent != nullptr) {
      element = elements_[static_cast<std::size_t>(sent->rank)][sent->index];
    } else if (step.inputs > 0) {
      const Operand& from = program.input(step);
      element = provenance_.element_at(owner(program, from.peer), from.buffer, from.offset);
    }
    elements_[static_cast<std::size_t>(id.rank)].push_back(element);
    if (sent != nullptr) return;
    for (const Operand& to : program.targets(step))
      provenance_.write(owner(program, to.peer), to.buffer, to.offset, element);
  }

  DrawnStep draw(const Program& program, const StepId& id) const {
    const Step& step = program.steps[id.index];
    DrawnStep drawn;
    drawn.id = id;
    drawn.kind = step.kind;
    drawn.begin = report_.begin(id);
    drawn.end = report_.end(id);
    if (step.peer != kSelf) drawn.peer = owner(program, step.peer);
    if (step.kind == StepKind::kPut || step.kind == StepKind::kSignal)
      drawn.arrival = drawn.end + model_.link(id.rank, drawn.peer).alpha;
    if (step.kind == StepKind::kWait) {
      const StepTime& time = report_.times[static_cast<std::size_t>(id.rank)][id.index];
      drawn.message = {time.sender, time.sender_index};
    }
    drawn.has_bytes = step.inputs + step.targets > 0;
    if (drawn.has_bytes) {
      const std::size_t begin = elements_[static_cast<std::size_t>(id.rank)][id.index];
      drawn.elements = {begin, step.count};
    }
    drawn.text = describe(program, id.index);
    if (drawn.has_bytes && step.count > 0)
      drawn.text += fmt::format(" from {} on", drawn.elements.begin);
    return drawn;
  }

  std::span<const Program> programs_;
  const CostReport& report_;
  const CostModel& model_;
  Provenance provenance_;
  std::vector<std::vector<std::size_t>> elements_;  // by rank and step
};

}  // namespace

Result<std::vector<DrawnStep>> drawn_steps(std::span<const Program> programs,
                                           const CostReport& report, const CostModel& model) {
  if (report.times.size() != programs.size())
    return Status(Code::kInvalidArgument, "the prediction belongs to another schedule");
  for (std::size_t rank = 0; rank < programs.size(); ++rank) {
    if (report.times[rank].size() != programs[rank].steps.size())
      return Status(Code::kInvalidArgument, "the prediction belongs to another schedule");
  }
  return Steps(programs, report, model).run();
}

const char* to_string(StepKind kind) {
  switch (kind) {
    case StepKind::kPut:
      return "put";
    case StepKind::kSignal:
      return "signal";
    case StepKind::kWait:
      return "wait";
    case StepKind::kReduce:
      return "reduce";
    case StepKind::kDrain:
      return "drain";
  }
  return "unknown";
}

}  // namespace dunlin::collective
