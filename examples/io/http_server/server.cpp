#include "server.hpp"

#include "connection.hpp"

#include <vigil/error.hpp>
#include <vigil/fiber.hpp>

#include <stdexcept>

namespace web {
namespace {

constexpr std::size_t most_spare = 64;

options checked(options how) {
  using std::chrono::nanoseconds;
  for (const nanoseconds d : {how.idle, how.header, how.body, how.write, how.linger}) {
    if (d <= nanoseconds(0)) {
      throw std::invalid_argument(
          "web::options: idle, header, body, write and linger must be longer than nothing; for no "
          "limit take nanoseconds::max()");
    }
  }
  if (how.header_bytes < 256) {
    throw std::invalid_argument("web::options: header_bytes must be 256 at least");
  }
  return how;
}

// Promises no more than is kept: in whole seconds, rounded down.
std::string keep_alive_field(const options& how) {
  const auto told = std::chrono::duration_cast<std::chrono::seconds>(how.idle - how.idle_margin);
  if (!how.tells_idle || told.count() < 1) return {};
  return "Keep-Alive: timeout=" + std::to_string(told.count()) + "\r\n";
}

}  // namespace

server::server(handler answer, options how)
    : answer_(std::move(answer)),
      how_(checked(std::move(how))),
      keep_alive_field_(keep_alive_field(how_)),
      date_(how_.wall),
      stopping_(vigil::with_cancel(vigil::background())) {
  if (vigil::this_fiber::id() == 0) {
    throw vigil::wrong_place("web::server needs a runtime: make it inside vigil::run or go");
  }
  spare_.reserve(most_spare);
}

server::~server() = default;

bool server::is_kept_idle(session& s) const {
  std::optional<bool> answer = s.keeps_idle();
  if (!answer && how_.keeps_idle) answer = how_.keeps_idle();
  if (!answer.value_or(false)) return false;
  s.idle_since = vigil::clock::now();
  return true;
}

bool server::answers(transport& t, session& s, const vigil::context& ctx) {
  s.belongs_to(*this);
  return connection(*this, t, s, ctx).run();
}

std::unique_ptr<workspace> server::take_workspace() {
  {
    const std::lock_guard guard(lock_);
    if (!spare_.empty()) {
      std::unique_ptr<workspace> w = std::move(spare_.back());
      spare_.pop_back();
      return w;
    }
  }
  return std::make_unique<workspace>();
}

void server::give_back(std::unique_ptr<workspace> w) noexcept {
  constexpr std::size_t small = 16 * 1024;
  w->in.clear();
  w->out.clear();
  if (w->in.capacity() + w->out.capacity() + w->asked.memory() > small) return;
  const std::lock_guard guard(lock_);
  if (spare_.size() < most_spare) spare_.push_back(std::move(w));
}

void server::stop() {
  stopping_.cancel();
}

void session::belongs_to(server& s) {
  if (server_ == nullptr) s.connections_.fetch_add(1);
  server_ = &s;
}

void session::ask(idle_handler idle_handlers::*which, idle_handler f) {
  if (asked_ == nullptr && f) asked_ = std::make_unique<idle_handlers>();
  if (asked_ != nullptr) (*asked_).*which = std::move(f);
}

void session::ask_for_request(idle_handler f) {
  ask(&idle_handlers::of_request, std::move(f));
}

void session::ask_for_connection(idle_handler f) {
  ask(&idle_handlers::of_connection, std::move(f));
}

std::optional<bool> session::keeps_idle() const {
  if (asked_ == nullptr) return {};
  std::optional<bool> answer;
  if (asked_->of_request) answer = asked_->of_request();
  if (!answer && asked_->of_connection) answer = asked_->of_connection();
  return answer;
}

session::~session() {
  if (server_ != nullptr) server_->connections_.fetch_sub(1);
}

}  // namespace web
