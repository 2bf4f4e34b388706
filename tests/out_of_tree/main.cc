// A program outside Dunlin's tree, built against the installed library only. Two ranks, both played
// by this thread, send each other a vector over a channel, average what they get with their own,
// and check the result.
#include <collectives/graph/generators.h>
#include <collectives/graph/mixing.h>
#include <collectives/graph/spectral.h>
#include <collectives/kernels/average.h>
#include <runtime/bootstrap/bootstrap.h>
#include <transports/channel/queue.h>
#include <transports/channel/slot_exchange.h>
#include <transports/fabric.h>

#include <cstdio>
#include <memory>
#include <vector>

namespace {

using dunlin::Rank;
using dunlin::Result;
using dunlin::Status;
namespace collective = dunlin::collective;
namespace transport = dunlin::transport;

constexpr std::size_t kCount = 1000;
constexpr std::size_t kBytes = kCount * sizeof(float);
constexpr dunlin::Duration kPatience = std::chrono::seconds(10);

// One rank, from its bootstrap up to its queues. What is declared later goes first.
struct Node {
  std::unique_ptr<dunlin::Bootstrap> bootstrap;
  std::unique_ptr<transport::Fabric> fabric;
  std::unique_ptr<transport::LocalRegion> memory;
  std::unique_ptr<transport::SlotExchange> exchange;

  std::span<float> vector() const { return {reinterpret_cast<float*>(memory->data()), kCount}; }
};

Result<std::unique_ptr<Node>> prepare(dunlin::InProcessJob& job, int rank,
                                      const dunlin::Config& config, const dunlin::Clock& clock) {
  auto node = std::make_unique<Node>();
  node->bootstrap = job.bootstrap(Rank(rank));
  DUNLIN_ASSIGN(node->fabric, transport::Fabric::create(*node->bootstrap, config, clock));
  DUNLIN_ASSIGN(node->memory, node->fabric->allocate(kBytes));
  for (float& value : node->vector()) value = static_cast<float>(rank);
  const std::vector<Rank> other = {Rank(1 - rank)};
  DUNLIN_ASSIGN(
      node->exchange,
      transport::SlotExchange::prepare(
          *node->fabric, {.name = "vector", .in = other, .out = other, .slot_bytes = kBytes}));
  return node;
}

Status send(Node& node, transport::SendQueue& queue) {
  DUNLIN_ASSIGN(const auto payload, node.memory->slice(0, kBytes));
  transport::Completion sent;
  DUNLIN_TRY(queue.try_send(payload, /*tag=*/1, &sent));
  return node.fabric->wait(
      [&] { return sent.is_done() ? sent.status() : Status::busy(); },
      [&] {
        return std::vector<transport::Awaited>{{queue.peer(), "the vector's completion"}};
      },
      kPatience);
}

Status receive_and_average(Node& node, transport::ReceiveQueue& queue) {
  std::optional<transport::Message> message;
  DUNLIN_TRY(
      node.fabric->wait([&] { return (message = queue.poll()) ? Status::ok() : Status::busy(); },
                        [&] {
                          return std::vector<transport::Awaited>{{queue.peer(), "its vector"}};
                        },
                        kPatience));
  const float* const inputs[] = {reinterpret_cast<const float*>(message->data.data())};
  const float weights[] = {0.5F};
  collective::weighted_average(node.vector(), 0.5F, inputs, weights);
  return queue.release();
}

Status exchange_vectors() {
  DUNLIN_ASSIGN(const auto config, dunlin::Config::from_environment());
  const dunlin::SteadyClock clock;
  dunlin::InProcessJob job(2);
  DUNLIN_ASSIGN(const auto first, prepare(job, 0, config, clock));
  DUNLIN_ASSIGN(const auto second, prepare(job, 1, config, clock));
  std::vector<transport::SendQueue> senders;
  std::vector<transport::ReceiveQueue> receivers;
  const std::vector<Node*> nodes = {first.get(), second.get()};
  for (Node* node : nodes) {
    DUNLIN_TRY(node->exchange->connect());
    senders.emplace_back(*node->exchange, node->exchange->out()[0]);
    receivers.emplace_back(*node->exchange, node->exchange->in()[0]);
  }
  for (std::size_t i = 0; i < 2; ++i) DUNLIN_TRY(send(*nodes[i], senders[i]));
  for (std::size_t i = 0; i < 2; ++i) DUNLIN_TRY(receive_and_average(*nodes[i], receivers[i]));
  for (const Node* node : nodes) {
    for (const float value : node->vector()) {
      if (value != 0.5F)
        return {dunlin::Code::kInternal, "a wrong average: " + std::to_string(value)};
    }
  }
  std::printf("2 ranks averaged %zu numbers over %s\n", kCount,
              std::string(first->fabric->transport_of(Rank(1))).c_str());
  return Status::ok();
}

Status print_spectral_gap() {
  DUNLIN_ASSIGN(const auto graph, collective::make_graph("root-expander", 25));
  DUNLIN_ASSIGN(const auto weights,
                collective::MixingMatrix::make(graph, collective::Weighting::kUniform));
  DUNLIN_ASSIGN(const auto spectrum, collective::spectrum(weights));
  std::printf("root expander of 25: spectral gap %.3f\n", spectrum.gap);
  return Status::ok();
}

}  // namespace

int main() {
  for (const Status& status : {print_spectral_gap(), exchange_vectors()}) {
    if (status.is_ok()) continue;
    std::fprintf(stderr, "out_of_tree: %s\n", status.to_string().c_str());
    return 1;
  }
  return 0;
}
