"""Checks the role: check.sh runs it, with the path of calicoctl-win and that of the real modules for Windows.

The tasks are held to the real modules' documents, which Ansible itself reads. Then the role is played on a sandbox node:
only the modules for Windows are played, by the stand-ins below; the program is the real one.
"""

import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import yaml

ROLES = pathlib.Path(__file__).resolve().parent
PROGRAM = pathlib.Path(sys.argv[1]).resolve()
REAL = sys.argv[2]
# Ansible would read the text as an expression.
TEXT = "{{ x }} {% {b}"
CONFIG = f"""
spec:
  calico: {{version: v3.32.1}}
  calicoNetwork: {{backend: BACKEND}}
  services: {{extraEnv: {{TEXT: '{TEXT}'}}}}
"""
# A CNI plugin that runs while its file is removed.
IN_USE = r"C:\Program Files\containerd\cni\bin\calico-ipam.exe"

HEAD = """
import hashlib, os, pathlib, shutil, subprocess
import yaml
from ansible.module_utils.basic import AnsibleModule
ROOT = pathlib.Path(os.environ["ROOT"])
def there(path):
    return ROOT / path.replace("\\\\", "/").replace("C:/", "")
def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else None
"""
# A module each: its arguments, and what it does with them.
MODULES = {
    "win_file": ("path state", """
path = there(p["path"])
changed = not path.is_dir()
if changed and not module.check_mode: path.mkdir(parents=True)
module.exit_json(changed=changed)
"""),
    "win_get_url": ("url dest checksum checksum_algorithm", """
path = there(p["dest"])
changed = sha256(path) != p["checksum"]
if changed and not module.check_mode: shutil.copy(os.environ["PROGRAM"], path)
module.exit_json(changed=changed)
"""),
    "win_copy": ("content dest", """
path = there(p["dest"])
changed = not path.exists() or path.read_text() != p["content"]
if changed and not module.check_mode: path.write_text(p["content"])
module.exit_json(changed=changed)
"""),
    "win_stat": ("path", """
module.exit_json(changed=False, stat={"exists": there(p["path"]).exists()})
"""),
    "win_command": ("argv stdin", """
program, *words = p["argv"]
words = [str(there(w[9:])).join(["--config=", ""]) if w.startswith("--config=C:") else w for w in words]
done = subprocess.run([there(program), *words, "--sandbox", ROOT / "sandbox"], input=p["stdin"], text=True,
                      capture_output=True)
# Linux keeps eight bits of an exit code.
rc = 3010 if done.returncode == 3010 & 255 else done.returncode
module.exit_json(changed=True, rc=rc, stdout=done.stdout, stderr=done.stderr)
"""),
    "win_reboot": ("", """
file = ROOT / "sandbox/node.yaml"
node = yaml.safe_load(file.read_text())
node["processes"] = [one for one in node["processes"] if one["pid"] != 5000]
file.write_text(yaml.safe_dump(node, sort_keys=False))
module.exit_json(changed=True)
"""),
}


def write_modules(folder):
    folder.mkdir(parents=True)
    for name, (arguments, body) in MODULES.items():
        spec = {word: {"type": "list" if word == "argv" else "raw"} for word in arguments.split()}
        head = f"{HEAD}\nmodule = AnsibleModule({spec!r}, supports_check_mode=True)\np = module.params\n"
        (folder / f"{name}.py").write_text(head + body)


class Machine:
    def __init__(self, work):
        self.work = work
        self.root = work / "machine"
        self.root.mkdir()
        write_modules(work / "collections/ansible_collections/ansible/windows/plugins/modules")

    def play(self, backend, *options):
        """Plays what `render ansible` writes. Returns how many tasks changed something, and what was said."""
        (self.work / "node.yaml").write_text(CONFIG.replace("BACKEND", backend))
        sha256 = hashlib.sha256(PROGRAM.read_bytes()).hexdigest()
        download = ["--program-url", "https://example.com/calicoctl-win.exe", "--program-sha256", sha256]
        rendered = subprocess.run([PROGRAM, "render", "ansible", "-c", self.work / "node.yaml", *download],
                                  capture_output=True, check=True)
        (self.work / "site.yml").write_bytes(rendered.stdout)
        local = f"ansible_connection=local ansible_python_interpreter={sys.executable}"
        (self.work / "hosts").write_text(f"[windows]\nwin {local}\n")
        played = {"ANSIBLE_COLLECTIONS_PATH": str(self.work / "collections"), "ANSIBLE_ROLES_PATH": str(ROLES),
                  "ANSIBLE_NOCOLOR": "1", "ROOT": str(self.root), "PROGRAM": str(PROGRAM)}
        done = subprocess.run(["ansible-playbook", "-i", "hosts", "site.yml", *options], cwd=self.work, check=False,
                              capture_output=True, text=True, env={**os.environ, **played})
        assert done.returncode == 0, done.stdout + done.stderr
        return int(re.search(r"win .*changed=(\d+)", done.stdout)[1]), done.stdout

    def files(self):
        return {path: path.read_bytes() for path in self.root.rglob("*") if path.is_file() and "logs" not in path.parts}


