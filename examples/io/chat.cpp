// chat: a room in which everybody hears what everybody else says.
//
// Run:     build/release/examples/io/chat PORT, then Ctrl-C
//          nc localhost PORT: the first line is your name
// Prints:  without PORT, the talk of a short evening with three guests, one of which does
//          not listen.
//
// One fiber reads the lines of a guest, another writes the other guests' lines from a
// bounded queue: a guest that does not take them is disconnected, and delays nobody else.
#include <vigil/io/deadline_stream.hpp>
#include <vigil/io/io_context.hpp>
#include <vigil/io/serve.hpp>
#include <vigil/io/use_fiber.hpp>
#include <vigil/vigil.hpp>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/write.hpp>

#include <signal.h>

namespace asio = boost::asio;
using asio::ip::tcp;
using namespace std::chrono_literals;
using vigil::io::use_fiber;

namespace {

using line = std::shared_ptr<const std::string>;
using stream = vigil::io::deadline_stream<tcp::socket>;  // a fiber reads, another writes
using time_point = vigil::clock::time_point;

line line_of(const std::string& text) {
  return std::make_shared<const std::string>(text + '\n');
}

// Returns one line, without its end; `in` keeps the bytes that have come after it.
std::string read_line(stream& peer, std::string& in) {
  constexpr std::size_t longest = 64 * 1024;
  const auto n = asio::read_until(peer, asio::dynamic_buffer(in, longest), '\n');
  std::string text = in.substr(0, n - 1);
  in.erase(0, n);
  if (!text.empty() && text.back() == '\r') text.pop_back();
  return text;
}

// While it lives, the end of a context ends the reads of a stream.
class reads_under {
 public:
  reads_under(stream& s, const vigil::context& ctx)
      : end_(vigil::after_func(ctx, [&s] { s.set_read_deadline(time_point::min()); })) {}

  ~reads_under() {
    const vigil::this_fiber::shield until_it_has_ended;
    end_.stop_and_wait();
  }

  reads_under(const reads_under&) = delete;
  reads_under& operator=(const reads_under&) = delete;

 private:
  vigil::done_callback end_;
};

struct guest {
  std::string name;
  vigil::cancellable end;  // ends its stay
  vigil::channel<line> hears = vigil::make_channel<line>(32);
};

class room {
 public:
  // As long as a stay lives, the guest hears the others.
  class stay {
   public:
    stay(room& r, guest& g) : room_(r), guest_(g) {
      const std::lock_guard guard(room_.lock_);
      const std::string here = std::to_string(room_.guests_.size());
      static_cast<void>(g.hears.try_send(line_of("* welcome; others here: " + here)));
      room_.guests_.push_back(&g);
    }

    ~stay() {
      const std::lock_guard guard(room_.lock_);
      std::erase(room_.guests_, &guest_);
      guest_.hears.close();
    }

    stay(const stay&) = delete;
    stay& operator=(const stay&) = delete;

   private:
    room& room_;
    guest& guest_;
  };

  //! [say]
  void say(const guest* who, const std::string& text) {
    const line said = line_of(text);
    const std::lock_guard guard(lock_);
    for (guest* const g : guests_) {
      if (g != who && !g->hears.try_send(said)) g->end.cancel();  // it does not listen
    }
  }

  //! [say]

