"""Event files as TensorBoard's own readers see them: what is in them, and what a resumed run takes back."""

import io
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator as ServerAccumulator
from tensorboard.plugins.custom_scalar import layout_pb2

LANES = 20
EVERYTHING = {"scalars": 0, "histograms": 0, "images": 0, "tensors": 0}  # 0: no sampling


def points(scalars):
    return [(scalar.step, scalar.value) for scalar in scalars]


class TensorboardTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        result = subprocess.run([os.environ["ESPALIER_WATCH_TESTS"], "--gtest_filter=EventsForTensorboard.*"],
                                env=dict(os.environ, ESPALIER_EVENTS_OUT=cls.folder.name), capture_output=True, text=True)
        assert "[  PASSED  ] 1 test" in result.stdout, result.stdout + result.stderr
        cls.files = sorted(pathlib.Path(cls.folder.name).iterdir())
        cls.first = EventAccumulator(str(cls.files[0]), size_guidance=EVERYTHING).Reload()
        # A record that a killed process left half written must not hide the file behind it.
        with open(cls.files[0], "ab") as file:
            file.write(cls.files[0].read_bytes()[:30])
        cls.whole = EventAccumulator(cls.folder.name, size_guidance=EVERYTHING).Reload()
        cls.server = ServerAccumulator(cls.folder.name, size_guidance=EVERYTHING).Reload()  # what `tensorboard` uses

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_there_is_a_file_a_start(self):
        self.assertEqual(len(self.files), 2)

    def test_scalars_are_those_of_the_lines(self):
        self.assertEqual(points(self.first.Scalars("losses/policy_loss")), [(4, 1), (8, 1), (12, 1)])
        self.assertEqual(points(self.first.Scalars("validation_accuracy/lane_15")), [(step, 1) for step in range(1, 13)])
        self.assertEqual(points(self.first.Scalars("温 🌳/\"quoted\"\n")), [(0, 0.25)])
        self.assertNotIn("validation_accuracy/lane_16", self.first.Tags()["scalars"])

    def test_a_resumed_run_takes_back_what_came_later(self):
        again = [(step, 1) for step in range(1, 7)] + [(7, 2), (8, 2)]
        self.assertEqual(points(self.whole.Scalars("validation_accuracy/lane_00")), again)
        self.assertEqual(points(self.whole.Scalars("losses/policy_loss")), [(4, 1), (8, 2)])
        self.assertEqual(points(self.whole.Scalars("result/last_return")), [(8, 0.5)])
        histograms = self.whole.Histograms("gradient_norm/lanes")
        self.assertEqual([(each.step, each.histogram_value.max) for each in histograms],
                         [(step, LANES * start) for step, start in again])

    def test_histograms_hold_all_lanes(self):
        for event in self.first.Histograms("gradient_norm/lanes"):
            value = event.histogram_value
            self.assertEqual((value.min, value.max, value.num, value.sum), (1, LANES, LANES, LANES * (LANES + 1) / 2))
            self.assertEqual(value.sum_squares, sum(i * i for i in range(1, LANES + 1)))
            below = value.min
            for limit, count in zip(value.bucket_limit, value.bucket):
                self.assertEqual(count, sum(below <= norm < limit for norm in range(1, LANES + 1)))
                below = limit
            self.assertEqual(sum(value.bucket), LANES)

    def test_pictures_decode_to_their_pixels(self):
        for channels, mode in {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}.items():
            (event,) = self.first.Images(f"images/{channels}")
            self.assertEqual((event.width, event.height), (7, 5))
            picture = Image.open(io.BytesIO(event.encoded_image_string))
            self.assertEqual((picture.size, picture.mode, picture.format), ((7, 5), mode, "PNG"))
            self.assertEqual(picture.tobytes(), bytes(i * 31 % 256 for i in range(7 * 5 * channels)))
        (event,) = self.first.Images("images/large")
        picture = Image.open(io.BytesIO(event.encoded_image_string))
        self.assertEqual(picture.tobytes(), bytes((i * i >> 7) % 256 for i in range(300 * 200 * 3)))

    def test_every_tag_is_of_one_kind_to_the_server(self):
        kind = {tag: self.server.SummaryMetadata(tag).plugin_data.plugin_name for tag in self.server.Tags()["tensors"]}
        self.assertEqual(kind["losses/policy_loss"], "scalars")
        self.assertEqual(kind["gradient_norm/lanes"], "histograms")
        self.assertEqual(kind["images/3"], "images")

    def test_curves_of_all_lanes_share_an_axis(self):
        (event,) = {each.tensor_proto.string_val[0] for each in self.server.Tensors("custom_scalars__config__")}
        layout = layout_pb2.Layout.FromString(event)
        charts = {chart.title: list(chart.multiline.tag) for category in layout.category for chart in category.chart}
        scalars = {tag for tag in self.server.Tags()["tensors"]
                   if self.server.SummaryMetadata(tag).plugin_data.plugin_name == "scalars"}
        self.assertEqual(len([tag for tag in scalars if re.match(charts["validation_accuracy"][0], tag)]), 16)
        self.assertIn("train_loss", charts)
        self.assertEqual(self.server.SummaryMetadata("custom_scalars__config__").plugin_data.plugin_name, "custom_scalars")

    def test_the_server_too_sees_a_resumed_run_without_a_zigzag(self):
        for tag, steps in {"validation_accuracy/lane_00": [1, 2, 3, 4, 5, 6, 7, 8], "losses/policy_loss": [4, 8],
                           "gradient_norm/lanes": [1, 2, 3, 4, 5, 6, 7, 8], "images/1": [0]}.items():
            self.assertEqual([each.step for each in self.server.Tensors(tag)], steps, tag)


if __name__ == "__main__":
    unittest.main(argv=["tensorboard_test.py"])
