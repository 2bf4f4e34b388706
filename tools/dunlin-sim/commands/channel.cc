// dunlin-sim channel: pairs of ranks (0 to 1, 2 to 3, ...), each with a stream of messages under
// NOTIFY-ACK.
#include <fmt/format.h>

#include <cstring>

#include "tools/dunlin-sim/command.h"
#include "tools/dunlin-sim/network/world.h"
#include "tools/dunlin-sim/own_options.h"
#include "transports/channel/queue.h"

namespace dunlin::simulate {
namespace {

using transport::Awaited;
using transport::Completion;
using transport::LocalRegion;
using transport::ReceiveQueue;
using transport::SendQueue;
using transport::SlotExchange;

// The byte at `place` of message `step` from `rank`.
std::byte byte_of(Rank rank, std::uint64_t step, std::size_t place) {
  return static_cast<std::byte>(static_cast<std::uint64_t>(rank.value()) * 131 + step * 31 +
                                place * 7 + (place >> 8));
}

struct Shape {
  std::size_t size = 0;
  std::uint32_t depth = 0;
  bool checks = true;
};

// When each message of a pair was sent.
using SentAt = std::vector<TimePoint>;

class Sender final : public Stepper {
 public:
  Sender(World& world, Rank rank, SlotExchange& exchange, std::unique_ptr<LocalRegion> memory,
         const Shape& shape, SentAt& sent_at)
      : world_(world),
        rank_(rank),
        memory_(std::move(memory)),
        shape_(shape),
        sent_at_(sent_at),
        queue_(exchange, exchange.out().front()),
        completions_(std::make_unique<Completion[]>(shape.depth)) {}

  Status start(std::uint64_t step) override {
    step_ = step;
    is_filled_ = false;
    return Status::ok();
  }

  Status test() override {
    // There are as many buffers as slots. Each is filled again when the lane no longer needs it.
    const std::size_t place = step_ % shape_.depth;
    Completion& completion = completions_[place];
    if (!is_filled_) {
      if (step_ > shape_.depth && !completion.is_done()) return Status::busy();
      DUNLIN_TRY(completion.status());
      completion.reset();
      std::byte* const data = memory_->data() + place * shape_.size;
      for (std::size_t i = 0; shape_.checks && i < shape_.size; ++i)
        data[i] = byte_of(rank_, step_, i);
      is_filled_ = true;
    }
    DUNLIN_ASSIGN(const auto payload, memory_->slice(place * shape_.size, shape_.size));
    DUNLIN_TRY(queue_.try_send(payload, step_, &completion));
    sent_at_.push_back(world_.network().now());
    return Status::ok();
  }

  std::vector<Awaited> awaited() const override {
    return {{queue_.peer(), fmt::format("a free slot for message {}", step_)}};
  }
  bool depends_on(Rank gone) const override { return gone == queue_.peer(); }

 private:
  World& world_;
  Rank rank_;
  std::unique_ptr<LocalRegion> memory_;
  const Shape& shape_;
  SentAt& sent_at_;
  SendQueue queue_;
  std::unique_ptr<Completion[]> completions_;
  std::uint64_t step_ = 0;
  bool is_filled_ = false;
};

class Receiver final : public Stepper {
 public:
  Receiver(World& world, SlotExchange& exchange, const Shape& shape, const SentAt& sent_at,
           Samples& delivery)
      : world_(world),
        shape_(shape),
        sent_at_(sent_at),
        delivery_(delivery),
        queue_(exchange, exchange.in().front()) {}

  Status start(std::uint64_t step) override {
    step_ = step;
    return Status::ok();
  }

  Status test() override {
    if (queue_.received() < step_) {
      const auto message = queue_.poll();
      if (!message) return Status::busy();
      delivery_.add(world_.network().now() - sent_at_[step_ - 1]);
      if (shape_.checks) DUNLIN_TRY(verify(*message));
      return queue_.release();
    }
    return queue_.progress();  // sends the ACK, for which the lane had no room
  }

  std::vector<Awaited> awaited() const override {
    return {{queue_.peer(), fmt::format("message {}", step_)}};
  }
  bool depends_on(Rank gone) const override { return gone == queue_.peer(); }

 private:
  Status verify(const transport::Message& message) const {
    if (message.sequence != step_ || message.tag != step_ || message.data.size() != shape_.size) {
      return {Code::kCorrupted,
              fmt::format("message {} with tag {} and {} bytes instead of {}", message.sequence,
                          message.tag, message.data.size(), step_)};
    }
    for (std::size_t i = 0; i < shape_.size; ++i) {
      if (message.data[i] == byte_of(queue_.peer(), step_, i)) continue;
      return {Code::kCorrupted, fmt::format("message {} is wrong at byte {}", step_, i)};
    }
    return Status::ok();
  }

