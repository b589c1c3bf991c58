"""`espalier bench scaling` in small: figures, fits and the picture. python bench_scaling_test.py ESPALIER"""

import json
import pathlib
import sys
import xml.etree.ElementTree

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "cli"))
from program import Case, main  # noqa: E402


class BenchScaling(Case):
    def test_measures_fits_and_draws_every_axis(self):
        printed = self.run_well("bench", "scaling", "--smoke", "--device", "cpu", "--out", "s.json", "--svg", "s.svg")
        results = json.loads(pathlib.Path(self.path("s.json")).read_text())
        self.assertEqual([curve["axis"] for curve in results["curves"]], ["lanes", "batch", "channels", "resolution"])
        for key in ("machine", "commit", "command", "precision", "began"):
            self.assertTrue(results[key], key)
        points = 0
        for curve in results["curves"]:
            sizes = [point["size"] for point in curve["points"]]
            self.assertEqual(sizes, [sizes[0] * 2**i for i in range(len(sizes))])
            points += len(sizes)
            fit = curve["fit"]
            for point in curve["points"]:
                self.assertGreater(point["median_us"], 0)
                self.assertAlmostEqual(point["fit_us"], max(fit["floor_us"], fit["start_us"] + fit["slope_us"] * point["size"]))
            far = max(abs(point["fit_us"] / point["median_us"] - 1) for point in curve["points"])
            self.assertAlmostEqual(far, fit["largest_error"])
            self.assertTrue(sizes[0] <= fit["knee"] <= sizes[-1])
            self.assertIn(f"\n{curve['axis']} ({curve['shapes']}): ", printed)
        picture = xml.etree.ElementTree.parse(self.path("s.svg")).getroot()
        self.assertEqual(len(picture.findall("{http://www.w3.org/2000/svg}circle")), points)
        text = pathlib.Path(self.path("s.svg")).read_text()
        for part in (results["machine"], results["commit"], "bench scaling --smoke"):
            self.assertIn(part, text)

    def test_measures_the_axes_it_is_asked_for(self):
        printed = self.run_well("bench", "scaling", "--smoke", "--device", "cpu", "--axes", "batch")
        self.assertIn("\nbatch (", printed)
        self.assertNotIn("\nlanes (", printed)
        self.assert_refused(["bench", "scaling", "--axes", "depth"], "--axes 'depth'", "resolution")


if __name__ == "__main__":
    main()
