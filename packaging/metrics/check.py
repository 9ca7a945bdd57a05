"""Checks the metrics of sandbox nodes and of a rollout: check.sh runs it, with the path of calicoctl-win.

`promtool check metrics` parses and lints them; the textfile collector of node_exporter, which parses as that of
windows_exporter does, serves them.
"""

import json
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

PROGRAM = pathlib.Path(sys.argv[1]).resolve()
# A path with all that a label has to escape.
ODD = r'C:\k\odd "name" {a}' + "\\\\n"


def run(words, sandbox, *more, ok=(0,)):
    done = subprocess.run([PROGRAM, *words.split(), *more, "--sandbox", sandbox], capture_output=True, text=True,
                          check=False)
    assert done.returncode in ok, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def lint(text):
    """What promtool finds wrong with it; empty if nothing."""
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr + f"exit {done.returncode}"


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Exporter:
    def __init__(self, folder):
        self.address = f"127.0.0.1:{free_port()}"
        program = shutil.which("prometheus-node-exporter") or "node_exporter"
        words = ["--collector.disable-defaults", "--collector.textfile", f"--collector.textfile.directory={folder}",
                 f"--web.listen-address={self.address}"]
        self.process = subprocess.Popen([program, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def served(self):
        until = time.monotonic() + 30
        while True:
            try:
                with urllib.request.urlopen(f"http://{self.address}/metrics", timeout=10) as answer:
                    return answer.read().decode()
            except OSError:
                assert time.monotonic() < until and self.process.poll() is None, "the exporter does not answer"
                time.sleep(0.05)


def samples(text, prefix="calicoctl_win_"):
    """Name and labels of each sample, with its value. Exporters sort labels, and write numbers in another way."""
    found = {}
    for line in text.splitlines():
        if line.startswith(prefix):
            name, value = line.rsplit(" ", 1)
            labels = re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', name)
            found[name.split("{")[0], tuple(sorted(labels))] = float(value)
    return found


def states(work):
    """Sandboxes: installed; with drift, a stopped service and an odd name; interrupted; bare; prepared."""
    run("install --yes", work / "good")
    yield "good", work / "good"
    shutil.copytree(work / "good", work / "wrong")
    node = work / "wrong/node.yaml"
    node.write_text(node.read_text().replace("vsid: 4096", "vsid: 4200").replace("    pid: 4004\n", ""))
    yield "wrong", work / "wrong"
    odd = work / 'odd "name" {a}\\n'
    shutil.copytree(work / "good", odd)
    for record in (odd / "C/ProgramData/calicoctl-win/state/runs").iterdir():
        record.write_text(record.read_text().replace('"command":"install"', '"command":' + quoted(ODD)))
    yield "odd", odd
    shutil.copytree(work / "good", work / "dead")
    run("uninstall --yes --sandbox-fault", work / "dead", "put *#5=exit-after", ok=(137,))
    yield "dead", work / "dead"
    run("service status", work / "bare")
    yield "bare", work / "bare"
    run("install --prepare --yes", work / "image")
    yield "image", work / "image"


def rollout(sandbox):
    """Adds a rollout to a sandbox: a wave that changes the VNI, in which two nodes are done and two failed."""
    named = "app.kubernetes.io/name"
    of_wave = {named: "calicoctl-win", "calicoctl-win/wave": "all"}
    revision = {"calicoctl-win/revision": "new", "calicoctl-win/vni": "5000"}
    at = {"namespace": "calicoctl-win"}
    objects = [("daemonsets.apps", {
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {"name": "calicoctl-win-all", "labels": of_wave, "generation": 1, **at, "annotations": {
            "calicoctl-win/order": "1", "calicoctl-win/max-unavailable": "2", "calicoctl-win/vni": "5000",
            "calicoctl-win/former-vni": "4096"}},
        "spec": {"template": {"metadata": {"annotations": revision}}, "updateStrategy": {"type": "RollingUpdate"}},
        "status": {"observedGeneration": 1, "desiredNumberScheduled": 4, "currentNumberScheduled": 4}})]
    for number in range(4):
        ended = {"startedAt": "2026-01-02T15:00:00Z", "finishedAt": "2026-01-02T15:04:00Z", "exitCode": 0}
        status = {"conditions": [{"type": "Ready", "status": "True"}],
                  "initContainerStatuses": [{"state": {"terminated": ended}}]}
        if number > 1:
            cause = 'result: {"id": "Odd", "what": "w"}' if number == 2 else ODD
            ended = {"exitCode": 9, "message": cause}
            # A run without a result is a failure after five tries.
            status = {"initContainerStatuses": [{"restartCount": 4, "lastState": {"terminated": ended}}]}
        objects.append(("pods", {
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": f"all-{number}", "labels": of_wave, "annotations": revision, **at},
            "spec": {"nodeName": f"node-{number}"}, "status": status}))
    file = sandbox / "cluster/cluster.json"
    cluster = json.loads(file.read_text())
    cluster["objects"] += [[{"kind": kind, "name": one["metadata"]["name"], **at}, one] for kind, one in objects]
    file.write_text(json.dumps(cluster))


def quoted(text):
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def main():
    assert lint("# TYPE a counter\na 1\n"), "promtool finds nothing wrong"
    with tempfile.TemporaryDirectory() as made:
        work = pathlib.Path(made)
        of_nodes = [(name, sandbox, "metrics") for name, sandbox in states(work)]
        shutil.copytree(work / "good", work / "fleet")
        rollout(work / "fleet")
        for name, sandbox, verb in [*of_nodes, ("fleet", work / "fleet", "fleet metrics")]:
            folder = work / f"textfile-{name}"
            folder.mkdir()
            file = folder / "calicoctl-win.prom"
            for _ in range(2):
                run(f"{verb} --quiet --out", sandbox, file)
            text = file.read_text()
            assert [one.name for one in folder.iterdir()] == [file.name], "a temporary file remains"
            wrong = lint(text)
            assert not wrong, f"{name}: {wrong}\n{text}"
            wanted = samples(text)
            assert len(wanted) > 10, text
            with Exporter(folder) as exporter:
                served = exporter.served()
            assert "node_textfile_scrape_error 0" in served, served
            assert samples(served) == wanted, f"{name}: {set(samples(served).items()) ^ set(wanted.items())}"
            if verb == "fleet metrics":
                stopped = samples(text)["calicoctl_win_fleet_wave_state", (("state", "stopped"), ("wave", "all"))]
                assert stopped == 1 and 'fleet_failures{id="Odd"} 1' in text and 'fleet_vni_nodes{vni="5000"} 2' in text, text
            print(f"{name}: {len(wanted)} samples: promtool accepts them, and all are served")
        file.write_text(text + "calicoctl_win_half{")
        with Exporter(folder) as exporter:
            assert "node_textfile_scrape_error 1" in exporter.served(), "the collector reads everything"


main()
