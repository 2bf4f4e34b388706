#include "collectives/schedule/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <map>
#include <optional>

#include "collectives/schedule/walk.h"

namespace dunlin::collective {
namespace {

using RankSet = std::uint64_t;  // kMostCheckedRanks
using VectorClock = std::vector<std::uint32_t>;

// The position of an operand. Input and output that share memory have the same position.
struct Location {
  int rank = 0;
  BufferKind buffer = BufferKind::kInput;
  std::size_t offset = 0;
};

// A stretch of memory. Its i-th element holds the sum of element `element + i` over `ranks`.
struct Content {
  std::size_t count = 0;
  std::size_t element = 0;
  RankSet ranks = 0;
  bool is_finished = false;
};

// The contents of a buffer: stretches by their first element. Gaps were never written.
class Memory {
 public:
  void write(std::size_t begin, const Content& content) {
    if (content.count == 0) return;
    cut(begin);
    cut(begin + content.count);
    stretches_.erase(stretches_.lower_bound(begin), stretches_.lower_bound(begin + content.count));
    stretches_.emplace(begin, content);
  }

  // Returns the stretches in [begin, begin + count), cut to that range. Empty if there is a gap.
  std::optional<std::vector<Content>> read(std::size_t begin, std::size_t count) {
    std::vector<Content> found;
    if (count == 0) return found;
    cut(begin);
    cut(begin + count);
    std::size_t at = begin;
    for (auto i = stretches_.lower_bound(begin); i != stretches_.end() && i->first == at; ++i) {
      if (at == begin + count) break;
      found.push_back(i->second);
      at += i->second.count;
    }
    if (at != begin + count) return std::nullopt;
    return found;
  }

 private:
  // Splits a stretch that contains `at` in two.
  void cut(std::size_t at) {
    auto after = stretches_.upper_bound(at);
    if (after == stretches_.begin()) return;
    auto& [begin, content] = *std::prev(after);
    const std::size_t within = at - begin;
    if (within == 0 || within >= content.count) return;
    Content upper = content;
    upper.count -= within;
    upper.element += within;
    content.count = within;
    stretches_.emplace(at, upper);
  }
  std::map<std::size_t, Content> stretches_;
};

// An access to memory, from the step `begin` until one of the steps `ends`.
struct Access {
  std::size_t from = 0;
  std::size_t to = 0;
  bool is_write = false;
  StepId begin;
  std::vector<StepId> ends;
};

bool is_same(const StepId& a, const StepId& b) {
  return a.rank == b.rank && a.index == b.index;
}

class Checker {
 public:
  Checker(const Problem& problem, std::span<const Program> programs, bool in_place)
      : problem_(problem),
        programs_(programs),
        in_place_(in_place),
        walk_(programs),
        memories_(programs.size() * kBufferKinds),
        accesses_(programs.size() * kBufferKinds),
        clocks_(programs.size()),
        undrained_(programs.size()) {}

  Result<CheckedProperties> run() {
    fill_inputs();
    DUNLIN_TRY(walk_.run([this](const StepId& id, const StepId* sent) { return visit(id, sent); }));
    DUNLIN_TRY(check_results());
    DUNLIN_TRY(check_races());
    properties_.is_synchronizing = is_synchronizing();
    return properties_;
  }

 private:
  const Program& program(int rank) const { return programs_[static_cast<std::size_t>(rank)]; }
  static std::size_t index(int rank, BufferKind buffer) {
    return static_cast<std::size_t>(rank) * kBufferKinds + static_cast<std::size_t>(buffer);
  }
  Memory& memory(const Location& at) { return memories_[index(at.rank, at.buffer)]; }
  std::vector<Access>& accesses(const Location& at) { return accesses_[index(at.rank, at.buffer)]; }

  Location resolve(int rank, BufferKind buffer, std::size_t offset) const {
    Location at{rank, buffer, offset};
    if (!in_place_ || buffer == BufferKind::kScratch) return at;
    const std::size_t shift = problem_.in_place_offset(rank);
    // The smaller buffer lies within the larger one.
    if (problem_.collective == Collective::kReduceScatter) {
      if (buffer == BufferKind::kOutput) at = {rank, BufferKind::kInput, offset + shift};
    } else if (buffer == BufferKind::kInput) {
      at = {rank, BufferKind::kOutput, offset + shift};
    }
    return at;
  }
  Location resolve(int rank, const Operand& operand) const {
    const int owner =
        operand.peer == kSelf ? rank : program(rank).peers[static_cast<std::size_t>(operand.peer)];
    return resolve(owner, operand.buffer, operand.offset);
  }

