drop index threads_by_prefix, threads_by_name, sandboxes_by_prefix;
