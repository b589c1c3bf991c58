"""One network that several processes train, each on its part of every batch: how near it is to that of one process."""

import array
import json
import shutil
import signal
import time

from rank_processes import (LIMIT, RANDOM, Ranks, alone, must_be_alike, must_name, rank_bytes, results, run_drills, the_error, wait_for_lines,
                            wait_until)

# All that is drawn, and all that depends on a whole batch, is switched on. SGD: AdamW divides by the size of gradients, and makes as much
# of one that is all rounding as of any other.
LINET = ["train", "linet", "--synthetic-train", "50", "--synthetic-test", "20", "--synthetic-size", "32x32", "--crop-pad", "1", "--threads", "1",
         "--device", "cpu", "--width", "0.0625", "--batch", "8", "--optimizer", "sgd", "--learning-rate", "0.02", "--modality-dropout", "0.4",
         "--modality-ramp", "0", "--dropout", "0.2", "--balance", "0.05", "--clip", "1"]
# Steps enough that a signal comes in the middle; the norms of a rank's part are far from those of the whole batch.
HOST = ["train", "host", "--synthetic-train", "120", "--synthetic-test", "20", "--synthetic-size", "16x16", "--crop-pad", "1", "--threads", "1",
        "--device", "cpu", "--batch", "8", "--learning-rate", "0.05"]


def tensors_in(data):
    """The f32 and f64 tensors of a safetensors file, by name."""
    length = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:length])
    types = {"F32": "f", "F64": "d"}
    return {name: array.array(types[entry["dtype"]], data[length + entry["data_offsets"][0]:length + entry["data_offsets"][1]])
            for name, entry in header.items() if name != "__metadata__" and entry["dtype"] in types}


def distance(one, other):
    """Between two runs of one network, of train linet or train host: the largest difference in a tensor of the network, beside that
    tensor's largest value, and the largest in a line, beside the number there."""
    weights, others = tensors_in(one[3]), tensors_in(other[3])
    assert weights.keys() == others.keys()
    apart = max(max(abs(x - y) for x, y in zip(values, others[name])) / max(map(abs, values))
                for name, values in weights.items() if name.startswith(("network.", "host.")) and any(values))
    lines, wanted_lines = ([line for line in lines if line["kind"] != "memory_format"] for lines in (one[0], other[0]))
    assert len(lines) == len(wanted_lines)
    for line, wanted in zip(lines, wanted_lines):
        assert line.keys() == wanted.keys()
        apart = max([apart] + [abs(line[key] - wanted[key]) / max(abs(wanted[key]), 1e-3) for key in line if isinstance(wanted[key], float)])
    return apart


def hit_at_work(job, run_dir, hit):
    """Two ranks whose run was not over when `hit` came to them, in the middle of it; where it was, on a busy machine, they begin anew."""
    for _ in range(20):
        ranks = Ranks(2, *job, "--run-dir", run_dir, "--checkpoint-minutes", 0)
        wait_for_lines(ranks, run_dir, 1)
        hit(ranks)
        ranks.wait(60)
        if '"kind":"result"' not in (run_dir / "metrics.jsonl").read_text():
            return ranks
        shutil.rmtree(run_dir)
    raise AssertionError(f"{run_dir.name}: the run was over twenty times before it was hit")


def trained_together(folder, command, most_rounding):
    """With --sync-norm 2 and 4 ranks come to the network of one process, but for roundings, and no further from it than that process
    comes in another memory format, which rounds otherwise. Stopped by a signal to one rank: the same ranks go on exactly, one process
    but for roundings."""
    job = [*command, "--epochs", 2, "--sync-norm"]
    alone(*job, "--run-dir", folder / "one")
    one = results(folder / "one")
    alone(*job, "--run-dir", folder / "contiguous", "--memory-format", "contiguous")
    rounding = distance(results(folder / "contiguous"), one)
    assert 0 < rounding < most_rounding, rounding

    def must_be_near(name):
        apart = distance(results(folder / name), one)
        print(f"  {name}: {apart:.1e} from one process; another memory format: {rounding:.1e}")
        assert apart <= 4 * rounding, f"{name}: {apart} from one process, where roundings make {rounding}"

    for size in (2, 4):
        ended = Ranks(size, *job, "--run-dir", folder / f"of_{size}").must_succeed()
        assert "test accuracy" in ended[0][0] and ended[1][0] == "", "rank 0 speaks, and nobody else"
        must_be_near(f"of_{size}")
    assert json.loads((folder / "of_2" / "environment.json").read_text())["ranks"] == 2

    stopped = hit_at_work(job, folder / "stopped", lambda ranks: ranks.processes[1].send_signal(signal.SIGTERM))
    for rank, (_, errors, code) in stopped.wait(60).items():
        assert code == 143, f"rank {rank}: exit {code}: {errors}"
    shutil.copytree(folder / "stopped", folder / "on_by_one")
    alone(*job, "--run-dir", folder / "on_by_one")
    must_be_near("on_by_one")
    Ranks(2, *job, "--run-dir", folder / "stopped").must_succeed()
    must_be_alike(folder / "stopped", results(folder / "of_2"))


