"""Which GPU model and market a job runs on."""
