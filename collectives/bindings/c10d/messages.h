// Messages: from one rank of the job to another, matched by name and order.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "collectives/bindings/runtime.h"

namespace dunlin::torch_backend {

// Any thread, without Python's lock.
class Messages {
 public:
  // Not collective: ranks meet later.
  static Result<std::shared_ptr<Messages>> create(std::shared_ptr<binding::Runtime> runtime);
  virtual ~Messages() = default;

  using WhenOver = std::function<void()>;  // Operation::when_over()
  // The k-th message to a rank under a name is for its k-th receive() from this rank under that
  // name. `data` is the operation's until it is over: the receiver need not have it by then.
  virtual Result<std::shared_ptr<binding::Operation>> send(Rank to, std::string_view name,
                                                           std::span<const std::byte> data,
                                                           WhenOver when_over) = 0;
  // Fails with kInvalidArgument where the message is of another size.
  virtual Result<std::shared_ptr<binding::Operation>> receive(Rank from, std::string_view name,
                                                              std::span<std::byte> into,
                                                              WhenOver when_over) = 0;
};

}  // namespace dunlin::torch_backend
