#include "inspect_page/page_server.hpp"

#include "core/base/assert.hpp"
#include "core/machine/process_threads.hpp"
#include "core/machine/without_signals.hpp"
#include "core/runtime/runtime_core.hpp"
#include "inspect/group_report.hpp"
#include "inspect/overview.hpp"
#include "inspect_page/page_html.hpp"

#include <vigil/fiber.hpp>
#include <vigil/inspect.hpp>
#include <vigil/io/io_context.hpp>
#include <vigil/io/serve.hpp>
#include <vigil/leaks.hpp>
#include <vigil/trace.hpp>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <exception>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/generic/stream_protocol.hpp>

#include <pthread.h>
#include <sys/socket.h>

namespace VIGIL_DETAIL {
namespace {

namespace asio = boost::asio;

using acceptor = asio::basic_socket_acceptor<asio::generic::stream_protocol>;

constexpr std::size_t connections = 16;
constexpr std::chrono::seconds look_patience(5);
constexpr std::chrono::seconds act_patience(60);
constexpr std::chrono::seconds recording_length(5);

constexpr std::string_view json_type = "application/json";
constexpr std::string_view text_type = "text/plain; charset=utf-8";

// The looks, by their address.
struct look {
  std::string_view target;
  std::string (*write)();
  std::string_view type = json_type;
};

std::string state() {
  const overview o = take_overview();
  return "{\"fibers\":" + o.fibers + ",\"tasks\":" + o.tasks + ",\"workers\":" + o.workers +
         ",\"deadlines\":" + o.deadlines + ",\"lateness\":" + o.lateness + "}";
}

constexpr look looks[] = {
    {"/state.json", &state},
    {"/fibers.json", [] { return take_overview().fibers; }},
    {"/tasks.json", [] { return take_overview().tasks; }},
    {"/workers.json", [] { return take_overview().workers; }},
    {"/deadlines.json", [] { return take_overview().deadlines; }},
    {"/lateness.json", [] { return take_overview().lateness; }},
    {"/metrics", &inspect::openmetrics, inspect::openmetrics_type},
};

constexpr std::string_view acts[] = {
    "/dump.txt", "/dump.json", "/record", "/stuck.txt", "/group.txt"};

const look* find_look(std::string_view target) noexcept {
  for (const look& l : looks) {
    if (l.target == target) return &l;
  }
  return nullptr;
}

bool is_act(std::string_view target) noexcept {
  for (const std::string_view a : acts) {
    if (a == target) return true;
  }
  return false;
}

options options_of(const page_settings& settings) {
  options o;
  o.workers = 1;
  o.recorder_events = settings.recorder_events;
  o.warm_stacks = 0;
  o.dump_on_sigquit = false;
  o.stuck_limit = std::chrono::nanoseconds(0);
  o.stack_size = 64 * 1024;
  return o;
}

std::string shown_address(const listening_socket& s, const std::string& token) {
  return s.family() == AF_UNIX ? s.address() : s.address() + "#token=" + token;
}

void announce(const listening_socket& s, const page_server& page) {
  if (s.family() == AF_UNIX) {
    std::fprintf(stderr,
                 "vigil: the live page listens at %s, with #token=%s\n",
                 page.address().c_str(),
                 page.token().c_str());
  } else {
    std::fprintf(stderr, "vigil: the live page is at %s\n", page.address().c_str());
  }
}

page_answer data_answer(std::string_view type, std::shared_ptr<const std::string> body) {
  page_answer a;
  a.type = type;
  a.body = std::move(body);
  return a;
}

page_answer page() {
  const std::string nonce = random_digits();
  page_answer a = text_answer(200, page_document(nonce), page_policy(nonce));
  a.type = "text/html; charset=utf-8";
  return a;
}

}  // namespace

page_server::page_server(listening_socket&& socket,
                         const inspect::page_options& options,
                         const page_settings& settings)
    : socket_(std::move(socket)),
      stopping_(options.stopping),
      rules_{.is_exposed = socket_.is_exposed(),
             .host_name = std::string(options.host_name),
             .token = random_digits()},
      with_addresses_(options.addresses),
      settings_(settings),
      address_(shown_address(socket_, rules_.token)),
      peers_(connections),
      runtime_(make_observer(options_of(settings))) {
  std::promise<void> started;
  std::future<void> has_started = started.get_future();
  process_count_quiet_threads(1);
  try {
    const without_signals meanwhile;
    thread_ = std::thread([this, s = std::move(started)]() mutable {
      process_is_quiet_thread();
      ::pthread_setname_np(::pthread_self(), "vigil/page");
      run(std::move(s));
    });
  } catch (...) {
    process_count_quiet_threads(-1);
    throw;
  }
  try {
    has_started.get();
  } catch (...) {
    thread_.join();
    throw;
  }
  if (options.announce) announce(socket_, *this);
}

page_server::~page_server() {
  runtime_.request_stop();
  thread_.join();
}

void page_server::run(std::promise<void> started) noexcept {
  bool is_serving = false;
  try {
    runtime_.run([&] { serve(started, is_serving); });
  } catch (const stopped&) {
  } catch (...) {
    if (!is_serving) {
      started.set_exception(std::current_exception());
      return;
    }
    warn("the live page has ended by an error; the program goes on without it");
  }
}

void page_server::serve(std::promise<void>& started, bool& is_serving) {
  this_fiber::set_name("live page");
  acceptor accepting(io::io_context());
  const int protocol = socket_.family() == AF_UNIX ? 0 : IPPROTO_TCP;
  accepting.assign(asio::generic::stream_protocol(socket_.family(), protocol), socket_.release());
  is_serving = true;
  started.set_value();
  io::serve_limits limits;
  limits.connections = connections + 1;  // a new one may make room for itself
  limits.grace = std::chrono::nanoseconds(0);
  // An answer that cannot be given ends its connection, and nothing else.
  limits.on_error = [](const std::exception_ptr&) {};
  io::serve(
      stopping_ ? stopping_ : vigil::background(),
      accepting,
      [this](asio::generic::stream_protocol::socket peer) {
        answer_one(page_stream(std::move(peer)));
      },
      limits);
}

void page_server::answer_one(page_stream peer) {
  this_fiber::set_name("live page: a request");
  waiting_peers::member self(peers_, peer.next_layer().native_handle());
  std::optional<page_answer> refusal;
  const std::optional<page_request> request = read_request(peer, refusal, settings_.patience);
  if (refusal) return write_answer(peer, *refusal, false, self);
  if (!request) return;
  self.works();
  const page_answer a = answer(*request);
  self.waits_for_peer();
  write_answer(peer, a, request->method == page_method::head, self);
}

page_answer page_server::answer(const page_request& request) {
  if (!is_allowed_host(request.host, rules_)) {
    return text_answer(403,
                       "Ask for this page as localhost or by a loopback address: another name "
                       "may belong to somebody else.\n");
  }
  try {
    if (request.method == page_method::post) return answer_act(request);
    if (request.method != page_method::other) return answer_look(request);
  } catch (const stopped&) {
    throw;
  } catch (const std::exception& e) {
    return text_answer(503, std::string(e.what()) + "\n");
  }
  return text_answer(405, "GET, HEAD or POST.\n", "Allow: GET, HEAD, POST\r\n");
}

page_answer page_server::answer_look(const page_request& request) {
  if (request.target == "/") return page();
  const look* const wanted = find_look(request.target);
  if (wanted == nullptr) {
    if (!is_act(request.target)) return text_answer(404, "There is nothing here.\n");
    return text_answer(405, "This acts: POST, with the token.\n", "Allow: POST\r\n");
  }
  // One look at a time, so that a crowd of readers costs the program no more than one.
  job_slot::hold slot = look_slot_.take_for(look_patience);
  std::optional<std::string> text;
  if (slot != nullptr) text = done_elsewhere(std::move(slot), look_patience, wanted->write);
  if (!text) {
    return text_answer(503, "A look takes too long: a fiber may hold a lock of malloc.\n");
  }
  return data_answer(wanted->type, std::make_shared<const std::string>(std::move(*text)));
}

page_answer page_server::answer_act(const page_request& request) {
  if (!is_own_origin(request)) return text_answer(403, "The request comes from another page.\n");
  if (!is_same_token(request.token, rules_.token)) {
    return text_answer(403, "X-Vigil-Token must be the token that was printed at the start.\n");
  }
  if (request.target == "/dump.txt" || request.target == "/dump.json") {
    const bool is_text = request.target == "/dump.txt";
    const inspect::dump_options how{.frames = true, .addresses = with_addresses_};
    return act(is_text ? text_type : json_type, [is_text, how](std::FILE* out) {
      is_text ? inspect::dump(out, how) : inspect::dump_json(out, how);
    });
  }
  if (request.target == "/record") {
    // ordering: a runtime may begin at any time.
    if (runtimes_recording.load(std::memory_order_relaxed) == 0) {
      return text_answer(409,
                         "No runtime records: set options::recorder_events, or "
                         "VIGIL_RECORDER_EVENTS in the environment, to 16384.\n");
    }
    return act("application/octet-stream",
               [](std::FILE* out) { inspect::write_trace(out, recording_length); });
  }
  if (request.target == "/group.txt") return answer_group(request);
  if (request.target == "/stuck.txt") return act(text_type, &inspect::dump_stuck_fibers);
  const bool is_look = request.target == "/" || find_look(request.target) != nullptr;
  if (!is_look) return text_answer(404, "There is nothing here.\n");
  return text_answer(405, "This only shows: GET.\n", "Allow: GET, HEAD\r\n");
}

page_answer page_server::answer_group(const page_request& request) {
  constexpr std::string_view name = "key=";
  if (!request.query.starts_with(name)) {
    return text_answer(400, "Name the group: /group.txt?key=..., as in /fibers.json.\n");
  }
  const auto write = [key = request.query.substr(name.size()),
                      with_addresses = with_addresses_](std::FILE* out) {
    const std::string text = group_text(key, with_addresses);
    std::fwrite(text.data(), 1, text.size(), out);
  };
  page_answer a = act(text_type, write);
  if (a.status == 200 && a.body->empty())
    return text_answer(404, "No fiber is in this group now.\n");
  return a;
}

// One dump, recording or search at a time; a second one is not worth waiting for.
page_answer page_server::act(std::string_view type, std::function<void(std::FILE*)> write) {
  job_slot::hold slot = act_slot_.take_for(std::chrono::nanoseconds(0));
  if (slot == nullptr) {
    return text_answer(
        429, "Another dump, recording or search is under way.\n", "Retry-After: 1\r\n");
  }
  const std::size_t limit = settings_.result_limit;
  const auto is_over = std::make_shared<bool>(false);
  std::optional<std::string> text =
      done_elsewhere(std::move(slot), act_patience, [write = std::move(write), is_over, limit] {
        std::optional<std::string> written = written_within(limit, write);
        *is_over = !written;
        return std::move(written).value_or(std::string());
      });
  if (!text) return text_answer(503, "This takes too long: a fiber may hold a lock of malloc.\n");
  if (*is_over) {
    return text_answer(507, "The result has more than " + std::to_string(limit) + " bytes.\n");
  }
  return data_answer(type, std::make_shared<const std::string>(std::move(*text)));
}

}  // namespace VIGIL_DETAIL

namespace VIGIL_PUBLIC::inspect {

live_page::live_page(std::unique_ptr<detail::page_server> server) noexcept
    : server_(std::move(server)) {}

live_page::live_page(live_page&& other) noexcept = default;
live_page& live_page::operator=(live_page&& other) noexcept = default;
live_page::~live_page() = default;

std::string_view live_page::address() const noexcept {
  return server_->address();
}

std::string_view live_page::token() const noexcept {
  return server_->token();
}

live_page serve(const char* path, const page_options& options) {
  return live_page(
      std::make_unique<detail::page_server>(detail::listening_socket::at_path(path), options));
}

live_page serve_descriptor(int listening, const page_options& options) {
  return live_page(std::make_unique<detail::page_server>(
      detail::listening_socket::taken_over(listening, options.expose_to_network), options));
}

}  // namespace VIGIL_PUBLIC::inspect
