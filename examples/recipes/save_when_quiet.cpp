// Saves a document when nobody has typed for half a second, or at the latest after two.
//! [recipe]
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <algorithm>
#include <cstdio>
#include <mutex>
#include <string>

using namespace std::chrono_literals;

class document {
 public:
  void type(char c) {
    const std::lock_guard lock(mutex_);
    const auto now = vigil::clock::now();
    if (text_.size() == saved_) first_ = now;  // of those that are not saved
    text_ += c;
    save_->reset(std::min(now + 500ms, first_ + 2s));
  }

  ~document() {
    const vigil::this_fiber::shield no_stop;
    save();
  }

 private:
  void save() {
    const std::lock_guard lock(mutex_);
    if (text_.size() == saved_) return;
    saved_ = text_.size();
    std::printf("saved '%s'\n", text_.c_str());
  }

  vigil::mutex mutex_;
  std::string text_;
  std::size_t saved_ = 0;
  vigil::clock::time_point first_;
  vigil::scoped_timer save_ = vigil::after_func(vigil::clock::duration::max(), [this] { save(); });
};

int main() {
  return vigil::testing::run_virtual([] {
    document text;
    for (const char c : {'a', 'b', ' ', 'c', 'd', 'e', 'f', 'g', 'h'}) {
      text.type(c);
      vigil::sleep_for(c == ' ' ? 1000ms : 450ms);
    }
  });
}

//! [recipe]