  Status wrong(const StepId& id, std::string_view what) const {
    return {Code::kCorrupted, fmt::format("{} ({})", what, describe(program(id.rank), id.index))};
  }

  void fill_inputs() {
    for (int rank = 0; rank < problem_.size; ++rank) {
      const Location at = resolve(rank, BufferKind::kInput, 0);
      memory(at).write(at.offset, {problem_.input_count(), 0, RankSet{1} << rank, false});
    }
  }

  Status check_bounds(const StepId& id, const Operand& operand, std::size_t count) const {
    const Program& own = program(id.rank);
    const int owner =
        operand.peer == kSelf ? id.rank : own.peers[static_cast<std::size_t>(operand.peer)];
    const std::size_t size = operand.buffer == BufferKind::kInput    ? problem_.input_count()
                             : operand.buffer == BufferKind::kOutput ? problem_.output_count()
                                                                     : program(owner).scratch;
    if (operand.offset > size || count > size - operand.offset)
      return wrong(id, "accesses memory beyond the end of a buffer");
    return Status::ok();
  }

  // True if `rank` is known to have reached its step `index` when `id` runs.
  bool knows(const StepId& id, int rank, std::size_t index) const {
    const auto& clocks = clocks_[static_cast<std::size_t>(id.rank)];
    return clocks[id.index][static_cast<std::size_t>(rank)] > index;
  }

  void tick(const StepId& id, const StepId* sent) {
    auto& clocks = clocks_[static_cast<std::size_t>(id.rank)];
    VectorClock clock = clocks.empty() ? VectorClock(programs_.size()) : clocks.back();
    if (sent != nullptr) {
      const VectorClock& other = clocks_[static_cast<std::size_t>(sent->rank)][sent->index];
      for (std::size_t i = 0; i < clock.size(); ++i) clock[i] = std::max(clock[i], other[i]);
    }
    clock[static_cast<std::size_t>(id.rank)] = static_cast<std::uint32_t>(id.index) + 1;
    clocks.push_back(std::move(clock));
  }

  // Input and output of a peer may be accessed once it has entered; its scratch at any time.
  Status check_entry(const StepId& id, const Location& at) {
    if (at.rank == id.rank || knows(id, at.rank, 0)) return Status::ok();
    if (at.buffer != BufferKind::kScratch)
      return wrong(id, "accesses a peer's buffer before the peer is known to have entered");
    properties_.is_polite = false;
    return Status::ok();
  }

  Access& record(const Location& at, std::size_t count, bool is_write, const StepId& id) {
    return accesses(at).emplace_back(Access{at.offset, at.offset + count, is_write, id, {id}});
  }

  Status visit(const StepId& id, const StepId* sent) {
    tick(id, sent);
    const Step& step = walk_.step(id);
    const Program& own = program(id.rank);
    for (const auto& operands : {own.inputs(step), own.targets(step)}) {
      for (const Operand& operand : operands) DUNLIN_TRY(check_bounds(id, operand, step.count));
    }
    switch (step.kind) {
      case StepKind::kPut:
        return put(id, step);
      case StepKind::kWait:
        return wait(id, step, *sent);
      case StepKind::kReduce:
        return reduce(id, step);
      case StepKind::kDrain:
        for (const auto& [at, access] : undrained_[static_cast<std::size_t>(id.rank)])
          accesses_[at][access].ends.push_back(id);
        undrained_[static_cast<std::size_t>(id.rank)].clear();
        return Status::ok();
      case StepKind::kSignal:
        return Status::ok();
    }
    return Status::ok();
  }

  Status put(const StepId& id, const Step& step) {
    const Location from = resolve(id.rank, program(id.rank).input(step));
    const Location to = resolve(id.rank, program(id.rank).target(step));
    DUNLIN_TRY(check_entry(id, to));
    auto found = memory(from).read(from.offset, step.count);
    if (!found) return wrong(id, "sends memory that was never written");
    std::size_t at = to.offset;
    for (const Content& content : *found) {
      memory(to).write(at, content);
      at += content.count;
    }
    // Both accesses end when the receiver has waited. The read access also ends with a drain.
    record(from, step.count, false, id).ends.clear();
    record(to, step.count, true, id).ends.clear();
    const std::size_t read = index(from.rank, from.buffer);
    const std::size_t written = index(to.rank, to.buffer);
    const AccessId reading{read, accesses_[read].size() - 1};
    undrained_[static_cast<std::size_t>(id.rank)].push_back(reading);
    in_flight_[{id.rank, id.index}] = {reading, AccessId{written, accesses_[written].size() - 1}};
    return Status::ok();
  }

