// The code of docs/guide/existing-asio.md: a program written for Asio, and each step of
// its way to vigil.
//
// Run:    build/release/examples/io/guide_existing
// Prints: what the program's clients hear in each step.
#include <vigil/io.hpp>
#include <vigil/vigil.hpp>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <boost/asio.hpp>

namespace asio = boost::asio;
using namespace std::chrono_literals;
using asio::ip::tcp;
using boost::system::error_code;
using vigil::io::use_fiber;

namespace {

const tcp::endpoint any_port(asio::ip::address_v4::loopback(), 0);

//! [session]
class session : public std::enable_shared_from_this<session> {
 public:
  explicit session(tcp::socket socket)
      : socket_(std::move(socket)), timer_(socket_.get_executor()) {}

  void read() {
    timer_.expires_after(30s);
    timer_.async_wait([self = shared_from_this()](const error_code& error) {
      if (!error) self->socket_.close();
    });
    asio::async_read_until(socket_,
                           asio::dynamic_buffer(text_),
                           '\n',
                           [self = shared_from_this()](const error_code& error, std::size_t n) {
                             self->timer_.cancel();
                             if (!error) self->answer(n);
                           });
  }

 private:
  void answer(std::size_t n) {
    asio::async_write(socket_,
                      asio::buffer(text_, n),
                      [self = shared_from_this(), n](const error_code& error, std::size_t) {
                        if (error) return;
                        self->text_.erase(0, n);
                        self->read();
                      });
  }

  tcp::socket socket_;
  asio::steady_timer timer_;
  std::string text_;
};

class server {
 public:
  server(asio::io_context& context, const tcp::endpoint& at)
      : context_(context), acceptor_(asio::make_strand(context), at) {
    accept();
  }

  tcp::endpoint endpoint() const { return acceptor_.local_endpoint(); }

  void stop() {
    asio::post(acceptor_.get_executor(), [this] { acceptor_.close(); });
  }

 private:
  void accept() {
    acceptor_.async_accept(asio::make_strand(context_), [this](error_code error, tcp::socket peer) {
      if (error) return;
      std::make_shared<session>(std::move(peer))->read();
      accept();
    });
  }

  asio::io_context& context_;
  tcp::acceptor acceptor_;
};

//! [session]

// A client of each of them, with Asio's blocking calls, on a thread of its own; then the
// signal.
std::thread client(std::vector<tcp::endpoint> servers) {
  return std::thread([servers = std::move(servers)] {
    asio::io_context context;
    for (const tcp::endpoint& to : servers) {
      tcp::socket socket(context);
      socket.connect(to);
      asio::write(socket, asio::buffer("hello\n", 6));
      std::string line;
      asio::read_until(socket, asio::dynamic_buffer(line), '\n');
      std::printf("%s", line.c_str());
    }
    std::raise(SIGTERM);
  });
}

void as_it_is() {
  std::thread visitor;
  //! [before]
  asio::io_context context;
  server old(context, any_port);

  asio::signal_set signals(context, SIGINT, SIGTERM);
  signals.async_wait([&](const error_code& error, int) {
    if (!error) old.stop();
  });

  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i)
    threads.emplace_back([&] { context.run(); });
  //! [before]
  visitor = client({old.endpoint()});
  //! [before_end]
  for (std::thread& t : threads)
    t.join();
  //! [before_end]
  visitor.join();
}

void attached() {
  std::thread visitor;
  //! [attach]
  asio::io_context context;
  server old(context, any_port);

  vigil::options settings;
  settings.workers = 2;
  vigil::io::attach(settings, context);
  vigil::runtime rt(settings);

  asio::signal_set signals(context, SIGINT, SIGTERM);
  signals.async_wait([&](const error_code& error, int) {
    if (error) return;
    old.stop();
    rt.request_stop();
  });

  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i)
    threads.emplace_back([&] { context.run(); });
  //! [attach]
  const auto first_fiber = [&] {
    std::puts("the first fiber");
    visitor = client({old.endpoint()});
  };
  //! [attach_run]
  rt.run([&] {
    vigil::go(first_fiber);
    vigil::background().done().recv();  // until request_stop()
  });

  for (std::thread& t : threads)
    t.join();
  //! [attach_run]
  visitor.join();
}

