// fetch: gets many pages at a time, all within one time budget.
//
// Run:     build/release/examples/io/fetch SECONDS AT_A_TIME http://HOST[:PORT]/PATH...
//          build/release/examples/io/fetch
// Prints:  for each page, in the order of the arguments, its status and size, or why
//          there is none; a page that has not come when the budget is over is too late.
//          Without arguments it fetches from itself: on virtual time over streams in
//          memory, where it prints exactly how long that took, then over TCP.
#include <vigil/io/deadline_stream.hpp>
#include <vigil/io/io_context.hpp>
#include <vigil/io/memory_stream.hpp>
#include <vigil/io/resolve.hpp>
#include <vigil/io/use_fiber.hpp>
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/connect.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>

namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using namespace std::chrono_literals;
using asio::ip::tcp;
using vigil::io::use_fiber;
using time_point = vigil::clock::time_point;

// --- one page

struct address {
  std::string host;
  std::string port;
  std::string path;
};

address parse(const std::string& url) {
  const std::string scheme = "http://";
  if (!url.starts_with(scheme)) throw std::invalid_argument(url + ": not http://...");
  const std::string rest = url.substr(scheme.size());
  const std::string place = rest.substr(0, rest.find('/'));
  const std::size_t colon = place.find(':');
  return {place.substr(0, colon),
          colon != std::string::npos ? place.substr(colon + 1) : "80",
          rest.size() > place.size() ? rest.substr(place.size()) : "/"};
}

// Gets a page over any stream whose deadlines are set.
template <class Stream>
std::string get(Stream& stream, const address& from) {
  http::request<http::empty_body> request(http::verb::get, from.path, 11);
  request.set(http::field::host, from.host);
  request.set(http::field::connection, "close");
  http::write(stream, request);
  boost::beast::flat_buffer buffer;
  http::response<http::string_body> answer;
  http::read(stream, buffer, answer);
  return std::to_string(answer.result_int()) + ", " + std::to_string(answer.body().size()) +
         " bytes";
}

vigil::io::deadline_stream<tcp::socket> dial_tcp(const address& to, time_point until) {
  const auto places = vigil::io::resolve(to.host, to.port, use_fiber.until(until));
  tcp::socket socket(vigil::io::io_context());
  asio::async_connect(socket, places, use_fiber.until(until));
  return vigil::io::deadline_stream<tcp::socket>(std::move(socket));
}

template <class Dial>
std::string fetch(const std::string& url, time_point until, Dial dial) {
  try {
    const address from = parse(url);
    auto stream = dial(from, until);
    stream.set_deadline(until);
    return get(stream, from);
  } catch (const boost::system::system_error& e) {
    return e.code() == asio::error::timed_out ? "too late" : e.code().message();
  } catch (const std::invalid_argument& e) {
    return e.what();
  }
}

// --- many

// Fetches at most `at_a_time` at a time. The results are in the order of the addresses.
template <class Dial>
std::vector<std::string> fetch_all(const std::vector<std::string>& urls,
                                   std::size_t at_a_time,
                                   time_point until,
                                   Dial dial) {
  vigil::group_of<std::string> all({.limit = at_a_time});
  for (const std::string& url : urls)
    all.go([&url, until, dial] { return fetch(url, until, dial); });
  return all.wait();
}

int print(const std::vector<std::string>& urls, const std::vector<std::string>& what) {
  for (std::size_t i = 0; i < urls.size(); ++i)
    std::printf("%-34s %s\n", urls[i].c_str(), what[i].c_str());
  return 0;
}

// --- itself

// Answers /size/N with N bytes, /after/N with the same after N ms, /half with half of a
// page and then nothing, /bye with only the end.
template <class Stream>
void answer_one(Stream stream) try {
  stream.set_deadline(vigil::clock::now() + 1min);
  boost::beast::flat_buffer buffer;
  http::request<http::empty_body> request;
  http::read(stream, buffer, request);
  const std::string path(request.target());
  if (path == "/bye") return;
  if (path == "/half") {
    const std::string half = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf ";
    asio::write(stream, asio::buffer(half));
    vigil::sleep_for(1h);
  }
  const std::string number = path.substr(path.rfind('/') + 1);
  const bool is_size = path.starts_with("/size/");
  const bool is_after = path.starts_with("/after/");
  if (is_after) vigil::sleep_for(std::chrono::milliseconds(std::stoi(number)));
  http::response<http::string_body> response(
      is_size || is_after ? http::status::ok : http::status::not_found, 11);
  if (is_size || is_after) response.body().assign(std::stoul(number), 'x');
  response.prepare_payload();
  http::write(stream, response);
} catch (const boost::system::system_error&) {
  // The other end has gone.
}

void in_memory() {
  using stream = vigil::io::deadline_stream<vigil::io::memory_stream>;
  const std::vector<std::string> urls{"http://memory/size/1000",
                                      "http://memory/after/300",
                                      "http://memory/after/5000",
                                      "http://memory/half",
                                      "http://memory/missing",
                                      "http://memory/bye",
                                      "http://memory/after/1900",
                                      "http://memory/size/0",
                                      "ftp://memory/"};
  vigil::testing::run_virtual([&] {
    const auto dial = [](const address&, time_point) {
      auto [near, far] = vigil::io::memory_pipe();
      vigil::go([s = stream(std::move(far))]() mutable { answer_one(std::move(s)); });
      return stream(std::move(near));
    };
    const auto start = vigil::clock::now();
    print(urls, fetch_all(urls, 4, start + 2s, dial));
    const auto took = vigil::clock::now() - start;
    std::printf("after %lld ms\n", static_cast<long long>(took / 1ms));
  });
}

int over_tcp() {
  return vigil::run([] {
    tcp::acceptor acceptor(vigil::io::io_context(), {asio::ip::address_v4::loopback(), 0});
    tcp::acceptor nobody(vigil::io::io_context(), tcp::v4());  // bound, and does not listen
    nobody.bind({asio::ip::address_v4::loopback(), 0});
    const auto at = [](const tcp::acceptor& a) {
      return "http://127.0.0.1:" + std::to_string(a.local_endpoint().port());
    };
    std::vector<std::string> urls;
    for (int i = 0; i < 5; ++i)
      urls.push_back(at(acceptor) + "/size/" + std::to_string(i * 100'000));
    urls.push_back(at(nobody) + "/refused");
    auto server = vigil::spawn([&] {
      vigil::group connections;
      for (;;) {
        vigil::io::deadline_stream<tcp::socket> s(acceptor.async_accept(use_fiber));
        connections.go([s = std::move(s)]() mutable { answer_one(std::move(s)); });
      }
    });
    return print(urls, fetch_all(urls, 3, vigil::clock::now() + 1min, &dial_tcp));
  });
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 1) {
    in_memory();
    return over_tcp();
  }
  if (argc < 4) {
    std::fputs("usage: fetch SECONDS AT_A_TIME http://HOST[:PORT]/PATH...\n", stderr);
    return 2;
  }
  const std::vector<std::string> urls(argv + 3, argv + argc);
  return vigil::run([&] {
    const auto until = vigil::clock::now() + std::chrono::duration<double>(std::atof(argv[1]));
    return print(urls,
                 fetch_all(urls,
                           static_cast<std::size_t>(std::atoi(argv[2])),
                           std::chrono::time_point_cast<vigil::clock::duration>(until),
                           &dial_tcp));
  });
}
