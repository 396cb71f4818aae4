# submitit's own suite, which is in its wheel.
set -euo pipefail
PYTHONPATH=..:tests "$PYTHON" -m pytest -c ../pytest.ini -q -p upstream -p conftest --pyargs submitit
