"""GangJobs and GangServices of the jobs and services that a federation hands in."""
