"""Public test utilities: builders, pictures, a stage for the core, contract suites, checkers. Only tests import it."""
