# submitit's own suite, which is in its wheel.
set -euo pipefail
PYTHONPATH=..:tests "$PYTHON" -m pytest -c ../pytest.ini -q -o asyncio_default_fixture_loop_scope=function -p upstream -p conftest --pyargs submitit
