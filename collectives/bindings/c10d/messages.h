// Messages: from one rank of the job to another, matched by name and order.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "collectives/bindings/neighbors.h"

namespace dunlin::torch_backend {

// Any thread, without Python's lock.
class Messages {
 public:
  // Not collective: ranks meet later.
  static Result<std::shared_ptr<Messages>> create(std::shared_ptr<binding::Runtime> runtime);

  const std::shared_ptr<binding::Runtime>& runtime() const { return runtime_; }

  using WhenOver = std::function<void()>;  // Operation::when_over()
  // The k-th message to a rank under a name is for its k-th receive() from this rank under that
  // name. `data` is the operation's until it is over: the receiver need not have it by then.
  Result<std::shared_ptr<binding::Operation>> send(Rank to, std::string_view name,
                                                   std::span<const std::byte> data,
                                                   WhenOver when_over);
  struct Receipt {
    std::shared_ptr<binding::Operation> operation;
    // What has come, once it is over well; of the sender's size.
    std::shared_ptr<binding::NeighborGather> result;
  };
  // `missed`: whose a message is that has not come when this one is withdrawn.
  Result<Receipt> receive(Rank from, std::string_view name, collective::Missed missed,
                          WhenOver when_over);
  // The next message under the name from one of these ranks, as start_gather_any() takes them;
  // result->sources() says from whom. Not together with receive() under the same name: which of
  // the two a message is for would be open.
  Result<Receipt> receive_any(std::span<const Rank> from, std::string_view name,
                              WhenOver when_over);

 private:
  Messages(std::shared_ptr<binding::Runtime> runtime, std::shared_ptr<binding::Neighbors> neighbors)
      : runtime_(std::move(runtime)), neighbors_(std::move(neighbors)) {}

  std::shared_ptr<binding::Runtime> runtime_;  // whose the neighbours are
  std::shared_ptr<binding::Neighbors> neighbors_;
};

}  // namespace dunlin::torch_backend
