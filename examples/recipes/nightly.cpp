// Runs a job at 02:30 by the wall clock, at most once a night however that is set.
//! [recipe]
#include <vigil/clocks.hpp>
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <chrono>
#include <cstdio>

using namespace std::chrono;

void each_night(nanoseconds at, void (*job)()) {
  for (sys_days day = floor<days>(vigil::wall_clock::now());; day += days(1)) {
    if (day + at <= vigil::wall_clock::now()) continue;  // over: nights are not made up for
    vigil::wall::sleep_until(day + at);                  // follows the steps of the clock
    job();
  }
}

int main() {
  return vigil::testing::run_virtual([] {
    const auto backups = vigil::spawn([] {
      each_night(hours(2) + minutes(30), [] {
        const year_month_day today(floor<days>(vigil::wall_clock::now()));
        std::printf("backup of January %u\n", unsigned(today.day()));
      });
    });
    vigil::sleep_for(hours(3));
    vigil::testing::step_wall(-hours(1));  // 02:30 comes twice this night
    vigil::sleep_for(hours(72));
  });  // the handle stops the fiber
}

//! [recipe]
