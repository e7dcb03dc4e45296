drop table thread_summaries;
