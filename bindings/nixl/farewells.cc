#include "bindings/nixl/farewells.h"

#include <utility>

namespace dunlin::nixl {

void Farewells::add(std::shared_ptr<transport::Connection> connection) {
  if (connection != nullptr) leaving_.push_back({std::move(connection), false});
}

void Farewells::add_used(std::shared_ptr<transport::Connection> connection) {
  if (connection != nullptr) leaving_.push_back({std::move(connection), true});
}

void Farewells::progress() {
  std::erase_if(leaving_, [](Leaving& one) { return one.advance(); });
}

void Farewells::hurry() {
  for (Leaving& one : leaving_) one.is_used = false;
}

bool Farewells::Leaving::advance() {
  if (is_used && connection.use_count() > 1) return false;
  if (!connection->finish()) return false;
  connection->close();
  return true;
}

}  // namespace dunlin::nixl