  Status wait(const StepId& id, const Step& step, const StepId& sent) {
    if (step.stream == Stream::kControl) return Status::ok();
    const Step& put = walk_.step(sent);
    const Location expected = resolve(id.rank, program(id.rank).target(step));
    const Location landed = resolve(sent.rank, program(sent.rank).target(put));
    if (put.count != step.count || expected.buffer != landed.buffer ||
        expected.offset != landed.offset || expected.rank != landed.rank) {
      return wrong(id, "expects other bytes than the message brings");
    }
    const auto landing = in_flight_.extract({sent.rank, sent.index});
    for (const auto& [at, access] : landing.mapped()) accesses_[at][access].ends.push_back(id);
    return Status::ok();
  }

  // In place, a copy to this target does nothing, and the executor leaves it out.
  bool copies_to_itself(const StepId& id, const Step& step, const Operand& target) const {
    if (step.inputs != 1 || step.finishes) return false;
    const Location from = resolve(id.rank, program(id.rank).input(step));
    const Location to = resolve(id.rank, target);
    return from.rank == to.rank && from.buffer == to.buffer && from.offset == to.offset;
  }

  Status reduce(const StepId& id, const Step& step) {
    const Program& own = program(id.rank);
    if (std::ranges::all_of(own.targets(step), [&](const Operand& target) {
          return copies_to_itself(id, step, target);
        }))
      return Status::ok();
    // Process stretch by stretch; a boundary in any input is a boundary of the result.
    std::vector<std::vector<Content>> inputs;
    for (const Operand& operand : own.inputs(step)) {
      const Location from = resolve(id.rank, operand);
      DUNLIN_TRY(check_entry(id, from));
      auto found = memory(from).read(from.offset, step.count);
      if (!found) return wrong(id, "reads memory that was never written");
      inputs.push_back(std::move(*found));
      record(from, step.count, false, id);
    }
    std::vector<Content> sums;
    std::vector<std::size_t> place(inputs.size());
    for (std::size_t done = 0; done < step.count;) {
      Content sum = inputs[0][place[0]];
      for (std::size_t i = 1; i < inputs.size(); ++i) {
        const Content& more = inputs[i][place[i]];
        if (more.element != sum.element) return wrong(id, "adds elements of different places");
        if ((more.ranks & sum.ranks) != 0) return wrong(id, "counts a contribution twice");
        if (more.is_finished || sum.is_finished) return wrong(id, "adds to a finished result");
        sum.ranks |= more.ranks;
        sum.count = std::min(sum.count, more.count);
      }
      if (step.finishes && sum.is_finished) return wrong(id, "finishes a result twice");
      sum.is_finished = sum.is_finished || step.finishes;
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        Content& used = inputs[i][place[i]];
        used.count -= sum.count;
        used.element += sum.count;
        if (used.count == 0) ++place[i];
      }
      sums.push_back(sum);
      done += sum.count;
    }
    for (const Operand& operand : own.targets(step)) {
      if (copies_to_itself(id, step, operand)) continue;
      const Location to = resolve(id.rank, operand);
      DUNLIN_TRY(check_entry(id, to));
      std::size_t at = to.offset;
      for (const Content& sum : sums) {
        memory(to).write(at, sum);
        at += sum.count;
      }
      record(to, step.count, true, id);
    }
    return Status::ok();
  }

  // What the output of `rank` has to hold in block `block`.
  Content expected(int rank, int block) const {
    const RankSet all = problem_.size == 64 ? ~RankSet{0} : (RankSet{1} << problem_.size) - 1;
    const std::size_t own = static_cast<std::size_t>(rank) * problem_.count;
    const bool is_finished = problem_.reduces() && problem_.size > 1;
    switch (problem_.collective) {
      case Collective::kBroadcast:
        return {problem_.count, 0, RankSet{1} << problem_.root, false};
      case Collective::kReduceScatter:
        return {problem_.count, own, all, is_finished};
      case Collective::kAllGather:
        return {problem_.count, 0, RankSet{1} << block, false};
      case Collective::kAllToAll:
        return {problem_.count, own, RankSet{1} << block, false};
      default:
        return {problem_.count, 0, all, is_finished};
    }
  }

