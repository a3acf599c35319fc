// A cancel: from the call of the cancel function to the end of the wait of the fiber that
// waits with the context.
#include "marks.hpp"

#include <vigil/channel.hpp>
#include <vigil/context.hpp>
#include <vigil/error.hpp>

int main() {
  on_one_worker([] {
    auto contexts = vigil::make_channel<vigil::context>();
    auto nothing = vigil::make_channel<void>(), done = vigil::make_channel<void>();
    vigil::fiber waiting = vigil::spawn([&] {
      for (int i = 1; i <= rounds; ++i) {
        const auto ctx = contexts.recv();
        try {
          nothing.recv(*ctx);
        } catch (const vigil::cancelled&) {
          if (i == rounds) walk_ends();
        }
        done.send();
      }
    });
    vigil::spawn([&] {
      for (int i = 1; i <= rounds; ++i) {
        const auto [ctx, cancel] = vigil::with_cancel(vigil::background());
        contexts.send(ctx);
        vigil::this_fiber::yield();
        if (i == rounds) walk_begins();
        cancel();
        done.recv();
      }
    }).join();
    waiting.join();
  });
}