//! [function]
void serve_one(tcp::socket peer, const vigil::context& ctx) {
  std::string text;
  for (;;) {
    const auto soon = use_fiber.within(30s);
    // Between two lines the wait ends when the program is to stop; a line that has begun
    // has the grace, until ctx is done.
    if (text.empty()) peer.async_wait(tcp::socket::wait_read, soon.under(vigil::background()));
    const std::size_t n =
        asio::async_read_until(peer, asio::dynamic_buffer(text), '\n', soon.under(ctx));
    asio::async_write(peer, asio::buffer("fiber: " + text.substr(0, n)), soon.under(ctx));
    text.erase(0, n);
  }
}

//! [function]

void first_server() {
  asio::io_context context;
  server old(context, any_port);
  vigil::options settings;
  settings.workers = 2;
  vigil::io::attach(settings, context);
  vigil::runtime rt(settings);
  asio::signal_set signals(context, SIGINT, SIGTERM);
  signals.async_wait([&](const error_code& error, int) {
    if (error) return;
    old.stop();
    rt.request_stop();
  });
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i)
    threads.emplace_back([&] { context.run(); });
  std::thread visitor;
  const auto ready = [&](const tcp::acceptor& fresh) {
    visitor = client({old.endpoint(), fresh.local_endpoint()});
  };
  //! [serve]
  rt.run([&] {
    tcp::acceptor acceptor(vigil::io::io_context(), any_port);
    ready(acceptor);
    vigil::io::serve(acceptor, serve_one, {.grace = 5s});
  });
  //! [serve]
  visitor.join();
  for (std::thread& t : threads)
    t.join();
}

//! [both]
// A handler, on any thread: it must not wait, so it leaves what it has to fibers.
void on_measured(const vigil::channel<double>& values, double value) {
  if (!values.try_send(value)) std::puts("no room: dropped");
}

// A fiber waits for what only handlers know.
double next_measured(const vigil::channel<double>& values) {
  return values.recv().value();
}

// A function that takes a handler becomes one that can be waited for.
void measure(asio::io_context& context, std::function<void(double)> handler) {
  asio::post(context, [handler = std::move(handler)] { handler(20.5); });
}

double measured(asio::io_context& context) {
  auto once = vigil::make_channel<double>(1);
  const auto announced = vigil::runtime::current().make_work_guard();
  measure(context, [once](double value) { static_cast<void>(once.try_send(value)); });
  return once.recv().value();
}

//! [both]

void between() {
  asio::io_context context;
  vigil::options settings;
  vigil::io::attach(settings, context);
  vigil::run(settings, [&] {
    std::printf("measured %.1f\n", measured(context));
    const auto values = vigil::make_channel<double>(16);
    const auto announced = vigil::runtime::current().make_work_guard();
    asio::post(context, [values] { on_measured(values, 21.5); });
    std::printf("measured %.1f\n", next_measured(values));
  });
}

void workers_alone() {
  std::thread visitor;
  const auto ready = [&](const tcp::acceptor& a) { visitor = client({a.local_endpoint()}); };
  //! [alone]
  vigil::options settings;
  settings.stop_on = {SIGINT, SIGTERM};
  vigil::run(settings, [&] {
    tcp::acceptor acceptor(vigil::io::io_context(), any_port);
    ready(acceptor);
    vigil::io::serve(acceptor, serve_one, {.grace = 5s});
  });
  //! [alone]
  visitor.join();
}

}  // namespace

int main() {
  std::setvbuf(stdout, nullptr, _IOLBF, 1 << 12);
  as_it_is();
  attached();
  first_server();
  between();
  workers_alone();
}
