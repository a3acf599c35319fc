#!/usr/bin/env python3
"""OpenMetrics text, read by the parser of Prometheus's client: usage: openmetrics_test.py PROGRAM

PROGRAM writes the text.
"""
import subprocess
import sys

try:
    from prometheus_client.openmetrics.parser import text_string_to_metric_families
except ImportError:
    print("skipped: python3-prometheus-client is not installed")
    sys.exit(77)

passed = failed = 0


def check(what, holds):
    global passed, failed
    passed, failed = passed + holds, failed + (not holds)
    print(f"{'ok' if holds else 'FAILED'}: {what}")


text = subprocess.run([sys.argv[1]], capture_output=True, text=True, check=True).stdout
families = {f.name: f for f in text_string_to_metric_families(text)}
check("the parser takes all of it", len(families) >= 30)


def value(family, suffix="", **labels):
    found = [s.value for s in families[family].samples
             if s.name == family + suffix and labels.items() <= s.labels.items()]
    return found[0] if len(found) == 1 else None


check("1 001 fibers are alive", value("vigil_fiber_count") == 1001)
check("1 000 of them sleep", value("vigil_fiber_waiting", reason="sleep") == 1000)
check("counters end with _total", value("vigil_fiber_started", "_total") == 2000)
for name in ("vigil_timer_lateness_seconds", "vigil_fiber_schedule_duration_seconds",
             "vigil_blocking_queue_duration_seconds", "vigil_blocking_run_duration_seconds"):
    family = families[name]
    check(f"{name} is a histogram in seconds",
          (family.type, family.unit) == ("histogram", "seconds"))
    buckets = [s.value for s in family.samples if s.name == name + "_bucket"]
    check(f"{name}: the buckets add up", buckets == sorted(buckets) and
          buckets[-1] == value(name, "_count"))
check("lateness was measured", value("vigil_timer_lateness_seconds", "_count") >= 10)
check("each blocking call was measured",
      value("vigil_blocking_run_duration_seconds", "_count") == 5)
ODD = 'odd "name"\\\n.cpp:7'
check("ended fibers' stacks are known by a place of any name",
      value("vigil_stack_used_bytes", "_count", place=ODD) >= 5)
check("the bounds are those of whole pages",
      value("vigil_stack_used_bytes", "_bucket", place=ODD, le="16777216.0")
      == value("vigil_stack_used_bytes", "_count", place=ODD))
alive = [s for s in families["vigil_stack_high_water_bytes"].samples
         if "metrics_program.cpp" in s.labels["place"]]
check("the stacks of fibers that are alive count as well",
      any(4096 <= s.value <= value("vigil_stack_size_bytes", place=s.labels["place"])
          for s in alive))
check("the clock source is named", families["vigil_clock_source"].samples[0].labels["source"] != "")
print(f"{passed} passed, {failed} failed")
sys.exit(1 if failed else 0)