def documents(modules):
    """What the real modules accept and return, by name."""
    read = subprocess.run(["ansible-doc", "--type", "module", "--json", *modules], check=True, capture_output=True,
                          env={**os.environ, "ANSIBLE_COLLECTIONS_PATH": REAL})
    return json.loads(read.stdout)


def wrong(module, arguments, document):
    """What the real module would refuse of a task's arguments."""
    options = document["doc"].get("options", {})
    named = {name: one for key, one in options.items() for name in [key, *one.get("aliases", [])]}
    for name, value in arguments.items():
        choices = named.get(name, {}).get("choices")
        if name not in named:
            yield f"{module} has no {name}"
        elif choices and "{{" not in str(value) and value not in choices:
            yield f"{module} has no {name} {value}"
    for name, one in options.items():
        if one.get("required") and not {name, *one.get("aliases", [])} & set(arguments):
            yield f"{module} needs {name}"


def check_arguments():
    used = [(key, task[key] or {}) for file in sorted((ROLES / "calicoctl_win/tasks").glob("*.yml"))
            for task in yaml.safe_load(file.read_text()) for key in task if key.startswith("ansible.windows.")]
    stood_in = [(f"ansible.windows.{name}", arguments.split()) for name, (arguments, _) in MODULES.items()]
    assert {module for module, _ in used} == {module for module, _ in stood_in}, used
    known = documents(sorted({module for module, _ in used}))
    found = [one for module, arguments in used for one in wrong(module, arguments, known[module])]
    # The stand-ins know no argument that the real ones do not.
    found += [f"{module} has no {name}" for module, names in stood_in for name in names
              if name not in known[module]["doc"].get("options", {})]
    # What the tasks read of the results.
    read = [("win_command", "rc"), ("win_command", "stdout"), ("win_command", "stderr"), ("win_stat", "stat")]
    found += [f"{module} returns no {name}" for module, name in read
              if name not in known[f"ansible.windows.{module}"]["return"]]
    assert not found, found
    faulty = {"url": "x", "dest": "x", "sha256": "x", "checksum_algorithm": "crc"}
    assert len(list(wrong("win_get_url", faulty, known["ansible.windows.win_get_url"]))) == 2, "the check does not bite"
    assert len(list(wrong("win_stat", {}, known["ansible.windows.win_stat"]))) == 1, "the check does not bite"
    print(f"the real modules accept the arguments of {len(used)} tasks")


def main():
    check_arguments()
    with tempfile.TemporaryDirectory() as made:
        machine = Machine(pathlib.Path(made))
        changed, said = machine.play("vxlan", "--check")
        assert changed == 3 and machine.files() == {}, said
        changed, said = machine.play("vxlan")
        assert changed == 4, said
        config = json.loads((machine.root / "Program Files/calicoctl-win-setup/node.yaml").read_text())
        assert config["spec"]["services"]["extraEnv"]["TEXT"] == TEXT, config
        changed, said = machine.play("vxlan")
        assert changed == 0, said
        print("check mode changes nothing; the second run has nothing to do")

        before = machine.files()
        changed, said = machine.play("none", "--check")
        assert changed == 2 and machine.files() == before, said
        changed, said = machine.play("vxlan", "--check")
        assert changed == 0, said
        print("check mode shows what the plan has")

        file = machine.root / "sandbox/node.yaml"
        node = yaml.safe_load(file.read_text())
        node["processes"].append({"pid": 5000, "image": IN_USE})
        file.write_text(yaml.safe_dump(node, sort_keys=False))
        changed, said = machine.play("none")
        # The config, the first apply, the restart.
        assert changed == 3 and "Apply the config after the restart" in said, said
        print("a required restart is made, and the config applied again")


main()
