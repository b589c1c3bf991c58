"""The page of a run in a real browser, and the commands around it. python report_test.py ESPALIER

Needs Debian's chromium and playwright from PyPI; without them the browser's part is skipped, unless
ESPALIER_REQUIRE_BROWSER=1."""

import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

try:
    from playwright.sync_api import sync_playwright
except ImportError:
    sync_playwright = None

PROGRAM = ""
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
DATA = ["--synthetic-train", "60", "--synthetic-test", "20"]
SMALL = [*DATA, "--synthetic-size", "8x8"]
JOBS = {
    "host": ["train", "host", *SMALL, "--device", "cpu", "--epochs", "3", "--batch", "10"],
    "population": ["train", "population", *SMALL, "--validation", "20", "--devices", "cpu", "--lanes", "3", "--epochs", "12",
                   "--batch", "10", "--controller", "random", "--gate-training-steps", "0", "--embargo", "1"],
    "linet": ["train", "linet", "--data", "synthetic:rgbd", *DATA, "--device", "cpu", "--epochs", "2", "--batch", "20",
              "--width", "0.0625"],
    "ppo": ["train", "ppo", *SMALL, "--validation", "20", "--devices", "cpu", "--envs", "2", "--batch-per-env", "9",
            "--episode-length", "5", "--rounds", "3", "--encoder-size", "8", "--hidden-size", "8"],
    "evaluate": ["evaluate", *SMALL, "--validation", "20", "--devices", "cpu", "--envs", "2", "--batch-per-env", "9", "--episode-length",
                 "4", "--episodes", "2", "--controllers", "none,random"],
}
LANES = {"train_loss", "validation_loss", "train_accuracy", "validation_accuracy", "gradient_norm", "frontier", "payoff"}
CHARTS = {
    "host": {"loss", "accuracy", "gradient_norm", "learning_rate", "time/epoch"},
    "population": {*LANES, "parameters", "learning_rate", "growth", "contributions", "choices", "planted", "time/epoch"},
    "evaluate": {"evaluation", "evaluation/paired", "evaluation/return", "evaluation/parameters"},
    "linet": {"loss", "accuracy", "gradient_norm", "learning_rate", "streams/share", "streams/validation_accuracy", "streams/gradient_norm", "confusion",
              "time/epoch"},
    "ppo": {*LANES, "charts/episodic_return", "rewards", "losses/entropy", "losses/approx_kl", "losses/clipfrac",
            "losses/explained_variance", "losses/value_loss", "losses/policy_loss", "losses/gradient_norm",
            "charts/learning_rate", "lanes/validation_accuracy", "choices", "choices/step",
            "time/round", "time/SPS"},
}
# For every chart: its name, how many marks it has, and whether it is told in words.
READ_CHARTS = """() => [...document.querySelectorAll('figure')].map((figure) => [
  figure.dataset.chart,
  figure.querySelectorAll('path.line[d^=M], circle, rect[data-segment], rect[data-op], rect.bar, rect.cell').length,
  Boolean(figure.querySelector('svg[role=img][aria-label]')),
  figure.querySelector('svg').getBoundingClientRect().height])"""
# Nothing is wider than the window, and no text leaves its chart.
OVERFLOW = """() => [
  document.documentElement.scrollWidth - window.innerWidth,
  ...[...document.querySelectorAll('svg text')].map((text) => text.getBoundingClientRect())
    .filter((box) => box.width > 0).map((box) => Math.max(-box.left, box.right - window.innerWidth))]"""
ALL_DRAWN = "[...document.querySelectorAll('.plot')].every((plot) => plot.firstChild)"
EPOCH = {"kind": "epoch", "epoch": 1, "train_loss": 1.0, "validation_loss": 1.1, "validation_accuracy": 0.5, "seconds": 1.0}


def run(*arguments):
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL,
                          env=dict(os.environ, OMP_NUM_THREADS="1"))


