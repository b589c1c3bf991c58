"""Several processes on one job: the same bits as one process, and what happens when a rank is lost.

Ranks are started by their environment; by torchrun itself where restarts are its matter.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from rank_processes import (ENVIRONMENT, ESPALIER, LIBRARY, LIMIT, PACKAGE, RANDOM, Ranks, alone, children_of, free_port, must_be_alike, must_be_whole,
                            must_name, patience, rank_bytes, results, run_drills, the_error, wait_for_lines, wait_for_sessions, without_times)

DATA = ["--synthetic-train", "120", "--synthetic-test", "40", "--synthetic-size", "8x8", "--crop-pad", "1", "--threads", "1"]
POPULATION = ["train", "population", *DATA, "--batch", "12", "--controller", "random", "--embargo", "1", "--gate-training-steps", "1"]
PPO = ["train", "ppo", *DATA, "--envs", "4", "--batch-per-env", "10", "--episode-length", "5", "--encoder-size", "8",
       "--hidden-size", "8"]


def lanes_do_not_feel_where_they_run(folder):
    """2 ranks with 4 lanes each, 3 with unequal shares, and 4 leave the files of 1 with 8."""
    job = [*POPULATION, "--lanes", 8, "--epochs", 6, "--plan", "own"]
    alone(*job, "--devices", "cpu", "--run-dir", folder / "one")
    expected = results(folder / "one")
    assert any(line.get("seeds") for line in expected[0]), "nothing grew: this would show little"
    for size in (2, 3, 4):
        ended = Ranks(size, *job, "--devices", "cpu", "--run-dir", folder / f"of_{size}").must_succeed()
        must_be_alike(folder / f"of_{size}", expected)
        assert "test accuracy" in ended[0][0] and ended[1][0] == "", "rank 0 speaks, and nobody else"
    lines = [json.loads(line) for line in (folder / "of_2" / "metrics.jsonl").read_text().splitlines()]
    assert all(line["time/rank_bytes"] > 0 for line in lines if line["kind"] == "epoch")
    assert json.loads((folder / "of_2" / "environment.json").read_text())["ranks"] == 2


def messages_have_the_size_that_is_documented(folder):
    """By the formula of docs/scaling.md, for the first epoch: rank 0 of 2 and of 4, and of one process nothing."""
    lanes, lane_bytes = 8, 1430
    job = ["train", "population", *DATA, "--batch", "12", "--controller", "none", "--lanes", lanes, "--epochs", 1, "--devices", "cpu"]
    alone(*job, "--run-dir", folder / "of_1")
    assert rank_bytes(folder / "of_1") == 0
    for size in (2, 4):
        Ranks(size, *job, "--run-dir", folder / f"of_{size}").must_succeed()
        model = (lanes - lanes // size) * lane_bytes + 24 * lanes * (size - 1) + 32 * size - 16
        measured = rank_bytes(folder / f"of_{size}")
        print(f"  {size} ranks: {measured} bytes, {model} by the formula")
        assert abs(measured - model) <= model / 100, f"{size} ranks: {measured} bytes, {model} by the formula"


def one_pass_is_shared_out_over_all_ranks(folder):
    """--plan split: the same samples for a lane, whatever the number of ranks; also with two shards in one process."""
    job = [*POPULATION, "--lanes", 4, "--epochs", 3, "--plan", "split", "--batch", 8]
    alone(*job, "--devices", "cpu", "--run-dir", folder / "one")
    expected = results(folder / "one")
    alone(*job, "--devices", "cpu,cpu", "--run-dir", folder / "two_shards")
    must_be_alike(folder / "two_shards", expected)
    Ranks(2, *job, "--devices", "cpu", "--run-dir", folder / "two_ranks").must_succeed()
    must_be_alike(folder / "two_ranks", expected)


def resumed_with_another_number_of_ranks(folder):
    """Stopped by a signal to one rank, in the middle of an epoch; gone on with by fewer and more; the end is that of one process."""
    job = [*POPULATION, "--lanes", 6, "--epochs", 24]
    alone(*job, "--devices", "cpu", "--run-dir", folder / "whole", "--checkpoint-minutes", 1000)
    run_dir = folder / "run"
    for size in (2, 3):
        ranks = Ranks(size, *job, "--run-dir", run_dir, "--devices", "cpu")
        wait_for_sessions(ranks, run_dir, size - 1)
        wait_for_lines(ranks, run_dir, 7 * (size - 1))
        ranks.processes[size - 1].send_signal(signal.SIGTERM)
        for rank, (_, errors, code) in ranks.wait(60).items():
            assert code == 143, f"of {size}, rank {rank}: exit {code}: {errors}"
        results(run_dir)
    alone(*job, "--devices", "cpu,cpu", "--run-dir", run_dir)
    must_be_alike(run_dir, results(folder / "whole"))
    sessions = json.loads((run_dir / "environment.json").read_text())["sessions"]
    assert [bool(session["resumed"]) for session in sessions] == [False, True, True], sessions


def a_policy_learns_the_same_over_ranks(folder):
    """One policy at rank 0, whose networks are at all ranks; also when one process, or three ranks, go on from the middle of what two did."""
    job = [*PPO, "--rounds", 3, "--devices", "cpu"]
    alone(*job, "--run-dir", folder / "one")
    expected = results(folder / "one")
    Ranks(2, *job, "--run-dir", folder / "two", "--checkpoint-minutes", 0, "--keep-checkpoints", 1000).must_succeed()
    names = sorted(path.name for path in (folder / "two" / "checkpoints").iterdir())
    for size in (1, 3):
        on = folder / f"on_by_{size}"
        shutil.copytree(folder / "two", on)
        resume = [*job, "--resume", on / "checkpoints" / names[len(names) // 2], "--checkpoint-minutes", 1000]
        if size == 1:
            alone(*resume)
        else:
            Ranks(size, *resume).must_succeed()
    for name in ("two", "on_by_1", "on_by_3"):
        must_be_alike(folder / name, expected)
        assert weights_in(folder / name / "policy.safetensors") == weights_in(folder / "one" / "policy.safetensors"), name
    more = [*PPO, "--rounds", 5, "--devices", "cpu", "--run-dir", folder / "more"]
    ended = Ranks(2, {0: [*more, "--resume", folder / "one" / "policy.safetensors"], 1: more}).wait(60)
    assert ended[0][2] == 2 and "rank 1" in the_error(ended[0][1]) and "--resume" in ended[0][1], ended
    assert not (folder / "more").exists(), "nothing is left of a run that did not begin"


def weights_in(path):
    """A safetensors file without its header, which says where the run was."""
    data = path.read_bytes()
    return data[8 + int.from_bytes(data[:8], "little"):]


def comparisons_are_the_same_over_ranks(folder):
    """The lines, the recordings, and the networks that are kept, byte for byte, under every kind of controller. Rank 1 works elsewhere, and
    leaves nothing there."""
    growth = ["--envs", 3, "--batch-per-env", 10, "--episode-length", 8, "--embargo", 1, "--gate-training-steps", 1, "--devices", "cpu"]
    alone("train", "ppo", *DATA, *growth, "--rounds", 1, "--encoder-size", 8, "--hidden-size", 8, "--run-dir", folder / "learned")
    controllers = ["none", "random", "heuristic", f"ppo:{folder / 'learned' / 'policy.safetensors'}", "static", "replay"]
    job = ["evaluate", *DATA, *growth, "--controllers", ",".join(controllers), "--episodes", 2, "--seed", 7]
    alone(*job, "--run-dir", folder / "one", "--keep", folder / "kept_by_one")
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    Ranks(2, *job, "--run-dir", "two", "--keep", folder / "kept_by_two", folders={0: folder, 1: elsewhere}).must_succeed()
    assert not list(elsewhere.iterdir()), list(elsewhere.iterdir())
    one, two = ([without_times(json.loads(line)) for line in (folder / name / "metrics.jsonl").read_text().splitlines()]
                for name in ("one", "two"))
    assert one == two, "the lines differ"
    recorded, again = (files_in(folder / name / "recordings") for name in ("one", "two"))
    assert recorded == again and len(recorded) == len(controllers), (recorded.keys(), again.keys())
    kept, again = (files_in(folder / name) for name in ("kept_by_one", "kept_by_two"))
    assert kept == again, f"the networks differ: {[name for name in {*kept, *again} if kept.get(name) != again.get(name)]}"
    lanes = {int(name.split("_lane")[1].split(".")[0]) for name in kept}
    assert len(kept) == 4 * len(controllers) and 1 in lanes and lanes & {0, 2}, f"this would show little: not of both ranks, but of {lanes}"
    assert any(b".seed." in data for name, data in kept.items() if "lane1" in name), "nothing grew at the other rank: this would show little"


def files_in(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def endless(folder, size=2, lanes=4):
    ranks = Ranks(size, *POPULATION, "--lanes", lanes, "--epochs", 100000, "--devices", "cpu", "--run-dir", folder / "run",
                  "--checkpoint-minutes", 0, "--rank-limit", LIMIT)
    wait_for_lines(ranks, folder / "run", 2 * lanes)
    return ranks


def a_rank_is_killed(folder):
    """kill -9 of each rank, rank 0 with its store too, at a random moment; the same command goes on to the end of one process."""
    job = [*POPULATION, "--lanes", 4, "--epochs", 40, "--devices", "cpu"]
    alone(*job, "--run-dir", folder / "whole", "--checkpoint-minutes", 1000)
    for lost in (0, 1):
        own = folder / f"lost_{lost}"
        own.mkdir()
        ranks = Ranks(2, *job, "--run-dir", own / "run", "--checkpoint-minutes", 0, "--rank-limit", LIMIT)
        wait_for_lines(ranks, own / "run", RANDOM.randrange(10, 75))
        ranks.processes[lost].kill()
        took = must_name(ranks, lost, time.monotonic(), own)
        print(f"  rank {lost} killed: noticed in {took:.1f} s")
        Ranks(2, *job, "--run-dir", own / "run").must_succeed()
        must_be_alike(own / "run", results(folder / "whole"))


def one_of_four_is_killed_at_any_moment(folder):
    """From the start on, also before they have met: the others end with one sentence each, and the same command goes on to the end of one
    process."""
    job = [*POPULATION, "--lanes", 4, "--epochs", 12, "--devices", "cpu"]
    alone(*job, "--run-dir", folder / "whole", "--checkpoint-minutes", 1000)
    for attempt in range(2):
        run_dir = folder / f"run_{attempt}"
        ranks = Ranks(4, *job, "--run-dir", run_dir, "--checkpoint-minutes", 0, "--rank-limit", LIMIT)
        moment, lost = RANDOM.uniform(0, 6), RANDOM.randrange(4)
        time.sleep(moment)
        ranks.processes[lost].kill()
        ended = ranks.wait(60)
        is_over = '"kind":"result"' in (run_dir / "metrics.jsonl").read_text() if (run_dir / "metrics.jsonl").exists() else False
        for rank, (_, errors, code) in ended.items():
            if rank == lost or (code == 0 and is_over):
                continue
            assert code == 1 and the_error(errors), f"rank {rank}: exit {code}: {errors}"
        has_checkpoints = any(not path.name.startswith(".") for path in (run_dir / "checkpoints").glob("*"))
        print(f"  rank {lost} of 4 killed after {moment:.1f} s, {'with' if has_checkpoints else 'before the first of'} its checkpoints")
        if has_checkpoints:
            must_be_whole(run_dir)
        Ranks(4, *job, "--run-dir", run_dir).must_succeed()
        must_be_alike(run_dir, results(folder / "whole"))


def a_rank_is_stopped(folder):
    """SIGSTOP beyond the limit: a rank that hangs, of four, and the rank that keeps the store."""
    for size, lost in ((4, 2), (2, 0)):
        own = folder / f"stopped_{lost}"
        own.mkdir()
        ranks = endless(own, size)
        ranks.processes[lost].send_signal(signal.SIGSTOP)
        took = must_name(ranks, lost, time.monotonic(), own)
        # When it goes on it finds that it was given up.
        ranks.processes[lost].send_signal(signal.SIGCONT)
        _, errors = ranks.processes[lost].communicate(timeout=30 * patience())
        assert ranks.processes[lost].returncode == 1, errors
        print(f"  rank {lost} of {size} stopped: noticed in {took:.1f} s")


def ranks_that_do_not_meet(folder):
    """A wrong address, also one of a service that has nothing to say, and a rank that never comes: one sentence each, within the limit and a
    little."""
    job = [*POPULATION, "--lanes", 2, "--epochs", 1, "--devices", "cpu", "--rank-limit", LIMIT, "--run-dir", folder / "run"]
    wrong = Ranks(2, *job, only=[1])
    began = time.monotonic()
    missing = Ranks(2, *job, only=[0])
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        unheard = Ranks(2, *job, only=[1], port=silent.getsockname()[1])
        (_, errors, code), = unheard.wait(60).values()
    assert code == 1 and f"127.0.0.1:{unheard.port}" in the_error(errors) and "has not answered" in errors and "MASTER_ADDR" in errors, errors
    (_, errors, code), = wrong.wait(60).values()
    assert code == 1 and f"127.0.0.1:{wrong.port}" in the_error(errors) and "MASTER_ADDR" in errors, errors
    (_, errors, code), = missing.wait(60).values()
    assert code == 1 and "rank 1" in the_error(errors) and "did not come" in errors, errors
    assert time.monotonic() - began < (2 * LIMIT + 10) * patience()
    assert not (folder / "run").exists(), "nothing is left of a run that did not begin"


def ranks_that_differ(folder):
    """Flags, and a job that is one process's, are refused with a sentence."""
    job = [*POPULATION, "--lanes", 2, "--epochs", 1, "--devices", "cpu", "--rank-limit", LIMIT, "--run-dir", folder / "run"]
    ended = Ranks(2, {0: job, 1: [*job, "--seed", "9"]}).wait(60)
    assert ended[0][2] == 2 and "rank 1" in the_error(ended[0][1]), ended[0][1]
    assert "config, seed: rank 0 has 0, rank 1 has 9;" in ended[0][1], ended[0][1]
    assert ended[1][2] == 1 and "rank 0 failed" in the_error(ended[1][1]), ended[1][1]
    few = Ranks(2, *job[:-2], "--run-dir", folder / "few", "--lanes", 1).wait(60)
    said = [errors for _, errors, code in few.values() if "--lanes 1" in errors and code in (1, 2)]
    assert said, few
    often = [*job[:-2], "--run-dir", folder / "often"]
    Ranks(2, {0: often, 1: [*often, "--checkpoint-minutes", "0"]}).must_succeed()  # that of rank 0 holds
    # Before the networks, which have other sizes, are sent.
    linet = ["train", "linet", "--synthetic-train", "50", "--synthetic-test", "20", "--synthetic-size", "32x32", "--threads", "1", "--device", "cpu",
             "--batch", "8", "--epochs", 1, "--rank-limit", LIMIT, "--run-dir", folder / "linet"]
    ended = Ranks(2, {0: [*linet, "--width", "0.0625"], 1: [*linet, "--width", "0.125"]}).wait(60)
    assert ended[0][2] == 2 and "rank 1" in the_error(ended[0][1]) and "width" in ended[0][1], ended
    assert not (folder / "linet").exists(), "nothing is left of a run that did not begin"
    for launcher in ({"RANK": "0", "WORLD_SIZE": "2"}, {"OMPI_COMM_WORLD_SIZE": "2"}, {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "4"},
                     {"PMI_RANK": "0", "PMI_SIZE": "4"}):
        refused = subprocess.run([ESPALIER, *map(str, job)], env=dict(ENVIRONMENT, **launcher), capture_output=True, text=True)
        assert refused.returncode == 2 and "-m espalier" in the_error(refused.stderr) and list(launcher)[-1] in refused.stderr, refused.stderr
    one = Ranks(2, "plan", "population", "--devices", "cpu", only=[0]).wait(60)
    assert one[0][2] == 2 and "one process" in the_error(one[0][1]), one
    alone_in_python = Ranks(1, *job[:-2], "--run-dir", folder / "python").must_succeed()
    assert "test accuracy" in alone_in_python[0][0]


