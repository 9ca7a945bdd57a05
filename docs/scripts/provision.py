"""Brings a Windows node in line with its config: python provision.py -c node.yaml"""
import json
import subprocess
import sys
import time

TRIES = 20
PAUSE = 30  # seconds


def apply(options):
    command = ["calicoctl-win", "apply", "--yes", "-o", "json", "--wait-for-lock", "10m", *options]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE).stdout)


for _ in range(TRIES):
    result = apply(sys.argv[1:])
    if result["success"] or not result["error"]["retryable"]:
        break
    time.sleep(PAUSE)
if not result["success"]:
    sys.exit(json.dumps(result["error"], indent=2))
print("changed" if result["changed"] else "nothing to do")
if result["reboot_required"]:
    subprocess.run(["shutdown", "/r", "/t", "60"], check=True)
