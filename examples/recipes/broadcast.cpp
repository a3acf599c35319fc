// Tells every subscriber everything, except that a slow one loses the oldest news.
//! [recipe]
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <algorithm>
#include <cstdio>
#include <mutex>
#include <vector>

using namespace std::chrono_literals;

class hub {
 public:
  vigil::receiver<int> subscribe(std::size_t room) {
    const std::lock_guard lock(mutex_);
    room = std::max<std::size_t>(room, 1);  // into none nothing could be sent
    return subscribers_.emplace_back(vigil::make_channel<int>(room));
  }

  void publish(int news) {
    const std::lock_guard lock(mutex_);
    for (const auto& to : subscribers_) {
      while (to.try_send(news).status() == vigil::channel_status::not_ready)
        static_cast<void>(to.try_recv());
    }
  }

  ~hub() {
    for (const auto& to : subscribers_)
      to.close();
  }

 private:
  vigil::mutex mutex_;
  std::vector<vigil::channel<int>> subscribers_;
};

void read(const char* name, vigil::receiver<int> news, vigil::clock::duration takes) {
  for (const int n : news) {
    vigil::sleep_for(takes);
    std::printf("%s has read %d\n", name, n);
  }
}

int main() {
  return vigil::testing::run_virtual([] {
    vigil::group readers;
    {
      hub news;
      readers.go([from = news.subscribe(2)] { read("ada", from, 5ms); });
      readers.go([from = news.subscribe(2)] { read("bob", from, 64ms); });
      for (int n = 1; n <= 6; ++n, vigil::sleep_for(20ms))
        news.publish(n);
    }
    readers.wait();  // they read what is left
  });
}

//! [recipe]
