"""`espalier bench growing` in small: what its cost model predicts, beside what was measured. python growing_model_test.py ESPALIER"""

import json
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "cli"))
from program import Case, main  # noqa: E402

SMALL = ["bench", "growing", "--smoke", "--device", "cpu", "--no-peers", "--json", "lines.json"]


class BenchGrowing(Case):
    def lines(self):
        return [json.loads(line) for line in pathlib.Path(self.path("lines.json")).read_text().splitlines()]

    def test_predicts_the_step_with_all_kinds_beside_what_was_measured(self):
        printed = self.run_well(*SMALL)
        [model] = [line for line in self.lines() if line.get("model") == "growing step"]
        cases = {line["case"]: line for line in self.lines() if "case" in line}
        self.assertEqual(model["measured_us"], cases["espalier, 7 seeds: a step"]["median_us"])
        self.assertEqual(model["bare_us"], cases["espalier, bare: a step"]["median_us"])
        self.assertEqual(model["stacks"], 7)  # of seven kinds, one seed each
        by_hand = model["bare_us"] + sum(model[f"{price}_us"] * model[work] for price, work in (("stack", "stacks"), ("byte", "bytes"), ("flop", "flops")))
        self.assertAlmostEqual(model["predicted_us"], by_hand, delta=1e-6 * by_hand)
        self.assertAlmostEqual(model["error"], model["predicted_us"] / model["measured_us"] - 1)
        self.assertGreater(model["bytes"], 0)
        self.assertGreater(model["flops"], 0)
        self.assertEqual(cases["cost model, 7 stacks: a step"]["median_us"], model["predicted_us"])
        for key in ("workload", "machine", "commit", "time", "shapes"):
            self.assertTrue(model[key], key)
        names = [line.split("  ")[0] for line in printed.splitlines()]
        self.assertEqual(names.index("cost model, 7 stacks: a step"), names.index("espalier, 7 seeds: a step") + 1)
        way = "below" if model["error"] < 0 else "above"
        said = re.search(r"(?m)^cost model: a bare step of .* predicts ([\d.]+) us, ([\d.]+) % (\w+) what was measured$", printed)
        self.assertTrue(said, printed)
        self.assertEqual((said[1], said[2], said[3]), (f"{model['predicted_us']:.1f}", f"{abs(100 * model['error']):.1f}", way))

    def test_floors_hold_nothing_that_was_measured_of_ours(self):
        printed = self.run_well(*SMALL, "--no-model")
        floors = {line["case"]: line["floor_us"] for line in self.lines()}
        bare, grown = floors["espalier, bare: a step"], floors["espalier, 7 seeds: a step"]
        self.assertGreater(bare, 0)
        self.assertGreater(grown, bare)
        self.assertGreater(floors["espalier, bare: validation"], 0)
        # An epoch was run, and is not the sum.
        said = re.search(r"(?m)^an epoch of 2 steps and a validation: ([\d.]+) s with 7 seeds \((.*?)\), ([\d.]+) s without", printed)
        self.assertTrue(said, printed)
        self.assertRegex(said[2], r"^steps and validation, timed apart, add up to [\d.]+ s$")

    def test_is_silent_where_it_is_not_asked_or_nothing_grew(self):
        for flags in (["--no-model"], ["--seeds", "0"]):
            self.assertNotIn("cost model", self.run_well(*SMALL, *flags))
        self.assertFalse([line for line in self.lines() if "model" in line])


if __name__ == "__main__":
    main()
