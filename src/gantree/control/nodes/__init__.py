"""What is known of nodes beside what the core decides: GPU ids, driver versions, the health of their GPUs."""
