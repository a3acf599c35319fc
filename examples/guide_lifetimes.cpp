// The code of docs/guide/lifetimes.md that is right: each function is one passage there.
// The wrong halves stand on that page alone.
//
// Run:    build/release/examples/guide_lifetimes
// Prints: what each passage does.
#include <vigil/guest.hpp>
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <atomic>
#include <cstddef>
#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

using namespace std::chrono_literals;

namespace {

void answer(std::string_view request) {
  std::printf("answered: %.*s\n", static_cast<int>(request.size()), request.data());
}

//! [owns]
void handle(std::string request) {
  vigil::go([request = std::move(request)] { answer(request); });  // the fiber owns it
}

//! [owns]

void joined() {
  //! [joined]
  std::vector<int> squares(3);
  std::vector<vigil::fiber<>> fibers;  // after what the fibers use: joins before that goes
  for (int i = 0; i < 3; ++i)
    fibers.push_back(vigil::spawn([&squares, i] { squares[i] = i * i; }));
  vigil::wait_all(fibers);
  std::printf("%d %d %d\n", squares[0], squares[1], squares[2]);
  //! [joined]
}

void grouped() {
  //! [group]
  std::vector<std::size_t> lengths(2);  // before the group, which dies first
  vigil::group g;
  g.go([&lengths] { lengths[0] = std::string_view("one").size(); });
  g.go([&lengths] { lengths[1] = std::string_view("three").size(); });
  g.wait();
  std::printf("%zu and %zu\n", lengths[0], lengths[1]);
  //! [group]
}

//! [this]
class letters {
 public:
  void add(std::string text) {
    adders_.go([this, text = std::move(text)] { count_ += text.size(); });
  }

  std::size_t count() {
    adders_.wait();
    return count_;
  }

 private:
  std::atomic<std::size_t> count_ = 0;
  vigil::group adders_;  // last: it dies first, and waits for its fibers
};

//! [this]

void counted() {
  //! [counted]
  std::vector<int> cubes(3);
  vigil::group all;  // waits for its fibers, even if a stop ends wait()
  for (int i = 0; i < 3; ++i)
    all.go([&cubes, i] { cubes[i] = i * i * i; });
  all.wait();
  std::printf("%d %d %d\n", cubes[0], cubes[1], cubes[2]);
  //! [counted]
}

void scoped() {
  //! [timer]
  int beats = 0;
  {
    const vigil::scoped_timer beat = vigil::every(1s, [&beats] { ++beats; });
    vigil::sleep_for(3500ms);
  }  // stopped, and no callback runs: `beats` may go
  std::printf("%d beats\n", beats);
  //! [timer]
}

//! [member]
class poller {
 public:
  int polls() const { return polls_; }

 private:
  std::atomic<int> polls_ = 0;
  vigil::scoped_timer beat_ = vigil::every(1s, [this] { ++polls_; });  // last: it dies first
};

//! [member]

//! [channel]
void listen(vigil::receiver<std::string> lines) {
  vigil::go([lines] {  // a handle of its own keeps the channel
    for (const std::string& line : lines)
      answer(line);
  });
}

//! [channel]

void cases() {
  auto out = vigil::make_channel<std::string>(1);
  //! [cases]
  std::string next = "a line";  // before the list that refers to it
  vigil::case_list cases;
  cases.add(vigil::on_send(out, std::ref(next)));
  vigil::select(cases);
  std::printf("sent: %s\n", out.recv()->c_str());
  //! [cases]
}

vigil::context_key<std::string> user;

void values() {
  //! [values]
  const vigil::context ctx = vigil::with_value(vigil::background(), user, "eve");
  const std::string* name = ctx.value(user);  // lives as long as ctx
  std::printf("it is %s\n", name->c_str());
  //! [values]
}

std::string read_file(const std::string& path) {
  return "the text of " + path;
}

void side_pool(const std::string& path) {
  //! [blocking]
  const std::optional<std::string> text =
      vigil::blocking_for(1s, [path] { return read_file(path); });  // owns its path, and its result
  std::puts(text ? text->c_str() : "too late");
  //! [blocking]
}

void permits() {
  //! [permits]
  vigil::semaphore slots(2);  // before the fibers that hold permits
  vigil::group g;
  for (int i = 0; i < 4; ++i) {
    g.go([permit = vigil::scoped_permit(slots)] { vigil::sleep_for(1s); });
  }
  g.wait();
  std::printf("%d slots are free\n", static_cast<int>(slots.available()));
  //! [permits]
}

void of_a_runtime() {
  //! [runtime]
  vigil::timer kept;
  vigil::run([&kept] { kept = vigil::after_func(1h, [] {}); });

  std::puts(kept.stop() ? "stopped" : "nothing to stop");  // the runtime has gone
  try {
    kept.reset(1s);
  } catch (const vigil::runtime_gone&) {
    std::puts("no runtime to start it in");
  }
  //! [runtime]
}

void in_a_guest() {
  //! [guest]
  std::string log;  // before the guest, whose destructor still runs its fibers
  vigil::guest_runtime guest;
  guest.start([&log] { log = "the guest's fiber was here"; });
  while (guest.poll()) {
  }
  std::puts(log.c_str());
  //! [guest]
}

}  // namespace

int main() {
  vigil::testing::run_virtual([] {
    handle("the first request");
    vigil::testing::settle();
    joined();
    grouped();
    {
      letters l;
      l.add("one");
      l.add("three");
      std::printf("%zu letters\n", l.count());
    }
    counted();
    scoped();
    {
      const poller p;
      vigil::sleep_for(2500ms);
      std::printf("%d polls\n", p.polls());
    }
    auto lines = vigil::make_channel<std::string>();
    listen(lines);
    lines.send("a line to listen to");
    lines.close();
    vigil::testing::settle();
    cases();
    values();
    side_pool("a file");
    permits();
  });
  of_a_runtime();
  in_a_guest();
}
