// http_server: an HTTP/1.1 server with a page for browsers.
//
// Run:     build/release/examples/io/http_server/http_server [PORT] [OPTION]..., then
//          look at http://localhost:PORT/; Ctrl-C ends it gracefully. Options:
//          --idle=SECONDS    how long a connection may be silent; 120
//          --header=SECONDS  how long the header of a request may take; 10
//          --workers=N       threads; 0: one for each processor
//          --self-test       sends itself requests, in memory and on virtual time
// Prints:  the port, and at the end how many requests it has served.
#include "client.hpp"
#include "server.hpp"
#include "settings.hpp"
#include "site.hpp"

#include <vigil/io/io_context.hpp>
#include <vigil/io/memory_acceptor.hpp>
#include <vigil/io/serve.hpp>
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <cstdio>
#include <exception>
#include <string>

#include <boost/asio/ip/tcp.hpp>

#include <signal.h>

using boost::asio::ip::tcp;
using namespace std::chrono_literals;

namespace {

int serve(const web::settings& s) {
  vigil::options runtime;
  runtime.workers = s.workers;
  runtime.grace = vigil::io::serve_limits().grace;  // even if Ctrl-C comes before serve
  runtime.stop_on = {SIGINT, SIGTERM};
  return vigil::run(runtime, [&] {
    tcp::acceptor acceptor(vigil::io::io_context(), {tcp::v4(), s.port});
    web::options how = s.times;
    how.before_body = web::check_method;
    web::server server(web::answer_site, how);
    std::printf("port %u\n", static_cast<unsigned>(acceptor.local_endpoint().port()));
    std::puts("serving; Ctrl-C ends it");
    server.serve(vigil::background(), acceptor);
    std::printf("%llu requests\n", static_cast<unsigned long long>(server.served()));
  });
}

void show(const char* what, const web::reply& a) {
  std::printf("%s: %u, %zu bytes\n", what, a.result_int(), a.body().size());
}

// Runs the same server in memory and on virtual time, where minutes take no time.
int test_self() {
  return vigil::testing::run_virtual([] {
    vigil::io::memory_acceptor acceptor;
    web::server server(web::answer_site);
    auto [stopping, stop] = vigil::with_cancel(vigil::background());
    auto serving = vigil::spawn([&, stopping = stopping] { server.serve(stopping, acceptor); });
    const auto connect = [&] { return web::client<vigil::io::memory_stream>(acceptor.connect()); };
    const auto seconds_since = [](vigil::clock::time_point start) {
      return std::chrono::duration<double>(vigil::clock::now() - start).count();
    };

    auto browser = connect();
    browser.get("/");
    show("page", browser.receive());
    browser.send("HEAD / HTTP/1.1\r\nHost: test\r\n\r\n");
    show("head", browser.receive(true));
    browser.get("/count");
    browser.get("/hello");
    browser.get("/missing");
    show("stream", browser.receive());
    show("text", browser.receive());
    show("none", browser.receive());

    auto slow = connect();
    auto start = vigil::clock::now();
    slow.send("GET /hello HTT");
    show("half a header", slow.receive());
    std::printf("%s after %.1f s\n", slow.is_closed() ? "closed" : "open", seconds_since(start));

    auto silent = connect();
    start = vigil::clock::now();
    std::printf("silent: %s", silent.is_closed() ? "closed" : "open");
    std::printf(" after %.1f s\n", seconds_since(start));

    auto early = connect();
    auto late = connect();
    late.send("GET /hello HTTP/1.1\r\nHost: te");
    vigil::sleep_for(1s);
    start = vigil::clock::now();
    stop();
    std::printf("stopping: %s", early.is_closed() ? "closed" : "open");
    std::printf(" after %.1f s\n", seconds_since(start));
    vigil::sleep_for(1s);
    late.send("st\r\n\r\n");
    show("half a request", late.receive());
    std::printf("%s after %.1f s\n", late.is_closed() ? "closed" : "open", seconds_since(start));
    serving.join();
    std::printf("%llu requests\n", static_cast<unsigned long long>(server.served()));
  });
}

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  try {
    const web::settings s = web::read_settings(argc, argv);
    return s.tests_itself ? test_self() : serve(s);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "http_server: %s\n", e.what());
    return 1;
  }
}