# Of two lanes: one went back and had a slot barred, then was lost.
COLLAPSED = [{"kind": "lane", "epoch": epoch, "lane": lane, "outcome": "trained", "train_loss": 1.0, "validation_loss": 1.1, "validation_accuracy": 0.5,
              **more} for epoch, lane, more in (
    (1, 0, {"slots": [{"slot": "r0c1", "stage": "BLENDING", "blueprint": "norm", "operator": "ADD", "amplitude": 0.5}]}), (1, 1, {}),
    (2, 0, {}), (2, 1, {"outcome": "rolled_back", "collapse": "loss_jumped", "barred": ["r0c1"]}),
    (3, 0, {}), (3, 1, {"outcome": "retired", "collapse": "not_finite"}))]


def patience():
    """How much longer than on an idle machine an answer may take: tests run beside others."""
    return max(2, os.getloadavg()[0] / os.cpu_count())


def write_collapsed(folder):
    write_run(folder, epochs=0)
    (folder / "environment.json").write_text(json.dumps({"job": "population"}))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in COLLAPSED))
    return folder


def write_run(folder, epochs=1, **config):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"epochs": 3, **config}))
    lines = [json.dumps({**EPOCH, "epoch": epoch}) for epoch in range(1, epochs + 1)]
    (folder / "metrics.jsonl").write_text("".join(line + "\n" for line in lines))
    return folder


class Watching:
    """`espalier watch` on a free port, ended as Ctrl-C ends it."""

    def __init__(self, folder):
        self.process = subprocess.Popen([PROGRAM, "watch", str(folder), "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        text=True, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler))

    def __enter__(self):
        line = self.process.stdout.readline()
        self.url = re.match(r"(http://127\.0\.0\.1:(\d+)/)", line).group(1)
        self.port = int(self.url.rsplit(":", 1)[1].strip("/"))
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGINT)
        try:
            self.code = self.process.wait(timeout=30)
        finally:
            self.process.kill()  # nothing, where it ended
            self.process.wait()
        self.process.stdout.close()
        self.process.stderr.close()

    def ask(self, path, method="GET", host=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        connection.request(method, path, headers={"Host": host} if host else {})
        response = connection.getresponse()
        body = response.read()
        connection.close()
        return response, body


def needs_server(test):
    def checked(self):
        if not (pathlib.Path(PROGRAM).parent / "libespalier_http.so").exists():
            self.skipTest("built without cpp-httplib: install libcpp-httplib-dev")
        if os.environ.get("ESPALIER_SANITIZE"):
            self.skipTest("a sanitizer's runtime refuses RTLD_DEEPBIND")
        test(self)
    return checked


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)


class Commands(Case):
    def test_report_says_where_it_is(self):
        folder = write_run(self.folder / "host-1")
        result = run("report", str(folder))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stdout, f"{folder.resolve()}/report.html\n")

    def test_a_folder_that_holds_no_run_is_refused(self):
        for command in (["report", str(self.folder)], ["watch", str(self.folder)], ["report", str(self.folder / "none")]):
            result = run(*command)
            self.assertEqual(result.returncode, 1, command)
            self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
            self.assertIn(str(self.folder), result.stderr)
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_a_page_holds_the_collapses_of_its_run(self):
        folder = write_collapsed(self.folder / "run")
        self.assertEqual(run("report", str(folder)).returncode, 0)
        page = (folder / "report.html").read_text()
        found, _ = json.JSONDecoder().raw_decode(page, page.index('"collapses":') + len('"collapses":'))
        self.assertEqual((found["total"], found["num_lanes"]), (2, 1))
        self.assertEqual([(each["lane"], each["step"], each["why"], each["barred"]) for each in found["listed"]],
                         [(1, 2, "loss_jumped", ["r0c1"]), (1, 3, "not_finite", [])])
        self.assertIn('section("collapses", "Collapses"', page)

    def test_runs_lists_the_newest_first(self):
        for name, began in (("host-old", "2026-01-01T00:00:00Z"), ("host-new", "2026-02-01T00:00:00Z")):
            write_run(self.folder / name, epochs=2)
            (self.folder / name / "environment.json").write_text(json.dumps({"began": began}))
        with open(self.folder / "host-old" / "metrics.jsonl", "a") as metrics:
            metrics.write('{"kind":"result","test_accuracy":0.25,"seconds":75}\n')
        os.symlink("host-new", self.folder / "latest")
        (self.folder / "notes").mkdir()
        result = run("runs", str(self.folder))
        self.assertEqual(result.returncode, 0, result.stderr)
        head, *rows = result.stdout.splitlines()
        self.assertEqual([row.split()[0] for row in rows], ["host-new", "host-old"])
        self.assertEqual(re.split(r"\s{2,}", rows[0])[:-1], ["host-new", "host", "stopped", "2 of 3 epochs", "50.00 %", "2.0 s"])
        self.assertEqual(re.split(r"\s{2,}", rows[1])[:-1], ["host-old", "host", "finished", "2 of 3 epochs", "50.00 %", "25.00 %", "1 min 15 s"])
        for row in rows:
            self.assertRegex(row, r"  \d+(\.\d+)? (bytes|B|KiB)$")  # its size
        self.assertIn("no runs", run("runs", str(self.folder / "notes")).stdout)

    def test_each_has_help(self):
        for command in ("runs", "report", "compare", "watch"):
            result = run(command, "--help")
            self.assertEqual(result.returncode, 0, command)
            self.assertIn(f"Usage: espalier {command} ", result.stdout)

    def test_compare_shows_the_return_of_a_policy(self):
        folders = [write_run(self.folder / name, epochs=0) for name in ("one", "two")]
        for folder, value in zip(folders, (0.25, 0.5)):
            with open(folder / "metrics.jsonl", "a") as metrics:
                metrics.write(json.dumps({"kind": "round", "round": 1, "charts/episodic_return": value}) + "\n")
        result = run("compare", *map(str, folders))
        self.assertRegex(result.stdout, r"return of the policy +0\.250 +0\.500")

    def test_compare_shows_what_differs(self):
        one = write_run(self.folder / "one", batch=8, seed=1)
        two = write_run(self.folder / "two", batch=8, seed=2)
        result = run("compare", str(one), str(two), "--out", str(self.folder / "compare.html"))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stdout, r"--seed +1 +2")
        self.assertNotIn("--batch", result.stdout)
        self.assertIn("compare.html", result.stdout)
        self.assertEqual(run("compare", str(one)).returncode, 2)


