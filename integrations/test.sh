#!/usr/bin/env bash
# Tests one plug-in: bash integrations/test.sh NAME PYTHON, where PYTHON has uv, mypy and gantree itself.
#
# The plug-in gets an environment of its own, without the scheduler, of exactly what requirements/integrations-NAME.txt
# pins and hashes. Then come the types, its own tests, and what of the upstream suite its folder says in upstream.sh.
set -euo pipefail

name=$1 python=$(realpath -s "$2")
cd "$(dirname "${BASH_SOURCE[0]}")"
here=$PWD
plugin=$here/gantree-$name
place=$(dirname "$(dirname "$python")")/integrations/$name
lock=$here/../requirements/integrations-$name.txt
uv() { "$python" -m uv "$@" || { echo "Trying again with the system's certificates" >&2; UV_SYSTEM_CERTS=1 "$python" -m uv "$@"; }; }

if ! cmp --silent "$lock" "$place/lock"; then
  "$python" -m uv venv --quiet --clear --python "$python" "$place"
  # What builds a package that has no wheel is installed first, pinned and hashed like the rest.
  builder=$(awk '/^setuptools==/ { found = 1 } found { print } found && !/\\$/ { exit }' "$lock")
  if [ -n "$builder" ]; then
    uv pip install --quiet --python "$place/bin/python" --no-deps --require-hashes -r <(echo "$builder")
  fi
  uv pip sync --quiet --python "$place/bin/python" --require-hashes --no-build-isolation "$lock"
  cp "$lock" "$place/lock"
fi
uv pip install --quiet --python "$place/bin/python" --no-deps --no-build-isolation --reinstall \
  "$here/gantree-client" "$plugin"

echo "== $name: types"
(cd .. && "$python" -m mypy --python-executable "$place/bin/python" "$plugin/src")
export GANTREE_EXECUTABLE=${GANTREE_EXECUTABLE:-$(dirname "$python")/gantree}
export PYTHON=$place/bin/python PATH=$place/bin:$PATH
cd "$plugin"
echo "== $name: its own tests"
"$PYTHON" -m pytest -c ../pytest.ini -q --confcutdir .. tests
if [ -f upstream.sh ]; then
  echo "== $name: the upstream suite"
  bash upstream.sh
fi
