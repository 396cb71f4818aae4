"""A rank of training in a pod that saves when gantree asks by annotations: `training_pod.py API-SERVER DIRECTORY`.

It takes a step ten times a second and notes each in DIRECTORY/steps/ATTEMPT.POD; what it saves is the step. It needs
the standard library alone.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

STEP_S = 0.1
REQUESTED, DONE, STEP = (f"gantree.io/checkpoint-{word}" for word in ("requested", "done", "step"))


def main() -> None:
    """Go on with the step after the one that was saved, for ever."""
    server, directory = sys.argv[1], Path(sys.argv[2])
    pod, attempt = os.environ["POD_NAME"], os.environ["GANTREE_ATTEMPT"]
    url = f"{server}/api/v1/namespaces/default/pods/{pod}"
    saved = directory / f"saved.{pod}"
    step = int(saved.read_text()) if saved.exists() else 0
    with (directory / "steps" / f"{attempt}.{pod}").open("w") as steps:
        while True:
            time.sleep(STEP_S)
            step += 1
            print(step, file=steps, flush=True)
            told = annotations(url)
            if told.get(REQUESTED, "") != told.get(DONE, ""):
                saved.write_text(str(step))
                answer(url, {DONE: told[REQUESTED], STEP: str(step)})


def annotations(url: str) -> dict[str, str]:
    """Those of this pod."""
    with urlopen(url) as said:
        metadata: dict[str, Any] = json.load(said)["metadata"]
    found: dict[str, str] = metadata.get("annotations", {})
    return found


def answer(url: str, told: dict[str, str]) -> None:
    """Write annotations of this pod."""
    body = json.dumps({"metadata": {"annotations": told}}).encode()
    headers = {"Content-Type": "application/merge-patch+json"}
    urlopen(Request(url, body, headers, method="PATCH")).close()


if __name__ == "__main__":
    main()