class Server(Case):
    @needs_server
    def test_shows_and_ends_as_ctrl_c_ends_it(self):
        folder = write_run(self.folder / "run")
        os.symlink("/etc/passwd", folder / "trace.json")
        with Watching(folder) as watching:
            response, body = watching.ask("/data")
            self.assertEqual(response.status, 200)
            self.assertEqual(json.loads(body)["epochs"]["x"], [1])
            self.assertEqual(response.headers["X-Content-Type-Options"], "nosniff")
            response, body = watching.ask("/metrics.jsonl")
            self.assertEqual(body, (folder / "metrics.jsonl").read_bytes())
            for path in ("/../run/config.json", "/%2e%2e/run/config.json", "/trace.json", "/etc/passwd", "/lock"):
                self.assertEqual(watching.ask(path)[0].status, 404, path)
            self.assertEqual(watching.ask("/data", host="evil.example")[0].status, 403)
            for method in ("POST", "PUT", "DELETE"):
                self.assertEqual(watching.ask("/", method)[0].status, 405, method)
            self.assertEqual(watching.ask("/", "HEAD")[0].status, 200)
        self.assertEqual(watching.code, 130)

    def half_sent(self, watching, count):
        """So many connections whose requests never end."""
        for _ in range(count):
            connection = socket.create_connection(("127.0.0.1", watching.port), timeout=20)
            self.addCleanup(connection.close)
            connection.sendall(b"GET / HTTP/1.1\r\nHost: local")

    def asks_in_time(self, watching):
        began = time.monotonic()
        response, _ = watching.ask("/data")
        self.assertEqual(response.status, 200)
        self.assertLess(time.monotonic() - began, 3 * patience())

    @needs_server
    def test_half_sent_requests_hold_nobody_up(self):
        with Watching(write_run(self.folder / "run")) as watching:
            for _ in range(3):
                self.half_sent(watching, 200)
                self.asks_in_time(watching)
            began = time.monotonic()
        self.assertEqual(watching.code, 130)
        self.assertLess(time.monotonic() - began, 5 * patience())

    @needs_server
    def test_half_sent_requests_leave_open_pages_alone(self):
        folder = write_run(self.folder / "run")
        with Watching(folder) as watching:
            pages = []
            for _ in range(24):
                page = socket.create_connection(("127.0.0.1", watching.port), timeout=20)
                self.addCleanup(page.close)
                page.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
                pages.append([page, page.recv(4096)])
                self.assertIn(b"200 OK", pages[-1][1])
            self.half_sent(watching, 200)
            self.asks_in_time(watching)
            time.sleep(1)
            with open(folder / "metrics.jsonl", "a") as metrics:
                metrics.write(json.dumps({**EPOCH, "epoch": 2}) + "\n")
            for page, text in pages:
                while text.count(b"event: change") < 2:  # the first tells what there was
                    piece = page.recv(4096)
                    self.assertTrue(piece, "the server closed a page's stream")
                    text += piece

    @needs_server
    def test_headers_get_two_seconds_however_they_come(self):
        with Watching(write_run(self.folder / "run")) as watching:
            silent = socket.create_connection(("127.0.0.1", watching.port), timeout=0.25)
            slow = socket.create_connection(("127.0.0.1", watching.port), timeout=0.25)
            for connection in (silent, slow):
                self.addCleanup(connection.close)
            began = time.monotonic()
            ended = {}
            slow.sendall(b"GET / HTTP/1.1\r\nX: ")
            longest = 5 * patience()
            while len(ended) < 2 and time.monotonic() - began < 2 * longest:
                for name, connection in (("silent", silent), ("slow", slow)):
                    if name in ended:
                        continue
                    try:
                        if name == "slow":
                            connection.sendall(b"x")
                        closed = connection.recv(4096) == b""
                    except socket.timeout:
                        closed = False
                    except OSError:
                        closed = True
                    if closed:
                        ended[name] = time.monotonic() - began
            for name in ("silent", "slow"):
                self.assertGreater(ended.get(name, 0), 1.5, ended)
                self.assertLess(ended[name], longest, ended)

    @needs_server
    def test_a_port_that_is_taken_is_named(self):
        folder = write_run(self.folder / "run")
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = str(taken.getsockname()[1])
            result = run("watch", str(folder), "--port", port)
        self.assertEqual(result.returncode, 1)
        self.assertIn(f"port {port}", result.stderr)
        self.assertIn("taken", result.stderr)