  Status check_results() {
    if (problem_.count == 0) return Status::ok();
    const int blocks = static_cast<int>(problem_.output_count() / problem_.count);
    for (int rank = 0; rank < problem_.size; ++rank) {
      const bool has_result = problem_.collective != Collective::kReduce || rank == problem_.root;
      for (int block = 0; has_result && block < blocks; ++block) {
        const std::size_t begin = static_cast<std::size_t>(block) * problem_.count;
        const Location at = resolve(rank, BufferKind::kOutput, begin);
        const auto found = memory(at).read(at.offset, problem_.count);
        const Content wanted = expected(rank, block);
        std::size_t element = wanted.element;
        for (const Content& content : found.value_or(std::vector<Content>{{}})) {
          if (content.ranks != wanted.ranks || content.element != element ||
              content.is_finished != wanted.is_finished) {
            return {
                Code::kCorrupted,
                fmt::format("rank {} ends with {} of {} contributions in element {} of block {}",
                            rank, std::popcount(content.ranks & wanted.ranks),
                            std::popcount(wanted.ranks), element - wanted.element, block)};
          }
          element += content.count;
        }
      }
      if (!has_result && !in_place_) {
        for (const Access& access : accesses_[index(rank, BufferKind::kOutput)]) {
          if (access.is_write)
            return wrong(access.begin,
                         "writes to the output of a rank that gets "
                         "no result");
        }
      }
    }
    return Status::ok();
  }

  bool is_over_before(const Access& first, const Access& second) const {
    return std::any_of(first.ends.begin(), first.ends.end(), [&](const StepId& end) {
      return knows(second.begin, end.rank, end.index) && !is_same(end, second.begin);
    });
  }

  Status check_races() {
    for (std::vector<Access>& accesses : accesses_) {
      std::erase_if(accesses, [](const Access& access) { return access.from == access.to; });
      std::ranges::sort(accesses, {}, &Access::from);
      for (std::size_t i = 0; i < accesses.size(); ++i) {
        for (std::size_t j = i + 1; j < accesses.size(); ++j) {
          const Access& a = accesses[i];
          const Access& b = accesses[j];
          if (b.from >= a.to) break;
          if (!a.is_write && !b.is_write) continue;
          // A reduce may write to its input, element by element.
          if (is_same(a.begin, b.begin) && a.from == b.from && a.is_write != b.is_write) continue;
          if (is_over_before(a, b) || is_over_before(b, a)) continue;
          return wrong(a.begin, fmt::format("is not ordered against {}",
                                            describe(program(b.begin.rank), b.begin.index)));
        }
      }
    }
    return Status::ok();
  }

  bool is_synchronizing() const {
    for (std::size_t rank = 0; rank < programs_.size(); ++rank) {
      for (std::size_t other = 0; other < programs_.size(); ++other) {
        if (other == rank) continue;
        if (clocks_[rank].empty() || clocks_[rank].back()[other] == 0) return false;
      }
    }
    return true;
  }

  const Problem& problem_;
  std::span<const Program> programs_;
  bool in_place_;
  Walk walk_;
  std::vector<Memory> memories_;                  // by rank and buffer
  std::vector<std::vector<Access>> accesses_;     // by rank and buffer
  std::vector<std::vector<VectorClock>> clocks_;  // by rank and step
  using AccessId = std::pair<std::size_t, std::size_t>;
  std::vector<std::vector<AccessId>> undrained_;  // by rank: the reads of its puts
  std::map<std::pair<int, std::size_t>, std::array<AccessId, 2>> in_flight_;
  CheckedProperties properties_{true, true};
};

}  // namespace

Result<CheckedProperties> check(const Problem& problem, std::span<const Program> programs,
                                bool in_place) {
  if (problem.size > kMostCheckedRanks ||
      programs.size() != static_cast<std::size_t>(problem.size)) {
    return Status(Code::kInvalidArgument,
                  fmt::format("{} programs for {} ranks; there must be one per rank, at most {}",
                              programs.size(), problem.size, kMostCheckedRanks));
  }
  return Checker(problem, programs, in_place).run();
}

}  // namespace dunlin::collective
