"""Commands about jobs: submit, follow, list and change them."""