def a_linet_is_trained_by_ranks_together(folder):
    """Without --sync-norm a step adds up gradients, the heads' and running statistics besides, and ten numbers per stream and for the whole;
    validation its score."""
    trained_together(folder, LINET, 1e-3)
    assert rank_bytes(folder / "of_2") > 0
    Ranks(2, *LINET, "--epochs", 1, "--run-dir", folder / "apart").must_succeed()
    steps, parameters, heads, running, streams, classes = 5, 160269, 891, 2400, 3, 9
    summed = steps * (4 * (parameters + heads + running) + 80 * (streams + 1)) + 8 * (2 + 2 * streams + classes * classes)
    assert rank_bytes(folder / "apart") == 2 * summed, rank_bytes(folder / "apart")


def a_host_is_trained_by_ranks_together(folder):
    """As a LINet. Without --sync-norm the networks of 2 and of 4 ranks are others. A step adds up gradients, running statistics without
    --sync-norm or three sums per norm with it, and four numbers; validation three for each way to score a network."""
    trained_together(folder, HOST, 1e-3)
    steps, channels, classes, slots = 13, (32, 64, 128), 10, 6
    parameters = 9 * (3 * 32 + 32 * 64 + 64 * 128) + 2 * sum(channels) + 129 * classes
    scores = 8 * 3 * (1 + slots)
    synced = steps * (4 * parameters + 8 * sum(4 * each + 1 for each in channels) + 8 * 4) + scores
    assert [rank_bytes(folder / f"of_{size}") for size in (2, 4)] == [2 * synced, 3 * synced], rank_bytes(folder / "of_2")
    one = results(folder / "one")
    for size in (2, 4):
        Ranks(size, *HOST, "--epochs", 2, "--run-dir", folder / f"apart_{size}").must_succeed()
        apart = distance(results(folder / f"apart_{size}"), one)
        assert apart > 0.02, f"{size} ranks have the statistics of one process: {apart}"
    averaged = steps * (4 * (parameters + 2 * sum(channels)) + 8 * 4) + scores
    assert rank_bytes(folder / "apart_2") == 2 * averaged, rank_bytes(folder / "apart_2")


def a_rank_of_one_network_is_killed(folder):
    """kill -9 of a rank in the middle of a step, with norms of each rank's own; the same command goes on to the end of ranks that nothing
    disturbed. A batch that does not divide is refused."""
    for name, command, epochs in (("linet", LINET, 6), ("host", HOST, 20)):
        own = folder / name
        own.mkdir()
        job = [*command, "--epochs", epochs]
        Ranks(2, *job, "--run-dir", own / "whole").must_succeed()
        lost, began = RANDOM.randrange(2), 0

        def kill(ranks):
            nonlocal began
            wait_until(ranks, lambda: any(not path.name.startswith(".") for path in (own / "run" / "checkpoints").glob("*")))
            time.sleep(RANDOM.uniform(0, 0.3))
            ranks.processes[lost].kill()
            began = time.monotonic()

        ranks = hit_at_work([*job, "--rank-limit", LIMIT], own / "run", kill)
        took = must_name(ranks, lost, began, own)
        print(f"  {name}: rank {lost} killed: noticed in {took:.1f} s")
        Ranks(2, *job, "--run-dir", own / "run").must_succeed()
        must_be_alike(own / "run", results(own / "whole"))
        odd = Ranks(2, *command, "--batch", 7, "--run-dir", own / "odd").wait(60)
        said = [the_error(errors) for _, errors, code in odd.values() if "--batch 7" in errors]
        assert said and "multiple of 2" in said[0], odd


if __name__ == "__main__":
    run_drills(a_linet_is_trained_by_ranks_together, a_host_is_trained_by_ranks_together, a_rank_of_one_network_is_killed)