class Pages(Case):
    @classmethod
    def setUpClass(cls):
        if not CHROMIUM or not sync_playwright:
            missing = "chromium (apt install chromium)" if not CHROMIUM else "playwright (pip install playwright)"
            if os.environ.get("ESPALIER_REQUIRE_BROWSER"):
                raise RuntimeError(f"no {missing}, and ESPALIER_REQUIRE_BROWSER is set")
            raise unittest.SkipTest(f"no {missing}: pages are not opened")
        cls.folder_of_runs = tempfile.TemporaryDirectory()
        cls.runs = pathlib.Path(cls.folder_of_runs.name)
        cls.playwright = sync_playwright().start()
        cls.browser = cls.playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()
        cls.playwright.stop()
        cls.folder_of_runs.cleanup()

    def open(self, url, width=1600, scheme="light"):
        page = self.browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.addCleanup(page.close)
        self.complaints = []
        page.on("console", lambda message: self.complaints.append(message.text) if message.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self.complaints.append(request.url) if not request.url.startswith((url, "data:")) else None)
        page.goto(url)
        page.wait_for_selector("header h1")
        self.wait_for(page, ALL_DRAWN)
        return page

    def wait_for(self, page, expression):
        """As wait_for_function() does, but the page's own policy forbids that one's way."""
        until = time.monotonic() + 30
        while not page.evaluate(expression):
            self.assertLess(time.monotonic(), until, expression)
            page.wait_for_timeout(50)

    def check_charts(self, page, expected):
        drawn = {name: (marks, told, height) for name, marks, told, height in page.evaluate(READ_CHARTS)}
        self.assertLessEqual(expected, set(drawn))
        for name, (marks, told, height) in drawn.items():
            self.assertGreater(marks, 0, f"{name} is empty")
            self.assertTrue(told, f"{name} has no words")
            self.assertGreater(height, 0, f"{name} has no height")

    def run_of(self, job):
        """A real run of the job, made once."""
        folder = self.runs / job
        if not folder.exists():
            result = run(*JOBS[job], "--run-dir", str(folder))
            self.assertEqual(result.returncode, 0, result.stderr)
        return folder

    def page_of(self, job):
        return self.open((self.run_of(job) / "report.html").as_uri())

    def check_run(self, job):
        folder = self.run_of(job)
        self.assertEqual(run("report", str(folder)).returncode, 0)
        backgrounds = set()
        for width in (400, 1600):
            for scheme in ("light", "dark"):
                page = self.open((folder / "report.html").as_uri(), width, scheme)
                self.check_charts(page, CHARTS[job])
                self.assertLessEqual(max(page.evaluate(OVERFLOW)), 1, f"{job} at {width}")
                self.assertEqual(page.inner_text("#state"), "finished")
                self.assertEqual(self.complaints, [])
                backgrounds.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
        self.assertEqual(len(backgrounds), 2)
        return page

    def test_host(self):
        self.check_run("host")

    def test_linet(self):
        self.check_run("linet")

    def saved(self, page, chart, button):
        """What a button of a chart downloads: its name and its bytes."""
        with page.expect_download() as download:
            page.locator(f"figure[data-chart={chart}] .save button", has_text=button).click()
        return download.value.suggested_filename, pathlib.Path(download.value.path()).read_bytes()

    def path_of(self, page, chart, style):
        return page.locator(f"figure[data-chart={chart}] path.{style}").first.get_attribute("d")

    def test_population(self):
        self.check_run("population")

    def test_population_answers_whether_growing_paid(self):
        page = self.page_of("population")
        lanes = [json.loads(line) for line in (self.run_of("population") / "metrics.jsonl").read_text().splitlines()]
        results = [line for line in lanes if line["kind"] == "lane_result"]
        self.assertEqual(len(results), 3)
        kept = [line for line in results if line["seeds_kept"] > 0]
        expected = "Lanes that kept seeds: .*; lanes that kept none: " if kept else "No lane kept a seed"
        self.assertRegex(page.inner_text("#verdict"), expected)
        rows = page.locator("#payoff tbody tr").all_inner_texts()
        for line in results:
            (row,) = [row for row in rows if row.startswith(f"lane {line['lane']}\t")]
            self.assertEqual(row.split("\t")[1], f"{100 * line['test_accuracy']:.2f}\u202f%")
            self.assertEqual(int(re.sub(r"\D", "", row.split("\t")[2])), line["parameters"])
            self.assertEqual(row.split("\t")[3], str(line["seeds_kept"]))

    def test_population_is_pinned_smoothed_zoomed_and_saved(self):
        page = self.page_of("population")
        whole = self.path_of(page, "train_loss", "mean")
        page.select_option("#pin", "1")
        self.assertEqual(page.locator("figure[data-chart=train_loss] path.lane.pinned[data-lane='1']").count(), 1)
        self.assertIn("lane 1", page.inner_text("figure[data-chart=train_loss] .key"))
        self.assertEqual(page.locator("#payoff tr.pinned").count(), 1)
        page.locator("#payoff tr.pinned button").click()
        self.assertEqual(page.locator(".pinned").count(), 0)

        page.locator("#smooth").fill("0.9")
        self.assertNotEqual(self.path_of(page, "train_loss", "mean:not(.faint)"), whole)
        self.assertEqual(self.path_of(page, "train_loss", "mean.faint").count("L"), whole.count("L"))
        page.locator("#smooth").fill("0")
        self.assertEqual(self.path_of(page, "train_loss", "mean"), whole)

        page.locator("figure[data-chart=train_loss] svg").scroll_into_view_if_needed()
        box = page.locator("figure[data-chart=train_loss] svg").bounding_box()
        page.mouse.move(box["x"] + 0.3 * box["width"], box["y"] + 60)
        page.mouse.down()
        page.mouse.move(box["x"] + 0.8 * box["width"], box["y"] + 70, steps=4)
        page.mouse.up()
        for chart in ("train_loss", "validation_accuracy"):  # all over the same axis
            self.assertLess(self.path_of(page, chart, "mean").count("L"), whole.count("L") - 2)
        page.locator("#tools .chip.zoom").click()
        self.assertEqual(self.path_of(page, "train_loss", "mean"), whole)

        name, csv = self.saved(page, "train_loss", "CSV")
        self.assertEqual(name, "population-train_loss.csv")
        lines = csv.decode().splitlines()
        self.assertEqual(len(lines), 1 + 12)
        self.assertRegex(lines[0], r"^epoch,lane 0,lane 1,lane 2,")
        self.assertEqual(lines[12].split(",")[0], "12")
        for chart in ("growth", "choices", "payoff"):
            name, picture = self.saved(page, chart, "PNG")
            self.assertEqual((name, picture[:8]), (f"population-{chart}.png", b"\x89PNG\r\n\x1a\n"))
            self.assertGreater(len(picture), 3000)
        self.assertEqual(self.complaints, [])

    def test_evaluate_compares_controllers(self):
        page = self.check_run("evaluate")
        self.assertRegex(page.inner_text("#verdict"), r"none .*test accuracy; random .* 95.% interval .* against none: ")
        self.assertEqual(page.locator("figure[data-chart=evaluation] circle:not(.mean)").count(), 8)
        self.assertEqual(page.locator("figure[data-chart='evaluation/paired'] circle:not(.mean)").count(), 4)
        self.assertEqual(page.locator("figure[data-chart=evaluation] path.interval").count(), 2)
        self.assertIn("4 of 4", page.inner_text(".stats"))
        self.assertRegex(run("runs", str(self.runs)).stdout, r"evaluate +evaluate +finished +4 of 4 episodes")

    def test_collapses_are_listed_with_the_slots_that_are_barred(self):
        folder = write_collapsed(self.folder / "run")
        run("report", str(folder))
        page = self.open((folder / "report.html").as_uri())
        self.assertEqual(self.complaints, [])
        self.assertIn("2 collapses in 1 lane.", page.inner_text("#collapses"))
        rows = [row.split("\t") for row in page.locator("#collapses tbody tr").all_inner_texts()]
        self.assertEqual(rows, [["lane 1", "2", "the loss jumped", "r0c1"], ["lane 1", "3", "numbers were not finite", "–"]])
        page = self.open((self.run_of("host") / "report.html").as_uri())
        self.assertEqual(page.locator("#collapses").count(), 0)

    def test_population_lights_a_lane_everywhere(self):
        page = self.page_of("population")
        box = page.locator("figure[data-chart=validation_loss] svg").bounding_box()
        for y in range(10, 190, 6):
            page.mouse.move(box["x"] + box["width"] / 2, box["y"] + y)
            if page.locator(".line.lane.lit").count():
                break
        self.assertGreaterEqual(page.locator(".line.lane.lit").count(), 4)
        self.assertIn("lane", page.inner_text("#tip"))
        page.locator("figure[data-chart=train_loss] svg").focus()
        page.keyboard.press("ArrowLeft")
        self.assertIn("epoch 11", page.inner_text("#tip"))

    def test_ppo_shows_the_round_that_is_chosen(self):
        page = self.check_run("ppo")
        self.assertIn("In round 3", page.inner_text("#verdict"))
        self.assertIn("share of the log of the legal choices", page.inner_text("figure[data-chart='losses/entropy']"))
        self.assertEqual(page.input_value("#round"), "3")
        self.assertIn("What the policy chose", page.inner_text("#choices"))
        before = page.locator("figure[data-chart=validation_loss] path.lane").first.get_attribute("d")
        page.select_option("#round", "1")
        self.wait_for(page, ALL_DRAWN)
        self.assertNotEqual(page.locator("figure[data-chart=validation_loss] path.lane").first.get_attribute("d"), before)
        self.assertEqual(self.complaints, [])

    def test_ppo_with_a_rule_says_that_no_policy_chose(self):
        for controller in ("none", "random", "heuristic", "gardener"):
            folder = self.folder / controller
            shutil.copytree(self.run_of("ppo"), folder)
            config = json.loads((folder / "config.json").read_text())
            (folder / "config.json").write_text(json.dumps({**config, "controller": controller}))
            self.assertEqual(run("report", str(folder)).returncode, 0)
            page = self.open((folder / "report.html").as_uri())
            self.assertIn("What the controller chose", page.inner_text("#choices"), controller)

    def test_hostile_text_stays_text(self):
        hostile = "</script><img src=x onerror=alert(1)><b>"
        folder = write_run(self.folder / "run", epochs=2, **{hostile: hostile})
        (folder / "environment.json").write_text(json.dumps({"job": hostile, "began": hostile, "device": hostile, "streams": 7}))
        with open(folder / "metrics.jsonl", "a") as metrics:
            metrics.write(json.dumps({**EPOCH, "epoch": 3, "validation_loss": None, "streams": {hostile: {"share": 0.5}}}) + "\n")
            metrics.write(json.dumps({"kind": "result", "classes": [hostile, "b"], "confusion": [[1, 2], [3, None]], "test_accuracy": None}) + "\n")
            metrics.write("cut {")
        run("report", str(folder))
        page = self.open((folder / "report.html").as_uri(), 400)
        self.assertEqual(self.complaints, [])
        self.assertEqual(page.locator("img, main b").count(), 0)
        self.assertIn(hostile, page.inner_text("#configuration"))
        self.assertLessEqual(max(page.evaluate(OVERFLOW)), 1)

    def test_an_empty_run_has_a_page(self):
        folder = write_run(self.folder / "run", epochs=0)
        run("report", str(folder))
        page = self.open((folder / "report.html").as_uri())
        self.assertEqual(self.complaints, [])
        self.assertIn("before its first epoch", page.inner_text("main"))

    def test_comparison(self):
        folders = [str(write_run(self.folder / name, epochs=3, seed=seed)) for seed, name in enumerate(("one", "two", "three"))]
        out = self.folder / "compare.html"
        run("compare", *folders, "--out", str(out))
        for width in (400, 1600):
            page = self.open(out.as_uri(), width)
            self.check_charts(page, {"validation_accuracy", "validation_loss"})
            self.assertLessEqual(page.evaluate(OVERFLOW)[0], 1)
            self.assertEqual(self.complaints, [])
        self.assertIn("seed", page.inner_text("#options"))
        for part in ("#results", "#options"):
            self.assertIn("three", page.inner_text(f"{part} thead"))

    @needs_server
    def test_a_live_page_follows_the_run(self):
        folder = write_run(self.folder / "run")
        with Watching(folder) as watching:
            page = self.open(watching.url)
            self.assertIn("1 of 3", page.inner_text(".stats"))
            with open(folder / "metrics.jsonl", "a") as metrics:
                metrics.write(json.dumps({**EPOCH, "epoch": 2, "validation_accuracy": 0.75}) + "\n")
            self.wait_for(page, "document.querySelector('.stats').innerText.includes('2 of 3')")
            self.assertIn("75.0", page.inner_text(".stats"))
            with open(folder / "metrics.jsonl", "a") as metrics:
                metrics.write('{"kind":"result","test_accuracy":0.5,"seconds":3}\n')
            self.wait_for(page, "document.querySelector('#state').innerText === 'finished'")
            self.assertEqual(self.complaints, [])
            began = time.monotonic()
        self.assertEqual(watching.code, 130)
        self.assertLess(time.monotonic() - began, 10 * patience())  # an open page does not hold it


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    unittest.main(argv=[sys.argv[0], *sys.argv[1:]])
