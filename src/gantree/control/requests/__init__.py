"""What users and operators request of jobs, nodes and the policy: checked here, made into events for the inbox."""