def one_process_in_a_batch_script(folder):
    """What Slurm and MPI say of a single process, or of a job whose step this is not, refuses nothing."""
    job = [*POPULATION, "--lanes", 2, "--epochs", 1, "--devices", "cpu"]
    for place, launcher in enumerate(({"SLURM_PROCID": "0", "SLURM_NTASKS": "8"}, {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1", "PMI_SIZE": "4"},
                                      {"RANK": "0", "WORLD_SIZE": "1", "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "8"}, {"PMI_SIZE": "1"})):
        done = subprocess.run([ESPALIER, *map(str, job), "--run-dir", folder / str(place)], env=dict(ENVIRONMENT, **launcher), capture_output=True,
                              text=True)
        assert done.returncode == 0, (launcher, done.stderr)


def a_group_of_one_changes_nothing(folder):
    """--backend that is named: the messages of a single rank travel as those of many, and all bits are those of a run without a group. The
    program without Python has nothing to make one with."""
    linet = ["train", "linet", "--synthetic-train", "50", "--synthetic-test", "20", "--synthetic-size", "32x32", "--threads", "1", "--device", "cpu",
             "--batch", "8", "--width", "0.0625", "--epochs", 1]
    host = ["train", "host", *DATA, "--batch", "12", "--device", "cpu", "--epochs", 2]
    for name, job in (("population", [*POPULATION, "--lanes", 3, "--epochs", 3, "--devices", "cpu"]), ("host", host), ("linet", linet)):
        alone(*job, "--run-dir", folder / name)
        in_a_group = subprocess.run([sys.executable, "-m", "espalier", *map(str, job), "--backend", "gloo", "--run-dir", folder / f"{name}_in_a_group"],
                                    env=ENVIRONMENT, capture_output=True, text=True)
        assert in_a_group.returncode == 0 and "test accuracy" in in_a_group.stdout, in_a_group.stderr
        must_be_alike(folder / f"{name}_in_a_group", results(folder / name))
    assert rank_bytes(folder / "population") == 0 < rank_bytes(folder / "population_in_a_group"), "there was no group: this would show nothing"
    refused = subprocess.run([ESPALIER, *map(str, host), "--backend", "gloo"], env=ENVIRONMENT, capture_output=True, text=True)
    assert refused.returncode == 2 and "--backend gloo" in the_error(refused.stderr) and "-m espalier" in refused.stderr, refused.stderr


def torchrun_restarts(folder):
    """A rank that is killed is started again with the others by torchrun, and the run goes on to its end."""
    job = [*POPULATION, "--lanes", 4, "--epochs", 12, "--devices", "cpu"]
    alone(*job, "--run-dir", folder / "whole", "--checkpoint-minutes", 1000)
    run_dir = folder / "run"
    process = subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--max-restarts", "1", "--master-port", str(free_port()),
         "-m", "espalier", *map(str, job), "--run-dir", str(run_dir), "--checkpoint-minutes", "0", "--rank-limit", str(LIMIT)],
        env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    path = run_dir / "metrics.jsonl"
    while not path.exists() or path.read_text().count("\n") < 8:
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.02)
    workers = [pid for pid in children_of(process.pid) if "espalier" in Path(f"/proc/{pid}/cmdline").read_text()]
    assert len(workers) == 2, workers
    os.kill(RANDOM.choice(workers), signal.SIGKILL)
    _, errors = process.communicate(timeout=120 * patience())
    assert process.returncode == 0, errors
    must_be_alike(run_dir, results(folder / "whole"))
    assert len(json.loads((run_dir / "environment.json").read_text())["sessions"]) == 2
    assert "cannot be reached" in errors or "is gone" in errors or "has not been heard" in errors, errors


def launchers_are_understood(_folder):
    """Ranks and addresses as torchrun, mpirun and Slurm tell them."""
    sys.path.insert(0, str(PACKAGE))
    from espalier.launch import LaunchError, first_host, launch_in

    assert launch_in({}).size == 1
    torchrun = launch_in({"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4", "MASTER_ADDR": "a", "MASTER_PORT": "5",
                          "TORCHELASTIC_USE_AGENT_STORE": "True"})
    assert (torchrun.rank, torchrun.local_rank, torchrun.size, torchrun.store_address) == (3, 1, 4, "a:5"), torchrun
    assert torchrun.agent_keeps_store
    mpi = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}
    assert (launch_in(mpi).rank, launch_in(mpi).size, launch_in(mpi).address) == (1, 2, "127.0.0.1")
    slurm = launch_in({"SLURM_PROCID": "5", "SLURM_LOCALID": "1", "SLURM_STEP_NUM_TASKS": "8", "SLURM_NTASKS": "8", "SLURM_JOB_ID": "41234",
                       "SLURM_STEP_NODELIST": "gpu[03-04,07]"})
    assert (slurm.rank, slurm.local_rank, slurm.size, slurm.store_address) == (5, 1, 8, "gpu03:25234"), slurm
    assert launch_in({"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NTASKS": "8"}).size == 1, "a batch script is one process"
    assert launch_in({"PMI_SIZE": "1"}).size == 1 and launch_in(dict(mpi, PMI_SIZE="2")).size == 2
    assert [first_host(nodes) for nodes in ("n1", "n1,n2", "a[3,5-6]-ib", "b-[001-128]")] == ["n1", "n1", "a3-ib", "b-001"]
    for environment, word in (({"RANK": "x", "WORLD_SIZE": "2", "MASTER_ADDR": "a"}, "RANK"), ({"RANK": "0", "WORLD_SIZE": "2"}, "MASTER_ADDR"),
                              ({"RANK": "2", "WORLD_SIZE": "2", "MASTER_ADDR": "a"}, "rank 2"), (dict(mpi, OMPI_COMM_WORLD_LOCAL_SIZE="1"), "MASTER_ADDR"),
                              ({"PMI_RANK": "0", "PMI_SIZE": "2"}, "PMI_SIZE")):
        try:
            launch_in(environment)
        except LaunchError as error:
            assert word in str(error), error
        else:
            raise AssertionError(f"{environment} was taken")


def the_library_is_found(folder):
    """Where `cmake --install` puts it, in a build beside the package, and where ESPALIER_LIBRARY says; else one sentence. One that was built
    with another torch is refused."""
    environment = {name: value for name, value in ENVIRONMENT.items() if name != "ESPALIER_LIBRARY"}
    for place in ("usr/lib", "usr/lib/x86_64-linux-gnu", "usr/lib64", "usr/share/espalier/build/release", None):
        shutil.rmtree(folder / "usr", ignore_errors=True)
        package = folder / "usr/share/espalier/python/espalier"
        shutil.copytree(PACKAGE / "espalier", package)
        if place:
            (folder / place).mkdir(parents=True)
            (folder / place / LIBRARY.name).symlink_to(LIBRARY)
        code = "import espalier.__main__ as main; print(main.library_path())"
        done = subprocess.run([sys.executable, "-c", code], env=dict(environment, PYTHONPATH=str(package.parent)), capture_output=True, text=True)
        assert (done.stdout.strip() == str(folder / place / LIBRARY.name)) if place else ("LaunchError" in done.stderr), done
    nowhere = subprocess.run([sys.executable, "-m", "espalier", "--version"], env=dict(environment, PYTHONPATH=str(package.parent)),
                             capture_output=True, text=True)
    assert nowhere.returncode == 1 and "ESPALIER_LIBRARY" in the_error(nowhere.stderr), nowhere.stderr
    code = ("import os, torch; torch.__version__ = '1.13.1'; import espalier.__main__ as main\n"
            "try: main.load_library()\nexcept main.LaunchError as error: print(error, flush=True)\nos._exit(0)")
    other = subprocess.run([sys.executable, "-c", code], env=ENVIRONMENT, capture_output=True, text=True)
    assert "was built with torch" in other.stdout and "this Python has 1.13.1" in other.stdout, other


if __name__ == "__main__":
    run_drills(launchers_are_understood, the_library_is_found, lanes_do_not_feel_where_they_run, messages_have_the_size_that_is_documented,
               one_pass_is_shared_out_over_all_ranks, resumed_with_another_number_of_ranks, a_policy_learns_the_same_over_ranks,
               comparisons_are_the_same_over_ranks, a_rank_is_killed, one_of_four_is_killed_at_any_moment, a_rank_is_stopped, ranks_that_do_not_meet,
               ranks_that_differ, one_process_in_a_batch_script, a_group_of_one_changes_nothing, torchrun_restarts)
