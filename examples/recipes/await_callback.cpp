// Turns a function that calls back on another thread into a call that waits.
//! [recipe]
#include <vigil/vigil.hpp>

#include <cstdio>
#include <memory>
#include <thread>

struct sensor {  // a library in C, as far as we know

  void read(void (*done)(void* arg, int celsius), void* arg) {
    thread = std::thread([=] { done(arg, 21); });
  }

  std::thread thread;

  ~sensor() { thread.join(); }
};

int read(sensor& from) {
  struct waiting {  // not on the stack: a fiber that is stopped leaves before the callback
    vigil::channel<int> result = vigil::make_channel<int>(1);
    vigil::work_guard announced = vigil::runtime::current().make_work_guard();
  };

  auto mine = std::make_unique<waiting>();
  const auto result = mine->result;
  from.read(
      [](void* arg, int celsius) {
        const std::unique_ptr<waiting> own(static_cast<waiting*>(arg));
        static_cast<void>(own->result.try_send(celsius));
      },
      mine.release());
  return result.recv().value();
}

int main() {
  return vigil::run([] {
    sensor s;
    std::printf("%d degrees\n", read(s));
  });
}

//! [recipe]
