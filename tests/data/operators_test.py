"""The operators from Python: torch.ops.load_library() of libespalier_ops.so, and a gather against indexing."""

import os
import re
import unittest

import torch

torch.ops.load_library(os.environ["ESPALIER_OPS"])


def gather(fields, labels, affine, lanes, batch, plan="own", augment=False):
    channels, height, width = fields.shape[1:]
    out = torch.empty(lanes, batch, height, width, channels).permute(0, 1, 4, 2, 3)
    labels_out = torch.empty(lanes, batch, dtype=torch.int64)
    mask = torch.empty(lanes, batch, dtype=torch.bool)
    torch.ops.espalier.gather_into(
        [fields], labels, [affine], torch.arange(lanes), torch.tensor([0, 0]), plan, False, 7, batch, lanes,
        augment, True, 4, 7, [out], [labels_out], mask)
    return out, labels_out, mask


class GatherTest(unittest.TestCase):
    def setUp(self):
        generator = torch.Generator().manual_seed(1)
        images = torch.randint(0, 256, (20, 3, 6, 5), dtype=torch.uint8, generator=generator)
        self.images = images.contiguous(memory_format=torch.channels_last)
        self.labels = torch.arange(20) % 10
        self.affine = torch.tensor([[0.5, 1.0, 2.0], [0.0, 1.0, -1.0]])

    def test_gathers_in_file_order(self):
        out, labels, mask = gather(self.images, self.labels, self.affine, lanes=3, batch=8)
        want = self.images[:8].float() * self.affine[0].view(1, 3, 1, 1) + self.affine[1].view(1, 3, 1, 1)
        for lane in range(3):
            self.assertTrue(torch.equal(out[lane], want))
            self.assertTrue(out[lane].is_contiguous(memory_format=torch.channels_last))
            self.assertTrue(torch.equal(labels[lane], self.labels[:8]))
        self.assertTrue(mask.all())

    def test_gathers_the_same_bits_on_any_number_of_threads(self):
        threads, results = torch.get_num_threads(), []
        images = torch.randint(0, 256, (500, 3, 32, 32), dtype=torch.uint8).contiguous(memory_format=torch.channels_last)
        for count in (1, 2, 3, 5):
            torch.set_num_threads(count)
            results.append(gather(images, torch.arange(500) % 10, self.affine, lanes=3, batch=50, augment=True)[0])
        torch.set_num_threads(threads)
        for result in results[1:]:
            self.assertTrue(torch.equal(result, results[0]))

    def test_shares_torchs_threads(self):
        with open("/proc/self/maps") as maps:
            runtimes = {line.split()[-1] for line in maps if re.search(r"/lib(gomp|omp|iomp)", line)}
        self.assertLessEqual(len(runtimes), 1, runtimes)

    def test_names_what_it_refuses(self):
        with self.assertRaisesRegex(RuntimeError, "plan: want split, own or shared, got 'none'"):
            gather(self.images, self.labels, self.affine, lanes=1, batch=2, plan="none")


if __name__ == "__main__":
    unittest.main(argv=["operators_test.py"])
