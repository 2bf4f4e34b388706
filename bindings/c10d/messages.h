// Messages from one rank of the job to another, matched by name and order.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "bindings/session/neighbors.h"

namespace dunlin::torch_backend {

// Threads: any, without the GIL.
class Messages {
 public:
  // Not collective: ranks connect with their first message.
  static Result<std::shared_ptr<Messages>> create(std::shared_ptr<binding::Session> session);

  const std::shared_ptr<binding::Session>& session() const { return session_; }

  using WhenOver = std::function<void()>;  // SessionOperation::when_over()
  // The k-th message to a rank under a name matches that rank's k-th receive() from this rank under
  // that name. `data` belongs to the operation until it is over. The receiver may not have received
  // it by then.
  Result<std::shared_ptr<binding::SessionOperation>> send(Rank to, std::string_view name,
                                                          std::span<const std::byte> data,
                                                          WhenOver when_over);
  struct Receipt {
    std::shared_ptr<binding::SessionOperation> operation;
    // The data, of the sender's size, once the operation has succeeded.
    std::shared_ptr<binding::NeighborGather> result;
  };
  // `missed`: what becomes of a message that has not come when this operation is withdrawn.
  Result<Receipt> receive(Rank from, std::string_view name, collective::Missed missed,
                          WhenOver when_over);
  // Receives the next message under the name from one of these ranks, as start_gather_any() does;
  // result->sources() gives the rank. Do not use it together with receive() under the same name, as
  // a message could be for either.
  Result<Receipt> receive_any(std::span<const Rank> from, std::string_view name,
                              WhenOver when_over);

 private:
  Messages(std::shared_ptr<binding::Session> session, std::shared_ptr<binding::Neighbors> neighbors)
      : session_(std::move(session)), neighbors_(std::move(neighbors)) {}

  std::shared_ptr<binding::Session> session_;  // outlives neighbors_, which needs it
  std::shared_ptr<binding::Neighbors> neighbors_;
};

}  // namespace dunlin::torch_backend
