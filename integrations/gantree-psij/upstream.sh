# PSI/J's own suite, which is not in its wheel: PSIJ=DIR is a clone. Without one it is left out.
# Left out: what has no executor as a parameter, and tests of states that no release has (test_callbacks).
set -euo pipefail
if [ -z "${PSIJ:-}" ]; then
  echo "Skipped: PSIJ names no clone of psij-python."
  exit 0
fi
here=$PWD
cd "$PSIJ"
tests=(tests/test_executor.py tests/test_wait.py tests/test_nodefile.py tests/test_issue_387_1.py tests/test_issue_435.py
  tests/test_resources.py tests/user_guide)
PYTHONPATH=$here/.. "$PYTHON" -m pytest -q -p no:cacheprovider -p daemon_of_run --executors=gantree "${tests[@]}"
