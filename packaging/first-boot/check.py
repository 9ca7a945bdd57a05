"""Gives the user data that `render` makes to the real cloudbase-init: check.sh runs it, with the path of calicoctl-win.

Only Windows is played: what cloudbase-init starts as PowerShell is done here, with the real program in a sandbox.
"""

import base64
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import yaml

PROGRAM = pathlib.Path(sys.argv[1]).resolve()
SHA256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
DOWNLOAD = ["--program-url", "https://example.com/calicoctl-win.exe", "--program-sha256", SHA256]


def program(*words, **environment):
    return subprocess.run([PROGRAM, *words], capture_output=True, check=False, env={**os.environ, **environment})


def rendered(*words):
    done = program("render", *words, "--set", "calico.version=v3.32.1", *DOWNLOAD)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


class Windows:
    """What cloudbase-init asks of Windows. `run` is what a script does, and returns its exit code."""

    def __init__(self, run):
        self.run = run
        self.ran = []

    def execute_powershell_script(self, path, sysnative=True):
        script = pathlib.Path(path).read_bytes()
        self.ran.append(("powershell", sysnative, script))
        return b"", b"", self.run(script)

    def execute_process(self, args, shell=True, decode_output=False):
        script = pathlib.Path(args[-1]).read_bytes()
        self.ran.append(("cmd" if args[-1].endswith(".cmd") else args, shell, script))
        return b"", b"", self.run(script)

    def get_default_script_exec_header(self):
        return "rem cmd"


from cloudbaseinit import conf as settings  # noqa: E402
from cloudbaseinit.osutils import factory  # noqa: E402

settings.CONF([], project="cloudbaseinit", default_config_files=[])

from cloudbaseinit.plugins.common import base, userdata  # noqa: E402

AGAIN, DONE = base.PLUGIN_EXECUTE_ON_NEXT_BOOT, base.PLUGIN_EXECUTION_DONE


def boot(text, run):
    """What cloudbase-init runs of the user data, whether it runs it again at the next boot, and whether it restarts."""
    windows = Windows(run)
    factory.get_os_utils = lambda: windows

    class Service:
        def get_decoded_user_data(self):
            return text

        def get_instance_data(self):
            return {}

    again, restart = userdata.UserDataPlugin().execute(Service(), {})
    return windows.ran, again, restart


def check_user_data():
    text = rendered("user-data")
    expected = {0: (DONE, False), 1: (DONE, False), 4: (DONE, False), 3010: (DONE, False), 1001: (DONE, True),
                1002: (AGAIN, False), 1003: (AGAIN, True)}
    for code, ends in expected.items():
        ran, *ended = boot(text, lambda script, code=code: code)
        # In a 64-bit PowerShell, and every byte of it.
        assert ran == [("powershell", True, text)], ran
        assert tuple(ended) == ends, f"{code}: {ended}"
    print("user-data: run as it is; exit codes 1001 to 1003 mean what exit-codes.md says")


def check_cloud_config(folder):
    os.chdir(folder)
    text = rendered("cloud-config")
    # 1002 would be ignored, so what runs here tries again itself and ends with the last code.
    for code, ends in {0: (DONE, False), 1: (DONE, False), 1002: (DONE, False), 1003: (AGAIN, True)}.items():
        ran, *ended = boot(text, lambda script, code=code: code)
        assert tuple(ended) == ends, f"{code}: {ended}"
        ((kind, _, command),) = ran
        assert kind == "cmd", kind
        document = yaml.safe_load(text)
        assert command.decode().splitlines() == ["rem cmd", document["runcmd"][0]], command
        # On Linux the whole path is the name of a file.
        (path,) = pathlib.Path(folder).iterdir()
        assert path.name == r"C:\Program Files\calicoctl-win-setup\apply.ps1" and path.name in command.decode(), path
        script = path.read_bytes()
        path.unlink()
        assert script == rendered("user-data").removeprefix(b"#ps1_sysnative\r\n"), script
    print("cloud-config: writes the script, then runs it; 1003 restarts and runs it again")
    modules = os.environ["CLOUD_INIT"]
    if not pathlib.Path(modules).exists():
        print("cloud-config: not held to the schema of cloud-init, which only Debian has")
        return
    broken = text.replace(b"write_files:", b"write_files: 3\nfiles:")
    for kind, written, valid in (("valid", text, True), ("broken", broken, False)):
        file = pathlib.Path(folder) / f"{kind}.yaml"
        file.write_bytes(written)
        words = [sys.executable, "-m", "cloudinit.cmd.main", "schema", "--config-file", file]
        judged = subprocess.run(words, capture_output=True, check=False, env={**os.environ, "PYTHONPATH": modules})
        said = judged.stdout.decode() + judged.stderr.decode()
        assert (judged.returncode == 0) == valid and ("Valid cloud-config" in said or "write_files" in said), said
    print("cloud-config: valid by the schema of cloud-init")


def check_boots(folder):
    """Boots of a machine on which the script runs the real program."""
    sandbox = folder / "sandbox"
    said = []

    def booted(*options, **environment):
        def applies(script):
            text = script.decode()
            (call,) = [line for line in text.split("\r\n") if line.startswith("& $program ")]
            (folder / "node.yaml").write_bytes(base64.b64decode(re.search(r"\$config = '([^']*)'", text)[1]))
            words = [word.replace("$file", str(folder / "node.yaml")).strip('"') for word in call.split(" ")[2:]]
            done = program(*words, "--sandbox", str(sandbox), **environment)
            said.append(done.stdout.decode() + done.stderr.decode())
            # Linux keeps eight bits of an exit code; the program has no code of its own from 233 to 235.
            return done.returncode + 768 if done.returncode in (233, 234, 235) else done.returncode

        _, *ended = boot(rendered("user-data", *options), applies)
        return tuple(ended)

    def expect(ended, ends, result):
        assert ended == ends and result in said[-1], f"{ended}, not {ends}: {said[-1]}"

    expect(booted(CALICO_WIN_SANDBOX_FAULT="api down"), (AGAIN, False), "CLUSTER_UNREACHABLE")
    expect(booted(), (DONE, False), "changed=true")
    expect(booted(), (DONE, False), "changed=false")
    # A CNI plugin that runs while its file is removed.
    node = yaml.safe_load((sandbox / "node.yaml").read_text())
    node["processes"].append({"pid": 5000, "image": r"C:\Program Files\containerd\cni\bin\calico-ipam.exe"})
    (sandbox / "node.yaml").write_text(yaml.safe_dump(node, sort_keys=False))
    policy_only = ["--set", "calicoNetwork.backend=none"]
    expect(booted(*policy_only), (AGAIN, True), "REBOOT_REQUIRED")
    expect(booted(*policy_only), (DONE, False), "changed=false")
    print("boots: cluster away, installed, nothing to do, restart required, nothing to do")


def main():
    with tempfile.TemporaryDirectory() as made:
        check_user_data()
        for check, name in ((check_cloud_config, "cloud"), (check_boots, "boots")):
            folder = pathlib.Path(made) / name
            folder.mkdir()
            check(folder)
        os.chdir("/")


main()
