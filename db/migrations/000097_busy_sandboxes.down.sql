drop function busy_sandboxes;
