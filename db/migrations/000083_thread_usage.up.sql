-- What a thread has cost is summed over all days.
create index spending_of_thread on spending (thread_id);
