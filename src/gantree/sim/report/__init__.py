"""report.html: one page about one run, with charts and tables, that loads nothing from elsewhere.

page        the whole page
document    HTML: sections, tables, the scripts of the charts, inlined once
overview    the summary, and jobs that did not finish
over_time   allocation, queue length, queues, fairness and fragmentation over time
gantt       which queue had which GPUs when, by node or by a wider domain
sizes       waiting, completion and domains by size of the job
costs       GPU-hours lost by cause, energy and money

Every chart is drawn from rows that the page shows as a table, too. Equal results give equal bytes.
"""