 private:
  vigil::mutex lock_;
  std::vector<guest*> guests_;
};

// Reads the first line of a guest, which has a minute for it.
std::string name_of(stream& peer, std::string& in, const vigil::context& open) {
  const auto [in_time, cancel] = vigil::with_timeout(open, 1min);
  const reads_under limit(peer, in_time);
  return read_line(peer, in);
}

// Talks with one guest, from its first line to its end, or the room's.
void receive(room& r, stream peer, const vigil::context& open) {
  std::string in;
  guest g{name_of(peer, in, open), vigil::with_cancel(open)};
  auto hearing = vigil::spawn([&] {
    try {
      while (auto l = g.hears.recv()) {
        peer.set_write_deadline(vigil::clock::now() + 1min);
        asio::write(peer, asio::buffer(**l));
      }
    } catch (const boost::system::system_error&) {
      g.end.cancel();
    }
  });
  std::string why = "has left";
  {
    const room::stay here(r, g);
    r.say(&g, "* " + g.name + " has come");
    const reads_under limit(peer, g.end.ctx);
    try {
      for (;;)
        r.say(&g, g.name + ": " + read_line(peer, in));
    } catch (const boost::system::system_error&) {  // perhaps the guest has hung up
      if (g.end.ctx.is_done()) {
        why = open.is_done() ? "is sent home" : "does not listen, and is shown out";
      }
    }
    if (open.is_done()) {
      static_cast<void>(g.hears.try_send(line_of("* the room closes")));
    }
  }
  r.say(&g, "* " + g.name + " " + why);
  // A guest that is still connected gets the remaining lines. Otherwise the
  // writing fiber is stopped.
  if (open.is_done()) hearing.join();
}

void run_room(tcp::acceptor& acceptor, const vigil::context& open) {
  room r;
  vigil::io::serve(open,
                   acceptor,
                   [&](tcp::socket peer) { receive(r, stream(std::move(peer)), open); },
                   {.grace = 5s});
}

// --- an evening

class visitor {
 public:
  visitor(const std::string& name, const tcp::endpoint& where, int window = 0)
      : name_(name), stream_(vigil::io::io_context(), tcp::v4()) {
    tcp::socket& socket = stream_.next_layer();
    if (window != 0) socket.set_option(tcp::socket::receive_buffer_size(window));
    socket.async_connect(where, use_fiber);
    say(name);
  }

  void say(const std::string& text) { asio::write(stream_, asio::buffer(text + '\n')); }

  std::string hear() {
    stream_.set_read_deadline(vigil::clock::now() + 1min);
    return read_line(stream_, in_);
  }

  void hear_until(const std::string& wanted) {
    while (hear() != wanted) {
    }
    std::printf("%s hears \"%s\"\n", name_.c_str(), wanted.c_str());
  }

  void tell() { std::printf("%s hears \"%s\"\n", name_.c_str(), hear().c_str()); }

 private:
  std::string name_;
  stream stream_;
  std::string in_;
};

void evening() {
  tcp::acceptor acceptor(vigil::io::io_context(), {asio::ip::address_v4::loopback(), 0});
  acceptor.set_option(tcp::socket::send_buffer_size(4096));  // the kernel keeps little
  const auto where = acceptor.local_endpoint();
  auto [open, close] = vigil::with_cancel(vigil::background());
  auto host = vigil::spawn([&, open = open] { run_room(acceptor, open); });

  visitor ann("ann", where);
  ann.tell();
  visitor bob("bob", where);
  ann.tell();
  bob.tell();
  ann.say("hello, bob");
  bob.tell();
  visitor sloth("sloth", where, 4096);
  ann.tell();
  bob.tell();
  // Ann says one long line after another; bob takes each, sloth none.
  const std::string story(4000, '.');
  int lines = 0;
  for (std::string heard = "ann"; heard.rfind("ann", 0) == 0; ++lines) {
    ann.say(story);
    heard = bob.hear();
    if (heard.rfind("ann", 0) != 0) std::printf("bob hears \"%s\"\n", heard.c_str());
  }
  std::printf("%s\n", lines > 32 ? "after a long story" : "too soon");
  ann.tell();
  close();
  ann.hear_until("* the room closes");  // bob may be sent home before
  host.join();
  std::puts("closed");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return vigil::run([] { evening(); });
  const auto port = static_cast<unsigned short>(std::atoi(argv[1]));
  vigil::options settings;
  settings.stop_on = {SIGINT, SIGTERM};
  return vigil::run(settings, [&] {
    tcp::acceptor acceptor(vigil::io::io_context(), {tcp::v4(), port});
    std::puts("the room is open; Ctrl-C closes it");
    run_room(acceptor, vigil::background());
  });
}