  World& world_;
  const Shape& shape_;
  const SentAt& sent_at_;
  Samples& delivery_;
  ReceiveQueue queue_;
  std::uint64_t step_ = 0;
};

class ChannelCommand final : public Command {
 public:
  std::string name() const override { return "channel"; }
  std::string help() const override {
    return "pairs of ranks (0 to 1, 2 to 3, ...): streams of messages with NOTIFY-ACK";
  }

  void declare(CLI::App& app) override {
    add_size(app, "--size", "SIZE", "bytes of a message, such as 8, 64K, 1M", size_,
             {.high = std::size_t{1} << 32})
        ->capture_default_str();
    app.add_option("--depth", depth_, "receive slots")
        ->check(CLI::Range(1u, 4096u))
        ->capture_default_str()
        ->group(kOwnOptions);
  }

  Status check(const Scenario& scenario) const override {
    DUNLIN_TRY(check_fabrics(scenario));
    if (scenario.network.ranks % 2 == 0) return Status::ok();
    return {Code::kInvalidArgument,
            fmt::format("--ranks {}: channels need an even number", scenario.network.ranks)};
  }

  nlohmann::ordered_json options() const override { return {{"size", size_}, {"depth", depth_}}; }

  Result<Report> run(const Scenario& scenario) override {
    DUNLIN_ASSIGN(const auto world, World::create(scenario));
    DUNLIN_ASSIGN(const auto exchanges, prepare(*world));
    const Shape shape{size_, depth_, scenario.checks};
    std::vector<SentAt> sent_at(exchanges.size() / 2);
    Samples delivery;
    std::vector<std::unique_ptr<Stepper>> steppers;
    for (std::size_t index = 0; index < exchanges.size(); ++index) {
      DUNLIN_TRY(exchanges[index]->connect());
      const Rank rank(static_cast<int>(index));
      SentAt& times = sent_at[index / 2];
      if (index % 2 == 0) {
        DUNLIN_ASSIGN(auto memory,
                      world->fabric(rank).allocate(std::max<std::size_t>(size_ * depth_, 1)));
        steppers.push_back(std::make_unique<Sender>(*world, rank, *exchanges[index],
                                                    std::move(memory), shape, times));
      } else {
        steppers.push_back(
            std::make_unique<Receiver>(*world, *exchanges[index], shape, times, delivery));
      }
    }
    Report report;
    DUNLIN_TRY(run_steps(*world, steppers, report));
    add_facts(report, delivery);
    return report;
  }

 private:
  Result<std::vector<std::unique_ptr<SlotExchange>>> prepare(World& world) const {
    std::vector<std::unique_ptr<SlotExchange>> exchanges;
    for (int rank = 0; rank < world.size(); ++rank) {
      transport::SlotOptions options;
      options.name = "channel";
      options.slot_bytes = size_;
      options.depth = depth_;
      (rank % 2 == 0 ? options.out : options.in).emplace_back(rank ^ 1);
      DUNLIN_ASSIGN(auto exchange,
                    SlotExchange::prepare(world.fabric(Rank(rank)), std::move(options)));
      exchanges.push_back(std::move(exchange));
    }
    return exchanges;
  }

  void add_facts(Report& report, const Samples& delivery) const {
    const double seconds = to_seconds(report.virtual_time);
    const double rate = seconds == 0 ? 0 : static_cast<double>(delivery.count()) / seconds;
    const double bytes = rate * static_cast<double>(size_);
    const auto us = [](Duration time) { return static_cast<double>(time.count()) / 1e3; };
    report.facts.push_back(
        {"delivery_us",
         {{"p50", us(delivery.quantile(0.5))}, {"max", us(delivery.max())}},
         fmt::format("delivery      p50 {}, max {}", format_duration(delivery.quantile(0.5)),
                     format_duration(delivery.max()))});
    report.facts.push_back({"gbytes_per_s", bytes / 1e9, ""});
    report.facts.push_back(
        {"messages_per_s", rate,
         fmt::format("of all pairs  {:.0f} messages/s, {}/s", rate, format_bytes(bytes))});
  }

  std::size_t size_ = 4096;
  std::uint32_t depth_ = 16;
};

}  // namespace

std::unique_ptr<Command> make_channel_command() {
  return std::make_unique<ChannelCommand>();
}

}  // namespace dunlin::simulate
