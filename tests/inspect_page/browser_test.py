#!/usr/bin/env python3
"""The live page in headless Chromium: usage: browser_test.py PROGRAM [--screenshot FILE]

PROGRAM serves a page and prints its address. Chromium is driven by WebDriver, which is
plain HTTP. With --screenshot it also writes the page as a PNG, for the guide.
"""
import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

HOSTILE = "<img src=x onerror=alert(1)>"
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # WebDriver's name of a reference
PATIENCE = 60

driver_path, browser = shutil.which("chromedriver"), shutil.which("chromium")
if driver_path is None or browser is None:
    print("skipped: chromium and chromium-driver are not installed")
    sys.exit(77)

passed = failed = 0


def check(what, holds):
    global passed, failed
    passed, failed = passed + bool(holds), failed + (not holds)
    print(f"{'ok' if holds else 'FAILED'}: {what}", flush=True)


class Driver:
    """One session of Chromium."""

    def __init__(self, base, folder, downloads):
        self.base = base
        arguments = ["--headless=new", "--disable-gpu", "--disable-dev-shm-usage",
                     "--window-size=1100,1000", f"--user-data-dir={folder}"]
        if os.geteuid() == 0:
            arguments.append("--no-sandbox")
        wanted = {"browserName": "chrome", "goog:loggingPrefs": {"browser": "ALL"},
                  "goog:chromeOptions": {"binary": browser, "args": arguments, "prefs": {
                      "download.default_directory": downloads}}}
        made = self.call("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self.session = "/session/" + made["sessionId"]

    def call(self, method, path, data=None):
        body = None if data is None else json.dumps(data).encode()
        request = urllib.request.Request(self.base + path, body, method=method)
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return json.load(answer)["value"]

    def of(self, method, path, data=None):
        return self.call(method, self.session + path, data)

    def script(self, text):
        return self.of("POST", "/execute/sync", {"script": text, "args": []})

    def until(self, text):
        """Waits until the expression is true in the page; its last value."""
        end = time.monotonic() + PATIENCE
        while True:
            value = self.script(f"return {text};")
            if value or time.monotonic() > end:
                return value
            time.sleep(0.05)

    def click(self, selector):
        found = self.of("POST", "/element", {"using": "css selector", "value": selector})
        self.of("POST", f"/element/{found[ELEMENT]}/click", {})

    def rows(self, body):
        return self.script(f"return [...document.querySelectorAll('#{body} tr')]"
                           ".map(r => [...r.cells].map(c => c.textContent));")


def start_driver():
    """The process of chromedriver and its address. It chooses a free port and prints it."""
    process = subprocess.Popen([driver_path, "--port=0"], stdout=subprocess.PIPE, text=True)
    for line in process.stdout:
        if "started successfully on port" in line:
            return process, f"http://127.0.0.1:{line.split()[-1].rstrip('.')}"
    print("skipped: chromedriver does not start here")
    sys.exit(77)


def need_browser():
    """The driver's process and address. Skips the test if the browser cannot show a page
    without scripts and sockets: it needs what a container or sandbox may refuse."""
    process, base = start_driver()
    with tempfile.TemporaryDirectory(prefix="vigil-browser-", ignore_cleanup_errors=True) as folder:
        try:
            driver = Driver(base, os.path.join(folder, "profile"), folder)
            driver.of("POST", "/url", {"url": "data:text/html,<p>here"})
            driver.of("DELETE", "")
        except (OSError, urllib.error.HTTPError) as e:
            why = json.load(e)["value"]["message"] if isinstance(e, urllib.error.HTTPError) else str(e)
            process.terminate()
            process.wait()
            print(f"skipped: Chromium shows no page here: {why.splitlines()[0]}")
            sys.exit(77)
    return process, base


def look_at(page, driver):
    driver.of("POST", "/url", {"url": page})
    check("the page shows what is there", driver.until("document.querySelectorAll('#fibers tr').length > 0"))
    check("the token has left the address", "token" not in driver.of("GET", "/url"))
    check("it says that it is live", driver.until("document.getElementById('state').textContent === 'live'"))

    for number in ("40", "7"):
        driver.until(
            "[...document.querySelectorAll('#fibers tr')]"
            f".some(row => row.cells[0].textContent === '{number}')"
        )
    groups = driver.rows("fibers")
    first = groups[0]
    check("the largest group comes first", first[0] == "40" and first[3].startswith("channel receive"))
    check("with what is waited for", first[3].startswith('channel receive from the channel "jobs" made at '))
    check("with the place where it was started", "page_program.cpp:" in first[4])
    check("and with ages", all(first[i] and first[i][0].isdigit() for i in (5, 6, 7)))
    check("fibers that wait for a lock are a group", any(g[0] == "7" and "mutex" in g[3] and "page_program.cpp:" in g[3] and "held by" in g[3] for g in groups))
    check("a name that is markup is shown as text", any(HOSTILE in g[8] for g in groups))
    check("and is none", driver.script("return document.querySelectorAll('img').length;") == 0)

    deadlines = driver.rows("deadlines")
    check("the next deadlines are there", len(deadlines) >= 3)
    check("a timer is one of them", any(d[1] == "a timer" and "min" in d[0] for d in deadlines))
    check("and so is a wait", any("night's rest" in d[1] and "h" in d[0] for d in deadlines))
    check("there is a strip for each worker", driver.script(
        "return document.querySelectorAll('#workers canvas').length;") == 4)
    check("and a histogram of lateness", driver.until(
        "document.querySelectorAll('#lateness .fill').length > 0"))
    check("a strip moves on", driver.until(
        "[...strips.values()].every(s => s.history.length >= 3)"))

    texts = "[...document.querySelectorAll('#fibers tr.group')].map(r => r.cells[8].textContent)"
    driver.script("const f = document.getElementById('filter'); f.value = 'NIGHT';"
                  "f.dispatchEvent(new Event('input'));")
    left = driver.script(f"return {texts};")
    check("a filter leaves the rows with its text", len(left) == 1 and "night's rest" in left[0])
    driver.script("const f = document.getElementById('filter'); f.value = '';"
                  "f.dispatchEvent(new Event('input'));")
    count = "[...document.querySelectorAll('#fibers tr.group')].map(r => +r.cells[0].textContent)"
    driver.click("#fibers-head th:first-child button")
    down = driver.script(f"return {count};")
    driver.click("#fibers-head th:first-child button")
    up = driver.script(f"return {count};")
    check("a head that is clicked sorts", down == sorted(down, reverse=True) and len(down) > 3)
    check("and in the other order the next time", up == sorted(up))
    driver.click("#fibers-head th:first-child button")

    driver.click("#fibers tr.group")
    check("a group that is clicked shows its frames", driver.until(
        "document.querySelector('.detail pre')?.textContent.includes('wait_for_job')"))
    check("and its oldest fibers", "40 fibers; the 20 oldest:" in driver.script(
        "return document.querySelector('.detail pre').textContent;"))
    check("and its growth", driver.until(
        "document.querySelector('.detail span').textContent.includes('in the last minute')"))
    driver.until("new Promise(r => setTimeout(r, 1500)).then(() => true)")
    check("they stay when the page looks again",
          driver.script("return document.querySelectorAll('.detail pre').length;") == 1)
    driver.click("#fibers tr.group")
    check("and go when it is clicked again",
          driver.script("return document.querySelectorAll('.detail').length;") == 0)
    whole = "return document.documentElement.scrollWidth <= innerWidth;"
    check("the page is whole", driver.script(whole))
    driver.of("POST", "/window/rect", {"width": 600, "height": 1000})
    check("on a narrow screen as well", driver.script(whole) and driver.script(
        "return [...document.querySelectorAll('section')].every(s => s.scrollWidth <= s.clientWidth);"))
    driver.of("POST", "/window/rect", {"width": 1100, "height": 1000})

    check("it offers to record",
          not driver.script("return document.getElementById('record').hidden;"))


def act_on(driver):
    driver.click("#dump")
    check("a dump is shown", driver.until(
        "document.getElementById('result').textContent.includes('fibers')"))
    text = driver.script("return document.getElementById('result').textContent;")
    check("with the frames of fibers", "wait_for_job" in text and "    at " in text)
    check("with the hostile name as text", HOSTILE in text)
    check("and still without markup", driver.script("return document.querySelectorAll('img').length;") == 0)
    check("it can be saved", driver.script(
        "return document.getElementById('save').href.startsWith('blob:');"))
    driver.click("#dump-json")
    check("a dump as JSON is JSON", driver.until(
        "(() => { try { return JSON.parse(document.getElementById('result').textContent)"
        ".fibers.length > 50; } catch { return false; } })()"))
    driver.click("#stuck")
    check("stuck fibers are looked for", driver.until(
        "document.getElementById('result').textContent.includes('that may never go on')"))


def packets(trace):
    """The packets of a Perfetto trace, each the field 1 of it: their bytes. None if it is no trace."""
    found, at = [], 0
    while at < len(trace):
        if trace[at] != 0x0A:  # field 1, of a counted length
            return None
        at, size, shift = at + 1, 0, 0
        while True:
            if at >= len(trace):
                return None
            byte, at = trace[at], at + 1
            size, shift = size | (byte & 0x7F) << shift, shift + 7
            if byte < 0x80:
                break
        found.append(trace[at:at + size])
        at += size
    return found if at == len(trace) else None


def record(driver, downloads):
    driver.click("#record")
    check("a recording is there", driver.until(
        "document.getElementById('result').textContent.includes('ui.perfetto.dev')"))
    size = driver.script("return document.getElementById('result-size').textContent;")
    driver.click("#save")
    path, end = os.path.join(downloads, "vigil.pftrace"), time.monotonic() + PATIENCE
    while not os.path.exists(path) and time.monotonic() < end:
        time.sleep(0.05)
    check("it is saved under the name of a trace", os.path.exists(path))
    with open(path, "rb") as file:
        trace = file.read()
    check("as a whole", size == f"{len(trace)} bytes")
    found = packets(trace)
    check("it is a trace of Perfetto", found)
    check("with the program's fibers", b"worker 0" in trace and b"report" in trace)


def check_console(driver):
    log = driver.of("POST", "/se/log", {"type": "browser"})
    for entry in log:
        print("console:", entry["message"])
    check("the console has no violation of the policy, and no error",
          not [e for e in log if e["level"] in ("SEVERE", "WARNING")])


def check_policy(driver):
    """What the page's own policy does to code that was smuggled into it."""
    driver.script("const s = document.createElement('script'); s.id = 'smuggled';"
                  "try { s.textContent = 'window.smuggled = 1'; document.body.append(s); } catch {}")
    driver.script("try { document.body.insertAdjacentHTML('beforeend',"
                  "'<img src=x onerror=\"window.smuggled = 1\">'); } catch {}")
    check("smuggled code does not run", driver.script("return window.smuggled === undefined;"))


def main():
    process, base = need_browser()
    shot = sys.argv[sys.argv.index("--screenshot") + 1] if "--screenshot" in sys.argv else None
    program = subprocess.Popen([sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    page = program.stdout.readline().strip()
    with tempfile.TemporaryDirectory(prefix="vigil-browser-", ignore_cleanup_errors=True) as folder:
        try:
            downloads = os.path.join(folder, "downloads")
            driver = Driver(base, os.path.join(folder, "profile"), downloads)
            look_at(page, driver)
            if shot:
                time.sleep(30)  # the strips fill
                with open(shot, "wb") as file:
                    file.write(base64.b64decode(driver.of("GET", "/screenshot")))
            act_on(driver)
            record(driver, downloads)
            check_console(driver)
            check_policy(driver)
            driver.of("DELETE", "")
        except urllib.error.HTTPError as e:
            check(f"the driver answers: {e.read().decode()}", False)
        finally:
            process.terminate()
            process.wait()
    program.stdin.close()
    check("the program ends", program.wait(timeout=PATIENCE) == 0)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
